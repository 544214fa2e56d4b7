"""Biases of positions in a grid: learned tables, log-spaced coordinates, decomposed rows and columns."""

import math
from itertools import product

import pytest
import torch
from torch.autograd import gradcheck

import regard
from regard import biases, masks
from regard.errors import KindError, ShapeError
from regard.shapes.grid import Grid

HEADS, DIM, SHAPE = 2, 5, (3, 5)
DOUBLE = torch.float64


def numbers(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=DOUBLE)


def coordinates(shape):
    return list(product(*map(range, shape)))


BIASES = {
    "table": lambda: biases.WindowTable(HEADS, SHAPE, weight=torch.nn.Parameter(numbers(5 * 9, HEADS))),
    "table in an image": lambda: biases.WindowTable(HEADS, (2, 3), SHAPE, torch.nn.Parameter(numbers(15, HEADS))),
    "log-spaced": lambda: biases.LogSpacedTable(HEADS, SHAPE, hidden=7, pretrained=(2, 3)).double(),
    "decomposed": lambda: biases.DecomposedPosition(DIM, SHAPE, weight=torch.nn.Parameter(numbers(5 + 9, DIM))),
    "decomposed, resized": lambda: biases.DecomposedPosition(
        DIM, SHAPE, trained=(2, 7), heads=HEADS, weight=torch.nn.Parameter(numbers(HEADS, 3 + 13, DIM))
    ),
}
every_bias = pytest.mark.parametrize("name", BIASES)


def dense(bias, query, keys):
    batch, heads, queries, _ = query.shape
    grid = Grid.whole(batch, heads, queries, keys)
    bias.check(query, grid)
    return bias(query, grid).expand(grid.shape)


@every_bias
def test_a_tile_of_a_grid_bias_is_a_slice_of_the_whole(name):
    bias, query, grid = BIASES[name](), numbers(3, HEADS, 15, DIM), Grid.whole(3, HEADS, 15, 15)
    expected = dense(bias, query, 15)
    for queries, keys in ((range(4, 11), range(15)), (range(15), range(7, 8)), (range(0), range(2, 2))):
        tile = grid.tile(batch=range(1, 3), queries=queries, keys=keys)
        part = bias(query[1:3, :, queries.start : queries.stop], tile).expand(tile.shape)
        torch.testing.assert_close(
            part, expected[1:3, :, queries.start : queries.stop, keys.start : keys.stop], rtol=0, atol=1e-12
        )


@every_bias
def test_gradients_of_a_grid_bias_are_exact(name):
    bias, query = BIASES[name](), numbers(1, HEADS, 15, DIM).requires_grad_()
    inputs = (query, *bias.parameters()) if isinstance(bias, biases.QueryBias) else tuple(bias.parameters())
    grid = Grid.whole(1, HEADS, 15, 15)
    assert gradcheck(lambda *_: bias(query, grid), inputs, fast_mode=True)


@every_bias
def test_backends_agree_on_a_grid_bias(name):
    bias = BIASES[name]().float()
    query, key, value = (numbers(2, HEADS, 15, DIM + extra).float() for extra in (0, 0, 2))
    expected = regard.attend(query, key, value, bias=bias, backend="reference")
    torch.testing.assert_close(regard.attend(query, key, value, bias=bias, backend="tiled"), expected)
    assert torch.equal(regard.observe(query, key, value, bias=bias).output, regard.attend(query, key, value, bias=bias))
    with torch.no_grad():
        torch.testing.assert_close(regard.attend(query, key, value, bias=bias, backend="sdpa"), expected)


@pytest.mark.parametrize(("window", "shape"), [((3, 5), None), ((2, 3), (3, 5)), ((2, 3, 2), None), ((7,), None)])
def test_window_tables_are_indexed_pair_by_pair(window, shape):
    sizes = [2 * length - 1 for length in window]
    weight = numbers(math.prod(sizes), HEADS)
    bias, places = biases.WindowTable(HEADS, window, shape, weight), coordinates(shape or window)
    values = dense(bias, numbers(1, HEADS, len(places), DIM), len(places))[0]
    table = weight.T.reshape(HEADS, *sizes)
    for (i, own), (j, other) in product(enumerate(places), enumerate(places)):
        index = [min(max(a - b, 1 - m), m - 1) + m - 1 for a, b, m in zip(own, other, window, strict=True)]
        assert torch.equal(values[:, i, j], table[(slice(None), *index)])
    torch.testing.assert_close(dense(bias, numbers(1, HEADS, 2, DIM), len(places))[0], values[:, -2:])


def test_log_spaced_tables_are_their_equation_pair_by_pair():
    bias = BIASES["log-spaced"]()
    values = dense(bias, numbers(1, HEADS, 15, DIM), 15)[0].detach()
    places = coordinates(SHAPE)
    for (i, own), (j, other) in product(enumerate(places), enumerate(places)):
        spaced = [8 * (a - b) / (m - 1) for a, b, m in zip(own, other, (2, 3), strict=True)]
        spaced = [math.copysign(math.log(1 + abs(r), 8), r) for r in spaced]
        units = [max(0.0, sum(w * r for w, r in zip(row, [*spaced, 1.0], strict=True))) for row in bias.inner.tolist()]
        for head, weights in enumerate(bias.outer.tolist()):
            total = sum(w * unit for w, unit in zip(weights, units, strict=True))
            assert values[head, i, j].item() == pytest.approx(16 / (1 + math.exp(-total)), abs=1e-12)


def test_decomposed_positions_of_pooled_keys_are_those_of_the_authors():
    sam = pytest.importorskip("transformers.models.sam.modeling_sam").SamVisionAttention
    shape, key_shape, weight = (4, 6), (2, 3), numbers(7 + 5, DIM)
    bias, query = biases.DecomposedPosition(DIM, shape, key_shape, (4, 3), weight=weight), numbers(3, 1, 24, DIM)
    rows, columns = (
        sam.get_rel_pos(None, q, k, part) for q, k, part in zip(shape, key_shape, weight.split([7, 5]), strict=True)
    )
    image = query.reshape(3, 4, 6, DIM)
    expected = torch.einsum("bhwd,hkd->bhwk", image, rows)[..., None]
    expected = expected + torch.einsum("bhwd,wkd->bhwk", image, columns)[..., None, :]
    torch.testing.assert_close(dense(bias, query, 6), expected.reshape(3, 1, 24, 6))


def test_a_call_over_a_whole_image_is_one_call_a_window():
    table, image = biases.WindowTable(HEADS, (2, 3), weight=numbers(15, HEADS)), numbers(1, HEADS, 24, DIM)
    windows = image.reshape(HEADS, 2, 2, 2, 3, DIM).permute(1, 3, 0, 2, 4, 5).reshape(4, HEADS, 6, DIM)
    expected = regard.attend(windows, windows, windows, bias=table)
    whole = biases.WindowTable(HEADS, (2, 3), (4, 6), table.weight)
    output = regard.attend(image, image, image, bias=whole, mask=masks.shifted_windows((2, 3), 0, (4, 6)))
    output = output.reshape(HEADS, 2, 2, 2, 3, DIM).permute(1, 3, 0, 2, 4, 5).reshape(4, HEADS, 6, DIM)
    torch.testing.assert_close(output, expected)


def test_a_vector_of_a_hidden_pair_reaches_no_gradient():
    weight = numbers(5 + 9, DIM)
    weight[0] = torch.nan  # of the last row of keys, for the first row of queries
    bias = biases.DecomposedPosition(DIM, SHAPE, weight=weight.requires_grad_())
    x = numbers(1, HEADS, 15, DIM).requires_grad_()
    output = regard.attend(x, x, x, bias=bias, mask=masks.causal(), backend="reference")
    grads = torch.autograd.grad(output.sum(), (x, weight))
    assert output.isfinite().all()
    assert all(grad.isfinite().all() for grad in grads)


def test_half_precision_tables_are_added_in_float32():
    for name in BIASES:
        bias, query = BIASES[name]().half(), numbers(1, HEADS, 15, DIM).half()
        assert dense(bias, query, 15).dtype == torch.float32


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: biases.WindowTable(2, 7), ShapeError, "window must have the lengths of one or more axes"),
        (lambda: biases.WindowTable(2, ()), ShapeError, "window must have the lengths of one or more axes"),
        (lambda: biases.WindowTable(2, (3, 5), (6,)), ShapeError, "shape must have the lengths of 2 axes"),
        (lambda: biases.WindowTable(2, (3, 5.0)), KindError, r"window\[1\] must be an integer"),
        (lambda: biases.WindowTable(2, (3, 5), weight=torch.ones(9, 2)), ShapeError, r"weight must have the shape"),
        (lambda: biases.DecomposedPosition(5, (3, 5), (3,)), ShapeError, "key_shape must have the lengths of 2 axes"),
        (lambda: dense(biases.WindowTable(2, (3, 5)), numbers(1, 2, 15, 5), 16), ShapeError, "has 15 positions; there"),
        (lambda: dense(biases.WindowTable(2, (3, 5)), numbers(1, 2, 16, 5), 15), ShapeError, "queries are the last"),
        (lambda: dense(biases.WindowTable(3, (3, 5)), numbers(1, 2, 15, 5), 15), ShapeError, "made for 3 heads"),
        (lambda: dense(BIASES["decomposed"](), numbers(1, 2, 14, 5), 15), ShapeError, "there are 14 queries"),
    ],
)
def test_grid_biases_name_what_does_not_fit(make, error, says):
    with pytest.raises(error, match=says):
        make()
