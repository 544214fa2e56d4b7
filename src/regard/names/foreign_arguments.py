"""Arguments of other libraries, and the line of regard that is meant.

Those of `torch.nn.functional.scaled_dot_product_attention`, `torch.nn.MultiheadAttention`, FlexAttention, flash-attn,
Keras, Hugging Face and d2l. This file imports no PyTorch.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from regard.errors import misspelt
from regard.names.foreign_names import by_name

_TWO_CONVENTIONS = (
    "mask={0} if its True means 'may attend', as in scaled_dot_product_attention; mask=masks.ignore({0}) if its True "
    "means 'may not', as in torch.nn.MultiheadAttention; bias={0} if it holds numbers that are added to the scores"
)
_WEIGHTS = "call regard.attend_with_weights(query, key, value), which returns (output, weights)"
_ROTATED = "rotary = positions.Rotary(dim), and regard.attend(rotary(query), rotary(key), value)"

_HEADS_AXIS = "heads are an axis of the tensors, [batch, heads, length, dim]; nn.MultiheadAttention splits features"

KEYWORDS = {
    name: line.format(name)
    for name, line in by_name(
    {
        'write mask="causal", or mask=masks.causal(align="start") as PyTorch, JAX and Keras align lengths': "is_causal",
        'write mask="causal"': "causal use_causal_mask",
        f"write {_TWO_CONVENTIONS}": "attn_mask",
        'write mask="causal", mask=masks.window(before, after) or mask=masks.lengths(lengths)': "mask_type",
        "write mask={0}.bool()[:, None, None, :] if it is [batch, keys] with 1 at tokens": "attention_mask",
        "write mask=masks.lengths(lengths), or mask=masks.ignore({0}[:, None, None, :]) where True is padding":
        "key_padding_mask",
        "write mask={0}[:, None, None, :], where True means 'may attend'": "key_mask",
        "write mask=masks.lengths({0})": "valid_lens lengths",
        "write mask=masks.where(mask_mod), or call regard.flex_attention(query, key, value, score_mod, block_mask)":
        "block_mask mask_mod",
        "write mask=masks.window(before, after)": "window_size",
        "write mask=masks.window(before, 0)": "sliding_window",
        "write bias={0}": "attn_bias position_bias",
        "write bias=positions.alibi(heads)": "alibi_slopes",
        'write bias="alibi"': "alibi use_alibi",
        "write bias=biases.RelativeBias(heads)": "relative_bias rel_pos_bias relative_position_bias",
        f'write bias="alibi" or bias=biases.RelativeBias(heads), or rotate: {_ROTATED}':
        "position positions pos pos_emb position_ids position_embedding position_embeddings positional_encoding",
        _ROTATED: "rope use_rope rotary rotary_emb rotary_embedding freqs_cis",
        "write score=scores.ScaledDot(scale={0})": "scale softmax_scale scaling",
        'write score=scores.SoftCap("scaled_dot", {0})': "softcap",
        'write score=scores.Modified("scaled_dot", {0})': "score_mod",
        "write normalizer=normalizers.Softmax({0})": "temperature",
        "write normalizer=normalizers.entmax({0})": "alpha",
        "write dropout={0}": "dropout_p attention_dropout",
        "dropout is always active: write dropout=p if training else 0.0": "training",
        _WEIGHTS: "need_weights return_weights output_attentions return_attention_scores",
        f"{_WEIGHTS}; their mean over heads is weights.mean(1)": "average_attn_weights",
        "leave it out: heads of key and value that divide those of query are shared by groups": "enable_gqa",
        _HEADS_AXIS: "num_heads heads",
        "the batch is the first axis here, always": "batch_first",
        "pass all keys and values so far: cache = cache.appended(key, value), and regard.attend(query, cache.key, "
        'cache.value, mask="causal")': "cache kv_cache past_key_value past_key_values use_cache",
        'write backend="auto", or the name of a backend': "implementation",
    }).items()
}  # fmt: skip
"""A keyword argument elsewhere → what to do here; in the lines ``{0}`` stands for the argument."""

CACHES = ("cache", "caches", "kv_cache", "past_key_value", "past_key_values", "layer_past", "incremental_state",
          "use_cache")  # fmt: skip
"""Names of the argument that is a cache of keys and values."""

_PADDING = (
    "src_key_padding_mask={0}", "tgt_key_padding_mask={0}", "memory_key_padding_mask={0}", "key_padding_mask={0}",
)  # fmt: skip

LAYER_KEYWORDS = by_name(
    {
        ("src_mask={0} (True hides)", "tgt_mask={0} (True hides)", "memory_mask={0} (True hides)",
         "mask=masks.keep({0}) (True may attend)"): "attn_mask mask",
        _PADDING: "key_padding_mask padding_mask",
        tuple(line.format("~{0}.bool()") for line in _PADDING): "attention_mask",
        ("src_lengths={0}", "tgt_lengths={0}", "mask=masks.lengths({0})"): "lengths",
        ("lengths={0}", "src_lengths={0}", "mask=masks.lengths({0})"): "valid_lens",
        ('mask="causal"', 'tgt_mask="causal"'): "causal is_causal use_causal_mask",
        ('position="rotary"',): "rope use_rope rotary rotary_embedding rotary_pos_emb",
        ('position="alibi"',): "alibi alibi_pos_bias",
        ('position="t5"',): "rel_pos_bias",
        ("position={0}",): "positions position_embedding pos_emb positional_encoding",
        ("cache={0}", "caches={0}"): " ".join(CACHES),
        ('norm="rms"',): "use_rmsnorm",
        ("d_model={0}", "embed_dim={0}", "channels={0}"):
        "dim embed_dim d_model hidden_size embedding_dim in_channels in_planes",
        ("embed_dim=num_heads * {0}",): "key_dim",
        ("num_layers={0}", "num_encoder_layers={0}"): "depth n_layers num_layers num_hidden_layers",
        ("kv_heads={0}",): "kvheads num_kv_heads n_kv_heads num_key_value_heads",
        ("nhead={0}", "num_heads={0}"): "heads n_heads n_head nhead num_heads num_attention_heads",
        ("dim_feedforward={0}",): "d_ff d_hid ff_dim ffn_dim intermediate_dim intermediate_size",
        ("layer_norm_eps={0}",): "layer_norm_epsilon",
        ("norm_first={0}",): "pre_norm normalize_before",
        ("dropout={0}",): "attn_dropout attention_dropout",
        ("need_weights={0}",): "output_attentions return_attention_scores",
        ("earlier=nn.EarlierWeights({0})",): "previous_weights stops",
        tuple(f"{name}=torch.nn.Parameter(torch.tensor({name}))" for name in ("alpha", "temperature", "sink")):
        "trainable learnable requires_grad",
        ("columns={0}",): "xlabels xticklabels",
        ("rows={0}",): "ylabels yticklabels",
        ("values={0}",): "annot",
        ("color_bar={0}",): "cbar",
        ("color_map={0}",): "cmap",
        ("low={0}",): "vmin",
        ("high={0}",): "vmax",
    }
)  # fmt: skip
"""A keyword argument of layers elsewhere → what is written here; each line begins with an argument, which a layer may
have or not."""

LINES = {
    "SoftCap": 'scores.SoftCap("scaled_dot", cap)',
    "Modified": 'scores.Modified("scaled_dot", score_mod)',
    "Decayed": 'scores.Decayed("scaled_dot", log_decay)',
    "DeltaRule": 'scores.DeltaRule("cosine", beta)',
    "ablate": "with watching.ablate(model, layer, head), where head is one or a list; for heads of several layers, a "
    "with for each",
    "logit_contributions": "watching.logit_contributions(model, watched.calls[0], token_ids=[7])",
    "KeyValueCache": "KeyValueCache(), which grows with the tokens",
    "View": "View(content, rows=rows, columns=columns)",
    "the call of Attention": (
        "attention(query, annotations), or for values of their own attention(query, attention.remember(annotations, "
        "value=value))"
    ),
}
"""Callable → the line for arguments that do not fit; of others it is the call with those without a default."""

_STACK = "; write rows, caches, weights = decoder.step(tokens, decoder.remember(memory), caches)"
DECODING = {
    "MultiheadAttention": (
        "it keeps no tokens; write output, weights, cache = nn.SelfAttention(embed_dim, num_heads)(x, "
        'mask="causal", cache=nn.KeyValueCache())'
    ),
    "TransformerEncoderLayer": "its stack does; write output, caches = nn.TransformerEncoder(layer, num_layers)"
    ".step(tokens, caches)",
    "TransformerEncoder": "write output, caches = encoder.step(tokens, caches)",
    "TransformerDecoderLayer": f"its stack does: decoder = nn.TransformerDecoder(layer, num_layers){_STACK}",
    "TransformerDecoder": f"a step does{_STACK}",
    "Transformer": f"its decoder does: decoder = transformer.decoder{_STACK}",
}
"""Layer → what decodes with a cache, which its call does not take; the first token's ``caches`` are None."""


def unknown_layer_keyword(
    owner: str, function: Callable[..., object], keywords: Iterable[str], more: Iterable[str] = ()
) -> str:
    """Returns a message about keyword arguments that a layer or its call does not have.

    Args:
        function: the class, or the method that is called.
        more: the names behind the function's ``**names``.
    """
    name = next(iter(keywords))
    names = [each for each in (*argument_names(function), *more) if each != "self"]
    advice = _line_with(name, names)
    if not advice and isinstance(function, type):
        advice = _line_with_part(name, function) or _line_in_call(name, function)
    if not advice and name in CACHES and (line := DECODING.get(owner.removeprefix("the call of "))):
        advice = f": {line}"
    return f"{owner} has no argument {name!r}{advice or _nearest(name, names)}"


def wrong_arguments(owner: str, function: Callable[..., object], keywords: Iterable[str], problem: str) -> str:
    """Returns a message about arguments that a function, a constructor or the call of a layer cannot take.

    Args:
        problem: what Python says of the arguments.
    """
    names = [name for name in argument_names(function) if name != "self"]
    unknown = [name for name in keywords if name not in names]
    if unknown:
        return unknown_layer_keyword(owner, function, unknown)
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
    """Returns a message about keyword arguments that a verb does not have."""
    name = next(iter(keywords))
    message = f"{verb.__name__} has no argument {name!r}"
    if name in KEYWORDS:
        return f"{message}: {KEYWORDS[name]}"
    return f"{message}{_nearest(name, argument_names(verb))}"


def _nearest(name: str, names: list[str]) -> str:
    """Returns the nearest name and all of them, as the end of a message."""
    nearest = misspelt(name, names)
    hint = "" if nearest is None else f"; did you mean {nearest!r}?"
    return f"{hint} (known: {', '.join(names)})"
