// @ts-check

import { drawLegend } from "./legend.js";
import { fitText } from "./lettering.js";

/** The height of the heading above a view, in pixels. */
export const HEADING = 28;

/** The whole picture, heading and legend included, with any pen. */
export function paint(app, pen) {
  const { theme, area } = app;
  const height = area.height + HEADING + app.legendHeight;
  pen.rect(0, 0, area.width, height, { fill: theme.background });
  pen.text(fitText(app.heading(), area.width - 20, { size: 13, bold: true }), 10, 14, { color: theme.text, size: 13, bold: true });
  const win = app.window();
  pen.clip(0, HEADING, area.width, area.height, () => {
    pen.shift(-win.x, HEADING - win.y, () => app.view.draw(app, pen, win));
  });
  pen.path([[0, HEADING + area.height + 0.5], [area.width, HEADING + area.height + 0.5]], { color: theme.border });
  pen.shift(0, HEADING + area.height + 2, () => drawLegend(pen, app.view.legend(app), area.width, theme));
}
