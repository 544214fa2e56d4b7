// @ts-check
// The fragment of the page's address: models, inputs, and what the viewers show. A link with it opens what was seen.

import { addressOf, stateOf } from "./viewer.js";

const NUMBER = /^\d{1,6}$/;

/**
 * @typedef {Record<string, any>} Seen the state of a viewer
 * @typedef {{models: string[], texts: string[], example: number|null, linked: boolean, seen: (Seen|null)[]}} Place
 */

/** What a viewer shows, as a word of the address: the fragment that the viewer itself would have. */
const writeSeen = (seen) => (seen ? addressOf(seen) : "");

/** @returns {Seen|null} */
function readSeen(word) {
  const seen = stateOf(word);
  return seen.view ? seen : null;
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
