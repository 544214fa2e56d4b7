"""Norms and contributions of modules that are more than their weights: the module is asked, or refused by its name.

Each kind is made by hand here, since it may come from any library; the libraries themselves follow where they are
installed.
"""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

import regard
from regard.errors import ArgumentError
from regard.watching import logit_contributions, value_logits
from watching.models import HAND_WRITTEN, Heads, watched

WEIGHTS = regard.Readings(weights=True)


class Adapted(nn.Module):
    """A linear layer with a part of low rank, as LoRA has it; its own ``weight`` is not what it computes with."""

    def __init__(self, layer, dropout=0.0):
        super().__init__()
        self.base, self.rate = layer, dropout
        self.down, self.up = nn.Linear(layer.in_features, 3, bias=False), nn.Linear(3, layer.out_features, bias=False)

    @property
    def weight(self):
        return self.base.weight

    def forward(self, x):
        return self.base(x) + self.up(self.down(F.dropout(x, self.rate, self.training)))


class Wrapped(nn.Module):
    """A part of any kind around a linear layer."""

    def __init__(self, layer, function):
        super().__init__()
        self.layer, self.function = layer, function

    def forward(self, x):
        return self.function(self.layer, x)


class MultipliesByItsWeight(nn.Module):
    """``x @ weight``: what Conv1D of transformers does, under another name."""

    def __init__(self, layer):
        super().__init__()
        self.weight, self.bias = nn.Parameter(layer.weight.detach().t().clone()), nn.Parameter(layer.bias.detach())

    def forward(self, x):
        return torch.addmm(self.bias, x.flatten(0, -2), self.weight).view(*x.shape[:-1], -1)


class Quantized(torch.Tensor):
    """Whole numbers of 8 bits, and a scale for each row, which a product reads as one matrix."""

    @staticmethod
    def __new__(cls, weight):
        return torch.Tensor._make_wrapper_subclass(cls, weight.shape, dtype=weight.dtype)

    def __init__(self, weight):
        self.rows = weight.detach().abs().amax(1, keepdim=True) / 127
        self.whole = (weight.detach() / self.rows).round().to(torch.int8)

    def __repr__(self):
        return f"Quantized({tuple(self.shape)})"

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is F.linear:
            weight = args[1].whole * args[1].rows
            return F.linear(args[0], weight, *args[2:], **(kwargs or {}))
        return super().__torch_function__(func, types, args, kwargs or {})

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.detach.default:
            return args[0]
        raise NotImplementedError(f"{func} of quantized weights")


def offloaded(layer):
    """A layer whose weights are on the meta device but while it runs, as hooks of accelerate move them."""
    kept = {name: parameter.data for name, parameter in layer.named_parameters()}

    def put(tensors):
        for name in kept:
            setattr(layer, name, nn.Parameter(tensors[name], requires_grad=False))

    away = {name: tensor.to("meta") for name, tensor in kept.items()}
    layer.register_forward_pre_hook(lambda module, args: put(kept))
    layer.register_forward_hook(lambda module, args, output: put(away))
    put(away)
    return layer


def hooked(layer, change):
    layer.register_forward_hook(lambda module, args, output: change(output))
    return layer


def quantized(layer):
    layer.weight = nn.Parameter(Quantized(layer.weight), requires_grad=False)
    return layer


def steered(output):
    changed = output.clone()
    changed[:, -1] += 1.0
    return changed


def scaled_at_the_end(output):
    changed = output.clone()
    changed[:, -1] *= 3.0
    return changed


LINEAR = {
    "plain": lambda layer: layer,
    "adapted": Adapted,
    "adapted twice": lambda layer: Adapted(nn.Linear(10, 10)),
    "conv1d": MultipliesByItsWeight,
    "weight norm": lambda layer: parametrizations.weight_norm(layer),
    "spectral norm": lambda layer: parametrizations.spectral_norm(layer).eval(),
    "parts in a row": lambda layer: nn.Sequential(layer, nn.Dropout(0.3), nn.Linear(10, 10)),
    "offloaded": offloaded,
    "quantized weight": quantized,
    "hook that scales": lambda layer: hooked(layer, lambda output: output * 2),
    "hook that adds": lambda layer: hooked(layer, steered),
    "feature by feature": lambda layer: Wrapped(layer, lambda layer, x: layer(x) * torch.linspace(1, 2, 10)),
}
"""Output projections that are linear, whatever their weights say."""

OTHERS = {
    "bottleneck": lambda layer: Wrapped(layer, lambda layer, x: layer(x) + F.relu(layer(x))),
    "rounded input": lambda layer: Wrapped(layer, lambda layer, x: layer((x * 8).round() / 8)),
    "hook that bends": lambda layer: hooked(layer, torch.tanh),
    "hook at one position": lambda layer: hooked(layer, scaled_at_the_end),
    "normalization first": lambda layer: nn.Sequential(nn.LayerNorm(10), layer),
}
"""Output projections that are not."""


class Reader(nn.Module):
    """Attention whose projection goes to an output layer over a residual connection."""

    def __init__(self, change=lambda layer: layer, function="sdpa"):
        super().__init__()
        torch.manual_seed(5)
        self.attention, self.head = Heads(HAND_WRITTEN[function][0]), nn.Linear(10, 13)
        self.attention.out_proj = change(self.attention.out_proj)

    def forward(self, x):
        return self.head(x + self.attention(x))


def by_parts(model, x):
    """What each head adds to the logits, and the norm of each projected value: the projection of each part alone."""
    attention, (batch, length, _) = model.attention, x.shape
    query, key, value = attention.heads(x)
    heads = (query @ key.transpose(-1, -2) * 5**-0.5).softmax(-1) @ value

    def moved(parts):
        """What the projection makes of each head's part, in its place beside zeros: ``[batch, heads, length, 10]``."""
        alone = torch.zeros(2, batch, length, 2, 5)
        for head in range(2):
            alone[head, :, :, head] = parts[:, head]
        zero = attention.out_proj(torch.zeros(batch, length, 10))
        return torch.stack([attention.out_proj(part.flatten(2)) - zero for part in alone], 1)

    return moved(heads) @ model.head.weight.T, moved(value).norm(dim=-1)


@pytest.mark.parametrize("name", LINEAR)
def test_a_linear_projection_is_asked(name):
    model, x = Reader(LINEAR[name]).eval(), torch.randn(3, 7, 10)
    with torch.no_grad():
        expected, norms = by_parts(model, x)
        with regard.watch(model, read=WEIGHTS, norms=True, outputs=True) as seen:
            model(x)
    (call,) = seen.calls
    torch.testing.assert_close(call.value_norms, norms, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(logit_contributions(model, call, range(13)), expected, rtol=1e-4, atol=1e-5)
    of_values = call.weights * value_logits(model, call, 4)
    torch.testing.assert_close(of_values.sum(-1), expected[..., 4], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", OTHERS)
def test_projections_that_are_not_linear_are_refused_by_name(name):
    model, x = Reader(OTHERS[name]).eval(), torch.randn(3, 7, 10)
    with torch.no_grad():
        output = model(x)
        refusal = pytest.raises(ArgumentError, match=r"norms=True is not possible .*'attention\.out_proj")
        with refusal, regard.watch(model, norms=True, outputs=True) as seen:
            again = model(x)
        assert torch.equal(output, again)
        with pytest.raises(ArgumentError, match=r"'attention\.out_proj|no output projection"):
            logit_contributions(model, seen.calls[0], [1])


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize(
    "name", ["adapted", "weight norm", "conv1d", "offloaded", "quantized weight", "hook that adds"]
)
def test_asking_changes_nothing(name, train):
    """Output, gradients, random numbers and modes are those of a run that nobody watches."""
    change = (lambda layer: Adapted(layer, 0.4)) if name == "adapted" else LINEAR[name]
    model, x = Reader(change), torch.randn(3, 7, 10)
    seen = watched(model, lambda model: model(x), train, grad=True, norms=True, outputs=True)
    assert all(module.training is train for module in model.modules())
    assert not seen.calls[0].value_norms.requires_grad
    assert len(model.attention.out_proj._forward_hooks) == len(Reader(change).attention.out_proj._forward_hooks)


def test_dropout_of_an_adapter_is_left_out():
    model, x = Reader(lambda layer: Adapted(layer, 0.5)), torch.randn(3, 7, 10)
    with torch.no_grad():
        with regard.watch(model, norms=True, outputs=True) as seen:
            model.train()(x)
        expected, norms = by_parts(model.eval(), x)
    torch.testing.assert_close(seen.calls[0].value_norms, norms)
    torch.testing.assert_close(logit_contributions(model, seen.calls[0], range(13)), expected)


def test_weights_that_change_afterwards_are_refused():
    model, x = Reader(Adapted), torch.randn(3, 7, 10)
    with torch.no_grad(), regard.watch(model, outputs=True) as seen:
        model(x)
    logit_contributions(model, seen.calls[0], [1])
    nn.init.ones_(model.attention.out_proj.up.weight)
    with pytest.raises(ArgumentError, match=r"'attention\.out_proj' \(Adapted\).* its weights have changed since"):
        logit_contributions(model, seen.calls[0], [1])


def test_the_watcher_sees_no_call_of_its_own():
    """Another context, and the function mode, see the model's calls alone."""
    model, x = Reader(Adapted).eval(), torch.randn(3, 7, 10)
    ran = []
    model.attention.project.register_forward_hook(lambda *_: ran.append("project"))
    with torch.no_grad(), regard.watch(model, outputs=True, norms=True) as one, regard.watch(model) as other:
        model(x)
    assert ran == ["project"]
    assert len(one.calls) == len(other.calls) == 1
    assert torch._C._len_torch_function_stack() == 0


@pytest.mark.parametrize("function", sorted(set(HAND_WRITTEN) - {"regard-random"}))
def test_every_way_of_attending_finds_its_projection(function):
    model, x = Reader(Adapted, function).eval(), torch.randn(3, 7, 10)
    with torch.no_grad(), regard.watch(model, outputs=True, norms=True) as seen:
        output = model(x)
        (call,) = seen.calls
        rest = model.head(x + model.attention.out_proj(torch.zeros(10)))
    assert call.value_norms.shape == (3, 2, 7)
    if "dropout" not in function and function not in ("softmax", "regard"):  # these drop weights
        torch.testing.assert_close(logit_contributions(model, call, range(13)).sum(1) + rest, output)


class InOneTensor(nn.Module):
    """Heads that a product without a module of its own projects."""

    def __init__(self, gate):
        super().__init__()
        self.inside, self.weight, self.gate = Heads(HAND_WRITTEN["sdpa"][0]), nn.Parameter(torch.randn(10, 10)), gate

    def forward(self, x):
        heads = F.scaled_dot_product_attention(*self.inside.heads(x)).transpose(1, 2).flatten(2)
        return (heads * torch.sigmoid(x) if self.gate else heads) @ self.weight


def test_a_product_without_a_module():
    model, x = InOneTensor(gate=False), torch.randn(2, 5, 10)
    with torch.no_grad(), regard.watch(model, outputs=True, norms=True) as seen:
        output = model(x)
    eye = torch.eye(10)
    torch.testing.assert_close(logit_contributions(model, seen.calls[0], range(10), unembedding=eye).sum(1), output)


def test_heads_that_are_gated_before_their_projection_are_refused():
    """‖weight · value · W_O‖ is not what a gated head moves."""
    model, x = InOneTensor(gate=True), torch.randn(2, 5, 10)
    with pytest.raises(ArgumentError, match="no output projection was found"), regard.watch(model, norms=True) as seen:
        model(x)
    with pytest.raises(ArgumentError, match="norms=True"):
        seen.calls[0].weighted_norms()


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("train", [False, True])
def test_the_projection_of_torch_is_that_of_the_call(need_weights, train, batch_first):
    """nn.MultiheadAttention passes its weights to a function: those of the call count, not those that it has later."""
    layer = nn.MultiheadAttention(12, 3, batch_first=batch_first).train(train)
    nn.init.normal_(layer.out_proj.bias)
    x = torch.randn(2, 5, 12)
    with torch.no_grad(), regard.watch(layer, outputs=True, norms=True) as seen:
        output, _ = layer(x, x, x, need_weights=need_weights)
    (call,) = seen.calls
    eye, bias = torch.eye(12), layer.out_proj.bias.detach()
    found = logit_contributions(layer, call, range(12), unembedding=eye).sum(1) + bias
    torch.testing.assert_close(found if batch_first else found.transpose(0, 1), output)
    norms = call.value_norms
    layer.out_proj.weight = nn.Parameter(torch.zeros(12, 12))
    again = logit_contributions(layer, call, range(12), unembedding=eye)
    torch.testing.assert_close(again.sum(1) + bias, found)
    assert bool((norms > 0).all())


def merged_while_it_runs(attention):
    """An adapter that adds its part to the weight in place, and takes it away after the call."""
    weight, part = attention.out_proj.weight, 0.5 * torch.randn(12, 12)

    def add(sign):
        weight.data.add_(sign * part)

    attention.register_forward_pre_hook(lambda *_: add(1))
    attention.register_forward_hook(lambda *_: add(-1))


CHANGES_OF_TORCH = {
    "parametrized": lambda attention: parametrizations.weight_norm(attention.out_proj),
    "weight norm by a hook, which is stale": lambda attention: nn.utils.weight_norm(attention.out_proj),
    "hook that no call reaches": lambda attention: hooked(attention.out_proj, torch.tanh),
    "adapter that no call reaches": lambda attention: setattr(attention, "out_proj", Adapted(attention.out_proj)),
    "input projection": lambda attention: torch.nn.utils.parametrize.register_parametrization(
        attention, "in_proj_weight", nn.Dropout(0.0)
    ),
    "merged while it runs": merged_while_it_runs,
}
"""Changes of a `nn.MultiheadAttention`, which reads the weights of its output projection and does not call it."""


@pytest.mark.filterwarnings("ignore:.*weight_norm")
@pytest.mark.parametrize("name", CHANGES_OF_TORCH)
def test_changed_projections_of_torch_are_those_that_ran(name):
    torch.manual_seed(2)
    layer = nn.MultiheadAttention(12, 3, batch_first=True).eval()
    CHANGES_OF_TORCH[name](layer)
    if name.startswith("weight norm"):
        layer.out_proj.weight_g.data.mul_(2)
    if name.startswith("adapter"):
        layer.out_proj.bias = layer.out_proj.base.bias
    x = torch.randn(2, 5, 12)
    with torch.no_grad(), regard.watch(layer, outputs=True, norms=True) as seen:
        output, _ = layer(x, x, x)
    (call,) = seen.calls
    # One token alone has all weight: its output is the sum of its values as the layer projects them.
    with torch.no_grad():
        single, _ = layer(x[:, :1], x[:, :1], x[:, :1])
        with regard.watch(layer, norms=True, outputs=True) as alone:
            layer(x[:, :1], x[:, :1], x[:, :1])
    bias = layer.out_proj.bias.detach()
    eye = torch.eye(12)
    if name == "merged while it runs":
        with pytest.raises(ArgumentError, match="its weights have changed since"):
            logit_contributions(layer, call, range(12), unembedding=eye)
        return
    found = logit_contributions(layer, call, range(12), unembedding=eye).sum(1)
    torch.testing.assert_close(found + bias, output)
    parts = logit_contributions(layer, alone.calls[0], range(12), unembedding=eye)
    torch.testing.assert_close(parts.sum(1) + bias, single)
    torch.testing.assert_close(parts.norm(dim=-1), alone.calls[0].value_norms)


class OnDemand(nn.Linear):
    """A layer whose weights are elsewhere, on the meta device here, until it runs."""

    def __init__(self, layer):
        super().__init__(layer.in_features, layer.out_features, bias=False, device="meta")
        self.kept = [layer.weight.data, layer.bias.data]

    def forward(self, x):
        return F.linear(x, *self.kept)


class Texts(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.head, self.table, self.attention = layer, nn.Embedding(20, 10), Heads(HAND_WRITTEN["sdpa"][0])

    def forward(self, ids):
        return self.head(self.attention(self.table(ids)))


def test_a_survey_of_offloaded_weights(tmp_path):
    """Inputs go where there are elements; without elements, a state cannot tell its model from another one."""
    layer = nn.Linear(10, 4)
    plain = Texts(layer)
    away = Texts(OnDemand(layer))
    away.table, away.attention = plain.table, plain.attention
    found, expected = (regard.survey(model, [[2, 5, 6, 7], [3, 9]]) for model in (away, plain))
    assert [head.values for head in found.heads] == [head.values for head in expected.heads]
    with pytest.raises(ArgumentError, match=r"state tells models apart .* 'head\.weight'"):
        regard.survey(away, [[2, 5, 6, 7]], state=tmp_path / "state")
