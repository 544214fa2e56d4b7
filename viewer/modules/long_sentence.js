// @ts-check

import { say } from "./language.js";
import { counted, legendNumber, percent } from "./numbers.js";
import { quoted, shortText } from "./text.js";

/** Below this multiple of the equal share a head is said to spread its attention evenly. */
const EVEN_TIMES = 4;

/** A part of a query's attention, of which small ones have digits too. */
const shareText = (part) => (part < 0.01 ? percent(1).replace("100", legendNumber(Number((100 * part).toPrecision(2)))) : percent(part));

/** A multiple of the equal share. */
export const timesText = (times) => (times < 10 ? String(Math.round(10 * times) / 10) : counted(Math.round(times)));

const tokenNamed = (axis, position) => ({ text: quoted(shortText(axis.text(position), 24)), number: counted(position) });

/** One pair of a head, in words. */
export function sayOfPair(record, { query, key, weight, times }) {
  const [asks, looked] = [tokenNamed(record.queries, query), tokenNamed(record.keys, key)];
  return say("long_says_pair", { query: asks.text, row: asks.number, key: looked.text, column: looked.number, weight: shareText(weight), times: timesText(times) });
}

/** The same, as a line of a list. */
export const pairText = (record, { query, key, weight, times }) => say("long_pair_line", { query: tokenNamed(record.queries, query).text, row: counted(query),
  key: tokenNamed(record.keys, key).text, column: counted(key), weight: shareText(weight), times: timesText(times) });

/** What a head does with a long text: its clearest finding, else its strongest pair, else that it spreads its attention evenly. */
export function sayOfLongHead(map, head) {
  const { record, findings } = map;
  if (record.signed) return { text: say("grid_signed"), shares: "" };
  const peaks = map.peaksOf(head);
  const bound = map.largestTimes(head);
  const [best] = peaks;
  const mine = (one) => head === null || one.head === head;
  const regular = [...windowsOf(findings.diagonals.filter(mine)), ...findings.sinks.filter(mine)].sort((a, b) => b.share - a.share)[0];
  const [spike] = findings.spikes.filter(mine);
  const of = regular ?? spike ?? null;
  const which = head === null && of ? say("headNumber", { head: record.headNumber(of.head) }) : "";
  const text = regular ? sayOfFinding(record, regular) : spike ? sayOfPair(record, { ...spike, times: spike.weight / map.evenOf(spike.head, spike.query) })
    : bound < EVEN_TIMES || !best ? say(head === null ? "long_says_all_even" : "long_says_even", { times: timesText(Math.ceil(10 * bound) / 10), count: record.heads })
      : sayOfPair(record, best);
  const shares = best && regular && best.times > EVEN_TIMES ? say("long_says_most", { pair: pairText(record, best) }) : "";
  return { text: which ? say("long_says_of", { head: which, text }) : text, shares };
}

/** Distances of a head that follow each other are one window: its share is the mean over all queries. */
function windowsOf(diagonals) {
  const windows = [];
  for (const one of [...diagonals].sort((a, b) => a.head - b.head || a.offset - b.offset)) {
    const last = windows.at(-1);
    if (last && last.head === one.head && last.offset === one.offset - 1) {
      if (last.from === undefined) Object.assign(last, { from: last.offset, share: (last.share * last.queries) / last.all });
      Object.assign(last, { offset: one.offset, share: last.share + (one.share * one.queries) / one.all, queries: last.all });
    } else {
      windows.push({ ...one });
    }
  }
  return windows;
}

/** A distance, a window, or a key at which many look. */
function sayOfFinding(record, { key, offset, share, from, queries, all }) {
  if (key !== undefined) {
    const { text, number } = tokenNamed(record.keys, key);
    return say("long_says_sink", { key: text, number, share: percent(share) });
  }
  if (from !== undefined) {
    const count = counted(offset - from + (offset === 0 ? 0 : 1));
    return offset === 0 || offset === -1 ? say(offset === 0 ? "long_says_window_own" : "long_says_window", { share: percent(share), count })
      : say("long_says_window_other", { share: percent(share), from: counted(Math.abs(from)), to: counted(Math.abs(offset)) });
  }
  const how = offset === 0 ? "long_says_own" : offset === -1 ? "long_says_previous" : offset === 1 ? "long_says_next" : offset < 0 ? "long_says_back" : "long_says_ahead";
  const text = say(how, { share: percent(share), distance: counted(Math.abs(offset)) });
  return queries < 0.9 * all ? say("long_says_some", { text, queries: counted(queries), all: counted(all) }) : text;
}

/** What a point of the map says: of one weight, or of the pairs of a bin. */
export function sayOfPoint(map, pooling, head, { row, column }) {
  const { record } = map;
  const { queries, keys } = record;
  const exact = map.exact(head, row, column);
  if (exact !== null && !(exact < 0)) return Number.isNaN(exact) || record.signed ? "" : sayOfPair(record, { query: row, key: column, weight: exact, times: exact / map.evenOf(head, row) });
  if (exact !== null || record.signed) return "";
  const [down, across] = map.bin(row, column);
  const range = (length, bins, bin) => [map.edge(length, bins, bin), map.edge(length, bins, bin + 1) - 1].map(counted).filter((one, place, all) => one !== all[place - 1]).join("\u2013");
  const { value } = map.pooled(pooling, head, down, across);
  return say(pooling === "mean" ? "long_says_mean" : "long_says_region", { rows: range(queries.length, map.rows, down), columns: range(keys.length, map.columns, across),
    weight: shareText(value), times: timesText(value / map.even(head, down)) });
}
