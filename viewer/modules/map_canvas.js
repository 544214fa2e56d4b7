// @ts-check

import { pixelCanvas } from "./canvases.js";
import { channelsOf, rampOf } from "./palette.js";

/** What a cell of a map is; zero is blank, what the mask hides is hatched, NaN is crossed, at every size and with every pen. */
export const CELL_KINDS = { weight: 0, zero: 1, masked: 2, missing: 3 };

/** Of maps: whether the mask hides a cell, the runs of NaN as [row, start, end], the theme. */
const forms = new WeakMap();

/**
 * A map as a picture, one pixel a cell: colours and blanks; `drawForms` adds hatches and crosses.
 * @param {Uint8Array} kinds of each cell, row by row, as in `CELL_KINDS`
 * @param {Uint8Array} shades from 0 to 255, of the cells that are weights
 * @param {Uint8ClampedArray} [ramp] the colours of the shades
 */
export function mapCanvas(columns, rows, kinds, shades, theme, ramp = rampOf(theme)) {
  const paper = channelsOf(theme.background);
  const found = { masked: false, missing: /** @type {number[][]} */ ([]), theme };
  const canvas = pixelCanvas(columns, rows, (data) => {
    for (let cell = 0; cell < rows * columns; cell += 1) {
      const kind = kinds[cell];
      if (kind === CELL_KINDS.masked) { found.masked = true; continue; } // transparent
      const colors = kind === CELL_KINDS.weight ? ramp : paper;
      const first = kind === CELL_KINDS.weight ? 3 * shades[cell] : 0;
      data[4 * cell] = colors[first];
      data[4 * cell + 1] = colors[first + 1];
      data[4 * cell + 2] = colors[first + 2];
      data[4 * cell + 3] = 255;
      if (kind === CELL_KINDS.missing) noteMissing(found.missing, Math.floor(cell / columns), cell % columns);
    }
  });
  forms.set(canvas, found);
  return canvas;
}

function noteMissing(runs, row, column) {
  const last = runs.at(-1);
  if (last && last[0] === row && last[2] === column) last[2] += 1;
  else runs.push([row, column, column + 1]);
}

/** Draws a picture with a pen: `draw` between the hatches below and the crosses above it, where it is a map. */
export function drawForms(pen, source, { x, y, width, height }, cut, draw) {
  const found = forms.get(source);
  if (found?.masked) pen.hatch(x, y, width, height, found.theme);
  draw();
  if (!found?.missing.length) return;
  const [left, top, columns, rows] = cut ?? [0, 0, source.width, source.height];
  const [across, down] = [width / columns, height / rows];
  for (const [row, start, end] of found.missing) {
    const [from, to] = [Math.max(start, left), Math.min(end, left + columns)];
    if (row >= top && row < top + rows && from < to) pen.cross(x + (from - left) * across, y + (row - top) * down, (to - from) * across, down, found.theme);
  }
}

/** The distance of the lines of hatches, in pixels. */
export const HATCH = 6;

/** The lines of a square of hatches, or of crosses, as SVG writes a path. */
export const hatchPath = (crossed) => `M-1 1L1 -1M0 ${HATCH}L${HATCH} 0M${HATCH - 1} ${HATCH + 1}L${HATCH + 1} ${HATCH - 1}`
  + `${crossed ? `M-1 ${HATCH - 1}L1 ${HATCH + 1}M0 0L${HATCH} ${HATCH}M${HATCH - 1} -1L${HATCH + 1} 1` : ""}`;
