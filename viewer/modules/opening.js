// @ts-check

/** Most weights that are looked through before the first picture. */
const MOST_OPENED = 2 ** 22;

/** The view that fits the first record best. */
export function firstView(app) {
  const record = app.records[0];
  const ofWords = record?.queries.length === 1 && record.keys.length > 1 ? "words" : "pattern";
  const best = !record ? "walk" : record.large ? "long" : { grid: "image", frames: "sound" }[record.keys.kind] ?? ofWords;
  return app.views.find((one) => one.name === best && one.available(app)) ?? app.views.find((one) => one.available(app));
}

/**
 * The record and the head that are shown first: those of the clearest clearness that is not the first token, a special token
 * or a neighbour.
 * @param {any[]} records those to choose from
 * @returns {Promise<{record: number, head: number}|null>} null where there is nothing to choose from
 */
export async function firstHead(records) {
  let left = MOST_OPENED;
  let best = null;
  for (const record of records) {
    const size = record.heads * record.queries.length * record.keys.length;
    if (record.large || size > left) continue;
    left -= size;
    await record.decode();
    if (!record.codes) continue;
    for (let head = 0; head < record.heads; head += 1) {
      const score = clearness(record, head);
      if (!best || score > best.score) best = { score, record: record.number, head };
    }
  }
  return best && { record: best.record, head: best.head };
}

/** How clearly a head chooses, from 0 to 1: what its queries save of the entropy of an even share, where they look further than at a
 * neighbour, the first key or a special token. */
function clearness(record, head) {
  const [queries, keys] = [record.queries.length, record.keys.length];
  const own = record.queries === record.keys;
  let [saved, plain, rows] = [0, 0, 0];
  for (let query = 0; query < queries; query += 1) {
    let [sum, logs, dull, seen] = [0, 0, 0, 0];
    for (let key = 0; key < keys; key += 1) {
      if (!record.sees(head, query, key)) continue;
      seen += 1;
      const value = record.weight(head, query, key);
      if (!(value > 0)) continue;
      sum += value;
      logs += value * Math.log(value);
      if ((own && (key === 0 || Math.abs(key - query) <= 1)) || record.keys.special.has(key)) dull += value;
    }
    if (seen < 2 || !(sum > 0)) continue;
    rows += 1;
    saved += 1 - (Math.log(sum) - logs / sum) / Math.log(seen);
    plain += dull / sum;
  }
  return rows ? (saved / rows) * (1 - plain / rows) : 0;
}
