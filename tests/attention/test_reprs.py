"""What records of attention look like where they are printed: short, and of tuples nothing else has changed."""

import copy
import pickle

import pytest
import torch
from torch.utils import _pytree as pytree

import regard
from cases import problem
from regard import biases, masks, normalizers, scores
from regard.attention.problem import validate
from regard.attention.result import Attended

ALL = regard.Readings(
    entropy=True, peak=True, top_k=3, received=True, distance=True, pooled=(2, 2), rows=[0], tile=((0, 2), (0, 2)),
    weights=True, shares=[masks.causal()], recall=masks.causal(),
)  # fmt: skip


def large():
    return torch.randn(2, 3, 301, 5, generator=torch.Generator().manual_seed(1))


def records():
    query = large()
    yield regard.observe(query, query, query, read=ALL, mask=masks.causal())
    yield Attended(query, query)
    yield Attended(query, None)
    yield regard.explain(query, query, query)
    yield regard.plan(query, query, query)
    yield regard.Readings(rows=torch.arange(10_000))
    yield regard.Readings(rows=list(range(10_000)))
    yield validate(query, query, query)
    yield scores.ScaledDot().prepare(query, query)
    yield scores.Additive(torch.randn(5_000)).prepare(query, query)
    yield scores.General(torch.randn(3, 50, 50))
    yield normalizers.softmax_with_sink(torch.nn.Parameter(torch.randn(3_000)))
    yield normalizers.entmax(torch.rand(3_000) + 1.1)
    yield normalizers.local_gaussian(normalizers.softmax, large()[..., 0], torch.rand(3_000) + 1)
    yield biases.TensorBias(large())
    yield masks.keep(torch.ones(301, 301, dtype=torch.bool))
    yield masks.lengths(torch.arange(3_000))
    chain = masks.causal()
    for length in range(1_000):
        chain = chain & (masks.prefix(length) | masks.dilated(length + 1))
    yield chain


def test_reprs_are_short():
    for record in records():
        text = repr(record)
        assert len(text) <= 1200, text
        assert text.count("\n") <= 16, text  # a line for each reading
        assert "tensor(" not in text
        assert "Parameter containing" not in text


def test_readings_are_shown_with_their_range():
    observed = regard.observe(*problem(), read=regard.Readings(entropy=True), mask=masks.lengths([4, 0]))
    lines = repr(observed).splitlines()
    assert [line.split(":")[0].strip() for line in lines] == ["Observed(", "output", "lse", "entropy", ")"]
    assert "-inf" in lines[2]
    assert "[2, 3, 5] float64, " in lines[3]


def test_readings_name_what_is_asked_for():
    assert repr(regard.Readings()) == "Readings()"
    assert (
        repr(regard.Readings(entropy=True, top_k=8, pooled=(3, 5))) == "Readings(entropy=True, top_k=8, pooled=(3, 5))"
    )


def test_a_plan_in_one_line():
    plan = regard.plan(*problem(), score="distance")
    text = repr(plan)
    assert text.startswith(f"Plan({plan.backend!r}; could: ")
    assert "\n" not in text
    assert all(name in text for name in plan.reasons)


def test_combinations_count_what_they_do_not_show():
    prefixes = [masks.prefix(length) for length in range(20)]
    chain = prefixes[0]
    for prefix in prefixes[1:]:
        chain = chain | prefix
    assert repr(chain) == f"({' | '.join(f'prefix({length})' for length in range(16))} | <4 more masks>)"
    assert repr(masks.causal() & chain) == "(causal() & <20 more masks>)"
    assert repr(masks.causal() & masks.prefix(2)) == "(causal() & prefix(2))"


@pytest.mark.parametrize(
    "made", [lambda: regard.observe(*problem(), read=ALL), lambda: Attended(torch.zeros(2, 3), torch.ones(3))]
)
def test_named_tuples_are_what_they_were(made):
    record = made()
    values = tuple(record)
    output, *_ = record
    assert output is record.output is record[0]
    assert len(record) == len(record._fields) == len(values)
    assert record._asdict().keys() == set(record._fields)
    assert type(record._replace(output=output)) is type(record)
    for copied in (pickle.loads(pickle.dumps(record)), copy.deepcopy(record)):
        assert type(copied) is type(record)
        assert all(torch.equal(a, b) for a, b in zip(values, copied, strict=True))
    leaves, tree = pytree.tree_flatten(record)
    assert len(leaves) == len(values)
    assert type(pytree.tree_unflatten(leaves, tree)) is type(record)
    assert type(pytree.tree_map(lambda leaf: leaf, record)) is type(record)


def test_named_tuples_leave_a_compiled_function():
    query = large()[:, :, :7]

    def read(query):
        return regard.observe(query, query, query, read=regard.Readings(entropy=True))

    compiled = torch.compile(read, backend="eager", fullgraph=True)(query)
    assert type(compiled) is regard.Observed
    torch.testing.assert_close(compiled.entropy, read(query).entropy)


def test_notebooks_get_a_table():
    page = regard.observe(*problem(), mask=masks.lengths([4, 0]))._repr_html_()
    assert page.startswith("<table")
    assert "entropy" in page
    assert "-inf" in page
    assert "received" in page
    assert "peak" not in page
