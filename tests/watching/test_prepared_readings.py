"""Small calls whose kernels are compiled are read by launches that are kept: with the readings that each has alone."""

import gc
import pickle
import weakref

import pytest
import torch
from torch import nn
from torch.nn import functional as F

pytest.importorskip("numba", reason="kernels are compiled by Numba")

import regard
from regard.attention.backends.cpu.prepared_launches import MOST_CALLS, PreparedReading
from regard.kernels.cpu.kernel import Kernel
from regard.watching import mask_kind
from regard.watching.call_reader import LaunchedReadings

STATISTICS = regard.Readings(entropy=True, peak=True, received=True, distance=True)
WITH_TOP = regard.Readings(entropy=True, peak=True, top_k=3, received=True, distance=True)
FIELDS = ("lse", "entropy", "peak", "top_weights", "received", "distance")


class Layer(nn.Module):
    """Attends with given tensors."""

    def __init__(self, tensors, **options):
        super().__init__()
        self.tensors, self.options = tensors, options

    def forward(self):
        return F.scaled_dot_product_attention(*self.tensors, **self.options)


class Model(nn.Module):
    def __init__(self, inputs, **options):
        super().__init__()
        self.layers = nn.ModuleList(Layer(tensors, **options) for tensors in inputs)

    def forward(self):
        return [layer() for layer in self.layers]


def tensors(count=3, batch=2, heads=3, queries=11, keys=13, dim=5):
    shapes = ((batch, queries, heads, dim), (batch, keys, heads, dim), (batch, keys, heads, dim + 2))
    return [tuple(torch.randn(shape).transpose(1, 2) for shape in shapes) for _ in range(count)]


@pytest.fixture(autouse=True)
def _compiled():
    query = torch.randn(1, 1, 16, 4)
    for read in (STATISTICS, WITH_TOP):
        regard.observe(query, query, query, read=read, backend="cpu")


def are_prepared(calls):
    """Whether calls have readings in one piece of memory; nothing was asked of them yet."""
    return [isinstance(vars(call).get("_postponed"), LaunchedReadings) for call in calls]


def assert_exact(call, query, key, hidden=None):
    """The readings are those of float64."""
    scores = query.double() @ key.double().mT / query.shape[-1] ** 0.5
    if hidden is not None:
        scores = scores.masked_fill(hidden, -torch.inf)
    weights = scores.softmax(-1).nan_to_num(0)
    expected = {
        "lse": scores.logsumexp(-1),
        "entropy": torch.special.entr(weights).sum(-1),
        "peak": weights.amax(-1),
        "received": weights.sum(-2),
    }
    for name, value in expected.items():
        got = getattr(call, name)
        assert got.dtype == torch.float32
        torch.testing.assert_close(got.double(), value, rtol=1e-5, atol=1e-5)


def options():
    padding = torch.ones(2, 1, 1, 13, dtype=torch.bool)
    padding[1, ..., 9:] = False
    numbers = torch.zeros(2, 1, 11, 13).masked_fill(~padding, -torch.inf)
    return {
        "none": {}, "causal": {"is_causal": True}, "padding": {"attn_mask": padding}, "numbers": {"attn_mask": numbers},
    }  # fmt: skip


def hidden_by(chosen):
    if "is_causal" in chosen:
        return ~torch.ones(11, 13, dtype=torch.bool).tril()
    mask = chosen.get("attn_mask")
    return None if mask is None else (~mask if mask.dtype == torch.bool else mask == -torch.inf)


@pytest.mark.parametrize("read", [STATISTICS, WITH_TOP], ids=["statistics", "top"])
@pytest.mark.parametrize("given", options())
def test_readings_are_exact_in_this_context_and_later_ones(given, read):
    chosen = options()[given]
    model = Model(tensors(), **chosen)
    for _ in range(2):
        with regard.watch(model, read=read) as seen:
            model()
        assert all(are_prepared(seen.calls))
        assert [(call.name, call.layer) for call in seen.calls] == [(f"layers.{n}", n) for n in range(3)]
        for call, layer in zip(seen.calls, model.layers, strict=True):
            assert_exact(call, *layer.tensors[:2], hidden_by(chosen))
            assert (call.top_weights is not None) == (read is WITH_TOP)
            assert call.weights is None
            if read is WITH_TOP:
                query, key, _ = layer.tensors
                alone = regard.observe(query, key, key, mask=call.visible_mask, read=read, backend="reference")
                if given == "none":
                    torch.testing.assert_close(call.top_weights, alone.top_weights)
                    assert torch.equal(call.top_indices, alone.top_indices)
                    torch.testing.assert_close(call.distance, alone.distance)


def test_more_calls_than_memory_is_taken_for_at_once():
    model = Model(tensors(2 * MOST_CALLS + 3))
    for _ in range(2):
        with regard.watch(model, read=STATISTICS) as seen:
            model()
        assert all(are_prepared(seen.calls))
        for call, layer in zip(seen.calls, model.layers, strict=True):
            assert_exact(call, *layer.tensors[:2])
    # Neither a call's readings nor a copy of them holds those of other calls.
    own = [getattr(call, name) for call in seen.calls for name in FIELDS if getattr(call, name) is not None]
    one_call = sum(tensor.nbytes for tensor in own) / len(seen.calls)
    assert max(tensor.untyped_storage().nbytes() for tensor in own) < 1.5 * one_call


def test_outputs_are_the_same_bits():
    model = Model(tensors())
    expected = model()
    for _ in range(2):
        with regard.watch(model, read=STATISTICS):
            got = model()
        assert all(torch.equal(one, other) for one, other in zip(got, expected, strict=True))


def test_numbers_that_change_after_the_call_were_read():
    model = Model(tensors(1))
    query, key, _ = model.layers[0].tensors
    before = query.clone(), key.clone()
    for _ in range(2):
        with regard.watch(model, read=STATISTICS) as seen:
            model()
            query.zero_(), key.fill_(3.0)
        assert_exact(seen.calls[0], *before)
        query.copy_(before[0]), key.copy_(before[1])


def test_chosen_heads_and_layers():
    model = Model(tensors())
    for _ in range(2):
        with regard.watch(model, read=STATISTICS, heads=[2, 0], layers=1) as seen:
            model()
        (call,) = seen.calls
        assert are_prepared([call]) == [True]
        assert (call.layer, call.chosen_heads) == (1, (2, 0))
        query, key, _ = model.layers[1].tensors
        assert_exact(call, query[:, [2, 0]], key[:, [2, 0]])
    with regard.watch(model, read=STATISTICS) as seen:
        model()
    assert seen.calls[1].entropy.shape == (2, 3, 11)


def test_other_sizes_layouts_and_scales_are_other_calls():
    inputs = tensors(1) + tensors(1, keys=14) + [tuple(each.contiguous() for each in tensors(1)[0])]
    model = Model(inputs)
    model.layers.append(Layer(inputs[0], scale=2.0))
    for _ in range(2):
        with regard.watch(model, read=STATISTICS) as seen:
            model()
        for call, layer in zip(seen.calls, model.layers, strict=True):
            query, key, _ = layer.tensors
            factor = layer.options.get("scale", query.shape[-1] ** -0.5) * query.shape[-1] ** 0.5
            assert_exact(call, query * factor, key)
            assert call.scale == pytest.approx(factor / query.shape[-1] ** 0.5)


def test_a_mask_that_changed_is_another_one():
    mask = torch.ones(2, 1, 1, 13, dtype=torch.bool)
    model = Model(tensors(1), attn_mask=mask)
    with regard.watch(model, read=STATISTICS) as seen:
        for last in (13, 5, 9):
            mask.copy_(torch.arange(13) < last)
            model()
    for call, last in zip(seen.calls, (13, 5, 9), strict=True):
        assert_exact(call, *model.layers[0].tensors[:2], (torch.arange(13) >= last).expand(2, 1, 1, 13))


def test_a_mask_that_calls_share_is_analysed_once(monkeypatch):
    analysed, read_tensor = [], mask_kind.read_tensor
    monkeypatch.setattr(mask_kind, "read_tensor", lambda mask: analysed.append(mask) or read_tensor(mask))
    padding = options()["padding"]["attn_mask"]
    model = Model(tensors(3), attn_mask=padding)
    with regard.watch(model, read=STATISTICS) as seen:
        model()
        model()
    assert len(analysed) == 1
    launches = [vars(call)["_postponed"].launches for call in seen.calls]
    assert all(each is launches[0] for each in launches)


def test_tensors_that_are_negated_when_they_are_read():
    ((query, key, value),) = tensors(1)
    negated = torch.complex(torch.zeros_like(query), -query).conj().imag
    assert negated.is_neg()
    torch.testing.assert_close(negated, query)
    model = Model([(query, key, value), (negated, key, value), (query, key, value)])
    for _ in range(2):
        with regard.watch(model, read=STATISTICS) as seen:
            model()
        for call in seen.calls:
            assert_exact(call, query, key)


def test_nan_of_one_call_reaches_no_other_prepared_reading():
    inputs = tensors(3)
    inputs[1][0][0, 0, 2] = torch.nan
    model = Model(inputs)
    with regard.watch(model, read=STATISTICS) as seen:
        model()
    first, second, third = (call.entropy for call in seen.calls)
    assert first.isfinite().all()
    assert third.isfinite().all()
    assert second[0, 0, 2].isnan()
    assert second[0, 1:].isfinite().all()


def test_a_kernel_that_is_not_compiled_is_not_waited_for(monkeypatch, no_kernel_awaited):
    monkeypatch.setattr(Kernel, "is_compiled", False)
    monkeypatch.setattr("regard.kernels.cpu.compiling_process.BACKGROUND.request", lambda source: None)
    model = Model(tensors())
    with regard.watch(model, read=STATISTICS) as seen:
        model()
    assert not any(are_prepared(seen.calls))
    for call, layer in zip(seen.calls, model.layers, strict=True):
        assert_exact(call, *layer.tensors[:2])
    monkeypatch.undo()
    with regard.watch(model, read=STATISTICS) as seen:
        model()
    assert all(are_prepared(seen.calls))


def test_prepared_readings_hold_no_tensor_of_the_model():
    model = Model(tensors())
    kept = [weakref.ref(tensor) for layer in model.layers for tensor in layer.tensors]
    storages = {tensor.data_ptr() for layer in model.layers for tensor in layer.tensors}
    with regard.watch(model, read=STATISTICS) as seen:
        model()
    calls = seen.calls
    assert not storages & {vars(call)["_postponed"].launches.initial.data_ptr() for call in calls}
    del model, seen
    gc.collect()
    assert [reference() for reference in kept] == [None] * len(kept)
    assert calls[2].entropy.isfinite().all()


def test_more_than_statistics_is_read_at_once():
    model = Model(tensors())
    for read in (regard.Readings(weights=True), regard.Readings(rows=[0]), regard.Readings(pooled=(2, 2))):
        with regard.watch(model, read=read) as seen:
            model()
            assert not any(are_prepared(seen.calls))
    with regard.watch(model, read=STATISTICS, keep=True) as seen:
        model()
    for call, layer in zip(seen.calls, model.layers, strict=True):
        assert_exact(call, *layer.tensors[:2])
        assert len(call.tiles) == 2


def test_records_survive_pickling_and_inference_mode():
    model = Model(tensors())
    with regard.watch(model, read=STATISTICS) as seen, torch.inference_mode():
        model()
    assert all(are_prepared(seen.calls))
    copies = [pickle.loads(pickle.dumps(call)) for call in seen.calls]
    for call, layer in zip(copies, model.layers, strict=True):
        assert_exact(call, *layer.tensors[:2])
    assert not seen.calls[0].entropy.mul_(0).any()


def test_gradients_are_the_same_bits():
    model = Model([tuple(each.requires_grad_() for each in one) for one in tensors()])
    leaves = [tensor for layer in model.layers for tensor in layer.tensors]
    expected = torch.autograd.grad(sum(each.square().sum() for each in model()), leaves)
    for _ in range(2):
        with regard.watch(model, read=STATISTICS) as seen:
            loss = sum(each.square().sum() for each in model())
        got = torch.autograd.grad(loss, leaves)
        assert all(torch.equal(one, other) for one, other in zip(got, expected, strict=True))
        assert not any(call.entropy.requires_grad for call in seen.calls)


def test_no_launch_is_kept_for_keys_that_are_transposed_a_few_heads_at_a_time(monkeypatch):
    monkeypatch.setattr("regard.kernels.cpu.launch.TRANSPOSED_ELEMENTS", 7)
    query = torch.randn(1, 3, 32, 4)
    problem = regard.attention.problem.validate(query, query, query)
    kept = PreparedReading.of(problem, WITH_TOP)
    assert kept is None or not kept.transposed


@pytest.mark.parametrize("read", [STATISTICS, WITH_TOP], ids=["statistics", "top"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("number", [torch.inf, torch.nan, 1e30])
def test_a_row_that_is_not_finite_has_the_readings_of_the_specification(number, causal, read):
    """A number that is infinite, NaN, or so large that products overflow."""
    query, key, value = tensors(1)[0]
    query[1, 2, 7, 0] = number
    key[1, 2, 4, 0] = min(number, 1e30)
    model = Model([(query, key, value)] * 2, is_causal=causal)
    with regard.watch(model, read=read) as seen:
        model()
    assert all(are_prepared(seen.calls))
    mask = regard.masks.causal(align="start") if causal else None
    expected = regard.observe(query, key, value, mask=mask, read=read, backend="reference")
    for call in seen.calls:
        for name in FIELDS:
            if (other := getattr(expected, name)) is not None:
                got = getattr(call, name).to(other.dtype)
                torch.testing.assert_close(got, other, rtol=1e-4, atol=1e-4, equal_nan=True)
