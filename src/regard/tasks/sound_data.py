"""The sounds of a run: listed, split and turned into features according to its configuration."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from regard.data.speech.utterances import FeatureTable, Utterance, feature_table, open_utterances
from regard.errors import DataError
from regard.tasks.run_data import held_out_size, located, located_files, warn_of_training_data
from regard.tasks.run_files import bundled_path
from regard.tasks.sound_options import SoundDataConfig
from regard.training.run_folder import RunFolder

log = logging.getLogger("regard")


@dataclass(frozen=True, slots=True)
class SoundPart:
    """A part of the sounds of a run.

    Attributes:
        utterances: what is listed.
        features: their features, by the same numbers.
    """

    utterances: list[Utterance]
    features: FeatureTable

    def select(self, kept: Sequence[int]) -> "SoundPart":
        """These utterances alone."""
        features = FeatureTable.of([self.features[number] for number in kept])
        return SoundPart([self.utterances[number] for number in kept], features)


def open_part(config: SoundDataConfig, folder: RunFolder, part: str, *, lowercase: bool = False) -> list[Utterance]:
    """The utterances of one part of a run's data.

    Args:
        config: the configuration of the data.
        folder: the run folder, which contains the bundled corpus.
        part: ``"train"``, ``"validation"`` or ``"test"``.
        lowercase: whether to turn the texts into lower case.
    """
    if config.bundled and getattr(config, part) is None:
        return open_utterances(bundled_path(folder, part), "audio", "text", lowercase=lowercase)
    source = located(folder, getattr(config, part))
    assert source is not None
    return open_utterances(source, config.sound_column, config.text_column, lowercase=lowercase)


def open_training(
    config: SoundDataConfig, folder: RunFolder, *, lowercase: bool = False
) -> tuple[list[Utterance], list[Utterance]]:
    """The training and validation utterances of a run; the test utterances are listed too, to find mistakes in time.

    Without validation data they are random training utterances.
    """
    warn_of_training_data(config)
    train = open_part(config, folder, "train", lowercase=lowercase)
    if config.test is not None:
        for one in open_part(config, folder, "test", lowercase=lowercase):
            if not one.path.is_file():
                raise DataError(f"{one.name}: no such file; check the path")
    if config.validation or config.bundled:
        return train, open_part(config, folder, "validation", lowercase=lowercase)
    size = held_out_size(len(train), config.held_out, f"{config.train} has {len(train)} sounds", "sounds")
    # Random ones, since the last ones of a sorted table would all be alike.
    order = np.random.default_rng(0).permutation(len(train))
    chosen = set(order[:size].tolist())
    return (
        [one for number, one in enumerate(train) if number not in chosen],
        [train[number] for number in sorted(chosen)],
    )


def table_files(folder: RunFolder, config: SoundDataConfig) -> dict[str, tuple[Path, ...]]:
    """The tables of the training and validation data, or the sounds of a folder of classes.

    The test data decide nothing about a model, and may be others with --resume.
    """
    found = located_files(folder, {part: getattr(config, part) for part in ("train", "validation")})
    return {
        part: tuple(
            file
            for path in paths
            for file in ([one.path for one in open_utterances(path)] if path.is_dir() else [path])
        )
        for part, paths in found.items()
    }


def sound_part(config: SoundDataConfig, utterances: Sequence[Utterance], *, overlong: bool) -> SoundPart:
    """Utterances with their features.

    Args:
        config: the configuration of the data.
        utterances: at least one.
        overlong: whether longer sounds than ``max_seconds`` are kept. Otherwise the logger ``regard`` warns of them.

    Raises:
        DataError: a sound cannot be used, or none is left.
    """
    features = feature_table(utterances, config.front_end)
    part = SoundPart(list(utterances), features)
    if overlong:
        return part
    kept = np.flatnonzero(features.lengths * config.hop_seconds <= config.max_seconds)
    if not len(kept):
        raise DataError(f"none of {len(utterances)} training sounds lasts at most {config.max_seconds:g} s; raise it")
    if len(kept) < len(utterances):
        left = len(utterances) - len(kept)
        log.warning("left out %d of %d sounds of more than %g s", left, len(utterances), config.max_seconds)
        return part.select(kept.tolist())
    return part


def check_width(found: FeatureTable, expected: int, name: str) -> None:
    """Raise DataError if features have another width than those of the training."""
    if found.width != expected:
        raise DataError(
            f"{name}: has {found.width} features a frame, and the training data have {expected}; "
            "all must have equally many"
        )


def feature_batches(features: FeatureTable) -> Iterator[tuple[Tensor, Tensor]]:
    """Features of a batch of one utterance, and its length, for each utterance."""
    for number in range(len(features)):
        found = torch.from_numpy(features[number].copy())[None]
        yield found, torch.tensor([found.shape[1]])
