// @ts-check

import { make } from "./elements.js";
import { say } from "./language.js";

const ARROW_KEYS = { keys: ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"] };

/**
 * Every key of the viewer: the title of a group, where it is ("": everywhere), and keys, as events name them, with what they do.
 * @type {[string, string, {keys: string[], does: string}[]][]}
 */
export const KEYS = [
  ["keys_anywhere", "", [{ keys: ["?"], does: "keys_list" }, { keys: ["Ctrl z"], does: "keys_undo" }, { keys: ["Ctrl y", "Ctrl Shift z"], does: "keys_redo" },
    { keys: ["Escape"], does: "keys_escape" }]],
  ["keys_picture", "", [{ ...ARROW_KEYS, does: "keys_move" }, { keys: ["Home", "End"], does: "keys_ends" }, { keys: ["PageUp", "PageDown"], does: "keys_pages" },
    { keys: ["Enter", " "], does: "keys_choose" }, { keys: ["[", "]"], does: "keys_heads" }, { keys: ["+", "=", "-"], does: "keys_zoom" }, { keys: ["0"], does: "keys_fit" }]],
  ["views", "", [{ keys: ["ArrowLeft", "ArrowRight"], does: "keys_views" }, { keys: ["Home", "End"], does: "keys_first_view" }]],
  ["walk", "walk", [{ keys: ["ArrowLeft", "ArrowRight"], does: "keys_stations" }]],
  ["sound", "sound", [{ keys: [" "], does: "keys_play" }]],
  ["textList", "list", [{ ...ARROW_KEYS, does: "keys_texts" }, { keys: ["Home", "End"], does: "keys_first_text" }]],
  ["whatIsThis", "", [{ ...ARROW_KEYS, does: "keys_cards" }]],
];

const KEY_SIGNS = { ArrowLeft: "\u2190", ArrowRight: "\u2192", ArrowUp: "\u2191", ArrowDown: "\u2193", "-": "\u2212", PageUp: "PgUp", PageDown: "PgDn" };

const KEY_WORDS = { " ": "keys_space", Escape: "keys_esc" };

const keyWord = (name) => say(/** @type {any} */ (name));

const keySign = (key) => (key in KEY_WORDS ? keyWord(KEY_WORDS[key]) : KEY_SIGNS[key] ?? (key.length === 1 ? key.toUpperCase() : key));

/** The keys of a chord: modifiers, and the one that is pressed with them. */
export const chord = (key) => (key === " " ? [key] : key.split(" "));

const keyRow = ({ keys, does }) => make("div", {}, make("dt", {}, ...keys.map((key) => make("span", {}, ...chord(key).map((part) => make("kbd", { text: keySign(part) }))))),
  make("dd", { text: keyWord(does) }));

/** Shows the list of keys over the viewer; what had the focus has it again when the list is closed. */
export function showKeys(app) {
  const { frame, views } = app;
  const before = frame.root.activeElement;
  const here = (where) => !where || (where === "list" ? !frame.list.hidden : views.some((view) => view.name === where && view.available(app)));
  const close = make("button", { type: "button", text: say("closeCards"), on: { click: () => dialog.close() } });
  const dialog = make("dialog", { class: "keys", "aria-labelledby": "keys-title" }, make("div", { class: "keys-head" }, make("h2", { id: "keys-title", text: say("keys_title") }), close),
    ...KEYS.filter(([, where]) => here(where)).map(([title, , rows]) => make("section", {}, make("h3", { text: keyWord(title) }), make("dl", {}, ...rows.map(keyRow)))));
  dialog.addEventListener("keydown", (event) => event.stopPropagation());
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); }); // beside the list
  dialog.addEventListener("close", () => {
    dialog.remove();
    (before?.isConnected ? before : frame.more).focus();
  });
  frame.box.append(dialog);
  dialog.showModal();
}
