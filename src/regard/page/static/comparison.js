// @ts-check
// The difference of what two panes show: a viewer on the two records.

import { make } from "./answer.js";
import { mount, say } from "./viewer.js";

/**
 * One payload with a record of each of two payloads.
 * @param {any} one a payload
 * @param {number} record its record
 * @param {any} other another payload
 * @param {number} otherRecord its record
 * @param {string[]} names of the two, for the records
 */
export function joinedPayload(one, record, other, otherRecord, names) {
  const moved = (entry, name, axes, masks) => ({ ...entry, name, queries: entry.queries + axes, keys: entry.keys + axes,
    visible: entry.visible === null ? null : entry.visible + masks });
  return { ...one, title: say("pageDifference"), texts: [], steps: [], axes: [...one.axes, ...other.axes], masks: [...one.masks, ...other.masks],
    records: [moved(one.records[record], names[0], 0, 0), moved(other.records[otherRecord], names[1], one.axes.length, one.masks.length)] };
}

/** The section between two panes. */
export class Comparison {
  constructor() {
    this.title = make("h2", "");
    this.message = make("p", "message");
    this.view = make("div", "view");
    this.element = make("section", "difference", make("div", "pane-top", this.title, this.message), make("div"), this.view);
    this.element.setAttribute("aria-label", "A \u2212 B");
    this.viewer = null;
    this.shown = "";
  }

  /** Shows the difference of two panes, or says why there is none. */
  show(one, other) {
    this.title.textContent = say("pageDifference");
    const reason = this.reason(one, other);
    this.message.textContent = reason;
    this.message.hidden = !reason;
    this.title.hidden = !reason; // else it stands in the viewer
    this.element.classList.toggle("stale", one.isStale || other.isStale);
    if (reason) {
      this.unmount();
      return;
    }
    const [a, b] = [one.viewer.state(), other.viewer.state()];
    const head = (state, pane) => state.head ?? (pane.payload.records[state.record].heads > 1 ? null : 0);
    const chosen = { head: a.head, other: { record: 1, head: head(b, other) }, scale: a.scale, words: a.words, hideSpecial: a.hideSpecial };
    const records = JSON.stringify([one.found.reading, a.record, other.found.reading, b.record]);
    if (this.viewer && records === this.shown) {
      this.viewer.show("difference", chosen);
      return;
    }
    this.unmount();
    this.shown = records;
    const place = make("div");
    this.view.replaceChildren(place);
    const payload = joinedPayload(one.payload, a.record, other.payload, b.record, ["A", "B"]);
    this.viewer = mount(place, payload, { view: "difference", views: ["difference"], controls: ["zoom"], selection: { record: 0, ...chosen },
      fetchTile: (record, ...range) => (record ? other.fetchTile(b.record, ...range) : one.fetchTile(a.record, ...range)) });
  }

  reason(one, other) {
    if (!one.viewer || !other.viewer) return say("pageDifferenceWait");
    const [a, b] = [one, other].map((pane) => pane.payload.records[pane.viewer.state().record]);
    if (!a || !b) return say("pageDifferenceWait");
    if (a.overview || b.overview) return say("pageDifferenceLong");
    return a.kind === b.kind ? "" : say("pageDifferenceKinds");
  }

  unmount() {
    this.viewer?.destroy();
    this.viewer = null;
    this.shown = "";
    this.view.replaceChildren();
  }

  remove() {
    this.unmount();
    this.element.remove();
  }
}
