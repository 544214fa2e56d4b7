"""The state of an optimizer of a model whose parameters had another order."""

import copy
import itertools

import pytest
import torch
from torch import nn

from regard.models import TransformerTranslator, TranslatorConfig
from regard.training.sharding import in_parameter_order


class Parts(nn.Module):
    """Two parts of one shape and a bias, registered in an order."""

    def __init__(self, order):
        super().__init__()
        for name in order:
            setattr(self, name, nn.Linear(3, 3, bias=name != "second"))

    def forward(self, input):
        return self.third(self.second(self.first(input).sin()).cos()).pow(2).sum()


def step(module, optimizer, input):
    optimizer.zero_grad()
    module(input).backward()
    optimizer.step()


@pytest.mark.parametrize(
    "order", [("first", "second", "third"), ("third", "first", "second"), ("second", "third", "first")]
)
def test_training_continues_with_the_state_of_each_parameter(order):
    torch.manual_seed(0)
    old, new, inputs = Parts(("first", "second", "third")), Parts(order), torch.randn(2, 4, 3)
    optimizers = [torch.optim.AdamW(module.parameters(), lr=0.1) for module in (old, new)]
    step(old, optimizers[0], inputs[0])
    new.load_state_dict(old.state_dict())
    state = in_parameter_order(copy.deepcopy(optimizers[0].state_dict()), old.state_dict(), new)
    optimizers[1].load_state_dict(state)
    for module, optimizer in zip((old, new), optimizers, strict=True):
        step(module, optimizer, inputs[1])
    torch.testing.assert_close(dict(new.state_dict()), {name: old.state_dict()[name] for name in new.state_dict()})


class Tied(nn.Module):
    """Two embeddings and an output that share one matrix, and a matrix of the same shape, registered in an order."""

    def __init__(self, order):
        super().__init__()
        shared = nn.Parameter(torch.randn(5, 5))
        for name in order:
            setattr(self, name, nn.Module())
            getattr(self, name).weight = nn.Parameter(torch.randn(5, 5)) if name == "own" else shared

    def forward(self, input):
        hidden = self.source.weight[input].sin() @ self.own.weight + self.target.weight[input]
        return (hidden @ self.output.weight.T).pow(2).mean()


@pytest.mark.parametrize(
    "order", list(itertools.permutations(("source", "own", "target", "output"))), ids=lambda order: "-".join(order)
)
def test_a_tied_parameter_keeps_its_state_whichever_of_its_names_was_the_first(order):
    torch.manual_seed(0)
    old, new = Tied(order), Tied(("source", "own", "target", "output"))
    inputs = torch.tensor([[0, 1, 4], [2, 2, 3]])
    optimizers = [torch.optim.AdamW(module.parameters(), lr=0.1) for module in (old, new)]
    step(old, optimizers[0], inputs[0])
    new.load_state_dict(old.state_dict())
    state = in_parameter_order(copy.deepcopy(optimizers[0].state_dict()), old.state_dict(), new)
    optimizers[1].load_state_dict(state)
    for name in ("source", "own"):
        states = [
            optimizer.state[getattr(module, name).weight]
            for module, optimizer in zip((old, new), optimizers, strict=True)
        ]
        torch.testing.assert_close(states[0], states[1])


def test_a_translator_with_tied_embeddings_continues_with_the_states_of_an_old_order():
    config = TranslatorConfig(
        architecture="transformer", tied="all", source_vocabulary=7, target_vocabulary=7, hidden=8, heads=2,
        encoder_layers=1, decoder_layers=1, feedforward=8,
    )  # fmt: skip
    model = TransformerTranslator(config)
    embeddings = ["source_input.embedding.weight", "target_input.embedding.weight"]
    # The matrix of all three names had its number as output.weight, and a norm came between them.
    numbers = [name for name in model.state_dict() if name not in (*embeddings, "decoder.norm.weight")]
    numbers.append("decoder.norm.weight")
    state = {"state": dict(enumerate(numbers)), "param_groups": []}
    first_name = {"source_input.embedding.weight": "output.weight"}
    now = [first_name.get(name, name) for name, _ in model.named_parameters()]
    assert in_parameter_order(state, [*numbers, *embeddings], model) == {
        "state": dict(enumerate(now)),
        "param_groups": [],
    }


def test_a_state_that_is_none_of_the_modules_stays_as_it_is():
    module = Parts(("first", "second", "third"))
    state = {"state": 3}
    assert in_parameter_order(state, ["first.weight"], module) is state
    assert in_parameter_order(state, module.state_dict(), module) is state
