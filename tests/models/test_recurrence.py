import pytest
import torch
from torch.autograd import gradcheck

from processors import runs_lstm_in_bfloat16
from regard.errors import ShapeError, UnknownNameError
from regard.models.recurrence import CELLS, Recurrence


def run_unrolled(recurrence, known, fed, state):
    run = recurrence.unroll(known)
    outputs = []
    for time in range(known.shape[1]):
        hidden, state = run.step(time, fed[:, time], state)
        outputs.append(hidden)
    return torch.stack(outputs, dim=1), state


def problem(cell, layers, dtype=torch.float64):
    torch.manual_seed(5)
    recurrence = Recurrence(cell, 7, 5, layers).to(dtype)
    known, fed = torch.randn(3, 4, 2, dtype=dtype), torch.randn(3, 4, 5, dtype=dtype)
    state = tuple(
        tuple(torch.randn(3, 5, dtype=dtype).tanh().requires_grad_() for _ in range(recurrence.states))
        for _ in range(layers)
    )
    return recurrence, known.requires_grad_(), fed.requires_grad_(), state


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("cell", CELLS)
def test_unrolled_equals_fused_in_values_and_all_gradients(cell, layers):
    recurrence, known, fed, state = problem(cell, layers)
    inputs = [known, fed, *(tensor for layer in state for tensor in layer), *recurrence.parameters()]
    found = []
    for outputs, after in (
        recurrence(torch.cat([known, fed], dim=-1), state),
        run_unrolled(recurrence, known, fed, state),
    ):
        everything = [outputs, *(tensor for layer in after for tensor in layer)]
        weights = [
            torch.linspace(0.3, 2, tensor.numel(), dtype=tensor.dtype).view(tensor.shape) for tensor in everything
        ]
        total = sum((tensor * weight).sum() for tensor, weight in zip(everything, weights, strict=True))
        found.append([*everything, *torch.autograd.grad(total, inputs)])
    for fused, unrolled in zip(*found, strict=True):
        torch.testing.assert_close(unrolled, fused)


@pytest.mark.parametrize("cell", CELLS)
def test_gradcheck(cell):
    recurrence, known, fed, state = problem(cell, 1)

    def outputs(known, fed, *tensors):
        return run_unrolled(recurrence, known, fed, (tensors,))[0]

    assert gradcheck(outputs, (known, fed, *state[0]))


@pytest.mark.parametrize("cell", CELLS)
def test_a_second_backward_pass_gives_the_same_gradients(cell):
    recurrence, known, fed, state = problem(cell, 2)
    total = run_unrolled(recurrence, known, fed, state)[0].sum()
    first, second = (torch.autograd.grad(total, list(recurrence.parameters()), retain_graph=True) for _ in range(2))
    assert all(torch.equal(once, again) for once, again in zip(first, second, strict=True))


@pytest.mark.parametrize("cell", CELLS)
def test_a_run_that_the_loss_does_not_reach_gives_no_gradient(cell):
    recurrence, known, fed, state = problem(cell, 1)
    run_unrolled(recurrence, known, fed, state)
    known.sum().backward()
    assert all(parameter.grad is None for parameter in recurrence.parameters())


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.usefixtures("processor")
def test_autocast_stays_close_to_float32(cell):
    recurrence, known, fed, state = problem(cell, 2, torch.float32)
    exact, _ = run_unrolled(recurrence, known, fed, state)
    with torch.autocast("cpu", torch.bfloat16):
        half, after = run_unrolled(recurrence, known, fed, state)
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), exact, atol=0.03, rtol=0.03)
    half.float().sum().backward()
    assert all(parameter.grad.dtype == torch.float32 for parameter in recurrence.parameters())
    if cell == "lstm":
        assert after[0][1].dtype == torch.float32


@pytest.mark.parametrize("cell", CELLS)
def test_autocast_of_a_whole_sequence(cell, processor):
    if cell == "lstm" and processor == "bfloat16 instructions" and not runs_lstm_in_bfloat16():
        pytest.skip("PyTorch has no LSTM in bfloat16 on this processor")
    recurrence, known, fed, state = problem(cell, 2, torch.float32)
    inputs = torch.cat([known, fed], dim=-1)
    exact, _ = recurrence(inputs, state)
    with torch.autocast("cpu", torch.bfloat16):
        half, after = recurrence(inputs, state)
    torch.testing.assert_close(half.float(), exact, atol=0.03, rtol=0.03)
    torch.testing.assert_close(after[-1][0].float(), exact[:, -1], atol=0.03, rtol=0.03)
    half.float().sum().backward()
    assert all(parameter.grad.dtype == torch.float32 for parameter in recurrence.parameters())


@pytest.mark.usefixtures("processor")
@pytest.mark.parametrize("cell", CELLS)
def test_a_compiled_step_of_a_loop_that_was_prepared_without_a_compiler(cell):
    recurrence, known, fed, state = problem(cell, 1, torch.float32)
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        run = recurrence.unroll(known)
        plain, _ = run.step(0, fed[:, 0], state)
        compiled, _ = torch.compile(lambda fed, state: run.step(0, fed, state), backend="eager")(fed[:, 0], state)
    assert compiled.dtype == plain.dtype == torch.bfloat16
    torch.testing.assert_close(compiled, plain, atol=0.03, rtol=0.03)


@pytest.mark.parametrize("size", [(3, 4), (3, 6), (2, 5), (1, 5), (3, 1)])
@pytest.mark.parametrize("which", [0, 1])
def test_a_state_of_another_size(size, which):
    recurrence, known, fed, ((*state,),) = problem("lstm", 1)
    state[which] = torch.zeros(size, dtype=torch.float64)
    with pytest.raises(ShapeError, match=r"each state must be \[3, 5\]; one is"):
        recurrence.unroll(known).step(0, fed[:, 0], (tuple(state),))


def test_unknown_cell():
    with pytest.raises(UnknownNameError, match="'lstn'; did you mean 'lstm'"):
        Recurrence("lstn", 3, 5)
