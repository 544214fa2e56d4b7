"""Creates the options of a command from the fields of configurations: name, type, default and help."""

import dataclasses
import inspect
import re
import typing
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter

from regard.cli.option_errors import option
from regard.configuration.options import offered, option_fields, option_help, option_types
from regard.names.field_texts import field_texts


@dataclass(frozen=True)
class OptionPanel:
    """A panel of the help, with options for some fields of a configuration."""

    title: str
    kind: type[Any]
    """The configuration: a dataclass with a docstring under each field."""
    fields: tuple[str, ...]
    """The names of the fields, in the order of the help."""
    spellings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Field → its options, if they differ from ``--field-name``."""
    negatives: bool = False
    """Whether flags that are off by default also have a ``--no-`` form, since a file may have turned them on."""
    fitted: Set[str] = frozenset()
    """The fields whose default the data of a run decide."""

    def parameters(self, group: Group) -> list[inspect.Parameter]:
        """Returns the options as parameters of a function that Cyclopts calls."""
        kinds = option_types(self.kind)
        annotations = option_types(self.kind, include_extras=True)
        texts = field_help(self.kind, self.fitted)
        fields = {field.name: field for field in option_fields(self.kind)}
        return [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=None if name in self.fitted else _default(fields[name]),
                annotation=Annotated[
                    annotations[name] | None if name in self.fitted else annotations[name],
                    Parameter(
                        name=self.spellings.get(name, (option(name),)),
                        negative=_negative(name, kinds[name], self.negatives or fields[name].default is True),
                        help=texts.get(name),
                        show_choices=not all(
                            f"{choice}" in texts.get(name, "")
                            for choice in offered(self.kind, name) or _choices(kinds[name])
                        ),
                        group=group,
                        # A text may begin with a hyphen; Cyclopts accepts negative numbers anyway.
                        allow_leading_hyphen=str in (kinds[name], *typing.get_args(kinds[name])),
                    ),
                ],
            )
            for name in self.fields
        ]


def panel(title: str, kind: type[Any], **options: Any) -> OptionPanel:
    """Returns a panel with an option for every field of a configuration."""
    return OptionPanel(title, kind, field_names(kind), **options)


def signature(panels: Iterable[OptionPanel], positional: Iterable[inspect.Parameter] = ()) -> inspect.Signature:
    """Returns the signature of a command with these positional arguments and the options of these panels."""
    groups = [(panel, Group.create_ordered(panel.title)) for panel in panels if panel.fields]
    return inspect.Signature([*positional, *(option for panel, group in groups for option in panel.parameters(group))])


def field_names(kind: type[Any]) -> tuple[str, ...]:
    """Returns the names of a dataclass's fields that are options, in order."""
    return tuple(field.name for field in option_fields(kind))


def options_of(*kinds: type[Any]) -> dict[str, str]:
    """Returns the option of each field of these configurations."""
    return {name: option(name) for kind in kinds for name in field_names(kind)}


def field_help(kind: type[Any], fitted: Set[str] = frozenset()) -> dict[str, str]:
    """Returns the help of the options of a dataclass: the docstring of its field, in one paragraph, with options as
    names of fields, and its rules. The data of a run decide the default of the options ``fitted``."""
    texts = {name: text.replace("``", "") for name, text in field_texts(kind).items()}
    texts |= {
        one.name: option_help(kind, one, texts[one.name], one.name in fitted)
        for one in option_fields(kind)
        if one.name in texts
    }
    # Only names with an underscore are certainly those of fields.
    field_pattern = "|".join(name for name in texts if "_" in name)
    return {
        name: re.sub(rf"\b({field_pattern})\b", lambda match: option(match[0]), text) if field_pattern else text
        for name, text in texts.items()
    }


def _negative(name: str, kind: Any, has_negative: bool) -> str | tuple[()]:
    return option(f"no_{name}") if kind is bool and has_negative else ()


def _choices(kind: Any) -> tuple[Any, ...]:
    """Returns the values of a Literal, which may be inside a union."""
    if typing.get_origin(kind) is Literal:
        return typing.get_args(kind)
    return tuple(choice for part in typing.get_args(kind) for choice in _choices(part))


def _default(field: "dataclasses.Field[Any]") -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return inspect.Parameter.empty
