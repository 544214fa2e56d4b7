"""The state of an optimizer of a model whose parameters had another order."""

import copy

import pytest
import torch
from torch import nn

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


def test_a_state_that_is_none_of_the_modules_stays_as_it_is():
    module = Parts(("first", "second", "third"))
    state = {"state": 3}
    assert in_parameter_order(state, ["first.weight"], module) is state
    assert in_parameter_order(state, module.state_dict(), module) is state
