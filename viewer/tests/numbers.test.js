// @ts-check

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { cellText, finiteRange, formatNumber, formatWeight, legendNumber, niceStep, secondsStep, shortWeight, strongest } from "../modules/numbers.js";

test("a weight has no more digits than are known", () => {
  for (const [value, error] of [[0.123456, 0.004], [0.5, 1e-5], [0.9, 0.04]]) {
    const [shown, bound] = formatWeight(value, error).split(" \u00b1 ").map(Number);
    assert.ok(bound >= error && Math.abs(shown - value) <= bound - error + 1e-12);
  }
  assert.equal(formatWeight(NaN, 0.1), "NaN");
});

test("an exact number is read back within its digits", () => {
  for (const value of [0, 1, -0.25, 12.5, 123456.78, 3.2e-7, -4.5e9]) {
    const read = Number(formatNumber(value).replaceAll("\u2212", "-"));
    assert.ok(Math.abs(read - value) <= Math.max(5e-5, Math.abs(value) * 1e-3), formatNumber(value));
  }
  assert.deepEqual([Infinity, -Infinity, NaN].map(formatNumber), ["\u221e", "\u2212\u221e", "NaN"]);
});

test("the strongest come first, NaN before all, the chosen one among them", () => {
  assert.deepEqual(strongest([0.1, 0.5, NaN, 0.5], 3), [2, 1, 3]);
  assert.deepEqual(strongest([0.1, 0.5, 0.2, 0.3], 2, 0), [1, 0]);
});

test("steps are 1, 2 or 5 times a power of ten", () => {
  for (const rough of [1, 3, 7, 12, 4000]) {
    const step = niceStep(rough);
    assert.ok(step >= rough && step < 2.6 * rough);
    assert.ok([1, 2, 5].includes(Number(String(step)[0])));
  }
  assert.ok(3 / secondsStep(3, 640) <= 10);
});

test("the range of finite numbers", () => {
  assert.deepEqual(finiteRange([3, -Infinity, NaN, -1]), [-1, 3]);
  assert.deepEqual(finiteRange([NaN]), [0, 0]);
});

test("legends and cells write numbers as pictures do", () => {
  const cases = JSON.parse(readFileSync(new URL("../../tests/written_numbers.json", import.meta.url), "utf8"));
  for (const [value, text] of cases.short) assert.equal(legendNumber(value), text);
  for (const [value, text] of cases.cell) assert.equal(cellText(value), text);
});

test("a weight in a sentence keeps its sign, and says what is no number", () => {
  assert.deepEqual([0, 0.5, -0.5, 0.004, -0.004, 0.00001, -0.00001, NaN, -Infinity].map(shortWeight),
    ["0", "0.50", "\u22120.50", "0.004", "\u22120.004", "<\u200a0.0001", ">\u200a\u22120.0001", "NaN", "\u2212\u221e"]);
});

test("coded and exact negatives have the same sign", () => {
  assert.match(formatWeight(-0.25, 0.01), /^\u22120\.25 \u00b1 0\.0/);
  assert.match(formatWeight(-0.25), /^\u22120\.25/);
  assert.match(formatWeight(-0.0001, 0.01), /^0\.00 \u00b1/);
});
