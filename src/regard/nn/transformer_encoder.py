"""A stack of encoder layers."""

from collections.abc import Sequence

from torch import Tensor, nn

from regard.masks import Mask
from regard.nn.fx_leaf import fx_leaf
from regard.nn.key_values import SequenceCache
from regard.nn.layer_config import LayerConfig
from regard.nn.layer_inputs import (
    Biasing,
    Masking,
    Pairs,
    TorchMask,
    batch_first_input,
    in_layout,
    output_like,
    read_pairs,
    stack_mask,
)
from regard.nn.layer_parts import is_own_layer, packings
from regard.nn.packing import Packing
from regard.nn.transformer_layers import TransformerEncoderLayer
from regard.nn.transformer_stack import TransformerStack, causal_mask, checked_config, layer_count, new_caches
from regard.shapes.checks import flag


@fx_leaf
class TransformerEncoder(TransformerStack):
    """A stack of encoder layers: `torch.nn.TransformerEncoder` with any score and position (Vaswani et al. 2017,
    section 3.1).

    .. math:: output = norm(layer_N(… layer_1(input)))

    Constructor, arguments of the call and ``state_dict`` are PyTorch's. `create` makes layers with weights of their own
    from a `LayerConfig`. PyTorch's ``mask`` is the one argument whose name both conventions have::

        encoder(x, hidden)                               # by position, as in PyTorch: True hides
        encoder(x, src_mask=hidden)                      # the same
        encoder(x, mask=masks.keep(visible))             # True may attend
        encoder(x, mask="causal")                        # a Mask or a name has no convention
        encoder(x, mask=numbers)                         # a float tensor is added to the scores
        encoder(x, mask=visible)                         # KindError: a bool tensor could mean either

    The stack runs on packed rows, which skip padding, unless one of its parts is seen or replaced (by a hook, a
    wrapper, an overridden ``forward``, a parametrization, another attention with the arguments of
    `torch.nn.MultiheadAttention`). Then it runs padded, and each part is called as a module; the output of a padded
    batch is the same up to rounding.

    Args:
        encoder_layer: the layer, of which each layer of the stack is a copy.
        num_layers: number of layers.
        norm: the normalization of the output, which pre-norm layers need; None: no normalization.
        enable_nested_tensor: accepted for PyTorch's sake, without effect: ``lengths`` always skip padding.
        mask_check: accepted for PyTorch's sake, without effect.

    Raises:
        ArgumentError, KindError, UnknownNameError: an argument is invalid; the message names it.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        >>> encoder = nn.TransformerEncoder(layer, num_layers=2).eval()
        >>> tokens = torch.randn(2, 5, 32)
        >>> output = encoder(tokens, lengths=torch.tensor([5, 3]))
        >>> output.shape, output[1, 3:].any().item()  # outputs of padding are 0
        (torch.Size([2, 5, 32]), False)
        >>> alone = encoder(tokens[1:, :3])
        >>> torch.allclose(output[1, :3], alone[0], atol=1e-5)
        True
        >>> deep = nn.TransformerEncoder.create(2, nn.LayerConfig(dim=32, heads=4, feedforward=64, norm_first=True))
        >>> deep(tokens, mask="causal").shape
        torch.Size([2, 5, 32])
    """

    layer_class = TransformerEncoderLayer
    layer_argument = "encoder_layer"

    def __init__(
        self,
        encoder_layer: TransformerEncoderLayer,
        num_layers: int,
        norm: nn.Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ):
        super().__init__(encoder_layer, num_layers, norm)
        self.enable_nested_tensor = flag("enable_nested_tensor", enable_nested_tensor)
        self.mask_check = flag("mask_check", mask_check)

    @classmethod
    def create(
        cls, num_layers: int = 6, config: LayerConfig | None = None, *, bidirectional: bool = True, norm: bool = True
    ) -> "TransformerEncoder":
        """Creates a stack of new layers, each with initial weights of its own.

        Args:
            num_layers: number of layers.
            config: the configuration of the layers; None: the defaults.
            bidirectional: as in `LayerConfig.encoder_layer`.
            norm: whether to normalize the output; pre-norm layers need it.
        """
        config = checked_config(config)
        flag("bidirectional", bidirectional)
        depths = range(layer_count("num_layers", num_layers))
        layers = [config.encoder_layer(bidirectional, depth) for depth in depths]
        return cls.from_layers(layers, config.final_norm() if flag("norm", norm) else None)

    def forward(
        self,
        src: Tensor,
        src_mask: Masking | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
        *,
        mask: Masking | None = None,
        bias: Biasing | None = None,
        lengths: Tensor | None = None,
    ) -> Tensor:
        """Runs the stack on a padded batch.

        Args:
            src: ``[length, batch, d_model]``; ``[batch, length, d_model]`` with ``batch_first``; unbatched
                ``[length, d_model]``.
            src_mask: PyTorch's mask: bool (**True hides**) or float (added to the scores), as in
                `TransformerEncoderLayer`; or a `Mask`.
            src_key_padding_mask: ``[batch, length]``, or ``[length]`` if unbatched: bool (**True hides**) or float.
            is_causal: without ``src_mask``: later tokens are hidden.
            mask: a `Mask` or ``"causal"``, or a float tensor, which is added to the scores. A bool tensor is an error.
            bias: added to the scores: a tensor, a `Bias`, or ``"alibi"``.
            lengths: integers ``[batch]``, number of tokens of each sequence; None: no padding. Outputs of padding are 0
                and are not computed.

        Returns:
            A tensor in the layout of ``src``.

        Raises:
            ShapeError, KindError, ArgumentError, UnknownNameError: an input or a mask is invalid; the message names it.
        """
        src_mask, mask = stack_mask(src_mask, mask)
        input = batch_first_input("src", src, self.d_model, self.batch_first)
        (packing,) = packings(self, (input, lengths))
        hidden = TorchMask("src_mask", src_mask, src_key_padding_mask, is_causal)
        pairs = read_pairs(hidden, mask, bias, self.nhead, input, input.shape[1], src.dim() == 3)
        rows, _ = self._run(packing.pack(input), packing, pairs, None)
        return output_like(src, packing.pad(rows), self.batch_first)

    def run(self, rows: Tensor, packing: Packing, mask: Mask | None) -> Tensor:
        """Runs the stack on packed rows ``[tokens, d_model]``; the mask need not hide padding."""
        return self._run(rows, packing, Pairs(mask, None), None)[0]

    def _run(
        self, rows: Tensor, packing: Packing, pairs: Pairs, caches: Sequence[SequenceCache] | None
    ) -> tuple[Tensor, list[SequenceCache]]:
        extended: list[SequenceCache] = []
        for layer, cache in self._with_caches(caches):
            if is_own_layer(layer):
                rows, new_cache = layer.run(rows, packing, pairs.mask, cache, bias=pairs.bias)
                extended += [] if new_cache is None else [new_cache]
            else:
                input = in_layout(packing.pad(rows), self.batch_first)
                added = {} if pairs.bias is None else {"bias": pairs.bias}
                output = layer(input, lengths=packing.lengths, mask=pairs.mask, **added)
                rows = packing.pack(in_layout(output, self.batch_first))
        return self._normalized(rows, packing), extended

    def step(self, input: Tensor, caches: Sequence[SequenceCache] | None = None) -> tuple[Tensor, list[SequenceCache]]:
        """Runs the stack on the next tokens of each sequence, which see themselves and all earlier tokens.

        Args:
            input: ``[batch, new, d_model]``, also without ``batch_first``.
            caches: for each layer the keys and values of the earlier tokens; None: there are none.

        Returns:
            ``[batch, new, d_model]``, and the caches including the new tokens.

        Raises:
            KindError, ArgumentError: there is not one cache for each layer.
        """
        if self._decodes_anew(caches):
            inputs, held = self._inputs_so_far(input, caches)
            output = self(in_layout(inputs, self.batch_first), mask=causal_mask(inputs))
            return in_layout(output, self.batch_first)[:, -input.shape[1] :], held
        caches = new_caches(self) if caches is None else caches
        return self._run(input, Packing.padded(input, None), Pairs(causal_mask(input), None), caches)


TransformerEncoder.own_forward = TransformerEncoder.forward
