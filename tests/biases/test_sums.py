"""Sums of biases: `+` adds, flattens, keeps diagonals, and stays fused where every summand is diagonal."""

import operator

import pytest
import torch

import regard
from regard import biases
from regard.biases import AppendedBias, Bias, RelativeBias, RelativePosition, SummedBias, TensorBias, alibi
from regard.errors import ArgumentError, KindError, ShapeError
from regard.shapes.grid import Grid

DOUBLE = torch.float64
BATCH, HEADS, QUERIES, KEYS, DIM = 2, 3, 7, 11, 5
GRID = Grid.whole(BATCH, HEADS, QUERIES, KEYS)

SUMMANDS = {
    "alibi": lambda: alibi(HEADS),
    "T5": lambda: RelativeBias(HEADS, 8, 16).double(),
    "Shaw": lambda: RelativePosition(DIM, 3).double(),
    "tensor": lambda: TensorBias(torch.randn(BATCH, 1, QUERIES, KEYS, dtype=DOUBLE)),
    "number": lambda: TensorBias(torch.randn((), dtype=DOUBLE)),
    "appended": lambda: AppendedBias(alibi(HEADS), 2),
}


def queries(dtype: torch.dtype = DOUBLE) -> torch.Tensor:
    return torch.randn(BATCH, HEADS, QUERIES, DIM, generator=torch.Generator().manual_seed(3), dtype=DOUBLE).to(dtype)


def dense(bias: Bias) -> torch.Tensor:
    query = queries()
    bias.check(query, GRID)
    return bias(query, GRID).expand(GRID.shape)


@pytest.mark.parametrize("left", SUMMANDS)
@pytest.mark.parametrize("right", SUMMANDS)
def test_the_sum_adds(left: str, right: str):
    one, other = SUMMANDS[left](), SUMMANDS[right]()
    total = one + other
    assert isinstance(total, SummedBias)
    torch.testing.assert_close(dense(total), dense(one) + dense(other))
    tile = GRID.tile(batch=range(1, 2), queries=range(2, 5), keys=range(3, 11))
    part = total(queries()[1:2, :, 2:5], tile)
    torch.testing.assert_close(part.expand(tile.shape), dense(total)[1:2, :, 2:5, 3:11])


def test_tensors_are_added_on_either_side():
    tensor = torch.randn(HEADS, 1, KEYS, dtype=DOUBLE)
    expected = dense(alibi(HEADS)) + tensor
    for total in (alibi(HEADS) + tensor, tensor + alibi(HEADS)):
        assert isinstance(total, SummedBias)
        torch.testing.assert_close(dense(total), expected)


def test_two_tensors_are_their_sum():
    one, other = torch.randn(QUERIES, KEYS, dtype=DOUBLE), torch.randn(HEADS, 1, 1, dtype=DOUBLE)
    total = TensorBias(one) + other
    assert isinstance(total, SummedBias)
    assert not total.is_diagonal
    assert torch.equal(dense(total), (one + other).expand(GRID.shape))


def test_sum_and_reduce_work():
    parts = [make() for make in SUMMANDS.values()]
    total = sum(parts)
    assert isinstance(total, SummedBias)
    torch.testing.assert_close(dense(total), torch.stack([dense(part) for part in parts]).sum(0))
    assert sum(parts[:1]) is parts[0]
    assert parts[0] + 0 is parts[0]


def test_nested_sums_are_flat():
    a, b, c, d = alibi(HEADS), RelativeBias(HEADS, 8, 16), TensorBias(torch.zeros(KEYS)), alibi(HEADS)
    total = (a + b) + (c + d)
    assert list(total) == [a, b, c, d]
    assert list(SummedBias([a, SummedBias([b, c]), d])) == [a, b, c, d]


def test_only_sums_of_diagonals_are_diagonal():
    for name, make in SUMMANDS.items():
        diagonal = name in ("alibi", "T5")
        assert make().is_diagonal == diagonal
        total = alibi(HEADS) + (make() + RelativeBias(HEADS, 8, 16).double())
        assert total.is_diagonal == diagonal
        assert (total.diagonals(GRID, DOUBLE) is not None) == diagonal


def test_the_diagonals_of_a_sum_are_the_sum_of_the_diagonals():
    one, other = alibi(HEADS), RelativeBias(HEADS, 8, 16)
    torch.testing.assert_close(
        (one + other).diagonals(GRID, DOUBLE), one.diagonals(GRID, DOUBLE) + other.diagonals(GRID, DOUBLE)
    )


def test_a_long_sum_of_diagonals_needs_no_dense_bias():
    # Densely: 3 TB.
    length = 2**19
    diagonals = (alibi(HEADS) + RelativeBias(HEADS)).diagonals(Grid.whole(1, HEADS, length, length), torch.float32)
    assert diagonals.shape == (HEADS, 2 * length - 1)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_summands_are_added_in_float32(dtype: torch.dtype):
    one, other = torch.full((KEYS,), 2048.0, dtype=dtype), torch.full((KEYS,), 0.5, dtype=dtype)
    total = (TensorBias(one) + other)(queries(dtype), GRID)
    assert total.dtype == torch.float32
    assert torch.equal(total, torch.full((KEYS,), 2048.5))


def test_a_sum_needs_a_gradient_if_a_summand_does():
    query = queries()
    assert not (alibi(HEADS) + torch.zeros(KEYS)).needs_gradient(query)
    assert (alibi(HEADS) + torch.zeros(KEYS, requires_grad=True)).needs_gradient(query)
    assert (alibi(HEADS) + RelativeBias(HEADS)).needs_gradient(query)
    frozen = RelativePosition(DIM, 2).requires_grad_(False)
    assert not (alibi(HEADS) + frozen).needs_gradient(query)
    assert (alibi(HEADS) + frozen).needs_gradient(query.requires_grad_())


def test_parameters_of_the_summands_are_those_of_the_sum():
    learned, tensor = RelativeBias(HEADS), torch.nn.Parameter(torch.zeros(KEYS))
    total = alibi(HEADS) + learned + tensor
    assert [id(parameter) for parameter in total.parameters()] == [id(learned.weight), id(tensor)]


def test_a_bias_added_to_itself_counts_twice():
    bias = RelativeBias(HEADS, 8, 16).double()
    total = bias + bias
    torch.testing.assert_close(dense(total), 2 * dense(bias))
    (grad_weight,) = torch.autograd.grad(dense(total).sum(), bias.weight)
    torch.testing.assert_close(grad_weight, 2 * torch.autograd.grad(dense(bias).sum(), bias.weight)[0])


@pytest.mark.parametrize("other", [1, 0.5, "alibi", None, [alibi(HEADS)]])
def test_nothing_else_is_added(other: object):
    for left, right in ((alibi(HEADS), other), (other, alibi(HEADS))):
        with pytest.raises(TypeError, match=r"unsupported operand|can only concatenate"):
            operator.add(left, right)


def test_summands_are_checked():
    with pytest.raises(KindError, match=r"it holds torch.bool \(a bool tensor belongs in mask=\)"):
        alibi(HEADS) + torch.ones(KEYS, dtype=torch.bool)
    with pytest.raises(ArgumentError, match="biases must hold at least one bias"):
        SummedBias([])
    with pytest.raises(KindError, match="one of them is None"):
        SummedBias([alibi(HEADS), None])
    with pytest.raises(ShapeError, match="Alibi was made for 2 heads; query has 3"):
        regard.attend(queries(), torch.zeros(BATCH, 1, KEYS, DIM).double(), torch.zeros(BATCH, 1, KEYS, DIM).double(),
                      bias=alibi(2) + RelativeBias(HEADS))  # fmt: skip


@pytest.mark.parametrize("score", ["scaled_dot", "additive"])
@pytest.mark.parametrize("normalizer", ["softmax", "sparsemax"])
def test_a_sum_of_diagonals_stays_fused(normalizer: str, score: str):
    torch.manual_seed(2)
    heads, dim = 8, 13
    bias = alibi(heads) + RelativeBias(heads).double()
    scoring = regard.scores.Additive(torch.randn(dim, dtype=DOUBLE)) if score == "additive" else score
    shapes = ((2, heads, 17, dim), (2, 4, 23, dim), (2, 4, 23, 11))
    inputs = [torch.randn(*shape, dtype=DOUBLE, requires_grad=True) for shape in shapes]
    arguments = {"score": scoring, "normalizer": normalizer, "mask": regard.masks.causal(), "bias": bias}
    assert not regard.plan(*inputs, **arguments).reasons["cpu"].startswith("cannot")
    wanted = [*inputs, *bias.parameters()]
    target = torch.randn(2, heads, 17, 11, dtype=DOUBLE)
    found = {}
    for backend in ("reference", "cpu"):
        output = regard.attend(*inputs, backend=backend, **arguments)
        found[backend] = (output, *torch.autograd.grad(output, wanted, target))
    torch.testing.assert_close(found["cpu"], found["reference"], rtol=1e-9, atol=1e-9)


def test_a_dense_sum_is_declined_by_the_compiled_loops_with_its_reason():
    query, key = torch.randn(BATCH, HEADS, QUERIES, DIM), torch.randn(BATCH, HEADS, KEYS, DIM)
    reasons = regard.plan(query, key, key, bias=biases.alibi(HEADS) + torch.zeros(KEYS)).reasons
    assert "SummedBias is not a function of distance alone" in reasons["cpu"]
