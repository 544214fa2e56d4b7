// @ts-check

import { inside } from "./drawing.js";
import { say } from "./language.js";
import { fitText } from "./lettering.js";
import { wordColors } from "./palette.js";
import { withoutRows } from "./scales.js";
import { evenShareOf, markedKeys } from "./sentence.js";
import { WEIGHT, signedShade } from "./table.js";
import { flowText, flowTexts, sizeOfToken } from "./text_flow.js";

/** The words of a text: their size, the height of their boxes and from line to line, the room beside a word and between words, in pixels. */
const ROW_STYLE = { size: 16, height: 22, lineHeight: 42, padding: 4, between: 3 };

/** The room of a text's name, around a text, and between texts. */
const [ROW_NAME, ROW_INSIDE, ROWS_APART] = [28, 8, 4];

/** Texts that together are higher are shown around the words that are spoken of, so many words on each side. */
const [HIGHEST_ROWS, WORDS_AROUND] = [330, 3];

const flows = new WeakMap();

/** The words of rows of texts with their places in a width, whole or where they are too high in short. */
function flowOfRows(rows, width) {
  if (!flows.has(rows)) flows.set(rows, new Map());
  if (!flows.get(rows).has(width)) flows.get(rows).set(width, [Infinity, WORDS_AROUND].map((around) => flowRows(rows, width, around)).find(({ height }, short) => short || height <= HIGHEST_ROWS));
  return flows.get(rows).get(width);
}

function flowRows(rows, width, around) {
  let height = -ROWS_APART;
  const texts = rows.map((one) => {
    const { table, row, column } = one;
    const marked = markedKeys(table, row, column);
    const asks = table.record.queries === table.record.keys ? row : column;
    const all = flowTexts(table, "column").map((word, number) => ({ ...word, column: number }));
    const near = all.filter((word) => Math.min(Math.abs(word.column - asks), Math.abs(word.column - column)) <= around);
    const dots = { shown: "\u2026", starts: true, column: -1 };
    const words = near.flatMap((word, place) => [...(word.column > (near[place - 1]?.column ?? -1) + 1 ? [dots] : []), word, ...(place === near.length - 1 && word.column < all.length - 1 ? [dots] : [])]);
    const { places, bottom } = flowText(words, ROW_INSIDE, ROW_NAME, width - 2 * ROW_INSIDE, ROW_STYLE);
    const ends = words.some((word, number) => marked.has(word.column) && places[number].y + ROW_STYLE.height === bottom);
    const box = { x: 0, y: height + ROWS_APART, width, height: bottom + (ends ? 22 : ROW_INSIDE) };
    height = box.y + box.height;
    return { ...one, marked, asks, words, places, box };
  });
  return { texts, height };
}

/** What a word gives to the words of several texts, as colours behind them; a click on a text goes to it. See `rowsOfTexts`, `PatternView.comparison`. */
export function textRows(app, rows, width) {
  const { theme, state } = app;
  const { texts, height } = flowOfRows(rows, width);
  return {
    height,
    draw: (pen, item, x, y) => texts.forEach(({ text, table, row, column, marked, asks, words, places, box }) => pen.shift(x, y + box.y, () => {
      const chosen = text === app.text;
      if (chosen || item?.text === text) pen.rect(0.5, 0.5, width - 1, box.height - 1, { fill: chosen ? theme.surface : null, stroke: theme.border, radius: 6 });
      pen.text(say("textBrief", { number: text + 1 }), ROW_INSIDE + 4, 15, { color: theme.muted, size: 13, bold: chosen });
      words.forEach((word, number) => {
        const { x: left, y: top, width: wide, height: high } = places[number];
        const of = word.column;
        const more = of >= 0 && table.kind(row, of) === WEIGHT && table.value(row, of) > evenShareOf(table, row, of);
        const { fill, ink } = more ? wordColors(signedShade(table.value(row, of), app.table().end, withoutRows(state.scale)), theme) : { fill: null, ink: word.special ? theme.muted : theme.text };
        if (fill || of === asks) pen.rect(left, top, wide, high, { fill, stroke: of === asks ? theme.accent : null, lineWidth: 2, radius: 3 });
        const style = { size: sizeOfToken(word, ROW_STYLE.size) };
        pen.text(fitText(word.shown, wide, style), left + wide / 2, top + high / 2, { ...style, color: ink, align: "center" });
        if (marked.has(of)) pen.text(marked.get(of), left + wide / 2, top + high + 9, { color: theme.text, size: 12, bold: of === column, align: "center" });
      });
    })),
    /** A text that is not the shown one, with the cell that is spoken of. */
    hit(item, atX, atY, x, y) {
      const at = texts.find(({ box }) => inside(box, atX - x, atY - y));
      return item && at && at.text !== app.text ? { row: item.row, column: item.column, text: at.text, box: { ...at.box, x, y: y + at.box.y } } : null;
    },
  };
}
