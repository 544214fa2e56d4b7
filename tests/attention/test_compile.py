"""`torch.compile` and `torch.export` take whole what calls the verbs and layers, and calculate the same."""

import functools
import io

import pytest
import torch
from torch import nn as torch_nn
from torch.utils.flop_counter import FlopCounterMode

import regard
from backends import EVERY, accepts
from covering import covering
from regard import masks, nn, normalizers, positions, scores
from regard.models import RecurrentTranslator, TranslatorConfig

B, H, Q, K, D, V = 2, 3, 5, 7, 11, 13

# One case for each kind of part; crossings of parts are `test_contracts`' task.
CASES = {
    "plain": dict,
    "causal": lambda: {"mask": masks.causal(), "normalizer": normalizers.Softmax(torch_nn.Parameter(torch.ones(H)))},
    "window": lambda: {"mask": masks.window(2, 0), "normalizer": "sparsemax", "score": scores.Cosine.create(H)},
    "keep": lambda: {"mask": masks.keep(torch.ones(Q, K, dtype=torch.bool).tril()), "bias": positions.alibi(H)},
    "additive": lambda: {"score": scores.Additive.create(D, D, 3), "mask": masks.lengths(torch.tensor([K, 4]))},
    "general": lambda: {
        "score": scores.General.create(D, D),
        "normalizer": normalizers.softmax_with_sink(torch_nn.Parameter(torch.zeros(H))),
        "mask": masks.where(lambda batch, head, query, key: query + 2 >= key),
    },
    "relative": lambda: {"bias": positions.RelativeBias(H), "normalizer": normalizers.entmax(1.3)},
    "mlp": lambda: {"score": scores.MLP.create(D, D, (3,))},
    "distance": lambda: {"score": "distance", "normalizer": "sigmoid", "mask": masks.lengths([K, 0])},
    "modified": lambda: {
        "score": scores.Modified(scores.SoftCap("dot", 5.0), lambda score, batch, head, query, key: score - head)
    },
    "location": lambda: {
        "score": scores.LocationAware.create(D, D, 3, channels=2, kernel_size=3).given(torch.rand(B, K))
    },
}


class Attend(torch_nn.Module):
    """A model around `attend`."""

    def __init__(self, backend, arguments):
        super().__init__()
        self.backend = backend
        self.arguments = arguments
        self.parts = torch_nn.ModuleList(part for part in arguments.values() if isinstance(part, torch_nn.Module))

    def forward(self, query, key, value):
        return (regard.attend(query * 1.5, key, value, backend=self.backend, **self.arguments) + 1,)


class Observe(Attend):
    """A model around `observe`, with several readings."""

    def forward(self, query, key, value):
        read = regard.Readings(entropy=True, peak=True, top_k=2, received=True, weights=True)
        seen = regard.observe(query, key, value, read=read, backend=self.backend, **self.arguments)
        return seen.output + 1, seen.lse, seen.entropy, seen.top_weights, seen.top_indices, seen.received, seen.weights


class Look(torch_nn.Module):
    """A model that remembers, and looks twice."""

    def __init__(self, kind, normalizer, backend, need_weights):
        super().__init__()
        given = {"channels": 2, "kernel_size": 3} if kind == "location_aware" else {}
        self.attention = nn.Attention.create(kind, D, D, **given, normalizer=normalizer, backend=backend)
        self.need_weights = need_weights
        self.aware = kind == "location_aware"

    def forward(self, state, annotations, lengths):
        memory = self.attention.remember(annotations, lengths)
        context, weights = self.attention(state, memory, need_weights=self.need_weights or self.aware)
        earlier = nn.EarlierWeights(weights) if self.aware else None
        again, weights = self.attention(context + state, memory, earlier=earlier, need_weights=self.need_weights)
        return (again,) if weights is None else (again, weights)


class DropIn(torch_nn.Module):
    """A model around the drop-in, with padding."""

    def __init__(self, normalizer, backend, need_weights):
        super().__init__()
        self.attention = nn.MultiheadAttention(12, 3, batch_first=True, normalizer=normalizer, backend=backend)
        self.need_weights = need_weights

    def forward(self, x, padding):
        output, weights = self.attention(x, x, x, key_padding_mask=padding, need_weights=self.need_weights)
        return (output,) if weights is None else (output, weights)


def inputs_of(queries=Q, keys=K):
    generator = torch.Generator().manual_seed(7)
    lengths = (queries, D), (keys, D), (keys, V)
    return tuple(torch.randn(B, H, *shape, generator=generator) for shape in lengths)


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def differentiated(call, module, inputs):
    """What the call gives, and the gradients of all floating-point inputs and of the module's parameters."""
    inputs = [tensor.detach().requires_grad_() if tensor.is_floating_point() else tensor for tensor in inputs]
    outputs = call(*inputs)
    total = sum(output.square().sum() for output in outputs if output.requires_grad)
    leaves = [tensor for tensor in inputs if tensor.requires_grad] + list(module.parameters())
    return outputs, torch.autograd.grad(total, leaves, allow_unused=True)


def assert_compiles(module, inputs, dynamic=None, others=()):
    """Compiled whole it gives what it gives, forward and backward; the same shapes are compiled once."""
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for rounds, parts in enumerate((inputs, inputs, *others)):
        expected = differentiated(module, module, parts)
        stance = "fail_on_recompile" if rounds == 1 else "default"
        with torch.compiler.set_stance(stance):
            got = differentiated(compiled, module, parts)
        for one, other in zip(got[0] + got[1], expected[0] + expected[1], strict=True):
            if other is None:
                assert one is None or not one.any()
            else:
                torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def assert_exports(module, inputs, strict):
    """The exported program gives the same, also after it was saved and loaded."""
    module = module.eval()
    expected = module(*inputs)
    program = torch.export.export(module, inputs, strict=strict)
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    loaded = torch.export.load(file)
    for exported in (program, loaded):
        got = exported.module()(*inputs)
        for one, other in zip(got, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


WAYS = {
    "compiled": assert_compiles,
    "exported": functools.partial(assert_exports, strict=False),
    "exported strictly": functools.partial(assert_exports, strict=True),
}


def runs(backend, **arguments):
    return accepts(backend, [tensor.requires_grad_() for tensor in inputs_of()], **arguments)


@functools.cache
def runs_normalizer(backend, normalizer):
    return runs(backend, normalizer=normalizer)


@functools.cache
def runs_case(backend, case):
    return runs(backend, **CASES[case]())


@covering(
    case=CASES,
    backend=EVERY,
    way=WAYS,
    verb=[Attend, Observe],
    # A compiler reads a function as operations of ``reference`` and ``tiled``, never as a kernel.
    where=lambda case, backend, way, verb: runs_case(backend, case) and (case, backend) != ("modified", "cpu"),
    # ``auto`` runs one of the other backends. The reference has no code of its own for a score, normalizer or mask that
    # ``tiled`` does not run. To export strictly is to trace as the compiler does, and to write down as others do.
    sample_where=lambda case, backend, way, verb: (
        (backend not in ("auto", "reference") or case in ("plain", "causal", "additive"))
        and (way != "exported strictly" or (case == "plain" and backend == "tiled"))
    ),
)
def test_verbs_compile_and_export(case, backend, way, verb):
    WAYS[way](verb(backend, CASES[case]()), inputs_of())


@covering(
    case=["plain", "window"],
    backend=EVERY,
    where=lambda case, backend: runs_case(backend, case),
    sample_where=lambda case, backend: backend in (("sdpa", "cpu") if case == "plain" else ("reference",)),
)
def test_lengths_may_be_dynamic(case, backend, is_full):
    others = [inputs_of(11, 17), inputs_of(23, 29)] if is_full else [inputs_of(11, 17)]
    assert_compiles(Attend(backend, CASES[case]()), inputs_of(), dynamic=True, others=others)


MEMORIES = {"additive": "softmax", "general": "entmax15", "location_aware": "softmax", "scaled_dot": "softmax"}


def remembers(kind, backend, way, need_weights):
    """Scaled dot products are for the backend that takes no other; of a score's convolution strict export warns."""
    is_warned_of = kind == "location_aware" and way == "exported strictly"
    is_for = (kind == "scaled_dot") == (backend == "sdpa") and not is_warned_of
    return is_for and runs_normalizer(backend, MEMORIES[kind])


@covering(
    kind=MEMORIES,
    backend=EVERY,
    way=WAYS,
    need_weights=[True, False],
    where=remembers,
    sample_where=lambda kind, backend, way, need_weights: (
        way != "exported strictly" or (kind == "additive" and backend == "cpu")
    ),
)
def test_a_remembered_memory_compiles_and_exports(kind, backend, way, need_weights):
    module = Look(kind, MEMORIES[kind], backend, need_weights)
    WAYS[way](module, (torch.randn(B, D), torch.randn(B, K, D), torch.tensor([K, 4])))


@covering(
    normalizer=["softmax", "entmax15"],
    backend=EVERY,
    way=WAYS,
    need_weights=[True, False],
    where=lambda normalizer, backend, way, need_weights: runs_normalizer(backend, normalizer),
    sample_where=lambda normalizer, backend, way, need_weights: (
        way != "exported strictly" or (normalizer == "softmax" and backend == "sdpa")
    ),
)
def test_the_drop_in_compiles_and_exports(normalizer, backend, way, need_weights):
    padding = torch.arange(K) >= torch.tensor([[K], [4]])
    WAYS[way](DropIn(normalizer, backend, need_weights), (torch.randn(B, K, 12), padding))


@pytest.mark.parametrize(
    "options",
    [{"attention": "bahdanau"}, {"attention": "luong"}, {"attention": "luong", "scope": "local-p", "window": 1}],
    ids=["bahdanau", "luong", "local-p"],
)
def test_a_decoder_compiles_whole(options):
    config = TranslatorConfig(13, 13, embedding=10, hidden=14, dropout=0.0, **options)
    model = RecurrentTranslator(config).eval()
    source = torch.randint(3, 13, (B, K))
    with torch.no_grad():
        state = model.start(model.encode(source, torch.tensor([K, 4])))
    words = torch.tensor([3, 5])

    def step(words):
        log_probabilities, _, weights = model.step(words, state)
        return log_probabilities, weights

    expected = step(words)
    # PyTorch's compiler takes a model with an `nn.LSTM` whole only where this is set.
    with torch._dynamo.config.patch(allow_rnn=True):
        got = torch.compile(step, fullgraph=True, backend="aot_eager")(words)
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("is_ready", [True, False], ids=["kernels", "kernels that come between the passes"])
@pytest.mark.parametrize("backend", ["aot_eager", None], ids=["compiled", "counted"])
def test_both_passes_of_a_call_with_dropout_drop_the_same_weights(backend, is_ready, monkeypatch):
    """The output is linear in the values, so its sum is the product of the values and their gradient."""
    asked = []

    def delay(self, problem, gatherer=None):
        asked.append(problem)
        return None if is_ready or len(asked) > 1 else "it is being compiled"

    monkeypatch.setattr("regard.attention.backends.cpu.backend.Fused.delay", delay)
    monkeypatch.setattr("regard.kernels.availability._WAITING", [])
    torch.manual_seed(0)
    query, key, value = (torch.randn(1, 2, length, 16) for length in (16, 64, 64))
    score = scores.Additive(torch.randn(16))

    def call(query, value):
        return regard.attend(query, key, value, score=score, dropout=0.3)

    inputs = query.requires_grad_(), value.requires_grad_()
    if backend is None:
        with FlopCounterMode(display=False):
            output = call(*inputs)
    else:
        output = torch.compile(call, backend=backend, fullgraph=True)(*inputs)
    (gradient,) = torch.autograd.grad(output.sum(), value)
    torch.testing.assert_close((gradient * value).sum(), output.sum())
