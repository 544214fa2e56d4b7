// @ts-check

import { pixelCanvas } from "../canvases.js";
import { inside, ring } from "../drawing.js";
import { say } from "../language.js";
import { fitText, textWidth } from "../lettering.js";
import { clamp, percent, short } from "../numbers.js";
import { channelsOf, divergingColor, rampColor } from "../palette.js";
import { EVEN_SHARES, scaleText, withoutRows } from "../scales.js";
import { evenMark, evenShareOfSums } from "../sentence.js";
import { MASKED, MISSING, WEIGHT, ZERO, activeSums, describeRow, largestSize, measureText, receivedText, signedShade, sumText } from "../table.js";
import { shortText } from "../text.js";
import { wordAbove } from "../text_flow.js";
import { VEIL } from "../thumbnails.js";
import { RecordView, samplesOf } from "./record_view.js";

/** Of colours over a picture. */
const OPACITY = 0.68;

/** The heights of the small pictures above the words, the first that fits. */
const THUMBNAIL_HEIGHTS = [56, 40, 28, 0];

/** The most words that have a small picture each. */
const MOST_THUMBNAILS = 120;

/** The picture whose patches are the keys, and beside it where a word looks; above them each word with its own small picture. */
export class ImageView extends RecordView {
  name = "image";

  controls = ["record", "head", "measure", "scale", "overlay", "words", "special"];

  scalesRows = false;

  help = say("imageHelp");

  tapHelp = say("tapWord");

  shows(record) {
    return !record.large && record.keys.kind === "grid";
  }

  geometry(app) {
    const table = app.table();
    const { width, height } = app.area;
    const key = `${app.tableKey()}|${width}|${height}`;
    if (this.cache?.key === key) return this.cache.place;
    const { keys, queries } = table.record;
    const own = queries.kind === "grid" && queries.length === keys.length;
    const [imageWidth, imageHeight] = keys.entry.size;
    const strip = own ? { places: [], bottom: 0, thumbnail: null } : this.strip(table, width, height, imageWidth / imageHeight);
    const top = strip.bottom + 26;
    const room = Math.max(150, height - top - 8);
    const beside = Math.min((width - 36) / 2 / imageWidth, room / imageHeight);
    const stacked = Math.min((width - 24) / imageWidth, Math.max(room - 28, 260) / 2 / imageHeight);
    const side = beside >= stacked;
    const scale = side ? beside : stacked;
    const [wide, high] = [imageWidth * scale, imageHeight * scale];
    const left = Math.max(12, (width - (side ? 2 * wide + 12 : wide)) / 2);
    const original = { x: left, y: top };
    const overlay = side ? { x: left + wide + 12, y: top } : { x: left, y: top + high + 28 };
    const place = { table, own, words: strip.places, thumbnail: strip.thumbnail, scale, width: wide, height: high, original, overlay };
    this.cache = { key, place, thumbnails: new Map() };
    return place;
  }

  /** Places for the words, each below its small picture. */
  strip(table, width, height, aspect) {
    const texts = Array.from({ length: table.rows }, (_, row) => shortText(table.rowText(row), 24));
    for (const high of THUMBNAIL_HEIGHTS) {
      if (high && table.rows > MOST_THUMBNAILS) continue;
      const thumbnail = high ? { width: clamp(high * aspect, high / 2, 2.2 * high), height: high } : null;
      const places = [];
      let [x, y] = [12, 8];
      const tall = (thumbnail ? thumbnail.height + 4 : 0) + 22;
      for (const text of texts) {
        const wide = Math.min(Math.max((thumbnail?.width ?? 0) + 6, textWidth(text, { size: 14 }) + 10), width - 24);
        if (x > 12 && x + wide > width - 12) { x = 12; y += tall + 6; }
        places.push({ x, y, width: wide, height: tall });
        x += wide + 3;
      }
      const bottom = y + tall;
      if (bottom < height * 0.42 || !high) return { places, bottom, thumbnail };
    }
    return { places: [], bottom: 0, thumbnail: null };
  }

  size(app) {
    const place = this.geometry(app);
    return { width: app.area.width, height: place.overlay.y + place.height + 8 };
  }

  /** Where a position of the keys is drawn over the picture, or in the picture itself. */
  cell(place, position, corner = place.overlay) {
    const pixels = place.table.record.keys.pixels(position);
    if (!pixels) return null;
    const [x0, y0, x1, y1] = pixels.map((pixel) => pixel * place.scale);
    return { x: corner.x + x0, y: corner.y + y0, width: x1 - x0, height: y1 - y0 };
  }

  sums(app) {
    const { table } = this.geometry(app);
    const sums = activeSums(app, table);
    // What is before the grid (a class token) has no place on the picture and would hide the rest.
    const { leading } = table.record.keys.entry;
    const outside = sums.values.subarray(0, leading).reduce((sum, value) => sum + value, 0);
    const largest = largestSize(sums.values.subarray(leading));
    return { ...sums, largest, end: Math.max(largest, table.measure === "weights" ? (sums.divisor * EVEN_SHARES) / table.columns : 0), outside: outside / sums.divisor };
  }

  draw(app, pen) {
    const place = this.geometry(app);
    const { table, width, height, original, overlay } = place;
    const { theme } = app;
    const sums = this.sums(app);
    place.words.forEach((box, row) => this.drawQuery(app, pen, box, row, sums.rows));
    const style = { color: theme.muted, size: 12, bold: true };
    pen.text(fitText(say("imageItself"), width, style), original.x, original.y - 11, style);
    pen.text(fitText(this.heading(table, sums.rows), width, style), overlay.x, overlay.y - 11, style);
    const { picture } = table.record.keys;
    for (const corner of [original, overlay]) if (picture) pen.picture(picture, corner.x, corner.y, width, height, { smooth: true });
    this.drawOverlay(app, pen, place, sums);
    for (const corner of [original, overlay]) pen.rect(corner.x, corner.y, width, height, { stroke: theme.border });
    const item = app.active();
    for (const corner of [original, overlay]) {
      if (item?.side === "key") {
        const box = this.cell(place, item.column, corner);
        if (box) ring(pen, box.x, box.y, box.width, box.height, theme.focus, theme);
      }
      for (const row of place.own ? sums.rows : []) {
        const box = this.cell(place, row, corner);
        if (box) ring(pen, box.x + 2, box.y + 2, box.width - 4, box.height - 4, theme.accent, theme);
      }
    }
  }

  heading(table, rows) {
    if (rows.length === 1) return table.record.say("whatOne", { query: `\u2068${shortText(table.rowText(rows[0]))}\u2069` });
    return say(rows.length ? "whatSeveral" : "whatAll");
  }

  drawQuery(app, pen, box, row, rows) {
    const { theme } = app;
    const { table, thumbnail } = this.geometry(app);
    const locked = app.state.locked.includes(row);
    const chosen = locked || rows.includes(row);
    pen.rect(box.x, box.y, box.width, box.height, { fill: locked ? theme.accent : chosen ? theme.highlight : null, stroke: chosen ? theme.accent : null, radius: 4 });
    if (thumbnail && table.record.keys.picture) {
      const [x, y] = [box.x + (box.width - thumbnail.width) / 2, box.y + 3];
      pen.picture(table.record.keys.picture, x, y, thumbnail.width, thumbnail.height, { smooth: true });
      this.drawVeil(pen, table, this.thumbnailOf(app, table, row), x, y, thumbnail.width / table.record.keys.entry.size[0],
        thumbnail.height / table.record.keys.entry.size[1]);
    }
    const item = app.active();
    if (app.keyboard && item?.side === "query" && item.row === row) ring(pen, box.x, box.y, box.width, box.height, theme.focus, theme);
    pen.text(fitText(shortText(table.rowText(row), 24), box.width - 6, { size: 14, bold: chosen }), box.x + box.width / 2, box.y + box.height - 11,
      { color: locked ? theme.accentText : theme.text, size: 14, bold: chosen, align: "center" });
  }

  /** Where one query looks, as one pixel a patch. */
  thumbnailOf(app, table, row) {
    const key = `${row}|${withoutRows(app.state.scale)}|${app.state.overlay}|${app.theme.name}`;
    const { thumbnails } = this.cache;
    if (!thumbnails.has(key)) {
      const values = Float64Array.from({ length: table.columns }, (_, column) => table.value(row, column));
      const kinds = Uint8Array.from({ length: table.columns }, (_, column) => table.kind(row, column));
      thumbnails.set(key, patchCanvas(app, table, { values, kinds, end: table.endOf(largestSize(values.subarray(table.record.keys.entry.leading))) }));
    }
    return thumbnails.get(key);
  }

  /** One pixel a patch, over the part of the picture that the grid covers. */
  drawVeil(pen, table, canvas, x, y, across, down) {
    const { box } = table.record.keys.entry;
    pen.picture(canvas, x + box[0] * across, y + box[1] * down, (box[2] - box[0]) * across, (box[3] - box[1]) * down);
  }

  drawOverlay(app, pen, place, sums) {
    const { table, overlay, scale } = place;
    this.drawVeil(pen, table, patchCanvas(app, table, sums), overlay.x, overlay.y, scale, scale);
    for (let column = 0; column < table.columns; column += 1) {
      const box = sums.kinds[column] === WEIGHT ? null : this.cell(place, column);
      if (!box) continue;
      if (sums.kinds[column] === MASKED) pen.hatch(box.x, box.y, box.width, box.height, app.theme);
      if (sums.kinds[column] === MISSING) pen.cross(box.x, box.y, box.width, box.height, app.theme);
    }
  }

  hit(app, x, y) {
    const place = this.geometry(app);
    const row = place.words.findIndex((box) => inside(box, x, y));
    if (row >= 0) return { side: "query", row };
    const { entry } = place.table.record.keys;
    for (const corner of [place.original, place.overlay]) {
      const [column, line] = [((x - corner.x) / place.scale - entry.box[0]) / (entry.box[2] - entry.box[0]) * entry.columns,
        ((y - corner.y) / place.scale - entry.box[1]) / (entry.box[3] - entry.box[1]) * entry.rows].map(Math.floor);
      if (column >= 0 && column < entry.columns && line >= 0 && line < entry.rows) return { side: "key", column: entry.leading + line * entry.columns + column };
    }
    return null;
  }

  place(app, item) {
    const place = this.geometry(app);
    return (item.side === "query" ? place.words[item.row] : this.cell(place, item.column)) ?? { x: 0, y: 0, width: 1, height: 1 };
  }

  start(app) {
    const place = this.geometry(app);
    return place.own ? { side: "key", column: app.table().record.keys.entry.leading } : { side: "query", row: 0 };
  }

  move(app, item, dx, dy, jump) {
    const place = this.geometry(app);
    const { leading, rows, columns } = place.table.record.keys.entry;
    if (jump && !place.own) {
      return jump > 0 ? { side: "key", column: leading } : { side: "query", row: app.state.locked[0] ?? 0 };
    }
    if (item.side === "query") {
      const next = dx ? clamp(item.row + dx, 0, place.words.length - 1) : wordAbove(place.words, item.row, dy);
      if (dy > 0 && next === item.row) return { side: "key", column: leading };
      return { side: "query", row: next };
    }
    const cell = Math.max(0, item.column - leading);
    const [row, column] = [Math.floor(cell / columns), cell % columns];
    if (dy < 0 && row === 0 && place.words.length) return { side: "query", row: app.state.locked[0] ?? place.words.length - 1 };
    return { side: "key", column: leading + clamp(row + dy, 0, rows - 1) * columns + clamp(column + dx, 0, columns - 1) };
  }

  activate(app, item) {
    if (item.side === "query") app.selection.toggleRow(item.row);
    else if (this.geometry(app).own) app.selection.toggleRow(item.column);
  }

  describe(app, item) {
    const { table } = this.geometry(app);
    if (item.side === "query") return describeRow(app, table, item.row);
    const sums = this.sums(app);
    const pixels = table.record.keys.pixels(item.column);
    const where = pixels ? say("pixels", { x0: short(pixels[0]), x1: short(pixels[2]), y0: short(pixels[1]), y1: short(pixels[3]) }) : "";
    const from = sums.rows.length === 1 ? table.rowName(sums.rows[0]) : sumText(table, sums.rows);
    return say("patchGets", { from, patch: table.columnText(item.column), where, value: receivedText(sums, item.column), head: app.headText() });
  }

  legend(app) {
    const sums = this.sums(app);
    const table = app.table();
    const scale = withoutRows(app.state.scale);
    const outside = table.record.keys.entry.leading && table.measure === "weights" ? say("outside", { percent: percent(sums.outside) }) : "";
    const veil = app.state.overlay === "veil";
    return { ramp: table.signed ? "signed" : veil ? "veil" : "map", title: measureText(table), scale, largest: sums.end / sums.divisor,
      ...evenMark(table, evenShareOfSums(table, sums)),
      samples: samplesOf([...new Set(sums.kinds)].filter((kind) => kind !== ZERO)),
      text: say("imageLegend", { what: sumText(table, sums.rows), head: app.headText(), scale: scale === "linear" ? "" : ` \u00b7 ${scaleText(scale)}`, how: table.signed ? say("imageSigned") : veil ? say("imageVeil")
          : say("imageColours", { percent: percent(OPACITY) }), outside }) };
  }
}

/** What lies over the picture, a pixel for each patch: a veil, or colours. */
function patchCanvas(app, table, { values, kinds, end }) {
  const { leading, rows, columns } = table.record.keys.entry;
  const scale = withoutRows(app.state.scale);
  const veil = app.state.overlay === "veil";
  return pixelCanvas(columns, rows, (data) => {
    for (let cell = 0; cell < rows * columns; cell += 1) {
      if (kinds[leading + cell] === MISSING) continue;
      const shade = signedShade(values[leading + cell], end, scale);
      const [channels, alpha] = table.signed ? [channelsOf(divergingColor(shade, app.theme)), 0.85 * Math.sqrt(Math.abs(shade))]
        : veil ? [[0, 0, 0], VEIL * (1 - shade)] : [channelsOf(rampColor(shade, app.theme)), OPACITY];
      for (let channel = 0; channel < 3; channel += 1) data[4 * cell + channel] = channels[channel];
      data[4 * cell + 3] = Math.round(255 * alpha);
    }
  });
}
