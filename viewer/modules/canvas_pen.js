// @ts-check

import { newCanvas } from "./canvases.js";
import { fontOf } from "./lettering.js";

/** Draws on a canvas. */
export class CanvasPen {
  constructor(context) {
    this.context = context;
    this.pattern = null;
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
    context.drawImage(source, sx, sy, sw, sh, x, y, width, height);
    context.globalAlpha = 1;
  }

  hatch(x, y, width, height, theme) {
    const { context } = this;
    context.fillStyle = theme.maskedFill;
    context.fillRect(x, y, width, height);
    this.pattern ??= this.hatchPattern(theme);
    context.fillStyle = this.pattern;
    context.fillRect(x, y, width, height);
  }

  hatchPattern(theme) {
    const tile = newCanvas(6, 6);
    const context = tile.getContext("2d");
    context.strokeStyle = theme.hatch;
    context.lineWidth = 1;
    context.beginPath();
    for (const start of [-6, 0, 6]) { context.moveTo(start, 6); context.lineTo(start + 6, 0); }
    context.stroke();
    return this.context.createPattern(tile, "repeat");
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
