// @ts-check

import { addressOf } from "./address.js";
import { History } from "./state.js";

/** Milliseconds between two changes of the address: browsers refuse more than 100 in 30 seconds. */
const ADDRESS_PAUSE = 320;

/** Who hears of what is shown: the history, the page's address, and listeners. */
export class Journal {
  constructor(app) {
    this.app = app;
    this.history = new History();
    this.listeners = new Set();
    this.told = /** @type {string|undefined} */ (undefined); // what the listeners know
    this.timer = /** @type {any} */ (0); // of the address that is to be written
    this.written = -ADDRESS_PAUSE;
  }

  undo() {
    this.goTo(this.history.undo());
  }

  redo() {
    this.goTo(this.history.redo());
  }

  /** Shows a state of the history, in the page's address too; null: there is none. */
  goTo(state) {
    if (!state) return;
    this.app.apply(state);
    if (this.app.options.address) this.addressSoon();
  }

  /** Calls a listener with the state and with what is pointed at (or null) after each change; gives what ends that. */
  onChange(listener) {
    this.listeners.add(listener);
    return () => { this.listeners.delete(listener); };
  }

  telling() {
    return JSON.stringify([this.app.state, this.app.pointed()]);
  }

  /** Shows a state from elsewhere without telling the listeners. */
  applyQuietly(given) {
    this.app.apply(given);
    this.told = this.telling();
  }

  /** After a picture: the state goes into the history and the address, and the listeners hear of it. */
  note() {
    const { state, options } = this.app;
    if (this.history.note(state) && options.address) this.addressSoon();
    const telling = this.telling();
    const first = this.told === undefined;
    if (telling === this.told) return;
    this.told = telling;
    if (first) return;
    for (const listener of this.listeners) listener(structuredClone(state), structuredClone(this.app.pointed()));
  }

  /** Writes the address now, or as soon as the browser takes another one. */
  addressSoon() {
    if (this.timer) return;
    const left = this.written + ADDRESS_PAUSE - performance.now();
    if (left <= 0) this.writeAddress();
    else this.timer = setTimeout(() => this.writeAddress(), left);
  }

  writeAddress() {
    clearTimeout(this.timer);
    this.timer = 0;
    this.written = performance.now();
    try {
      globalThis.history.replaceState(globalThis.history.state, "", `#${addressOf(this.app.numbered())}`);
    } catch {
      this.app.options = { ...this.app.options, address: false }; // a page without an address of its own
    }
  }

  destroy() {
    clearTimeout(this.timer);
    this.listeners.clear();
  }
}
