// @ts-check

import { clamp } from "./numbers.js";

/** Cividis (Nuñez, Anderton and Renslow, 2018) at 33 points: seen alike with every kind of colour vision. */
const CIVIDIS = ("00224e 00285b 002e6a 053371 1a386f 273e6e 32436d 3b496c 434e6c 4b546c 535a6d 5a5f6e 61656f 686a71 "
  + "6f7073 767676 7d7c78 848279 8c8878 938e78 9b9476 a39a74 aba072 b4a76f bcae6c c4b468 cdbb63 d5c25e dec958 e7d150 "
  + "f0d846 f9e03a fee838").split(" ").map((hex) => [0, 2, 4].map((place) => parseInt(hex.slice(place, place + 2), 16)));

export const RAMP_SIZE = 256;

export const RAMP = makeRamp();

/** Red, green and blue of every step of the palette. */
function makeRamp() {
  const ramp = new Uint8ClampedArray(3 * RAMP_SIZE);
  for (let step = 0; step < RAMP_SIZE; step += 1) {
    const place = (step / (RAMP_SIZE - 1)) * (CIVIDIS.length - 1);
    const low = Math.min(Math.floor(place), CIVIDIS.length - 2);
    for (let channel = 0; channel < 3; channel += 1) {
      const [a, b] = [CIVIDIS[low][channel], CIVIDIS[low + 1][channel]];
      ramp[3 * step + channel] = a + (b - a) * (place - low);
    }
  }
  return ramp;
}

/** The palette's colour for a shade from 0 to 1. */
export function rampColor(shade) {
  const step = 3 * Math.round(clamp(shade, 0, 1) * (RAMP_SIZE - 1));
  return `rgb(${RAMP[step]},${RAMP[step + 1]},${RAMP[step + 2]})`;
}

/** Black or white, whichever is read better on the palette's colour (WCAG's relative luminance). */
export function inkOnRamp(shade) {
  const step = 3 * Math.round(clamp(shade, 0, 1) * (RAMP_SIZE - 1));
  const linear = [0, 1, 2].map((channel) => {
    const part = RAMP[step + channel] / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] > 0.179 ? "#000000" : "#ffffff";
}

const mixed = (low, high, part) => low.map((channel, place) => Math.round(channel + (high[place] - channel) * part));

export const rgb = (channels) => `rgb(${channels.join(",")})`;

/** The background of a word for a shade from 0 to 1, and the text's colour on it. */
export function wordColors(shade, theme) {
  const part = clamp(shade, 0, 1);
  const fill = mixed(theme.wordLow, theme.wordHigh, part);
  const luminance = fill.map((channel) => (channel / 255) ** 2.2);
  const bright = 0.2126 * luminance[0] + 0.7152 * luminance[1] + 0.0722 * luminance[2] > 0.179;
  return { fill: rgb(fill), ink: bright ? "#000000" : "#ffffff" };
}

/** Colours of signs: below zero, zero, above zero. */
const SIGNS = { light: [[33, 102, 172], [255, 255, 255], [178, 66, 0]], dark: [[100, 176, 240], [20, 22, 26], [255, 150, 72]] };

/** Red, green and blue of a part from -1 to 1. */
export function divergingChannels(part, theme) {
  const [below, zero, above] = SIGNS[theme.dark ?? theme.name === "dark" ? "dark" : "light"];
  return mixed(zero, part < 0 ? below : above, clamp(Math.abs(part), 0, 1));
}

/** The colour of a part from -1 to 1. */
export const divergingColor = (part, theme) => rgb(divergingChannels(part, theme));
