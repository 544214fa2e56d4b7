"""Attention to listed keys: exact in both passes, whatever the lists hold, and the same whoever looks."""

import pytest
import torch

import regard
from regard import masks
from regard.errors import ArgumentError, BackendError, KindError, ShapeError
from regard.kernels.availability import kernels_awaited
from regard.shapes import Grid

pytest.importorskip("numba", reason="kernels are compiled by Numba")

B, Q, K, D, V = 2, 13, 41, 16, 8
CASES = {
    "each query": {"shape": (B, 1, Q, 7)},
    "grouped heads": {"shape": (1, 2, Q, 9), "heads": 6, "kv_heads": 2},
    "lists of query heads": {"shape": (B, 6, Q, 5), "heads": 6, "kv_heads": 3},
    "lists across key heads": {"shape": (1, 2, Q, 5), "heads": 6, "kv_heads": 3},
    "blocks of queries": {"shape": (1, 2, 4, 11), "heads": 4, "query_size": 4},
    "blocks of keys": {"shape": (B, 1, 7, 3), "size": 6, "query_size": 2},
    "one list": {"shape": (20,), "heads": 4, "kv_heads": 1},
    "odd features": {"shape": (Q, 6), "dim": 5, "value_dim": 11},
    "long": {"shape": (1, 1, 3, 90), "queries": 150, "keys": 300, "query_size": 64},
}
RESTS = {
    "alone": lambda queries: None,
    "causal": lambda queries: masks.causal(),
    "window and lengths": lambda queries: masks.window(20, 3) & masks.lengths([9, 41], [queries, 5]),
}


def visible_pairs(index, size, query_size, heads, queries, keys, rest):
    """Which pairs are listed, by loops over the lists."""
    index = index[(None,) * (4 - index.dim())]
    seen = torch.zeros(B, heads, queries, keys, dtype=torch.bool)
    for b in range(B):
        for h in range(heads):
            for i in range(queries):
                row = i // query_size if index.shape[2] > 1 else 0
                for place in index[b % index.shape[0], h * index.shape[1] // heads, row].tolist():
                    if place >= 0:
                        seen[b, h, i, place * size : (place + 1) * size] = True
    return seen if rest is None else seen & rest.dense(Grid.whole(B, heads, queries, keys))


def attention(query, key, value, seen):
    """Output and log-sum-exp in float64."""
    group = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)
    scores = (query @ key.mT / query.shape[-1] ** 0.5).masked_fill(~seen, -torch.inf)
    lse, empty = scores.logsumexp(-1), ~seen.any(-1, keepdim=True)
    weights = torch.where(seen, (scores - lse[..., None].masked_fill(empty, 0.0)).exp(), 0.0)
    return weights @ value, lse


def made(shape, heads=2, kv_heads=2, queries=Q, keys=K, dim=D, value_dim=V, size=1, query_size=1):
    """A problem and its lists, in some of which keys are missing, occur twice, or all are missing."""
    torch.manual_seed(len(shape) + heads)
    index = torch.randint(-1, -(-keys // size), shape)
    if index.dim() > 1:
        index[..., 1, :] = -1
    sizes = (heads, queries, dim), (kv_heads, keys, dim), (kv_heads, keys, value_dim)
    inputs = [torch.randn(B, *each) for each in sizes]
    return inputs, index, {"size": size, "query_size": query_size}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("rest", RESTS)
def test_listed_keys_have_exact_outputs_and_gradients(case, rest):
    inputs, index, sizes = made(**CASES[case])
    heads, queries, keys = *inputs[0].shape[1:3], inputs[1].shape[2]
    other = RESTS[rest](queries)
    seen = visible_pairs(index, **sizes, heads=heads, queries=queries, keys=keys, rest=other)
    mask = masks.columns(index, **sizes) if other is None else masks.columns(index, **sizes) & other
    exact = [tensor.double().requires_grad_() for tensor in inputs]
    output, lse = attention(*exact, seen)
    leaves = [tensor.clone().requires_grad_() for tensor in inputs]
    found = regard.attend(*leaves, mask=mask, backend="cpu")
    torch.testing.assert_close(found.double(), output, rtol=1e-5, atol=1e-5)
    grad = torch.randn_like(found)
    grads = torch.autograd.grad(found, leaves, grad), torch.autograd.grad(output, exact, grad.double())
    for one, wanted in zip(*grads, strict=True):
        torch.testing.assert_close(one.double(), wanted, rtol=1e-5, atol=2e-5)
    observed = regard.observe(*inputs, mask=mask, backend="cpu", read=regard.Readings(received=True))
    assert torch.equal(observed.output, found)
    torch.testing.assert_close(observed.lse.double(), lse, rtol=1e-5, atol=1e-5)


def test_order_and_repetitions_of_a_list_are_no_matter():
    inputs, index, _ = made((B, 1, Q, 7))
    once = regard.attend(*inputs, mask=masks.columns(index), backend="cpu")
    twice = torch.cat((index, index.flip(-1), torch.full_like(index[..., :2], -9)), dim=-1)
    assert torch.equal(regard.attend(*inputs, mask=masks.columns(twice), backend="cpu"), once)
    other = regard.attend(*inputs, mask=masks.columns(index.flip(-1).to(torch.int32)), backend="cpu")
    torch.testing.assert_close(other, once)


@pytest.mark.parametrize("fill", [torch.nan, torch.inf])
def test_keys_that_no_list_names_reach_nothing(fill):
    (query, key, value), index, _ = made((1, 1, Q, 7))
    index = index.clamp(max=K - 9)
    mask, leaves = masks.columns(index), [query.requires_grad_()]
    clean = [torch.cat((tensor[:, :, : K - 8], torch.zeros_like(tensor[:, :, :8])), 2) for tensor in (key, value)]
    dirty = [torch.cat((tensor[:, :, : K - 8], torch.full_like(tensor[:, :, :8], fill)), 2) for tensor in (key, value)]
    for backend in ("cpu", "auto"):
        outputs = [regard.attend(query, *pair, mask=mask, backend=backend) for pair in (clean, dirty)]
        assert torch.equal(*outputs)
        assert torch.equal(*(torch.autograd.grad(output.sum(), leaves)[0] for output in outputs))


def test_a_visible_nan_gives_nan_in_its_rows_alone():
    (query, key, value), index, _ = made((1, 1, Q, 7))
    index[index == 3] = 4
    index[0, 0, 5] = 3
    value[:, :, 3] = torch.nan
    output = regard.attend(query, key, value, mask=masks.columns(index), backend="cpu")
    assert output[:, :, 5].isnan().all()
    assert output[:, :, [0, 1, 2, 3, 4, 6, 7]].isfinite().all()


def test_threads_change_no_bit_of_listed_keys():
    inputs, index, sizes = made(**CASES["long"])
    leaves, found, before = [tensor.requires_grad_() for tensor in inputs], [], torch.get_num_threads()
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            output = regard.attend(*leaves, mask=masks.columns(index, **sizes), backend="cpu")
            found.append((output, *torch.autograd.grad(output.square().sum(), leaves)))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_of_listed_keys_is_computed_in_float32(dtype):
    inputs, index, _ = made((1, 1, Q, 7))
    half = [tensor.to(dtype) for tensor in inputs]
    found = regard.attend(*half, mask=masks.columns(index), backend="cpu")
    wanted = regard.attend(*(tensor.float() for tensor in half), mask=masks.columns(index), backend="cpu")
    assert torch.equal(found, wanted.to(dtype))


def test_derivatives_that_listed_keys_lack_are_refused():
    inputs, index, _ = made((1, 1, Q, 7))
    leaves = [tensor.requires_grad_() for tensor in inputs]
    output = regard.attend(*leaves, mask=masks.columns(index), backend="cpu")
    (grad,) = torch.autograd.grad(output.square().sum(), leaves[:1], create_graph=True)
    with pytest.raises(BackendError, match="no second derivative"):
        grad.sum().backward()
    output = regard.attend(*leaves, mask=masks.columns(index), backend="cpu")
    with pytest.raises(BackendError, match="one gradient at a time"):
        torch.autograd.grad(output, leaves, torch.ones(2, *output.shape), is_grads_batched=True)
    output = regard.attend(*leaves, mask=masks.columns(index), backend="cpu")
    index[0, 0, 0, 0] = 5
    with pytest.raises(BackendError, match="changed in place"):
        output.sum().backward()


def test_auto_takes_the_kernel_of_listed_keys_from_few_pairs_on():
    x, index = torch.randn(1, 8, 64, 16), torch.randint(0, 64, (64, 9))
    with kernels_awaited():
        assert "reads them alone" in str(regard.plan(x, x, x, mask=masks.columns(index)))
        assert regard.plan(x, x, x, mask=masks.columns(index) & masks.causal()).backend == "cpu"


@pytest.mark.parametrize(
    ("index", "options", "error", "message"),
    [
        (torch.tensor([[K]]), {}, ArgumentError, f"index must be below {K}, the number of keys, .* contains {K}"),
        (torch.tensor([[6]]), {"size": 7}, ArgumentError, "below 6, the number of blocks of 7 keys"),
        (torch.zeros(Q - 1, 3).long(), {}, ShapeError, r"index must broadcast to .* = \[2, 2, 13, 3\].* \[12, 3\]"),
        (torch.zeros(3, 3).long(), {"query_size": 4}, ShapeError, "a row for each 4 queries"),
        (torch.zeros(1, 3, Q, 3).long(), {}, ShapeError, "a number of heads that divides theirs"),
        (torch.zeros(Q, 3), {}, KindError, "index must hold integers"),
        (torch.tensor(3), {}, ShapeError, "index must have one axis to four"),
        (torch.zeros(Q, 3).long(), {"size": 0}, ArgumentError, "size must be at least 1"),
    ],
)
def test_invalid_lists_are_named(index, options, error, message):
    inputs, _, _ = made((1,))
    with pytest.raises(error, match=message):
        regard.attend(*inputs, mask=masks.columns(index, **options))


def test_lists_follow_the_axes_of_a_call():
    (query, key, value), index, _ = made((B, Q, 7), heads=1, kv_heads=1)
    wanted = regard.attend(query, key, value, mask=masks.columns(index[:, None]))
    found = regard.attend(query[:, 0], key[:, 0], value[:, 0], mask=masks.columns(index))
    assert torch.equal(found, wanted[:, 0])
    rows = [regard.attend(*(x[b, 0] for x in (query, key, value)), mask=masks.columns(index[b])) for b in range(B)]
    torch.testing.assert_close(torch.stack(rows), found)
