"""Every score is differentiable in every mode, compiles whole, and runs without numbers."""

import pytest
import torch
from torch.func import functional_call, grad, jvp, vmap

from regard import scores

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")

B, H, KV, Q, K, D = 2, 6, 3, 5, 7, 4
STEP = 1e-6

SCORES = {
    "dot": scores.Dot,
    "scaled_dot": scores.ScaledDot,
    "learned_scale": lambda: scores.ScaledDot(torch.nn.Parameter(torch.rand(H, 1, 1) + 0.5)),
    "cosine": lambda: scores.Cosine.create(H),
    "general": lambda: scores.General.create(D, D, H),
    "distance": scores.Distance,
    "unsquared": lambda: scores.Distance(squared=False),
    "additive": lambda: scores.Additive.create(D, D, 3, H),
    "concat": lambda: scores.Additive.concat(D, D, 3),
    "mlp": lambda: scores.MLP.create(D, D, (3, 5)),
    "location": lambda: scores.Location.create(D, K + 2),
    "location_aware": lambda: scores.LocationAware.create(D, D, 3, channels=2, kernel_size=3).given(torch.rand(B, K)),
    "soft_cap": lambda: scores.SoftCap(scores.General.create(D, D), 2.0),
    "modified": lambda: scores.Modified("dot", lambda score, batch, head, i, j: score * (1 + head) - (i - j)),
    "custom": lambda: scores.Custom(lambda query, key: (query @ key.mT).sinh()),
}
every = pytest.mark.parametrize("name", SCORES)


def inputs_of(*leading):
    return torch.randn(*leading, B, H, Q, D).double(), torch.randn(*leading, B, KV, K, D).double()


def slope(function, points, directions):
    forth = function(*(x + STEP * d for x, d in zip(points, directions, strict=True)))
    back = function(*(x - STEP * d for x, d in zip(points, directions, strict=True)))
    return (forth - back).detach() / (2 * STEP)


@every
def test_forward_mode_and_batches(name: str):
    score, inputs = SCORES[name]().double(), inputs_of()
    directions = tuple(torch.randn_like(tensor) for tensor in inputs)
    torch.testing.assert_close(
        jvp(score, inputs, directions)[1], slope(score, inputs, directions), rtol=1e-6, atol=1e-6
    )
    parameters = {key: value.detach() for key, value in score.named_parameters()}
    if parameters:
        along = {key: torch.randn_like(value) for key, value in parameters.items()}

        def call(*values):
            return functional_call(score, dict(zip(parameters, values, strict=True)), inputs)

        points, directions = tuple(parameters.values()), tuple(along.values())
        torch.testing.assert_close(
            jvp(call, points, directions)[1], slope(call, points, directions), rtol=1e-6, atol=1e-6
        )
    query, key = inputs_of(3)
    each = torch.stack([score(*parts) for parts in zip(query, key, strict=True)])
    torch.testing.assert_close(vmap(score)(query, key), each)
    torch.testing.assert_close(
        vmap(grad(lambda q, k: score(q, k).square().sum()))(query, key)[1],
        grad(lambda q: score(q, key[1]).square().sum())(query[1]),
    )


@every
def test_second_derivatives_of_scores_are_exact(name: str, is_full: bool):
    score = SCORES[name]().double()
    inputs = [tensor[:1, :, :2, :].clone().requires_grad_() for tensor in inputs_of()]
    if name == "location_aware":
        score = score.given(torch.rand(1, 2).double())
    assert torch.autograd.gradgradcheck(score, inputs, fast_mode=not is_full)


@every
def test_scores_compile_in_one_graph(name: str):
    torch._dynamo.reset()
    score = SCORES[name]().double()
    inputs = [tensor.requires_grad_() for tensor in inputs_of()]
    compiled = torch.compile(score, fullgraph=True, backend="aot_eager")
    leaves = inputs + list(score.parameters())
    results = []
    for call in (score, compiled):
        scored = call(*inputs)
        results.append((scored, *torch.autograd.grad(scored.square().sum(), leaves, allow_unused=True)))
    for got, expected in zip(results[1], results[0], strict=True):
        if expected is None:
            assert got is None or not got.any()
        else:
            torch.testing.assert_close(got, expected)


def test_a_score_by_name_compiles_whole():
    torch._dynamo.reset()
    query, key = inputs_of()
    for name in ("dot", "scaled_dot", "cosine", "distance"):
        compiled = torch.compile(
            lambda q, k, name=name: scores.as_score(name)(q, k), fullgraph=True, backend="aot_eager"
        )
        torch.testing.assert_close(compiled(query, key), scores.as_score(name)(query, key))


def test_a_projected_or_given_score_compiles_whole():
    """What a decoder does at each step."""
    torch._dynamo.reset()
    score = scores.LocationAware.create(D, D, 3, channels=2, kernel_size=3).double()
    query, key = inputs_of()

    def step(query, key, previous):
        given = score.projected().given(previous)
        return given(score.project_query(query), score.project_key(key))

    previous = torch.rand(B, K).double()
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(query, key, previous), step(query, key, previous))


@every
def test_scores_run_on_tensors_without_numbers(name: str):
    from torch._subclasses.fake_tensor import FakeTensorMode

    for context in (torch.device("meta"), FakeTensorMode()):
        with context:
            got = SCORES[name]()(torch.randn(B, H, Q, D), torch.randn(B, KV, K, D))
        assert got.shape == (B, H, Q, K)
        assert got.dtype == torch.float32
