"""The axis of the queries or the keys of an attention: tokens, the patches of an image, or the frames of a sound.

The words of tokens are found by the marks that tokenizers leave in them (`word_ranges`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.errors import ArgumentError, KindError, ShapeError
from regard.shapes.checks import type_text


@dataclass(frozen=True)
class TokenAxis:
    """Tokens, in their order.

    Attributes:
        tokens: the text of each token, which is never interpreted.
        special: True for each token that stands for no text ([CLS], padding); () if unknown.
        words: the positions of each word, consecutive ranges from 0 to the end; () if unknown.
        generated: the position of the first token that a model wrote after a prompt; None: there is none, or it is
            unknown.

    Raises:
        KindError: a token is no text.
        ShapeError: ``special`` has another length than ``tokens``.
        ArgumentError: ``words`` leave positions out, overlap or are empty, or ``generated`` is no position.

    Example:
        >>> from regard import records
        >>> axis = records.TokenAxis(("[CLS]", "un", "##seen"), (True, False, False), (range(1), range(1, 3)))
        >>> len(axis), axis.labels
        (3, ('[CLS]', 'un', '##seen'))
        >>> [[axis.tokens[position] for position in word] for word in axis.words]
        [['[CLS]'], ['un', '##seen']]
    """

    tokens: tuple[str, ...]
    special: tuple[bool, ...] = ()
    words: tuple[range, ...] = ()
    generated: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.tokens, str):
            raise KindError("tokens must be a sequence of texts, one for each token; it is one text")
        tokens = tuple(self.tokens)
        for position, token in enumerate(tokens):
            if not isinstance(token, str):
                raise KindError(f"tokens must be texts; tokens[{position}] is {type_text(token)}")
        special = tuple(bool(flag) for flag in self.special)
        if special and len(special) != len(tokens):
            raise ShapeError(f"special must have one entry for each of {len(tokens)} tokens; it has {len(special)}")
        words = tuple(self.words)
        end = 0
        for number, word in enumerate(words):
            if not isinstance(word, range) or word.step != 1 or word.start != end or word.stop <= word.start:
                raise ArgumentError(
                    f"words must be ranges that are not empty and follow one another from 0 to {len(tokens)}; "
                    f"words[{number}] is {word!r} and should start at {end}"
                )
            end = word.stop
        if words and end != len(tokens):
            raise ArgumentError(f"words must follow one another from 0 to {len(tokens)}; they end at {end}")
        first = self.generated
        if first is not None and not (is_whole_number(first) and 0 <= first < len(tokens)):
            raise ArgumentError(f"generated must be a position from 0 to {len(tokens) - 1}, or None; it is {first!r}")
        for name, value in (("tokens", tokens), ("special", special), ("words", words)):
            object.__setattr__(self, name, value)

    def first(self, length: int) -> TokenAxis:
        """Returns the axis of the first positions, from 1 to all of them."""
        words = tuple(range(word.start, min(word.stop, length)) for word in self.words if word.start < length)
        generated = None if self.generated is None or self.generated >= length else self.generated
        return TokenAxis(self.tokens[:length], self.special[:length], words, generated)

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def known_special(self) -> tuple[bool, ...]:
        """Whether each token is special: as ``special`` says, or where that is unknown, by its text."""
        return self.special or special_by_name(self.tokens)

    @property
    def labels(self) -> tuple[str, ...]:
        """One text for each position."""
        return self.tokens


@dataclass(frozen=True, eq=False)
class GridAxis:
    """The cells of a grid over an image, row by row: patches, or the pixels of a feature map.

    Attributes:
        rows: the number of rows of the grid.
        columns: the number of columns of the grid.
        image: uint8 ``[height, width, 3]``.
        leading: the number of positions before the grid, such as a class token.
        box: the part that the grid covers, x0, y0, x1, y1 in pixels; None: the whole image.

    Raises:
        ShapeError: the image has another shape, or a count is out of its range.
        KindError: the image is not uint8.
        ArgumentError: the box is not inside of the image.

    Example:
        >>> import numpy
        >>> from regard import records
        >>> image = numpy.zeros((32, 48, 3), dtype=numpy.uint8)
        >>> axis = records.GridAxis(rows=2, columns=3, image=image, leading=1)  # 2 × 3 patches, and a class token
        >>> len(axis), axis.labels
        (7, ('[0]', '0, 0', '0, 1', '0, 2', '1, 0', '1, 1', '1, 2'))
    """

    rows: int
    columns: int
    image: NDArray[np.uint8]
    leading: int = 0
    box: tuple[float, float, float, float] | None = None

    def __post_init__(self) -> None:
        for name, least in (("rows", 1), ("columns", 1), ("leading", 0)):
            count = getattr(self, name)
            if not is_whole_number(count) or count < least:
                raise ShapeError(f"{name} must be an integer of at least {least}; it is {count!r}")
        image = as_numbers("image", self.image)
        if image.ndim != 3 or image.shape[2] != 3 or not image.size:
            raise ShapeError(f"image must be [height, width, 3] and not empty; it has shape {list(image.shape)}")
        if image.dtype != np.uint8:
            raise KindError(f"image must be uint8; it is {image.dtype}")
        object.__setattr__(self, "image", image)
        if self.box is not None:
            height, width = image.shape[:2]
            values = tuple(float(edge) for edge in self.box)
            if len(values) != 4 or not (0 <= values[0] < values[2] <= width and 0 <= values[1] < values[3] <= height):
                raise ArgumentError(
                    f"box must be (x0, y0, x1, y1) inside of the image of {width} × {height} pixels; it is {self.box!r}"
                )
            object.__setattr__(self, "box", values)

    def __len__(self) -> int:
        return self.leading + self.rows * self.columns

    @property
    def labels(self) -> tuple[str, ...]:
        """One text for each position: the row and the column of a cell, from 0."""
        cells = (f"{cell // self.columns}, {cell % self.columns}" for cell in range(self.rows * self.columns))
        return (*(f"[{position}]" for position in range(self.leading)), *cells)


LONGEST_WINDOW = 0.1
"""The most seconds of a sound beyond the last position, for the window of a spectrogram's last frame."""


@dataclass(frozen=True, eq=False)
class FrameAxis:
    """The positions of a sound in time, with its spectrogram.

    Attributes:
        spectrogram: float32 ``[bins, frames]``, the lowest frequency first, over the same time as the positions; it
            may be finer than they are.
        seconds: the duration of one position.
        positions: the number of positions; None: one for each frame of the spectrogram.
        sound: int16 ``[samples]``, from the beginning of the first position, which viewers can play; it must not end
            after the last position. None: unknown.
        rate: the number of samples a second of ``sound``.

    Raises:
        ShapeError: the spectrogram or the sound has another shape, or ``positions`` is below 1.
        KindError: the sound is not int16.
        ArgumentError: ``seconds`` is not above 0, the spectrogram is not finite, the sound goes on after the positions,
            or the rate is not from 1,000 to 768,000.

    Example:
        >>> import numpy
        >>> from regard import records
        >>> axis = records.FrameAxis(numpy.zeros((80, 100)), seconds=0.04, positions=25)  # 4 frames to a position
        >>> len(axis), axis.labels[:3]
        (25, ('0.00 s', '0.04 s', '0.08 s'))
    """

    spectrogram: NDArray[np.float32]
    seconds: float
    positions: int | None = None
    sound: NDArray[np.int16] | None = None
    rate: int = 16_000

    def __post_init__(self) -> None:
        spectrogram = as_numbers("spectrogram", self.spectrogram).astype(np.float32)
        if spectrogram.ndim != 2 or not spectrogram.size:
            raise ShapeError(
                f"spectrogram must be [bins, frames] and not empty; its shape is {list(spectrogram.shape)}"
            )
        if not np.isfinite(spectrogram).all():
            raise ArgumentError("spectrogram must be finite")
        if not isinstance(self.seconds, (int, float)) or not (math.isfinite(self.seconds) and self.seconds > 0):
            raise ArgumentError(f"seconds must be the duration of one position, above 0; it is {self.seconds!r}")
        positions = spectrogram.shape[1] if self.positions is None else self.positions
        if not is_whole_number(positions) or positions < 1:
            raise ShapeError(f"positions must be an integer of at least 1; it is {positions!r}")
        object.__setattr__(self, "spectrogram", spectrogram)
        object.__setattr__(self, "seconds", float(self.seconds))
        object.__setattr__(self, "positions", int(positions))
        if self.sound is not None:
            sound = as_numbers("sound", self.sound)
            if sound.ndim != 1 or not sound.size:
                raise ShapeError(f"sound must be [samples] and not empty; its shape is {list(sound.shape)}")
            if sound.dtype != np.int16:
                raise KindError(f"sound must be int16; it is {sound.dtype}")
            object.__setattr__(self, "sound", sound)
        if not is_whole_number(self.rate) or not 1_000 <= self.rate <= 768_000:
            raise ArgumentError(f"rate must be an integer from 1,000 to 768,000 samples a second; it is {self.rate!r}")
        self._check_duration()

    def _check_duration(self) -> None:
        """Raises ArgumentError for a sound that continues after the last position; it may end before it."""
        if self.sound is None:
            return
        lasts, whole = self.sound.size / self.rate, len(self) * self.seconds
        # Frames are the middles of windows, so a sound ends a little after the last one.
        if lasts > whole + self.seconds + LONGEST_WINDOW:
            raise ArgumentError(
                f"sound must not go on after the positions end, {whole:g} s ({len(self)} positions of "
                f"{self.seconds:g} s); its {self.sound.size} samples at rate={self.rate} last {lasts:g} s: write "
                f"sound=sound[:{round(whole * self.rate)}], or the rate of the sound"
            )

    def __len__(self) -> int:
        assert self.positions is not None, "set by __post_init__"
        return self.positions

    @property
    def labels(self) -> tuple[str, ...]:
        """One text for each position: the time at which it begins."""
        return tuple(f"{position * self.seconds:.2f} s" for position in range(len(self)))


Axis = TokenAxis | GridAxis | FrameAxis
"""The positions of one side of a matrix of weights: tokens, cells of an image, or frames of a sound."""


def is_whole_number(value: object) -> bool:
    """Whether a value is an integer, and no boolean."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def as_number(name: str, value: object) -> float:
    """Returns a real number as a float; raises KindError for another value, ArgumentError beyond all floats."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise KindError(f"{name} must be a number; it is {type_text(value)}")
    try:
        return float(value)
    except OverflowError:
        raise ArgumentError(f"{name} must be finite; it is larger than any number with a floating point") from None


def as_numbers(name: str, values: Any) -> NDArray[Any]:
    """Returns an array of real numbers or booleans; raises KindError or ShapeError for other values."""
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ShapeError(f"{name} must be an array; its rows have different lengths") from error
    except (TypeError, RuntimeError) as error:
        raise KindError(f"{name} must be an array of numbers on the CPU, without gradients: {error}") from error
    if array.dtype.kind not in "biuf":
        raise KindError(f"{name} must hold real numbers; it holds {array.dtype}")
    return array


def bin_edges(length: int, bins: int) -> NDArray[np.int64]:
    """Returns the edges of bins: position ``p`` is in bin ``⌊p · bins / length⌋``, as in the reading ``pooled``.

    Args:
        length: the number of positions.
        bins: the number of bins.

    Returns:
        int64 ``[bins + 1]``: the first position of each bin, and ``length``.

    Raises:
        ArgumentError: ``bins`` is no integer from 1 to ``length``.

    Example:
        >>> from regard import records
        >>> records.bin_edges(10, 4)  # bins of 3, 2, 3 and 2 positions
        array([ 0,  3,  5,  8, 10])
    """
    if isinstance(bins, bool) or not isinstance(bins, (int, np.integer)) or not 1 <= bins <= length:
        raise ArgumentError(f"bins must be an integer from 1 to {length}; it is {bins!r}")
    return (np.arange(bins + 1, dtype=np.int64) * length + bins - 1) // bins


MARKS_WITHIN = ("##", "·")
"""Marks before a piece within a word: those of WordPiece and of regard's own tokenizers."""

MARKS_BEFORE = ("▁", "Ġ", " ")
"""Marks before the first piece of a word: those of SentencePiece and of byte-level BPE."""

MARK_AFTER = "@@"
"""The mark after a piece that another piece of the same word follows (subword-nmt)."""

APOSTROPHES = ("'", "\u2019")
ENDINGS = frozenset({"t", "s", "m", "d", "re", "ve", "ll"})
"""What follows an apostrophe within an English word: *didn't*, *it's*, *we're*."""

SPECIAL_NAME = re.compile(
    r"\[(?:CLS|SEP|PAD|MASK|BOS|EOS|UNK)\]"  # BERT and its kind
    r"|</?s>|<(?:pad|bos|eos|unk|mask|cls|sep|start_of_turn|end_of_turn)>"  # RoBERTa, T5, Llama, Gemma
    r"|<\|[^|]*\|>|<\uff5c[^\uff5c]*\uff5c>",  # GPT-2 and most of its successors: <|endoftext|>
    re.IGNORECASE,
)
"""The texts of special tokens, by which they are guessed where no tokenizer names them."""


def word_ranges(tokens: Sequence[str], special: Sequence[bool] = ()) -> tuple[range, ...]:
    """Returns the positions of each word; () if no token has a mark or is a part of an English contraction.

    Args:
        tokens: of any tokenizer that marks either the pieces within a word or those that begin one.
        special: True for each token that is a word by itself; () if none is known.

    Raises:
        ShapeError: ``special`` has another length than ``tokens``.

    Example:
        >>> from regard import records
        >>> records.word_ranges(["un", "##seen", "film"])
        (range(0, 2), range(2, 3))
        >>> records.word_ranges(["▁the", "▁un", "seen"])
        (range(0, 1), range(1, 3))
        >>> records.word_ranges(["the", "film"])  # no marks
        ()
        >>> records.word_ranges(["it", "didn", "'", "t"])
        (range(0, 1), range(1, 4))
    """
    alone = list(special) or [False] * len(tokens)
    if len(alone) != len(tokens):
        raise ShapeError(f"special must have one entry for each of {len(tokens)} tokens; it has {len(alone)}")
    texts = [token for token, flag in zip(tokens, alone, strict=True) if not flag]
    marks_within = any(token.startswith(MARKS_WITHIN) and len(token) > 1 for token in texts)
    marks_after = any(token.endswith(MARK_AFTER) and len(token) > len(MARK_AFTER) for token in texts)
    marks_before = any(token.startswith(MARKS_BEFORE) for token in texts)
    if not (marks_within or marks_after or marks_before):
        return join_contractions(tokens, ())
    starts = []
    for position, token in enumerate(tokens):
        first = position == 0 or alone[position] or alone[position - 1]
        if not first:
            if marks_within:
                first = not (token.startswith(MARKS_WITHIN) and len(token) > 1)
            elif marks_after:
                first = not tokens[position - 1].endswith(MARK_AFTER)
            else:
                first = token.startswith(MARKS_BEFORE)
        if first:
            starts.append(position)
    words = tuple(range(start, stop) for start, stop in zip(starts, [*starts[1:], len(tokens)], strict=True))
    return join_contractions(tokens, words)


def join_contractions(tokens: Sequence[str], words: Sequence[range]) -> tuple[range, ...]:
    """Returns words of which those that an apostrophe parts are one: *didn*, *'*, *t*; () if there are only tokens.

    Args:
        tokens: of any tokenizer.
        words: the positions of each word; (): each token is one.
    """
    parts = list(words) or [range(position, position + 1) for position in range(len(tokens))]
    texts = ["".join(tokens[part.start : part.stop]) for part in parts]
    joined: list[int] = []  # the numbers of the parts that begin a word
    for number, text in enumerate(texts):
        joined.append(number)
        is_quoted = number + 1 < len(texts) and texts[number + 1] in APOSTROPHES
        if text in ENDINGS and not is_quoted and number > 1 and texts[number - 1] in APOSTROPHES:
            before = number - 2
        elif text[:1] in APOSTROPHES and text[1:] in ENDINGS and number > 0:
            before = number - 1
        else:
            continue
        if texts[before][-1:].isalpha():
            joined = [one for one in joined if one <= before]
    if len(joined) == len(parts):
        return tuple(words)
    ends = [*joined[1:], len(parts)]
    return tuple(range(parts[first].start, parts[end - 1].stop) for first, end in zip(joined, ends, strict=True))


def special_by_name(tokens: Sequence[str]) -> tuple[bool, ...]:
    """Returns whether each token has the text of a special one (`SPECIAL_NAME`)."""
    return tuple(SPECIAL_NAME.fullmatch(token) is not None for token in tokens)


def join_pieces(pieces: Sequence[str]) -> str:
    """Returns the text of a word: its pieces without the marks of their tokenizer.

    Args:
        pieces: of one word, in their order, as `word_ranges` finds them.

    Example:
        >>> from regard import records
        >>> [records.join_pieces(pieces) for pieces in (["un", "##seen"], ["▁un", "seen"], ["un@@", "seen"])]
        ['unseen', 'unseen', 'unseen']
    """
    joined = []
    for number, piece in enumerate(pieces):
        text = piece
        if number == 0 and (len(piece) > 1 or len(pieces) > 1):
            text = next((piece.removeprefix(mark) for mark in MARKS_BEFORE if piece.startswith(mark)), piece)
        elif number > 0:
            text = next((piece.removeprefix(mark) for mark in MARKS_WITHIN if piece.startswith(mark)), piece)
        joined.append(text if number == len(pieces) - 1 else text.removesuffix(MARK_AFTER))
    return "".join(joined)
