// @ts-check

import { commonPlaces } from "./difference.js";
import { make } from "./elements.js";
import { say } from "./language.js";
import { percent, shortWeight } from "./numbers.js";
import { textsOf } from "./record_names.js";
import { isWhole, mostSurprising } from "./sentence.js";
import { byWeight } from "./table.js";
import { joinPieces, shortText, visibleText } from "./text.js";

/** The most pairs of words that are compared to find what differs among texts; of more texts each is compared with its neighbours. */
const MOST_PAIRED = 2e7;

/** About how many letters the lines of an entry have room for: in the list, and where the entries stand side by side. */
const [LIST_ROOM, STRIP_ROOM] = [84, 40];

/** Words that the entry shows before the first one that differs. */
const BEFORE = 3;

const CLOSING = /^['\p{Pe}\p{Pf}.,;:!?\u2026%\u3001\u3002\uff01\uff0c\uff1a\uff1b\uff1f]/u;

const OPENING = /[\p{Ps}\p{Pi}]$|^['\u2019]$/u;

const UNSPACED = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}]/u;

/** The words of an axis, without special tokens. */
export const wordsOfAxis = (axis) => axis.groups(true).filter((group) => !axis.isSpecial(group)).map(([start, stop]) => joinPieces(axis.entry.tokens.slice(start, stop)));

/** What stands between two words of a text: nothing where its tokens are letters, or one of the words is written without spaces. */
function between(before, after, letters) {
  return letters || CLOSING.test(after) || OPENING.test(before) || (UNSPACED.test(before.at(-1)) && UNSPACED.test(after[0])) ? "" : " ";
}

/** A text of words, from a word on. */
function joined(words, from = 0) {
  const letters = words.some((word) => !word.trim());
  return words.slice(from).map((word, place) => (place ? between(words[from + place - 1], word, letters) : "") + word);
}

/**
 * Which words of each text a similar text has not: of texts with at least two thirds of their words in common. None of a text without a similar one.
 * @param {string[][]} texts
 * @returns {boolean[][]}
 */
export function differing(texts) {
  const longest = Math.max(...texts.map((text) => text.length));
  const near = (texts.length * longest) ** 2 > MOST_PAIRED ? 1 : texts.length;
  return texts.map((text, number) => {
    const others = texts.map((other, place) => (place === number || Math.abs(place - number) > near ? [] : commonPlaces(text, other)));
    const likeness = others.map((pairs, place) => {
      const most = Math.max(text.length, texts[place].length);
      return pairs.length < most && 3 * pairs.length >= 2 * most ? pairs.length : 0;
    });
    const best = likeness.indexOf(Math.max(...likeness));
    const same = new Set(likeness[best] ? others[best].map(([place]) => place) : text.keys());
    return text.map((_, place) => !same.has(place));
  });
}

/** The words that tell what a text is: those of a source and of its target, where it has both; null of pictures and sounds. */
function toldBy(records) {
  const record = records.find((one) => one.entry.kind === "cross") ?? records[0];
  const axes = [record.keys, ...(record.queries.entry === record.keys.entry ? [] : [record.queries])].filter((axis) => axis.kind === "tokens");
  return axes.length ? axes.flatMap((axis, place) => [...(place ? ["\u2192"] : []), ...wordsOfAxis(axis)]) : null;
}

/** The longest text that the heading shows, in letters. */
const LONGEST_HEADING = 160;

/** The one text of some records as it is read; "" where there are several, it is long, or its tokens are no text. */
export function runningText(records) {
  const words = records.length && !records[0].large && !textsOf(records) ? toldBy(records) : null;
  const text = words ? joined(words).join("") : "";
  return text && text.length <= LONGEST_HEADING ? visibleText(text) : "";
}

/** The most texts that have a result each. */
const MOST_TOLD = 12;

/** How much a word gives to another in a table, or to the one that it looks at most; where the table has no such word, its own pair. */
function resultOf(table, asks, lookedAt) {
  const pair = mostSurprising(table);
  const same = Array.from({ length: table.rows }, (_, row) => row).find((row) => table.rowText(row) === asks);
  const row = same ?? pair?.row;
  const other = Array.from({ length: table.columns }, (_, column) => column).find((column) => table.columnText(column) === lookedAt);
  const column = row === undefined ? undefined : same === undefined ? pair?.column : other ?? byWeight(table, row)[0];
  if (row === undefined || column === undefined) return "";
  const value = table.value(row, column);
  return `\u2068${shortText(table.rowText(row))}\u2069 \u2192 \u2068${shortText(table.columnText(column))}\u2069 ${isWhole(table, row) ? percent(value) : shortWeight(value)}`;
}

/** The texts that one model read: a list at the left, or where that has no room, side by side above the controls. */
export class TextList {
  constructor(app) {
    this.app = app;
    this.made = /** @type {any} */ (null); // the texts whose entries there are
    this.wide = false; // whether they are a list
    app.frame.list.addEventListener("keydown", (event) => this.key(event), { signal: app.stopped.signal });
  }

  /** Makes the entries, where the texts or the room are others than before, and marks the chosen one. */
  build() {
    const { app, app: { frame: { list, box } } } = this;
    const texts = textsOf(app.records);
    const wide = box.classList.contains("listed");
    list.hidden = !texts;
    if (!texts) return;
    if (this.made !== texts || this.wide !== wide) {
      const words = texts.map(toldBy);
      const marks = differing(words.map((one) => one ?? []));
      list.replaceChildren(...texts.map((_, number) => this.entry(number, words[number], marks[number], wide ? LIST_ROOM : STRIP_ROOM)));
    }
    [this.made, this.wide] = [texts, wide];
    [...list.children].forEach((entry, number) => {
      const chosen = number === app.text;
      if (chosen && entry.getAttribute("aria-selected") !== "true") setTimeout(() => entry.scrollIntoView({ block: "nearest", inline: "nearest" }), 0);
      entry.setAttribute("aria-selected", String(chosen));
      entry.tabIndex = chosen ? 0 : -1;
    });
  }

  entry(number, words, marks, room) {
    const first = marks.indexOf(true);
    const parts = words ? joined(words) : [];
    const from = parts.slice(0, first + 1).join("").length > room ? first - BEFORE : 0;
    const shown = words ? joined(words, from).slice(0, 60) : [];
    return make("div", { role: "option", title: shortText(parts.join(""), 600), on: { click: () => this.choose(number) } },
      make("span", { class: "number", text: String(number + 1) }),
      make("bdi", {}, document.createTextNode(from ? "\u2026 " : ""),
        ...shown.flatMap((part, place) => [part.startsWith(" ") ? " " : "", part.trim() && (marks[from + place] ? make("b", { text: visibleText(part.trim()) }) : visibleText(part.trim()))]),
        words ? null : document.createTextNode(say("textBrief", { number: number + 1 }))), make("span", { class: "result" }));
  }

  /** Writes under each text what the word that asks looks at most there, or the text's own pair, in the chosen head. */
  tellResults() {
    const { app, app: { frame: { list } } } = this;
    if (list.hidden || list.children.length > MOST_TOLD) return;
    const { row, column } = app.active() ?? app.featured() ?? {};
    const told = row !== undefined && app.view.ofTables && !app.record.large;
    const asks = told ? app.table().rowText(row) : null;
    const lookedAt = told && column !== undefined ? app.table().columnText(column) : null;
    [...list.children].forEach((entry, number) => {
      const record = app.records.find((one) => one.entry.text === number && one.label === app.record.label);
      if (record && !record.decoded) record.decode().then(() => app.changed());
      const text = asks === null || !record?.decoded || !(app.state.head === null || app.state.head < record.heads) ? "" : resultOf(app.table(app.state.head, record), asks, lookedAt);
      const shown = entry.querySelector(".result");
      if (shown.textContent !== text) shown.textContent = text;
    });
  }

  choose(number) {
    this.app.selection.toText(number);
  }

  key(event) {
    const { app } = this;
    const step = { ArrowUp: -1, ArrowLeft: -1, ArrowDown: 1, ArrowRight: 1, Home: -1e9, End: 1e9 }[event.key];
    if (!step || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const { children } = app.frame.list;
    const next = Math.min(Math.max(0, app.text + step), children.length - 1);
    this.choose(next);
    children[next].focus();
  }
}
