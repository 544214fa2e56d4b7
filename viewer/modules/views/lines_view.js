// @ts-check

import { inside, ring } from "../drawing.js";
import { say } from "../language.js";
import { fitText, textWidth } from "../lettering.js";
import { cellText, clamp, counted, formatWeight, legendNumber } from "../numbers.js";
import { lineAlphaOf, lineWidthOf } from "../legend.js";
import { divergingColor } from "../palette.js";
import { drawPatch, patchSize } from "../patches.js";
import { evenMark, evenShareOfAll } from "../sentence.js";
import { MASKED, WEIGHT, hiddenText, measureText, mergedText, sumText } from "../table.js";
import { shortText } from "../text.js";
import { headStyle } from "../themes.js";
import { RecordView, specialText, widest } from "./record_view.js";

/** Lines that are drawn of what is pointed at, and behind it of all. */
const MOST_LINES = 1500;

const MOST_LINES_OF_ALL = 400;

/** The part of the largest number below which there is no line, and for weights the weight itself. */
const LEAST = 0.01;

/** The most from one token to the next, in pixels. */
const MOST_STEP = 52;

/** How near to a line the pointer must be, in pixels. */
const NEAR_LINE = 5;

/** How many numbers a tooltip lists. */
const LISTED = 4;

/** Two columns of tokens, a line for each weight by head, and a square for each head beside each token. */
export class LinesView extends RecordView {
  name = "lines";

  controls = ["record", "measure", "words", "special", "heads"];

  help = say("linesHelp");

  tapHelp = say("tapWord");

  geometry(app) {
    const table = app.table();
    const { width, height } = app.area;
    const heads = app.record.heads > 1 ? app.shownHeads().length : 0;
    const step = clamp((height - 34) / Math.max(1, table.rows, table.columns), 18, MOST_STEP);
    const size = step >= 32 ? 15 : step >= 26 ? 13 : 12;
    const squares = squareGrid(heads, step, clamp(width * 0.12, 26, 150));
    // Eight beside the lines, and room for a rounded width.
    const label = Math.min(180, width * (width < 500 ? 0.22 : 0.27), (Math.max(labelWidth(table, "row", step), labelWidth(table, "column", step)) * size) / 12 + 18);
    const bars = width < 560 ? 0 : clamp(width * 0.17, 64, 280);
    const sides = 2 * (label + squares.width + 10) + bars + 16;
    const spread = Math.max(40, Math.min(Math.max(520, 0.42 * width), width - sides));
    const left = Math.max(6, (width - sides - spread) / 2) + squares.width + 8 + label;
    const right = left + spread;
    return { table, step, size, label, squares, several: heads > 1, top: 26, left, right, bars, labels: { query: left - 8, key: right + 8 },
      boxes: { query: left - label - 6 - squares.width, key: right + label + 6 }, bar: right + label + squares.width + 18 };
  }

  size(app) {
    const { table, step, top } = this.geometry(app);
    return { width: app.area.width, height: top + Math.max(table.rows, table.columns) * step + 8 };
  }

  paperWidth(app) {
    return 620 + 2 * squareGrid(app.shownHeads().length, MOST_STEP, 150).width;
  }

  sumText(app) {
    return this.geometry(app).bars ? "wordsAddUp" : null;
  }

  y(place, number) {
    return place.top + (number + 0.5) * place.step;
  }

  draw(app, pen, win) {
    const place = this.geometry(app);
    const pointed = this.pointed(app);
    this.drawLines(app, pen, place, win, pointed);
    this.drawSquares(app, pen, place, win, pointed);
    if (place.bars) this.drawSums(app, pen, place, pointed.rows);
    this.drawTokens(app, pen, place, win, pointed);
    const style = { color: app.theme.muted, size: 12 };
    pen.text(say("linesAsk"), place.labels.query, 11, { ...style, align: "end" });
    pen.text(say("linesLooked"), place.labels.key, 11, style);
    const { rows } = pointed;
    if (place.bars) pen.text(rows.length > 1 ? say("sumOf", { count: rows.length }) : say(rows.length ? "given" : "onAverage"), place.bar, 11, style);
  }

  /** What is pointed at: queries (locked ones too), a key, a head; nothing of them where nothing is. */
  pointed(app) {
    const item = app.active();
    const rows = app.activeRows();
    const { locked } = app.state;
    const head = item?.head ?? null;
    if (item?.side === "line") return { rows: locked.length ? locked : [item.row], column: item.column, head, some: true };
    const column = item?.side === "key" ? item.column : null;
    return { rows, column, head, some: rows.length > 0 || column !== null };
  }

  /** The strongest numbers of the shown heads: those of chosen queries and of a key, or all. */
  lines(app, { rows, column, head }) {
    const heads = head === null ? app.shownHeads() : [head];
    const key = `${rows}|${column}|${heads}|${app.tableKey()}`;
    this.cache ??= new Map();
    if (this.cache.has(key)) return this.cache.get(key);
    const tables = heads.map((one) => app.table(one));
    const whole = app.table();
    const least = whole.measure === "weights" && !whole.signed ? LEAST : LEAST * this.end(app);
    const found = [];
    tables.forEach((table, number) => {
      const from = rows.length ? rows : Array.from({ length: table.rows }, (_, row) => row);
      for (const row of from) {
        for (let one = 0; one < table.columns; one += 1) {
          if (column !== null && one !== column) continue;
          const value = table.value(row, one);
          const size = Math.abs(value);
          if (table.kind(row, one) !== WEIGHT || !(size >= least) || size === 0) continue;
          found.push([value, heads[number], row, one]);
        }
      }
    });
    const total = found.length;
    found.sort((a, b) => Math.abs(b[0]) - Math.abs(a[0]));
    const most = rows.length || column !== null ? MOST_LINES : MOST_LINES_OF_ALL;
    if (total > most) found.length = most;
    const lines = { found, total, least };
    if (this.cache.size > 60) this.cache.clear();
    this.cache.set(key, lines);
    return lines;
  }

  /** The weight of the widest line and of the longest bar: the end of the scale of the shown heads. */
  end(app) {
    return app.shownHeads().reduce((most, head) => Math.max(most, app.table(head).end), 0);
  }

  /** All lines of the shown heads, faint behind what is pointed at. */
  background(app) {
    return this.lines(app, { rows: [], column: null, head: null });
  }

  /** How far the lines of a head are above or below the middle of a token. */
  shift(app, place, head) {
    const { heads } = app.record;
    return place.several ? (head / (heads - 1) - 0.5) * Math.min(8, place.step * 0.4) : 0;
  }

  drawLines(app, pen, place, win, pointed) {
    const all = this.background(app);
    const several = app.shownHeads().length > 1;
    this.drawSome(app, pen, place, win, all, pointed.some ? 0.5 : several ? 1 : 0);
    if (pointed.some) this.drawSome(app, pen, place, win, this.lines(app, pointed));
  }

  /** @param {number} faint how visible grey lines are; 0: lines have the colours of their heads */
  drawSome(app, pen, place, win, { found }, faint = 0) {
    const end = this.end(app);
    const several = app.shownHeads().length > 1;
    const { theme } = app;
    const forced = isForced(theme);
    for (let number = found.length - 1; number >= 0; number -= 1) {
      const [value, head, row, one] = found[number];
      const shift = this.shift(app, place, head);
      const [y0, y1] = [this.y(place, row) + shift, this.y(place, one) + shift];
      if (Math.max(y0, y1) < win.y || Math.min(y0, y1) > win.y + win.height) continue;
      const part = Math.sqrt(Math.abs(value) / (end || 1));
      if (faint) {
        pen.curve(place.left, y0, place.right, y1, { color: theme.muted, lineWidth: forced ? 0.5 : 0.5 + part, alpha: forced ? 0.3 : faint * (0.05 + 0.2 * part * part) });
        continue;
      }
      const { color, dash } = headStyle(head, theme, several);
      pen.curve(place.left, y0, place.right, y1, { color: place.table.signed && !forced ? divergingColor(Math.sign(value), theme) : color, dash,
        lineWidth: lineWidthOf(part), alpha: forced ? 1 : lineAlphaOf(part) });
    }
  }

  /**
   * What the square of a head beside a token stands for. Beside a key: what the chosen queries give it, or all on average.
   * Beside a query: what it gives to the key that is pointed at, or all that it gives.
   */
  square(app, side, number, head, { rows, column }) {
    const table = app.table(head);
    if (side === "query") {
      if (column !== null && !(rows.length && !rows.includes(number))) {
        return table.kind(number, column) === MASKED ? null : table.value(number, column);
      }
      return rows.includes(number) ? table.rowSums[number] : null;
    }
    const { values, kinds, divisor } = this.received(app, head, rows);
    return kinds[number] === MASKED ? null : values[number] / divisor;
  }

  /**
   * The largest distance of a square's number from the true one.
   * @param {any} app
   * @param {any} item
   * @param {{rows: number[], column: number|null}} pointed
   */
  squareError(app, item, { rows, column }) {
    const { side, row, column: key, head } = item;
    const table = app.table(head);
    if (side === "key") {
      const { errors, divisor } = this.received(app, head, rows);
      return errors[key] / divisor;
    }
    if (column !== null && !(rows.length && !rows.includes(row))) return table.error(row, column);
    let error = 0;
    for (let one = 0; one < table.columns; one += 1) error += table.error(row, one);
    return error;
  }

  /** What each key gets from the chosen queries, or the sum over all and their number. */
  received(app, head, rows) {
    const key = `${rows}|${head}|${app.tableKey()}`;
    this.receivedCache ??= new Map();
    if (!this.receivedCache.has(key)) {
      if (this.receivedCache.size > 500) this.receivedCache.clear();
      const table = app.table(head);
      const from = rows.length ? rows : table.seeing;
      this.receivedCache.set(key, { ...table.sumRows(from), divisor: rows.length ? 1 : from.length });
    }
    return this.receivedCache.get(key);
  }

  /** One head has its lines alone; several are told apart by a square each. */
  squaresShown(app) {
    return app.shownHeads().length > 1;
  }

  /** The squares of all shown heads, computed once for what is pointed at. */
  squares(app, pointed) {
    const heads = app.shownHeads();
    const key = `${pointed.rows}|${pointed.column}|${heads}|${app.tableKey()}`;
    if (this.squareCache?.key === key) return this.squareCache;
    const table = app.table();
    const values = {};
    for (const [side, count] of [["query", table.rows], ["key", table.columns]]) {
      values[side] = Array.from({ length: count }, (_, number) => heads.map((head) => this.square(app, side, number, head, pointed)));
    }
    // A weight's opacity is the weight itself; other numbers have no end but their largest.
    const largest = table.measure === "weights" ? 1
      : Object.values(values).flat(2).reduce((most, value) => Math.max(most, Math.abs(value || 0)), 0);
    this.squareCache = { key, heads, values, largest };
    return this.squareCache;
  }

  squareBox(place, side, number, order) {
    const { squares, step, top } = place;
    const [column, row] = [order % squares.columns, Math.floor(order / squares.columns)];
    return { x: place.boxes[side] + column * squares.pitch, y: top + number * step + (step - squares.height) / 2 + row * squares.pitch,
      width: squares.pitch - 1.5, height: squares.pitch - 1.5 };
  }

  drawSquares(app, pen, place, win, pointed) {
    const { theme } = app;
    const { heads, values, largest } = this.squares(app, pointed);
    const forced = isForced(theme);
    if (!place.squares.pitch || !this.squaresShown(app)) return;
    for (const side of ["query", "key"]) {
      const [first, last] = [Math.floor((win.y - place.top) / place.step) - 1, Math.ceil((win.y + win.height - place.top) / place.step)];
      for (let number = Math.max(0, first); number <= Math.min(last, values[side].length - 1); number += 1) {
        values[side][number].forEach((value, order) => {
          if (value === null) return;
          const box = this.squareBox(place, side, number, order);
          const color = place.table.signed && !forced ? divergingColor(Math.sign(value), theme) : headStyle(heads[order], theme).color;
          const part = Math.min(1, Math.abs(value) / (largest || 1));
          pen.rect(box.x, box.y, box.width, box.height, { stroke: theme.border, lineWidth: 0.6, alpha: forced ? 1 : 0.7 });
          // Forced colours cannot fade: the filled part of the square says how much.
          if (forced) pen.rect(box.x, box.y + box.height * (1 - part), box.width, box.height * part, { fill: color });
          else pen.rect(box.x, box.y, box.width, box.height, { fill: color, alpha: part });
        });
      }
    }
    const item = app.active();
    if (item?.head !== undefined && item.side !== "line") {
      const box = this.squareBox(place, item.side, item.side === "query" ? item.row : item.column, heads.indexOf(item.head));
      ring(pen, box.x, box.y, box.width, box.height, theme.focus, theme);
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
    const sums = { key, values: new Float64Array(count), errors: new Float64Array(count), masked: Array(count).fill(true) };
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
    this.sumCache = sums;
    return sums;
  }

  /** The table of the shown heads: of one, or the mean of several. */
  spoken(app) {
    const heads = app.shownHeads();
    return heads.length ? app.table(heads.length === 1 ? heads[0] : heads.length === app.record.heads ? null : heads) : null;
  }

  headText(app) {
    const heads = app.shownHeads();
    if (app.record.heads === 1) return app.record.oneHeadText;
    if (heads.length === app.record.heads) return say("allHeads", { count: heads.length });
    return heads.length === 1 ? say("headNumber", { head: app.record.headNumber(heads[0]) }) : say("someHeads", { shown: heads.length, count: app.record.heads });
  }

  drawSums(app, pen, place, rows) {
    const { theme } = app;
    const sums = this.sums(app, rows);
    const number = app.table().exact && place.bars > 70;
    const length = place.bars - (number ? 40 : 6);
    const end = this.end(app) * Math.max(1, rows.length);
    for (let column = 0; column < place.table.columns; column += 1) {
      const y = this.y(place, column);
      const value = sums.values[column];
      if (sums.masked[column]) { pen.hatch(place.bar, y - 4, 16, 8, theme); continue; }
      const wide = Math.max(1, Math.min(length, (length * Math.abs(value || 0)) / (end || 1)));
      pen.rect(place.bar, y - place.size / 2, wide, place.size,
        { fill: place.table.signed ? divergingColor(Math.sign(value), theme) : theme.muted, radius: 2 });
      if (number) {
        const text = Number.isNaN(value) ? "NaN" : cellText(value);
        pen.text(text, place.bar + wide + 6, y, { color: theme.muted, size: place.size - 1 });
      }
    }
  }

  drawTokens(app, pen, place, win, { rows, column }) {
    const { table } = place;
    const { theme } = app;
    const item = app.active();
    const one = (side, number) => {
      const y = this.y(place, number);
      if (y < win.y - 20 || y > win.y + win.height + 20) return;
      const row = side === "query";
      const [axis, group, text] = row ? [table.record.queries, table.rowGroups[number], table.rowText(number)]
        : [table.record.keys, table.columnGroups[number], table.columnText(number)];
      const locked = row && app.state.locked.includes(number);
      const chosen = locked || (row ? rows.includes(number) : column === number);
      const size = patchSize(axis, group, place.step - 2);
      const style = { size: place.size, bold: chosen };
      const shown = fitText(shortText(text), place.label - 12, style);
      const wide = size ? size.width + 8 : textWidth(shown, style) + 8;
      const box = { x: row ? place.labels.query - wide + 4 : place.labels.key - 4, y: y - place.step / 2 + 0.5, width: wide, height: place.step - 1 };
      if (chosen) pen.rect(box.x, box.y, box.width, box.height, { fill: locked ? theme.accent : theme.highlight, radius: 3, stroke: theme.accent });
      if (item && item.side === side && item[row ? "row" : "column"] === number && app.keyboard) {
        ring(pen, box.x, box.y, box.width, box.height, theme.focus, theme);
      }
      if (size) drawPatch(pen, axis, group[0], box.x + 4, y - size.height / 2, size, theme);
      else pen.text(shown, place.labels[side], y, { ...style, color: locked ? theme.accentText : theme.text, align: row ? "end" : "start" });
    };
    for (let row = 0; row < table.rows; row += 1) one("query", row);
    for (let key = 0; key < table.columns; key += 1) one("key", key);
  }

  hit(app, x, y) {
    const place = this.geometry(app);
    const number = Math.floor((y - place.top) / place.step);
    const { table } = place;
    for (const [side, count] of [["query", table.rows], ["key", table.columns]]) {
      const query = side === "query";
      if (number < 0 || number >= count || (query ? x > place.left - 2 : x < place.right + 2)) continue;
      const heads = app.shownHeads();
      const order = place.squares.pitch && this.squaresShown(app) ? heads.findIndex((_, at) => inside(this.squareBox(place, side, number, at), x, y)) : -1;
      const item = query ? { side, row: number } : { side, column: number };
      return order < 0 ? item : { ...item, head: heads[order] };
    }
    return x > place.left && x < place.right ? this.lineAt(app, place, x, y) : null;
  }

  /** The strongest line near a point: of the locked queries, or of all. */
  lineAt(app, place, x, y) {
    const { locked } = app.state;
    const { found } = locked.length ? this.lines(app, { rows: locked, column: null, head: null }) : this.background(app);
    const part = curvePart((x - place.left) / (place.right - place.left));
    let best = null;
    let least = NEAR_LINE;
    for (const [, head, row, column] of found) {
      const shift = this.shift(app, place, head);
      const [y0, y1] = [this.y(place, row) + shift, this.y(place, column) + shift];
      const far = Math.abs(y0 + (y1 - y0) * part - y);
      if (far < least - 0.01) { least = far; best = { side: "line", row, column, head }; }
    }
    return best;
  }

  place(app, item) {
    const place = this.geometry(app);
    if (item.side === "line") {
      const [y0, y1] = [this.y(place, item.row), this.y(place, item.column)];
      return { x: (place.left + place.right) / 2 - 1, y: (y0 + y1) / 2 - 1, width: 2, height: 2, frozenTop: 26 };
    }
    const query = item.side === "query";
    const number = query ? item.row : item.column;
    if (item.head !== undefined) return { ...this.squareBox(place, item.side, number, app.shownHeads().indexOf(item.head)), frozenTop: 26 };
    return { x: query ? place.left - place.label : place.right, y: place.top + number * place.step, width: place.label, height: place.step, frozenTop: 26 };
  }

  start() {
    return { side: "query", row: 0 };
  }

  move(app, item, dx, dy) {
    const table = app.table();
    const number = item.side === "key" ? item.column : item.row;
    const side = dx < 0 ? "query" : dx > 0 ? "key" : item.side === "line" ? "query" : item.side;
    const next = clamp(number + dy, 0, (side === "query" ? table.rows : table.columns) - 1);
    return side === "query" ? { side, row: next } : { side, column: next };
  }

  has(app, item) {
    return super.has(app, item) && (item.head === undefined || app.shownHeads().includes(item.head));
  }

  activate(app, item) {
    if (item.side === "query" && item.head === undefined) app.selection.toggleRow(item.row);
    else if (item.head !== undefined) app.set({ head: item.head });
  }

  describe(app, item) {
    const table = app.table();
    if (item.side === "line") {
      const one = app.table(item.head);
      return say("linesCell", { query: table.rowName(item.row), key: table.columnName(item.column),
        weight: one.cell(item.row, item.column), head: app.record.headNumber(item.head) });
    }
    const pointed = this.pointed(app);
    if (item.head !== undefined) return this.describeSquare(app, item, pointed);
    const [side, number] = item.side === "query" ? ["query", item.row] : ["key", item.column];
    if (side === "key" && (app.state.locked.length || !this.strongest(app, side, number).length)) return this.describeSum(app, number, pointed.rows);
    return this.describeStrongest(app, side, number, pointed.rows);
  }

  describeSquare(app, item, { rows, column }) {
    const table = app.table(item.head);
    const query = item.side === "query";
    const text = query ? table.rowName(item.row) : table.columnName(item.column);
    const value = this.square(app, item.side, query ? item.row : item.column, item.head, { rows, column });
    const shown = value === null ? say("masked") : formatWeight(value, this.squareError(app, item, { rows, column }));
    return say(query ? "squareOfQuery" : "squareOfKey", { head: app.record.headNumber(item.head), text, value: shown, what: sumText(table, rows) });
  }

  describeSum(app, column, rows) {
    const sums = this.sums(app, rows);
    const value = sums.masked[column] ? say("masked") : formatWeight(sums.values[column], sums.errors[column]);
    return say("keyGets", { key: app.table().columnName(column), value, what: sumText(app.table(null), rows), heads: this.headText(app) });
  }

  /** All pairs of a token and each head, the strongest first: [size, text, value, error]. */
  strongest(app, side, number) {
    const found = [];
    for (const head of app.shownHeads()) {
      const table = app.table(head);
      const count = side === "query" ? table.columns : table.rows;
      for (let other = 0; other < count; other += 1) {
        const [row, column] = side === "query" ? [number, other] : [other, number];
        if (table.kind(row, column) === MASKED) continue;
        const size = Math.abs(table.value(row, column));
        found.push({ size: Number.isNaN(size) ? Infinity : size, head, row, column, table });
      }
    }
    return found.sort((a, b) => b.size - a.size);
  }

  describeStrongest(app, side, number, rows) {
    const table = app.table();
    const several = app.shownHeads().length > 1;
    const all = this.strongest(app, side, number);
    const best = all.slice(0, LISTED).map((one) => say(several ? "strongOfHead" : "strong", { head: app.record.headNumber(one.head), weight: one.table.cell(one.row, one.column),
      token: side === "query" ? one.table.columnName(one.column) : one.table.rowName(one.row) }));
    const text = side === "query" ? table.rowName(number) : table.columnName(number);
    const more = Math.max(0, all.length - LISTED);
    const list = best.join(say("listed")) + (more ? say("fainter", { count: counted(more) }) : "");
    if (side === "query") return best.length ? say("linesLooks", { text, list, heads: this.headText(app) }) : say("linesBlind", { text });
    const sums = this.sums(app, rows);
    const mean = formatWeight(sums.values[number], sums.errors[number]);
    return say("linesGets", { text, list, mean, what: sumText(app.table(null), rows), heads: this.headText(app) });
  }

  legend(app) {
    const { found, total, least } = this.lines(app, this.pointed(app));
    const cut = found.length < total ? say("strongestLines", { shown: counted(found.length), total: counted(total) }) : "";
    const table = app.table();
    const squares = say(table.measure !== "weights" ? "squaresOfLargest" : isForced(app.theme) ? "squaresFilled" : "squaresFade");
    const parts = [mergedText(table), specialText(table), say("linesLegend", { cut, least: legendNumber(least) }), table.signed ? say("linesSigned") : "", this.pointed(app).some ? say("linesFaint") : "",
      this.squaresShown(app) ? say("linesSquares", { squares }) : "", this.barText(app)].filter(Boolean);
    return { ramp: "width", scale: "root", title: measureText(table), largest: this.end(app), ...evenMark(table, evenShareOfAll(table)),
      text: `${parts.join(" \u00b7 ")}${hiddenText(table)}` };
  }

  barText(app) {
    if (!this.geometry(app).bars || (app.activeRows().length === 1 && app.shownHeads().length === 1)) return "";
    const mean = app.shownHeads().length > 1 ? say("barsMean", { heads: this.headText(app) }) : "";
    return say("barsLegend", { what: sumText(app.table(null), app.activeRows()) }) + mean;
  }

  forget() {
    super.forget();
    this.squareCache = this.receivedCache = null;
  }
}

const isForced = (theme) => theme.forced === true;

/** How squares of so many heads fit beside a token: their distance, how many stand in a line, and the size of all. */
function squareGrid(heads, step, room) {
  const grid = squareLines(heads, step, room);
  return { ...grid, height: Math.ceil(heads / grid.columns) * grid.pitch };
}

function squareLines(heads, step, room) {
  if (!heads) return { pitch: 0, columns: 1, width: 0 };
  for (let pitch = 11; pitch > 4; pitch -= 0.5) {
    const lines = Math.max(1, Math.floor((step - 2) / pitch));
    const columns = Math.ceil(heads / lines);
    if (columns * pitch <= room) return { pitch, columns: Math.min(heads, Math.floor(room / pitch)), width: Math.min(heads, Math.floor(room / pitch)) * pitch };
  }
  const columns = Math.ceil(heads / Math.max(1, Math.floor((step - 2) / 4)));
  return { pitch: 4, columns, width: 4 * columns };
}

/** The room for the labels of a side: pictures of patches, or text. */
function labelWidth(table, side, step) {
  const [axis, groups] = side === "row" ? [table.record.queries, table.rowGroups] : [table.record.keys, table.columnGroups];
  const size = groups.length ? patchSize(axis, groups.at(-1), step - 2) : null;
  return size ? Math.max(24, size.width) : widest(table, side);
}

/** How far down a curve has come at a part of its way across: the curve of `pen.curve`. */
function curvePart(across) {
  let [low, high] = [0, 1];
  for (let round = 0; round < 24; round += 1) {
    const t = (low + high) / 2;
    const x = 1.5 * t * (1 - t) * (1 - t) + 1.5 * t * t * (1 - t) + t * t * t;
    if (x < across) low = t;
    else high = t;
  }
  const t = (low + high) / 2;
  return 3 * t * t - 2 * t * t * t;
}
