// @ts-check

/** The view that fits the first record best. */
export function firstView(app) {
  const record = app.records[0];
  const ofWords = record?.queries.length === 1 && record.keys.length > 1 ? "words" : "pattern";
  const best = !record ? (app.steps.length ? "walk" : "numbers") : record.large ? "long" : { grid: "image", frames: "sound" }[record.keys.kind] ?? ofWords;
  return app.views.find((one) => one.name === best && one.available(app)) ?? app.views.find((one) => one.available(app));
}
