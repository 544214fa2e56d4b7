// @ts-check

import { language } from "./language.js";

export const counted = (count) => count.toLocaleString("en-US");

/**
 * A weight as text with no more digits than are known.
 * @param {number} value
 * @param {number} error the largest distance from the true number; 0 for exact numbers
 */
export function formatWeight(value, error = 0) {
  if (Number.isNaN(value)) return "NaN";
  if (error > 0) {
    const digits = Math.min(8, Math.max(0, Math.ceil(-Math.log10(error))));
    const bound = Math.ceil((error + 0.5 * 10 ** -digits) * 10 ** digits) / 10 ** digits;
    const shown = value.toFixed(digits);
    return `${/^-.*[1-9]/.test(shown) ? "\u2212" : ""}${shown.replace("-", "")} \u00b1 ${bound.toFixed(digits)}`;
  }
  return formatNumber(value);
}

/** An exact number: four decimals, more for small ones. */
export function formatNumber(value) {
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "\u221e" : "\u2212\u221e";
  const size = Math.abs(value);
  if (size === 0) return "0";
  const sign = value < 0 ? "\u2212" : "";
  if (size < 0.001 || size >= 1e6) return sign + size.toExponential(3).replace("e-", "e\u2212").replace("e+", "e");
  return sign + (size >= 1000 ? size.toFixed(2) : size.toFixed(4));
}

/** A number of a calculation: four digits, and four decimals at most. */
export function printed(value) {
  const size = Math.abs(value);
  if (!(size >= 0.99995 && size < 1e6)) return formatNumber(value);
  return (value < 0 ? "\u2212" : "") + size.toFixed(size < 9.9995 ? 3 : size < 99.995 ? 2 : size < 999.95 ? 1 : 0);
}

/** A number as who reads it printed has it. */
export const asPrinted = (value) => (Number.isFinite(value) ? Number(printed(value).replaceAll("\u2212", "-")) : value);

/** "=" where a calculation with the printed numbers has the printed result, else "\u2248". */
export function equalSign(result, calculate, ...numbers) {
  return printed(calculate(...numbers.map(asPrinted))) === printed(result) ? "=" : "\u2248";
}

/** The relative difference that numbers of single precision do not tell. */
const PRECISION = 1e-6;

/** A size that is to be rounded: what single precision does not tell from a half is rounded up. */
const upwards = (size) => size * (1 + PRECISION);

/** A size with two decimals; one that is less than 1 does not become 1. */
function twoDecimals(size) {
  const text = upwards(size).toFixed(2);
  return text === "1.00" && size < 1 - PRECISION ? ">0.99" : text;
}

/** The text of a number's size with its sign, which also turns a bound around. */
const withSign = (value, text) => (value < 0 ? `\u2212${text}`.replace("\u2212>", "<\u2212").replace("\u2212<", ">\u2212") : text);

/**
 * A weight in a cell: two decimals, no zero before the point; "" for one that rounds to 0, and ">.99" for one that only rounds to 1.
 * `cell_number` of Python has the same.
 */
export function cellText(value) {
  const size = Math.abs(value);
  const text = size < 1.005 ? twoDecimals(size).replace("1.00", "1").replace("0.", ".") : legendNumber(size);
  return /[1-9]/.test(text) ? withSign(value, text) : "";
}

/** A weight in a sentence: two decimals, one digit of small ones; only 0 is "0", and only 1 is "1.00". `short_weight` of Python has the same. */
export function shortWeight(value) {
  if (!Number.isFinite(value)) return formatNumber(value);
  const size = Math.abs(value);
  if (size === 0) return "0";
  const text = twoDecimals(size);
  const small = size < 0.0001 ? "<0.0001" : String(Number(upwards(size).toPrecision(1)));
  return withSign(value, text === "0.00" ? small : text);
}

/** What printed weights leave of 1, so that they and it add up as they are printed; null where they have no such sum. `weight_texts` of Python has the same. */
export function leftOfOne(texts) {
  const left = Number((1 - sumOf(texts.map(Number))).toFixed(4));
  return left > 0 ? left : null;
}

/** A difference of weights in the same form, whose sign is said too. */
export const signedWeight = (value) => shortWeight(value).replace(/^\d/, value > 0 ? "+$&" : "$&");

export const clamp = (value, low, high) => Math.min(high, Math.max(low, value));

export const short = (value) => String(Math.round(value * 100) / 100);

/** A grid of tick positions in seconds that do not crowd. */
export function secondsStep(seconds, width) {
  const most = Math.max(2, Math.floor(width / 64));
  const rough = seconds / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= rough);
}

/**
 * Three digits, since a colour that is seen differs by more, and all of a whole number; `short_number` of Python has the same.
 * @param {number} value
 * @param {number} digits of a number below 1
 */
export function legendNumber(value, digits = 3) {
  if (Number.isNaN(value)) return "NaN";
  const size = Math.abs(value);
  const sign = value < 0 ? "\u2212" : "";
  if (size === Infinity) return `${sign}\u221e`;
  if (size === 0) return "0";
  if (upwards(size) >= 999.5 && upwards(size) < 1e9) return sign + Math.round(size).toLocaleString("en-US");
  const short3 = Number(upwards(size).toPrecision(size < 1 ? digits : 3));
  return sign + (size < 1e-4 || size >= 1e9 ? short3.toExponential().replace("e-", "e\u2212").replace("e+", "e") : String(short3));
}

export function niceStep(rough) {
  const power = 10 ** Math.floor(Math.log10(Math.max(rough, 1)));
  return Math.max(1, [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= rough) ?? 1);
}

/** The least and the largest finite number. */
export function finiteRange(matrix) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of matrix) {
    if (Number.isFinite(value)) { low = Math.min(low, value); high = Math.max(high, value); }
  }
  return low <= high ? [low, high] : [0, 0];
}

/** The positions of the largest numbers, the largest first (NaN before all); with a chosen one among them or behind them. */
export function strongest(values, most, chosen = null) {
  const size = (position) => (Number.isNaN(values[position]) ? Infinity : values[position]);
  const order = Array.from(values.keys()).sort((a, b) => size(b) - size(a) || a - b);
  const positions = order.slice(0, most);
  if (chosen !== null && !positions.includes(chosen)) positions[positions.length - 1] = chosen;
  return positions;
}

export const sumOf = (numbers) => numbers.reduce((sum, one) => sum + one, 0);

/** A number of percent with its sign. */
export const withPercent = (text) => text + (language() === "zh" ? "%" : "\u00a0%");

/** A part as percent in whole numbers, those of its two decimals; only the whole is 100, and only nothing is 0. `percent` of Python has the same. */
export function percent(part) {
  const text = twoDecimals(part);
  const shown = (text === "0.00" && part > 0 ? "<0.01" : text).replace(/[\d.]+/, (number) => String(Math.round(100 * Number(number))));
  return withPercent(shown.replace(/[<>]/, "$&\u00a0"));
}
