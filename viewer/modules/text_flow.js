// @ts-check

import { RIGHT_TO_LEFT, textWidth } from "./lettering.js";
import { joinPieces, shortText } from "./text.js";

/** Room at both sides of a token, between the pieces of a word, and between words, in pixels. */
const [PADDING, WITHIN_WORD, BETWEEN_WORDS] = [2.5, 0.5, 5];

const LEAST_WORD = 12;

/** The size of a special token, as a part of that of the text. */
const SPECIAL_SIZE = 0.6;

/** Marks that stand at the word before them, and those at the word after them. */
const [CLOSING_MARK, OPENING_MARK] = [/^[.,;:!?\u060c\u061b\u061f\u2026%)\]}\u00bb\u201d\u2019\u3001\u3002\uff0c\uff01\uff1f\uff1b\uff1a\u300d\u300f\uff09\u3011\u300b]+$/u, /^[([{\u00ab\u201c\u2018\u300c\u300e\uff08\u3010\u300a]+$/u];

/** Whether most words of a text begin with a letter of a script that is written from right to left. */
function runsRightToLeft(text) {
  const letters = text.split(/\s+/).map((word) => word.match(/\p{L}/u)?.[0]).filter((letter) => letter !== undefined);
  return 2 * letters.filter((letter) => RIGHT_TO_LEFT.test(letter)).length > letters.length;
}

/**
 * Tokens as they stand in a text: without the marks of their tokenizer where it is known which begin a word.
 * @param {any} axis
 * @param {number[][]} groups the positions of each, as first and one past the last
 * @param {string[]} texts
 * @param {boolean} whole whether each is a word
 * @returns {{shown: string, starts: boolean, special?: boolean, tight?: boolean}[]} the text of each, whether a word begins with it, whether the model added it, and whether it is a mark that stands at the word before it
 */
export function tokenTexts(axis, groups, texts, whole) {
  const tokens = axis.kind === "tokens";
  const pieces = tokens && Boolean(axis.entry.words?.length) && !whole;
  const starts = new Set(axis.entry.words);
  return groups.map((group, number) => {
    const [position] = group;
    const special = tokens && axis.isSpecial(group);
    const joins = tokens && number > 0 && !special && !axis.isSpecial(groups[number - 1]) && (CLOSING_MARK.test(texts[number]) || OPENING_MARK.test(texts[number - 1]));
    const tight = joins && CLOSING_MARK.test(texts[number]);
    if (!pieces) return { shown: shortText(texts[number], 60), starts: !joins, special, tight };
    const [before, after] = [starts.has(position), position + 1 >= axis.length || starts.has(position + 1)];
    // A piece is joined with empty neighbours where the word goes on.
    const piece = joinPieces([...(before ? [] : [""]), texts[number], ...(after ? [] : [""])]);
    return { shown: shortText(piece || texts[number], 60), starts: before && !joins, special, tight };
  });
}

/** The tokens of a side of a table; see `tokenTexts`. */
export function flowTexts(table, side) {
  const [axis, groups] = side === "row" ? [table.record.queries, table.rowGroups] : [table.record.keys, table.columnGroups];
  return tokenTexts(axis, groups, groups.map((_, number) => (side === "row" ? table.rowText(number) : table.columnText(number))), table.words && axis.hasWords);
}

/**
 * The size of a token in a text of a size.
 * @param {{special?: boolean}} token
 * @param {number} size
 */
export const sizeOfToken = ({ special }, size) => (special ? Math.max(11, Math.round(SPECIAL_SIZE * size)) : size);

/**
 * Places for the words of a text in lines. Words flow in the direction of the text, the pieces of a word in that of the word.
 * @param {{shown: string, starts: boolean, special?: boolean, tight?: boolean}[]} texts
 * @param {number} left
 * @param {number} top
 * @param {number} width
 * @param {{size: number, height: number, lineHeight: number, least?: number, padding?: number, between?: number}} style of the text, of a word's box, from line to line, of the narrowest word, beside a token, between words
 * @returns {{places: {x: number, y: number, width: number, height: number}[], bottom: number, rtl: boolean}}
 */
export function flowText(texts, left, top, width, { size, height, lineHeight, least = LEAST_WORD, padding = PADDING, between = BETWEEN_WORDS }) {
  const rtl = runsRightToLeft(texts.map((text) => text.shown).join(" "));
  const places = texts.map((text) => ({ x: 0, y: 0, width: Math.max(text.tight ? 0 : least, Math.min(textWidth(text.shown, { size: sizeOfToken(text, size) }) + (text.tight ? 2 : 2 * padding), width)), height }));
  const gapBefore = (number) => (texts[number]?.tight ? -padding : WITHIN_WORD); // a mark stands at the letters of its word
  let [x, y] = [0, top];
  for (const [first, end] of wordsOf(texts)) {
    const pieces = places.slice(first, end);
    const whole = pieces.reduce((sum, piece, number) => sum + piece.width + (number ? gapBefore(first + number) : 0), 0);
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
      const order = reversed ? [...pieces.keys()].reverse() : [...pieces.keys()];
      for (const number of order) {
        Object.assign(pieces[number], { x: begin + offset, y });
        offset += pieces[number].width + gapBefore(first + number + (reversed ? 0 : 1));
      }
      x += whole;
    }
    x += between + (texts[end - 1].tight ? padding : 0);
  }
  return { places, bottom: y + height, rtl };
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
