// @ts-check

import { drawKind, inside, ring } from "../drawing.js";
import { say } from "../language.js";
import { fitText, textWidth } from "../lettering.js";
import { clamp } from "../numbers.js";
import { divergingColor, inkOn, wordColors } from "../palette.js";
import { scaleText, withoutRows } from "../scales.js";
import { evenMark, evenShare, evenShareOf, evenShareOfSums, headsOf, markedKeys } from "../sentence.js";
import { WEIGHT, accuracy, activeSums, describeRow, hiddenText, measureText, mergedText, receivedText, signedShade, sumText } from "../table.js";
import { flowText, flowTexts, sizeOfToken, wordAbove } from "../text_flow.js";
import { RecordView, samplesOf, specialText } from "./record_view.js";

/** The sizes of a text: the first in which it fits its room, else the last. */
const SIZES = [44, 36, 32, 28, 24, 20, 18, 16];

/** The size on paper, where few and many words have a line of these widths. */
const [PAPER_SIZE, FEW_WORDS, PAPER_COLUMN, PAPER_PAGE] = [20, 60, 700, 1100];

/** Below this width the largest size is too large. */
const ROOMY = 1200;

/** The room between a word and its box, and between boxes. */
const [INSIDE, APART_BOXES] = [4, 3];

/** The most that a line is wide: in sizes of its letters, and in pixels where that is more; and the least room of the heading. */
const [LONGEST_LINE, LEAST_LINE, LEAST_ROOM] = [30, 960, 640];

/** The room at the upper and lower edge. */
const EDGE = 12;

/** The words of a text, shaded by their weight. */
export class WordsView extends RecordView {
  name = "words";

  controls = ["record", "head", "measure", "scale", "words", "special"];

  scalesRows = false;

  help = say("wordsHelp");

  tapHelp = say("tapWord");

  shows(record) {
    return !record.large && record.keys.kind === "tokens";
  }

  single(app) {
    return app.record.queries === app.record.keys;
  }

  geometry(app) {
    const table = app.table();
    const { width, height } = app.area;
    const key = `${app.tableKey()}|${width}|${height}|${app.record.number}|${app.paper}`;
    if (this.cache?.key === key) return this.cache.place;
    const texts = { keys: flowTexts(table, "column"), queries: this.single(app) ? null : flowTexts(table, "row") };
    const sizes = app.paper ? [PAPER_SIZE] : SIZES.slice(width < ROOMY ? 1 : 0);
    const place = sizes.reduce((/** @type {any} */ best, size) => (best && !best.cut && best.bottom <= height - EDGE ? best : this.flow(table, texts, app.area, size)), null);
    const { bottom } = place;
    // The middle of the text stands a little above that of a page; a phone's legend follows it.
    const down = width < 500 ? 0 : Math.max(0, Math.floor(0.4 * height - (place.first - 34 + bottom) / 2));
    for (const box of new Set([...place.queries, ...place.keys])) box.y += down;
    Object.assign(place, { top: place.top + down, bottom: bottom + down, first: place.first + down, height: width < 500 ? bottom + 8 : Math.max(bottom + 8, height) });
    this.cache = { key, place };
    return place;
  }

  /** The places of the words in one size, below the upper edge. */
  flow(table, texts, area, size) {
    const room = area.width - (area.width < 500 ? 32 - 2 * INSIDE : 80);
    const small = clamp(Math.round(size * 0.42), 11, 15);
    const height = Math.round(size * 1.32);
    const style = { size, height, lineHeight: height + small + Math.round(size * 0.4), padding: INSIDE, between: APART_BOXES };
    const first = area.width < 500 ? 44 : 52;
    const oneLine = [texts.keys, texts.queries ?? []].every((some) => flowText(some, 0, first, room, style).bottom <= first + height);
    const most = oneLine ? room : Math.min(room, Math.max(LEAST_LINE, LONGEST_LINE * size));
    const boxes = [texts.keys, texts.queries ?? []].flatMap((some) => flowText(some, 0, first, most, style).places);
    const used = Math.max(0, ...boxes.map((box) => box.x + box.width)) - Math.min(most, ...boxes.map((box) => box.x));
    const wide = Math.min(most, Math.max(Math.ceil(used), LEAST_ROOM));
    const left = Math.floor((area.width - wide) / 2);
    const queries = texts.queries ? flowText(texts.queries, left, first, wide, style) : null;
    const top = queries ? queries.bottom + small + 60 : first;
    const keys = flowText(texts.keys, left, top, wide, style);
    return { table, left, size, small, wide, top, first, bottom: keys.bottom + small + 4, cut: boxes.some((box) => box.width >= most), queries: queries?.places ?? keys.places, keys: keys.places,
      texts: { keys: texts.keys, queries: texts.queries ?? texts.keys }, rtl: { keys: keys.rtl, queries: (queries ?? keys).rtl } };
  }

  paperWidth(app) {
    return app.table().columns > FEW_WORDS ? PAPER_PAGE : PAPER_COLUMN;
  }

  /** On phones too, the text takes the room that the screen has. */
  below() {
    return -Infinity;
  }

  size(app) {
    return { width: app.area.width, height: this.geometry(app).height };
  }

  /** The weights that colour the words. */
  sums(app) {
    return activeSums(app, app.table());
  }

  draw(app, pen, win) {
    const place = this.geometry(app);
    const sums = this.sums(app);
    const { theme } = app;
    if (!this.single(app)) {
      this.drawHeading(app, pen, place, place.table.record.say("wordsAsking"), "", place.first - 34, place.rtl.queries);
      place.queries.forEach((box, row) => this.drawWord(app, pen, box, place.texts.queries[row], null, row));
      this.drawBoundary(app, pen, place, "queries");
    }
    const { rows } = sums;
    const what = rows.length === 1 ? place.table.record.say("whatOne", { query: `\u2068${place.texts.queries[rows[0]].shown}\u2069` })
      : say(rows.length ? "whatSeveral" : "whatAll");
    if (!app.paper || !this.single(app) || rows.length !== 1) this.drawHeading(app, pen, place, what, headsOf(place.table) > 1 ? app.headText() : "", place.top - 34, place.rtl.keys);
    const strongest = rows.length === 1 ? [...markedKeys(place.table, rows[0])] : [];
    const even = rows.length === 1 && evenShare(place.table, rows) !== null; // only what is looked at is coloured
    if (rows.length === 1 && strongest.length && this.single(app) && strongest[0][0] !== rows[0]) this.drawCurve(app, pen, place.keys[rows[0]], place.keys[strongest[0][0]], place.small);
    place.keys.forEach((box, column) => {
      if (box.y > win.y + win.height || box.y + box.height < win.y) return;
      const shade = signedShade(sums.values[column], sums.end, withoutRows(app.state.scale));
      const quiet = even && sums.kinds[column] === WEIGHT && sums.values[column] <= evenShareOf(place.table, rows[0], column);
      this.drawWord(app, pen, box, place.texts.keys[column], quiet ? null : { shade, kind: sums.kinds[column] }, this.single(app) ? column : null);
    });
    for (const [column, text] of strongest) {
      const box = place.keys[column];
      const style = { size: place.small, bold: true };
      pen.text(text, clamp(box.x + box.width / 2, place.left + textWidth(text, style) / 2, place.left + place.wide - textWidth(text, style) / 2), box.y + box.height + place.small * 0.7 + 1,
        { ...style, color: theme.text, align: "center" });
    }
    this.drawBoundary(app, pen, place, "keys");
    const item = app.active();
    if (item && app.keyboard) {
      const box = (item.side === "key" ? place.keys[item.column] : place.queries[item.row]);
      if (box) ring(pen, box.x, box.y, box.width, box.height, theme.focus, theme);
    }
  }

  /** A thin curve from the word that asks to the one that it looks at most. */
  drawCurve(app, pen, from, to, small) {
    const [x0, x1] = [from.x + from.width / 2, to.x + to.width / 2];
    const flat = from.y === to.y;
    const [y0, y1] = flat ? [from.y, to.y] : from.y > to.y ? [from.y, to.y + to.height + small + 4] : [from.y + from.height, to.y];
    // On one line it rises above the words; else it runs from line to line.
    const bends = flat ? [[x0, y0 - small - 12], [x1, y1 - small - 12]] : [[x0, (y0 + y1) / 2], [x1, (y0 + y1) / 2]];
    const at = (t, one) => (1 - t) ** 3 * [x0, y0][one] + 3 * t * (1 - t) ** 2 * bends[0][one] + 3 * t * t * (1 - t) * bends[1][one] + t ** 3 * [x1, y1][one];
    pen.path(Array.from({ length: 33 }, (_, step) => [at(step / 32, 0), at(step / 32, 1)]), { color: app.theme.accent, lineWidth: 1.5 });
    const down = y1 > bends[1][1] ? -7 : 7;
    pen.path([[x1 - 4, y1 + down], [x1, y1], [x1 + 4, y1 + down]], { color: app.theme.accent, lineWidth: 1.5 });
  }

  drawHeading(app, pen, place, text, aside, y, rtl) {
    const { theme } = app;
    const [x, align] = rtl ? [place.left + place.wide - INSIDE, "end"] : [place.left + INSIDE, "start"];
    const style = { size: 16, bold: true };
    const shown = fitText(text, place.wide, style);
    pen.text(shown, x, y, { ...style, color: theme.text, align });
    const used = textWidth(shown, style) + 10;
    const room = place.wide - used;
    if (aside && room > 60) {
      pen.text(fitText(aside, room, { size: 13 }), rtl ? x - used : x + used, y, { color: theme.muted, size: 13, align });
    }
  }

  /** A line before the first token that the model wrote itself. */
  drawBoundary(app, pen, place, side) {
    const { table } = place;
    const [axis, groups] = side === "keys" ? [table.record.keys, table.columnGroups] : [table.record.queries, table.rowGroups];
    const first = axis.entry.generated ?? null;
    const number = first === null ? -1 : groups.findIndex(([start]) => start >= first);
    if (number < 0) return;
    const box = place[side][number];
    const x = place.rtl[side] ? box.x + box.width + 1 : box.x - 1;
    const { theme } = app;
    pen.path([[x, box.y - 4], [x, box.y + box.height + 2]], { color: theme.accent, lineWidth: 2 });
    pen.text(say("written"), x, box.y - 9, { color: theme.accent, size: 11, align: place.rtl[side] ? "end" : "start" });
  }

  drawWord(app, pen, box, text, weight, row) {
    const { theme } = app;
    const { size } = this.cache.place;
    const colors = weight?.kind === WEIGHT ? colorsOf(weight.shade, app) : { fill: null, ink: theme.text };
    if (weight && weight.kind !== WEIGHT) drawKind(pen, weight.kind, box.x, box.y, box.width, box.height, theme);
    else if (colors.fill) pen.rect(box.x, box.y, box.width, box.height, { fill: colors.fill, radius: 3 });
    const chosen = row !== null && app.activeRows().includes(row);
    if (chosen) pen.rect(box.x + 1, box.y + 1, box.width - 2, box.height - 2, { stroke: theme.accent, lineWidth: 2.5, radius: 3 });
    const style = { size: sizeOfToken(text, size) };
    const color = text.special && !(weight?.shade > 0.2) ? theme.muted : colors.ink;
    pen.text(fitText(text.shown, box.width - (text.tight ? 0 : 4), style), box.x + box.width / 2, box.y + box.height / 2, { color, ...style, align: "center" });
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
    const along = place.rtl[item.side === "key" ? "keys" : "queries"] && Math.abs(dx) === 1 ? -dx : dx;
    let next = along ? clamp(index + along, 0, places.length - 1) : wordAbove(places, index, dy);
    let { side } = item;
    if (!this.single(app) && dy && next === index) {
      side = dy > 0 ? "key" : "query";
      next = side === item.side ? index : clamp(index, 0, (side === "key" ? place.keys : place.queries).length - 1);
    }
    return side === "key" ? { side, column: next } : { side, row: next };
  }

  activate(app, item) {
    app.selection.toggleRow(item.side === "query" ? item.row : this.single(app) ? item.column : null);
  }

  describe(app, item) {
    const table = app.table();
    if (item.side === "query") return describeRow(app, table, item.row);
    const sums = this.sums(app);
    return say("wordGets", { key: table.columnName(item.column), value: receivedText(sums, item.column), what: sumText(table, sums.rows),
      head: app.headText() });
  }

  legend(app) {
    const sums = this.sums(app);
    const table = app.table();
    const scale = withoutRows(app.state.scale);
    return { ramp: table.signed ? "signed" : "map", title: measureText(table), scale, largest: sums.end / sums.divisor,
      ...evenMark(table, evenShareOfSums(table, sums)), samples: samplesOf([...new Set(sums.kinds)]),
      text: [sums.rows.length === 1 ? "" : sumText(table, sums.rows), scale === "linear" ? "" : scaleText(scale), accuracy(table), mergedText(table),
        specialText(table), hiddenText(table).replace(/^ \u00b7 /, "")].filter(Boolean).join(" \u00b7 ") };
  }
}

function colorsOf(shade, app) {
  if (!app.table().signed) return wordColors(shade || 0, app.theme);
  const fill = divergingColor(shade || 0, app.theme);
  return { fill, ink: inkOn(fill) };
}
