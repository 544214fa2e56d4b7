// @ts-check

/** @import { Calculation } from "./calculation.js" */

import { say } from "./language.js";
import { asPrinted, equalSign, percent, printed, shortWeight, strongest, sumOf } from "./numbers.js";
import { scoreSources } from "./score_sources.js";
import { fewLargest, firstOf, formOf, productsOf, projects, scoreStation } from "./score_station.js";
import { PAIR_STEPS } from "./steps_data.js";
import { tokenName, whichOne } from "./table.js";
import { shortText } from "./text.js";

/** How many keys of a row are shown before the others are asked for. */
const FEW_KEYS = 7;

const TIMES = "\u00d7";

/** A number in a formula: a negative one behind a sign stands in brackets. */
const inFormula = (value) => (value < 0 ? `(${printed(value)})` : printed(value));

/** A number without zeros at its end. */
export const plainNumber = (value) => String(Number(value.toPrecision(4))).replace("-", "\u2212").replace("e\u2212", "e\u2212");

/** The name of a normalizer for readers. */
export function normalizerName(name) {
  const key = /** @type {any} */ (`walk_${name}`);
  return ["softmax", "softmax_with_sink", "entmax", "sparsemax", "sigmoid", "hard"].includes(name) ? say(key) : shortText(name, 30);
}

/**
 * A table that can be opened.
 * @typedef {{head: string[], adds: boolean[], rows: {label: string, numbers: (number|null)[], muted?: boolean, chosen?: boolean,
 *   side?: string}[], few: number[], why: string, makes?: (((...numbers: number[]) => number)|null)[], amounts?: boolean, foot: {label: string, numbers: (number|null)[]}|null}} Sum
 *   `adds`: which columns have a meaning when they are added; `few`: the rows that are shown first, and `why` these; `makes`: what makes a column's number of those of the row;
 *   `amounts`: whether the numbers of the last column are parts of a whole
 *
 * A part of a station: a line of text, a formula, a list of numbers as cells, a table, the two words, or the way to the next layer.
 * Lists of one length that are not `apart` stand one above the other; `products`: of a query and a key, number by number.
 * `moves` says which number comes from the station before ("in"), and which goes on ("out").
 * @typedef {{kind: "line", text: string, isHint?: boolean} | {kind: "sum", name: string, sum: Sum}
 *   | {kind: "formula", terms: {text: string, moves?: "in"|"out"}[]}
 *   | {kind: "cells", name: string, label: string, side: string, values: Float64Array, open: ((dimension: number) => Sum)|null, products?: Float64Array|null, apart?: boolean}
 *   | {kind: "tokens"} | {kind: "layer", layer: number, record: number}} Part
 *
 * A station of the walk.
 * @typedef {{id: string, title: string, sentence: string, operation: string|null, figure: string, parts: Part[]}} Station
 *   `operation`: what leads to the next station; `figure`: its one number
 */

/** A number that comes in, what happens to it, and the number that goes on. */
const formula = (before, operation, is, after) => /** @type {Part} */ ({ kind: "formula", terms: [{ text: printed(before), moves: "in" }, { text: operation },
  { text: is }, { text: printed(after), moves: "out" }] });

/** The stations of one pair, from the input to the output. */
export class Stations {
  /**
   * @param {Calculation} calculation
   * @param {{row: number, column: number}} pair
   * @param {{heads: number|null, next: {layer: number, record: number}|null, kind?: string, record?: any}} around what is
   *   known of the model around the head; kind: of its attention; record: its weights
   */
  constructor(calculation, pair, around) {
    this.calculation = calculation;
    this.steps = calculation.steps;
    this.entry = calculation.steps.entry;
    this.pair = pair;
    this.around = around;
    this.row = calculation.row(pair.row);
    this.isWhole = calculation.isWhole(pair.row);
    this.query = this.nameOf("queries", pair.row);
    this.key = this.nameOf("keys", pair.column);
    this.count = this.steps.columns;
    /** Whether a decoder's state asks, and each word of the source has one list that is key and value. */
    this.decodes = this.steps.isShared && around.kind === "cross";
  }

  /** A token of the calculation in a sentence, with the word of which it is a piece. */
  nameOf(side, position) {
    return whichOne(this.entry[side], position, tokenName(this.entry[side][position], this.around.record?.[side], [position, position + 1]));
  }

  /** @returns {Station[]} */
  all() {
    const [scale, ...changes] = this.changes();
    const sources = scoreSources(this);
    if (sources.length) [sources[0].operation, scale.operation] = [scale.operation, ""];
    const before = [...this.input(), this.vectors(), scoreStation(this), scale, ...sources, ...changes, ...this.mask()];
    before[before.length - 1].operation = this.normalizes();
    const [first, ...others] = [...before, this.weights(), this.output(), this.then()];
    return [{ ...first, parts: [{ kind: "tokens" }, ...first.parts] }, ...others];
  }

  /** What the stations explain: how much the query takes from the key. */
  question(count) {
    const weight = this.row.weights[this.pair.column];
    return say(this.isWhole ? "walk_why" : "walk_why_weight", { query: this.query, key: this.key, weight: shortWeight(weight), percent: percent(weight), count });
  }

  /** The numbers of both words before the head, where the record has them. */
  input() {
    const parts = [["query_input", "query", this.pair.row, this.query], ["key_input", "key", this.pair.column, this.key]]
      .filter(([name]) => this.steps.has(name))
      .map(([name, side, row, word]) => ({ kind: /** @type {const} */ ("cells"), name, side, label: say("walk_of", { name: say("walk_input"), word }), values: this.steps.rowOf(name, row), open: null }));
    if (!parts.length || this.decodes) return [];
    return [{ id: "input", title: say("walk_input"), figure: say("walk_numbers", { count: parts[0].values.length }), operation: this.steps.has("w_query") ? "\u00d7 W" : "", parts,
      sentence: say(this.pair.row === this.pair.column && this.query === this.key ? "walk_says_itself" : "walk_says_input", { query: this.query, key: this.key, count: this.count }) }];
  }

  vectors() {
    return this.steps.isShared ? this.twoVectors() : this.threeVectors();
  }

  /** Query, and one list that is key and value. */
  twoVectors() {
    const { row, column } = this.pair;
    const name = projects(this.steps) && this.steps.has("w_query") ? "query_input" : "query";
    const dims = { query: this.steps.columnsOf(name), value: this.steps.columnsOf("value") };
    const list = (part, side, values, label) => ({ kind: /** @type {const} */ ("cells"), name: part, side, values, open: null,
      label: say("walk_of", { name: label, word: side === "query" ? this.query : this.key }) });
    return { id: "vectors", title: say("walk_vectors_shared"), figure: this.sizes(dims),
      sentence: say(this.decodes ? "walk_says_state_vectors" : "walk_says_shared_vectors", { ...dims, word: this.query }),
      operation: { dot: "q \u00b7 k", general: "q \u00b7 W \u00b7 k", additive: "tanh(W + U) \u00b7 v" }[formOf(this.steps)] ?? "",
      parts: [list("state", "query", this.steps.rowOf(name, row), say(this.decodes ? "walk_state" : "walk_query")),
        list("value", "key", this.steps.rowOf("value", column), say("walk_key_and_value"))] };
  }

  /** How many numbers each list has. */
  sizes(dims) {
    const [first, ...others] = Object.values(dims);
    return others.every((size) => size === first) ? say("walk_numbers_each", { count: first }) : Object.values(dims).join(", ");
  }

  threeVectors() {
    const dims = { query: this.steps.columnsOf("query"), key: this.steps.columnsOf("key"), value: this.steps.columnsOf("value") };
    const list = (name, side, row) => ({ kind: /** @type {const} */ ("cells"), name, side,
      label: say("walk_of", { name: say(/** @type {any} */ (`walk_${name}`)), word: side === "query" ? this.query : this.key }),
      values: this.steps.rowOf(name, row), open: this.projection(name, row) });
    const isEqual = dims.query === dims.key && dims.key === dims.value;
    return { id: "vectors", title: say("walk_vectors"), figure: this.sizes(dims),
      sentence: say(!isEqual ? "walk_says_vectors_each" : this.steps.has("w_query") ? "walk_says_vectors" : "walk_says_vectors_alone", dims),
      operation: this.entry.score === "dot" ? "q \u00b7 k" : "",
      parts: [{ ...list("query", "query", this.pair.row), products: productsOf(this) }, list("key", "key", this.pair.column), { ...list("value", "key", this.pair.column), apart: true }] };
  }

  /** The sum that makes a number of a query, key or value from the input, where the record has input and weights. */
  projection(name, row) {
    const input = `${name}_input`;
    if (!this.steps.has(`w_${name}`) || !this.steps.has(input)) return null;
    return (dimension) => {
      const values = this.steps.rowOf(input, row);
      const rows = Array.from(values, (value, place) => {
        const factor = this.steps.at(`w_${name}`, place, dimension);
        return { label: String(place), numbers: [value, factor, value * factor] };
      });
      return { head: [say("walk_dim"), say("walk_input_term"), say("walk_matrix_term"), say("walk_product")], adds: [false, false, true], makes: [null, null, (one, other) => one * other], rows,
        ...firstOf(rows.length), foot: { label: say("walk_sum"), numbers: [null, null, this.steps.at(name, row, dimension)] } };
    };
  }

  get usesRoot() {
    const dim = this.steps.columnsOf("query");
    return this.entry.score === "dot" && Math.abs(this.calculation.used.scale * Math.sqrt(dim) - 1) < 1e-6;
  }

  scaleOperation() {
    const { scale } = this.calculation.used;
    return this.usesRoot ? `\u00f7 \u221a${this.steps.columnsOf("query")}` : `${TIMES} ${plainNumber(scale)}`;
  }

  /** Scale, cap or function, and bias. */
  changes() {
    const { column } = this.pair;
    const { used } = this.calculation;
    const dim = this.steps.columnsOf("query");
    let [before, after] = [this.row.scores[column], this.row.scaled[column]];
    const by = (one, other) => (this.usesRoot ? one / other : one * other);
    const factor = this.usesRoot ? Math.sqrt(dim) : used.scale;
    const values = { before: inFormula(before), after: printed(after), dim, root: plainNumber(factor), scale: plainNumber(used.scale), is: equalSign(after, by, before, factor) };
    const stations = [{ id: "scale", title: say("walk_scale"), figure: printed(after), operation: "",
      parts: [formula(before, this.scaleOperation(), this.usesRoot ? equalSign(after, (one) => one / factor, before) : values.is, after), ...(used.scale === 1 ? [] : [this.change("scaled", (score) => (this.usesRoot ? score / factor : score * factor))])],
      sentence: say(this.usesRoot ? "walk_says_root" : used.scale === 1 ? "walk_says_unscaled" : "walk_says_scale", values) }];
    if (this.steps.has("capped")) {
      [before, after] = [after, this.row.capped[column]];
      const { cap } = this.entry;
      const is = equalSign(after, (score) => cap * Math.tanh(score / cap), before);
      stations[stations.length - 1].operation = cap ? say("walk_cap") : "f";
      stations.push({ id: "cap", title: cap ? say("walk_cap") : this.entry.function ? shortText(this.entry.function, 20) : say("walk_function"),
        figure: printed(after), operation: "", parts: [formula(before, stations[0].operation, cap ? is : "\u2192", after), this.change("capped", cap ? (score) => cap * Math.tanh(score / cap) : null)],
        sentence: say(cap ? "walk_says_cap" : "walk_says_function", { cap: cap ? plainNumber(cap) : "", before: printed(before), after: printed(after), is }) });
    }
    if (this.steps.has("biased")) {
      [before, after] = [after, this.row.biased[column]];
      const is = equalSign(after, (score, bias) => score + bias, before, after - before);
      stations[stations.length - 1].operation = `+ ${printed(after - before)}`;
      stations.push({ id: "bias", title: say("walk_bias"), figure: printed(after), operation: "",
        parts: [formula(before, `+ ${inFormula(after - before)}`, is, after), this.change("biased")],
        sentence: say("walk_says_bias", { before: printed(before), bias: inFormula(after - before), after: printed(after), is }) });
    }
    stations[stations.length - 1].operation = "";
    return stations;
  }

  /** The numbers of all keys of the row before and after a step. */
  change(after, make = /** @type {((score: number) => number)|null} */ (null)) {
    const before = PAIR_STEPS.slice(0, PAIR_STEPS.indexOf(after)).findLast((name) => name === "scores" || this.steps.has(name)) ?? "scores";
    const rows = this.keyRows((key) => [this.row[before][key], this.row[after][key]], (key) => this.row[after][key] === -Infinity);
    return /** @type {Part} */ ({ kind: "sum", name: "row", sum: { head: [say("walk_word"), ...[before, after].map((name) => say(/** @type {any} */ (`walk_name_${name}`)))],
      adds: [false, false], makes: [null, make], rows, ...this.fewKeys(Array.from(this.row[after]), "walk_name_scores"), foot: null } });
  }

  /** The step of the mask; none if it hides no pair of this head. */
  mask() {
    if (!this.calculation.map("masked").includes(-Infinity)) return [];
    const { column } = this.pair;
    const masked = this.row.masked[column];
    const hidden = masked === -Infinity;
    const seen = this.row.masked.filter((score) => score !== -Infinity).length;
    /** @type {Part[]} */
    const parts = [formula(this.row.biased[column], hidden ? "+ (\u2212\u221e)" : "+ 0", "=", masked), this.change("masked"),
      { kind: "line", text: say("walk_hidden_count", { query: this.query, all: this.count, seen }) }];
    return [{ id: "mask", title: say("walk_mask"), figure: printed(masked), parts, operation: "",
      sentence: say(hidden ? "walk_says_hidden" : "walk_says_visible", { query: this.query, key: this.key, after: printed(masked) }) }];
  }

  /** What the normalizer does, in a few signs. */
  normalizes() {
    const { normalizer } = this.calculation.used;
    return normalizer === "softmax" ? "exp \u00f7 \u03a3" : normalizer === "sparsemax" || normalizer === "entmax" ? "\u2212 \u03c4" : "";
  }

  /** A part of a word in an output: percent, or a factor where weights do not add up to 1. */
  partText(weight) {
    return this.isWhole ? percent(weight) : printed(weight);
  }

  weights() {
    const { column } = this.pair;
    const { used } = this.calculation;
    const { made, weights, tempered } = this.row;
    const known = this.calculation.knows();
    const [power, sum, most] = [made.powers?.[column] ?? NaN, made.sum ?? sumOf(weights), made.most ?? 0];
    const term = most ? `exp(${printed(tempered[column])} \u2212 ${inFormula(most)})` : `exp(${printed(tempered[column])})`;
    const values = { key: this.key, query: this.query, weight: printed(weights[column]), share: this.isWhole ? say("walk_share", { percent: percent(weights[column]) }) : "", alpha: plainNumber(used.alpha),
      name: normalizerName(used.normalizer), power: printed(power), sum: printed(sum), term, is: equalSign(weights[column], (one, all) => one / all, power, sum),
      as: equalSign(power, (score, largest) => Math.exp(score - largest), tempered[column], most),
      threshold: made.threshold === null || made.threshold === undefined ? "" : printed(made.threshold) };
    const says = this.steps.signed ? "walk_says_signed" : !known ? "walk_says_normalizer" : made.powers ? (used.normalizer === "softmax_with_sink" ? "walk_says_sink" : "walk_says_softmax")
      : used.normalizer === "sigmoid" ? "walk_says_sigmoid" : used.normalizer === "sparsemax" || used.alpha === 2 ? "walk_says_sparsemax" : "walk_says_entmax";
    const blind = tempered.every((score) => score === -Infinity);
    /** @type {Part[]} */
    const parts = [];
    const after = { text: values.weight, moves: /** @type {const} */ ("out") };
    if (made.powers && !blind) {
      parts.push({ kind: "formula", terms: [{ text: `${term} ${values.as} ${values.power}` }] }, { kind: "formula", terms: [{ text: `${values.power} \u00f7 ${values.sum} ${values.is}` }, after] });
    } else parts.push({ kind: "formula", terms: [{ text: printed(tempered[column]), moves: "in" }, { text: "\u2192" }, after] });
    if (used.temperature !== 1) parts.push({ kind: "line", text: say("walk_divided", { temperature: plainNumber(used.temperature) }) });
    if (most && !blind) parts.push({ kind: "line", text: say("walk_maximum", { most: printed(most) }) });
    parts.push({ kind: "sum", name: "row", sum: this.rowSum(says) });
    return { id: "weights", title: normalizerName(used.normalizer), figure: this.partText(weights[column]), operation: say("walk_step_mixes"), parts,
      sentence: say(blind ? "walk_says_none" : says, values) };
  }

  /** The table of a row: scores, what the normalizer makes of them, weights. */
  rowSum(says) {
    const { made, weights, tempered } = this.row;
    const { alpha } = this.calculation.used;
    const cuts = says === "walk_says_sparsemax" || says === "walk_says_entmax";
    const factor = says === "walk_says_entmax" ? alpha - 1 : 1;
    const middle = made.powers ? [made.most ? say("walk_exp_less", { most: inFormula(made.most) }) : say("walk_exp")] : cuts ? [say(factor === 1 ? "walk_above" : "walk_above_entmax")] : [];
    const between = (key) => (made.powers ? [made.powers[key]] : cuts ? [factor * tempered[key] - made.threshold] : []);
    const rows = this.keyRows((key) => [tempered[key], ...between(key), weights[key]],
      (key) => tempered[key] === -Infinity || (cuts && weights[key] === 0));
    // Of keys with the weight 0, those with the largest scores.
    const order = Array.from(weights, (weight, key) => (weight === 0 ? -1 - 1 / (1 + Math.exp(tempered[key] / 100)) : weight));
    const { few, why } = this.fewKeys(order, "walk_weight");
    if (says === "walk_says_sink") {
      rows.push({ label: say("walk_sink"), numbers: [this.calculation.parameters.sink, made.sinkPower, null], muted: false, chosen: false, side: "" });
      few.push(rows.length - 1);
    }
    const all = weights.filter((weight) => !Number.isNaN(weight));
    const [most, threshold, sum] = [made.most ?? 0, made.threshold, made.sum].map(asPrinted);
    const makes = made.powers ? [null, (score) => Math.exp(score - most), (_score, power) => power / sum]
      : cuts ? [null, (score) => factor * score - threshold, (_score, above) => Math.max(0, above) ** (1 / factor)] : [];
    return { head: [say("walk_word"), say("walk_name_scores"), ...middle, say("walk_weight")], adds: [false, ...middle.map(() => Boolean(made.powers)), true], makes, rows, few, why, amounts: !this.steps.signed,
      foot: { label: say("walk_sum"), numbers: [null, ...middle.map(() => (made.powers ? made.sum : null)), all.length === weights.length ? sumOf(weights) : NaN] } };
  }

  /** The keys of the largest sizes, with that of the pair. */
  fewKeys(sizes, what) {
    return fewLargest(sizes, FEW_KEYS, say(what), this.pair.column, this.key);
  }

  keyRows(numbers, muted = (_) => false) {
    return this.entry.keys.map((label, key) => ({ label: shortText(label, 18), numbers: numbers(key), muted: muted(key),
      chosen: key === this.pair.column, side: key === this.pair.column ? "key" : "" }));
  }

  output() {
    const { row, column } = this.pair;
    const { weights } = this.row;
    const output = this.calculation.output(row);
    const strong = strongest(Array.from(weights, this.steps.signed ? Math.abs : undefined), Math.min(2, this.count), column).filter((key) => weights[key] > 0 || this.steps.signed);
    const rest = sumOf(weights) - strong.reduce((sum, key) => sum + weights[key], 0);
    const isWhole = !(Math.abs(rest) > 5e-4);
    const shares = isWhole ? strong.map((key) => weights[key]) : [...strong.map((key) => weights[key]), rest];
    const texts = shares.map((share) => this.partText(share));
    const [first, second] = strong.map((key, place) => say("walk_part", { percent: texts[place], key: this.nameOf("keys", key) }));
    const named = second === undefined ? first : isWhole ? say("walk_parts_both", { first, second }) : `${first}, ${second}`;
    const parts = isWhole ? named : say("walk_parts_rest", { parts: named, percent: texts[strong.length] });
    const weight = printed(weights[column]);
    const product = Float64Array.from(output, (_, dimension) => this.calculation.product(row, column, dimension));
    return { id: "output", title: say("walk_output"), figure: say("walk_numbers", { count: output.length }), operation: "",
      sentence: say(strong.length ? "walk_says_output" : "walk_says_none", { query: this.query, parts }),
      parts: /** @type {Part[]} */ ([
        { kind: "cells", name: "weighted", side: "key", label: `${weight} ${TIMES} ${say("walk_of", { name: say("walk_value"), word: this.key })}`, values: product, open: null },
        { kind: "cells", name: "output", side: "query", label: say("walk_of", { name: say("walk_output"), word: this.query }), values: output, open: (dimension) => this.outputSum(dimension, output) },
        { kind: "line", text: say("walk_open_hint"), isHint: true }]) };
  }

  /** The terms of one number of the output. */
  outputSum(dimension, output) {
    const { row } = this.pair;
    const { weights } = this.row;
    const product = (key) => this.calculation.product(row, key, dimension);
    const rows = this.keyRows((key) => [weights[key], this.steps.at("value", key, dimension), product(key)], (key) => weights[key] === 0);
    return { head: [say("walk_word"), say("walk_weight"), say("walk_value"), say("walk_product")], adds: [true, false, true], makes: [null, null, (one, other) => one * other], rows,
      ...this.fewKeys(rows.map((_, key) => Math.abs(product(key))), "walk_by_product"),
      foot: { label: say("walk_sum"), numbers: [sumOf(weights), null, output[dimension]] } };
  }

  then() {
    const dim = this.steps.columnsOf("value");
    const { heads, next } = this.around;
    if (this.decodes) {
      return { id: "then", title: say("walk_then"), figure: "", operation: null, sentence: say("walk_says_then", { dim, query: this.query }),
        parts: [{ kind: /** @type {const} */ ("line"), text: say("walk_then_decoder") }] };
    }
    /** @type {Part[]} */
    const parts = [
      { kind: "line", text: heads !== null && heads > 1 ? say("walk_then_heads", { heads, dim, all: heads * dim }) : say("walk_then_one") },
      { kind: "line", text: say("walk_then_next") },
    ];
    if (next) parts.push({ kind: "layer", ...next });
    return { id: "then", title: say("walk_then"), figure: next ? say("walk_next_layer") : "", operation: null, sentence: say("walk_says_then", { dim, query: this.query }), parts };
  }
}

/** The rows of a table that are shown, and one that adds up the others; and what stands below them. "\u2248" stands where the printed numbers do not come out. */
export function shownRows(sum, isOpen) {
  const rows = isOpen ? sum.rows : [...sum.few].map((place) => sum.rows[place]);
  const others = isOpen ? [] : sum.rows.filter((_, place) => !sum.few.includes(place));
  const total = (column) => (sum.adds[column] ? sumOf(others.map((row) => row.numbers[column])) : null);
  const rest = others.length ? { label: say("walk_more", { count: others.length }), numbers: sum.adds.map((_, column) => total(column)) } : null;
  const label = others.length ? say("walk_sum_all", { count: sum.rows.length }) : sum.foot?.label;
  const sign = (column) => sum.adds[column] && equalSign(sum.foot.numbers[column] ?? 0, (...all) => sumOf(all), ...[...rows, ...(rest ? [rest] : [])].map((row) => row.numbers[column] ?? 0)) !== "=";
  const isRough = (column) => sum.makes?.[column] && rows.some(({ numbers }) => numbers.every(Number.isFinite) && equalSign(numbers[column], sum.makes[column], ...numbers) !== "=");
  return { head: sum.head.map((text, place) => (place && isRough(place - 1) ? `\u2248\u2009${text}` : text)), rows, rest, foot: sum.foot && { ...sum.foot, label, signs: sum.adds.map((_, column) => (sign(column) && sum.foot.numbers[column] !== null ? "\u2248\u2009" : "")) } };
}
