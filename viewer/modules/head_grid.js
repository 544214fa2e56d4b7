// @ts-check

import { Cells } from "./cells.js";
import { clamp } from "./numbers.js";
import { MISSING, WEIGHT, ZERO } from "./table.js";
import { SCALES } from "./scales.js";

/** One number for each head of each layer, or for each position: an entry of the payload's `grids`. */
export class HeadGrid extends Cells {
  decoded = true;

  constructor(entry) {
    super(entry.layers.length, entry.columns.length, entry.signed);
    this.entry = entry;
    this.largest = 0;
    this.hasMissing = this.hasZero = false;
    entry.values.flat().forEach((value, cell) => {
      this.values[cell] = value ?? NaN;
      this.kinds[cell] = value === null ? MISSING : value === 0 ? ZERO : WEIGHT;
      this.hasMissing ||= value === null;
      this.hasZero ||= value === 0;
      this.largest = Math.max(this.largest, Math.abs(value ?? 0));
    });
    this.end = entry.high ?? this.largest;
    // Two decimals, or as many as give the largest number two digits; `number_decimals` of Python has the same.
    this.decimals = this.largest ? clamp(1 - Math.floor(Math.log10(this.largest)), 2, 6) : 2;
  }

  async decode() { /* its numbers are few, and travel as they are */ }

  /** A number in a cell; with a sign where the numbers have one. */
  text(value) {
    const size = Math.abs(value) < 100 ? Math.abs(value).toFixed(this.decimals) : String(Number(Math.abs(value).toPrecision(4)));
    const sign = !/[1-9]/.test(size) ? "" : value < 0 ? "\u2212" : this.signed ? "+" : "";
    return sign + size.replace(/^0\./, ".");
  }

  /** The standard error of a number; null where it is not known. */
  noise(row, column) {
    return this.entry.noise?.[row][column] ?? null;
  }

  /** The cells of the largest numbers, the largest first. */
  largestCells(count) {
    const cells = Array.from(this.values.keys()).filter((cell) => !Number.isNaN(this.values[cell]));
    return cells.sort((a, b) => Math.abs(this.values[b]) - Math.abs(this.values[a]) || a - b).slice(0, count)
      .map((cell) => ({ row: Math.floor(cell / this.columns), column: cell % this.columns }));
  }

  shade(row, column, scale) {
    const value = this.value(row, column);
    return Math.sign(value) * SCALES[scale].shade(this.end ? Math.min(1, Math.abs(value) / this.end) : 0);
  }
}
