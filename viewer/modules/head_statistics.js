// @ts-check

/** The largest distance whose share is taken, as of `regard.survey`. */
const OFFSETS = 4;

/** Keys at most so far from the query's own place are near it. */
const NEAR = 2;

/** What a head may do; the shares are those of `regard.watching.STATISTICS`, and two more. */
export const PATTERNS = [
  "first", "special", "same_token", "induction",
  ...Array.from({ length: 2 * OFFSETS + 1 }, (_, number) => offsetName(number - OFFSETS)), "same_word", "near", "one_key",
];

/** Patterns whose mean is over those queries alone that see such a key. */
const WHERE_ANY = new Set(["same_token", "induction", "same_word"]);

/** The offset that a pattern is; null for others. */
const OFFSET_OF = PATTERNS.map((name) => (name.startsWith("offset ") ? Number(name.slice(7)) : null));

/** A survey's name of an offset. */
export function offsetName(offset) {
  return offset ? `offset ${offset > 0 ? "+" : "-"}${Math.abs(offset)}` : "offset 0";
}

/** Whether each position of an axis is a special token. */
function specialPositions(axis) {
  return Uint8Array.from({ length: axis.length }, (_, position) => Number(axis.special.has(position)));
}

/** The number of the word of each position. */
function wordNumbers(axis) {
  const numbers = new Int32Array(axis.length);
  axis.groups(true).forEach(([start, stop], word) => numbers.fill(word, start, stop));
  return numbers;
}

/** What the positions of a record are to each other; the same for all of its heads. */
class Relations {
  constructor(record) {
    const { queries, keys } = record;
    this.record = record;
    this.positional = record.entry.kind !== "cross" && queries.kind === keys.kind;
    this.shift = this.positional ? keys.length - queries.length : 0; // the last query stands at the last key
    this.grid = keys.kind === "grid" ? keys.entry : null;
    this.specialQueries = specialPositions(queries);
    this.specialKeys = specialPositions(keys);
    this.tokens = queries.kind === "tokens" && keys.kind === "tokens";
    const numbers = new Map();
    const numbered = (axis) => Int32Array.from({ length: axis.length }, (_, position) => {
      const text = axis.entry.tokens[position];
      if (!numbers.has(text)) numbers.set(text, numbers.size);
      return numbers.get(text);
    });
    this.queryTokens = this.tokens ? numbered(queries) : null;
    this.keyTokens = this.tokens ? numbered(keys) : null;
    const words = this.positional && this.tokens && keys.hasWords;
    this.words = words ? wordNumbers(keys) : null;
    this.found = this.causal = /** @type {any} */ (null);
  }

  /** For each pair the patterns that it belongs to, as bits in the order of PATTERNS. */
  get pairs() {
    if (!this.found) {
      const [queries, keys] = [this.record.queries.length, this.record.keys.length];
      this.found = new Uint32Array(queries * keys);
      for (let query = 0; query < queries; query += 1) {
        for (let key = 0; key < keys; key += 1) this.found[query * keys + key] = this.of(query, key);
      }
    }
    return this.found;
  }

  /** One byte a pair of a head, 1 where its mask lets the query see the key; null where all do. A causal record without a mask hides what comes later. */
  seen(head) {
    const { record } = this;
    const size = record.queries.length * record.keys.length;
    if (record.visible) return record.maskEntry.shape.length === 3 ? record.visible.subarray(head * size, (head + 1) * size) : record.visible;
    if (record.entry.kind !== "causal") return null;
    this.causal ??= Uint8Array.from({ length: size }, (_, pair) => Number(pair % record.keys.length <= Math.floor(pair / record.keys.length) + this.shift));
    return this.causal;
  }

  /** The patterns that a pair belongs to, as bits. */
  of(query, key) {
    const { keyTokens, queryTokens, specialKeys, positional, words } = this;
    const own = query + this.shift;
    let bits = key === 0 && !this.grid ? FIRST : 0;
    if (specialKeys[key]) return bits | SPECIAL_KEY;
    if (keyTokens && queryTokens && keyTokens[key] === queryTokens[query] && !(positional && key === own)) bits |= SAME_TOKEN;
    if (!positional) return this.inStep(query, key) ? bits | NEAR_KEY : bits;
    const offset = key - own;
    if (offset < 0 && key > 0 && keyTokens && queryTokens && keyTokens[key - 1] === queryTokens[query] && !specialKeys[key - 1]) bits |= INDUCTION;
    if (offset >= -OFFSETS && offset <= OFFSETS && (!this.grid || offset === 0)) bits |= bit(offsetName(offset));
    if (words && offset !== 0 && words[key] === words[own]) bits |= SAME_WORD;
    return this.near(own, key) ? bits | NEAR_KEY : bits;
  }

  /** Whether a query has a token at an offset, seen or not: the first one has none before it. */
  reaches(query, offset) {
    const key = query + this.shift + offset;
    return this.positional && key >= 0 && key < this.record.keys.length && !this.specialKeys[key];
  }

  /** Whether a key is near a position: a few places away, or a neighbour in the image. */
  near(own, key) {
    if (!this.grid) return Math.abs(key - own) <= NEAR;
    const { columns, leading } = this.grid;
    const [a, b] = [own - leading, key - leading];
    if (a < 0 || b < 0) return false;
    return Math.abs(Math.floor(a / columns) - Math.floor(b / columns)) <= 1 && Math.abs((a % columns) - (b % columns)) <= 1;
  }

  /** Whether query and key of two sequences are equally far from their starts, within a tenth of the keys. */
  inStep(query, key) {
    const [queries, keys] = [this.record.queries.length, this.record.keys.length];
    if (this.grid || queries < 2) return false;
    return Math.abs(key - (query * (keys - 1)) / (queries - 1)) <= Math.max(1, keys / 20);
  }
}

const bit = (name) => 1 << PATTERNS.indexOf(name);
const [FIRST, SPECIAL_KEY, SAME_TOKEN, INDUCTION, SAME_WORD, NEAR_KEY] = ["first", "special", "same_token", "induction", "same_word", "near"].map(bit);

const relationsOf = new WeakMap();

/** The relations of a record, found once. */
export function relations(record) {
  if (!relationsOf.has(record)) relationsOf.set(record, new Relations(record));
  return relationsOf.get(record);
}

/** The weights of one head, [queries × keys]. */
export function headWeights(record, head, exact = record.exact) {
  const size = record.queries.length * record.keys.length;
  if (exact) return exact.subarray(head * size, (head + 1) * size);
  const { codes, codeValues } = record;
  const { maximum } = record.entry.codes;
  const weights = new Float64Array(size);
  for (let pair = 0; pair < size; pair += 1) weights[pair] = codeValues[codes[head * size + pair]] * maximum;
  return weights;
}

/**
 * The statistics of a head of a record that is carried whole, each a mean over its counted queries: those that are not special
 * and see a key. The share of a pattern is the part of a query's weight on its keys; chance is the share that uniform
 * attention over the visible keys would give it, and spread is one standard deviation of the share of a head that
 * gives each query's whole weight to one visible key at random.
 * @returns {{queries: number, entropy: number, relativeEntropy: number, patterns: Record<string, {share: number, chance: number,
 *   spread: number, queries: number}>}} entropy in nats; relative to ln(visible keys)
 */
export function headStatistics(record, head) {
  const related = relations(record);
  const { pairs } = related;
  const [weights, seen] = [headWeights(record, head), related.seen(head)];
  const [queries, keys] = [record.queries.length, record.keys.length];
  const size = PATTERNS.length;
  const [totals, chances, variances, counts] = Array.from({ length: 4 }, () => new Float64Array(size));
  const [shares, cells] = [new Float64Array(size), new Float64Array(size)];
  const byKey = new Float64Array(keys);
  const chanceByKey = new Float64Array(keys);
  let [counted, entropies, relative, several] = [0, 0, 0, 0];
  for (let query = 0; query < queries; query += 1) {
    if (related.specialQueries[query]) continue;
    shares.fill(0);
    cells.fill(0);
    let [visible, sum, logs] = [0, 0, 0];
    const base = query * keys;
    for (let key = 0; key < keys; key += 1) {
      if (seen && !seen[base + key]) continue;
      visible += 1;
      const value = weights[base + key];
      if (value > 0) { sum += value; logs += value * Math.log(value); }
      for (let bits = pairs[base + key]; bits; bits &= bits - 1) {
        const number = 31 - Math.clz32(bits & -bits);
        cells[number] += 1;
        if (value > 0) shares[number] += value;
      }
    }
    if (!(sum > 0)) continue;
    counted += 1;
    for (let key = 0; key < keys; key += 1) {
      if (seen && !seen[base + key]) continue;
      byKey[key] += (weights[base + key] || 0) / sum;
      chanceByKey[key] += 1 / visible;
    }
    const entropy = Math.log(sum) - logs / sum;
    entropies += entropy;
    if (visible > 1) { relative += entropy / Math.log(visible); several += 1; }
    for (let number = 0; number < size; number += 1) {
      const offset = OFFSET_OF[number];
      if (offset === null ? !cells[number] && WHERE_ANY.has(PATTERNS[number]) : !related.reaches(query, offset)) continue;
      const chance = cells[number] / visible;
      counts[number] += 1;
      totals[number] += shares[number] / sum;
      chances[number] += chance;
      variances[number] += chance * (1 - chance);
    }
  }
  const patterns = /** @type {Record<string, any>} */ ({});
  PATTERNS.forEach((name, number) => {
    const count = counts[number];
    patterns[name] = { share: totals[number] / count, chance: chances[number] / count, spread: Math.sqrt(variances[number]) / count, queries: count };
  });
  patterns.one_key = mostReceived(byKey, chanceByKey, counted, related);
  return { queries: counted, entropy: entropies / counted, relativeEntropy: relative / several, patterns };
}

/** The key with the most weight besides the first and special ones: its mean share, as other patterns have it, and its position. */
function mostReceived(byKey, chanceByKey, queries, { specialKeys, grid }) {
  let best = -1;
  for (let key = grid ? 0 : 1; key < byKey.length; key += 1) {
    if (!specialKeys[key] && !(byKey[key] <= byKey[best])) best = key;
  }
  const chance = chanceByKey[best] / queries;
  return { share: byKey[best] / queries, chance, spread: Math.sqrt((chance * (1 - chance)) / queries), queries: best < 0 ? 0 : queries, key: best };
}
