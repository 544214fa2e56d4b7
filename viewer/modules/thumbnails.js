// @ts-check

import { CODE_VALUES, NAN_CODE } from "./decoding.js";
import { mapCanvas } from "./map_canvas.js";
import { clamp } from "./numbers.js";
import { SCALES } from "./scales.js";
import { MASKED, MISSING, WEIGHT, ZERO } from "./table.js";

/** Most points of a small map along a side. */
export const THUMBNAIL = 160;

/** Of how many queries and keys a point of a record's small maps is the largest weight. */
export function reduction(record) {
  const [queries, keys] = [record.queries.length, record.keys.length];
  if (!record.large) return Array(2).fill(Math.max(1, Math.ceil(Math.max(queries, keys) / THUMBNAIL)));
  const { rows, columns } = record.entry.overview;
  const block = Math.max(1, Math.ceil(Math.max(rows, columns) / THUMBNAIL));
  return [(block * queries) / rows, (block * keys) / columns];
}

/** A record's head as a small picture: the largest weight of each block of cells. */
export function thumbnailOf(record, head, scale, theme) {
  const [queries, keys] = [record.queries.length, record.keys.length];
  const [block] = reduction(record);
  const [rows, columns] = [Math.ceil(queries / block), Math.ceil(keys / block)];
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
      if (code > best[cell]) best[cell] = code;
      if (code > largest && code !== NAN_CODE) largest = code;
    }
  }
  const most = CODE_VALUES[largest] || 1;
  const shadesOf = CODE_VALUES.map((value) => Math.round(255 * clamp(SCALES[scale].shade(value / most) || 0, 0, 1)));
  const kinds = new Uint8Array(rows * columns);
  for (let cell = 0; cell < kinds.length; cell += 1) {
    kinds[cell] = masked[cell] ? MASKED : best[cell] === NAN_CODE ? MISSING : best[cell] === 0 ? ZERO : WEIGHT;
    if (kinds[cell] !== WEIGHT) record.thumbnailKinds.add(kinds[cell]);
  }
  return mapCanvas(columns, rows, kinds, best.map((code) => shadesOf[code]), theme);
}
