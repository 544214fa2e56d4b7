"""The layers of regard in classes of transformers: conditions, and the weights under other names."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from regard.exports.formats import UnexportableError
from regard.nn.layer_parts import ACTIVATIONS
from regard.nn.multihead import MultiheadAttention
from regard.normalizers import Softmax
from regard.scores import ScaledDot

Condition = tuple[bool, str, Mapping[str, Any]]
"""Whether it holds, the reason if it does not, and the options of a training that make it hold."""

OTHER_FORMATS = "export to onnx or torch"
"""The formats for a model that no class computes."""


def activation_name(layer: Any) -> str:
    """Returns the name of the activation of a layer of one of regard's models."""
    return next(name for name, function in ACTIVATIONS.items() if function is layer.activation)


def check_layers(
    layers: Iterable[Any], *, grouped: bool = False, pre: bool = True, more: Sequence[Condition] = ()
) -> None:
    """Raises UnexportableError unless the layers of all stacks compute what those of transformers do, which have fewer
    key heads than query heads if ``grouped`` and normalize before each part if ``pre``, and ``more`` holds."""
    layers = list(layers)
    if not all(isinstance(layer.self_attn, MultiheadAttention) for layer in layers):
        raise UnexportableError(
            "no class of transformers computes this model: its self-attention is not multi-head attention",
            {"self_attention": "multihead"},
            OTHER_FORMATS,
        )
    attentions = [one for layer in layers for one in (layer.self_attn, getattr(layer, "multihead_attn", None)) if one]
    conditions = [
        *more,
        _norm_condition(layers, pre),
        (all(_is_scaled_dot(one.score) for one in attentions), "its score is not scaled_dot", {"score": "scaled_dot"}),
        (
            all(_is_softmax(one.normalizer) for one in attentions), "its normalizer is not softmax",
            {"normalizer": "softmax"},
        ),
        (
            grouped or all(one.kv_heads == one.num_heads for one in attentions),
            "it has fewer key heads than query heads", {"kv_heads": None},
        ),
    ]  # fmt: skip
    wrong = [(reason, option) for holds, reason, option in conditions if not holds]
    if wrong:
        reasons = " and ".join(dict.fromkeys(reason for reason, _ in wrong))
        options = {name: value for _, one in wrong for name, value in one.items()}
        raise UnexportableError(f"no class of transformers computes this model: {reasons}", options, OTHER_FORMATS)


def _norm_condition(layers: Sequence[Any], pre: bool) -> Condition:
    """Returns the condition that layers normalize where the class does."""
    first = [layer.norm_first for layer in layers]
    if pre:
        return all(first), "it normalizes after each part (post-norm)", {"norm": "pre"}
    return not any(first), "it normalizes before each part (pre-norm)", {"norm": "post"}


def no_final_norm(*stacks: Any) -> Condition:
    """Returns the condition that stacks do not normalize once more at their end: classes of post-norm layers do not."""
    holds = all(stack.norm is None or stack.layers[0].norm_first for stack in stacks)
    reason = "its stacks end with one more normalization, as those of version 0.1 do"
    return holds, reason, {"norm": "post", "final_norm": False}


def _is_scaled_dot(score: Any) -> bool:
    return type(score) is ScaledDot and score.scale is None


def _is_softmax(normalizer: Any) -> bool:
    temperature = normalizer.temperature if type(normalizer) is Softmax else None
    return isinstance(temperature, float) and temperature == 1.0


class Projection(NamedTuple):
    """A linear map: ``[output, input]`` and ``[output]``."""

    weight: Tensor
    bias: Tensor


def inputs_of(attention: Any) -> dict[str, Projection]:
    """Returns the projections of query, key and value: ``q``, ``k`` and ``v``."""
    widths, bias = attention.widths, attention.in_proj_bias
    if attention.in_proj_weight is not None:
        weights = attention.in_proj_weight.split(widths)
    else:
        weights = attention.q_proj_weight, attention.k_proj_weight, attention.v_proj_weight
    pairs = zip(weights, bias.split(widths), strict=True)
    return {name: Projection(*pair) for name, pair in zip("qkv", pairs, strict=True)}


def linear(name: str, layer: Any) -> dict[str, Tensor]:
    """Returns the weight and the bias of a layer, or of a normalization."""
    return {f"{name}.weight": layer.weight, f"{name}.bias": layer.bias}


def attention_weights(name: str, attention: Any, output: str) -> dict[str, Tensor]:
    """Returns the weights of an attention whose projections are ``q_proj``, ``k_proj``, ``v_proj`` and ``output``."""
    tensors = linear(f"{name}.{output}", attention.out_proj)
    for letter, projection in inputs_of(attention).items():
        tensors |= linear(f"{name}.{letter}_proj", projection)
    return tensors
