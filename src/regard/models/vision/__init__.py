"""Models of images: grids of annotations, patches, classifiers, captioners and a segmentation network.

Each module is imported when it is first used (`regard.names.lazy_names`).
"""

from typing import TYPE_CHECKING

from regard.names.lazy_names import lazy_names

if TYPE_CHECKING:
    from regard.models.vision import (
        backbones,
        captioner,
        configs,
        convolutional_grid,
        grid_encoder,
        image_classifier,
        recurrent_captioner,
        segmenter,
        transformer_captioner,
    )

__all__ = [
    "backbones",
    "captioner",
    "configs",
    "convolutional_grid",
    "grid_encoder",
    "image_classifier",
    "recurrent_captioner",
    "segmenter",
    "transformer_captioner",
]

if not TYPE_CHECKING:  # so that type checkers report names that do not exist
    __getattr__, __dir__ = lazy_names(__name__)
