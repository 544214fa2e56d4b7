// @ts-check

/** Every word of the viewer, in English and Chinese: [English, 中文]. `{name}` is filled in; `{count:line|lines}` chooses by a number. */
export const WORDS = {
  // --- the views' names ---
  pattern: ["Pattern", "图样"],
  lines: ["Lines", "连线"],
  words: ["Words", "文字"],
  grid: ["Grid", "网格"],
  walk: ["Walk", "逐步计算"],
  image: ["Image", "图像"],
  sound: ["Sound", "声音"],
  long: ["Overview", "概览"],
};
