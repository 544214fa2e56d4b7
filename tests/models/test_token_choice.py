"""Draws of the next token have the probabilities that temperature, top k and top p give."""

import pytest
import torch

from regard.errors import ArgumentError
from regard.models.search import TokenChoice

LOG = torch.tensor([0.05, 0.4, 0.15, 0.1, 0.3]).log()


def frequencies(choice, draws=20_000):
    generator = torch.Generator().manual_seed(3)
    return torch.bincount(choice.draw(LOG.expand(draws, 5), generator), minlength=5) / draws


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [0.05, 0.4, 0.15, 0.1, 0.3]),
        ({"temperature": 0}, [0, 1, 0, 0, 0]),
        ({"temperature": 0.5}, [0.0025, 0.16, 0.0225, 0.01, 0.09]),
        ({"temperature": 2}, [0.2236, 0.6325, 0.3873, 0.3162, 0.5477]),
        ({"top_k": 2}, [0, 0.4, 0, 0, 0.3]),
        ({"top_k": 9}, [0.05, 0.4, 0.15, 0.1, 0.3]),
        ({"top_p": 0.8}, [0, 0.4, 0.15, 0, 0.3]),
        ({"top_p": 0.6}, [0, 0.4, 0, 0, 0.3]),
        ({"top_p": 0.01}, [0, 1, 0, 0, 0]),
        ({"top_p": 0.99, "top_k": 3}, [0, 0.4, 0.15, 0, 0.3]),
        ({"top_p": 0.5, "temperature": 0.5}, [0, 1, 0, 0, 0]),
    ],
)
def test_tokens_are_drawn_with_the_chosen_probabilities(options, expected):
    expected = torch.tensor(expected) / sum(expected)
    found = frequencies(TokenChoice(**options))
    torch.testing.assert_close(found, expected, atol=0.015, rtol=0)
    assert ((found > 0) == (expected > 0)).all()


def test_forbidden_tokens_are_never_drawn():
    forbidden = LOG.clone()
    forbidden[1] = -torch.inf
    for choice in (TokenChoice(), TokenChoice(0), TokenChoice(top_k=3), TokenChoice(top_p=0.9)):
        assert 1 not in choice.draw(forbidden.expand(500, 5), torch.Generator().manual_seed(1))


@pytest.mark.parametrize("choice", [TokenChoice(), TokenChoice(top_k=3), TokenChoice(top_p=0.9)])
def test_a_number_is_in_the_share_of_its_token(choice):
    """The smallest and the largest number, and what no number draws: a token of probability 0 at either end."""
    log = torch.tensor([-torch.inf, *LOG.tolist(), -torch.inf])
    least, most = torch.zeros(1), torch.ones(1).double().nextafter(torch.zeros(1).double())
    likely = set(choice.draw(log.expand(2000, 7), torch.Generator().manual_seed(2)).tolist())
    for numbers in (least, most, most.float(), least.double()):
        assert int(choice.at(log[None], numbers)) in likely
    numbers = torch.linspace(0, 0.999, 101)
    together = choice.at(log.expand(101, 7), numbers)
    assert [int(choice.at(log[None], numbers[row : row + 1])) for row in range(101)] == together.tolist()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": -0.1}, "temperature must be at least 0"),
        ({"temperature": float("nan")}, "temperature must be at least 0"),
        ({"top_k": -1}, "top_k must be 0 or more"),
        ({"top_p": 0.0}, "top_p must be above 0"),
        ({"top_p": 1.1}, "top_p must be above 0"),
    ],
)
def test_bad_values_are_refused(options, message):
    with pytest.raises(ArgumentError, match=message):
        TokenChoice(**options)
