// @ts-check

/** Most weights that are looked through before the first picture. */
const MOST_WEIGHTS = 2 ** 22;

/** The view that fits the first record best. */
export function firstView(app) {
  const record = app.records[0];
  const ofWords = record?.queries.length === 1 && record.keys.length > 1 ? "words" : "pattern";
  const best = !record ? "walk" : record.large ? "long" : { grid: "image", frames: "sound" }[record.keys.kind] ?? ofWords;
  return app.views.find((one) => one.name === best && one.available(app)) ?? app.views.find((one) => one.available(app));
}

/**
 * The record and the head that are shown first: those of the clearest structure that is not the first token, a special token
 * or a neighbour.
 * @param {any[]} records those to choose from
 * @returns {Promise<{record: number, head: number}|null>} null where there is nothing to choose from
 */
export async function firstHead(records) {
  let left = MOST_WEIGHTS;
  let best = null;
  for (const record of records) {
    const size = record.heads * record.queries.length * record.keys.length;
    if (record.large || size > left) continue;
    left -= size;
    await record.decode();
    if (!record.codes) continue;
    for (let head = 0; head < record.heads; head += 1) {
      const score = structure(record, head);
      if (!best || score > best.score) best = { score, record: record.number, head };
    }
  }
  return best && { record: best.record, head: best.head };
}

/**
 * How much the key that is looked at depends on the query, from 0 to 1: the mutual information of query and key over its largest value,
 * for the part of the weights that goes further than to a neighbour, the first key or a special token. A key that all queries look at
 * tells nothing.
 */
function structure(record, head) {
  const [queries, keys] = [record.queries.length, record.keys.length];
  const own = record.queries === record.keys;
  const received = new Float64Array(keys);
  const rows = [];
  let plain = 0;
  for (let query = 0; query < queries; query += 1) {
    const row = new Float64Array(keys);
    let sum = 0;
    for (let key = 0; key < keys; key += 1) {
      const value = record.sees(head, query, key) ? record.weight(head, query, key) : 0;
      if (value > 0) { row[key] = value; sum += value; }
    }
    if (!(sum > 0)) continue;
    rows.push(row);
    for (let key = 0; key < keys; key += 1) {
      row[key] /= sum;
      received[key] += row[key];
      if ((own && (key === 0 || Math.abs(key - query) <= 1)) || record.keys.special.has(key)) plain += row[key];
    }
  }
  if (rows.length < 2 || keys < 2) return 0;
  let information = 0;
  for (const row of rows) {
    for (let key = 0; key < keys; key += 1) if (row[key] > 0) information += row[key] * Math.log((row[key] * rows.length) / received[key]);
  }
  return (information / rows.length / Math.log(Math.min(keys, rows.length))) * (1 - plain / rows.length);
}
