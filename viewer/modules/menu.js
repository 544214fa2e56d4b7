// @ts-check

import { action, checkbox, choice, make, zoomButtons } from "./elements.js";
import { savePng, saveSvg } from "./exports.js";
import { showKeys } from "./keys.js";
import { LANGUAGES, language, say, speak } from "./language.js";
import { SCALES, scaleText } from "./scales.js";

/** What is rarely changed, behind the button with three dots. */
export class Menu {
  constructor(app) {
    this.app = app;
    const { frame, stopped: { signal } } = app;
    frame.more.addEventListener("click", () => this.toggle(), { signal });
    frame.root.addEventListener("pointerdown", (event) => {
      const path = event.composedPath();
      if (!path.includes(frame.menu) && !path.includes(frame.more)) this.close();
    }, { signal });
    frame.box.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || frame.menu.hidden) return;
      this.close();
      frame.more.focus();
      event.stopImmediatePropagation();
    }, { signal });
  }

  toggle() {
    if (this.app.frame.menu.hidden) this.open();
    else this.close();
  }

  open() {
    const { frame } = this.app;
    frame.menu.hidden = false;
    frame.more.setAttribute("aria-expanded", "true");
    this.build();
  }

  close() {
    const { frame } = this.app;
    if (frame.menu.hidden) return;
    frame.menu.hidden = true;
    frame.more.setAttribute("aria-expanded", "false");
  }

  /** What the view that is shown needs. */
  build() {
    const { app } = this;
    if (app.frame.menu.hidden) return;
    const { view } = app;
    const parts = ["scale", "words", "special"].filter((part) => view?.controls.includes(part)).map((part) => this[part]());
    if (view?.zooms) parts.push(make("div", { class: "group" }, ...zoomButtons(app)));
    app.frame.menu.replaceChildren(...[...parts, this.theme(), this.language(), this.steps(), this.link(), this.keys(), this.save()].filter(Boolean));
  }

  scale() {
    const { app } = this;
    const names = Object.keys(SCALES).filter((name) => name !== "share" && (name !== "row" || app.view.scalesRows));
    return choice(say("scale"), names.includes(app.state.scale) ? app.state.scale : "linear", names.map((name) => [name, scaleText(name)]),
      (value) => app.set({ scale: value }), true);
  }

  words() {
    const { app } = this;
    const { queries, keys } = app.record;
    if (!queries.hasWords && !keys.hasWords) return null;
    return checkbox(say("wholeWords"), app.state.words, (checked) => app.set({ words: checked, locked: [] }));
  }

  special() {
    const { app } = this;
    const { queries, keys } = app.record;
    if (!queries.special.size && !keys.special.size) return null;
    return checkbox(say("hideSpecial"), app.state.hideSpecial, (checked) => app.set({ hideSpecial: checked, locked: [] }));
  }

  theme() {
    const { app } = this;
    return choice(say("theme"), app.state.theme, ["auto", "light", "dark"].map((name) => [name, say(/** @type {any} */ (`theme_${name}`))]), (value) => {
      app.state.theme = value;
      app.readTheme();
      app.refresh();
    }, true);
  }

  /** Only where the language is the viewer's own, and not that of a page around it. */
  language() {
    const { app } = this;
    if (app.options.language === undefined) return null;
    return choice(say("language"), language(), LANGUAGES.map((name) => [name, say(/** @type {any} */ (`language_${name}`))]), (value) => {
      app.state.language = value;
      if (app.options.address) app.journal.writeAddress();
      speak(value);
    }, true);
  }

  steps() {
    const { app } = this;
    const [back, forth] = [action(say("undo"), say("undoKeys"), () => app.journal.undo()), action(say("redo"), say("redoKeys"), () => app.journal.redo())];
    back.disabled = !app.journal.history.past.length;
    forth.disabled = !app.journal.history.future.length;
    return make("div", { class: "group" }, back, forth);
  }

  keys() {
    return action(say("keys_title"), say("keys_title_long"), () => {
      this.close();
      this.app.frame.more.focus();
      showKeys(this.app);
    });
  }

  link() {
    const { app } = this;
    if (!app.options.address || !/^(?:https?|file):$/.test(globalThis.location.protocol)) return null;
    const button = action(say("copyLink"), say("copyLinkLong"), async () => {
      button.textContent = say(await copied(app) ? "linkCopied" : "linkNotCopied");
    });
    return button;
  }

  save() {
    const { app } = this;
    return make("div", { class: "group" }, action("PNG", say("savePng"), () => savePng(app)), action("SVG", say("saveSvg"), () => saveSvg(app)));
  }
}

/** Puts the address of what is shown on the clipboard; whether that was allowed. */
async function copied(app) {
  app.journal.writeAddress();
  try {
    await navigator.clipboard.writeText(globalThis.location.href);
    return true;
  } catch {
    return false;
  }
}
