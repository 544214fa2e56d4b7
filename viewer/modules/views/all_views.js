// @ts-check

import { DifferenceView } from "./difference_view.js";
import { PatternView } from "./pattern_view.js";
import { LinesView } from "./lines_view.js";
import { ImageView } from "./image_view.js";
import { LongView } from "./long_view.js";
import { NumbersView } from "./numbers_view.js";
import { GridView } from "./grid_view.js";
import { SoundView } from "./sound_view.js";
import { WalkView } from "./walk_view.js";
import { WordsView } from "./words_view.js";

export const VIEW_CLASSES = [PatternView, LinesView, GridView, WalkView, WordsView, ImageView, SoundView, LongView,
  DifferenceView, NumbersView];
