"""Names that packages and objects do not have, and what is written here. This file imports no PyTorch."""

from typing import Any, TypeVar

from regard.errors import KindError
from regard.names.foreign_names import by_name

_Class = TypeVar("_Class", bound=type[Any])

_ABLATE = "with regard.watching.ablate(model, layer, head):"
_CONTRIBUTIONS = "watching.logit_contributions(model, watched.calls[0], token_ids)"
_PATCH = (
    "regard.patch(model, clean, corrupted, metric) for the effect of each head; or with regard.intervene(model, "
    'regard.Change("output", value, layer=layer, head=head)):'
)
_TASKS = ("caption", "classify", "images", "language", "segment", "sounds", "summarize", "transcribe", "translate")
_ALL_WEIGHTS = '[call.weights for call in watched.calls], with regard.watch(model, read="view")'

MISSING_NAMES: dict[str, dict[str, str]] = {
    package: by_name(lines)
    for package, lines in {
        "regard": {
            **{f'regard.train("{task}", data), and run.predict(inputs) of what it returns': task for task in _TASKS},
            'regard.nn.Attention("scaled_dot")': "Attention",
            "regard.pictures.heatmap(weights)": "attention_map heatmap",
            "regard.attend_with_weights(query, key, value).weights": "attention_weights",
            "regard.attend(query, key, value)": "scaled_dot_product_attention",
            'normalizer="softmax", or regard.normalizers.softmax(scores)': "softmax",
            'normalizer="sparsemax", or regard.normalizers.sparsemax(scores)': "sparsemax",
            "regard.normalizers.entmax(alpha)": "entmax",
            "regard.nn.MultiheadAttention(embed_dim, num_heads)": "MultiheadAttention",
            "regard.nn.Transformer(d_model, nhead)": "Transformer",
            'regard.attend(query, key, value), or with backend="sdpa"': "flash_attention flash_attn_func",
            'regard.attend(query, key, value, score=scores.Features("elu"), normalizer="ratio")': "linear_attention",
            _ABLATE: "ablate",
            _PATCH: "patching activation_patching attribution_patching path_patching patch_heads",
            "regard.observe(query, key, value, read=regard.Readings(entropy=True)).entropy": "entropy",
            f"regard.{_CONTRIBUTIONS}": "logit_contributions",
            "regard.watching.rollout(watched)": "rollout",
            "regard.watching.flow(watched)": "flow",
        },
        "regard.nn": {
            'nn.Attention.create("additive", query_dim, key_dim)': "AdditiveAttention BahdanauAttention",
            'nn.Attention.create("general", query_dim, key_dim)': "LuongAttention",
            'nn.Attention("scaled_dot")': "DotProductAttention ScaledDotProductAttention",
            'nn.Attention.create("location_aware", query_dim, key_dim, channels=channels, kernel_size=kernel_size)':
            "LocationAwareAttention",
            'positions.Rotary(dim), or position="rotary" of a layer': "RotaryEmbedding RotaryPositionalEmbedding",
            "positions.Sinusoidal(dim)": "PositionalEncoding",
            "nn.SqueezeExcitation(channels)": "SEBlock SELayer SqueezeExcite",
            "nn.KeyValueCache()": "KVCache DynamicCache",
            "nn.MultiheadAttention(embed_dim, num_heads, kdim=kdim, vdim=vdim)": "CrossAttention",
            "nn.NonLocal(channels)": "NonLocalBlock",
            "nn.MultiheadAttention(embed_dim, num_heads, score=scores.Features(scores.RandomFeatures.create(head_dim, "
            'features)), normalizer="ratio")': "PerformerAttention",
            "nn.Retention(embed_dim, num_heads)": "RetNet",
            "nn.GatedLinearAttention(embed_dim, num_heads)": "GLA",
            "nn.GatedDeltaNet(embed_dim, num_heads)": "GDN Qwen3NextGatedDeltaNet",
            "nn.KimiDeltaAttention(embed_dim, num_heads)": "KDA KimiLinearDeltaAttention",
            "nn.Mamba2(embed_dim, num_heads)": "SSD Mamba2Mixer BambaMixer",
            "nn.MultiheadAttention(embed_dim, num_heads, kv_heads=kv_heads)": "GroupedQueryAttention",
            "nn.MultiheadAttention(embed_dim, num_heads, kv_heads=1)": "MultiQueryAttention",
            "nn.LatentAttention(embed_dim, num_heads)": "MultiHeadLatentAttention",
            "nn.IndexedAttention(embed_dim, num_heads)": "DSA DeepseekV32Attention GlmMoeDsaAttention",
            "nn.CompressedAttention(embed_dim, num_heads)": "CSA HCA DeepseekV4Attention",
            "nn.NativeSparseAttention(embed_dim, num_heads)": "NSA",
            "nn.DepthAttention(dim)": "AttnRes AttentionResidual AttentionResiduals",
        },
        "regard.masks": {
            "masks.lengths(lengths)": "padding key_padding from_lengths",
            "masks.window(before, 0)": "sliding_window sliding sliding_window_causal",
            "masks.causal()": "tril subsequent Causal causal_mask autoregressive future look_ahead",
            "masks.documents(ids)": "block_diagonal",
            "masks.window(before, after)": "Window band banded",
            "masks.window(before, after), for a decoder masks.window(before, 0)": "local",
            "masks.window(before, 0) | masks.prefix(n) & masks.causal()": "sinks sink attention_sinks streaming",
            "masks.lengths(lengths), or masks.ignore(padding[:, None, None, :]) where True is padding":
            "key_padding_mask padding_mask from_padding",
            "masks.where(mask_mod)": "block_mask mask_mod",
            "masks.keep(torch.rand(queries, keys) < p)": "random",
        },
        "regard.biases": {
            "biases.alibi(heads)": "ALiBi",
            "biases.RelativeBias(heads)": "T5 t5 T5Bias relative t5_bias",
            "biases.RelativePosition(dim, max_distance)": "shaw Shaw",
            "no bias: regard.attend(rotary(query), rotary(key), value), where rotary = regard.positions.Rotary(dim)":
            "rope RoPE rotary Rotary",
        },
        "regard.positions": {
            "positions.RelativeBias(heads)": "T5 t5",
            "positions.RelativePosition(dim, max_distance)": "shaw Shaw",
            "positions.Rotary(dim)": "rope RoPE RotaryEmbedding rotary",
            "positions.alibi(heads)": "ALiBi",
            "positions.Sinusoidal(dim)": "PositionalEncoding sinusoidal",
            "positions.Learned(max_length, dim)": "learned",
            "positions.Rotary.from_config(config)": "LlamaRotaryEmbedding",
            "positions.Rotary(dim, scaling=positions.YaRN(factor, original_length))": "Yarn YARN yarn",
            "positions.Rotary(dim, scaling=positions.DynamicNTK(factor, original_length))": "NTK ntk",
            "positions.Rotary(dim, axes=positions.Sections(pairs))": "MRoPE MRope mrope",
            "positions.Rotary(dim, axes=positions.Axial(features))": "RoPE2D Rope2D AxialRoPE",
        },
        "regard.normalizers": {
            "normalizers.entmax(alpha)": "entmax_bisect",
            "normalizers.entmax15": "Entmax15",
            "normalizers.Softmax(temperature)": "Temperature",
        },
        "regard.watching": {
            _PATCH: "activation_patching attribution_patching path_patching",
            "watched.calls[0].entropy": "entropy",
        },
        "regard.scores": {
            'scores.create("additive", query_dim, key_dim)': "Bahdanau additive",
            'scores.SoftCap("scaled_dot", cap)': "softcap",
            'scores.Features("elu"), with normalizer="ratio"': "linear",
            'scores.Decayed("scaled_dot", log_decay), with normalizer="identity" and mask="causal"': "retention",
            'scores.DeltaRule("cosine", beta), with normalizer="identity" and mask="causal"': "delta_rule",
            'scores.create("general", query_dim, key_dim)': "Luong general",
            'scores.create("mlp", query_dim, key_dim)': "mlp",
            'scores.create("location", query_dim, key_dim, max_keys=max_keys)': "location",
        },
        "regard.pictures": {
            "regard.View(weights, tokens)": "head_view",
            'regard.View(weights, tokens, view="model")': "model_view",
            "pictures.heatmap(weights)": "attention_map",
            "records.HeadGrid(title, values, unit=unit)": "HeadMap",
        },
        "regard.models": {"models.BahdanauDecoder with an nn.MonotonicAttention": "MonotonicDecoder"},
        "regard.exports": {'regard.load(folder).export("onnx")': "onnx to_onnx"},
    }.items()
}  # fmt: skip
"""Package → name elsewhere → what is written here."""

ATTRIBUTES: dict[str, dict[str, str]] = {
    kind: by_name(lines)
    for kinds, lines in {
        "Watch": {
            "regard.View(watched, tokens).save(path)": "save",
            "regard.View(watched, tokens)": "show",
            _ALL_WEIGHTS: "attentions weights",
            "watched.calls[0].entropy, or of all calls [call.entropy for call in watched.calls]": "entropy",
            _PATCH: "patch",
        },
        "AttentionCall": {
            'call.weights, with regard.watch(model, read="view")': "attentions attention attention_weights probs",
            "call.head_output, with regard.watch(model, outputs=True)": "output",
            _PATCH: "patch",
        },
        "Survey": {
            'survey.table(["entropy"])': "entropy",
            '[call.weights for call in regard.watch(model, read="view").calls]': "attentions weights",
        },
        "View": {
            "the view itself as the last line of a notebook's cell, or view.save(path)": "show",
            "view.to_html()": "html",
        },
        "Classification": {"regard.View(classification).save(path)": "save", "regard.View(classification)": "show"},
        "KeyValueCache": {
            "cache = cache.appended(key, value), which returns the longer cache": "append",
            "cache = cache.appended(key, value)": "update",
            "cache.length": "get_seq_length",
        },
        "JointState PointerState PointingState TransformerState": {"state = state.reordered(index)": "reorder"},
        "DecoderState": {
            "state = state.reordered(index)": "reorder",
            "state.earlier.total": "coverage covered",
            "state.earlier.previous": "attended",
        },
        "TableTrained": {
            "run.predict(inputs), each of which has probabilities": "predict_proba",
            "regard.train(task, data)": "fit",
        },
    }.items()
    for kind in kinds.split()
}
"""Class → attribute elsewhere → what is written here."""


def missing_name(package: str, name: str) -> str:
    """Returns a message about a name that a package does not have."""
    return f"module {package!r} has no attribute {name!r}{_here(MISSING_NAMES.get(package, {}).get(name))}"


CALLED_PACKAGES = {
    "regard.attention": "regard.attend(query, key, value)",
    "regard.explanations": "regard.explain(query, key, value)",
    "regard.watching": "regard.watch(model)",
    "regard.viewer": "regard.View(content)",
    "regard.training": "regard.train(task, data)",
}
"""Package → what is written where the package itself was called (`regard.names.lazy_names`)."""


def called_package(package: str) -> KindError:
    """Returns the error for a package of `CALLED_PACKAGES` that was called."""
    return KindError(f"{package} is a package and no function: write {CALLED_PACKAGES[package]}")


def hinted(kind: _Class) -> _Class:
    """Decorates a class, so that the error for an attribute it does not have says what is written, by `ATTRIBUTES`."""

    def refuse(self: object, name: str) -> Any:
        line = _here(ATTRIBUTES.get(kind.__name__, {}).get(name))
        message = f"{type(self).__name__!r} object has no attribute {name!r}{line}"
        raise AttributeError(message, name=name, obj=self)

    kind.__getattr__ = refuse
    return kind


def _here(line: str | None) -> str:
    return "" if line is None else f": here it is {line}"
