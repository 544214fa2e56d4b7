"""Brings configurations of earlier versions (``config.yaml``, a model's header, ``--config``) into today's form."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from regard.configuration.options import Configuration, fill
from regard.names.old_names import FORMER_NAMES

MOVED_FIELDS = {"backbone_weights": ("model", "training"), "freeze_backbone": ("model", "training")}
"""Field → the sections of a run's configuration in which it was, and in which it is."""

FORMER_MEANINGS: dict[str, tuple[str, Callable[[Any], bool], Any]] = {
    "final_norm": ("norm", lambda norm: norm == "post", True),
    "backbone_map": ("backbone", bool, "last_stage"),
}
"""New field → the older field that decides whether it has a former meaning, with which values, and that meaning."""


def upgraded(kind: Any, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of a configuration by their names of today.

    Args:
        kind: the configuration, a dataclass.
        fields: what a file has: plain values, by names of this version or of an earlier one. They are not checked.
    """
    known = {field.name: field for field in dataclasses.fields(kind)}
    renamed, has_old = dict[str, Any](), False
    if {"dim", "hidden"} <= fields.keys():  # the sizes of a Transformer and of a recurrent network
        fields = dict(fields)
        other = "hidden" if "transformer" in (fields.get("model"), fields.get("architecture")) else "dim"
        del fields[other]
    for name, value in fields.items():
        if name in known or FORMER_NAMES.get(name) not in known:
            current = {name: value}
        else:
            current, has_old = _translated(FORMER_NAMES[name], value), True
        if current.get("attention") == "transformer":
            current, has_old = {"architecture": "transformer"}, True
        if "tied" in current and isinstance(current["tied"], bool):
            current, has_old = {"tied": "target" if current["tied"] else "none"}, True
        for one, its_value in current.items():
            if renamed.get(one) != "transformer":  # which had cells without a meaning
                renamed[one] = its_value
    return _meaningful(kind, renamed) if has_old else renamed


def with_former_meaning(kind: Any, fields: Mapping[str, Any], typed: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Returns the fields of a model's configuration that was stored, with those that its version did not have yet.

    Args:
        kind: the configuration, a dataclass.
        fields: all that was stored, by the names of today.
        typed: fields that replace stored ones; where they change the one that decides, the new field has its default.
    """
    known = {field.name for field in dataclasses.fields(kind)}
    former = {
        name: meaning
        for name, (decisive, applies, meaning) in FORMER_MEANINGS.items()
        if name in known and applies(value := fields.get(decisive)) and (typed or {}).get(decisive, value) == value
    }
    return {**former, **fields}


def upgraded_sections(sections: dict[str, Any], kinds: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the sections of a run's configuration with the names of today.

    Args:
        sections: what a file has; those of ``kinds`` that it has are mappings of fields.
        kinds: section → its dataclass.
    """
    sections = {name: dict(content) if isinstance(content, dict) else content for name, content in sections.items()}
    if not all(isinstance(sections.get(name, {}), dict) for name in kinds):
        return sections  # whose reader refuses it
    known = {name: {field.name for field in dataclasses.fields(kind)} for name, kind in kinds.items()}
    if "tensorboard" in sections.get("training", ()):  # version 0.1, which had no other logger
        sections["training"]["logger"] = "tensorboard" if sections["training"].pop("tensorboard") else ""
        if sections.get("model", {}).get("score") == "location":  # had 200 keys, whatever the length of the data
            sections["model"] = {"max_source": 200, **sections["model"]}
    for name, (old, new) in MOVED_FIELDS.items():
        if name in sections.get(old, ()) and name not in known[old] and name in known[new]:
            sections.setdefault(new, {})[name] = sections[old].pop(name)
    return {name: upgraded(kinds[name], content) if name in kinds else content for name, content in sections.items()}


def _translated(name: str, value: Any) -> dict[str, Any]:
    if name == "architecture" and value in ("se", "cbam"):
        return {"architecture": "cnn", "gate": value}
    if name == "architecture" and value == "recurrent":
        return {}
    if name == "norm" and isinstance(value, bool):
        return {"norm": "pre"} if value else {"norm": "post", "final_norm": True}
    return {name: value}


def _meaningful(kind: Any, fields: dict[str, Any]) -> dict[str, Any]:
    """Returns the fields without those that have no meaning beside the others, which earlier versions accepted."""
    if not issubclass(kind, Configuration):
        return fields
    probe = object.__new__(kind)
    for field in dataclasses.fields(kind):
        fill(probe, **{field.name: fields.get(field.name, field.default)})
    for field in dataclasses.fields(kind):
        if getattr(probe, field.name) is None:
            fill(probe, **{field.name: probe.usual(field)})
    unknown = fields.keys() - {field.name for field in dataclasses.fields(kind)}
    return {
        field.name: fields[field.name]
        for field in dataclasses.fields(kind)
        if field.name in fields and probe.unmet_need(field) is None
    } | {name: fields[name] for name in unknown}
