// @ts-check

import { svgOf } from "./exports.js";
import { Viewer } from "./viewer.js";

/**
 * Shows a payload inside of an element.
 * @param {HTMLElement} element gets a shadow root; its height is filled
 * @param {object} payload what `regard.viewer.payload` gives
 * @param {{view?: string, selection?: object, theme?: "auto"|"light"|"dark", height?: number, views?: string[],
 *   fetchTile?: (record: number, q0: number, q1: number, k0: number, k1: number) => Promise<any>}} [options]
 *   fetchTile gives exact weights [heads, q1 - q0, k1 - k0]: {type, shape, data}, a typed array or nested lists
 *   views: the names of those that are offered; all without it
 * @returns {{update(payload: object): void, show(view: string, selection?: object): void, destroy(): void,
 *   state(): object, locate(item: object): object, svg(): string}}
 */
export function mount(element, payload, options = {}) {
  const viewer = new Viewer(element, payload, options ?? {});
  const handle = {
    update: (next) => viewer.load(next),
    show: (view, selection) => viewer.show(view, selection),
    destroy: () => viewer.destroy(),
    state: () => structuredClone(viewer.state),
    locate: (item) => viewer.locate(item),
    svg: () => svgOf(viewer),
  };
  element.regardView = handle;
  return handle;
}
