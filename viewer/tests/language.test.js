// @ts-check

import assert from "node:assert/strict";
import { test } from "node:test";

import { language, languageTag, onSpeak, say, speak } from "../modules/language.js";
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

test("the first language of the browser that is known, and who is told of a change", () => {
  const told = [];
  const silence = onSpeak(() => told.push(languageTag()));
  for (const [languages, expected] of [[["zh-TW", "en"], "zh"], [["fr", "de"], "en"], [["fr", "zh"], "zh"], [["en-US", "zh"], "en"], [["en"], "en"]]) {
    Object.defineProperty(globalThis, "navigator", { value: { languages }, configurable: true });
    speak("auto");
    assert.equal(language(), expected, String(languages));
  }
  assert.deepEqual(told, ["zh-Hans", "en", "zh-Hans", "en"]);
  silence();
  speak("zh");
  speak("en");
  assert.equal(told.length, 4);
});

test("no view speaks of how a file is built", () => {
  for (const [key, [english, chinese]] of Object.entries(WORDS).filter(([name]) => !name.startsWith("walk_"))) {
    assert.doesNotMatch(english, /\btiles?\b|8-bit|square roots of|\breceived\b|\bpooled\b|float64/i, key);
    assert.doesNotMatch(chinese, /8 位|池化|附带/, key);
  }
});
