"""Regard's own layers, decoders and their cached steps."""

import itertools
import operator
from functools import reduce

import pytest
import torch
from torch import nn as torch_nn

import regard
from regard import masks, nn
from regard.nn.key_values import KeyValueCache
from regard.shapes.grid import Grid
from watching.models import WEIGHTS, watched


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize(("train", "grad"), [(True, True), (False, False)])
def test_multihead_attention_is_watched(need_weights, train, grad):
    model = nn.MultiheadAttention(12, 6, 0.2, batch_first=True, kv_heads=2, position=regard.positions.Rotary(2))
    x = torch.randn(3, 5, 12)
    seen = watched(model, lambda m: m(x, x, x, is_causal=True, need_weights=need_weights)[0], train, grad)
    (call,) = seen.calls
    assert (call.name, call.kind, call.mask, call.source) == ("", "causal", "causal", "regard")
    assert (call.heads, call.kv_heads) == (6, 2)
    if not train:
        _, weights = model(x, x, x, is_causal=True, average_attn_weights=False)
        torch.testing.assert_close(call.weights, weights.detach())


class Verb(torch_nn.Module):
    """A model that calls a verb of regard."""

    def __init__(self, **options):
        super().__init__()
        self.options = options

    def forward(self, query, key):
        return regard.attend(query, key, key, **self.options)


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("is_random", [False, True])
@pytest.mark.parametrize("leading", [(), (3,)], ids=["two axes", "three axes"])
def test_a_call_of_fewer_axes_has_heads(leading, is_random, keep):
    """It is watched as the same call with four axes, and shown by everything that shows a call."""
    if is_random and keep:
        pytest.skip("weights that are drawn cannot be computed again")
    batch = leading[0] if leading else 1
    query, key = torch.randn(2, *leading, 4, 6)
    mask = torch.rand(*leading, 4, 4, generator=torch.Generator().manual_seed(1)) > 0.3
    with_heads = [tensor.reshape(batch, 1, *tensor.shape[-2:]) for tensor in (query, key, mask)]
    readings = {} if keep else {"weights": True, "entropy": True, "received": True, "rows": (0,)}
    calls = []
    for tensors in ((query, key, mask), with_heads):
        generator = torch.Generator().manual_seed(2)
        normalizer = regard.normalizers.Hard("sample", generator=generator) if is_random else "softmax"
        model = Verb(mask=tensors[2], normalizer=normalizer)
        read = None if keep else regard.Readings(**readings)
        with torch.no_grad(), regard.watch(model, read=read, keep=keep) as seen:
            for _ in range(3):  # from the second one on, launches may be prepared
                model(*tensors[:2])
        calls.append(seen.calls)
        assert all("<table" in shown._repr_html_() for shown in (seen, seen.calls[0]))
        for example in range(batch):
            view = regard.View(seen, list("abcd"), example=example)
            document = seen.document(view.document.records[0].queries, batch_row=example)
            assert len(document.records) == len(view.document.records) > 0
    for fewer, four in zip(*calls, strict=True):
        assert fewer.shape == four.shape == (batch, 1, 4, 4)
        for name in readings:
            torch.testing.assert_close(getattr(fewer, name), getattr(four, name))


@pytest.mark.parametrize("backend", ["reference", "tiled", "auto"])
def test_a_reading_of_another_mask_is_no_call_of_the_model(backend, recwarn):
    class Observing(torch_nn.Module):
        def forward(self, x):
            selected = masks.columns(torch.tensor([[0, 1]]))
            read = regard.Readings(recall=True)
            return regard.observe(x, x, x, mask=selected, read=read, backend=backend).recall

    x = torch.randn(2, 3, 5, 4)
    with regard.watch(torch_nn.Sequential(Observing())) as seen:
        recall = seen.model(x)
    assert len(seen.calls) == 1
    assert torch.equal(recall, Observing()(x))
    assert not recwarn.list


def test_padding_of_a_causal_stack_receives_nothing():
    stack = nn.TransformerEncoder.create(1, nn.LayerConfig(12, 2, dropout=0.0)).eval()
    with regard.watch(stack, read=regard.Readings(received=True)) as seen:
        stack(torch.randn(2, 7, 12), lengths=torch.tensor([7, 3]), mask=masks.causal())
    (call,) = seen.calls
    assert call.mask == "causal+padding"
    assert (call.received[1, :, 3:] == 0).all()


def test_drop_in_inside_of_torch_layers():
    layer = torch_nn.TransformerEncoderLayer(12, 2, 14, batch_first=True)
    layer.self_attn = nn.MultiheadAttention(12, 2, batch_first=True, normalizer="entmax15")
    seen = watched(layer, lambda m: m(torch.ones(1, 5, 12)), False, False)
    assert [(call.name, call.source) for call in seen.calls] == [("self_attn", "regard")]


X, MAP = torch.randn(2, 6, 8), torch.randn(2, 16, 4, 4)
LAYERS = [
    (nn.MultiheadAttention(8, 2, batch_first=True), (X, X, X), "self"),
    (nn.SelfAttention(8, 2), (X,), "self"),
    (nn.DifferentialAttention(8, 2), (X,), "self"),
    (nn.LatentAttention(8, 2, kv_rank=4), (X,), "self"),
    (nn.NativeSparseAttention(8, 2), (X,), "self"),
    (nn.IndexedAttention(8, 2, selected=2), (X,), "self"),
    (nn.CompressedAttention(8, 2, compressed=2), (X,), "self"),
    (nn.LinearAttention(8, 2), (X,), "self"),
    (nn.SlotAttention(8, 2), (X,), "self"),
    (nn.Attention("dot"), (X[:, 0], X), "cross"),
    (nn.AttentionPooling(8), (X,), "cross"),
    (nn.CoAttention(8), (X, X), "cross"),
    (nn.DeformableAttention(16, 2), (X.repeat(1, 1, 2), X[..., :2], MAP), "self"),
    (nn.PositionAttention(16), (MAP,), "self"),
    (nn.NonLocal(16), (MAP,), "self"),
    (nn.TransformerDecoderLayer(8, 2, batch_first=True), (X, X), "self"),
]


@pytest.mark.parametrize(("layer", "inputs", "expected"), LAYERS, ids=[type(layer).__name__ for layer, *_ in LAYERS])
def test_layers_say_themselves_what_they_are(layer, inputs, expected, monkeypatch):
    """No local variable of a function on the stack is looked at."""
    monkeypatch.setattr("regard.watching.owners.ModuleNames.owner", lambda names, frame: pytest.fail("a frame"))
    model = torch_nn.Sequential()
    model.add_module("layer", layer.eval())
    with torch.no_grad(), regard.watch(model) as seen:
        model.layer(*inputs)
    assert all(call.name.split(".")[0] == "layer" for call in seen.calls)
    assert {call.kind for call in seen.calls} - {"causal"} >= {expected}


@pytest.mark.parametrize("score", ["additive", "general", "location_aware"])
def test_attention_of_a_decoder(score):
    options = {"channels": 2, "kernel_size": 3} if score == "location_aware" else {}
    model = nn.Attention.create(score, 7, 5, 4 if score != "general" else None, **options)
    annotations, lengths = torch.randn(3, 6, 5), torch.tensor([6, 2, 4])
    queries = torch.randn(4, 3, 7)

    def steps(model):
        memory = model.remember(annotations, lengths)
        return torch.stack([model(query, memory, need_weights=False).output for query in queries])

    for train, grad in ((True, True), (False, False)):
        seen = watched(model, steps, train, grad)
        assert [(call.kind, call.mask, call.shape) for call in seen.calls] == [("cross", "padding", (3, 1, 1, 6))] * 4
        memory = model.remember(annotations, lengths)
        expected = torch.stack([model(query, memory).weights.detach() for query in queries], dim=1)
        (joined,) = seen.stitched()
        torch.testing.assert_close(joined.weights[:, 0], expected)
        assert joined.visible(1)[0].tolist() == [[True] * 2 + [False] * 4] * 4


def test_decoder_layers_with_a_cache():
    """The steps of a cached decoder, whose rows a search reorders, are joined to what the whole pass computes."""
    config = nn.LayerConfig(12, 2, position="rotary")
    model = nn.Transformer.create(1, 2, config).eval()
    source, target = torch.randn(3, 5, 12), torch.randn(3, 4, 12)
    names = [
        ("encoder.layers.0.self_attn", 0, "self"),
        ("decoder.layers.0.self_attn", 0, "causal"),
        ("decoder.layers.0.multihead_attn", 0, "cross"),
        ("decoder.layers.1.self_attn", 1, "causal"),
        ("decoder.layers.1.multihead_attn", 1, "cross"),
    ]
    with torch.no_grad(), regard.watch(model, read=WEIGHTS) as whole:
        model(source, target, tgt_mask="causal")
    assert [(call.name, call.layer, call.kind) for call in whole.calls] == names
    order = torch.tensor([2, 0, 1])
    with torch.no_grad(), regard.watch(model, read=WEIGHTS) as seen:
        memory = model.decoder.remember(model.encoder(source))
        caches = [KeyValueCache() for _ in range(2)]
        rows = target
        for step in range(4):
            caches = model.decoder.step(rows[:, step : step + 1], memory, caches).caches
            if step == 1:
                caches, rows = [cache.select(order) for cache in caches], rows[order]
                memory = [part.select(order) for part in memory]
    joined = seen.stitched()
    assert [(call.name, call.layer, call.kind) for call in joined] == names
    for call, expected in zip(joined, whole.calls, strict=True):
        assert call.shape == expected.shape
        own = expected.weights if call.kind == "self" else expected.weights[order]
        torch.testing.assert_close(call.weights, own, rtol=1e-5, atol=1e-6)


def test_mask_kinds_of_regard():
    class Attend(torch_nn.Module):
        def forward(self, x, mask):
            return regard.attend(x, x, x, mask=mask)

    model, x = Attend(), torch.randn(2, 1, 7, 4)
    given = {
        "none": None,
        "causal": masks.causal(),
        "window": masks.window(2, 0),
        "padding": masks.lengths([7, 3]),
        "causal+padding": masks.causal() & masks.lengths([7, 3]),
        "documents": masks.documents(torch.tensor([[0, 0, 0, 1, 1, 1, 1]] * 2)),
        "dense": masks.keep(torch.eye(7, dtype=torch.bool).roll(1, 0)[None] | torch.eye(7, dtype=torch.bool)[None]),
    }
    with regard.watch(model, read=WEIGHTS) as seen:
        for mask in given.values():
            model(x, mask)
    assert [call.mask for call in seen.calls] == list(given)
    assert [call.kind for call in seen.calls] == ["self", "causal", "causal", "self", "causal", "self", "self"]


def test_mask_kinds_are_those_that_are_documented():
    """Whatever masks are combined: a name of the documented set, which says what the mask does."""
    from regard.watching.mask_kind import MASK_KINDS, read_mask

    parts = {
        "causal": masks.causal(),
        "window": masks.window(2, 0),
        "documents": masks.documents(torch.tensor([[0, 0, 0, 1, 1, 1, 1]] * 2)),
        "padding": masks.lengths([7, 3]),
        "wide window": masks.window(2, 1),
        "prefix": masks.prefix(3),
        "dense": masks.keep(torch.eye(7, dtype=torch.bool).roll(1, 0) | torch.eye(7, dtype=torch.bool)),
    }
    grid = Grid.whole(2, 1, 7, 7, torch.device("cpu"))
    seen = set()
    for count in range(1, 5):
        for names in itertools.combinations(parts, count):
            mask = reduce(operator.and_, [parts[name] for name in names])
            kind = read_mask(mask, grid).kind
            seen.add(kind)
            assert kind in MASK_KINDS, names
            if {"dense", "prefix"} & set(names):
                assert kind == "dense", names
                continue
            has_window = any("window" in name for name in names)
            assert ("window" in kind) == has_window, names
            assert ("causal" in kind) == ("causal" in names and not has_window), names
            assert ("documents" in kind, "padding" in kind) == ("documents" in names, "padding" in names), names
    assert seen == set(MASK_KINDS) - {"none"}


def test_random_weights_are_those_that_were_used():
    class Attend(torch_nn.Module):
        def forward(self, x):
            return regard.attend(x, x, torch.eye(6)[None, None], normalizer=regard.normalizers.hard(mode="gumbel"))

    model, x = Attend(), torch.randn(1, 1, 6, 4)
    torch.manual_seed(5)
    with regard.watch(model, read=WEIGHTS) as seen:
        output = model(x)
    assert torch.equal(seen.calls[0].weights, output)
