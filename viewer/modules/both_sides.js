// @ts-check

import { cellAt, drawCells, drawCursor } from "./drawing.js";
import { say } from "./language.js";
import { fitText, textWidth } from "./lettering.js";
import { shortWeight } from "./numbers.js";
import { divergingColor } from "./palette.js";
import { BARS_TEXT, BAR_STEP, drawBarLines } from "./row_bars.js";
import { NAMED, queryOf } from "./sentence.js";
import { MASKED, byWeight } from "./table.js";
import { shortText } from "./text.js";

/** The room of a small map's name, the largest cell, and the room of the sign before each map, in pixels. */
const [SIDE_NAME, MOST_SIDE_CELL, SIGN_ROOM] = [28, 24, 24];

/** From one pair of bars to the next, and how wide they are where the calculation stands behind them. */
const [PAIR_STEP, LEAST_CALCULATED] = [36, 400];

/** The height of the paired bars with their title and the names of both sides. */
export const PAIRED_HEIGHT = 2 * BAR_STEP + NAMED * PAIR_STEP + 16;

/** The colour of a side: that of the cells of a difference to which it gives more. */
const sideColor = (number, theme) => divergingColor(number ? -0.7 : 0.7, theme);

/** A side's name behind a square of its colour; where it ends. */
function drawSideName(pen, theme, number, names, x, y, width) {
  const style = { ...BARS_TEXT, bold: true };
  const shown = fitText(number ? names.other : names.one, width - 16, style);
  pen.rect(x, y - 5, 10, 10, { fill: sideColor(number, theme), radius: 2 });
  pen.text(shown, x + 16, y, { ...style, color: theme.text });
  return x + 16 + textWidth(shown, style);
}

/** Both sides of a difference as small maps with one cursor, in a width and at most so high; see `PatternView.comparison`. */
export function sideMaps(app, names, width, most) {
  const { theme, state } = app;
  const { rows, columns, sides } = app.table();
  const cell = Math.min((width / 2 - SIGN_ROOM) / columns, most / rows, MOST_SIDE_CELL);
  const placeOf = (number, x, y) => ({ left: x + SIGN_ROOM + number * Math.min(width / 2, Math.max(columns * cell, 120) + 2 * SIGN_ROOM), top: y + SIDE_NAME, width: cell, height: cell });
  return {
    height: SIDE_NAME + rows * cell,
    draw: (pen, item, x, y) => sides.forEach((side, number) => {
      const place = placeOf(number, x, y);
      pen.text(number ? "\u2212" : "=", place.left - SIGN_ROOM / 2 - 2, place.top + (rows * cell) / 2, { color: theme.muted, size: 20, align: "center" });
      drawSideName(pen, theme, number, names, place.left, y + 10, width / 2 - SIGN_ROOM);
      drawCells(pen, side, place, { x: place.left, y: place.top, width: columns * cell, height: rows * cell }, state.scale, theme);
      if (item) drawCursor(pen, side, place, item, app.active() ? theme.focus : theme.accent, theme);
    }),
    hit(item, atX, atY, x, y) {
      const cells = sides.map((_, number) => cellAt(atX, atY, placeOf(number, x, y)));
      const [row, column] = cells.find((one) => one.every((position, axis) => position >= 0 && position < [rows, columns][axis])) ?? [];
      return row === undefined ? null : { row, column };
    },
  };
}

/** What a query gives in both sides of a difference: a pair of bars for each of the keys that differ most and for the one that is pointed at. */
export function drawPairedBars(pen, table, { row, column }, names, place, theme) {
  const { x, y, width } = place;
  const order = byWeight(table, row).filter((key) => table.value(row, key) !== 0).slice(0, NAMED);
  if (!order.includes(column) && table.kind(row, column) !== MASKED) order.splice(Math.min(order.length, NAMED - 1), 1, column);
  const calculation = width < LEAST_CALCULATED ? "" : table.calculation(row, column);
  const after = calculation ? textWidth(calculation, { ...BARS_TEXT, bold: true }) + 28 : 0;
  const barsOf = (key) => table.weights(row, key).map((value, number) => ({ value, fill: sideColor(number, theme), weight: table.sides[number].kind(row, key) === MASKED ? say("masked") : shortWeight(value) }));
  const lines = order.map((key, line) => ({ text: shortText(table.columnText(key)), y: y + 2 * BAR_STEP + (line + 0.3) * PAIR_STEP, bold: key === column, bars: barsOf(key) }));
  const { left } = drawBarLines(pen, theme, table.record.say("looksAtTitle", { query: queryOf(table, row) }), lines, { ...place, after });
  const end = drawSideName(pen, theme, 0, names, left, y + BAR_STEP, (x + width - left) / 2);
  drawSideName(pen, theme, 1, names, end + 16, y + BAR_STEP, x + width - end - 16);
  const chosen = lines.find(({ bold }) => bold);
  if (!chosen) return;
  pen.rect(x, chosen.y - PAIR_STEP / 2, width, PAIR_STEP, { stroke: theme.accent, radius: 4 });
  if (calculation) pen.text(calculation, x + width - 12, chosen.y, { ...BARS_TEXT, bold: true, color: theme.text, align: "end" });
}
