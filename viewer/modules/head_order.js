// @ts-check

import { LABEL_ORDER, headLabel, labelText, patternText, statisticsOf } from "./head_labels.js";
import { say } from "./language.js";
import { formatNumber, percent } from "./numbers.js";

/** In what order the grid can show heads; the change of the loss where it was measured. */
export function ordersOf(records) {
  const measured = records.some((record) => record.entry.statistics?.some((values) => values.loss !== undefined));
  return ["layer", "does", "entropy", ...(measured ? ["loss"] : [])];
}

/** The entropy of a head relative to even attention, of a survey where there is one; null where it is not known. */
export function relativeEntropy(record, head) {
  const surveyed = record.entry.statistics?.[head]?.relative_entropy;
  const value = surveyed ?? statisticsOf(record, head)?.relativeEntropy ?? null;
  return Number.isNaN(value) ? null : value;
}

/** The change of the loss without a head; null where it was not measured. */
export const lossChange = (record, head) => record.entry.statistics?.[head]?.loss ?? null;

/** A number with its sign. */
export const signed = (value) => (value > 0 ? `+${formatNumber(value)}` : formatNumber(value));

/** What is written below a small map: what the head does, or the number that it is sorted by; "" for nothing. */
export function captionOf(record, head, order, brief) {
  if (order === "entropy") {
    const value = relativeEntropy(record, head);
    return value === null ? "" : say("grid_entropy", { percent: percent(value) });
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
export function headGroups(records, order) {
  const heads = records.flatMap((record) => Array.from({ length: record.heads }, (_, column) => ({ row: record.number, column, record })));
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
