// @ts-check

import { WORDS } from "./words.js";

const LANGUAGES = ["en", "zh"];
let column = 0;

/**
 * Chooses the language of all words of the page.
 * @param {string|null|undefined} tag such as "zh-CN"; English where it is another language
 */
export function speak(tag) {
  column = Math.max(0, LANGUAGES.indexOf((tag ?? "en").toLowerCase().split("-")[0]));
}

/** "en" or "zh". */
export const language = () => LANGUAGES[column];

/**
 * A text of the table in the chosen language.
 * @param {keyof typeof WORDS} key
 * @param {Record<string, string|number>} [values] what stands for `{name}`; in `{name:line|lines}` a number chooses the word
 */
export function say(key, values = {}) {
  return WORDS[key][column].replace(/\{(\w+)(?::([^|}]*)\|([^}]*))?\}/g, (_, name, one, many) =>
    (many === undefined ? String(values[name]) : Number(values[name]) === 1 ? one : many));
}
