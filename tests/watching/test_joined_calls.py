"""Calls that are read together have the readings that each has alone, and change nothing."""

import copy
import pickle

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import regard
from regard.errors import ArgumentError
from regard.watching import call_reader, joined_calls

EVERYTHING = regard.Readings(
    entropy=True, peak=True, top_k=3, received=True, distance=True, pooled=(2, 3), rows=[1, 0],
    tile=((0, 2), (1, 4)), weights=True,
)  # fmt: skip
FIELDS = ("lse", "entropy", "peak", "top_weights", "received", "distance", "pooled_mean", "rows", "tile", "weights")


class Heads(nn.Module):
    """Attends with given tensors, one call after the other."""

    def __init__(self, inputs, **options):
        super().__init__()
        self.inputs, self.options = inputs, options

    def forward(self):
        return [F.scaled_dot_product_attention(*tensors, **self.options) for tensors in self.inputs]


def tensors(count=3, batch=2, queries=5, keys=7):
    shapes = ((batch, 3, queries, 11), (batch, 3, keys, 11), (batch, 3, keys, 13))
    return [tuple(torch.randn(shape) for shape in shapes) for _ in range(count)]


def masks():
    padding = torch.ones(2, 1, 1, 7, dtype=torch.bool)
    padding[1, ..., 4:] = False
    dense = torch.rand(2, 3, 5, 7) > 0.5
    dense[..., 0] = True
    dense[1, 2, 3] = False  # a row that sees nothing
    return [{}, {"is_causal": True}, {"attn_mask": padding}, {"attn_mask": dense}, {"attn_mask": torch.randn(5, 7)}]


@pytest.mark.parametrize("options", masks(), ids=["none", "causal", "padding", "dense", "bias"])
def test_readings_are_those_of_each_call_alone(options, monkeypatch):
    model = Heads(tensors(), **options)
    with regard.watch(model, read=EVERYTHING) as together:
        model()
    monkeypatch.setattr(joined_calls, "CALL_NUMBERS", 0)
    with regard.watch(model, read=EVERYTHING) as alone:
        model()
    assert len(together.calls) == 3
    for one, other in zip(together.calls, alone.calls, strict=True):
        assert (one.mask, one.shape, one.kind, one.layer) == (other.mask, other.shape, other.kind, other.layer)
        for name in FIELDS:
            torch.testing.assert_close(getattr(one, name), getattr(other, name), equal_nan=True)


def test_numbers_that_change_after_the_call_are_read_as_they_were():
    (query, key, value), model = tensors(1)[0], Heads([])
    model.inputs = [(query, key, value)]
    shown = torch.rand(2, 1, 5, 7) > 0.3
    shown[..., 0] = True
    model.options = {"attn_mask": shown}
    expected = ((query @ key.transpose(-1, -2)) / 11**0.5).masked_fill(~shown, -torch.inf).softmax(-1)
    with regard.watch(model, read=regard.Readings(weights=True)) as seen:
        model()
        query.zero_(), key.fill_(3.0)
        shown.copy_(torch.arange(7) < 1)  # and so does the mask, of which the next call has a new one
        model()
    torch.testing.assert_close(seen.calls[0].weights, expected)
    torch.testing.assert_close(seen.calls[1].weights, (torch.arange(7) < 1).float().expand(2, 3, 5, 7))


def test_a_reading_that_is_asked_for_within_the_context_is_there():
    model = Heads(tensors(2))
    with regard.watch(model) as seen:
        model()
        kept = seen.calls
        first = kept[0].entropy.clone()
        model()
        torch.testing.assert_close(kept[2].entropy, first)
    torch.testing.assert_close(kept[3].peak, kept[1].peak)


def test_memory_of_copies_grows_and_is_used_again():
    model = Heads(tensors(3 * joined_calls.FIRST_CALLS))
    with regard.watch(model, read=EVERYTHING) as together:
        model()
        together.calls[-1].settle()
        (joined,) = together._reader._groups.values()
        memory = [copies.data_ptr() for copies in joined.copies]
        model()  # written to where the first calls' numbers were
        together.calls[-1].settle()
        assert memory == [copies.data_ptr() for copies in joined.copies]
    for place, (query, key, _) in enumerate(model.inputs):
        expected = ((query @ key.transpose(-1, -2)) / 11**0.5).softmax(-1)
        for number in (place, place + len(model.inputs)):
            torch.testing.assert_close(together.calls[number].weights, expected)


def test_many_sizes_keep_no_memory(monkeypatch):
    monkeypatch.setattr(call_reader, "KEPT_NUMBERS", 2000)
    model = Heads([each for keys in range(5, 13) for each in tensors(2, keys=keys)])
    with regard.watch(model, read=EVERYTHING) as seen:
        model()
        groups = seen._reader._groups
        assert sum(len(joined.copies) > 0 for joined in groups.values()) < 6
        assert len(groups) == 8


def test_copies_of_a_call_have_its_readings():
    model = Heads(tensors(2))
    with regard.watch(model) as seen:
        model()
        copies = [copy.copy(seen.calls[0]), copy.deepcopy(seen.calls[1]), pickle.loads(pickle.dumps(seen.calls[1]))]
    for call, taken in zip([seen.calls[0], seen.calls[1], seen.calls[1]], copies, strict=True):
        torch.testing.assert_close(taken.entropy, call.entropy)
        assert taken.weights is None


def test_numbers_of_one_call_do_not_reach_another():
    inputs = tensors(3, batch=1)
    inputs[1][0][0, 0, 2] = torch.nan
    model = Heads(inputs)
    with regard.watch(model, read=regard.Readings(entropy=True, weights=True)) as seen:
        model()
    first, second, third = (call.weights for call in seen.calls)
    assert first.isfinite().all()
    assert third.isfinite().all()
    assert second[0, 0, 2].isnan().all()
    assert second[0, 1:].isfinite().all()


def test_copies_of_numbers_stay_below_a_limit(monkeypatch):
    monkeypatch.setattr(call_reader, "KEPT_NUMBERS", 2000)
    model = Heads(tensors(11))
    with regard.watch(model, read=EVERYTHING) as seen:
        model()
        waiting = sum("_postponed" in vars(call) for call in seen.calls)
    assert 0 < waiting < 4
    assert not any("_postponed" in vars(call) for call in seen.calls)


def test_tensors_of_the_model_are_not_kept():
    model = Heads(tensors(2))
    with regard.watch(model, read=EVERYTHING) as seen:
        model()
        seen.calls[0].settle()
        (joined,) = seen._reader._groups.values()
        assert not joined.calls
        own = {tensor.data_ptr() for tensors in model.inputs for tensor in tensors}
        assert not own & {copies.data_ptr() for copies in joined.copies}
        problem = joined.found.problem
        for tensor in (problem.query, problem.key, problem.value, joined.found.value):
            assert tensor.untyped_storage().nbytes() == tensor.element_size()


def test_readings_that_a_call_does_not_have_are_told_in_the_call():
    model = Heads(tensors(1))
    with (
        pytest.raises(ArgumentError, match="rows must be indices of the 5 queries"),
        regard.watch(model, read=regard.Readings(rows=[6])),
    ):
        model()


def test_inference_mode_may_end_before_the_readings_are_taken():
    model = Heads(tensors(2))
    with regard.watch(model, read=EVERYTHING) as seen:
        with torch.inference_mode():
            model()
        query, key, _ = model.inputs[1]
        expected = (query @ key.transpose(-1, -2) / 11**0.5).softmax(-1)
    torch.testing.assert_close(seen.calls[1].weights, expected)


def test_calls_before_an_error_of_the_model_can_be_read():
    model = Heads([*tensors(2), (torch.ones(1), torch.ones(2), torch.ones(3))])
    with pytest.raises((RuntimeError, IndexError)), regard.watch(model) as seen:
        model()
    assert seen.calls[1].entropy.shape == (2, 3, 5)
