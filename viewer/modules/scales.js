// @ts-check

import { say } from "./language.js";

/** Decades that the logarithmic scale shows below the largest weight. */
export const DECADES = 4;

/** Decades of the scale of shares: from a thousandth to all. */
export const SHARE_DECADES = 3;

export const SCALES = {
  linear: { shade: (part) => part },
  root: { shade: (part) => Math.sqrt(part) },
  log: { shade: (part) => (part > 0 ? Math.max(0, 1 + Math.log10(part) / DECADES) : 0) },
  share: { shade: (part) => (part > 0 ? Math.max(0, 1 + Math.log10(part) / SHARE_DECADES) : 0) },
  row: { shade: (part) => part },
};

/** A scale in words. */
export const scaleText = (scale) => say(/** @type {"scale_linear"} */ (`scale_${scale}`), { decades: DECADES });

/** How many even shares the last colour of a scale is at least, so that weights that are nearly even look even. */
export const EVEN_SHARES = 4;

/**
 * The weight of a scale's last colour: a round number, so that most heads have the same.
 * @param {number} largest of the weights that are shown
 * @param {number} keys that a query shares its weight among
 */
export function scaleEnd(largest, keys) {
  const least = Math.max(largest, Math.min(1, EVEN_SHARES / Math.max(1, keys)));
  const power = 10 ** Math.floor(Math.log10(least || 1));
  const step = [1, 2, 5, 10].find((one) => one * power >= least * (1 - 1e-6)) ?? 10;
  return Math.max(largest, Number((step * power).toPrecision(6)));
}

/** The weight of a shade from 0 to 1: the inverse of the scale, relative to the largest weight. */
export function scaleInverse(scale, shade) {
  if (scale === "root") return shade * shade;
  if (scale === "share") return 10 ** ((shade - 1) * SHARE_DECADES);
  if (scale === "log") return shade <= 0 ? 0 : 10 ** ((shade - 1) * DECADES);
  return shade;
}

/** The scale of a view that has no rows to scale each by itself. */
export const withoutRows = (scale) => (scale === "row" ? "linear" : scale);
