"""The base of the stacks of a Transformer: their layers, caches, the final normalization, and checks."""

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn

from regard import masks
from regard.errors import ArgumentError, KindError
from regard.masks import Mask
from regard.nn.key_values import EncoderOutput, HeldInputs, KeyValues, SequenceCache, check_continued
from regard.nn.layer_config import LayerConfig
from regard.nn.layer_inputs import in_layout
from regard.nn.layer_parts import TransformerLayer, is_untouched
from regard.nn.packing import Packing
from regard.shapes.checks import type_text, whole_number
from regard.tracing.module_calls import Module, is_observed, runs

LAYERS_LIMIT = 10_000
"""Largest number of layers of a new stack."""

StackT = TypeVar("StackT", bound="TransformerStack")


def new_caches(stack: nn.Module) -> list[SequenceCache]:
    """Returns the empty caches of a stack's layers before the first token; see `TransformerStack.step`."""
    layers = list(stack.get_submodule("layers").children())
    if not is_untouched(stack):
        return [HeldInputs() for _ in layers]
    return [layer.new_cache() for layer in layers if isinstance(layer, TransformerLayer)]


class TransformerStack(Module):
    """The base of stacks of copies of a layer of ``layer_class``, the argument ``layer_argument`` of the constructor of
    a subclass, that end with an optional normalization. ``own_forward`` is the ``forward`` that the class of regard
    defines."""

    layer_class: ClassVar[type[TransformerLayer]]
    layer_argument: ClassVar[str]
    own_forward: ClassVar[Callable[..., Tensor]]

    def __init__(self, layer: Any, num_layers: int, norm: nn.Module | None = None):
        super().__init__()
        _check_layer(self.layer_argument, layer, self.layer_class)
        self.num_layers = layer_count("num_layers", num_layers)
        self.layers = nn.ModuleList([copy.deepcopy(layer) for _ in range(num_layers)])
        if norm is not None and not isinstance(norm, nn.Module):
            raise KindError(
                f"norm must be a module, such as torch.nn.LayerNorm(d_model), or None; it is {type_text(norm)}"
            )
        self.norm = norm
        self.d_model, self.nhead, self.batch_first = layer.d_model, layer.nhead, layer.batch_first

    @classmethod
    def from_layers(cls: type[StackT], layers: Sequence[Any] | nn.ModuleList, norm: nn.Module | None = None) -> StackT:
        """Creates a stack of at least one layer; they may differ in all but ``d_model``, ``nhead`` and
        ``batch_first``."""
        _check_layers(layers, cls.layer_class)
        stack = cls(layers[0], 1, norm)
        stack.layers, stack.num_layers = nn.ModuleList(layers), len(layers)
        return stack

    def extra_repr(self) -> str:
        return f"num_layers={len(self.layers)}, batch_first={self.batch_first}"

    def _with_caches(self, caches: Sequence[SequenceCache] | None) -> Iterable[tuple[Any, SequenceCache | None]]:
        """Pairs each layer with its cache, or with None; raises an error unless there is one `SequenceCache` for each
        layer."""
        self._check_caches(caches)
        return zip(self.layers, [None] * len(self.layers) if caches is None else caches, strict=True)

    def _check_caches(self, caches: object) -> None:
        if caches is None:
            return
        if not isinstance(caches, (list, tuple)) or not all(isinstance(cache, SequenceCache) for cache in caches):
            raise KindError(f"caches must be {_CACHES}; it is {type_text(caches)}")
        if len(caches) != len(self.layers):
            raise ArgumentError(
                f"caches must be {_CACHES}, of which there are {len(self.layers)}; it has {len(caches)}"
            )

    def _decodes_anew(self, caches: Sequence[SequenceCache] | None) -> bool:
        """Whether a step calls the stack with all tokens so far, since it or a part of it is seen or replaced: keys and
        values are unknown then, and the caches hold the inputs of the stack. Raises an error unless there is one cache
        for each layer, and the stack has its own ``forward``."""
        forward = type(self).own_forward
        if not runs(self, forward):
            raise ArgumentError(
                f"step continues {forward.__qualname__} with caches, and {type(self).__name__} has another "
                "forward: define step as well, or decode without caches"
            )
        self._check_caches(caches)
        return bool(caches and isinstance(caches[0], HeldInputs)) or is_observed(self) or not is_untouched(self)

    def _inputs_so_far(
        self, input: Tensor, caches: Sequence[SequenceCache] | None
    ) -> tuple[Tensor, list[SequenceCache]]:
        """Returns all inputs so far, ``[batch, tokens, dim]``, and caches that hold them, one for each layer; raises
        ArgumentError if the caches hold keys and values."""
        first = caches[0] if caches else HeldInputs()
        if isinstance(first, HeldInputs) and first.inputs is not None:
            check_continued(first.inputs, input, 1)
            input = torch.cat([first.inputs, input], dim=1)
        elif first.length:
            raise ArgumentError(
                "a part of the stack is seen or replaced since the first token: decode again, from caches=None"
            )
        return input, [HeldInputs(input)] * len(self.layers)

    def _normalized(self, rows: Tensor, packing: Packing) -> Tensor:
        """Normalizes the rows at the end of the stack; if they are padded, in the layout of its layers."""
        if self.norm is None or packing.is_joined:
            return rows if self.norm is None else self.norm(rows)
        return in_layout(self.norm(in_layout(rows, self.batch_first)), self.batch_first)


_CACHES = "None before the first token, then what the last step returned, a list of one cache for each layer"


def check_memory(memory: object, layers: int) -> None:
    """Raises an error unless this is what `TransformerDecoder.remember` returns, with one part for each layer."""
    line = "write remembered = decoder.remember(memory); then decoder.step(input, remembered, caches)"
    if not isinstance(memory, (list, tuple)) or not all(
        isinstance(each, (KeyValues, EncoderOutput)) for each in memory
    ):
        kind = "the encoder's output itself" if isinstance(memory, Tensor) else type_text(memory)
        raise KindError(f"memory must be what remember returned, not {kind}: {line}")
    if len(memory) != layers:
        raise ArgumentError(f"memory must have one part for each of {layers} layers; it has {len(memory)}: {line}")


def causal_mask(input: Tensor) -> Mask | None:
    """Returns the mask of the next tokens; a single one sees every earlier token and needs none."""
    return masks.causal() if input.shape[1] > 1 else None


def _check_layer(name: str, layer: object, kind: type[TransformerLayer]) -> None:
    """Raises KindError unless the layer is of this kind."""
    if not isinstance(layer, kind):
        raise KindError(
            f"{name} must be a regard.nn.{kind.__name__}; it is {type_text(layer)}. Write "
            f"regard.nn.{kind.__name__}(d_model, nhead), or for layers of their own weights "
            f"{kind.__name__.removesuffix('Layer')}.create(6, LayerConfig(dim=512, heads=8))"
        )


def _check_layers(layers: object, kind: type[TransformerLayer]) -> None:
    """Raises an error unless these are layers of this kind that fit into one stack."""
    if not isinstance(layers, (Sequence, nn.ModuleList)) or isinstance(layers, str):
        raise KindError(f"layers must be a sequence of regard.nn.{kind.__name__}; it is {type_text(layers)}")
    if not len(layers):
        raise ArgumentError("layers must hold at least one layer; it is empty")
    for number, layer in enumerate(layers):
        _check_layer(f"layers[{number}]", layer, kind)
    for name in ("d_model", "nhead", "batch_first"):
        values = {getattr(layer, name) for layer in layers}
        if len(values) > 1:
            raise ArgumentError(f"layers must all have one {name}; they have {sorted(values)}")


def layer_count(name: str, layers: int) -> int:
    """Returns a number of layers; raises an error unless a stack may have so many."""
    return whole_number(name, layers, 1, LAYERS_LIMIT)


def checked_config(config: LayerConfig | None) -> LayerConfig:
    """Returns a configuration, the default one for None; raises KindError if it is none."""
    if config is not None and not isinstance(config, LayerConfig):
        raise KindError(f"config must be a LayerConfig or None; it is {type_text(config)}")
    return config or LayerConfig()
