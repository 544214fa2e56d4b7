"""The layers of a Transformer: self-attention, attention to an encoder's output, and a feedforward network."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from regard.biases import Bias
from regard.errors import ShapeError
from regard.masks import Mask
from regard.nn.fx_leaf import fx_leaf
from regard.nn.key_values import EncoderOutput, KeyValues, SequenceCache
from regard.nn.layer_inputs import Biasing, Masking, TorchMask, batch_first_input, output_like, read_pairs
from regard.nn.layer_parts import AttendedRows, TransformerLayer, packings
from regard.nn.packing import Packing
from regard.nn.torch_inputs import without_padded_keys


@dataclass
class WantedWeights:
    """The weights of the attention to an encoder's output, ``[batch, heads, target, source]``, that are wanted of a
    layer's call that returns none; ``layer`` is its number in its stack."""

    layer: int
    weights: Tensor | None = None


_WANTED_WEIGHTS: ContextVar[WantedWeights | None] = ContextVar("wanted weights", default=None)


def wanted_weights() -> WantedWeights | None:
    """Returns the weights that this call must fill in; None: there are none, as in calls that a compiler traces."""
    return None if torch.compiler.is_compiling() else _WANTED_WEIGHTS.get()


@contextmanager
def wanting(weights: WantedWeights | None) -> Iterator[None]:
    """Returns a context in which decoders and their layers, also those inside other modules, fill in the weights."""
    token = _WANTED_WEIGHTS.set(weights)
    try:
        yield
    finally:
        _WANTED_WEIGHTS.reset(token)


@fx_leaf
class TransformerEncoderLayer(TransformerLayer):
    """Self-attention and a feedforward network: `torch.nn.TransformerEncoderLayer` with any score and position.

    .. math::

        x ← norm1(x + self_attn(x))
        x ← norm2(x + linear2(activation(linear1(x))))

    Vaswani et al. 2017, section 3.1 and eq. 2; ``norm_first`` normalizes the input of each part instead. With a causal
    mask it is the layer of a language model. Constructor, arguments of the call, parameters, their order, and their
    initial values for a seed are PyTorch's, so that states of modules and of optimizers can be loaded from one into the
    other, unless there are grouped heads, or weights of a score or of a position. The differences:

    - A query that may see no key gets no values instead of NaN.
    - ``is_causal=True`` needs no mask. With a mask it is only a hint, as in PyTorch.
    - ``lengths`` are the faster form of padding: projections and the feedforward network skip it, and its outputs are
      0. With ``src_key_padding_mask`` its outputs are computed, as PyTorch does in training.

    Two conventions of masks, which `regard.nn.layer_inputs` lists::

        layer(x, src_mask=torch.ones(5, 5).triu(1).bool())   # PyTorch's names: True hides
        layer(x, mask=torch.ones(5, 5).tril().bool())        # regard's: True may attend
        layer(x, mask="causal")                              # a Mask or a name has no convention

    Args:
        d_model: features of a token.
        nhead: query heads, a divisor of ``d_model``.
        dim_feedforward: units of the hidden layer of the feedforward network.
        dropout: rate after each part, in the feedforward network, and of attention weights; in [0, 1).
        activation: ``relu``, ``gelu``, ``silu``, or a function or module that maps a tensor to one of its shape.
        layer_norm_eps: ε of the normalizations.
        batch_first: ``[batch, length, d_model]`` instead of ``[length, batch, d_model]``.
        norm_first: normalization before each part (Xiong et al. 2020) instead of after the sum.
        bias: whether projections and normalizations have biases.
        device, dtype: device and dtype of the parameters.
        score: a name of `regard.scores.create`, of which each attention has its own weights, a `Score` or a function.
        normalizer: a name, a `Normalizer` or a function.
        position: positions in self-attention: ``rotary``, ``alibi``, ``t5``, ``shaw``, a `Rotary` or a `Bias`.
        bidirectional: whether tokens may see later ones; if False, ``t5`` has buckets for earlier ones only. Default:
            True in an encoder layer, False in a decoder layer.
        kv_heads: key and value heads, a divisor of ``nhead``; None: as many as ``nhead``.
        attention: the self-attention: ``multihead``, another name of `regard.nn.attention_names`, which takes of the
            options those that it has, or a `SequenceAttention`, which has its own.
        depth: number of the layer in its stack, from 0, for an attention whose first values depend on it.
        norm: ``layer``, or ``rms``, which has no bias.
        backend: backend of every attention.
        feedforward_chunk: as in `LayerConfig`.
        activation_checkpointing: as in `LayerConfig`.

    Raises:
        ArgumentError, KindError, UnknownNameError: an argument is invalid; the message names it.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> theirs = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).eval()
        >>> layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).eval()
        >>> layer.load_state_dict(theirs.state_dict())
        <All keys matched successfully>
        >>> tokens, hidden = torch.randn(2, 5, 32), torch.ones(5, 5).triu(1).bool()
        >>> torch.allclose(layer(tokens, mask="causal"), theirs(tokens, src_mask=hidden), atol=1e-5)
        True
        >>> sparse = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, normalizer="entmax15", position="rotary")
        >>> sparse(tokens, lengths=torch.tensor([5, 3])).shape
        torch.Size([2, 5, 32])
    """

    def forward(
        self,
        src: Tensor,
        src_mask: Masking | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
        *,
        mask: Masking | None = None,
        bias: Biasing | None = None,
        lengths: Tensor | None = None,
    ) -> Tensor:
        """Runs the layer on a padded batch.

        Args:
            src: ``[length, batch, d_model]``; ``[batch, length, d_model]`` with ``batch_first``; unbatched
                ``[length, d_model]``.
            src_mask: PyTorch's mask, ``[length, length]`` or ``[batch * nhead, length, length]``: bool (**True hides**)
                or float (added to the scores); or a `Mask`.
            src_key_padding_mask: ``[batch, length]``, or ``[length]`` if unbatched: bool (**True hides**) or float.
            is_causal: without ``src_mask``: later tokens are hidden.
            mask: regard's mask: a `Mask`, ``"causal"``, or a bool tensor (**True: may attend**) that broadcasts to
                ``[batch, nhead, length, length]``. All masks apply together.
            bias: added to the scores: a tensor, a `Bias`, or ``"alibi"``.
            lengths: integers ``[batch]``, number of tokens of each sequence; None: no padding. Outputs of padding are 0
                and are not computed.

        Returns:
            A tensor in the layout of ``src``.

        Raises:
            ShapeError, KindError, UnknownNameError: an input or a mask is invalid; the message names it.
        """
        input = batch_first_input("src", src, self.d_model, self.batch_first)
        (packing,) = packings(self, (input, lengths))
        hidden = TorchMask("src_mask", src_mask, src_key_padding_mask, is_causal)
        visible, added = read_pairs(hidden, mask, bias, self.nhead, input, input.shape[1], src.dim() == 3)
        rows = self.run(packing.pack(input), packing, visible, bias=added).rows
        return output_like(src, packing.pad(rows), self.batch_first)

    def run(
        self,
        rows: Tensor,
        packing: Packing,
        mask: Mask | None,
        cache: SequenceCache | None = None,
        *,
        bias: Bias | None = None,
    ) -> AttendedRows:
        """Runs the layer on packed rows.

        Args:
            rows: ``[tokens, d_model]``, or both axes as the packing keeps them.
            packing: the packing of the rows.
            mask: which tokens each token may see, besides padding.
            cache: keys and values of earlier tokens, which are attended to as well.
            bias: added to the scores.

        Returns:
            The rows, ``[tokens, d_model]``, and the cache with the new tokens; None if there was none.
        """
        attended = self._part(self._attend_to_self)(rows, packing, mask, bias, cache)
        last = self.dropout1, self.norm1
        return AttendedRows(self._transform(rows, attended.rows, last, self.norm2), attended.cache)


TransformerEncoderLayer.own_forward = TransformerEncoderLayer.forward


class DecoderRows(NamedTuple):
    """The output of a decoder's layer, ``[tokens, dim]``, the cache with these tokens, and the weights of the attention
    to the encoder's output, ``[batch, heads, target, source]``; the last two may be None."""

    rows: Tensor
    cache: SequenceCache | None
    weights: Tensor | None


@fx_leaf
class TransformerDecoderLayer(TransformerLayer):
    """Self-attention, attention to an encoder's output, and a feedforward network: `torch.nn.TransformerDecoderLayer`
    with any score and position.

    .. math::

        x ← norm1(x + self_attn(x))
        x ← norm2(x + multihead_attn(x, memory))
        x ← norm3(x + linear2(activation(linear1(x))))

    Vaswani et al. 2017, section 3.1 and eq. 2; ``norm_first`` normalizes the input of each part instead. What
    `TransformerEncoderLayer` says of PyTorch, of masks and of padding holds here too. ``memory_mask`` has PyTorch's
    convention; a `Mask` says itself who sees whom::

        layer(x, memory, memory_mask=hidden)                        # a bool tensor: True hides
        layer(x, memory, memory_mask=masks.keep(visible))           # True may attend
        layer(x, memory, mask="causal", memory_lengths=lengths)     # mask: of self-attention, in regard's convention

    Args: as for `TransformerEncoderLayer`. The position belongs to self-attention alone.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> layer = nn.TransformerDecoderLayer(32, 4, 64, batch_first=True, position="alibi").eval()
        >>> target, memory = torch.randn(2, 5, 32), torch.randn(2, 7, 32)
        >>> output = layer(target, memory, mask="causal", memory_lengths=torch.tensor([7, 3]))
        >>> output.shape
        torch.Size([2, 5, 32])
        >>> alone = layer(target[1:], memory[1:, :3], mask="causal")
        >>> torch.allclose(output[1], alone[0], atol=1e-5)  # the second source has 3 tokens
        True
    """

    _reads_memory = True

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Masking | None = None,
        memory_mask: Masking | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
        *,
        mask: Masking | None = None,
        bias: Biasing | None = None,
        memory_bias: Biasing | None = None,
        lengths: Tensor | None = None,
        memory_lengths: Tensor | None = None,
    ) -> Tensor:
        """Runs the layer on a padded batch.

        Args:
            tgt: ``[target, batch, d_model]``; ``[batch, target, d_model]`` with ``batch_first``; unbatched
                ``[target, d_model]``.
            memory: the encoder's output, in the layout of ``tgt``.
            tgt_mask: PyTorch's mask of self-attention, ``[target, target]`` or ``[batch * nhead, target, target]``:
                bool (**True hides**) or float (added to the scores); or a `Mask`.
            memory_mask: the same for the attention to the memory, over ``[target, source]``.
            tgt_key_padding_mask: ``[batch, target]``, or ``[target]`` if unbatched: bool (**True hides**) or float.
            memory_key_padding_mask: ``[batch, source]``, or ``[source]`` if unbatched.
            tgt_is_causal: without ``tgt_mask``: later tokens are hidden.
            memory_is_causal: without ``memory_mask``: the last token sees the whole memory, each earlier one a key
                less.
            mask: regard's mask of self-attention: a `Mask`, ``"causal"``, or a bool tensor (**True: may attend**) that
                broadcasts to ``[batch, nhead, target, target]``. All masks apply together.
            bias: added to the scores of self-attention: a tensor, a `Bias`, or ``"alibi"``.
            memory_bias: added to the scores of the attention to the memory.
            lengths: integers ``[batch]``, number of tokens of each target; None: no padding. Outputs of padding are 0
                and are not computed.
            memory_lengths: integers ``[batch]``, number of tokens of each source; None: no padding.

        Returns:
            A tensor in the layout of ``tgt``.

        Raises:
            ShapeError, KindError, UnknownNameError: an input or a mask is invalid; the message names it.
        """
        input = batch_first_input("tgt", tgt, self.d_model, self.batch_first)
        own = TorchMask("tgt_mask", tgt_mask, tgt_key_padding_mask, tgt_is_causal)
        crossed = TorchMask("memory_mask", memory_mask, memory_key_padding_mask, memory_is_causal)
        output = memory_output(memory, tgt, input, self.batch_first, memory_key_padding_mask)
        packing, source = packings(self, (input, lengths), (output, memory_lengths))
        is_batched, wanted = tgt.dim() == 3, wanted_weights()
        visible, added = read_pairs(own, mask, bias, self.nhead, input, input.shape[1], is_batched)
        over_memory = read_pairs(crossed, None, memory_bias, self.nhead, input, output.shape[1], is_batched)
        rows, _, weights = self.run(
            packing.pack(input), packing, EncoderOutput(source.pack(output), source), visible,
            need_weights=wanted is not None, bias=added, memory_mask=over_memory.mask, memory_bias=over_memory.bias,
        )  # fmt: skip
        if wanted is not None:
            wanted.weights = weights
        return output_like(tgt, packing.pad(rows), self.batch_first)

    def remember(self, rows: Tensor, packing: Packing) -> KeyValues:
        """Returns the keys and values of an encoder's output ``[source tokens, d_model]``, for `run`."""
        return self.multihead_attn.remember(EncoderOutput(rows, packing))

    def run(
        self,
        rows: Tensor,
        packing: Packing,
        memory: KeyValues | EncoderOutput,
        mask: Mask | None,
        cache: SequenceCache | None = None,
        need_weights: bool = False,
        *,
        bias: Bias | None = None,
        memory_mask: Mask | None = None,
        memory_bias: Bias | None = None,
    ) -> DecoderRows:
        """Runs the layer on packed rows.

        Args:
            rows: ``[tokens, d_model]``, or both axes as the packing keeps them.
            packing: the packing of the rows.
            memory: the result of `remember`, or the encoder's output itself.
            mask: which tokens each token may see in self-attention, besides padding.
            cache: keys and values of earlier target tokens, which are attended to as well.
            need_weights: whether to return the weights of the attention to the encoder's output; the rows are the same,
                bit for bit.
            bias: added to the scores of self-attention.
            memory_mask: a mask of the attention to the encoder's output, besides its padding.
            memory_bias: added to the scores of the attention to the encoder's output.

        Returns:
            The rows, ``[tokens, d_model]``, the cache with the new tokens, and the weights, each None if there is none.
        """
        attended = self._part(self._attend_to_self)(rows, packing, mask, bias, cache)
        rows = self._part(self._after)(rows, attended.rows, self.dropout1, self.norm1)
        crossed, weights = self._part(self._attend_to_memory)(
            rows, packing, memory, memory_mask, memory_bias, need_weights
        )
        last = self.dropout2, self.norm2
        return DecoderRows(self._transform(rows, crossed, last, self.norm3), attended.cache, weights)

    def _attend_to_memory(
        self,
        rows: Tensor,
        packing: Packing,
        memory: KeyValues | EncoderOutput,
        mask: Mask | None,
        bias: Bias | None,
        need_weights: bool,
    ) -> tuple[Tensor, Tensor | None]:
        """Attends to an encoder's output, and returns the output and the weights; arguments as for `run`."""
        rows = self._before(rows, self.norm2)
        if packing.is_joined or isinstance(memory, KeyValues):
            return self.multihead_attn.attend_to_memory(rows, packing, memory, mask, bias, need_weights)
        return self._call(self.multihead_attn, rows, memory.padded, memory.packing, mask, bias, need_weights)


TransformerDecoderLayer.own_forward = TransformerDecoderLayer.forward


def memory_output(memory: Tensor, tgt: Tensor, input: Tensor, batch_first: bool, padding: Tensor | None) -> Tensor:
    """Returns the memory of a decoder as ``[batch, source, features]``, without hidden NaN; raises unless it fits.

    ``input`` is ``tgt`` as ``[batch, target, features]``, and ``padding`` PyTorch's ``memory_key_padding_mask``.
    """
    source = batch_first_input("memory", memory, None, batch_first)
    if memory.dim() != tgt.dim():
        raise ShapeError(f"memory must have as many axes as tgt, {tgt.dim()}; it has shape {list(memory.shape)}")
    if source.shape[0] != input.shape[0]:
        raise ShapeError(f"memory must have tgt's batch, {input.shape[0]}; it has shape {list(memory.shape)}")
    return without_padded_keys(input, source, source, padding, True)[0]
