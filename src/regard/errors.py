"""Every error that regard raises on purpose.

::

    RegardError
    ├── ArgumentError     (ValueError)    a value out of its range, or arguments that contradict each other
    │   ├── ShapeError                    an axis of the wrong rank or length
    │   └── UnknownNameError              a name that nothing has; lists the names and the nearest one
    ├── KindError         (TypeError)     a wrong type, dtype or device
    ├── BackendError      (RuntimeError)  a named backend cannot run this problem; says why
    ├── DataError         (ValueError)    a user's file: what is wrong, where, and what to do
    ├── RunError          (ValueError)    a run folder or checkpoint that is missing, foreign or damaged
    ├── TrainingError     (RuntimeError)  training cannot go on (a loss that is not a number)
    └── MissingPartError  (ImportError)   an optional part is not installed; names the extra
"""

import difflib
from collections.abc import Iterable


class RegardError(Exception):
    """Base of every error that regard raises on purpose."""


class ArgumentError(RegardError, ValueError):
    """A value is out of its range, or two arguments contradict each other."""


class ShapeError(ArgumentError):
    """A tensor has the wrong rank, or an axis of the wrong length."""


class UnknownNameError(ArgumentError):
    """A name that nothing has.

    Args:
        kind: what the name should name, e.g. ``"score"``.
        name: the name that was given.
        known: the names that exist.
    """

    def __init__(self, kind: str, name: object, known: Iterable[str]):
        names = sorted(known)
        nearest = difflib.get_close_matches(str(name), names, n=1, cutoff=0.5)
        hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
        super().__init__(f"unknown {kind} {name!r}{hint} (known: {', '.join(names)})")


class KindError(RegardError, TypeError):
    """A wrong type, dtype or device."""


class BackendError(RegardError, RuntimeError):
    """A backend that was named cannot run this problem; the message says why."""


class DataError(RegardError, ValueError):
    """A user's data cannot be read: what is wrong, where, and what to do."""


class RunError(RegardError, ValueError):
    """A run folder or checkpoint is missing, foreign or damaged."""


class TrainingError(RegardError, RuntimeError):
    """Training cannot go on."""


class MissingPartError(RegardError, ImportError):
    """An optional part is not installed.

    Args:
        part: what is missing, e.g. ``"matplotlib"``.
        extra: the extra of regard that brings it, e.g. ``"pictures"``.
    """

    def __init__(self, part: str, extra: str):
        super().__init__(f"{part} is not installed; it comes with: pip install 'regard[{extra}]'")
