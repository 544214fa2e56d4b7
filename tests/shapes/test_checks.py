"""The checks that every argument shares, and which tensors can be read."""

import re
import warnings
from collections.abc import Callable
from typing import Literal

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import regard
from regard.errors import ArgumentError, KindError
from regard.shapes.checks import (
    check_dense,
    check_floating,
    check_integers,
    check_module,
    positive_number,
    type_text,
    whole_number,
)
from regard.tracing.transforms import has_data
from sources import FILES


def quiet(make: Callable[[], Tensor]) -> Tensor:
    with warnings.catch_warnings():
        # PyTorch warns that some of these kinds are unfinished or deprecated.
        warnings.simplefilter("ignore")
        return make()


SQUARE = torch.eye(5)
PIECES = [torch.ones(2, 3), torch.ones(5, 3)]
NOT_DENSE = {
    "coo": lambda: SQUARE.to_sparse(),
    "csr": lambda: SQUARE.to_sparse_csr(),
    "csc": lambda: SQUARE.to_sparse_csc(),
    "bsr": lambda: torch.eye(6).to_sparse_bsr((2, 3)),
    "nested": lambda: torch.nested.nested_tensor(PIECES),
    "jagged": lambda: torch.nested.nested_tensor(PIECES, layout=torch.jagged),
    "quantized": lambda: torch.quantize_per_tensor(SQUARE, 0.1, 0, torch.qint8),
}
FLOAT8 = [torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz]


@pytest.mark.parametrize("kind", NOT_DENSE)
@pytest.mark.parametrize("check", [check_dense, check_floating, check_integers])
def test_shape_checks_refuse_tensors_that_are_not_dense(check, kind: str):
    with pytest.raises(KindError, match="weight must be a dense tensor; it "):
        check("weight", quiet(NOT_DENSE[kind]))


@pytest.mark.parametrize("dtype", FLOAT8)
def test_eight_bits_are_too_few(dtype: torch.dtype):
    with pytest.raises(KindError, match=f"query must hold float16, bfloat16, float32 or float64; it holds {dtype}"):
        check_floating("query", SQUARE.to(dtype))


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.uint8, torch.complex64])
def test_other_numbers_are_not_floating_point(dtype: torch.dtype):
    with pytest.raises(KindError, match=f"query must hold floating-point numbers; it holds {dtype}"):
        check_floating("query", SQUARE.to(dtype))


@pytest.mark.parametrize("value", [[1.0], np.ones(3), None, 1.0, "query"])
def test_values_that_are_no_tensor_are_named_by_their_type(value: object):
    advice = r" \(write torch\.tensor\(query, dtype=torch\.float32\)\)" if isinstance(value, (list, np.ndarray)) else ""
    with pytest.raises(KindError, match=f"query must be a tensor; it is {type_text(value)}{advice}$"):
        check_floating("query", value)


def test_kinds_are_named_as_they_are_spoken():
    assert [type_text(value) for value in (1, [], None, SQUARE)] == ["an int", "a list", "None", "a Tensor"]


def test_a_message_never_wants_a_class_and_says_that_it_came():
    layer = type("Linear", (), {"__module__": "elsewhere.layers"})()
    with pytest.raises(KindError, match=r"projection must be a torch\.nn\.Linear; it is an elsewhere\.Linear$"):
        check_module("projection", layer, torch.nn.Linear)
    for kind in (torch.nn.TransformerEncoderLayer, torch.nn.TransformerDecoderLayer):
        stack = getattr(regard.nn, kind.__name__.removesuffix("Layer"))
        with pytest.raises(KindError, match=rf"a regard\.nn\.{kind.__name__}; it is a torch\.nn\.{kind.__name__}\. "):
            stack(kind(8, 2), 1)
    assert type_text(regard.nn.SelfAttention(8, 2)) == "a SelfAttention"


def test_messages_name_types_by_one_function():
    spelt = re.compile(r"(it is|got|given) (an? |of type )?\{type\([\w.]+\)\.__name__\}")
    sources = [file for file in FILES if "tasks" not in file.parts]  # which import no PyTorch
    assert len(sources) > 400
    assert [str(file) for file in sources if spelt.search(file.read_text())] == []


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_four_floating_point_dtypes_are_accepted(dtype: torch.dtype):
    for tensor in (SQUARE.to(dtype), SQUARE.to(dtype, copy=True).requires_grad_(), SQUARE.to("meta", dtype)):
        check_floating("query", tensor)


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32, torch.complex64, torch.uint64, *FLOAT8])
def test_integers_are_what_int64_holds(dtype: torch.dtype):
    with pytest.raises(KindError, match=f"ids must hold integers; it holds {dtype}"):
        check_integers("ids", torch.zeros(3).to(dtype))


@pytest.mark.parametrize("value", [7, np.int8(7), np.int64(7), np.uint32(7)])
def test_whole_numbers_are_integers_of_python_or_numpy(value: object):
    number = whole_number("step", value, low=7, high=7)
    assert number == 7
    assert type(number) is int


@pytest.mark.parametrize(
    "value",
    [2.5, 2.0, float("inf"), float("nan"), True, np.bool_(True), np.float32(2), "2", None, 2j, [2], torch.tensor(2)],
    ids=repr,
)
def test_other_types_are_no_whole_numbers(value: object):
    with pytest.raises(KindError, match="step must be an integer; it is "):
        whole_number("step", value)


def test_messages_stay_short_whatever_came():
    for value in (torch.zeros(10**5), "x" * 10**5, list(range(10**5)), 10.0**300):
        with pytest.raises(KindError) as caught:
            whole_number("step", value)
        assert len(str(caught.value)) < 80
    for value in (10**6000, -(10**6000)):
        with pytest.raises(ArgumentError, match="an integer of 19932 bits") as caught:
            whole_number("step", value, low=0, high=2**61)
        assert len(str(caught.value)) < 80


@pytest.mark.parametrize("value", [float("inf"), float("nan"), 0, -1.0, 10**400])
def test_positive_numbers_are_finite(value: float):
    with pytest.raises(ArgumentError, match="base must be positive and finite"):
        positive_number("base", value)


def test_plain_tensors_have_data():
    for tensor in (SQUARE, SQUARE[1:, ::2], torch.zeros(0, 3), torch.nn.Parameter(SQUARE), torch.tensor(3)):
        assert has_data(tensor)


def test_tensors_of_meta_and_fake_tensors_have_none():
    assert not has_data(SQUARE.to("meta"))
    with FakeTensorMode() as mode:
        assert not has_data(torch.zeros(3))
    assert not has_data(mode.from_tensor(SQUARE))


def test_tensors_that_become_functional_have_none():
    assert not has_data(torch._to_functional_tensor(SQUARE))
    with FunctionalTensorMode():
        assert not has_data(FunctionalTensor.to_functional(SQUARE))


def seen_by(transform: Callable[[Callable], object]) -> tuple[bool, bool]:
    """What `has_data` says within a transform of the argument, and of a tensor from outside."""
    seen = []

    def function(input: Tensor) -> Tensor:
        seen.append((has_data(input), has_data(SQUARE)))
        return input.sum()

    transform(function)
    return seen[-1]


# PyTorch scripts the formulas of forward mode when they are first used, and deprecates scripting.
@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")
@pytest.mark.parametrize(
    "transform",
    [
        lambda f: torch.func.vmap(f)(SQUARE),
        lambda f: torch.func.grad(f)(SQUARE),
        lambda f: torch.func.jvp(f, (SQUARE,), (SQUARE,)),
        lambda f: torch.func.vmap(torch.func.grad(f))(SQUARE),
        lambda f: torch.func.functionalize(f)(SQUARE),
    ],
    ids=["vmap", "grad", "jvp", "vmap of grad", "functionalize"],
)
def test_tensors_that_a_transform_wraps_have_none(transform):
    assert seen_by(transform) == (False, True)


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_nothing_is_read_while_a_graph_is_traced(mode: Literal["real", "fake", "symbolic"]):
    assert seen_by(lambda f: make_fx(f, tracing_mode=mode)(SQUARE)) == (False, False)


def test_nothing_is_read_while_the_compiler_traces():
    @torch.compile(fullgraph=True, backend="eager")
    def compiled(input: Tensor) -> Tensor:
        return input + 1 if has_data(input) or has_data(SQUARE) else input

    assert torch.equal(compiled(SQUARE), SQUARE)

    class Exported(torch.nn.Module):
        def forward(self, input: Tensor) -> Tensor:
            return input + 1 if has_data(input) else input * 1

    assert torch.equal(torch.export.export(Exported(), (SQUARE,)).module()(SQUARE), SQUARE)
