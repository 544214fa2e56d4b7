// @ts-check

import { withoutRows } from "./scales.js";
import { Table } from "./table.js";
import { THUMBNAIL, thumbnailOf } from "./thumbnails.js";

const MOST_TABLES = 48;

/** The tables and small maps that were made for what is shown; the oldest tables are given up. */
export class Tables {
  constructor(app) {
    this.app = app;
    this.tables = new Map();
    this.thumbnails = new Map();
    this.frameStart = 0; // when the picture that is drawn was begun, in milliseconds
  }

  forget() {
    this.tables.clear();
    this.thumbnails.clear();
  }

  /** The weights of a head as they are shown; null is the mean of all heads. */
  of(head, record, { words, hideSpecial, measure = "weights" }) {
    const used = record.heads === 1 ? 0 : head;
    const key = `${record.number}|${used}|${words}|${hideSpecial}|${measure}`;
    let table = this.tables.get(key);
    if (!table) {
      if (this.tables.size > MOST_TABLES) this.tables.delete(this.tables.keys().next().value);
      table = new Table(record, used, { words, hideSpecial, measure });
    }
    this.tables.delete(key);
    this.tables.set(key, table);
    return table;
  }

  /** A small map of a head; null while there is no time to make it in this frame. */
  thumbnail(record, head) {
    const scale = withoutRows(this.app.state.scale);
    const key = `${record.number} ${head} ${scale} ${this.app.theme.name}`;
    if (this.thumbnails.has(key)) return this.thumbnails.get(key);
    if (!record.codes && !record.overview) {
      record.decode().then(() => this.app.changed());
      return null;
    }
    if (performance.now() - this.frameStart > 12) { this.app.changed(); return null; }
    if (record.large) {
      const block = Math.max(1, Math.ceil(Math.max(record.overview.rows, record.overview.columns) / THUMBNAIL));
      const { canvas, kinds } = record.overview.bitmap("maximum", head, scale, block, this.app.theme);
      for (const kind of kinds) record.thumbnailKinds.add(kind);
      this.thumbnails.set(key, canvas);
    } else {
      this.thumbnails.set(key, thumbnailOf(record, head, scale, this.app.theme));
    }
    return this.thumbnails.get(key);
  }
}
