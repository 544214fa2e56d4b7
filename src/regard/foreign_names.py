"""What people type from papers and from other libraries, and the line of regard that is meant.

Names of scores, normalizers and masks, and keyword arguments of `torch.nn.functional.scaled_dot_product_attention`,
`torch.nn.MultiheadAttention`, FlexAttention, flash-attn, Keras, Hugging Face and d2l. This file imports no PyTorch.
"""

import difflib
import inspect
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

_FEATURES = 'scores.Features("elu"), normalizer="ratio"'
_RANDOM_FEATURES = 'scores.Features(scores.RandomFeatures.create(dim, features)), normalizer="ratio"'
_DECAY = 'scores.Decayed("scaled_dot", log_decay), normalizer="identity"'
_DELTA = 'scores.DeltaRule("scaled_dot", beta), normalizer="identity"'
_SINKS = "masks.window(before, 0) | masks.prefix(n) & masks.causal()"

WRITTEN_HERE: dict[str, dict[str, str]] = {
    "score": {
        "linear": _FEATURES,
        "kernel": _FEATURES,
        "kernelized": _FEATURES,
        "elu": _FEATURES,
        "features": _FEATURES,
        "feature_map": _FEATURES,
        "linear_transformer": _FEATURES,
        "relu": 'scores.Features("relu"), normalizer="ratio"',
        "performer": _RANDOM_FEATURES,
        "favor": _RANDOM_FEATURES,
        "favor+": _RANDOM_FEATURES,
        "random_features": _RANDOM_FEATURES,
        "decayed": _DECAY,
        "retention": _DECAY,
        "retnet": _DECAY,
        "gla": _DECAY,
        "gated_linear": _DECAY,
        "delta": _DELTA,
        "delta_rule": _DELTA,
        "deltanet": _DELTA,
        "trilinear": "scores.Trilinear.create(dim)",
        "bidaf": "scores.Trilinear.create(dim)",
        "cos": '"cosine"',
        "scaled_dot_product_attention": '"scaled_dot"',
        "bahdanau": 'scores.create("additive", query_dim, key_dim)',
        "tanh": 'scores.create("additive", query_dim, key_dim)',
        "perceptron": 'scores.create("additive", query_dim, key_dim)',
        "feedforward": 'scores.create("mlp", query_dim, key_dim)',
        "luong": '"dot", scores.create("general", query_dim, key_dim) or scores.create("concat", query_dim, key_dim)',
        "bilinear": 'scores.create("general", query_dim, key_dim)',
        "multiplicative": 'scores.create("general", query_dim, key_dim)',
        "dot_product": '"dot", or "scaled_dot" divided by √dim',
        "inner_product": '"dot", or "scaled_dot" divided by √dim',
        "scaled_dot_product": '"scaled_dot"',
        "scaled": '"scaled_dot"',
        "sdpa": '"scaled_dot"',
        "vaswani": '"scaled_dot"',
        "cosine_similarity": '"cosine"',
        "content": '"cosine"',
        "euclidean": '"distance"',
        "l2": '"distance"',
        "rbf": '"distance"',
        "location_based": 'scores.create("location", query_dim, key_dim, max_keys=max_keys)',
        "hybrid": 'scores.create("location_aware", query_dim, key_dim, channels=channels, kernel_size=kernel_size)',
        "chorowski": 'scores.create("location_aware", query_dim, key_dim, channels=channels, kernel_size=kernel_size)',
        "softcap": 'scores.SoftCap("scaled_dot", cap)',
        "soft_cap": 'scores.SoftCap("scaled_dot", cap)',
    },
    "normalizer": {
        "gumbel": 'normalizers.hard("gumbel")',
        "gumbel_softmax": 'normalizers.hard("gumbel")',
        "argmax": '"hard"',
        "hardmax": '"hard"',
        "one_hot": '"hard"',
        "straight_through": 'normalizers.hard("straight_through")',
        "sample": 'normalizers.hard("sample")',
        "reinforce": 'normalizers.hard("sample")',
        "stochastic": 'normalizers.hard("sample")',
        "logistic": '"sigmoid"',
        "linear": f'"ratio", score={_FEATURES.split(", ")[0]}',
        "elu": f'"ratio", score={_FEATURES.split(", ")[0]}',
        "performer": f'"ratio", score={_RANDOM_FEATURES.rpartition(", ")[0]}',
        "none": '"identity"',
        "sum": '"ratio"',
        "l1": '"ratio"',
        "topk": "normalizers.top_k(k)",
        "topp": "normalizers.top_p(p)",
        "nucleus": "normalizers.top_p(p)",
        "1.5_entmax": '"entmax15"',
        "entmax_15": '"entmax15"',
        "entmax1.5": '"entmax15"',
        "tsallis": "normalizers.entmax(alpha)",
        "softmax1": "normalizers.softmax_with_sink(0.0)",
        "softmax_one": "normalizers.softmax_with_sink(0.0)",
        "off_by_one": "normalizers.softmax_with_sink(0.0)",
        "softmax_off_by_one": "normalizers.softmax_with_sink(0.0)",
        "quiet_softmax": "normalizers.softmax_with_sink(0.0)",
        "learned_sink": "normalizers.softmax_with_sink(sink)",
        "attention_sink": "normalizers.softmax_with_sink(sink)",
        "sink": "normalizers.softmax_with_sink(sink)",
        "temperature": "normalizers.Softmax(temperature)",
        "gaussian": 'normalizers.local_gaussian("softmax", center, sigma)',
        "local": 'normalizers.local_gaussian("softmax", center, sigma)',
        "relu": "normalizer=lambda scores: scores.relu()",
        "squared_relu": "normalizer=lambda scores: scores.relu().square()",
        "relu2": "normalizer=lambda scores: scores.relu().square()",
        "tanh": "normalizer=lambda scores: scores.tanh()",
        "softplus": "normalizer=torch.nn.functional.softplus",
    },
    "mask": {
        "autoregressive": '"causal"',
        "future": '"causal"',
        "look_ahead": '"causal"',
        "subsequent": '"causal"',
        "tril": '"causal"',
        "triangular": '"causal"',
        "lower_triangular": '"causal"',
        "upper_triangular": '"causal"',
        "triu": '"causal"',
        "sinks": _SINKS,
        "attention_sink": _SINKS,
        "attention_sinks": _SINKS,
        "streaming": _SINKS,
        "streaming_llm": _SINKS,
        "longformer": "masks.window(before, after) | masks.prefix(n)",
        "global": "masks.window(before, after) | masks.prefix(n)",
        "padding": "masks.lengths(lengths)",
        "key_padding": "masks.lengths(lengths)",
        "sliding_window": "masks.window(before, 0)",
        "local": "masks.window(before, after)",
        "banded": "masks.window(before, after)",
        "block_diagonal": "masks.documents(ids)",
        "packed": "masks.documents(ids)",
        "prefix_lm": "masks.causal() | masks.prefix(n)",
        "strided": "masks.dilated(step)",
        "neighbourhood": "masks.neighborhood(size, shape)",
        "natten": "masks.neighborhood(size, shape)",
        "swin": "masks.shifted_windows(window, shift, shape)",
        "moba": "masks.top_blocks(query, key, size, count)",
        "full": "None",
        "none": "None",
        "bidirectional": "None",
    },
    "position": {
        "rope": '"rotary"',
        "rotary_embedding": '"rotary"',
        "rotary_position": '"rotary"',
        "roformer": '"rotary"',
        "linear_bias": '"alibi"',
        "relative": '"t5" or position="shaw"',
        "relative_bias": '"t5"',
        "relative_position": '"shaw"',
        "sinusoidal": '"none", with positions.Sinusoidal(dim) added to the input of the first layer',
        "sine": '"none", with positions.Sinusoidal(dim) added to the input of the first layer',
        "absolute": '"none", with positions.Learned(max_length, dim) added to the input of the first layer',
        "learned": '"none", with positions.Learned(max_length, dim) added to the input of the first layer',
    },
    "attention": {
        "linear": '"linear"',
        "performer": f'"multihead", score={_RANDOM_FEATURES}',
        "retnet": '"retention"',
        "gla": '"gated_linear"',
        "mamba2": '"gated_linear"',
        "gated_linear": '"gated_linear"',
        "delta": '"delta"',
        "deltanet": '"delta"',
        "delta_net": '"delta"',
        "gated_delta": '"gated_delta"',
        "gated_deltanet": '"gated_delta"',
        "diff": '"differential"',
        "differential": '"differential"',
        "differential_transformer": '"differential"',
        "gated": '"gated"',
        "mla": '"latent"',
        "latent": '"latent"',
        "multi_head_latent": '"latent"',
        "nsa": '"native_sparse"',
        "native_sparse": '"native_sparse"',
        "qk_layer_norm": '"qk_norm"',
        "mha": '"multihead"',
        "multi_head": '"multihead"',
        "multihead": '"multihead"',
        "softmax": '"multihead"',
        "scaled_dot_product": '"multihead"',
        "standard": '"multihead"',
        "gqa": '"multihead", kv_heads=kv_heads',
        "grouped_query": '"multihead", kv_heads=kv_heads',
        "mqa": '"multihead", kv_heads=1',
        "multi_query": '"multihead", kv_heads=1',
    },
}
"""Kind → name elsewhere → what is written here."""

_TWO_CONVENTIONS = (
    "mask={0} if its True means 'may attend', as in scaled_dot_product_attention; mask=masks.ignore({0}) if its True "
    "means 'may not', as in torch.nn.MultiheadAttention; bias={0} if it holds numbers that are added to the scores"
)
_WEIGHTS = "call regard.attend_with_weights(query, key, value), which returns (output, weights)"

KEYWORDS: dict[str, str] = {
    "is_causal": 'write mask="causal", or mask=masks.causal(align="start") as PyTorch, JAX and Keras align lengths',
    "causal": 'write mask="causal"',
    "use_causal_mask": 'write mask="causal"',
    "attn_mask": f"write {_TWO_CONVENTIONS.format('attn_mask')}",
    "mask_type": 'write mask="causal", mask=masks.window(before, after) or mask=masks.lengths(lengths)',
    "attention_mask": "write mask=attention_mask.bool()[:, None, None, :] if it is [batch, keys] with 1 at tokens",
    "key_padding_mask": (
        "write mask=masks.lengths(lengths), or mask=masks.ignore(key_padding_mask[:, None, None, :]) where True is "
        "padding"
    ),
    "key_mask": "write mask=key_mask[:, None, None, :], where True means 'may attend'",
    "valid_lens": "write mask=masks.lengths(valid_lens)",
    "lengths": "write mask=masks.lengths(lengths)",
    "block_mask": "write mask=masks.where(mask_mod)",
    "mask_mod": "write mask=masks.where(mask_mod)",
    "window_size": "write mask=masks.window(before, after)",
    "attn_bias": "write bias=attn_bias",
    "position_bias": "write bias=position_bias",
    "alibi_slopes": "write bias=positions.alibi(heads)",
    "scale": "write score=scores.ScaledDot(scale=scale)",
    "softmax_scale": "write score=scores.ScaledDot(scale=softmax_scale)",
    "scaling": "write score=scores.ScaledDot(scale=scaling)",
    "softcap": 'write score=scores.SoftCap("scaled_dot", softcap)',
    "score_mod": 'write score=scores.Modified("scaled_dot", score_mod)',
    "temperature": "write normalizer=normalizers.Softmax(temperature)",
    "alpha": "write normalizer=normalizers.entmax(alpha)",
    "dropout_p": "write dropout=dropout_p",
    "attention_dropout": "write dropout=attention_dropout",
    "training": "dropout is always active: write dropout=p if training else 0.0",
    "need_weights": _WEIGHTS,
    "return_weights": _WEIGHTS,
    "output_attentions": _WEIGHTS,
    "return_attention_scores": _WEIGHTS,
    "average_attn_weights": f"{_WEIGHTS}; their mean over heads is weights.mean(1)",
    "enable_gqa": "leave it out: heads of key and value that divide those of query are shared by groups",
    "num_heads": "heads are an axis of the tensors, [batch, heads, length, dim]; nn.MultiheadAttention splits features",
    "heads": "heads are an axis of the tensors, [batch, heads, length, dim]; nn.MultiheadAttention splits features",
    "batch_first": "the batch is the first axis here, always",
    "implementation": 'write backend="auto", or the name of a backend',
}
"""A keyword argument elsewhere → what to do here."""

_HIDING = (
    "src_mask={0} (True hides)", "tgt_mask={0} (True hides)", "memory_mask={0} (True hides)",
    "mask=masks.keep({0}) (True may attend)",
)  # fmt: skip
_PADDING = (
    "src_key_padding_mask={0}", "tgt_key_padding_mask={0}", "memory_key_padding_mask={0}", "key_padding_mask={0}",
)  # fmt: skip
_CAUSAL = ('mask="causal"', 'tgt_mask="causal"')
_ROTARY = ('position="rotary"',)
_ALIBI = ('position="alibi"',)
_HEADS = ("nhead={0}", "num_heads={0}")
_DIM = ("d_model={0}", "embed_dim={0}", "channels={0}")
_FEEDFORWARD = ("dim_feedforward={0}",)
_LAYERS = ("num_layers={0}", "num_encoder_layers={0}")

_LEARNED = tuple(f"{name}=torch.nn.Parameter(torch.tensor({name}))" for name in ("alpha", "temperature", "sink"))

LAYER_KEYWORDS: dict[str, tuple[str, ...]] = {
    "attn_mask": _HIDING,
    "mask": _HIDING,
    "key_padding_mask": _PADDING,
    "padding_mask": _PADDING,
    "attention_mask": tuple(line.format("~{0}.bool()") for line in _PADDING),
    "lengths": ("src_lengths={0}", "tgt_lengths={0}", "mask=masks.lengths({0})"),
    "valid_lens": ("lengths={0}", "src_lengths={0}", "mask=masks.lengths({0})"),
    "causal": _CAUSAL,
    "is_causal": _CAUSAL,
    "use_causal_mask": _CAUSAL,
    "rope": _ROTARY,
    "use_rope": _ROTARY,
    "rotary": _ROTARY,
    "rotary_embedding": _ROTARY,
    "rotary_pos_emb": _ROTARY,
    "alibi": _ALIBI,
    "alibi_pos_bias": _ALIBI,
    "rel_pos_bias": ('position="t5"',),
    "use_rmsnorm": ('norm="rms"',),
    "dim": _DIM,
    "embed_dim": _DIM,
    "d_model": _DIM,
    "hidden_size": _DIM,
    "embedding_dim": _DIM,
    "in_channels": _DIM,
    "in_planes": _DIM,
    "key_dim": ("embed_dim=num_heads * {0}",),
    "depth": _LAYERS,
    "n_layers": _LAYERS,
    "num_layers": _LAYERS,
    "num_hidden_layers": _LAYERS,
    "kvheads": ("kv_heads={0}",),
    "num_kv_heads": ("kv_heads={0}",),
    "n_kv_heads": ("kv_heads={0}",),
    "num_key_value_heads": ("kv_heads={0}",),
    "heads": _HEADS,
    "n_heads": _HEADS,
    "n_head": _HEADS,
    "nhead": _HEADS,
    "num_heads": _HEADS,
    "num_attention_heads": _HEADS,
    "d_ff": _FEEDFORWARD,
    "d_hid": _FEEDFORWARD,
    "ff_dim": _FEEDFORWARD,
    "ffn_dim": _FEEDFORWARD,
    "intermediate_dim": _FEEDFORWARD,
    "intermediate_size": _FEEDFORWARD,
    "layer_norm_epsilon": ("layer_norm_eps={0}",),
    "pre_norm": ("norm_first={0}",),
    "normalize_before": ("norm_first={0}",),
    "attn_dropout": ("dropout={0}",),
    "attention_dropout": ("dropout={0}",),
    "output_attentions": ("need_weights={0}",),
    "return_attention_scores": ("need_weights={0}",),
    "trainable": _LEARNED,
    "learnable": _LEARNED,
    "requires_grad": _LEARNED,
    "xlabels": ("columns={0}",),
    "ylabels": ("rows={0}",),
    "xticklabels": ("columns={0}",),
    "yticklabels": ("rows={0}",),
    "annot": ("values={0}",),
    "cbar": ("color_bar={0}",),
    "cmap": ("color_map={0}",),
    "vmin": ("low={0}",),
    "vmax": ("high={0}",),
}
"""A keyword argument of layers elsewhere → what is written here; each line begins with an argument, which a layer may
have or not."""

LINES = {
    "View": "View(content, rows=rows, columns=columns)",
    "the call of Attention": (
        "attention(query, annotations), or for values of their own attention(query, attention.remember(annotations, "
        "value=value))"
    ),
}
"""What was called → the line for arguments that do not fit; of others it is the call with those without a default."""


def written_here(kind: str, name: object) -> str:
    """Returns what a name elsewhere is here, as the end of a message; empty if it is no known name.

    Args:
        kind: ``"score"``, ``"normalizer"``, ``"mask"``, ``"position"`` or ``"attention"``.
        name: what was typed.
    """
    if not isinstance(name, str):
        return ""
    plain = name.strip().lower().replace("-", "_").replace(" ", "_")
    for ending in ("", "_attention", "_score", "_mask", "_product", "_scores", "_normalizer"):
        line = WRITTEN_HERE[kind].get(plain.removesuffix(ending))
        if line is not None:
            return f"here it is {line if line.startswith(f'{kind}=') else f'{kind}={line}'}"
    return ""


def written_in_command(kind: str, name: object, known: Collection[str]) -> str:
    """Returns `written_here` for a command: its option, or the line of Python where the command has none.

    Args:
        kind: ``"score"`` or ``"normalizer"``.
        name: what was typed.
        known: the names that the option takes.
    """
    line = written_here(kind, name)
    option = re.match(rf'here it is {kind}=(?:scores\.create\(|normalizers\.(?=entmax|softmax_with))?"?(\w+)', line)
    if option is not None and option[1] in known:
        return f"here it is --{kind} {option[1]}"
    return line and f"in Python it is regard.explain(query, key, value, {line.removeprefix('here it is ')})"


def written_in_layers(name: object, objects: bool = True) -> str:
    """Returns `written_here` for the score of a layer, which creates scores from their names alone.

    Args:
        name: what was typed.
        objects: whether a `Score` may be passed as well as a name.
    """
    line = re.sub(r'scores\.create\(("\w+"), query_dim, key_dim\)', r"\1", written_here("score", name))
    # The scores of location need a number of keys, which layers do not know.
    return "" if "scores.create(" in line or (not objects and "scores." in line) else line


def unknown_layer_keyword(
    owner: str,
    function: Callable[..., object],
    keywords: Iterable[str],
    more: Iterable[str] = (),
    internal: Iterable[str] = ("self",),
) -> str:
    """Returns a message about keyword arguments that a layer or its call does not have.

    Args:
        owner: what was called, for the message.
        function: the class, or the method that is called.
        keywords: the names that are unknown.
        more: the names behind the function's ``**names``.
        internal: names of arguments that users do not pass.
    """
    name = next(iter(keywords))
    names = [each for each in (*argument_names(function), *more) if each not in internal]
    advice = _line_with(name, names)
    if not advice and isinstance(function, type):
        advice = _line_with_part(name, function) or _line_in_call(name, function)
    return f"{owner} has no argument {name!r}{advice or _nearest(name, names)}"


def wrong_arguments(
    owner: str, function: Callable[..., object], keywords: Iterable[str], problem: str, internal: Iterable[str] = ()
) -> str:
    """Returns a message about arguments that a function, a constructor or the call of a layer cannot take.

    Args:
        owner: what was called, for the message.
        function: the function, the class, or the method of the call.
        keywords: the names of the keyword arguments that were passed.
        problem: what Python says of the arguments.
        internal: names of arguments that users do not pass.
    """
    names = [name for name in argument_names(function) if name not in internal]
    unknown = [name for name in keywords if name not in names]
    if unknown:
        return unknown_layer_keyword(owner, function, unknown, (), internal)
    return f"{owner}: {problem}; write {LINES.get(owner) or _constructor(function)} (known: {', '.join(names)})"


def _line_with(name: str, names: Iterable[str]) -> str:
    lines = [line for line in LAYER_KEYWORDS.get(name, ()) if line.split("=")[0] in names]
    return f": write {' or '.join(lines).format(name)}" if lines else ""


def _line_with_part(name: str, layer: type) -> str:
    """Returns the line for an argument of a layer of which the constructor's layer consists."""
    for parameter in inspect.signature(layer).parameters.values():
        part = parameter.annotation
        if isinstance(part, type) and part.__module__.startswith("regard."):
            names = argument_names(part)
            line = f"{name}={name}" if name in names else _line_with(name, names).removeprefix(": write ")
            if line:
                return f": write {parameter.name}={_constructor(part, line)}"
    return ""


def _line_in_call(name: str, layer: Any) -> str:
    lines = LAYER_KEYWORDS.get(name, ())
    of_call = argument_names(layer.forward) if hasattr(layer, "forward") else []
    called = [line for line in lines if line.split("=")[0] in of_call] or ["{0}={0}"] * (name in of_call)
    return f": write {' or '.join(called).format(name)} in the call" if called else ""


def _constructor(layer: Callable[..., object], line: str = "") -> str:
    """Returns a call with the arguments that have no default, and one more."""
    parameters = inspect.signature(layer).parameters.values()
    required = [
        each.name
        for each in parameters
        if each.default is each.empty and each.kind is not each.VAR_KEYWORD and each.name != "self"
    ]
    arguments = {name: name for name in required} | ({line.split("=")[0]: line} if line else {})
    name = "layer" if layer.__name__ == "forward" else layer.__name__
    return f"{name}({', '.join(arguments.values())})"


def argument_names(function: Callable[..., object]) -> list[str]:
    """Returns the names of the arguments that a function has, without those of ``**names``."""
    parameters = inspect.signature(function).parameters.values()
    return [parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD]


def unknown_keyword(verb: Callable[..., object], keywords: Mapping[str, object]) -> str:
    """Returns a message about keyword arguments that a verb does not have.

    Args:
        verb: the function.
        keywords: what was passed.
    """
    name = next(iter(keywords))
    message = f"{verb.__name__} has no argument {name!r}"
    if name in KEYWORDS:
        return f"{message}: {KEYWORDS[name]}"
    return f"{message}{_nearest(name, argument_names(verb))}"


def _nearest(name: str, names: list[str]) -> str:
    """Returns the nearest name and all of them, as the end of a message."""
    nearest = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
    return f"{hint} (known: {', '.join(names)})"
