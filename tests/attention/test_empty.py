"""Problems without pairs: every parameter still has a gradient, which is zero."""

import pytest
import torch

import regard
from backends import EVERY, accepts
from regard import normalizers, positions, scores

H, D = 3, 11


def parts():
    parameter = torch.nn.Parameter
    return {
        "additive": {"score": scores.Additive.create(D, D, 5)},
        "general": {"score": scores.General.create(D, D)},
        "cosine": {"score": scores.Cosine.create(H)},
        "mlp": {"score": scores.MLP.create(D, D, (5,))},
        "location": {"score": scores.Location.create(D, 7)},
        "location_aware": {"score": scores.LocationAware.create(D, D, 5, channels=2, kernel_size=3)},
        "scale": {"score": scores.ScaledDot(parameter(torch.ones(H, 1, 1)))},
        "soft_cap": {"score": scores.SoftCap(scores.General.create(D, D), 2.0)},
        "temperature": {"normalizer": normalizers.Softmax(parameter(torch.ones(H)))},
        "sink": {"normalizer": normalizers.softmax_with_sink(parameter(torch.zeros(H)))},
        "sigmoid": {"normalizer": normalizers.Sigmoid(parameter(torch.zeros(H)))},
        "relative": {"bias": positions.RelativeBias(H)},
        "shaw": {"bias": positions.RelativePosition(D, 3)},
    }


@pytest.mark.parametrize("part", parts())
@pytest.mark.parametrize("sizes", [(2, 0, 5), (2, 3, 0), (0, 3, 5), (0, 0, 0)])
def test_parameters_have_gradients_of_zero(part, sizes):
    for backend in EVERY:
        arguments = parts()[part]
        batch, queries, keys = sizes
        inputs = [torch.randn(batch, H, length, D, requires_grad=True) for length in (queries, keys, keys)]
        if accepts(backend, inputs, **arguments):
            assert_gradients_of_zero(backend, inputs, arguments)


def assert_gradients_of_zero(backend, inputs, arguments):
    batch, _, queries, _ = inputs[0].shape
    (module,) = arguments.values()
    output = regard.attend(*inputs, backend=backend, **arguments)
    assert output.shape == (batch, H, queries, D)
    assert not output.any()
    output.sum().backward()
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.shape == parameter.shape
        assert not parameter.grad.any(), name
    # A score by location does not read the keys.
    assert all(tensor.grad is None or not tensor.grad.any() for tensor in inputs)


@pytest.mark.parametrize("backend", EVERY)
@pytest.mark.parametrize(("queries", "keys"), [(0, 5), (3, 0)])
def test_a_bias_tensor_has_a_gradient_of_zero(backend, queries, keys):
    inputs = [torch.randn(2, H, length, D, requires_grad=True) for length in (queries, keys, keys)]
    bias = torch.zeros(H, queries, keys, requires_grad=True)
    scale = torch.ones((), requires_grad=True)
    if accepts(backend, inputs, bias=bias * scale):
        regard.attend(*inputs, backend=backend, bias=bias * scale).sum().backward()
        assert bias.grad is not None
        assert bias.grad.shape == bias.shape
        assert scale.grad is not None
        assert not scale.grad.any()
