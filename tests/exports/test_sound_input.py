"""Programs that read the samples of sounds: the log-mel front end is the one of the data, number for number."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from exports.test_programs import model_of, saved
from module_cases import MODELS
from regard.data.speech.log_mel import LogMel
from regard.exports import torch_programs
from regard.exports.program import Program, ProgramInput
from regard.exports.programs import LogMelInput, programs_of, reads_samples
from regard.tasks import registry

FRONT_ENDS = {
    "defaults": LogMel(),
    "hop of no whole number of samples": LogMel(11025, 13, hop_seconds=0.0125, window_seconds=0.03),
    "odd window": LogMel(4000, 9, window_seconds=0.03175, preemphasis=0.0, lowest=0.0, highest=1500.0),
}
SOUNDS = [name for name in MODELS if name.startswith("SoundClassifier") or name.endswith("Transcriber")]


@pytest.mark.parametrize("name", FRONT_ENDS)
def test_the_front_end_of_a_program_computes_the_features_of_the_data(name):
    front_end = FRONT_ENDS[name]
    module = LogMelInput(front_end)
    block = module.hop.numerator
    samples = 0.1 * torch.randn(4, 3 * block, generator=torch.Generator().manual_seed(1))
    lengths = torch.tensor([3 * block, 3 * block - 1, block + 1, 1])
    features, frames = module(samples, lengths)
    for row, length, count, mine in zip(samples, lengths.tolist(), frames.tolist(), features, strict=True):
        expected = front_end(row[:length].numpy())
        assert len(expected) == count <= len(mine)
        np.testing.assert_allclose(mine[:count].numpy(), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", SOUNDS)
def test_a_program_of_samples_is_the_model_of_our_features(name):
    model = model_of(name)
    front_end = LogMel(2000, model.encoder.input.width, window_seconds=0.05)
    program, *steps = programs_of(model, front_end)
    assert [one.name for one in program.inputs] == ["samples", "lengths"]
    assert [one.inputs for one in steps] == [one.inputs for one in programs_of(model)[1:]]
    for inputs in torch_programs.checks(program):
        with torch.no_grad():
            mine = program.module(*inputs)
        assert torch_programs.difference(mine, program.run(inputs), name) < 1e-6


class Mean(torch.nn.Module):
    """The mean of the features of each sound."""

    def forward(self, features, lengths):
        present = torch.arange(features.shape[1]) < lengths[:, None]
        return (features.masked_fill(~present[..., None], 0.0).sum(1) / lengths[:, None],)


def test_the_front_end_is_exported(tmp_path, request):
    front_end = FRONT_ENDS["hop of no whole number of samples"]
    inputs = ProgramInput("features", ("batch", "frames", front_end.bands), ""), ProgramInput("lengths", ("batch",), "")
    sizes = {"batch": 3, "frames": 9}
    program = reads_samples(Program("model", "", Mean(), inputs, {"logits": ""}, lambda sizes: (), sizes), front_end)
    assert saved(program, tmp_path / "model.pt2") < 1e-6
    if not request.config.getoption("full"):
        return  # ONNX takes a minute
    onnx_models = pytest.importorskip("regard.exports.onnx_models")
    onnx_models.require_packages()
    onnx_models.save(program, tmp_path / "model.onnx")
    assert onnx_models.largest_difference(program, tmp_path / "model.onnx") < 1e-4


@pytest.mark.parametrize("name", SOUNDS)
def test_every_program_of_samples_is_traced_in_a_full_run(name, tmp_path, request):
    if not request.config.getoption("full"):
        pytest.skip("to trace every program takes minutes; --full does it")
    model = model_of(name)
    program = programs_of(model, LogMel(2000, model.encoder.input.width, window_seconds=0.05))[0]
    assert saved(program, tmp_path / "program.pt2") < 1e-5


@pytest.mark.parametrize("task", ["sounds", "transcribe"])
def test_a_model_of_feature_files_has_no_front_end(task):
    one = registry.find(task)
    data = one.data_config(train="bundled")
    for width in (data.bands, data.bands + 1):
        trained = SimpleNamespace(
            config=SimpleNamespace(data=data), model=SimpleNamespace(config=SimpleNamespace(width=width))
        )
        front_end = one.input.front_end(trained)
        assert front_end == (data.front_end if width == data.bands else None)
