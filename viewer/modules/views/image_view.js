// @ts-check

import { flowWords, inside, ring, wordAbove } from "../drawing.js";
import { fitText } from "../lettering.js";
import { clamp, formatNumber, short } from "../numbers.js";
import { rampColor } from "../palette.js";
import { SCALES, withoutRows } from "../scales.js";
import { MASKED, MISSING, accuracy, activeSums, describeRow, receivedText, sumText } from "../table.js";
import { quoted, shortText } from "../text.js";
import { RecordView } from "./record_view.js";

/** Of colours over a picture. */
const OPACITY = 0.68;

/** Weights over the picture whose patches are the keys. */
export class ImageView extends RecordView {
  name = "image";

  title = "Image";

  controls = ["record", "head", "scale", "overlay", "words", "special"];

  scalesRows = false;

  help = "Arrow keys choose a word or a patch, Enter locks a query, Page Down goes from the words to the picture, Esc unlocks.";

  shows(record) {
    return !record.large && record.keys.kind === "grid";
  }

  geometry(app) {
    const table = app.table();
    const { width, height } = app.area;
    const { entry } = table.record.keys;
    const own = table.record.queries.kind === "grid" && table.record.queries.length === table.record.keys.length;
    const texts = Array.from({ length: own ? 0 : table.rows }, (_, row) => shortText(table.rowText(row), 40));
    const flow = own ? { places: [], bottom: 6 } : flowWords(texts, 12, 26, width - 24, 14, 28);
    const top = flow.bottom + 8;
    const [imageWidth, imageHeight] = entry.size;
    const scale = Math.min((width - 24) / imageWidth, Math.max(180, height - top - 8) / imageHeight);
    const left = Math.max(12, (width - imageWidth * scale) / 2);
    return { table, own, words: flow.places, top, left, scale, width: imageWidth * scale, height: imageHeight * scale };
  }

  size(app) {
    const place = this.geometry(app);
    return { width: app.area.width, height: place.top + place.height + 8 };
  }

  /** Where a position of the keys is drawn. */
  cell(place, position) {
    const pixels = place.table.record.keys.pixels(position);
    if (!pixels) return null;
    const [x0, y0, x1, y1] = pixels.map((pixel) => pixel * place.scale);
    return { x: place.left + x0, y: place.top + y0, width: x1 - x0, height: y1 - y0 };
  }

  sums(app) {
    const { table } = this.geometry(app);
    const sums = activeSums(app, table);
    // What is before the grid (a class token) has no place on the picture and would hide the rest.
    const leading = table.record.keys.entry.leading;
    const largest = sums.values.subarray(leading).reduce((most, value) => (value > most ? value : most), 0);
    const outside = sums.values.subarray(0, leading).reduce((sum, value) => sum + value, 0);
    return { ...sums, largest, outside: outside / sums.divisor };
  }

  draw(app, pen) {
    const place = this.geometry(app);
    const { table, left, top, width, height } = place;
    const { theme } = app;
    const picture = table.record.keys.picture;
    if (picture) pen.picture(picture, left, top, width, height, { smooth: true });
    const sums = this.sums(app);
    this.drawOverlay(app, pen, place, sums);
    pen.rect(left, top, width, height, { stroke: theme.border });
    if (place.words.length) pen.text("query", 12, 13, { color: theme.muted, size: 11, bold: true });
    place.words.forEach((box, row) => this.drawQuery(app, pen, box, row, sums.rows));
    const item = app.active();
    if (item?.side === "key") {
      const box = this.cell(place, item.column);
      if (box) ring(pen, box.x, box.y, box.width, box.height, theme.focus, theme);
    }
    if (place.own) {
      for (const row of sums.rows) {
        const box = this.cell(place, row);
        if (box) ring(pen, box.x + 2, box.y + 2, box.width - 4, box.height - 4, theme.accent, theme);
      }
    }
  }

  drawQuery(app, pen, box, row, rows) {
    const { theme } = app;
    const locked = app.state.locked.includes(row);
    const chosen = locked || rows.includes(row);
    pen.rect(box.x, box.y, box.width, box.height, { fill: locked ? theme.accent : chosen ? theme.highlight : theme.surface,
      stroke: chosen ? theme.accent : null, radius: 4 });
    const item = app.active();
    if (app.keyboard && item?.side === "query" && item.row === row) ring(pen, box.x, box.y, box.width, box.height, theme.focus, theme);
    pen.text(fitText(shortText(app.table().rowText(row), 40), box.width - 6, { size: 14 }), box.x + box.width / 2, box.y + box.height / 2,
      { color: locked ? theme.accentText : theme.text, size: 14, align: "center" });
  }

  drawOverlay(app, pen, place, sums) {
    const scale = withoutRows(app.state.scale);
    const { table } = place;
    for (let column = 0; column < table.columns; column += 1) {
      const box = this.cell(place, column);
      if (!box) continue;
      if (sums.kinds[column] === MASKED) { pen.hatch(box.x, box.y, box.width, box.height, app.theme); continue; }
      if (sums.kinds[column] === MISSING) {
        pen.cross(box.x, box.y, box.width, box.height, app.theme);
        continue;
      }
      const shade = sums.largest > 0 ? SCALES[scale].shade(sums.values[column] / sums.largest) : 0;
      // Neighbours overlap a little, since the picture would shine through the gaps that rounding leaves.
      pen.rect(box.x, box.y, box.width + 0.3, box.height + 0.3,
        app.state.overlay === "veil" ? { fill: "#000000", alpha: 0.82 * (1 - shade) } : { fill: rampColor(shade, app.theme), alpha: OPACITY });
    }
  }

  hit(app, x, y) {
    const place = this.geometry(app);
    const row = place.words.findIndex((box) => inside(box, x, y));
    if (row >= 0) return { side: "query", row };
    for (let column = 0; column < place.table.columns; column += 1) {
      const box = this.cell(place, column);
      if (!box || !inside(box, x, y)) continue;
      return { side: "key", column };
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
    if (item.side === "query") app.toggleLocked(item.row);
    else if (this.geometry(app).own) app.toggleLocked(item.column);
  }

  describe(app, item) {
    const { table } = this.geometry(app);
    if (item.side === "query") return describeRow(app, table, item.row);
    const sums = this.sums(app);
    const value = receivedText(sums, item.column);
    const pixels = table.record.keys.pixels(item.column);
    const where = pixels ? `, pixels x ${short(pixels[0])}\u2013${short(pixels[2])}, y ${short(pixels[1])}\u2013${short(pixels[3])}` : "";
    const from = sums.rows.length === 1 ? quoted(table.rowText(sums.rows[0])) : sumText(table, sums.rows);
    return `${from} \u2192 ${table.columnText(item.column)}${where}: ${value} (${app.headText()})`;
  }

  legend(app) {
    const sums = this.sums(app);
    const table = app.table();
    const scale = withoutRows(app.state.scale);
    const kinds = new Set(sums.kinds);
    const outside = table.record.keys.entry.leading ? ` \u00b7 ${(100 * sums.outside).toFixed(1)} % on positions before the grid` : "";
    const veil = app.state.overlay === "veil";
    const how = veil ? "a black veil, thinner for more" : `colours over the picture, ${100 * OPACITY} % opaque`;
    return { ramp: veil ? null : "map", scale, largest: sums.largest / sums.divisor,
      samples: [[MASKED, "masked"], [MISSING, "NaN"]].filter(([kind]) => kinds.has(kind)),
      text: `attention weight, ${sumText(table, sums.rows)}, ${app.headText()}, ${SCALES[scale].label}, largest ${formatNumber(sums.largest / sums.divisor)}; `
        + `${how}${outside} \u00b7 ${accuracy(table)}` };
  }
}
