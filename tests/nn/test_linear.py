"""`regard.nn.Linear` is `torch.nn.Linear`, whichever library makes its products."""

import copy
import pickle

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import regard
from regard.nn import matrix_products
from regard.nn.linear import Linear, linear


@pytest.fixture(params=[False, True], ids=["blas", "onednn"], autouse=True)
def _library(request, monkeypatch):
    if request.param and not torch.backends.mkldnn.is_available():
        pytest.skip("this PyTorch has no oneDNN")
    monkeypatch.setattr(matrix_products, "_is_faster", lambda: request.param)


def tensors(shape=(5, 7, 19), outputs=23, dtype=torch.float32):
    generator = torch.Generator().manual_seed(5)
    sizes = (shape, (outputs, shape[-1]), (outputs,))
    return [torch.randn(size, generator=generator).to(dtype).requires_grad_() for size in sizes]


def assert_same(got, expected):
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def outcome(function, inputs, *, bias=True):
    given = inputs if bias else inputs[:2]
    output = function(*given)
    weight = torch.linspace(-1, 1, output.numel()).view(output.shape).to(output.dtype)
    return output, *torch.autograd.grad(output, given, weight)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    "shape", [(19,), (1, 19), (15, 19), (16, 19), (5, 7, 19), (2, 3, 11, 19), (0, 19), (4, 0, 19)], ids=str
)
def test_outputs_and_gradients_are_those_of_torch(shape, bias):
    inputs = tensors(shape)
    assert_same(outcome(linear, inputs, bias=bias), outcome(F.linear, inputs, bias=bias))
    with torch.no_grad():
        given = inputs if bias else inputs[:2]
        assert torch.equal(linear(*given), linear(*given))
        assert_same([linear(*given)], [F.linear(*given)])


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_other_dtypes_are_those_of_torch(dtype):
    inputs = tensors(dtype=dtype)
    assert all(torch.equal(a, b) for a, b in zip(outcome(linear, inputs), outcome(F.linear, inputs), strict=True))


@pytest.mark.parametrize("wanted", [(0,), (1,), (2,), (0, 2)], ids=str)
def test_only_gradients_that_are_wanted(wanted):
    inputs = [tensor.detach().requires_grad_(place in wanted) for place, tensor in enumerate(tensors())]
    leaves = [inputs[place] for place in wanted]
    found, expected = (torch.autograd.grad(function(*inputs).square().sum(), leaves) for function in (linear, F.linear))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-3)


def test_inputs_and_gradients_in_any_layout():
    input, weight, bias = tensors((19, 31))
    _, other, _ = tensors((23, 23), outputs=38)
    for given in ((input.t(), other[:, :19], other.new_zeros(38)), (input.t()[::2], weight.new_ones(23, 19), bias)):
        assert_same([linear(*given)], [F.linear(*given)])
    for shape in ((33, 19), (3, 11, 19)):
        input, weight, bias = tensors(shape)
        found, expected = (
            torch.autograd.grad(function(input, weight, bias).sum(), (input, weight, bias))
            for function in (linear, F.linear)
        )
        assert_same(found, expected)


def test_second_derivatives():
    inputs = tensors((17, 3), outputs=5)

    def second(function):
        output = function(*inputs)
        first = torch.autograd.grad(output.pow(3).sum(), inputs, create_graph=True)
        return torch.autograd.grad(sum(each.square().sum() for each in first), inputs)

    for one, other in zip(second(linear), second(F.linear), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-2)


def test_forward_mode_transforms_and_batched_gradients():
    inputs = [tensor.detach() for tensor in tensors((17, 3), outputs=5)]
    tangents = tuple(torch.ones_like(each) for each in inputs)
    for function in (
        lambda f: torch.func.jvp(f, tuple(inputs), tangents),
        lambda f: torch.func.grad(lambda *given: f(*given).square().sum(), (0, 1, 2))(*inputs),
        lambda f: [torch.func.vmap(f, (0, None, None))(torch.stack([inputs[0]] * 2), *inputs[1:])],
        lambda f: torch.func.jacrev(f)(*inputs)[None],
    ):
        assert_same(function(linear), function(F.linear))
    leaves = tensors((17, 3), outputs=5)
    batch = torch.randn(4, 17, 5)
    found, expected = (
        torch.autograd.grad(function(*leaves), leaves, batch, is_grads_batched=True) for function in (linear, F.linear)
    )
    assert_same(found, expected)


def test_autocast_chooses_the_dtype():
    inputs = tensors((17, 3), outputs=5)
    with torch.autocast("cpu", torch.bfloat16):
        found, expected = linear(*inputs), F.linear(*inputs)
    assert found.dtype == torch.bfloat16
    assert torch.equal(found, expected)


def test_errors_are_those_of_torch():
    input, weight, bias = tensors((17, 3), outputs=5)
    for given in ((input, weight[:, :2], bias), (input, weight, bias[:4]), (input, weight.double(), bias)):
        with pytest.raises(RuntimeError):
            linear(*given)


def test_the_module_is_torchs_but_for_its_products():
    torch.manual_seed(3)
    layer = Linear(19, 23)
    torch.manual_seed(3)
    theirs = nn.Linear(19, 23)
    assert all(torch.equal(one, other) for one, other in zip(layer.parameters(), theirs.parameters(), strict=True))
    layer.load_state_dict(theirs.state_dict())
    theirs.load_state_dict(layer.state_dict())
    shared = Linear.of(theirs)
    assert shared.weight is theirs.weight
    assert shared.bias is theirs.bias
    assert repr(shared) == repr(theirs)
    input, seen = torch.randn(17, 19), []
    layer.register_forward_hook(lambda *given: seen.append(given))
    for each in (layer, shared, copy.deepcopy(layer), pickle.loads(pickle.dumps(shared))):
        assert_same([each(input)], [theirs(input)])
    assert len(seen) == 2
    without = Linear.of(nn.Linear(19, 23, bias=False))
    assert without.bias is None
    assert without(input).shape == (17, 23)
    assert Linear(19, 23, device="meta")(torch.empty(17, 19, device="meta")).shape == (17, 23)


def test_layers_of_a_transformer_have_it():
    layer = regard.nn.TransformerEncoder.create(1, regard.nn.LayerConfig(32, 4, feedforward=48)).layers[0]
    assert {type(each) for each in (layer.linear1, layer.linear2, layer.self_attn.out_proj)} == {Linear}


def test_compiled_it_is_torchs():
    inputs = [tensor.detach() for tensor in tensors((17, 3), outputs=5)]
    compiled = torch.compile(linear, fullgraph=True, backend="eager")
    assert torch.equal(compiled(*inputs), F.linear(*inputs))
