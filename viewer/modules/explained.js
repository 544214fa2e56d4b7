// @ts-check

import { say } from "./language.js";
import { keyOf, mostSurprising, queryOf, rowsAddUp, sayOfRow, spokenTable, withHeads } from "./sentence.js";

/** The height of the axis name above the tokens of a map. */
const AXIS_NAME = 18;

/** The least box around boxes. */
function around(...boxes) {
  const [left, top] = [Math.min(...boxes.map((box) => box.x)), Math.min(...boxes.map((box) => box.y))];
  return { x: left, y: top, width: Math.max(...boxes.map((box) => box.x + box.width)) - left, height: Math.max(...boxes.map((box) => box.y + box.height)) - top };
}

const grown = (box, { left = 0, top = 0 }) => ({ x: box.x - left, y: box.y - top, width: box.width + left, height: box.height + top });

/** The card of layers and heads, at their choices. */
function ofHeads(app) {
  if (app.records.length < 2 && app.record.heads < 2) return [];
  return [{ title: say("cardHeads"), text: say("cardHeadsText"), element: app.frame.bar }];
}

/** A map: rows, columns, cells. */
function ofMap(app, pair, names) {
  const { view } = app;
  const table = app.table();
  const at = (row, column) => view.place(app, { row, column });
  const { row, column } = pair;
  const { left, top } = view.geometry(app);
  const first = at(row, 0);
  return [
    { title: say("cardQuery"), text: app.record.say("cardRow", names), box: grown(around(first, at(row, table.columns - 1)), { left: Math.min(90, first.x, left) }) },
    { title: say("cardKey"), text: say("cardColumn", names), box: grown(around(at(0, column), at(table.rows - 1, column)), { top: view.name === "pattern" ? top - AXIS_NAME : 0 }) },
    { title: say("cardWeight"), text: rowsAddUp(table) ? say("cardCell", names) : names.sentence, box: at(row, column) },
  ];
}

/** Two columns with lines between them. */
function ofLines(app, pair, names) {
  const [query, key] = [app.view.place(app, { side: "query", row: pair.row }), app.view.place(app, { side: "key", column: pair.column })];
  const [x, y] = [(query.x + query.width + key.x) / 2, (query.y + key.y + query.height) / 2];
  return [
    { title: say("cardQuery"), text: app.record.say("cardLeft", names), box: query },
    { title: say("cardKey"), text: say("cardRight", names), box: key },
    { title: say("cardWeight"), text: say("cardLine", names), box: { x: x - 16, y: y - 12, width: 32, height: 24 } },
  ];
}

/** Words or patches that are shaded. */
function ofShades(app, pair, names) {
  const [query, key] = [app.view.place(app, { side: "query", row: pair.row }), app.view.place(app, { side: "key", column: pair.column })];
  return [
    { title: say("cardQuery"), text: app.record.say("cardPoint", names), box: query },
    { title: say("cardWeight"), text: say("cardShade", names), box: key },
  ];
}

function ofGrid(app) {
  const at = (row, column) => app.view.place(app, { row, column });
  const [first, last] = [app.recordsOfText[0], app.recordsOfText.at(-1)].map((record) => record.number);
  return [
    { title: say("cardHead"), text: say("cardThumbnail"), box: at(first, 0) },
    { title: say("cardLayers"), text: say("cardLayersText"), box: around(at(first, 0), at(last, 0)) },
    { title: say("cardSide"), text: say("cardSideText"), box: around(at(first, 0), at(first, app.records[first].heads - 1)) },
  ];
}

const OF_VIEWS = { pattern: ofMap, sound: ofMap, lines: ofLines, words: ofShades, image: ofShades };

/**
 * What the cards of a view explain: {title, text, and a box of the picture or an element of the frame}.
 * @returns {{title: string, text: string, box?: any, element?: HTMLElement}[]}
 */
export function explained(app) {
  const { view } = app;
  if (view.explained) return view.explained(app);
  if (view.name === "grid") return ofGrid(app);
  const cards = OF_VIEWS[view.name];
  const pair = cards && !app.record.large ? app.featured() ?? app.active() : null;
  if (!pair) return [{ title: say(view.name), text: say(view.name === "walk" ? "cardWalk" : "cardLong"), element: app.frame.tabs }, ...(view.name === "walk" ? [] : ofHeads(app))];
  const table = spokenTable(app) ?? app.table();
  const known = { row: pair.row ?? mostSurprising(table)?.row ?? 0, column: pair.column ?? 0 };
  const names = { query: queryOf(table, known.row, 20), key: keyOf(table, known.column, 20),
    sentence: withHeads(table, sayOfRow(table, known.row, known.column)).text };
  return [...cards(app, known, names), ...ofHeads(app)];
}
