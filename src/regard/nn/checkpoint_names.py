"""Parameters of other libraries' layers: one table of their names, which ``load_state_dict`` of our layers reads."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn


class Origin(NamedTuple):
    """Where a parameter comes from in another library's checkpoint.

    Attributes:
        names: the names there.
        joined: returns the parameter from our layer and the tensors of these names; default: their rows, one after
            another.
    """

    names: tuple[str, ...]
    joined: Callable[..., Tensor] = lambda layer, *tensors: torch.cat(tensors)


def _projections(parts: Mapping[str, tuple[str, ...]]) -> Iterator[tuple[str, Origin]]:
    """Yields the origins of weights and biases of linear layers, from our name and the names of the parts there."""
    for own, names in parts.items():
        for kind in ("weight", "bias"):
            yield f"{own}.{kind}", Origin(tuple(f"{name}.{kind}" for name in names))


_LLAMA = dict(_projections({"in_proj": ("q_proj", "k_proj", "v_proj"), "out_proj": ("o_proj",)}))
"""Llama and the models that follow it."""

_QWEN3 = _LLAMA | {"query_norm.weight": Origin(("q_norm.weight",)), "key_norm.weight": Origin(("k_norm.weight",))}
"""Qwen 3: Llama with normalized queries and keys."""

ORIGINS: dict[str, tuple[Mapping[str, Origin], ...]] = {"SelfAttention": (_QWEN3,)}
"""The class of a layer here → one table for each layer elsewhere: the name here → where the parameter is there.

A table may name parameters that a layer does not have, as biases; it fits if it names all that the layer has.
"""


def rename_parameters(layer: nn.Module, state: dict[str, Any], prefix: str) -> None:
    """Replaces the parameters of another library's layer, in a state dict, by those of ``layer``.

    A state dict that has them already, and one of an unknown layer, stays as it is.
    """
    own = layer.state_dict().keys()
    if all(prefix + name in state for name in own):
        return
    for origins in ORIGINS.get(type(layer).__name__, ()):
        used = {name: origins[name] for name in own if name in origins}
        if used.keys() == own and all(prefix + name in state for origin in used.values() for name in origin.names):
            parameters = {
                prefix + name: origin.joined(layer, *(state[prefix + source] for source in origin.names))
                for name, origin in used.items()
            }
            for origin in used.values():
                for source in origin.names:
                    state.pop(prefix + source, None)
            state.update(parameters)
            return
