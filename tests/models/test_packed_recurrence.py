"""`run_packed` is ``rnn(packed)``, forward and backward."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils._python_dispatch import TorchDispatchMode

from processors import runs_lstm_in_bfloat16
from regard.kernels import availability
from regard.models import packed_lstm, packed_recurrence
from regard.models.packed_recurrence import run_packed
from regard.nn import matrix_products

LENGTHS = torch.tensor([3, 7, 1, 5, 5, 2, 7, 1, 4, 3, 6])


TOLERANCES = {torch.float64: 1e-12, torch.float32: 2e-6, torch.bfloat16: 0.03}


def results(kind, layers, dtype, bfloat16, run, bidirectional=True, lengths=LENGTHS, units=17):
    """Outputs, last states, and the gradients of input and parameters."""
    torch.manual_seed(5)
    options = {"bidirectional": bidirectional, "dropout": 0.3 if layers > 1 else 0.0, "dtype": dtype}
    rnn = kind(13, units, layers, batch_first=True, **options)
    inputs = torch.randn(len(lengths), int(lengths.max()), 13, dtype=dtype, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
        packed = pack_padded_sequence(inputs, lengths, batch_first=True, enforce_sorted=False)
        outputs, last = run(rnn, packed)
        last = last if isinstance(last, tuple) else (last,)
        weights = torch.linspace(-1, 1, outputs.data.shape[1], dtype=dtype)
        loss = (outputs.data * weights).sum() + sum(tensor.square().sum() for tensor in last)
    loss.backward()
    return [
        outputs.data.detach(),
        *(tensor.detach() for tensor in last),
        inputs.grad,
        *(parameter.grad for parameter in rnn.parameters()),
    ]


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("lengths", [LENGTHS, LENGTHS[:1], torch.tensor([4, 4, 4])], ids=["ragged", "one", "equal"])
@pytest.mark.parametrize(("dtype", "bfloat16"), [(torch.float32, False), (torch.float64, False), (torch.float32, True)])
@pytest.mark.usefixtures("processor")
def test_equal_to_pytorch(kind, layers, bidirectional, lengths, dtype, bfloat16):
    ours = results(kind, layers, dtype, bfloat16, run_packed, bidirectional, lengths)
    # Where PyTorch has no LSTM in bfloat16, its float32 is the comparison.
    as_ours = bfloat16 and (kind is nn.GRU or runs_lstm_in_bfloat16())
    theirs = results(kind, layers, dtype, as_ours, lambda rnn, packed: rnn(packed), bidirectional, lengths)
    tolerance = TOLERANCES[torch.bfloat16 if bfloat16 else dtype]
    for one, other in zip(ours, theirs, strict=True):
        # Under autocast PyTorch's dtype depends on the number of rows.
        assert one.dtype == (dtype if bfloat16 else other.dtype)
        torch.testing.assert_close(one, other.to(one.dtype), atol=tolerance * float(other.abs().max()), rtol=0)


@pytest.fixture
def in_one_kernel(monkeypatch):
    """An LSTM's steps in one kernel, also where the processor's own products would be chosen."""
    pytest.importorskip("numba", reason="kernels are compiled by Numba")
    from regard.kernels.cpu import lstm_sequence

    launched = []
    run = lstm_sequence._run
    monkeypatch.setattr(
        lstm_sequence, "_run", lambda kernel, *given: launched.append(kernel.name) or run(kernel, *given)
    )
    monkeypatch.setattr(lstm_sequence, "microkernel_is_faster", lambda: True)
    monkeypatch.setattr(packed_lstm, "COMPILED", 0)
    return launched


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("lengths", [LENGTHS, LENGTHS[:1], torch.tensor([4, 4, 4])], ids=["ragged", "one", "equal"])
@pytest.mark.parametrize("bfloat16", [False, True])
@pytest.mark.usefixtures("processor")
def test_one_kernel_gives_what_pytorch_does(in_one_kernel, layers, bidirectional, lengths, bfloat16):
    ours = results(nn.LSTM, layers, torch.float32, bfloat16, run_packed, bidirectional, lengths)
    names = ["lstm_sequence_float32", "lstm_sequence_gradients_float32"]
    assert sorted(in_one_kernel) == sorted(names * layers * (1 + bidirectional))
    theirs = results(nn.LSTM, layers, torch.float32, False, lambda rnn, packed: rnn(packed), bidirectional, lengths)
    tolerance = TOLERANCES[torch.bfloat16 if bfloat16 else torch.float32]
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, atol=tolerance * float(other.abs().max()), rtol=0)


@pytest.fixture
def multiplies_bfloat16(in_one_kernel, monkeypatch):
    """The kernels that multiply bfloat16; what is launched."""
    if not availability.multiplies_bfloat16():
        pytest.skip("this processor does not multiply bfloat16")
    monkeypatch.setattr(matrix_products, "_has_no_bfloat16", lambda: False)
    return in_one_kernel


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("lengths", [LENGTHS, LENGTHS[:1], torch.tensor([4, 4, 4])], ids=["ragged", "one", "equal"])
@pytest.mark.parametrize("units", [16, 48, 80, 24])
def test_one_kernel_multiplies_bfloat16(multiplies_bfloat16, layers, bidirectional, lengths, units):
    given = layers, torch.float32
    ours = results(nn.LSTM, *given, True, run_packed, bidirectional, lengths, units)
    words = "float32_bfloat16" if units % 16 == 0 else "float32"
    names = [f"lstm_sequence_{words}", f"lstm_sequence_gradients_{words}"]
    assert sorted(multiplies_bfloat16) == sorted(names * layers * (1 + bidirectional))
    theirs = results(nn.LSTM, *given, False, lambda rnn, packed: rnn(packed), bidirectional, lengths, units)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, atol=0.03 * float(other.abs().max()), rtol=0)


def test_a_layer_of_bfloat16_gives_and_takes_it(multiplies_bfloat16):
    rnn = nn.LSTM(24, 32, batch_first=True, dtype=torch.bfloat16)
    lengths = torch.tensor([6, 2, 5, 2])
    inputs = torch.randn(4, 6, 24, dtype=torch.bfloat16, requires_grad=True)
    packed = pack_padded_sequence(inputs, lengths, batch_first=True, enforce_sorted=False)
    found = trained(rnn, packed, torch.randn(15, 32, dtype=torch.bfloat16))
    assert "lstm_sequence_float32_bfloat16" in multiplies_bfloat16
    assert all(tensor.dtype == torch.bfloat16 and tensor.isfinite().all() for tensor in found)
    outputs, _ = rnn(packed)
    torch.testing.assert_close(found[0], outputs.data, atol=0.02, rtol=0)


@pytest.mark.parametrize("layout", ["odd offset", "spaced", "transposed"])
def test_a_weight_of_bfloat16_may_lie_anywhere(multiplies_bfloat16, layout):
    rnn = nn.LSTM(3, 16, batch_first=True, dtype=torch.bfloat16)
    inputs, lengths = torch.randn(4, 6, 3, dtype=torch.bfloat16), torch.tensor([6, 2, 5, 2])
    packed = pack_padded_sequence(inputs, lengths, batch_first=True, enforce_sorted=False)
    outer = torch.randn(len(packed.data), 16).bfloat16()
    expected = trained(rnn, packed, outer)
    weight = rnn.weight_hh_l0.detach()
    if layout == "odd offset":
        moved = torch.zeros(1 + weight.numel(), dtype=torch.bfloat16)[1:].view_as(weight)
    elif layout == "spaced":
        moved = torch.zeros(*weight.shape, 3, dtype=torch.bfloat16)[..., 1]
    else:
        moved = torch.zeros_like(weight).t().contiguous().t()
    rnn.weight_hh_l0.data = moved.copy_(weight)
    assert "lstm_sequence_float32_bfloat16" in multiplies_bfloat16
    for one, other in zip(trained(rnn, packed, outer), expected, strict=True):
        assert torch.equal(one, other)


def test_numbers_that_are_not_finite_stay_so_in_bfloat16(multiplies_bfloat16):
    rnn = nn.LSTM(3, 32, batch_first=True)
    inputs = torch.zeros(2, 5, 3)
    inputs[0, 1, 2] = torch.nan
    packed = pack_padded_sequence(inputs, torch.tensor([5, 3]), batch_first=True, enforce_sorted=False)
    with torch.autocast("cpu", torch.bfloat16):
        outputs, _ = run_packed(rnn, packed)
    assert multiplies_bfloat16
    padded, _ = nn.utils.rnn.pad_packed_sequence(outputs, batch_first=True)
    assert padded[0, 1:].isnan().all()
    assert padded[0, 0].isfinite().all()
    assert padded[1].isfinite().all()


def trained(layer, packed, outer):
    """Outputs, last states and gradients, where the outputs' gradient is ``outer``."""
    outputs, last = run_packed(layer, packed)
    gradients = torch.autograd.grad((outputs.data, *last), list(layer.parameters()), (outer, *last))
    return [outputs.data, *last, *gradients]


@pytest.mark.parametrize("short", [False, True])
def test_one_kernel_gives_the_same_bits_on_any_number_of_threads(in_one_kernel, request, short):
    if short:
        request.getfixturevalue("multiplies_bfloat16")
    rnn = nn.LSTM(64, 96, batch_first=True)
    lengths = torch.randint(1, 12, (37,), generator=torch.Generator().manual_seed(2))
    packed = pack_padded_sequence(torch.randn(37, 11, 64), lengths, batch_first=True, enforce_sorted=False)
    outer = torch.randn(len(packed.data), 96)
    threads, found = torch.get_num_threads(), []
    try:
        for number in (1, 3):
            torch.set_num_threads(number)
            with torch.autocast("cpu", torch.bfloat16, enabled=short):
                found.append(trained(rnn, packed, outer)[:3])
    finally:
        torch.set_num_threads(threads)
    assert in_one_kernel
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


@pytest.mark.usefixtures("in_one_kernel")
def test_one_kernel_takes_a_gradient_however_its_numbers_lie():
    rnn = nn.LSTM(3, 8, batch_first=True)
    packed = pack_padded_sequence(
        torch.randn(4, 6, 3), torch.tensor([6, 2, 5, 2]), batch_first=True, enforce_sorted=False
    )
    plain = torch.randn(8, len(packed.data)).t()
    expected = trained(rnn, packed, plain.contiguous())
    spaced = torch.stack([plain, plain], dim=-1)[..., 0]
    wide = torch.cat([plain, plain], dim=1)[:, 8:]
    for outer in (plain, spaced, wide):
        for one, other in zip(trained(rnn, packed, outer), expected, strict=True):
            assert torch.equal(one, other)
    row = torch.randn(8)
    expected = trained(rnn, packed, row.repeat(len(packed.data), 1))
    for one, other in zip(trained(rnn, packed, row.expand(len(packed.data), 8)), expected, strict=True):
        assert torch.equal(one, other)


@pytest.mark.usefixtures("processor")
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_autocast_without_a_gradient(kind):
    rnn = kind(13, 17, batch_first=True, bidirectional=True)
    packed = pack_padded_sequence(torch.randn(11, 7, 13), LENGTHS, batch_first=True, enforce_sorted=False)
    exact, _ = run_packed(rnn, packed)
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        found, last = run_packed(rnn, packed)
    torch.testing.assert_close(found.data.float(), exact.data, atol=0.03, rtol=0)
    assert len(last) == (2 if kind is nn.LSTM else 1)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_a_second_backward_pass_gives_the_same_gradients(kind):
    rnn = kind(3, 5, batch_first=True, bidirectional=True)
    inputs, lengths = torch.randn(4, 6, 3), torch.tensor([6, 2, 5, 2])
    outputs, last = run_packed(rnn, pack_padded_sequence(inputs, lengths, batch_first=True, enforce_sorted=False))
    total = outputs.data.square().sum() + sum(tensor.sum() for tensor in last)
    first, second = (torch.autograd.grad(total, list(rnn.parameters()), retain_graph=True) for _ in range(2))
    assert all(torch.equal(once, again) for once, again in zip(first, second, strict=True))


class Written(TorchDispatchMode):
    """Counts the elements of all tensors that operations return."""

    def __init__(self):
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        if isinstance(found, torch.Tensor) and not func.is_view:
            self.elements += found.numel()
        return found


def test_the_backward_pass_is_linear_in_the_steps():
    def written(steps):
        rnn = nn.LSTM(8, 16, batch_first=True, bidirectional=True)
        inputs, lengths = torch.randn(23, steps, 8), torch.full((23,), steps)
        packed = pack_padded_sequence(inputs, lengths, batch_first=True, enforce_sorted=False)
        outputs, _ = run_packed(rnn, packed)
        with Written() as record:
            outputs.data.sum().backward()
        return record.elements

    assert written(48) < 5 * written(12)


def test_without_a_gradient_pytorch_runs_it(monkeypatch):
    monkeypatch.setattr(packed_recurrence, "LSTMDirection", None)
    rnn = nn.LSTM(3, 5, batch_first=True, bidirectional=True)
    packed = pack_padded_sequence(torch.randn(2, 4, 3), torch.tensor([4, 2]), batch_first=True, enforce_sorted=False)
    with torch.no_grad():
        outputs, last = run_packed(rnn, packed)
        expected, _ = rnn(packed)
    assert torch.equal(outputs.data, expected.data)
    assert [tuple(tensor.shape) for tensor in last] == [(2, 2, 5)] * 2
