"""Importance of tokens: each method against its equation on weights that a plain model holds itself, in float64."""

import math
import sys

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import regard
from regard.errors import ArgumentError, KindError, MissingPartError, ShapeError, UnknownNameError, UnseenError
from regard.watching import IMPORTANCE_METHODS, importance

VOCABULARY, WIDTH, HEADS, LABELS = 23, 12, 3, 5
READOUTS = ("first", "mean", "last", "pooling")


class Attention(nn.Module):
    """Self-attention as PyTorch's function, or by a softmax of its own."""

    def __init__(self, fused, causal):
        super().__init__()
        self.query, self.key, self.value, self.output = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.fused, self.causal = fused, causal

    def parts(self, x):
        return [layer(x).unflatten(-1, (HEADS, -1)).transpose(1, 2) for layer in (self.query, self.key, self.value)]

    def weights(self, query, key):
        scores = query @ key.mT / math.sqrt(WIDTH // HEADS)
        if self.causal:
            scores = scores.masked_fill(torch.ones_like(scores).triu(1) > 0, -torch.inf)
        return torch.softmax(scores, -1)

    def forward(self, x):
        query, key, value = self.parts(x)
        if self.fused:
            heads = F.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        else:
            heads = self.weights(query, key) @ value
        return self.output(heads.transpose(1, 2).flatten(2))


class Pooling(nn.Module):
    """One learned query over all positions."""

    def __init__(self):
        super().__init__()
        self.query, self.output = nn.Parameter(torch.randn(1, 1, 1, WIDTH)), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        pooled = F.scaled_dot_product_attention(self.query.expand(len(x), -1, -1, -1), x[:, None], x[:, None])
        return self.output(pooled[:, 0])


class Classifier(nn.Module):
    def __init__(self, readout, fused=True):
        super().__init__()
        self.embedding, self.readout = nn.Embedding(VOCABULARY, WIDTH), readout
        self.layers = nn.ModuleList(Attention(fused, readout == "last") for _ in range(2))
        self.mixers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))
        self.pooling = Pooling() if readout == "pooling" else None
        self.logits = nn.Linear(WIDTH, LABELS)

    def forward(self, ids):
        x = self.embedding(ids)
        for layer, mixer in zip(self.layers, self.mixers, strict=True):
            x = x + layer(x)
            x = x + torch.tanh(mixer(x))
        if self.pooling is not None:
            x = self.pooling(x)
        return self.logits(x.mean(1) if self.readout == "mean" else x[:, -1 if self.readout == "last" else 0])


def classifier(readout, fused=True, seed=0):
    torch.manual_seed(seed)
    return Classifier(readout, fused).double().train()


def by_hand(model, ids, label, embedded=None):
    """The probability of a label, and the weights of every layer and of the pooling, which have gradients."""
    x, weights = model.embedding(ids) if embedded is None else embedded, []
    for layer, mixer in zip(model.layers, model.mixers, strict=True):
        query, key, value = layer.parts(x)
        weights.append(layer.weights(query, key))
        x = x + layer.output((weights[-1] @ value).transpose(1, 2).flatten(2))
        x = x + torch.tanh(mixer(x))
    if model.pooling is not None:
        weights.append(torch.softmax(model.pooling.query @ x[:, None].mT / math.sqrt(WIDTH), -1))
        x = model.pooling.output((weights[-1] @ x[:, None])[:, 0])
    read = x.mean(1) if model.readout == "mean" else x[:, -1 if model.readout == "last" else 0]
    return model.logits(read).softmax(-1)[:, label], weights


def queries_that_count(readout, layer, length):
    """The queries of a layer on which the output depends."""
    if layer == 2:  # the pooling
        return [0]
    if layer == 1 and readout in ("first", "last"):
        return [0] if readout == "first" else [length - 1]
    return range(length)


def expected(method, model, ids, label):
    """The importance of the tokens of one text, pair by pair."""
    number, weights = by_hand(model, ids, label)
    gradients = torch.autograd.grad(number.sum(), weights)
    length, importance = ids.shape[1], torch.zeros(ids.shape[1], dtype=torch.float64)
    pairs = [
        (each[0].mean(0).detach(), (each * gradient)[0].detach())
        for each, gradient in zip(weights, gradients, strict=True)
    ]
    if method == "gradient_weight":
        for _, product in pairs:
            for head in product:
                for row in head:
                    importance += row / len(product) / len(pairs)
        return importance
    if method == "weights":
        for layer, (mean, _) in enumerate(pairs):
            queries = queries_that_count(model.readout, layer, length)
            for query in queries:
                importance += mean[query] / len(queries) / len(pairs)
        return importance
    rows = torch.eye(length, dtype=torch.float64)
    for _, (mean, product) in zip(model.layers, pairs, strict=False):
        if method == "rollout":
            rows = (0.5 * torch.eye(length, dtype=torch.float64) + 0.5 * mean) @ rows
        else:
            rows = rows + product.clamp(min=0).mean(0) @ rows
    if model.pooling is not None:
        mean, product = pairs[-1]
        return (mean if method == "rollout" else product.clamp(min=0).mean(0))[0] @ rows
    chosen = list(queries_that_count(model.readout, 1, length))
    own = 0 if method == "rollout" else torch.eye(length, dtype=torch.float64)
    return (rows - own)[chosen].mean(0)


@pytest.mark.parametrize("method", ["weights", "gradient_weight", "relevance", "rollout"])
@pytest.mark.parametrize("readout", READOUTS)
@pytest.mark.parametrize("fused", [True, False])
def test_methods_of_attention_follow_their_equations(method, readout, fused):
    model, label = classifier(readout, fused), 3
    ids = torch.randint(VOCABULARY, (2, 7))
    got = importance(model, ids, label, method)
    alone = torch.stack([expected(method, model, ids[row : row + 1], label) for row in range(2)])
    # Rollout reads records, which have float32.
    torch.testing.assert_close(got, alone, rtol=1e-6, atol=1e-7 if method == "rollout" else 1e-12)
    assert model.training, "the mode is restored"


@pytest.mark.parametrize("readout", READOUTS)
def test_norms_are_those_of_transformed_values(readout):
    model, ids = classifier(readout), torch.randint(VOCABULARY, (1, 5))
    _, weights = by_hand(model, ids, 0)
    x, total = model.embedding(ids), torch.zeros(5, dtype=torch.float64)
    for number, (layer, mixer) in enumerate(zip(model.layers, model.mixers, strict=True)):
        value = layer.parts(x)[2][0]
        of_heads = layer.output.weight.unflatten(1, (HEADS, -1)).permute(1, 2, 0)
        norms = weights[number][0] * (value @ of_heads).norm(dim=-1)[:, None]
        total += norms.mean(0)[list(queries_that_count(readout, number, 5))].mean(0)
        x = x + layer.output((weights[number] @ layer.parts(x)[2]).transpose(1, 2).flatten(2))
        x = x + torch.tanh(mixer(x))
    if model.pooling is not None:
        total += weights[-1][0, 0, 0] * (x[0] @ model.pooling.output.weight.T).norm(dim=-1)
    torch.testing.assert_close(
        importance(model, ids, 0, "norms")[0], (total / len(weights)).detach(), rtol=1e-5, atol=1e-7
    )


def test_gradient_times_input_is_that_of_the_embeddings():
    model, ids = classifier("first"), torch.randint(VOCABULARY, (3, 6))
    embedded = model.embedding(ids).detach().requires_grad_()
    number, _ = by_hand(model, ids, 1, embedded)
    (gradient,) = torch.autograd.grad(number.sum(), embedded)
    got = importance(model, ids, lambda logits: logits.softmax(-1)[:, 1], "gradient_input")
    torch.testing.assert_close(got, (embedded * gradient).sum(-1).detach(), rtol=1e-10, atol=1e-14)


def test_integrated_gradients_are_complete():
    pytest.importorskip("captum")
    model, ids = classifier("mean"), torch.randint(VOCABULARY, (2, 6))
    got = importance(model, ids, 2, "integrated_gradients", steps=50, batch=7)
    embedded, total = model.embedding(ids).detach(), torch.zeros(2, 6, dtype=torch.float64)
    for step in range(2000):  # the midpoint rule
        point = (embedded * (step + 0.5) / 2000).requires_grad_()
        (gradient,) = torch.autograd.grad(by_hand(model, ids, 2, point)[0].sum(), point)
        total += (embedded * gradient).sum(-1) / 2000
    torch.testing.assert_close(got, total, rtol=1e-5, atol=1e-7)
    ends = by_hand(model, ids, 2)[0] - by_hand(model, ids, 2, torch.zeros_like(embedded))[0]
    torch.testing.assert_close(got.sum(1), ends.detach(), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("batch", [1, 3, 64])
def test_leave_one_out_runs_every_shorter_text(batch):
    model, ids = classifier("mean"), torch.randint(VOCABULARY, (2, 7))
    with torch.no_grad():
        labels = model(ids).argmax(-1)
        whole = model(ids).softmax(-1)[[0, 1], labels]
        for removal in ("delete", 4):
            got = importance(model, ids, None, "leave_one_out", removal=removal, batch=batch)
            for row in range(2):
                for place in range(7):
                    text = ids[row].tolist()
                    text[place : place + 1] = [] if removal == "delete" else [removal]
                    without = model(torch.tensor([text])).softmax(-1)[0, labels[row]]
                    assert got[row, place].item() == pytest.approx((whole[row] - without).item(), abs=1e-12)


class Padded(nn.Module):
    """A model that takes a mask, with a class token of its own."""

    def __init__(self):
        super().__init__()
        self.embedding, self.logits = nn.Embedding(VOCABULARY + 1, WIDTH), nn.Linear(WIDTH, LABELS)
        self.layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 20, batch_first=True)

    def forward(self, ids, mask):
        first = ids.new_full((len(ids), 1), VOCABULARY)
        seen = torch.cat((torch.ones_like(first, dtype=torch.bool), mask), 1)
        x = self.layer(self.embedding(torch.cat((first, ids), 1)), src_key_padding_mask=~seen)
        return self.logits(x[:, 0])


@pytest.mark.parametrize("method", sorted({*IMPORTANCE_METHODS} - {"flow"}))
def test_a_padded_row_is_the_text_alone(method):
    if method == "integrated_gradients":
        pytest.importorskip("captum")
    torch.manual_seed(0)
    model, ids, lengths = Padded().double().eval(), torch.randint(VOCABULARY, (3, 6)), [4, 6, 1]
    mask = torch.arange(6) < torch.tensor(lengths)[:, None]
    options = {"method": method, "forward": Padded.forward, "removal": "hide"}
    got = importance(model, ids, 1, mask=mask, **options)
    assert got.shape == (3, 6)
    for row, length in enumerate(lengths):
        alone = importance(model, ids[row : row + 1, :length], 1, mask=mask[row : row + 1, :length], **options)
        torch.testing.assert_close(got[row, :length], alone[0], rtol=1e-5, atol=1e-8)
        assert not got[row, length:].any()


def test_tokens_are_hidden_and_embedded_beside_a_class_token():
    torch.manual_seed(0)
    model, ids = Padded().double().eval(), torch.randint(VOCABULARY, (2, 5))
    mask = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    hidden = importance(model, ids, 1, "leave_one_out", mask=mask, forward=Padded.forward, removal="hide")
    embedded = model.embedding(torch.cat((torch.full((2, 1), VOCABULARY), ids), 1)).detach().requires_grad_()
    whole = torch.cat((torch.ones(2, 1, dtype=torch.bool), mask), 1)
    number = model.logits(model.layer(embedded, src_key_padding_mask=~whole)[:, 0]).softmax(-1)[:, 1]
    (gradient,) = torch.autograd.grad(number.sum(), embedded)
    got = importance(model, ids, 1, "gradient_input", mask=mask, forward=Padded.forward)
    torch.testing.assert_close(got, (embedded * gradient).sum(-1)[:, 1:].detach(), rtol=1e-9, atol=1e-12)
    for row, place in ((0, 0), (0, 4), (1, 2)):
        without = mask.clone()
        without[row, place] = False
        with torch.no_grad():
            lost = number[row] - model(ids, without).softmax(-1)[row, 1]
        assert hidden[row, place].item() == pytest.approx(lost.item(), abs=1e-12)


def test_padding_has_no_importance_even_if_the_model_reads_it():
    model, ids = classifier("mean"), torch.randint(VOCABULARY, (1, 5))
    mask = torch.tensor([[True, True, True, False, False]])
    got = importance(model, ids, 0, "gradient_input", mask=mask, forward=lambda model, ids, mask: model(ids))
    assert got[0, :3].all()
    assert not got[0, 3:].any()


def test_chosen_layers_heads_and_queries_alone_are_read():
    model, ids = classifier("mean"), torch.randint(VOCABULARY, (1, 5))
    _, weights = by_hand(model, ids, 0)
    got = importance(model, ids, 0, "weights", layers=1, heads=2, query=-2)
    torch.testing.assert_close(got[0], weights[1][0, 2, -2].detach())
    with pytest.raises(ArgumentError, match="query must be below 5"):
        importance(model, ids, 0, "weights", query=5)


class Constant(nn.Module):
    def forward(self, ids):
        return torch.zeros(len(ids), 2) * ids.sum()


def test_bad_arguments_of_importance_say_what_to_write(monkeypatch):
    model, ids = classifier("first"), torch.randint(VOCABULARY, (2, 5))
    with pytest.raises(UnknownNameError, match="gradient_weight"):
        importance(model, ids, method="gradient_weigth")
    with pytest.raises(KindError, match="model"):
        importance("model", ids)
    with pytest.raises(KindError, match="ids must hold integers"):
        importance(model, ids.float())
    with pytest.raises(ShapeError, match="ids must be"):
        importance(model, ids[0])
    with pytest.raises(ShapeError, match="mask must"):
        importance(model, ids, mask=torch.ones(2, 4))
    with pytest.raises(ArgumentError, match="forward must be given"):
        importance(model, ids, mask=torch.ones_like(ids))
    with pytest.raises(ShapeError, match=r"for each text, \[2\]"):
        importance(model, ids, lambda logits: logits)
    with pytest.raises(ArgumentError, match="finite"):
        importance(model, ids, lambda logits: logits[:, 0] / 0)
    with pytest.raises(ArgumentError, match="below 5"):
        importance(model, ids, 5)
    with pytest.raises(ShapeError, match="one for each of 2"):
        importance(model, ids, [0, 1, 2])
    with pytest.raises(KindError, match="metric must be"):
        importance(model, ids, -1)
    with pytest.raises(KindError, match="metric must be"):
        importance(model, ids, "positive")
    for removal in ("mask", -1, True, 1.0):
        with pytest.raises(ArgumentError, match="removal must be"):
            importance(model, ids, removal=removal)
    with pytest.raises(KindError, match="query must be"):
        importance(model, ids, 0, query=1.5)
    with pytest.raises(ArgumentError, match="removal must leave a token"):
        importance(model, ids[:, :1], method="leave_one_out")
    with pytest.raises(UnseenError, match="no module of the model embeds"):
        importance(Constant(), ids, method="gradient_input")
    monkeypatch.setitem(sys.modules, "captum", None)
    monkeypatch.setitem(sys.modules, "captum.attr", None)
    with pytest.raises(MissingPartError, match=r"regard\[attribution\]"):
        importance(model, ids, method="integrated_gradients")


def test_importance_leaves_no_gradients_and_no_hooks():
    model, ids = classifier("first"), torch.randint(VOCABULARY, (2, 5))
    with torch.no_grad():
        before = model(ids)
        for method in ("gradient_weight", "gradient_input", "leave_one_out"):
            assert not importance(model, ids, method=method).requires_grad
        assert torch.equal(model(ids), before)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(module._forward_hooks for module in model.modules())


def test_two_stacks_are_not_followed_as_one():
    """The encoder and the decoder of BART read equally many tokens, whose layers are not one above the other."""
    transformers = pytest.importorskip("transformers")
    sizes = {
        f"{part}_{name}": 2 for part in ("encoder", "decoder") for name in ("layers", "attention_heads", "ffn_dim")
    }
    config = transformers.BartConfig(vocab_size=VOCABULARY, d_model=8, **sizes, pad_token_id=0, eos_token_id=2)
    model, ids = transformers.BartForSequenceClassification(config), torch.tensor([[5, 6, 7, 2]])
    with pytest.raises(UnseenError, match="no stack of layers"):
        importance(model, ids, 1, "relevance")
    assert importance(model, ids, 1, "gradient_input").ne(0).any()


def test_one_token_has_all_of_the_weight():
    got = importance(classifier("first"), torch.tensor([[3]]), 0, "weights")
    assert got.tolist() == [[1.0]]


def test_a_class_token_of_the_model_is_no_token_of_the_text():
    torch.manual_seed(0)
    config = regard.models.TextClassifierConfig(
        VOCABULARY, labels=2, architecture="transformer", pooling="cls", hidden=8, layers=2
    )
    model, ids = regard.models.TextClassifier(config), torch.randint(VOCABULARY, (2, 5))

    def forward(model, ids):
        return model(ids, torch.full((len(ids),), ids.shape[1]))

    for method in ("weights", "gradient_weight", "relevance", "gradient_input", "leave_one_out"):
        got = importance(model, ids, 1, method, forward=forward)
        assert got.shape == (2, 5)
        assert got.ne(0).any()
