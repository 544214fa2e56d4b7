// @ts-check

/** @import { Calculation } from "./calculation.js" */

import { Experiment } from "./experiment.js";
import { action, make } from "./elements.js";
import { fly, outgoing } from "./flight.js";
import { say } from "./language.js";
import { formatNumber, printed } from "./numbers.js";
import { divergingColor, inkOn, rampColor } from "./palette.js";
import { FEW_DIMENSIONS, firstOf, foremost } from "./score_station.js";
import { shownRows } from "./stations.js";
import { shortText } from "./text.js";
import { tokenTexts } from "./text_flow.js";

/** How many of the largest products are outlined. */
const OUTLINED = 3;

/** The least width of a cell, and that of the names of lists, in pixels. */
const [LEAST_CELL, NAMES] = [40, 168];

/** The width from which a pane is wide, in pixels. */
const WIDE = 592;

const MOST_ROWS = 600;

/** A number in a cell: three digits at most. */
function cellNumber(value) {
  if (!Number.isFinite(value)) return formatNumber(value);
  const size = Math.abs(value);
  if (size >= 999.5) return formatNumber(value);
  const text = size.toFixed(size < 9.995 ? 2 : size < 99.95 ? 1 : 0);
  return value < 0 && Number(text) > 0 ? `\u2212${text}` : text;
}

/** The stations of the walk as elements: a strip of all, the card of the current one, and the experiment. */
export class WalkPanel {
  /** @param {{station: (place: number) => void, map: (open: boolean) => void, pair: (pair: object) => void, trial: (changes: object|null) => void, layer: (record: number) => void}} commands */
  constructor(commands) {
    this.commands = commands;
    this.opened = new Map(); // which number of a list is open
    this.unfolded = new Set(); // which lists and tables are shown whole
    this.element = make("div", { class: "walk", role: "group", "aria-label": say("walk_region"), on: { keydown: (event) => this.keyPressed(event) } });
    this.experiment = null;
    this.name = ""; // of the head
    this.isChosen = false; // whether controls above name it too
    this.tokenName = (_side, position) => String(position);
    this.carried = ""; // which calculations there are, where they are not all
    this.record = null; // of the weights of the head, where there is one
    this.steps = null;
    this.pair = { row: 0, column: 0 };
    /** @type {Calculation} */
    this.calculation = /** @type {any} */ (null);
    this.theme = null;
    this.stations = [];
    this.place = 0;
  }

  /** Shows a calculation; `place` is the number of the station. */
  show(calculation, pair, stations, place, theme) {
    const moved = this.stations.length === stations.length && this.place !== place ? this.place : null;
    Object.assign(this, { calculation, pair, stations, place, theme });
    if (this.steps !== calculation.steps) this.build(calculation);
    this.experiment?.element.classList.toggle("early", place < stations.findIndex(({ id }) => id === "weights"));
    this.experiment?.show(calculation, pair, this.tokenName, this.record?.keys);
    this.showHead();
    const focus = this.focusName();
    const numbers = outgoing(this.cards);
    this.strip.replaceChildren(...stations.map((station, number) => this.node(station, number)));
    this.cards.replaceChildren(this.card());
    this.restoreFocus(focus);
    const { offsetLeft, offsetWidth } = /** @type {HTMLElement} */ (this.strip.children[place]);
    this.strip.scrollLeft = offsetLeft - (this.strip.clientWidth - offsetWidth) / 2;
    if (moved !== null) this.arrive(moved, numbers);
  }

  /** Shows a text in place of the stations. */
  say(text) {
    this.steps = null;
    this.element.replaceChildren(make("p", { class: "note", text }));
  }

  build(calculation) {
    this.steps = calculation.steps;
    this.opened.clear();
    this.unfolded.clear();
    const { queries, keys } = calculation.steps.entry;
    const list = (name, labels, side) => {
      const select = make("select", { class: side, "aria-label": say(name), on: { change: () => this.commands.pair({ ...this.pair, [side === "query" ? "row" : "column"]: Number(select.value) }) } });
      labels.forEach((label, number) => select.append(make("option", { value: String(number), text: shortText(label, 24) })));
      return select;
    };
    this.queryChoice = list("walk_query_choice", queries, "query");
    this.keyChoice = list("walk_key_choice", keys, "key");
    this.back = action(say("walk_back"), say("walk_back"), () => this.go(this.place - 1));
    this.next = action(say("walk_next"), say("walk_next"), () => this.go(this.place + 1));
    this.next.classList.add("primary");
    this.counter = make("span", { class: "note" });
    this.note = make("p", { class: "note" });
    this.strip = make("ol", { class: "strip", "aria-label": say("walk_stations") });
    this.cards = make("div", { class: "stations" });
    this.experiment = new Experiment(calculation, (changes) => this.commands.trial(changes), (pair) => this.commands.pair(pair), () => this.commands.trial(null));
    const whatIf = this.folded("walk_what_if", calculation.isChanged, (open) => { if (this.experiment) this.experiment.isOpen = open; });
    this.title = make("h2");
    const map = this.folded("walk_map", false, this.commands.map);
    map.classList.add("unfold");
    this.element.replaceChildren(make("div", { class: "walk-head" }, this.title,
      make("span", { class: "walk-pair" }, this.queryChoice, make("span", { text: "\u2192", "aria-hidden": "true" }), this.keyChoice),
      whatIf, map),
    make("div", { class: "steps-buttons" }, this.back, this.counter, this.next), this.strip,
    make("div", { class: "walk-body" }, this.cards, this.experiment.element, this.note));
  }

  /** A button that opens something and closes it again. */
  folded(name, isOpen, open) {
    const set = (value) => {
      button.setAttribute("aria-expanded", String(value));
      open(value);
    };
    const button = action(say(name), say(name), () => set(button.getAttribute("aria-expanded") !== "true"));
    set(isOpen);
    return button;
  }

  showHead() {
    this.queryChoice.value = String(this.pair.row);
    this.keyChoice.value = String(this.pair.column);
    this.back.disabled = this.place === 0;
    this.next.disabled = this.place === this.stations.length - 1;
    this.title.textContent = this.name;
    this.title.classList.toggle("repeated", this.isChosen);
    this.note.textContent = this.carried;
    this.counter.textContent = say("walk_place", { here: this.place + 1, all: this.stations.length });
  }

  go(place) {
    if (place < 0 || place >= this.stations.length) return;
    this.commands.station(place);
  }

  keyPressed(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const target = /** @type {HTMLElement} */ (event.target);
    if (!step || event.ctrlKey || event.metaKey || event.altKey || target.matches("input, select")) return;
    event.preventDefault();
    this.go(this.place + step);
  }

  /** Brings the open card into sight, and lets the numbers of the one before fly in. */
  arrive(from, numbers) {
    const card = this.cards.firstElementChild;
    card.style.scrollMarginTop = `${this.strip.offsetHeight + 12}px`;
    card.scrollIntoView({ block: "nearest" });
    if (card.getBoundingClientRect().top < this.strip.getBoundingClientRect().bottom) card.scrollIntoView({ block: "start" });
    if (this.place > from) fly(numbers, card);
  }

  // --- elements ---

  node(station, number) {
    const isDone = number < this.place;
    const button = make("button", { type: "button", class: isDone ? "done" : null, "data-name": `node ${number}`, "data-goes": station.id,
      "aria-current": number === this.place ? "step" : null, on: { click: () => this.go(number) } },
    make("span", { text: `${isDone ? "\u2713" : number + 1} ${station.title}` }), make("b", { text: station.figure, dir: "auto" }));
    return make("li", {}, button, station.operation ? make("span", { class: "operation", text: station.operation, "aria-hidden": "true" }) : null);
  }

  /** The current station. */
  card() {
    const station = this.stations[this.place];
    return make("section", { class: "station", "data-station": station.id, "aria-label": station.title }, make("h3", { text: station.title }),
      make("p", { class: "says", text: station.sentence }), make("div", { class: "parts" }, ...this.groups(station)));
  }

  /** The parts of a station; lists of one length stand one above the other, and so do lines and formulas. */
  groups(station) {
    /** @type {any[][]} */
    const groups = [];
    const isTold = ({ kind }) => !["cells", "sum", "tokens"].includes(kind);
    for (const part of station.parts) {
      const before = groups.at(-1)?.at(-1);
      const joins = before && (part.kind === "cells" ? before.kind === "cells" && before.values.length === part.values.length && !part.apart : isTold(part) && isTold(before));
      if (joins) groups.at(-1)?.push(part);
      else groups.push([part]);
    }
    const lists = station.parts.filter(({ kind }) => kind === "cells");
    const largest = Math.max(0, ...lists.flatMap(({ values }) => Array.from(values, Math.abs).filter(Number.isFinite)));
    return groups.flatMap((group) => (group[0].kind !== "cells" ? isTold(group[0]) ? make("div", { class: "told-part" }, ...group.map((part) => this.part(part, station.id))) : this.part(group[0], station.id)
      : group.at(-1) !== lists.at(-1) ? this.lists(group, station.id, largest) : [this.lists(group, station.id, largest), this.signs(largest, lists[0].products)]));
  }

  part(part, id) {
    switch (part.kind) {
      case "line": return make("p", { class: "note", text: part.text });
      case "formula": return make("p", { class: "formula" }, ...part.terms.map(({ text, moves }) => make(moves ? "b" : "span",
        { text, "data-in": moves === "in" ? "number" : null, "data-out": moves === "out" ? "number" : null })));
      case "sum": return this.table(part.sum, `${id} ${part.name}`, null);
      case "tokens": return make("div", { class: "texts-of-pair" }, ...this.texts());
      default: return action(say("walk_then_go", { layer: part.layer }), say("walk_then_go", { layer: part.layer }), () => this.commands.layer(part.record));
    }
  }

  /** The text in which both tokens are marked; two where one text looks at another. */
  texts() {
    const { queries, keys } = this.calculation.steps.entry;
    const { row, column } = this.pair;
    const text = (side, labels, marks) => {
      const axis = this.record?.[side] ?? { kind: "tokens", entry: {}, length: labels.length, isSpecial: () => false };
      const groups = labels.map((_, position) => [position, position + 1]);
      return make("p", { class: "tokens", dir: "auto" }, ...tokenTexts(axis, groups, labels, false).flatMap(({ shown, starts, special }, position) => {
        const roles = marks(position).filter(Boolean);
        return [starts ? " " : "", make(roles.length ? "mark" : "span", { class: [...roles, special ? "special" : ""].join(" ") || null, text: shown })];
      }));
    };
    const isOne = queries.join("\n") === keys.join("\n");
    const [asks, looks] = [(position) => position === row && "query", (position) => position === column && "key"];
    return isOne ? [text("queries", queries, (position) => [asks(position), looks(position)])]
      : [text("queries", queries, (position) => [asks(position)]), text("keys", keys, (position) => [looks(position)])];
  }

  /** Lists of one length, number below number; long ones are folded, and a number may be opened into its sum. */
  lists(parts, id, largest) {
    const [{ values, products, name }] = parts;
    const all = Array.from(values.keys());
    const { few, why } = products ? foremost(products, say("walk_by_products")) : firstOf(all.length);
    const isFolded = !this.unfolded.has(`${id} ${name}`);
    const dimensions = isFolded ? few : all;
    const marked = this.marked(products);
    const isWide = this.element.clientWidth >= WIDE;
    const room = this.element.clientWidth - (isWide ? 66 + NAMES : 66);
    const per = Math.min(dimensions.length, [16, 8].find((count) => room / count >= LEAST_CELL) ?? 4);
    const shown = [];
    for (let start = 0; start < dimensions.length; start += per) {
      const line = dimensions.slice(start, start + per);
      const numbers = line.map((dimension) => make("small", { text: String(dimension) }));
      parts.forEach((part, place) => {
        const label = make("p", { class: `list-name ${part.side}`, text: part.label });
        const cells = line.map((dimension) => this.cell(part, `${id} ${part.name}`, dimension, largest, marked.includes(dimension)));
        if (place) shown.push(label, ...cells);
        else if (isWide) shown.push(make("small", { class: "dim", text: say("walk_dim") }), ...numbers, label, ...cells);
        else shown.push(label, ...numbers, ...cells);
        if (!isWide) [numbers[0], cells[0]].forEach((first) => first.classList.add("first"));
      });
    }
    if (why) shown.push(this.folding(`${id} ${name}`, all.length, why));
    return make("div", { class: "list" }, make("div", { class: "numbers", style: `grid-template-columns: ${isWide ? `${NAMES}px ` : ""}repeat(${per}, minmax(0, 88px))` }, ...shown),
      ...parts.map((part) => this.detail(part, `${id} ${part.name}`)));
  }

  /** The positions of the products that count most. */
  marked(products) {
    return products && products.length > FEW_DIMENSIONS ? foremost(products, "", OUTLINED).few : [];
  }

  cell(part, name, dimension, largest, isMarked) {
    const value = part.values[dimension];
    const fill = divergingColor(largest && Number.isFinite(value) ? value / largest : 0, this.theme);
    const exact = formatNumber(value);
    const common = { class: `cell ${part.side}${isMarked ? " marked" : ""}`, style: `background: ${fill}; color: ${inkOn(fill)}`, text: cellNumber(value), title: exact,
      "data-out": part.name === "weighted" ? null : `${part.name} ${dimension}`, "data-in": part.name === "weighted" ? `value ${dimension}` : null };
    if (!part.open) return make("span", common);
    return make("button", { ...common, type: "button", "data-name": `${name} ${dimension}`, "aria-expanded": String(this.opened.get(name) === dimension),
      "aria-label": say("walk_open_cell", { name: part.label, dimension, value: exact.includes(common.text) ? exact : `${common.text} (${exact})` }), on: { click: () => this.toggle(name, dimension) } });
  }

  /** The sum of the number that is open. */
  detail(part, name) {
    const open = this.opened.get(name);
    return part.open && open !== undefined && open < part.values.length ? make("div", { class: "opened" },
      make("p", { class: "note", text: say("walk_sum_of", { name: part.label, dimension: open, value: printed(part.values[open]) }) }),
      this.table(part.open(open), `${name} sum`, () => this.toggle(name, open))) : null;
  }

  /** What the colours and outlines of a step's lists mean. */
  signs(largest, products) {
    const end = cellNumber(largest);
    const ramp = `background: linear-gradient(90deg,${[-1, -0.5, 0, 0.5, 1].map((part) => divergingColor(part, this.theme)).join(", ")})`;
    const { length } = this.marked(products);
    return make("p", { class: "signs-key note" }, make("span", { text: `\u2212${end}` }), make("i", { style: ramp }), make("span", { text: `+${end}` }), make("span", { text: say("walk_signs") }),
      length ? make("span", { class: "outlined", text: say("walk_marked", { count: length }) }) : null);
  }

  /** How the shown numbers were chosen, and the way to all; 0 of them: none. */
  folding(name, all, why) {
    const isOpen = this.unfolded.has(name);
    return make("p", { class: "folding note" }, isOpen ? "" : `${why} `, !all ? null : make("button", { type: "button", class: "fold", "data-name": `fold ${name}`,
      text: isOpen ? say("walk_show_fewer") : say("walk_show_all", { count: all }), "aria-expanded": String(isOpen), on: { click: () => this.unfold(name) } }));
  }

  /** A table that adds up; its other rows are shown on demand. */
  table(sum, name, close) {
    const isOpen = this.unfolded.has(name) && sum.rows.length <= MOST_ROWS;
    const { head, rows, rest, foot } = shownRows(sum, isOpen);
    const textOf = (value) => (value === null || value === undefined ? "" : printed(value));
    const last = sum.head.length - 2;
    const most = Math.max(...sum.rows.map((row) => Math.abs(row.numbers[last] ?? 0)).filter(Number.isFinite));
    const line = (one, tag, style) => make("tr", { class: style }, make("th", { scope: "row", text: one.label, dir: "auto" }),
      ...one.numbers.map((value, column) => make(tag, { text: `${one.signs?.[column] ?? ""}${textOf(value)}`, "data-in": this.landing(name, one, column) })), this.bar(one === foot || one === rest ? null : one.numbers[last], most, sum.amounts));
    const body = rows.map((row) => line(row, "td", `${row.muted ? "muted" : ""} ${row.chosen ? "chosen" : ""}`.trim() || null));
    if (rest) body.push(line(rest, "td", "rest"));
    const table = make("table", {}, make("thead", {}, make("tr", {}, ...head.map((text) => make("th", { scope: "col", text })), make("td", { class: "share", "aria-hidden": "true" }))),
      make("tbody", {}, ...body), foot ? make("tfoot", {}, line(foot, "td", null)) : null);
    if (name === "score products") table.querySelector("tfoot td:nth-last-child(2)").dataset.out = "number";
    return make("div", { class: "sum" }, table, sum.why ? this.folding(name, sum.rows.length <= MOST_ROWS ? sum.rows.length : 0, sum.why) : null,
      close ? make("button", { type: "button", class: "fold", "data-name": `close ${name}`, text: say("walk_close"), on: { click: close } }) : null);
  }

  /** The last number of a line as a bar: an amount from the left, a number with a sign from the middle. */
  bar(value, most, isAmount) {
    const share = most > 0 && Number.isFinite(value) ? value / most : 0;
    const width = isAmount ? share : Math.abs(share) / 2;
    const start = isAmount ? 0 : share < 0 ? 0.5 - width : 0.5;
    const style = `left: ${100 * start}%; width: ${100 * width}%; background: ${(isAmount ? rampColor : divergingColor)(share, this.theme)}`;
    return make("td", { class: isAmount ? "share" : "share signs", "aria-hidden": "true" }, value === null || value === undefined ? null : make("span", {}, make("i", { style })));
  }

  /** The number that flies to a place of the table of products. */
  landing(name, row, column) {
    return name === "score products" && column < 2 ? `${column ? "key" : "query"} ${row.label}` : null;
  }

  toggle(name, dimension) {
    if (this.opened.get(name) === dimension) this.opened.delete(name);
    else this.opened.set(name, dimension);
    this.again(`${name} ${dimension}`);
  }

  unfold(name) {
    if (!this.unfolded.delete(name)) this.unfolded.add(name);
    this.again();
  }

  again(focus = this.focusName()) {
    this.cards.replaceChildren(this.card());
    this.restoreFocus(focus);
  }

  focusName() {
    return /** @type {any} */ (this.element.getRootNode()).activeElement?.dataset?.name ?? null;
  }

  restoreFocus(name) {
    if (name === null) return;
    const all = [...this.element.querySelectorAll("[data-name]")];
    const station = name.replace(/^node .*/, `node ${this.place}`);
    all.find((one) => one.dataset.name === station)?.focus({ preventScroll: true });
  }
}
