// @ts-check

import { PatternView } from "./pattern_view.js";
import { PAIRED_HEIGHT, drawPairedBars, sideMaps } from "../both_sides.js";
import { Difference, commonSide, mostDifferentHead, otherHeads } from "../difference.js";
import { say } from "../language.js";
import { clamp, percent, shortWeight, signedWeight } from "../numbers.js";
import { textName } from "../record_names.js";
import { scaleText, withoutRows } from "../scales.js";
import { APART } from "../sentence.js";
import { MASKED, MISSING, WEIGHT } from "../table.js";
import { shortText } from "../text.js";

/** The most tokens that the legend names as left out. */
const MOST_NAMED = 6;

/** The map of one head minus that of another one: of the same record, or of one with the same tokens. */
export class DifferenceView extends PatternView {
  name = "difference";

  controls = ["record", "head", "other", "scale", "words", "special", "zoom"];

  scalesRows = false;

  ofTables = false;

  help = say("differenceHelp");

  barsHeight = PAIRED_HEIGHT;

  tapHelp = say("tapCell");

  available(app) {
    return app.records.some((record) => this.shows(record) && otherHeads(app, record).length > 0);
  }

  /** The other head: the chosen one, or the most different one. */
  other(app) {
    const { other, record, head } = app.state;
    const all = otherHeads(app, app.record);
    const { text } = app.records[other?.record]?.entry ?? {};
    const same = all.find((one) => one.record === other?.record && one.head === other?.head)
      ?? (text === app.record.entry.text ? null : all.find((one) => app.records[one.record].entry.text === text));
    if (same) return same;
    const { heads } = app.record;
    return heads > 1 ? { record, head: mostDifferentHead(app.record, head) } : all.find((one) => one.record !== record) ?? all[0];
  }

  /** The two tables' difference; null while the second is read, or where too few tokens are the same. */
  difference(app) {
    if (app.differs) return app.table();
    const chosen = this.other(app);
    const record = app.records[chosen.record];
    if (!record.decoded) {
      record.decode().then(() => app.resize()); // the legend has another height then
      return null;
    }
    app.makeExact(record);
    const [one, other] = [app.table(), app.table(chosen.head, record)];
    if (this.cache?.one !== one || this.cache?.other !== other) {
      const [rows, columns] = [commonSide(one, other, "row"), commonSide(one, other, "column")];
      this.cache = { one, other, found: rows && columns && new Difference(one, other, rows, columns) };
    }
    return this.cache.found;
  }

  /** The viewer with the difference in place of a head's weights, for what maps have in common; null where there is none. */
  shown(app) {
    if (app.differs) return app;
    const table = this.difference(app);
    const state = { ...app.state, scale: withoutRows(app.state.scale), locked: [] };
    return table && Object.create(app, { differs: { value: true }, table: { value: () => table }, state: { value: state }, featured: { value: () => (app.active() ? null : table.most) } });
  }

  /** The name of a head of a record, without the record where that is the shown one. */
  nameOf(app, { record, head }) {
    const of = app.records[record];
    const isOnOther = of.entry?.text !== app.records[app.state.record].entry?.text;
    const parts = record === app.state.record ? [] : [isOnOther ? textName(of, app.records) : app.recordText(of)];
    if (of.heads > 1) parts.push(head === null ? say("meanOfAll") : say("headNumber", { head: of.headNumber(head) }));
    return parts.join(" \u00b7 ");
  }

  /** The names of both heads, with their records where these differ. */
  names(app) {
    const chosen = this.other(app);
    const pair = [app.state, chosen].map((head) => app.records[head.record]);
    if (pair[0].entry?.text !== pair[1].entry?.text) return { one: textName(pair[0], app.records), other: textName(pair[1], app.records) };
    const [one, other] = [app.state, chosen].map((head) => {
      const name = this.nameOf(app, head);
      const record = app.recordText(app.records[head.record]);
      return !name || (chosen.record !== app.state.record && head === app.state) ? [record, name].filter(Boolean).join(" \u00b7 ") : name;
    });
    return { one, other };
  }

  headText(app) {
    return say("differenceOf", this.names(app)).trim();
  }

  /** Which head gives more to a key, and how much; or that none differs. */
  sentence(app, item) {
    const table = this.difference(app);
    if (!table) return { text: "", shares: "" };
    const names = this.names(app);
    const of = item ?? table.most;
    if (!of) return { text: table.rows && table.columns && !table.hasMissing ? say("differenceSame", names) : "", shares: "" };
    const { row, column } = of;
    const value = table.value(row, column);
    const pair = { query: table.rowName(row), key: table.columnName(column) };
    const [more, less] = value < 0 ? [names.other, names.one] : [names.one, names.other];
    const kind = table.kind(row, column);
    const text = kind === MASKED ? say("differenceHidden", pair) : kind === MISSING ? say("differenceMissing", pair)
      : value === 0 ? say("differenceEqual", { ...pair, ...names }) : say("differenceMore", { ...pair, one: more, other: less, difference: shortWeight(Math.abs(value)) });
    const { moved } = table;
    const shares = [kind === WEIGHT ? table.calculation(row, column) : "", this.finding(table, names), moved === null ? "" : say("differenceMoved", { percent: percent(moved) })];
    return { text, shares: shares.filter(Boolean).join(APART), plain: true };
  }

  /** Which keys, two at most, each head looks at more than the other one does, over all queries; "" where that is nearly the same. */
  finding(table, names) {
    const sums = Array.from({ length: table.columns }, (_, column) => Array.from({ length: table.rows }, (__, row) => table.value(row, column) || 0).reduce((sum, value) => sum + value, 0) / table.rows);
    const [keys, otherKeys] = [1, -1].map((sign) => {
      const most = sign * Math.max(...sums.map((sum) => sign * sum));
      const found = [...sums.keys()].filter((column) => sign * sums[column] > 0.05 && Math.abs(sums[column]) > Math.abs(most) / 2);
      return [...new Set(found.sort((a, b) => sign * (sums[b] - sums[a])).map((column) => table.columnName(column)))].slice(0, 2).join(say("listedLast"));
    });
    return keys && otherKeys ? say("differenceLook", { ...names, keys, otherKeys }) : "";
  }

  comparison(app, width) {
    return app.paper ? null : sideMaps(app, this.names(app), width, clamp(app.area.height - PAIRED_HEIGHT - 72, 100, 300));
  }

  drawBars(app, pen, table, item, room) {
    drawPairedBars(pen, table, item, this.names(app), room, app.theme);
  }

  geometry(app) {
    const shown = this.shown(app);
    return shown ? super.geometry(shown) : { table: { rows: 0, columns: 0 }, left: 0, top: 44, width: 1, height: 1, flat: true, whole: 1, bars: 0, wide: 0, compared: 0 };
  }

  draw(app, pen, win) {
    const shown = this.shown(app);
    if (shown) super.draw(shown, pen, win);
    else pen.text(this.reason(app), win.x + 12, win.y + 24, { color: app.theme.muted, size: 13 });
  }

  reason(app) {
    const record = app.records[this.other(app).record];
    if (!record.decoded) return say("differenceLoading");
    return say(record.keys.kind === "tokens" ? "differenceNone" : "differenceSize");
  }

  hit(app, x, y, win) {
    const shown = this.shown(app);
    return shown && super.hit(shown, x, y, win);
  }

  move(app, item, dx, dy) {
    const shown = this.shown(app);
    return shown ? super.move(shown, item, dx, dy) : item;
  }

  has(app, item) {
    const table = this.difference(app);
    return Boolean(table) && (item.row ?? 0) < table.rows && (item.column ?? 0) < table.columns;
  }

  activate() { /* a row of differences has nothing to keep */ }

  describe(app, item) {
    const table = this.difference(app);
    return say("differenceCell", { query: table.rowName(item.row), key: table.columnName(item.column), ...table.cellTexts(item.row, item.column) });
  }

  legend(app) {
    const table = this.difference(app);
    if (!table) return { ramp: null, samples: [], text: "" };
    const scale = withoutRows(app.state.scale);
    const left = table.leftOut().slice(0, MOST_NAMED + 1).map((text) => shortText(text, 16));
    const tokens = left.slice(0, MOST_NAMED).join(" ") + (left.length > MOST_NAMED ? " \u2026" : "");
    const samples = [[MASKED, say("masked"), table.hasMasked], [MISSING, "NaN", table.hasMissing]].filter(([, , has]) => has);
    const { width, height, compared } = this.geometry(app);
    const notes = [table.largest ? say("differenceSides", this.names(app)) : say("differenceZero"), table.largest && width >= 30 && height >= 18 ? say("differenceBlank") : "",
      compared ? say("differenceScale", { weight: shortWeight(table.end) }) : "",
      scale === "linear" ? "" : scaleText(scale), tokens && say("differenceLeftOut", { tokens })];
    return { ramp: "signed", title: say("differenceBar"), scale, largest: table.largest, signedText: signedWeight, samples, text: notes.filter(Boolean).join(" \u00b7 ") };
  }
}
