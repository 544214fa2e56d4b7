"""Folders of Hugging Face transformers: for models whose calculation a class of that library has, number for number.

=====================================  =====================================  ==========================================
model of regard                        class of transformers                  must have
=====================================  =====================================  ==========================================
language model, position learned       ``GPT2LMHeadModel``                    pre-norm, softmax of scaled dot products,
                                                                              as many key heads as query heads
language model, position rotary        ``Starcoder2ForCausalLM``              pre-norm, softmax of scaled dot products
translator, position sinusoidal        ``PegasusForConditionalGeneration``    as for GPT-2
translator, position learned           ``BlenderbotForConditionalGeneration`` as for GPT-2
Vision Transformer                     ``ViTForImageClassification``          a class token
=====================================  =====================================  ==========================================

A summarizer that neither copies nor covers is a translator. Marian's layers normalize after each part, without the
normalization at the end that regard's stacks have; Pegasus has the same positions and normalizes as regard's pre-norm.
Its positions have the sines before the cosines, where regard's alternate: so the features of every token are permuted.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from regard.data.images.reading import Fit, fit_image
from regard.data.labels import Labels
from regard.data.text.tokenizers import TextTokenizer, Tokenizer
from regard.errors import ArgumentError, MissingPartError
from regard.exports.torch_programs import difference, quiet
from regard.models.language_model import LanguageModel
from regard.models.pointer_generator import PointerGenerator
from regard.models.text_classifier import TextClassifier
from regard.models.transformer_translator import TransformerTranslator
from regard.models.vision.image_classifier import ImageClassifier, VisionTransformer
from regard.models.vision.pixels import DEVIATION, MEAN
from regard.normalizers import Softmax
from regard.positions import Learned, Rotary, Sinusoidal
from regard.scores import ScaledDot

LONGEST_TEXT = 1024
"""Tokens for which a model with sinusoidal positions gets a table; regard's have no limit."""


class Folder(NamedTuple):
    """What was written.

    Attributes:
        architecture: the class of transformers.
        auto: the class that loads the folder.
        difference: the largest difference between the logits of the loaded model and of regard's.
        note: what else a user must know; empty: nothing.
    """

    architecture: str
    auto: str
    difference: float
    note: str = ""


def save(model: nn.Module, files: Mapping[str, Any], path: Path, fit: Fit = "stretch") -> Folder:
    """Writes a folder that transformers loads, and compares what the loaded model gives.

    Args:
        model: the model, on the CPU and in evaluation mode.
        files: the tokenizers and labels of the run, by name.
        path: the folder, which exists.
        fit: how images are brought to the size of the model, as in `regard.data.images.reading.fit_image`.

    Raises:
        ArgumentError: no class of transformers computes what this model does; the message says what differs, and which
            options of the training to change.
        MissingPartError: transformers is not installed.
        RunError: the loaded model gives other numbers.
    """
    if isinstance(model, PointerGenerator) and model.gate is None and not model.config.coverage:
        model = model.translator
    if isinstance(model, LanguageModel):
        return _language_model(model, files, path)
    if isinstance(model, TransformerTranslator):
        return _translator(model, files, path)
    if isinstance(model, ImageClassifier) and isinstance(model.encoder, VisionTransformer):
        return _vision_transformer(model, files, path, fit)
    raise ArgumentError(_why_not(model))


def _why_not(model: nn.Module) -> str:
    name = type(model).__name__
    if isinstance(model, TextClassifier):
        return (
            "no class of transformers computes a text classifier of regard: those like BERT normalize embeddings and "
            "read the label off the first token, regard's pools all tokens; export it to onnx or torch"
        )
    if isinstance(model, PointerGenerator):
        return (
            "no class of transformers copies words of the source; train with --no-copy and a Transformer, or export "
            "to onnx or torch"
        )
    if isinstance(model, ImageClassifier):
        return (
            "no class of transformers computes this network for images; train a Vision Transformer (vit), or export "
            "to onnx or torch"
        )
    return (
        f"no class of transformers computes a {name}: it has Transformers that translate, language models and Vision "
        "Transformers; train a Transformer where the task has one, or export to onnx or torch"
    )


def _transformers() -> Any:
    try:
        import transformers
    except ImportError as error:
        raise MissingPartError("transformers", "export") from error
    return transformers


# What must agree


def _check_layers(layers: Iterable[Any], *, grouped: bool, more: Sequence[tuple[bool, str, str]] = ()) -> None:
    """Raises ArgumentError unless the layers compute what those of transformers do.

    Args:
        layers: the layers of all stacks.
        grouped: whether the class has fewer key heads than query heads.
        more: other conditions: whether it holds, what is so otherwise, and the options that make it hold.
    """
    layers = list(layers)
    attentions = [one for layer in layers for one in (layer.self_attn, getattr(layer, "multihead_attn", None)) if one]
    conditions = [
        *more,
        (all(layer.norm_first for layer in layers), "it normalizes after each part (post-norm)", "--norm pre"),
        (all(_is_scaled_dot(one.score) for one in attentions), "its score is not scaled_dot", "--score scaled_dot"),
        (
            all(_is_softmax(one.normalizer) for one in attentions), "its normalizer is not softmax",
            "--normalizer softmax",
        ),
        (
            grouped or all(one.kv_heads == one.num_heads for one in attentions),
            "it has fewer key heads than query heads", "no --kv-heads",
        ),
    ]  # fmt: skip
    wrong = [(reason, option) for holds, reason, option in conditions if not holds]
    if wrong:
        reasons, options = (" and ".join(dict.fromkeys(texts)) for texts in zip(*wrong, strict=True))
        raise ArgumentError(
            f"no class of transformers computes this model: {reasons}; train with {options}, or export to onnx or torch"
        )


def _is_scaled_dot(score: Any) -> bool:
    return type(score) is ScaledDot and score.scale is None


def _is_softmax(normalizer: Any) -> bool:
    temperature = normalizer.temperature if type(normalizer) is Softmax else None
    return isinstance(temperature, float) and temperature == 1.0


# Weights under other names


class _Projection(NamedTuple):
    """A linear map: ``[output, input]`` and ``[output]``."""

    weight: Tensor
    bias: Tensor


def _inputs_of(attention: Any) -> dict[str, _Projection]:
    """The projections of query, key and value: ``q``, ``k`` and ``v``."""
    widths, bias = attention.widths, attention.in_proj_bias
    if attention.in_proj_weight is not None:
        weights = attention.in_proj_weight.split(widths)
    else:
        weights = attention.q_proj_weight, attention.k_proj_weight, attention.v_proj_weight
    pairs = zip(weights, bias.split(widths), strict=True)
    return {name: _Projection(*pair) for name, pair in zip("qkv", pairs, strict=True)}


def _linear(name: str, layer: Any) -> dict[str, Tensor]:
    """The weight and the bias of a layer, or of a normalization."""
    return {f"{name}.weight": layer.weight, f"{name}.bias": layer.bias}


def _attention(name: str, attention: Any, output: str) -> dict[str, Tensor]:
    tensors = _linear(f"{name}.{output}", attention.out_proj)
    for letter, projection in _inputs_of(attention).items():
        tensors |= _linear(f"{name}.{letter}_proj", projection)
    return tensors


def _fill(model: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Gives a model of transformers these weights; each of its own must be among them."""
    with torch.no_grad():
        copies = {name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()}
    missing, unexpected = model.load_state_dict(copies, strict=False)
    tied = {"lm_head.weight"} if getattr(model.config, "tie_word_embeddings", False) else set()
    positions = {name for name in missing if "embed_positions" in name}  # of sines, which the class computes
    if unexpected or set(missing) - tied - positions:
        raise ArgumentError(
            f"this version of transformers has other weights in a {type(model).__name__}: "
            f"{', '.join([*missing, *unexpected][:3])}; install the version that regard names"
        )
    return model.eval()


def _loaded(kind: Any, path: Path) -> Any:
    """The model of a folder, as a user loads it. No code of a folder is run, and nothing is downloaded."""
    with quiet(), _no_progress_bars():
        return kind.from_pretrained(str(path), local_files_only=True, trust_remote_code=False).eval()


def _write(model: Any, path: Path) -> None:
    with quiet(), _no_progress_bars():
        model.save_pretrained(path)


@contextmanager
def _no_progress_bars() -> Iterator[None]:
    bars = _transformers().utils.logging
    shown = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            bars.enable_progress_bar()


# Tokenizers


def _save_tokenizer(tokenizer: Tokenizer | TextTokenizer, path: Path) -> None:
    """Writes a tokenizer that `transformers.AutoTokenizer` loads, and that encodes every text as ours."""
    from tokenizers import Tokenizer as Backend

    transformers = _transformers()
    names = type(tokenizer).SPECIAL
    if isinstance(tokenizer, Tokenizer):
        pad, bos, eos, unknown = names
        special = {"pad_token": pad, "bos_token": bos, "eos_token": eos, "unk_token": unknown}
    else:
        end, unknown = names
        special = {"pad_token": end, "bos_token": end, "eos_token": end, "unk_token": unknown}
    path.mkdir(parents=True, exist_ok=True)
    tokenizer.save(path / "tokenizer.json")
    backend = Backend.from_file(str(path / "tokenizer.json"))
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend,
        split_special_tokens=True,  # the name of a special piece in a text is text
        clean_up_tokenization_spaces=False,
        model_input_names=["input_ids", "attention_mask"],
        **special,
    )
    with quiet():
        fast.save_pretrained(path)


# Language models


def _language_model(model: LanguageModel, files: Mapping[str, Any], path: Path) -> Folder:
    layers: list[Any] = list(model.stack.layers)
    attention, position = layers[0].self_attn, model.input.position
    rotary, learned = isinstance(attention.position, Rotary), isinstance(position, Learned)
    _check_layers(
        layers,
        grouped=rotary,
        more=[(rotary or learned, "its positions are neither learned nor rotary", "--position rotary")],
    )
    transformers = _transformers()
    end = TextTokenizer.END
    common = {
        "vocab_size": model.input.embedding.num_embeddings, "bos_token_id": end, "eos_token_id": end,
        "pad_token_id": end, "tie_word_embeddings": model.output.weight is model.input.embedding.weight,
    }  # fmt: skip
    build = _starcoder2 if rotary else _gpt2
    exported = build(transformers, model, layers, common)
    _write(exported, path)
    _save_tokenizer(files["tokenizer"], path)
    loaded = _loaded(transformers.AutoModelForCausalLM, path)
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
        activation_function=layers[0].activation, resid_pdrop=dropout, embd_pdrop=dropout, attn_pdrop=dropout,
        layer_norm_epsilon=layers[0].norm1.eps, **common,
    )  # fmt: skip
    assert model.input.position is not None
    assert model.stack.norm is not None
    tensors = {
        "transformer.wte.weight": model.input.embedding.weight,
        "transformer.wpe.weight": model.input.position.weight,
        "lm_head.weight": model.output.weight,
        **_linear("transformer.ln_f", model.stack.norm),
    }
    for number, layer in enumerate(layers):
        name, attention = f"transformer.h.{number}", layer.self_attn
        tensors |= _linear(f"{name}.ln_1", layer.norm1) | _linear(f"{name}.ln_2", layer.norm2)
        parts = (
            ("attn.c_attn", attention.in_proj_weight, attention.in_proj_bias),
            ("attn.c_proj", attention.out_proj.weight, attention.out_proj.bias),
            ("mlp.c_fc", layer.linear1.weight, layer.linear1.bias),
            ("mlp.c_proj", layer.linear2.weight, layer.linear2.bias),
        )
        for part, weight, bias in parts:  # the class has transposed weights
            tensors |= {f"{name}.{part}.weight": weight.T, f"{name}.{part}.bias": bias}
    return _fill(transformers.GPT2LMHeadModel(config), tensors)


def _starcoder2(transformers: Any, model: LanguageModel, layers: Sequence[Any], common: dict[str, Any]) -> Any:
    attention, dropout = layers[0].self_attn, layers[0].dropout.p
    assert isinstance(attention.position, Rotary)
    config = transformers.Starcoder2Config(
        hidden_size=attention.embed_dim, intermediate_size=layers[0].linear1.out_features,
        num_hidden_layers=len(layers), num_attention_heads=attention.num_heads,
        num_key_value_heads=attention.kv_heads, hidden_act=layers[0].activation,
        max_position_embeddings=model.config.context, norm_epsilon=layers[0].norm1.eps,
        rope_parameters={"rope_type": "default", "rope_theta": attention.position.waves.base}, sliding_window=None,
        attention_dropout=dropout, residual_dropout=dropout, embedding_dropout=dropout, use_bias=True, **common,
    )  # fmt: skip
    assert model.stack.norm is not None
    tensors = {
        "model.embed_tokens.weight": model.input.embedding.weight,
        "lm_head.weight": model.output.weight,
        **_linear("model.norm", model.stack.norm),
    }
    for number, layer in enumerate(layers):
        name = f"model.layers.{number}"
        tensors |= _attention(f"{name}.self_attn", layer.self_attn, "o_proj")
        tensors |= _linear(f"{name}.input_layernorm", layer.norm1)
        tensors |= _linear(f"{name}.post_attention_layernorm", layer.norm2)
        tensors |= _linear(f"{name}.mlp.c_fc", layer.linear1) | _linear(f"{name}.mlp.c_proj", layer.linear2)
    return _fill(transformers.Starcoder2ForCausalLM(config), tensors)


# Translators


def _translator(model: TransformerTranslator, files: Mapping[str, Any], path: Path) -> Folder:
    encoder, decoder = list(model.encoder.layers), list(model.decoder.layers)
    position = model.source_input.position
    _check_layers(
        [*encoder, *decoder],
        grouped=False,
        more=[
            (
                isinstance(position, (Sinusoidal, Learned)), "its positions are neither sinusoidal nor learned",
                "--position sinusoidal",
            )
        ],
    )  # fmt: skip
    transformers = _transformers()
    sinusoidal = isinstance(position, Sinusoidal)
    family = "Pegasus" if sinusoidal else "Blenderbot"
    first: Any = encoder[0]
    ids, dim, dropout = model.config, first.self_attn.embed_dim, first.dropout.p
    vocabularies = model.source_input.embedding.num_embeddings, model.target_input.embedding.num_embeddings
    vocabulary = max(vocabularies)
    config = getattr(transformers, f"{family}Config")(
        vocab_size=vocabulary, max_position_embeddings=model.max_length or LONGEST_TEXT,
        encoder_layers=len(encoder), decoder_layers=len(decoder), d_model=dim,
        encoder_ffn_dim=first.linear1.out_features, decoder_ffn_dim=first.linear1.out_features,
        encoder_attention_heads=first.self_attn.num_heads, decoder_attention_heads=first.self_attn.num_heads,
        activation_function=first.activation, dropout=dropout, attention_dropout=dropout, activation_dropout=dropout,
        scale_embedding=True, tie_word_embeddings=False, pad_token_id=ids.pad, bos_token_id=ids.bos,
        eos_token_id=ids.eos, decoder_start_token_id=ids.bos, forced_eos_token_id=None,
        **({} if sinusoidal else {"encoder_no_repeat_ngram_size": 0}),
    )  # fmt: skip
    tensors = _translator_tensors(model, vocabulary)
    if sinusoidal:
        tensors = _with_sines_first(tensors, dim)
    exported = _fill(getattr(transformers, f"{family}ForConditionalGeneration")(config), tensors)
    exported.generation_config = transformers.GenerationConfig(
        pad_token_id=ids.pad, bos_token_id=ids.bos, eos_token_id=ids.eos, decoder_start_token_id=ids.bos,
        max_length=100, num_beams=1, bad_words_ids=[[ids.pad], [ids.bos]],
    )  # fmt: skip
    _write(exported, path)
    source = files.get("source", files.get("tokenizer"))
    target = files.get("target", source)
    assert source is not None
    assert target is not None
    _save_tokenizer(source, path)
    if target is not source:
        _save_tokenizer(target, path / "target")
    loaded = _loaded(transformers.AutoModelForSeq2SeqLM, path)
    longest = min(7, model.max_length or 7)
    gaps = [_translation_gap(model, loaded, vocabularies, *size) for size in ((3, longest), (1, 2))]
    return Folder(type(exported).__name__, "AutoModelForSeq2SeqLM", max(gaps))


def _translation_gap(
    model: TransformerTranslator, loaded: Any, vocabularies: tuple[int, int], batch: int, length: int
) -> float:
    """The largest difference of logits for random texts of which some are padded."""
    random = torch.Generator().manual_seed(length)
    source, target = (torch.randint(4, size, (batch, length), generator=random) for size in vocabularies)
    lengths = (length - torch.arange(batch)).clamp(min=1)
    mask = (torch.arange(length) < lengths[:, None]).long()
    with torch.no_grad():
        ours = model(source, lengths, target, need_weights=False).logits
        theirs = loaded(input_ids=source, attention_mask=mask, decoder_input_ids=target[:, :-1]).logits
    return difference([theirs[..., : vocabularies[1]]], [ours], type(loaded).__name__)


def _translator_tensors(model: TransformerTranslator, vocabulary: int) -> dict[str, Tensor]:
    """The weights under the names that Pegasus and Blenderbot share.

    Both classes have one size of vocabulary: the smaller one gets rows of zeros, and as a target logits of −∞.
    """

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
    }
    for side, part, stack in (("encoder", source, model.encoder), ("decoder", target, model.decoder)):
        if isinstance(part.position, Learned):
            tensors[f"model.{side}.embed_positions.weight"] = part.position.weight
        tensors |= _linear(f"model.{side}.layer_norm", stack.norm)
        for number, layer in enumerate(stack.layers):
            tensors |= _translator_layer(f"model.{side}.layers.{number}", layer)
    return tensors


def _translator_layer(name: str, layer: Any) -> dict[str, Tensor]:
    crosses = hasattr(layer, "multihead_attn")
    tensors = _attention(f"{name}.self_attn", layer.self_attn, "out_proj")
    tensors |= _linear(f"{name}.self_attn_layer_norm", layer.norm1)
    tensors |= _linear(f"{name}.final_layer_norm", layer.norm3 if crosses else layer.norm2)
    tensors |= _linear(f"{name}.fc1", layer.linear1) | _linear(f"{name}.fc2", layer.linear2)
    if crosses:
        tensors |= _attention(f"{name}.encoder_attn", layer.multihead_attn, "out_proj")
        tensors |= _linear(f"{name}.encoder_attn_layer_norm", layer.norm2)
    return tensors


def _with_sines_first(tensors: Mapping[str, Tensor], dim: int) -> dict[str, Tensor]:
    """The same model with the features of a token in another order: those with a sine first, then those with a cosine.

    Features that a projection makes, of heads and of hidden layers, stay as they are.
    """
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


# Images


def _vision_transformer(model: ImageClassifier, files: Mapping[str, Any], path: Path, fit: Fit) -> Folder:
    encoder: Any = model.encoder
    layers = list(encoder.encoder.layers)
    _check_layers(
        layers,
        grouped=False,
        more=[(encoder.class_token is not None, "it has no class token", "--pooling cls")],
    )
    transformers = _transformers()
    height, width = encoder.size
    dropout = layers[0].dropout.p
    labels = next((one.names for one in files.values() if isinstance(one, Labels)), ())
    config = transformers.ViTConfig(
        hidden_size=encoder.dim, num_hidden_layers=len(layers), num_attention_heads=layers[0].self_attn.num_heads,
        intermediate_size=layers[0].linear1.out_features, hidden_act=layers[0].activation, hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout, layer_norm_eps=layers[0].norm1.eps, image_size=(height, width),
        patch_size=encoder.patch, id2label=dict(enumerate(labels)),
        label2id={name: number for number, name in enumerate(labels)},
    )  # fmt: skip
    side = encoder.patch
    tensors = {
        "vit.embeddings.cls_token": encoder.class_token[None, None],
        "vit.embeddings.position_embeddings": encoder.position[None],
        "vit.embeddings.patch_embeddings.projection.weight": encoder.embedding.weight.unflatten(1, (3, side, side)),
        "vit.embeddings.patch_embeddings.projection.bias": encoder.embedding.bias,
        **_linear("vit.layernorm", encoder.encoder.norm),
        **_linear("classifier", model.output),
    }
    for number, layer in enumerate(layers):
        name = f"vit.layers.{number}"
        tensors |= _attention(f"{name}.attention", layer.self_attn, "o_proj")
        tensors |= _linear(f"{name}.layernorm_before", layer.norm1) | _linear(f"{name}.layernorm_after", layer.norm2)
        tensors |= _linear(f"{name}.mlp.fc1", layer.linear1) | _linear(f"{name}.mlp.fc2", layer.linear2)
    exported = _fill(transformers.ViTForImageClassification(config), tensors)
    _write(exported, path)
    _write_image_processor(path, height, width, fit)
    loaded = _loaded(transformers.AutoModelForImageClassification, path)
    notes = []
    if fit != "stretch":
        notes.append(
            f"the images of this model are cut to the middle before they are resized ({fit}), which no image processor "
            f"of transformers does: give the folder images of {width} × {height} pixels; it refuses others"
        )
    # Images of another size, where the processor resizes them.
    larger = (0, 0) if fit != "stretch" else (height // 2 + 5, 3)
    random = torch.Generator().manual_seed(3)
    shape = (3, height + larger[0], width + larger[1], 3)
    images = torch.randint(256, shape, generator=random, dtype=torch.uint8).numpy()
    fitted = torch.from_numpy(np.stack([fit_image(one, (height, width), fit).pixels for one in images]))
    pixels = _processed(path, images)
    if pixels is None:
        notes.append("the image processor of transformers could not be loaded here, so images were not compared")
        with torch.no_grad():
            pixels = encoder.pixels(fitted)
    with torch.no_grad():
        gap = difference([loaded(pixel_values=pixels).logits], [model(fitted).logits], type(exported).__name__)
    return Folder(type(exported).__name__, "AutoModelForImageClassification", gap, "; ".join(notes))


def _processed(path: Path, images: Any) -> Tensor | None:
    """What the image processor of the folder makes of images; None if a package that it needs is not installed."""
    try:
        with quiet():
            processor = _transformers().AutoImageProcessor.from_pretrained(
                str(path), local_files_only=True, trust_remote_code=False, backend="pil"
            )
    except (ImportError, OSError, ValueError):
        return None
    return processor(images=list(images), return_tensors="pt").pixel_values


def _write_image_processor(path: Path, height: int, width: int, fit: Fit) -> None:
    """Writes how pixels become an input. A size that the processor cannot make as regard does, it does not make."""
    import json

    from regard.atomic_file import write_atomically

    content = {
        "image_processor_type": "ViTImageProcessor",
        "do_resize": fit == "stretch", "size": {"height": height, "width": width},
        "resample": 3,  # Pillow's number of the cubic filter
        "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True,
        "image_mean": list(MEAN), "image_std": list(DEVIATION),
    }  # fmt: skip
    write_atomically(path / "preprocessor_config.json", (json.dumps(content, indent=2) + "\n").encode())
