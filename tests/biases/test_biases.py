"""Biases of the scores: ALiBi, T5's buckets, Shaw's vectors; formulas, tiles, gradients."""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck

from regard.biases import Fire, Kerple, Sandwich
from regard.errors import ArgumentError, KindError, ShapeError
from regard.positions import Bias, RelativeBias, RelativePosition, TensorBias, alibi, as_bias
from regard.shapes.grid import Grid

DOUBLE = torch.float64
HEADS, DIM = 3, 5

BIASES: dict[str, Callable[[], Bias]] = {
    "alibi": lambda: alibi(HEADS),
    "T5": lambda: RelativeBias(HEADS, buckets=8, max_distance=11),
    "T5 causal": lambda: RelativeBias(HEADS, buckets=5, max_distance=7, bidirectional=False),
    "KERPLE": lambda: Kerple(HEADS),
    "KERPLE power": lambda: Kerple(HEADS, "power"),
    "slopes": lambda: alibi(HEADS, torch.nn.Parameter(torch.tensor([0.5, 0.3, 0.1]))),
    "Sandwich": lambda: Sandwich(HEADS, 6),
    "FIRE": lambda: Fire(HEADS, 5, threshold=torch.nn.Parameter(torch.tensor(4.5))),
    "Shaw": lambda: RelativePosition(DIM, 2),
    "Shaw, own heads": lambda: RelativePosition(DIM, 3, heads=HEADS, scale=0.7),
    "Shaw, distance 0": lambda: RelativePosition(DIM, 0),
    "tensor": lambda: TensorBias(torch.randn(2, 1, 7, 11)),
}
every_bias = pytest.mark.parametrize("make", BIASES.values(), ids=BIASES.keys())


def whole(bias: Bias, query: torch.Tensor, keys: int) -> torch.Tensor:
    batch, heads, queries, _ = query.shape
    grid = Grid.whole(batch, heads, queries, keys)
    bias.check(query, grid)
    return bias(query, grid).expand(grid.shape)


@every_bias
def test_a_tile_of_a_bias_is_a_slice_of_the_whole(make: Callable[[], Bias]):
    bias, query = make(), torch.randn(2, HEADS, 7, DIM)
    grid = Grid.whole(2, HEADS, 7, 11)
    dense = whole(bias, query, 11)
    for rows in (range(2), range(1, 2), range(0)):
        for queries in (range(7), range(2, 5), range(6, 7), range(3, 3)):
            for keys in (range(11), range(4, 9), range(1), range(2, 2)):
                tile = grid.tile(batch=rows, queries=queries, keys=keys)
                own = query[rows.start : rows.stop, :, queries.start : queries.stop]
                expected = dense[rows.start : rows.stop, :, queries.start : queries.stop, keys.start : keys.stop]
                torch.testing.assert_close(bias(own, tile).expand(tile.shape), expected)


@every_bias
def test_gradients_of_a_bias_are_exact(make: Callable[[], Bias]):
    bias = make().double()
    if isinstance(bias, TensorBias):
        bias.tensor = bias.tensor.double().requires_grad_()
    query = torch.randn(2, HEADS, 7, DIM, dtype=DOUBLE, requires_grad=True)
    grid = Grid.whole(2, HEADS, 7, 11)
    inputs = (bias.tensor,) if isinstance(bias, TensorBias) else tuple(bias.parameters())
    if isinstance(bias, RelativePosition):
        inputs = (query, *inputs)
    assert not inputs or gradcheck(lambda *_: bias(query, grid), inputs)


@every_bias
def test_the_last_query_stands_at_the_last_key(make: Callable[[], Bias]):
    bias = make()
    if isinstance(bias, TensorBias):
        return
    query = torch.randn(2, HEADS, 11, DIM)
    square = whole(bias, query, 11)
    for queries in (1, 3, 7):
        torch.testing.assert_close(whole(bias, query[:, :, -queries:], 11), square[:, :, -queries:])


@every_bias
def test_half_precision_queries_get_float32(make: Callable[[], Bias]):
    bias = make()
    if not isinstance(bias, TensorBias):
        query = torch.randn(2, HEADS, 7, DIM)
        for dtype in (torch.float16, torch.bfloat16):
            assert whole(bias, query.to(dtype), 11).dtype == torch.float32
        assert whole(bias, query.double(), 11).dtype == DOUBLE


@every_bias
@pytest.mark.parametrize(("batch", "queries", "keys"), [(0, 7, 11), (2, 0, 11), (2, 7, 0), (2, 0, 0), (2, 1, 1)])
def test_biases_take_empty_and_single_axes(make: Callable[[], Bias], batch: int, queries: int, keys: int):
    bias = make()
    if not isinstance(bias, TensorBias):
        out = whole(bias, torch.randn(batch, HEADS, queries, DIM), keys)
        assert out.shape == (batch, HEADS, queries, keys)
        assert out.isfinite().all()


def slopes(heads: int) -> list[float]:
    return whole(alibi(heads), torch.zeros(1, heads, 1, 2, dtype=DOUBLE), 2)[0, :, 0, 0].neg().tolist()


def test_alibi_slopes_of_the_paper():
    assert slopes(8) == [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]
    assert slopes(1) == [1 / 256]
    assert slopes(2) == [1 / 16, 1 / 256]
    assert slopes(16) == pytest.approx([2 ** (-(k + 1) / 2) for k in range(16)])


def test_alibi_slopes_between_powers_of_two():
    assert slopes(3) == pytest.approx([1 / 16, 1 / 256, 1 / 4])
    assert slopes(6) == pytest.approx([1 / 4, 1 / 16, 1 / 64, 1 / 256, 1 / 2, 1 / 8])
    assert slopes(12) == pytest.approx([*slopes(8), *slopes(16)[0:8:2]])


def test_alibi_is_slope_times_distance():
    bias = whole(alibi(HEADS), torch.zeros(2, HEADS, 5, DIM, dtype=DOUBLE), 7)
    for head, slope in enumerate(slopes(HEADS)):
        for i in range(5):
            for j in range(7):
                assert bias[1, head, i, j] == pytest.approx(-slope * abs(i + 2 - j))


def t5_bucket(relative: int, buckets: int, max_distance: int, bidirectional: bool) -> int:
    """The formula with its logarithm, one number at a time."""
    first = 0
    if bidirectional:
        buckets //= 2
        first = buckets if relative > 0 else 0
        distance = abs(relative)
    else:
        distance = max(0, -relative)
    exact = buckets // 2
    if distance < exact:
        return first + distance
    # In float64 the logarithm's rounding is far below this, and no true quotient comes so near below an integer.
    reach = math.log(distance / exact) / math.log(max_distance / exact) * (buckets - exact) + 1e-9
    return first + min(exact + int(reach), buckets - 1)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (4, 3), (6, 7), (10, 1000), (64, 33), (18, 18)])
def test_relative_buckets_are_those_of_t5(buckets: int, max_distance: int, bidirectional: bool):
    bias = RelativeBias(HEADS, buckets, max_distance, bidirectional)
    relative = range(-2 * max_distance, 2 * max_distance + 1)
    expected = [t5_bucket(r, buckets, max_distance, bidirectional) for r in relative]
    assert bias.bucket(torch.tensor(relative)).tolist() == expected


def test_t5_buckets_known():
    distances = torch.tensor([0, 1, 7, 8, 11, 12, 15, 16, 22, 23, 31, 32, 45, 46, 63, 64, 90, 91, 127, 128, 9999])
    expected = [0, 1, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14, 15, 15, 15, 15]
    bias = RelativeBias(HEADS)
    assert bias.bucket(-distances).tolist() == expected
    assert bias.bucket(distances).tolist() == [0] + [16 + bucket for bucket in expected[1:]]
    assert not RelativeBias(HEADS, bidirectional=False).bucket(distances).any()


@given(st.integers(2, 40), st.integers(1, 300), st.booleans())
def test_t5_buckets_never_fall_with_distance_and_never_run_out(half: int, more: int, bidirectional: bool):
    buckets = 2 * half
    per_direction = half if bidirectional else buckets
    bias = RelativeBias(HEADS, buckets, per_direction // 2 + more, bidirectional)
    found = bias.bucket(-torch.arange(2 * bias.max_distance))
    assert (found.diff() >= 0).all()
    assert found[0] == 0
    assert (found[bias.max_distance :] == per_direction - 1).all()


@pytest.mark.parametrize("bidirectional", [True, False])
def test_t5_bias_is_the_weight_of_the_bucket(bidirectional: bool):
    bias = RelativeBias(HEADS, 8, 11, bidirectional)
    dense = whole(bias, torch.zeros(2, HEADS, 7, DIM), 11)
    for i in range(7):
        for j in range(11):
            bucket = t5_bucket(j - i - 4, 8, 11, bidirectional)
            assert torch.equal(dense[1, :, i, j], bias.weight[bucket])


@pytest.mark.parametrize("heads", [None, HEADS])
@pytest.mark.parametrize("scale", [None, 0.3])
def test_shaw_is_the_explicit_sum_over_pairs(heads: int | None, scale: float | None):
    bias = RelativePosition(DIM, 3, heads, scale).double()
    query = torch.randn(2, HEADS, 7, DIM, dtype=DOUBLE)
    relative = torch.arange(11) - torch.arange(7)[:, None] - 4
    vectors = bias.weight[..., relative.clamp(-3, 3) + 3, :]  # [H] Q K D
    expected = torch.einsum("bhqd,...qkd->b...hqk" if heads is None else "bhqd,hqkd->bhqk", query, vectors)
    expected = expected * (DIM**-0.5 if scale is None else scale)
    torch.testing.assert_close(whole(bias, query, 11), expected)


def test_as_bias_takes_biases_floating_tensors_and_none():
    bias, tensor = alibi(3), torch.randn(7, 11)
    assert as_bias(None) is None
    assert as_bias(bias) is bias
    made = as_bias(tensor)
    assert isinstance(made, TensorBias)
    assert made.tensor is tensor


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (torch.ones(5, 7).bool(), "it holds torch.bool (a bool tensor belongs in mask=)"),
        (torch.ones(5, 7).long(), "bias must hold floating-point numbers; it holds torch.int64"),
        (torch.eye(5).to_sparse(), "bias must be a dense tensor; it has the layout torch.sparse_coo"),
        (
            torch.zeros(5, 7).to(torch.float8_e4m3fn),
            "bias must hold float16, bfloat16, float32 or float64; it holds torch.float8_e4m3fn",
        ),
        (torch.zeros(5, 7, dtype=torch.cfloat), "bias must hold floating-point numbers; it holds torch.complex64"),
        ("alibi", "bias must be a floating-point tensor, a Bias or None; it is a str"),
    ],
)
def test_as_bias_says_what_it_expects(value: object, says: str):
    with pytest.raises(KindError) as caught:
        as_bias(value)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: alibi(0), ArgumentError, "heads must be at least 1; it is 0"),
        (lambda: alibi(2.0), KindError, "heads must be an integer"),
        (lambda: RelativeBias(2, 7), ArgumentError, "buckets must be even if bidirectional"),
        (lambda: RelativeBias(2, 2), ArgumentError, "buckets must be at least 4"),
        (lambda: RelativeBias(2, 32, 8), ArgumentError, "max_distance must be at least 9; it is 8"),
        (lambda: RelativePosition(5, -1), ArgumentError, "max_distance must be at least 0"),
        (lambda: RelativePosition(5, 2, scale=float("nan")), ArgumentError, "scale must be positive and finite"),
    ],
)
def test_biases_name_wrong_arguments(make: Callable[[], Bias], error: type[Exception], says: str):
    with pytest.raises(error) as caught:
        make()
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("bias", "error", "says"),
    [
        (alibi(2), ShapeError, "bias must fit query: Alibi was made for 2 heads; query has 3"),
        (RelativeBias(2), ShapeError, "RelativeBias was made for 2 heads; query has 3"),
        (RelativePosition(4, 2), ShapeError, "RelativePosition was made for dim 4; query has dim 5"),
        (RelativePosition(5, 2, heads=2), ShapeError, "RelativePosition was made for 2 heads; query has 3"),
        (RelativeBias(3).to("meta"), KindError, "the weight of RelativeBias must be on cpu"),
        (RelativePosition(5, 2).to("meta"), KindError, "the weight of RelativePosition must be on cpu"),
        (TensorBias(torch.zeros(11, 7)), ShapeError, "bias must broadcast to [batch, heads, queries, keys]"),
        (TensorBias(torch.zeros(7, 11, device="meta")), KindError, "bias must be on cpu"),
    ],
)
def test_a_bias_names_the_axis_that_does_not_fit(bias: Bias, error: type[Exception], says: str):
    with pytest.raises(error) as caught:
        bias.check(torch.zeros(2, HEADS, 7, DIM), Grid.whole(2, HEADS, 7, 11))
    assert says in str(caught.value)
