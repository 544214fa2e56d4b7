// @ts-check

/** What views were called in earlier versions; both names are taken. */
const FORMER = { alignment: "pattern", heads: "lines", model: "grid", steps: "walk", text: "words" };

/**
 * The name of a view that may have a former name; any other value stays.
 * @param {any} name
 * @returns {any}
 */
export const presentName = (name) => (typeof name === "string" && Object.hasOwn(FORMER, name) ? FORMER[name] : name);
