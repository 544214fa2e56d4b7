"""A tensor that is changed in place after the forward pass: the backward pass gives the gradient at the old numbers, or
raises one clear error, for every tensor of a call on every backend."""

from itertools import product

import pytest
import torch

import regard
from cases import BIASES, MASKS, NORMALIZERS, SCORES, D, H, K, Q, problem
from regard import masks, nn, normalizers, scores
from regard.errors import BackendError

BACKENDS = ("reference", "tiled", "sdpa", "cpu")


def number(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64)


def dense(*shape):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(3)) < 0.7


class Table:
    """What a function reads through an object."""

    def __init__(self, tensor):
        self.tensor = tensor

    def rows(self, head):
        return self.tensor[head]

    def modify(self, score, batch, head, query, key):
        return score * self.rows(head)


def by_global(table):
    global TABLE
    TABLE = table
    return lambda score, batch, head, query, key: score * TABLE[head]


def by_closure(table):
    def inner(head):
        return table["heads"][head]

    return lambda score, batch, head, query, key: score + inner(head)


# Each of a tensor: what holds it, as arguments of `attend`.
HOLDERS = {
    "keep": (lambda: dense(Q, K), lambda t: {"mask": masks.keep(t)}),
    "keep_heads": (lambda: dense(2, H, Q, K), lambda t: {"mask": masks.keep(t)}),
    "keep_keys": (lambda: dense(2, 1, 1, K), lambda t: {"mask": masks.keep(t)}),
    "ignore": (lambda: dense(Q, K), lambda t: {"mask": ~(masks.causal() & ~masks.ignore(t))}),
    "plain_mask": (lambda: dense(Q, K), lambda t: {"mask": t}),
    "where": (lambda: dense(Q, K), lambda t: {"mask": masks.where(lambda b, h, q, k: t[q, k])}),
    "where_bias": (lambda: dense(Q, K), lambda t: {"mask": masks.where(lambda b, h, q, k: t[q, k]), "bias": number(Q, K)}),
    "lengths": (lambda: torch.tensor([5, 3]), lambda t: {"mask": masks.lengths(t)}),
    "documents": (lambda: torch.tensor([0, 1, 0, 1, 2, 1, 0]), lambda t: {"mask": masks.documents(t[:Q], t)}),
    "offset": (lambda: torch.tensor([0, 2]), lambda t: {"mask": masks.causal(offset=t)}),
    "bias": (lambda: number(H, Q, K), lambda t: {"bias": t}),
    "bias_sum": (lambda: number(H, Q, K), lambda t: {"bias": regard.positions.alibi(H) + t}),
    "bias_grouped": (lambda: number(1, 1, 1, K), lambda t: {"bias": t, "mask": masks.causal()}),
    "scale_weights": (lambda: number(D), lambda t: {"score": scores.Additive(t)}),
    "general": (lambda: number(D, D), lambda t: {"score": scores.General(t)}),
    "location": (lambda: number(K, D), lambda t: {"score": scores.Location(t)}),
    "cosine": (lambda: number().exp(), lambda t: {"score": scores.Cosine(temperature=t)}),
    "callable": (lambda: number(D), lambda t: {"score": lambda q, k: (q * t) @ k.transpose(-1, -2)}),
    "modified": (lambda: number(H), lambda t: {"score": scores.Modified("dot", lambda s, b, h, q, k: s * t[h])}),
    "modified_method": (lambda: number(H), lambda t: {"score": scores.Modified("dot", Table(t).modify)}),
    "modified_nested": (lambda: number(H), lambda t: {"score": scores.Modified("dot", by_closure({"heads": t}))}),
    "modified_global": (lambda: number(H), lambda t: {"score": scores.Modified("dot", by_global(t))}),
    "capped": (lambda: number(D, D), lambda t: {"score": scores.SoftCap(scores.General(t), 0.7)}),
    "temperature": (lambda: number(H).exp(), lambda t: {"normalizer": normalizers.Softmax(temperature=t)}),
    "sink": (lambda: number(H), lambda t: {"normalizer": normalizers.softmax_with_sink(t)}),
    "alpha": (lambda: 1.5 + 0.2 * number(H).tanh(), lambda t: {"normalizer": normalizers.entmax(t)}),
    "shift": (lambda: number(H), lambda t: {"normalizer": normalizers.Sigmoid(t)}),
    "center": (lambda: number(H, Q), lambda t: {"normalizer": normalizers.local_gaussian(normalizers.softmax, t, 1.5)}),
    "sigma": (
        lambda: number(H, 1).exp(),
        lambda t: {"normalizer": normalizers.local_gaussian(normalizers.softmax, torch.zeros(Q).double(), t)},
    ),
    "custom_normalizer": (lambda: number(1).exp(), lambda t: {"normalizer": lambda s: (s * t).softmax(-1)}),
}


def change(tensor):
    """Another tensor in the same memory, still of the range that its use allows."""
    with torch.no_grad():
        if tensor.dtype == torch.bool:
            tensor.logical_not_()
        elif tensor.is_floating_point():
            tensor.mul_(1.2)
        else:
            tensor.copy_(tensor.roll(1))


def gradients(output, wanted):
    return torch.autograd.grad(output, wanted, output.detach(), allow_unused=True)


def refused_or_right(make, name):
    """What is wrong after a change of each tensor of a call; nothing if all is well.

    Args:
        make: gives the tensors that are changed, those whose gradients are wanted, and the call.
        name: for messages.
    """
    changed, wanted, call = make()
    expected = gradients(call(), wanted)
    wrong = []
    for place in range(len(changed)):
        changed, wanted, call = make()
        output = call()
        change(changed[place])
        try:
            found = gradients(output, wanted)
        except RuntimeError as error:
            if "place" not in str(error):
                wrong.append(f"{name}, tensor {place}: {error}")
            continue
        for one, other in zip(found, expected, strict=True):
            if (one is None) != (other is None) or (one is not None and not torch.allclose(one, other, atol=1e-9)):
                wrong.append(f"{name}, tensor {place}: another gradient")
                break
    return wrong


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_tensor_of_a_call(backend):
    wrong, runs = [], 0
    for name, (tensor, holder) in HOLDERS.items():

        def make(tensor=tensor, holder=holder):
            held = tensor()
            held.requires_grad_(held.is_floating_point())
            inputs, options = problem(requires_grad=True), holder(held)
            wanted = [*inputs, *([held] if held.requires_grad else ())]
            return [held, *inputs], wanted, lambda: regard.attend(*inputs, **options, backend=backend)

        try:
            make()[2]()
        except BackendError:
            continue
        runs += 1
        wrong += refused_or_right(make, name)
    assert runs > 3
    assert not wrong, "\n".join(wrong)
