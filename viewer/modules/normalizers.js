// @ts-check

/** What turns a row of scores into weights: its weights, and what they came from. A hidden key has the score −∞ and the weight 0. */

/** How the normalizers that the walk computes are called in a record. */
export const NORMALIZERS = ["softmax", "softmax_with_sink", "entmax", "sparsemax", "sigmoid"];

const HALVINGS = 60;

const total = (numbers) => numbers.reduce((sum, one) => sum + one, 0);

const isHidden = (score) => score === -Infinity;

/** The largest score; −∞ if all are hidden, NaN if one is NaN. */
const largestScore = (scores) => scores.reduce((most, score) => (Number.isNaN(score) || score > most ? score : most), -Infinity);

/** Scores up to which exp is taken of the scores themselves; beyond, of their differences from the largest. */
const LARGEST_PLAIN = 20;

/**
 * exp(score) divided by the sum of all, and of exp(sink) where there is a sink.
 * @param {Float64Array} scores
 * @param {number|null} [sink] the score of a key without a value
 */
function softmaxOf(scores, sink = null) {
  const all = sink === null ? scores : Float64Array.of(...scores, sink);
  const most = all.every((score) => isHidden(score) || Math.abs(score) < LARGEST_PLAIN) ? 0 : largestScore(all);
  const powers = scores.map((score) => (isHidden(score) ? 0 : Math.exp(score - most)));
  const sinkPower = sink === null ? 0 : Math.exp(sink - most);
  const sum = total(powers) + sinkPower;
  return { weights: powers.map((power, key) => (isHidden(scores[key]) ? 0 : power / sum)), most, powers, sinkPower, sum };
}

/** The row of a normalizer that cuts: all keys are hidden, or one is not finite. */
function cutOf(scores, weights, threshold) {
  const broken = scores.some((score) => Number.isNaN(score) || score === Infinity);
  const empty = scores.every(isHidden);
  const kept = scores.map((score, key) => (isHidden(score) ? 0 : broken ? NaN : weights(key)));
  return { weights: kept, threshold: empty ? null : broken ? NaN : threshold };
}

/** (score − τ)₊ with sum 1, τ by sorting (Martins and Astudillo 2016, algorithm 1). */
function sparsemaxOf(scores) {
  const most = largestScore(scores);
  const ordered = scores.map((score) => score - most).sort((a, b) => b - a);
  let [sum, threshold] = [0, -1];
  for (let rank = 1; rank <= ordered.length && ordered[rank - 1] !== -Infinity; rank += 1) {
    sum += ordered[rank - 1];
    if (rank * ordered[rank - 1] > sum - 1) threshold = (sum - 1) / rank;
  }
  return cutOf(scores, (key) => Math.max(0, scores[key] - most - threshold), threshold + most);
}

/**
 * [(α − 1) score − τ]₊^(1 / (α − 1)) with sum 1, τ by halving its bracket (Peters, Niculae and Martins 2019, eq. 10).
 * @param {Float64Array} scores
 * @param {number} alpha above 1
 */
function entmaxOf(scores, alpha) {
  const most = largestScore(scores);
  const shifted = scores.map((score) => (alpha - 1) * (score - most));
  const power = 1 / (alpha - 1);
  const weightsAt = (threshold) => shifted.map((score) => Math.max(0, score - threshold) ** power);
  let [low, high] = [-1, 0];
  for (let halving = 0; halving < HALVINGS; halving += 1) {
    const middle = (low + high) / 2;
    if (total(weightsAt(middle)) >= 1) low = middle;
    else high = middle;
  }
  const weights = weightsAt(low);
  const sum = total(weights);
  return cutOf(scores, (key) => weights[key] / sum, low + (alpha - 1) * most);
}

/** 1 / (1 + exp(−(score + bias))), each key by itself. */
function sigmoidOf(scores, bias) {
  return { weights: scores.map((score) => (isHidden(score) ? 0 : 1 / (1 + Math.exp(-(score + bias))))) };
}

/**
 * The weights of a row.
 * @param {string} name one of `NORMALIZERS`
 * @param {Float64Array} scores −∞ where a key is hidden
 * @param {{alpha?: number, sink?: number, bias?: number}} parameters entmax with alpha 1 is softmax
 * @returns {{weights: Float64Array, most?: number, powers?: Float64Array, sinkPower?: number, sum?: number, threshold?: number|null}}
 */
export function normalized(name, scores, parameters = {}) {
  if (name === "softmax_with_sink") return softmaxOf(scores, parameters.sink);
  if (name === "sparsemax" || (name === "entmax" && parameters.alpha === 2)) return sparsemaxOf(scores);
  if (name === "entmax" && parameters.alpha !== 1) return entmaxOf(scores, parameters.alpha);
  if (name === "sigmoid") return sigmoidOf(scores, parameters.bias ?? 0);
  return softmaxOf(scores);
}
