"""What can stand for a normalizer: instances, names, functions; and what cannot."""

import pytest
import torch
from torch import nn

from regard import normalizers
from regard.errors import ArgumentError, KindError, ShapeError, UnknownNameError
from regard.normalizers import Custom, Entmax, Hard, Normalizer, Sigmoid, Softmax, Sparsemax, as_normalizer

INF = float("inf")


def test_a_normalizer_stands_for_itself():
    for value in (normalizers.softmax, normalizers.entmax(1.3), normalizers.hard("gumbel")):
        assert as_normalizer(value) is value


@pytest.mark.parametrize(
    ("name", "kind"),
    [("softmax", Softmax), ("sparsemax", Sparsemax), ("sigmoid", Sigmoid), ("hard", Hard), ("entmax15", Entmax)],
)
def test_normalizer_names_give_their_classes(name, kind):
    normalizer = as_normalizer(name)
    assert type(normalizer) is kind
    if name == "entmax15":
        assert normalizer.alpha == 1.5
    if name == "hard":
        assert normalizer.mode == "argmax"


def test_an_unknown_name_lists_the_names_and_the_nearest():
    with pytest.raises(UnknownNameError, match=r"did you mean 'sparsemax'\? \(known: .*entmax15.*softmax") as caught:
        as_normalizer("sparsmax")
    assert "normalizer" in str(caught.value)


@pytest.mark.parametrize("name", ["entmax", "softmax_with_sink", "local_gaussian"])
def test_a_constructor_needs_its_arguments(name):
    for value in (name, getattr(normalizers, name)):
        with pytest.raises(ArgumentError, match=rf"needs arguments: pass normalizers\.{name}\("):
            as_normalizer(value)


def test_other_values_are_refused():
    for value in (None, 3, 1.5, torch.zeros(3)):
        with pytest.raises(KindError, match="normalizer must be"):
            as_normalizer(value)
    with pytest.raises(KindError, match="the class Softmax"):
        as_normalizer(Softmax)
    with pytest.raises(ArgumentError, match=r"normalizers\.hard"):
        as_normalizer(normalizers.hard)


def test_everything_public_is_there_and_is_a_normalizer_or_makes_one():
    for name in normalizers.__all__:
        assert getattr(normalizers, name) is not None
    for name in ("softmax", "sparsemax", "sigmoid"):
        assert isinstance(getattr(normalizers, name), Normalizer)


def test_a_function_of_scores_keeps_contract_2():
    normalizer = as_normalizer(lambda scores: scores.exp() / scores.exp().sum(-1, keepdim=True))
    assert isinstance(normalizer, Custom)
    scores = torch.randn(3, 5, dtype=torch.float64)
    scores[1], scores[2, 3:] = -INF, -INF
    scores.requires_grad_()
    with torch.autograd.set_detect_anomaly(True):
        weights = normalizer(scores)
        weights.square().sum().backward()
    torch.testing.assert_close(weights, normalizers.softmax(scores))
    assert scores.grad is not None
    assert (scores.grad[1] == 0).all()


def test_a_function_that_weighs_hidden_keys_is_overruled():
    scores = torch.zeros(2, 5)
    scores[0, 1] = -INF
    weights = Custom(torch.ones_like)(scores)
    assert weights.tolist() == [[1, 0, 1, 1, 1], [1, 1, 1, 1, 1]]


def test_a_nan_derivative_of_the_function_at_a_hidden_key_goes_no_further():
    scores = torch.tensor([[1.0, -INF, 2.0]], requires_grad=True)
    weights = Custom(lambda s: (s * s.sigmoid()).relu())(scores)
    weights.sum().backward()
    assert scores.grad is not None
    assert scores.grad.isfinite().all()
    assert scores.grad[0, 1] == 0


def test_a_function_sees_the_last_axis_and_float32():
    seen = []

    def function(scores):
        seen.append((scores.shape, scores.dtype))
        return scores.softmax(-1)

    weights = Custom(function)(torch.randn(2, 3, 5, dtype=torch.bfloat16), dim=1)
    assert seen[-1] == ((2, 5, 3), torch.float32)
    assert {dtype for _, dtype in seen} == {torch.float32}  # those of its trial as well
    assert weights.shape == (2, 3, 5)
    assert weights.dtype == torch.bfloat16


def test_parameters_of_a_module_are_registered():
    class Leaky(nn.Module):
        def __init__(self):
            super().__init__()
            self.slope = nn.Parameter(torch.tensor(0.1))

        def forward(self, scores):
            return torch.where(scores > 0, scores, self.slope)

    assert [name for name, _ in as_normalizer(Leaky()).named_parameters()] == ["function.slope"]


def test_functions_that_do_not_return_weights():
    scores = torch.zeros(3, 5)
    with pytest.raises(ShapeError, match=r"shape \[3, 5\]; it returned \[3\]"):
        as_normalizer(lambda scores: scores.sum(-1))(scores)
    with pytest.raises(KindError, match="it returned NoneType"):
        as_normalizer(lambda scores: None)(scores)
    with pytest.raises(KindError, match=r"it returned torch\.int64"):
        as_normalizer(lambda scores: scores.argsort(-1))(scores)
    with pytest.raises(KindError, match="must be callable"):
        Custom("softmax")
