// @ts-check

import { language, say } from "./language.js";
import { counted, legendNumber, percent } from "./numbers.js";
import { quoted, shortText } from "./text.js";

/** Below this multiple of the equal share a head is said to spread its attention evenly. */
const EVEN_TIMES = 5;

/** The least weight of a far pair that is named. */
const LEAST_WEIGHT = 0.05;

/** From this share on it is most; of how many such distances a text is made at least where near is not all. */
const [MOST_SHARE, LEAST_REACHES] = [0.5, 8];

/** A part of a query's attention, of which small ones have digits too. */
export const shareText = (part) => (part < 0.01 ? percent(1).replace("100", legendNumber(Number((100 * part).toPrecision(2)))) : percent(part));

/** A multiple of the equal share. */
export const timesText = (times) => (times < 10 ? String(Math.round(10 * times) / 10) : counted(Math.round(times)));

const tokenNamed = (axis, position) => ({ text: quoted(shortText(axis.text(position), 24)), number: counted(position) });

const namesOfPair = (record, { query, key, weight }) => {
  const [asks, looked] = [tokenNamed(record.queries, query), tokenNamed(record.keys, key)];
  return { query: asks.text, row: asks.number, key: looked.text, column: looked.number, weight: shareText(weight) };
};

/** One pair of a head, in words. */
export const sayOfPair = (record, pair) => say("long_says_pair", namesOfPair(record, pair));

/** The same, as a line of a list. */
export const pairText = (record, pair) => say("long_pair_line", namesOfPair(record, pair));

/** The far pairs of a head that stand out. */
export const farPairs = (map, head) => map.peaksOf(head).filter(({ weight, times }) => weight >= LEAST_WEIGHT && times > EVEN_TIMES);

/** A distance and its direction. */
export const distanceText = (offset) => say(offset < 0 ? "long_back" : "long_ahead", { distance: counted(Math.abs(offset)) });

/** The distance of a pair. */
export const distanceOf = ({ kind, queries, keys }, { query, key }) => key - query - (kind === "causal" ? keys.length - queries.length : 0);

/** The fixed far distances at which a head looks; "" where none stands out. */
function stripesText(map, head) {
  const offsets = map.stripes(head);
  if (!offsets.length) return "";
  const back = offsets.every((one) => one < 0);
  const list = new Intl.ListFormat(language() === "zh" ? "zh" : "en-GB", { type: "conjunction" });
  return say(back ? "long_says_fixed_back" : "long_says_fixed", { distances: list.format(offsets.map((one) => (back ? counted(-one) : distanceText(one)))) });
}

/** What a head does with a long text: that it spreads its attention evenly, else what most of it is; and its strongest far pair. */
export function sayOfLongHead(map, head) {
  const { text, shares } = longHead(map, head);
  return { text: map.inUnits(text), shares: map.inUnits(shares) };
}

function longHead(map, head) {
  const { record, findings } = map;
  if (record.signed) return { text: say("grid_signed"), shares: "" };
  const [best] = farPairs(map, head);
  const mine = (one) => head === null || one.head === head;
  const windows = windowsOf(findings.diagonals.filter(mine));
  const regular = [...windows, ...stripesOf(windows), ...findings.sinks.filter(mine)].sort((a, b) => b.share - a.share)[0];
  const nearness = map.nearness(head).filter(({ count }) => LEAST_REACHES * count <= record.keys.length);
  const near = nearness.find(({ share }) => share >= MOST_SHARE);
  const regularly = regular && !(near && regular.share < MOST_SHARE);
  const stripes = regularly && (regular.distances || regular.offset ** 2 > 1) ? "" : stripesText(map, head);
  const shares = stripes ? stripes : best && record.kind !== "cross" ? say("long_says_far", { pair: pairText(record, best), distance: counted(Math.abs(distanceOf(record, best))) }) : "";
  const bound = map.largestTimes(head);
  if (bound < EVEN_TIMES) return { text: say(head === null ? "long_says_all_even" : "long_says_even", { times: timesText(Math.ceil(10 * bound) / 10), count: record.heads }), shares: "" };
  if (regularly) {
    const text = sayOfFinding(record, regular);
    return { text: head === null ? say("long_says_of", { head: say("headNumber", { head: record.headNumber(regular.head) }), text }) : text, shares };
  }
  const reach = near ?? nearness.at(-1);
  if (!reach) return { text: best ? sayOfPair(record, best) : say("long_nothing"), shares: "" };
  const text = say(!near ? "long_says_spread" : record.kind === "causal" ? "long_says_near_before" : "long_says_near_around", { share: percent(reach.share), count: counted(reach.count) });
  return { text: head === null && record.heads > 1 ? say("meanOfHeadsSays", { count: record.heads, text }) : text, shares };
}

/** The far distances of a head together, where it has several. */
function stripesOf(windows) {
  const heads = [...new Set(windows.map((one) => one.head))];
  return heads.map((head) => windows.filter((one) => one.head === head && one.from === undefined && Math.abs(one.offset) > 1)).filter((far) => far.length > 1)
    .map((far) => ({ head: far[0].head, distances: far.map((one) => Math.abs(one.offset)).sort((a, b) => a - b), share: far.reduce((sum, one) => sum + (one.share * one.queries) / one.all, 0) }));
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
function sayOfFinding(record, { key, offset, share, from, queries, all, distances }) {
  if (distances) return say("long_says_stripes", { share: percent(share), distances: distances.map(counted).join(", ") });
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

/** What a point of the map says, a block of bins in one bitmap: of one weight, or of the pairs of the block. */
export function sayOfPoint(map, pooling, head, { row, column }, block, { values, columns: width }) {
  const { record } = map;
  const exact = map.exact(head, row, column);
  if (exact !== null && !(exact < 0)) return Number.isNaN(exact) || record.signed ? "" : sayOfPair(record, { query: row, key: column, weight: exact });
  if (exact !== null || record.signed) return "";
  const [down, across] = map.bin(row, column).map((bin) => Math.floor(bin / block));
  if (map.isFuture(block, down, across)) return "";
  const range = (span) => [...new Set(span)].map(counted).join("\u2013");
  return say(pooling === "mean" ? "long_says_mean" : "long_says_region", { rows: range(map.span(record.queries.length, map.rows, block, down)),
    columns: range(map.span(record.keys.length, map.columns, block, across)), weight: shareText(values[down * width + across]) });
}
