// @ts-check

import { View } from "./view.js";
import { samplesOf } from "./record_view.js";
import { foldsOf, gridLayout, neighbour } from "./grid_layout.js";
import { inside, ring } from "../drawing.js";
import { headLabels, labelText, leftOutText, noiseText, statisticsOf, surveyLabel } from "../head_labels.js";
import { captionOf, lossChange, ordersOf, relativeEntropy, signed } from "../head_order.js";
import { say } from "../language.js";
import { fitText, textWidth, wrapText } from "../lettering.js";
import { clamp, formatNumber, percent } from "../numbers.js";
import { differInKind, kindText } from "../record_names.js";
import { EVEN_SHARES, scaleText, withoutRows } from "../scales.js";
import { MASKED, paddingText } from "../table.js";
import { shortText } from "../text.js";
import { joinedBins, largestOf, reduction } from "../thumbnails.js";

/** Layers × heads, each a small map, with what the head does. */
export class GridView extends View {
  name = "grid";

  controls = ["order", "range", "scale"];

  scalesRows = false;

  help = say("grid_help");

  tapHelp = say("tapOpens");

  available(app) {
    return app.records.length > 0 && (app.records.length > 1 || app.records[0].heads > 1);
  }

  forget() {
    this.kept = null;
  }

  /** The order that is shown: by layer until all records are read, which other orders need. */
  order(app) {
    const wanted = ordersOf(app.recordsOfText).includes(app.state.order) ? app.state.order : "layer";
    return wanted === "layer" || app.tables.allRead() ? wanted : "layer";
  }

  geometry(app) {
    const order = this.order(app);
    const key = `${order} ${app.area.width} ${app.area.height}`;
    if (this.kept?.key !== key || this.kept.records !== app.recordsOfText) {
      const before = this.kept;
      this.kept = { key, records: app.recordsOfText, layout: gridLayout(app.recordsOfText, order, app.area) };
      // The scrolled size is that of the layout.
      if (before?.records === app.recordsOfText && before.layout.order !== order) setTimeout(() => app.resize(), 0);
    }
    return this.kept.layout;
  }

  size(app) {
    const { width, height } = this.geometry(app);
    return { width, height };
  }

  draw(app, pen, win) {
    const layout = this.geometry(app);
    for (const cell of layout.cells) {
      const seen = cell.y + cell.height + cell.caption > win.y && cell.y - cell.name < win.y + win.height
        && cell.x + cell.room > win.x && cell.x < win.x + win.width;
      if (seen) this.drawHead(app, pen, cell, layout.order);
    }
    const item = app.active();
    const chosen = item && layout.cells.find((cell) => cell.row === item.row && cell.column === item.column);
    if (chosen) ring(pen, chosen.x, chosen.y, chosen.width, chosen.height, app.theme.focus, app.theme);
    for (const { texts, x, y, room } of layout.titles) {
      const text = texts.find((one) => textWidth(one, { size: 12, bold: true }) <= room) ?? texts.at(-1);
      pen.text(fitText(text, room, { size: 12, bold: true }), x, y, { color: app.theme.text, size: 12, bold: true });
    }
    if (layout.order === "layer") this.drawNames(app, pen, win, layout, chosen);
    const text = (count, arrow) => `${say("others", { count })} ${arrow}`;
    const hidden = (names, end) => names.filter((place) => place > end).length;
    const across = layout.blocks.flatMap(({ x, numbers }) => numbers.map((_, head) => x + head * layout.pitch + layout.side));
    const [right, below] = [hidden(across, win.x + win.width), hidden(layout.rows.map(({ y, height }) => y + height), win.y + win.height)];
    if (right) drawMore(pen, text(right, "\u2192"), { x: win.x + win.width, y: win.y, width: -FADE, height: win.height }, app.theme);
    if (below) drawMore(pen, text(below, "\u2193"), { x: win.x, y: win.y + win.height, width: win.width, height: -FADE }, app.theme);
  }

  /** The names of layers and heads, which do not scroll away. */
  drawNames(app, pen, win, { left, top, side, pitch, rows, blocks }, chosen) {
    const { theme } = app;
    pen.rect(win.x, win.y, left - 2, win.height, { fill: theme.background });
    rows.forEach(({ title, subtitle, y, height }, line) => {
      const middle = y + height / 2;
      const below = subtitle ? wrapText(subtitle, left - 14, { size: 11 }).slice(0, 2) : [];
      const first = middle - 7 * below.length;
      pen.text(say("layerNumber", { layer: title }), win.x + 10, first, { color: theme.text, size: 12, bold: chosen?.line === line });
      below.forEach((text, number) => pen.text(fitText(text, left - 14, { size: 11 }), win.x + 10, first + 14 + 13 * number, { color: theme.muted, size: 11 }));
    });
    pen.rect(win.x, win.y, win.width, top - 4, { fill: theme.background });
    pen.clip(win.x + left - 4, win.y, win.width - left + 4, top, () => {
      for (const { title, x, numbers } of blocks) {
        if (title) pen.text(fitText(title, numbers.length * pitch, { size: 12, bold: true }), x, win.y + 10, { color: theme.text, size: 12, bold: true });
        numbers.forEach((number, head) => {
          const at = x + head * pitch;
          pen.text(pitch > 58 && number !== "" ? say("headNumber", { head: number }) : String(number), at + side / 2, win.y + top - 13,
            { color: theme.text, size: 11, align: "center", bold: chosen?.column === head && chosen.x === at });
        });
      }
    });
  }

  drawHead(app, pen, cell, order) {
    const { x, y, width, height, room, caption, name } = cell;
    const record = app.records[cell.row];
    const { theme } = app;
    const image = app.tables.thumbnail(record, cell.column, this.most(app, record));
    if (name) {
      const text = say("grid_head", { layer: record.entry.layer, head: record.headNumber(cell.column) });
      const of = [text, differInKind(app.records) ? kindText(record) : ""];
      pen.text(fitText(of.filter(Boolean).join(" \u00b7 "), room, { size: 11 }), x, y - 8, { color: theme.muted, size: 11 });
    }
    if (!image) {
      pen.rect(x, y, width, height, { fill: theme.surface, stroke: theme.border });
      return;
    }
    if (foldsOf(record)) this.drawPicture(pen, record, x, y, width, height);
    pen.picture(image, x, y, width, height, { smooth: image.width > width });
    pen.rect(x, y, width, height, { stroke: theme.border });
    if (!caption || app.paper) return; // the picture that Python saves does not say what heads do
    const point = this.pointText(record);
    const texts = [false, true].map((brief) => [captionOf(record, cell.column, order, brief), point].filter(Boolean).join(" \u00b7 "));
    texts.push(texts[1].replace(/\s*[<>]?\s*\d+\s*%$/, "")); // the name alone, rather than a number that is cut
    const text = texts.find((one) => textWidth(one, { size: 11 }) <= room) ?? fitText(texts[2], room, { size: 11 });
    pen.text(text, x, y + height + 8, { color: theme.text, size: 11 });
  }

  /** The image that the keys are, below the veil. */
  drawPicture(pen, record, x, y, width, height) {
    const { picture, entry } = record.keys;
    if (!picture) return;
    const [across, down] = [picture.width / entry.size[0], picture.height / entry.size[1]];
    const [x0, y0, x1, y1] = entry.box;
    pen.picture(picture, x, y, width, height, { smooth: true, cut: [x0 * across, y0 * down, (x1 - x0) * across, (y1 - y0) * down] });
  }

  /** How many pairs a point of a small map stands for; "" for one. */
  pointText(record) {
    const [down, across] = sizeOfPoint(record);
    return down === 1 && across === 1 ? "" : say("grid_point", { down, across });
  }

  /** The weight of the last colour; null where each map has its own. */
  most(app, record) {
    if (app.state.range !== "one" || foldsOf(record)) return null;
    return app.recordsOfText.reduce((most, one) => Math.max(most, largestOf(one)), 0);
  }

  hit(app, x, y, win) {
    const { left, top, order, cells } = this.geometry(app);
    if (order === "layer" && (x < win.x + left || y < win.y + top)) return null;
    const found = cells.find((cell) => inside({ x: cell.x, y: cell.y - cell.name, width: cell.room, height: cell.name + cell.height + cell.caption + 4 }, x, y));
    return found ? { row: found.row, column: found.column } : null;
  }

  cell(app, item) {
    const { cells } = this.geometry(app);
    return cells.find((cell) => cell.row === item.row && cell.column === item.column) ?? cells[0];
  }

  place(app, item) {
    const { x, y, width, height } = this.cell(app, item);
    const { left, top } = this.geometry(app);
    return { x, y, width, height, frozenLeft: left, frozenTop: top };
  }

  start(app) {
    return { row: app.state.record, column: app.state.head ?? 0 };
  }

  has(app, item) {
    return item.column < (app.records[item.row]?.heads ?? 0) && app.recordsOfText.includes(app.records[item.row]);
  }

  move(app, item, dx, dy) {
    const { cells, order } = this.geometry(app);
    const from = this.cell(app, item);
    const line = order === "layer" ? cells.filter((cell) => cell.line === from.line) : cells;
    const to = dy ? neighbour(cells, from, dy) : line[clamp(line.indexOf(from) + dx, 0, line.length - 1)];
    return { row: to.row, column: to.column };
  }

  activate(app, item) {
    app.show(app.records[item.row].large ? "long" : "pattern", { record: item.row, head: item.column });
  }

  describe(app, item) {
    const record = app.records[item.row];
    const { layer, name } = record.entry;
    const parts = [`${say("grid_head", { layer, head: record.headNumber(item.column) })} \u00b7 ${kindText(record)}${name ? ` (${shortText(name, 60)})` : ""}`];
    if (!record.decoded) return parts.join("; ");
    parts.push(...this.does(record, item.column));
    if (!record.large) parts.push(...this.numbersText(app, record, item.column));
    const change = lossChange(record, item.column);
    if (change !== null) parts.push(say("grid_loss_long", { change: signed(change) }));
    parts.push(this.reductionText([record]));
    return parts.join("; ");
  }

  /** What a head does, here and over the texts of a survey. */
  does(record, head) {
    const here = headLabels(record, head).slice(0, 3).map((label) => (label.chance === null || label.name === "even" ? labelText(label, record)
      : [labelText(label, record), leftOutText(label), say("grid_chance", { percent: percent(label.chance) })].filter(Boolean).join(" ")));
    const surveyed = surveyLabel(record, head);
    return [
      here.length ? here.join(", ") : record.signed ? say("grid_signed") : say(record.large ? "grid_none_found" : "grid_none_clear"),
      surveyed ? say("grid_surveyed", { what: labelText(surveyed, record) }) : "",
    ].filter(Boolean);
  }

  /** The largest weight and the entropy of a head. */
  numbersText(app, record, head) {
    // Of single tokens, as the maps are.
    const table = app.table(head, record, { words: false, hideSpecial: false });
    let best = -1;
    const size = (cell) => Math.abs(table.values[cell]);
    for (let cell = 0; cell < table.values.length; cell += 1) {
      if (table.kinds[cell] !== MASKED && !(size(cell) <= size(best))) best = cell;
    }
    if (best < 0) return [say("grid_blind")];
    const [row, column] = [Math.floor(best / table.columns), best % table.columns];
    const { entropy, queries } = statisticsOf(record, head) ?? { entropy: 0, queries: 0 };
    const relative = relativeEntropy(record, head);
    const largest = say("grid_largest", { weight: table.cell(row, column), query: table.rowName(row), key: table.columnName(column) });
    if (!queries) return [largest];
    const mean = { entropy: entropy.toFixed(2), queries };
    return [largest, relative === null ? say("grid_entropy_alone", mean) : say("grid_entropy_long", { ...mean, percent: percent(relative) })];
  }

  /** Of how many pairs a point of the maps is the largest. */
  reductionText(records) {
    const sizes = records.map(sizeOfPoint);
    const [first] = sizes;
    if (sizes.every(([down, across]) => down === 1 && across === 1)) return say("grid_single");
    const alike = sizes.every(([down, across]) => down === first[0] && across === first[1]);
    const [down, across] = alike ? first : [0, 1].map((side) => Math.max(...sizes.map((size) => size[side])));
    return say(alike ? "grid_reduced" : "grid_reduced_most", { down, across });
  }

  sentence(app, item) {
    const all = say("grid_sentence", { heads: app.recordsOfText.reduce((sum, record) => sum + record.heads, 0) });
    if (!item) return { text: all, shares: say("grid_reading") };
    const record = app.records[item.row];
    if (!record.decoded) return { text: this.describe(app, item), shares: "" };
    const [what, ...rest] = this.does(record, item.column);
    return { text: say("grid_says", { layer: record.entry.layer, head: record.headNumber(item.column), what }),
      shares: [...rest, ...(record.large ? [] : this.numbersText(app, record, item.column))].join(" \u00b7 ") };
  }

  legend(app) {
    const scale = withoutRows(app.state.scale);
    const records = app.recordsOfText;
    const shown = new Set(records.flatMap((record) => [...record.thumbnailKinds]));
    const samples = samplesOf([...shown]);
    const most = records.length ? this.most(app, records[0]) : null;
    const long = records.length > 0 && records.every((record) => record.large && !record.signed);
    const own = long ? "" : most === null ? say(records.every((record) => record.signed) ? "grid_own_scale_signed" : "grid_own_scale", { times: EVEN_SHARES }) : say("grid_one_scale", { largest: formatNumber(most) });
    const surveyed = records.some((record) => record.entry.statistics);
    const folded = records.some(foldsOf) ? [say("grid_folded")] : [];
    const axes = records.every(foldsOf) ? [] : [say("grid_axes")];
    const signs = records.filter((record) => record.signed).length;
    const named = !app.paper && records.some((record) => !foldsOf(record) && !record.signed) ? [noiseText(surveyed)] : [];
    return { ramp: signs && signs === records.length ? "signed" : "map", signs: signs > 0 && signs < records.length,
      ...(long ? { title: say("long_share"), scale: "share", largest: null } : { title: most === null ? say("grid_part") : undefined, scale, largest: most }), samples,
      text: [signs ? say("grid_signed") : "", own, long || scale === "linear" ? "" : scaleText(scale), long && records[0].overview ? records[0].overview.statistic("mean", joinedBins(records[0])) : this.reductionText(records), ...folded, ...axes, ...named, paddingText(records)].filter(Boolean).join(" \u00b7 ") };
  }
}

/** How far what goes on beyond an edge fades, in pixels. */
const FADE = 24;

/** Fades the right or the lower edge of what is seen, and says there how many more there are; a negative width or height points inwards. */
function drawMore(pen, text, { x, y, width, height }, theme) {
  const steps = 12;
  for (let step = 0; step < steps; step += 1) {
    const style = { fill: theme.background, alpha: (1 - step / steps) ** 2 };
    if (width < 0) pen.rect(x + (width * (step + 1)) / steps, y, -width / steps, height, style);
    else pen.rect(x, y + (height * (step + 1)) / steps, width, -height / steps, style);
  }
  const wide = textWidth(text, { size: 12, bold: true }) + 16;
  const [left, top] = width < 0 ? [x - wide - 4, y] : [x + (width - wide) / 2, y - 24];
  pen.rect(left, top, wide, 20, { fill: theme.surface, stroke: theme.border, radius: 6 });
  pen.text(text, left + 8, top + 10, { color: theme.text, size: 12, bold: true });
}

/** Of how many queries and keys a point is the largest weight, rounded to tenths. */
function sizeOfPoint(record) {
  return foldsOf(record) ? [1, 1] : reduction(record).map((size) => Math.round(size * 10) / 10);
}
