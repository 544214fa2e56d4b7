// @ts-check

import { newCanvas } from "./canvases.js";
import { clustersOf } from "./text.js";

export const FONT = "system-ui, -apple-system, 'Segoe UI', 'Noto Sans', 'DejaVu Sans', sans-serif, "
  + "'Apple Color Emoji', 'Segoe UI Emoji', 'Noto Color Emoji', 'Noto Emoji'";

let measureContext = null;

const widths = new Map();

export const fontOf = ({ size = 12, bold = false }) => `${bold ? 600 : 400} ${size}px ${FONT}`;

/** The width of a text in pixels. */
export function textWidth(text, style = {}) {
  const font = fontOf(style);
  const key = `${font}|${text}`;
  let width = widths.get(key);
  if (width === undefined) {
    if (widths.size > 20000) widths.clear();
    measureContext ??= newCanvas(1, 1).getContext("2d");
    measureContext.font = font;
    width = measureContext.measureText(text).width;
    widths.set(key, width);
  }
  return width;
}

const ELLIPSIS = "\u2026";

/** A text cut to a width. */
export function fitText(text, width, style = {}) {
  if (textWidth(text, style) <= width) return text;
  const parts = clustersOf(text);
  const cut = (count) => parts.slice(0, count).join("") + ELLIPSIS;
  let [low, high] = [0, parts.length];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (textWidth(cut(middle), style) <= width) low = middle;
    else high = middle - 1;
  }
  return low ? cut(low) : "";
}

export const RIGHT_TO_LEFT = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\u{10800}-\u{10fff}\u{1e800}-\u{1eeff}]/u;

/** The direction of a text: that of its first letter that is not in an isolate, as Unicode's algorithm has it (UAX 9, P2). */
export function directionOf(text) {
  if (!RIGHT_TO_LEFT.test(text)) return "ltr";
  const letter = text.replace(/\u2068[^\u2069]*\u2069/g, "").match(/\p{L}/u);
  return letter && RIGHT_TO_LEFT.test(letter[0]) ? "rtl" : "ltr";
}

/** Most texts whose lines are kept. */
const MOST_WRAPPED = 1000;

const wrapped = new Map();

/** The lines of a text that are no wider than a width, but for single words. */
export function wrapText(text, width, style = {}) {
  const key = `${fontOf(style)}|${width}|${text}`;
  let lines = wrapped.get(key);
  if (!lines) {
    if (wrapped.size >= MOST_WRAPPED) wrapped.clear();
    lines = linesOfText(text, width, style);
    wrapped.set(key, lines);
  }
  return lines;
}

function linesOfText(text, width, style) {
  const lines = [""];
  for (const word of text.split(" ")) {
    const longer = lines.at(-1) ? `${lines.at(-1)} ${word}` : word;
    if (lines.at(-1) && textWidth(longer, style) > width) lines.push(word);
    else lines[lines.length - 1] = longer;
  }
  return lines;
}
