"""Large products by the microkernel: exact, and a row's bits depend on no other row and on no number of threads."""

import pytest
import torch

pytest.importorskip("numba", reason="kernels are compiled by Numba")

from regard.kernels.cpu import matrix_product as module
from regard.kernels.cpu.matrix_product import matrix_product

SIZES = [(1, 1, 1), (7, 13, 5), (6, 128, 128), (97, 131, 129), (613, 17, 263), (5, 1031, 66), (64, 3, 19)]


def matrices(rows, depth, columns):
    return torch.randn(rows, depth), torch.randn(depth, columns), torch.randn(rows, columns)


def with_gaps(matrix):
    """The same numbers, with NaN between the rows."""
    wide = torch.full((len(matrix), matrix.shape[1] + 3), torch.nan)
    wide[:, : matrix.shape[1]] = matrix
    return wide[:, : matrix.shape[1]]


def assert_near(found, wanted, depth):
    torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=2e-6 * depth**0.5 + 1e-6)


@pytest.fixture(params=["packed", "in place"])
def packing(request, monkeypatch):
    """With all that can be packed, and with as little as possible."""
    for name in ("FAR", "DEEP"):
        monkeypatch.setattr(module, name, 0 if request.param == "packed" else 1 << 40)


def by_columns(matrix):
    """The same numbers, those of a column side by side."""
    return with_gaps(matrix.t().contiguous()).t()


LAYOUTS = {"rows": lambda matrix: matrix, "columns": by_columns, "gaps": with_gaps}


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("layouts", [(a, b) for a in LAYOUTS for b in LAYOUTS], ids=" and ".join)
@pytest.mark.parametrize("added", ["nothing", "bias", "result"])
@pytest.mark.usefixtures("packing")
def test_products_are_exact(sizes, layouts, added):
    a, b, c = matrices(*sizes)
    bias = torch.randn(sizes[2]) if added == "bias" else None
    wanted = a.double() @ b.double() + {"nothing": 0, "bias": bias, "result": c.double()}[added]
    a, b = (LAYOUTS[layout](matrix) for layout, matrix in zip(layouts, (a, b), strict=True))
    c = with_gaps(c)
    if added != "result":
        c.fill_(torch.nan)
    assert matrix_product(a, b, c, bias, keep=added == "result") is c
    assert_near(c, wanted, sizes[1])


def test_packing_changes_no_bit(monkeypatch):
    a, b = torch.randn(331, 307), torch.randn(307, 197)
    found = {}
    for limit in (0, 1 << 40):
        for name in ("FAR", "DEEP"):
            monkeypatch.setattr(module, name, limit)
        for layout in ("rows", "columns"):
            found[limit, layout] = matrix_product(LAYOUTS[layout](a), LAYOUTS[layout](b), torch.empty(331, 197))
    first = found[0, "rows"]
    assert all(torch.equal(first, other) for other in found.values())


def test_what_lies_between_rows_stays():
    a, b, _ = matrices(37, 29, 71)
    memory = torch.full((37, 80), torch.nan)
    matrix_product(a, b, memory[:, :71])
    assert memory[:, :71].isfinite().all()
    assert memory[:, 71:].isnan().all()


def test_a_row_has_the_same_bits_among_any_others():
    a, b, c = matrices(301, 259, 203)
    whole = matrix_product(a, b, c)
    for rows in (slice(0, 1), slice(5, 12), slice(100, 300)):
        part = a[rows].clone()
        assert torch.equal(matrix_product(part, b, torch.empty(len(part), 203)), whole[rows])


def test_the_number_of_threads_changes_no_bit():
    a, b, c = matrices(301, 259, 203)
    threads, found = torch.get_num_threads(), []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            found.append(matrix_product(a, b, torch.empty_like(c)))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_nan_and_infinity_reach_their_rows_alone():
    a, b, c = matrices(23, 31, 37)
    a[3, 5], a[7, 2] = torch.nan, torch.inf
    found = matrix_product(a, b, c)
    assert found[3].isnan().all()
    assert found[7].isinf().all()
    rest = [row for row in range(23) if row not in (3, 7)]
    assert found[rest].isfinite().all()


@pytest.mark.parametrize("strides", [(3, 5), (1, 7), (0, 0)], ids=str)
def test_a_single_column_may_have_any_strides(strides):
    a, memory = torch.randn(37, 33), torch.randn(200)
    b = memory.as_strided((33, 1), strides)
    assert_near(matrix_product(a, b, torch.empty(37, 1)), a.double() @ b.double(), 33)


def test_many_threads_get_tasks_that_are_large_enough_to_pack(monkeypatch):
    """No thread may be there; their number decides about the blocks alone."""
    a, b = torch.randn(200, 150), torch.randn(150, 300)
    wanted = matrix_product(a, b, torch.empty(200, 300))
    rows, launch = [], module._RECORD.launch

    def launched(kernel, tasks, work, **numbers):
        rows.append(numbers["block_rows"])
        launch(kernel, tasks, work, **numbers)

    monkeypatch.setattr(module, "TASKS", 1000)
    monkeypatch.setattr(module._RECORD, "launch", launched)
    for right in (b, by_columns(b)):
        assert torch.equal(matrix_product(a, right, torch.empty(200, 300)), wanted)
    assert rows == [module.TILE_ROWS, module.PACKING_ROWS]
