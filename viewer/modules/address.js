// @ts-check

import { PASSING, checkedState, lasting } from "./state.js";

function parsed(text) {
  try {
    return { value: JSON.parse(text) };
  } catch {
    return null;
  }
}

/** A value as text: JSON, and a word as it is where that is no JSON. */
const written = (value) => (typeof value === "string" && !parsed(value) ? value : JSON.stringify(value));

/** What need not be escaped in a fragment, and is easier to read so. */
const READABLE = { "%2C": ",", "%5B": "[", "%5D": "]", "%3A": ":" };

/**
 * A state as the fragment of an address, without "#".
 * @param {any} state `numbered`: its heads are numbers of the model, and not positions among those of the record
 */
export const addressOf = (state) => Object.entries({ ...lasting(state), language: state.language ?? undefined, numbered: state.numbered })
  .filter(([, value]) => value !== undefined).map(([name, value]) =>
  `${name}=${encodeURIComponent(written(value)).replace(/%2C|%5B|%5D|%3A/g, (code) => READABLE[code])}`).join("&");

/**
 * The state that a fragment names: the fields that it has with values that can be; nothing else, whatever it holds.
 * @param {string} fragment with or without "#"
 * @returns {Record<string, any>}
 */
export function stateOf(fragment) {
  const found = {};
  for (const part of fragment.replace(/^#/, "").split("&")) {
    const at = part.indexOf("=");
    if (at < 1) continue;
    try {
      const text = decodeURIComponent(part.slice(at + 1));
      const json = parsed(text);
      Object.defineProperty(found, part.slice(0, at), { value: json ? json.value : text, enumerable: true, configurable: true });
    } catch {
      continue; // no escape of UTF-8
    }
  }
  const state = checkedState(found);
  for (const name of PASSING) delete state[name];
  if (/** @type {any} */ (found).numbered === true) state.numbered = true;
  return state;
}
