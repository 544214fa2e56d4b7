// @ts-check

import { pixelCanvas } from "./canvases.js";
import { NAN_CODE } from "./decoding.js";
import { mapCanvas } from "./map_canvas.js";
import { clamp } from "./numbers.js";
import { channelsOf, signsOf } from "./palette.js";
import { SCALES, scaleEnd } from "./scales.js";
import { MASKED, MISSING, WEIGHT, ZERO } from "./table.js";

/** Most points of a small map along a side. */
const THUMBNAIL = 160;

/** The most of a picture that is veiled where nothing looks. */
export const VEIL = 0.85;

/** Of how many queries and keys a point of a record's small maps is the largest weight. */
export function reduction(record) {
  const [queries, keys] = [record.queries.length, record.keys.length];
  if (!record.large) return Array(2).fill(Math.max(1, Math.ceil(Math.max(queries, keys) / THUMBNAIL)));
  const { rows, columns } = record.entry.overview;
  const block = joinedBins(record);
  return [(block * queries) / rows, (block * keys) / columns];
}

/** How many bins of a pooled map are a point of its small maps, in each direction. */
export const joinedBins = ({ entry: { overview } }) => Math.max(1, Math.ceil(Math.max(overview.rows, overview.columns) / THUMBNAIL));

/** The largest weight of a record's small maps, of all its heads. */
export const largestOf = ({ entry }) => entry.codes?.maximum ?? entry.overview?.largest ?? 0;

/**
 * A record's head as a small picture: the largest weight of each block of cells.
 * @param {number|null} most the weight of the last colour; null: the head's largest, or what `scaleEnd` gives
 */
export function thumbnailOf(record, head, scale, theme, most = null) {
  const [queries, keys] = [record.queries.length, record.keys.length];
  const [block] = reduction(record);
  const [rows, columns] = [Math.ceil(queries / block), Math.ceil(keys / block)];
  const { codeValues, signed } = record;
  const sizes = codeValues.map((value) => (Number.isNaN(value) ? Infinity : Math.abs(value)));
  const best = new Uint8Array(rows * columns);
  const masked = new Uint8Array(rows * columns).fill(1);
  let largest = 0;
  for (let query = 0; query < queries; query += 1) {
    const base = (head * queries + query) * keys;
    const line = Math.floor(query / block) * columns;
    for (let key = 0; key < keys; key += 1) {
      if (record.visible && !record.sees(head, query, key)) continue;
      const cell = line + (block === 1 ? key : Math.floor(key / block));
      const code = record.codes[base + key];
      masked[cell] = 0;
      if (sizes[code] > sizes[best[cell]] || !best[cell]) best[cell] = code;
      if (code !== NAN_CODE && sizes[code] > largest) largest = sizes[code];
    }
  }
  const { maximum } = record.entry.codes;
  const limit = ((most ?? scaleEnd(largest * maximum, signed ? Infinity : keys)) / maximum) || 1;
  const shadesOf = codeValues.map((value, code) => {
    const shade = clamp(SCALES[scale].shade(sizes[code] / limit) || 0, 0, 1);
    return Math.round(255 * (signed ? (1 + Math.sign(value) * shade) / 2 : shade));
  });
  const kinds = new Uint8Array(rows * columns);
  for (let cell = 0; cell < kinds.length; cell += 1) {
    kinds[cell] = masked[cell] ? MASKED : best[cell] === NAN_CODE ? MISSING : best[cell] === 0 ? ZERO : WEIGHT;
    if (kinds[cell] !== WEIGHT) record.thumbnailKinds.add(kinds[cell]);
  }
  return mapCanvas(columns, rows, kinds, best.map((code) => shadesOf[code]), theme, signed ? signsOf(theme) : undefined);
}

/** How much each key gets from a query of a head: the mean over the queries that see a key. */
function receivedOf(record, head) {
  const [queries, keys] = [record.queries.length, record.keys.length];
  const sums = new Float64Array(keys);
  let seeing = 0;
  for (let query = 0; query < queries; query += 1) {
    if (!record.seesAny(head, query)) continue;
    seeing += 1;
    const base = (head * queries + query) * keys;
    for (let key = 0; key < keys; key += 1) {
      const value = record.codeValues[record.codes[base + key]];
      if (value !== 0 && !Number.isNaN(value) && record.sees(head, query, key)) sums[key] += value * record.entry.codes.maximum;
    }
  }
  return sums.map((sum) => sum / Math.max(1, seeing));
}

/**
 * A veil over the image that a record's keys are: clear where the queries of a head look, on the mean over them.
 * @param {number|null} most see `thumbnailOf`
 */
export function veilOf(record, head, scale, theme, most = null) {
  const { rows, columns, leading } = record.keys.entry;
  const received = receivedOf(record, head).subarray(leading);
  const limit = most ?? scaleEnd(received.reduce((largest, value) => Math.max(largest, value), 0), record.keys.length);
  const paper = channelsOf(theme.background);
  return pixelCanvas(columns, rows, (data) => {
    for (let cell = 0; cell < rows * columns; cell += 1) {
      const shade = limit > 0 ? clamp(SCALES[scale].shade(received[cell] / limit), 0, 1) : 0;
      for (let channel = 0; channel < 3; channel += 1) data[4 * cell + channel] = paper[channel];
      data[4 * cell + 3] = Math.round(255 * VEIL * (1 - shade));
    }
  });
}
