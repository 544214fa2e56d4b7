"""Normalizers compiled, exported, and of tensors without numbers."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from normalizer_cases import ALL, over, some_scores
from regard.normalizers import Normalizer

# PyTorch's compiler instantiates autograd functions, and warns of it.
pytestmark = pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")


@over(ALL)
def test_compiled_as_one_graph(normalizer: Normalizer):
    scores = some_scores()
    torch._dynamo.reset()
    leaf, plain = scores.clone().requires_grad_(), scores.clone().requires_grad_()
    weights = torch.compile(normalizer, fullgraph=True, backend="aot_eager")(leaf)
    if normalizer.random:
        assert (weights.sum(-1)[:, :, 0] == 1).all()
        return
    expected = normalizer(plain)
    torch.testing.assert_close(weights, expected)
    assert weights.requires_grad == expected.requires_grad
    if expected.requires_grad:
        upstream = torch.randn_like(scores)
        (got,) = torch.autograd.grad(weights, leaf, upstream)
        torch.testing.assert_close(got, torch.autograd.grad(expected, plain, upstream)[0])


@over(ALL)
def test_every_normalizer_is_exported(normalizer: Normalizer):
    scores = some_scores()
    exported = torch.export.export(normalizer, (scores,)).module()
    if not normalizer.random:
        torch.testing.assert_close(exported(scores), normalizer(scores))


@over({name: value for name, value in ALL.items() if not list(value.buffers())})
def test_every_normalizer_takes_meta_tensors(normalizer: Normalizer):
    scores = some_scores().to("meta")
    assert normalizer(scores).shape == scores.shape
    assert normalizer(scores).is_meta


@over(ALL)
def test_every_normalizer_takes_fake_tensors(normalizer: Normalizer):
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        scores = mode.from_tensor(some_scores())
        assert normalizer(scores).shape == scores.shape
