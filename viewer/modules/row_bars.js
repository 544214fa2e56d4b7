// @ts-check

import { say } from "./language.js";
import { fitText, textWidth } from "./lettering.js";
import { clamp, signedWeight } from "./numbers.js";
import { divergingColor, rampColor } from "./palette.js";
import { byWeight, evenShare, evenText, headsOf, NAMED, queryOf, strongestOf } from "./sentence.js";
import { shortText } from "./text.js";

const BAR_STEP = 26;

/** The room that the bars of a row need beside a map, in pixels. */
export const BARS_ROOM = { width: 300, most: 480, gap: 24, height: (NAMED + 3) * BAR_STEP };

/** The type of the title and of the lines of bars. */
const [BARS_TITLE, BARS_TEXT] = [{ size: 16, bold: true }, { size: 13 }];

/** Where the bars of a row begin: at the height of the row, inside of the room from `top` to `bottom`. */
export const barsTop = (row, top, bottom) => clamp(row, top + 12, Math.max(top + 12, bottom - BARS_ROOM.height + 16));

/** Whom a query looks at, as bars: the strongest keys, the others together, and the mark of an even share. */
export function drawRowBars(app, pen, table, row, { x, y, width = BARS_ROOM.width, names: least = 0 }) {
  const { theme } = app;
  const order = byWeight(table, row);
  if (!order.length) return;
  const { weights, others } = strongestOf(table, row, order);
  const first = order.slice(0, NAMED);
  const names = first.map((column) => shortText(table.columnText(column)));
  if (others !== null) names.push(say("others", { count: order.length - NAMED }));
  const name = Math.max(least, Math.min(width * 0.4, Math.max(...names.map((text) => textWidth(text, BARS_TEXT)))) + 10);
  const length = width - name - 52;
  const most = Math.max(Math.abs(table.value(row, order[0])), Math.abs(others ?? 0));
  const colorOf = table.signed ? divergingColor : rampColor;
  const heads = headsOf(table);
  const looks = table.record.say("looksAtTitle", { query: queryOf(table, row) });
  pen.text(fitText(heads > 1 ? `${looks} (${say("meanOfHeads", { count: heads })})` : looks, width, BARS_TITLE), x, y, { color: theme.text, ...BARS_TITLE });
  const even = evenShare(table, row);
  const marked = even !== null && most > 0 && even <= most;
  const at = x + name + (length * (even ?? 0)) / most;
  names.forEach((text, line) => {
    const column = order[line];
    const rest = line === NAMED;
    const [value, color] = rest ? [Number(others), theme.muted] : [table.value(row, column), theme.text];
    const middle = y + (line + (rest ? 2 : 1.2)) * BAR_STEP;
    pen.text(fitText(text, name - 10, BARS_TEXT), x + name - 10, middle, { color, ...BARS_TEXT, align: "end" });
    const wide = most > 0 ? (length * Math.abs(value)) / most : 0;
    if (value) pen.rect(x + name, middle - 8, Math.max(1, wide), 16, { fill: rest ? theme.surface : colorOf(table.shade(row, column, app.state.scale), theme), stroke: theme.border, radius: 2 });
    pen.text(weights[line], Math.max(x + name + wide, marked && !rest ? at : 0) + 8, middle, { color, ...BARS_TEXT });
  });
  if (!marked) return;
  const foot = y + (first.length + 0.75) * BAR_STEP; // above the bar of the others, which is a sum
  const share = evenText("evenMark", table, even);
  pen.path([[at, y + 0.6 * BAR_STEP], [at, foot]], { color: theme.text, lineWidth: 1, dash: [3, 3] });
  pen.text(share, Math.min(at, x + width - textWidth(share, { size: 12 })), foot + 10, { color: theme.muted, size: 12 });
}

/** How much more each head gives to the keys that differ most: a bar on the side of the head that gives more, from zero in the middle. */
export function drawDifferenceBars(app, pen, table, row, { one, other }, { x, y, width = BARS_ROOM.width }) {
  const { theme } = app;
  const order = byWeight(table, row).filter((column) => table.value(row, column) !== 0).slice(0, NAMED);
  if (!order.length) return;
  pen.text(fitText(say("differenceAsks", { query: queryOf(table, row), one, other }), width, BARS_TITLE), x, y, { color: theme.text, ...BARS_TITLE });
  const lines = order.map((column) => ({ text: shortText(table.columnText(column)), value: table.value(row, column), fill: divergingColor(table.shade(row, column, app.state.scale), theme) }));
  const [name, number] = [84, 44];
  const side = (width - name - 2 * number) / 2;
  const middle = x + name + number + side;
  const most = Math.max(...lines.map(({ value }) => Math.abs(value)));
  const small = { size: 11 };
  for (const [head, align, sign] of /** @type {[string, "start"|"end", number][]} */ ([[other, "end", -1], [one, "start", 1]])) {
    pen.text(fitText(say("differenceMoreIn", { name: head }), width / 2 - 4, small), middle + 5 * sign, y + 1.1 * BAR_STEP,
      { color: divergingColor(0.8 * sign, theme), ...small, align });
  }
  lines.forEach(({ text, value, fill }, line) => {
    const at = y + (line + 2.1) * BAR_STEP;
    const style = { color: theme.text, ...BARS_TEXT };
    const wide = Math.max(1, (side * Math.abs(value)) / most);
    const sign = value < 0 ? -1 : 1;
    pen.text(fitText(text, name - 8, BARS_TEXT), x + name - 8, at, { ...style, align: "end" });
    pen.rect(value < 0 ? middle - wide : middle, at - 8, wide, 16, { fill, stroke: theme.border, radius: 2 });
    pen.text(signedWeight(value), middle + sign * (wide + 6), at, { ...style, align: sign < 0 ? "end" : "start" });
  });
  pen.path([[middle, y + 1.6 * BAR_STEP], [middle, y + (lines.length + 1.6) * BAR_STEP]], { color: theme.text, lineWidth: 1 });
}
