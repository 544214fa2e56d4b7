"""The backend ``flex``: on a GPU its compiled kernels, elsewhere PyTorch's unfused form of the same calls.

Without a GPU the device check and PyTorch's refusal of gradients on CPUs are switched off for the tests, so that both
passes run with the same rules and blocks. One test compiles its forward pass for the CPU, which skips hidden blocks.
"""

import pytest
import torch

import regard
from cases import MASKS
from regard import masks, normalizers, positions, scores
from regard.attention.backends.flex import backend, blocks, kernels
from regard.attention.pair_rules import record
from regard.biases import Bias
from regard.errors import BackendError
from regard.kernels.availability import kernels_awaited
from regard.shapes.grid import Grid

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# float64 is not a dtype of the GPU's kernels.
DTYPE = torch.float64 if DEVICE == "cpu" else torch.float32
TOLERANCE = {"rtol": 1e-5, "atol": 1e-5} if DEVICE == "cpu" else {"rtol": 2e-4, "atol": 2e-4}

# Two query blocks and three key blocks, of which the last ones are not whole.
B, H, Q, K, D, V = 2, 4, 150, 301, 20, 24

# PyTorch's compiler warns of its own parts.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def _runs_here(monkeypatch):
    monkeypatch.setattr(kernels, "COMPILED_KERNELS", type(kernels.COMPILED_KERNELS)())
    if DEVICE == "cpu":
        monkeypatch.setattr(backend, "DEVICES", {"cpu"})
        monkeypatch.setattr(kernels, "COMPILER", "eager")
        monkeypatch.setattr("torch.nn.attention.flex_attention._validate_device", lambda *tensors: None)


def draw(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(DEVICE, DTYPE)


def problem(kv_heads=H, queries=Q, keys=K, requires_grad=False, dim=D):
    shapes = (B, H, queries, dim), (B, kv_heads, keys, dim), (B, kv_heads, keys, V)
    return [draw(*shape, seed=n).requires_grad_(requires_grad) for n, shape in enumerate(shapes)]


def documents(length, padding=7):
    ids = torch.arange(length, device=DEVICE) // 90
    return ids.masked_fill(ids.flip(0) * 90 < padding - 90, -1)


FACTOR = torch.linspace(0.5, 1.5, H)


def _by_head(score, batch, head, query, key):
    return score * FACTOR.to(score.device, DTYPE)[head] + 1e-3 * (query - key) * batch


def _learned(module):
    return module.to(DEVICE, DTYPE)


# Each part is in one of the first three, which are those that a GPU compiles.
KINDS = {
    "window, alibi, groups, cap, sink": lambda: (
        {"kv_heads": 2},
        {
            "mask": masks.window(100, 3) | masks.prefix([2, 0]),
            "bias": positions.alibi(H),
            "score": scores.SoftCap("scaled_dot", 2.0),
            "normalizer": normalizers.softmax_with_sink(draw(H, seed=9).requires_grad_()),
        },
    ),
    "documents and lengths, a tensor": lambda: (
        {},
        {
            "mask": masks.documents(documents(Q), documents(K)) & masks.lengths([K, 40], [Q, 0]),
            "bias": draw(1, H, Q, K, seed=8).requires_grad_(),
        },
    ),
    "function, shaw, temperature": lambda: (
        {"kv_heads": 1},
        {
            "mask": masks.where(lambda batch, head, query, key: (query + key + head) % 3 != 0) & ~masks.prefix(3),
            "bias": _learned(positions.RelativePosition(D, 5)) + positions.alibi(H),
            "score": scores.Modified("dot", _by_head),
            "normalizer": normalizers.Softmax(0.5),
        },
    ),
    "nothing hidden, a learned scale": lambda: (
        {},
        {"score": scores.Cosine(torch.full((H, 1, 1), 0.5).to(DEVICE, DTYPE))},
    ),
    "nobody": lambda: ({}, {"mask": masks.keep(torch.zeros(1, 1, 1, 1, dtype=torch.bool, device=DEVICE))}),
    "dilated, relative": lambda: (
        {},
        {
            "mask": masks.causal() & masks.dilated(2),
            "bias": _learned(positions.RelativeBias(H, buckets=8, max_distance=40)),
        },
    ),
    "a bias that hides": lambda: ({}, {"bias": draw(H, 1, K).masked_fill(draw(H, 1, K) > 1, -torch.inf)}),
    "few features": lambda: ({"dim": 5}, {"mask": masks.causal(offset=[3, K - Q]), "score": "general_weights"}),
}


@pytest.mark.parametrize("kind", list(KINDS)[: 3 if DEVICE == "cuda" else None])
def test_flex_computes_the_equation_and_its_gradients(kind):
    sizes, arguments = KINDS[kind]()
    if arguments.get("score") == "general_weights":
        arguments["score"] = scores.General(torch.nn.Parameter(draw(5, 5)))
    inputs = problem(**sizes, requires_grad=True)
    parts = [part for part in arguments.values() if isinstance(part, torch.nn.Module)]
    wanted = {f"parameter {n}": one for part in parts for n, one in part.named_parameters() if one.requires_grad}
    wanted |= dict(zip(("query", "key", "value"), inputs, strict=True))
    wanted |= {name: part for name, part in arguments.items() if isinstance(part, torch.Tensor) and part.requires_grad}
    if isinstance(sink := getattr(arguments.get("normalizer"), "sink", None), torch.Tensor):
        wanted["sink"] = sink
    grad_output = draw(B, H, Q, V, seed=5)
    results = {}
    for name in ("flex", "reference"):
        output = regard.attend(*inputs, backend=name, **arguments)
        gradients = torch.autograd.grad(output, list(wanted.values()), grad_output, allow_unused=True)
        results[name] = {"output": output, **dict(zip(wanted, gradients, strict=True))}
    for name, expected in results["reference"].items():
        got = results["flex"][name]
        assert expected is not None, f"{name} has no gradient: {[*wanted]}"
        torch.testing.assert_close(got, expected, **TOLERANCE, msg=lambda m, name=name: f"{kind}: {name}: {m}")


def test_compiled_kernels_skip_what_is_hidden_and_serve_all_sizes(monkeypatch):
    """One compilation serves other lengths, batches and numbers."""
    from torch._inductor import config
    from torch._inductor.compile_fx import compile_fx

    # For one kernel neither precompiled headers nor trials of the processor's instructions are worth their time.
    for name in ("cpp_cache_precompile_headers", "cpp.vec_isa_ok"):
        monkeypatch.setattr(config, name, name == "cpp.vec_isa_ok")
    graphs, counts = [], set()
    monkeypatch.setattr(kernels, "COMPILER", lambda *graph: graphs.append(graph) or compile_fx(*graph))
    for batch, queries, keys, prefix in ((2, 150, 260, 2), (2, 300, 300, 5), (3, 130, 999, 9)):
        inputs = [t.float() for t in (draw(batch, 2, queries, D), draw(batch, 1, keys, D), draw(batch, 1, keys, V))]
        arguments = {"mask": masks.window(40, 3) | masks.prefix(prefix), "bias": "alibi"}
        with torch.no_grad():
            got = regard.attend(*inputs, backend="flex", **arguments)
            expected = regard.attend(*(t.double() for t in inputs), backend="reference", **arguments)
        torch.testing.assert_close(got.double(), expected, rtol=1e-4, atol=1e-4)
        counts.add(len(graphs))
    assert len(counts) == 1 or not kernels.DYNAMIC


def dense_blocks(mask, grid, size):
    """Which blocks have a visible and which a hidden pair, from the dense mask."""
    rows, columns = -(-grid.queries // size), -(-grid.keys // size)
    allowed = torch.zeros(*grid.shape[:2], rows * size, columns * size, dtype=torch.bool)
    allowed[:, :, : grid.queries, : grid.keys] = mask.dense(grid)
    tiles = allowed.reshape(*grid.shape[:2], rows, size, columns, size)
    return tiles.any(-1).any(3), tiles.all(-1).all(3)


def listed(number, index):
    """The matrix that a list of blocks stands for."""
    rank = torch.arange(index.shape[-1]).expand_as(index)
    return torch.zeros(index.shape, dtype=torch.bool).scatter(-1, index.long(), rank < number[..., None])


@pytest.mark.parametrize("mask", sorted(set(MASKS) - {"none"}))
def test_blocks_are_those_of_the_dense_mask(mask, monkeypatch):
    from cases import B, H, K, Q

    monkeypatch.setattr(blocks, "SLICE_PAIRS", 1)
    restriction, grid = MASKS[mask](), Grid.whole(B, H, Q, K)
    for size in (2, 3, 4):
        monkeypatch.setattr(blocks, "BLOCK", size)
        touched, full = dense_blocks(restriction, grid, size)
        for on_host in (True, False):
            monkeypatch.setattr(masks.Mask, "spans", masks.Mask.spans)
            spans = restriction.spans(grid) if on_host else None
            found = blocks._in_slices(restriction, grid) if spans is None else blocks._of_spans(spans, grid)
            for got, expected in zip(found, (touched, full), strict=True):
                assert torch.equal(got.expand_as(expected), expected), (size, on_host)
        lists = blocks._compute(restriction, True, grid)
        for start, expected in enumerate((touched & ~full, full, (touched & ~full).mT, full.mT)):
            assert torch.equal(listed(*lists[2 * start : 2 * start + 2]).expand_as(expected), expected)


def test_blocks_are_cached_for_what_they_depend_on(monkeypatch):
    """Layers share the blocks of a mask; a tensor that was changed in place has others, and few are cached."""
    monkeypatch.setattr(blocks, "_CACHE", type(blocks._CACHE)())
    monkeypatch.setattr(blocks, "CACHED_MASKS", 3)
    grid, visible = Grid.whole(1, 1, 256, 256), torch.ones(256, 256, dtype=torch.bool)

    def found(mask, grid=grid):
        return blocks.blocks_of(mask, record(grid, mask.allows), grid)

    kept = masks.keep(visible)
    assert found(masks.causal()) is found(masks.causal())
    assert found(masks.window(200, 0)) is not found(masks.window(100, 0))
    assert found(masks.prefix(3)) is not found(masks.prefix(200)), "an integer that is not in the text of the rule"
    assert found(masks.lengths([5])) is not found(masks.lengths([200]))
    assert found(kept) is found(kept)
    assert found(kept).full_kv_number.sum() == 4
    visible[:128, :128] = False
    assert found(kept).full_kv_number.sum() == 3
    assert found(masks.causal(), Grid.whole(1, 1, 128, 256)).kv_number.shape == (1, 1, 1)
    assert len(blocks._CACHE) == 3


@pytest.mark.skipif(DEVICE == "cuda", reason="each kind would be compiled")
def test_few_kernels_are_cached(monkeypatch):
    monkeypatch.setattr(kernels, "CACHED_KERNELS", 2)
    for before in (1, 2, 3):
        regard.attend(*problem(), mask=masks.window(before, 0), backend="flex")
    assert len(kernels.COMPILED_KERNELS) == 2


def test_products_of_positions_are_exact():
    grid = Grid.whole(1, 1, 8, 8)
    narrow, wide = masks.causal() & masks.dilated(3), masks.where(lambda batch, head, query, key: query * key % 3 == 0)
    assert [record(grid, mask.allows).wide for mask in (narrow, wide)] == [False, True]
    rule = record(grid, wide.allows)
    long = torch.zeros(1, 1, 1 << 16, 16)
    assert kernels.FlexCall(long, long, long, 1.0, None, rule, None, False).wide
    assert not kernels.FlexCall(long[:, :, :99], long[:, :, :99], long, 1.0, None, rule, None, False).wide


def test_auto_never_compiles(monkeypatch):
    arguments = {"mask": masks.window(30, 0)}
    inputs = problem(queries=2100, keys=2100) if DEVICE == "cuda" else problem()
    with kernels_awaited():
        regard.attend(*inputs, **arguments)
    assert not kernels.COMPILED_KERNELS
    assert regard.plan(*inputs, **arguments).reasons["flex"].startswith("not yet: ")
    regard.attend(*inputs, backend="flex", **arguments)
    plan = regard.plan(*inputs, **arguments)
    assert (
        plan.backend == "flex" if DEVICE == "cuda" else plan.reasons["flex"] == "could, but on a CPU others are faster"
    )
    assert regard.plan(*inputs, **arguments, score="dot").reasons["flex"].startswith("not yet: "), "another kind"


class OfTiles(masks.Mask):
    """A user's mask that reads the limits of a tile."""

    def allows(self, grid):
        return torch.arange(grid.key_span.start, grid.key_span.stop, device=grid.device) % 2 == 0


class OwnBias(Bias):
    """A user's bias, which has no function of pairs."""

    def forward(self, query, grid):
        return (grid.key_index % 2).to(query.dtype)


def _branches(batch, head, query, key):
    return key >= query if bool((key > 3).any()) else key < query


def _changes(score, batch, head, query, key):
    score += 1
    return score


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"normalizer": "sparsemax"}, "not a softmax"),
        ({"score": lambda query, key: query @ key.mT}, "lowers to Pairwise"),
        ({"dropout": 0.1}, "no dropout"),
        ({"normalizer": normalizers.Softmax(torch.tensor(2.0))}, "temperature is a tensor"),
        ({"mask": OfTiles()}, "no function of single pairs: it reads the limits of a tile"),
        ({"mask": masks.where(_branches)}, "no function of single pairs"),
        ({"mask": masks.causal(offset=2**40)}, "calculates with 1099511627776, which is too large"),
        ({"score": scores.Modified("dot", _changes)}, "changes a tensor in place"),
        ({"bias": OwnBias()}, "OwnBias is no function of single pairs"),
    ],
)
def test_flex_declines_with_its_reason(arguments, reason):
    with pytest.raises(BackendError, match=f"backend 'flex' cannot run this: .*{reason}"):
        regard.attend(*problem(), backend="flex", **arguments)


def test_other_derivatives_are_refused():
    query, key, value = problem(requires_grad=True)
    output = regard.attend(query, key, value, backend="flex", mask=masks.causal())
    with pytest.raises(BackendError, match="no second derivative"):
        torch.autograd.grad(output.sum(), query, create_graph=True)
    output = regard.attend(query, key, value, backend="flex", mask=masks.causal())
    with pytest.raises(BackendError, match="no batched derivatives"):
        torch.autograd.grad(output, query, torch.ones(2, *output.shape).to(output), is_grads_batched=True)
    for transformed in (
        lambda: torch.func.jvp(lambda q: regard.attend(q, key, value, backend="flex"), (query,), (query,)),
        lambda: torch.func.grad(lambda q: regard.attend(q, key, value, backend="flex").sum())(query),
    ):
        with pytest.raises(BackendError, match="reverse mode only"):
            transformed()


def test_flex_spreads_visible_nan_and_no_hidden_one():
    query, key, value = problem(requires_grad=True)
    with torch.no_grad():
        value[:, :, -1], key[0, 0, -2], value[1, 1, 5] = torch.nan, torch.inf, torch.nan
    seen = masks.lengths(K - 2)
    output, expected = (regard.attend(query, key, value, mask=seen, backend=name) for name in ("flex", "reference"))
    assert output[1, 1].isnan().any()
    torch.testing.assert_close(output, expected, **TOLERANCE, equal_nan=True)
    gradients = (torch.autograd.grad(one[0].sum(), (query, key, value)) for one in (output, expected))
    for got, right in zip(*gradients, strict=True):
        torch.testing.assert_close(got[0], right[0], **TOLERANCE)


def test_flex_accumulates_half_precision_in_float32():
    inputs = [tensor.to(torch.bfloat16) for tensor in problem(kv_heads=1)]
    arguments = {"mask": masks.causal(), "bias": 30 * draw(Q, K).float()}
    got = regard.attend(*inputs, backend="flex", **arguments)
    oracle = regard.attend(*(tensor.double() for tensor in inputs), backend="reference", **arguments)
    assert got.dtype == torch.bfloat16
    eps = torch.finfo(torch.bfloat16).eps
    torch.testing.assert_close(got.double(), oracle, rtol=2 * eps, atol=2 * eps)
