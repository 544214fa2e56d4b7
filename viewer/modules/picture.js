// @ts-check

import { BoundsPen } from "./bounds_pen.js";
import { drawLegend } from "./legend.js";
import { fitMiddle, textWidth } from "./lettering.js";
import { visibleText } from "./text.js";

/** The room above a view on the screen, in pixels: the controls above it say what it shows. */
export const TOP = 4;

/** The height of the heading above a saved view. */
export const HEADING = 28;

/** The height of the document's title, which a saved picture has above the heading. */
const TITLE = 26;

/** Around what is drawn, in pixels. */
const MARGIN = 12;

/** Room for a legend's numbers and words. */
const LEAST_WIDTH = 480;

const HEADING_STYLE = { size: 13, bold: true };

const TITLE_STYLE = { size: 16, bold: true };

/** What is seen on the screen: the view and its legend. */
export function paint(app, pen) {
  const { theme } = app;
  const { width, height } = app.window();
  pen.rect(0, 0, width, height + TOP + app.legendHeight, { fill: theme.background });
  paintPart(app, pen, { x: 0, y: 0, width, height }, TOP, undefined);
}

/** Where an item is on the page, in pixels of the window. */
export function locate(app, item) {
  const box = app.view.place(app, item);
  const canvas = app.frame.canvas.getBoundingClientRect();
  const win = app.window();
  return { x: canvas.left + box.x - win.x, y: canvas.top + TOP + box.y - win.y, width: box.width, height: box.height };
}

/** A part of the view that is seen, below a place and above the legend, of whose text so many lines are shown. */
function paintPart(app, pen, { x, y, width, height }, top, room) {
  const { theme } = app;
  const win = app.window();
  pen.clip(0, top, width, height, () => {
    pen.shift(-win.x - x, top - win.y - y, () => app.view.draw(app, pen, win));
  });
  pen.path([[0, top + height + 0.5], [width, top + height + 0.5]], { color: theme.border });
  pen.shift(0, top + height + 2, () => drawLegend(pen, app.view.legend(app), width, theme, room));
}

/** The picture that is saved: what is seen without the empty rest around it, below the document's title. */
export function croppedPicture(app) {
  const { theme } = app;
  const win = app.window();
  const bounds = new BoundsPen(theme.background);
  bounds.clip(0, 0, win.width, win.height, () => bounds.shift(-win.x, -win.y, () => app.view.draw(app, bounds, win)));
  const found = bounds.box.left <= bounds.box.right ? bounds.box : { left: 0, top: 0, right: 0, bottom: 0 };
  const title = visibleText(app.payload.title);
  const words = Math.max(textWidth(title, TITLE_STYLE), textWidth(app.heading(), HEADING_STYLE)) + 20;
  const width = Math.ceil(Math.min(win.width, Math.max(LEAST_WIDTH, words, found.right - found.left + 2 * MARGIN)));
  const y = Math.max(0, Math.floor(found.top) - MARGIN / 2);
  const part = { x: Math.floor(found.left) - MARGIN, y, width, height: Math.ceil(Math.min(win.height, found.bottom + MARGIN / 2)) - y };
  const legend = new BoundsPen(theme.background);
  drawLegend(legend, app.view.legend(app), width, theme, Infinity);
  const height = TITLE + HEADING + part.height + 2 + Math.max(0, legend.box.bottom) + MARGIN;
  return {
    width, height: Math.ceil(height), top: -TITLE,
    /** With a pen whose upper left corner is (0, top). */
    paint(pen) {
      pen.rect(0, -TITLE, width, Math.ceil(height), { fill: theme.background });
      pen.text(fitMiddle(title, width - 20, TITLE_STYLE), 10, -TITLE / 2 + 2, { color: theme.text, ...TITLE_STYLE });
      pen.text(fitMiddle(app.heading(), width - 20, HEADING_STYLE), 10, 14, { color: theme.text, ...HEADING_STYLE });
      paintPart(app, pen, part, HEADING, Infinity);
    },
  };
}
