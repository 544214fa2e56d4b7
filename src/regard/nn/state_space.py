"""The state-space dual layer of Mamba-2: attention by products that decay, between a convolution and a gate."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention.verbs import BackendName
from regard.errors import ArgumentError
from regard.nn.fx_leaf import fx_leaf
from regard.nn.recurrent_attention import RecurrenceInputs, RecurrentAttention
from regard.nn.short_convolution import ShortConvolution
from regard.scores import Dot, Score
from regard.shapes.axes import Float
from regard.shapes.checks import positive_number
from regard.shapes.grid import spread_heads, upcast


class GroupedRMSNorm(nn.Module):
    """Divides each of ``groups`` groups of features by the root of its mean square, and multiplies every feature by a
    weight."""

    def __init__(self, features: int, groups: int, eps: float, **factory: Any):
        super().__init__()
        self.groups, self.eps = groups, eps
        self.weight = nn.Parameter(torch.ones(features, **factory))

    def forward(self, x: Float[Tensor, "*shape features"]) -> Float[Tensor, "*shape features"]:
        groups = x.unflatten(-1, (self.groups, -1))
        return F.rms_norm(groups, groups.shape[-1:], eps=self.eps).flatten(-2) * self.weight


@fx_leaf
class Mamba2(RecurrentAttention):
    r"""State-space duality: products of B and C that decay are the weights of x, a token's convolved features.

    .. math::

        w_{ij} &= C_i \cdot B_j \, \Delta_j \exp\!\Big(\sum_{t=j+1}^{i} \Delta_t A\Big), \qquad
        A = -e^{a}, \quad \Delta_t = softplus(w_\Delta \cdot u_t + b) \\
        y &= W_O \, norm\big( (W x + D \, x) \odot swish(W_Z u) \big)

    Dao and Gu 2024, "Transformers are SSMs", the matrix of a scalar state space, and section 7, for tokens u.
    Here C are queries, B keys and x values: N, the size of the state, is ``head_dim``, P ``value_dim``, and the
    groups that share B and C ``key_heads``. The weights that are returned are w; D x, what a token adds of itself, is
    not in them. The norm is that of a group's features, behind the gate.

    A state space sees no later token: masks are those of `DeltaNet`.

    Mixers of Mamba-2 in transformers load by ``load_state_dict`` (Mamba2, Bamba, Zamba2, Granite hybrid, Nemotron-H):
    ``key_heads`` is their ``n_groups``, ``head_dim`` their ``state_size`` and ``value_dim`` their ``head_dim``.

    Args:
        embed_dim: features of a token.
        num_heads: heads of x and of the state.
        key_heads: heads of B and C, a divisor of ``num_heads``; default 1.
        head_dim: features of B and C; default 128.
        value_dim: features of a head of x; None: ``2 * embed_dim / num_heads``.
        kernel_size: tokens that the convolution reads; default 4.
        step_limits: the least and the largest Δ; default: no limits.
        eps: of the normalization; default 1e-5.
        bias: whether the projections have biases; default False. The convolution and Δ have them in any case.
        backend, device, dtype: as for `LinearAttention`.

    Raises:
        ArgumentError, KindError, UnknownNameError: an argument is invalid; the message names it.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> mixer = nn.Mamba2(16, 4, head_dim=6)
        >>> attended = mixer(torch.randn(3, 5, 16), need_weights=True)
        >>> attended.output.shape, attended.weights.shape
        (torch.Size([3, 5, 16]), torch.Size([3, 4, 5, 5]))
    """

    is_causal = True

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        key_heads: int = 1,
        head_dim: int = 128,
        value_dim: int | None = None,
        kernel_size: int = 4,
        step_limits: tuple[float, float] = (0.0, math.inf),
        eps: float = 1e-5,
        bias: bool = False,
        backend: BackendName = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ):
        # These are read by `add_parts`, within the constructor of the base.
        self.kernel_size, self.eps, self.step_limits = kernel_size, positive_number("eps", eps), step_limits
        is_pair = isinstance(step_limits, (tuple, list)) and len(step_limits) == 2
        if not is_pair or not 0 <= step_limits[0] < step_limits[1]:
            raise ArgumentError(f"step_limits must be two numbers from 0 on that ascend; they are {step_limits}")
        if value_dim is None and isinstance(num_heads, int) and isinstance(embed_dim, int) and num_heads > 0:
            if 2 * embed_dim % num_heads:
                raise ArgumentError(
                    f"num_heads must divide 2 * embed_dim unless value_dim is given; embed_dim is {embed_dim} and "
                    f"num_heads is {num_heads}"
                )
            value_dim = 2 * embed_dim // num_heads
        super().__init__(
            embed_dim, num_heads, key_heads=key_heads, head_dim=head_dim, value_dim=value_dim, bias=bias,
            backend=backend, device=device, dtype=dtype,
        )  # fmt: skip

    def add_parts(self, **factory: Any) -> Score:
        features = self.num_heads * self.value_dim
        self.conv = ShortConvolution(sum(self.widths), self.kernel_size, bias=True, **factory)
        self.decay_proj = nn.Linear(self.embed_dim, self.num_heads, **factory)
        self.add_rates(self.decay_proj.bias, torch.arange(1, self.num_heads + 1, **factory).log())
        self.gate_proj = self.projection(self.embed_dim, features)
        self.skip = nn.Parameter(torch.ones(self.num_heads, **factory))
        self.norm = GroupedRMSNorm(features, self.key_heads, self.eps, **factory)
        return Dot()

    def tokens(self, x: Tensor, projected: Tensor, first: int) -> RecurrenceInputs:
        query, key, value = self.heads(projected)
        steps = self.steps(x).clamp(*self.step_limits)
        key = (spread_heads(upcast(key), self.num_heads) * steps).to(key.dtype)
        return RecurrenceInputs(query, key, value, self.log_decay(steps))

    def combined(self, x: Tensor, output: Tensor, value: Tensor) -> Tensor:
        assert self.gate_proj is not None
        assert self.norm is not None
        mixed = (output + self.skip[:, None, None] * value).transpose(1, 2).flatten(2)
        return self.norm(mixed * self.activation(self.gate_proj(x)))
