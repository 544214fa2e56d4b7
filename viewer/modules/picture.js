// @ts-check

import { BoundsPen } from "./bounds_pen.js";
import { drawLegend } from "./legend.js";
import { wrapText } from "./lettering.js";
import { sentenceOf } from "./sentence.js";
import { visibleText } from "./text.js";

/** The room above a view on the screen, in pixels: the controls above it say what it shows. */
export const TOP = 4;

/** Around what is drawn, in pixels. */
const MARGIN = 16;

/** The room in which a view is drawn for a picture, so that the picture does not depend on the window. */
const PAPER = { height: 620 };

/** The most height of a picture, in pixels. */
const HIGHEST = 8000;

/** Room for a legend's numbers and words. */
const LEAST_WIDTH = 480;

/** The parts of a heading: what is shown, what is said of it, the numbers of what is said, each statement in its line. */
const STYLES = [{ size: 12 }, { size: 20 }, { size: 13 }];

/** What is seen on the screen: the view and its legend. */
export function paint(app, pen) {
  const { theme } = app;
  const win = app.window();
  const { width, height } = win;
  pen.rect(0, 0, width, height + TOP + app.legendHeight, { fill: theme.background });
  pen.clip(0, TOP, width, height, () => pen.shift(-win.x, TOP - win.y, () => app.view.draw(app, pen, win)));
  pen.path([[0, TOP + height + 0.5], [width, TOP + height + 0.5]], { color: theme.border });
  pen.shift(0, TOP + height + 2, () => drawLegend(pen, app.view.legend(app), width, theme));
}

/** Where an item is on the page, in pixels of the window. */
export function locate(app, item) {
  const box = app.view.place(app, item);
  const canvas = app.frame.canvas.getBoundingClientRect();
  const win = app.window();
  return { x: canvas.left + box.x - win.x, y: canvas.top + TOP + box.y - win.y, width: box.width, height: box.height };
}

/** The title, the sentence and its numbers above a picture: its lines with their places, and its height. */
function headingOf(app, width) {
  const { text, shares } = sentenceOf(app);
  let height = MARGIN;
  const lines = [`${visibleText(app.payload.title)} \u00b7 ${app.heading()}`, text, shares].flatMap((part, number) => {
    const style = STYLES[number];
    const statements = wrapText(part, width - 2 * MARGIN, style).length > 1 ? part.split(/ *\u2003 */u) : [part];
    return statements.flatMap((one) => (one ? wrapText(one, width - 2 * MARGIN, style) : [])).map((line) => {
      height += 1.35 * style.size;
      return { line, y: height - 0.7 * style.size, style };
    });
  });
  return { height: height + MARGIN / 2, draw: (pen) => lines.forEach(({ line, y, style }) => pen.text(line, MARGIN, y, { color: style.size === 12 ? app.theme.muted : app.theme.text, ...style })) };
}

/** The viewer on paper of its own, where the whole view is drawn as in the pictures that Python saves; one that is zoomed in stays as it is seen. */
function onPaper(app) {
  if (app.state.zoom > 1) return app;
  const at = (area) => Object.create(app, { area: { value: area }, paper: { value: true }, window: { value: () => ({ x: 0, y: 0, ...area }) } });
  const width = app.view.paperWidth(app);
  const size = app.view.size(at({ ...PAPER, width }));
  return at({ width: Math.max(width, Math.min(size.width, HIGHEST)), height: Math.max(PAPER.height, Math.min(Math.ceil(size.height), HIGHEST)) });
}

/** A picture of what is drawn: below its title and what is said of it, above its legend. */
function framed(app, { width, height: drawn, draw }) {
  const { theme, view } = app;
  const heading = headingOf(app, width);
  const legend = (pen) => drawLegend(pen, { ...view.legend(app), foot: true }, width, theme, Infinity);
  const bounds = new BoundsPen(theme.background);
  legend(bounds);
  const below = heading.height + drawn + MARGIN / 2;
  const height = Math.ceil(below + Math.max(0, bounds.box.bottom) + MARGIN);
  return { width, height, paint(pen) {
    pen.rect(0, 0, width, height, { fill: theme.background });
    heading.draw(pen);
    pen.clip(0, heading.height, width, drawn, () => pen.shift(0, heading.height, () => draw(pen)));
    pen.shift(0, below, () => legend(pen));
  } };
}

/** The picture that is saved: the sheet of a view with elements beside its canvas; else the whole view without the empty rest around it. */
export function savedPicture(app) {
  const sheet = app.view.sheet(app);
  if (sheet) return framed(app, sheet);
  const paper = onPaper(app);
  const { view } = paper;
  const win = paper.window();
  const bounds = new BoundsPen(paper.theme.background);
  bounds.clip(0, 0, win.width, win.height, () => bounds.shift(-win.x, -win.y, () => view.draw(paper, bounds, win)));
  const found = bounds.box.left <= bounds.box.right ? bounds.box : { left: 0, top: 0, right: 0, bottom: 0 };
  const [left, top] = [Math.floor(found.left) - MARGIN, Math.floor(found.top) - MARGIN / 2];
  return framed(paper, { width: Math.max(LEAST_WIDTH, Math.ceil(found.right) + MARGIN - left), height: Math.ceil(found.bottom) + MARGIN / 2 - top,
    draw: (pen) => pen.shift(-win.x - left, -win.y - top, () => view.draw(paper, pen, win)) });
}
