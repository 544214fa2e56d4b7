// @ts-check

import { decodeNumbers } from "./decoding.js";

/** The steps of a calculation that have a number for each pair, with what each does. */
export const PAIR_STEPS = {
  scores: "query \u00b7 key", scaled: "score \u00d7 scale", capped: "after the score's cap or function", biased: "+ bias",
  masked: "\u2212\u221e where the mask hides a key", weights: "each row normalized",
};

/** One worked calculation of the payload. */
export class StepsData {
  constructor(entry) {
    this.entry = entry;
    this.rows = entry.queries.length;
    this.columns = entry.keys.length;
    this.names = Object.keys(entry.matrices);
    this.matrices = {};
    this.ready = null;
    this.decoded = false;
  }

  decode() {
    this.ready ??= this.decodeAll();
    return this.ready;
  }

  async decodeAll() {
    for (const name of this.names) this.matrices[name] = await decodeNumbers(this.entry.matrices[name]);
    this.scale = this.findScale();
    this.decoded = true;
  }

  /** What the scores were multiplied by, read off the largest of them. */
  findScale() {
    const { scores, scaled } = this.matrices;
    if (!scaled) return 1;
    let best = 0;
    for (let cell = 1; cell < scores.length; cell += 1) {
      if (Number.isFinite(scores[cell]) && Number.isFinite(scaled[cell]) && !(Math.abs(scores[cell]) <= Math.abs(scores[best]))) best = cell;
    }
    return scaled[best] / scores[best];
  }

  columnsOf(name) {
    return this.entry.matrices[name].shape[1];
  }

  /** Whether the mask hides a pair. */
  hides(row, column) {
    return this.names.includes("masked") && this.at("masked", row, column) === -Infinity;
  }

  at(name, row, column) {
    return this.matrices[name][row * this.columnsOf(name) + column];
  }
}
