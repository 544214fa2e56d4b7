"""Multi-head attention, a drop-in for ``torch.nn.MultiheadAttention``."""

import torch
from torch import Tensor, nn

from regard.attention.execution import check_backend
from regard.attention.problem import check_dropout
from regard.attention.verbs import BackendName, Scoring
from regard.biases import Bias, as_bias, bias_for
from regard.distributed.sequence_parts import refuse_parts, whole_length
from regard.errors import ArgumentError, KindError, ShapeError
from regard.masks import Mask, as_mask, causal, lengths
from regard.nn.attention_heads import AttentionHeads
from regard.nn.fx_leaf import fx_leaf
from regard.nn.named_positions import Position, position_for
from regard.nn.padding import present_queries
from regard.nn.torch_inputs import TorchSizes, check_torch_inputs, read_torch_masks, without_padded_keys
from regard.normalizers import Normalizing, own_normalizer
from regard.scores import own_score
from regard.shapes.checks import SIZE_LIMIT, Requested, check_factory, flag, size
from regard.shapes.grid import Grid
from regard.tracing.module_calls import has_hooks, is_plain_part, runs
from regard.tracing.ownership import own_copy


@fx_leaf
class MultiheadAttention(AttentionHeads):
    """A drop-in for `torch.nn.MultiheadAttention`, with any score, normalizer and position, and grouped heads.

    .. math:: MultiHead(Q, K, V) = Concat(head_1, …, head_h) W^O, \\quad head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V)

    Vaswani et al. 2017, section 3.2.2; grouped heads are those of Ainslie et al. 2023, section 2.2.

    Constructor, forward arguments, returned values, mask conventions (True: ignore), parameters, their initial values
    for a seed and the ``state_dict`` are those of torch. The differences are:

    - A query without visible keys has weights 0 and gets the output projection's bias; torch returns NaN if
      weights are asked for or its fast path runs.
    - Returned weights are those before dropout: each row with a visible key sums to 1.
    - ``is_causal=True`` needs no ``attn_mask``. If there is one, the flag is only a hint, as in torch.
    - ``need_weights`` does not change a bit of the output, and the weights are differentiable.
    - A float mask may have any dtype; it is added to the scores in their dtype (float32, or float64 for float64 input).
    - ``out_proj`` is called as a module, so that an adapter or another replacement is used.

    The two conventions of a bool mask, side by side::

        attn_mask=torch.ones(n, n).triu(1).bool()   True: ignore         this module, as torch.nn.MultiheadAttention
        key_padding_mask=words == padding           True: ignore         this module, as torch.nn.MultiheadAttention
        mask=torch.ones(n, n).tril().bool()         True: may attend     this module's mask=, and every mask of regard
        mask=masks.ignore(attn_mask)                True: ignore         turns the one into the other

    In evaluation, `torch.nn.TransformerEncoderLayer` may run one fused kernel on the parameters of its attention module
    instead of calling the module. That kernel ignores score, normalizer and position, and returns NaN for rows without
    visible keys. Torch does not use it while a submodule has a forward hook; therefore this module registers a forward
    pre-hook that does nothing. `merge_masks`, which the layer calls before that kernel, raises an error if the hook was
    removed. Nested tensors, which `torch.nn.TransformerEncoder` makes of padded input in evaluation, are accepted for
    self-attention. `torch.jit.trace` supports this module; `torch.jit.script` does not.

    Args:
        embed_dim: features of a query and of the output.
        num_heads: number of query heads, a divisor of ``embed_dim``.
        dropout: probability of dropping a weight while training, in [0, 1); some backends round it on a CPU (see
            `regard.attend`).
        bias: whether the projections have biases.
        add_bias_kv: append one learned key and value, visible to every query.
        add_zero_attn: append a key and value of zeros, visible to every query.
        kdim: features of a key; default ``embed_dim``.
        vdim: features of a value; default ``embed_dim``.
        batch_first: ``[batch, length, features]`` instead of ``[length, batch, features]``.
        device, dtype: device and dtype of the parameters.
        score: a name, a `Score` or a function, for heads ``[batch, heads, length, embed_dim / num_heads]``.
        normalizer: a name, a `Normalizer` or a function.
        kv_heads: number of key and value heads, a divisor of ``num_heads``. If it is smaller, the weights are
            ``q_proj_weight [embed_dim, embed_dim]``, ``k_proj_weight [kv_heads * head_dim, kdim]`` and
            ``v_proj_weight [kv_heads * head_dim, vdim]``, which torch's module cannot load.
        position: ``rotary``, ``alibi``, ``t5``, ``shaw``, a `Rotary`, which rotates the projected queries and keys, or
            a `Bias` (`RelativeBias`, ``alibi``), which is added to the scores. Appended keys have no position.
        backend: ``auto``, or the name of a backend, which runs or raises.

    Raises:
        ArgumentError, KindError, UnknownNameError: an argument is invalid; the message names it.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> _ = torch.manual_seed(0)
        >>> attention = nn.MultiheadAttention(16, 4, batch_first=True)
        >>> _ = torch.manual_seed(0)
        >>> theirs = torch.nn.MultiheadAttention(16, 4, batch_first=True)
        >>> query, memory = torch.randn(2, 5, 16), torch.randn(2, 7, 16)
        >>> torch.allclose(attention(query, memory, memory)[0], theirs(query, memory, memory)[0], atol=1e-6)
        True
        >>> sparse = nn.MultiheadAttention(16, 4, batch_first=True, normalizer="sparsemax", kv_heads=2)
        >>> output, weights = sparse(query, query, query, mask="causal", average_attn_weights=False)
        >>> output.shape, weights.shape
        (torch.Size([2, 5, 16]), torch.Size([2, 4, 5, 5]))
        >>> weights[0, 0, 0].detach()  # the first query sees itself
        tensor([1., 0., 0., 0., 0.])
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        score: Scoring = "scaled_dot",
        normalizer: Normalizing = "softmax",
        kv_heads: int | None = None,
        position: Position | None = None,
        backend: BackendName = "auto",
    ):
        for name, value in (("embed_dim", embed_dim), ("num_heads", num_heads), ("kv_heads", kv_heads)):
            if value is not None or name != "kv_heads":
                size(name, value, low=-SIZE_LIMIT)
        for name, value in (("kdim", kdim), ("vdim", vdim)):
            if value is not None:
                size(name, value)
        for name, value in (
            ("bias", bias), ("add_bias_kv", add_bias_kv), ("add_zero_attn", add_zero_attn), ("batch_first", batch_first)
        ):  # fmt: skip
            flag(name, value)
        check_factory(device, dtype)
        if embed_dim <= 0 or num_heads <= 0 or embed_dim % num_heads:
            raise ArgumentError(
                f"num_heads must divide embed_dim, both positive; embed_dim is {embed_dim} and num_heads is {num_heads}"
            )
        kv_heads = num_heads if kv_heads is None else kv_heads
        if kv_heads <= 0 or num_heads % kv_heads:
            raise ArgumentError(f"kv_heads must divide num_heads, {num_heads}; it is {kv_heads}")
        position = position_for(position, num_heads, embed_dim // num_heads, device=device, dtype=dtype)
        rate = check_dropout(dropout)
        super().__init__(
            embed_dim, num_heads, rate, bias, add_bias_kv, add_zero_attn, kdim, vdim, batch_first, device, dtype
        )
        self.kv_heads = kv_heads
        self.score = own_score(score)
        self.normalizer = own_normalizer(normalizer)
        self.position = None if position is None else own_copy(position)
        self.backend: BackendName = check_backend(backend)
        self.register_forward_pre_hook(_require_forward)
        if kv_heads != num_heads:
            self._create_grouped_parameters(device, dtype)

    def _create_grouped_parameters(self, device: torch.device | str | None, dtype: torch.dtype | None) -> None:
        """Replaces torch's parameters by separate ones for ``kv_heads`` key and value heads."""
        width = self.kv_heads * self.head_dim

        def parameter(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(shape, device=device, dtype=dtype))

        self._qkv_same_embed_dim = False
        self.in_proj_weight = None
        self.q_proj_weight = parameter(self.embed_dim, self.embed_dim)
        self.k_proj_weight = parameter(width, self.kdim)
        self.v_proj_weight = parameter(width, self.vdim)
        if self.in_proj_bias is not None:
            self.in_proj_bias = parameter(self.embed_dim + 2 * width)
        if self.bias_k is not None:
            self.bias_k, self.bias_v = parameter(1, 1, width), parameter(1, 1, width)
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        # The order is torch's, so that a seed gives torch's values.
        for weight in (self.in_proj_weight, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
            if weight is not None:
                nn.init.xavier_uniform_(weight)
        if self.in_proj_bias is not None:
            nn.init.zeros_(self.in_proj_bias)
            nn.init.zeros_(self.out_proj.bias)
        for appended in (self.bias_k, self.bias_v):
            if appended is not None:
                nn.init.xavier_normal_(appended)

    def merge_masks(
        self, attn_mask: Tensor | None, key_padding_mask: Tensor | None, query: Tensor
    ) -> tuple[Tensor | None, int | None]:
        """Merges the two masks, and returns the result and its type, as `torch.nn.MultiheadAttention.merge_masks` does.

        Raises:
            ArgumentError: the forward pre-hook of this module was removed, so that the caller may be
                `torch.nn.TransformerEncoderLayer` about to run its own kernel instead of this module.
        """
        if _require_forward not in self._forward_pre_hooks.values():
            raise ArgumentError(
                "the forward pre-hook of this MultiheadAttention was removed, without which "
                "torch.nn.TransformerEncoderLayer does not call the module in evaluation; restore the hook, or call "
                "torch.backends.mha.set_fastpath_enabled(False)"
            )
        return super().merge_masks(attn_mask, key_padding_mask, query)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | Mask | str | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
        *,
        mask: Mask | Tensor | str | None = None,
        bias: Bias | Tensor | str | None = None,
    ) -> tuple[Tensor, Requested[Tensor]]:
        """Attends with every head.

        Args:
            query: ``[queries, batch, embed_dim]``; ``[batch, queries, embed_dim]`` with ``batch_first``; unbatched
                ``[queries, embed_dim]``.
            key: ``[keys, batch, kdim]``, or the corresponding layout of query.
            value: ``[keys, batch, vdim]``, or the corresponding layout of query.
            key_padding_mask: ``[batch, keys]``, or ``[keys]`` if unbatched; bool (True: ignore) or float (added to the
                scores).
            need_weights: whether to return the weights as well; if False, no matrix of weights is computed.
            attn_mask: ``[queries, keys]`` or ``[batch * num_heads, queries, keys]``; bool (True: ignore) or float;
                or a `Mask`, or ``"causal"``.
            average_attn_weights: whether to return the mean of the weights over the heads.
            is_causal: without ``attn_mask``, the last query sees every key, and each earlier query one key less.
            mask: an additional mask in regard's convention: a `Mask`, ``"causal"``, or a bool tensor (**True: may
                attend**) over ``[batch, num_heads, queries, keys]``.
            bias: an additional bias over ``[batch, num_heads, queries, keys]``: a tensor, a `Bias`, or ``"alibi"``.

        Returns:
            The output, in query's layout, and the weights before dropout: ``[batch, queries, keys]``, or
            ``[batch, num_heads, queries, keys]`` if not averaged, without batch if unbatched; None if not needed.
            ``keys`` includes the keys that the module appends.

        Raises:
            ShapeError, KindError: an input is invalid; the message names the argument.
            BackendError: the named backend cannot run this.
        """
        bias = bias_for(bias, self.num_heads)
        if query.is_nested or key.is_nested or value.is_nested:
            if query is not key or key is not value or not (key_padding_mask is None and attn_mask is None):
                raise KindError(
                    "nested tensors are accepted for self-attention only (query is key is value), without "
                    "key_padding_mask and attn_mask"
                )
            return self._forward_nested(query, need_weights, average_attn_weights, is_causal, mask, bias)
        inputs = {"query": (query, self.embed_dim), "key": (key, self.kdim), "value": (value, self.vdim)}
        check_torch_inputs(inputs, self.batch_first, self._input_weights()[0])
        batched = query.dim() == 3
        batch_first = self.batch_first or not batched
        batch = query.shape[0 if batch_first else 1] if batched else None
        queries, keys = (t.shape[1 if batched and batch_first else 0] for t in (query, key))

        key, value = without_padded_keys(query, key, value, key_padding_mask, batch_first)
        projected = self.project(query, key, value)
        q, k, v = (self.split(tensor if batched else tensor[None], batch_first) for tensor in projected)
        sizes = TorchSizes(batch, self.num_heads, queries, keys, q.dtype, q.device)
        named = as_mask(attn_mask) if isinstance(attn_mask, (Mask, str)) else None
        hidden = None if isinstance(attn_mask, (Mask, str)) else attn_mask
        torch_mask, torch_bias = read_torch_masks(key_padding_mask, hidden, sizes)
        visible = [torch_mask, named, as_mask(mask)]
        if self.normalizer.couples == "queries" and query is key:
            length = whole_length(queries, "query")
            grid = Grid.whole(q.shape[0], self.num_heads, length, length, q.device)
            visible = [present_queries(part, grid) for part in visible]
        attended = self.attend_heads(
            self.rotate(q, whole_length(keys, "key") - whole_length(queries, "query")), self.rotate(k), v,
            masks=[*visible, causal() if is_causal and attn_mask is None else None],
            biases=[as_bias(torch_bias), bias], need_weights=need_weights,
        )  # fmt: skip
        output, weights = self.out_proj(self.join(attended.output, batch_first)), attended.weights
        if weights is not None:
            weights = weights.to(output.dtype)
            weights = weights.mean(dim=1) if average_attn_weights else weights
        if batched:
            return output, weights
        return output[0], None if weights is None else weights[0]

    def _forward_nested(
        self,
        input: Tensor,
        need_weights: bool,
        average_attn_weights: bool,
        is_causal: bool,
        mask: Mask | Tensor | str | None,
        bias: Bias | None,
    ) -> tuple[Tensor, Tensor | None]:
        """Computes self-attention of sequences of different lengths, by padding them."""
        refuse_parts("a nested tensor")
        if not self.batch_first:
            raise KindError("query is nested, which needs batch_first=True")
        sequences = input.unbind()
        for index, sequence in enumerate(sequences):
            if sequence.dim() != 2 or sequence.shape[1] != self.embed_dim:
                raise ShapeError(
                    f"each sequence of the nested query must be [length, {self.embed_dim}]; "
                    f"sequence {index} has shape {list(sequence.shape)}"
                )
        sizes = [sequence.shape[0] for sequence in sequences]
        padded = torch.nested.to_padded_tensor(input, 0.0)
        padding, mask = lengths(sizes), as_mask(mask)
        output, weights = self.forward(
            padded, padded, padded, need_weights=need_weights, average_attn_weights=average_attn_weights,
            is_causal=is_causal, mask=padding if mask is None else padding & mask, bias=bias,
        )  # fmt: skip
        rows = [row[:size] for row, size in zip(output, sizes, strict=True)]
        return torch.nested.as_nested_tensor(rows, layout=input.layout), weights

    def extra_repr(self) -> str:
        widths = "".join(
            f", {name}={width}" for name, width in (("kdim", self.kdim), ("vdim", self.vdim)) if width != self.embed_dim
        )
        grouped = "" if self.kv_heads == self.num_heads else f", kv_heads={self.kv_heads}"
        return (
            f"embed_dim={self.embed_dim}, num_heads={self.num_heads}{grouped}{widths}, batch_first={self.batch_first}"
        )


MultiHeadAttention = MultiheadAttention
FORWARD = MultiheadAttention.forward
"""The method as defined here, even if it is replaced later."""


def is_plain(attention: nn.Module) -> bool:
    """Whether an attention module may be run in parts: its call does no more, and no part of it is seen or replaced."""
    if type(attention) is not MultiheadAttention or not runs(attention, FORWARD):
        return False
    return not has_hooks(attention, _require_forward) and is_plain_part(attention.out_proj)


def _require_forward(module: nn.Module, args: tuple[object, ...]) -> None:
    """Does nothing, as a forward pre-hook, so that `torch.nn.TransformerEncoderLayer` calls the module."""
