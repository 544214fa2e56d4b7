// @ts-check

import { cellAt, inside, placeOfCell, ring } from "../drawing.js";
import { say } from "../language.js";
import { fitText, textWidth } from "../lettering.js";
import { poolingText, shadeOf } from "../long_map.js";
import { drawPanel, panelParts, panelPlace, panelRoom } from "../long_panel.js";
import { sayOfLongHead, sayOfPoint } from "../long_sentence.js";
import { mapCanvas } from "../map_canvas.js";
import { clamp, counted, formatNumber, formatWeight, niceStep } from "../numbers.js";
import { divergingColor, signsOf } from "../palette.js";
import { scaleText } from "../scales.js";
import { MASKED, MISSING, ZERO } from "../table.js";
import { quoted, shortText } from "../text.js";
import { RecordView } from "./record_view.js";

/** A map of any length: pooled from afar, exact at close range. */
export class LongView extends RecordView {
  name = "long";

  title = say("long");

  controls = ["record", "head", "pooling", "scale", "zoom", "findings"];

  zooms = true;

  help = say("long_help");

  shows(record) {
    return record.large;
  }

  settle(app) {
    this.help = say(this.enlarges(app) ? "long_help" : "long_help_whole");
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
    return { record, map: record.overview, left, top, queries, keys, cell };
  }

  /** Where the panel is, and its lists; null where there is none. */
  panel(app, place) {
    const { map, left, top, keys, queries, cell } = place;
    const panel = map && panelPlace(app, { right: left + keys * cell, bottom: top + queries * cell });
    return panel ? { place: panel, ...panelParts(panel, map, app.state.head, this.spot(app, map)) } : null;
  }

  /** The pair whose words the panel shows: what is pointed at, else a place of what was found, else the strongest one. */
  spot(app, map) {
    const item = app.active();
    if (item) return { ...item, times: this.timesAt(app, map, item) };
    const finding = map.places().find((one) => one.head === (app.state.head ?? one.head) && one.kind !== "spike");
    if (finding) return { ...finding, times: this.timesAt(app, map, finding) };
    const [best] = map.peaksOf(app.state.head);
    return best ? { row: best.query, column: best.key, times: best.times, head: best.head } : null;
  }

  /** How many equal shares a point of the map is. */
  timesAt(app, map, { row, column }) {
    const { head, pooling } = app.state;
    const exact = map.exact(head, row, column);
    const [down, across] = map.bin(row, column);
    return exact === null ? map.pooled(pooling, head, down, across).value / map.even(head, down) : Math.max(0, exact) / map.evenOf(head, row);
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
    const { canvas, limits } = this.bitmap(app, place);
    const spot = this.spot(app, place.map);
    pen.clip(area.x, area.y, area.width, area.height, () => {
      this.drawPooled(pen, place, area, canvas, block);
      if (cell >= 3) this.drawTiles(app, pen, place, area);
      pen.rect(left, top, keys * cell, queries * cell, { stroke: app.theme.border });
      if (!spot) return;
      const box = this.place(app, spot);
      const wide = app.active() ? 3 : 9;
      const [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
      ring(pen, x - Math.max(wide, box.width) / 2, y - Math.max(wide, box.height) / 2, Math.max(wide, box.width), Math.max(wide, box.height),
        app.active() ? app.theme.focus : app.theme.accent, app.theme);
    });
    this.drawAxes(app, pen, place, win, area);
    this.drawReceived(app, pen, place, win, area);
    this.drawMarks(app, pen, place, win, area);
    const panel = this.panel(app, place);
    if (panel) drawPanel(app, pen, panel.place, place.map, spot, panel, limits[0]);
  }

  /** Bins below two pixels are joined: scaling down would drop bright ones. */
  block({ map, keys, queries, cell }) {
    return Math.max(1, Math.ceil(2 / Math.min((keys * cell) / map.columns, (queries * cell) / map.rows)));
  }

  bitmap(app, place) {
    return place.map.bitmap(app.state.pooling, app.state.head, app.state.scale, this.block(place), app.theme);
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
    const key = `${app.state.pooling} ${app.state.head} ${app.state.scale} ${app.theme.name} ${block}`;
    if (tile.key === key) return tile;
    const { limits } = this.bitmap(app, place);
    const [q0, k0] = [row * map.side, column * map.side];
    const [height, width] = [Math.min(map.side, queries - q0), Math.min(map.side, keys - k0)];
    const [kinds, shades] = [new Uint8Array(height * width), new Uint8Array(height * width)];
    tile.beyond = false;
    for (let cell = 0; cell < width * height; cell += 1) {
      const query = q0 + Math.floor(cell / width);
      const value = map.exact(app.state.head, query, k0 + (cell % width));
      const limit = limits[Math.floor(map.bin(query, 0)[0] / block)] * map.evenOf(app.state.head, query);
      ({ kind: kinds[cell], shade: shades[cell] } = shadeOf(value, limit, app.state.scale, map.record.signed));
      // The limit is a code, and may be a little less than the weight it stands for.
      if (Math.abs(value) > 1.01 * limit && value > -Infinity) tile.beyond = true;
    }
    Object.assign(tile, { key, kinds: new Set(kinds), image: mapCanvas(width, height, kinds, shades, app.theme, map.record.signed ? signsOf(app.theme) : undefined) });
    return tile;
  }

  drawAxes(app, pen, place, win, area) {
    const { left, top, cell, queries, keys } = place;
    const { theme } = app;
    pen.rect(win.x, win.y, left - 2, win.height, { fill: theme.background });
    pen.rect(win.x, win.y, win.width, top - 2, { fill: theme.background });
    pen.text(say("axisQuery"), win.x + 6, win.y + 12, { color: theme.muted, size: 11 });
    const ticks = (from, size, length) => {
      const step = niceStep((size / cell) / Math.max(2, size / 90));
      const first = Math.max(0, Math.ceil(from / cell / step));
      return Array.from({ length: Math.max(0, Math.floor(Math.min(length - 1, (from + size) / cell) / step) - first + 1) }, (_, n) => (first + n) * step);
    };
    for (const key of ticks(area.x - left, area.width, keys)) {
      const x = left + (key + 0.5) * cell;
      pen.path([[x, win.y + top - 6], [x, win.y + top - 1]], { color: theme.muted });
      pen.text(this.tick(place.record.keys, key, cell), Math.min(x, win.x + win.width - 22), win.y + top - 14, { color: theme.muted, size: 11, align: "center" });
    }
    for (const query of ticks(area.y - top, area.height, queries)) {
      const y = top + (query + 0.5) * cell;
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
    return cell >= 14 ? fitText(shortText(axis.text(position), 12), 46, { size: 11 }) : counted(position);
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
        const height = high * Math.sqrt(Math.abs(received[column] || 0) / most);
        pen.rect(x, base - height, Math.max(1, bin), height, { fill: record.signed ? divergingColor(Math.sign(received[column]), app.theme) : app.theme.muted });
      }
    });
    const title = { color: app.theme.muted, size: 11 };
    pen.text(`${say("axisKey")} \u00b7 ${say("long_received")}`, win.x + Math.max(left, 12 + textWidth(say("axisQuery"), title) + 6), win.y + 12, title);
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
    const text = sayOfPoint(overview, pooling, head, item);
    if (!text) return { text: this.describe(app, item), shares: "" };
    return { text: head === null && heads > 1 ? say("meanOfHeadsSays", { count: heads, text }) : text, shares: "" };
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

  legend(app) {
    const place = this.geometry(app);
    const { map, left, top, cell, record } = place;
    if (!map) return { text: "" };
    const { limits, kinds, beyond } = this.bitmap(app, place);
    const win = app.window();
    const area = { x: win.x + left, y: win.y + top, width: win.width - left - 4, height: win.height - top };
    const exact = (cell >= 3 ? this.tilesIn(place, area) : []).map(([row, column]) => this.tile(app, place, row, column)).filter(Boolean);
    const shown = new Set([...kinds, ...exact.flatMap((tile) => [...tile.kinds])]);
    const per = app.state.scale === "row" ? say("long_per_row") : "";
    const samples = [[ZERO, say(map.hidden ? "long_zero_hidden" : "long_zero")], [MASKED, say("masked")], [MISSING, "NaN"]];
    const { scale, pooling } = app.state;
    const parts = [place.map.statistic(pooling, this.block(place)), scale === "linear" ? "" : `${scaleText(scale)}${per}`, exact.length ? say("long_framed") : ""];
    const largest = scale === "row" ? null : limits.reduce((a, b) => Math.max(a, b), 0);
    return { ramp: record.signed ? "signed" : "map", title: record.signed ? say("of_signed") : say("long_times"), scale, largest, unit: record.signed ? "" : "\u00a0\u00d7",
      even: record.signed || scale === "row" ? null : 1, mark: say("long_equal"), beyond: beyond || exact.some((tile) => tile.beyond),
      samples: samples.filter(([kind]) => shown.has(/** @type {number} */ (kind))), text: parts.filter(Boolean).join(" \u00b7 ") };
  }
}
