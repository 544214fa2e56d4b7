// @ts-check

import { action, make } from "./elements.js";
import { explained } from "./explained.js";
import { say } from "./language.js";
import { TOP } from "./picture.js";

const NAMESPACE = "http://www.w3.org/2000/svg";

/** Room between a card and what it must not cover. */
const GAP = 10;

/** Below this width one card is shown at a time. */
const ROOM_FOR_ALL = 860;

const overlap = (one, other, gap = 0) => one.x < other.x + other.width + gap && other.x < one.x + one.width + gap
  && one.y < other.y + other.height + gap && other.y < one.y + one.height + gap;

const middle = (box) => ({ x: box.x + box.width / 2, y: box.y + box.height / 2 });

/** The point of a box that is nearest to a point. */
const nearest = (box, { x, y }) => ({ x: Math.min(Math.max(x, box.x), box.x + box.width), y: Math.min(Math.max(y, box.y), box.y + box.height) });

/** The area that two boxes share. */
const shared = (one, other) => Math.max(0, Math.min(one.x + one.width, other.x + other.width) - Math.max(one.x, other.x))
  * Math.max(0, Math.min(one.y + one.height, other.y + other.height) - Math.max(one.y, other.y));

/** How many points of a line lie in boxes. */
function crossings(start, end, boxes) {
  let count = 0;
  for (let part = 0.1; part < 0.95; part += 0.1) {
    const [x, y] = [start.x + (end.x - start.x) * part, start.y + (end.y - start.y) * part];
    if (boxes.some((box) => x > box.x && x < box.x + box.width && y > box.y && y < box.y + box.height)) count += 1;
  }
  return count;
}

/**
 * A place for a card: as near to its target as it can be without covering a target or another card, where it covers little of what
 * there is to see and its line crosses no target.
 * @returns {{x: number, y: number, width: number, height: number}|null} null where there is no such place
 */
function placeFor(size, target, hard, soft, room) {
  let best = null;
  for (let y = 4; y + size.height <= room.height - 4; y += 8) {
    for (let x = 8; x + size.width <= room.width - 8; x += 8) {
      const box = { x, y, ...size };
      const end = nearest(target, middle(box));
      const start = nearest(box, end);
      let cost = Math.hypot(end.x - start.x, end.y - start.y) + 0.1 * Math.abs(middle(box).x - middle(target).x);
      if (best && cost >= best.cost) continue;
      for (const one of soft) cost += shared(box, one) / 100;
      if (best && cost >= best.cost) continue;
      if (hard.some((one) => overlap(box, one, GAP))) continue;
      cost += 60 * crossings(start, end, hard.filter((one) => one !== target));
      if (!best || cost < best.cost) best = { cost, box };
    }
  }
  return best?.box ?? null;
}

/** Boxes that cover the same as others, none over another. */
function union(boxes) {
  const cut = (values) => [...new Set(values)].sort((a, b) => a - b);
  const columns = cut(boxes.flatMap((box) => [box.x, box.x + box.width]));
  const rows = cut(boxes.flatMap((box) => [box.y, box.y + box.height]));
  const found = [];
  for (let row = 0; row + 1 < rows.length; row += 1) {
    for (let column = 0; column + 1 < columns.length; column += 1) {
      const box = { x: columns[column], y: rows[row], width: columns[column + 1] - columns[column], height: rows[row + 1] - rows[row] };
      if (boxes.some((one) => overlap(one, box))) found.push(box);
    }
  }
  return found;
}

/** "What is this?": short cards on the picture, each with a line to what it explains. */
export class Cards {
  constructor(app) {
    this.app = app;
    this.current = 0;
    this.cards = [];
    const { frame, stopped: { signal } } = app;
    frame.what.addEventListener("click", () => this.show(), { signal });
    frame.cards.addEventListener("click", (event) => { if (!event.composedPath().some((one) => one.classList?.contains("card") || one.classList?.contains("cardkeys"))) this.close(); }, { signal });
    frame.cards.addEventListener("keydown", (event) => this.key(event), { signal });
  }

  get open() {
    return !this.app.frame.cards.hidden;
  }

  show() {
    const { app } = this;
    if (!app.view || !app.ready) return;
    app.hover = null;
    this.current = 0;
    app.frame.cards.hidden = false;
    app.frame.what.setAttribute("aria-pressed", "true");
    this.place();
    this.cards[0]?.element.focus();
    app.changed();
  }

  close() {
    if (!this.open) return;
    this.app.frame.cards.hidden = true;
    this.app.frame.cards.replaceChildren();
    this.app.frame.what.setAttribute("aria-pressed", "false");
    this.app.frame.what.focus();
    this.app.changed();
  }

  key(event) {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") this.close();
    else if (step) this.go(step);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  go(step) {
    this.current = (this.current + step + this.cards.length) % this.cards.length;
    this.place();
    this.cards[this.current].element.focus();
  }

  /**
   * A target in pixels of the viewer, cut at the edge of the stage.
   * @param {{box?: any, element?: HTMLElement}} where
   */
  target({ box, element }) {
    const { frame } = this.app;
    if (element) {
      const [outer, inner] = [frame.box.getBoundingClientRect(), element.getBoundingClientRect()];
      return { x: inner.left - outer.left, y: inner.top - outer.top, width: inner.width, height: inner.height };
    }
    const win = this.app.window();
    const [x0, y0] = [Math.max(0, box.x - win.x), Math.max(0, box.y - win.y)];
    const [x1, y1] = [Math.min(win.width, box.x + box.width - win.x), Math.min(win.height, box.y + box.height - win.y)];
    return { x: x0 + frame.stage.offsetLeft, y: y0 + TOP + frame.stage.offsetTop, width: Math.max(8, x1 - x0), height: Math.max(8, y1 - y0) };
  }

  /** Draws the cards where they belong in the picture as it is now. */
  place() {
    if (!this.open) return;
    const { frame } = this.app;
    const room = { width: frame.box.clientWidth, height: frame.box.clientHeight };
    const focused = frame.cards.contains(frame.root.activeElement);
    const wanted = explained(this.app);
    this.cards = wanted.map(({ title, text, ...where }, number) => ({
      target: this.target(where),
      element: make("div", { class: "card", tabindex: "0", role: "group", "aria-label": say("cardOf", { number: number + 1, count: wanted.length }) },
        make("b", { text: title }), make("span", { text })),
    }));
    this.current = Math.min(this.current, this.cards.length - 1);
    frame.cards.replaceChildren(...this.cards.map((card) => card.element), this.keys(wanted.length));
    const placed = (room.width >= ROOM_FOR_ALL && this.arrange(this.cards, room)) || this.arrange([this.cards[this.current]], room, true);
    frame.cards.prepend(this.drawing(placed, room));
    if (focused) this.cards[this.current].element.focus({ preventScroll: true });
  }

  /** Places cards; null where one of them finds no room (unless it must be shown: then at the foot). */
  arrange(cards, room, must = false) {
    const targets = cards.map((card) => card.target);
    const { frame } = this.app;
    const foot = { x: room.width - 240, y: room.height - 76, width: 240, height: 76 };
    const seen = [this.pictureBox(), ...[frame.title, frame.texts, frame.bar, frame.tabs, frame.sentence].map((element) => this.target({ element })),
      { x: frame.stage.offsetLeft, y: frame.stage.offsetTop + frame.stage.offsetHeight - this.app.legendHeight, width: 0.4 * room.width, height: this.app.legendHeight }];
    const placed = [];
    for (const card of cards) {
      const size = { width: card.element.offsetWidth, height: card.element.offsetHeight };
      const box = placeFor(size, card.target, [...targets, ...placed.map((one) => one.box), foot], seen, room)
        ?? (must ? { x: 8, y: room.height - size.height - 56, ...size } : null);
      if (!box) return null;
      placed.push({ ...card, box });
    }
    for (const card of this.cards) card.element.hidden = !cards.includes(card);
    for (const { element, box } of placed) Object.assign(element.style, { left: `${box.x}px`, top: `${box.y}px` });
    return placed;
  }

  /** Where the picture has ink, in pixels of the viewer. */
  pictureBox() {
    const { app } = this;
    const { left = 0 } = app.view.geometry(app);
    const size = app.view.size(app);
    const x = app.view.name === "pattern" ? Math.max(0, left - 90) : 0;
    return { x: x + app.frame.stage.offsetLeft, y: app.frame.stage.offsetTop + TOP, width: Math.min(app.area.width, size.width) - x, height: Math.min(app.seenHeight, size.height) };
  }

  /** A veil with holes over the targets, their frames, and lines from the cards. */
  drawing(placed, room) {
    const svg = document.createElementNS(NAMESPACE, "svg");
    svg.setAttribute("aria-hidden", "true");
    const add = (name, values) => {
      const element = document.createElementNS(NAMESPACE, name);
      for (const [key, value] of Object.entries(values)) element.setAttribute(key, String(value));
      svg.append(element);
    };
    const outline = ({ x, y, width, height }) => `M${x} ${y}h${width}v${height}h${-width}z`;
    add("path", { class: "veil", d: outline({ x: 0, y: 0, ...room }) + union(placed.map((one) => one.target)).map(outline).join("") });
    for (const { target } of placed) add("rect", { class: "target", x: target.x - 1, y: target.y - 1, width: target.width + 2, height: target.height + 2 });
    for (const { target, box } of placed) {
      const end = nearest(target, middle(box));
      const start = nearest(box, end);
      add("path", { class: "lead", d: `M${start.x} ${start.y}L${end.x} ${end.y}` });
    }
    return svg;
  }

  keys(count) {
    const several = count > 1 ? [action("\u25c2", say("previousCard"), () => this.go(-1)),
      make("span", { text: `${this.current + 1} / ${count}` }), action("\u25b8", say("nextCard"), () => this.go(1))] : [];
    return make("div", { class: "cardkeys" }, ...several, action(say("closeCards"), say("closeCardsLong"), () => this.close()));
  }
}
