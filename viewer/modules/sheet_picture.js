// @ts-check

import { drawLegend } from "./legend.js";
import { fitText } from "./lettering.js";
import { HEADING } from "./picture.js";

const LEGEND = 66;

/** The picture that is saved of a view whose elements beside the canvas belong to it; null: of others, what is seen. */
export function sheetPicture(app) {
  const sheet = app.view.sheet(app);
  if (!sheet) return null;
  const { theme } = app;
  const { width } = sheet;
  const height = Math.ceil(sheet.height) + HEADING + LEGEND;
  return { width, height, top: 0, paint(pen) {
    pen.rect(0, 0, width, height, { fill: theme.background });
    pen.text(fitText(app.heading(), width - 20, { size: 13, bold: true }), 10, 14, { color: theme.text, size: 13, bold: true });
    pen.shift(0, HEADING, () => sheet.draw(pen));
    pen.shift(0, height - LEGEND + 2, () => drawLegend(pen, app.view.legend(app), width, theme));
  } };
}
