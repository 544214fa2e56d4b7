"""The errors of regard.

::

    RegardError
    ├── ArgumentError     (ValueError)    a value out of range, or arguments that contradict each other
    │   ├── ShapeError                    an axis of the wrong rank or length
    │   └── UnknownNameError              an unknown name; lists the known names and the nearest one
    ├── KindError         (TypeError)     a wrong type, dtype or device
    ├── BackendError      (RuntimeError)  the named backend cannot run this problem; says why
    ├── DataError         (ValueError)    a file or data set cannot be used; says why, where, and what to do
    │   ├── ColumnError                   the columns of a table cannot be told; has a guess for each option
    │   ├── FolderError                   a folder is named where a file in it is meant; has the file
    │   └── WriteError                    a file cannot be written: a full disk, no permission
    ├── RunError          (ValueError)    a run folder or checkpoint that is missing, damaged or not regard's
    ├── TrainingError     (RuntimeError)  training cannot continue (the loss is not finite)
    ├── UnseenError       (RuntimeError)  a watched model whose attention cannot be seen; names the modules
    └── MissingPartError  (ImportError)   an optional part is not there or broken; names the extra
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

__all__ = [
    "ArgumentError",
    "BackendError",
    "ColumnError",
    "DataError",
    "FolderError",
    "KindError",
    "MissingPartError",
    "RegardError",
    "RunError",
    "ShapeError",
    "TrainingError",
    "UnknownNameError",
    "UnseenError",
    "WriteError",
]

_LONGEST_MESSAGE = 2000  # characters
_LETTERS_PER_SLIP = 4


def misspelt(name: str, known: Iterable[str]) -> str | None:
    """Returns the known name of which this is a near misspelling; None if it is none of any.

    One letter is added, left out, replaced or swapped with the next one; two in a name of at least eight letters. Case,
    ``-``, ``_`` and spaces do not count, and a name that merely looks alike is none: ``softcap`` is no ``softmax``.

    Example:
        >>> from regard.errors import misspelt
        >>> misspelt("softmxa", ["softmax", "sparsemax"]), misspelt("softcap", ["softmax", "sparsemax"])
        ('softmax', None)
    """
    typed = _letters(name)
    allowed = min(len(typed) // _LETTERS_PER_SLIP, 2) or int(len(typed) > 2)
    near = [(_slips(typed, _letters(one)), one) for one in known if abs(len(_letters(one)) - len(typed)) <= allowed]
    best = min(near, key=lambda pair: pair[0], default=None)
    return None if best is None or best[0] > allowed else best[1]


def _letters(name: str) -> str:
    return re.sub(r"[-_ ]", "", name).lower()


def _slips(typed: str, known: str) -> int:
    """Returns the optimal string alignment distance: insertions, deletions, replacements and swaps of neighbours."""
    before, row = list[int](), list(range(len(known) + 1))
    for i, letter in enumerate(typed):
        above, row = row, [i + 1]
        for j, other in enumerate(known):
            row.append(min(above[j] + (letter != other), above[j + 1] + 1, row[j] + 1))
            if i and j and (letter, typed[i - 1]) == (known[j - 1], other):
                row[-1] = min(row[-1], before[j - 1] + 1)
        before = above
    return row[-1]


class RegardError(Exception):
    """Base class of regard's errors. A message is always one line, whatever names and values it quotes.

    Example:
        >>> import torch
        >>> import regard
        >>> x = torch.zeros(3, 4)
        >>> try:
        ...     regard.attend(x, x, x[:2])
        ... except regard.errors.RegardError as error:
        ...     print(type(error).__name__, isinstance(error, ValueError), error, sep="; ")
        ShapeError; True; value must have key's keys, [3]; it has [2]
    """

    def __str__(self) -> str:
        text = super().__str__().replace("\n", "\\n").replace("\r", "\\r")
        if len(text) <= _LONGEST_MESSAGE:
            return text
        half = _LONGEST_MESSAGE // 2
        return f"{text[:half]} … {text[-half:]}"


class ArgumentError(RegardError, ValueError):
    """A value is out of range, or two arguments contradict each other."""


class ShapeError(ArgumentError):
    """A tensor has the wrong rank, or one of its axes has the wrong length."""


class UnknownNameError(ArgumentError):
    """A name is unknown; the message lists the known names and suggests the nearest one.

    Args:
        kind: what the names belong to, e.g. ``"score"``.
        name: the unknown name.
        known: the known names.
        here: what a name of another library is here (`regard.names.foreign_names`), in place of the nearest one.
    """

    def __init__(self, kind: str, name: object, known: Iterable[str], here: str = ""):
        names = sorted(known)
        nearest = None if here else misspelt(str(name), names)
        hint = f": {here}" if here else "" if nearest is None else f"; did you mean {nearest!r}?"
        super().__init__(f"unknown {kind} {name!r}{hint} (known: {', '.join(names)})")


class KindError(RegardError, TypeError):
    """An argument has the wrong type, dtype or device."""


class BackendError(RegardError, RuntimeError):
    """The named backend cannot run this problem; the message says why."""


class DataError(RegardError, ValueError):
    """A file or data set cannot be used; the message says why, where, and what to do."""


class ColumnError(DataError):
    """The columns that are meant in a table cannot be told.

    Args:
        message: the message.
        columns: field of the option that names a column → the column that may be meant; None: nothing can be guessed.
        choices: where several columns may be meant by an option, as ``columns`` for each of them; (): at most one may.
    """

    def __init__(
        self, message: str, columns: Mapping[str, str] | None = None, choices: Sequence[Mapping[str, str]] = ()
    ):
        super().__init__(message)
        self.choices = [dict(one) for one in choices] or ([dict(columns)] if columns else [])
        self.columns = self.choices[0] if len(self.choices) == 1 else {}

    def in_python(self, call: str) -> "ColumnError":
        """Returns the error of a call in Python: arguments instead of options, and the call that names the columns.

        Args:
            call: the call before the first of them: ``"run.evaluate(data"``.
        """
        text = re.sub(r"(?<![\w-])--([a-z][a-z-]*)", lambda option: option[1].replace("-", "_"), str(self))
        named = [", ".join(f"{field}={column!r}" for field, column in one.items()) for one in self.choices]
        calls = " or ".join(f"{call}, {one})" for one in named)
        return ColumnError(f"{text}; write {calls}" if calls else text, choices=self.choices)


class FolderError(DataError):
    """A folder is named, and a file in it is meant.

    Args:
        message: the message.
        folder: the folder.
        file: the file that is probably meant.
    """

    def __init__(self, message: str, folder: str, file: str):
        super().__init__(message)
        self.folder, self.file = folder, file


class WriteError(DataError):
    """A file cannot be written; the message says why, and whether the old file is unchanged."""


class RunError(RegardError, ValueError):
    """A run folder or checkpoint is missing, damaged or not from regard."""


class TrainingError(RegardError, RuntimeError):
    """Training cannot continue."""


class UnseenError(RegardError, RuntimeError):
    """The attention of a watched model cannot be seen; the message names the modules."""


class MissingPartError(RegardError, ImportError):
    """An optional part is not installed, or it cannot be imported.

    Args:
        part: the missing package, e.g. ``"matplotlib"``.
        extra: regard's extra that installs it, e.g. ``"pictures"``.
        reason: why it cannot be imported, though it is there; None: it is not there.
        remedy: what to do where the extra does not install what is missing.
    """

    SAME_BUILD = (
        "torchvision must be of the build of PyTorch: run the line of https://pytorch.org/get-started/locally/ that "
        "installs both"
    )
    """What to do where torchvision was built for another PyTorch: it stops whatever imports it."""

    def __init__(self, part: str, extra: str, reason: str | None = None, remedy: str | None = None):
        said = "is not installed" if reason is None else f"cannot be imported ({reason})"
        remedy = remedy or f"it comes with: pip install 'regard[{extra}]'"
        super().__init__(f"{part} {said}; {remedy}")

    @classmethod
    @contextmanager
    def instead(cls, part: str, extra: str) -> Iterator[None]:
        """Raises this error in place of an ImportError of the context, in which the package is imported."""
        try:
            yield
        except ImportError as error:
            raise cls(part, extra) from error
