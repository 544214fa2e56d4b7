"""A model that was saved before layers became PyTorch's own has the same parameters and predicts the same."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch

from models.test_called_parts import CASES
from regard.errors import RunError
from regard.models.checkpoint import config_of_header, model_classes
from regard.tasks import registry
from regard.training.config import RunConfig, make_config

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


@pytest.mark.parametrize("norm", [{"norm": "post"}, {"norm_first": False}, {"norm": "pre"}])
def test_post_norm_stacks_of_old_files_end_with_a_norm_and_new_ones_without(norm):
    kind, config_kind = model_classes("transformer_translator")
    sizes = {"source_vocabulary": 9, "target_vocabulary": 9, "hidden": 8, "heads": 2, "encoder_layers": 1,
             "decoder_layers": 1, "feedforward": 8}  # fmt: skip
    old = kind(config_of_header(config_kind, {**sizes, **norm}, "transformer_translator", "old"))
    assert old.encoder.norm is not None
    assert old.decoder.norm is not None
    stored = dataclasses.asdict(old.config)
    assert config_of_header(config_kind, stored, "transformer_translator", "again") == old.config
    new = kind(config_kind(**sizes, architecture="transformer", norm=old.config.norm))
    assert (new.encoder.norm is None) == (new.decoder.norm is None) == (new.config.norm == "post")
    assert config_of_header(config_kind, dataclasses.asdict(new.config), "transformer_translator", "new") == new.config


def test_the_configuration_of_an_old_post_norm_run_says_that_its_stacks_end_with_a_norm():
    task = registry.find("translate")
    run = make_config(
        task, {"data": {"train": "bundled"}, "model": {"architecture": "transformer", "norm": "post"}, "training": {}}
    )
    content = run.to_dict()
    assert not RunConfig.from_dict(content, "new", task).model.final_norm
    del content["model"]["final_norm"]
    assert RunConfig.from_dict(content, "old", task).model.final_norm
