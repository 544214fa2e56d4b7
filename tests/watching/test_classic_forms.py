"""Attention is a softmax whose result weighs a sum, however it is written by hand."""

import gc
import weakref

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import regard
from regard.errors import UnseenError
from regard.watching.thread_state import STATE
from watching.classic_forms import FORMS, PAST, ByHand
from watching.models import WEIGHTS, watched

READ = regard.Readings(weights=True, entropy=True, peak=True, received=True)


def inputs(batch=3):
    generator = torch.Generator().manual_seed(5)
    return torch.randn(batch, 4, 7, generator=generator), torch.randn(batch, 5, 7, generator=generator)


@pytest.mark.parametrize("name", FORMS)
def test_weights_are_those_that_the_model_made(name):
    for batch in (3, 1):
        model = ByHand(FORMS[name])
        query, memory = inputs(batch)
        for train, grad in ((True, True), (False, False)):
            seen = watched(model, lambda model: model(query, memory), train, grad, read=READ)  # noqa: B023
            (call,) = seen.calls
            made = model.made[-1]
            assert (call.name, call.source, call.shape) == ("", "softmax", tuple(made.shape))
            torch.testing.assert_close(call.weights, made, rtol=0, atol=0)
            torch.testing.assert_close(call.entropy, torch.special.entr(made).sum(-1), rtol=1e-5, atol=1e-6)
            torch.testing.assert_close(call.peak, made.amax(-1))
            torch.testing.assert_close(call.received, made.sum(-2))


ADDED = ("by_baddbmm", "into_a_buffer", "query_to_context")
"""Forms whose output is not the sum alone."""


@pytest.mark.parametrize("name", FORMS)
def test_head_outputs_are_the_sums(name):
    """The values are those that the weights weigh; a head that is switched off gives 0."""
    model = ByHand(FORMS[name]).eval()
    query, memory = inputs()
    torch.manual_seed(3)
    with torch.no_grad(), regard.watch(model, read=WEIGHTS, outputs=True) as seen:
        output = model(query, memory)
    (call,) = seen.calls
    if call.head_output is not None and name not in ADDED and not call.dropout:
        found, wanted = call.head_output.flatten().sort().values, output.float().flatten().sort().values
        torch.testing.assert_close(found.float(), wanted, rtol=1e-2 if "rounded" in name else 1e-4, atol=1e-5)
    assert call.head_output is not None or name in ("einsum_of_three", "pooling_in_place")
    if name not in ADDED:
        with torch.no_grad(), regard.watching.ablate(model, 0, list(range(call.heads))):
            assert not model(query, memory).any()


def test_masked_keys_and_log_sum_exps():
    query, memory = inputs()
    for name in ("additive_masked", "transformer", "hierarchical_packed"):
        model = ByHand(FORMS[name]).eval()
        with torch.no_grad(), regard.watch(model, read=WEIGHTS) as seen:
            model(query, memory)
        (call,) = seen.calls
        assert call.mask == "padding", name
        assert torch.equal(torch.stack([call.visible(row)[0, 0] for row in range(3)]), PAST)
    model = ByHand(FORMS["logarithms"])
    with torch.no_grad(), regard.watch(model) as seen:
        model(query, memory)
        scores = model.project(query) @ model.project(memory).transpose(1, 2)
    torch.testing.assert_close(seen.calls[0].lse[:, 0], scores.logsumexp(-1))


def test_classic_forms_in_reduced_precision_are_read_exactly():
    query, memory = inputs()
    for name in ("bahdanau", "show_attend_and_tell", "transformer", "logarithms"):
        model = ByHand(FORMS[name])
        with torch.autocast("cpu", torch.bfloat16):
            (call,) = watched(model, lambda m: m(query, memory).float(), False, True).calls
        torch.testing.assert_close(call.weights, model.made[-1].float(), rtol=0, atol=0)
        with torch.inference_mode(), regard.watch(model, read=WEIGHTS) as seen:
            model(query, memory)
        torch.testing.assert_close(seen.calls[0].weights, model.made[-1], rtol=0, atol=0)


class Attention(nn.Module):
    """Gives weights, which the decoder multiplies."""

    def __init__(self):
        super().__init__()
        self.energy, self.softmax = nn.Linear(7, 7), nn.Softmax(dim=1)

    def forward(self, hidden, encoder_outputs):
        return self.softmax((hidden[:, None] * self.energy(encoder_outputs)).sum(2))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.cell = Attention(), nn.GRUCell(7, 7)

    def forward(self, hidden, encoder_outputs):
        weights = self.attention(hidden, encoder_outputs)
        context = torch.bmm(weights.unsqueeze(1), encoder_outputs).squeeze(1)
        return self.cell(context, hidden), weights


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.decoder = Decoder()

    def forward(self, hidden, source, steps=4):
        made = []
        for _ in range(steps):
            hidden, weights = self.decoder(hidden, source)
            made.append(weights)
        return hidden, torch.stack(made, 1)


@pytest.mark.filterwarnings("error::regard.watching.UnseenAttentionWarning")
def test_a_recurrent_decoder():
    """One record a step, of the module that makes the weights; joined, one row for each step."""
    model, (query, memory) = Translator(), inputs()
    seen = watched(model, lambda model: model(query[:, 0], memory)[0], True, True)
    _, made = model(query[:, 0], memory)
    assert {(call.name, call.kind, call.shape) for call in seen.calls} == {("decoder.attention", "cross", (3, 1, 1, 5))}
    (joined,) = seen.stitched()
    torch.testing.assert_close(joined.weights[:, 0], made.detach(), rtol=0, atol=0)
    with regard.watch(model.decoder) as seen:
        model.decoder(query[:, 0], memory)
    assert [call.name for call in seen.calls] == ["attention"]


def pointer(x):
    return (x @ x.transpose(1, 2)).softmax(-1)


def entropy(x):
    p = x.softmax(-1)
    return -(p * p.log()).sum(-1)


def cross_entropy(x):
    return -(x.softmax(-1) * F.log_softmax(x.flip(0), -1)).sum(-1)


def divergence(x):
    p = x.softmax(-1)
    return (p * (p.log() - F.log_softmax(x.flip(0), -1))).sum(-1)


def expectation(x):
    return (x.softmax(-1) * torch.arange(7.0)).sum(-1)


def chosen(x):
    return F.one_hot(x.softmax(-1).argmax(-1), 7).float() @ x.transpose(1, 2)


def features(x):
    return F.linear(x.softmax(-1), LAYER.weight)


def experts(x):
    """A router: a softmax of the largest scores, whose places are no keys."""
    gates, experts = x.topk(2, dim=-1)
    return (gates.softmax(-1)[..., None] * torch.eye(7)[experts]).sum(-2)


def clusters(x):
    """A sum over another axis than that of the softmax."""
    return x.softmax(-1).transpose(1, 2) @ x


def overwritten(x):
    weights = torch.empty(x.shape[0], x.shape[1], x.shape[1])
    torch.softmax(x @ x.transpose(1, 2), -1, out=weights)
    return weights.copy_(x @ x.transpose(1, 2)) @ x


def gates(x):
    return (x.sigmoid() * x).sum(1)


def multiplied(x):
    """Exponentials that nothing divides."""
    return (x @ x.transpose(1, 2)).exp() @ x


LAYER = nn.Linear(7, 7)
NOT_ATTENTION = [
    pointer, entropy, cross_entropy, divergence, expectation, chosen, features, experts, clusters, overwritten, gates,
    multiplied,
]  # fmt: skip


@pytest.mark.parametrize("function", NOT_ATTENTION, ids=lambda function: function.__name__)
def test_functions_that_are_no_attention_are_not_watched(function):
    class Model(nn.Module):
        def forward(self, x):
            return function(x)

    with torch.no_grad(), pytest.raises(UnseenError), regard.watch(model := Model()):
        model(inputs()[0])


def test_nothing_is_kept_of_weights():
    """Scores are freed with the weights, and once these have weighed a sum."""
    references = []

    def form(query, memory):
        scores = query @ memory.transpose(1, 2)
        references.append(weakref.ref(scores))
        weights = scores.softmax(-1)
        del scores
        if len(references) == 2:  # weights that weigh nothing
            return memory, weights[:, None]
        return weights @ memory, weights[:, None]

    model, (query, memory) = ByHand(form), inputs()
    with torch.no_grad(), regard.watch(model) as seen:
        model(query, memory)
        model(query, memory)
        model.made.clear()
        gc.collect()
        assert [reference() for reference in references] == [None, None]
        assert not STATE.tracked.known
    assert len(seen.calls) == 1
