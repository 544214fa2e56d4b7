"""A classified text in a terminal: the probabilities, and the weight of each word under it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.color import Color
from rich.style import Style
from rich.text import Text

from regard.pictures.fonts import visible_token
from regard.pictures.numbers import cell_number

BARS = "▁▂▃▄▅▆▇█"
MOST_LABELS = 5
"""The most labels whose probabilities are shown."""

LONGEST_WORD = 1000
"""The most characters of a word; the rest is left out."""

STRONGEST = (232, 89, 12)
"""The background of the word with the largest weight; words of no weight have none."""


class WordReport:
    """Prints the probabilities of labels, sentences with their weights, and lines of words with theirs,
    ``[heads][words]``, below: a bar, a number, and in a terminal with colours a background. A weight is a share of 1;
    bars and colours are in proportion to the largest one of a head."""

    def __init__(
        self,
        probabilities: Mapping[str, float],
        words: Sequence[str],
        weights: Sequence[Sequence[float]] | None,
        sentences: Sequence[tuple[str, float]] = (),
    ):
        self.sentences = sentences
        self.probabilities = probabilities
        self.words = [visible_token(word, LONGEST_WORD) for word in words]
        self.weights = weights

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Text]:
        if self.probabilities:
            shown = list(self.probabilities.items())[:MOST_LABELS]
            line = " · ".join(f"{label} {probability:.3f}" for label, probability in shown)
            rest = len(self.probabilities) - len(shown)
            yield Text(line + (f" · and {rest} more" if rest else ""), style="bold")
        if self.weights is None or not self.words:
            return
        most = max((weight for _, weight in self.sentences), default=0.0)
        for sentence, weight in self.sentences:
            line = f"{_bar(weight, most or 1.0)}{cell_number(weight):5}{visible_token(sentence, LONGEST_WORD)}"
            yield Text(line, style="dim", no_wrap=True, overflow="ellipsis")
        heads = len(self.weights)
        names = [""] if heads == 1 else [f"head {head} " for head in range(heads)]
        margin = max(map(len, names))
        room = max(10, options.max_width - margin)
        words = [word if cell_len(word) <= room else set_cell_size(word, room - 1) + "…" for word in self.words]
        widths = [max(cell_len(word), 5) for word in words]
        largest = [max(row) or 1.0 for row in self.weights]
        strength = [
            sum(row[number] / most for row, most in zip(self.weights, largest, strict=True)) / heads
            for number in range(len(self.words))
        ]
        for places in _lines(widths, room):
            text = Text(" " * margin, no_wrap=True, overflow="ignore")
            for number in places:
                text.append(words[number], _style(strength[number]))
                text.append(" " * (widths[number] - cell_len(words[number]) + 1))
            yield text
            for name, row, most in zip(names, self.weights, largest, strict=True):
                cells = (f"{_bar(row[n], most)}{cell_number(row[n])}".ljust(widths[n]) for n in places)
                yield Text(name.ljust(margin) + " ".join(cells), no_wrap=True, overflow="ignore", style="dim")


def _lines(widths: Sequence[int], room: int) -> Iterator[range]:
    first, used = 0, 0
    for number, width in enumerate(widths):
        if number > first and used + width > room:
            yield range(first, number)
            first, used = number, 0
        used += width + 1
    yield range(first, len(widths))


def _bar(weight: float, largest: float) -> str:
    return BARS[min(len(BARS) - 1, int(len(BARS) * weight / largest))] if weight > 0 else " "


def _style(strength: float) -> Style | None:
    if strength < 0.02:
        return None
    red, green, blue = (round(255 + (strong - 255) * strength) for strong in STRONGEST)
    return Style(color="black", bgcolor=Color.from_rgb(red, green, blue))
