"""Parameters of other libraries' layers: one table of their names, which ``load_state_dict`` of our layers reads."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.errors import ShapeError


class Origin(NamedTuple):
    """The names of a parameter in another library's checkpoint; ``joined`` returns the parameter from our layer and the
    tensors of these names, by default their rows one after another."""

    names: tuple[str, ...]
    joined: Callable[..., Tensor] = lambda layer, *tensors: torch.cat(tensors)


def _projections(parts: Mapping[str, tuple[str, ...]]) -> Iterator[tuple[str, Origin]]:
    """Yields the origins of weights and biases of linear layers, from our name and the names of the parts there."""
    for own, names in parts.items():
        for kind in ("weight", "bias"):
            yield f"{own}.{kind}", Origin(tuple(f"{name}.{kind}" for name in names))


def _of_heads(layer: Any, weight: Tensor) -> Tensor:
    """Returns the rows of a weight by heads, ``[heads, features, inputs]``."""
    if len(weight) % layer.num_heads:
        raise ShapeError(
            f"num_heads must divide the {len(weight)} rows of a projection of the checkpoint; it is {layer.num_heads}"
        )
    return weight.unflatten(0, (layer.num_heads, -1))


_LLAMA = dict(_projections({"in_proj": ("q_proj", "k_proj", "v_proj"), "out_proj": ("o_proj",)}))
"""Llama and the models that follow it."""

_QWEN3 = _LLAMA | {"query_norm.weight": Origin(("q_norm.weight",)), "key_norm.weight": Origin(("k_norm.weight",))}
"""Qwen 3: Llama with normalized queries and keys."""


def _rows(sizes: Callable[[Any], list[int]], *chosen: int, groups: bool = False) -> Callable[..., Tensor]:
    """Returns a function that takes the ``chosen`` parts, in our order, of a joined projection whose parts have
    ``sizes(layer)`` rows; with ``groups`` they follow one another for each key head."""

    def joined(layer: Any, tensor: Tensor) -> Tensor:
        count, rows = layer.key_heads if groups else 1, sizes(layer)
        if len(tensor) != count * sum(rows):
            raise ShapeError(
                f"a projection of the checkpoint must have {count * sum(rows)} rows for this {type(layer).__name__}; "
                f"it has {len(tensor)}: num_heads, key_heads, head_dim or value_dim differ"
            )
        parts = tensor.unflatten(0, (count, -1)).split(rows, dim=1)
        return torch.cat([parts[index].flatten(0, 1) for index in chosen])

    return joined


def _qkvz(layer: Any) -> list[int]:
    group = layer.num_heads // layer.key_heads * layer.value_dim
    return [layer.head_dim, layer.head_dim, group, group]


def _ba(layer: Any) -> list[int]:
    return [layer.num_heads // layer.key_heads] * 2


def _xbc(layer: Any) -> list[int]:
    return [layer.num_heads * layer.value_dim] + [layer.key_heads * layer.head_dim] * 2


def _zxbcdt(layer: Any) -> list[int]:
    return [layer.num_heads * layer.value_dim, *_xbc(layer), layer.num_heads]


def _separately_convolved(table: Mapping[str, Origin]) -> dict[str, Origin]:
    """Returns the table of layers that have a convolution each for queries, keys and values."""
    return {**table, "conv.weight": Origin(tuple(f"{name}_conv1d.weight" for name in "qkv"))}


_DELTA = {
    "conv.weight": Origin(("conv1d.weight",)),
    "decay_proj.bias": Origin(("dt_bias",)),
    "log_rate": Origin(("A_log",), lambda layer, tensor: tensor.flatten()),
}
"""What layers with the delta rule share."""

_OLMO = (
    {name: origin for name, origin in _LLAMA.items() if name.endswith("weight")}
    | _DELTA
    | {"norm.weight": Origin(("o_norm.weight",)), "decay_proj.weight": Origin(("a_proj.weight",))}
    | {"gate_proj.weight": Origin(("g_proj.weight",)), "beta_proj.weight": Origin(("b_proj.weight",))}
)
"""OLMo-Hybrid, and with separate convolutions the gated delta net of flash-linear-attention."""

_QWEN3_5 = _DELTA | {
    "in_proj.weight": Origin(("in_proj_qkv.weight",)),
    "gate_proj.weight": Origin(("in_proj_z.weight",)),
    "beta_proj.weight": Origin(("in_proj_b.weight",)),
    "decay_proj.weight": Origin(("in_proj_a.weight",)),
    "norm.weight": Origin(("norm.weight",)),
    "out_proj.weight": Origin(("out_proj.weight",)),
}
"""Qwen 3.5."""

_QWEN3_NEXT = _QWEN3_5 | {
    "in_proj.weight": Origin(("in_proj_qkvz.weight",), _rows(_qkvz, 0, 1, 2, groups=True)),
    "gate_proj.weight": Origin(("in_proj_qkvz.weight",), _rows(_qkvz, 3, groups=True)),
    "beta_proj.weight": Origin(("in_proj_ba.weight",), _rows(_ba, 0, groups=True)),
    "decay_proj.weight": Origin(("in_proj_ba.weight",), _rows(_ba, 1, groups=True)),
}
"""Qwen3-Next, whose projections are joined for each key head."""

_KIMI_RELEASED = _separately_convolved(_OLMO) | {
    "gate_proj.0.weight": Origin(("g_a_proj.weight",)),
    "gate_proj.1.weight": Origin(("g_b_proj.weight",)),
    "decay_proj.0.weight": Origin(("f_a_proj.weight",)),
    "decay_proj.1.weight": Origin(("f_b_proj.weight",)),
    "decay_proj.1.bias": Origin(("dt_bias",)),
}
"""Kimi Linear, as its files are."""

_KIMI = {
    name: Origin(tuple(f"forget_gate.{source}" for source in origin.names), origin.joined)
    if name.startswith(("decay_proj", "log_rate"))
    else origin
    for name, origin in (_KIMI_RELEASED | _DELTA).items()
}
"""Kimi Linear in transformers."""

_MAMBA2 = {
    "in_proj.weight": Origin(("in_proj.weight",), _rows(_zxbcdt, 3, 2, 1)),
    "gate_proj.weight": Origin(("in_proj.weight",), _rows(_zxbcdt, 0)),
    "decay_proj.weight": Origin(("in_proj.weight",), _rows(_zxbcdt, 4)),
    "decay_proj.bias": Origin(("dt_bias",)),
    "conv.weight": Origin(("conv1d.weight",), _rows(_xbc, 2, 1, 0)),
    "conv.bias": Origin(("conv1d.bias",), _rows(_xbc, 2, 1, 0)),
    "log_rate": Origin(("A_log",)),
    "skip": Origin(("D",)),
    "norm.weight": Origin(("norm.weight",)),
    "out_proj.weight": Origin(("out_proj.weight",)),
}
"""The mixers of Mamba-2: Mamba2, Bamba, Zamba2, Granite hybrid, Nemotron-H."""

_MAMBA2_BIASED = _MAMBA2 | {
    "in_proj.bias": Origin(("in_proj.bias",), _rows(_zxbcdt, 3, 2, 1)),
    "gate_proj.bias": Origin(("in_proj.bias",), _rows(_zxbcdt, 0)),
    "decay_proj.bias": Origin(
        ("in_proj.bias", "dt_bias"), lambda layer, joint, own: _rows(_zxbcdt, 4)(layer, joint) + own
    ),
    "out_proj.bias": Origin(("out_proj.bias",)),
}

_SWIN = _LLAMA | {"position.weight": Origin(("relative_position_bias.relative_position_bias_table",))}
"""Swin."""

_SWIN2 = dict(_projections({"in_proj": ("self.query", "self.key", "self.value"), "out_proj": ("output.dense",)})) | {
    "in_proj.bias": Origin(
        ("self.query.bias", "self.value.bias"),
        lambda layer, query, value: torch.cat((query, torch.zeros_like(query), value)),
    ),
    "score.temperature": Origin(("self.logit_scale",), lambda layer, logit_scale: torch.exp(-logit_scale)),
    "position.inner": Origin(
        tuple(f"self.continuous_position_bias_mlp.0.{kind}" for kind in ("weight", "bias")),
        lambda layer, weight, bias: torch.cat((weight, bias[:, None]), 1),
    ),
    "position.outer": Origin(("self.continuous_position_bias_mlp.2.weight",)),
}
"""Swin v2, whose keys have no bias."""

_SAM = dict(_projections({"in_proj": ("qkv",), "out_proj": ("proj",)})) | {
    "position.weight": Origin(("rel_pos_h", "rel_pos_w"))
}
"""SAM's image encoder."""

_DEEPSEEK: Mapping[str, Origin] = dict(
    _projections(
        {"query_down": ("q_a_proj",), "query_norm": ("q_a_layernorm",), "query_up": ("q_b_proj",),
         "kv_down": ("kv_a_proj_with_mqa",), "kv_norm": ("kv_a_layernorm",), "out_proj": ("o_proj",),
         "indexer.query_proj": ("indexer.wq_b",), "indexer.key_proj": ("indexer.wk",),
         "indexer.key_norm": ("indexer.k_norm",), "indexer.head_weights": ("indexer.weights_proj",)}
    )
) | {
    "key_up": Origin(("kv_b_proj.weight",), lambda layer, weight: _of_heads(layer, weight)[:, : layer.head_dim]),
    "value_up": Origin(("kv_b_proj.weight",), lambda layer, weight: _of_heads(layer, weight)[:, layer.head_dim :]),
}  # fmt: skip
"""DeepSeek V2 and V3, with an indexer V3.2 and GLM 5."""

_DEEPSEEK_LITE = _DEEPSEEK | dict(_projections({"query_up": ("q_proj",)}))
"""DeepSeek V2 Lite, whose queries are not compressed."""

_DEEPSEEK_V4 = dict(
    _projections(
        {"query_down": ("q_a_proj",), "query_norm": ("q_a_norm",), "query_up": ("q_b_proj",), "kv_proj": ("kv_proj",),
         "kv_norm": ("kv_norm",), "out_proj": ("o_b_proj",), "indexer.query_proj": ("compressor.indexer.q_b_proj",),
         "indexer.head_weights": ("compressor.indexer.scorer.weights_proj",)}
    )
) | {
    f"{own}.{part}": Origin((f"{name}.{source}",))
    for own, name in (("compressor", "compressor"), ("indexer.compressor", "compressor.indexer"))
    for part, source in (("value_proj.weight", "kv_proj.weight"), ("gate_proj.weight", "gate_proj.weight"),
                         ("norm.weight", "kv_norm.weight"), ("position", "position_bias"))
} | {
    "normalizer.sink": Origin(("sinks",)),
    "out_down": Origin(("o_a_proj.weight",), lambda layer, weight: weight.unflatten(0, (layer.groups, -1))),
}  # fmt: skip
"""DeepSeek V4, in all three kinds of layers."""

_CONFORMER = dict(_projections({"in_proj": ("linear_q", "linear_k", "linear_v"), "out_proj": ("linear_out",)})) | {
    "position.weight": Origin(("linear_pos.weight",), _of_heads),
    "position.content_bias": Origin(("pos_bias_u",)),
    "position.position_bias": Origin(("pos_bias_v",)),
}
"""Conformers of transformers, ESPnet and NeMo, with the relative positions of Transformer-XL."""


def _of_positions(layer: Any, weight: Tensor, bias: Tensor, positions: Tensor) -> Tensor:
    return torch.nn.functional.linear(positions, weight, bias).unflatten(-1, (layer.num_heads, -1)).transpose(0, 1)


_DEBERTA = dict(
    _projections({"in_proj": ("self.query_proj", "self.key_proj", "self.value_proj"), "out_proj": ("output.dense",)})
) | {
    f"position.{part}_weight": Origin(
        (f"self.{part}_proj.weight", f"self.{part}_proj.bias", "rel_embeddings.weight"), _of_positions
    )
    for part in ("query", "key")
}
"""DeBERTa v2 and v3, which share the projections of contents and of positions; ``rel_embeddings.weight``, the table of
the encoder after its normalization, is added to the layer's parameters."""

ORIGINS: dict[str, tuple[Mapping[str, Origin], ...]] = {
    "SelfAttention": (_QWEN3, _SWIN, _SWIN2, _SAM, _CONFORMER, _DEBERTA),
    "LatentAttention": (_DEEPSEEK, _DEEPSEEK_LITE),
    "IndexedAttention": (_DEEPSEEK,),
    "CompressedAttention": (_DEEPSEEK_V4,),
    "GatedDeltaNet": (_QWEN3_NEXT, _QWEN3_5, _OLMO, _separately_convolved(_OLMO)),
    "KimiDeltaAttention": (_KIMI, _KIMI_RELEASED),
    "Mamba2": (_MAMBA2, _MAMBA2_BIASED),
}
"""The class of a layer here → one table for each layer elsewhere: the name here → where the parameter is there.

A table may name parameters that a layer does not have, as biases; it fits if it names all that the layer has.
"""


def rename_parameters(layer: nn.Module, state: dict[str, Any], prefix: str) -> str:
    """Replaces the parameters of another library's layer, in a state dict, by those of ``layer``, and returns what a
    known layer lacks of them, as a message. A state dict that has them already, and one of an unknown layer, stays as
    it is."""
    own, problem = layer.state_dict().keys(), ""
    if all(prefix + name in state for name in own):
        return problem
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
            return ""
        present = {name for name, origin in used.items() if all(prefix + source in state for source in origin.names)}
        if 2 * len(present) >= len(own) and not problem:
            lacking = [prefix + name for name in own if name not in present]
            advice = ": make it with bias=False" if all(name.endswith("bias") for name in lacking) else ""
            problem = f"the checkpoint has nothing for {', '.join(lacking)} of this {type(layer).__name__}{advice}"
    return problem
