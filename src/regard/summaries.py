"""One-line summaries of tensors for the `repr` of records: shape, dtype and range instead of elements."""

from collections.abc import Iterable
from dataclasses import fields as fields_of
from html import escape
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils._pytree import _register_namedtuple

from regard.tracing.transforms import has_data, is_dtensor

Record = TypeVar("Record", bound=type)

RANGE_LIMIT = 2**24
"""The range of a tensor with more elements is not computed."""

TABLE_STYLE = (
    "border-collapse:collapse;width:auto;margin:8px 0;font:13px system-ui,sans-serif;font-variant-numeric:tabular-nums"
)
CAPTION_STYLE = "text-align:left;caption-side:top;padding:4px 0"
"""The styles of tables in notebooks and of their captions, whatever the host's are."""


def tensor_summary(value: Tensor) -> str:
    """Returns shape, dtype and range, e.g. ``[2, 3, 5] float32, 0.25 to 1``.

    The device is named unless it is the CPU. Infinite and NaN elements are counted; the range is that of the others.
    The range is left out if the elements cannot be read (meta, traced, transformed, on several processes, of which the
    placements are named instead) or are more than `RANGE_LIMIT`.
    """
    kind = f"{list(value.shape)} {str(value.dtype).removeprefix('torch.')}"
    parts = [kind if value.device.type == "cpu" else f"{kind} on {value.device}"]
    if is_dtensor(value):
        parts.append(", ".join(map(str, value.placements)))  # pyright: ignore[reportAttributeAccessIssue]
    elif _has_range(value):
        parts += _range(value.detach())
    return ", ".join(parts)


def value_summary(value: object) -> str:
    """Returns the `tensor_summary` of a tensor, or anything else in one line of at most 80 characters.

    That is a text as it is, and the `repr` of a value.
    """
    if isinstance(value, Tensor):
        return tensor_summary(value)
    text = " ".join((value if isinstance(value, str) else repr(value)).split())
    return text if len(text) <= 80 else text[:79] + "…"


def record_summary(name: str, fields: Iterable[tuple[str, object]]) -> str:
    """Returns the fields of a record, one a line: ``Observed(\\n  output: [5, 3] float32, -1 to 2\\n  …)``."""
    lines = "".join(f"\n  {field}: {_entry(value)}" for field, value in fields)
    return f"{name}({lines}\n)" if lines else f"{name}()"


def summarized(kind: Record) -> Record:
    """Decorates a dataclass or a named tuple: its `repr` is the `record_summary` of the fields that are not None, and
    ``torch.export`` programs that return a named tuple can be saved."""

    def summary(record: Any) -> str:
        names = getattr(record, "_fields", None) or [field.name for field in fields_of(record) if field.repr]
        shown = ((name, getattr(record, name)) for name in names)
        return record_summary(type(record).__name__, [one for one in shown if one[1] is not None])

    if issubclass(kind, tuple):
        _register_namedtuple(kind, serialized_type_name=f"{kind.__module__}.{kind.__qualname__}")
    kind.__repr__ = summary  # type: ignore[method-assign]
    return kind


def record_html(name: str, fields: Iterable[tuple[str, object]]) -> str:
    """Returns the fields of a record as an HTML table for notebooks: self-contained, with all text escaped."""
    style = "text-align:left;padding:3px 7px"
    rows = "".join(
        f"<tr><th style='{style}'>{escape(field)}</th><td style='{style}'>{escape(value_summary(value))}</td></tr>"
        for field, value in fields
    )
    caption = f"<caption style='{CAPTION_STYLE}'>{escape(name)}</caption>"
    return f"<table style='{TABLE_STYLE}'>{caption}<tbody>{rows}</tbody></table>"


def parameter_summary(value: Any) -> str:
    """Returns a module's parameter as text: a single number by its value, a larger tensor by its summary."""
    if isinstance(value, Tensor) and not (value.numel() == 1 and has_data(value)):
        return tensor_summary(value)
    return f"{value.item() if isinstance(value, Tensor) else value:g}"


def _entry(value: object) -> str:
    """Returns a record within a record with a line for each of its fields, and anything else in one line."""
    text = "" if isinstance(value, (Tensor, str, torch.nn.Module)) else repr(value)
    return text.replace("\n", "\n  ") if text.endswith("\n)") else value_summary(value)


def _has_range(value: Tensor) -> bool:
    strided = value.layout is torch.strided and not value.is_nested and not value.is_quantized
    return strided and not value.is_complex() and 0 < value.numel() <= RANGE_LIMIT and has_data(value)


def _range(value: Tensor) -> list[str]:
    if value.dtype == torch.bool:
        return [f"{value.sum().item()} of {value.numel()} True"]
    if not value.is_floating_point():
        low, high = value.min().item(), value.max().item()
        return [str(low) if low == high else f"{low} to {high}"]
    finite = value[value.isfinite()].double()
    low, high = (f"{number:.4g}" for number in (finite.min().item(), finite.max().item())) if len(finite) else ("", "")
    parts = [] if not low else [low if low == high else f"{low} to {high}"]
    for name, mask in (("-inf", value == -torch.inf), ("inf", value == torch.inf), ("NaN", value.isnan())):
        if count := mask.sum().item():
            parts.append(f"{count} {name}")
    return parts
