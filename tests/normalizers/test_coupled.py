"""Normalizers whose weights depend on more than their row: `Normalizer.couples`."""

import pytest
import torch

import regard
from backends import ON_CPU
from cases import MASKS, B, H, K, Q, problem
from regard import masks, nn, normalizers
from regard.errors import ArgumentError, BackendError, ShapeError
from regard.shapes.grid import Grid

MIXING = torch.randn(2, H, H, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
COUPLED = {
    "over_queries": lambda: normalizers.OverQueries(epsilon=0.01),
    "sinkhorn": lambda: normalizers.Sinkhorn(7),
    "talking": lambda: normalizers.talking_heads(*MIXING, "sparsemax"),
    "talking before": lambda: normalizers.talking_heads(before=MIXING[0]),
    "talking over queries": lambda: normalizers.talking_heads(*MIXING, "over_queries"),
}
QUERIES = [name for name in COUPLED if COUPLED[name]().couples == "queries"]


def slots(scores, epsilon=0.01):
    """Locatello et al. 2020, algorithm 1, of one head; −inf is hidden."""
    weights = torch.zeros_like(scores)
    for i, j in (scores > -torch.inf).nonzero().tolist():
        weights[i, j] = scores[i, j].exp() / sum(scores[other, j].exp() for other in range(len(scores))) + epsilon
    for i in range(len(scores)):
        if weights[i].any():
            weights[i] = weights[i].clone() / weights[i].sum()
    return weights


def doubly_stochastic(scores, iterations=7):
    """Sander et al. 2022, of one head, with equal sums of the columns that are seen."""
    matrix = scores.exp()
    ratio = int(matrix.any(1).sum()) / max(1, int(matrix.any(0).sum()))
    for number in range(iterations):
        for i in range(matrix.shape[number % 2]):
            line = matrix.select(number % 2, i)
            if line.any():
                line *= (ratio if number % 2 else 1) / line.sum()
    return matrix


def talking(scores, normalize, before=None, after=None):
    """Shazeer et al. 2020, section 4, a pair of heads after the other."""
    visible = scores > -torch.inf
    mixed = scores.clone()
    if before is not None:
        mixed = torch.zeros_like(scores)
        for g in range(H):
            for h in range(H):
                mixed[:, h] += torch.where(visible[:, g], scores[:, g], 0.0) * before[g, h]
        mixed[~visible] = -torch.inf
    weights = normalize(mixed)
    if after is None:
        return weights
    result = torch.zeros_like(weights)
    for g in range(H):
        for h in range(H):
            result[:, h] += weights[:, g] * after[g, h]
    return torch.where(visible, result, 0.0)


def soft(scores):
    """A softmax of each row of one head."""
    powers = scores.exp()
    for row in powers:
        row /= row.sum() if row.any() else 1
    return powers


def sparse(scores):
    """Martins and Astudillo 2016, algorithm 1, of each row of one head."""
    weights = torch.zeros_like(scores)
    for i, row in enumerate(scores):
        ordered = sorted((one for one in row.tolist() if one > -float("inf")), reverse=True)
        sizes = [k for k in range(1, len(ordered) + 1) if 1 + k * ordered[k - 1] > sum(ordered[:k])]
        if sizes:
            weights[i] = (row - (sum(ordered[: sizes[-1]]) - 1) / sizes[-1]).clamp(min=0)
    return weights


def by_head(function):
    return lambda scores: torch.stack([torch.stack([function(head.clone()) for head in row]) for row in scores])


ORACLES = {
    "over_queries": by_head(slots),
    "sinkhorn": by_head(doubly_stochastic),
    "talking": lambda scores: talking(scores, by_head(sparse), *MIXING),
    "talking before": lambda scores: talking(scores, by_head(soft), MIXING[0]),
    "talking over queries": lambda scores: talking(scores, by_head(lambda head: slots(head, 1e-8)), *MIXING),
}


@pytest.mark.parametrize("mask", ["none", "where", "lengths", "hole", "nobody"])
@pytest.mark.parametrize("name", COUPLED)
def test_every_backend_that_runs_it_computes_the_equation(name, mask, monkeypatch):
    monkeypatch.setattr("regard.attention.backends.tiled.BLOCK_ELEMENTS", 2 * H * K)
    inputs = tuple(tensor.requires_grad_() for tensor in problem())
    arguments = {"normalizer": COUPLED[name](), "mask": MASKS[mask]()}
    scores = inputs[0] @ inputs[1].mT / inputs[0].shape[-1] ** 0.5
    visible = (
        torch.ones(B, H, Q, K, dtype=torch.bool) if mask == "none" else arguments["mask"].dense(Grid.of(*inputs[:2]))
    )
    expected = ORACLES[name](torch.where(visible, scores, -torch.inf).detach())
    plan = regard.plan(*inputs, **arguments)
    for backend in ON_CPU:
        if plan.reasons[backend].startswith("cannot"):
            with pytest.raises(BackendError, match="cannot run this"):
                regard.attend(*inputs, backend=backend, **arguments)
            continue
        read = regard.Readings(weights=True, tile=((1, 3), (2, 5)))
        observed = regard.observe(*inputs, read=read, backend=backend, **arguments)
        torch.testing.assert_close(observed.weights, expected, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(observed.tile, expected[:, :, 1:3, 2:5], rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(observed.output, expected @ inputs[2], rtol=1e-9, atol=1e-9)
        assert torch.equal(observed.output, regard.attend(*inputs, backend=backend, **arguments))
    ran = {backend for backend in ON_CPU if not plan.reasons[backend].startswith("cannot")}
    assert ran == ({"reference"} if name in QUERIES else {"reference", "tiled"})
    assert all("depends on all queries" in plan.reasons[other] for other in set(ON_CPU) - ran if name in QUERIES)


@pytest.mark.parametrize("name", COUPLED)
def test_gradients_are_exact_and_reach_every_parameter(name):
    scores = problem()[0][:1, :, :3, :4] * 2
    scores[:, 0, 1, 2:] = -torch.inf
    visible = scores > -torch.inf
    normalizer = COUPLED[name]()

    def weights(free, *mixing):
        normalizing = normalizer
        if mixing:
            normalizing = normalizers.talking_heads(*mixing, normalizer.normalizer)
        return normalizing(torch.where(visible, free, -torch.inf))

    mixing = [one.clone().requires_grad_() for one in MIXING] if name == "talking over queries" else []
    free = scores.masked_fill(~visible, 0.0).requires_grad_()
    assert torch.autograd.gradcheck(weights, (free, *mixing), check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(weights, (free, *mixing))


@pytest.mark.parametrize("name", QUERIES)
def test_a_hidden_number_that_is_not_finite_reaches_no_weight_of_coupled_queries(name):
    query, key, value = problem()
    arguments = {"normalizer": COUPLED[name](), "mask": MASKS["where"]()}
    expected = regard.attend_with_weights(query, key, value, **arguments)
    bad = value.clone()
    bad[:, :, 3] = torch.nan
    output, weights = regard.attend_with_weights(query, key, bad, **arguments)
    sees = arguments["mask"].dense(Grid.of(query, key))[..., 3]
    torch.testing.assert_close(weights, expected.weights)
    assert torch.equal(output.isnan().any(-1), sees.expand_as(output[..., 0]))
    torch.testing.assert_close(output[~sees], expected.output[~sees])


def test_sinkhorn_and_softmax_agree_where_they_must():
    scores = problem()[0][..., :Q]
    torch.testing.assert_close(normalizers.Sinkhorn(1)(scores), scores.softmax(-1))
    limit = normalizers.Sinkhorn(201)(scores)
    torch.testing.assert_close(limit.sum(-2), torch.ones_like(limit[..., 0]))
    torch.testing.assert_close(normalizers.Sinkhorn(201)(scores.mT).mT, limit)
    wide = normalizers.Sinkhorn(201)(scores[..., :2])
    torch.testing.assert_close(wide.sum(-2), torch.full_like(wide[..., 0, :], Q / 2))


def test_coupled_normalizers_refuse_wrong_arguments():
    with pytest.raises(ArgumentError, match="iterations must be odd"):
        normalizers.Sinkhorn(4)
    with pytest.raises(ShapeError, match="before must be"):
        normalizers.talking_heads(before=torch.ones(2, 3))
    with pytest.raises(ShapeError, match="after mixes 2 heads"):
        regard.attend(*problem(), normalizer=normalizers.talking_heads(after=torch.eye(2).double()))
    with pytest.raises(ShapeError, match="with the keys along dim"):
        normalizers.over_queries(torch.ones(3))
    with pytest.raises(ArgumentError, match="depends on later tokens"):
        nn.TransformerDecoderLayer(8, 2, normalizer="sinkhorn")
    encoder = nn.TransformerEncoder.create(1, nn.LayerConfig(dim=8, heads=2, feedforward=8, normalizer="sinkhorn"))
    with pytest.raises(ArgumentError, match="depends on later tokens"):
        encoder.step(torch.randn(1, 1, 8))
    with pytest.raises(ArgumentError, match="this attention has one query"):
        nn.Attention("dot", normalizer="over_queries")


@pytest.mark.parametrize("name", ["over_queries", "sinkhorn"])
def test_padding_takes_no_part_in_layers_and_later_tokens_are_not_seen_behind_a_causal_mask(name):
    layer = nn.TransformerEncoderLayer(8, 2, 8, batch_first=True, normalizer=COUPLED[name]()).double().eval()
    attention, x, lengths = layer.self_attn, torch.randn(2, 5, 8, dtype=torch.float64), torch.tensor([5, 3])
    hidden = torch.arange(5) >= lengths[:, None]
    spoilt, alone = x.masked_fill(hidden[..., None], torch.nan), x[1:, :3]
    for arguments in ({"lengths": lengths}, {"src_key_padding_mask": hidden}, {"mask": masks.lengths(lengths)}):
        torch.testing.assert_close(layer(spoilt, **arguments)[1:, :3], layer(alone))
    for arguments in ({"key_padding_mask": hidden}, {"mask": masks.lengths(lengths)}):
        output = attention(spoilt, spoilt, spoilt, **arguments)[0]
        torch.testing.assert_close(output[1:, :3], attention(alone, alone, alone)[0])
    later = torch.ones(5, 5).triu(1).bool()
    for arguments in ({"mask": "causal"}, {"src_mask": later}, {"is_causal": True}, {"mask": masks.window(1, 1)}):
        with pytest.raises(ArgumentError, match="depends on later tokens"):
            layer(x, **arguments)


def test_padding_of_queries_takes_no_part():
    x, normalizer = torch.randn(2, 1, 5, 4, dtype=torch.float64), normalizers.sinkhorn
    hidden = masks.lengths(torch.tensor([3, 5]), torch.tensor([3, 5]))
    whole = regard.attend(x, x, x, normalizer=normalizer, mask=hidden)
    alone = regard.attend(x[:1, :, :3], x[:1, :, :3], x[:1, :, :3], normalizer=normalizer)
    torch.testing.assert_close(whole[:1, :, :3], alone)
