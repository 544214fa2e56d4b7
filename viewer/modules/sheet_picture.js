// @ts-check

import { drawLegend } from "./legend.js";
import { headingOf } from "./picture.js";

const LEGEND = 66;

/** The picture that is saved of a view whose elements beside the canvas belong to it; null: of others, what is seen. */
export function sheetPicture(app) {
  const sheet = app.view.sheet(app);
  if (!sheet) return null;
  const { theme } = app;
  const { width } = sheet;
  const heading = headingOf(app, width);
  const height = Math.ceil(sheet.height + heading.height) + LEGEND;
  return { width, height, top: 0, paint(pen) {
    pen.rect(0, 0, width, height, { fill: theme.background });
    heading.draw(pen);
    pen.shift(0, heading.height, () => sheet.draw(pen));
    pen.shift(0, height - LEGEND + 2, () => drawLegend(pen, app.view.legend(app), width, theme));
  } };
}
