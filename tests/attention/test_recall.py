"""Recall: the share of dense attention's weight on the keys that a selection keeps."""

import pytest
import torch

import regard
from backends import ON_CPU
from cases import MASKS, NORMALIZERS, B, K, Q, problem
from covering import covering
from regard import masks, normalizers
from regard.errors import ArgumentError, BackendError, KindError
from regard.shapes.grid import Grid

LISTED = 2
INDEX = torch.randint(-1, K, (B, 1, Q, LISTED), generator=torch.Generator().manual_seed(0))
SELECTED = masks.columns(INDEX)


def recall_of(*inputs, selection=SELECTED, **arguments):
    return regard.observe(*inputs, read=regard.Readings(recall=selection), **arguments).recall


def oracle(weights):
    """The share of each row's weights on its listed keys, pair by pair."""
    shares = torch.zeros(weights.shape[:3], dtype=torch.float64)
    for b in range(B):
        for i in range(Q):
            for key in {int(each) for each in INDEX[b, 0, i] if each >= 0}:
                shares[b, :, i] += weights[b, :, i, key]
    total = weights.sum(-1)
    return torch.where(total == 0, 0.0, shares / total)


@covering(mask=MASKS, normalizer=[name for name in NORMALIZERS if not NORMALIZERS[name]().random])
def test_recall_is_that_of_the_matrix_of_weights(mask, normalizer):
    inputs = problem(kv_heads=1)
    arguments = {"normalizer": NORMALIZERS[normalizer](), "mask": MASKS[mask]()}
    expected = oracle(regard.explain(*inputs, **arguments).weights.detach())
    for backend in ON_CPU:
        if not regard.plan(*inputs, **arguments).reasons[backend].startswith("cannot"):
            recall = recall_of(*inputs, backend=backend, **arguments)
            torch.testing.assert_close(recall, expected, rtol=1e-9, atol=1e-9, equal_nan=True)


def test_own_selection_is_measured_against_the_call_without_it():
    inputs = problem()
    seen = regard.observe(*inputs, mask=masks.causal() & SELECTED, read=regard.Readings(recall=True, entropy=True))
    assert torch.equal(seen.recall, recall_of(*inputs, mask="causal"))
    assert torch.equal(seen.output, regard.attend(*inputs, mask=masks.causal() & SELECTED))
    alone = regard.observe(*inputs, mask=SELECTED, read=regard.Readings(recall=True)).recall
    assert torch.equal(alone, recall_of(*inputs))
    dense = regard.observe(*inputs, mask="causal").lse
    torch.testing.assert_close(seen.recall, (seen.lse - dense).exp())  # both sums of exponentials


def test_everything_recalls_one_and_nothing_zero():
    inputs = problem()
    every, none = masks.columns(torch.arange(K)), masks.columns(torch.full((1,), -1))
    assert (recall_of(*inputs, selection=every, mask=masks.window(2, 3)) == 1).all()
    assert (recall_of(*inputs, selection=none) == 0).all()
    hidden = masks.where(lambda b, h, i, j: i != 1)  # one query sees nothing
    recall = recall_of(*inputs, selection=every, mask=hidden)
    assert (recall[:, :, 1] == 0).all()
    assert (recall[:, :, 0] == 1).all()


def test_hidden_numbers_never_reach_recall():
    query, key, value = problem()
    expected = recall_of(query, key, value, mask=masks.prefix(K - 1))
    with torch.no_grad():
        key[:, :, -1], value[:, :, -1] = torch.nan, torch.inf
    for backend in ("auto", "reference", "tiled", "cpu"):
        recall = recall_of(query, key, value, mask=masks.prefix(K - 1), backend=backend)
        torch.testing.assert_close(recall, expected)


def test_reading_recall_draws_no_random_numbers():
    inputs = problem()
    torch.manual_seed(0)
    expected = [regard.attend(*inputs, dropout=0.5), torch.rand(1)]
    torch.manual_seed(0)
    seen = regard.observe(*inputs, dropout=0.5, read=regard.Readings(recall=SELECTED))
    assert torch.equal(seen.output, expected[0])
    assert torch.equal(torch.rand(1), expected[1])
    assert torch.equal(seen.recall, recall_of(*inputs))


def test_recall_of_one_head_and_one_sequence_lacks_their_axes():
    query, key, value = (tensor[:, :1] for tensor in problem())
    whole = recall_of(query, key, value, mask="causal", backend="tiled")
    rows = masks.columns(INDEX[:, 0])
    without_heads = [tensor[:, 0] for tensor in (query, key, value)]
    assert torch.equal(recall_of(*without_heads, selection=rows, mask="causal", backend="tiled"), whole[:, 0])
    alone = [tensor[0, 0] for tensor in (query, key, value)]
    recall = recall_of(*alone, selection=masks.columns(INDEX[0, 0]), mask="causal", backend="tiled")
    torch.testing.assert_close(recall, whole[0, 0])


def test_impossible_recall_is_refused():
    inputs = problem()
    with pytest.raises(KindError, match="recall must be a Mask, True or False; it is an int"):
        recall_of(*inputs, selection=1)
    with pytest.raises(ArgumentError, match=r"the mask has none: write mask=masks\.columns"):
        recall_of(*inputs, selection=True, mask="causal")
    with pytest.raises(ArgumentError, match="recall cannot be read of weights that Hard draws at random"):
        recall_of(*inputs, normalizer=normalizers.hard("sample"))
    with pytest.raises(BackendError, match="recall cannot be read while a compiler traces"):
        recall_of(*[tensor.to("meta") for tensor in inputs], selection=masks.prefix(2))


def test_watched_layers_tell_the_recall_of_their_own_selection():
    layer = regard.nn.NativeSparseAttention(8, 2, compressed=4, stride=2, block=2, selected=3, near=3)
    x = torch.randn(2, 13, 8)
    with regard.watch(layer, read=regard.Readings(recall=True, weights=True)) as seen:
        expected = layer(x, mask="causal").output
    assert torch.equal(expected, layer(x, mask="causal").output)
    compressed, chosen, near = seen.calls
    assert compressed.recall is None  # their masks list no keys
    assert near.recall is None
    assert chosen.recall.shape == (2, 2, 13)
    assert (chosen.recall[:, :, :6] > 1 - 1e-6).all()  # all blocks so far are selected
    assert (chosen.recall[:, :, 8:] < 1 - 1e-6).any()


def test_a_dense_model_tells_the_recall_of_any_selection():
    model = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True).eval()
    x = torch.randn(2, 5, 8)
    with regard.watch(model, read=regard.Readings(recall=masks.window(1, 0), weights=True)) as seen:
        model(x)
    (call,) = seen.calls
    torch.testing.assert_close(call.recall, (call.weights * masks.window(1, 0).dense(Grid.whole(2, 2, 5, 5))).sum(-1))
