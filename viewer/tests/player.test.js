// @ts-check

import assert from "node:assert/strict";
import { test } from "node:test";

import { playable } from "../modules/player.js";

test("a slow sound is played at a rate that browsers take, in the same time", () => {
  const sound = { samples: Int16Array.from([0, 100, -100, 50]), rate: 1600 };
  const { samples, rate } = playable(sound);
  assert.equal(rate, 3200);
  assert.deepEqual(Array.from(samples), [0, 50, 100, 0, -100, -25, 50, 50]);
  assert.equal(playable({ samples: sound.samples, rate: 16000 }).samples, sound.samples);
  assert.ok(playable({ samples: sound.samples, rate: 7 }).rate >= 3000);
});
