// @ts-check

import { WORDS } from "./words.js";

export const LANGUAGES = ["en", "zh"];

let column = 0;

/** Who writes words: each is called after the language changed. */
const speakers = new Set();

const columnOf = (tag) => LANGUAGES.indexOf((tag ?? "").toLowerCase().split("-")[0]);

/**
 * Chooses the language of all words of the page.
 * @param {string|null|undefined} tag such as "zh-CN"; "auto": the first that the browser's user reads; English where it is another language
 */
export function speak(tag) {
  const tags = tag === "auto" ? globalThis.navigator?.languages ?? [] : [tag];
  const chosen = tags.map(columnOf).find((one) => one >= 0) ?? 0;
  if (chosen === column) return;
  column = chosen;
  for (const speaker of [...speakers]) speaker();
}

/** Calls a function after each change of the language; gives what ends that. */
export function onSpeak(speaker) {
  speakers.add(speaker);
  return () => { speakers.delete(speaker); };
}

/** The language as an attribute `lang` has it. */
export const languageTag = () => (language() === "zh" ? "zh-Hans" : "en");

/** "en" or "zh". */
export const language = () => LANGUAGES[column];

/**
 * A text of the table in the chosen language.
 * @param {keyof typeof WORDS} key
 * @param {Record<string, string|number>} [values] what stands for `{name}`; in `{name:line|lines}` a number chooses the word
 */
export function say(key, values = {}) {
  const text = WORDS[key][column].replace(/\{(\w+)(?::([^|}]*)\|([^}]*))?\}/g, (_, name, one, many) =>
    (many === undefined ? String(values[name]) : Number(values[name]) === 1 ? one : many));
  return WORDS[key][column].startsWith("{") ? text.replace(/^t(?=he \d)/, (first) => first.toUpperCase()) : text;
}
