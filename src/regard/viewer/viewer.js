// The viewer, joined from the modules in viewer/modules by viewer/join.py: change those.

// state.js

const isCount = (value) => Number.isSafeInteger(value) && value >= 0;

const isName = (value) => typeof value === "string" && /^[\w -]{1,40}$/.test(value);

const isFlag = (value) => typeof value === "boolean";

const isNumber = (value) => Number.isFinite(value);

const areCounts = (value) => Array.isArray(value) && value.length <= 4096 && value.every(isCount);

const isCell = (value) => isCount(value?.row) && isCount(value?.column) && Object.keys(value).length === 2;

const orNull = (check) => (value) => value === null || check(value);

const isHead = (value) => isCount(value?.record) && (value.head === null || isCount(value.head)) && Object.keys(value).length === 2;

/**
 * All that a viewer's state is: the value that it starts with, and what a value from elsewhere must be.
 * @type {Record<string, [any, (value: any) => boolean]>}
 */
const FIELDS = {
  view: ["pattern", isName],
  record: [0, isCount],
  head: [0, orNull(isCount)], // null: the mean of all
  scale: ["linear", isName],
  words: [false, isFlag],
  hideSpecial: [false, isFlag],
  overlay: ["colours", isName],
  pooling: ["maximum", isName],
  locked: [[], areCounts], // the rows that stay chosen
  heads: [null, orNull(areCounts)], // those with lines; null: all
  steps: [0, isCount],
  step: ["weights", isName],
  kept: [null, orNull(isCell)],
  other: [null, orNull(isHead)], // what the view of differences takes away
  zoom: [1, isNumber],
  theme: ["auto", isName],
};

/** What the place where it is shown decides: no step of undo, and not in the address. */
const PASSING = ["zoom", "theme"];

/** @returns {any} what a new viewer shows */
const initialState = () => Object.fromEntries(Object.entries(FIELDS).map(([name, [value]]) => [name, structuredClone(value)]));

/** The fields of a state that another viewer or the same one later can show again. */
const lasting = (state) => Object.fromEntries(Object.keys(FIELDS).filter((name) => !PASSING.includes(name)).map((name) => [name, state[name]]));

/** The fields of something from elsewhere that a state has, where their values can be. */
const checkedState = (given) => Object.fromEntries(Object.keys(FIELDS).filter((name) => name in given && FIELDS[name][1](given[name]))
  .map((name) => [name, structuredClone(given[name])]));

/** Whether two places of a view are the same. */
const sameItem = (one, other) => JSON.stringify(one) === JSON.stringify(other);

/** Most steps that can be taken back. */
const MOST_STEPS = 200;

/** The states that were shown, to go back and forth. */
class History {
  constructor() {
    this.forget();
  }

  forget() {
    this.past = [];
    this.future = [];
    this.now = null;
  }

  /** Remembers what is shown; whether it is another state than before. */
  note(state) {
    const text = JSON.stringify(lasting(state));
    if (text === this.now) return false;
    if (this.now !== null) {
      this.past.push(this.now);
      if (this.past.length > MOST_STEPS) this.past.shift();
      this.future = [];
    }
    this.now = text;
    return true;
  }

  /** The state before; null where there is none. */
  undo() {
    return this.step(this.past, this.future);
  }

  /** The state that the last undo left. */
  redo() {
    return this.step(this.future, this.past);
  }

  step(from, to) {
    if (!from.length) return null;
    to.push(this.now);
    this.now = from.pop();
    return JSON.parse(this.now);
  }
}

// decoding.js

const ROOT_STEPS = 253;

const NAN_CODE = 255;

/** The weights of all codes relative to the maximum, and the largest error of each. */
const CODE_VALUES = Float64Array.from({ length: 256 }, (_, code) =>
  (code === NAN_CODE ? NaN : (Math.max(code - 1, 0) / ROOT_STEPS) ** 2));

const CODE_ERRORS = Float64Array.from({ length: 256 }, (_, code) =>
  (code === 0 || code === NAN_CODE ? 0 : Math.max(code - 1, 0) / ROOT_STEPS ** 2 + 0.25 / ROOT_STEPS ** 2));

/** Base64 of deflated bytes → the bytes. */
async function inflate(text) {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let place = 0; place < binary.length; place += 1) bytes[place] = binary.charCodeAt(place);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** Exact numbers, which travel as planes of bytes. */
async function decodeNumbers(entry) {
  const planes = await inflate(entry.data);
  const size = entry.type === "float64" ? 8 : 4;
  const count = planes.length / size;
  const bytes = new Uint8Array(planes.length);
  for (let plane = 0; plane < size; plane += 1) {
    for (let place = 0; place < count; place += 1) bytes[place * size + plane] = planes[plane * count + place];
  }
  return size === 8 ? new Float64Array(bytes.buffer) : new Float32Array(bytes.buffer);
}

/** Booleans as bytes of 0 and 1. */
async function decodeBits(entry) {
  const packed = await inflate(entry.data);
  const count = entry.shape.reduce((product, length) => product * length, 1);
  return Uint8Array.from({ length: count }, (_, place) => (packed[place >> 3] >> (7 - (place & 7))) & 1);
}

/**
 * What `options.fetchTile` may give: {type, shape, data}, a typed array, or nested lists; null is NaN.
 * @returns {Promise<any>}
 */
async function decodeTile(answer) {
  if (answer && typeof answer === "object" && typeof answer.data === "string") return decodeNumbers(answer);
  if (ArrayBuffer.isView(answer)) return answer;
  if (!Array.isArray(answer)) throw new TypeError("fetchTile must give numbers");
  return Float32Array.from(answer.flat(Infinity), (value) => (value === null ? NaN : Number(value)));
}

// canvases.js

function newCanvas(width, height) {
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, Math.round(width));
  canvas.height = Math.max(1, Math.round(height));
  return canvas;
}

/** Writes pixels into a new canvas; `paint(data)` fills red, green, blue, alpha. */
function pixelCanvas(width, height, paint) {
  const canvas = newCanvas(width, height);
  const context = canvas.getContext("2d");
  const image = context.createImageData(canvas.width, canvas.height);
  paint(image.data);
  context.putImageData(image, 0, 0);
  return canvas;
}

function imageCanvas(bytes, width, height) {
  return pixelCanvas(width, height, (data) => {
    for (let pixel = 0; pixel < width * height; pixel += 1) {
      for (let channel = 0; channel < 3; channel += 1) data[4 * pixel + channel] = bytes[3 * pixel + channel];
      data[4 * pixel + 3] = 255;
    }
  });
}

/** Shades of grey, the lowest frequency at the bottom, dark for loud as in printed spectrograms. */
function spectrogramCanvas(bytes, bins, frames) {
  return pixelCanvas(frames, bins, (data) => {
    for (let bin = 0; bin < bins; bin += 1) {
      for (let frame = 0; frame < frames; frame += 1) {
        const pixel = 4 * ((bins - 1 - bin) * frames + frame);
        data[pixel] = data[pixel + 1] = data[pixel + 2] = 255 - 0.9 * bytes[bin * frames + frame];
        data[pixel + 3] = 255;
      }
    }
  });
}

// text.js

const LONGEST_LABEL = 28;

const segmenter = typeof Intl !== "undefined" && Intl.Segmenter ? new Intl.Segmenter() : null;

/** What stands for characters that have no shape of their own; `visible` of regard.pictures.fonts has the same. */
const MARKS = { " ": "\u2423", "\t": "\u21e5", "\n": "\u21b5", "\u007f": "\u2421" };

const CHARACTER_NAMES = { " ": "space", "\t": "tab", "\n": "newline", "\r": "carriage return", "\u00a0": "no-break space",
  "\u00ad": "soft hyphen", "\u200b": "zero-width space", "\u200c": "zero-width non-joiner", "\u200d": "zero-width joiner",
  "\u200e": "left-to-right mark", "\u200f": "right-to-left mark", "\u3000": "ideographic space", "\ufeff": "byte order mark" };

/** Characters without ink: controls, formats, halves, separators, fillers. */
// eslint-disable-next-line no-misleading-character-class
const INKLESS = /[\p{Cc}\p{Cf}\p{Cs}\p{Z}\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0]/u;

const MARK = /\p{M}/u;

const SELECTOR = /[\u180b-\u180d\u180f\ufe00-\ufe0f\u{e0100}-\u{e01ef}]/u;

/** Whether a joiner or selector does something to the character before it: it does in emoji and in scripts that join. */
const shapes = (before) => before !== undefined && before >= "\u0590" && !INKLESS.test(before);

/** A character as it is shown, between two others; null where it is shown as it is. */
function mark(character, before, after) {
  if (character === "\u200c" || character === "\u200d") {
    if (shapes(before) && shapes(after)) return null;
  } else if (SELECTOR.test(character)) {
    if (shapes(before) || /[#*0-9\u00a9\u00ae]/.test(before ?? "")) return null;
  } else if (character === " ") {
    return before !== undefined && after !== undefined && before !== " " && after !== " " ? null : MARKS[" "];
  } else if (!INKLESS.test(character)) {
    return null;
  }
  return MARKS[character] ?? (character < " " ? String.fromCodePoint(0x2400 + character.codePointAt(0)) : escaped(character));
}

function escaped(character) {
  const code = character.codePointAt(0).toString(16);
  return code.length > 4 ? `\\U${code.padStart(8, "0")}` : code.length > 2 ? `\\u${code.padStart(4, "0")}` : `\\x${code.padStart(2, "0")}`;
}

/** A whole token as text that is seen: different tokens look different. */
function visibleText(text) {
  if (text === "") return "\u2205";
  const characters = Array.from(text);
  let marked = true; // a combining mark needs a letter that is shown
  return characters.map((character, place) => {
    const shown = mark(character, characters[place - 1], characters[place + 1]);
    if (shown !== null) { marked = true; return shown; }
    const alone = marked && MARK.test(character);
    marked = false;
    return alone ? `\u25cc${character}` : character;
  }).join("");
}

/** The names of the characters of a token that are shown by marks or by no font, in brackets; "" where there is none. */
function markNames(text) {
  const characters = Array.from(text.slice(0, 200));
  const names = characters.filter((character, place) => /[\p{Co}\p{Cn}]/u.test(character)
    || mark(character, characters[place - 1], characters[place + 1]) !== null)
    .map((character) => CHARACTER_NAMES[character] ?? `U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`);
  const counts = new Map();
  for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1);
  const texts = [...counts].map(([name, count]) => (count > 1 ? `${count} \u00d7 ${name}` : name));
  if (text === "") return " (empty token)";
  return texts.length ? ` (${texts.slice(0, 4).join(", ")}${texts.length > 4 ? ", \u2026" : ""})` : "";
}

/** A token as a short label: visible, and cut after a number of characters as a reader counts them. */
function shortText(text, limit = LONGEST_LABEL) {
  const shown = visibleText(text.length > 12 * limit ? text.slice(0, 12 * limit) : text);
  const clusters = segmenter ? Array.from(segmenter.segment(shown), (part) => part.segment) : Array.from(shown);
  return clusters.length > limit || text.length > 12 * limit ? `${clusters.slice(0, limit - 1).join("")}\u2026` : shown;
}

/** A name cut in its middle, since names of layers differ at their ends. */
function middleText(text, limit) {
  const shown = visibleText(text.length > 24 * limit ? `${text.slice(0, 12 * limit)}${text.slice(-12 * limit)}` : text);
  const clusters = segmenter ? Array.from(segmenter.segment(shown), (part) => part.segment) : Array.from(shown);
  if (clusters.length <= limit) return shown;
  const behind = Math.ceil((limit - 1) / 2);
  return `${clusters.slice(0, limit - 1 - behind).join("")}\u2026${clusters.slice(-behind).join("")}`;
}

/** A token inside a sentence: quoted, kept from changing the direction of the words around it, its marks named. */
const quoted = (text) => `\u201c\u2068${visibleText(text)}\u2069\u201d${markNames(text)}`;

/** Sub-words joined, without the marks "##", "·" (within), "▁", "Ġ", " " (before) and "@@" (behind). */
function joinPieces(pieces) {
  const several = pieces.length > 1;
  return pieces.map((piece, number) => {
    let text = piece;
    if (number === 0 && (several || piece.length > 1)) text = piece.replace(/^(?:\u2581|\u0120| )/u, "");
    if (number > 0) text = piece.replace(/^(?:##|\u00b7)/u, "");
    return number < pieces.length - 1 ? text.replace(/@@$/u, "") : text;
  }).join("");
}

// numbers.js

const counted = (count) => count.toLocaleString("en-US");

/**
 * A weight as text with no more digits than are known.
 * @param {number} value
 * @param {number} error the largest distance from the true number; 0 for exact numbers
 */
function formatWeight(value, error = 0) {
  if (Number.isNaN(value)) return "NaN";
  if (error > 0) {
    const digits = Math.min(8, Math.max(0, Math.ceil(-Math.log10(error))));
    const bound = Math.ceil((error + 0.5 * 10 ** -digits) * 10 ** digits) / 10 ** digits;
    return `${value.toFixed(digits)} \u00b1 ${bound.toFixed(digits)}`;
  }
  return formatNumber(value);
}

/** An exact number: four decimals, more for small ones. */
function formatNumber(value) {
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "\u221e" : "\u2212\u221e";
  const size = Math.abs(value);
  if (size === 0) return "0";
  const sign = value < 0 ? "\u2212" : "";
  if (size < 0.001 || size >= 1e6) return sign + size.toExponential(3).replace("e-", "e\u2212").replace("e+", "e");
  return sign + (size >= 1000 ? size.toFixed(2) : size.toFixed(4));
}

/** A weight in a cell: two decimals, no leading zero. */
function cellText(value) {
  const text = value.toFixed(2);
  return text.startsWith("0.") ? text.slice(1) : text;
}

/** A weight in a sentence: two decimals, one digit of small ones. */
const shortWeight = (value) => (value === 0 ? "0" : value >= 0.01 ? value.toFixed(2)
  : value >= 0.0001 ? String(Number(value.toPrecision(1))) : "<\u200a0.0001");

const clamp = (value, low, high) => Math.min(high, Math.max(low, value));

const short = (value) => String(Math.round(value * 100) / 100);

/** A grid of tick positions in seconds that do not crowd. */
function secondsStep(seconds, width) {
  const most = Math.max(2, Math.floor(width / 64));
  const rough = seconds / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= rough);
}

/** Three digits: a colour that is seen differs by more. */
const legendNumber = (value) => (value === 0 ? "0" : value >= 0.001 ? String(Number(value.toPrecision(3)))
  : `${Number(value.toPrecision(3)).toExponential()}`.replace("e-", "e\u2212"));

function niceStep(rough) {
  const power = 10 ** Math.floor(Math.log10(Math.max(rough, 1)));
  return Math.max(1, [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= rough) ?? 1);
}

/** The least and the largest finite number. */
function finiteRange(matrix) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of matrix) {
    if (Number.isFinite(value)) { low = Math.min(low, value); high = Math.max(high, value); }
  }
  return low <= high ? [low, high] : [0, 0];
}

/** The positions of the largest numbers, the largest first (NaN before all); with a chosen one among them or behind them. */
function strongest(values, most, chosen = null) {
  const size = (position) => (Number.isNaN(values[position]) ? Infinity : values[position]);
  const order = Array.from(values.keys()).sort((a, b) => size(b) - size(a) || a - b);
  const positions = order.slice(0, most);
  if (chosen !== null && !positions.includes(chosen)) positions[positions.length - 1] = chosen;
  return positions;
}

// scales.js

/** Decades that the logarithmic scale shows below the largest weight. */
const DECADES = 4;

const SCALES = {
  linear: { label: "linear scale", shade: (part) => part },
  root: { label: "square-root scale", shade: (part) => Math.sqrt(part) },
  log: { label: `log scale, ${DECADES} decades`, shade: (part) => (part > 0 ? Math.max(0, 1 + Math.log10(part) / DECADES) : 0) },
  row: { label: "linear scale, per row", shade: (part) => part },
};

/** How many even shares the last colour of a scale is at least, so that weights that are nearly even look even. */
const EVEN_SHARES = 4;

/**
 * The weight of a scale's last colour.
 * @param {number} largest of the weights that are shown
 * @param {number} keys that a query shares its weight among
 */
const scaleEnd = (largest, keys) => Math.max(largest, Math.min(1, EVEN_SHARES / Math.max(1, keys)));

/** The weight of a shade from 0 to 1: the inverse of the scale, relative to the largest weight. */
function scaleInverse(scale, shade) {
  if (scale === "root") return shade * shade;
  if (scale === "log") return shade <= 0 ? 0 : 10 ** ((shade - 1) * DECADES);
  return shade;
}

/** The scale of a view that has no rows to scale each by itself. */
const withoutRows = (scale) => (scale === "row" ? "linear" : scale);

// words.js

/** Every word of the viewer, in English and Chinese: [English, 中文]. `{name}` is filled in; `{count:line|lines}` chooses by a number. */
const WORDS = {
  // --- the first screen ---
  attentionWeights: ["Attention weights", "注意力权重"],
  attentionView: ["attention view", "注意力视图"],
  views: ["Views", "视图"],
  settings: ["Settings", "设置"],
  more: ["More", "更多"],
  layer: ["Layer", "层"],
  head: ["Head", "头"],
  heads: ["Heads", "头"],
  layerNumber: ["layer {layer}", "第 {layer} 层"],
  headNumber: ["head {head}", "第 {head} 头"],
  oneHead: ["one head", "单头"],
  meanOfHeads: ["mean of {count} heads", "{count} 个头的平均"],
  meanOfAll: ["mean of all", "所有头的平均"],
  kind_self: ["self", "自注意力"],
  kind_causal: ["causal", "因果自注意力"],
  kind_cross: ["cross", "交叉注意力"],
  layerCount: ["{count} {count:layer|layers}", "{count} 层"],
  attentionCount: ["{count} attentions", "{count} 个注意力"],
  headCount: ["{count} {count:head|heads}", "{count} 头"],
  eachHead: ["every head of {what}", "{what}：每一个头"],
  previousHead: ["Previous head ([)", "上一个头（[）"],
  nextHead: ["Next head (])", "下一个头（]）"],
  all: ["All", "全部"],
  none: ["None", "全不"],
  hideAllHeads: ["Hide all heads", "隐藏所有的头"],
  showAllHeads: ["Show all heads", "显示所有的头"],
  overlay: ["Overlay", "叠加"],
  overlay_colours: ["colours", "颜色"],
  overlay_veil: ["veil", "遮罩"],
  overview: ["Overview", "概览"],
  pooling_maximum: ["largest", "最大值"],
  pooling_mean: ["mean", "平均值"],
  goTo: ["Go to", "转到"],
  findings: ["{count} {count:finding|findings}", "{count} 个发现"],
  calculation: ["Calculation", "计算"],
  matrix: ["Matrix", "矩阵"],
  nothingToShow: ["There is no attention to show.", "没有可显示的注意力。"],
  cannotBeShown: ["This view cannot be shown: {reason}", "无法显示此视图：{reason}"],
  lockedRows: ["locked: {names}", "已锁定：{names}"],
  // --- the menu ---
  scale: ["Scale", "色阶"],
  scale_linear: ["linear scale", "线性色阶"],
  scale_root: ["square-root scale", "平方根色阶"],
  scale_log: ["log scale, 4 decades", "对数色阶（4 个数量级）"],
  scale_row: ["per row", "逐行"],
  wholeWords: ["Whole words", "合并为整词"],
  hideSpecial: ["Hide special tokens", "隐藏特殊词元"],
  theme: ["Theme", "主题"],
  theme_auto: ["auto", "自动"],
  theme_light: ["light", "浅色"],
  theme_dark: ["dark", "深色"],
  zoomIn: ["Zoom in", "放大"],
  zoomOut: ["Zoom out", "缩小"],
  fit: ["Show the whole map", "显示整张图"],
  fitText: ["Fit", "适应窗口"],
  undo: ["Undo", "撤销"],
  redo: ["Redo", "重做"],
  undoKeys: ["Undo (Ctrl+Z)", "撤销（Ctrl+Z）"],
  redoKeys: ["Redo (Ctrl+Shift+Z)", "重做（Ctrl+Shift+Z）"],
  copyLink: ["Copy link", "复制链接"],
  copyLinkLong: ["Copy a link that opens what is shown", "复制链接，打开后显示当前所见"],
  linkCopied: ["Link copied", "已复制链接"],
  linkNotCopied: ["Copy it from the address bar", "请从地址栏复制"],
  savePng: ["Save the picture as PNG", "将图保存为 PNG"],
  saveSvg: ["Save the picture as SVG", "将图保存为 SVG"],
  // --- the sentence ---
  gives: ["\u201c{query}\u201d gives {percent} of its attention to \u201c{key}\u201d.", "\u201c{query}\u201d把 {percent} 的注意力给了\u201c{key}\u201d。"],
  givesWeight: ["\u201c{query}\u201d gives \u201c{key}\u201d the weight {weight}.", "\u201c{query}\u201d给\u201c{key}\u201d的权重是 {weight}。"],
  mayNotSee: ["\u201c{query}\u201d cannot look at \u201c{key}\u201d: the mask hides it.", "\u201c{query}\u201d看不到\u201c{key}\u201d：它被掩码遮住了。"],
  noNumber: ["The weight of \u201c{query}\u201d for \u201c{key}\u201d is no number (NaN).", "\u201c{query}\u201d对\u201c{key}\u201d的权重不是数（NaN）。"],
  seesNothing: ["\u201c{query}\u201d cannot look at any word: the mask hides all.", "\u201c{query}\u201d看不到任何词：全部被掩码遮住。"],
  lookedAt: ["\u201c{query}\u201d looks at \u201c{key}\u201d most: with {percent} of its attention.", "\u201c{query}\u201d看\u201c{key}\u201d最多：用了 {percent} 的注意力。"],
  seenByNobody: ["No word can look at \u201c{key}\u201d.", "没有词能看到\u201c{key}\u201d。"],
  moreKeys: ["{count} more {weight}", "其余 {count} 个 {weight}"],
  evenShare: ["uniform would be {weight}", "均匀分配时为 {weight}"],
  whatIsThis: ["What is this?", "这是什么？"],
  // --- the legend and the axes ---
  weightTitle: ["attention weight", "注意力权重"],
  partOfRow: ["part of the row's largest", "占该行最大值的比例"],
  evenMark: ["uniform {weight}", "均匀 {weight}"],
  zero: ["zero", "零"],
  masked: ["masked", "被掩蔽"],
  mergedWords: ["whole words (keys added, queries averaged)", "整词（键相加，查询取平均）"],
  axisQuery: ["asks (query) \u2193", "发问（查询）\u2193"],
  axisKey: ["looked at (key) \u2192", "被看（键）\u2192"],
  patternHelp: ["Point at a cell, or move with the arrow keys. Click or Enter keeps a row, Esc lets go.", "指向一个格子，或用方向键移动。点击或回车键保留一行，Esc 取消。"],
  // --- the cards ---
  cardQuery: ["Who asks: the query", "谁在问：查询"],
  cardKey: ["Who is looked at: the key", "谁被看：键"],
  cardWeight: ["How much: the weight", "看多少：权重"],
  cardHeads: ["Layers and heads", "层与头"],
  cardHead: ["One head", "一个头"],
  cardLayers: ["Layers", "层"],
  cardSide: ["Heads", "头"],
  cardRow: ["Each row is a word that asks. This row belongs to \u201c{query}\u201d.", "每一行是一个发问的词。这一行属于\u201c{query}\u201d。"],
  cardColumn: ["Each column is a word that is looked at. This column belongs to \u201c{key}\u201d.", "每一列是一个被看的词。这一列属于\u201c{key}\u201d。"],
  cardCell: ["{sentence} Each row adds up to 1.", "{sentence}每一行加起来等于 1。"],
  cardLeft: ["On the left are the words that ask, such as \u201c{query}\u201d.", "左边是发问的词，例如\u201c{query}\u201d。"],
  cardRight: ["On the right are the words that are looked at, such as \u201c{key}\u201d.", "右边是被看的词，例如\u201c{key}\u201d。"],
  cardLine: ["A line is attention; a wider line is more of it. {sentence}", "一条线是注意力，线越宽注意力越多。{sentence}"],
  cardPoint: ["Point at a word to let it ask, such as \u201c{query}\u201d. Click to keep it.", "指向一个词，让它发问，例如\u201c{query}\u201d。点击可保留。"],
  cardShade: ["The stronger the colour, the more it is looked at. {sentence}", "颜色越强，被看得越多。{sentence}"],
  cardHeadsText: ["Layers come one after another. In each, several heads look side by side, each in its own way. Choose another one here.", "层一层接一层；每层里有几个头同时各看各的。在这里选择另一个头。"],
  cardThumbnail: ["Each small map is one head: its rows ask, its columns are looked at. Click to open it.", "每张小图是一个头：行发问，列被看。点击打开。"],
  cardLayersText: ["Layers come one after another, from the top down: each works on what the one above it gave.", "层从上到下依次进行：每层处理上一层的结果。"],
  cardSideText: ["Heads of one layer work side by side, each in its own way.", "同一层的头并排工作，各看各的。"],
  cardWalk: ["This is the calculation of one head with its real numbers, step by step.", "这是一个头的逐步计算，使用真实的数。"],
  cardLong: ["A map of a long text: rows ask, columns are looked at. Zoom in to see single weights.", "长文本的图：行发问，列被看。放大可看到单个权重。"],
  cardOf: ["{number} of {count}", "第 {number} 张，共 {count} 张"],
  previousCard: ["Previous card", "上一张"],
  nextCard: ["Next card", "下一张"],
  closeCards: ["Close", "关闭"],
  closeCardsLong: ["Close (Esc)", "关闭（Esc）"],
  // --- the views' names ---
  pattern: ["Pattern", "图样"],
  lines: ["Lines", "连线"],
  words: ["Words", "文字"],
  grid: ["Grid", "网格"],
  walk: ["Walk", "逐步计算"],
  image: ["Image", "图像"],
  sound: ["Sound", "声音"],
  long: ["Overview", "概览"],

  // --- what a head does ---
  unit_tokens: ["token", "词元"],
  unit_grid: ["patch", "图块"],
  unit_frames: ["frame", "帧"],
  does_previous: ["previous {unit}", "前一个{unit}"],
  does_previous_brief: ["previous", "前一个"],
  does_next: ["next {unit}", "后一个{unit}"],
  does_next_brief: ["next", "后一个"],
  does_own: ["its own {unit}", "自身{unit}"],
  does_own_brief: ["itself", "自身"],
  does_offset: ["{unit} at {away}", "相距 {away} 的{unit}"],
  does_offset_brief: ["at {away}", "相距 {away}"],
  does_near: ["nearby, at most 2 away", "附近（相距不超过 2）"],
  does_near_brief: ["nearby", "附近"],
  does_neighbours: ["neighbouring patches", "相邻图块"],
  does_neighbours_brief: ["neighbours", "相邻"],
  does_in_step: ["in step with the source", "与源序列同步"],
  does_in_step_brief: ["in step", "同步"],
  does_same_word: ["other parts of its word", "同一单词的其他部分"],
  does_same_word_brief: ["same word", "同一单词"],
  does_same_token: ["same token elsewhere", "别处的相同词元"],
  does_same_token_brief: ["same token", "相同词元"],
  does_induction: ["induction: what followed the same token", "归纳：相同词元之后的词元"],
  does_induction_brief: ["induction", "归纳"],
  does_first: ["first {unit}", "首个{unit}"],
  does_first_brief: ["first", "首个"],
  does_special: ["special tokens", "特殊词元"],
  does_special_brief: ["special", "特殊"],
  does_even: ["nearly even over all", "近乎均匀"],
  does_even_brief: ["even", "均匀"],
  names_here: ["a head is named if at least {excess} % of its weight ({sink} % for first and special tokens), beyond what uniform attention would give, goes there: {spreads} deviations more than pointing at random",
    "命名标准：超出均匀注意力的部分至少占权重的 {excess} %（首个与特殊词元为 {sink} %），且高出随机指向 {spreads} 个标准差"],
  names_survey: ["a head is named if at least {share} % of its weight over the surveyed texts goes there", "命名标准：在所统计的文本中至少占权重的 {share} %"],

  // --- the difference of two heads ---
  difference: ["Difference", "差异"],
  differenceHelp: ["Arrow keys move the cell, + and \u2212 zoom, 0 shows the whole map.", "方向键移动单元格，+ 和 \u2212 缩放，0 显示整张图。"],
  differenceOf: ["{one} \u2212 {other}", "{one} \u2212 {other}"],
  differenceBar: ["difference of weights", "权重之差"],
  differenceOther: ["minus", "减去"],
  differenceCell: ["{query} \u2192 {key}: {one} \u2212 {other} = {difference}", "{query} \u2192 {key}：{one} \u2212 {other} = {difference}"],
  differenceLeftOut: ["only tokens that both have are compared; left out: {tokens}", "只比较双方都有的词元；未比较：{tokens}"],
  differenceNone: ["There is no difference to show: fewer than half of the tokens are the same in both.", "无法显示差异：两边相同的词元不到一半。"],
  differenceSize: ["There is no difference to show: the two maps have different sizes.", "无法显示差异：两张图的大小不同。"],
  differenceZero: ["zero everywhere: both are the same", "处处为零：两者相同"],
  differenceLoading: ["The second head is being read \u2026", "正在读取第二个头 \u2026"],

  // --- the page ---
  pageWhat: ["See what a model looks at while it reads.", "看模型阅读时在看什么。"],
  pageTitle: ["models", "模型"],
  pageText: ["Text", "文本"],
  pageImage: ["Image", "图像"],
  pageSound: ["Sound", "声音"],
  pageFile: ["File", "文件"],
  pageMost: ["at most {size}", "最大 {size}"],
  pageTyped: ["{count} of {most} characters", "{count} / {most} 个字符"],
  pageTooLong: ["The text has {count} characters, more than the {most} that are read; shorten it.",
    "文本有 {count} 个字符，超过可读的 {most} 个；请缩短。"],
  pageTooLarge: ["The file is larger than {size}; choose a smaller one.", "文件大于 {size}；请选择较小的文件。"],
  pageTokens: ["reads up to {count} tokens", "最多读 {count} 个词元"],
  pageStart: ["Type a text or click an example. The picture then shows, for each word, which words the model looks at.",
    "输入文本或点击示例。图中会显示模型在处理每个词时看哪些词。"],
  pageStartImage: ["Choose an image or click an example. The picture then shows which parts of it the model looks at.",
    "选择图像或点击示例。图中会显示模型在看图像的哪些部分。"],
  pageStartSound: ["Choose a sound or click an example. The picture then shows which moments of it the model listens to.",
    "选择声音或点击示例。图中会显示模型在听哪些时刻。"],
  pageTry: ["Try an example", "试试示例"],
  pageTrySample: ["Try an example of its validation data", "试试验证数据中的示例"],
  pageReadFile: ["Read {name}", "读取 {name}"],
  page_coreference: ["what the pronoun or name refers to", "代词或名字指的是谁"],
  page_repetition: ["what came after the same word before", "同一个词之前后面是什么"],
  page_agreement: ["subject and verb, far apart", "相隔很远的主语和动词"],
  pageModels: ["Models on this machine", "本机上的模型"],
  pageModelsHelp: ["Click one to open it. It is loaded then, and stays on this machine.", "点击即可打开；此时才加载，且只在本机运行。"],
  pageRuns: ["Runs of regard", "regard 的训练结果"],
  pageDownloaded: ["Hugging Face models", "Hugging Face 模型"],
  pageAll: ["All models", "全部模型"],
  pageModel: ["Model {name}", "模型 {name}"],
  pageLoading: ["Loading {name} \u2026", "正在加载 {name} \u2026"],
  pageCompare: ["Compare", "比较"],
  pageAdd: ["Add another", "再加一个"],
  pageRemove: ["Remove", "移除"],
  pageRemoveModel: ["Remove {name}", "移除 {name}"],
  pageSameText: ["One text for all", "共用一段文本"],
  pageSameInput: ["One input for all", "共用一个输入"],
  pageLinked: ["Linked", "联动"],
  pageLinkedHelp: ["The panes show the same view, layer, head and token.", "各窗格显示相同的视图、层、头和词元。"],
  pageStale: ["Attention of: {text}", "以下注意力属于：{text}"],
  pageDifference: ["Difference: A \u2212 B", "差异：A \u2212 B"],
  pageDifferenceWait: ["When both panes show attention, their difference stands here.", "两个窗格都显示注意力后，这里显示它们的差异。"],
  pageDifferenceLong: ["There is no difference to show: one of the texts is so long that only an overview of it is shown.",
    "无法显示差异：其中一段文本太长，只能显示概览。"],
  pageDifferenceKinds: ["There is no difference to show: the panes show two kinds of attention.", "无法显示差异：两个窗格显示的是不同种类的注意力。"],
  pageOthers: ["all others", "其余全部"],
  pageNoServer: ["The server does not answer. Is the command still running?", "服务器没有响应。命令还在运行吗？"],
  pageStatus: ["the server answered {status}", "服务器返回 {status}"],
  pageNoStart: ["The page could not begin: {message}", "页面无法启动：{message}"],
};

// opening.js

/** The view that fits the first record best. */
function firstView(app) {
  const record = app.records[0];
  const ofWords = record?.queries.length === 1 && record.keys.length > 1 ? "words" : "pattern";
  const best = !record ? "walk" : record.large ? "long" : { grid: "image", frames: "sound" }[record.keys.kind] ?? ofWords;
  return app.views.find((one) => one.name === best && one.available(app)) ?? app.views.find((one) => one.available(app));
}

// views/view.js

/**
 * One way to see records. Each view has: available(app), size(app), draw(app, pen, win), hit(app, x, y, win), place(app, item),
 * move(app, item, dx, dy, jump), start(app), has(app, item), describe(app, item), activate(app, item), legend(app). `app` is the
 * viewer; `win` is the part of the picture that is seen; an item is what can be pointed at. A view may have: sentence(app, item), the
 * sentence {text, shares} of an item, or of all where it is null; explained(app), what the cards explain, see `explained`.
 */
class View {
  name = "";

  title = "";

  /** The controls that it needs, by their names in `Controls`. */
  controls = [];

  /** Whether its map can be made larger. */
  zooms = false;

  /** Whether its rows can have scales of their own. */
  scalesRows = true;

  /** What the keys do, below the view. */
  help = "";

  /** Whether the view itself says what is pointed at, so that no tooltip is needed. */
  quiet = false;

  /** Whether it shows the table of one head, of which the sentence below speaks. */
  ofTables = false;

  /** What was computed for the last picture; see `forget`. */
  cache = null;

  sumCache = null;

  /** Gives up what was computed of records that have changed. */
  forget() {
    this.cache = this.sumCache = null;
  }

  /** What the heading says of the heads. */
  headText(app) {
    return app.headText();
  }
}

// address.js

function parsed(text) {
  try {
    return { value: JSON.parse(text) };
  } catch {
    return null;
  }
}

/** A value as text: JSON, and a word as it is where that is no JSON. */
const written = (value) => (typeof value === "string" && !parsed(value) ? value : JSON.stringify(value));

/** What need not be escaped in a fragment, and is easier to read so. */
const READABLE = { "%2C": ",", "%5B": "[", "%5D": "]", "%3A": ":" };

/**
 * A state as the fragment of an address, without "#".
 * @param {object} state
 */
const addressOf = (state) => Object.entries(lasting(state)).filter(([, value]) => value !== undefined).map(([name, value]) =>
  `${name}=${encodeURIComponent(written(value)).replace(/%2C|%5B|%5D|%3A/g, (code) => READABLE[code])}`).join("&");

/**
 * The state that a fragment names: the fields that it has with values that can be; nothing else, whatever it holds.
 * @param {string} fragment with or without "#"
 * @returns {Record<string, any>}
 */
function stateOf(fragment) {
  const found = {};
  for (const part of fragment.replace(/^#/, "").split("&")) {
    const at = part.indexOf("=");
    if (at < 1) continue;
    try {
      const text = decodeURIComponent(part.slice(at + 1));
      const json = parsed(text);
      Object.defineProperty(found, part.slice(0, at), { value: json ? json.value : text, enumerable: true, configurable: true });
    } catch {
      continue; // no escape of UTF-8
    }
  }
  return checkedState(found);
}

// head_statistics.js

/** The largest distance whose share is taken, as of `regard.survey`. */
const OFFSETS = 4;

/** Keys at most so far from the query's own place are near it. */
const NEAR = 2;

/** What a head may do; the shares are those of `regard.watching.STATISTICS`, and two more. */
const PATTERNS = [
  "first", "special", "same_token", "induction",
  ...Array.from({ length: 2 * OFFSETS + 1 }, (_, number) => offsetName(number - OFFSETS)), "same_word", "near",
];

/** Patterns whose mean is over those queries alone that have such a key. */
const WHERE_ANY = new Set(["same_token", "induction", "same_word"]);

/** Tokens that stand for no text, where a tokenizer did not say which do. */
const SPECIAL = /^(?:\[(?:CLS|SEP|PAD|MASK|BOS|EOS|UNK)\]|<\/?s>|<(?:pad|bos|eos|unk|mask|cls|sep)>|<\|[^|]*\|>)$/i;

/** A survey's name of an offset. */
function offsetName(offset) {
  return offset ? `offset ${offset > 0 ? "+" : "-"}${Math.abs(offset)}` : "offset 0";
}

/** Whether each position of an axis is a special token. */
function specialPositions(axis) {
  return Uint8Array.from({ length: axis.length }, (_, position) =>
    Number(axis.special.has(position) || (axis.kind === "tokens" && SPECIAL.test(axis.entry.tokens[position]))));
}

/** The number of the word of each position. */
function wordNumbers(axis) {
  const numbers = new Int32Array(axis.length);
  axis.groups(true).forEach(([start, stop], word) => numbers.fill(word, start, stop));
  return numbers;
}

/** What the positions of a record are to each other; the same for all of its heads. */
class Relations {
  constructor(record) {
    const { queries, keys } = record;
    this.record = record;
    this.positional = record.entry.kind !== "cross" && queries.kind === keys.kind;
    this.shift = this.positional ? keys.length - queries.length : 0; // the last query stands at the last key
    this.grid = keys.kind === "grid" ? keys.entry : null;
    this.specialQueries = specialPositions(queries);
    this.specialKeys = specialPositions(keys);
    this.tokens = queries.kind === "tokens" && keys.kind === "tokens";
    const numbers = new Map();
    const numbered = (axis) => Int32Array.from({ length: axis.length }, (_, position) => {
      const text = axis.entry.tokens[position];
      if (!numbers.has(text)) numbers.set(text, numbers.size);
      return numbers.get(text);
    });
    this.queryTokens = this.tokens ? numbered(queries) : null;
    this.keyTokens = this.tokens ? numbered(keys) : null;
    const words = this.positional && this.tokens && keys.hasWords;
    this.words = words ? wordNumbers(keys) : null;
    this.found = this.causal = /** @type {any} */ (null);
  }

  /** For each pair the patterns that it belongs to, as bits in the order of PATTERNS. */
  get pairs() {
    if (!this.found) {
      const [queries, keys] = [this.record.queries.length, this.record.keys.length];
      this.found = new Uint32Array(queries * keys);
      for (let query = 0; query < queries; query += 1) {
        for (let key = 0; key < keys; key += 1) this.found[query * keys + key] = this.of(query, key);
      }
    }
    return this.found;
  }

  /** One byte a pair of a head, 1 where its mask lets the query see the key; null where all do. A causal record without a mask hides what comes later. */
  seen(head) {
    const { record } = this;
    const size = record.queries.length * record.keys.length;
    if (record.visible) return record.maskEntry.shape.length === 3 ? record.visible.subarray(head * size, (head + 1) * size) : record.visible;
    if (record.entry.kind !== "causal") return null;
    this.causal ??= Uint8Array.from({ length: size }, (_, pair) => Number(pair % record.keys.length <= Math.floor(pair / record.keys.length) + this.shift));
    return this.causal;
  }

  /** The patterns that a pair belongs to, as bits. */
  of(query, key) {
    const { keyTokens, queryTokens, specialKeys, positional, words } = this;
    const own = query + this.shift;
    let bits = key === 0 && !this.grid ? FIRST : 0;
    if (specialKeys[key]) return bits | SPECIAL_KEY;
    if (keyTokens && queryTokens && keyTokens[key] === queryTokens[query] && !(positional && key === own)) bits |= SAME_TOKEN;
    if (!positional) return this.inStep(query, key) ? bits | NEAR_KEY : bits;
    const offset = key - own;
    if (offset < 0 && key > 0 && keyTokens && queryTokens && keyTokens[key - 1] === queryTokens[query] && !specialKeys[key - 1]) bits |= INDUCTION;
    if (offset >= -OFFSETS && offset <= OFFSETS && (!this.grid || offset === 0)) bits |= bit(offsetName(offset));
    if (words && offset !== 0 && words[key] === words[own]) bits |= SAME_WORD;
    return this.near(own, key) ? bits | NEAR_KEY : bits;
  }

  /** Whether a key is near a position: a few places away, or a neighbour in the image. */
  near(own, key) {
    if (!this.grid) return Math.abs(key - own) <= NEAR;
    const { columns, leading } = this.grid;
    const [a, b] = [own - leading, key - leading];
    if (a < 0 || b < 0) return false;
    return Math.abs(Math.floor(a / columns) - Math.floor(b / columns)) <= 1 && Math.abs((a % columns) - (b % columns)) <= 1;
  }

  /** Whether query and key of two sequences are equally far from their starts, within a tenth of the keys. */
  inStep(query, key) {
    const [queries, keys] = [this.record.queries.length, this.record.keys.length];
    if (this.grid || queries < 2) return false;
    return Math.abs(key - (query * (keys - 1)) / (queries - 1)) <= Math.max(1, keys / 20);
  }
}

const bit = (name) => 1 << PATTERNS.indexOf(name);
const [FIRST, SPECIAL_KEY, SAME_TOKEN, INDUCTION, SAME_WORD, NEAR_KEY] = ["first", "special", "same_token", "induction", "same_word", "near"].map(bit);

const relationsOf = new WeakMap();

/** The relations of a record, found once. */
function relations(record) {
  if (!relationsOf.has(record)) relationsOf.set(record, new Relations(record));
  return relationsOf.get(record);
}

/** The weights of one head, [queries × keys]. */
function headWeights(record, head, exact = record.exact) {
  const size = record.queries.length * record.keys.length;
  if (exact) return exact.subarray(head * size, (head + 1) * size);
  const { codes } = record;
  const { maximum } = record.entry.codes;
  const weights = new Float64Array(size);
  for (let pair = 0; pair < size; pair += 1) weights[pair] = CODE_VALUES[codes[head * size + pair]] * maximum;
  return weights;
}

/**
 * The statistics of a head of a record that is carried whole, each a mean over its counted queries: those that are not special
 * and see a key. The share of a pattern is the part of a query's weight on its keys; chance is the share that uniform
 * attention over the visible keys would give it, and spread is one standard deviation of the share of a head that
 * gives each query's whole weight to one visible key at random.
 * @returns {{queries: number, entropy: number, relativeEntropy: number, patterns: Record<string, {share: number, chance: number,
 *   spread: number, queries: number}>}} entropy in nats; relative to ln(visible keys)
 */
function headStatistics(record, head) {
  const related = relations(record);
  const { pairs } = related;
  const [weights, seen] = [headWeights(record, head), related.seen(head)];
  const [queries, keys] = [record.queries.length, record.keys.length];
  const size = PATTERNS.length;
  const [totals, chances, variances, counts] = Array.from({ length: 4 }, () => new Float64Array(size));
  const [shares, cells] = [new Float64Array(size), new Float64Array(size)];
  let [counted, entropies, relative, several] = [0, 0, 0, 0];
  for (let query = 0; query < queries; query += 1) {
    if (related.specialQueries[query]) continue;
    shares.fill(0);
    cells.fill(0);
    let [visible, sum, logs] = [0, 0, 0];
    const base = query * keys;
    for (let key = 0; key < keys; key += 1) {
      if (seen && !seen[base + key]) continue;
      visible += 1;
      const value = weights[base + key];
      if (value > 0) { sum += value; logs += value * Math.log(value); }
      for (let bits = pairs[base + key]; bits; bits &= bits - 1) {
        const number = 31 - Math.clz32(bits & -bits);
        cells[number] += 1;
        if (value > 0) shares[number] += value;
      }
    }
    if (!(sum > 0)) continue;
    counted += 1;
    const entropy = Math.log(sum) - logs / sum;
    entropies += entropy;
    if (visible > 1) { relative += entropy / Math.log(visible); several += 1; }
    for (let number = 0; number < size; number += 1) {
      if (!cells[number] && WHERE_ANY.has(PATTERNS[number])) continue;
      const chance = cells[number] / visible;
      counts[number] += 1;
      totals[number] += shares[number] / sum;
      chances[number] += chance;
      variances[number] += chance * (1 - chance);
    }
  }
  const patterns = /** @type {Record<string, any>} */ ({});
  PATTERNS.forEach((name, number) => {
    const count = counts[number];
    patterns[name] = { share: totals[number] / count, chance: chances[number] / count, spread: Math.sqrt(variances[number]) / count, queries: count };
  });
  return { queries: counted, entropy: entropies / counted, relativeEntropy: relative / several, patterns };
}

// steps_data.js

/** The steps of a calculation that have a number for each pair, with what each does. */
const PAIR_STEPS = {
  scores: "query \u00b7 key", scaled: "score \u00d7 scale", capped: "after the score's cap or function", biased: "+ bias",
  masked: "\u2212\u221e where the mask hides a key", weights: "each row normalized",
};

/** One worked calculation of the payload. */
class StepsData {
  constructor(entry) {
    this.entry = entry;
    this.rows = entry.queries.length;
    this.columns = entry.keys.length;
    this.names = Object.keys(entry.matrices);
    this.matrices = {};
    this.ready = null;
    this.decoded = false;
  }

  decode() {
    this.ready ??= this.decodeAll();
    return this.ready;
  }

  async decodeAll() {
    for (const name of this.names) this.matrices[name] = await decodeNumbers(this.entry.matrices[name]);
    this.scale = this.findScale();
    this.decoded = true;
  }

  /** What the scores were multiplied by, read off the largest of them. */
  findScale() {
    const { scores, scaled } = this.matrices;
    if (!scaled) return 1;
    let best = 0;
    for (let cell = 1; cell < scores.length; cell += 1) {
      if (Number.isFinite(scores[cell]) && Number.isFinite(scaled[cell]) && !(Math.abs(scores[cell]) <= Math.abs(scores[best]))) best = cell;
    }
    return scaled[best] / scores[best];
  }

  columnsOf(name) {
    return this.entry.matrices[name].shape[1];
  }

  /** Whether the mask hides a pair. */
  hides(row, column) {
    return this.names.includes("masked") && this.at("masked", row, column) === -Infinity;
  }

  at(name, row, column) {
    return this.matrices[name][row * this.columnsOf(name) + column];
  }
}

// axis.js

/** One side of an attention: what its positions are. */
class Axis {
  constructor(entry) {
    this.entry = entry;
    this.kind = entry.kind;
    this.length = entry.length;
    this.special = new Set(entry.special ?? []);
    this.hasWords = (entry.words ?? []).length > 0 && entry.words.length < entry.length;
    this.picture = null; // a canvas, once decoded
  }

  /** The text of a position. */
  text(position) {
    const { entry } = this;
    if (this.kind === "tokens") return entry.tokens[position];
    if (this.kind === "frames") {
      return `${(position * entry.seconds).toFixed(2)}\u2013${((position + 1) * entry.seconds).toFixed(2)} s`;
    }
    const cell = position - entry.leading;
    return cell < 0 ? `[${position}]` : `row ${Math.floor(cell / entry.columns)}, column ${cell % entry.columns}`;
  }

  /** The positions that are shown as one: words, or single positions. */
  groups(words) {
    if (!words || !this.hasWords) return Array.from({ length: this.length }, (_, position) => [position, position + 1]);
    return this.entry.words.map((start, number) => [start, this.entry.words[number + 1] ?? this.length]);
  }

  /** The text of a group: its pieces without the marks of their tokenizer. */
  groupText([start, stop], words) {
    if (this.kind !== "tokens" || !words || !this.hasWords) return this.text(start);
    return joinPieces(this.entry.tokens.slice(start, stop));
  }

  isSpecial([start, stop]) {
    for (let position = start; position < stop; position += 1) if (!this.special.has(position)) return false;
    return true;
  }

  /** The pixels that a position of a grid covers, as [x0, y0, x1, y1]; null before the grid. */
  pixels(position) {
    const { rows, columns, leading, box } = this.entry;
    const cell = position - leading;
    if (cell < 0) return null;
    const [width, height] = [(box[2] - box[0]) / columns, (box[3] - box[1]) / rows];
    const [row, column] = [Math.floor(cell / columns), cell % columns];
    return [box[0] + column * width, box[1] + row * height, box[0] + (column + 1) * width, box[1] + (row + 1) * height];
  }

  /** The image or spectrogram as a canvas. */
  async decodePicture() {
    if (this.picture || this.kind === "tokens") return;
    const part = this.kind === "grid" ? this.entry.image : this.entry.spectrogram;
    const bytes = await inflate(part.data);
    this.picture = this.kind === "grid" ? imageCanvas(bytes, part.width, part.height)
      : spectrogramCanvas(bytes, part.bins, part.frames);
  }
}

// lettering.js

const FONT = "system-ui, -apple-system, 'Segoe UI', 'Noto Sans', 'DejaVu Sans', sans-serif";

let measureContext = null;

const widths = new Map();

const fontOf = ({ size = 12, bold = false }) => `${bold ? 600 : 400} ${size}px ${FONT}`;

/** The width of a text in pixels. */
function textWidth(text, style = {}) {
  const font = fontOf(style);
  const key = `${font}|${text}`;
  let width = widths.get(key);
  if (width === undefined) {
    if (widths.size > 20000) widths.clear();
    measureContext ??= newCanvas(1, 1).getContext("2d");
    measureContext.font = font;
    width = measureContext.measureText(text).width;
    widths.set(key, width);
  }
  return width;
}

/** A text cut to a width. */
function fitText(text, width, style = {}) {
  if (textWidth(text, style) <= width) return text;
  const parts = segmenter ? Array.from(segmenter.segment(text), (part) => part.segment) : Array.from(text);
  let [low, high] = [0, parts.length];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (textWidth(`${parts.slice(0, middle).join("")}\u2026`, style) <= width) low = middle;
    else high = middle - 1;
  }
  return low ? `${parts.slice(0, low).join("")}\u2026` : "";
}

function wrapText(text, width, style) {
  const lines = [""];
  for (const word of text.split(" ")) {
    const longer = lines.at(-1) ? `${lines.at(-1)} ${word}` : word;
    if (lines.at(-1) && textWidth(longer, style) > width) lines.push(word);
    else lines[lines.length - 1] = longer;
  }
  return lines;
}

// palette.js

/**
 * The colours of numbers; regard/palette.py has the same. Points of even steps of lightness (OKLCH), so that equal steps of a
 * number look alike with every kind of colour vision, and in grey.
 */
const POINTS = {
  // The amount of attention: from paper to ink. The first colour differs from the paper, which stands for exactly zero.
  amount: {
    light: "e8f2f7 cce6f4 b2daf0 99cdec 83bfe6 6eb1df 5ca2d7 4c94ce 3f85c3 3476b7 2c68aa 255a9b 214c8b 1d3f7b 193369 152757 111d44",
    dark: "232a3c 263452 283f68 294b7d 295891 2865a3 2873b3 2a82c1 3090ce 3b9fd9 4aaee2 5dbcea 74caf0 8dd7f4 a9e3f8 c7effb e7f9fe",
  },
  // Sign: negative is red and left, zero is paper in the middle, positive is blue and right.
  sign: {
    light: "73110e 8f2721 ab3b32 c65247 d37468 df948a e8b3ac f0d3ce f2f3f6 cddcf1 a9c4eb 86ace5 6294dd 3d7bd4 2964b9 164e9c 013980",
    dark: "fec0b3 fd9b88 e7826e cf6a57 ab5c4d 884f43 674139 47332f 252728 2d3a48 354f69 3b648d 417ab2 4690d8 5fa7ef 80bfff aed5fe",
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
function channelsOf(color) {
  if (color.startsWith("rgb")) return color.match(/[\d.]+/g).slice(0, 3).map(Number);
  const hex = color.replace("#", "");
  return [0, 2, 4].map((place) => parseInt(hex.slice(place, place + 2), 16));
}

const RAMPS = { light: makeRamp(POINTS.amount.light), dark: makeRamp(POINTS.amount.dark) };

const SIGNS = { light: makeRamp(POINTS.sign.light), dark: makeRamp(POINTS.sign.dark) };

/** The colours of the amount of attention on a theme: red, green, blue of `RAMP_SIZE` steps. */
const rampOf = (theme) => RAMPS[theme.scheme];

/** The same of signed numbers: zero in the middle. */
const signRampOf = (theme) => SIGNS[theme.scheme];

/** Where a shade from 0 to 1 is in a ramp. */
const rampStep = (shade) => 3 * Math.round(clamp(shade, 0, 1) * (RAMP_SIZE - 1));

const colorAt = (ramp, step) => `rgb(${ramp[step]},${ramp[step + 1]},${ramp[step + 2]})`;

/** The colour of an amount of attention, from 0 (almost paper) to 1 (ink). */
const rampColor = (shade, theme) => colorAt(rampOf(theme), rampStep(shade));

/** The colour of a signed number, from −1 (red) over 0 (paper) to 1 (blue). */
const divergingColor = (part, theme) => colorAt(SIGNS[theme.scheme], rampStep((clamp(part, -1, 1) + 1) / 2));

/** Relative luminance of red, green and blue (WCAG 2). */
function luminance(channels) {
  const [red, green, blue] = channels.map((channel) => {
    const part = channel / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

/** Black or white, whichever is read better on a colour: they have the same contrast at a luminance of 0.179. */
const inkOn = (color) => (luminance(channelsOf(color)) > 0.179 ? "#000000" : "#ffffff");

const inks = new Map();

/** The ink on the colour of an amount. */
function inkOnRamp(shade, theme) {
  const key = `${theme.scheme} ${rampStep(shade)}`;
  if (!inks.has(key)) inks.set(key, inkOn(rampColor(shade, theme)));
  return inks.get(key);
}

const rgb = (channels) => `rgb(${channels.join(",")})`;

/** The background of a word for an amount from 0 to 1, and the text's colour on it. */
const wordColors = (shade, theme) => ({ fill: rampColor(shade, theme), ink: inkOnRamp(shade, theme) });

// language.js

const LANGUAGES = ["en", "zh"];
let column = 0;

/**
 * Chooses the language of all words of the page.
 * @param {string|null|undefined} tag such as "zh-CN"; English where it is another language
 */
function speak(tag) {
  column = Math.max(0, LANGUAGES.indexOf((tag ?? "en").toLowerCase().split("-")[0]));
}

/** "en" or "zh". */
const language = () => LANGUAGES[column];

/**
 * A text of the table in the chosen language.
 * @param {keyof typeof WORDS} key
 * @param {Record<string, string|number>} [values] what stands for `{name}`; in `{name:line|lines}` a number chooses the word
 */
function say(key, values = {}) {
  return WORDS[key][column].replace(/\{(\w+)(?::([^|}]*)\|([^}]*))?\}/g, (_, name, one, many) =>
    (many === undefined ? String(values[name]) : Number(values[name]) === 1 ? one : many));
}

// panel.js

/** Lines and tables below each other; without a pen it only measures. */
class Panel {
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

// style.js

const STYLE = `
:host { display: block; height: 100%; overflow: auto; color-scheme: light dark; }
:host([data-scheme="light"]) { color-scheme: light; }
:host([data-scheme="dark"]) { color-scheme: dark; }
* { box-sizing: border-box; }
.viewer { display: flex; flex-direction: column; height: 100%; min-height: 560px; position: relative; overflow: hidden;
  background: var(--background); color: var(--text); font: 13px/1.4 ${FONT}; }
header { display: flex; flex-wrap: wrap; align-items: center; gap: 0 16px; padding: 8px 16px 4px; min-width: 0; }
h2 { font-size: 16px; font-weight: 650; margin: 0; overflow-wrap: anywhere; max-height: 3em; overflow: hidden; }
.texts { margin: 0; color: var(--muted); font-size: 13px; overflow-wrap: anywhere; max-height: 4.2em; overflow: auto; min-width: 0; }
.texts b { font-weight: 600; margin-right: 4px; }
.texts span { margin-right: 16px; unicode-bidi: isolate; }
.facts { margin: 0 0 0 auto; color: var(--muted); font-size: 13px; white-space: nowrap; }
.more { border-color: transparent; background: none; font-size: 20px; line-height: 1; padding: 0 8px; min-height: 32px; }
.row { display: flex; flex-wrap: wrap; align-items: center; gap: 4px 16px; padding: 4px 16px 8px; }
.bar { display: flex; flex-wrap: wrap; align-items: center; gap: 4px 8px; min-width: 0; }
.bar:empty { display: none; }
.tabs { display: inline-flex; flex-wrap: wrap; padding: 2px; gap: 2px; margin-left: auto; border-radius: 8px; background: var(--surface); }
.tabs[hidden] { display: none; }
.tabs button { border: 1px solid transparent; background: none; padding: 2px 12px; min-height: 28px; color: var(--muted); }
.tabs button:hover { color: var(--text); }
.tabs button[aria-selected="true"] { background: var(--background); border-color: var(--border); color: var(--text); font-weight: 600; }
label, .group { display: inline-flex; align-items: center; gap: 8px; color: var(--muted); font-size: 13px; max-width: 100%; }
.pair { display: inline-flex; gap: 2px; }
.pair[hidden] { display: none; }
.pair button { min-width: 28px; padding: 2px 6px; }
.label { color: var(--muted); font-size: 13px; white-space: nowrap; }
button, select { font: inherit; font-size: 13px; color: var(--text); background: var(--surface); border: 1px solid var(--border); border-radius: 6px;
  padding: 2px 8px; min-height: 30px; max-width: 100%; }
select { max-width: min(20em, 70vw); }
input[type="checkbox"] { accent-color: var(--accent); width: 16px; height: 16px; margin: 0; }
button { cursor: pointer; }
button:disabled { cursor: default; color: var(--muted); opacity: .6; }
button:hover:enabled { border-color: var(--muted); }
:focus-visible { outline: 3px solid var(--focus); outline-offset: 1px; }
.heads { display: inline-flex; flex-wrap: wrap; gap: 2px; }
.heads button { display: inline-flex; align-items: center; gap: 4px; padding: 1px 6px; min-height: 26px; }
.heads button[aria-pressed="false"] { opacity: .75; border-style: dashed; text-decoration: line-through; }
.heads svg { display: block; }
.menu { position: absolute; z-index: 5; right: 16px; top: 44px; display: flex; flex-direction: column; align-items: stretch; gap: 8px; padding: 12px;
  width: max-content; min-width: 200px; max-width: calc(100% - 32px); max-height: calc(100% - 60px); overflow: auto; background: var(--background);
  border: 1px solid var(--border); border-radius: 8px; box-shadow: 0 4px 24px rgb(0 0 0 / 18%); }
.menu[hidden] { display: none; }
.menu label { justify-content: space-between; }
.menu label:has(input) { justify-content: flex-start; }
.menu .group { gap: 4px; }
.menu .group button { flex: 1; }
.stage { position: relative; flex: 1 1 auto; min-height: 240px; }
.scroll { position: absolute; inset: 0; overflow: auto; }
.space { position: absolute; left: 0; top: 0; pointer-events: none; }
canvas { position: sticky; display: block; left: 0; top: 0; touch-action: pan-x pan-y; }
canvas:focus-visible { outline-offset: -3px; }
canvas.grab { cursor: grabbing; }
.tip { position: absolute; z-index: 3; left: 0; top: 0; max-width: min(30em, calc(100% - 16px)); max-height: 9em; overflow: hidden; padding: 4px 8px;
  border: 1px solid var(--border); border-radius: 6px; background: var(--background); color: var(--text); font-size: 13px;
  box-shadow: 0 2px 10px rgb(0 0 0 / 25%); pointer-events: none; overflow-wrap: anywhere; }
.tip[hidden] { display: none; }
footer { display: flex; align-items: flex-start; gap: 4px 16px; padding: 8px 16px 12px; border-top: 1px solid var(--border); }
.told { flex: 1 1 auto; min-width: 0; }
.sentence { margin: 0; font-size: 16px; line-height: 24px; height: 24px; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.shares { margin: 0; font-size: 13px; line-height: 20px; height: 20px; overflow: hidden; text-overflow: ellipsis; white-space: nowrap;
  font-variant-numeric: tabular-nums; }
.help { margin: 0; color: var(--muted); font-size: 13px; line-height: 20px; }
.what { flex: none; border-radius: 16px; padding: 4px 12px; min-height: 32px; background: var(--accent); border-color: var(--accent); color: var(--accentText); font-weight: 600; }
.readout { position: absolute; width: 1px; height: 1px; margin: 0; overflow: hidden; clip-path: inset(50%); }
.cards { position: absolute; inset: 0; z-index: 4; }
.cards[hidden] { display: none; }
.cards > svg { position: absolute; inset: 0; width: 100%; height: 100%; }
.cards .veil { fill: var(--background); fill-opacity: .72; fill-rule: evenodd; }
.cards .lead { stroke: var(--accent); stroke-width: 2; fill: none; }
.cards .target { stroke: var(--accent); stroke-width: 2; fill: none; rx: 4; }
.card { position: absolute; width: 224px; padding: 8px 12px; border: 2px solid var(--accent); border-radius: 8px; background: var(--background); color: var(--text);
  font-size: 13px; line-height: 18px; box-shadow: 0 2px 12px rgb(0 0 0 / 18%); }
.card b { display: block; font-size: 14px; margin-bottom: 2px; }
.card[hidden] { display: none; }
.card:focus { outline: 3px solid var(--focus); outline-offset: 2px; }
.cardkeys { position: absolute; right: 12px; bottom: 36px; display: flex; gap: 8px; align-items: center; padding: 4px; border-radius: 8px; background: var(--background); }
.error { padding: 16px; }
.narrow { min-height: 700px; }
.narrow header, .narrow .row, .narrow footer { padding-left: 12px; padding-right: 12px; }
.narrow .tabs { margin-left: 0; }
.narrow .tabs button { padding: 2px 8px; }
.narrow h2 { flex: 1 1 calc(100% - 64px); order: 1; }
.narrow .more { order: 2; }
.narrow .texts { order: 3; flex-basis: 100%; }
.narrow .facts { order: 4; margin-left: 0; }
.narrow footer { flex-direction: column; }
.narrow .told { width: 100%; }
.narrow .sentence, .narrow .shares { white-space: normal; }
.narrow .sentence { height: 48px; }
.narrow .shares { height: 40px; }
@media (forced-colors: active) {
  .tabs button[aria-selected="true"] { border: 2px solid Highlight; }
  .cards .target, .cards .lead { stroke: Highlight; }
  .heads button[aria-pressed="true"] { border: 2px solid Highlight; }
  canvas { forced-color-adjust: none; }
}
`;

// map_canvas.js

/** What a cell of a map is; zero is blank, what the mask hides is hatched, NaN is crossed, at every size and with every pen. */
const CELL_KINDS = { weight: 0, zero: 1, masked: 2, missing: 3 };

/** Of maps: whether the mask hides a cell, the runs of NaN as [row, start, end], the theme. */
const forms = new WeakMap();

/**
 * A map as a picture, one pixel a cell: colours and blanks; `drawForms` adds hatches and crosses.
 * @param {Uint8Array} kinds of each cell, row by row, as in `CELL_KINDS`
 * @param {Uint8Array} shades from 0 to 255, of the cells that are weights
 * @param {Uint8ClampedArray} ramp the colours of the shades
 */
function mapCanvas(columns, rows, kinds, shades, theme, ramp = rampOf(theme)) {
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
function drawForms(pen, source, { x, y, width, height }, cut, draw) {
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
const HATCH = 6;

/** The lines of a square of hatches, or of crosses, as SVG writes a path. */
const hatchPath = (crossed) => `M-1 1L1 -1M0 ${HATCH}L${HATCH} 0M${HATCH - 1} ${HATCH + 1}L${HATCH + 1} ${HATCH - 1}`
  + `${crossed ? `M-1 ${HATCH - 1}L1 ${HATCH + 1}M0 0L${HATCH} ${HATCH}M${HATCH - 1} -1L${HATCH + 1} 1` : ""}`;

// themes.js

/** Dashes of heads, as lengths of strokes and gaps in pixels. */
const DASHES = [[], [8, 3], [2, 3], [9, 3, 2, 3], [14, 4], [4, 2], [9, 3, 2, 3, 2, 3], [16, 3, 5, 3]];

/** Colour and dash of a head: 64 heads have 64 different pairs; neighbours differ in both. */
function headStyle(head, theme) {
  if (theme.forced) return forcedStyle(head, theme);
  const colors = theme.heads;
  const color = head % colors.length;
  return { color: colors[color], dash: DASHES[(head + Math.floor(head / colors.length)) % DASHES.length] };
}

const LIGHT = {
  name: "light", scheme: "light", background: "#ffffff", surface: "#f4f5f7", border: "#c3c8d0", text: "#16181d", muted: "#565d69",
  accent: "#c2410c", accentText: "#ffffff", highlight: "#ffe8d6", focus: "#0b57d0", lines: "#ffffff",
  heads: ["#0060a8", "#b84a00", "#00795b", "#b0307a", "#6b5900", "#6a3fb5", "#8a4b2a", "#23272f"],
  maskedFill: "#f4f5f7", hatch: "#a3abb8", missingFill: "#fdeef2", missing: "#d0607f",
};

const DARK = {
  name: "dark", scheme: "dark", background: "#14161a", surface: "#1e2127", border: "#454b56", text: "#eceef2", muted: "#a9b0bc",
  accent: "#ff9a4d", accentText: "#14161a", highlight: "#4a2d14", focus: "#8ab4f8", lines: "#14161a",
  heads: ["#56b4e9", "#ff9a4d", "#3ed6a5", "#f29bc8", "#e6d94a", "#b79cff", "#d9a27e", "#f2f2f2"],
  maskedFill: "#1e2127", hatch: "#5f6876", missingFill: "#3a1420", missing: "#a8415f",
};

/** The system's own colours, where the user forces them. */
function forcedTheme(host) {
  const probe = document.createElement("span");
  host.append(probe);
  const system = (name) => { probe.style.color = name; return getComputedStyle(probe).color; };
  const dark = luminance(channelsOf(system("Canvas"))) < 0.18;
  const theme = {
    ...(dark ? DARK : LIGHT), name: `forced ${dark ? "dark" : "light"}`, forced: true, background: system("Canvas"), surface: system("Canvas"),
    border: system("CanvasText"), text: system("CanvasText"), muted: system("CanvasText"), accent: system("Highlight"),
    accentText: system("HighlightText"), highlight: system("Canvas"), focus: system("Highlight"),
    lines: system("Canvas"), heads: Array(8).fill(system("CanvasText")),
    maskedFill: system("Canvas"), hatch: system("GrayText"), missingFill: system("Canvas"), missing: system("CanvasText"),
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

// head_labels.js

/** The least part of the weight that uniform attention leaves to other keys, which a named pattern takes on top. */
const LEAST_EXCESS = 0.3;

/** The same of patterns that are in most heads of a trained model: the sinks. */
const LEAST_SINK = 0.5;

const SINKS = new Set(["first", "special"]);

/** The least distance from uniform attention, in standard deviations of a head that points at random. */
const LEAST_SPREADS = 4;

/** The least queries that have a key of the pattern. */
const LEAST_QUERIES = 4;

/** The least entropy, as a part of the largest possible one, of a head that is called even. */
const EVEN = 0.95;

/** The least share of a survey that names a head, as `HeadStatistics.pattern` of regard.watching. */
const SURVEY_SHARE = 0.5;

/** How much more a pattern that contains another one must take to be named in its place. */
const BROADER = 1.5;

/** The patterns that are part of another one. */
const PARTS = { near: [-2, -1, 0, 1, 2].map(offsetName), special: ["first"] };

/** Patterns by which heads are grouped, in the order of the groups. */
const LABEL_ORDER = [...PATTERNS.filter((name) => name.startsWith("offset")).sort(), "near", "same_word", "same_token", "induction", "first", "special", "even", ""];

const labelled = new WeakMap();

/**
 * What a head does, the clearest first: {name, share, chance, queries}; [] where nothing is above the noise level.
 * Of a record that is not carried whole it follows from its findings, which are exact; [] says nothing about such heads.
 * @returns {{name: string, share: number, chance: number|null, queries: number|null}[]}
 */
function headLabels(record, head) {
  if (!labelled.has(record)) labelled.set(record, []);
  const known = labelled.get(record);
  known[head] ??= record.large ? foundLabels(record, head) : labelsOf(statisticsOf(record, head));
  return known[head];
}

const taken = new WeakMap();

/** The statistics of a head, taken once; null of a record that is not carried whole. */
function statisticsOf(record, head) {
  if (record.large) return null;
  if (!taken.has(record)) taken.set(record, []);
  const known = taken.get(record);
  known[head] ??= headStatistics(record, head);
  return known[head];
}

/** Whether a pattern's share is above the noise level. */
function isClear(name, { share, chance, spread, queries }) {
  const least = SINKS.has(name) ? LEAST_SINK : LEAST_EXCESS;
  return queries >= LEAST_QUERIES && share - chance >= least * (1 - chance) && share - chance >= LEAST_SPREADS * spread;
}

function labelsOf({ patterns, relativeEntropy, queries }) {
  const clear = PATTERNS.filter((name) => isClear(name, patterns[name])).map((name) => ({ name, ...patterns[name] }));
  const kept = clear.filter((one) => !clear.some((other) => other !== one && covers(one, other)));
  kept.sort((a, b) => b.share - a.share);
  if (!kept.length && relativeEntropy >= EVEN && queries >= LEAST_QUERIES) return [{ name: "even", share: relativeEntropy, chance: 1, queries }];
  return kept.map(({ name, share, chance, queries: count }) => ({ name, share, chance, queries: count }));
}

/** Whether another pattern says what this one says, and says it better. */
function covers(one, other) {
  if (PARTS[one.name]?.includes(other.name)) return one.share < BROADER * other.share;
  if (PARTS[other.name]?.includes(one.name)) return other.share >= BROADER * one.share;
  return false;
}

/** What the findings of a pooled record say about a head. */
function foundLabels(record, head) {
  const findings = record.entry.overview?.findings;
  if (!findings) return [];
  const positional = record.entry.kind !== "cross";
  const shift = record.keys.length - record.queries.length;
  const labels = [
    ...findings.sinks.filter((one) => one.head === head && (one.key === 0 || record.keys.special.has(one.key)))
      .map((one) => ({ name: one.key === 0 ? "first" : "special", share: one.share })),
    ...(positional ? findings.diagonals : []).filter((one) => one.head === head && PATTERNS.includes(offsetName(one.offset - shift)))
      .map((one) => ({ name: offsetName(one.offset - shift), share: one.share })),
  ];
  return labels.filter((one) => one.share >= (SINKS.has(one.name) ? LEAST_SINK : LEAST_EXCESS)).sort((a, b) => b.share - a.share).map((one) => ({ ...one, chance: null, queries: null }));
}

/** What a survey says that a head does; null where no pattern takes half of its weight, or there is no survey. */
function surveyLabel(record, head) {
  const values = record.entry.statistics?.[head];
  if (!values) return null;
  const shares = Object.keys(values).filter((name) => PATTERNS.includes(name) && values[name] !== null);
  const best = shares.reduce((most, name) => (most === null || values[name] > values[most] ? name : most), /** @type {string|null} */ (null));
  return best !== null && values[best] >= SURVEY_SHARE ? { name: best, share: values[best] } : null;
}

/** The name under which a head is listed, and its share: a survey's where there is one, else this record's; null where none is clear. */
function headLabel(record, head) {
  const surveyed = record.entry.statistics?.[head];
  const hasShares = surveyed && Object.keys(surveyed).some((name) => PATTERNS.includes(name));
  return hasShares ? surveyLabel(record, head) : headLabels(record, head)[0] ?? null;
}

/** A pattern in a few letters, or in words. */
function patternText(name, record, brief = false) {
  if (name.startsWith("offset ")) {
    const offset = Number(name.slice(7));
    const unit = say(/** @type {any} */ (`unit_${record.keys.kind}`));
    if (Math.abs(offset) > 1) {
      const away = `${offset > 0 ? "+" : "\u2212"}${Math.abs(offset)}`;
      return say(brief ? "does_offset_brief" : "does_offset", { unit, away });
    }
    const which = ["previous", "own", "next"][offset + 1];
    return say(/** @type {any} */ (`does_${which}${brief ? "_brief" : ""}`), { unit });
  }
  const near = record.entry.kind === "cross" ? "in_step" : record.keys.kind === "grid" ? "neighbours" : "near";
  const unit = say(/** @type {any} */ (`unit_${record.keys.kind}`));
  return say(/** @type {any} */ (`does_${name === "near" ? near : name}${brief ? "_brief" : ""}`), { unit });
}

/** A label with its share, such as "previous token 71 %". */
function labelText(label, record, brief = false) {
  return `${patternText(label.name, record, brief)} ${Math.round(100 * label.share)}\u00a0%`;
}

/** When a head gets a name, in words. */
function noiseText(surveyed) {
  return surveyed ? say("names_survey", { share: Math.round(100 * SURVEY_SHARE) })
    : say("names_here", { excess: Math.round(100 * LEAST_EXCESS), sink: Math.round(100 * LEAST_SINK), spreads: LEAST_SPREADS });
}

// record_names.js

const KINDS = ["self", "causal", "cross"];

/** What kind of attention a record is, in words. */
const kindText = (kind) => (KINDS.includes(kind) ? say(`kind_${/** @type {"self"} */ (kind)}`) : kind);

/** The short name of a record among others: its layer, its kind where there are several, its own name where those are alike. */
function recordName(record, records) {
  const layer = say("layerNumber", { layer: record.entry.layer });
  const kinds = new Set(records.map((one) => one.entry.kind)).size > 1;
  const parts = kinds ? [layer, kindText(record.entry.kind)] : [layer];
  const alike = records.some((one) => one !== record && one.label === record.label);
  if (alike && record.entry.name) parts.push(middleText(record.entry.name, 28));
  return parts.join(language() === "zh" ? "\u00b7" : " \u00b7 ");
}

/** How many layers and heads a document has. */
function factsOf(records) {
  if (!records.length) return "";
  const layers = new Set(records.map((record) => record.entry.layer)).size;
  const heads = new Set(records.map((record) => record.heads));
  const count = layers === records.length ? say("layerCount", { count: layers }) : say("attentionCount", { count: records.length });
  const [most] = heads;
  return heads.size > 1 ? count : `${count} \u00d7 ${say("headCount", { count: most })}`;
}

// canvas_pen.js

/** Draws on a canvas. */
class CanvasPen {
  constructor(context) {
    this.context = context;
    this.patterns = new Map();
    context.direction = "ltr";
  }

  /** @param {Drawn} [style] */
  rect(x, y, width, height, style = {}) {
    const { fill, stroke, lineWidth = 1, alpha = 1, radius = 0 } = style;
    const { context } = this;
    context.globalAlpha = alpha;
    context.beginPath();
    if (radius) context.roundRect(x, y, width, height, radius);
    else context.rect(x, y, width, height);
    if (fill) { context.fillStyle = fill; context.fill(); }
    if (stroke) { context.strokeStyle = stroke; context.lineWidth = lineWidth; context.setLineDash([]); context.stroke(); }
    context.globalAlpha = 1;
  }

  /** @param {Drawn} [style] */
  path(points, style = {}) {
    const { color, lineWidth = 1, dash = [], alpha = 1, fill = null } = style;
    const { context } = this;
    context.globalAlpha = alpha;
    context.beginPath();
    points.forEach(([x, y], number) => (number ? context.lineTo(x, y) : context.moveTo(x, y)));
    if (fill) { context.fillStyle = fill; context.fill(); }
    if (color) { context.strokeStyle = color; context.lineWidth = lineWidth; context.setLineDash(dash); context.stroke(); }
    context.globalAlpha = 1;
  }

  curve(x0, y0, x1, y1, { color, lineWidth = 1, dash = [], alpha = 1 }) {
    const { context } = this;
    const middle = (x0 + x1) / 2;
    context.globalAlpha = alpha;
    context.strokeStyle = color;
    context.lineWidth = lineWidth;
    context.setLineDash(dash);
    context.beginPath();
    context.moveTo(x0, y0);
    context.bezierCurveTo(middle, y0, middle, y1, x1, y1);
    context.stroke();
    context.globalAlpha = 1;
  }

  /** @param {Lettered} [style] */
  text(text, x, y, style = {}) {
    const { color, size = 12, bold = false, align = "start", angle = 0 } = style;
    const { context } = this;
    context.font = fontOf({ size, bold });
    context.fillStyle = color;
    context.textAlign = align === "start" ? "left" : align === "end" ? "right" : "center";
    context.textBaseline = "middle";
    if (!angle) { context.fillText(text, x, y); return; }
    context.save();
    context.translate(x, y);
    context.rotate((angle * Math.PI) / 180);
    context.fillText(text, 0, 0);
    context.restore();
  }

  /** @param {Pictured} [style] */
  picture(source, x, y, width, height, style = {}) {
    const { smooth = false, alpha = 1, cut = null } = style;
    const { context } = this;
    context.globalAlpha = alpha;
    context.imageSmoothingEnabled = smooth;
    context.imageSmoothingQuality = "high";
    const [sx, sy, sw, sh] = cut ?? [0, 0, source.width, source.height];
    drawForms(this, source, { x, y, width, height }, cut, () => context.drawImage(source, sx, sy, sw, sh, x, y, width, height));
    context.globalAlpha = 1;
  }

  /** What the mask hides. */
  hatch(x, y, width, height, theme) {
    this.fillTwice(x, y, width, height, theme.maskedFill, theme.hatch, false);
  }

  /** What is no number. */
  cross(x, y, width, height, theme) {
    this.fillTwice(x, y, width, height, theme.missingFill, theme.missing, true);
  }

  fillTwice(x, y, width, height, ground, color, crossed) {
    const { context } = this;
    const key = `${color} ${crossed}`;
    if (!this.patterns.has(key)) this.patterns.set(key, this.strokes(color, crossed));
    for (const fill of [ground, this.patterns.get(key)]) {
      context.fillStyle = fill;
      context.fillRect(x, y, width, height);
    }
  }

  /** A pattern of lines that rise to the right, and of others across them; twice as fine as the pixels, for sharp screens. */
  strokes(color, crossed) {
    const tile = newCanvas(2 * HATCH, 2 * HATCH);
    const context = tile.getContext("2d");
    context.scale(2, 2);
    context.strokeStyle = color;
    context.stroke(new Path2D(hatchPath(crossed)));
    const pattern = this.context.createPattern(tile, "repeat");
    pattern.setTransform(new DOMMatrix().scale(0.5));
    return pattern;
  }

  clip(x, y, width, height, draw) {
    const { context } = this;
    context.save();
    context.beginPath();
    context.rect(x, y, width, height);
    context.clip();
    draw();
    context.restore();
  }

  shift(x, y, draw) {
    this.context.save();
    this.context.translate(x, y);
    draw();
    this.context.restore();
  }
}

// svg_pen.js

const XML_ESCAPES = { "&": "&amp;", "<": "&lt;", ">": "&gt;", "\"": "&quot;", "'": "&apos;" };

/** Text that is legal in XML and ends nothing. */
const xml = (text) => Array.from(String(text), (character) => {
  const code = character.codePointAt(0);
  if ((code < 0x20 && code !== 9) || (code >= 0xd800 && code <= 0xdfff) || code === 0xfffe || code === 0xffff) return "\ufffd";
  return XML_ESCAPES[character] ?? character;
}).join("");

/** Writes SVG. */
class SvgPen {
  constructor(width, height) {
    this.size = [width, height];
    this.parts = [];
    this.clips = 0;
    this.patterns = new Map();
  }

  /** @param {Drawn} [style] */
  rect(x, y, width, height, style = {}) {
    const { fill, stroke, lineWidth = 1, alpha = 1, radius = 0 } = style;
    const edge = stroke ? ` stroke="${xml(stroke)}" stroke-width="${lineWidth}"` : "";
    const round = radius ? ` rx="${radius}"` : "";
    this.parts.push(`<rect x="${short(x)}" y="${short(y)}" width="${short(Math.max(0, width))}" `
      + `height="${short(Math.max(0, height))}"${round} fill="${xml(fill ?? "none")}"${edge}${this.fade(alpha)}/>`);
  }

  fade(alpha) {
    return alpha < 1 ? ` opacity="${short(alpha)}"` : "";
  }

  /** @param {Drawn} style */
  strokeOf({ color, lineWidth = 1, dash = [], alpha = 1 }) {
    if (!color) return this.fade(alpha);
    const dashes = dash.length ? ` stroke-dasharray="${dash.join(" ")}"` : "";
    return ` stroke="${xml(color)}" stroke-width="${short(lineWidth)}"${dashes}${this.fade(alpha)}`;
  }

  /** @param {Drawn} [style] */
  path(points, style = {}) {
    const drawn = points.map(([x, y], number) => `${number ? "L" : "M"}${short(x)} ${short(y)}`).join("");
    this.parts.push(`<path d="${drawn}" fill="${xml(style.fill ?? "none")}"${this.strokeOf(style)}/>`);
  }

  curve(x0, y0, x1, y1, style) {
    const middle = short((x0 + x1) / 2);
    this.parts.push(`<path d="M${short(x0)} ${short(y0)}C${middle} ${short(y0)} ${middle} ${short(y1)} ${short(x1)} `
      + `${short(y1)}" fill="none"${this.strokeOf(style)}/>`);
  }

  /** @param {Lettered} [style] */
  text(text, x, y, style = {}) {
    const { color, size = 12, bold = false, align = "start", angle = 0 } = style;
    const anchor = { start: "start", center: "middle", end: "end" }[align];
    const turn = angle ? ` transform="rotate(${angle} ${short(x)} ${short(y)})"` : "";
    this.parts.push(`<text x="${short(x)}" y="${short(y)}" dy="0.35em" font-size="${size}" font-weight="${bold ? 600 : 400}" `
      + `text-anchor="${anchor}" fill="${xml(color)}" xml:space="preserve"${turn}>${xml(text)}</text>`);
  }

  /** @param {Pictured} [style] */
  picture(source, x, y, width, height, style = {}) {
    const { smooth = false, alpha = 1, cut = null } = style;
    let used = source;
    if (cut) {
      used = newCanvas(cut[2], cut[3]);
      used.getContext("2d").drawImage(source, cut[0], cut[1], cut[2], cut[3], 0, 0, used.width, used.height);
    }
    const crisp = smooth ? "" : " style=\"image-rendering:pixelated\"";
    drawForms(this, source, { x, y, width, height }, cut, () => this.parts.push(`<image x="${short(x)}" y="${short(y)}" width="${short(width)}" height="${short(height)}" `
      + `preserveAspectRatio="none"${crisp}${this.fade(alpha)} href="${used.toDataURL("image/png")}"/>`));
  }

  /** What the mask hides. */
  hatch(x, y, width, height, theme) {
    this.fillTwice(x, y, width, height, theme.maskedFill, theme.hatch, "hatch");
  }

  /** What is no number. */
  cross(x, y, width, height, theme) {
    this.fillTwice(x, y, width, height, theme.missingFill, theme.missing, "cross");
  }

  fillTwice(x, y, width, height, ground, color, name) {
    this.patterns.set(name, color);
    const place = `x="${short(x)}" y="${short(y)}" width="${short(width)}" height="${short(height)}"`;
    this.parts.push(`<rect ${place} fill="${ground}"/><rect ${place} fill="url(#${name})"/>`);
  }

  clip(x, y, width, height, draw) {
    this.clips += 1;
    const name = `clip${this.clips}`;
    this.parts.push(`<clipPath id="${name}"><rect x="${short(x)}" y="${short(y)}" width="${short(Math.max(0, width))}" `
      + `height="${short(Math.max(0, height))}"/></clipPath><g clip-path="url(#${name})">`);
    draw();
    this.parts.push("</g>");
  }

  shift(x, y, draw) {
    this.parts.push(`<g transform="translate(${short(x)} ${short(y)})">`);
    draw();
    this.parts.push("</g>");
  }

  /** The file. */
  toString(title, description) {
    const [width, height] = this.size;
    const patterns = Array.from(this.patterns, ([name, stroke]) => `<pattern id="${name}" width="${HATCH}" height="${HATCH}" `
      + `patternUnits="userSpaceOnUse"><path d="${hatchPath(name === "cross")}" stroke="${stroke}" fill="none"/></pattern>`).join("");
    return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" `
      + `font-family="${xml(FONT)}" role="img"><title>${xml(title)}</title><desc>${xml(description)}</desc>`
      + `<defs>${patterns}</defs>${this.parts.join("\n")}</svg>\n`;
  }
}

// table.js

/** Kinds of cells of a table. */
const [WEIGHT, ZERO, MASKED, MISSING] = Object.values(CELL_KINDS);

/**
 * The weights of one head, or the mean of all, as they are shown: sub-words merged, special tokens hidden.
 * Merging adds the columns of a word and averages its rows, so that rows that sum to 1 still do. A query that sees no key
 * has no weights to average: means over heads and over the tokens of a word leave it out.
 */
class Table {
  constructor(record, head, options) {
    this.record = record;
    this.head = head; // null: the mean over heads
    this.exact = record.exact !== null;
    const shown = (axis) => axis.groups(options.words).filter((group) => !(options.hideSpecial && axis.isSpecial(group)));
    this.rowGroups = shown(record.queries);
    this.columnGroups = shown(record.keys);
    this.rows = this.rowGroups.length;
    this.columns = this.columnGroups.length;
    this.words = options.words;
    const cells = this.rows * this.columns;
    this.values = new Float64Array(cells);
    this.errors = this.exact ? null : new Float64Array(cells);
    this.kinds = new Uint8Array(cells);
    this.hidden = new Float64Array(this.rows);
    this.counts = new Uint32Array(this.rows); // queries of all heads that a row is the mean of
    this.bitmaps = new Map();
    this.widest = {};
    this.fill();
    this.measure();
  }

  fill() {
    const heads = this.head === null ? Array.from({ length: this.record.heads }, (_, head) => head) : [this.head];
    for (let row = 0; row < this.rows; row += 1) {
      const [q0, q1] = this.rowGroups[row];
      for (const head of heads) {
        for (let query = q0; query < q1; query += 1) if (this.record.seesAny(head, query)) this.counts[row] += 1;
      }
      for (let column = 0; column < this.columns; column += 1) this.fillCell(row, column, heads);
    }
    if (this.columnGroups.length < this.record.keys.length) this.addHidden(heads);
  }

  fillCell(row, column, heads) {
    const { record } = this;
    const [queries, keys] = [record.queries.length, record.keys.length];
    const [q0, q1] = this.rowGroups[row];
    const [k0, k1] = this.columnGroups[column];
    const { codes, exact } = record;
    const maximum = record.entry.codes.maximum;
    let [sum, error, seen, zero] = [0, 0, false, true];
    for (const head of heads) {
      for (let query = q0; query < q1; query += 1) {
        const base = (head * queries + query) * keys;
        for (let key = k0; key < k1; key += 1) {
          if (record.visible && !record.sees(head, query, key)) continue;
          seen = true;
          const code = codes[base + key];
          if (code !== 0) zero = false;
          sum += exact ? exact[base + key] : CODE_VALUES[code] * maximum;
          if (!exact) error += CODE_ERRORS[code] * maximum;
        }
      }
    }
    const count = Math.max(1, this.counts[row]);
    const cell = row * this.columns + column;
    this.values[cell] = sum / count;
    if (this.errors) this.errors[cell] = error / count;
    if (!seen) this.kinds[cell] = MASKED;
    else if (Number.isNaN(sum)) this.kinds[cell] = MISSING;
    else this.kinds[cell] = zero ? ZERO : WEIGHT;
  }

  /** What each row gives to columns that are hidden. */
  addHidden(heads) {
    const { record } = this;
    const [queries, keys] = [record.queries.length, record.keys.length];
    const shown = new Uint8Array(keys);
    for (const [start, stop] of this.columnGroups) shown.fill(1, start, stop);
    const maximum = record.entry.codes.maximum;
    for (let row = 0; row < this.rows; row += 1) {
      const [q0, q1] = this.rowGroups[row];
      let sum = 0;
      for (const head of heads) {
        for (let query = q0; query < q1; query += 1) {
          const base = (head * queries + query) * keys;
          for (let key = 0; key < keys; key += 1) {
            if (shown[key] || !record.sees(head, query, key)) continue;
            sum += record.exact ? record.exact[base + key] : CODE_VALUES[record.codes[base + key]] * maximum;
          }
        }
      }
      this.hidden[row] = sum / Math.max(1, this.counts[row]);
    }
  }

  /** The largest weight of all and of each row, and the sums of the rows. */
  measure() {
    this.largest = 0;
    this.rowLargest = new Float64Array(this.rows);
    this.rowSums = new Float64Array(this.rows);
    this.hasMasked = this.hasMissing = this.hasZero = false;
    for (let row = 0; row < this.rows; row += 1) {
      for (let column = 0; column < this.columns; column += 1) {
        const kind = this.kinds[row * this.columns + column];
        const value = this.values[row * this.columns + column];
        if (kind === MASKED) this.hasMasked = true;
        else if (kind === MISSING) this.hasMissing = true;
        else if (kind === ZERO) this.hasZero = true;
        if (kind !== MASKED) this.rowSums[row] += value;
        if (value > this.rowLargest[row]) this.rowLargest[row] = value;
      }
      if (this.rowLargest[row] > this.largest) this.largest = this.rowLargest[row];
    }
    this.end = this.largest > 0 ? scaleEnd(this.largest, this.columns) : 0;
  }

  rowText(row) {
    return this.record.queries.groupText(this.rowGroups[row], this.words);
  }

  columnText(column) {
    return this.record.keys.groupText(this.columnGroups[column], this.words);
  }

  kind(row, column) {
    return this.kinds[row * this.columns + column];
  }

  value(row, column) {
    return this.values[row * this.columns + column];
  }

  error(row, column) {
    return this.errors ? this.errors[row * this.columns + column] : 0;
  }

  /** A cell as text. */
  cell(row, column) {
    const kind = this.kind(row, column);
    if (kind === MASKED) return "masked";
    return formatWeight(this.value(row, column), this.error(row, column));
  }

  /** The sum of a row and what hidden tokens have of it. */
  rowSummary(row) {
    let error = 0;
    for (let column = 0; column < this.columns; column += 1) error += this.error(row, column);
    const sum = `row sum ${formatWeight(this.rowSums[row], error)}`;
    return this.columnGroups.length && this.hiddenColumns
      ? `${sum}, hidden special tokens ${formatWeight(this.hidden[row], this.exact ? 0 : Math.max(error, 0.004))}` : sum;
  }

  get hiddenColumns() {
    const last = this.columnGroups.reduce((count, [start, stop]) => count + stop - start, 0);
    return this.record.keys.length - last;
  }

  /** The rows that see a key, hidden ones included: those that a mean over queries is over. */
  get seeing() {
    return Array.from(this.counts.keys()).filter((row) => this.counts[row] > 0);
  }

  /** Sums of several rows: {values, errors, kinds} by column; NaN stays, masked or zero only where every row is. */
  sumRows(rows) {
    const values = new Float64Array(this.columns);
    const errors = new Float64Array(this.columns);
    const kinds = new Uint8Array(this.columns).fill(MASKED);
    for (const row of rows) {
      for (let column = 0; column < this.columns; column += 1) {
        const kind = this.kind(row, column);
        if (kind === MASKED) continue;
        values[column] += this.value(row, column);
        errors[column] += this.error(row, column);
        if (Number.isNaN(values[column])) kinds[column] = MISSING;
        else if (kind !== ZERO) kinds[column] = WEIGHT;
        else if (kinds[column] === MASKED) kinds[column] = ZERO;
      }
    }
    return { values, errors, kinds, largest: values.reduce((most, value) => (value > most ? value : most), 0) };
  }

  /** A weight's place on a scale, from 0 to 1. */
  shade(row, column, scale) {
    const largest = scale === "row" ? this.rowLargest[row] : this.end;
    return largest > 0 ? SCALES[scale].shade(this.value(row, column) / largest) : 0;
  }

  /** One pixel a cell. */
  bitmap(scale, theme) {
    const key = `${scale} ${theme.name}`;
    if (!this.bitmaps.has(key)) {
      const shades = new Uint8Array(this.rows * this.columns);
      for (let row = 0; row < this.rows; row += 1) {
        for (let column = 0; column < this.columns; column += 1) {
          if (this.kind(row, column) === WEIGHT) shades[row * this.columns + column] = Math.round(255 * clamp(this.shade(row, column, scale), 0, 1));
        }
      }
      this.bitmaps.set(key, mapCanvas(this.columns, this.rows, this.kinds, shades, theme));
    }
    return this.bitmaps.get(key);
  }
}

const accuracy = (table) => (table.exact ? "exact numbers" : "8-bit square roots, \u00b1 0.004 or better");

/** How the tokens of a word became one. */
const mergedText = (table) => (table.words && (table.record.queries.hasWords || table.record.keys.hasWords)
  ? ", whole words (keys added, queries averaged)" : "");

/** What hidden special tokens have of the weights. */
function hiddenText(table) {
  const hidden = table.hiddenColumns;
  if (!hidden || !table.rows) return "";
  const mean = table.hidden.reduce((sum, mass) => sum + mass, 0) / Math.max(1, table.seeing.length);
  return ` \u00b7 ${hidden} special ${hidden === 1 ? "token" : "tokens"} hidden with ${(100 * mean).toFixed(1)} % of the weight`;
}

/** The sum of the locked queries or of the one under the pointer; of all that see a key, to be divided by their number, where there is none. */
function activeSums(app, table) {
  const rows = app.activeRows();
  const all = rows.length ? rows : table.seeing;
  return { ...table.sumRows(all), rows, divisor: rows.length ? 1 : Math.max(1, all.length) };
}

/** What the sum of queries is, as headings, legends and tooltips say it. */
function sumText(table, rows) {
  if (rows.length === 1) return "weights of 1 query";
  if (rows.length) return `sum of ${counted(rows.length)} locked queries`;
  const seeing = table.seeing.length;
  const blind = table.rows - seeing;
  return blind ? `mean over ${counted(seeing)} ${seeing === 1 ? "query" : "queries"} (${counted(blind)} more see no key)` : "mean over all queries";
}

/** What a key gets from the queries of a sum. */
function receivedText({ kinds, values, errors, divisor }, column) {
  return kinds[column] === MASKED ? "masked" : formatWeight(values[column] / divisor, errors[column] / divisor);
}

/** The keys that a query attends to most. */
function describeRow(app, table, row) {
  const order = Array.from({ length: table.columns }, (_, column) => column).filter((column) => table.kind(row, column) !== MASKED);
  order.sort((a, b) => table.value(row, b) - table.value(row, a));
  const best = order.slice(0, 3).map((column) => `${quoted(table.columnText(column))} ${table.cell(row, column)}`);
  const rest = order.slice(3);
  if (rest.length) {
    const add = (part) => rest.reduce((sum, column) => sum + part(column), 0);
    best.push(`${counted(rest.length)} more ${formatWeight(add((column) => table.value(row, column)), add((column) => table.error(row, column)))}`);
  }
  return `query ${quoted(table.rowText(row))} attends to ${best.join(", ") || "nothing: all keys are masked"} `
    + `(${app.headText()}; ${table.rowSummary(row)})`;
}

// elements.js

/**
 * An element with properties, attributes and children; text is always text.
 * @param {string} tag
 * @param {Record<string, any>} [properties] `text`, `on` (listeners by event), and attributes
 * @returns {any}
 */
function make(tag, properties = {}, ...children) {
  const { text, on = {}, ...attributes } = properties;
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  for (const [name, listener] of Object.entries(on)) element.addEventListener(name, listener);
  if (text !== undefined) element.textContent = text;
  element.append(...children.filter(Boolean));
  return element;
}

/**
 * A choice among options [value, text, title]; its name is a label before it only where that is asked for.
 * @param {boolean} [labelled]
 */
function choice(name, value, options, change, labelled = false) {
  const select = make("select", { "aria-label": name, on: { change: () => change(select.value) } });
  for (const [key, text, title] of options) {
    const option = make("option", { value: String(key), text, title });
    option.selected = String(key) === String(value);
    if (option.selected) select.title = title ?? name;
    select.append(option);
  }
  return labelled ? make("label", {}, document.createTextNode(name), select) : select;
}

function checkbox(name, checked, change) {
  const input = make("input", { type: "checkbox", on: { change: () => change(input.checked) } });
  input.checked = checked;
  return make("label", {}, input, document.createTextNode(name));
}

const action = (text, label, click) => make("button", { type: "button", text, "aria-label": label, title: label, on: { click } });

/** The toggle of a head: a sample of its line, and its number. */
function headToggle(head, shown, theme, click) {
  const { color, dash } = headStyle(head, theme);
  const namespace = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(namespace, "svg");
  const line = document.createElementNS(namespace, "line");
  const set = (element, values) => Object.entries(values).forEach(([name, value]) => element.setAttribute(name, value));
  set(svg, { width: 28, height: 8, "aria-hidden": "true" });
  set(line, { x1: 0, y1: 4, x2: 28, y2: 4, stroke: color, "stroke-width": 2.5, "stroke-dasharray": dash.join(" ") || "none" });
  svg.append(line);
  return make("button", { type: "button", "aria-pressed": String(shown), "aria-label": `head ${head}`, "data-color": color,
    "data-dash": dash.join(" ") || "none", on: { click } }, svg, document.createTextNode(String(head)));
}

const focusable = (parent) => [...parent.querySelectorAll("button, select, input")];

// first_head.js

/** The most weights that are decoded to choose; of a larger document the first records that fit. */
const MOST_READ_WEIGHTS = 2 ** 22;

/** The least keys that a query sees for which one is a choice. */
const LEAST_KEYS = 4;

/** What a head may do and yet say little: such heads are chosen only where there are no others. */
const UNREMARKABLE = new Set(["first", "special", "offset 0", "even"]);

/** Letters that make a word, or one of a script that writes words without spaces: such a token says more than "a". */
const WORDLIKE = /[\p{L}\p{M}]{2}|[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}]/u;

const LETTERS = /[\p{L}\p{N}]/u;

/**
 * Decodes what a choice needs and makes it; see `firstChoice`.
 * @returns {Promise<{record: number, head: number, row: number|null, column: number|null}|null>}
 */
async function chooseFirst(records) {
  let left = MOST_READ_WEIGHTS;
  const read = [];
  for (const record of records) {
    if (record.large) continue;
    left -= record.heads * record.queries.length * record.keys.length;
    if (left < 0 && read.length) break;
    read.push(record);
  }
  await Promise.all(read.map((record) => record.decode()));
  return firstChoice(read);
}

/**
 * The head with the clearest structure, at the query whose target is the most surprising; of the records that are decoded.
 * A target is surprising by its weight times what the weight has more than its position predicts: than the mean
 * weight of other queries at the same distance, and of other queries on the same key. So heads that look at the first or at a
 * special token, at themselves or at a fixed distance have little; and a head's structure is the mean over its
 * queries of their most surprising target. Of a head's targets the one is chosen that is also far from its query (of two
 * sequences: from the diagonal), where both are words.
 * @returns {{record: number, head: number, row: number|null, column: number|null}|null} positions in `records` of the viewer;
 *   row and column are null where no target stands out; null where there is no decoded record
 */
function firstChoice(records) {
  const heads = records.filter((record) => !record.large && record.codes).flatMap((record) =>
    Array.from({ length: record.heads }, (_, head) => ({ of: record, record: record.number, head, ...structure(record, head) })));
  heads.sort((a, b) => b.score - a.score || a.record - b.record || a.head - b.head);
  const best = heads.find((one) => one.score > 0 && !UNREMARKABLE.has(headLabel(one.of, one.head)?.name ?? "")) ?? heads[0];
  return best ? { record: best.record, head: best.head, row: best.row, column: best.column } : null;
}

/** How much structure a head has, and its most surprising target. */
function structure(record, head) {
  const related = relations(record);
  const weights = headWeights(record, head, null); // of the codes: the same before and after exact numbers come
  const seen = related.seen(head);
  const [queries, keys] = [record.queries.length, record.keys.length];
  const { positional, shift, specialKeys, specialQueries, words } = related;
  const byOffset = new Float64Array(queries + keys);
  const offsetCounts = new Uint32Array(queries + keys);
  const byKey = new Float64Array(keys);
  const keyCounts = new Uint32Array(keys);
  const visible = new Uint32Array(queries);
  for (let query = 0; query < queries; query += 1) {
    if (specialQueries[query]) continue;
    const base = query * keys;
    for (let key = 0; key < keys; key += 1) {
      if (seen && !seen[base + key]) continue;
      const value = weights[base + key] || 0;
      visible[query] += 1;
      byOffset[key - query + queries] += value;
      offsetCounts[key - query + queries] += 1;
      byKey[key] += value;
      keyCounts[key] += 1;
    }
  }
  const [asking, answering] = [weightOfTexts(record.queries), weightOfTexts(record.keys)];
  const slope = queries > 1 ? (keys - 1) / (queries - 1) : 0;
  let [total, counted, most, row, column] = [0, 0, 0, /** @type {number|null} */ (null), /** @type {number|null} */ (null)];
  for (let query = 0; query < queries; query += 1) {
    if (visible[query] < LEAST_KEYS) continue;
    counted += 1;
    const base = query * keys;
    const own = positional ? query + shift : -1;
    let clearest = 0;
    for (let key = 0; key < keys; key += 1) {
      const value = weights[base + key];
      if (!(value * visible[query] > 2) || key === own || specialKeys[key] || !answering[key]) continue;
      if (words && words[key] === words[own]) continue;
      if (seen && !seen[base + key]) continue;
      const offset = key - query + queries;
      const alone = positional && offsetCounts[offset] > 1 ? (byOffset[offset] - value) / (offsetCounts[offset] - 1) : 0;
      const onKey = keyCounts[key] > 1 ? (byKey[key] - value) / (keyCounts[key] - 1) : 0;
      const surprise = value * (value - Math.max(alone, onKey, 1 / visible[query]));
      if (surprise > clearest) clearest = surprise;
      const distance = Math.abs(key - (positional ? own : query * slope));
      const telling = surprise * asking[query] * answering[key] * (1 + distance / Math.max(queries, keys));
      if (telling > most + 1e-9) [most, row, column] = [telling, query, key];
    }
    total += clearest;
  }
  return { score: counted ? total / counted : 0, row, column };
}

/** How much a position says: 0 for punctuation, 1 for a word, less for what is shorter. */
function weightOfTexts(axis) {
  return Float64Array.from({ length: axis.length }, (_, position) => {
    if (axis.kind !== "tokens") return 1;
    const text = axis.entry.tokens[position];
    return WORDLIKE.test(text) ? 1 : LETTERS.test(text) ? 0.5 : 0;
  });
}

// difference.js

/** The most pairs of tokens that are looked through for equal ones. */
const MOST_PAIRS = 4e6;

/**
 * The places of texts that both lists have, in the order of both: as many as possible.
 * @param {string[]} one
 * @param {string[]} other
 * @returns {number[][]} pairs of places
 */
function commonPlaces(one, other) {
  if (one.length === other.length && one.every((text, place) => text === other[place])) return one.map((_, place) => [place, place]);
  if (one.length * other.length > MOST_PAIRS) return [];
  const width = other.length + 1;
  const longest = new Uint32Array((one.length + 1) * width); // of the rests from two places
  for (let i = one.length - 1; i >= 0; i -= 1) {
    for (let j = other.length - 1; j >= 0; j -= 1) {
      longest[i * width + j] = one[i] === other[j] ? longest[(i + 1) * width + j + 1] + 1
        : Math.max(longest[(i + 1) * width + j], longest[i * width + j + 1]);
    }
  }
  const pairs = [];
  let [i, j] = [0, 0];
  while (i < one.length && j < other.length) {
    if (one[i] === other[j]) pairs.push([i++, j++]);
    else if (longest[(i + 1) * width + j] >= longest[i * width + j + 1]) i += 1;
    else j += 1;
  }
  return pairs;
}

const texts = (count, text) => Array.from({ length: count }, (_, place) => text(place));

/**
 * The rows or columns that two tables have in common: equal tokens in their order; of images and sounds all, where both are of one size.
 * @returns {number[][]|null} pairs of places; null where fewer than half are common
 */
function commonSide(one, other, side) {
  const axis = side === "row" ? "queries" : "keys";
  const [a, b] = [one, other].map((table) => ({ kind: table.record[axis].kind, count: side === "row" ? table.rows : table.columns,
    text: (place) => (side === "row" ? table.rowText(place) : table.columnText(place)) }));
  if (a.kind !== b.kind) return null;
  if (a.kind !== "tokens") return a.count === b.count ? texts(a.count, (place) => [place, place]) : null;
  const pairs = commonPlaces(texts(a.count, a.text), texts(b.count, b.text));
  return pairs.length && 2 * pairs.length >= Math.max(a.count, b.count) ? pairs : null;
}

/** The weights of one table minus those of another, where both have the tokens; a weight that a mask hides counts as 0. */
class Difference {
  /**
   * @param {any} one a table
   * @param {any} other another one
   * @param {any[]} rowPairs the rows that are compared
   * @param {any[]} columnPairs the columns
   */
  constructor(one, other, rowPairs, columnPairs) {
    this.one = one;
    this.other = other;
    this.rowPairs = rowPairs;
    this.columnPairs = columnPairs;
    this.rows = rowPairs.length;
    this.columns = columnPairs.length;
    this.record = one.record;
    this.words = one.words;
    this.exact = false; // the view itself writes numbers into cells
    this.signed = true;
    this.rowGroups = rowPairs.map(([row]) => one.rowGroups[row]);
    this.columnGroups = columnPairs.map(([column]) => one.columnGroups[column]);
    this.values = new Float64Array(this.rows * this.columns);
    this.kinds = new Uint8Array(this.rows * this.columns);
    this.bitmaps = new Map();
    this.widest = {};
    this.largest = 0;
    this.hasMasked = this.hasMissing = this.hasZero = false;
    rowPairs.forEach((row, r) => columnPairs.forEach((column, c) => this.fill(r * this.columns + c, row, column)));
  }

  fill(cell, [row, otherRow], [column, otherColumn]) {
    const kinds = [this.one.kind(row, column), this.other.kind(otherRow, otherColumn)];
    const [a, b] = [this.one.value(row, column), this.other.value(otherRow, otherColumn)].map((value, place) => (kinds[place] === MASKED ? 0 : value));
    const value = a - b;
    this.values[cell] = value;
    if (kinds[0] === MASKED && kinds[1] === MASKED) { this.kinds[cell] = MASKED; this.hasMasked = true; }
    else if (Number.isNaN(value)) { this.kinds[cell] = MISSING; this.hasMissing = true; }
    else if (value === 0) { this.kinds[cell] = ZERO; this.hasZero = true; }
    else { this.kinds[cell] = WEIGHT; this.largest = Math.max(this.largest, Math.abs(value)); }
  }

  /** The tokens of both that the other has not. */
  leftOut() {
    const rest = (count, text, pairs, place) => {
      const used = new Set(pairs.map((pair) => pair[place]));
      return texts(count, (number) => (used.has(number) ? null : text(number))).filter((found) => found !== null);
    };
    const found = [this.one, this.other].flatMap((table, place) => [
      ...rest(table.rows, (row) => table.rowText(row), this.rowPairs, place),
      ...rest(table.columns, (column) => table.columnText(column), this.columnPairs, place)]);
    return [...new Set(found)];
  }

  rowText(row) {
    return this.one.rowText(this.rowPairs[row][0]);
  }

  columnText(column) {
    return this.one.columnText(this.columnPairs[column][0]);
  }

  kind(row, column) {
    return this.kinds[row * this.columns + column];
  }

  value(row, column) {
    return this.values[row * this.columns + column];
  }

  /** Both weights and their difference as texts. */
  cellTexts(row, column) {
    const [[a, b], [c, d]] = [this.rowPairs[row], this.columnPairs[column]];
    const error = this.one.error(a, c) + this.other.error(b, d);
    return { one: this.one.cell(a, c), other: this.other.cell(b, d), difference: formatWeight(this.value(row, column), error) };
  }

  /** A difference's place on a scale, from -1 to 1. */
  shade(row, column, scale) {
    const value = this.value(row, column);
    return this.largest > 0 ? Math.sign(value) * SCALES[scale].shade(Math.abs(value) / this.largest) : 0;
  }

  /** One pixel a cell. */
  bitmap(scale, theme) {
    const key = `${scale} ${theme.name}`;
    if (!this.bitmaps.has(key)) {
      const shades = Uint8Array.from(this.kinds, (_, cell) =>
        Math.round(127.5 * (1 + this.shade(Math.floor(cell / this.columns), cell % this.columns, scale))));
      this.bitmaps.set(key, mapCanvas(this.columns, this.rows, this.kinds, shades, theme, signRampOf(theme)));
    }
    return this.bitmaps.get(key);
  }
}

/** Heads whose maps can be subtracted from those of a record: its own, and those of records on the same axes or of one kind. */
function otherHeads(app, record) {
  const alike = app.records.filter((one) => !one.large && one.entry.kind === record.entry.kind
    && one.queries.kind === record.queries.kind && one.keys.kind === record.keys.kind);
  return alike.flatMap((one) => [...(one.heads > 1 ? [null] : []), ...Array.from({ length: one.heads }, (_, head) => head)]
    .map((head) => ({ record: one.number, head })))
    .filter((one) => one.record !== record.number || record.heads > 1);
}

// drawing.js

/** A ring that is seen on every colour. */
function ring(pen, x, y, width, height, color, theme) {
  pen.rect(x - 1.5, y - 1.5, width + 3, height + 3, { stroke: theme.background, lineWidth: 4 });
  pen.rect(x - 1.5, y - 1.5, width + 3, height + 3, { stroke: color, lineWidth: 2 });
}

/**
 * The cells of a table.
 * @param {{left: number, top: number, width: number, height: number}} place left and top of the first cell, size of a cell
 * @param {{x: number, y: number, width: number, height: number}} area what is seen, in the same coordinates
 */
function drawCells(pen, table, place, area, scale, theme) {
  const first = { row: Math.max(0, Math.floor((area.y - place.top) / place.height)),
    column: Math.max(0, Math.floor((area.x - place.left) / place.width)) };
  const last = { row: Math.min(table.rows, Math.ceil((area.y + area.height - place.top) / place.height)),
    column: Math.min(table.columns, Math.ceil((area.x + area.width - place.left) / place.width)) };
  if (last.row <= first.row || last.column <= first.column) return;
  const [rows, columns] = [last.row - first.row, last.column - first.column];
  pen.picture(table.bitmap(scale, theme), place.left + first.column * place.width, place.top + first.row * place.height,
    columns * place.width, rows * place.height, { cut: [first.column, first.row, columns, rows] });
  if (place.width >= 9 && place.height >= 9) drawGaps(pen, place, first, last, theme);
  pen.rect(place.left + first.column * place.width, place.top + first.row * place.height, columns * place.width, rows * place.height,
    { stroke: theme.border });
  if (place.width >= 30 && place.height >= 18 && table.exact) drawNumbers(pen, table, place, first, last, scale, theme);
}

/** A box that is blank, hatched or crossed, as a cell of a kind is. */
function drawKind(pen, kind, x, y, width, height, theme) {
  if (kind === MASKED) pen.hatch(x, y, width, height, theme);
  else if (kind === MISSING) pen.cross(x, y, width, height, theme);
  else pen.rect(x, y, width, height, { fill: theme.background });
}

function drawGaps(pen, place, first, last, theme) {
  const [left, right] = [place.left + first.column * place.width, place.left + last.column * place.width];
  const [top, bottom] = [place.top + first.row * place.height, place.top + last.row * place.height];
  const style = { color: theme.lines, lineWidth: 1, alpha: 0.55 };
  for (let row = first.row + 1; row < last.row; row += 1) {
    pen.path([[left, place.top + row * place.height], [right, place.top + row * place.height]], style);
  }
  for (let column = first.column + 1; column < last.column; column += 1) {
    pen.path([[place.left + column * place.width, top], [place.left + column * place.width, bottom]], style);
  }
}

function drawNumbers(pen, table, place, first, last, scale, theme) {
  const size = clamp(Math.floor(place.width / 3.1), 9, 12);
  for (let row = first.row; row < last.row; row += 1) {
    for (let column = first.column; column < last.column; column += 1) {
      if (table.kind(row, column) !== WEIGHT) continue;
      pen.text(cellText(table.value(row, column)), place.left + (column + 0.5) * place.width,
        place.top + (row + 0.5) * place.height, { color: inkOnRamp(table.shade(row, column, scale), theme), size, align: "center" });
    }
  }
}

/** Words that flow in lines: the place of each, and the height of all. */
function flowWords(texts, left, top, width, size, lineHeight) {
  const places = [];
  let [x, y] = [left, top];
  for (const text of texts) {
    const wide = Math.min(textWidth(text, { size }) + 10, width);
    if (x > left && x + wide > left + width) { x = left; y += lineHeight; }
    places.push({ x, y, width: wide, height: lineHeight - 5 });
    x += wide + 3;
  }
  return { places, bottom: y + lineHeight };
}

/** The nearest word above or below, for arrow keys. */
function wordAbove(places, index, direction) {
  const from = places[index];
  const center = from.x + from.width / 2;
  let best = index;
  let distance = Infinity;
  places.forEach((place, number) => {
    const down = (place.y - from.y) * direction;
    if (down <= 0) return;
    const far = down * 4 + Math.abs(place.x + place.width / 2 - center);
    if (far < distance) { distance = far; best = number; }
  });
  return best;
}

const inside = (place, x, y) => x >= place.x && y >= place.y && x < place.x + place.width && y < place.y + place.height;

/** The row and the column that are at a place, of cells that begin at ``left`` and ``top``. */
const cellAt = (x, y, { left, top, width, height }) => [Math.floor((y - top) / height), Math.floor((x - left) / width)];

/** Where a cell is, and what does not scroll beside and above it. */
const placeOfCell = ({ row, column }, { left, top, width, height }) => ({ x: left + column * width, y: top + row * height, width, height,
  frozenLeft: left, frozenTop: top });

// long_map.js

/** The statistics of a pooled map, in words. */
const POOLINGS = { maximum: "largest", mean: "mean" };

/** What kind of cell a weight is (negative: masked), and its shade from 0 to 255. */
function shadeOf(value, limit, scale) {
  if (value < 0) return { kind: MASKED, shade: 0 };
  if (Number.isNaN(value)) return { kind: MISSING, shade: 0 };
  if (value === 0) return { kind: ZERO, shade: 0 };
  return { kind: WEIGHT, shade: Math.round(255 * clamp(SCALES[scale].shade(value / (limit || 1)), 0, 1)) };
}

/** A record that is too large to carry whole: pooled maps, findings, and exact tiles that are carried or fetched. */
class LongMap {
  constructor(record) {
    const part = record.entry.overview;
    this.record = record;
    this.rows = part.rows;
    this.columns = part.columns;
    this.side = part.tile;
    this.findings = part.findings;
    this.hidden = part.hidden;
    this.carried = part.tiles.length;
    this.maps = {};
    this.tiles = new Map();
    this.bitmaps = new Map();
    this.receivedSums = new Map();
    this.pending = 0;
  }

  static async decode(record) {
    const map = new LongMap(record);
    const part = record.entry.overview;
    for (const pooling of ["maximum", "mean"]) {
      map.maps[pooling] = { codes: await inflate(part[pooling].data), maximum: part[pooling].maximum };
    }
    for (const tile of part.tiles) {
      map.tiles.set(`${tile.query / part.tile},${tile.key / part.tile}`, { values: await decodeNumbers(tile), kept: true });
    }
    return map;
  }

  /** The first position of a bin. */
  edge(length, bins, bin) {
    return Math.floor((bin * length + bins - 1) / bins);
  }

  /** The bin of a pair. */
  bin(query, key) {
    const { queries, keys } = this.record;
    return [Math.floor((query * this.rows) / queries.length), Math.floor((key * this.columns) / keys.length)];
  }

  /** The pooled weight of a bin; the mean over heads where no head is chosen, of means and of maxima alike. */
  pooled(pooling, head, row, column) {
    const { codes, maximum } = this.maps[pooling];
    const cell = row * this.columns + column;
    const cells = this.rows * this.columns;
    if (head !== null) {
      const code = codes[head * cells + cell];
      return { value: CODE_VALUES[code] * maximum, error: CODE_ERRORS[code] * maximum, zero: code === 0 };
    }
    let [sum, error, zero] = [0, 0, true];
    for (let one = 0; one < this.record.heads; one += 1) {
      const code = codes[one * cells + cell];
      if (code !== 0) zero = false;
      sum += CODE_VALUES[code] * maximum;
      error += CODE_ERRORS[code] * maximum;
    }
    return { value: sum / this.record.heads, error: error / this.record.heads, zero };
  }

  /** What a point of the map is of the weights, where blocks of bins are joined. */
  statistic(pooling, block) {
    const { queries, keys } = this.record;
    const size = (times) => `${counted(Math.round((10 * times * queries.length) / this.rows) / 10)} \u00d7 `
      + `${counted(Math.round((10 * times * keys.length) / this.columns) / 10)}`;
    const single = size(1) === "1 \u00d7 1";
    if (single) return block === 1 ? "single weights" : `largest of ${block} \u00d7 ${block} pairs`;
    const hidden = pooling === "mean" && this.hidden ? ", hidden ones as 0" : "";
    if (pooling === "mean" && block > 1) return `largest of ${block} \u00d7 ${block} means of about ${size(1)} pairs${hidden}`;
    return `${POOLINGS[pooling]} of about ${size(block)} pairs${hidden}`;
  }

  /** The exact weight of a pair, or null where no tile with it is here; masked pairs are −1. */
  exact(head, query, key) {
    const tile = this.tiles.get(`${Math.floor(query / this.side)},${Math.floor(key / this.side)}`);
    if (!tile?.values) return null;
    const { queries, keys } = this.record;
    const [q0, k0] = [Math.floor(query / this.side) * this.side, Math.floor(key / this.side) * this.side];
    const [height, width] = [Math.min(this.side, queries.length - q0), Math.min(this.side, keys.length - k0)];
    const cell = (query - q0) * width + key - k0;
    if (head !== null) return tile.values[head * height * width + cell];
    let sum = 0;
    let seen = 0;
    for (let one = 0; one < this.record.heads; one += 1) {
      const value = tile.values[one * height * width + cell];
      if (value >= 0 || Number.isNaN(value)) { sum += value; seen += 1; }
    }
    return seen ? sum / this.record.heads : -1;
  }

  /** Asks for a tile that is not here; at most a few at a time. */
  request(tileRow, tileColumn, fetchTile, done) {
    const key = `${tileRow},${tileColumn}`;
    if (this.tiles.has(key) || !fetchTile || this.pending >= 6) return;
    const { queries, keys } = this.record;
    const [q0, k0] = [tileRow * this.side, tileColumn * this.side];
    const tile = { values: null, kept: false };
    this.tiles.set(key, tile);
    this.pending += 1;
    const [q1, k1] = [Math.min(q0 + this.side, queries.length), Math.min(k0 + this.side, keys.length)];
    Promise.resolve(fetchTile(this.record.number, q0, q1, k0, k1)).then(decodeTile).then((values) => {
      if (values.length !== this.record.heads * (q1 - q0) * (k1 - k0)) throw new RangeError("a tile of another size");
      tile.values = values;
    }).catch((error) => {
      tile.failed = String(error?.message ?? error);
    }).finally(() => {
      this.pending -= 1;
      this.forget();
      done();
    });
  }

  /** Drops the oldest fetched tiles above a number. */
  forget() {
    for (const [key, tile] of this.tiles) {
      if (this.tiles.size <= 256) return;
      if (!tile.kept && (tile.values || tile.failed)) this.tiles.delete(key);
    }
  }

  /** The whole pooled map, one pixel a block of bins: {canvas, limits (the last colour's weight in each row), kinds}. */
  bitmap(pooling, head, scale, block, theme) {
    const key = `${pooling} ${head} ${scale} ${block} ${theme.name}`;
    if (!this.bitmaps.has(key)) {
      if (this.bitmaps.size > 24) this.bitmaps.delete(this.bitmaps.keys().next().value);
      this.bitmaps.set(key, this.paintBitmap(pooling, head, scale, block, theme));
    }
    return this.bitmaps.get(key);
  }

  /** The largest pooled weight of each block of bins, so that a single bright bin is never lost. */
  blocks(pooling, head, block) {
    const [rows, columns] = [Math.ceil(this.rows / block), Math.ceil(this.columns / block)];
    const values = new Float32Array(rows * columns);
    for (let row = 0; row < this.rows; row += 1) {
      for (let column = 0; column < this.columns; column += 1) {
        const bin = this.pooled(pooling, head, row, column);
        // What is not zero stays so, however small.
        const value = bin.value === 0 && !bin.zero ? 1e-38 : bin.value;
        const cell = Math.floor(row / block) * columns + Math.floor(column / block);
        if (Number.isNaN(value) || value > values[cell]) values[cell] = value; // NaN stays
      }
    }
    return { rows, columns, values };
  }

  paintBitmap(pooling, head, scale, block, theme) {
    const { rows, columns, values } = this.blocks(pooling, head, block);
    const largest = (part) => part.reduce((most, value) => (value > most ? value : most), 0);
    const limits = new Float64Array(rows).fill(largest(values));
    if (scale === "row") for (let row = 0; row < rows; row += 1) limits[row] = largest(values.subarray(row * columns, (row + 1) * columns));
    const kinds = new Uint8Array(rows * columns);
    const shades = new Uint8Array(rows * columns);
    values.forEach((value, cell) => { ({ kind: kinds[cell], shade: shades[cell] } = shadeOf(value, limits[Math.floor(cell / columns)], scale)); });
    return { canvas: mapCanvas(columns, rows, kinds, shades, theme), limits, kinds: new Set(kinds) };
  }

  /** What was found in the map: {text, head, row, column}. */
  places() {
    const { sinks, diagonals, spikes } = this.findings;
    const { queries, keys } = this.record;
    const middle = Math.floor(queries.length / 2);
    return [
      ...sinks.map((one) => ({ text: `head ${one.head}: sink at key ${counted(one.key)}, mean ${formatNumber(one.share)}`,
        head: one.head, row: middle, column: one.key })),
      ...diagonals.map((one) => {
        const row = clamp(middle, Math.max(0, -one.offset), Math.min(queries.length - 1, keys.length - 1 - one.offset));
        const distance = one.offset === 0 ? "key = query" : `key = query ${one.offset > 0 ? "+" : "\u2212"} ${counted(Math.abs(one.offset))}`;
        return { text: `head ${one.head}: diagonal ${distance}, mean ${formatNumber(one.share)}`, head: one.head, row, column: row + one.offset };
      }),
      ...spikes.map((one) => ({ text: `head ${one.head}: ${formatNumber(one.weight)} at query ${counted(one.query)}, key ${counted(one.key)}`,
        head: one.head, row: one.query, column: one.key })),
    ];
  }

  /** Mean weight that each bin of keys receives from a query. */
  received(head) {
    if (!this.receivedSums.has(head)) {
      const sums = new Float64Array(this.columns);
      const length = this.record.queries.length;
      for (let row = 0; row < this.rows; row += 1) {
        const share = (this.edge(length, this.rows, row + 1) - this.edge(length, this.rows, row)) / length;
        for (let column = 0; column < this.columns; column += 1) sums[column] += this.pooled("mean", head, row, column).value * share;
      }
      this.receivedSums.set(head, sums);
    }
    return this.receivedSums.get(head);
  }
}

// thumbnails.js

/** Most points of a small map along a side. */
const THUMBNAIL = 160;

/** Of how many queries and keys a point of a record's small maps is the largest weight. */
function reduction(record) {
  const [queries, keys] = [record.queries.length, record.keys.length];
  if (!record.large) return Array(2).fill(Math.max(1, Math.ceil(Math.max(queries, keys) / THUMBNAIL)));
  const { rows, columns } = record.entry.overview;
  const block = Math.max(1, Math.ceil(Math.max(rows, columns) / THUMBNAIL));
  return [(block * queries) / rows, (block * keys) / columns];
}

/** A record's head as a small picture: the largest weight of each block of cells. */
function thumbnailOf(record, head, scale, theme) {
  const [queries, keys] = [record.queries.length, record.keys.length];
  const [block] = reduction(record);
  const [rows, columns] = [Math.ceil(queries / block), Math.ceil(keys / block)];
  const best = new Uint8Array(rows * columns);
  const masked = new Uint8Array(rows * columns).fill(1);
  let largest = 0;
  for (let query = 0; query < queries; query += 1) {
    const base = (head * queries + query) * keys;
    const line = Math.floor(query / block) * columns;
    for (let key = 0; key < keys; key += 1) {
      if (record.visible && !record.sees(head, query, key)) continue;
      const cell = line + (block === 1 ? key : Math.floor(key / block));
      const code = record.codes[base + key];
      masked[cell] = 0;
      if (code > best[cell]) best[cell] = code;
      if (code > largest && code !== NAN_CODE) largest = code;
    }
  }
  const most = CODE_VALUES[largest] || 1;
  const shadesOf = CODE_VALUES.map((value) => Math.round(255 * clamp(SCALES[scale].shade(value / most) || 0, 0, 1)));
  const kinds = new Uint8Array(rows * columns);
  for (let cell = 0; cell < kinds.length; cell += 1) {
    kinds[cell] = masked[cell] ? MASKED : best[cell] === NAN_CODE ? MISSING : best[cell] === 0 ? ZERO : WEIGHT;
    if (kinds[cell] !== WEIGHT) record.thumbnailKinds.add(kinds[cell]);
  }
  return mapCanvas(columns, rows, kinds, best.map((code) => shadesOf[code]), theme);
}

// views/record_view.js

/** What the views of one record have in common. */
class RecordView extends View {
  ofTables = true;

  available(app) {
    return app.records.some((record) => this.shows(record));
  }

  shows(record) {
    return !record.large;
  }

  /** @returns {Legend} */
  legend(app) {
    const table = app.table();
    const samples = [[ZERO, say("zero")]];
    if (table.hasMasked) samples.push([MASKED, say("masked")]);
    if (table.hasMissing) samples.push([MISSING, "NaN"]);
    const perRow = app.state.scale === "row";
    return { ramp: "map", scale: app.state.scale, title: say(perRow ? "partOfRow" : "weightTitle"), largest: perRow ? null : table.end,
      even: perRow ? null : 1 / table.columns, samples: samples.filter(([kind]) => kind !== ZERO || table.hasZero), text: this.legendText(app, table) };
  }

  /** What was done to the weights that are shown. */
  legendText(app, table) {
    const { scale } = app.state;
    return [scale === "root" || scale === "log" ? say(/** @type {any} */ (`scale_${scale}`)) : "", mergedText(table) && say("mergedWords"), hiddenText(table).replace(/^ \u00b7 /, "")]
      .filter(Boolean).join(" \u00b7 ");
  }

  activate(app, item) {
    app.toggleLocked(item.row);
  }

  /** Whether an item is one of the shown table. */
  has(app, item) {
    const table = app.table();
    return (item.row ?? 0) < table.rows && (item.column ?? 0) < table.columns;
  }
}

/** Text of one cell of a table. */
function describeCell(app, table, row, column) {
  const head = app.headText();
  return `${quoted(table.rowText(row))} \u2192 ${quoted(table.columnText(column))}: ${table.cell(row, column)} `
    + `(${head}; query ${table.rowGroups[row][0]}, key ${table.columnGroups[column][0]}; ${table.rowSummary(row)})`;
}

/** A record as cells with tokens on both sides. */
class CellView extends RecordView {
  start() {
    return { row: 0, column: 0 };
  }

  move(app, item, dx, dy) {
    const table = app.table();
    return { row: clamp(item.row + dy, 0, table.rows - 1), column: clamp(item.column + dx, 0, table.columns - 1) };
  }

  describe(app, item) {
    return describeCell(app, app.table(), item.row, item.column);
  }
}

/** The least room for the names of the two sides in the corner of a map. */
const CORNER = 94;

function widest(table, side) {
  if (table.widest[side] === undefined) {
    const count = side === "row" ? table.rows : table.columns;
    let most = 20;
    for (let number = 0; number < Math.min(count, 2000); number += 1) {
      const text = side === "row" ? table.rowText(number) : table.columnText(number);
      most = Math.max(most, textWidth(shortText(text), { bold: true }));
    }
    table.widest[side] = most;
  }
  return table.widest[side];
}

// frame.js

/** The elements of the viewer: heading, tabs, controls, the canvas in its scrolled stage, tooltip, readout. */
class Frame {
  /**
   * @param {HTMLElement} element gets a shadow root
   * @param {number|undefined} height in pixels; as high as the element without one
   */
  constructor(element, height) {
    this.root = element.shadowRoot ?? element.attachShadow({ mode: "open" });
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(STYLE);
    this.root.adoptedStyleSheets = [sheet];
    this.title = make("h2");
    this.texts = make("p", { class: "texts" });
    this.facts = make("p", { class: "facts" });
    this.more = make("button", { class: "more", type: "button", text: "\u22ef", "aria-label": say("more"), title: say("more"), "aria-expanded": "false", "aria-controls": "menu" });
    this.menu = make("div", { class: "menu", id: "menu", role: "group", "aria-label": say("more"), hidden: true });
    this.tabs = make("div", { class: "tabs", role: "tablist", "aria-label": say("views") });
    this.bar = make("div", { class: "bar", role: "group", "aria-label": say("settings") });
    this.canvas = make("canvas", { tabindex: "0", role: "application", "aria-roledescription": say("attentionView"), "aria-describedby": "sentence help" });
    this.space = make("div", { class: "space" });
    this.scroller = make("div", { class: "scroll" }, this.space, this.canvas);
    this.stage = make("div", { class: "stage", role: "tabpanel", id: "stage", "aria-busy": "true" }, this.scroller);
    this.tip = make("div", { class: "tip", "aria-hidden": "true", hidden: true });
    this.sentence = make("p", { class: "sentence", id: "sentence" });
    this.shares = make("p", { class: "shares" });
    this.readout = make("p", { class: "readout", id: "readout", role: "status", "aria-live": "polite" });
    this.help = make("p", { class: "help", id: "help" });
    this.what = make("button", { class: "what", type: "button", text: say("whatIsThis"), "aria-pressed": "false" });
    this.cards = make("div", { class: "cards", hidden: true });
    this.box = make("section", { class: "viewer", "aria-label": say("attentionWeights") },
      make("header", {}, this.title, this.texts, this.facts, this.more),
      make("div", { class: "row" }, this.bar, this.tabs), this.stage,
      make("footer", {}, make("div", { class: "told" }, this.sentence, this.shares, this.help), this.what),
      this.readout, this.menu, this.tip, this.cards);
    if (height) this.box.style.height = `${height}px`;
    this.root.replaceChildren(this.box);
    this.pen = new CanvasPen(this.canvas.getContext("2d", { alpha: false }));
  }

  /** What the document says beside the attention: (name, text). */
  showTexts(texts) {
    this.texts.replaceChildren(...texts.map(([name, text]) =>
      make("span", {}, make("b", { text: visibleText(name) }), document.createTextNode(visibleText(text)))));
    this.texts.hidden = texts.length === 0;
    if (texts.length) this.texts.tabIndex = 0;
    else this.texts.removeAttribute("tabindex");
  }

  /** A tab for each view; `choose` is called with its name. */
  showTabs(views, current, choose) {
    this.tabs.hidden = views.length < 2;
    this.tabs.replaceChildren(...views.map((view) => make("button", {
      type: "button", role: "tab", id: `tab-${view.name}`, "aria-selected": String(view === current), "aria-controls": "stage",
      tabindex: view === current ? "0" : "-1", text: say(view.name), on: { click: () => choose(view.name) },
    })));
  }

  /** What may have the focus, above the picture. */
  get controls() {
    return [this.bar, this.tabs, this.menu].flatMap((parent) => focusable(parent));
  }

  /** Where the focus is, to give it back to what stands there after the controls were built again. */
  focusPlace() {
    const focused = /** @type {any} */ (this.root.activeElement);
    return { place: this.controls.indexOf(focused),
      named: focused?.getAttribute?.("aria-label") ?? focused?.closest?.("label")?.textContent };
  }

  restoreFocus({ place, named }) {
    if (place < 0) return;
    if (this.root.activeElement) return; // the focus was moved on purpose meanwhile
    const all = this.controls;
    const same = all.find((one) => (one.getAttribute("aria-label") ?? one.closest("label")?.textContent) === named && named);
    (same ?? all[Math.min(place, all.length - 1)])?.focus();
  }

  /** What is highlighted, in a sentence and in numbers. */
  tellSentence({ text, shares }) {
    if (this.sentence.textContent !== text) this.sentence.textContent = this.sentence.title = text;
    if (this.shares.textContent !== shares) this.shares.textContent = this.shares.title = shares;
  }

  /** Colours of the elements around the canvas. */
  paintWith(theme) {
    for (const name of ["background", "surface", "border", "text", "muted", "accent", "accentText", "focus"]) {
      this.box.style.setProperty(`--${name}`, theme[name]);
    }
  }

  /** Puts the tooltip beside a box of the canvas, in its pixels, and inside of the stage. */
  placeTip(text, { x, y, width, height }, room) {
    if (this.tip.textContent !== text) this.tip.textContent = text;
    const { offsetWidth, offsetHeight } = this.tip;
    const [left, top] = [x, y + this.stage.offsetTop];
    const beside = left + width + 12 + offsetWidth > room ? left - offsetWidth - 12 : left + width + 12;
    const below = top + height + 10;
    const bottom = this.stage.offsetTop + this.stage.offsetHeight;
    const [right, down] = [Math.min(Math.max(8, room - offsetWidth - 8), Math.max(8, beside)),
      Math.max(0, below + offsetHeight > bottom ? top - offsetHeight - 10 : below)];
    this.tip.style.transform = `translate(${Math.round(right)}px, ${Math.round(down)}px)`;
  }
}

// sentence.js

/** A token inside a sentence, kept from changing the direction of the words around it. */
const named = (text) => `\u2068${shortText(text)}\u2069`;

/** Keys of a row whose weights are named one by one. */
const NAMED = 3;

const found = new WeakMap();

/**
 * The query with the most surprising key of a table (see `structure`); where none stands out, the largest weight of tokens that are not special.
 * @returns {{row: number, column: number}|null} null where no query sees a key
 */
function mostSurprising(table) {
  if (!found.has(table)) found.set(table, search(table));
  return found.get(table);
}

function search(table) {
  const { rows, columns, record } = table;
  if (table.head !== null) {
    const best = structure(record, table.head);
    const place = (groups, position) => groups.findIndex(([start, stop]) => position !== null && start <= position && position < stop);
    const [row, column] = [place(table.rowGroups, best.row), place(table.columnGroups, best.column)];
    if (row >= 0 && column >= 0) return { row, column };
  }
  let best = null;
  for (let row = 0; row < rows; row += 1) {
    for (let column = 0; column < columns; column += 1) {
      if (!(table.value(row, column) > 0) || table.kind(row, column) === MASKED) continue;
      const special = record.queries.isSpecial(table.rowGroups[row]) || record.keys.isSpecial(table.columnGroups[column]);
      const score = table.value(row, column) - (special ? 1e6 : 0);
      if (!best || score > best.score) best = { score, row, column };
    }
  }
  return best && { row: best.row, column: best.column };
}

/** The keys of a row that are not masked, the largest weight first. */
function byWeight(table, row) {
  const order = Array.from({ length: table.columns }, (_, column) => column).filter((column) => table.kind(row, column) !== MASKED);
  return order.sort((a, b) => table.value(row, b) - table.value(row, a));
}

/** A part as percent, in whole numbers. */
function percent(part) {
  const text = part > 0 && part < 0.005 ? "<\u00a01" : String(Math.round(100 * part));
  return language() === "zh" ? `${text}%` : `${text}\u00a0%`;
}

/** What an even share of a row's weight would be, over the keys that it sees. */
const evenShare = (table, row) => 1 / Math.max(1, byWeight(table, row).length);

/**
 * What a table says of a query, in numbers.
 * @param {number|null} column the key that is spoken of; null: the one with the largest weight
 * @returns {{text: string, shares: string}}
 */
function sayOfRow(table, row, column = null) {
  const query = named(table.rowText(row));
  const order = byWeight(table, row);
  if (!order.length) return { text: say("seesNothing", { query }), shares: "" };
  const of = column ?? order[0];
  const key = named(table.columnText(of));
  const value = table.value(row, of);
  const whole = Math.abs(table.rowSums[row] + table.hidden[row] - 1) < 0.02;
  const text = table.kind(row, of) === MASKED ? say("mayNotSee", { query, key })
    : Number.isNaN(value) ? say("noNumber", { query, key })
      : whole ? say("gives", { query, key, percent: percent(value) }) : say("givesWeight", { query, key, weight: shortWeight(value) });
  const parts = order.slice(0, NAMED).map((one) => `${named(table.columnText(one))} ${shortWeight(table.value(row, one))}`);
  const rest = order.slice(NAMED);
  if (rest.length) parts.push(say("moreKeys", { count: rest.length, weight: shortWeight(rest.reduce((sum, one) => sum + table.value(row, one), 0)) }));
  return { text, shares: `${query} \u2192 ${parts.join(" \u00b7 ")} \u2014 ${say("evenShare", { weight: shortWeight(evenShare(table, row)) })}` };
}

/** What a table says of a key: who looks at it most. */
function sayOfColumn(table, column) {
  let best = null;
  for (let row = 0; row < table.rows; row += 1) {
    if (table.kind(row, column) !== MASKED && (best === null || table.value(row, column) > table.value(best, column))) best = row;
  }
  const key = named(table.columnText(column));
  if (best === null) return { text: say("seenByNobody", { key }), shares: "" };
  return { text: say("lookedAt", { key, query: named(table.rowText(best)), percent: percent(table.value(best, column)) }), shares: "" };
}

/** The pair that the sentence speaks of while nothing is pointed at: of the query that was locked last, else the most surprising one. */
function featured(app) {
  if (!app.record || app.record.large || !app.view.ofTables) return null;
  const table = app.table();
  const row = app.state.locked.at(-1);
  if (row !== undefined && row < table.rows) return { row, column: byWeight(table, row)[0] ?? 0 };
  return mostSurprising(table);
}

/** The sentence of what is shown, and the shares of its row. */
function sentenceOf(app) {
  const item = app.active();
  if (app.view.sentence) return app.view.sentence(app, item);
  if (!app.view.ofTables || app.record.large) return { text: item ? app.view.describe(app, item) : "", shares: "" };
  const table = app.table();
  if (item?.side === "key") return sayOfColumn(table, item.column);
  if (item?.row !== undefined) return sayOfRow(table, item.row, item.column ?? null);
  const best = featured(app);
  return best ? sayOfRow(table, best.row, app.state.locked.length ? null : best.column) : { text: "", shares: "" };
}

// legend.js

/** Steps of a legend's ramp; odd, so that the numbers below its ends and its middle stand under their own colours. */
const LEGEND_STEPS = 65;

/**
 * The number below a place of a legend's ramp.
 * @param {{ramp: string, scale: string, largest: number|null, beyond?: boolean}} legend largest: the weight of the last colour; null: the
 *   numbers are percent of what differs from map to map
 * @param {number} shade
 */
function tickText({ ramp, scale, largest, beyond }, shade) {
  if (ramp === "signed") return shade === 0.5 ? "0" : `${shade === 0 ? "\u2212" : "+"}${legendNumber(largest)}`;
  const part = shade === 0 && scale === "log" ? 10 ** -DECADES : scaleInverse(scale, shade);
  const text = largest === null ? `${legendNumber(100 * part)} %` : legendNumber(part * largest);
  if (shade === 0 && scale === "log") return `\u2264 ${text}`;
  return shade === 1 && beyond ? `\u2265 ${text}` : text;
}

/** Where the parts of the ramp are: the mark of an even share, the colours, the numbers below them. */
const RAMP_PLACE = { mark: 6, top: 13, height: 10, numbers: 32 };

const SMALL = { size: 11 };

const LINE = 14;

/** Above the lines of text. */
const textTop = (legend) => (legend.ramp ? 46 : legend.samples?.length ? 26 : 8);

/** Lines that a legend's text has. */
function linesOf(legend, width) {
  return legend.text ? Math.min(width < NARROW ? 4 : 2, wrapText(legend.text, width - 32, SMALL).length) : 0;
}

/** The height that a legend needs, in pixels. */
const legendHeight = (legend, width) => textTop(legend) + LINE * linesOf(legend, width) + 2;

/**
 * The scale below a view: its title, a ramp with numbers and the mark of an even share, samples of what is not a weight, and a text.
 * A legend has: ramp ("map", "words", "signed" or null), title, scale, largest (see `tickText`), even (the weight of an even share), beyond
 * (whether something larger than the largest is shown in its colour), samples, text.
 */
function drawLegend(pen, legend, width, theme) {
  const lines = wrapText(legend.text ?? "", width - 32, SMALL);
  const room = linesOf(legend, width);
  let x = 16;
  if (legend.ramp) x = drawRamp(pen, legend, x, width, theme);
  for (const sample of legend.samples ?? []) x = drawSample(pen, sample, x, width, theme);
  lines.slice(0, room).forEach((line, number) => {
    const last = number === room - 1 && lines.length > room;
    pen.text(last ? fitText(`${line} \u2026`, width - 32, SMALL) : line, 16, textTop(legend) + 6 + number * LINE, { color: theme.muted, ...SMALL });
  });
}

function drawRamp(pen, legend, start, width, theme) {
  const { top, height, numbers, mark } = RAMP_PLACE;
  const title = legend.title ?? say("weightTitle");
  const style = { size: 12, bold: true };
  pen.text(title, start, top + height / 2, { color: theme.text, ...style });
  const x = start + textWidth(title, style) + 12;
  const length = clamp(width * 0.28, 100, 240);
  for (let step = 0; step < LEGEND_STEPS; step += 1) {
    const shade = step / (LEGEND_STEPS - 1);
    const fill = legend.ramp === "signed" ? divergingColor(2 * shade - 1, theme) : rampColor(shade, theme);
    pen.rect(x + (step * length) / LEGEND_STEPS, top, length / LEGEND_STEPS + 0.6, height, { fill });
  }
  pen.rect(x, top, length, height, { stroke: theme.border });
  for (const shade of [0, 0.5, 1]) {
    pen.text(tickText(legend, shade), x + shade * length, numbers,
      { color: theme.muted, size: 11, align: shade === 0 ? "start" : shade === 1 ? "end" : "center" });
  }
  const { even, largest, scale } = legend;
  if (even > 0 && largest > 0 && even <= largest) {
    const at = x + SCALES[scale].shade(even / largest) * length;
    pen.path([[at, top - 4], [at, top + height + 3]], { color: theme.text, lineWidth: 2 });
    pen.text(say("evenMark", { weight: shortWeight(even) }), at + 4, mark, { color: theme.text, size: 11 });
  }
  return x + length + 20;
}

/** Below this width the text of a legend has up to four lines, else two. */
const NARROW = 640;

function drawSample(pen, [kind, text], x, width, theme) {
  const end = x + 18 + textWidth(text, { size: 11 }) + 12;
  if (end > width) return x;
  drawKind(pen, kind, x, 12, 12, 12, theme);
  pen.rect(x, 12, 12, 12, { stroke: theme.border });
  pen.text(text, x + 18, 18, { color: theme.muted, size: 11 });
  return end;
}

// views/walk_view.js

const MOST_TERMS = 12;

const MOST_PRODUCTS = 6;

/** The worked calculation of one head: a cell's dot product, scale, mask, normalization and output, with all numbers. */
class WalkView extends View {
  name = "walk";

  quiet = true; // the calculation beside the map says more than a tooltip

  title = "Walk";

  controls = ["steps", "step"];

  help = "Arrow keys move the cell; its calculation is beside the map. Enter keeps a cell, Esc gives it up.";

  available(app) {
    return app.steps.length > 0;
  }

  geometry(app) {
    const steps = app.steps[app.state.steps];
    const { width, height } = app.area;
    const labels = (texts) => Math.max(20, ...texts.slice(0, 500).map((text) => textWidth(shortText(text, 16), { bold: true })));
    const left = Math.min(labels(steps.entry.keys.length ? steps.entry.queries : [""]) + 14, width * 0.3);
    const beside = width >= 720;
    const room = (beside ? width * 0.48 : width) - left - 10;
    const cell = clamp(room / Math.max(1, steps.columns), 12, 54);
    const column = Math.min(90, labels(steps.entry.keys));
    const flat = column + 8 <= cell;
    const top = 40 + (flat ? 6 : column);
    const tall = Math.min(cell, 34);
    const bottom = top + steps.rows * tall;
    const panel = beside ? { x: Math.max(left + steps.columns * cell + 28, 300), y: 10 } : { x: 12, y: bottom + 18 };
    return { steps, left, top, cell, tall, flat, bottom, panel: { ...panel, width: Math.max(260, width - panel.x - 10) }, height };
  }

  size(app) {
    const place = this.geometry(app);
    const item = this.chosen(app);
    const height = this.panelHeight(app, place, item);
    return { width: Math.max(app.area.width, place.left + place.steps.columns * place.cell + 8, place.panel.x + place.panel.width),
      height: Math.max(place.bottom + 12, place.panel.y + height + 12) };
  }

  /** The cell whose calculation is shown: the kept one, else the one under the mouse, else the first visible one. */
  chosen(app) {
    if (app.state.kept && this.has(app, app.state.kept)) return app.state.kept;
    return app.active() ?? { row: 0, column: 0 };
  }

  draw(app, pen) {
    const place = this.geometry(app);
    const { steps, left, top, cell, tall } = place;
    const name = steps.names.includes(app.state.step) ? app.state.step : "weights";
    const matrix = steps.matrices[name];
    const { theme } = app;
    pen.text(name, left, 12, { color: theme.text, size: 13, bold: true });
    pen.text(PAIR_STEPS[name], left + textWidth(name, { size: 13, bold: true }) + 8, 12, { color: theme.muted, size: 12 });
    const range = finiteRange(matrix);
    for (let row = 0; row < steps.rows; row += 1) {
      for (let column = 0; column < steps.columns; column += 1) {
        const hidden = name === "weights" && steps.hides(row, column);
        this.drawCell(app, pen, place, hidden ? -Infinity : matrix[row * steps.columns + column], row, column, range, hidden);
      }
    }
    this.drawLabels(app, pen, place);
    const item = this.chosen(app);
    ring(pen, left + item.column * cell, top + item.row * tall, cell, tall, app.state.kept ? theme.accent : theme.focus, theme);
    const panel = new Panel(pen, theme, place.panel);
    this.write(panel, steps, item);
  }

  drawCell(app, pen, place, value, row, column, range, hidden) {
    const [x, y] = [place.left + column * place.cell, place.top + row * place.tall];
    const { cell, tall } = place;
    if (value === -Infinity) pen.hatch(x, y, cell - 1, tall - 1, app.theme);
    else if (!Number.isFinite(value)) pen.cross(x, y, cell - 1, tall - 1, app.theme);
    else {
      const shade = range[1] > range[0] ? (value - range[0]) / (range[1] - range[0]) : 0.5;
      pen.rect(x, y, cell - 1, tall - 1, { fill: rampColor(shade, app.theme) });
      if (cell >= 34) {
        pen.text(Math.abs(value) >= 100 ? value.toFixed(0) : value.toFixed(2).replace("-", "\u2212"), x + cell / 2 - 0.5, y + tall / 2,
          { color: inkOnRamp(shade, app.theme), size: 11, align: "center" });
      }
    }
    if (value === -Infinity && !hidden && cell >= 34) pen.text("\u2212\u221e", x + cell / 2, y + tall / 2, { color: app.theme.text, size: 11, align: "center" });
  }

  drawLabels(app, pen, place) {
    const { steps, left, top, cell, tall, flat } = place;
    const item = this.chosen(app);
    const { theme } = app;
    const rowStep = Math.ceil(12 / tall);
    steps.entry.queries.forEach((text, row) => {
      if (row % rowStep && row !== item.row) return;
      pen.text(fitText(shortText(text, 16), left - 12, { bold: row === item.row }), left - 8, top + (row + 0.5) * tall,
        { color: theme.text, align: "end", bold: row === item.row });
    });
    steps.entry.keys.forEach((text, column) => {
      const style = { color: theme.text, bold: column === item.column };
      const x = left + (column + 0.5) * cell;
      if (flat) pen.text(shortText(text, 16), x, top - 10, { ...style, align: "center" });
      else pen.text(fitText(shortText(text, 16), top - 42, style), x, top - 6, { ...style, angle: -90 });
    });
  }

  panelHeight(app, place, item) {
    const panel = new Panel(null, app.theme, place.panel);
    this.write(panel, place.steps, item);
    return panel.y - place.panel.y;
  }

  /** The calculation of a cell. */
  write(panel, steps, { row, column }) {
    panel.heading(`${shortText(steps.entry.queries[row], 24)} \u2192 ${shortText(steps.entry.keys[column], 24)}`);
    this.writeScore(panel, steps, row, column);
    this.writeChanges(panel, steps, row, column);
    this.writeWeights(panel, steps, row, column);
    this.writeOutput(panel, steps, row);
  }

  writeScore(panel, steps, row, column) {
    const score = steps.at("scores", row, column);
    if (steps.entry.score !== "dot") {
      panel.line(`1. score (${shortText(steps.entry.score)}) = ${formatNumber(score)}`);
      return;
    }
    panel.line("1. Score: the dot product of query and key");
    const dim = steps.columnsOf("query");
    const shown = dim > MOST_TERMS ? MOST_TERMS - 2 : dim;
    const rows = [];
    for (let d = 0; d < shown; d += 1) {
      const [q, k] = [steps.at("query", row, d), steps.at("key", column, d)];
      rows.push([String(d), formatNumber(q), formatNumber(k), formatNumber(q * k)]);
    }
    if (shown < dim) {
      let rest = 0;
      for (let d = shown; d < dim; d += 1) rest += steps.at("query", row, d) * steps.at("key", column, d);
      rows.push([`${shown}\u2013${dim - 1}`, "", "", formatNumber(rest)]);
    }
    panel.table(["dim", "query", "key", "query \u00d7 key"], rows, ["sum", "", "", formatNumber(score)]);
  }

  writeChanges(panel, steps, row, column) {
    let before = steps.at("scores", row, column);
    let number = 2;
    for (const name of ["scaled", "capped", "biased", "masked"]) {
      if (!steps.names.includes(name)) continue;
      const value = steps.at(name, row, column);
      const texts = {
        scaled: `Scale: ${formatNumber(before)} \u00d7 ${formatNumber(steps.scale)} = ${formatNumber(value)}`,
        capped: `Cap or function of the score: ${formatNumber(before)} becomes ${formatNumber(value)}`,
        biased: `Bias: ${formatNumber(before)} + ${formatNumber(value - before)} = ${formatNumber(value)}`,
        masked: value === -Infinity ? "Mask: this key is hidden, its score is \u2212\u221e" : "Mask: this key is visible",
      };
      panel.line(`${number}. ${texts[name]}`);
      number += 1;
      before = value;
    }
    this.number = number;
  }

  writeWeights(panel, steps, row, column) {
    const last = steps.names.filter((name) => name !== "weights" && name in PAIR_STEPS).at(-1);
    const scores = Array.from({ length: steps.columns }, (_, key) => steps.at(last, row, key));
    const weights = scores.map((_, key) => steps.at("weights", row, key));
    const softmax = steps.entry.normalizer === "softmax";
    const most = Math.max(...scores.filter((score) => !Number.isNaN(score)));
    panel.line(softmax ? `${this.number}. Softmax: exp(score \u2212 ${formatNumber(most)}), divided by the sum over the row`
      : `${this.number}. Weights: ${shortText(steps.entry.normalizer)} over the row`);
    const exponentials = scores.map((score) => (score === -Infinity ? 0 : Math.exp(score - most)));
    const sum = exponentials.reduce((a, b) => a + b, 0);
    const total = weights.reduce((a, b) => a + b, 0);
    const keys = strongest(weights, MOST_TERMS, column);
    const rest = weights.map((_, key) => key).filter((key) => !keys.includes(key));
    const add = (numbers, some) => some.reduce((part, key) => part + numbers[key], 0);
    const rows = keys.map((key) => [shortText(steps.entry.keys[key], 14), formatNumber(scores[key]),
      ...(softmax ? [formatNumber(exponentials[key])] : []), steps.hides(row, key) ? "masked" : formatNumber(weights[key])]);
    if (rest.length) {
      const chosen = strongest(weights, MOST_TERMS).includes(column) ? "" : " and the chosen one";
      panel.line(`${keys.length} of ${steps.columns} keys shown: the strongest${chosen}`);
      rows.push([`${rest.length} more`, "", ...(softmax ? [formatNumber(add(exponentials, rest))] : []), formatNumber(add(weights, rest))]);
    }
    const foot = [rest.length ? `sum of all ${steps.columns}` : "sum", "", ...(softmax ? [formatNumber(sum)] : []), formatNumber(total)];
    panel.table(["key", "score", ...(softmax ? ["exp"] : []), "weight"], rows, foot, keys.indexOf(column));
    this.number += 1;
  }

  writeOutput(panel, steps, row) {
    const dims = Math.min(steps.columnsOf("value"), panel.width > 420 ? 4 : 3);
    const rest = steps.columnsOf("value") - dims;
    panel.line(`${this.number}. Output: the sum over keys of weight \u00d7 value${rest ? ` (the first ${dims} of ${rest + dims} dimensions)` : ""}`);
    const all = Array.from({ length: steps.columns }, (_, key) => key);
    const keys = strongest(all.map((key) => steps.at("weights", row, key)), MOST_PRODUCTS);
    const others = all.filter((key) => !keys.includes(key));
    const product = (key, d) => steps.at("weights", row, key) * steps.at("value", key, d);
    const numbers = Array.from({ length: dims }, (_, d) => d);
    const rows = keys.map((key) => [shortText(steps.entry.keys[key], 14), ...numbers.map((d) => formatNumber(product(key, d)))]);
    if (others.length) {
      rows.push([`${others.length} more`, ...numbers.map((d) => formatNumber(others.reduce((sum, key) => sum + product(key, d), 0)))]);
    }
    panel.table(["key", ...numbers.map((d) => `dim ${d}`)], rows, ["output", ...numbers.map((d) => formatNumber(steps.at("output", row, d)))]);
  }

  hit(app, x, y) {
    const { steps, left, top, cell, tall } = this.geometry(app);
    if (x < left || y < top) return null;
    const [row, column] = [Math.floor((y - top) / tall), Math.floor((x - left) / cell)];
    return row < steps.rows && column < steps.columns ? { row, column } : null;
  }

  place(app, item) {
    const { left, top, cell, tall } = this.geometry(app);
    return { x: left + item.column * cell, y: top + item.row * tall, width: cell, height: tall };
  }

  start() {
    return { row: 0, column: 0 };
  }

  has(app, item) {
    const steps = app.steps[app.state.steps];
    return item.row < steps.rows && item.column < steps.columns;
  }

  move(app, item, dx, dy) {
    const steps = app.steps[app.state.steps];
    const moved = { row: clamp(item.row + dy, 0, steps.rows - 1), column: clamp(item.column + dx, 0, steps.columns - 1) };
    if (app.state.kept) app.state.kept = moved;
    return moved;
  }

  activate(app, item) {
    const { kept } = app.state;
    app.state.kept = kept && kept.row === item.row && kept.column === item.column ? null : { ...item };
  }

  describe(app, item) {
    const steps = app.steps[app.state.steps];
    const parts = steps.names.filter((name) => name in PAIR_STEPS).map((name) => {
      const value = steps.at(name, item.row, item.column);
      const masked = (name === "masked" && value === -Infinity) || (name === "weights" && steps.hides(item.row, item.column));
      return `${name} ${formatNumber(value)}${masked ? " (masked)" : ""}`;
    });
    return `${quoted(steps.entry.queries[item.row])} \u2192 ${quoted(steps.entry.keys[item.column])}: ${parts.join(", ")}`;
  }

  legend(app) {
    const steps = app.steps[app.state.steps];
    const name = steps.names.includes(app.state.step) ? app.state.step : "weights";
    const [low, high] = finiteRange(steps.matrices[name]);
    const samples = steps.names.includes("masked") ? [[MASKED, "masked"]] : [];
    if (steps.matrices[name].some((value) => !Number.isFinite(value) && value !== -Infinity)) samples.push([MISSING, "not finite"]);
    return { ramp: null, samples, text: `${name}: from ${formatNumber(low)} (blue) to ${formatNumber(high)} (yellow), linear scale \u00b7 exact numbers (float64)` };
  }
}

// attention_data.js

/** One attention call of the payload. */
class AttentionData {
  constructor(entry, number, axes, masks) {
    this.entry = entry;
    this.number = number;
    this.queries = axes[entry.queries];
    this.keys = axes[entry.keys];
    this.heads = entry.heads;
    this.maskEntry = entry.visible === null ? null : masks[entry.visible];
    this.codes = null;
    this.exact = null;
    this.visible = null;
    this.overview = null;
    this.thumbnailKinds = new Set(); // what the small maps show that is no weight
    this.ready = null;
    this.decoded = false;
  }

  get label() {
    return `${say("layerNumber", { layer: this.entry.layer })} \u00b7 ${kindText(this.entry.kind)}`;
  }

  get large() {
    return this.entry.overview !== null;
  }

  /** Decodes the record once; every caller waits for the same work. */
  decode() {
    this.ready ??= this.decodeAll();
    return this.ready;
  }

  async decodeAll() {
    const { entry } = this;
    await this.queries.decodePicture();
    await this.keys.decodePicture();
    if (this.maskEntry) this.visible = await (this.maskEntry.decoded ??= decodeBits(this.maskEntry));
    if (entry.codes) this.codes = await inflate(entry.codes.data);
    if (entry.exact) this.exact = await decodeNumbers(entry.exact);
    if (entry.overview) this.overview = await LongMap.decode(this);
    this.decoded = true;
  }

  /** Asks once for exact numbers that the payload did not carry; without an answer the codes stay. */
  async fetchExact(fetchTile) {
    if (this.exact || this.asked || this.large || !fetchTile) return false;
    this.asked = true;
    const [queries, keys] = [this.queries.length, this.keys.length];
    try {
      const values = await decodeTile(await fetchTile(this.number, 0, queries, 0, keys));
      // Masked pairs are negative in a tile.
      if (values.length === this.heads * queries * keys) this.exact = values.map((value) => (value < 0 ? 0 : value));
    } catch {
      this.exact = null;
    }
    return this.exact !== null;
  }

  /** Whether a pair is visible. */
  sees(head, query, key) {
    if (!this.visible) return true;
    const perHead = this.maskEntry.shape.length === 3 ? head * this.queries.length * this.keys.length : 0;
    return this.visible[perHead + query * this.keys.length + key] === 1;
  }

  /** Whether a query sees any key. */
  seesAny(head, query) {
    if (!this.visible) return this.keys.length > 0;
    const keys = this.keys.length;
    const base = ((this.maskEntry.shape.length === 3 ? head * this.queries.length : 0) + query) * keys;
    return this.visible.subarray(base, base + keys).includes(1);
  }
}

// controls.js

/** Controls that stand in the menu. */
const RARE = ["scale", "words", "special"];

/** The one row of controls that the current view needs. */
class Controls {
  constructor(app) {
    this.app = app;
  }

  build() {
    const wanted = this.app.options.controls ?? this.app.view.controls;
    return this.app.view.controls.filter((part) => !RARE.includes(part) && wanted.includes(part)).flatMap((part) => this[part]() ?? []);
  }

  record() {
    const { app } = this;
    const shown = app.records.filter((record) => app.view.shows(record));
    const options = shown.map((record) => [record.number, recordName(record, app.records), `${record.label} \u00b7 ${record.entry.name}`]);
    return options.length > 1 ? choice(say("layer"), app.state.record, options, (value) => app.set({ record: Number(value), locked: [] })) : null;
  }

  head() {
    const { app } = this;
    if (app.record.heads === 1) return null;
    const options = [...Array.from({ length: app.record.heads }, (_, head) => [head, say("headNumber", { head })]),
      ["mean", say("meanOfAll")]];
    const label = app.state.head === null ? null : headLabel(app.record, app.state.head);
    return [choice(say("head"), app.state.head ?? "mean", options, (value) => app.set({ head: value === "mean" ? null : Number(value) })),
      make("span", { class: "pair" }, action("\u25c2", say("previousHead"), () => app.nextHead(-1)), action("\u25b8", say("nextHead"), () => app.nextHead(1))),
      label && make("span", { class: "label", text: labelText(label, app.record), title: noiseText(Boolean(app.record.entry.statistics)) })].filter(Boolean);
  }

  /** The head that is taken away from the shown one. */
  other() {
    const { app } = this;
    const chosen = app.view.other(app);
    const all = otherHeads(app, app.record);
    return choice(say("differenceOther"), all.findIndex((one) => one.record === chosen.record && one.head === chosen.head),
      all.map((one, place) => [place, app.view.nameOf(app, one)]), (value) => app.set({ other: all[Number(value)] }));
  }

  heads() {
    const { app } = this;
    const shown = app.shownHeads();
    const group = make("div", { class: "heads", role: "group", "aria-label": say("heads") });
    for (let head = 0; head < app.record.heads; head += 1) {
      group.append(headToggle(head, shown.includes(head), app.theme, () => app.toggleHead(head)));
    }
    const every = shown.length === app.record.heads;
    if (app.record.heads > 1) {
      group.append(action(say(every ? "none" : "all"), say(every ? "hideAllHeads" : "showAllHeads"), () => app.set({ heads: every ? [] : null })));
    }
    return group;
  }

  /** Only where a map is larger than its room; see `Viewer.resize`. */
  zoom() {
    const { app } = this;
    return make("span", { class: "pair zoom", hidden: true }, action("\u2212", say("zoomOut"), () => app.zoom(1 / 1.5)),
      action("+", say("zoomIn"), () => app.zoom(1.5)), action(say("fitText"), say("fit"), () => app.fit()));
  }

  overlay() {
    const { app } = this;
    return choice(say("overlay"), app.state.overlay, ["colours", "veil"].map((name) => [name, say(/** @type {any} */ (`overlay_${name}`))]), (value) => app.set({ overlay: value }));
  }

  pooling() {
    const { app } = this;
    return choice(say("overview"), app.state.pooling, Object.keys(POOLINGS).map((name) => [name, say(/** @type {any} */ (`pooling_${name}`))]), (value) => app.set({ pooling: value }));
  }

  findings() {
    const { app } = this;
    const found = app.record.overview?.places() ?? [];
    if (!found.length) return null;
    return choice(say("goTo"), "", [["", say("findings", { count: found.length })], ...found.map((one, number) => [number, one.text])], (value) => {
      if (value !== "") app.goTo(found[Number(value)]);
    });
  }

  steps() {
    const { app } = this;
    if (app.steps.length < 2) return null;
    return choice(say("calculation"), app.state.steps, app.steps.map((steps, number) => [number, middleText(steps.entry.name, 40), steps.entry.name]),
      (value) => app.set({ steps: Number(value), kept: null }));
  }

  step() {
    const { app } = this;
    const names = app.steps[app.state.steps].names.filter((name) => name in PAIR_STEPS);
    return choice(say("matrix"), app.state.step, names.map((name) => [name, name]), (value) => app.set({ step: value }));
  }
}

// tables.js

const MOST_TABLES = 48;

/** The tables and small maps that were made for what is shown; the oldest tables are given up. */
class Tables {
  constructor(app) {
    this.app = app;
    this.tables = new Map();
    this.thumbnails = new Map();
    this.frameStart = 0; // when the picture that is drawn was begun, in milliseconds
  }

  forget() {
    this.tables.clear();
    this.thumbnails.clear();
  }

  /** The weights of a head as they are shown; null is the mean of all heads. */
  of(head, record, { words, hideSpecial }) {
    const used = record.heads === 1 ? 0 : head;
    const key = `${record.number}|${used}|${words}|${hideSpecial}`;
    let table = this.tables.get(key);
    if (!table) {
      if (this.tables.size > MOST_TABLES) this.tables.delete(this.tables.keys().next().value);
      table = new Table(record, used, { words, hideSpecial });
    }
    this.tables.delete(key);
    this.tables.set(key, table);
    return table;
  }

  /** A small map of a head; null while there is no time to make it in this frame. */
  thumbnail(record, head) {
    const scale = withoutRows(this.app.state.scale);
    const key = `${record.number} ${head} ${scale} ${this.app.theme.name}`;
    if (this.thumbnails.has(key)) return this.thumbnails.get(key);
    if (!record.codes && !record.overview) {
      record.decode().then(() => this.app.changed());
      return null;
    }
    if (performance.now() - this.frameStart > 12) { this.app.changed(); return null; }
    if (record.large) {
      const block = Math.max(1, Math.ceil(Math.max(record.overview.rows, record.overview.columns) / THUMBNAIL));
      const { canvas, kinds } = record.overview.bitmap("maximum", head, scale, block, this.app.theme);
      for (const kind of kinds) record.thumbnailKinds.add(kind);
      this.thumbnails.set(key, canvas);
    } else {
      this.thumbnails.set(key, thumbnailOf(record, head, scale, this.app.theme));
    }
    return this.thumbnails.get(key);
  }
}

// views/grid_view.js

/** Layers × heads, each a small map. */
class GridView extends View {
  name = "grid";

  title = "Grid";

  controls = ["scale"];

  scalesRows = false;

  help = "Arrow keys choose a head, Enter opens it.";

  available(app) {
    return app.records.length > 0 && (app.records.length > 1 || app.records[0].heads > 1);
  }

  geometry(app) {
    const heads = Math.max(...app.records.map((record) => record.heads));
    const left = Math.min(112, 24 + Math.max(...app.records.map((record) => textWidth(record.label, { size: 11 }))));
    const across = (app.area.width - left - 8) / heads;
    const down = (app.area.height - 28) / app.records.length;
    const cell = clamp(Math.min(across, Math.max(down, 72)), 34, 170);
    return { heads, left, top: 24, cell };
  }

  size(app) {
    const { heads, left, top, cell } = this.geometry(app);
    return { width: left + heads * cell + 4, height: top + app.records.length * cell + 4 };
  }

  draw(app, pen, win) {
    const place = this.geometry(app);
    const { left, top, cell } = place;
    app.records.forEach((record, row) => {
      const y = top + row * cell;
      if (y > win.y + win.height || y + cell < win.y) return;
      for (let head = 0; head < record.heads; head += 1) {
        const x = left + head * cell;
        if (x < win.x + win.width && x + cell > win.x) this.drawHead(app, pen, record, head, x, y, cell - 6);
      }
    });
    const item = app.active();
    if (item) ring(pen, left + item.column * cell, top + item.row * cell, cell - 6, cell - 6, app.theme.focus, app.theme);
    pen.rect(win.x, win.y, left - 2, win.height, { fill: app.theme.background });
    app.records.forEach((record, row) => {
      const y = top + row * cell + (cell - 6) / 2;
      pen.text(`layer ${record.entry.layer}`, win.x + 10, y - 7, { color: app.theme.text, size: 12, bold: item?.row === row });
      pen.text(record.entry.kind, win.x + 10, y + 8, { color: app.theme.muted, size: 11 });
    });
    pen.rect(win.x, win.y, win.width, top - 4, { fill: app.theme.background });
    pen.clip(win.x + left - 4, win.y, win.width - left + 4, top, () => {
      for (let head = 0; head < place.heads; head += 1) {
        pen.text(cell > 58 ? `head ${head}` : String(head), left + head * cell + (cell - 6) / 2, win.y + 11,
          { color: app.theme.text, size: 11, align: "center", bold: item?.column === head });
      }
    });
  }

  drawHead(app, pen, record, head, x, y, side) {
    const image = app.tables.thumbnail(record, head);
    if (!image) {
      pen.rect(x, y, side, side, { fill: app.theme.surface, stroke: app.theme.border });
      return;
    }
    const [rows, columns] = [record.queries.length, record.keys.length];
    const scale = side / Math.max(rows, columns);
    const [width, height] = [Math.max(6, columns * scale), Math.max(6, rows * scale)];
    pen.picture(image, x, y, width, height, { smooth: image.width > width });
    pen.rect(x, y, width, height, { stroke: app.theme.border });
  }

  hit(app, x, y, win) {
    const { left, top, cell } = this.geometry(app);
    if (x < win.x + left || y < win.y + top) return null;
    const [row, column] = cellAt(x, y, { left, top, width: cell, height: cell });
    return row < app.records.length && column < app.records[row].heads ? { row, column } : null;
  }

  place(app, item) {
    const { left, top, cell } = this.geometry(app);
    return { ...placeOfCell(item, { left, top, width: cell, height: cell }), width: cell - 6, height: cell - 6 };
  }

  start(app) {
    return { row: app.state.record, column: app.state.head ?? 0 };
  }

  has(app, item) {
    return item.column < (app.records[item.row]?.heads ?? 0);
  }

  move(app, item, dx, dy) {
    const row = clamp(item.row + dy, 0, app.records.length - 1);
    return { row, column: clamp(item.column + dx, 0, app.records[row].heads - 1) };
  }

  activate(app, item) {
    app.show(app.records[item.row].large ? "long" : "pattern", { record: item.row, head: item.column });
  }

  describe(app, item) {
    const record = app.records[item.row];
    const name = `${record.label}, head ${item.column} (${record.entry.name})`;
    if (record.large) return `${name}: ${this.reductionText([record])}`;
    if (!record.codes) return name;
    // Of single tokens, as the maps are.
    const table = app.table(item.column, record, { words: false, hideSpecial: false });
    let [best, entropy] = [0, 0];
    for (let cell = 0; cell < table.values.length; cell += 1) {
      const value = table.values[cell];
      if (value > table.values[best] || table.kinds[best] === MASKED) best = cell;
      if (value > 0) entropy -= value * Math.log(value);
    }
    if (!table.values.length) return name;
    const [row, column] = [Math.floor(best / table.columns), best % table.columns];
    const seeing = table.seeing.length;
    return `${name}: largest ${table.cell(row, column)}, ${quoted(table.rowText(row))} \u2192 ${quoted(table.columnText(column))}; `
      + `${seeing ? `mean entropy ${(entropy / seeing).toFixed(2)} nats, ${sumText(table, [])}` : "no query sees a key"}; ${this.reductionText([record])}`;
  }

  /** Of how many pairs a point of the maps is the largest. */
  reductionText(records) {
    const sizes = records.map((record) => reduction(record).map((size) => Math.round(size * 10) / 10));
    const [first] = sizes;
    if (sizes.every(([down, across]) => down === 1 && across === 1)) return "a point is one weight";
    const alike = sizes.every(([down, across]) => down === first[0] && across === first[1]);
    const most = alike ? first : [0, 1].map((side) => Math.max(...sizes.map((size) => size[side])));
    return `a point is the largest of ${alike ? "about" : "up to"} ${most[0]} \u00d7 ${most[1]} pairs`;
  }

  legend(app) {
    const scale = withoutRows(app.state.scale);
    const shown = new Set(app.records.flatMap((record) => [...record.thumbnailKinds]));
    const samples = [[ZERO, "zero"], [MASKED, "masked"], [MISSING, "NaN"]].filter(([kind]) => shown.has(kind));
    return { ramp: "map", scale, largest: null, samples,
      text: `each map: part of its own largest weight, ${SCALES[scale].label} \u00b7 ${this.reductionText(app.records)} \u00b7 `
        + "queries downwards, keys to the right" };
  }
}

// views/image_view.js

/** Of colours over a picture. */
const OPACITY = 0.68;

/** Weights over the picture whose patches are the keys. */
class ImageView extends RecordView {
  name = "image";

  title = "Image";

  controls = ["record", "head", "scale", "overlay", "words", "special"];

  scalesRows = false;

  help = "Arrow keys choose a word or a patch, Enter locks a query, Page Down goes from the words to the picture, Esc unlocks.";

  shows(record) {
    return !record.large && record.keys.kind === "grid";
  }

  geometry(app) {
    const table = app.table();
    const { width, height } = app.area;
    const { entry } = table.record.keys;
    const own = table.record.queries.kind === "grid" && table.record.queries.length === table.record.keys.length;
    const texts = Array.from({ length: own ? 0 : table.rows }, (_, row) => shortText(table.rowText(row), 40));
    const flow = own ? { places: [], bottom: 6 } : flowWords(texts, 12, 26, width - 24, 14, 28);
    const top = flow.bottom + 8;
    const [imageWidth, imageHeight] = entry.size;
    const scale = Math.min((width - 24) / imageWidth, Math.max(180, height - top - 8) / imageHeight);
    const left = Math.max(12, (width - imageWidth * scale) / 2);
    return { table, own, words: flow.places, top, left, scale, width: imageWidth * scale, height: imageHeight * scale };
  }

  size(app) {
    const place = this.geometry(app);
    return { width: app.area.width, height: place.top + place.height + 8 };
  }

  /** Where a position of the keys is drawn. */
  cell(place, position) {
    const pixels = place.table.record.keys.pixels(position);
    if (!pixels) return null;
    const [x0, y0, x1, y1] = pixels.map((pixel) => pixel * place.scale);
    return { x: place.left + x0, y: place.top + y0, width: x1 - x0, height: y1 - y0 };
  }

  sums(app) {
    const { table } = this.geometry(app);
    const sums = activeSums(app, table);
    // What is before the grid (a class token) has no place on the picture and would hide the rest.
    const leading = table.record.keys.entry.leading;
    const largest = sums.values.subarray(leading).reduce((most, value) => (value > most ? value : most), 0);
    const outside = sums.values.subarray(0, leading).reduce((sum, value) => sum + value, 0);
    return { ...sums, largest, outside: outside / sums.divisor };
  }

  draw(app, pen) {
    const place = this.geometry(app);
    const { table, left, top, width, height } = place;
    const { theme } = app;
    const picture = table.record.keys.picture;
    if (picture) pen.picture(picture, left, top, width, height, { smooth: true });
    const sums = this.sums(app);
    this.drawOverlay(app, pen, place, sums);
    pen.rect(left, top, width, height, { stroke: theme.border });
    if (place.words.length) pen.text("query", 12, 13, { color: theme.muted, size: 11, bold: true });
    place.words.forEach((box, row) => this.drawQuery(app, pen, box, row, sums.rows));
    const item = app.active();
    if (item?.side === "key") {
      const box = this.cell(place, item.column);
      if (box) ring(pen, box.x, box.y, box.width, box.height, theme.focus, theme);
    }
    if (place.own) {
      for (const row of sums.rows) {
        const box = this.cell(place, row);
        if (box) ring(pen, box.x + 2, box.y + 2, box.width - 4, box.height - 4, theme.accent, theme);
      }
    }
  }

  drawQuery(app, pen, box, row, rows) {
    const { theme } = app;
    const locked = app.state.locked.includes(row);
    const chosen = locked || rows.includes(row);
    pen.rect(box.x, box.y, box.width, box.height, { fill: locked ? theme.accent : chosen ? theme.highlight : theme.surface,
      stroke: chosen ? theme.accent : null, radius: 4 });
    const item = app.active();
    if (app.keyboard && item?.side === "query" && item.row === row) ring(pen, box.x, box.y, box.width, box.height, theme.focus, theme);
    pen.text(fitText(shortText(app.table().rowText(row), 40), box.width - 6, { size: 14 }), box.x + box.width / 2, box.y + box.height / 2,
      { color: locked ? theme.accentText : theme.text, size: 14, align: "center" });
  }

  drawOverlay(app, pen, place, sums) {
    const scale = withoutRows(app.state.scale);
    const { table } = place;
    for (let column = 0; column < table.columns; column += 1) {
      const box = this.cell(place, column);
      if (!box) continue;
      if (sums.kinds[column] === MASKED) { pen.hatch(box.x, box.y, box.width, box.height, app.theme); continue; }
      if (sums.kinds[column] === MISSING) {
        pen.cross(box.x, box.y, box.width, box.height, app.theme);
        continue;
      }
      const shade = sums.largest > 0 ? SCALES[scale].shade(sums.values[column] / sums.largest) : 0;
      // Neighbours overlap a little, since the picture would shine through the gaps that rounding leaves.
      pen.rect(box.x, box.y, box.width + 0.3, box.height + 0.3,
        app.state.overlay === "veil" ? { fill: "#000000", alpha: 0.82 * (1 - shade) } : { fill: rampColor(shade, app.theme), alpha: OPACITY });
    }
  }

  hit(app, x, y) {
    const place = this.geometry(app);
    const row = place.words.findIndex((box) => inside(box, x, y));
    if (row >= 0) return { side: "query", row };
    for (let column = 0; column < place.table.columns; column += 1) {
      const box = this.cell(place, column);
      if (!box || !inside(box, x, y)) continue;
      return { side: "key", column };
    }
    return null;
  }

  place(app, item) {
    const place = this.geometry(app);
    return (item.side === "query" ? place.words[item.row] : this.cell(place, item.column)) ?? { x: 0, y: 0, width: 1, height: 1 };
  }

  start(app) {
    const place = this.geometry(app);
    return place.own ? { side: "key", column: app.table().record.keys.entry.leading } : { side: "query", row: 0 };
  }

  move(app, item, dx, dy, jump) {
    const place = this.geometry(app);
    const { leading, rows, columns } = place.table.record.keys.entry;
    if (jump && !place.own) {
      return jump > 0 ? { side: "key", column: leading } : { side: "query", row: app.state.locked[0] ?? 0 };
    }
    if (item.side === "query") {
      const next = dx ? clamp(item.row + dx, 0, place.words.length - 1) : wordAbove(place.words, item.row, dy);
      if (dy > 0 && next === item.row) return { side: "key", column: leading };
      return { side: "query", row: next };
    }
    const cell = Math.max(0, item.column - leading);
    const [row, column] = [Math.floor(cell / columns), cell % columns];
    if (dy < 0 && row === 0 && place.words.length) return { side: "query", row: app.state.locked[0] ?? place.words.length - 1 };
    return { side: "key", column: leading + clamp(row + dy, 0, rows - 1) * columns + clamp(column + dx, 0, columns - 1) };
  }

  activate(app, item) {
    if (item.side === "query") app.toggleLocked(item.row);
    else if (this.geometry(app).own) app.toggleLocked(item.column);
  }

  describe(app, item) {
    const { table } = this.geometry(app);
    if (item.side === "query") return describeRow(app, table, item.row);
    const sums = this.sums(app);
    const value = receivedText(sums, item.column);
    const pixels = table.record.keys.pixels(item.column);
    const where = pixels ? `, pixels x ${short(pixels[0])}\u2013${short(pixels[2])}, y ${short(pixels[1])}\u2013${short(pixels[3])}` : "";
    const from = sums.rows.length === 1 ? quoted(table.rowText(sums.rows[0])) : sumText(table, sums.rows);
    return `${from} \u2192 ${table.columnText(item.column)}${where}: ${value} (${app.headText()})`;
  }

  legend(app) {
    const sums = this.sums(app);
    const table = app.table();
    const scale = withoutRows(app.state.scale);
    const kinds = new Set(sums.kinds);
    const outside = table.record.keys.entry.leading ? ` \u00b7 ${(100 * sums.outside).toFixed(1)} % on positions before the grid` : "";
    const veil = app.state.overlay === "veil";
    const how = veil ? "a black veil, thinner for more" : `colours over the picture, ${100 * OPACITY} % opaque`;
    return { ramp: veil ? null : "map", scale, largest: sums.largest / sums.divisor,
      samples: [[MASKED, "masked"], [MISSING, "NaN"]].filter(([kind]) => kinds.has(kind)),
      text: `attention weight, ${sumText(table, sums.rows)}, ${app.headText()}, ${SCALES[scale].label}, largest ${formatNumber(sums.largest / sums.divisor)}; `
        + `${how}${outside} \u00b7 ${accuracy(table)}` };
  }
}

// views/lines_view.js

/** Lines that are drawn for chosen tokens, and while none is chosen. */
const MOST_LINES = 1500;

const MOST_LINES_OF_ALL = 400;

/** Two columns of tokens, and a line for each weight, by head. */
class LinesView extends RecordView {
  name = "lines";

  title = "Lines";

  controls = ["record", "words", "special", "heads"];

  help = "Up and down choose a query, left and right change sides, Enter locks it, several locked queries are added, Esc unlocks.";

  geometry(app) {
    const table = app.table();
    const { width, height } = app.area;
    // Eight beside the lines, and room for a rounded width.
    const label = Math.min(150, width * 0.27, Math.max(widest(table, "row"), widest(table, "column")) + 14);
    const step = clamp((height - 34) / Math.max(1, table.rows, table.columns), 18, 30);
    const bars = clamp(width * 0.16, 30, 140);
    const spread = Math.min(520, width - 2 * label - bars - 24);
    const left = Math.max(8, (width - (2 * label + bars + spread + 24)) / 2);
    return { table, step, label, top: 26, left: left + label, right: left + label + spread, bars };
  }

  size(app) {
    const { table, step, top } = this.geometry(app);
    return { width: app.area.width, height: top + Math.max(table.rows, table.columns) * step + 8 };
  }

  y(place, number) {
    return place.top + (number + 0.5) * place.step;
  }

  draw(app, pen, win) {
    const place = this.geometry(app);
    const rows = app.activeRows();
    const column = app.active()?.side === "key" ? app.active().column : null;
    this.drawLines(app, pen, place, win, rows, column);
    this.drawSums(app, pen, place, rows);
    this.drawTokens(app, pen, place, win, rows, column);
    const style = { color: app.theme.muted, size: 11, bold: true };
    pen.text("query", place.left - 8, 11, { ...style, align: "end" });
    pen.text("key", place.right + 8, 11, style);
    pen.text(rows.length > 1 ? `sum of ${rows.length}` : rows.length ? "weight" : "mean", place.right + place.label + 10, 11, style);
  }

  /** The strongest weights of the shown heads: those of chosen queries, or of all. */
  lines(app, rows, column) {
    const heads = app.shownHeads();
    const key = `${rows}|${column}|${heads}|${app.tableKey()}`;
    if (this.cache?.key === key) return this.cache;
    const found = [];
    let largest = 0;
    for (const head of heads) {
      const table = app.table(head);
      const from = rows.length ? rows : Array.from({ length: table.rows }, (_, row) => row);
      for (const row of from) {
        for (let one = 0; one < table.columns; one += 1) {
          if (column !== null && one !== column) continue;
          const value = table.value(row, one);
          if (table.kind(row, one) !== WEIGHT || value < 0.01) continue;
          found.push([value, head, row, one]);
          if (value > largest) largest = value;
        }
      }
    }
    const total = found.length;
    const most = rows.length || column !== null ? MOST_LINES : MOST_LINES_OF_ALL;
    if (total > most) found.sort((a, b) => b[0] - a[0]).length = most;
    this.cache = { key, found: found.reverse(), largest, total };
    return this.cache;
  }

  drawLines(app, pen, place, win, rows, column) {
    const { found, largest } = this.lines(app, rows, column);
    const offset = (head) => (app.record.heads > 1 ? (head / (app.record.heads - 1) - 0.5) * Math.min(8, place.step * 0.4) : 0);
    for (const [value, head, row, one] of found) {
      const [y0, y1] = [this.y(place, row) + offset(head), this.y(place, one) + offset(head)];
      if (Math.max(y0, y1) < win.y || Math.min(y0, y1) > win.y + win.height) continue;
      const part = Math.sqrt(value / (largest || 1));
      const { color, dash } = headStyle(head, app.theme);
      pen.curve(place.left, y0, place.right, y1, { color, dash, lineWidth: 0.6 + 2.2 * part,
        alpha: app.theme.name === "forced" ? 1 : 0.12 + 0.88 * part * part });
    }
  }

  /**
   * Beside each key, as a bar: the sum over the chosen queries, or the mean over all, of the mean over the shown heads.
   * Means leave out a head's queries that see no key.
   */
  sums(app, rows) {
    const heads = app.shownHeads();
    const key = `${rows}|${heads}|${app.tableKey()}`;
    if (this.sumCache?.key === key) return this.sumCache;
    const tables = heads.map((head) => app.table(head));
    const count = app.table().columns;
    const sums = { key, values: new Float64Array(count), errors: new Float64Array(count), masked: Array(count).fill(true), largest: 0 };
    let pairs = 0;
    for (const row of rows.length ? rows : Array.from({ length: app.table().rows }, (_, one) => one)) {
      const seeing = tables.filter((table) => table.counts[row] > 0);
      pairs += seeing.length;
      for (const table of seeing) {
        for (let column = 0; column < count; column += 1) {
          if (table.kind(row, column) === MASKED) continue;
          sums.masked[column] = false;
          sums.values[column] += table.value(row, column) / (rows.length ? seeing.length : 1);
          sums.errors[column] += table.error(row, column) / (rows.length ? seeing.length : 1);
        }
      }
    }
    for (let column = 0; column < count && !rows.length; column += 1) {
      sums.values[column] /= Math.max(1, pairs);
      sums.errors[column] /= Math.max(1, pairs);
    }
    sums.largest = sums.values.reduce((most, value) => Math.max(most, value || 0), 0);
    this.sumCache = sums;
    return sums;
  }

  headText(app) {
    return `${app.shownHeads().length} of ${app.record.heads} heads`;
  }

  drawSums(app, pen, place, rows) {
    const sums = this.sums(app, rows);
    const x = place.right + place.label + 10;
    const number = app.table().exact && place.bars > 70;
    const length = place.bars - (number ? 40 : 6);
    for (let column = 0; column < place.table.columns; column += 1) {
      const y = this.y(place, column);
      const value = sums.values[column];
      if (sums.masked[column]) { pen.hatch(x, y - 4, 16, 8, app.theme); continue; }
      pen.rect(x, y - 4, Math.max(1, (length * (value || 0)) / (sums.largest || 1)), 8, { fill: app.theme.accent, radius: 2 });
      if (number) pen.text(Number.isNaN(value) ? "NaN" : value.toFixed(3), x + place.bars, y, { color: app.theme.muted, size: 11, align: "end" });
    }
  }

  drawTokens(app, pen, place, win, rows, column) {
    const { table } = place;
    const item = app.active();
    const one = (side, number, text, x, align) => {
      const y = this.y(place, number);
      if (y < win.y - 20 || y > win.y + win.height + 20) return;
      const locked = side === "query" && app.state.locked.includes(number);
      const chosen = locked || (side === "query" ? rows.includes(number) : column === number);
      const shown = fitText(shortText(text), place.label - 12, { bold: chosen });
      const wide = textWidth(shown, { bold: chosen }) + 8;
      const boxX = align === "end" ? x - wide + 4 : x - 4;
      if (chosen) {
        pen.rect(boxX, y - 9, wide, 18, { fill: locked ? app.theme.accent : app.theme.highlight, radius: 3,
          stroke: app.theme.accent });
      }
      if (item && item.side === side && item[side === "query" ? "row" : "column"] === number && app.keyboard) {
        ring(pen, boxX, y - 9, wide, 18, app.theme.focus, app.theme);
      }
      pen.text(shown, x, y, { color: locked ? app.theme.accentText : app.theme.text, bold: chosen, align });
    };
    for (let row = 0; row < table.rows; row += 1) one("query", row, table.rowText(row), place.left - 8, "end");
    for (let key = 0; key < table.columns; key += 1) one("key", key, table.columnText(key), place.right + 8, "start");
  }

  hit(app, x, y) {
    const place = this.geometry(app);
    const number = Math.floor((y - place.top) / place.step);
    if (number < 0) return null;
    if (x <= place.left + 12 && number < place.table.rows) return { side: "query", row: number };
    if (x >= place.right - 12 && number < place.table.columns) return { side: "key", column: number };
    return null;
  }

  place(app, item) {
    const place = this.geometry(app);
    const number = item.side === "query" ? item.row : item.column;
    const x = item.side === "query" ? place.left - place.label : place.right;
    return { x, y: place.top + number * place.step, width: place.label, height: place.step, frozenTop: 26 };
  }

  start() {
    return { side: "query", row: 0 };
  }

  move(app, item, dx, dy) {
    const table = app.table();
    const number = item.side === "query" ? item.row : item.column;
    const side = dx < 0 ? "query" : dx > 0 ? "key" : item.side;
    const next = clamp(number + dy, 0, (side === "query" ? table.rows : table.columns) - 1);
    return side === "query" ? { side, row: next } : { side, column: next };
  }

  activate(app, item) {
    if (item.side === "query") app.toggleLocked(item.row);
  }

  describe(app, item) {
    const heads = app.shownHeads();
    if (item.side === "query") return this.describeQuery(app, item.row, heads);
    const rows = app.activeRows();
    const sums = this.sums(app, rows);
    const value = sums.masked[item.column] ? "masked" : formatWeight(sums.values[item.column], sums.errors[item.column]);
    return `key ${quoted(app.table().columnText(item.column))}: ${value} (${sumText(app.table(null), rows)}; mean of ${this.headText(app)})`;
  }

  describeQuery(app, row, heads) {
    const table = app.table(heads.length === 1 ? heads[0] : null);
    const best = heads.map((head) => {
      const one = app.table(head);
      let most = -1;
      for (let column = 0; column < one.columns; column += 1) {
        if (one.kind(row, column) !== MASKED && (most < 0 || one.value(row, column) > one.value(row, most))) most = column;
      }
      return most < 0 ? null : [one.value(row, most), `head ${head} \u2192 ${quoted(one.columnText(most))} ${one.cell(row, most)}`];
    }).filter(Boolean).sort((a, b) => (b[0] || 0) - (a[0] || 0)).map(([, text]) => text);
    const more = best.length > 4 ? `; ${best.length - 4} more heads have less` : "";
    return `query ${quoted(table.rowText(row))}: largest ${best.slice(0, 4).join("; ") || "none: all keys are masked"}${more}`;
  }

  legend(app) {
    const rows = app.activeRows();
    const { found, total } = this.lines(app, rows, app.active()?.side === "key" ? app.active().column : null);
    const cut = found.length < total ? `the ${counted(found.length)} strongest of ${counted(total)} lines` : `${counted(total)} lines`;
    const table = app.table();
    return { heads: true, text: `lines: weights of at least 0.01, wider for more; ${cut} \u00b7 bars: `
      + `${sumText(app.table(null), rows)}, mean of ${this.headText(app)}${mergedText(table)} \u00b7 ${accuracy(table)}${hiddenText(table)}` };
  }
}

// views/long_view.js

/** Findings of one kind that a payload has, as in regard.viewer.patterns. */
const MOST_FINDINGS = 8;

/** A map of any length: pooled from afar, exact at close range. */
class LongView extends RecordView {
  name = "long";

  title = "Long";

  controls = ["record", "head", "pooling", "scale", "zoom", "findings"];

  zooms = true;

  help = "Arrow keys move, + and \u2212 zoom at the cell, 0 shows the whole map, Enter zooms to exact weights, Esc goes back.";

  shows(record) {
    return record.large;
  }

  geometry(app) {
    const { record } = app;
    const { width, height } = app.area;
    const [left, top] = [58, 74];
    const [queries, keys] = [record.queries.length, record.keys.length];
    const fit = Math.min((width - left - 16) / keys, (height - top - 10) / queries);
    const across = fit * queries < 120 ? Math.min((width - left - 16) / keys, 40) : fit;
    return { record, map: record.overview, left, top, queries, keys, cell: Math.min(Math.max(fit, across) * app.state.zoom, 40) };
  }

  size(app) {
    const { left, top, queries, keys, cell } = this.geometry(app);
    return { width: left + keys * cell + 16, height: top + queries * cell + 10 };
  }

  draw(app, pen, win) {
    const place = this.geometry(app);
    if (!place.map) return;
    const { left, top, cell, queries, keys } = place;
    const area = { x: win.x + left, y: win.y + top, width: win.width - left - 4, height: win.height - top };
    const block = this.block(place);
    const { canvas } = this.bitmap(app, place);
    pen.clip(area.x, area.y, area.width, area.height, () => {
      this.drawPooled(pen, place, area, canvas, block);
      if (cell >= 3) this.drawTiles(app, pen, place, area);
      pen.rect(left, top, keys * cell, queries * cell, { stroke: app.theme.border });
      const item = app.active();
      if (item) {
        const box = this.place(app, item);
        ring(pen, box.x, box.y, Math.max(3, box.width), Math.max(3, box.height), app.theme.focus, app.theme);
      }
    });
    this.drawAxes(app, pen, place, win, area);
    this.drawReceived(app, pen, place, win, area);
    this.drawList(app, pen, place);
  }

  /** Bins below two pixels are joined: scaling down would drop bright ones. */
  block({ map, keys, queries, cell }) {
    return Math.max(1, Math.ceil(2 / Math.min((keys * cell) / map.columns, (queries * cell) / map.rows)));
  }

  bitmap(app, place) {
    return place.map.bitmap(app.state.pooling, app.state.head, app.state.scale, this.block(place), app.theme);
  }

  /** The heads, and of what a point of the map is the largest or the mean. */
  headText(app) {
    const place = this.geometry(app);
    return `${app.headText()}${place.map ? ` \u00b7 ${place.map.statistic(app.state.pooling, this.block(place))}` : ""}`;
  }

  /** The findings, in the room beside a map that is narrower than the view. */
  list(app, place) {
    const x = place.left + place.keys * place.cell + 28;
    if (app.state.zoom > 1 || app.area.width - x < 240 || !place.map) return [];
    const room = Math.floor((app.area.height - 44) / 20);
    return place.map.places().slice(0, room).map((found, number) =>
      ({ found, x, y: 34 + 20 * number, width: app.area.width - x - 12, height: 20 }));
  }

  drawList(app, pen, place) {
    const lines = this.list(app, place);
    if (!lines.length) return;
    const count = place.map.places().length;
    pen.text(`Findings${lines.length < count ? ` (the first ${lines.length} of ${count})` : ""}, at most ${MOST_FINDINGS} of a kind: click one to go there`, lines[0].x, 18,
      { color: app.theme.muted, size: 11, bold: true });
    const item = app.active();
    for (const { found, x, y, width, height } of lines) {
      const chosen = item && item.found === found.text;
      if (chosen) pen.rect(x - 4, y, Math.min(width, textWidth(found.text, { size: 12 }) + 8), height, { fill: app.theme.highlight, radius: 3 });
      pen.text(fitText(found.text, width, { size: 12 }), x, y + height / 2, { color: app.theme.text, size: 12 });
    }
  }

  /** The part of the pooled map that is seen, stretched. */
  drawPooled(pen, place, area, canvas, block) {
    const { left, top, cell, map, queries, keys } = place;
    const bin = [(block * keys * cell) / map.columns, (block * queries * cell) / map.rows];
    const first = [Math.max(0, Math.floor((area.x - left) / bin[0])), Math.max(0, Math.floor((area.y - top) / bin[1]))];
    const last = [Math.min(canvas.width, Math.ceil((area.x + area.width - left) / bin[0])),
      Math.min(canvas.height, Math.ceil((area.y + area.height - top) / bin[1]))];
    if (last[0] <= first[0] || last[1] <= first[1]) return;
    const cut = [first[0], first[1], last[0] - first[0], last[1] - first[1]];
    pen.picture(canvas, left + first[0] * bin[0], top + first[1] * bin[1], cut[2] * bin[0], cut[3] * bin[1], { cut });
  }

  /** Exact weights over the pooled map, where tiles are here; the others are asked for. */
  drawTiles(app, pen, place, area) {
    const { left, top, cell, map } = place;
    for (const [row, column] of this.tilesIn(place, area)) {
      const image = this.tile(app, place, row, column)?.image;
      const [x, y] = [left + column * map.side * cell, top + row * map.side * cell];
      if (image) {
        pen.picture(image, x, y, image.width * cell, image.height * cell);
        pen.rect(x, y, image.width * cell, image.height * cell, { stroke: app.theme.accent });
      } else {
        map.request(row, column, app.options.fetchTile, () => app.changed());
      }
    }
  }

  /** The tiles of an area, as [row, column]. */
  tilesIn({ left, top, cell, map, queries, keys }, area) {
    const range = (from, size, length) => {
      const first = Math.max(0, Math.floor(from / cell / map.side));
      const end = Math.min(Math.ceil(length / map.side), Math.ceil((from + size) / cell / map.side));
      return Array.from({ length: Math.max(0, end - first) }, (_, number) => first + number);
    };
    const columns = range(area.x - left, area.width, keys);
    return range(area.y - top, area.height, queries).flatMap((row) => columns.map((column) => [row, column]));
  }

  /** A tile that is here, with its image in the colours of the pooled map around it; null where it is not here. */
  tile(app, place, row, column) {
    const { map, queries, keys } = place;
    const tile = map.tiles.get(`${row},${column}`);
    if (!tile?.values) return null;
    const block = this.block(place);
    const key = `${app.state.pooling} ${app.state.head} ${app.state.scale} ${app.theme.name} ${block}`;
    if (tile.key === key) return tile;
    const { limits } = this.bitmap(app, place);
    const [q0, k0] = [row * map.side, column * map.side];
    const [height, width] = [Math.min(map.side, queries - q0), Math.min(map.side, keys - k0)];
    const [kinds, shades] = [new Uint8Array(height * width), new Uint8Array(height * width)];
    tile.beyond = false;
    for (let cell = 0; cell < width * height; cell += 1) {
      const query = q0 + Math.floor(cell / width);
      const value = map.exact(app.state.head, query, k0 + (cell % width));
      const limit = limits[Math.floor(map.bin(query, 0)[0] / block)];
      ({ kind: kinds[cell], shade: shades[cell] } = shadeOf(value, limit, app.state.scale));
      // The limit is a code, and may be a little less than the weight it stands for.
      if (value > 1.01 * limit) tile.beyond = true;
    }
    Object.assign(tile, { key, kinds: new Set(kinds), image: mapCanvas(width, height, kinds, shades, app.theme) });
    return tile;
  }

  drawAxes(app, pen, place, win, area) {
    const { left, top, cell, queries, keys } = place;
    const { theme } = app;
    pen.rect(win.x, win.y, left - 2, win.height, { fill: theme.background });
    pen.rect(win.x, win.y, win.width, top - 2, { fill: theme.background });
    pen.text("query \u2193  key \u2192", win.x + 6, win.y + 12, { color: theme.muted, size: 11 });
    const ticks = (from, size, length) => {
      const step = niceStep((size / cell) / Math.max(2, size / 90));
      const first = Math.max(0, Math.ceil(from / cell / step));
      return Array.from({ length: Math.max(0, Math.floor(Math.min(length - 1, (from + size) / cell) / step) - first + 1) }, (_, n) => (first + n) * step);
    };
    for (const key of ticks(area.x - left, area.width, keys)) {
      const x = left + (key + 0.5) * cell;
      pen.path([[x, win.y + top - 6], [x, win.y + top - 1]], { color: theme.muted });
      pen.text(this.tick(place.record.keys, key, cell), Math.min(x, win.x + win.width - 22), win.y + top - 14, { color: theme.muted, size: 11, align: "center" });
    }
    for (const query of ticks(area.y - top, area.height, queries)) {
      const y = top + (query + 0.5) * cell;
      if (y < win.y + top) continue;
      pen.path([[win.x + left - 6, y], [win.x + left - 1, y]], { color: theme.muted });
      pen.text(this.tick(place.record.queries, query, cell), win.x + left - 9, y, { color: theme.muted, size: 11, align: "end" });
    }
  }

  tick(axis, position, cell) {
    return cell >= 14 ? fitText(shortText(axis.text(position), 12), 46, { size: 11 }) : counted(position);
  }

  /** How much weight each key receives, as a profile over the map: sinks are its peaks. */
  drawReceived(app, pen, place, win, area) {
    const { left, cell, map, keys } = place;
    const received = map.received(app.state.head);
    const most = received.reduce((a, b) => Math.max(a, b || 0), 0);
    const [base, high] = [win.y + 52, 26];
    const bin = (keys * cell) / map.columns;
    pen.clip(area.x, win.y + 18, area.width, 40, () => {
      for (let column = 0; column < map.columns; column += 1) {
        const x = left + column * bin;
        if (x > area.x + area.width || x + bin < area.x || !(most > 0)) continue;
        const height = high * Math.sqrt((received[column] || 0) / most);
        pen.rect(x, base - height, Math.max(1, bin), height, { fill: app.theme.accent });
      }
    });
    pen.text("received", win.x + 6, base - 8, { color: app.theme.muted, size: 11 });
  }

  hit(app, x, y, win) {
    const place = this.geometry(app);
    const { left, top, cell, queries, keys } = place;
    const line = this.list(app, place).find((one) => inside(one, x, y));
    if (line) return { row: line.found.row, column: line.found.column, head: line.found.head, found: line.found.text };
    if (x < win.x + left || y < win.y + top) return null;
    const [row, column] = cellAt(x, y, { left, top, width: cell, height: cell });
    return row < queries && column < keys ? { row, column } : null;
  }

  place(app, item) {
    const { left, top, cell } = this.geometry(app);
    return placeOfCell(item, { left, top, width: cell, height: cell });
  }

  start() {
    return { row: 0, column: 0 };
  }

  has(app, item) {
    return item.row < app.record.queries.length && item.column < app.record.keys.length;
  }

  /** An arrow moves by what is a few pixels on the screen. */
  move(app, item, dx, dy) {
    const { cell, queries, keys } = this.geometry(app);
    const step = Math.max(1, Math.round(8 / cell));
    return { row: clamp(item.row + dy * step, 0, queries - 1), column: clamp(item.column + dx * step, 0, keys - 1) };
  }

  activate(app, item) {
    if (item.found) app.goTo(item);
    else app.zoomTo(item, 16);
  }

  describe(app, item) {
    const { map, record, queries, keys } = this.geometry(app);
    if (!map) return "";
    const pair = `query ${counted(item.row)} ${quoted(record.queries.text(item.row))} \u2192 key ${counted(item.column)} ${quoted(record.keys.text(item.column))}`;
    const exact = map.exact(app.state.head, item.row, item.column);
    if (exact !== null) return `${pair}: ${exact < 0 ? "masked" : formatNumber(exact)} (exact; ${app.headText()})`;
    const [row, column] = map.bin(item.row, item.column);
    const bin = map.pooled(app.state.pooling, app.state.head, row, column);
    const hidden = app.state.pooling === "mean" && map.hidden ? ", hidden pairs as 0" : "";
    const range = (length, bins, number) => `${counted(map.edge(length, bins, number))}\u2013${counted(map.edge(length, bins, number + 1) - 1)}`;
    return `queries ${range(queries, map.rows, row)} \u2192 keys ${range(keys, map.columns, column)}: ${POOLINGS[app.state.pooling]} `
      + `${formatWeight(bin.value, bin.error)} (${app.headText()}${hidden}; around ${quoted(record.queries.text(item.row))} \u2192 `
      + `${quoted(record.keys.text(item.column))}; ${this.whyPooled(app, map, item)})`;
  }

  whyPooled(app, map, item) {
    const tile = map.tiles.get(`${Math.floor(item.row / map.side)},${Math.floor(item.column / map.side)}`);
    if (tile?.failed) return `the exact tile could not be had: ${tile.failed}`;
    if (app.options.fetchTile) return "exact at a closer zoom";
    return "no exact tile is carried here";
  }

  legend(app) {
    const place = this.geometry(app);
    const { map, left, top, cell, record } = place;
    if (!map) return { text: "" };
    const { limits, kinds } = this.bitmap(app, place);
    const win = app.window();
    const area = { x: win.x + left, y: win.y + top, width: win.width - left - 4, height: win.height - top };
    const exact = (cell >= 3 ? this.tilesIn(place, area) : []).map(([row, column]) => this.tile(app, place, row, column)).filter(Boolean);
    const shown = new Set([...kinds, ...exact.flatMap((tile) => [...tile.kinds])]);
    const tiles = app.options.fetchTile ? "exact tiles are fetched on zoom" : `${map.carried || "no"} exact tiles carried`;
    const per = app.state.scale === "row" ? " (part of the row's largest)" : "";
    return { ramp: "map", scale: app.state.scale, largest: app.state.scale === "row" ? null : limits.reduce((a, b) => Math.max(a, b), 0),
      beyond: exact.some((tile) => tile.beyond),
      samples: [[ZERO, map.hidden ? "zero or hidden" : "zero"], [MASKED, "masked"], [MISSING, "NaN"]].filter(([kind]) => shown.has(kind)),
      text: `${this.headText(app)}, ${SCALES[app.state.scale].label}${per}${exact.length ? "; framed: single weights" : ""} \u00b7 ${tiles} of `
        + `${map.side} \u00d7 ${map.side} \u00b7 ${counted(record.keys.length)} keys` };
  }
}

// views/pattern_view.js

/** The height of the name of the keys above their tokens. */
const AXIS = 16;

/** A rectangular map with tokens on both sides. */
class PatternView extends CellView {
  name = "pattern";

  controls = ["record", "head", "scale", "words", "special", "zoom"];

  zooms = true;

  help = say("patternHelp");

  geometry(app) {
    const table = app.table();
    const { width, height } = app.area;
    const rowWidth = Math.max(CORNER, Math.min(widest(table, "row") + 14, width * 0.32));
    const room = Math.max(40, width - rowWidth - 6);
    const across = room / Math.max(1, table.columns);
    const label = Math.min(widest(table, "column"), 130);
    const down = (height - label - AXIS - 18) / Math.max(1, table.rows);
    const fit = Math.max(1, Math.min(across, Math.max(down, Math.min(across, 13)), 46));
    const cell = fit * app.state.zoom;
    const flat = label + 8 <= cell;
    // A map that leaves room stands in the middle.
    const spare = Math.max(0, width - rowWidth - table.columns * cell - 6);
    return { table, left: rowWidth + Math.floor(spare / 2), top: AXIS + (flat ? 24 : label + 14), width: cell, height: cell, flat,
      whole: Math.min(across, down, 46) };
  }

  size(app) {
    const { table, left, top, width, height } = this.geometry(app);
    return { width: left + table.columns * width + 6, height: top + table.rows * height + 4 };
  }

  draw(app, pen, win) {
    const place = this.geometry(app);
    const { table } = place;
    const area = { x: win.x + place.left, y: win.y + place.top, width: win.width - place.left, height: win.height - place.top };
    if (!table.rows || !table.columns) {
      pen.text("No tokens are left to show.", win.x + 12, win.y + 24, { color: app.theme.muted, size: 13 });
      return;
    }
    pen.clip(area.x, area.y, area.width, area.height, () => {
      drawCells(pen, table, place, area, app.state.scale, app.theme);
      this.drawSelection(app, pen, place);
    });
    this.drawRowLabels(app, pen, place, win);
    this.drawColumnLabels(app, pen, place, win);
  }

  drawSelection(app, pen, place) {
    const { table } = place;
    const rowBox = (row, color) => pen.rect(place.left + 1, place.top + row * place.height, table.columns * place.width - 2,
      place.height, { stroke: color, lineWidth: 2 });
    for (const row of app.state.locked) if (row < table.rows) rowBox(row, app.theme.accent);
    const spoken = app.featured();
    const item = app.active() ?? spoken;
    if (item) {
      pen.rect(place.left, place.top + item.row * place.height, table.columns * place.width, place.height, { stroke: app.theme.accent });
      ring(pen, place.left + item.column * place.width, place.top + item.row * place.height, place.width, place.height,
        item === spoken ? app.theme.accent : app.theme.focus, app.theme);
    }
  }

  drawRowLabels(app, pen, place, win) {
    const { table } = place;
    const step = Math.max(1, Math.ceil(12 / place.height));
    const item = app.active() ?? app.featured();
    const first = Math.max(0, Math.floor((win.y) / place.height) - 1);
    const last = Math.min(table.rows, Math.ceil((win.y + win.height - place.top) / place.height) + 1);
    pen.clip(win.x, win.y + place.top - 7, place.left - 2, win.height - place.top + 7, () => {
      pen.rect(win.x, win.y + place.top - 7, place.left - 2, win.height, { fill: app.theme.background });
      for (let row = first; row < last; row += 1) {
        const chosen = item?.row === row || app.state.locked.includes(row);
        if (row % step && !chosen) continue;
        if (step > 1 && !chosen && item && Math.abs(item.row - row) < step) continue;
        const y = place.top + (row + 0.5) * place.height;
        this.drawLabel(app, pen, shortText(table.rowText(row)), win.x + place.left - 8, y, place.left - 12, chosen,
          app.state.locked.includes(row));
      }
    });
  }

  drawLabel(app, pen, text, x, y, width, chosen, locked) {
    const size = 12;
    const shown = fitText(text, width, { size, bold: chosen });
    if (locked) {
      const wide = textWidth(shown, { size, bold: true });
      pen.rect(x - wide - 4, y - 8, wide + 8, 16, { fill: app.theme.accent, radius: 3 });
    }
    pen.text(shown, x, y, { color: locked ? app.theme.accentText : app.theme.text, size, bold: chosen, align: "end" });
  }

  drawColumnLabels(app, pen, place, win) {
    const { table } = place;
    const step = Math.max(1, Math.ceil(13 / place.width));
    const item = app.active() ?? app.featured();
    const first = Math.max(0, Math.floor(win.x / place.width) - 1);
    const last = Math.min(table.columns, Math.ceil((win.x + win.width - place.left) / place.width) + 1);
    pen.rect(win.x, win.y, win.width, place.top - 7, { fill: app.theme.background });
    const axis = { color: app.theme.muted, size: 11 };
    const [asks, looked] = [say("axisQuery"), say("axisKey")];
    pen.text(asks, Math.max(win.x + place.left - 8, win.x + textWidth(asks, axis) + 4), win.y + place.top - 14, { ...axis, align: "end" });
    pen.text(looked, Math.min(win.x + place.left, win.x + win.width - textWidth(looked, axis) - 4), win.y + 8, axis);
    pen.clip(win.x + place.left - 6, win.y, win.width - place.left + 6, place.top, () => {
      for (let column = first; column < last; column += 1) {
        const chosen = item?.column === column;
        if (column % step && !chosen) continue;
        if (step > 1 && !chosen && item && Math.abs(item.column - column) < step) continue;
        const x = place.left + (column + 0.5) * place.width;
        const shown = fitText(shortText(table.columnText(column)), place.flat ? place.width - 4 : place.top - AXIS - 14, { bold: chosen });
        if (place.flat) pen.text(shown, x, win.y + place.top - 10, { color: app.theme.text, bold: chosen, align: "center" });
        else pen.text(shown, x, win.y + place.top - 6, { color: app.theme.text, bold: chosen, angle: -90 });
      }
    });
  }

  hit(app, x, y, win) {
    const place = this.geometry(app);
    if (x < win.x + place.left || y < win.y + place.top) return null;
    const [row, column] = cellAt(x, y, place);
    return row < place.table.rows && column < place.table.columns ? { row, column } : null;
  }

  place(app, item) {
    return placeOfCell(item, this.geometry(app));
  }
}

// views/sound_view.js

/** Weights in time, under the spectrogram whose frames are the keys. */
class SoundView extends CellView {
  name = "sound";

  title = "Sound";

  controls = ["record", "head", "scale", "words", "special"];

  help = "Up and down choose a query, left and right move in time, Enter locks the query, Esc unlocks.";

  shows(record) {
    return !record.large && record.keys.kind === "frames";
  }

  geometry(app) {
    const table = app.table();
    const { width, height } = app.area;
    const left = Math.max(CORNER, Math.min(widest(table, "row") + 14, width * 0.3));
    const wide = Math.max(60, width - left - 12);
    const picture = clamp(height * 0.34, 90, 220);
    const top = 16 + picture + 34;
    return { table, left, wide, picture, top, cellWidth: wide / Math.max(1, table.columns),
      cellHeight: clamp((height - top - 8) / Math.max(1, table.rows), 16, 34) };
  }

  size(app) {
    const place = this.geometry(app);
    return { width: app.area.width, height: place.top + place.table.rows * place.cellHeight + 8 };
  }

  draw(app, pen) {
    const place = this.geometry(app);
    const { table, left, wide, picture, top } = place;
    const { theme } = app;
    if (table.record.keys.picture) pen.picture(table.record.keys.picture, left, 12, wide, picture, { smooth: true });
    pen.rect(left, 12, wide, picture, { stroke: theme.border });
    pen.text("frequency \u2191", left - 8, 20, { color: theme.muted, size: 11, align: "end" });
    this.drawCurve(app, pen, place);
    this.drawTime(app, pen, place);
    const geometry = { left, top, width: place.cellWidth, height: place.cellHeight };
    drawCells(pen, table, geometry, { x: left, y: top, width: wide, height: table.rows * place.cellHeight }, app.state.scale, theme);
    pen.rect(left, top, wide, table.rows * place.cellHeight, { stroke: theme.border });
    const item = app.active();
    for (let row = 0; row < table.rows; row += 1) {
      const locked = app.state.locked.includes(row);
      const y = top + (row + 0.5) * place.cellHeight;
      const text = fitText(shortText(table.rowText(row)), left - 14, { bold: item?.row === row });
      const size = textWidth(text, { bold: true });
      if (locked) pen.rect(left - 12 - size, y - 8, size + 8, 16, { fill: theme.accent, radius: 3 });
      pen.text(text, left - 8, y, { color: locked ? theme.accentText : theme.text, bold: locked || item?.row === row, align: "end" });
    }
    if (item) {
      ring(pen, left + item.column * place.cellWidth, top + item.row * place.cellHeight, place.cellWidth, place.cellHeight, theme.focus, theme);
      pen.rect(left + item.column * place.cellWidth, 12, Math.max(1, place.cellWidth), picture, { stroke: theme.focus, lineWidth: 1.5 });
    }
  }

  legendText(app, table) {
    const rows = app.activeRows();
    const curve = rows.length ? ` \u00b7 curve: ${sumText(table, rows)}, part of its largest` : "";
    return super.legendText(app, table) + curve;
  }

  /** The weights of the chosen queries over the spectrogram: a band of colour and a curve. */
  drawCurve(app, pen, place) {
    const { table, left, picture } = place;
    const rows = app.activeRows();
    if (!rows.length) return;
    const sums = table.sumRows(rows);
    if (!(sums.largest > 0)) return;
    const points = [];
    for (let column = 0; column < table.columns; column += 1) {
      const part = (sums.values[column] || 0) / sums.largest;
      const x = left + column * place.cellWidth;
      if (part > 0.02) pen.rect(x, 12, place.cellWidth, picture, { fill: app.theme.accent, alpha: 0.55 * part });
      const y = 12 + picture - 4 - part * (picture - 12);
      points.push([x, y], [x + place.cellWidth, y]);
    }
    pen.path(points, { color: "#ffffff", lineWidth: 4.5 });
    pen.path(points, { color: "#0b57d0", lineWidth: 2 });
  }

  drawTime(app, pen, place) {
    const { table, left, wide, picture } = place;
    const seconds = table.record.keys.entry.seconds * table.record.keys.length;
    const step = secondsStep(seconds, wide);
    for (let number = 0; number * step <= seconds * 1.0001; number += 1) {
      const x = left + (number * step * wide) / seconds;
      pen.path([[x, 12 + picture], [x, 17 + picture]], { color: app.theme.muted });
      const text = `${Number((number * step).toPrecision(6))} s`;
      const last = x + textWidth(text, { size: 11 }) / 2 > left + wide + 10;
      pen.text(text, last ? left + wide + 10 : x, 26 + picture, { color: app.theme.muted, size: 11, align: last ? "end" : "center" });
    }
  }

  hit(app, x, y) {
    const place = this.geometry(app);
    if (x < place.left || y < place.top) return x < place.left && y >= place.top ? this.at(place, 0, y) : null;
    return this.at(place, Math.floor((x - place.left) / place.cellWidth), y);
  }

  at(place, column, y) {
    const row = Math.floor((y - place.top) / place.cellHeight);
    return row >= 0 && row < place.table.rows && column < place.table.columns ? { row, column } : null;
  }

  place(app, item) {
    const place = this.geometry(app);
    return { x: place.left + item.column * place.cellWidth, y: place.top + item.row * place.cellHeight, width: place.cellWidth, height: place.cellHeight };
  }
}

// views/words_view.js

/** The words of a text, shaded by their weight. */
class WordsView extends RecordView {
  name = "words";

  title = "Words";

  controls = ["record", "head", "scale", "words", "special"];

  scalesRows = false;

  help = "Arrow keys choose a word as the query, Enter locks it, several locked words are added, Esc unlocks.";

  shows(record) {
    return !record.large && record.keys.kind === "tokens";
  }

  single(app) {
    return app.record.queries === app.record.keys;
  }

  geometry(app) {
    const table = app.table();
    const { width } = app.area;
    const wide = Math.min(width - 24, 920);
    const left = Math.max(12, (width - wide) / 2);
    const texts = (side) => Array.from({ length: side === "row" ? table.rows : table.columns }, (_, number) =>
      shortText(side === "row" ? table.rowText(number) : table.columnText(number), 60));
    const key = `${app.tableKey()}|${wide}|${app.record.number}`;
    if (this.cache?.key === key) return this.cache.place;
    const size = Math.max(table.rows, table.columns) < 60 && width > 500 ? 18 : 15;
    const queries = this.single(app) ? null : flowWords(texts("row"), left, 34, wide, size, 2 * size + 2);
    const top = queries ? queries.bottom + 38 : 34;
    const keys = flowWords(texts("column"), left, top, wide, size, 2 * size + 2);
    const place = { table, left, size, queries: queries?.places ?? keys.places, keys: keys.places, top, bottom: keys.bottom, wide };
    this.cache = { key, place };
    return place;
  }

  size(app) {
    return { width: app.area.width, height: this.geometry(app).bottom + 8 };
  }

  sums(app) {
    return activeSums(app, app.table());
  }

  draw(app, pen, win) {
    const place = this.geometry(app);
    const sums = this.sums(app);
    const { theme } = app;
    const heading = { color: theme.muted, size: 11, bold: true };
    if (!this.single(app)) {
      pen.text("queries", place.left, 18, heading);
      place.queries.forEach((box, row) => this.drawWord(app, pen, box, place.table.rowText(row), null, row));
    }
    const what = sums.rows.length === 1 ? `what \u201c${shortText(place.table.rowText(sums.rows[0]))}\u201d attends to`
      : sums.rows.length ? "what the chosen queries attend to" : "what all queries attend to";
    pen.text(`${what}: ${sumText(place.table, sums.rows)}`, place.left, place.top - 16, heading);
    const scale = withoutRows(app.state.scale);
    place.keys.forEach((box, column) => {
      if (box.y > win.y + win.height || box.y + box.height < win.y) return;
      const shade = sums.largest > 0 ? SCALES[scale].shade(sums.values[column] / sums.largest) : 0;
      this.drawWord(app, pen, box, place.table.columnText(column), { shade, kind: sums.kinds[column] },
        this.single(app) ? column : null);
    });
    const item = app.active();
    if (item && app.keyboard) {
      const box = (item.side === "key" ? place.keys[item.column] : place.queries[item.row]);
      if (box) ring(pen, box.x, box.y, box.width, box.height, theme.focus, theme);
    }
  }

  drawWord(app, pen, box, text, weight, row) {
    const { theme } = app;
    const colors = weight && weight.kind === WEIGHT ? wordColors(weight.shade || 0, theme) : { fill: theme.background, ink: theme.text };
    if (weight && weight.kind !== WEIGHT) drawKind(pen, weight.kind, box.x, box.y, box.width, box.height, theme);
    else pen.rect(box.x, box.y, box.width, box.height, { fill: colors.fill, radius: 4 });
    const chosen = row !== null && app.activeRows().includes(row);
    if (chosen) pen.rect(box.x + 1, box.y + 1, box.width - 2, box.height - 2, { stroke: theme.accent, lineWidth: 2.5, radius: 4 });
    const ink = weight && weight.kind !== WEIGHT ? theme.text : colors.ink;
    const { size } = this.cache.place;
    pen.text(fitText(shortText(text, 60), box.width - 8, { size }), box.x + box.width / 2, box.y + box.height / 2,
      { color: ink, size, align: "center" });
  }

  hit(app, x, y) {
    const place = this.geometry(app);
    if (!this.single(app)) {
      const row = place.queries.findIndex((box) => inside(box, x, y));
      if (row >= 0) return { side: "query", row };
    }
    const column = place.keys.findIndex((box) => inside(box, x, y));
    if (column < 0) return null;
    return this.single(app) && app.state.locked.length === 0 ? { side: "query", row: column } : { side: "key", column };
  }

  place(app, item) {
    const place = this.geometry(app);
    return { ...(item.side === "key" ? place.keys[item.column] : place.queries[item.row]) };
  }

  start() {
    return { side: "query", row: 0 };
  }

  move(app, item, dx, dy) {
    const place = this.geometry(app);
    const places = item.side === "key" ? place.keys : place.queries;
    const index = item.side === "key" ? item.column : item.row;
    let next = dx ? clamp(index + dx, 0, places.length - 1) : wordAbove(places, index, dy);
    let { side } = item;
    if (!this.single(app) && dy && next === index) {
      side = dy > 0 ? "key" : "query";
      next = side === item.side ? index : clamp(index, 0, (side === "key" ? place.keys : place.queries).length - 1);
    }
    return side === "key" ? { side, column: next } : { side, row: next };
  }

  activate(app, item) {
    app.toggleLocked(item.side === "query" ? item.row : this.single(app) ? item.column : null);
  }

  describe(app, item) {
    const table = app.table();
    if (item.side === "query") return describeRow(app, table, item.row);
    const sums = this.sums(app);
    return `key ${quoted(table.columnText(item.column))}: ${receivedText(sums, item.column)} (${sumText(table, sums.rows)}; ${app.headText()})`;
  }

  legend(app) {
    const sums = this.sums(app);
    const table = app.table();
    const kinds = new Set(sums.kinds);
    const scale = withoutRows(app.state.scale);
    return { ramp: "words", scale, largest: sums.largest / sums.divisor,
      samples: [[ZERO, "zero"], [MASKED, "masked"], [MISSING, "NaN"]].filter(([kind]) => kinds.has(kind)),
      text: `attention weight, ${sumText(table, sums.rows)}, ${app.headText()}, ${SCALES[scale].label}${mergedText(table)} \u00b7 `
        + `${accuracy(table)}${hiddenText(table)}` };
  }
}

// explained.js

/** The least box around boxes. */
function around(...boxes) {
  const [left, top] = [Math.min(...boxes.map((box) => box.x)), Math.min(...boxes.map((box) => box.y))];
  return { x: left, y: top, width: Math.max(...boxes.map((box) => box.x + box.width)) - left, height: Math.max(...boxes.map((box) => box.y + box.height)) - top };
}

const grown = (box, { left = 0, top = 0 }) => ({ x: box.x - left, y: box.y - top, width: box.width + left, height: box.height + top });

/** The card of layers and heads, at their choices. */
function ofHeads(app) {
  if (app.records.length < 2 && app.record.heads < 2) return [];
  return [{ title: say("cardHeads"), text: say("cardHeadsText"), element: app.frame.bar }];
}

/** A map: rows, columns, cells. */
function ofMap(app, pair, names) {
  const { view } = app;
  const table = app.table();
  const at = (row, column) => view.place(app, { row, column });
  const { row, column } = pair;
  const { left, top } = view.geometry(app);
  const first = at(row, 0);
  return [
    { title: say("cardQuery"), text: say("cardRow", names), box: grown(around(first, at(row, table.columns - 1)), { left: Math.min(90, first.x, left) }) },
    { title: say("cardKey"), text: say("cardColumn", names), box: grown(around(at(0, column), at(table.rows - 1, column)), { top: Math.min(60, at(0, column).y, top) }) },
    { title: say("cardWeight"), text: say("cardCell", names), box: at(row, column) },
  ];
}

/** Two columns with lines between them. */
function ofLines(app, pair, names) {
  const [query, key] = [app.view.place(app, { side: "query", row: pair.row }), app.view.place(app, { side: "key", column: pair.column })];
  const [x, y] = [(query.x + query.width + key.x) / 2, (query.y + key.y + query.height) / 2];
  return [
    { title: say("cardQuery"), text: say("cardLeft", names), box: query },
    { title: say("cardKey"), text: say("cardRight", names), box: key },
    { title: say("cardWeight"), text: say("cardLine", names), box: { x: x - 16, y: y - 12, width: 32, height: 24 } },
  ];
}

/** Words or patches that are shaded. */
function ofShades(app, pair, names) {
  const [query, key] = [app.view.place(app, { side: "query", row: pair.row }), app.view.place(app, { side: "key", column: pair.column })];
  return [
    { title: say("cardQuery"), text: say("cardPoint", names), box: query },
    { title: say("cardWeight"), text: say("cardShade", names), box: key },
  ];
}

function ofGrid(app) {
  const at = (row, column) => app.view.place(app, { row, column });
  const last = app.records.length - 1;
  return [
    { title: say("cardHead"), text: say("cardThumbnail"), box: at(0, 0) },
    { title: say("cardLayers"), text: say("cardLayersText"), box: around(at(0, 0), at(last, 0)) },
    { title: say("cardSide"), text: say("cardSideText"), box: around(at(0, 0), at(0, app.records[0].heads - 1)) },
  ];
}

const OF_VIEWS = { pattern: ofMap, sound: ofMap, lines: ofLines, words: ofShades, image: ofShades };

/**
 * What the cards of a view explain: {title, text, and a box of the picture or an element of the frame}.
 * @returns {{title: string, text: string, box?: any, element?: HTMLElement}[]}
 */
function explained(app) {
  const { view } = app;
  if (view.explained) return view.explained(app);
  if (view.name === "grid") return ofGrid(app);
  const cards = OF_VIEWS[view.name];
  const pair = cards && !app.record.large ? app.featured() ?? app.active() : null;
  if (!pair) return [{ title: say(view.name), text: say(view.name === "walk" ? "cardWalk" : "cardLong"), element: app.frame.tabs }, ...(view.name === "walk" ? [] : ofHeads(app))];
  const table = app.table();
  const known = { row: pair.row ?? mostSurprising(table)?.row ?? 0, column: pair.column ?? 0 };
  const names = { query: `\u2068${shortText(table.rowText(known.row), 20)}\u2069`, key: `\u2068${shortText(table.columnText(known.column), 20)}\u2069`,
    sentence: sayOfRow(table, known.row, known.column).text };
  return [...cards(app, known, names), ...ofHeads(app)];
}

// picture.js

/** The height of the heading above a view, in pixels. */
const HEADING = 28;

/** The whole picture, heading and legend included, with any pen. */
function paint(app, pen) {
  const { theme, area } = app;
  const height = area.height + HEADING + app.legendHeight;
  pen.rect(0, 0, area.width, height, { fill: theme.background });
  pen.text(fitText(app.heading(), area.width - 20, { size: 13, bold: true }), 10, 14, { color: theme.text, size: 13, bold: true });
  const win = app.window();
  pen.clip(0, HEADING, area.width, area.height, () => {
    pen.shift(-win.x, HEADING - win.y, () => app.view.draw(app, pen, win));
  });
  pen.path([[0, HEADING + area.height + 0.5], [area.width, HEADING + area.height + 0.5]], { color: theme.border });
  pen.shift(0, HEADING + area.height + 2, () => drawLegend(pen, app.view.legend(app), area.width, theme));
}

// views/difference_view.js

/** The most tokens that the legend names as left out. */
const MOST_NAMED = 6;

/** The map of one head minus that of another one: of the same record, or of one with the same tokens. */
class DifferenceView extends PatternView {
  name = "difference";

  controls = ["record", "head", "other", "scale", "words", "special", "zoom"];

  scalesRows = false;

  ofTables = false;

  help = say("differenceHelp");

  available(app) {
    return app.records.some((record) => this.shows(record) && otherHeads(app, record).length > 0);
  }

  /** The other head: the chosen one, or the next. */
  other(app) {
    const { other, record, head } = app.state;
    const all = otherHeads(app, app.record);
    const same = all.find((one) => one.record === other?.record && one.head === other?.head);
    if (same) return same;
    const heads = app.record.heads;
    const next = { record, head: ((head ?? heads - 1) + 1) % heads };
    return heads > 1 ? next : all.find((one) => one.record !== record) ?? all[0];
  }

  /** The two tables' difference; null while the second is read, or where too few tokens are the same. */
  difference(app) {
    if (app.differs) return app.table();
    const chosen = this.other(app);
    const record = app.records[chosen.record];
    if (!record.decoded) {
      record.decode().then(() => app.resize()); // the legend has another height then
      return null;
    }
    app.makeExact(record);
    const [one, other] = [app.table(), app.table(chosen.head, record)];
    if (this.cache?.one !== one || this.cache?.other !== other) {
      const [rows, columns] = [commonSide(one, other, "row"), commonSide(one, other, "column")];
      this.cache = { one, other, found: rows && columns && new Difference(one, other, rows, columns) };
    }
    return this.cache.found;
  }

  /** The viewer with the difference in place of a head's weights, for what maps have in common; null where there is none. */
  shown(app) {
    if (app.differs) return app;
    const table = this.difference(app);
    const state = { ...app.state, scale: withoutRows(app.state.scale), locked: [] };
    return table && Object.create(app, { differs: { value: true }, table: { value: () => table }, state: { value: state } });
  }

  /** The name of a head of a record, without the record where that is the shown one. */
  nameOf(app, { record, head }) {
    const { heads } = app.records[record];
    const parts = record === app.state.record ? [] : [app.recordText(app.records[record])];
    if (heads > 1) parts.push(head === null ? say("meanOfAll") : say("headNumber", { head }));
    return parts.join(" \u00b7 ");
  }

  headText(app) {
    const one = app.record.heads > 1 ? this.nameOf(app, app.state) : "";
    return say("differenceOf", { one, other: this.nameOf(app, this.other(app)) }).trim();
  }

  geometry(app) {
    const shown = this.shown(app);
    return shown ? super.geometry(shown) : { table: { rows: 0, columns: 0 }, left: 0, top: 0, width: 1, height: 1, flat: true, whole: 1 };
  }

  size(app) {
    const shown = this.shown(app);
    return shown ? super.size(shown) : app.area;
  }

  draw(app, pen, win) {
    const shown = this.shown(app);
    if (!shown) {
      pen.text(this.reason(app), win.x + 12, win.y + 24, { color: app.theme.muted, size: 13 });
      return;
    }
    super.draw(shown, pen, win);
    this.drawNumbers(shown, pen, win);
  }

  reason(app) {
    const record = app.records[this.other(app).record];
    if (!record.decoded) return say("differenceLoading");
    return say(record.keys.kind === "tokens" ? "differenceNone" : "differenceSize");
  }

  /** Differences in large cells, in the ink that is read on their colour. */
  drawNumbers(app, pen, win) {
    const place = this.geometry(app);
    if (place.width < 30 || place.height < 18) return;
    const { table } = place;
    const size = clamp(Math.floor(place.width / 3.4), 9, 12);
    pen.clip(win.x + place.left, win.y + place.top, win.width - place.left, win.height - place.top, () => {
      for (let row = 0; row < table.rows; row += 1) {
        for (let column = 0; column < table.columns; column += 1) {
          if (table.kind(row, column) !== WEIGHT) continue;
          const value = table.value(row, column);
          const color = inkOn(divergingColor(table.shade(row, column, app.state.scale), app.theme));
          pen.text(`${value < 0 ? "\u2212" : "+"}${cellText(Math.abs(value))}`, place.left + (column + 0.5) * place.width,
            place.top + (row + 0.5) * place.height, { color, size, align: "center" });
        }
      }
    });
  }

  hit(app, x, y, win) {
    const shown = this.shown(app);
    return shown && super.hit(shown, x, y, win);
  }

  move(app, item, dx, dy) {
    const shown = this.shown(app);
    return shown ? super.move(shown, item, dx, dy) : item;
  }

  has(app, item) {
    const table = this.difference(app);
    return Boolean(table) && (item.row ?? 0) < table.rows && (item.column ?? 0) < table.columns;
  }

  activate() { /* a row of differences has nothing to keep */ }

  describe(app, item) {
    const table = this.difference(app);
    return say("differenceCell", { query: quoted(table.rowText(item.row)), key: quoted(table.columnText(item.column)),
      ...table.cellTexts(item.row, item.column) });
  }

  legend(app) {
    const table = this.difference(app);
    if (!table) return { ramp: null, samples: [], text: "" };
    const scale = withoutRows(app.state.scale);
    const left = table.leftOut().slice(0, MOST_NAMED + 1).map((text) => shortText(text, 16));
    const tokens = left.slice(0, MOST_NAMED).join(" ") + (left.length > MOST_NAMED ? " \u2026" : "");
    const samples = [[MASKED, say("masked"), table.hasMasked], [MISSING, "NaN", table.hasMissing]].filter(([, , has]) => has);
    const notes = [table.largest ? "" : say("differenceZero"),
      scale === "linear" ? "" : say(/** @type {any} */ (`scale_${scale}`)), tokens && say("differenceLeftOut", { tokens })];
    return { ramp: "signed", title: say("differenceBar"), scale, largest: table.largest, samples, text: notes.filter(Boolean).join(" \u00b7 ") };
  }
}

// cards.js

const NAMESPACE = "http://www.w3.org/2000/svg";

/** Room between a card and what it must not cover. */
const GAP = 10;

/** Below this width one card is shown at a time. */
const ROOM_FOR_ALL = 860;

const overlap = (one, other, gap = 0) => one.x < other.x + other.width + gap && other.x < one.x + one.width + gap
  && one.y < other.y + other.height + gap && other.y < one.y + one.height + gap;

const middle = (box) => ({ x: box.x + box.width / 2, y: box.y + box.height / 2 });

/** The point of a box that is nearest to a point. */
const nearest = (box, { x, y }) => ({ x: Math.min(Math.max(x, box.x), box.x + box.width), y: Math.min(Math.max(y, box.y), box.y + box.height) });

/** The area that two boxes share. */
const shared = (one, other) => Math.max(0, Math.min(one.x + one.width, other.x + other.width) - Math.max(one.x, other.x))
  * Math.max(0, Math.min(one.y + one.height, other.y + other.height) - Math.max(one.y, other.y));

/** How many points of a line lie in boxes. */
function crossings(start, end, boxes) {
  let count = 0;
  for (let part = 0.1; part < 0.95; part += 0.1) {
    const [x, y] = [start.x + (end.x - start.x) * part, start.y + (end.y - start.y) * part];
    if (boxes.some((box) => x > box.x && x < box.x + box.width && y > box.y && y < box.y + box.height)) count += 1;
  }
  return count;
}

/**
 * A place for a card: as near to its target as it can be without covering a target or another card, where it covers little of what
 * there is to see and its line crosses no target.
 * @returns {{x: number, y: number, width: number, height: number}|null} null where there is no such place
 */
function placeFor(size, target, hard, soft, room) {
  let best = null;
  for (let y = 4; y + size.height <= room.height - 4; y += 8) {
    for (let x = 8; x + size.width <= room.width - 8; x += 8) {
      const box = { x, y, ...size };
      const end = nearest(target, middle(box));
      const start = nearest(box, end);
      let cost = Math.hypot(end.x - start.x, end.y - start.y) + 0.1 * Math.abs(middle(box).x - middle(target).x);
      if (best && cost >= best.cost) continue;
      for (const one of soft) cost += shared(box, one) / 100;
      if (best && cost >= best.cost) continue;
      if (hard.some((one) => overlap(box, one, GAP))) continue;
      cost += 60 * crossings(start, end, hard.filter((one) => one !== target));
      if (!best || cost < best.cost) best = { cost, box };
    }
  }
  return best?.box ?? null;
}

/** Boxes that cover the same as others, none over another. */
function union(boxes) {
  const cut = (values) => [...new Set(values)].sort((a, b) => a - b);
  const columns = cut(boxes.flatMap((box) => [box.x, box.x + box.width]));
  const rows = cut(boxes.flatMap((box) => [box.y, box.y + box.height]));
  const found = [];
  for (let row = 0; row + 1 < rows.length; row += 1) {
    for (let column = 0; column + 1 < columns.length; column += 1) {
      const box = { x: columns[column], y: rows[row], width: columns[column + 1] - columns[column], height: rows[row + 1] - rows[row] };
      if (boxes.some((one) => overlap(one, box))) found.push(box);
    }
  }
  return found;
}

/** "What is this?": short cards on the picture, each with a line to what it explains. */
class Cards {
  constructor(app) {
    this.app = app;
    this.current = 0;
    this.cards = [];
    const { frame, stopped: { signal } } = app;
    frame.what.addEventListener("click", () => this.show(), { signal });
    frame.cards.addEventListener("click", (event) => { if (!event.composedPath().some((one) => one.classList?.contains("card") || one.classList?.contains("cardkeys"))) this.close(); }, { signal });
    frame.cards.addEventListener("keydown", (event) => this.key(event), { signal });
  }

  get open() {
    return !this.app.frame.cards.hidden;
  }

  show() {
    const { app } = this;
    if (!app.view || !app.ready) return;
    app.hover = null;
    this.current = 0;
    app.frame.cards.hidden = false;
    app.frame.what.setAttribute("aria-pressed", "true");
    this.place();
    this.cards[0]?.element.focus();
    app.changed();
  }

  close() {
    if (!this.open) return;
    this.app.frame.cards.hidden = true;
    this.app.frame.cards.replaceChildren();
    this.app.frame.what.setAttribute("aria-pressed", "false");
    this.app.frame.what.focus();
    this.app.changed();
  }

  key(event) {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") this.close();
    else if (step) this.go(step);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  go(step) {
    this.current = (this.current + step + this.cards.length) % this.cards.length;
    this.place();
    this.cards[this.current].element.focus();
  }

  /**
   * A target in pixels of the viewer, cut at the edge of the stage.
   * @param {{box?: any, element?: HTMLElement}} where
   */
  target({ box, element }) {
    const { frame, area } = this.app;
    if (element) {
      const [outer, inner] = [frame.box.getBoundingClientRect(), element.getBoundingClientRect()];
      return { x: inner.left - outer.left, y: inner.top - outer.top, width: inner.width, height: inner.height };
    }
    const win = this.app.window();
    const [x0, y0] = [Math.max(0, box.x - win.x), Math.max(0, box.y - win.y)];
    const [x1, y1] = [Math.min(area.width, box.x + box.width - win.x), Math.min(area.height, box.y + box.height - win.y)];
    return { x: x0 + frame.stage.offsetLeft, y: y0 + HEADING + frame.stage.offsetTop, width: Math.max(8, x1 - x0), height: Math.max(8, y1 - y0) };
  }

  /** Draws the cards where they belong in the picture as it is now. */
  place() {
    if (!this.open) return;
    const { frame } = this.app;
    const room = { width: frame.box.clientWidth, height: frame.box.clientHeight };
    const focused = frame.cards.contains(frame.root.activeElement);
    const wanted = explained(this.app);
    this.cards = wanted.map(({ title, text, ...where }, number) => ({
      target: this.target(where),
      element: make("div", { class: "card", tabindex: "0", role: "group", "aria-label": say("cardOf", { number: number + 1, count: wanted.length }) },
        make("b", { text: title }), make("span", { text })),
    }));
    this.current = Math.min(this.current, this.cards.length - 1);
    frame.cards.replaceChildren(...this.cards.map((card) => card.element), this.keys(wanted.length));
    const placed = (room.width >= ROOM_FOR_ALL && this.arrange(this.cards, room)) || this.arrange([this.cards[this.current]], room, true);
    frame.cards.prepend(this.drawing(placed, room));
    if (focused) this.cards[this.current].element.focus({ preventScroll: true });
  }

  /** Places cards; null where one of them finds no room (unless it must be shown: then at the foot). */
  arrange(cards, room, must = false) {
    const targets = cards.map((card) => card.target);
    const { frame } = this.app;
    const foot = { x: room.width - 240, y: room.height - 76, width: 240, height: 76 };
    const seen = [this.pictureBox(), ...[frame.title, frame.texts, frame.bar, frame.tabs, frame.sentence].map((element) => this.target({ element })),
      { x: 0, y: frame.stage.offsetTop + frame.stage.offsetHeight - this.app.legendHeight, width: 0.4 * room.width, height: this.app.legendHeight }];
    const placed = [];
    for (const card of cards) {
      const size = { width: card.element.offsetWidth, height: card.element.offsetHeight };
      const box = placeFor(size, card.target, [...targets, ...placed.map((one) => one.box), foot], seen, room)
        ?? (must ? { x: 8, y: room.height - size.height - 56, ...size } : null);
      if (!box) return null;
      placed.push({ ...card, box });
    }
    for (const card of this.cards) card.element.hidden = !cards.includes(card);
    for (const { element, box } of placed) Object.assign(element.style, { left: `${box.x}px`, top: `${box.y}px` });
    return placed;
  }

  /** Where the picture has ink, in pixels of the viewer. */
  pictureBox() {
    const { app } = this;
    const { left = 0 } = app.view.geometry(app);
    const size = app.view.size(app);
    const x = app.view.name === "pattern" ? Math.max(0, left - 90) : 0;
    return { x, y: app.frame.stage.offsetTop + HEADING, width: Math.min(app.area.width, size.width) - x, height: Math.min(app.area.height, size.height) };
  }

  /** A veil with holes over the targets, their frames, and lines from the cards. */
  drawing(placed, room) {
    const svg = document.createElementNS(NAMESPACE, "svg");
    svg.setAttribute("aria-hidden", "true");
    const add = (name, values) => {
      const element = document.createElementNS(NAMESPACE, name);
      for (const [key, value] of Object.entries(values)) element.setAttribute(key, String(value));
      svg.append(element);
    };
    const outline = ({ x, y, width, height }) => `M${x} ${y}h${width}v${height}h${-width}z`;
    add("path", { class: "veil", d: outline({ x: 0, y: 0, ...room }) + union(placed.map((one) => one.target)).map(outline).join("") });
    for (const { target } of placed) add("rect", { class: "target", x: target.x - 1, y: target.y - 1, width: target.width + 2, height: target.height + 2 });
    for (const { target, box } of placed) {
      const end = nearest(target, middle(box));
      const start = nearest(box, end);
      add("path", { class: "lead", d: `M${start.x} ${start.y}L${end.x} ${end.y}` });
    }
    return svg;
  }

  keys(count) {
    const several = count > 1 ? [action("\u25c2", say("previousCard"), () => this.go(-1)),
      make("span", { text: `${this.current + 1} / ${count}` }), action("\u25b8", say("nextCard"), () => this.go(1))] : [];
    return make("div", { class: "cardkeys" }, ...several, action(say("closeCards"), say("closeCardsLong"), () => this.close()));
  }
}

// exports.js

/** The picture as the text of an SVG file. */
function svgOf(app) {
  const pen = new SvgPen(app.area.width, app.area.height + HEADING + app.legendHeight);
  paint(app, pen);
  return pen.toString(visibleText(app.payload.title), [app.heading(), app.selectionText(), app.frame.readout.textContent].filter(Boolean).join(" \u2014 "));
}

function saveSvg(app) {
  download(app, new Blob([svgOf(app)], { type: "image/svg+xml" }), "svg");
}

function savePng(app) {
  const scale = Math.max(2, globalThis.devicePixelRatio || 1);
  const canvas = newCanvas(app.area.width * scale, (app.area.height + HEADING + app.legendHeight) * scale);
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  app.tables.frameStart = performance.now();
  paint(app, new CanvasPen(context));
  canvas.toBlob((blob) => download(app, blob, "png"), "image/png");
}

function download(app, blob, suffix) {
  const address = URL.createObjectURL(blob);
  const link = make("a", { href: address, download: `attention-${app.view.name}.${suffix}` });
  app.frame.root.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

// input.js

/** Pointer, wheel and keys on the viewer's elements. */
class Input {
  constructor(app) {
    this.app = app;
    this.grab = null; // where a drag began
    this.dragged = false;
    this.listen();
  }

  listen() {
    const { signal } = this.app.stopped;
    const on = (target, names, listener, more = {}) => names.split(" ").forEach((name) => target.addEventListener(name, listener, { signal, ...more }));
    on(this.app.frame.canvas, "pointermove", (event) => this.pointerMoved(event));
    on(this.app.frame.canvas, "pointerleave", () => { this.app.hover = null; this.app.changed(); });
    on(this.app.frame.canvas, "pointerdown", (event) => this.pointerPressed(event));
    on(this.app.frame.canvas, "pointerup pointercancel", () => this.pointerReleased());
    on(this.app.frame.canvas, "click", (event) => this.clicked(event));
    on(this.app.frame.canvas, "keydown", (event) => this.keyPressed(event));
    on(this.app.frame.canvas, "focus", () => this.focused());
    on(this.app.frame.canvas, "blur", () => this.app.changed());
    on(this.app.frame.scroller, "scroll", () => this.app.changed(), { passive: true });
    on(this.app.frame.scroller, "wheel", (event) => this.wheelTurned(event), { passive: false });
    on(this.app.frame.tabs, "keydown", (event) => this.tabKey(event));
    on(this.app.frame.box, "keydown", (event) => {
      this.commandKey(event);
      if (event.key === "Escape" && event.target !== this.app.frame.canvas) this.app.unlock();
    });
    for (const text of ["(prefers-color-scheme: dark)", "(forced-colors: active)"]) {
      on(globalThis.matchMedia(text), "change", () => { this.app.readTheme(); this.app.refresh(); });
    }
  }

  at(event) {
    const box = this.app.frame.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top - HEADING];
    if (!this.app.ready || y < 0 || y >= this.app.area.height) return null;
    const win = this.app.window();
    return this.app.view.hit(this.app, x + win.x, y + win.y, win);
  }

  pointerMoved(event) {
    if (this.grab) {
      const [dx, dy] = [event.clientX - this.grab.x, event.clientY - this.grab.y];
      if (this.grab.moved || Math.abs(dx) + Math.abs(dy) > 5) {
        this.grab.moved = true;
        this.app.frame.canvas.classList.add("grab");
        this.app.frame.scroller.scrollTo(this.grab.left - dx, this.grab.top - dy);
        this.app.hover = null;
        return;
      }
    }
    const item = this.at(event);
    if (sameItem(item, this.app.hover)) return;
    this.app.hover = item;
    this.app.keyboard = false;
    this.app.changed();
  }

  pointerPressed(event) {
    if (event.button !== 0 || event.pointerType === "touch") return;
    this.grab = { x: event.clientX, y: event.clientY, left: this.app.frame.scroller.scrollLeft, top: this.app.frame.scroller.scrollTop, moved: false };
    this.app.frame.canvas.setPointerCapture?.(event.pointerId);
  }

  pointerReleased() {
    this.dragged = this.grab?.moved ?? false;
    this.grab = null;
    this.app.frame.canvas.classList.remove("grab");
  }

  clicked(event) {
    if (this.dragged) { this.dragged = false; return; }
    const item = this.at(event);
    if (!item) return;
    this.app.cursor = item;
    this.app.view.activate(this.app, item);
    this.app.changed();
  }

  focused() {
    if (!this.app.ready) return;
    this.app.cursor ??= this.app.view.start(this.app);
    this.app.keyboard = this.app.frame.canvas.matches(":focus-visible");
    this.app.changed();
  }

  wheelTurned(event) {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const box = this.app.frame.canvas.getBoundingClientRect();
    this.app.zoom(event.deltaY < 0 ? 1.25 : 0.8, { x: event.clientX - box.left, y: event.clientY - box.top - HEADING });
  }

  keyPressed(event) {
    if (!this.app.ready || event.ctrlKey || event.metaKey || event.altKey) return;
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1], Home: [-1e9, 0], End: [1e9, 0], PageUp: [0, -10, -1], PageDown: [0, 10, 1] };
    if (event.key in moves) this.moveCursor(...moves[event.key]);
    else if (event.key === "Enter" || event.key === " ") {
      if (this.app.cursor && this.app.view.has(this.app, this.app.cursor)) this.app.view.activate(this.app, this.app.cursor);
    }
    else if (event.key === "Escape") this.escape();
    else if (event.key === "+" || event.key === "=") this.zoomKey(1.5);
    else if (event.key === "-") this.zoomKey(1 / 1.5);
    else if (event.key === "0") this.app.fit();
    else if (event.key === "[" || event.key === "]") this.app.nextHead(event.key === "[" ? -1 : 1);
    else return;
    event.preventDefault();
    this.app.changed();
  }

  /** Undo and redo, wherever the focus is. */
  commandKey(event) {
    if (!(event.ctrlKey || event.metaKey) || event.altKey) return;
    const key = event.key.toLowerCase();
    if (key === "z" && event.shiftKey) this.app.redo();
    else if (key === "z") this.app.undo();
    else if (key === "y") this.app.redo();
    else return;
    event.preventDefault();
  }

  zoomKey(factor) {
    const box = this.app.cursor ? this.app.view.place(this.app, this.app.cursor) : null;
    const win = this.app.window();
    this.app.zoom(factor, box ? { x: box.x - win.x + box.width / 2, y: box.y - win.y + box.height / 2 } : null);
  }

  escape() {
    if (this.app.view.name === "long" && this.app.state.zoom > 1) this.app.fit();
    else this.app.unlock();
  }

  moveCursor(dx, dy, jump = 0) {
    this.app.keyboard = true;
    this.app.hover = null;
    const from = this.app.cursor && this.app.view.has(this.app, this.app.cursor) ? this.app.cursor : this.app.view.start(this.app);
    if (!this.app.view.has(this.app, from)) return;
    this.app.cursor = this.app.view.move(this.app, from, dx, dy, jump);
    const box = this.app.view.place(this.app, this.app.cursor);
    const { area, frame: { scroller } } = this.app;
    const [left, top] = [box.frozenLeft ?? 0, box.frozenTop ?? 0];
    if (box.x - scroller.scrollLeft < left) scroller.scrollLeft = box.x - left;
    if (box.x + box.width - scroller.scrollLeft > area.width) scroller.scrollLeft = box.x + box.width - area.width + 4;
    if (box.y - scroller.scrollTop < top) scroller.scrollTop = box.y - top;
    if (box.y + box.height - scroller.scrollTop > area.height) scroller.scrollTop = box.y + box.height - area.height + 4;
  }

  tabKey(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -1000, End: 1000 }[event.key];
    if (!step) return;
    const views = this.app.views.filter((view) => view.available(this.app));
    const here = views.indexOf(this.app.view);
    const next = Math.abs(step) > 1 ? clamp(here + step, 0, views.length - 1) : (here + step + views.length) % views.length;
    this.app.show(views[next].name);
    this.app.frame.tabs.querySelector("[aria-selected=\"true\"]").focus();
    event.preventDefault();
  }
}

// views/all_views.js

const VIEW_CLASSES = [PatternView, LinesView, GridView, WalkView, WordsView, ImageView, SoundView, LongView,
  DifferenceView];

// menu.js

/** What is rarely changed, behind the button with three dots. */
class Menu {
  constructor(app) {
    this.app = app;
    const { frame, stopped: { signal } } = app;
    frame.more.addEventListener("click", () => this.toggle(), { signal });
    frame.root.addEventListener("pointerdown", (event) => {
      const path = event.composedPath();
      if (!path.includes(frame.menu) && !path.includes(frame.more)) this.close();
    }, { signal });
    frame.box.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || frame.menu.hidden) return;
      this.close();
      frame.more.focus();
      event.stopImmediatePropagation();
    }, { signal });
  }

  toggle() {
    if (this.app.frame.menu.hidden) this.open();
    else this.close();
  }

  open() {
    const { frame } = this.app;
    frame.menu.hidden = false;
    frame.more.setAttribute("aria-expanded", "true");
    this.build();
  }

  close() {
    const { frame } = this.app;
    if (frame.menu.hidden) return;
    frame.menu.hidden = true;
    frame.more.setAttribute("aria-expanded", "false");
  }

  /** What the view that is shown needs. */
  build() {
    const { app } = this;
    if (app.frame.menu.hidden) return;
    const { view } = app;
    const parts = ["scale", "words", "special"].filter((part) => view?.controls.includes(part)).map((part) => this[part]());
    if (view?.zooms) parts.push(this.zoom());
    app.frame.menu.replaceChildren(...[...parts, this.theme(), this.steps(), this.link(), this.save()].filter(Boolean));
  }

  scale() {
    const { app } = this;
    const names = Object.keys(SCALES).filter((name) => name !== "row" || app.view.scalesRows);
    return choice(say("scale"), names.includes(app.state.scale) ? app.state.scale : "linear", names.map((name) => [name, say(/** @type {any} */ (`scale_${name}`))]),
      (value) => app.set({ scale: value }), true);
  }

  words() {
    const { app } = this;
    const { queries, keys } = app.record;
    if (!queries.hasWords && !keys.hasWords) return null;
    return checkbox(say("wholeWords"), app.state.words, (checked) => app.set({ words: checked, locked: [] }));
  }

  special() {
    const { app } = this;
    const { queries, keys } = app.record;
    if (!queries.special.size && !keys.special.size) return null;
    return checkbox(say("hideSpecial"), app.state.hideSpecial, (checked) => app.set({ hideSpecial: checked, locked: [] }));
  }

  zoom() {
    const { app } = this;
    return make("div", { class: "group" }, action("\u2212", say("zoomOut"), () => app.zoom(1 / 1.5)),
      action("+", say("zoomIn"), () => app.zoom(1.5)), action(say("fitText"), say("fit"), () => app.fit()));
  }

  theme() {
    const { app } = this;
    return choice(say("theme"), app.state.theme, ["auto", "light", "dark"].map((name) => [name, say(/** @type {any} */ (`theme_${name}`))]), (value) => {
      app.state.theme = value;
      app.readTheme();
      app.refresh();
    }, true);
  }

  steps() {
    const { app } = this;
    const [back, forth] = [action(say("undo"), say("undoKeys"), () => app.undo()), action(say("redo"), say("redoKeys"), () => app.redo())];
    back.disabled = !app.history.past.length;
    forth.disabled = !app.history.future.length;
    return make("div", { class: "group" }, back, forth);
  }

  link() {
    const { app } = this;
    if (!app.options.address || !/^(?:https?|file):$/.test(globalThis.location.protocol)) return null;
    const button = action(say("copyLink"), say("copyLinkLong"), async () => {
      button.textContent = say(await copied(app) ? "linkCopied" : "linkNotCopied");
    });
    return button;
  }

  save() {
    const { app } = this;
    return make("div", { class: "group" }, action("PNG", say("savePng"), () => savePng(app)), action("SVG", say("saveSvg"), () => saveSvg(app)));
  }
}

/** Puts the address of what is shown on the clipboard; whether that was allowed. */
async function copied(app) {
  app.writeAddress();
  try {
    await navigator.clipboard.writeText(globalThis.location.href);
    return true;
  } catch {
    return false;
  }
}

// viewer.js

/** Lets the browser paint and take input between two pieces of work. */
const pause = () => new Promise((resolve) => { setTimeout(resolve, 0); });

const FORMAT = 1;

class Viewer {
  constructor(element, payload, options) {
    this.element = element;
    this.options = options;
    this.state = { ...initialState(), theme: options.theme ?? "auto" };
    this.area = { width: 300, height: 200 };
    this.legendHeight = 66;
    this.hover = null;
    this.cursor = null;
    this.elsewhere = null; // what another viewer points at
    this.keyboard = false;
    this.history = new History();
    this.listeners = new Set();
    this.views = VIEW_CLASSES.map((ViewClass) => new ViewClass()).filter((view) => !options.views || options.views.includes(view.name));
    this.tables = new Tables(this);
    this.stopped = new AbortController();
    this.frame = new Frame(element, options.height);
    this.readTheme();
    this.menu = new Menu(this);
    this.cards = new Cards(this);
    this.input = new Input(this);
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(this.frame.scroller);
    const linked = options.address ? stateOf(globalThis.location.hash) : {};
    this.load(payload, linked.view ?? options.view, { ...options.selection, ...linked });
  }

  // --- data ---

  load(payload, view, selection) {
    if (payload?.format !== FORMAT) throw new TypeError(`this viewer reads payloads of format ${FORMAT}; this one has ${payload?.format}`);
    this.payload = payload;
    const axes = payload.axes.map((entry) => new Axis(entry));
    this.records = payload.records.map((entry, number) => new AttentionData(entry, number, axes, payload.masks));
    this.steps = payload.steps.map((entry) => new StepsData(entry));
    this.tables.forget();
    for (const one of this.views) one.forget();
    this.hover = this.cursor = this.elsewhere = null;
    this.history.forget();
    Object.assign(this.state, { locked: [], kept: null, zoom: 1 });
    this.frame.title.textContent = visibleText(payload.title);
    this.frame.showTexts(payload.texts);
    this.frame.facts.textContent = factsOf(this.records);
    const wanted = view ?? (this.started ? this.state.view : null);
    const first = this.views.find((one) => one.name === wanted && one.available(this)) ?? firstView(this);
    if (first) this.state.view = first.name;
    this.chosen = this.started || selection?.head !== undefined;
    this.opening = this.chosen ? Promise.resolve() : this.open(selection?.record);
    this.started = true;
    if (first) this.turnTo(first, selection ?? {});
    else this.empty();
    this.decodeRest();
  }

  /** Chooses the head that is shown first, of one record or of all, where none was chosen meanwhile. */
  async open(number) {
    const { records } = this;
    const found = await chooseFirst(records.filter((record) => record.number === (number ?? record.number) && this.fits(record)));
    if (!found || this.chosen || this.records !== records) return;
    Object.assign(this.state, { record: found.record, head: found.head });
  }

  empty() {
    this.frame.showTabs(this.views.filter((view) => view.available(this)), this.view, (name) => this.show(name));
    this.frame.bar.replaceChildren();
    this.frame.canvas.hidden = true;
    this.frame.tellSentence({ text: say("nothingToShow"), shares: "" });
  }

  async decodeRest() {
    const { records } = this;
    for (const record of records) {
      await pause();
      if (this.records !== records || this.stopped.signal.aborted) return;
      await record.decode();
      if (this.view?.name === "grid") this.changed();
    }
  }

  get record() {
    return this.records[this.state.record];
  }

  get view() {
    return this.views.find((view) => view.name === this.state.view);
  }

  /** Whether the view shows a record. */
  fits(record) {
    const view = /** @type {any} */ (this.view);
    return !view?.shows || view.shows(record);
  }

  tableKey() {
    const { record, head, words, hideSpecial } = this.state;
    return `${record}|${head}|${words}|${hideSpecial}`;
  }

  /** The weights of a head as they are shown; null is the mean of all heads. */
  table(head = this.state.head, record = this.record, options = this.state) {
    return this.tables.of(head, record, options);
  }

  // --- what is chosen ---

  /** What is pointed at here, by the mouse or the keyboard. */
  pointed() {
    const item = this.hover ?? (this.frame.root.activeElement === this.frame.canvas ? this.cursor : null);
    return item && this.view?.has(this, item) ? item : null;
  }

  /** What is pointed at, here or in another viewer. */
  active() {
    const item = this.elsewhere;
    return this.pointed() ?? (item && this.view.has(this, item) ? item : null);
  }

  /** The queries that views of rows show: the locked ones, or the one that is pointed at. */
  activeRows() {
    const { locked } = this.state;
    if (locked.length) return locked;
    const item = this.active();
    if (!item || item.row === undefined || item.side === "key") {
      return item?.side === "key" && this.view.name === "image" && this.view.geometry(this).own ? [item.column] : [];
    }
    return [item.row];
  }

  shownHeads() {
    const { heads } = this.state;
    const all = Array.from({ length: this.record.heads }, (_, head) => head);
    return heads === null ? all : all.filter((head) => heads.includes(head));
  }

  headText() {
    const { head } = this.state;
    if (this.record.heads === 1) return say("oneHead");
    return head === null ? say("meanOfHeads", { count: this.record.heads }) : say("headNumber", { head });
  }

  recordText(record) {
    return recordName(record, this.records);
  }

  // --- commands ---

  set(changes) {
    Object.assign(this.state, changes);
    this.hover = null;
    this.refresh();
  }

  /** Shows a view; a selection may have the fields of a state, queries (locked rows), row and column. */
  show(name, selection = {}) {
    const view = this.views.find((one) => one.name === name);
    if (!view) throw new RangeError(`no view ${String(name)}; there are ${this.views.map((one) => one.name).join(", ")}`);
    if (!view.available(this)) throw new RangeError(`the view ${name} cannot show these records`);
    if ("record" in selection || "head" in selection) this.chosen = true;
    this.turnTo(view, selection);
  }

  turnTo(view, selection) {
    const { state } = this;
    if (state.view !== view.name) {
      state.zoom = 1;
      this.frame.scroller.scrollTo(0, 0);
      this.hover = this.cursor = this.elsewhere = null;
    }
    for (const key of Object.keys(FIELDS)) if (key in selection) state[key] = selection[key];
    state.view = view.name;
    if ("record" in selection && !("locked" in selection)) state.locked = [];
    if (Array.isArray(selection.queries)) state.locked = [...selection.queries];
    this.settle();
    if (selection.row !== undefined || selection.column !== undefined) {
      this.cursor = { row: selection.row ?? 0, column: selection.column ?? 0 };
    }
    this.refresh();
  }

  /** Shows a state of another viewer, of an address or of before, as far as these records have it. */
  apply(given) {
    const changes = checkedState(given);
    const view = this.views.find((one) => one.name === changes.view && one.available(this)) ?? this.view;
    if (!view) return;
    this.chosen = true;
    this.turnTo(view, changes);
    this.readTheme();
  }

  /** As `apply`, without telling the listeners. */
  applyQuietly(given) {
    this.apply(given);
    this.told = this.telling();
  }

  undo() {
    const before = this.history.undo();
    if (before) this.apply(before);
  }

  redo() {
    const after = this.history.redo();
    if (after) this.apply(after);
  }

  /** Shows what another viewer points at; null: nothing. */
  point(item) {
    this.elsewhere = item ?? null;
    this.changed();
  }

  /** Calls a listener with the state and with what is pointed at (or null) after each change; gives what ends that. */
  onChange(listener) {
    this.listeners.add(listener);
    return () => { this.listeners.delete(listener); };
  }

  telling() {
    return JSON.stringify([this.state, this.pointed()]);
  }

  /** After a picture: the state goes into the history and the address, and the listeners hear of it. */
  remember() {
    if (this.history.note(this.state) && this.options.address) this.writeAddress();
    const telling = this.telling();
    const first = this.told === undefined;
    if (telling === this.told) return;
    this.told = telling;
    if (first) return;
    for (const listener of this.listeners) listener(structuredClone(this.state), structuredClone(this.pointed()));
  }

  writeAddress() {
    try {
      globalThis.history.replaceState(globalThis.history.state, "", `#${addressOf(this.state)}`);
    } catch {
      this.options = { ...this.options, address: false }; // a page without an address of its own
    }
  }

  /** Makes the state fit the records and the view. */
  settle() {
    const { state } = this;
    if (!this.record || !this.fits(this.record)) {
      const found = this.records.findIndex((record) => this.fits(record));
      state.record = Math.max(0, found);
      state.locked = [];
    }
    const rows = this.record?.queries.length ?? 0;
    if (state.locked.some((row) => row >= rows)) state.locked = state.locked.filter((row) => row < rows);
    if (this.record && state.head !== null && !(state.head < this.record.heads)) state.head = 0;
    if (!(state.steps < this.steps.length)) state.steps = 0;
    if (!(state.scale in SCALES)) state.scale = "linear";
  }

  toggleLocked(row) {
    if (row === null || row === undefined) return;
    const { locked } = this.state;
    this.set({ locked: locked.includes(row) ? locked.filter((one) => one !== row) : [...locked, row] });
  }

  toggleHead(head) {
    const shown = this.shownHeads();
    const next = shown.includes(head) ? shown.filter((one) => one !== head) : [...shown, head].sort((a, b) => a - b);
    this.set({ heads: next.length === this.record.heads ? null : next });
  }

  /** The next head, in the next layer behind the last one; -1: the one before. */
  nextHead(step) {
    const { records, state } = this;
    const shown = records.filter((record) => this.fits(record));
    const head = (state.head ?? (step > 0 ? -1 : 0)) + step;
    if (head >= 0 && head < this.record.heads) { this.set({ head }); return; }
    const next = shown[(shown.indexOf(this.record) + step + shown.length) % shown.length];
    this.set({ record: next.number, head: step > 0 ? 0 : next.heads - 1, locked: next.queries === this.record.queries ? state.locked : [] });
  }

  unlock() {
    this.set({ locked: [], kept: null });
  }

  zoom(factor, anchor = null) {
    if (!this.view.zooms) return;
    const before = this.view.geometry(this);
    const at = anchor ?? { x: this.area.width / 2, y: this.area.height / 2 };
    const [x, y] = [this.frame.scroller.scrollLeft + at.x, this.frame.scroller.scrollTop + at.y];
    const cell = before.cell ?? before.width;
    const [column, row] = [(x - before.left) / cell, (y - before.top) / cell];
    this.applyZoom(this.state.zoom * factor);
    const after = this.view.geometry(this);
    const next = after.cell ?? after.width;
    this.frame.scroller.scrollTo(after.left + column * next - at.x, after.top + row * next - at.y);
    this.changed();
  }

  applyZoom(zoom) {
    this.state.zoom = 1;
    const fitted = this.view.geometry(this);
    const cell = fitted.cell ?? fitted.width;
    const longest = Math.max(this.record.queries.length, this.record.keys.length);
    const most = Math.max(1, Math.min(this.view.name === "long" ? 40 : 72, 1.6e7 / longest) / cell);
    this.state.zoom = clamp(zoom, Math.min(1, (fitted.whole ?? cell) / cell), most);
    this.resize();
  }

  /** Zooms so that a cell has a size in pixels and is in the middle. */
  zoomTo(item, size) {
    this.state.zoom = 1;
    const fitted = this.view.geometry(this);
    this.applyZoom(size / (fitted.cell ?? fitted.width));
    this.cursor = item;
    const box = this.view.place(this, item);
    this.frame.scroller.scrollTo(box.x - (this.area.width + (box.frozenLeft ?? 0)) / 2, box.y - (this.area.height + (box.frozenTop ?? 0)) / 2);
    this.frame.canvas.focus({ preventScroll: true });
    this.keyboard = true;
    this.changed();
  }

  /** Shows a finding of a long map at full zoom. */
  goTo(found) {
    this.set({ head: found.head });
    this.zoomTo({ row: found.row, column: found.column }, 16);
  }

  fit() {
    this.state.zoom = 1;
    const { cell, whole } = this.view.geometry(this);
    this.applyZoom(whole ? Math.min(1, whole / cell) : 1);
    this.frame.scroller.scrollTo(0, 0);
    this.changed();
  }

  // --- elements ---

  readTheme() {
    const query = (text) => globalThis.matchMedia?.(text).matches ?? false;
    const dark = this.state.theme === "auto" ? query("(prefers-color-scheme: dark)") : this.state.theme === "dark";
    this.element.dataset.scheme = this.state.theme;
    this.theme = query("(forced-colors: active)") ? forcedTheme(this.frame.box) : dark ? DARK : LIGHT;
    this.frame.paintWith(this.theme);
  }

  /** Rebuilds what depends on the state and keeps the focus where it was. */
  refresh() {
    const focus = this.frame.focusPlace();
    this.frame.showTabs(this.views.filter((view) => view.available(this)), this.view, (name) => this.show(name));
    this.frame.stage.setAttribute("aria-busy", "true");
    if (!this.current().decoded) this.ready = false;
    this.prepare(focus).catch((error) => this.fail(error));
  }

  async prepare(focus) {
    await this.opening;
    const shown = this.current();
    await shown.decode();
    // Something else may have been chosen in the meantime.
    if (this.stopped.signal.aborted || this.current() !== shown) return;
    this.frame.bar.replaceChildren(...new Controls(this).build());
    this.menu.build();
    this.frame.restoreFocus(focus);
    this.frame.canvas.setAttribute("aria-label", `${say(/** @type {any} */ (this.view.name))}: ${this.heading()}`);
    this.frame.stage.setAttribute("aria-labelledby", `tab-${this.view.name}`);
    this.frame.help.textContent = this.view.help;
    this.ready = true;
    this.resize();
    if (shown instanceof AttentionData) this.makeExact(shown);
  }

  /** Replaces a record's codes by exact numbers, where a server gives them. */
  async makeExact(record) {
    const exact = await record.fetchExact(this.options.fetchTile);
    if (!exact || this.stopped.signal.aborted || this.records[record.number] !== record) return;
    this.tables.forget();
    for (const view of this.views) view.forget();
    this.changed();
  }

  fail(error) {
    this.frame.tellSentence({ text: say("cannotBeShown", { reason: String(error?.message ?? error) }), shares: "" });
    throw error;
  }

  /** What must be decoded before the view can be drawn. */
  current() {
    return this.view.name === "walk" ? this.steps[this.state.steps] : this.record;
  }

  heading() {
    if (this.view.name === "walk") return shortText(this.steps[this.state.steps].entry.name, 80);
    if (this.view.name === "grid") return say("eachHead", { what: factsOf(this.records) });
    return `${this.recordText(this.record)} \u00b7 ${this.view.headText(this)}`;
  }

  // --- drawing ---

  /** Asks for a new picture in the next frame. */
  changed() {
    if (this.request || this.stopped.signal.aborted) return;
    this.request = requestAnimationFrame(() => {
      this.request = null;
      if (this.ready && !this.stopped.signal.aborted) this.draw();
    });
  }

  resize() {
    if (!this.ready || !this.view) return;
    this.frame.box.classList.toggle("narrow", this.frame.box.clientWidth < 480);
    const { clientWidth, clientHeight } = this.frame.scroller;
    if (!clientWidth || !clientHeight) return;
    const area = () => ({ width: clientWidth, height: Math.max(60, clientHeight - HEADING - this.legendHeight) });
    this.area = area();
    this.legendHeight = legendHeight(this.view.legend(this), clientWidth);
    this.area = area();
    const size = this.view.size(this);
    const zoom = this.frame.bar.querySelector(".zoom");
    if (zoom) zoom.hidden = this.state.zoom === 1 && size.width <= this.area.width && size.height <= this.area.height;
    this.frame.space.style.width = `${Math.min(size.width, 3e7)}px`;
    this.frame.space.style.height = `${Math.min(size.height + HEADING + this.legendHeight, 3e7)}px`;
    // Scroll bars that came or went changed the room.
    const [width, height] = [this.frame.scroller.clientWidth, this.frame.scroller.clientHeight];
    this.area = { width, height: Math.max(60, height - HEADING - this.legendHeight) };
    const ratio = globalThis.devicePixelRatio || 1;
    if (this.frame.canvas.width !== Math.round(width * ratio) || this.frame.canvas.height !== Math.round(height * ratio)) {
      this.frame.canvas.width = Math.round(width * ratio);
      this.frame.canvas.height = Math.round(height * ratio);
      this.frame.canvas.style.width = `${width}px`;
      this.frame.canvas.style.height = `${height}px`;
    }
    this.changed();
  }

  draw() {
    this.tables.frameStart = performance.now();
    const ratio = this.frame.canvas.width / Math.max(1, this.area.width);
    this.frame.pen.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    paint(this, this.frame.pen);
    this.tell();
    this.cards.place();
    this.frame.stage.setAttribute("aria-busy", "false");
    this.remember();
  }

  /** The pair that the sentence speaks of while nothing is pointed at; null where there is none. */
  featured() {
    return this.active() ? null : featured(this);
  }

  window() {
    return { x: this.frame.scroller.scrollLeft, y: this.frame.scroller.scrollTop, ...this.area };
  }

  /** The tooltip, and the same text for screen readers. */
  tell() {
    const item = this.active();
    const text = item ? this.view.describe(this, item) : this.selectionText();
    if (this.frame.readout.textContent !== text) this.frame.readout.textContent = text;
    this.frame.tellSentence(sentenceOf(this));
    this.frame.tip.hidden = !item || this.view.quiet || this.cards.open;
    if (this.frame.tip.hidden) return;
    const box = this.view.place(this, item);
    const win = this.window();
    this.frame.placeTip(text, { ...box, x: box.x - win.x, y: box.y - win.y + HEADING }, this.area.width);
  }

  selectionText() {
    const { locked } = this.state;
    if (!locked.length || !this.record || this.record.large || this.view.name === "grid" || this.view.name === "walk") return "";
    const table = this.table();
    const names = locked.filter((row) => row < table.rows).map((row) => quoted(table.rowText(row)));
    return say("lockedRows", { names: names.join(", ") });
  }

  /** Where an item is on the page, in pixels of the window. */
  locate(item) {
    const box = this.view.place(this, item);
    const canvas = this.frame.canvas.getBoundingClientRect();
    const win = this.window();
    return { x: canvas.left + box.x - win.x, y: canvas.top + HEADING + box.y - win.y, width: box.width, height: box.height };
  }

  destroy() {
    this.stopped.abort();
    this.observer.disconnect();
    if (this.request) cancelAnimationFrame(this.request);
    this.frame.root.replaceChildren();
  }
}

// mount.js

/**
 * Shows a payload inside of an element.
 * @param {HTMLElement} element gets a shadow root; its height is filled
 * @param {object} payload what `regard.viewer.payload` gives
 * @param {{view?: string, selection?: object, theme?: "auto"|"light"|"dark", height?: number, language?: string, address?: boolean,
 *   views?: string[], controls?: string[],
 *   fetchTile?: (record: number, q0: number, q1: number, k0: number, k1: number) => Promise<any>}} [options]
 *   fetchTile gives exact weights [heads, q1 - q0, k1 - k0]: {type, shape, data}, a typed array or nested lists
 *   language of all words ("en", "zh"); that of the element where it is not given
 *   views: the names of those that are offered; all where they are not given
 *   controls: the same of the controls
 *   address: whether the page's address holds what is shown
 * @returns {{update(payload: object): void, show(view: string, selection?: object): void, destroy(): void,
 *   set(state: object): void, point(item: object|null): void, onChange(listener: (state: object, item: object|null) => void): () => void,
 *   undo(): void, redo(): void, state(): object, locate(item: object): object, svg(): string}}
 */
function mount(element, payload, options = {}) {
  speak(options?.language ?? /** @type {HTMLElement|null} */ (element.closest("[lang]"))?.lang);
  const viewer = new Viewer(element, payload, options ?? {});
  const handle = {
    update: (next) => viewer.load(next),
    show: (view, selection) => viewer.show(view, selection),
    destroy: () => viewer.destroy(),
    set: (state) => viewer.applyQuietly(state),
    point: (item) => viewer.point(item),
    onChange: (listener) => viewer.onChange(listener),
    undo: () => viewer.undo(),
    redo: () => viewer.redo(),
    state: () => structuredClone(viewer.state),
    locate: (item) => viewer.locate(item),
    svg: () => svgOf(viewer),
  };
  element.regardView = handle;
  return handle;
}

export { mount, say, speak };
