"""Scores by name."""

import pytest
import torch

from regard import scores
from regard.errors import ArgumentError, KindError, ShapeError, UnknownNameError

READY = {"dot": scores.Dot, "scaled_dot": scores.ScaledDot, "cosine": scores.Cosine, "distance": scores.Distance}
SIZES = {"dim": 5, "heads": 6, "hidden": (5,), "max_keys": 19, "channels": 3, "kernel_size": 5}
TAKEN = {
    "dot": (),
    "scaled_dot": (),
    "distance": (),
    "cosine": ("heads",),
    "general": ("heads",),
    "additive": ("dim", "heads"),
    "concat": ("dim", "heads"),
    "mlp": ("dim", "hidden"),
    "location": ("max_keys",),
    "location_aware": ("dim", "heads", "channels", "kernel_size", "sees"),
    "coverage": ("dim", "heads"),
    "dynamic_convolution": ("dim", "channels", "kernel_size"),
}
NEEDED = ("max_keys", "channels", "kernel_size")


def needed(name: str) -> dict[str, object]:
    return {argument: SIZES[argument] for argument in NEEDED if argument in TAKEN[name]}


def test_a_name_is_a_score():
    for name, kind in READY.items():
        assert type(scores.as_score(name)) is kind
    score = scores.Dot()
    assert scores.as_score(score) is score
    assert isinstance(scores.as_score(lambda query, key: query @ key.mT), scores.Custom)


def test_an_unknown_name_hears_the_nearest():
    with pytest.raises(UnknownNameError, match=r"unknown score 'scaled-dot'; did you mean 'scaled_dot'\? \(known: "):
        scores.as_score("scaled-dot")
    with pytest.raises(UnknownNameError, match=r"unknown score 'xyz' \(known: .*location_aware"):
        scores.create("xyz", 3, 5)


@pytest.mark.parametrize("name", [name for name in scores.NAMES if name not in READY])
def test_a_name_that_needs_weights_says_how(name: str):
    with pytest.raises(
        ArgumentError, match=rf"score '{name}' has weights of its own: pass regard.scores.\w+\("
    ) as error:
        scores.as_score(name)
    constructor = str(error.value).split("regard.scores.")[1].split("(")[0]
    assert isinstance(scores.create(name, 7, 7, **needed(name)), getattr(scores, constructor))


def test_values_that_are_no_score_are_refused():
    with pytest.raises(KindError, match=r"score must be an instance, not the class: Dot\(...\)"):
        scores.as_score(scores.Dot)
    for value in (3, None, torch.zeros(3), int):
        with pytest.raises(KindError, match="score must be a Score, a name or a callable"):
            scores.as_score(value)


@pytest.mark.parametrize("name", scores.NAMES)
@pytest.mark.parametrize("heads", [None, 6])
def test_created_scores_train(name: str, heads: int | None):
    key_dim = 7 if name in READY else 11
    given = {argument: value for argument, value in (("dim", 5), ("heads", heads)) if argument in TAKEN[name]}
    score = scores.create(name, 7, key_dim, **given, **needed(name))
    query, key = torch.randn(2, 6, 3, 7), torch.randn(2, 3, 13, key_dim)
    if isinstance(score, scores.LocationAware | scores.DynamicConvolution):
        score = score.given(torch.rand(2, 13))
    result = score(query, key)
    assert result.shape == (2, 6, 3, 13)
    parameters = dict(score.named_parameters())
    assert bool(parameters) == (name not in ("dot", "scaled_dot", "distance"))
    if parameters:
        result.square().sum().backward()
    for parameter_name, parameter in parameters.items():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.any(), parameter_name


@pytest.mark.parametrize("name", ["general", "additive", "concat", "mlp", "location_aware"])
def test_new_weights_start_within_their_bounds(name: str):
    sizes = {"dim": 48, "heads": 2, "channels": 32, "kernel_size": 5}
    score = scores.create(name, 96, 64, **{argument: sizes[argument] for argument in TAKEN[name] if argument in sizes})
    for parameter_name, parameter in score.named_parameters():
        if parameter_name.endswith("bias"):
            assert not parameter.any()
            continue
        *_, rows, columns = parameter.shape
        bound = (6 / (rows + columns)) ** 0.5
        if parameter_name == "weight" and name != "general":
            bound = 48**-0.5
        elif parameter_name == "convolution.weight":
            bound = (6 / (5 + 32 * 5)) ** 0.5
        elif name == "concat":
            bound = (6 / (96 + 64 + 48)) ** 0.5
        largest = parameter.abs().max().item()
        assert 0.8 * bound < largest <= bound, parameter_name


def test_sizes_that_are_missing_or_wrong():
    with pytest.raises(ArgumentError, match="score 'location' needs max_keys"):
        scores.create("location", 7, 7)
    with pytest.raises(ArgumentError, match="score 'location_aware' needs channels"):
        scores.create("location_aware", 7, 7, kernel_size=5)
    with pytest.raises(ArgumentError, match="kernel_size must be odd and above 0; it is 4"):
        scores.create("location_aware", 7, 7, channels=3, kernel_size=4)
    with pytest.raises(ArgumentError, match="dim must be at least 1; it is 0"):
        scores.create("additive", 7, 7, 0)
    with pytest.raises(ShapeError, match="query_dim and key_dim must be equal; they are 7 and 11"):
        scores.create("dot", 7, 11)


@pytest.mark.parametrize("name", scores.NAMES)
@pytest.mark.parametrize("argument", SIZES)
def test_arguments_that_a_score_does_not_take_are_refused(name: str, argument: str):
    given = {**needed(name), argument: SIZES[argument]}
    if argument in TAKEN[name]:
        assert isinstance(scores.create(name, 7, 7, **given), scores.Score)
    else:
        with pytest.raises(ArgumentError, match=f"score '{name}' takes no {argument}; it takes "):
            scores.create(name, 7, 7, **given)


def test_every_refused_argument_is_named():
    with pytest.raises(ArgumentError, match="score 'general' takes no dim and no max_keys; it takes heads"):
        scores.create("general", 7, 7, 5, max_keys=3)
    with pytest.raises(ArgumentError, match="score 'dot' takes no heads; it takes query_dim and key_dim alone"):
        scores.create("dot", 7, 7, heads=2)
    with pytest.raises(ArgumentError, match="score 'mlp' takes dim or hidden, not both"):
        scores.create("mlp", 7, 7, 5, hidden=(3,))
