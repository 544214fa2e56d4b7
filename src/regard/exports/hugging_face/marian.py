"""Translators as Marian, or with a normalization before each part as Pegasus or Blenderbot."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.exports.hugging_face.folder import Folder, fill, loaded_model, transformers_package, write
from regard.exports.hugging_face.layers import (
    Condition,
    activation_name,
    attention_weights,
    check_layers,
    linear,
    no_final_norm,
)
from regard.exports.hugging_face.tokenizer import save_tokenizer
from regard.exports.torch_programs import difference
from regard.models.transformer_translator import TransformerTranslator
from regard.positions import Learned, Sinusoidal

LONGEST_TEXT = 1024
"""Tokens for which a model with sinusoidal positions gets a table; regard's have no limit."""


def check_translator(model: TransformerTranslator) -> None:
    """Raises UnexportableError unless one of the classes computes this model."""
    position, sinusoidal, pre = model.source_input.position, _is_sinusoidal(model), _is_pre_norm(model)
    holds, reason = sinusoidal or isinstance(position, Learned), "its positions are neither sinusoidal nor learned"
    conditions: list[Condition] = [(holds, reason, {"position": "sinusoidal"})]
    if not pre:
        reason = "it normalizes after each part, and its positions are not sinusoidal"
        conditions = [
            (sinusoidal, reason, {"position": "sinusoidal"}), no_final_norm(model.encoder, model.decoder)
        ]  # fmt: skip
    check_layers([*model.encoder.layers, *model.decoder.layers], pre=pre, more=conditions)


def _is_sinusoidal(model: TransformerTranslator) -> bool:
    return isinstance(model.source_input.position, Sinusoidal)


def _is_pre_norm(model: TransformerTranslator) -> bool:
    layer: Any = model.encoder.layers[0]
    return layer.norm_first


def export_translator(model: TransformerTranslator, files: Mapping[str, Any], path: Path) -> Folder:
    """Writes a translator for one of three classes, by its positions and by where it normalizes."""
    encoder, decoder = list(model.encoder.layers), list(model.decoder.layers)
    first: Any = encoder[0]
    sinusoidal, pre = _is_sinusoidal(model), _is_pre_norm(model)
    transformers = transformers_package()
    family = ("Pegasus" if sinusoidal else "Blenderbot") if pre else "Marian"
    ids, dim, dropout = model.config, first.self_attn.embed_dim, first.dropout.p
    vocabularies = model.source_input.embedding.num_embeddings, model.target_input.embedding.num_embeddings
    vocabulary = max(vocabularies)
    options: dict[str, Any] = {"vocab_size": vocabulary, "tie_word_embeddings": False}
    if family == "Marian":
        options = {
            "vocab_size": vocabularies[0], "decoder_vocab_size": vocabularies[1],
            "share_encoder_decoder_embeddings": ids.tied == "all", "tie_word_embeddings": ids.tied != "none",
        }  # fmt: skip
    elif family == "Blenderbot":
        options["encoder_no_repeat_ngram_size"] = 0
    config = getattr(transformers, f"{family}Config")(
        max_position_embeddings=model.max_length or LONGEST_TEXT,
        encoder_layers=len(encoder), decoder_layers=len(decoder), d_model=dim,
        encoder_ffn_dim=first.linear1.out_features, decoder_ffn_dim=first.linear1.out_features,
        encoder_attention_heads=first.self_attn.num_heads, decoder_attention_heads=first.self_attn.num_heads,
        activation_function=activation_name(first),
        dropout=dropout, attention_dropout=dropout, activation_dropout=dropout,
        scale_embedding=True, pad_token_id=ids.pad, bos_token_id=ids.bos,
        eos_token_id=ids.eos, decoder_start_token_id=ids.bos, forced_eos_token_id=None, **options,
    )  # fmt: skip
    tensors = _tensors_of_marian(model) if family == "Marian" else _tensors_of_pegasus(model, vocabulary)
    if sinusoidal:
        tensors = _with_sines_first(tensors, dim)
    kind = "MarianMTModel" if family == "Marian" else f"{family}ForConditionalGeneration"
    exported = fill(getattr(transformers, kind)(config), tensors)
    exported.generation_config = transformers.GenerationConfig(
        pad_token_id=ids.pad, bos_token_id=ids.bos, eos_token_id=ids.eos, decoder_start_token_id=ids.bos,
        max_length=100, num_beams=1, bad_words_ids=[[ids.pad], [ids.bos]],
    )  # fmt: skip
    write(exported, path)
    source = files.get("source", files.get("tokenizer"))
    target = files.get("target", source)
    assert source is not None
    assert target is not None
    save_tokenizer(source, path)
    if target is not source:
        save_tokenizer(target, path / "target")
    loaded = loaded_model(transformers.AutoModelForSeq2SeqLM, path)
    longest = min(7, model.max_length or 7)
    gaps = [_translation_gap(model, loaded, vocabularies, *size) for size in ((3, longest), (1, 2))]
    return Folder(kind, "AutoModelForSeq2SeqLM", max(gaps))


def _translation_gap(
    model: TransformerTranslator, loaded: Any, vocabularies: tuple[int, int], batch: int, length: int
) -> float:
    """Returns the largest difference of logits for random texts of which some are padded."""
    random = torch.Generator().manual_seed(length)
    source, target = (torch.randint(4, size, (batch, length), generator=random) for size in vocabularies)
    lengths = (length - torch.arange(batch)).clamp(min=1)
    mask = (torch.arange(length) < lengths[:, None]).long()
    with torch.no_grad():
        ours = model(source, lengths, target, need_weights=False).logits
        theirs = loaded(input_ids=source, attention_mask=mask, decoder_input_ids=target[:, :-1]).logits
    return difference([theirs[..., : vocabularies[1]]], [ours], type(loaded).__name__)


def _tensors_of_marian(model: TransformerTranslator) -> dict[str, Tensor]:
    """Returns the weights under the names of Marian, which has a vocabulary for each side, or one for both."""
    source, target = model.source_input.embedding.weight, model.target_input.embedding.weight
    tensors = {
        "model.encoder.embed_tokens.weight": source,
        "model.decoder.embed_tokens.weight": target,
        "lm_head.weight": model.output.weight,
        "final_logits_bias": model.output.bias[None],
        **_layer_tensors(model),
    }
    return tensors | ({"model.shared.weight": source} if source is target else {})


def _tensors_of_pegasus(model: TransformerTranslator, vocabulary: int) -> dict[str, Tensor]:
    """Returns the weights under the names that Pegasus and Blenderbot share. Both classes have one size of vocabulary:
    the smaller one gets rows of zeros, and as a target logits of −∞."""

    def rows(weight: Tensor, value: float = 0.0) -> Tensor:
        padding = weight.new_full((vocabulary - len(weight), *weight.shape[1:]), value)
        return torch.cat((weight, padding))

    source, target = model.source_input, model.target_input
    tensors = {
        "model.shared.weight": rows(source.embedding.weight),
        "model.encoder.embed_tokens.weight": rows(source.embedding.weight),
        "model.decoder.embed_tokens.weight": rows(target.embedding.weight),
        "lm_head.weight": rows(model.output.weight),
        "final_logits_bias": rows(model.output.bias, -math.inf)[None],
        **_layer_tensors(model),
    }
    for side, part, stack in (("encoder", source, model.encoder), ("decoder", target, model.decoder)):
        if isinstance(part.position, Learned):
            tensors[f"model.{side}.embed_positions.weight"] = part.position.weight
        tensors |= linear(f"model.{side}.layer_norm", stack.norm)
    return tensors


def _layer_tensors(model: TransformerTranslator) -> dict[str, Tensor]:
    tensors = dict[str, Tensor]()
    for side, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
        for number, layer in enumerate(stack.layers):
            tensors |= _translator_layer(f"model.{side}.layers.{number}", layer)
    return tensors


def _translator_layer(name: str, layer: Any) -> dict[str, Tensor]:
    crosses = hasattr(layer, "multihead_attn")
    tensors = attention_weights(f"{name}.self_attn", layer.self_attn, "out_proj")
    tensors |= linear(f"{name}.self_attn_layer_norm", layer.norm1)
    tensors |= linear(f"{name}.final_layer_norm", layer.norm3 if crosses else layer.norm2)
    tensors |= linear(f"{name}.fc1", layer.linear1) | linear(f"{name}.fc2", layer.linear2)
    if crosses:
        tensors |= attention_weights(f"{name}.encoder_attn", layer.multihead_attn, "out_proj")
        tensors |= linear(f"{name}.encoder_attn_layer_norm", layer.norm2)
    return tensors


def _with_sines_first(tensors: Mapping[str, Tensor], dim: int) -> dict[str, Tensor]:
    """Reorders the features of a token: those with a sine first, then those with a cosine, as Marian and Pegasus have
    them, where regard's alternate. Features that a projection makes, of heads and of hidden layers, stay as they
    are."""
    order = torch.cat((torch.arange(0, dim, 2), torch.arange(1, dim, 2)))
    permuted = {}
    for name, tensor in tensors.items():
        writes = name.endswith(("out_proj.weight", "out_proj.bias", "fc2.weight", "fc2.bias"))
        if "norm" in name or writes:
            tensor = tensor[order]
        elif name.endswith("weight"):  # what reads a token, and embeddings
            tensor = tensor[:, order]
        permuted[name] = tensor
    return permuted
