// @ts-check

import assert from "node:assert/strict";
import { test } from "node:test";

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
