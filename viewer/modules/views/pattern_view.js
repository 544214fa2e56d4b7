// @ts-check

import { cellAt, drawCells, drawCursor, placeOfCell } from "../drawing.js";
import { say } from "../language.js";
import { fitText, textWidth } from "../lettering.js";
import { clamp } from "../numbers.js";
import { BARS_ROOM, barsTop, drawRowBars } from "../row_bars.js";
import { featured, rowsOfTexts } from "../sentence.js";
import { PHONE } from "../style.js";
import { shortText } from "../text.js";
import { textRows } from "../text_rows.js";
import { CORNER, CellView, widest } from "./record_view.js";

/** The height of the name of the keys above their tokens. */
const AXIS = 16;

/** The largest cell that a map without zoom has, in pixels. */
const LARGEST_CELL = 88;

/** On paper, in pixels: the map that grows to the largest cells, those, the least ones with numbers, of three letters and of four, the largest map, and the one beside which bars stand. */
const [SMALL_MAP, PAPER_CELL, NUMBERED, WIDER, LARGEST_MAP, BESIDE] = [480, 56, 35, 42, 1085, 310];

/** The cell of a map on paper, as in the pictures that Python saves. */
function paperCell(table) {
  const longest = Math.max(1, table.rows, table.columns);
  const least = longest * NUMBERED <= LARGEST_MAP && table.values.some((value) => table.numberText(value).length > 3) ? WIDER : NUMBERED;
  return Math.max(13, Math.min(clamp(SMALL_MAP / longest, least, PAPER_CELL), LARGEST_MAP / longest));
}

/** What bars need at the right of a map, and the room above a comparison, and between it and the bars. */
const [SPARE_ROOM, ABOVE_ASIDE, ASIDE_GAP] = [BARS_ROOM.width + BARS_ROOM.gap + 20, 8, 28];

/** How wide a comparison and bars are below a map. */
const widthBelow = (app, right) => (app.paper ? clamp(right, 520, 612) : Math.min(app.area.width - 32, 720));

/** A rectangular map with tokens on both sides. */
export class PatternView extends CellView {
  name = "pattern";

  controls = ["record", "head", "measure", "scale", "words", "special", "zoom"];

  zooms = true;

  help = say("patternHelp");

  barsHeight = BARS_ROOM.height;

  /** What is compared in a width: of several texts, the rows that the sentence speaks of. {height, draw(pen, item, x, y), hit(item, atX, atY, x, y)}, or null. */
  comparison(app, width, item = featured(app)) {
    const rows = item && rowsOfTexts(app, app.table(), item.row, item.column);
    return /** @type {any} */ (rows && textRows(app, rows, width));
  }

  geometry(app) {
    const table = app.table();
    const { width, height } = app.area;
    const rowWidth = Math.max(CORNER, Math.min(widest(table, "row") + 14, width * 0.32));
    const room = Math.max(40, width - rowWidth - (width < PHONE ? 16 : 6));
    const label = Math.min(widest(table, "column"), 130);
    const paper = app.paper ? paperCell(table) : 0;
    const wideBelow = widthBelow(app, rowWidth + 10 + table.columns * paper);
    const under = this.comparison(app, wideBelow)?.height ?? 0;
    // A comparison stands at the right of the map or below it, where the cells are larger.
    const [beside, below] = [[under ? SPARE_ROOM : 0, 0], [0, width < PHONE ? 0 : under + ASIDE_GAP]].map(([wide, high]) => {
      const [across, down] = [(room - wide) / Math.max(1, table.columns), (height - high - label - AXIS - 18) / Math.max(1, table.rows)];
      return { fit: Math.max(1, Math.min(across, Math.max(down, Math.min(across, 13)), LARGEST_CELL)), whole: Math.min(across, down, LARGEST_CELL) };
    });
    const { fit, whole } = width < PHONE || below.fit > beside.fit ? below : beside;
    const cell = (paper || fit) * app.state.zoom;
    const flat = label + 8 <= cell;
    // The map begins at the edge of the page, and the bars take the rest of it.
    const spare = Math.max(0, width - rowWidth - table.columns * cell - 6);
    const most = !paper ? spare + BARS_ROOM.width - SPARE_ROOM : table.columns * cell <= BESIDE && !under ? BARS_ROOM.width : 0;
    const bars = most >= BARS_ROOM.width && (paper || height >= this.barsHeight) ? Math.min(most, under ? 640 : BARS_ROOM.most) : 0;
    return { table, left: rowWidth + Math.min(10, Math.floor(spare)), top: AXIS + (flat ? 24 : label + 14), width: cell, height: cell, flat,
      whole, bars, wide: bars || wideBelow, compared: under && bars ? this.comparison(app, bars)?.height : paper || fit === below.fit ? under : 0 };
  }

  size(app) {
    const { table, left, top, width, height, bars, compared } = this.geometry(app);
    const high = top + table.rows * height;
    return { width: left + table.columns * width + (bars && app.paper ? bars + BARS_ROOM.gap : 0) + 6, height: (bars ? Math.max(high, (compared ? ABOVE_ASIDE + compared + ASIDE_GAP : top) + this.barsHeight) : high + this.below(app)) + 4 };
  }

  sumText(app) {
    return this.below(app) || this.geometry(app).bars ? "rowsAddUp" : null;
  }

  below(app) {
    const { bars, compared } = this.geometry(app);
    return bars ? 0 : (compared && compared + ASIDE_GAP) + (app.area.width < PHONE || app.paper ? this.barsHeight + 16 : 0);
  }

  /** The comparison and the bars of a row at the right of the map, or below it: [one of them, where it is]. */
  asides(app, { table, left, top, width, height, bars, wide, compared }, win, item) {
    const comparison = bars || compared ? this.comparison(app, wide, item) : null;
    const high = comparison ? comparison.height + ASIDE_GAP : 0;
    // What is higher than the window moves with the map.
    const start = !bars ? top + table.rows * height + 16 : ABOVE_ASIDE + (ABOVE_ASIDE + high + this.barsHeight > win.height ? 0 : win.y);
    const x = bars ? left + table.columns * width + BARS_ROOM.gap : win.x + (app.paper ? 0 : 16);
    const row = top + ((item?.row ?? 0) + 0.5) * height;
    const y = Math.max(start + high + (bars ? 0 : 12), bars ? barsTop(row, start + top, start + win.height - ABOVE_ASIDE, this.barsHeight) : 0);
    return { comparison, x, y: start, bars: item && (bars || app.paper || app.area.width < PHONE) ? { x, y, width: wide, names: app.paper && !bars ? left : 0 } : null };
  }

  draw(app, pen, win) {
    const place = this.geometry(app);
    const { table } = place;
    const area = { x: win.x + place.left, y: win.y + place.top, width: win.width - place.left, height: win.height - place.top };
    if (!table.rows || !table.columns) {
      pen.text(say("noTokens"), win.x + 12, win.y + 24, { color: app.theme.muted, size: 13 });
      return;
    }
    pen.clip(area.x, area.y, area.width, area.height, () => {
      drawCells(pen, table, place, area, app.state.scale, app.theme);
      this.drawSelection(app, pen, place);
    });
    this.drawRowLabels(app, pen, place, win);
    this.drawColumnLabels(app, pen, place, win);
    const item = app.active() ?? app.featured();
    const { comparison, x, y, bars } = this.asides(app, place, win, item);
    pen.clip(win.x, place.bars ? win.y : area.y, win.width, win.height, () => {
      comparison?.draw(pen, item, x, y);
      if (bars) this.drawBars(app, pen, table, item, bars);
    });
  }

  /** Whom a query looks at, beside the map or below it. */
  drawBars(app, pen, table, { row }, room) {
    drawRowBars(app, pen, table, row, room);
  }

  drawSelection(app, pen, place) {
    const { table } = place;
    const rowBox = (row, color) => pen.rect(place.left + 1, place.top + row * place.height, table.columns * place.width - 2,
      place.height, { stroke: color, lineWidth: 2 });
    for (const row of app.state.locked) if (row < table.rows) rowBox(row, app.theme.accent);
    const spoken = app.featured();
    const item = app.active() ?? spoken;
    if (item) drawCursor(pen, table, place, item, item === spoken ? app.theme.accent : app.theme.focus, app.theme);
  }

  drawRowLabels(app, pen, place, win) {
    const { table } = place;
    const step = Math.max(1, Math.ceil(12 / place.height));
    const item = app.active() ?? app.featured();
    const first = Math.max(0, Math.floor((win.y) / place.height) - 1);
    const last = Math.min(table.rows, Math.ceil((win.y + win.height - place.top) / place.height) + 1);
    pen.clip(win.x, win.y + place.top - 7, place.left - 2, win.height - place.top + 7, () => {
      pen.rect(win.x, win.y + place.top - 7, place.left - 2, win.height, { fill: app.theme.background });
      for (let row = first; row < last; row += 1) {
        const chosen = item?.row === row || app.state.locked.includes(row);
        if (row % step && !chosen) continue;
        if (step > 1 && !chosen && item && Math.abs(item.row - row) < step) continue;
        const y = place.top + (row + 0.5) * place.height;
        this.drawLabel(app, pen, shortText(table.rowText(row)), win.x + place.left - 8, y, place.left - 12, chosen,
          app.state.locked.includes(row));
      }
    });
  }

  drawLabel(app, pen, text, x, y, width, chosen, locked) {
    const size = 12;
    const shown = fitText(text, width, { size, bold: chosen });
    if (locked) {
      const wide = textWidth(shown, { size, bold: true });
      pen.rect(x - wide - 4, y - 8, wide + 8, 16, { fill: app.theme.accent, radius: 3 });
    }
    pen.text(shown, x, y, { color: locked ? app.theme.accentText : app.theme.text, size, bold: chosen, align: "end" });
  }

  drawColumnLabels(app, pen, place, win) {
    const { table } = place;
    const step = Math.max(1, Math.ceil(13 / place.width));
    const item = app.active() ?? app.featured();
    const first = Math.max(0, Math.floor(win.x / place.width) - 1);
    const last = Math.min(table.columns, Math.ceil((win.x + win.width - place.left) / place.width) + 1);
    pen.rect(win.x, win.y, win.width, place.top - 7, { fill: app.theme.background });
    const axis = { color: app.theme.muted, size: 11 };
    const [asks, looked] = [say("axisQuery"), say("axisKey")];
    pen.text(asks, Math.max(win.x + place.left - 8, win.x + textWidth(asks, axis) + 4), win.y + place.top - 14, { ...axis, align: "end" });
    pen.text(looked, Math.min(win.x + place.left, win.x + win.width - textWidth(looked, axis) - 4), win.y + 8, axis);
    pen.clip(win.x + place.left - 6, win.y, win.width - place.left + 6, place.top, () => {
      for (let column = first; column < last; column += 1) {
        const chosen = item?.column === column;
        if (column % step && !chosen) continue;
        if (step > 1 && !chosen && item && Math.abs(item.column - column) < step) continue;
        const x = place.left + (column + 0.5) * place.width;
        const shown = fitText(shortText(table.columnText(column)), place.flat ? place.width - 4 : place.top - AXIS - 14, { bold: chosen });
        if (place.flat) pen.text(shown, x, win.y + place.top - 10, { color: app.theme.text, bold: chosen, align: "center" });
        else pen.text(shown, x, win.y + place.top - 6, { color: app.theme.text, bold: chosen, angle: -90 });
      }
    });
  }

  legendText(app, table) {
    const place = this.geometry(app);
    const numbers = place.width >= 30 && place.height >= 18 && table.exact && !table.signed;
    return [super.legendText(app, table), numbers ? say("blankNote") : ""].filter(Boolean).join(" \u00b7 ");
  }

  hit(app, x, y, win) {
    const place = this.geometry(app);
    const item = app.active() ?? app.featured();
    const aside = this.asides(app, place, win, item);
    const compared = aside.comparison?.hit(item, x, y, aside.x, aside.y);
    if (compared) return compared;
    if (x < win.x + place.left || y < win.y + place.top) return null;
    const [row, column] = cellAt(x, y, place);
    return row < place.table.rows && column < place.table.columns ? { row, column } : null;
  }

  place(app, item) {
    return item.box ?? placeOfCell(item, this.geometry(app));
  }

  describe(app, item) {
    return item.box ? say("showsText", { number: item.text + 1 }) : super.describe(app, item);
  }

  activate(app, item) {
    if (item.box) app.selection.toText(item.text);
    else super.activate(app, item);
  }
}
