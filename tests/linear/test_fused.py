"""The kernels of linear attention give what the recurrences give in float64, and so do their gradients."""

from math import inf, nan

import pytest
import torch
from torch.nn import functional as F

import regard
from covering import covering
from linear_loops import by_loops
from regard.errors import ArgumentError
from regard.kernels.availability import kernels_awaited, why_missing
from regard.linear import chunked, form_of, recurrent
from regard.linear.chunks import by_operations

pytestmark = pytest.mark.skipif(why_missing() is not None, reason="there are no kernels")

B, H = 2, 3
SIZES = {"odd": (5, 19), "even": (16, 32), "wide": (67, 71)}
LENGTHS = [1, 16, 64, 83, 133]


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
    # Up to 2, where the rule reflects what a key recalls.
    beta = 2.0 * draw(B, H, length) if delta else None
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
        begins = begins_of(length)
    expected = results_of(by_loops, given, begins, torch.float64)
    assert form_of(*given) == "fused kernels run it"
    for got, exact in zip(results_of(chunked, given, begins), expected, strict=True):
        torch.testing.assert_close(
            got.double(), exact, rtol=1e-5, atol=3e-6 * max(1.0, float(exact.detach().abs().max()))
        )


def begins_of(length):
    return torch.rand(B, length, generator=torch.Generator().manual_seed(7)) < 0.1


@pytest.mark.parametrize("gates", ["head", "features"])
@pytest.mark.parametrize("run", [chunked, by_operations])
def test_log_decays_of_minus_infinity_clear_the_state_in_every_form(run, gates):
    given = inputs_of("odd", 83, gates, True)
    given[3] = torch.where(torch.rand(given[3].shape, generator=torch.Generator().manual_seed(5)) < 0.2, -inf, given[3])
    expected = results_of(by_loops, given, dtype=torch.float64)
    for got, exact in zip(results_of(lambda *all: run(*all[:6], begins=all[6]), given), expected, strict=True):
        torch.testing.assert_close(got.double(), exact, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(recurrent(*given)[0].double(), expected[0], rtol=1e-5, atol=1e-5)
    assert (results_of(chunked, given)[5][given[3] == -inf] == 0).all()


@pytest.mark.parametrize("gates", ["head", "features"])
@pytest.mark.parametrize("run", [chunked, by_operations])
def test_log_decays_of_empty_states_have_a_gradient_of_exactly_zero(run, gates):
    given, begins = inputs_of("odd", 83, gates, True), begins_of(83)
    given[-1] = None
    gradient = results_of(lambda *all: run(*all[:6], begins=all[6]), given, begins)[5].transpose(1, 2)
    assert (gradient[begins] == 0).all()
    assert (gradient[:, 0] == 0).all()
    assert (gradient[:, 1:][~begins[:, 1:]] != 0).any()


def test_log_decays_above_zero_are_refused_in_chunks():
    given = inputs_of("odd", 5, "head", False)
    with pytest.raises(ArgumentError, match="at most 0"):
        chunked(*given[:3], -given[3])


def test_outputs_of_kernels_can_be_changed_in_place():
    given = inputs_of("odd", 83, "head", True)
    leaves = [tensor.requires_grad_() for tensor in given]
    changed, last = chunked(*leaves)
    changed.mul_(2.0)
    last.add_(1.0)
    got = torch.autograd.grad(changed.sum() + last.sum(), leaves)
    output, last = chunked(*leaves)
    output.detach().zero_()
    for one, other in zip(got, torch.autograd.grad(2 * output.sum() + last.sum(), leaves), strict=True):
        assert torch.equal(one, other)


def test_changes_of_what_kernels_saved_are_noticed():
    leaves = [tensor.requires_grad_() for tensor in inputs_of("odd", 20, "head", True)]
    values = leaves[2] * 1.0
    output, _ = chunked(*leaves[:2], values, *leaves[3:])
    values.detach().zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.sum().backward()


def test_single_inputs_of_kernels_have_the_gradients_of_all():
    given = inputs_of("odd", 83, "features", True)
    together = results_of(chunked, given)[2:]
    for index, expected in enumerate(together):
        inputs = [tensor.detach().clone() for tensor in given]
        output, last = chunked(*inputs[:index], inputs[index].requires_grad_(), *inputs[index + 1 :])
        (output.sin().sum() + last.cos().sum()).backward()
        assert torch.equal(inputs[index].grad, expected)


@pytest.mark.parametrize("gates", [None, "head", "features"])
def test_nonfinite_tokens_in_kernels_reach_no_earlier_chunk(gates):
    given = inputs_of("odd", 133, gates, True)
    expected, _ = chunked(*given)
    for tensor in given[:3]:
        spoiled = [part if part is not tensor else tensor.index_fill(2, torch.tensor(130), nan) for part in given]
        output, _ = chunked(*spoiled)
        assert torch.equal(output[:, :, :128], expected[:, :, :128])
        assert output[:, :, 130:].isnan().any()
    changed = [given[0], given[1].index_fill(2, torch.tensor(70), nan), *given[2:]]
    output = regard.attend(*changed[:3], score="dot", normalizer="identity", mask="causal", backend="linear")
    assert output[:, :, :70].isfinite().all()
    assert output[:, :, 70:].isnan().all()


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


def test_kernels_and_operations_bound_log_decays_alike():
    from regard.kernels.cpu import linear_arguments
    from regard.linear import log_decays

    assert linear_arguments.LEAST_LOG_DECAY == log_decays.LEAST_LOG_DECAY
    assert torch.tensor(log_decays.LEAST_LOG_DECAY).exp() == 0
