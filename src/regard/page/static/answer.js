// @ts-check
// A model's answer as elements: text that is only shown, probabilities as bars with their numbers.

import { percent, say } from "./viewer.js";

/**
 * An element with a class and children; texts become text nodes, never markup.
 * @returns {any}
 */
export function make(tag, className = "", ...children) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...children);
  return element;
}

/** A button. */
export function button(text, click, className = "") {
  const element = make("button", className, text);
  element.type = "button";
  element.addEventListener("click", click);
  return element;
}

function bar(probability) {
  const filled = make("i");
  filled.style.width = `${100 * Math.min(1, Math.max(0, probability))}%`;
  const drawn = make("span", "bar", filled);
  drawn.setAttribute("aria-hidden", "true");
  return drawn;
}

/** The choices, and what all others have together. */
function rankedList(ranked, rest) {
  const list = make("ol");
  for (const { label, probability } of ranked) {
    const choice = make("span", "choice", label);
    choice.dir = "auto";
    choice.title = label;
    list.append(make("li", "", choice, bar(probability), make("span", "probability", percent(probability))));
  }
  if (rest >= 0.0005) {
    const others = make("span", "choice rest", say("pageOthers"));
    list.append(make("li", "", others, bar(rest), make("span", "probability", percent(rest))));
  }
  return list;
}

/** What an answer is called, in the chosen language; a name that the table has not stays as it is. */
function answerName(label) {
  try {
    return say(/** @type {any} */ (`pageAnswer_${label}`));
  } catch { // a task of somebody else
    return label;
  }
}

/** The children of an answer. */
export function answerElements(answer) {
  const parts = [];
  if (answer.text || (answer.ranked.length && !answer.choice)) parts.push(make("h3", "", answerName(answer.label)));
  if (answer.text) {
    const text = make("p", "answer-text", answer.text);
    text.dir = "auto";
    parts.push(text);
  }
  if (answer.ranked.length && answer.choice) parts.push(make("h3", "", answerName(answer.choice)));
  if (answer.ranked.length) parts.push(rankedList(answer.ranked, answer.rest ?? 0));
  parts.push(...answer.notes.map((note) => make("p", "note", note)));
  return parts;
}
