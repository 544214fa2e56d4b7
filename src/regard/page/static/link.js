// @ts-check
// What panes share: the state of a viewer, and what it points at, in terms of another pane's attention.

/** What each viewer has of its own. */
const OWN = ["zoom", "theme", "steps"];

const same = (one, other) => one.length === other.length && one.every((token, place) => token === other[place]);

/**
 * The position of one axis that is the same as a position of another: the same position where all tokens are equal, else the
 * token of the same text, counted among its like.
 * @param {any} from an axis of a payload
 * @param {any} to another one
 * @returns {number|null}
 */
export function samePlace(from, to, place) {
  if (from.kind !== to.kind) return null;
  if (from.kind !== "tokens" || same(from.tokens, to.tokens)) return place < to.length ? place : null;
  const count = from.tokens.slice(0, place).filter((token) => token === from.tokens[place]).length;
  const alike = to.tokens.flatMap((token, other) => (token === from.tokens[place] ? [other] : []));
  return alike[count] ?? alike.at(-1) ?? null;
}

/** The record of a payload that stands for a record of another: the same place, layer and kind, or the same layer and kind. */
export function sameRecord(from, to, number) {
  const record = from.records[number];
  const alike = (one) => one && one.layer === record.layer && one.kind === record.kind;
  if (alike(to.records[number])) return number;
  const found = to.records.findIndex(alike);
  return found < 0 ? null : found;
}

/** The axes of a record of a payload as a viewer in some state shows them. */
function axesOf(payload, number, state) {
  const { queries, keys } = payload.records[number];
  return [payload.axes[queries], payload.axes[keys]].map((axis) => shownAxis(axis, state));
}

/** An axis as a viewer shows it: of words, or without the special tokens; the walk has single tokens. */
function shownAxis(axis, { view, words, hideSpecial }) {
  if (axis.kind !== "tokens" || view === "walk") return axis;
  const starts = words && axis.words?.length ? axis.words : axis.tokens.map((_, position) => position);
  const special = new Set(hideSpecial ? axis.special : []);
  const groups = starts.map((start, number) => Array.from({ length: (starts[number + 1] ?? axis.length) - start }, (_, piece) => start + piece));
  const tokens = groups.filter((group) => !group.every((position) => special.has(position))).map((group) => group.map((position) => axis.tokens[position]).join(""));
  return { ...axis, tokens, length: tokens.length };
}

/**
 * A viewer's state for another pane; null where that one has no such attention.
 * @param {any} state
 * @param {any} from the payload that it belongs to
 * @param {any} to the payload of the other pane
 */
export function sharedState(state, from, to) {
  const record = from.records[state.record] ? sameRecord(from, to, state.record) : null;
  if (record === null) return null;
  const shared = Object.fromEntries(Object.entries(state).filter(([name]) => !OWN.includes(name)));
  const [rows, otherRows] = [axesOf(from, state.record, state)[0], axesOf(to, record, state)[0]];
  const equal = rows.kind === otherRows.kind && (rows.kind !== "tokens" || same(rows.tokens, otherRows.tokens));
  const locked = equal ? state.locked : state.locked.map((row) => samePlace(rows, otherRows, row));
  const { heads } = to.records[record];
  shared.kept = state.kept && sharedItem(state.kept, state, from, to); // the pair of a walk
  return { ...shared, record, head: state.head !== null && state.head < heads ? state.head : null, locked: locked.filter((row) => row !== null) };
}

/** What a viewer points at, for another pane; null for nothing. */
export function sharedItem(item, state, from, to) {
  const record = item && from.records[state.record] ? sameRecord(from, to, state.record) : null;
  if (record === null) return null;
  const [[rows, columns], [otherRows, otherColumns]] = [axesOf(from, state.record, state), axesOf(to, record, state)];
  const equal = [[rows, otherRows], [columns, otherColumns]].every(([one, other]) =>
    one.kind === other.kind && (one.kind !== "tokens" || same(one.tokens, other.tokens)));
  if (equal) return item;
  const shared = { ...item };
  if (item.row !== undefined) shared.row = samePlace(rows, otherRows, item.row);
  if (item.column !== undefined) shared.column = samePlace(columns, otherColumns, item.column);
  return shared.row === null || shared.column === null ? null : shared;
}
