"""The names by which watching recognizes modules, arguments and functions of any library's models.

A family of models that needs more is one more row here: no other file branches by the class or the name of a model.
"""

import inspect
import re
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, Literal

from torch import nn

from regard.nn import DepthAttention, DifferentialAttention, LatentAttention, SelfAttention

Mechanism = Literal["differential", "latent", "gated", "depth"]

ATTENTION_NAMES = re.compile(r"attention|attn", re.IGNORECASE)
"""Matches names of the classes of attention modules."""

CROSS_NAMES = re.compile(r"cross|enc_?dec_?att|encoder_?att|src_att|memory_att|context_att", re.IGNORECASE)
"""Matches names of modules that attend to another sequence."""

CROSS_SIBLINGS = {"multihead_attn": "self_attn"}
"""Names of modules that attend to another sequence where their layer has a module of the other name, as PyTorch's
decoder layers; elsewhere such a module may attend within one."""

CROSS_ARGUMENTS = (
    "key_value_states", "encoder_hidden_states", "cross_attention_states", "memory", "context", "encoder_outputs",
    "encoder_output", "encoder_out", "encoder_states", "enc_outputs", "enc_output", "memory_bank", "annotations",
)  # fmt: skip
"""Names of the arguments that carry the keys of modules that attend to another sequence."""

SELF_ARGUMENTS = frozenset({"self", "module", "model", "layer", "block", "attn", "mod", "m"})
"""Names of the first parameter of a function that takes a module."""

HEAD_COUNTS = ("num_heads", "num_attention_heads", "n_heads", "n_head", "heads", "nhead")
"""Attributes of modules that hold the number of heads."""

PACKING_FUNCTION = "sdpa_attention_forward"
"""The function of transformers that reshapes a single query's heads to the queries of a group."""

RecurrenceForm = Literal["delta rule", "scan", "scan step"]

RECURRENCES: dict[str, RecurrenceForm] = {
    # Qwen3-Next, Qwen3.5, OLMo-hybrid and others of transformers, and the functions of flash-linear-attention.
    "torch_chunk_gated_delta_rule": "delta rule",
    "torch_recurrent_gated_delta_rule": "delta rule",
    "chunk_gated_delta_rule": "delta rule",
    "fused_recurrent_gated_delta_rule": "delta rule",
    "chunk_delta_rule": "delta rule",
    "fused_recurrent_delta_rule": "delta rule",
    "chunk_simple_gla": "delta rule",
    "fused_recurrent_simple_gla": "delta rule",
    # Kimi Linear, Ling 2.5 (bailing_hybrid) and others: a decay of each feature.
    "chunk_kimi_delta_attention": "delta rule",
    "recurrent_kimi_delta_attention": "delta rule",
    "chunk_kda": "delta rule",
    "fused_recurrent_kda": "delta rule",
    # Mamba-2 in Bamba, Zamba 2, Nemotron-H, Granite 4 and Falcon-H1, and the functions of mamba-ssm.
    "mamba2_chunk_scan": "scan",
    "mamba_chunk_scan_combined": "scan",
    "mamba2_selective_state_update": "scan step",
    "selective_state_update": "scan step",
}
"""Functions that compute a linear recurrence, by name, and the form of their arguments."""


def _has_parts(module: nn.Module, *names: str) -> bool:
    return all(name in module._parameters or name in module._modules for name in names)


def _has_gate(module: nn.Module) -> bool:
    if isinstance(module, SelfAttention):
        return module.gate is not None
    own: dict[str, Any] = vars(module)
    heads = getattr(own.get("config"), "num_attention_heads", None)
    width, query = own.get("head_dim"), module._modules.get("q_proj")
    # An adapted projection is of another class and has the same attribute.
    return (
        isinstance(heads, int) and isinstance(width, int) and getattr(query, "out_features", None) == 2 * heads * width
    )


_MECHANISMS: dict[Mechanism, Callable[[nn.Module], bool]] = {
    # DiffLlama: the vectors of λ.
    "differential": lambda module: (
        isinstance(module, DifferentialAttention)
        or _has_parts(module, "lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2")
    ),
    # DeepSeek V2, V3 and their relatives: the compression.
    "latent": lambda module: isinstance(module, LatentAttention) or _has_parts(module, "kv_a_proj_with_mqa"),
    # Qwen3-Next and its relatives: a projection of queries with twice the features of all heads.
    "gated": _has_gate,
    # Inkling 2: attention to the outputs of earlier layers, whose call has the tokens as heads.
    "depth": lambda module: isinstance(module, DepthAttention) or "AttentionResidual" in type(module).__name__,
}
"""Mechanism besides multi-head attention → the test whether a module of regard or of transformers has it."""


def mechanism_of(module: nn.Module) -> Mechanism | None:
    """Returns the mechanism of an attention module of regard or of Hugging Face transformers; None: no such one."""
    return next((mechanism for mechanism, recognizes in _MECHANISMS.items() if recognizes(module)), None)


def maps_of_heads(module: nn.Module, part: int, heads: int) -> tuple[int, ...]:
    """Returns the map of each head in call ``part``, 0 or 1, of a differential attention, from 1.

    Each call of `regard.nn.DifferentialAttention` is a map. Each call of transformers reads one half of the values, and
    has both maps: the first in the first half of its heads.
    """
    if isinstance(module, DifferentialAttention):
        return (part + 1,) * heads
    return (1,) * (heads // 2) + (2,) * (heads - heads // 2)


def head_count(module: nn.Module) -> int | None:
    """Returns the number of heads that a module declares; None if it declares none."""
    return next((n for name in HEAD_COUNTS if type(n := getattr(module, name, None)) is int), None)


def looks_like_attention(module: nn.Module) -> bool:
    """Whether a module's class is named as attention."""
    return _is_named_attention(type(module))


@cache
def _is_named_attention(kind: type) -> bool:
    return issubclass(kind, nn.MultiheadAttention) or ATTENTION_NAMES.search(kind.__name__) is not None


STATE_ARGUMENTS = (
    "cache", "cache_params", "past_key_values", "past_key_value", "layer_past", "attention_mask", "state",
    "inference_params", "recurrent_state", "conv_state", "seq_idx", "cu_seqlens",
)  # fmt: skip
"""Names of the arguments of modules that take other tokens into account: a state, a cache or a mask of tokens."""


def mixes_tokens(module: nn.Module) -> bool:
    """Whether a module seems to combine tokens: it takes a state or a mask, or holds a convolution or a recurrence."""
    held = (module, *module._modules.values())
    return _takes_state(type(module)) or any(
        isinstance(each, nn.RNNBase) or (isinstance(each, nn.Conv1d) and each.kernel_size[0] > 1) for each in held
    )


@cache
def _takes_state(kind: type) -> bool:
    # Wrappers keep the signature of the method that they wrap.
    return not set(STATE_ARGUMENTS).isdisjoint(inspect.signature(kind.forward).parameters)


@lru_cache(maxsize=1024)
def is_cross_name(name: str) -> bool:
    """Whether the last two parts of a module's name say that it attends to another sequence."""
    return any(CROSS_NAMES.search(part) for part in name.split(".")[-2:])
