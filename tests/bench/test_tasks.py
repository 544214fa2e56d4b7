"""Every task: its contenders compute the same thing, and its demands are those that were set."""

import re

import pytest
import torch

from regard.bench.columns import COLUMNS
from regard.bench.oracle import by_rows, errors, whole
from regard.bench.peers import PEERS, absence
from regard.bench.tasks import TASKS, find
from regard.errors import UnknownNameError

SMALL = {"batch": 2, "heads": 2, "queries": 37, "keys": 37, "dim": 8, "rows": 13, "columns": 17, "length": 11}
BY_NAME = {task.name: task for task in TASKS}


@pytest.fixture(autouse=True)
def narrow_window(monkeypatch):
    """So narrow that it matters at small sizes."""
    monkeypatch.setattr("regard.bench.tasks.masked.WINDOW", 5)


def small(task):
    return {name: SMALL[name] for name in task.sizes}


def differences(task, contender):
    """Errors of one contender at small sizes, called twice, as it is when it is timed."""
    inputs = task.inputs(small(task))
    truth = task.oracle(inputs)
    with torch.set_grad_enabled(task.backward):
        ready = contender.build(inputs)
        ready.call()
        found = errors(ready.read(ready.call()), truth, inputs.get("valid"))
    assert found, "nothing was compared"
    assert set(found) <= set(truth)
    if not contender.note.startswith("output only"):
        assert set(found) == set(truth)
    return found


def cases(*columns):
    return [
        pytest.param(task, contender, id=f"{task.name}-{contender.column}")
        for task in TASKS
        for contender in task.contenders
        if contender.column in columns and task.oracle is not None
    ]


@pytest.mark.parametrize(("task", "contender"), cases("regard", "eager", "sdpa"))
def test_contenders_compute_the_same(task, contender):
    for name, error in differences(task, contender).items():
        assert error is not None
        assert error < 3e-5, name


@pytest.mark.slow
@pytest.mark.parametrize(("task", "contender"), cases(*PEERS))
def test_peers_compute_the_same(task, contender):
    if absence(contender.column):
        pytest.skip(absence(contender.column))
    for name, error in differences(task, contender).items():
        assert error is not None
        assert error < 3e-5, name


def test_errors_are_seen():
    """A contender that computes something else would show."""
    task = BY_NAME["additive"]
    inputs = task.inputs(small(task))
    truth = task.oracle(inputs)
    assert errors({"output": truth["output"] + 0.5}, truth)["output"] == pytest.approx(0.5)
    assert errors({"output": truth["output"] * torch.nan}, truth) == {"output": None}
    assert errors({"unknown": truth["output"]}, truth) == {}
    valid = torch.zeros(1, 1, 37, 1, dtype=torch.bool)
    assert errors({"output": truth["output"] * torch.nan}, truth, valid) == {"output": 0.0}
    assert errors({"output": torch.zeros(0)}, {"output": torch.zeros(0)}) == {"output": 0.0}


@pytest.mark.parametrize("gradients", [(), ("query", "key", "value")])
def test_the_oracle_in_blocks_is_the_oracle(gradients, monkeypatch):
    monkeypatch.setattr("regard.bench.oracle.BLOCK_NUMBERS", 2 * 2 * 37 * 5)
    task = BY_NAME["dot-1024"]
    inputs = task.inputs(small(task))

    def function(query, key, value):
        return torch.softmax(query @ key.transpose(-2, -1), -1) @ value

    names = ("query", "key", "value")
    blocks, at_once = by_rows(function, names, gradients)(inputs), whole(function, names, gradients)(inputs)
    assert set(blocks) == set(at_once) == {"output", *(f"gradient of {name}" for name in gradients)}
    for name, tensor in at_once.items():
        torch.testing.assert_close(blocks[name], tensor)
        assert tensor.dtype == torch.float64


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_every_task_is_well_formed(task):
    columns = [contender.column for contender in task.contenders]
    assert columns[0] == "regard"
    assert len(set(columns)) == len(columns)
    assert set(columns) <= set(COLUMNS)
    assert task.contenders[0].backend is not None
    assert set(task.sizes) == set(task.quick)
    assert not re.search(r"[{}]", task.title.format(**task.sizes))
    for sizes in (task.sizes, task.quick):
        work = task.work(sizes)
        assert work.multiply_adds + work.reciprocals + work.exponentials > 0
        assert work.bytes > 0
        assert work.said
    for bar in task.bars:
        assert bar.against in (*columns, "")
    for contender in task.contenders:
        if contender.bytes is not None:
            assert contender.bytes(task.sizes) > 0
    assert task.oracle is not None or not task.timed


def test_names_are_unique():
    assert len(BY_NAME) == len(TASKS)


def test_the_demands_are_those_that_were_set():
    """The table of the issue that asked for speed."""

    def bars(name):
        return {(bar.kind, bar.against): (bar.least, bar.aim) for bar in BY_NAME[name].bars}

    faster = "faster"
    assert bars("additive") == {
        (faster, "eager"): (20, 30), (faster, "keras"): (28, 45), (faster, "compile"): (7, 11)
    }  # fmt: skip
    assert bars("additive-backward") == {(faster, "eager"): (8, 14)}
    assert bars("additive-memory") == {("memory", ""): (64 * 2**20, None)}
    assert bars("decoder") == bars("decoder-backward") == {(faster, "eager"): (3, 5)}
    for normalizer in ("sparsemax", "entmax15"):
        assert bars(f"{normalizer}-rows")[faster, "entmax"] == (15, 30)
        assert bars(f"{normalizer}-rows-backward")[faster, "entmax"][0] == 10
    assert bars("entmax15-attention") == {(faster, "entmax"): (5, 8)}
    assert bars("window") == {(faster, "sdpa"): (10, 16)}
    assert bars("ragged") == {(faster, "sdpa"): (1.8, 2.2)}
    assert bars("observe") == {
        ("slower", "sdpa"): (2.2, 1.7), (faster, "eager"): (4, 6), ("memory share", "eager"): (0.05, None)
    }  # fmt: skip
    assert bars("observe-long") == {("resident", ""): (2**30, None)}
    assert bars("tiny") == {("overhead", "sdpa"): (15e-6, None)}
    for name in ("dot-128", "dot-1024", "dot-4096", "dot-batch", "dot-causal", "dot-backward"):
        assert bars(name) == {("slower", "sdpa"): (1.03, None)}


def test_tasks_are_found_by_name_and_pattern():
    assert [task.name for task in find(["decoder", "dec*"])] == ["decoder", "decoder-backward"]
    assert all(not task.long for task in find(None))
    assert any(task.long for task in find(None, long=True))
    assert [task.name for task in find(["observe-long"])] == ["observe-long"]
    assert [task.name for task in find(["observe*"])] == ["observe"]
    with pytest.raises(UnknownNameError, match="additive"):
        find(["aditive"])


def test_the_long_task_says_how_far_it_is(capfd, monkeypatch):
    monkeypatch.setattr("regard.bench.tasks.readings.SLICE", 11)
    task = BY_NAME["observe-long"]
    inputs = task.inputs({**small(task), "batch": 1, "heads": 1})
    ready = task.contenders[0].build(inputs)
    found = ready.read(ready.call())
    assert capfd.readouterr().err.splitlines() == [f"progress {n} 4" for n in (1, 2, 3, 4)]
    truth = BY_NAME["observe"].oracle(inputs)
    assert all(error < 3e-5 for error in errors(found, truth).values())
