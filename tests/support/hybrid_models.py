"""Tiny random models of Hugging Face with linear recurrences, or other mixers of tokens, beside attention."""

from typing import Any

import torch

VOCABULARY = 97
_TEXT = {
    "vocab_size": VOCABULARY, "hidden_size": 24, "intermediate_size": 20, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
_TYPES = {"layer_types": ["linear_attention", "full_attention", "linear_attention"]}
_EXPERTS = {"num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 12}
_DELTA = {
    "linear_num_value_heads": 6, "linear_num_key_heads": 3, "linear_key_head_dim": 5, "linear_value_head_dim": 7,
}  # fmt: skip
_MAMBA = {
    "mamba_n_heads": 6, "mamba_d_head": 8, "mamba_n_groups": 2, "mamba_d_state": 5, "mamba_chunk_size": 8,
}  # fmt: skip

HYBRIDS: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen3_next": (
        "Qwen3Next", {**_TYPES, **_DELTA, **_EXPERTS, "head_dim": 6, "shared_expert_intermediate_size": 12},
    ),
    "kimi_linear": (
        "KimiLinear",
        {**_TYPES, "num_key_value_heads": 4, "linear_num_heads": 3, "linear_head_dim": 5, "kv_lora_rank": 8,
         "q_lora_rank": None, "qk_rope_head_dim": 4, "qk_nope_head_dim": 6, "v_head_dim": 5, "n_group": 1,
         "topk_group": 1, "first_k_dense_replace": 3, **_EXPERTS},
    ),
    "bamba": ("Bamba", {**_MAMBA, "attn_layer_indices": [1]}),
    "nemotron_h": (
        "NemotronH",
        {"layers_block_type": ["mamba", "attention", "mlp"], "head_dim": 6, "mamba_num_heads": 6, "mamba_head_dim": 8,
         "n_groups": 2, "ssm_state_size": 4, "chunk_size": 8},
    ),
    "jamba": (
        "Jamba",
        {"attn_layer_period": 3, "attn_layer_offset": 1, "num_experts": 2, "num_experts_per_tok": 1,
         "expert_layer_period": 8, "expert_layer_offset": 7, "mamba_dt_rank": 3, "mamba_d_state": 4},
    ),
    "lfm2": ("Lfm2", {"layer_types": ["conv", "full_attention", "conv"]}),
    "recurrent_gemma": (
        "RecurrentGemma",
        {"lru_width": 24, "attention_window_size": 8, "block_types": ("recurrent", "attention", "recurrent")},
    ),
}  # fmt: skip
"""By a name: the name of a family in transformers, and options of its configuration. The second layer is attention."""


def make(name: str) -> torch.nn.Module:
    """A causal language model with random weights (always the same), in evaluation mode."""
    import transformers

    family, options = HYBRIDS[name]
    config = getattr(transformers, f"{family}Config")(**{**_TEXT, **options})
    torch.manual_seed(5)
    model = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    if "num_experts_per_tok" in options:
        model.set_experts_implementation("eager")
    with torch.no_grad():
        for parameter in model.parameters():
            # Larger than the usual initial weights, under which states stay nearly empty.
            parameter.add_(torch.randn(parameter.shape) * 0.2)
    return model


def token_ids(rows: int = 2, length: int = 13) -> torch.Tensor:
    """Random tokens, always the same, without special ones."""
    return torch.randint(3, VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(3))
