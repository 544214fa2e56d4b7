// @ts-check

import { View } from "./view.js";
import { Calculation } from "../calculation.js";
import { ring } from "../drawing.js";
import { say } from "../language.js";
import { fitText, textWidth } from "../lettering.js";
import { cellText, clamp, finiteRange, formatNumber } from "../numbers.js";
import { clearestPair } from "../opening.js";
import { divergingColor, inkOn, rampColor } from "../palette.js";
import { scaleEnd } from "../scales.js";
import { featured, spokenTable } from "../sentence.js";
import { normalizerName, plainNumber, Stations } from "../stations.js";
import { PAIR_STEPS, StepsData } from "../steps_data.js";
import { MASKED, MISSING } from "../table.js";
import { quoted, shortText } from "../text.js";
import { WalkPanel } from "../walk_panel.js";
import { walkSheet } from "../walk_sheet.js";

/** Which numbers of all pairs the map shows at a station. */
const MAPS = { score: "scores", scale: "scaled", sources: "scaled", cap: "capped", bias: "biased", mask: "masked" };

const widthsOf = new WeakMap();

/** Whether a token begins a word. */
const startsWord = (axis, position) => !axis.hasWords || axis.entry.words.includes(position);

/** The words of an axis that are several tokens. */
const piecesOf = (axis) => axis.groups(true).filter(([first, end]) => end - first > 1);

/** The width of the widest label of a calculation's rows and columns, measured once. */
function labelWidths(entry) {
  const widest = (texts) => Math.max(20, ...texts.slice(0, 500).map((text) => textWidth(shortText(text, 16), { bold: true })));
  if (!widthsOf.has(entry)) widthsOf.set(entry, { rows: widest(entry.queries), columns: widest(entry.keys) });
  return widthsOf.get(entry);
}

/** The worked calculation of one head: a map of all pairs, and beside it the stations from the input to the output. */
export class WalkView extends View {
  name = "walk";

  controls = ["record", "stepsHead", "steps"];

  help = say("walk_help");

  /** @type {WalkPanel|null} */
  panel = null;

  made = null; // the calculation that was made last

  walked = null; // and its stations

  shownKey = null; // what the elements show

  shownSteps = null;

  available(app) {
    return app.steps.length > 0 || Boolean(app.options.fetchSteps && app.records.length);
  }

  /** Whether each calculation is of a head of a record, which then is chosen by its layer and head. */
  ofRecords(app) {
    return app.records.length > 0 && (Boolean(app.options.fetchSteps) || app.steps.every((one) => app.records[one.entry.record ?? -1]));
  }

  /** Whether a record can be chosen: each that a server knows the calculation of. */
  shows() {
    return true;
  }

  /** Chooses the calculation of the head that is shown, or the head of a calculation that there is. */
  settle(app) {
    const { state, steps, records } = app;
    const head = state.head ?? steps.find((one) => one.belongsTo(state.record, one.entry.head))?.entry.head ?? 0;
    const found = steps.findIndex((one) => one.belongsTo(state.record, head));
    const fetches = app.options.fetchSteps && records[state.record];
    const usable = found >= 0 && steps[found].error === null;
    if (fetches && !usable && head < records[state.record].heads) {
      const place = found >= 0 ? found : steps.length;
      steps[place] = this.fetched(app, state.record, head);
      Object.assign(state, { steps: place, head });
    } else if (usable || found >= 0) Object.assign(state, { steps: found, head });
    else if (this.ofRecords(app) && records[state.record]) {
      steps.push(this.absent(app, state.record, head));
      Object.assign(state, { steps: steps.length - 1, head });
    } else this.follow(app);
  }

  /** What stands for the calculation of a head whose numbers the payload does not have. */
  absent(app, record, head) {
    const name = this.nameOf(app, { entry: { record, head } });
    const { heads } = app.records[record];
    const numbers = { record, head: heads ? app.records[record].headNumber(head) : head };
    return new StepsData(null, { record, head, name, ask: () => Promise.reject(new Error(say("walk_absent", { name, ...numbers }))) });
  }

  /** The pair that the view before it speaks of, and of its words the tokens with the largest weight. */
  enter(app) {
    const spoken = app.ready && app.view?.ofTables ? featured(app) : null;
    const table = spoken && spokenTable(app);
    if (!table) return;
    const [rows, columns] = [table.rowGroups[spoken.row], table.columnGroups[spoken.column]];
    const single = app.table(app.state.head, app.record, { ...app.state, words: false, hideSpecial: false });
    app.state.kept = { row: rows[0], column: columns[0] };
    for (let row = rows[0]; row < rows[1]; row += 1) {
      for (let column = columns[0]; column < columns[1]; column += 1) {
        if (single.value(row, column) > single.value(app.state.kept.row, app.state.kept.column)) app.state.kept = { row, column };
      }
    }
  }

  /** The calculation of a head that a server gives. */
  fetched(app, record, head) {
    return new StepsData(null, { record, head, name: this.nameOf(app, { entry: { record, head } }), ask: () => app.options.fetchSteps(record, head) });
  }

  /** Makes the chosen layer and head those of the calculation. */
  follow(app) {
    const { state, steps } = app;
    if (!(state.steps < steps.length)) state.steps = 0;
    const { record, head } = steps[state.steps]?.entry ?? {};
    if (app.records[record ?? -1] && head < app.records[record].heads) Object.assign(state, { record, head });
  }

  /** The name of a calculation: its layer and head, where it is of a record. */
  nameOf(app, { entry, source = null }) {
    const record = app.records[source?.record ?? entry.record ?? -1];
    return record ? `${app.recordText(record)}, ${say("walk_head", { head: record.headNumber(source?.head ?? entry.head) })}` : shortText(entry.name, 48);
  }

  steps(app) {
    return app.steps[app.state.steps];
  }

  calculation(app) {
    const steps = this.steps(app);
    const key = JSON.stringify(app.state.trial);
    if (this.made?.steps !== steps || this.made.key !== key) this.made = { steps, key, calculation: new Calculation(steps, app.state.trial) };
    return this.made.calculation;
  }

  forget() {
    super.forget();
    this.made = this.walked = null;
  }

  /** The pair whose calculation is shown: the chosen one, else the clearest of the head. */
  chosen(app) {
    const { entry, source = null, pair } = this.steps(app);
    const clearest = clearestPair(app.records[source?.record ?? entry.record ?? -1], source?.head ?? entry.head);
    return [app.state.kept, clearest].find((one) => one && this.has(app, one)) ?? pair;
  }

  stations(app) {
    const steps = this.steps(app);
    const key = JSON.stringify([this.chosen(app), app.state.trial, app.state.steps]);
    if (this.walked?.key !== key || this.walked.steps !== steps) this.walked = { key, steps, ...this.walk(app, steps) };
    return this.walked.stations;
  }

  /** A token of the shown calculation in a sentence; `side`: "queries" or "keys". */
  tokenName(app, side, position) {
    this.stations(app);
    return this.walked.made.nameOf(side, position);
  }

  /** What the stations explain. */
  question(app) {
    const { length } = this.stations(app);
    return this.walked.made.question(length);
  }

  /** The record of the weights of a calculation, where its positions are tokens and those of the record. */
  recordOf(app, { source, entry }) {
    const record = app.records[source?.record ?? entry.record ?? -1];
    const fits = (axis, labels) => axis.kind === "tokens" && axis.length === labels.length;
    return record && fits(record.queries, entry.queries) && fits(record.keys, entry.keys) ? record : null;
  }

  walk(app, steps) {
    const record = app.records[steps.source?.record ?? steps.entry.record ?? -1];
    const next = record && app.records.find((one) => one.entry.layer === record.entry.layer + 1 && one.entry.kind === record.entry.kind && one.entry.text === record.entry.text);
    const canGo = next && (app.options.fetchSteps || app.steps.some((one) => one.belongsTo(next.number, one.entry.head)));
    const made = new Stations(this.calculation(app), this.chosen(app),
      { heads: record?.heads ?? null, kind: record?.entry.kind, record, next: canGo ? { layer: next.entry.layer, record: next.number } : null });
    return { made, stations: made.all() };
  }

  placeOf(stations, app) {
    return Math.max(0, stations.findIndex((one) => one.id === app.state.station));
  }

  // --- the stations beside the map ---

  beside(app) {
    this.panel ??= new WalkPanel({
      station: (place) => { app.state.station = this.stations(app)[place].id; app.changed(); },
      map: (open) => app.frame.box.classList.toggle("mapped", open),
      pair: (pair) => { app.state.kept = app.cursor = pair; app.changed(); },
      trial: (changes) => { app.state.trial = this.trial(app, changes); app.changed(); },
      layer: (record) => app.show("walk", { record, head: app.state.head }),
    });
    this.shownKey = null;
    return this.panel.element;
  }

  /** The settings that differ from the model's. */
  trial(app, changes) {
    if (!changes) return null;
    const { model } = this.calculation(app);
    const all = { ...app.state.trial, ...changes };
    if (all.normalizer === undefined && all.alpha !== undefined) all.normalizer = model.normalizer;
    const differing = Object.entries(all).filter(([name, value]) => value !== model[name]);
    return differing.length ? Object.fromEntries(differing) : null;
  }

  update(app) {
    if (!this.panel) return;
    const steps = this.steps(app);
    if (steps.error !== null) { this.panel.say(say("walk_failed", { reason: steps.error })); return; }
    const pair = this.chosen(app);
    const key = JSON.stringify([app.state.steps, pair, app.state.trial, app.state.station, app.theme.name]);
    if (this.shownKey === key && this.shownSteps === steps) return;
    [this.shownKey, this.shownSteps] = [key, steps];
    const stations = this.stations(app);
    const { style } = app.frame.box;
    style.setProperty("--asks", app.theme.accent);
    style.setProperty("--answers", app.theme.heads[2]);
    Object.assign(this.panel, { name: this.nameOf(app, steps), isChosen: this.ofRecords(app), tokenName: this.tokenName.bind(this, app), record: this.recordOf(app, steps) });
    const carried = app.steps.filter((one) => one.source === null);
    const all = app.records.reduce((sum, record) => sum + record.heads, 0);
    this.panel.carried = app.options.fetchSteps || !app.records.length || carried.length === all ? "" : carried.length > 4 ? say("walk_carried_count", { count: carried.length, all })
      : say("walk_carried", { names: carried.map((one) => this.nameOf(app, one)).join(" \u00b7 ") });
    this.panel.show(this.calculation(app), pair, stations, this.placeOf(stations, app), app.theme);
  }

  /** What is said while nothing is pointed at. */
  said(app) {
    const { error } = this.steps(app);
    if (error !== null) return say("walk_failed", { reason: error });
    const stations = this.stations(app);
    return stations[this.placeOf(stations, app)].sentence;
  }

  /** What the stations explain, or what is said of the pair that is pointed at. */
  sentence(app, item) {
    return { text: item ? this.describe(app, item) : this.steps(app).error === null ? this.question(app) : this.said(app), shares: "" };
  }

  /** What is exported: the map, and the stations below it. */
  sheet(app) {
    if (this.steps(app).error !== null) return null;
    return walkSheet(app, this, this.stations(app));
  }

  // --- the map ---

  mapName(app) {
    const name = MAPS[app.state.station] ?? "weights";
    return name === "masked" || name === "scores" || name === "weights" || this.steps(app).has(name) ? name : "scaled";
  }

  geometry(app) {
    const steps = this.steps(app);
    const { width } = app.area;
    const labels = labelWidths(steps.entry);
    const left = Math.min(Math.max(labels.rows + 24, textWidth(say("axisQuery"), { size: 11 }) + 24), width * 0.36);
    const cell = clamp((width - left - 12) / Math.max(1, steps.columns), 10, 44);
    const column = Math.min(90, labels.columns);
    const flat = column + 8 <= cell;
    const top = 48 + (flat ? 6 : column);
    const tall = Math.min(cell, 30);
    return { steps, left, top, cell, tall, flat, bottom: top + steps.rows * tall };
  }

  size(app) {
    const place = this.geometry(app);
    const notes = this.pieceNotes(app).length;
    return { width: Math.max(app.area.width, place.left + place.steps.columns * place.cell + 8), height: place.bottom + 12 + (notes && 18 * notes + 4) };
  }

  /** The first words that are several tokens, in a line each. */
  pieceNotes(app) {
    const record = this.recordOf(app, this.steps(app));
    const texts = record ? [record.queries, record.keys].flatMap((axis) => piecesOf(axis).slice(0, 3).map((group) => say("walk_pieces", { word: quoted(axis.groupText(group, true)), count: group[1] - group[0] }))) : [];
    return [...new Set(texts)].slice(0, 3);
  }

  draw(app, pen, win) {
    const place = this.geometry(app);
    const { steps, left, top, cell, tall } = place;
    const { theme } = app;
    if (!steps.rows || !steps.columns) return;
    const name = this.mapName(app);
    const matrix = this.calculation(app).map(name);
    pen.text(fitText(say(/** @type {any} */ (`walk_map_${name}`)), app.area.width - 24, { size: 13, bold: true }), 16, 12, { color: theme.text, size: 13, bold: true });
    const largest = this.scaleEnd(app, name, matrix);
    const [firstRow, firstColumn] = [Math.max(0, Math.floor((win.y - top) / tall)), Math.max(0, Math.floor((win.x - left) / cell))];
    for (let row = firstRow; row < Math.min(steps.rows, Math.ceil((win.y + win.height - top) / tall)); row += 1) {
      for (let column = firstColumn; column < Math.min(steps.columns, Math.ceil((win.x + win.width - left) / cell)); column += 1) {
        const hidden = name === "weights" && this.calculation(app).row(row).masked[column] === -Infinity;
        const value = hidden ? -Infinity : matrix[row * steps.columns + column];
        this.drawCell(app, pen, place, value, row, column, largest ? value / largest : 0, name === "weights" && !steps.signed);
      }
    }
    this.drawLabels(app, pen, place);
    this.pieceNotes(app).forEach((text, line) => pen.text(fitText(text, app.area.width - 24, { size: 12 }), 16, place.bottom + 18 * (line + 1), { color: theme.muted, size: 12 }));
    const item = this.chosen(app);
    ring(pen, left + item.column * cell, top + item.row * tall, cell, tall, theme.accent, theme);
  }

  /** The number of the last colour: of weights as in the other views. */
  scaleEnd(app, name, matrix) {
    const largest = Math.max(...finiteRange(matrix).map(Math.abs));
    return name === "weights" && !this.steps(app).signed ? scaleEnd(largest, this.steps(app).columns) : largest;
  }

  drawCell(app, pen, place, value, row, column, share, isAmount) {
    const [x, y] = [place.left + column * place.cell, place.top + row * place.tall];
    const { cell, tall } = place;
    if (value === -Infinity) { pen.hatch(x, y, cell - 1, tall - 1, app.theme); return; }
    if (!Number.isFinite(value)) { pen.cross(x, y, cell - 1, tall - 1, app.theme); return; }
    const fill = (isAmount ? rampColor : divergingColor)(share, app.theme);
    pen.rect(x, y, cell - 1, tall - 1, { fill });
    if (cell >= 34 && tall >= 14) {
      pen.text(isAmount ? cellText(value) : Math.abs(value) >= 100 ? value.toFixed(0) : value.toFixed(2).replace("-", "\u2212"), x + cell / 2 - 0.5, y + tall / 2,
        { color: inkOn(fill), size: 11, align: "center" });
    }
  }

  drawLabels(app, pen, place) {
    const { steps, left, top, cell, tall, flat } = place;
    const item = this.chosen(app);
    const { theme } = app;
    const record = this.recordOf(app, steps);
    const mark = (chosen, color, side, position) => ({ color: chosen ? color : record && !startsWord(record[side], position) ? theme.muted : theme.text, bold: chosen });
    const axis = { color: theme.muted, size: 11 };
    pen.text(say("axisQuery"), left - 8, top - 14, { ...axis, align: "end" });
    pen.text(say("axisKey"), left, 30, axis);
    // The pieces of a word stand at one line.
    if (record) {
      for (const [first, end] of piecesOf(record.queries)) pen.path([[left - 4, top + first * tall + 2], [left - 4, top + end * tall - 3]], axis);
      for (const [first, end] of piecesOf(record.keys)) pen.path([[left + first * cell + 1, top - 3], [left + end * cell - 2, top - 3]], axis);
    }
    const rowStep = Math.ceil(12 / tall);
    steps.entry.queries.forEach((text, row) => {
      if (row !== item.row && (row % rowStep || Math.abs(row - item.row) < rowStep)) return;
      const style = mark(row === item.row, theme.accent, "queries", row);
      pen.text(fitText(shortText(text, 16), left - 24, style), left - 8, top + (row + 0.5) * tall, { ...style, align: "end" });
    });
    const columnStep = Math.ceil(12 / cell);
    steps.entry.keys.forEach((text, column) => {
      if (column !== item.column && (column % columnStep || Math.abs(column - item.column) < columnStep)) return;
      const style = mark(column === item.column, theme.heads[2], "keys", column);
      const x = left + (column + 0.5) * cell;
      if (flat) pen.text(shortText(text, 16), x, top - 10, { ...style, align: "center" });
      else pen.text(fitText(shortText(text, 16), top - 46, style), x, top - 6, { ...style, angle: -90 });
    });
  }

  hit(app, x, y) {
    const { steps, left, top, cell, tall } = this.geometry(app);
    if (y < top) return null;
    const row = Math.floor((y - top) / tall);
    // A label of a row keeps the word that is looked at.
    const column = x < left ? this.chosen(app).column : Math.floor((x - left) / cell);
    return row < steps.rows && column < steps.columns ? { row, column } : null;
  }

  place(app, item) {
    const { left, top, cell, tall } = this.geometry(app);
    return { x: left + item.column * cell, y: top + item.row * tall, width: cell, height: tall };
  }

  start(app) {
    return { ...this.chosen(app) };
  }

  has(app, item) {
    const steps = this.steps(app);
    return item.row < steps.rows && item.column < steps.columns;
  }

  move(app, item, dx, dy) {
    const steps = this.steps(app);
    const moved = { row: clamp(item.row + dy, 0, steps.rows - 1), column: clamp(item.column + dx, 0, steps.columns - 1) };
    app.state.kept = moved;
    return moved;
  }

  activate(app, item) {
    app.state.kept = { ...item };
  }

  describe(app, item) {
    const steps = this.steps(app);
    const row = this.calculation(app).row(item.row);
    const masked = row.masked[item.column] === -Infinity;
    const parts = PAIR_STEPS.filter((name) => steps.has(name)).map((name) => {
      const note = masked && (name === "masked" || name === "weights") ? ` (${say("masked")})` : "";
      return `${say(/** @type {any} */ (`walk_name_${name}`))} ${formatNumber(row[name][item.column])}${note}`;
    });
    if (this.calculation(app).isChanged) parts.push(say("walk_name_truth", { value: formatNumber(row.truth[item.column]) }));
    return `${this.tokenName(app, "queries", item.row)} \u2192 ${this.tokenName(app, "keys", item.column)}: ${parts.join(", ")}`;
  }

  legend(app) {
    const name = this.mapName(app);
    const calculation = this.calculation(app);
    const matrix = calculation.map(name);
    const samples = [];
    if (calculation.map("masked").includes(-Infinity) && (name === "masked" || name === "weights")) samples.push([MASKED, say("masked")]);
    if (matrix.some((value) => !Number.isFinite(value) && value !== -Infinity)) samples.push([MISSING, say("walk_not_finite")]);
    const isAmount = name === "weights" && !calculation.steps.signed;
    return { ramp: isAmount ? "map" : "signed", scale: "linear", title: say(isAmount ? "weightTitle" : /** @type {any} */ (`walk_name_${name}`)),
      largest: this.scaleEnd(app, name, matrix), samples, text: this.changesText(calculation) };
  }

  /** What is not as in the model, in words; "" where all is. */
  changesText(calculation) {
    if (!calculation.isChanged) return "";
    const { used } = calculation;
    const texts = { temperature: () => plainNumber(used.temperature), scale: () => plainNumber(used.scale), normalizer: () => normalizerName(used.normalizer),
      alpha: () => plainNumber(used.alpha), mask: () => say(used.mask === "none" ? "walk_mask_nothing" : "walk_mask_causal") };
    const changes = Object.entries(texts).filter(([name]) => calculation.differs(name)).map(([name, text]) => `${say(/** @type {any} */ (`walk_${name}`))} ${text()}`);
    return say("walk_experiment", { changes: changes.join(" \u00b7 ") });
  }
}
