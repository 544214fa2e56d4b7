"""Tiny random models of Hugging Face families that ask an attention implementation, and inputs for them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

VOCABULARY, BATCH, LENGTH, TARGETS = 97, 3, 13, 5
TEXT = {
    "vocab_size": VOCABULARY,
    "hidden_size": 24,
    "intermediate_size": 20,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
GROUPED = dict(
    **TEXT, num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2
)
SLIDING = {"layer_types": ["sliding_attention", "full_attention"]}


@dataclass(frozen=True)
class Family:
    """How to make a model of a family.

    Attributes:
        model, config: names of classes of transformers.
        options: of the configuration.
        inputs: what the model takes: ``text``, ``pairs`` (source and target), ``image``, ``image and text``, ``sound``.
        decodes: whether it generates text.
    """

    model: str
    config: str
    options: dict[str, Any] = field(default_factory=dict)
    inputs: str = "text"
    decodes: bool = False


def _decoder(name: str, **options: Any) -> Family:
    return Family(f"{name}ForCausalLM", f"{name}Config", {**GROUPED, **options}, decodes=True)


_VISION = {
    "hidden_size": 24,
    "intermediate_size": 20,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": 12,
    "patch_size": 4,
}
_ENCODER = dict(**TEXT, max_position_embeddings=40, pad_token_id=0)
_SEQ2SEQ = {
    "vocab_size": VOCABULARY, "d_model": 24, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 20, "decoder_ffn_dim": 20,
    "max_position_embeddings": 40, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1, "forced_eos_token_id": None,
}  # fmt: skip
_T5 = {
    "vocab_size": VOCABULARY, "d_model": 24, "d_kv": 6, "d_ff": 20, "num_layers": 2, "num_heads": 4,
    "pad_token_id": 0, "eos_token_id": 2,
    "decoder_start_token_id": 0, "relative_attention_num_buckets": 8, "relative_attention_max_distance": 11,
}  # fmt: skip
_EXPERTS = {"num_local_experts": 3, "num_experts_per_tok": 2}

FAMILIES = {
    "bert": Family("BertModel", "BertConfig", _ENCODER),
    "roberta": Family("RobertaModel", "RobertaConfig", _ENCODER),
    "electra": Family("ElectraModel", "ElectraConfig", {**_ENCODER, "embedding_size": 24}),
    "distilbert": Family(
        "DistilBertModel", "DistilBertConfig",
        {"vocab_size": VOCABULARY, "dim": 24, "hidden_dim": 20, "n_layers": 2, "n_heads": 4,
         "max_position_embeddings": 40},
    ),
    "modernbert": Family(
        "ModernBertModel", "ModernBertConfig", {**_ENCODER, "local_attention": 6, "global_attn_every_n_layers": 2},
    ),
    "gpt2": Family(
        "GPT2LMHeadModel", "GPT2Config",
        {"vocab_size": VOCABULARY, "n_embd": 24, "n_layer": 2, "n_head": 4, "n_positions": 64,
         "bos_token_id": 1, "eos_token_id": 2},
        decodes=True,
    ),
    "gpt_neox": _decoder("GPTNeoX"),
    "opt": Family(
        "OPTForCausalLM", "OPTConfig",
        {"vocab_size": VOCABULARY, "hidden_size": 24, "word_embed_proj_dim": 24, "ffn_dim": 20, "num_hidden_layers": 2,
             "num_attention_heads": 4, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1,
             "eos_token_id": 2},
        decodes=True,
    ),
    "llama": _decoder("Llama"),
    "llama4": Family(
        "Llama4ForCausalLM", "Llama4TextConfig",
        {**GROUPED, "head_dim": 6, "intermediate_size_mlp": 20, "attention_chunk_size": 4, **_EXPERTS,
         "layer_types": ["chunked_attention", "full_attention"]},
        decodes=True,
    ),
    "mistral": _decoder("Mistral", sliding_window=4),
    "mixtral": _decoder("Mixtral", sliding_window=4, **_EXPERTS),
    "qwen2": _decoder("Qwen2", use_sliding_window=True, sliding_window=4, **SLIDING),
    "qwen3": _decoder("Qwen3", head_dim=6),
    "gemma2": _decoder("Gemma2", head_dim=6, sliding_window=4, attn_logit_softcapping=2.0, **SLIDING),
    "gemma3": Family(
        "Gemma3ForCausalLM", "Gemma3TextConfig", {**GROUPED, "head_dim": 6, "sliding_window": 4, **SLIDING},
        decodes=True,
    ),
    "gpt_oss": _decoder("GptOss", head_dim=6, sliding_window=4, **SLIDING, **_EXPERTS),
    "phi3": _decoder("Phi3", sliding_window=5),
    "cohere": _decoder("Cohere"),
    "granite": _decoder("Granite", attention_multiplier=0.3),
    "olmo2": _decoder("Olmo2"),
    "stablelm": _decoder("StableLm"),
    "starcoder2": _decoder("Starcoder2"),
    "diffllama": _decoder("DiffLlama"),
    "qwen3_next": _decoder(
        "Qwen3Next", head_dim=6, layer_types=["full_attention", "full_attention"], linear_num_value_heads=2,
        linear_num_key_heads=2, linear_key_head_dim=4, linear_value_head_dim=4, num_experts=4, num_experts_per_tok=2,
        moe_intermediate_size=10, shared_expert_intermediate_size=10,
    ),
    "deepseek_v2": _decoder(
        "DeepseekV2", num_key_value_heads=4, q_lora_rank=10, kv_lora_rank=8, qk_rope_head_dim=4, qk_nope_head_dim=6,
        v_head_dim=5, n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=10, first_k_dense_replace=1,
    ),
    "deepseek_v3": _decoder(
        "DeepseekV3", num_key_value_heads=4, q_lora_rank=10, kv_lora_rank=8, qk_rope_head_dim=4, qk_nope_head_dim=6,
        v_head_dim=5, n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=10, n_group=1, topk_group=1,
        first_k_dense_replace=1,
    ),
    "t5": Family("T5ForConditionalGeneration", "T5Config", _T5, "pairs", decodes=True),
    "umt5": Family("UMT5ForConditionalGeneration", "UMT5Config", _T5, "pairs", decodes=True),
    "bart": Family("BartForConditionalGeneration", "BartConfig", _SEQ2SEQ, "pairs", decodes=True),
    "marian": Family("MarianMTModel", "MarianConfig", _SEQ2SEQ, "pairs", decodes=True),
    "whisper": Family(
        "WhisperForConditionalGeneration", "WhisperConfig",
        {**_SEQ2SEQ, "num_mel_bins": 5, "max_source_positions": 7, "max_target_positions": 40,
         "begin_suppress_tokens": None},
        "sound", decodes=False,
    ),
    "vit": Family("ViTModel", "ViTConfig", _VISION, "image"),
    "clip": Family(
        "CLIPModel", "CLIPConfig",
        {"projection_dim": 7, "text_config": {**_ENCODER, "eos_token_id": 2, "bos_token_id": 1},
         "vision_config": _VISION},
        "image and text",
    ),
    "siglip": Family("SiglipVisionModel", "SiglipVisionConfig", _VISION, "image"),
}  # fmt: skip
"""By its name in transformers."""

CAUSAL = [name for name, family in FAMILIES.items() if family.decodes and family.inputs == "text"]


def make(name: str, implementation: str, **options: Any) -> torch.nn.Module:
    """A model with random weights (always the same), in evaluation mode."""
    import transformers

    family = FAMILIES[name]
    config = getattr(transformers, family.config)(**{**family.options, **options})
    torch.manual_seed(5)
    # The products of experts are computed one by one: others take no double precision on a CPU.
    experts = {"experts_implementation": "eager"} if "num_experts_per_tok" in family.options else {}
    kind = getattr(transformers, family.model)
    model = kind._from_config(config, attn_implementation=implementation, **experts).eval()
    generator = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for parameter in model.parameters():
            # Larger than the usual initial weights, which would make all attention nearly uniform.
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.15)
    return model


def padding(side: str) -> torch.Tensor:
    """``int64 [BATCH, LENGTH]``: rows with 0, 4 and 9 tokens of padding."""
    visible = torch.ones(BATCH, LENGTH, dtype=torch.int64)
    for row, missing in enumerate((0, 4, 9)):
        visible[row, : missing if side == "left" else 0] = 0
        visible[row, LENGTH - missing if side == "right" else LENGTH :] = 0
    return visible


def inputs(name: str, side: str | None = None, dtype: torch.dtype = torch.float64) -> dict[str, torch.Tensor]:
    """Inputs of a model; with padding on a side, where it takes text."""
    generator = torch.Generator().manual_seed(3)
    kind = FAMILIES[name].inputs
    given: dict[str, torch.Tensor] = {}
    if "text" in kind or kind == "pairs":
        given["input_ids"] = torch.randint(3, VOCABULARY, (BATCH, LENGTH), generator=generator)
        if side is not None:
            given["attention_mask"] = padding(side)
    if "image" in kind:
        given["pixel_values"] = torch.randn(BATCH, 3, 12, 12, generator=generator, dtype=dtype)
    if kind == "sound":
        given["input_features"] = torch.randn(BATCH, 5, 14, generator=generator, dtype=dtype)
    if kind in ("pairs", "sound"):
        given["decoder_input_ids"] = torch.randint(3, VOCABULARY, (BATCH, TARGETS), generator=generator)
    return given


def output(model: torch.nn.Module, given: dict[str, torch.Tensor], **options: Any) -> torch.Tensor:
    """The model's main result at positions that are no padding, flattened to ``[positions, features]``."""
    result = model(**given, **options)
    main: Callable[[Any], Any] = lambda r: r.get("logits", r.get("last_hidden_state", r.get("text_embeds")))  # noqa: E731
    states = main(result)
    if "pixel_values" in given and "input_ids" in given:
        return torch.cat([result["text_embeds"], result["image_embeds"]])
    if "attention_mask" in given and states.shape[:2] == given["attention_mask"].shape:
        return states[given["attention_mask"].bool()]
    return states.flatten(0, 1)
