// @ts-check

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { cellText, finiteRange, formatNumber, formatWeight, legendNumber, niceStep, percent, secondsStep, shortWeight, strongest } from "../modules/numbers.js";

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
    ["0", "0.50", "\u22120.50", "0.004", "\u22120.004", "<0.0001", ">\u22120.0001", "NaN", "\u2212\u221e"]);
});

test("coded and exact negatives have the same sign", () => {
  assert.match(formatWeight(-0.25, 0.01), /^\u22120\.25 \u00b1 0\.0/);
  assert.match(formatWeight(-0.25), /^\u22120\.25/);
  assert.match(formatWeight(-0.0001, 0.01), /^0\.00 \u00b1/);
});

test("only the whole is 100 percent, and only nothing is 0", () => {
  const cases = [[1, "100", "1.00", "1"], [1 - 1e-7, "100", "1.00", "1"], [0.99999, ">99", ">0.99", ">.99"], [0.995, ">99", ">0.99", ">.99"], [0.994, "99", "0.99", ".99"],
    [0.125, "13", "0.13", ".13"], [0.295, "30", "0.30", ".30"], [Math.fround(0.285), "29", "0.29", ".29"], [0.006, "1", "0.01", ".01"], [0.001, "<1", "0.001", ""], [1e-6, "<1", "<0.0001", ""],
    [0, "0", "0", ""]];
  for (const [value, ...texts] of /** @type {[number, string, string, string][]} */ (cases)) {
    assert.deepEqual([percent(value), shortWeight(value), cellText(value)].map((text) => text.replaceAll(/[\u00a0%]/g, "")), texts);
  }
  assert.equal(shortWeight(-0.9999), "<\u22120.99");
});
