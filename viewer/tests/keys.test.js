// @ts-check

import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { test } from "node:test";

import { KEYS, chord } from "../modules/keys.js";
import { WORDS } from "../modules/words.js";

const MODULES = new URL("../modules/", import.meta.url);

/** The keys that a module's code names: compared with `key`, or the names of the steps among which `event.key` chooses. */
function handled(text) {
  const compared = [...text.matchAll(/\bkey [!=]== "([^"]+)"/g)].map(([, key]) => key);
  const steps = [...text.matchAll(/\{([^{}]*)\}\[event\.key\]|const moves = \{([^}]*)\}/g)]
    .flatMap(([, one, other]) => [...(one ?? other).matchAll(/(\w+): /g)].map(([, key]) => key));
  return new Set([...compared, ...steps]);
}

const listed = (...titles) => new Set(KEYS.filter(([title]) => titles.includes(title))
  .flatMap(([, , rows]) => rows.flatMap(({ keys }) => keys.map((key) => chord(key).at(-1)))));

/** The groups of the list that each module with keys handles. */
const HANDLERS = {
  "input.js": ["keys_anywhere", "keys_picture", "views"],
  "walk_panel.js": ["walk"],
  "views/sound_view.js": ["sound"],
  "text_list.js": ["textList"],
  "cards.js": ["whatIsThis"],
  "menu.js": [],
};

test("the list has the keys that the code handles, and no others", () => {
  const texts = Object.fromEntries(readdirSync(MODULES, { recursive: true }).map(String).filter((name) => name.endsWith(".js"))
    .map((name) => [name, readFileSync(new URL(name, MODULES), "utf8")]));
  const withKeys = Object.keys(texts).filter((name) => /event\.key\b|\bpressed\(/.test(texts[name]));
  assert.deepEqual(withKeys.sort(), Object.keys(HANDLERS).sort());
  for (const [name, titles] of Object.entries(HANDLERS)) {
    const keys = handled(texts[name]);
    if (name !== "input.js") keys.delete("Escape"); // it closes what is open, wherever that is
    assert.deepEqual([...keys].sort(), [...listed(...titles)].sort(), name);
  }
  assert.deepEqual(Object.values(HANDLERS).flat().sort(), KEYS.map(([title]) => title).sort());
});

test("every group and every key is in the table of words", () => {
  for (const [title, , rows] of KEYS) for (const name of [title, ...rows.map(({ does }) => does)]) assert.ok(Object.hasOwn(WORDS, name), name);
});
