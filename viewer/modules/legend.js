// @ts-check

import { drawKind } from "./drawing.js";
import { fitText, textWidth, wrapText } from "./lettering.js";
import { clamp, legendNumber } from "./numbers.js";
import { divergingColor, rampColor } from "./palette.js";
import { DECADES, scaleInverse } from "./scales.js";

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

/**
 * The scale below a view: a ramp with numbers and the scale's name, and samples of what is not a weight.
 * A legend has: ramp ("map", "words", "signed" with zero in the middle, or null), scale, largest (see `tickText`), beyond (whether something larger than
 * the largest is shown in its colour), samples, text.
 */
export function drawLegend(pen, legend, width, theme) {
  let x = 12;
  if (legend.ramp) {
    const length = clamp(width * 0.32, 110, 220);
    for (let step = 0; step < LEGEND_STEPS; step += 1) {
      const shade = step / (LEGEND_STEPS - 1);
      const fill = legend.ramp === "signed" ? divergingColor(2 * shade - 1, theme) : rampColor(shade, theme);
      pen.rect(x + (step * length) / LEGEND_STEPS, 6, length / LEGEND_STEPS + 0.6, 10, { fill });
    }
    pen.rect(x, 6, length, 10, { stroke: theme.border });
    for (const shade of [0, 0.5, 1]) {
      pen.text(tickText(legend, shade), x + shade * length, 25,
        { color: theme.muted, size: 11, align: shade === 0 ? "start" : shade === 1 ? "end" : "center" });
    }
    x += length + 14;
  }
  for (const sample of legend.samples ?? []) x = drawSample(pen, sample, x, width, theme);
  let y = legend.ramp ? 41 : legend.samples?.length ? 29 : 13;
  const lines = wrapText(legend.text, width - 24, { size: 11 });
  const room = width < NARROW ? 4 : 2;
  lines.slice(0, room).forEach((line, number) => {
    const last = number === room - 1 && lines.length > room;
    pen.text(last ? fitText(`${line} \u2026`, width - 24, { size: 11 }) : line, 12, y, { color: theme.muted, size: 11 });
    y += 14;
  });
}

/** Below this width the legend has four lines, else two. */
export const NARROW = 640;

function drawSample(pen, [kind, text], x, width, theme) {
  const end = x + 18 + textWidth(text, { size: 11 }) + 12;
  if (end > width) return x;
  drawKind(pen, kind, x, 5, 12, 12, theme);
  pen.rect(x, 5, 12, 12, { stroke: theme.border });
  pen.text(text, x + 18, 11, { color: theme.muted, size: 11 });
  return end;
}
