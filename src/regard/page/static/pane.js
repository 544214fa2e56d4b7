// One model on the page: what it answers to a text, its attention, and the worked steps of a head.

import { answerElements, make } from "./answer.js";
import { mount } from "./viewer.js";

const DELAY = 200; // milliseconds without a key before a text is read

const UPLOAD_LIMIT = 32 * 1024 * 1024; // bytes, as the server has it

/** What a file input says and takes. */
export const FILES = {
  image: { label: "Image", accept: "image/*" },
  sound: { label: "Sound", accept: "audio/*,.wav,.flac,.npy" },
};

/** Stands for the file that the server has as an example of a model. */
export const EXAMPLE = Symbol("example");

let panes = 0;

/** What the server answers to a body; throws an Error with its message. */
function ask(path, body, signal) {
  return post(path, "application/json", JSON.stringify(body), signal);
}

async function post(path, type, body, signal) {
  let response;
  try {
    response = await fetch(path, { method: "POST", headers: { "Content-Type": type }, body, signal });
  } catch (error) {
    if (signal?.aborted) return null;
    throw new Error("The server does not answer. Is the command still running?");
  }
  const found = await response.json().catch(() => ({ error: `the server answered ${response.status}` }));
  if (found.replaced) return null;
  if (!response.ok) throw new Error(found.error ?? `the server answered ${response.status}`);
  return found;
}

export class Pane {
  /**
   * @param {object[]} models what the server has
   * @param {number} model the place of the one to begin with
   * @param {(pane: Pane) => void} onRemove
   * @param {() => void} onChoose called when the pane shows another model
   */
  constructor(models, model, onRemove, onChoose = () => {}) {
    this.models = models;
    this.model = model;
    this.id = `${crypto.randomUUID()}`;
    this.number = 0;
    this.text = "";
    this.file = null;
    this.onChoose = onChoose;
    this.found = null;
    this.viewer = null;
    this.waiting = null;
    this.controller = null;
    this.element = this.build(++panes, onRemove);
  }

  build(number, onRemove) {
    const heading = make("h2");
    this.facts = make("p", "facts");
    const head = make("div", "pane-head", heading, this.facts);
    this.heading = heading;
    if (this.models.length > 1) {
      const choice = make("select", "", ...this.models.map((model, place) => new Option(model.name, String(place))));
      choice.setAttribute("aria-label", `Model ${number}`);
      choice.value = String(this.model);
      choice.addEventListener("change", () => this.choose(Number(choice.value)));
      heading.classList.add("visually-hidden");
      head.insertBefore(choice, this.facts);
    }
    this.removeButton = make("button", "remove", "Remove");
    this.removeButton.type = "button";
    this.removeButton.addEventListener("click", () => onRemove(this));
    head.append(this.removeButton);

    this.area = make("textarea");
    this.area.rows = 2;
    this.area.dir = "auto";
    this.area.spellcheck = false;
    this.area.addEventListener("input", () => this.type(this.area.value));
    this.ownText = make("label", "own-text", "Text", this.area);
    this.fileInput = make("input");
    this.fileInput.type = "file";
    this.fileInput.addEventListener("change", () => {
      if (this.fileInput.files.length) this.send(this.fileInput.files[0]);
    });
    this.ownFileName = make("span", "", "File");
    this.ownFile = make("label", "own-file", this.ownFileName, this.fileInput);
    this.own = make("div", "own", this.ownText, this.ownFile);
    this.own.hidden = true;

    this.message = make("p", "message");
    this.error = make("p", "error");
    this.error.setAttribute("role", "alert");
    this.error.hidden = true;
    this.answer = make("div", "answer");
    this.answer.setAttribute("aria-live", "polite");
    this.view = make("div", "view");
    this.worked = this.buildWorked();
    const element = make("section", "pane", make("div", "progress"), head, this.own, this.message, this.error);
    element.append(this.answer, this.view, this.worked);
    this.element = element;
    this.describe();
    return element;
  }

  buildWorked() {
    this.stepsButton = make("button", "", "Worked steps");
    this.stepsButton.type = "button";
    this.stepsButton.addEventListener("click", () => this.openSteps());
    this.record = make("select");
    this.head = make("select");
    this.record.setAttribute("aria-label", "Worked steps of");
    this.head.setAttribute("aria-label", "Head of the worked steps");
    this.record.addEventListener("change", () => {
      this.listHeads();
      this.showSteps();
    });
    this.head.addEventListener("change", () => this.showSteps());
    this.headChoice = make("label", "", "Head", this.head);
    this.choices = make("div", "choices", make("label", "", "Worked steps of", this.record), this.headChoice);
    this.choices.hidden = true;
    const worked = make("div", "worked", this.stepsButton, this.choices);
    worked.hidden = true;
    return worked;
  }

  describe() {
    const model = this.models[this.model];
    this.heading.textContent = model.name;
    this.element.setAttribute("aria-label", model.name);
    this.facts.textContent = model.facts;
    this.area.placeholder = model.placeholder;
    const files = FILES[this.accepts];
    this.ownText.hidden = Boolean(files);
    this.ownFile.hidden = !files;
    if (files) {
      this.ownFileName.textContent = files.label;
      this.fileInput.accept = files.accept;
    }
    const what = files ? `Choose a file (${files.label.toLowerCase()})` : "Type a text";
    if (!this.hasInput) this.clear(`${what} to see what ${model.name} makes of it.`);
  }

  /** "text", "image" or "sound". */
  get accepts() {
    return this.models[this.model].accepts;
  }

  get hasExampleFile() {
    return this.models[this.model].has_example_file;
  }

  get hasInput() {
    return this.accepts === "text" ? Boolean(this.text.trim()) : this.file !== null;
  }

  choose(model) {
    this.model = model;
    this.clear("");
    this.describe();
    this.onChoose();
    this.read();
  }

  /** Read a file, if the model reads files. */
  send(file) {
    this.file = file;
    if (this.accepts !== "text") this.read();
  }

  /** Read a text when no key was typed for a moment. */
  type(text) {
    this.text = text;
    if (this.accepts !== "text") return;
    this.number += 1; // no earlier answer is painted from now on
    this.controller?.abort();
    clearTimeout(this.waiting);
    this.element.setAttribute("aria-busy", String(Boolean(text.trim())));
    this.waiting = setTimeout(() => this.read(), DELAY);
  }

  async read() {
    clearTimeout(this.waiting);
    this.controller?.abort();
    const number = ++this.number;
    if (!this.hasInput) {
      this.element.setAttribute("aria-busy", "false");
      this.describe();
      return;
    }
    this.controller = new AbortController();
    this.element.setAttribute("aria-busy", "true");
    try {
      const found = await this.ask(number, this.controller.signal);
      if (found && number === this.number) this.paint(found);
    } catch (error) {
      if (number === this.number) this.fail(error);
    }
    if (number === this.number) this.element.setAttribute("aria-busy", "false");
  }

  ask(number, signal) {
    const asked = { model: this.model, pane: this.id, number };
    if (this.accepts === "text") return ask("read", { ...asked, text: this.text }, signal);
    const isExample = this.file === EXAMPLE;
    if (!isExample && this.file.size > UPLOAD_LIMIT) throw new Error("The file has more than 32 MB; choose a smaller one.");
    const query = new URLSearchParams({ ...asked, ...(isExample ? { example: 1 } : {}) });
    return post(`upload?${query}`, "application/octet-stream", isExample ? "" : this.file, signal);
  }

  paint(found) {
    this.found = found;
    this.error.hidden = true;
    this.message.hidden = true;
    this.answer.replaceChildren(...answerElements(found.answer));
    if (!found.payload) {
      this.unmount();
      return;
    }
    // Above the view the page shows the title and the texts already.
    this.payload = { ...found.payload, title: "Attention", texts: [] };
    const wantsSteps = this.viewer?.state().view === "walk";
    if (this.viewer) this.viewer.update(this.payload);
    else this.mountViewer(found);
    this.worked.hidden = !found.steps;
    if (wantsSteps && found.steps) {
      this.listRecords(Number(this.record.value), Number(this.head.value));
      this.showSteps();
    } else {
      this.closeSteps();
    }
  }

  mountViewer(found) {
    const place = make("div");
    this.view.replaceChildren(place);
    this.viewer = mount(place, this.payload, {
      view: found.view,
      selection: { record: found.first },
      fetchTile: (...tile) => this.fetchTile(...tile),
    });
  }

  fail(error) {
    this.clear("");
    this.error.textContent = error.message;
    this.error.hidden = false;
  }

  clear(message) {
    this.found = null;
    this.answer.replaceChildren();
    this.error.hidden = true;
    this.message.textContent = message;
    this.message.hidden = !message;
    this.unmount();
  }

  unmount() {
    this.viewer?.destroy();
    this.viewer = null;
    this.view.replaceChildren();
    this.worked.hidden = true;
  }

  /** The worked steps of what the view shows now; of a mean over heads, those of the first head. */
  openSteps() {
    const { record, head } = this.viewer.state();
    this.listRecords(record, head ?? 0);
    this.choices.hidden = false;
    this.stepsButton.hidden = true;
    this.record.focus();
    this.showSteps();
  }

  closeSteps() {
    this.choices.hidden = true;
    this.stepsButton.hidden = false;
  }

  listRecords(record, head) {
    const { records } = this.found.payload;
    const labels = records.map((one) => `layer ${one.layer} \u00b7 ${one.kind} \u00b7 ${one.name}`);
    this.record.replaceChildren(...labels.map((label, place) => new Option(label, String(place))));
    this.record.value = String(record < records.length ? record : 0);
    this.listHeads(head);
  }

  listHeads(head = 0) {
    const { heads } = this.found.payload.records[Number(this.record.value)];
    this.head.replaceChildren(...Array.from({ length: heads }, (_, one) => new Option(String(one), String(one))));
    this.head.value = String(head < heads ? head : 0);
    this.headChoice.hidden = heads === 1;
  }

  async showSteps() {
    const number = this.number;
    const body = {
      reading: this.found.reading,
      record: Number(this.record.value),
      head: Number(this.head.value),
      pane: this.id,
      number: (this.stepsNumber = (this.stepsNumber ?? 0) + 1),
    };
    try {
      const found = await ask("steps", body);
      if (!found || number !== this.number || !this.viewer) return;
      this.viewer.update({ ...this.payload, steps: found.payload.steps });
      this.viewer.show("walk");
    } catch (error) {
      if (number !== this.number) return;
      this.error.textContent = error.message;
      this.error.hidden = false;
    }
  }

  async fetchTile(record, q0, q1, k0, k1) {
    return ask("tile", { reading: this.found.reading, record, queries: [q0, q1], keys: [k0, k1] });
  }
}
