// @ts-check

import assert from "node:assert/strict";
import { test } from "node:test";

import { fewLargest, firstOf, foremost } from "../modules/score_station.js";
import { StepsData } from "../modules/steps_data.js";
import { DifferenceView } from "../modules/views/difference_view.js";

test("a calculation of no query or no key is said to be empty", async () => {
  const steps = new StepsData({ name: "", queries: [], keys: [], matrices: {}, normalizer: "softmax", parameters: {} });
  await steps.decode();
  assert.equal(steps.error, "it has no query or no key");
});

test("a difference of two records of one head names both", () => {
  const records = [1, 0].map((layer, number) => ({ number, heads: 1, layer }));
  const app = { records, record: records[0], state: { record: 0, head: 0 }, recordText: ({ layer }) => `layer ${layer}` };
  const view = new DifferenceView();
  view.other = () => ({ record: 1, head: 0 });
  assert.equal(view.headText(app), "layer 1 \u2212 layer 0");
});

test("the few that are shown are the largest, and it is said where another one is among them", () => {
  const sizes = [0.1, 0.5, 0.2, 0.3];
  assert.deepEqual(fewLargest(sizes, 2, "weight", 3, "it"), { few: [1, 3], why: "the 2 of 4 with the largest weight" });
  assert.deepEqual(fewLargest(sizes, 2, "weight", 0, "it"), { few: [1, 0], why: "the 1 of 4 with the largest weight, and it" });
  assert.deepEqual(fewLargest(sizes, 4, "weight", 0, "it").why, "");
  assert.deepEqual(foremost([-0.5, 0.1, 0.4], "product", 2), { few: [0, 2], why: "the 2 of 3 with the largest product" });
  assert.deepEqual([firstOf(9).why, firstOf(8).why], ["the first 8 of 9", ""]);
});
