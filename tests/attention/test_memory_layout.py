"""The order of a tensor's numbers in memory decides neither the output nor how much memory attention takes."""

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
