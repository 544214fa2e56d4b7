"""The kernels of linear attention give what the recurrences give in float64, and so do their gradients."""

import pytest
import torch
from torch.nn import functional as F

from covering import covering
from linear_loops import by_loops
from regard.kernels.availability import kernels_awaited, why_missing
from regard.linear import chunked, form_of
from regard.linear.chunks import by_operations

pytestmark = pytest.mark.skipif(why_missing() is not None, reason="there are no kernels")

B, H = 2, 3
SIZES = {"odd": (5, 19), "even": (16, 32)}
LENGTHS = [1, 16, 64, 83]


@pytest.fixture(autouse=True)
def awaited():
    with kernels_awaited():
        yield


def inputs_of(size, length, gates, delta, strong=False):
    """Queries, keys, values, log-decays, strengths and a state, in float32."""
    (dim, value_dim), generator = SIZES[size], torch.Generator().manual_seed(length)

    def draw(*shape):
        return torch.rand(*shape, generator=generator)

    query, key, value = (
        draw(B, H, length, dim) - 0.5,
        draw(B, H, length, dim) - 0.5,
        draw(B, H, length, value_dim) - 0.5,
    )
    decay = None if gates is None else -draw(B, H, length, dim if gates == "features" else 1)
    if decay is not None:
        decay = decay * (200.0 if strong else 0.2)
    beta = draw(B, H, length) if delta else None
    return [query, F.normalize(key, dim=-1), value, decay, beta, draw(B, H, dim, value_dim) - 0.5]


def results_of(run, given, begins=None, dtype=torch.float32):
    """Outputs, last state, and the gradients of a function of both."""
    leaves = [None if tensor is None else tensor.to(dtype).requires_grad_() for tensor in given]
    output, last = run(*leaves, begins)
    loss = output.sin().sum() + last.cos().sum()
    return [output, last, *torch.autograd.grad(loss, [tensor for tensor in leaves if tensor is not None])]


@covering(
    size=SIZES, length=LENGTHS, gates=[None, "head", "features"], delta=[False, True], starts=[False, True],
    documents=[False, True], strong=[False, True],
)  # fmt: skip
def test_kernels_compute_the_recurrences_and_their_gradients(size, length, gates, delta, starts, documents, strong):
    given = inputs_of(size, length, gates, delta, strong)
    given[-1] = given[-1] if starts else None
    begins = None
    if documents:
        begins = torch.rand(B, length, generator=torch.Generator().manual_seed(7)) < 0.1
    expected = results_of(by_loops, given, begins, torch.float64)
    assert form_of(*given) == "fused kernels run it"
    for got, exact in zip(results_of(chunked, given, begins), expected, strict=True):
        torch.testing.assert_close(
            got.double(), exact, rtol=1e-5, atol=3e-6 * max(1.0, float(exact.detach().abs().max()))
        )


@pytest.mark.parametrize("gates", ["head", "features"])
def test_layout_and_threads_change_no_bit_of_fused_results(gates):
    given = inputs_of("odd", 70, gates, True)
    expected = results_of(chunked, given)
    scattered = [tensor.transpose(1, 2).contiguous().transpose(1, 2) for tensor in given]
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        for got, other in zip(results_of(chunked, scattered), expected, strict=True):
            assert torch.equal(got, other)
    finally:
        torch.set_num_threads(threads)


def test_long_memories_keep_their_digits_in_kernels():
    """The state of slow decays sums thousands of tokens, whose rounded decays would all err alike."""
    length = 4096
    query, key, value = (torch.ones(1, 1, length, 1) for _ in range(3))
    for gates in (1, 2):
        decay = torch.full((1, 1, length, gates), -3e-4)
        output, _ = chunked(*(part.expand(-1, -1, -1, gates) for part in (query, key)), value, decay)
        exact = gates * (1 - decay[0, 0, 0, 0].double().exp() ** length) / -torch.expm1(decay[0, 0, 0, 0].double())
        torch.testing.assert_close(output[0, 0, -1, 0].double(), exact, rtol=1e-6, atol=0)


def test_second_derivatives_and_batched_gradients_of_fused_results_are_those_of_the_operations():
    given = inputs_of("odd", 70, "features", True)
    begins = torch.arange(70).expand(B, -1) % 31 == 30

    def second(run, dtype):
        leaves = [tensor.to(dtype).requires_grad_() for tensor in given]
        output, last = run(*leaves, begins)
        first = torch.autograd.grad(output.sin().sum() + last.cos().sum(), leaves, create_graph=True)
        twice = torch.autograd.grad(sum(gradient.square().sum() for gradient in first), leaves)
        output, _ = run(*leaves, begins)
        directions = torch.stack([torch.ones_like(output), output.detach()])
        return *twice, *torch.autograd.grad(output, leaves, directions, is_grads_batched=True)

    for got, exact in zip(second(chunked, torch.float32), second(by_operations, torch.float64), strict=True):
        torch.testing.assert_close(got.double(), exact, rtol=1e-3, atol=1e-4 * float(exact.abs().max()) + 1e-6)


def test_one_tensor_as_queries_and_keys_has_one_gradient():
    given = inputs_of("odd", 20, "head", False)
    shared, rest = given[1], given[2:4]
    gradients = []
    for run, dtype in ((chunked, torch.float32), (by_operations, torch.float64)):
        leaf = shared.to(dtype).requires_grad_()
        output, _ = run(leaf, leaf, *(part.to(dtype) for part in rest))
        (first,) = torch.autograd.grad(output.sin().sum(), leaf, create_graph=True)
        gradients.append((first, *torch.autograd.grad(first.square().sum(), leaf)))
    for got, exact in zip(*gradients, strict=True):
        torch.testing.assert_close(got.double(), exact, rtol=1e-4, atol=1e-5)


def test_operations_run_what_no_kernel_takes(monkeypatch):
    given = inputs_of("odd", 20, "head", True)
    monkeypatch.setattr("regard.kernels.cpu.kernel.are_usable", lambda kernels: False)
    for got, other in zip(chunked(*given), by_operations(*given), strict=True):
        assert torch.equal(got, other)
    assert "float32" in form_of(*(tensor.double() for tensor in given))
    empty = [tensor[:, :, :0] for tensor in given[:5]]
    assert "no tokens" in form_of(*empty)
    assert torch.equal(chunked(*empty, given[5])[1], given[5])
