// @ts-check

import { textWidth } from "./lettering.js";

/** Draws nothing, and remembers the box of all that would be seen on the background. */
export class BoundsPen {
  constructor(background) {
    this.background = background;
    this.offset = [0, 0];
    this.seen = [-Infinity, -Infinity, Infinity, Infinity];
    this.box = { left: Infinity, top: Infinity, right: -Infinity, bottom: -Infinity };
  }

  add(x0, y0, x1, y1) {
    const [dx, dy] = this.offset;
    const [left, top, right, bottom] = this.seen;
    const [a, b, c, d] = [Math.max(left, x0 + dx), Math.max(top, y0 + dy), Math.min(right, x1 + dx), Math.min(bottom, y1 + dy)];
    if (a > c || b > d) return;
    const { box } = this;
    this.box = { left: Math.min(box.left, a), top: Math.min(box.top, b), right: Math.max(box.right, c), bottom: Math.max(box.bottom, d) };
  }

  /** @param {Drawn} [style] */
  rect(x, y, width, height, style = {}) {
    if (style.stroke || (style.fill && style.fill !== this.background)) this.add(x, y, x + width, y + height);
  }

  path(points) {
    const [across, down] = [0, 1].map((side) => points.map((point) => point[side]));
    if (points.length) this.add(Math.min(...across), Math.min(...down), Math.max(...across), Math.max(...down));
  }

  curve(x0, y0, x1, y1) {
    this.add(Math.min(x0, x1), Math.min(y0, y1), Math.max(x0, x1), Math.max(y0, y1));
  }

  /** @param {Lettered} [style] */
  text(text, x, y, style = {}) {
    const { size = 12, bold = false, align = "start", angle = 0 } = style;
    const width = textWidth(text, { size, bold });
    const before = { start: 0, center: width / 2, end: width }[align];
    // The corners of the text's box, turned around its place.
    const [sine, cosine] = [Math.sin((angle * Math.PI) / 180), Math.cos((angle * Math.PI) / 180)];
    this.path([-before, width - before].flatMap((a) => [-size / 2, size / 2].map((b) => [x + a * cosine - b * sine, y + a * sine + b * cosine])));
  }

  picture(_, x, y, width, height) {
    this.add(x, y, x + width, y + height);
  }

  hatch(x, y, width, height) {
    this.add(x, y, x + width, y + height);
  }

  cross(x, y, width, height) {
    this.add(x, y, x + width, y + height);
  }

  clip(x, y, width, height, draw) {
    const before = this.seen;
    const [dx, dy] = this.offset;
    const [left, top, right, bottom] = before;
    this.seen = [Math.max(left, x + dx), Math.max(top, y + dy), Math.min(right, x + dx + width), Math.min(bottom, y + dy + height)];
    draw();
    this.seen = before;
  }

  shift(x, y, draw) {
    const before = this.offset;
    this.offset = [before[0] + x, before[1] + y];
    draw();
    this.offset = before;
  }
}
