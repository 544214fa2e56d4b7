// @ts-check

import { CODE_ERRORS, CODE_VALUES, SIGNED_ERRORS, SIGNED_VALUES, decodeBits, decodeNumbers, decodeTile, inflate } from "./decoding.js";
import { say } from "./language.js";
import { WORDS } from "./words.js";
import { LongMap } from "./long_map.js";
import { kindText } from "./record_names.js";

/** One attention call of the payload. */
export class AttentionData {
  constructor(entry, number, axes, masks, others = [entry]) {
    this.entry = entry;
    this.kind = entry.kind;
    this.others = others; // all entries of the document, which decide what this one is called
    this.number = number;
    this.queries = axes[entry.queries];
    this.keys = axes[entry.keys];
    this.heads = entry.heads;
    this.signed = Boolean(entry.signed); // weights may be negative, and a row has any sum
    this.codeValues = this.signed ? SIGNED_VALUES : CODE_VALUES;
    this.codeErrors = this.signed ? SIGNED_ERRORS : CODE_ERRORS;
    this.maskEntry = entry.visible === null ? null : masks[entry.visible];
    this.codes = null;
    this.exact = null;
    this.visible = null;
    this.overview = null;
    this.measures = {}; // factors of the weights, by what their product is
    this.thumbnailKinds = new Set(); // what the small maps show that is no weight
    this.ready = null;
    this.decoded = false;
  }

  get label() {
    return say("record_label", { layer: this.entry.layer, kind: kindText(this) });
  }

  get large() {
    return this.entry.overview !== null;
  }

  /** Whether one query, which stands for no part of a text, weighs a whole input: that of pooling, from which a label is told. */
  get pools() {
    return this.entry.name === "pooling" && this.queries.length === 1;
  }

  /** `say` of this record: of pooling, words that do not make its query a word that looks at others, where there are such. */
  say(key, values = {}) {
    const pooled = /** @type {any} */ (key + "Pooled");
    return say(this.pools && pooled in WORDS ? pooled : key, values);
  }

  /** Decodes the record once; every caller waits for the same work. */
  decode() {
    this.ready ??= this.decodeAll();
    return this.ready;
  }

  async decodeAll() {
    const { entry } = this;
    await this.queries.decodePicture();
    await this.keys.decodePicture();
    if (this.maskEntry) this.visible = await (this.maskEntry.decoded ??= decodeBits(this.maskEntry));
    if (entry.codes) this.codes = await inflate(entry.codes.data);
    if (entry.exact) this.exact = await decodeNumbers(entry.exact);
    for (const [name, measure] of Object.entries(entry.measures ?? {})) {
      this.measures[name] = { shape: measure.shape, values: await decodeNumbers(measure) };
    }
    if (entry.overview) this.overview = await LongMap.decode(this);
    this.decoded = true;
  }

  /** Asks once for exact numbers that the payload did not carry; without an answer the codes stay. */
  async fetchExact(fetchTile) {
    if (this.exact || this.asked || this.large || !fetchTile) return false;
    this.asked = true;
    const [queries, keys] = [this.queries.length, this.keys.length];
    try {
      const values = await decodeTile(await fetchTile(this.number, 0, queries, 0, keys));
      // Masked pairs are negative in a tile; infinite where weights may be negative.
      const least = this.signed ? -Infinity : -1;
      if (values.length === this.heads * queries * keys) this.exact = values.map((value) => (value <= least ? 0 : value));
    } catch {
      this.exact = null;
    }
    return this.exact !== null;
  }

  /** The number of a head in the model, of whose heads a record may have some alone. */
  headNumber(head) {
    return this.entry.head_numbers?.[head] ?? head;
  }

  /** The name of the only head: its number where the model has others. */
  get oneHeadText() {
    return this.entry.head_numbers ? say("headNumber", { head: this.headNumber(0) }) : say("oneHead");
  }

  /** Whether a pair is visible. */
  sees(head, query, key) {
    if (!this.visible) return true;
    const perHead = this.maskEntry.shape.length === 3 ? head * this.queries.length * this.keys.length : 0;
    return this.visible[perHead + query * this.keys.length + key] === 1;
  }

  /** Whether a query sees any key. */
  seesAny(head, query) {
    if (!this.visible) return this.keys.length > 0;
    const keys = this.keys.length;
    const base = ((this.maskEntry.shape.length === 3 ? head * this.queries.length : 0) + query) * keys;
    return this.visible.subarray(base, base + keys).includes(1);
  }
}
