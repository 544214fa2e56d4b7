"""What tasks read: texts, images, sounds."""

from typing import TYPE_CHECKING

from regard.names.lazy_names import lazy_names

if TYPE_CHECKING:
    from regard.tasks.inputs import image, input, sound, text

__all__ = ["image", "input", "sound", "text"]

if not TYPE_CHECKING:  # so that type checkers report names that do not exist
    __getattr__, __dir__ = lazy_names(__name__)
