// @ts-check

import { fitText, wrapText } from "./lettering.js";
import { printed } from "./numbers.js";
import { shownRows } from "./stations.js";
import { say } from "./language.js";

const COLUMN = 330;

const SHEET_GAP = 24;

/** Numbers as they are printed; "" for none. */
const printedTexts = (numbers) => numbers.map((value) => (value === null || value === undefined ? "" : printed(value)));

/** A column of texts and tables with a pen; without one it only measures. */
class Column {
  constructor(pen, theme, x, y, width) {
    this.pen = pen;
    this.theme = theme;
    this.x = x;
    this.y = y;
    this.width = width;
  }

  text(text, style) {
    for (const line of wrapText(text, this.width, style)) {
      this.pen?.text(line, this.x, this.y + 8, { color: this.theme.text, ...style });
      this.y += style.size + 5;
    }
    this.y += 4;
  }

  station(station, number) {
    this.text(`${number + 1}. ${station.title}`, { size: 13, bold: true });
    this.text(station.sentence, { size: 12 });
    for (const part of station.parts) this.part(part);
    this.y += 16;
  }

  part(part) {
    if (part.kind === "line" && !part.isHint) this.text(part.text, { size: 11, color: this.theme.muted });
    else if (part.kind === "formula") this.text(part.terms.map((term) => term.text).join(" "), { size: 12, bold: true });
    else if (part.kind === "cells") {
      this.text(part.label, { size: 11, color: this.theme.muted });
      this.text([...part.values].map((value) => printed(value)).join("  "), { size: 11 });
    } else if (part.kind === "sum") this.table(part.sum);
  }

  table(sum) {
    const { head, rows, rest, foot } = shownRows(sum, false);
    const first = this.width * 0.3;
    const step = (this.width - first) / (sum.head.length - 1);
    const line = (label, texts, style) => {
      this.pen?.text(fitText(label, first - 4, style), this.x, this.y + 7, { size: 11, ...style });
      texts.forEach((text, column) => this.pen?.text(text, this.x + first + (column + 1) * step, this.y + 7, { size: 11, align: "end", ...style }));
      this.y += 15;
    };
    line(head[0], head.slice(1), { color: this.theme.muted });
    for (const row of rows) line(row.label, printedTexts(row.numbers), { color: row.muted ? this.theme.muted : this.theme.text, bold: row.chosen });
    if (rest) line(rest.label, printedTexts(rest.numbers), { color: this.theme.muted });
    if (foot) this.foot(foot, line);
    if (sum.why) this.text(sum.why, { size: 11, color: this.theme.muted });
  }

  foot(foot, line) {
    this.pen?.path([[this.x, this.y], [this.x + this.width, this.y]], { color: this.theme.border });
    this.y += 2;
    line(foot.label, printedTexts(foot.numbers).map((text, column) => `${foot.signs[column]}${text}`), { color: this.theme.text, bold: true });
  }
}

/** The walk on paper: the map of all pairs, and the stations from left to right beside it. */
export function walkSheet(app, view, stations) {
  // Of a map that is larger than its place, what is seen.
  const win = app.window();
  const [whole, area] = [view.size(app), { ...win, height: Math.max(win.height, 400) }];
  const size = { width: Math.min(whole.width, area.width), height: Math.min(whole.height, area.height) };
  const pair = view.chosen(app);
  const heading = say("walk_print", { query: view.tokenName(app, "queries", pair.row), key: view.tokenName(app, "keys", pair.column) });
  const per = Math.ceil(stations.length / 3);
  const draw = (pen) => {
    let bottom = size.height;
    const left = size.width + SHEET_GAP;
    pen?.text(heading, left, 12, { color: app.theme.text, size: 13, bold: true });
    for (let start = 0; start < stations.length; start += per) {
      const column = new Column(pen, app.theme, left + (start / per) * (COLUMN + SHEET_GAP), 32, COLUMN);
      stations.slice(start, start + per).forEach((station, number) => column.station(station, start + number));
      bottom = Math.max(bottom, column.y);
    }
    return bottom;
  };
  return { width: size.width + SHEET_GAP + 3 * (COLUMN + SHEET_GAP), height: draw(null),
    draw: (pen) => {
      pen.clip(0, 0, size.width, size.height, () => pen.shift(-area.x, -area.y, () => view.draw(app, pen, area)));
      draw(pen);
    } };
}
