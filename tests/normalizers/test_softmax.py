"""Softmax with temperature and with a sink, against their formulas."""

import math

import pytest
import torch
from torch import nn

from regard.errors import ArgumentError, KindError, ShapeError
from regard.normalizers import Softmax, softmax, softmax_with_sink

INF = float("inf")


def test_softmax_is_its_formula():
    scores = torch.randn(3, 5, dtype=torch.float64)
    expected = scores.exp() / scores.exp().sum(-1, keepdim=True)
    torch.testing.assert_close(softmax(scores), expected)
    torch.testing.assert_close(softmax(scores, dim=0), scores.exp() / scores.exp().sum(0))
    hot = (scores / 3).exp()
    torch.testing.assert_close(Softmax(3.0)(scores), hot / hot.sum(-1, keepdim=True))


def test_softmax_is_that_of_torch_bit_for_bit():
    scores = torch.randn(3, 5)
    assert torch.equal(softmax(scores), torch.softmax(scores, -1))


def test_classic_scores_do_not_overflow():
    weights = softmax(torch.tensor([927.0, 397.0, 148.0, 929.0]))
    expected = 1 / (1 + math.exp(2))
    torch.testing.assert_close(weights, torch.tensor([expected, 0.0, 0.0, 1 - expected]))


def test_only_the_empty_row_is_mended():
    scores = torch.tensor([[0.0, 1.0], [-INF, -INF], [torch.nan, 0.0], [-INF, 3.0]], requires_grad=True)
    weights = softmax(scores)
    assert weights[1].tolist() == [0, 0]
    assert weights[2].isnan().all()
    assert weights[3].tolist() == [0, 1]
    weights[[0, 1, 3]].square().sum().backward()
    assert scores.grad is not None
    assert scores.grad[[0, 1, 3]].isfinite().all()


@pytest.mark.parametrize("temperature", [torch.tensor(0.7), torch.tensor([0.7]), torch.tensor([0.5, 1.0, 2.0])])
def test_gradient_to_the_temperature(temperature):
    temperature = temperature.double().requires_grad_()
    scores = torch.randn(2, 3, 2, 5, dtype=torch.float64)
    scores[..., 0, :], scores[..., 1, 3:] = -INF, -INF
    assert torch.autograd.gradcheck(lambda t: Softmax(t)(scores), temperature)


def test_log_sum_exp_is_that_of_the_tempered_scores():
    scores, heads = torch.randn(2, 3, 5, 7, dtype=torch.float64), torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
    for temperature, divisor in ((0.25, 0.25), (heads, heads[:, None, None])):
        lse = Softmax(temperature).log_sum_exp(scores)
        torch.testing.assert_close(lse, (scores / divisor).exp().sum(-1).log())
        torch.testing.assert_close((scores / divisor - lse[..., None]).exp(), Softmax(temperature)(scores))


@pytest.mark.parametrize("sink", [0.0, -2.5, 40.0])
def test_the_sink_is_one_more_key_without_a_value(sink):
    scores = torch.randn(2, 3, 5, dtype=torch.float64)
    expected = scores.exp() / (math.exp(sink) + scores.exp().sum(-1, keepdim=True))
    torch.testing.assert_close(softmax_with_sink(sink)(scores), expected)
    joined = torch.cat([scores, torch.full((2, 3, 1), sink, dtype=torch.float64)], dim=-1)
    torch.testing.assert_close(softmax_with_sink(sink)(scores), joined.softmax(-1)[..., :-1])


@pytest.mark.parametrize(
    ("sink", "score", "weight"), [(1e4, 0.0, 0.0), (-1e4, 0.0, 0.2), (0.0, 1e4, 0.2), (0.0, -1e4, 0.0)]
)
def test_a_sink_far_from_the_scores(sink, score, weight):
    scores, learned = torch.full((3, 5), score, requires_grad=True), torch.tensor(sink, requires_grad=True)
    weights = softmax_with_sink(learned)(scores)
    torch.testing.assert_close(weights, torch.full((3, 5), weight))
    (weights * torch.arange(5.0)).sum().backward()
    for leaf in (scores, learned):
        assert leaf.grad is not None
        assert leaf.grad.isfinite().all()


def test_a_sink_for_each_head():
    scores, sinks = torch.randn(2, 3, 5, 7, dtype=torch.float64), torch.tensor([0.0, 1.0, -3.0], dtype=torch.float64)
    weights = softmax_with_sink(sinks)(scores)
    for head, sink in enumerate(sinks.tolist()):
        torch.testing.assert_close(weights[:, head], softmax_with_sink(sink)(scores[:, head]))


@pytest.mark.parametrize("sink", [torch.tensor(0.3), torch.tensor([0.3, -2.0, 4.0])])
def test_gradient_to_the_sink(sink):
    scores = torch.randn(2, 3, 2, 5, dtype=torch.float64)
    scores[..., 0, :], scores[..., 1, 3:] = -INF, -INF
    sink = sink.double().requires_grad_()
    assert torch.autograd.gradcheck(lambda b: softmax_with_sink(b)(scores), sink)
    softmax_with_sink(sink)(scores[..., :1, :]).sum().backward()
    assert (sink.grad == 0).all()  # pyright: ignore[reportOptionalOperand]


def test_a_parameter_is_registered_and_a_tensor_is_not_saved():
    learned, given = softmax_with_sink(nn.Parameter(torch.zeros(3))), softmax_with_sink(torch.zeros(3))
    assert [name for name, _ in learned.named_parameters()] == ["sink"]
    assert list(learned.state_dict()) == ["sink"]
    assert not given.state_dict()
    assert given.double().sink.dtype == torch.float64


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, INF, torch.tensor([1.0, 0.0]), torch.tensor(torch.nan)])
def test_temperatures_out_of_range(value):
    with pytest.raises(ArgumentError, match="temperature must be finite and greater than 0"):
        Softmax(value)


def test_parameters_of_a_wrong_type_or_shape():
    for value in ("1", None, True, torch.tensor(1)):
        with pytest.raises(KindError, match="temperature"):
            Softmax(value)
    with pytest.raises(ArgumentError, match="sink must be finite"):
        softmax_with_sink(math.nan)
    with pytest.raises(ShapeError, match=r"sink must have shape \[\] or \[heads\]"):
        softmax_with_sink(torch.zeros(3, 1))


def test_parameters_that_do_not_fit_the_scores():
    normalizer = softmax_with_sink(torch.zeros(3))
    for shape in [(5, 7), (2, 5, 7), (2, 2, 5, 7)]:
        with pytest.raises(ShapeError, match="one element for each of 3 heads"):
            normalizer(torch.zeros(shape))
    for dim in (1, -3):
        with pytest.raises(ArgumentError, match="heads' axis"):
            normalizer(torch.zeros(2, 3, 5, 7), dim=dim)
