"""Language models as GPT-2, or as Starcoder2 with rotary positions."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from regard.data.text.tokenizers import TextTokenizer
from regard.exports.hugging_face.folder import Folder, fill, loaded_model, transformers_package, write
from regard.exports.hugging_face.layers import activation_name, attention_weights, check_layers, linear
from regard.exports.hugging_face.tokenizer import save_tokenizer
from regard.exports.torch_programs import difference
from regard.models.language_model import LanguageModel
from regard.positions import Learned, Rotary


def check_language_model(model: LanguageModel) -> None:
    """Raises UnexportableError unless one of the classes computes this model."""
    rotary, learned = _is_rotary(model), isinstance(model.input.position, Learned)
    check_layers(
        model.stack.layers,
        grouped=rotary,
        more=[(rotary or learned, "its positions are neither learned nor rotary", {"position": "rotary"})],
    )


def _is_rotary(model: LanguageModel) -> bool:
    layer: Any = model.stack.layers[0]
    return isinstance(getattr(layer.self_attn, "position", None), Rotary)


def export_language_model(model: LanguageModel, files: Mapping[str, Any], path: Path) -> Folder:
    """Writes a language model for one of the two classes, by its positions."""
    layers: list[Any] = list(model.stack.layers)
    transformers = transformers_package()
    end = TextTokenizer.END
    common = {
        "vocab_size": model.input.embedding.num_embeddings, "bos_token_id": end, "eos_token_id": end,
        "pad_token_id": end, "tie_word_embeddings": model.output.weight is model.input.embedding.weight,
    }  # fmt: skip
    build = _starcoder2 if _is_rotary(model) else _gpt2
    exported = build(transformers, model, layers, common)
    write(exported, path)
    save_tokenizer(files["tokenizer"], path)
    loaded = loaded_model(transformers.AutoModelForCausalLM, path)
    gaps = []
    for batch, length in ((2, min(9, model.config.context)), (1, 1)):
        tokens = torch.randint(common["vocab_size"], (batch, length), generator=torch.Generator().manual_seed(length))
        with torch.no_grad():
            gaps.append(difference([loaded(input_ids=tokens).logits], [model(tokens)], type(exported).__name__))
    return Folder(type(exported).__name__, "AutoModelForCausalLM", max(gaps))


def _gpt2(transformers: Any, model: LanguageModel, layers: Sequence[Any], common: dict[str, Any]) -> Any:
    dropout = layers[0].dropout.p
    config = transformers.GPT2Config(
        n_positions=model.config.context, n_embd=model.input.embedding.embedding_dim, n_layer=len(layers),
        n_head=layers[0].self_attn.num_heads, n_inner=layers[0].linear1.out_features,
        activation_function=activation_name(layers[0]), resid_pdrop=dropout, embd_pdrop=dropout, attn_pdrop=dropout,
        layer_norm_epsilon=layers[0].norm1.eps, **common,
    )  # fmt: skip
    assert model.input.position is not None
    assert model.stack.norm is not None
    tensors = {
        "transformer.wte.weight": model.input.embedding.weight,
        "transformer.wpe.weight": model.input.position.weight,
        "lm_head.weight": model.output.weight,
        **linear("transformer.ln_f", model.stack.norm),
    }
    for number, layer in enumerate(layers):
        name, attention = f"transformer.h.{number}", layer.self_attn
        tensors |= linear(f"{name}.ln_1", layer.norm1) | linear(f"{name}.ln_2", layer.norm2)
        parts = (
            ("attn.c_attn", attention.in_proj_weight, attention.in_proj_bias),
            ("attn.c_proj", attention.out_proj.weight, attention.out_proj.bias),
            ("mlp.c_fc", layer.linear1.weight, layer.linear1.bias),
            ("mlp.c_proj", layer.linear2.weight, layer.linear2.bias),
        )
        for part, weight, bias in parts:  # the class has transposed weights
            tensors |= {f"{name}.{part}.weight": weight.T, f"{name}.{part}.bias": bias}
    return fill(transformers.GPT2LMHeadModel(config), tensors)


def _starcoder2(transformers: Any, model: LanguageModel, layers: Sequence[Any], common: dict[str, Any]) -> Any:
    attention, dropout = layers[0].self_attn, layers[0].dropout.p
    assert isinstance(attention.position, Rotary)
    config = transformers.Starcoder2Config(
        hidden_size=attention.embed_dim, intermediate_size=layers[0].linear1.out_features,
        num_hidden_layers=len(layers), num_attention_heads=attention.num_heads,
        num_key_value_heads=attention.kv_heads, hidden_act=activation_name(layers[0]),
        max_position_embeddings=model.config.context, norm_epsilon=layers[0].norm1.eps,
        rope_parameters={"rope_type": "default", "rope_theta": attention.position.waves.base}, sliding_window=None,
        attention_dropout=dropout, residual_dropout=dropout, embedding_dropout=dropout, use_bias=True, **common,
    )  # fmt: skip
    assert model.stack.norm is not None
    tensors = {
        "model.embed_tokens.weight": model.input.embedding.weight,
        "lm_head.weight": model.output.weight,
        **linear("model.norm", model.stack.norm),
    }
    for number, layer in enumerate(layers):
        name = f"model.layers.{number}"
        tensors |= attention_weights(f"{name}.self_attn", layer.self_attn, "o_proj")
        tensors |= linear(f"{name}.input_layernorm", layer.norm1)
        tensors |= linear(f"{name}.post_attention_layernorm", layer.norm2)
        tensors |= linear(f"{name}.mlp.c_fc", layer.linear1) | linear(f"{name}.mlp.c_proj", layer.linear2)
    return fill(transformers.Starcoder2ForCausalLM(config), tensors)
