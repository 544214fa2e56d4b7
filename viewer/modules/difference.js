// @ts-check

import { Cells } from "./cells.js";
import { formatWeight, shortWeight } from "./numbers.js";
import { isOne } from "./sentence.js";
import { headWeights } from "./head_statistics.js";
import { CELL_KINDS } from "./map_canvas.js";
import { MASKED, MISSING, WEIGHT, ZERO, signedShade } from "./table.js";

/** The most pairs of tokens that are looked through for equal ones. */
const MOST_PAIRS = 4e6;

/**
 * The places of texts that both lists have, in the order of both: as many as possible.
 * @param {string[]} one
 * @param {string[]} other
 * @returns {number[][]} pairs of places
 */
export function commonPlaces(one, other) {
  if (one.length === other.length && one.every((text, place) => text === other[place])) return one.map((_, place) => [place, place]);
  if (one.length * other.length > MOST_PAIRS) return [];
  const width = other.length + 1;
  const longest = new Uint32Array((one.length + 1) * width); // of the rests from two places
  for (let i = one.length - 1; i >= 0; i -= 1) {
    for (let j = other.length - 1; j >= 0; j -= 1) {
      longest[i * width + j] = one[i] === other[j] ? longest[(i + 1) * width + j + 1] + 1
        : Math.max(longest[(i + 1) * width + j], longest[i * width + j + 1]);
    }
  }
  const pairs = [];
  let [i, j] = [0, 0];
  while (i < one.length && j < other.length) {
    if (one[i] === other[j]) pairs.push([i++, j++]);
    else if (longest[(i + 1) * width + j] >= longest[i * width + j + 1]) i += 1;
    else j += 1;
  }
  return pairs;
}

const texts = (count, text) => Array.from({ length: count }, (_, place) => text(place));

/**
 * The rows or columns that two tables have in common: equal tokens in their order; of images and sounds all, where both are of one size.
 * @returns {number[][]|null} pairs of places; null where fewer than half are common
 */
export function commonSide(one, other, side) {
  const axis = side === "row" ? "queries" : "keys";
  const [a, b] = [one, other].map((table) => ({ kind: table.record[axis].kind, count: side === "row" ? table.rows : table.columns,
    text: (place) => (side === "row" ? table.rowText(place) : table.columnText(place)) }));
  if (a.kind !== b.kind) return null;
  if (a.kind !== "tokens") return a.count === b.count ? texts(a.count, (place) => [place, place]) : null;
  const [ones, others] = [texts(a.count, a.text), texts(b.count, b.text)];
  // Texts of one length that differ in a few words are compared place by place.
  const isAligned = a.count === b.count && 2 * ones.filter((text, place) => text === others[place]).length >= a.count;
  const pairs = isAligned ? ones.map((_, place) => [place, place]) : commonPlaces(ones, others);
  return pairs.length && 2 * pairs.length >= Math.max(a.count, b.count) ? pairs : null;
}

/** The weights of one table minus those of another, where both have the tokens; a weight that a mask hides counts as 0. */
export class Difference extends Cells {
  /**
   * @param {any} one a table
   * @param {any} other another one
   * @param {any[]} rowPairs the rows that are compared
   * @param {any[]} columnPairs the columns
   */
  constructor(one, other, rowPairs, columnPairs) {
    super(rowPairs.length, columnPairs.length, true);
    this.one = one;
    this.other = other;
    this.rowPairs = rowPairs;
    this.columnPairs = columnPairs;
    this.record = one.record;
    this.words = one.words;
    this.exact = true;
    /** What both give, the other with the opposite sign: in the colours of the cells to which they give more, on one scale. */
    this.sides = [0, 1].map(() => new Cells(this.rows, this.columns, true));
    for (const side of this.sides) side.shade = (row, column, scale) => signedShade(side.value(row, column), this.end, scale);
    this.end = 0; // the weight of the last colour of both sides
    this.rowGroups = rowPairs.map(([row]) => one.rowGroups[row]);
    this.columnGroups = columnPairs.map(([column]) => one.columnGroups[column]);
    this.largest = 0;
    this.hasMasked = this.hasMissing = this.hasZero = false;
    /** The pair whose weights differ most: of tokens that are not special, where there are such; null where none differs. */
    this.most = /** @type {{row: number, column: number, score: number}|null} */ (null);
    rowPairs.forEach((row, r) => columnPairs.forEach((column, c) => this.fill(r * this.columns + c, row, column)));
    this.findMost();
  }

  numberText(value) {
    const text = Math.abs(value) < 0.05 ? "" : super.numberText(value);
    return value > 0 && text && !text.startsWith(">") ? `+${text}` : text;
  }

  findMost() {
    const special = (axis, groups) => groups.map((group) => Boolean(axis.isSpecial?.(group)));
    const [rows, columns] = [special(this.record.queries, this.rowGroups), special(this.record.keys, this.columnGroups)];
    for (let cell = 0; cell < this.values.length; cell += 1) {
      if (this.kinds[cell] !== CELL_KINDS.weight) continue;
      const [row, column] = [Math.floor(cell / this.columns), cell % this.columns];
      const score = Math.abs(this.values[cell]) - (rows[row] || columns[column] ? 1e6 : 0);
      if (!this.most || score > this.most.score) this.most = { row, column, score };
    }
  }

  /** The part of a query's weight that lies on other keys in the other table, on average; null where rows do not add up to 1. */
  get moved() {
    if (this.columns < this.one.columns || this.columns < this.other.columns || !this.one.rowSums || !this.other.rowSums) return null;
    let sum = 0;
    for (const [r, [row, otherRow]] of this.rowPairs.entries()) {
      if (!isOne(this.one, this.one.rowSums[row]) || !isOne(this.other, this.other.rowSums[otherRow])) return null;
      for (let column = 0; column < this.columns; column += 1) sum += Math.abs(this.value(r, column)) / 2;
    }
    return this.rows ? sum / this.rows : null;
  }

  fill(cell, [row, otherRow], [column, otherColumn]) {
    const kinds = [this.one.kind(row, column), this.other.kind(otherRow, otherColumn)];
    const [a, b] = [this.one.value(row, column), this.other.value(otherRow, otherColumn)].map((value, place) => (kinds[place] === MASKED ? 0 : value));
    const value = a - b;
    this.sides.forEach((side, number) => { side.values[cell] = [a, -b][number]; side.kinds[cell] = kinds[number]; });
    this.end = Math.max(this.end, Math.abs(a) || 0, Math.abs(b) || 0);
    this.values[cell] = value;
    if (kinds[0] === MASKED && kinds[1] === MASKED) { this.kinds[cell] = MASKED; this.hasMasked = true; }
    else if (Number.isNaN(value)) { this.kinds[cell] = MISSING; this.hasMissing = true; }
    else if (value === 0) { this.kinds[cell] = ZERO; this.hasZero = true; }
    else { this.kinds[cell] = WEIGHT; this.largest = Math.max(this.largest, Math.abs(value)); }
  }

  /** The tokens of both that the other has not. */
  leftOut() {
    const rest = (count, text, pairs, place) => {
      const used = new Set(pairs.map((pair) => pair[place]));
      return texts(count, (number) => (used.has(number) ? null : text(number))).filter((found) => found !== null);
    };
    const found = [this.one, this.other].flatMap((table, place) => [
      ...rest(table.rows, (row) => table.rowText(row), this.rowPairs, place),
      ...rest(table.columns, (column) => table.columnText(column), this.columnPairs, place)]);
    return [...new Set(found)];
  }

  rowText = (row) => this.bothTexts("rowText", this.rowPairs[row]);

  columnText = (column) => this.bothTexts("columnText", this.columnPairs[column]);

  rowName = (row) => this.bothTexts("rowName", this.rowPairs[row]);

  columnName = (column) => this.bothTexts("columnName", this.columnPairs[column]);

  /** What both tables have at a pair of places, which may be two words. */
  bothTexts(method, [one, other]) {
    const [text, otherText] = [this.one[method](one), this.other[method](other)];
    return text === otherText ? text : `${text} | ${otherText}`;
  }

  /** Both weights and their difference as texts. */
  cellTexts(row, column) {
    const [[a, b], [c, d]] = [this.rowPairs[row], this.columnPairs[column]];
    const error = this.one.error(a, c) + this.other.error(b, d);
    return { one: this.one.cell(a, c), other: this.other.cell(b, d), difference: formatWeight(this.value(row, column), error) };
  }

  /** Both weights of a cell; 0 where a mask hides it. */
  weights(row, column) {
    return this.sides.map((side, number) => (number ? -1 : 1) * side.value(row, column));
  }

  /** The difference as it is calculated, the larger weight first; its digits come out, or it is "about". */
  calculation(row, column) {
    const [more, less, rest] = [...this.weights(row, column).sort((x, y) => y - x), Math.abs(this.value(row, column))].map((weight) => shortWeight(weight));
    const number = (text) => Number(text.replace("\u2212", "-"));
    return `${more} \u2212 ${less} ${Math.abs(number(more) - number(less) - number(rest)) < 1e-9 ? "=" : "\u2248"} ${rest}`;
  }

  /** A difference's place on a scale, from -1 to 1; a small one is neutral. */
  shade(row, column, scale) {
    const value = this.value(row, column);
    return Math.abs(value) < this.largest / 16 ? 0 : signedShade(value, this.largest, scale);
  }
}

/** Heads whose maps can be subtracted from those of a record: those of its text and kind, then the shown head on other texts. */
export function otherHeads(app, record) {
  const { text } = record.entry;
  const onOthers = app.records.filter((one) => one.entry.text !== text && one.label === record.label && !one.large && one.heads === record.heads);
  const alike = app.records.filter((one) => one.entry.text === text && !one.large && one.entry.kind === record.entry.kind
    && one.queries.kind === record.queries.kind && one.keys.kind === record.keys.kind);
  return alike.flatMap((one) => [...(one.heads > 1 ? [null] : []), ...Array.from({ length: one.heads }, (_, head) => head)]
    .map((head) => ({ record: one.number, head })))
    .filter((one) => one.record !== record.number || record.heads > 1)
    .concat(onOthers.map((one) => ({ record: one.number, head: app.state.head })));
}

const mostDifferent = new WeakMap();

/** The most weights of a record whose heads are compared to choose one. */
const MOST_COMPARED = 2 ** 22;

/** The head of a decoded record whose weights differ most from those of another one; the next one where the mean of all is shown, or there are too many. */
export function mostDifferentHead(record, head) {
  const next = ((head ?? record.heads - 1) + 1) % record.heads;
  if (head === null || !record.codes || record.codes.length > MOST_COMPARED) return next;
  if (!mostDifferent.has(record)) mostDifferent.set(record, []);
  const known = mostDifferent.get(record);
  if (known[head] === undefined) {
    const own = headWeights(record, head, null);
    const distance = (other) => (other === head ? -1 : headWeights(record, other, null).reduce((sum, weight, pair) => sum + (Math.abs(weight - own[pair]) || 0), 0));
    const distances = Array.from({ length: record.heads }, (_, other) => distance(other));
    known[head] = distances.indexOf(Math.max(...distances));
  }
  return known[head];
}
