"""A tensor that is changed in place after the forward pass: the backward pass gives the gradient at the old numbers, or
raises one clear error, for every tensor of a call on every backend."""

import pytest
import torch

import regard
from cases import D, H, K, Q, problem
from regard import masks, nn, normalizers, scores
from regard.errors import BackendError
from regard.nn.recomputation import recomputed

BACKENDS = ("reference", "tiled", "sdpa", "cpu")


def number(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64)


def dense(*shape):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(3)) < 0.7


class Table:
    """What a function reads through an object."""

    def __init__(self, tensor):
        self.tensor = tensor

    def rows(self, head):
        return self.tensor[head]

    def modify(self, score, batch, head, query, key):
        return score * self.rows(head)


def by_global(table):
    global TABLE
    TABLE = table
    return lambda score, batch, head, query, key: score * TABLE[head]


def by_closure(table):
    def inner(head):
        return table["heads"][head]

    return lambda score, batch, head, query, key: score + inner(head)


# Each of a tensor: what holds it, as arguments of `attend`.
HOLDERS = {
    "keep": (lambda: dense(Q, K), lambda t: {"mask": masks.keep(t)}),
    "keep_heads": (lambda: dense(2, H, Q, K), lambda t: {"mask": masks.keep(t)}),
    "keep_keys": (lambda: dense(2, 1, 1, K), lambda t: {"mask": masks.keep(t)}),
    "ignore": (lambda: dense(Q, K), lambda t: {"mask": ~(masks.causal() & ~masks.ignore(t))}),
    "plain_mask": (lambda: dense(Q, K), lambda t: {"mask": t}),
    "where": (lambda: dense(Q, K), lambda t: {"mask": masks.where(lambda b, h, q, k: t[q, k])}),
    "where_bias": (
        lambda: dense(Q, K),
        lambda t: {"mask": masks.where(lambda b, h, q, k: t[q, k]), "bias": number(Q, K)},
    ),
    "lengths": (lambda: torch.tensor([5, 3]), lambda t: {"mask": masks.lengths(t)}),
    "documents": (lambda: torch.tensor([0, 1, 0, 1, 2, 1, 0]), lambda t: {"mask": masks.documents(t[:Q], t)}),
    "offset": (lambda: torch.tensor([0, 2]), lambda t: {"mask": masks.causal(offset=t)}),
    "bias": (lambda: number(H, Q, K), lambda t: {"bias": t}),
    "bias_sum": (lambda: number(H, Q, K), lambda t: {"bias": regard.positions.alibi(H) + t}),
    "bias_grouped": (lambda: number(1, 1, 1, K), lambda t: {"bias": t, "mask": masks.causal()}),
    "scale_weights": (lambda: number(D), lambda t: {"score": scores.Additive(t)}),
    "general": (lambda: number(D, D), lambda t: {"score": scores.General(t)}),
    "location": (lambda: number(K, D), lambda t: {"score": scores.Location(t)}),
    "cosine": (lambda: number().exp(), lambda t: {"score": scores.Cosine(temperature=t)}),
    "callable": (lambda: number(D), lambda t: {"score": lambda q, k: (q * t) @ k.transpose(-1, -2)}),
    "modified": (lambda: number(H), lambda t: {"score": scores.Modified("dot", lambda s, b, h, q, k: s * t[h])}),
    "modified_method": (lambda: number(H), lambda t: {"score": scores.Modified("dot", Table(t).modify)}),
    "modified_nested": (lambda: number(H), lambda t: {"score": scores.Modified("dot", by_closure({"heads": t}))}),
    "modified_global": (lambda: number(H), lambda t: {"score": scores.Modified("dot", by_global(t))}),
    "capped": (lambda: number(D, D), lambda t: {"score": scores.SoftCap(scores.General(t), 0.7)}),
    "temperature": (lambda: number(H).exp(), lambda t: {"normalizer": normalizers.Softmax(temperature=t)}),
    "sink": (lambda: number(H), lambda t: {"normalizer": normalizers.softmax_with_sink(t)}),
    "alpha": (lambda: 1.5 + 0.2 * number(H).tanh(), lambda t: {"normalizer": normalizers.entmax(t)}),
    "shift": (lambda: number(H), lambda t: {"normalizer": normalizers.Sigmoid(t)}),
    "center": (lambda: number(H, Q), lambda t: {"normalizer": normalizers.local_gaussian(normalizers.softmax, t, 1.5)}),
    "sigma": (
        lambda: number(H, 1).exp(),
        lambda t: {"normalizer": normalizers.local_gaussian(normalizers.softmax, torch.zeros(Q).double(), t)},
    ),
    "custom_normalizer": (lambda: number(1).exp(), lambda t: {"normalizer": lambda s: (s * t).softmax(-1)}),
}


def change(tensor):
    """Another tensor in the same memory, still of the range that its use allows."""
    with torch.no_grad():
        if tensor.dtype == torch.bool:
            tensor.logical_not_()
        elif tensor.is_floating_point():
            tensor.mul_(1.2)
        else:
            tensor.copy_(tensor.roll(1))


def gradients(output, wanted):
    return torch.autograd.grad(output, wanted, output.detach(), allow_unused=True)


def refused_or_right(make, name):
    """What is wrong after a change of each tensor of a call; nothing if all is well.

    Args:
        make: gives the tensors that are changed, those whose gradients are wanted, and the call.
        name: for messages.
    """
    changed, wanted, call = make()
    expected = gradients(call(), wanted)
    wrong = []
    for place in range(len(changed)):
        changed, wanted, call = make()
        output = call()
        change(changed[place])
        try:
            found = gradients(output, wanted)
        except RuntimeError as error:
            if "place" not in str(error):
                wrong.append(f"{name}, tensor {place}: {error}")
            continue
        for one, other in zip(found, expected, strict=True):
            if (one is None) != (other is None) or (one is not None and not torch.allclose(one, other, 1e-4, 1e-6)):
                wrong.append(f"{name}, tensor {place}: another gradient")
                break
    return wrong


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_tensor_of_a_call_changed_in_place_is_noticed(backend):
    wrong, runs = [], 0
    for name, (tensor, holder) in HOLDERS.items():

        def make(tensor=tensor, holder=holder):
            held = tensor()
            held.requires_grad_(held.is_floating_point())
            inputs, options = problem(requires_grad=True), holder(held)
            wanted = [*inputs, *([held] if held.requires_grad else ())]
            return [held, *inputs], wanted, lambda: regard.attend(*inputs, **options, backend=backend)

        try:
            make()[2]()
        except BackendError:
            continue
        runs += 1
        wrong += refused_or_right(make, name)
    assert runs > 3
    assert not wrong, "\n".join(wrong)


def layer_config(**options):
    return nn.LayerConfig(dim=8, heads=2, feedforward=12, dropout=0.0, **options)


def self_attending(layer):
    return layer, [number(2, 5, 8)], lambda x: layer(x, x, x, need_weights=False)[0]


def encoder(**options):
    stack, lengths = nn.TransformerEncoder.create(2, layer_config(**options)), torch.tensor([5, 3])
    return stack, [number(2, 5, 8), lengths], lambda x, lengths: stack(x, lengths=lengths)


def transformer(**options):
    stack = nn.Transformer.create(1, 1, layer_config(**options))
    return stack, [number(2, 5, 8), number(2, 3, 8)], lambda source, target: stack(source, target, tgt_mask="causal")


def decoding(score, backend="auto"):
    """Two steps over one memory."""
    layer = nn.Attention.create(score, 8, 8, 6 if score == "additive" else None, backend=backend)

    def run(annotations, first, second, mask):
        memory = layer.remember(annotations, mask=mask)
        return torch.cat([layer(first, memory).output, layer(second, memory).output])

    return layer, [number(2, 5, 8), number(2, 8), number(3, 8)[1:], dense(2, 5)], run


def on_maps(block):
    return block, [number(2, 4, 3, 2) for _ in range(1 + isinstance(block, nn.AFF | nn.IAFF))], block


def pooling(**options):
    layer = nn.AttentionPooling(8, 2, **options)
    return layer, [number(2, 5, 8), torch.tensor([5, 3])], lambda x, lengths: layer(x, lengths).output


LAYERS = {
    "MultiheadAttention": lambda: self_attending(nn.MultiheadAttention(8, 2, batch_first=True)),
    "MultiheadAttention, tiled": lambda: self_attending(nn.MultiheadAttention(8, 2, batch_first=True, backend="tiled")),
    "MultiheadAttention, cpu": lambda: self_attending(nn.MultiheadAttention(8, 2, batch_first=True, backend="cpu")),
    "encoder": lambda: encoder(),
    "encoder, float32": lambda: encoder(),
    "encoder, tiled": lambda: encoder(backend="tiled", position="t5"),
    "encoder, recomputed": lambda: encoder(activation_checkpointing=True),
    "encoder, recomputed in chunks": lambda: encoder(
        activation_checkpointing=True, feedforward_chunk=3, backend="tiled", score="additive"
    ),
    "transformer": lambda: transformer(norm_first=True),
    "transformer, recomputed": lambda: transformer(activation_checkpointing=True, activation="gelu"),
    "additive steps": lambda: decoding("additive"),
    "additive steps, cpu": lambda: decoding("additive", "cpu"),
    "dot steps, cpu": lambda: decoding("dot", "cpu"),
    "general steps, tiled": lambda: decoding("general", "tiled"),
    "AttentionPooling": lambda: pooling(),
    "AttentionPooling, tiled": lambda: pooling(backend="tiled"),
    "NonLocal": lambda: on_maps(nn.NonLocal(4, 2, zero=False, backend="tiled")),
    "DualAttention": lambda: on_maps(nn.DualAttention(4, reduction=2, backend="tiled")),
    "CBAM": lambda: on_maps(nn.CBAM(4, 2)),
    "SqueezeExcitation": lambda: on_maps(nn.SqueezeExcitation(4, 2)),
    "IAFF": lambda: on_maps(nn.IAFF(4, 2, global_norm="layer")),
}


@pytest.mark.parametrize("name", LAYERS)
def test_every_tensor_of_a_layer(name):
    def make():
        torch.manual_seed(1)
        layer, inputs, call = LAYERS[name]()
        dtype = torch.float32 if "float32" in name else torch.float64
        layer.to(dtype)
        inputs = [t.to(dtype).requires_grad_() if t.is_floating_point() else t.clone() for t in inputs]
        wanted = [*(t for t in inputs if t.requires_grad), *layer.parameters()]
        return [*inputs, *layer.parameters()], wanted, lambda: call(*inputs)

    assert not refused_or_right(make, name)


def test_second_backward_pass():
    """A change between two backward passes is seen by the second one, or does not matter to it: the kernels keep the
    runs of keys that a function shows, and not the function."""
    for backend in ("tiled", "cpu"):
        inputs, mask = problem(requires_grad=True), dense(Q, K)
        output = regard.attend(*inputs, mask=masks.where(lambda b, h, q, k, mask=mask: mask[q, k]), backend=backend)
        first, second = (torch.autograd.grad(output.sum(), inputs, retain_graph=True) for _ in range(2))
        assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))
        mask.logical_not_()
        if backend == "cpu":
            third = torch.autograd.grad(output.sum(), inputs)
            assert all(torch.equal(one, other) for one, other in zip(first, third, strict=True))
            continue
        with pytest.raises(BackendError, match=r"a tensor of mask, of shape .* was changed in place"):
            output.sum().backward()


def test_a_change_in_place_before_a_second_derivative_is_noticed():
    query, key, value = problem(requires_grad=True)
    output = regard.attend(query, key, value, backend="tiled")
    (gradient,) = torch.autograd.grad(output.square().sum(), query, create_graph=True)
    change(key)
    with pytest.raises(RuntimeError, match="place"):
        gradient.sum().backward()


def test_statistics_that_a_layer_changes_itself():
    """Batch normalization counts its calls: that is no change that a backward pass refuses."""
    layer = torch.nn.Sequential(torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 3))
    run, rows = recomputed(layer), number(5, 3).float().requires_grad_()
    first, second = run(rows), run(rows)
    for output in (first, second):
        output.sum().backward(retain_graph=True)
        output.sum().backward()


def test_a_score_may_count_its_calls():
    """What the forward pass itself changes is no change after it."""

    class Counting(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))
            self.weight = torch.nn.Parameter(number(D, D))

        def forward(self, query, key):
            self.calls += 1
            return query @ self.weight @ key.transpose(-1, -2)

    query, score = number(1, H, Q, D), Counting()
    regard.attend(query, query, query, score=score, backend="tiled").sum().backward()
    assert score.weight.grad.isfinite().all()
    with torch.no_grad():
        output = regard.attend(query, query, query, score=score, backend="tiled")
    assert output.isfinite().all()


def test_other_attributes_of_an_object_may_change():
    """Of an object that a function reads, only what the function reads must stay."""
    model = torch.nn.Module()
    model.table, model.steps = number(H), torch.zeros(())
    output = regard.attend(
        *problem(requires_grad=True),
        score=scores.Modified("dot", lambda s, b, h, q, k: s * model.table[h]),
        backend="tiled",
    )
    model.steps.add_(1)
    output.sum().backward()
