"""Slot attention: queries that compete for the inputs, and are updated by what they win."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard import masks
from regard.attention.execution import check_backend
from regard.attention.routes import planned
from regard.attention.verbs import BackendName, run
from regard.distributed.sequence_parts import refuse_parts
from regard.errors import ShapeError
from regard.nn.fx_leaf import fx_leaf
from regard.normalizers import OverQueries
from regard.shapes.checks import Requested, check_factory, check_floating, size
from regard.shapes.grid import Grid
from regard.summaries import summarized
from regard.tracing.module_calls import Module


@summarized
class Slots(NamedTuple):
    """The output of `SlotAttention`.

    Attributes:
        output: ``[batch, slots, dim]``.
        weights: ``[batch, slots, length]`` of the last iteration, 0 for padding; None unless ``need_weights``.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> filled = nn.SlotAttention(8, slots=3)(torch.randn(2, 5, 8), need_weights=True)
        >>> filled.output.shape, filled.weights.shape
        (torch.Size([2, 3, 8]), torch.Size([2, 3, 5]))
    """

    output: Tensor
    weights: Requested[Tensor]


@fx_leaf
class SlotAttention(Module):
    r"""Slots that compete for inputs, and are updated some times by a mean of those that they win.

    .. math::

        weights = over_queries(q(norm(slots)) k(norm(x))ᵀ / √(dim))
        slots = GRU(weights v(norm(x)), slots)
        slots = slots + MLP(norm(slots))

    Locatello et al. 2020, "Object-centric learning with slot attention", algorithm 1. The first slots are drawn from a
    normal distribution with learned mean and deviation, which all slots share, so that they are exchangeable.

    Args:
        dim: features of a slot.
        slots: number of slots.
        input_dim: features of an input; None: ``dim``.
        iterations: number of updates; default 3.
        hidden: units of the hidden layer of the MLP; None: twice ``dim``.
        backend: ``auto`` or ``reference``: a weight depends on all slots.
        device, dtype: device and dtype of the parameters.

    Raises:
        ArgumentError, KindError, UnknownNameError: an argument is invalid; the message names it.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> attention = nn.SlotAttention(8, slots=3)
        >>> x = torch.randn(2, 5, 8)
        >>> filled = attention(x, torch.tensor([5, 2]), need_weights=True)
        >>> filled.weights.sum(-1).detach().round(decimals=3)
        tensor([[1., 1., 1.],
                [1., 1., 1.]])
        >>> filled.weights[1, :, 2:].any().item()  # padding
        False
        >>> first = torch.randn(2, 3, 8)
        >>> order = torch.tensor([2, 0, 1])  # slots are exchangeable
        >>> output = attention(x, slots=first).output
        >>> torch.allclose(output[:, order], attention(x, slots=first[:, order]).output, atol=1e-5)
        True
    """

    def __init__(
        self,
        dim: int,
        slots: int = 7,
        *,
        input_dim: int | None = None,
        iterations: int = 3,
        hidden: int | None = None,
        backend: BackendName = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        self.dim, self.slots, self.iterations = size("dim", dim), size("slots", slots), size("iterations", iterations)
        self.input_dim = dim if input_dim is None else size("input_dim", input_dim)
        units = 2 * dim if hidden is None else size("hidden", hidden)
        check_factory(device, dtype)
        self.backend: BackendName = check_backend(backend)
        self.normalizer = OverQueries()
        factory = {"device": device, "dtype": dtype}
        self.mean = nn.Parameter(torch.empty(dim, **factory))
        self.log_deviation = nn.Parameter(torch.empty(dim, **factory))
        for parameter in (self.mean, self.log_deviation):
            nn.init.xavier_uniform_(parameter.data.view(1, -1))
        self.norm_input = nn.LayerNorm(self.input_dim, **factory)
        self.norm_slots, self.norm_mlp = nn.LayerNorm(dim, **factory), nn.LayerNorm(dim, **factory)
        self.query = nn.Linear(dim, dim, bias=False, **factory)
        self.key = nn.Linear(self.input_dim, dim, bias=False, **factory)
        self.value = nn.Linear(self.input_dim, dim, bias=False, **factory)
        self.update = nn.GRUCell(dim, dim, **factory)
        self.mlp = nn.Sequential(nn.Linear(dim, units, **factory), nn.ReLU(), nn.Linear(units, dim, **factory))

    def forward(
        self, x: Tensor, lengths: Tensor | None = None, *, slots: Tensor | None = None, need_weights: bool = False
    ) -> Slots:
        """Fills the slots.

        Args:
            x: the inputs, ``[batch, length, input_dim]``; padding has no effect.
            lengths: integers ``[batch]``, inputs of each sequence; None: all.
            slots: the first slots, ``[batch, slots, dim]``; None: they are drawn.
            need_weights: whether to return the weights of the last iteration; the output is the same, bit for bit.

        Raises:
            ShapeError, KindError, ArgumentError: bad input; the message names the argument.
        """
        refuse_parts(type(self).__name__)
        check_floating("x", x)
        if x.dim() != 3 or x.shape[-1] != self.input_dim:
            raise ShapeError(f"x must be [batch, length, {self.input_dim}]; it has shape {list(x.shape)}")
        batch, length, _ = x.shape
        if slots is None:
            noise = torch.randn(batch, self.slots, self.dim, device=x.device, dtype=self.mean.dtype)
            filled = self.mean + self.log_deviation.exp() * noise
        else:
            check_floating("slots", slots)
            if slots.dim() != 3 or slots.shape[0] != batch or slots.shape[2] != self.dim:
                raise ShapeError(f"slots must be [{batch}, slots, {self.dim}]; it has shape {list(slots.shape)}")
            filled = slots
        mask = None
        if lengths is not None:
            mask = masks.lengths(lengths)
            x = x.masked_fill(~mask.dense(Grid.whole(batch, 1, 1, length, x.device)).view(batch, length, 1), 0.0)
        normed = self.norm_input(x)
        key, value = self.key(normed)[:, None], self.value(normed)[:, None]
        weights = None
        for number in range(self.iterations):
            query = self.query(self.norm_slots(filled))[:, None]
            problem = planned(query, key, value, normalizer=self.normalizer, mask=mask, backend=self.backend)
            is_last = number == self.iterations - 1
            output, weights = run(problem, self.backend, need_weights=need_weights and is_last, layer=self)
            filled = self.update(output.flatten(0, 2), filled.flatten(0, 1)).view_as(filled)
            filled = filled + self.mlp(self.norm_mlp(filled))
        return Slots(filled, None if weights is None else weights[:, 0])

    def extra_repr(self) -> str:
        return f"dim={self.dim}, slots={self.slots}, iterations={self.iterations}"
