// @ts-check

import { View } from "./view.js";
import { cellAt, placeOfCell, ring } from "../drawing.js";
import { textWidth } from "../lettering.js";
import { clamp } from "../numbers.js";
import { SCALES, withoutRows } from "../scales.js";
import { MASKED, MISSING, ZERO, sumText } from "../table.js";
import { quoted } from "../text.js";
import { reduction } from "../thumbnails.js";

/** Layers × heads, each a small map. */
export class GridView extends View {
  name = "grid";

  title = "Grid";

  controls = ["scale"];

  scalesRows = false;

  help = "Arrow keys choose a head, Enter opens it.";

  available(app) {
    return app.records.length > 0 && (app.records.length > 1 || app.records[0].heads > 1);
  }

  geometry(app) {
    const heads = Math.max(...app.records.map((record) => record.heads));
    const left = Math.min(112, 24 + Math.max(...app.records.map((record) => textWidth(record.label, { size: 11 }))));
    const across = (app.area.width - left - 8) / heads;
    const down = (app.area.height - 28) / app.records.length;
    const cell = clamp(Math.min(across, Math.max(down, 72)), 34, 170);
    return { heads, left, top: 24, cell };
  }

  size(app) {
    const { heads, left, top, cell } = this.geometry(app);
    return { width: left + heads * cell + 4, height: top + app.records.length * cell + 4 };
  }

  draw(app, pen, win) {
    const place = this.geometry(app);
    const { left, top, cell } = place;
    app.records.forEach((record, row) => {
      const y = top + row * cell;
      if (y > win.y + win.height || y + cell < win.y) return;
      for (let head = 0; head < record.heads; head += 1) {
        const x = left + head * cell;
        if (x < win.x + win.width && x + cell > win.x) this.drawHead(app, pen, record, head, x, y, cell - 6);
      }
    });
    const item = app.active();
    if (item) ring(pen, left + item.column * cell, top + item.row * cell, cell - 6, cell - 6, app.theme.focus, app.theme);
    pen.rect(win.x, win.y, left - 2, win.height, { fill: app.theme.background });
    app.records.forEach((record, row) => {
      const y = top + row * cell + (cell - 6) / 2;
      pen.text(`layer ${record.entry.layer}`, win.x + 10, y - 7, { color: app.theme.text, size: 12, bold: item?.row === row });
      pen.text(record.entry.kind, win.x + 10, y + 8, { color: app.theme.muted, size: 11 });
    });
    pen.rect(win.x, win.y, win.width, top - 4, { fill: app.theme.background });
    pen.clip(win.x + left - 4, win.y, win.width - left + 4, top, () => {
      for (let head = 0; head < place.heads; head += 1) {
        pen.text(cell > 58 ? `head ${head}` : String(head), left + head * cell + (cell - 6) / 2, win.y + 11,
          { color: app.theme.text, size: 11, align: "center", bold: item?.column === head });
      }
    });
  }

  drawHead(app, pen, record, head, x, y, side) {
    const image = app.tables.thumbnail(record, head);
    if (!image) {
      pen.rect(x, y, side, side, { fill: app.theme.surface, stroke: app.theme.border });
      return;
    }
    const [rows, columns] = [record.queries.length, record.keys.length];
    const scale = side / Math.max(rows, columns);
    const [width, height] = [Math.max(6, columns * scale), Math.max(6, rows * scale)];
    pen.picture(image, x, y, width, height, { smooth: image.width > width });
    pen.rect(x, y, width, height, { stroke: app.theme.border });
  }

  hit(app, x, y, win) {
    const { left, top, cell } = this.geometry(app);
    if (x < win.x + left || y < win.y + top) return null;
    const [row, column] = cellAt(x, y, { left, top, width: cell, height: cell });
    return row < app.records.length && column < app.records[row].heads ? { row, column } : null;
  }

  place(app, item) {
    const { left, top, cell } = this.geometry(app);
    return { ...placeOfCell(item, { left, top, width: cell, height: cell }), width: cell - 6, height: cell - 6 };
  }

  start(app) {
    return { row: app.state.record, column: app.state.head ?? 0 };
  }

  has(app, item) {
    return item.column < (app.records[item.row]?.heads ?? 0);
  }

  move(app, item, dx, dy) {
    const row = clamp(item.row + dy, 0, app.records.length - 1);
    return { row, column: clamp(item.column + dx, 0, app.records[row].heads - 1) };
  }

  activate(app, item) {
    app.show(app.records[item.row].large ? "long" : "pattern", { record: item.row, head: item.column });
  }

  describe(app, item) {
    const record = app.records[item.row];
    const name = `${record.label}, head ${item.column} (${record.entry.name})`;
    if (record.large) return `${name}: ${this.reductionText([record])}`;
    if (!record.codes) return name;
    // Of single tokens, as the maps are.
    const table = app.table(item.column, record, { words: false, hideSpecial: false });
    let [best, entropy] = [0, 0];
    for (let cell = 0; cell < table.values.length; cell += 1) {
      const value = table.values[cell];
      if (value > table.values[best] || table.kinds[best] === MASKED) best = cell;
      if (value > 0) entropy -= value * Math.log(value);
    }
    if (!table.values.length) return name;
    const [row, column] = [Math.floor(best / table.columns), best % table.columns];
    const seeing = table.seeing.length;
    return `${name}: largest ${table.cell(row, column)}, ${quoted(table.rowText(row))} \u2192 ${quoted(table.columnText(column))}; `
      + `${seeing ? `mean entropy ${(entropy / seeing).toFixed(2)} nats, ${sumText(table, [])}` : "no query sees a key"}; ${this.reductionText([record])}`;
  }

  /** Of how many pairs a point of the maps is the largest. */
  reductionText(records) {
    const sizes = records.map((record) => reduction(record).map((size) => Math.round(size * 10) / 10));
    const [first] = sizes;
    if (sizes.every(([down, across]) => down === 1 && across === 1)) return "a point is one weight";
    const alike = sizes.every(([down, across]) => down === first[0] && across === first[1]);
    const most = alike ? first : [0, 1].map((side) => Math.max(...sizes.map((size) => size[side])));
    return `a point is the largest of ${alike ? "about" : "up to"} ${most[0]} \u00d7 ${most[1]} pairs`;
  }

  legend(app) {
    const scale = withoutRows(app.state.scale);
    const shown = new Set(app.records.flatMap((record) => [...record.thumbnailKinds]));
    const samples = [[ZERO, "zero"], [MASKED, "masked"], [MISSING, "NaN"]].filter(([kind]) => shown.has(kind));
    return { ramp: "map", scale, largest: null, samples,
      text: `each map: part of its own largest weight, ${SCALES[scale].label} \u00b7 ${this.reductionText(app.records)} \u00b7 `
        + "queries downwards, keys to the right" };
  }
}
