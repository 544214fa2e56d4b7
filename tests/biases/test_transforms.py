"""Every bias under PyTorch's transforms: forward mode, vmap, double backward, compile, meta and fake tensors."""

from collections.abc import Callable

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import gradcheck, gradgradcheck
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vmap

import regard
from regard.biases import (
    AppendedBias,
    Bias,
    DecomposedPosition,
    Fire,
    Kerple,
    LogSpacedTable,
    RelativeBias,
    RelativePosition,
    TensorBias,
    alibi,
)  # fmt: skip
from regard.shapes.grid import Grid

DOUBLE = torch.float64
BATCH, HEADS, QUERIES, KEYS, DIM = 2, 3, 5, 7, 11
GRID = Grid.whole(BATCH, HEADS, QUERIES, KEYS)


def parameter(*shape: int) -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.randn(shape, generator=torch.Generator().manual_seed(len(shape))))


BIASES: dict[str, Callable[[], Bias]] = {
    "alibi": lambda: alibi(HEADS),
    "T5": lambda: RelativeBias(HEADS, buckets=8, max_distance=11),
    "T5 causal": lambda: RelativeBias(HEADS, buckets=5, max_distance=7, bidirectional=False),
    "KERPLE power": lambda: Kerple(HEADS, "power"),
    "FIRE": lambda: Fire(HEADS, 5, threshold=parameter()),
    "log-spaced": lambda: LogSpacedTable(HEADS, (3,), (KEYS,), 5),
    "decomposed": lambda: DecomposedPosition(DIM, (QUERIES,), (KEYS,), weight=parameter(2 * KEYS - 1, DIM)),
    "Shaw": lambda: RelativePosition(DIM, 2),
    "Shaw, own heads": lambda: RelativePosition(DIM, 3, heads=HEADS, scale=0.7),
    "tensor": lambda: TensorBias(parameter(BATCH, 1, QUERIES, KEYS)),
    "number": lambda: TensorBias(parameter()),
    "diagonal sum": lambda: alibi(HEADS) + RelativeBias(HEADS, buckets=8, max_distance=11),
    "dense sum": lambda: alibi(HEADS) + RelativePosition(DIM, 2) + parameter(HEADS, 1, KEYS),
    "appended": lambda: AppendedBias(RelativeBias(HEADS, buckets=8, max_distance=11), 2),
}
# PyTorch's own tables of forward-mode formulas are scripts, which it has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
every_bias = pytest.mark.parametrize("name", BIASES)


def bias_of(name: str, dtype: torch.dtype = DOUBLE) -> Bias:
    torch.manual_seed(5)
    return BIASES[name]().to(dtype)


def query_of(dtype: torch.dtype = DOUBLE) -> torch.Tensor:
    return torch.randn(BATCH, HEADS, QUERIES, DIM, generator=torch.Generator().manual_seed(3), dtype=DOUBLE).to(dtype)


def as_function(bias: Bias) -> tuple[Callable[..., torch.Tensor], tuple[torch.Tensor, ...]]:
    """The bias of the whole grid as a function of the query and of its parameters, all of them leaves."""
    names = [name for name, _ in bias.named_parameters()]

    def function(query: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
        given = dict(zip(names, parameters, strict=True))
        added = functional_call(bias, given, (query, GRID)).expand(GRID.shape)
        # Alibi depends on nothing: its gradient is the zero that this term has.
        return added + 0 * query.sum()

    inputs = (query_of(), *(parameter.detach().clone() for parameter in bias.parameters()))
    return function, tuple(tensor.requires_grad_() for tensor in inputs)


@every_bias
def test_backward_and_forward_mode_are_exact(name: str):
    function, inputs = as_function(bias_of(name))
    assert gradcheck(function, inputs, check_forward_ad=True, check_batched_grad=True, fast_mode=True)


@every_bias
def test_double_backward_is_exact(name: str):
    function, inputs = as_function(bias_of(name))
    assert gradgradcheck(lambda *tensors: function(*tensors).square(), inputs, fast_mode=True)


# PyTorch has no batching rule for the backward of `unfold`; it loops, and warns that this is slower.
@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
@every_bias
def test_jacobians_agree_in_both_modes(name: str):
    function, inputs = as_function(bias_of(name))
    detached = tuple(tensor.detach() for tensor in inputs)
    places = tuple(range(len(inputs)))

    def short(*tensors: torch.Tensor) -> torch.Tensor:
        return function(*tensors)[:, :, ::2, ::3]

    torch.testing.assert_close(jacfwd(short, places)(*detached), jacrev(short, places)(*detached))


@every_bias
def test_functional_gradients_are_those_of_autograd(name: str):
    function, inputs = as_function(bias_of(name))
    weights = torch.randn(GRID.shape, dtype=DOUBLE)

    def loss(*tensors: torch.Tensor) -> torch.Tensor:
        return (function(*tensors) * weights).square().sum()

    expected = torch.autograd.grad(loss(*inputs), inputs)
    detached = tuple(tensor.detach() for tensor in inputs)
    torch.testing.assert_close(grad(loss, tuple(range(len(inputs))))(*detached), expected)
    tangents = tuple(torch.randn_like(tensor) for tensor in detached)
    _, slope = jvp(loss, detached, tangents)
    torch.testing.assert_close(slope, sum((a * b).sum() for a, b in zip(expected, tangents, strict=True)))


@every_bias
def test_vmap_over_a_bias_is_a_loop(name: str):
    function, inputs = as_function(bias_of(name))
    stacked = tuple(torch.stack([tensor.detach() * factor for factor in (1, -2, 3)]) for tensor in inputs)
    expected = torch.stack([function(*(tensor[i] for tensor in stacked)) for i in range(3)])
    torch.testing.assert_close(vmap(function)(*stacked), expected)


def test_the_hessian_of_shaws_bias_couples_query_and_weight():
    bias, grid = RelativePosition(2, 1).double(), Grid.whole(1, 1, 2, 2)
    query, weight = torch.randn(1, 1, 2, 2, dtype=DOUBLE), bias.weight.detach()

    def loss(query: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return functional_call(bias, {"weight": weight}, (query, grid)).square().sum()

    (_, mixed), (transposed, _) = hessian(loss, (0, 1))(query, weight)
    assert mixed.any()
    torch.testing.assert_close(mixed, transposed.permute(2, 3, 4, 5, 0, 1))


@every_bias
def test_biases_compile_in_one_graph(name: str):
    torch._dynamo.reset()
    bias = bias_of(name)
    query = query_of().requires_grad_()
    weights = torch.randn(GRID.shape, dtype=DOUBLE)
    wanted = [query, *bias.parameters()]

    def loss(query: torch.Tensor) -> torch.Tensor:
        return (bias(query, GRID) * weights).sum() + query.sum()

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(query), loss(query))
    torch.testing.assert_close(torch.autograd.grad(compiled(query), wanted), torch.autograd.grad(loss(query), wanted))


@every_bias
def test_biases_of_meta_tensors_have_the_real_shapes(name: str):
    bias = bias_of(name).to("meta")
    if isinstance(bias, TensorBias):
        bias.tensor = bias.tensor.to("meta")
    query = query_of().to("meta")
    grid = Grid.whole(BATCH, HEADS, QUERIES, KEYS, "meta")
    bias.check(query, grid)
    out = bias(query, grid)
    assert out.device.type == "meta"
    real = bias_of(name)(query_of(), GRID)
    assert (out.shape, out.dtype) == (real.shape, real.dtype)


@every_bias
def test_fake_tensors_have_the_shapes_of_real_ones(name: str):
    real = BIASES[name]()(query_of(torch.float32), GRID)
    with FakeTensorMode():
        bias, query = BIASES[name](), torch.randn(BATCH, HEADS, QUERIES, DIM)
        bias.check(query, GRID)
        out = bias(query, GRID)
        assert (out.shape, out.dtype) == (real.shape, real.dtype)


@every_bias
@pytest.mark.parametrize(("queries", "keys"), [(0, 7), (5, 0), (0, 0)])
def test_an_empty_tile_gives_every_parameter_a_gradient_of_zero(name: str, queries: int, keys: int):
    bias = bias_of(name)
    tile = GRID.tile(queries=range(queries), keys=range(keys))
    out = bias(query_of()[:, :, :queries], tile)
    assert out.expand(tile.shape).shape == (BATCH, HEADS, queries, keys)
    parameters = list(bias.parameters())
    if parameters:
        grads = torch.autograd.grad(out.expand(tile.shape).sum(), parameters)
        assert not any(grad_parameter.any() for grad_parameter in grads)


@every_bias
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_biases_are_added_in_float32(name: str, dtype: torch.dtype):
    """Contract 6: what half-precision inputs give is what the same numbers give in float32."""
    bias, query = bias_of(name, dtype), query_of(dtype)
    key = torch.randn(BATCH, HEADS, KEYS, DIM, generator=torch.Generator().manual_seed(4)).to(dtype)
    low = regard.explain(query, key, key, bias=bias)
    single = regard.explain(query.float(), key.float(), key.float(), bias=bias_of(name, dtype).float())
    assert low.biased.dtype == torch.float32
    torch.testing.assert_close(low.biased, single.biased)


@every_bias
def test_autocast_changes_nothing(name: str):
    bias, query = bias_of(name, torch.float32), query_of(torch.float32)
    key = torch.randn(BATCH, HEADS, KEYS, DIM, generator=torch.Generator().manual_seed(4))
    expected = regard.attend(query, key, key, bias=bias)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(regard.attend(query, key, key, bias=bias), expected, rtol=0, atol=0)
