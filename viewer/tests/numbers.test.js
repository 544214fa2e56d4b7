// @ts-check

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { cellText, exactPercent, exactPercents, finiteRange, formatNumber, formatWeight, legendNumber, niceStep, percent, secondsStep, shortWeight, shortWeights, strongest } from "../modules/numbers.js";

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

test("only the whole is 100 percent, and only nothing is 0", () => {
  const plain = (text) => text.replaceAll(/[\u00a0\u200a]/g, " ");
  const cases = [[1, "100 %", "1.00"], [1 - 1e-7, "100 %", "1.00"], [0.99999, "> 99.99 %", "> 0.9999"], [0.9999, "99.99 %", "0.9999"], [0.9962, "99.62 %", "0.9962"],
    [0.994, "99 %", "0.99"], [0.41, "41 %", "0.41"], [0.001, "< 1 %", "0.001"], [0, "0 %", "0"]];
  for (const [value, whole, weight] of /** @type {[number, string, string][]} */ (cases)) {
    assert.deepEqual([percent(value), shortWeight(value)].map(plain), [whole, weight]);
    if (value > 0.5) assert.equal(plain(exactPercent(value)), whole);
  }
  assert.deepEqual([0.0005, 0.034, NaN].map(exactPercent).map(plain), ["< 0.1 %", "3.4 %", "NaN"]);
});

test("parts add up to their sum as they are shown, each less than a unit from its number", () => {
  let seed = 5;
  const random = () => { seed = (seed * 48271) % 2147483647; return seed / 2147483647; };
  const read = (text) => (text.startsWith("<") ? 0 : Number(text.replaceAll(/[^\d.]/g, "")));
  for (let round = 0; round < 2000; round += 1) {
    const raw = Array.from({ length: 2 + (round % 4) }, () => (-Math.log(random())) ** 2);
    const sum = raw.reduce((a, b) => a + b, 0);
    const parts = raw.map((part) => part / sum);
    if (parts.some((part) => part >= 0.995 || part < 0.0001)) continue;
    for (const [texts, unit] of /** @type {[string[], number][]} */ ([[shortWeights(parts), 0.01], [exactPercents(parts), 1]])) {
      const shown = texts.map(read);
      const whole = unit === 1 ? 100 : 1;
      assert.ok(Math.abs(shown.reduce((a, b) => a + b, 0) - whole) <= 0.61 * unit, texts.join(" + "));
      shown.forEach((value, place) => assert.ok(Math.abs(value - whole * parts[place]) < unit, texts.join(" + ")));
    }
  }
  assert.deepEqual(shortWeights([0.415, 0.195, 0.085, 0.305]), ["0.41", "0.20", "0.09", "0.30"]);
});
