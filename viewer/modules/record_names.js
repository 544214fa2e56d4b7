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

/** The records of each text, where one model read several; null for one. */
export function textsOf(records) {
  const count = 1 + Math.max(0, ...records.map((record) => record.entry.text ?? 0));
  if (records.every((record) => record.entry.text === records[0].entry.text)) return null;
  if (!byText.has(records)) byText.set(records, Array.from({ length: count }, (_, text) => records.filter((record) => record.entry.text === text)));
  return byText.get(records);
}

const byText = new WeakMap();

/** The number of a record's text as it is shown, such as "text 2"; "" where all are of one. */
export const textName = (record, records) => (textsOf(records) ? say("textBrief", { number: record.entry.text + 1 }) : "");

/** The short name of a record among others: its layer, its kind where there are several, its own name where those are alike. */
export function recordName(record, records) {
  const layer = say("layerNumber", { layer: record.entry.layer });
  const parts = differInKind(records) ? [layer, kindText(record)] : [layer];
  const alike = records.some((one) => one !== record && one.label === record.label && one.entry.text === record.entry.text);
  if (alike && record.entry.name) parts.push(middleText(record.entry.name, 28));
  return parts.join(language() === "zh" ? "\u00b7" : " \u00b7 ");
}

/** How many layers and heads a document has. */
export function factsOf(records) {
  if (!records.length) return "";
  const texts = textsOf(records);
  if (texts) return `${say("textCount", { count: texts.length })} \u00d7 ${factsOf(texts[0])}`;
  const layers = new Set(records.map((record) => record.entry.layer)).size;
  const heads = new Set(records.map((record) => record.heads));
  const count = layers === records.length ? say("layerCount", { count: layers }) : say("attentionCount", { count: records.length });
  const [most] = heads;
  return heads.size > 1 ? count : `${count} \u00d7 ${say("headCount", { count: most })}`;
}
