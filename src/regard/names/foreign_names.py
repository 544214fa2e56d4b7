"""Names of scores, normalizers, masks, biases and backends in papers and other libraries, and the line that is meant.

This file imports no PyTorch.
"""

import re
from collections.abc import Collection

_FEATURES = 'scores.Features("elu"), normalizer="ratio"'
_RANDOM_FEATURES = 'scores.Features(scores.RandomFeatures.create(dim, features)), normalizer="ratio"'
_RECURRENT = 'normalizer="identity", mask="causal"'
_DECAY = f'scores.Decayed("scaled_dot", log_decay), {_RECURRENT}, where log_decay, at most 0, is '
_RETENTION = f"{_DECAY}[heads]; the layer is nn.Retention(embed_dim, num_heads)"
_GATED = f"{_DECAY}[batch, heads, keys, dim]; the layer is nn.GatedLinearAttention(embed_dim, num_heads)"
_DUALITY = (
    f'scores.Decayed("dot", log_decay), {_RECURRENT}, where log_decay, at most 0, is [batch, heads, keys]; the layer '
    "is nn.GatedLinearAttention(embed_dim, num_heads)"
)
_DELTA = (
    f'scores.DeltaRule("cosine", beta), {_RECURRENT}, where beta, in 0..1, is [batch, heads, keys] and "cosine" gives '
    "queries and keys unit length; the layer is nn.DeltaNet(embed_dim, num_heads)"
)
_GATED_DELTA = (
    f'scores.DeltaRule(scores.Decayed("cosine", log_decay), beta), {_RECURRENT}, where log_decay, at most 0, and beta, '
    'in 0..1, are [batch, heads, keys] and "cosine" gives queries and keys unit length; the layer is '
    "nn.GatedDeltaNet(embed_dim, num_heads)"
)
_SOFT_CAP = 'scores.SoftCap("scaled_dot", cap)'
_SCALABLE = (
    "normalizers.query_temperature(1 / (s * n.clamp(min=2).log())), where n is the number of keys a query sees, "
    "a tensor [queries], and s the learned factor"
)
_RELATIVE = "biases.RelativeBias(heads)"
_ROTARY_CALL = "query=rotary(query), key=rotary(key), where rotary = positions.Rotary(dim)"
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
        "decayed": _RETENTION,
        "retention": _RETENTION,
        "retnet": _RETENTION,
        "gla": _GATED,
        "gated_linear": _GATED,
        "mamba2": _DUALITY,
        "ssd": _DUALITY,
        "delta": _DELTA,
        "delta_rule": _DELTA,
        "deltanet": _DELTA,
        "delta_net": _DELTA,
        "gated_delta": _GATED_DELTA,
        "gated_deltanet": _GATED_DELTA,
        "gated_delta_net": _GATED_DELTA,
        "gdn": _GATED_DELTA,
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
        "softcap": _SOFT_CAP,
        "soft_cap": _SOFT_CAP,
        "logit_cap": _SOFT_CAP,
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
        "ssmax": _SCALABLE,
        "scalable_softmax": _SCALABLE,
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
    "bias": {
        "t5": _RELATIVE,
        "relative": _RELATIVE,
        "relative_bias": _RELATIVE,
        "relative_position_bias": _RELATIVE,
        "rel_pos": _RELATIVE,
        "rel_pos_bias": _RELATIVE,
        "shaw": "biases.RelativePosition(dim, max_distance)",
        "relative_position": "biases.RelativePosition(dim, max_distance)",
        "linear_bias": '"alibi"',
        "rope": _ROTARY_CALL,
        "rotary": _ROTARY_CALL,
        "rotary_embedding": _ROTARY_CALL,
        "roformer": _ROTARY_CALL,
    },
    "backend": {
        "math": '"reference"',
        "eager": '"reference"',
        "naive": '"reference"',
        "manual": '"reference"',
        "torch": '"sdpa"',
        "flash": '"sdpa"',
        "flash_attn": '"sdpa"',
        "flashattn": '"sdpa"',
        "flash_2": '"sdpa"',
        "flash_attention_2": '"sdpa"',
        "flash_attention_3": '"sdpa"',
        "mem_efficient": '"sdpa"',
        "memory_efficient": '"sdpa"',
        "efficient": '"sdpa"',
        "cudnn": '"sdpa"',
        "xformers": '"sdpa"',
        "scaled_dot_product": '"sdpa"',
        "numba": '"cpu"',
        "default": '"auto"',
        "gpu": '"auto", with tensors on that device',
        "cuda": '"auto", with tensors on that device',
        "mps": '"auto", with tensors on that device',
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
        "retention": '"retention"',
        "decayed": '"retention"',
        "gla": '"gated_linear"',
        "mamba2": '"gated_linear"',
        "ssd": '"gated_linear"',
        "gated_linear": '"gated_linear"',
        "delta": '"delta"',
        "deltanet": '"delta"',
        "delta_net": '"delta"',
        "delta_rule": '"delta"',
        "gated_delta": '"gated_delta"',
        "gated_deltanet": '"gated_delta"',
        "gated_delta_net": '"gated_delta"',
        "gdn": '"gated_delta"',
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
"""Kind → name elsewhere → what is written here; the words behind ``, where`` and ``, with`` are no code."""

READY_NAMES: dict[str, tuple[str, ...]] = {
    "score": ("dot", "scaled_dot", "cosine", "distance"),
    "normalizer": (
        "softmax", "sparsemax", "entmax15", "sigmoid", "hard", "over_queries", "sinkhorn", "identity", "ratio",
    ),
    "mask": ("causal",),
    "bias": ("alibi",),
    "backend": ("auto", "reference", "tiled", "cpu", "linear", "sdpa", "flex", "triton"),
}  # fmt: skip
"""Argument of a call → the names that it takes as they are."""

POSITION_NAMES = ("rotary", "alibi", "t5", "shaw")
"""The positions of layers by name."""

_OF_SEVERAL_KINDS = ("auto", "default", "full", "global", "linear", "manual", "none", "torch")
"""Names that do not tell which argument is meant."""


def written_here(kind: str, name: object) -> str:
    """Returns what a name elsewhere is here, as the end of a message; empty if it is no known name.

    Args:
        kind: ``"score"``, ``"normalizer"``, ``"mask"``, ``"bias"``, ``"backend"``, ``"position"`` or ``"attention"``.
            A name of another argument of the call is answered with that argument.
        name: what was typed.
    """
    if not isinstance(name, str):
        return ""
    plain = name.strip().lower().replace("-", "_").replace(" ", "_")
    endings = ("", "_attention", "_score", "_mask", "_product", "_scores", "_normalizer", "_bias")
    spellings = [plain.removesuffix(ending) for ending in endings]
    line = next(filter(None, map(WRITTEN_HERE[kind].get, spellings)), None)
    if line is not None:
        return _answer(kind, line)
    if kind not in READY_NAMES:
        return ""
    arguments = [kind, *(other for other in READY_NAMES if other != kind)]
    ready = [(argument, one) for argument in arguments for one in spellings if one in READY_NAMES[argument]]
    foreign = [(other, one) for other in arguments[1:] for one in spellings if one in WRITTEN_HERE[other]]
    if (kind, plain) in ready:
        return ""  # a slip in the name's punctuation, which has a suggestion
    for argument, one in (*ready, *foreign):
        if argument == kind or one not in _OF_SEVERAL_KINDS:
            return _answer(argument, f'"{one}"' if one in READY_NAMES[argument] else WRITTEN_HERE[argument][one])
    return ""


def _answer(argument: str, line: str) -> str:
    return f"here it is {line if re.match('[a-z]+=', line) else f'{argument}={line}'}"


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
    code, comma, words = line.removeprefix("here it is ").partition(", where ")
    if "backend=" in line or not line:
        return ""
    return f"in Python it is regard.explain(query, key, value, {code}){comma}{words}"


def written_in_layers(name: object, objects: bool = True) -> str:
    """Returns `written_here` for the score of a layer, which creates scores from their names alone.

    Args:
        name: what was typed.
        objects: whether a `Score` may be passed as well as a name.
    """
    line = re.sub(r'scores\.create\(("\w+"), query_dim, key_dim\)', r"\1", written_here("score", name))
    if "mask=" in line or "score=" not in line:
        named = f'here it is position="{name}"' if name in POSITION_NAMES else written_here("position", name)
        own = (written_here("attention", name), named)
        return next(filter(None, own), line if line.startswith("here it is normalizer=") else "")
    # The scores of location need a number of keys, which layers do not know.
    return "" if "scores.create(" in line or (not objects and "scores." in line) else line
