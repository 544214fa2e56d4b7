"""Laws that every normalizer keeps, whatever its family."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from normalizer_cases import (
    ALL,
    FIXED,
    HARD,
    INF,
    INVARIANT,
    OTHERS,
    POSITIONAL,
    SIGNED,
    SMOOTH,
    SUM_TO_ONE,
    B,
    H,
    K,
    Q,
    near_zero,
    over,
    some_scores,
)
from regard import normalizers
from regard.errors import KindError, ShapeError
from regard.shapes.grid import Grid


@over(ALL)
def test_hidden_keys_weigh_nothing_and_nothing_is_nan(normalizer):
    scores = some_scores()
    weights = normalizer(scores)
    assert weights.shape == scores.shape
    assert weights.dtype == scores.dtype
    assert not weights.isnan().any()
    assert (weights >= 0).all() or normalizer in SIGNED
    assert (weights[scores == -INF] == 0).all()


@over(SUM_TO_ONE | HARD)
def test_rows_sum_to_one_unless_they_see_nothing(normalizer):
    sums = normalizer(some_scores()).sum(-1)
    assert (sums[:, :, 1] == 0).all()
    sums = sums[:, :, [0, 2, 3, 4]]
    torch.testing.assert_close(sums, torch.ones_like(sums))


@over(SUM_TO_ONE | HARD)
def test_a_single_key_has_all_the_weight(normalizer):
    assert (normalizer(some_scores())[:, :, 2, 0] == 1).all()
    assert (normalizer(torch.randn(1, H, Q, 1, dtype=torch.float64)) == 1).all()


@over(ALL)
def test_gradients_are_finite_and_zero_where_nothing_is_seen(normalizer):
    scores = some_scores().requires_grad_()
    with torch.autograd.set_detect_anomaly(True):
        weights = normalizer(scores)
        if weights.requires_grad:
            (weights * torch.randn_like(weights)).sum().backward()
    if scores.grad is not None:
        assert scores.grad.isfinite().all()
        assert (scores.grad[scores.detach() == -INF] == 0).all()


@over(SMOOTH)
def test_gradient_to_the_scores(normalizer, is_full):
    scores = some_scores()
    seen = scores > -INF

    def weigh(values: Tensor) -> Tensor:
        return normalizer(scores.masked_scatter(seen, values))

    assert torch.autograd.gradcheck(weigh, scores[seen].requires_grad_(), fast_mode=not is_full)


@over(INVARIANT)
@pytest.mark.parametrize("constant", [-13.0, 1e4])
def test_a_constant_added_to_a_row_changes_nothing(normalizer, constant):
    scores = some_scores()
    atol = near_zero(normalizer, 1e-11)
    torch.testing.assert_close(normalizer(scores + constant), normalizer(scores), rtol=1e-8, atol=atol)


@over({name: value for name, value in FIXED.items() if name not in POSITIONAL})
def test_keys_permuted_permute_the_weights(normalizer):
    scores, order = some_scores(), torch.randperm(K)
    torch.testing.assert_close(normalizer(scores[..., order]), normalizer(scores)[..., order])


@over(FIXED)
def test_a_masked_tail_is_a_shorter_input(normalizer):
    scores = torch.randn(B, H, Q, K, dtype=torch.float64)
    tail = torch.cat([scores, scores.new_full((B, H, Q, 4), -INF)], dim=-1)
    shorter, atol = normalizer(scores), near_zero(normalizer, 1e-14)
    torch.testing.assert_close(normalizer(tail)[..., :K], shorter, rtol=1e-12, atol=atol)


@over(INVARIANT)
def test_equal_scores_share_the_weight_or_the_first_takes_it(normalizer):
    weights = normalizer(torch.full((1, H, 2, K), 3.7, dtype=torch.float64))
    if isinstance(normalizer, normalizers.Hard):
        assert (weights[..., 0] == 1).all()
    else:
        torch.testing.assert_close(weights, torch.full_like(weights, 1 / K), rtol=1e-12, atol=0)


@over(INVARIANT)
@pytest.mark.parametrize("size", [1e4, 1e30])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_huge_scores_choose_the_largest(normalizer, size, dtype):
    scores = torch.randn(B, H, Q, K, dtype=dtype) * size
    scores[..., 3] = 9 * size
    scores.requires_grad_()
    weights = normalizer(scores)
    assert weights.argmax(-1).eq(3).all()
    torch.testing.assert_close(weights[..., 3], torch.ones_like(weights[..., 3]))
    if weights.requires_grad:
        weights.square().sum().backward()
        assert scores.grad is not None
        assert scores.grad.isfinite().all()


@over(OTHERS)
@pytest.mark.parametrize("size", [1e4, 1e15])
def test_huge_scores_do_not_overflow_where_rows_need_not_sum_to_one(normalizer, size):
    scores = (torch.randn(B, H, Q, K) * size).requires_grad_()
    weights = normalizer(scores)
    weights.sum().backward()
    assert weights.isfinite().all()
    assert scores.grad is not None
    assert scores.grad.isfinite().all()


@over(SMOOTH)
@pytest.mark.parametrize(
    ("dtype", "epsilon"), [(torch.float32, 2e-6), (torch.bfloat16, 2.0**-8), (torch.float16, 2.0**-11)]
)
def test_precision_against_float64(normalizer, dtype, epsilon):
    scores = (torch.randn(B, H, Q, 97, dtype=torch.float64) * 3).to(dtype)
    scores[..., 1, :] = -INF
    weights, exact = normalizer(scores), normalizer(scores.double())
    assert weights.dtype == dtype
    torch.testing.assert_close(weights.double(), exact, rtol=epsilon * 5, atol=near_zero(normalizer, epsilon))


@over(FIXED)
def test_every_normalizer_takes_any_axis(normalizer):
    scores = some_scores()
    weights = normalizer(scores)
    torch.testing.assert_close(normalizer(scores.mT, dim=-2).mT, weights)
    torch.testing.assert_close(normalizer(scores.mT.contiguous(), dim=2).mT, weights)


@over({name: value for name, value in FIXED.items() if "a head" not in name})
@pytest.mark.parametrize("dim", [0, 1, -4, -3])
def test_any_axis_of_what_is_the_same_for_all_heads(normalizer, dim):
    scores = some_scores()
    torch.testing.assert_close(normalizer(scores.movedim(-1, dim), dim=dim).movedim(dim, -1), normalizer(scores))


@over(ALL)
@pytest.mark.parametrize("shape", [(B, H, Q, 0), (0, H, Q, K), (B, H, 0, K)])
def test_every_normalizer_takes_empty_axes(normalizer, shape):
    scores = torch.zeros(shape, dtype=torch.float64, requires_grad=True)
    weights = normalizer(scores)
    assert weights.shape == shape
    if weights.requires_grad:
        weights.sum().backward()


@over(ALL)
def test_nan_is_not_hidden(normalizer):
    scores = some_scores()
    scores[1, 2, 4, 3] = torch.nan
    weights = normalizer(scores)
    if normalizer is not OTHERS["custom squared relu"]:
        assert weights[1, 2, 4].isnan().any()
    assert not weights[0].isnan().any()
    assert not weights[1, 2, :4].isnan().any()


@over(ALL)
def test_scores_are_not_changed(normalizer):
    scores = some_scores()
    before = scores.clone()
    normalizer(scores)
    assert torch.equal(scores, before)


@over(ALL)
def test_every_normalizer_refuses_wrong_scores(normalizer):
    with pytest.raises(KindError, match="scores"):
        normalizer(torch.ones(B, H, Q, K, dtype=torch.complex64))
    with pytest.raises(KindError, match="scores"):
        normalizer({1.0, 2.0})
    for dim in (4, -5):
        with pytest.raises(ShapeError, match="dim"):
            normalizer(some_scores(), dim=dim)


@over(FIXED)
@given(data=st.data())
def test_a_tile_is_weighed_as_its_part_of_the_whole(normalizer, data):
    torch.manual_seed(data.draw(st.integers(0, 1000)))
    scores = some_scores()
    grid = Grid.whole(B, H, Q, K)
    batch, queries = (range(*sorted(data.draw(st.lists(st.integers(0, n), min_size=2, max_size=2)))) for n in (B, Q))
    part = (slice(batch.start, batch.stop), slice(None), slice(queries.start, queries.stop))
    tile = normalizer.weigh(scores[part], grid.tile(batch=batch, queries=queries))
    torch.testing.assert_close(tile, normalizer.weigh(scores, grid)[part], rtol=1e-12, atol=1e-14)


@over(FIXED)
def test_keys_that_all_rows_hide_can_be_left_out_of_a_tile(normalizer):
    scores = some_scores()
    scores[..., :2], scores[..., 5:] = -INF, -INF
    grid = Grid.whole(B, H, Q, K)
    tile = normalizer.weigh(scores[..., 2:5], grid.tile(keys=range(2, 5)))
    torch.testing.assert_close(tile, normalizer.weigh(scores, grid)[..., 2:5], rtol=1e-12, atol=1e-14)


@over(ALL)
def test_log_sum_exp_of_a_row_that_sees_nothing(normalizer):
    lse = normalizer.log_sum_exp(some_scores())
    assert lse.shape == (B, H, Q)
    assert (lse[:, :, 1] == -INF).all()
    assert lse[:, :, [0, 2, 3, 4]].isfinite().all()
