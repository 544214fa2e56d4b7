// @ts-check

import { PATTERNS, headStatistics, offsetName } from "./head_statistics.js";
import { say } from "./language.js";
import { percent } from "./numbers.js";
import { quoted, shortText } from "./text.js";

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
export const LABEL_ORDER = ["offset -1", "offset +1", "offset 0",
  ...[-2, -3, -4, 2, 3, 4].map(offsetName), "near", "same_word", "same_token", "induction", "one_key", "first", "special", "even", ""];

const labelled = new WeakMap();

/**
 * What a head does, the clearest first: {name, share, chance, queries, all}; [] where nothing is above the noise level.
 * Of a record that is not carried whole it follows from its findings, which are exact; [] says nothing about such heads.
 * @returns {{name: string, share: number, chance: number|null, queries: number|null, all: number|null, key?: number}[]} queries: over how many of
 *   all the share is a mean, those that have such a key; key: of "one_key"
 */
export function headLabels(record, head) {
  if (!labelled.has(record)) labelled.set(record, []);
  const known = labelled.get(record);
  known[head] ??= record.large ? foundLabels(record, head) : record.signed ? [] : labelsOf(statisticsOf(record, head));
  return known[head];
}

const taken = new WeakMap();

/** The statistics of a head, taken once; null of a record that is not carried whole, or whose weights have signs. */
export function statisticsOf(record, head) {
  if (record.large || record.signed) return null;
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
  if (!kept.length && relativeEntropy >= EVEN && queries >= LEAST_QUERIES) return [{ name: "even", share: relativeEntropy, chance: 1, queries, all: queries }];
  return kept.map(({ name, share, chance, queries: count, key }) => ({ name, share, chance, queries: count, all: queries, key }));
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
      .map((one) => ({ name: offsetName(one.offset - shift), share: one.share, queries: one.queries, all: one.all })),
  ];
  return labels.filter((one) => one.share >= (SINKS.has(one.name) ? LEAST_SINK : LEAST_EXCESS)).sort((a, b) => b.share - a.share).map((one) => ({ queries: null, all: null, ...one, chance: null }));
}

/** What a survey says that a head does; null where no pattern takes half of its weight, or there is no survey. */
export function surveyLabel(record, head) {
  const values = record.entry.statistics?.[head];
  if (!values) return null;
  const shares = Object.keys(values).filter((name) => PATTERNS.includes(name) && values[name] !== null);
  const best = shares.reduce((most, name) => (most === null || values[name] > values[most] ? name : most), /** @type {string|null} */ (null));
  return best !== null && values[best] >= SURVEY_SHARE ? { name: best, share: values[best] } : null;
}

/** The name under which a head is listed, and its share: a survey's where there is one, else this record's; null where none is clear. */
export function headLabel(record, head) {
  const surveyed = record.entry.statistics?.[head];
  const hasShares = surveyed && Object.keys(surveyed).some((name) => PATTERNS.includes(name));
  return hasShares ? surveyLabel(record, head) : headLabels(record, head)[0] ?? null;
}

/** A pattern in a few letters, or in words. */
export function patternText(name, record, brief = false) {
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
export function labelText(label, record, brief = false) {
  if (label.name === "one_key") {
    const text = record.keys.text(label.key);
    return `${brief ? `\u2068${shortText(text, 8)}\u2069` : say("does_one_key_of", { key: quoted(text) })} ${percent(label.share)}`;
  }
  return label.name === "even" ? patternText(label.name, record, brief) : `${patternText(label.name, record, brief)} ${percent(label.share)}`;
}

/**
 * How many queries a label leaves out, which have no such key; "" where it leaves out none, or a survey gave it.
 * @param {any} label
 */
export const leftOutText = ({ queries, all }) => (queries < all ? say("does_of", { queries, all }) : "");

/** When a head gets a name, in words. */
export function noiseText(surveyed) {
  return surveyed ? say("names_survey", { share: percent(SURVEY_SHARE) })
    : say("names_here", { excess: percent(LEAST_EXCESS), sink: percent(LEAST_SINK), spreads: LEAST_SPREADS });
}
