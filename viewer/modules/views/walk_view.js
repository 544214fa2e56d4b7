// @ts-check

import { View } from "./view.js";
import { ring } from "../drawing.js";
import { fitText, textWidth } from "../lettering.js";
import { clamp, finiteRange, formatNumber, strongest } from "../numbers.js";
import { inkOnRamp, rampColor } from "../palette.js";
import { Panel } from "../panel.js";
import { PAIR_STEPS } from "../steps_data.js";
import { MASKED, MISSING } from "../table.js";
import { quoted, shortText } from "../text.js";

const MOST_TERMS = 12;

const MOST_PRODUCTS = 6;

/** The worked calculation of one head: a cell's dot product, scale, mask, normalization and output, with all numbers. */
export class WalkView extends View {
  name = "walk";

  quiet = true; // the calculation beside the map says more than a tooltip

  title = "Walk";

  controls = ["steps", "step"];

  help = "Arrow keys move the cell; its calculation is beside the map. Enter keeps a cell, Esc gives it up.";

  available(app) {
    return app.steps.length > 0;
  }

  geometry(app) {
    const steps = app.steps[app.state.steps];
    const { width, height } = app.area;
    const labels = (texts) => Math.max(20, ...texts.slice(0, 500).map((text) => textWidth(shortText(text, 16), { bold: true })));
    const left = Math.min(labels(steps.entry.keys.length ? steps.entry.queries : [""]) + 14, width * 0.3);
    const beside = width >= 720;
    const room = (beside ? width * 0.48 : width) - left - 10;
    const cell = clamp(room / Math.max(1, steps.columns), 12, 54);
    const column = Math.min(90, labels(steps.entry.keys));
    const flat = column + 8 <= cell;
    const top = 40 + (flat ? 6 : column);
    const tall = Math.min(cell, 34);
    const bottom = top + steps.rows * tall;
    const panel = beside ? { x: Math.max(left + steps.columns * cell + 28, 300), y: 10 } : { x: 12, y: bottom + 18 };
    return { steps, left, top, cell, tall, flat, bottom, panel: { ...panel, width: Math.max(260, width - panel.x - 10) }, height };
  }

  size(app) {
    const place = this.geometry(app);
    const item = this.chosen(app);
    const height = this.panelHeight(app, place, item);
    return { width: Math.max(app.area.width, place.left + place.steps.columns * place.cell + 8, place.panel.x + place.panel.width),
      height: Math.max(place.bottom + 12, place.panel.y + height + 12) };
  }

  /** The cell whose calculation is shown: the kept one, else the one under the mouse, else the first visible one. */
  chosen(app) {
    if (app.state.kept && this.has(app, app.state.kept)) return app.state.kept;
    return app.active() ?? { row: 0, column: 0 };
  }

  draw(app, pen) {
    const place = this.geometry(app);
    const { steps, left, top, cell, tall } = place;
    const name = steps.names.includes(app.state.step) ? app.state.step : "weights";
    const matrix = steps.matrices[name];
    const { theme } = app;
    pen.text(name, left, 12, { color: theme.text, size: 13, bold: true });
    pen.text(PAIR_STEPS[name], left + textWidth(name, { size: 13, bold: true }) + 8, 12, { color: theme.muted, size: 12 });
    const range = finiteRange(matrix);
    for (let row = 0; row < steps.rows; row += 1) {
      for (let column = 0; column < steps.columns; column += 1) {
        const hidden = name === "weights" && steps.hides(row, column);
        this.drawCell(app, pen, place, hidden ? -Infinity : matrix[row * steps.columns + column], row, column, range, hidden);
      }
    }
    this.drawLabels(app, pen, place);
    const item = this.chosen(app);
    ring(pen, left + item.column * cell, top + item.row * tall, cell, tall, app.state.kept ? theme.accent : theme.focus, theme);
    const panel = new Panel(pen, theme, place.panel);
    this.write(panel, steps, item);
  }

  drawCell(app, pen, place, value, row, column, range, hidden) {
    const [x, y] = [place.left + column * place.cell, place.top + row * place.tall];
    const { cell, tall } = place;
    if (value === -Infinity) pen.hatch(x, y, cell - 1, tall - 1, app.theme);
    else if (!Number.isFinite(value)) pen.cross(x, y, cell - 1, tall - 1, app.theme);
    else {
      const shade = range[1] > range[0] ? (value - range[0]) / (range[1] - range[0]) : 0.5;
      pen.rect(x, y, cell - 1, tall - 1, { fill: rampColor(shade, app.theme) });
      if (cell >= 34) {
        pen.text(Math.abs(value) >= 100 ? value.toFixed(0) : value.toFixed(2).replace("-", "\u2212"), x + cell / 2 - 0.5, y + tall / 2,
          { color: inkOnRamp(shade, app.theme), size: 11, align: "center" });
      }
    }
    if (value === -Infinity && !hidden && cell >= 34) pen.text("\u2212\u221e", x + cell / 2, y + tall / 2, { color: app.theme.text, size: 11, align: "center" });
  }

  drawLabels(app, pen, place) {
    const { steps, left, top, cell, tall, flat } = place;
    const item = this.chosen(app);
    const { theme } = app;
    const rowStep = Math.ceil(12 / tall);
    steps.entry.queries.forEach((text, row) => {
      if (row % rowStep && row !== item.row) return;
      pen.text(fitText(shortText(text, 16), left - 12, { bold: row === item.row }), left - 8, top + (row + 0.5) * tall,
        { color: theme.text, align: "end", bold: row === item.row });
    });
    steps.entry.keys.forEach((text, column) => {
      const style = { color: theme.text, bold: column === item.column };
      const x = left + (column + 0.5) * cell;
      if (flat) pen.text(shortText(text, 16), x, top - 10, { ...style, align: "center" });
      else pen.text(fitText(shortText(text, 16), top - 42, style), x, top - 6, { ...style, angle: -90 });
    });
  }

  panelHeight(app, place, item) {
    const panel = new Panel(null, app.theme, place.panel);
    this.write(panel, place.steps, item);
    return panel.y - place.panel.y;
  }

  /** The calculation of a cell. */
  write(panel, steps, { row, column }) {
    panel.heading(`${shortText(steps.entry.queries[row], 24)} \u2192 ${shortText(steps.entry.keys[column], 24)}`);
    this.writeScore(panel, steps, row, column);
    this.writeChanges(panel, steps, row, column);
    this.writeWeights(panel, steps, row, column);
    this.writeOutput(panel, steps, row);
  }

  writeScore(panel, steps, row, column) {
    const score = steps.at("scores", row, column);
    if (steps.entry.score !== "dot") {
      panel.line(`1. score (${shortText(steps.entry.score)}) = ${formatNumber(score)}`);
      return;
    }
    panel.line("1. Score: the dot product of query and key");
    const dim = steps.columnsOf("query");
    const shown = dim > MOST_TERMS ? MOST_TERMS - 2 : dim;
    const rows = [];
    for (let d = 0; d < shown; d += 1) {
      const [q, k] = [steps.at("query", row, d), steps.at("key", column, d)];
      rows.push([String(d), formatNumber(q), formatNumber(k), formatNumber(q * k)]);
    }
    if (shown < dim) {
      let rest = 0;
      for (let d = shown; d < dim; d += 1) rest += steps.at("query", row, d) * steps.at("key", column, d);
      rows.push([`${shown}\u2013${dim - 1}`, "", "", formatNumber(rest)]);
    }
    panel.table(["dim", "query", "key", "query \u00d7 key"], rows, ["sum", "", "", formatNumber(score)]);
  }

  writeChanges(panel, steps, row, column) {
    let before = steps.at("scores", row, column);
    let number = 2;
    for (const name of ["scaled", "capped", "biased", "masked"]) {
      if (!steps.names.includes(name)) continue;
      const value = steps.at(name, row, column);
      const texts = {
        scaled: `Scale: ${formatNumber(before)} \u00d7 ${formatNumber(steps.scale)} = ${formatNumber(value)}`,
        capped: `Cap or function of the score: ${formatNumber(before)} becomes ${formatNumber(value)}`,
        biased: `Bias: ${formatNumber(before)} + ${formatNumber(value - before)} = ${formatNumber(value)}`,
        masked: value === -Infinity ? "Mask: this key is hidden, its score is \u2212\u221e" : "Mask: this key is visible",
      };
      panel.line(`${number}. ${texts[name]}`);
      number += 1;
      before = value;
    }
    this.number = number;
  }

  writeWeights(panel, steps, row, column) {
    const last = steps.names.filter((name) => name !== "weights" && name in PAIR_STEPS).at(-1);
    const scores = Array.from({ length: steps.columns }, (_, key) => steps.at(last, row, key));
    const weights = scores.map((_, key) => steps.at("weights", row, key));
    const softmax = steps.entry.normalizer === "softmax";
    const most = Math.max(...scores.filter((score) => !Number.isNaN(score)));
    panel.line(softmax ? `${this.number}. Softmax: exp(score \u2212 ${formatNumber(most)}), divided by the sum over the row`
      : `${this.number}. Weights: ${shortText(steps.entry.normalizer)} over the row`);
    const exponentials = scores.map((score) => (score === -Infinity ? 0 : Math.exp(score - most)));
    const sum = exponentials.reduce((a, b) => a + b, 0);
    const total = weights.reduce((a, b) => a + b, 0);
    const keys = strongest(weights, MOST_TERMS, column);
    const rest = weights.map((_, key) => key).filter((key) => !keys.includes(key));
    const add = (numbers, some) => some.reduce((part, key) => part + numbers[key], 0);
    const rows = keys.map((key) => [shortText(steps.entry.keys[key], 14), formatNumber(scores[key]),
      ...(softmax ? [formatNumber(exponentials[key])] : []), steps.hides(row, key) ? "masked" : formatNumber(weights[key])]);
    if (rest.length) {
      const chosen = strongest(weights, MOST_TERMS).includes(column) ? "" : " and the chosen one";
      panel.line(`${keys.length} of ${steps.columns} keys shown: the strongest${chosen}`);
      rows.push([`${rest.length} more`, "", ...(softmax ? [formatNumber(add(exponentials, rest))] : []), formatNumber(add(weights, rest))]);
    }
    const foot = [rest.length ? `sum of all ${steps.columns}` : "sum", "", ...(softmax ? [formatNumber(sum)] : []), formatNumber(total)];
    panel.table(["key", "score", ...(softmax ? ["exp"] : []), "weight"], rows, foot, keys.indexOf(column));
    this.number += 1;
  }

  writeOutput(panel, steps, row) {
    const dims = Math.min(steps.columnsOf("value"), panel.width > 420 ? 4 : 3);
    const rest = steps.columnsOf("value") - dims;
    panel.line(`${this.number}. Output: the sum over keys of weight \u00d7 value${rest ? ` (the first ${dims} of ${rest + dims} dimensions)` : ""}`);
    const all = Array.from({ length: steps.columns }, (_, key) => key);
    const keys = strongest(all.map((key) => steps.at("weights", row, key)), MOST_PRODUCTS);
    const others = all.filter((key) => !keys.includes(key));
    const product = (key, d) => steps.at("weights", row, key) * steps.at("value", key, d);
    const numbers = Array.from({ length: dims }, (_, d) => d);
    const rows = keys.map((key) => [shortText(steps.entry.keys[key], 14), ...numbers.map((d) => formatNumber(product(key, d)))]);
    if (others.length) {
      rows.push([`${others.length} more`, ...numbers.map((d) => formatNumber(others.reduce((sum, key) => sum + product(key, d), 0)))]);
    }
    panel.table(["key", ...numbers.map((d) => `dim ${d}`)], rows, ["output", ...numbers.map((d) => formatNumber(steps.at("output", row, d)))]);
  }

  hit(app, x, y) {
    const { steps, left, top, cell, tall } = this.geometry(app);
    if (x < left || y < top) return null;
    const [row, column] = [Math.floor((y - top) / tall), Math.floor((x - left) / cell)];
    return row < steps.rows && column < steps.columns ? { row, column } : null;
  }

  place(app, item) {
    const { left, top, cell, tall } = this.geometry(app);
    return { x: left + item.column * cell, y: top + item.row * tall, width: cell, height: tall };
  }

  start() {
    return { row: 0, column: 0 };
  }

  has(app, item) {
    const steps = app.steps[app.state.steps];
    return item.row < steps.rows && item.column < steps.columns;
  }

  move(app, item, dx, dy) {
    const steps = app.steps[app.state.steps];
    const moved = { row: clamp(item.row + dy, 0, steps.rows - 1), column: clamp(item.column + dx, 0, steps.columns - 1) };
    if (app.state.kept) app.state.kept = moved;
    return moved;
  }

  activate(app, item) {
    const { kept } = app.state;
    app.state.kept = kept && kept.row === item.row && kept.column === item.column ? null : { ...item };
  }

  describe(app, item) {
    const steps = app.steps[app.state.steps];
    const parts = steps.names.filter((name) => name in PAIR_STEPS).map((name) => {
      const value = steps.at(name, item.row, item.column);
      const masked = (name === "masked" && value === -Infinity) || (name === "weights" && steps.hides(item.row, item.column));
      return `${name} ${formatNumber(value)}${masked ? " (masked)" : ""}`;
    });
    return `${quoted(steps.entry.queries[item.row])} \u2192 ${quoted(steps.entry.keys[item.column])}: ${parts.join(", ")}`;
  }

  legend(app) {
    const steps = app.steps[app.state.steps];
    const name = steps.names.includes(app.state.step) ? app.state.step : "weights";
    const [low, high] = finiteRange(steps.matrices[name]);
    const samples = steps.names.includes("masked") ? [[MASKED, "masked"]] : [];
    if (steps.matrices[name].some((value) => !Number.isFinite(value) && value !== -Infinity)) samples.push([MISSING, "not finite"]);
    return { ramp: null, samples, text: `${name}: from ${formatNumber(low)} (blue) to ${formatNumber(high)} (yellow), linear scale \u00b7 exact numbers (float64)` };
  }
}
