"""Options of a command from the fields of configurations: name, type, default and help."""

import dataclasses
import inspect
import re
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter
from docstring_parser import parse_from_object


@dataclass(frozen=True)
class Panel:
    """A panel of the help, with one option for each of some fields of a configuration."""

    title: str
    kind: type[Any]
    """The configuration: a dataclass with a docstring under each field."""
    fields: tuple[str, ...]
    """The names of the fields, in the order of the help."""
    spellings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Field → its options, where they are not ``--field-name`` alone."""
    negatives: bool = False
    """Whether a flag that is off by default has a ``--no-`` form too, since a file may have turned it on."""

    def parameters(self, group: Group) -> list[inspect.Parameter]:
        """The options as parameters of a function that Cyclopts calls."""
        kinds = typing.get_type_hints(self.kind)
        annotations = typing.get_type_hints(self.kind, include_extras=True)
        texts = field_help(self.kind)
        fields = {field.name: field for field in dataclasses.fields(self.kind)}
        return [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=_default(fields[name]),
                annotation=Annotated[
                    annotations[name],
                    Parameter(
                        name=self.spellings.get(name, (option(name),)),
                        negative=_negative(name, kinds[name], self.negatives or fields[name].default is True),
                        help=texts.get(name),
                        show_choices=not all(f"{choice}" in texts.get(name, "") for choice in _choices(kinds[name])),
                        group=group,
                        # A text may begin with a hyphen; a number may as it is.
                        allow_leading_hyphen=str in (kinds[name], *typing.get_args(kinds[name])),
                    ),
                ],
            )
            for name in self.fields
        ]


def panel(title: str, kind: type[Any], **options: Any) -> Panel:
    """A panel with an option for every field of a configuration."""
    return Panel(title, kind, field_names(kind), **options)


def signature(panels: Iterable[Panel], positional: Iterable[inspect.Parameter] = ()) -> inspect.Signature:
    """The signature of a command that takes the options of these panels, and arguments before them.

    Raises:
        ValueError: two options have one name.
    """
    groups = [(one, Group.create_ordered(one.title)) for one in panels if one.fields]
    return inspect.Signature([*positional, *(made for one, group in groups for made in one.parameters(group))])


def option(name: str) -> str:
    """The option of a field: ``--learning-rate`` for ``learning_rate``."""
    return f"--{name.replace('_', '-')}"


def field_names(kind: type[Any]) -> tuple[str, ...]:
    """The names of a dataclass's fields, in their order."""
    return tuple(field.name for field in dataclasses.fields(kind))


def options_of(*kinds: type[Any]) -> dict[str, str]:
    """Field of these configurations → its option."""
    return {name: option(name) for kind in kinds for name in field_names(kind)}


def field_help(kind: type[Any]) -> dict[str, str]:
    """The docstrings under the fields of a dataclass and of its bases, each as one paragraph, fields as options."""
    texts = {}
    for base in reversed(kind.__mro__[:-1]):
        for found in parse_from_object(base).params:
            texts[found.arg_name] = " ".join((found.description or "").replace("``", "").split())
    # A name of two words can only be that of a field.
    named = "|".join(name for name in texts if "_" in name)
    return {
        name: re.sub(rf"\b({named})\b", lambda match: option(match[0]), text) if named else text
        for name, text in texts.items()
    }


def _negative(name: str, kind: Any, wanted: bool) -> str | tuple[()]:
    return option(f"no_{name}") if kind is bool and wanted else ()


def _choices(kind: Any) -> tuple[Any, ...]:
    """The values of a Literal, also within a union."""
    if typing.get_origin(kind) is Literal:
        return typing.get_args(kind)
    return tuple(choice for part in typing.get_args(kind) for choice in _choices(part))


def _default(field: "dataclasses.Field[Any]") -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return inspect.Parameter.empty
