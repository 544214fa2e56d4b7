// @ts-check

import assert from "node:assert/strict";
import { test } from "node:test";

import { AttentionData } from "../modules/attention_data.js";
import { Axis } from "../modules/axis.js";
import { headLabel, headLabels, labelText, leftOutText, statisticsOf } from "../modules/head_labels.js";
import { clearestHead, clearestPair } from "../modules/opening.js";

/** A decoded record of weights [heads][queries][keys]; negative: masked. */
function recordOf(weights, tokens, { kind = "self", special = tokens[0] === "[CLS]" ? [0] : [], words = [], number = 0, statistics = null } = {}) {
  const axis = new Axis({ kind: "tokens", length: tokens.length, tokens, special, words });
  const flat = weights.flat(2);
  const hidden = flat.some((weight) => weight < 0);
  const entry = { kind, layer: 0, name: "a", heads: weights.length, queries: 0, keys: 0, exact: null, overview: null, statistics,
    codes: { maximum: 1 }, visible: hidden ? 0 : null };
  const record = new AttentionData(entry, number, [axis], [{ shape: [weights.length, tokens.length, tokens.length] }]);
  record.exact = Float32Array.from(flat, (weight) => Math.max(weight, 0));
  record.codes = Uint8Array.from(flat, (weight) => (weight > 0 ? 1 + Math.round(253 * Math.sqrt(weight)) : 0));
  if (hidden) record.visible = Uint8Array.from(flat, (weight) => Number(weight >= 0));
  return record;
}

const TOKENS = ["[CLS]", "the", "cat", "saw", "the", "dog", "and", "the", "cat", "saw", "a", "dog", "."];
const square = (weight) => TOKENS.map((_, query) => TOKENS.map((__, key) => weight(query, key)));

/** Most of the weight on chosen keys, the rest alike on all; alike where there is no such key. */
function pointing(chosen, part = 0.8) {
  return square((query, key) => {
    const count = TOKENS.filter((_, one) => chosen(query, one)).length;
    return (count && chosen(query, key) ? part / count : 0) + (count ? 1 - part : 1) / TOKENS.length;
  });
}

const same = (query, key) => TOKENS[query] === TOKENS[key] && query !== key;

const HEADS = {
  "offset -1": pointing((query, key) => key === query - 1),
  "offset +1": pointing((query, key) => key === query + 1),
  "offset 0": pointing((query, key) => key === query),
  "offset -3": pointing((query, key) => key === query - 3),
  near: pointing((query, key) => Math.abs(key - query) <= 2, 1),
  first: pointing((_, key) => key === 0),
  same_token: pointing(same, 0.9),
  induction: pointing((query, key) => key < query && key > 0 && TOKENS[key - 1] === TOKENS[query], 0.9),
  even: square(() => 1 / TOKENS.length),
};

test("a head is named after what it does", () => {
  const record = recordOf(Object.values(HEADS), TOKENS);
  Object.keys(HEADS).forEach((name, head) => assert.equal(headLabels(record, head)[0]?.name, name, name));
});

test("the first token is a special one, others are told apart from it", () => {
  const ends = pointing((_, key) => key === 0 || key === TOKENS.length - 1);
  const record = recordOf([ends, HEADS.first], TOKENS, { special: [0, TOKENS.length - 1] });
  assert.deepEqual([0, 1].map((head) => headLabel(record, head)?.name), ["special", "first"]);
});

test("the parts of a word look at each other", () => {
  const tokens = ["un", "##see", "##n", "trans", "##lat", "##or", "a", "b"];
  const words = [0, 3, 6, 7];
  const word = [0, 0, 0, 1, 1, 1, 2, 3];
  const weights = tokens.map((_, query) => tokens.map((__, key) => {
    const others = word.filter((one, place) => one === word[query] && place !== query).length;
    return others ? Number(word[key] === word[query] && key !== query) / others : 1 / tokens.length;
  }));
  assert.ok(headLabels(recordOf([weights], tokens, { words }), 0).some((label) => label.name === "same_word" && label.share === 1));
});

test("noise has no name, and what few queries can show has none", () => {
  let seed = 1;
  const random = () => { seed = (seed * 48271) % 2147483647; return seed / 2147483647; };
  for (let round = 0; round < 40; round += 1) {
    const rows = square(() => (-Math.log(random())) ** 3);
    const noise = rows.map((row) => { const sum = row.reduce((a, b) => a + b, 0); return row.map((one) => one / sum); });
    assert.deepEqual(headLabels(recordOf([noise], TOKENS), 0).filter((label) => label.name !== "even"), []);
  }
  assert.deepEqual(headLabels(recordOf([[[0.5, 0.5], [1, 0]]], ["a", "b"]), 0), []);
});

test("a mean over queries leaves out those that have no such key, and says so", () => {
  const tokens = Array.from({ length: 15 }, (_, place) => `t${place}`);
  const rows = tokens.map((_, query) => tokens.map((__, key) => (query === 0 ? Number(key === 0) : key === query - 1 ? 0.9999 : key === query ? 0.0001 : 0)));
  const record = recordOf([rows], tokens, { kind: "causal" });
  const [label] = headLabels(record, 0);
  assert.equal(label.name, "offset -1");
  assert.equal(labelText(label, record), "previous token >\u00a099\u00a0%");
  assert.equal(leftOutText(label), "over the 14 of 15 queries that have one");
  assert.equal(leftOutText(headLabels(recordOf([HEADS["offset 0"]], TOKENS), 0)[0]), "");
});

test("the clearest head comes first, of equal ones the first, and its pair where it has one", () => {
  const record = (number, openings) => /** @type {any} */ ({ number, heads: 2, entry: { openings } });
  const records = [record(0, [[0.5, null, null], [2.5, 3, 1]]), record(1, [[2.5, 1, 0], [0, null, null]])];
  assert.deepEqual(clearestHead(records), { record: 0, head: 1 });
  assert.deepEqual([clearestPair(records[0], 1), clearestPair(records[0], 0), clearestPair(records[1], 5)], [{ row: 3, column: 1 }, null, null]);
  assert.deepEqual(clearestHead([record(0, undefined)]), { record: 0, head: 0 }); // a payload from elsewhere
  assert.equal(clearestHead([]), null);
});

test("chance counts visible keys alone", () => {
  const causal = square((query, key) => (key > query ? -1 : 1 / (query + 1)));
  const { patterns, relativeEntropy } = statisticsOf(recordOf([causal], TOKENS, { kind: "causal" }), 0);
  const first = TOKENS.slice(1).reduce((sum, _, row) => sum + 1 / (row + 2), 0) / (TOKENS.length - 1);
  assert.ok(Math.abs(patterns.first.chance - first) < 1e-12 && Math.abs(patterns.first.share - first) < 1e-6);
  assert.ok(Math.abs(relativeEntropy - 1) < 1e-6);
});

test("a survey's name comes before that of one text", () => {
  const values = { first: 0.1, "offset -1": 0.62, entropy: 9, same_token: null };
  const record = recordOf([HEADS.first], TOKENS, { statistics: [values] });
  assert.equal(labelText(headLabel(record, 0), record), "previous token 62\u00a0%");
  const without = recordOf([HEADS.first], TOKENS, { statistics: [{ loss: 0.5 }] });
  assert.equal(headLabel(without, 0)?.name, "first");
});

test("where every key is of a pattern, nothing is clear", () => {
  const weights = Array.from({ length: 4 }, () => [1]);
  const axes = [["a", "b", "c", "d"], ["x"]].map((tokens) => new Axis({ kind: "tokens", length: tokens.length, tokens, special: [], words: [] }));
  const record = new AttentionData({ kind: "cross", layer: 0, name: "a", heads: 1, queries: 0, keys: 1, exact: null, overview: null, statistics: null, codes: { maximum: 1 }, visible: null }, 0, axes, []);
  record.exact = Float32Array.from(weights.flat());
  assert.deepEqual(headLabels(record, 0), []);
});
