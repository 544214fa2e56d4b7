// @ts-check

/**
 * One way to see records. Each view has: available(app), size(app), draw(app, pen, win), hit(app, x, y, win), place(app, item),
 * move(app, item, dx, dy, jump), start(app), has(app, item), describe(app, item), activate(app, item), legend(app). `app` is the
 * viewer; `win` is the part of the picture that is seen; an item is what can be pointed at. A view may have: sentence(app, item), the
 * sentence {text, shares} of an item, or of all where it is null; explained(app), what the cards explain, see `explained`.
 */
export class View {
  name = "";

  /** The controls that it needs, by their names in `Controls`. */
  controls = [];

  /** Whether its map can be made larger. */
  zooms = false;

  /** Whether its rows can have scales of their own. */
  scalesRows = true;

  /** What the keys do, below the view. */
  help = "";

  /** What a tap does, below the view on touch screens, where a first one points and a second one acts; "": a tap acts at once. */
  tapHelp = "";

  /** Whether it shows the table of one head, of which the sentence below speaks. */
  ofTables = false;

  /** What was computed for the last picture; see `forget`. */
  cache = null;

  sumCache = null;

  /** Elements that it shows beside the canvas, or null; `update` brings them up to date after each picture. */
  beside(_app) {
    return /** @type {HTMLElement|null} */ (null);
  }

  update(_app) {}

  /** The height of what stands below the map of a phone, in pixels. */
  below(_app) {
    return 0;
  }

  /** The width of the paper on which it is drawn for a picture, in pixels. */
  paperWidth(_app) {
    return 1440;
  }

  /** The word that says that all weights of a query add up to 1, where they stand beside the view; null: the sentence names them. */
  sumText(_app) {
    return /** @type {any} */ (null);
  }

  /** What is said while nothing is pointed at; null: what is locked. */
  said(_app) {
    return /** @type {string|null} */ (null);
  }

  /** What is exported, where that is more than the canvas shows: {width, height, draw(pen)}; null: what is seen. */
  sheet(_app) {
    return /** @type {{width: number, height: number, draw: (pen: any) => void}|null} */ (null);
  }

  /** Takes over what the view before it shows, which is still that of the state. */
  enter(_app) {}

  /** Makes the state fit the view. */
  settle(_app) {}

  /** Gives up what was computed of records that have changed. */
  forget() {
    this.cache = this.sumCache = null;
  }

  /** What the heading says of the heads. */
  headText(app) {
    return app.headText();
  }
}
