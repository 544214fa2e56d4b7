// @ts-check

/** @import { Part, Station, Stations } from "./stations.js" */

import { signed } from "./head_order.js";
import { say } from "./language.js";
import { printed, strongest } from "./numbers.js";
import { foremost } from "./score_station.js";

/** The share of a score below which a rest is rounding and has no row. */
const ROUNDING = 1e-5;

/** What wrote to the residual stream, in a few words. */
export function sourceText({ kind, name, layer, head }) {
  if (kind === "head") return head === null ? say("source_heads", { layer }) : say("source_head", { layer, head });
  if (kind === "module") return layer === null ? name : say("source_module", { name, layer });
  return say(/** @type {any} */ (`source_${kind}`), { layer });
}

/**
 * The station that says what wrote the parts of a score; none if the record does not have them.
 * @param {Stations} walk
 * @returns {Station[]}
 */
export function scoreSources(walk) {
  const { steps, pair, query, key, calculation } = walk;
  const { parts } = steps;
  const score = walk.row.scaled[pair.column];
  if (!parts || !Number.isFinite(score)) return [];
  const factor = calculation.differs("scale") ? calculation.used.scale / calculation.model.scale : 1;
  const at = (side, source) => factor * parts[side][(source * steps.rows + pair.row) * steps.columns + pair.column];
  const rows = parts.sources.map((source, number) => ({ label: sourceText(source), numbers: [at("query", number), at("key", number)] }));
  const sizes = rows.map(({ numbers }) => Math.max(...numbers.map(Math.abs)));
  const { few, why } = foremost(sizes, say("walk_by_amount"));
  const rest = [0, 1].map((side) => score - rows.reduce((sum, { numbers }) => sum + numbers[side], 0));
  if (rest.some((value) => Math.abs(value) > ROUNDING * Math.max(...sizes, Math.abs(score)))) {
    few.push(rows.length);
    rows.push({ label: say("source_rest"), numbers: rest });
  }
  const [largest] = strongest(rows.map(({ numbers }) => Math.abs(numbers[1])), 1);
  /** @type {Part[]} */
  const shown = [
    { kind: "sum", name: "sources", sum: { head: [say("source_name"), say("source_in_query", { query }), say("source_in_key", { key })], adds: [true, true],
      rows, few, why, foot: { label: say("walk_sum"), numbers: [score, score] } } },
    { kind: "line", text: say("source_note") },
  ];
  return [{ id: "sources", title: say("walk_sources"), figure: rows[largest].label, operation: "", parts: shown,
    sentence: say("walk_says_sources", { key, source: rows[largest].label, amount: signed(rows[largest].numbers[1]), score: printed(score) }) }];
}
