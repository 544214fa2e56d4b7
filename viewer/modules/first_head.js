// @ts-check

import { headLabel } from "./head_labels.js";
import { headWeights, relations } from "./head_statistics.js";

/** The most weights that are decoded to choose; of a larger document the first records that fit. */
const MOST_READ_WEIGHTS = 2 ** 22;

/** The least keys that a query sees for which one is a choice. */
const LEAST_KEYS = 4;

/** What a head may do and yet say little: such heads are chosen only where there are no others. */
const UNREMARKABLE = new Set(["first", "special", "one_key", "offset 0", "even"]);

/** Letters that make a word, or one of a script that writes words without spaces: such a token says more than "a". */
const WORDLIKE = /[\p{L}\p{M}]{2}|[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}]/u;

/** The least weight of two whole words apart that is spoken of before one of neighbours. */
const LEAST_APART = 0.5;

const LETTERS = /[\p{L}\p{N}]/u;

/**
 * Decodes what a choice needs and makes it; see `firstChoice`.
 * @returns {Promise<{record: number, head: number, row: number|null, column: number|null}|null>}
 */
export async function chooseFirst(records) {
  let left = MOST_READ_WEIGHTS;
  const read = [];
  for (const record of records) {
    if (record.large) { read.push(record); continue; }
    left -= record.heads * record.queries.length * record.keys.length;
    if (left < 0 && read.some((one) => !one.large)) break;
    read.push(record);
  }
  await Promise.all(read.map((record) => (record.large ? null : record.decode())));
  return firstChoice(read);
}

/**
 * The head with the clearest structure, at the query whose target is the most surprising; of the records that are decoded.
 * A target is surprising by its weight times what the weight has more than its position predicts: than the mean
 * weight of other queries at the same distance, and of other queries on the same key. So heads that look at the first or at a
 * special token, at themselves or at a fixed distance have little; and a head's structure is the mean over its
 * queries of their most surprising target. Of a head's targets the one is chosen that is also far from its query (of two
 * sequences: from the diagonal), where both are words.
 * Where that target is a neighbour, a head that gives more than half of its weight to a word apart from its query is chosen instead.
 * @returns {{record: number, head: number, row: number|null, column: number|null}|null} positions in `records` of the viewer;
 *   row and column are null where no target stands out; null where there is no decoded record
 */
export function firstChoice(records) {
  const heads = records.filter((record) => !record.large && record.codes).flatMap((record) =>
    Array.from({ length: record.heads }, (_, head) => ({ of: record, record: record.number, head, ...structure(record, head) })));
  heads.sort((a, b) => b.score - a.score || a.record - b.record || a.head - b.head);
  const remarkable = (one) => one.score > 0 && !UNREMARKABLE.has(headLabel(one.of, one.head)?.name ?? "");
  let best = heads.find(remarkable) ?? heads[0];
  // Neighbours say less than two words apart.
  if (best?.isNear) best = heads.filter((one) => one.apart > 0).sort((a, b) => b.apart - a.apart).find(remarkable) ?? best;
  return best ? { record: best.record, head: best.head, row: best.row, column: best.column } : firstFinding(records);
}

/** Of records that are not carried whole: what was found in one, a single large weight before a diagonal before a sink. */
function firstFinding(records) {
  for (const record of records) {
    const { spikes = [], diagonals = [], sinks = [] } = record.entry.overview?.findings ?? {};
    if (spikes.length) return { record: record.number, head: spikes[0].head, row: spikes[0].query, column: spikes[0].key };
    const [found] = [...diagonals, ...sinks];
    if (found) return { record: record.number, head: found.head, row: null, column: found.key ?? null };
  }
  return null;
}

/**
 * How much structure a head has, and its most surprising target: two whole words apart with more than half of the weight, if there are such
 * and the target is a neighbour. `apart` is how telling such words are, 0 where there are none; `isNear` whether the target is a neighbour.
 */
export function structure(record, head) {
  if (record.signed) return { score: 0, row: null, column: null, apart: 0, isNear: false }; // shares of what has any sum say nothing
  const related = relations(record);
  const weights = headWeights(record, head, null); // of the codes: the same before and after exact numbers come
  const seen = related.seen(head);
  const [queries, keys] = [record.queries.length, record.keys.length];
  const { positional, shift, specialKeys, specialQueries, words } = related;
  const byOffset = new Float64Array(queries + keys);
  const offsetCounts = new Uint32Array(queries + keys);
  const byKey = new Float64Array(keys);
  const keyCounts = new Uint32Array(keys);
  const visible = new Uint32Array(queries);
  for (let query = 0; query < queries; query += 1) {
    if (specialQueries[query]) continue;
    const base = query * keys;
    for (let key = 0; key < keys; key += 1) {
      if (seen && !seen[base + key]) continue;
      const value = weights[base + key] || 0;
      visible[query] += 1;
      byOffset[key - query + queries] += value;
      offsetCounts[key - query + queries] += 1;
      byKey[key] += value;
      keyCounts[key] += 1;
    }
  }
  const [asking, answering] = [weightOfTexts(record.queries), weightOfTexts(record.keys)];
  const [wholeQueries, wholeKeys] = [wholeWords(record.queries), wholeWords(record.keys)];
  const slope = queries > 1 ? (keys - 1) / (queries - 1) : 0;
  let [total, counted, most, row, column] = [0, 0, 0, /** @type {number|null} */ (null), /** @type {number|null} */ (null)];
  let far = { apart: 0, row: /** @type {number|null} */ (null), column: /** @type {number|null} */ (null) };
  for (let query = 0; query < queries; query += 1) {
    if (visible[query] < LEAST_KEYS) continue;
    counted += 1;
    const base = query * keys;
    const own = positional ? query + shift : -1;
    let clearest = 0;
    for (let key = 0; key < keys; key += 1) {
      const value = weights[base + key];
      if (!(value * visible[query] > 2) || key === own || specialKeys[key] || !answering[key]) continue;
      if (words && words[key] === words[own]) continue;
      if (seen && !seen[base + key]) continue;
      const offset = key - query + queries;
      const alone = positional && offsetCounts[offset] > 1 ? (byOffset[offset] - value) / (offsetCounts[offset] - 1) : 0;
      const onKey = keyCounts[key] > 1 ? (byKey[key] - value) / (keyCounts[key] - 1) : 0;
      const surprise = value * (value - Math.max(alone, onKey, 1 / visible[query]));
      if (surprise > clearest) clearest = surprise;
      const distance = Math.abs(key - (positional ? own : query * slope));
      const telling = surprise * asking[query] * answering[key] * (1 + distance / Math.max(queries, keys));
      if (telling > most + 1e-9) [most, row, column] = [telling, query, key];
      const apart = value > LEAST_APART && wholeQueries[query] && wholeKeys[key] && asking[query] === 1 && answering[key] === 1 && !(positional && Math.abs(key - own) <= 1);
      if (apart && telling > far.apart) far = { apart: telling, row: query, column: key };
    }
    total += clearest;
  }
  const isNear = positional && row !== null && column !== null && Math.abs(column - row - shift) <= 1;
  return { score: counted ? total / counted : 0, isNear: isNear && !far.apart, ...(isNear && far.apart ? far : { apart: far.apart, row, column }) };
}

/** How much a position says: 0 for punctuation, 1 for a word, less for what is shorter. */
function weightOfTexts(axis) {
  return Float64Array.from({ length: axis.length }, (_, position) => {
    if (axis.kind !== "tokens") return 1;
    const text = axis.entry.tokens[position];
    return WORDLIKE.test(text) ? 1 : LETTERS.test(text) ? 0.5 : 0;
  });
}

/** Whether each position is a word, and no part of one. */
function wholeWords(axis) {
  const whole = new Uint8Array(axis.length);
  for (const [start, stop] of axis.groups(true)) whole[start] = Number(stop === start + 1);
  return whole;
}
