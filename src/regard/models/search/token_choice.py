"""The choice of the next token from its probabilities."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from regard.errors import ArgumentError
from regard.names.field_texts import shows_fields
from regard.tracing.transforms import exact_dtype, sent


def own_generator(seed: int, *numbers: int, device: torch.device | str = "cpu") -> torch.Generator:
    """Creates the random number generator of one text from the seed of all texts and the numbers of this one alone."""
    state = np.random.SeedSequence([seed, *numbers]).generate_state(1, np.uint64)
    return torch.Generator(device).manual_seed(int(state[0]))


@shows_fields
@dataclass(frozen=True)
class TokenChoice:
    """Draws tokens from ``softmax(log p / temperature)``, restricted to likely ones."""

    temperature: float = 1.0
    """Below 1, likely tokens become more likely; above 1, less likely; 0: always the most likely token."""
    top_k: int = 0
    """Number of most likely tokens to draw from (Fan et al. 2018, section 5.4); 0: all."""
    top_p: float = 1.0
    """Draw from the smallest set of most likely tokens whose probabilities add up to this, in (0, 1] (nucleus sampling,
    Holtzman et al. 2020, section 3.1); 1: all."""

    def __post_init__(self) -> None:
        if not self.temperature >= 0:
            raise ArgumentError(f"temperature must be at least 0; it is {self.temperature}")
        if self.top_k < 0:
            raise ArgumentError(f"top_k must be 0 or more; it is {self.top_k}")
        if not 0 < self.top_p <= 1:
            raise ArgumentError(f"top_p must be above 0 and at most 1; it is {self.top_p}")

    def draw(self, log_probabilities: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Draws a token for each row, ``int64 [rows]``.

        Args:
            log_probabilities: ``[rows, vocabulary]``; −inf for tokens that are never chosen.
            generator: random number generator on the same device or the CPU; None: PyTorch's default.
        """
        if self.temperature == 0:
            return log_probabilities.argmax(-1)
        device = log_probabilities.device
        drawn_on, dtype = device if generator is None else generator.device, exact_dtype(device)
        numbers = torch.rand(len(log_probabilities), generator=generator, device=drawn_on, dtype=dtype)
        return self.at(log_probabilities, sent(numbers, device))

    def at(self, log_probabilities: Tensor, numbers: Tensor) -> Tensor:
        """Returns the token of each row into whose share of the interval from 0 to 1 a number falls, ``int64 [rows]``.

        Args:
            log_probabilities: ``[rows, vocabulary]``; −inf for tokens that are never chosen.
            numbers: ``[rows]``, at least 0 and below 1.
        """
        scores, index = log_probabilities / self.temperature, None
        if self.top_p < 1:
            scores, index = scores.sort(dim=-1, descending=True, stable=True)
            if 0 < self.top_k < scores.shape[-1]:
                scores, index = scores[:, : self.top_k], index[:, : self.top_k]
            probabilities = scores.softmax(-1)
            # A token stays if those before it do not add up to top_p; the first one always does.
            before = probabilities.cumsum(-1) - probabilities
            probabilities = probabilities.masked_fill(before >= self.top_p, 0.0)
        elif 0 < self.top_k < scores.shape[-1]:
            most_likely = scores.topk(self.top_k, dim=-1)
            probabilities, index = most_likely.values.softmax(-1), most_likely.indices
        else:
            probabilities = scores.softmax(-1)
        edges = probabilities.to(numbers.dtype).cumsum(-1)
        # Below the last edge, so that rounding never reaches a token behind those of some probability.
        places = numbers[:, None] * edges[:, -1:] * (1 - torch.finfo(edges.dtype).eps)
        chosen = torch.searchsorted(edges, places, right=True).clamp(max=edges.shape[-1] - 1)
        return (chosen if index is None else index.gather(1, chosen)).squeeze(1)
