// @ts-check

/** @import { StepsData } from "./steps_data.js" */

import { sumOf } from "./numbers.js";
import { NORMALIZERS, normalized } from "./normalizers.js";

/** A head's calculation, as the model does it or with another temperature, scale, mask or normalizer. */
export class Calculation {
  /**
   * @param {StepsData} steps
   * @param {{temperature?: number, scale?: number, mask?: string, normalizer?: string, alpha?: number}|null} trial what differs
   */
  constructor(steps, trial) {
    const { entry } = steps;
    this.steps = steps;
    this.parameters = entry.parameters ?? {};
    this.model = { temperature: this.parameters.temperature ?? 1, scale: steps.scale, mask: "model", normalizer: entry.normalizer,
      alpha: this.parameters.alpha ?? 1.5 };
    this.used = { ...this.model, ...trial };
    if (!this.knows()) this.used.normalizer = this.model.normalizer;
    if (!["model", "none", ...(this.isSquare ? ["causal"] : [])].includes(this.used.mask)) this.used.mask = "model";
    this.isChanged = Object.keys(this.model).some((name) => this.differs(name));
    this.cache = new Map();
    this.maps = new Map();
  }

  differs(name) {
    const counts = name !== "alpha" || this.used.normalizer === "entmax";
    return counts && this.used[name] !== this.model[name];
  }

  /** Whether the weights of a normalizer can be computed. */
  knows(normalizer = this.used.normalizer) {
    return NORMALIZERS.includes(normalizer);
  }

  /** Whether the scores after another scale can be computed: a function of the score is not in the record. */
  get scales() {
    return Number.isFinite(this.model.scale) && (!this.steps.has("capped") || Number.isFinite(this.steps.entry.cap ?? NaN));
  }

  get isSquare() {
    return this.steps.rows === this.steps.columns;
  }

  /** All steps of a query's row. */
  row(query) {
    if (!this.cache.has(query)) this.cache.set(query, this.compute(query));
    return this.cache.get(query);
  }

  compute(query) {
    const { steps, used, model } = this;
    const given = (name, before) => (steps.has(name) ? steps.rowOf(name, query) : before);
    const scores = steps.rowOf("scores", query);
    const own = { scaled: given("scaled", scores) };
    own.capped = given("capped", own.scaled);
    own.biased = given("biased", own.capped);
    own.masked = given("masked", own.biased);
    const rescaled = this.differs("scale");
    const scaled = rescaled ? scores.map((score) => score * used.scale) : own.scaled;
    const { cap } = steps.entry;
    const capped = !rescaled ? own.capped : steps.has("capped") ? scaled.map((score) => cap * Math.tanh(score / cap)) : scaled;
    const biased = !rescaled ? own.biased : capped.map((score, key) => (own.biased[key] === -Infinity ? -Infinity
      : steps.has("biased") ? score + (own.biased[key] - own.capped[key]) : score));
    const hides = { model: (key) => own.masked[key] === -Infinity, none: () => false, causal: (key) => key > query }[used.mask];
    const masked = biased.map((score, key) => (hides(key) ? -Infinity : score));
    const tempered = used.temperature === 1 ? masked : masked.map((score) => score / used.temperature);
    const truth = steps.rowOf("weights", query);
    const parameters = { ...this.parameters, alpha: used.alpha };
    const made = this.knows() ? normalized(used.normalizer, tempered, parameters) : { weights: truth };
    const weights = this.isChanged ? made.weights : truth;
    return { scores, scaled, capped, biased, masked, tempered, made, weights, truth, isModel: used.normalizer === model.normalizer };
  }

  /** Whether a query's weights are parts of a whole, as printed with two decimals. */
  isWhole(query) {
    const { weights } = this.row(query);
    return weights.every((weight) => weight >= 0) && Math.abs(sumOf(weights) - 1) < 0.005;
  }

  /** weight × value of a key in one dimension of the output; a hidden key adds nothing, whatever its value is. */
  product(query, key, dimension) {
    const weight = this.row(query).weights[key];
    return weight === 0 ? 0 : weight * this.steps.at("value", key, dimension);
  }

  /** The output of a query. */
  output(query) {
    const { steps } = this;
    if (!this.isChanged) return steps.rowOf("output", query);
    return Float64Array.from({ length: steps.columnsOf("value") }, (_, dimension) => {
      let sum = 0;
      for (let key = 0; key < steps.columns; key += 1) sum += this.product(query, key, dimension);
      return sum;
    });
  }

  /** The numbers of all pairs at a step. */
  map(name) {
    if (!this.maps.has(name)) {
      const { rows, columns } = this.steps;
      const numbers = new Float64Array(rows * columns);
      for (let query = 0; query < rows; query += 1) numbers.set(this.row(query)[name], query * columns);
      this.maps.set(name, numbers);
    }
    return this.maps.get(name);
  }
}
