"""Activation checkpointing and chunks of rows: less memory, and not a bit of the gradients changes."""

import weakref
from itertools import pairwise

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks

from regard import attend, masks, nn
from regard.errors import ArgumentError
from regard.nn.attention_heads import AttentionHeads
from regard.nn.recomputation import in_chunks, recomputed

B, S, T, D, H, F = 3, 7, 5, 12, 2, 17
SOURCE_LENGTHS, TARGET_LENGTHS = torch.tensor([7, 3, 1]), torch.tensor([2, 5, 4])


def make(**options):
    torch.manual_seed(5)
    return nn.Transformer.create(2, 2, nn.LayerConfig(D, H, F, **options))


def gradients(model, lengths=(SOURCE_LENGTHS, TARGET_LENGTHS)):
    """Output, gradients of inputs and parameters, and a random number drawn after them."""
    torch.manual_seed(6)
    source, target = torch.randn(B, S, D, requires_grad=True), torch.randn(B, T, D, requires_grad=True)
    output = model(source, target, tgt_mask="causal", src_lengths=lengths[0], tgt_lengths=lengths[1])
    names = dict(model.named_parameters())
    found = torch.autograd.grad((output * torch.randn_like(output)).sum(), [source, target, *names.values()])
    named = dict(zip(["source", "target", *names], found, strict=True))
    return {"output": output, **named, "next random number": torch.rand(())}


@pytest.mark.parametrize("chunk", [0, 1, 4])
@pytest.mark.parametrize(
    "options",
    [{}, {"norm_first": True}, {"position": "rotary", "kv_heads": 1}, {"normalizer": "entmax15"}, {"position": "t5"}],
    ids=str,
)
def test_checkpointing_changes_no_bit(options, chunk):
    kept = gradients(make(dropout=0.3, feedforward_chunk=chunk, **options))
    again = gradients(make(dropout=0.3, feedforward_chunk=chunk, activation_checkpointing=True, **options))
    for name, value in kept.items():
        assert torch.equal(value, again[name]), name
        assert value.abs().sum() > 0, name


@pytest.mark.parametrize("lengths", [(None, None), (SOURCE_LENGTHS, TARGET_LENGTHS)], ids=["full", "padded"])
@pytest.mark.parametrize("chunk", [1, 4, 1000])
def test_chunks_of_rows_change_nothing(chunk, lengths):
    whole = gradients(make(dropout=0.0).double().float(), lengths)
    parts = gradients(make(dropout=0.0, feedforward_chunk=chunk), lengths)
    for name, value in whole.items():
        torch.testing.assert_close(parts[name], value, rtol=1e-4, atol=1e-5)


def test_checkpointing_under_autocast_changes_no_bit():
    with torch.autocast("cpu", torch.bfloat16):
        kept, again = (gradients(make(dropout=0.3, activation_checkpointing=on)) for on in (False, True))
    assert all(torch.equal(value, again[name]) for name, value in kept.items())


def kept_bytes(model, length):
    """Bytes that the forward pass of an encoder keeps for the backward pass, without parameters."""
    found = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        found[storage.data_ptr()] = tensor
        return tensor

    torch.manual_seed(6)
    input = torch.randn(1, length, D, requires_grad=True)
    with saved_tensors_hooks(keep, lambda tensor: tensor):
        output = model(input, mask=masks.window(2, 2))
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    assert output.requires_grad
    return sum(tensor.untyped_storage().nbytes() for place, tensor in found.items() if place not in own)


def test_checkpointing_keeps_two_tensors_of_each_layer():
    length, layers = 331, (1, 3)
    found = []
    for number in layers:
        config = nn.LayerConfig(D, H, F, dropout=0.3, norm_first=True, activation_checkpointing=True)
        found.append(kept_bytes(nn.TransformerEncoder.create(number, config), length))
    (fewer, more), tensor = found, length * D * 4
    assert more - fewer <= 2 * (layers[1] - layers[0]) * tensor + 1000
    kept = kept_bytes(nn.TransformerEncoder.create(3, nn.LayerConfig(D, H, F, dropout=0.3, norm_first=True)), length)
    assert kept > 4 * more


@pytest.mark.parametrize("backend", ["reference", "tiled", "cpu", "sdpa"])
@pytest.mark.parametrize("size", [1.0, 1e5])
def test_each_part_runs_twice_whatever_the_backend(backend, size, monkeypatch):
    """Not three times: a backend that reads what was saved would make the forward pass compute it again."""
    calls = []
    whole = nn.MultiheadAttention.attend_heads
    monkeypatch.setattr(
        nn.MultiheadAttention, "attend_heads", lambda *given, **named: calls.append(1) or whole(*given, **named)
    )
    attend_documents = AttentionHeads._attend_documents

    def counted(*given):
        attended = attend_documents(*given)
        calls.extend([1] * (attended is not None))
        return attended

    monkeypatch.setattr(AttentionHeads, "_attend_documents", counted)
    found = []
    for on in (False, True):
        model = make(dropout=0.0, backend=backend, activation_checkpointing=on)
        with torch.no_grad():
            for layer in model.encoder.layers:
                layer.self_attn.in_proj_weight.mul_(size)
        found.append(gradients(model))
        if size == 1.0:
            assert len(calls) == 6 * (1 + on)
        calls.clear()
    assert all(torch.equal(value, found[1][name]) for name, value in found[0].items())


def test_recomputed_functions_run_once_where_no_gradient_is_wanted():
    calls = []

    def counted(number):
        calls.append(number)
        return number * number.sin()

    with torch.no_grad():
        recomputed(counted)(torch.ones(3))
    assert len(calls) == 1
    number = torch.ones(3, requires_grad=True)
    recomputed(counted)(number).sum().backward()
    assert len(calls) == 3
    torch.testing.assert_close(number.grad, torch.ones(3).sin() + torch.ones(3).cos())


def test_derivatives_of_torch_func_are_those_without_checkpointing():
    rows = torch.randn(2, S, D, dtype=torch.float64)
    found = []
    for on in (False, True):
        torch.manual_seed(5)
        config = nn.LayerConfig(D, H, F, dropout=0.0, activation_checkpointing=on, backend="reference")
        layer = config.encoder_layer().double()
        found.append(torch.func.grad(lambda rows, layer=layer: layer(rows).square().sum())(rows))
    assert torch.equal(*found)
    assert found[0].abs().sum() > 0


def test_second_derivatives_are_those_without_checkpointing():
    found = []
    for on in (False, True):
        torch.manual_seed(5)
        config = nn.LayerConfig(
            D, H, F, dropout=0.0, activation="gelu", activation_checkpointing=on, backend="reference"
        )
        layer, rows = config.encoder_layer().double(), torch.randn(2, S, D, dtype=torch.float64, requires_grad=True)
        (first,) = torch.autograd.grad(layer(rows).square().sum(), rows, create_graph=True)
        found.append(torch.autograd.grad(first.square().sum(), rows)[0])
    torch.testing.assert_close(*found)


def test_decoding_with_a_cache_is_the_same_with_checkpointing():
    source, target = torch.randn(B, S, D), torch.randn(B, T, D)
    found = []
    for on in (False, True):
        model = make(dropout=0.0, activation_checkpointing=on)
        remembered, caches = model.decoder.remember(model.encoder(source)), [nn.KeyValueCache()] * 2
        parts = []
        for start, stop in pairwise([0, 2, 3, T]):
            rows, caches, _ = model.decoder.step(target[:, start:stop], remembered, caches)
            parts.append(rows.view(B, -1, D))
        found.append(torch.cat(parts, 1))
    assert torch.equal(*found)


def test_a_chunk_has_at_most_so_many_rows_and_the_gradient_of_all():
    sizes = []

    def squares(one, other):
        sizes.append(len(one))
        return one * other

    one, other = torch.randn(7, 2, requires_grad=True), torch.randn(7, 2, requires_grad=True)
    in_chunks(squares, 3, one, other).sum().backward()
    assert sizes == [3, 3, 1]
    assert torch.equal(one.grad, other)
    assert torch.equal(other.grad, one)
    assert in_chunks(squares, 3, one[:0], other[:0]).shape == (0, 2)


def test_negative_chunks_are_refused():
    with pytest.raises(ArgumentError, match="feedforward_chunk must be at least 0; it is -1"):
        make(feedforward_chunk=-1)


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_a_masked_call_keeps_its_inputs_only_as_saved_tensors(backend):
    """Saved tensors can be given up by a hook; what else holds the inputs cannot."""
    first = torch.randn(2, 3, 70, 4, requires_grad=True)
    query, key, value = (first * factor for factor in (1.0, 2.0, 3.0))
    places = [weakref.ref(tensor) for tensor in (query, key, value)]
    with saved_tensors_hooks(lambda tensor: None, lambda nothing: nothing):
        output = attend(query, key, value, mask=masks.window(2, 2), backend=backend)
    del query, key, value
    assert output.requires_grad
    assert [place() for place in places] == [None] * 3
