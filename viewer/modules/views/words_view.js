// @ts-check

import { drawKind, flowWords, inside, ring, wordAbove } from "../drawing.js";
import { fitText } from "../lettering.js";
import { clamp } from "../numbers.js";
import { wordColors } from "../palette.js";
import { SCALES, withoutRows } from "../scales.js";
import { MASKED, MISSING, WEIGHT, ZERO, accuracy, activeSums, describeRow, hiddenText, mergedText, receivedText, sumText } from "../table.js";
import { quoted, shortText } from "../text.js";
import { RecordView } from "./record_view.js";

/** The words of a text, shaded by their weight. */
export class WordsView extends RecordView {
  name = "words";

  title = "Words";

  controls = ["record", "head", "scale", "words", "special"];

  scalesRows = false;

  help = "Arrow keys choose a word as the query, Enter locks it, several locked words are added, Esc unlocks.";

  shows(record) {
    return !record.large && record.keys.kind === "tokens";
  }

  single(app) {
    return app.record.queries === app.record.keys;
  }

  geometry(app) {
    const table = app.table();
    const { width } = app.area;
    const wide = Math.min(width - 24, 920);
    const left = Math.max(12, (width - wide) / 2);
    const texts = (side) => Array.from({ length: side === "row" ? table.rows : table.columns }, (_, number) =>
      shortText(side === "row" ? table.rowText(number) : table.columnText(number), 60));
    const key = `${app.tableKey()}|${wide}|${app.record.number}`;
    if (this.cache?.key === key) return this.cache.place;
    const size = Math.max(table.rows, table.columns) < 60 && width > 500 ? 18 : 15;
    const queries = this.single(app) ? null : flowWords(texts("row"), left, 34, wide, size, 2 * size + 2);
    const top = queries ? queries.bottom + 38 : 34;
    const keys = flowWords(texts("column"), left, top, wide, size, 2 * size + 2);
    const place = { table, left, size, queries: queries?.places ?? keys.places, keys: keys.places, top, bottom: keys.bottom, wide };
    this.cache = { key, place };
    return place;
  }

  size(app) {
    return { width: app.area.width, height: this.geometry(app).bottom + 8 };
  }

  sums(app) {
    return activeSums(app, app.table());
  }

  draw(app, pen, win) {
    const place = this.geometry(app);
    const sums = this.sums(app);
    const { theme } = app;
    const heading = { color: theme.muted, size: 11, bold: true };
    if (!this.single(app)) {
      pen.text("queries", place.left, 18, heading);
      place.queries.forEach((box, row) => this.drawWord(app, pen, box, place.table.rowText(row), null, row));
    }
    const what = sums.rows.length === 1 ? `what \u201c${shortText(place.table.rowText(sums.rows[0]))}\u201d attends to`
      : sums.rows.length ? "what the chosen queries attend to" : "what all queries attend to";
    pen.text(`${what}: ${sumText(place.table, sums.rows)}`, place.left, place.top - 16, heading);
    const scale = withoutRows(app.state.scale);
    place.keys.forEach((box, column) => {
      if (box.y > win.y + win.height || box.y + box.height < win.y) return;
      const shade = sums.largest > 0 ? SCALES[scale].shade(sums.values[column] / sums.largest) : 0;
      this.drawWord(app, pen, box, place.table.columnText(column), { shade, kind: sums.kinds[column] },
        this.single(app) ? column : null);
    });
    const item = app.active();
    if (item && app.keyboard) {
      const box = (item.side === "key" ? place.keys[item.column] : place.queries[item.row]);
      if (box) ring(pen, box.x, box.y, box.width, box.height, theme.focus, theme);
    }
  }

  drawWord(app, pen, box, text, weight, row) {
    const { theme } = app;
    const colors = weight && weight.kind === WEIGHT ? wordColors(weight.shade || 0, theme) : { fill: theme.background, ink: theme.text };
    if (weight && weight.kind !== WEIGHT) drawKind(pen, weight.kind, box.x, box.y, box.width, box.height, theme);
    else pen.rect(box.x, box.y, box.width, box.height, { fill: colors.fill, radius: 4 });
    const chosen = row !== null && app.activeRows().includes(row);
    if (chosen) pen.rect(box.x + 1, box.y + 1, box.width - 2, box.height - 2, { stroke: theme.accent, lineWidth: 2.5, radius: 4 });
    const ink = weight && weight.kind !== WEIGHT ? theme.text : colors.ink;
    const { size } = this.cache.place;
    pen.text(fitText(shortText(text, 60), box.width - 8, { size }), box.x + box.width / 2, box.y + box.height / 2,
      { color: ink, size, align: "center" });
  }

  hit(app, x, y) {
    const place = this.geometry(app);
    if (!this.single(app)) {
      const row = place.queries.findIndex((box) => inside(box, x, y));
      if (row >= 0) return { side: "query", row };
    }
    const column = place.keys.findIndex((box) => inside(box, x, y));
    if (column < 0) return null;
    return this.single(app) && app.state.locked.length === 0 ? { side: "query", row: column } : { side: "key", column };
  }

  place(app, item) {
    const place = this.geometry(app);
    return { ...(item.side === "key" ? place.keys[item.column] : place.queries[item.row]) };
  }

  start() {
    return { side: "query", row: 0 };
  }

  move(app, item, dx, dy) {
    const place = this.geometry(app);
    const places = item.side === "key" ? place.keys : place.queries;
    const index = item.side === "key" ? item.column : item.row;
    let next = dx ? clamp(index + dx, 0, places.length - 1) : wordAbove(places, index, dy);
    let { side } = item;
    if (!this.single(app) && dy && next === index) {
      side = dy > 0 ? "key" : "query";
      next = side === item.side ? index : clamp(index, 0, (side === "key" ? place.keys : place.queries).length - 1);
    }
    return side === "key" ? { side, column: next } : { side, row: next };
  }

  activate(app, item) {
    app.toggleLocked(item.side === "query" ? item.row : this.single(app) ? item.column : null);
  }

  describe(app, item) {
    const table = app.table();
    if (item.side === "query") return describeRow(app, table, item.row);
    const sums = this.sums(app);
    return `key ${quoted(table.columnText(item.column))}: ${receivedText(sums, item.column)} (${sumText(table, sums.rows)}; ${app.headText()})`;
  }

  legend(app) {
    const sums = this.sums(app);
    const table = app.table();
    const kinds = new Set(sums.kinds);
    const scale = withoutRows(app.state.scale);
    return { ramp: "words", scale, largest: sums.largest / sums.divisor,
      samples: [[ZERO, "zero"], [MASKED, "masked"], [MISSING, "NaN"]].filter(([kind]) => kinds.has(kind)),
      text: `attention weight, ${sumText(table, sums.rows)}, ${app.headText()}, ${SCALES[scale].label}${mergedText(table)} \u00b7 `
        + `${accuracy(table)}${hiddenText(table)}` };
  }
}
