"""The planner chooses an exact backend, and says why."""

import pytest
import torch

import regard
from cases import D, H, problem
from regard import masks, normalizers, scores
from regard.attention.planner import BACKENDS
from regard.errors import BackendError


def test_every_backend_has_a_reason():
    plan = regard.plan(*problem())
    assert plan.backend == "sdpa"
    assert list(plan.reasons) == list(BACKENDS)
    assert "'sdpa' comes first" in plan.reasons["tiled"]
    assert str(plan).startswith("→ sdpa")


def test_small_problems_without_a_kernel_run_on_the_reference():
    assert regard.plan(*problem(), normalizer="sparsemax").backend == "reference"


def test_large_problems_without_a_kernel_run_on_tiled():
    inputs = problem(torch.float32, queries=1024, keys=1024)
    plan = regard.plan(*inputs, normalizer=normalizers.Hard("straight_through"))
    assert plan.backend == "tiled"
    assert "would hold" in plan.reasons["reference"]
    assert "no kernel for Hard" in plan.reasons["cpu"]


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
def test_a_named_backend_runs_or_raises(arguments, reason):
    inputs = problem(torch.float32)
    assert regard.plan(*inputs, **arguments).reasons["sdpa"].startswith("cannot")
    for verb in (regard.attend, regard.observe, regard.plan):
        with pytest.raises(BackendError, match=reason):
            verb(*inputs, backend="sdpa", **arguments)


def test_a_named_backend_is_the_one_that_runs(monkeypatch):
    inputs = problem()
    for name, backend in BACKENDS.items():
        monkeypatch.setattr(type(backend), "run", lambda self, problem, gatherer=None: problem.value[:, :, :5] * 0)
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
