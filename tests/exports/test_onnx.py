"""ONNX models: the names and sizes of the program, the numbers of the model, and weights of 8 bits."""

import pytest
import torch

from exports.test_programs import model_of
from regard.exports.programs import programs_of

pytest.importorskip("onnxscript")
onnx_models = pytest.importorskip("regard.exports.onnx_models")


@pytest.mark.parametrize(("name", "part"), [("TextClassifier gru", "model"), ("TransformerTranslator", "step")])
def test_a_model_gives_the_same_numbers_and_is_quantized(name, part, tmp_path):
    program = next(one for one in programs_of(model_of(name)) if one.name == part)
    path = tmp_path / "model.onnx"
    onnx_models.save(program, path)
    assert onnx_models.largest_difference(program, path) < 1e-5
    session = onnx_models._session(path)
    assert [one.name for one in session.get_inputs()] == [one.name for one in program.inputs]
    assert [one.name for one in session.get_outputs()] == list(program.outputs)
    for given, one in zip(session.get_inputs(), program.inputs, strict=True):
        assert given.shape == list(one.axes)
    ones = dict.fromkeys(program.sizes, 1) | ({"past": 0} if "past" in program.sizes else {})
    inputs = program.example(ones)
    for got, right in zip(onnx_models._run(session, program, inputs), program.run(inputs), strict=True):
        torch.testing.assert_close(got, right, rtol=1e-4, atol=1e-5)
    content = path.read_bytes()
    assert b"site-packages" not in content
    quantized = onnx_models.quantize(program, path)
    assert quantized.after == path.stat().st_size != quantized.before
    assert 0 < quantized.difference < 2
    assert 0 < quantized.quantized <= quantized.weights
    if name == "TextClassifier gru":  # onnxruntime quantizes no recurrent layer
        recurrent = sum(4 * one.numel() for key, one in program.module.named_parameters() if "weight_hh" in key)
        assert quantized.quantized <= quantized.weights - recurrent
    assert quantized.agreement is not None
    assert quantized.agreement > 0.5
