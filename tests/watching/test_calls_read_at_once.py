"""Readings that no prepared launch takes: those of pairs, and those of scores and weights that a model made."""

import copy
import pickle

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import regard
from regard.errors import ArgumentError
from regard.watching import call_reader, call_records

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


@pytest.mark.parametrize("on_host", [True, False], ids=["host", "device"])
@pytest.mark.parametrize("options", masks(), ids=["none", "causal", "padding", "dense", "bias"])
def test_readings_are_those_of_the_specification(options, on_host, monkeypatch):
    monkeypatch.setattr(call_reader, "is_on_host", lambda tensor: on_host)
    model = Heads(tensors(), **options)
    with regard.watch(model, read=EVERYTHING) as seen:
        model()
    assert len(seen.calls) == 3
    given = {"mask": options.get("attn_mask")} if "attn_mask" in options else {}
    if "is_causal" in options:
        given["mask"] = regard.masks.causal(align="start")
    elif given and given["mask"].is_floating_point():
        given["bias"] = given.pop("mask")
    for call, (query, key, value) in zip(seen.calls, model.inputs, strict=True):
        expected = regard.observe(query, key, value, **given, read=EVERYTHING, backend="reference")
        for name in FIELDS:
            torch.testing.assert_close(getattr(call, name), getattr(expected, name), equal_nan=True)
        reach = call.visible(0)[..., -1, :].any(0).nonzero().max() if "mask" in given else call.keys - 1
        assert call.reach >= reach + 1


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


def test_copies_of_a_call_have_its_readings():
    model = Heads(tensors(2))
    with regard.watch(model) as seen:
        model()
        copies = [copy.copy(seen.calls[0]), copy.deepcopy(seen.calls[1]), pickle.loads(pickle.dumps(seen.calls[1]))]
    for call, taken in zip([seen.calls[0], seen.calls[1], seen.calls[1]], copies, strict=True):
        torch.testing.assert_close(taken.entropy, call.entropy)
        assert taken.weights is None


def test_nan_of_one_call_reaches_no_other_call_read_at_once():
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


@pytest.mark.parametrize("options", [{}, {"norms": True, "outputs": True}], ids=["readings", "outputs"])
def test_readings_on_a_device_are_copied_once_a_pass(options, monkeypatch):
    copies, copy_to_host = [], torch.Tensor.cpu

    def cpu(tensor):
        copies.append(tensor.dtype)
        return copy_to_host(tensor)

    monkeypatch.setattr(call_reader, "is_on_host", lambda tensor: False)
    monkeypatch.setattr(torch.Tensor, "cpu", cpu)
    layer = nn.TransformerEncoderLayer(8, 2, 9, batch_first=True)
    model = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False).eval()
    mask = nn.Transformer.generate_square_subsequent_mask(5)
    with torch.no_grad(), regard.watch(model, read=regard.Readings(top_k=2, rows=[0]), **options) as seen:
        model(torch.randn(2, 5, 8), mask=mask, is_causal=True)
        assert not copies
    assert sorted(map(str, copies)) == ["torch.float32", "torch.int64"]
    assert [call.reach for call in seen.calls] == [5, 5, 5]
    assert all((call.head_output is not None) == bool(options) for call in seen.calls)
    assert len(copies) == 2


def test_a_device_keeps_the_readings_of_one_pass_alone(monkeypatch):
    """Those of earlier passes have been copied, and those of a pass that fails are copied when it has."""
    monkeypatch.setattr(call_reader, "is_on_host", lambda tensor: False)
    model, postponed = Heads(tensors(2)), []
    seen = regard.watch(model, read=regard.Readings(weights=True))

    def run():
        with seen:
            for _ in range(3):
                model()
                postponed.append([call.is_postponed for call in seen.calls])
            model.inputs.append((torch.ones(1), torch.ones(2), torch.ones(3)))
            model()

    with pytest.raises((RuntimeError, IndexError)):
        run()
    assert postponed == [[False] * 2 * before + [True] * 2 for before in range(3)]
    assert not any(call.is_postponed for call in seen.calls)
    assert len(seen.calls) == 8


@pytest.mark.parametrize("score", ["additive", "general", "mlp"])
def test_tiles_of_a_device_have_weights_of_their_own(score, monkeypatch):
    monkeypatch.setattr(call_records, "is_on_host", lambda tensor: False)
    layer = regard.nn.Attention.create(
        score, 7, 5, normalizer=regard.normalizers.entmax(nn.Parameter(torch.tensor(1.4)))
    )
    with torch.no_grad(), regard.watch(layer, read=regard.Readings(weights=True), keep=True) as seen:
        layer(torch.randn(2, 7), torch.randn(2, 3, 5))
    (call,) = seen.calls
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.fill_(torch.nan)
    for row, tiles in enumerate(call.tiles):
        torch.testing.assert_close(torch.from_numpy(tiles.tile((0, 1), (0, 3))), call.weights[row])
