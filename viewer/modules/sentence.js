// @ts-check

import { relations } from "./head_statistics.js";
import { say } from "./language.js";
import { formatWeight, leftOfOne, legendNumber, percent, shortWeight, sumOf } from "./numbers.js";
import { clearestPair } from "./opening.js";
import { textsOf } from "./record_names.js";
import { MASKED, byWeight, measureText, seenKeys, sizeOf } from "./table.js";
import { quoted, shortText } from "./text.js";

/** A token inside a sentence, kept from changing the direction of the words around it. */
const named = (text, most = 48) => `\u2068${shortText(text, most)}\u2069`;

/** The same of a piece of a word, with the word. */
function namedOn(axis, group, text, most) {
  const word = axis.wordOf(group);
  return word === null ? named(text, most) : say("pieceOf", { piece: named(text, most), word: named(word, most) });
}

/** A query in a sentence, and a key; `most`: of how many letters. */
export const queryOf = (table, row, most) => namedOn(table.record.queries, table.rowGroups[row], table.rowText(row), most);
export const keyOf = (table, column, most) => namedOn(table.record.keys, table.columnGroups[column], table.columnText(column), most);

/** A query and a key in quotes, and which one it is of several words that are alike. */
const queryName = (table, row) => table.whichOne("queries", row, `\u201c${queryOf(table, row)}\u201d`);
const keyName = (table, column) => table.whichOne("keys", column, `\u201c${keyOf(table, column)}\u201d`);

/** The same in a list, where only the latter have quotes. */
const inList = (name) => name.replace(/^\u201c(.*)\u201d$/u, "$1");

/** Keys of a row whose weights are named one by one. */
export const NAMED = 4;

const found = new WeakMap();

/**
 * The pair of a table that stands out most; where none does, the largest weight of tokens that are not special.
 * @returns {{row: number, column: number}|null} null where no query sees a key
 */
export function mostSurprising(table) {
  if (!found.has(table)) found.set(table, search(table));
  return found.get(table);
}

function search(table) {
  const { rows, columns, record } = table;
  const pair = Number.isInteger(table.head) && !table.signed ? clearestPair(record, table.head) : null;
  if (pair) {
    const place = (groups, position) => groups.findIndex(([start, stop]) => start <= position && position < stop);
    const [row, column] = [place(table.rowGroups, pair.row), place(table.columnGroups, pair.column)];
    if (row >= 0 && column >= 0) return { row, column };
  }
  let best = null;
  for (let row = 0; row < rows; row += 1) {
    const alone = seenKeys(table, row).length === 1; // a query that sees one key has no choice
    for (let column = 0; column < columns; column += 1) {
      const size = table.signed ? Math.abs(table.value(row, column)) : table.value(row, column);
      if (!(size > 0) || table.kind(row, column) === MASKED) continue;
      const special = record.queries.isSpecial(table.rowGroups[row]) || record.keys.isSpecial(table.columnGroups[column]);
      const score = size - (alone ? 1e3 : 0) - (special ? 1e6 : 0);
      if (!best || score > best.score) best = { score, row, column };
    }
  }
  return best && { row: best.row, column: best.column };
}

const shares = new WeakMap();

/** What each key of the record gets of a row whose queries share their weight equally among the keys that they see. */
function sharesOfKeys(table, row) {
  if (!shares.has(table)) shares.set(table, []);
  const known = shares.get(table);
  if (known[row]) return known[row];
  const { record, rowGroups } = table;
  const keys = record.keys.length;
  const all = Array.from({ length: record.heads }, (_, head) => head);
  // One mask for all heads needs one look.
  const perHead = record.visible && record.maskEntry.shape.length === 3;
  const heads = !perHead ? [0] : table.head === null ? all : [table.head].flat();
  const share = new Float64Array(keys);
  let count = 0;
  for (const head of heads) {
    const seen = relations(record).seen(head);
    for (let query = rowGroups[row][0]; query < rowGroups[row][1]; query += 1) {
      const visible = Array.from({ length: keys }, (_, key) => key).filter((key) => !seen || seen[query * keys + key]);
      if (visible.length) count += 1;
      for (const key of visible) share[key] += 1 / visible.length;
    }
  }
  known[row] = share.map((sum) => sum / Math.max(1, count));
  return known[row];
}

/** What a column would get of a row's weight if that were shared equally among the keys of the record that the row sees. */
export function evenShareOf(table, row, column) {
  const share = sharesOfKeys(table, row);
  const [start, stop] = table.columnGroups[column];
  let sum = 0;
  for (let key = start; key < stop; key += 1) sum += share[key];
  return sum;
}

/** The equal share of the keys that rows see, where it is one number; null where it differs, or rows do not add up to 1. */
export function evenShare(table, rows) {
  if ([rows].flat().some((row) => table.counts[row] > 0 && !isWhole(table, row))) return null;
  let [low, high] = [Infinity, -Infinity];
  for (const row of [rows].flat()) {
    for (let column = 0; column < table.columns; column += 1) {
      if (table.kind(row, column) === MASKED) continue;
      const [start, stop] = table.columnGroups[column];
      for (const share of sharesOfKeys(table, row).subarray(start, stop)) {
        if (!(share > 0)) continue; // a later token of a causal record
        [low, high] = [Math.min(low, share), Math.max(high, share)];
        if (high - low > 1e-9) return null;
      }
    }
  }
  return high > 0 && high < 1 ? high : null;
}

/** What is said of an equal share, with the number of keys that it comes from. */
export const evenText = (name, { record: { keys } }, even) => say(name, { weight: shortWeight(even), keys: say(/** @type {any} */ (`even_${keys.entry.leading ? "tokens" : keys.kind}`), { count: Math.round(1 / even) }) });

/** The same as the mark of a legend. */
export const evenMark = (table, even) => ({ even, mark: even === null ? "" : evenText("evenMark", table, even) });

/** The equal share of all rows of a table. */
export const evenShareOfAll = (table) => evenShare(table, Array.from({ length: table.rows }, (_, row) => row));

/** The same of the sum or mean of rows (see `activeSums`): one row, or the mean of all; null for sums of several. */
export const evenShareOfSums = (table, { rows }) => (rows.length === 1 ? evenShare(table, rows) : rows.length ? null : evenShareOfAll(table));

/** Whether a sum of weights is 1 as it is printed, with two decimals; that of coded weights within their errors. */
export const isOne = (table, sum) => table.measure === "weights" && !table.signed && Math.abs(sum - 1) < (table.exact ? 0.005 : 0.02);

/** Whether a row's weights add up to 1, hidden keys included: parts of them are percent. */
export const isWhole = (table, row) => isOne(table, table.rowSums[row] + table.hidden[row]);

/** Whether the shown weights of every row add up to 1. */
export const rowsAddUp = (table) => table.rows > 0 && table.rowSums.every((sum) => isOne(table, sum));

/** A number of a table in a sentence: of numbers with signs, which have no whole, also the smallest have digits. */
const weightText = (table, value) => (table.signed && value !== 0 && Math.abs(value) < 0.01 ? legendNumber(value) : shortWeight(value));

/**
 * The weights of the strongest keys of a row as texts, and that of all others together, where there are more.
 * @param {number[]} order the keys of the row by weight
 * @returns {{weights: string[], others: number|null}} others: their sum
 */
export function strongestOf(table, row, order) {
  const first = order.slice(0, NAMED).map((column) => table.value(row, column));
  const weights = first.map((value) => weightText(table, value));
  if (order.length <= NAMED) return { weights, others: null };
  const others = order.slice(NAMED).reduce((sum, column) => sum + table.value(row, column), 0);
  const left = isOne(table, sumOf(first) + others) ? leftOfOne(weights) : null;
  return { weights: [...weights, weightText(table, left ?? others)], others };
}

/** How many keys of a row have their weights at their words. */
const MARKED = 3;

/** What the keys get that a query gives most, as texts: the first, those with more than two equal shares, and one that is asked for. */
export function markedKeys(table, row, asked = -1) {
  const order = byWeight(table, row).filter((column, place) => column === asked || !place || (place < MARKED && Math.abs(table.value(row, column)) > 2 * evenShareOf(table, row, column)));
  return new Map(order.map((column) => [column, isWhole(table, row) ? percent(table.value(row, column)) : shortWeight(table.value(row, column))]));
}

/** What stands between the statements of the line of numbers. */
export const APART = " \u2003 ";

const resting = new WeakMap();

/** What a word has, and punctuation has not. */
const LETTER = /[\p{L}\p{N}]/u;

/** What is true of all rows of a table: that each adds up to 1, in the words of a view, and how many words look most at a mark that the model adds, where most do. */
function textOfRows(table, whole) {
  if (!resting.has(table)) resting.set(table, sayWhereRest(table));
  return `${rowsAddUp(table) ? say(whole) : ""}${resting.get(table)}`.trim();
}

function sayWhereRest(table) {
  const { queries, keys } = table.record;
  if (table.signed || table.measure !== "weights" || queries.kind !== "tokens" || keys.kind !== "tokens") return "";
  const rows = Array.from({ length: table.rows }, (_, row) => row).filter((row) => !queries.isSpecial(table.rowGroups[row]) && LETTER.test(table.rowText(row)));
  const counts = new Map();
  for (const row of rows) {
    const [best] = byWeight(table, row);
    if (best !== undefined && keys.isSpecial(table.columnGroups[best])) counts.set(best, (counts.get(best) ?? 0) + 1);
  }
  const [column, count] = [...counts].sort((a, b) => b[1] - a[1] || a[0] - b[0])[0] ?? [0, 0];
  return 2 * count > rows.length ? say("mostRest", { count, all: rows.length, key: inList(keyName(table, column)) }) : "";
}

/**
 * What a table says of a query, in numbers.
 * @param {number|null} column the key that is spoken of; null: the one with the largest weight
 * @returns {{text: string, shares: string, plain?: boolean}} plain: whether `shares` is a sentence
 */
export function sayOfRow(table, row, column = null) {
  const query = queryName(table, row);
  const order = byWeight(table, row);
  if (!order.length) return { text: say("seesNothing", { query }), shares: "" };
  const of = column ?? order[0];
  const key = keyName(table, of);
  const value = table.value(row, of);
  const text = table.kind(row, of) === MASKED ? say("mayNotSee", { query, key })
    : table.measure !== "weights" ? say("givesMeasure", { query, key, what: measureText(table), value: formatWeight(value, table.error(row, of)) })
    : Number.isNaN(value) ? say("noNumber", { query, key })
      : isWhole(table, row) ? table.record.say("gives", { query, key, percent: percent(value) }) : table.record.say("givesWeight", { query, key, weight: weightText(table, value) });
  const { weights, others } = strongestOf(table, row, order);
  const parts = order.slice(0, NAMED).map((one, place) => `${inList(keyName(table, one))} ${weights[place]}`);
  if (others !== null) parts.push(say("moreKeys", { count: order.length - NAMED, weight: weights[NAMED] }));
  const even = evenShare(table, row);
  return { text, shares: [`${inList(query)} \u2192 ${parts.join(" \u00b7 ")}`, even === null ? "" : evenText("evenShare", table, even)].filter(Boolean).join(APART) };
}

/** Of how many heads the weights of a table are the mean. */
export const headsOf = (table) => (table.head === null ? table.record.heads : Array.isArray(table.head) ? table.head.length : 1);

/** What is said of a table, with the number of heads of which it is the mean, where there are several. */
export function withHeads(table, said) {
  const count = headsOf(table);
  return count > 1 && said.text ? { ...said, text: say("meanOfHeadsSays", { count, text: said.text }) } : said;
}

/** What a table says of a query whose keys are the parts of a picture or of a sound: how few parts have how much. */
function sayOfParts(table, row) {
  const even = evenShare(table, row);
  if (!isWhole(table, row) || even === null) return sayOfRow(table, row);
  const isPart = (column) => table.columnGroups[column][0] >= (table.record.keys.entry.leading ?? 0); // not what stands before the patches
  const parts = byWeight(table, row).filter((column) => isPart(column) && table.value(row, column) > 2 * even);
  const share = parts.reduce((sum, column) => sum + table.value(row, column), 0);
  return { text: table.record.say(table.record.keys.kind === "grid" ? "givesPatches" : "givesFrames", { query: queryName(table, row), count: parts.length,
    all: table.columnGroups.filter((_, column) => isPart(column)).length, percent: percent(share) }), shares: evenText("partsShown", table, even) };
}

/** What a table says of a key: who looks at it most. */
function sayOfColumn(table, column) {
  const seeing = Array.from({ length: table.rows }, (_, row) => row).filter((row) => table.kind(row, column) !== MASKED);
  const key = keyName(table, column);
  if (!seeing.length) return { text: say("seenByNobody", { key }), shares: "" };
  const best = seeing.reduce((most, row) => (sizeOf(table.value(row, column)) > sizeOf(table.value(most, column)) ? row : most));
  if (!isWhole(table, best)) return { text: sayOfRow(table, best, column).text, shares: "" };
  return { text: table.record.say("lookedAt", { key, query: queryName(table, best), percent: percent(table.value(best, column)) }), shares: "" };
}

/** What a table says of all its queries together. */
function sayOfAll(table) {
  const { seeing } = table;
  const { values, kinds } = table.sumRows(seeing);
  const columns = Array.from(values.keys()).filter((column) => kinds[column] !== MASKED);
  if (!seeing.length || !columns.length) return { text: table.columns ? say("noneSees") : "", shares: "" };
  const best = columns.reduce((most, column) => (sizeOf(values[column]) > sizeOf(values[most]) ? column : most));
  const weight = values[best] / seeing.length;
  const whole = seeing.every((row) => isWhole(table, row));
  return { text: say("averageOver", { key: keyName(table, best), weight: whole ? percent(weight) : weightText(table, weight) }), shares: "" };
}

/** The table that the sentence speaks of: that of the shown heads; null where a view shows none. */
export const spokenTable = (app) => (app.view.spoken ? app.view.spoken(app) : app.table());

/** The pair that the sentence speaks of while nothing is pointed at: of the query that was locked last, else the most surprising one. */
export function featured(app) {
  if (!app.record || app.record.large || !app.view.ofTables || (app.state.overall && !app.state.locked.length)) return null;
  const table = spokenTable(app);
  if (!table) return null;
  const row = app.state.locked.at(-1);
  if (row !== undefined && row < table.rows) return { row, column: byWeight(table, row)[0] ?? 0 };
  return mostSurprising(table);
}

/** The sentence of what is shown, and the shares of its row. */
export function sentenceOf(app) {
  const item = app.active();
  if (app.view.sentence) return app.view.sentence(app, item);
  if (!app.view.ofTables || app.record.large) return { text: item ? app.view.describe(app, item) : "", shares: "" };
  const table = item?.head === undefined ? spokenTable(app) : app.table(item.head);
  return table ? withHeads(table, saidOf(app, item, table)) : { text: "", shares: "" };
}

/** The most texts of which a sentence tells, and in which it looks for both words. */
const [MOST_TEXTS, MOST_SEARCHED] = [3, 12];

const rowsKnown = new WeakMap();

/** A query and a key in each of the texts that have both words: {text, table, row, column}; null where no other text has both. */
export function rowsOfTexts(app, table, row, column) {
  if (!rowsKnown.has(table)) rowsKnown.set(table, new Map());
  const [known, cell] = [rowsKnown.get(table), `${row} ${column}`];
  if (known.has(cell)) return known.get(cell);
  const { record } = table;
  const texts = textsOf(app.records);
  if (!texts || record.keys.kind !== "tokens" || !isWhole(table, row) || table.kind(row, column) === MASKED) return null;
  const [query, key] = [table.rowText(row), table.columnText(column)];
  const place = texts[record.entry.text].indexOf(record);
  const rows = [{ text: record.entry.text, table, row, column }];
  let waits = false;
  for (const other of texts.slice(0, MOST_SEARCHED).map((records) => records[place])) {
    if (rows.length >= MOST_TEXTS) break;
    if (!other || other === record || other.large || other.heads !== record.heads) continue;
    if (!other.decoded) {
      other.decode().then(() => app.resize());
      waits = true;
      continue;
    }
    const one = app.table(table.head, other);
    const [r, c] = [Array.from({ length: one.rows }, (_, number) => one.rowText(number)).indexOf(query), Array.from({ length: one.columns }, (_, number) => one.columnText(number)).indexOf(key)];
    if (r >= 0 && c >= 0 && one.kind(r, c) !== MASKED && isWhole(one, r)) rows.push({ text: other.entry.text, table: one, row: r, column: c });
  }
  const compared = rows.length > 1 ? rows.sort((a, b) => a.text - b.text) : null;
  if (!waits) known.set(cell, compared);
  return compared;
}

/** How much a query gives to a key in each of the texts that have both words; null where no other text has. */
function sayOfTexts(app, table, row, column) {
  const parts = rowsOfTexts(app, table, row, column)?.map((one) => say("shareInText", { percent: percent(one.table.value(one.row, one.column)), number: one.text + 1 }));
  if (!parts) return null;
  return say("givesTexts", { query: queryName(table, row), key: keyName(table, column), list: `${parts.slice(0, -1).join(say("listed"))}${say("listedLast")}${parts.at(-1)}` });
}

/** What is said of a query in a view: of several texts a comparison, and where its weights stand beside, what is true of all rows in place of them. */
function saidOfRow(app, table, row, column) {
  const said = sayOfRow(table, row, column);
  const whole = said.shares && app.view.sumText?.(app);
  return { ...said, text: (said.shares && sayOfTexts(app, table, row, column ?? byWeight(table, row)[0])) || said.text, ...(whole && { shares: textOfRows(table, whole), plain: true }) };
}

/** The same of a table, without its heads. */
function saidOf(app, item, table) {
  if (item?.side === "key") return sayOfColumn(table, item.column);
  if (item?.row !== undefined && item.column === undefined && table.measure === "weights" && table.record.keys.kind !== "tokens") return sayOfParts(table, item.row);
  if (item?.row !== undefined) return saidOfRow(app, table, item.row, item.column ?? null);
  const best = featured(app);
  if (!best && app.state.overall) return sayOfAll(table);
  if (best && table.measure === "weights" && table.record.keys.kind !== "tokens" && byWeight(table, best.row).length > 8) return sayOfParts(table, best.row);
  return best ? saidOfRow(app, table, best.row, app.state.locked.length ? null : best.column) : { text: "", shares: "" };
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
