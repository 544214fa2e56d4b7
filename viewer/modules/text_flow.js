// @ts-check

import { RIGHT_TO_LEFT, textWidth } from "./lettering.js";
import { joinPieces, shortText } from "./text.js";

/** Room at both sides of a token, between the pieces of a word, and between words, in pixels. */
const [PADDING, WITHIN_WORD, BETWEEN_WORDS] = [2.5, 0.5, 4];

const LEAST_WORD = 12;

/** Whether most words of a text begin with a letter of a script that is written from right to left. */
function runsRightToLeft(text) {
  const letters = text.split(/\s+/).map((word) => word.match(/\p{L}/u)?.[0]).filter((letter) => letter !== undefined);
  return 2 * letters.filter((letter) => RIGHT_TO_LEFT.test(letter)).length > letters.length;
}

/**
 * The tokens of a side of a table as they stand in a text: without the marks of their tokenizer where it is known which begin
 * a word.
 * @returns {{shown: string, starts: boolean}[]} the text of each, and whether a word begins with it
 */
export function flowTexts(table, side) {
  const [axis, groups] = side === "row" ? [table.record.queries, table.rowGroups] : [table.record.keys, table.columnGroups];
  const texts = groups.map((_, number) => (side === "row" ? table.rowText(number) : table.columnText(number)));
  if (axis.kind !== "tokens" || !axis.entry.words?.length || (table.words && axis.hasWords)) return texts.map((text) => ({ shown: shortText(text, 60), starts: true }));
  const starts = new Set(axis.entry.words);
  return groups.map(([position], number) => {
    const [before, after] = [starts.has(position), position + 1 >= axis.length || starts.has(position + 1)];
    // A piece is joined with empty neighbours where the word goes on.
    const piece = joinPieces([...(before ? [] : [""]), texts[number], ...(after ? [] : [""])]);
    return { shown: shortText(piece || texts[number], 60), starts: before };
  });
}

/**
 * Places for the words of a text in lines. Words flow in the direction of the text, the pieces of a word in that of the word.
 * @param {{shown: string, starts: boolean}[]} texts
 * @param {number} left
 * @param {number} top
 * @param {number} width
 * @param {{size: number, lineHeight: number}} style
 * @returns {{places: {x: number, y: number, width: number, height: number}[], bottom: number, rtl: boolean}}
 */
export function flowText(texts, left, top, width, { size, lineHeight }) {
  const rtl = runsRightToLeft(texts.map((text) => text.shown).join(" "));
  const places = texts.map(({ shown }) => ({ x: 0, y: 0, width: Math.max(LEAST_WORD, Math.min(textWidth(shown, { size }) + 2 * PADDING, width)),
    height: lineHeight - 6 }));
  let [x, y] = [0, top];
  for (const [first, end] of wordsOf(texts)) {
    const pieces = places.slice(first, end);
    const whole = pieces.reduce((sum, piece) => sum + piece.width + WITHIN_WORD, -WITHIN_WORD);
    if (x > 0 && x + whole > width) { x = 0; y += lineHeight; }
    const reversed = (rtl && end - first === 1) || runsRightToLeft(texts.slice(first, end).map((text) => text.shown).join(""));
    if (whole > width) {
      // A word that is longer than a line is broken at its pieces.
      for (const piece of pieces) {
        if (x > 0 && x + piece.width > width) { x = 0; y += lineHeight; }
        Object.assign(piece, { x: left + (rtl ? width - x - piece.width : x), y });
        x += piece.width + WITHIN_WORD;
      }
    } else {
      const begin = left + (rtl ? width - x - whole : x);
      let offset = 0;
      for (const piece of reversed ? [...pieces].reverse() : pieces) {
        Object.assign(piece, { x: begin + offset, y });
        offset += piece.width + WITHIN_WORD;
      }
      x += whole;
    }
    x += BETWEEN_WORDS;
  }
  return { places, bottom: y + lineHeight, rtl };
}

/** The ranges of the words of some texts: first, and the one after the last. */
function wordsOf(texts) {
  const starts = [...texts.keys()].filter((number) => number === 0 || texts[number].starts);
  return starts.map((first, number) => [first, starts[number + 1] ?? texts.length]);
}

/** The nearest word above or below, for arrow keys. */
export function wordAbove(places, index, direction) {
  const from = places[index];
  const center = from.x + from.width / 2;
  let best = index;
  let distance = Infinity;
  places.forEach((place, number) => {
    const down = (place.y - from.y) * direction;
    if (down <= 0) return;
    const far = down * 4 + Math.abs(place.x + place.width / 2 - center);
    if (far < distance) { distance = far; best = number; }
  });
  return best;
}
