"""Every encoding under PyTorch's transforms, and with meta and fake tensors; a fake table never reaches a real call."""

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import gradcheck, gradgradcheck
from torch.func import functional_call, grad, jacfwd, jacrev, jvp, vmap

from regard.positions import DynamicNTK, Learned, LongRoPE, Rotary, Sections, Sinusoidal

BATCH, HEADS, LENGTH, DIM = 2, 3, 5, 6
DOUBLE = torch.float64

ENCODINGS: dict[str, Callable[[], nn.Module]] = {
    "sinusoidal": lambda: Sinusoidal(DIM),
    "learned": lambda: Learned(11, DIM),
    "rotary": lambda: Rotary(DIM),
    "rotary interleaved": lambda: Rotary(DIM, interleaved=True),
    "rotary partial": lambda: Rotary(4),
    "rotary of length": lambda: Rotary(DIM, scaling=DynamicNTK(2.0, 3)),
    "rotary searched": lambda: Rotary(DIM, scaling=LongRoPE((1, 1, 1), (2, 3, 4), 3, 4.0), axes=Sections((1, 1, 1))),
}
OFFSETS = {"none": lambda: 0, "integer": lambda: 3, "rows": lambda: torch.tensor([4, 1])}
every_encoding = pytest.mark.parametrize("name", ENCODINGS)
every_offset = pytest.mark.parametrize("offset", OFFSETS)
# PyTorch's own tables of forward-mode formulas are scripts, which it has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")


def input_of(dtype: torch.dtype = DOUBLE) -> torch.Tensor:
    return torch.randn(BATCH, HEADS, LENGTH, DIM, generator=torch.Generator().manual_seed(3), dtype=DOUBLE).to(dtype)


def as_function(name: str, offset: str) -> tuple[Callable[..., torch.Tensor], tuple[torch.Tensor, ...]]:
    """The encoding as a function of the input and of its parameters, all of them leaves."""
    encoding, first = ENCODINGS[name]().double(), OFFSETS[offset]()
    names = [name for name, _ in encoding.named_parameters()]

    def function(input: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
        return functional_call(encoding, dict(zip(names, parameters, strict=True)), (input, first))

    inputs = (input_of(), *(parameter.detach().clone() for parameter in encoding.parameters()))
    return function, tuple(tensor.requires_grad_() for tensor in inputs)


@every_encoding
@every_offset
def test_derivatives_are_exact_in_both_modes_and_twice(name: str, offset: str):
    function, inputs = as_function(name, offset)
    assert gradcheck(function, inputs, check_forward_ad=True, check_batched_grad=True, fast_mode=True)
    assert gradgradcheck(lambda *tensors: function(*tensors).square(), inputs, fast_mode=True)


@every_encoding
@every_offset
def test_functional_transforms_agree(name: str, offset: str):
    function, inputs = as_function(name, offset)
    detached, places = tuple(tensor.detach() for tensor in inputs), tuple(range(len(inputs)))
    weights = torch.randn(input_of().shape, dtype=DOUBLE)

    def loss(*tensors: torch.Tensor) -> torch.Tensor:
        return (function(*tensors) * weights).square().sum()

    expected = torch.autograd.grad(loss(*inputs), inputs)
    torch.testing.assert_close(grad(loss, places)(*detached), expected)
    tangents = tuple(torch.randn_like(tensor) for tensor in detached)
    _, slope = jvp(loss, detached, tangents)
    torch.testing.assert_close(slope, sum((a * b).sum() for a, b in zip(expected, tangents, strict=True)))
    torch.testing.assert_close(jacfwd(function, places)(*detached), jacrev(function, places)(*detached))


@every_encoding
@every_offset
def test_vmap_over_a_position_encoding_is_a_loop(name: str, offset: str):
    function, inputs = as_function(name, offset)
    stacked = tuple(torch.stack([tensor.detach() * factor for factor in (1, -2, 3)]) for tensor in inputs)
    expected = torch.stack([function(*(tensor[i] for tensor in stacked)) for i in range(3)])
    torch.testing.assert_close(vmap(function)(*stacked), expected)


@every_encoding
@pytest.mark.parametrize("offset", ["none", "integer"])
def test_position_encodings_compile_in_one_graph_and_run_afterwards(name: str, offset: str):
    torch._dynamo.reset()
    encoding, first = ENCODINGS[name]().double(), OFFSETS[offset]()
    input = input_of().requires_grad_()
    compiled = torch.compile(lambda input: encoding(input, first), fullgraph=True, backend="aot_eager")
    # A call that follows the compiler's reads nothing that belongs to it.
    found = compiled(input), compiled(input)
    expected = encoding(input, first)
    for one in found:
        torch.testing.assert_close(one, expected)
    weights = torch.randn(input.shape, dtype=DOUBLE)
    torch.testing.assert_close(
        torch.autograd.grad((compiled(input) * weights).sum(), input),
        torch.autograd.grad((expected * weights).sum(), input),
    )


@every_encoding
@pytest.mark.parametrize("offset", ["none", "integer"])
def test_fake_tensors_leave_nothing_behind(name: str, offset: str):
    torch.manual_seed(1)
    encoding, first = ENCODINGS[name](), OFFSETS[offset]()
    if not isinstance(encoding, Learned):
        with FakeTensorMode():
            out = encoding(torch.randn(BATCH, HEADS, LENGTH, DIM), first)
            assert (out.shape, out.dtype) == (input_of().shape, torch.float32)
    real = encoding(input_of(torch.float32), first)
    assert type(real) is torch.Tensor
    with FakeTensorMode():
        fake = ENCODINGS[name]() if isinstance(encoding, Learned) else encoding
        out = fake(torch.randn(BATCH, HEADS, LENGTH, DIM), first)
        assert (out.shape, out.dtype) == (real.shape, real.dtype)
    torch.testing.assert_close(encoding(input_of(torch.float32), first), real)
