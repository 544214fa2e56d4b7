// @ts-check

import { otherHeads } from "./difference.js";
import { action, choice, headToggle, make, zoomButtons } from "./elements.js";
import { headLabel, labelText, leftOutText, noiseText } from "./head_labels.js";
import { say } from "./language.js";
import { ordersOf } from "./head_order.js";
import { POOLINGS } from "./long_map.js";
import { recordName } from "./record_names.js";
import { middleText } from "./text.js";

/** Controls that stand in the menu. */
const RARE = ["scale", "words", "special"];

/** The one row of controls that the current view needs. */
export class Controls {
  constructor(app) {
    this.app = app;
  }

  build() {
    const wanted = this.app.options.controls ?? this.app.view.controls;
    return this.app.view.controls.filter((part) => !RARE.includes(part) && wanted.includes(part)).flatMap((part) => this[part]() ?? []);
  }

  record() {
    const { app } = this;
    if (app.view.name === "walk" && !app.view.ofRecords(app)) return null;
    const shown = app.recordsOfText.filter((record) => app.view.shows(record));
    const options = shown.map((record) => [record.number, recordName(record, app.records), `${record.label} \u00b7 ${record.entry.name} (${say("fromZero")})`]);
    return options.length > 1 ? choice(say("layer"), app.state.record, options, (value) => app.set({ record: Number(value), locked: [] })) : null;
  }

  head() {
    const { app } = this;
    if (app.record.heads === 1) return app.record.entry.head_numbers ? make("span", { class: "label", text: app.record.oneHeadText }) : null;
    const options = [...Array.from({ length: app.record.heads }, (_, head) => [head, say("headNumber", { head: app.record.headNumber(head) }), `${say("head")} (${say("fromZero")})`]),
      ["mean", say("meanOfAll")]];
    const label = app.state.head === null ? null : headLabel(app.record, app.state.head);
    return [choice(say("head"), app.state.head ?? "mean", options, (value) => app.set({ head: value === "mean" ? null : Number(value) })),
      make("span", { class: "pair" }, action("\u25c2", say("previousHead"), () => app.selection.nextHead(-1)), action("\u25b8", say("nextHead"), () => app.selection.nextHead(1))),
      label && make("span", { class: "label", text: labelText(label, app.record), title: [leftOutText(label), noiseText(Boolean(app.record.entry.statistics))].filter(Boolean).join("; ") })].filter(Boolean);
  }

  /** In what order the grid shows heads. */
  order() {
    const { app } = this;
    const options = ordersOf(app.records).map((order) => [order, say(/** @type {any} */ (`order_${order}`))]);
    return choice(say("order"), app.state.order, options, (value) => app.set({ order: value }));
  }

  /** Whether each map of the grid has its own scale. */
  range() {
    const { app } = this;
    return choice(say("range"), app.state.range, [["each", say("range_each")], ["one", say("range_one")]], (value) => app.set({ range: value }));
  }

  /** The head that is taken away from the shown one. */
  other() {
    const { app } = this;
    const chosen = app.view.other(app);
    const all = otherHeads(app, app.record);
    return choice(say("differenceOther"), all.findIndex((one) => one.record === chosen.record && one.head === chosen.head),
      all.map((one, place) => [place, `${one.record === app.state.record && app.records.length > 1 ? `${app.recordText(app.record)} \u00b7 ` : ""}${app.view.nameOf(app, one)}`]), (value) => app.set({ other: all[Number(value)] }), true);
  }

  /** Whose numbers are shown, of several grids of heads. */
  grids() {
    const { app } = this;
    if (app.grids.length < 2) return null;
    return choice(say("numbers"), app.state.grid, app.grids.map(({ entry }, number) => [number, middleText(entry.title, 40), entry.title]),
      (value) => app.set({ grid: Number(value) }));
  }

  heads() {
    const { app } = this;
    const shown = app.shownHeads();
    const group = make("div", { class: "heads", role: "group", "aria-label": say("heads") }, make("span", { class: "name", text: say("heads") }));
    for (let head = 0; head < app.record.heads; head += 1) {
      group.append(headToggle(head, app.record.headNumber(head), shown.includes(head), app.theme,
        (event) => (event.detail === 2 || event.shiftKey ? app.set({ head }) : app.selection.toggleHead(head))));
    }
    const every = shown.length === app.record.heads;
    if (app.record.heads > 1) {
      group.append(action(say(every ? "none" : "all"), say(every ? "hideAllHeads" : "showAllHeads"),
        () => app.set({ heads: every ? [] : Array.from({ length: app.record.heads }, (_, head) => head) })));
    }
    return group;
  }

  /** Plays the sound that the keys are of, where the payload carries it. */
  play() {
    const { app } = this;
    if (!app.record.keys.sound) return null;
    const playing = app.player.plays(app.record.keys);
    const text = say(playing ? "stopSound" : "playSound");
    return action(`${playing ? "\u25a0" : "\u25b6"} ${text}`, text, () => app.view.toggle(app));
  }

  /** What is shown in place of weights, where a record carries it. */
  measure() {
    const { app } = this;
    const names = Object.keys(app.record.measures);
    if (!names.length) return null;
    return choice(say("measure"), app.state.measure,
      ["weights", ...names].map((name) => [name, say({ norms: "measure_norms", contributions: "measure_contributions" }[name] ?? "measure_weights")]),
      (value) => app.set({ measure: value }));
  }

  /** Only where a map is larger than its room; see `Viewer.resize`. */
  zoom() {
    return make("span", { class: "pair zoom", hidden: true }, ...zoomButtons(this.app));
  }

  overlay() {
    const { app } = this;
    return choice(say("overlay"), app.state.overlay, ["colours", "veil"].map((name) => [name, say(/** @type {any} */ (`overlay_${name}`))]), (value) => app.set({ overlay: value }));
  }

  pooling() {
    const { app } = this;
    return choice(say("long_point"), app.state.pooling, POOLINGS.map((pooling) => [pooling, say(pooling === "mean" ? "long_point_share" : "long_point_largest"), say(app.record.kind === "causal" ? "long_bars_causal" : "long_bars")]), (value) => app.set({ pooling: value }));
  }

  findings() {
    const { app } = this;
    const found = app.record.overview?.places() ?? [];
    if (!found.length) return null;
    return choice(say("goTo"), "", [["", say("findings", { count: found.length })], ...found.map((one, number) => [number, one.text])], (value) => {
      if (value !== "") app.zoom.toFinding(found[Number(value)]);
    });
  }

  /** The head whose calculation is shown, where a server gives that of any head. */
  stepsHead() {
    const { app } = this;
    return app.view.ofRecords(app) ? this.head() : null;
  }

  steps() {
    const { app } = this;
    if (app.steps.length < 2 || app.view.ofRecords(app)) return null;
    return choice(say("calculation"), app.state.steps, app.steps.map((steps, number) => [number, middleText(steps.entry.name, 40), steps.entry.name]), (value) => {
      app.state.steps = Number(value);
      app.view.follow(app);
      app.set({ kept: null });
    });
  }
}

