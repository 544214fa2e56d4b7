// @ts-check

import { language, say } from "./language.js";
import { middleText } from "./text.js";

const KINDS = ["self", "causal", "cross"];

/** What kind of attention a record is, in words. */
export const kindText = (kind) => (KINDS.includes(kind) ? say(`kind_${/** @type {"self"} */ (kind)}`) : kind);

/** The short name of a record among others: its layer, its kind where there are several, its own name where those are alike. */
export function recordName(record, records) {
  const layer = say("layerNumber", { layer: record.entry.layer });
  const kinds = new Set(records.map((one) => one.entry.kind)).size > 1;
  const parts = kinds ? [layer, kindText(record.entry.kind)] : [layer];
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
