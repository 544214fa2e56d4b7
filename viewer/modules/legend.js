// @ts-check

import { drawKind } from "./drawing.js";
import { say } from "./language.js";
import { fitText, textWidth, wrapText } from "./lettering.js";
import { clamp, legendNumber, percent, withPercent } from "./numbers.js";
import { divergingColor, rampColor, veilColor } from "./palette.js";
import { DECADES, SCALES, scaleInverse } from "./scales.js";
import { PHONE } from "./style.js";
import { softened } from "./themes.js";

/** Steps of a legend's ramp; odd, so that the numbers below its ends and its middle stand under their own colours. */
const LEGEND_STEPS = 65;

/** The digits of a number of a scale below 1, as other weights have about two. */
const TICK_DIGITS = 2;

/** A number of a scale with signs. */
const signedNumber = (value) => (value > 0 ? "+" : "") + legendNumber(value, TICK_DIGITS);

/**
 * The number below a place of a legend's ramp.
 * @param {{ramp?: string|null, scale: string, largest: number|null, beyond?: boolean, signedText?: (value: number) => string}} legend largest: the
 *   weight of the last colour; null: the numbers are percent; signedText: of a number with its sign
 * @param {number} shade
 */
function tickText({ ramp, scale, largest, beyond, signedText = signedNumber }, shade) {
  if (ramp === "signed") {
    // Zero stands in the middle, and the signs have the same scale.
    if (shade === 0.5) return "0";
    return largest === null ? (shade < 0.5 ? "\u2212" : "+") + percent(1) : signedText((shade < 0.5 ? -1 : 1) * largest);
  }
  const part = shade === 0 && scale === "log" ? 10 ** -DECADES : scaleInverse(scale, shade);
  const text = largest === null ? withPercent(legendNumber(100 * part)) : legendNumber(part * largest, TICK_DIGITS);
  if (shade === 0 && (scale === "log" || scale === "share")) return `\u2264 ${text}`;
  return shade === 1 && beyond ? `\u2265 ${text}` : text;
}

/** The width of a line, and how opaque it is, for the square root of a weight's part of the scale. */
export const lineWidthOf = (part) => 0.6 + 2.4 * part;

export const lineAlphaOf = (part) => 0.15 + 0.85 * part * part;

/** Where the parts of the ramp are: the mark of an even share, the colours, the numbers below them. */
const RAMP_PLACE = { mark: 6, top: 13, height: 10, numbers: 32 };

const SMALL = { size: 11 };

const LINE = 14;

const TITLE_STYLE_OF_RAMP = { size: 12, bold: true };

const rampTitle = (legend) => legend.title ?? say("weightTitle");

/** Where the colours of a ramp begin, and their length. */
const rampPlace = (legend, width) => {
  const x = 16 + textWidth(rampTitle(legend), TITLE_STYLE_OF_RAMP) + 12;
  return { x, length: Math.min(clamp(width * 0.28, legend.scale === "share" ? 190 : 100, 240), Math.max(100, width - x - 16)) };
};

/** Where the colours of signs are, beside those of amounts: shorter on narrow screens. */
const signsPlace = (legend, width) => {
  const { x, length } = rampPlace(legend, width);
  return { x: x + length + 28, length: clamp(width - x - length - 44, 60, length) };
};

/** Where the samples are: beside the ramp, or in lines below it where they have no room. */
function samplePlaces(legend, width) {
  const ramp = rampPlace(legend, width);
  const signs = legend.signs ? signsPlace(legend, width) : ramp;
  let [x, y] = legend.ramp ? [signs.x + signs.length + 20, 12] : [16, 5];
  return (legend.samples ?? []).map(([kind, text]) => {
    const wide = 18 + textWidth(text, SMALL) + 12;
    if (x > 16 && x + wide > width) [x, y] = [16, y === 12 ? 44 : y + 18];
    x += wide;
    return { kind, text, x: x - wide, y };
  });
}

/** Where the text is: beside the ramp and its samples where it has room there, else in lines below. */
function textPlace(legend, width) {
  const places = samplePlaces(legend, width);
  const ramp = rampPlace(legend, width);
  const signs = legend.signs ? signsPlace(legend, width) : ramp;
  const after = places.length ? places.at(-1).x + 18 + textWidth(places.at(-1).text, SMALL) + 20 : signs.x + signs.length + 24;
  const text = legend.text ?? "";
  if (legend.ramp && text && !legend.foot && places.every(({ y }) => y === 12) && after + textWidth(text, SMALL) <= width - 16) return { x: after, y: 18, below: false, lines: [text] };
  const y = Math.max(legend.ramp ? 46 : 8, ...places.map((one) => one.y + (one.y === 12 ? 0 : 21)));
  return { x: 16, y: y + 6, below: true, lines: text ? wrapText(text, width - 32, SMALL) : [] };
}

/** Lines of its text that a legend shows. */
const linesOf = (legend, width) => Math.min(width < PHONE ? Infinity : width < NARROW ? 4 : 2, textPlace(legend, width).lines.length);

/** The height that a legend needs, in pixels. */
export function legendHeight(legend, width) {
  const { y, below } = textPlace(legend, width);
  return (below ? y - 6 + LINE * linesOf(legend, width) : 44) + 2;
}

/**
 * The scale below a view: its title, a ramp with numbers and the mark of an even share, samples of what is not a weight, and a text.
 * A legend has: ramp ("map", "veil", "signed", "width" of lines, or null), title, scale, largest (see `tickText`), even (the weight of an even share) and mark (its name), beyond
 * (whether something larger than the largest is shown in its colour), signs (whether some maps have the colours of signs besides), samples, text, of which `room` lines are shown, foot (whether the text stands below all).
 */
export function drawLegend(pen, legend, width, theme, room = linesOf(legend, width)) {
  const { x: left, y: top, lines } = textPlace(legend, width);
  if (legend.ramp) drawRamp(pen, legend, width, theme);
  for (const { kind, text, x, y } of samplePlaces(legend, width)) {
    drawKind(pen, kind, x, y, 12, 12, legend.soft ? softened(theme) : theme);
    pen.rect(x, y, 12, 12, { stroke: theme.border });
    pen.text(text, x + 18, y + 6, { color: theme.muted, ...SMALL });
  }
  lines.slice(0, room).forEach((line, number) => {
    const last = number === room - 1 && lines.length > room;
    pen.text(last ? fitText(`${line} \u2026`, width - 32, SMALL) : line, left, top + number * LINE, { color: theme.muted, ...SMALL });
  });
}

/** A line that is as wide at each place as one of its weight. */
function drawWidths(pen, x, y, length, theme) {
  for (let step = 0; step < LEGEND_STEPS; step += 1) {
    const part = step / (LEGEND_STEPS - 1);
    const width = lineWidthOf(part);
    pen.rect(x + (step * length) / LEGEND_STEPS, y - width / 2, length / LEGEND_STEPS, width, { fill: theme.text, alpha: theme.forced ? 1 : lineAlphaOf(part) });
  }
}

function drawRamp(pen, legend, width, theme) {
  const { top, height } = RAMP_PLACE;
  pen.text(rampTitle(legend), 16, top + height / 2, { color: theme.text, ...TITLE_STYLE_OF_RAMP });
  drawColors(pen, legend, rampPlace(legend, width), width, theme);
  if (legend.signs) drawColors(pen, { ...legend, ramp: "signed", even: null }, signsPlace(legend, width), width, theme);
}

/** The colours of a ramp, and its numbers. */
function drawColors(pen, legend, { x, length }, width, theme) {
  const { top, height, numbers, mark } = RAMP_PLACE;
  if (legend.ramp === "width") drawWidths(pen, x, top + height / 2, length, theme);
  for (let step = 0; step < LEGEND_STEPS && legend.ramp !== "width"; step += 1) {
    const shade = step / (LEGEND_STEPS - 1);
    const fill = legend.ramp === "veil" ? veilColor(shade) : legend.ramp === "signed" ? divergingColor(2 * shade - 1, theme)
      : rampColor(shade, theme);
    pen.rect(x + (step * length) / LEGEND_STEPS, top, length / LEGEND_STEPS + 0.6, height, { fill });
  }
  if (legend.ramp !== "width") pen.rect(x, top, length, height, { stroke: theme.border });
  for (const shade of legend.scale === "share" ? [0, 1 / 3, 2 / 3, 1] : [0, 0.5, 1]) {
    pen.text(tickText(legend, shade), x + shade * length, numbers,
      { color: theme.muted, size: 11, align: shade === 0 ? "start" : shade === 1 ? "end" : "center" });
  }
  const { even, largest, scale } = legend;
  if (even > 0 && largest > 0 && even <= largest) {
    const at = x + SCALES[scale].shade(even / largest) * length;
    pen.path([[at, top - 1], [at, top + height + 3]], { color: theme.text, lineWidth: 2 });
    pen.text(legend.mark, Math.max(16, Math.min(at + 4, width - 8 - textWidth(legend.mark, SMALL))), mark, { color: theme.text, ...SMALL });
  }
}

/** Below this width the text of a legend has up to four lines, else two; on phones, where the page scrolls, all. */
const NARROW = 640;
