// @ts-check

import { action, make } from "./elements.js";
import { say } from "./language.js";
import { percent, printed } from "./numbers.js";
import { fewLargest } from "./score_station.js";
import { normalizerName, plainNumber } from "./stations.js";
import { shortText } from "./text.js";

const CHOICES = ["softmax", "entmax", "sparsemax", "sigmoid"];

const MOST_COLUMNS = 32;

/** How near to the model's own setting a slider snaps to it, in parts of a power of ten. */
const SNAP = 0.02;

/** The sliders and choices of the walk, and the weights of the row as columns, with the model's own as outlines. */
export class Experiment {
  /** @param {(changes: object) => void} change takes new settings */
  constructor(calculation, change, choosePair, restore) {
    this.change = change;
    this.choosePair = choosePair;
    const { model, steps } = calculation;
    this.temperature = this.slider("walk_temperature", "walk_temperature_note", model.temperature, (value) => change({ temperature: value }));
    this.scale = this.slider("walk_scale_choice", "walk_scale_note", model.scale, (value) => change({ scale: value }));
    this.alpha = this.alphaSlider(model.alpha);
    const own = CHOICES.includes(model.normalizer) ? [] : [model.normalizer];
    this.normalizer = this.choice("walk_normalizer", [...own, ...CHOICES].map((name) => [name,
      name === model.normalizer ? say("walk_own_choice", { name: normalizerName(name) }) : normalizerName(name)]), (value) => change({ normalizer: value }));
    const masks = [["model", say("walk_own_choice", { name: say(steps.has("masked") ? "walk_mask_model" : "walk_mask_nothing") })],
      ...(steps.has("masked") ? [["none", say("walk_mask_nothing")]] : []), ...(calculation.isSquare ? [["causal", say("walk_mask_causal")]] : [])];
    this.mask = this.choice("walk_mask", masks, (value) => change({ mask: value }));
    this.restore = action(say("walk_restore"), say("walk_restore"), restore);
    this.note = make("p", { class: "note" });
    this.title = make("h3");
    this.columns = make("div", { class: "columns", role: "group" });
    this.more = make("p", { class: "note" });
    this.element = make("section", { class: "try" },
      make("div", { class: "settings" }, make("h3", { text: say("walk_try") }), this.normalizer.element, this.alpha.element, this.temperature.element,
        this.scale.element, this.mask.element, make("div", { class: "restore" }, this.restore, this.note)),
      make("div", { class: "walk-row" }, this.title, this.columns, this.more));
  }

  /** Whether its settings are shown; opened, they are brought into sight. */
  set isOpen(open) {
    this.element.classList.toggle("opened-try", open);
    if (open) this.element.scrollIntoView({ block: "nearest" });
  }

  /** A slider of powers of ten around the model's own setting. */
  slider(name, note, own, change) {
    const usable = own > 0 && Number.isFinite(own);
    const at = usable ? Math.log10(own) : 0;
    const [low, high] = name === "walk_temperature" ? [Math.min(-1, at), Math.max(1, at)] : [at - 1, at + 1];
    const read = () => {
      const value = Number(input.value);
      change(Math.abs(value - at) < SNAP ? own : 10 ** value);
    };
    const input = make("input", { type: "range", min: low, max: high, step: 0.01, on: { input: read } });
    const shown = make("output");
    const mark = usable ? make("i", { class: "own", style: `left: calc(8px + (100% - 16px) * ${(at - low) / (high - low)})`, "aria-hidden": "true" }) : null;
    const element = make("label", { class: "slider" }, make("span", { text: say(name) }), make("span", { class: "track" }, input, mark), shown);
    const show = (value, enabled) => {
      input.disabled = !(enabled && usable);
      if (Math.abs(Number(input.value) - Math.log10(value)) > 0.006) input.value = String(Math.log10(value));
      const text = `${say(/** @type {any} */ (note), { value: plainNumber(value) })}${value === own ? "" : ` (${say("walk_own", { value: plainNumber(own) })})`}`;
      shown.textContent = text;
      input.setAttribute("aria-valuetext", text);
    };
    return { element, show };
  }

  alphaSlider(own) {
    const input = make("input", { type: "range", min: 1, max: Math.max(2, Math.ceil(20 * own) / 20), step: 0.05, on: { input: () => this.change({ alpha: Number(input.value) }) } });
    const shown = make("output");
    const element = make("label", { class: "slider" }, make("span", { text: say("walk_alpha") }), make("span", { class: "track" }, input), shown);
    const show = (value, visible) => {
      element.hidden = !visible;
      input.value = String(value);
      shown.textContent = `${plainNumber(value)} \u00b7 ${value === own ? say("walk_alpha_note") : say("walk_own", { value: plainNumber(own) })}`;
      input.setAttribute("aria-valuetext", plainNumber(value));
    };
    return { element, show };
  }

  choice(name, options, change) {
    const select = make("select", { on: { change: () => change(select.value) } });
    for (const [value, text] of options) select.append(make("option", { value, text }));
    return { element: make("label", {}, make("span", { text: say(name) }), select), show: (value) => { select.value = value; } };
  }

  /**
   * Shows the settings of a calculation, and the row of a pair.
   * @param {(side: "queries"|"keys", position: number) => string} tokenName a token in a sentence
   * @param {any} [axis] the keys
   */
  show(calculation, pair, tokenName, axis) {
    const { used, model } = calculation;
    const known = calculation.knows();
    this.normalizer.show(used.normalizer);
    this.alpha.show(used.alpha, used.normalizer === "entmax");
    this.temperature.show(used.temperature, known);
    this.scale.show(used.scale, known && calculation.scales);
    this.mask.show(used.mask);
    const causal = calculation.isSquare ? "" : say("walk_no_causal");
    const notes = [say(calculation.isChanged ? "walk_is_trial" : "walk_is_model"),
      known ? "" : say("walk_no_temperature", { name: normalizerName(model.normalizer) }), calculation.scales ? "" : say("walk_no_scale"), causal];
    this.note.textContent = notes.filter(Boolean).join(" ");
    this.restore.disabled = !calculation.isChanged;
    this.showRow(calculation, pair, tokenName, axis);
  }

  showRow(calculation, { row, column }, tokenName, axis) {
    const { keys } = calculation.steps.entry;
    const { weights, truth } = calculation.row(row);
    this.title.textContent = say("walk_row_title", { query: tokenName("queries", row) });
    const { few, why } = fewLargest(Array.from(weights), MOST_COLUMNS, say("walk_weight"), column, tokenName("keys", column));
    const shown = few.sort((a, b) => a - b);
    const highest = Math.max(1e-9, ...shown.flatMap((key) => [weights[key], calculation.isChanged ? truth[key] : 0]).filter(Number.isFinite));
    const plain = calculation.isWhole(row) ? percent : printed;
    const least = shown.length > 18 ? highest / 4 : 5e-3; // the percent of neighbours have no room beside each other
    const part = (weight) => `${(100 * (Number.isFinite(weight) ? weight : 0)) / highest}%`;
    const focus = this.columns.contains(/** @type {any} */ (this.columns.getRootNode()).activeElement);
    this.columns.replaceChildren(...shown.map((key) => {
      const label = say(calculation.isChanged ? "walk_column_truth" : "walk_column", { key: tokenName("keys", key), percent: plain(weights[key]), truth: plain(truth[key]) });
      const ghost = calculation.isChanged && truth[key] > highest / 100 ? make("i", { class: "ghost", style: `height: ${part(truth[key])}` }) : null;
      return make("button", { type: "button", class: axis?.isSpecial([key, key + 1]) ? "column special" : "column", title: label, "aria-pressed": String(key === column),
        on: { click: () => this.choosePair({ row, column: key }) } },
      make("span", { class: "bar-room" }, make("i", { class: "amount", style: `height: ${part(weights[key])}` }), ghost,
        make("small", { text: weights[key] >= least ? plain(weights[key]) : "", style: `bottom: ${part(weights[key])}` })),
      make("span", { class: "name", text: shortText(keys[key], 12), dir: "auto" }));
    }));
    if (focus) this.columns.querySelector("[aria-pressed=true]")?.focus();
    this.more.textContent = why;
  }
}
