"""Forget gates: one number a token, whose differences are added to scores, in a score and in a layer."""

import math

import pytest
import torch
from torch.autograd import gradcheck
from torch.nn import functional as F

import regard
from regard import biases, masks, nn, scores
from regard.errors import ArgumentError, ShapeError

BATCH, HEADS, LENGTH, DIM = 2, 3, 5, 7
DOUBLE = torch.float64


def numbers(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=DOUBLE)


def literal(query, key, value, log_decay):
    """Lin et al. 2025, section 3: each query and key, with the product of the gates after the key up to the query."""
    output, first = torch.zeros(*query.shape[:3], value.shape[-1], dtype=DOUBLE), key.shape[2] - query.shape[2]
    for b, h, i in torch.cartesian_prod(*map(torch.arange, query.shape[:3])).tolist():
        shares = [
            math.exp(query[b, h, i] @ key[b, h, j] / query.shape[-1] ** 0.5)
            * math.prod(math.exp(log_decay[b, h, t]) for t in range(j + 1, first + i + 1))
            if j <= first + i
            else 0.0
            for j in range(key.shape[2])
        ]
        output[b, h, i] = sum(share / sum(shares) * value[b, h, j] for j, share in enumerate(shares))
    return output


@pytest.mark.parametrize("queries", [1, 2, LENGTH])
def test_forget_gates_multiply_the_shares_of_earlier_tokens(queries):
    key, value, gates = numbers(BATCH, HEADS, LENGTH, DIM), numbers(BATCH, HEADS, LENGTH, 2), numbers(BATCH, HEADS, 5)
    query, log_decay = numbers(BATCH, HEADS, queries, DIM), F.logsigmoid(gates)
    expected = literal(query, key, value, log_decay)
    score = scores.ForgetGate("scaled_dot", log_decay)
    for backend in ("reference", "tiled", "cpu", "auto"):
        output = regard.attend(query, key, value, score=score, mask="causal", backend=backend)
        torch.testing.assert_close(output, expected)


def test_a_constant_gate_a_head_is_alibi():
    x, slopes = numbers(BATCH, HEADS, LENGTH, DIM), [0.5, 0.25, 0.1]
    alibi = regard.observe(x, x, x, bias=biases.alibi(HEADS, slopes), mask="causal")
    gated = regard.observe(
        x, x, x, score=scores.ForgetGate("scaled_dot", -torch.tensor(slopes).double()), mask="causal"
    )
    torch.testing.assert_close(gated.output, alibi.output)
    torch.testing.assert_close(gated.lse, alibi.lse)  # the query's own sum counts


@pytest.mark.parametrize("inner", ["scaled_dot", "cosine", "own_scale"])
def test_gradients_reach_the_gates_on_every_path(inner):
    own = scores.ScaledDot(torch.tensor([0.3, 0.5, 0.7]).double()[:, None, None]) if inner == "own_scale" else inner
    inputs = [numbers(BATCH, HEADS, LENGTH, DIM).requires_grad_() for _ in range(3)]
    log_decay = -numbers(1, HEADS, LENGTH).abs().requires_grad_()

    def attended(query, key, value, log_decay, backend="reference"):
        score = scores.ForgetGate(own, log_decay)
        return regard.attend(query, key, value, score=score, mask="causal", backend=backend)

    assert gradcheck(attended, (*inputs, log_decay), fast_mode=True, check_forward_ad=True, check_batched_grad=True)
    wanted = (*inputs, log_decay)
    expected = torch.autograd.grad(attended(*wanted).square().sum(), wanted)
    for backend in ("cpu", "tiled"):
        grads = torch.autograd.grad(attended(*wanted, backend).square().sum(), wanted)
        torch.testing.assert_close(grads, expected)


def test_late_scores_stay_exact_after_many_gates():
    """Counted from the first token, sums of 20,000 would round scores to 2e-3."""
    log_decay = torch.full((1, 1, 4001), -5.0)
    log_decay[..., -3:] = torch.tensor([-0.1, -0.2, -0.3])
    x = torch.zeros(1, 1, 4001, 4)
    score = scores.ForgetGate("dot", log_decay)
    weights = regard.attend_with_weights(x[:, :, -1:], x, x, score=score, mask="causal").weights[0, 0, 0, -3:]
    expected = torch.tensor([-0.5, -0.3, 0.0]).exp() / (torch.tensor([-0.6 - 5 * t for t in range(9)]).exp().sum()
                                                        + torch.tensor([-0.5, -0.3, 0.0]).exp().sum())  # fmt: skip
    torch.testing.assert_close(weights, expected, rtol=1e-5, atol=0)


def test_a_gate_of_zero_forgets_all_that_came_before():
    x, log_decay = numbers(1, 1, 6, DIM), torch.zeros(1, 1, 6).double()
    log_decay[..., 3] = -torch.inf
    output = regard.attend(x, x, x, score=scores.ForgetGate("dot", log_decay), mask="causal")
    rest = regard.attend(x[:, :, 3:], x[:, :, 3:], x[:, :, 3:], score="dot", mask="causal")
    torch.testing.assert_close(output[:, :, 3:], rest)


def test_forget_gates_name_what_does_not_fit():
    x = numbers(BATCH, HEADS, LENGTH, DIM)
    with pytest.raises(ShapeError, match=r"log_decay must be \[heads\] or \[batch, heads, keys\]; it has shape"):
        scores.ForgetGate("dot", torch.zeros(1, 1, 5, 7))
    for score, message in (
        (scores.ForgetGate("dot", torch.ones(HEADS)), "log_decay must be at most 0"),
        (scores.ForgetGate(scores.Decayed("dot", torch.zeros(HEADS)), torch.zeros(HEADS)), "decays already"),
    ):
        with pytest.raises(ArgumentError, match=message):
            regard.attend(x, x, x, score=score)
    with pytest.raises(ArgumentError, match="at most as many queries"):
        regard.attend(x, x[:, :, :2], x[:, :, :2], score=scores.ForgetGate("dot", torch.zeros(1, 1, 2)))


def test_a_forgetting_layer_is_the_equation_with_grouped_values():
    torch.manual_seed(1)
    layer, x = nn.SelfAttention(12, 6, kv_heads=2, forget=True).double().requires_grad_(False), numbers(2, 4, 12)
    query, key, value = layer.in_proj(x).split([12, 4, 4], dim=-1)
    query, key, value = (part.unflatten(-1, (-1, 2)).transpose(1, 2) for part in (query, key, value))
    key, value = (part.repeat_interleave(3, dim=1) for part in (key, value))
    log_decay = torch.sigmoid(layer.forget_gate(x)).log().transpose(1, 2)
    expected = literal(query, key, value, log_decay).transpose(1, 2).flatten(2) @ layer.out_proj.weight.T
    for mask in (None, "causal", masks.causal() & masks.lengths([4, 4])):
        torch.testing.assert_close(layer(x, mask=mask).output, expected + layer.out_proj.bias)


def test_a_hidden_token_forgets_nothing():
    torch.manual_seed(1)
    layer, x = nn.SelfAttention(12, 2, forget=True).double(), numbers(1, 6, 12)
    seen = torch.tensor([True, False, True, True, False, True])
    x[:, ~seen] = torch.nan
    output = layer(x, mask=masks.keep(seen)).output
    torch.testing.assert_close(output[:, seen], layer(x[:, seen]).output)


def test_the_record_of_a_forgetting_layer_has_its_gates():
    torch.manual_seed(1)
    layer, x = nn.SelfAttention(12, 2, forget=True), numbers(2, 5, 12).float()
    with regard.watch(layer) as record:
        layer(x)
    expected = F.logsigmoid(layer.forget_gate(x)).transpose(1, 2)
    torch.testing.assert_close(record.calls[0].log_decay, expected.detach())
