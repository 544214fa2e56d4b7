"""A model that was saved before layers became PyTorch's own has the same parameters and predicts the same."""

import json
from pathlib import Path

import pytest
import torch

from models.test_called_parts import CASES
from regard.errors import RunError
from regard.models.checkpoint import config_of_header, model_classes

SAVED = json.loads(Path(__file__).with_name("saved_parameters.json").read_text())
"""For each model the names and shapes of its saved tensors, and its loss in evaluation, as the old code computed it."""

HEADERS = json.loads(Path(__file__).with_name("saved_headers.json").read_text())
"""Headers of files that the version before saved: a model, its configuration, its tensors and their elements."""

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


@pytest.mark.parametrize("saved", HEADERS, ids=lambda saved: saved["model"])
def test_the_header_of_an_old_file_makes_the_same_model(saved):
    kind, config_kind = model_classes(saved["model"])
    tensors = kind(config_of_header(config_kind, saved["config"], saved["model"], "old")).state_dict().values()
    assert len(tensors) == saved["tensors"]
    assert sum(tensor.numel() for tensor in tensors) == saved["numbers"]


def test_a_constant_of_another_value_is_refused():
    saved = next(one for one in HEADERS if one["model"] == "transformer_pointer_generator")
    config = {**saved["config"], "normalizer": "sparsemax"}
    with pytest.raises(RunError, match=r"old\.normalizer must be 'softmax'"):
        config_of_header(model_classes(saved["model"])[1], config, saved["model"], "old")
