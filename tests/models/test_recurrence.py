"""LSTM and GRU layers: single steps are a sequence's, and padding has no part in anything."""

import pytest
import torch
from torch import nn
from torch.autograd import gradcheck

from processors import runs_lstm_in_bfloat16
from regard.errors import ShapeError, UnknownNameError
from regard.models import recurrence
from regard.models.recurrence import CELLS, Recurrence, StepLSTM, run_sequences

LENGTHS = torch.tensor([3, 7, 0, 5, 1])
KINDS = {"lstm": nn.LSTM, "gru": nn.GRU}


def run_steps(recurrence, inputs, state):
    outputs = []
    for input in inputs.unbind(1):
        hidden, state = recurrence.step(input, state)
        outputs.append(hidden)
    return torch.stack(outputs, dim=1), state


def problem(cell, layers, dtype=torch.float64):
    torch.manual_seed(5)
    recurrence = Recurrence(cell, 7, 5, layers).to(dtype)
    inputs = torch.randn(3, 4, 7, dtype=dtype, requires_grad=True)
    state = tuple(torch.randn(layers, 3, 5, dtype=dtype).tanh().requires_grad_() for _ in range(recurrence.states))
    return recurrence, inputs, state


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("cell", CELLS)
def test_steps_equal_a_sequence_in_values_and_all_gradients(cell, layers):
    recurrence, inputs, state = problem(cell, layers)
    leaves = [inputs, *state, *recurrence.parameters()]
    results = []
    for outputs, after in (recurrence(inputs, state), run_steps(recurrence, inputs, state)):
        everything = [outputs, *after]
        factors = [torch.linspace(0.3, 2, tensor.numel()).double().view(tensor.shape) for tensor in everything]
        total = sum((tensor * factor).sum() for tensor, factor in zip(everything, factors, strict=True))
        results.append([*everything, *torch.autograd.grad(total, leaves)])
    for whole, steps in zip(*results, strict=True):
        torch.testing.assert_close(steps, whole)


@pytest.mark.parametrize("cell", CELLS)
def test_gradients_of_recurrent_steps_are_exact(cell):
    recurrence, inputs, state = problem(cell, 1)
    assert gradcheck(lambda inputs, *state: run_steps(recurrence, inputs, state)[0], (inputs, *state))


@pytest.mark.parametrize("cell", CELLS)
def test_layers_are_those_of_pytorch_by_name_and_are_called_at_each_step(cell):
    recurrence, inputs, state = problem(cell, 2)
    theirs = KINDS[cell](7, 5, 2, batch_first=True).double()
    theirs.load_state_dict(recurrence.rnn.state_dict())
    called = []
    recurrence.rnn.register_forward_hook(lambda module, given, output: called.append(given[0].shape))
    outputs, _ = run_steps(recurrence, inputs, state)
    expected, _ = theirs(inputs, state if cell == "lstm" else state[0])
    torch.testing.assert_close(outputs, expected)
    assert called == [(3, 1, 7)] * 4


def test_dropout_between_layers_while_training():
    recurrence = Recurrence("lstm", 7, 5, 2, dropout=0.5)
    input, state = torch.randn(3, 7), tuple(torch.zeros(2, 3, 5) for _ in range(2))
    results = [recurrence.step(input, state)[0] for _ in range(2)]
    assert not torch.equal(*results)
    recurrence.eval()
    results = [recurrence.step(input, state)[0] for _ in range(2)]
    assert torch.equal(*results)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("how", ["steps", "sequence"])
def test_autocast_stays_close_to_float32(cell, how):
    recurrence, inputs, state = problem(cell, 2, torch.float32)
    run = run_steps if how == "steps" else Recurrence.__call__
    exact, _ = run(recurrence, inputs, state)
    with torch.autocast("cpu", torch.bfloat16):
        half, after = run(recurrence, inputs, state)
    torch.testing.assert_close(half.float(), exact, atol=0.03, rtol=0.03)
    torch.testing.assert_close(after[0][-1].float(), exact[:, -1], atol=0.03, rtol=0.03)
    half.float().sum().backward()
    assert all(parameter.grad.dtype == torch.float32 for parameter in recurrence.parameters())
    # PyTorch's kernel of whole sequences has cell states in bfloat16 where the processor multiplies in it.
    assert cell == "gru" or how == "sequence" or after[1].dtype == torch.float32


@pytest.mark.parametrize("size", [(1, 3, 4), (1, 3, 6), (1, 2, 5), (2, 3, 5), (3, 5)])
@pytest.mark.parametrize("which", [0, 1])
def test_a_state_of_another_size(size, which):
    recurrence, inputs, state = problem("lstm", 1)
    state = list(state)
    state[which] = torch.zeros(size, dtype=torch.float64)
    with pytest.raises(ShapeError, match=r"each state must be \[1, 3, 5\]; one is"):
        recurrence.step(inputs[:, 0], tuple(state))


def test_an_unknown_recurrent_cell_gets_a_suggestion():
    with pytest.raises(UnknownNameError, match="'lstn'; did you mean 'lstm'"):
        Recurrence("lstn", 3, 5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_step_without_a_state_is_pytorchs(dtype):
    if dtype == torch.bfloat16 and not runs_lstm_in_bfloat16():
        pytest.skip("PyTorch has no LSTM in bfloat16 on this processor")
    layers = StepLSTM(3, 5, batch_first=True, dtype=dtype)
    theirs = nn.LSTM(3, 5, batch_first=True, dtype=dtype)
    theirs.load_state_dict(layers.state_dict())
    input = torch.randn(2, 1, 3, dtype=dtype)
    assert torch.equal(layers(input)[0], theirs(input)[0])


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("on_host", [True, False], ids=["packed", "padded"])
def test_each_row_is_what_it_is_alone_in_values_and_gradients(cell, layers, on_host, monkeypatch):
    monkeypatch.setattr(recurrence, "is_on_host", lambda tensor: on_host)
    torch.manual_seed(5)
    rnn = KINDS[cell](13, 17, layers, batch_first=True, bidirectional=True, dtype=torch.float64)
    padded = torch.randn(5, 7, 13, dtype=torch.float64)
    padded[torch.arange(7) >= LENGTHS[:, None]] = torch.nan
    padded.requires_grad_()
    outputs, last = run_sequences(rnn, padded, LENGTHS)
    total = outputs.square().sum() + sum(tensor.square().sum() for tensor in last)
    grads = torch.autograd.grad(total, [padded, *rnn.parameters()])
    alone = torch.zeros((), dtype=torch.float64)
    for row, length in enumerate(LENGTHS.tolist()):
        assert not outputs[row, length:].any()
        if not length:
            assert not any(tensor[:, row].any() for tensor in last)
            continue
        expected, states = rnn(padded[row : row + 1, :length])
        states = states if cell == "lstm" else (states,)
        torch.testing.assert_close(outputs[row, :length], expected[0])
        for tensor, state in zip(last, states, strict=True):
            torch.testing.assert_close(tensor[:, row], state[:, 0])
        alone = alone + expected.square().sum() + sum(state.square().sum() for state in states)
    for one, other in zip(grads, torch.autograd.grad(alone, [padded, *rnn.parameters()]), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("cell", CELLS)
def test_rows_of_different_lengths_where_no_length_can_be_read(cell):
    rnn = KINDS[cell](3, 5, batch_first=True, bidirectional=True)
    padded = torch.randn(5, 7, 3).masked_fill((torch.arange(7) >= LENGTHS[:, None])[..., None], torch.nan)

    def total(padded):
        outputs, last = run_sequences(rnn, padded, LENGTHS)
        return outputs.square().sum() + sum(tensor.square().sum() for tensor in last)

    (expected,) = torch.autograd.grad(total(padded.requires_grad_()), padded)
    torch.testing.assert_close(torch.func.grad(total)(padded), expected)
    with torch._dynamo.config.patch(allow_rnn=True):
        compiled = torch.compile(total, backend="aot_eager", fullgraph=True)
        (found,) = torch.autograd.grad(compiled(padded), padded)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("lengths", [LENGTHS, torch.full((5,), 7)], ids=["ragged", "equal"])
@pytest.mark.parametrize("cell", CELLS)
def test_autocast_of_rows(cell, lengths, dtype):
    rnn = KINDS[cell](13, 17, batch_first=True, bidirectional=True)
    padded = torch.randn(5, 7, 13)
    exact, _ = run_sequences(rnn, padded, lengths)
    with torch.autocast("cpu", dtype):
        outputs, _ = run_sequences(rnn, padded, lengths)
    torch.testing.assert_close(outputs.float(), exact, atol=0.03, rtol=0)
    outputs.float().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in rnn.parameters())


def test_a_penalty_on_gradients_of_rows_of_different_lengths():
    rnn = nn.LSTM(3, 5, batch_first=True)
    padded = torch.randn(5, 7, 3, requires_grad=True)
    (first,) = torch.autograd.grad(run_sequences(rnn, padded, LENGTHS)[0].sum(), padded, create_graph=True)
    first.square().sum().backward()
    assert rnn.weight_hh_l0.grad.abs().sum() > 0
