"""Images: how they are read, resized, augmented and batched, and a generator of scenes that knows where everything is.

Each module is imported when it is first used (`regard.names.lazy_names`).
"""

from typing import TYPE_CHECKING

from regard.names.lazy_names import lazy_names

if TYPE_CHECKING:
    from regard.data.images import (
        augmentation,
        caption_batches,
        image_rows,
        masked_images,
        pictures,
        reading,
        scenes,
        streets,
    )

__all__ = ["augmentation", "caption_batches", "image_rows", "masked_images", "pictures", "reading", "scenes", "streets"]

if not TYPE_CHECKING:  # so that type checkers report names that do not exist
    __getattr__, __dir__ = lazy_names(__name__)
