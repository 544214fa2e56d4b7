"""Arguments of other libraries, and the line of regard that is meant.

Those of `torch.nn.functional.scaled_dot_product_attention`, `torch.nn.MultiheadAttention`, FlexAttention, flash-attn,
Keras, Hugging Face and d2l. This file imports no PyTorch.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from regard.errors import misspelt

_TWO_CONVENTIONS = (
    "mask={0} if its True means 'may attend', as in scaled_dot_product_attention; mask=masks.ignore({0}) if its True "
    "means 'may not', as in torch.nn.MultiheadAttention; bias={0} if it holds numbers that are added to the scores"
)
_WEIGHTS = "call regard.attend_with_weights(query, key, value), which returns (output, weights)"
_ROTATED = "rotary = positions.Rotary(dim), and regard.attend(rotary(query), rotary(key), value)"

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
    **dict.fromkeys(("rope", "use_rope", "rotary", "rotary_emb", "rotary_embedding", "freqs_cis"), _ROTATED),
    **dict.fromkeys(("alibi", "use_alibi"), 'write bias="alibi"'),
    **dict.fromkeys(
        ("relative_bias", "rel_pos_bias", "relative_position_bias"), "write bias=biases.RelativeBias(heads)"
    ),
    **dict.fromkeys(
        (
            "position",
            "positions",
            "pos",
            "pos_emb",
            "position_ids",
            "position_embedding",
            "position_embeddings",
            "positional_encoding",
        ),
        f'write bias="alibi" or bias=biases.RelativeBias(heads), or rotate: {_ROTATED}',
    ),
    "sliding_window": "write mask=masks.window(before, 0)",
    **dict.fromkeys(
        ("cache", "kv_cache", "past_key_value", "past_key_values", "use_cache"),
        "pass all keys and values so far: cache = cache.appended(key, value), and regard.attend(query, cache.key, "
        'cache.value, mask="causal")',
    ),
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
_POSITION = ("position={0}",)
_HEADS = ("nhead={0}", "num_heads={0}")
_DIM = ("d_model={0}", "embed_dim={0}", "channels={0}")
_FEEDFORWARD = ("dim_feedforward={0}",)
_LAYERS = ("num_layers={0}", "num_encoder_layers={0}")

_LEARNED = tuple(f"{name}=torch.nn.Parameter(torch.tensor({name}))" for name in ("alpha", "temperature", "sink"))

CACHES = ("cache", "caches", "kv_cache", "past_key_value", "past_key_values", "layer_past", "incremental_state",
          "use_cache")  # fmt: skip
"""What a cache of keys and values is called as an argument."""

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
    "positions": _POSITION,
    "position_embedding": _POSITION,
    "pos_emb": _POSITION,
    "positional_encoding": _POSITION,
    **dict.fromkeys(CACHES, ("cache={0}", "caches={0}")),
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
"""What was called → the line for arguments that do not fit; of others it is the call with those without a default."""

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
        owner: what was called, for the message.
        function: the class, or the method that is called.
        keywords: the names that are unknown.
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
        owner: what was called, for the message.
        function: the function, the class, or the method of the call.
        keywords: the names of the keyword arguments that were passed.
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
    nearest = misspelt(name, names)
    hint = "" if nearest is None else f"; did you mean {nearest!r}?"
    return f"{hint} (known: {', '.join(names)})"
