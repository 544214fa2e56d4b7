"""The labels of texts: their names, their numbers, and their file."""

import hashlib
import json
import logging
import math
from collections.abc import Iterable, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING

from regard.atomic_file import write_atomically
from regard.errors import DataError, RunError
from regard.regular_file import LARGEST_TEXT, read_text

if TYPE_CHECKING:
    import datasets

log = logging.getLogger("regard")

MOST_LABELS = 10_000
"""More different labels than this are taken for another column."""

MOST_CHARACTERS = 1000
"""A label of more characters is taken for a text."""

_MISSING = ("nan", "null")
"""What other programs write for a missing label, in lower case."""


class Labels:
    """The names of labels, in the order of their numbers.

    Args:
        names: different texts.
    """

    def __init__(self, names: Sequence[str]):
        self.names = tuple(names)
        self._numbers = {name: number for number, name in enumerate(self.names)}

    @classmethod
    def of(cls, dataset: "datasets.Dataset | Set[str]", where: str, unit: str = "text") -> "Labels":
        """The labels that occur in a data set, sorted; labels that are numbers by their value.

        Args:
            dataset: labels in the column ``target``; or the labels themselves.
            where: name of the data, for messages.
            unit: what has a label, for messages.

        Raises:
            DataError: there is one label only, there are more than `MOST_LABELS`, or one has more than
                `MOST_CHARACTERS`.
        """
        names = _different(dataset)
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
        for name in sorted(name for name in names if name.lower() in _MISSING):
            log.warning(
                "%s: %r is the label of a class; leave these %ss out if it means a missing label", where, name, unit
            )
        return cls(sorted(names, key=_order))

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        return f"Labels({list(self.names)!r})"

    @property
    def fingerprint(self) -> str:
        """A key that is equal for equal names in an equal order."""
        return hashlib.sha256(json.dumps(self.names).encode()).hexdigest()[:32]

    def encode_batch(self, texts: Iterable[str]) -> list[list[int]]:
        """The number of each label, as a list of one, as `regard.data.text.batches.encode_pairs` wants it."""
        return [[self._numbers[name]] for name in texts]

    def number(self, name: str) -> int:
        """The number of a label."""
        return self._numbers[name]

    def require(self, dataset: "datasets.Dataset | Set[str]", where: str, unit: str = "text") -> None:
        """Raise DataError, which names them, if other labels occur; arguments as in `of`."""
        unknown = sorted(_different(dataset) - self._numbers.keys(), key=_order)
        if unknown:
            raise DataError(
                f"{where}: no training {unit} has the label {_listed(unknown)} (known: {_listed(self.names)})"
            )

    def save(self, path: Path) -> None:
        """Write the names as JSON."""
        write_atomically(path, (json.dumps({"labels": self.names}, indent=1, ensure_ascii=False) + "\n").encode())

    @classmethod
    def load(cls, path: Path) -> "Labels":
        """Read a file that `save` wrote.

        Raises:
            RunError: the file is missing, or is not a complete list of labels.
        """
        try:
            names = json.loads(read_text(path, LARGEST_TEXT))["labels"]
            if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
                raise ValueError("labels must be a list of texts")
            if len(set(names)) < 2 or len(set(names)) != len(names):
                raise ValueError("it needs two or more different names")
            "".join(names).encode()  # ValueError for half a surrogate pair
        except OSError as error:
            raise RunError(f"{path}: the labels cannot be read ({error.strerror}); is this a run folder?") from error
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise RunError(f"{path}: is not a list of labels, or is damaged ({error}); train it again") from error
        return cls(names)


def _different(dataset: "datasets.Dataset | Set[str]") -> set[str]:
    names: set[str] = set()
    if isinstance(dataset, Set):
        return set(dataset)
    for block in dataset.iter(16_384):
        names.update(block["target"])  # pyright: ignore
    return names


def _order(name: str) -> tuple[int, float, str]:
    try:
        number = float(name)
    except ValueError:
        number = math.nan
    return (0, number, name) if math.isfinite(number) else (1, 0.0, name)


def _listed(names: Sequence[str], most: int = 8) -> str:
    shown = ", ".join(repr(name[:40]) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
