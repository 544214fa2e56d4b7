"""Validation names bad input: the argument, what was expected, what came."""

import math

import pytest
import torch

import regard
from cases import B, D, H, K, Q, V, problem
from regard import masks, normalizers, scores
from regard.errors import ArgumentError, KindError, ShapeError, UnknownNameError

QUERY, KEY, VALUE = problem(torch.float32)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"query": torch.randn(D)}, ShapeError, r"query must have 2 to 4 axes.*\[11\]"),
        ({"query": torch.randn(1, B, H, Q, D)}, ShapeError, "query must have 2 to 4 axes"),
        ({"key": KEY[0]}, ShapeError, r"key must have as many axes as query, 4; it has shape \[3, 7, 11\]"),
        ({"value": VALUE[0, 0]}, ShapeError, "value must have as many axes as query"),
        ({"key": KEY[..., :-1]}, ShapeError, "dim.*11.*10"),
        ({"key": KEY[:1], "value": VALUE[:1]}, ShapeError, "key must have query's batch, 2; it has 1"),
        ({"value": VALUE[:, :, :-1]}, ShapeError, r"value must have key's batch, heads and keys, \[2, 3, 7\]"),
        ({"key": KEY[:, :2], "value": VALUE[:, :2]}, ShapeError, "key's heads must divide query's heads, 3; key has 2"),
        ({"key": KEY.double()}, KindError, "must have one dtype.*float32, torch.float64"),
        ({"query": QUERY.cfloat()}, KindError, "query must hold floating-point numbers; it holds torch.complex64"),
        ({"query": torch.tensor(1.0)}, ShapeError, r"query must have 2 to 4 axes.*\[\]"),
        ({"key": torch.tensor(1.0)}, ShapeError, r"key must have as many axes as query, 4; it has shape \[\]"),
        ({"value": VALUE[0, 0, 0]}, ShapeError, r"value must have as many axes as query, 4; it has shape \[13\]"),
        ({"query": QUERY.bool()}, KindError, "query must hold floating-point numbers; it holds torch.bool"),
        ({"key": KEY.to(torch.complex64)}, KindError, "key must hold floating-point numbers; it holds torch.complex64"),
        (
            {"value": VALUE.to(torch.float8_e4m3fn)},
            KindError,
            "value must hold float16, .*it holds torch.float8_e4m3fn",
        ),
        ({"query": QUERY.to_sparse()}, KindError, "query must be a dense tensor; it has the layout torch.sparse_coo"),
        (
            {"value": torch.nested.nested_tensor([VALUE[0]], layout=torch.jagged)},
            KindError,
            "value must be a dense tensor; it is a nested",
        ),
        ({"bias": torch.zeros(Q, K).to(torch.float8_e5m2)}, KindError, "bias must hold float16.*torch.float8_e5m2"),
        ({"bias": torch.zeros(Q, K).to_sparse()}, KindError, "bias must be a dense tensor.*torch.sparse_coo"),
        ({"bias": torch.zeros(Q, K, dtype=torch.bool)}, KindError, "bias must hold floating-point.*torch.bool"),
        ({"mask": torch.ones(Q, K).bool().to_sparse()}, KindError, "mask must be a dense tensor.*torch.sparse_coo"),
        (
            {"mask": torch.ones(Q, K).bool().numpy()},
            KindError,
            "mask must be a Mask, a bool tensor or None; it is a nd",
        ),
        (
            {"mask": torch.ones(Q, K).bool().to("meta")},
            KindError,
            "mask= must be on cpu, where query is; it is on meta",
        ),
        ({"value": None}, KindError, "value must be a tensor; it is None"),
        ({"query": QUERY.to("meta")}, KindError, "key must be on query's device, meta; it is on cpu"),
        (
            {"query": QUERY.to("meta"), "key": KEY.to("meta").double(), "value": VALUE.to("meta")},
            KindError,
            "must have one dtype.*float32, torch.float64",
        ),
        ({"key": KEY.to("meta")}, KindError, "key must be on query's device, cpu; it is on meta"),
        ({"mask": torch.zeros(Q, K)}, KindError, "mask"),
        ({"mask": torch.zeros(Q + 1, K, dtype=torch.bool)}, ShapeError, "mask|keep"),
        ({"mask": "casual"}, UnknownNameError, "unknown mask 'casual'; did you mean 'causal'"),
        ({"mask": masks.lengths([1, 2, 3])}, ShapeError, "keys must be an integer or"),
        ({"mask": masks.lengths([1, K + 1])}, ArgumentError, r"keys\[1\] must be in 0..7; it is 8"),
        ({"bias": torch.zeros(Q + 1, K)}, ShapeError, r"bias must broadcast to \[batch, heads, queries, keys\]"),
        ({"bias": torch.zeros(Q, K, dtype=torch.long)}, KindError, "bias"),
        ({"dropout": 1.0}, ArgumentError, r"dropout must be in \[0, 1\); it is 1.0"),
        ({"dropout": -0.1}, ArgumentError, "dropout must be in"),
        ({"dropout": math.nan}, ArgumentError, "dropout must be in"),
        ({"dropout": math.inf}, ArgumentError, "dropout must be in"),
        ({"dropout": 1}, ArgumentError, "dropout must be in"),
        ({"dropout": True}, KindError, "dropout must be a number; it is a bool"),
        ({"dropout": None}, KindError, "dropout must be a number; it is None"),
        ({"dropout": torch.tensor(0.1)}, KindError, "dropout must be a number; it is a Tensor"),
        ({"dropout": torch.zeros(2)}, KindError, "dropout must be a number; it is a Tensor"),
        ({"dropout": "0.1"}, KindError, "dropout must be a number; it is a str"),
        ({"score": "scaled_dto"}, UnknownNameError, "did you mean 'scaled_dot'"),
        ({"score": "additive"}, ArgumentError, "Additive"),
        ({"normalizer": "softmaks"}, UnknownNameError, "did you mean 'softmax'"),
        ({"backend": "tield"}, UnknownNameError, "did you mean 'tiled'.*auto"),
        ({"score": 3}, KindError, "score"),
        ({"normalizer": 3}, KindError, "normalizer"),
    ],
)
@pytest.mark.parametrize("verb", [regard.attend, regard.observe, regard.explain, regard.plan])
def test_verbs_name_the_wrong_tensor(verb, change, error, message):
    arguments = {"query": QUERY, "key": KEY, "value": VALUE} | change
    if verb is regard.explain and ("value" in change or arguments["query"].dim() == 1):
        pytest.skip("it takes vectors, and its values may be the keys")
    with pytest.raises(error, match=message):
        verb(**arguments)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"key": KEY.numpy()}, KindError, "key must be a tensor; it is a ndarray"),
        ({"query": QUERY.tolist()}, KindError, "query must be a tensor; it is a list"),
        ({"value": [1.0]}, KindError, "value must be a tensor; it is a list"),
    ],
)
@pytest.mark.parametrize("verb", [regard.attend, regard.observe, regard.plan])
def test_numbers_that_are_no_tensors_are_named(verb, change, error, message):
    with pytest.raises(error, match=message):
        verb(**({"query": QUERY, "key": KEY, "value": VALUE} | change))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: scores.ScaledDot(scale=math.nan), "scale"),
        (lambda: scores.Cosine(temperature=0.0), "temperature"),
        (lambda: scores.SoftCap("dot", -1.0), "cap"),
        (lambda: normalizers.entmax(1.0), "alpha"),
        (lambda: normalizers.entmax(math.nan), "alpha"),
        (lambda: normalizers.Softmax(temperature=-1.0), "temperature"),
        (lambda: normalizers.local_gaussian(normalizers.softmax, torch.zeros(1), 0.0), "sigma"),
        (lambda: masks.window(-1, 0), "before"),
        (lambda: masks.causal(align="middle"), "align"),
        (lambda: masks.dilated(0), "step"),
    ],
)
def test_parts_of_a_call_refuse_wrong_arguments(make, message):
    with pytest.raises(ArgumentError, match=message):
        make()


def test_a_function_must_give_a_score_for_every_pair():
    with pytest.raises(ShapeError, match=r"score must return \[batch, heads, queries, keys\]"):
        regard.attend(QUERY, KEY, VALUE, score=lambda query, key: query.sum(-1))


def test_autocast_settles_mixed_dtypes():
    with torch.autocast("cpu", torch.bfloat16):
        output = regard.attend(QUERY.bfloat16(), KEY, VALUE)
        assert output.dtype == torch.bfloat16
        assert output.shape == (B, H, Q, V)
        whole = regard.explain(QUERY, KEY, VALUE, score="dot").scores
    torch.testing.assert_close(whole, QUERY @ KEY.transpose(-1, -2))
