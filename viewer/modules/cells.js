// @ts-check

import { CELL_KINDS, mapCanvas } from "./map_canvas.js";
import { cellText, clamp } from "./numbers.js";
import { signsOf } from "./palette.js";

/** The cells of a map, row by row: their numbers, their kinds (`CELL_KINDS`), and their picture. What extends it gives each its shade. */
export class Cells {
  /** @param {boolean} signed whether the numbers have a sign, so that zero is in the middle of the colours */
  constructor(rows, columns, signed) {
    this.rows = rows;
    this.columns = columns;
    this.signed = signed;
    this.values = new Float64Array(rows * columns);
    this.kinds = new Uint8Array(rows * columns);
    this.bitmaps = new Map();
    this.widest = {};
  }

  kind(row, column) {
    return this.kinds[row * this.columns + column];
  }

  value(row, column) {
    return this.values[row * this.columns + column];
  }

  /**
   * A cell's place on a scale, from 0 to 1; from -1 where there is a sign.
   * @param {number} _row
   * @param {number} _column
   * @param {string} _scale
   * @returns {number}
   */
  shade(_row, _column, _scale) {
    throw new TypeError("a map gives the shades of its cells");
  }

  /** A number inside its cell. */
  numberText(value) {
    return cellText(value);
  }

  /** One pixel a cell. */
  bitmap(scale, theme) {
    const key = `${scale} ${theme.name}`;
    if (!this.bitmaps.has(key)) {
      const shades = Uint8Array.from(this.kinds, (kind, cell) => {
        if (kind !== CELL_KINDS.weight) return 0;
        const shade = this.shade(Math.floor(cell / this.columns), cell % this.columns, scale);
        return Math.round(255 * clamp(this.signed ? (shade + 1) / 2 : shade, 0, 1));
      });
      this.bitmaps.set(key, mapCanvas(this.columns, this.rows, this.kinds, shades, theme, this.signed ? signsOf(theme) : undefined));
    }
    return this.bitmaps.get(key);
  }
}
