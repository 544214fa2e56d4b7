// @ts-check

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
export const FIELDS = {
  view: ["pattern", isName],
  record: [0, isCount],
  head: [0, orNull(isCount)], // null: the mean of all
  scale: ["linear", oneOf("linear", "root", "log", "row")],
  words: [true, isFlag], // whether the pieces of a word are one
  hideSpecial: [false, isFlag],
  overlay: ["veil", oneOf("veil", "colours")],
  pooling: ["mean", oneOf("maximum", "mean")],
  order: ["layer", oneOf("layer", "does", "entropy", "loss")], // of the grid's heads
  range: ["each", oneOf("each", "one")], // whether each map of the grid has its own scale, or all have "one"
  locked: [[], areCounts], // the rows that stay chosen
  overall: [false, isFlag], // whether all rows are shown together while none is chosen; else the one that the sentence speaks of
  heads: [null, orNull(areCounts)], // those with lines; null: the chosen one, or all
  steps: [0, isCount],
  grid: [0, isCount], // whose numbers are shown
  station: ["input", oneOf("input", "vectors", "score", "scale", "cap", "bias", "mask", "weights", "output", "then")], // of the walk
  trial: [null, orNull(isTrial)], // what differs from the model in the walk; null: nothing
  measure: ["weights", oneOf("weights", "norms", "contributions")], // or weights times something that the record carries
  kept: [null, orNull(isCell)],
  other: [null, orNull(isHead)], // what the view of differences takes away
  language: [null, orNull(oneOf("en", "zh"))], // that was chosen here; null: that of the page
  zoom: [1, within(1e-6, 1e6)],
  theme: ["auto", oneOf("auto", "light", "dark")],
};

/** What the place where it is shown decides: no step of undo, and not in the address. */
export const PASSING = ["zoom", "theme"];

/** A state whose heads are counted otherwise: `turn` gives the new count of a record's head. */
export const recounted = (state, turn) => ({ ...state,
  ...(Number.isInteger(state.head) ? { head: turn(state.record, state.head) } : {}),
  ...(state.heads ? { heads: state.heads.map((head) => turn(state.record, head)) } : {}),
  ...(Number.isInteger(state.other?.head) ? { other: { ...state.other, head: turn(state.other.record, state.other.head) } } : {}) });

/** @returns {any} what a new viewer shows */
export const initialState = () => Object.fromEntries(Object.entries(FIELDS).map(([name, [value]]) => [name, structuredClone(value)]));

/** The fields of a state that another viewer or the same one later can show again. */
export const lasting = (state) => Object.fromEntries(Object.keys(FIELDS).filter((name) => !PASSING.includes(name) && name !== "language").map((name) => [name, state[name]]));

/** The fields of something from elsewhere that a state has, where their values can be. */
export const checkedState = (given) => Object.fromEntries(Object.keys(FIELDS).filter((name) => name in given && FIELDS[name][1](given[name]))
  .map((name) => [name, structuredClone(given[name])]));

/** Counts below a number, each once. */
export const distinct = (counts, below) => [...new Set(counts)].filter((one) => one < below);

/** Whether two places of a view are the same. */
export const sameItem = (one, other) => JSON.stringify(one) === JSON.stringify(other);

/** Most steps that can be taken back. */
const MOST_STEPS = 200;

/** The states that were shown, to go back and forth. */
export class History {
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
