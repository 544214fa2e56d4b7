// The page: one text for all models, or one for each; models side by side.

import { EXAMPLE, FILES, Pane } from "./pane.js";

const MOST_PANES = 4;

const byId = (id) => document.getElementById(id);
const text = byId("text");
const file = byId("file");
const same = byId("same");
const panes = [];
let models = [];
let shownFile = null; // the file that all panes read, or EXAMPLE

function shared() {
  return same.checked || panes.length < 2;
}

function add(model) {
  const pane = new Pane(models, model, remove, arrange);
  panes.push(pane);
  byId("panes").append(pane.element);
  arrange();
  if (text.value) pane.type((pane.area.value = text.value));
  if (shownFile) pane.send(shownFile);
  return pane;
}

function remove(pane) {
  pane.type("");
  pane.unmount();
  pane.element.remove();
  panes.splice(panes.indexOf(pane), 1);
  arrange();
  const input = byId("input").hidden ? file : text;
  (panes.at(-1)?.removeButton.hidden ? input : panes.at(-1).removeButton).focus();
}

/** Show one text, or one for each pane. */
function arrange() {
  const kinds = new Set(panes.map((pane) => pane.accepts));
  const fileKinds = [...kinds].filter((kind) => kind !== "text");
  byId("input").hidden = !shared() || !kinds.has("text");
  byId("input-file").hidden = !shared() || !fileKinds.length;
  byId("input-file").querySelector("label").textContent = fileKinds.length === 1 ? FILES[fileKinds[0]].label : "File";
  file.accept = fileKinds.map((kind) => FILES[kind].accept).join(",");
  byId("same-choice").hidden = panes.length < 2;
  byId("add").disabled = panes.length >= MOST_PANES;
  byId("add").textContent = panes.length < 2 ? "Compare" : "Add another";
  for (const pane of panes) {
    pane.own.hidden = shared();
    pane.removeButton.hidden = panes.length < 2;
    pane.removeButton.setAttribute("aria-label", `Remove ${models[pane.model].name}`);
  }
  const tasks = new Set(models.filter((model) => model.accepts === "text").map((model) => model.placeholder));
  text.placeholder = tasks.size === 1 ? [...tasks][0] : "A text";
  byId("same-choice").lastChild.textContent = fileKinds.length ? " One input for all" : " One text for all";
}

function focusInput(pane) {
  const files = pane.accepts !== "text";
  if (shared()) (files && !byId("input-file").hidden ? file : text).focus();
  else (files ? pane.fileInput : pane.area).focus();
}

function typeInAll(value) {
  for (const pane of panes) {
    pane.area.value = value;
    pane.type(value);
  }
}

function sendToAll(value) {
  shownFile = value;
  for (const pane of panes) pane.send(value);
}

function offerExample() {
  const example = models.find((model) => model.example)?.example;
  const wanted = panes.some((pane) => (pane.accepts === "text" ? example : pane.hasExampleFile));
  byId("example").hidden = !wanted || Boolean(text.value || shownFile) || !shared();
  return example;
}

async function start() {
  const response = await fetch("models");
  ({ models } = await response.json());
  const [only] = models;
  document.title = `${models.length === 1 ? only.name : "models"} · regard`;
  for (let place = 0; place < Math.min(models.length, MOST_PANES); place += 1) add(place);
  offerExample();
  (byId("input").hidden ? file : text).focus();
}

text.addEventListener("input", () => {
  typeInAll(text.value);
  offerExample();
});

byId("example").addEventListener("click", () => {
  if (panes.some((pane) => pane.hasExampleFile)) sendToAll(EXAMPLE);
  text.value = offerExample() ?? "";
  (byId("input").hidden ? file : text).focus();
  offerExample();
  if (text.value) typeInAll(text.value);
});

file.addEventListener("change", () => {
  if (file.files.length) sendToAll(file.files[0]);
  offerExample();
});

// A file that is dropped anywhere on the page is read; without this the browser would leave the page.
addEventListener("dragover", (event) => event.preventDefault());
addEventListener("drop", (event) => {
  event.preventDefault();
  const [dropped] = event.dataTransfer?.files ?? [];
  if (!dropped || !panes.some((pane) => pane.accepts !== "text")) return;
  file.value = "";
  sendToAll(dropped);
  offerExample();
});

same.addEventListener("change", () => {
  if (shared()) {
    text.value = panes[0].text;
    typeInAll(text.value);
    if (shownFile) sendToAll(shownFile);
  }
  arrange();
  offerExample();
  focusInput(panes[0]);
});

byId("add").addEventListener("click", () => {
  const used = new Set(panes.map((pane) => pane.model));
  const free = models.findIndex((_, place) => !used.has(place));
  // A model that is there already is compared on another text.
  if (free < 0 && panes.length === 1) same.checked = false;
  const pane = add(free < 0 ? panes.at(-1).model : free);
  focusInput(pane);
});

start().catch((error) => {
  byId("failure").textContent = `The page could not begin: ${error.message}`;
  byId("failure").hidden = false;
});
