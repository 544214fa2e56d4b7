// @ts-check

import { clamp } from "./numbers.js";

/**
 * The colours of numbers; regard/palette.py has the same. Points of even steps of lightness (OKLCH), so that equal steps of a
 * number look alike with every kind of colour vision, and in grey.
 */
const POINTS = {
  // The amount of attention: from paper to ink. The first colour is nearly the paper, which stands for exactly zero.
  amount: {
    light: "f8fbfc deeef6 c2e1f2 a7d4ee 8ec6e9 78b8e2 64a9db 529ad2 438ac7 387bbb 2e6cae 275d9e 224f8e 1e417d 19346b 152858 111d44",
    dark: "181b22 202635 25314b 283d64 294a7b 295890 2866a4 2876b6 2c86c4 3496d2 42a6dd 54b6e6 6cc5ee 87d4f3 a5e1f7 c4eefb e7f9fe",
  },
  // Sign: negative is red and left, zero is paper in the middle, positive is blue and right.
  sign: {
    light: "76090c 922320 b03832 cd4f46 e46c62 f48d82 fdb1a7 fed5d0 f9fafd cee2ff a4cafe 7cb0fa 5997ed 3b7ed8 2666bb 114f9e 003a7e",
    dark: "ffbebe fc979a ed757c dd515f c13749 9d2a39 75272e 4a2426 1d1e20 1d3349 174774 105d9d 1774c1 368cdb 5fa4e9 85bdf7 aed5ff",
  },
};

const RAMP_SIZE = 256;

/** Red, green and blue of the steps of a ramp, the points evenly spread. */
function makeRamp(points) {
  const colors = points.split(" ").map(channelsOf);
  const ramp = new Uint8ClampedArray(3 * RAMP_SIZE);
  for (let step = 0; step < RAMP_SIZE; step += 1) {
    const place = (step / (RAMP_SIZE - 1)) * (colors.length - 1);
    const low = Math.min(Math.floor(place), colors.length - 2);
    for (let channel = 0; channel < 3; channel += 1) {
      const [a, b] = [colors[low][channel], colors[low + 1][channel]];
      ramp[3 * step + channel] = a + (b - a) * (place - low);
    }
  }
  return ramp;
}

/** Red, green and blue of "#rrggbb", "rrggbb", or "rgb(r, g, b)". */
export function channelsOf(color) {
  if (color.startsWith("rgb")) return color.match(/[\d.]+/g).slice(0, 3).map(Number);
  const hex = color.replace("#", "");
  return [0, 2, 4].map((place) => parseInt(hex.slice(place, place + 2), 16));
}

const RAMPS = { light: makeRamp(POINTS.amount.light), dark: makeRamp(POINTS.amount.dark) };

const SIGNS = { light: makeRamp(POINTS.sign.light), dark: makeRamp(POINTS.sign.dark) };

/** The colours of the amount of attention on a theme: red, green, blue of `RAMP_SIZE` steps. */
export const rampOf = (theme) => RAMPS[theme.scheme];

/** The colours of signed numbers on a theme, zero in the middle. */
export const signsOf = (theme) => SIGNS[theme.scheme];

/** Where a shade from 0 to 1 is in a ramp. */
const rampStep = (shade) => 3 * Math.round(clamp(shade, 0, 1) * (RAMP_SIZE - 1));

const colorAt = (ramp, step) => `rgb(${ramp[step]},${ramp[step + 1]},${ramp[step + 2]})`;

/** The colour of an amount of attention, from 0 (almost paper) to 1 (ink). */
export const rampColor = (shade, theme) => colorAt(rampOf(theme), rampStep(shade));

/** The colour of a signed number, from −1 (red) over 0 (paper) to 1 (blue). */
export const divergingColor = (part, theme) => colorAt(SIGNS[theme.scheme], rampStep((clamp(part, -1, 1) + 1) / 2));

/** Relative luminance of red, green and blue (WCAG 2). */
export function luminance(channels) {
  const [red, green, blue] = channels.map((channel) => {
    const part = channel / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

/** Black or white, whichever is read better on a colour: they have the same contrast at a luminance of 0.179; on red, white is read better up to a lighter one. */
export function inkOn(color) {
  const channels = channelsOf(color);
  return luminance(channels) > (channels[0] > 2 * channels[2] ? 0.27 : 0.179) ? "#000000" : "#ffffff";
}

const inks = new Map();

/** The ink on the colour of an amount. */
export function inkOnRamp(shade, theme) {
  const key = `${theme.scheme} ${rampStep(shade)}`;
  if (!inks.has(key)) inks.set(key, inkOn(rampColor(shade, theme)));
  return inks.get(key);
}

const rgb = (channels) => `rgb(${channels.join(",")})`;

/** The background of a word for an amount from 0 to 1, and the text's colour on it. */
export const wordColors = (shade, theme) => ({ fill: rampColor(shade, theme), ink: inkOnRamp(shade, theme) });

/** White paper under a black veil that is thinner for more. */
export const veilColor = (shade) => rgb(Array(3).fill(Math.round(255 * (1 - 0.82 * (1 - clamp(shade, 0, 1))))));
