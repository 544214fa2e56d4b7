"""The log-mel front end as a part of a program, which then reads the samples of sounds."""

from fractions import Fraction

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.data.speech.log_mel import FLOOR, LogMel
from regard.exports.program import PADDING, AxisSizes, Program, ProgramInput, generator_of

FEATURES = "features"
"""The input of a program that reads features of sounds; its other input is their lengths."""


def exact_hop(front_end: LogMel) -> Fraction:
    """Returns the samples between two frames."""
    return Fraction(front_end.hop).limit_denominator(1_000_000)


class LogMelInput(nn.Module):
    """`regard.data.speech.log_mel.LogMel` of a padded batch, in operators that PyTorch exports.

    Args:
        front_end: computes the same features outside of a program.
    """

    window: Tensor
    filters: Tensor

    def __init__(self, front_end: LogMel):
        super().__init__()
        self.front_end = front_end
        self.hop = exact_hop(front_end)
        window = np.hanning(front_end.length + 1)[: front_end.length]
        self.register_buffer("window", torch.from_numpy(window), persistent=False)
        self.register_buffer("filters", torch.from_numpy(front_end.filters.T.copy()), persistent=False)

    def forward(self, samples: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Computes the features ``[batch, frames, bands]``, and the number of frames of each row.

        Args:
            samples: ``[batch, samples]``, the samples of whole frames; padding has no effect.
            lengths: ``int64 [batch]``, samples of each sound.
        """
        length = self.front_end.length
        present = torch.arange(samples.shape[1], device=samples.device) < lengths[:, None]
        signal = samples.double()
        emphasized = signal - self.front_end.preemphasis * F.pad(signal[:, :-1], (1, 0))
        padded = F.pad(emphasized.masked_fill(~present, 0.0), (length, 2 * length))
        # Exporters cannot reason about a number of frames that is rounded.
        frames = samples.shape[1] // self.hop.numerator * self.hop.denominator
        frame = torch.arange(frames, device=samples.device)
        starts = ((frame + 0.5) * self.front_end.hop + 0.5).floor().long() - length // 2 + length
        windows = padded[:, starts[:, None] + torch.arange(length, device=samples.device)] * self.window
        spectrum = torch.view_as_real(torch.fft.rfft(windows, self.front_end.size))
        energies = spectrum.square().sum(-1) @ self.filters
        return energies.clamp(min=FLOOR).log().float(), (lengths * self.hop.denominator - 1) // self.hop.numerator + 1


class _OfSamples(nn.Module):
    """A function of samples, made from a front end and a function of features and their lengths."""

    def __init__(self, module: nn.Module, front_end: LogMel):
        super().__init__()
        self.features, self.module = LogMelInput(front_end), module

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return self.module(*self.features(*inputs))


def reads_samples(program: Program, front_end: LogMel) -> Program:
    """Puts a front end before a program, which then reads samples in place of features.

    Args:
        program: its inputs are features ``[batch, frames, bands]`` and their lengths.
        front_end: computes features.
    """

    def reference(samples: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
        rows = [
            torch.from_numpy(front_end(row[:length].numpy()))
            for row, length in zip(samples, lengths.tolist(), strict=True)
        ]
        frames = front_end.frames(samples.shape[1])
        features = torch.stack([F.pad(row, (0, 0, 0, frames - len(row))) for row in rows])
        return program.module(features, torch.tensor([len(row) for row in rows]))

    def example(sizes: AxisSizes) -> tuple[Tensor, ...]:
        whole = -(-sizes["samples"] // block) * block
        samples = 0.1 * torch.randn(sizes["batch"], whole, generator=generator_of(sizes))
        shorter = int(2 * front_end.hop) * torch.arange(sizes["batch"])
        return samples, (sizes["samples"] - sizes.get(PADDING, 0) - shorter).clamp(min=1)

    block = exact_hop(front_end).numerator
    size = max(int(program.sizes["frames"] * front_end.hop), 3 * block)  # PyTorch would fix a size of one block
    inputs = (
        ProgramInput(
            "samples",
            ("batch", "samples"),
            f"samples of sounds, {front_end.rate} a second, with a full scale from -1 to 1; padded to a multiple of "
            f"{block}",
        ),
        ProgramInput("lengths", ("batch",), "samples of each sound, from 1"),
    )
    return Program(
        program.name, program.summary, _OfSamples(program.module, front_end), inputs, program.outputs, example,
        {"batch": program.sizes["batch"], "samples": size}, multiples={"samples": block},
        checked=({"batch": 2, "samples": 2 * size + 37},), reference=reference,
    )  # fmt: skip
