// @ts-check

import { decodeBits, decodeNumbers } from "./decoding.js";
import { say } from "./language.js";
import { normalized } from "./normalizers.js";

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
    this.names = [...Object.keys(entry.matrices), ...(entry.derived ?? [])];
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
    for (const name of Object.keys(this.entry.matrices)) this.matrices[name] = await decodeNumbers(this.entry.matrices[name]);
    if (this.entry.derived) this.derive(this.entry.visible ? await decodeBits(this.entry.visible) : null);
    const { parts } = this.entry;
    if (parts) this.parts = { sources: parts.sources, query: await decodeNumbers(parts.query), key: await decodeNumbers(parts.key) };
    if (this.error === null && !(this.rows && this.columns)) this.error = say("walk_nothing");
    this.scale = this.entry.scale ?? this.findScale();
    this.signed = this.has("weights") && this.matrices.weights.some((weight) => weight < 0);
    this.isShared = this.findShared();
    this.pair = this.findPair();
    this.decoded = true;
  }

  /** Computes the numbers that the payload leaves to the viewer, as the model does; visible: which pairs the mask shows. */
  derive(visible) {
    const { rows, columns, matrices, entry } = this;
    const { derived, scale, cap, parameters } = entry;
    const pairs = (name, value) => { if (derived.includes(name)) matrices[name] = Float64Array.from({ length: rows * columns }, (_, pair) => value(pair)); };
    const sum = (count, term) => { let all = 0; for (let place = 0; place < count; place += 1) all += term(place); return all; };
    const at = (names, pair) => matrices[names.find((name) => matrices[name])][pair];
    pairs("scores", (pair) => sum(this.columnsOf("query"), (place) => this.at("query", Math.floor(pair / columns), place) * this.at("key", pair % columns, place)));
    pairs("scaled", (pair) => matrices.scores[pair] * scale);
    pairs("capped", (pair) => cap * Math.tanh(matrices.scaled[pair] / cap));
    const before = ["biased", "capped", "scaled", "scores"];
    pairs("masked", (pair) => (visible?.[pair] === 0 ? -Infinity : at(before, pair)));
    if (derived.includes("weights")) {
      const scores = matrices.masked ?? matrices[/** @type {string} */ (before.find((name) => matrices[name]))];
      matrices.weights = new Float64Array(rows * columns);
      for (let row = 0; row < rows; row += 1) {
        const tempered = Float64Array.from(scores.subarray(row * columns, (row + 1) * columns), (score) => score / (parameters.temperature ?? 1));
        matrices.weights.set(normalized(entry.normalizer, tempered, parameters).weights, row * columns);
      }
    }
    if (!derived.includes("output")) return;
    const dim = this.columnsOf("value");
    const part = (row, key, place) => { const weight = this.at("weights", row, key); return weight === 0 ? 0 : weight * this.at("value", key, place); };
    matrices.output = Float64Array.from({ length: rows * dim }, (_, cell) => sum(columns, (key) => part(Math.floor(cell / dim), key, cell % dim)));
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
    const { matrices } = this.entry;
    return matrices[name]?.shape[1] ?? (name === "output" ? matrices.value.shape[1] : this.columns);
  }

  has(name) {
    return this.names.includes(name);
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
