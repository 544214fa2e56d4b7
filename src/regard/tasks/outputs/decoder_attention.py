"""Each attention of a model that predicts texts, on a known target."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from regard.tasks.lazy import records, torch

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

    from regard.attention.execution import RecordedCall
    from regard.explanations.model_attention import ModelAttention
    from regard.models.encoders import Encoded
    from regard.models.text_predictor import TextPredictor
    from regard.records import Axis, TokenAxis
    from regard.scores import Score


def decoder_attention(
    model: TextPredictor,
    encode: Callable[[], Encoded],
    target: Sequence[int],
    source_axis: Axis,
    target_axis: TokenAxis,
    chosen: Tensor | None = None,
) -> list[ModelAttention]:
    """Runs a model that predicts texts on a known target, without ``bos`` and ``eos``, and returns each of its
    attentions.

    Row t of an attention to the source belongs to target token t, which is predicted there. Self-attention of the
    decoder is between the tokens that it reads: ``bos`` and all target tokens but the last. ``chosen [target, source]``
    are the choices of hard attention.
    """
    from regard.attention.execution import recorded_calls
    from regard.explanations.model_attention import ModelAttention
    from regard.models.pointer_generator import PointerGenerator
    from regard.models.recurrent_decoder import RecurrentDecoder
    from regard.models.transformer_decoding import TransformerPredictor

    translator = model.translator if isinstance(model, PointerGenerator) else model
    prefix = "" if translator is model else "translator."
    device = next(model.parameters()).device
    attends = None if isinstance(translator, TransformerPredictor) else getattr(translator.decoder, "attention", None)
    states: list[Tensor] = []
    with torch.inference_mode(), recorded_calls() as calls, _collected(attends, states):
        encoded = encode()
        if isinstance(source_axis, records.GridAxis):
            calls.clear()  # of the gates of a convolutional network
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
        score = None if attends is None else attends.score
        return _recurrent(f"{prefix}decoder.attention", calls, source_axis, target_axis, chosen, score, states)
    attentions = [
        ModelAttention(f"{prefix}encoder.layers.{layer}.self_attn", layer, "self", source_axis, source_axis, [call])
        for layer, call in enumerate(calls[:layers])
    ]
    read = _read_axis(target_axis)
    for number, call in enumerate(calls[layers:]):
        layer, crosses = divmod(number, 2)
        name = f"{prefix}decoder.layers.{layer}." + ("multihead_attn" if crosses else "self_attn")
        axes = (target_axis, source_axis) if crosses else (read, read)
        attentions.append(ModelAttention(name, layer, "cross" if crosses else "causal", *axes, [call]))
    return attentions


@contextmanager
def _collected(attention: Module | None, states: list[Tensor]) -> Iterator[None]:
    """Collects the decoder's states with which its attention is called, ``[1, queries, dim]``."""

    def collect(module: Module, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        query = arguments[0] if arguments else options["query"]
        states.append(query if query.dim() == 3 else query[:, None])

    handle = attention.register_forward_pre_hook(collect, with_kwargs=True) if attention is not None else None
    try:
        yield
    finally:
        if handle is not None:
            handle.remove()


def _recurrent(
    name: str,
    calls: Sequence[RecordedCall],
    source: Axis,
    target: TokenAxis,
    chosen: Tensor | None,
    score: Score | None,
    states: Sequence[Tensor],
) -> list[ModelAttention]:
    from regard.explanations.model_attention import ModelAttention

    if not calls:
        return []
    soft = ModelAttention(name, 0, "cross", target, source, calls, score=score, states=states)
    if chosen is None:
        return [soft]
    return [
        ModelAttention(f"{name}, chosen", 0, "cross", target, source, calls, chosen, score, states),
        ModelAttention(f"{name}, probabilities", 0, "cross", target, source, calls, None, score, states),
    ]


def _read_axis(target: TokenAxis) -> TokenAxis:
    """Returns the tokens that the decoder reads: ``bos`` before the target, without its last token."""
    length = len(target)
    special = target.special or (False,) * length
    words = [range(word.start + 1, min(word.stop + 1, length)) for word in target.words if word.start + 1 < length]
    return records.TokenAxis(
        ("<bos>", *target.tokens[: length - 1]),
        (True, *special[: length - 1]),
        (range(1), *words) if target.words else (),
    )
