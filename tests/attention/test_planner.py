"""The planner chooses an exact backend, and says why."""

import pytest
import torch

import regard
from backends import ON_CPU
from cases import D, H, problem
from regard import masks, normalizers, scores
from regard.attention.execution import BACKENDS
from regard.errors import BackendError


def test_every_backend_has_a_reason():
    plan = regard.plan(*problem())
    assert plan.backend == "sdpa"
    assert list(plan.reasons) == list(BACKENDS)
    assert "'sdpa' comes first" in plan.reasons["tiled"]
    assert str(plan).splitlines()[:2] == [plan.sizes, f"→ sdpa       {plan.reasons['sdpa']}"]


def test_small_problems_without_a_kernel_run_on_the_reference():
    assert regard.plan(*problem(), normalizer="sparsemax").backend == "reference"


def test_large_problems_without_a_kernel_run_on_tiled():
    inputs = problem(torch.float32, queries=1024, keys=1024)
    plan = regard.plan(*inputs, normalizer=normalizers.Hard("straight_through"))
    assert plan.backend == "tiled"
    assert "would hold" in plan.reasons["reference"]
    assert "no kernel for Hard" in plan.reasons["cpu"]
    coupled = regard.plan(*inputs, normalizer="over_queries")
    assert (coupled.backend, coupled.reasons["reference"]) == ("reference", "no other backend can run it")


def test_hard_attention_runs_fused():
    assert regard.plan(*problem(torch.float32, queries=1024, keys=1024), normalizer="hard").backend == "cpu"


def test_large_additive_problems_run_fused(monkeypatch):
    inputs = problem(torch.float32, queries=1024, keys=1024)
    arguments = {"score": scores.Additive(torch.ones(D))}
    plan = regard.plan(*inputs, **arguments)
    assert plan.backend == "cpu"
    assert "TanhSum" in plan.reasons["sdpa"]
    monkeypatch.setattr("regard.attention.backends.cpu.backend.why_missing", lambda: "Numba is not installed")
    plan = regard.plan(*inputs, **arguments)
    assert plan.backend == "tiled"
    assert "Numba is not installed" in plan.reasons["cpu"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"score": scores.Additive(torch.ones(D))}, "lowers to TanhSum"),
        ({"score": scores.SoftCap("dot", 5.0)}, "modified"),
        ({"normalizer": "sparsemax"}, "not a plain softmax"),
        ({"dropout": 0.1}, "quadratic memory"),
        ({"bias": torch.zeros(H, 5, 7, requires_grad=True)}, "needs a gradient"),
    ],
)
def test_verbs_run_a_named_backend_or_raise(arguments, reason):
    inputs = problem(torch.float32)
    assert regard.plan(*inputs, **arguments).reasons["sdpa"].startswith("cannot")
    for verb in (regard.attend, regard.observe, regard.plan):
        with pytest.raises(BackendError, match=reason):
            verb(*inputs, backend="sdpa", **arguments)


def test_a_named_backend_is_the_one_that_runs(monkeypatch):
    inputs = problem()
    for name in ON_CPU:
        monkeypatch.setattr(
            type(BACKENDS[name]), "run", lambda self, problem, gatherer=None: problem.value[:, :, :5] * 0
        )
        assert not regard.attend(*inputs, backend=name).any()
        monkeypatch.undo()
        assert regard.attend(*inputs, backend=name).any()


def test_memory_of_a_window_is_that_of_the_window(monkeypatch):
    """A window's dense mask is only ever made for slices of queries and the keys that they see."""
    seen = []
    allows = masks.Band.allows
    monkeypatch.setattr(masks.Band, "allows", lambda self, grid: seen.append(grid.shape) or allows(self, grid))
    inputs = problem(torch.float32, queries=4096, keys=4096)
    regard.attend(*inputs, mask=masks.window(64, 0), backend="sdpa")
    assert max(queries * keys for _, _, queries, keys in seen) <= 512 * 1024


def test_a_generator_that_cannot_be_rewound_is_not_recomputed():
    inputs = problem(torch.float32, queries=1024, keys=1024, requires_grad=True)
    drawn = normalizers.hard("gumbel", generator=torch.Generator())
    plan = regard.plan(*inputs, normalizer=drawn)
    assert plan.backend == "reference"
    assert "cannot rewind" in plan.reasons["tiled"]
    with torch.no_grad():
        assert regard.plan(*inputs, normalizer=drawn).backend == "tiled"


def attended(dtype, pairs, gradient=True):
    """Queries, keys and values of 16 tokens in as many heads as make so many pairs."""
    shape = (pairs // 2048, 8, 16, 32)
    return [torch.zeros(shape, dtype=dtype, requires_grad=gradient) for _ in range(3)]


def test_short_rows_with_a_gradient_run_on_the_specification_under_a_mask():
    mask = masks.lengths(list(range(1, 17)) * 8)
    assert regard.plan(*attended(torch.float32, 2**18), mask=mask).backend == "reference"
    plan = regard.plan(*attended(torch.float32, 2**18, gradient=False), mask=mask)
    assert plan.backend != "reference"
    with torch.no_grad():
        assert regard.plan(*attended(torch.float32, 2**18), mask=mask).backend == plan.backend
    assert regard.plan(*attended(torch.float32, 2**19), mask=masks.lengths(list(range(1, 17)) * 16)).backend == "cpu"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_avoids_slow_products(dtype, monkeypatch):
    monkeypatch.setattr("regard.attention.planner.multiplies_bfloat16", lambda: False)
    for tiles, wide, small, large in ((False, False, "reference", "cpu"), (True, True, "sdpa", "sdpa")):
        monkeypatch.setattr("regard.attention.planner.microkernel_is_faster", lambda wide=wide: wide)
        monkeypatch.setattr("regard.attention.planner.multiplies_half_in_tiles", lambda tiles=tiles: tiles)
        assert regard.plan(*attended(dtype, 2**15)).backend == small
        assert regard.plan(*attended(dtype, 2**19)).backend == large
        forward = "sdpa" if tiles or dtype == torch.bfloat16 else "cpu"
        assert regard.plan(*attended(dtype, 2**19, gradient=False)).backend == forward
    monkeypatch.setattr("regard.attention.planner.multiplies_half_in_tiles", lambda: False)
    for name in ("microkernel_is_faster", "multiplies_bfloat16"):
        with monkeypatch.context() as patch:
            patch.setattr(f"regard.attention.planner.{name}", lambda: True)
            assert regard.plan(*attended(dtype, 2**19, gradient=False)).backend == "cpu"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_few_queries_read_half_precision_as_it_is(dtype):
    query, key = torch.zeros(1, 8, 1, 64, dtype=dtype), torch.zeros(1, 8, 512, 64, dtype=dtype)
    assert regard.plan(query, key, key).backend == "cpu"
    assert regard.plan(query, key[:, :, :128], key[:, :, :128]).backend == "sdpa"
    assert regard.plan(query[..., 1:], key[..., 1:], key[..., 1:]).backend == "sdpa"


def test_rules_of_processors_are_not_those_of_other_devices():
    for dtype in (torch.float32, torch.bfloat16):
        inputs = [tensor.to("meta") for tensor in attended(dtype, 2**18)]
        assert regard.plan(*inputs).backend == "sdpa"
