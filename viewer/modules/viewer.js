// @ts-check

import { stateOf } from "./address.js";
import { AttentionData } from "./attention_data.js";
import { Axis } from "./axis.js";
import { Controls } from "./controls.js";
import { say, speak } from "./language.js";
import { presentName } from "./former_names.js";
import { Frame } from "./frame.js";
import { Cards } from "./cards.js";
import { HeadGrid } from "./head_grid.js";
import { Menu } from "./menu.js";
import { Input } from "./input.js";
import { Journal } from "./journal.js";
import { legendHeight } from "./legend.js";
import { clearestHead, firstView } from "./opening.js";
import { TOP, paint } from "./picture.js";
import { Player } from "./player.js";
import { factsOf, recordName, textName, textsOf } from "./record_names.js";
import { SCALES } from "./scales.js";
import { FIELDS, checkedState, distinct, initialState, recounted } from "./state.js";
import { Selection } from "./selection.js";
import { featured, selectionText, sentenceOf } from "./sentence.js";
import { StepsData } from "./steps_data.js";
import { TextList, runningText } from "./text_list.js";
import { PHONE } from "./style.js";
import { Tables } from "./tables.js";
import { visibleText } from "./text.js";
import { LIGHT, DARK, forcedTheme } from "./themes.js";
import { VIEW_CLASSES } from "./views/all_views.js";
import { Zoom } from "./zoom.js";

/** Lets the browser paint and take input between two pieces of work. */
const pause = () => new Promise((resolve) => { setTimeout(resolve, 0); });

const FORMAT = 1;

export class Viewer {
  constructor(element, payload, options) {
    this.element = element;
    this.options = options;
    this.state = { ...initialState(), theme: options.theme ?? "auto" };
    this.area = { width: 300, height: 200 }; // the room of a view's picture, of which a smaller one takes `seenHeight`
    this.seenHeight = 200;
    this.legendHeight = 66;
    this.hover = null;
    this.cursor = null;
    this.elsewhere = null; // what another viewer points at
    this.keyboard = false;
    this.touched = false; // whether a finger, which does not hover, chose the cursor
    this.printing = false;
    this.journal = new Journal(this);
    this.selection = new Selection(this);
    this.zoom = new Zoom(this);
    this.chosen = false; // whether the head was chosen, by somebody or as the one to open on
    this.views = VIEW_CLASSES.map((ViewClass) => new ViewClass()).filter((view) => !options.views || options.views.map(presentName).includes(view.name));
    this.tables = new Tables(this);
    this.stopped = new AbortController();
    this.player = new Player(() => this.refresh());
    this.frame = new Frame(element, options.height);
    this.readTheme();
    this.menu = new Menu(this);
    this.cards = new Cards(this);
    this.list = new TextList(this);
    this.input = new Input(this);
    this.observer = new ResizeObserver(() => this.resized());
    for (const one of [element, this.frame.scroller, this.frame.told]) this.observer.observe(one);
    const linked = options.address ? stateOf(globalThis.location.hash) : {};
    this.load(payload, linked.view ?? options.view, { ...options.selection, ...linked });
  }

  // --- data ---

  load(payload, view, named) {
    if (payload?.format !== FORMAT) throw new TypeError(`this viewer reads payloads of format ${FORMAT}; this one has ${payload?.format}`);
    this.payload = payload;
    const axes = payload.axes.map((entry) => new Axis(entry));
    this.records = payload.records.map((entry, number) => new AttentionData(entry, number, axes, payload.masks, payload.records));
    const labels = (axis) => Array.from({ length: axis.length }, (_, position) => axis.text(position));
    this.steps = payload.steps.map((entry) => new StepsData(entry.queries ? entry
      : { ...entry, queries: labels(this.records[entry.record].queries), keys: labels(this.records[entry.record].keys) }));
    this.grids = (payload.grids ?? []).map((entry) => new HeadGrid(entry));
    this.player.stop();
    this.tables.forget();
    for (const one of this.views) one.forget();
    const selection = this.positioned(named ?? {});
    this.hover = this.cursor = this.elsewhere = null;
    this.journal.history.forget();
    Object.assign(this.state, { locked: [], kept: null, zoom: 1 });
    this.frame.title.textContent = this.frame.title.title = visibleText(payload.title);
    this.frame.showTexts(payload.texts, runningText(this.records));
    this.frame.facts.textContent = factsOf(this.records);
    const wanted = presentName(view) ?? (this.started ? this.state.view : null);
    const first = this.views.find((one) => one.name === wanted && one.available(this)) ?? firstView(this);
    if (first) this.state.view = first.name;
    this.chosen ||= selection.head !== undefined;
    this.asked = selection.record ?? this.asked;
    if (!this.chosen) this.open(this.asked);
    this.frame.canvas.hidden = !first;
    this.started = true;
    if (first) this.turnTo(first, selection);
    else this.empty();
    this.decodeRest();
  }

  /** Shows the clearest head, of one record or of all that the view shows. */
  open(number) {
    Object.assign(this.state, clearestHead(this.records.filter((record) => (number === undefined ? !record.entry.text : record.number === number) && this.fits(record))));
  }

  empty() {
    this.frame.showTabs(this.views.filter((view) => view.available(this)), this.view, (name) => this.show(name));
    this.frame.bar.replaceChildren();
    this.ready = false;
    this.frame.tip.hidden = true;
    this.frame.readout.textContent = "";
    this.frame.showBeside(null);
    this.frame.tellSentence({ text: say("nothingToShow"), shares: "" });
  }

  async decodeRest() {
    const { records } = this;
    for (const record of records) {
      await pause();
      if (this.records !== records || this.stopped.signal.aborted) return;
      await record.decode();
      if (this.view?.name === "grid") this.changed();
    }
  }

  get record() {
    return this.records[this.state.record];
  }

  /** The number of the chosen text, from 0; 0 where there is one. */
  get text() {
    return this.record?.entry.text ?? 0;
  }

  /** The records of the chosen text. */
  get recordsOfText() {
    return textsOf(this.records)?.[this.text] ?? this.records;
  }

  get view() {
    return this.views.find((view) => view.name === this.state.view);
  }

  /** Whether the view shows a record. */
  fits(record) {
    const view = /** @type {any} */ (this.view);
    return !view?.shows || view.shows(record);
  }

  tableKey() {
    const { record, head, words, hideSpecial, measure } = this.state;
    return `${record}|${head}|${words}|${hideSpecial}|${measure}`;
  }

  /** The weights of a head as they are shown; null is the mean of all heads. */
  table(head = this.state.head, record = this.record, options = this.state) {
    return this.tables.of(head, record, options);
  }

  /** The state with the numbers of heads, where a record has some heads of the model alone. */
  numbered() {
    if (!this.records.some((record) => record.entry.head_numbers)) return this.state;
    return { ...recounted(this.state, (record, head) => this.records[record]?.headNumber(head) ?? head), numbered: true };
  }

  /** A state of an address with the positions of heads; those that the records have not are left out. */
  positioned(/** @type {any} */ { numbered, ...state }) {
    if (!numbered) return state;
    const record = state.record ?? this.state.record;
    return checkedState(recounted({ ...state, record }, (number, head) => {
      const numbers = this.records[number]?.entry.head_numbers;
      return numbers ? numbers.indexOf(head) : head;
    }));
  }

  // --- what is chosen ---

  /** What is pointed at here, by the mouse, the keyboard or a finger. */
  pointed() {
    const item = this.hover ?? ((this.keyboard || this.touched) && this.frame.root.activeElement === this.frame.canvas ? this.cursor : null);
    return item && this.view?.has(this, item) ? item : null;
  }

  /** What is pointed at, here or in another viewer. */
  active() {
    const item = this.elsewhere;
    return this.pointed() ?? (item && this.view.has(this, item) ? item : null);
  }

  /** The queries that views of rows show: the locked ones, or the one that is pointed at. */
  activeRows() {
    const { locked } = this.state;
    if (locked.length) return locked;
    const item = this.active();
    if (!item || item.row === undefined || item.side === "key") {
      if (item?.side === "key" && this.view.name === "image" && this.view.geometry(this).own) return [item.column];
      const spoken = item ? null : this.featured();
      return spoken ? [spoken.row] : [];
    }
    return [item.row];
  }

  /** The heads of views that show several: those that were chosen there, else the one head that is chosen, else all. */
  shownHeads() {
    const { heads, head } = this.state;
    const all = Array.from({ length: this.record.heads }, (_, one) => one);
    return heads !== null ? all.filter((one) => heads.includes(one)) : head !== null ? [head] : all;
  }

  headText() {
    const { head } = this.state;
    if (this.record.heads === 1) return this.record.oneHeadText;
    return head === null ? say("meanOfHeads", { count: this.record.heads }) : say("headNumber", { head: this.record.headNumber(head) });
  }

  recordText(record) {
    return recordName(record, this.records);
  }

  // --- commands ---

  set(changes) {
    if (!this.current()) return;
    if ("head" in changes) this.state.heads = null;
    if ("head" in changes || "record" in changes) this.chosen = true;
    Object.assign(this.state, changes);
    this.hover = null;
    this.view.settle(this);
    this.refresh();
  }

  /** Shows a view; a selection may have the fields of a state, queries (locked rows), row and column. */
  show(name, selection = {}) {
    const view = this.views.find((one) => one.name === presentName(name));
    if (!view) throw new RangeError(`no view ${String(name)}; there are ${this.views.map((one) => one.name).join(", ")}`);
    if (!view.available(this)) throw new RangeError(`the view ${name} cannot show these records`);
    if ("record" in selection || "head" in selection) this.chosen = true;
    this.turnTo(view, selection);
  }

  turnTo(view, selection) {
    const { state } = this;
    if (state.view !== view.name) {
      view.enter(this);
      this.player.stop();
      state.zoom = 1;
      this.frame.scroller.scrollTo(0, 0);
      this.hover = this.cursor = this.elsewhere = null;
    }
    if ("head" in selection) state.heads = null;
    for (const key of Object.keys(FIELDS)) if (key in selection) state[key] = selection[key];
    state.view = view.name;
    if ("record" in selection && !("locked" in selection)) state.locked = [];
    if (Array.isArray(selection.queries)) state.locked = [...selection.queries];
    this.settle();
    if (selection.row !== undefined || selection.column !== undefined) {
      this.cursor = { row: selection.row ?? 0, column: selection.column ?? 0 };
    }
    this.refresh();
  }

  /** Shows a state of another viewer, of an address or of before, as far as these records have it. */
  apply(given) {
    const changes = checkedState(given);
    const view = this.views.find((one) => one.name === presentName(changes.view) && one.available(this)) ?? this.view;
    if (!view || !this.current()) return;
    this.chosen = true;
    this.turnTo(view, changes);
    this.readTheme();
  }

  /** Shows what a fragment of an address names, if it names anything. */
  visit(fragment) {
    const found = stateOf(fragment);
    if (!Object.keys(found).length) return;
    this.apply(this.positioned(found));
    if (found.language) speak(found.language);
  }

  /** Shows what another viewer points at; null: nothing. */
  point(item) {
    this.elsewhere = item ?? null;
    this.changed();
  }

  /** Makes the state fit the records and the view. */
  settle() {
    const { state } = this;
    if (!this.record || !this.fits(this.record)) {
      const found = this.records.findIndex((record) => this.fits(record));
      state.record = Math.max(0, found);
      state.locked = [];
    }
    state.locked = distinct(state.locked, this.record?.queries.length ?? 0);
    const heads = state.heads && distinct(state.heads, this.record?.heads ?? 0);
    state.heads = heads?.length || !state.heads?.length ? heads : null;
    if (this.record && state.head !== null && !(state.head < this.record.heads)) state.head = 0;
    if (!(state.steps < this.steps.length)) state.steps = 0;
    if (!Object.hasOwn(SCALES, state.scale)) state.scale = "linear";
    this.view?.settle(this);
  }

  // --- elements ---

  readTheme() {
    const query = (text) => globalThis.matchMedia?.(text).matches ?? false;
    const dark = this.printing ? false : this.state.theme === "auto" ? query("(prefers-color-scheme: dark)") : this.state.theme === "dark";
    this.element.dataset.scheme = this.state.theme;
    this.theme = query("(forced-colors: active)") ? forcedTheme(this.frame.box) : dark ? DARK : LIGHT;
    this.frame.paintWith(this.theme);
  }

  /** Rebuilds what depends on the state and keeps the focus where it was. */
  refresh() {
    if (!this.current()) return;
    const focus = this.frame.focusPlace();
    this.frame.showTabs(this.views.filter((view) => view.available(this)), this.view, (name) => this.show(name));
    this.frame.stage.setAttribute("aria-busy", "true");
    if (!this.current().decoded) this.ready = false;
    this.prepare(focus).catch((error) => this.fail(error));
  }

  async prepare(focus) {
    if (!this.current()) return;
    this.view.settle(this);
    const shown = this.current();
    await Promise.all([shown.decode(), this.record?.decode()]); // the walk also shows the record of its head
    // Something else may have been chosen in the meantime.
    if (this.stopped.signal.aborted || this.current() !== shown) return;
    this.frame.bar.replaceChildren(...new Controls(this).build());
    this.frame.showBeside(this.view.beside(this));
    this.list.build();
    this.menu.build();
    this.frame.restoreFocus(focus);
    this.frame.canvas.setAttribute("aria-label", `${say(/** @type {any} */ (this.view.name))}: ${this.heading()}`);
    this.frame.stage.setAttribute("aria-labelledby", `tab-${this.view.name}`);
    const isTouched = this.frame.box.clientWidth < PHONE || globalThis.matchMedia?.("(hover: none)").matches;
    this.frame.help.textContent = (isTouched && this.view.tapHelp) || this.view.help;
    this.ready = this.chosen = true;
    this.resize();
    if (shown instanceof AttentionData) this.makeExact(shown);
  }

  /** Replaces a record's codes by exact numbers, where a server gives them. */
  async makeExact(record) {
    const exact = await record.fetchExact(this.options.fetchTile);
    if (!exact || this.stopped.signal.aborted || this.records[record.number] !== record) return;
    this.tables.forget();
    for (const view of this.views) view.forget();
    this.changed();
  }

  fail(error) {
    this.frame.tellSentence({ text: say("cannotBeShown", { reason: String(error?.message ?? error) }), shares: "" });
    throw error;
  }

  /** What must be decoded before the view can be drawn. */
  current() {
    if (this.view?.name === "numbers") return this.grids[this.state.grid];
    return this.view?.name === "walk" ? this.steps[this.state.steps] : this.record;
  }

  heading() {
    if (this.view.name === "walk") return /** @type {any} */ (this.view).nameOf(this, this.steps[this.state.steps]);
    if (this.view.name === "numbers") return this.grids[this.state.grid].entry.title;
    if (this.view.name === "grid") return [textName(this.record, this.records), say("eachHead", { what: factsOf(this.recordsOfText) })].filter(Boolean).join(" \u00b7 ");
    return [textName(this.record, this.records), this.recordText(this.record), this.view.headText(this)].filter(Boolean).join(" \u00b7 ");
  }

  // --- drawing ---

  /** Asks for a new picture in the next frame. */
  changed() {
    if (this.request || this.stopped.signal.aborted) return;
    this.request = requestAnimationFrame(() => {
      this.request = null;
      if (this.ready && !this.stopped.signal.aborted) this.draw();
    });
  }

  /** Fits the picture into a changed room, in the next frame: a change of sizes within a report of sizes would be an error. */
  resized() {
    this.resizing ??= requestAnimationFrame(() => {
      this.resizing = null;
      if (this.stopped.signal.aborted) return;
      this.resize();
      if (this.ready) this.draw(); // a canvas of a new size is blank
    });
  }

  resize() {
    const { frame } = this;
    if (!this.ready || !this.view || !frame.box.clientWidth) return;
    frame.box.classList.toggle("listed", frame.box.clientWidth >= 840 && textsOf(this.records) !== null);
    this.list.build();
    frame.fitWidth();
    const room = frame.roomOfStage(this.view.below(this));
    const rest = () => Math.max(60, room - TOP - this.legendHeight);
    this.area = { width: frame.scroller.clientWidth, height: rest() };
    this.legendHeight = legendHeight(this.view.legend(this), this.area.width);
    this.area.height = rest();
    const size = this.view.size(this);
    const zoom = frame.bar.querySelector(".zoom");
    if (zoom) zoom.hidden = this.state.zoom === 1 && size.width <= this.area.width && size.height <= this.area.height;
    frame.sizeStage(size.width, size.height + TOP + this.legendHeight, room);
    // Scroll bars that came or went changed the room.
    const { clientWidth, clientHeight } = frame.scroller;
    this.area.width = clientWidth;
    this.seenHeight = Math.max(60, clientHeight - TOP - this.legendHeight);
    frame.sizeCanvas(clientWidth, clientHeight);
    this.changed();
  }

  draw() {
    this.tables.frameStart = performance.now();
    const win = this.window(); // before elements change, since reading it then lays them out
    const ratio = this.frame.canvas.width / Math.max(1, this.area.width);
    this.frame.pen.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    paint(this, this.frame.pen);
    this.view.update(this);
    this.tell(win);
    this.cards.place();
    this.frame.stage.setAttribute("aria-busy", "false");
    this.journal.note();
  }

  /** The pair that the sentence speaks of while nothing is pointed at; null where there is none. */
  featured() {
    return this.active() ? null : featured(this);
  }

  window() {
    return { x: this.frame.scroller.scrollLeft, y: this.frame.scroller.scrollTop, width: this.area.width, height: this.seenHeight };
  }

  /** The tooltip, and the same text for screen readers. */
  tell(win) {
    const item = this.active();
    const text = item ? this.view.describe(this, item) : selectionText(this);
    if (this.frame.readout.textContent !== text) this.frame.readout.textContent = text;
    this.frame.tellSentence(sentenceOf(this), `${this.state.view} ${this.state.record} ${this.state.head}`);
    this.list.tellResults();
    this.frame.tip.hidden = !item || this.cards.open;
    if (this.frame.tip.hidden) return;
    const box = this.view.place(this, item);
    this.frame.placeTip(text, { ...box, x: box.x - win.x, y: box.y - win.y + TOP }, this.area.width);
  }

  destroy() {
    this.stopped.abort();
    this.journal.destroy();
    this.player.destroy();
    this.observer.disconnect();
    for (const one of [this.request, this.resizing]) if (one) cancelAnimationFrame(one);
    this.frame.root.replaceChildren();
  }
}
