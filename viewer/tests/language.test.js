// @ts-check

import assert from "node:assert/strict";
import { test } from "node:test";

import { language, say, speak } from "../modules/language.js";
import { WORDS } from "../modules/words.js";

const placeholders = (text) => [...text.matchAll(/\{(\w+)/g)].map(([, name]) => name).sort();

test("every text stands in both languages and tells the same values", () => {
  for (const [key, texts] of Object.entries(WORDS)) {
    assert.equal(texts.length, 2, key);
    assert.ok(texts.every((text) => text.trim() !== ""), key);
    const [english, chinese] = texts.map((text) => [...new Set(placeholders(text))]);
    assert.deepEqual(chinese, english, key);
  }
});

test("the language of a tag, and English where it is another", () => {
  for (const [tag, expected] of [["zh", "zh"], ["zh-Hans-CN", "zh"], ["ZH", "zh"], ["fr", "en"], [null, "en"], ["en-GB", "en"]]) {
    speak(tag);
    assert.equal(language(), expected);
    assert.equal(say("pattern"), expected === "zh" ? "图样" : "Pattern");
  }
});
