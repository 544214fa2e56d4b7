// @ts-check

import { fitText, wrapText } from "./lettering.js";

/** Lines and tables below each other; without a pen it only measures. */
export class Panel {
  constructor(pen, theme, { x, y, width }) {
    this.pen = pen;
    this.theme = theme;
    this.x = x;
    this.y = y;
    this.width = width;
  }

  heading(text) {
    this.pen?.text(fitText(text, this.width, { size: 15, bold: true }), this.x, this.y + 10, { color: this.theme.text, size: 15, bold: true });
    this.y += 28;
  }

  line(text) {
    for (const part of wrapText(text, this.width, { size: 12, bold: true })) {
      this.pen?.text(part, this.x, this.y + 8, { color: this.theme.text, size: 12, bold: true });
      this.y += 17;
    }
    this.y += 4;
  }

  table(head, rows, foot, chosen = -1) {
    const first = Math.min(110, this.width * 0.3);
    const step = Math.min(96, (this.width - first) / (head.length - 1));
    const line = (cells, style) => {
      cells.forEach((text, number) => {
        if (number) this.pen?.text(text, this.x + first + number * step - 4, this.y + 7, { size: 12, align: "end", ...style });
        else this.pen?.text(fitText(text, first - 4, style), this.x + 4, this.y + 7, { size: 12, ...style });
      });
      this.y += 16;
    };
    line(head, { color: this.theme.muted, size: 11 });
    rows.forEach((cells, number) => {
      if (number === chosen) this.pen?.rect(this.x, this.y - 1, first + (head.length - 1) * step, 16, { fill: this.theme.highlight, radius: 2 });
      line(cells, { color: this.theme.text, bold: number === chosen });
    });
    this.pen?.path([[this.x, this.y], [this.x + first + (head.length - 1) * step, this.y]], { color: this.theme.border });
    this.y += 2;
    line(foot, { color: this.theme.text, bold: true });
    this.y += 12;
  }
}
