"""The shortest way for the usual call: what the longer way gives, bit for bit, or left to it."""

import pytest
import torch
from torch import nn

import regard
from regard import masks, normalizers, scores
from regard.attention import Backend, planner, register_backend, shortcut, unregister_backend, verbs
from regard.attention.execution import recorded_calls
from regard.attention.shortcut import attend_shortly
from regard.errors import ArgumentError, ShapeError
from regard.kernels.availability import why_missing

SIZES = [
    (1, 1, 4, 4, 8),
    (1, 1, 1, 64, 4),
    (2, 3, 5, 64, 8),
    (1, 8, 120, 120, 64),
    (4, 8, 1, 300, 16),
    (1, 2, 300, 65, 1),
]


def inputs(batch=2, heads=4, queries=16, keys=64, dim=8, **options):
    query = torch.randn(batch, heads, queries, dim, **options)
    return query, *(torch.randn(batch, heads, keys, dim, **options) for _ in range(2))


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_it_is_what_the_planner_would_choose(size):
    given = inputs(*size)
    output = attend_shortly(*given)
    assert output is not None
    assert regard.plan(*given).backend == "sdpa"
    assert torch.equal(output, regard.attend(*given, backend="sdpa"))
    assert torch.equal(output, regard.attend(*given))
    assert torch.equal(output, regard.observe(*given).output)


@pytest.mark.parametrize("wide", [False, True])
def test_many_pairs_are_left_to_wide_products(monkeypatch, wide):
    monkeypatch.setattr(shortcut, "microkernel_is_faster", lambda: wide)
    monkeypatch.setattr(planner, "microkernel_is_faster", lambda: wide)
    given = inputs(4, 8, 128, 128)
    assert regard.plan(*given).backend == ("cpu" if wide and why_missing() is None else "sdpa")
    output = attend_shortly(*given)
    if wide:
        assert output is None
    else:
        assert torch.equal(output, regard.attend(*given, backend="sdpa"))


def test_a_causal_step_is_the_attend_shortly():
    given = inputs(queries=1)
    output = regard.attend(*given)
    assert torch.equal(attend_shortly(*given, masks.causal()), output)
    assert torch.equal(regard.attend(*given, mask=masks.causal()), output)
    assert regard.plan(*given, mask=masks.causal()).backend == "sdpa"
    others = masks.causal("start"), masks.causal(offset=63), masks.window(99), masks.lengths(64), torch.ones(1, 64) > 0
    for mask in others:
        assert attend_shortly(*given, mask) is None
    assert attend_shortly(*inputs(queries=2), masks.causal()) is None


LENGTHS = [[5, 64], [64, 3], [0, 64], [0, 0], [1, 1]]


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("size", [(2, 4, 16, 64, 8), (2, 1, 1, 64, 1), (2, 3, 70, 64, 20)], ids=str)
def test_lengths_of_keys_of_a_small_problem(size, lengths):
    given = inputs(*size)
    for mask in (masks.lengths(lengths), masks.lengths(torch.tensor(lengths))):
        assert regard.plan(*given, mask=mask).backend == "reference"
        wanted = regard.attend(*given, mask=mask, backend="reference")
        assert torch.equal(regard.attend(*given, mask=mask), wanted)
        assert torch.equal(regard.observe(*given, mask=mask).output, wanted)
        if min(lengths) == 0:
            assert attend_shortly(*given, mask) is None
            continue
        assert torch.equal(attend_shortly(*given, mask), wanted)
        assert torch.equal(attend_shortly(*given, mask), wanted)  # the second time from what the mask has kept
        shorter = inputs(*size[:3], 70, size[4])
        assert torch.equal(attend_shortly(*shorter, mask), regard.attend(*shorter, mask=mask, backend="reference"))


def test_lengths_that_are_left_to_the_longer_way():
    given = inputs()
    for mask in (
        masks.lengths([64, 64]),
        masks.lengths([5, 64], queries=[16, 3]),
        masks.lengths([5, 9]) & masks.causal(),
    ):
        assert attend_shortly(*given, mask) is None
        assert torch.equal(regard.attend(*given, mask=mask, backend="auto"), regard.observe(*given, mask=mask).output)
    assert attend_shortly(*inputs(queries=256, keys=256), masks.lengths([5, 64])) is None
    mask = masks.lengths([5, 64])
    query, key, value = given
    key[0, :, 5:] = torch.nan  # hidden
    value[0, :, 5:] = torch.inf
    assert attend_shortly(*given, mask) is None
    wanted = regard.attend(query, key.nan_to_num(), value.nan_to_num(posinf=0), mask=mask, backend="reference")
    assert torch.equal(regard.attend(*given, mask=mask), wanted)


@pytest.mark.parametrize(
    ("lengths", "message"), [([5], r"\[batch\] = \[2\]"), ([5, 65], "in 0..64; it is 65"), ([-1, 5], "at least 0|in 0")]
)
def test_wrong_lengths(lengths, message):
    for mask in (masks.lengths(lengths), masks.lengths(torch.tensor(lengths))):
        for _ in range(2):
            with pytest.raises((ShapeError, ArgumentError), match=message):
                regard.attend(*inputs(), mask=mask)


def test_with_leaves_where_no_gradient_is_taken():
    given = inputs(requires_grad=True)
    assert attend_shortly(*given) is None
    with torch.no_grad():
        assert attend_shortly(*given) is not None


def transposed(tensor):
    return tensor.transpose(-1, -2).contiguous().transpose(-1, -2)


@pytest.mark.parametrize(
    "given",
    [
        [torch.full((2, 4, 63, 8), torch.nan)] * 3,
        inputs(dtype=torch.float64),
        inputs(dtype=torch.bfloat16),
        inputs(device="meta"),
        inputs(queries=0),
        inputs(batch=0),
        inputs(dim=0),
        inputs(64, 16, 1, 1024, 64),
        [nn.Parameter(tensor, requires_grad=False) for tensor in inputs()],
        [tensor[0] for tensor in inputs()],
        [transposed(tensor) for tensor in inputs()],
        [*inputs()[:2], torch.randn(2, 4, 64, 9)],
        [inputs()[0], *(tensor[:, :2] for tensor in inputs()[1:])],
        [inputs()[0], *(tensor[:1] for tensor in inputs()[1:])],
        [inputs(dim=9)[0], *inputs()[1:]],
        [inputs()[0].tolist(), *inputs()[1:]],
        [*inputs()[:2], None],
    ],
    ids=[
        "NaN and few keys", "float64", "bfloat16", "meta", "no queries", "no batch", "no features", "numbers",
        "parameters", "axes", "features apart", "two widths", "grouped heads", "batches", "widths", "list", "None",
    ],
)  # fmt: skip
def test_what_is_not_usual_is_left_alone(given):
    assert attend_shortly(*given) is None


def test_other_options_are_not_usual(monkeypatch):
    given = inputs()
    for options in ({"score": scores.Dot()}, {"score": len}, {"normalizer": normalizers.as_normalizer("hard")}):
        assert attend_shortly(*given, **options) is None
    monkeypatch.setattr(verbs, "attend_shortly", lambda *_: pytest.fail("not a usual call"))
    for options in ({"dropout": 0.1}, {"dropout": 0}, {"backend": "reference"}, {"bias": torch.zeros(1)}):
        regard.attend(*given, **options)


def test_it_stays_out_of_the_way_of_those_who_look():
    given = inputs()
    with recorded_calls() as calls:
        regard.attend(*given)
    assert len(calls) == 1
    with torch.autocast("cpu", torch.bfloat16):
        assert attend_shortly(*given) is None
    assert torch.func.vmap(lambda query: torch.tensor(attend_shortly(query, *given[1:]) is None))(given[0][None]).all()
    with torch.autograd.forward_ad.dual_level():
        assert attend_shortly(*given) is None
    assert torch.compile(lambda *tensors: attend_shortly(*tensors) is None, backend="eager", fullgraph=True)(*given)


class Ones(Backend):
    name = "ones"

    def run(self, problem, gatherer=None):
        return torch.ones(*problem.query.shape[:3], problem.value.shape[3])


def test_a_backend_that_comes_first_is_asked_first():
    register_backend(Ones(), before="sdpa")
    try:
        assert (regard.attend(*inputs()) == 1).all()
    finally:
        unregister_backend("ones")


def test_it_is_seen_by_watch():
    class Model(nn.Module):
        def forward(self, query, key, value):
            return regard.attend(query, key, value)

    with regard.watch(Model()) as seen:
        seen.model(*inputs())
    assert len(seen.calls) == 1
