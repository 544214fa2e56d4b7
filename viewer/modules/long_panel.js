// @ts-check

import { say } from "./language.js";
import { fitText, textWidth, wrapText } from "./lettering.js";
import { distanceOf, distanceText, farPairs, pairText } from "./long_sentence.js";
import { counted } from "./numbers.js";
import { visibleText } from "./text.js";
import { flowText, sizeOfToken, tokenTexts } from "./text_flow.js";

/** The least width of the panel beside a map, the most, and the room between both, in pixels. */
const [LEAST_WIDTH_BESIDE, MOST_WIDTH_BESIDE, PANEL_GAP] = [300, 700, 40];

/** The heights of a line of a list, and of the words around below it. */
const [LIST_STEP, AROUND_STEP] = [26, 30];

/** The text around a token: the size of its letters, and its most lines. */
const [AROUND, AROUND_LINES] = [{ size: 16, height: 24, lineHeight: 28, least: 4 }, 2];

const [PANEL_TITLE, PANEL_SMALL, PANEL_AROUND, PANEL_TEXT] = [{ size: 16 }, { size: 13 }, { size: 14 }, { size: 16, bold: true }];

/** Pairs are bold, and findings, which are sentences, are not. */
const styleOf = ({ around }) => ({ ...PANEL_TEXT, bold: Boolean(around) });

/** The room that a panel takes from the width of a map; 0 where it stands below. */
export const panelRoom = (width) => (width >= 860 ? LEAST_WIDTH_BESIDE + PANEL_GAP : 0);

/** Where the panel is: beside a map of this place, or below it; null where the map is enlarged. */
export function panelPlace(app, { right, bottom }) {
  if (app.state.zoom > 1) return null;
  if (!panelRoom(app.area.width)) return { x: 16, y: bottom + 24, width: app.area.width - 32, below: true };
  return { x: right + PANEL_GAP, y: 12, width: Math.min(MOST_WIDTH_BESIDE, app.area.width - right - PANEL_GAP - 16), below: false };
}

/** The letters of a token with the room after it; single letters stand without. */
const widthOf = (text) => text.length + (text.length > 1 ? 1 : 0);

/** Tokens around a position of so many letters, single ones joined to words, and the place of the position among them. */
function textAround(axis, position, letters) {
  let [first, last] = [position, position + 1];
  let used = axis.text(position).length;
  while (used < letters && (first > 0 || last < axis.length)) {
    if (first > 0) used += widthOf(axis.text(first -= 1));
    if (last < axis.length) used += widthOf(axis.text((last += 1) - 1));
  }
  const groups = Array.from({ length: last - first }, (_, number) => [first + number, first + number + 1]);
  const raw = groups.map(([one]) => axis.text(one));
  const chosen = position - first;
  if (raw.some((text) => [...text].length > 1)) return { texts: tokenTexts(axis, groups, raw, false), chosen, padding: 2, first, last };
  const letterwise = { texts: /** @type {{shown: string, starts: boolean, special?: boolean}[]} */ ([]), chosen: 0, padding: 0, first, last };
  raw.forEach((text, number) => {
    const [gap, before] = [text.trim() === "", number > 0 && raw[number - 1].trim() === ""];
    if (number === chosen) letterwise.chosen = letterwise.texts.push({ shown: `\u2009${visibleText(text)}\u2009`, starts: before || gap }) - 1;
    else if (gap) return;
    else if (number === 0 || before || number === chosen + 1) letterwise.texts.push({ shown: text, starts: before || number === 0 });
    else letterwise.texts.at(-1).shown += text;
  });
  // A word that is cut at an end is left out.
  const { texts } = letterwise;
  if (last < axis.length && texts.length - 1 > letterwise.chosen && axis.text(last).trim() && raw.at(-1).trim()) texts.pop();
  if (first > 0 && letterwise.chosen > 0 && axis.text(first - 1).trim() && raw[0].trim() && texts[1].starts) { texts.shift(); letterwise.chosen -= 1; }
  return letterwise;
}

/** The words around a token, which is bold, as the runs of a line. */
function excerpt(axis, position, letters) {
  const { texts, chosen, first, last } = textAround(axis, position, letters);
  const line = texts.map(({ shown, starts }, number) => `${starts && number ? "\u00a0" : ""}${number === chosen ? shown.trim() : shown}`);
  const runs = [`${first > 0 ? "\u2026\u00a0" : ""}${line.slice(0, chosen).join("")}`, line[chosen], `${line.slice(chosen + 1).join("")}${last < axis.length ? "\u00a0\u2026" : ""}`]
    .map((text, number) => ({ text, style: { ...PANEL_AROUND, bold: number === 1 } }));
  return /[\u0590-\u08ff]/.test(line.join("")) ? runs.reverse() : runs;
}

const widthOfRuns = (runs) => runs.reduce((sum, { text, style }) => sum + textWidth(text, style), 0);

/** The words around both tokens of a pair, as many as there is room for. */
function excerpts(record, { query, key }, width) {
  for (let letters = 40; ; letters -= 4) {
    const runs = [...excerpt(record.queries, query, letters), { text: "\u00a0\u00a0\u2192\u00a0\u00a0", style: PANEL_AROUND }, ...excerpt(record.keys, key, letters)];
    if (letters <= 4 || widthOfRuns(runs) <= width) return runs;
  }
}

/** A text around a token, which has a frame or a shade. @returns {number} where it ends */
function drawAround(app, pen, axis, position, title, { x, y, width }, looked) {
  const { theme } = app;
  pen.text(title, x, y, { color: theme.muted, ...PANEL_SMALL });
  const { texts, chosen, padding } = textAround(axis, position, ((AROUND_LINES - 0.5) * width) / (0.56 * AROUND.size));
  const { places } = flowText(texts, x, y + 14, width, { ...AROUND, padding });
  // The line of the token stands below one other, where there is one.
  const from = places[chosen].y - AROUND.lineHeight * Math.min(1, Math.round((places[chosen].y - y - 14) / AROUND.lineHeight));
  let end = y + 14;
  places.forEach((box, number) => {
    const line = Math.round((box.y - from) / AROUND.lineHeight);
    if (line < 0 || line >= AROUND_LINES) return;
    const at = { ...box, y: y + 14 + line * AROUND.lineHeight };
    end = Math.max(end, at.y + AROUND.height);
    const style = { size: sizeOfToken(texts[number], AROUND.size), bold: number === chosen };
    if (number === chosen) pen.rect(at.x - padding, at.y, at.width + 2 * padding, at.height, looked ? { fill: theme.accent, radius: 3 } : { stroke: theme.accent, lineWidth: 2, radius: 3 });
    pen.text(fitText(texts[number].shown, at.width + 4, style), at.x + at.width / 2, at.y + at.height / 2,
      { ...style, color: number !== chosen ? theme.muted : looked ? theme.background : theme.text, align: "center" });
  });
  return end;
}

/** What a panel shows: its parts from above to below. `spot` is the pair that is spoken of; lists are {title, lines: {text, item}[]}. */
export function panelParts(place, map, head, spot) {
  const { record } = map;
  const strongest = farPairs(map, head).map((one) => ({ text: pairText(record, one), around: excerpts(record, one, place.width),
    distance: record.kind === "cross" ? "" : distanceText(distanceOf(record, one)), item: { row: one.query, column: one.key, head: one.head } }));
  // Of the findings of one head and kind the first is enough.
  const places = map.places();
  const found = places.filter((one, number) => places.findIndex((other) => other.head === one.head && other.kind === one.kind) === number).map((one) => ({ text: one.text, item: { row: one.row, column: one.column, head: one.head } }));
  const top = place.y + (spot ? (spot.row === spot.column && record.queries === record.keys ? 1 : 2) * (34 + AROUND_LINES * AROUND.lineHeight) + 20 : 0) + 16;
  const lists = [[say("long_strongest"), strongest], [say("long_findings"), found]].filter(([, lines]) => lines.length);
  let y = top;
  const rows = [];
  for (const [title, lines] of lists) {
    rows.push({ title, y });
    y += 26;
    for (const line of lines) {
      const texts = wrapText(line.text, place.width - (line.distance ? textWidth(line.distance, PANEL_SMALL) + 12 : 0), styleOf(line));
      const height = LIST_STEP * texts.length + (line.around ? AROUND_STEP : 0);
      rows.push({ ...line, texts, x: place.x, y, width: place.width, height });
      y += height;
    }
    y += 18;
  }
  return { rows, bottom: y };
}

export function drawPanel(app, pen, place, map, spot, parts, shares) {
  const { record } = map;
  const { theme } = app;
  if (spot) {
    const told = (key, number) => map.inUnits(say(key, { number: counted(number) }));
    const same = spot.row === spot.column && record.queries === record.keys;
    const end = drawAround(app, pen, record.queries, spot.row, told(same ? "long_itself" : "long_asks", spot.row), place, false);
    const below = same ? end : drawAround(app, pen, record.keys, spot.column, told("long_looked_at", spot.column), { ...place, y: end + 26 }, true);
    if (shares) pen.text(fitText(shares, place.width, PANEL_SMALL), place.x, below + 18, { color: theme.text, ...PANEL_SMALL });
  }
  const active = app.active();
  for (const { title, texts, around, distance, item, x, y, width, height } of parts.rows) {
    if (!place.below && y + (height ?? LIST_STEP) > app.area.height) break;
    if (title) { pen.text(fitText(title, place.width, PANEL_TITLE), place.x, y + 8, { color: theme.text, ...PANEL_TITLE }); continue; }
    const chosen = active && active.row === item.row && active.column === item.column;
    if (chosen) pen.rect(x - 4, y, Math.min(width, Math.max(...texts.map((text) => textWidth(text, PANEL_TEXT)), around ? widthOfRuns(around) : 0) + 8), height, { fill: theme.highlight, radius: 3 });
    texts.forEach((text, line) => pen.text(text, x, y + LIST_STEP * (line + 0.5), { color: theme.text, ...styleOf({ around }) }));
    const foot = y + LIST_STEP * texts.length;
    if (distance) pen.text(distance, x + textWidth(texts.at(-1), PANEL_TEXT) + 12, foot - LIST_STEP / 2, { color: theme.muted, ...PANEL_SMALL });
    let start = x;
    for (const run of around ?? []) {
      pen.text(run.text, start, foot + 8, { color: run.style.bold ? theme.text : theme.muted, ...run.style });
      start += textWidth(run.text, run.style);
    }
  }
}
