// @ts-check

/** The view that fits the first record best. */
export function firstView(app) {
  const record = app.records[0];
  const ofWords = record?.queries.length === 1 && record.keys.length > 1 ? "words" : "pattern";
  const best = !record ? (app.steps.length ? "walk" : "numbers") : record.large ? "long" : { grid: "image", frames: "sound" }[record.keys.kind] ?? ofWords;
  return app.views.find((one) => one.name === best && one.available(app)) ?? app.views.find((one) => one.available(app));
}

/**
 * The head with the clearest pair, as `head_openings` of Python finds it; of equal ones the first.
 * @returns {{record: number, head: number}|null} record: its position in the viewer; null where there is no record
 */
export function clearestHead(records) {
  let [best, most] = [/** @type {{record: number, head: number}|null} */ (null), -Infinity];
  for (const record of records) {
    for (let head = 0; head < record.heads; head += 1) {
      const clarity = record.entry.openings?.[head]?.[0] ?? 0;
      if (clarity > most) [best, most] = [{ record: record.number, head }, clarity];
    }
  }
  return best;
}

/** The clearest pair of a head, as positions; null where none stands out. */
export function clearestPair(record, head) {
  const [, row = null, column = null] = record?.entry.openings?.[head] ?? [];
  return row === null || column === null ? null : { row, column };
}
