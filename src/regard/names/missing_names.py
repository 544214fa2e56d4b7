"""Names that packages and objects do not have, and what is written here. This file imports no PyTorch."""

from typing import Any, TypeVar

from regard.errors import KindError

_Class = TypeVar("_Class", bound=type[Any])

_SINKS = "masks.window(before, 0) | masks.prefix(n) & masks.causal()"
_PADDING = "masks.lengths(lengths), or masks.ignore(padding[:, None, None, :]) where True is padding"
_ROTARY = "no bias: regard.attend(rotary(query), rotary(key), value), where rotary = regard.positions.Rotary(dim)"
_ABLATE = "with regard.watching.ablate(model, layer, head):"
_CONTRIBUTIONS = "watching.logit_contributions(model, watched.calls[0], token_ids)"
_PATCH = (
    "module.register_forward_hook(hook) of PyTorch, whose result replaces the module's output; regard only switches "
    "heads off, by regard.watching.ablate(model, layer, head)"
)

MISSING_NAMES: dict[str, dict[str, str]] = {
    "regard": {
        "Attention": 'regard.nn.Attention("scaled_dot")',
        "attention_map": "regard.pictures.heatmap(weights)",
        "attention_weights": "regard.attend_with_weights(query, key, value).weights",
        "heatmap": "regard.pictures.heatmap(weights)",
        "scaled_dot_product_attention": "regard.attend(query, key, value)",
        "softmax": 'normalizer="softmax", or regard.normalizers.softmax(scores)',
        "sparsemax": 'normalizer="sparsemax", or regard.normalizers.sparsemax(scores)',
        "entmax": "regard.normalizers.entmax(alpha)",
        "MultiheadAttention": "regard.nn.MultiheadAttention(embed_dim, num_heads)",
        "Transformer": "regard.nn.Transformer(d_model, nhead)",
        **{
            task: f'regard.train("{task}", data), and run.predict(inputs) of what it returns'
            for task in (
                "caption",
                "classify",
                "images",
                "language",
                "segment",
                "sounds",
                "summarize",
                "transcribe",
                "translate",
            )
        },
        "flex_attention": (
            'regard.attend(query, key, value, score=scores.Modified("scaled_dot", score_mod), '
            "mask=masks.where(mask_mod))"
        ),
        "flash_attention": 'regard.attend(query, key, value), or with backend="sdpa"',
        "flash_attn_func": 'regard.attend(query, key, value), or with backend="sdpa"',
        "linear_attention": 'regard.attend(query, key, value, score=scores.Features("elu"), normalizer="ratio")',
        "ablate": _ABLATE,
        "patch": _PATCH,
        "entropy": "regard.observe(query, key, value, read=regard.Readings(entropy=True)).entropy",
        "logit_contributions": f"regard.{_CONTRIBUTIONS}",
        "rollout": "regard.watching.rollout(watched)",
        "flow": "regard.watching.flow(watched)",
    },
    "regard.nn": {
        "AdditiveAttention": 'nn.Attention.create("additive", query_dim, key_dim)',
        "BahdanauAttention": 'nn.Attention.create("additive", query_dim, key_dim)',
        "LuongAttention": 'nn.Attention.create("general", query_dim, key_dim)',
        "DotProductAttention": 'nn.Attention("scaled_dot")',
        "ScaledDotProductAttention": 'nn.Attention("scaled_dot")',
        "LocationAwareAttention": (
            'nn.Attention.create("location_aware", query_dim, key_dim, channels=channels, kernel_size=kernel_size)'
        ),
        "RotaryEmbedding": 'positions.Rotary(dim), or position="rotary" of a layer',
        "RotaryPositionalEmbedding": 'positions.Rotary(dim), or position="rotary" of a layer',
        "PositionalEncoding": "positions.Sinusoidal(dim)",
        "SEBlock": "nn.SqueezeExcitation(channels)",
        "SELayer": "nn.SqueezeExcitation(channels)",
        "SqueezeExcite": "nn.SqueezeExcitation(channels)",
        "KVCache": "nn.KeyValueCache()",
        "CrossAttention": "nn.MultiheadAttention(embed_dim, num_heads, kdim=kdim, vdim=vdim)",
        "NonLocalBlock": "nn.NonLocal(channels)",
        "PerformerAttention": (
            "nn.MultiheadAttention(embed_dim, num_heads, score=scores.Features(scores.RandomFeatures.create(head_dim, "
            'features)), normalizer="ratio")'
        ),
        "RetNet": "nn.Retention(embed_dim, num_heads)",
        "GLA": "nn.GatedLinearAttention(embed_dim, num_heads)",
        "GroupedQueryAttention": "nn.MultiheadAttention(embed_dim, num_heads, kv_heads=kv_heads)",
        "MultiQueryAttention": "nn.MultiheadAttention(embed_dim, num_heads, kv_heads=1)",
        "MultiHeadLatentAttention": "nn.LatentAttention(embed_dim, num_heads)",
        "DynamicCache": "nn.KeyValueCache()",
    },
    "regard.masks": {
        "padding": "masks.lengths(lengths)",
        "key_padding": "masks.lengths(lengths)",
        "sliding_window": "masks.window(before, 0)",
        "tril": "masks.causal()",
        "subsequent": "masks.causal()",
        "block_diagonal": "masks.documents(ids)",
        "Causal": "masks.causal()",
        "causal_mask": "masks.causal()",
        "from_lengths": "masks.lengths(lengths)",
        "Window": "masks.window(before, after)",
        "local": "masks.window(before, after), for a decoder masks.window(before, 0)",
        "band": "masks.window(before, after)",
        "banded": "masks.window(before, after)",
        "sliding": "masks.window(before, 0)",
        "sinks": _SINKS,
        "sink": _SINKS,
        "attention_sinks": _SINKS,
        "streaming": _SINKS,
        "key_padding_mask": _PADDING,
        "padding_mask": _PADDING,
        "from_padding": _PADDING,
        "autoregressive": "masks.causal()",
        "future": "masks.causal()",
        "look_ahead": "masks.causal()",
        "sliding_window_causal": "masks.window(before, 0)",
        "block_mask": "masks.where(mask_mod)",
        "mask_mod": "masks.where(mask_mod)",
        "random": "masks.keep(torch.rand(queries, keys) < p)",
    },
    "regard.biases": {
        "ALiBi": "biases.alibi(heads)",
        **dict.fromkeys(("T5", "t5", "T5Bias", "relative", "t5_bias"), "biases.RelativeBias(heads)"),
        **dict.fromkeys(("shaw", "Shaw"), "biases.RelativePosition(dim, max_distance)"),
        **dict.fromkeys(("rope", "RoPE", "rotary", "Rotary"), _ROTARY),
    },
    "regard.positions": {
        **dict.fromkeys(("T5", "t5"), "positions.RelativeBias(heads)"),
        **dict.fromkeys(("shaw", "Shaw"), "positions.RelativePosition(dim, max_distance)"),
        "rope": "positions.Rotary(dim)",
        "ALiBi": "positions.alibi(heads)",
        "RoPE": "positions.Rotary(dim)",
        "RotaryEmbedding": "positions.Rotary(dim)",
        "rotary": "positions.Rotary(dim)",
        "PositionalEncoding": "positions.Sinusoidal(dim)",
        "sinusoidal": "positions.Sinusoidal(dim)",
        "learned": "positions.Learned(max_length, dim)",
    },
    "regard.normalizers": {
        "entmax_bisect": "normalizers.entmax(alpha)",
        "Entmax15": "normalizers.entmax15",
        "Temperature": "normalizers.Softmax(temperature)",
    },
    "regard.watching": {
        "patch": _PATCH,
        "patching": _PATCH,
        "activation_patching": _PATCH,
        "entropy": "watched.calls[0].entropy",
    },
    "regard.scores": {
        "Bahdanau": 'scores.create("additive", query_dim, key_dim)',
        "softcap": 'scores.SoftCap("scaled_dot", cap)',
        "linear": 'scores.Features("elu"), with normalizer="ratio"',
        "retention": 'scores.Decayed("scaled_dot", log_decay), with normalizer="identity" and mask="causal"',
        "delta_rule": 'scores.DeltaRule("cosine", beta), with normalizer="identity" and mask="causal"',
        "Luong": 'scores.create("general", query_dim, key_dim)',
        "additive": 'scores.create("additive", query_dim, key_dim)',
        "general": 'scores.create("general", query_dim, key_dim)',
        "mlp": 'scores.create("mlp", query_dim, key_dim)',
        "location": 'scores.create("location", query_dim, key_dim, max_keys=max_keys)',
    },
    "regard.pictures": {
        "head_view": "regard.View(weights, tokens)",
        "model_view": 'regard.View(weights, tokens, view="model")',
        "attention_map": "pictures.heatmap(weights)",
    },
    "regard.exports": {"onnx": 'regard.load(folder).export("onnx")', "to_onnx": 'regard.load(folder).export("onnx")'},
}
"""Package → name elsewhere → what is written here."""

ATTRIBUTES: dict[str, dict[str, str]] = {
    "Watch": {
        "save": "regard.View(watched, tokens).save(path)",
        "show": "regard.View(watched, tokens)",
        "attentions": '[call.weights for call in watched.calls], with regard.watch(model, read="view")',
        "weights": '[call.weights for call in watched.calls], with regard.watch(model, read="view")',
        "entropy": "watched.calls[0].entropy, or of all calls [call.entropy for call in watched.calls]",
        "patch": _PATCH,
    },
    "AttentionCall": {
        **dict.fromkeys(
            ("attentions", "attention", "attention_weights", "probs"),
            'call.weights, with regard.watch(model, read="view")',
        ),
        "output": "call.head_output, with regard.watch(model, outputs=True)",
        "patch": _PATCH,
    },
    "Survey": {
        "entropy": 'survey.table(["entropy"])',
        **dict.fromkeys(("attentions", "weights"), '[call.weights for call in regard.watch(model, read="view").calls]'),
    },
    "View": {
        "show": "the view itself as the last line of a notebook's cell, or view.save(path)",
        "html": "view.to_html()",
    },
    "Classification": {"save": "regard.View(classification).save(path)", "show": "regard.View(classification)"},
    "KeyValueCache": {
        "append": "cache = cache.appended(key, value), which returns the longer cache",
        "update": "cache = cache.appended(key, value)",
        "get_seq_length": "cache.length",
    },
    **{
        name: {"reorder": "state = state.reordered(index)"}
        for name in ("DecoderState", "JointState", "PointerState", "PointingState", "TransformerState")
    },
    "TableTrained": {
        "predict_proba": "run.predict(inputs), each of which has probabilities",
        "fit": "regard.train(task, data)",
    },
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
    """Decorates a class of `ATTRIBUTES`, so that the error for an attribute it does not have says what is written."""

    def refuse(self: object, name: str) -> Any:
        line = _here(ATTRIBUTES[kind.__name__].get(name))
        message = f"{type(self).__name__!r} object has no attribute {name!r}{line}"
        raise AttributeError(message, name=name, obj=self)

    kind.__getattr__ = refuse
    return kind


def _here(line: str | None) -> str:
    return "" if line is None else f": here it is {line}"
