// The page: one text for all models, or one for each; models side by side.

import { Pane } from "./pane.js";

const MOST_PANES = 4;

const byId = (id) => document.getElementById(id);
const text = byId("text");
const same = byId("same");
const panes = [];
let models = [];

function shared() {
  return same.checked || panes.length < 2;
}

function add(model) {
  const pane = new Pane(models, model, { remove, file: takeFile, choose: arrange });
  panes.push(pane);
  byId("panes").append(pane.element);
  arrange();
  if (text.value) pane.type((pane.area.value = text.value));
  return pane;
}

function remove(pane) {
  pane.type("");
  pane.unmount();
  pane.element.remove();
  panes.splice(panes.indexOf(pane), 1);
  arrange();
  (panes.at(-1)?.removeButton.hidden ? text : panes.at(-1).removeButton).focus();
}

/** Read a file that was chosen in one pane; with one input for all, every model of its kind reads it. */
function takeFile(chosen, file) {
  const kind = models[chosen.model].takes;
  for (const pane of panes) if (pane === chosen || (shared() && models[pane.model].takes === kind)) pane.take(file);
}

/** Show one text, or one for each pane. */
function arrange() {
  byId("input").hidden = !shared() || panes.every((pane) => pane.takesFile());
  byId("same-choice").hidden = panes.length < 2;
  byId("add").disabled = panes.length >= MOST_PANES;
  byId("add").textContent = panes.length < 2 ? "Compare" : "Add another";
  for (const pane of panes) {
    pane.own.hidden = shared() || pane.takesFile();
    pane.removeButton.hidden = panes.length < 2;
    pane.removeButton.setAttribute("aria-label", `Remove ${models[pane.model].name}`);
  }
  const tasks = new Set(models.map((model) => model.placeholder));
  text.placeholder = tasks.size === 1 ? models[0].placeholder : "A text";
}

function typeInAll(value) {
  for (const pane of panes) {
    pane.area.value = value;
    pane.type(value);
  }
}

function offerExample() {
  const example = models.find((model) => model.example)?.example;
  byId("example").hidden = !example || Boolean(text.value) || !shared();
  return example;
}

async function start() {
  const response = await fetch("models");
  ({ models } = await response.json());
  const [only] = models;
  document.title = `${models.length === 1 ? only.name : "models"} · regard`;
  for (let place = 0; place < Math.min(models.length, MOST_PANES); place += 1) add(place);
  offerExample();
  text.focus();
}

text.addEventListener("input", () => {
  typeInAll(text.value);
  offerExample();
});

byId("example").addEventListener("click", () => {
  text.value = offerExample();
  text.focus();
  offerExample();
  typeInAll(text.value);
});

same.addEventListener("change", () => {
  if (shared()) {
    text.value = panes[0].text;
    typeInAll(text.value);
  }
  arrange();
  offerExample();
  (shared() ? text : panes[0].area).focus();
});

byId("add").addEventListener("click", () => {
  const used = new Set(panes.map((pane) => pane.model));
  const free = models.findIndex((_, place) => !used.has(place));
  // A model that is there already is compared on another text.
  if (free < 0 && panes.length === 1) same.checked = false;
  const pane = add(free < 0 ? panes.at(-1).model : free);
  (shared() ? text : pane.area).focus();
});

start().catch((error) => {
  byId("failure").textContent = `The page could not begin: ${error.message}`;
  byId("failure").hidden = false;
});
