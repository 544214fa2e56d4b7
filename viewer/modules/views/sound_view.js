// @ts-check

import { drawCells, ring } from "../drawing.js";
import { say } from "../language.js";
import { fitText, textWidth } from "../lettering.js";
import { clamp, secondsStep } from "../numbers.js";
import { rampColor } from "../palette.js";
import { sumText } from "../table.js";
import { shortText } from "../text.js";
import { LIGHT } from "../themes.js";
import { CORNER, CellView, widest } from "./record_view.js";

/** Weights in time, under the spectrogram whose frames are the keys. */
export class SoundView extends CellView {
  name = "sound";

  controls = ["play", "record", "head", "measure", "scale", "words", "special"];

  help = say("soundHelp");

  tapHelp = say("tapWord");

  shows(record) {
    return !record.large && record.keys.kind === "frames";
  }

  geometry(app) {
    const table = app.table();
    const { width, height } = app.area;
    const left = Math.max(CORNER, Math.min(widest(table, "row") + 14, width * 0.3));
    const wide = Math.max(60, width - left - 12);
    const picture = clamp(height * 0.42, 90, 360);
    const top = 16 + picture + 34;
    return { table, left, wide, picture, top, cellWidth: wide / Math.max(1, table.columns),
      cellHeight: clamp((height - top - 8) / Math.max(1, table.rows), 16, 44) };
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
    this.drawPadding(app, pen, place);
    pen.rect(left, 12, wide, picture, { stroke: theme.border });
    pen.text(say("frequency"), left - 8, 20, { color: theme.muted, size: 11, align: "end" });
    this.drawCurve(app, pen, place);
    this.drawTime(app, pen, place);
    const geometry = { left, top, width: place.cellWidth, height: place.cellHeight };
    drawCells(pen, table, geometry, { x: left, y: top, width: wide, height: table.rows * place.cellHeight }, app.state.scale, theme);
    pen.rect(left, top, wide, table.rows * place.cellHeight, { stroke: theme.border });
    this.drawCursor(app, pen, place);
    const item = app.active();
    for (let row = 0; row < table.rows; row += 1) {
      const locked = app.state.locked.includes(row);
      const y = top + (row + 0.5) * place.cellHeight;
      const text = fitText(shortText(table.rowText(row)), left - 14, { bold: item?.row === row });
      const size = textWidth(text, { bold: true });
      if (locked) pen.rect(left - 12 - size, y - 8, size + 8, 16, { fill: theme.accent, radius: 3 });
      pen.text(text, left - 8, y, { color: locked ? theme.accentText : theme.text, bold: locked || item?.row === row, align: "end" });
    }
    if (item?.side === "time") {
      pen.rect(left + item.column * place.cellWidth, 12, Math.max(1, place.cellWidth), picture, { stroke: theme.focus, lineWidth: 1.5 });
    } else if (item) {
      ring(pen, left + item.column * place.cellWidth, top + item.row * place.cellHeight, place.cellWidth, place.cellHeight, theme.focus, theme);
      pen.rect(left + item.column * place.cellWidth, 12, Math.max(1, place.cellWidth), picture, { stroke: theme.focus, lineWidth: 1.5 });
    }
  }

  legendText(app, table) {
    const rows = app.activeRows();
    return [super.legendText(app, table), rows.length ? say("soundCurve", { what: sumText(table, rows) }) : ""].filter(Boolean).join(" \u00b7 ");
  }

  /** The position after the last one that is heard: behind it is padding, which no query sees, or the sound has ended. */
  heard(table) {
    const { keys, queries, heads, visible } = table.record;
    let end = keys.length;
    if (keys.sound) end = Math.min(end, Math.ceil(keys.soundSeconds / keys.entry.seconds - 1e-6));
    if (!visible) return end;
    const seen = (key) => Array.from({ length: queries.length }, (_, query) => query)
      .some((query) => Array.from({ length: heads }, (_, head) => head).some((head) => table.record.sees(head, query, key)));
    while (end > 0 && !seen(end - 1)) end -= 1;
    return end;
  }

  /** Padding is hatched: it is no sound. */
  drawPadding(app, pen, { table, left, wide, picture }) {
    if (this.padding?.record !== table.record) this.padding = { record: table.record, end: this.heard(table) };
    const { end } = this.padding;
    const { length } = table.record.keys;
    if (end < length) pen.hatch(left + (wide * end) / length, 12, (wide * (length - end)) / length, picture, app.theme);
  }

  /** Where the sound is, in the spectrogram and the map, while it plays. */
  drawCursor(app, pen, place) {
    const { table, left, wide, picture, top, cellWidth, cellHeight } = place;
    const { keys } = table.record;
    if (!app.player.plays(keys)) return;
    const { time } = app.player;
    const x = left + (wide * time) / (keys.entry.seconds * keys.length);
    const column = this.columnAt(table, time);
    const { theme } = app;
    pen.rect(left + column * cellWidth, top, cellWidth, table.rows * cellHeight, { stroke: theme.background, lineWidth: 4 });
    pen.rect(left + column * cellWidth, top, cellWidth, table.rows * cellHeight, { stroke: theme.accent, lineWidth: 2 });
    pen.path([[x, 12], [x, 12 + picture]], { color: "#ffffff", lineWidth: 4 });
    pen.path([[x, 12], [x, 12 + picture]], { color: theme.name === "dark" ? "#c2410c" : theme.accent, lineWidth: 2 });
    app.changed();
  }

  /** The column that is heard at a time. */
  columnAt(table, time) {
    return clamp(Math.floor(time / table.record.keys.entry.seconds + 1e-9), 0, table.columns - 1);
  }

  /** Starts at a time, or stops. */
  toggle(app, seconds = 0) {
    const { keys } = app.record;
    if (!keys.sound) return;
    if (app.player.plays(keys) && seconds === 0) app.player.stop();
    else app.player.start(keys, Math.min(seconds, Math.max(0, keys.soundSeconds - 0.01)));
  }

  /** The space bar plays and stops. */
  pressed(app, key) {
    if (key !== " " || !app.record.keys.sound) return false;
    this.toggle(app);
    return true;
  }

  /** The weights of the chosen queries over the spectrogram, which is grey on white in every theme: a band and a curve of the weights' palette. */
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
      if (part > 0.02) pen.rect(x, 12, place.cellWidth, picture, { fill: rampColor(0.6, LIGHT), alpha: 0.6 * part });
      const y = 12 + picture - 4 - part * (picture - 12);
      points.push([x, y], [x + place.cellWidth, y]);
    }
    pen.path(points, { color: "#ffffff", lineWidth: 4.5 });
    pen.path(points, { color: rampColor(0.9, LIGHT), lineWidth: 2 });
  }

  drawTime(app, pen, place) {
    const { table, left, wide, picture } = place;
    const seconds = table.record.keys.entry.seconds * table.record.keys.length;
    const step = secondsStep(seconds, wide);
    for (let number = 0; number * step <= seconds * 1.0001; number += 1) {
      const x = left + (number * step * wide) / seconds;
      pen.path([[x, 12 + picture], [x, 17 + picture]], { color: app.theme.muted });
      const text = say("seconds", { seconds: Number((number * step).toPrecision(6)) });
      const last = x + textWidth(text, { size: 11 }) / 2 > left + wide + 10;
      pen.text(text, last ? left + wide + 10 : x, 26 + picture, { color: app.theme.muted, size: 11, align: last ? "end" : "center" });
    }
  }

  hit(app, x, y) {
    const place = this.geometry(app);
    if (x >= place.left && x < place.left + place.wide && y >= 12 && y < 12 + place.picture && place.table.record.keys.sound) {
      return { side: "time", column: Math.floor((x - place.left) / place.cellWidth) };
    }
    if (x < place.left || y < place.top) return x < place.left && y >= place.top ? this.at(place, 0, y) : null;
    return this.at(place, Math.floor((x - place.left) / place.cellWidth), y);
  }

  at(place, column, y) {
    const row = Math.floor((y - place.top) / place.cellHeight);
    return row >= 0 && row < place.table.rows && column < place.table.columns ? { row, column } : null;
  }

  activate(app, item) {
    if (item.side === "time") this.toggle(app, item.column * app.record.keys.entry.seconds || 1e-9);
    else super.activate(app, item);
  }

  describe(app, item) {
    if (item.side !== "time") return super.describe(app, item);
    const table = app.table();
    return say("playFrom", { time: table.columnName(item.column) });
  }

  move(app, item, dx, dy) {
    return super.move(app, { ...item, row: item.row ?? 0 }, dx, dy);
  }

  forget() {
    super.forget();
    this.padding = null;
  }

  place(app, item) {
    const place = this.geometry(app);
    if (item.side === "time") return { x: place.left + item.column * place.cellWidth, y: 12, width: place.cellWidth, height: place.picture };
    return { x: place.left + item.column * place.cellWidth, y: place.top + item.row * place.cellHeight, width: place.cellWidth, height: place.cellHeight };
  }
}
