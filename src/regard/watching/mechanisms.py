"""Mechanisms that a model's attention module has besides multi-head attention, by the names of its parts."""

from typing import Any, Literal

from torch import nn

from regard.nn import DifferentialAttention, LatentAttention, SelfAttention

Mechanism = Literal["differential", "latent", "gated"]

_LAMBDA_NAMES = ("lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2")
_COMPRESSION_NAME = "kv_a_proj_with_mqa"


def mechanism_of(module: nn.Module) -> Mechanism | None:
    """Returns the mechanism of an attention module of regard or of Hugging Face transformers; None: no such one.

    ================  ==================================================  ======================================
    mechanism         the names of parts that tell it                     models
    ================  ==================================================  ======================================
    ``differential``  the vectors of λ: ``lambda_q1``, ``lambda_k1``, …   DiffLlama
    ``latent``        the compression: ``kv_a_proj_with_mqa``             DeepSeek V2 and V3, and their relatives
    ``gated``         ``q_proj`` has twice the features of all heads      Qwen3-Next, and its relatives
    ================  ==================================================  ======================================
    """
    if isinstance(module, DifferentialAttention) or all(name in module._parameters for name in _LAMBDA_NAMES):
        return "differential"
    if isinstance(module, LatentAttention) or _COMPRESSION_NAME in module._modules:
        return "latent"
    if isinstance(module, SelfAttention):
        return None if module.gate is None else "gated"
    own: dict[str, Any] = vars(module)
    heads = getattr(own.get("config"), "num_attention_heads", None)
    width, query = own.get("head_dim"), module._modules.get("q_proj")
    if isinstance(heads, int) and isinstance(width, int):
        # An adapted projection is of another class and says the same.
        return "gated" if getattr(query, "out_features", None) == 2 * heads * width else None
    return None


def maps_of_heads(module: nn.Module, part: int, heads: int) -> tuple[int, ...]:
    """Returns the map of each head in one of the two calls of a differential attention, from 1.

    Each call of `regard.nn.DifferentialAttention` is a map. Each call of transformers has both maps, of which the first
    half of the heads is the first, for one half of the values.

    Args:
        module: the module.
        part: the number of the call, 0 or 1.
        heads: the heads of the call.
    """
    if isinstance(module, DifferentialAttention):
        return (part + 1,) * heads
    return (1,) * (heads // 2) + (2,) * (heads - heads // 2)
