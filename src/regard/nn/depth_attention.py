"""Attention over depth: a token attends to what the layers before have made of it (Kimi Team 2026)."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention import Attended
from regard.attention.execution import check_backend
from regard.attention.routes import planned
from regard.attention.verbs import BackendName, run
from regard.distributed.sequence_parts import within
from regard.errors import KindError, ShapeError
from regard.nn.fx_leaf import fx_leaf
from regard.normalizers import Normalizing, own_normalizer
from regard.scores import ScaledDot
from regard.shapes.checks import check_floating, flag, positive_number, size, type_text
from regard.shapes.grid import upcast
from regard.tracing.module_calls import Module


@fx_leaf
class DepthAttention(Module):
    r"""Mixes the outputs of earlier layers, token by token, by attention with a learned query: attention residuals.

    .. math::

        h_l = \sum_{i < l} \alpha_{i \to l} \, v_i, \qquad
        \alpha_{\cdot \to l} = normalize_i\big(s \; w_l \cdot rms(v_i)\big)

    Kimi Team 2026, "Attention Residuals", section 3: the input :math:`h_l` of layer l, in place of the sum of all
    outputs. :math:`v_0` is the embedding, :math:`v_i` the output of layer i, or the sum of a block of layers ("Block
    AttnRes"); :math:`w_l` is ``query``, which begins as 0, so that all layers count alike. The weights of the paper's
    RMS norm are factors of :math:`w`. One module serves one layer.

    `regard.watch` reads which layers each token attends to: the call has the tokens as queries, and layers as keys.

    Args:
        dim: features of a token.
        scale: s; 1 as in the paper.
        normed_values: whether the mixed values are normalized too, as in Inkling 2, with ``scale=dim**-0.5``.
        normalizer: a name, a `Normalizer` or a function.
        backend: ``auto``, or one by name, which runs or raises.
        device, dtype: device and dtype of the query.

    Raises:
        ArgumentError, KindError, UnknownNameError: an argument is invalid; the message names it.

    Numerics: half precision is normalized and mixed in float32.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> layers = [torch.nn.Linear(8, 8) for _ in range(3)]
        >>> depths = [nn.DepthAttention(8) for _ in range(4)]
        >>> states = [torch.randn(2, 5, 8)]  # the embedding
        >>> for layer, depth in zip(layers, depths):
        ...     states.append(layer(depth(states).output))
        >>> attended = depths[-1](states, need_weights=True)
        >>> attended.output.shape, attended.weights.shape
        (torch.Size([2, 5, 8]), torch.Size([2, 5, 4]))
    """

    def __init__(
        self,
        dim: int,
        *,
        scale: float = 1.0,
        normed_values: bool = False,
        normalizer: Normalizing = "softmax",
        backend: BackendName = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        self.dim, self.normed_values = size("dim", dim), flag("normed_values", normed_values)
        self.query = nn.Parameter(torch.zeros(dim, device=device, dtype=dtype))
        self.score = ScaledDot(positive_number("scale", scale))
        self.normalizer = own_normalizer(normalizer)
        self.backend: BackendName = check_backend(backend)

    def forward(self, states: Sequence[Tensor] | Tensor, *, need_weights: bool = False) -> Attended:
        """Mixes the states of each token.

        Args:
            states: the outputs of the layers so far, each ``[batch, length, dim]`` or with other axes before the last
                one; or one tensor ``[batch, length, layers, dim]`` of them.
            need_weights: whether to return the weights; the output is the same, bit for bit.

        Returns:
            The output ``[batch, length, dim]``, and the weights ``[batch, length, layers]`` or None.

        Raises:
            ShapeError, KindError: a state is no tensor of this size.
        """
        if not isinstance(states, Tensor):
            if not isinstance(states, Sequence) or not states or not all(isinstance(one, Tensor) for one in states):
                raise KindError(f"states must be tensors, at least one, or a tensor; they are {type_text(states)}")
            if len({one.shape for one in states}) > 1:
                raise ShapeError(
                    f"states must have one shape; they have {sorted({str(list(s.shape)) for s in states})}"
                )
            states = torch.stack(list(states), dim=-2)
        check_floating("states", states)
        if states.dim() < 2 or states.shape[-1] != self.dim:
            raise ShapeError(f"states must have {self.dim} features; they have shape {list(states.shape)}")
        *leading, layers, dim = states.shape
        tokens = upcast(states)[(None,) * max(0, 4 - states.dim())].flatten(1, -3)  # B L layers dim
        key = F.rms_norm(tokens, (dim,), eps=1e-6)
        query = self.query.to(tokens.dtype).expand(*tokens.shape[:2], 1, -1)
        with within(()):  # each token is mixed by itself, so that parts of sequences are sequences
            problem = planned(
                query, key, key if self.normed_values else tokens, score=self.score, normalizer=self.normalizer,
                backend=self.backend,
            )  # fmt: skip
            output, weights = run(problem, self.backend, need_weights=need_weights, layer=self)
        by_token = None if weights is None else weights.reshape(*leading, layers)
        return Attended(output.reshape(*leading, dim).to(states.dtype), by_token)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, normed_values={self.normed_values}"
