"""An encoder and a decoder."""

from typing import Any, Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.biases import Bias
from regard.errors import ArgumentError, KindError
from regard.names.foreign_arguments import unknown_layer_keyword
from regard.nn.fx_leaf import fx_leaf
from regard.nn.layer_config import LayerConfig
from regard.nn.layer_inputs import Masking
from regard.nn.layer_parts import Activation, LayerOptions, new_norm
from regard.nn.transformer_decoder import TransformerDecoder
from regard.nn.transformer_encoder import TransformerEncoder
from regard.nn.transformer_layers import TransformerDecoderLayer, TransformerEncoderLayer
from regard.nn.transformer_stack import checked_config, layer_count
from regard.normalizers import Normalizer
from regard.scores import Score
from regard.shapes.checks import check_module
from regard.tracing.module_calls import Module


@fx_leaf
class Transformer(Module):
    """An encoder and a decoder: `torch.nn.Transformer` with any score and position (Vaswani et al. 2017, figure 1),
    without embeddings and output projection.

    .. math:: output = decoder(target, encoder(source))

    Constructor, arguments of the call, ``state_dict`` and the initial values for a seed are PyTorch's. A mask under a
    name of PyTorch has its convention, in which True hides; a `Mask` or ``"causal"`` may be passed under each of them.
    The target sees later tokens unless a mask hides them::

        model = nn.Transformer(512, 8, batch_first=True, position="rotary", kv_heads=2)
        model(source, target, tgt_mask="causal", src_lengths=lengths)

    `create` makes the stacks from a `LayerConfig`.

    Args:
        d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps: as in `TransformerEncoderLayer`.
        batch_first, norm_first, bias, device, dtype: as in `TransformerEncoderLayer`.
        num_encoder_layers: number of layers of the encoder.
        num_decoder_layers: number of layers of the decoder.
        custom_encoder: a module instead of the encoder, with the arguments of PyTorch's. Its weights stay as they are.
        custom_decoder: a module instead of the decoder.
        options: the other options of `TransformerEncoderLayer`, for all layers: ``score``, ``normalizer``,
            ``position``, ``kv_heads``, ``norm``, ``backend``, ``feedforward_chunk``, ``activation_checkpointing``.

    Raises:
        ArgumentError, KindError, UnknownNameError: an argument is invalid; the message names it.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> model = nn.Transformer(32, 4, 2, 2, 64, batch_first=True, position="rotary", kv_heads=2).eval()
        >>> source, target = torch.randn(2, 7, 32), torch.randn(2, 5, 32)
        >>> lengths = torch.tensor([7, 4])
        >>> output = model(source, target, tgt_mask="causal", src_lengths=lengths)
        >>> output.shape
        torch.Size([2, 5, 32])
        >>> source[1, 4:] = torch.nan  # padding
        >>> torch.allclose(model(source, target, tgt_mask="causal", src_lengths=lengths), output, atol=1e-5)
        True
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = F.relu,
        custom_encoder: nn.Module | None = None,
        custom_decoder: nn.Module | None = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: Unpack[LayerOptions],
    ):
        super().__init__()
        unknown = [name for name in options if name not in LayerOptions.__annotations__]
        if unknown:
            raise KindError(unknown_layer_keyword("Transformer", Transformer, unknown, LayerOptions.__annotations__))
        layer = (
            d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias, device,
            dtype,
        )  # fmt: skip
        for name, stack in (("custom_encoder", custom_encoder), ("custom_decoder", custom_decoder)):
            _check_custom(name, stack, d_model, batch_first)
        if options and custom_encoder is not None and custom_decoder is not None:
            raise ArgumentError(f"{', '.join(options)}: options of new layers, but both stacks are custom ones")

        def norm() -> nn.Module:
            return new_norm(options.get("norm", "layer"), d_model, layer_norm_eps, bias, device, dtype)

        created: list[nn.Module] = []
        if custom_encoder is None:
            encoder_layer = TransformerEncoderLayer(*layer, **options)
            custom_encoder = TransformerEncoder(
                encoder_layer, layer_count("num_encoder_layers", num_encoder_layers), norm()
            )
            created.append(custom_encoder)
        if custom_decoder is None:
            decoder_layer = TransformerDecoderLayer(*layer, **options)
            custom_decoder = TransformerDecoder(
                decoder_layer, layer_count("num_decoder_layers", num_decoder_layers), norm()
            )
            created.append(custom_decoder)
        self.encoder = custom_encoder
        self.decoder = custom_decoder
        for stack in created:
            _initialize(stack)
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first

    @classmethod
    def create(
        cls, num_encoder_layers: int = 6, num_decoder_layers: int = 6, config: LayerConfig | None = None
    ) -> "Transformer":
        """Creates a Transformer of new layers with this configuration."""
        config = checked_config(config)
        layer_count("num_encoder_layers", num_encoder_layers)
        layer_count("num_decoder_layers", num_decoder_layers)
        return cls(
            config.dim,
            config.heads,
            custom_encoder=TransformerEncoder.create(num_encoder_layers, config),
            custom_decoder=TransformerDecoder.create(num_decoder_layers, config),
            batch_first=config.batch_first,
        )

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Masking | None = None,
        tgt_mask: Masking | None = None,
        memory_mask: Masking | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
        *,
        src_lengths: Tensor | None = None,
        tgt_lengths: Tensor | None = None,
    ) -> Tensor:
        """Encodes the source, and decodes the target with attention to it.

        Args:
            src: ``[source, batch, d_model]``; ``[batch, source, d_model]`` with ``batch_first``; unbatched
                ``[source, d_model]``.
            tgt: ``[target, batch, d_model]``, or the corresponding layout of ``src``.
            src_mask, tgt_mask, memory_mask: the masks of the source's self-attention, of the target's, and of the
                attention of the target to the source, over ``[queries, keys]`` or ``[batch * nhead, queries, keys]``:
                bool (**True hides**) or float (added to the scores); or a `Mask`, or ``"causal"``.
            src_key_padding_mask, tgt_key_padding_mask, memory_key_padding_mask: ``[batch, keys]``, or ``[keys]`` if
                unbatched: bool (**True hides**) or float. As in PyTorch that of the source does not hide it from the
                target.
            src_is_causal, tgt_is_causal, memory_is_causal: without a mask: later keys are hidden; with one it is only a
                hint.
            src_lengths: integers ``[batch]``, number of tokens of each source, in both stacks; None: no padding.
            tgt_lengths: integers ``[batch]``; outputs of padding are 0.

        Returns:
            A tensor in the layout of ``tgt``.

        Raises:
            ShapeError, KindError, UnknownNameError: an input or a mask is invalid; the message names it.
        """
        # By position the mask has PyTorch's meaning in both libraries' encoders; PyTorch's takes no other arguments.
        encoder_mask: Any = () if src_mask is None else (src_mask,)
        memory = self.encoder(
            src,
            *encoder_mask,
            **_present(src_key_padding_mask=src_key_padding_mask, is_causal=src_is_causal, lengths=src_lengths),
        )
        return self.decoder(
            tgt,
            memory,
            **_present(
                tgt_mask=tgt_mask,
                memory_mask=memory_mask,
                tgt_key_padding_mask=tgt_key_padding_mask,
                memory_key_padding_mask=memory_key_padding_mask,
                tgt_is_causal=tgt_is_causal,
                memory_is_causal=memory_is_causal or None,
                lengths=tgt_lengths,
                memory_lengths=src_lengths,
            ),
        )

    @staticmethod
    def generate_square_subsequent_mask(
        sz: int, device: torch.device | None = None, dtype: torch.dtype | None = None
    ) -> Tensor:
        """Returns PyTorch's causal mask of numbers, ``[sz, sz]``: −inf hides. ``"causal"`` needs no memory."""
        return torch.full((sz, sz), -torch.inf, device=device, dtype=dtype).triu(1)

    def extra_repr(self) -> str:
        return f"d_model={self.d_model}, nhead={self.nhead}, batch_first={self.batch_first}"


def _present(**arguments: Any) -> dict[str, Any]:
    """Returns the arguments that are not None, which are all that a stack of another kind must know."""
    return {name: value for name, value in arguments.items() if value is not None}


def _check_custom(name: str, stack: object, d_model: int, batch_first: bool) -> None:
    """Raises an error unless a `Transformer` of this size can call the stack."""
    if stack is None:
        return
    check_module(name, stack)
    if isinstance(stack, (TransformerEncoder, TransformerDecoder)):
        for argument, value in (("d_model", d_model), ("batch_first", batch_first)):
            own = getattr(stack, argument)
            if own != value:
                raise ArgumentError(f"{argument} must be that of {name}, {own}; it is {value}")


def _initialize(stack: nn.Module) -> None:
    """Gives matrices the uniform weights of Glorot and Bengio 2010, as PyTorch does, but for scores and positions."""
    parts = [part for part in stack.modules() if isinstance(part, (Score, Bias, Normalizer))]
    own = {id(parameter) for part in parts for parameter in part.parameters()}
    for parameter in stack.parameters():
        if parameter.dim() > 1 and id(parameter) not in own:
            nn.init.xavier_uniform_(parameter)
