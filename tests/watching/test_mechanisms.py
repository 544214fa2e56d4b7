"""Differential, latent and gated attention of watched models, and both maps where a layer has two."""

import pytest
import torch

import regard
from regard import nn


def watched(model, *arguments, **options):
    with torch.no_grad(), regard.watch(model, read=regard.Readings(weights=True)) as seen:
        model(*arguments, **options)
    return seen


OWN = {
    "differential": lambda: nn.DifferentialAttention(16, 4),
    "latent": lambda: nn.LatentAttention(16, 4),
    "gated": lambda: nn.SelfAttention(16, 4, gate=True),
    None: lambda: nn.SelfAttention(16, 4, qk_norm="rms"),
}


@pytest.mark.parametrize("mechanism", OWN)
def test_mechanisms_of_regard(mechanism):
    seen = watched(OWN[mechanism](), torch.randn(2, 3, 16), mask="causal")
    assert {call.mechanism for call in seen.calls} == {mechanism}


@pytest.mark.parametrize(
    ("family", "mechanism"),
    [("diffllama", "differential"), ("deepseek_v2", "latent"), ("deepseek_v3", "latent"), ("qwen3_next", "gated"),
     ("llama", None), ("qwen3", None)],
)  # fmt: skip
def test_mechanisms_of_transformers(family, mechanism):
    pytest.importorskip("transformers")
    from tiny_transformers import inputs, make

    calls = watched(make(family, "sdpa").double(), **inputs(family)).calls
    assert {call.mechanism for call in calls} == {mechanism}
    assert all(call.name.endswith("self_attn") for call in calls)


def test_a_layer_with_two_maps_gives_both():
    layer, x = (
        nn.TransformerEncoderLayer(16, 4, attention="differential", batch_first=True).eval(),
        torch.randn(2, 3, 16),
    )
    seen = watched(layer, x, mask="causal")
    assert [(call.part, call.maps) for call in seen.calls] == [(0, (1,) * 4), (1, (2,) * 4)]
    first, second = seen.records(["a", "b", "c"])
    assert (first.name, second.name) == ("self_attn, map 1", "self_attn, map 2")
    attention = layer.self_attn
    implied = attention(x, mask="causal", need_weights=True).weights[0].detach()
    factor = attention.lambda_full.detach()
    difference = torch.from_numpy(first.weights) - factor * torch.from_numpy(second.weights)
    torch.testing.assert_close(difference, implied)
    assert regard.View(seen, ["a", "b", "c"], example=0)


def test_the_maps_of_diffllama_and_of_its_generated_tokens():
    pytest.importorskip("transformers")
    from tiny_transformers import LENGTH, inputs, make

    model = make("diffllama", "eager")
    given = inputs("diffllama")["input_ids"][:1]
    with torch.no_grad(), regard.watch(model, read=regard.Readings(weights=True)) as seen:
        written = model.generate(given, max_new_tokens=3, min_new_tokens=3, do_sample=False)
    tokens = [str(number) for number in range(LENGTH + 3)]
    records = seen.records(tokens)
    names = [f"model.layers.{layer}.self_attn, map {number}" for layer in (0, 1) for number in (1, 2)]
    assert [record.name for record in records] == names
    with torch.no_grad():
        expected = model(written[:, :-1], output_attentions=True).attentions
    for layer, weights in enumerate(expected):
        for number in (0, 1):
            got = torch.from_numpy(records[2 * layer + number].weights)
            torch.testing.assert_close(got, weights[0, 2 * number : 2 * number + 2], rtol=1e-4, atol=1e-5)


def test_an_interrupted_call_leaves_no_part_behind(monkeypatch):
    layer, x = nn.DifferentialAttention(16, 4).eval(), torch.randn(2, 3, 16)
    maps = [layer.attend]
    with regard.watch(layer) as seen:
        monkeypatch.setattr(layer, "attend", lambda *arguments: maps.pop()(*arguments))
        with pytest.raises(IndexError):
            layer(x)
        monkeypatch.undo()
        layer(x)
    assert [call.part for call in seen.calls] == [0, 0, 1]


def test_an_adapted_projection_is_gated_as_well():
    """An adapter of another library is no `torch.nn.Linear`, and has the features of the layer that it adapts."""
    pytest.importorskip("transformers")
    from tiny_transformers import inputs, make

    class Adapted(torch.nn.Module):
        def __init__(self, layer):
            super().__init__()
            self.layer, self.out_features = layer, layer.out_features

        def forward(self, x):
            return self.layer(x)

    model = make("qwen3_next", "sdpa").double()
    for module in model.modules():
        if "q_proj" in module._modules:
            module.q_proj = Adapted(module.q_proj)
    assert {call.mechanism for call in watched(model, **inputs("qwen3_next")).calls} == {"gated"}
