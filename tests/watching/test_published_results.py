"""Published results on a model of two layers whose induction circuit is written by hand, so that each effect is known.

The residual stream has four parts: the token, its position, the token before it, and the answer. Head 0 of layer 0
looks at the position before, and writes its token as the one before; head 0 of layer 1 looks for the token before
which its own token stood, and writes it as the answer (Elhage et al. 2021, "A Mathematical Framework for Transformer
Circuits", section "Mechanistic theory of induction heads"). The other heads do nothing.
"""

import copy

import pytest
import torch
from torch import nn

import regard
from regard import Change

TOKENS, LENGTH, SHARPNESS, LOGIT = 11, 7, 300.0, 5.0
POSITIONS = 2 * LENGTH + 1
DIM = 3 * TOKENS + POSITIONS
TOKEN, POSITION, BEFORE, ANSWER = torch.arange(DIM).split([TOKENS, POSITIONS, TOKENS, TOKENS])


class Layer(nn.Module):
    """Attention of two heads, of which the first is set, and a residual connection."""

    def __init__(self, query, key, value, output):
        super().__init__()
        self.attention = regard.nn.MultiheadAttention(DIM, 2, bias=False, batch_first=True, dtype=torch.float64)
        with torch.no_grad():
            self.attention.in_proj_weight.zero_()
            self.attention.out_proj.weight.zero_()
            for part, features in enumerate((query, key, value)):
                self.attention.in_proj_weight[part * DIM + torch.arange(len(features)), features] = 1.0
            self.attention.in_proj_weight[:DIM] *= SHARPNESS
            self.attention.out_proj.weight[output[: len(value)], torch.arange(len(value))] = 1.0

    def forward(self, x):
        return x + self.attention(x, x, x, mask="causal", need_weights=False)[0]


class Copier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, DIM, dtype=torch.float64)
        self.position = nn.Embedding(POSITIONS, DIM, dtype=torch.float64)
        self.layers = nn.Sequential(
            Layer(POSITION[1:], POSITION[:-1], TOKEN, BEFORE), Layer(TOKEN, BEFORE, TOKEN, ANSWER)
        )
        self.output = nn.Linear(DIM, TOKENS, bias=False, dtype=torch.float64)
        with torch.no_grad():
            for embedding, features in ((self.embedding, TOKEN), (self.position, POSITION)):
                embedding.weight.zero_()[torch.arange(len(features)), features] = 1.0
            self.output.weight.zero_()[torch.arange(TOKENS), ANSWER] = LOGIT

    def forward(self, tokens):
        return self.output(self.layers(self.embedding(tokens) + self.position.weight[: tokens.shape[1]]))


@pytest.fixture
def model():
    return Copier().eval()


def repeated(count=3, length=LENGTH):
    """A start mark, different tokens, and the same again, as often as they fit."""
    row = 1 + torch.rand(count, TOKENS - 1).argsort(1)[:, :length]
    return torch.cat([torch.zeros(count, 1, dtype=torch.int64), *[row] * LENGTH], 1)[:, :POSITIONS]


def copied(tokens, output, distance=1):
    """Whether the predictions are the tokens at a distance after each one of the row."""
    return torch.equal(output[:, : LENGTH - distance], tokens[:, 1 + distance : 1 + LENGTH])


@torch.no_grad()
def predicted(model, tokens, *changes):
    """The most likely tokens after those of the second time."""
    with regard.intervene(model, *changes):
        return model(tokens)[:, LENGTH + 1 :].argmax(-1)


def test_the_survey_names_both_heads_of_the_circuit(model):
    patterns = {(head.layer, head.head): head.pattern for head in regard.survey(model, list(repeated(8))).heads}
    assert patterns[0, 0] == "previous token"
    assert patterns[1, 0] == "induction"
    assert {patterns[0, 1], patterns[1, 1]}.isdisjoint({"previous token", "induction"})


def test_copies_end_without_either_head_of_the_circuit_alone(model):
    tokens = repeated()
    for layer, head in ((0, 0), (0, 1), (1, 0), (1, 1)):
        output = predicted(model, tokens, Change("output", 0.0, layer=layer, head=head))
        assert copied(tokens, output) == (head == 1)


def test_a_head_of_positions_can_be_frozen_and_one_of_contents_cannot(model):
    tokens, other = repeated(), repeated(length=5)
    with torch.no_grad(), regard.watch(model, read="view") as of_other_text:
        model(other)
    for layer in (0, 1):
        frozen = Change("weights", of_other_text, layer=layer, head=0)
        assert copied(tokens, predicted(model, tokens, frozen)) == (layer == 0)


@pytest.mark.parametrize("distance", [1, 2, 3])
def test_written_weights_that_look_further_back_skip_tokens(model, distance):
    tokens = repeated()
    looking_back = torch.eye(POSITIONS, dtype=torch.float64).roll(-distance, 1).tril()
    output = predicted(model, tokens, Change("weights", looking_back, layer=0, head=0))
    assert copied(tokens, output, distance)


def test_patches_and_paths_find_the_circuit_and_nothing_else(model):
    clean = repeated()[:, : LENGTH + 5]  # ends with the token at 4, whose answer is at 5
    corrupted = clean.clone()
    corrupted[:, 4] = torch.tensor([next(t for t in range(TOKENS) if t not in row) for row in clean.tolist()])
    answers = clean[:, 5]

    def metric(logits):
        return logits[torch.arange(len(clean)), -1, answers]

    def effects(**options):
        return regard.patch(model, clean, corrupted, metric, progress=False, **options).normalized

    expected = torch.tensor([[1.0, 0.0], [1.0, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(effects(), expected)
    places = torch.zeros(2, LENGTH + 5, dtype=torch.float64)
    places[0, 5] = places[1, -1] = 1.0  # what stands before the answer is written there; the answer, at the end
    torch.testing.assert_close(effects(over="positions"), places)
    for part in ("query", "key", "values"):
        path = effects(layers=0, receiver=(1, 0, part))
        torch.testing.assert_close(path, torch.tensor([[float(part == "key"), 0.0]], dtype=torch.float64))


def test_the_score_of_an_induction_head_is_its_token_times_the_one_before(model):
    with torch.no_grad(), regard.watch(model, inputs=True) as seen:
        model(repeated(1))
    parts = regard.explain_weight(seen, layer=1, head=0, query=LENGTH + 4, key=5)
    labels = [source.label for source in parts.sources]
    before = labels.index("head 0 of layer 0")
    assert parts.weight == pytest.approx(1.0)
    assert parts.of_key[before] == pytest.approx(parts.score)
    assert sum(abs(float(part)) for part in parts.of_key) == pytest.approx(parts.score)
    assert float(parts.of_query[before]) == pytest.approx(0.0)


def test_the_head_that_copies_has_the_eigenvalues_of_a_copy(model):
    """Elhage et al. 2021, section "Detecting copying behavior": the sum of eigenvalues is that of their magnitudes."""
    with torch.no_grad(), regard.watch(model, outputs=True) as seen:
        model(torch.arange(TOKENS)[None])
    rows = [regard.watching.value_logits(model, seen.calls[1], token)[0, :, 0] for token in range(TOKENS)]
    torch.testing.assert_close(torch.stack(rows, 1)[0], LOGIT * torch.eye(TOKENS, dtype=torch.float64))


@pytest.mark.parametrize("what", ["output", "values"])
def test_patched_heads_of_gpt2_are_those_of_hooks_on_its_modules(what):
    """As frameworks patch that wrap the modules of a model: the inputs of c_proj, and the values of c_attn's output."""
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        vocab_size=31, n_positions=16, n_embd=20, n_layer=2, n_head=5, initializer_range=0.3
    )
    model = transformers.GPT2LMHeadModel(config).eval()
    clean, corrupted = torch.randint(31, (2, 2, 13))
    width, hooked = config.n_embd // config.n_head, copy.deepcopy(model)

    def recorded(module, inputs, output):
        module.recorded = inputs[0] if what == "output" else output

    with torch.no_grad(), regard.watch(model, outputs=True) as seen:
        model(clean)
    for layer in range(config.n_layer):
        attention = hooked.transformer.h[layer].attn
        module = attention.c_proj if what == "output" else attention.c_attn
        first = 0 if what == "output" else 2 * config.n_embd
        handle = module.register_forward_hook(recorded)
        with torch.no_grad():
            hooked(clean)
        handle.remove()
        for head in range(config.n_head):
            chosen = slice(first + head * width, first + (head + 1) * width)

            def put(tensor, module=module, chosen=chosen):
                tensor = tensor.clone()
                tensor[..., chosen] = module.recorded[..., chosen]
                return tensor

            if what == "output":
                handle = module.register_forward_pre_hook(lambda _, inputs, put=put: (put(inputs[0]),))
            else:
                handle = module.register_forward_hook(lambda _, inputs, output, put=put: put(output))
            with torch.no_grad():
                expected = hooked(corrupted).logits
                with regard.intervene(model, Change(what, seen, layer=layer, head=head)):
                    output = model(corrupted).logits
            handle.remove()
            torch.testing.assert_close(output, expected, rtol=0.0, atol=1e-5)
            assert not torch.equal(output, model(corrupted).logits)
