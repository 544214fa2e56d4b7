// @ts-check

import { imageCanvas, spectrogramCanvas } from "./canvases.js";
import { decodeSound, inflate } from "./decoding.js";
import { say } from "./language.js";
import { joinPieces } from "./text.js";

/** One side of an attention: what its positions are. */
export class Axis {
  constructor(entry) {
    this.entry = entry;
    this.kind = entry.kind;
    this.length = entry.length;
    this.special = new Set(entry.special ?? []);
    this.hasWords = (entry.words ?? []).length > 0 && entry.words.length < entry.length;
    this.wordGroups = /** @type {any[]|null} */ (null); // once asked for
    this.picture = null; // a canvas, once decoded
    this.sound = null; // {samples, rate}, once decoded; null where the payload has none
  }

  /** The text of a position. */
  text(position) {
    const { entry } = this;
    if (this.kind === "tokens") return entry.tokens[position];
    if (this.kind === "frames") {
      return `${(position * entry.seconds).toFixed(2)}\u2013${((position + 1) * entry.seconds).toFixed(2)} s`;
    }
    const cell = position - entry.leading;
    if (cell < 0) return say("beforePatches", { position });
    return say("patch", { number: cell, row: Math.floor(cell / entry.columns), column: cell % entry.columns });
  }

  /** The positions that are shown as one: words, or single positions. */
  groups(words) {
    if (!words || !this.hasWords) return Array.from({ length: this.length }, (_, position) => [position, position + 1]);
    return this.entry.words.map((start, number) => [start, this.entry.words[number + 1] ?? this.length]);
  }

  /** The text of a group: its pieces without the marks of their tokenizer. */
  groupText([start, stop], words) {
    if (this.kind !== "tokens" || !words || !this.entry.words?.length) return this.text(start);
    return joinPieces(this.entry.tokens.slice(start, stop));
  }

  /** The word of which a group is a piece; null where it is a whole one. */
  wordOf([start, stop]) {
    if (!this.hasWords) return null;
    this.wordGroups ??= this.groups(true);
    const word = this.wordGroups.find(([first, end]) => first <= start && start < end);
    return word && word[1] - word[0] > stop - start ? this.groupText(word, true) : null;
  }

  isSpecial([start, stop]) {
    for (let position = start; position < stop; position += 1) if (!this.special.has(position)) return false;
    return true;
  }

  /** The pixels that a position of a grid covers, as [x0, y0, x1, y1]; null before the grid. */
  pixels(position) {
    const { rows, columns, leading, box } = this.entry;
    const cell = position - leading;
    if (cell < 0) return null;
    const [width, height] = [(box[2] - box[0]) / columns, (box[3] - box[1]) / rows];
    const [row, column] = [Math.floor(cell / columns), cell % columns];
    return [box[0] + column * width, box[1] + row * height, box[0] + (column + 1) * width, box[1] + (row + 1) * height];
  }

  /** The image or spectrogram as a canvas. */
  async decodePicture() {
    if (this.picture || this.kind === "tokens") return;
    const part = this.kind === "grid" ? this.entry.image : this.entry.spectrogram;
    const bytes = await inflate(part.data);
    this.picture = this.kind === "grid" ? imageCanvas(bytes, part.width, part.height)
      : spectrogramCanvas(bytes, part.bins, part.frames);
    if (this.entry.sound) this.sound = await decodeSound(this.entry.sound);
  }

  /** The duration of the sound, in seconds, as far as the positions reach. */
  get soundSeconds() {
    return this.sound ? Math.min(this.sound.samples.length / this.sound.rate, this.length * this.entry.seconds) : 0;
  }
}
