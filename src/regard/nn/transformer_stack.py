"""What the stacks of a Transformer share: caches, the final normalization, and checks."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn

from regard import masks
from regard.errors import ArgumentError, KindError
from regard.masks import Mask
from regard.nn.key_values import EncoderOutput, HeldInputs, KeyValues, SequenceCache
from regard.nn.layer_config import LayerConfig
from regard.nn.layer_inputs import in_layout
from regard.nn.layer_parts import TransformerLayer, is_untouched
from regard.nn.packing import Packing
from regard.shapes.checks import type_text, whole_number
from regard.tracing.module_calls import is_observed, runs

LAYERS_LIMIT = 10_000
"""Largest number of layers of a new stack."""

LayerT = TypeVar("LayerT")


def new_caches(stack: nn.Module) -> list[SequenceCache]:
    """Returns the empty caches of a stack's layers before the first token; see `decodes_anew`."""
    layers = list(stack.get_submodule("layers").children())
    if not is_untouched(stack):
        return [HeldInputs() for _ in layers]
    return [layer.new_cache() for layer in layers if isinstance(layer, TransformerLayer)]


def decodes_anew(stack: nn.Module, caches: Sequence[SequenceCache] | None) -> bool:
    """Whether a step calls the stack with all tokens so far: somebody sees or replaces it or a part of it, whose keys
    and values are then unknown. The caches of such a stack hold its inputs.

    Raises:
        KindError, ArgumentError: there is not one cache for each layer.
    """
    _check_caches(caches, len(list(stack.get_submodule("layers").children())))
    holds_inputs = bool(caches) and isinstance(caches[0], HeldInputs)
    return holds_inputs or is_observed(stack) or not is_untouched(stack)


def inputs_so_far(
    input: Tensor, caches: Sequence[SequenceCache] | None, layers: int
) -> tuple[Tensor, list[SequenceCache]]:
    """Returns all inputs of a stack so far, ``[batch, tokens, dim]``, and caches that hold them, one for each layer.

    Raises:
        ArgumentError: the caches hold keys and values.
    """
    first = caches[0] if caches else HeldInputs()
    if isinstance(first, HeldInputs) and first.inputs is not None:
        input = torch.cat([first.inputs, input], dim=1)
    elif first.length:
        raise ArgumentError(
            "a part of the stack is seen or replaced since the first token: decode again, from caches=None"
        )
    return input, [HeldInputs(input)] * layers


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
    _check_caches(caches, len(layers))
    return zip(layers, [None] * len(layers) if caches is None else caches, strict=True)


def _check_caches(caches: object, layers: int) -> None:
    if caches is None:
        return
    if not isinstance(caches, (list, tuple)) or not all(isinstance(cache, SequenceCache) for cache in caches):
        raise KindError(f"caches must be {_CACHES}; it is {type_text(caches)}")
    if len(caches) != layers:
        raise ArgumentError(f"caches must be {_CACHES}, of which there are {layers}; it has {len(caches)}")


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
    return "the encoder's output itself" if isinstance(memory, Tensor) else type_text(memory)


def normalize(norm: nn.Module | None, rows: Tensor, packing: Packing, batch_first: bool) -> Tensor:
    """Normalizes the rows at the end of a stack; if they are padded, in the layout of its layers."""
    if norm is None:
        return rows
    if packing.is_joined:
        return norm(rows)
    return in_layout(norm(in_layout(rows, batch_first)), batch_first)


def causal_mask(input: Tensor) -> Mask | None:
    # A single new token sees every earlier token and needs no mask.
    return masks.causal() if input.shape[1] > 1 else None


def check_layer(name: str, layer: object, kind: type[TransformerLayer]) -> None:
    """Raises KindError unless the layer is of this kind."""
    if not isinstance(layer, kind):
        raise KindError(
            f"{name} must be a regard.nn.{kind.__name__}; it is {type_text(layer)} of {type(layer).__module__}. Write "
            f"regard.nn.{kind.__name__}(d_model, nhead), or for layers of their own weights "
            f"{kind.__name__.removesuffix('Layer')}.create(6, LayerConfig(dim=512, heads=8))"
        )


def check_layers(layers: object, kind: type[TransformerLayer]) -> None:
    """Raises an error unless these are layers of this kind that fit into one stack."""
    if not isinstance(layers, (Sequence, nn.ModuleList)) or isinstance(layers, str):
        raise KindError(f"layers must be a sequence of regard.nn.{kind.__name__}; it is {type_text(layers)}")
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
        raise KindError(f"norm must be a module, such as torch.nn.LayerNorm(d_model), or None; it is {type_text(norm)}")
    return norm


def layer_count(name: str, layers: int) -> int:
    return whole_number(name, layers, 1, LAYERS_LIMIT)


def checked_config(config: LayerConfig | None) -> LayerConfig:
    if config is not None and not isinstance(config, LayerConfig):
        raise KindError(f"config must be a LayerConfig or None; it is {type_text(config)}")
    return config or LayerConfig()
