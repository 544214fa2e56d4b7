// @ts-check

import { drawKind, inside, ring } from "../drawing.js";
import { say } from "../language.js";
import { fitText, textWidth } from "../lettering.js";
import { clamp } from "../numbers.js";
import { divergingColor, inkOn, wordColors } from "../palette.js";
import { BARS_ROOM, drawRowBars } from "../row_bars.js";
import { scaleText, withoutRows } from "../scales.js";
import { evenShareOfSums, headsOf } from "../sentence.js";
import { WEIGHT, accuracy, activeSums, describeRow, hiddenText, measureText, mergedText, receivedText, signedShade, sumText } from "../table.js";
import { flowText, flowTexts, wordAbove } from "../text_flow.js";
import { RecordView, samplesOf, specialText } from "./record_view.js";

/** The words of a text, shaded by their weight. */
export class WordsView extends RecordView {
  name = "words";

  title = say("words");

  controls = ["record", "head", "measure", "scale", "words", "special"];

  scalesRows = false;

  help = say("wordsHelp");

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
    const key = `${app.tableKey()}|${wide}|${app.record.number}`;
    if (this.cache?.key === key) return this.cache.place;
    const most = Math.max(table.rows, table.columns);
    const size = width < 500 || most > 120 ? 16 : most > 40 || width < 900 ? 20 : 28;
    const [keyTexts, queryTexts] = [flowTexts(table, "column"), this.single(app) ? null : flowTexts(table, "row")];
    const style = { size, lineHeight: 2 * size + 2 };
    const queries = queryTexts ? flowText(queryTexts, left, 40, wide, style) : null;
    const top = queries ? queries.bottom + 44 : 40;
    const keys = flowText(keyTexts, left, top, wide, style);
    const place = { table, left, size, queries: queries?.places ?? keys.places, keys: keys.places, top, bottom: keys.bottom, wide,
      texts: { keys: keyTexts, queries: queryTexts ?? keyTexts }, rtl: { keys: keys.rtl, queries: (queries ?? keys).rtl } };
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
    if (!this.single(app)) {
      this.drawHeading(app, pen, place, place.table.record.say("wordsAsking"), "", 20, place.rtl.queries);
      place.queries.forEach((box, row) => this.drawWord(app, pen, box, place.texts.queries[row], null, row));
      this.drawBoundary(app, pen, place, "queries");
    }
    const { rows } = sums;
    const what = rows.length === 1 ? place.table.record.say("whatOne", { query: `\u2068${place.texts.queries[rows[0]].shown}\u2069` })
      : say(rows.length ? "whatSeveral" : "whatAll");
    const aside = headsOf(place.table) > 1 ? `${sumText(place.table, rows)}, ${app.headText()}` : sumText(place.table, rows);
    this.drawHeading(app, pen, place, what, aside, place.top - 20, place.rtl.keys);
    place.keys.forEach((box, column) => {
      if (box.y > win.y + win.height || box.y + box.height < win.y) return;
      const shade = signedShade(sums.values[column], sums.end, withoutRows(app.state.scale));
      this.drawWord(app, pen, box, place.texts.keys[column], { shade, kind: sums.kinds[column] }, this.single(app) ? column : null);
    });
    this.drawBoundary(app, pen, place, "keys");
    if (rows.length === 1 && place.bottom + BARS_ROOM.height + 24 <= app.area.height) {
      drawRowBars(app, pen, place.table, rows[0], { x: place.left, y: place.bottom + 40 });
    }
    const item = app.active();
    if (item && app.keyboard) {
      const box = (item.side === "key" ? place.keys[item.column] : place.queries[item.row]);
      if (box) ring(pen, box.x, box.y, box.width, box.height, theme.focus, theme);
    }
  }

  drawHeading(app, pen, place, text, aside, y, rtl) {
    const { theme } = app;
    const [x, align] = rtl ? [place.left + place.wide, "end"] : [place.left, "start"];
    const style = { size: 13, bold: true };
    const shown = fitText(text, place.wide, style);
    pen.text(shown, x, y, { ...style, color: theme.text, align });
    const used = textWidth(shown, style) + 10;
    const room = place.wide - used;
    if (aside && room > 60) {
      pen.text(fitText(aside, room, { size: 11 }), rtl ? x - used : x + used, y, { color: theme.muted, size: 11, align });
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
    pen.text(fitText(text.shown, box.width - 4, { size }), box.x + box.width / 2, box.y + box.height / 2, { color: colors.ink, size, align: "center" });
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
      even: evenShareOfSums(table, sums), samples: samplesOf([...new Set(sums.kinds)]),
      text: [`${sumText(table, sums.rows)}, ${app.headText()}`, scale === "linear" ? "" : scaleText(scale), accuracy(table), specialText(table)].filter(Boolean).join(" \u00b7 ")
        + mergedText(table) + hiddenText(table) };
  }
}

function colorsOf(shade, app) {
  if (!app.table().signed) return wordColors(shade || 0, app.theme);
  const fill = divergingColor(shade || 0, app.theme);
  return { fill, ink: inkOn(fill) };
}
