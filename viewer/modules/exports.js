// @ts-check

import { CanvasPen } from "./canvas_pen.js";
import { newCanvas } from "./canvases.js";
import { make } from "./elements.js";
import { say } from "./language.js";
import { savedPicture } from "./picture.js";
import { selectionText } from "./sentence.js";
import { SvgPen } from "./svg_pen.js";
import { visibleText } from "./text.js";

/** The picture as the text of an SVG file. */
export function svgOf(app) {
  if (!app.current()) return new SvgPen({ width: 1, height: 1 }).toString(visibleText(app.payload.title), say("nothingToShow"));
  const picture = savedPicture(app);
  const pen = new SvgPen(picture);
  picture.paint(pen);
  return pen.toString(visibleText(app.payload.title), [app.heading(), selectionText(app), app.frame.readout.textContent].filter(Boolean).join(" \u2014 "));
}

/** Decodes what a picture shows and the window does not: maps of the grid that were never scrolled to. */
const decoded = (app) => Promise.all(app.view.name === "grid" ? app.records.map((record) => (record.large ? null : record.decode())) : []);

export async function saveSvg(app) {
  await decoded(app);
  download(app, new Blob([svgOf(app)], { type: "image/svg+xml" }), "svg");
}

export async function savePng(app) {
  await decoded(app);
  app.tables.frameStart = performance.now();
  const picture = savedPicture(app);
  const scale = Math.max(2, globalThis.devicePixelRatio || 1);
  const canvas = newCanvas(picture.width * scale, picture.height * scale);
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  picture.paint(new CanvasPen(context));
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
