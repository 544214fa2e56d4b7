"""The attentions of a translator: those of its encoder, its decoder, and between them."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from regard.attention.execution import RecordedCall, recorded_calls
from regard.explanations.model_attention import ModelAttention
from regard.models.encoders import Encoded
from regard.models.pointer_generator import PointerGenerator
from regard.models.recurrent_decoder import RecurrentDecoder
from regard.models.text_predictor import TextPredictor
from regard.models.transformer_decoding import TransformerPredictor
from regard.models.translator import Translator
from regard.records import Axis, TokenAxis


def translator_attention(
    model: Translator,
    source: Sequence[int],
    target: Sequence[int],
    source_axis: TokenAxis,
    target_axis: TokenAxis,
    chosen: Tensor | None = None,
) -> list[ModelAttention]:
    """Run a translator on a source and a known target, and give each of its attentions.

    Row t of an attention to the source belongs to target token t, which is predicted there. Self-attention of the
    decoder is between the tokens that it reads: ``bos`` and all target tokens but the last.

    Args:
        model: the model, in evaluation mode.
        source: ids of the source; none: there is nothing to attend to.
        target: ids of the target, without ``bos`` and ``eos``.
        source_axis: labels of the source.
        target_axis: labels of the target.
        chosen: ``[target, source]``: the choices of hard attention; None: the model has soft attention.
    """
    if not source:
        return []
    return source_attention(model, torch.tensor([list(source)]), target, source_axis, target_axis, chosen)


def source_attention(
    model: Translator,
    source: Tensor,
    target: Sequence[int],
    source_axis: Axis,
    target_axis: TokenAxis,
    chosen: Tensor | None = None,
) -> list[ModelAttention]:
    """`translator_attention` for a source of any kind.

    Args:
        model: the model, in evaluation mode.
        source: a batch of one whole source: ``[1, length, ...]``.
        target: ids of the target, without ``bos`` and ``eos``.
        source_axis: what the annotations of the source stand for.
        target_axis: labels of the target.
        chosen: as for `translator_attention`.
    """
    device = next(model.parameters()).device
    ids, lengths = source.to(device), torch.tensor([source.shape[1]], device=device)
    return decoder_attention(model, lambda: model.encode(ids, lengths), target, source_axis, target_axis, chosen)


def decoder_attention(
    model: TextPredictor,
    encode: Callable[[], Encoded],
    target: Sequence[int],
    source_axis: Axis,
    target_axis: TokenAxis,
    chosen: Tensor | None = None,
) -> list[ModelAttention]:
    """`source_attention` for a model that predicts a text from annotations of anything.

    Args:
        model: the model, in evaluation mode.
        encode: gives the annotations of one source.
        target: as for `source_attention`.
        source_axis: as for `source_attention`.
        target_axis: as for `source_attention`.
        chosen: as for `source_attention`.
    """
    translator = model.translator if isinstance(model, PointerGenerator) else model
    prefix = "" if translator is model else "translator."
    device = next(model.parameters()).device
    with torch.inference_mode(), recorded_calls() as calls:
        encoded = encode()
        layers = len(calls)  # a recurrent encoder has no attention
        if target:
            # The last token is read by no step.
            known = torch.tensor([[model.config.bos, *target]], device=device)
            if isinstance(model, PointerGenerator):
                model.decode(encoded, model.known(known), None)
            elif isinstance(model, TransformerPredictor):
                model.decode(encoded, known)
            else:
                decoder = model.decoder
                assert isinstance(decoder, RecurrentDecoder)
                decoder.decode(known[:, :-1], model.start(encoded))
    if not isinstance(translator, TransformerPredictor):
        return _recurrent(f"{prefix}decoder.attention", calls, source_axis, target_axis, chosen)
    found = [
        ModelAttention(f"{prefix}encoder.layers.{layer}.self_attn", layer, "self", source_axis, source_axis, [call])
        for layer, call in enumerate(calls[:layers])
    ]
    read = _read_axis(target_axis)
    for place, call in enumerate(calls[layers:]):
        layer, crosses = divmod(place, 2)
        name = f"{prefix}decoder.layers.{layer}." + ("multihead_attn" if crosses else "self_attn")
        axes = (target_axis, source_axis) if crosses else (read, read)
        found.append(ModelAttention(name, layer, "cross" if crosses else "causal", *axes, [call]))
    return found


def _recurrent(
    name: str, calls: Sequence[RecordedCall], source: Axis, target: TokenAxis, chosen: Tensor | None
) -> list[ModelAttention]:
    if not calls:
        return []
    soft = ModelAttention(name, 0, "cross", target, source, calls)
    if chosen is None:
        return [soft]
    return [
        ModelAttention(f"{name}, chosen", 0, "cross", target, source, calls, chosen),
        ModelAttention(f"{name}, probabilities", 0, "cross", target, source, calls),
    ]


def _read_axis(target: TokenAxis) -> TokenAxis:
    """The tokens that the decoder reads: ``bos`` before the target, without its last token."""
    length = len(target)
    special = target.special or (False,) * length
    words = [range(word.start + 1, min(word.stop + 1, length)) for word in target.words if word.start + 1 < length]
    return TokenAxis(
        ("<bos>", *target.tokens[: length - 1]),
        (True, *special[: length - 1]),
        (range(1), *words) if target.words else (),
    )
