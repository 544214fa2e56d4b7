"""Short causal convolutions of projected tokens, within documents and past padding."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.shapes.axes import Float
from regard.shapes.checks import size
from regard.shapes.grid import upcast


class ShortConvolution(nn.Module):
    r"""Convolves each channel over a token and the ones before it, followed by swish.

    .. math:: y_{tc} = swish\Big(b_c + \sum_{j=0}^{w-1} W_{c, w-1-j} \, x_{t-j, c}\Big)

    Gu and Dao 2023, "Mamba", section 3.4, with w = ``width``. A document begins with zeros before it, as a sequence
    does. Half precision is summed in float32.
    """

    def __init__(
        self,
        channels: int,
        width: int,
        *,
        bias: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        self.width = size("kernel_size", width)
        bound = 1 / math.sqrt(width)  # as torch.nn.Conv1d has it
        weight, offset = (
            torch.empty(*shape, device=device, dtype=dtype) for shape in ((channels, 1, width), (channels,))
        )
        self.weight = nn.Parameter(weight.uniform_(-bound, bound))
        self.bias = nn.Parameter(offset.uniform_(-bound, bound)) if bias else None

    def forward(
        self,
        x: Float[Tensor, "batch length channels"],
        earlier: Float[Tensor, "batch earlier channels"] | None = None,
        documents: Tensor | None = None,
    ) -> Float[Tensor, "batch length channels"]:
        """Returns the convolved tokens; ``earlier`` are as many before them as `continued` returns (None: zeros), and
        ``documents [batch or 1, length]`` the document of each, whose tokens follow one another (None: one)."""
        rows, taps, length = upcast(self._after(x, earlier)), upcast(self.weight)[:, 0].unbind(-1), x.shape[1]
        total = None if self.bias is None else upcast(self.bias)
        for lag, tap in enumerate(reversed(taps)):
            read = rows[:, self.width - 1 - lag : self.width - 1 - lag + length]
            if lag and documents is not None:
                is_same = documents == F.pad(documents, (lag, 0), value=-1)[:, :length]
                read = torch.where(is_same[..., None], read, 0.0)
            total = read * tap if total is None else torch.addcmul(total, read, tap)
        assert total is not None
        return F.silu(total).to(x.dtype)

    def continued(
        self, x: Float[Tensor, "batch length channels"], earlier: Float[Tensor, "batch earlier channels"] | None
    ) -> Float[Tensor, "batch earlier channels"]:
        """Returns the last ``width − 1`` tokens, which the next ones read too."""
        rows = self._after(x, earlier)
        return rows[:, rows.shape[1] - self.width + 1 :].clone()

    def _after(self, x: Tensor, earlier: Tensor | None) -> Tensor:
        return F.pad(x, (0, 0, self.width - 1, 0)) if earlier is None else torch.cat((earlier, x), dim=1)

    def extra_repr(self) -> str:
        return f"channels={self.weight.shape[0]}, width={self.width}, bias={self.bias is not None}"
