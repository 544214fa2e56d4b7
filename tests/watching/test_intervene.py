"""Changed calls: against plain float64 calculations, for each way in which a model attends."""

from contextlib import ExitStack, nullcontext
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import regard
from regard import Change, intervene, models
from regard.errors import ArgumentError, KindError, UnseenError
from watching.models import CAUSAL, HAND_WRITTEN, LOWEST, Heads, by_hand, run

flex = pytest.importorskip("torch.nn.attention.flex_attention")

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")


def by_flex(query, key, value):
    mask = flex.create_block_mask(lambda b, h, q, k: q >= k, None, None, 7, 7, device="cpu")
    return flex.flex_attention(query, key, value, block_mask=mask)


def sparsest(scores):
    return regard.normalizers.sparsemax(scores)


SOURCES = {
    # name: (function of heads, scale, visible pairs, normalizer)
    "sdpa": (HAND_WRITTEN["sdpa"][0], 5**-0.5, None, torch.softmax),
    "sdpa-causal": (HAND_WRITTEN["sdpa-causal"][0], 5**-0.5, CAUSAL, torch.softmax),
    "sdpa-lowest": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=LOWEST.to(q.dtype)),
        5**-0.5,
        CAUSAL,
        torch.softmax,
    ),
    "sdpa-captured": (HAND_WRITTEN["sdpa-captured"][0], 0.7, None, torch.softmax),
    "softmax": (lambda q, k, v: by_hand(q, k, v, mask=LOWEST.to(q.dtype), p=0.0), 0.3, CAUSAL, torch.softmax),
    "softmax-einsum": (HAND_WRITTEN["softmax-einsum"][0], 1.0, None, torch.softmax),
    "softmax-bmm": (HAND_WRITTEN["softmax-bmm"][0], 1.0, None, torch.softmax),
    "flex": (by_flex, 5**-0.5, CAUSAL, torch.softmax),
    "regard": (partial(regard.attend, mask=regard.masks.causal()), 5**-0.5, CAUSAL, torch.softmax),
    "regard-observe": (
        lambda q, k, v: regard.observe(q, k, v, read=regard.Readings(peak=True)).output,
        5**-0.5,
        None,
        torch.softmax,
    ),
    "regard-sparsemax": (
        lambda q, k, v: regard.attend_with_weights(q, k, v, normalizer="sparsemax").output,
        5**-0.5,
        None,
        lambda scores, axis: sparsest(scores),
    ),
}
"""The ways to attend, and the numbers of the plain calculation."""

CHANGES = {
    "a number": lambda what: Change(what, 0.25, head=1, **positions(what)),
    "a tensor": lambda what: Change(what, tensor_of(what), head=[1], **positions(what)),
    "a function": lambda what: Change(what, lambda x: 2 * x.flip(-1), head=(1,), **positions(what)),
}


def positions(what):
    """Two queries and three keys, where there are such axes."""
    names = {"query": ("queries",), "output": ("queries",), "key": ("keys",), "values": ("keys",)}
    chosen = {"queries": [5, 2], "keys": slice(0, 3)}
    return {name: chosen[name] for name in names.get(what, ("queries", "keys"))}


def tensor_of(what):
    sizes = {"query": (2, 5), "output": (2, 5), "key": (3, 5), "values": (3, 5)}.get(what, (2, 3))
    return torch.linspace(-0.5, 0.75, 3 * sizes[0] * sizes[1]).view(3, 1, *sizes)


def put(tensor, what, to):
    """The change of `CHANGES` in a plain tensor, in place."""
    rows = [0, 1, 2] if what in ("key", "values") else [5, 2]
    columns = [0, 1, 2] if what in ("scores", "weights") else list(range(tensor.shape[-1]))
    for batch in range(tensor.shape[0]):
        part = torch.stack([torch.stack([tensor[batch, 1, row, column] for column in columns]) for row in rows])
        new = to(batch, part)
        for i, row in enumerate(rows):
            for j, column in enumerate(columns):
                tensor[batch, 1, row, column] = new[i, j]


def plainly(model, x, scale, visible, normalize, what, to):
    """The output of `Heads` with a changed tensor, by the equation."""
    query, key, value = (part.detach().clone() for part in model.heads(x))
    if what == "query":
        put(query, what, to)
    if what == "key":
        put(key, what, to)
    scores = query @ key.mT * scale
    hidden = torch.zeros(7, 7, dtype=torch.bool) if visible is None else ~visible
    scores[:, :, hidden] = -torch.inf
    if what == "scores":
        put(scores, what, to)
        scores[:, :, hidden] = -torch.inf
    weights = normalize(scores, -1)
    if what == "weights":
        put(weights, what, to)
        weights[:, :, hidden] = 0.0
    if what == "values":
        put(value, what, to)
    heads = weights @ value
    if what == "output":
        put(heads, what, to)
    return model.out_proj(heads.transpose(1, 2).flatten(-2))


@pytest.mark.parametrize("what", ["query", "key", "scores", "weights", "values", "output"])
@pytest.mark.parametrize("name", SOURCES)
def test_a_changed_head_is_that_of_the_equation(name, what):
    attend, scale, visible, normalize = SOURCES[name]
    model, x = Heads(attend).double(), torch.randn(3, 7, 10, dtype=torch.float64)
    if what in ("query", "key") and name.startswith("softmax"):
        with pytest.raises(ArgumentError, match="written by hand"), intervene(model, CHANGES["a number"](what)):
            model(x)
        return
    expected = {
        "a number": lambda batch, part: torch.full_like(part, 0.25),
        "a tensor": lambda batch, part: tensor_of(what)[batch, 0],
        "a function": lambda batch, part: 2 * part.flip(-1),
    }
    with torch.no_grad():
        plain = model(x)
        for kind, change in CHANGES.items():
            with intervene(model, change(what)) as changed:
                output = model(x)
            wanted = plainly(model, x, scale, visible, normalize, what, expected[kind])
            torch.testing.assert_close(output, wanted, msg=lambda text, kind=kind: f"{kind}: {text}")
            assert not torch.allclose(output, plain)
            assert [call.changes for call in changed.calls] == [changed.changes]
        assert torch.equal(model(x), plain)


def test_changes_of_one_call_compose_by_stage_and_order():
    """The order in which they are given matters within a stage alone; contexts compose as one."""
    model, x = Heads(HAND_WRITTEN["sdpa"][0]).double(), torch.randn(2, 7, 10, dtype=torch.float64)
    changes = (
        Change("output", lambda heads: heads + 1, head=1, queries=3),
        Change("weights", 0.5, keys=0, head=1),
        Change("weights", lambda weights: weights * 2, keys=[0, 4]),
        Change("values", -1.0, keys=4, head=[0, 1]),
        Change("scores", lambda scores: scores - 1, head=1, keys=6),
        Change("key", 0.25, keys=2, head=1),
        Change("query", lambda query: -query, queries=1),
    )
    query, key, value = (part.detach().clone() for part in model.heads(x))
    query[:, :, 1] *= -1
    key[:, 1, 2] = 0.25
    scores = query @ key.mT * 5**-0.5
    scores[:, 1, :, 6] -= 1
    weights = scores.softmax(-1)
    weights[:, 1, :, 0] = 0.5
    weights[:, :, :, [0, 4]] *= 2
    value[:, :, 4] = -1
    heads = weights @ value
    heads[:, 1, 3] += 1
    expected = model.out_proj(heads.transpose(1, 2).flatten(-2))
    with torch.no_grad():
        with intervene(model, *changes):
            torch.testing.assert_close(model(x), expected)
        with ExitStack() as contexts:
            for change in changes:
                contexts.enter_context(intervene(model, change))
            torch.testing.assert_close(model(x), expected)
        with intervene(model, changes[0]), intervene(model, *changes[1:]):
            torch.testing.assert_close(model(x), expected)


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("name", HAND_WRITTEN)
def test_no_other_head_changes_a_bit(name, train):
    """Nothing changes where no call is named; of a named one, its other heads and queries stay."""
    model, x = Heads(HAND_WRITTEN[name][0]), torch.randn(3, 7, 10)
    output, gradients, numbers = run(model, lambda model: model(x), train, True)
    with pytest.raises(UnseenError, match="no attention of layer 5"), intervene(model, Change("weights", 0.0, layer=5)):
        again, gradients_again, numbers_again = run(model, lambda model: model(x), train, True)
    assert torch.equal(output, again)
    assert all(torch.equal(gradient, gradients_again[key]) for key, gradient in gradients.items())
    assert torch.equal(numbers, numbers_again)
    heads = []
    model.out_proj.register_forward_pre_hook(lambda module, inputs: heads.append(inputs[0].detach()))
    model.train(train)
    for context in (nullcontext(), intervene(model, Change("weights", 0.375, head=1, queries=[1, 4], keys=0))):
        torch.manual_seed(3)
        with context:
            model(x)
    plain, changed = (each.unflatten(-1, (2, 5)) for each in heads)
    assert torch.equal(plain[:, :, 0], changed[:, :, 0])
    differs = (plain[:, :, 1] != changed[:, :, 1]).any(-1)
    assert not bool(differs[:, [0, 2, 3, 5, 6]].any())
    assert bool(differs[:, [1, 4]].all())


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("what", ["query", "key", "scores", "weights", "values", "output"])
def test_torch_modules_return_the_changed_weights(what, need_weights):
    model = nn.MultiheadAttention(10, 2, batch_first=True).double().eval()
    x = torch.randn(3, 7, 10, dtype=torch.float64)
    query, key, value = (
        F.linear(x, *parameters).unflatten(-1, (2, 5)).transpose(1, 2).detach()
        for parameters in zip(model.in_proj_weight.chunk(3), model.in_proj_bias.chunk(3), strict=True)
    )
    tensors = {"query": query, "key": key, "values": value}
    options = {"need_weights": need_weights, "attn_mask": ~CAUSAL}
    with torch.no_grad():
        with intervene(model, CHANGES["a tensor"](what)):
            output, weights = model(x, x, x, average_attn_weights=False, **options)
            _, average = model(x, x, x, **options)
        if what in tensors:
            put(tensors[what], what, lambda batch, part: tensor_of(what)[batch, 0])
        scores = query @ key.mT * 5**-0.5
        if what == "scores":
            put(scores, what, lambda batch, part: tensor_of(what)[batch, 0])
        expected = scores.masked_fill(~CAUSAL, -torch.inf).softmax(-1)
        if what == "weights":
            put(expected, what, lambda batch, part: tensor_of(what)[batch, 0])
            expected[:, :, ~CAUSAL] = 0.0
        heads = expected @ value
        if what == "output":
            put(heads, what, lambda batch, part: tensor_of(what)[batch, 0])
        torch.testing.assert_close(output, model.out_proj(heads.transpose(1, 2).flatten(-2)))
        if need_weights:
            torch.testing.assert_close(weights, expected)
            torch.testing.assert_close(average, expected.mean(1))


GRADIENTS = ("sdpa-causal", "softmax", "softmax-bmm", "regard", "regard-sparsemax")


@pytest.mark.parametrize("what", ["query", "scores", "weights", "values", "output"])
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_are_those_of_the_written_model(name, what):
    """Through changed heads, the tensor that stands there, and what a function returns."""
    attend, scale, visible, normalize = SOURCES[name]
    if name.startswith("softmax") and what == "query":
        pytest.skip("a softmax that is written by hand has no queries")
    model, x = Heads(attend).double(), torch.randn(3, 7, 10, dtype=torch.float64)
    given = tensor_of(what).double().requires_grad_()
    factor = torch.tensor(1.5, dtype=torch.float64, requires_grad=True)
    at = positions(what)
    hidden = torch.zeros(7, 7, dtype=torch.bool) if visible is None else ~visible

    def changed(tensor, to, number):
        rows = [0, 1, 2] if what == "values" else [5, 2]
        columns = [0, 1, 2] if what in ("scores", "weights") else list(range(tensor.shape[-1]))
        head, row, column = torch.tensor(number), torch.tensor(rows)[:, None], torch.tensor(columns)
        return tensor.index_put(
            (torch.arange(3)[:, None, None], head, row, column), to(tensor[:, number, rows][..., columns])
        )

    def written(x):
        query, key, value = model.heads(x)
        tensors = {"query": query, "values": value}
        for number, to in ((1, lambda part: given[:, 0]), (0, lambda part: part * factor)):
            if what in tensors:
                tensors[what] = changed(tensors[what], to, number)
        scores = tensors["query"] @ key.mT * scale
        if what == "scores":
            scores = changed(changed(scores, lambda part: given[:, 0], 1), lambda part: part * factor, 0)
        weights = normalize(scores.masked_fill(hidden, -torch.inf), -1)
        if what == "weights":
            weights = changed(changed(weights, lambda part: given[:, 0], 1), lambda part: part * factor, 0)
            weights = weights.masked_fill(hidden, 0.0)
        heads = weights @ tensors["values"]
        if what == "output":
            heads = changed(changed(heads, lambda part: given[:, 0], 1), lambda part: part * factor, 0)
        return model.out_proj(heads.transpose(1, 2).flatten(-2))

    leaves = [given, factor, *model.parameters()]
    expected = torch.autograd.grad(written(x).pow(2).sum(), leaves)
    with intervene(model, Change(what, given, head=1, **at), Change(what, lambda part: part * factor, head=0, **at)):
        output = model(x)
    for gradient, wanted in zip(torch.autograd.grad(output.pow(2).sum(), leaves), expected, strict=True):
        torch.testing.assert_close(gradient, wanted)


@pytest.mark.parametrize("name", ["sdpa-causal", "softmax", "softmax-einsum", "regard", "flex"])
def test_a_watch_records_the_changed_call(name):
    """Within and around the context: weights, entropy, outputs, kept tiles; the other head as it was."""
    attend, scale, visible, _ = SOURCES[name]
    model, x = Heads(attend).double(), torch.randn(3, 7, 10, dtype=torch.float64)
    changes = Change("weights", 0.5, head=1, keys=2), Change("values", 2.0, head=1, keys=[0, 6])
    read = regard.Readings(weights=True, entropy=True)
    with torch.no_grad():
        with intervene(model, *changes), regard.watch(model, read=read, keep=True, outputs=True) as within:
            output = model(x)
        with regard.watch(model, read=read, keep=True, outputs=True) as around, intervene(model, *changes):
            model(x)
        query, key, value = model.heads(x)
    scores = query @ key.mT * scale
    hidden = torch.zeros(7, 7, dtype=torch.bool) if visible is None else ~visible
    weights = scores.masked_fill(hidden, -torch.inf).softmax(-1)
    weights[:, 1, :, 2] = torch.where(hidden[:, 2], 0.0, 0.5)
    for call in (within.calls[0], around.calls[0]):
        torch.testing.assert_close(call.weights, weights)
        torch.testing.assert_close(call.entropy, torch.special.entr(weights).sum(-1))
        torch.testing.assert_close(call.value[:, 1, [0, 6]], torch.full((3, 2, 5), 2.0, dtype=torch.float64))
        torch.testing.assert_close(call.value[:, 0], value[:, 0])
        torch.testing.assert_close(call.head_output, weights @ call.value)
        torch.testing.assert_close(model.out_proj(call.head_output.transpose(1, 2).flatten(-2)), output)
        for row, tiles in enumerate(call.tiles):
            tile = torch.from_numpy(tiles.tile((1, 6), (0, 5)))
            torch.testing.assert_close(tile, weights[row, :, 1:6, :5].float())


@pytest.mark.parametrize("what", ["query", "key", "scores", "weights", "values", "output"])
@pytest.mark.parametrize("name", ["sdpa-causal", "softmax", "regard-sparsemax"])
def test_elements_of_another_run_stand_there(name, what):
    attend, scale, visible, normalize = SOURCES[name]
    model = Heads(attend).double()
    x, other = torch.randn(2, 3, 7, 10, dtype=torch.float64)
    with torch.no_grad(), regard.watch(model, read="view", keep=True, outputs=True) as seen:
        model(other)
    by_hand = name == "softmax"
    change = Change(what, seen, head=1, **positions(what))
    if by_hand and what in ("query", "key", "scores"):
        with pytest.raises(ArgumentError, match=r"written by hand|whose softmax"), intervene(model, change):
            model(x)
        return
    query, key, value = (part.detach().clone() for part in model.heads(other))
    scores = query @ key.mT * scale
    if visible is not None:
        scores[:, :, ~visible] = -torch.inf
    weights = normalize(scores, -1)
    tensors = {"query": query, "key": key, "scores": scores, "weights": weights, "values": value}
    source = tensors.get(what, weights @ value)

    def to(batch, part):
        rows = [0, 1, 2] if what in ("key", "values") else [5, 2]
        return source[batch, 1, rows][..., : part.shape[-1]]

    with torch.no_grad():
        expected = plainly(model, x, scale, visible, normalize, what, to)
        with intervene(model, change):
            output = model(x)
    torch.testing.assert_close(output, expected)


@pytest.mark.parametrize("kind", ["a tensor", "a function"])
@pytest.mark.parametrize("what", ["query", "key", "scores", "weights"])
def test_log_sums_of_changed_calls_have_gradients(what, kind):
    """`regard.flex_attention` returns the log-sum-exp of the changed scores, in calls with gradients as without."""
    torch.manual_seed(5)
    results = []

    def attend(query, key, value):
        results[:] = regard.flex_attention(query, key, value, return_lse=True)
        return results[0]

    model, x = Heads(attend).double(), torch.randn(3, 7, 10, dtype=torch.float64)
    factors = torch.randn(3, 2, 7, dtype=torch.float64)
    to = {
        "a tensor": lambda batch, part: tensor_of(what)[batch, 0],
        "a function": lambda batch, part: 2 * part.flip(-1),
    }
    query, key, _ = (part.clone() for part in model.heads(x))
    if what in ("query", "key"):
        put({"query": query, "key": key}[what], what, to[kind])
    scores = query @ key.mT * 5**-0.5
    if what == "scores":
        put(scores, what, to[kind])
    expected = scores.logsumexp(-1)
    parameters = list(model.project.parameters())
    wanted = torch.autograd.grad((expected * factors).sum(), parameters)
    with intervene(model, CHANGES[kind](what)):
        model(x)
        log_sums = results[1]
        with torch.no_grad():
            model(x)
    torch.testing.assert_close(log_sums, expected)
    torch.testing.assert_close(results[1], expected)
    torch.testing.assert_close(torch.autograd.grad((log_sums * factors).sum(), parameters), wanted)


def test_a_context_that_is_opened_again_begins_anew():
    """Its calls, its forward passes and what it met count from the start."""
    model, x = Heads(HAND_WRITTEN["sdpa"][0]), torch.randn(3, 7, 10)
    with torch.no_grad():
        with regard.watch(model, outputs=True) as seen:
            expected = model(x)
        context = intervene(model, Change("output", seen))
        for _ in range(2):
            with context:
                torch.testing.assert_close(model(2 * x), expected)
            assert [call.forward for call in context.calls] == [0]
    with pytest.raises(UnseenError, match="was called in this context"), context:
        pass


ONE = [np.int64(1), np.array(1), torch.tensor(1)]
BOTH = [np.array([0, 1]), torch.tensor([0, 1]), [torch.tensor(0), np.int32(1)]]


@pytest.mark.parametrize("index", [*ONE, *BOTH], ids=repr)
def test_indices_of_arrays_and_tensors_are_those_of_python(index):
    plain = [0, 1] if any(index is each for each in BOTH) else 1
    for name in ("layer", "head", "queries", "keys"):
        change = Change("weights", 0.0, **{name: index})
        assert getattr(change, name) == getattr(Change("weights", 0.0, **{name: plain}), name)
        assert all(type(each) is int for each in getattr(change, name))
        for wrong in (torch.tensor(1.5), np.array(True), torch.ones(1, 1)):
            with pytest.raises(KindError, match=f"{name}.* must be an integer"):
                Change("weights", 0.0, **{name: wrong})
    if plain == 1:
        model = models.LanguageModel(models.LanguageModelConfig(9, context=4, hidden=8, layers=2, heads=2)).eval()
        with regard.watch(model, inputs=True) as seen:
            model(torch.tensor([[1, 2, 3]]))
        pair = [regard.explain_weight(seen, each, each, each, each, against=each - 1) for each in (index, plain)]
        assert np.array_equal(pair[0].pairs, pair[1].pairs)
