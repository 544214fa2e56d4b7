// @ts-check

import { otherHeads } from "./difference.js";
import { action, checkbox, choice, headToggle, make } from "./elements.js";
import { savePng, saveSvg } from "./exports.js";
import { say } from "./language.js";
import { POOLINGS } from "./long_map.js";
import { PAIR_STEPS } from "./steps_data.js";
import { shortText } from "./text.js";

/** The controls that the current view needs. */
export class Controls {
  constructor(app) {
    this.app = app;
  }

  build() {
    const { app } = this;
    return [...app.view.controls.map((part) => this[part]()), this.output()].filter(Boolean);
  }

  record() {
    const { app } = this;
    const options = app.records.filter((record) => app.view.shows(record)).map((record) => [record.number, app.recordText(record)]);
    return options.length > 1 ? choice("Attention", app.state.record, options, (value) => app.set({ record: Number(value), locked: [] })) : null;
  }

  head() {
    const { app } = this;
    if (app.record.heads === 1) return null;
    const options = [["mean", "mean of all"], ...Array.from({ length: app.record.heads }, (_, head) => [head, String(head)])];
    return choice("Head", app.state.head ?? "mean", options, (value) => app.set({ head: value === "mean" ? null : Number(value) }));
  }

  /** The head that is taken away from the shown one. */
  other() {
    const { app } = this;
    const chosen = app.view.other(app);
    const several = app.records.length > 1;
    const name = ({ record, head }) => {
      const shown = head === null ? say("differenceMean") : say("differenceHead", { head });
      return several ? `${app.recordText(app.records[record])} \u00b7 ${shown}` : shown;
    };
    const all = otherHeads(app, app.record);
    return choice(say("differenceOther"), all.findIndex((one) => one.record === chosen.record && one.head === chosen.head),
      all.map((one, place) => [place, name(one)]), (value) => app.set({ other: all[Number(value)] }));
  }

  scale() {
    const { app } = this;
    const noRows = !app.view.scalesRows;
    const options = [["linear", "linear"], ["root", "square root"], ["log", "log"], ...(noRows ? [] : [["row", "per row"]])];
    return choice("Scale", noRows && app.state.scale === "row" ? "linear" : app.state.scale, options, (value) => app.set({ scale: value }));
  }

  words() {
    const { app } = this;
    const { queries, keys } = app.record;
    if (!queries.hasWords && !keys.hasWords) return null;
    return checkbox("Whole words", app.state.words, (checked) => app.set({ words: checked, locked: [] }));
  }

  special() {
    const { app } = this;
    const { queries, keys } = app.record;
    if (!queries.special.size && !keys.special.size) return null;
    return checkbox("Hide special tokens", app.state.hideSpecial, (checked) => app.set({ hideSpecial: checked, locked: [] }));
  }

  heads() {
    const { app } = this;
    const shown = app.shownHeads();
    const group = make("div", { class: "heads", role: "group", "aria-label": "Heads" });
    for (let head = 0; head < app.record.heads; head += 1) {
      group.append(headToggle(head, shown.includes(head), app.theme, () => app.toggleHead(head)));
    }
    const every = shown.length === app.record.heads;
    if (app.record.heads > 1) group.append(action(every ? "None" : "All", every ? "Hide all heads" : "Show all heads", () => app.set({ heads: every ? [] : null })));
    return make("div", { class: "group" }, document.createTextNode("Heads"), group);
  }

  zoom() {
    const { app } = this;
    return make("span", { class: "group" }, document.createTextNode("Zoom"), action("\u2212", "Zoom out", () => app.zoom(1 / 1.5)),
      action("+", "Zoom in", () => app.zoom(1.5)), action("Fit", "Show the whole map", () => app.fit()));
  }

  overlay() {
    const { app } = this;
    return choice("Overlay", app.state.overlay, [["colours", "colours"], ["veil", "veil"]], (value) => app.set({ overlay: value }));
  }

  pooling() {
    const { app } = this;
    return choice("Overview", app.state.pooling, Object.entries(POOLINGS), (value) => app.set({ pooling: value }));
  }

  findings() {
    const { app } = this;
    const found = app.record.overview?.places() ?? [];
    if (!found.length) return null;
    return choice("Go to", "", [["", `${found.length} ${found.length === 1 ? "finding" : "findings"}`], ...found.map((one, number) => [number, one.text])], (value) => {
      if (value !== "") app.goTo(found[Number(value)]);
    });
  }

  steps() {
    const { app } = this;
    if (app.steps.length < 2) return null;
    return choice("Calculation", app.state.steps, app.steps.map((steps, number) => [number, shortText(steps.entry.name, 60)]),
      (value) => app.set({ steps: Number(value), kept: null }));
  }

  step() {
    const { app } = this;
    const names = app.steps[app.state.steps].names.filter((name) => name in PAIR_STEPS);
    return choice("Matrix", app.state.step, names.map((name) => [name, name]), (value) => app.set({ step: value }));
  }

  output() {
    const { app } = this;
    return make("span", { class: "push" }, app.themeChoice(), action("PNG", "Save the picture as PNG", () => savePng(app)),
      action("SVG", "Save the picture as SVG", () => saveSvg(app)));
  }
}
