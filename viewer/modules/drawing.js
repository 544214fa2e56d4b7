// @ts-check

import { clamp } from "./numbers.js";
import { divergingColor, inkOn, inkOnRamp } from "./palette.js";
import { MASKED, MISSING, WEIGHT } from "./table.js";

/** A ring that is seen on every colour. */
export function ring(pen, x, y, width, height, color, theme) {
  pen.rect(x - 1.5, y - 1.5, width + 3, height + 3, { stroke: theme.background, lineWidth: 4 });
  pen.rect(x - 1.5, y - 1.5, width + 3, height + 3, { stroke: color, lineWidth: 2 });
}

/** The row of a cell, and a ring around the cell, on the cells of a table. */
export function drawCursor(pen, table, { left, top, width, height }, { row, column }, color, theme) {
  pen.rect(left, top + row * height, table.columns * width, height, { stroke: theme.accent });
  ring(pen, left + column * width, top + row * height, width, height, color, theme);
}

/**
 * The cells of a table.
 * @param {{left: number, top: number, width: number, height: number}} place left and top of the first cell, size of a cell
 * @param {{x: number, y: number, width: number, height: number}} area what is seen, in the same coordinates
 */
export function drawCells(pen, table, place, area, scale, theme) {
  const first = { row: Math.max(0, Math.floor((area.y - place.top) / place.height)),
    column: Math.max(0, Math.floor((area.x - place.left) / place.width)) };
  const last = { row: Math.min(table.rows, Math.ceil((area.y + area.height - place.top) / place.height)),
    column: Math.min(table.columns, Math.ceil((area.x + area.width - place.left) / place.width)) };
  if (last.row <= first.row || last.column <= first.column) return;
  const [rows, columns] = [last.row - first.row, last.column - first.column];
  pen.picture(table.bitmap(scale, theme), place.left + first.column * place.width, place.top + first.row * place.height,
    columns * place.width, rows * place.height, { cut: [first.column, first.row, columns, rows] });
  if (place.width >= 9 && place.height >= 9) drawGaps(pen, place, first, last, theme);
  pen.rect(place.left + first.column * place.width, place.top + first.row * place.height, columns * place.width, rows * place.height,
    { stroke: theme.border });
  if (place.width >= 30 && place.height >= 18 && table.exact) drawNumbers(pen, table, place, first, last, scale, theme);
}

/** A box that is blank, hatched or crossed, as a cell of a kind is. */
export function drawKind(pen, kind, x, y, width, height, theme) {
  if (kind === MASKED) pen.hatch(x, y, width, height, theme);
  else if (kind === MISSING) pen.cross(x, y, width, height, theme);
  else pen.rect(x, y, width, height, { fill: theme.background });
}

function drawGaps(pen, place, first, last, theme) {
  const [left, right] = [place.left + first.column * place.width, place.left + last.column * place.width];
  const [top, bottom] = [place.top + first.row * place.height, place.top + last.row * place.height];
  const style = { color: theme.lines, lineWidth: 1, alpha: 0.55 };
  for (let row = first.row + 1; row < last.row; row += 1) {
    pen.path([[left, place.top + row * place.height], [right, place.top + row * place.height]], style);
  }
  for (let column = first.column + 1; column < last.column; column += 1) {
    pen.path([[place.left + column * place.width, top], [place.left + column * place.width, bottom]], style);
  }
}

function drawNumbers(pen, table, place, first, last, scale, theme) {
  const size = clamp(Math.floor(place.width / 3.1), 9, 16);
  for (let row = first.row; row < last.row; row += 1) {
    for (let column = first.column; column < last.column; column += 1) {
      if (table.kind(row, column) !== WEIGHT) continue;
      pen.text(table.numberText(table.value(row, column)), place.left + (column + 0.5) * place.width,
        place.top + (row + 0.5) * place.height, { color: inkOf(table, table.shade(row, column, scale), theme), size, align: "center" });
    }
  }
}

/** The ink on the colour of a table's number. */
const inkOf = (table, shade, theme) => (table.signed ? inkOn(divergingColor(shade, theme)) : inkOnRamp(shade, theme));

export const inside = (place, x, y) => x >= place.x && y >= place.y && x < place.x + place.width && y < place.y + place.height;

/** The row and the column that are at a place, of cells that begin at ``left`` and ``top``. */
export const cellAt = (x, y, { left, top, width, height }) => [Math.floor((y - top) / height), Math.floor((x - left) / width)];

/** Where a cell is, and what does not scroll beside and above it. */
export const placeOfCell = ({ row, column }, { left, top, width, height }) => ({ x: left + column * width, y: top + row * height, width, height,
  frozenLeft: left, frozenTop: top });
