"""Attention of packed rows: exact with any lengths, bands and heads; sequences and threads change no bit."""

import pytest
import torch

pytest.importorskip("numba", reason="kernels are compiled by Numba")

from regard.kernels.cpu.packed_attention import attend, gradients
from regard.kernels.cpu.packed_call import PackedCall, Sequences

ALL = 1 << 40
BANDS = {"all": (ALL, ALL), "causal": (ALL, 0), "before": (3, 0), "around": (2, 5), "own": (0, 0)}
SIZES = {
    "usual": ((5, 9, 16, 1), (7, 16, 3, 2), 4, 4, 16, 16),
    "long": ((64, 63, 17), (49, 64, 33), 2, 2, 128, 128),
    "grouped": ((5, 9, 20), (20, 1, 7), 6, 2, 24, 8),
    "odd": ((3, 1), (5, 2), 3, 1, 5, 7),
    "empty sequences": ((0, 4, 3, 0), (2, 0, 5, 0), 2, 2, 8, 8),
}


def sequences(counts):
    counts = torch.tensor(counts)
    return Sequences(counts.cumsum(0) - counts, counts, int(counts.max()))


def with_gaps(rows, columns):
    """Memory for a matrix with NaN between its rows."""
    return torch.full((rows, columns + 3), torch.nan)[:, :columns]


def problem(sizes, band, dropout=0.0, itself=False):
    counts, key_counts, heads, kv_heads, dim, value_dim = sizes
    queries = sequences(counts)
    keys = queries if itself else sequences(key_counts)
    call = PackedCall(queries, keys, heads, kv_heads, 0.3, *band, dropout, 91)
    widths = {"query": heads * dim, "key": kv_heads * dim, "value": kv_heads * value_dim}
    rows = {"query": queries, "key": keys, "value": keys}
    return call, {
        name: with_gaps(int(rows[name].counts.sum()), width).copy_(torch.randn(int(rows[name].counts.sum()), width))
        for name, width in widths.items()
    }


def specification(call, matrices, kept=None):
    """The same in float64, sequence by sequence, with the factors of weights that dropout kept."""
    group, found = call.heads // call.kv_heads, []
    parts = [
        matrices[name].split(of.counts.tolist())
        for name, of in (("query", call.queries), ("key", call.keys), ("value", call.keys))
    ]
    for number, (query, key, value) in enumerate(zip(*parts, strict=True)):
        q = query.unflatten(1, (call.heads, -1)).transpose(0, 1)
        k, v = (t.unflatten(1, (call.kv_heads, -1)).transpose(0, 1).repeat_interleave(group, 0) for t in (key, value))
        distance = torch.arange(len(key)) - torch.arange(len(query))[:, None]
        seen = (distance >= -call.before) & (distance <= call.after)
        scores = (q @ k.transpose(1, 2) * call.scale).masked_fill(~seen, -torch.inf)
        empty = ~seen.any(-1, keepdim=True)
        weights = torch.softmax(scores.masked_fill(empty, 0.0), -1).masked_fill(empty, 0.0)
        if kept is not None:
            weights = weights * kept[number]
        found.append((weights @ v).transpose(0, 1).flatten(1))
    return torch.cat(found)


def gradients_of(call, matrices, grad_output):
    grads = {f"grad_{name}": with_gaps(*matrix.shape) for name, matrix in matrices.items()}
    gradients(call, **matrices, grad_output=grad_output, **grads)
    return tuple(grads.values())


def assert_exact(call, matrices, atol, grad_atol, kept=None):
    """Output and gradients against the specification's."""
    exact = {name: matrix.double().requires_grad_() for name, matrix in matrices.items()}
    wanted = specification(call, exact, kept)
    output = attend(call, **matrices)
    torch.testing.assert_close(output.double(), wanted, rtol=1e-5, atol=atol)
    grad_output = torch.randn_like(output)
    of_exact = torch.autograd.grad(wanted, list(exact.values()), grad_output.double())
    for found, other in zip(gradients_of(call, matrices, grad_output), of_exact, strict=True):
        torch.testing.assert_close(found.double(), other, rtol=1e-5, atol=grad_atol)


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("band", BANDS.values(), ids=BANDS)
def test_attention_and_its_gradients_are_exact(sizes, band):
    assert_exact(*problem(sizes, band), atol=1e-5, grad_atol=2e-5)


def test_a_sequence_depends_on_no_other_one():
    call, matrices = problem(SIZES["usual"], BANDS["causal"], itself=True)
    output, grad_output = attend(call, **matrices), torch.randn(int(call.queries.counts.sum()), 64)
    grads = gradients_of(call, matrices, grad_output)
    first = 0
    for count in call.queries.counts.tolist():
        part, alone = slice(first, first + count), sequences((count,))
        single = call._replace(queries=alone, keys=alone)
        own = {name: matrix[part] for name, matrix in matrices.items()}
        assert torch.equal(attend(single, **own), output[part])
        found = gradients_of(single, own, grad_output[part].contiguous())
        assert all(torch.equal(one, other[part]) for one, other in zip(found, grads, strict=True))
        first += count


def test_threads_change_no_bit_of_packed_attention():
    call, matrices = problem(SIZES["long"], BANDS["all"], 0.3)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            output = attend(call, **matrices)
            found.append((output, *gradients_of(call, matrices, output)))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


@pytest.mark.parametrize("sizes", ["usual", "grouped", "long"])
@pytest.mark.parametrize("band", BANDS.values(), ids=BANDS)
def test_both_passes_drop_the_same_weights(sizes, band):
    call, matrices = problem(SIZES[sizes], band, 0.4, itself=True)
    # With a single 1 among the values, the output is the weight of that key.
    counts, heads = call.keys.counts.tolist(), call.heads
    dropped, plain = ([torch.zeros(heads, count, count) for count in counts] for _ in range(2))
    for place in range(max(counts)):
        values = torch.zeros(sum(counts), call.kv_heads)
        present = call.keys.counts > place
        values[call.keys.starts[present] + place] = 1.0
        for found, rate in ((dropped, 0.4), (plain, 0.0)):
            output = attend(call._replace(dropout=rate), matrices["query"], matrices["key"], values)
            for number, rows in enumerate(output.split(counts)):
                if counts[number] > place:
                    found[number][:, :, place] = rows.t()
    kept = [one.ne(0) / 0.6 for one in dropped]
    shown = torch.cat([one[other.ne(0)].flatten() for one, other in zip(kept, plain, strict=True)])
    assert abs(float(shown.ne(0).float().mean()) - 0.6) < 4 * (0.24 / len(shown)) ** 0.5
    assert_exact(call, matrices, atol=2e-5, grad_atol=5e-5, kept=[one.double() for one in kept])


def test_large_scores_do_not_overflow_in_packed_attention():
    call, matrices = problem(SIZES["usual"], BANDS["all"])
    matrices = {**matrices, "query": matrices["query"] * 1e4, "key": matrices["key"] * 1e4}
    exact = specification(call, {name: matrix.double() for name, matrix in matrices.items()})
    torch.testing.assert_close(attend(call, **matrices).double(), exact, rtol=1e-4, atol=1e-4)
