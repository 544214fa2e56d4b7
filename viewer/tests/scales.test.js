// @ts-check

import assert from "node:assert/strict";
import { test } from "node:test";

import { SCALES, scaleInverse, withoutRows } from "../modules/scales.js";

test("every scale rises from 0 to 1 and has its inverse", () => {
  for (const [name, { shade }] of Object.entries(SCALES)) {
    assert.deepEqual([shade(0), shade(1)], [0, 1], name);
    for (const part of [0.002, 0.01, 0.2, 0.5, 0.99]) {
      assert.ok(shade(part) > shade(part * 0.9), name);
      assert.ok(Math.abs(scaleInverse(name, shade(part)) - part) < 1e-12, name);
    }
  }
});

test("a view without rows has a scale for all", () => {
  assert.equal(withoutRows("row"), "linear");
  assert.equal(withoutRows("log"), "log");
});
