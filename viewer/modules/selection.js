// @ts-check

import { commonPlaces } from "./difference.js";
import { textsOf } from "./record_names.js";
import { shownGroups } from "./table.js";

/** Changes of the rows and heads that are chosen. */
export class Selection {
  constructor(app) {
    this.app = app;
  }

  toggleRow(row) {
    if (row === null || row === undefined) return;
    const { locked } = this.app.state;
    this.app.set({ locked: locked.includes(row) ? locked.filter((one) => one !== row) : [...locked, row] });
  }

  toggleHead(head) {
    const shown = this.app.shownHeads();
    const next = shown.includes(head) ? shown.filter((one) => one !== head) : [...shown, head].sort((a, b) => a - b);
    this.app.set({ heads: next });
  }

  /** The next head, in the next layer behind the last one; -1: the one before. */
  nextHead(step) {
    const { app } = this;
    const { state, record } = app;
    if (!record) return;
    const head = (state.head ?? (step > 0 ? -1 : 0)) + step;
    if (head >= 0 && head < record.heads) { app.set({ head }); return; }
    const shown = app.recordsOfText.filter((one) => app.fits(one));
    const next = shown[(shown.indexOf(record) + step + shown.length) % shown.length];
    app.set({ record: next.number, head: step > 0 ? 0 : next.heads - 1, locked: next.queries === record.queries ? state.locked : [] });
  }

  /** Shows another text: the same layer and head, and the words that ask, where that text has them. */
  toText(number) {
    const { app, app: { state, record } } = this;
    const texts = textsOf(app.records);
    if (!texts || number === app.text) return;
    const fitting = texts[number].filter((one) => app.fits(one));
    const next = fitting.find((one) => one.label === record.label && one.entry.name === record.entry.name)
      ?? fitting[texts[app.text].indexOf(record)] ?? fitting[0] ?? texts[number][0];
    const [before, after] = [record, next].map((one) => shownGroups(one.queries, state).map((group) => one.queries.groupText(group, state.words)));
    const pairs = new Map(/** @type {any} */ (commonPlaces(before, after)));
    const asking = state.locked.length ? state.locked : [app.featured()?.row].filter((row) => row !== undefined);
    const locked = asking.map((row) => pairs.get(row) ?? after.indexOf(before[row])).filter((row) => row >= 0);
    const steps = app.steps.findIndex((one) => app.records[one.entry.record]?.entry.text === number && one.entry.head === state.head);
    const other = state.other && this.otherWith(texts, number);
    app.cursor = null;
    app.set({ other, record: next.number, head: state.head !== null && state.head >= next.heads ? 0 : state.head, locked, kept: null, steps: Math.max(0, steps) });
  }

  /** What a difference takes away from the head on another text: the same as here, or this text where it was that one. */
  otherWith(texts, number) {
    const { app, app: { state: { other } } } = this;
    const of = app.records[other.record];
    if (of?.entry.text === app.text) return { ...other, record: texts[number][texts[app.text].indexOf(of)]?.number ?? 0 };
    return of?.entry.text === number ? { ...other, record: app.record.number } : other;
  }

  /** Gives up what is locked; where nothing is, shows all rows together, or again the one that the sentence speaks of. */
  unlock() {
    const { locked, kept, overall } = this.app.state;
    const shown = this.app.view.ofTables ? !locked.length && !kept && !overall : overall;
    this.app.set({ locked: [], kept: null, overall: shown });
  }
}
