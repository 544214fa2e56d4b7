"""A model that was saved before layers became PyTorch's own has the same parameters and predicts the same."""

import json
from pathlib import Path

import pytest
import torch

from models.test_called_parts import CASES

SAVED = json.loads(Path(__file__).with_name("saved_parameters.json").read_text())
"""For each model the names and shapes of its saved tensors, and its loss in evaluation, as the old code computed it."""

TOLERANCE = 1e-5
"""Relative; sums of float32 are added in another order."""


def filled(model):
    """The model in evaluation, with parameters that depend on their order alone."""
    for number, (_, parameter) in enumerate(sorted(model.named_parameters())):
        values = torch.arange(parameter.numel(), dtype=torch.float64).mul_(0.7).add_(number).sin_().mul_(0.3)
        parameter.data.copy_(values.view_as(parameter))
    return model.eval()


@pytest.mark.parametrize("case", SAVED)
def test_the_state_dict_is_the_same_and_so_is_the_loss(case):
    make, loss = CASES[case]
    model = filled(make())
    assert {name: list(value.shape) for name, value in model.state_dict().items()} == SAVED[case]["tensors"]
    with torch.no_grad():
        assert float(loss(model)) == pytest.approx(SAVED[case]["loss"], rel=TOLERANCE)
