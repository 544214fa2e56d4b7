// @ts-check

import { language, say } from "./language.js";
import { middleText, shortText } from "./text.js";

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

/** How many tokens name a text. */
const NAMING = 4;

const namesOfTexts = new WeakMap();

/** Of which text each record is, from 0: records of one layer and kind on other tokens are of other texts; null where all are of one. */
function textsOf(records) {
  if (!namesOfTexts.has(records)) namesOfTexts.set(records, findTexts(records));
  return namesOfTexts.get(records);
}

function findTexts(records) {
  const found = new Map();
  const numbers = records.map((record) => {
    const key = `${record.entry.layer} ${record.entry.kind} ${record.queries.kind} ${record.keys.kind}`;
    if (!found.has(key)) found.set(key, []);
    return found.get(key).push(record) - 1;
  });
  const alike = [...found.values()].filter((some) => some.length > 1);
  const count = Math.max(0, ...alike.map((some) => some.length));
  const differ = (axis) => alike.some((some) => new Set(some.map((record) => tokensOf(record[axis]).join("\n"))).size === some.length);
  const axis = ["keys", "queries"].find((one) => records.every((record) => record[one].kind === "tokens") && differ(one));
  if (!axis) return null;
  const texts = alike.reduce((most, some) => (some.length > most.length ? some : most)).map((record) => tokensOf(record[axis]));
  return { count, numbers, names: texts.map((text) => nameAmong(text, texts)) };
}

/** The first tokens of a text, or where others begin alike two of them and those from where it differs. */
function nameAmong(text, texts) {
  const alike = (other) => text.findIndex((token, place) => other[place] !== token);
  const from = Math.max(...texts.filter((other) => other !== text).map(alike));
  const end = Math.max(NAMING, from + 2);
  const parts = from < NAMING ? text.slice(0, NAMING) : [...text.slice(0, 2), "\u2026", ...text.slice(from, end)];
  return `${parts.join(" ")}${text.length > end ? " \u2026" : ""}`;
}

const tokensOf = (axis) => Array.from({ length: axis.length }, (_, place) => axis.text(place));

/** How many texts records are of. */
export const textCount = (records) => textsOf(records)?.count ?? 1;

/** Of which text a record is, such as "text 2: … wide", or "text 2" in brief; "" where all are of one. */
export function textName(record, records, brief = false) {
  const texts = textsOf(records);
  if (!texts) return "";
  const number = texts.numbers[records.indexOf(record)];
  return brief ? say("textBrief", { number: number + 1 }) : say("textNumber", { number: number + 1, text: `\u2068${shortText(texts.names[number], 40)}\u2069` });
}

/** The short name of a record among others: its layer, its kind where there are several, its own name where those are alike. */
export function recordName(record, records) {
  const layer = say("layerNumber", { layer: record.entry.layer });
  const parts = differInKind(records) ? [layer, kindText(record)] : [layer];
  const text = textName(record, records);
  const alike = records.some((one) => one !== record && one.label === record.label && textName(one, records) === text);
  if (text) parts.push(text);
  if (alike && record.entry.name) parts.push(middleText(record.entry.name, 28));
  return parts.join(language() === "zh" ? "\u00b7" : " \u00b7 ");
}

/** How many layers and heads a document has. */
export function factsOf(records) {
  if (!records.length) return "";
  const layers = new Set(records.map((record) => record.entry.layer)).size;
  const heads = new Set(records.map((record) => record.heads));
  const texts = textCount(records);
  const count = texts > 1 && layers * texts === records.length ? `${say("textCount", { count: texts })} \u00d7 ${say("layerCount", { count: layers })}` : layers === records.length ? say("layerCount", { count: layers }) : say("attentionCount", { count: records.length });
  const [most] = heads;
  return heads.size > 1 ? count : `${count} \u00d7 ${say("headCount", { count: most })}`;
}
