// @ts-check

import { View } from "./view.js";
import { samplesOf } from "./record_view.js";
import { cellAt, drawCells, placeOfCell, ring } from "../drawing.js";
import { say } from "../language.js";
import { fitText, textWidth } from "../lettering.js";
import { clamp, legendNumber } from "../numbers.js";
import { divergingColor, inkOn, rampColor } from "../palette.js";
import { scaleText, withoutRows } from "../scales.js";
import { MISSING, WEIGHT, ZERO } from "../table.js";
import { shortText } from "../text.js";

/** The room of the axis' name above the labels of columns, and the largest sides of a cell, in pixels. */
const [AXIS_ROOM, WIDEST_CELL, HIGHEST_CELL] = [22, 68, 36];

/** How many of the largest numbers the sentence names. */
const SPOKEN = 4;

/** Layers × heads, or layers × positions: one number in each cell, such as the change of a statistic or the effect of a patch. */
export class NumbersView extends View {
  name = "numbers";

  controls = ["grids", "scale"];

  scalesRows = false;

  help = say("numbers_help");

  available(app) {
    return app.grids.length > 0;
  }

  settle(app) {
    if (!(app.state.grid < app.grids.length)) app.state.grid = 0;
  }

  grid(app) {
    return app.grids[app.state.grid];
  }

  geometry(app) {
    const { columns, rows, entry } = this.grid(app);
    const { width, height } = app.area;
    const widest = (texts) => Math.max(...texts.map((text) => textWidth(text, { size: 12, bold: true })));
    const left = Math.min(width * 0.3, widest(entry.layers.map((layer) => this.layerText(layer))) + 20);
    const label = Math.min(110, widest(entry.columns.map((text) => shortText(text))));
    const across = clamp((width - left - 12) / columns, 13, WIDEST_CELL);
    const flat = label + 6 <= across;
    const top = AXIS_ROOM + (flat ? 20 : label + 10);
    return { left, top, width: across, height: clamp((height - top - 8) / rows, 15, HIGHEST_CELL), flat };
  }

  size(app) {
    const { left, top, width, height } = this.geometry(app);
    const { rows, columns } = this.grid(app);
    return { width: left + columns * width + 12, height: top + rows * height + 8 };
  }

  draw(app, pen, win) {
    const grid = this.grid(app);
    const place = this.geometry(app);
    const { theme } = app;
    const area = { x: win.x + place.left, y: win.y + place.top, width: win.width - place.left, height: win.height - place.top };
    const item = app.active();
    pen.clip(area.x, area.y, area.width, area.height, () => {
      drawCells(pen, grid, place, area, withoutRows(app.state.scale), theme);
      this.drawNumbers(app, pen, grid, place);
      if (item) ring(pen, place.left + item.column * place.width, place.top + item.row * place.height, place.width, place.height, theme.focus, theme);
    });
    pen.clip(win.x, area.y - 7, place.left, area.height + 7, () => grid.entry.layers.forEach((layer, row) => {
      pen.text(fitText(this.layerText(layer), place.left - 12, { size: 12 }), win.x + place.left - 8, place.top + (row + 0.5) * place.height,
        { color: theme.text, size: 12, bold: item?.row === row, align: "end" });
    }));
    pen.text(this.axisText(grid), area.x, win.y + 10, { color: theme.muted, size: 11 });
    pen.clip(area.x - 6, win.y, area.width + 6, place.top, () => grid.entry.columns.forEach((text, column) => {
      const x = place.left + (column + 0.5) * place.width;
      const style = { color: theme.text, size: 12, bold: item?.column === column };
      if (place.flat) pen.text(shortText(text), x, area.y - 10, { ...style, align: "center" });
      else pen.text(fitText(shortText(text), place.top - AXIS_ROOM - 6, style), x, area.y - 6, { ...style, angle: -90 });
    }));
  }

  drawNumbers(app, pen, grid, place) {
    const texts = Array.from(grid.values, (value, cell) => (grid.kinds[cell] === WEIGHT ? grid.text(value) : ""));
    const longest = texts.reduce((one, other) => (other.length > one.length ? other : one), "");
    const size = [12, 11, 10, 9].find((one) => textWidth(longest, { size: one }) + 4 <= place.width && one + 5 <= place.height);
    if (!size) return;
    texts.forEach((text, cell) => {
      if (!text) return;
      const [row, column] = [Math.floor(cell / grid.columns), cell % grid.columns];
      const shade = grid.shade(row, column, withoutRows(app.state.scale));
      pen.text(text, place.left + (column + 0.5) * place.width, place.top + (row + 0.5) * place.height,
        { color: inkOn((grid.signed ? divergingColor : rampColor)(shade, app.theme)), size, align: "center" });
    });
  }

  /** The name of a layer: its number in words, any other label as it is. */
  layerText(layer) {
    return /^\d+$/.test(layer) ? say("layerNumber", { layer }) : shortText(layer, 40);
  }

  axisText({ entry: { axis } }) {
    return axis === "head" ? say("numbers_head") : axis === "position" ? say("numbers_position") : axis;
  }

  hit(app, x, y, win) {
    const place = this.geometry(app);
    const { rows, columns } = this.grid(app);
    if (x < win.x + place.left || y < win.y + place.top) return null;
    const [row, column] = cellAt(x, y, place);
    return row < rows && column < columns ? { row, column } : null;
  }

  place(app, item) {
    return placeOfCell(item, this.geometry(app));
  }

  start(app) {
    return this.grid(app).largestCells(1)[0] ?? { row: 0, column: 0 };
  }

  has(app, item) {
    const { rows, columns } = this.grid(app);
    return item.row < rows && item.column < columns;
  }

  move(app, item, dx, dy) {
    const { rows, columns } = this.grid(app);
    return { row: clamp(item.row + dy, 0, rows - 1), column: clamp(item.column + dx, 0, columns - 1) };
  }

  activate() { /* a number has nothing to open */ }

  nameOf(grid, { row, column }) {
    const [layer, text] = [this.layerText(grid.entry.layers[row]), grid.entry.columns[column]];
    const label = `\u2068${shortText(text, 32)}\u2069`;
    const numbered = grid.entry.axis === "position" && /^\d+$/.test(text); // tokens say more than their positions
    return `${layer} \u00b7 ${grid.entry.axis === "head" ? say("headNumber", { head: text }) : numbered ? `${say("numbers_position")} ${text}` : label}`;
  }

  describe(app, item) {
    const grid = this.grid(app);
    const noise = grid.noise(item.row, item.column);
    if (grid.kind(item.row, item.column) === MISSING) return `${this.nameOf(grid, item)}: ${say("numbers_none")}`;
    const value = grid.value(item.row, item.column);
    const number = `${grid.signed && value > 0 ? "+" : ""}${legendNumber(value)}`;
    return `${this.nameOf(grid, item)}: ${number}${noise === null ? "" : ` \u00b1 ${legendNumber(Number(noise.toPrecision(2)))}`} ${grid.entry.unit}`.trim();
  }

  sentence(app, item) {
    const grid = this.grid(app);
    const [first, ...next] = grid.largestCells(SPOKEN);
    if (!first) return { text: item ? this.describe(app, item) : say("numbers_none"), shares: "" };
    const names = next.map((one) => `${this.nameOf(grid, one)} ${grid.text(grid.value(one.row, one.column))}`);
    return { text: item ? this.describe(app, item) : say("numbers_largest", { what: this.describe(app, first) }),
      shares: names.length ? say("numbers_next", { names: names.join("; ") }) : "" };
  }

  explained(app) {
    return [{ title: say("numbers"), text: say(this.grid(app).entry.axis === "head" ? "numbers_card" : "numbers_card_position"), box: this.place(app, this.start(app)) }];
  }

  legend(app) {
    const grid = this.grid(app);
    const scale = withoutRows(app.state.scale);
    const samples = samplesOf([[ZERO, grid.hasZero], [MISSING, grid.hasMissing]].filter(([, occurs]) => occurs).map(([kind]) => kind))
      .map(([kind, text]) => [kind, kind === MISSING ? say("numbers_none") : text]);
    const noise = grid.entry.noise ? [say("numbers_noise")] : [];
    return { ramp: grid.signed ? "signed" : "map", title: grid.entry.unit || say("numbers"), scale, largest: grid.end, samples, beyond: grid.end < grid.largest,
      text: [...grid.entry.notes, ...noise, scale === "linear" ? "" : scaleText(scale)].filter(Boolean).join(" \u00b7 ") };
  }
}
