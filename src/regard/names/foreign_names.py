"""Names of scores, normalizers, masks, biases and backends in papers and other libraries, and the line that is meant.

This file imports no PyTorch.
"""

import re
from collections.abc import Collection, Hashable, Mapping
from typing import TypeVar

Line = TypeVar("Line", bound=Hashable)


def by_name(lines: Mapping[Line, str]) -> dict[str, Line]:
    """Returns what is meant by each name, from what is meant and all names of it, in one text."""
    return {name: line for line, names in lines.items() for name in names.split()}


_FEATURES = 'scores.Features("elu"), normalizer="ratio"'
_RANDOM_FEATURES = 'scores.Features(scores.RandomFeatures.create(dim, features)), normalizer="ratio"'
_RECURRENT = 'normalizer="identity", mask="causal"'
_DECAY = f'scores.Decayed("scaled_dot", log_decay), {_RECURRENT}, where log_decay, at most 0, is '
_RETENTION = f"{_DECAY}[heads]; the layer is nn.Retention(embed_dim, num_heads)"
_GATED = f"{_DECAY}[batch, heads, keys, dim]; the layer is nn.GatedLinearAttention(embed_dim, num_heads)"
_DUALITY = (
    f'scores.Decayed("dot", log_decay), {_RECURRENT}, where log_decay, at most 0, is [batch, heads, keys]; the layer '
    "is nn.Mamba2(embed_dim, num_heads)"
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
_KIMI_DELTA = (
    f'scores.DeltaRule(scores.Decayed("cosine", log_decay), beta), {_RECURRENT}, where log_decay, at most 0, is '
    '[batch, heads, keys, dim], beta, in 0..1, is [batch, heads, keys] and "cosine" gives queries and keys unit '
    "length; the layer is nn.KimiDeltaAttention(embed_dim, num_heads)"
)
_FORGET = (
    'scores.ForgetGate("scaled_dot", log_decay), mask="causal", where log_decay, at most 0, is [batch, heads, keys]; '
    "the layer is nn.SelfAttention(embed_dim, num_heads, forget=True)"
)
_LUONG = '"dot", scores.create("general", query_dim, key_dim) or scores.create("concat", query_dim, key_dim)'
_LOCATION_AWARE = 'scores.create("location_aware", query_dim, key_dim, channels=channels, kernel_size=kernel_size)'
_SOFT_CAP = 'scores.SoftCap("scaled_dot", cap)'
_RELATIVE = "biases.RelativeBias(heads)"
_ROTARY_CALL = "query=rotary(query), key=rotary(key), where rotary = positions.Rotary(dim)"
_SCALED = "positions.Rotary(dim, scaling=positions."
_AXES = "positions.Rotary(dim, axes=positions."
_SINKS = "masks.window(before, 0) | masks.prefix(n) & masks.causal()"

WRITTEN_HERE = {
    kind: by_name(lines)
    for kind, lines in {
        "score": {
            _FEATURES: "linear kernel kernelized elu features feature_map linear_transformer",
            'scores.Features("relu"), normalizer="ratio"': "relu",
            _RANDOM_FEATURES: "performer favor favor+ random_features",
            _RETENTION: "decayed retention retnet",
            _GATED: "gla gated_linear",
            _DUALITY: "mamba2 ssd state_space_dual bamba zamba2",
            _FORGET: "fox forget forgetting forget_gate forgetting_transformer",
            _DELTA: "delta delta_rule deltanet delta_net",
            _GATED_DELTA: "gated_delta gated_deltanet gated_delta_net gdn qwen3_next olmo_hybrid",
            _KIMI_DELTA: "kda kimi_delta kimi_linear",
            "scores.Trilinear.create(dim)": "trilinear bidaf",
            '"cosine"': "cos cosine_similarity content",
            '"scaled_dot"': "scaled_dot_product_attention scaled_dot_product scaled sdpa vaswani",
            'scores.create("additive", query_dim, key_dim)': "bahdanau tanh perceptron",
            'scores.create("mlp", query_dim, key_dim)': "feedforward",
            _LUONG: "luong",
            'scores.create("general", query_dim, key_dim)': "bilinear multiplicative",
            '"dot", or "scaled_dot" divided by √dim': "dot_product inner_product",
            '"distance"': "euclidean l2 rbf",
            'scores.create("location", query_dim, key_dim, max_keys=max_keys)': "location_based",
            _LOCATION_AWARE: "hybrid chorowski",
            f'{_LOCATION_AWARE[:-1]}, sees="both")': "location_sensitive tacotron tacotron2",
            _LOCATION_AWARE.replace("location_aware", "dynamic_convolution"): "dca location_relative",
            'scores.create("coverage", query_dim, key_dim)': "coverage cover pointer_generator",
            "scores.GaussianMixture.create(query_dim, windows), normalizer=torch.exp": "gmm graves gaussian_mixture",
            _SOFT_CAP: "softcap soft_cap logit_cap",
        },
        "normalizer": {
            'normalizers.hard("gumbel")': "gumbel gumbel_softmax",
            '"hard"': "argmax hardmax one_hot",
            'normalizers.hard("straight_through")': "straight_through",
            'normalizers.hard("sample")': "sample reinforce stochastic",
            '"sigmoid"': "logistic",
            f'"ratio", score={_FEATURES.split(", ")[0]}': "linear elu",
            f'"ratio", score={_RANDOM_FEATURES.rpartition(", ")[0]}': "performer",
            '"identity"': "none",
            '"ratio"': "sum l1",
            '"forward"': "forward_alignment",
            '"stepwise"': "sma stepwise_monotonic",
            "normalizers.top_k(k)": "topk",
            "normalizers.top_p(p)": "topp nucleus",
            '"entmax15"': "1.5_entmax entmax_15 entmax1.5",
            "normalizers.entmax(alpha)": "tsallis",
            "normalizers.softmax_with_sink(0.0)": "softmax1 softmax_one off_by_one softmax_off_by_one quiet_softmax",
            "normalizers.softmax_with_sink(sink)": "learned_sink attention_sink sink",
            "normalizers.Softmax(temperature)": "temperature",
            'normalizers.local_gaussian("softmax", center, sigma)': "gaussian local",
            "normalizer=lambda scores: scores.relu()": "relu",
            '"squared_relu"': "relu2 relu_squared",
            "normalizer=lambda scores: scores.tanh()": "tanh",
            "normalizer=torch.nn.functional.softplus": "softplus",
            '"softpick"': "rectified_softmax",
            '"signed_softmax"': "cog cog_attention sign_softmax",
            "normalizers.ScalableSoftmax(scale)": "ssmax log_length",
            '"stick_breaking"': "stickbreaking",
        },
        "mask": {
            '"causal"': "autoregressive future look_ahead subsequent tril triangular lower_triangular upper_triangular "
            "triu",
            _SINKS: "sinks attention_sink attention_sinks streaming streaming_llm",
            "masks.window(before, after) | masks.prefix(n)": "longformer global",
            "masks.lengths(lengths)": "padding key_padding",
            "masks.window(before, 0)": "sliding_window",
            "masks.window(before, after)": "local banded",
            "masks.documents(ids)": "block_diagonal packed",
            "masks.causal() | masks.prefix(n)": "prefix_lm",
            "masks.chunks(size) & masks.causal()": "chunk chunked chunked_attention llama4",
            "masks.chunks(size, before)": "chunked_limited emformer u2 dynamic_chunk",
            "masks.chunks(size, before=None)": "block_causal",
            "masks.block_diffusion(length, block)": "bd3lm block_diff",
            "masks.dilated(step)": "strided",
            "masks.neighborhood(size, shape)": "neighbourhood natten",
            "masks.shifted_windows(window, shift, shape)": "swin",
            "masks.top_blocks(query, key, size, count)": "moba",
            "None": "full none bidirectional",
        },
        "bias": {
            _RELATIVE: "t5 relative relative_bias relative_position_bias rel_pos rel_pos_bias",
            "biases.RelativePosition(dim, max_distance)": "shaw relative_position",
            '"alibi"': "linear_bias",
            "biases.Kerple(heads)": "kerple kerple_log",
            'biases.Kerple(heads, "power")': "kerple_power",
            "biases.Sandwich(heads)": "sandwich",
            "biases.Fire(heads)": "fire",
            f"score={_FORGET}": "fox forget_gate forgetting data_dependent_alibi",
            "biases.TransformerXL(heads, dim)": "transformer_xl xl xlnet conformer rel_pos_mha",
            "biases.Disentangled(heads, dim, span)": "deberta deberta_v2 deberta_v3 c2p p2c",
            "biases.WindowTable(heads, (height, width))": "swin relative_position_bias_table window_table",
            "biases.LogSpacedTable(heads, (height, width))": "swin_v2 swinv2 cpb continuous_position_bias",
            "biases.DecomposedPosition(dim, (height, width))": "sam mvit mvitv2 vitdet decomposed_rel_pos",
            _ROTARY_CALL: "rope rotary rotary_embedding roformer",
        },
        "backend": {
            '"reference"': "math eager naive manual",
            '"sdpa"': "torch flash flash_attn flashattn flash_2 flash_attention_2 flash_attention_3 mem_efficient "
            "memory_efficient efficient cudnn xformers scaled_dot_product",
            '"cpu"': "numba",
            '"auto"': "default",
            '"auto", with tensors on that device': "gpu cuda mps",
        },
        "position": {
            '"rotary"': "rope rotary_embedding rotary_position roformer",
            '"alibi"': "linear_bias",
            "biases.Kerple(num_heads)": "kerple kerple_log",
            "biases.Sandwich(num_heads)": "sandwich",
            "biases.Fire(num_heads)": "fire",
            "biases.TransformerXL(num_heads, head_dim)": "transformer_xl xlnet conformer",
            "biases.Disentangled(num_heads, head_dim, span)": "deberta deberta_v2 deberta_v3",
            "biases.WindowTable(num_heads, (height, width))": "swin window_table",
            "biases.LogSpacedTable(num_heads, (height, width))": "swin_v2 swinv2",
            "biases.DecomposedPosition(head_dim, (height, width))": "sam mvit mvitv2 vitdet",
            '"t5" or position="shaw"': "relative",
            '"t5"': "relative_bias",
            '"shaw"': "relative_position",
            '"none"': "nope",
            f"{_SCALED}PositionInterpolation(factor))": "linear linear_rope position_interpolation",
            f"{_SCALED}DynamicNTK(factor, original_length))": "ntk dynamic dynamic_ntk ntk_aware",
            f"{_SCALED}YaRN(factor, original_length))": "yarn",
            f"{_SCALED}LongRoPE(short_factor, long_factor, original_length, factor))": "longrope su",
            f"{_SCALED}Llama3(factor, original_length=original_length))": "llama3",
            f"{_SCALED}Proportional(share))": "proportional p_rope",
            f"{_AXES}Axial(features, grid))": "axial axial_rope rope_2d 2d_rope rope2d",
            f"{_AXES}Sections(pairs))": "mrope m_rope multimodal_rope",
            '"none", with positions.Sinusoidal(dim) added to the input of the first layer': "sinusoidal sine",
            '"none", with positions.Learned(max_length, dim) added to the input of the first layer': "absolute learned",
        },
        "attention": {
            '"linear"': "linear",
            f'"multihead", score={_RANDOM_FEATURES}': "performer",
            '"retention"': "retnet retention decayed",
            '"gated_linear"': "gla gated_linear",
            '"forgetting"': "fox forget forgetting forget_gate forgetting_transformer",
            '"delta"': "delta deltanet delta_net delta_rule",
            '"gated_delta"': "gated_delta gated_deltanet gated_delta_net gdn qwen3_next olmo_hybrid",
            '"kimi_delta"': "kda kimi_delta kimi_linear",
            '"mamba2"': "mamba2 ssd state_space_dual bamba zamba2",
            '"differential"': "diff differential differential_transformer",
            '"gated"': "gated",
            '"latent"': "mla latent multi_head_latent",
            '"indexed"': "dsa indexed indexer lightning_indexer deepseek_sparse deepseek_v32 glm_moe_dsa",
            '"compressed"': "csa hca compressed_sparse heavily_compressed deepseek_v4",
            '"native_sparse"': "nsa native_sparse",
            '"qk_norm"': "qk_layer_norm",
            '"multihead"': "mha multi_head multihead softmax scaled_dot_product standard",
            '"multihead", kv_heads=kv_heads': "gqa grouped_query",
            '"multihead", kv_heads=1': "mqa multi_query",
        },
    }.items()
}
"""Kind → name elsewhere → what is written here; the words behind ``, where`` and ``, with`` are no code."""

READY_NAMES: dict[str, tuple[str, ...]] = {
    "score": ("dot", "scaled_dot", "cosine", "distance"),
    "normalizer": (
        "softmax", "sparsemax", "entmax15", "sigmoid", "hard", "over_queries", "sinkhorn", "identity", "ratio",
        "squared_relu", "softpick", "signed_softmax", "scalable_softmax", "stick_breaking",
        "monotonic", "stepwise", "forward",
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
        objects: whether a `Score` may be passed as well as a name.
    """
    # The score of coverage sees earlier steps, which layers do not have.
    line = re.sub(r'scores\.create\(("(?!coverage)\w+"), query_dim, key_dim\)', r"\1", written_here("score", name))
    if "mask=" in line or "score=" not in line:
        named = f'here it is position="{name}"' if name in POSITION_NAMES else written_here("position", name)
        own = (written_here("attention", name), named)
        return next(filter(None, own), line if line.startswith("here it is normalizer=") else "")
    # The scores of location need a number of keys, which layers do not know.
    return "" if "scores.create(" in line or (not objects and "scores." in line) else line
