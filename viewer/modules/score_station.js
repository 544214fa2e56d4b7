// @ts-check

/** @import { Part, Station, Stations, Sum } from "./stations.js" */

import { say } from "./language.js";
import { equalSign, printed, strongest } from "./numbers.js";
import { shortText } from "./text.js";

/** How many lines of a table are shown before the others are asked for. */
export const FEW_DIMENSIONS = 8;

/** How a score compares query and key, by the name of its class. */
const FORMS = { Dot: "dot", ScaledDot: "dot", General: "general", Additive: "additive", Cosine: "cosine", Location: "location", MLP: "mlp" };

/** The largest difference, relative to 1, between a score and what its form gives. */
const SCORE_ROUNDING = 1e-3;

/** "dot", "general", "additive", "cosine", "location" or "mlp"; "" for other scores. */
export const formOf = ({ entry }) => FORMS[entry.comparison] ?? (entry.score === "dot" && !entry.comparison ? "dot" : "");

/** Whether a score multiplies query or key by a matrix of its own before it compares them. */
export const projects = (steps) => ["general", "additive"].includes(formOf(steps)) && (steps.has("w_query") || steps.has("w_key"));

/**
 * The positions of the largest sizes, and how they were chosen in words; "" where they are all.
 * @param {string} what what the sizes are
 * @param {number|null} chosen a position that is among them, or named besides
 */
export function fewLargest(sizes, most, what, chosen = null, key = "") {
  const few = strongest(sizes, Math.min(most, sizes.length), chosen);
  const isBesides = few.length > 0 && chosen !== null && !strongest(sizes, few.length).includes(chosen);
  return { few, why: few.length === sizes.length ? "" : say(isBesides ? "walk_few_and" : "walk_few", { shown: few.length - Number(isBesides), all: sizes.length, what, key }) };
}

/** The dimensions of the largest products, in their order. */
export function foremost(products, what, most = FEW_DIMENSIONS) {
  const { few, why } = fewLargest(Array.from(products, Math.abs), most, what);
  return { few: few.sort((one, other) => one - other), why };
}

/** The first dimensions. */
export const firstOf = (count) => ({ few: Array.from({ length: Math.min(count, FEW_DIMENSIONS) }, (_, place) => place),
  why: count > FEW_DIMENSIONS ? say("walk_first", { shown: FEW_DIMENSIONS, all: count }) : "" });

/** The products of query and key, number by number, where the score adds them up. */
export const productsOf = ({ steps, entry, pair }) => (entry.score !== "dot" || steps.columnsOf("query") !== steps.columnsOf("key") ? null
  : steps.rowOf("query", pair.row).map((value, place) => value * steps.at("key", pair.column, place)));

/** A table whose columns after the first are numbers, the last of which add up to a score. */
function scoreTable(names, numbers, score, makes) {
  const rows = numbers.map((line, dimension) => ({ label: String(dimension), numbers: line }));
  const last = names.length - 1;
  return /** @type {Part} */ ({ kind: "sum", name: "products", sum: /** @type {Sum} */ ({ head: [say("walk_dim"), ...names], adds: names.map((_, place) => place === last), makes, rows,
    ...foremost(rows.map((row) => row.numbers[last]), say("walk_by_product")), foot: { label: say("walk_sum"), numbers: names.map((_, place) => (place === last ? score : null)) } }) });
}

/** The products of query and key, and their sum. */
const products = (query, key, sum, name = say("walk_query")) =>
  scoreTable([name, say("walk_key"), say("walk_product")], Array.from(query, (value, place) => [value, key[place], value * key[place]]), sum, [null, null, (one, other) => one * other]);

/**
 * The station of the score of a pair: as its mechanism computes it.
 * @param {Stations} walk
 * @returns {Station}
 */
export function scoreStation(walk) {
  const { steps, pair, entry } = walk;
  const { row, column } = pair;
  const value = walk.row.scores[column];
  const [query, key] = [steps.rowOf("query", row), steps.rowOf("key", column)];
  const texts = { query: walk.query, key: walk.key, score: printed(value) };
  const common = { id: "score", figure: printed(value), operation: walk.scaleOperation() };
  const made = (name, values = {}, parts = /** @type {Part[]} */ ([])) => ({ ...common, title: say(/** @type {any} */ (`walk_${name}`)), sentence: say(/** @type {any} */ (`walk_says_${name}`), { ...texts, ...values }), parts });
  const projected = (name, side) => {
    const values = steps.rowOf(name, side === "query" ? row : column);
    const words = side === "query" ? walk.query : walk.key;
    return /** @type {Part} */ ({ kind: "cells", name, side, label: say("walk_of", { name: say(side === "query" ? "walk_projected_query" : "walk_projected_key"), word: words }),
      values, open: walk.projection(name, side === "query" ? row : column) });
  };
  const sizes = (name) => ({ rows: entry.matrices[name].shape[0], columns: steps.columnsOf(name) });
  const form = formOf(steps);
  if (form === "general" && steps.has("w_query")) {
    return made("general", sizes("w_query"), [projected("query", "query"), products(query, key, value, say("walk_projected_query"))]);
  }
  if (form === "general" && entry.score === "dot") return made("general_projected", {}, [products(query, key, value, say("walk_projected_query"))]);
  if (form === "additive") return made("additive", { units: query.length }, additiveParts(walk, query, key, value, projected));
  if (form === "cosine") {
    const dot = query.reduce((sum, one, place) => sum + one * key[place], 0);
    const [a, b] = [query, key].map((vector) => Math.hypot(...vector));
    if (Math.abs(dot / (a * b || 1) - value) <= SCORE_ROUNDING) {
      const sign = equalSign(value, (sum, one, other) => sum / (one * other), dot, a, b) === "=" ? "" : "\u2248\u2009";
      return made("cosine", { dot: printed(dot), one: printed(a), other: printed(b), score: `${sign}${texts.score}` }, [products(query, key, dot)]);
    }
  }
  if (form === "location") return made("location", { position: column });
  if (form === "mlp") return made("mlp");
  if (entry.score === "dot") return made("dot", {}, [products(query, key, value)]);
  return made("score", { name: shortText(entry.comparison || entry.score, 30) });
}

/** The units of an additive score: their sums, the hyperbolic tangent, and its weights where the record has them. */
function additiveParts(walk, query, key, value, projected) {
  const { steps } = walk;
  const parts = [];
  if (steps.has("w_query")) parts.push(projected("query", "query"));
  if (steps.has("w_key")) parts.push(projected("key", "key"));
  const unit = (place) => Math.tanh(query[place] + key[place]);
  const names = [steps.has("w_query") ? say("walk_projected_query") : say("walk_query"), steps.has("w_key") ? say("walk_projected_key") : say("walk_key"), "tanh"];
  if (steps.has("w_score")) {
    const weight = (place) => steps.at("w_score", place, 0);
    parts.push(scoreTable([...names, "v", say("walk_product")], Array.from(query, (one, place) => [one, key[place], unit(place), weight(place), weight(place) * unit(place)]), value,
      [null, null, (one, other) => Math.tanh(one + other), null, (_one, _other, tanh, factor) => tanh * factor]));
  }
  return parts;
}
