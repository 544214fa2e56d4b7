// @ts-check

import assert from "node:assert/strict";
import { test } from "node:test";

import { directionOf } from "../modules/lettering.js";

test("a text runs as its first letter does, whatever is isolated in it", () => {
  for (const text of ["cat", "1, 2", "", "→", "cat שלום", "“\u2068שלום\u2069” gives 0.5 to “\u2068cat\u2069”", "日本", "\u2068שלום\u2069"]) assert.equal(directionOf(text), "ltr", text);
  for (const text of ["שלום", "مرحبا", "12 שלום", "(ab) שלום".slice(5), "ۦ یک", "\u2068cat\u2069 שלום"]) assert.equal(directionOf(text), "rtl", text);
});
