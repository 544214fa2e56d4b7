// @ts-check

import { newCanvas } from "./canvases.js";
import { fontOf } from "./lettering.js";
import { HATCH, drawForms, hatchPath } from "./map_canvas.js";

/** Draws on a canvas. */
export class CanvasPen {
  constructor(context) {
    this.context = context;
    this.patterns = new Map();
    context.direction = "ltr";
  }

  /** @param {Drawn} [style] */
  rect(x, y, width, height, style = {}) {
    const { fill, stroke, lineWidth = 1, alpha = 1, radius = 0 } = style;
    const { context } = this;
    context.globalAlpha = alpha;
    context.beginPath();
    if (radius) context.roundRect(x, y, width, height, radius);
    else context.rect(x, y, width, height);
    if (fill) { context.fillStyle = fill; context.fill(); }
    if (stroke) { context.strokeStyle = stroke; context.lineWidth = lineWidth; context.setLineDash([]); context.stroke(); }
    context.globalAlpha = 1;
  }

  /** @param {Drawn} [style] */
  path(points, style = {}) {
    const { color, lineWidth = 1, dash = [], alpha = 1, fill = null } = style;
    const { context } = this;
    context.globalAlpha = alpha;
    context.beginPath();
    points.forEach(([x, y], number) => (number ? context.lineTo(x, y) : context.moveTo(x, y)));
    if (fill) { context.fillStyle = fill; context.fill(); }
    if (color) { context.strokeStyle = color; context.lineWidth = lineWidth; context.setLineDash(dash); context.stroke(); }
    context.globalAlpha = 1;
  }

  curve(x0, y0, x1, y1, { color, lineWidth = 1, dash = [], alpha = 1 }) {
    const { context } = this;
    const middle = (x0 + x1) / 2;
    context.globalAlpha = alpha;
    context.strokeStyle = color;
    context.lineWidth = lineWidth;
    context.setLineDash(dash);
    context.beginPath();
    context.moveTo(x0, y0);
    context.bezierCurveTo(middle, y0, middle, y1, x1, y1);
    context.stroke();
    context.globalAlpha = 1;
  }

  /** @param {Lettered} [style] */
  text(text, x, y, style = {}) {
    const { color, size = 12, bold = false, align = "start", angle = 0 } = style;
    const { context } = this;
    context.font = fontOf({ size, bold });
    context.fillStyle = color;
    context.textAlign = align === "start" ? "left" : align === "end" ? "right" : "center";
    context.textBaseline = "middle";
    if (!angle) { context.fillText(text, x, y); return; }
    context.save();
    context.translate(x, y);
    context.rotate((angle * Math.PI) / 180);
    context.fillText(text, 0, 0);
    context.restore();
  }

  /** @param {Pictured} [style] */
  picture(source, x, y, width, height, style = {}) {
    const { smooth = false, alpha = 1, cut = null } = style;
    const { context } = this;
    context.globalAlpha = alpha;
    context.imageSmoothingEnabled = smooth;
    context.imageSmoothingQuality = "high";
    const [sx, sy, sw, sh] = cut ?? [0, 0, source.width, source.height];
    drawForms(this, source, { x, y, width, height }, cut, () => context.drawImage(source, sx, sy, sw, sh, x, y, width, height));
    context.globalAlpha = 1;
  }

  /** What the mask hides. */
  hatch(x, y, width, height, theme) {
    this.fillTwice(x, y, width, height, theme.maskedFill, theme.hatch, false);
  }

  /** What is no number. */
  cross(x, y, width, height, theme) {
    this.fillTwice(x, y, width, height, theme.missingFill, theme.missing, true);
  }

  fillTwice(x, y, width, height, ground, color, crossed) {
    const { context } = this;
    const key = `${color} ${crossed}`;
    if (!this.patterns.has(key)) this.patterns.set(key, this.strokes(color, crossed));
    for (const fill of [ground, this.patterns.get(key)]) {
      context.fillStyle = fill;
      context.fillRect(x, y, width, height);
    }
  }

  /** A pattern of lines that rise to the right, and of others across them; twice as fine as the pixels, for sharp screens. */
  strokes(color, crossed) {
    const tile = newCanvas(2 * HATCH, 2 * HATCH);
    const context = tile.getContext("2d");
    context.scale(2, 2);
    context.strokeStyle = color;
    context.stroke(new Path2D(hatchPath(crossed)));
    const pattern = this.context.createPattern(tile, "repeat");
    pattern.setTransform(new DOMMatrix().scale(0.5));
    return pattern;
  }

  clip(x, y, width, height, draw) {
    const { context } = this;
    context.save();
    context.beginPath();
    context.rect(x, y, width, height);
    context.clip();
    draw();
    context.restore();
  }

  shift(x, y, draw) {
    this.context.save();
    this.context.translate(x, y);
    draw();
    this.context.restore();
  }
}
