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
from regard.errors import BackendError
from regard.shapes import Grid

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
    monkeypatch.setattr(kernels, "COMPILED", type(kernels.COMPILED)())
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
def test_it_computes_the_equation_and_its_gradients(kind):
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
    monkeypatch.setattr(kernels, "COMPILER", "inductor")
    compiled = []
    monkeypatch.setattr(kernels, "_kernel", lambda call, make=kernels._kernel: compiled.append(call) or make(call))
    torch._dynamo.utils.counters.clear()
    for batch, queries, keys, prefix in ((2, 150, 260, 2), (2, 300, 300, 5), (3, 130, 999, 9)):
        inputs = [t.float() for t in (draw(batch, 2, queries, D), draw(batch, 1, keys, D), draw(batch, 1, keys, V))]
        arguments = {"mask": masks.window(40, 3) | masks.prefix(prefix), "bias": "alibi"}
        with torch.no_grad():
            got = regard.attend(*inputs, backend="flex", **arguments)
            expected = regard.attend(*(t.double() for t in inputs), backend="reference", **arguments)
        torch.testing.assert_close(got.double(), expected, rtol=1e-4, atol=1e-4)
    assert len(compiled) == 1
    assert torch._dynamo.utils.counters["frames"]["ok"] == 1, "the kernel was compiled again"


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
