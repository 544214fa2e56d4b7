"""What people type from papers and from other libraries, and the line of regard that is meant.

Names of scores, normalizers and masks, and keyword arguments of `torch.nn.functional.scaled_dot_product_attention`,
`torch.nn.MultiheadAttention`, FlexAttention, flash-attn, Keras, Hugging Face and d2l. This file imports no PyTorch.
"""

import difflib
import inspect
from collections.abc import Callable, Mapping

WRITTEN_HERE: dict[str, dict[str, str]] = {
    "score": {
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
        "logistic": '"sigmoid"',
        "entmax_15": '"entmax15"',
        "entmax1.5": '"entmax15"',
        "tsallis": "normalizers.entmax(alpha)",
        "softmax1": "normalizers.softmax_with_sink(0.0)",
        "softmax_one": "normalizers.softmax_with_sink(0.0)",
        "off_by_one": "normalizers.softmax_with_sink(0.0)",
        "sink": "normalizers.softmax_with_sink(sink)",
        "temperature": "normalizers.Softmax(temperature)",
        "gaussian": 'normalizers.local_gaussian("softmax", center, sigma)',
        "local": 'normalizers.local_gaussian("softmax", center, sigma)',
        "relu": "normalizer=lambda scores: scores.relu()",
        "squared_relu": "normalizer=lambda scores: scores.relu().square()",
    },
    "mask": {
        "autoregressive": '"causal"',
        "future": '"causal"',
        "look_ahead": '"causal"',
        "subsequent": '"causal"',
        "tril": '"causal"',
        "triangular": '"causal"',
        "padding": "masks.lengths(lengths)",
        "key_padding": "masks.lengths(lengths)",
        "sliding_window": "masks.window(before, 0)",
        "local": "masks.window(before, after)",
        "banded": "masks.window(before, after)",
        "block_diagonal": "masks.documents(ids)",
        "packed": "masks.documents(ids)",
        "prefix_lm": "masks.causal() | masks.prefix(n)",
        "strided": "masks.dilated(step)",
        "full": "None",
        "none": "None",
        "bidirectional": "None",
    },
}
"""Kind → name elsewhere → what is written here."""

_TWO_CONVENTIONS = (
    "mask={0} if its True means 'may attend', as in scaled_dot_product_attention; mask=masks.ignore({0}) if its True "
    "means 'may not', as in torch.nn.MultiheadAttention; bias={0} if it holds numbers that are added to the scores"
)
_WEIGHTS = "call regard.attend_with_weights(query, key, value), which returns (output, weights)"

KEYWORDS: dict[str, str] = {
    "is_causal": 'write mask="causal", or mask=masks.causal(align="start") as PyTorch aligns unequal lengths',
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


def written_here(kind: str, name: object) -> str:
    """Returns what a name elsewhere is here, as the end of a message; empty if it is no known name.

    Args:
        kind: ``"score"``, ``"normalizer"`` or ``"mask"``.
        name: what was typed.
    """
    if not isinstance(name, str):
        return ""
    plain = name.strip().lower().replace("-", "_").replace(" ", "_")
    for ending in ("", "_attention", "_score", "_mask", "_product"):
        line = WRITTEN_HERE[kind].get(plain.removesuffix(ending))
        if line is not None:
            return f"here it is {line if line.startswith(f'{kind}=') else f'{kind}={line}'}"
    return ""


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
    parameters = inspect.signature(verb).parameters.values()
    names = [parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD]
    nearest = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
    return f"{message}{hint} (known: {', '.join(names)})"
