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

function axesOf(payload, number) {
  const { queries, keys } = payload.records[number];
  return [payload.axes[queries], payload.axes[keys]];
}

/** Whether rows and columns of a viewer are other things than positions: words, or tokens without the special ones. */
const regrouped = (state) => state.words || state.hideSpecial;

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
  const [rows, otherRows] = [axesOf(from, state.record)[0], axesOf(to, record)[0]];
  const equal = rows.kind === otherRows.kind && (rows.kind !== "tokens" || same(rows.tokens, otherRows.tokens));
  const locked = equal ? state.locked : regrouped(state) ? [] : state.locked.map((row) => samePlace(rows, otherRows, row));
  const { heads } = to.records[record];
  shared.kept = state.kept && sharedItem(state.kept, state, from, to); // the pair of a walk
  return { ...shared, record, head: state.head !== null && state.head < heads ? state.head : null, locked: locked.filter((row) => row !== null) };
}

/** What a viewer points at, for another pane; null for nothing. */
export function sharedItem(item, state, from, to) {
  const record = item && from.records[state.record] ? sameRecord(from, to, state.record) : null;
  if (record === null) return null;
  const [[rows, columns], [otherRows, otherColumns]] = [axesOf(from, state.record), axesOf(to, record)];
  const equal = [[rows, otherRows], [columns, otherColumns]].every(([one, other]) =>
    one.kind === other.kind && (one.kind !== "tokens" || same(one.tokens, other.tokens)));
  if (equal) return item;
  if (regrouped(state)) return null;
  const shared = { ...item };
  if (item.row !== undefined) shared.row = samePlace(rows, otherRows, item.row);
  if (item.column !== undefined) shared.column = samePlace(columns, otherColumns, item.column);
  return shared.row === null || shared.column === null ? null : shared;
}
