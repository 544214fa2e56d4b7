// @ts-check

import { language, say } from "./language.js";
import { middleText } from "./text.js";

/**
 * What a record is, in plain words: "encoder", "decoder, causal", "decoder → source".
 * @param {{kind: string, keys: {kind: string}, others: {kind: string}[]}} record kind as in the payload; others: all records of the document
 */
export function kindText({ kind, keys, others }) {
  if (kind === "self") return say("kind_self");
  if (kind === "causal") return say("kind_causal");
  const target = say(keys.kind === "grid" ? "kind_image" : keys.kind === "frames" ? "kind_sound" : "kind_source");
  return say(others.some((one) => one.kind === "causal") ? "kind_cross" : "kind_queries", { target });
}

/** Whether records differ by more than their layer. */
export const differInKind = (records) => new Set(records.map((record) => record.entry.kind)).size > 1;

/** The short name of a record among others: its layer, its kind where there are several, its own name where those are alike. */
export function recordName(record, records) {
  const layer = say("layerNumber", { layer: record.entry.layer });
  const parts = differInKind(records) ? [layer, kindText(record)] : [layer];
  const alike = records.some((one) => one !== record && one.label === record.label);
  if (alike && record.entry.name) parts.push(middleText(record.entry.name, 28));
  return parts.join(language() === "zh" ? "\u00b7" : " \u00b7 ");
}

/** How many layers and heads a document has. */
export function factsOf(records) {
  if (!records.length) return "";
  const layers = new Set(records.map((record) => record.entry.layer)).size;
  const heads = new Set(records.map((record) => record.heads));
  const count = layers === records.length ? say("layerCount", { count: layers }) : say("attentionCount", { count: records.length });
  const [most] = heads;
  return heads.size > 1 ? count : `${count} \u00d7 ${say("headCount", { count: most })}`;
}
