// @ts-check

import { newCanvas } from "./canvases.js";
import { segmenter } from "./text.js";

export const FONT = "system-ui, -apple-system, 'Segoe UI', 'Noto Sans', 'DejaVu Sans', sans-serif";

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

/** A text cut to a width. */
export function fitText(text, width, style = {}) {
  if (textWidth(text, style) <= width) return text;
  const parts = segmenter ? Array.from(segmenter.segment(text), (part) => part.segment) : Array.from(text);
  let [low, high] = [0, parts.length];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (textWidth(`${parts.slice(0, middle).join("")}\u2026`, style) <= width) low = middle;
    else high = middle - 1;
  }
  return low ? `${parts.slice(0, low).join("")}\u2026` : "";
}

export function wrapText(text, width, style) {
  const lines = [""];
  for (const word of text.split(" ")) {
    const longer = lines.at(-1) ? `${lines.at(-1)} ${word}` : word;
    if (lines.at(-1) && textWidth(longer, style) > width) lines.push(word);
    else lines[lines.length - 1] = longer;
  }
  return lines;
}
