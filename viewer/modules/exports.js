// @ts-check

import { CanvasPen } from "./canvas_pen.js";
import { newCanvas } from "./canvases.js";
import { make } from "./elements.js";
import { HEADING, paint } from "./picture.js";
import { SvgPen } from "./svg_pen.js";
import { visibleText } from "./text.js";

/** The picture as the text of an SVG file. */
export function svgOf(app) {
  const pen = new SvgPen(app.area.width, app.area.height + HEADING + app.legendHeight);
  paint(app, pen);
  return pen.toString(visibleText(app.payload.title), [app.heading(), app.selectionText(), app.frame.readout.textContent].filter(Boolean).join(" \u2014 "));
}

export function saveSvg(app) {
  download(app, new Blob([svgOf(app)], { type: "image/svg+xml" }), "svg");
}

export function savePng(app) {
  const scale = Math.max(2, globalThis.devicePixelRatio || 1);
  const canvas = newCanvas(app.area.width * scale, (app.area.height + HEADING + app.legendHeight) * scale);
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  app.tables.frameStart = performance.now();
  paint(app, new CanvasPen(context));
  canvas.toBlob((blob) => download(app, blob, "png"), "image/png");
}

function download(app, blob, suffix) {
  const address = URL.createObjectURL(blob);
  const link = make("a", { href: address, download: `attention-${app.view.name}.${suffix}` });
  app.frame.root.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}
