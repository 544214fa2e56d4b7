// @ts-check

import { cellAt, drawCells, placeOfCell, ring } from "../drawing.js";
import { say } from "../language.js";
import { fitText, textWidth } from "../lettering.js";
import { BARS_ROOM, barsTop, drawRowBars } from "../row_bars.js";
import { PHONE } from "../style.js";
import { shortText } from "../text.js";
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

/** A rectangular map with tokens on both sides. */
export class PatternView extends CellView {
  name = "pattern";

  controls = ["record", "head", "measure", "scale", "words", "special", "zoom"];

  zooms = true;

  help = say("patternHelp");

  geometry(app) {
    const table = app.table();
    const { width, height } = app.area;
    const rowWidth = Math.max(CORNER, Math.min(widest(table, "row") + 14, width * 0.32));
    const room = Math.max(40, width - rowWidth - (width < PHONE ? 16 : 6));
    const across = room / Math.max(1, table.columns);
    const label = Math.min(widest(table, "column"), 130);
    const down = (height - label - AXIS - 18) / Math.max(1, table.rows);
    const fit = app.paper ? paperCell(table) : Math.max(1, Math.min(across, Math.max(down, Math.min(across, 13)), LARGEST_CELL));
    const cell = fit * app.state.zoom;
    const flat = label + 8 <= cell;
    // The map begins at the edge of the page, and the bars take the rest of it.
    const spare = Math.max(0, width - rowWidth - table.columns * cell - 6);
    const bars = app.paper ? table.columns * cell <= BESIDE : spare >= BARS_ROOM.width + BARS_ROOM.gap + 10 && height >= BARS_ROOM.height;
    return { table, left: rowWidth + Math.min(10, Math.floor(spare)), top: AXIS + (flat ? 24 : label + 14), width: cell, height: cell, flat,
      whole: Math.min(across, down, LARGEST_CELL), bars: !bars ? 0 : app.paper ? BARS_ROOM.width : Math.min(spare - BARS_ROOM.gap - 10, BARS_ROOM.most) };
  }

  size(app) {
    const { table, left, top, width, height, bars } = this.geometry(app);
    const high = table.rows * height;
    return { width: left + table.columns * width + (bars && app.paper ? bars + BARS_ROOM.gap : 0) + 6, height: top + (bars ? Math.max(high, BARS_ROOM.height) : high + this.below(app)) + 4 };
  }

  sumText(app) {
    return this.below(app) || this.geometry(app).bars ? "rowsAddUp" : null;
  }

  below(app) {
    return app.area.width < PHONE || (app.paper && !this.geometry(app).bars) ? BARS_ROOM.height + 12 : 0;
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
    const row = (app.active() ?? app.featured())?.row;
    if (place.bars && row !== undefined) {
      const right = place.left + table.columns * place.width;
      const y = barsTop(place.top + (row + 0.5) * place.height, win.y + place.top, win.y + win.height);
      this.drawBars(app, pen, table, row, { x: right + BARS_ROOM.gap, y, width: place.bars });
    } else if (row !== undefined && this.below(app)) {
      const wide = app.paper ? Math.max(520, Math.min(612, place.left + table.columns * place.width)) : win.width - 32;
      const bars = { x: win.x + (app.paper ? 0 : 16), y: place.top + table.rows * place.height + 28, width: wide, names: app.paper ? place.left : 0 };
      pen.clip(win.x, area.y, win.width, area.height, () => this.drawBars(app, pen, table, row, bars));
    }
  }

  /** Whom a query looks at, beside the map or below it. */
  drawBars(app, pen, table, row, place) {
    drawRowBars(app, pen, table, row, place);
  }

  drawSelection(app, pen, place) {
    const { table } = place;
    const rowBox = (row, color) => pen.rect(place.left + 1, place.top + row * place.height, table.columns * place.width - 2,
      place.height, { stroke: color, lineWidth: 2 });
    for (const row of app.state.locked) if (row < table.rows) rowBox(row, app.theme.accent);
    const spoken = app.featured();
    const item = app.active() ?? spoken;
    if (item) {
      pen.rect(place.left, place.top + item.row * place.height, table.columns * place.width, place.height, { stroke: app.theme.accent });
      ring(pen, place.left + item.column * place.width, place.top + item.row * place.height, place.width, place.height,
        item === spoken ? app.theme.accent : app.theme.focus, app.theme);
    }
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
    if (x < win.x + place.left || y < win.y + place.top) return null;
    const [row, column] = cellAt(x, y, place);
    return row < place.table.rows && column < place.table.columns ? { row, column } : null;
  }

  place(app, item) {
    return placeOfCell(item, this.geometry(app));
  }
}
