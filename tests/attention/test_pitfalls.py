"""What a plan remarks: masks whose structure a tensor hides, functions, compilation; nothing where there is nothing."""

import html
import re

import pytest
import torch

import regard
from regard import masks, scores
from regard.attention import execution
from regard.attention.execution import BACKENDS
from regard.kernels.availability import kernels_awaited
from regard.shapes.grid import Grid

BATCH, LENGTH, KEYS = 3, 9, 12
LENGTHS = LENGTH, KEYS, KEYS
INPUTS = [torch.randn(BATCH, 2, length, 8, generator=torch.Generator().manual_seed(1)) for length in LENGTHS]
GRID = Grid.whole(BATCH, 2, LENGTH, KEYS)

# The line that a remark names, and the mask that it makes.
STRUCTURES = {
    "masks.causal()": masks.causal(),
    'masks.causal(align="start")': masks.causal(align="start"),
    "masks.window(2, 1)": masks.window(2, 1),
    "masks.window(1, 0)": masks.window(1, 0),
    "masks.lengths(lengths)": masks.lengths([5, 12, 7]),
}


@pytest.fixture(autouse=True)
def awaited():
    """Kernels that are not compiled yet would be one more remark."""
    with kernels_awaited():
        yield


@pytest.mark.parametrize("line", STRUCTURES)
@pytest.mark.parametrize("way", ["tensor", "keep", "ignore", "one matrix"])
def test_a_mask_tensor_with_structure_is_named(line, way):
    dense = STRUCTURES[line].dense(GRID)
    if way == "one matrix" and line != "masks.lengths(lengths)":
        dense = dense[0, 0]
    elif line == "masks.lengths(lengths)":
        dense = dense[:, :1].contiguous()
    mask = {"keep": masks.keep, "ignore": lambda tensor: masks.ignore(~tensor)}.get(way, lambda tensor: tensor)(dense)
    remarks = regard.plan(*INPUTS, mask=mask).remarks
    assert remarks == [f"a mask tensor hides its structure: mask={line} is the same, and kernels skip what it hides"]


def test_the_structure_of_a_mask_by_batch_is_named():
    tensors = [tensor[:, 0] for tensor in INPUTS]
    plan = regard.plan(*tensors, mask=masks.causal().dense(GRID)[:, 0])
    assert "mask=masks.causal()" in plan.remarks[0]
    assert plan.remarks[0] in str(plan).splitlines()
    assert "structure" not in repr(plan)


@pytest.mark.parametrize(("batch", "heads"), [(2, 8), (3, 3), (1, 2)])
@pytest.mark.parametrize("rank", [2, 3, 4])
@pytest.mark.parametrize("axes", [1, 2, 3, 4])
@pytest.mark.parametrize("kind", ["bool", "ignored"])
def test_a_plan_with_a_mask_of_any_axes_is_printed(batch, heads, rank, axes, kind):
    leading = {2: (), 3: (batch,), 4: (batch, heads)}[rank]
    query, key = torch.zeros(*leading, 6, 4), torch.zeros(*leading, 7, 4)
    shape = (*((batch, 1) if rank == 3 else leading), 6, 7)[-axes:] if axes != 3 or rank != 3 else (batch, 6, 7)
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(4)) > 0.5
    plan = regard.plan(query, key, key, mask=mask if kind == "bool" else masks.ignore(mask))
    assert str(plan).startswith(plan.sizes)


def test_a_mask_by_heads_is_not_read_by_batch_rows():
    """Of three lengths, one a head, no mask of lengths is the same, although there are three batch rows."""
    tensors = [torch.zeros(3, 3, length, 8) for length in LENGTHS]
    allowed = masks.lengths([5, 12, 7]).dense(Grid.whole(3, 3, LENGTH, KEYS))[:, 0].contiguous()
    advice = ["lengths" in str(regard.plan(*tensors, mask=mask)) for mask in (allowed, allowed[:, None])]
    assert advice == [False, True]
    assert "lengths" in str(regard.plan(*(tensor[:, 0] for tensor in tensors), mask=allowed))


def test_a_mask_in_the_other_convention_is_named():
    remarks = regard.plan(*INPUTS, mask=~masks.causal().dense(GRID)[0, 0]).remarks
    assert len(remarks) == 1
    assert "mask=masks.ignore(mask)" in remarks[0]


def test_a_mask_that_hides_nothing_is_named():
    assert regard.plan(*INPUTS, mask=torch.ones(LENGTH, KEYS, dtype=torch.bool)).remarks == [
        "this mask hides nothing: leave it out"
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"mask": masks.causal()},
        {"mask": torch.rand(LENGTH, KEYS, generator=torch.Generator().manual_seed(2)) > 0.5},
        {"mask": torch.zeros(LENGTH, KEYS, dtype=torch.bool)},
        {"mask": torch.ones(KEYS, dtype=torch.bool)},
        {"mask": masks.lengths([5, 12, 7]).dense(GRID)[:, :1, :1]},
        {"mask": torch.ones(LENGTH, KEYS, dtype=torch.bool).tril().to("meta")},
        {"bias": torch.zeros(2, LENGTH, KEYS)},
        {"normalizer": torch.softmax, "score": "cosine"},
    ],
    ids=["plain", "causal", "random", "nothing visible", "keys", "padding", "meta", "bias", "function"],
)
def test_nothing_else_is_remarked(arguments):
    inputs = [tensor.to("meta") for tensor in INPUTS] if str(arguments).count("meta") else INPUTS
    expected = ["this normalizer is your function: no fused kernel computes it"] if "normalizer" in arguments else []
    assert regard.plan(*inputs, **arguments).remarks == expected


def test_a_mask_that_looks_causal_and_is_not_is_named():
    tensors = [torch.zeros(2, 2, 40, 8)] * 3
    mask = masks.window(16, 0) | masks.prefix(4)
    (remark,) = regard.plan(*tensors, mask=mask).remarks
    assert remark == (
        "this mask is not causal, though a part of it is: 3 of 40 queries see keys after their own, as query 0 sees "
        "key 1; in a decoder write mask & masks.causal()"
    )
    line = re.search(r"write (.+)$", remark)
    assert line is not None
    right = regard.plan(*tensors, mask=eval(line[1], {"mask": mask, "masks": masks}))
    assert right.remarks == []
    same = masks.window(16, 0) | masks.prefix(4) & masks.causal()
    grid = Grid.whole(2, 2, 40, 40)
    assert torch.equal(right.candidates.problem.mask.dense(grid), same.dense(grid))
    assert regard.plan(*tensors, mask=same).remarks == []


def test_a_union_with_a_causal_mask_is_named():
    documents = masks.documents(torch.tensor([[0, 0, 1, 1, 1], [0, 1, 2, 3, 3]]))
    (remark,) = regard.plan(*[torch.zeros(2, 1, 5, 8)] * 3, mask=masks.causal() | documents).remarks
    assert (
        "3 of 5 queries see keys after their own, as query 0 of batch row 0 sees key 1; unless this is meant" in remark
    )
    assert remark.endswith("join by & in place of |, or write masks.causal() alone")
    (remark,) = regard.plan(*INPUTS, mask=masks.causal(align="start") | masks.dilated(2)).remarks
    assert "masks.causal(align='start')" in remark


def test_a_function_in_place_of_a_score_is_named():
    remarks = regard.plan(*INPUTS, score=lambda query, key: query @ key.mT).remarks
    assert remarks == ["this score is your function: no fused kernel computes it"]


def test_a_score_of_regard_without_kernels_is_not_called_a_function():
    for score in (
        scores.create("dynamic_convolution", 8, 8, channels=2, kernel_size=3),
        scores.create("mlp", 8, 8),
        scores.Distance(),
    ):
        assert regard.plan(*INPUTS, score=score).remarks == []


def test_a_backend_that_is_not_ready_is_named(monkeypatch):
    tensors = [torch.zeros(1, 1, length, 8) for length in (2048, 2048, 2048)]
    monkeypatch.setattr(BACKENDS["cpu"], "delay", lambda problem, gatherer=None: "its kernels are being compiled")
    monkeypatch.setattr(BACKENDS["cpu"], "declines", lambda problem: None)
    with monkeypatch.context() as patch:
        patch.setattr(execution, "must_wait", lambda: False)
        plan = regard.plan(*tensors, score="cosine", normalizer="sparsemax")
    assert plan.backend != "cpu"
    assert plan.remarks == ["'cpu' is compiled at the first call, and runs those that come after it is ready"]


def test_a_plan_that_is_not_printed_looks_for_nothing(monkeypatch):
    monkeypatch.setattr("regard.attention.planner.remarks_on", lambda *arguments: pytest.fail("it was looked for"))
    repr(regard.plan(*INPUTS, mask=masks.causal().dense(GRID)))


def test_a_plan_in_a_notebook_says_what_its_text_says():
    allowed = masks.causal().dense(GRID)
    for plan in (regard.plan(*INPUTS, mask=allowed), regard.plan(*INPUTS, score=lambda query, key: query @ key.mT)):
        page = plan._repr_html_()
        assert plan.remarks
        assert page.index(plan.sizes) < min(page.index(name) for name in plan.reasons)
        assert all(page.index(html.escape(remark)) > page.index("</table>") for remark in plan.remarks)
