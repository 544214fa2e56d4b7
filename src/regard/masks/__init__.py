"""Who may see whom. ``True`` means "may attend"; masks combine with ``&``, ``|`` and ``~``."""

from regard.masks.appended import AppendedMask
from regard.masks.content import Documents, Lengths, documents, lengths
from regard.masks.given import Keep, Where, as_mask, ignore, keep, where
from regard.masks.mask import And, Mask, Not, Or, Visibility
from regard.masks.positional import Band, Dilated, Prefix, causal, dilated, prefix, window
from regard.masks.spans import Spans
from regard.masks.visible_keys import visible_keys

__all__ = [
    "And",
    "AppendedMask",
    "Band",
    "Dilated",
    "Documents",
    "Keep",
    "Lengths",
    "Mask",
    "Not",
    "Or",
    "Prefix",
    "Spans",
    "Visibility",
    "Where",
    "as_mask",
    "causal",
    "dilated",
    "documents",
    "ignore",
    "keep",
    "lengths",
    "prefix",
    "visible_keys",
    "where",
    "window",
]
