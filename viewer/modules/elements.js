// @ts-check

import { say } from "./language.js";
import { headStyle } from "./themes.js";

/**
 * An element with properties, attributes and children; text is always text.
 * @param {string} tag
 * @param {Record<string, any>} [properties] `text`, `on` (listeners by event), and attributes
 * @returns {any}
 */
export function make(tag, properties = {}, ...children) {
  const { text, on = {}, ...attributes } = properties;
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "style") element.style.cssText = value; // a style attribute would be against the page's policy
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  for (const [name, listener] of Object.entries(on)) element.addEventListener(name, listener);
  if (text !== undefined) element.textContent = text;
  element.append(...children.filter(Boolean));
  return element;
}

/**
 * A choice among options [value, text, title]; its name is a label before it only where that is asked for.
 * @param {boolean} [labelled]
 */
export function choice(name, value, options, change, labelled = false) {
  const select = make("select", { "aria-label": name, on: { change: () => change(select.value) } });
  for (const [key, text, title] of options) {
    const option = make("option", { value: String(key), text, title });
    option.selected = String(key) === String(value);
    if (option.selected) select.title = title ?? name;
    select.append(option);
  }
  return labelled ? make("label", {}, document.createTextNode(name), select) : select;
}

export function checkbox(name, checked, change) {
  const input = make("input", { type: "checkbox", on: { change: () => change(input.checked) } });
  input.checked = checked;
  return make("label", {}, input, document.createTextNode(name));
}

export const action = (text, label, click) => make("button", { type: "button", text, "aria-label": label, title: label, on: { click } });

/** The buttons that make a map smaller, larger and as large as its room. */
export const zoomButtons = ({ zoom }) => [action("\u2212", say("zoomOut"), () => zoom.by(1 / 1.5)), action("+", say("zoomIn"), () => zoom.by(1.5)),
  action(say("fitText"), say("fit"), () => zoom.fit())];

/** The toggle of a head: a sample of its line, and its number in the model. */
export function headToggle(head, number, shown, theme, click) {
  const { color, dash } = headStyle(head, theme);
  const namespace = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(namespace, "svg");
  const line = document.createElementNS(namespace, "line");
  const set = (element, values) => Object.entries(values).forEach(([name, value]) => element.setAttribute(name, value));
  set(svg, { width: 28, height: 8, "aria-hidden": "true" });
  set(line, { x1: 0, y1: 4, x2: 28, y2: 4, stroke: color, "stroke-width": 2.5, "stroke-dasharray": dash.join(" ") || "none" });
  svg.append(line);
  return make("button", { type: "button", "aria-pressed": String(shown), "aria-label": say("headNumber", { head: number }), "data-color": color,
    "data-dash": dash.join(" ") || "none", on: { click } }, svg, document.createTextNode(String(number)));
}

export const focusable = (parent) => [...parent.querySelectorAll("button, select, input")];
