"""The last hidden layer of a decoder, before the output matrix."""

import torch
from torch import Tensor, nn

from regard.errors import UnknownNameError

READOUTS = ("tanh", "maxout")


class Readout(nn.Module):
    """One hidden layer over several inputs: ``tanh(W [x; y; …] + b)``, or maxout over pairs of such sums.

    With state, embedded token and context as inputs and maxout it is the deep output of Bahdanau et al. 2015, A.2.2
    (their ``t̃ = U s + V E y + C c`` and ``t``; we add a bias). With state and context and tanh it is the attentional
    vector ``h̃`` of Luong et al. 2015, eq. 5.

    Args:
        input_dims: features of each input.
        output_dim: features of the output.
        kind: ``"tanh"`` or ``"maxout"`` (Goodfellow et al. 2013), the maximum of two sums for each feature.
    """

    def __init__(self, input_dims: tuple[int, ...], output_dim: int, kind: str = "tanh"):
        super().__init__()
        if kind not in READOUTS:
            raise UnknownNameError("readout", kind, READOUTS)
        self.kind = kind
        self.linear = nn.Linear(sum(input_dims), output_dim * (2 if kind == "maxout" else 1))

    def forward(self, *inputs: Tensor) -> Tensor:
        """``[..., output_dim]`` from inputs ``[..., input_dim]`` with equal leading axes."""
        features = self.linear(torch.cat(inputs, dim=-1))
        if self.kind == "tanh":
            return features.tanh()
        first, second = features.chunk(2, dim=-1)
        return torch.maximum(first, second)
