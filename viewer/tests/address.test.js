// @ts-check

import assert from "node:assert/strict";
import { test } from "node:test";

import { addressOf, stateOf } from "../modules/address.js";
import { FIELDS, checkedState, distinct, initialState, recounted } from "../modules/state.js";

test("names of what every object has are no choices", () => {
  for (const name of ["constructor", "toString", "hasOwnProperty", "valueOf"]) {
    for (const field of ["scale", "measure", "order", "range", "overlay", "pooling", "station", "theme"]) {
      assert.deepEqual(checkedState({ [field]: name }), {}, `${field}=${name}`);
    }
  }
  assert.deepEqual(stateOf("#trial={\"constructor\":1}"), {});
});

test("the first state and all choices of the controls are allowed", () => {
  assert.deepEqual(checkedState(initialState()), initialState());
  for (const scale of ["linear", "root", "log", "row"]) assert.deepEqual(stateOf(`scale=${scale}`), { scale });
  for (const overlay of ["veil", "colours"]) assert.deepEqual(stateOf(`overlay=${overlay}`), { overlay });
});

test("the zoom and the theme are not taken from an address", () => {
  for (const zoom of ["1e300", "-5", "0", "2"]) assert.deepEqual(stateOf(`#zoom=${zoom}&theme=dark&record=1`), { record: 1 });
  assert.ok(!addressOf(initialState()).includes("zoom"));
  assert.ok([0, -5, 1e300, NaN].every((zoom) => !FIELDS.zoom[1](zoom)));
});

test("settings of the walk are numbers that can be computed with", () => {
  for (const trial of [{ temperature: 1e-320 }, { temperature: 0 }, { alpha: 0.2 }, { alpha: 1e9 }, { scale: 1e300 }, { mask: "all" }]) {
    assert.deepEqual(checkedState({ trial }), {}, JSON.stringify(trial));
  }
  const trial = { temperature: 0.1, alpha: 3, scale: 0.125, mask: "causal", normalizer: "entmax" };
  assert.deepEqual(checkedState({ trial }), { trial });
});

test("a row that is named twice counts once", () => {
  assert.deepEqual(distinct([1, 1, 3, 9, 0], 5), [1, 3, 0]);
});

test("an address has the language that was chosen and the numbers of heads; an old one has neither", () => {
  assert.ok(!/language|numbered/.test(addressOf(initialState())));
  assert.equal(stateOf(addressOf({ ...initialState(), language: "zh" })).language, "zh");
  assert.deepEqual(stateOf("#language=fr&record=1"), { record: 1 });
  const state = { ...initialState(), head: 1, heads: [0, 1], other: { record: 1, head: 0 } };
  const written = addressOf({ ...recounted(state, (record, head) => [[1, 11], [4]][record][head]), numbered: true });
  assert.match(written, /head=11&.*heads=\[1,11\].*numbered=true/);
  const { numbered, ...read } = stateOf(written);
  assert.ok(numbered);
  assert.deepEqual(read.other, { record: 1, head: 4 });
  const positions = recounted(read, (record, head) => [[1, 11], [4]][record].indexOf(head));
  assert.deepEqual([positions.head, positions.heads, positions.other], [state.head, state.heads, state.other]);
  assert.deepEqual(recounted({ head: null, heads: null, other: null }, () => 9), { head: null, heads: null, other: null });
});
