"""Names that packages and objects do not have, and what is written here. This file imports no PyTorch."""

from typing import Any, TypeVar

_Class = TypeVar("_Class", bound=type[Any])

MISSING: dict[str, dict[str, str]] = {
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
    },
    "regard.biases": {"ALiBi": "biases.alibi(heads)", "T5": "biases.RelativeBias(heads)"},
    "regard.positions": {
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
    "regard.scores": {
        "Bahdanau": 'scores.create("additive", query_dim, key_dim)',
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
    "regard.exports": {
        "onnx": 'regard.load(folder).export("onnx")',
        "to_onnx": 'regard.load(folder).export("onnx")',
    },
}
"""Package → name elsewhere → what is written here."""

ATTRIBUTES: dict[str, dict[str, str]] = {
    "Watch": {
        "save": "regard.View(watched, tokens).save(path)",
        "show": "regard.View(watched, tokens)",
        "attentions": '[call.weights for call in watched.calls], with regard.watch(model, read="view")',
        "weights": '[call.weights for call in watched.calls], with regard.watch(model, read="view")',
    },
    "View": {
        "show": "the view itself as the last line of a notebook's cell, or view.save(path)",
        "html": "view.to_html()",
    },
    "Classification": {
        "save": "regard.View(classification).save(path)",
        "show": "regard.View(classification)",
    },
    "KeyValueCache": {
        "append": "cache = cache.appended(key, value), which returns the longer cache",
        "update": "cache = cache.appended(key, value)",
        "get_seq_length": "cache.length",
    },
    **{
        name: {"reorder": "state = state.reordered(index)"}
        for name in ("DecoderState", "JointState", "PointerState", "PointingState", "TransformerState")
    },
    "TrainedRun": {
        "predict_proba": "run.predict(inputs), each of which has probabilities",
        "fit": "regard.train(task, data)",
    },
}
"""Class → attribute elsewhere → what is written here."""


def missing_name(package: str, name: str) -> str:
    """Returns a message about a name that a package does not have."""
    return f"module {package!r} has no attribute {name!r}{_here(MISSING.get(package, {}).get(name))}"


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
