// @ts-check

import { svgOf } from "./exports.js";
import { stateOf } from "./address.js";
import { onSpeak, speak } from "./language.js";
import { locate } from "./picture.js";
import { Viewer } from "./viewer.js";

/** The viewers that are shown: they have one language. */
let mounted = 0;

/**
 * Shows a payload inside of an element.
 * @param {HTMLElement} element gets a shadow root; its height is filled
 * @param {object} payload what `regard.viewer.payload` gives
 * @param {{view?: string, selection?: object, theme?: "auto"|"light"|"dark", height?: number, language?: string, address?: boolean,
 *   views?: string[], controls?: string[],
 *   fetchSteps?: (record: number, head: number) => Promise<any>,
 *   fetchTile?: (record: number, q0: number, q1: number, k0: number, k1: number) => Promise<any>}} [options]
 *   fetchSteps gives the worked calculation of a head, an entry of the payload's `steps`;
 *   fetchTile gives exact weights [heads, q1 - q0, k1 - k0]: {type, shape, data}, a typed array or nested lists
 *   language of all words: "en", "zh", or "auto" for that of the browser, each of which can be changed in the menu; that of the element
 *   where it is not given. All viewers of a page have one language: that of the first; the language of a later one has no effect while
 *   another is shown
 *   view and views: a former name is taken too ("alignment", "heads", "model", "steps", "text"), here and in `show`
 *   views: the names of those that are offered; all where they are not given
 *   controls: the same of the controls
 *   address: whether the page's address holds what is shown
 * @returns {{update(payload: object): void, show(view: string, selection?: object): void, destroy(): void,
 *   set(state: object): void, point(item: object|null): void, onChange(listener: (state: object, item: object|null) => void): () => void,
 *   undo(): void, redo(): void, state(): object, locate(item: object): object, svg(): string}}
 */
export function mount(element, payload, options = {}) {
  const linked = options?.address ? stateOf(globalThis.location.hash).language : null;
  if (mounted === 0) speak(linked ?? options?.language ?? /** @type {HTMLElement|null} */ (element.closest("[lang]"))?.lang);
  let viewer = new Viewer(element, payload, options ?? {});
  mounted += 1;
  const silence = onSpeak(() => { viewer = again(viewer); });
  const handle = {
    update: (next) => viewer.load(next),
    show: (view, selection) => viewer.show(view, selection),
    destroy: () => {
      if (!viewer.stopped.signal.aborted) mounted -= 1;
      silence();
      viewer.destroy();
    },
    set: (state) => viewer.journal.applyQuietly(state),
    point: (item) => viewer.point(item),
    onChange: (listener) => viewer.journal.onChange(listener),
    undo: () => viewer.journal.undo(),
    redo: () => viewer.journal.redo(),
    state: () => structuredClone(viewer.state),
    locate: (item) => locate(viewer, item),
    svg: () => svgOf(viewer),
  };
  element.regardView = handle;
  return handle;
}

/** The same viewer with words of the language that is now chosen: what it shows, and what can be taken back, stay. */
function again(viewer) {
  const { element, payload, options, state, journal: { history, listeners, told } } = viewer;
  const heard = [...listeners];
  const focused = viewer.frame.root.activeElement !== null;
  viewer.destroy();
  const next = new Viewer(element, payload, { ...options, address: false, theme: state.theme, view: state.view, selection: state });
  next.options = options;
  Object.assign(next.journal, { history, listeners: new Set(heard), told });
  if (focused) next.frame.more.focus();
  return next;
}
