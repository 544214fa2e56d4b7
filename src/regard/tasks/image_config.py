"""What the configurations of the tasks on images share: their data, the network that reads an image, augmentation."""

from typing import Any

from regard.errors import ArgumentError
from regard.training.sections import check_at_least, check_between, check_probabilities

MOST_BUNDLED = 10_000_000
"""Largest number of scenes that are generated."""

MOST_SIDE, MOST_FEATURES, MOST_LAYERS, MOST_HEADS, MOST_BATCH = 4096, 65_536, 100, 1024, 1_000_000
"""Beyond these a model or a batch would not fit into any memory."""

SCENE_SIDE, PHOTO_SIDE = 64, 128
"""Pixels of a side of images when no size is given: of generated scenes, and of others."""


def check_image_data(data: Any, scenes: int) -> None:
    """Check the fields that the data of both tasks have, and fill in what was not given.

    Args:
        data: ``train``, ``validation``, ``test``, ``bundled``, ``held_out`` and ``image_size``.
        scenes: training scenes of the bundled corpus when no number is given.
    """
    if data.train == "bundled":
        object.__setattr__(data, "train", None)
        object.__setattr__(data, "bundled", data.bundled or scenes)
    check_between(data, 0, MOST_BUNDLED, "bundled")
    if data.train is not None and data.bundled:
        raise ArgumentError("--train and --bundled exclude each other; give one of them")
    if data.train is None and not data.bundled:
        raise ArgumentError(
            f"there is nothing to train on; give --train, or --train bundled for {scenes:,} generated scenes "
            "(--bundled says how many)"
        )
    for name in ("train", "validation", "test"):
        if getattr(data, name) == "":
            raise ArgumentError(f"{name} is empty; give a name, or leave it out")
    check_at_least(data, 1, "held_out")
    check_between(data, 0, MOST_SIDE, "image_size")
    if not data.image_size:
        object.__setattr__(data, "image_size", SCENE_SIDE if data.bundled else PHOTO_SIDE)


def check_network(model: Any) -> None:
    """Check the fields of the network that reads an image: ``grid``, ``stages``, ``blocks``, ``patch``, backbone."""
    check_between(model, 1, MOST_FEATURES, "grid")
    check_between(model, 1, 8, "stages")
    check_between(model, 0, MOST_LAYERS, "blocks")
    check_between(model, 0, MOST_SIDE, "patch")
    if not model.backbone:
        for name in ("backbone_weights", "freeze_backbone"):
            if getattr(model, name):
                raise ArgumentError(f"{name} needs a backbone")


def check_augmentation(training: Any) -> None:
    """Check ``batch_size``, ``label_smoothing``, ``zoom`` and ``jitter``."""
    check_between(training, 1, MOST_BATCH, "batch_size")
    check_probabilities(training, "label_smoothing", "zoom", "jitter")


def patch_size(model: Any, image_size: int) -> int:
    """The side of a patch: that of the configuration, or so large that a grid of three stages has 8 × 8 cells."""
    return model.patch or max(1, image_size // 32)
