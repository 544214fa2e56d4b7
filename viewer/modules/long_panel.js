// @ts-check

import { say } from "./language.js";
import { fitText, textWidth } from "./lettering.js";
import { LEAST_END } from "./long_map.js";
import { pairText } from "./long_sentence.js";
import { counted } from "./numbers.js";
import { wordColors } from "./palette.js";
import { flowText, sizeOfToken, tokenTexts } from "./text_flow.js";

/** The least width of the panel beside a map, the most, and the room between both, in pixels. */
const [LEAST_WIDTH_BESIDE, MOST_WIDTH_BESIDE, PANEL_GAP] = [300, 700, 40];

/** The height of a line of a list. */
const LIST_STEP = 24;

/** The text around a token: the size of its letters, and its most lines. */
const [AROUND, AROUND_LINES] = [{ size: 16, height: 22, lineHeight: 28, least: 4 }, 3];

const [PANEL_TITLE, PANEL_SMALL, PANEL_TEXT] = [{ size: 16, bold: true }, { size: 12 }, { size: 13 }];

/** The room that a panel takes from the width of a map; 0 where it stands below. */
export const panelRoom = (width) => (width >= 860 ? LEAST_WIDTH_BESIDE + PANEL_GAP : 0);

/** Where the panel is: beside a map of this place, or below it; null where the map is enlarged. */
export function panelPlace(app, { right, bottom }) {
  if (app.state.zoom > 1) return null;
  if (!panelRoom(app.area.width)) return { x: 16, y: bottom + 24, width: app.area.width - 32, below: true };
  return { x: right + PANEL_GAP, y: 12, width: Math.min(MOST_WIDTH_BESIDE, app.area.width - right - PANEL_GAP - 16), below: false };
}

/** Tokens around a position that fill some lines, and the place of the position among them. */
function textAround(axis, position, width) {
  let [first, last] = [position, position + 1];
  const letters = (AROUND_LINES - 0.6) * width / (0.62 * AROUND.size);
  let used = axis.text(position).length;
  while (used < letters && (first > 0 || last < axis.length)) {
    if (first > 0) used += axis.text(first -= 1).length + 1;
    if (last < axis.length) used += axis.text((last += 1) - 1).length + 1;
  }
  const groups = Array.from({ length: last - first }, (_, number) => [first + number, first + number + 1]);
  const raw = groups.map(([one]) => axis.text(one));
  // Single letters stand without gaps, and a space is a space.
  const letterwise = raw.every((text) => [...text].length <= 1);
  const texts = tokenTexts(axis, groups, raw, false).map((text, number) => (!letterwise ? text
    : { ...text, shown: raw[number].trim() === "" && number !== position - first ? "\u00a0" : text.shown, starts: number > 0 && raw[number - 1].trim() === "" }));
  return { texts, chosen: position - first, padding: letterwise ? 0 : 2 };
}

/** A text around a token, which has a frame or a shade. @returns {number} where it ends */
function drawAround(app, pen, axis, position, title, { x, y, width }, colors) {
  const { theme } = app;
  pen.text(title, x, y, { color: theme.muted, ...PANEL_SMALL });
  const { texts, chosen, padding } = textAround(axis, position, width);
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
    if (number === chosen) pen.rect(at.x - 2, at.y, at.width + 4, at.height, colors.fill ? { fill: colors.fill, radius: 3 } : { stroke: theme.accent, lineWidth: 2, radius: 3 });
    pen.text(fitText(texts[number].shown, at.width + 4, style), at.x + at.width / 2, at.y + at.height / 2,
      { ...style, color: number === chosen && colors.fill ? colors.ink : number === chosen ? theme.text : theme.muted, align: "center" });
  });
  return end;
}

/** What a panel shows: its parts from above to below. `spot` is the pair that is spoken of; lists are {title, lines: {text, item}[]}. */
export function panelParts(place, map, head, spot) {
  const { record } = map;
  const peaks = map.peaksOf(head);
  const clear = peaks.filter((one) => one.times > LEAST_END);
  const strongest = (clear.length ? clear : peaks.slice(0, 3)).map((one) => ({ text: pairText(record, one), item: { row: one.query, column: one.key, head: one.head } }));
  // Of the findings of one head and kind the first is enough.
  const places = map.places();
  const found = places.filter((one, number) => places.findIndex((other) => other.head === one.head && other.kind === one.kind) === number).map((one) => ({ text: one.text, item: { row: one.row, column: one.column, head: one.head } }));
  const top = place.y + (spot ? 2 * (34 + AROUND_LINES * AROUND.lineHeight) : 0) + 24;
  const lists = [[say("long_strongest"), strongest], [say("long_findings"), found]].filter(([, lines]) => lines.length);
  let y = top;
  const rows = [];
  for (const [title, lines] of lists) {
    rows.push({ title, y });
    y += 26;
    for (const line of lines) {
      rows.push({ ...line, x: place.x, y, width: place.width, height: LIST_STEP });
      y += LIST_STEP;
    }
    y += 18;
  }
  return { rows, bottom: y };
}

export function drawPanel(app, pen, place, map, spot, parts, limit) {
  const { record } = map;
  const { theme } = app;
  if (spot) {
    const shade = Math.min(1, (spot.times ?? 0) / limit);
    const end = drawAround(app, pen, record.queries, spot.row, say("long_asks", { number: counted(spot.row) }), place, {});
    drawAround(app, pen, record.keys, spot.column, say("long_looked_at", { number: counted(spot.column) }), { ...place, y: end + 26 }, wordColors(shade, theme));
  }
  const active = app.active();
  for (const { title, text, item, x, y, width, height } of parts.rows) {
    if (!place.below && y + LIST_STEP > app.area.height) break;
    if (title) { pen.text(fitText(title, place.width, PANEL_TITLE), place.x, y + 8, { color: theme.text, ...PANEL_TITLE }); continue; }
    const chosen = active && active.row === item.row && active.column === item.column;
    if (chosen) pen.rect(x - 4, y, Math.min(width, textWidth(text, PANEL_TEXT) + 8), height, { fill: theme.highlight, radius: 3 });
    pen.text(fitText(text, width, PANEL_TEXT), x, y + height / 2, { color: theme.text, ...PANEL_TEXT });
  }
}
