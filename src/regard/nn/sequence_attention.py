"""Self-attention of a Transformer's layer, in other forms than `regard.nn.MultiheadAttention`."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Collection
from importlib import import_module
from typing import Any, NamedTuple, get_args

import torch
from torch import Tensor, nn

from regard.attention.problem import check_dropout
from regard.distributed.sequence_parts import refuse_parts
from regard.errors import ArgumentError, KindError, ShapeError
from regard.masks import Mask, as_mask
from regard.names.foreign_names import written_here
from regard.nn.attention_names import CLASSES, USUAL_VALUES, AttentionName, check_direction, check_options
from regard.nn.checkpoint_names import rename_parameters
from regard.nn.key_values import CacheT, KeyValueCache, SequenceCache, checked_cache
from regard.nn.layer_inputs import Biasing, Masking
from regard.nn.torch_inputs import check_parameters
from regard.normalizers import Normalizer, Normalizing, own_normalizer
from regard.shapes.checks import check_factory, check_floating, check_sizes, flag, known_name, size, type_text
from regard.summaries import summarized
from regard.tracing.module_calls import Module


@summarized
class SequenceOutput(NamedTuple):
    """The output of a `SequenceAttention`.

    Attributes:
        output: ``[batch, length, dim]``.
        weights: the share of each value in the output of each head, ``[batch, heads, length, keys]``; None unless
            ``need_weights``.
        cache: the tokens so far, with those of this call; None without a cache.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> attention = nn.DifferentialAttention(16, 2)
        >>> attended = attention(torch.randn(3, 5, 16), mask="causal", need_weights=True)
        >>> attended.output.shape, attended.weights.shape, attended.cache
        (torch.Size([3, 5, 16]), torch.Size([3, 2, 5, 5]), None)
    """

    output: Tensor
    weights: Tensor | None
    cache: SequenceCache | None


class SequenceAttention(Module, ABC):
    """The base of self-attention that is the first part of a Transformer's layer, but no `MultiheadAttention`.

    A layer calls it as a module, with padded sequences::

        attended = layer.self_attn(x, mask=mask, bias=bias, cache=cache)

    A subclass that is named in `regard.nn.attention_names` is made by ``TransformerEncoderLayer(attention=name)``, with
    the options that its constructor has: of ``dropout``, ``bias``, ``score``, ``normalizer``, ``kv_heads``,
    ``position``, ``bidirectional``, ``backend``, ``depth`` (the layer's number in its stack, from 0), ``device`` and
    ``dtype``. Any object of a subclass can be given in place of a name.

    Args:
        embed_dim: features of a token.
        num_heads: heads, a divisor of ``embed_dim`` unless ``head_dim`` is given.
        head_dim: features of a head; None: ``embed_dim / num_heads``.
        dropout: probability of dropping a weight while training, in [0, 1).
        bias: whether the projections have biases.
        device, dtype: device and dtype of the parameters.

    Attributes:
        is_causal: whether a token never sees later ones, whatever the mask; a bidirectional layer refuses such a class.
        out_proj: the projection of all heads to the output, which a subclass has after its other parameters.

    Raises:
        ArgumentError, KindError: an argument is invalid; the message names it.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> class Mean(nn.SequenceAttention):  # the mean of the tokens so far
        ...     def __init__(self, embed_dim, num_heads):
        ...         super().__init__(embed_dim, num_heads)
        ...         self.out_proj = self.projection(embed_dim, embed_dim)
        ...     def forward(self, x, *, mask=None, bias=None, cache=None, need_weights=False):
        ...         length = torch.arange(1, x.shape[1] + 1)[:, None]
        ...         return nn.SequenceOutput(self.out_proj(x.cumsum(1) / length), None, None)
        >>> layer = nn.TransformerEncoderLayer(8, 2, batch_first=True, attention=Mean(8, 2))
        >>> layer(torch.randn(3, 5, 8)).shape
        torch.Size([3, 5, 8])
    """

    is_causal: bool = False
    out_proj: nn.Linear

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        head_dim: int | None = None,
        dropout: float = 0.0,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        check_sizes(embed_dim=embed_dim, num_heads=num_heads)
        if head_dim is None and embed_dim % num_heads:
            raise ArgumentError(
                f"num_heads must divide embed_dim; embed_dim is {embed_dim} and num_heads is {num_heads}"
            )
        check_factory(device, dtype)
        self.embed_dim, self.num_heads = embed_dim, num_heads
        self.head_dim = embed_dim // num_heads if head_dim is None else size("head_dim", head_dim)
        self.dropout = check_dropout(dropout)
        self._has_bias = flag("bias", bias)
        self._factory: dict[str, Any] = {"device": device, "dtype": dtype}

    @abstractmethod
    def forward(
        self,
        x: Tensor,
        *,
        mask: Masking | None = None,
        bias: Biasing | None = None,
        cache: SequenceCache | None = None,
        need_weights: bool = False,
    ) -> SequenceOutput:
        """Lets the tokens of each sequence attend to each other.

        Args:
            x: ``[batch, length, embed_dim]``.
            mask: which tokens each token may attend to: a `Mask`, ``"causal"``, or a bool tensor (**True: may attend**)
                that broadcasts to ``[batch, num_heads, length, keys]``; None: all.
            bias: added to the scores: a tensor, a `Bias`, or ``"alibi"``; None: nothing.
            cache: the tokens before these, as `new_cache` or the last call returned them; they are keys too. None:
                there are none, and no cache is returned.
            need_weights: whether to return the weights; the output is the same, bit for bit.

        Raises:
            ShapeError, KindError, ArgumentError: an input is invalid, or this attention has no such input.
        """

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any) -> None:
        problem = rename_parameters(self, state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
        if problem and args[1]:  # strict
            args[-1].append(problem)

    def new_cache(self) -> SequenceCache:
        """Returns the cache before the first token."""
        return KeyValueCache()

    def projection(self, inputs: int, outputs: int, *, bias: bool = True) -> nn.Linear:
        """Creates a linear layer with uniform weights (Glorot and Bengio 2010) and biases of 0, unless this module or
        ``bias`` says that there are none."""
        has_bias = bias and self._has_bias
        linear = nn.Linear(inputs, outputs, bias=has_bias, **self._factory)
        nn.init.xavier_uniform_(linear.weight)
        if has_bias:
            nn.init.zeros_(linear.bias)
        return linear

    def projection_weights(self) -> list[Tensor]:
        """Returns the weights of all projections, which a model may initialize in its own way."""
        return [linear.weight for linear in self.modules() if isinstance(linear, nn.Linear)]

    def own_normalizer(self, normalizer: Normalizing) -> Normalizer:
        """Returns a normalizer of this module's own.

        Raises:
            ArgumentError: its weights depend on all queries, of which some may be padding or come later.
        """
        own = own_normalizer(normalizer)
        if own.couples == "queries":
            raise ArgumentError(
                f"normalizer {type(own).__name__} compares all queries, and {type(self).__name__} gets padding and "
                "later tokens too: write nn.MultiheadAttention"
            )
        return own

    def checked_input(self, x: Tensor, mask: Masking | None) -> Mask | None:
        """Returns the mask as a `Mask`; raises an error unless the input is ``[batch, length, embed_dim]``, of the
        parameters' dtype and on their device."""
        check_floating("x", x)
        if x.dim() != 3 or x.shape[-1] != self.embed_dim:
            raise ShapeError(f"x must be [batch, length, {self.embed_dim}]; it has shape {list(x.shape)}")
        check_parameters("x", x, next(self.parameters(), x))
        return as_mask(mask)

    def checked_cache(self, cache: SequenceCache | None, kind: type[CacheT]) -> CacheT | None:
        """Returns the cache if it is None or of this kind; raises KindError otherwise."""
        if cache is not None:
            refuse_parts("a cache of the tokens so far")
        return checked_cache(self, cache, kind)

    def extra_repr(self) -> str:
        return f"embed_dim={self.embed_dim}, num_heads={self.num_heads}"


def self_attention(
    attention: AttentionName | SequenceAttention,
    embed_dim: int,
    num_heads: int,
    elsewhere: Collection[str] = (),
    **options: Any,
) -> SequenceAttention:
    """Returns the self-attention of a layer: the module itself, or a new one of the class that a name stands for;
    raises an error for an option that neither it nor another attention of the layer (``elsewhere``) has."""
    if isinstance(attention, SequenceAttention):
        for name, own, value in (
            ("d_model", attention.embed_dim, embed_dim),
            ("nhead", attention.num_heads, num_heads),
        ):
            if own != value:
                raise ArgumentError(f"{name} must be that of the attention, {own}; it is {value}")
        owner, lacks, is_causal = type(attention).__name__, tuple(USUAL_VALUES), attention.is_causal
    elif isinstance(attention, str):
        known_name("attention", attention, get_args(AttentionName), written_here("attention", attention))
        owner, lacks, is_causal = repr(attention), CLASSES[attention].lacks, CLASSES[attention].is_causal
    else:
        raise KindError(
            f"attention must be a name ({', '.join(get_args(AttentionName))}) or a SequenceAttention; "
            f"it is {type_text(attention)}"
        )
    check_options(f"attention {owner}", set(lacks).difference(elsewhere), options)
    check_direction(f"attention {owner}", is_causal, options["bidirectional"])
    if isinstance(attention, SequenceAttention):
        return attention
    module, kind = CLASSES[attention].path.split(":")
    constructor = getattr(import_module(module), kind)
    known = inspect.signature(constructor).parameters
    return constructor(embed_dim, num_heads, **{name: value for name, value in options.items() if name in known})
