// @ts-check

import { channelsOf, luminance } from "./palette.js";

/** Dashes of heads, as lengths of strokes and gaps in pixels. */
const DASHES = [[], [8, 3], [2, 3], [9, 3, 2, 3], [14, 4], [4, 2], [9, 3, 2, 3, 2, 3], [16, 3, 5, 3]];

/** Colour and dash of a head: 64 heads have 64 different pairs; neighbours differ in both. */
export function headStyle(head, theme, dashed = true) {
  if (theme.forced) return forcedStyle(head, theme);
  const colors = theme.heads;
  const color = head % colors.length;
  return { color: colors[color], dash: !dashed ? [] : DASHES[(head + Math.floor(head / colors.length)) % DASHES.length] };
}

export const LIGHT = {
  name: "light", scheme: "light", background: "#ffffff", surface: "#f4f5f7", border: "#c3c8d0", text: "#16181d", muted: "#565d69",
  accent: "#c2410c", accentText: "#ffffff", highlight: "#ffe8d6", focus: "#0b57d0", lines: "#ffffff",
  heads: ["#0060a8", "#b84a00", "#00795b", "#b0307a", "#6b5900", "#6a3fb5", "#8a4b2a", "#23272f"],
  maskedFill: "#f4f5f7", hatch: "#a3abb8", missingFill: "#fdeef2", missing: "#d0607f",
};

export const DARK = {
  name: "dark", scheme: "dark", background: "#14161a", surface: "#1e2127", border: "#454b56", text: "#eceef2", muted: "#a9b0bc",
  accent: "#ff9a4d", accentText: "#14161a", highlight: "#4a2d14", focus: "#8ab4f8", lines: "#14161a",
  heads: ["#56b4e9", "#ff9a4d", "#3ed6a5", "#f29bc8", "#e6d94a", "#b79cff", "#d9a27e", "#f2f2f2"],
  maskedFill: "#1e2127", hatch: "#5f6876", missingFill: "#3a1420", missing: "#a8415f",
};

/** The system's own colours, where the user forces them. */
export function forcedTheme(host) {
  const probe = document.createElement("span");
  host.append(probe);
  const system = (name) => { probe.style.color = name; return getComputedStyle(probe).color; };
  const dark = luminance(channelsOf(system("Canvas"))) < 0.18;
  const theme = {
    ...(dark ? DARK : LIGHT), name: `forced ${dark ? "dark" : "light"}`, forced: true, background: system("Canvas"), surface: system("Canvas"),
    border: system("CanvasText"), text: system("CanvasText"), muted: system("CanvasText"), accent: system("Highlight"),
    accentText: system("HighlightText"), highlight: system("Canvas"), focus: system("Highlight"),
    lines: system("Canvas"), heads: Array(8).fill(system("CanvasText")),
    maskedFill: system("Canvas"), hatch: system("GrayText"), missingFill: system("Canvas"), missing: system("GrayText"),
  };
  probe.remove();
  return theme;
}

/** Forced colours leave one colour for all heads: their dashes and numbers tell them apart, so more dashes are needed. */
function forcedStyle(head, theme) {
  const base = DASHES[head % DASHES.length];
  const stretch = 1 + Math.floor(head / DASHES.length);
  return { color: theme.heads[0], dash: base.length ? base.map((length) => length * stretch) : stretch > 1 ? [24 * stretch, 3] : [] };
}

/** A theme whose hatches do not compete with the numbers beside them. */
export const softened = (theme) => ({ ...theme, hatch: theme.border });
