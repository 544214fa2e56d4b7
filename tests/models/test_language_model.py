"""The language model: its loss, its steps, its attention weights, its first weights, its file."""

import math

import pytest
import torch
from torch.nn import functional as F

from regard import masks
from regard.errors import ArgumentError, UnknownNameError
from regard.kernels.availability import kernels_awaited
from regard.models import LanguageModel, LanguageModelConfig, load_model, save_model
from regard.models.search import TokenChoice
from regard.models.text_continuation import continue_tokens

VOCABULARY, CONTEXT, LAYERS = 13, 11, 3
KINDS = {
    "learned": {},
    "post-norm": {"norm": "post"},
    "grouped": {"kv_heads": 1},
    "grouped, rotary": {"kv_heads": 2, "position": "rotary", "heads": 4, "hidden": 16},
    "sinusoidal": {"position": "sinusoidal"},
    "rotary": {"position": "rotary"},
    "alibi": {"position": "alibi"},
    "t5": {"position": "t5"},
    "shaw": {"position": "shaw"},
    "none": {"position": "none"},
    "additive": {"score": "additive"},
    "sparsemax": {"normalizer": "sparsemax"},
    "untied": {"tied": "none"},
}
every_kind = pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)


def make(**options):
    torch.manual_seed(11)
    sizes = {"hidden": 12, "heads": 2, "feedforward": 17, "layers": LAYERS, "context": CONTEXT, "dropout": 0.0}
    sizes |= {"position": "learned"}
    model = LanguageModel(LanguageModelConfig(VOCABULARY, **{**sizes, **options})).double().eval()
    for parameter in model.parameters():  # with the first weights all predictions are nearly equal
        parameter.data.mul_(5)
    return model


def tokens(batch=5, length=CONTEXT):
    return torch.randint(VOCABULARY, (batch, length), generator=torch.Generator().manual_seed(3))


@every_kind
@pytest.mark.parametrize("cuts", [range(1, CONTEXT), (3, 4, 9), ()], ids=["one by one", "in parts", "at once"])
def test_steps_of_a_language_model_give_the_whole_prediction(options, cuts):
    model, given = make(**options), tokens()
    expected = model(given).log_softmax(-1)
    caches, first = model.start(), 0
    for stop in (*cuts, CONTEXT):
        found, caches = model.step(given[:, first:stop], caches)
        torch.testing.assert_close(found, expected[:, stop - 1].float())
        first = stop
    assert {cache.length for cache in caches} == {CONTEXT}


@every_kind
def test_no_prediction_depends_on_later_tokens(options):
    model, given = make(**options), tokens()
    other = torch.cat((given[:, :6], (given[:, 6:] + 1) % VOCABULARY), dim=1)
    before, after = model(given), model(other)
    torch.testing.assert_close(before[:, :6], after[:, :6])
    assert (before[:, 6] - after[:, 6]).abs().max() > 1e-3


@every_kind
def test_the_loss_is_the_mean_cross_entropy_of_all_tokens_but_the_first(options):
    model, given = make(**options), tokens(length=CONTEXT + 1)
    logits, labels = model(given[:, :-1]).flatten(0, 1), given[:, 1:]
    for smoothing in (0.0, 0.1):
        expected = F.cross_entropy(logits, labels.flatten(), label_smoothing=smoothing)
        torch.testing.assert_close(model.loss(given, label_smoothing=smoothing).total, expected)
    nll = F.cross_entropy(logits, labels.flatten(), reduction="none").view(labels.shape)
    torch.testing.assert_close(model.loss(given, label_smoothing=0.1).nll, nll)


@every_kind
def test_every_parameter_of_a_language_model_learns(options):
    model = make(**options).train()
    model.loss(tokens(length=CONTEXT + 1)).total.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


@every_kind
def test_the_file_has_the_whole_model(options, tmp_path):
    model = make(**options).float()
    loaded = load_model(save_model(tmp_path, model))
    assert loaded.config == model.config
    with kernels_awaited():
        assert torch.equal(loaded(tokens()), model(tokens()))


@every_kind
def test_attention_weights_are_those_of_the_prediction(options):
    model, given = make(**options), tokens()
    for layer in range(LAYERS):
        weights = model.attention_weights(given, layer)
        assert weights.shape == (5, CONTEXT, CONTEXT)
        assert (weights.triu(1) == 0).all()
        torch.testing.assert_close(weights.sum(-1), torch.ones(5, CONTEXT, dtype=torch.float64))
        # The heads' values, mixed with these weights, are what the model's own pass mixes.
        seen = []
        hook = model.stack.layers[layer].self_attn.out_proj.register_forward_hook(
            lambda module, inputs, output, seen=seen: seen.append(inputs[0])
        )
        model(given)
        hook.remove()
        rows = model.input(given)
        for below in model.stack.layers[:layer]:
            rows = below(rows, mask=masks.causal())
        chosen = model.stack.layers[layer]
        rows = chosen.norm1(rows) if chosen.norm_first else rows
        _, of_heads = chosen.self_attn(rows, rows, rows, is_causal=True, average_attn_weights=False)
        value = chosen.self_attn.split(chosen.self_attn.project(rows, rows, rows)[2])
        value = value.repeat_interleave(of_heads.shape[1] // value.shape[1], dim=1)
        torch.testing.assert_close(of_heads.mean(1), weights)
        if options.get("position") != "shaw":  # whose values have positions too
            joined = chosen.self_attn.join(of_heads @ value)
            torch.testing.assert_close(seen[0].view_as(joined), joined)
    for layer in (-1, LAYERS):
        with pytest.raises(ArgumentError, match=r"layer must be from 0 to 2"):
            model.attention_weights(given, layer)


def test_first_weights_are_those_of_gpt():
    torch.manual_seed(5)
    model = LanguageModel(
        LanguageModelConfig(301, context=67, hidden=128, layers=8, heads=4, position="learned", tied="none")
    )
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            assert (parameter == (1.0 if "norm" in name and name.endswith("weight") else 0.0)).all(), name
            continue
        residual = name.endswith(("out_proj.weight", "linear2.weight"))
        expected = 0.02 / math.sqrt(16) if residual else 0.02
        assert float(parameter.detach().std()) == pytest.approx(expected, rel=0.05), name
    loss = model.loss(torch.randint(301, (2, 67))).total
    assert float(loss.detach()) == pytest.approx(math.log(301), rel=0.02)


def test_a_tied_output_matrix_is_the_embedding():
    tied, untied = (LanguageModel(LanguageModelConfig(VOCABULARY, tied=tied)) for tied in ("target", "none"))
    assert tied.output.weight is tied.input.embedding.weight
    count = [sum(parameter.numel() for parameter in model.parameters()) for model in (tied, untied)]
    assert count[1] - count[0] == VOCABULARY * 384


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"position": "rotry"}, UnknownNameError, "did you mean 'rotary'"),
        ({"context": 0}, ArgumentError, "context must be from 1"),
        ({"dropout": 1.0}, ArgumentError, "dropout must be in"),
        ({"heads": 5}, ArgumentError, "heads must divide hidden"),
    ],
)
def test_bad_configurations_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        LanguageModelConfig(VOCABULARY, **options)


def reference(model, given, most, end):
    """The most likely continuation, each token from a whole pass over what `continue_tokens` says that it reads."""
    text, read = list(given), len(given[-CONTEXT:])
    while len(text) - len(given) < most:
        token = int(model(torch.tensor([text[-read:]]))[0, -1].argmax())
        if token == end:
            break
        text.append(token)
        read = read + 1 if read < CONTEXT else CONTEXT // 2
    return text[len(given) :]


@pytest.mark.parametrize("position", ["learned", "rotary", "sinusoidal", "alibi"])
@pytest.mark.parametrize("length", [1, 4, CONTEXT - 1, CONTEXT, 2 * CONTEXT + 3])
def test_a_continuation_longer_than_the_context(position, length):
    model = make(position=position)
    given = tokens(1, length)[0].tolist()
    found = continue_tokens(model, given, 3 * CONTEXT, TokenChoice(temperature=0), end=-1)
    assert found.tokens == reference(model, given, 3 * CONTEXT, -1)
    assert not found.ended
    first = model(torch.tensor([given[-CONTEXT:]]))[0, -1].log_softmax(-1)
    torch.testing.assert_close(found.first, first.float())


def test_a_continuation_ends_and_forbids():
    model, given = make(), [3, 5]
    free = continue_tokens(model, given, 30, TokenChoice(temperature=0), end=-1).tokens
    end = free[4]
    ended = continue_tokens(model, given, 30, TokenChoice(temperature=0), end=end)
    assert (ended.tokens, ended.ended) == (free[: free.index(end)], True)
    without = continue_tokens(model, given, 30, TokenChoice(temperature=0), end=-1, forbidden=(end,)).tokens
    assert end not in without
    nothing = continue_tokens(model, given, 0, TokenChoice(), end=-1)
    assert (nothing.tokens, nothing.log_probability, nothing.ended) == ([], 0.0, False)
    whole = torch.tensor([[*given, *free[:4], end]])
    logs = model(whole[:, :-1]).log_softmax(-1).gather(2, whole[:, 1:, None])[0, len(given) - 1 :].sum()
    if end not in free[:4]:
        assert ended.log_probability == pytest.approx(float(logs.detach()), rel=1e-4)
