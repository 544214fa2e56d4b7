// @ts-check

import { cellAt, inside, placeOfCell, ring } from "../drawing.js";
import { language, say } from "../language.js";
import { drawLegend, legendHeight } from "../legend.js";
import { fitText, textWidth, wrapText } from "../lettering.js";
import { mapScale, poolingText, shadeOf } from "../long_map.js";
import { drawPanel, panelParts, panelPlace, panelRoom } from "../long_panel.js";
import { distanceText, farPairs, sayOfLongHead, sayOfPoint, shareText } from "../long_sentence.js";
import { mapCanvas } from "../map_canvas.js";
import { clamp, counted, formatNumber, formatWeight, legendNumber, niceStep } from "../numbers.js";
import { divergingColor, signsOf } from "../palette.js";
import { MASKED, MISSING, ZERO } from "../table.js";
import { joinedBins } from "../thumbnails.js";
import { quoted, shortText } from "../text.js";
import { softened } from "../themes.js";
import { RecordView } from "./record_view.js";

const STRIPE_STYLE = { size: 12, bold: true };

/** The least distance of two names of stripes, in pixels. */
const LABEL_STEP = 24;

/** A map of any length: pooled from afar, exact at close range. */
export class LongView extends RecordView {
  name = "long";

  controls = ["record", "head", "pooling", "zoom", "findings"];

  zooms = true;

  help = say("long_help");

  shows(record) {
    return record.large;
  }

  settle(app) {
    const why = app.options.fetchTile || app.records.some(({ large }) => !large) ? "" : app.record?.entry.overview?.why?.[language()] ?? "";
    this.help = `${say(this.enlarges(app) ? "long_help" : "long_help_whole")} ${why}`;
    this.tapHelp = `${say("long_tap")} ${why}`;
  }

  /** Whether single weights are here or are fetched. */
  enlarges(app) {
    return Boolean(app.options.fetchTile) || (app.record?.overview?.carried ?? 0) > 0;
  }

  geometry(app) {
    const { record } = app;
    const { width, height } = app.area;
    const [left, top] = [64, 74];
    const [queries, keys] = [record.queries.length, record.keys.length];
    const wide = (width - left - 16 - panelRoom(width)) / keys;
    const fit = Math.min(wide, (height - top - 10) / queries);
    const across = fit * queries < 120 ? Math.min(wide, 40) : fit;
    const cell = Math.min(Math.max(panelRoom(width) ? fit : wide, across) * app.state.zoom, 40);
    return { record, map: record.overview, left, top, queries, keys, cell, zoom: app.state.zoom };
  }

  /** Where the panel is, and its lists; null where there is none. */
  panel(app, place) {
    const { map, left, top, keys, queries, cell } = place;
    const bottom = top + queries * cell;
    const panel = map && panelPlace(app, { right: left + keys * cell, bottom: bottom + (panelRoom(app.area.width) ? 0 : legendHeight(this.scale(app), app.area.width)) });
    return panel ? { place: panel, ...panelParts(panel, map, app.state.head, this.spot(app, map)), bottomOfMap: bottom } : null;
  }

  /** The pair whose words the panel shows: what is pointed at, else the strongest far pair, else a place of what was found. */
  spot(app, map) {
    const item = app.active();
    if (item) return item;
    const [best] = farPairs(map, app.state.head);
    if (best) return { row: best.query, column: best.key, head: best.head };
    return map.places().find((one) => one.head === (app.state.head ?? one.head) && one.kind !== "spike" && one.row !== one.column) ?? null;
  }

  size(app) {
    const place = this.geometry(app);
    const { left, top, queries, keys, cell } = place;
    const panel = this.panel(app, place);
    return { width: left + keys * cell + 16, height: panel?.place.below ? panel.bottom : Math.max(top + queries * cell + 10, Math.min(panel?.bottom ?? 0, app.area.height)) };
  }

  draw(app, pen, win) {
    const place = this.geometry(app);
    if (!place.map) return;
    const { left, top, cell, queries, keys } = place;
    const area = { x: win.x + left, y: win.y + top, width: win.width - left - 4, height: win.height - top };
    const block = this.block(place);
    const { canvas, kinds } = this.bitmap(app, place);
    const spot = this.spot(app, place.map);
    pen.clip(area.x, area.y, area.width, area.height, () => {
      this.drawPooled(pen, place, area, canvas, block);
      if (cell >= 3) this.drawTiles(app, pen, place, area);
      pen.rect(left, top, keys * cell, queries * cell, { stroke: app.theme.border });
      if (place.record.kind === "causal" && kinds.has(MASKED) && app.state.zoom <= 1) this.drawFuture(pen, place, app.theme);
      if (app.state.zoom <= 1) this.drawStripes(app, pen, place);
      if (!spot) return;
      // The ring stands around the point, which stays in view.
      const around = (length, bins, position) => place.map.span(length, bins, block, Math.floor(Math.floor((position * bins) / length) / block));
      const [[q0, q1], [k0, k1]] = cell >= 3 ? [[spot.row, spot.row], [spot.column, spot.column]] : [around(queries, place.map.rows, spot.row), around(keys, place.map.columns, spot.column)];
      ring(pen, left + k0 * cell - 3, top + q0 * cell - 3, (k1 - k0 + 1) * cell + 6, (q1 - q0 + 1) * cell + 6, app.active() ? app.theme.focus : app.theme.accent, app.theme);
    });
    this.drawAxes(app, pen, place, win, area);
    this.drawReceived(app, pen, place, win, area);
    this.drawMarks(app, pen, place, win, area);
    const panel = this.panel(app, place);
    if (!panel) return;
    drawPanel(app, pen, panel.place, place.map, spot, panel, spot ? this.sharesText(app, place, spot) : "");
    if (panel.place.below) pen.shift(0, panel.bottomOfMap + 8, () => drawLegend(pen, this.scale(app), app.area.width, app.theme));
  }

  /** How many bins are a point, the same on all screens; fewer where the map is enlarged. */
  block({ record, zoom }) {
    return Math.max(1, Math.ceil(joinedBins(record) / Math.max(1, zoom)));
  }

  bitmap(app, place) {
    return place.map.bitmap(app.state.pooling, app.state.head, this.block(place), app.theme);
  }

  /** Says in the upper right corner of a map what is hidden there. */
  drawFuture(pen, { left, top, keys, queries, cell }, theme) {
    const style = { size: 12 };
    const text = say("long_future");
    const [width, x, y] = [textWidth(text, style) + 16, left + 0.72 * keys * cell, top + 0.22 * queries * cell];
    if (0.5 * keys * cell < width) return;
    pen.rect(x - width / 2, y - 12, width, 24, { fill: theme.background, radius: 6 });
    pen.text(text, x, y, { color: theme.muted, align: "center", ...style });
  }

  /** Names the far distances at which a head looks, beside the weights, one below the other. */
  drawStripes(app, pen, { map, record, left, top, queries, keys, cell }) {
    const { theme } = app;
    const isCausal = record.kind === "causal";
    const [shift, gap] = [isCausal ? keys - queries : 0, LABEL_STEP / cell];
    const all = map.stripes(app.state.head).map((offset) => {
      const [first, last] = [Math.max(0, -offset - shift), Math.min(queries, keys - offset - shift) - 1];
      return { offset, last, query: clamp(first + 0.25 * (last - first), 0.3 * queries, last) };
    }).sort((one, other) => one.query - other.query);
    all.forEach((one, number) => { one.query = Math.max(one.query, number ? all[number - 1].query + gap : 0); });
    all.toReversed().forEach((one, number, below) => { one.query = Math.floor(Math.min(one.query, one.last, number ? below[number - 1].query - gap : queries - gap / 2)); });
    for (const { offset, query } of all) {
      const text = distanceText(offset);
      const width = textWidth(text, STRIPE_STYLE) + 12;
      const [from, y] = [left + (query + shift + offset + 0.5) * cell, top + (query + 0.5) * cell];
      const x = Math.min((isCausal ? left + (query + shift) * cell : from) + 16, left + keys * cell - width - 4);
      for (const [color, lineWidth] of [[theme.background, 3], [theme.text, 1]]) pen.path([[from, y], [x, y]], { color, lineWidth });
      pen.rect(from - 3, y - 3, 6, 6, { fill: theme.text, stroke: theme.background, radius: 3 });
      pen.rect(x, y - 10, width, 20, { fill: theme.background, radius: 6 });
      pen.text(text, x + 6, y, { color: theme.text, ...STRIPE_STYLE });
    }
  }

  /** What a pair gets of the attention, and its block; "" where the pair's weight is not here. */
  sharesText(app, place, { row, column, head = app.state.head }) {
    const { map, record } = place;
    const weight = map.peaksOf(head).find((one) => one.query === row && one.key === column)?.weight ?? map.exact(head, row, column);
    if (record.signed || !(weight >= 0)) return "";
    const block = this.block(place);
    const { values, columns } = map.bitmap("mean", head, block, app.theme);
    const [down, across] = map.bin(row, column).map((bin) => Math.floor(bin / block));
    return say("long_shares", { weight: shareText(weight), share: shareText(values[down * columns + across]), ...map.sizeOfPoint(block) });
  }

  /** The heads, and of what a point of the map is the largest or the mean. */
  headText(app) {
    const place = this.geometry(app);
    return `${app.headText()}${place.map ? ` \u00b7 ${place.map.statistic(app.state.pooling, this.block(place))}` : ""}`;
  }

  /** The part of the pooled map that is seen, stretched. */
  drawPooled(pen, place, area, canvas, block) {
    const { left, top, cell, map, queries, keys } = place;
    const bin = [(block * keys * cell) / map.columns, (block * queries * cell) / map.rows];
    const first = [Math.max(0, Math.floor((area.x - left) / bin[0])), Math.max(0, Math.floor((area.y - top) / bin[1]))];
    const last = [Math.min(canvas.width, Math.ceil((area.x + area.width - left) / bin[0])),
      Math.min(canvas.height, Math.ceil((area.y + area.height - top) / bin[1]))];
    if (last[0] <= first[0] || last[1] <= first[1]) return;
    const cut = [first[0], first[1], last[0] - first[0], last[1] - first[1]];
    pen.picture(canvas, left + first[0] * bin[0], top + first[1] * bin[1], cut[2] * bin[0], cut[3] * bin[1], { cut });
  }

  /** Exact weights over the pooled map, where tiles are here; the others are asked for. */
  drawTiles(app, pen, place, area) {
    const { left, top, cell, map } = place;
    for (const [row, column] of this.tilesIn(place, area)) {
      const image = this.tile(app, place, row, column)?.image;
      const [x, y] = [left + column * map.side * cell, top + row * map.side * cell];
      if (image) {
        pen.picture(image, x, y, image.width * cell, image.height * cell);
        pen.rect(x, y, image.width * cell, image.height * cell, { stroke: app.theme.accent });
      } else {
        map.request(row, column, app.options.fetchTile, () => app.changed());
      }
    }
  }

  /** The tiles of an area, as [row, column]. */
  tilesIn({ left, top, cell, map, queries, keys }, area) {
    const range = (from, size, length) => {
      const first = Math.max(0, Math.floor(from / cell / map.side));
      const end = Math.min(Math.ceil(length / map.side), Math.ceil((from + size) / cell / map.side));
      return Array.from({ length: Math.max(0, end - first) }, (_, number) => first + number);
    };
    const columns = range(area.x - left, area.width, keys);
    return range(area.y - top, area.height, queries).flatMap((row) => columns.map((column) => [row, column]));
  }

  /** A tile that is here, with its image in the colours of the pooled map around it; null where it is not here. */
  tile(app, place, row, column) {
    const { map, queries, keys } = place;
    const tile = map.tiles.get(`${row},${column}`);
    if (!tile?.values) return null;
    const block = this.block(place);
    const key = `${app.state.pooling} ${app.state.head} ${app.theme.name} ${block}`;
    if (tile.key === key) return tile;
    const { limit } = this.bitmap(app, place);
    const [q0, k0] = [row * map.side, column * map.side];
    const [height, width] = [Math.min(map.side, queries - q0), Math.min(map.side, keys - k0)];
    const [kinds, shades] = [new Uint8Array(height * width), new Uint8Array(height * width)];
    tile.beyond = false;
    for (let cell = 0; cell < width * height; cell += 1) {
      const query = q0 + Math.floor(cell / width);
      const value = map.exact(app.state.head, query, k0 + (cell % width));
      ({ kind: kinds[cell], shade: shades[cell] } = shadeOf(value, limit, mapScale(map.record), map.record.signed));
      // The limit is a code, and may be a little less than the weight it stands for.
      if (Math.abs(value) > 1.01 * limit && value > -Infinity) tile.beyond = true;
    }
    Object.assign(tile, { key, kinds: new Set(kinds), image: mapCanvas(width, height, kinds, shades, softened(app.theme), map.record.signed ? signsOf(app.theme) : undefined) });
    return tile;
  }

  drawAxes(app, pen, place, win, area) {
    const { left, top, cell, queries, keys } = place;
    const { theme } = app;
    pen.rect(win.x, win.y, left - 2, win.height, { fill: theme.background });
    pen.rect(win.x, win.y, win.width, top - 2, { fill: theme.background });
    wrapText(say("axisQuery"), left - 14, { size: 11 }).toReversed().forEach((line, number) => {
      pen.text(line, win.x + left - 14, win.y + top - 14 - 13 * number, { color: theme.muted, size: 11, align: "end" });
    });
    const ticks = (from, size, length) => {
      const step = niceStep((size / cell) / Math.max(2, size / 90));
      const first = Math.max(0, Math.ceil(from / cell / step));
      const all = Array.from({ length: Math.max(0, Math.floor(Math.min(length - 1, (from + size) / cell) / step) - first + 1) }, (_, n) => (first + n) * step);
      // An axis ends with its length.
      return cell < 14 && length * cell <= from + size + 5 ? [...all.filter((one) => (length - one) * cell > 50), length] : all;
    };
    for (const key of ticks(area.x - left, area.width, keys)) {
      const x = left + Math.min(keys, key + 0.5) * cell;
      const text = this.tick(place.record.keys, key, cell);
      pen.path([[x, win.y + top - 6], [x, win.y + top - 1]], { color: theme.muted });
      pen.text(text, Math.min(x, win.x + win.width - 16 - textWidth(text, { size: 11 }) / 2), win.y + top - 14, { color: theme.muted, size: 11, align: "center" });
    }
    for (const query of ticks(area.y - top, area.height, queries)) {
      const y = top + Math.min(queries, query + 0.5) * cell;
      if (y < win.y + top) continue;
      pen.path([[win.x + left - 6, y], [win.x + left - 1, y]], { color: theme.muted });
      pen.text(this.tick(place.record.queries, query, cell), win.x + left - 9, y, { color: theme.muted, size: 11, align: "end" });
    }
  }

  /** A mark on the axis of the keys for each sink of the heads that are shown. */
  drawMarks(app, pen, { left, top, cell, map }, win, area) {
    for (const found of map.places()) {
      if (found.kind !== "sink" || (app.state.head !== null && found.head !== app.state.head)) continue;
      const x = left + (found.column + 0.5) * cell;
      if (x < area.x || x > area.x + area.width) continue;
      const y = win.y + top - 2;
      pen.path([[x - 4, y - 6], [x, y], [x + 4, y - 6]], { color: app.theme.accent, lineWidth: 2 });
    }
  }

  tick(axis, position, cell) {
    return cell >= 14 && position < axis.length ? fitText(shortText(axis.text(position), 12), 46, { size: 11 }) : counted(position);
  }

  /** How much weight each key receives, as a profile over the map: sinks are its peaks. */
  drawReceived(app, pen, place, win, area) {
    const { left, cell, map, keys, record } = place;
    const received = map.received(app.state.head);
    const most = received.reduce((a, b) => Math.max(a, Math.abs(b || 0)), 0);
    const [base, high] = [win.y + 52, 26];
    const bin = (keys * cell) / map.columns;
    pen.clip(area.x, win.y + 18, area.width, 40, () => {
      for (let column = 0; column < map.columns; column += 1) {
        const x = left + column * bin;
        if (x > area.x + area.width || x + bin < area.x || !(most > 0)) continue;
        const height = (high * Math.abs(received[column] || 0)) / most;
        pen.rect(x, base - height, Math.max(1, bin), height, { fill: record.signed ? divergingColor(Math.sign(received[column]), app.theme) : app.theme.muted });
      }
    });
    const title = { color: app.theme.muted, size: 11 };
    const both = `${say("axisKey")} \u00b7 ${map.inUnits(say("long_received"))}`;
    const named = textWidth(both, title) <= win.width - 12 ? both : map.inUnits(say("long_received"));
    pen.text(named, win.x + Math.max(4, Math.min(left, win.width - textWidth(named, title) - 8)), win.y + 12, title);
    if (!record.signed) pen.text(legendNumber(Number(most.toPrecision(2))), win.x + left - 9, base - high + 5, { ...title, align: "end" });
  }

  hit(app, x, y, win) {
    const place = this.geometry(app);
    const { left, top, cell, queries, keys } = place;
    const line = this.panel(app, place)?.rows.find((one) => one.item && inside(one, x, y));
    if (line) return { ...line.item, found: line.text };
    if (x < win.x + left || y < win.y + top) return null;
    const [row, column] = cellAt(x, y, { left, top, width: cell, height: cell });
    return row < queries && column < keys ? { row, column } : null;
  }

  place(app, item) {
    const { left, top, cell } = this.geometry(app);
    return placeOfCell(item, { left, top, width: cell, height: cell });
  }

  start() {
    return { row: 0, column: 0 };
  }

  has(app, item) {
    return item.row < app.record.queries.length && item.column < app.record.keys.length;
  }

  /** An arrow moves by what is a few pixels on the screen. */
  move(app, item, dx, dy) {
    const { cell, queries, keys } = this.geometry(app);
    const step = Math.max(1, Math.round(8 / cell));
    return { row: clamp(item.row + dy * step, 0, queries - 1), column: clamp(item.column + dx * step, 0, keys - 1) };
  }

  activate(app, item) {
    if (item.head !== undefined && item.head !== app.state.head) app.set({ head: item.head });
    if (this.enlarges(app)) app.zoom.to({ row: item.row, column: item.column });
    else app.zoom.point({ row: item.row, column: item.column });
  }

  sentence(app, item) {
    const { overview, heads } = app.record;
    if (!overview) return { text: "", shares: "" };
    const { head, pooling } = app.state;
    if (!item) return sayOfLongHead(overview, head);
    const place = this.geometry(app);
    const text = sayOfPoint(overview, pooling, head, item, this.block(place), this.bitmap(app, place));
    if (!text) return { text: this.describe(app, item), shares: "" };
    return { text: overview.inUnits(head === null && heads > 1 ? say("meanOfHeadsSays", { count: heads, text }) : text), shares: "" };
  }

  describe(app, item) {
    const { map, record, queries, keys } = this.geometry(app);
    if (!map) return "";
    const pair = say("long_pair", { row: counted(item.row), query: quoted(record.queries.text(item.row)), column: counted(item.column), key: quoted(record.keys.text(item.column)) });
    const exact = map.exact(app.state.head, item.row, item.column);
    const heads = app.headText();
    if (exact !== null) return say("long_exact", { pair, weight: (record.signed ? exact === -Infinity : exact < 0) ? say("masked") : formatNumber(exact), heads });
    const [row, column] = map.bin(item.row, item.column);
    const bin = map.pooled(app.state.pooling, app.state.head, row, column);
    const hidden = app.state.pooling === "mean" && map.hidden ? say("long_hidden") : "";
    const range = (length, bins, number) => `${counted(map.edge(length, bins, number))}\u2013${counted(map.edge(length, bins, number + 1) - 1)}`;
    return say("long_pooled", { rows: range(queries, map.rows, row), columns: range(keys, map.columns, column), pooling: poolingText(app.state.pooling),
      weight: formatWeight(bin.value, bin.error), heads: `${heads}${hidden}`, query: quoted(record.queries.text(item.row)),
      key: quoted(record.keys.text(item.column)), why: this.whyPooled(app, map, item) });
  }

  whyPooled(app, map, item) {
    const tile = map.tiles.get(`${Math.floor(item.row / map.side)},${Math.floor(item.column / map.side)}`);
    if (tile?.failed) return say("long_failed", { why: tile.failed });
    return say(app.options.fetchTile ? "long_closer" : "long_not_carried");
  }

  /** On narrow screens the scale stands above the words around. */
  legend(app) {
    return this.panel(app, this.geometry(app))?.place.below ? { text: "" } : this.scale(app);
  }

  scale(app) {
    const place = this.geometry(app);
    const { map, left, top, cell, record } = place;
    if (!map) return { text: "" };
    const { limit, kinds } = this.bitmap(app, place);
    const win = app.window();
    const area = { x: win.x + left, y: win.y + top, width: win.width - left - 4, height: win.height - top };
    const exact = (cell >= 3 ? this.tilesIn(place, area) : []).map(([row, column]) => this.tile(app, place, row, column)).filter(Boolean);
    const shown = new Set([...kinds, ...exact.flatMap((tile) => [...tile.kinds])]);
    const future = kinds.has(MASKED) && record.kind === "causal";
    const samples = [[ZERO, say(map.hidden && !(future && !record.entry.overview.even) ? "long_zero_hidden" : "long_zero")], [MASKED, say(future ? "long_future" : "masked")], [MISSING, "NaN"]];
    const parts = [record.signed ? "" : say("long_ticks"), map.statistic(app.state.pooling, this.block(place)), exact.length ? say("long_framed") : ""];
    const scale = record.signed ? { ramp: "signed", title: say("of_signed"), largest: limit, beyond: exact.some((tile) => tile.beyond) }
      : { ramp: "map", title: say(app.state.pooling === "mean" ? "long_share" : "weightTitle"), largest: null };
    return { ...scale, soft: true, scale: mapScale(record), samples: samples.filter(([kind]) => shown.has(/** @type {number} */ (kind))), text: parts.filter(Boolean).join(" \u00b7 ") };
  }
}
