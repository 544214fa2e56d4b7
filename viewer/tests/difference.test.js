import assert from "node:assert/strict";
import { test } from "node:test";

import { Difference, commonPlaces, commonSide, mostDifferentHead } from "../modules/difference.js";
import { MASKED, MISSING, WEIGHT, ZERO } from "../modules/table.js";

/** A table as views have it, of rows of numbers; null is masked. */
function table(rows, columns, values) {
  const cell = (row, column) => values[row][column];
  return {
    rows: rows.length, columns: columns.length, words: false, rowGroups: rows, columnGroups: columns,
    record: { queries: { kind: "tokens" }, keys: { kind: "tokens" } },
    rowText: (row) => rows[row], columnText: (column) => columns[column], error: () => 0, value: (row, column) => cell(row, column) ?? 0,
    kind: (row, column) => (cell(row, column) === null ? MASKED : cell(row, column) === 0 ? ZERO : WEIGHT),
    cell: (row, column) => String(cell(row, column)),
  };
}

test("equal tokens are found in the order of both texts, as many as there are", () => {
  assert.deepEqual(commonPlaces(["a", "b", "a"], ["a", "b", "a"]), [[0, 0], [1, 1], [2, 2]]);
  assert.deepEqual(commonPlaces(["it", "was", "too", "tired", "."], ["it", "was", "wide", "."]), [[0, 0], [1, 1], [4, 3]]);
  assert.deepEqual(commonPlaces(["a", "b"], []), []);
  // Against a plain search through all choices of places.
  const best = (one, other) => (!one.length || !other.length ? 0 : Math.max(
    one[0] === other[0] ? 1 + best(one.slice(1), other.slice(1)) : 0, best(one.slice(1), other), best(one, other.slice(1))));
  for (let seed = 0; seed < 60; seed += 1) {
    const letters = (count, step) => Array.from({ length: count }, (_, place) => "abc"[(seed * 7 + place * place * step + place) % 3]);
    const [one, other] = [letters(5 + (seed % 3), 2), letters(4 + (seed % 4), 5)];
    const pairs = commonPlaces(one, other);
    assert.equal(pairs.length, best(one, other));
    pairs.forEach(([i, j], number) => {
      assert.equal(one[i], other[j]);
      if (number) assert.ok(pairs[number - 1][0] < i && pairs[number - 1][1] < j);
    });
  }
});

test("texts of one length are compared place by place, and what differs has both words", () => {
  const [one, other] = [["it", "was", "tired"], ["it", "was", "wide"]].map((words) => table(words, words, [[1, 0, 0], [0, 1, 0], [0.25, 0, 0.75]]));
  const found = new Difference(one, other, commonSide(one, other, "row"), commonSide(one, other, "column"));
  assert.deepEqual([found.rows, found.columns, found.rowText(0), found.rowText(2), found.columnText(2)], [3, 3, "it", "tired | wide", "tired | wide"]);
  assert.deepEqual(found.leftOut(), []);
});

test("texts with less than half in common have no difference", () => {
  const [one, other] = [table(["a", "b", "c"], ["a"], [[1], [1], [1]]), table(["a", "x", "y"], ["a"], [[1], [1], [1]])];
  assert.equal(commonSide(one, other, "row"), null);
  assert.deepEqual(commonSide(one, other, "column"), [[0, 0]]);
});

test("a difference is one weight minus the other; what one mask hides counts as 0", () => {
  const one = table(["p", "q", "r"], ["k", "l"], [[0.75, 0.25], [0.5, null], [NaN, null]]);
  const other = table(["p", "r"], ["k", "l"], [[0.25, 0.25], [0.5, null]]);
  const found = new Difference(one, other, commonSide(one, other, "row"), commonSide(one, other, "column"));
  assert.deepEqual([found.rows, found.columns, found.largest], [2, 2, 0.5]);
  assert.equal(found.value(0, 0), 0.5);
  assert.deepEqual([found.kind(0, 0), found.kind(0, 1), found.kind(1, 0), found.kind(1, 1)], [WEIGHT, ZERO, MISSING, MASKED]);
  assert.deepEqual(found.leftOut(), ["q"]);
  const back = new Difference(other, one, commonSide(other, one, "row"), commonSide(other, one, "column"));
  assert.equal(back.value(0, 0), -0.5);
  assert.equal(back.shade(0, 0, "linear"), -1);
});

test("the pair that differs most is one of words, and what moved is half of all differences", () => {
  const one = Object.assign(table(["[S]", "q"], ["[S]", "k"], [[1, 0], [0.75, 0.25]]), { rowSums: [1, 1], measure: "weights" });
  const other = Object.assign(table(["[S]", "q"], ["[S]", "k"], [[0, 1], [0.5, 0.5]]), { rowSums: [1, 1], measure: "weights" });
  const isSpecial = (group) => group === "[S]";
  for (const each of [one, other]) Object.assign(each.record, { queries: { kind: "tokens", isSpecial }, keys: { kind: "tokens", isSpecial } });
  const found = new Difference(one, other, commonSide(one, other, "row"), commonSide(one, other, "column"));
  assert.deepEqual([found.most?.row, found.most?.column], [1, 1]);
  assert.equal(found.moved, (1 + 0.25) / 2);
  assert.equal(new Difference(one, one, commonSide(one, one, "row"), commonSide(one, one, "column")).most, null);
  other.rowSums = [1, 0.5];
  assert.equal(new Difference(one, other, commonSide(one, other, "row"), commonSide(one, other, "column")).moved, null);
});

test("the head that differs most is taken away", () => {
  const heads = [[1, 0], [0.9, 0.1], [0, 1], [0.5, 0.5]];
  const record = { heads: 4, queries: { length: 1 }, keys: { length: 2 }, entry: { codes: { maximum: 1 } }, codeValues: [0, 0.1, 0.5, 0.9, 1],
    codes: Uint8Array.from(heads.flat(), (weight) => [0, 0.1, 0.5, 0.9, 1].indexOf(weight)) };
  assert.deepEqual([0, 1, 2, 3].map((head) => mostDifferentHead(record, head)), [2, 2, 0, 0]);
  assert.equal(mostDifferentHead(record, null), 0);
});
