"""PyTorch's default dtype decides the dtype of new parameters alone.

A call of float64 tensors gives the same bits under every default, and the steps of a float64 layer are exact.
"""

from contextlib import contextmanager

import pytest
import torch

import regard
from cases import BIASES, MASKS, NORMALIZERS, SCORES, problem
from covering import covering
from regard import nn, positions
from regard.models.vision.pixels import DEVIATION, MEAN, PixelInput, normalized
from regard.nn.attention_names import CLASSES

DEFAULTS = torch.float64, torch.bfloat16


@contextmanager
def default(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


# A score function that multiplies positions, which are integers, by a number of Python's has PyTorch's default dtype.
OWN = [name for name in SCORES if name != "modified"]


@covering(score=OWN, normalizer=NORMALIZERS, mask=MASKS, bias=BIASES, other=DEFAULTS)
def test_a_call_is_the_same_under_every_default(score, normalizer, mask, bias, other):
    """Parts are made under the usual default, and read under another one."""
    parts = {
        "score": SCORES[score](),
        "normalizer": NORMALIZERS[normalizer](),
        "mask": MASKS[mask](),
        "bias": BIASES[bias](),
    }
    inputs = problem(requires_grad=True)

    def results(backend):
        attended = regard.attend_with_weights(*inputs, **parts, backend=backend)
        gradients = torch.autograd.grad(attended.output.sum(), inputs, allow_unused=True)
        return [attended.output, attended.weights, *(one for one in gradients if one is not None)]

    for backend in ("reference", "auto"):
        expected = results(backend)
        with default(other):
            got = results(backend)
        for one, right in zip(got, expected, strict=True):
            assert one.dtype == right.dtype
            torch.testing.assert_close(one, right, rtol=0, atol=0, equal_nan=True)


LAYERS = {
    "multihead": lambda: nn.MultiheadAttention(12, 2, batch_first=True),
    "rotary": lambda: nn.MultiheadAttention(12, 2, batch_first=True, position=positions.Rotary(6)),
    **{
        name: lambda name=name: nn.LayerConfig(12, 2, feedforward=5, attention=name).encoder_layer(bidirectional=False)
        for name in CLASSES
    },
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_is_the_same_under_every_default(name):
    def output(dtype):
        with default(dtype):
            torch.manual_seed(1)
            layer = LAYERS[name]().to(torch.float64).eval()
            x = torch.linspace(-1, 1, 2 * 7 * 12, dtype=torch.float64).view(2, 7, 12).sin()
            for number, parameter in enumerate(layer.parameters()):
                values = torch.arange(parameter.numel(), dtype=torch.float64).add(number).cos() / 4
                parameter.data = values.view(parameter.shape)
            arguments = (x, x, x) if isinstance(layer, nn.MultiheadAttention) else (x,)
            result = layer(*arguments, mask="causal")
            return result[0] if isinstance(result, tuple) else result

    expected = output(torch.float32)
    for other in DEFAULTS:
        torch.testing.assert_close(output(other), expected, rtol=0, atol=0)


@pytest.mark.parametrize("name", [name for name in CLASSES if name != "native_sparse"])
def test_the_steps_of_a_float64_layer_are_exact(name):
    torch.manual_seed(1)
    stack = nn.TransformerEncoder(LAYERS[name](), 2).to(torch.float64).eval()
    x = torch.randn(2, 70, 12, dtype=torch.float64)
    whole, caches, parts = stack(x, mask="causal"), None, []
    for step in x.split([30, 1, 39], dim=1):
        output, caches = stack.step(step, caches)
        parts.append(output)
    torch.testing.assert_close(torch.cat(parts, dim=1), whole, rtol=1e-12, atol=1e-12)


def test_retention_decays_as_exactly_as_the_layer_calculates():
    """1 − 2^{−5−h}, whose logarithm in float32 is off by 1e-8 of itself."""
    layer = nn.Retention(16, 4).double()
    x = torch.zeros(1, 3, 16, dtype=torch.float64)
    decay = layer.tokens(x, layer.in_proj(x), 0).log_decay
    assert decay is not None
    kept = decay[0, :, 0, 0].exp()
    torch.testing.assert_close(kept, 1 - 2.0 ** -torch.arange(5, 9, dtype=torch.float64), rtol=1e-15, atol=0)


def test_pixels_of_a_double_model_are_normalized_by_the_numbers_that_are_written():
    pixels = torch.rand(1, 3, 2, 2, dtype=torch.float64)
    expected = (pixels - torch.tensor(MEAN, dtype=torch.float64).view(3, 1, 1)) / torch.tensor(
        DEVIATION, dtype=torch.float64
    ).view(3, 1, 1)
    torch.testing.assert_close(normalized(pixels), expected, rtol=0, atol=0)
    module = PixelInput().double()
    torch.testing.assert_close(module(pixels.permute(0, 2, 3, 1)), expected, rtol=0, atol=0)
