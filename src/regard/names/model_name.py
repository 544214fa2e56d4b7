"""The name by which people know a model."""

from __future__ import annotations

import re
from typing import Any


def model_name(model: Any) -> str:
    """Returns the name under which transformers loaded a model, or its class.

    Of a path it is the last folder, or the one above a folder ``model``; of the cache of a hub, the repository.

    Example:
        >>> import types
        >>> from regard.names.model_name import model_name
        >>> names = "sentence-transformers/all-MiniLM-L6-v2", "/runs/translator/model", ""
        >>> [model_name(types.SimpleNamespace(name_or_path=name)) for name in names]
        ['all-MiniLM-L6-v2', 'translator', 'SimpleNamespace']
    """
    name = getattr(model, "name_or_path", "")
    parts = [part for part in re.split(r"[/\\]", name) if part not in ("", ".", "..")] if isinstance(name, str) else []
    if "snapshots" in parts[1:-1]:
        parts = parts[parts.index("snapshots") - 1].split("--")
    if parts[1:] and parts[-1] == "model":
        parts.pop()
    return parts[-1] if parts else type(model).__name__
