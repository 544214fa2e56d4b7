"""The alignment of tokens with a sound: attention weights below its spectrogram, over the same seconds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.errors import ArgumentError, ShapeError
from regard.palette import ACCENT, MUTED
from regard.pictures.alignment import LINK_COLOR, MOST_TOKENS
from regard.pictures.caption import MARGIN, Caption
from regard.pictures.fonts import LONGEST_LABEL, Lettering, visible_token
from regard.pictures.heatmap import color_map as colors_named
from regard.pictures.heatmap import colored, draw_forms, forms_of
from regard.pictures.numbers import as_array
from regard.pictures.sheet import TEXT, count_axis, new_sheet
from regard.pictures.weight_scale import Frame, draw_scale, weight_scale

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROW = 0.2  # inches, as all lengths below
SECOND = 2.2
NARROWEST_PICTURE, WIDEST_PICTURE = 6.0, 40.0


def sound_alignment(
    weights: Any,
    spectrogram: Any,
    tokens: Sequence[str],
    seconds: float,
    *,
    title: str | Caption | None = None,
    segments: Sequence[tuple[float, float]] | None = None,
    color_map: str = "amount",
    maximum: float | None = None,
    duration: float | None = None,
    marked: int | None = None,
) -> Figure:
    """Draws the weights of each token over time, and the spectrogram above them.

    Column j of the weights covers the time from ``j · seconds`` to ``(j + 1) · seconds``; the spectrogram covers the
    same time as all columns, in frames of equal duration.

    Args:
        weights: ``[tokens, positions]``, at least 0; a tensor or array. −inf (masked) is hatched, NaN and inf are
            crossed.
        spectrogram: ``[bands, frames]``, the lowest frequency first.
        tokens: a label for each row.
        seconds: duration of one position.
        title: above the picture: a text, or a `Caption`; a long one is wrapped.
        segments: the true (start, end) of each token in seconds, framed in the picture; None: unknown.
        color_map: of the weights: ``"amount"``, from paper to ink, or one of matplotlib.
        maximum: the least weight of the darkest colour; None: that of `scale_end`.
        duration: seconds of the sound, where the picture ends; None: the end of the last position.
        marked: the row that is spoken of, outlined; None: none.

    Returns:
        A figure, wider for a longer sound.

    Raises:
        ShapeError: weights, tokens and spectrogram do not match, or the spectrogram is not finite.
        ArgumentError: ``seconds`` is not above 0, or ``duration`` is not above 0 and at most the end of the positions.
        UnknownNameError: no such colour map.
        MissingPartError: matplotlib is not installed.

    Example:
        >>> import numpy as np
        >>> from regard import pictures
        >>> weights = [[0.8, 0.2, 0.0, 0.0], [0.0, 0.1, 0.6, 0.3]]
        >>> figure = pictures.sound_alignment(weights, np.ones((16, 40)), ["yes", "no"], seconds=0.25)
        >>> [axes.get_label() for axes in figure.axes][:2], [float(end) for end in figure.axes[1].get_xlim()]
        (['spectrogram', 'alignment'], [0.0, 1.0])
    """
    matrix, sound = as_array("weights", weights, 2), as_array("spectrogram", spectrogram, 2)
    if not np.isfinite(sound).all():
        raise ShapeError("spectrogram must be finite")
    rows, positions = matrix.shape
    if rows != len(tokens):
        raise ShapeError(f"weights must have one row for each token; it has {rows}, and there are {len(tokens)} tokens")
    if not positions or not sound.size:
        raise ShapeError("weights and spectrogram must have at least one position and one frame")
    if rows > MOST_TOKENS:
        raise ShapeError(f"tokens must be at most {MOST_TOKENS:,} to be drawn; there are {rows:,}")
    if not (math.isfinite(seconds) and seconds > 0):
        raise ArgumentError(f"seconds must be the duration of one position, above 0; it is {seconds!r}")
    if segments is not None and len(segments) != rows:
        raise ShapeError(f"segments must have one entry for each of {rows} tokens; it has {len(segments)}")
    end = positions * seconds
    if duration is not None and not 0 < duration <= end * (1 + 1e-9):
        raise ArgumentError(
            f"duration must be above 0 and at most {end:g}, the end of the positions; it is {duration!r}"
        )
    labels = [visible_token(token, LONGEST_LABEL) for token in tokens]
    scale = weight_scale(matrix, maximum)
    color_map = scale.colors(color_map)
    caption = scale.captioned(title)
    lettering = Lettering(caption.texts(*labels))
    height = max(0.6, ROW * rows)
    width = min(max(NARROWEST_PICTURE, SECOND * end + 1.5), WIDEST_PICTURE)
    figure = new_sheet(width, height + 1.7, layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[1.3, height])
    above.set_label("spectrogram")
    below.set_label("alignment")
    above.imshow(
        sound, aspect="auto", origin="lower", cmap="gray_r", extent=(0, end, 0, sound.shape[0]), interpolation="nearest"
    )
    above.set_ylabel("frequency band", fontsize=8)
    count_axis(above.yaxis)
    above.tick_params(labelsize=7.5)
    drawn = below.imshow(
        colored(matrix if rows else np.zeros((1, positions)), color_map),
        aspect="auto",
        origin="upper",
        cmap=colors_named(color_map),
        norm=scale.norm(),
        extent=(0, end, max(rows, 1) - 0.5, -0.5),
        interpolation="nearest",
    )
    below.set_yticks(range(rows), [lettering.drawable(label) for label in labels], fontsize=8)
    for label in below.get_yticklabels():
        lettering.letter(label)
    draw_forms(below, matrix, extent=(0.0, end, -0.5, rows - 0.5))
    if marked is not None:
        below.axhspan(marked - 0.5, marked + 0.5, fill=False, edgecolor=ACCENT, linewidth=1.2, zorder=4)
        below.get_yticklabels()[marked].set_fontweight("bold")
    words = lettering.letter(below.set_ylabel("", fontsize=TEXT), caption.say("axisQuery").strip(" ↓"))
    words.set_color(MUTED)
    below.set_xlabel("seconds", fontsize=TEXT, color=MUTED)
    below.tick_params(axis="x", labelsize=8)
    below.set_xlim(0, end if duration is None else duration)
    for row, (start, stop) in enumerate(segments or ()):
        below.plot(
            [start, stop, stop, start, start],
            [row - 0.45, row - 0.45, row + 0.45, row + 0.45, row - 0.45],
            color=LINK_COLOR,
            linewidth=1.0,
            label="true time" if row == 0 else None,
        )
    if segments:
        below.legend(loc="upper right", fontsize=7.5, frameon=False, labelcolor=LINK_COLOR, handlelength=1.0)
    bar = draw_scale(figure, drawn, caption, even=scale.even, keys="frames", forms=forms_of(matrix))
    Frame(figure, lettering, caption, bar, width - 2 * MARGIN).surround()
    return figure
