"""Luong's local-p window."""

import math

import pytest
import torch
from torch import nn

import regard
from regard.errors import ArgumentError, KindError, ShapeError
from regard.normalizers import local_gaussian, softmax, softmax_with_sink, sparsemax
from regard.shapes.grid import Grid

B, H, Q, K = 2, 3, 5, 7
INF = float("inf")


def test_local_gaussian_is_equation_10():
    scores = torch.randn(K, dtype=torch.float64)
    center, sigma = 2.75, 1.5
    weights = local_gaussian(softmax, torch.tensor(center, dtype=torch.float64), sigma)(scores)
    align = softmax(scores)
    for s in range(K):
        expected = align[s].item() * math.exp(-((s - center) ** 2) / (2 * sigma**2))
        assert weights[s].item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("shape", [(B, H, Q), (B, 1, Q), (H, Q), (H, 1), (Q,), (1,), ()])
def test_centers_of_rows_and_tiles(shape):
    scores = torch.randn(B, H, Q, K, dtype=torch.float64)
    scores[0, 1, 2] = -INF
    center, sigma = torch.rand(shape, dtype=torch.float64) * K, torch.rand(shape, dtype=torch.float64) + 0.5
    normalizer = local_gaussian(sparsemax, center, sigma)
    whole = normalizer(scores)
    centers, sigmas = (x.expand(B, H, Q) for x in (center, sigma))
    for b in range(B):
        for q in range(Q):
            window = torch.exp(-((torch.arange(K) - centers[b, :, q, None]) ** 2) / (2 * sigmas[b, :, q, None] ** 2))
            torch.testing.assert_close(whole[b, :, q], sparsemax(scores[b, :, q]) * window)
    grid = Grid.whole(B, H, Q, K)
    torch.testing.assert_close(normalizer.weigh(scores, grid), whole)
    tile = normalizer.weigh(scores[1:, :, 2:4], grid.tile(batch=range(1, 2), queries=range(2, 4)))
    torch.testing.assert_close(tile, whole[1:, :, 2:4])


def test_positions_are_those_of_the_whole_problem():
    scores = torch.randn(B, H, Q, K, dtype=torch.float64)
    scores[..., :3] = -INF
    normalizer = local_gaussian(softmax, torch.tensor([4.5], dtype=torch.float64), 2.0)
    grid = Grid.whole(B, H, Q, K)
    tile = normalizer.weigh(scores[..., 3:], grid.tile(keys=range(3, K)))
    torch.testing.assert_close(tile, normalizer.weigh(scores, grid)[..., 3:])


def test_gradient_to_center_and_sigma():
    scores = torch.randn(B, H, Q, K, dtype=torch.float64)
    scores[..., 0, :], scores[..., 1, 1:] = -INF, -INF
    center = (torch.rand(B, 1, Q, dtype=torch.float64) * K).requires_grad_()
    sigma = (torch.rand(H, 1, dtype=torch.float64) + 1).requires_grad_()
    grid = Grid.whole(B, H, Q, K)
    assert torch.autograd.gradcheck(lambda c, s: local_gaussian(softmax, c, s).weigh(scores, grid), (center, sigma))
    assert torch.autograd.gradcheck(lambda c, s: local_gaussian(softmax, c, s)(scores), (center, sigma))


def test_a_far_center_gives_nothing_but_no_nan():
    center = torch.tensor([1e30, -1e30, 3.0], requires_grad=True)
    sigma = torch.tensor(1e-3, requires_grad=True)
    scores = torch.randn(3, K, requires_grad=True)
    weights = local_gaussian(softmax, center, sigma)(scores)
    weights.sum().backward()
    assert (weights[:2] == 0).all()
    for leaf in (center, sigma, scores):
        assert leaf.grad is not None
        assert leaf.grad.isfinite().all()


def test_local_gaussian_has_the_parameters_of_its_normalizer():
    inner = softmax_with_sink(nn.Parameter(torch.zeros(H)))
    normalizer = local_gaussian(inner, torch.zeros(1), nn.Parameter(torch.tensor(2.0)))
    assert {name for name, _ in normalizer.named_parameters()} == {"sigma", "normalizer.sink"}


def test_local_gaussian_refuses_wrong_arguments():
    center = torch.tensor([2.0])
    with pytest.raises(KindError, match="normalizer must be a Normalizer"):
        local_gaussian(3, center, 1.0)
    assert type(local_gaussian("softmax", center, 1.0).normalizer) is type(softmax)
    with pytest.raises(KindError, match="center"):
        local_gaussian(softmax, torch.tensor([2]), 1.0)
    with pytest.raises(KindError, match="center"):
        local_gaussian(softmax, 2.0, 1.0)
    for sigma in (0.0, math.nan, torch.tensor([1.0, -1.0])):
        with pytest.raises(ArgumentError, match="sigma must be finite and greater than 0"):
            local_gaussian(softmax, center, sigma)
    normalizer = local_gaussian(softmax, torch.zeros(B, H, Q + 1), 1.0)
    scores = torch.zeros(B, H, Q, K)
    with pytest.raises(ShapeError, match="center must broadcast to"):
        normalizer.weigh(scores, Grid.whole(B, H, Q, K))
    with pytest.raises(ShapeError, match="center must broadcast to"):
        normalizer(scores)
    with pytest.raises(ShapeError, match="sigma must broadcast to"):
        local_gaussian(softmax, center, torch.ones(H))(scores)


@pytest.mark.parametrize("backend", ["reference", "tiled", "cpu"])
def test_centers_by_batch_of_three_axes_are_answered_with_the_line(backend):
    x, center = torch.randn(B, Q, 4), torch.rand(B, Q)
    for name, window in (("center", (center, 2.0)), ("sigma", (center[:, None], center + 1))):
        with pytest.raises(ShapeError, match=rf"it has shape \[2, 5\]: write {name}\[:, None\]"):
            regard.attend(x, x, x, normalizer=local_gaussian(softmax, *window), backend=backend)
    normalizer = local_gaussian(softmax, center[:, None], 2.0)
    expected = regard.attend(x[:, None], x[:, None], x[:, None], normalizer=normalizer, backend="reference")[:, 0]
    torch.testing.assert_close(regard.attend(x, x, x, normalizer=normalizer, backend=backend), expected)
