// @ts-check

import { say } from "./language.js";
import { fitText, textWidth } from "./lettering.js";
import { shortWeight } from "./numbers.js";
import { divergingColor, rampColor } from "./palette.js";
import { NAMED, byWeight, evenShare, headsOf, strongestOf } from "./sentence.js";
import { shortText } from "./text.js";

const BAR_STEP = 22;

/** The room that the bars of a row need beside a map, in pixels. */
export const BARS_ROOM = { width: 270, gap: 40, height: (NAMED + 4) * BAR_STEP };

/** Whom a query looks at, as bars: the strongest keys, the others together, and the mark of an even share. */
export function drawRowBars(app, pen, table, row, { x, y }) {
  const { theme } = app;
  const order = byWeight(table, row);
  if (!order.length) return;
  const name = 96;
  const length = BARS_ROOM.width - name - 48;
  const { weights, others } = strongestOf(table, row, order);
  const most = Math.max(Math.abs(table.value(row, order[0])), Math.abs(others ?? 0));
  const colorOf = table.signed ? divergingColor : rampColor;
  const title = { size: 13, bold: true };
  const heads = headsOf(table);
  const looks = table.record.say("looksAtTitle", { query: `\u2068${shortText(table.rowText(row))}\u2069` });
  pen.text(fitText(heads > 1 ? `${looks} (${say("meanOfHeads", { count: heads })})` : looks, BARS_ROOM.width, title), x, y, { color: theme.text, ...title });
  const even = evenShare(table, row);
  const marked = even !== null && most > 0 && even <= most;
  const at = x + name + (length * (even ?? 0)) / most;
  const bar = (line, text, value, number, style) => {
    const middle = y + (line + 1.2) * BAR_STEP;
    pen.text(fitText(text, name - 8, { size: 12 }), x + name - 8, middle, { color: style.text, size: 12, align: "end" });
    const wide = most > 0 ? (length * Math.abs(value)) / most : 0;
    pen.rect(x + name, middle - 6, Math.max(1, wide), 12, { fill: style.fill, stroke: theme.border, radius: 2 });
    pen.text(number, Math.max(x + name + wide, marked ? at : 0) + 6, middle, { color: style.text, size: 12 });
  };
  const first = order.slice(0, NAMED);
  first.forEach((column, line) => bar(line, shortText(table.columnText(column)), table.value(row, column), weights[line], { text: theme.text, fill: colorOf(table.shade(row, column, app.state.scale), theme) }));
  if (others !== null) bar(NAMED, say("others", { count: order.length - NAMED }), others, weights[NAMED], { text: theme.muted, fill: theme.surface });
  if (!marked) return;
  const foot = y + (first.length + (others === null ? 0.8 : 1.8)) * BAR_STEP;
  pen.path([[at, y + 0.6 * BAR_STEP], [at, foot + 4]], { color: theme.text, lineWidth: 1, dash: [3, 3] });
  pen.text(say("evenMark", { weight: shortWeight(Number(even)) }), at, foot + 12, { color: theme.muted, size: 11 });
}

/** How much more each head gives to the keys that differ most: a bar on the side of the head that gives more, from zero in the middle. */
export function drawDifferenceBars(app, pen, table, row, { one, other }, { x, y }) {
  const { theme } = app;
  const order = byWeight(table, row).filter((column) => table.value(row, column) !== 0).slice(0, NAMED + 1);
  if (!order.length) return;
  const title = { size: 13, bold: true };
  pen.text(fitText(say("differenceAsks", { query: `\u2068${shortText(table.rowText(row))}\u2069` }), BARS_ROOM.width, title), x, y, { color: theme.text, ...title });
  const numbers = order.map((column) => differenceText(table.value(row, column)));
  const [name, number] = [84, Math.max(...numbers.map((text) => textWidth(text, { size: 12 }))) + 6];
  const side = (BARS_ROOM.width - name - number) / 2;
  const middle = x + name + side;
  const small = { size: 11 };
  const ends = [[other, "end", -1], [one, "start", 1]];
  for (const [head, align, sign] of /** @type {[string, "start"|"end", number][]} */ (ends)) {
    pen.text(fitText(say("differenceMoreIn", { name: head }), BARS_ROOM.width / 2 - 4, small), middle + 5 * sign, y + 1.1 * BAR_STEP,
      { color: divergingColor(0.8 * sign, theme), ...small, align });
  }
  order.forEach((column, line) => {
    const at = y + (line + 2.1) * BAR_STEP;
    const value = table.value(row, column);
    const wide = Math.max(1, (side * Math.abs(value)) / Math.abs(table.value(row, order[0])));
    pen.text(fitText(shortText(table.columnText(column)), name - 8, { size: 12 }), x + name - 8, at, { color: theme.text, size: 12, align: "end" });
    pen.rect(value < 0 ? middle - wide : middle, at - 6, wide, 12, { fill: divergingColor(table.shade(row, column, app.state.scale), theme), stroke: theme.border });
    pen.text(numbers[line], x + BARS_ROOM.width, at, { color: theme.text, size: 12, align: "end" });
  });
  pen.path([[middle, y + 1.5 * BAR_STEP], [middle, y + (order.length + 1.7) * BAR_STEP]], { color: theme.text, lineWidth: 1 });
}

/** A difference with its sign. */
const differenceText = (value) => (value > 0 ? `+${shortWeight(value)}` : shortWeight(value));
