// @ts-check

import { drawKind } from "./drawing.js";
import { say } from "./language.js";
import { fitText, textWidth, wrapText } from "./lettering.js";
import { clamp, legendNumber, shortWeight } from "./numbers.js";
import { divergingColor, rampColor } from "./palette.js";
import { DECADES, SCALES, scaleInverse } from "./scales.js";

/** Steps of a legend's ramp; odd, so that the numbers below its ends and its middle stand under their own colours. */
const LEGEND_STEPS = 65;

/**
 * The number below a place of a legend's ramp.
 * @param {{ramp: string, scale: string, largest: number|null, beyond?: boolean}} legend largest: the weight of the last colour; null: the
 *   numbers are percent of what differs from map to map
 * @param {number} shade
 */
function tickText({ ramp, scale, largest, beyond }, shade) {
  if (ramp === "signed") return shade === 0.5 ? "0" : `${shade === 0 ? "\u2212" : "+"}${legendNumber(largest)}`;
  const part = shade === 0 && scale === "log" ? 10 ** -DECADES : scaleInverse(scale, shade);
  const text = largest === null ? `${legendNumber(100 * part)} %` : legendNumber(part * largest);
  if (shade === 0 && scale === "log") return `\u2264 ${text}`;
  return shade === 1 && beyond ? `\u2265 ${text}` : text;
}

/** Where the parts of the ramp are: the mark of an even share, the colours, the numbers below them. */
const RAMP_PLACE = { mark: 6, top: 13, height: 10, numbers: 32 };

const SMALL = { size: 11 };

const LINE = 14;

/** Above the lines of text. */
const textTop = (legend) => (legend.ramp ? 46 : legend.samples?.length ? 26 : 8);

/** Lines that a legend's text has. */
function linesOf(legend, width) {
  return legend.text ? Math.min(width < NARROW ? 4 : 2, wrapText(legend.text, width - 32, SMALL).length) : 0;
}

/** The height that a legend needs, in pixels. */
export const legendHeight = (legend, width) => textTop(legend) + LINE * linesOf(legend, width) + 2;

/**
 * The scale below a view: its title, a ramp with numbers and the mark of an even share, samples of what is not a weight, and a text.
 * A legend has: ramp ("map", "words", "signed" or null), title, scale, largest (see `tickText`), even (the weight of an even share), beyond
 * (whether something larger than the largest is shown in its colour), samples, text.
 */
export function drawLegend(pen, legend, width, theme) {
  const lines = wrapText(legend.text ?? "", width - 32, SMALL);
  const room = linesOf(legend, width);
  let x = 16;
  if (legend.ramp) x = drawRamp(pen, legend, x, width, theme);
  for (const sample of legend.samples ?? []) x = drawSample(pen, sample, x, width, theme);
  lines.slice(0, room).forEach((line, number) => {
    const last = number === room - 1 && lines.length > room;
    pen.text(last ? fitText(`${line} \u2026`, width - 32, SMALL) : line, 16, textTop(legend) + 6 + number * LINE, { color: theme.muted, ...SMALL });
  });
}

function drawRamp(pen, legend, start, width, theme) {
  const { top, height, numbers, mark } = RAMP_PLACE;
  const title = legend.title ?? say("weightTitle");
  const style = { size: 12, bold: true };
  pen.text(title, start, top + height / 2, { color: theme.text, ...style });
  const x = start + textWidth(title, style) + 12;
  const length = clamp(width * 0.28, 100, 240);
  for (let step = 0; step < LEGEND_STEPS; step += 1) {
    const shade = step / (LEGEND_STEPS - 1);
    const fill = legend.ramp === "signed" ? divergingColor(2 * shade - 1, theme) : rampColor(shade, theme);
    pen.rect(x + (step * length) / LEGEND_STEPS, top, length / LEGEND_STEPS + 0.6, height, { fill });
  }
  pen.rect(x, top, length, height, { stroke: theme.border });
  for (const shade of [0, 0.5, 1]) {
    pen.text(tickText(legend, shade), x + shade * length, numbers,
      { color: theme.muted, size: 11, align: shade === 0 ? "start" : shade === 1 ? "end" : "center" });
  }
  const { even, largest, scale } = legend;
  if (even > 0 && largest > 0 && even <= largest) {
    const at = x + SCALES[scale].shade(even / largest) * length;
    pen.path([[at, top - 4], [at, top + height + 3]], { color: theme.text, lineWidth: 2 });
    pen.text(say("evenMark", { weight: shortWeight(even) }), at + 4, mark, { color: theme.text, size: 11 });
  }
  return x + length + 20;
}

/** Below this width the text of a legend has up to four lines, else two. */
export const NARROW = 640;

function drawSample(pen, [kind, text], x, width, theme) {
  const end = x + 18 + textWidth(text, { size: 11 }) + 12;
  if (end > width) return x;
  drawKind(pen, kind, x, 12, 12, 12, theme);
  pen.rect(x, 12, 12, 12, { stroke: theme.border });
  pen.text(text, x + 18, 18, { color: theme.muted, size: 11 });
  return end;
}
