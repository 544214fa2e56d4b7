import dataclasses
import json
import math
import os
import random
import struct

import pytest
import torch
from safetensors.torch import load_file, save_file

from largest_tensor import LargestTensor
from regard.errors import ArgumentError, RunError
from regard.models import checkpoint, load_model, save_model


@pytest.mark.parametrize(
    "options",
    [
        {"attention": "none", "architecture": "gru"},
        {"attention": "bahdanau", "tied": "none"},
        {"attention": "luong", "scope": "local-p", "tied": "all", "score": "dot"},
        {"attention": "hard", "decoder_layers": 2, "dropout": 0.25},
    ],
)
def test_a_saved_model_loads_unchanged(options, make, batch, tmp_path):
    model = make(**options)
    if model.baseline is not None:
        model.baseline.update(torch.tensor(-3.0))
    file = save_model(tmp_path, model)
    assert file == tmp_path / "model.safetensors"
    assert [path.name for path in tmp_path.iterdir()] == [file.name]
    loaded = load_model(tmp_path)
    assert loaded.config == model.config
    assert not loaded.training
    assert torch.equal(loaded(*batch).logits, model.eval()(*batch).logits)
    for (name, mine), (other, theirs) in zip(model.state_dict().items(), loaded.state_dict().items(), strict=True):
        assert name == other
        assert torch.equal(mine, theirs)


def test_tied_weights_stay_tied(make, tmp_path):
    save_model(tmp_path, make(tied="all"))
    loaded = load_model(tmp_path)
    assert loaded.decoder.output.weight is loaded.decoder.embedding.weight is loaded.encoder.embedding.weight


@pytest.fixture
def saved(make, tmp_path):
    return save_model(tmp_path / "named.safetensors", make())


def header_of(file):
    content = file.read_bytes()
    size = struct.unpack("<Q", content[:8])[0]
    return json.loads(content[8 : 8 + size])["__metadata__"]


def rewrite(file, tensors=None, **changes):
    save_file(load_file(file) if tensors is None else tensors, file, metadata={**header_of(file), **changes})


def test_a_missing_model_file_is_named(tmp_path):
    with pytest.raises(RunError, match="there is no model at"):
        load_model(tmp_path)


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff" * 64, b"\x80\x04\x95cos\nsystem\n"])
def test_foreign_content_of_a_model_file_is_refused(content, tmp_path):
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(RunError, match="is not a whole safetensors file") as caught:
        load_model(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("part", [0.001, 0.01, 0.5, 0.999])
def test_a_truncated_model_file_is_refused(part, saved):
    content = saved.read_bytes()
    saved.write_bytes(content[: int(len(content) * part)])
    with pytest.raises(RunError, match="is not a whole safetensors file"):
        load_model(saved)


def test_tensors_of_someone_else(tmp_path):
    save_file({"a": torch.ones(2)}, tmp_path / "model.safetensors")
    with pytest.raises(RunError, match=r"holds no model .* knows \(recurrent_translator, "):
        load_model(tmp_path)


def test_wrong_tensors_of_a_model_file_are_named(saved):
    tensors = load_file(saved)
    name = "decoder.bridge.bias"
    for changed, message in (
        ({key: value for key, value in tensors.items() if key != name}, f"lacks tensor {name}"),
        ({**tensors, "extra": torch.ones(1)}, "has an unknown tensor extra"),
        ({**tensors, name: torch.ones(3)}, rf"{name} must have shape \[28\]; it has \[3\]"),
        ({**tensors, name: torch.ones(28, dtype=torch.int64)}, f"{name} must hold floating-point numbers"),
    ):
        rewrite(saved, changed)
        with pytest.raises(RunError, match=message):
            load_model(saved)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("", "not JSON"),
        ("[" * 10**5, "not JSON"),
        ("[]", "must be a mapping"),
        ('{"source_vocabulary": 13}', "target_vocabulary"),
        ('{"unheard": 1}', "'unheard' that this version of regard doesn't know"),
        ('{"hidden": "14"}', "hidden must be int; it is '14'"),
        ('{"input_feeding": 1}', "input_feeding must be bool"),
        ('{"source_vocabulary": true}', "source_vocabulary must be int"),
        ('{"source_vocabulary": 13, "target_vocabulary": 13, "architecture": "x"}', "unknown architecture 'x'"),
        (
            '{"source_vocabulary": 13, "target_vocabulary": 13, "hidden": 10000}',
            r"must have shape \[13, 256\]; it has \[13, 10\]",
        ),
    ],
)
def test_wrong_configurations_of_a_model_file_are_named(config, message, saved):
    rewrite(saved, config=config)
    with pytest.raises(RunError, match=message) as caught:
        load_model(saved)
    assert "\n" not in str(caught.value)


def test_any_one_damaged_byte_gives_a_model_or_one_line(saved):
    whole = saved.read_bytes()
    generator = random.Random(0)
    for _ in range(60):
        content = bytearray(whole)
        content[generator.randrange(4000)] = generator.randrange(256)
        saved.write_bytes(content)
        try:
            load_model(saved)
        except RunError as error:
            assert "\n" not in str(error)  # noqa: PT017 (either end is right)


SMALL = {
    "vocabulary": 11, "source_vocabulary": 11, "target_vocabulary": 11, "labels": 3, "classes": 3, "width": 5,
    "hidden": 8, "embedding": 6, "decoder_hidden": 10, "score_features": 6, "heads": 2, "feedforward": 7, "layers": 1,
    "encoder_layers": 1, "decoder_layers": 1, "channels": 4, "decoder_channels": 4, "levels": 2, "blocks": 1,
    "context": 9, "max_length": 9, "features": 3, "location_channels": 3, "location_width": 3, "grid": 8,
    "image_height": 16, "image_width": 16, "stages": 1,
}  # fmt: skip
"""Fields of all models; the others have their defaults."""


class LargestAllocated(LargestTensor):
    """`LargestTensor`, without the tensors that take no memory."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        numbers = self.numbers
        found = super().__torch_dispatch__(function, types, args, kwargs)
        if torch.is_tensor(found) and found.device.type == "meta":
            self.numbers = numbers
        return found


@pytest.mark.parametrize("name", checkpoint.MODELS)
def test_a_configuration_asks_for_no_more_memory_than_the_file_holds(name, tmp_path):
    """Each field is huge, of a wrong type, or out of its range: a model of the file's size, or one line."""
    kind, config_kind = checkpoint.model_classes(name)
    fields = [field.name for field in dataclasses.fields(config_kind)]
    plain = config_kind(**({"architecture": "transformer"} if name.startswith("transformer_") else {}))
    small = {
        field.name: SMALL[field.name]
        for field in dataclasses.fields(config_kind)
        if field.name in SMALL and plain.unmet_need(field) is None
    }
    config = dataclasses.replace(plain, **small)
    model = kind(config)
    file = save_model(tmp_path, model)
    most = 4 * max(tensor.numel() for tensor in model.state_dict().values()) + 100_000
    whole, refused = dataclasses.asdict(config), 0
    for field in fields:
        wrong = [[], "x"]
        if type(whole[field]) is int or whole[field] is None:
            wrong += [10**9, 2**62, 10**4000]
        elif type(whole[field]) is float:
            wrong += [math.nan, -math.inf]
        for value in wrong:
            rewrite(file, config=json.dumps({**whole, field: value}))
            with LargestAllocated() as allocated:
                try:
                    load_model(file)
                except RunError as error:
                    assert "\n" not in str(error)  # noqa: PT017 (either end is right)
                    assert len(str(error)) < 1000  # noqa: PT017
                    refused += 1
            assert allocated.numbers <= most, (field, value)
    assert refused > 2 * len(fields)


def test_layers_without_end_are_not_built(saved):
    """A number of layers takes time and memory even where its tensors take none."""
    config = json.loads(header_of(saved)["config"])
    rewrite(saved, config=json.dumps({**config, "encoder_layers": 10**9}))
    with pytest.raises(RunError, match="encoder_layers must be from 1 to 100"):
        load_model(saved)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.bool, torch.complex64, torch.int32])
def test_numbers_of_another_kind_are_named(saved, dtype):
    tensors = load_file(saved)
    rewrite(saved, {**tensors, "decoder.bridge.bias": torch.zeros(28).to(dtype)})
    with pytest.raises(RunError, match=r"decoder\.bridge\.bias must hold floating-point numbers \(F32, .*; it holds "):
        load_model(saved)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_floating_point_numbers_of_other_precisions_are_converted(saved, dtype):
    tensors = {name: tensor.to(dtype) for name, tensor in load_file(saved).items()}
    rewrite(saved, tensors)
    assert torch.equal(load_model(saved).decoder.bridge.bias, tensors["decoder.bridge.bias"].float())


def test_a_failure_while_writing_leaves_the_old_file(saved, make, monkeypatch):
    before = saved.read_bytes()

    def fail(*_):
        raise OSError(28, "No space left on device")

    for name in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, fail)
            with pytest.raises(RunError, match="No space left on device; the old file is unchanged"):
                save_model(saved, make(architecture="gru"))
        assert saved.read_bytes() == before
        assert [path.name for path in saved.parent.iterdir()] == [saved.name]


def test_only_models_of_regard_are_saved(tmp_path):
    with pytest.raises(ArgumentError, match=r"recurrent_translator, .*; it is a torch.nn.Linear"):
        save_model(tmp_path, torch.nn.Linear(2, 3))


def test_every_model_has_a_configuration():
    for model, config in map(checkpoint.model_classes, checkpoint.MODELS):
        assert dataclasses.is_dataclass(config)
        assert issubclass(model, torch.nn.Module)
