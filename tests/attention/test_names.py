"""Every name has its value and says what it needs; what other libraries call it is answered with regard's line."""

import inspect
import re

import pytest
import torch

import regard
from cases import D, problem
from regard import masks, normalizers, positions, scores
from regard.errors import ArgumentError, KindError, UnknownNameError
from regard.foreign_names import KEYWORDS, WRITTEN_HERE
from regard.masks.names import NAMES, WITH_ARGUMENTS
from regard.normalizers import as_normalizer
from regard.normalizers.names import _CONSTRUCTORS, _NAMED
from regard.scores.names import READY, WEIGHTED

QUERY, KEY, VALUE = problem(torch.float32)
VERBS = [regard.attend, regard.observe, regard.attend_with_weights, regard.plan, regard.explain]


@pytest.mark.parametrize("name", READY)
def test_a_score_without_weights_has_its_value(name):
    assert getattr(scores, name) is scores.as_score(name)


@pytest.mark.parametrize("name", [name for name in _NAMED if name not in _CONSTRUCTORS])
def test_a_normalizer_has_its_value(name):
    assert getattr(normalizers, name) is as_normalizer(name)


def test_the_causal_mask_has_its_name():
    assert list(NAMES) == ["causal"]
    assert masks.as_mask("causal") == masks.causal()
    expected = regard.attend(QUERY, KEY, VALUE, mask=masks.causal())
    assert torch.equal(regard.attend(QUERY, KEY, VALUE, mask="causal"), expected)


# Argument, the value without a call, and the line that is right.
UNCALLED = {
    **{f"masks.{name}": ({"mask": getattr(masks, name)}, rf"masks\.{name}\(") for name in ("causal", *WITH_ARGUMENTS)},
    **{
        f"normalizers.{name}": ({"normalizer": getattr(normalizers, name)}, rf"normalizers\.{name}\(")
        for name in _CONSTRUCTORS
    },
    "scores.create": ({"score": scores.create}, r"scores\.create\(name, query_dim, key_dim\)"),
    "scores.Dot": ({"score": scores.Dot}, r"Dot\(\.\.\.\)"),
    "positions.alibi": ({"bias": positions.alibi}, r"positions\.alibi\(heads\)"),
    "positions.RelativeBias": ({"bias": positions.RelativeBias}, r"positions\.RelativeBias\(heads"),
}


@pytest.mark.parametrize("name", UNCALLED)
def test_a_factory_says_that_it_is_one(name):
    arguments, line = UNCALLED[name]
    with pytest.raises((KindError, ArgumentError), match=line):
        regard.attend(QUERY, KEY, VALUE, **arguments)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *(("mask", name) for name in WITH_ARGUMENTS),
        *(("normalizer", name) for name in _CONSTRUCTORS if name not in _NAMED),
        *(("score", name) for name in WEIGHTED),
    ],
)
def test_a_name_that_needs_arguments_says_so(kind, name):
    with pytest.raises(ArgumentError) as raised:
        regard.attend(QUERY, KEY, VALUE, **{kind: name})
    assert not isinstance(raised.value, UnknownNameError)
    assert re.search(rf"{kind}s\.\w+\(", str(raised.value))
    if name == "window":
        assert str(raised.value) == "mask 'window' needs its widths: mask=masks.window(before, after)"


ARGUMENTS = {
    "query_dim": D, "key_dim": D, "max_keys": 9, "channels": 2, "kernel_size": 3, "cap": 2.0, "alpha": 1.5, "sink": 0.1,
    "temperature": 0.5, "center": torch.zeros(1), "sigma": 1.0, "lengths": 3, "before": 1, "after": 1, "n": 2,
    "step": 2, "ids": torch.zeros(2, 5, dtype=torch.long), "masks": masks, "scores": scores, "normalizers": normalizers,
    "positions": positions, "heads": 3, "scale": 2.0, "softmax_scale": 1.0, "scaling": 1.0, "softcap": 3.0,
    "dim": D, "features": 7, "log_decay": torch.zeros(3), "beta": torch.zeros(2, 3, 5), "k": 2, "p": 0.5,
    "torch": torch, "size": 3, "shape": (5,), "window": 2, "shift": 1, "count": 1, "query": QUERY, "key": KEY,
}  # fmt: skip
"""The names that a line of the table may contain."""


OF_CALLS = [(kind, name) for kind in ("score", "normalizer", "mask") for name in WRITTEN_HERE[kind]]


@pytest.mark.parametrize(("kind", "name"), OF_CALLS)
def test_the_line_for_a_foreign_name_is_right(kind, name):
    with pytest.raises(UnknownNameError) as raised:
        regard.attend(QUERY, KEY, VALUE, **{kind: name.title().replace("_", "-")})
    line = WRITTEN_HERE[kind][name]
    convert = {"score": scores.as_score, "normalizer": as_normalizer, "mask": masks.as_mask}
    assert f"here it is {line if line.startswith(f'{kind}=') else f'{kind}={line}'} (known: " in str(raised.value)
    for part in re.split(r", (?=scores)| or ", line.split(" divided")[0]):
        written = part.strip(", ").removeprefix(f"{kind}=")
        for argument, value in eval(f"dict({kind}={written})", dict(ARGUMENTS)).items():
            convert[argument](value)


@pytest.mark.parametrize(
    ("verb", "keyword"),
    [(verb, name) for verb in VERBS for name in KEYWORDS if name not in inspect.signature(verb).parameters],
)
def test_a_foreign_keyword_is_answered_with_the_line(verb, keyword):
    with pytest.raises(KindError) as raised:
        verb(QUERY, KEY, VALUE, **{keyword: True})
    assert str(raised.value) == f"{verb.__name__} has no argument {keyword!r}: {KEYWORDS[keyword]}"


@pytest.mark.parametrize("keyword", ["is_causal", "scale", "softcap", "alpha", "alibi_slopes", "window_size"])
def test_the_line_for_a_foreign_keyword_runs(keyword):
    line = re.search(r"write (\w+)=(.+?)(, or.*)?$", KEYWORDS[keyword])
    assert line is not None
    regard.attend(QUERY, KEY, VALUE, **{line[1]: eval(line[2], dict(ARGUMENTS))})


def test_both_conventions_of_a_mask_are_explained():
    for text in ("mask=attn_mask", "may attend", "masks.ignore(attn_mask)", "may not", "bias=attn_mask"):
        assert text in KEYWORDS["attn_mask"]


def test_a_misspelt_keyword_has_a_suggestion():
    with pytest.raises(KindError, match="attend has no argument 'normaliser'; did you mean 'normalizer'"):
        regard.attend(QUERY, KEY, VALUE, normaliser="softmax")  # type: ignore[arg-type]


@pytest.mark.parametrize("read", ["entropy", ["entropy"], ("entropy", "top_k")])
def test_a_reading_by_name_is_answered_with_the_line(read):
    with pytest.raises(KindError, match=r"write read=regard\.Readings\(entropy=True"):
        regard.observe(QUERY, KEY, VALUE, read=read)


@pytest.mark.parametrize(("name", "value"), [("entropy", True), ("weights", True), ("top_k", 3), ("rows", [0])])
def test_a_reading_as_a_keyword_is_answered_with_the_line(name, value):
    with pytest.raises(KindError) as raised:
        regard.observe(QUERY, KEY, VALUE, **{name: value})
    line = re.search(r"write read=(regard\.Readings\(.+\))$", str(raised.value))
    assert line is not None
    assert getattr(eval(line[1], {"regard": regard, name: value}), name) == value
