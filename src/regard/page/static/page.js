// @ts-check
// The page: the models of this machine, one input for all panes or one for each, and what the address holds.

import { readAddress, writeAddress } from "./address.js";
import { Comparison } from "./comparison.js";
import { exampleElements } from "./examples.js";
import { sharedItem, sharedState } from "./link.js";
import { modelElements } from "./model_list.js";
import { FILES, Pane, counted, fileLabel, sizeText } from "./pane.js";
import { ask } from "./server.js";
import { say, speak } from "./viewer.js";

const MOST_PANES = 4;

const NEW_STEP = 2000; // milliseconds without a key after which typing is a new step of the browser's history

const SETTLED = 300; // milliseconds without a change after which the address is written

const LANGUAGES = { en: "English", zh: "\u4e2d\u6587" };

/** @returns {any} */
const byId = (id) => document.getElementById(id);

const [text, file, same, linked] = ["text", "file", "same", "linked"].map(byId);

/** "en" or "zh": what was chosen before, or what the browser's user reads. */
function firstLanguage() {
  const tags = [stored(), ...navigator.languages].map((tag) => (tag ?? "").split("-")[0].toLowerCase());
  return tags.find((tag) => tag in LANGUAGES) ?? "en";
}

function stored() {
  try {
    return localStorage.getItem("regard-language");
  } catch { // the browser keeps nothing
    return null;
  }
}

class Page {
  constructor() {
    this.models = [];
    this.limits = { characters: Infinity, upload: Infinity };
    this.panes = [];
    this.shownFile = null; // the file that all panes read
    this.example = null; // its number among the examples of the first pane that reads files
    this.comparison = null;
    this.opening = {}; // by the number of a model that is being loaded
    this.pushes = false; // whether the next address is a new step of the history
    this.typed = 0;
    this.examples = ""; // which are listed
  }

  async start() {
    this.speak(firstLanguage());
    const response = await fetch("models");
    const { language, ...described } = await response.json();
    Object.assign(this, described);
    if (language) this.speak(language);
    this.listen();
    this.restore(readAddress(location.hash));
    if (this.panes.length) this.input().focus();
  }

  listen() {
    text.addEventListener("input", () => {
      this.step();
      this.typeInAll(text.value);
    });
    file.addEventListener("change", () => {
      if (file.files.length) this.sendToAll(file.files[0], null);
    });
    // A file that is dropped anywhere on the page is read; without this the browser would leave the page.
    addEventListener("dragover", (event) => event.preventDefault());
    addEventListener("drop", (event) => {
      event.preventDefault();
      const [dropped] = event.dataTransfer?.files ?? [];
      if (!dropped || !this.panes.some((pane) => pane.accepts !== "text")) return;
      file.value = "";
      this.sendToAll(dropped, null);
    });
    same.addEventListener("change", () => {
      if (this.isShared) {
        text.value = this.panes[0].text;
        this.typeInAll(text.value);
        if (this.shownFile) this.sendToAll(this.shownFile, this.example);
      }
      this.arrange();
      this.focusInput(this.panes[0]);
    });
    linked.addEventListener("change", () => {
      const [first] = this.panes;
      if (linked.checked && first?.viewer) this.share(first, first.viewer.state(), null);
      this.compare();
      this.remember();
    });
    byId("add").addEventListener("click", () => this.addAnother());
    byId("all-models").addEventListener("click", () => {
      this.pushes = true;
      this.close();
    });
    byId("language").addEventListener("click", () => {
      const next = document.documentElement.lang === "zh" ? "en" : "zh";
      try {
        localStorage.setItem("regard-language", next);
      } catch { /* the choice lasts as long as the page */ }
      this.speak(next);
    });
    addEventListener("popstate", () => this.restore(readAddress(location.hash)));
  }

  // --- language ---

  speak(tag) {
    document.documentElement.lang = tag;
    speak(tag);
    for (const element of /** @type {any} */ (document.querySelectorAll("[data-say]"))) element.textContent = say(element.dataset.say);
    const other = tag === "zh" ? "en" : "zh";
    byId("language").textContent = LANGUAGES[other];
    byId("language").lang = other;
    byId("linked-choice").title = say("pageLinkedHelp");
    for (const pane of this.panes) pane.describe();
    this.comparison?.unmount();
    if (this.models.length) this.arrange();
  }

  // --- the address ---

  /** Shows what an address holds, as far as this page has it. */
  restore(place) {
    const wanted = place.models.map((name) => this.models.findIndex((model) => model.name === name)).filter((model) => model >= 0);
    const given = this.models.flatMap((model, number) => (model.offered ? [] : [number]));
    const chosen = (wanted.length ? wanted : given).slice(0, MOST_PANES);
    if (!chosen.length) {
      this.close();
      return;
    }
    if (JSON.stringify(chosen) !== JSON.stringify(this.panes.map((pane) => pane.model))) this.open(chosen);
    linked.checked = place.linked;
    same.checked = place.texts.length < 2 || this.panes.length < 2;
    this.panes.forEach((pane, number) => {
      const typed = place.texts[same.checked ? 0 : number] ?? "";
      pane.see(place.seen[number] ?? null);
      pane.area.value = typed;
      if (typed !== pane.text) pane.type(typed, true);
    });
    text.value = same.checked ? place.texts[0] ?? "" : "";
    const reader = this.panes.find((pane) => pane.accepts !== "text");
    if (place.example !== null && place.example !== this.example && reader && this.models[reader.model].examples[place.example]) {
      this.chooseExample(reader.model, place.example);
    }
    this.arrange();
  }

  /** What the page shows, as an address holds it. */
  place() {
    const texts = this.isShared ? [text.value] : this.panes.map((pane) => pane.text);
    return { models: this.panes.map((pane) => pane.name), texts: texts.some(Boolean) ? texts : [], example: this.example,
      linked: linked.checked, seen: this.panes.map((pane) => pane.seen()) };
  }

  /** Says that what comes next is a new step of the history, unless somebody is typing. */
  step() {
    const now = performance.now();
    if (now - this.typed > NEW_STEP) this.pushes = true;
    this.typed = now;
  }

  /** Writes the address, a moment after the last change. */
  remember() {
    clearTimeout(this.writing);
    this.writing = setTimeout(() => {
      const address = writeAddress(this.place()) || location.pathname;
      if (address !== (location.hash || location.pathname)) history[this.pushes ? "pushState" : "replaceState"](null, "", address);
      this.pushes = false;
    }, SETTLED);
  }

  // --- models ---

  /** Shows panes for models. */
  open(places) {
    this.close();
    byId("models").hidden = true;
    byId("work").hidden = false;
    byId("all-models").hidden = !this.models.some((model) => model.offered);
    for (const place of places) this.add(place);
    this.arrange();
  }

  /** Shows the list of models. */
  close() {
    for (const pane of this.panes.splice(0)) pane.remove();
    this.comparison?.remove();
    this.comparison = this.shownFile = this.example = null;
    text.value = file.value = "";
    same.checked = true;
    byId("models").hidden = false;
    byId("work").hidden = true;
    byId("all-models").hidden = true;
    this.arrange();
    this.remember();
  }

  add(model) {
    const pane = new Pane(this, model);
    this.panes.push(pane);
    byId("panes").append(pane.element);
    if (text.value) pane.type((pane.area.value = text.value));
    if (this.shownFile) pane.send(this.shownFile);
    if (!pane.hasInput) pane.load();
    return pane;
  }

  addAnother() {
    const used = new Set(this.panes.map((pane) => pane.model));
    // Of models that nobody named, none is the obvious one to compare with.
    const free = this.models.findIndex((model, place) => !used.has(place) && !model.offered);
    // A model that is there already is compared on another text.
    if (free < 0 && this.panes.length === 1) same.checked = false;
    this.pushes = true;
    const pane = this.add(free < 0 ? this.panes.at(-1).model : free);
    if (!this.isShared && this.panes.length === 2) {
      this.panes[0].area.value = this.panes[0].text;
    }
    this.arrange();
    this.focusInput(pane);
    this.remember();
  }

  remove(pane) {
    pane.remove();
    this.panes.splice(this.panes.indexOf(pane), 1);
    if (this.panes.length === 1) {
      same.checked = true;
      text.value = this.panes[0].text;
    }
    this.pushes = true;
    this.arrange();
    const last = this.panes.at(-1);
    (last.removeButton.hidden ? this.input() : last.removeButton).focus();
    this.remember();
  }

  // --- what panes tell ---

  /** Another model was chosen in a pane. */
  chosen(pane) {
    this.pushes = true;
    this.arrange();
    if (!pane.hasInput) pane.load();
    this.remember();
  }

  /** Has the server load a model; several callers wait for one answer. */
  async openModel(number) {
    this.opening[number] ??= ask("open", { model: number, pane: crypto.randomUUID(), number: 1 });
    try {
      const found = await this.opening[number];
      this.models[number] = { ...found, name: this.models[number].name };
    } finally {
      delete this.opening[number];
    }
    this.arrange();
  }

  /** A pane shows another answer. */
  painted(pane) {
    if (linked.checked && pane.viewer && pane !== this.panes[0] && this.panes[0].viewer) {
      const [first] = this.panes;
      const state = sharedState(first.viewer.state(), first.payload, pane.payload);
      if (state) pane.viewer.set(state);
    }
    this.compare();
    this.arrangeExamples();
    this.remember();
  }

  /** A pane's viewer shows something else, or points at something. */
  seen(pane, state, item) {
    if (linked.checked) this.share(pane, state, item);
    this.compare();
    this.remember();
  }

  share(pane, state, item) {
    for (const other of this.panes) {
      if (other === pane || !other.viewer || other.isStale) continue;
      const shared = sharedState(state, pane.payload, other.payload);
      if (!shared) continue;
      other.viewer.set(shared);
      other.viewer.point(sharedItem(item, state, pane.payload, other.payload));
    }
  }

  /** The difference of two panes, between them. */
  compare() {
    if (this.panes.length !== 2) {
      this.comparison?.remove();
      this.comparison = null;
      return;
    }
    this.comparison ??= new Comparison();
    if (!this.comparison.element.isConnected) this.panes[0].element.after(this.comparison.element);
    this.comparison.show(...this.panes);
  }

  // --- input ---

  get isShared() {
    return same.checked || this.panes.length < 2;
  }

  input() {
    return byId("input").hidden ? file : text;
  }

  focusInput(pane) {
    const files = pane.accepts !== "text";
    if (this.isShared) (files && !byId("input-file").hidden ? file : text).focus();
    else (files ? pane.fileInput : pane.area).focus();
  }

  typeInAll(value, atOnce = false) {
    for (const pane of this.panes) {
      pane.area.value = value;
      pane.type(value, atOnce);
    }
    this.arrangeExamples();
  }

  /** @param {File} content @param {number|null} example its number, if it is one */
  sendToAll(content, example) {
    this.pushes = true;
    this.shownFile = content;
    this.example = example;
    for (const pane of this.panes) pane.send(content);
    this.arrangeExamples();
  }

  async chooseExample(model, number) {
    const example = this.models[model].examples[number];
    if (this.models[model].accepts === "text") {
      text.value = example.text;
      this.pushes = true;
      this.typeInAll(example.text, true);
      return;
    }
    try {
      const response = await fetch(`example?model=${model}&example=${number}`);
      if (!response.ok) throw new Error((await response.json()).error);
      this.sendToAll(new File([await response.blob()], example.text), number);
    } catch (error) {
      this.panes.find((pane) => pane.model === model)?.fail(error);
    }
  }

  // --- arrangement ---

  /** Shows one input, or one for each pane; and what else depends on the panes. */
  arrange() {
    const { panes } = this;
    byId("model-list").replaceChildren(...(panes.length ? [] : modelElements(this.models, (place) => {
      this.pushes = true;
      this.open([place]);
      this.input().focus();
      this.remember();
    })));
    document.title = `${panes.length === 1 ? panes[0].name : this.models.length ? say("pageTitle") : ""} \u00b7 regard`;
    const kinds = new Set(panes.map((pane) => pane.accepts));
    const fileKinds = [...kinds].filter((kind) => kind !== "text");
    byId("input").hidden = !this.isShared || !kinds.has("text");
    byId("input-file").hidden = !this.isShared || !fileKinds.length;
    byId("input-file").querySelector("label").textContent = fileLabel(fileKinds.length === 1 ? fileKinds[0] : "file");
    byId("most").textContent = `(${say("pageMost", { size: sizeText(this.limits.upload) })})`;
    file.accept = fileKinds.map((kind) => FILES[kind]).join(",");
    byId("same-choice").hidden = byId("linked-choice").hidden = panes.length < 2;
    byId("same-choice").lastElementChild.textContent = say(fileKinds.length ? "pageSameInput" : "pageSameText");
    byId("add").disabled = panes.length >= MOST_PANES;
    byId("add").textContent = say(panes.length < 2 ? "pageCompare" : "pageAdd");
    panes.forEach((pane, number) => {
      pane.letter.textContent = panes.length > 1 ? "ABCD"[number] : "";
      pane.own.hidden = this.isShared;
      pane.removeButton.hidden = panes.length < 2;
      pane.describe();
    });
    const hints = new Set(panes.filter((pane) => pane.accepts === "text").map((pane) => this.models[pane.model].placeholder));
    text.placeholder = hints.size === 1 ? [...hints][0] : "";
    this.compare();
    this.arrangeExamples();
  }

  /** Examples of the first pane of each kind of input, until something else is read. */
  arrangeExamples() {
    const readers = [this.panes.find((pane) => pane.accepts === "text"), this.panes.find((pane) => pane.accepts !== "text")];
    const shown = readers.flatMap((pane) => {
      if (!pane || !this.isShared) return [];
      const model = this.models[pane.model];
      const isText = model.accepts === "text";
      const isShown = (number) => (isText ? text.value === model.examples[number].text : this.example === number);
      const isOwn = isText ? text.value && !model.examples.some((_, number) => isShown(number)) : this.shownFile && this.example === null;
      return isOwn ? [] : [{ place: pane.model, model, pressed: model.examples.map((_, number) => isShown(number)) }];
    });
    const list = byId("examples").querySelector("ul");
    const key = JSON.stringify([document.documentElement.lang, shown.map(({ place, model }) => [place, model.examples])]);
    if (key !== this.examples) { // else a sound that plays goes on
      this.examples = key;
      list.replaceChildren(...shown.flatMap(({ place, model }) => exampleElements(model, place, (number) => this.chooseExample(place, number))));
    }
    const pressed = shown.flatMap((one) => one.pressed);
    list.querySelectorAll("button").forEach((chosen, number) => chosen.setAttribute("aria-pressed", String(pressed[number])));
    byId("examples").hidden = !pressed.length;
    byId("examples").classList.toggle("compact", pressed.includes(true));
    const samples = shown.some(({ model }) => model.kind === "run");
    byId("examples-title").textContent = say(samples ? "pageTrySample" : "pageTry");
    const count = Array.from(text.value).length;
    const most = this.limits.characters;
    byId("count").textContent = count > 0.8 * most ? say("pageTyped", { count: counted(count), most: counted(most) }) : "";
  }
}

new Page().start().catch((error) => {
  byId("failure").textContent = say("pageNoStart", { message: error.message });
  byId("failure").hidden = false;
});
