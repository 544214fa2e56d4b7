// @ts-check
// Examples to click: sentences, images, sounds.

import { button, make } from "./answer.js";
import { say } from "./viewer.js";

/**
 * The buttons of a model's examples.
 * @param {any} model as the server describes it
 * @param {number} place the model's place in the server's list
 * @param {(number: number) => void} choose called with the number of the example that is clicked
 */
export function exampleElements(model, place, choose) {
  return model.examples.map((example, number) => {
    const address = `example?model=${place}&example=${number}`;
    const click = () => choose(number);
    if (model.accepts === "text") return sentence(example, click);
    return model.accepts === "image" ? picture(example, address, click) : sound(example, address, click);
  });
}

function sentence({ text, shows }, click) {
  const words = make("span", "example-text", text);
  words.dir = "auto";
  const chosen = button("", click);
  chosen.replaceChildren(words, ...(shows ? [make("span", "facts", say(/** @type {any} */ (`page_${shows}`)))] : []));
  return make("li", "", chosen);
}

function picture({ text }, address, click) {
  const image = make("img");
  image.src = address;
  image.alt = say("pageReadFile", { name: text });
  image.loading = "lazy";
  const chosen = button("", click, "thumbnail");
  chosen.replaceChildren(image);
  return make("li", "", chosen);
}

function sound({ text }, address, click) {
  const chosen = button(say("pageReadFile", { name: text }), click);
  if (text.toLowerCase().endsWith(".npy")) return make("li", "", chosen); // features, which no browser plays
  const player = make("audio");
  player.controls = true;
  player.preload = "none";
  player.src = address;
  player.setAttribute("aria-label", text);
  return make("li", "sound", player, chosen);
}
