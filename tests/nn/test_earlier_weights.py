"""Attention whose steps see the steps before: forward attention by its equations; laws of all of them."""

import pytest
import torch

import regard
from regard import nn
from regard.errors import ArgumentError, KindError, ShapeError

B, K, QUERY, KEY, STEPS = 3, 7, 2, 5, 4
LENGTHS = torch.tensor([K, 4, 1])


def layers():
    create = nn.Attention.create
    filters = {"channels": 2, "kernel_size": 3}
    return {
        "location_aware": lambda: create("location_aware", QUERY, KEY, **filters),
        "coverage": lambda: create("coverage", QUERY, KEY),
        "dynamic_convolution": lambda: create("dynamic_convolution", QUERY, KEY, 3, **filters),
        "monotonic": lambda: create("additive", QUERY, KEY, normalizer="monotonic"),
        "stepwise": lambda: create("additive", QUERY, KEY, normalizer="stepwise"),
        "forward": lambda: create("coverage", QUERY, KEY, normalizer="forward"),
        "forward, agent": lambda: nn.ForwardAttention.create("location_aware", QUERY, KEY, **filters),
    }


def make(name, dtype=torch.float64):
    torch.manual_seed(7)
    layer = layers()[name]().eval().to(dtype)
    return layer, torch.randn(B, STEPS, QUERY, dtype=dtype), torch.randn(B, K, KEY, dtype=dtype)


def run(layer, queries, annotations, lengths=None, mask=None, index=None):
    """The contexts and the weights of all steps; ``index`` reorders the rows behind the second step."""
    memory, earlier, attended = layer.remember(annotations, lengths, mask=mask), None, []
    for step, query in enumerate(queries.unbind(1)):
        attended.append(layer(query, memory, earlier=earlier))
        earlier = layer.following(query, memory, attended[-1], earlier)
        if index is not None and step == 1:
            earlier, memory = earlier.select(index), memory.select(index)
    return torch.stack([one.output for one in attended], 1), torch.stack([one.weights for one in attended], 1)


def test_forward_attention_is_the_algorithm_with_an_agent():
    """Zhang et al. 2018: α̂_t(n) ∝ ((1 − u) α̂(n) + u α̂(n − 1)) y_t(n), u_t = σ(agent([c_t; q_t])), u_0 = 1/2."""
    layer, queries, annotations = make("forward, agent")
    contexts, weights = run(layer, queries, annotations, LENGTHS)
    for b, length in enumerate(LENGTHS.tolist()):
        alignment, transition = torch.eye(1, length).double()[0], 0.5
        for step in range(STEPS):
            score = layer.score.given(alignment[None])
            y = score(queries[b, step].view(1, 1, 1, -1), annotations[b, :length].view(1, 1, length, -1)).softmax(-1)
            moved = torch.cat([torch.zeros(1).double(), alignment[:-1]])
            paths = ((1 - transition) * alignment + transition * moved) * y[0, 0, 0]
            alignment = paths / paths.sum()
            context = alignment @ annotations[b, :length]
            agent = layer.transition_agent
            logit = agent.weight[0] @ torch.cat([context, queries[b, step]]) + agent.bias[0]
            transition = 1 / (1 + torch.exp(-logit))
            torch.testing.assert_close(weights[b, step, :length], alignment)
            torch.testing.assert_close(contexts[b, step], context)
        assert not weights[b, :, length:].any()


@pytest.mark.parametrize("name", layers())
def test_steps_of_padded_rows_are_those_of_single_rows(name):
    layer, queries, annotations = make(name)
    contexts, weights = run(layer, queries, annotations, LENGTHS)
    annotations[torch.arange(K) >= LENGTHS[:, None]] = torch.nan
    again = run(layer, queries, annotations, LENGTHS)
    assert torch.equal(contexts, again[0])
    assert torch.equal(weights, again[1])
    for b, length in enumerate(LENGTHS.tolist()):
        context, own = run(layer, queries[b : b + 1], annotations[b : b + 1, :length])
        torch.testing.assert_close(context[0], contexts[b])
        torch.testing.assert_close(own[0], weights[b, :, :length])
        assert not weights[b, :, length:].any()
    order = torch.tensor([2, 0, 1])
    reordered = torch.cat([queries[:, :2], queries[order, 2:]], 1)
    selected = run(layer, reordered, annotations, LENGTHS, index=order)[1][:, 2:]
    torch.testing.assert_close(selected, weights[order, 2:])
    context, _ = run(layer, queries, annotations.nan_to_num(), mask=torch.zeros(B, K).bool())
    assert not context.any()


@pytest.mark.parametrize("name", ["coverage", "dynamic_convolution", "stepwise", "forward, agent"])
def test_gradients_of_steps_reach_the_first_query_and_every_parameter(name):
    layer, queries, annotations = make(name)
    queries, annotations = queries[:2, :3].requires_grad_(), annotations[:2, :3].requires_grad_()
    lengths, inputs = torch.tensor([3, 2]), (queries, annotations)
    assert torch.autograd.gradcheck(lambda *inputs: run(layer, *inputs, lengths)[0], inputs, fast_mode=True)
    contexts, _ = run(layer, queries, annotations, lengths)
    (gradient,) = torch.autograd.grad(contexts[0, 2].square().sum(), queries, retain_graph=True)
    assert gradient[0, 0].any()
    assert not gradient[1].any()
    contexts.square().sum().backward()
    assert all(part.grad is not None and part.grad.any() for part in layer.parameters())


@pytest.mark.parametrize("name", layers())
def test_half_precision_steps_are_computed_in_float32(name):
    layer, queries, annotations = make(name, torch.float32)
    queries, annotations = queries.half().float(), annotations.half().float()
    expected, weights = run(layer, queries, annotations, LENGTHS)
    contexts, own = run(layer, queries.half(), annotations.half(), LENGTHS)
    assert contexts.dtype == torch.half
    torch.testing.assert_close(own, weights, rtol=2e-3, atol=1e-4)
    torch.testing.assert_close(contexts.float(), expected, rtol=5e-3, atol=2e-3)


@pytest.mark.parametrize("name", layers())
def test_watched_steps_show_the_weights_that_each_step_used(name):
    layer, queries, annotations = make(name)
    model = torch.nn.ModuleDict({"attention": layer})
    with regard.watch(model, read=regard.Readings(weights=True)) as seen:
        _, weights = run(model["attention"], queries, annotations, LENGTHS)
    assert len(seen.calls) == STEPS
    for step, call in enumerate(seen.calls):
        torch.testing.assert_close(call.weights.squeeze().to(weights.dtype), weights[:, step], rtol=1e-5, atol=1e-6)


def test_attention_without_memory_refuses_earlier_weights():
    layer = nn.Attention("dot")
    assert not layer.sees_earlier
    with pytest.raises(ArgumentError, match="this attention has Dot and Softmax"):
        layer(torch.zeros(1, 2), torch.zeros(1, 3, 2), earlier=nn.EarlierWeights(torch.zeros(1, 3)))
    with pytest.raises(KindError, match="transition_agent must be a torch"):
        nn.ForwardAttention("dot", "agent")


@pytest.mark.parametrize("name", layers())
def test_weights_of_other_keys_or_batch_rows_are_refused(name):
    layer, queries, annotations = make(name)
    memory, whole = layer.remember(annotations), torch.full((B, K), 1 / K).double()
    parts = {"previous": whole, "total": whole, "transition": torch.full((B,), 0.5).double()}
    layer(queries[:, 0], memory, earlier=nn.EarlierWeights(**parts))
    for field, wrong in (
        ("previous", whole[:1]),
        ("total", whole[:, :1]),
        ("previous", whole[0]),
        ("transition", whole),
    ):
        with pytest.raises(
            ShapeError, match=rf"earlier\.{field} must be \[batch.* of the memory, \[3.*\]; it has shape"
        ):
            layer(queries[:, 0], memory, earlier=nn.EarlierWeights(**parts | {field: wrong}))


@pytest.mark.parametrize("name", layers())
def test_bare_weights_of_the_step_before_are_refused_with_the_line(name):
    layer, queries, annotations = make(name)
    memory = layer.remember(annotations)
    with pytest.raises(KindError, match=r"earlier must be an EarlierWeights or None; .* earlier=nn\.EarlierWeights"):
        layer(queries[:, 0], memory, earlier=torch.zeros(B, K))
    with pytest.raises(KindError, match=r"write earlier=nn\.EarlierWeights\(previous_weights\)"):
        layer(queries[:, 0], memory, previous_weights=torch.zeros(B, K))
