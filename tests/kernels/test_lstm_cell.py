"""One LSTM step in a kernel against PyTorch's operations, in float64 and float32."""

from contextlib import suppress

import pytest
import torch

pytest.importorskip("numba", reason="kernels are compiled by Numba")

from regard.models import cell_equations

EXACT = {torch.float64: 1e-14, torch.float32: 3e-6}


def matrices(rows, units, dtype, scale=1.0, columns=None):
    """Gates, cell state and the gradients of both states; the rows lie further apart if there are more columns."""
    torch.manual_seed(3)

    def matrix(size):
        return (scale * torch.randn(rows, columns or size, dtype=dtype))[:, :size]

    return matrix(4 * units), matrix(units), matrix(units), matrix(units)


def step_and_gradients(gates, cell, grad_hidden, grad_cell):
    """All that both functions write."""
    gates, grad_cell = gates.clone(), grad_cell.clone()
    after, tanh_after, hidden = (torch.empty_like(cell) for _ in range(3))
    cell_equations.lstm_step(gates, cell, after, tanh_after, hidden)
    grad_gates = torch.empty_like(gates)
    cell_equations.lstm_step_gradients(gates, cell, tanh_after, grad_hidden, grad_cell, grad_gates)
    return gates, after, tanh_after, hidden, grad_cell, grad_gates


@pytest.fixture
def by_operations(monkeypatch):
    """What `step_and_gradients` gives without the kernel."""

    def run(*inputs):
        with monkeypatch.context() as patch:
            patch.setattr(cell_equations, "COMPILED", 1 << 60)
            return step_and_gradients(*inputs)

    return run


@pytest.fixture(autouse=True)
def _kernel_at_every_size(monkeypatch):
    monkeypatch.setattr(cell_equations, "COMPILED", 0)


@pytest.mark.parametrize("dtype", EXACT, ids=str)
@pytest.mark.parametrize(("rows", "units"), [(0, 4), (1, 1), (1, 3), (5, 17), (64, 128), (111, 515)])
def test_a_step_and_its_gradients(by_operations, rows, units, dtype):
    inputs = matrices(rows, units, dtype, scale=2.0)
    for found, wanted in zip(step_and_gradients(*inputs), by_operations(*inputs), strict=True):
        torch.testing.assert_close(found, wanted, rtol=EXACT[dtype], atol=EXACT[dtype])


def test_rows_may_lie_apart(by_operations):
    gates, *others = matrices(7, 20, torch.float32, columns=150)
    assert not gates.is_contiguous()
    for found, wanted in zip(step_and_gradients(gates, *others), by_operations(gates, *others), strict=True):
        torch.testing.assert_close(found, wanted)


def test_numbers_that_lie_apart_and_other_dtypes_are_left_to_pytorch(monkeypatch, by_operations):
    from regard.kernels.cpu import lstm_cell

    def refuse(*_, **__):
        raise AssertionError("given to the kernel")

    monkeypatch.setattr(lstm_cell, "lstm_step_gradients", refuse)
    gates, cell, _, grad_cell = matrices(4, 20, torch.float32)
    grad_hidden = torch.ones(4, 1).expand(4, 20)
    for found, wanted in zip(
        step_and_gradients(gates, cell, grad_hidden, grad_cell),
        by_operations(gates, cell, grad_hidden, grad_cell),
        strict=True,
    ):
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("dtype", EXACT, ids=str)
@pytest.mark.parametrize("number", [0.0, -0.0, 1e-30, 40.0, 100.0, 800.0, 1e30, float("inf")])
@pytest.mark.parametrize("sign", [1, -1])
def test_gates_of_any_size(by_operations, number, sign, dtype):
    gates, *others = matrices(2, 20, dtype)
    gates[0] = sign * number
    for found, wanted in zip(step_and_gradients(gates, *others), by_operations(gates, *others), strict=True):
        assert torch.isfinite(found).all()
        torch.testing.assert_close(found, wanted, rtol=EXACT[dtype], atol=EXACT[dtype])


def test_small_numbers_keep_their_digits():
    """The tangent of a small number is that number, however small."""
    gates, *others = matrices(1, 8, torch.float32)
    gates[:, 16:24] = torch.logspace(-30, -3, 8)
    found, *_ = step_and_gradients(gates, *others)
    torch.testing.assert_close(found[:, 16:24], gates[:, 16:24].double().tanh().float(), rtol=5e-7, atol=0)


@pytest.mark.parametrize("size", [(8, 256), (1000, 128), (3, 128), (1, 128), (8, 1), (8, 64)])
@pytest.mark.parametrize("which", [1, 2, 3])
def test_sizes_that_do_not_fit_are_no_matter_of_the_kernel(monkeypatch, which, size):
    """A kernel would read and write beyond the matrices."""
    from regard.kernels.cpu import lstm_cell

    monkeypatch.setattr(lstm_cell, "lstm_step_gradients", lambda *_, **__: pytest.fail("given to the kernel"))
    if which == 1:
        monkeypatch.setattr(lstm_cell, "lstm_step", lambda *_, **__: pytest.fail("given to the kernel"))
    inputs = list(matrices(8, 128, torch.float32))
    inputs[which] = torch.randn(size)
    # PyTorch's operations repeat one row or one unit, with a warning; all else is an error of theirs.
    with suppress(RuntimeError, UserWarning):
        step_and_gradients(*inputs)


def test_numbers_that_are_changed_as_they_are_read(by_operations):
    gates, cell, *gradients = matrices(8, 128, torch.float32)
    for odd in (torch._neg_view(cell), torch._efficientzerotensor(8, 128)):
        inputs = gates, odd, *gradients
        for found, wanted in zip(step_and_gradients(*inputs), by_operations(*inputs), strict=True):
            torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("place", range(4))
def test_nan_stays_in_its_unit(place):
    gates, *others = matrices(2, 20, torch.float32)
    gates[1, 20 * place + 7] = torch.nan
    _, after, _, hidden, *_ = step_and_gradients(gates, *others)
    assert hidden[1, 7].isnan()
    assert after[1, 7].isnan() == (place < 3)
    hidden[1, 7] = 0
    assert torch.isfinite(hidden).all()
