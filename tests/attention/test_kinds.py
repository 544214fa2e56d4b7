"""A call is planned once for its kind: later calls give what the first one gives, and no kind serves another."""

import gc
import os
import weakref
from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import regard
from covering import covering
from in_threads import in_threads
from regard import biases, masks, normalizers, scores
from regard.attention import Backend, register_backend, routes, unregister_backend
from regard.attention.execution import recorded_calls
from regard.attention.kinds import kind_of
from regard.attention.routes import ROUTES, route_of
from regard.errors import RegardError
from regard.kernels.availability import kernels_awaited
from regard.shapes.grid import POSITION_LIMIT, Grid


@pytest.fixture(autouse=True)
def _no_routes():
    ROUTES.clear()
    with kernels_awaited():
        yield
    ROUTES.clear()


def inputs(batch=2, heads=4, queries=16, keys=16, dim=8, value_dim=None, kv_heads=None, **options):
    kv_heads, value_dim = kv_heads or heads, value_dim or dim
    shapes = (batch, heads, queries, dim), (batch, kv_heads, keys, dim), (batch, kv_heads, keys, value_dim)
    return [torch.randn(shape, **options) for shape in shapes]


SIZES = {
    "square": {},
    "more keys": {"keys": 70},
    "fewer keys": {"keys": 9},
    "one query": {"queries": 1, "keys": 80},
    "grouped": {"kv_heads": 2},
    "widths": {"value_dim": 5},
    "odd": {"batch": 5, "heads": 2, "queries": 11, "keys": 11, "dim": 6},
    "many": {"queries": 150, "keys": 150, "dim": 32},
}
SCORES = {
    "scaled_dot": lambda: "scaled_dot",
    "scale": lambda: scores.ScaledDot(0.3),
    "learned scale": lambda: scores.ScaledDot(torch.rand(1, 1, 1)),
    "cosine": lambda: "cosine",
    "cap": lambda: scores.SoftCap("scaled_dot", 2.0),
}
NORMALIZERS = {
    "softmax": lambda: "softmax",
    "sparsemax": lambda: "sparsemax",
    "temperature": lambda: normalizers.Softmax(0.5),
    "sink": lambda: normalizers.softmax_with_sink(torch.randn(1)),
    "top k": lambda: normalizers.TopK(3, normalizers.softmax),
}
MASKS = {
    "none": lambda queries, keys: None,
    "causal": lambda queries, keys: masks.causal(),
    "name": lambda queries, keys: "causal",
    "window": lambda queries, keys: masks.window(3, 1),
    "window and sinks": lambda queries, keys: (masks.window(3, 0) | masks.prefix(2)) & masks.causal(),
    "lengths": lambda queries, keys: masks.lengths(torch.randint(0, keys + 1, (5 if keys == 11 else 2,))),
    "tensor": lambda queries, keys: torch.rand(5 if keys == 11 else 2, 1, queries, keys) > 0.3,
    "keep": lambda queries, keys: masks.keep(torch.rand(queries, keys) > 0.5),
}
BIASES = {"none": lambda: None, "alibi": lambda: "alibi", "tensor": lambda: torch.randn(1, 1, 1)}


def results(given, gradient, **options):
    """The output and the gradients of one call."""
    leaves = [tensor.detach().clone(memory_format=torch.preserve_format).requires_grad_(gradient) for tensor in given]
    output = regard.attend(*leaves, **options)
    if not gradient:
        return [output]
    torch.manual_seed(3)
    return [output, *torch.autograd.grad(output, leaves, torch.randn_like(output))]


def anew(call, *given, **options):
    """The same of a call whose kind is unknown."""
    ROUTES.clear()
    return call(*given, **options)


def are_equal(left, right):
    return all(torch.equal(one.isnan(), other.isnan()) for one, other in zip(left, right, strict=True)) and all(
        torch.equal(one.nan_to_num(), other.nan_to_num()) for one, other in zip(left, right, strict=True)
    )


@covering(
    size=SIZES, score=SCORES, normalizer=NORMALIZERS, mask=MASKS, bias=BIASES, gradient=[False, True],
    dtype=[torch.float32, torch.float64, torch.bfloat16], layout=["plain", "heads inside"],
)  # fmt: skip
def test_later_calls_of_a_kind_give_the_result_of_the_first(
    size, score, normalizer, mask, bias, gradient, dtype, layout
):
    torch.manual_seed(0)
    made = [[LAYOUTS[layout](tensor) for tensor in inputs(**SIZES[size], dtype=dtype)] for _ in range(4)]
    queries, keys = made[0][0].shape[2], made[0][1].shape[2]
    options = [
        {
            "score": SCORES[score](), "normalizer": NORMALIZERS[normalizer](), "mask": MASKS[mask](queries, keys),
            "bias": BIASES[bias](),
        }
        for _ in made
    ]  # fmt: skip
    wanted = [anew(results, each, gradient, **one) for each, one in zip(made, options, strict=True)]
    seen = [anew(regard.observe, *each, **one) for each, one in zip(made, options, strict=True)]
    ROUTES.clear()
    for each, one, right, reading in zip(made, options, wanted, seen, strict=True):
        assert are_equal(results(each, gradient, **one), right)
        again = regard.observe(*each, **one)
        assert are_equal([each for each in again if each is not None], [each for each in reading if each is not None])
    assert len(ROUTES) <= 2 + 2 * gradient
    for each, one in zip(made, options, strict=True):
        planned = regard.plan(*(tensor.requires_grad_(gradient) for tensor in each), **one).backend
        kind = kind_of(*each, *(one[name] for name in ("score", "normalizer", "mask", "bias")), 0.0, "auto")
        route = route_of(kind, *each)
        assert route is not None
        assert route.backend.name == planned


@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("score", ["scaled_dot", "cosine"])
@pytest.mark.parametrize("axes", [2, 3])
def test_calls_with_fewer_axes_have_routes_too(axes, score, gradient):
    torch.manual_seed(0)
    batch = (2,) if axes == 3 else ()
    options = [
        {},
        {"mask": "causal"},
        {"mask": masks.window(3, 0)},
        {"mask": torch.rand(*batch, 16, 16) > 0.3},
        {"bias": torch.randn(*batch, 16, 16), "mask": masks.lengths(9)},
        *([{"mask": masks.lengths(torch.tensor(each))} for each in ([16, 16], [3, 16], [0, 9])] if batch else []),
    ]
    made = [[torch.randn(*batch, 16, 8) for _ in range(3)] for _ in range(3)]
    for one in options:
        wanted = [anew(results, given, gradient, score=score, **one) for given in made]
        seen = [anew(regard.observe, *given, score=score, **one) for given in made]
        for given, right, reading in zip(made, wanted, seen, strict=True):
            assert are_equal(results(given, gradient, score=score, **one), right)
            again = regard.observe(*given, score=score, **one)
            assert all(one is None or torch.equal(one, other) for one, other in zip(again, reading, strict=True))


BASE = {"score": "scaled_dot", "normalizer": "softmax", "mask": None, "bias": None, "dropout": 0.0, "backend": "auto"}
OPTIONS = [
    {},
    {"score": "dot"},
    {"score": scores.ScaledDot(0.1)},
    {"score": scores.ScaledDot(0.2)},
    {"score": scores.Additive(torch.ones(8))},
    {"score": scores.SoftCap("scaled_dot", 1.0)},
    {"score": scores.SoftCap("scaled_dot", 2.0)},
    {"score": "cosine"},
    {"normalizer": "sparsemax"},
    {"normalizer": normalizers.entmax(1.5)},
    {"normalizer": normalizers.entmax(1.7)},
    {"normalizer": normalizers.Softmax(2.0)},
    {"normalizer": "sigmoid"},
    {"mask": "causal"},
    {"mask": masks.causal("start")},
    {"mask": masks.causal(offset=2)},
    {"mask": masks.causal(offset=[1, 2])},
    {"mask": masks.window(2, 0)},
    {"mask": masks.window(3, 0)},
    {"mask": masks.window(2, 1)},
    {"mask": masks.prefix(3)},
    {"mask": masks.prefix(4)},
    {"mask": ~masks.prefix(4)},
    {"mask": masks.dilated(2)},
    {"mask": masks.window(2, 0) | masks.prefix(3)},
    {"mask": masks.window(2, 0) & masks.prefix(3)},
    {"mask": masks.lengths([3, 16])},
    {"mask": masks.lengths([16, 16])},
    {"mask": masks.lengths([0, 16])},
    {"mask": masks.lengths([3, 16], queries=[2, 16])},
    {"mask": masks.documents(torch.arange(16).expand(2, -1) // 5)},
    {"mask": torch.ones(16, 16).tril() > 0},
    {"mask": torch.ones(2, 1, 1, 16) > 0},
    {"bias": "alibi"},
    {"bias": torch.ones(16, 16).triu()},
    {"bias": biases.alibi(4)},
    {"backend": "reference"},
    {"backend": "tiled"},
    {"backend": "sdpa"},
    {"backend": "cpu"},
]
LAYOUTS = {
    "plain": lambda tensor: tensor,
    "features apart": lambda tensor: tensor.mT.contiguous().mT,
    "heads inside": lambda tensor: tensor.transpose(1, 2).contiguous().transpose(1, 2),
    "expanded": lambda tensor: tensor[:, :1].expand_as(tensor),
    "negated": lambda tensor: torch._neg_view(tensor),
    "parameter": lambda tensor: nn.Parameter(tensor, requires_grad=False),
    "float64": lambda tensor: tensor.double(),
    "bfloat16": lambda tensor: tensor.bfloat16(),
    "fewer heads": lambda tensor: tensor[:, :2],
    "fewer rows": lambda tensor: tensor[:1],
    "wider": lambda tensor: torch.cat((tensor, tensor), -1),
    "longer": lambda tensor: torch.cat((tensor, tensor), 2),
    "one head": lambda tensor: tensor[:, 0],
    "leaf": lambda tensor: tensor.clone().requires_grad_(),
}


def outcome(given, options):
    try:
        return regard.attend(*given, **{**BASE, **options})
    except RegardError as error:
        return str(error)


def same_outcome(one, other):
    return one == other if isinstance(one, str) or isinstance(other, str) else are_equal([one], [other])


def test_a_route_serves_no_call_that_differs_in_an_option():
    torch.manual_seed(0)
    given = inputs()
    wanted = [anew(outcome, given, options) for options in OPTIONS]
    assert sum(not same_outcome(one, other) for one, other in pairwise(wanted)) > 30
    for _ in range(3):
        for options, right in zip(OPTIONS, wanted, strict=True):
            assert same_outcome(outcome(given, options), right), options


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"mask": "causal"},
        {"normalizer": "sparsemax"},
        {"mask": masks.lengths([3, 16])},
        {"score": scores.Additive(torch.ones(8))},
    ],
)
def test_a_route_serves_no_tensors_that_differ_in_anything_else(options):
    torch.manual_seed(0)
    calls = []
    for change in LAYOUTS.values():
        for place in ((0,), (1,), (2,), (1, 2), (0, 1, 2)):
            given = inputs()
            calls.append([change(tensor) if index in place else tensor for index, tensor in enumerate(given)])
    wanted = [anew(outcome, given, options) for given in calls]
    for _ in range(3):
        for given, right in zip(calls, wanted, strict=True):
            assert same_outcome(outcome(given, options), right)


def test_modes_of_pytorch_have_kinds_of_their_own():
    leaves = inputs(requires_grad=True)
    plain = [tensor.detach() for tensor in leaves]
    for _ in range(4):
        assert regard.attend(*leaves, mask="causal").requires_grad
        with torch.no_grad():
            assert not regard.attend(*leaves, mask="causal").requires_grad
        with torch.inference_mode():
            assert regard.attend(*plain, mask="causal").is_inference()
        assert not regard.attend(*plain, mask="causal").is_inference()
        with torch.autocast("cpu", torch.bfloat16):
            assert regard.attend(*plain[:2], plain[2].bfloat16(), mask="causal").dtype == torch.bfloat16
        with recorded_calls() as calls:
            regard.attend(*plain, mask="causal")
        assert len(calls) == 1
        mapped = torch.func.vmap(lambda *rows: regard.attend(*rows, mask="causal"))(*(one[None] for one in plain))
        torch.testing.assert_close(mapped[0], regard.attend(*plain, mask="causal"))
        _, tangent = torch.func.jvp(
            lambda query: regard.attend(query, *plain[1:], mask="causal"), (plain[0],), (plain[0],)
        )
        assert tangent.abs().max() > 0
    compiled = torch.compile(lambda *given: regard.attend(*given, mask="causal"), backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(*plain), regard.attend(*plain, mask="causal"))


@pytest.mark.parametrize("mask", [None, "causal", masks.window(3, 0), masks.lengths([9, 16]), torch.eye(16) > 0])
@pytest.mark.parametrize("queries", [16, 150])
def test_checkpointed_calls_save_and_compute_the_same_again(mask, queries):
    torch.manual_seed(0)
    leaves = inputs(queries=queries, requires_grad=True)
    mask = None if isinstance(mask, torch.Tensor) and queries != 16 else mask

    def gradients(call):
        return torch.autograd.grad(call(*leaves).square().sum(), leaves)

    def attend(*given):
        return regard.attend(*given, mask=mask)

    right = anew(gradients, attend)
    for is_known in (False, False, True, True):
        if not is_known:
            ROUTES.clear()
        again = gradients(lambda *given: checkpoint(attend, *given, use_reentrant=False))
        assert all(torch.equal(one, other) for one, other in zip(again, right, strict=True))


def test_masked_keys_stay_hidden_in_later_calls():
    for mask in ("causal", masks.lengths([9, 9]), torch.ones(16, 16).tril() > 0):
        given = inputs()
        for _ in range(3):
            right = regard.attend(*given, mask=mask)
        for tensor in given[1:]:
            tensor[:, :, 12:] = torch.nan
        output = regard.attend(*given, mask=mask)
        torch.testing.assert_close(output[:, :, :9], right[:, :, :9])
        finite = inputs()
        for _ in range(3):
            results(finite, True, mask=mask)
        assert are_equal(results(given, True, mask=mask), anew(results, given, True, mask=mask))
    given = inputs()
    for _ in range(3):
        regard.attend(*given)
    given[0][0, 0, 3] = torch.nan
    assert regard.attend(*given)[0, 0, 3].isnan().all()


def test_mistakes_are_told_again_and_again():
    given = inputs()
    mistakes = [
        (given, {"mask": masks.lengths([3, 17])}),
        (given, {"mask": masks.lengths(torch.tensor([3, 17]))}),
        (given, {"dropout": False}),
        (given, {"dropout": 1.0}),
        (given, {"backend": "nothing"}),
        (given, {"backend": ["sdpa"]}),
        (given, {"backend": None}),
        (given, {"score": "scaled"}),
        (given, {"normalizer": 3}),
        (given, {"mask": torch.ones(16, 16)}),
        ([given[0].tolist(), *given[1:]], {}),
        ([*given[:2], None], {}),
        ([*given[:2], given[2][:, :, :3]], {}),
    ]
    for _ in range(3):
        regard.attend(*given, mask=masks.lengths(torch.tensor([3, 16])))
        regard.attend(*given, mask=masks.lengths([3, 16]))
        regard.attend(*given)
    for tensors, options in mistakes:
        told = {outcome(tensors, options) for _ in range(3)}
        assert len(told) == 1
        assert isinstance(told.pop(), str)


def test_a_growing_cache_is_of_few_kinds():
    keys, values = torch.randn(1, 4, 900, 16), torch.randn(1, 4, 900, 16)
    for count in range(100, 900, 7):
        query, key, value = torch.randn(1, 4, 1, 16), keys[:, :, :count], values[:, :, :count]
        output = regard.attend(query, key, value, mask="causal")
        assert torch.equal(output, regard.attend(query, key, value, backend=regard.plan(query, key, value).backend))
    assert len([kind for kind in ROUTES if kind[-1] == "auto"]) <= 6


STEP_MASKS = {
    "window": masks.window(30, 0),
    "window of the past": masks.window(40, None),
    "window and prefix": masks.window(30, 0) | masks.prefix(5) & masks.causal(),
    "long prefix": masks.prefix(150),
    "prefix and window": masks.prefix(90) & masks.window(70, 3) | masks.prefix(2),
    "nothing, then some": masks.prefix(100) & masks.window(20, 0),
    "from the start": masks.window(300, 120, align="start"),
    "of an offset": masks.window(50, 0, offset=130),
    "lengths": masks.lengths(60),
    "not a prefix": ~masks.prefix(80),
    "every third": masks.dilated(3) & masks.window(60, 0),
    "chunks": masks.chunks(24, before=1) & masks.causal(),
}


@pytest.mark.parametrize("heads", [(2, 2), (8, 8), (8, 2)])
@pytest.mark.parametrize("name", STEP_MASKS)
def test_steps_of_a_growing_cache_under_a_mask(name, heads):
    torch.manual_seed(0)
    dim = 16 if heads == (2, 2) else 64
    cache, mask = torch.randn(2, 2, heads[1], 260, dim), STEP_MASKS[name]
    for keys in (*range(60, 250), 70, 69, 71, 200):
        key, value = cache[:, :, :, :keys]
        query = torch.randn(2, heads[0], 1, dim)
        output = regard.attend(query, key, value, mask=mask)
        plan = regard.plan(query, key, value, mask=mask)
        assert torch.equal(output, regard.attend(query, key, value, mask=mask, backend=plan.backend))
        if keys % 20 == 0:
            hidden = ~mask.allows(Grid.of(query, key)).expand(2, 1, 1, keys)
            spoiled = [each.masked_fill(hidden.mT, torch.nan) for each in (key, value)]
            assert are_equal([regard.attend(query, *spoiled, mask=mask)], [output])
            seen = regard.observe(query, key, value, mask=mask)
            assert torch.equal(seen.output, output)
            given = query, key, value
            assert are_equal(results(given, True, mask=mask), anew(results, given, True, mask=mask))
    by_position = name in ("window", "window and prefix", "chunks")
    assert not by_position or len([kind for kind in ROUTES if kind[-1] == "auto"]) <= 8


class Ones(Backend):
    name = "ones"

    def run(self, problem, gatherer=None):
        return torch.ones_like(problem.query)


def test_a_registered_backend_is_asked_from_then_on():
    given = inputs()
    right = [regard.attend(*given) for _ in range(3)][-1]
    register_backend(Ones(), before="sdpa")
    try:
        assert (regard.attend(*given) == 1).all()
    finally:
        unregister_backend("ones")
    assert torch.equal(regard.attend(*given), right)


def test_modules_are_called_where_somebody_looks(monkeypatch):
    given, calls = inputs(), []
    normalizer, score = normalizers.Entmax(1.5), scores.ScaledDot(0.5)
    options = {"normalizer": normalizer, "score": score, "mask": "causal", "backend": "reference"}
    for _ in range(3):
        regard.attend(*given, **options)
    handle = normalizer.register_forward_hook(lambda *_: calls.append(1))
    regard.attend(*given, **options)
    handle.remove()
    assert calls == [1]
    score.prepare = lambda query, key: scores.ScaledDot(0.5).prepare(2 * query, key)
    right = regard.attend(2 * given[0], *given[1:], **{**options, "score": scores.ScaledDot(0.5)})
    assert torch.equal(regard.attend(*given, **options), right)
    score.scale = 0.1
    del score.prepare
    right = anew(regard.attend, *given, **options)
    assert torch.equal(regard.attend(*given, **options), right)

    own = scores.ScaledDot.prepare
    with monkeypatch.context() as patched:
        patched.setattr(scores.ScaledDot, "prepare", lambda self, query, key: own(self, 3 * query, key))
        thrice = anew(regard.attend, *given, **options)
    for _ in range(3):
        assert torch.equal(regard.attend(*given, **options), right)
    monkeypatch.setattr(scores.ScaledDot, "prepare", lambda self, query, key: own(self, 3 * query, key))
    assert torch.equal(regard.attend(*given, **options), thrice)
    monkeypatch.undo()

    class Twice(scores.ScaledDot):
        def prepare(self, query, key):
            return super().prepare(2 * query, key)

    twice = {**options, "score": Twice(0.1)}
    for _ in range(3):
        assert torch.equal(regard.attend(*given, **twice), anew(regard.attend, *given, **twice))


def test_there_are_few_routes_and_they_keep_no_tensor(monkeypatch):
    monkeypatch.setattr(routes, "ROUTE_LIMIT", 5)
    for keys in range(20, 40):
        given = [*inputs(keys=keys), torch.rand(16, keys) > 0.2]
        score = scores.Additive(torch.ones(8))
        for _ in range(3):
            regard.attend(*given[:3], mask=given[3])
            regard.attend(*given[:3], mask=masks.lengths(torch.tensor([3, 16])))
            regard.observe(*given[:3], mask="causal")
            regard.attend(*given[:3], score=score, bias=torch.zeros(4, 1, 1))
        assert 0 < len(ROUTES) <= 5
    kept = [weakref.ref(tensor) for tensor in (*given, score.weight)]
    del given, score
    gc.collect()
    assert all(reference() is None for reference in kept)


def test_threads_and_processes_share_no_numbers():
    given = [inputs() for _ in range(4)]
    calls = [{}, {"mask": "causal"}, {"score": scores.Additive(torch.ones(8))}, {"normalizer": "sparsemax"}]
    wanted = [[anew(regard.observe, *each, **options) for options in calls] for each in given]
    wrong = []

    def work(place):
        for _ in range(50):
            for options, right in zip(calls, wanted[place], strict=True):
                seen = regard.observe(*given[place], **options)
                wrong.append(not all(torch.equal(one, other) for one, other in zip(seen[:2], right[:2], strict=True)))
                wrong.append(not torch.equal(regard.attend(*given[place], **options), right.output))

    in_threads(4, work)
    assert len(wrong) == 4 * 50 * 8
    assert not any(wrong)
    if hasattr(os, "fork"):
        child = os.fork()
        if child == 0:
            output = regard.attend(*given[0], mask="causal")
            os._exit(0 if torch.equal(output, wanted[0][1].output) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_calls_with_functions_have_no_kind():
    given = inputs()
    rest = (None, 0.0, "auto")
    assert kind_of(*given, "scaled_dot", "softmax", None, *rest) is not None
    assert kind_of(*given, lambda query, key: query @ key.mT, "softmax", None, *rest) is None
    assert kind_of(*given, "scaled_dot", lambda rows: rows, None, *rest) is None
    assert kind_of(*given, "scaled_dot", "softmax", masks.where(lambda b, h, q, k: q >= k), *rest) is None


def changed(normalizer, name, value):
    setattr(normalizer, name, value)
    return normalizer


@pytest.mark.parametrize(
    ("make", "change"),
    [
        (lambda: normalizers.entmax(1.5), lambda part: changed(part, "alpha", 2.0)),
        (lambda: normalizers.Softmax(0.5), lambda part: changed(part, "temperature", 3.0)),
        (lambda: normalizers.entmax(1.7), lambda part: part.register_forward_hook(lambda *_: torch.zeros(()))),
    ],
)
def test_a_route_does_not_compute_with_the_part_of_another_call(make, change):
    given, part = inputs(), make()
    right = anew(regard.attend, *given, normalizer=part, mask=masks.lengths([9, 16]))
    for _ in range(3):
        regard.attend(*given, normalizer=part, mask=masks.lengths([9, 16]))
    change(part)
    assert torch.equal(regard.attend(*given, normalizer=make(), mask=masks.lengths([9, 16])), right)


@pytest.mark.parametrize("mask", [masks.lengths([16, 9]), masks.window(1, 0), torch.ones(16, 16).tril() > 0])
@pytest.mark.parametrize("huge", [torch.inf, torch.nan, 1e25])
def test_no_gradient_of_any_size_reaches_hidden_keys_in_later_calls(huge, mask):
    torch.manual_seed(0)
    leaves = inputs(requires_grad=True)
    with torch.no_grad():
        leaves[2][:, :, 12:] = 1e15
    gradient = torch.ones(2, 4, 16, 8)
    gradient[:, :, 0] = huge
    wanted = torch.autograd.grad(anew(regard.attend, *leaves, mask=mask), leaves, gradient)
    for _ in range(3):
        seen = torch.autograd.grad(regard.attend(*leaves, mask=mask), leaves, gradient)
        assert are_equal(seen, wanted)


def test_tensors_without_memory_are_zeros_in_later_calls():
    query, key, value = inputs()
    zero = torch._efficientzerotensor(query.shape)
    right = regard.attend(torch.zeros_like(query), key, value)
    for _ in range(3):
        torch.testing.assert_close(regard.attend(zero, key, value), right)


def test_elements_of_scores_and_offsets_are_checked_in_later_calls():
    given = inputs()
    score = scores.Decayed("cosine", torch.full((4,), -0.5))
    for _ in range(3):
        regard.attend(*given, score=score)
    score.log_decay.fill_(0.5)
    assert "at most 0" in outcome(given, {"score": score})
    for offset in (1, 1, 1):
        regard.observe(*given, mask=masks.causal(offset=torch.tensor([offset, 0])))
    with pytest.raises(RegardError, match="offset"):
        regard.observe(*given, mask=masks.causal(offset=torch.tensor([POSITION_LIMIT + 1, 0])))


def test_small_masks_are_made_where_the_tensors_are():
    given = inputs()
    right = [regard.attend(*given, mask=masks.lengths([9, 16])) for _ in range(3)][-1]
    with torch.device("meta"):
        for _ in range(3):
            assert torch.equal(regard.attend(*given, mask=masks.lengths([9, 16])), right)


def test_a_mask_does_not_change():
    for mask, name, value in ((masks.window(1, 0), "before", 3), (masks.dilated(2), "allows", masks.prefix(2).allows)):
        with pytest.raises(RegardError, match="a mask does not change"):
            setattr(mask, name, value)


def test_a_gradient_of_the_output_itself_needs_no_second_derivative():
    leaves = inputs(batch=1, queries=300, keys=300, dim=32, requires_grad=True)
    for _ in range(3):
        output = regard.attend(*leaves)
        (gradient,) = torch.autograd.grad(output.square().sum(), output, create_graph=True)
        assert torch.equal(gradient, 2 * output)


class Skipping(masks.Keep):
    def __init__(self, tensor, count):
        super().__init__(tensor)
        self.count = count


def test_masks_of_a_users_subclass_equal_themselves_alone():
    tensor = torch.ones(4, 4, dtype=torch.bool)
    first, second = Skipping(tensor, 1), Skipping(tensor, 3)
    assert first == first
    assert first != second
    assert masks.keep(tensor) == masks.keep(tensor)
