// @ts-check

import { TOP } from "./picture.js";
import { showKeys } from "./keys.js";
import { clamp } from "./numbers.js";
import { sameItem } from "./state.js";

/** Pointer, wheel and keys on the viewer's elements. */
export class Input {
  constructor(app) {
    this.app = app;
    this.grab = null; // where a drag began
    this.dragged = false;
    this.tapped = null;
    this.seenAt = null; // where the pointer moved last
    this.listen();
  }

  listen() {
    const { signal } = this.app.stopped;
    const on = (target, names, listener, more = {}) => names.split(" ").forEach((name) => target.addEventListener(name, listener, { signal, ...more }));
    on(this.app.frame.canvas, "pointermove", (event) => this.pointerMoved(event));
    on(this.app.frame.canvas, "pointerleave", () => { this.app.hover = null; this.app.changed(); });
    on(this.app.frame.canvas, "pointerdown", (event) => this.pointerPressed(event));
    on(this.app.frame.canvas, "pointerup pointercancel", () => this.pointerReleased());
    on(this.app.frame.canvas, "click", (event) => this.clicked(event));
    on(this.app.frame.canvas, "keydown", (event) => this.keyPressed(event));
    on(this.app.frame.canvas, "focus", () => this.focused());
    on(this.app.frame.canvas, "blur", () => this.app.changed());
    on(this.app.frame.scroller, "scroll", () => this.app.changed(), { passive: true });
    on(this.app.frame.scroller, "wheel", (event) => this.wheelTurned(event), { passive: false });
    on(this.app.frame.tabs, "keydown", (event) => this.tabKey(event));
    on(this.app.frame.box, "keydown", (event) => {
      this.commandKey(event);
      if (event.key === "?" && !event.ctrlKey && !event.metaKey && !event.altKey) showKeys(this.app);
      if (event.key === "Escape" && event.target !== this.app.frame.canvas) this.app.selection.unlock();
    });
    // A link that is pasted into the page's address.
    on(globalThis, "hashchange", () => { if (this.app.options.address) this.app.visit(globalThis.location.hash); });
    // Ink is for paper: what is printed is light, and drawn before the page is taken.
    on(globalThis, "beforeprint afterprint", (event) => {
      this.app.printing = event.type === "beforeprint";
      this.app.readTheme();
      if (this.app.ready) this.app.draw();
    });
    for (const text of ["(prefers-color-scheme: dark)", "(forced-colors: active)"]) {
      on(globalThis.matchMedia(text), "change", () => { this.app.readTheme(); this.app.refresh(); });
    }
  }

  at(event) {
    const box = this.app.frame.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top - TOP];
    if (!this.app.ready || y < 0 || y >= this.app.seenHeight) return null;
    const win = this.app.window();
    return this.app.view.hit(this.app, x + win.x, y + win.y, win);
  }

  /** Where the pointer is, in the window and in the scrolled picture. */
  pointAt({ clientX, clientY }) {
    const { scrollLeft, scrollTop } = this.app.frame.scroller;
    return [clientX, clientY, scrollLeft, scrollTop];
  }

  rests(event) {
    return this.app.hover !== null && String(this.seenAt) === String(this.pointAt(event));
  }

  pointerMoved(event) {
    if (this.grab) {
      const [dx, dy] = [event.clientX - this.grab.x, event.clientY - this.grab.y];
      if (this.grab.moved || Math.abs(dx) + Math.abs(dy) > 5) {
        this.grab.moved = true;
        this.app.frame.canvas.classList.add("grab");
        this.app.frame.scroller.scrollTo(this.grab.left - dx, this.grab.top - dy);
        this.app.hover = null;
        return;
      }
    }
    // A longer sentence moves the picture below a pointer that rests, which then still means what it pointed at.
    if (this.rests(event)) return;
    this.seenAt = this.pointAt(event);
    const item = this.at(event);
    if (sameItem(item, this.app.hover)) return;
    this.app.hover = item;
    this.app.keyboard = false;
    this.app.changed();
  }

  pointerPressed(event) {
    if (event.button !== 0 || event.pointerType === "touch") return;
    this.grab = { x: event.clientX, y: event.clientY, left: this.app.frame.scroller.scrollLeft, top: this.app.frame.scroller.scrollTop, moved: false };
    this.app.frame.canvas.setPointerCapture?.(event.pointerId);
  }

  pointerReleased() {
    this.dragged = this.grab?.moved ?? false;
    this.grab = null;
    this.app.frame.canvas.classList.remove("grab");
  }

  clicked(event) {
    if (this.dragged) { this.dragged = false; return; }
    const item = this.rests(event) ? this.app.hover : this.at(event);
    if (!item) return;
    this.app.cursor = item;
    this.app.touched = event.pointerType === "touch";
    if (this.acts(event, item)) this.app.view.activate(this.app, item);
    this.app.changed();
  }

  /** Whether a click or tap acts on an item: a first tap points at it, as a finger cannot. */
  acts({ pointerType }, item) {
    const { view } = this.app;
    const again = this.tapped?.view === view && sameItem(this.tapped.item, item);
    this.tapped = { view, item };
    return pointerType !== "touch" || again || !view.tapHelp;
  }

  focused() {
    if (!this.app.ready) return;
    this.app.cursor ??= this.app.view.start(this.app);
    this.app.keyboard = this.app.frame.canvas.matches(":focus-visible");
    this.app.changed();
  }

  wheelTurned(event) {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const box = this.app.frame.canvas.getBoundingClientRect();
    this.app.zoom.by(event.deltaY < 0 ? 1.25 : 0.8, { x: event.clientX - box.left, y: event.clientY - box.top - TOP });
  }

  keyPressed(event) {
    if (!this.app.ready || event.ctrlKey || event.metaKey || event.altKey) return;
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1], Home: [-1e9, 0], End: [1e9, 0], PageUp: [0, -10, -1], PageDown: [0, 10, 1] };
    if (event.key in moves) this.moveCursor(...moves[event.key]);
    else if (this.app.view.pressed?.(this.app, event.key)) this.app.keyboard = true;
    else if (event.key === "Enter" || event.key === " ") {
      if (this.app.cursor && this.app.view.has(this.app, this.app.cursor)) this.app.view.activate(this.app, this.app.cursor);
    }
    else if (event.key === "Escape") this.escape();
    else if (event.key === "+" || event.key === "=") this.zoomKey(1.5);
    else if (event.key === "-") this.zoomKey(1 / 1.5);
    else if (event.key === "0") this.app.zoom.fit();
    else if (event.key === "[" || event.key === "]") this.app.selection.nextHead(event.key === "[" ? -1 : 1);
    else return;
    event.preventDefault();
    this.app.changed();
  }

  /** Undo and redo, wherever the focus is. */
  commandKey(event) {
    if (!(event.ctrlKey || event.metaKey) || event.altKey) return;
    const key = event.key.toLowerCase();
    if (key === "z" && event.shiftKey) this.app.journal.redo();
    else if (key === "z") this.app.journal.undo();
    else if (key === "y") this.app.journal.redo();
    else return;
    event.preventDefault();
  }

  zoomKey(factor) {
    const box = this.app.cursor ? this.app.view.place(this.app, this.app.cursor) : null;
    const win = this.app.window();
    this.app.zoom.by(factor, box ? { x: box.x - win.x + box.width / 2, y: box.y - win.y + box.height / 2 } : null);
  }

  escape() {
    if (this.app.view.name === "long" && this.app.state.zoom > 1) this.app.zoom.fit();
    else this.app.selection.unlock();
  }

  moveCursor(dx, dy, jump = 0) {
    this.app.keyboard = true;
    this.app.hover = null;
    const from = this.app.cursor && this.app.view.has(this.app, this.app.cursor) ? this.app.cursor : this.app.view.start(this.app);
    if (!this.app.view.has(this.app, from)) return;
    this.app.cursor = this.app.view.move(this.app, from, dx, dy, jump);
    const box = this.app.view.place(this.app, this.app.cursor);
    const { frame: { scroller } } = this.app;
    const { width, height } = this.app.window();
    const [left, top] = [box.frozenLeft ?? 0, box.frozenTop ?? 0];
    if (box.x - scroller.scrollLeft < left) scroller.scrollLeft = box.x - left;
    if (box.x + box.width - scroller.scrollLeft > width) scroller.scrollLeft = box.x + box.width - width + 4;
    if (box.y - scroller.scrollTop < top) scroller.scrollTop = box.y - top;
    if (box.y + box.height - scroller.scrollTop > height) scroller.scrollTop = box.y + box.height - height + 4;
  }

  tabKey(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -1000, End: 1000 }[event.key];
    if (!step) return;
    const views = this.app.views.filter((view) => view.available(this.app));
    const here = views.indexOf(this.app.view);
    const next = Math.abs(step) > 1 ? clamp(here + step, 0, views.length - 1) : (here + step + views.length) % views.length;
    this.app.show(views[next].name);
    this.app.frame.tabs.querySelector("[aria-selected=\"true\"]").focus();
    event.preventDefault();
  }
}
