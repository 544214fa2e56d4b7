// @ts-check

import { ring } from "../drawing.js";
import { fitText, textWidth } from "../lettering.js";
import { clamp, counted, formatWeight } from "../numbers.js";
import { MASKED, WEIGHT, accuracy, hiddenText, mergedText, sumText } from "../table.js";
import { quoted, shortText } from "../text.js";
import { headStyle } from "../themes.js";
import { RecordView, widest } from "./record_view.js";

/** Lines that are drawn for chosen tokens, and while none is chosen. */
const MOST_LINES = 1500;

const MOST_LINES_OF_ALL = 400;

/** Two columns of tokens, and a line for each weight, by head. */
export class LinesView extends RecordView {
  name = "lines";

  title = "Lines";

  controls = ["record", "words", "special", "heads"];

  help = "Up and down choose a query, left and right change sides, Enter locks it, several locked queries are added, Esc unlocks.";

  geometry(app) {
    const table = app.table();
    const { width, height } = app.area;
    // Eight beside the lines, and room for a rounded width.
    const label = Math.min(150, width * 0.27, Math.max(widest(table, "row"), widest(table, "column")) + 14);
    const step = clamp((height - 34) / Math.max(1, table.rows, table.columns), 18, 30);
    const bars = clamp(width * 0.16, 30, 140);
    const spread = Math.min(520, width - 2 * label - bars - 24);
    const left = Math.max(8, (width - (2 * label + bars + spread + 24)) / 2);
    return { table, step, label, top: 26, left: left + label, right: left + label + spread, bars };
  }

  size(app) {
    const { table, step, top } = this.geometry(app);
    return { width: app.area.width, height: top + Math.max(table.rows, table.columns) * step + 8 };
  }

  y(place, number) {
    return place.top + (number + 0.5) * place.step;
  }

  draw(app, pen, win) {
    const place = this.geometry(app);
    const rows = app.activeRows();
    const column = app.active()?.side === "key" ? app.active().column : null;
    this.drawLines(app, pen, place, win, rows, column);
    this.drawSums(app, pen, place, rows);
    this.drawTokens(app, pen, place, win, rows, column);
    const style = { color: app.theme.muted, size: 11, bold: true };
    pen.text("query", place.left - 8, 11, { ...style, align: "end" });
    pen.text("key", place.right + 8, 11, style);
    pen.text(rows.length > 1 ? `sum of ${rows.length}` : rows.length ? "weight" : "mean", place.right + place.label + 10, 11, style);
  }

  /** The strongest weights of the shown heads: those of chosen queries, or of all. */
  lines(app, rows, column) {
    const heads = app.shownHeads();
    const key = `${rows}|${column}|${heads}|${app.tableKey()}`;
    if (this.cache?.key === key) return this.cache;
    const found = [];
    let largest = 0;
    for (const head of heads) {
      const table = app.table(head);
      const from = rows.length ? rows : Array.from({ length: table.rows }, (_, row) => row);
      for (const row of from) {
        for (let one = 0; one < table.columns; one += 1) {
          if (column !== null && one !== column) continue;
          const value = table.value(row, one);
          if (table.kind(row, one) !== WEIGHT || value < 0.01) continue;
          found.push([value, head, row, one]);
          if (value > largest) largest = value;
        }
      }
    }
    const total = found.length;
    const most = rows.length || column !== null ? MOST_LINES : MOST_LINES_OF_ALL;
    if (total > most) found.sort((a, b) => b[0] - a[0]).length = most;
    this.cache = { key, found: found.reverse(), largest, total };
    return this.cache;
  }

  drawLines(app, pen, place, win, rows, column) {
    const { found, largest } = this.lines(app, rows, column);
    const offset = (head) => (app.record.heads > 1 ? (head / (app.record.heads - 1) - 0.5) * Math.min(8, place.step * 0.4) : 0);
    for (const [value, head, row, one] of found) {
      const [y0, y1] = [this.y(place, row) + offset(head), this.y(place, one) + offset(head)];
      if (Math.max(y0, y1) < win.y || Math.min(y0, y1) > win.y + win.height) continue;
      const part = Math.sqrt(value / (largest || 1));
      const { color, dash } = headStyle(head, app.theme);
      pen.curve(place.left, y0, place.right, y1, { color, dash, lineWidth: 0.6 + 2.2 * part,
        alpha: app.theme.name === "forced" ? 1 : 0.12 + 0.88 * part * part });
    }
  }

  /**
   * Beside each key, as a bar: the sum over the chosen queries, or the mean over all, of the mean over the shown heads.
   * Means leave out a head's queries that see no key.
   */
  sums(app, rows) {
    const heads = app.shownHeads();
    const key = `${rows}|${heads}|${app.tableKey()}`;
    if (this.sumCache?.key === key) return this.sumCache;
    const tables = heads.map((head) => app.table(head));
    const count = app.table().columns;
    const sums = { key, values: new Float64Array(count), errors: new Float64Array(count), masked: Array(count).fill(true), largest: 0 };
    let pairs = 0;
    for (const row of rows.length ? rows : Array.from({ length: app.table().rows }, (_, one) => one)) {
      const seeing = tables.filter((table) => table.counts[row] > 0);
      pairs += seeing.length;
      for (const table of seeing) {
        for (let column = 0; column < count; column += 1) {
          if (table.kind(row, column) === MASKED) continue;
          sums.masked[column] = false;
          sums.values[column] += table.value(row, column) / (rows.length ? seeing.length : 1);
          sums.errors[column] += table.error(row, column) / (rows.length ? seeing.length : 1);
        }
      }
    }
    for (let column = 0; column < count && !rows.length; column += 1) {
      sums.values[column] /= Math.max(1, pairs);
      sums.errors[column] /= Math.max(1, pairs);
    }
    sums.largest = sums.values.reduce((most, value) => Math.max(most, value || 0), 0);
    this.sumCache = sums;
    return sums;
  }

  headText(app) {
    return `${app.shownHeads().length} of ${app.record.heads} heads`;
  }

  drawSums(app, pen, place, rows) {
    const sums = this.sums(app, rows);
    const x = place.right + place.label + 10;
    const number = app.table().exact && place.bars > 70;
    const length = place.bars - (number ? 40 : 6);
    for (let column = 0; column < place.table.columns; column += 1) {
      const y = this.y(place, column);
      const value = sums.values[column];
      if (sums.masked[column]) { pen.hatch(x, y - 4, 16, 8, app.theme); continue; }
      pen.rect(x, y - 4, Math.max(1, (length * (value || 0)) / (sums.largest || 1)), 8, { fill: app.theme.accent, radius: 2 });
      if (number) pen.text(Number.isNaN(value) ? "NaN" : value.toFixed(3), x + place.bars, y, { color: app.theme.muted, size: 11, align: "end" });
    }
  }

  drawTokens(app, pen, place, win, rows, column) {
    const { table } = place;
    const item = app.active();
    const one = (side, number, text, x, align) => {
      const y = this.y(place, number);
      if (y < win.y - 20 || y > win.y + win.height + 20) return;
      const locked = side === "query" && app.state.locked.includes(number);
      const chosen = locked || (side === "query" ? rows.includes(number) : column === number);
      const shown = fitText(shortText(text), place.label - 12, { bold: chosen });
      const wide = textWidth(shown, { bold: chosen }) + 8;
      const boxX = align === "end" ? x - wide + 4 : x - 4;
      if (chosen) {
        pen.rect(boxX, y - 9, wide, 18, { fill: locked ? app.theme.accent : app.theme.highlight, radius: 3,
          stroke: app.theme.accent });
      }
      if (item && item.side === side && item[side === "query" ? "row" : "column"] === number && app.keyboard) {
        ring(pen, boxX, y - 9, wide, 18, app.theme.focus, app.theme);
      }
      pen.text(shown, x, y, { color: locked ? app.theme.accentText : app.theme.text, bold: chosen, align });
    };
    for (let row = 0; row < table.rows; row += 1) one("query", row, table.rowText(row), place.left - 8, "end");
    for (let key = 0; key < table.columns; key += 1) one("key", key, table.columnText(key), place.right + 8, "start");
  }

  hit(app, x, y) {
    const place = this.geometry(app);
    const number = Math.floor((y - place.top) / place.step);
    if (number < 0) return null;
    if (x <= place.left + 12 && number < place.table.rows) return { side: "query", row: number };
    if (x >= place.right - 12 && number < place.table.columns) return { side: "key", column: number };
    return null;
  }

  place(app, item) {
    const place = this.geometry(app);
    const number = item.side === "query" ? item.row : item.column;
    const x = item.side === "query" ? place.left - place.label : place.right;
    return { x, y: place.top + number * place.step, width: place.label, height: place.step, frozenTop: 26 };
  }

  start() {
    return { side: "query", row: 0 };
  }

  move(app, item, dx, dy) {
    const table = app.table();
    const number = item.side === "query" ? item.row : item.column;
    const side = dx < 0 ? "query" : dx > 0 ? "key" : item.side;
    const next = clamp(number + dy, 0, (side === "query" ? table.rows : table.columns) - 1);
    return side === "query" ? { side, row: next } : { side, column: next };
  }

  activate(app, item) {
    if (item.side === "query") app.toggleLocked(item.row);
  }

  describe(app, item) {
    const heads = app.shownHeads();
    if (item.side === "query") return this.describeQuery(app, item.row, heads);
    const rows = app.activeRows();
    const sums = this.sums(app, rows);
    const value = sums.masked[item.column] ? "masked" : formatWeight(sums.values[item.column], sums.errors[item.column]);
    return `key ${quoted(app.table().columnText(item.column))}: ${value} (${sumText(app.table(null), rows)}; mean of ${this.headText(app)})`;
  }

  describeQuery(app, row, heads) {
    const table = app.table(heads.length === 1 ? heads[0] : null);
    const best = heads.map((head) => {
      const one = app.table(head);
      let most = -1;
      for (let column = 0; column < one.columns; column += 1) {
        if (one.kind(row, column) !== MASKED && (most < 0 || one.value(row, column) > one.value(row, most))) most = column;
      }
      return most < 0 ? null : [one.value(row, most), `head ${head} \u2192 ${quoted(one.columnText(most))} ${one.cell(row, most)}`];
    }).filter(Boolean).sort((a, b) => (b[0] || 0) - (a[0] || 0)).map(([, text]) => text);
    const more = best.length > 4 ? `; ${best.length - 4} more heads have less` : "";
    return `query ${quoted(table.rowText(row))}: largest ${best.slice(0, 4).join("; ") || "none: all keys are masked"}${more}`;
  }

  legend(app) {
    const rows = app.activeRows();
    const { found, total } = this.lines(app, rows, app.active()?.side === "key" ? app.active().column : null);
    const cut = found.length < total ? `the ${counted(found.length)} strongest of ${counted(total)} lines` : `${counted(total)} lines`;
    const table = app.table();
    return { heads: true, text: `lines: weights of at least 0.01, wider for more; ${cut} \u00b7 bars: `
      + `${sumText(app.table(null), rows)}, mean of ${this.headText(app)}${mergedText(table)} \u00b7 ${accuracy(table)}${hiddenText(table)}` };
  }
}
