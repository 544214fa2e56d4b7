"""Scores, normalizers, masks and biases as a text and a list of tensors: what an operator of PyTorch can take.

``encode`` turns an object into a Python literal, a tuple of its class's name and its fields, in which tensors are their
places in a list; ``decode`` makes the object again, in any process. Objects that hold functions have no text.
"""

import ast
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from torch import Tensor, nn

from regard import biases, masks, normalizers, scores
from regard.masks.batch_integers import BatchInteger
from regard.masks.mask import Not

FIELDS: dict[type, tuple[str, ...]] = {
    scores.Dot: (),
    scores.ScaledDot: ("scale",),
    scores.Cosine: ("temperature",),
    scores.Distance: ("squared",),
    scores.General: ("weight",),
    scores.Additive: ("weight", "query_projection", "key_projection"),
    scores.Location: ("weight",),
    scores.LocationAware: (
        "weight", "convolution", "location_projection", "query_projection", "key_projection", "previous_weights",
    ),
    scores.SoftCap: ("score", "cap"),
    normalizers.Softmax: ("temperature",),
    normalizers.SoftmaxWithSink: ("sink",),
    normalizers.Entmax: ("alpha",),
    normalizers.Sparsemax: (),
    normalizers.Sigmoid: ("bias",),
    normalizers.Hard: ("mode", "temperature", "generator"),
    normalizers.LocalGaussian: ("normalizer", "center", "sigma"),
    masks.Band: ("before", "after", "align", "offset"),
    masks.Lengths: ("keys", "queries"),
    masks.Documents: ("query_ids", "key_ids"),
    masks.Prefix: ("n",),
    masks.Dilated: ("step",),
    masks.Keep: ("tensor",),
    masks.AppendedMask: ("mask", "appended"),
    masks.And: ("parts",),
    masks.Or: ("parts",),
    Not: ("mask",),
    biases.TensorBias: ("tensor",),
    biases.Alibi: ("heads",),
    biases.RelativeBias: ("heads", "buckets", "max_distance", "bidirectional", "weight"),
    biases.RelativePosition: ("dim", "max_distance", "heads", "scale", "weight"),
    biases.SummedBias: ("biases",),
    biases.AppendedBias: ("bias", "appended"),
    BatchInteger: ("value",),
    nn.Linear: ("weight", "bias"),
    nn.Conv1d: ("weight", "bias", "stride", "padding", "dilation"),
}  # fmt: skip
"""What an object of each class is made again from, in the order of its constructor."""


def encode(value: Any, tensors: list[Tensor]) -> str | None:
    """The text of a value; None if it is something that has none, or holds it, as a function.

    Args:
        value: an object of a class in `FIELDS`, a tensor, None, a bool, a number, a text, or a sequence of these.
        tensors: gets the tensors.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    if isinstance(value, Tensor):
        tensors.append(value)
        return f"('tensor', {len(tensors) - 1})"
    if isinstance(value, tuple | list | nn.ModuleList):
        name, parts = "sequence", [encode(item, tensors) for item in value]
    elif type(value) in FIELDS:
        name, parts = type(value).__name__, [encode(getattr(value, field), tensors) for field in FIELDS[type(value)]]
    else:
        return None
    text = repr(name)
    for part in parts:
        if part is None:
            return None
        text += ", " + part
    return f"({text},)"


def decode(text: str, tensors: Sequence[Tensor]) -> Any:
    """What was encoded, with other tensors in the places of the first ones."""
    return _build(_parsed(text), tensors)


@cache
def _parsed(text: str) -> Any:
    return ast.literal_eval(text)


def _build(node: Any, tensors: Sequence[Tensor]) -> Any:
    if not isinstance(node, tuple):
        return node
    name, *rest = node
    if name == "tensor":
        return tensors[rest[0]]
    parts = [_build(item, tensors) for item in rest]
    if name == "sequence":
        return parts
    return _CONSTRUCTORS[name](*parts)


def _linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias is not None, device="meta")
    return _with_tensors(layer, weight=weight, bias=bias)


def _convolution(weight: Tensor, bias: Tensor | None, stride: Any, padding: Any, dilation: Any) -> nn.Conv1d:
    out_channels, in_channels, width = weight.shape
    layer = nn.Conv1d(
        in_channels, out_channels, width, tuple(stride), padding if isinstance(padding, str) else tuple(padding),
        tuple(dilation), bias=bias is not None, device="meta",
    )  # fmt: skip
    return _with_tensors(layer, weight=weight, bias=bias)


def _with_tensors(module: Any, **tensors: Tensor | None) -> Any:
    """The module with these tensors in the place of its parameters; a gradient reaches them."""
    for name, tensor in tensors.items():
        if tensor is not None:
            del module._parameters[name]
            setattr(module, name, tensor)
    return module


def _location_aware(weight: Tensor, *parts: Any) -> scores.LocationAware:
    convolution, location, query_projection, key_projection, previous = parts
    score = scores.LocationAware(weight, convolution, location, query_projection, key_projection)
    return score if previous is None else score.given(previous)


def _relative_bias(*parts: Any) -> biases.RelativeBias:
    *sizes, weight = parts
    return _with_tensors(biases.RelativeBias(*sizes), weight=weight)


def _relative_position(*parts: Any) -> biases.RelativePosition:
    *sizes, weight = parts
    return _with_tensors(biases.RelativePosition(*sizes), weight=weight)


_CONSTRUCTORS: dict[str, Callable[..., Any]] = {
    **{kind.__name__: kind for kind in FIELDS},
    "And": lambda parts: masks.And(*parts),
    "Or": lambda parts: masks.Or(*parts),
    "BatchInteger": lambda value: value,
    "Linear": _linear,
    "Conv1d": _convolution,
    "LocationAware": _location_aware,
    "RelativeBias": _relative_bias,
    "RelativePosition": _relative_position,
}
