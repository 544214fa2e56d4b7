// @ts-check

import { otherHeads } from "./difference.js";
import { action, choice, headToggle, make } from "./elements.js";
import { headLabel, labelText, noiseText } from "./head_labels.js";
import { say } from "./language.js";
import { POOLINGS } from "./long_map.js";
import { recordName } from "./record_names.js";
import { PAIR_STEPS } from "./steps_data.js";
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
    const shown = app.records.filter((record) => app.view.shows(record));
    const options = shown.map((record) => [record.number, recordName(record, app.records), `${record.label} \u00b7 ${record.entry.name}`]);
    return options.length > 1 ? choice(say("layer"), app.state.record, options, (value) => app.set({ record: Number(value), locked: [] })) : null;
  }

  head() {
    const { app } = this;
    if (app.record.heads === 1) return null;
    const options = [...Array.from({ length: app.record.heads }, (_, head) => [head, say("headNumber", { head })]),
      ["mean", say("meanOfAll")]];
    const label = app.state.head === null ? null : headLabel(app.record, app.state.head);
    return [choice(say("head"), app.state.head ?? "mean", options, (value) => app.set({ head: value === "mean" ? null : Number(value) })),
      make("span", { class: "pair" }, action("\u25c2", say("previousHead"), () => app.nextHead(-1)), action("\u25b8", say("nextHead"), () => app.nextHead(1))),
      label && make("span", { class: "label", text: labelText(label, app.record), title: noiseText(Boolean(app.record.entry.statistics)) })].filter(Boolean);
  }

  /** The head that is taken away from the shown one. */
  other() {
    const { app } = this;
    const chosen = app.view.other(app);
    const all = otherHeads(app, app.record);
    return choice(say("differenceOther"), all.findIndex((one) => one.record === chosen.record && one.head === chosen.head),
      all.map((one, place) => [place, app.view.nameOf(app, one)]), (value) => app.set({ other: all[Number(value)] }));
  }

  heads() {
    const { app } = this;
    const shown = app.shownHeads();
    const group = make("div", { class: "heads", role: "group", "aria-label": say("heads") });
    for (let head = 0; head < app.record.heads; head += 1) {
      group.append(headToggle(head, shown.includes(head), app.theme, () => app.toggleHead(head)));
    }
    const every = shown.length === app.record.heads;
    if (app.record.heads > 1) {
      group.append(action(say(every ? "none" : "all"), say(every ? "hideAllHeads" : "showAllHeads"), () => app.set({ heads: every ? [] : null })));
    }
    return group;
  }

  /** Only where a map is larger than its room; see `Viewer.resize`. */
  zoom() {
    const { app } = this;
    return make("span", { class: "pair zoom", hidden: true }, action("\u2212", say("zoomOut"), () => app.zoom(1 / 1.5)),
      action("+", say("zoomIn"), () => app.zoom(1.5)), action(say("fitText"), say("fit"), () => app.fit()));
  }

  overlay() {
    const { app } = this;
    return choice(say("overlay"), app.state.overlay, ["colours", "veil"].map((name) => [name, say(/** @type {any} */ (`overlay_${name}`))]), (value) => app.set({ overlay: value }));
  }

  pooling() {
    const { app } = this;
    return choice(say("overview"), app.state.pooling, Object.keys(POOLINGS).map((name) => [name, say(/** @type {any} */ (`pooling_${name}`))]), (value) => app.set({ pooling: value }));
  }

  findings() {
    const { app } = this;
    const found = app.record.overview?.places() ?? [];
    if (!found.length) return null;
    return choice(say("goTo"), "", [["", say("findings", { count: found.length })], ...found.map((one, number) => [number, one.text])], (value) => {
      if (value !== "") app.goTo(found[Number(value)]);
    });
  }

  steps() {
    const { app } = this;
    if (app.steps.length < 2) return null;
    return choice(say("calculation"), app.state.steps, app.steps.map((steps, number) => [number, middleText(steps.entry.name, 40), steps.entry.name]),
      (value) => app.set({ steps: Number(value), kept: null }));
  }

  step() {
    const { app } = this;
    const names = app.steps[app.state.steps].names.filter((name) => name in PAIR_STEPS);
    return choice(say("matrix"), app.state.step, names.map((name) => [name, name]), (value) => app.set({ step: value }));
  }
}
