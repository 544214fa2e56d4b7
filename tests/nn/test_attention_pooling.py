"""Attention pooling: the equations of its paper, padding without any effect, weights without a changed output."""

import math

import pytest
import torch
from torch.nn import functional as F

from regard.errors import ArgumentError, ShapeError, UnknownNameError
from regard.nn import AttentionPooling
from regard.nn.attention_pooling import POOLING_SCORES

BATCH, LENGTH, DIM = 3, 7, 5
LENGTHS = torch.tensor([7, 4, 0])
NORMALIZERS = ("softmax", "sparsemax", "entmax15", "sigmoid")


def annotations(dtype=torch.float64):
    return torch.randn(BATCH, LENGTH, DIM, dtype=dtype)


def test_the_additive_score_is_that_of_yang_et_al():
    pooling = AttentionPooling(DIM, score_dim=11).double()
    torch.nn.init.normal_(pooling.query)
    h = annotations()
    u = torch.tanh(h @ pooling.score.key_projection.weight.T + pooling.query[0])  # eq. 5: b_w is the learned query
    alpha = (u @ pooling.score.weight[0]).softmax(-1)  # eq. 6: u_w
    found = pooling(h, need_weights=True)
    torch.testing.assert_close(found.weights[:, 0], alpha)
    torch.testing.assert_close(found.output, torch.einsum("bt,btd->bd", alpha, h))  # eq. 7


def test_several_heads_are_several_poolings():
    joined = AttentionPooling(DIM, heads=2).double()
    torch.nn.init.normal_(joined.query)
    h = annotations()
    found = joined(h, LENGTHS, need_weights=True)
    for head in range(2):
        single = AttentionPooling(DIM).double()
        with torch.no_grad():
            single.query.copy_(joined.query[head : head + 1])
            single.score.weight.copy_(joined.score.weight[head : head + 1])
            single.score.key_projection.weight.copy_(joined.score.key_projection.weight)
        own = single(h, LENGTHS, need_weights=True)
        torch.testing.assert_close(found.output.unflatten(1, (2, DIM))[:, head], own.output)
        torch.testing.assert_close(found.weights[:, head], own.weights[:, 0])


def test_the_scaled_dot_score_needs_nothing_but_the_query():
    pooling = AttentionPooling(DIM, score="scaled_dot").double()
    assert [name for name, _ in pooling.named_parameters()] == ["query"]
    h = annotations()
    weights = (h @ pooling.query[0] / math.sqrt(DIM)).softmax(-1)
    torch.testing.assert_close(pooling(h, need_weights=True).weights[:, 0], weights)


@pytest.mark.parametrize("score", POOLING_SCORES)
@pytest.mark.parametrize("heads", [1, 3])
def test_padding_never_affects_attention_pooling(score, heads):
    pooling = AttentionPooling(DIM, heads, score=score).double()
    h = annotations()
    wrong = h.masked_fill((torch.arange(LENGTH) >= LENGTHS[:, None])[..., None], math.nan)
    found = pooling(wrong.requires_grad_(), LENGTHS, need_weights=True)
    assert found.output.shape == (BATCH, heads * DIM)
    for row, length in enumerate(LENGTHS.tolist()):
        if not length:
            assert not found.output[row].any()
            assert not found.weights[row].any()
            continue
        alone = pooling(h[row : row + 1, :length], need_weights=True)
        torch.testing.assert_close(found.output[row], alone.output[0])
        torch.testing.assert_close(found.weights[row, :, :length], alone.weights[0])
        assert not found.weights[row, :, length:].any()
    found.output.sum().backward()
    for name, parameter in pooling.named_parameters():
        assert parameter.grad.isfinite().all(), name


@pytest.mark.parametrize("normalizer", NORMALIZERS)
def test_weights_do_not_change_the_output(normalizer):
    pooling = AttentionPooling(DIM, 2, normalizer=normalizer)
    h = annotations(torch.float32)
    plain, observed = pooling(h, LENGTHS), pooling(h, LENGTHS, need_weights=True)
    assert plain.weights is None
    assert torch.equal(plain.output, observed.output)
    if normalizer != "sigmoid":
        torch.testing.assert_close(observed.weights[:2].sum(-1), torch.ones(2, 2))


@pytest.mark.parametrize("score", ["additive", "scaled_dot"])
def test_gradients_of_attention_pooling_are_exact(score):
    pooling = AttentionPooling(DIM, 2, score=score, backend="reference").double()
    torch.nn.init.normal_(pooling.query)
    h = annotations().requires_grad_()
    assert torch.autograd.gradcheck(lambda h, *_: pooling(h, LENGTHS).output, (h, *pooling.parameters()))


def test_a_callable_score():
    pooling = AttentionPooling(DIM, score=lambda query, key: query @ key.mT).double()
    h = annotations()
    weights = (h @ pooling.query[0]).softmax(-1)
    torch.testing.assert_close(pooling(h).output, torch.einsum("bt,btd->bd", weights, h))


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"dim": 0}, ArgumentError, "dim must be at least 1"),
        ({"dim": 4, "heads": 0}, ArgumentError, "heads must be at least 1"),
        ({"dim": 4, "score": "location"}, UnknownNameError, "location"),
        ({"dim": 4, "score": "aditive"}, UnknownNameError, "additive"),
        ({"dim": 4, "score": F.cosine_similarity, "score_dim": 3}, ArgumentError, "score_dim"),
        ({"dim": 4, "dropout": 1.0}, ArgumentError, "dropout"),
    ],
)
def test_attention_pooling_refuses_wrong_arguments(arguments, error, words):
    with pytest.raises(error, match=words):
        AttentionPooling(**arguments)


def test_attention_pooling_refuses_wrong_annotations():
    with pytest.raises(ShapeError, match=r"annotations must be \[batch, length, 5\]"):
        AttentionPooling(5)(torch.randn(2, 3, 4))


def test_autocast_chooses_the_dtype_of_the_projection_alone():
    pooling, h = AttentionPooling(64, 2), torch.randn(3, 9, 64)
    torch.nn.init.normal_(pooling.query)
    lengths = torch.tensor([9, 4, 0])
    with torch.autocast("cpu", torch.bfloat16):
        found = pooling(h, lengths, need_weights=True)
        key = F.linear(h, pooling.score.key_projection.weight)
    assert key.dtype == torch.bfloat16
    assert found.output.dtype == found.weights.dtype == torch.float32
    u = torch.tanh(key.float()[:, None] + pooling.query[None, :, None])
    hidden = torch.arange(9) >= lengths[:, None, None]
    alpha = (u @ pooling.score.weight[:, :, None])[..., 0].masked_fill(hidden, -torch.inf).softmax(-1).nan_to_num()
    torch.testing.assert_close(found.weights, alpha)
    torch.testing.assert_close(found.output, torch.einsum("bht,btd->bhd", alpha, h).flatten(1))
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(ShapeError, match="keys must be an integer or"):
        pooling(h, torch.tensor([9]))


def test_padding_reaches_no_gradient_under_autocast():
    pooling, h = AttentionPooling(8), torch.randn(2, 5, 8)
    gradients = []
    for padding in (0.0, math.nan):
        given = h.clone()
        given[1, 2:] = padding
        given.requires_grad_()
        with torch.autocast("cpu", torch.bfloat16):
            total = pooling(given, torch.tensor([5, 2])).output.square().sum()
        gradients.append(torch.autograd.grad(total, [given, *pooling.parameters()]))
    for first, second in zip(*gradients, strict=True):
        assert torch.equal(first, second)
        assert second.isfinite().all()
