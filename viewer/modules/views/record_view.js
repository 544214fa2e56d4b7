// @ts-check

import { View } from "./view.js";
import { say } from "../language.js";
import { textWidth } from "../lettering.js";
import { clamp } from "../numbers.js";
import { evenMark, evenShareOfAll } from "../sentence.js";
import { MASKED, MISSING, ZERO, hiddenText, measureText, mergedText } from "../table.js";
import { shortText } from "../text.js";
import { scaleText } from "../scales.js";

/** What the views of one record have in common. */
export class RecordView extends View {
  ofTables = true;

  tapHelp = say("tapKeeps");

  available(app) {
    return app.records.some((record) => this.shows(record));
  }

  shows(record) {
    return !record.large;
  }

  /** @returns {Legend} */
  legend(app) {
    const table = app.table();
    const kinds = [[ZERO, table.hasZero], [MASKED, table.hasMasked], [MISSING, table.hasMissing]].filter(([, has]) => has).map(([kind]) => kind);
    const perRow = app.state.scale === "row";
    return { ramp: table.signed ? "signed" : "map", scale: app.state.scale, title: perRow ? say("partOfRow") : measureText(table),
      largest: perRow ? null : table.end, ...evenMark(table, perRow ? null : evenShareOfAll(table)), samples: samplesOf(kinds),
      text: this.legendText(app, table) };
  }

  /** What was done to the weights that are shown. */
  legendText(app, table) {
    const { scale } = app.state;
    return [scale === "root" || scale === "log" ? scaleText(scale) : "", mergedText(table), hiddenText(table).replace(/^ \u00b7 /, ""),
      specialText(table)].filter(Boolean).join(" \u00b7 ");
  }

  activate(app, item) {
    app.selection.toggleRow(item.row);
  }

  /** Whether an item is one of the shown table. */
  has(app, item) {
    const table = app.table();
    return (item.row ?? 0) < table.rows && (item.column ?? 0) < table.columns;
  }
}

/** What the shown special tokens are, such as [CLS] and [SEP]. */
export function specialText(table) {
  const { keys } = table.record;
  const isSeen = (column) => Array.from(table.counts.keys()).some((row) => table.kind(row, column) !== MASKED); // padding is not
  const shown = table.columnGroups.filter((group, column) => keys.isSpecial(group) && isSeen(column)).map(([start]) => shortText(keys.text(start), 12));
  const tokens = [...new Set(shown)].slice(0, 4).join(", ");
  return tokens && keys.kind === "tokens" ? say("specialNote", { tokens }) : "";
}

/** Samples of the legend, of kinds of cells that are no weights. */
export const samplesOf = (kinds) => [[ZERO, say("zero")], [MASKED, say("masked")], [MISSING, "NaN"]].filter(([kind]) => kinds.includes(kind));

/** Text of one cell of a table. */
function describeCell(app, table, row, column) {
  return say("cell", { query: table.rowName(row), key: table.columnName(column), weight: table.cell(row, column),
    head: app.headText(), row: table.rowGroups[row][0], column: table.columnGroups[column][0], sum: table.rowSummary(row) });
}

/** A record as cells with tokens on both sides. */
export class CellView extends RecordView {
  start() {
    return { row: 0, column: 0 };
  }

  move(app, item, dx, dy) {
    const table = app.table();
    return { row: clamp(item.row + dy, 0, table.rows - 1), column: clamp(item.column + dx, 0, table.columns - 1) };
  }

  describe(app, item) {
    return describeCell(app, app.table(), item.row, item.column);
  }
}

/** The least room for the names of the two sides in the corner of a map. */
export const CORNER = 94;

export function widest(table, side) {
  if (table.widest[side] === undefined) {
    const count = side === "row" ? table.rows : table.columns;
    let most = 20;
    for (let number = 0; number < Math.min(count, 2000); number += 1) {
      const text = side === "row" ? table.rowText(number) : table.columnText(number);
      most = Math.max(most, textWidth(shortText(text), { bold: true }));
    }
    table.widest[side] = most;
  }
  return table.widest[side];
}
