"""Frozen dataclasses of options: what a field may be, when it has a meaning, and the checks of both.

A `Configuration` says each of its rules where the field is declared, and checks them when it is made::

    @dataclass(frozen=True)
    class Network(Configuration):
        inputs: int = from_data()
        architecture: Literal["lstm", "transformer"] = "lstm"
        layers: int = varies(1, transformer=6, within=LAYERS)
        heads: int = option(8, within=HEADS, architecture="transformer")

``layers`` has another default with ``architecture="transformer"``, and ``heads`` has a meaning only with it; the help
of an option and the messages about it follow from that. No option sets ``inputs``, which is known when the data are.
This file imports no PyTorch, so that options are listed and checked quickly.
"""

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Self, Union

from regard.errors import ArgumentError, UnknownNameError
from regard.names.field_texts import shows_fields


class Range(NamedTuple):
    """The numbers from ``low`` to ``high`` that a field may be; if it is ``open``, ``high`` itself is excluded."""

    low: float
    high: float
    open: bool = False


SIZE = Range(1, 65_536)
"""Features, units or channels: with more, a model would not fit into any memory."""
LAYERS = Range(1, 100)
"""Layers of a stack."""
HEADS = Range(1, 1024)
"""Heads of an attention layer."""
COUNT = Range(0, 1_000_000)
"""Numbers of steps, examples or tokens; 0 is none."""
RATE = Range(0, 1, open=True)
"""Probabilities of dropout and of label smoothing."""
WEIGHT = Range(0, math.inf)
"""Weights of a part of a loss."""
AT_LEAST_0 = Range(0, math.inf)
"""Numbers of at least 0."""
AT_LEAST_1 = Range(1, math.inf)
"""Numbers of at least 1."""
SEED = Range(0, 2**63 - 1)
"""Seeds of random numbers."""

CHOOSING = ("architecture", "attention", "self_attention")
"""Fields on whose value the defaults of others depend."""


def option(default: Any, *, within: Range | None = None, **needs: Any) -> Any:
    """Returns a field of a `Configuration`.

    Args:
        default: its default.
        within: the numbers that it may be.
        needs: other fields, each with the value, or a tuple of the values, with which this field has a meaning; True is
            any value that is not empty.
    """
    return dataclasses.field(default=default, metadata={"within": within, "needs": needs})


def varies(default: Any, *, within: Range | None = None, needs: Mapping[str, Any] | None = None, **others: Any) -> Any:
    """Returns a field whose default depends on the architecture, or on the kind of attention or of self-attention.

    Args:
        default: its default with any choice that ``others`` does not name.
        within: as in `option`.
        needs: as in `option`.
        others: a value of a field of `CHOOSING` → the default with it; the first that applies counts.
    """
    metadata = {"within": within, "needs": needs or {}, "defaults": {**others, "": default}}
    return dataclasses.field(default=None, metadata=metadata)


def from_data(default: Any = None, *, low: int | None = 1) -> Any:
    """Returns a field that is no option, because the data of a run decide it.

    Args:
        default: its value until then; None: a model cannot be made without it.
        low: its least value; None for a field that is no number.
    """
    metadata = {"within": None if low is None else Range(low, math.inf), "from_data": True}
    return dataclasses.field(default=default, metadata=metadata)


def is_option(field: "dataclasses.Field[Any]") -> bool:
    """Whether a user chooses the field, and not the data."""
    return not field.metadata.get("from_data")


def option_fields(kind: Any) -> tuple["dataclasses.Field[Any]", ...]:
    """Returns the fields of a dataclass that are options, in order; those that need other options come last."""
    return tuple(
        sorted(filter(is_option, dataclasses.fields(kind)), key=lambda field: bool(field.metadata.get("needs")))
    )


def option_types(kind: type[Any], include_extras: bool = False) -> dict[str, Any]:
    """Returns the type of each option of a dataclass; one whose default varies may also be None, which means it."""
    hints = typing.get_type_hints(kind, include_extras=include_extras)
    fields = option_fields(kind)
    return {one.name: hints[one.name] | None if "defaults" in one.metadata else hints[one.name] for one in fields}


def offered(kind: type[Any], name: str) -> Sequence[Any]:
    """Returns the values of an option whose type is a ``Literal`` that some training can have; () for other types."""
    refused = kind.refused(name) if issubclass(kind, Configuration) else ()
    return [choice for choice in choices(typing.get_type_hints(kind)[name]) if choice not in refused]


def option_help(kind: type[Any], field: "dataclasses.Field[Any]", text: str, fitted: bool = False) -> str:
    """Returns the help of an option: with what it has a meaning, what it is, and how its default varies.

    Args:
        kind: the dataclass.
        field: the field of the option.
        text: what it is.
        fitted: whether the data of a run decide the default.
    """
    hints = typing.get_type_hints(kind)
    if len(shown := offered(kind, field.name)) < len(choices(hints[field.name])):
        text = f"{text.rstrip('.')}: {', '.join(shown)}."
    needs = {name: value for name, value in field.metadata.get("needs", {}).items() if name in hints}
    if "attention" in needs:
        needs.pop("architecture", None)  # only some architectures have it
    start = ", ".join(filter(None, (_with(name, value, hints[name]) for name, value in needs.items())))
    if start:
        text = f"{start}: {text if text[:2].isupper() else text[0].lower() + text[1:]}"
    if fitted:
        return f"{text} Default: from the data."
    defaults = dict(field.metadata.get("defaults", {}))
    if not defaults:
        return text
    known = {value for name in CHOOSING if name in hints for value in choices(hints[name])}
    varying = [f"; {choice}: {_shown(value)}" for choice, value in defaults.items() if choice in known]
    return f"{text} Default: {_shown(defaults[''])}{''.join(varying)}."


def _with(name: str, value: Any, hint: Any) -> str:
    # With which values of another field an option has a meaning; empty if it is so with all.
    values = _several(value)
    if values == (True,):
        return f"with {name}"
    if values == ("",):
        return f"without {name}"
    possible = [str(one) for one in choices(hint) if one in values]
    if len(possible) == len(choices(hint)):
        return ""
    return ", ".join(possible) if name in CHOOSING else f"{name} {' or '.join(possible)}"


def _several(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class Configuration:
    """The base of configurations whose fields say their rules; see the module."""

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        shows_fields(cls)

    def __post_init__(self) -> None:
        check_choices(self)
        for field in dataclasses.fields(self):
            if "defaults" in field.metadata and getattr(self, field.name) is None:
                fill(self, **{field.name: self.usual(field)})
        for field in dataclasses.fields(self):
            self._check_meaning(field)
            value, within = getattr(self, field.name), range_of(type(self), field.name)
            if value is None and field.default is not None:
                raise ArgumentError(f"{field.name} must not be None")
            if within is not None and value is not None:
                check_range(field.name, value, within)
        self.check()

    @classmethod
    def refused(cls, name: str) -> Sequence[Any]:
        """Returns the choices of a field with which no task can train such a model, so that no command offers them."""
        return ()

    def check(self) -> None:
        """Raises ArgumentError if fields contradict each other; a field that the data decide may still be None."""

    def complete(self, *architectures: str) -> Self:
        """Returns the configuration, whose fields must all be known.

        Args:
            architectures: those of the model that is made; none: any.

        Raises:
            ArgumentError: a field that the data decide is None, or the architecture is another one.
        """
        for field in dataclasses.fields(self):
            if not is_option(field) and field.default is None and getattr(self, field.name) is None:
                raise ArgumentError(f"{field.name} is missing: a model needs it")
        architecture = getattr(self, "architecture", None)
        if architectures and architecture not in architectures:
            raise ArgumentError(f"architecture must be {' or '.join(architectures)} here; it is {architecture!r}")
        return self

    def has_meaning(self, name: str) -> bool:
        """Whether a field has a meaning with the values of the others."""
        return self.unmet_need(next(field for field in dataclasses.fields(self) if field.name == name)) is None

    def unmet_need(self, field: "dataclasses.Field[Any]") -> str | None:
        """Returns the name of another field with whose value this one has no meaning; None: it has one."""
        for name, allowed in field.metadata.get("needs", {}).items():
            value = getattr(self, name, None)
            if value is not None and not (value if allowed is True else value in _several(allowed)):
                return name
        return None

    def _check_meaning(self, field: "dataclasses.Field[Any]") -> None:
        value, unmet = getattr(self, field.name), self.unmet_need(field)
        if unmet is None or value == self.usual(field):
            return
        other, allowed = getattr(self, unmet), field.metadata["needs"][unmet]
        if allowed is True:
            raise ArgumentError(f"{field.name} needs {unmet}; leave it out, or give both")
        known = choices(typing.get_type_hints(type(self))[unmet])
        wanted = " or ".join(repr(one) for one in known if one in _several(allowed))
        hint = f", only with {wanted}" if wanted else ""
        raise ArgumentError(f"{field.name} has no meaning with {unmet} {other!r}{hint}; leave it out")

    def usual(self, field: "dataclasses.Field[Any]") -> Any:
        """Returns the default of a field, which may vary."""
        defaults = field.metadata.get("defaults")
        if defaults is None:
            return field.default
        chosen = (getattr(self, name, None) for name in CHOOSING)
        return next((defaults[one] for one in chosen if isinstance(one, str) and one in defaults), defaults[""])


def fill(configuration: Any, **values: Any) -> None:
    """Sets fields of a frozen configuration, while it is made."""
    for name, value in values.items():
        object.__setattr__(configuration, name, value)


@functools.cache
def range_of(kind: type[Any], name: str) -> Range | None:
    """Returns the numbers that a field may be; one that only has another default than in a base keeps its range."""
    fields = (vars(base).get("__dataclass_fields__", {}).get(name) for base in kind.__mro__)
    return next((one.metadata["within"] for one in fields if one is not None and "within" in one.metadata), None)


def check_range(name: str, value: float, within: Range) -> None:
    """Raises ArgumentError if a number is not in a range, or NaN."""
    low, high, is_open = within
    if low <= value <= high and not (is_open and value == high):
        return
    if is_open:
        raise ArgumentError(f"{name} must be in [{low}, {high}); it is {value}")
    if high == math.inf:
        raise ArgumentError(f"{name} must be at least {low}; it is {value}")
    raise ArgumentError(f"{name} must be from {low:,} to {high:,}; it is {value}")


def check_finite(section: Any) -> None:
    """Raises ArgumentError if a field is infinite or NaN."""
    for field in dataclasses.fields(section):
        value = getattr(section, field.name)
        if isinstance(value, float) and not math.isfinite(value):
            raise ArgumentError(f"{field.name} must be a finite number; it is {value}")


def check_choices(section: Any) -> None:
    """Raises UnknownNameError if a field whose type is a ``Literal`` has another value."""
    varying = {field.name for field in dataclasses.fields(section) if "defaults" in field.metadata}
    for name, hint in typing.get_type_hints(type(section)).items():
        known, value = choices(hint), getattr(section, name, None)
        if known and value not in known and not (value is None and name in varying):
            raise UnknownNameError(name, value, [choice for choice in known if choice is not None])


def choices(hint: Any) -> Sequence[Any]:
    """Returns the values of a Literal, or of a union of Literals and None; () for other types."""
    if typing.get_origin(hint) is Literal:
        return typing.get_args(hint)
    if is_union(hint):
        parts = [(None,) if part is type(None) else tuple(choices(part)) for part in typing.get_args(hint)]
        return sum(parts, ()) if all(parts) and any(part != (None,) for part in parts) else ()
    return ()


def is_union(hint: Any) -> bool:
    """Whether a type is a union."""
    return typing.get_origin(hint) in (Union, types.UnionType)
