// @ts-check

import { drawCells, ring } from "../drawing.js";
import { fitText, textWidth } from "../lettering.js";
import { clamp, secondsStep } from "../numbers.js";
import { sumText } from "../table.js";
import { shortText } from "../text.js";
import { CORNER, CellView, widest } from "./record_view.js";

/** Weights in time, under the spectrogram whose frames are the keys. */
export class SoundView extends CellView {
  name = "sound";

  title = "Sound";

  controls = ["record", "head", "scale", "words", "special"];

  help = "Up and down choose a query, left and right move in time, Enter locks the query, Esc unlocks.";

  shows(record) {
    return !record.large && record.keys.kind === "frames";
  }

  geometry(app) {
    const table = app.table();
    const { width, height } = app.area;
    const left = Math.max(CORNER, Math.min(widest(table, "row") + 14, width * 0.3));
    const wide = Math.max(60, width - left - 12);
    const picture = clamp(height * 0.34, 90, 220);
    const top = 16 + picture + 34;
    return { table, left, wide, picture, top, cellWidth: wide / Math.max(1, table.columns),
      cellHeight: clamp((height - top - 8) / Math.max(1, table.rows), 16, 34) };
  }

  size(app) {
    const place = this.geometry(app);
    return { width: app.area.width, height: place.top + place.table.rows * place.cellHeight + 8 };
  }

  draw(app, pen) {
    const place = this.geometry(app);
    const { table, left, wide, picture, top } = place;
    const { theme } = app;
    if (table.record.keys.picture) pen.picture(table.record.keys.picture, left, 12, wide, picture, { smooth: true });
    pen.rect(left, 12, wide, picture, { stroke: theme.border });
    pen.text("frequency \u2191", left - 8, 20, { color: theme.muted, size: 11, align: "end" });
    this.drawCurve(app, pen, place);
    this.drawTime(app, pen, place);
    const geometry = { left, top, width: place.cellWidth, height: place.cellHeight };
    drawCells(pen, table, geometry, { x: left, y: top, width: wide, height: table.rows * place.cellHeight }, app.state.scale, theme);
    pen.rect(left, top, wide, table.rows * place.cellHeight, { stroke: theme.border });
    const item = app.active();
    for (let row = 0; row < table.rows; row += 1) {
      const locked = app.state.locked.includes(row);
      const y = top + (row + 0.5) * place.cellHeight;
      const text = fitText(shortText(table.rowText(row)), left - 14, { bold: item?.row === row });
      const size = textWidth(text, { bold: true });
      if (locked) pen.rect(left - 12 - size, y - 8, size + 8, 16, { fill: theme.accent, radius: 3 });
      pen.text(text, left - 8, y, { color: locked ? theme.accentText : theme.text, bold: locked || item?.row === row, align: "end" });
    }
    if (item) {
      ring(pen, left + item.column * place.cellWidth, top + item.row * place.cellHeight, place.cellWidth, place.cellHeight, theme.focus, theme);
      pen.rect(left + item.column * place.cellWidth, 12, Math.max(1, place.cellWidth), picture, { stroke: theme.focus, lineWidth: 1.5 });
    }
  }

  legendText(app, table) {
    const rows = app.activeRows();
    const curve = rows.length ? ` \u00b7 curve: ${sumText(table, rows)}, part of its largest` : "";
    return super.legendText(app, table) + curve;
  }

  /** The weights of the chosen queries over the spectrogram: a band of colour and a curve. */
  drawCurve(app, pen, place) {
    const { table, left, picture } = place;
    const rows = app.activeRows();
    if (!rows.length) return;
    const sums = table.sumRows(rows);
    if (!(sums.largest > 0)) return;
    const points = [];
    for (let column = 0; column < table.columns; column += 1) {
      const part = (sums.values[column] || 0) / sums.largest;
      const x = left + column * place.cellWidth;
      if (part > 0.02) pen.rect(x, 12, place.cellWidth, picture, { fill: app.theme.accent, alpha: 0.55 * part });
      const y = 12 + picture - 4 - part * (picture - 12);
      points.push([x, y], [x + place.cellWidth, y]);
    }
    pen.path(points, { color: "#ffffff", lineWidth: 4.5 });
    pen.path(points, { color: "#0b57d0", lineWidth: 2 });
  }

  drawTime(app, pen, place) {
    const { table, left, wide, picture } = place;
    const seconds = table.record.keys.entry.seconds * table.record.keys.length;
    const step = secondsStep(seconds, wide);
    for (let number = 0; number * step <= seconds * 1.0001; number += 1) {
      const x = left + (number * step * wide) / seconds;
      pen.path([[x, 12 + picture], [x, 17 + picture]], { color: app.theme.muted });
      const text = `${Number((number * step).toPrecision(6))} s`;
      const last = x + textWidth(text, { size: 11 }) / 2 > left + wide + 10;
      pen.text(text, last ? left + wide + 10 : x, 26 + picture, { color: app.theme.muted, size: 11, align: last ? "end" : "center" });
    }
  }

  hit(app, x, y) {
    const place = this.geometry(app);
    if (x < place.left || y < place.top) return x < place.left && y >= place.top ? this.at(place, 0, y) : null;
    return this.at(place, Math.floor((x - place.left) / place.cellWidth), y);
  }

  at(place, column, y) {
    const row = Math.floor((y - place.top) / place.cellHeight);
    return row >= 0 && row < place.table.rows && column < place.table.columns ? { row, column } : null;
  }

  place(app, item) {
    const place = this.geometry(app);
    return { x: place.left + item.column * place.cellWidth, y: place.top + item.row * place.cellHeight, width: place.cellWidth, height: place.cellHeight };
  }
}
