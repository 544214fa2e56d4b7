// @ts-check

import { newCanvas } from "./canvases.js";
import { FONT } from "./lettering.js";
import { HATCH, drawForms, hatchPath } from "./map_canvas.js";
import { short } from "./numbers.js";

const XML_ESCAPES = { "&": "&amp;", "<": "&lt;", ">": "&gt;", "\"": "&quot;", "'": "&apos;" };

/** Text that is legal in XML and ends nothing. */
const xml = (text) => Array.from(String(text), (character) => {
  const code = character.codePointAt(0);
  if ((code < 0x20 && code !== 9) || (code >= 0xd800 && code <= 0xdfff) || code === 0xfffe || code === 0xffff) return "\ufffd";
  return XML_ESCAPES[character] ?? character;
}).join("");

/** Writes SVG. */
export class SvgPen {
  constructor(width, height) {
    this.size = [width, height];
    this.parts = [];
    this.clips = 0;
    this.patterns = new Map();
  }

  /** @param {Drawn} [style] */
  rect(x, y, width, height, style = {}) {
    const { fill, stroke, lineWidth = 1, alpha = 1, radius = 0 } = style;
    const edge = stroke ? ` stroke="${xml(stroke)}" stroke-width="${lineWidth}"` : "";
    const round = radius ? ` rx="${radius}"` : "";
    this.parts.push(`<rect x="${short(x)}" y="${short(y)}" width="${short(Math.max(0, width))}" `
      + `height="${short(Math.max(0, height))}"${round} fill="${xml(fill ?? "none")}"${edge}${this.fade(alpha)}/>`);
  }

  fade(alpha) {
    return alpha < 1 ? ` opacity="${short(alpha)}"` : "";
  }

  /** @param {Drawn} style */
  strokeOf({ color, lineWidth = 1, dash = [], alpha = 1 }) {
    if (!color) return this.fade(alpha);
    const dashes = dash.length ? ` stroke-dasharray="${dash.join(" ")}"` : "";
    return ` stroke="${xml(color)}" stroke-width="${short(lineWidth)}"${dashes}${this.fade(alpha)}`;
  }

  /** @param {Drawn} [style] */
  path(points, style = {}) {
    const drawn = points.map(([x, y], number) => `${number ? "L" : "M"}${short(x)} ${short(y)}`).join("");
    this.parts.push(`<path d="${drawn}" fill="${xml(style.fill ?? "none")}"${this.strokeOf(style)}/>`);
  }

  curve(x0, y0, x1, y1, style) {
    const middle = short((x0 + x1) / 2);
    this.parts.push(`<path d="M${short(x0)} ${short(y0)}C${middle} ${short(y0)} ${middle} ${short(y1)} ${short(x1)} `
      + `${short(y1)}" fill="none"${this.strokeOf(style)}/>`);
  }

  /** @param {Lettered} [style] */
  text(text, x, y, style = {}) {
    const { color, size = 12, bold = false, align = "start", angle = 0 } = style;
    const anchor = { start: "start", center: "middle", end: "end" }[align];
    const turn = angle ? ` transform="rotate(${angle} ${short(x)} ${short(y)})"` : "";
    this.parts.push(`<text x="${short(x)}" y="${short(y)}" dy="0.35em" font-size="${size}" font-weight="${bold ? 600 : 400}" `
      + `text-anchor="${anchor}" fill="${xml(color)}" xml:space="preserve"${turn}>${xml(text)}</text>`);
  }

  /** @param {Pictured} [style] */
  picture(source, x, y, width, height, style = {}) {
    const { smooth = false, alpha = 1, cut = null } = style;
    let used = source;
    if (cut) {
      used = newCanvas(cut[2], cut[3]);
      used.getContext("2d").drawImage(source, cut[0], cut[1], cut[2], cut[3], 0, 0, used.width, used.height);
    }
    const crisp = smooth ? "" : " style=\"image-rendering:pixelated\"";
    drawForms(this, source, { x, y, width, height }, cut, () => this.parts.push(`<image x="${short(x)}" y="${short(y)}" width="${short(width)}" height="${short(height)}" `
      + `preserveAspectRatio="none"${crisp}${this.fade(alpha)} href="${used.toDataURL("image/png")}"/>`));
  }

  /** What the mask hides. */
  hatch(x, y, width, height, theme) {
    this.fillTwice(x, y, width, height, theme.maskedFill, theme.hatch, "hatch");
  }

  /** What is no number. */
  cross(x, y, width, height, theme) {
    this.fillTwice(x, y, width, height, theme.missingFill, theme.missing, "cross");
  }

  fillTwice(x, y, width, height, ground, color, name) {
    this.patterns.set(name, color);
    const place = `x="${short(x)}" y="${short(y)}" width="${short(width)}" height="${short(height)}"`;
    this.parts.push(`<rect ${place} fill="${ground}"/><rect ${place} fill="url(#${name})"/>`);
  }

  clip(x, y, width, height, draw) {
    this.clips += 1;
    const name = `clip${this.clips}`;
    this.parts.push(`<clipPath id="${name}"><rect x="${short(x)}" y="${short(y)}" width="${short(Math.max(0, width))}" `
      + `height="${short(Math.max(0, height))}"/></clipPath><g clip-path="url(#${name})">`);
    draw();
    this.parts.push("</g>");
  }

  shift(x, y, draw) {
    this.parts.push(`<g transform="translate(${short(x)} ${short(y)})">`);
    draw();
    this.parts.push("</g>");
  }

  /** The file. */
  toString(title, description) {
    const [width, height] = this.size;
    const patterns = Array.from(this.patterns, ([name, stroke]) => `<pattern id="${name}" width="${HATCH}" height="${HATCH}" `
      + `patternUnits="userSpaceOnUse"><path d="${hatchPath(name === "cross")}" stroke="${stroke}" fill="none"/></pattern>`).join("");
    return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" `
      + `font-family="${xml(FONT)}" role="img"><title>${xml(title)}</title><desc>${xml(description)}</desc>`
      + `<defs>${patterns}</defs>${this.parts.join("\n")}</svg>\n`;
  }
}
