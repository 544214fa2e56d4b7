"""Tensors whose elements are not what they stand for: read by their meaning, or refused by name, wherever they come."""

import pytest
import torch
from torch import nn
from torch.masked import masked_tensor
from torch.nn.attention.bias import causal_lower_right
from torch.nn.attention.flex_attention import create_block_mask
from torch.utils._pytree import tree_map

import regard
from regard import biases, masks
from regard import nn as layers
from regard.errors import KindError

pytestmark = [
    pytest.mark.filterwarnings("ignore:The PyTorch API of (nested|MaskedTensors)"),
    pytest.mark.filterwarnings("ignore:.*quantize"),
]

QUERY, KEY = torch.randn(1, 2, 5, 4), torch.randn(1, 2, 5, 4)
NUMBERS, SHOWN = torch.randn(5, 5), torch.ones(5, 5, dtype=torch.bool).tril()


def quantized():
    return torch.quantize_per_tensor(NUMBERS, 0.1, 0, torch.quint8)


NO_NUMBERS = {
    "CausalBias": lambda: causal_lower_right(5, 5),
    "MaskedTensor": lambda: masked_tensor(NUMBERS, SHOWN),
    "UninitializedParameter": nn.UninitializedParameter,
    "nested": lambda: torch.nested.nested_tensor([NUMBERS, NUMBERS]),
    "layout": lambda: NUMBERS.to_sparse(),
    "uint8|quantized": quantized,
    "on meta|meta": lambda: NUMBERS.to("meta"),
}
"""By what a message names: makers of tensors that are no numbers of the pairs."""

VERBS = {
    "attend": regard.attend,
    "observe": regard.observe,
    "attend_with_weights": regard.attend_with_weights,
    "plan": regard.plan,
    "explain": lambda query, key, value, **options: regard.explain(query[0, 0], key[0, 0], value[0, 0], **options),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("name", NO_NUMBERS)
def test_verbs_refuse_them_by_name(verb, name):
    for argument in ("bias", "mask"):
        with pytest.raises(KindError, match=rf"{argument}.* ({name}|must hold bools)"):
            VERBS[verb](QUERY, KEY, KEY, **{argument: NO_NUMBERS[name]()})
    with pytest.raises(KindError, match=name):
        regard.attend(NO_NUMBERS[name](), NO_NUMBERS[name](), KEY)


@pytest.mark.parametrize("at", range(3))
def test_a_nested_input_of_four_axes_is_refused_by_name(at):
    inputs = [QUERY, KEY, KEY]
    inputs[at] = torch.nested.nested_tensor([inputs[at][0]])
    with pytest.raises(KindError, match=f"{('query', 'key', 'value')[at]} must be a dense tensor; it is a nested"):
        regard.attend(*inputs)


@pytest.mark.parametrize("name", ["CausalBias", "UninitializedParameter", "nested", "layout"])
def test_makers_of_masks_and_biases_refuse_them(name):
    tensor = NO_NUMBERS[name]()
    for make in (masks.keep, masks.ignore, masks.lengths, masks.documents, biases.TensorBias, biases.alibi(2).__add__):
        with pytest.raises(KindError, match=name):
            make(tensor)


@pytest.mark.parametrize("name", NO_NUMBERS)
def test_layers_refuse_them(name):
    x, tensor = torch.randn(1, 5, 8), NO_NUMBERS[name]()
    attention = layers.MultiheadAttention(8, 2, batch_first=True)
    encoder = layers.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    decoder = layers.TransformerDecoderLayer(8, 2, 16, batch_first=True)
    transformer = layers.Transformer(8, 2, 1, 1, 16, batch_first=True)
    for call in (
        lambda: attention(x, x, x, attn_mask=tensor),
        lambda: attention(x, x, x, key_padding_mask=tensor),
        lambda: encoder(x, src_mask=tensor),
        lambda: decoder(x, x, tgt_mask=tensor),
        lambda: decoder(x, x, memory_mask=tensor),
        lambda: transformer(x, x, src_mask=tensor),
    ):
        with pytest.raises(KindError, match=rf"_mask must .*({name}|floats)"):
            call()


def test_a_block_mask_is_answered_with_its_line():
    block_mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, 5, 5, device="cpu")
    for part in (block_mask, block_mask.kv_indices, block_mask.kv_num_blocks, block_mask.to_dense()):
        with pytest.raises(KindError):
            regard.attend(QUERY, KEY, KEY, mask=part)
        with pytest.raises(KindError):
            regard.attend(QUERY, KEY, KEY, bias=part)
    with pytest.raises(KindError, match=r"write mask=masks\.where\(block_mask\.mask_mod\)"):
        regard.attend(QUERY, KEY, KEY, mask=block_mask)
    x = torch.randn(1, 5, 8)
    with pytest.raises(KindError, match=r"BlockMask \(write mask=masks\.where"):
        layers.MultiheadAttention(8, 2, batch_first=True)(x, x, x, attn_mask=block_mask)
    expected = regard.attend(QUERY, KEY, KEY, mask=masks.causal())
    torch.testing.assert_close(regard.attend(QUERY, KEY, KEY, mask=masks.where(block_mask.mask_mod)), expected)


class Wrapped(torch.Tensor):
    """A tensor without memory of its own, which stands for another one in all functions."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, tensor):
        made = torch.Tensor._make_wrapper_subclass(
            cls, tensor.shape, strides=tensor.stride(), dtype=tensor.dtype, device=tensor.device
        )
        made.tensor = tensor
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        def unwrapped(value):
            return value.tensor if isinstance(value, Wrapped) else value

        def wrapped(value):
            return Wrapped(value) if isinstance(value, torch.Tensor) else value

        return tree_map(wrapped, func(*tree_map(unwrapped, args), **tree_map(unwrapped, kwargs or {})))


@pytest.mark.parametrize("backend", ["auto", "reference", "tiled", "sdpa", "cpu"])
@pytest.mark.parametrize("argument", ["bias", "mask", "value"])
def test_a_tensor_without_memory_has_its_meaning_in_every_backend(backend, argument):
    given = {"bias": NUMBERS, "mask": SHOWN, "value": KEY}[argument]
    inputs = {"query": QUERY, "key": KEY, "value": KEY, argument: given}
    expected = regard.attend(**inputs, backend=backend)
    found = regard.attend(**{**inputs, argument: Wrapped(given)}, backend=backend)
    torch.testing.assert_close(found.tensor if isinstance(found, Wrapped) else found, expected)


def test_a_kernel_reads_no_memory_that_is_not_there():
    from regard.kernels.cpu.kernel_arguments import address_of

    with pytest.raises(KindError, match="a subclass of Tensor without memory"):
        address_of(Wrapped(NUMBERS))
    assert address_of(NUMBERS) == NUMBERS.data_ptr()
    assert address_of(NUMBERS[:0]) == NUMBERS[:0].data_ptr()
