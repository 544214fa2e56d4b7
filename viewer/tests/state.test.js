// @ts-check

import assert from "node:assert/strict";
import { test } from "node:test";

import { addressOf, stateOf } from "../modules/address.js";
import { FIELDS, History, initialState, lasting } from "../modules/state.js";

const STATES = [
  {},
  { view: "lines", record: 7, head: null, scale: "root", words: true, locked: [3, 0, 12], heads: [1, 2], kept: { row: 4, column: 9 } },
  { view: "walk", steps: 2, step: "masked", head: 11, hideSpecial: true, heads: [], overlay: "veil", pooling: "mean" },
].map((changes) => ({ ...initialState(), ...changes }));

test("an address gives back the state that it was made of", () => {
  for (const state of STATES) {
    assert.deepEqual(stateOf(addressOf(state)), lasting(state));
    assert.deepEqual(stateOf(`#${addressOf(state)}`), lasting(state));
  }
});

test("an address keeps what decides by itself where it is shown", () => {
  assert.ok(!("zoom" in stateOf(addressOf(initialState()))));
  assert.ok("zoom" in FIELDS);
});

test("nothing but values of the right kind come from an address", () => {
  const hostile = "#view=%3Cimg%3E&record=-1&head=1.5&locked=[\"x\"]&kept={\"row\":1}&words=1&__proto__=1&constructor=2&scale=%E0%A4%A&heads={}&x=1&steps=3";
  assert.deepEqual(stateOf(hostile), { steps: 3 });
  assert.deepEqual(stateOf(""), {});
});

test("undo and redo go through the states that were noted", () => {
  const history = new History();
  const [one, two, three] = STATES;
  assert.equal(history.undo(), null);
  for (const state of [one, one, two, three]) history.note(state);
  assert.deepEqual(history.undo(), lasting(two));
  assert.equal(history.note(two), false);
  assert.deepEqual(history.undo(), lasting(one));
  assert.equal(history.undo(), null);
  assert.deepEqual(history.redo(), lasting(two));
  history.note({ ...two, head: 5 });
  assert.equal(history.redo(), null);
  assert.deepEqual(history.undo(), lasting(two));
});
