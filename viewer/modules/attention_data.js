// @ts-check

import { decodeBits, decodeNumbers, decodeTile, inflate } from "./decoding.js";
import { say } from "./language.js";
import { LongMap } from "./long_map.js";
import { kindText } from "./record_names.js";

/** One attention call of the payload. */
export class AttentionData {
  constructor(entry, number, axes, masks) {
    this.entry = entry;
    this.number = number;
    this.queries = axes[entry.queries];
    this.keys = axes[entry.keys];
    this.heads = entry.heads;
    this.maskEntry = entry.visible === null ? null : masks[entry.visible];
    this.codes = null;
    this.exact = null;
    this.visible = null;
    this.overview = null;
    this.thumbnailKinds = new Set(); // what the small maps show that is no weight
    this.ready = null;
    this.decoded = false;
  }

  get label() {
    return `${say("layerNumber", { layer: this.entry.layer })} \u00b7 ${kindText(this.entry.kind)}`;
  }

  get large() {
    return this.entry.overview !== null;
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
      // Masked pairs are negative in a tile.
      if (values.length === this.heads * queries * keys) this.exact = values.map((value) => (value < 0 ? 0 : value));
    } catch {
      this.exact = null;
    }
    return this.exact !== null;
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
