"""Activation patching, attribution patching and path patching, against plain forward hooks."""

import gc
import warnings
from contextlib import ExitStack

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import regard
from regard.errors import ArgumentError, KindError, ShapeError, UnknownNameError
from regard.watching import PatchingWarning

HEADS, DIM, TOKENS, EXAMPLES = 3, 5, 7, 2
PARTS = ("query", "key", "values", "weights", "output")


class Attention(nn.Module):
    """Attention whose parts pass through modules, where hooks can replace them; by hand, or by PyTorch's function."""

    def __init__(self, causal=False):
        super().__init__()
        width = HEADS * DIM
        self.project = nn.ModuleList(nn.Linear(width, width) for _ in range(4))
        self.parts = nn.ModuleList(nn.Identity() for _ in PARTS)
        self.causal, self.by_hand, self.num_heads = causal, False, HEADS

    def forward(self, x, memory=None):
        inputs = zip(self.project, (x, *(2 * [x if memory is None else memory])), strict=False)
        query, key, values = (
            part(project(each).unflatten(-1, (HEADS, DIM)).transpose(1, 2))
            for part, (project, each) in zip(self.parts, inputs, strict=False)
        )
        if self.by_hand:
            scores = query @ key.mT / DIM**0.5
            if self.causal:
                scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -torch.inf)
            output = self.parts[4](self.parts[3](scores.softmax(-1)) @ values)
        else:
            output = F.scaled_dot_product_attention(query, key, values, is_causal=self.causal)
        return self.project[3](output.transpose(1, 2).flatten(-2))


class Layer(nn.Module):
    def __init__(self, causal, crosses):
        super().__init__()
        width = HEADS * DIM
        self.attention, self.norms = Attention(causal), nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.cross_attention = Attention() if crosses else None
        self.feed_forward = nn.Sequential(nn.Linear(width, 11), nn.GELU(), nn.Linear(11, width))

    def forward(self, x, memory=None):
        x = x + self.attention(self.norms[0](x))
        if self.cross_attention is not None:
            x = x + self.cross_attention(self.norms[1](x), memory)
        return x + self.feed_forward(self.norms[2](x))


class Decoder(nn.Module):
    """A language model, or with a source a translator, in float64."""

    def __init__(self, layers=2, source=False):
        super().__init__()
        width = HEADS * DIM
        self.embedding, self.position = nn.Embedding(23, width), nn.Parameter(torch.randn(TOKENS + 4, width))
        self.encoder = nn.ModuleList(Layer(False, False) for _ in range(2 if source else 0))
        self.decoder = nn.ModuleList(Layer(True, source) for _ in range(layers))
        self.norm, self.unembedding = nn.LayerNorm(width), nn.Linear(width, 23)
        self.double().train()

    def embedded(self, ids):
        return self.embedding(ids) + self.position[: ids.shape[1]]

    def forward(self, ids, source=None):
        memory = None if source is None else self.embedded(source)
        for layer in self.encoder:
            memory = layer(memory)
        x = self.embedded(ids)
        for layer in self.decoder:
            x = layer(x, memory)
        return self.unembedding(self.norm(x))


def difference(logits):
    return 3 * (logits[:, -1, 4] - logits[:, -1, 9])


@torch.no_grad()
def hooked(model, inputs, changes=(), metric=difference):
    """The metric of a run by hand, and all parts by module; changes map (module, part) to functions of the part."""
    values, changes = {}, dict(changes)

    def hook(name):
        def replace(module, args, output):
            new = changes[name](output.clone()) if name in changes else output
            values[name] = new
            return new

        return replace

    with ExitStack() as stack:
        for module_name, module in model.named_modules():
            if isinstance(module, Attention):
                module.by_hand = True
                for part, identity in zip(PARTS, module.parts, strict=True):
                    stack.callback(identity.register_forward_hook(hook((module_name, part))).remove)
        result = metric(model(*inputs))
        for module in model.modules():
            module.by_hand = False
    return result, values


def put(source, heads, position):
    def changed(current):
        where = (slice(None), heads, slice(None) if position is None else slice(position, position + 1))
        current[where] = source[where]
        return current

    return changed


def random_pair(seed=0, source=False):
    torch.manual_seed(seed)
    shape = (2, EXAMPLES, TOKENS)
    clean, corrupted = torch.randint(23, shape)
    if not source:
        return (clean,), (corrupted,)
    first, second = torch.randint(23, (2, EXAMPLES, TOKENS + 4))
    return (clean, first), (clean, second)


CASES = [
    (over, what, heads) for over, heads in (("heads", None), ("layers", None), ("positions", None)) for what in PARTS
]
CASES += [
    ("heads", "output", [2, 0]),
    ("positions", "values", [2, 0]),
    ("layers", "weights", [1]),
    ("positions", "weights", [1]),
]


@pytest.mark.parametrize("direction", ["denoising", "noising"])
@pytest.mark.parametrize(("over", "what", "heads"), CASES)
def test_patched_effects_equal_those_of_hooks(over, what, heads, direction):
    torch.manual_seed(1)
    model = Decoder()
    clean, corrupted = random_pair()
    base, source = (corrupted, clean) if direction == "denoising" else (clean, corrupted)
    options = {} if heads is None else {"heads": heads}
    patched = regard.patch(model, clean, corrupted, difference, over=over, what=what, direction=direction, **options)
    base_metric, _ = hooked(model, base)
    source_metric, parts = hooked(model, source)
    chosen = heads or list(range(HEADS))
    for row, call in enumerate(patched.calls):
        for column in range(len(chosen)) if over == "heads" or (heads and over == "positions") else (None,):
            for position in range(TOKENS) if over == "positions" else (None,):
                own = chosen if column is None else [chosen[column]]
                change = put(parts[call.name, what], own, position)
                expected, _ = hooked(model, base, {(call.name, what): change})
                index = tuple(each for each in (row, column, position) if each is not None)
                torch.testing.assert_close(patched.metrics[:, *index], expected, rtol=1e-9, atol=1e-9)
                effect = (expected - base_metric).mean()
                torch.testing.assert_close(patched.effect[index], effect, rtol=1e-9, atol=1e-9)
                share = effect / (source_metric - base_metric).mean()
                torch.testing.assert_close(patched.normalized[index], share, rtol=1e-9, atol=1e-9)
                torch.testing.assert_close(patched.spread[index], (expected - base_metric).std(), rtol=1e-8, atol=1e-8)
    assert all(module.training for module in model.modules())


@pytest.mark.parametrize("part", ["query", "key", "values"])
def test_paths_equal_those_of_hooks(part):
    """Wang et al. 2022, appendix B: other heads are frozen, norms and MLPs are computed anew."""
    torch.manual_seed(2)
    model = Decoder(layers=3)
    clean, corrupted = random_pair()
    patched = regard.patch(model, clean, corrupted, difference, receiver=(2, 1, part))
    direct = regard.patch(model, clean, corrupted, difference, receiver="output")
    assert [call.layer for call in patched.calls] == [0, 1]
    assert [call.layer for call in direct.calls] == [0, 1, 2]
    _, frozen = hooked(model, corrupted)
    _, parts = hooked(model, clean)
    names = [f"decoder.{layer}.attention" for layer in range(3)]
    for row, name in enumerate(names):
        for head in range(HEADS):
            freeze = {(each, "output"): (lambda _, value=frozen[each, "output"]: value.clone()) for each in names}
            sent = put(parts[name, "output"], [head], None)(frozen[name, "output"].clone())
            freeze[name, "output"] = lambda _, sent=sent: sent
            alone, reached = hooked(model, corrupted, freeze)
            torch.testing.assert_close(direct.metrics[:, row, head], alone, rtol=1e-9, atol=1e-9)
            if row < 2:
                ends = {(names[2], part): put(reached[names[2], part], [1], None)}
                expected, _ = hooked(model, corrupted, ends)
                torch.testing.assert_close(patched.metrics[:, row, head], expected, rtol=1e-9, atol=1e-9)


def test_several_receivers_of_several_layers_receive_together():
    torch.manual_seed(2)
    model = Decoder(layers=3)
    clean, corrupted = random_pair()
    receivers = [(1, 0, "query"), (2, 1, "values")]
    patched = regard.patch(model, clean, corrupted, difference, receiver=receivers)
    names = [f"decoder.{layer}.attention" for layer in range(3)]
    assert [call.name for call in patched.calls] == names[:2]
    _, frozen = hooked(model, corrupted)
    _, parts = hooked(model, clean)
    for row, name in enumerate(names[:2]):
        freeze = {(each, "output"): (lambda _, value=frozen[each, "output"]: value.clone()) for each in names}
        sent = put(parts[name, "output"], [2], None)(frozen[name, "output"].clone())
        freeze[name, "output"] = lambda _, sent=sent: sent
        _, reached = hooked(model, corrupted, freeze)
        ends = {(names[layer], part): put(reached[names[layer], part], [head], None) for layer, head, part in receivers}
        expected, _ = hooked(model, corrupted, ends)
        torch.testing.assert_close(patched.metrics[:, row, 2], expected, rtol=1e-9, atol=1e-9)


class InPlace(nn.Module):
    """Attention alone, whose output the model changes in place."""

    def __init__(self):
        super().__init__()
        self.project = nn.Linear(8, 24)

    def forward(self, x):
        query, key, values = (part.unflatten(-1, (2, 4)).transpose(1, 2) for part in self.project(x).chunk(3, -1))
        return F.scaled_dot_product_attention(query, key, values).sigmoid_().transpose(1, 2).flatten(-2)


def test_a_layer_that_is_all_of_the_model_restores_all_of_the_metric():
    torch.manual_seed(13)
    model = InPlace()
    clean, corrupted = torch.randn(2, EXAMPLES, TOKENS, 8)
    for what in ("output", "weights"):
        patched = regard.patch(model, clean, corrupted, lambda output: output[:, -1].sum(-1), what=what, over="layers")
        whole = torch.ones(1, dtype=torch.float64)
        assert torch.allclose(patched.normalized, whole, atol=1e-4) == (what == "output")


@pytest.mark.parametrize("what", ["output", "weights", "values"])
def test_translators_are_patched_in_encoder_decoder_and_between(what):
    """Encoder and decoder have layers of the same numbers, and attention of the same kind."""
    torch.manual_seed(3)
    model = Decoder(source=True)
    clean, corrupted = random_pair(source=True)
    patched = regard.patch(model, {"ids": clean[0], "source": clean[1]}, corrupted, difference, what=what)
    _, parts = hooked(model, clean)
    names = ["encoder.0.attention", "encoder.1.attention"]
    names += [f"decoder.{layer}.{kind}" for layer in (0, 1) for kind in ("attention", "cross_attention")]
    assert [call.name for call in patched.calls] == names
    assert [call.kind for call in patched.calls] == ["self", "self", "causal", "cross", "causal", "cross"]
    for row, name in enumerate(names):
        for head in range(HEADS):
            expected, _ = hooked(model, corrupted, {(name, what): put(parts[name, what], [head], None)})
            torch.testing.assert_close(patched.metrics[:, row, head], expected, rtol=1e-9, atol=1e-9)
    cross = regard.patch(model, clean, corrupted, difference, what=what, kind="cross")
    assert torch.equal(cross.metrics, patched.metrics[:, [3, 5]])
    assert [grid.layers for grid in patched.grids()] == [
        ("0 self", "1 self", "0 causal", "0 cross", "1 causal", "1 cross")
    ]


class Linear(nn.Module):
    """One layer of attention whose output is linear in each of its parts."""

    def __init__(self):
        super().__init__()
        self.attention = Attention(causal=True)
        self.double()

    def forward(self, x):
        return self.attention(x)


@pytest.mark.parametrize("over", ["heads", "layers", "positions"])
@pytest.mark.parametrize("what", ["output", "weights", "values"])
@pytest.mark.parametrize("scalar", [False, True])
def test_gradient_is_exact_where_the_model_is_linear(over, what, scalar):
    torch.manual_seed(4)
    model = Linear()
    clean, corrupted = torch.randn(2, EXAMPLES, TOKENS, HEADS * DIM, dtype=torch.float64)

    def metric(output):
        numbers = output[:, -1] @ torch.linspace(-1, 2, HEADS * DIM, dtype=torch.float64)
        return numbers.sum() if scalar else numbers

    options = {"over": over, "what": what}
    exact = regard.patch(model, clean, corrupted, metric, **options)
    by_gradient = regard.patch(model, clean, corrupted, metric, method="gradient", check=2, **options)
    assert len(exact.clean) == (1 if scalar else EXAMPLES)
    torch.testing.assert_close(by_gradient.metrics, exact.metrics, rtol=1e-10, atol=1e-10)
    assert exact.exact is None
    checked = by_gradient.exact.isfinite()
    assert int(checked[0].sum()) == min(2, exact.effect.numel())
    torch.testing.assert_close(by_gradient.exact[checked], exact.metrics[checked])


def test_gradient_takes_two_forward_passes_and_reports_its_error():
    torch.manual_seed(5)
    model, passes = Decoder(), []
    model.register_forward_pre_hook(lambda *_: passes.append(1))
    clean, corrupted = random_pair()
    regard.patch(model, clean, corrupted, difference, method="gradient", check=0)
    assert len(passes) == 2
    exact = regard.patch(model, clean, corrupted, difference)
    with warnings.catch_warnings(record=True, action="always") as caught:
        patched = regard.patch(model, clean, corrupted, difference, method="gradient", check=4)
    largest = patched.effect.abs().flatten().topk(4)
    assert [abs(each.effect) for each in patched.checked()] == pytest.approx(largest.values.tolist())
    for each in patched.checked():
        assert each.exact == pytest.approx(float(exact.effect[each.layer, each.head]))
        assert each.label in str(patched)
    pairs = torch.tensor([(each.effect, each.exact) for each in patched.checked()])
    assert patched.correlation == pytest.approx(float(torch.corrcoef(pairs.T)[0, 1]))
    assert [str(one.message) for one in caught] == patched.doubts()


def test_gradients_of_weights_hold_those_of_one_layer():
    (clean,), (corrupted,) = random_pair()
    shape, most = (EXAMPLES, HEADS, TOKENS, TOKENS), []
    for layers in (2, 4):
        model, alive = Decoder(layers), []

        def metric(logits, alive=alive):
            alive.append(sum(type(each) is torch.Tensor and each.shape == shape for each in gc.get_objects()))
            return difference(logits)

        patched = regard.patch(model, clean, corrupted, metric, what="weights", method="gradient", check=1)
        assert patched.effect.shape == (layers, HEADS)
        most.append(max(alive))
    assert most[0] == most[1] > 0


def test_a_gradient_that_misleads_is_reported():
    """A saturated metric: its gradient is nearly 0 where the effect is large, and the reverse."""
    torch.manual_seed(6)
    model = Linear()
    clean, corrupted = torch.randn(2, EXAMPLES, TOKENS, HEADS * DIM, dtype=torch.float64)
    with pytest.warns(PatchingWarning, match=r"the gradient misjudges \d of 3 checked effects, most that of layer 0"):
        regard.patch(model, clean, corrupted, lambda output: (12 * output[:, -1, 0]).exp(), method="gradient")


def test_batches_are_examples_and_the_gradient_correlates_on_gpt2():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(7)
    config = transformers.GPT2Config(vocab_size=97, n_positions=16, n_embd=192, n_layer=6)
    model = transformers.GPT2LMHeadModel(config).eval()
    clean, corrupted = torch.randint(97, (2, 3, 6))
    corrupted = torch.where(torch.arange(6) == 2, corrupted, clean)

    def metric(output):
        return output.logits[:, -1, 5] - output.logits[:, -1, 6]

    pairs = [[{"input_ids": ids, "use_cache": False} for ids in side.split([2, 1])] for side in (clean, corrupted)]
    exact = regard.patch(model, *pairs, metric, layers=[0, 5])
    whole = regard.patch(model, clean, corrupted, metric, layers=[0, 5])
    assert exact.metrics.shape == (3, 2, 12)
    torch.testing.assert_close(exact.metrics, whole.metrics, rtol=1e-4, atol=1e-4)
    estimated = regard.patch(model, *pairs, metric, layers=[0, 5], method="gradient")
    both = torch.stack([exact.effect.flatten(), estimated.effect.flatten()])
    assert torch.corrcoef(both)[0, 1] > 0.95
    assert estimated.correlation > 0.95


def test_effects_are_shown_with_signs_and_labels(tmp_path):
    torch.manual_seed(9)
    model = Decoder()
    clean, corrupted = random_pair()
    heads = regard.patch(model, clean, corrupted, difference)
    assert repr(heads) == "<Patched output of 2 layers × 3 heads over 2 examples>"
    (grid,) = heads.grids()
    assert (grid.layers, grid.columns, grid.axis, grid.unit) == (
        ("0", "1"),
        ("0", "1", "2"),
        "head",
        "normalized effect",
    )
    torch.testing.assert_close(torch.from_numpy(grid.values), heads.normalized)
    torch.testing.assert_close(torch.from_numpy(grid.noise), heads.spread / 2**0.5 / abs(heads.difference))
    (plain,) = heads.grids(normalized=False)
    assert plain.unit == "change of the metric"
    torch.testing.assert_close(torch.from_numpy(plain.values), heads.effect)
    low, high = heads.figure().axes[0].images[0].get_clim()
    assert -low == high == pytest.approx(float(heads.normalized.abs().max()))
    sizes = [abs(each.effect) for each in heads.largest(99)]
    assert sizes == sorted(sizes, reverse=True)
    assert len(sizes) == 6
    first = heads.largest(1)[0]
    assert first.effect == float(heads.effect[first.layer, first.head])
    assert first.normalized == float(heads.normalized[first.layer, first.head])
    assert regard.View(heads).save(tmp_path / "heads.html").stat().st_size > 10_000
    positions = regard.patch(model, clean, corrupted, difference, over="positions", heads=[2, 0])
    assert [grid.title for grid in positions.grids()] == [
        "effect of head 2's output at each position",
        "effect of head 0's output at each position",
    ]
    tokens = [f"word {number}" for number in range(TOKENS)]
    assert positions.grids(tokens)[0].columns == tuple(tokens)
    assert {grid.high for grid in positions.grids()} == {float(positions.normalized.abs().max())}
    assert {axes.get_title() for axes in positions.figure(tokens).axes[:2]} == {
        grid.title for grid in positions.grids()
    }
    assert positions.document().title == "effect of each head's output at each position"
    assert {each.head for each in positions.largest(99)} == {0, 2}
    assert {each.position for each in positions.largest(99)} == set(range(TOKENS))
    with pytest.raises(ShapeError, match="tokens must be 7"):
        positions.grids(tokens[1:])
    layers = regard.patch(model, clean, corrupted, difference, over="layers", receiver="output")
    assert layers.grids()[0].title == "direct effect of each layer's output"
    assert layers.largest(1)[0].head is None
    assert "norms and MLPs" in str(layers)


def test_equal_inputs_have_no_normalized_effect():
    torch.manual_seed(10)
    model = Decoder()
    clean, _ = random_pair()
    with pytest.warns(PatchingWarning, match="cannot be normalized"):
        patched = regard.patch(model, clean, clean, difference)
    assert patched.normalized.isnan().all()
    torch.testing.assert_close(patched.effect, torch.zeros(2, HEADS, dtype=torch.float64))
    assert patched.grids()[0].unit == "change of the metric"


def test_a_cross_receiver_gets_keys_from_the_encoder():
    torch.manual_seed(11)
    model = Decoder(source=True)
    clean, corrupted = random_pair(source=True)
    receiver = (1, 2, "values", "cross")
    patched = regard.patch(model, clean, corrupted, difference, receiver=receiver)
    assert [call.name for call in patched.calls][-1] == "decoder.1.attention"
    # The encoder's heads reach the values; the decoder's do not.
    reached = (patched.effect.abs() > 1e-9).any(1)
    assert reached.tolist() == [True, True, False, False, False]


def test_an_interrupted_table_has_what_was_measured():
    torch.manual_seed(8)
    model, runs = Decoder(), []
    clean, corrupted = random_pair()

    def metric(logits):
        runs.append(1)
        if len(runs) == 6:
            raise KeyboardInterrupt
        return difference(logits)

    whole = regard.patch(model, clean, corrupted, difference)
    with pytest.warns(PatchingWarning, match="interrupted"):
        patched = regard.patch(model, clean, corrupted, metric)
    assert torch.equal(patched.metrics[:, 0], whole.metrics[:, 0])
    assert patched.metrics[:, 1].isnan().all()
    assert len(patched.largest()) == HEADS
    assert all(module.training for module in model.modules())
    runs = [1, 1, 1, 1, 1]
    with pytest.raises(KeyboardInterrupt):
        regard.patch(model, clean, corrupted, metric)


def test_wrong_arguments_of_patching_are_named():
    model = Decoder()
    (clean,), (corrupted,) = random_pair()
    shorter = corrupted[:, :-1]
    cases = [
        (ShapeError, "equally many tokens", {"corrupted": shorter}),
        (ShapeError, "equally many tokens", {"corrupted": shorter, "method": "gradient"}),
        (ShapeError, "equally many tokens", {"corrupted": corrupted[:1]}),
        (ArgumentError, "equally many batches", {"corrupted": [corrupted, corrupted]}),
        (KindError, "clean must be a tensor", {"clean": "the cat"}),
        (KindError, "metric must return a scalar", {"metric": lambda logits: "high"}),
        (KindError, "metric must be a function", {"metric": 3.0}),
        (ShapeError, r"metric must return .* \[2, 7, 23\]", {"metric": lambda logits: logits}),
        (ArgumentError, "metric must be finite", {"metric": lambda logits: logits[:, 0, 0] * torch.nan}),
        (ArgumentError, "must have a gradient", {"metric": lambda logits: logits.detach().sum(), "method": "gradient"}),
        (ArgumentError, "must have a gradient", {"metric": lambda logits: logits.sum().item(), "method": "gradient"}),
        (UnknownNameError, "over", {"over": "neurons"}),
        (UnknownNameError, "what", {"what": "scores"}),
        (UnknownNameError, "direction", {"direction": "clean"}),
        (UnknownNameError, "kind", {"kind": "causal"}),
        *(
            (ArgumentError, message, options | {"what": what, "method": method})
            for what in ("output", "weights")
            for method in ("exact", "gradient")
            for message, options in (
                (r"layers must be among \[0, 1\]", {"layers": [0, 7]}),
                ("heads must be below 3", {"heads": [0, 3]}),
                ("no attention of kind 'cross'", {"kind": "cross"}),
            )
        ),
        (KindError, "receiver must be", {"receiver": (1, 0)}),
        (UnknownNameError, "part", {"receiver": (1, 0, "weights")}),
        (ArgumentError, "receiver must be a head", {"receiver": (1, 3, "query")}),
        (ArgumentError, "no attention call to patch", {"receiver": (0, 0, "query")}),
        (ArgumentError, "receiver patches the outputs", {"receiver": (1, 0, "query"), "what": "values"}),
        (ArgumentError, "check", {"check": -1}),
        (KindError, "model", {"model": F.relu}),
    ]
    for error, message, options in cases:
        arguments = {"model": model, "clean": clean, "corrupted": corrupted, "metric": difference} | options
        with pytest.raises(error, match=message):
            regard.patch(**arguments)


def test_rows_of_equal_layers_and_kinds_have_the_names_of_modules():
    torch.manual_seed(12)
    model = nn.Transformer(12, 2, 1, 1, 14, batch_first=True)
    source, other, target = torch.randn(3, EXAMPLES, TOKENS, 12)
    patched = regard.patch(model, (source, target), (other, target), lambda output: output[:, -1, 0])
    names = ("encoder.layers.0.self_attn", "decoder.layers.0.self_attn", "decoder.layers.0.multihead_attn")
    assert patched.grids()[0].layers == names
    assert torch.equal(patched.effect[1].abs() < 1e-6, torch.ones(2, dtype=torch.bool))  # its input is the same
    assert (patched.effect[[0, 2]].abs() > 1e-6).all()
