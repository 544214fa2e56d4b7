// @ts-check
// One model on the page: what it answers to an input, and its attention.

import { answerElements, button, make } from "./answer.js";
import { ask, post } from "./server.js";
import { mount, say } from "./viewer.js";

const DELAY = 200; // milliseconds without a key before a text is read

/** What a file input takes. */
export const FILES = { image: "image/*", sound: "audio/*,.wav,.flac,.npy" };

/** What a file input is called, by what it takes. */
const KINDS = { image: "pageImage", sound: "pageSound" };

/** @param {string} kind */
export const fileLabel = (kind) => say(KINDS[kind] ?? "pageFile");

const MESSAGES = { text: "pageStart", image: "pageStartImage", sound: "pageStartSound" };

/** Bytes as a reader counts them. */
export const sizeText = (bytes) => `${Math.round(bytes / 2 ** 20)} MiB`;

export const counted = (count) => count.toLocaleString("en-US");

export class Pane {
  /**
   * @param {any} page has models and limits, and is told of changes: remove(pane), chosen(pane), painted(pane), seen(pane, state, item)
   * @param {number} model the place of the one to begin with
   */
  constructor(page, model) {
    this.page = page;
    this.model = model;
    this.id = `${crypto.randomUUID()}`;
    this.number = 0;
    this.text = "";
    this.file = null;
    this.found = null;
    this.viewer = null;
    this.payload = null;
    this.loading = null; // the model that the server loads
    this.wanted = null; // what the viewer is to show first, of a link
    this.input = ""; // what the attention that is shown belongs to
    this.waiting = null;
    this.controller = null;
    this.element = this.build();
    this.describe();
  }

  build() {
    this.letter = make("span", "letter");
    this.heading = make("h2");
    this.facts = make("p", "facts");
    this.choice = make("select");
    this.choice.addEventListener("change", () => this.choose(Number(this.choice.value)));
    this.removeButton = button("", () => this.page.remove(this), "remove");
    const head = make("div", "pane-head", this.letter, this.heading, this.choice, this.facts, this.removeButton);

    this.area = make("textarea");
    this.area.rows = 2;
    this.area.dir = "auto";
    this.area.spellcheck = false;
    this.area.addEventListener("input", () => this.type(this.area.value));
    this.ownTextName = make("span");
    this.ownText = make("label", "own-text", this.ownTextName, this.area);
    this.fileInput = make("input");
    this.fileInput.type = "file";
    this.fileInput.addEventListener("change", () => {
      if (this.fileInput.files.length) this.send(this.fileInput.files[0]);
    });
    this.ownFileName = make("span");
    this.ownFile = make("label", "own-file", this.ownFileName, this.fileInput);
    this.own = make("div", "own", this.ownText, this.ownFile);
    this.own.hidden = true;

    this.message = make("p", "message");
    this.error = make("p", "error");
    this.error.setAttribute("role", "alert");
    this.error.hidden = true;
    this.answer = make("div", "answer");
    this.answer.setAttribute("aria-live", "polite");
    this.stale = make("p", "stale-note");
    this.stale.dir = "auto";
    this.stale.hidden = true;
    this.view = make("div", "view");
    const top = make("div", "pane-top", make("div", "progress"), head, this.own, this.message, this.error, this.stale);
    return make("section", "pane", top, this.answer, this.view);
  }

  /** Writes all words that stand beside the attention, in the chosen language. */
  describe() {
    const model = this.page.models[this.model];
    const several = this.page.models.length > 1;
    this.heading.textContent = model.name;
    this.heading.classList.toggle("visually-hidden", several);
    this.choice.hidden = !several;
    if (several && this.choice.options.length !== this.page.models.length) {
      this.choice.replaceChildren(...this.page.models.map((one, place) => new Option(one.name, String(place))));
    }
    this.choice.value = String(this.model);
    this.choice.setAttribute("aria-label", say("pageModel", { name: this.letter.textContent || "A" }));
    this.element.setAttribute("aria-label", model.name);
    this.facts.textContent = model.most_tokens ? `${model.facts} \u00b7 ${say("pageTokens", { count: counted(model.most_tokens) })}` : model.facts;
    this.area.placeholder = model.placeholder;
    this.removeButton.textContent = say("pageRemove");
    this.removeButton.setAttribute("aria-label", say("pageRemoveModel", { name: model.name }));
    this.ownTextName.textContent = say("pageText");
    const isFile = this.accepts !== "text";
    this.ownText.hidden = isFile;
    this.ownFile.hidden = !isFile;
    if (isFile) {
      this.ownFileName.textContent = `${fileLabel(this.accepts)} (${say("pageMost", { size: sizeText(this.page.limits.upload) })})`;
      this.fileInput.accept = FILES[this.accepts];
    }
    if (this.loading === this.model) this.say(say("pageLoading", { name: this.name }));
    else if (!this.hasInput) this.clear(say(MESSAGES[this.accepts]));
    if (this.found) this.answer.replaceChildren(...answerElements(this.found.answer));
    this.nameStale();
  }

  /** The name of the model. */
  get name() {
    return this.page.models[this.model].name;
  }

  /** "text", "image" or "sound". */
  get accepts() {
    return this.page.models[this.model].accepts;
  }

  get hasInput() {
    return this.accepts === "text" ? Boolean(this.text.trim()) : this.file !== null;
  }

  /** The text, or the name of the file. */
  get shownInput() {
    return this.accepts === "text" ? this.text : this.file?.name ?? "";
  }

  /** Whether the attention that is shown belongs to an earlier input. */
  get isStale() {
    return this.viewer !== null && this.input !== this.shownInput;
  }

  choose(model) {
    this.model = model;
    this.clear("");
    this.describe();
    this.page.chosen(this);
    this.read();
  }

  /** Read a file, if the model reads files. */
  send(file) {
    this.file = file;
    if (this.accepts !== "text") this.read();
  }

  /** Read a text: at once, or when no key was typed for a moment. */
  type(text, atOnce = false) {
    this.text = text;
    if (this.accepts !== "text") return;
    this.number += 1; // no earlier answer is painted from now on
    this.controller?.abort();
    clearTimeout(this.waiting);
    this.busy(Boolean(text.trim()));
    if (atOnce) this.read();
    else this.waiting = setTimeout(() => this.read(), DELAY);
  }

  busy(is) {
    this.element.setAttribute("aria-busy", String(is));
    this.nameStale();
  }

  /** Dims and names attention that belongs to an earlier input. */
  nameStale() {
    const stale = this.isStale && this.hasInput;
    this.element.classList.toggle("stale", stale);
    this.stale.hidden = !stale;
    this.stale.textContent = stale ? say("pageStale", { text: this.input }) : "";
  }

  async read() {
    clearTimeout(this.waiting);
    this.controller?.abort();
    const number = ++this.number;
    if (!this.hasInput) {
      this.busy(false);
      this.describe();
      this.page.painted(this);
      return;
    }
    this.controller = new AbortController();
    this.busy(true);
    const input = this.shownInput;
    try {
      if (!await this.open(number)) return;
      const found = await this.ask(number, this.controller.signal);
      if (found && number === this.number) this.paint(found, input);
    } catch (error) {
      if (number === this.number) this.fail(error);
    }
    if (number === this.number) {
      this.busy(false);
      this.page.painted(this);
    }
  }

  /** Has the server load the model, if it is not in memory; whether this input still counts. */
  async open(number) {
    const { model } = this;
    const { models } = this.page;
    if (!models[model].loaded) {
      this.loading = model;
      this.describe();
      try {
        await this.page.openModel(model);
      } finally {
        if (this.loading === model) this.loading = null;
      }
      if (number !== this.number) return false;
      this.say("");
      this.describe();
    }
    return number === this.number;
  }

  /** Loads the model without an input, so that its examples and limits are known. */
  async load() {
    if (this.page.models[this.model].loaded) return;
    const number = ++this.number;
    this.busy(true);
    try {
      await this.open(number);
    } catch (error) {
      if (number === this.number) this.fail(error);
    }
    if (number === this.number) this.busy(false);
  }

  ask(number, signal) {
    const asked = { model: this.model, pane: this.id, number };
    const { limits } = this.page;
    if (this.accepts === "text") {
      const count = Array.from(this.text).length;
      if (count > limits.characters) throw new Error(say("pageTooLong", { count: counted(count), most: counted(limits.characters) }));
      return ask("read", { ...asked, text: this.text }, signal);
    }
    if (this.file.size > limits.upload) throw new Error(say("pageTooLarge", { size: sizeText(limits.upload) }));
    return post(`upload?${new URLSearchParams(/** @type {any} */ (asked))}`, "application/octet-stream", this.file, signal);
  }

  paint(found, input) {
    this.found = found;
    this.input = input;
    this.error.hidden = true;
    this.message.hidden = true;
    this.answer.replaceChildren(...answerElements(found.answer));
    if (!found.payload) {
      this.unmount();
      return;
    }
    // Above the view the page shows the model and its answer already.
    this.payload = { ...found.payload, title: input, texts: [] };
    if (this.viewer) this.viewer.update(this.payload);
    else this.mountViewer(this.wanted ?? { view: found.view, ...(found.first === null ? {} : { record: found.first }) });
    this.see(this.wanted);
  }

  /** Shows what an address names, now or when there is attention to show. */
  see(seen) {
    this.wanted = seen;
    if (!seen || !this.viewer || this.isStale) return;
    this.wanted = null;
    this.viewer.set(seen);
  }

  /** Shows the attention; what a viewer showed before can be shown again. */
  mountViewer(seen) {
    this.viewer?.destroy();
    const place = make("div");
    this.view.replaceChildren(place);
    this.viewer = mount(place, this.payload, { view: seen.view, selection: seen,
      fetchTile: (...tile) => this.fetchTile(...tile), fetchSteps: (record, head) => this.fetchSteps(record, head) });
    this.viewer.onChange((state, item) => this.page.seen(this, state, item));
  }

  /** What the viewer shows, for the address; null where there is none. */
  seen() {
    return this.viewer?.state() ?? this.wanted;
  }

  fail(error) {
    this.clear("");
    this.error.textContent = error.message;
    this.error.hidden = false;
  }

  say(message) {
    this.message.textContent = message;
    this.message.hidden = !message;
  }

  clear(message) {
    this.found = null;
    this.answer.replaceChildren();
    this.error.hidden = true;
    this.say(message);
    this.unmount();
  }

  unmount() {
    this.viewer?.destroy();
    this.viewer = null;
    this.view.replaceChildren();
    this.nameStale();
  }

  remove() {
    this.type("");
    this.unmount();
    clearTimeout(this.waiting);
    this.element.remove();
  }

  /** The worked calculation of a head, as an entry of a payload's steps. */
  async fetchSteps(record, head) {
    this.stepsNumber = (this.stepsNumber ?? 0) + 1;
    // Calculations of two heads do not replace each other.
    const pane = `${this.id} ${record} ${head}`;
    const found = await ask("steps", { reading: this.found.reading, record, head, pane, number: this.stepsNumber });
    return found.payload.steps[0];
  }

  async fetchTile(record, q0, q1, k0, k1) {
    return ask("tile", { reading: this.found.reading, record, queries: [q0, q1], keys: [k0, k1] });
  }
}
