// @ts-check

import { CanvasPen } from "./canvas_pen.js";
import { focusable, make } from "./elements.js";
import { languageTag, say } from "./language.js";
import { PHONE, STYLE } from "./style.js";
import { shortText, visibleText } from "./text.js";
import { WALK_STYLE } from "./walk_style.js";

/** Most characters of a token in the sentence; the readout has all. */
const LONGEST_NAME = 120;

/** The elements of the viewer: heading, tabs, controls, the canvas in its scrolled stage, tooltip, readout. */
export class Frame {
  /**
   * @param {HTMLElement} element gets a shadow root
   * @param {number|undefined} height in pixels; as high as the element without one
   */
  constructor(element, height) {
    this.root = element.shadowRoot ?? element.attachShadow({ mode: "open" });
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(STYLE + WALK_STYLE);
    this.root.adoptedStyleSheets = [sheet];
    this.title = make(element.localName === "main" ? "h1" : "h2"); // a file has no other heading
    this.texts = make("p", { class: "texts", role: "region", "aria-label": say("texts_region") });
    this.facts = make("p", { class: "facts" });
    this.more = make("button", { class: "more", type: "button", text: "\u22ef", "aria-label": say("more"), title: say("more"), "aria-expanded": "false", "aria-controls": "menu" });
    this.menu = make("div", { class: "menu", id: "menu", role: "group", "aria-label": say("more"), hidden: true });
    this.tabs = make("div", { class: "tabs", role: "tablist", "aria-label": say("views") });
    this.bar = make("div", { class: "bar", role: "group", "aria-label": say("settings") });
    this.canvas = make("canvas", { tabindex: "0", role: "application", "aria-roledescription": say("attentionView"), "aria-describedby": "sentence help" });
    this.space = make("div", { class: "space" });
    this.scroller = make("div", { class: "scroll" }, this.space, this.canvas);
    this.beside = make("div", { class: "beside", hidden: true });
    this.stage = make("div", { class: "stage", role: "tabpanel", id: "stage", "aria-busy": "true" }, this.scroller, this.beside);
    this.tip = make("div", { class: "tip", "aria-hidden": "true", hidden: true });
    this.sentence = make("div", { class: "sentence", id: "sentence" });
    this.shares = make("p", { class: "shares" });
    this.told = make("div", { class: "told" }, this.sentence, this.shares);
    this.readout = make("p", { class: "readout", id: "readout", role: "status", "aria-live": "polite" });
    this.help = make("p", { class: "help", id: "help" });
    this.footer = make("footer", {}, this.help);
    this.what = make("button", { class: "what", type: "button", text: say("whatIsThis"), "aria-pressed": "false" });
    this.cards = make("div", { class: "cards", hidden: true });
    this.list = make("div", { class: "textlist", role: "listbox", "aria-label": say("textList"), hidden: true });
    this.box = make("section", { class: "viewer", lang: languageTag(), "aria-label": say("attentionWeights") },
      make("header", {}, this.title, this.facts, this.texts, this.what, this.more),
      make("div", { class: "body" }, this.list, make("div", { class: "main" },
        make("div", { class: "row" }, this.bar, this.tabs), this.told, this.stage, this.footer)), this.readout, this.menu, this.tip, this.cards);
    if (height) this.box.style.height = `${height}px`;
    this.root.replaceChildren(this.box);
    this.pen = new CanvasPen(this.canvas.getContext("2d", { alpha: false }));
  }

  /** Takes the layout of the width that there is, and holds the height that sentences have had in it. */
  fitWidth() {
    const { box, told } = this;
    box.classList.toggle("narrow", box.clientWidth < PHONE);
    box.classList.toggle("slim", box.clientWidth < 760);
    const width = told.clientWidth;
    if (this.width !== width) told.style.minHeight = "";
    this.width = width;
    this.holdHeight();
  }

  /** Holds the height that the sentence's box has. */
  holdHeight() {
    this.told.style.minHeight = `${Math.ceil(this.told.getBoundingClientRect().height)}px`;
  }

  /** The height that the stage may have: what the other parts leave, and on narrow screens, where the page scrolls, what goes with the width and stands below. */
  roomOfStage(below) {
    const { box, stage, scroller, footer } = this;
    if (box.classList.contains("walking")) return scroller.clientHeight;
    const narrow = box.classList.contains("narrow");
    const rest = (narrow ? this.root.host : box).clientHeight - stage.offsetTop - footer.offsetHeight;
    return Math.max(rest, 240, narrow ? 1.7 * box.clientWidth + below : 0);
  }

  /** Gives the scrolled picture its size, and the stage the height of it and of its scroll bar, as far as there is room. */
  sizeStage(width, height, room) {
    const { space, stage, scroller } = this;
    Object.assign(space.style, { width: `${Math.min(width, 3e7)}px`, height: `${Math.min(height, 3e7)}px` });
    if (this.box.classList.contains("walking")) {
      stage.style.height = "";
      return;
    }
    stage.style.height = `${Math.min(room, height)}px`;
    const bar = scroller.offsetHeight - scroller.clientHeight;
    if (bar) stage.style.height = `${Math.min(room, height + bar)}px`;
  }

  /** Makes the canvas as large as its room, in pixels of the screen. */
  sizeCanvas(width, height) {
    const { canvas } = this;
    const ratio = globalThis.devicePixelRatio || 1;
    const [across, down] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (canvas.width === across && canvas.height === down) return;
    Object.assign(canvas, { width: across, height: down });
    Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` });
  }

  /** What the document says beside the attention: (name, text); else the text itself, "" where there is none. */
  showTexts(texts, itself) {
    this.texts.replaceChildren(...texts.map(([name, text]) =>
      make("span", {}, make("b", { text: visibleText(name) }), document.createTextNode(visibleText(text)))));
    if (!texts.length) this.texts.textContent = itself;
    this.texts.hidden = !this.texts.textContent;
    if (this.texts.hidden) this.texts.removeAttribute("tabindex");
    else this.texts.tabIndex = 0; // it scrolls where it is long
  }

  /** A tab for each view; `choose` is called with its name. */
  showTabs(views, current, choose) {
    this.tabs.hidden = views.length < 2;
    const title = (view) => say(/** @type {any} */ (`${view.name}_title`));
    this.tabs.replaceChildren(...views.map((view) => make("button", {
      type: "button", role: "tab", id: `tab-${view.name}`, "aria-selected": String(view === current), "aria-controls": "stage",
      tabindex: view === current ? "0" : "-1", text: say(view.name), title: title(view), "aria-description": title(view), on: { click: () => choose(view.name) },
    })));
    const { offsetLeft = 0, offsetWidth = 0 } = /** @type {HTMLElement|null} */ (this.tabs.querySelector("[aria-selected=true]")) ?? {};
    this.tabs.scrollLeft = offsetLeft - (this.tabs.clientWidth - offsetWidth) / 2;
  }

  /** Elements of a view beside the canvas; null: none. */
  showBeside(element) {
    this.beside.hidden = element === null;
    this.box.classList.toggle("walking", element !== null);
    if (this.beside.firstChild !== element) this.beside.replaceChildren(...(element ? [element] : []));
  }

  /** What may have the focus, above the picture. */
  get controls() {
    return [this.bar, this.tabs, this.menu].flatMap((parent) => focusable(parent));
  }

  /** Where the focus is, to give it back to what stands there after the controls were built again. */
  focusPlace() {
    const focused = /** @type {any} */ (this.root.activeElement);
    return { place: this.controls.indexOf(focused),
      named: focused?.getAttribute?.("aria-label") ?? focused?.closest?.("label")?.textContent };
  }

  restoreFocus({ place, named }) {
    if (place < 0) return;
    if (this.root.activeElement) return; // the focus was moved on purpose meanwhile
    const all = this.controls;
    const same = all.find((one) => (one.getAttribute("aria-label") ?? one.closest("label")?.textContent) === named && named);
    (same ?? all[Math.min(place, all.length - 1)])?.focus();
  }

  /** What is highlighted, in a sentence and in numbers. Of one subject their box only grows: the picture below stays where it is pointed at. */
  tellSentence({ text, shares, plain = false }, subject = "") {
    const short = text.replace(/\u2068([^\u2069]*)\u2069/gu, (_, name) => `\u2068${shortText(name, LONGEST_NAME)}\u2069`);
    if (this.subject !== subject) this.told.style.minHeight = "";
    else if (this.sentence.textContent !== short) this.holdHeight();
    this.subject = subject;
    if (this.sentence.textContent !== short) this.sentence.textContent = short;
    this.shares.classList.toggle("plain", plain);
    // Its statements are not broken where a line has no room for both.
    if (this.shares.textContent !== shares) this.shares.replaceChildren(...shares.split(/(?<=\u2003 )/u).map((statement) => make("span", { text: statement })));
  }

  /** Colours of the elements around the canvas. */
  paintWith(theme) {
    for (const name of ["background", "surface", "border", "text", "muted", "accent", "accentText", "focus"]) {
      this.box.style.setProperty(`--${name}`, theme[name]);
    }
  }

  /** Puts the tooltip beside a box of the canvas, in its pixels, and inside of the stage; on phones above it, where no finger is. */
  placeTip(text, { x, y, width, height }, room) {
    if (this.tip.textContent !== text) this.tip.textContent = text;
    const { offsetWidth, offsetHeight } = this.tip;
    const [left, top] = [x, y + this.stage.offsetTop];
    const phone = room < PHONE;
    const beside = phone ? left + (width - offsetWidth) / 2 : left + width + 12 + offsetWidth > room ? left - offsetWidth - 12 : left + width + 12;
    const [above, below] = [top - offsetHeight - 10, top + height + 10];
    const bottom = this.stage.offsetTop + this.stage.offsetHeight;
    const [right, down] = [Math.min(Math.max(8, room - offsetWidth - 8), Math.max(8, beside)),
      Math.max(0, phone || below + offsetHeight > bottom ? above : below)];
    this.tip.style.transform = `translate(${Math.round(right + this.stage.offsetLeft)}px, ${Math.round(down)}px)`;
  }
}
