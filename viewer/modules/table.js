// @ts-check

import { CODE_ERRORS, CODE_VALUES } from "./decoding.js";
import { CELL_KINDS, mapCanvas } from "./map_canvas.js";
import { clamp, counted, formatWeight } from "./numbers.js";
import { SCALES, scaleEnd } from "./scales.js";
import { quoted } from "./text.js";

/** Kinds of cells of a table. */
export const [WEIGHT, ZERO, MASKED, MISSING] = Object.values(CELL_KINDS);

/**
 * The weights of one head, or the mean of all, as they are shown: sub-words merged, special tokens hidden.
 * Merging adds the columns of a word and averages its rows, so that rows that sum to 1 still do. A query that sees no key
 * has no weights to average: means over heads and over the tokens of a word leave it out.
 */
export class Table {
  constructor(record, head, options) {
    this.record = record;
    this.head = head; // null: the mean over heads
    this.exact = record.exact !== null;
    const shown = (axis) => axis.groups(options.words).filter((group) => !(options.hideSpecial && axis.isSpecial(group)));
    this.rowGroups = shown(record.queries);
    this.columnGroups = shown(record.keys);
    this.rows = this.rowGroups.length;
    this.columns = this.columnGroups.length;
    this.words = options.words;
    const cells = this.rows * this.columns;
    this.values = new Float64Array(cells);
    this.errors = this.exact ? null : new Float64Array(cells);
    this.kinds = new Uint8Array(cells);
    this.hidden = new Float64Array(this.rows);
    this.counts = new Uint32Array(this.rows); // queries of all heads that a row is the mean of
    this.bitmaps = new Map();
    this.widest = {};
    this.fill();
    this.measure();
  }

  fill() {
    const heads = this.head === null ? Array.from({ length: this.record.heads }, (_, head) => head) : [this.head];
    for (let row = 0; row < this.rows; row += 1) {
      const [q0, q1] = this.rowGroups[row];
      for (const head of heads) {
        for (let query = q0; query < q1; query += 1) if (this.record.seesAny(head, query)) this.counts[row] += 1;
      }
      for (let column = 0; column < this.columns; column += 1) this.fillCell(row, column, heads);
    }
    if (this.columnGroups.length < this.record.keys.length) this.addHidden(heads);
  }

  fillCell(row, column, heads) {
    const { record } = this;
    const [queries, keys] = [record.queries.length, record.keys.length];
    const [q0, q1] = this.rowGroups[row];
    const [k0, k1] = this.columnGroups[column];
    const { codes, exact } = record;
    const maximum = record.entry.codes.maximum;
    let [sum, error, seen, zero] = [0, 0, false, true];
    for (const head of heads) {
      for (let query = q0; query < q1; query += 1) {
        const base = (head * queries + query) * keys;
        for (let key = k0; key < k1; key += 1) {
          if (record.visible && !record.sees(head, query, key)) continue;
          seen = true;
          const code = codes[base + key];
          if (code !== 0) zero = false;
          sum += exact ? exact[base + key] : CODE_VALUES[code] * maximum;
          if (!exact) error += CODE_ERRORS[code] * maximum;
        }
      }
    }
    const count = Math.max(1, this.counts[row]);
    const cell = row * this.columns + column;
    this.values[cell] = sum / count;
    if (this.errors) this.errors[cell] = error / count;
    if (!seen) this.kinds[cell] = MASKED;
    else if (Number.isNaN(sum)) this.kinds[cell] = MISSING;
    else this.kinds[cell] = zero ? ZERO : WEIGHT;
  }

  /** What each row gives to columns that are hidden. */
  addHidden(heads) {
    const { record } = this;
    const [queries, keys] = [record.queries.length, record.keys.length];
    const shown = new Uint8Array(keys);
    for (const [start, stop] of this.columnGroups) shown.fill(1, start, stop);
    const maximum = record.entry.codes.maximum;
    for (let row = 0; row < this.rows; row += 1) {
      const [q0, q1] = this.rowGroups[row];
      let sum = 0;
      for (const head of heads) {
        for (let query = q0; query < q1; query += 1) {
          const base = (head * queries + query) * keys;
          for (let key = 0; key < keys; key += 1) {
            if (shown[key] || !record.sees(head, query, key)) continue;
            sum += record.exact ? record.exact[base + key] : CODE_VALUES[record.codes[base + key]] * maximum;
          }
        }
      }
      this.hidden[row] = sum / Math.max(1, this.counts[row]);
    }
  }

  /** The largest weight of all and of each row, and the sums of the rows. */
  measure() {
    this.largest = 0;
    this.rowLargest = new Float64Array(this.rows);
    this.rowSums = new Float64Array(this.rows);
    this.hasMasked = this.hasMissing = this.hasZero = false;
    for (let row = 0; row < this.rows; row += 1) {
      for (let column = 0; column < this.columns; column += 1) {
        const kind = this.kinds[row * this.columns + column];
        const value = this.values[row * this.columns + column];
        if (kind === MASKED) this.hasMasked = true;
        else if (kind === MISSING) this.hasMissing = true;
        else if (kind === ZERO) this.hasZero = true;
        if (kind !== MASKED) this.rowSums[row] += value;
        if (value > this.rowLargest[row]) this.rowLargest[row] = value;
      }
      if (this.rowLargest[row] > this.largest) this.largest = this.rowLargest[row];
    }
    this.end = this.largest > 0 ? scaleEnd(this.largest, this.columns) : 0;
  }

  rowText(row) {
    return this.record.queries.groupText(this.rowGroups[row], this.words);
  }

  columnText(column) {
    return this.record.keys.groupText(this.columnGroups[column], this.words);
  }

  kind(row, column) {
    return this.kinds[row * this.columns + column];
  }

  value(row, column) {
    return this.values[row * this.columns + column];
  }

  error(row, column) {
    return this.errors ? this.errors[row * this.columns + column] : 0;
  }

  /** A cell as text. */
  cell(row, column) {
    const kind = this.kind(row, column);
    if (kind === MASKED) return "masked";
    return formatWeight(this.value(row, column), this.error(row, column));
  }

  /** The sum of a row and what hidden tokens have of it. */
  rowSummary(row) {
    let error = 0;
    for (let column = 0; column < this.columns; column += 1) error += this.error(row, column);
    const sum = `row sum ${formatWeight(this.rowSums[row], error)}`;
    return this.columnGroups.length && this.hiddenColumns
      ? `${sum}, hidden special tokens ${formatWeight(this.hidden[row], this.exact ? 0 : Math.max(error, 0.004))}` : sum;
  }

  get hiddenColumns() {
    const last = this.columnGroups.reduce((count, [start, stop]) => count + stop - start, 0);
    return this.record.keys.length - last;
  }

  /** The rows that see a key, hidden ones included: those that a mean over queries is over. */
  get seeing() {
    return Array.from(this.counts.keys()).filter((row) => this.counts[row] > 0);
  }

  /** Sums of several rows: {values, errors, kinds} by column; NaN stays, masked or zero only where every row is. */
  sumRows(rows) {
    const values = new Float64Array(this.columns);
    const errors = new Float64Array(this.columns);
    const kinds = new Uint8Array(this.columns).fill(MASKED);
    for (const row of rows) {
      for (let column = 0; column < this.columns; column += 1) {
        const kind = this.kind(row, column);
        if (kind === MASKED) continue;
        values[column] += this.value(row, column);
        errors[column] += this.error(row, column);
        if (Number.isNaN(values[column])) kinds[column] = MISSING;
        else if (kind !== ZERO) kinds[column] = WEIGHT;
        else if (kinds[column] === MASKED) kinds[column] = ZERO;
      }
    }
    return { values, errors, kinds, largest: values.reduce((most, value) => (value > most ? value : most), 0) };
  }

  /** A weight's place on a scale, from 0 to 1. */
  shade(row, column, scale) {
    const largest = scale === "row" ? this.rowLargest[row] : this.end;
    return largest > 0 ? SCALES[scale].shade(this.value(row, column) / largest) : 0;
  }

  /** One pixel a cell. */
  bitmap(scale, theme) {
    const key = `${scale} ${theme.name}`;
    if (!this.bitmaps.has(key)) {
      const shades = new Uint8Array(this.rows * this.columns);
      for (let row = 0; row < this.rows; row += 1) {
        for (let column = 0; column < this.columns; column += 1) {
          if (this.kind(row, column) === WEIGHT) shades[row * this.columns + column] = Math.round(255 * clamp(this.shade(row, column, scale), 0, 1));
        }
      }
      this.bitmaps.set(key, mapCanvas(this.columns, this.rows, this.kinds, shades, theme));
    }
    return this.bitmaps.get(key);
  }
}

export const accuracy = (table) => (table.exact ? "exact numbers" : "8-bit square roots, \u00b1 0.004 or better");

/** How the tokens of a word became one. */
export const mergedText = (table) => (table.words && (table.record.queries.hasWords || table.record.keys.hasWords)
  ? ", whole words (keys added, queries averaged)" : "");

/** What hidden special tokens have of the weights. */
export function hiddenText(table) {
  const hidden = table.hiddenColumns;
  if (!hidden || !table.rows) return "";
  const mean = table.hidden.reduce((sum, mass) => sum + mass, 0) / Math.max(1, table.seeing.length);
  return ` \u00b7 ${hidden} special ${hidden === 1 ? "token" : "tokens"} hidden with ${(100 * mean).toFixed(1)} % of the weight`;
}

/** The sum of the locked queries or of the one under the pointer; of all that see a key, to be divided by their number, where there is none. */
export function activeSums(app, table) {
  const rows = app.activeRows();
  const all = rows.length ? rows : table.seeing;
  return { ...table.sumRows(all), rows, divisor: rows.length ? 1 : Math.max(1, all.length) };
}

/** What the sum of queries is, as headings, legends and tooltips say it. */
export function sumText(table, rows) {
  if (rows.length === 1) return "weights of 1 query";
  if (rows.length) return `sum of ${counted(rows.length)} locked queries`;
  const seeing = table.seeing.length;
  const blind = table.rows - seeing;
  return blind ? `mean over ${counted(seeing)} ${seeing === 1 ? "query" : "queries"} (${counted(blind)} more see no key)` : "mean over all queries";
}

/** What a key gets from the queries of a sum. */
export function receivedText({ kinds, values, errors, divisor }, column) {
  return kinds[column] === MASKED ? "masked" : formatWeight(values[column] / divisor, errors[column] / divisor);
}

/** The keys that a query attends to most. */
export function describeRow(app, table, row) {
  const order = Array.from({ length: table.columns }, (_, column) => column).filter((column) => table.kind(row, column) !== MASKED);
  order.sort((a, b) => table.value(row, b) - table.value(row, a));
  const best = order.slice(0, 3).map((column) => `${quoted(table.columnText(column))} ${table.cell(row, column)}`);
  const rest = order.slice(3);
  if (rest.length) {
    const add = (part) => rest.reduce((sum, column) => sum + part(column), 0);
    best.push(`${counted(rest.length)} more ${formatWeight(add((column) => table.value(row, column)), add((column) => table.error(row, column)))}`);
  }
  return `query ${quoted(table.rowText(row))} attends to ${best.join(", ") || "nothing: all keys are masked"} `
    + `(${app.headText()}; ${table.rowSummary(row)})`;
}
