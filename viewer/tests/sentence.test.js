// @ts-check

import assert from "node:assert/strict";
import { test } from "node:test";

import { AttentionData } from "../modules/attention_data.js";
import { Axis } from "../modules/axis.js";
import { explained } from "../modules/explained.js";
import { evenShare, evenShareOf, evenShareOfAll, evenShareOfSums, rowsAddUp, sayOfRow, sentenceOf } from "../modules/sentence.js";
import { Table, byWeight } from "../modules/table.js";
import { WORDS } from "../modules/words.js";
import { LinesView } from "../modules/views/lines_view.js";

/** A decoded record of weights [heads][queries][keys]; negative: masked. */
function recordOf(weights, { kind = "self", special = [], words = [] } = {}) {
  const [queries, keys] = [weights[0].length, weights[0][0].length];
  const axis = (length, name, more = {}) => new Axis({ kind: "tokens", length, tokens: Array.from({ length }, (_, one) => `${name}${one}`), special, words, ...more });
  const axes = queries === keys ? [axis(keys, "t"), axis(keys, "t")] : [axis(queries, "q", { special: [], words: [] }), axis(keys, "t")];
  const flat = weights.flat(2);
  const hidden = flat.some((weight) => weight < 0);
  const entry = { kind, layer: 0, name: "a", heads: weights.length, queries: 0, keys: 1, exact: null, overview: null, statistics: null, codes: { maximum: 1 }, visible: hidden ? 0 : null };
  const record = new AttentionData(entry, 0, axes, [{ shape: [weights.length, queries, keys] }]);
  record.exact = Float32Array.from(flat, (weight) => (weight < 0 ? 0 : weight));
  record.codes = Uint8Array.from(flat, (weight) => (weight > 0 ? 1 + Math.round(253 * Math.sqrt(weight)) : 0));
  if (hidden) record.visible = Uint8Array.from(flat, (weight) => Number(!(weight < 0)));
  return record;
}

const tableOf = (weights, options = {}, more = {}) => new Table(recordOf(weights, more), "head" in options ? options.head : 0, { words: false, hideSpecial: false, measure: "weights", ...options });

const uniform = (queries, keys) => Array.from({ length: queries }, () => Array(keys).fill(1 / keys));

/** A viewer that shows a table of a record. */
function appOf(record, state = {}, view = /** @type {any} */ ({ name: "pattern", ofTables: true })) {
  const app = /** @type {any} */ ({ record, records: [record], view, state: { head: 0, heads: null, locked: [], overall: false, words: false, hideSpecial: false, measure: "weights", ...state },
    active: () => null, table(head = app.state.head) { return new Table(record, head, app.state); },
    shownHeads: () => app.state.heads ?? (app.state.head === null ? Array.from({ length: record.heads }, (_, head) => head) : [app.state.head]) });
  return app;
}

const plain = (text) => text.replaceAll(/[\u2068\u2069]/g, "").replaceAll("\u00a0", " ");

test("an equal share is one of the record's visible keys, whatever columns are shown", () => {
  const whole = [uniform(4, 4)];
  assert.equal(evenShare(tableOf(whole), 0), 0.25);
  assert.equal(evenShare(tableOf(whole, { hideSpecial: true }, { special: [0, 3] }), 0), 0.25);
  const merged = tableOf(whole, { words: true }, { words: [0, 3] });
  assert.deepEqual([0, 1].map((column) => evenShareOf(merged, 0, column)), [0.75, 0.25]);
  assert.equal(evenShare(merged, 0), 0.25); // of each of its keys
  assert.match(sayOfRow(merged, 0).shares, /an equal share is 0\.25 \(1 ÷ 4 tokens\)$/);
});

test("a piece of a word is named with its word, where words are not joined", () => {
  const words = { words: [0, 3] };
  const table = tableOf([[[0.1, 0.2, 0.3, 0.4], ...uniform(3, 4)]], {}, words);
  const { text, shares } = sayOfRow(table, 0, 2);
  assert.equal(plain(text), "\u201ct0 (of t0t1t2)\u201d gives 30 % of its attention to \u201ct2 (of t0t1t2)\u201d.");
  assert.match(plain(shares), /t3 0\.40 · t2 \(of t0t1t2\) 0\.30/);
  assert.equal(plain(table.columnName(2)), "\u201ct2\u201d (of \u201ct0t1t2\u201d)");
  assert.doesNotMatch(sayOfRow(tableOf([uniform(4, 4)], { words: true }, words), 0).text, /of t0/);
});

test("a causal record without a mask shares among the keys that come before", () => {
  const causal = Array.from({ length: 4 }, (_, row) => Array.from({ length: 4 }, (__, key) => (key <= row ? 1 / (row + 1) : 0)));
  const table = tableOf([causal], {}, { kind: "causal" });
  assert.deepEqual([0, 1, 3].map((row) => evenShare(table, row)), [null, 0.5, 0.25]);
  assert.match(sayOfRow(table, 1).shares, /share is 0\.50/);
  assert.equal(evenShareOfAll(table), null);
  assert.equal(evenShareOfSums(table, { rows: [1] }), 0.5);
  const masked = tableOf([causal.map((row) => row.map((weight) => weight || -1))]);
  assert.equal(evenShare(masked, 1), 0.5);
});

test("a mean over heads with masks of their own shares within each head", () => {
  const table = tableOf([[[1, -1, -1, -1]], [[-1, 0.5, 0.5, -1]]], { head: null });
  assert.deepEqual([0, 1, 2, 3].map((column) => evenShareOf(table, 0, column)), [0.5, 0.25, 0.25, 0]);
});

test("only rows that add up to 1 are told as percent", () => {
  const sigmoid = recordOf([[[0.9, 0.8, 0.7], [0.6, 0.9, 0.8], [0.9, 0.7, 0.6]]]);
  for (const app of [appOf(sigmoid), appOf(sigmoid, { overall: true }), Object.assign(appOf(sigmoid), { active: () => ({ side: "key", column: 1 }) })]) {
    assert.doesNotMatch(sentenceOf(app).text, /%/);
  }
  const softmax = recordOf([uniform(3, 4)]);
  assert.match(sentenceOf(appOf(softmax, { overall: true })).text, /25\u00a0%/);
});

test("what is no number is not the most", () => {
  const record = recordOf([[[NaN, 0.2, 0.8], [0.3, 0.3, 0.4], [NaN, 0.4, 0.6]]]);
  const table = new Table(record, 0, { words: false, hideSpecial: false, measure: "weights" });
  assert.deepEqual(byWeight(table, 0), [2, 1, 0]);
  const app = Object.assign(appOf(record), { active: () => ({ side: "key", column: 0 }) });
  assert.equal(plain(sentenceOf(app).text), "\u201ct1\u201d looks at \u201ct0\u201d most: with 30 % of its attention.");
  assert.match(sentenceOf(appOf(record, { overall: true })).text, /t2/);
});

test("where the mask hides all, nothing gets most", () => {
  const app = appOf(recordOf([[[-1, -1], [-1, -1]]]), { overall: true });
  assert.equal(sentenceOf(app).text, "No query may look at any key.");
});

test("the sentence below lines is of the heads with lines", () => {
  const point = (key) => Array.from({ length: 4 }, () => Array.from({ length: 4 }, (_, one) => (one === key ? 0.7 : 0.1)));
  const record = recordOf([point(0), point(1), point(2)]);
  const view = Object.assign(new LinesView(), { sumText: () => null });
  assert.match(sentenceOf(appOf(record, { heads: [2], locked: [1] }, view)).text, /70\u00a0% .*t2/);
  assert.deepEqual(sentenceOf(appOf(record, { heads: [], locked: [1] }, view)), { text: "", shares: "" });
  assert.match(sentenceOf(appOf(record, { heads: [1, 2], locked: [3] }, view)).shares, /t1\S* 0\.40 · \S*t2\S* 0\.40 · \S*t0\S* 0\.10/);
  assert.match(sentenceOf(appOf(record, { head: null, locked: [3] }, view)).shares, /0\.30 · \S*t1\S* 0\.30 · \S*t2\S* 0\.30/);
});

test("a sentence of a mean says of how many heads it is", () => {
  const record = recordOf([uniform(3, 4), uniform(3, 4), [[1, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]]]);
  const said = (state, active = () => null, view = undefined) => plain(sentenceOf(Object.assign(appOf(record, state, view), { active })).text);
  assert.match(said({ head: null }), /^Mean of 3 heads: \u201cq\d\u201d gives 50 % of its attention to \u201ct0\u201d\.$/);
  assert.match(said({ head: null }, () => ({ side: "key", column: 0 })), /^Mean of 3 heads: /);
  assert.match(said({ head: null, overall: true }), /^Mean of 3 heads: On average/);
  assert.match(said({ heads: [0, 2] }, () => null, Object.assign(new LinesView(), { sumText: () => null })), /^Mean of 2 heads: .* 63 %/);
  for (const head of [0, 2]) assert.doesNotMatch(said({ head }), /Mean/);
});

test("a number of a row has the same digits in its cell, at its bar and in the sentence, and the others are what these leave of 1", () => {
  const row = [0.415, 0.195, 0.085, 0.125, 0.065, 0.045, 0.07];
  const table = tableOf([[row, row]]);
  const { text, shares } = sayOfRow(table, 0);
  assert.deepEqual(shares.split("\u2003")[0].match(/0\.\d+/g), ["0.42", "0.20", "0.13", "0.09", "0.16"]);
  assert.deepEqual([0, 1, 3, 2].map((column) => table.numberText(row[column])), [".42", ".20", ".13", ".09"]);
  assert.match(plain(text), /gives 42 % of/);
  const nearly = sayOfRow(tableOf([[[0.9999, 0.0001], [0.5, 0.5]]]), 0);
  assert.match(plain(nearly.text), /gives > 99 % of/);
  assert.match(nearly.shares, />0\.99 · .* <0\.0001/);
});

test("the card of a weight says that rows add up to 1 only where they do", () => {
  assert.ok(rowsAddUp(tableOf([uniform(3, 4)])));
  assert.ok(!rowsAddUp(tableOf([[[0.9, 0.8], [0.7, 0.6]]])));
  assert.ok(!rowsAddUp(tableOf([uniform(4, 4)], { hideSpecial: true }, { special: [0] })));
  assert.ok(!rowsAddUp(tableOf([[[0.5, 0.5], [-1, -1]]])));
  const view = { name: "pattern", place: () => ({ x: 0, y: 0, width: 1, height: 1 }), geometry: () => ({ left: 0, top: 0 }) };
  const cards = (weights) => explained(Object.assign(appOf(recordOf([weights]), {}, view), { featured: () => ({ row: 0, column: 0 }) }));
  const told = (weights) => cards(weights).some((card) => card.text.includes("adds up to 1"));
  assert.deepEqual([told(uniform(2, 2)), told([[0.9, 0.8], [0.7, 0.6]])], [true, false]);
});

test("the error of a square is that of its sum", () => {
  const record = recordOf([[[0.25, 0.75], [0.5, 0.5]], [[0.5, 0.5], [0.5, 0.5]]]);
  record.exact = null;
  record.measures = { contributions: { shape: [2, 2, 2], values: new Float32Array(8).fill(10) } };
  const app = appOf(record, { measure: "contributions", head: null });
  app.table = (head = null) => { app.made ??= new Map(); if (!app.made.has(head)) app.made.set(head, new Table(record, head, app.state)); return app.made.get(head); };
  app.tableKey = () => "";
  const view = Object.assign(new LinesView(), { sumText: () => null });
  const error = view.squareError(app, { side: "query", row: 0, head: 0 }, { rows: [0], column: null });
  const table = app.table(0);
  assert.equal(error, table.error(0, 0) + table.error(0, 1));
  assert.ok(error > 0.01);
  assert.equal(view.squareError(app, { side: "key", column: 1, head: 0 }, { rows: [0, 1], column: null }), table.error(0, 1) + table.error(1, 1));
});

test("the query of pooling, or the label that stands for it, looks at nothing", () => {
  const record = recordOf([[[0.7, 0.2, 0.1]]], { kind: "cross" });
  record.entry.name = "pooling";
  const table = new Table(record, 0, { words: false, hideSpecial: false, measure: "weights" });
  assert.equal(plain(sayOfRow(table, 0).text), "\u201ct0\u201d has 70 % of the weight in the whole input.");
  const pooled = Object.keys(WORDS).filter((key) => key.endsWith("Pooled"));
  assert.ok(pooled.length > 8);
  for (const key of pooled) {
    assert.ok(key.slice(0, -"Pooled".length) in WORDS, key);
    assert.doesNotMatch(record.say(key.slice(0, -"Pooled".length), { query: "good", key: "t0" }), /look|good|asks|看/, key);
  }
  record.entry.name = "a";
  assert.match(plain(sayOfRow(table, 0).text), /^\u201cq0\u201d gives 70 %/);
});
