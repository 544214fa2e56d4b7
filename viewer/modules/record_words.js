// @ts-check

import { say } from "./language.js";

/**
 * What a record is, in plain words: "encoder", "decoder, causal", "decoder → source".
 * @param {{kind: string, keys: {kind: string}, others: {kind: string}[]}} record kind as in the payload; others: all records of the document
 */
export function kindText({ kind, keys, others }) {
  if (kind === "self") return say("kind_self");
  if (kind === "causal") return say("kind_causal");
  const target = say(keys.kind === "grid" ? "kind_image" : keys.kind === "frames" ? "kind_sound" : "kind_source");
  return say(others.some((one) => one.kind === "causal") ? "kind_cross" : "kind_queries", { target });
}

/** Whether records differ by more than their layer. */
export const differInKind = (records) => new Set(records.map((record) => record.entry.kind)).size > 1;
