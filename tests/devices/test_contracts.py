"""The laws of attention on an accelerator: the same tests that run on the CPU, and what only a device can get wrong."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import regard
from attention.test_contracts import (  # noqa: F401
    _small_blocks,
    test_a_query_that_sees_no_key_gets_nothing,
    test_causal_aligns_the_ends,
    test_every_backend_computes_the_equation,
    test_gradcheck,
    test_gradients_are_those_of_the_reference,
    test_to_look_changes_nothing,
)
from attention.test_nonfinite import (  # noqa: F401
    test_a_score_of_minus_infinity_is_hidden,
    test_a_visible_nan_is_seen,
    test_auto_agrees_with_the_reference_at_every_size,
    test_gradients_of_parameters_ignore_what_is_hidden,
    test_what_is_hidden_reaches_nothing,
    test_what_is_hidden_reaches_nothing_through_any_score,
)
from regard import masks, normalizers


@pytest.mark.parametrize("backend", ["tiled", "reference"])
@pytest.mark.parametrize("normalizer", ["softmax", "gumbel"])
def test_both_passes_draw_the_same_numbers(backend, normalizer, monkeypatch):
    """The output is linear in the values, so that its gradient gives the output again."""
    monkeypatch.setattr("regard.attention.backends.tiled.block_elements", lambda device: 100)
    query, key, value = (torch.randn(2, 2, 9, 4, requires_grad=True) for _ in range(3))
    normalizing = normalizers.hard("gumbel") if normalizer == "gumbel" else normalizer
    output = regard.attend(query, key, value, dropout=0.4, normalizer=normalizing, backend=backend)
    factor = torch.randn_like(output)
    torch.randn(3)
    (gradient,) = torch.autograd.grad((output * factor).sum(), value)
    torch.testing.assert_close((gradient * value).sum(), (output * factor).sum())


def test_a_counted_call_leaves_the_random_generator_of_the_device_alone(device):
    query = torch.randn(1, 2, 5, 4)
    drawn = []
    for calls in (False, True):
        torch.manual_seed(3)
        if calls:
            with FlopCounterMode(display=False):
                regard.attend(query, query, query, dropout=0.5, backend="reference")
        drawn.append(torch.rand(4))
    assert torch.equal(*drawn)


NORMALIZERS = {
    "softmax": ("softmax", 37, 90),
    "sparsemax": ("sparsemax", 80, 170),
    "entmax15": (normalizers.entmax(1.5), 90, 200),
    "entmax13": (normalizers.entmax(1.3), 500, 1050),
}
"""Most operators of a block, without and with a gradient."""


@pytest.mark.parametrize("normalizer", NORMALIZERS)
@pytest.mark.parametrize("mask", [None, masks.causal()], ids=["all", "causal"])
def test_operators_follow_from_the_number_of_blocks(operators, normalizer, mask, monkeypatch):
    normalizing, forward, both = NORMALIZERS[normalizer]
    batch, heads, length = 3, 2, 16
    inputs = [torch.randn(batch, heads, length, 4, requires_grad=True) for _ in range(3)]
    elements = batch * heads * length**2
    for limit in (elements, elements // 3, elements // 7, heads * length):
        monkeypatch.setattr("regard.attention.backends.tiled.block_elements", lambda device, limit=limit: limit)
        most = max(1, 4 * elements // limit)
        arguments = {"normalizer": normalizing, "mask": mask, "backend": "tiled"}
        with torch.no_grad():
            assert operators(lambda: regard.attend(*inputs, **arguments)) <= forward * most + 20
        assert operators(lambda: regard.attend(*inputs, **arguments).sum().backward()) <= both * most + 30


def test_blocks_fill_the_memory_of_a_device(operators):
    """32 heads of 8,192 keys took 2,048 launches of each operation in blocks that are made for a CPU's cache."""
    from emulated_device import MODULE
    from regard.attention.backends import tiled
    from regard.attention.problem import validate

    problem = validate(*(torch.empty(1, 32, 8192, 1) for _ in range(3)))
    memory = MODULE.total_memory
    tiled.device_memory.cache_clear()
    try:
        MODULE.total_memory = 80 << 30
        batch, queries = tiled.block_shape(problem)
        assert batch == 1
        assert -(-8192 // queries) <= 16
    finally:
        MODULE.total_memory = memory
        tiled.device_memory.cache_clear()
