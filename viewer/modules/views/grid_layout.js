// @ts-check

import { headGroups } from "../head_order.js";
import { textWidth } from "../lettering.js";
import { clamp } from "../numbers.js";
import { differInKind, kindText } from "../record_names.js";
import { PHONE } from "../style.js";

/** The heights of a caption, of a name above a map and of a group's heading, in pixels. */
const [CAPTION_HEIGHT, NAME_HEIGHT, TITLE_HEIGHT] = [15, 15, 26];

/** The room of the layers' names, between kinds of attention, and the most that is left between two maps. */
const [LAYER_NAMES, KINDS_APART, MOST_APART] = [72, 24, 44];

/** The least side of a map that has room for a caption. */
const LEAST_CAPTIONED = 54;

/** On phones: the names' room, the least from one map to the next, and how much of the one that goes on is seen. */
const [NARROW_NAMES, LEAST_PITCH, SEEN_PART] = [60, 82, 0.4];

/** A map is stretched to at most this ratio of its sides. */
const MOST_STRETCH = 2;

/** The size of a record's maps in a square: in their own proportions, unless they are much wider than high or the reverse. */
function mapSize(record, side) {
  let [height, width] = [record.queries.length, record.keys.length];
  if (foldsOf(record)) {
    const [x0, y0, x1, y1] = record.keys.entry.box;
    [height, width] = [y1 - y0, x1 - x0];
  }
  const ratio = clamp(width / height, 1 / MOST_STRETCH, MOST_STRETCH);
  return ratio >= 1 ? [side, side / ratio] : [side * ratio, side];
}

/** Whether a record's maps are laid on the image that its keys are. */
export const foldsOf = (record) => record.keys.kind === "grid" && record.queries.kind !== "grid" && !record.large;

/**
 * Where the heads stand: layers × heads, or sorted in lines below headings.
 * @param {any[]} records
 * @param {string} order see `ordersOf`
 * @param {{width: number, height: number}} area
 */
export function gridLayout(records, order, area) {
  return order === "layer" ? byLayer(records, area) : sorted(records, order, area);
}

/**
 * Layers downwards, heads to the right. What has several kinds of attention, as encoder and decoder, has them side by side
 * where there is room, else below each other.
 */
function byLayer(records, area) {
  const kinds = [...new Set(records.map((record) => kindText(record)))];
  const beside = kinds.length > 1 && kinds.every((kind) => {
    const layers = records.filter((record) => kindText(record) === kind).map((record) => record.entry.layer);
    return new Set(layers).size === layers.length;
  });
  const most = (some) => Math.max(...some.map((record) => record.heads));
  const widest = kinds.reduce((sum, kind) => sum + most(records.filter((record) => kindText(record) === kind)), 0);
  const left = layerNames(area);
  const fits = beside && area.width - left - KINDS_APART * kinds.length >= widest * (LEAST_CAPTIONED + 6);
  return fits ? byKind(records, kinds, most, area) : inLines(records, area);
}

/** The number of the head in each column; "" where records have different heads there. */
function numbersOf(records, heads) {
  return Array.from({ length: heads }, (_, head) => {
    const numbers = new Set(records.filter((record) => head < record.heads).map((record) => record.headNumber(head)));
    return numbers.size === 1 ? [...numbers][0] : "";
  });
}

/** Each record a line. */
function inLines(records, area) {
  const heads = Math.max(...records.map((record) => record.heads));
  const several = differInKind(records);
  const nameOf = (record) => (several ? kindText(record) : "");
  const names = records.map((record) => textWidth(nameOf(record), { size: 11 }));
  const least = layerNames(area);
  const left = Math.min(Math.max(least, area.width * 0.22), 24 + Math.max(least - 24, ...names));
  const lines = records.map((record) => ({ title: record.entry.layer, subtitle: nameOf(record), records: [record] }));
  return placed(lines, [{ title: "", numbers: numbersOf(records, heads) }], { left, top: 24 }, area);
}

/** Each layer a line, the kinds of attention beside each other. */
function byKind(records, kinds, most, area) {
  const layers = [...new Set(records.map((record) => record.entry.layer))].sort((a, b) => a - b);
  const of = (kind, layer) => records.find((record) => kindText(record) === kind && record.entry.layer === layer);
  const lines = layers.map((layer) => ({ title: layer, subtitle: "", records: kinds.map((kind) => of(kind, layer)) }));
  const blocks = kinds.map((kind) => {
    const alike = records.filter((record) => kindText(record) === kind);
    return { title: kind, numbers: numbersOf(alike, most(alike)) };
  });
  return placed(lines, blocks, { left: layerNames(area), top: 44 }, area);
}

const layerNames = (area) => (area.width < PHONE ? NARROW_NAMES : LAYER_NAMES);

/** From one head to the next: as many as there are; on narrow screens so many that they can be read, and a part of the next one. */
function pitchOf(width, heads) {
  const whole = Math.floor(width / LEAST_PITCH - SEEN_PART);
  return width < PHONE && heads > whole ? width / (whole + SEEN_PART) : width / heads;
}

/** Lines of blocks of heads, as large as all are seen at once. */
function placed(lines, blocks, { left, top }, area) {
  const heads = blocks.reduce((sum, block) => sum + block.numbers.length, 0);
  const across = pitchOf(area.width - left - KINDS_APART * (blocks.length - 1) - 4, heads);
  const down = (area.height - top) / lines.length - 8;
  const captioned = across - 6 >= LEAST_CAPTIONED;
  const high = area.width < PHONE ? across : Math.max(down - (captioned ? CAPTION_HEIGHT : 0), 68);
  const side = clamp(Math.min(across - 6, high), 28, 164);
  const caption = side >= LEAST_CAPTIONED ? CAPTION_HEIGHT : 0;
  const pitch = clamp(across, side + 6, side + MOST_APART);
  let x = left;
  const columns = blocks.map((block) => {
    const column = { ...block, x };
    x += block.numbers.length * pitch + KINDS_APART;
    return column;
  });
  const cells = [];
  let y = top;
  const rows = lines.map((line, number) => {
    const there = line.records.filter(Boolean);
    const height = Math.max(...there.map((record) => mapSize(record, side)[1]));
    line.records.forEach((record, block) => {
      for (let head = 0; head < (record?.heads ?? 0); head += 1) {
        const [mapWidth, mapHeight] = mapSize(record, side);
        cells.push({ row: record.number, column: head, line: number, x: columns[block].x + head * pitch, y, width: mapWidth, height: mapHeight, room: pitch - 4, caption, name: 0 });
      }
    });
    const row = { title: line.title, subtitle: line.subtitle, y, height };
    y += Math.max(28, height + caption) + 8;
    return row;
  });
  return { order: "layer", left, top, cells, rows, titles: [], blocks: columns, side, pitch, width: x - KINDS_APART + 4, height: y };
}

/** Groups of heads below their headings; small groups share a line. */
function sorted(records, order, area) {
  const left = 10;
  const columns = Math.max(1, Math.floor((area.width - 2 * left) / 108));
  const pitch = Math.min(150, (area.width - 2 * left) / columns);
  const side = Math.min(pitch - 10, 130);
  const cells = [];
  const titles = [];
  let [y, line] = [4, 0];
  let used = columns; // of the line of groups
  let [groupTop, groupBottom] = [y, y];
  for (const group of headGroups(records, order)) {
    const count = Math.min(columns, group.heads.length);
    if (used + count > columns) {
      [used, y] = [0, groupBottom];
      groupTop = y;
      line += 1;
    }
    const x = left + used * pitch;
    titles.push({ texts: [group.counted, group.title].filter(Boolean), x, y: groupTop + TITLE_HEIGHT / 2, room: count * pitch - 8 });
    let bottom = groupTop + TITLE_HEIGHT;
    for (let first = 0; first < group.heads.length; first += count) {
      if (first) line += 1;
      const maps = group.heads.slice(first, first + count).map(({ row, record, column }, number) => {
        const [width, height] = mapSize(record, side);
        return { row, column, line, x: x + number * pitch, y: bottom + NAME_HEIGHT, width, height, room: pitch - 6, caption: CAPTION_HEIGHT, name: NAME_HEIGHT };
      });
      cells.push(...maps);
      bottom += NAME_HEIGHT + Math.max(...maps.map((one) => one.height)) + CAPTION_HEIGHT + 8;
    }
    used += count;
    groupBottom = Math.max(groupBottom, bottom);
  }
  return { order, left, top: 0, cells, rows: [], titles, blocks: [], side, pitch, width: area.width, height: groupBottom + 4 };
}

/** The head above or below another one. */
export function neighbour(cells, from, direction) {
  const beyond = cells.filter((one) => (one.y - from.y) * direction > 1);
  if (!beyond.length) return from;
  const y = beyond.reduce((best, one) => ((one.y - best) * direction < 0 ? one.y : best), beyond[0].y);
  return beyond.filter((one) => Math.abs(one.y - y) < 1).reduce((best, one) => (Math.abs(one.x - from.x) < Math.abs(best.x - from.x) ? one : best));
}
