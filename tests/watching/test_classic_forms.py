"""Attention is a softmax whose result weighs a sum, however it is written by hand."""

import pytest
import torch

import regard
from watching.classic_forms import FORMS, ByHand
from watching.models import watched

READ = regard.Readings(weights=True, entropy=True, peak=True, received=True)


def inputs(batch=3):
    generator = torch.Generator().manual_seed(5)
    return torch.randn(batch, 4, 7, generator=generator), torch.randn(batch, 5, 7, generator=generator)


@pytest.mark.parametrize("name", FORMS)
def test_weights_are_those_that_the_model_made(name):
    for batch in (3, 1):
        model = ByHand(FORMS[name])
        query, memory = inputs(batch)
        for train, grad in ((True, True), (False, False)):
            seen = watched(model, lambda model: model(query, memory), train, grad, read=READ)  # noqa: B023
            (call,) = seen.calls
            made = model.made[-1]
            assert (call.name, call.source, call.shape) == ("", "softmax", tuple(made.shape))
            torch.testing.assert_close(call.weights, made, rtol=0, atol=0)
            torch.testing.assert_close(call.entropy, torch.special.entr(made).sum(-1), rtol=1e-5, atol=1e-6)
            torch.testing.assert_close(call.peak, made.amax(-1))
            torch.testing.assert_close(call.received, made.sum(-2))
