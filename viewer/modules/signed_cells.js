// @ts-check

import { clamp } from "./numbers.js";

/** Blue for more than 0, red for less, paper at 0: of a light page and of a dark one. */
const ENDS = { light: { more: [33, 102, 172], less: [178, 24, 43], none: [247, 247, 247] },
  dark: { more: [110, 170, 240], less: [240, 120, 110], none: [40, 44, 52] } };

/** The colour of a signed number from −1 to 1, and the ink that is read on it. */
export function signColors(part, theme) {
  const { more, less, none } = ENDS[theme.name === "dark" ? "dark" : "light"];
  const share = clamp(Number.isFinite(part) ? part : 0, -1, 1);
  const fill = none.map((channel, place) => Math.round(channel + ((share < 0 ? less : more)[place] - channel) * Math.abs(share)));
  const luminance = [0.2126, 0.7152, 0.0722].reduce((sum, factor, place) => {
    const channel = fill[place] / 255;
    return sum + factor * (channel <= 0.04045 ? channel / 12.92 : ((channel + 0.055) / 1.055) ** 2.4);
  }, 0);
  return { fill: `rgb(${fill.join(",")})`, ink: luminance > 0.179 ? "#000000" : "#ffffff" };
}
