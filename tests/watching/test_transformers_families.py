"""regard as an attention implementation of Hugging Face: what ``eager`` gives, on many families."""

import pytest
import torch

pytest.importorskip("transformers")

from regard.watching import register_transformers
from tiny_transformers import CAUSAL, FAMILIES, LENGTH, inputs, make, output

register_transformers()

TEXTS = [name for name, family in FAMILIES.items() if family.inputs in ("text", "pairs", "image and text")]


@pytest.fixture(autouse=True)
def _softmax_in_double(monkeypatch):
    """``eager`` of most families rounds weights to single precision; the oracle of these tests must not."""
    softmax = torch.nn.functional.softmax

    def of_double(scores, dim=None, dtype=None, **options):
        return softmax(scores, dim=dim, dtype=None if scores.dtype == torch.float64 else dtype, **options)

    monkeypatch.setattr(torch.nn.functional, "softmax", of_double)


def attentions(result):
    """Every tensor of weights that a model returned, by the name of its field."""
    found = {}
    for name, value in result.items():
        if "attentions" in name and value:
            found[name] = list(value)
        if name.endswith("_model_output"):
            found |= {f"{name}.{key}": weights for key, weights in attentions(value).items()}
    return found


@pytest.fixture
def called(monkeypatch):
    """How often the attention function was called."""
    count = []
    for verb in ("attend", "attend_with_weights"):
        original = getattr(__import__("regard.watching.hugging_face", fromlist=[verb]), verb)
        monkeypatch.setattr(
            f"regard.watching.hugging_face.{verb}",
            lambda *a, _original=original, **k: (count.append(1), _original(*a, **k))[1],
        )
    return count


@pytest.mark.parametrize("name", FAMILIES)
def test_outputs_are_those_of_eager(name, called):
    eager, own = make(name, "eager").double(), make(name, "regard").double()
    with torch.no_grad():
        want, got = output(eager, inputs(name)), output(own, inputs(name))
    assert len(called) >= 2, "the model did not ask the implementation"
    assert torch.allclose(got, want, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("name", FAMILIES)
def test_single_precision_is_as_close_to_double_as_eager_is(name):
    with torch.no_grad():
        oracle = output(make(name, "eager").double(), inputs(name))
        eager = output(make(name, "eager"), inputs(name, dtype=torch.float32))
        got = output(make(name, "regard"), inputs(name, dtype=torch.float32))
    scale = oracle.abs().max()
    assert (got - oracle).abs().max() <= 4 * (eager - oracle).abs().max() + 1e-6 * scale


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", TEXTS)
def test_padding_of_every_family_is_hidden(name, side):
    if name == "clip" and side == "left":
        pytest.skip("CLIP reads its text's end from the position of a token")
    eager, own = make(name, "eager").double(), make(name, "regard").double()
    with torch.no_grad():
        want, got = output(eager, inputs(name, side)), output(own, inputs(name, side))
        unpadded = output(own, inputs(name))
    assert torch.allclose(got, want, rtol=1e-9, atol=1e-10)
    assert name == "clip" or got.shape != unpadded.shape or not torch.allclose(got, unpadded), "padding changed nothing"


@pytest.mark.parametrize("name", FAMILIES)
def test_gradients_are_those_of_eager(name):
    gradients = []
    side = "right" if name in TEXTS else None
    for implementation in ("eager", "regard"):
        model = make(name, implementation).double()
        result = output(model, inputs(name, side))
        weights = torch.randn(result.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        (result * weights).sum().backward()
        gradients.append({key: p.grad for key, p in model.named_parameters() if p.grad is not None})
    want, got = gradients
    assert want.keys() == got.keys()
    assert want
    for key, expected in want.items():
        assert torch.allclose(got[key], expected, rtol=1e-8, atol=1e-9), key


@pytest.mark.parametrize("name", FAMILIES)
def test_weights_are_returned_when_they_are_asked_for(name):
    eager, own = make(name, "eager").double(), make(name, "regard").double()
    with torch.no_grad():
        want = attentions(eager(**inputs(name), output_attentions=True))
        got = attentions(own(**inputs(name), output_attentions=True))
        plain = own(**inputs(name))
    assert want
    assert want.keys() == got.keys()
    for key, layers in want.items():
        assert len(layers) == len(got[key]) == 2
        for expected, weights in zip(layers, got[key], strict=True):
            assert torch.allclose(weights, expected, rtol=1e-9, atol=1e-12)
    assert not any(attentions(plain).values())


@pytest.mark.parametrize("name", CAUSAL)
def test_weights_of_padded_texts(name):
    given = inputs(name, "left")
    visible = given["attention_mask"].bool()
    with torch.no_grad():
        want = attentions(make(name, "eager").double()(**given, output_attentions=True))["attentions"]
        got = attentions(make(name, "regard").double()(**given, output_attentions=True))["attentions"]
    for expected, weights in zip(want, got, strict=True):
        rows = visible[:, None, :, None].expand_as(weights)
        assert torch.allclose(weights[rows], expected[rows], rtol=1e-9, atol=1e-12)
        # A query that sees no key has no weights (contract 2), where eager spreads them over all keys.
        assert not weights[~rows].any() or visible.all()


@pytest.mark.parametrize("name", [name for name, family in FAMILIES.items() if family.decodes])
@pytest.mark.parametrize("options", [{}, {"num_beams": 3}, {"cache_implementation": "static"}], ids=str)
def test_every_family_generates_as_eager(name, options):
    given = inputs(name, "left" if FAMILIES[name].inputs == "text" else "right")
    given.pop("decoder_input_ids", None)
    texts = [
        make(name, implementation).double().generate(
            **given, max_new_tokens=7, do_sample=False, eos_token_id=None, pad_token_id=0, **options
        )
        for implementation in ("eager", "regard")
    ]  # fmt: skip
    assert torch.equal(*texts)


@pytest.mark.parametrize("name", CAUSAL)
def test_packed_sequences_are_what_each_is_alone(name):
    """Two texts in one row, told apart by their positions, are what each is alone."""
    own = make(name, "regard").double()
    ids = inputs(name)["input_ids"][:1]
    position = torch.cat([torch.arange(5), torch.arange(LENGTH - 5)])[None]
    with torch.no_grad():
        packed = own(input_ids=ids, position_ids=position, use_cache=False).logits
        apart = [own(input_ids=part, use_cache=False).logits for part in (ids[:, :5], ids[:, 5:])]
        eager = make(name, "eager").double()(input_ids=ids, position_ids=position, use_cache=False).logits
    assert torch.allclose(packed, eager, rtol=1e-9, atol=1e-10)
    # These count positions over the whole row, or make their masks without the positions.
    if name not in ("opt", "llama4", "gpt_oss"):
        assert torch.allclose(packed, torch.cat(apart, dim=1), rtol=1e-6, atol=1e-6)
