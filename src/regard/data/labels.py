"""The names of classes, of whole examples and of pixels, and their files in a run folder."""

import hashlib
import json
import logging
import math
import os
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from regard.data.label_doubts import folded_label, spellings
from regard.errors import DataError, MissingPartError, RunError
from regard.files.atomic import write_atomically
from regard.files.regular import LARGEST_TEXT, read_text

if TYPE_CHECKING:
    import datasets

log = logging.getLogger("regard")

T = TypeVar("T")

MOST_LABELS = 10_000
"""A column with more different labels is taken for another column."""

MOST_CHARACTERS = 1000
"""A label of more characters is taken for a text."""

_MISSING_LABELS = ("nan", "null")
"""What other programs write for a missing label, in lower case."""

MOST_SIDE = 8192
"""Pixels of a side of an image whose pixels are classified, at most."""


class Labels:
    """The names of labels, in the order of their numbers.

    Names are equal if Unicode says so: one with a letter and its accent as two characters is that with one character.

    Args:
        names: different texts.
        merged: whether names that differ only by case, spaces and Unicode form are one.
    """

    def __init__(self, names: Sequence[str], merged: bool = False):
        self.names, self.merged = tuple(names), merged
        numbers = {name: number for number, name in enumerate(self.names)}
        # Runs of earlier versions may have two labels for one name.
        self._numbers = {_composed(name): number for name, number in numbers.items()} | numbers
        self._folded = {folded_label(name): name for name in reversed(self.names)}

    @classmethod
    def of(
        cls, dataset: "datasets.Dataset | Set[str] | Mapping[str, int]", where: str, unit: str = "text",
        merged: bool = False,
    ) -> "Labels":  # fmt: skip
        """Returns the labels that occur in a data set, sorted; labels that are numbers by their value.

        Args:
            dataset: labels in the column ``target``; or the labels themselves, which may have numbers of examples.
            where: name of the data, for messages.
            unit: what has a label, for messages.
            merged: whether labels that differ only by case, spaces and Unicode form are one, spelt as most of them.

        Raises:
            DataError: there is one label only, there are more than `MOST_LABELS`, or one has more than
                `MOST_CHARACTERS`.
        """
        names = set({_composed(name): name for name in sorted(_different(dataset))}.values())
        if merged:
            counts = dataset if isinstance(dataset, Mapping) else {}
            names = {group[0] for group in spellings({name: counts.get(name, 0) for name in names})}
        longest = max(map(len, names))
        if longest > MOST_CHARACTERS:
            raise DataError(
                f"{where}: a label has {longest:,} characters, at most {MOST_CHARACTERS:,} are possible; "
                "is this the column of the labels?"
            )
        if len(names) == 1:
            raise DataError(f"{where}: every {unit} has the label {min(names)!r}; there is nothing to tell apart")
        if len(names) > MOST_LABELS:
            raise DataError(
                f"{where}: there are {len(names):,} different labels, at most {MOST_LABELS:,} are possible; "
                "is this the column of the labels?"
            )
        for name in sorted(name for name in names if name.lower() in _MISSING_LABELS):
            log.warning(
                "%s: %r is the label of a class; leave these %ss out if it means a missing label", where, name, unit
            )
        return cls(sorted(names, key=_order), merged)

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        return f"Labels({list(self.names)!r})"

    @property
    def fingerprint(self) -> str:
        """A key that is equal for equal names in an equal order."""
        content = [*self.names, {"merged": True}] if self.merged else self.names
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32]

    def encode_batch(self, texts: Iterable[str]) -> list[list[int]]:
        """Returns the number of each label as a list of one, as `regard.data.text.batches.encode_pairs` needs it."""
        return [[self.number(name)] for name in texts]

    def number(self, name: str) -> int:
        """Returns the number of a label."""
        return self._numbers[self._known(name)]

    def _known(self, name: str) -> str:
        composed = name if name in self._numbers else _composed(name)
        return self._folded.get(folded_label(name), name) if self.merged and composed not in self._numbers else composed

    def require(self, dataset: "datasets.Dataset | Set[str]", where: str, unit: str = "text") -> None:
        """Raises DataError, which names them, if other labels occur; arguments as in `of`."""
        unknown = sorted({name for name in _different(dataset) if self._known(name) not in self._numbers}, key=_order)
        if unknown:
            alike = next((name for name in unknown if folded_label(name) in self._folded), None)
            hint = "" if alike is None else (
                f"; {alike!r} is {self._folded[folded_label(alike)]!r} but for case, spaces or Unicode form: write it "
                "so, or train with --merge-labels"
            )  # fmt: skip
            raise DataError(
                f"{where}: no training {unit} has the label {_listed(unknown)} (known: {_listed(self.names)}){hint}"
            )

    def save(self, path: Path) -> None:
        """Writes the names as JSON."""
        _write_json(path, {"labels": self.names, **({"merged": True} if self.merged else {})})

    @classmethod
    def load(cls, path: Path) -> "Labels":
        """Reads a file that `save` wrote; raises as `read_run_file`."""

        def labels(content: Any) -> Labels:
            names = _checked_names(content, "labels")
            if len(set(names)) < 2 or len(set(names)) != len(names):
                raise ValueError("it needs two or more different names")
            return cls(names, content.get("merged") is True)

        return read_run_file(path, "labels", "a list of labels", labels)


def _different(dataset: "datasets.Dataset | Set[str] | Mapping[str, int]") -> set[str]:
    names: set[str] = set()
    if isinstance(dataset, (Set, Mapping)):
        return set(dataset)
    for block in dataset.iter(16_384):
        names.update(block["target"])  # pyright: ignore
    return names


def _composed(name: str) -> str:
    return unicodedata.normalize("NFC", name)


def _order(name: str) -> tuple[int, float, str]:
    try:
        number = float(name)
    except ValueError:
        number = math.nan
    return (0, number, name) if math.isfinite(number) else (1, 0.0, name)


def _listed(names: Sequence[str], most: int = 8) -> str:
    shown = ", ".join(repr(name[:40]) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


@dataclass(frozen=True)
class PixelClasses:
    """The names of classes, in the order of their numbers, and the size of images.

    Attributes:
        names: two or more different texts.
        height: of an image, in pixels.
        width: of an image, in pixels.
        numbers: those that class maps have for these classes; (): from 0 on, which is what they become.

    Raises:
        DataError: the names are too few or not different, or the size is out of its range.
    """

    names: tuple[str, ...]
    height: int
    width: int
    numbers: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.numbers:
            object.__setattr__(self, "numbers", tuple(range(len(self.names))))
        if len(self.names) < 2:
            raise DataError(f"there must be two or more classes; there is {len(self.names)}: nothing to tell apart")
        for number, name in enumerate(self.names):
            if name in self.names[:number]:
                raise DataError(f"classes must have different names; {name!r} occurs twice")
        for side in ("height", "width"):
            if not 1 <= getattr(self, side) <= MOST_SIDE:
                raise DataError(f"{side} must be from 1 to {MOST_SIDE:,}; it is {getattr(self, side)}")

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        return self.height, self.width

    def __len__(self) -> int:
        return len(self.names)

    def save(self, path: Path) -> None:
        """Writes the classes as JSON."""
        content: dict[str, Any] = {"classes": self.names, "height": self.height, "width": self.width}
        if self.numbers != tuple(range(len(self))):
            content["numbers"] = self.numbers
        _write_json(path, content)

    @classmethod
    def load(cls, path: Path) -> "PixelClasses":
        """Reads a file that `save` wrote; raises as `read_run_file`."""

        def classes(content: Any) -> PixelClasses:
            names, height, width = _checked_names(content, "classes"), content["height"], content["width"]
            if not all(type(side) is int and abs(side) < 1 << 63 for side in (height, width)):
                raise ValueError("height and width must be whole numbers below 2⁶³")
            numbers = content.get("numbers", list(range(len(names))))
            if not isinstance(numbers, list) or not all(type(one) is int and 0 <= one < 1 << 16 for one in numbers):
                raise ValueError("numbers must be whole numbers from 0 to 65,535")
            if len(set(numbers)) != len(names) or len(numbers) != len(names):
                raise ValueError("each class must have a number of its own")
            return cls(tuple(names), height, width, tuple(numbers))

        return read_run_file(path, "classes", "a list of classes", classes)


def _checked_names(content: Any, field: str) -> list[str]:
    """Returns the names in a field of a file; raises ValueError if they are no texts."""
    names = content[field]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{field} must be a list of texts")
    "".join(names).encode()  # ValueError for half a surrogate pair
    return names


def _write_json(path: Path, content: Any) -> None:
    write_atomically(path, (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())


def read_run_file(path: str | os.PathLike[str], content: str, kind: str, build: Callable[[Any], T]) -> T:
    """Returns what ``build`` makes of a JSON file in a run folder; the file contains data only.

    Args:
        content: what the file holds, for messages: ``"labels"``.
        kind: what the file is, for messages: ``"a list of labels"``.
        build: makes the result of the parsed content; any exception means that the content is of another kind.

    Raises:
        RunError: the file is missing, or damaged, or of another kind.
    """
    try:
        return build(json.loads(read_text(path, LARGEST_TEXT)))
    except OSError as error:
        raise RunError(f"{path}: the {content} cannot be read ({error.strerror}); is this a run folder?") from error
    except MissingPartError:
        raise
    # A foreign file holds values of any type, and libraries raise plain exceptions.
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise RunError(f"{path}: is not {kind}, or is damaged ({reason:.200}); train it again") from error
