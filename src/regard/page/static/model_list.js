// @ts-check
// The models of this machine, of which a click opens one.

import { button, make } from "./answer.js";
import { say } from "./viewer.js";

/**
 * @param {any[]} models as the server describes them
 * @param {(place: number) => void} open called with the place of the model that is clicked
 */
export function modelElements(models, open) {
  const numbered = models.map((model, place) => ({ model, place }));
  /** @type {[string, typeof numbered][]} */
  const groups = [["pageRuns", numbered.filter(({ model }) => model.kind === "run")],
    ["pageDownloaded", numbered.filter(({ model }) => model.kind !== "run")]];
  return groups.filter(([, group]) => group.length).map(([title, group]) => {
    const list = make("ul", "", ...group.map(({ model, place }) => {
      const chosen = button("", () => open(place));
      chosen.replaceChildren(make("b", "", model.name), make("span", "facts", model.facts), make("span", "facts path", model.path));
      return make("li", "", chosen);
    }));
    return make("div", "", make("h3", "", say(/** @type {any} */ (title))), list);
  });
}
