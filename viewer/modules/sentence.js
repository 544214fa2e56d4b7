// @ts-check

import { structure } from "./first_head.js";
import { say } from "./language.js";
import { formatWeight, percent, shortWeight } from "./numbers.js";
import { MASKED, measureText } from "./table.js";
import { quoted, shortText } from "./text.js";

/** A token inside a sentence, kept from changing the direction of the words around it. */
const named = (text) => `\u2068${shortText(text, 48)}\u2069`;

/** Keys of a row whose weights are named one by one. */
export const NAMED = 4;

const found = new WeakMap();

/**
 * The query with the most surprising key of a table (see `structure`); where none stands out, the largest weight of tokens that are not special.
 * @returns {{row: number, column: number}|null} null where no query sees a key
 */
export function mostSurprising(table) {
  if (!found.has(table)) found.set(table, search(table));
  return found.get(table);
}

function search(table) {
  const { rows, columns, record } = table;
  if (table.head !== null) {
    const best = structure(record, table.head);
    const place = (groups, position) => groups.findIndex(([start, stop]) => position !== null && start <= position && position < stop);
    const [row, column] = [place(table.rowGroups, best.row), place(table.columnGroups, best.column)];
    if (row >= 0 && column >= 0) return { row, column };
  }
  let best = null;
  for (let row = 0; row < rows; row += 1) {
    for (let column = 0; column < columns; column += 1) {
      if (!(table.value(row, column) > 0) || table.kind(row, column) === MASKED) continue;
      const special = record.queries.isSpecial(table.rowGroups[row]) || record.keys.isSpecial(table.columnGroups[column]);
      const score = table.value(row, column) - (special ? 1e6 : 0);
      if (!best || score > best.score) best = { score, row, column };
    }
  }
  return best && { row: best.row, column: best.column };
}

/** The keys of a row that are not masked, the largest weight first. */
export function byWeight(table, row) {
  const order = Array.from({ length: table.columns }, (_, column) => column).filter((column) => table.kind(row, column) !== MASKED);
  return order.sort((a, b) => Math.abs(table.value(row, b)) - Math.abs(table.value(row, a)));
}

/** What an even share of a row's weight would be, over the keys that it sees. */
export const evenShare = (table, row) => 1 / Math.max(1, byWeight(table, row).length);

/**
 * What a table says of a query, in numbers.
 * @param {number|null} column the key that is spoken of; null: the one with the largest weight
 * @returns {{text: string, shares: string}}
 */
export function sayOfRow(table, row, column = null) {
  const query = named(table.rowText(row));
  const order = byWeight(table, row);
  if (!order.length) return { text: say("seesNothing", { query }), shares: "" };
  const of = column ?? order[0];
  const key = named(table.columnText(of));
  const value = table.value(row, of);
  const whole = Math.abs(table.rowSums[row] + table.hidden[row] - 1) < 0.02;
  const text = table.kind(row, of) === MASKED ? say("mayNotSee", { query, key })
    : table.measure !== "weights" ? say("givesMeasure", { query, key, what: measureText(table), value: formatWeight(value, table.error(row, of)) })
    : Number.isNaN(value) ? say("noNumber", { query, key })
      : whole ? say("gives", { query, key, percent: percent(value) }) : say("givesWeight", { query, key, weight: shortWeight(value) });
  const parts = order.slice(0, NAMED).map((one) => `${named(table.columnText(one))} ${shortWeight(table.value(row, one))}`);
  const rest = order.slice(NAMED);
  if (rest.length) parts.push(say("moreKeys", { count: rest.length, weight: shortWeight(rest.reduce((sum, one) => sum + table.value(row, one), 0)) }));
  const even = table.measure === "weights" ? ` \u2014 ${say("evenShare", { weight: shortWeight(evenShare(table, row)) })}` : "";
  return { text, shares: `${query} \u2192 ${parts.join(" \u00b7 ")}${even}` };
}

/** What a table says of a query whose keys are the parts of a picture or of a sound: how few parts have how much. */
function sayOfParts(table, row) {
  const even = evenShare(table, row);
  const parts = byWeight(table, row).filter((column) => table.value(row, column) > 2 * even);
  const share = parts.reduce((sum, column) => sum + table.value(row, column), 0);
  return { text: say(table.record.keys.kind === "grid" ? "givesPatches" : "givesFrames", { query: named(table.rowText(row)), count: parts.length,
    all: table.columns, percent: percent(share) }), shares: say("partsShown", { weight: shortWeight(even) }) };
}

/** What a table says of a key: who looks at it most. */
function sayOfColumn(table, column) {
  let best = null;
  for (let row = 0; row < table.rows; row += 1) {
    if (table.kind(row, column) !== MASKED && (best === null || Math.abs(table.value(row, column)) > Math.abs(table.value(best, column)))) best = row;
  }
  const key = named(table.columnText(column));
  if (best === null) return { text: say("seenByNobody", { key }), shares: "" };
  if (table.measure !== "weights") return sayOfRow(table, best, column);
  return { text: say("lookedAt", { key, query: named(table.rowText(best)), percent: percent(table.value(best, column)) }), shares: "" };
}

/** What a table says of all its queries together. */
function sayOfAll(table) {
  const { values } = table.sumRows(table.seeing);
  const count = Math.max(1, table.seeing.length);
  const best = values.reduce((most, value, column) => (Math.abs(value) > Math.abs(values[most]) ? column : most), 0);
  if (!table.columns) return { text: "", shares: "" };
  const weight = values[best] / count;
  return { text: say("averageOver", { key: named(table.columnText(best)), weight: table.measure === "weights" ? percent(weight) : shortWeight(weight) }), shares: "" };
}

/** The pair that the sentence speaks of while nothing is pointed at: of the query that was locked last, else the most surprising one. */
export function featured(app) {
  if (!app.record || app.record.large || !app.view.ofTables || (app.state.overall && !app.state.locked.length)) return null;
  const table = app.table();
  const row = app.state.locked.at(-1);
  if (row !== undefined && row < table.rows) return { row, column: byWeight(table, row)[0] ?? 0 };
  return mostSurprising(table);
}

/** The sentence of what is shown, and the shares of its row. */
export function sentenceOf(app) {
  const item = app.active();
  if (app.view.sentence) return app.view.sentence(app, item);
  if (!app.view.ofTables || app.record.large) return { text: item ? app.view.describe(app, item) : "", shares: "" };
  const table = item?.head === undefined ? app.table() : app.table(item.head);
  if (item?.side === "key") return sayOfColumn(table, item.column);
  if (item?.row !== undefined && item.column === undefined && table.measure === "weights" && table.record.keys.kind !== "tokens") return sayOfParts(table, item.row);
  if (item?.row !== undefined) return sayOfRow(table, item.row, item.column ?? null);
  const best = featured(app);
  if (!best && app.state.overall) return sayOfAll(table);
  if (best && table.measure === "weights" && table.record.keys.kind !== "tokens" && byWeight(table, best.row).length > 8) return sayOfParts(table, best.row);
  return best ? sayOfRow(table, best.row, app.state.locked.length ? null : best.column) : { text: "", shares: "" };
}

/** What is said to screen readers while nothing is pointed at: of the view, or which rows are locked. */
export function selectionText(app) {
  const said = app.view?.said(app) ?? null;
  if (said !== null) return said;
  const { locked } = app.state;
  if (!locked.length || !app.record || app.record.large || app.view.name === "grid") return "";
  const table = app.table();
  const names = locked.filter((row) => row < table.rows).map((row) => quoted(table.rowText(row)));
  return say("lockedRows", { names: names.join(", ") });
}
