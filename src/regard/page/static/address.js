// @ts-check
// The fragment of the page's address: models, inputs, and what the viewers show. A link with it opens what was seen.

const VIEW = /^[a-z]{1,20}$/;
const NUMBER = /^\d{1,6}$/;

/**
 * @typedef {{view: string, record: number, head: number|null, scale: string, locked: number[]}} Seen what a viewer shows
 * @typedef {{models: string[], texts: string[], example: number|null, linked: boolean, seen: (Seen|null)[]}} Place
 */

/** What a viewer shows, as a word of the address. */
const writeSeen = (seen) => (seen ? [seen.view, seen.record, seen.head ?? "mean", seen.scale, ...seen.locked].join(".") : "");

/** @returns {Seen|null} */
function readSeen(word) {
  const [view, record, head, scale, ...locked] = word.split(".");
  if (!VIEW.test(view) || !NUMBER.test(record) || !(head === "mean" || NUMBER.test(head)) || !VIEW.test(scale ?? "")) return null;
  return { view, record: Number(record), head: head === "mean" ? null : Number(head), scale,
    locked: locked.filter((row) => NUMBER.test(row)).slice(0, 100).map(Number) };
}

/** @param {Place} place @returns {string} with "#" */
export function writeAddress({ models, texts, example, linked, seen }) {
  const parts = new URLSearchParams();
  for (const name of models) parts.append("model", name);
  for (const text of texts) parts.append("text", text);
  if (example !== null) parts.append("example", String(example));
  if (!linked) parts.append("linked", "0");
  for (const one of seen) parts.append("see", writeSeen(one));
  return parts.size ? `#${parts}` : "";
}

/** @param {string} fragment anything @returns {Place} what of it can be understood */
export function readAddress(fragment) {
  const parts = new URLSearchParams(fragment.replace(/^#/, ""));
  const example = parts.get("example") ?? "";
  return {
    models: parts.getAll("model").slice(0, 16), texts: parts.getAll("text").slice(0, 16),
    example: NUMBER.test(example) ? Number(example) : null, linked: parts.get("linked") !== "0",
    seen: parts.getAll("see").slice(0, 16).map(readSeen),
  };
}
