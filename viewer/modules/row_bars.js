// @ts-check

import { say } from "./language.js";
import { fitText, textWidth } from "./lettering.js";
import { clamp } from "./numbers.js";
import { divergingColor, rampColor } from "./palette.js";
import { evenShare, evenText, headsOf, NAMED, queryOf, strongestOf } from "./sentence.js";
import { byWeight } from "./table.js";
import { shortText } from "./text.js";

/** From one bar to the next. */
export const BAR_STEP = 26;

/** The room that the bars of a row need beside a map, in pixels. */
export const BARS_ROOM = { width: 300, most: 480, gap: 24, height: (NAMED + 3) * BAR_STEP };

/** The type of the title and of the lines of bars. */
export const [BARS_TITLE, BARS_TEXT] = [{ size: 16, bold: true }, { size: 13 }];

/** Where bars of a height begin: at the height of the row, inside of the room from `top` to `bottom`. */
export const barsTop = (row, top, bottom, height) => clamp(row, top + 12, Math.max(top + 12, bottom - height + 16));

/** Lines of bars {text, y, color, bold, clear, bars: {value, weight, fill}[]} below a title, with `after` free behind them and numbers behind `clear`; where bars begin, and their length for a value of 1. */
export function drawBarLines(pen, theme, title, lines, place) {
  const { x, y, width, after = 0, names = 0 } = place;
  const name = Math.max(names, Math.min(width * 0.4, Math.max(0, ...lines.map(({ text }) => textWidth(text, { ...BARS_TEXT, bold: true })))) + 16);
  const most = Math.max(...lines.flatMap(({ bars }) => bars.map(({ value }) => Math.abs(value) || 0)));
  const [left, unit] = [x + name, most > 0 ? (width - name - 46 - after) / most : 0];
  pen.text(fitText(title, width, BARS_TITLE), x, y, { color: theme.text, ...BARS_TITLE });
  for (const { text, y: middle, color = theme.text, bold = false, clear = 0, bars } of lines) {
    const style = { color, bold, ...BARS_TEXT };
    pen.text(fitText(text, name - 16, style), left - 10, middle, { ...style, align: "end" });
    bars.forEach(({ value, weight, fill }, number) => {
      const [size, high, at] = [unit * (Math.abs(value) || 0), bars.length > 1 ? 12 : 16, middle + 14 * (number - (bars.length - 1) / 2)];
      if (value) pen.rect(left, at - high / 2, Math.max(1, size), high, { fill, stroke: theme.border, radius: 2 });
      pen.text(weight, left + Math.max(size, unit * clear) + 8, at, { color, ...BARS_TEXT });
    });
  }
  return { left, unit };
}

/** Whom a query looks at, as bars: the strongest keys, the others together, and the mark of an even share. */
export function drawRowBars(app, pen, table, row, { x, y, width = BARS_ROOM.width, names = 0 }) {
  const { theme } = app;
  const order = byWeight(table, row);
  if (!order.length) return;
  const { weights, others } = strongestOf(table, row, order);
  const even = evenShare(table, row) ?? 0;
  const marked = even > 0 && even <= Math.max(table.value(row, order[0]), others ?? 0);
  const colorOf = table.signed ? divergingColor : rampColor;
  const heads = headsOf(table);
  const looks = table.record.say("looksAtTitle", { query: queryOf(table, row) });
  const lines = order.slice(0, NAMED).map((column, line) => ({ text: shortText(table.columnText(column)), y: y + (line + 1.2) * BAR_STEP, color: theme.text, clear: marked ? even : 0,
    bars: [{ value: table.value(row, column), weight: weights[line], fill: colorOf(table.shade(row, column, app.state.scale), theme) }] }));
  const foot = y + (lines.length + 0.75) * BAR_STEP; // above the bar of the others, which is a sum
  if (others !== null) {
    lines.push({ text: say("others", { count: order.length - NAMED }), y: y + (NAMED + 2) * BAR_STEP, color: theme.muted, clear: 0, bars: [{ value: others, weight: weights[NAMED], fill: theme.surface }] });
  }
  const { left, unit } = drawBarLines(pen, theme, heads > 1 ? `${looks} (${say("meanOfHeads", { count: heads })})` : looks, lines, { x, y, width, names });
  if (!marked) return;
  const at = left + unit * even;
  const share = evenText("evenMark", table, even);
  pen.path([[at, y + 0.6 * BAR_STEP], [at, foot]], { color: theme.text, lineWidth: 1, dash: [3, 3] });
  pen.text(share, Math.min(at, x + width - textWidth(share, { size: 12 })), foot + 10, { color: theme.muted, size: 12 });
}
