// The viewer, joined from the modules in viewer/modules by viewer/join.py: change those.

// state.js

const isCount = (value) => Number.isSafeInteger(value) && value >= 0;

const isName = (value) => typeof value === "string" && /^[\w -]{1,40}$/.test(value);

const isFlag = (value) => typeof value === "boolean";

const oneOf = (...names) => (value) => names.includes(value);

const within = (low, high) => (value) => Number.isFinite(value) && value >= low && value <= high;

const areCounts = (value) => Array.isArray(value) && value.length <= 4096 && value.every(isCount);

const isCell = (value) => isCount(value?.row) && isCount(value?.column) && Object.keys(value).length === 2;

/** What each setting of the walk can be. */
const TRIALS = { temperature: within(1e-3, 1e3), scale: within(1e-9, 1e9), alpha: within(1, 100), normalizer: isName, mask: oneOf("model", "none", "causal") };

const isTrial = (value) => typeof value === "object" && Object.entries(value).every(([name, one]) => Object.hasOwn(TRIALS, name) && TRIALS[name](one));

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
  scale: ["linear", oneOf("linear", "root", "log", "row")],
  words: [false, isFlag],
  hideSpecial: [false, isFlag],
  overlay: ["veil", oneOf("veil", "colours")],
  pooling: ["maximum", oneOf("maximum", "mean")],
  order: ["layer", oneOf("layer", "does", "entropy", "loss")], // of the grid's heads
  range: ["each", oneOf("each", "one")], // whether each map of the grid has its own scale, or all have "one"
  locked: [[], areCounts], // the rows that stay chosen
  overall: [false, isFlag], // whether all rows are shown together while none is chosen; else the one that the sentence speaks of
  heads: [null, orNull(areCounts)], // those with lines; null: the chosen one, or all
  steps: [0, isCount],
  station: ["input", oneOf("input", "vectors", "score", "scale", "cap", "bias", "mask", "weights", "output", "then")], // of the walk
  trial: [null, orNull(isTrial)], // what differs from the model in the walk; null: nothing
  measure: ["weights", oneOf("weights", "norms", "contributions")], // or weights times something that the record carries
  kept: [null, orNull(isCell)],
  other: [null, orNull(isHead)], // what the view of differences takes away
  zoom: [1, within(1e-6, 1e6)],
  theme: ["auto", oneOf("auto", "light", "dark")],
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

/** Counts below a number, each once. */
const distinct = (counts, below) => [...new Set(counts)].filter((one) => one < below);

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

/** A sound, whose samples travel as differences, all low bytes first. */
async function decodeSound({ rate, samples: count, data }) {
  const bytes = await inflate(data);
  const samples = new Int16Array(count);
  for (let place = 0, before = 0; place < count; place += 1) {
    before += bytes[place] | (bytes[count + place] << 8);
    samples[place] = before;
  }
  return { samples, rate };
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
  goTo: ["Go to", "转到"],
  findings: ["{count} {count:finding|findings}", "{count} 个发现"],
  calculation: ["Calculation", "计算"],
  nothingToShow: ["There is no attention to show.", "没有可显示的注意力。"],
  cannotBeShown: ["This view cannot be shown: {reason}", "无法显示此视图：{reason}"],
  lockedRows: ["locked: {names}", "已锁定：{names}"],
  // --- the menu ---
  scale: ["Scale", "色阶"],
  scale_linear: ["linear scale", "线性色阶"],
  scale_root: ["square-root scale", "平方根色阶"],
  scale_log: ["log scale, {decades} decades", "对数色阶（{decades} 个数量级）"],
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
  // Of pooling, where one query, which stands for a label, weighs a whole input: the label itself looks at nothing.
  givesPooled: ["\u201c{key}\u201d has {percent} of the weight in the whole input.", "\u201c{key}\u201d占整个输入权重的 {percent}。"],
  givesWeightPooled: ["\u201c{key}\u201d has the weight {weight}.", "\u201c{key}\u201d的权重是 {weight}。"],
  givesPatchesPooled: ["{count} of {all} patches of the picture have {percent} of the weight.", "图像 {all} 块中的 {count} 块占权重的 {percent}。"],
  givesFramesPooled: ["{count} of {all} moments of the sound have {percent} of the weight.", "声音 {all} 个时刻中的 {count} 个占权重的 {percent}。"],
  lookedAtPooled: ["\u201c{key}\u201d has {percent} of the weight in the whole input.", "\u201c{key}\u201d占整个输入权重的 {percent}。"],
  looksAtTitlePooled: ["the weights of the input", "输入的权重"],
  cardRowPooled: ["The row is the one query that weighs the whole input.", "这一行是对整个输入加权的唯一查询。"],
  cardLeftPooled: ["On the left is the one query that weighs the whole input.", "左边是对整个输入加权的唯一查询。"],
  cardPointPooled: ["This is the one query that weighs the whole input.", "这是对整个输入加权的唯一查询。"],
  wordsAskingPooled: ["one query weighs the whole text below", "一个查询对下面的整段文字加权"],
  whatOnePooled: ["the weights of the input", "输入的权重"],
  givesWeight: ["\u201c{query}\u201d gives \u201c{key}\u201d the weight {weight}.", "\u201c{query}\u201d给\u201c{key}\u201d的权重是 {weight}。"],
  mayNotSee: ["\u201c{query}\u201d cannot look at \u201c{key}\u201d: the mask hides it.", "\u201c{query}\u201d看不到\u201c{key}\u201d：它被掩蔽了。"],
  noNumber: ["The weight of \u201c{query}\u201d for \u201c{key}\u201d is no number (NaN).", "\u201c{query}\u201d对\u201c{key}\u201d的权重不是数（NaN）。"],
  seesNothing: ["\u201c{query}\u201d cannot look at any word: the mask hides all.", "\u201c{query}\u201d看不到任何词：全部被掩蔽。"],
  noneSees: ["No query may look at any key.", "没有查询可以看任何键。"],
  averageOver: ["On average over all queries, \u201c{key}\u201d gets most: {weight}.", "对所有查询取平均，\u201c{key}\u201d得到最多：{weight}。"],
  givesPatches: ["\u201c{query}\u201d gives {percent} of its attention to {count} of {all} patches of the picture.", "\u201c{query}\u201d把 {percent} 的注意力给了图像 {all} 块中的 {count} 块。"],
  givesFrames: ["\u201c{query}\u201d gives {percent} of its attention to {count} of {all} moments of the sound.", "\u201c{query}\u201d把 {percent} 的注意力给了声音 {all} 个时刻中的 {count} 个。"],
  partsShown: ["those with more than twice an equal share ({weight})", "即超过均分（{weight}）两倍者"],
  lookedAt: ["\u201c{query}\u201d looks at \u201c{key}\u201d most: with {percent} of its attention.", "\u201c{query}\u201d看\u201c{key}\u201d最多：用了 {percent} 的注意力。"],
  seenByNobody: ["No word can look at \u201c{key}\u201d.", "没有词能看到\u201c{key}\u201d。"],
  moreKeys: ["{count} more {weight}", "其余 {count} 个 {weight}"],
  looksAtTitle: ["\u201c{query}\u201d looks at", "\u201c{query}\u201d在看"],
  others: ["{count} more", "其余 {count} 个"],
  evenShare: ["shared equally, each would get {weight}", "若平均分配，各得 {weight}"],
  whatIsThis: ["What is this?", "这是什么？"],
  // --- the legend and the axes ---
  weightTitle: ["attention weight", "注意力权重"],
  partOfRow: ["part of the largest in its row", "占该行最大值的比例"],
  evenMark: ["equal share {weight}", "均分 {weight}"],
  zero: ["zero", "零"],
  masked: ["masked", "被掩蔽"],
  specialNote: ["{tokens}: marks that the model adds", "{tokens}：模型添加的标记"],
  blankNote: ["no number: below 0.005", "无数字：小于 0.005"],
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

  // --- weights in sentences ---
  of_weights: ["attention weight", "注意力权重"],
  of_norms: ["weight × length of the value (after the output projection)", "权重 × 值的长度（经输出投影后）"],
  of_contributions: ["contribution to the logit", "对 logit 的贡献"],
  measure: ["Shows", "显示"],
  measure_weights: ["weights", "权重"],
  measure_norms: ["weights × ‖value‖", "权重 × ‖值‖"],
  measure_contributions: ["contribution to the logits", "对 logit 的贡献"],
  cell: ["{query} → {key}: {weight} ({head}; query {row}, key {column}; {sum})", "{query} → {key}：{weight}（{head}；查询 {row}，键 {column}；{sum}）"],
  rowSum: ["row sum {sum}", "行和 {sum}"],
  rowHidden: ["hidden special tokens {sum}", "隐藏的特殊词元占 {sum}"],
  codedWeights: ["weights as 8-bit square roots, ± 0.004 or better before they are multiplied", "权重以 8 位平方根编码，相乘之前误差不超过 ± 0.004"],
  coded: ["8-bit square roots, ± 0.004 or better", "8 位平方根编码，误差不超过 ± 0.004"],
  merged: [", whole words (keys added, queries averaged)", "，整词（键相加，查询取平均）"],
  hiddenShare: ["{count} special {count:token|tokens} hidden with {percent} % of the weight", "隐藏了 {count} 个特殊词元，共占权重的 {percent} %"],
  hiddenCount: ["{count} special {count:token|tokens} hidden", "隐藏了 {count} 个特殊词元"],
  ofOneQuery: ["weights of 1 query", "1 个查询的权重"],
  ofLocked: ["sum of {count} locked queries", "{count} 个锁定查询之和"],
  ofSeeing: ["mean over {seeing} {seeing:query|queries} ({blind} more see no key)", "{seeing} 个查询的平均（另有 {blind} 个看不到任何键）"],
  ofAllQueries: ["mean over all queries", "所有查询的平均"],
  givesMeasure: ["“{query}” → “{key}”: {what} {value}.", "“{query}” → “{key}”：{what} {value}。"],
  moreTogether: ["{count} more {sum}", "其余 {count} 个共 {sum}"],
  looksAt: ["{query} looks at {keys} ({aside})", "{query} 看向 {keys}（{aside}）"],
  looksAtNothing: ["{query} looks at nothing: all keys are masked ({aside})", "{query} 什么也看不到：所有键都被掩蔽（{aside}）"],
  listed: [", ", "、"],
  allHeads: ["{count} heads", "{count} 个头"],
  someHeads: ["{shown} of {count} heads", "{count} 个头中的 {shown} 个"],
  queries: ["query", "查询"],
  keys: ["key", "键"],
  patch: ["patch {number} (row {row}, column {column})", "第 {number} 块（第 {row} 行第 {column} 列）"],
  beforePatches: ["[{position}] before the patches", "图块之前的 [{position}]"],

  // --- the lines ---
  linesHelp: ["Point at a token or a line. Up and down choose a query, left and right change sides, Enter locks it, several "
    + "locked queries are added, Esc unlocks. Double-click a head to see it alone.",
  "指向词元、方块或连线。上下键选择查询，左右键切换两侧，Enter 锁定，多个锁定的查询相加，Esc 解锁。双击某个头则只显示它。"],
  sumOf: ["sum of {count}", "{count} 个之和"],
  given: ["weight", "权重"],
  onAverage: ["mean", "平均"],
  linesCell: ["{query} → {key}: {weight} (head {head})", "{query} → {key}：{weight}（头 {head}）"],
  squareOfQuery: ["head {head}: {text} gives {value}", "头 {head}：{text} 给出 {value}"],
  squareOfKey: ["head {head}: {text} gets {value} ({what})", "头 {head}：{text} 得到 {value}（{what}）"],
  keyGets: ["{key} gets: {value} ({what}; mean of {heads})", "{key} 得到：{value}（{what}；{heads}的平均）"],
  strongOfHead: ["{token} {weight} (head {head})", "{token} {weight}（头 {head}）"],
  strong: ["{token} {weight}", "{token} {weight}"],
  fainter: [", and {count} weaker", "，以及 {count} 个更弱的"],
  linesLooks: ["{text} looks most at {list} ({heads})", "{text} 最看重 {list}（{heads}）"],
  linesBlind: ["{text} looks at nothing: all keys are masked", "{text} 什么也看不到：所有键都被掩蔽"],
  linesGets: ["{text} gets: {mean} ({what}; mean of {heads}), most from {list}", "{text} 得到：{mean}（{what}；{heads}的平均），最多来自 {list}"],
  strongestLines: [", the {shown} strongest of {total}", "，{total} 条中最强的 {shown} 条"],
  linesLegend: ["a thicker line is more attention; from {least} on{cut}", "线越粗注意力越多；从 {least} 起{cut}"],
  linesSquares: ["squares: one a head, {squares}", "方块：每个头一个，{squares}"],
  linesFaint: ["grey: the other queries", "灰色：其他查询"],
  squaresFade: ["as opaque as the weight is large", "权重越大越不透明"],
  squaresFilled: ["filled as far as the weight is large", "权重越大填得越满"],
  squaresOfLargest: ["as opaque as the part of the largest", "按占最大值的比例决定不透明度"],
  barsLegend: ["bars: {what}", "条形：{what}"],
  barsMean: [", mean of {heads}", "，{heads}的平均"],

  // --- the words ---
  wordsHelp: ["Arrow keys choose a word, Enter locks it, several locked words are added, Esc unlocks.", "方向键选择词，Enter 锁定，多个锁定的词相加，Esc 解锁。"],
  wordsAsking: ["each of these words looks at the text below", "下面的文字被这些词看"],
  whatOne: ["what “{query}” looks at", "“{query}”看向哪里"],
  whatSeveral: ["what the chosen words look at", "所选的词看向哪里"],
  whatAll: ["what all words look at", "所有的词看向哪里"],
  wordGets: ["{key} gets: {value} ({what}; {head})", "{key} 得到：{value}（{what}；{head}）"],
  written: ["written by the model", "模型写出"],

  // --- the image ---
  imageHelp: ["Left and right go from word to word, down goes to the picture, Enter locks a word, Esc unlocks.", "左右键逐词移动，向下进入图像，Enter 锁定一个词，Esc 解锁。"],
  imageItself: ["the picture", "原图"],
  pixels: [", pixels x {x0}–{x1}, y {y0}–{y1}", "，像素 x {x0}–{x1}，y {y0}–{y1}"],
  patchGets: ["{from} → {patch}{where}: {value} ({head})", "{from} → {patch}{where}：{value}（{head}）"],
  outside: [" · {percent} % on positions before the grid", " · 图块之前的位置占 {percent} %"],
  imageLegend: ["{how} \u00b7 {what}, {head}{scale}{outside}", "{how} \u00b7 {what}，{head}{scale}{outside}"],
  imageVeil: ["brighter: more attention", "越亮注意力越多"],
  imageColours: ["colours over the picture, {percent} % opaque", "图上着色，不透明度 {percent} %"],
  imageSigned: ["colours over the picture, by sign", "图上按正负着色"],

  // --- the sound ---
  soundHelp: ["Up and down choose a query, left and right move in time, Enter locks the query, Esc unlocks; where there is a sound, the space bar "
    + "plays and stops it, and a click in the spectrogram plays from there.",
  "上下键选择查询，左右键在时间上移动，Enter 锁定查询，Esc 解锁；有声音时，空格键播放或停止，点击语谱图从该处播放。"],
  frequency: ["frequency ↑", "频率 ↑"],
  seconds: ["{seconds} s", "{seconds} 秒"],
  soundCurve: ["curve: {what}, part of its largest", "曲线：{what}，占其最大值的比例"],
  playSound: ["Play", "播放"],
  stopSound: ["Stop", "停止"],
  playFrom: ["play from {time}", "从 {time} 播放"],

  // --- the views' names ---
  pattern: ["Pattern", "图样"],
  lines: ["Lines", "连线"],
  words: ["Words", "文字"],
  grid: ["Grid", "网格"],
  walk: ["Walk", "逐步计算"],
  image: ["Image", "图像"],
  sound: ["Sound", "声音"],
  long: ["Overview", "概览"],

  // --- the walk ---
  walk_help: ["Next and Back, or the arrow keys, go from station to station. Click a cell of the map to choose another pair.",
    "用“下一步”“上一步”或方向键逐站前进。点击图中的格子可换一对词元。"],
  walk_region: ["The calculation", "计算过程"],
  walk_stations: ["Stations of the calculation", "计算的各站"],
  walk_query_choice: ["Word that asks", "提问的词元"],
  walk_key_choice: ["Word that is looked at", "被看的词元"],
  walk_head: ["head {head}", "头 {head}"],
  walk_carried: ["This file carries the calculation of {names}.", "此文件带有以下计算：{names}。"],
  walk_next: ["Next", "下一步"],
  walk_back: ["Back", "上一步"],
  walk_place: ["{here} of {all}", "第 {here} 站，共 {all} 站"],
  walk_nothing: ["it has no query or no key", "没有查询或没有键"],
  walk_failed: ["The calculation of this head cannot be shown: {reason}", "无法显示该头的计算过程：{reason}"],
  walk_input: ["Input", "输入"],
  walk_vectors: ["Query, key, value", "查询、键、值"],
  walk_dot: ["Dot product", "点积"],
  walk_score: ["Score", "分数"],
  walk_scale: ["Scale", "缩放"],
  walk_cap: ["Cap", "截断"],
  walk_function: ["Function", "函数"],
  walk_bias: ["Bias", "偏置"],
  walk_mask: ["Mask", "掩码"],
  walk_output: ["Output", "输出"],
  walk_then: ["And then?", "然后呢？"],
  walk_softmax: ["Softmax", "softmax"],
  walk_softmax_with_sink: ["Softmax with a sink", "带汇点的 softmax"],
  walk_entmax: ["Entmax", "entmax"],
  walk_sparsemax: ["Sparsemax", "sparsemax"],
  walk_sigmoid: ["Sigmoid", "sigmoid"],
  walk_hard: ["Hard choice", "硬选择"],
  walk_normalizer: ["Normalizer", "归一化"],
  walk_map_scores: ["Scores of all pairs", "所有词元对的分数"],
  walk_map_scaled: ["Scaled scores of all pairs", "所有词元对缩放后的分数"],
  walk_map_capped: ["Scores after the cap or function", "截断或函数之后的分数"],
  walk_map_biased: ["Scores with the bias", "加偏置后的分数"],
  walk_map_masked: ["Scores after the mask", "掩码之后的分数"],
  walk_map_weights: ["Weights of all pairs", "所有词元对的权重"],
  walk_map_note: ["Click a cell to choose the pair. A row is a word that asks, a column a word that is looked at.",
    "点击格子选择词元对。行是提问的词元，列是被看的词元。"],
  walk_scale_amounts: ["0 to {high}, linear \u00b7 exact numbers (float64)", "从 0 到 {high}，线性 · 精确数字（float64）"],
  walk_scale_signs: ["{low} to {high}, linear, 0 in the middle \u00b7 exact numbers (float64)", "从 {low} 到 {high}，线性，0 居中 · 精确数字（float64）"],
  walk_not_finite: ["not finite", "非有限数"],
  walk_name_scores: ["score", "分数"],
  walk_name_scaled: ["scaled", "缩放后"],
  walk_name_capped: ["capped", "截断后"],
  walk_name_biased: ["with bias", "加偏置后"],
  walk_name_masked: ["after the mask", "掩码后"],
  walk_name_weights: ["weight", "权重"],
  walk_name_truth: ["the model\u2019s weight {value}", "模型的权重 {value}"],
  walk_no_mask: ["none", "无"],
  walk_says_input: ["{query} asks. {key} is one of {count} tokens. How much will {query} take from {key}?",
    "{query} 提问。{key} 是 {count} 个词元之一。{query} 会从 {key} 取多少？"],
  walk_says_itself: ["{query} asks. Here it looks at itself, one of {count} words. How much will it take from it?",
    "{query} 提问，并且在这里看它自己（{count} 个词元之一）。它会从中取多少？"],
  walk_no_input: ["The numbers of the words before this layer are not in this record; the walk begins with what the head made of them.",
    "该记录没有这一层之前的词元数值；计算从该头由它们得到的向量开始。"],
  walk_says_vectors: ["From each word the head makes three lists: {dim} {dim:number|numbers} to ask with (query), {dim} to be found by (key), {value} to hand over (value).",
    "该头由每个词元得到三组数：{dim} 个用来提问（查询），{dim} 个用来被找到（键），{value} 个用来交出（值）。"],
  walk_says_vectors_each: ["From each word the head makes three lists: {query} {query:number|numbers} to ask with (query), {key} to be found by (key), {value} to hand over (value).",
    "该头由每个词元得到三组数：{query} 个用来提问（查询），{key} 个用来被找到（键），{value} 个用来交出（值）。"],
  walk_says_dot: ["Multiply the query of {query} by the key of {key}, number by number, and add: {score}. It is large where both point the same way, and where they are long.",
    "把 {query} 的查询与 {key} 的键逐个数相乘再相加：{score}。两者越相似，结果越大。"],
  walk_says_score: ["This head compares query and key by its score \u201c{name}\u201d: {score}. How it gets there is not in the record.",
    "该头用评分函数“{name}”比较查询与键：{score}。记录中没有其中间过程。"],
  walk_says_root: ["Long lists make large products, so divide by \u221a{dim} = {root}: {before} \u00f7 {root} = {after}.",
    "向量越长点积越大，所以除以 √{dim} = {root}：{before} ÷ {root} = {after}。"],
  walk_says_scale: ["Multiply the score by {scale}: {before} \u00d7 {scale} = {after}.", "把分数乘以 {scale}：{before} × {scale} = {after}。"],
  walk_says_unscaled: ["This head does not scale its scores: {after} stays as it is.", "该头不缩放分数：{after} 保持不变。"],
  walk_says_cap: ["A cap keeps every score between \u2212{cap} and {cap}: {cap} \u00b7 tanh({before} \u00f7 {cap}) = {after}.",
    "截断使每个分数都在 −{cap} 与 {cap} 之间：{cap} · tanh({before} ÷ {cap}) = {after}。"],
  walk_says_function: ["A function of the score and of both positions changes {before} to {after}. It is part of the model, not of the record.",
    "一个由分数和两个位置决定的函数把 {before} 变为 {after}。它属于模型，不在记录中。"],
  walk_says_bias: ["A number that belongs to this pair of positions is added: {before} + {bias} = {after}.",
    "加上属于这对位置的一个数：{before} + {bias} = {after}。"],
  walk_says_visible: ["{query} may look at {key}: its score stays {after}.", "{query} 可以看 {key}：分数仍为 {after}。"],
  walk_says_hidden: ["{query} may not look at {key}: the score becomes \u2212\u221e, so that the weight will be 0.",
    "{query} 不可以看 {key}：分数变为 −∞，因此权重将为 0。"],
  walk_says_unmasked: ["Nothing is hidden here: {query} may look at all {count} tokens.", "这里没有掩蔽任何词元：{query} 可以看全部 {count} 个词元。"],
  walk_hidden_count: ["Of {all} words, {query} may look at {seen}.", "在 {all} 个词元中，{query} 可以看 {seen} 个。"],
  walk_says_softmax: ["exp makes each score positive; divided by their sum, the row adds up to 1. {key} gets {power} \u00f7 {sum} = {weight}, that is {percent}.",
    "exp 使每个分数为正；除以总和后，一行之和为 1。{key} 得到 {power} ÷ {sum} = {weight}，即 {percent}。"],
  walk_says_sink: ["As softmax, with one more term exp(sink) in the sum, so that a word may look at nothing. {key} gets {power} \u00f7 {sum} = {weight}, that is {percent}.",
    "与 softmax 相同，但总和中多一项 exp(汇点)，所以词元可以什么都不看。{key} 得到 {power} ÷ {sum} = {weight}，即 {percent}。"],
  walk_says_sparsemax: ["Subtract the threshold \u03c4 = {threshold}; what is below it gets exactly 0, the rest adds up to 1. {key} gets {weight}, that is {percent}.",
    "减去阈值 τ = {threshold}；低于它的恰好为 0，其余之和为 1。{key} 得到 {weight}，即 {percent}。"],
  walk_says_entmax: ["[(\u03b1 \u2212 1) \u00b7 score \u2212 \u03c4]^(1/(\u03b1 \u2212 1)) with \u03b1 = {alpha}, \u03c4 = {threshold}; what is below \u03c4 gets exactly 0, the rest adds up to 1. {key} gets {weight}, that is {percent}.",
    "[(α − 1) · 分数 − τ]^(1/(α − 1))，其中 α = {alpha}，τ = {threshold}；低于 τ 的恰好为 0，其余之和为 1。{key} 得到 {weight}，即 {percent}。"],
  walk_says_sigmoid: ["Each score becomes a weight by itself, 1 \u00f7 (1 + exp(\u2212score)): {key} gets {weight}, that is {percent}. The row need not add up to 1; here it is {sum}.",
    "每个分数各自变成权重：1 ÷ (1 + exp(−分数))。{key} 得到 {weight}，即 {percent}。一行之和不必为 1，这里是 {sum}。"],
  walk_says_normalizer: ["The model\u2019s normalizer \u201c{name}\u201d makes weights of the row\u2019s scores: {key} gets {weight}, that is {percent}. The record has its result alone.",
    "模型的归一化“{name}”把一行分数变成权重：{key} 得到 {weight}，即 {percent}。记录中只有其结果。"],
  walk_says_none: ["No word is visible to {query}: all weights are 0.", "{query} 看不到任何词元：所有权重为 0。"],
  walk_maximum: ["Before exp, the row\u2019s largest score {most} is subtracted from each, so that no number overflows; the weights stay the same.",
    "取 exp 之前，每个分数先减去该行最大的分数 {most}，以免数值溢出；权重不变。"],
  walk_divided: ["The scores are divided by the temperature {temperature} first.", "分数先除以温度 {temperature}。"],
  walk_says_output: ["Multiply each word\u2019s value by its weight and add: the output for {query} is {parts}.",
    "把每个词元的值乘以其权重再相加：{query} 的输出是 {parts}。"],
  walk_part: ["{percent} of {key}", "{key} 的 {percent}"],
  walk_parts_both: ["{first} and {second}", "{first}和{second}"],
  walk_parts_rest: ["{parts}, and {percent} of the others", "{parts}，以及其余词元的 {percent}"],
  walk_open_hint: ["Click a number of the output to see the sum it came from.", "点击输出中的数字，查看它由哪些项相加而得。"],
  walk_says_then: ["The output, {dim} {dim:number|numbers}, is all that {query} takes along from this head. Every word has such an output.",
    "这 {dim} 个数就是 {query} 从该头得到的全部。每个词元都有这样的输出。"],
  walk_then_heads: ["The {heads} heads of this layer work side by side. Their outputs stand next to each other ({heads} \u00d7 {dim} = {all} numbers), and one more matrix mixes them.",
    "这一层的 {heads} 个头并行工作。它们的输出并排放在一起（{heads} × {dim} = {all} 个数），再由一个矩阵混合。"],
  walk_then_one: ["Where a layer has several heads, their outputs stand next to each other, and one more matrix mixes them.",
    "一层若有多个头，它们的输出并排放在一起，再由一个矩阵混合。"],
  walk_then_next: ["In a Transformer the result is added to the layer\u2019s input, goes through a small network of its own, and is the input of the next layer.",
    "在 Transformer 中，结果与该层的输入相加，再经过一个小的前馈网络，成为下一层的输入。"],
  walk_then_go: ["Go to layer {layer}", "转到第 {layer} 层"],
  walk_of: ["{name} of {word}", "{word} 的{name}"],
  walk_query: ["query", "查询"],
  walk_key: ["key", "键"],
  walk_value: ["value", "值"],
  walk_numbers: ["{count} {count:number|numbers}", "{count} 个数"],
  walk_more: ["{count} more", "其余 {count} 个"],
  walk_show_all: ["Show all {count}", "显示全部 {count} 个"],
  walk_show_fewer: ["Show fewer", "收起"],
  walk_sum: ["sum", "和"],
  walk_sum_all: ["sum of all {count}", "全部 {count} 项之和"],
  walk_dim: ["dim", "维"],
  walk_product: ["product", "乘积"],
  walk_word: ["word", "词元"],
  walk_exp: ["exp", "exp"],
  walk_weight: ["weight", "权重"],
  walk_sink: ["sink", "汇点"],
  walk_above: ["score \u2212 \u03c4", "分数 − τ"],
  walk_above_entmax: ["(\u03b1\u22121)s \u2212 \u03c4", "(α−1)s − τ"],
  walk_input_term: ["input", "输入"],
  walk_matrix_term: ["W", "W"],
  walk_open_cell: ["{name} {dimension}: {value}. Show its sum", "{name} {dimension}：{value}。显示其求和"],
  walk_sum_of: ["{name} {dimension} = {value}, the sum of:", "{name} {dimension} = {value}，由以下各项相加："],
  walk_close: ["Close the sum", "收起求和"],
  walk_what_if: ["What if?", "如果……？"],
  walk_try: ["What if? Change the calculation", "如果……会怎样？改变计算"],
  walk_temperature: ["Temperature", "温度"],
  walk_temperature_note: ["scores \u00f7 {value}", "分数 ÷ {value}"],
  walk_scale_choice: ["Scale of the score", "分数的缩放"],
  walk_scale_note: ["scores \u00d7 {value}", "分数 × {value}"],
  walk_alpha: ["Alpha", "alpha"],
  walk_alpha_note: ["1 softmax \u2026 2 sparsemax", "1 softmax……2 sparsemax"],
  walk_own: ["the model: {value}", "模型：{value}"],
  walk_own_choice: ["{name} (as the model)", "{name}（与模型相同）"],
  walk_mask_model: ["the model\u2019s", "模型自己的"],
  walk_mask_nothing: ["none", "无"],
  walk_mask_causal: ["causal: no later word", "因果掩码：不看后面的词元"],
  walk_restore: ["As the model does it", "恢复为模型的做法"],
  walk_is_model: ["This is what the model does.", "这就是模型的做法。"],
  walk_is_trial: ["This is your experiment; the outlines show what the model does.", "这是你的实验；轮廓线表示模型的结果。"],
  walk_no_temperature: ["Temperature cannot change here: the record does not say how \u201c{name}\u201d works. Choose another normalizer.",
    "此处不能改变温度：记录没有说明“{name}”如何计算。请选择其他归一化。"],
  walk_no_scale: ["The scale cannot change here: a function that is not in the record follows it.", "此处不能改变缩放：其后有一个记录中没有的函数。"],
  walk_no_causal: ["A causal mask needs as many queries as keys.", "因果掩码要求查询与键一样多。"],
  walk_row_title: ["Where {query} looks", "{query} 看向哪里"],
  walk_column: ["{key}: {percent}", "{key}：{percent}"],
  walk_column_truth: ["{key}: {percent}; the model: {truth}", "{key}：{percent}；模型：{truth}"],
  walk_row_more: ["The {shown} largest of {all} words, in their order.", "{all} 个词元中权重最大的 {shown} 个，按原有顺序。"],
  walk_print: ["The pair {query} \u2192 {key}", "词元对 {query} → {key}"],
  walk_experiment: ["Not the model\u2019s own: {changes}", "并非模型自己的设置：{changes}"],
  walk_step_mixes: ["\u00d7 values", "× 值"],
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
  does_one_key: ["one {unit} for all", "共同的一个{unit}"],
  does_one_key_of: ["all look at {key}", "都看 {key}"],
  does_even: ["nearly even over all", "近乎均匀"],
  does_even_brief: ["even", "均匀"],
  names_here: ["a name: at least {excess} % of the weight beyond an equal share ({sink} % for the first token), far more than chance", "命名标准：超出均分的权重至少 {excess} %（首个词元为 {sink} %），远高于偶然"],
  names_survey: ["names: {share} % or more of the weight over the surveyed texts", "命名标准：在所统计的文本中至少占权重的 {share} %"],
  // --- what a record is ---
  kind_self: ["encoder", "编码器"],
  kind_causal: ["decoder, causal", "解码器，因果"],
  kind_cross: ["decoder \u2192 {target}", "解码器 \u2192 {target}"],
  kind_queries: ["queries \u2192 {target}", "查询 \u2192 {target}"],
  kind_source: ["source", "源序列"],
  kind_image: ["image", "图像"],
  kind_sound: ["sound", "声音"],
  // --- the grid ---
  order: ["Order", "排序"],
  order_layer: ["by layer", "按层"],
  order_does: ["by what they do", "按作用"],
  order_entropy: ["by entropy", "按熵"],
  order_loss: ["by change of the loss", "按损失变化"],
  range: ["Colours", "颜色"],
  range_each: ["each map its own", "每幅图各自"],
  range_one: ["one scale for all", "全部同一标度"],
  grid_sentence: ["{heads} heads read the same text, each in its own way: a small map for each. Click one to open it.", "{heads} 个头各以自己的方式读同一段文本：每个头一幅小图。点击即可打开。"],
  grid_reading: ["A dark left edge: all look at the first token. A diagonal: each looks at itself or a neighbour. A dark column: all look at one token.", "左缘深色：都看首个词元。斜线：各看自身或相邻词元。深色竖列：都看同一个词元。"],
  grid_part: ["part of each map\u2019s own largest weight", "占每幅图最大权重的比例"],
  grid_help: ["Arrow keys choose a head, Enter opens it.", "方向键选择头，回车键打开。"],
  grid_head: ["layer {layer}, head {head}", "第 {layer} 层第 {head} 头"],
  grid_group: ["{what} \u00b7 {count} {count:head|heads}", "{what} \u00b7 {count} 个头"],
  grid_no_pattern: ["no clear pattern, the sharpest first", "无明显模式，最集中的在前"],
  grid_by_entropy: ["the sharpest first; entropy as a part of even attention's", "最集中的在前；熵相对于均匀注意力"],
  grid_by_loss: ["those that the loss depends on most first", "对损失影响最大的在前"],
  grid_unknown: ["not known", "未知"],
  grid_entropy: ["entropy {percent}\u00a0%", "熵 {percent}\u00a0%"],
  grid_loss: ["loss {change}", "损失 {change}"],
  grid_loss_long: ["without it the loss changes by {change}", "去掉它时损失变化 {change}"],
  grid_point: ["1 point = {down} \u00d7 {across}", "1 点 = {down} \u00d7 {across}"],
  grid_chance: ["(even attention: {percent}\u00a0%)", "（均匀注意力：{percent}\u00a0%）"],
  grid_none_clear: ["no clear pattern", "无明显模式"],
  grid_none_found: ["no finding of the whole map names it", "整图的发现未给出名称"],
  grid_surveyed: ["over the surveyed texts: {what}", "在所统计的文本中：{what}"],
  grid_blind: ["no query sees a key", "没有查询能看到键"],
  grid_largest: ["largest weight {weight}, {query} \u2192 {key}", "最大权重 {weight}，{query} \u2192 {key}"],
  grid_entropy_alone: ["mean entropy {entropy} nats, over {queries} {queries:query|queries}", "平均熵 {entropy} 纳特，共 {queries} 个查询"],
  grid_entropy_long: ["mean entropy {entropy} nats, {percent}\u00a0% of even attention, over {queries} {queries:query|queries}",
    "平均熵 {entropy} 纳特，为均匀注意力的 {percent}\u00a0%，共 {queries} 个查询"],
  grid_single: ["a point is one weight", "一个点是一个权重"],
  grid_reduced: ["a point is the largest of about {down} \u00d7 {across} pairs", "一个点是约 {down} \u00d7 {across} 对中的最大值"],
  grid_reduced_most: ["a point is the largest of up to {down} \u00d7 {across} pairs", "一个点是至多 {down} \u00d7 {across} 对中的最大值"],
  grid_own_scale: ["each map has its own scale; one scale for all is a choice above", "每幅图有各自的标度；上方可选统一标度"],
  grid_one_scale: ["one scale for all maps, up to {largest}", "所有图同一标度，最大 {largest}"],
  grid_folded: ["images are clear where the queries look, on average", "图像清晰处是查询平均所看之处"],
  grid_axes: ["queries downwards, keys to the right", "查询向下，键向右"],
  // --- the overview of long maps ---
  long_help: ["Arrow keys move, + and \u2212 zoom at the cell, 0 shows the whole map, Enter zooms to exact weights, Esc goes back.",
    "方向键移动，+ 和 \u2212 在当前单元格处缩放，0 显示整图，回车键放大到精确权重，Esc 返回。"],
  long_single: ["a point is one weight", "一个点是一个权重"],
  long_joined: ["a point is the largest of {block} \u00d7 {block} pairs", "一个点是 {block} \u00d7 {block} 对中的最大值"],
  long_joined_means: ["a point is the largest of {block} \u00d7 {block} means of about {down} \u00d7 {across} pairs",
    "一个点是 {block} \u00d7 {block} 个平均值中的最大值，每个约含 {down} \u00d7 {across} 对"],
  long_mean: ["a point is the mean of about {down} \u00d7 {across} pairs", "一个点是约 {down} \u00d7 {across} 对的平均值"],
  long_largest: ["a point is the largest of about {down} \u00d7 {across} pairs", "一个点是约 {down} \u00d7 {across} 对中的最大值"],
  long_hidden: [", hidden pairs as 0", "，被掩蔽的对按 0 计"],
  long_wrong_tile: ["a tile of another size", "图块大小不符"],
  found_sink: ["head {head}: everybody looks at {key} (key {number}), {share} on average", "头 {head}：都看 {key}（键 {number}），平均 {share}"],
  found_own: ["head {head}: each looks at itself, {share} on average", "头 {head}：各看自身，平均 {share}"],
  found_previous: ["head {head}: each looks at the one before, {share} on average", "头 {head}：各看前一个，平均 {share}"],
  found_next: ["head {head}: each looks at the next one, {share} on average", "头 {head}：各看后一个，平均 {share}"],
  found_back: ["head {head}: each looks {distance} places back, {share} on average", "头 {head}：各看往前第 {distance} 个，平均 {share}"],
  found_ahead: ["head {head}: each looks {distance} places ahead, {share} on average", "头 {head}：各看往后第 {distance} 个，平均 {share}"],
  found_spike: ["head {head}: {query} (query {row}) gives {weight} to {key} (key {column})", "头 {head}：{query}（查询 {row}）把 {weight} 给了 {key}（键 {column}）"],
  long_findings: ["What stands out, at most {most} of a kind: click one to go there", "突出之处，每类至多 {most} 项：点击即可前往"],
  long_findings_part: ["What stands out (the first {shown} of {count}), at most {most} of a kind: click one to go there",
    "突出之处（{count} 项中的前 {shown} 项），每类至多 {most} 项：点击即可前往"],
  long_axes: ["query \u2193  key \u2192", "查询 \u2193  键 \u2192"],
  long_received: ["received", "所得权重"],
  long_pair: ["query {row} {query} \u2192 key {column} {key}", "查询 {row} {query} \u2192 键 {column} {key}"],
  long_exact: ["{pair}: {weight} (exact; {heads})", "{pair}：{weight}（精确；{heads}）"],
  long_pooled: ["queries {rows} \u2192 keys {columns}: {pooling} {weight} ({heads}; around {query} \u2192 {key}; {why})",
    "查询 {rows} \u2192 键 {columns}：{pooling} {weight}（{heads}；在 {query} \u2192 {key} 附近；{why}）"],
  long_failed: ["the exact tile could not be had: {why}", "无法取得精确图块：{why}"],
  long_closer: ["exact at a closer zoom", "放大后显示精确值"],
  long_not_carried: ["no exact tile is carried here", "此处未附带精确图块"],
  long_fetched: ["exact tiles are fetched on zoom", "放大时获取精确图块"],
  long_carried: ["{count} exact tiles carried, of {side} \u00d7 {side}", "附带 {count} 个精确图块，每个 {side} \u00d7 {side}"],
  long_no_tiles: ["no exact tiles carried", "未附带精确图块"],
  long_per_row: [" (part of the row's largest)", "（相对于该行最大值）"],
  long_zero: ["zero", "零"],
  long_zero_hidden: ["zero or hidden", "零或被掩蔽"],
  long_framed: ["framed: single weights", "带框处为单个权重"],
  long_keys: ["{count} keys", "{count} 个键"],

  // --- names of records and of what a point of a large map is ---
  record_label: ["layer {layer} \u00b7 {kind}", "第 {layer} 层\u00b7{kind}"],
  pooling_maximum: ["largest", "最大值"],
  pooling_mean: ["mean", "平均值"],
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
  pageAnswer_Output: ["Output", "输出"],
  pageAnswer_Translation: ["Translation", "译文"],
  pageAnswer_Summary: ["Summary", "摘要"],
  pageAnswer_Caption: ["Caption", "图像描述"],
  pageAnswer_Transcription: ["Transcription", "转写"],
  pageAnswer_Continuation: ["Continuation", "续写"],
  "pageAnswer_Next token": ["Next token", "下一个词元"],
  "pageAnswer_Filled in": ["Filled in", "填空"],
  pageAnswer_Label: ["Label", "标签"],
  pageAnswer_Labels: ["Labels", "标签"],
  pageAnswer_Classes: ["Classes", "类别"],
  pageAnswer_Score: ["Score", "分数"],
  pageNoServer: ["The server does not answer. Is the command still running?", "服务器没有响应。命令还在运行吗？"],
  pageStatus: ["the server answered {status}", "服务器返回 {status}"],
  pageNoStart: ["The page could not begin: {message}", "页面无法启动：{message}"],

  // --- scales ---

  // --- characters that are not seen ---
  char_space: ["space", "空格"],
  char_tab: ["tab", "制表符"],
  char_newline: ["newline", "换行符"],
  char_carriage_return: ["carriage return", "回车符"],
  char_no_break_space: ["no-break space", "不间断空格"],
  char_soft_hyphen: ["soft hyphen", "软连字符"],
  char_zero_width_space: ["zero-width space", "零宽空格"],
  char_zero_width_non_joiner: ["zero-width non-joiner", "零宽不连字符"],
  char_zero_width_joiner: ["zero-width joiner", "零宽连字符"],
  char_left_to_right_mark: ["left-to-right mark", "从左至右标记"],
  char_right_to_left_mark: ["right-to-left mark", "从右至左标记"],
  char_ideographic_space: ["ideographic space", "全角空格"],
  char_byte_order_mark: ["byte order mark", "字节顺序标记"],
  emptyToken: ["empty token", "空词元"],
  noTokens: ["No tokens are left to show.", "没有可显示的词元。"],
};

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

// normalizers.js

/** What turns a row of scores into weights: its weights, and what they came from. A hidden key has the score −∞ and the weight 0. */

/** How the normalizers that the walk computes are called in a record. */
const NORMALIZERS = ["softmax", "softmax_with_sink", "entmax", "sparsemax", "sigmoid"];

const HALVINGS = 60;

const total = (numbers) => numbers.reduce((sum, one) => sum + one, 0);

const isHidden = (score) => score === -Infinity;

/** The largest score; −∞ if all are hidden, NaN if one is NaN. */
const largestScore = (scores) => scores.reduce((most, score) => (Number.isNaN(score) || score > most ? score : most), -Infinity);

/**
 * exp(score) divided by the sum of all, and of exp(sink) where there is a sink.
 * @param {Float64Array} scores
 * @param {number|null} [sink] the score of a key without a value
 */
function softmaxOf(scores, sink = null) {
  const most = largestScore(sink === null ? scores : Float64Array.of(...scores, sink));
  const powers = scores.map((score) => (isHidden(score) ? 0 : Math.exp(score - most)));
  const sinkPower = sink === null ? 0 : Math.exp(sink - most);
  const sum = total(powers) + sinkPower;
  return { weights: powers.map((power, key) => (isHidden(scores[key]) ? 0 : power / sum)), most, powers, sinkPower, sum };
}

/** The row of a normalizer that cuts: all keys are hidden, or one is not finite. */
function cutOf(scores, weights, threshold) {
  const broken = scores.some((score) => Number.isNaN(score) || score === Infinity);
  const empty = scores.every(isHidden);
  const kept = scores.map((score, key) => (isHidden(score) ? 0 : broken ? NaN : weights(key)));
  return { weights: kept, threshold: empty ? null : broken ? NaN : threshold };
}

/** (score − τ)₊ with sum 1, τ by sorting (Martins and Astudillo 2016, algorithm 1). */
function sparsemaxOf(scores) {
  const most = largestScore(scores);
  const ordered = scores.map((score) => score - most).sort((a, b) => b - a);
  let [sum, threshold] = [0, -1];
  for (let rank = 1; rank <= ordered.length && ordered[rank - 1] !== -Infinity; rank += 1) {
    sum += ordered[rank - 1];
    if (rank * ordered[rank - 1] > sum - 1) threshold = (sum - 1) / rank;
  }
  return cutOf(scores, (key) => Math.max(0, scores[key] - most - threshold), threshold + most);
}

/**
 * [(α − 1) score − τ]₊^(1 / (α − 1)) with sum 1, τ by halving its bracket (Peters, Niculae and Martins 2019, eq. 10).
 * @param {Float64Array} scores
 * @param {number} alpha above 1
 */
function entmaxOf(scores, alpha) {
  const most = largestScore(scores);
  const shifted = scores.map((score) => (alpha - 1) * (score - most));
  const power = 1 / (alpha - 1);
  const weightsAt = (threshold) => shifted.map((score) => Math.max(0, score - threshold) ** power);
  let [low, high] = [-1, 0];
  for (let halving = 0; halving < HALVINGS; halving += 1) {
    const middle = (low + high) / 2;
    if (total(weightsAt(middle)) >= 1) low = middle;
    else high = middle;
  }
  const weights = weightsAt(low);
  const sum = total(weights);
  return cutOf(scores, (key) => weights[key] / sum, low + (alpha - 1) * most);
}

/** 1 / (1 + exp(−(score + bias))), each key by itself. */
function sigmoidOf(scores, bias) {
  return { weights: scores.map((score) => (isHidden(score) ? 0 : 1 / (1 + Math.exp(-(score + bias))))) };
}

/**
 * The weights of a row.
 * @param {string} name one of `NORMALIZERS`
 * @param {Float64Array} scores −∞ where a key is hidden
 * @param {{alpha?: number, sink?: number, bias?: number}} parameters entmax with alpha 1 is softmax
 * @returns {{weights: Float64Array, most?: number, powers?: Float64Array, sinkPower?: number, sum?: number, threshold?: number|null}}
 */
function normalized(name, scores, parameters = {}) {
  if (name === "softmax_with_sink") return softmaxOf(scores, parameters.sink);
  if (name === "sparsemax" || (name === "entmax" && parameters.alpha === 2)) return sparsemaxOf(scores);
  if (name === "entmax" && parameters.alpha !== 1) return entmaxOf(scores, parameters.alpha);
  if (name === "sigmoid") return sigmoidOf(scores, parameters.bias ?? 0);
  return softmaxOf(scores);
}

// flight.js

const LENGTH = 280; // milliseconds

const MOST = 24;

/** Lets the numbers of the stations before, the nearest first, fly to where they stand in another; off where motion is unwanted. */
function fly(before, to) {
  if (globalThis.matchMedia("(prefers-reduced-motion: reduce)").matches) return;
  const sources = new Map(before.flatMap((one) => [...one.querySelectorAll("[data-out]")]).map((one) => [one.dataset.out, one]));
  for (const target of [...to.querySelectorAll("[data-in]")].slice(0, MOST)) {
    const source = sources.get(target.dataset.in);
    if (!source) continue;
    const [start, end] = [source.getBoundingClientRect(), target.getBoundingClientRect()];
    if (!start.width || !end.width) continue;
    const moved = `translate(${start.left - end.left}px, ${start.top - end.top}px)`;
    target.animate([{ transform: moved, opacity: 0.4 }, { transform: "none", opacity: 1 }], { duration: LENGTH, easing: "ease-out" });
  }
}

// former_names.js

/** What views were called in earlier versions; both names are taken. */
const FORMER = { alignment: "pattern", heads: "lines", model: "grid", steps: "walk", text: "words" };

/**
 * The name of a view that may have a former name; any other value stays.
 * @param {any} name
 * @returns {any}
 */
const presentName = (name) => (typeof name === "string" && Object.hasOwn(FORMER, name) ? FORMER[name] : name);

// walk_style.js

/** The look of the walk, beside the map of all pairs; in a narrow pane above it. */
const WALK_STYLE = `
.beside { position: absolute; inset: 0 0 0 auto; width: calc(100% - var(--map)); overflow: auto; border-left: 1px solid var(--border); }
.beside::after { content: ""; display: block; position: sticky; bottom: 0; height: 16px; background: linear-gradient(transparent, var(--background)); pointer-events: none; }
.beside[hidden] { display: none; }
.viewer { --map: 0px; }
.walking { --map: clamp(240px, 26%, 340px); }
.walking .scroll { inset: 0 auto 0 0; width: var(--map); }
.walk { padding: 12px 16px 0; font-size: 13px; }
.walk h3 { margin: 0 0 4px; font-size: 13px; font-weight: 650; }
.walk p { margin: 0; }
.walk .note { color: var(--muted); font-size: 12px; }
.walk-head { display: flex; flex-wrap: wrap; gap: 8px 16px; align-items: center; justify-content: space-between; margin-bottom: 8px; }
.walk-pair, .steps-buttons { display: inline-flex; gap: 8px; align-items: center; min-width: 0; }
.walk-pair select { font-weight: 650; max-width: min(14em, 36vw); }
select.query, .token.query { border: 1px solid var(--asks); box-shadow: inset 0 -3px var(--asks); }
select.key, .token.key { border: 1px solid var(--answers); box-shadow: inset 0 -3px var(--answers); }
button.primary { background: var(--text); color: var(--background); border-color: var(--text); padding: 3px 16px; }
.walk button:disabled { opacity: .5; cursor: default; }
.strip, .stations { list-style: none; margin: 0; padding: 0; }
.strip { display: flex; gap: 4px; flex-wrap: wrap; margin-bottom: 12px; }
.strip li { display: inline-flex; align-items: center; gap: 4px; }
.strip button { display: flex; flex-direction: column; align-items: flex-start; padding: 3px 8px; text-align: left; }
.strip button span { font-size: 12px; color: var(--muted); }
.strip button[aria-current] { border-color: var(--text); box-shadow: inset 0 -3px var(--text); }
.operation { color: var(--muted); font-size: 12px; white-space: nowrap; }
.strip .operation::after { content: "\\2192"; margin-left: 3px; }
.try { display: grid; grid-template-columns: minmax(250px, 340px) minmax(0, 1fr); gap: 8px 24px; padding: 12px; margin-top: 8px; border: 1px solid var(--border);
  border-radius: 6px; background: var(--surface); }
.settings { display: grid; gap: 4px; align-content: start; }
.settings label { display: grid; grid-template-columns: 8.5em minmax(0, 1fr); gap: 4px 8px; color: var(--text); }
.settings label[hidden] { display: none; }
.settings output { grid-column: 2; font-size: 12px; color: var(--muted); }
.settings select { width: 100%; max-width: none; }
.track { position: relative; display: block; }
.track input { width: 100%; margin: 0; accent-color: var(--accent); }
.own { position: absolute; bottom: -3px; width: 2px; height: 8px; margin-left: -1px; background: var(--text); }
.restore { display: flex; flex-wrap: wrap; gap: 4px 8px; align-items: center; }
.walk-row { min-width: 0; }
.columns { display: flex; gap: 2px; align-items: stretch; height: 190px; }
.columns .column { flex: 1 1 0; min-width: 0; max-width: 64px; display: flex; flex-direction: column; align-items: center; border: 0; background: none; padding: 0; gap: 2px; }
.columns small { font-size: 11px; color: var(--muted); overflow: visible; white-space: nowrap; }
.bar-room { position: relative; flex: 1 1 auto; width: 100%; max-width: 40px; border-bottom: 1px solid var(--border); }
.bar-room i { position: absolute; left: 0; right: 0; bottom: 0; }
.amount { background: var(--muted); }
.column[aria-pressed="true"] .amount { background: var(--answers); }
.column[aria-pressed="true"] .name { font-weight: 650; }
.ghost { border: 2px dashed var(--text); border-bottom: 0; }
.columns .name { writing-mode: vertical-rl; height: 72px; overflow: hidden; white-space: nowrap; font-size: 12px; }
.stations { display: block; columns: 300px; column-gap: 16px; padding: 2px; }
.station { display: flex; flex-direction: column; gap: 2px; break-inside: avoid; padding: 1px 1px 6px; }
.station article { padding: 12px; border: 1px solid var(--border); border-radius: 6px; background: var(--background); }
.station.here article { border-color: var(--text); box-shadow: 0 0 0 1px var(--text); }
.station > .operation { align-self: center; min-height: 18px; }
.station > .operation::after { content: "\\2193"; margin-left: 4px; }
.says { font-size: 13px; line-height: 1.45; margin-bottom: 8px !important; }
.station article > * + * { margin-top: 8px; }
.tokens { display: flex; gap: 8px; align-items: center; flex-wrap: wrap; }
.token { padding: 3px 10px 5px; border-radius: 6px; font-size: 16px; overflow-wrap: anywhere; }
.formula { display: flex; flex-wrap: wrap; gap: 4px 6px; align-items: center; font-variant-numeric: tabular-nums; }
.formula b { padding: 2px 6px; border: 1px solid var(--border); border-radius: 4px; }
.list-name { font-size: 12px; padding-left: 6px; margin-bottom: 3px !important; }
.list.query .list-name { box-shadow: inset 3px 0 var(--asks); }
.list.key .list-name { box-shadow: inset 3px 0 var(--answers); }
.numbers { display: flex; flex-wrap: wrap; gap: 1px; }
.numbers .cell { width: max(35px, 5.4ch); padding: 4px 0; min-height: 0; border: 0; border-radius: 0; font-size: 11px; line-height: 14px; text-align: center; font-variant-numeric: tabular-nums; }
.numbers button.cell:hover, .numbers .cell[aria-expanded="true"] { outline: 2px solid var(--text); outline-offset: -2px; }
.fold { border: 0; background: none; padding: 2px 4px; min-height: 22px; font-size: 12px; color: var(--text); text-decoration: underline; }
.opened { margin-top: 6px; padding-left: 8px; border-left: 3px solid var(--text); }
.sum { overflow-x: auto; }
.walk table { border-collapse: collapse; width: 100%; font-size: 12px; font-variant-numeric: tabular-nums; }
.walk th, .walk td { padding: 1px 4px; text-align: right; font-weight: 400; }
.walk th[scope="row"], .walk thead th:first-child { text-align: left; max-width: 9em; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.walk thead th { color: var(--muted); border-bottom: 1px solid var(--border); }
.walk tfoot th, .walk tfoot td { border-top: 1px solid var(--text); font-weight: 650; }
.walk tr.muted > * { color: var(--muted); }
.walk tr.rest > * { color: var(--muted); }
.walk tr.chosen > * { font-weight: 650; background: var(--surface); }
.walk tr.chosen > th { box-shadow: inset 3px 0 var(--answers); padding-left: 8px; }
.walk { container-type: inline-size; }
@container (max-width: 680px) { .try { grid-template-columns: minmax(0, 1fr); } }
.walking.slim { height: auto; min-height: 100%; overflow: visible; }
.walking.slim .stage { display: flex; flex-direction: column; }
.walking.slim .beside { position: static; order: 1; width: auto; overflow: visible; border: 0; }
.walking.slim .scroll { position: relative; order: 2; inset: auto; width: auto; height: 400px; border-top: 1px solid var(--border); }
.slim .columns { height: 170px; }
@media (max-width: 400px) { .columns small { font-size: 9px; } .numbers .cell { width: max(31px, 5.4ch); font-size: 10px; } }
@media (forced-colors: active) {
  .walk .cell, .bar-room i { forced-color-adjust: none; }
  .amount { background: CanvasText; }
  .ghost { border-color: Highlight; }
  .strip button[aria-current], .station.here article { border-color: Highlight; }
}
`;

// opening.js

/** The view that fits the first record best. */
function firstView(app) {
  const record = app.records[0];
  const ofWords = record?.queries.length === 1 && record.keys.length > 1 ? "words" : "pattern";
  const best = !record ? "walk" : record.large ? "long" : { grid: "image", frames: "sound" }[record.keys.kind] ?? ofWords;
  return app.views.find((one) => one.name === best && one.available(app)) ?? app.views.find((one) => one.available(app));
}

// patches.js

/** The largest patch of a label, in pixels. */
const LARGEST = 40;

/**
 * The size at which a position of a grid is shown by its own pixels.
 * @param {any} axis an Axis
 * @param {number[]} group first position, and the one after the last
 * @param {number} height the room
 * @returns {{width: number, height: number} | null} null where there is no picture, or no room for it
 */
function patchSize(axis, [position], height) {
  if (axis.kind !== "grid" || !axis.picture || height < 10) return null;
  const pixels = axis.pixels(position);
  if (!pixels) return null;
  const high = Math.min(height, LARGEST);
  return { width: Math.min(2 * high, Math.max(high / 2, (high * (pixels[2] - pixels[0])) / (pixels[3] - pixels[1]))), height: high };
}

/** The pixels of a position of a grid. */
function drawPatch(pen, axis, position, x, y, { width, height }, theme) {
  pen.picture(axis.picture, x, y, width, height, { smooth: true, cut: pictureCut(axis, position) });
  pen.rect(x, y, width, height, { stroke: theme.border });
}

/** A position's part of the picture, which may have fewer pixels than the image had: x, y, width, height. */
function pictureCut(axis, position) {
  const [x0, y0, x1, y1] = axis.pixels(position);
  const [width, height] = axis.entry.size;
  const [across, down] = [axis.picture.width / width, axis.picture.height / height];
  return [x0 * across, y0 * down, (x1 - x0) * across, (y1 - y0) * down];
}

// player.js

/** The lowest rate that browsers play, in samples a second. */
const LOWEST_RATE = 3000;

/** A sound at a rate that browsers play: between the samples of a slower one are others on straight lines. */
function playable({ samples, rate }) {
  const factor = Math.ceil(LOWEST_RATE / rate);
  if (!(factor > 1)) return { samples, rate };
  const more = Float32Array.from({ length: samples.length * factor }, (_, place) => {
    const [before, part] = [Math.floor(place / factor), (place % factor) / factor];
    return samples[before] * (1 - part) + (samples[before + 1] ?? samples[before]) * part;
  });
  return { samples: more, rate: rate * factor };
}

/** Plays the sound of an axis by Web Audio, which needs no network: the samples come with the payload. */
class Player {
  /** @param {() => void} changed called when it starts and ends */
  constructor(changed) {
    this.changed = changed;
    this.axis = null;
    this.source = null;
    this.offset = 0; // seconds of the sound at which it was started
    this.begun = 0; // the clock of the context at that time
    this.context = null;
  }

  get playing() {
    return this.source !== null;
  }

  /** Whether the sound of an axis is being played. */
  plays(axis) {
    return this.playing && this.axis === axis;
  }

  /** The place in the sound, in seconds; null while nothing plays. */
  get time() {
    if (!this.source || !this.context) return null;
    return Math.min(this.offset + this.context.currentTime - this.begun, this.axis.soundSeconds);
  }

  /** Plays from a time on. */
  start(axis, seconds = 0) {
    this.stop();
    const { samples, rate } = playable(axis.sound);
    this.context ??= new AudioContext();
    this.context.resume();
    const buffer = this.context.createBuffer(1, samples.length, rate);
    buffer.copyToChannel(Float32Array.from(samples, (sample) => sample / 32768), 0);
    const source = this.context.createBufferSource();
    source.buffer = buffer;
    source.connect(this.context.destination);
    source.onended = () => { if (this.source === source) this.stop(); };
    Object.assign(this, { axis, source, offset: seconds, begun: this.context.currentTime });
    source.start(0, seconds);
    this.changed();
  }

  stop() {
    const { source } = this;
    this.source = null;
    if (!source) return;
    source.stop();
    this.changed();
  }

  /** Gives up the audio device. */
  destroy() {
    this.stop();
    this.context?.close();
  }
}

// selection.js

/** Changes of the rows and heads that are chosen. */
class Selection {
  constructor(app) {
    this.app = app;
  }

  toggleRow(row) {
    if (row === null || row === undefined) return;
    const { locked } = this.app.state;
    this.app.set({ locked: locked.includes(row) ? locked.filter((one) => one !== row) : [...locked, row] });
  }

  toggleHead(head) {
    const shown = this.app.shownHeads();
    const next = shown.includes(head) ? shown.filter((one) => one !== head) : [...shown, head].sort((a, b) => a - b);
    this.app.set({ heads: next });
  }

  /** The next head, in the next layer behind the last one; -1: the one before. */
  nextHead(step) {
    const { app } = this;
    const { state, record } = app;
    const head = (state.head ?? (step > 0 ? -1 : 0)) + step;
    if (head >= 0 && head < record.heads) { app.set({ head }); return; }
    const shown = app.records.filter((one) => app.fits(one));
    const next = shown[(shown.indexOf(record) + step + shown.length) % shown.length];
    app.set({ record: next.number, head: step > 0 ? 0 : next.heads - 1, locked: next.queries === record.queries ? state.locked : [] });
  }

  /** Gives up what is locked; where nothing is, shows all rows together, or again the one that the sentence speaks of. */
  unlock() {
    const { locked, kept, overall } = this.app.state;
    const shown = this.app.view.ofTables ? !locked.length && !kept && !overall : overall;
    this.app.set({ locked: [], kept: null, overall: shown });
  }
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

  /** Elements that it shows beside the canvas, or null; `update` brings them up to date after each picture. */
  beside(_app) {
    return /** @type {HTMLElement|null} */ (null);
  }

  update(_app) {}

  /** What is said while nothing is pointed at; null: what is locked. */
  said(_app) {
    return /** @type {string|null} */ (null);
  }

  /** What is exported, where that is more than the canvas shows: {width, height, draw(pen)}; null: what is seen. */
  sheet(_app) {
    return /** @type {{width: number, height: number, draw: (pen: any) => void}|null} */ (null);
  }

  /** Makes the state fit the view. */
  settle(_app) {}

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
  const state = checkedState(found);
  for (const name of PASSING) delete state[name];
  return state;
}

// head_statistics.js

/** The largest distance whose share is taken, as of `regard.survey`. */
const OFFSETS = 4;

/** Keys at most so far from the query's own place are near it. */
const NEAR = 2;

/** What a head may do; the shares are those of `regard.watching.STATISTICS`, and two more. */
const PATTERNS = [
  "first", "special", "same_token", "induction",
  ...Array.from({ length: 2 * OFFSETS + 1 }, (_, number) => offsetName(number - OFFSETS)), "same_word", "near", "one_key",
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
  const byKey = new Float64Array(keys);
  const chanceByKey = new Float64Array(keys);
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
    for (let key = 0; key < keys; key += 1) {
      if (seen && !seen[base + key]) continue;
      byKey[key] += (weights[base + key] || 0) / sum;
      chanceByKey[key] += 1 / visible;
    }
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
  patterns.one_key = mostReceived(byKey, chanceByKey, counted, related);
  return { queries: counted, entropy: entropies / counted, relativeEntropy: relative / several, patterns };
}

/** The key with the most weight besides the first and special ones: its mean share, as other patterns have it, and its position. */
function mostReceived(byKey, chanceByKey, queries, { specialKeys, grid }) {
  let best = -1;
  for (let key = grid ? 0 : 1; key < byKey.length; key += 1) {
    if (!specialKeys[key] && !(byKey[key] <= byKey[best])) best = key;
  }
  const chance = chanceByKey[best] / queries;
  return { share: byKey[best] / queries, chance, spread: Math.sqrt((chance * (1 - chance)) / queries), queries: best < 0 ? 0 : queries, key: best };
}

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

// calculation.js

/** @import { StepsData } from "./steps_data.js" */


/** A head's calculation, as the model does it or with another temperature, scale, mask or normalizer. */
class Calculation {
  /**
   * @param {StepsData} steps
   * @param {{temperature?: number, scale?: number, mask?: string, normalizer?: string, alpha?: number}|null} trial what differs
   */
  constructor(steps, trial) {
    const { entry } = steps;
    this.steps = steps;
    this.parameters = entry.parameters ?? {};
    this.model = { temperature: this.parameters.temperature ?? 1, scale: steps.scale, mask: "model", normalizer: entry.normalizer,
      alpha: this.parameters.alpha ?? 1.5 };
    this.used = { ...this.model, ...trial };
    if (!this.knows()) this.used.normalizer = this.model.normalizer;
    if (!["model", "none", ...(this.isSquare ? ["causal"] : [])].includes(this.used.mask)) this.used.mask = "model";
    this.isChanged = Object.keys(this.model).some((name) => this.differs(name));
    this.cache = new Map();
    this.maps = new Map();
  }

  differs(name) {
    const counts = name !== "alpha" || this.used.normalizer === "entmax";
    return counts && this.used[name] !== this.model[name];
  }

  /** Whether the weights of a normalizer can be computed. */
  knows(normalizer = this.used.normalizer) {
    return NORMALIZERS.includes(normalizer);
  }

  /** Whether the scores after another scale can be computed: a function of the score is not in the record. */
  get scales() {
    return Number.isFinite(this.model.scale) && (!this.steps.has("capped") || Number.isFinite(this.steps.entry.cap ?? NaN));
  }

  get isSquare() {
    return this.steps.rows === this.steps.columns;
  }

  /** All steps of a query's row. */
  row(query) {
    if (!this.cache.has(query)) this.cache.set(query, this.compute(query));
    return this.cache.get(query);
  }

  compute(query) {
    const { steps, used, model } = this;
    const given = (name, before) => (steps.has(name) ? steps.rowOf(name, query) : before);
    const scores = steps.rowOf("scores", query);
    const own = { scaled: given("scaled", scores) };
    own.capped = given("capped", own.scaled);
    own.biased = given("biased", own.capped);
    own.masked = given("masked", own.biased);
    const rescaled = this.differs("scale");
    const scaled = rescaled ? scores.map((score) => score * used.scale) : own.scaled;
    const { cap } = steps.entry;
    const capped = !rescaled ? own.capped : steps.has("capped") ? scaled.map((score) => cap * Math.tanh(score / cap)) : scaled;
    const biased = !rescaled ? own.biased : capped.map((score, key) => (own.biased[key] === -Infinity ? -Infinity
      : steps.has("biased") ? score + (own.biased[key] - own.capped[key]) : score));
    const hides = { model: (key) => own.masked[key] === -Infinity, none: () => false, causal: (key) => key > query }[used.mask];
    const masked = biased.map((score, key) => (hides(key) ? -Infinity : score));
    const tempered = used.temperature === 1 ? masked : masked.map((score) => score / used.temperature);
    const truth = steps.rowOf("weights", query);
    const parameters = { ...this.parameters, alpha: used.alpha };
    const made = this.knows() ? normalized(used.normalizer, tempered, parameters) : { weights: truth };
    const weights = this.isChanged ? made.weights : truth;
    return { scores, scaled, capped, biased, masked, tempered, made, weights, truth, isModel: used.normalizer === model.normalizer };
  }

  /** weight × value of a key in one dimension of the output; a hidden key adds nothing, whatever its value is. */
  product(query, key, dimension) {
    const weight = this.row(query).weights[key];
    return weight === 0 ? 0 : weight * this.steps.at("value", key, dimension);
  }

  /** The output of a query. */
  output(query) {
    const { steps } = this;
    if (!this.isChanged) return steps.rowOf("output", query);
    return Float64Array.from({ length: steps.columnsOf("value") }, (_, dimension) => {
      let sum = 0;
      for (let key = 0; key < steps.columns; key += 1) sum += this.product(query, key, dimension);
      return sum;
    });
  }

  /** The numbers of all pairs at a step. */
  map(name) {
    if (!this.maps.has(name)) {
      const { rows, columns } = this.steps;
      const numbers = new Float64Array(rows * columns);
      for (let query = 0; query < rows; query += 1) numbers.set(this.row(query)[name], query * columns);
      this.maps.set(name, numbers);
    }
    return this.maps.get(name);
  }
}

// journal.js

/** Milliseconds between two changes of the address: browsers refuse more than 100 in 30 seconds. */
const ADDRESS_PAUSE = 320;

/** Who hears of what is shown: the history, the page's address, and listeners. */
class Journal {
  constructor(app) {
    this.app = app;
    this.history = new History();
    this.listeners = new Set();
    this.told = /** @type {string|undefined} */ (undefined); // what the listeners know
    this.timer = /** @type {any} */ (0); // of the address that is to be written
    this.written = -ADDRESS_PAUSE;
  }

  undo() {
    const before = this.history.undo();
    if (before) this.app.apply(before);
  }

  redo() {
    const after = this.history.redo();
    if (after) this.app.apply(after);
  }

  /** Calls a listener with the state and with what is pointed at (or null) after each change; gives what ends that. */
  onChange(listener) {
    this.listeners.add(listener);
    return () => { this.listeners.delete(listener); };
  }

  telling() {
    return JSON.stringify([this.app.state, this.app.pointed()]);
  }

  /** Shows a state from elsewhere without telling the listeners. */
  applyQuietly(given) {
    this.app.apply(given);
    this.told = this.telling();
  }

  /** After a picture: the state goes into the history and the address, and the listeners hear of it. */
  note() {
    const { state, options } = this.app;
    if (this.history.note(state) && options.address) this.addressSoon();
    const telling = this.telling();
    const first = this.told === undefined;
    if (telling === this.told) return;
    this.told = telling;
    if (first) return;
    for (const listener of this.listeners) listener(structuredClone(state), structuredClone(this.app.pointed()));
  }

  /** Writes the address now, or as soon as the browser takes another one. */
  addressSoon() {
    if (this.timer) return;
    const left = this.written + ADDRESS_PAUSE - performance.now();
    if (left <= 0) this.writeAddress();
    else this.timer = setTimeout(() => this.writeAddress(), left);
  }

  writeAddress() {
    clearTimeout(this.timer);
    this.timer = 0;
    this.written = performance.now();
    try {
      globalThis.history.replaceState(globalThis.history.state, "", `#${addressOf(this.app.state)}`);
    } catch {
      this.app.options = { ...this.app.options, address: false }; // a page without an address of its own
    }
  }

  destroy() {
    clearTimeout(this.timer);
    this.listeners.clear();
  }
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
    const shown = value.toFixed(digits);
    return `${/^-.*[1-9]/.test(shown) ? "\u2212" : ""}${shown.replace("-", "")} \u00b1 ${bound.toFixed(digits)}`;
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

/** A weight in a cell: two decimals, no zero before the point; "" for one that rounds to 0. `cell_number` of Python has the same. */
function cellText(value) {
  const size = Math.abs(value);
  const text = size < 1.005 ? size.toFixed(2).replace("1.00", "1").replace("0.", ".") : legendNumber(size);
  return /[1-9]/.test(text) ? (value < 0 ? "\u2212" : "") + text : "";
}

/** A weight in a sentence: two decimals, one digit of small ones. */
function shortWeight(value) {
  if (!Number.isFinite(value)) return formatNumber(value);
  const size = Math.abs(value);
  if (size === 0) return "0";
  const sign = value < 0 ? "\u2212" : "";
  if (size < 0.0001) return sign ? ">\u200a\u22120.0001" : "<\u200a0.0001";
  return sign + (size >= 0.01 ? size.toFixed(2) : String(Number(size.toPrecision(1))));
}

const clamp = (value, low, high) => Math.min(high, Math.max(low, value));

const short = (value) => String(Math.round(value * 100) / 100);

/** A grid of tick positions in seconds that do not crowd. */
function secondsStep(seconds, width) {
  const most = Math.max(2, Math.floor(width / 64));
  const rough = seconds / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= rough);
}

/**
 * Three digits, since a colour that is seen differs by more, and all of a whole number; `short_number` of Python has the same.
 * @param {number} value
 */
function legendNumber(value) {
  if (Number.isNaN(value)) return "NaN";
  const size = Math.abs(value);
  const sign = value < 0 ? "\u2212" : "";
  if (size === Infinity) return `${sign}\u221e`;
  if (size === 0) return "0";
  if (size >= 999.5 && size < 1e9) return sign + Math.round(size).toLocaleString("en-US");
  const short3 = Number(size.toPrecision(3));
  return sign + (size < 1e-4 || size >= 1e9 ? short3.toExponential().replace("e-", "e\u2212").replace("e+", "e") : String(short3));
}

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

/** A part as percent, in whole numbers. */
function percent(part) {
  const text = part > 0 && part < 0.005 ? "<\u00a01" : String(Math.round(100 * part));
  return language() === "zh" ? `${text}%` : `${text}\u00a0%`;
}

// scales.js

/** Decades that the logarithmic scale shows below the largest weight. */
const DECADES = 4;

const SCALES = {
  linear: { shade: (part) => part },
  root: { shade: (part) => Math.sqrt(part) },
  log: { shade: (part) => (part > 0 ? Math.max(0, 1 + Math.log10(part) / DECADES) : 0) },
  row: { shade: (part) => part },
};

/** A scale in words. */
const scaleText = (scale) => say(/** @type {"scale_linear"} */ (`scale_${scale}`), { decades: DECADES });

/** How many even shares the last colour of a scale is at least, so that weights that are nearly even look even. */
const EVEN_SHARES = 4;

/**
 * The weight of a scale's last colour: a round number, so that most heads have the same.
 * @param {number} largest of the weights that are shown
 * @param {number} keys that a query shares its weight among
 */
function scaleEnd(largest, keys) {
  const least = Math.max(largest, Math.min(1, EVEN_SHARES / Math.max(1, keys)));
  const power = 10 ** Math.floor(Math.log10(least || 1));
  const step = [1, 2, 5, 10].find((one) => one * power >= least * (1 - 1e-6)) ?? 10;
  return Math.max(largest, Number((step * power).toPrecision(6)));
}

/** The weight of a shade from 0 to 1: the inverse of the scale, relative to the largest weight. */
function scaleInverse(scale, shade) {
  if (scale === "root") return shade * shade;
  if (scale === "log") return shade <= 0 ? 0 : 10 ** ((shade - 1) * DECADES);
  return shade;
}

/** The scale of a view that has no rows to scale each by itself. */
const withoutRows = (scale) => (scale === "row" ? "linear" : scale);

// steps_data.js

/** The steps of a calculation that have a number for each pair, in their order. */
const PAIR_STEPS = ["scores", "scaled", "capped", "biased", "masked", "weights"];

/** The largest weight of a pair that is a good example: beyond it the other words have no part. */
const CLEAR = 0.9;

/** Whether a label is a mark of the model, such as [CLS] or <s>, or a piece of a word. */
const isMark = (label) => /^(\[.*\]|<.*>|##.*)$/u.test(label) || !/[\p{L}\p{N}]/u.test(label);

/** One worked calculation: of the payload, or one that is fetched when it is needed. */
class StepsData {
  /**
   * @param {any} entry an entry of the payload's `steps`; null: it is fetched
   * @param {{record: number, head: number, name: string, ask: () => Promise<any>}|null} [source] where it comes from
   */
  constructor(entry, source = null) {
    this.source = source;
    this.ready = null;
    this.decoded = false;
    this.error = null; // why there are no numbers
    this.take(entry ?? { name: source?.name ?? "", record: source?.record, head: source?.head, queries: [], keys: [], matrices: {} });
  }

  take(entry) {
    this.entry = entry;
    this.rows = entry.queries.length;
    this.columns = entry.keys.length;
    this.names = Object.keys(entry.matrices);
    this.matrices = {};
  }

  /** Whether it is the calculation of a head of a record of the payload. */
  belongsTo(record, head) {
    const { entry, source } = this;
    return (source ? source.record : entry.record ?? null) === record && (source ? source.head : entry.head) === head;
  }

  decode() {
    this.ready ??= this.decodeAll();
    return this.ready;
  }

  async decodeAll() {
    if (this.source) {
      try {
        this.take(await this.source.ask());
      } catch (error) {
        this.error = String(/** @type {any} */ (error)?.message ?? error);
      }
    }
    for (const name of this.names) this.matrices[name] = await decodeNumbers(this.entry.matrices[name]);
    if (this.error === null && !(this.rows && this.columns)) this.error = say("walk_nothing");
    this.scale = this.entry.scale ?? this.findScale();
    this.pair = this.findPair();
    this.decoded = true;
  }

  /** What the scores were multiplied by, read off the largest of them, where the record does not say it. */
  findScale() {
    const { scores, scaled } = this.matrices;
    if (!scaled) return 1;
    let best = 0;
    for (let cell = 1; cell < scores.length; cell += 1) {
      if (Number.isFinite(scores[cell]) && Number.isFinite(scaled[cell]) && !(Math.abs(scores[cell]) <= Math.abs(scores[best]))) best = cell;
    }
    return scaled[best] / scores[best];
  }

  /** The pair that is shown first: the largest weight, which is not almost 1, between two different words. */
  findPair() {
    const { queries, keys } = this.entry;
    let [best, most] = [{ row: 0, column: 0 }, -Infinity];
    for (let row = 0; row < this.rows; row += 1) {
      for (let column = 0; column < this.columns; column += 1) {
        const weight = this.at("weights", row, column);
        const value = (weight <= CLEAR ? weight : 2 * CLEAR - weight) - (isMark(queries[row]) ? 4 : 0) - (isMark(keys[column]) ? 4 : 0)
          - (queries[row] === keys[column] ? 2 : 0);
        if (value > most) { most = value; best = { row, column }; }
      }
    }
    return best;
  }

  columnsOf(name) {
    return this.entry.matrices[name].shape[1];
  }

  has(name) {
    return this.names.includes(name);
  }

  /** Whether the mask hides a pair. */
  hides(row, column) {
    return this.has("masked") && this.at("masked", row, column) === -Infinity;
  }

  at(name, row, column) {
    return this.matrices[name][row * this.columnsOf(name) + column];
  }

  /** One row of a matrix. */
  rowOf(name, row) {
    const columns = this.columnsOf(name);
    return this.matrices[name].slice(row * columns, (row + 1) * columns);
  }
}

// text.js

const LONGEST_LABEL = 28;

const segmenter = typeof Intl !== "undefined" && Intl.Segmenter ? new Intl.Segmenter() : null;

/** What stands for characters that have no shape of their own; `visible` of regard.pictures.fonts has the same. */
const MARKS = { " ": "\u2423", "\t": "\u21e5", "\n": "\u21b5", "\u007f": "\u2421" };

/** The names of characters in the table of words. @type {Record<string, any>} */
const CHARACTER_NAMES = { " ": "char_space", "\t": "char_tab", "\n": "char_newline", "\r": "char_carriage_return", "\u00a0": "char_no_break_space",
  "\u00ad": "char_soft_hyphen", "\u200b": "char_zero_width_space", "\u200c": "char_zero_width_non_joiner", "\u200d": "char_zero_width_joiner",
  "\u200e": "char_left_to_right_mark", "\u200f": "char_right_to_left_mark", "\u3000": "char_ideographic_space", "\ufeff": "char_byte_order_mark" };

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
    .map((character) => (CHARACTER_NAMES[character] && say(CHARACTER_NAMES[character])) ?? `U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`);
  const counts = new Map();
  for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1);
  const texts = [...counts].map(([name, count]) => (count > 1 ? `${count} \u00d7 ${name}` : name));
  if (text === "") return ` (${say("emptyToken")})`;
  return texts.length ? ` (${texts.slice(0, 4).join(", ")}${texts.length > 4 ? ", \u2026" : ""})` : "";
}

/** Most labels that are kept. */
const MOST_LABELS = 20000;

const labels = new Map();

/** A token as a short label: visible, and cut after a number of characters as a reader counts them. */
function shortText(text, limit = LONGEST_LABEL) {
  const key = `${limit} ${text}`;
  let label = labels.get(key);
  if (label === undefined) {
    if (labels.size >= MOST_LABELS) labels.clear();
    label = cutText(text, limit);
    labels.set(key, label);
  }
  return label;
}

function cutText(text, limit) {
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

/** The colours of signed numbers on a theme, zero in the middle. */
const signsOf = (theme) => SIGNS[theme.scheme];

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

/** White paper under a black veil that is thinner for more. */
const veilColor = (shade) => rgb(Array(3).fill(Math.round(255 * (1 - 0.82 * (1 - clamp(shade, 0, 1))))));

// zoom.js

/** The largest cell in pixels, of a map and of a long one, and the longest side of a map. */
const [MOST_CELL, MOST_LONG_CELL, MOST_SIDE] = [72, 40, 1.6e7];

/** The size of a cell to which a finding or a place of a long map is enlarged. */
const CLOSE = 16;

/** How large the map of the view is shown. */
class Zoom {
  constructor(app) {
    this.app = app;
  }

  /** The size of a cell, or what stands for one. */
  get cell() {
    const { cell, width } = this.app.view.geometry(this.app);
    return cell ?? width;
  }

  /** Enlarges by a factor; a point of the window, or its middle, stays where it is. */
  by(factor, anchor = null) {
    const { app } = this;
    if (!app.ready || !app.view.zooms) return;
    const { area, frame: { scroller } } = app;
    const before = app.view.geometry(app);
    const at = anchor ?? { x: area.width / 2, y: area.height / 2 };
    const cell = this.cell;
    const [column, row] = [(scroller.scrollLeft + at.x - before.left) / cell, (scroller.scrollTop + at.y - before.top) / cell];
    this.apply(app.state.zoom * factor);
    const after = app.view.geometry(app);
    const next = this.cell;
    scroller.scrollTo(after.left + column * next - at.x, after.top + row * next - at.y);
    app.changed();
  }

  apply(zoom) {
    const { app } = this;
    app.state.zoom = 1;
    const { whole } = app.view.geometry(app);
    const cell = this.cell;
    const longest = Math.max(app.record.queries.length, app.record.keys.length);
    const most = Math.max(1, Math.min(app.view.name === "long" ? MOST_LONG_CELL : MOST_CELL, MOST_SIDE / longest) / cell);
    app.state.zoom = clamp(zoom, Math.min(1, (whole ?? cell) / cell), most);
    app.resize();
  }

  /** Shows a place closely, in the middle, with the focus on it. */
  to(item) {
    const { app } = this;
    app.state.zoom = 1;
    this.apply(CLOSE / this.cell);
    app.cursor = item;
    const { area, frame } = app;
    const box = app.view.place(app, item);
    frame.scroller.scrollTo(box.x - (area.width + (box.frozenLeft ?? 0)) / 2, box.y - (area.height + (box.frozenTop ?? 0)) / 2);
    frame.canvas.focus({ preventScroll: true });
    app.keyboard = true;
    app.changed();
  }

  /** Shows a finding of a long map closely. */
  toFinding({ head, row, column }) {
    this.app.set({ head });
    this.to({ row, column });
  }

  /** Shows the whole map. */
  fit() {
    const { app } = this;
    app.state.zoom = 1;
    const { whole } = app.view.geometry(app);
    this.apply(whole ? Math.min(1, whole / this.cell) : 1);
    app.frame.scroller.scrollTo(0, 0);
    app.changed();
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
    this.sound = null; // {samples, rate}, once decoded; null where the payload has none
  }

  /** The text of a position. */
  text(position) {
    const { entry } = this;
    if (this.kind === "tokens") return entry.tokens[position];
    if (this.kind === "frames") {
      return `${(position * entry.seconds).toFixed(2)}\u2013${((position + 1) * entry.seconds).toFixed(2)} s`;
    }
    const cell = position - entry.leading;
    if (cell < 0) return say("beforePatches", { position });
    return say("patch", { number: cell, row: Math.floor(cell / entry.columns), column: cell % entry.columns });
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
    if (this.entry.sound) this.sound = await decodeSound(this.entry.sound);
  }

  /** The duration of the sound, in seconds, as far as the positions reach. */
  get soundSeconds() {
    return this.sound ? Math.min(this.sound.samples.length / this.sound.rate, this.length * this.entry.seconds) : 0;
  }
}

// head_labels.js

/** The least part of the weight that uniform attention leaves to other keys, which a named pattern takes on top. */
const LEAST_EXCESS = 0.3;

/** The same of patterns that are in most heads of a trained model: the sinks. */
const LEAST_SINK = 0.5;

const SINKS = new Set(["first", "special", "one_key"]);

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
const LABEL_ORDER = ["offset -1", "offset +1", "offset 0",
  ...[-2, -3, -4, 2, 3, 4].map(offsetName), "near", "same_word", "same_token", "induction", "one_key", "first", "special", "even", ""];

const labelled = new WeakMap();

/**
 * What a head does, the clearest first: {name, share, chance, queries}; [] where nothing is above the noise level.
 * Of a record that is not carried whole it follows from its findings, which are exact; [] says nothing about such heads.
 * @returns {{name: string, share: number, chance: number|null, queries: number|null, key?: number}[]} key: of "one_key"
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
  return queries >= LEAST_QUERIES && chance < 1 && share - chance >= least * (1 - chance) && share - chance >= LEAST_SPREADS * spread;
}

function labelsOf({ patterns, relativeEntropy, queries }) {
  const clear = PATTERNS.filter((name) => isClear(name, patterns[name])).map((name) => ({ name, ...patterns[name] }));
  const kept = clear.filter((one) => !clear.some((other) => other !== one && covers(one, other)));
  kept.sort((a, b) => b.share - a.share);
  if (!kept.length && relativeEntropy >= EVEN && queries >= LEAST_QUERIES) return [{ name: "even", share: relativeEntropy, chance: 1, queries }];
  return kept.map(({ name, share, chance, queries: count, key }) => ({ name, share, chance, queries: count, key }));
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
    ...findings.sinks.filter((one) => one.head === head)
      .map((one) => ({ name: one.key === 0 ? "first" : record.keys.special.has(one.key) ? "special" : "one_key", share: one.share, key: one.key })),
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
  if (label.name === "one_key") {
    const text = record.keys.text(label.key);
    return `${brief ? `\u2068${shortText(text, 8)}\u2069` : say("does_one_key_of", { key: quoted(text) })} ${Math.round(100 * label.share)}\u00a0%`;
  }
  return `${patternText(label.name, record, brief)} ${Math.round(100 * label.share)}\u00a0%`;
}

/** When a head gets a name, in words. */
function noiseText(surveyed) {
  return surveyed ? say("names_survey", { share: Math.round(100 * SURVEY_SHARE) })
    : say("names_here", { excess: Math.round(100 * LEAST_EXCESS), sink: Math.round(100 * LEAST_SINK), spreads: LEAST_SPREADS });
}

// lettering.js

const FONT = "system-ui, -apple-system, 'Segoe UI', 'Noto Sans', 'DejaVu Sans', sans-serif, "
  + "'Apple Color Emoji', 'Segoe UI Emoji', 'Noto Color Emoji', 'Noto Emoji'";

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

const ELLIPSIS = "\u2026";

const clustersOf = (text) => (segmenter ? Array.from(segmenter.segment(text), (part) => part.segment) : Array.from(text));

/** The most of a text, as `cut(count)` gives it with so many of its letters, that is no wider than `width`; "" for none. */
function longest(count, cut, width, style) {
  let [low, high] = [0, count];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (textWidth(cut(middle), style) <= width) low = middle;
    else high = middle - 1;
  }
  return low ? cut(low) : "";
}

/** A text cut to a width. */
function fitText(text, width, style = {}) {
  if (textWidth(text, style) <= width) return text;
  const parts = clustersOf(text);
  return longest(parts.length, (count) => parts.slice(0, count).join("") + ELLIPSIS, width, style);
}

/** A text cut to a width in its middle: names of layers differ at their ends. */
function fitMiddle(text, width, style = {}) {
  if (textWidth(text, style) <= width) return text;
  const parts = clustersOf(text);
  const cut = (count) => parts.slice(0, Math.floor(count / 2)).join("") + ELLIPSIS + parts.slice(parts.length - Math.ceil(count / 2)).join("");
  return longest(parts.length, cut, width, style);
}

const RIGHT_TO_LEFT = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\u{10800}-\u{10fff}\u{1e800}-\u{1eeff}]/u;

/** The direction of a text: that of its first letter that is not in an isolate, as Unicode's algorithm has it (UAX 9, P2). */
function directionOf(text) {
  if (!RIGHT_TO_LEFT.test(text)) return "ltr";
  const letter = text.replace(/\u2068[^\u2069]*\u2069/g, "").match(/\p{L}/u);
  return letter && RIGHT_TO_LEFT.test(letter[0]) ? "rtl" : "ltr";
}

/** Most texts whose lines are kept. */
const MOST_WRAPPED = 1000;

const wrapped = new Map();

/** The lines of a text that are no wider than a width, but for single words. */
function wrapText(text, width, style = {}) {
  const key = `${fontOf(style)}|${width}|${text}`;
  let lines = wrapped.get(key);
  if (!lines) {
    if (wrapped.size >= MOST_WRAPPED) wrapped.clear();
    lines = linesOfText(text, width, style);
    wrapped.set(key, lines);
  }
  return lines;
}

function linesOfText(text, width, style) {
  const lines = [""];
  for (const word of text.split(" ")) {
    const longer = lines.at(-1) ? `${lines.at(-1)} ${word}` : word;
    if (lines.at(-1) && textWidth(longer, style) > width) lines.push(word);
    else lines[lines.length - 1] = longer;
  }
  return lines;
}

// record_names.js

/**
 * What a record is, in plain words: "encoder", "decoder, causal", "decoder → source".
 * @param {{kind: string, keys: {kind: string}, others: {kind: string}[]}} record kind as in the payload; others: all records of the document
 */
function kindText({ kind, keys, others }) {
  if (kind === "self") return say("kind_self");
  if (kind === "causal") return say("kind_causal");
  const target = say(keys.kind === "grid" ? "kind_image" : keys.kind === "frames" ? "kind_sound" : "kind_source");
  return say(others.some((one) => one.kind === "causal") ? "kind_cross" : "kind_queries", { target });
}

/** Whether records differ by more than their layer. */
const differInKind = (records) => new Set(records.map((record) => record.entry.kind)).size > 1;

/** The short name of a record among others: its layer, its kind where there are several, its own name where those are alike. */
function recordName(record, records) {
  const layer = say("layerNumber", { layer: record.entry.layer });
  const parts = differInKind(records) ? [layer, kindText(record)] : [layer];
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

// stations.js

/** @import { Calculation } from "./calculation.js" */


/** How many lines of a table are shown before the others are asked for. */
const FEW_DIMENSIONS = 6;

const FEW_KEYS = 7;

const TIMES = "\u00d7";

/** A weight in percent. */
function percentText(weight) {
  if (Number.isNaN(weight)) return "NaN";
  const percent = 100 * weight;
  if (percent === 0) return "0\u00a0%";
  if (percent < 0.1) return "< 0.1\u00a0%";
  return `${percent < 10 || (percent >= 99.5 && percent < 100) ? percent.toFixed(1) : Math.round(percent)}\u00a0%`;
}

const sumOf = (numbers) => numbers.reduce((sum, one) => sum + one, 0);

/** A number in a formula: a negative one behind a sign stands in brackets. */
const inFormula = (value) => (value < 0 ? `(${formatNumber(value)})` : formatNumber(value));

/** A number without zeros at its end. */
const plainNumber = (value) => String(Number(value.toPrecision(4))).replace("-", "\u2212").replace("e\u2212", "e\u2212");

/** The name of a normalizer for readers. */
function normalizerName(name) {
  const key = /** @type {any} */ (`walk_${name}`);
  return ["softmax", "softmax_with_sink", "entmax", "sparsemax", "sigmoid", "hard"].includes(name) ? say(key) : shortText(name, 30);
}

/**
 * A table that can be opened.
 * @typedef {{head: string[], adds: boolean[], rows: {label: string, numbers: (number|null)[], muted?: boolean, chosen?: boolean,
 *   side?: string}[], few: number[], foot: {label: string, numbers: (number|null)[]}}} Sum
 *   `adds`: which columns have a meaning when they are added; `few`: the rows that are shown first
 *
 * A part of a station: a line of text, a formula, a list of numbers as cells, a table, the two words, or the way to the next layer.
 * `moves` says which number comes from the station before ("in"), and which goes on ("out").
 * @typedef {{kind: "line", text: string, isHint?: boolean} | {kind: "sum", name: string, sum: Sum}
 *   | {kind: "formula", terms: {text: string, moves?: "in"|"out"}[]}
 *   | {kind: "cells", name: string, label: string, side: string, values: Float64Array, largest?: number, open: ((dimension: number) => Sum)|null}
 *   | {kind: "tokens"} | {kind: "layer", layer: number, record: number}} Part
 *
 * A station of the walk.
 * @typedef {{id: string, title: string, sentence: string, operation: string|null, figure: string, parts: Part[]}} Station
 *   `operation`: what leads to the next station; `figure`: its one number
 */

/** A number that comes in, what happens to it, and the number that goes on. */
const formula = (before, operation, after) => /** @type {Part} */ ({ kind: "formula", terms: [{ text: before, moves: "in" }, { text: operation },
  { text: "=" }, { text: after, moves: "out" }] });

/** The stations of one pair, from the input to the output. */
class Stations {
  /**
   * @param {Calculation} calculation
   * @param {{row: number, column: number}} pair
   * @param {{heads: number|null, next: {layer: number, record: number}|null}} around what is known of the model around the head
   */
  constructor(calculation, pair, around) {
    this.calculation = calculation;
    this.steps = calculation.steps;
    this.entry = calculation.steps.entry;
    this.pair = pair;
    this.around = around;
    this.row = calculation.row(pair.row);
    this.query = quoted(this.entry.queries[pair.row]);
    this.key = quoted(this.entry.keys[pair.column]);
    this.count = this.steps.columns;
  }

  /** @returns {Station[]} */
  all() {
    return [this.input(), this.vectors(), this.score(), ...this.changes(), this.mask(), this.weights(), this.output(), this.then()];
  }

  input() {
    const same = this.pair.row === this.pair.column && this.query === this.key;
    /** @type {Part[]} */
    const parts = [{ kind: "tokens" }];
    for (const [name, side, row] of /** @type {[string, string, number][]} */ ([["query_input", "query", this.pair.row], ["key_input", "key", this.pair.column]])) {
      if (!this.steps.has(name)) continue;
      const word = side === "query" ? this.query : this.key;
      parts.push({ kind: "cells", name, side, label: say("walk_of", { name: say("walk_input"), word }), values: this.steps.rowOf(name, row), open: null });
    }
    if (parts.length === 1) parts.push({ kind: "line", text: say("walk_no_input") });
    return { id: "input", title: say("walk_input"), figure: `${shortText(this.entry.queries[this.pair.row], 10)} \u2192 ${shortText(this.entry.keys[this.pair.column], 10)}`,
      sentence: say(same ? "walk_says_itself" : "walk_says_input", { query: this.query, key: this.key, count: this.count }),
      operation: this.steps.has("w_query") ? "\u00b7 W" : "", parts };
  }

  vectors() {
    const dims = { query: this.steps.columnsOf("query"), key: this.steps.columnsOf("key"), value: this.steps.columnsOf("value") };
    const list = (name, side, row) => ({ kind: /** @type {const} */ ("cells"), name, side,
      label: say("walk_of", { name: say(/** @type {any} */ (`walk_${name}`)), word: side === "query" ? this.query : this.key }),
      values: this.steps.rowOf(name, row), open: this.projection(name, row) });
    return { id: "vectors", title: say("walk_vectors"), figure: `3 ${TIMES} ${dims.query}`,
      sentence: dims.query === dims.key ? say("walk_says_vectors", { dim: dims.query, value: dims.value }) : say("walk_says_vectors_each", dims),
      operation: this.entry.score === "dot" ? "\u00b7" : "",
      parts: [list("query", "query", this.pair.row), list("key", "key", this.pair.column), list("value", "key", this.pair.column)] };
  }

  /** The sum that makes a number of a query, key or value from the input, where the record has input and weights. */
  projection(name, row) {
    const input = `${name}_input`;
    if (!this.steps.has(`w_${name}`) || !this.steps.has(input)) return null;
    return (dimension) => {
      const values = this.steps.rowOf(input, row);
      const rows = Array.from(values, (value, place) => {
        const factor = this.steps.at(`w_${name}`, place, dimension);
        return { label: String(place), numbers: [value, factor, value * factor] };
      });
      return { head: [say("walk_dim"), say("walk_input_term"), say("walk_matrix_term"), say("walk_product")], adds: [false, false, true], rows,
        few: rows.map((_, place) => place).slice(0, FEW_DIMENSIONS), foot: { label: say("walk_sum"), numbers: [null, null, this.steps.at(name, row, dimension)] } };
    };
  }

  score() {
    const { row, column } = this.pair;
    const score = this.row.scores[column];
    const common = { id: "score", figure: formatNumber(score), operation: this.scaleOperation() };
    if (this.entry.score !== "dot") {
      return { ...common, title: say("walk_score"), parts: [],
        sentence: say("walk_says_score", { name: shortText(this.entry.score, 30), score: formatNumber(score) }) };
    }
    const [query, key] = [this.steps.rowOf("query", row), this.steps.rowOf("key", column)];
    const rows = Array.from(query, (value, dimension) => ({ label: String(dimension), numbers: [value, key[dimension], value * key[dimension]] }));
    /** @type {Sum} */
    const sum = { head: [say("walk_dim"), say("walk_query"), say("walk_key"), say("walk_product")], adds: [false, false, true], rows,
      few: rows.map((_, place) => place).slice(0, FEW_DIMENSIONS), foot: { label: say("walk_sum"), numbers: [null, null, score] } };
    return { ...common, title: say("walk_dot"), sentence: say("walk_says_dot", { query: this.query, key: this.key, score: formatNumber(score) }),
      parts: [{ kind: /** @type {const} */ ("sum"), name: "products", sum }] };
  }

  get usesRoot() {
    const dim = this.steps.columnsOf("query");
    return this.entry.score === "dot" && Math.abs(this.calculation.used.scale * Math.sqrt(dim) - 1) < 1e-6;
  }

  scaleOperation() {
    const { scale } = this.calculation.used;
    return this.usesRoot ? `\u00f7 \u221a${this.steps.columnsOf("query")}` : `${TIMES} ${plainNumber(scale)}`;
  }

  /** Scale, cap or function, and bias. */
  changes() {
    const { column } = this.pair;
    const { used } = this.calculation;
    const dim = this.steps.columnsOf("query");
    let [before, after] = [this.row.scores[column], this.row.scaled[column]];
    const values = { before: inFormula(before), after: formatNumber(after), dim, root: plainNumber(Math.sqrt(dim)), scale: plainNumber(used.scale) };
    const stations = [{ id: "scale", title: say("walk_scale"), figure: formatNumber(after), operation: "",
      parts: [formula(formatNumber(before), this.scaleOperation(), formatNumber(after))],
      sentence: say(this.usesRoot ? "walk_says_root" : used.scale === 1 ? "walk_says_unscaled" : "walk_says_scale", values) }];
    if (this.steps.has("capped")) {
      [before, after] = [after, this.row.capped[column]];
      const { cap } = this.entry;
      stations[stations.length - 1].operation = cap ? say("walk_cap") : "f";
      stations.push({ id: "cap", title: cap ? say("walk_cap") : this.entry.function ? shortText(this.entry.function, 20) : say("walk_function"),
        figure: formatNumber(after), operation: "", parts: [formula(formatNumber(before), stations[0].operation, formatNumber(after))],
        sentence: say(cap ? "walk_says_cap" : "walk_says_function", { cap: cap ? plainNumber(cap) : "", before: formatNumber(before), after: formatNumber(after) }) });
    }
    if (this.steps.has("biased")) {
      [before, after] = [after, this.row.biased[column]];
      stations[stations.length - 1].operation = `+ ${formatNumber(after - before)}`;
      stations.push({ id: "bias", title: say("walk_bias"), figure: formatNumber(after), operation: "",
        parts: [formula(formatNumber(before), `+ ${inFormula(after - before)}`, formatNumber(after))],
        sentence: say("walk_says_bias", { before: formatNumber(before), bias: inFormula(after - before), after: formatNumber(after) }) });
    }
    stations[stations.length - 1].operation = "";
    return stations;
  }

  mask() {
    const { column } = this.pair;
    const masked = this.row.masked[column];
    const hidden = masked === -Infinity;
    const seen = this.row.masked.filter((score) => score !== -Infinity).length;
    const isMasked = this.calculation.used.mask === "causal" || (this.calculation.used.mask === "model" && this.steps.has("masked"));
    const values = { query: this.query, key: this.key, after: formatNumber(masked), count: this.count };
    /** @type {Part[]} */
    const parts = [formula(formatNumber(this.row.biased[column]), hidden ? "+ (\u2212\u221e)" : "+ 0", formatNumber(masked))];
    if (isMasked) parts.push({ kind: "line", text: say("walk_hidden_count", { query: this.query, all: this.count, seen }) });
    return { id: "mask", title: say("walk_mask"), figure: isMasked ? formatNumber(masked) : say("walk_no_mask"), parts, operation: this.normalizes(),
      sentence: say(hidden ? "walk_says_hidden" : isMasked ? "walk_says_visible" : "walk_says_unmasked", values) };
  }

  /** What the normalizer does, in a few signs. */
  normalizes() {
    const { normalizer } = this.calculation.used;
    return normalizer === "softmax" ? "exp \u00f7 \u03a3" : normalizer === "sparsemax" || normalizer === "entmax" ? "\u2212 \u03c4" : "";
  }

  weights() {
    const { column } = this.pair;
    const { used } = this.calculation;
    const { made, weights, tempered } = this.row;
    const known = this.calculation.knows();
    const values = { key: this.key, query: this.query, weight: formatNumber(weights[column]), percent: percentText(weights[column]), alpha: plainNumber(used.alpha),
      name: normalizerName(used.normalizer), power: formatNumber(made.powers?.[column] ?? NaN), sum: formatNumber(made.sum ?? sumOf(weights)),
      threshold: made.threshold === null || made.threshold === undefined ? "" : formatNumber(made.threshold) };
    const says = !known ? "walk_says_normalizer" : made.powers ? (used.normalizer === "softmax_with_sink" ? "walk_says_sink" : "walk_says_softmax")
      : used.normalizer === "sigmoid" ? "walk_says_sigmoid" : used.normalizer === "sparsemax" || used.alpha === 2 ? "walk_says_sparsemax" : "walk_says_entmax";
    const blind = tempered.every((score) => score === -Infinity);
    /** @type {Part[]} */
    const parts = [];
    if (made.powers && !blind) {
      parts.push({ kind: "formula", terms: [{ text: "exp(" }, { text: formatNumber(tempered[column]), moves: "in" }, { text: `\u2212 ${inFormula(made.most)}) \u00f7 ${values.sum} =` },
        { text: values.weight, moves: "out" }] });
    } else {
      parts.push({ kind: "formula", terms: [{ text: formatNumber(tempered[column]), moves: "in" }, { text: "\u2192" }, { text: values.weight, moves: "out" }] });
    }
    if (used.temperature !== 1) parts.push({ kind: "line", text: say("walk_divided", { temperature: plainNumber(used.temperature) }) });
    if (made.powers && !blind) parts.push({ kind: "line", text: say("walk_maximum", { most: formatNumber(made.most) }) });
    parts.push({ kind: "sum", name: "row", sum: this.rowSum(says) });
    return { id: "weights", title: normalizerName(used.normalizer), figure: percentText(weights[column]), operation: say("walk_step_mixes"), parts,
      sentence: say(blind ? "walk_says_none" : says, values) };
  }

  /** The table of a row: scores, what the normalizer makes of them, weights. */
  rowSum(says) {
    const { made, weights, tempered } = this.row;
    const { alpha } = this.calculation.used;
    const cuts = says === "walk_says_sparsemax" || says === "walk_says_entmax";
    const factor = says === "walk_says_entmax" ? alpha - 1 : 1;
    const middle = made.powers ? [say("walk_exp")] : cuts ? [say(factor === 1 ? "walk_above" : "walk_above_entmax")] : [];
    const between = (key) => (made.powers ? [made.powers[key]] : cuts ? [factor * tempered[key] - made.threshold] : []);
    const rows = this.keyRows((key) => [tempered[key], ...between(key), weights[key]],
      (key) => tempered[key] === -Infinity || (cuts && weights[key] === 0));
    // Of keys with the weight 0, those with the largest scores.
    const order = Array.from(weights, (weight, key) => (weight === 0 ? -1 - 1 / (1 + Math.exp(tempered[key] / 100)) : weight));
    const few = strongest(order, Math.min(FEW_KEYS, rows.length), this.pair.column);
    if (says === "walk_says_sink") {
      rows.push({ label: say("walk_sink"), numbers: [this.calculation.parameters.sink, made.sinkPower, null], muted: false, chosen: false, side: "" });
      few.push(rows.length - 1);
    }
    const all = weights.filter((weight) => !Number.isNaN(weight));
    return { head: [say("walk_word"), say("walk_name_scores"), ...middle, say("walk_weight")], adds: [false, ...middle.map(() => Boolean(made.powers)), true], rows, few,
      foot: { label: say("walk_sum"), numbers: [null, ...middle.map(() => (made.powers ? made.sum : null)), all.length === weights.length ? sumOf(weights) : NaN] } };
  }

  keyRows(numbers, muted = (_) => false) {
    return this.entry.keys.map((label, key) => ({ label: shortText(label, 18), numbers: numbers(key), muted: muted(key),
      chosen: key === this.pair.column, side: key === this.pair.column ? "key" : "" }));
  }

  output() {
    const { row, column } = this.pair;
    const { weights } = this.row;
    const output = this.calculation.output(row);
    const strong = strongest(Array.from(weights), Math.min(2, this.count), column).filter((key) => weights[key] > 0);
    const [first, second] = strong.map((key) => say("walk_part", { percent: percentText(weights[key]), key: quoted(this.entry.keys[key]) }));
    const rest = sumOf(weights) - strong.reduce((sum, key) => sum + weights[key], 0);
    const isWhole = !(rest > 5e-4);
    const named = second === undefined ? first : isWhole ? say("walk_parts_both", { first, second }) : `${first}, ${second}`;
    const parts = isWhole ? named : say("walk_parts_rest", { parts: named, percent: percentText(rest) });
    const weight = formatNumber(weights[column]);
    const largest = Math.max(...this.steps.rowOf("value", column).map(Math.abs), ...output.map(Math.abs));
    const product = Float64Array.from(output, (_, dimension) => this.calculation.product(row, column, dimension));
    return { id: "output", title: say("walk_output"), figure: say("walk_numbers", { count: output.length }), operation: "",
      sentence: say(strong.length ? "walk_says_output" : "walk_says_none", { query: this.query, parts }),
      parts: /** @type {Part[]} */ ([
        { kind: "cells", name: "weighted", side: "key", label: `${weight} ${TIMES} ${say("walk_of", { name: say("walk_value"), word: this.key })}`, values: product, largest, open: null },
        { kind: "cells", name: "output", side: "query", label: say("walk_of", { name: say("walk_output"), word: this.query }), values: output, largest, open: (dimension) => this.outputSum(dimension, output) },
        { kind: "line", text: say("walk_open_hint"), isHint: true }]) };
  }

  /** The terms of one number of the output. */
  outputSum(dimension, output) {
    const { row, column } = this.pair;
    const { weights } = this.row;
    const product = (key) => this.calculation.product(row, key, dimension);
    const rows = this.keyRows((key) => [weights[key], this.steps.at("value", key, dimension), product(key)], (key) => weights[key] === 0);
    return { head: [say("walk_word"), say("walk_weight"), say("walk_value"), say("walk_product")], adds: [true, false, true], rows,
      few: strongest(rows.map((_, key) => Math.abs(product(key))), Math.min(FEW_KEYS, rows.length), column),
      foot: { label: say("walk_sum"), numbers: [sumOf(weights), null, output[dimension]] } };
  }

  then() {
    const dim = this.steps.columnsOf("value");
    const { heads, next } = this.around;
    /** @type {Part[]} */
    const parts = [
      { kind: "line", text: heads !== null && heads > 1 ? say("walk_then_heads", { heads, dim, all: heads * dim }) : say("walk_then_one") },
      { kind: "line", text: say("walk_then_next") },
    ];
    if (next) parts.push({ kind: "layer", ...next });
    return { id: "then", title: say("walk_then"), figure: "\u2192", operation: null, sentence: say("walk_says_then", { dim, query: this.query }), parts };
  }
}

/** The rows of a table that are shown, and one that adds up the others; and what stands below them. */
function shownRows(sum, isOpen) {
  const rows = isOpen ? sum.rows : [...sum.few].map((place) => sum.rows[place]);
  const others = isOpen ? [] : sum.rows.filter((_, place) => !sum.few.includes(place));
  const total = (column) => (sum.adds[column] ? sumOf(others.map((row) => row.numbers[column])) : null);
  const rest = others.length ? { label: say("walk_more", { count: others.length }), numbers: sum.foot.numbers.map((_, column) => total(column)) } : null;
  const label = others.length ? say("walk_sum_all", { count: sum.rows.length }) : sum.foot.label;
  return { rows, rest, foot: { ...sum.foot, label } };
}

// map_canvas.js

/** What a cell of a map is; zero is blank, what the mask hides is hatched, NaN is crossed, at every size and with every pen. */
const CELL_KINDS = { weight: 0, zero: 1, masked: 2, missing: 3 };

/** Of maps: whether the mask hides a cell, the runs of NaN as [row, start, end], the theme. */
const forms = new WeakMap();

/**
 * A map as a picture, one pixel a cell: colours and blanks; `drawForms` adds hatches and crosses.
 * @param {Uint8Array} kinds of each cell, row by row, as in `CELL_KINDS`
 * @param {Uint8Array} shades from 0 to 255, of the cells that are weights
 * @param {Uint8ClampedArray} [ramp] the colours of the shades
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
function headStyle(head, theme, dashed = true) {
  if (theme.forced) return forcedStyle(head, theme);
  const colors = theme.heads;
  const color = head % colors.length;
  return { color: colors[color], dash: !dashed ? [] : DASHES[(head + Math.floor(head / colors.length)) % DASHES.length] };
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

// first_head.js

/** The most weights that are decoded to choose; of a larger document the first records that fit. */
const MOST_READ_WEIGHTS = 2 ** 22;

/** The least keys that a query sees for which one is a choice. */
const LEAST_KEYS = 4;

/** What a head may do and yet say little: such heads are chosen only where there are no others. */
const UNREMARKABLE = new Set(["first", "special", "one_key", "offset 0", "even"]);

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
    if (record.large) { read.push(record); continue; }
    left -= record.heads * record.queries.length * record.keys.length;
    if (left < 0 && read.some((one) => !one.large)) break;
    read.push(record);
  }
  await Promise.all(read.map((record) => (record.large ? null : record.decode())));
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
  return best ? { record: best.record, head: best.head, row: best.row, column: best.column } : firstFinding(records);
}

/** Of records that are not carried whole: what was found in one, a single large weight before a diagonal before a sink. */
function firstFinding(records) {
  for (const record of records) {
    const { spikes = [], diagonals = [], sinks = [] } = record.entry.overview?.findings ?? {};
    if (spikes.length) return { record: record.number, head: spikes[0].head, row: spikes[0].query, column: spikes[0].key };
    const [found] = [...diagonals, ...sinks];
    if (found) return { record: record.number, head: found.head, row: null, column: found.key ?? null };
  }
  return null;
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

// head_order.js

/** In what order the grid can show heads; the change of the loss where it was measured. */
function ordersOf(records) {
  const measured = records.some((record) => record.entry.statistics?.some((values) => values.loss !== undefined));
  return ["layer", "does", "entropy", ...(measured ? ["loss"] : [])];
}

/** The entropy of a head relative to even attention, of a survey where there is one; null where it is not known. */
function relativeEntropy(record, head) {
  const surveyed = record.entry.statistics?.[head]?.relative_entropy;
  const value = surveyed ?? statisticsOf(record, head)?.relativeEntropy ?? null;
  return Number.isNaN(value) ? null : value;
}

/** The change of the loss without a head; null where it was not measured. */
const lossChange = (record, head) => record.entry.statistics?.[head]?.loss ?? null;

/** A number with its sign. */
const signed = (value) => (value > 0 ? `+${formatNumber(value)}` : formatNumber(value));

/** What is written below a small map: what the head does, or the number that it is sorted by; "" for nothing. */
function captionOf(record, head, order, brief) {
  if (order === "entropy") {
    const value = relativeEntropy(record, head);
    return value === null ? "" : say("grid_entropy", { percent: Math.round(100 * value) });
  }
  if (order === "loss") {
    const value = lossChange(record, head);
    return value === null ? "" : say("grid_loss", { change: signed(value) });
  }
  const label = headLabel(record, head);
  return label ? labelText(label, record, brief) : "";
}

/**
 * All heads in an order, in groups: {title, counted (the title with their number), heads: [{row, column}]}; row is the record's number, column the head.
 * Of decoded records.
 */
function headGroups(records, order) {
  const heads = records.flatMap((record, row) => Array.from({ length: record.heads }, (_, column) => ({ row, column, record })));
  if (order === "does") return byPattern(heads);
  const [valueOf, ascending] = order === "loss" ? [lossChange, -1] : [relativeEntropy, 1];
  const valued = heads.map((head) => ({ ...head, value: valueOf(head.record, head.column) }));
  const known = valued.filter((head) => head.value !== null).sort((a, b) => ascending * (Number(a.value) - Number(b.value)) || a.row - b.row || a.column - b.column);
  const unknown = valued.filter((head) => head.value === null);
  return [{ title: say(order === "loss" ? "grid_by_loss" : "grid_by_entropy"), heads: known }, { title: say("grid_unknown"), heads: unknown }]
    .filter((group) => group.heads.length);
}

function byPattern(heads) {
  const groups = new Map(LABEL_ORDER.map((name) => [name, /** @type {any[]} */ ([])]));
  for (const head of heads) {
    const label = headLabel(head.record, head.column);
    groups.get(label?.name ?? "")?.push({ ...head, share: label?.share ?? 0 });
  }
  return [...groups].filter(([, members]) => members.length).map(([name, members]) => {
    if (name) members.sort((a, b) => b.share - a.share);
    else members.sort((a, b) => (relativeEntropy(a.record, a.column) ?? 1) - (relativeEntropy(b.record, b.column) ?? 1)); // the sharpest first
    const what = name ? patternText(name, members[0].record) : say("grid_no_pattern");
    return { title: what, counted: say("grid_group", { what, count: members.length }), heads: members };
  });
}

// bounds_pen.js

/** Draws nothing, and remembers the box of all that would be seen on the background. */
class BoundsPen {
  constructor(background) {
    this.background = background;
    this.offset = [0, 0];
    this.seen = [-Infinity, -Infinity, Infinity, Infinity];
    this.box = { left: Infinity, top: Infinity, right: -Infinity, bottom: -Infinity };
  }

  add(x0, y0, x1, y1) {
    const [dx, dy] = this.offset;
    const [left, top, right, bottom] = this.seen;
    const [a, b, c, d] = [Math.max(left, x0 + dx), Math.max(top, y0 + dy), Math.min(right, x1 + dx), Math.min(bottom, y1 + dy)];
    if (a > c || b > d) return;
    const { box } = this;
    this.box = { left: Math.min(box.left, a), top: Math.min(box.top, b), right: Math.max(box.right, c), bottom: Math.max(box.bottom, d) };
  }

  /** @param {Drawn} [style] */
  rect(x, y, width, height, style = {}) {
    if (style.stroke || (style.fill && style.fill !== this.background)) this.add(x, y, x + width, y + height);
  }

  path(points) {
    const [across, down] = [0, 1].map((side) => points.map((point) => point[side]));
    if (points.length) this.add(Math.min(...across), Math.min(...down), Math.max(...across), Math.max(...down));
  }

  curve(x0, y0, x1, y1) {
    this.add(Math.min(x0, x1), Math.min(y0, y1), Math.max(x0, x1), Math.max(y0, y1));
  }

  /** @param {Lettered} [style] */
  text(text, x, y, style = {}) {
    const { size = 12, bold = false, align = "start", angle = 0 } = style;
    const width = textWidth(text, { size, bold });
    const before = { start: 0, center: width / 2, end: width }[align];
    // The corners of the text's box, turned around its place.
    const [sine, cosine] = [Math.sin((angle * Math.PI) / 180), Math.cos((angle * Math.PI) / 180)];
    this.path([-before, width - before].flatMap((a) => [-size / 2, size / 2].map((b) => [x + a * cosine - b * sine, y + a * sine + b * cosine])));
  }

  picture(_, x, y, width, height) {
    this.add(x, y, x + width, y + height);
  }

  hatch(x, y, width, height) {
    this.add(x, y, x + width, y + height);
  }

  cross(x, y, width, height) {
    this.add(x, y, x + width, y + height);
  }

  clip(x, y, width, height, draw) {
    const before = this.seen;
    const [dx, dy] = this.offset;
    const [left, top, right, bottom] = before;
    this.seen = [Math.max(left, x + dx), Math.max(top, y + dy), Math.min(right, x + dx + width), Math.min(bottom, y + dy + height)];
    draw();
    this.seen = before;
  }

  shift(x, y, draw) {
    const before = this.offset;
    this.offset = [before[0] + x, before[1] + y];
    draw();
    this.offset = before;
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
header { display: flex; flex-wrap: wrap; align-items: center; gap: 0 16px; padding: 8px 64px 4px 16px; min-width: 0; position: relative; min-height: 40px; }
h2 { font-size: 16px; font-weight: 650; margin: 0; overflow-wrap: anywhere; max-height: 3em; overflow: hidden; }
.texts { margin: 0; color: var(--muted); font-size: 13px; overflow-wrap: anywhere; max-height: 4.2em; overflow: auto; min-width: 0; }
.texts b { font-weight: 600; margin-right: 4px; }
.texts span { margin-right: 16px; unicode-bidi: isolate; }
.facts { margin: 0 0 0 auto; color: var(--muted); font-size: 13px; white-space: nowrap; }
.more { position: absolute; top: 4px; right: 16px; border-color: transparent; background: none; font-size: 20px; line-height: 1; padding: 0 8px; min-height: 32px; }
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
.heads button[aria-pressed="false"] { color: var(--muted); background: none; border-color: transparent; }
.heads button[aria-pressed="false"] svg { opacity: .45; }
.heads .name { align-self: center; margin-right: 4px; color: var(--muted); }
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
.telling { display: flex; align-items: flex-start; gap: 4px 16px; padding: 4px 16px 8px; }
footer { padding: 4px 16px 8px; border-top: 1px solid var(--border); }
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
.narrow header, .narrow .row, .narrow .telling, .narrow footer { padding-left: 12px; padding-right: 12px; }
.narrow header, .narrow .row, .narrow footer { padding-left: 12px; padding-right: 12px; }
.narrow header { padding-right: 60px; }
.narrow .tabs { margin-left: 0; }
.narrow .tabs button { padding: 2px 8px; }
.narrow h2 { flex: 1 1 calc(100% - 64px); order: 1; }
.narrow .more { order: 2; }
.narrow .texts { order: 3; flex-basis: 100%; }
.narrow .facts { order: 4; margin-left: 0; }
.narrow .telling { flex-direction: column; }
.narrow .told { width: 100%; }
.narrow .sentence, .narrow .shares { white-space: normal; }
.narrow .sentence { height: 48px; }
.narrow .shares { height: 40px; }
@media print {
  :host { height: auto; overflow: visible; color-scheme: light; print-color-adjust: exact; }
  .viewer { height: auto !important; min-height: 0; overflow: visible; break-inside: avoid; }
  .row, .more, .menu, .tip, .help, .what, .cards { display: none !important; }
  .texts, .readout { max-height: none; overflow: visible; }
  .scroll { position: static; overflow: visible; }
  .space { display: none; }
  canvas { position: static; max-width: 100%; height: auto !important; }
}
@media (forced-colors: active) {
  .tabs button[aria-selected="true"] { border: 2px solid Highlight; }
  .cards .target, .cards .lead { stroke: Highlight; }
  .heads button[aria-pressed="true"] { border: 2px solid Highlight; }
  canvas { forced-color-adjust: none; }
}
`;

// text_flow.js

/** Room at both sides of a token, between the pieces of a word, and between words, in pixels. */
const [PADDING, WITHIN_WORD, BETWEEN_WORDS] = [2.5, 0.5, 4];

const LEAST_WORD = 12;

/** Whether most words of a text begin with a letter of a script that is written from right to left. */
function runsRightToLeft(text) {
  const letters = text.split(/\s+/).map((word) => word.match(/\p{L}/u)?.[0]).filter((letter) => letter !== undefined);
  return 2 * letters.filter((letter) => RIGHT_TO_LEFT.test(letter)).length > letters.length;
}

/**
 * The tokens of a side of a table as they stand in a text: without the marks of their tokenizer where it is known which begin
 * a word.
 * @returns {{shown: string, starts: boolean}[]} the text of each, and whether a word begins with it
 */
function flowTexts(table, side) {
  const [axis, groups] = side === "row" ? [table.record.queries, table.rowGroups] : [table.record.keys, table.columnGroups];
  const texts = groups.map((_, number) => (side === "row" ? table.rowText(number) : table.columnText(number)));
  if (axis.kind !== "tokens" || !axis.entry.words?.length || (table.words && axis.hasWords)) return texts.map((text) => ({ shown: shortText(text, 60), starts: true }));
  const starts = new Set(axis.entry.words);
  return groups.map(([position], number) => {
    const [before, after] = [starts.has(position), position + 1 >= axis.length || starts.has(position + 1)];
    // A piece is joined with empty neighbours where the word goes on.
    const piece = joinPieces([...(before ? [] : [""]), texts[number], ...(after ? [] : [""])]);
    return { shown: shortText(piece || texts[number], 60), starts: before };
  });
}

/**
 * Places for the words of a text in lines. Words flow in the direction of the text, the pieces of a word in that of the word.
 * @param {{shown: string, starts: boolean}[]} texts
 * @param {number} left
 * @param {number} top
 * @param {number} width
 * @param {{size: number, lineHeight: number}} style
 * @returns {{places: {x: number, y: number, width: number, height: number}[], bottom: number, rtl: boolean}}
 */
function flowText(texts, left, top, width, { size, lineHeight }) {
  const rtl = runsRightToLeft(texts.map((text) => text.shown).join(" "));
  const places = texts.map(({ shown }) => ({ x: 0, y: 0, width: Math.max(LEAST_WORD, Math.min(textWidth(shown, { size }) + 2 * PADDING, width)),
    height: lineHeight - 6 }));
  let [x, y] = [0, top];
  for (const [first, end] of wordsOf(texts)) {
    const pieces = places.slice(first, end);
    const whole = pieces.reduce((sum, piece) => sum + piece.width + WITHIN_WORD, -WITHIN_WORD);
    if (x > 0 && x + whole > width) { x = 0; y += lineHeight; }
    const reversed = (rtl && end - first === 1) || runsRightToLeft(texts.slice(first, end).map((text) => text.shown).join(""));
    if (whole > width) {
      // A word that is longer than a line is broken at its pieces.
      for (const piece of pieces) {
        if (x > 0 && x + piece.width > width) { x = 0; y += lineHeight; }
        Object.assign(piece, { x: left + (rtl ? width - x - piece.width : x), y });
        x += piece.width + WITHIN_WORD;
      }
    } else {
      const begin = left + (rtl ? width - x - whole : x);
      let offset = 0;
      for (const piece of reversed ? [...pieces].reverse() : pieces) {
        Object.assign(piece, { x: begin + offset, y });
        offset += piece.width + WITHIN_WORD;
      }
      x += whole;
    }
    x += BETWEEN_WORDS;
  }
  return { places, bottom: y + lineHeight, rtl };
}

/** The ranges of the words of some texts: first, and the one after the last. */
function wordsOf(texts) {
  const starts = [...texts.keys()].filter((number) => number === 0 || texts[number].starts);
  return starts.map((first, number) => [first, starts[number + 1] ?? texts.length]);
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

// walk_sheet.js

const COLUMN = 330;

const SHEET_GAP = 24;

/** A column of texts and tables with a pen; without one it only measures. */
class Column {
  constructor(pen, theme, x, y, width) {
    this.pen = pen;
    this.theme = theme;
    this.x = x;
    this.y = y;
    this.width = width;
  }

  text(text, style) {
    for (const line of wrapText(text, this.width, style)) {
      this.pen?.text(line, this.x, this.y + 8, { color: this.theme.text, ...style });
      this.y += style.size + 5;
    }
    this.y += 4;
  }

  station(station, number) {
    this.text(`${number + 1}. ${station.title}`, { size: 13, bold: true });
    this.text(station.sentence, { size: 12 });
    for (const part of station.parts) this.part(part);
    this.y += 16;
  }

  part(part) {
    if (part.kind === "line" && !part.isHint) this.text(part.text, { size: 11, color: this.theme.muted });
    else if (part.kind === "formula") this.text(part.terms.map((term) => term.text).join(" "), { size: 12, bold: true });
    else if (part.kind === "cells") {
      this.text(part.label, { size: 11, color: this.theme.muted });
      this.text([...part.values].map((value) => formatNumber(value)).join("  "), { size: 11 });
    } else if (part.kind === "sum") this.table(part.sum);
  }

  table(sum) {
    const { rows, rest, foot } = shownRows(sum, false);
    const first = this.width * 0.3;
    const step = (this.width - first) / (sum.head.length - 1);
    const line = (label, texts, style) => {
      this.pen?.text(fitText(label, first - 4, style), this.x, this.y + 7, { size: 11, ...style });
      texts.forEach((text, column) => this.pen?.text(text, this.x + first + (column + 1) * step, this.y + 7, { size: 11, align: "end", ...style }));
      this.y += 15;
    };
    const texts = (numbers) => numbers.map((value) => (value === null || value === undefined ? "" : formatNumber(value)));
    line(sum.head[0], sum.head.slice(1), { color: this.theme.muted });
    for (const row of rows) line(row.label, texts(row.numbers), { color: row.muted ? this.theme.muted : this.theme.text, bold: row.chosen });
    if (rest) line(rest.label, texts(rest.numbers), { color: this.theme.muted });
    this.pen?.path([[this.x, this.y], [this.x + this.width, this.y]], { color: this.theme.border });
    this.y += 2;
    line(foot.label, texts(foot.numbers), { color: this.theme.text, bold: true });
  }
}

/** The walk on paper: the map of all pairs, and the stations from left to right beside it. */
function walkSheet(app, view, stations) {
  // Of a map that is larger than its place, what is seen.
  const win = app.window();
  const [whole, area] = [view.size(app), { ...win, height: Math.max(win.height, 400) }];
  const size = { width: Math.min(whole.width, area.width), height: Math.min(whole.height, area.height) };
  const { queries, keys } = view.steps(app).entry;
  const pair = view.chosen(app);
  const heading = say("walk_print", { query: quoted(queries[pair.row]), key: quoted(keys[pair.column]) });
  const per = Math.ceil(stations.length / 3);
  const draw = (pen) => {
    let bottom = size.height;
    const left = size.width + SHEET_GAP;
    pen?.text(heading, left, 12, { color: app.theme.text, size: 13, bold: true });
    for (let start = 0; start < stations.length; start += per) {
      const column = new Column(pen, app.theme, left + (start / per) * (COLUMN + SHEET_GAP), 32, COLUMN);
      stations.slice(start, start + per).forEach((station, number) => column.station(station, start + number));
      bottom = Math.max(bottom, column.y);
    }
    return bottom;
  };
  return { width: size.width + SHEET_GAP + 3 * (COLUMN + SHEET_GAP), height: draw(null),
    draw: (pen) => {
      pen.clip(0, 0, size.width, size.height, () => pen.shift(-area.x, -area.y, () => view.draw(app, pen, area)));
      draw(pen);
    } };
}

// canvas_pen.js

/** Draws on a canvas. */
class CanvasPen {
  constructor(context) {
    this.context = context;
    this.patterns = new Map();
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
    context.direction = directionOf(text);
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

// cells.js

/** The cells of a map, row by row: their numbers, their kinds (`CELL_KINDS`), and their picture. What extends it gives each its shade. */
class Cells {
  /** @param {boolean} signed whether the numbers have a sign, so that zero is in the middle of the colours */
  constructor(rows, columns, signed) {
    this.rows = rows;
    this.columns = columns;
    this.signed = signed;
    this.values = new Float64Array(rows * columns);
    this.kinds = new Uint8Array(rows * columns);
    this.bitmaps = new Map();
    this.widest = {};
  }

  kind(row, column) {
    return this.kinds[row * this.columns + column];
  }

  value(row, column) {
    return this.values[row * this.columns + column];
  }

  /**
   * A cell's place on a scale, from 0 to 1; from -1 where there is a sign.
   * @param {number} _row
   * @param {number} _column
   * @param {string} _scale
   * @returns {number}
   */
  shade(_row, _column, _scale) {
    throw new TypeError("a map gives the shades of its cells");
  }

  /** One pixel a cell. */
  bitmap(scale, theme) {
    const key = `${scale} ${theme.name}`;
    if (!this.bitmaps.has(key)) {
      const shades = Uint8Array.from(this.kinds, (kind, cell) => {
        if (kind !== CELL_KINDS.weight) return 0;
        const shade = this.shade(Math.floor(cell / this.columns), cell % this.columns, scale);
        return Math.round(255 * clamp(this.signed ? (shade + 1) / 2 : shade, 0, 1));
      });
      this.bitmaps.set(key, mapCanvas(this.columns, this.rows, this.kinds, shades, theme, this.signed ? signsOf(theme) : undefined));
    }
    return this.bitmaps.get(key);
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
  /** @param {{width: number, height: number, top?: number}} size top: the y of its upper edge */
  constructor({ width, height, top = 0 }) {
    this.size = [width, height, top];
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
    const right = directionOf(text) === "rtl";
    // In a text that runs to the left, the start is at the right.
    const anchor = { start: right ? "end" : "start", center: "middle", end: right ? "start" : "end" }[align];
    const direction = right ? " direction=\"rtl\" unicode-bidi=\"embed\"" : "";
    const turn = angle ? ` transform="rotate(${angle} ${short(x)} ${short(y)})"` : "";
    this.parts.push(`<text x="${short(x)}" y="${short(y)}" dy="0.35em" font-size="${size}" font-weight="${bold ? 600 : 400}" `
      + `text-anchor="${anchor}" fill="${xml(color)}" xml:space="preserve"${direction}${turn}>${xml(text)}</text>`);
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
    const [width, height, top] = this.size;
    const patterns = Array.from(this.patterns, ([name, stroke]) => `<pattern id="${name}" width="${HATCH}" height="${HATCH}" `
      + `patternUnits="userSpaceOnUse"><path d="${hatchPath(name === "cross")}" stroke="${stroke}" fill="none"/></pattern>`).join("");
    return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 ${top} ${width} ${height}" `
      + `font-family="${xml(FONT)}" role="img"><title>${xml(title)}</title><desc>${xml(description)}</desc>`
      + `<defs>${patterns}</defs>${this.parts.join("\n")}</svg>\n`;
  }
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
    if (name === "style") element.style.cssText = value; // a style attribute would be against the page's policy
    else if (value === true) element.setAttribute(name, "");
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

// views/grid_layout.js

/** The heights of a caption, of a name above a map and of a group's heading, in pixels. */
const [CAPTION_HEIGHT, NAME_HEIGHT, TITLE_HEIGHT] = [15, 15, 26];

/** The room of the layers' names, between kinds of attention, and the most that is left between two maps. */
const [LAYER_NAMES, KINDS_APART, MOST_APART] = [72, 24, 44];

/** The least side of a map that has room for a caption. */
const LEAST_CAPTIONED = 54;

/** A map is stretched to at most this ratio of its sides. */
const MOST_STRETCH = 2;

/** The size of a record's maps in a square: in their own proportions, unless they are much wider than high or the reverse. */
function mapSize(record, side) {
  let [height, width] = [record.queries.length, record.keys.length];
  if (foldsOf(record)) {
    const [x0, y0, x1, y1] = record.keys.entry.box;
    [height, width] = [y1 - y0, x1 - x0];
  }
  const ratio = clamp(width / height, 1 / MOST_STRETCH, MOST_STRETCH);
  return ratio >= 1 ? [side, side / ratio] : [side * ratio, side];
}

/** Whether a record's maps are laid on the image that its keys are. */
const foldsOf = (record) => record.keys.kind === "grid" && record.queries.kind !== "grid" && !record.large;

/**
 * Where the heads stand: layers × heads, or sorted in lines below headings.
 * @param {any[]} records
 * @param {string} order see `ordersOf`
 * @param {{width: number, height: number}} area
 */
function gridLayout(records, order, area) {
  return order === "layer" ? byLayer(records, area) : sorted(records, order, area);
}

/**
 * Layers downwards, heads to the right. What has several kinds of attention, as encoder and decoder, has them side by side
 * where there is room, else below each other.
 */
function byLayer(records, area) {
  const kinds = [...new Set(records.map((record) => kindText(record)))];
  const beside = kinds.length > 1 && kinds.every((kind) => {
    const layers = records.filter((record) => kindText(record) === kind).map((record) => record.entry.layer);
    return new Set(layers).size === layers.length;
  });
  const most = (some) => Math.max(...some.map((record) => record.heads));
  const widest = kinds.reduce((sum, kind) => sum + most(records.filter((record) => kindText(record) === kind)), 0);
  const left = LAYER_NAMES;
  const fits = beside && area.width - left - KINDS_APART * kinds.length >= widest * (LEAST_CAPTIONED + 6);
  return fits ? byKind(records, kinds, area) : inLines(records, area);
}

/** Each record a line. */
function inLines(records, area) {
  const heads = Math.max(...records.map((record) => record.heads));
  const several = differInKind(records);
  const names = several ? records.map((record) => textWidth(kindText(record), { size: 11 })) : [];
  const left = Math.min(Math.max(LAYER_NAMES, area.width * 0.22), 24 + Math.max(LAYER_NAMES - 24, ...names));
  const lines = records.map((record) => ({ title: record.entry.layer, subtitle: several ? kindText(record) : "", records: [record] }));
  return placed(lines, [{ title: "", heads }], { left, top: 24 }, area);
}

/** Each layer a line, the kinds of attention beside each other. */
function byKind(records, kinds, area) {
  const layers = [...new Set(records.map((record) => record.entry.layer))].sort((a, b) => a - b);
  const of = (kind, layer) => records.find((record) => kindText(record) === kind && record.entry.layer === layer);
  const lines = layers.map((layer) => ({ title: layer, subtitle: "", records: kinds.map((kind) => of(kind, layer)) }));
  const blocks = kinds.map((kind) => ({ title: kind, heads: Math.max(...records.filter((record) => kindText(record) === kind).map((record) => record.heads)) }));
  return placed(lines, blocks, { left: LAYER_NAMES, top: 44 }, area);
}

/** Lines of blocks of heads, as large as all are seen at once. */
function placed(lines, blocks, { left, top }, area) {
  const heads = blocks.reduce((sum, block) => sum + block.heads, 0);
  const across = (area.width - left - KINDS_APART * blocks.length) / heads;
  const down = (area.height - top) / lines.length - 8;
  const captioned = across - 6 >= LEAST_CAPTIONED;
  const side = clamp(Math.min(across - 6, Math.max(down - (captioned ? CAPTION_HEIGHT : 0), 68)), 28, 164);
  const caption = side >= LEAST_CAPTIONED ? CAPTION_HEIGHT : 0;
  const pitch = clamp(across, side + 6, side + MOST_APART);
  let x = left;
  const columns = blocks.map((block) => {
    const column = { ...block, x };
    x += block.heads * pitch + KINDS_APART;
    return column;
  });
  const cells = [];
  let y = top;
  const rows = lines.map((line, number) => {
    const there = line.records.filter(Boolean);
    const height = Math.max(...there.map((record) => mapSize(record, side)[1]));
    line.records.forEach((record, block) => {
      for (let head = 0; head < (record?.heads ?? 0); head += 1) {
        const [width, high] = mapSize(record, side);
        cells.push({ row: record.number, column: head, line: number, x: columns[block].x + head * pitch, y, width, height: high, room: pitch - 4, caption, name: 0 });
      }
    });
    const row = { title: line.title, subtitle: line.subtitle, y, height };
    y += Math.max(28, height + caption) + 8;
    return row;
  });
  return { order: "layer", left, top, cells, rows, titles: [], blocks: columns, side, pitch, width: x - KINDS_APART + 4, height: y };
}

/** Groups of heads below their headings; small groups share a line. */
function sorted(records, order, area) {
  const left = 10;
  const columns = Math.max(1, Math.floor((area.width - 2 * left) / 108));
  const pitch = Math.min(150, (area.width - 2 * left) / columns);
  const side = Math.min(pitch - 10, 130);
  const cells = [];
  const titles = [];
  let [y, line] = [4, 0];
  let used = columns; // of the line of groups
  let [groupTop, groupBottom] = [y, y];
  for (const group of headGroups(records, order)) {
    const count = Math.min(columns, group.heads.length);
    if (used + count > columns) {
      [used, y] = [0, groupBottom];
      groupTop = y;
      line += 1;
    }
    const x = left + used * pitch;
    titles.push({ texts: [group.counted, group.title].filter(Boolean), x, y: groupTop + TITLE_HEIGHT / 2, room: count * pitch - 8 });
    let bottom = groupTop + TITLE_HEIGHT;
    for (let first = 0; first < group.heads.length; first += count) {
      if (first) line += 1;
      const row = group.heads.slice(first, first + count).map(({ row: record, column }, number) => {
        const [width, height] = mapSize(records[record], side);
        return { row: record, column, line, x: x + number * pitch, y: bottom + NAME_HEIGHT, width, height, room: pitch - 6, caption: CAPTION_HEIGHT, name: NAME_HEIGHT };
      });
      cells.push(...row);
      bottom += NAME_HEIGHT + Math.max(...row.map((one) => one.height)) + CAPTION_HEIGHT + 8;
    }
    used += count;
    groupBottom = Math.max(groupBottom, bottom);
  }
  return { order, left, top: 0, cells, rows: [], titles, blocks: [], side, pitch, width: area.width, height: groupBottom + 4 };
}

/** The head above or below another one. */
function neighbour(cells, from, direction) {
  const beyond = cells.filter((one) => (one.y - from.y) * direction > 1);
  if (!beyond.length) return from;
  const y = beyond.reduce((best, one) => ((one.y - best) * direction < 0 ? one.y : best), beyond[0].y);
  return beyond.filter((one) => Math.abs(one.y - y) < 1).reduce((best, one) => (Math.abs(one.x - from.x) < Math.abs(best.x - from.x) ? one : best));
}

// table.js

/** Kinds of cells of a table. */
const [WEIGHT, ZERO, MASKED, MISSING] = Object.values(CELL_KINDS);

/**
 * The weights of one head, or the mean of all, as they are shown: sub-words merged, special tokens hidden.
 * Merging adds the columns of a word and averages its rows, so that rows that sum to 1 still do. A query that sees no key
 * has no weights to average: means over heads and over the tokens of a word leave it out.
 */
class Table extends Cells {
  constructor(record, head, options) {
    const shown = (axis) => axis.groups(options.words).filter((group) => !(options.hideSpecial && axis.isSpecial(group)));
    const [rowGroups, columnGroups] = [shown(record.queries), shown(record.keys)];
    const measure = Object.hasOwn(record.measures, options.measure) ? options.measure : "weights";
    super(rowGroups.length, columnGroups.length, measure === "contributions");
    this.record = record;
    this.head = head; // null: the mean over heads; a list: the mean over some
    this.exact = record.exact !== null;
    this.rowGroups = rowGroups;
    this.columnGroups = columnGroups;
    this.words = options.words;
    this.measure = measure;
    this.errors = this.exact ? null : new Float64Array(this.values.length);
    this.hidden = new Float64Array(this.rows);
    this.hiddenErrors = new Float64Array(this.rows);
    this.counts = new Uint32Array(this.rows); // queries of all heads that a row is the mean of
    this.fill();
    this.summarize();
  }

  /** What a weight is multiplied by: 1, unless something else than weights is shown. */
  get factors() {
    const { measures, queries, keys } = this.record;
    const measure = measures[this.measure];
    if (!measure) return null;
    const perQuery = measure.shape.length === 3;
    return (head, query, key) => measure.values[(perQuery ? head * queries.length + query : head) * keys.length + key];
  }

  fill() {
    const heads = this.head === null ? Array.from({ length: this.record.heads }, (_, head) => head) : [this.head].flat();
    const { factors } = this;
    for (let row = 0; row < this.rows; row += 1) {
      const [q0, q1] = this.rowGroups[row];
      for (const head of heads) {
        for (let query = q0; query < q1; query += 1) if (this.record.seesAny(head, query)) this.counts[row] += 1;
      }
      for (let column = 0; column < this.columns; column += 1) this.fillCell(row, column, heads, factors);
    }
    if (this.columnGroups.length < this.record.keys.length) this.addHidden(heads, factors);
  }

  fillCell(row, column, heads, factors) {
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
          const factor = factors ? factors(head, query, key) : 1;
          sum += factor * (exact ? exact[base + key] : CODE_VALUES[code] * maximum);
          if (!exact) error += Math.abs(factor) * CODE_ERRORS[code] * maximum;
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
  addHidden(heads, factors) {
    const { record } = this;
    const [queries, keys] = [record.queries.length, record.keys.length];
    const shown = new Uint8Array(keys);
    for (const [start, stop] of this.columnGroups) shown.fill(1, start, stop);
    const maximum = record.entry.codes.maximum;
    for (let row = 0; row < this.rows; row += 1) {
      const [q0, q1] = this.rowGroups[row];
      let [sum, error] = [0, 0];
      for (const head of heads) {
        for (let query = q0; query < q1; query += 1) {
          const base = (head * queries + query) * keys;
          for (let key = 0; key < keys; key += 1) {
            if (shown[key] || !record.sees(head, query, key)) continue;
            const factor = factors ? factors(head, query, key) : 1;
            sum += factor * (record.exact ? record.exact[base + key] : CODE_VALUES[record.codes[base + key]] * maximum);
            if (!record.exact) error += Math.abs(factor) * CODE_ERRORS[record.codes[base + key]] * maximum;
          }
        }
      }
      this.hidden[row] = sum / Math.max(1, this.counts[row]);
      this.hiddenErrors[row] = error / Math.max(1, this.counts[row]);
    }
  }

  /** The largest size of all weights and of each row's, and the sums of the rows. */
  summarize() {
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
        if (Math.abs(value) > this.rowLargest[row]) this.rowLargest[row] = Math.abs(value);
      }
      if (this.rowLargest[row] > this.largest) this.largest = this.rowLargest[row];
    }
    this.end = this.endOf(this.largest);
  }

  /** The number of a scale's last colour; weights end at several even shares at least. */
  endOf(largest) {
    return this.measure === "weights" && largest > 0 ? scaleEnd(largest, this.columns) : largest;
  }

  rowText(row) {
    return this.record.queries.groupText(this.rowGroups[row], this.words);
  }

  columnText(column) {
    return this.record.keys.groupText(this.columnGroups[column], this.words);
  }

  /** A query in a sentence: tokens are quoted, places and times are not. */
  rowName(row) {
    return nameOn(this.record.queries, this.rowText(row));
  }

  /** A key in a sentence. */
  columnName(column) {
    return nameOn(this.record.keys, this.columnText(column));
  }

  error(row, column) {
    return this.errors ? this.errors[row * this.columns + column] : 0;
  }

  /** A cell as text. */
  cell(row, column) {
    const kind = this.kind(row, column);
    if (kind === MASKED) return say("masked");
    return formatWeight(this.value(row, column), this.error(row, column));
  }

  /** The sum of a row and what hidden tokens have of it. */
  rowSummary(row) {
    let error = 0;
    for (let column = 0; column < this.columns; column += 1) error += this.error(row, column);
    const sum = say("rowSum", { sum: formatWeight(this.rowSums[row], error) });
    return this.columnGroups.length && this.hiddenColumns
      ? `${sum}, ${say("rowHidden", { sum: formatWeight(this.hidden[row], this.hiddenErrors[row]) })}` : sum;
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
    return { values, errors, kinds, largest: largestSize(values) };
  }

  /** A weight's place on a scale, from 0 to 1; from -1 where there is a sign. */
  shade(row, column, scale) {
    return signedShade(this.value(row, column), scale === "row" ? this.rowLargest[row] : this.end, scale);
  }
}

const nameOn = (axis, text) => (axis.kind === "tokens" ? quoted(text) : `\u2068${text}\u2069`);

/** The largest size of some numbers; NaN is left out. */
const largestSize = (values) => values.reduce((most, value) => (Math.abs(value) > most ? Math.abs(value) : most), 0);

/** A number's place on a scale that ends at the largest, with its sign. */
const signedShade = (value, largest, scale) =>
  (largest > 0 ? Math.sign(value) * SCALES[scale].shade(Math.abs(value) / largest) : 0);

/** What is shown: weights, or weights times something. */
const measureText = (table) => say({ norms: "of_norms", contributions: "of_contributions" }[table.measure] ?? "of_weights");

const accuracy = (table) => (table.exact ? "" : say(table.measure === "weights" ? "coded" : "codedWeights"));

/** How the tokens of a word became one. */
const mergedText = (table) => (table.words && (table.record.queries.hasWords || table.record.keys.hasWords) ? say("merged") : "");

/** What hidden special tokens have of the weights. */
function hiddenText(table) {
  const count = table.hiddenColumns;
  if (!count || !table.rows) return "";
  const mean = table.hidden.reduce((sum, mass) => sum + mass, 0) / Math.max(1, table.seeing.length);
  return ` \u00b7 ${table.measure === "weights" ? say("hiddenShare", { count, percent: (100 * mean).toFixed(1) }) : say("hiddenCount", { count })}`;
}

/** The sum of the locked queries or of the one under the pointer; of all that see a key, to be divided by their number, where there is none. */
function activeSums(app, table) {
  const rows = app.activeRows();
  const all = rows.length ? rows : table.seeing;
  const divisor = rows.length ? 1 : Math.max(1, all.length);
  const sums = table.sumRows(all);
  return { ...sums, rows, divisor, end: divisor * table.endOf(sums.largest / divisor) };
}

/** What the sum of queries is, as headings, legends and tooltips say it. */
function sumText(table, rows) {
  if (rows.length === 1) return say("ofOneQuery");
  if (rows.length) return say("ofLocked", { count: counted(rows.length) });
  const seeing = table.seeing.length;
  const blind = table.rows - seeing;
  return blind ? say("ofSeeing", { seeing, blind: counted(blind) }) : say("ofAllQueries");
}

/** What a key gets from the queries of a sum. */
function receivedText({ kinds, values, errors, divisor }, column) {
  return kinds[column] === MASKED ? say("masked") : formatWeight(values[column] / divisor, errors[column] / divisor);
}

/** The keys that a query attends to most. */
function describeRow(app, table, row) {
  const size = (column) => Math.abs(table.value(row, column));
  const order = Array.from({ length: table.columns }, (_, column) => column).filter((column) => table.kind(row, column) !== MASKED);
  order.sort((a, b) => size(b) - size(a));
  const best = order.slice(0, 3).map((column) => `${table.columnName(column)} ${table.cell(row, column)}`);
  const rest = order.slice(3);
  if (rest.length) {
    const add = (part) => rest.reduce((sum, column) => sum + part(column), 0);
    const sum = formatWeight(add((column) => table.value(row, column)), add((column) => table.error(row, column)));
    best.push(say("moreTogether", { count: counted(rest.length), sum }));
  }
  const aside = `${app.headText()}; ${table.rowSummary(row)}`;
  return best.length ? say("looksAt", { query: table.rowName(row), keys: best.join(say("listed")), aside })
    : say("looksAtNothing", { query: table.rowName(row), aside });
}

// experiment.js

const CHOICES = ["softmax", "entmax", "sparsemax", "sigmoid"];

const MOST_COLUMNS = 32;

/** How near to the model's own setting a slider snaps to it, in parts of a power of ten. */
const SNAP = 0.02;

/** The sliders and choices of the walk, and the weights of the row as columns, with the model's own as outlines. */
class Experiment {
  /** @param {(changes: object) => void} change takes new settings */
  constructor(calculation, change, choosePair, restore) {
    this.change = change;
    this.choosePair = choosePair;
    const { model, steps } = calculation;
    this.temperature = this.slider("walk_temperature", "walk_temperature_note", model.temperature, (value) => change({ temperature: value }));
    this.scale = this.slider("walk_scale_choice", "walk_scale_note", model.scale, (value) => change({ scale: value }));
    this.alpha = this.alphaSlider(model.alpha);
    const own = CHOICES.includes(model.normalizer) ? [] : [model.normalizer];
    this.normalizer = this.choice("walk_normalizer", [...own, ...CHOICES].map((name) => [name,
      name === model.normalizer ? say("walk_own_choice", { name: normalizerName(name) }) : normalizerName(name)]), (value) => change({ normalizer: value }));
    const masks = [["model", say("walk_own_choice", { name: say(steps.has("masked") ? "walk_mask_model" : "walk_mask_nothing") })],
      ...(steps.has("masked") ? [["none", say("walk_mask_nothing")]] : []), ...(calculation.isSquare ? [["causal", say("walk_mask_causal")]] : [])];
    this.mask = this.choice("walk_mask", masks, (value) => change({ mask: value }));
    this.restore = action(say("walk_restore"), say("walk_restore"), restore);
    this.note = make("p", { class: "note" });
    this.title = make("h3");
    this.columns = make("div", { class: "columns", role: "group" });
    this.more = make("p", { class: "note" });
    this.element = make("section", { class: "try" },
      make("div", { class: "settings" }, make("h3", { text: say("walk_try") }), this.normalizer.element, this.alpha.element, this.temperature.element,
        this.scale.element, this.mask.element, make("div", { class: "restore" }, this.restore, this.note)),
      make("div", { class: "walk-row" }, this.title, this.columns, this.more));
  }

  /** Brings it into sight. */
  reach() {
    this.element.scrollIntoView({ block: "nearest" });
    this.element.querySelector("select")?.focus({ preventScroll: true });
  }

  /** A slider of powers of ten around the model's own setting. */
  slider(name, note, own, change) {
    const usable = own > 0 && Number.isFinite(own);
    const at = usable ? Math.log10(own) : 0;
    const [low, high] = name === "walk_temperature" ? [Math.min(-1, at), Math.max(1, at)] : [at - 1, at + 1];
    const read = () => {
      const value = Number(input.value);
      change(Math.abs(value - at) < SNAP ? own : 10 ** value);
    };
    const input = make("input", { type: "range", min: low, max: high, step: 0.01, on: { input: read } });
    const shown = make("output");
    const mark = usable ? make("i", { class: "own", style: `left: calc(8px + (100% - 16px) * ${(at - low) / (high - low)})`, "aria-hidden": "true" }) : null;
    const element = make("label", { class: "slider" }, make("span", { text: say(name) }), make("span", { class: "track" }, input, mark), shown);
    const show = (value, enabled) => {
      input.disabled = !(enabled && usable);
      if (Math.abs(Number(input.value) - Math.log10(value)) > 0.006) input.value = String(Math.log10(value));
      const text = `${say(/** @type {any} */ (note), { value: plainNumber(value) })}${value === own ? "" : ` (${say("walk_own", { value: plainNumber(own) })})`}`;
      shown.textContent = text;
      input.setAttribute("aria-valuetext", text);
    };
    return { element, show };
  }

  alphaSlider(own) {
    const input = make("input", { type: "range", min: 1, max: Math.max(2, Math.ceil(20 * own) / 20), step: 0.05, on: { input: () => this.change({ alpha: Number(input.value) }) } });
    const shown = make("output");
    const element = make("label", { class: "slider" }, make("span", { text: say("walk_alpha") }), make("span", { class: "track" }, input), shown);
    const show = (value, visible) => {
      element.hidden = !visible;
      input.value = String(value);
      shown.textContent = `${plainNumber(value)} \u00b7 ${value === own ? say("walk_alpha_note") : say("walk_own", { value: plainNumber(own) })}`;
      input.setAttribute("aria-valuetext", plainNumber(value));
    };
    return { element, show };
  }

  choice(name, options, change) {
    const select = make("select", { on: { change: () => change(select.value) } });
    for (const [value, text] of options) select.append(make("option", { value, text }));
    return { element: make("label", {}, make("span", { text: say(name) }), select), show: (value) => { select.value = value; } };
  }

  /** Shows the settings of a calculation, and the row of a pair. */
  show(calculation, pair) {
    const { used, model } = calculation;
    const known = calculation.knows();
    this.normalizer.show(used.normalizer);
    this.alpha.show(used.alpha, used.normalizer === "entmax");
    this.temperature.show(used.temperature, known);
    this.scale.show(used.scale, known && calculation.scales);
    this.mask.show(used.mask);
    const causal = calculation.isSquare ? "" : say("walk_no_causal");
    const notes = [say(calculation.isChanged ? "walk_is_trial" : "walk_is_model"),
      known ? "" : say("walk_no_temperature", { name: normalizerName(model.normalizer) }), calculation.scales ? "" : say("walk_no_scale"), causal];
    this.note.textContent = notes.filter(Boolean).join(" ");
    this.restore.disabled = !calculation.isChanged;
    this.showRow(calculation, pair);
  }

  showRow(calculation, { row, column }) {
    const { queries, keys } = calculation.steps.entry;
    const { weights, truth } = calculation.row(row);
    this.title.textContent = say("walk_row_title", { query: quoted(queries[row]) });
    const shown = strongest(Array.from(weights), Math.min(MOST_COLUMNS, keys.length), column).sort((a, b) => a - b);
    const highest = Math.max(1e-9, ...shown.flatMap((key) => [weights[key], calculation.isChanged ? truth[key] : 0]).filter(Number.isFinite));
    const part = (weight) => `${(100 * (Number.isFinite(weight) ? weight : 0)) / highest}%`;
    const focus = this.columns.contains(/** @type {any} */ (this.columns.getRootNode()).activeElement);
    this.columns.replaceChildren(...shown.map((key) => {
      const [percent, own] = [percentText(weights[key]), percentText(truth[key])];
      const label = say(calculation.isChanged ? "walk_column_truth" : "walk_column", { key: quoted(keys[key]), percent, truth: own });
      const ghost = calculation.isChanged && truth[key] > highest / 100 ? make("i", { class: "ghost", style: `height: ${part(truth[key])}` }) : null;
      return make("button", { type: "button", class: "column", "aria-label": label, title: label, "aria-pressed": String(key === column),
        on: { click: () => this.choosePair({ row, column: key }) } },
      make("small", { text: weights[key] >= 5e-3 ? String(Math.round(100 * weights[key])) : "" }), make("span", { class: "bar-room" }, make("i", { class: "amount", style: `height: ${part(weights[key])}` }), ghost),
      make("span", { class: "name", text: shortText(keys[key], 12), dir: "auto" }));
    }));
    if (focus) this.columns.querySelector("[aria-pressed=true]")?.focus();
    this.more.textContent = shown.length < keys.length ? say("walk_row_more", { shown: shown.length, all: keys.length }) : "";
  }
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
    sheet.replaceSync(STYLE + WALK_STYLE);
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
    this.beside = make("div", { class: "beside", hidden: true });
    this.stage = make("div", { class: "stage", role: "tabpanel", id: "stage", "aria-busy": "true" }, this.scroller, this.beside);
    this.tip = make("div", { class: "tip", "aria-hidden": "true", hidden: true });
    this.sentence = make("p", { class: "sentence", id: "sentence" });
    this.shares = make("p", { class: "shares" });
    this.readout = make("p", { class: "readout", id: "readout", role: "status", "aria-live": "polite" });
    this.help = make("p", { class: "help", id: "help" });
    this.what = make("button", { class: "what", type: "button", text: say("whatIsThis"), "aria-pressed": "false" });
    this.cards = make("div", { class: "cards", hidden: true });
    this.box = make("section", { class: "viewer", "aria-label": say("attentionWeights") },
      make("header", {}, this.title, this.texts, this.facts, this.more),
      make("div", { class: "row" }, this.bar, this.tabs),
      make("div", { class: "telling" }, make("div", { class: "told" }, this.sentence, this.shares), this.what),
      this.stage, make("footer", {}, this.help), this.readout, this.menu, this.tip, this.cards);
    if (height) this.box.style.height = `${height}px`;
    this.root.replaceChildren(this.box);
    this.pen = new CanvasPen(this.canvas.getContext("2d", { alpha: false }));
  }

  /** Makes the canvas as large as its room, in pixels of the screen. */
  sizeCanvas(width, height) {
    const { canvas } = this;
    const ratio = globalThis.devicePixelRatio || 1;
    const [across, down] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (canvas.width === across && canvas.height === down) return;
    Object.assign(canvas, { width: across, height: down });
    Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` });
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

  /** Elements of a view beside the canvas; null: none. */
  showBeside(element) {
    this.beside.hidden = element === null;
    this.box.classList.toggle("walking", element !== null);
    if (this.beside.firstChild !== element) this.beside.replaceChildren(...(element ? [element] : []));
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
class Difference extends Cells {
  /**
   * @param {any} one a table
   * @param {any} other another one
   * @param {any[]} rowPairs the rows that are compared
   * @param {any[]} columnPairs the columns
   */
  constructor(one, other, rowPairs, columnPairs) {
    super(rowPairs.length, columnPairs.length, true);
    this.one = one;
    this.other = other;
    this.rowPairs = rowPairs;
    this.columnPairs = columnPairs;
    this.record = one.record;
    this.words = one.words;
    this.exact = false; // the view itself writes numbers into cells
    this.rowGroups = rowPairs.map(([row]) => one.rowGroups[row]);
    this.columnGroups = columnPairs.map(([column]) => one.columnGroups[column]);
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

  /** Both weights and their difference as texts. */
  cellTexts(row, column) {
    const [[a, b], [c, d]] = [this.rowPairs[row], this.columnPairs[column]];
    const error = this.one.error(a, c) + this.other.error(b, d);
    return { one: this.one.cell(a, c), other: this.other.cell(b, d), difference: formatWeight(this.value(row, column), error) };
  }

  /** A difference's place on a scale, from -1 to 1. */
  shade(row, column, scale) {
    return signedShade(this.value(row, column), this.largest, scale);
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
        place.top + (row + 0.5) * place.height, { color: inkOf(table, table.shade(row, column, scale), theme), size, align: "center" });
    }
  }
}

/** The ink on the colour of a table's number. */
const inkOf = (table, shade, theme) => (table.signed ? inkOn(divergingColor(shade, theme)) : inkOnRamp(shade, theme));

const inside = (place, x, y) => x >= place.x && y >= place.y && x < place.x + place.width && y < place.y + place.height;

/** The row and the column that are at a place, of cells that begin at ``left`` and ``top``. */
const cellAt = (x, y, { left, top, width, height }) => [Math.floor((y - top) / height), Math.floor((x - left) / width)];

/** Where a cell is, and what does not scroll beside and above it. */
const placeOfCell = ({ row, column }, { left, top, width, height }) => ({ x: left + column * width, y: top + row * height, width, height,
  frozenLeft: left, frozenTop: top });

// long_map.js

/** The statistics of a pooled map; `poolingText` has their words. */
const POOLINGS = ["maximum", "mean"];

const poolingText = (pooling) => say(pooling === "mean" ? "pooling_mean" : "pooling_maximum");

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
    for (const pooling of POOLINGS) {
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
    const size = (times) => ({ down: counted(Math.round((10 * times * queries.length) / this.rows) / 10),
      across: counted(Math.round((10 * times * keys.length) / this.columns) / 10) });
    const { down, across } = size(1);
    if (down === "1" && across === "1") return block === 1 ? say("long_single") : say("long_joined", { block });
    const means = pooling === "mean" && block > 1;
    const text = means ? say("long_joined_means", { block, down, across }) : say(pooling === "mean" ? "long_mean" : "long_largest", size(block));
    return pooling === "mean" && this.hidden ? `${text}${say("long_hidden")}` : text;
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
      if (values.length !== this.record.heads * (q1 - q0) * (k1 - k0)) throw new RangeError(say("long_wrong_tile"));
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

  /**
   * The whole pooled map, one pixel a block of bins: {canvas, limits (the last colour's weight in each row), kinds}.
   * @param {number|null} most the weight of the last colour; null: the largest that is shown
   */
  bitmap(pooling, head, scale, block, theme, most = null) {
    const key = `${pooling} ${head} ${scale} ${block} ${most} ${theme.name}`;
    if (!this.bitmaps.has(key)) {
      if (this.bitmaps.size > 24) this.bitmaps.delete(this.bitmaps.keys().next().value);
      this.bitmaps.set(key, this.paintBitmap(pooling, head, scale, block, theme, most));
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

  paintBitmap(pooling, head, scale, block, theme, most) {
    const { rows, columns, values } = this.blocks(pooling, head, block);
    const largest = (part) => part.reduce((best, value) => (value > best ? value : best), 0);
    const limits = new Float64Array(rows).fill(most ?? largest(values));
    if (scale === "row") for (let row = 0; row < rows; row += 1) limits[row] = largest(values.subarray(row * columns, (row + 1) * columns));
    const kinds = new Uint8Array(rows * columns);
    const shades = new Uint8Array(rows * columns);
    values.forEach((value, cell) => { ({ kind: kinds[cell], shade: shades[cell] } = shadeOf(value, limits[Math.floor(cell / columns)], scale)); });
    return { canvas: mapCanvas(columns, rows, kinds, shades, theme), limits, kinds: new Set(kinds) };
  }

  /** What was found in the map: {text, head, row, column, kind}. */
  places() {
    const { sinks, diagonals, spikes } = this.findings;
    const { queries, keys } = this.record;
    const middle = Math.floor(queries.length / 2);
    const named = (axis, position) => ({ text: quoted(shortText(axis.text(position), 16)), number: counted(position) });
    return [
      ...sinks.map((one) => {
        const { text, number } = named(keys, one.key);
        return { text: say("found_sink", { head: one.head, key: text, number, share: percent(one.share) }), head: one.head, row: middle, column: one.key, kind: "sink" };
      }),
      ...diagonals.map((one) => {
        const row = clamp(middle, Math.max(0, -one.offset), Math.min(queries.length - 1, keys.length - 1 - one.offset));
        const how = one.offset === 0 ? "found_own" : Math.abs(one.offset) === 1 ? (one.offset < 0 ? "found_previous" : "found_next")
          : one.offset < 0 ? "found_back" : "found_ahead";
        const text = say(how, { head: one.head, distance: counted(Math.abs(one.offset)), share: percent(one.share) });
        return { text, head: one.head, row, column: row + one.offset, kind: "diagonal" };
      }),
      ...spikes.map((one) => {
        const [query, key] = [named(queries, one.query), named(keys, one.key)];
        const text = say("found_spike", { head: one.head, query: query.text, row: query.number, key: key.text, column: key.number, weight: percent(one.weight) });
        return { text, head: one.head, row: one.query, column: one.key, kind: "spike" };
      }),
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

// sentence.js

/** A token inside a sentence, kept from changing the direction of the words around it. */
const named = (text) => `\u2068${shortText(text, 48)}\u2069`;

/** Keys of a row whose weights are named one by one. */
const NAMED = 4;

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
  if (Number.isInteger(table.head)) {
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

/** The keys of a row that are not masked, the largest weight first; those without a number last. */
function byWeight(table, row) {
  const order = Array.from({ length: table.columns }, (_, column) => column).filter((column) => table.kind(row, column) !== MASKED);
  const size = (column) => (Number.isNaN(table.value(row, column)) ? -1 : Math.abs(table.value(row, column)));
  return order.sort((a, b) => size(b) - size(a));
}

const shares = new WeakMap();

/** What each key of the record gets of a row whose queries share their weight equally among the keys that they see. */
function sharesOfKeys(table, row) {
  if (!shares.has(table)) shares.set(table, []);
  const known = shares.get(table);
  if (known[row]) return known[row];
  const { record, rowGroups } = table;
  const keys = record.keys.length;
  const all = Array.from({ length: record.heads }, (_, head) => head);
  // One mask for all heads needs one look.
  const perHead = record.visible && record.maskEntry.shape.length === 3;
  const heads = !perHead ? [0] : table.head === null ? all : [table.head].flat();
  const share = new Float64Array(keys);
  let count = 0;
  for (const head of heads) {
    const seen = relations(record).seen(head);
    for (let query = rowGroups[row][0]; query < rowGroups[row][1]; query += 1) {
      const visible = Array.from({ length: keys }, (_, key) => key).filter((key) => !seen || seen[query * keys + key]);
      if (visible.length) count += 1;
      for (const key of visible) share[key] += 1 / visible.length;
    }
  }
  known[row] = share.map((sum) => sum / Math.max(1, count));
  return known[row];
}

/** What a column would get of a row's weight if that were shared equally among the keys of the record that the row sees. */
function evenShareOf(table, row, column) {
  const share = sharesOfKeys(table, row);
  const [start, stop] = table.columnGroups[column];
  let sum = 0;
  for (let key = start; key < stop; key += 1) sum += share[key];
  return sum;
}

/** The equal share of the columns that rows see, where it is one number; null where it differs. */
function evenShare(table, rows) {
  if (table.measure !== "weights") return null;
  let [low, high] = [Infinity, -Infinity];
  for (const row of [rows].flat()) {
    for (let column = 0; column < table.columns; column += 1) {
      if (table.kind(row, column) === MASKED) continue;
      const share = evenShareOf(table, row, column);
      if (!(share > 0)) continue; // a later token of a causal record
      [low, high] = [Math.min(low, share), Math.max(high, share)];
      if (high - low > 1e-9) return null;
    }
  }
  return high > 0 ? high : null;
}

/** The equal share of all rows of a table. */
const evenShareOfAll = (table) => evenShare(table, Array.from({ length: table.rows }, (_, row) => row));

/** The same of the sum or mean of rows (see `activeSums`): one row, or the mean of all; null for sums of several. */
const evenShareOfSums = (table, { rows }) => (rows.length === 1 ? evenShare(table, rows) : rows.length ? null : evenShareOfAll(table));

/** Whether a row's weights add up to 1, hidden keys included: parts of them are percent. */
const isWhole = (table, row) => table.measure === "weights" && Math.abs(table.rowSums[row] + table.hidden[row] - 1) < 0.02;

/** Whether the shown weights of every row add up to 1. */
const rowsAddUp = (table) => table.rows > 0 && table.measure === "weights" && table.rowSums.every((sum) => Math.abs(sum - 1) < 0.02);

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
  const text = table.kind(row, of) === MASKED ? say("mayNotSee", { query, key })
    : table.measure !== "weights" ? say("givesMeasure", { query, key, what: measureText(table), value: formatWeight(value, table.error(row, of)) })
    : Number.isNaN(value) ? say("noNumber", { query, key })
      : isWhole(table, row) ? table.record.say("gives", { query, key, percent: percent(value) }) : table.record.say("givesWeight", { query, key, weight: shortWeight(value) });
  const parts = order.slice(0, NAMED).map((one) => `${named(table.columnText(one))} ${shortWeight(table.value(row, one))}`);
  const rest = order.slice(NAMED);
  if (rest.length) parts.push(say("moreKeys", { count: rest.length, weight: shortWeight(rest.reduce((sum, one) => sum + table.value(row, one), 0)) }));
  const share = evenShare(table, row);
  const even = share === null ? "" : ` \u2014 ${say("evenShare", { weight: shortWeight(share) })}`;
  return { text, shares: `${query} \u2192 ${parts.join(" \u00b7 ")}${even}` };
}

/** What a table says of a query whose keys are the parts of a picture or of a sound: how few parts have how much. */
function sayOfParts(table, row) {
  const even = evenShare(table, row);
  if (!isWhole(table, row) || even === null) return sayOfRow(table, row);
  const parts = byWeight(table, row).filter((column) => table.value(row, column) > 2 * even);
  const share = parts.reduce((sum, column) => sum + table.value(row, column), 0);
  return { text: table.record.say(table.record.keys.kind === "grid" ? "givesPatches" : "givesFrames", { query: named(table.rowText(row)), count: parts.length,
    all: table.columns, percent: percent(share) }), shares: say("partsShown", { weight: shortWeight(even) }) };
}

/** What a table says of a key: who looks at it most. */
function sayOfColumn(table, column) {
  const size = (row) => (Number.isNaN(table.value(row, column)) ? -1 : Math.abs(table.value(row, column)));
  const seeing = Array.from({ length: table.rows }, (_, row) => row).filter((row) => table.kind(row, column) !== MASKED);
  const key = named(table.columnText(column));
  if (!seeing.length) return { text: say("seenByNobody", { key }), shares: "" };
  const best = seeing.reduce((most, row) => (size(row) > size(most) ? row : most));
  if (!isWhole(table, best)) return { text: sayOfRow(table, best, column).text, shares: "" };
  return { text: table.record.say("lookedAt", { key, query: named(table.rowText(best)), percent: percent(table.value(best, column)) }), shares: "" };
}

/** What a table says of all its queries together. */
function sayOfAll(table) {
  const { seeing } = table;
  const { values, kinds } = table.sumRows(seeing);
  const columns = Array.from(values.keys()).filter((column) => kinds[column] !== MASKED);
  if (!seeing.length || !columns.length) return { text: table.columns ? say("noneSees") : "", shares: "" };
  const size = (column) => (Number.isNaN(values[column]) ? -1 : Math.abs(values[column]));
  const best = columns.reduce((most, column) => (size(column) > size(most) ? column : most));
  const weight = values[best] / seeing.length;
  const whole = seeing.every((row) => isWhole(table, row));
  return { text: say("averageOver", { key: named(table.columnText(best)), weight: whole ? percent(weight) : shortWeight(weight) }), shares: "" };
}

/** The table that the sentence speaks of: that of the shown heads; null where a view shows none. */
const spokenTable = (app) => (app.view.spoken ? app.view.spoken(app) : app.table());

/** The pair that the sentence speaks of while nothing is pointed at: of the query that was locked last, else the most surprising one. */
function featured(app) {
  if (!app.record || app.record.large || !app.view.ofTables || (app.state.overall && !app.state.locked.length)) return null;
  const table = spokenTable(app);
  if (!table) return null;
  const row = app.state.locked.at(-1);
  if (row !== undefined && row < table.rows) return { row, column: byWeight(table, row)[0] ?? 0 };
  return mostSurprising(table);
}

/** The sentence of what is shown, and the shares of its row. */
function sentenceOf(app) {
  const item = app.active();
  if (app.view.sentence) return app.view.sentence(app, item);
  if (!app.view.ofTables || app.record.large) return { text: item ? app.view.describe(app, item) : "", shares: "" };
  const table = item?.head === undefined ? spokenTable(app) : app.table(item.head);
  if (!table) return { text: "", shares: "" };
  if (item?.side === "key") return sayOfColumn(table, item.column);
  if (item?.row !== undefined && item.column === undefined && table.measure === "weights" && table.record.keys.kind !== "tokens") return sayOfParts(table, item.row);
  if (item?.row !== undefined) return sayOfRow(table, item.row, item.column ?? null);
  const best = featured(app);
  if (!best && app.state.overall) return sayOfAll(table);
  if (best && table.measure === "weights" && table.record.keys.kind !== "tokens" && byWeight(table, best.row).length > 8) return sayOfParts(table, best.row);
  return best ? sayOfRow(table, best.row, app.state.locked.length ? null : best.column) : { text: "", shares: "" };
}

/** What is said to screen readers while nothing is pointed at: of the view, or which rows are locked. */
function selectionText(app) {
  const said = app.view?.said(app) ?? null;
  if (said !== null) return said;
  const { locked } = app.state;
  if (!locked.length || !app.record || app.record.large || app.view.name === "grid") return "";
  const table = app.table();
  const names = locked.filter((row) => row < table.rows).map((row) => quoted(table.rowText(row)));
  return say("lockedRows", { names: names.join(", ") });
}

// thumbnails.js

/** Most points of a small map along a side. */
const THUMBNAIL = 160;

/** The most of a picture that is veiled where nothing looks. */
const VEIL = 0.85;

/** Of how many queries and keys a point of a record's small maps is the largest weight. */
function reduction(record) {
  const [queries, keys] = [record.queries.length, record.keys.length];
  if (!record.large) return Array(2).fill(Math.max(1, Math.ceil(Math.max(queries, keys) / THUMBNAIL)));
  const { rows, columns } = record.entry.overview;
  const block = joinedBins(record);
  return [(block * queries) / rows, (block * keys) / columns];
}

/** How many bins of a pooled map are a point of its small maps, in each direction. */
const joinedBins = ({ entry: { overview } }) => Math.max(1, Math.ceil(Math.max(overview.rows, overview.columns) / THUMBNAIL));

/** The largest weight of a record's small maps, of all its heads. */
const largestOf = ({ entry }) => entry.codes?.maximum ?? entry.overview?.maximum.maximum ?? 0;

/**
 * A record's head as a small picture: the largest weight of each block of cells.
 * @param {number|null} most the weight of the last colour; null: the head's largest, or what `scaleEnd` gives
 */
function thumbnailOf(record, head, scale, theme, most = null) {
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
  const { maximum } = record.entry.codes;
  const limit = ((most ?? scaleEnd(CODE_VALUES[largest] * maximum, keys)) / maximum) || 1;
  const shadesOf = CODE_VALUES.map((value) => Math.round(255 * clamp(SCALES[scale].shade(value / limit) || 0, 0, 1)));
  const kinds = new Uint8Array(rows * columns);
  for (let cell = 0; cell < kinds.length; cell += 1) {
    kinds[cell] = masked[cell] ? MASKED : best[cell] === NAN_CODE ? MISSING : best[cell] === 0 ? ZERO : WEIGHT;
    if (kinds[cell] !== WEIGHT) record.thumbnailKinds.add(kinds[cell]);
  }
  return mapCanvas(columns, rows, kinds, best.map((code) => shadesOf[code]), theme);
}

/** How much each key gets from a query of a head: the mean over the queries that see a key. */
function receivedOf(record, head) {
  const [queries, keys] = [record.queries.length, record.keys.length];
  const sums = new Float64Array(keys);
  let seeing = 0;
  for (let query = 0; query < queries; query += 1) {
    if (!record.seesAny(head, query)) continue;
    seeing += 1;
    const base = (head * queries + query) * keys;
    for (let key = 0; key < keys; key += 1) {
      const value = CODE_VALUES[record.codes[base + key]];
      if (value > 0 && record.sees(head, query, key)) sums[key] += value * record.entry.codes.maximum;
    }
  }
  return sums.map((sum) => sum / Math.max(1, seeing));
}

/**
 * A veil over the image that a record's keys are: clear where the queries of a head look, on the mean over them.
 * @param {number|null} most see `thumbnailOf`
 */
function veilOf(record, head, scale, theme, most = null) {
  const { rows, columns, leading } = record.keys.entry;
  const received = receivedOf(record, head).subarray(leading);
  const limit = most ?? scaleEnd(received.reduce((largest, value) => Math.max(largest, value), 0), record.keys.length);
  const paper = channelsOf(theme.background);
  return pixelCanvas(columns, rows, (data) => {
    for (let cell = 0; cell < rows * columns; cell += 1) {
      const shade = limit > 0 ? clamp(SCALES[scale].shade(received[cell] / limit), 0, 1) : 0;
      for (let channel = 0; channel < 3; channel += 1) data[4 * cell + channel] = paper[channel];
      data[4 * cell + 3] = Math.round(255 * VEIL * (1 - shade));
    }
  });
}

// walk_panel.js

/** @import { Calculation } from "./calculation.js" */


const FEW_CELLS = 8;

const MOST_ROWS = 600;

/** A number in a cell: three digits at most. */
function cellNumber(value) {
  if (!Number.isFinite(value)) return formatNumber(value);
  const size = Math.abs(value);
  if (size >= 999.5) return formatNumber(value);
  const text = size.toFixed(size < 9.995 ? 2 : size < 99.95 ? 1 : 0);
  return value < 0 && Number(text) > 0 ? `\u2212${text}` : text;
}

/** The stations of the walk as elements: the overview, the experiment, and a card for each station. */
class WalkPanel {
  /** @param {{station: (place: number) => void, pair: (pair: object) => void, trial: (changes: object|null) => void, layer: (record: number) => void}} commands */
  constructor(commands) {
    this.commands = commands;
    this.opened = new Map(); // which number of a list is open
    this.unfolded = new Set(); // which lists and tables are shown whole
    this.element = make("div", { class: "walk", role: "group", "aria-label": say("walk_region"), on: { keydown: (event) => this.keyPressed(event) } });
    this.experiment = null;
    this.carried = ""; // which calculations there are, where they are not all
    this.steps = null;
    this.pair = { row: 0, column: 0 };
    /** @type {Calculation} */
    this.calculation = /** @type {any} */ (null);
    this.theme = null;
    this.stations = [];
    this.place = 0;
  }

  /** Shows a calculation; `place` is the number of the station. */
  show(calculation, pair, stations, place, theme) {
    const moved = this.stations.length === stations.length && this.place !== place ? this.place : null;
    Object.assign(this, { calculation, pair, stations, place, theme });
    if (this.steps !== calculation.steps) this.build(calculation);
    this.experiment?.show(calculation, pair);
    this.showHead();
    const focus = this.focusName();
    this.strip.replaceChildren(...stations.map((station, number) => this.node(station, number)));
    this.cards.replaceChildren(...stations.map((station, number) => this.card(station, number)));
    this.restoreFocus(focus);
    if (moved !== null) this.arrive(moved);
  }

  /** Shows a text in place of the stations. */
  say(text) {
    this.steps = null;
    this.element.replaceChildren(make("p", { class: "note", text }));
  }

  build(calculation) {
    this.steps = calculation.steps;
    this.opened.clear();
    this.unfolded.clear();
    const { queries, keys } = calculation.steps.entry;
    const list = (name, labels, side) => {
      const select = make("select", { class: side, "aria-label": say(name), on: { change: () => this.commands.pair({ ...this.pair, [side === "query" ? "row" : "column"]: Number(select.value) }) } });
      labels.forEach((label, number) => select.append(make("option", { value: String(number), text: shortText(label, 24) })));
      return select;
    };
    this.queryChoice = list("walk_query_choice", queries, "query");
    this.keyChoice = list("walk_key_choice", keys, "key");
    this.back = action(say("walk_back"), say("walk_back"), () => this.go(this.place - 1));
    this.next = action(say("walk_next"), say("walk_next"), () => this.go(this.place + 1));
    this.next.classList.add("primary");
    this.counter = make("span", { class: "note" });
    this.note = make("p", { class: "note" });
    this.strip = make("ol", { class: "strip", "aria-label": say("walk_stations") });
    this.cards = make("ol", { class: "stations" });
    this.experiment = new Experiment(calculation, (changes) => this.commands.trial(changes), (pair) => this.commands.pair(pair), () => this.commands.trial(null));
    this.element.replaceChildren(make("div", { class: "walk-head" }, make("b", { text: shortText(calculation.steps.entry.name, 48) }),
      make("span", { class: "walk-pair" }, this.queryChoice, make("span", { text: "\u2192", "aria-hidden": "true" }), this.keyChoice),
      make("span", { class: "steps-buttons" }, action(say("walk_what_if"), say("walk_try"), () => this.experiment?.reach()), this.back, this.counter, this.next)), this.strip, this.cards, this.experiment.element, this.note);
  }

  showHead() {
    this.queryChoice.value = String(this.pair.row);
    this.keyChoice.value = String(this.pair.column);
    this.back.disabled = this.place === 0;
    this.next.disabled = this.place === this.stations.length - 1;
    this.note.textContent = this.carried;
    this.counter.textContent = say("walk_place", { here: this.place + 1, all: this.stations.length });
  }

  go(place) {
    if (place < 0 || place >= this.stations.length) return;
    this.commands.station(place);
  }

  keyPressed(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const target = /** @type {HTMLElement} */ (event.target);
    if (!step || event.ctrlKey || event.metaKey || event.altKey || target.matches("input, select")) return;
    event.preventDefault();
    this.go(this.place + step);
  }

  /** Brings the station into sight, and lets its numbers fly in. */
  arrive(from) {
    const card = this.cards.children[this.place];
    card.scrollIntoView({ block: "nearest" });
    if (this.place > from) fly([...this.cards.children].slice(0, this.place), card);
  }

  // --- elements ---

  node(station, number) {
    const button = make("button", { type: "button", "data-name": `node ${number}`, "aria-current": number === this.place ? "step" : null, on: { click: () => this.go(number) } },
      make("span", { text: station.title }), make("b", { text: station.figure, dir: "auto" }));
    return make("li", {}, button, station.operation === null ? null : make("span", { class: "operation", text: station.operation }));
  }

  card(station, number) {
    const here = number === this.place;
    const operation = this.stations[number - 1]?.operation ?? null; // what leads here
    return make("li", { class: here ? "station here" : "station", "data-station": station.id },
      operation === null ? null : make("span", { class: "operation", "aria-hidden": "true", text: operation }),
      make("article", {}, make("h3", { text: `${number + 1}. ${station.title}` }), make("p", { class: "says", text: station.sentence }),
        ...station.parts.map((part) => this.part(part, station.id))));
  }

  part(part, id) {
    const { entry } = this.calculation.steps;
    switch (part.kind) {
      case "line": return make("p", { class: "note", text: part.text });
      case "formula": return make("p", { class: "formula" }, ...part.terms.map(({ text, moves }) => make(moves ? "b" : "span",
        { text, "data-in": moves === "in" ? "number" : null, "data-out": moves === "out" ? "number" : null })));
      case "cells": return this.cells(part, `${id} ${part.name}`);
      case "sum": return this.table(part.sum, `${id} ${part.name}`, null);
      case "tokens": return make("p", { class: "tokens" }, make("span", { class: "token query", text: shortText(entry.queries[this.pair.row], 24), dir: "auto" }), make("span", { text: "\u2192" }),
        make("span", { class: "token key", text: shortText(entry.keys[this.pair.column], 24), dir: "auto" }));
      default: return action(say("walk_then_go", { layer: part.layer }), say("walk_then_go", { layer: part.layer }), () => this.commands.layer(part.record));
    }
  }

  /** A list of numbers; beyond eight it is folded, and a number may be opened into its sum. */
  cells(part, name) {
    const { values } = part;
    const whole = this.unfolded.has(name) || values.length <= FEW_CELLS;
    const open = this.opened.get(name);
    const largest = part.largest ?? Math.max(...values.map(Math.abs));
    const shown = Array.from(whole ? values : values.slice(0, FEW_CELLS), (value, dimension) => {
      const fill = divergingColor(largest && Number.isFinite(value) ? value / largest : 0, this.theme);
      const common = { class: "cell", style: `background: ${fill}; color: ${inkOn(fill)}`, text: cellNumber(value), title: formatNumber(value),
        "data-out": part.name === "weighted" ? null : `${part.name} ${dimension}`, "data-in": part.name === "weighted" ? `value ${dimension}` : null };
      if (!part.open) return make("span", common);
      return make("button", { ...common, type: "button", "data-name": `${name} ${dimension}`, "aria-expanded": String(open === dimension),
        "aria-label": say("walk_open_cell", { name: part.label, dimension, value: formatNumber(value) }), on: { click: () => this.toggle(name, dimension) } });
    });
    if (values.length > FEW_CELLS) shown.push(this.folding(name, values.length, values.length - FEW_CELLS));
    const detail = part.open && open !== undefined && open < values.length ? make("div", { class: "opened" },
      make("p", { class: "note", text: say("walk_sum_of", { name: part.label, dimension: open, value: formatNumber(values[open]) }) }),
      this.table(part.open(open), `${name} sum`, () => this.toggle(name, open))) : null;
    return make("div", { class: `list ${part.side}` }, make("p", { class: "list-name", text: part.label }), make("div", { class: "numbers" }, ...shown), detail);
  }

  folding(name, all, more) {
    const isOpen = this.unfolded.has(name);
    const text = isOpen ? say("walk_show_fewer") : say("walk_more", { count: more });
    return make("button", { type: "button", class: "fold", "data-name": `fold ${name}`, text, "aria-expanded": String(isOpen),
      "aria-label": isOpen ? text : say("walk_show_all", { count: all }), on: { click: () => this.unfold(name) } });
  }

  /** A table that adds up; its other rows are shown on demand. */
  table(sum, name, close) {
    const isOpen = this.unfolded.has(name) && sum.rows.length <= MOST_ROWS;
    const { rows, rest, foot } = shownRows(sum, isOpen);
    const text = (value) => (value === null || value === undefined ? "" : formatNumber(value));
    const line = (one, tag, style) => make("tr", { class: style }, make("th", { scope: "row", text: one.label, dir: "auto" }),
      ...one.numbers.map((value, column) => make(tag, { text: text(value), "data-in": this.landing(name, one, column) })));
    const body = rows.map((row) => line(row, "td", `${row.muted ? "muted" : ""} ${row.chosen ? "chosen" : ""}`.trim() || null));
    if (rest) body.push(line(rest, "td", "rest"));
    const table = make("table", {}, make("thead", {}, make("tr", {}, ...sum.head.map((head) => make("th", { scope: "col", text: head })))),
      make("tbody", {}, ...body), make("tfoot", {}, line(foot, "td", null)));
    if (name === "score products") table.querySelector("tfoot td:last-child").dataset.out = "number";
    const more = sum.rows.length - sum.few.length;
    return make("div", { class: "sum" }, table, make("p", { class: "sum-buttons" }, more > 0 && sum.rows.length <= MOST_ROWS ? this.folding(name, sum.rows.length, more) : null,
      close ? make("button", { type: "button", class: "fold", "data-name": `close ${name}`, text: say("walk_close"), on: { click: close } }) : null));
  }

  /** The number that flies to a place of the table of products. */
  landing(name, row, column) {
    return name === "score products" && column < 2 ? `${column ? "key" : "query"} ${row.label}` : null;
  }

  toggle(name, dimension) {
    if (this.opened.get(name) === dimension) this.opened.delete(name);
    else this.opened.set(name, dimension);
    this.again(`${name} ${dimension}`);
  }

  unfold(name) {
    if (!this.unfolded.delete(name)) this.unfolded.add(name);
    this.again();
  }

  again(focus = this.focusName()) {
    this.cards.replaceChildren(...this.stations.map((station, number) => this.card(station, number)));
    this.restoreFocus(focus);
  }

  focusName() {
    return /** @type {any} */ (this.element.getRootNode()).activeElement?.dataset?.name ?? null;
  }

  restoreFocus(name) {
    if (name === null) return;
    const all = [...this.element.querySelectorAll("[data-name]")];
    const station = name.startsWith("node ") ? `node ${this.place}` : name;
    all.find((one) => one.dataset.name === station)?.focus({ preventScroll: true });
  }
}

// legend.js

/** Steps of a legend's ramp; odd, so that the numbers below its ends and its middle stand under their own colours. */
const LEGEND_STEPS = 65;

/**
 * The number below a place of a legend's ramp.
 * @param {{ramp?: string|null, scale: string, largest: number|null, beyond?: boolean}} legend largest: the weight of the last colour; null: the
 *   numbers are percent of what differs from map to map
 * @param {number} shade
 */
function tickText({ ramp, scale, largest, beyond }, shade) {
  if (ramp === "signed") {
    // Zero stands in the middle, and the signs have the same scale.
    if (shade === 0.5) return "0";
    const end = largest === null ? "100 %" : legendNumber(largest);
    return shade < 0.5 ? `\u2212${end}` : `+${end}`;
  }
  const part = shade === 0 && scale === "log" ? 10 ** -DECADES : scaleInverse(scale, shade);
  const text = largest === null ? `${legendNumber(100 * part)} %` : legendNumber(part * largest);
  if (shade === 0 && scale === "log") return `\u2264 ${text}`;
  return shade === 1 && beyond ? `\u2265 ${text}` : text;
}

/** Where the parts of the ramp are: the mark of an even share, the colours, the numbers below them. */
const RAMP_PLACE = { mark: 6, top: 13, height: 10, numbers: 32 };

const SMALL = { size: 11 };

const LINE = 14;

const TITLE_STYLE_OF_RAMP = { size: 12, bold: true };

const rampTitle = (legend) => legend.title ?? say("weightTitle");

/** Where the colours of a ramp begin, and their length. */
const rampPlace = (legend, width) => ({ x: 16 + textWidth(rampTitle(legend), TITLE_STYLE_OF_RAMP) + 12, length: clamp(width * 0.28, 100, 240) });

/** Where the samples are: beside the ramp, or in lines below it where they have no room. */
function samplePlaces(legend, width) {
  const ramp = rampPlace(legend, width);
  let [x, y] = legend.ramp ? [ramp.x + ramp.length + 20, 12] : [16, 5];
  return (legend.samples ?? []).map(([kind, text]) => {
    const wide = 18 + textWidth(text, SMALL) + 12;
    if (x > 16 && x + wide > width) [x, y] = [16, y === 12 ? 44 : y + 18];
    x += wide;
    return { kind, text, x: x - wide, y };
  });
}

/** Above the lines of text. */
const textTop = (legend, width) => Math.max(legend.ramp ? 46 : 8, ...samplePlaces(legend, width).map(({ y }) => y + (y === 12 ? 0 : 21)));

/** Lines that a legend's text has. */
function linesOf(legend, width) {
  return legend.text ? Math.min(width < NARROW ? 4 : 2, wrapText(legend.text, width - 32, SMALL).length) : 0;
}

/** The height that a legend needs, in pixels. */
const legendHeight = (legend, width) => textTop(legend, width) + LINE * linesOf(legend, width) + 2;

/**
 * The scale below a view: its title, a ramp with numbers and the mark of an even share, samples of what is not a weight, and a text.
 * A legend has: ramp ("map", "veil", "signed" or null), title, scale, largest (see `tickText`), even (the weight of an even share), beyond
 * (whether something larger than the largest is shown in its colour), samples, text, of which `room` lines are shown.
 */
function drawLegend(pen, legend, width, theme, room = linesOf(legend, width)) {
  const lines = wrapText(legend.text ?? "", width - 32, SMALL);
  if (legend.ramp) drawRamp(pen, legend, width, theme);
  for (const { kind, text, x, y } of samplePlaces(legend, width)) {
    drawKind(pen, kind, x, y, 12, 12, theme);
    pen.rect(x, y, 12, 12, { stroke: theme.border });
    pen.text(text, x + 18, y + 6, { color: theme.muted, ...SMALL });
  }
  if (legend.text) lines.slice(0, room).forEach((line, number) => {
    const last = number === room - 1 && lines.length > room;
    pen.text(last ? fitText(`${line} \u2026`, width - 32, SMALL) : line, 16, textTop(legend, width) + 6 + number * LINE, { color: theme.muted, ...SMALL });
  });
}

function drawRamp(pen, legend, width, theme) {
  const { top, height, numbers, mark } = RAMP_PLACE;
  const { x, length } = rampPlace(legend, width);
  pen.text(rampTitle(legend), 16, top + height / 2, { color: theme.text, ...TITLE_STYLE_OF_RAMP });
  for (let step = 0; step < LEGEND_STEPS; step += 1) {
    const shade = step / (LEGEND_STEPS - 1);
    const fill = legend.ramp === "veil" ? veilColor(shade) : legend.ramp === "signed" ? divergingColor(2 * shade - 1, theme)
      : rampColor(shade, theme);
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
}

/** Below this width the text of a legend has up to four lines, else two. */
const NARROW = 640;

// attention_data.js

/** One attention call of the payload. */
class AttentionData {
  constructor(entry, number, axes, masks, others = [entry]) {
    this.entry = entry;
    this.kind = entry.kind;
    this.others = others; // all entries of the document, which decide what this one is called
    this.number = number;
    this.queries = axes[entry.queries];
    this.keys = axes[entry.keys];
    this.heads = entry.heads;
    this.maskEntry = entry.visible === null ? null : masks[entry.visible];
    this.codes = null;
    this.exact = null;
    this.visible = null;
    this.overview = null;
    this.measures = {}; // factors of the weights, by what their product is
    this.thumbnailKinds = new Set(); // what the small maps show that is no weight
    this.ready = null;
    this.decoded = false;
  }

  get label() {
    return say("record_label", { layer: this.entry.layer, kind: kindText(this) });
  }

  get large() {
    return this.entry.overview !== null;
  }

  /** Whether one query, which stands for no part of a text, weighs a whole input: that of pooling, from which a label is told. */
  get pools() {
    return this.entry.name === "pooling" && this.queries.length === 1;
  }

  /** `say` of this record: of pooling, words that do not make its query a word that looks at others, where there are such. */
  say(key, values = {}) {
    const pooled = /** @type {any} */ (key + "Pooled");
    return say(this.pools && pooled in WORDS ? pooled : key, values);
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
    for (const [name, measure] of Object.entries(entry.measures ?? {})) {
      this.measures[name] = { shape: measure.shape, values: await decodeNumbers(measure) };
    }
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
    if (app.view.name === "walk" && !app.options.fetchSteps) return null;
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
      make("span", { class: "pair" }, action("\u25c2", say("previousHead"), () => app.selection.nextHead(-1)), action("\u25b8", say("nextHead"), () => app.selection.nextHead(1))),
      label && make("span", { class: "label", text: labelText(label, app.record), title: noiseText(Boolean(app.record.entry.statistics)) })].filter(Boolean);
  }

  /** In what order the grid shows heads. */
  order() {
    const { app } = this;
    const options = ordersOf(app.records).map((order) => [order, say(/** @type {any} */ (`order_${order}`))]);
    return choice(say("order"), app.state.order, options, (value) => app.set({ order: value }));
  }

  /** Whether each map of the grid has its own scale. */
  range() {
    const { app } = this;
    return choice(say("range"), app.state.range, [["each", say("range_each")], ["one", say("range_one")]], (value) => app.set({ range: value }));
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
    const group = make("div", { class: "heads", role: "group", "aria-label": say("heads") }, make("span", { class: "name", text: say("heads") }));
    for (let head = 0; head < app.record.heads; head += 1) {
      group.append(headToggle(head, shown.includes(head), app.theme,
        (event) => (event.detail === 2 || event.shiftKey ? app.set({ head }) : app.selection.toggleHead(head))));
    }
    const every = shown.length === app.record.heads;
    if (app.record.heads > 1) {
      group.append(action(say(every ? "none" : "all"), say(every ? "hideAllHeads" : "showAllHeads"),
        () => app.set({ heads: every ? [] : Array.from({ length: app.record.heads }, (_, head) => head) })));
    }
    return group;
  }

  /** Plays the sound that the keys are of, where the payload carries it. */
  play() {
    const { app } = this;
    if (!app.record.keys.sound) return null;
    const playing = app.player.plays(app.record.keys);
    const text = say(playing ? "stopSound" : "playSound");
    return action(`${playing ? "\u25a0" : "\u25b6"} ${text}`, text, () => app.view.toggle(app));
  }

  /** What is shown in place of weights, where a record carries it. */
  measure() {
    const { app } = this;
    const names = Object.keys(app.record.measures);
    if (!names.length) return null;
    return choice(say("measure"), app.state.measure,
      ["weights", ...names].map((name) => [name, say({ norms: "measure_norms", contributions: "measure_contributions" }[name] ?? "measure_weights")]),
      (value) => app.set({ measure: value }));
  }

  /** Only where a map is larger than its room; see `Viewer.resize`. */
  zoom() {
    const { app } = this;
    return make("span", { class: "pair zoom", hidden: true }, action("\u2212", say("zoomOut"), () => app.zoom.by(1 / 1.5)),
      action("+", say("zoomIn"), () => app.zoom.by(1.5)), action(say("fitText"), say("fit"), () => app.zoom.fit()));
  }

  overlay() {
    const { app } = this;
    return choice(say("overlay"), app.state.overlay, ["colours", "veil"].map((name) => [name, say(/** @type {any} */ (`overlay_${name}`))]), (value) => app.set({ overlay: value }));
  }

  pooling() {
    const { app } = this;
    return choice(say("overview"), app.state.pooling, POOLINGS.map((pooling) => [pooling, poolingText(pooling)]), (value) => app.set({ pooling: value }));
  }

  findings() {
    const { app } = this;
    const found = app.record.overview?.places() ?? [];
    if (!found.length) return null;
    return choice(say("goTo"), "", [["", say("findings", { count: found.length })], ...found.map((one, number) => [number, one.text])], (value) => {
      if (value !== "") app.zoom.toFinding(found[Number(value)]);
    });
  }

  /** The head whose calculation is shown, where a server gives that of any head. */
  stepsHead() {
    const { app } = this;
    if (!app.options.fetchSteps || !app.record || app.record.heads === 1) return null;
    const options = Array.from({ length: app.record.heads }, (_, head) => [head, say("headNumber", { head })]);
    return choice(say("head"), app.state.head, options, (value) => app.set({ head: Number(value), kept: null }));
  }

  steps() {
    const { app } = this;
    if (app.steps.length < 2 || (app.options.fetchSteps && app.records.length)) return null;
    return choice(say("calculation"), app.state.steps, app.steps.map((steps, number) => [number, middleText(steps.entry.name, 40), steps.entry.name]), (value) => {
      app.state.steps = Number(value);
      app.view.follow(app);
      app.set({ kept: null });
    });
  }
}

// explained.js

/** The height of the axis name above the tokens of a map. */
const AXIS_NAME = 18;

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
    { title: say("cardQuery"), text: app.record.say("cardRow", names), box: grown(around(first, at(row, table.columns - 1)), { left: Math.min(90, first.x, left) }) },
    { title: say("cardKey"), text: say("cardColumn", names), box: grown(around(at(0, column), at(table.rows - 1, column)), { top: view.name === "pattern" ? top - AXIS_NAME : 0 }) },
    { title: say("cardWeight"), text: rowsAddUp(table) ? say("cardCell", names) : names.sentence, box: at(row, column) },
  ];
}

/** Two columns with lines between them. */
function ofLines(app, pair, names) {
  const [query, key] = [app.view.place(app, { side: "query", row: pair.row }), app.view.place(app, { side: "key", column: pair.column })];
  const [x, y] = [(query.x + query.width + key.x) / 2, (query.y + key.y + query.height) / 2];
  return [
    { title: say("cardQuery"), text: app.record.say("cardLeft", names), box: query },
    { title: say("cardKey"), text: say("cardRight", names), box: key },
    { title: say("cardWeight"), text: say("cardLine", names), box: { x: x - 16, y: y - 12, width: 32, height: 24 } },
  ];
}

/** Words or patches that are shaded. */
function ofShades(app, pair, names) {
  const [query, key] = [app.view.place(app, { side: "query", row: pair.row }), app.view.place(app, { side: "key", column: pair.column })];
  return [
    { title: say("cardQuery"), text: app.record.say("cardPoint", names), box: query },
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
  const table = spokenTable(app) ?? app.table();
  const known = { row: pair.row ?? mostSurprising(table)?.row ?? 0, column: pair.column ?? 0 };
  const names = { query: `\u2068${shortText(table.rowText(known.row), 20)}\u2069`, key: `\u2068${shortText(table.columnText(known.column), 20)}\u2069`,
    sentence: sayOfRow(table, known.row, known.column).text };
  return [...cards(app, known, names), ...ofHeads(app)];
}

// row_bars.js

const BAR_STEP = 22;

/** The room that the bars of a row need beside a map, in pixels. */
const BARS_ROOM = { width: 270, gap: 40, height: (NAMED + 4) * BAR_STEP };

/** Whom a query looks at, as bars: the strongest keys, the others together, and the mark of an even share. */
function drawRowBars(app, pen, table, row, { x, y }) {
  const { theme } = app;
  const order = byWeight(table, row);
  if (!order.length) return;
  const name = 96;
  const length = BARS_ROOM.width - name - 48;
  const most = table.value(row, order[0]);
  const title = { size: 13, bold: true };
  pen.text(fitText(table.record.say("looksAtTitle", { query: `\u2068${shortText(table.rowText(row))}\u2069` }), BARS_ROOM.width, title), x, y, { color: theme.text, ...title });
  const even = evenShare(table, row);
  const marked = even !== null && most > 0 && even <= most;
  const at = x + name + (length * (even ?? 0)) / most;
  const bar = (line, text, value, style) => {
    const middle = y + (line + 1.2) * BAR_STEP;
    pen.text(fitText(text, name - 8, { size: 12 }), x + name - 8, middle, { color: style.text, size: 12, align: "end" });
    const wide = most > 0 ? (length * Math.min(value, most)) / most : 0;
    pen.rect(x + name, middle - 6, Math.max(1, wide), 12, { fill: style.fill, stroke: theme.border, radius: 2 });
    pen.text(shortWeight(value), Math.max(x + name + wide, marked ? at : 0) + 6, middle, { color: style.text, size: 12 });
  };
  const first = order.slice(0, NAMED);
  first.forEach((column, line) => bar(line, shortText(table.columnText(column)), table.value(row, column), { text: theme.text, fill: rampColor(table.shade(row, column, app.state.scale), theme) }));
  const rest = order.slice(NAMED);
  if (rest.length) {
    const sum = rest.reduce((total, column) => total + table.value(row, column), 0);
    bar(first.length, say("others", { count: rest.length }), sum, { text: theme.muted, fill: theme.surface });
  }
  if (!marked) return;
  const foot = y + (first.length + (rest.length ? 1.8 : 0.8)) * BAR_STEP;
  pen.path([[at, y + 0.6 * BAR_STEP], [at, foot + 4]], { color: theme.text, lineWidth: 1, dash: [3, 3] });
  pen.text(say("evenMark", { weight: shortWeight(Number(even)) }), at, foot + 12, { color: theme.muted, size: 11 });
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
    const kinds = [[ZERO, table.hasZero], [MASKED, table.hasMasked], [MISSING, table.hasMissing]].filter(([, has]) => has).map(([kind]) => kind);
    const perRow = app.state.scale === "row";
    return { ramp: table.signed ? "signed" : "map", scale: app.state.scale, title: perRow ? say("partOfRow") : measureText(table),
      largest: perRow ? null : table.end, even: perRow ? null : evenShareOfAll(table), samples: samplesOf(kinds),
      text: this.legendText(app, table) };
  }

  /** What was done to the weights that are shown. */
  legendText(app, table) {
    const { scale } = app.state;
    return [scale === "root" || scale === "log" ? scaleText(scale) : "", mergedText(table) && say("mergedWords"), hiddenText(table).replace(/^ \u00b7 /, ""),
      specialText(table)].filter(Boolean).join(" \u00b7 ");
  }

  activate(app, item) {
    app.selection.toggleRow(item.row);
  }

  /** Whether an item is one of the shown table. */
  has(app, item) {
    const table = app.table();
    return (item.row ?? 0) < table.rows && (item.column ?? 0) < table.columns;
  }
}

/** What the shown special tokens are, such as [CLS] and [SEP]. */
function specialText(table) {
  const { keys } = table.record;
  const shown = table.columnGroups.filter((group) => keys.isSpecial(group)).map(([start]) => shortText(keys.text(start), 12));
  const tokens = [...new Set(shown)].slice(0, 4).join(", ");
  return tokens && keys.kind === "tokens" ? say("specialNote", { tokens }) : "";
}

/** Samples of the legend, of kinds of cells that are no weights. */
const samplesOf = (kinds) => [[ZERO, say("zero")], [MASKED, say("masked")], [MISSING, "NaN"]].filter(([kind]) => kinds.includes(kind));

/** Text of one cell of a table. */
function describeCell(app, table, row, column) {
  return say("cell", { query: table.rowName(row), key: table.columnName(column), weight: table.cell(row, column),
    head: app.headText(), row: table.rowGroups[row][0], column: table.columnGroups[column][0], sum: table.rowSummary(row) });
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

// tables.js

/** Most cells of the tables that are kept: twice those of the largest record that is carried whole. */
const MOST_CELLS = 2 ** 23;

/** How long what heads do is looked for at a time, and the pause between, in milliseconds. */
const [SLICE, PAUSE] = [24, 8];

/** The tables and small maps that were made for what is shown; the oldest tables are given up. */
class Tables {
  constructor(app) {
    this.app = app;
    this.tables = new Map();
    this.cells = 0; // of all tables
    this.thumbnails = new Map();
    this.thumbnailStyle = ""; // in which they were drawn
    this.readOf = null; // the records of which it is found what heads do, how many are done, when the last slice ended
    this.read = this.readUntil = 0;
    this.frameStart = 0; // when the picture that is drawn was begun, in milliseconds
  }

  forget() {
    this.tables.clear();
    this.cells = 0;
    this.thumbnails.clear();
  }

  /** The weights of a head as they are shown; null is the mean of all heads. */
  of(head, record, { words, hideSpecial, measure = "weights" }) {
    const used = record.heads === 1 ? 0 : head;
    const key = `${record.number}|${used}|${words}|${hideSpecial}|${measure}`;
    let table = this.tables.get(key);
    if (!table) {
      table = new Table(record, used, { words, hideSpecial, measure });
      this.cells += table.values.length;
      for (const [name, oldest] of this.tables) {
        if (this.cells <= MOST_CELLS) break;
        this.tables.delete(name);
        this.cells -= oldest.values.length;
      }
    }
    this.tables.delete(key);
    this.tables.set(key, table);
    return table;
  }

  /** Whether what every head does is known; else some more of it is found, for a moment, and a new picture is asked for. */
  allRead() {
    const start = performance.now();
    const { records } = this.app;
    if (this.readOf !== records) [this.readOf, this.read, this.readUntil] = [records, 0, 0];
    if (start - this.readUntil < PAUSE && this.read < records.length) return false;
    for (; this.read < records.length; this.read += 1) {
      const record = records[this.read];
      if (!record.decoded) {
        record.decode().then(() => this.app.changed());
        return false;
      }
      for (let head = 0; head < record.heads; head += 1) {
        if (performance.now() - start > SLICE) {
          this.readUntil = performance.now();
          this.app.changed();
          return false;
        }
        statisticsOf(record, head);
      }
    }
    return true;
  }

  /** A small map of a head, whose last colour is a weight or the head's largest; null while there is no time to make it in this frame. */
  thumbnail(record, head, most) {
    const scale = withoutRows(this.app.state.scale);
    const style = `${scale} ${this.app.state.range} ${this.app.theme.name}`;
    if (style !== this.thumbnailStyle) this.thumbnails.clear();
    this.thumbnailStyle = style;
    const key = `${record.number} ${head} ${most}`;
    if (this.thumbnails.has(key)) return this.thumbnails.get(key);
    if (!record.decoded) {
      record.decode().then(() => this.app.changed());
      return null;
    }
    if (performance.now() - this.frameStart > 12) { this.app.changed(); return null; }
    if (record.large) {
      const { canvas, kinds } = record.overview.bitmap("maximum", head, scale, joinedBins(record), this.app.theme, most);
      for (const kind of kinds) record.thumbnailKinds.add(kind);
      this.thumbnails.set(key, canvas);
    } else {
      this.thumbnails.set(key, (foldsOf(record) ? veilOf : thumbnailOf)(record, head, scale, this.app.theme, most));
    }
    return this.thumbnails.get(key);
  }
}

// views/walk_view.js

/** Which numbers of all pairs the map shows at a station. */
const MAPS = { score: "scores", scale: "scaled", cap: "capped", bias: "biased", mask: "masked" };

const widthsOf = new WeakMap();

/** The width of the widest label of a calculation's rows and columns, measured once. */
function labelWidths(entry) {
  const widest = (texts) => Math.max(20, ...texts.slice(0, 500).map((text) => textWidth(shortText(text, 16), { bold: true })));
  if (!widthsOf.has(entry)) widthsOf.set(entry, { rows: widest(entry.queries), columns: widest(entry.keys) });
  return widthsOf.get(entry);
}

/** The worked calculation of one head: a map of all pairs, and beside it the stations from the input to the output. */
class WalkView extends View {
  name = "walk";

  title = say("walk");

  controls = ["record", "stepsHead", "steps"];

  help = say("walk_help");

  /** @type {WalkPanel|null} */
  panel = null;

  made = null; // the calculation that was made last

  walked = null; // and its stations

  shownKey = null; // what the elements show

  shownSteps = null;

  available(app) {
    return app.steps.length > 0 || Boolean(app.options.fetchSteps && app.records.length);
  }

  /** Whether a record can be chosen: each that a server knows the calculation of. */
  shows() {
    return true;
  }

  /** Chooses the calculation of the head that is shown, or the head of a calculation that there is. */
  settle(app) {
    const { state, steps, records } = app;
    const head = state.head ?? steps.find((one) => one.belongsTo(state.record, one.entry.head))?.entry.head ?? 0;
    const found = steps.findIndex((one) => one.belongsTo(state.record, head));
    const fetches = app.options.fetchSteps && records[state.record];
    const usable = found >= 0 && steps[found].error === null;
    if (fetches && !usable && head < records[state.record].heads) {
      const place = found >= 0 ? found : steps.length;
      steps[place] = this.fetched(app, state.record, head);
      Object.assign(state, { steps: place, head });
    } else if (usable) Object.assign(state, { steps: found, head });
    else this.follow(app);
  }

  /** The calculation of a head that a server gives. */
  fetched(app, record, head) {
    const name = `${app.recordText(app.records[record])} \u00b7 ${say("walk_head", { head })}`;
    return new StepsData(null, { record, head, name, ask: () => app.options.fetchSteps(record, head) });
  }

  /** Makes the chosen layer and head those of the calculation. */
  follow(app) {
    const { state, steps } = app;
    if (!(state.steps < steps.length)) state.steps = 0;
    const { record, head } = steps[state.steps]?.entry ?? {};
    if (app.records[record ?? -1] && head < app.records[record].heads) Object.assign(state, { record, head });
  }

  steps(app) {
    return app.steps[app.state.steps];
  }

  calculation(app) {
    const steps = this.steps(app);
    const key = JSON.stringify(app.state.trial);
    if (this.made?.steps !== steps || this.made.key !== key) this.made = { steps, key, calculation: new Calculation(steps, app.state.trial) };
    return this.made.calculation;
  }

  forget() {
    super.forget();
    this.made = this.walked = null;
  }

  /** The pair whose calculation is shown. */
  chosen(app) {
    return app.state.kept && this.has(app, app.state.kept) ? app.state.kept : this.steps(app).pair;
  }

  stations(app) {
    const steps = this.steps(app);
    const key = JSON.stringify([this.chosen(app), app.state.trial, app.state.steps]);
    if (this.walked?.key !== key || this.walked.steps !== steps) this.walked = { key, steps, stations: this.walk(app, steps) };
    return this.walked.stations;
  }

  walk(app, steps) {
    const record = app.records[steps.source?.record ?? steps.entry.record ?? -1];
    const next = record && app.records.find((one) => one.entry.layer === record.entry.layer + 1 && one.entry.kind === record.entry.kind);
    const canGo = next && (app.options.fetchSteps || app.steps.some((one) => one.belongsTo(next.number, one.entry.head)));
    return new Stations(this.calculation(app), this.chosen(app),
      { heads: record?.heads ?? null, next: canGo ? { layer: next.entry.layer, record: next.number } : null }).all();
  }

  placeOf(stations, app) {
    return Math.max(0, stations.findIndex((one) => one.id === app.state.station));
  }

  // --- the stations beside the map ---

  beside(app) {
    this.panel ??= new WalkPanel({
      station: (place) => { app.state.station = this.stations(app)[place].id; app.changed(); },
      pair: (pair) => { app.state.kept = app.cursor = pair; app.changed(); },
      trial: (changes) => { app.state.trial = this.trial(app, changes); app.changed(); },
      layer: (record) => app.show("walk", { record, head: app.state.head }),
    });
    this.shownKey = null;
    return this.panel.element;
  }

  /** The settings that differ from the model's. */
  trial(app, changes) {
    if (!changes) return null;
    const { model } = this.calculation(app);
    const all = { ...app.state.trial, ...changes };
    if (all.normalizer === undefined && all.alpha !== undefined) all.normalizer = model.normalizer;
    const differing = Object.entries(all).filter(([name, value]) => value !== model[name]);
    return differing.length ? Object.fromEntries(differing) : null;
  }

  update(app) {
    if (!this.panel) return;
    const steps = this.steps(app);
    if (steps.error !== null) { this.panel.say(say("walk_failed", { reason: steps.error })); return; }
    const pair = this.chosen(app);
    const key = JSON.stringify([app.state.steps, pair, app.state.trial, app.state.station, app.theme.name]);
    if (this.shownKey === key && this.shownSteps === steps) return;
    [this.shownKey, this.shownSteps] = [key, steps];
    const stations = this.stations(app);
    const { style } = app.frame.box;
    style.setProperty("--asks", app.theme.heads[0]);
    style.setProperty("--answers", app.theme.heads[1]);
    this.panel.carried = app.options.fetchSteps || !app.records.length ? ""
      : say("walk_carried", { names: app.steps.slice(0, 4).map((one) => shortText(one.entry.name, 40)).join(" \u00b7 ") + (app.steps.length > 4 ? " \u2026" : "") });
    this.panel.show(this.calculation(app), pair, stations, this.placeOf(stations, app), app.theme);
  }

  /** What is said while nothing is pointed at. */
  said(app) {
    const { error } = this.steps(app);
    if (error !== null) return say("walk_failed", { reason: error });
    const stations = this.stations(app);
    return stations[this.placeOf(stations, app)].sentence;
  }

  /** What is said of the station, or of the pair that is pointed at. */
  sentence(app, item) {
    return { text: item ? this.describe(app, item) : this.said(app), shares: "" };
  }

  /** What is exported: the map, and the stations below it. */
  sheet(app) {
    if (this.steps(app).error !== null) return null;
    return walkSheet(app, this, this.stations(app));
  }

  // --- the map ---

  mapName(app) {
    const name = MAPS[app.state.station] ?? "weights";
    return name === "masked" || name === "scores" || name === "weights" || this.steps(app).has(name) ? name : "scaled";
  }

  geometry(app) {
    const steps = this.steps(app);
    const { width } = app.area;
    const labels = labelWidths(steps.entry);
    const left = Math.min(labels.rows + 14, width * 0.36);
    const cell = clamp((width - left - 12) / Math.max(1, steps.columns), 10, 44);
    const column = Math.min(90, labels.columns);
    const flat = column + 8 <= cell;
    const top = 40 + (flat ? 6 : column);
    const tall = Math.min(cell, 30);
    return { steps, left, top, cell, tall, flat, bottom: top + steps.rows * tall };
  }

  size(app) {
    const place = this.geometry(app);
    return { width: Math.max(app.area.width, place.left + place.steps.columns * place.cell + 8), height: place.bottom + 12 };
  }

  draw(app, pen, win) {
    const place = this.geometry(app);
    const { steps, left, top, cell, tall } = place;
    const { theme } = app;
    if (!steps.rows || !steps.columns) return;
    const name = this.mapName(app);
    const matrix = this.calculation(app).map(name);
    pen.text(fitText(say(/** @type {any} */ (`walk_map_${name}`)), app.area.width - 20, { size: 13, bold: true }), 10, 12, { color: theme.text, size: 13, bold: true });
    const [low, high] = finiteRange(matrix);
    const largest = Math.max(Math.abs(low), Math.abs(high));
    const [firstRow, firstColumn] = [Math.max(0, Math.floor((win.y - top) / tall)), Math.max(0, Math.floor((win.x - left) / cell))];
    for (let row = firstRow; row < Math.min(steps.rows, Math.ceil((win.y + win.height - top) / tall)); row += 1) {
      for (let column = firstColumn; column < Math.min(steps.columns, Math.ceil((win.x + win.width - left) / cell)); column += 1) {
        const hidden = name === "weights" && this.calculation(app).row(row).masked[column] === -Infinity;
        const value = hidden ? -Infinity : matrix[row * steps.columns + column];
        this.drawCell(app, pen, place, value, row, column, largest ? value / largest : 0, name === "weights");
      }
    }
    this.drawLabels(app, pen, place);
    const item = this.chosen(app);
    ring(pen, left + item.column * cell, top + item.row * tall, cell, tall, theme.accent, theme);
  }

  drawCell(app, pen, place, value, row, column, share, isAmount) {
    const [x, y] = [place.left + column * place.cell, place.top + row * place.tall];
    const { cell, tall } = place;
    if (value === -Infinity) { pen.hatch(x, y, cell - 1, tall - 1, app.theme); return; }
    if (!Number.isFinite(value)) { pen.cross(x, y, cell - 1, tall - 1, app.theme); return; }
    const fill = (isAmount ? rampColor : divergingColor)(share, app.theme);
    pen.rect(x, y, cell - 1, tall - 1, { fill });
    if (cell >= 34 && tall >= 14) {
      pen.text(Math.abs(value) >= 100 ? value.toFixed(0) : value.toFixed(2).replace("-", "\u2212"), x + cell / 2 - 0.5, y + tall / 2,
        { color: inkOn(fill), size: 11, align: "center" });
    }
  }

  drawLabels(app, pen, place) {
    const { steps, left, top, cell, tall, flat } = place;
    const item = this.chosen(app);
    const { theme } = app;
    const mark = (chosen, color) => ({ color: chosen ? color : theme.text, bold: chosen });
    const rowStep = Math.ceil(12 / tall);
    steps.entry.queries.forEach((text, row) => {
      if (row !== item.row && (row % rowStep || Math.abs(row - item.row) < rowStep)) return;
      const style = mark(row === item.row, theme.heads[0]);
      pen.text(fitText(shortText(text, 16), left - 12, style), left - 8, top + (row + 0.5) * tall, { ...style, align: "end" });
    });
    const columnStep = Math.ceil(12 / cell);
    steps.entry.keys.forEach((text, column) => {
      if (column !== item.column && (column % columnStep || Math.abs(column - item.column) < columnStep)) return;
      const style = mark(column === item.column, theme.heads[1]);
      const x = left + (column + 0.5) * cell;
      if (flat) pen.text(shortText(text, 16), x, top - 10, { ...style, align: "center" });
      else pen.text(fitText(shortText(text, 16), top - 42, style), x, top - 6, { ...style, angle: -90 });
    });
  }

  hit(app, x, y) {
    const { steps, left, top, cell, tall } = this.geometry(app);
    if (y < top) return null;
    const row = Math.floor((y - top) / tall);
    // A label of a row keeps the word that is looked at.
    const column = x < left ? this.chosen(app).column : Math.floor((x - left) / cell);
    return row < steps.rows && column < steps.columns ? { row, column } : null;
  }

  place(app, item) {
    const { left, top, cell, tall } = this.geometry(app);
    return { x: left + item.column * cell, y: top + item.row * tall, width: cell, height: tall };
  }

  start(app) {
    return { ...this.chosen(app) };
  }

  has(app, item) {
    const steps = this.steps(app);
    return item.row < steps.rows && item.column < steps.columns;
  }

  move(app, item, dx, dy) {
    const steps = this.steps(app);
    const moved = { row: clamp(item.row + dy, 0, steps.rows - 1), column: clamp(item.column + dx, 0, steps.columns - 1) };
    app.state.kept = moved;
    return moved;
  }

  activate(app, item) {
    app.state.kept = { ...item };
  }

  describe(app, item) {
    const steps = this.steps(app);
    const row = this.calculation(app).row(item.row);
    const masked = row.masked[item.column] === -Infinity;
    const parts = PAIR_STEPS.filter((name) => steps.has(name)).map((name) => {
      const note = masked && (name === "masked" || name === "weights") ? ` (${say("masked")})` : "";
      return `${say(/** @type {any} */ (`walk_name_${name}`))} ${formatNumber(row[name][item.column])}${note}`;
    });
    if (this.calculation(app).isChanged) parts.push(say("walk_name_truth", { value: formatNumber(row.truth[item.column]) }));
    return `${quoted(steps.entry.queries[item.row])} \u2192 ${quoted(steps.entry.keys[item.column])}: ${parts.join(", ")}`;
  }

  legend(app) {
    const name = this.mapName(app);
    const calculation = this.calculation(app);
    const matrix = calculation.map(name);
    const [low, high] = finiteRange(matrix);
    const samples = [];
    if (calculation.map("masked").includes(-Infinity) && (name === "masked" || name === "weights")) samples.push([MASKED, say("masked")]);
    if (matrix.some((value) => !Number.isFinite(value) && value !== -Infinity)) samples.push([MISSING, say("walk_not_finite")]);
    const largest = plainNumber(Math.max(Math.abs(low), Math.abs(high)));
    const text = name === "weights" ? say("walk_scale_amounts", { high: plainNumber(high) }) : say("walk_scale_signs", { low: `\u2212${largest}`, high: largest });
    return { ramp: null, samples, text: [text, this.changesText(calculation)].filter(Boolean).join(" \u00b7 ") };
  }

  /** What is not as in the model, in words; "" where all is. */
  changesText(calculation) {
    if (!calculation.isChanged) return "";
    const { used } = calculation;
    const texts = { temperature: () => plainNumber(used.temperature), scale: () => plainNumber(used.scale), normalizer: () => normalizerName(used.normalizer),
      alpha: () => plainNumber(used.alpha), mask: () => say(used.mask === "none" ? "walk_mask_nothing" : "walk_mask_causal") };
    const changes = Object.entries(texts).filter(([name]) => calculation.differs(name)).map(([name, text]) => `${say(/** @type {any} */ (`walk_${name}`))} ${text()}`);
    return say("walk_experiment", { changes: changes.join(" \u00b7 ") });
  }
}

// picture.js

/** The room above a view on the screen, in pixels: the controls above it say what it shows. */
const TOP = 4;

/** The height of the heading above a saved view. */
const HEADING = 28;

/** The height of the document's title, which a saved picture has above the heading. */
const TITLE = 26;

/** Around what is drawn, in pixels. */
const MARGIN = 12;

/** Room for a legend's numbers and words. */
const LEAST_WIDTH = 480;

const HEADING_STYLE = { size: 13, bold: true };

const TITLE_STYLE = { size: 16, bold: true };

/** What is seen on the screen: the view and its legend. */
function paint(app, pen) {
  const { theme, area } = app;
  pen.rect(0, 0, area.width, area.height + TOP + app.legendHeight, { fill: theme.background });
  paintPart(app, pen, { x: 0, y: 0, ...area }, TOP, undefined);
}

/** Where an item is on the page, in pixels of the window. */
function locate(app, item) {
  const box = app.view.place(app, item);
  const canvas = app.frame.canvas.getBoundingClientRect();
  const win = app.window();
  return { x: canvas.left + box.x - win.x, y: canvas.top + TOP + box.y - win.y, width: box.width, height: box.height };
}

/** A part of the view that is seen, below a place and above the legend, of whose text so many lines are shown. */
function paintPart(app, pen, { x, y, width, height }, top, room) {
  const { theme } = app;
  const win = app.window();
  pen.clip(0, top, width, height, () => {
    pen.shift(-win.x - x, top - win.y - y, () => app.view.draw(app, pen, win));
  });
  pen.path([[0, top + height + 0.5], [width, top + height + 0.5]], { color: theme.border });
  pen.shift(0, top + height + 2, () => drawLegend(pen, app.view.legend(app), width, theme, room));
}

/** The picture that is saved: what is seen without the empty rest around it, below the document's title. */
function croppedPicture(app) {
  const { area, theme } = app;
  const win = app.window();
  const bounds = new BoundsPen(theme.background);
  bounds.clip(0, 0, area.width, area.height, () => bounds.shift(-win.x, -win.y, () => app.view.draw(app, bounds, win)));
  const found = bounds.box.left <= bounds.box.right ? bounds.box : { left: 0, top: 0, right: 0, bottom: 0 };
  const title = visibleText(app.payload.title);
  const words = Math.max(textWidth(title, TITLE_STYLE), textWidth(app.heading(), HEADING_STYLE)) + 20;
  const width = Math.ceil(Math.min(area.width, Math.max(LEAST_WIDTH, words, found.right - found.left + 2 * MARGIN)));
  const y = Math.max(0, Math.floor(found.top) - MARGIN / 2);
  const part = { x: Math.floor(found.left) - MARGIN, y, width, height: Math.ceil(Math.min(area.height, found.bottom + MARGIN / 2)) - y };
  const legend = new BoundsPen(theme.background);
  drawLegend(legend, app.view.legend(app), width, theme, Infinity);
  const height = TITLE + HEADING + part.height + 2 + Math.max(0, legend.box.bottom) + MARGIN;
  return {
    width, height: Math.ceil(height), top: -TITLE,
    /** With a pen whose upper left corner is (0, top). */
    paint(pen) {
      pen.rect(0, -TITLE, width, Math.ceil(height), { fill: theme.background });
      pen.text(fitMiddle(title, width - 20, TITLE_STYLE), 10, -TITLE / 2 + 2, { color: theme.text, ...TITLE_STYLE });
      pen.text(fitMiddle(app.heading(), width - 20, HEADING_STYLE), 10, 14, { color: theme.text, ...HEADING_STYLE });
      paintPart(app, pen, part, HEADING, Infinity);
    },
  };
}

// views/grid_view.js

/** Layers × heads, each a small map, with what the head does. */
class GridView extends View {
  name = "grid";

  title = say("grid");

  controls = ["order", "range", "scale"];

  scalesRows = false;

  help = say("grid_help");

  available(app) {
    return app.records.length > 0 && (app.records.length > 1 || app.records[0].heads > 1);
  }

  forget() {
    this.kept = null;
  }

  /** The order that is shown: by layer until all records are read, which other orders need. */
  order(app) {
    const wanted = ordersOf(app.records).includes(app.state.order) ? app.state.order : "layer";
    return wanted === "layer" || app.tables.allRead() ? wanted : "layer";
  }

  geometry(app) {
    const order = this.order(app);
    const key = `${order} ${app.area.width} ${app.area.height}`;
    if (this.kept?.key !== key || this.kept.records !== app.records) {
      const before = this.kept;
      this.kept = { key, records: app.records, layout: gridLayout(app.records, order, app.area) };
      // The scrolled size is that of the layout.
      if (before?.records === app.records && before.layout.order !== order) setTimeout(() => app.resize(), 0);
    }
    return this.kept.layout;
  }

  size(app) {
    const { width, height } = this.geometry(app);
    return { width, height };
  }

  draw(app, pen, win) {
    const layout = this.geometry(app);
    for (const cell of layout.cells) {
      const seen = cell.y + cell.height + cell.caption > win.y && cell.y - cell.name < win.y + win.height
        && cell.x + cell.room > win.x && cell.x < win.x + win.width;
      if (seen) this.drawHead(app, pen, cell, layout.order);
    }
    const item = app.active();
    const chosen = item && layout.cells.find((cell) => cell.row === item.row && cell.column === item.column);
    if (chosen) ring(pen, chosen.x, chosen.y, chosen.width, chosen.height, app.theme.focus, app.theme);
    for (const { texts, x, y, room } of layout.titles) {
      const text = texts.find((one) => textWidth(one, { size: 12, bold: true }) <= room) ?? texts.at(-1);
      pen.text(fitText(text, room, { size: 12, bold: true }), x, y, { color: app.theme.text, size: 12, bold: true });
    }
    if (layout.order === "layer") this.drawNames(app, pen, win, layout, chosen);
  }

  /** The names of layers and heads, which do not scroll away. */
  drawNames(app, pen, win, { left, top, side, pitch, rows, blocks }, chosen) {
    const { theme } = app;
    pen.rect(win.x, win.y, left - 2, win.height, { fill: theme.background });
    rows.forEach(({ title, subtitle, y, height }, line) => {
      const middle = y + height / 2;
      const below = subtitle ? wrapText(subtitle, left - 14, { size: 11 }).slice(0, 2) : [];
      const first = middle - 7 * below.length;
      pen.text(say("layerNumber", { layer: title }), win.x + 10, first, { color: theme.text, size: 12, bold: chosen?.line === line });
      below.forEach((text, number) => pen.text(fitText(text, left - 14, { size: 11 }), win.x + 10, first + 14 + 13 * number, { color: theme.muted, size: 11 }));
    });
    pen.rect(win.x, win.y, win.width, top - 4, { fill: theme.background });
    pen.clip(win.x + left - 4, win.y, win.width - left + 4, top, () => {
      for (const { title, x, heads } of blocks) {
        if (title) pen.text(fitText(title, heads * pitch, { size: 12, bold: true }), x, win.y + 10, { color: theme.text, size: 12, bold: true });
        for (let head = 0; head < heads; head += 1) {
          const at = x + head * pitch;
          pen.text(pitch > 58 ? say("headNumber", { head }) : String(head), at + side / 2, win.y + top - 13,
            { color: theme.text, size: 11, align: "center", bold: chosen?.column === head && chosen.x === at });
        }
      }
    });
  }

  drawHead(app, pen, cell, order) {
    const { x, y, width, height, room, caption, name } = cell;
    const record = app.records[cell.row];
    const { theme } = app;
    const image = app.tables.thumbnail(record, cell.column, this.most(app, record));
    if (name) {
      const text = say("grid_head", { layer: record.entry.layer, head: cell.column });
      pen.text(fitText(differInKind(app.records) ? `${text} \u00b7 ${kindText(record)}` : text, room, { size: 11 }), x, y - 8, { color: theme.muted, size: 11 });
    }
    if (!image) {
      pen.rect(x, y, width, height, { fill: theme.surface, stroke: theme.border });
      return;
    }
    if (foldsOf(record)) this.drawPicture(pen, record, x, y, width, height);
    pen.picture(image, x, y, width, height, { smooth: image.width > width });
    pen.rect(x, y, width, height, { stroke: theme.border });
    if (!caption) return;
    const point = this.pointText(record);
    const texts = [false, true].map((brief) => [captionOf(record, cell.column, order, brief), point].filter(Boolean).join(" \u00b7 "));
    const text = texts.find((one) => textWidth(one, { size: 11 }) <= room) ?? fitText(texts[1], room, { size: 11 });
    pen.text(text, x, y + height + 8, { color: theme.text, size: 11 });
  }

  /** The image that the keys are, below the veil. */
  drawPicture(pen, record, x, y, width, height) {
    const { picture, entry } = record.keys;
    if (!picture) return;
    const [across, down] = [picture.width / entry.size[0], picture.height / entry.size[1]];
    const [x0, y0, x1, y1] = entry.box;
    pen.picture(picture, x, y, width, height, { smooth: true, cut: [x0 * across, y0 * down, (x1 - x0) * across, (y1 - y0) * down] });
  }

  /** How many pairs a point of a small map stands for; "" for one. */
  pointText(record) {
    const [down, across] = sizeOfPoint(record);
    return down === 1 && across === 1 ? "" : say("grid_point", { down, across });
  }

  /** The weight of the last colour; null where each map has its own. */
  most(app, record) {
    if (app.state.range !== "one" || foldsOf(record)) return null;
    return app.records.reduce((most, one) => Math.max(most, largestOf(one)), 0);
  }

  hit(app, x, y, win) {
    const { left, top, order, cells } = this.geometry(app);
    if (order === "layer" && (x < win.x + left || y < win.y + top)) return null;
    const found = cells.find((cell) => inside({ x: cell.x, y: cell.y - cell.name, width: cell.room, height: cell.name + cell.height + cell.caption + 4 }, x, y));
    return found ? { row: found.row, column: found.column } : null;
  }

  cell(app, item) {
    const { cells } = this.geometry(app);
    return cells.find((cell) => cell.row === item.row && cell.column === item.column) ?? cells[0];
  }

  place(app, item) {
    const { x, y, width, height } = this.cell(app, item);
    const { left, top } = this.geometry(app);
    return { x, y, width, height, frozenLeft: left, frozenTop: top };
  }

  start(app) {
    return { row: app.state.record, column: app.state.head ?? 0 };
  }

  has(app, item) {
    return item.column < (app.records[item.row]?.heads ?? 0);
  }

  move(app, item, dx, dy) {
    const { cells, order } = this.geometry(app);
    const from = this.cell(app, item);
    const line = order === "layer" ? cells.filter((cell) => cell.line === from.line) : cells;
    const to = dy ? neighbour(cells, from, dy) : line[clamp(line.indexOf(from) + dx, 0, line.length - 1)];
    return { row: to.row, column: to.column };
  }

  activate(app, item) {
    app.show(app.records[item.row].large ? "long" : "pattern", { record: item.row, head: item.column });
  }

  describe(app, item) {
    const record = app.records[item.row];
    const { layer, name } = record.entry;
    const parts = [`${say("grid_head", { layer, head: item.column })} \u00b7 ${kindText(record)}${name ? ` (${shortText(name, 60)})` : ""}`];
    if (!record.decoded) return parts[0];
    parts.push(...this.does(record, item.column));
    if (!record.large) parts.push(...this.numbersText(app, record, item.column));
    const change = lossChange(record, item.column);
    if (change !== null) parts.push(say("grid_loss_long", { change: signed(change) }));
    parts.push(this.reductionText([record]));
    return parts.join("; ");
  }

  /** What a head does, here and over the texts of a survey. */
  does(record, head) {
    const here = headLabels(record, head).slice(0, 3).map((label) => (label.chance === null || label.name === "even" ? labelText(label, record)
      : `${labelText(label, record)} ${say("grid_chance", { percent: Math.round(100 * label.chance) })}`));
    const surveyed = surveyLabel(record, head);
    return [
      here.length ? here.join(", ") : say(record.large ? "grid_none_found" : "grid_none_clear"),
      surveyed ? say("grid_surveyed", { what: labelText(surveyed, record) }) : "",
    ].filter(Boolean);
  }

  /** The largest weight and the entropy of a head. */
  numbersText(app, record, head) {
    // Of single tokens, as the maps are.
    const table = app.table(head, record, { words: false, hideSpecial: false });
    let best = -1;
    for (let cell = 0; cell < table.values.length; cell += 1) {
      if (table.kinds[cell] !== MASKED && !(table.values[cell] <= table.values[best])) best = cell;
    }
    if (best < 0) return [say("grid_blind")];
    const [row, column] = [Math.floor(best / table.columns), best % table.columns];
    const { entropy, queries } = statisticsOf(record, head);
    const relative = relativeEntropy(record, head);
    const largest = say("grid_largest", { weight: table.cell(row, column), query: quoted(table.rowText(row)), key: quoted(table.columnText(column)) });
    if (!queries) return [largest];
    const mean = { entropy: entropy.toFixed(2), queries };
    return [largest, relative === null ? say("grid_entropy_alone", mean) : say("grid_entropy_long", { ...mean, percent: Math.round(100 * relative) })];
  }

  /** Of how many pairs a point of the maps is the largest. */
  reductionText(records) {
    const sizes = records.map(sizeOfPoint);
    const [first] = sizes;
    if (sizes.every(([down, across]) => down === 1 && across === 1)) return say("grid_single");
    const alike = sizes.every(([down, across]) => down === first[0] && across === first[1]);
    const [down, across] = alike ? first : [0, 1].map((side) => Math.max(...sizes.map((size) => size[side])));
    return say(alike ? "grid_reduced" : "grid_reduced_most", { down, across });
  }

  sentence(app, item) {
    const heads = app.records.reduce((sum, record) => sum + record.heads, 0);
    return { text: item ? this.describe(app, item) : say("grid_sentence", { heads }), shares: item ? "" : say("grid_reading") };
  }

  legend(app) {
    const scale = withoutRows(app.state.scale);
    const { records } = app;
    const shown = new Set(records.flatMap((record) => [...record.thumbnailKinds]));
    const samples = samplesOf([...shown]);
    const most = records.length ? this.most(app, records[0]) : null;
    const own = most === null ? say("grid_own_scale", { times: EVEN_SHARES }) : say("grid_one_scale", { largest: formatNumber(most) });
    const surveyed = records.some((record) => record.entry.statistics);
    const folded = records.some(foldsOf) ? [say("grid_folded")] : [];
    const axes = records.every(foldsOf) ? [] : [say("grid_axes")];
    const named = records.some((record) => !foldsOf(record)) ? [noiseText(surveyed)] : [];
    return { ramp: "map", title: most === null ? say("grid_part") : undefined, scale, largest: most, samples,
      text: [own, scale === "linear" ? "" : scaleText(scale), this.reductionText(records), ...folded, ...axes, ...named].filter(Boolean).join(" \u00b7 ") };
  }
}

/** Of how many queries and keys a point is the largest weight, rounded to tenths. */
function sizeOfPoint(record) {
  return foldsOf(record) ? [1, 1] : reduction(record).map((size) => Math.round(size * 10) / 10);
}

// views/image_view.js

/** Of colours over a picture. */
const OPACITY = 0.68;

/** The heights of the small pictures above the words, the first that fits. */
const THUMBNAIL_HEIGHTS = [56, 40, 28, 0];

/** The most words that have a small picture each. */
const MOST_THUMBNAILS = 120;

/** The picture whose patches are the keys, and beside it where a word looks; above them each word with its own small picture. */
class ImageView extends RecordView {
  name = "image";

  title = say("image");

  controls = ["record", "head", "measure", "scale", "overlay", "words", "special"];

  scalesRows = false;

  help = say("imageHelp");

  shows(record) {
    return !record.large && record.keys.kind === "grid";
  }

  geometry(app) {
    const table = app.table();
    const { width, height } = app.area;
    const key = `${app.tableKey()}|${width}|${height}`;
    if (this.cache?.key === key) return this.cache.place;
    const { keys, queries } = table.record;
    const own = queries.kind === "grid" && queries.length === keys.length;
    const [imageWidth, imageHeight] = keys.entry.size;
    const strip = own ? { places: [], bottom: 0, thumbnail: null } : this.strip(table, width, height, imageWidth / imageHeight);
    const top = strip.bottom + 26;
    const room = Math.max(150, height - top - 8);
    const beside = Math.min((width - 36) / 2 / imageWidth, room / imageHeight);
    const stacked = Math.min((width - 24) / imageWidth, Math.max(room - 28, 260) / 2 / imageHeight);
    const side = beside >= stacked;
    const scale = side ? beside : stacked;
    const [wide, high] = [imageWidth * scale, imageHeight * scale];
    const left = Math.max(12, (width - (side ? 2 * wide + 12 : wide)) / 2);
    const original = { x: left, y: top };
    const overlay = side ? { x: left + wide + 12, y: top } : { x: left, y: top + high + 28 };
    const place = { table, own, words: strip.places, thumbnail: strip.thumbnail, scale, width: wide, height: high, original, overlay };
    this.cache = { key, place, thumbnails: new Map() };
    return place;
  }

  /** Places for the words, each below its small picture. */
  strip(table, width, height, aspect) {
    const texts = Array.from({ length: table.rows }, (_, row) => shortText(table.rowText(row), 24));
    for (const high of THUMBNAIL_HEIGHTS) {
      if (high && table.rows > MOST_THUMBNAILS) continue;
      const thumbnail = high ? { width: clamp(high * aspect, high / 2, 2.2 * high), height: high } : null;
      const places = [];
      let [x, y] = [12, 8];
      const tall = (thumbnail ? thumbnail.height + 4 : 0) + 22;
      for (const text of texts) {
        const wide = Math.min(Math.max((thumbnail?.width ?? 0) + 6, textWidth(text, { size: 14 }) + 10), width - 24);
        if (x > 12 && x + wide > width - 12) { x = 12; y += tall + 6; }
        places.push({ x, y, width: wide, height: tall });
        x += wide + 3;
      }
      const bottom = y + tall;
      if (bottom < height * 0.42 || !high) return { places, bottom, thumbnail };
    }
    return { places: [], bottom: 0, thumbnail: null };
  }

  size(app) {
    const place = this.geometry(app);
    return { width: app.area.width, height: place.overlay.y + place.height + 8 };
  }

  /** Where a position of the keys is drawn over the picture, or in the picture itself. */
  cell(place, position, corner = place.overlay) {
    const pixels = place.table.record.keys.pixels(position);
    if (!pixels) return null;
    const [x0, y0, x1, y1] = pixels.map((pixel) => pixel * place.scale);
    return { x: corner.x + x0, y: corner.y + y0, width: x1 - x0, height: y1 - y0 };
  }

  sums(app) {
    const { table } = this.geometry(app);
    const sums = activeSums(app, table);
    // What is before the grid (a class token) has no place on the picture and would hide the rest.
    const { leading } = table.record.keys.entry;
    const outside = sums.values.subarray(0, leading).reduce((sum, value) => sum + value, 0);
    const largest = largestSize(sums.values.subarray(leading));
    return { ...sums, largest, end: Math.max(largest, table.measure === "weights" ? (sums.divisor * EVEN_SHARES) / table.columns : 0), outside: outside / sums.divisor };
  }

  draw(app, pen) {
    const place = this.geometry(app);
    const { table, width, height, original, overlay } = place;
    const { theme } = app;
    const sums = this.sums(app);
    place.words.forEach((box, row) => this.drawQuery(app, pen, box, row, sums.rows));
    const style = { color: theme.muted, size: 12, bold: true };
    pen.text(fitText(say("imageItself"), width, style), original.x, original.y - 11, style);
    pen.text(fitText(this.heading(table, sums.rows), width, style), overlay.x, overlay.y - 11, style);
    const { picture } = table.record.keys;
    for (const corner of [original, overlay]) if (picture) pen.picture(picture, corner.x, corner.y, width, height, { smooth: true });
    this.drawOverlay(app, pen, place, sums);
    for (const corner of [original, overlay]) pen.rect(corner.x, corner.y, width, height, { stroke: theme.border });
    const item = app.active();
    for (const corner of [original, overlay]) {
      if (item?.side === "key") {
        const box = this.cell(place, item.column, corner);
        if (box) ring(pen, box.x, box.y, box.width, box.height, theme.focus, theme);
      }
      for (const row of place.own ? sums.rows : []) {
        const box = this.cell(place, row, corner);
        if (box) ring(pen, box.x + 2, box.y + 2, box.width - 4, box.height - 4, theme.accent, theme);
      }
    }
  }

  heading(table, rows) {
    if (rows.length === 1) return table.record.say("whatOne", { query: `\u2068${shortText(table.rowText(rows[0]))}\u2069` });
    return say(rows.length ? "whatSeveral" : "whatAll");
  }

  drawQuery(app, pen, box, row, rows) {
    const { theme } = app;
    const { table, thumbnail } = this.geometry(app);
    const locked = app.state.locked.includes(row);
    const chosen = locked || rows.includes(row);
    pen.rect(box.x, box.y, box.width, box.height, { fill: locked ? theme.accent : chosen ? theme.highlight : null, stroke: chosen ? theme.accent : null, radius: 4 });
    if (thumbnail && table.record.keys.picture) {
      const [x, y] = [box.x + (box.width - thumbnail.width) / 2, box.y + 3];
      pen.picture(table.record.keys.picture, x, y, thumbnail.width, thumbnail.height, { smooth: true });
      this.drawVeil(pen, table, this.thumbnailOf(app, table, row), x, y, thumbnail.width / table.record.keys.entry.size[0],
        thumbnail.height / table.record.keys.entry.size[1]);
    }
    const item = app.active();
    if (app.keyboard && item?.side === "query" && item.row === row) ring(pen, box.x, box.y, box.width, box.height, theme.focus, theme);
    pen.text(fitText(shortText(table.rowText(row), 24), box.width - 6, { size: 14, bold: chosen }), box.x + box.width / 2, box.y + box.height - 11,
      { color: locked ? theme.accentText : theme.text, size: 14, bold: chosen, align: "center" });
  }

  /** Where one query looks, as one pixel a patch. */
  thumbnailOf(app, table, row) {
    const key = `${row}|${withoutRows(app.state.scale)}|${app.state.overlay}|${app.theme.name}`;
    const { thumbnails } = this.cache;
    if (!thumbnails.has(key)) {
      const values = Float64Array.from({ length: table.columns }, (_, column) => table.value(row, column));
      const kinds = Uint8Array.from({ length: table.columns }, (_, column) => table.kind(row, column));
      thumbnails.set(key, patchCanvas(app, table, { values, kinds, end: table.endOf(largestSize(values.subarray(table.record.keys.entry.leading))) }));
    }
    return thumbnails.get(key);
  }

  /** One pixel a patch, over the part of the picture that the grid covers. */
  drawVeil(pen, table, canvas, x, y, across, down) {
    const { box } = table.record.keys.entry;
    pen.picture(canvas, x + box[0] * across, y + box[1] * down, (box[2] - box[0]) * across, (box[3] - box[1]) * down);
  }

  drawOverlay(app, pen, place, sums) {
    const { table, overlay, scale } = place;
    this.drawVeil(pen, table, patchCanvas(app, table, sums), overlay.x, overlay.y, scale, scale);
    for (let column = 0; column < table.columns; column += 1) {
      const box = sums.kinds[column] === WEIGHT ? null : this.cell(place, column);
      if (!box) continue;
      if (sums.kinds[column] === MASKED) pen.hatch(box.x, box.y, box.width, box.height, app.theme);
      if (sums.kinds[column] === MISSING) pen.cross(box.x, box.y, box.width, box.height, app.theme);
    }
  }

  hit(app, x, y) {
    const place = this.geometry(app);
    const row = place.words.findIndex((box) => inside(box, x, y));
    if (row >= 0) return { side: "query", row };
    const { entry } = place.table.record.keys;
    for (const corner of [place.original, place.overlay]) {
      const [column, line] = [((x - corner.x) / place.scale - entry.box[0]) / (entry.box[2] - entry.box[0]) * entry.columns,
        ((y - corner.y) / place.scale - entry.box[1]) / (entry.box[3] - entry.box[1]) * entry.rows].map(Math.floor);
      if (column >= 0 && column < entry.columns && line >= 0 && line < entry.rows) return { side: "key", column: entry.leading + line * entry.columns + column };
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
    if (item.side === "query") app.selection.toggleRow(item.row);
    else if (this.geometry(app).own) app.selection.toggleRow(item.column);
  }

  describe(app, item) {
    const { table } = this.geometry(app);
    if (item.side === "query") return describeRow(app, table, item.row);
    const sums = this.sums(app);
    const pixels = table.record.keys.pixels(item.column);
    const where = pixels ? say("pixels", { x0: short(pixels[0]), x1: short(pixels[2]), y0: short(pixels[1]), y1: short(pixels[3]) }) : "";
    const from = sums.rows.length === 1 ? table.rowName(sums.rows[0]) : sumText(table, sums.rows);
    return say("patchGets", { from, patch: table.columnText(item.column), where, value: receivedText(sums, item.column), head: app.headText() });
  }

  legend(app) {
    const sums = this.sums(app);
    const table = app.table();
    const scale = withoutRows(app.state.scale);
    const outside = table.record.keys.entry.leading && table.measure === "weights" ? say("outside", { percent: (100 * sums.outside).toFixed(1) }) : "";
    const veil = app.state.overlay === "veil";
    return { ramp: table.signed ? "signed" : veil ? "veil" : "map", title: measureText(table), scale, largest: sums.end / sums.divisor,
      even: evenShareOfSums(table, sums),
      samples: samplesOf([...new Set(sums.kinds)].filter((kind) => kind !== ZERO)),
      text: say("imageLegend", { what: sumText(table, sums.rows), head: app.headText(), scale: scale === "linear" ? "" : ` \u00b7 ${scaleText(scale)}`, how: table.signed ? say("imageSigned") : veil ? say("imageVeil")
          : say("imageColours", { percent: 100 * OPACITY }), outside }) };
  }
}

/** What lies over the picture, a pixel for each patch: a veil, or colours. */
function patchCanvas(app, table, { values, kinds, end }) {
  const { leading, rows, columns } = table.record.keys.entry;
  const scale = withoutRows(app.state.scale);
  const veil = app.state.overlay === "veil";
  return pixelCanvas(columns, rows, (data) => {
    for (let cell = 0; cell < rows * columns; cell += 1) {
      if (kinds[leading + cell] === MISSING) continue;
      const shade = signedShade(values[leading + cell], end, scale);
      const [channels, alpha] = table.signed ? [channelsOf(divergingColor(shade, app.theme)), 0.85 * Math.sqrt(Math.abs(shade))]
        : veil ? [[0, 0, 0], VEIL * (1 - shade)] : [channelsOf(rampColor(shade, app.theme)), OPACITY];
      for (let channel = 0; channel < 3; channel += 1) data[4 * cell + channel] = channels[channel];
      data[4 * cell + 3] = Math.round(255 * alpha);
    }
  });
}

// views/lines_view.js

/** Lines that are drawn of what is pointed at, and behind it of all. */
const MOST_LINES = 1500;

const MOST_LINES_OF_ALL = 400;

/** The part of the largest number below which there is no line, and for weights the weight itself. */
const LEAST = 0.01;

/** How near to a line the pointer must be, in pixels. */
const NEAR_LINE = 5;

/** How many numbers a tooltip lists. */
const LISTED = 4;

/** Two columns of tokens, a line for each weight by head, and a square for each head beside each token. */
class LinesView extends RecordView {
  name = "lines";

  title = say("lines");

  controls = ["record", "measure", "words", "special", "heads"];

  help = say("linesHelp");

  geometry(app) {
    const table = app.table();
    const { width, height } = app.area;
    const heads = app.record.heads > 1 ? app.shownHeads().length : 0;
    const step = clamp((height - 34) / Math.max(1, table.rows, table.columns), 18, 30);
    const squares = squareGrid(heads, step, clamp(width * 0.12, 26, 150));
    // Eight beside the lines, and room for a rounded width.
    const label = Math.min(150, width * (width < 500 ? 0.22 : 0.27), Math.max(labelWidth(table, "row", step), labelWidth(table, "column", step)) + 14);
    const bars = width < 560 ? 0 : clamp(width * 0.14, 64, 130);
    const sides = 2 * (label + squares.width + 10) + bars + 16;
    const spread = Math.max(40, Math.min(520, width - sides));
    const left = Math.max(6, (width - sides - spread) / 2) + squares.width + 8 + label;
    const right = left + spread;
    return { table, step, label, squares, several: heads > 1, top: 26, left, right, bars, labels: { query: left - 8, key: right + 8 },
      boxes: { query: left - label - 6 - squares.width, key: right + label + 6 }, bar: right + label + squares.width + 18 };
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
    const pointed = this.pointed(app);
    this.drawLines(app, pen, place, win, pointed);
    this.drawSquares(app, pen, place, win, pointed);
    if (place.bars) this.drawSums(app, pen, place, pointed.rows);
    this.drawTokens(app, pen, place, win, pointed);
    const style = { color: app.theme.muted, size: 11, bold: true };
    pen.text(say("queries"), place.labels.query, 11, { ...style, align: "end" });
    pen.text(say("keys"), place.labels.key, 11, style);
    const { rows } = pointed;
    if (place.bars) pen.text(rows.length > 1 ? say("sumOf", { count: rows.length }) : say(rows.length ? "given" : "onAverage"), place.bar, 11, style);
  }

  /** What is pointed at: queries (locked ones too), a key, a head; nothing of them where nothing is. */
  pointed(app) {
    const item = app.active();
    const rows = app.activeRows();
    const { locked } = app.state;
    const head = item?.head ?? null;
    if (item?.side === "line") return { rows: locked.length ? locked : [item.row], column: item.column, head, some: true };
    const column = item?.side === "key" ? item.column : null;
    return { rows, column, head, some: rows.length > 0 || column !== null };
  }

  /** The strongest numbers of the shown heads: those of chosen queries and of a key, or all. */
  lines(app, { rows, column, head }) {
    const heads = head === null ? app.shownHeads() : [head];
    const key = `${rows}|${column}|${heads}|${app.tableKey()}`;
    this.cache ??= new Map();
    if (this.cache.has(key)) return this.cache.get(key);
    const tables = heads.map((one) => app.table(one));
    const whole = app.table();
    const largest = tables.reduce((most, table) => Math.max(most, table.largest), 0);
    const least = whole.measure === "weights" ? LEAST : LEAST * largest;
    const found = [];
    let strongest = 0;
    tables.forEach((table, number) => {
      const from = rows.length ? rows : Array.from({ length: table.rows }, (_, row) => row);
      for (const row of from) {
        for (let one = 0; one < table.columns; one += 1) {
          if (column !== null && one !== column) continue;
          const value = table.value(row, one);
          const size = Math.abs(value);
          if (table.kind(row, one) !== WEIGHT || !(size >= least) || size === 0) continue;
          found.push([value, heads[number], row, one]);
          if (size > strongest) strongest = size;
        }
      }
    });
    const total = found.length;
    found.sort((a, b) => Math.abs(b[0]) - Math.abs(a[0]));
    const most = rows.length || column !== null ? MOST_LINES : MOST_LINES_OF_ALL;
    if (total > most) found.length = most;
    const lines = { found, largest: strongest, total };
    if (this.cache.size > 60) this.cache.clear();
    this.cache.set(key, lines);
    return lines;
  }

  /** All lines of the shown heads, faint behind what is pointed at. */
  background(app) {
    return this.lines(app, { rows: [], column: null, head: null });
  }

  /** How far the lines of a head are above or below the middle of a token. */
  shift(app, place, head) {
    const { heads } = app.record;
    return place.several ? (head / (heads - 1) - 0.5) * Math.min(8, place.step * 0.4) : 0;
  }

  drawLines(app, pen, place, win, pointed) {
    const all = this.background(app);
    const several = app.shownHeads().length > 1;
    this.drawSome(app, pen, place, win, all, pointed.some ? 0.5 : several ? 1 : 0);
    if (pointed.some) this.drawSome(app, pen, place, win, this.lines(app, pointed));
  }

  /** @param {number} faint how visible grey lines are; 0: lines have the colours of their heads */
  drawSome(app, pen, place, win, { found, largest }, faint = 0) {
    const several = app.shownHeads().length > 1;
    const { theme } = app;
    const forced = isForced(theme);
    for (let number = found.length - 1; number >= 0; number -= 1) {
      const [value, head, row, one] = found[number];
      const shift = this.shift(app, place, head);
      const [y0, y1] = [this.y(place, row) + shift, this.y(place, one) + shift];
      if (Math.max(y0, y1) < win.y || Math.min(y0, y1) > win.y + win.height) continue;
      const part = Math.sqrt(Math.abs(value) / (largest || 1));
      if (faint) {
        pen.curve(place.left, y0, place.right, y1, { color: theme.muted, lineWidth: forced ? 0.5 : 0.5 + part, alpha: forced ? 0.3 : faint * (0.05 + 0.2 * part * part) });
        continue;
      }
      const { color, dash } = headStyle(head, theme, several);
      pen.curve(place.left, y0, place.right, y1, { color: place.table.signed && !forced ? divergingColor(Math.sign(value), theme) : color, dash,
        lineWidth: 0.6 + 2.4 * part, alpha: forced ? 1 : 0.15 + 0.85 * part * part });
    }
  }

  /**
   * What the square of a head beside a token stands for. Beside a key: what the chosen queries give it, or all on average.
   * Beside a query: what it gives to the key that is pointed at, or all that it gives.
   */
  square(app, side, number, head, { rows, column }) {
    const table = app.table(head);
    if (side === "query") {
      if (column !== null && !(rows.length && !rows.includes(number))) {
        return table.kind(number, column) === MASKED ? null : table.value(number, column);
      }
      return rows.includes(number) ? table.rowSums[number] : null;
    }
    const { values, kinds, divisor } = this.received(app, head, rows);
    return kinds[number] === MASKED ? null : values[number] / divisor;
  }

  /**
   * The largest distance of a square's number from the true one.
   * @param {any} app
   * @param {any} item
   * @param {{rows: number[], column: number|null}} pointed
   */
  squareError(app, item, { rows, column }) {
    const { side, row, column: key, head } = item;
    const table = app.table(head);
    if (side === "key") {
      const { errors, divisor } = this.received(app, head, rows);
      return errors[key] / divisor;
    }
    if (column !== null && !(rows.length && !rows.includes(row))) return table.error(row, column);
    let error = 0;
    for (let one = 0; one < table.columns; one += 1) error += table.error(row, one);
    return error;
  }

  /** What each key gets from the chosen queries, or the sum over all and their number. */
  received(app, head, rows) {
    const key = `${rows}|${head}|${app.tableKey()}`;
    this.receivedCache ??= new Map();
    if (!this.receivedCache.has(key)) {
      if (this.receivedCache.size > 500) this.receivedCache.clear();
      const table = app.table(head);
      const from = rows.length ? rows : table.seeing;
      this.receivedCache.set(key, { ...table.sumRows(from), divisor: rows.length ? 1 : from.length });
    }
    return this.receivedCache.get(key);
  }

  /** One head has its lines alone; several are told apart by a square each. */
  squaresShown(app) {
    return app.shownHeads().length > 1;
  }

  /** The squares of all shown heads, computed once for what is pointed at. */
  squares(app, pointed) {
    const heads = app.shownHeads();
    const key = `${pointed.rows}|${pointed.column}|${heads}|${app.tableKey()}`;
    if (this.squareCache?.key === key) return this.squareCache;
    const table = app.table();
    const values = {};
    for (const [side, count] of [["query", table.rows], ["key", table.columns]]) {
      values[side] = Array.from({ length: count }, (_, number) => heads.map((head) => this.square(app, side, number, head, pointed)));
    }
    // A weight's opacity is the weight itself; other numbers have no end but their largest.
    const largest = table.measure === "weights" ? 1
      : Object.values(values).flat(2).reduce((most, value) => Math.max(most, Math.abs(value || 0)), 0);
    this.squareCache = { key, heads, values, largest };
    return this.squareCache;
  }

  squareBox(place, side, number, order) {
    const { squares, step, top } = place;
    const [column, row] = [order % squares.columns, Math.floor(order / squares.columns)];
    return { x: place.boxes[side] + column * squares.pitch, y: top + number * step + (step - squares.height) / 2 + row * squares.pitch,
      width: squares.pitch - 1.5, height: squares.pitch - 1.5 };
  }

  drawSquares(app, pen, place, win, pointed) {
    const { theme } = app;
    const { heads, values, largest } = this.squares(app, pointed);
    const forced = isForced(theme);
    if (!place.squares.pitch || !this.squaresShown(app)) return;
    for (const side of ["query", "key"]) {
      const [first, last] = [Math.floor((win.y - place.top) / place.step) - 1, Math.ceil((win.y + win.height - place.top) / place.step)];
      for (let number = Math.max(0, first); number <= Math.min(last, values[side].length - 1); number += 1) {
        values[side][number].forEach((value, order) => {
          if (value === null) return;
          const box = this.squareBox(place, side, number, order);
          const color = place.table.signed && !forced ? divergingColor(Math.sign(value), theme) : headStyle(heads[order], theme).color;
          const part = Math.min(1, Math.abs(value) / (largest || 1));
          pen.rect(box.x, box.y, box.width, box.height, { stroke: theme.border, lineWidth: 0.6, alpha: forced ? 1 : 0.7 });
          // Forced colours cannot fade: the filled part of the square says how much.
          if (forced) pen.rect(box.x, box.y + box.height * (1 - part), box.width, box.height * part, { fill: color });
          else pen.rect(box.x, box.y, box.width, box.height, { fill: color, alpha: part });
        });
      }
    }
    const item = app.active();
    if (item?.head !== undefined && item.side !== "line") {
      const box = this.squareBox(place, item.side, item.side === "query" ? item.row : item.column, heads.indexOf(item.head));
      ring(pen, box.x, box.y, box.width, box.height, theme.focus, theme);
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
    sums.largest = sums.values.reduce((most, value) => Math.max(most, Math.abs(value) || 0), 0);
    this.sumCache = sums;
    return sums;
  }

  /** The table of the shown heads: of one, or the mean of several. */
  spoken(app) {
    const heads = app.shownHeads();
    return heads.length ? app.table(heads.length === 1 ? heads[0] : heads.length === app.record.heads ? null : heads) : null;
  }

  headText(app) {
    const heads = app.shownHeads();
    if (app.record.heads === 1) return say("oneHead");
    if (heads.length === app.record.heads) return say("allHeads", { count: heads.length });
    return heads.length === 1 ? say("headNumber", { head: heads[0] }) : say("someHeads", { shown: heads.length, count: app.record.heads });
  }

  drawSums(app, pen, place, rows) {
    const { theme } = app;
    const sums = this.sums(app, rows);
    const number = app.table().exact && place.bars > 70;
    const length = place.bars - (number ? 40 : 6);
    for (let column = 0; column < place.table.columns; column += 1) {
      const y = this.y(place, column);
      const value = sums.values[column];
      if (sums.masked[column]) { pen.hatch(place.bar, y - 4, 16, 8, theme); continue; }
      pen.rect(place.bar, y - 4, Math.max(1, (length * Math.abs(value || 0)) / (sums.largest || 1)), 8,
        { fill: place.table.signed ? divergingColor(Math.sign(value), theme) : theme.muted, radius: 2 });
      if (number) {
        const text = Number.isNaN(value) ? "NaN" : cellText(value);
        pen.text(text, place.bar + place.bars, y, { color: theme.muted, size: 11, align: "end" });
      }
    }
  }

  drawTokens(app, pen, place, win, { rows, column }) {
    const { table } = place;
    const { theme } = app;
    const item = app.active();
    const one = (side, number) => {
      const y = this.y(place, number);
      if (y < win.y - 20 || y > win.y + win.height + 20) return;
      const row = side === "query";
      const [axis, group, text] = row ? [table.record.queries, table.rowGroups[number], table.rowText(number)]
        : [table.record.keys, table.columnGroups[number], table.columnText(number)];
      const locked = row && app.state.locked.includes(number);
      const chosen = locked || (row ? rows.includes(number) : column === number);
      const size = patchSize(axis, group, place.step - 2);
      const shown = fitText(shortText(text), place.label - 12, { bold: chosen });
      const wide = size ? size.width + 8 : textWidth(shown, { bold: chosen }) + 8;
      const box = { x: row ? place.labels.query - wide + 4 : place.labels.key - 4, y: y - place.step / 2 + 0.5, width: wide, height: place.step - 1 };
      if (chosen) pen.rect(box.x, box.y, box.width, box.height, { fill: locked ? theme.accent : theme.highlight, radius: 3, stroke: theme.accent });
      if (item && item.side === side && item[row ? "row" : "column"] === number && app.keyboard) {
        ring(pen, box.x, box.y, box.width, box.height, theme.focus, theme);
      }
      if (size) drawPatch(pen, axis, group[0], box.x + 4, y - size.height / 2, size, theme);
      else pen.text(shown, place.labels[side], y, { color: locked ? theme.accentText : theme.text, bold: chosen, align: row ? "end" : "start" });
    };
    for (let row = 0; row < table.rows; row += 1) one("query", row);
    for (let key = 0; key < table.columns; key += 1) one("key", key);
  }

  hit(app, x, y) {
    const place = this.geometry(app);
    const number = Math.floor((y - place.top) / place.step);
    const { table } = place;
    for (const [side, count] of [["query", table.rows], ["key", table.columns]]) {
      const query = side === "query";
      if (number < 0 || number >= count || (query ? x > place.left - 2 : x < place.right + 2)) continue;
      const heads = app.shownHeads();
      const order = place.squares.pitch && this.squaresShown(app) ? heads.findIndex((_, at) => inside(this.squareBox(place, side, number, at), x, y)) : -1;
      const item = query ? { side, row: number } : { side, column: number };
      return order < 0 ? item : { ...item, head: heads[order] };
    }
    return x > place.left && x < place.right ? this.lineAt(app, place, x, y) : null;
  }

  /** The strongest line near a point: of the locked queries, or of all. */
  lineAt(app, place, x, y) {
    const { locked } = app.state;
    const { found } = locked.length ? this.lines(app, { rows: locked, column: null, head: null }) : this.background(app);
    const part = curvePart((x - place.left) / (place.right - place.left));
    let best = null;
    let least = NEAR_LINE;
    for (const [, head, row, column] of found) {
      const shift = this.shift(app, place, head);
      const [y0, y1] = [this.y(place, row) + shift, this.y(place, column) + shift];
      const far = Math.abs(y0 + (y1 - y0) * part - y);
      if (far < least - 0.01) { least = far; best = { side: "line", row, column, head }; }
    }
    return best;
  }

  place(app, item) {
    const place = this.geometry(app);
    if (item.side === "line") {
      const [y0, y1] = [this.y(place, item.row), this.y(place, item.column)];
      return { x: (place.left + place.right) / 2 - 1, y: (y0 + y1) / 2 - 1, width: 2, height: 2, frozenTop: 26 };
    }
    const query = item.side === "query";
    const number = query ? item.row : item.column;
    if (item.head !== undefined) return { ...this.squareBox(place, item.side, number, app.shownHeads().indexOf(item.head)), frozenTop: 26 };
    return { x: query ? place.left - place.label : place.right, y: place.top + number * place.step, width: place.label, height: place.step, frozenTop: 26 };
  }

  start() {
    return { side: "query", row: 0 };
  }

  move(app, item, dx, dy) {
    const table = app.table();
    const number = item.side === "key" ? item.column : item.row;
    const side = dx < 0 ? "query" : dx > 0 ? "key" : item.side === "line" ? "query" : item.side;
    const next = clamp(number + dy, 0, (side === "query" ? table.rows : table.columns) - 1);
    return side === "query" ? { side, row: next } : { side, column: next };
  }

  has(app, item) {
    return super.has(app, item) && (item.head === undefined || app.shownHeads().includes(item.head));
  }

  activate(app, item) {
    if (item.side === "query" && item.head === undefined) app.selection.toggleRow(item.row);
    else if (item.head !== undefined) app.set({ head: item.head });
  }

  describe(app, item) {
    const table = app.table();
    if (item.side === "line") {
      const one = app.table(item.head);
      return say("linesCell", { query: table.rowName(item.row), key: table.columnName(item.column),
        weight: one.cell(item.row, item.column), head: item.head });
    }
    const pointed = this.pointed(app);
    if (item.head !== undefined) return this.describeSquare(app, item, pointed);
    const [side, number] = item.side === "query" ? ["query", item.row] : ["key", item.column];
    if (side === "key" && (app.state.locked.length || !this.strongest(app, side, number).length)) return this.describeSum(app, number, pointed.rows);
    return this.describeStrongest(app, side, number, pointed.rows);
  }

  describeSquare(app, item, { rows, column }) {
    const table = app.table(item.head);
    const query = item.side === "query";
    const text = query ? table.rowName(item.row) : table.columnName(item.column);
    const value = this.square(app, item.side, query ? item.row : item.column, item.head, { rows, column });
    const shown = value === null ? say("masked") : formatWeight(value, this.squareError(app, item, { rows, column }));
    return say(query ? "squareOfQuery" : "squareOfKey", { head: item.head, text, value: shown, what: sumText(table, rows) });
  }

  describeSum(app, column, rows) {
    const sums = this.sums(app, rows);
    const value = sums.masked[column] ? say("masked") : formatWeight(sums.values[column], sums.errors[column]);
    return say("keyGets", { key: app.table().columnName(column), value, what: sumText(app.table(null), rows), heads: this.headText(app) });
  }

  /** All pairs of a token and each head, the strongest first: [size, text, value, error]. */
  strongest(app, side, number) {
    const found = [];
    for (const head of app.shownHeads()) {
      const table = app.table(head);
      const count = side === "query" ? table.columns : table.rows;
      for (let other = 0; other < count; other += 1) {
        const [row, column] = side === "query" ? [number, other] : [other, number];
        if (table.kind(row, column) === MASKED) continue;
        const size = Math.abs(table.value(row, column));
        found.push({ size: Number.isNaN(size) ? Infinity : size, head, row, column, table });
      }
    }
    return found.sort((a, b) => b.size - a.size);
  }

  describeStrongest(app, side, number, rows) {
    const table = app.table();
    const several = app.shownHeads().length > 1;
    const all = this.strongest(app, side, number);
    const best = all.slice(0, LISTED).map((one) => say(several ? "strongOfHead" : "strong", { head: one.head, weight: one.table.cell(one.row, one.column),
      token: side === "query" ? one.table.columnName(one.column) : one.table.rowName(one.row) }));
    const text = side === "query" ? table.rowName(number) : table.columnName(number);
    const more = Math.max(0, all.length - LISTED);
    const list = best.join(say("listed")) + (more ? say("fainter", { count: counted(more) }) : "");
    if (side === "query") return best.length ? say("linesLooks", { text, list, heads: this.headText(app) }) : say("linesBlind", { text });
    const sums = this.sums(app, rows);
    const mean = formatWeight(sums.values[number], sums.errors[number]);
    return say("linesGets", { text, list, mean, what: sumText(app.table(null), rows), heads: this.headText(app) });
  }

  legend(app) {
    const { found, total } = this.lines(app, this.pointed(app));
    const cut = found.length < total ? say("strongestLines", { shown: counted(found.length), total: counted(total) }) : "";
    const table = app.table();
    const squares = say(table.measure !== "weights" ? "squaresOfLargest" : isForced(app.theme) ? "squaresFilled" : "squaresFade");
    const parts = [table.measure === "weights" ? "" : measureText(table), say("linesLegend", { cut, least: LEAST }), this.pointed(app).some ? say("linesFaint") : "",
      this.squaresShown(app) ? say("linesSquares", { squares }) : "", this.barText(app)].filter(Boolean);
    return { heads: true, text: `${parts.join(" \u00b7 ")}${mergedText(table)}${hiddenText(table)}` };
  }

  barText(app) {
    if (!this.geometry(app).bars) return "";
    const mean = app.shownHeads().length > 1 ? say("barsMean", { heads: this.headText(app) }) : "";
    return say("barsLegend", { what: sumText(app.table(null), app.activeRows()) }) + mean;
  }

  forget() {
    super.forget();
    this.squareCache = this.receivedCache = null;
  }
}

const isForced = (theme) => theme.forced === true;

/** How squares of so many heads fit beside a token: their distance, how many stand in a line, and the size of all. */
function squareGrid(heads, step, room) {
  const grid = squareLines(heads, step, room);
  return { ...grid, height: Math.ceil(heads / grid.columns) * grid.pitch };
}

function squareLines(heads, step, room) {
  if (!heads) return { pitch: 0, columns: 1, width: 0 };
  for (let pitch = 11; pitch > 4; pitch -= 0.5) {
    const lines = Math.max(1, Math.floor((step - 2) / pitch));
    const columns = Math.ceil(heads / lines);
    if (columns * pitch <= room) return { pitch, columns: Math.min(heads, Math.floor(room / pitch)), width: Math.min(heads, Math.floor(room / pitch)) * pitch };
  }
  const columns = Math.ceil(heads / Math.max(1, Math.floor((step - 2) / 4)));
  return { pitch: 4, columns, width: 4 * columns };
}

/** The room for the labels of a side: pictures of patches, or text. */
function labelWidth(table, side, step) {
  const [axis, groups] = side === "row" ? [table.record.queries, table.rowGroups] : [table.record.keys, table.columnGroups];
  const size = groups.length ? patchSize(axis, groups.at(-1), step - 2) : null;
  return size ? Math.max(24, size.width) : widest(table, side);
}

/** How far down a curve has come at a part of its way across: the curve of `pen.curve`. */
function curvePart(across) {
  let [low, high] = [0, 1];
  for (let round = 0; round < 24; round += 1) {
    const t = (low + high) / 2;
    const x = 1.5 * t * (1 - t) * (1 - t) + 1.5 * t * t * (1 - t) + t * t * t;
    if (x < across) low = t;
    else high = t;
  }
  const t = (low + high) / 2;
  return 3 * t * t - 2 * t * t * t;
}

// views/long_view.js

/** Findings of one kind that a payload has, as in regard.viewer.patterns. */
const MOST_FINDINGS = 8;

/** A map of any length: pooled from afar, exact at close range. */
class LongView extends RecordView {
  name = "long";

  title = say("long");

  controls = ["record", "head", "pooling", "scale", "zoom", "findings"];

  zooms = true;

  help = say("long_help");

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
    this.drawMarks(app, pen, place, win, area);
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
    const title = say(lines.length < count ? "long_findings_part" : "long_findings", { shown: lines.length, count, most: MOST_FINDINGS });
    pen.text(fitText(title, lines[0].width, { size: 11, bold: true }), lines[0].x, 18, { color: app.theme.muted, size: 11, bold: true });
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
    pen.text(say("long_axes"), win.x + 6, win.y + 12, { color: theme.muted, size: 11 });
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

  /** A mark on the axis of the keys for each sink of the heads that are shown. */
  drawMarks(app, pen, { left, top, cell, map }, win, area) {
    for (const found of map.places()) {
      if (found.kind !== "sink" || (app.state.head !== null && found.head !== app.state.head)) continue;
      const x = left + (found.column + 0.5) * cell;
      if (x < area.x || x > area.x + area.width) continue;
      const y = win.y + top - 2;
      pen.path([[x - 4, y - 6], [x, y], [x + 4, y - 6]], { color: app.theme.accent, lineWidth: 2 });
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
    pen.text(say("long_received"), win.x + 6, base - 8, { color: app.theme.muted, size: 11 });
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
    if (item.found) app.zoom.toFinding(item);
    else app.zoom.to(item);
  }

  describe(app, item) {
    const { map, record, queries, keys } = this.geometry(app);
    if (!map) return "";
    const pair = say("long_pair", { row: counted(item.row), query: quoted(record.queries.text(item.row)), column: counted(item.column), key: quoted(record.keys.text(item.column)) });
    const exact = map.exact(app.state.head, item.row, item.column);
    const heads = app.headText();
    if (exact !== null) return say("long_exact", { pair, weight: exact < 0 ? say("masked") : formatNumber(exact), heads });
    const [row, column] = map.bin(item.row, item.column);
    const bin = map.pooled(app.state.pooling, app.state.head, row, column);
    const hidden = app.state.pooling === "mean" && map.hidden ? say("long_hidden") : "";
    const range = (length, bins, number) => `${counted(map.edge(length, bins, number))}\u2013${counted(map.edge(length, bins, number + 1) - 1)}`;
    return say("long_pooled", { rows: range(queries, map.rows, row), columns: range(keys, map.columns, column), pooling: poolingText(app.state.pooling),
      weight: formatWeight(bin.value, bin.error), heads: `${heads}${hidden}`, query: quoted(record.queries.text(item.row)),
      key: quoted(record.keys.text(item.column)), why: this.whyPooled(app, map, item) });
  }

  whyPooled(app, map, item) {
    const tile = map.tiles.get(`${Math.floor(item.row / map.side)},${Math.floor(item.column / map.side)}`);
    if (tile?.failed) return say("long_failed", { why: tile.failed });
    return say(app.options.fetchTile ? "long_closer" : "long_not_carried");
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
    const tiles = app.options.fetchTile ? say("long_fetched") : map.carried ? say("long_carried", { count: map.carried, side: map.side }) : say("long_no_tiles");
    const per = app.state.scale === "row" ? say("long_per_row") : "";
    const samples = [[ZERO, say(map.hidden ? "long_zero_hidden" : "long_zero")], [MASKED, say("masked")], [MISSING, "NaN"]];
    const parts = [`${this.headText(app)}, ${scaleText(app.state.scale)}${per}`, exact.length ? say("long_framed") : "", tiles,
      say("long_keys", { count: counted(record.keys.length) })];
    return { ramp: "map", scale: app.state.scale, largest: app.state.scale === "row" ? null : limits.reduce((a, b) => Math.max(a, b), 0),
      beyond: exact.some((tile) => tile.beyond), samples: samples.filter(([kind]) => shown.has(/** @type {number} */ (kind))),
      text: parts.filter(Boolean).join(" \u00b7 ") };
  }
}

// views/pattern_view.js

/** The height of the name of the keys above their tokens. */
const AXIS = 16;

/** A rectangular map with tokens on both sides. */
class PatternView extends CellView {
  name = "pattern";

  controls = ["record", "head", "measure", "scale", "words", "special", "zoom"];

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
      whole: Math.min(across, down, 46), bars: spare / 2 >= BARS_ROOM.width + BARS_ROOM.gap && height >= BARS_ROOM.height };
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
      pen.text(say("noTokens"), win.x + 12, win.y + 24, { color: app.theme.muted, size: 13 });
      return;
    }
    pen.clip(area.x, area.y, area.width, area.height, () => {
      drawCells(pen, table, place, area, app.state.scale, app.theme);
      this.drawSelection(app, pen, place);
    });
    this.drawRowLabels(app, pen, place, win);
    this.drawColumnLabels(app, pen, place, win);
    const row = (app.active() ?? app.featured())?.row;
    if (place.bars && row !== undefined) {
      const right = place.left + table.columns * place.width;
      const middle = place.top + Math.min(table.rows * place.height, area.height) / 2;
      drawRowBars(app, pen, table, row, { x: right + BARS_ROOM.gap, y: middle - BARS_ROOM.height / 2 });
    }
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

  legendText(app, table) {
    const place = this.geometry(app);
    const numbers = place.width >= 30 && place.height >= 18 && table.exact && !table.signed;
    return [super.legendText(app, table), numbers ? say("blankNote") : ""].filter(Boolean).join(" \u00b7 ");
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

  title = say("sound");

  controls = ["play", "record", "head", "measure", "scale", "words", "special"];

  help = say("soundHelp");

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
    this.drawPadding(app, pen, place);
    pen.rect(left, 12, wide, picture, { stroke: theme.border });
    pen.text(say("frequency"), left - 8, 20, { color: theme.muted, size: 11, align: "end" });
    this.drawCurve(app, pen, place);
    this.drawTime(app, pen, place);
    const geometry = { left, top, width: place.cellWidth, height: place.cellHeight };
    drawCells(pen, table, geometry, { x: left, y: top, width: wide, height: table.rows * place.cellHeight }, app.state.scale, theme);
    pen.rect(left, top, wide, table.rows * place.cellHeight, { stroke: theme.border });
    this.drawCursor(app, pen, place);
    const item = app.active();
    for (let row = 0; row < table.rows; row += 1) {
      const locked = app.state.locked.includes(row);
      const y = top + (row + 0.5) * place.cellHeight;
      const text = fitText(shortText(table.rowText(row)), left - 14, { bold: item?.row === row });
      const size = textWidth(text, { bold: true });
      if (locked) pen.rect(left - 12 - size, y - 8, size + 8, 16, { fill: theme.accent, radius: 3 });
      pen.text(text, left - 8, y, { color: locked ? theme.accentText : theme.text, bold: locked || item?.row === row, align: "end" });
    }
    if (item?.side === "time") {
      pen.rect(left + item.column * place.cellWidth, 12, Math.max(1, place.cellWidth), picture, { stroke: theme.focus, lineWidth: 1.5 });
    } else if (item) {
      ring(pen, left + item.column * place.cellWidth, top + item.row * place.cellHeight, place.cellWidth, place.cellHeight, theme.focus, theme);
      pen.rect(left + item.column * place.cellWidth, 12, Math.max(1, place.cellWidth), picture, { stroke: theme.focus, lineWidth: 1.5 });
    }
  }

  legendText(app, table) {
    const rows = app.activeRows();
    return [super.legendText(app, table), rows.length ? say("soundCurve", { what: sumText(table, rows) }) : ""].filter(Boolean).join(" \u00b7 ");
  }

  /** The position after the last one that is heard: behind it is padding, which no query sees, or the sound has ended. */
  heard(table) {
    const { keys, queries, heads, visible } = table.record;
    let end = keys.length;
    if (keys.sound) end = Math.min(end, Math.ceil(keys.soundSeconds / keys.entry.seconds - 1e-6));
    if (!visible) return end;
    const seen = (key) => Array.from({ length: queries.length }, (_, query) => query)
      .some((query) => Array.from({ length: heads }, (_, head) => head).some((head) => table.record.sees(head, query, key)));
    while (end > 0 && !seen(end - 1)) end -= 1;
    return end;
  }

  /** Padding is hatched: it is no sound. */
  drawPadding(app, pen, { table, left, wide, picture }) {
    if (this.padding?.record !== table.record) this.padding = { record: table.record, end: this.heard(table) };
    const { end } = this.padding;
    const { length } = table.record.keys;
    if (end < length) pen.hatch(left + (wide * end) / length, 12, (wide * (length - end)) / length, picture, app.theme);
  }

  /** Where the sound is, in the spectrogram and the map, while it plays. */
  drawCursor(app, pen, place) {
    const { table, left, wide, picture, top, cellWidth, cellHeight } = place;
    const { keys } = table.record;
    if (!app.player.plays(keys)) return;
    const { time } = app.player;
    const x = left + (wide * time) / (keys.entry.seconds * keys.length);
    const column = this.columnAt(table, time);
    const { theme } = app;
    pen.rect(left + column * cellWidth, top, cellWidth, table.rows * cellHeight, { stroke: theme.background, lineWidth: 4 });
    pen.rect(left + column * cellWidth, top, cellWidth, table.rows * cellHeight, { stroke: theme.accent, lineWidth: 2 });
    pen.path([[x, 12], [x, 12 + picture]], { color: "#ffffff", lineWidth: 4 });
    pen.path([[x, 12], [x, 12 + picture]], { color: theme.name === "dark" ? "#c2410c" : theme.accent, lineWidth: 2 });
    app.changed();
  }

  /** The column that is heard at a time. */
  columnAt(table, time) {
    return clamp(Math.floor(time / table.record.keys.entry.seconds + 1e-9), 0, table.columns - 1);
  }

  /** Starts at a time, or stops. */
  toggle(app, seconds = 0) {
    const { keys } = app.record;
    if (!keys.sound) return;
    if (app.player.plays(keys) && seconds === 0) app.player.stop();
    else app.player.start(keys, Math.min(seconds, Math.max(0, keys.soundSeconds - 0.01)));
  }

  /** The space bar plays and stops. */
  pressed(app, key) {
    if (key !== " " || !app.record.keys.sound) return false;
    this.toggle(app);
    return true;
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
      const text = say("seconds", { seconds: Number((number * step).toPrecision(6)) });
      const last = x + textWidth(text, { size: 11 }) / 2 > left + wide + 10;
      pen.text(text, last ? left + wide + 10 : x, 26 + picture, { color: app.theme.muted, size: 11, align: last ? "end" : "center" });
    }
  }

  hit(app, x, y) {
    const place = this.geometry(app);
    if (x >= place.left && x < place.left + place.wide && y >= 12 && y < 12 + place.picture && place.table.record.keys.sound) {
      return { side: "time", column: Math.floor((x - place.left) / place.cellWidth) };
    }
    if (x < place.left || y < place.top) return x < place.left && y >= place.top ? this.at(place, 0, y) : null;
    return this.at(place, Math.floor((x - place.left) / place.cellWidth), y);
  }

  at(place, column, y) {
    const row = Math.floor((y - place.top) / place.cellHeight);
    return row >= 0 && row < place.table.rows && column < place.table.columns ? { row, column } : null;
  }

  activate(app, item) {
    if (item.side === "time") this.toggle(app, item.column * app.record.keys.entry.seconds || 1e-9);
    else super.activate(app, item);
  }

  describe(app, item) {
    if (item.side !== "time") return super.describe(app, item);
    const table = app.table();
    return say("playFrom", { time: table.columnName(item.column) });
  }

  move(app, item, dx, dy) {
    return super.move(app, { ...item, row: item.row ?? 0 }, dx, dy);
  }

  forget() {
    super.forget();
    this.padding = null;
  }

  place(app, item) {
    const place = this.geometry(app);
    if (item.side === "time") return { x: place.left + item.column * place.cellWidth, y: 12, width: place.cellWidth, height: place.picture };
    return { x: place.left + item.column * place.cellWidth, y: place.top + item.row * place.cellHeight, width: place.cellWidth, height: place.cellHeight };
  }
}

// views/words_view.js

/** The words of a text, shaded by their weight. */
class WordsView extends RecordView {
  name = "words";

  title = say("words");

  controls = ["record", "head", "measure", "scale", "words", "special"];

  scalesRows = false;

  help = say("wordsHelp");

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
    const key = `${app.tableKey()}|${wide}|${app.record.number}`;
    if (this.cache?.key === key) return this.cache.place;
    const most = Math.max(table.rows, table.columns);
    const size = width < 500 || most > 120 ? 16 : most > 40 || width < 900 ? 20 : 28;
    const [keyTexts, queryTexts] = [flowTexts(table, "column"), this.single(app) ? null : flowTexts(table, "row")];
    const style = { size, lineHeight: 2 * size + 2 };
    const queries = queryTexts ? flowText(queryTexts, left, 40, wide, style) : null;
    const top = queries ? queries.bottom + 44 : 40;
    const keys = flowText(keyTexts, left, top, wide, style);
    const place = { table, left, size, queries: queries?.places ?? keys.places, keys: keys.places, top, bottom: keys.bottom, wide,
      texts: { keys: keyTexts, queries: queryTexts ?? keyTexts }, rtl: { keys: keys.rtl, queries: (queries ?? keys).rtl } };
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
    if (!this.single(app)) {
      this.drawHeading(app, pen, place, place.table.record.say("wordsAsking"), "", 20, place.rtl.queries);
      place.queries.forEach((box, row) => this.drawWord(app, pen, box, place.texts.queries[row], null, row));
      this.drawBoundary(app, pen, place, "queries");
    }
    const { rows } = sums;
    const what = rows.length === 1 ? place.table.record.say("whatOne", { query: `\u2068${place.texts.queries[rows[0]].shown}\u2069` })
      : say(rows.length ? "whatSeveral" : "whatAll");
    this.drawHeading(app, pen, place, what, sumText(place.table, rows), place.top - 20, place.rtl.keys);
    place.keys.forEach((box, column) => {
      if (box.y > win.y + win.height || box.y + box.height < win.y) return;
      const shade = signedShade(sums.values[column], sums.end, withoutRows(app.state.scale));
      this.drawWord(app, pen, box, place.texts.keys[column], { shade, kind: sums.kinds[column] }, this.single(app) ? column : null);
    });
    this.drawBoundary(app, pen, place, "keys");
    if (rows.length === 1 && place.bottom + BARS_ROOM.height + 24 <= app.area.height) {
      drawRowBars(app, pen, place.table, rows[0], { x: place.left, y: place.bottom + 40 });
    }
    const item = app.active();
    if (item && app.keyboard) {
      const box = (item.side === "key" ? place.keys[item.column] : place.queries[item.row]);
      if (box) ring(pen, box.x, box.y, box.width, box.height, theme.focus, theme);
    }
  }

  drawHeading(app, pen, place, text, aside, y, rtl) {
    const { theme } = app;
    const [x, align] = rtl ? [place.left + place.wide, "end"] : [place.left, "start"];
    const style = { size: 13, bold: true };
    const shown = fitText(text, place.wide, style);
    pen.text(shown, x, y, { ...style, color: theme.text, align });
    const used = textWidth(shown, style) + 10;
    const room = place.wide - used;
    if (aside && room > 60) {
      pen.text(fitText(aside, room, { size: 11 }), rtl ? x - used : x + used, y, { color: theme.muted, size: 11, align });
    }
  }

  /** A line before the first token that the model wrote itself. */
  drawBoundary(app, pen, place, side) {
    const { table } = place;
    const [axis, groups] = side === "keys" ? [table.record.keys, table.columnGroups] : [table.record.queries, table.rowGroups];
    const first = axis.entry.generated ?? null;
    const number = first === null ? -1 : groups.findIndex(([start]) => start >= first);
    if (number < 0) return;
    const box = place[side][number];
    const x = place.rtl[side] ? box.x + box.width + 1 : box.x - 1;
    const { theme } = app;
    pen.path([[x, box.y - 4], [x, box.y + box.height + 2]], { color: theme.accent, lineWidth: 2 });
    pen.text(say("written"), x, box.y - 9, { color: theme.accent, size: 11, align: place.rtl[side] ? "end" : "start" });
  }

  drawWord(app, pen, box, text, weight, row) {
    const { theme } = app;
    const { size } = this.cache.place;
    const colors = weight?.kind === WEIGHT ? colorsOf(weight.shade, app) : { fill: null, ink: theme.text };
    if (weight && weight.kind !== WEIGHT) drawKind(pen, weight.kind, box.x, box.y, box.width, box.height, theme);
    else if (colors.fill) pen.rect(box.x, box.y, box.width, box.height, { fill: colors.fill, radius: 3 });
    const chosen = row !== null && app.activeRows().includes(row);
    if (chosen) pen.rect(box.x + 1, box.y + 1, box.width - 2, box.height - 2, { stroke: theme.accent, lineWidth: 2.5, radius: 3 });
    pen.text(fitText(text.shown, box.width - 4, { size }), box.x + box.width / 2, box.y + box.height / 2, { color: colors.ink, size, align: "center" });
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
    const along = place.rtl[item.side === "key" ? "keys" : "queries"] && Math.abs(dx) === 1 ? -dx : dx;
    let next = along ? clamp(index + along, 0, places.length - 1) : wordAbove(places, index, dy);
    let { side } = item;
    if (!this.single(app) && dy && next === index) {
      side = dy > 0 ? "key" : "query";
      next = side === item.side ? index : clamp(index, 0, (side === "key" ? place.keys : place.queries).length - 1);
    }
    return side === "key" ? { side, column: next } : { side, row: next };
  }

  activate(app, item) {
    app.selection.toggleRow(item.side === "query" ? item.row : this.single(app) ? item.column : null);
  }

  describe(app, item) {
    const table = app.table();
    if (item.side === "query") return describeRow(app, table, item.row);
    const sums = this.sums(app);
    return say("wordGets", { key: table.columnName(item.column), value: receivedText(sums, item.column), what: sumText(table, sums.rows),
      head: app.headText() });
  }

  legend(app) {
    const sums = this.sums(app);
    const table = app.table();
    const scale = withoutRows(app.state.scale);
    return { ramp: table.signed ? "signed" : "map", title: measureText(table), scale, largest: sums.end / sums.divisor,
      even: evenShareOfSums(table, sums), samples: samplesOf([...new Set(sums.kinds)]),
      text: [`${sumText(table, sums.rows)}, ${app.headText()}`, scale === "linear" ? "" : scaleText(scale), accuracy(table), specialText(table)].filter(Boolean).join(" \u00b7 ")
        + mergedText(table) + hiddenText(table) };
  }
}

function colorsOf(shade, app) {
  if (!app.table().signed) return wordColors(shade || 0, app.theme);
  const fill = divergingColor(shade || 0, app.theme);
  return { fill, ink: inkOn(fill) };
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
    return { x: x0 + frame.stage.offsetLeft, y: y0 + TOP + frame.stage.offsetTop, width: Math.max(8, x1 - x0), height: Math.max(8, y1 - y0) };
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
    return { x, y: app.frame.stage.offsetTop + TOP, width: Math.min(app.area.width, size.width) - x, height: Math.min(app.area.height, size.height) };
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
      if (event.key === "Escape" && event.target !== this.app.frame.canvas) this.app.selection.unlock();
    });
    // A link that is pasted into the page's address.
    on(globalThis, "hashchange", () => { if (this.app.options.address) this.app.visit(globalThis.location.hash); });
    // Ink is for paper: what is printed is light, and drawn before the page is taken.
    on(globalThis, "beforeprint afterprint", (event) => {
      this.app.printing = event.type === "beforeprint";
      this.app.readTheme();
      if (this.app.ready) this.app.draw();
    });
    for (const text of ["(prefers-color-scheme: dark)", "(forced-colors: active)"]) {
      on(globalThis.matchMedia(text), "change", () => { this.app.readTheme(); this.app.refresh(); });
    }
  }

  at(event) {
    const box = this.app.frame.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top - TOP];
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
    this.app.zoom.by(event.deltaY < 0 ? 1.25 : 0.8, { x: event.clientX - box.left, y: event.clientY - box.top - TOP });
  }

  keyPressed(event) {
    if (!this.app.ready || event.ctrlKey || event.metaKey || event.altKey) return;
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1], Home: [-1e9, 0], End: [1e9, 0], PageUp: [0, -10, -1], PageDown: [0, 10, 1] };
    if (event.key in moves) this.moveCursor(...moves[event.key]);
    else if (this.app.view.pressed?.(this.app, event.key)) this.app.keyboard = true;
    else if (event.key === "Enter" || event.key === " ") {
      if (this.app.cursor && this.app.view.has(this.app, this.app.cursor)) this.app.view.activate(this.app, this.app.cursor);
    }
    else if (event.key === "Escape") this.escape();
    else if (event.key === "+" || event.key === "=") this.zoomKey(1.5);
    else if (event.key === "-") this.zoomKey(1 / 1.5);
    else if (event.key === "0") this.app.zoom.fit();
    else if (event.key === "[" || event.key === "]") this.app.selection.nextHead(event.key === "[" ? -1 : 1);
    else return;
    event.preventDefault();
    this.app.changed();
  }

  /** Undo and redo, wherever the focus is. */
  commandKey(event) {
    if (!(event.ctrlKey || event.metaKey) || event.altKey) return;
    const key = event.key.toLowerCase();
    if (key === "z" && event.shiftKey) this.app.journal.redo();
    else if (key === "z") this.app.journal.undo();
    else if (key === "y") this.app.journal.redo();
    else return;
    event.preventDefault();
  }

  zoomKey(factor) {
    const box = this.app.cursor ? this.app.view.place(this.app, this.app.cursor) : null;
    const win = this.app.window();
    this.app.zoom.by(factor, box ? { x: box.x - win.x + box.width / 2, y: box.y - win.y + box.height / 2 } : null);
  }

  escape() {
    if (this.app.view.name === "long" && this.app.state.zoom > 1) this.app.zoom.fit();
    else this.app.selection.unlock();
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

// sheet_picture.js

const LEGEND = 66;

/** The picture that is saved of a view whose elements beside the canvas belong to it; null: of others, what is seen. */
function sheetPicture(app) {
  const sheet = app.view.sheet(app);
  if (!sheet) return null;
  const { theme } = app;
  const { width } = sheet;
  const height = Math.ceil(sheet.height) + HEADING + LEGEND;
  return { width, height, top: 0, paint(pen) {
    pen.rect(0, 0, width, height, { fill: theme.background });
    pen.text(fitText(app.heading(), width - 20, { size: 13, bold: true }), 10, 14, { color: theme.text, size: 13, bold: true });
    pen.shift(0, HEADING, () => sheet.draw(pen));
    pen.shift(0, height - LEGEND + 2, () => drawLegend(pen, app.view.legend(app), width, theme));
  } };
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
    const one = this.nameOf(app, app.state) || app.recordText(app.record);
    return say("differenceOf", { one, other: this.nameOf(app, this.other(app)) }).trim();
  }

  geometry(app) {
    const shown = this.shown(app);
    return shown ? super.geometry(shown) : { table: { rows: 0, columns: 0 }, left: 0, top: 0, width: 1, height: 1, flat: true, whole: 1, bars: false };
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
      scale === "linear" ? "" : scaleText(scale), tokens && say("differenceLeftOut", { tokens })];
    return { ramp: "signed", title: say("differenceBar"), scale, largest: table.largest, samples, text: notes.filter(Boolean).join(" \u00b7 ") };
  }
}

// exports.js

/** What is saved: all of a view that has a sheet, else what is seen. */
const savedPicture = (app) => sheetPicture(app) ?? croppedPicture(app);

/** The picture as the text of an SVG file. */
function svgOf(app) {
  if (!app.current()) return new SvgPen({ width: 1, height: 1 }).toString(visibleText(app.payload.title), say("nothingToShow"));
  const picture = savedPicture(app);
  const pen = new SvgPen(picture);
  picture.paint(pen);
  return pen.toString(visibleText(app.payload.title), [app.heading(), selectionText(app), app.frame.readout.textContent].filter(Boolean).join(" \u2014 "));
}

function saveSvg(app) {
  download(app, new Blob([svgOf(app)], { type: "image/svg+xml" }), "svg");
}

function savePng(app) {
  app.tables.frameStart = performance.now();
  const picture = savedPicture(app);
  const scale = Math.max(2, globalThis.devicePixelRatio || 1);
  const canvas = newCanvas(picture.width * scale, picture.height * scale);
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, -picture.top * scale);
  picture.paint(new CanvasPen(context));
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
    return choice(say("scale"), names.includes(app.state.scale) ? app.state.scale : "linear", names.map((name) => [name, scaleText(name)]),
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
    return make("div", { class: "group" }, action("\u2212", say("zoomOut"), () => app.zoom.by(1 / 1.5)),
      action("+", say("zoomIn"), () => app.zoom.by(1.5)), action(say("fitText"), say("fit"), () => app.zoom.fit()));
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
    const [back, forth] = [action(say("undo"), say("undoKeys"), () => app.journal.undo()), action(say("redo"), say("redoKeys"), () => app.journal.redo())];
    back.disabled = !app.journal.history.past.length;
    forth.disabled = !app.journal.history.future.length;
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
  app.journal.writeAddress();
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
    this.printing = false;
    this.journal = new Journal(this);
    this.selection = new Selection(this);
    this.zoom = new Zoom(this);
    this.chosen = false; // whether the head was chosen, by somebody or as the one to open on
    this.views = VIEW_CLASSES.map((ViewClass) => new ViewClass()).filter((view) => !options.views || options.views.map(presentName).includes(view.name));
    this.tables = new Tables(this);
    this.stopped = new AbortController();
    this.player = new Player(() => this.refresh());
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
    this.records = payload.records.map((entry, number) => new AttentionData(entry, number, axes, payload.masks, payload.records));
    this.steps = payload.steps.map((entry) => new StepsData(entry));
    this.player.stop();
    this.tables.forget();
    for (const one of this.views) one.forget();
    this.hover = this.cursor = this.elsewhere = null;
    this.journal.history.forget();
    Object.assign(this.state, { locked: [], kept: null, zoom: 1 });
    this.frame.title.textContent = visibleText(payload.title);
    this.frame.showTexts(payload.texts);
    this.frame.facts.textContent = factsOf(this.records);
    const wanted = presentName(view) ?? (this.started ? this.state.view : null);
    const first = this.views.find((one) => one.name === wanted && one.available(this)) ?? firstView(this);
    if (first) this.state.view = first.name;
    this.chosen ||= selection?.head !== undefined;
    this.asked = selection?.record ?? this.asked;
    this.opening = this.chosen ? Promise.resolve() : this.open(this.asked);
    this.frame.canvas.hidden = !first;
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
    this.chosen = true;
  }

  empty() {
    this.frame.showTabs(this.views.filter((view) => view.available(this)), this.view, (name) => this.show(name));
    this.frame.bar.replaceChildren();
    this.ready = false;
    this.frame.tip.hidden = true;
    this.frame.readout.textContent = "";
    this.frame.showBeside(null);
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
    const { record, head, words, hideSpecial, measure } = this.state;
    return `${record}|${head}|${words}|${hideSpecial}|${measure}`;
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
      if (item?.side === "key" && this.view.name === "image" && this.view.geometry(this).own) return [item.column];
      const spoken = item ? null : this.featured();
      return spoken ? [spoken.row] : [];
    }
    return [item.row];
  }

  /** The heads of views that show several: those that were chosen there, else the one head that is chosen, else all. */
  shownHeads() {
    const { heads, head } = this.state;
    const all = Array.from({ length: this.record.heads }, (_, one) => one);
    return heads !== null ? all.filter((one) => heads.includes(one)) : head !== null ? [head] : all;
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
    if (!this.current()) return;
    if ("head" in changes) this.state.heads = null;
    if ("head" in changes || "record" in changes) this.chosen = true;
    Object.assign(this.state, changes);
    this.hover = null;
    this.view.settle(this);
    this.refresh();
  }

  /** Shows a view; a selection may have the fields of a state, queries (locked rows), row and column. */
  show(name, selection = {}) {
    const view = this.views.find((one) => one.name === presentName(name));
    if (!view) throw new RangeError(`no view ${String(name)}; there are ${this.views.map((one) => one.name).join(", ")}`);
    if (!view.available(this)) throw new RangeError(`the view ${name} cannot show these records`);
    if ("record" in selection || "head" in selection) this.chosen = true;
    this.turnTo(view, selection);
  }

  turnTo(view, selection) {
    const { state } = this;
    if (state.view !== view.name) {
      this.player.stop();
      state.zoom = 1;
      this.frame.scroller.scrollTo(0, 0);
      this.hover = this.cursor = this.elsewhere = null;
    }
    if ("head" in selection) state.heads = null;
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
    const view = this.views.find((one) => one.name === presentName(changes.view) && one.available(this)) ?? this.view;
    if (!view || !this.current()) return;
    this.chosen = true;
    this.turnTo(view, changes);
    this.readTheme();
  }

  /** Shows what a fragment of an address names, if it names anything. */
  visit(fragment) {
    const found = stateOf(fragment);
    if (Object.keys(found).length) this.apply(found);
  }

  /** Shows what another viewer points at; null: nothing. */
  point(item) {
    this.elsewhere = item ?? null;
    this.changed();
  }

  /** Makes the state fit the records and the view. */
  settle() {
    const { state } = this;
    if (!this.record || !this.fits(this.record)) {
      const found = this.records.findIndex((record) => this.fits(record));
      state.record = Math.max(0, found);
      state.locked = [];
    }
    state.locked = distinct(state.locked, this.record?.queries.length ?? 0);
    const heads = state.heads && distinct(state.heads, this.record?.heads ?? 0);
    state.heads = heads?.length || !state.heads?.length ? heads : null;
    if (this.record && state.head !== null && !(state.head < this.record.heads)) state.head = 0;
    if (!(state.steps < this.steps.length)) state.steps = 0;
    if (!Object.hasOwn(SCALES, state.scale)) state.scale = "linear";
    this.view?.settle(this);
  }

  // --- elements ---

  readTheme() {
    const query = (text) => globalThis.matchMedia?.(text).matches ?? false;
    const dark = this.printing ? false : this.state.theme === "auto" ? query("(prefers-color-scheme: dark)") : this.state.theme === "dark";
    this.element.dataset.scheme = this.state.theme;
    this.theme = query("(forced-colors: active)") ? forcedTheme(this.frame.box) : dark ? DARK : LIGHT;
    this.frame.paintWith(this.theme);
  }

  /** Rebuilds what depends on the state and keeps the focus where it was. */
  refresh() {
    if (!this.current()) return;
    const focus = this.frame.focusPlace();
    this.frame.showTabs(this.views.filter((view) => view.available(this)), this.view, (name) => this.show(name));
    this.frame.stage.setAttribute("aria-busy", "true");
    if (!this.current().decoded) this.ready = false;
    this.prepare(focus).catch((error) => this.fail(error));
  }

  async prepare(focus) {
    await this.opening;
    if (!this.current()) return;
    this.view.settle(this);
    const shown = this.current();
    await shown.decode();
    // Something else may have been chosen in the meantime.
    if (this.stopped.signal.aborted || this.current() !== shown) return;
    this.frame.bar.replaceChildren(...new Controls(this).build());
    this.frame.showBeside(this.view.beside(this));
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
    return this.view?.name === "walk" ? this.steps[this.state.steps] : this.record;
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
    this.frame.box.classList.toggle("slim", this.frame.box.clientWidth < 760);
    const { clientWidth, clientHeight } = this.frame.scroller;
    if (!clientWidth || !clientHeight) return;
    const area = () => ({ width: clientWidth, height: Math.max(60, clientHeight - TOP - this.legendHeight) });
    this.area = area();
    this.legendHeight = legendHeight(this.view.legend(this), clientWidth);
    this.area = area();
    const size = this.view.size(this);
    const zoom = this.frame.bar.querySelector(".zoom");
    if (zoom) zoom.hidden = this.state.zoom === 1 && size.width <= this.area.width && size.height <= this.area.height;
    this.frame.space.style.width = `${Math.min(size.width, 3e7)}px`;
    this.frame.space.style.height = `${Math.min(size.height + TOP + this.legendHeight, 3e7)}px`;
    // Scroll bars that came or went changed the room.
    const [width, height] = [this.frame.scroller.clientWidth, this.frame.scroller.clientHeight];
    this.area = { width, height: Math.max(60, height - TOP - this.legendHeight) };
    this.frame.sizeCanvas(width, height);
    this.changed();
  }

  draw() {
    this.tables.frameStart = performance.now();
    const win = this.window(); // before elements change, since reading it then lays them out
    const ratio = this.frame.canvas.width / Math.max(1, this.area.width);
    this.frame.pen.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    paint(this, this.frame.pen);
    this.view.update(this);
    this.tell(win);
    this.cards.place();
    this.frame.stage.setAttribute("aria-busy", "false");
    this.journal.note();
  }

  /** The pair that the sentence speaks of while nothing is pointed at; null where there is none. */
  featured() {
    return this.active() ? null : featured(this);
  }

  window() {
    return { x: this.frame.scroller.scrollLeft, y: this.frame.scroller.scrollTop, ...this.area };
  }

  /** The tooltip, and the same text for screen readers. */
  tell(win) {
    const item = this.active();
    const text = item ? this.view.describe(this, item) : selectionText(this);
    if (this.frame.readout.textContent !== text) this.frame.readout.textContent = text;
    this.frame.tellSentence(sentenceOf(this));
    this.frame.tip.hidden = !item || this.view.quiet || this.cards.open;
    if (this.frame.tip.hidden) return;
    const box = this.view.place(this, item);
    this.frame.placeTip(text, { ...box, x: box.x - win.x, y: box.y - win.y + TOP }, this.area.width);
  }

  destroy() {
    this.stopped.abort();
    this.journal.destroy();
    this.player.destroy();
    this.observer.disconnect();
    if (this.request) cancelAnimationFrame(this.request);
    this.frame.root.replaceChildren();
  }
}

// mount.js

/** The viewers that are shown: they have one language. */
let mounted = 0;

/**
 * Shows a payload inside of an element.
 * @param {HTMLElement} element gets a shadow root; its height is filled
 * @param {object} payload what `regard.viewer.payload` gives
 * @param {{view?: string, selection?: object, theme?: "auto"|"light"|"dark", height?: number, language?: string, address?: boolean,
 *   views?: string[], controls?: string[],
 *   fetchSteps?: (record: number, head: number) => Promise<any>,
 *   fetchTile?: (record: number, q0: number, q1: number, k0: number, k1: number) => Promise<any>}} [options]
 *   fetchSteps gives the worked calculation of a head, an entry of the payload's `steps`;
 *   fetchTile gives exact weights [heads, q1 - q0, k1 - k0]: {type, shape, data}, a typed array or nested lists
 *   language of all words ("en", "zh"); that of the element where it is not given. All viewers of a page have one language: that of the
 *   first; the language of a later one has no effect while another is shown
 *   view and views: a former name is taken too ("alignment", "heads", "model", "steps", "text"), here and in `show`
 *   views: the names of those that are offered; all where they are not given
 *   controls: the same of the controls
 *   address: whether the page's address holds what is shown
 * @returns {{update(payload: object): void, show(view: string, selection?: object): void, destroy(): void,
 *   set(state: object): void, point(item: object|null): void, onChange(listener: (state: object, item: object|null) => void): () => void,
 *   undo(): void, redo(): void, state(): object, locate(item: object): object, svg(): string}}
 */
function mount(element, payload, options = {}) {
  if (mounted === 0) speak(options?.language ?? /** @type {HTMLElement|null} */ (element.closest("[lang]"))?.lang);
  const viewer = new Viewer(element, payload, options ?? {});
  mounted += 1;
  const handle = {
    update: (next) => viewer.load(next),
    show: (view, selection) => viewer.show(view, selection),
    destroy: () => {
      if (!viewer.stopped.signal.aborted) mounted -= 1;
      viewer.destroy();
    },
    set: (state) => viewer.journal.applyQuietly(state),
    point: (item) => viewer.point(item),
    onChange: (listener) => viewer.journal.onChange(listener),
    undo: () => viewer.journal.undo(),
    redo: () => viewer.journal.redo(),
    state: () => structuredClone(viewer.state),
    locate: (item) => locate(viewer, item),
    svg: () => svgOf(viewer),
  };
  element.regardView = handle;
  return handle;
}

export { addressOf, mount, say, speak, stateOf };
