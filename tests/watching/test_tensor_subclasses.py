"""Subclasses of Tensor in watched models: a call is what the class makes of it, and its record describes that call."""

import threading
import warnings
from contextlib import ExitStack

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F
from torch.nn.attention.bias import causal_lower_right, causal_upper_left

import regard
from regard.errors import UnseenError
from regard.watching import UnseenAttentionWarning, ablate
from watching.models import WEIGHTS

SDPA = F.scaled_dot_product_attention


class Call(nn.Module):
    num_heads = 2

    def forward(self, *args, **options):
        return F.scaled_dot_product_attention(*args, **options)


class Captured(nn.Module):
    num_heads = 2

    def forward(self, *args, **options):
        return SDPA(*args, **options)


def causal_bias(make, queries, keys):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # rows without keys
        return make(queries, keys)


def tensors(queries, keys, heads=2):
    return torch.randn(3, heads, queries, 4), *(torch.randn(3, heads, keys, 4) for _ in range(2))


@pytest.mark.parametrize("kind", [Call, Captured])
@pytest.mark.parametrize("sizes", [(3, 5), (5, 5), (5, 3), (1, 5), (2, 1)])
@pytest.mark.parametrize(("make", "aligns_ends"), [(causal_lower_right, True), (causal_upper_left, False)])
def test_causal_bias_of_torch_is_watched(kind, sizes, make, aligns_ends):
    """The memory of ``torch.nn.attention.bias.CausalBias`` is never filled (torch 2.13): its class says what it is."""
    model, (queries, keys), mask = kind(), sizes, causal_bias(make, *sizes)
    q, k, v = tensors(*sizes)
    expected = model(q, k, v, attn_mask=mask)
    shown = torch.ones(sizes, dtype=torch.bool).tril(keys - queries if aligns_ends else 0)
    with regard.watch(model, read=WEIGHTS, outputs=True) as seen:
        output = model(q, k, v, attn_mask=mask)
        model(q, k, v, mask, 0.0, scale=0.5)
    assert type(output) is torch.Tensor
    assert torch.equal(output, expected)
    for call in seen.calls:
        assert torch.equal(call.visible()[0], shown)
        assert torch.equal(call.weights > 0, shown.expand_as(call.weights))
        assert call.mask == ("none" if shown.all() else "causal")
        assert call.kind == "causal" or queries == 1
    torch.testing.assert_close(seen.calls[0].head_output, expected)


def test_a_head_of_a_causal_bias_is_switched_off():
    model, mask, (q, k, v) = Call(), causal_lower_right(3, 5), tensors(3, 5)
    expected = model(q, k, v, mask).index_fill(1, torch.tensor(1), 0.0)
    with ablate(model, 0, 1):
        assert torch.equal(model(q, k, v, mask), expected)


def test_pytorchs_name_stays_what_it_is():
    """Classes, modes and other threads compare it with the function that they are called for."""
    results = []
    mask, (q, k, v) = causal_lower_right(3, 5), tensors(3, 5)
    expected = F.scaled_dot_product_attention(q, k, v, mask)

    def elsewhere():
        results.append(F.scaled_dot_product_attention(q, k, v, mask))

    layer = nn.MultiheadAttention(8, 2, batch_first=True)
    with regard.watch(layer) as seen:
        assert F.scaled_dot_product_attention is SDPA
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        results.append(F.scaled_dot_product_attention(q, k, v, mask))
        layer(*[torch.randn(1, 3, 8)] * 3, need_weights=False)
    assert all(torch.equal(result, expected) for result in results)
    assert [call.source for call in seen.calls] == ["scaled_dot_product_attention"]


class Causal(torch.Tensor):
    """Means that later keys are hidden, whatever its elements are."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is F.scaled_dot_product_attention:
            return func(*args[:3], is_causal=True)
        return super().__torch_function__(func, types, args, kwargs or {})


class Named(torch.Tensor):
    """Numbers, and no more."""


class Silent(torch.Tensor):
    """Computes attention by itself."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is F.scaled_dot_product_attention:
            return args[2][..., : args[0].shape[-2], :] * 2
        return super().__torch_function__(func, types, args, kwargs or {})


def test_classes_that_decide_what_a_call_computes():
    model, (q, k, v) = Call(), tensors(5, 7)
    numbers = torch.randn(5, 7)
    for mask, kind in ((numbers.as_subclass(Causal), "causal"), (numbers.as_subclass(Named), "none")):
        expected = model(q, k, v, attn_mask=mask)
        with regard.watch(model, read=WEIGHTS, outputs=True) as seen:
            assert torch.equal(model(q, k, v, attn_mask=mask), expected)
        (call,) = seen.calls
        assert (call.mask, call.has_bias) == (kind, kind == "none")
        torch.testing.assert_close(call.head_output, expected.as_subclass(torch.Tensor))
    every = [tensor.as_subclass(Named) for tensor in (q, k, v)]
    with regard.watch(model, read=WEIGHTS) as seen:
        assert type(model(*every)) is Named
    torch.testing.assert_close(seen.calls[0].weights, (q @ k.mT / 2).softmax(-1))
    with pytest.raises(UnseenError, match="no attention call"), regard.watch(model):
        model(q, k, v, attn_mask=numbers.as_subclass(Silent))


@pytest.mark.parametrize("need_weights", [True, False])
def test_a_tensor_subclass_in_multihead_attention_is_watched(need_weights):
    model, x = nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(1, 5, 8)
    named = x.as_subclass(Named)
    expected = model(x, x, x, need_weights=True, average_attn_weights=False)[1]
    output = model(named, named, named, need_weights=need_weights)[0]
    with regard.watch(model, read=WEIGHTS) as seen:
        again = model(named, named, named, need_weights=need_weights)[0]
    assert type(again) is type(output)
    assert torch.equal(again, output)
    (call,) = seen.calls
    torch.testing.assert_close(call.weights, expected)


@pytest.mark.parametrize("mode_first", [True, False])
def test_a_mode_around_multi_head_attention(mode_first):
    class Counting(torch.overrides.TorchFunctionMode):
        count = 0

        def __torch_function__(self, func, types, args=(), kwargs=None):
            Counting.count += func is F.multi_head_attention_forward
            return func(*args, **(kwargs or {}))

    model, x = nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(1, 5, 8)
    expected = model(x, x, x, need_weights=False)[0]
    seen = regard.watch(model)
    with ExitStack() as contexts:
        for context in (Counting(), seen) if mode_first else (seen, Counting()):
            contexts.enter_context(context)
        assert torch.equal(model(x, x, x, need_weights=False)[0], expected)
    assert (len(seen.calls), Counting.count) == (1, 1)


def reasons(function):
    """What is told of a call that cannot be read, beside one that can be."""
    both = nn.ModuleDict({"call": Call(), "other": nn.MultiheadAttention(4, 2)})
    both.forward = lambda: (function(both["call"]), both["other"](*[torch.randn(3, 4)] * 3))
    with pytest.warns(UnseenAttentionWarning) as warned, regard.watch(both) as seen:
        both()
    assert [call.name for call in seen.calls] == ["other"]
    return str(warned[0].message)


def test_tensors_without_elements_are_told_in_one_sentence():
    (q, k, v), shown = tensors(3, 5), torch.ones(3, 5, dtype=torch.bool)
    for function in (
        lambda model: model(*(tensor.to("meta") for tensor in (q, k, v))),
        lambda model: model(*(tensor.to("meta") for tensor in (q, k, v)), attn_mask=shown.to("meta")),
        lambda model: model(q, k, v, attn_mask=shown.to("meta")),
    ):
        assert "its tensors are on the meta device and have no elements" in reasons(function)
    model = Call()
    with FakeTensorMode() as mode:
        fake = [mode.from_tensor(tensor) for tensor in (q, k, v)]
        with pytest.raises(UnseenError, match="its query is a FakeTensor and has no elements"), regard.watch(model):
            model(*fake)


def test_divided_tensors_are_told_in_one_sentence():
    from torch import distributed
    from torch.distributed.tensor import Replicate, distribute_tensor, init_device_mesh

    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        divided = [distribute_tensor(tensor, mesh, [Replicate()]) for tensor in tensors(5, 5)]
        mask = distribute_tensor(torch.ones(5, 5, dtype=torch.bool).tril(), mesh, [Replicate()])
        assert "it is a DTensor" in reasons(lambda model: model(*divided))
        assert "it is a DTensor" in reasons(lambda model: model(*divided, attn_mask=mask))
    finally:
        distributed.destroy_process_group()
