// @ts-check

import { decodeNumbers } from "./decoding.js";
import { say } from "./language.js";

/** The steps of a calculation that have a number for each pair, in their order. */
export const PAIR_STEPS = ["scores", "scaled", "capped", "biased", "masked", "weights"];

/** The largest weight of a pair that is a good example: beyond it the other words have no part. */
const CLEAR = 0.9;

/** Whether a label is a mark of the model, such as [CLS] or <s>, or a piece of a word. */
const isMark = (label) => /^(\[.*\]|<.*>|##.*)$/u.test(label) || !/[\p{L}\p{N}]/u.test(label);

/** One worked calculation: of the payload, or one that is fetched when it is needed. */
export class StepsData {
  /**
   * @param {any} entry an entry of the payload's `steps`; null: it is fetched
   * @param {{record: number, head: number, name: string, ask: () => Promise<any>}|null} [source] where it comes from
   */
  constructor(entry, source = null) {
    this.source = source;
    this.ready = null;
    this.decoded = false;
    this.error = null; // why there are no numbers
    this.take(entry ?? { name: source?.name ?? "", record: source?.record, head: source?.head, queries: [], keys: [], matrices: {} });
  }

  take(entry) {
    this.entry = entry;
    this.rows = entry.queries.length;
    this.columns = entry.keys.length;
    this.names = Object.keys(entry.matrices);
    this.matrices = {};
    /** @type {{sources: any[], query: Float64Array|Float32Array, key: Float64Array|Float32Array}|null} */
    this.parts = null; // what wrote the parts of each scaled score, by source, query and key
    this.signed = false; // whether a weight is negative, so that weights are no shares
  }

  /** Whether it is the calculation of a head of a record of the payload. */
  belongsTo(record, head) {
    const { entry, source } = this;
    return (source ? source.record : entry.record ?? null) === record && (source ? source.head : entry.head) === head;
  }

  decode() {
    this.ready ??= this.decodeAll();
    return this.ready;
  }

  async decodeAll() {
    if (this.source) {
      try {
        this.take(await this.source.ask());
      } catch (error) {
        this.error = String(/** @type {any} */ (error)?.message ?? error);
      }
    }
    for (const name of this.names) this.matrices[name] = await decodeNumbers(this.entry.matrices[name]);
    const { parts } = this.entry;
    if (parts) this.parts = { sources: parts.sources, query: await decodeNumbers(parts.query), key: await decodeNumbers(parts.key) };
    if (this.error === null && !(this.rows && this.columns)) this.error = say("walk_nothing");
    this.scale = this.entry.scale ?? this.findScale();
    this.signed = this.has("weights") && this.matrices.weights.some((weight) => weight < 0);
    this.isShared = this.findShared();
    this.pair = this.findPair();
    this.decoded = true;
  }

  /** Whether keys and values are one list for each word, before the score itself projects a key. */
  findShared() {
    const value = this.has("value") ? this.columnsOf("value") : 0;
    const key = this.has("key_input") && this.has("w_key") && this.entry.comparison === "Additive" ? "key_input" : "key";
    if (!this.has(key) || this.columnsOf(key) < value || !value || this.columnsOf(key) > value + 1) return false;
    for (let row = 0; row < this.columns; row += 1) {
      for (let column = 0; column < value; column += 1) if (Math.abs(this.at(key, row, column) - this.at("value", row, column)) > 1e-6) return false;
    }
    return true;
  }

  /** What the scores were multiplied by, read off the largest of them, where the record does not say it. */
  findScale() {
    const { scores, scaled } = this.matrices;
    if (!scaled) return 1;
    let best = 0;
    for (let cell = 1; cell < scores.length; cell += 1) {
      if (Number.isFinite(scores[cell]) && Number.isFinite(scaled[cell]) && !(Math.abs(scores[cell]) <= Math.abs(scores[best]))) best = cell;
    }
    return scaled[best] / scores[best];
  }

  /** The pair that is shown first: the largest weight, which is not almost 1, between two different words. */
  findPair() {
    const { queries, keys } = this.entry;
    let [best, most] = [{ row: 0, column: 0 }, -Infinity];
    for (let row = 0; row < this.rows; row += 1) {
      for (let column = 0; column < this.columns; column += 1) {
        const weight = Math.abs(this.at("weights", row, column));
        const value = (weight <= CLEAR ? weight : 2 * CLEAR - weight) - (isMark(queries[row]) ? 4 : 0) - (isMark(keys[column]) ? 4 : 0)
          - (queries[row] === keys[column] ? 2 : 0);
        if (value > most) { most = value; best = { row, column }; }
      }
    }
    return best;
  }

  columnsOf(name) {
    return this.entry.matrices[name].shape[1];
  }

  has(name) {
    return this.names.includes(name);
  }

  /** Whether the mask hides a pair. */
  hides(row, column) {
    return this.has("masked") && this.at("masked", row, column) === -Infinity;
  }

  at(name, row, column) {
    return this.matrices[name][row * this.columnsOf(name) + column];
  }

  /** One row of a matrix. */
  rowOf(name, row) {
    const columns = this.columnsOf(name);
    return this.matrices[name].slice(row * columns, (row + 1) * columns);
  }
}
