"""Linear layers by the microkernel are those of PyTorch: numbers, derivatives, modules, errors."""

import copy
import pickle

import pytest
import torch
from torch import nn
from torch.nn import functional as F

pytest.importorskip("numba", reason="kernels are compiled by Numba")

from regard.nn import MultiheadAttention, linear, matrix_products
from regard.nn.linear import Linear

ROWS, IN, OUT = 23, 19, 31


@pytest.fixture(autouse=True)
def launches(monkeypatch):
    """The microkernel makes every product that it may make; the sizes of those that it made."""
    made = []
    multiply = matrix_products._by_microkernel

    def counted(a, b, output, bias=None, keep=False):
        made.append((*a.shape, b.shape[1]))
        return multiply(a, b, output, bias, keep)

    monkeypatch.setattr(matrix_products, "microkernel_is_faster", lambda: True)
    for name in ("LARGE", "MANY_ROWS"):
        monkeypatch.setattr(matrix_products, name, 1)
    monkeypatch.setattr(matrix_products, "_by_microkernel", counted)
    return made


def given(bias=True, shape=(ROWS, IN), dtype=torch.float32):
    tensors = [torch.randn(shape, dtype=dtype), torch.randn(OUT, IN, dtype=dtype), torch.randn(OUT, dtype=dtype)]
    return [tensor.requires_grad_() for tensor in tensors[: 3 if bias else 2]]


def copies(tensors, dtype=None):
    return [tensor.detach().to(dtype or tensor.dtype).requires_grad_(tensor.requires_grad) for tensor in tensors]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(ROWS, IN), (3, 5, IN), (2, 3, 1, IN), (1, IN)], ids=str)
def test_the_output_and_all_gradients_are_exact(launches, bias, shape):
    inputs = given(bias, shape)
    exact = copies(inputs, torch.float64)
    output, wanted = linear.linear(*inputs), F.linear(*exact)
    gradient = torch.randn(output.shape)
    found = torch.autograd.grad(output, inputs, gradient)
    expected = torch.autograd.grad(wanted, exact, gradient.double())
    for one, other in zip((output, *found), (wanted, *expected), strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=1e-4)
    assert len(launches) == 3
    with torch.no_grad():
        assert torch.equal(linear.linear(*inputs), output)


@pytest.mark.parametrize("frozen", [0, 1, 2])
def test_a_gradient_that_nobody_wants_is_not_computed(launches, frozen):
    inputs = given()
    inputs[frozen].requires_grad_(False)
    wanted = [tensor for tensor in inputs if tensor.requires_grad]
    output = linear.linear(*inputs)
    gradient = torch.randn(output.shape)
    expected = torch.autograd.grad(F.linear(*inputs), wanted, gradient)
    torch.testing.assert_close(torch.autograd.grad(output, wanted, gradient), expected, rtol=1e-5, atol=1e-4)
    assert len(launches) == 3 - (frozen < 2)


@pytest.mark.parametrize("layout", ["transposed", "expanded", "sliced"])
def test_tensors_may_lie_anywhere(layout):
    input, weight, bias = given()
    given_input = {
        "transposed": lambda: torch.randn(IN, ROWS).t(),
        "expanded": lambda: torch.randn(IN).expand(ROWS, IN),
        "sliced": lambda: torch.randn(ROWS, 2 * IN)[:, ::2],
    }[layout]()
    torch.testing.assert_close(
        linear.linear(given_input, weight, bias), F.linear(given_input, weight, bias), rtol=1e-5, atol=1e-4
    )
    # The gradient of a sum is one number for all.
    found = torch.autograd.grad(linear.linear(input, weight, bias).sum(), (input, weight, bias))
    expected = torch.autograd.grad(F.linear(input, weight, bias).sum(), (input, weight, bias))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-4)


def test_a_gradient_that_is_negated_when_it_is_read():
    inputs = given()
    output, negated = linear.linear(*inputs), torch._neg_view(torch.randn(ROWS, OUT))
    assert negated.is_neg()
    assert negated.is_contiguous()
    expected = torch.autograd.grad(F.linear(*inputs), inputs, negated.resolve_neg())
    torch.testing.assert_close(torch.autograd.grad(output, inputs, negated), expected, rtol=1e-5, atol=1e-4)


def test_second_derivatives():
    def penalty(function, tensors):
        output = function(*tensors)
        first = torch.autograd.grad(output.tanh().sum(), tensors, create_graph=True)
        return torch.autograd.grad(sum(each.square().sum() for each in first), tensors)

    inputs = given()
    exact = copies(inputs, torch.float64)
    for one, other in zip(penalty(linear.linear, inputs), penalty(F.linear, exact), strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-3, atol=1e-2)


def test_batched_gradients():
    inputs = given()
    gradients = torch.randn(4, ROWS, OUT)
    found, expected = (
        torch.autograd.grad(function(*inputs), inputs, gradients, is_grads_batched=True)
        for function in (linear.linear, F.linear)
    )
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("transform", ["grad", "vmap", "jvp", "jacrev", "forward mode"])
def test_transforms(launches, transform):
    input, weight, bias = (tensor.detach() for tensor in given())

    def run(function):
        def loss(weight):
            return function(input, weight, bias).tanh().sum()

        if transform == "grad":
            return torch.func.grad(loss)(weight)
        if transform == "vmap":
            return torch.func.vmap(lambda row: function(row[None].expand(2, -1), weight, bias))(input)
        if transform == "jvp":
            return torch.func.jvp(loss, (weight,), (torch.ones_like(weight),))
        if transform == "jacrev":
            return torch.func.jacrev(loss)(weight)
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(weight, torch.ones_like(weight))
            return torch.autograd.forward_ad.unpack_dual(loss(dual))

    found, expected = run(linear.linear), run(F.linear)
    torch.testing.assert_close(found, expected)
    assert not launches


@pytest.mark.parametrize("how", ["float64", "bfloat16", "mixed", "autocast", "meta", "compiled", "traced"])
def test_what_is_left_to_pytorch(launches, how):
    inputs = given(dtype={"float64": torch.float64, "bfloat16": torch.bfloat16}.get(how, torch.float32))
    if how == "meta":
        inputs = [tensor.to("meta") for tensor in inputs]
        assert linear.linear(*inputs).shape == (ROWS, OUT)
    elif how == "mixed":
        inputs[0] = inputs[0].detach().double()
        with pytest.raises(RuntimeError, match="dtype"):
            linear.linear(*inputs)
    elif how == "autocast":
        with torch.autocast("cpu", torch.bfloat16):
            assert torch.equal(linear.linear(*inputs), F.linear(*inputs))
            assert linear.linear(*inputs).dtype == torch.bfloat16
    elif how == "compiled":
        compiled = torch.compile(linear.linear, backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(compiled(*inputs), F.linear(*inputs))
    elif how == "traced":
        module = Linear(IN, OUT)
        exported = torch.export.export(module, (inputs[0].detach(),)).module()
        torch.testing.assert_close(exported(inputs[0]), F.linear(inputs[0], module.weight, module.bias))
    else:
        assert torch.equal(linear.linear(*inputs), F.linear(*inputs))
    assert not launches


@pytest.mark.parametrize(
    ("input", "weight", "bias"),
    [((0, 4), (7, 4), (7,)), ((4,), (7, 4), (7,)), ((3, 4), (7, 4), (1,)), ((3, 4), (4,), None), ((3, 0), (7, 0), (7,)),
     ((3, 4), (0, 4), (0,))],
    ids=str,
)  # fmt: skip
def test_other_sizes_are_those_of_pytorch(input, weight, bias):
    inputs = [None if size is None else torch.randn(size) for size in (input, weight, bias)]
    torch.testing.assert_close(linear.linear(*inputs), F.linear(*inputs))


@pytest.mark.parametrize(
    ("input", "weight", "bias"), [((3, 5), (7, 4), (7,)), ((3, 4), (7, 4), (6,)), ((), (7, 4), (7,))], ids=str
)
def test_wrong_sizes_have_the_error_of_pytorch(input, weight, bias):
    inputs = [torch.randn(size) for size in (input, weight, bias)]
    with pytest.raises(RuntimeError) as expected:
        F.linear(*inputs)
    with pytest.raises(RuntimeError) as found:
        linear.linear(*inputs)
    assert str(found.value) == str(expected.value)


def test_nested_and_sparse_tensors():
    weight = torch.randn(OUT, IN)
    nested = torch.nested.nested_tensor([torch.randn(3, IN), torch.randn(5, IN)], layout=torch.jagged)
    assert linear.linear(nested, weight).shape[-1] == OUT
    sparse = torch.randn(ROWS, IN).relu().to_sparse()
    torch.testing.assert_close(linear.linear(sparse, weight), F.linear(sparse, weight))


def test_the_module_is_pytorchs(launches):
    torch.manual_seed(3)
    ours, after = Linear(IN, OUT), torch.rand(())
    torch.manual_seed(3)
    theirs = nn.Linear(IN, OUT)
    assert torch.equal(torch.rand(()), after)
    for name, value in theirs.state_dict().items():
        assert torch.equal(ours.state_dict()[name], value)
    theirs.load_state_dict(ours.state_dict())
    x, seen = torch.randn(ROWS, IN), []
    ours.register_forward_hook(lambda module, args, output: seen.append(module))
    torch.testing.assert_close(ours(x), theirs(x), rtol=1e-5, atol=1e-4)
    assert seen == [ours]
    assert launches
    ours = Linear(IN, OUT)
    for same in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
        assert type(same) is Linear
        assert torch.equal(same(x), ours(x))


@pytest.mark.parametrize("bias", [True, False])
def test_the_input_projections_of_attention(launches, bias):
    ours = MultiheadAttention(8, 2, bias=bias, batch_first=True)
    theirs = nn.MultiheadAttention(8, 2, bias=bias, batch_first=True)
    theirs.load_state_dict(ours.state_dict())
    x, y = torch.randn(3, 7, 8), torch.randn(3, 11, 8)
    for given, products in (((x, x, x), 1), ((x, y, y), 2), ((x, y, y + 1), 3)):
        launches.clear()
        torch.testing.assert_close(ours(*given)[0], theirs(*given)[0], rtol=1e-5, atol=1e-5)
        assert len(launches) == products


def test_activation_checkpointing(launches):
    inputs = given()
    found = torch.utils.checkpoint.checkpoint(linear.linear, *inputs, use_reentrant=False)
    gradient = torch.randn(found.shape)
    expected = torch.autograd.grad(F.linear(*inputs), inputs, gradient)
    torch.testing.assert_close(torch.autograd.grad(found, inputs, gradient), expected, rtol=1e-5, atol=1e-4)
    assert len(launches) == 4
