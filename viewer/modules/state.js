// @ts-check

/** What a new viewer shows. */
export const initialState = () => ({
  view: "pattern", record: 0, head: null, scale: "linear", words: false, hideSpecial: false, overlay: "colours",
  pooling: "maximum", zoom: 1, locked: [], heads: null, steps: 0, step: "weights", kept: null, other: null, theme: "auto",
});

/** Whether two places of a view are the same. */
export const sameItem = (one, other) => JSON.stringify(one) === JSON.stringify(other);
