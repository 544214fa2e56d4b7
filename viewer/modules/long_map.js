// @ts-check

import { decodeNumbers, decodeTile, inflate } from "./decoding.js";
import { leftOutText } from "./head_labels.js";
import { say } from "./language.js";
import { mapCanvas } from "./map_canvas.js";
import { clamp, counted, percent } from "./numbers.js";
import { signsOf } from "./palette.js";
import { SCALES } from "./scales.js";
import { MASKED, MISSING, WEIGHT, ZERO } from "./table.js";
import { quoted, shortText } from "./text.js";
import { softened } from "./themes.js";

/** The statistics of a pooled map; `poolingText` has their words. */
export const POOLINGS = ["mean", "maximum"];

export const poolingText = (pooling) => say(pooling === "mean" ? "pooling_mean" : "pooling_maximum");

/** What kind of cell a weight is (negative: masked; where there are signs −∞ is), and its shade from 0 to 255. */
export function shadeOf(value, limit, scale, signed = false) {
  if (signed ? value === -Infinity : value < 0) return { kind: MASKED, shade: 0 };
  if (Number.isNaN(value)) return { kind: MISSING, shade: 0 };
  if (value === 0) return { kind: ZERO, shade: 0 };
  const shade = clamp(SCALES[scale].shade(Math.abs(value) / (limit || 1)), 0, 1);
  return { kind: WEIGHT, shade: Math.round(255 * (signed ? (1 + Math.sign(value) * shade) / 2 : shade)) };
}

/** The most pairs that are listed of all heads. */
const MOST_PEAKS = 6;

/** The scale of a map: of shares of attention logarithmic, from next to nothing to all. */
export const mapScale = (record) => (record.signed ? "linear" : "share");

/** Of a diagonal that more of the queries have than this part, their number is not said. */
const MOST_REACHED = 0.9;

/** A record that is too large to carry whole: pooled maps, findings, and exact tiles that are carried or fetched. */
export class LongMap {
  constructor(record) {
    const part = record.entry.overview;
    this.record = record;
    this.rows = part.rows;
    this.columns = part.columns;
    this.side = part.tile;
    this.findings = part.findings;
    this.peaks = part.peaks;
    this.hidden = part.hidden;
    this.ofLetters = [record.queries, record.keys].every((axis) => axis.kind === "tokens" && axis.entry.tokens.every((text) => [...text].length === 1));
    this.carried = part.tiles.length;
    this.maps = {};
    this.tiles = new Map();
    this.bitmaps = new Map();
    this.receivedSums = new Map();
    this.pending = 0;
  }

  static async decode(record) {
    const map = new LongMap(record);
    const part = record.entry.overview;
    for (const pooling of POOLINGS) {
      map.maps[pooling] = { codes: await inflate(part[pooling].data), maximum: part[pooling].maximum };
    }
    for (const tile of part.tiles) {
      map.tiles.set(`${tile.query / part.tile},${tile.key / part.tile}`, { values: await decodeNumbers(tile), kept: true });
    }
    return map;
  }

  /** The first position of a bin. */
  edge(length, bins, bin) {
    return Math.floor((bin * length + bins - 1) / bins);
  }

  /** The bin of a pair. */
  bin(query, key) {
    const { queries, keys } = this.record;
    return [Math.floor((query * this.rows) / queries.length), Math.floor((key * this.columns) / keys.length)];
  }

  /** The pooled weight of a bin; the mean over heads where no head is chosen, of means and of maxima alike. */
  pooled(pooling, head, row, column) {
    const { codes, maximum } = this.maps[pooling];
    const { codeValues, codeErrors } = this.record;
    const cell = row * this.columns + column;
    const cells = this.rows * this.columns;
    if (head !== null) {
      const code = codes[head * cells + cell];
      const unit = maximum * this.even(head, row);
      return { value: codeValues[code] * unit, error: codeErrors[code] * unit, zero: code === 0 };
    }
    let [sum, error, zero] = [0, 0, true];
    for (let one = 0; one < this.record.heads; one += 1) {
      const code = codes[one * cells + cell];
      if (code !== 0) zero = false;
      const unit = maximum * this.even(one, row);
      sum += codeValues[code] * unit;
      error += codeErrors[code] * unit;
    }
    return { value: sum / this.record.heads, error: error / this.record.heads, zero };
  }

  /** The equal share of the queries of a row of bins: the largest one; 1 where numbers have signs. */
  even(head, row) {
    const { signed, kind, queries, keys, entry: { overview: { even } } } = this.record;
    if (signed) return 1;
    if (even) return even[even.length > 1 ? head ?? 0 : 0][row] || 1;
    return 1 / (kind === "causal" ? clamp(this.edge(queries.length, this.rows, row) + 1 + keys.length - queries.length, 1, keys.length) : keys.length);
  }

  /** The far pairs of a head, or of all, with the most attention: {head, query, key, weight, times}. */
  peaksOf(head) {
    const all = this.peaks.map((one, of) => one.pairs.map((pair) => ({ ...pair, head: of })));
    return head !== null ? all[head] ?? [] : all.flat().sort((a, b) => b.weight - a.weight).slice(0, MOST_PEAKS);
  }

  /** The fixed far distances at which a head looks, or the mean of all, the strongest first. */
  stripes(head) {
    return this.record.entry.overview.stripes?.at(head ?? -1) ?? [];
  }

  /** What is said of tokens, of characters where all tokens are single ones. */
  inUnits(text) {
    const unit = say("long_character");
    return this.ofLetters ? text.replace(new RegExp(say("long_token"), "gi"), (word) => (word[0] === "T" ? unit[0].toUpperCase() + unit.slice(1) : unit)) : text;
  }

  /** How many tokens a point is high and wide. */
  sizeOfPoint(block) {
    const { queries, keys } = this.record;
    return { down: counted(Math.round((block * queries.length) / this.rows)), across: counted(Math.round((block * keys.length) / this.columns)) };
  }

  /** What a point of the map is of the weights, where blocks of bins are joined. */
  statistic(pooling, block) {
    const { down, across } = this.sizeOfPoint(block);
    if (down === "1" && across === "1") return say("long_single");
    return this.inUnits(say(pooling === "maximum" ? "long_largest" : this.record.signed ? "long_mean" : "long_share_of", { down, across }));
  }

  /** The exact weight of a pair, or null where no tile with it is here; masked pairs are −1, or −∞ where there are signs. */
  exact(head, query, key) {
    const tile = this.tiles.get(`${Math.floor(query / this.side)},${Math.floor(key / this.side)}`);
    if (!tile?.values) return null;
    const { queries, keys } = this.record;
    const [q0, k0] = [Math.floor(query / this.side) * this.side, Math.floor(key / this.side) * this.side];
    const [height, width] = [Math.min(this.side, queries.length - q0), Math.min(this.side, keys.length - k0)];
    const cell = (query - q0) * width + key - k0;
    if (head !== null) return tile.values[head * height * width + cell];
    let sum = 0;
    let seen = 0;
    for (let one = 0; one < this.record.heads; one += 1) {
      const value = tile.values[one * height * width + cell];
      if (value >= 0 || Number.isNaN(value) || (this.record.signed && value > -Infinity)) { sum += value; seen += 1; }
    }
    return seen ? sum / this.record.heads : this.record.signed ? -Infinity : -1;
  }

  /** Asks for a tile that is not here; at most a few at a time. */
  request(tileRow, tileColumn, fetchTile, done) {
    const key = `${tileRow},${tileColumn}`;
    if (this.tiles.has(key) || !fetchTile || this.pending >= 6) return;
    const { queries, keys } = this.record;
    const [q0, k0] = [tileRow * this.side, tileColumn * this.side];
    const tile = { values: null, kept: false };
    this.tiles.set(key, tile);
    this.pending += 1;
    const [q1, k1] = [Math.min(q0 + this.side, queries.length), Math.min(k0 + this.side, keys.length)];
    Promise.resolve(fetchTile(this.record.number, q0, q1, k0, k1)).then(decodeTile).then((values) => {
      if (values.length !== this.record.heads * (q1 - q0) * (k1 - k0)) throw new RangeError(say("long_wrong_tile"));
      tile.values = values;
    }).catch((error) => {
      tile.failed = String(error?.message ?? error);
    }).finally(() => {
      this.pending -= 1;
      this.forget();
      done();
    });
  }

  /** Drops the oldest fetched tiles above a number. */
  forget() {
    for (const [key, tile] of this.tiles) {
      if (this.tiles.size <= 256) return;
      if (!tile.kept && (tile.values || tile.failed)) this.tiles.delete(key);
    }
  }

  /** The whole pooled map, one pixel a block of bins: {canvas, rows, columns, values, limit (the number of the last colour), kinds}. */
  bitmap(pooling, head, block, theme) {
    const key = `${pooling} ${head} ${block} ${theme.name}`;
    if (!this.bitmaps.has(key)) {
      if (this.bitmaps.size > 24) this.bitmaps.delete(this.bitmaps.keys().next().value);
      this.bitmaps.set(key, this.paintBitmap(pooling, head, block, theme));
    }
    return this.bitmaps.get(key);
  }

  /** The first and the last position of a block of bins. */
  span(length, bins, block, number) {
    return [this.edge(length, bins, number * block), this.edge(length, bins, Math.min(bins, (number + 1) * block)) - 1];
  }

  /** Of each block of bins the largest weight, or the part of its queries' attention that its keys get (where there are signs the mean). */
  blocks(pooling, head, block) {
    const [rows, columns] = [Math.ceil(this.rows / block), Math.ceil(this.columns / block)];
    const values = new Float32Array(rows * columns);
    const { signed, queries, keys } = this.record;
    const sizes = (length, bins) => Array.from({ length: bins }, (_, bin) => this.edge(length, bins, bin + 1) - this.edge(length, bins, bin));
    const [down, across] = [sizes(queries.length, this.rows), sizes(keys.length, this.columns)];
    const joined = (all, bin) => all.slice(bin - (bin % block), bin - (bin % block) + block).reduce((sum, one) => sum + one, 0);
    const [heights, widths] = [down.map((_, bin) => joined(down, bin)), across.map((_, bin) => joined(across, bin))];
    for (let row = 0; row < this.rows; row += 1) {
      for (let column = 0; column < this.columns; column += 1) {
        const bin = this.pooled(pooling, head, row, column);
        // What is not zero stays so, however small.
        const value = bin.value === 0 && !bin.zero ? 1e-38 : bin.value;
        const cell = Math.floor(row / block) * columns + Math.floor(column / block);
        if (pooling === "mean") values[cell] += (value * down[row] * across[column]) / heights[row] / (signed ? widths[column] : 1);
        else if (Number.isNaN(value) || Math.abs(value) > Math.abs(values[cell])) values[cell] = value; // NaN stays
      }
    }
    return { rows, columns, values };
  }

  /** Whether all pairs of a block of bins are in the future. */
  isFuture(block, row, column) {
    const { kind, queries, keys } = this.record;
    return kind === "causal" && this.span(keys.length, this.columns, block, column)[0] > this.span(queries.length, this.rows, block, row)[1] + keys.length - queries.length;
  }

  paintBitmap(pooling, head, block, theme) {
    const { rows, columns, values } = this.blocks(pooling, head, block);
    const { signed } = this.record;
    const limit = signed ? values.reduce((best, value) => (Math.abs(value) > best ? Math.abs(value) : best), 0) : 1;
    const kinds = new Uint8Array(rows * columns);
    const shades = new Uint8Array(rows * columns);
    values.forEach((value, cell) => {
      ({ kind: kinds[cell], shade: shades[cell] } = shadeOf(value, limit, mapScale(this.record), signed));
      if (kinds[cell] === ZERO && this.isFuture(block, Math.floor(cell / columns), cell % columns)) kinds[cell] = MASKED;
    });
    return { canvas: mapCanvas(columns, rows, kinds, shades, softened(theme), signed ? signsOf(theme) : undefined), rows, columns, values, limit, kinds: new Set(kinds) };
  }

  /** What was found in the map: {text, head, row, column, kind}. */
  places() {
    const { sinks, diagonals, spikes } = this.findings;
    const { queries, keys } = this.record;
    const head = (one) => this.record.headNumber(one.head);
    const middle = Math.floor(queries.length / 2);
    const named = (axis, position) => ({ text: quoted(shortText(axis.text(position), 16)), number: counted(position) });
    return [
      ...sinks.map((one) => {
        const { text, number } = named(keys, one.key);
        return { text: say(one.key ? "found_sink" : "found_sink_first", { head: head(one), key: text, number, share: percent(one.share) }), head: one.head, row: middle, column: one.key, kind: "sink" };
      }),
      ...diagonals.map((one) => {
        const row = clamp(middle, Math.max(0, -one.offset), Math.min(queries.length - 1, keys.length - 1 - one.offset));
        const how = one.offset === 0 ? "found_own" : Math.abs(one.offset) === 1 ? (one.offset < 0 ? "found_previous" : "found_next")
          : one.offset < 0 ? "found_back" : "found_ahead";
        const reached = one.queries < MOST_REACHED * one.all ? leftOutText(one) : "";
        const text = say(how, { head: head(one), distance: counted(Math.abs(one.offset)), share: percent(one.share) });
        return { text: [text, reached].filter(Boolean).join(" "), head: one.head, row, column: row + one.offset, kind: "diagonal" };
      }),
      ...spikes.map((one) => {
        const [query, key] = [named(queries, one.query), named(keys, one.key)];
        const text = say("found_spike", { head: head(one), query: query.text, row: query.number, key: key.text, column: key.number, weight: percent(one.weight) });
        return { text, head: one.head, row: one.query, column: one.key, kind: "spike" };
      }),
    ];
  }

  /** Sum of the attention that each token of a bin of keys gets. */
  received(head) {
    if (!this.receivedSums.has(head)) {
      const sums = new Float64Array(this.columns);
      const length = this.record.queries.length;
      for (let row = 0; row < this.rows; row += 1) {
        const share = this.edge(length, this.rows, row + 1) - this.edge(length, this.rows, row);
        for (let column = 0; column < this.columns; column += 1) sums[column] += this.pooled("mean", head, row, column).value * share;
      }
      this.receivedSums.set(head, sums);
    }
    return this.receivedSums.get(head);
  }
}
