"""The input of a model of sounds: derivatives of features, normalization, and augmentation."""

from collections.abc import Iterable

import torch
from torch import Tensor

from regard.distributed.sequence_parts import refuse_parts
from regard.errors import ArgumentError, UnknownNameError
from regard.tracing.module_calls import Module

NORMALIZATIONS = ("utterance", "corpus", "none")

_LEAST_DEVIATION = 1e-3
"""A feature that varies less is divided by this: the features of silence are not blown up."""


class FeatureInput(Module):
    """Normalized features with their derivatives in time, and masks over time and features while training.

    ``order`` derivatives of the ``width`` features of a frame are added: 0, 1 (deltas) or 2 (accelerations too).
    ``normalization`` is ``utterance`` (mean 0 and variance 1 of each feature over each utterance), ``corpus`` (over the
    training data, see `fit`; ``mean`` and ``deviation`` are ``[order + 1, width]``, 0 and 1 before) or ``none``.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(
        self, width: int, order: int = 0, normalization: str = "utterance", masks: "SpecAugment | None" = None
    ):
        super().__init__()
        if normalization not in NORMALIZATIONS:
            raise UnknownNameError("normalization", normalization, NORMALIZATIONS)
        if order not in (0, 1, 2):
            raise ArgumentError(f"order must be 0, 1 or 2; it is {order}")
        self.width, self.order, self.normalization, self.masks = width, order, normalization, masks
        self.register_buffer("mean", torch.zeros(order + 1, width))
        self.register_buffer("deviation", torch.ones(order + 1, width))

    def forward(self, features: Tensor, lengths: Tensor) -> Tensor:
        """Returns ``[batch, order + 1, frames, width]`` for features ``[batch, frames, width]``, 0 after the end of
        each one."""
        refuse_parts("an encoder of sounds")
        channels = self.derived(features, lengths)
        present = present_frames(lengths, features.shape[1])[:, None, :, None]
        if self.normalization == "utterance":
            channels = normalized(channels, lengths)
        elif self.normalization == "corpus":
            channels = (channels - self.mean[:, None]) / self.deviation[:, None]
        channels = channels.masked_fill(~present, 0.0)
        if self.training and self.masks is not None:
            channels = self.masks(channels, lengths)
        return channels

    def derived(self, features: Tensor, lengths: Tensor) -> Tensor:
        """Returns the features and their derivatives, ``[batch, order + 1, frames, width]``."""
        channels = [features.masked_fill(~present_frames(lengths, features.shape[1])[..., None], 0.0)]
        for _ in range(self.order):
            channels.append(deltas(channels[-1], lengths))
        return torch.stack(channels, dim=1)

    @torch.no_grad()
    def fit(self, batches: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Sets mean and deviation, in float64, to those of pairs of features ``[batch, frames, width]`` and lengths
        ``[batch]``."""
        count, total, square = 0, torch.zeros(()), torch.zeros(())
        for features, lengths in batches:
            channels = self.derived(features.double(), lengths)
            channels = channels.masked_fill(~present_frames(lengths, features.shape[1])[:, None, :, None], 0.0)
            count += int(lengths.sum())
            total, square = total + channels.sum((0, 2)), square + channels.square().sum((0, 2))
        if not count:
            raise ArgumentError("there are no frames to compute a mean of")
        mean = total / count
        deviation = (square / count - mean.square()).clamp(min=0).sqrt().clamp(min=_LEAST_DEVIATION)
        self.mean.copy_(mean)
        self.deviation.copy_(deviation)


def present_frames(lengths: Tensor, frames: int) -> Tensor:
    """Returns bool ``[batch, frames]``: True before the end of each utterance."""
    return torch.arange(frames, device=lengths.device) < lengths[:, None]


def deltas(features: Tensor, lengths: Tensor) -> Tensor:
    """Computes the slope in time of each feature ``[batch, frames, width]``,
    ``d_t = Σ_{n = 1, 2} n (x_{t+n} − x_{t−n}) / (2 Σ n²)``, of the least-squares line over 5 frames (Furui 1986, eq.
    1). The ends of an utterance are repeated beyond it; the slope there is 0."""
    frames = features.shape[1]
    if not frames:
        return features
    frame = torch.arange(frames, device=features.device)
    last = (lengths - 1).clamp(min=0)[:, None]
    rows = torch.arange(features.shape[0], device=features.device)[:, None]
    slope = torch.zeros_like(features)
    for n in (1, 2):
        after = features[rows, torch.minimum(frame + n, last)]
        before = features[rows, torch.minimum((frame - n).clamp(min=0), last)]
        slope = slope + n * (after - before)
    return (slope / 10).masked_fill(~present_frames(lengths, frames)[..., None], 0.0)


def normalized(channels: Tensor, lengths: Tensor) -> Tensor:
    """Normalizes each feature of ``[batch, channels, frames, width]`` to mean 0 and variance 1 over the frames of its
    utterance; 0 after its end."""
    present = present_frames(lengths, channels.shape[2])[:, None, :, None]
    count = lengths.clamp(min=1)[:, None, None, None]
    mean = channels.sum(2, keepdim=True) / count
    centred = (channels - mean).masked_fill(~present, 0.0)
    deviation = (centred.square().sum(2, keepdim=True) / count).sqrt().clamp(min=_LEAST_DEVIATION)
    return centred / deviation


class SpecAugment(Module):
    """Masks blocks of time and blocks of features with 0, the mean of normalized features.

    Park et al. 2019, "SpecAugment", section 2, without time warping. Each utterance has its own masks: ``time_masks``
    of time, from frame t₀, t frames with t uniform from 0 to T, ``longest``, at most ``share`` of the utterance (the
    paper's p); ``feature_masks`` of features likewise from 0 to F, ``widest``.
    """

    def __init__(
        self, time_masks: int = 2, longest: int = 40, feature_masks: int = 2, widest: int = 8, share: float = 0.2
    ):
        super().__init__()
        for name, value in (("time_masks", time_masks), ("longest", longest), ("feature_masks", feature_masks),
                            ("widest", widest)):  # fmt: skip
            if value < 0:
                raise ArgumentError(f"{name} must be at least 0; it is {value}")
        if not 0 <= share <= 1:
            raise ArgumentError(f"share must be in [0, 1]; it is {share}")
        self.time_masks, self.longest, self.share = time_masks, longest, share
        self.feature_masks, self.widest = feature_masks, widest

    def forward(self, channels: Tensor, lengths: Tensor) -> Tensor:
        """Masks random blocks of ``channels [batch, channels, frames, width]``, by PyTorch's random numbers."""
        frames, width = channels.shape[2:]
        longest = (self.share * lengths).long().clamp(max=self.longest)
        hidden = _blocks(self.time_masks, longest, lengths, frames)[:, :, None]
        widest = torch.full_like(lengths, min(self.widest, width))
        hidden = hidden | _blocks(self.feature_masks, widest, torch.full_like(lengths, width), width)[:, None]
        return channels.masked_fill(hidden[:, None], 0.0)


def _blocks(number: int, longest: Tensor, lengths: Tensor, size: int) -> Tensor:
    """Returns bool ``[batch, size]``: random blocks of 0 to ``longest`` within the first ``lengths`` elements."""
    frame = torch.arange(size, device=lengths.device)
    masked = torch.zeros(len(lengths), size, dtype=torch.bool, device=lengths.device)
    for _ in range(number):
        length = (torch.rand(len(lengths), device=lengths.device) * (longest + 1)).long()
        start = (torch.rand(len(lengths), device=lengths.device) * (lengths - length + 1)).long()
        masked |= (frame >= start[:, None]) & (frame < (start + length)[:, None])
    return masked
