// @ts-check

import { clamp } from "./numbers.js";

/** The largest cell in pixels, of a map and of a long one, and the longest side of a map. */
const [MOST_CELL, MOST_LONG_CELL, MOST_SIDE] = [72, 40, 1.6e7];

/** The size of a cell to which a finding or a place of a long map is enlarged. */
const CLOSE = 16;

/** How large the map of the view is shown. */
export class Zoom {
  constructor(app) {
    this.app = app;
  }

  /** The size of a cell, or what stands for one. */
  get cell() {
    const { cell, width } = this.app.view.geometry(this.app);
    return cell ?? width;
  }

  /** Enlarges by a factor; a point of the window, or its middle, stays where it is. */
  by(factor, anchor = null) {
    const { app } = this;
    if (!app.ready || !app.view.zooms) return;
    const { frame: { scroller } } = app;
    const { width, height } = app.window();
    const before = app.view.geometry(app);
    const at = anchor ?? { x: width / 2, y: height / 2 };
    const cell = this.cell;
    const [column, row] = [(scroller.scrollLeft + at.x - before.left) / cell, (scroller.scrollTop + at.y - before.top) / cell];
    this.apply(app.state.zoom * factor);
    const after = app.view.geometry(app);
    const next = this.cell;
    scroller.scrollTo(after.left + column * next - at.x, after.top + row * next - at.y);
    app.changed();
  }

  apply(zoom) {
    const { app } = this;
    app.state.zoom = 1;
    const { whole } = app.view.geometry(app);
    const cell = this.cell;
    const longest = Math.max(app.record.queries.length, app.record.keys.length);
    const most = Math.max(1, Math.min(app.view.name === "long" ? MOST_LONG_CELL : MOST_CELL, MOST_SIDE / longest) / cell);
    app.state.zoom = clamp(zoom, Math.min(1, (whole ?? cell) / cell), most);
    app.resize();
  }

  /** Shows a place closely, in the middle, with the focus on it. */
  to(item) {
    const { app } = this;
    app.state.zoom = 1;
    this.apply(CLOSE / this.cell);
    const { frame } = app;
    const { width, height } = app.window();
    const box = app.view.place(app, item);
    frame.scroller.scrollTo(box.x - (width + (box.frozenLeft ?? 0)) / 2, box.y - (height + (box.frozenTop ?? 0)) / 2);
    this.point(item);
  }

  /** Moves the focus to a place. */
  point(item) {
    const { app } = this;
    app.cursor = item;
    app.hover = null;
    app.frame.canvas.focus({ preventScroll: true });
    app.keyboard = true;
    app.changed();
  }

  /** Shows a finding of a long map closely. */
  toFinding({ head, row, column }) {
    this.app.set({ head });
    this.app.view.activate(this.app, { row, column });
  }

  /** Shows the whole map. */
  fit() {
    const { app } = this;
    app.state.zoom = 1;
    const { whole } = app.view.geometry(app);
    this.apply(whole ? Math.min(1, whole / this.cell) : 1);
    app.frame.scroller.scrollTo(0, 0);
    app.changed();
  }
}
