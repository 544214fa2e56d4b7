"""Every way in which PyTorch computes attention is seen once, and nothing of the run changes."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import regard
from watching.models import CAUSAL, HAND_WRITTEN, WEIGHTS, Heads, run, watched

pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")

MODES = [(True, True), (False, True), (False, False)]


@pytest.mark.parametrize(("train", "grad"), MODES)
@pytest.mark.parametrize("name", HAND_WRITTEN)
def test_hand_written_attention(name, train, grad):
    attend, mask = HAND_WRITTEN[name]
    model, x = Heads(attend), torch.randn(3, 7, 10)
    seen = watched(model, lambda model: model(x), train, grad)
    (call,) = seen.calls
    assert (call.name, call.layer, call.shape, call.mask) == ("", 0, (3, 2, 7, 7), mask)
    assert call.kind == ("causal" if mask == "causal" else "self")
    assert not call.weights.requires_grad
    assert call.weights.device.type == "cpu"


@pytest.mark.parametrize("name", ["sdpa", "sdpa-causal", "sdpa-dropout", "sdpa-imported", "sdpa-lowest", "softmax"])
def test_weights_are_those_of_float64_before_dropout(name):
    attend, mask = HAND_WRITTEN[name]
    model, x = Heads(attend), torch.randn(3, 7, 10)
    (call,) = watched(model, lambda model: model(x), True, True).calls
    query, key, _ = copy.deepcopy(model).double().heads(x.double())
    scores = query @ key.transpose(-1, -2) * (0.3 if name == "softmax" else 5**-0.5)
    scores = scores if mask == "none" else scores.masked_fill(~CAUSAL, -torch.inf)
    torch.testing.assert_close(call.weights.double(), scores.softmax(-1), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(call.lse.double(), scores.logsumexp(-1), rtol=1e-5, atol=1e-6)
    assert torch.equal(call.visible()[0], CAUSAL if mask == "causal" else torch.ones(7, 7, dtype=torch.bool))


def test_readings_are_those_of_observe():
    model, x = Heads(HAND_WRITTEN["sdpa-causal"][0]), torch.randn(2, 7, 10)
    read = regard.Readings(
        entropy=True,
        peak=True,
        top_k=3,
        received=True,
        distance=True,
        pooled=(2, 3),
        rows=[5, -1],
        tile=((1, 4), (0, 3)),
    )
    with torch.no_grad(), regard.watch(model, read=read) as seen:
        model(x)
        query, key, value = model.heads(x)
    expected = regard.observe(query, key, value, read=read, mask=regard.masks.causal())
    (call,) = seen.calls
    for name in expected._fields[1:]:
        found, wanted = getattr(call, name), getattr(expected, name)
        assert (found is None) == (wanted is None), name
        if wanted is not None:
            torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)


def padding():
    mask = torch.zeros(3, 5, dtype=torch.bool)
    mask[1, 3:] = True
    return mask


SQUARE = nn.Transformer.generate_square_subsequent_mask(5)
MULTI_HEAD = {
    "plain": ({}, {}, "none"),
    "weights": ({}, {"need_weights": True, "average_attn_weights": False}, "none"),
    "padding": ({}, {"key_padding_mask": padding()}, "padding"),
    "padding-weights": ({}, {"key_padding_mask": padding(), "need_weights": True}, "padding"),
    "causal": ({}, {"attn_mask": SQUARE, "is_causal": True}, "causal"),
    "causal-weights": ({}, {"attn_mask": SQUARE, "need_weights": True}, "causal"),
    "bool-and-padding": ({}, {"attn_mask": SQUARE != 0, "key_padding_mask": padding()}, "causal+padding"),
    "appended": ({"add_bias_kv": True, "add_zero_attn": True}, {"need_weights": True}, "none"),
    "no-bias": ({"bias": False}, {"need_weights": True}, "none"),
    "odd-heads": ({"num_heads": 3}, {}, "none"),
}


@pytest.mark.parametrize(("train", "grad"), MODES)
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("name", MULTI_HEAD)
def test_torch_multi_head(name, batch_first, train, grad):
    options, arguments, mask = MULTI_HEAD[name]
    model = nn.MultiheadAttention(12, **{"num_heads": 2, "dropout": 0.3, "batch_first": batch_first, **options})
    x = torch.randn(3, 5, 12) if batch_first else torch.randn(5, 3, 12)
    arguments = {"need_weights": False, **arguments}
    seen = watched(model, lambda model: model(x, x, x, **arguments)[0], train, grad)
    (call,) = seen.calls
    assert (call.kind, call.mask) == ("causal" if mask.startswith("causal") else "self", mask)
    exact = copy.deepcopy(model).double().eval()
    masks = {key: value for key, value in arguments.items() if key in ("attn_mask", "key_padding_mask")}
    masks = {key: value.double() if value.is_floating_point() else value for key, value in masks.items()}
    _, expected = exact(x.double(), x.double(), x.double(), average_attn_weights=False, **masks)
    torch.testing.assert_close(call.weights.double(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("need_weights", [False, True])
def test_torch_multi_head_cross_and_unbatched(need_weights):
    model = nn.MultiheadAttention(12, 2, kdim=7, vdim=5, batch_first=True)
    query, key, value = torch.randn(3, 4, 12), torch.randn(3, 6, 7), torch.randn(3, 6, 5)
    seen = watched(model, lambda m: m(query, key, value, need_weights=need_weights)[0], False, True)
    assert [(call.kind, call.shape) for call in seen.calls] == [("cross", (3, 2, 4, 6))]
    _, expected = model(query, key, value, average_attn_weights=False)
    torch.testing.assert_close(seen.calls[0].weights, expected)
    seen = watched(model, lambda m: m(query[0], key[0], value[0], need_weights=need_weights)[0], False, False)
    torch.testing.assert_close(seen.calls[0].weights[0], expected[0])


@pytest.mark.parametrize(("train", "grad"), MODES)
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("kind", ["none", "padding", "causal"])
def test_encoders_of_torch_are_watched(kind, norm_first, train, grad):
    """In evaluation without gradients one kernel computes a layer, and padding makes nested tensors."""
    layer = nn.TransformerEncoderLayer(12, 2, 14, batch_first=True, norm_first=norm_first)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=not norm_first)
    x = torch.randn(3, 5, 12)
    arguments = {"none": {}, "padding": {"src_key_padding_mask": padding()}, "causal": {"mask": SQUARE}}[kind]
    seen = watched(model, lambda m: m(x, **arguments), train, grad)
    assert [(call.name, call.layer, call.mask) for call in seen.calls] == [
        ("layers.0.self_attn", 0, kind),
        ("layers.1.self_attn", 1, kind),
    ]
    fast = not train and not grad
    assert {call.source for call in seen.calls} == {
        "TransformerEncoderLayer" if fast else "scaled_dot_product_attention"
    }
    if train:
        return
    exact = copy.deepcopy(model).double().eval()
    hidden, given = x.double(), next(iter(arguments.values()), None)
    given = given.double() if given is not None and given.is_floating_point() else given
    for each, call in zip(exact.layers, seen.calls, strict=True):
        own = each.norm1(hidden) if norm_first else hidden
        masks = {"none": {}, "padding": {"key_padding_mask": given}, "causal": {"attn_mask": given}}[kind]
        _, expected = each.self_attn(own, own, own, average_attn_weights=False, **masks)
        hidden = each(hidden, **{{"mask": "src_mask"}.get(key, key): given for key in arguments})
        rows = ~padding() if kind == "padding" and fast else torch.ones(3, 5, dtype=torch.bool)
        for row in range(3):
            wanted = expected[row][:, rows[row]]
            torch.testing.assert_close(call.weights[row][:, rows[row]].double(), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("sibling", "kind"), [(None, "self"), ("self_attn", "cross")])
def test_multihead_attn_attends_to_another_sequence_beside_self_attn_alone(sibling, kind):
    """As in PyTorch's decoder layers; the name alone says nothing."""
    layer = nn.Module()
    layer.multihead_attn = nn.MultiheadAttention(8, 2, batch_first=True)
    if sibling:
        layer.add_module(sibling, nn.MultiheadAttention(8, 2, batch_first=True))
    layer.forward = lambda x: layer.multihead_attn(x, x, x)
    model = nn.Sequential(layer)
    with regard.watch(model) as seen:
        model(torch.randn(1, 3, 8))
    assert [(call.name, call.kind) for call in seen.calls] == [("0.multihead_attn", kind)]


@pytest.mark.parametrize(("train", "grad"), MODES)
def test_the_transformer_of_torch_is_watched(train, grad):
    model = nn.Transformer(12, 2, 2, 2, 14, batch_first=True)
    source, target = torch.randn(3, 5, 12), torch.randn(3, 5, 12)
    seen = watched(
        model,
        lambda m: m(source, target, tgt_mask=SQUARE, tgt_is_causal=True, memory_key_padding_mask=padding()),
        train,
        grad,
    )
    assert [(call.name, call.layer, call.kind, call.mask) for call in seen.calls] == [
        ("encoder.layers.0.self_attn", 0, "self", "none"),
        ("encoder.layers.1.self_attn", 1, "self", "none"),
        ("decoder.layers.0.self_attn", 0, "causal", "causal"),
        ("decoder.layers.0.multihead_attn", 0, "cross", "padding"),
        ("decoder.layers.1.self_attn", 1, "causal", "causal"),
        ("decoder.layers.1.multihead_attn", 1, "cross", "padding"),
    ]


def test_checkpointing_is_no_second_call():
    model, x = Heads(HAND_WRITTEN["sdpa-dropout"][0]), torch.randn(3, 7, 10, requires_grad=True)
    for reentrant in (False, True):
        seen = watched(
            model, lambda m, r=reentrant: torch.utils.checkpoint.checkpoint(m, x, use_reentrant=r), True, True
        )
        assert len(seen.calls) == 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_watched_half_precision_gives_float32_weights(dtype):
    model, x = Heads(HAND_WRITTEN["sdpa-causal"][0]).to(dtype), torch.randn(3, 7, 10).to(dtype)
    (call,) = watched(model, lambda m: m(x), False, False).calls
    assert call.weights.dtype == torch.float32
    query, key, _ = model.heads(x)
    scores = (query.double() @ key.double().transpose(-1, -2) * 5**-0.5).masked_fill(~CAUSAL, -torch.inf)
    torch.testing.assert_close(call.weights.double(), scores.softmax(-1), rtol=1e-5, atol=1e-6)


def test_watched_autocast_gives_weights_that_sum_to_1():
    model, x = Heads(HAND_WRITTEN["sdpa"][0]), torch.randn(3, 7, 10)
    with torch.autocast("cpu", torch.bfloat16):
        (call,) = watched(model, lambda m: m(x).float(), True, True).calls
    torch.testing.assert_close(call.weights.sum(-1), torch.ones(3, 2, 7))


def test_grouped_heads_and_axes():
    class Grouped(nn.Module):
        def forward(self, q, k, **options):
            return F.scaled_dot_product_attention(q, k, k, **options)

    model = Grouped()
    q, k = torch.randn(3, 6, 5, 4), torch.randn(3, 2, 7, 4)
    with regard.watch(model, read=WEIGHTS) as seen:
        model(q, k, enable_gqa=True)
        model(q[:, 0], k[:, 0], attn_mask=torch.zeros(3, 5, 7))
        model(q[0, 0], k[0, 0])
        model(q.view(3, 2, 3, 5, 4), k.view(3, 2, 1, 7, 4).expand(-1, -1, 3, -1, -1))
        model(q, k[:, :1].expand(-1, 6, -1, -1), is_causal=True)
    grouped, three, two, five, causal = seen.calls
    assert (grouped.kv_heads, grouped.shape) == (2, (3, 6, 5, 7))
    expected = (q @ k.repeat_interleave(3, 1).transpose(-1, -2) / 2).softmax(-1)
    torch.testing.assert_close(grouped.weights, expected)
    torch.testing.assert_close(five.weights, expected.view(6, 3, 5, 7))
    torch.testing.assert_close(three.weights[:, 0], expected[:, 0])
    torch.testing.assert_close(two.weights[0, 0], expected[0, 0])
    # PyTorch aligns the starts: the first query sees the first key alone.
    assert causal.mask == "causal"
    assert torch.equal(causal.visible()[0], torch.ones(5, 7, dtype=torch.bool).tril())
    assert torch.equal(causal.weights[..., 0, 0], torch.ones(3, 6))


def test_a_row_that_is_lowest_throughout_is_what_the_model_computed():
    """Numbers of finfo.min in a whole row give uniform weights in PyTorch; −inf gives none."""
    mask = torch.zeros(7, 7)
    mask[2] = torch.finfo(torch.float32).min
    mask[3, 4:] = torch.finfo(torch.float32).min
    x = torch.randn(1, 7, 10)
    for attend in (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=mask),
        lambda q, k, v: ((q @ k.transpose(-1, -2) + mask).softmax(-1)) @ v,
    ):
        (call,) = watched(Heads(attend), lambda m: m(x), False, True).calls
        torch.testing.assert_close(call.weights[0, :, 2], torch.full((2, 7), 1 / 7))
        assert bool(call.visible()[0, 2].all())
        assert call.visible()[0, 3].tolist() == [True] * 4 + [False] * 3
        assert bool((call.weights[0, :, 3, 4:] == 0).all())
    hidden = mask.masked_fill(mask != 0, -torch.inf)
    attend = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=hidden)  # noqa: E731
    (call,) = watched(Heads(attend), lambda m: m(x), False, False).calls
    assert bool((call.weights[0, :, 2] == 0).all())
    assert not bool(call.visible()[0, 2].any())


def test_run_gives_what_it_gives():
    """The comparison that all tests rest on finds a difference."""
    model, x = Heads(HAND_WRITTEN["sdpa-dropout"][0]), torch.randn(3, 7, 10)
    first, second = (run(model, lambda m: m(x), True, False, seed) for seed in (1, 2))
    assert not torch.equal(first[0], second[0])
    assert not torch.equal(first[2], second[2])
