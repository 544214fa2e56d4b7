"""Every name has its value and says what it needs; what other libraries call it is answered with regard's line."""

import inspect
import re
from functools import partial

import pytest
import torch

import regard
from cases import D, problem
from regard import biases, masks, normalizers, positions, scores
from regard.attention.execution import OWN_BACKENDS, check_backend
from regard.biases.names import NAMES as BIASES
from regard.errors import ArgumentError, KindError, UnknownNameError
from regard.masks.names import NAMES, WITH_ARGUMENTS
from regard.names.foreign_arguments import KEYWORDS
from regard.names.foreign_names import READY_NAMES, WRITTEN_HERE
from regard.normalizers import as_normalizer
from regard.normalizers.names import _CONSTRUCTORS, _NAMED_NORMALIZERS
from regard.scores.names import READY_SCORES, WEIGHTED_SCORES

QUERY, KEY, VALUE = problem(torch.float32)
VERBS = [regard.attend, regard.observe, regard.attend_with_weights, regard.plan, regard.explain]


@pytest.mark.parametrize("name", READY_SCORES)
def test_a_score_without_weights_has_its_value(name):
    assert getattr(scores, name) is scores.as_score(name)


@pytest.mark.parametrize("name", [name for name in _NAMED_NORMALIZERS if name not in _CONSTRUCTORS])
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
        *(("normalizer", name) for name in _CONSTRUCTORS if name not in _NAMED_NORMALIZERS),
        *(("score", name) for name in WEIGHTED_SCORES),
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
    "temperature": 0.5, "center": torch.zeros(1), "sigma": 1.0, "lengths": 3, "before": 1, "after": 1,
    "n": torch.tensor([2]),
    "step": 2, "ids": torch.zeros(2, 5, dtype=torch.long), "masks": masks, "scores": scores, "normalizers": normalizers,
    "positions": positions, "heads": 3, "scale": 2.0, "softmax_scale": 1.0, "scaling": 1.0, "softcap": 3.0,
    "dim": D, "windows": 2, "features": 7, "log_decay": torch.zeros(3), "beta": torch.zeros(2, 3, 5), "k": 2, "p": 0.5,
    "torch": torch, "size": 3, "shape": (5,), "window": 2, "shift": 1, "count": 1, "biases": biases, "max_distance": 3,
    "rotary": torch.clone, "length": 6, "block": 3, "span": 4, "height": 3, "width": 5, "max_length": 9,
    "query": QUERY, "key": KEY,
}  # fmt: skip
"""The names that a line of the table may contain."""


OF_CALLS = [(kind, name) for kind in READY_NAMES for name in WRITTEN_HERE[kind]]
CONVERT = {
    "score": scores.as_score, "normalizer": as_normalizer, "mask": masks.as_mask, "backend": check_backend,
    "bias": partial(biases.bias_for, heads=3), "query": torch.Tensor.size, "key": torch.Tensor.size,
}  # fmt: skip


@pytest.mark.parametrize(("kind", "name"), OF_CALLS)
def test_the_line_for_a_foreign_name_is_right(kind, name):
    with pytest.raises(UnknownNameError) as raised:
        regard.attend(QUERY, KEY, VALUE, **{kind: name.title().replace("_", "-")})
    line = WRITTEN_HERE[kind][name]
    assert f"here it is {line if re.match('[a-z]+=', line) else f'{kind}={line}'} (known: " in str(raised.value)
    code = re.split(", where |, with | divided", line)[0]
    for part in re.split(r", (?=scores)| or ", code):
        written = part.strip(", ")
        written = written if re.match("[a-z]+=", written) else f"{kind}={written}"
        for argument, value in eval(f"dict({written})", dict(ARGUMENTS)).items():
            CONVERT[argument](value)


def test_the_names_of_each_argument_are_those_that_it_takes():
    taken = {
        "score": READY_SCORES, "normalizer": _NAMED_NORMALIZERS, "mask": NAMES, "bias": BIASES,
        "backend": ("auto", *OWN_BACKENDS),
    }  # fmt: skip
    assert {kind: sorted(names) for kind, names in READY_NAMES.items()} == {
        kind: sorted(names) for kind, names in taken.items()
    }


@pytest.mark.parametrize(
    ("kind", "other", "name"),
    [(kind, other, name) for other, names in READY_NAMES.items() for name in names if name not in ("auto", "linear")
     for kind in READY_NAMES if kind != other and name not in WRITTEN_HERE[kind]],
)  # fmt: skip
def test_a_name_of_another_argument_names_that_argument(kind, other, name):
    with pytest.raises(UnknownNameError, match=rf'here it is {other}="{name}" \(known: '):
        regard.attend(QUERY, KEY, VALUE, **{kind: name})


@pytest.mark.parametrize("kind", ["score", "normalizer", "mask", "backend"])
def test_a_name_is_suggested_for_a_slip_alone(kind):
    def refused(name):
        with pytest.raises(UnknownNameError) as raised:
            regard.attend(QUERY, KEY, VALUE, **{kind: name})
        return str(raised.value)

    for name in READY_NAMES[kind]:
        if len(name) > 4:
            for slip in (name[:2] + name[3:], name[:3] + "z" + name[3:], name[:2] + name[3] + name[2] + name[4:]):
                assert slip == name or f"did you mean {name!r}?" in refused(slip)
    for elsewhere in ("cosformer", "hyena", "rwkv", "mamba", "hopfield", "softmin", "linformer", "sage", "paged"):
        assert "did you mean" not in refused(elsewhere)
        assert "here it is" not in refused(elsewhere)


SIZES = {"batch": 2, "heads": 3, "keys": 5, "dim": 4}
RECURRENT = {
    name: paper
    for names, paper in {
        ("retnet", "retention", "gla"): (0.5, False),  # Sun et al. 2023 and Yang et al. 2024 divide by the root of dim
        ("mamba2",): (1.0, False),  # Dao & Gu 2024, equation 16, divides by nothing
        ("deltanet", "delta_rule", "gated_deltanet"): (1.0, True),  # keys and queries of unit length
    }.items()
    for name in names
}


@pytest.mark.parametrize("name", RECURRENT)
def test_the_line_for_a_recurrence_runs_as_it_is_printed(name):
    scale, is_delta = RECURRENT[name]
    query, key, value = torch.randn(3, 2, 3, 5, 4, dtype=torch.float64)
    with pytest.raises(UnknownNameError) as raised:
        regard.attend(query, key, value, score=name)
    line = re.search(r"here it is (.+?), where (.+?); the layer is nn\.(\w+)", str(raised.value))
    assert line is not None
    assert hasattr(regard.nn, line[3])
    axes = re.search(r"\[([a-z, ]+)\]", line[2])
    assert axes is not None
    shape = [SIZES[axis] for axis in axes[1].split(", ")]
    log_decay, beta = -torch.rand(shape, dtype=torch.float64), torch.rand(2, 3, 5, dtype=torch.float64)
    output = regard.attend(query, key, value, **eval(f"dict({line[1]})", {**ARGUMENTS, **locals()}))

    decay = log_decay.exp() if "log_decay" in line[1] else torch.ones(3, dtype=torch.float64)
    decay = decay[:, None, None] if decay.dim() == 1 else decay if decay.dim() == 4 else decay[..., None]
    decay = decay.expand(2, 3, 5, 4)
    if is_delta:
        query, key = (part / part.norm(dim=-1, keepdim=True) for part in (query, key))
    state = torch.zeros(2, 3, 4, 4, dtype=torch.float64)
    for t in range(5):
        state = decay[:, :, t, :, None] * state
        k, v = key[:, :, t, :, None], value[:, :, t, None]
        state = state + (beta[:, :, t, None, None] * k * (v - k.mT @ state) if is_delta else k * v)
        torch.testing.assert_close(output[:, :, t], scale * (query[:, :, t, None] @ state)[:, :, 0])


def test_the_line_for_scalable_softmax_is_that_of_the_paper():
    # Nakanishi 2025, "Scalable-Softmax is superior for attention", equation 2: softmax of s log(n) z.
    query, key, value = torch.randn(3, 2, 3, 5, 4, dtype=torch.float64)
    n, scale = torch.arange(1, 6), torch.tensor(0.43, dtype=torch.float64)
    made = eval(WRITTEN_HERE["normalizer"]["ssmax"], {"normalizers": normalizers, "scale": scale})
    logits = scale * n.log()[:, None] * (query @ key.mT / 2)
    expected = logits.masked_fill(torch.ones(5, 5).triu(1).bool(), -torch.inf).softmax(-1) @ value
    torch.testing.assert_close(regard.attend(query, key, value, normalizer=made, mask="causal"), expected)


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
