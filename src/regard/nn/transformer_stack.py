"""What the stacks of a Transformer share: additional inputs, the final normalization, and checks."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from torch import Tensor, nn

from regard import masks
from regard.errors import ArgumentError, KindError
from regard.masks import Mask
from regard.module_calls import is_observed, runs
from regard.nn.called_layers import SelfArguments
from regard.nn.key_values import EncoderOutput, KeyValues, SequenceCache
from regard.nn.layer_config import LayerConfig
from regard.nn.layer_inputs import (
    in_layout,
)
from regard.nn.transformer_layers import (
    TransformerLayer,
)
from regard.shapes import kind_of, whole_number

LAYERS_LIMIT = 10_000
"""Largest number of layers of a new stack."""

LayerT = TypeVar("LayerT")
NORMS = (nn.LayerNorm.forward, nn.RMSNorm.forward)


@dataclass(eq=False)
class StackCall:
    """Additional inputs and outputs of a decoding step, for a stack that is called as a module.

    Attributes:
        caches: for each layer the keys and values of earlier tokens; after the call also those of the new tokens. None:
            no caches.
        memory: the result of `TransformerDecoder.remember`.
        padded: the same memory as the argument of the stack, ``[batch, source, dim]``.
        weights_of: as in `TransformerDecoder.run`.
        weights: the weights of that layer, after the call.
    """

    caches: Sequence[SequenceCache] | None = None
    memory: Sequence[KeyValues | EncoderOutput] | None = None
    padded: Tensor | None = None
    weights_of: int | None = None
    weights: Tensor | None = None


def check_forward(stack: nn.Module, forward: Callable[..., Tensor]) -> None:
    """Raises ArgumentError if a stack has another ``forward``, which does not support caches."""
    if not runs(stack, forward):
        raise ArgumentError(
            f"step continues {forward.__qualname__} with caches, and {type(stack).__name__} has another forward: "
            "define step as well, or decode without caches"
        )


def with_caches(
    layers: Sequence[LayerT], caches: Sequence[SequenceCache] | None
) -> Iterable[tuple[LayerT, SequenceCache | None]]:
    """Pairs each layer with its cache, or with None.

    Raises:
        KindError, ArgumentError: there is not one `SequenceCache` for each layer.
    """
    if caches is None:
        return zip(layers, [None] * len(layers), strict=True)
    if not isinstance(caches, (list, tuple)) or not all(isinstance(cache, SequenceCache) for cache in caches):
        raise KindError(f"caches must be {_CACHES}; it is {kind_of(caches)}")
    if len(caches) != len(layers):
        raise ArgumentError(f"caches must be {_CACHES}, of which there are {len(layers)}; it has {len(caches)}")
    return zip(layers, caches, strict=True)


_CACHES = "None before the first token, then what the last step returned, a list of one cache for each layer"


def check_memory(memory: object, layers: int) -> None:
    """Raises an error unless this is what `TransformerDecoder.remember` returns, with one part for each layer."""
    line = "write remembered = decoder.remember(memory); then decoder.step(input, remembered, caches)"
    if not isinstance(memory, (list, tuple)) or not all(
        isinstance(each, (KeyValues, EncoderOutput)) for each in memory
    ):
        raise KindError(f"memory must be what remember returned, not {_kind_of_memory(memory)}: {line}")
    if len(memory) != layers:
        raise ArgumentError(f"memory must have one part for each of {layers} layers; it has {len(memory)}: {line}")


def _kind_of_memory(memory: object) -> str:
    return "the encoder's output itself" if isinstance(memory, Tensor) else kind_of(memory)


def normalize(norm: nn.Module | None, rows: Tensor, arguments: SelfArguments) -> Tensor:
    """Normalizes the rows at the end of a stack; the module gets padded rows if its call can be observed."""
    if norm is None:
        return rows
    if type(norm).forward in NORMS and runs(norm, type(norm).forward) and not is_observed(norm):
        return norm(rows)
    packing, batch_first = arguments.packing, arguments.batch_first
    return packing.pack(in_layout(norm(in_layout(packing.pad(rows), batch_first)), batch_first))


def causal_mask(input: Tensor) -> Mask | None:
    # A single new token sees every earlier token and needs no mask.
    return masks.causal() if input.shape[1] > 1 else None


def check_layer(name: str, layer: object, kind: type[TransformerLayer]) -> None:
    """Raises KindError unless the layer is of this kind."""
    if not isinstance(layer, kind):
        raise KindError(
            f"{name} must be a regard.nn.{kind.__name__}; it is {kind_of(layer)} of {type(layer).__module__}. Write "
            f"regard.nn.{kind.__name__}(d_model, nhead), or for layers of their own weights "
            f"{kind.__name__.removesuffix('Layer')}.create(6, LayerConfig(dim=512, heads=8))"
        )


def check_layers(layers: object, kind: type[TransformerLayer]) -> None:
    """Raises an error unless these are layers of this kind that fit into one stack."""
    if not isinstance(layers, (Sequence, nn.ModuleList)) or isinstance(layers, str):
        raise KindError(f"layers must be a sequence of regard.nn.{kind.__name__}; it is {kind_of(layers)}")
    if not len(layers):
        raise ArgumentError("layers must hold at least one layer; it is empty")
    for number, layer in enumerate(layers):
        check_layer(f"layers[{number}]", layer, kind)
    for name in ("d_model", "nhead", "batch_first"):
        values = {getattr(layer, name) for layer in layers}
        if len(values) > 1:
            raise ArgumentError(f"layers must all have one {name}; they have {sorted(values)}")


def layout_of(layer: TransformerLayer) -> tuple[int, int, bool]:
    return layer.d_model, layer.nhead, layer.batch_first


def checked_norm(norm: object) -> nn.Module | None:
    if norm is not None and not isinstance(norm, nn.Module):
        raise KindError(f"norm must be a module, such as torch.nn.LayerNorm(d_model), or None; it is {kind_of(norm)}")
    return norm


def layer_count(name: str, layers: int) -> int:
    return whole_number(name, layers, 1, LAYERS_LIMIT)


def checked_config(config: LayerConfig | None) -> LayerConfig:
    if config is not None and not isinstance(config, LayerConfig):
        raise KindError(f"config must be a LayerConfig or None; it is {kind_of(config)}")
    return config or LayerConfig()
