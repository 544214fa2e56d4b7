"""What holds for every score: its formula pair by pair, gradients, precision, tiles, projections, empty inputs."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from regard import scores
from regard.shapes.grid import Grid

B, H, KV, Q, K, DIM, OTHER, UNITS = 2, 6, 3, 5, 7, 11, 13, 17


@dataclass(frozen=True)
class Case:
    """A score, and its formula for one pair, written out.

    Attributes:
        make: the score for these dims of query and key, in float64.
        pair: ``(score, q, k, (b, h, i, j)) -> number`` of one query and one key.
        key_dim: features of a key; queries have DIM.
        fixed: whether its weights say how many batch rows, heads or keys there are.
    """

    make: Callable[[], scores.Score]
    pair: Callable[..., Tensor | float]
    key_dim: int = DIM
    fixed: bool = False


def _uniform(*shape: int) -> Tensor:
    return torch.rand(shape, dtype=torch.float64) * 2 - 1


def _parameter(*shape: int) -> nn.Parameter:
    return nn.Parameter(_uniform(*shape))


def _linear(inputs: int, outputs: int, bias: bool = True) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=bias, dtype=torch.float64)


def _affine(layer: nn.Linear, x: Tensor) -> Tensor:
    return layer.weight @ x + (0 if layer.bias is None else layer.bias)


def _additive(s: scores.Additive, q: Tensor, k: Tensor, at: tuple, extra: Tensor | float = 0.0) -> Tensor:
    weight = s.weight if s.weight.dim() == 1 else s.weight[at[1]]
    q = q if s.query_projection is None else _affine(s.query_projection, q)
    k = k if s.key_projection is None else _affine(s.key_projection, k)
    return sum(w * torch.tanh(x) for w, x in zip(weight, q + k + extra, strict=True))


def _location_aware(s: scores.LocationAware, q: Tensor, k: Tensor, at: tuple) -> Tensor:
    b, h, _, j = at
    channels, _, width = s.convolution.weight.shape
    features = torch.zeros(channels, dtype=torch.float64) if s.convolution.bias is None else s.convolution.bias.clone()
    if s.earlier is not None:
        for channel, row in enumerate(s.earlier[b] if s.earlier.dim() == 3 else s.earlier[b, h]):
            for n in range(width):
                position = j + n - width // 2
                if 0 <= position < len(row):
                    features = features + s.convolution.weight[:, channel, n] * row[position]
    return _additive(s, q, k, at, s.location_projection.weight @ features)


def _new_location_aware(
    *weight: int, previous: tuple[int, ...] | None = None, bias: bool = True, sees: str = "previous"
) -> scores.Score:
    convolution = nn.Conv1d(2 if sees == "both" else 1, 3, 5, padding=2, bias=bias, dtype=torch.float64)
    score = scores.LocationAware(
        _parameter(*weight),
        convolution,
        _linear(3, UNITS, bias=False),
        _linear(DIM, UNITS, False),
        _linear(OTHER, UNITS),
        sees,
    )
    return score if previous is None else score.given(*torch.rand(2, *previous, dtype=torch.float64))


class Joined(nn.Module):
    """A network whose first layer nothing outside can see."""

    def __init__(self):
        super().__init__()
        self.layer = _linear(DIM + OTHER, 1)

    def forward(self, pairs: Tensor) -> Tensor:
        return self.layer(torch.sin(pairs))


def _shifted(score: Tensor, batch: Tensor, head: Tensor, query_index: Tensor, key_index: Tensor) -> Tensor:
    return score * (batch + 1) - 0.1 * head * (query_index - key_index)


def _network(s: scores.MLP, q: Tensor, k: Tensor, at: tuple) -> Tensor:
    return s.network(torch.cat([q, k])).squeeze()


def _own(query: Tensor, key: Tensor) -> Tensor:
    return -(query[..., :, None, :] - key[..., None, :, :]).abs().sum(-1)


CASES = {
    "dot": Case(scores.Dot, lambda s, q, k, at: sum(q * k)),
    "scaled_dot": Case(scores.ScaledDot, lambda s, q, k, at: sum(q * k) / DIM**0.5),
    "own scale": Case(lambda: scores.ScaledDot(-0.3), lambda s, q, k, at: -0.3 * sum(q * k)),
    "scale by head": Case(
        lambda: scores.ScaledDot(_parameter(H, 1, 1)), lambda s, q, k, at: s.scale[at[1], 0, 0] * sum(q * k), fixed=True
    ),
    "scale by batch": Case(
        lambda: scores.ScaledDot(_parameter(B, 1, 1, 1)),
        lambda s, q, k, at: s.scale[at[0], 0, 0, 0] * sum(q * k),
        fixed=True,
    ),
    "cosine": Case(lambda: scores.Cosine(0.7), lambda s, q, k, at: sum(q * k) / (sum(q * q) * sum(k * k)) ** 0.5 / 0.7),
    "cosine by head": Case(
        lambda: scores.Cosine(nn.Parameter(0.2 + _uniform(H, 1, 1).abs())),
        lambda s, q, k, at: sum(q * k) / (sum(q * q) * sum(k * k)) ** 0.5 / s.temperature[at[1], 0, 0],
        fixed=True,
    ),
    "general": Case(lambda: scores.General(_parameter(DIM, OTHER)), lambda s, q, k, at: sum(q * (s.weight @ k)), OTHER),
    "general by head": Case(
        lambda: scores.General(_parameter(H, DIM, OTHER)),
        lambda s, q, k, at: sum(q * (s.weight[at[1]] @ k)),
        OTHER,
        fixed=True,
    ),
    "distance": Case(scores.Distance, lambda s, q, k, at: -sum((q - k) ** 2)),
    "root distance": Case(lambda: scores.Distance(squared=False), lambda s, q, k, at: -(sum((q - k) ** 2) ** 0.5)),
    "additive": Case(
        lambda: scores.Additive(_parameter(UNITS), _linear(DIM, UNITS), _linear(OTHER, UNITS)), _additive, OTHER
    ),
    "additive by head": Case(
        lambda: scores.Additive(_parameter(H, UNITS), _linear(DIM, UNITS, False), _linear(OTHER, UNITS)),
        _additive,
        OTHER,
        fixed=True,
    ),
    "additive, projected": Case(lambda: scores.Additive(_parameter(DIM)), _additive),
    "additive, queries projected": Case(
        lambda: scores.Additive(_parameter(DIM), None, _linear(OTHER, DIM)), _additive, OTHER
    ),
    "mlp, no hidden": Case(lambda: scores.MLP.create(DIM, OTHER, ()).double(), _network, OTHER),
    "mlp": Case(lambda: scores.MLP.create(DIM, OTHER, (UNITS,)).double(), _network, OTHER),
    "mlp, deep": Case(lambda: scores.MLP.create(DIM, OTHER, (5, 3, 7), nn.GELU).double(), _network, OTHER),
    "mlp, opaque": Case(lambda: scores.MLP(Joined()), _network, OTHER),
    "location": Case(
        lambda: scores.Location(_parameter(K + 2, DIM)), lambda s, q, k, at: sum(q * s.weight[at[3]]), OTHER
    ),
    "location aware, first step": Case(lambda: _new_location_aware(UNITS), _location_aware, OTHER),
    "location aware": Case(lambda: _new_location_aware(UNITS, previous=(B, K)), _location_aware, OTHER, fixed=True),
    "location aware, of both": Case(
        lambda: _new_location_aware(UNITS, previous=(B, K), sees="both"), _location_aware, OTHER, fixed=True
    ),
    "location aware by head": Case(
        lambda: _new_location_aware(H, UNITS, previous=(B, H, K), bias=False), _location_aware, OTHER, fixed=True
    ),
    "soft cap": Case(
        lambda: scores.SoftCap("scaled_dot", 0.9), lambda s, q, k, at: 0.9 * math.tanh(sum(q * k) / DIM**0.5 / 0.9)
    ),
    "modified": Case(
        lambda: scores.Modified("dot", _shifted), lambda s, q, k, at: _shifted(sum(q * k), *torch.tensor(at))
    ),
    "capped, then modified": Case(
        lambda: scores.Modified(scores.SoftCap(scores.General(_parameter(DIM, OTHER)), 1.3), _shifted),
        lambda s, q, k, at: _shifted(1.3 * torch.tanh(sum(q * (s.score.score.weight @ k)) / 1.3), *torch.tensor(at)),
        OTHER,
    ),
    "modified, then capped": Case(
        lambda: scores.SoftCap(scores.Modified(scores.Additive(_parameter(DIM)), _shifted), 1.3),
        lambda s, q, k, at: 1.3 * torch.tanh(_shifted(_additive(s.score.score, q, k, at), *torch.tensor(at)) / 1.3),
    ),
    "callable": Case(lambda: scores.as_score(_own), lambda s, q, k, at: -sum(abs(q - k))),
}

FREE = {name: case for name, case in CASES.items() if not case.fixed}

every_score = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


def _inputs(case: Case, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    return _uniform(B, H, Q, DIM).to(dtype), _uniform(B, KV, K, case.key_dim).to(dtype)


@every_score
@torch.no_grad()
def test_each_pair_is_its_formula(case: Case):
    score, (query, key) = case.make(), _inputs(case)
    expected = torch.empty(B, H, Q, K, dtype=torch.float64)
    for b, h, i, j in torch.cartesian_prod(*map(torch.arange, (B, H, Q, K))).tolist():
        expected[b, h, i, j] = case.pair(score, query[b, h, i], key[b, h // (H // KV), j], (b, h, i, j))
    torch.testing.assert_close(score(query, key), expected, rtol=1e-12, atol=1e-12)


@every_score
def test_gradients_reach_inputs_and_every_parameter(case: Case, is_full: bool):
    score = case.make()
    query = _uniform(B, H, 3, DIM)[:, :, ::2].requires_grad_()
    key = _uniform(B, KV, K, case.key_dim).requires_grad_()
    projection = _uniform(B, H, 2, K)  # one number, so that the check stays small; each pair has a weight of its own
    parameters = list(score.parameters())
    assert torch.autograd.gradcheck(
        lambda query, key, *_: (score(query, key) * projection).sum(), (query, key, *parameters), fast_mode=not is_full
    )
    score(query, key).square().sum().backward()
    for name, parameter in score.named_parameters():
        assert parameter.grad is not None, name
        # At a first step there is nothing that a filter could see.
        unseen = name == "convolution.weight" and getattr(score, "earlier", None) is None
        assert parameter.grad.any() != unseen, name


@every_score
@torch.no_grad()
def test_float32_is_near_float64(case: Case):
    score, (query, key) = case.make(), _inputs(case, torch.float32)
    exact = score(query.double(), key.double())
    error = (score.float()(query, key).double() - exact).abs().max()
    assert error <= 32 * torch.finfo(torch.float32).eps * max(1.0, exact.abs().max())


@every_score
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("weights", ["in float32", "in half precision"])
@torch.no_grad()
def test_every_score_scores_half_precision_in_float32(case: Case, dtype: torch.dtype, weights: str):
    score, (query, key) = case.make(), _inputs(case, dtype)
    score = score.float() if weights == "in float32" else score.to(dtype)
    half = score(query, key)
    assert half.dtype == torch.float32
    torch.testing.assert_close(half, score.float()(query.float(), key.float()), rtol=1e-6, atol=1e-6)


@every_score
@torch.no_grad()
def test_inputs_decide_the_dtype(case: Case):
    score, (query, key) = case.make(), _inputs(case)
    assert score(query.float(), key.float()).dtype == torch.float32
    assert score.float()(query, key).dtype == torch.float64


@every_score
@torch.no_grad()
def test_a_tile_of_prepared_inputs_is_a_tile_of_the_scores(case: Case):
    score, (query, key) = case.make(), _inputs(case)
    whole, prepared = score(query, key), score.prepare(query, key)
    grid = Grid.whole(B, H, Q, K)
    for b, q, k in [
        (range(2), range(1, 4), range(2, 7)),
        (range(1, 2), range(5), range(1)),
        (range(1), range(0), range(7)),
    ]:
        batch, queries, keys = (slice(span.start, span.stop) for span in (b, q, k))
        tile = grid.tile(batch=b, queries=q, keys=k)
        rows = prepared.key if prepared.key.shape[0] == 1 else prepared.key[batch]
        part = prepared.primitive(prepared.query[batch, :, queries], rows[:, :, keys])
        part = part * _cut(prepared.scale, tile)
        for modifier in prepared.modifiers:
            part = modifier(part, tile)
        torch.testing.assert_close(part, whole[batch, :, queries, keys], rtol=1e-12, atol=1e-12)


def _cut(scale: float | Tensor, tile: Grid) -> float | Tensor:
    return tile.cut(scale) if isinstance(scale, Tensor) else scale


@every_score
@torch.no_grad()
def test_projecting_first_changes_nothing(case: Case):
    score, (query, key) = case.make(), _inputs(case)
    later = score.projected()(score.project_query(query), score.project_key(key))
    torch.testing.assert_close(later, score(query, key), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("case", FREE.values(), ids=FREE.keys())
@pytest.mark.parametrize("shape", [(0, H, KV, Q, K), (B, H, KV, 0, K), (B, H, KV, Q, 0), (1, 1, 1, 1, 1)])
def test_empty_and_single_inputs(case: Case, shape: tuple[int, ...]):
    batch, heads, kv_heads, queries, keys = shape
    score = case.make()
    query = _uniform(batch, heads, queries, DIM).requires_grad_()
    key = _uniform(batch, kv_heads, keys, case.key_dim).requires_grad_()
    result = score(query, key)
    assert result.shape == (batch, heads, queries, keys)
    result.sum().backward()
    for tensor in (query, key):
        assert tensor.grad is None or tensor.grad.isfinite().all()


@every_score
def test_a_score_survives_saving(case: Case):
    score, other = case.make(), case.make()
    state = {name: tensor.detach().clone() for name, tensor in score.state_dict().items()}
    other.load_state_dict(state)
    for name, tensor in other.state_dict().items():
        assert torch.equal(tensor, state[name])
    assert not any("earlier" in name for name in state)
