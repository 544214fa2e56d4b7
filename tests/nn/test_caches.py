"""Caches of every self-attention: they say what they hold, and refuse tokens that are not theirs."""

import copy
from typing import get_args

import pytest
import torch

from regard import nn
from regard.errors import ArgumentError, KindError, RegardError, ShapeError
from regard.nn.attention_names import AttentionName

BATCH, LENGTH, DIM, HEADS = 3, 5, 16, 2
NAMES = sorted(get_args(AttentionName))


def stack(name: str, heads: int = HEADS) -> nn.TransformerEncoder:
    torch.manual_seed(3)
    layer = nn.TransformerEncoderLayer(DIM, heads, 11, attention=name, bidirectional=False, batch_first=True)
    return nn.TransformerEncoder(layer, 2).eval()


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_a_cache_refuses_tokens_of_another_batch_layer_dtype_or_device(name, grad):
    with torch.set_grad_enabled(grad):
        decoder, x = stack(name), torch.randn(BATCH, LENGTH, DIM)
        _, caches = decoder.step(x)
        token = torch.randn(BATCH, 1, DIM)
        expected = decoder.step(token, caches)[0]
        for rows in (1, 2):
            with pytest.raises(ShapeError, match=f"cache must be of as many batch rows as the new tokens, {rows}; it "):
                decoder.step(token[:rows], caches)
        with pytest.raises(ShapeError, match="cache must be of as many batch rows as the new tokens, 3; it has 1"):
            decoder.step(token, decoder.step(x[:1])[1])
        with pytest.raises(ShapeError, match="cache must be one of this layer: it holds "):
            stack(name, 2 * HEADS).step(token, caches)
        with pytest.raises(KindError, match=r"it is torch\.float32 on cpu: begin with a new cache"):
            copy.deepcopy(decoder).double().step(token.double(), caches)
        with pytest.raises(KindError, match=r"on meta; it is torch\.float32 on cpu"):
            copy.deepcopy(decoder).to("meta").step(token.to("meta"), caches)
        for wrong in (caches[:1], caches * 2):
            with pytest.raises(ArgumentError, match="of which there are 2; it has "):
                decoder.step(token, wrong)
        other = stack("linear" if name != "linear" else "multihead")
        if type(other.step(x)[1][0]) is not type(caches[0]):
            with pytest.raises(KindError, match=f"it is a {type(caches[0]).__name__}"):
                other.step(token, caches)
        assert torch.equal(decoder.step(token, caches)[0], expected)  # what was refused has changed nothing


@pytest.mark.parametrize("name", NAMES)
def test_a_cache_is_shown_by_its_length_and_shapes(name):
    decoder = stack(name)
    cache = decoder.step(torch.randn(BATCH, LENGTH, DIM))[1][0]
    assert repr(decoder.layers[0].new_cache()) == f"{type(cache).__name__}(\n  length: 0\n)"
    first, second, *tensors, _ = repr(cache).splitlines()
    assert (first, second) == (f"{type(cache).__name__}(", f"  length: {LENGTH}")
    assert [line.split(":")[0].strip() for line in tensors] == [*cache.tensors]
    for line, tensor in zip(tensors, cache.tensors.values(), strict=True):
        assert f": {list(tensor.shape)} float32" in line
        assert tensor.shape[0] == BATCH
    chosen = cache.select(torch.tensor([2, 0]))
    for tensor, own in zip(chosen.tensors.values(), cache.tensors.values(), strict=True):
        assert torch.equal(tensor, own[[2, 0]])


def test_a_state_with_a_convolution_continues_no_layer_without_one():
    x, plain = torch.randn(BATCH, LENGTH, DIM), nn.DeltaNet(DIM, HEADS).eval()
    convolved = nn.DeltaNet(DIM, HEADS, kernel_size=3).eval()
    for layer, other in ((plain, convolved), (convolved, plain)):
        cache = layer(x, mask="causal", cache=layer.new_cache()).cache
        with pytest.raises(ArgumentError, match=r"cache must be one of this layer, which has (no|a) convolution"):
            other(x[:, :1], cache=cache)


def test_inputs_that_a_seen_stack_holds_are_of_the_same_batch():
    decoder = stack("multihead")
    decoder.layers[0].linear1.register_forward_hook(lambda *_: None)
    _, caches = decoder.step(torch.randn(BATCH, LENGTH, DIM))
    assert "inputs: [3, 5, 16] float32" in repr(caches[0])
    with pytest.raises(RegardError, match="cache must be of as many batch rows as the new tokens, 2; it has 3"):
        decoder.step(torch.randn(2, 1, DIM), caches)
