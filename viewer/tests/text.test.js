// @ts-check

import assert from "node:assert/strict";
import { test } from "node:test";

import { joinPieces, quoted, shortText, visibleText } from "../modules/text.js";

test("different tokens look different", () => {
  const tokens = ["", " ", "  ", "a", " a", "a ", "\t", "\n", "\r", "\0", "\u00a0", "\u200b", "\u200d", "\ufeff", "\u0301", "a\u0301"];
  const shown = tokens.map(visibleText);
  assert.equal(new Set(shown).size, tokens.length);
  assert.ok(shown.every((text) => text.trim() !== ""));
});

test("what joins letters or chooses a shape stays", () => {
  for (const text of ["\u0645\u06cc\u200c\u062e", "\u{1f469}\u200d\u{1f467}", "\u2764\ufe0f", "a b"]) assert.equal(visibleText(text), text);
});

test("a label is cut between characters as a reader counts them", () => {
  assert.equal(shortText("abcdef", 4), "abc\u2026");
  assert.equal(shortText("abcd", 4), "abcd");
  const family = "\u{1f469}\u200d\u{1f469}\u200d\u{1f467}";
  assert.equal(shortText(family.repeat(5), 3), `${family.repeat(2)}\u2026`);
  assert.ok(shortText("x".repeat(1e6)).length <= 28);
});

test("a quoted token keeps its direction to itself and names what cannot be seen", () => {
  assert.equal(quoted("it"), "\u201c\u2068it\u2069\u201d");
  assert.match(quoted("\t"), /tab/);
});

test("sub-words are joined without the marks of their tokenizers", () => {
  const words = { unwanted: ["un", "##want", "##ed"], cats: ["\u2581cat", "s"], Hello: ["\u0120Hel", "lo"], lower: ["low@@", "er"], "##": ["##"] };
  for (const [word, pieces] of Object.entries(words)) assert.equal(joinPieces(pieces), word);
});
