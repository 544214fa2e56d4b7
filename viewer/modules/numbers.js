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

/** "=" where a calculation with the printed numbers has the printed result, else "\u2248". */
export function equalSign(result, calculate, ...numbers) {
  const read = (value) => (Number.isFinite(value) ? Number(printed(value).replaceAll("\u2212", "-")) : value);
  return printed(calculate(...numbers.map(read))) === printed(result) ? "=" : "\u2248";
}

/** The difference from 1 that numbers of single precision do not tell. */
const PRECISION = 1e-6;

/** The least part that two decimals round up to the whole. */
const NEARLY_ONE = 0.995;

/** Whether a number is less than 1 and two decimals would say that it is 1. */
const isNearlyOne = (size) => size >= NEARLY_ONE && size < 1 - PRECISION;

/** Decimals of a number that is nearly one, cut and not rounded: "0.9998"; behind a ">" where four do not tell it from 1. */
function nearlyOne(size, factor = 1) {
  const text = String(Number(((Math.floor(1e4 * size + 1e-3) * factor) / 1e4).toFixed(4)));
  return size > 0.9999 + PRECISION ? `>\u200a${text}` : text;
}

/**
 * A weight in a cell: two decimals, no zero before the point; "" for one that rounds to 0, and ">.99" for one that only rounds to 1.
 * `cell_number` of Python has the same.
 */
export function cellText(value) {
  const size = Math.abs(value);
  if (isNearlyOne(size)) return value < 0 ? "<\u2212.99" : ">.99";
  const text = size < 1.005 ? size.toFixed(2).replace("1.00", "1").replace("0.", ".") : legendNumber(size);
  return /[1-9]/.test(text) ? (value < 0 ? "\u2212" : "") + text : "";
}

/** A weight in a sentence: two decimals, one digit of small ones, more of what is nearly 1. */
export function shortWeight(value) {
  if (!Number.isFinite(value)) return formatNumber(value);
  const size = Math.abs(value);
  if (size === 0) return "0";
  const sign = value < 0 ? "\u2212" : "";
  if (size < 0.0001) return sign ? ">\u200a\u22120.0001" : "<\u200a0.0001";
  if (isNearlyOne(size)) return sign + nearlyOne(size);
  return sign + (size >= 0.01 ? size.toFixed(2) : String(Number(size.toPrecision(1))));
}

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
 */
export function legendNumber(value) {
  if (Number.isNaN(value)) return "NaN";
  const size = Math.abs(value);
  const sign = value < 0 ? "\u2212" : "";
  if (size === Infinity) return `${sign}\u221e`;
  if (size === 0) return "0";
  if (size >= 999.5 && size < 1e9) return sign + Math.round(size).toLocaleString("en-US");
  const short3 = Number(size.toPrecision(3));
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

/**
 * Hundredths of parts that add up to those of their sum, as the parts are shown; the last part is what is left.
 * Rounded parts need not add up: then the last one, and where that is not enough those that are nearest to another hundredth, are
 * rounded the other way, so that each is less than a hundredth from its number (the method of largest remainders).
 * @param {number[]} parts
 * @param {(part: number) => number|null} shown a part as it is shown; null: as hundredths
 * @returns {number[]} hundredths; of other parts 0
 */
function hundredthsOf(parts, shown) {
  const others = parts.map(shown);
  const hundredths = parts.map((part, place) => (others[place] === null ? Math.round(100 * part) : 0));
  const left = Math.round(100 * (sumOf(parts) - sumOf(others.map(Number)))) - sumOf(hundredths);
  const step = Math.sign(left);
  const distance = (place) => Math.abs(hundredths[place] + step - 100 * parts[place]);
  const order = Array.from(parts.keys()).filter((place) => others[place] === null && distance(place) < 1 && hundredths[place] + step < 100);
  order.sort((a, b) => Number(b === parts.length - 1) - Number(a === parts.length - 1) || distance(a) - distance(b));
  for (const place of order.slice(0, Math.abs(left))) hundredths[place] += step;
  return hundredths;
}

/** Weights in a sentence, the last of which is that of all others: they add up to their sum as they are shown. */
export function shortWeights(parts) {
  if (!parts.every((part) => part >= 0 && part < NEARLY_ONE)) return parts.map(shortWeight);
  const hundredths = hundredthsOf(parts, (part) => (part < 0.01 ? Number(part.toPrecision(1)) : null));
  return parts.map((part, place) => (part < 0.01 ? shortWeight(part) : (hundredths[place] / 100).toFixed(2)));
}

/** A part as percent: a tenth of small ones, more of what is nearly all. */
export function exactPercent(part) {
  if (Number.isNaN(part)) return "NaN";
  const text = part === 0 ? "0" : part < 0.001 ? "<\u00a00.1" : isNearlyOne(part) ? nearlyOne(part, 100) : part < 0.1 ? (100 * part).toFixed(1) : String(Math.round(100 * part));
  return withPercent(text);
}

/** Parts as percent, the last of which is that of all others: they add up to their sum as they are shown. */
export function exactPercents(parts) {
  if (!parts.every((part) => part >= 0 && part < NEARLY_ONE)) return parts.map(exactPercent);
  const hundredths = hundredthsOf(parts, (part) => (part < 0.1 ? Math.round(1000 * part) / 1000 : null));
  return parts.map((part, place) => (part < 0.1 ? exactPercent(part) : withPercent(String(hundredths[place]))));
}

const withPercent = (text) => (language() === "zh" ? `${text}%` : `${text}\u00a0%`);

/** A part as percent, in whole numbers; only the whole is 100, and only nothing is 0. */
export function percent(part) {
  return withPercent(part > 0 && part < 0.005 ? "<\u00a01" : isNearlyOne(part) ? nearlyOne(part, 100) : String(Math.round(100 * part)));
}
