// One model on the page: what it answers to a text, its attention, and the worked steps of a head.

import { answerElements, make } from "./answer.js";
import { mount } from "./viewer.js";

const DELAY = 200; // milliseconds without a key before a text is read
const KINDS = { self: "self-attention", causal: "causal self-attention", cross: "attention to the source" };

let panes = 0;

/** What the server answers to a body; throws an Error with its message. */
async function ask(path, body, signal) {
  let response;
  try {
    response = await fetch(path, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
      signal,
    });
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
   */
  constructor(models, model, onRemove) {
    this.models = models;
    this.model = model;
    this.id = `${crypto.randomUUID()}`;
    this.number = 0;
    this.text = "";
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
    this.own = make("label", "own-text", "Text", this.area);
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
    this.record = make("select");
    this.head = make("select");
    const show = make("button", "", "Show worked steps");
    show.type = "button";
    show.addEventListener("click", () => this.showSteps());
    this.record.addEventListener("change", () => this.listHeads());
    const worked = make("div", "worked", make("label", "", "Attention", this.record));
    this.headChoice = make("label", "", "Head", this.head);
    worked.append(this.headChoice, show);
    worked.hidden = true;
    return worked;
  }

  describe() {
    const model = this.models[this.model];
    this.heading.textContent = model.name;
    this.element.setAttribute("aria-label", model.name);
    this.facts.textContent = model.facts;
    this.area.placeholder = model.placeholder;
    if (!this.text.trim()) this.clear(`Type a text to see what ${model.name} makes of it.`);
  }

  choose(model) {
    this.model = model;
    this.describe();
    this.read();
  }

  /** Read a text when no key was typed for a moment. */
  type(text) {
    this.text = text;
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
    if (!this.text.trim()) {
      this.element.setAttribute("aria-busy", "false");
      this.describe();
      return;
    }
    this.controller = new AbortController();
    this.element.setAttribute("aria-busy", "true");
    const body = { model: this.model, text: this.text, pane: this.id, number };
    try {
      const found = await ask("read", body, this.controller.signal);
      if (found && number === this.number) this.paint(found);
    } catch (error) {
      if (number === this.number) this.fail(error);
    }
    if (number === this.number) this.element.setAttribute("aria-busy", "false");
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
    if (this.viewer) this.viewer.update(found.payload);
    else this.viewer = mount(this.view, found.payload, { fetchTile: (...tile) => this.fetchTile(...tile) });
    this.listRecords();
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

  listRecords() {
    this.worked.hidden = !this.found.steps;
    const { records } = this.found.payload;
    const names = records.map((record) => {
      const several = records.some((other) => other !== record && other.kind === record.kind);
      const kind = KINDS[record.kind] ?? record.kind;
      return several ? `${kind}, layer ${record.layer + 1}` : kind;
    });
    const chosen = this.record.value;
    // Names that are equal, as those of hard attention, get the module's name instead.
    const labels = names.map((name, place) => (names.indexOf(name) === names.lastIndexOf(name) ? name : records[place].name));
    this.record.replaceChildren(...labels.map((label, place) => new Option(label, String(place))));
    if (chosen && Number(chosen) < records.length) this.record.value = chosen;
    this.listHeads();
  }

  listHeads() {
    const { heads } = this.found.payload.records[Number(this.record.value)];
    const chosen = this.head.value;
    this.head.replaceChildren(...Array.from({ length: heads }, (_, head) => new Option(String(head + 1), String(head))));
    if (chosen && Number(chosen) < heads) this.head.value = chosen;
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
      this.viewer.update({ ...this.found.payload, steps: found.payload.steps });
      this.viewer.show("steps");
    } catch (error) {
      if (number !== this.number) return;
      this.error.textContent = error.message;
      this.error.hidden = false;
    }
  }

  async fetchTile(record, q0, q1, k0, k1) {
    const found = await ask("tile", { reading: this.found.reading, record, queries: [q0, q1], keys: [k0, k1] });
    return found.weights;
  }
}
