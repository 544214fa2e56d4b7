// @ts-check

import { withoutRows } from "./scales.js";
import { Table } from "./table.js";
import { statisticsOf } from "./head_labels.js";
import { joinedBins, thumbnailOf, veilOf } from "./thumbnails.js";
import { foldsOf } from "./views/grid_layout.js";

/** Most cells of the tables that are kept: twice those of the largest record that is carried whole. */
const MOST_CELLS = 2 ** 23;

/** How long what heads do is looked for at a time, and the pause between, in milliseconds. */
const [SLICE, PAUSE] = [24, 8];

/** The tables and small maps that were made for what is shown; the oldest tables are given up. */
export class Tables {
  constructor(app) {
    this.app = app;
    this.tables = new Map();
    this.cells = 0; // of all tables
    this.thumbnails = new Map();
    this.thumbnailStyle = ""; // in which they were drawn
    this.readOf = null; // the records of which it is found what heads do, how many are done, when the last slice ended
    this.read = this.readUntil = 0;
    this.frameStart = 0; // when the picture that is drawn was begun, in milliseconds
  }

  forget() {
    this.tables.clear();
    this.cells = 0;
    this.thumbnails.clear();
  }

  /** The weights of a head as they are shown; null is the mean of all heads. */
  of(head, record, { words, hideSpecial, measure = "weights" }) {
    const used = record.heads === 1 ? 0 : head;
    const key = `${record.number}|${used}|${words}|${hideSpecial}|${measure}`;
    let table = this.tables.get(key);
    if (!table) {
      table = new Table(record, used, { words, hideSpecial, measure });
      this.cells += table.values.length;
      for (const [name, oldest] of this.tables) {
        if (this.cells <= MOST_CELLS) break;
        this.tables.delete(name);
        this.cells -= oldest.values.length;
      }
    }
    this.tables.delete(key);
    this.tables.set(key, table);
    return table;
  }

  /** Whether what every head does is known; else some more of it is found, for a moment, and a new picture is asked for. */
  allRead() {
    const start = performance.now();
    const records = this.app.recordsOfText;
    if (this.readOf !== records) [this.readOf, this.read, this.readUntil] = [records, 0, 0];
    if (start - this.readUntil < PAUSE && this.read < records.length) return false;
    for (; this.read < records.length; this.read += 1) {
      const record = records[this.read];
      if (!record.decoded) {
        record.decode().then(() => this.app.changed());
        return false;
      }
      for (let head = 0; head < record.heads; head += 1) {
        if (performance.now() - start > SLICE) {
          this.readUntil = performance.now();
          this.app.changed();
          return false;
        }
        statisticsOf(record, head);
      }
    }
    return true;
  }

  /** A small map of a head, whose last colour is a weight or the head's largest; null while there is no time to make it in this frame. */
  thumbnail(record, head, most) {
    const scale = withoutRows(this.app.state.scale);
    const style = `${scale} ${this.app.state.range} ${this.app.theme.name}`;
    if (style !== this.thumbnailStyle) this.thumbnails.clear();
    this.thumbnailStyle = style;
    const key = `${record.number} ${head} ${most}`;
    if (this.thumbnails.has(key)) return this.thumbnails.get(key);
    if (!record.decoded) {
      record.decode().then(() => this.app.changed());
      return null;
    }
    if (performance.now() - this.frameStart > 12) { this.app.changed(); return null; }
    if (record.large) {
      const { canvas, kinds } = record.overview.bitmap("mean", head, joinedBins(record), this.app.theme);
      for (const kind of kinds) record.thumbnailKinds.add(kind);
      this.thumbnails.set(key, canvas);
    } else {
      this.thumbnails.set(key, (foldsOf(record) ? veilOf : thumbnailOf)(record, head, scale, this.app.theme, most));
    }
    return this.thumbnails.get(key);
  }
}
