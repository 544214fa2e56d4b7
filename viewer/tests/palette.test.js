// @ts-check

import assert from "node:assert/strict";
import { test } from "node:test";

import { channelsOf, divergingColor, inkOn, luminance, rampColor } from "../modules/palette.js";
import { DARK, LIGHT, headStyle } from "../modules/themes.js";

test("more attention is nearer to ink, and signs leave paper to their own sides", () => {
  for (const theme of [LIGHT, DARK]) {
    const away = (color) => Math.abs(luminance(channelsOf(color)) - luminance(channelsOf(theme.background)));
    for (let step = 0; step < 20; step += 1) assert.ok(away(rampColor(step / 20, theme)) < away(rampColor((step + 1) / 20, theme)));
    for (const part of [0.3, 0.7, 1]) {
      const [negative, positive] = [-part, part].map((one) => channelsOf(divergingColor(one, theme)));
      assert.ok(negative[0] > negative[2] && positive[2] > positive[0]);
    }
    assert.equal(divergingColor(5, theme), divergingColor(1, theme));
  }
  assert.deepEqual([inkOn("#ffffff"), inkOn("rgb(0, 0, 0)")], ["#000000", "#ffffff"]);
});

test("64 heads have 64 pairs of hue and dash, and neighbours differ in both", () => {
  for (const theme of [LIGHT, DARK]) {
    const styles = Array.from({ length: 64 }, (_, head) => headStyle(head, theme));
    assert.equal(new Set(styles.map(({ color, dash }) => `${color} ${dash}`)).size, 64);
    for (let head = 1; head < 64; head += 1) {
      assert.notEqual(styles[head].color, styles[head - 1].color);
      assert.notDeepEqual(styles[head].dash, styles[head - 1].dash);
    }
  }
});
