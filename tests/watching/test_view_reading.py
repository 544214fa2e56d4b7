"""``read="view"`` is one reading that whatever shows weights can use; without it the message has the line."""

import re
from typing import Any

import pytest
import torch

import regard
from regard import masks, pictures, watching
from regard.attention.readings import NAMED_READINGS
from regard.errors import ArgumentError, KindError

TOKENS = list("abcde")


def make():
    torch.manual_seed(0)
    layer = regard.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    return regard.nn.TransformerEncoder(layer, 2).eval(), torch.randn(1, 5, 8)


def watched_with(**options: Any):
    model, inputs = make()
    with torch.no_grad(), regard.watch(model, **options) as watched:
        model(inputs)
    return watched


def observed_with(**options: Any):
    query, key = torch.randn(2, 1, 2, 5, 8, generator=torch.Generator().manual_seed(0))
    return regard.observe(query, key, key, **options)


def of_records(show):
    """Shows the records of a context, which fail first where there are none."""
    return lambda watched: show(watched.records(TOKENS))


OF_WATCH = {
    "View": lambda watched: regard.View(watched, TOKENS),
    "View of a call": lambda watched: regard.View(watched.calls[0], TOKENS),
    "View of weights": lambda watched: regard.View(watched.calls[0].weights, TOKENS),
    "View of all weights": lambda watched: regard.View([call.weights for call in watched.calls], TOKENS),
    "records": lambda watched: watched.records(TOKENS),
    "document": lambda watched: watched.document(TOKENS),
    "rollout": of_records(watching.rollout),
    "flow": of_records(watching.flow),
    "heatmap": lambda watched: pictures.heatmap(_head(watched.calls[0].weights)),
    "alignment": lambda watched: pictures.alignment(_head(watched.calls[0].weights), TOKENS, TOKENS),
}
OF_OBSERVE = {
    "View": lambda observed: regard.View(observed, TOKENS),
    "View of weights": lambda observed: regard.View(
        observed.weights[0] if observed.weights is not None else None, TOKENS
    ),
    "heatmap": lambda observed: pictures.heatmap(_head(observed.weights)),
}


def _head(weights):
    return None if weights is None else weights[0, 0]


@pytest.mark.parametrize(("source", "name"), [*(("watch", n) for n in OF_WATCH), *(("observe", n) for n in OF_OBSERVE)])
def test_functions_that_show_weights_name_the_view_reading(source, name):
    run, show = (watched_with, OF_WATCH[name]) if source == "watch" else (observed_with, OF_OBSERVE[name])
    for options in ({}, {"read": regard.Readings(entropy=True)}):
        with pytest.raises(ArgumentError, match='read="view"'):
            show(run(**options))
    show(run(read="view"))


def test_the_line_of_the_message_runs():
    with pytest.raises(ArgumentError) as raised:
        regard.View(watched_with(), TOKENS)
    line = re.search(r"write (with .*?: model\(\*\*inputs\)); then (View\(watched, tokens\))", str(raised.value))
    assert line is not None
    model, inputs = make()
    names = {"regard": regard, "model": model, "inputs": {"src": inputs}, "tokens": TOKENS}
    exec(line[1], names)
    assert len(eval(line[2], names | {"View": regard.View}).document.records) == 2
    with pytest.raises(ArgumentError) as raised:
        regard.View(observed_with(), TOKENS)
    line = re.search(r"write (observed = .*); then (View\(observed, tokens\))", str(raised.value))
    assert line is not None
    names |= dict(zip(("query", "key", "value"), torch.randn(3, 5, 8), strict=True))
    exec(line[1], names)
    assert eval(line[2], names | {"View": regard.View}).document.records[0].weights.shape == (1, 5, 5)


def test_the_view_reading_has_the_weights_and_all_default_readings():
    for default, named in ((watched_with(), watched_with(read="view")), (observed_with(), observed_with(read="view"))):
        calls = zip(default.calls, named.calls, strict=True) if hasattr(default, "calls") else [(default, named)]
        for one, other in calls:
            assert other.weights.sum(-1).allclose(torch.ones(()))
            for reading in ("lse", "entropy", "peak", "received"):
                assert getattr(one, reading) is None or torch.equal(getattr(one, reading), getattr(other, reading))
            assert torch.allclose(other.peak, other.weights.amax(-1))
            assert torch.allclose(other.received, other.weights.sum(-2))
            assert torch.allclose(other.entropy, torch.special.entr(other.weights).sum(-1), atol=1e-5)


def test_the_view_reading_changes_no_bit():
    model, inputs = make()
    inputs.requires_grad_()
    outputs = []
    for options in (None, {"read": "view"}, {}):
        if options is None:
            output = model(inputs)
        else:
            with regard.watch(model, **options):
                output = model(inputs)
        outputs.append((output, *torch.autograd.grad(output.square().sum(), inputs)))
    assert all(torch.equal(first, other) for first, other in zip(outputs[0] * 2, outputs[1] + outputs[2], strict=True))
    for options in ({}, {"mask": masks.causal(), "normalizer": "sparsemax"}, {"backend": "tiled"}):
        assert torch.equal(observed_with(read="view", **options).output, observed_with(**options).output)


@pytest.mark.parametrize("call", [lambda read: observed_with(read=read), lambda read: watched_with(read=read)])
def test_another_name_is_answered(call):
    with pytest.raises(KindError, match=r'read must be a Readings or "view"; it is \'attentions\'$'):
        call("attentions")
    with pytest.raises(KindError, match=r"write read=regard\.Readings\(weights=True\)$"):
        call("weights")


def test_modules_that_observe_know_the_name_as_well():
    attention = regard.nn.PositionAttention(4)
    named = attention.observe(torch.randn(1, 4, 3, 3), "view")
    assert named.weights is not None
    assert NAMED_READINGS["view"] == regard.Readings(entropy=True, peak=True, received=True, weights=True)
    assert named.entropy is not None
