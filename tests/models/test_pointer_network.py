"""Pointer networks: the equation, searches, padding, and learning to sort."""

import pytest
import torch

from regard import models
from regard.errors import ArgumentError, RegardError, ShapeError


def make(**options):
    torch.manual_seed(0)
    return models.PointerNetwork(models.PointerNetworkConfig(**{"features": 2, "hidden": 8, **options}))


def test_a_pointer_network_is_its_equation():
    """Vinyals et al. 2015, equation 3, step by step with PyTorch's own cells."""
    model = make().double()
    inputs, target = torch.randn(1, 4, 2, dtype=torch.float64), torch.tensor([[2, 0, 3]])
    pointed = model(inputs, torch.tensor([4]), target)
    elements = model.input(inputs[0])
    annotations, (h, c) = model.encoder(elements[None])
    keys = torch.cat([model.end[:1], annotations[0]])
    score = model.attention.score
    for step, element in enumerate([model.begin, *elements[target[0]]]):
        (h, c) = model.decoder.rnn(element[None, None], (h, c))[1]
        units = torch.tanh(score.query_projection(h[0, 0]) + score.key_projection(keys))
        expected = (units @ score.weight).log_softmax(0)
        torch.testing.assert_close(pointed.log_probabilities[0, step], expected)
        torch.testing.assert_close(pointed.weights[0, step], expected.exp())


@pytest.mark.parametrize("once", [False, True])
def test_searches_and_padding(once):
    model = make(once=once).double()
    inputs, lengths = torch.randn(3, 5, 2, dtype=torch.float64), torch.tensor([5, 3, 1])
    inputs[1, 3:], inputs[2, 1:] = torch.nan, torch.nan
    found = model.point(inputs, lengths)
    for row, (best, wide) in enumerate(zip(found, model.point(inputs, lengths, width=200), strict=True)):
        answer = torch.tensor([best.tokens], dtype=torch.int64)
        alone = inputs[row : row + 1, : lengths[row]]
        pointed = model(alone, lengths[row : row + 1], answer)
        steps = torch.tensor([token + 1 for token in best.tokens] + [0])
        total = pointed.log_probabilities[0].gather(1, steps[:, None]).sum()
        assert best.log_probability == pytest.approx(total.item(), abs=1e-5)
        assert wide.log_probability >= best.log_probability - 1e-6
        torch.testing.assert_close(best.weights.double(), pointed.weights[0, :-1], atol=1e-6, rtol=1e-5)
        if once:
            assert len(set(best.tokens)) == len(best.tokens)
    target = torch.tensor([[4, 0, 1], [2, 0, 99], [0, -9, 99]])  # what stands after an answer does not matter
    loss = model.loss(inputs, lengths, target, torch.tensor([3, 2, 1]))
    assert torch.equal(loss.total, model.loss(inputs, lengths, target.clamp(0, 4), torch.tensor([3, 2, 1])).total)
    loss.total.backward()
    assert loss.tokens == 9
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


def test_a_pointer_network_learns_to_sort():
    torch.manual_seed(1)
    model = models.PointerNetwork(models.PointerNetworkConfig(features=1, hidden=32, once=True))
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    lengths = torch.full((128,), 5)
    for _ in range(100):
        numbers = torch.rand(128, 5, 1)
        optimizer.zero_grad()
        model.loss(numbers, lengths, numbers[..., 0].argsort(1), lengths).total.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    numbers = torch.rand(128, 5, 1)
    found = torch.tensor([best.tokens + [-1] * (5 - len(best.tokens)) for best in model.point(numbers, lengths)])
    assert (found == numbers[..., 0].argsort(1)).float().mean() > 0.9


def test_a_pointer_network_is_saved_and_refuses_wrong_inputs(tmp_path):
    model = make()
    models.save_model(tmp_path, model)
    assert models.load_model(tmp_path).config == model.config
    with pytest.raises(ShapeError, match=r"inputs must be \[batch, length, 2\]"):
        model.encode(torch.zeros(1, 4, 3), torch.tensor([4]))
    with pytest.raises(ArgumentError, match="features is missing"):
        models.PointerNetwork(models.PointerNetworkConfig())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"inputs": [[[0.0, 0.0]]]}, "inputs must be a tensor"),
        ({"lengths": torch.tensor([6, 3])}, r"lengths must be in 0\.\.5"),
        ({"lengths": [5, 3]}, "lengths must be a tensor"),
        ({"target": torch.tensor([[0, 1], [3, 0]])}, r"target\[1\] must hold positions of its input, 0\.\.2"),
        ({"target": torch.tensor([[0, -1], [1, 0]])}, r"target\[0\] must hold positions"),
        ({"target": torch.tensor([[0, 5], [1, 0]])}, r"target\[0\] must hold positions"),
        ({"target": torch.tensor([[2, 2], [1, 0]])}, r"target\[0\] must name each position once"),
        ({"target": torch.tensor([0, 1])}, r"target must be \[batch, steps\] with 2 rows"),
        ({"target_lengths": torch.tensor([3, 1])}, r"target_lengths must be in 0\.\.2"),
    ],
)
def test_answers_that_are_none(change, message):
    known = {"inputs": torch.zeros(2, 5, 2), "lengths": torch.tensor([5, 3]), "target": torch.tensor([[4, 0], [2, 1]])}
    with pytest.raises(RegardError, match=message):
        make(once=True).loss(**{**known, "target_lengths": torch.tensor([2, 2]), **change})


def test_a_pointer_network_runs_in_half_precision():
    model = make(once=True).bfloat16()
    inputs, lengths = torch.rand(2, 5, 2), torch.tensor([5, 3])
    target = torch.tensor([[4, 0], [2, 1]])
    loss = model.loss(inputs.bfloat16(), lengths, target, torch.tensor([2, 2])).total
    expected = make(once=True).loss(inputs, lengths, target, torch.tensor([2, 2])).total
    torch.testing.assert_close(loss.float(), expected, atol=0.05, rtol=0.02)
    assert len(model.point(inputs.bfloat16(), lengths, width=2)) == 2
