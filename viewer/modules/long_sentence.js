// @ts-check

import { language, say } from "./language.js";
import { counted, legendNumber, percent, withPercent } from "./numbers.js";
import { quoted, shortText } from "./text.js";

/** The least weight of a far pair that is named, and more than how many equal shares it is. */
const [LEAST_WEIGHT, EVEN_TIMES] = [0.05, 5];

/** A part of a query's attention at a point of the map, whose scale begins at 0.1 %: small ones have two digits. */
export const shareText = (part) => (part < 0.01 ? withPercent(legendNumber(Number((100 * part).toPrecision(2)))) : percent(part));

const tokenNamed = (axis, position) => ({ text: quoted(shortText(axis.text(position), 24)), number: counted(position) });

const namesOfPair = (record, { query, key, weight }, share = percent) => {
  const [asks, looked] = [tokenNamed(record.queries, query), tokenNamed(record.keys, key)];
  return { query: asks.text, row: asks.number, key: looked.text, column: looked.number, weight: share(weight) };
};

/** One pair of a head, in words. */
export const sayOfPair = (record, pair, share = percent) => say("long_says_pair", namesOfPair(record, pair, share));

/** The same, as a line of a list. */
export const pairText = (record, pair) => say("long_pair_line", namesOfPair(record, pair));

/** The far pairs of a head that stand out. */
export const farPairs = (map, head) => map.peaksOf(head).filter(({ weight, times }) => weight >= LEAST_WEIGHT && times > EVEN_TIMES);

/** A distance and its direction. */
export const distanceText = (offset) => say(offset < 0 ? "long_back" : "long_ahead", { distance: counted(Math.abs(offset)) });

/** The distance of a pair. */
export const distanceOf = ({ kind, queries, keys }, { query, key }) => key - query - (kind === "causal" ? keys.length - queries.length : 0);

/** What a head, or all of a record, does with a long text, and its strongest far pair: the payload says it. */
export function sayOfLongHead({ record }, head) {
  const [text, shares] = record.entry.overview.says[language()][head ?? record.heads];
  return { text, shares };
}

/** What a point of the map says, a block of bins in one bitmap: of one weight, or of the pairs of the block. */
export function sayOfPoint(map, pooling, head, { row, column }, block, { values, columns: width }) {
  const { record } = map;
  const exact = map.exact(head, row, column);
  if (exact !== null && !(exact < 0)) return Number.isNaN(exact) || record.signed ? "" : sayOfPair(record, { query: row, key: column, weight: exact }, shareText);
  if (exact !== null || record.signed) return "";
  const [down, across] = map.bin(row, column).map((bin) => Math.floor(bin / block));
  if (map.isFuture(block, down, across)) return "";
  const range = (span) => [...new Set(span)].map(counted).join("\u2013");
  return say(pooling === "mean" ? "long_says_mean" : "long_says_region", { rows: range(map.span(record.queries.length, map.rows, block, down)),
    columns: range(map.span(record.keys.length, map.columns, block, across)), weight: shareText(values[down * width + across]) });
}
