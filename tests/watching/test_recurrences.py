"""Linear recurrences of watched models: every layer has its exact weights, or is named in the warning."""

import inspect
import sys
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import regard
from regard.scores import Decayed, DeltaRule
from regard.watching import UnseenAttentionWarning, ablate, logit_contributions, survey

pytest.importorskip("transformers")

from hybrid_models import make, token_ids

RECURRENT = ("qwen3_next", "kimi_linear", "bamba")


def watched(model, *args, read="view", **options):
    """The context of one call, and the messages of its warnings."""
    with (
        torch.no_grad(),
        warnings.catch_warnings(record=True, action="always") as caught,
        regard.watch(model, read=read, **options) as seen,
    ):
        model(*args)
    return seen, [str(each.message) for each in caught if issubclass(each.category, UnseenAttentionWarning)]


class CoreOutputs:
    """What the recurrence of each module passes to the normalization after it, by the module's name."""

    def __init__(self, model):
        self.of, self._hooks = {}, []
        for name, module in model.named_modules():
            inner = getattr(module, "o_norm", getattr(module, "norm", None))
            if isinstance(inner, nn.Module) and hasattr(module, "conv1d"):
                self._hooks.append(inner.register_forward_pre_hook(lambda _, args, name=name: self.note(name, args[0])))

    def note(self, name, output):
        self.of[name] = output.detach().clone()


@pytest.mark.parametrize("family", RECURRENT)
def test_every_layer_of_a_hybrid_model_has_exact_weights(family):
    model, ids = make(family), token_ids()
    plain = model(ids).logits
    outputs = CoreOutputs(model)
    seen, messages = watched(model, ids, outputs=True, keep=True)
    assert not messages
    assert [call.layer for call in seen.calls] == [0, 1, 2]
    assert [call.signed for call in seen.calls] == [True, False, True]
    assert torch.equal(model(ids).logits, plain)
    for call in (call for call in seen.calls if call.signed):
        assert (call.kind, call.mask) == ("causal", "causal")
        assert call.log_decay.shape[:3] == (2, call.heads, 13)
        assert (call.beta is None) == (family == "bamba")
        assert call.weights.min() < -1e-3
        core = (call.weights @ call.value).transpose(1, 2)
        if family == "bamba":
            skip = model.get_submodule(call.name).D
            core = core + skip[:, None] * call.value.transpose(1, 2)
        expected = outputs.of[call.name].reshape(core.shape)
        assert (core - expected).abs().max() <= 1e-5 * max(1.0, float(expected.abs().max()))
        for row, source in enumerate(call.tiles):
            tile = torch.from_numpy(source.tile((2, 11), (0, 7)))
            torch.testing.assert_close(tile, call.weights[row, :, 2:11, :7])


@pytest.mark.parametrize("family", RECURRENT)
def test_watching_a_recurrence_changes_no_bit_and_restores_all_names(family):
    model, ids = make(family).train(), token_ids()
    names = vars(sys.modules[type(model).__module__])
    before = {name: value for name, value in names.items() if inspect.isfunction(value)}

    def step():
        model.zero_grad()
        output = model(ids).logits
        output.square().sum().backward()
        return [output.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]

    plain = step()
    with regard.watch(model), regard.watch(model):
        seen = step()
    assert all(torch.equal(*pair) for pair in zip(plain, seen, strict=True))
    assert {name: value for name, value in names.items() if inspect.isfunction(value)} == before


@pytest.mark.parametrize("family", RECURRENT)
def test_generated_tokens_have_the_weights_of_one_pass(family):
    model = make(family)
    options = {"max_new_tokens": 4, "min_new_tokens": 4, "num_beams": 3}
    with torch.no_grad(), regard.watch(model, read="view") as seen:
        found = model.generate(token_ids(2, 5), return_dict_in_generate=True, output_scores=True, **options)
    joined = {call.name: call for call in seen.stitched(beam_indices=found.beam_indices)}
    whole, _ = watched(model, found.sequences[:, :-1])
    for call in whole.calls:
        assert joined[call.name].shape == call.shape
        torch.testing.assert_close(joined[call.name].weights, call.weights, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("family", RECURRENT)
def test_a_state_of_unwatched_tokens_is_said(family):
    model, ids = make(family), token_ids()
    with torch.no_grad():
        past = model(ids, use_cache=True).cache
        outputs = CoreOutputs(model)
        with warnings.catch_warnings(record=True, action="always") as caught, regard.watch(model, outputs=True) as seen:
            model(ids[:, :1], cache=past)
    calls = [call for call in seen.calls if call.signed]
    assert [(call.has_state, call.keys) for call in calls] == [(True, 1)] * 2
    message = next(str(each.message) for each in caught if "watched" in str(each.message))
    assert all(call.name in message for call in calls)
    assert "began with a state of tokens that were not watched" in message
    if family != "bamba":  # its skip connection is no part of the heads
        for call in calls:
            torch.testing.assert_close(call.head_output.flatten(), outputs.of[call.name].flatten())


@pytest.mark.parametrize(
    ("family", "mixer"),
    [("jamba", "mamba"), ("lfm2", "conv"), ("recurrent_gemma", "temporal_block"), ("nemotron_h", None)],
)
def test_a_mixer_of_tokens_without_a_record_is_named(family, mixer):
    seen, messages = watched(make(family), token_ids())
    assert 1 in [call.layer for call in seen.calls]
    if mixer is None:  # its third layer is a perceptron
        assert not messages
        return
    (message,) = messages
    assert all(f"'model.layers.{layer}.{mixer}'" in message for layer in (0, 2))
    assert "seems to mix tokens, and gave no record" in message


def chunk_gated_delta_rule(q, k, v, g, beta, scale=None, initial_state=None, factor=1.0):
    """A function with a name of flash-linear-attention; its ``factor`` is none of theirs."""
    score = DeltaRule(Decayed("scaled_dot", g.transpose(1, 2)), beta.transpose(1, 2))
    heads = (each.transpose(1, 2) for each in (factor * q, k, v))
    return regard.attend(*heads, score=score, normalizer="identity", mask="causal").transpose(1, 2), None


class Recurrent(nn.Module):
    """A layer that stores its function."""

    def __init__(self, **options):
        super().__init__()
        self.project, self.out_proj = nn.Linear(6, 36), nn.Linear(12, 6)
        self.attend, self.options = chunk_gated_delta_rule, options

    def forward(self, x):
        q, k, v = self.project(x).unflatten(-1, (2, 18)).split((6, 6, 6), -1)
        g, beta = -x[..., :2].abs(), x[..., 2:4].sigmoid()
        return self.out_proj(self.attend(q, F.normalize(k, dim=-1), v, g=g, beta=beta, **self.options)[0].flatten(2))


def test_a_function_that_a_module_stores_is_watched_and_restored():
    model, x = Recurrent(), torch.randn(2, 7, 6)
    seen, messages = watched(model, x, outputs=True)
    assert model.attend is chunk_gated_delta_rule
    assert not messages
    (call,) = seen.calls
    assert call.source == "chunk_gated_delta_rule"
    torch.testing.assert_close(model(x), model.out_proj((call.weights @ call.value).transpose(1, 2).flatten(2)))
    contributions = logit_contributions(model, call, [0, 1], unembedding=torch.eye(6))
    torch.testing.assert_close(contributions.sum(1) + model.out_proj.bias[:2], model(x)[..., :2])


def test_arguments_with_another_meaning_give_no_record():
    with pytest.raises(regard.errors.UnseenError, match="is not that of the recurrence which its arguments say"):
        watched(Recurrent(factor=1.5), torch.randn(2, 7, 6))


def test_ablation_and_survey_of_recurrent_heads():
    model, ids = make("qwen3_next"), token_ids()
    with torch.no_grad():
        plain = model(ids).logits
        with ablate(model, layer=0, head=[0, 1, 2, 3, 4, 5]):
            without = model(ids).logits
        layer = model.model.layers[0].linear_attn
        hook = layer.register_forward_hook(lambda module, args, output: torch.zeros_like(output))
        zero = model(ids).logits
        hook.remove()
    assert not torch.allclose(without, plain)
    torch.testing.assert_close(without, zero)
    seen, _ = watched(model, ids, outputs=True)
    with pytest.raises(regard.errors.ArgumentError, match="linear_attn"):
        logit_contributions(model, seen.calls[0], [5])
    found = survey(model, ["3 4 5 6", "7 8 9 3"], lambda text: list(map(int, text.split())))
    assert {head.layer for head in found.heads} == {1}
    assert set(found.ignored) == {f"model.layers.{layer}.linear_attn" for layer in (0, 2)}
    assert "signed weights" in next(iter(found.ignored.values()))
