"""Self-attention by the delta rule, whose keys replace what they recall: on a state that stays, or that decays."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention.verbs import BackendName
from regard.nn.fx_leaf import fx_leaf
from regard.nn.recurrent_attention import RecurrenceInputs, RecurrentAttention
from regard.nn.short_convolution import ShortConvolution
from regard.scores import ScaledDot, Score
from regard.shapes.checks import positive_number
from regard.shapes.grid import upcast

UNIT_EPS = 1e-6
"""What is added to the square of a length, as in the released models."""


@fx_leaf
class DeltaNet(RecurrentAttention):
    r"""The delta rule: each token replaces what its key recalls by its value.

    .. math::

        S_t &= S_{t-1} + \beta_t \, k_t (v_t - S_{t-1}^\top k_t)^\top, \qquad \beta_t = \sigma(w_\beta \cdot x_t) \\
        y &= W_O \, norm(S_t^\top q_t \, / \, \sqrt d)

    Yang et al. 2024, "Parallelizing Linear Transformers with the Delta Rule over Sequence Length", sections 2.2 and
    3.3: queries and keys are swish(x W), of length 1. With ``kernel_size``, queries, keys and values are convolved
    before swish, as in the released models (section 3.4 there).

    A recurrence sees no later token: without a mask it is causal too, and it is no part of a bidirectional layer.
    Lengths, and tensors with one row for all queries, hide padding, and documents are read alone; there is no other
    mask. A convolution reads the tokens before a hidden one in its place.

    Args:
        embed_dim: features of a token.
        num_heads: heads of values and of the state.
        key_heads, head_dim, value_dim: as for `LinearAttention`.
        kernel_size: tokens that a short convolution reads, 4 in the released models; None, the default: there is none.
        largest_beta: the largest strength, 1 by default; 2 lets a token reverse what its key recalls (Grazzi et al.
            2024, "Unlocking State-Tracking in Linear RNNs Through Negative Eigenvalues").
        eps: of the normalization; default 1e-5.
        bias, backend, device, dtype: as for `LinearAttention`.

    Raises:
        ArgumentError, KindError, UnknownNameError: an argument is invalid; the message names it.

    Numerics: queries and keys are divided by :math:`\sqrt{\lVert x \rVert^2 + 10^{-6}}`, in float32 or float64.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> attention = nn.DeltaNet(16, 2)
        >>> weights = attention(torch.randn(3, 5, 16), mask="causal", need_weights=True).weights
        >>> weights.shape, weights.triu(1).any()
        (torch.Size([3, 2, 5, 5]), tensor(False))
    """

    is_causal = True

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        key_heads: int | None = None,
        head_dim: int | None = None,
        value_dim: int | None = None,
        kernel_size: int | None = None,
        largest_beta: float = 1.0,
        eps: float = 1e-5,
        bias: bool = True,
        backend: BackendName = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ):
        # These are read by `add_parts`, within the constructor of the base.
        self.kernel_size, self.eps = kernel_size, positive_number("eps", eps)
        self.largest_beta = positive_number("largest_beta", largest_beta)
        super().__init__(
            embed_dim, num_heads, key_heads=key_heads, head_dim=head_dim, value_dim=value_dim, bias=bias,
            backend=backend, device=device, dtype=dtype,
        )  # fmt: skip

    def add_parts(self, **factory: Any) -> Score:
        self.beta_proj = nn.Linear(self.embed_dim, self.num_heads, bias=self._has_bias, **factory)
        self.norm = nn.RMSNorm(self.value_dim, eps=self.eps, **factory)
        if self.kernel_size is not None:
            self.conv = ShortConvolution(sum(self.widths), self.kernel_size, **factory)
        return ScaledDot()

    def tokens(self, x: Tensor, projected: Tensor, first: int) -> RecurrenceInputs:
        query, key, value = self.heads(projected)
        if self.conv is None:
            query, key = F.silu(query), F.silu(key)
        beta = self.largest_beta * torch.sigmoid(upcast(self.beta_proj(x))).transpose(1, 2)
        return RecurrenceInputs(_unit(query), _unit(key), value, beta=beta)


def _unit(rows: Tensor) -> Tensor:
    """Returns vectors divided by their lengths, in float32 for half precision."""
    exact = upcast(rows)
    return (exact * (exact.square().sum(-1, keepdim=True) + UNIT_EPS).rsqrt()).to(rows.dtype)


@fx_leaf
class GatedDeltaNet(DeltaNet):
    r"""The delta rule on a state that decays.

    .. math::

        S_t &= \alpha_t \, S_{t-1} + \beta_t \, k_t (v_t - \alpha_t \, S_{t-1}^\top k_t)^\top,
        \qquad \alpha_t = \exp\!\big(-e^{a} \, softplus(w_\alpha \cdot x_t + b)\big) \\
        y &= W_O \big( swish(W_G x) \odot norm(S_t^\top q_t \, / \, \sqrt d) \big)

    Yang et al. 2025, "Gated Delta Networks", equation 10 and section 3.4, with a decay and a strength for each head;
    the rest is `DeltaNet`.

    The layers of Qwen3-Next, Qwen3.5 and OLMo-Hybrid in transformers load by ``load_state_dict``, made with
    ``kernel_size=4``, ``bias=False`` and the sizes of their configuration: ``num_heads`` is
    ``linear_num_value_heads``, ``key_heads`` ``linear_num_key_heads``, ``head_dim`` ``linear_key_head_dim``,
    ``value_dim`` ``linear_value_head_dim`` and ``eps`` ``rms_norm_eps`` (1e-5 in OLMo-Hybrid, where ``largest_beta``
    is 2 with ``linear_allow_neg_eigval``).

    Args and Raises: as for `DeltaNet`. The decays of ``decay_proj`` have biases in any case.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> attention = nn.GatedDeltaNet(16, 4, key_heads=2, head_dim=8, value_dim=6, kernel_size=4, bias=False)
        >>> attended = attention(torch.randn(3, 5, 16), mask="causal", cache=attention.new_cache())
        >>> attended.output.shape, attended.cache.state.shape, attended.cache.recent.shape
        (torch.Size([3, 5, 16]), torch.Size([3, 4, 8, 6]), torch.Size([3, 3, 56]))
    """

    def add_parts(self, **factory: Any) -> Score:
        self.add_gates(**factory)
        return super().add_parts(**factory)

    def add_gates(self, **factory: Any) -> None:
        """Creates the projections to decays and to the gates of the outputs."""
        self.decay_proj = nn.Linear(self.embed_dim, self.num_heads, **factory)
        self.add_rates(self.decay_proj.bias, torch.zeros(self.num_heads, **factory))
        self.gate_proj = self.projection(self.embed_dim, self.num_heads * self.value_dim)

    def tokens(self, x: Tensor, projected: Tensor, first: int) -> RecurrenceInputs:
        return super().tokens(x, projected, first)._replace(log_decay=self.log_decay(self.steps(x)))


@fx_leaf
class KimiDeltaAttention(GatedDeltaNet):
    r"""The delta rule on a state each of whose features decays at its own rate.

    .. math::

        S_t &= D_t S_{t-1} + \beta_t \, k_t (v_t - (D_t S_{t-1})^\top k_t)^\top,
        \qquad D_t = diag\Big(\exp\!\big(-e^{a} \, softplus(W_2 W_1 x_t + b)\big)\Big) \\
        y &= W_O \big( \sigma(G_2 G_1 x) \odot norm(S_t^\top q_t \, / \, \sqrt d) \big)

    Kimi Team 2025, "Kimi Linear: An Expressive, Efficient Attention Architecture", equation 1 and section 4. Gates of
    decays and of outputs have the rank of a head, ``head_dim`` and ``value_dim``; queries, keys and values are
    convolved; the rest is `GatedDeltaNet`.

    The layer of Kimi Linear in transformers loads by ``load_state_dict``: ``num_heads`` is ``linear_num_heads``,
    ``head_dim`` ``linear_head_dim``, ``kernel_size`` ``linear_conv_kernel_dim`` and ``eps`` ``rms_norm_eps``.

    Args and Raises: as for `DeltaNet`; ``kernel_size`` is 4, and ``bias`` False by default.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> attention = nn.KimiDeltaAttention(16, 2)
        >>> attention(torch.randn(3, 5, 16), mask="causal").output.shape
        torch.Size([3, 5, 16])
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        key_heads: int | None = None,
        head_dim: int | None = None,
        value_dim: int | None = None,
        kernel_size: int | None = 4,
        largest_beta: float = 1.0,
        eps: float = 1e-5,
        bias: bool = False,
        backend: BackendName = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__(
            embed_dim, num_heads, key_heads=key_heads, head_dim=head_dim, value_dim=value_dim, kernel_size=kernel_size,
            largest_beta=largest_beta, eps=eps, bias=bias, backend=backend, device=device, dtype=dtype,
        )  # fmt: skip

    def add_gates(self, **factory: Any) -> None:
        gates = nn.Linear(self.head_dim, self.num_heads * self.head_dim, **factory)
        self.decay_proj = nn.Sequential(nn.Linear(self.embed_dim, self.head_dim, bias=False, **factory), gates)
        self.add_rates(gates.bias, torch.zeros(self.num_heads, **factory))
        self.gate_proj = nn.Sequential(
            self.projection(self.embed_dim, self.value_dim, bias=False),
            self.projection(self.value_dim, self.num_heads * self.value_dim),
        )

    def activation(self, gates: Tensor) -> Tensor:
        return torch.sigmoid(gates)
