"""Small models that attend in every way that PyTorch has, and a comparison of runs with and without watching."""

from functools import partial

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.functional import scaled_dot_product_attention as imported_sdpa
from torch.overrides import handle_torch_function, has_torch_function

import regard

WEIGHTS = regard.Readings(weights=True)


class Heads(nn.Module):
    """Self-attention of two heads of width 5 by a function of (query, key, value) heads."""

    def __init__(self, attend):
        super().__init__()
        self.project, self.out_proj = nn.Linear(10, 30), nn.Linear(10, 10)
        self.attend, self.num_heads = attend, 2

    def heads(self, x):
        return (part.unflatten(-1, (2, 5)).transpose(1, 2) for part in self.project(x).chunk(3, -1))

    def forward(self, x):
        return self.out_proj(self.attend(*self.heads(x)).transpose(1, 2).flatten(-2))


def by_hand(query, key, value, mask=None, p=0.25):
    scores = query @ key.transpose(-1, -2) * 0.3
    if mask is not None:
        scores = scores + mask
    return F.dropout(scores.softmax(-1), p, training=True) @ value


def by_einsum(query, key, value):
    weights = torch.einsum("bhqd,bhkd->bhqk", query, key).softmax(dim=-1)
    return torch.einsum("bhqk,bhkd->bhqd", weights, value)


def by_batched_products(query, key, value):
    B, H, Q, D = query.shape
    query, key, value = (tensor.reshape(B * H, -1, D) for tensor in (query, key, value))
    weights = torch.softmax(torch.bmm(query, key.transpose(1, 2)), dim=-1)
    return torch.bmm(weights, value).view(B, H, Q, D)


def composite(query, key, value):
    """A function that hides its inner calls from a function mode, as those of `torch.nn.functional` do."""
    if has_torch_function((query, key, value)):
        return handle_torch_function(composite, (query, key, value), query, key, value)
    return imported_sdpa(query, key, value, is_causal=True)


def captured(function):
    return lambda query, key, value: function(query, key, value, scale=0.7)


CAUSAL = torch.ones(7, 7, dtype=torch.bool).tril()
LOWEST = torch.zeros(7, 7).masked_fill(~CAUSAL, torch.finfo(torch.float32).min)

HAND_WRITTEN = {
    "sdpa": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v), "none"),
    "sdpa-causal": (partial(F.scaled_dot_product_attention, is_causal=True), "causal"),
    "sdpa-dropout": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, dropout_p=0.4), "none"),
    "sdpa-imported": (lambda q, k, v: imported_sdpa(q, k, v, attn_mask=CAUSAL), "causal"),
    "sdpa-captured": (captured(F.scaled_dot_product_attention), "none"),
    "sdpa-lowest": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=LOWEST), "causal"),
    "sdpa-composite": (composite, "causal"),
    "softmax": (partial(by_hand, mask=LOWEST), "causal"),
    "softmax-einsum": (by_einsum, "none"),
    "softmax-bmm": (by_batched_products, "none"),
    "regard": (lambda q, k, v: regard.attend(q, k, v, mask=regard.masks.causal(), dropout=0.3), "causal"),
    "regard-observe": (lambda q, k, v: regard.observe(q, k, v, read=regard.Readings(peak=True)).output, "none"),
    "regard-weights": (lambda q, k, v: regard.attend_with_weights(q, k, v, normalizer="sparsemax").output, "none"),
    "regard-random": (
        lambda q, k, v: regard.attend(q, k, v, normalizer=regard.normalizers.hard(mode="gumbel")),
        "none",
    ),
}
"""By name: a function of heads, and the kind of its mask."""


def run(model, call, train, grad, seed=11):
    """Output, gradients and the next random number of a seeded run."""
    model.train(train)
    model.zero_grad()
    torch.manual_seed(seed)
    with torch.set_grad_enabled(grad):
        output = call(model)
        if grad:
            output.pow(2).sum().backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    return output.detach(), {name: gradient.clone() for name, gradient in gradients.items()}, torch.rand(3)


def watched(model, call, train, grad, **options):
    """What was seen in a run that is the same, bit for bit, as one that is not watched."""
    output, gradients, numbers = run(model, call, train, grad)
    with regard.watch(model, **{"read": WEIGHTS, **options}) as seen:
        again, gradients_again, numbers_again = run(model, call, train, grad)
    assert torch.equal(output, again)
    assert gradients.keys() == gradients_again.keys()
    for name, gradient in gradients.items():
        assert torch.equal(gradient, gradients_again[name]), name
    assert torch.equal(numbers, numbers_again), "the random stream was changed"
    return seen
