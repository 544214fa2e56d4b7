"""Linear attention in chunks, token by token and all at once is one recurrence, written here in plain loops."""

import pytest
import torch
from torch.nn import functional as F

from covering import covering
from linear_loops import by_loops
from regard.linear import chunked, recurrent

B, H, D, V = 2, 3, 5, 7
GATES = {"none": None, "head": 1, "features": D}


def tokens(length, gates, delta, strong=False, seed=0):
    """Query, key, value, log-decays, strengths and a state before the first token."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    query, key = (draw(B, H, length, D) - 0.5 for _ in range(2))
    value, state = draw(B, H, length, V) - 0.5, draw(B, H, D, V) - 0.5
    decay = None if GATES[gates] is None else -draw(B, H, length, GATES[gates]) * (500.0 if strong else 0.5)
    beta = draw(B, H, length) if delta else None
    return query, F.normalize(key, dim=-1), value, decay, beta, state


def form(name):
    return recurrent if name == "recurrent" else lambda *inputs: chunked(*inputs, chunk=name)


@covering(chunk=[1, 3, 6, 64], gates=GATES, delta=[False, True], starts=[False, True])
def test_a_document_begins_with_an_empty_state(chunk, gates, delta, starts):
    *given, state = tokens(13, gates, delta)
    begins = torch.tensor([[i in (0, 1, 5, 6) for i in range(13)], [i == 7 for i in range(13)]])
    results = []
    for run in (by_loops, lambda *inputs: chunked(*inputs, chunk=chunk)):
        leaves = [None if tensor is None else tensor.clone().requires_grad_() for tensor in (*given, state)]
        leaves[-1] = leaves[-1] if starts else None
        output, last = run(*leaves, begins)
        wanted = [tensor for tensor in leaves if tensor is not None]
        results.append([output, last, *torch.autograd.grad(output.sin().sum() + last.cos().sum(), wanted)])
    for got, expected in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-10)


@covering(
    name=["recurrent", 1, 3, 6, 13, 64], gates=GATES, delta=[False, True], length=[1, 13], strong=[False, True],
    starts=[False, True],
)  # fmt: skip
def test_every_form_gives_the_outputs_the_state_and_the_gradients_of_the_loops(
    name, gates, delta, length, strong, starts
):
    given = [*tokens(length, gates, delta, strong)]
    given[-1] = given[-1] if starts else None
    results = []
    for run in (by_loops, form(name)):
        leaves = [None if tensor is None else tensor.clone().requires_grad_() for tensor in given]
        output, state = run(*leaves)
        wanted = [tensor for tensor in leaves if tensor is not None]
        loss = output.sin().sum() + state.cos().sum()
        results.append([output, state, *torch.autograd.grad(loss, wanted)])
    for got, expected in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", ["recurrent", 4])
def test_a_state_continues_a_sequence(name):
    query, key, value, decay, beta, _ = tokens(11, "features", True)
    whole, last = form(name)(query, key, value, decay, beta)
    parts, state = [], None
    for start, stop in ((0, 5), (5, 5), (5, 11)):
        cut = (tensor[:, :, start:stop] for tensor in (query, key, value, decay, beta))
        output, state = form(name)(*cut, state)
        parts.append(output)
    torch.testing.assert_close(torch.cat(parts, dim=2), whole, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(state, last, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("gates", ["head", "features"])
def test_no_decay_overflows_in_single_precision(gates):
    """Sums of log-decays far below what an exponential of the opposite sign could stand."""
    inputs = [tensor if tensor is None else tensor.float() for tensor in tokens(200, gates, True, strong=True)]
    exact = chunked(*(tensor.double() for tensor in inputs))
    for got, expected in zip(chunked(*inputs), exact, strict=True):
        torch.testing.assert_close(got.double(), expected, rtol=1e-4, atol=1e-5)
