// @ts-check

import { say } from "./language.js";

const LONGEST_LABEL = 28;

const segmenter = typeof Intl !== "undefined" && Intl.Segmenter ? new Intl.Segmenter() : null;

/** The characters of a text as a reader counts them. */
export const clustersOf = (text) => (segmenter ? Array.from(segmenter.segment(text), (part) => part.segment) : Array.from(text));

/** What stands for characters that have no shape of their own; `visible` of regard.pictures.fonts has the same. */
const MARKS = { " ": "\u2423", "\t": "\u21e5", "\n": "\u21b5", "\u007f": "\u2421" };

/** The names of characters in the table of words. @type {Record<string, any>} */
const CHARACTER_NAMES = { " ": "char_space", "\t": "char_tab", "\n": "char_newline", "\r": "char_carriage_return", "\u00a0": "char_no_break_space",
  "\u00ad": "char_soft_hyphen", "\u200b": "char_zero_width_space", "\u200c": "char_zero_width_non_joiner", "\u200d": "char_zero_width_joiner",
  "\u200e": "char_left_to_right_mark", "\u200f": "char_right_to_left_mark", "\u3000": "char_ideographic_space", "\ufeff": "char_byte_order_mark" };

/** Characters without ink: controls, formats, halves, separators, fillers. */
// eslint-disable-next-line no-misleading-character-class
const INKLESS = /[\p{Cc}\p{Cf}\p{Cs}\p{Z}\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0]/u;

const MARK = /\p{M}/u;

const SELECTOR = /[\u180b-\u180d\u180f\ufe00-\ufe0f\u{e0100}-\u{e01ef}]/u;

/** Whether a joiner or selector does something to the character before it: it does in emoji and in scripts that join. */
const shapes = (before) => before !== undefined && before >= "\u0590" && !INKLESS.test(before);

/** A character as it is shown, between two others; null where it is shown as it is. */
function mark(character, before, after) {
  if (character === "\u200c" || character === "\u200d") {
    if (shapes(before) && shapes(after)) return null;
  } else if (SELECTOR.test(character)) {
    if (shapes(before) || /[#*0-9\u00a9\u00ae]/.test(before ?? "")) return null;
  } else if (character === " ") {
    return before !== undefined && after !== undefined && before !== " " && after !== " " ? null : MARKS[" "];
  } else if (!INKLESS.test(character)) {
    return null;
  }
  return MARKS[character] ?? (character < " " ? String.fromCodePoint(0x2400 + character.codePointAt(0)) : escaped(character));
}

function escaped(character) {
  const code = character.codePointAt(0).toString(16);
  return code.length > 4 ? `\\U${code.padStart(8, "0")}` : code.length > 2 ? `\\u${code.padStart(4, "0")}` : `\\x${code.padStart(2, "0")}`;
}

/** A whole token as text that is seen: different tokens look different. */
export function visibleText(text) {
  if (text === "") return "\u2205";
  const characters = Array.from(text);
  let marked = true; // a combining mark needs a letter that is shown
  return characters.map((character, place) => {
    const shown = mark(character, characters[place - 1], characters[place + 1]);
    if (shown !== null) { marked = true; return shown; }
    const alone = marked && MARK.test(character);
    marked = false;
    return alone ? `\u25cc${character}` : character;
  }).join("");
}

/** The names of the characters of a token that are shown by marks or by no font, in brackets; "" where there is none. */
function markNames(text) {
  const characters = Array.from(text.slice(0, 200));
  const names = characters.filter((character, place) => /[\p{Co}\p{Cn}]/u.test(character)
    || mark(character, characters[place - 1], characters[place + 1]) !== null)
    .map((character) => (CHARACTER_NAMES[character] && say(CHARACTER_NAMES[character])) ?? `U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`);
  const counts = new Map();
  for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1);
  const texts = [...counts].map(([name, count]) => (count > 1 ? `${count} \u00d7 ${name}` : name));
  if (text === "") return ` (${say("emptyToken")})`;
  return texts.length ? ` (${texts.slice(0, 4).join(", ")}${texts.length > 4 ? ", \u2026" : ""})` : "";
}

/** Most labels that are kept. */
const MOST_LABELS = 20000;

const labels = new Map();

/** A token as a short label: visible, and cut after a number of characters as a reader counts them. */
export function shortText(text, limit = LONGEST_LABEL) {
  const key = `${limit} ${text}`;
  let label = labels.get(key);
  if (label === undefined) {
    if (labels.size >= MOST_LABELS) labels.clear();
    label = cutText(text, limit);
    labels.set(key, label);
  }
  return label;
}

function cutText(text, limit) {
  const shown = visibleText(text.length > 12 * limit ? text.slice(0, 12 * limit) : text);
  const clusters = clustersOf(shown);
  return clusters.length > limit || text.length > 12 * limit ? `${clusters.slice(0, limit - 1).join("")}\u2026` : shown;
}

/** A name cut in its middle, since names of layers differ at their ends. */
export function middleText(text, limit) {
  const shown = visibleText(text.length > 24 * limit ? `${text.slice(0, 12 * limit)}${text.slice(-12 * limit)}` : text);
  const clusters = clustersOf(shown);
  if (clusters.length <= limit) return shown;
  const behind = Math.ceil((limit - 1) / 2);
  return `${clusters.slice(0, limit - 1 - behind).join("")}\u2026${clusters.slice(-behind).join("")}`;
}

/** A token inside a sentence: quoted, kept from changing the direction of the words around it, its marks named. */
export const quoted = (text) => `\u201c\u2068${visibleText(text)}\u2069\u201d${markNames(text)}`;

/** Sub-words joined, without the marks "##", "·" (within), "▁", "Ġ", " " (before) and "@@" (behind). */
export function joinPieces(pieces) {
  const several = pieces.length > 1;
  return pieces.map((piece, number) => {
    let text = piece;
    if (number === 0 && (several || piece.length > 1)) text = piece.replace(/^(?:\u2581|\u0120| )/u, "");
    if (number > 0) text = piece.replace(/^(?:##|\u00b7)/u, "");
    return number < pieces.length - 1 ? text.replace(/@@$/u, "") : text;
  }).join("");
}
