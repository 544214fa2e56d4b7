"""Layers from before Transformers, each against its paper's equations in plain loops, float64."""

import math

import pytest
import torch

import regard
from regard import nn, scores
from regard.errors import RegardError


def softmax(numbers):
    exponentials = [math.exp(number) for number in numbers]
    return [number / sum(exponentials) for number in exponentials]


def test_gaussian_windows_are_those_of_graves():
    torch.manual_seed(0)
    layer = nn.GaussianWindow(5, windows=3).double()
    states, memory = torch.randn(2, 4, 5, dtype=torch.float64), torch.randn(2, 7, 3, dtype=torch.float64)
    lengths = torch.tensor([7, 3])
    windowed = layer(states, layer.remember(memory, lengths))
    for b in range(2):
        position = [0.0] * 3
        for t in range(4):
            numbers = layer.projection(states[b, t]).tolist()
            amplitude, width = [math.exp(x) for x in numbers[:3]], [math.exp(x) for x in numbers[3:6]]
            position = [before + math.exp(step) for before, step in zip(position, numbers[6:], strict=True)]
            total = torch.zeros(3, dtype=torch.float64)
            for u in range(int(lengths[b])):
                phi = sum(a * math.exp(-w * (k - u) ** 2) for a, w, k in zip(amplitude, width, position, strict=True))
                assert windowed.weights[b, t, u].item() == pytest.approx(phi, rel=1e-12)
                total += phi * memory[b, u]
            torch.testing.assert_close(windowed.output[b, t], total)
            assert not windowed.weights[b, t, int(lengths[b]) :].any()
    first = layer(states[:, :1], layer.remember(memory, lengths))
    rest = layer(states[:, 1:], layer.remember(memory, lengths), position=first.position)
    torch.testing.assert_close(rest.output, windowed.output[:, 1:])
    torch.testing.assert_close(rest.position, windowed.position)
    assert torch.equal(layer(states[:, :0], memory, position=first.position).position, first.position)


def test_windows_learn_to_go_over_a_text():
    """A recurrent state that only counts steps learns to read one character after another, as in handwriting."""
    torch.manual_seed(0)
    layer = nn.GaussianWindow(2, windows=2, step=0.3)
    states, text = torch.ones(1, 5, 2), torch.eye(6)[None]
    optimizer = torch.optim.Adam(layer.parameters(), 0.05)
    for _ in range(60):
        optimizer.zero_grad()
        (layer(states, text).output - text[:, 1:]).square().sum().backward()
        optimizer.step()
    assert layer(states, text).weights.argmax(-1).tolist() == [[1, 2, 3, 4, 5]]


@pytest.mark.parametrize("lengths", [None, ([6, 4], [3, 2]), ([5, 0], [0, 3])], ids=["full", "padded", "empty"])
def test_co_attention_is_that_of_bidaf(lengths):
    torch.manual_seed(1)
    layer = nn.CoAttention(5).double()
    context, query = torch.randn(2, 6, 5, dtype=torch.float64), torch.randn(2, 3, 5, dtype=torch.float64)
    sizes = ([6, 6], [3, 3]) if lengths is None else lengths
    bad = context.clone(), query.clone()
    for tensor, ends in zip(bad, sizes, strict=True):
        for row, end in enumerate(ends):
            tensor[row, end:] = torch.nan
    inputs = [tensor.requires_grad_() for tensor in bad]
    tensors = [None, None] if lengths is None else [torch.tensor(each) for each in lengths]
    attended = layer(*inputs, *tensors, need_weights=True)
    assert torch.equal(layer(*inputs, *tensors).output, attended.output)
    weight = layer.score.weight
    expected = torch.zeros(2, 6, 20, dtype=torch.float64)
    for b in range(2):
        T, J = sizes[0][b], sizes[1][b]
        S = [[weight @ torch.cat([h, u, h * u]) for u in query[b, :J]] for h in context[b, :T]]
        b_t = softmax([max(row).item() for row in S]) if T and J else [0.0] * T
        h_tilde = sum((w * h for w, h in zip(b_t, context[b], strict=False)), torch.zeros(5).double())
        for t in range(T):
            a = softmax([s.item() for s in S[t]])
            u_tilde = sum((w * u for w, u in zip(a, query[b], strict=False)), torch.zeros(5).double())
            h = context[b, t]
            expected[b, t] = torch.cat([h, u_tilde, h * u_tilde, h * h_tilde])
            assert attended.context_to_query[b, t, :J].tolist() == pytest.approx(a)
        assert attended.query_to_context[b, :T].tolist() == pytest.approx(b_t)
    torch.testing.assert_close(attended.output, expected)
    attended.output.square().sum().backward()
    for tensor, ends in zip(inputs, sizes, strict=True):
        assert tensor.grad.isfinite().all()
        assert all(not tensor.grad[row, end:].any() for row, end in enumerate(ends))


def test_finite_padding_of_co_attention_is_no_other_than_nan():
    torch.manual_seed(1)
    layer, lengths = nn.CoAttention(5), (torch.tensor([6, 4]), torch.tensor([3, 2]))
    context, query = torch.randn(2, 6, 5), torch.randn(2, 3, 5)
    output = layer(context, query, *lengths).output
    assert not output[1, 4:].any()
    context[1, 4:], query[1, 2:] = torch.nan, torch.nan
    assert torch.equal(layer(context, query, *lengths).output, output)


def test_the_trilinear_score_runs_as_an_inner_product():
    query, key = torch.randn(1, 1, 64, 8), torch.randn(1, 1, 64, 8)
    score = scores.Trilinear.create(8)
    reference = regard.attend(query, key, key, score=score, backend="reference")
    torch.testing.assert_close(regard.attend(query, key, key, score=score, backend="sdpa"), reference)


def test_a_key_value_memory_hops_as_in_the_paper():
    torch.manual_seed(2)
    layer = nn.KeyValueMemoryNetwork(4, hops=3).double()
    query = torch.randn(2, 4, dtype=torch.float64)
    key, value = torch.randn(2, 2, 5, 4, dtype=torch.float64)
    key[1, 2:], value[1, 2:] = torch.nan, torch.nan
    read = layer(query, key, value, torch.tensor([5, 2]), need_weights=True)
    for b, end in enumerate([5, 2]):
        q = query[b]
        for hop in range(3):
            p = softmax([(q @ k).item() for k in key[b, :end]])
            assert read.weights[b, hop].tolist() == pytest.approx(p + [0.0] * (5 - end))
            o = sum(w * v for w, v in zip(p, value[b], strict=False))
            q = layer.hops[hop].weight @ (q + o)
        torch.testing.assert_close(read.output[b], q)
    empty = layer(query, key[:, :0], value[:, :0]).output
    torch.testing.assert_close(empty, layer.hops[2](layer.hops[1](layer.hops[0](query))))


def test_hops_answer_what_one_fact_alone_does_not():
    """Key: a person or a place; value: the place or what is there. "What is where Mary is?" takes two hops."""
    torch.manual_seed(0)
    tables = torch.nn.Embedding(15, 16), nn.KeyValueMemoryNetwork(16, hops=2)
    optimizer = torch.optim.Adam([parameter for part in tables for parameter in part.parameters()], 0.03)

    def stories(batch):
        people, places, things = (torch.rand(batch, 5).argsort(1)[:, :3] + 5 * n for n in range(3))
        order = torch.rand(batch, 3).argsort(1)
        keys = torch.cat([people, places.gather(1, order)], 1)
        values = torch.cat([places, things.gather(1, order)], 1)
        return people[:, 0], keys, values, things[:, 0]

    def accuracy_and_loss(batch):
        asked, keys, values, answer = stories(batch)
        embed, memory = tables
        logits = memory(embed(asked), embed(keys), embed(values)).output @ embed.weight.T
        return (logits.argmax(-1) == answer).float().mean(), torch.nn.functional.cross_entropy(logits, answer)

    for _ in range(80):
        optimizer.zero_grad()
        accuracy_and_loss(64)[1].backward()
        optimizer.step()
    assert accuracy_and_loss(200)[0] > 0.95


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: nn.GaussianWindow(4)(torch.zeros(2, 4), torch.zeros(2, 5, 3)), r"query must be \[batch, steps, 4\]"),
        (lambda: nn.CoAttention(4)(torch.zeros(2, 5, 4), torch.zeros(3, 5, 4)), "query must be .*batch as context"),
        (
            lambda: scores.GaussianMixture()(torch.zeros(1, 1, 2, 4), torch.zeros(1, 1, 2, 4)),
            "3 numbers for each window",
        ),
        (lambda: scores.Trilinear(torch.zeros(8)), "which 3 does not divide"),
        (lambda: nn.GaussianWindow(4)(torch.zeros(1, 2, 4), torch.zeros(1, 5, 3), position=[1]), "position must be a"),
        (lambda: nn.SlotAttention(8)(torch.zeros(2, 5, 8), slots=3), "slots must be a tensor; it is an int"),
        (
            lambda: nn.KeyValueMemoryNetwork(4)(torch.zeros(2, 4), torch.zeros(2, 5, 4), torch.zeros(2, 5, 3)),
            r"value must be \[batch, memories, 4\]",
        ),
        (
            lambda: nn.KeyValueMemoryNetwork(4)(torch.zeros(2, 3), torch.zeros(2, 5, 3), torch.zeros(2, 5, 4)),
            r"query must be \[batch, 4\]",
        ),
        (lambda: scores.Trilinear.create(4)(torch.zeros(1, 1, 2, 3), torch.zeros(1, 1, 2, 4)), "a third of weight"),
    ],
)
def test_classic_layers_refuse_wrong_shapes(call, message):
    with pytest.raises(RegardError, match=message):
        call()
