// @ts-check

import { Cells } from "./cells.js";
import { language, say } from "./language.js";
import { CELL_KINDS } from "./map_canvas.js";
import { counted, formatWeight, percent } from "./numbers.js";
import { SCALES, scaleEnd } from "./scales.js";
import { quoted } from "./text.js";

/** Kinds of cells of a table. */
export const [WEIGHT, ZERO, MASKED, MISSING] = Object.values(CELL_KINDS);

/** The positions of an axis that are rows or columns of a table. */
export const shownGroups = (axis, { words, hideSpecial }) => axis.groups(words).filter((group) => !(hideSpecial && axis.isSpecial(group)));

/**
 * The weights of one head, or the mean of all, as they are shown: sub-words merged, special tokens hidden.
 * Merging adds the columns of a word and averages its rows, so that rows that sum to 1 still do. A query that sees no key
 * has no weights to average: means over heads and over the tokens of a word leave it out.
 */
export class Table extends Cells {
  constructor(record, head, options) {
    const [rowGroups, columnGroups] = [shownGroups(record.queries, options), shownGroups(record.keys, options)];
    const measure = Object.hasOwn(record.measures, options.measure) ? options.measure : "weights";
    super(rowGroups.length, columnGroups.length, record.signed || measure === "contributions");
    this.record = record;
    this.head = head; // null: the mean over heads; a list: the mean over some
    this.exact = record.exact !== null;
    this.rowGroups = rowGroups;
    this.columnGroups = columnGroups;
    this.words = options.words;
    /** @type {{queries: string[], keys: string[]}|null} */
    this.allTexts = null;
    this.measure = measure;
    this.errors = this.exact ? null : new Float64Array(this.values.length);
    this.hidden = new Float64Array(this.rows);
    this.hiddenErrors = new Float64Array(this.rows);
    this.counts = new Uint32Array(this.rows); // queries of all heads that a row is the mean of
    this.fill();
    this.summarize();
  }

  /** What a weight is multiplied by: 1, unless something else than weights is shown. */
  get factors() {
    const { measures, queries, keys } = this.record;
    const measure = measures[this.measure];
    if (!measure) return null;
    const perQuery = measure.shape.length === 3;
    return (head, query, key) => measure.values[(perQuery ? head * queries.length + query : head) * keys.length + key];
  }

  fill() {
    const heads = this.head === null ? Array.from({ length: this.record.heads }, (_, head) => head) : [this.head].flat();
    const { factors } = this;
    for (let row = 0; row < this.rows; row += 1) {
      const [q0, q1] = this.rowGroups[row];
      for (const head of heads) {
        for (let query = q0; query < q1; query += 1) if (this.record.seesAny(head, query)) this.counts[row] += 1;
      }
      for (let column = 0; column < this.columns; column += 1) this.fillCell(row, column, heads, factors);
    }
    if (this.columnGroups.length < this.record.keys.length) this.addHidden(heads, factors);
  }

  fillCell(row, column, heads, factors) {
    const { record } = this;
    const [queries, keys] = [record.queries.length, record.keys.length];
    const [q0, q1] = this.rowGroups[row];
    const [k0, k1] = this.columnGroups[column];
    const { codes, exact, codeValues, codeErrors } = record;
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
          const factor = factors ? factors(head, query, key) : 1;
          sum += factor * (exact ? exact[base + key] : codeValues[code] * maximum);
          if (!exact) error += Math.abs(factor) * codeErrors[code] * maximum;
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
  addHidden(heads, factors) {
    const { record } = this;
    const [queries, keys] = [record.queries.length, record.keys.length];
    const shown = new Uint8Array(keys);
    for (const [start, stop] of this.columnGroups) shown.fill(1, start, stop);
    const maximum = record.entry.codes.maximum;
    for (let row = 0; row < this.rows; row += 1) {
      const [q0, q1] = this.rowGroups[row];
      let [sum, error] = [0, 0];
      for (const head of heads) {
        for (let query = q0; query < q1; query += 1) {
          const base = (head * queries + query) * keys;
          for (let key = 0; key < keys; key += 1) {
            if (shown[key] || !record.sees(head, query, key)) continue;
            const factor = factors ? factors(head, query, key) : 1;
            sum += factor * (record.exact ? record.exact[base + key] : record.codeValues[record.codes[base + key]] * maximum);
            if (!record.exact) error += Math.abs(factor) * record.codeErrors[record.codes[base + key]] * maximum;
          }
        }
      }
      this.hidden[row] = sum / Math.max(1, this.counts[row]);
      this.hiddenErrors[row] = error / Math.max(1, this.counts[row]);
    }
  }

  /** The largest size of all weights and of each row's, and the sums of the rows. */
  summarize() {
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
        if (Math.abs(value) > this.rowLargest[row]) this.rowLargest[row] = Math.abs(value);
      }
      if (this.rowLargest[row] > this.largest) this.largest = this.rowLargest[row];
    }
    this.end = this.endOf(this.largest);
  }

  /** The number of a scale's last colour; weights end at several even shares at least. */
  endOf(largest) {
    return this.measure === "weights" && largest > 0 ? scaleEnd(largest, this.signed ? Infinity : this.columns) : largest;
  }

  rowText(row) {
    return this.record.queries.groupText(this.rowGroups[row], this.words);
  }

  columnText(column) {
    return this.record.keys.groupText(this.columnGroups[column], this.words);
  }

  /** A name of a row or of a column in a sentence: where its word occurs more than once, with which of them it is. */
  whichOne(axis, number, name) {
    this.allTexts ??= { queries: this.rowGroups.map((_, row) => this.rowText(row)), keys: this.columnGroups.map((_, column) => this.columnText(column)) };
    return this.record[axis].kind === "tokens" ? whichOne(this.allTexts[axis], number, name) : name;
  }

  /** A query in a sentence: tokens are quoted, places and times are not. */
  rowName(row) {
    return this.whichOne("queries", row, nameOn(this.record.queries, this.rowGroups[row], this.rowText(row)));
  }

  /** A key in a sentence. */
  columnName(column) {
    return this.whichOne("keys", column, nameOn(this.record.keys, this.columnGroups[column], this.columnText(column)));
  }

  error(row, column) {
    return this.errors ? this.errors[row * this.columns + column] : 0;
  }

  /** A cell as text. */
  cell(row, column) {
    const kind = this.kind(row, column);
    if (kind === MASKED) return say("masked");
    return formatWeight(this.value(row, column), this.error(row, column));
  }

  /** The sum of a row and what hidden tokens have of it. */
  rowSummary(row) {
    let error = 0;
    for (let column = 0; column < this.columns; column += 1) error += this.error(row, column);
    const sum = say("rowSum", { sum: formatWeight(this.rowSums[row], error) });
    return this.columnGroups.length && this.hiddenColumns
      ? `${sum}, ${say("rowHidden", { sum: formatWeight(this.hidden[row], this.hiddenErrors[row]) })}` : sum;
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
    return { values, errors, kinds, largest: largestSize(values) };
  }

  /** A weight's place on a scale, from 0 to 1; from -1 where there is a sign. */
  shade(row, column, scale) {
    return signedShade(this.value(row, column), scale === "row" ? this.rowLargest[row] : this.end, scale);
  }
}

/** The name of a word, and which one of several it is; `which_one` of Python has the same. */
export function whichOne(texts, number, name) {
  const same = texts.filter((text) => text === texts[number]).length;
  const count = texts.slice(0, number + 1).filter((text) => text === texts[number]).length;
  const suffix = (count % 100 >= 11 && count % 100 <= 13 ? "" : ["", "st", "nd", "rd"][count % 10]) || "th";
  return same > 1 ? say("whichOne", { nth: language() === "zh" ? count : `${count}${suffix}`, word: name }) : name;
}

/** A token in a sentence, with the word of which it is a piece. */
export function tokenName(text, axis, group) {
  const word = axis?.wordOf(group) ?? null;
  return word === null ? quoted(text) : say("pieceOf", { piece: quoted(text), word: quoted(word) });
}

const nameOn = (axis, group, text) => (axis.kind === "tokens" ? tokenName(text, axis, group) : `\u2068${text}\u2069`);

/** The largest size of some numbers; NaN is left out. */
export const largestSize = (values) => values.reduce((most, value) => (Math.abs(value) > most ? Math.abs(value) : most), 0);

/** A number's place on a scale that ends at the largest, with its sign. */
export const signedShade = (value, largest, scale) =>
  (largest > 0 ? Math.sign(value) * SCALES[scale].shade(Math.abs(value) / largest) : 0);

/** What is shown: weights, or weights times something. */
export const measureText = (table) => say({ norms: "of_norms", contributions: "of_contributions" }[table.measure] ?? (table.signed ? "of_signed" : "of_weights"));

export const accuracy = (table) => (table.exact ? "" : say(table.measure === "weights" ? "coded" : "codedWeights", { error: table.record.signed ? 0.008 : 0.004 }));

/** How the tokens of a word became one. */
export const mergedText = ({ words, rows, columns, record: { queries, keys } }) => (!words || !(queries.hasWords || keys.hasWords) ? ""
  : say("mergedWords", keys.hasWords ? { count: keys.length, shown: columns } : { count: queries.length, shown: rows }));

/** What hidden special tokens have of the weights. */
export function hiddenText(table) {
  const count = table.hiddenColumns;
  const padding = paddingText([table.record]);
  if (!count || !table.rows) return padding && ` \u00b7 ${padding}`;
  const mean = table.hidden.reduce((sum, mass) => sum + mass, 0) / Math.max(1, table.seeing.length);
  return ` \u00b7 ${table.measure === "weights" && !table.signed ? say("hiddenShare", { count, percent: percent(mean) }) : say("hiddenCount", { count })}${padding && ` \u00b7 ${padding}`}`;
}

/** That records leave out padding; "" where they have none. */
export function paddingText(records) {
  return records.some((record) => record.entry?.padding > 0) ? say("paddingLeftOut") : "";
}

/** The sum of the locked queries or of the one under the pointer; of all that see a key, to be divided by their number, where there is none. */
export function activeSums(app, table) {
  const rows = app.activeRows();
  const all = rows.length ? rows : table.seeing;
  const divisor = rows.length ? 1 : Math.max(1, all.length);
  const sums = table.sumRows(all);
  return { ...sums, rows, divisor, end: divisor * table.endOf(sums.largest / divisor) };
}

/** What the sum of queries is, as headings, legends and tooltips say it. */
export function sumText(table, rows) {
  if (rows.length === 1) return say("ofOneQuery");
  if (rows.length) return say("ofLocked", { count: counted(rows.length) });
  const seeing = table.seeing.length;
  const blind = table.rows - seeing;
  return blind ? say("ofSeeing", { seeing, blind: counted(blind) }) : say("ofAllQueries");
}

/** What a key gets from the queries of a sum. */
export function receivedText({ kinds, values, errors, divisor }, column) {
  return kinds[column] === MASKED ? say("masked") : formatWeight(values[column] / divisor, errors[column] / divisor);
}

/** How large a weight is: a negative one as a positive one, and one that is no number least. */
export const sizeOf = (value) => (Number.isNaN(value) ? -1 : Math.abs(value));

/** The keys of a row that are not masked. */
export const seenKeys = (table, row) => Array.from({ length: table.columns }, (_, column) => column).filter((column) => table.kind(row, column) !== MASKED);

/** The same, the largest weight first; those without a number last. */
export const byWeight = (table, row) => seenKeys(table, row).sort((a, b) => sizeOf(table.value(row, b)) - sizeOf(table.value(row, a)));

/** The keys that a query attends to most. */
export function describeRow(app, table, row) {
  const order = byWeight(table, row);
  const best = order.slice(0, 3).map((column) => `${table.columnName(column)} ${table.cell(row, column)}`);
  const rest = order.slice(3);
  if (rest.length) {
    const add = (part) => rest.reduce((sum, column) => sum + part(column), 0);
    const sum = formatWeight(add((column) => table.value(row, column)), add((column) => table.error(row, column)));
    best.push(say("moreTogether", { count: counted(rest.length), sum }));
  }
  const aside = `${app.headText()}; ${table.rowSummary(row)}`;
  return best.length ? say("looksAt", { query: table.rowName(row), keys: best.join(say("listed")), aside })
    : say("looksAtNothing", { query: table.rowName(row), aside });
}
