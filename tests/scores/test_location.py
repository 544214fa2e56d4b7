"""Location reads no key; LocationAware reads where attention was."""

import pytest
import torch
from torch import nn

from regard import scores
from regard.errors import ArgumentError, KindError, ShapeError


def _aware(**changes) -> scores.LocationAware:
    parts = {
        "weight": nn.Parameter(torch.randn(5)),
        "convolution": nn.Conv1d(1, 3, 7, padding="same"),
        "location_projection": nn.Linear(3, 5, bias=False),
    }
    return scores.LocationAware(**{**parts, **changes})


def test_location_ignores_what_keys_hold():
    query, key = torch.randn(2, 6, 5, 7), torch.randn(2, 3, 11, 13, requires_grad=True)
    score = scores.Location.create(7, 17)
    assert torch.equal(score(query, key), score(query, torch.randn(2, 3, 11, 13)))
    assert torch.equal(score(query, key)[..., :3], score(query, key[:, :, :3]))
    assert torch.autograd.grad(score(query, key).sum(), key, allow_unused=True) == (None,)


def test_location_has_an_end():
    query, score = torch.randn(1, 1, 2, 7), scores.Location(torch.zeros(5, 7))
    score(query, torch.zeros(1, 1, 5, 3))
    with pytest.raises(ShapeError, match=r"key must have at most 5 keys, .* it has 6"):
        score(query, torch.zeros(1, 1, 6, 3))
    with pytest.raises(ShapeError, match="query must have dim 7, as weight"):
        score(torch.zeros(1, 1, 2, 3), torch.zeros(1, 1, 5, 3))


def test_earlier_weights_are_seen_within_the_filters_reach():
    query, key = torch.randn(1, 1, 2, 5), torch.randn(1, 1, 13, 5)
    score = _aware()
    nowhere, somewhere = torch.zeros(1, 13), torch.zeros(1, 13)
    somewhere[0, 6] = 1.0
    changed = (score.given(somewhere)(query, key) != score.given(nowhere)(query, key)).any(dim=2)
    assert changed[0, 0].nonzero().flatten().tolist() == list(range(3, 10))
    assert torch.equal(score.given(nowhere)(query, key), score(query, key))


def test_binding_leaves_the_score_and_shares_its_parameters():
    score = _aware(key_projection=nn.Linear(11, 5))
    bound = score.given(torch.rand(2, 13))
    assert score.earlier is None
    assert dict(bound.named_parameters()).keys() == dict(score.named_parameters()).keys()
    for name, parameter in bound.named_parameters():
        assert parameter is score.get_parameter(name)
    assert "earlier" not in bound.state_dict()
    assert score.projected().given(torch.rand(2, 13)).key_projection is None


def test_a_gradient_reaches_the_step_before():
    query, key = torch.randn(2, 2, 1, 3, dtype=torch.float64), torch.randn(2, 1, 5, 3, dtype=torch.float64)
    score = _aware(weight=torch.randn(3), location_projection=nn.Linear(3, 3, bias=False)).double()
    for shape in ((2, 5), (2, 2, 5), (2, 1, 5)):
        previous = torch.rand(shape, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(lambda previous: score.given(previous)(query, key), (previous,))


@pytest.mark.parametrize("dilation", [1, 2])
def test_every_way_to_pad_alike_is_alike(dilation: int):
    query, key, previous = torch.randn(2, 1, 2, 5), torch.randn(2, 1, 5, 5), torch.rand(2, 5)
    same = nn.Conv1d(1, 3, 7, padding="same", dilation=dilation)
    counted = nn.Conv1d(1, 3, 7, padding=3 * dilation, dilation=dilation)
    counted.load_state_dict(same.state_dict())
    score = _aware(convolution=same).given(previous)
    other = scores.LocationAware(score.weight, counted, score.location_projection).given(previous)
    torch.testing.assert_close(score(query, key), other(query, key))
    features = counted(previous[:, None]).mT
    expected = scores.Additive(score.weight)(query, key + score.location_projection(features)[:, None])
    torch.testing.assert_close(score(query, key), expected)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"convolution": nn.Conv1d(1, 3, 4)}, ArgumentError, "odd kernel, to be centered on a key; it has 4"),
        ({"convolution": nn.Conv1d(2, 3, 5)}, ShapeError, "must take 1 channel, the earlier weights; it takes 2"),
        ({"convolution": nn.Conv1d(1, 3, 5)}, ArgumentError, r"keep the number of keys: .* padding \(0,\)"),
        (
            {"convolution": nn.Conv1d(1, 3, 5, padding=2, stride=2)},
            ArgumentError,
            "keep the number of keys: .* stride 2",
        ),
        (
            {"convolution": nn.Conv1d(1, 3, 5, padding=2, padding_mode="circular")},
            ArgumentError,
            "keep the number of keys: .* mode 'circular'",
        ),
        ({"convolution": nn.Linear(1, 3)}, KindError, "convolution must be a torch.nn.Conv1d; it is a torch.nn.Linear"),
        (
            {"location_projection": nn.Linear(2, 5)},
            ShapeError,
            "map the 3 channels of convolution to the 5 units of weight; it maps 2 to 5",
        ),
        ({"location_projection": None}, KindError, "location_projection must be a torch.nn.Linear; it is None"),
    ],
)
def test_location_aware_scores_refuse_wrong_parts(changes: dict, error: type[Exception], message: str):
    with pytest.raises(error, match=message):
        _aware(**changes)


def test_bad_earlier_weights():
    query, key = torch.randn(2, 3, 1, 5), torch.randn(2, 3, 7, 5)
    with pytest.raises(
        ShapeError, match=r"previous must be \[batch, keys\] or \[batch, heads, keys\], .* it has shape \[7\]"
    ):
        _aware().given(torch.zeros(7))
    with pytest.raises(KindError, match="floating-point"):
        _aware().given(torch.zeros(2, 7, dtype=torch.int64))
    for shape in ((2, 5), (1, 7), (2, 2, 7)):
        with pytest.raises(ShapeError, match=r"earlier steps must be \[batch, keys\] = \[2, 7\] or"):
            _aware().given(torch.zeros(shape))(query, key)
