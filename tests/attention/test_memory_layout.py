"""The order of a tensor's numbers in memory decides neither the output nor how much memory attention takes.

What a user's functions hold is never written to.
"""

import pytest
import torch

import regard
from largest_tensor import LargestTensor

DIM, VALUE_DIM, LENGTH = 3, 5, 1031


@pytest.mark.parametrize("value_dim", [DIM, VALUE_DIM, 2])
@pytest.mark.parametrize("dim", [1, DIM])
def test_features_that_are_not_adjacent(dim, value_dim):
    """As the positions of a feature map ``[batch, channels, height, width]`` are."""
    query, key, value = (torch.randn(2, 1, size, LENGTH).mT for size in (dim, dim, value_dim))
    tensors = [tensor.requires_grad_() for tensor in (query, key, value)]
    with LargestTensor() as largest:
        output = regard.attend(*tensors, score="dot")
        grads = torch.autograd.grad(output.square().sum(), tensors)
    assert largest.numbers < LENGTH * LENGTH // 4
    plain = [tensor.detach().contiguous().requires_grad_() for tensor in tensors]
    expected = regard.attend(*plain, score="dot")
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(grads, torch.autograd.grad(expected.square().sum(), plain))


class Table(regard.scores.Score):
    """Scores that it holds."""

    def __init__(self, scores, scale):
        super().__init__()
        self.scores, self.scale = scores, scale

    def prepare(self, query, key):
        primitive = regard.scores.Pairwise(lambda query, key: self.scores[..., : query.shape[2], :])
        return regard.scores.Prepared(query, key, primitive, self.scale)


@pytest.mark.parametrize("backend", ["reference", "tiled"])
@pytest.mark.parametrize("gradient", [False, True])
def test_scores_that_a_user_holds_are_not_scaled_in_place(backend, gradient):
    query, key, value = (torch.randn(2, 3, length, 4, requires_grad=gradient) for length in (5, 7, 7))
    scores = torch.randn(2, 3, 5, 7)
    before = scores.clone()
    output = regard.attend(query, key, value, score=Table(scores, 0.5), backend=backend)
    assert torch.equal(scores, before)
    torch.testing.assert_close(output, torch.softmax(scores * 0.5, dim=-1) @ value)


@pytest.mark.parametrize("gradient", [False, True])
def test_scores_that_a_function_keeps_stay_what_they_were(gradient):
    query, key, value = (torch.randn(1, 2, length, 4, requires_grad=gradient) for length in (300, 2048, 2048))
    kept = []

    def keep(score, batch, head, query_index, key_index):
        kept.append(score.detach())
        return score

    regard.attend(query, key, value, score=regard.scores.Modified("scaled_dot", keep), backend="tiled")
    assert len(kept) > 1
    torch.testing.assert_close(torch.cat(kept, dim=2), (query @ key.mT / 2).detach())
