// @ts-check

import assert from "node:assert/strict";
import { test } from "node:test";

import { normalized } from "../modules/normalizers.js";

const row = (...scores) => Float64Array.from(scores);
const sum = (numbers) => numbers.reduce((all, one) => all + one, 0);
/** @type {[string, object][]} */
const ALL = [["softmax", {}], ["softmax_with_sink", { sink: 0 }], ["entmax", { alpha: 1.5 }], ["entmax", { alpha: 1.05 }],
  ["entmax", { alpha: 2 }], ["sparsemax", {}], ["sigmoid", {}]];

test("numbers that are known", () => {
  const near = (found, expected) => found.weights.forEach((weight, key) => assert.ok(Math.abs(weight - expected[key]) < 5e-5, `${found.weights}`));
  near(normalized("softmax", row(2, 4, 4)), [0.0634, 0.4683, 0.4683]);
  near(normalized("sparsemax", row(1, 0.5, -1)), [0.75, 0.25, 0]);
  near(normalized("entmax", row(1, 0, -1), { alpha: 1.5 }), [0.8307, 0.1693, 0]);
  near(normalized("sigmoid", row(1, 0, -1)), [0.7311, 0.5, 0.2689]);
  near(normalized("softmax_with_sink", row(1, 0, -1), { sink: 0 }), [0.5344, 0.1966, 0.0723]);
  assert.ok(Math.abs(normalized("sparsemax", row(1, 0.5, -1)).threshold - 0.25) < 1e-12);
});

test("a hidden key has the weight 0, and hiding it is leaving it out", () => {
  for (const [name, parameters] of ALL) {
    const masked = normalized(name, row(0.3, -Infinity, 2, -1, -Infinity), parameters).weights;
    const shorter = normalized(name, row(0.3, 2, -1), parameters).weights;
    assert.deepEqual([masked[1], masked[4]], [0, 0]);
    [0, 2, 3].forEach((key, place) => assert.ok(Math.abs(masked[key] - shorter[place]) < 1e-12, name));
  }
});

test("a row without a visible key has zeros, none NaN; NaN stays NaN", () => {
  for (const [name, parameters] of ALL) {
    assert.deepEqual([...normalized(name, row(-Infinity, -Infinity), parameters).weights], [0, 0], name);
    assert.ok(Number.isNaN(normalized(name, row(NaN, -Infinity), parameters).weights[0]), name);
    assert.equal(normalized(name, row(), parameters).weights.length, 0);
  }
});

test("rows sum to 1 at any size of scores, and equal scores have equal weights", () => {
  for (const [name, parameters] of ALL.filter(([one]) => one !== "sigmoid" && one !== "softmax_with_sink")) {
    for (const size of [1e-9, 1, 800]) {
      const { weights } = normalized(name, row(size, -size, 0.3 * size, 0.3 * size), parameters);
      assert.ok(Math.abs(sum(weights) - 1) < 1e-12, `${name} ${size}`);
      assert.equal(weights[2], weights[3]);
    }
  }
});

test("entmax goes from softmax to sparsemax", () => {
  const scores = row(0.9, 0.2, -0.4, 0.1);
  const near = (a, b, limit) => a.weights.forEach((weight, key) => assert.ok(Math.abs(weight - b.weights[key]) < limit));
  near(normalized("entmax", scores, { alpha: 1 }), normalized("softmax", scores), 1e-15);
  near(normalized("entmax", scores, { alpha: 1.0001 }), normalized("softmax", scores), 1e-4);
  near(normalized("entmax", scores, { alpha: 1.999999 }), normalized("sparsemax", scores), 1e-5);
});
