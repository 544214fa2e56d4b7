"""The kernels as PyTorch operators: their registration, the compiler's and autocast's view of them, any strides."""

from itertools import product

import pytest
import torch

pytest.importorskip("numba", reason="kernels are compiled by Numba")

import regard
from covering import covering
from kernels.oracle import assert_as_exact, outcome, target_of, tensors
from regard import masks
from regard.errors import BackendError
from regard.kernels.cpu import operators
from regard.kernels.cpu.kernel_arguments import KernelInputs, ReadingOptions
from regard.kernels.kinds import ENTMAX15, SIGMOID, SOFTMAX, SPARSEMAX
from regard.scores import Additive

B, H, KV, Q, K, D, V = 2, 4, 2, 5, 19, 7, 3


def call_of(dtype=torch.float32, additive=False, requires_grad=False, **changes):
    """A small call of an operator."""
    inputs = tensors(dtype=dtype, query=(B, H, Q, D), key=(B, KV, K, D), value=(B, KV, K, V), weight=(H, D))
    if additive:
        changes["exponentials"], changes["extents"] = operators.exponentials(inputs["key"])
    else:
        inputs.pop("weight")
    for tensor in inputs.values():
        tensor.requires_grad_(requires_grad)
    return KernelInputs(**inputs, **changes)


def variants(dtype):
    """Calls that together use every argument."""
    rows = {
        "start": torch.zeros(1, 1, Q, 1, dtype=torch.int32),
        "stop": torch.full((1, 1, Q, 1), 11, dtype=torch.int32),
    }
    extra = tensors(dtype=dtype, dense=(1, H, Q, K), diagonal=(H, Q + K - 1), offset=(H,), center=(B, H, Q))
    window = {"center": extra["center"] + K / 2, "sigma": torch.full((B, H, Q), 2.0, dtype=dtype)}
    mask = torch.rand(B, 1, Q, K) < 0.7
    return {
        "plain": {},
        "additive": {"additive": True},
        "runs": {**rows, "normalizer": SPARSEMAX},
        "dense": {"mask": mask, "bias": extra["dense"], "normalizer": ENTMAX15},
        "diagonal": {"additive": True, "bias": extra["diagonal"], "diagonal": True, "scale": 1.0, "temperature": 2.0},
        "sink": {"sink": extra["offset"], "cap": 2.0, "normalizer": SOFTMAX},
        "sigmoid": {"shift": extra["offset"][:1], "normalizer": SIGMOID, **window},
        "window": {**window, **rows},
        "weights": {"return_weights": True, **rows},
        "kept weights": {"return_weights": True, "additive": True, **rows},
        "dropout": {"dropout": 0.4, "seed": 12345, "scale": 0.3},
    }


NAMES = list(variants(torch.float32))
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
CHECKED = covering(
    name=NAMES,
    dtype=[torch.float32, torch.float64],
    # What is registered depends on the arguments, and on the dtype only in that results have it.
    sample_where=lambda name, dtype: dtype == torch.float32 or name in ("plain", "additive"),
)


@CHECKED
def test_attend_is_registered_as_it_should_be(name, dtype):
    torch.library.opcheck(operators.attend, call_of(dtype, requires_grad=True, **variants(dtype)[name]))


@CHECKED
def test_backward_and_readings_are_registered_as_they_should_be(name, dtype, is_full):
    call = call_of(dtype, **variants(dtype)[name])
    output, statistics, weights = operators.attend(*call)
    by_weights = torch.randn_like(weights) if call.return_weights else None
    kept = weights if call.return_weights and call.saves_weights else None
    torch.library.opcheck(operators.attend_backward, (torch.randn_like(output), by_weights, statistics, kept, *call))
    if not call.dropout:
        every = ReadingOptions(
            entropy=True, peak=True, top_k=3, received=True, distance=True, pooled=[2, 3], all_rows=Q,
            row_slots=torch.tensor([-1, 0, -1, 1, -1]), stored_rows=2, first_stored_key=1, stored_keys=4,
        )  # fmt: skip
        torch.library.opcheck(operators.read, (*call, *every))
        if is_full or name == "plain":
            torch.library.opcheck(operators.read, (*call, *ReadingOptions(peak=True)))


@DTYPES
def test_exponentials_are_registered_as_they_should_be(dtype):
    torch.library.opcheck(operators.exponentials, (torch.randn(B, KV, 131, D, dtype=dtype),))


@pytest.mark.parametrize("name", NAMES)
def test_gradcheck_of_the_operator(name):
    changes = variants(torch.float64)[name]
    changes = {
        key: value.clone().requires_grad_()
        if isinstance(value, torch.Tensor) and value.dtype.is_floating_point
        else value
        for key, value in changes.items()
    }
    call = call_of(torch.float64, requires_grad=True, **changes)
    places = [i for i, value in enumerate(call) if isinstance(value, torch.Tensor) and value.requires_grad]

    def run(*given):
        inputs = list(call)
        for place, tensor in zip(places, given, strict=True):
            inputs[place] = tensor
        changed = KernelInputs(*inputs)
        if changed.weight is not None:
            powers, extents = operators.exponentials(changed.key.detach())
            changed = changed._replace(exponentials=powers, extents=extents)
        output, _, weights = operators.attend(*changed)
        return (output, weights) if changed.return_weights else output

    assert torch.autograd.gradcheck(run, [call[place] for place in places], fast_mode=True)


def attending(query, key, value, weight):
    product = regard.attend(query, key, value, backend="cpu", mask=masks.causal())
    additive = regard.attend(query, key, value, score=Additive(weight), backend="cpu")
    return product + 2 * additive.tanh()


# Planning is Python, which Dynamo traces up to where it goes back to the interpreter, with some remarks.
@pytest.mark.filterwarnings("ignore:Dynamo detected a call to a `functools.lru_cache`:UserWarning")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_functions_give_the_same(backend):
    inputs = list(tensors(query=(B, H, Q, D), key=(B, KV, K, D), value=(B, KV, K, V), weight=(D,)).values())
    for tensor in inputs:
        tensor.requires_grad_()
    torch._dynamo.reset()
    expected, got = attending(*inputs), torch.compile(attending, backend=backend)(*inputs)
    torch.testing.assert_close(got, expected)
    for run in zip(*(torch.autograd.grad(output.square().sum(), inputs) for output in (expected, got)), strict=True):
        torch.testing.assert_close(*run)


def test_the_operator_is_exported():
    class Module(torch.nn.Module):
        def forward(self, query, key, value):
            return operators.attend(*KernelInputs(query, key, value, scale=0.5))[0]

    inputs = call_of()[:3]
    program = torch.export.export(Module(), inputs)
    assert any(node.target is operators.attend for node in program.graph.nodes)
    torch.testing.assert_close(program.module()(*inputs), Module()(*inputs))


def test_the_operator_compiles_into_one_graph():
    def run(query, key, value):
        return operators.attend(*KernelInputs(query, key, value, scale=0.5))[0].sum()

    torch._dynamo.reset()
    inputs = call_of(requires_grad=True)[:3]
    got = torch.compile(run, backend="aot_eager", fullgraph=True)(*inputs)
    for one, other in zip(torch.autograd.grad(got, inputs), torch.autograd.grad(run(*inputs), inputs), strict=True):
        torch.testing.assert_close(one, other)


def test_autocast_leaves_float32_accurate():
    inputs = tensors(query=(B, H, Q, D), key=(B, KV, K, D), value=(B, KV, K, V), weight=(D,))
    with torch.autocast("cpu", torch.bfloat16):
        assert_as_exact(inputs, roundings=100)
        inputs.pop("weight")
        assert_as_exact(inputs, roundings=100)
        half = call_of(torch.bfloat16)
        output = operators.attend(*half)[0]
    assert output.dtype == torch.float32
    exact = regard.attend(*(tensor.double() for tensor in half[:3]), score=regard.scores.Dot(), backend="reference")
    torch.testing.assert_close(output.double(), exact, rtol=0, atol=1e-5)


def test_the_operator_refuses_what_it_would_misread():
    query, key, value = call_of()[:3]
    for wrong in (
        (query.half(), key.half(), value.half()),
        (query, key[..., :3], value),
        (query, key, value[:, :, 1:]),
    ):
        with pytest.raises(ValueError, match=r"operators take|shapes do not fit"):
            operators.attend(*KernelInputs(*wrong))


def transposed(tensor):
    return tensor.transpose(1, 2).contiguous().transpose(1, 2)


def swapped(tensor):
    return tensor.transpose(-1, -2).contiguous().transpose(-1, -2)


def spaced(tensor):
    return tensor.repeat_interleave(2, dim=-1)[..., ::2]


def offset(tensor):
    return torch.cat([torch.full_like(tensor[..., :1], torch.nan), tensor], dim=-1)[..., 1:]


LAYOUTS = {"transposed": transposed, "swapped": swapped, "spaced": spaced, "offset": offset}


@pytest.mark.parametrize("additive", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_kernels_take_inputs_of_any_strides(layout, additive):
    shapes = {"query": (B, H, Q, D), "key": (B, KV, K, D), "value": (B, KV, K, V), "bias": (B, H, Q, K)}
    inputs = tensors(**shapes, **({"weight": (H, D)} if additive else {}))
    laid = {name: LAYOUTS[layout](tensor) if tensor.dim() == 4 else spaced(tensor) for name, tensor in inputs.items()}
    assert not laid["query"].is_contiguous()
    for mask in (None, masks.causal(), masks.lengths([K, 3])):
        expected, got = outcome("cpu", inputs, mask=mask), strided_outcome(laid, mask)
        for name, tensor in expected.items():
            torch.testing.assert_close(got[name], tensor, msg=lambda m, name=name: f"{name}: {m}")


def strided_outcome(laid, mask):
    """As `outcome`, with inputs that keep their strides."""
    leaves = {name: tensor.detach().requires_grad_() for name, tensor in laid.items()}
    score = Additive(leaves["weight"]) if "weight" in leaves else "scaled_dot"
    query, key, value = (leaves[name] for name in ("query", "key", "value"))
    output = regard.attend(query, key, value, score=score, mask=mask, bias=leaves.get("bias"), backend="cpu")
    gradients = torch.autograd.grad(output, list(leaves.values()), swapped(target_of(output)))
    return {"output": output.detach(), **dict(zip(leaves, gradients, strict=True))}


@pytest.mark.parametrize("additive", [False, True])
@pytest.mark.parametrize("axes", list(product([0, 1], repeat=4)))
def test_kernels_take_expanded_inputs(axes, additive):
    """Each axis of length 1 or expanded from it, the rows' and the features' too."""

    def cut(tensor):
        for axis, whole in enumerate(axes):
            if not whole:
                tensor = tensor.narrow(axis, 0, 1)
        return tensor

    whole = tensors(query=(B, H, Q, D), key=(B, H, K, D), value=(B, H, K, D), weight=(D,))
    laid = {name: cut(tensor).expand_as(tensor) if tensor.dim() == 4 else tensor for name, tensor in whole.items()}
    dense = {name: tensor.contiguous() for name, tensor in laid.items()}
    if not additive:
        laid.pop("weight")
        dense.pop("weight")
    expected, got = outcome("cpu", dense), strided_outcome(laid, None)
    for name, tensor in expected.items():
        torch.testing.assert_close(got[name], tensor, msg=lambda m, name=name: f"{name}: {m}")


@pytest.mark.parametrize("additive", [False, True])
def test_one_row_with_the_strides_of_a_column(additive):
    """Where an axis has length 1 its stride means nothing; PyTorch leaves anything there."""
    query, key, value = torch.randn(B, H, D, 1).mT, torch.randn(B, H, D, 1).mT, torch.randn(B, H, V, 1).mT
    assert query.stride(-2) == query.stride(-1) == 1
    score = Additive(torch.randn(D)) if additive else "scaled_dot"
    torch.testing.assert_close(regard.attend(query, key, value, score=score, backend="cpu"), value)
    keys, values = torch.randn(B, H, K, D), torch.randn(B, H, K, V)
    expected = regard.attend(query, keys, values, score=score, backend="reference")
    torch.testing.assert_close(regard.attend(query, keys, values, score=score, backend="cpu"), expected)


@pytest.mark.parametrize("additive", [False, True])
def test_windows_of_one_row_that_overlap(additive):
    sequence = torch.randn(B, H, K + D - 1)
    key, query, value = sequence.unfold(-1, D, 1), torch.randn(B, H, Q, D), torch.randn(B, H, K + 2).unfold(-1, 3, 1)
    score = Additive(torch.randn(D)) if additive else "scaled_dot"
    expected, got = (regard.attend(query, key, value, score=score, backend=name) for name in ("reference", "cpu"))
    torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("additive", [False, True])
def test_half_precision_errs_by_its_last_rounding(dtype, additive):
    shapes = {"query": (1, 2, 67, D), "key": (1, 2, 131, D), "value": (1, 2, 131, V)}
    inputs = tensors(dtype=dtype, **shapes, **({"weight": (D,)} if additive else {}))
    got, exact = outcome("cpu", inputs), outcome("reference", inputs, torch.float64)
    for name, expected in exact.items():
        assert got[name].dtype == dtype
        torch.testing.assert_close(got[name].double(), expected, rtol=0.6 * torch.finfo(dtype).eps, atol=1e-4)


def test_attention_operators_refuse_second_derivatives():
    query, key, value = (torch.randn(1, 2, 5, 3, requires_grad=True) for _ in range(3))
    output = regard.attend(query, key, value, backend="cpu")
    (first,) = torch.autograd.grad(output.square().sum(), query, create_graph=True)
    with pytest.raises(BackendError, match="no second derivative"):
        first.sum().backward()
