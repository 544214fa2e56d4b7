"""The decoding half of a Transformer that reads the annotations of any encoder (Vaswani et al. 2017)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from regard import masks
from regard.distributed.sequence_parts import refuse_parts
from regard.errors import ArgumentError
from regard.models.encoders import Encoded
from regard.models.recurrent_decoder import SearchStep
from regard.models.text_predictor import DecodedRow, TextPredictor, TranslatorOutput
from regard.models.token_input import TokenInput
from regard.names.missing_names import hinted
from regard.nn import KeyValues, SequenceCache, TransformerDecoder
from regard.nn.key_values import EncoderOutput
from regard.nn.layer_parts import packings
from regard.nn.transformer_layers import WantedWeights, wanting
from regard.nn.transformer_stack import new_caches
from regard.tracing.module_calls import is_observed, runs


@hinted
@dataclass(frozen=True)
class TransformerState:
    """The state of the decoder for a batch of rows: for each layer the keys and values of the source, and those of the
    target tokens so far."""

    memory: Sequence[KeyValues | EncoderOutput]
    caches: Sequence[SequenceCache]

    def select(self, index: Tensor) -> "TransformerState":
        """Returns the rows ``index [rows]`` of this state, in that order; a row may occur several times."""
        return replace(self.reordered(index), memory=[memory.select(index) for memory in self.memory])

    def reordered(self, index: Tensor) -> "TransformerState":
        """Selects rows that have the source of the row that each replaces, so that the memory is not copied."""
        return replace(self, caches=[cache.select(index) for cache in self.caches])


class TransformerPredictor(TextPredictor):
    """Predicts a text with a Transformer decoder; a subclass encodes its kind of source.

    The weights over the source that it gives are the mean over the heads of the layer `aligned_layer`: the second last,
    whose weights agree with word alignments more than those of other layers (Garg et al. 2019, section 4.1).
    """

    target_input: TokenInput
    decoder: TransformerDecoder
    output: nn.Linear
    aligned_layer: int

    @property
    def attends(self) -> bool:
        return True

    @property
    def target_embedding(self) -> nn.Embedding:
        return self.target_input.embedding

    def start(self, encoded: Encoded) -> TransformerState:
        if not runs(self.decoder, TransformerDecoder.own_forward):
            raise ArgumentError(
                f"a search decodes step by step with caches, which a {type(self.decoder).__name__} in the place of the "
                "decoder does not have; put it around its layers"
            )
        memory = self.decoder.remember(encoded.annotations, encoded.lengths)
        return TransformerState(memory, new_caches(self.decoder))

    def step(self, tokens: Tensor, state: TransformerState) -> SearchStep:
        row = self.decode_row(tokens, state)
        logits = self.output(row.readout).float()
        return SearchStep(torch.log_softmax(logits, dim=-1), row.state, row.weights.float())

    def decode_row(self, tokens: Tensor, state: TransformerState) -> DecodedRow:
        """Runs `step` without the output matrix."""
        embedded = self.target_input(tokens[:, None], state.caches[0].length)
        rows, caches, weights = self.decoder.step(embedded, state.memory, state.caches, self.aligned_layer)
        assert weights is not None
        rows = rows.view(tokens.shape[0], -1)  # an exporter's have an axis of length
        return DecodedRow(rows, replace(state, caches=caches), weights.mean(1)[:, 0])

    def check_whole(self) -> None:
        refuse_parts(type(self).__name__)

    def decode(
        self,
        encoded: Encoded,
        target: Tensor,
        target_lengths: Tensor | None = None,
        *,
        sampling_probability: float = 0.0,
        need_weights: bool = True,
    ) -> TranslatorOutput:
        if sampling_probability:
            raise ArgumentError("sampling_probability must be 0: a Transformer decodes all tokens at once")
        # The last token of a target predicts nothing.
        lengths = None if target_lengths is None else (target_lengths - 1).clamp(min=0)
        return self.decode_tokens(encoded, target[:, :-1], lengths, need_weights=need_weights)

    def decode_tokens(
        self, encoded: Encoded, tokens: Tensor, lengths: Tensor | None = None, *, need_weights: bool = True
    ) -> TranslatorOutput:
        """Predicts the token after each of known tokens ``[batch, length]``, from ``bos`` on; of a process's part, if
        the targets are sharded. ``lengths`` are how many tokens of each whole target are no padding; None: all."""
        embedded = self.target_input(tokens)
        if not runs(self.decoder, TransformerDecoder.own_forward) and need_weights:
            raise ArgumentError(
                f"a decoder that is a {type(self.decoder).__name__} gives no weights: need_weights=False"
            )
        if runs(self.decoder, TransformerDecoder.own_forward) and not is_observed(self.decoder):
            packing, source = packings(self.decoder, (embedded, lengths), (encoded.annotations, encoded.lengths))
            memory = [EncoderOutput(source.pack(encoded.annotations), source)] * len(self.decoder.layers)
            rows, _, weights = self.decoder.run(
                packing.pack(embedded), packing, memory, masks.causal(), None,
                self.aligned_layer if need_weights else None,
            )  # fmt: skip
            output = packing.pad(rows)
        else:
            wanted = WantedWeights(self.aligned_layer) if need_weights else None
            with wanting(wanted):
                output = self.decoder(
                    embedded, encoded.annotations, lengths=lengths, memory_lengths=encoded.lengths, mask=masks.causal()
                )
            weights = None if wanted is None else wanted.weights
        return TranslatorOutput(output, None if weights is None else weights.mean(dim=1), None, self.output)
