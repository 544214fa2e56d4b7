"""What tasks predict: a label, a text, a mask, the next token."""

from typing import TYPE_CHECKING

from regard.names.lazy_names import lazy_names

if TYPE_CHECKING:
    from regard.tasks.outputs import label, mask, next_token, text

__all__ = ["label", "mask", "next_token", "text"]

if not TYPE_CHECKING:  # so that type checkers report names that do not exist
    __getattr__, __dir__ = lazy_names(__name__)
