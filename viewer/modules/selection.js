// @ts-check

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
    const shown = app.records.filter((one) => app.fits(one));
    const next = shown[(shown.indexOf(record) + step + shown.length) % shown.length];
    app.set({ record: next.number, head: step > 0 ? 0 : next.heads - 1, locked: next.queries === record.queries ? state.locked : [] });
  }

  /** Gives up what is locked; where nothing is, shows all rows together, or again the one that the sentence speaks of. */
  unlock() {
    const { locked, kept, overall } = this.app.state;
    const shown = this.app.view.ofTables ? !locked.length && !kept && !overall : overall;
    this.app.set({ locked: [], kept: null, overall: shown });
  }
}
