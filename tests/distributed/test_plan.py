"""What `regard.plan` says of a sharded call: exactly the bytes that reach PyTorch's collectives."""

import pytest

from covering import covering


@pytest.fixture
def group(groups):
    return groups(3)


@covering(
    normalizer=["softmax", "ratio", "sigmoid", "hard", "top_k", "over_queries"], mask=["none", "causal", "window"],
    bias=["none", "alibi"], score=["features", "additive"], dtype=["float64", "float32", "bfloat16"],
)  # fmt: skip
def test_a_sharded_call_sends_the_planned_bytes(group, normalizer, mask, bias, score, dtype):
    found = group.call("bench.scripts.sharded_parts", "count_bytes", normalizer, mask, 61, bias, score, dtype)
    for each in found:
        assert each["counted"] == each["planned"]
        assert each["way"] == ("whole" if normalizer == "over_queries" else "rows")
    assert any(sum(each["counted"]) for each in found)
