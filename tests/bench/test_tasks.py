"""Every task: its implementations compute the same thing, and its demands are those that were set."""

import re

import pytest
import torch

from backends import ON_CPU
from bench.columns import ACCELERATOR_COLUMNS, COLUMNS, OWN_COLUMNS
from bench.oracle import by_rows, errors, whole
from bench.own_backends import own_backends
from bench.task import Work
from bench.tasks import TASKS, additive, find
from bench.tasks.bahdanau import build_decoder, step
from processors import runs_lstm_in_bfloat16
from regard.attention.backends.cpu.cached_memory import FusedMemory
from regard.attention.execution import BACKENDS
from regard.cli.peers import PEER_PACKAGES, absence
from regard.errors import BackendError, UnknownNameError

SMALL = {"batch": 2, "heads": 2, "queries": 37, "keys": 37, "dim": 8, "rows": 13, "columns": 17, "length": 11,
         "words": 3, "embedding": 6, "vocabulary": 19, "kv_heads": 1}  # fmt: skip
HERE = set(OWN_COLUMNS.values()) - ACCELERATOR_COLUMNS
BY_NAME = {task.name: task for task in TASKS}


@pytest.fixture(autouse=True)
def narrow_window(monkeypatch):
    """So narrow that it matters at small sizes."""
    monkeypatch.setattr("bench.tasks.masked.WINDOW", 5)


def small(task):
    return {name: SMALL[name] for name in task.sizes}


def differences(task, implementation):
    """Errors of one implementation at small sizes, called twice, as it is when it is timed."""
    inputs = task.inputs(small(task))
    truth = task.oracle(inputs)
    with torch.set_grad_enabled(task.backward):
        prepared = implementation.build(inputs)
        prepared.call()
        found = errors(prepared.read(prepared.call()), truth, inputs.get("valid"))
    assert found, "nothing was compared"
    assert set(found) <= set(truth)
    if not implementation.note.startswith("output only"):
        assert set(found) == set(truth)
    return found


def cases(*columns):
    return [
        pytest.param(task, implementation, id=f"{task.name}-{implementation.column}")
        for task in TASKS
        for implementation in task.implementations
        if implementation.column in columns and task.oracle is not None and not task.loaded
        if not implementation.note.startswith("another function")
    ]


def tolerance(task):
    """The largest error of an output, in units of its largest element."""
    return 3e-2 if re.search("bf16|fp16", task.name) else 3e-5


@pytest.mark.parametrize(("task", "implementation"), cases("regard", *HERE, "eager", "sdpa"))
def test_contenders_compute_the_same(task, implementation):
    recurrent = task.name.startswith("model-") and "transformer" not in task.name
    if recurrent and "bf16" in task.name and implementation.column == "eager" and not runs_lstm_in_bfloat16():
        pytest.skip("PyTorch has no LSTM in bfloat16 on this processor")
    for name, error in differences(task, implementation).items():
        assert error is not None
        assert error < tolerance(task), name


@pytest.mark.slow
@pytest.mark.parametrize(("task", "implementation"), cases(*PEER_PACKAGES))
def test_peers_compute_the_same(task, implementation):
    if absence(implementation.column):
        pytest.skip(absence(implementation.column))
    for name, error in differences(task, implementation).items():
        assert error is not None
        assert error < tolerance(task), name


def test_errors_are_seen():
    """An implementation that computes something else would show."""
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
    monkeypatch.setattr("bench.oracle.BLOCK_NUMBERS", 2 * 2 * 37 * 5)
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
    columns = [implementation.column for implementation in task.implementations]
    assert columns[0] == "regard"
    assert len(set(columns)) == len(columns)
    assert set(columns) <= set(COLUMNS)
    starts = task.group == "Start time"
    assert starts or task.implementations[0].backend is not None
    assert set(task.sizes) == set(task.quick)
    assert not re.search(r"[{}]", task.title.format(**task.sizes))
    for sizes in (task.sizes, task.quick):
        work = task.work(sizes)
        if starts:
            assert work == Work()
            continue
        assert work.multiply_adds + work.reciprocals + work.exponentials > 0
        assert work.bytes > 0
        assert work.said
    for requirement in task.requirements:
        assert requirement.against in (*columns, "")
    for implementation in task.implementations:
        if implementation.bytes is not None:
            assert implementation.bytes(task.sizes) > 0
    assert task.oracle is not None or not task.timed or starts


def test_names_are_unique():
    assert len(BY_NAME) == len(TASKS)


@pytest.mark.parametrize("name", ON_CPU)
def test_benchmarks_that_the_planner_cites_exist(name):
    assert BACKENDS[name].measured
    assert set(BACKENDS[name].measured) <= set(BY_NAME)


@pytest.mark.parametrize(
    ("name", "backend"), [("small-additive", "cpu"), ("small-sparsemax", "cpu"), ("small-lengths", "reference")]
)
def test_small_benchmarks_run_on_the_expected_backend(name, backend):
    task = BY_NAME[name]
    assert task.implementations[0].backend(task.inputs(task.sizes)) == backend
    assert OWN_COLUMNS["reference"] in [implementation.column for implementation in task.implementations]


def test_own_backends_are_contenders_by_their_names():
    """A backend that is named runs, or says why not; nothing else runs in its place."""
    assert set(OWN_COLUMNS) == set(BACKENDS)
    with pytest.raises(BackendError, match="sdpa"):
        own_backends("sdpa", options=additive.options)[0].build(
            BY_NAME["additive"].inputs(small(BY_NAME["additive"]))
        ).call()


@pytest.mark.parametrize("name", ["decoder", "decoder-backward", "bahdanau-14"])
@pytest.mark.parametrize("missing", [None, "Numba is not installed"])
def test_a_decoder_is_said_to_run_on_what_runs(name, missing, monkeypatch):
    called = []
    attend = FusedMemory.attend
    monkeypatch.setattr(FusedMemory, "attend", lambda *given: (called.append("cpu"), attend(*given))[1])
    monkeypatch.setattr("regard.attention.backends.cpu.backend.why_missing", lambda: missing)
    task = BY_NAME[name]
    inputs = task.inputs(small(task))
    with torch.set_grad_enabled(task.backward):
        named = task.implementations[0].backend(inputs)
        task.implementations[0].build(inputs).call()
    assert named == ("cpu" if called else "reference") == ("reference" if missing else "cpu")


def test_both_attentions_train_the_same_decoder():
    """Loss and every gradient, in float64: the fused step is the specification."""
    task = BY_NAME["bahdanau-14"]
    inputs = task.inputs(small(task))
    found = []
    for backend in ("auto", "reference"):
        decoder = build_decoder(inputs, backend).double()
        annotations = inputs["annotations"].double().requires_grad_()
        found.append(step(decoder, inputs, annotations, [annotations, *decoder.parameters()]))
    for own, wanted in zip(*found, strict=True):
        torch.testing.assert_close(own, wanted, rtol=1e-9, atol=1e-12)
    # Nothing is compared with nothing: but for the projections' biases, which softmax cancels, gradients are there.
    assert all(tensor.abs().max() > 1e-9 for tensor in found[1])


def test_the_decoders_oracle_in_parts_is_the_oracle(monkeypatch):
    task = BY_NAME["bahdanau-400"]
    inputs = task.inputs({**small(task), "batch": 5})
    at_once = task.oracle(inputs)
    monkeypatch.setattr("bench.tasks.bahdanau.ORACLE_NUMBERS", 2 * 37 * 8 * 3)
    for name, tensor in task.oracle(inputs).items():
        torch.testing.assert_close(tensor, at_once[name], rtol=1e-9, atol=1e-12)


def test_the_demands_are_those_that_were_set():
    """The table of the issue that asked for speed."""

    def requirements(name):
        return {
            (requirement.kind, requirement.against): (requirement.threshold, requirement.aim)
            for requirement in BY_NAME[name].requirements
        }

    faster = "faster"
    assert requirements("additive") == {
        (faster, "eager"): (20, 30), (faster, "keras"): (28, 45), (faster, "compile"): (7, 11),
        ("limit", ""): (0.6, 0.7),
    }  # fmt: skip
    assert requirements("additive-backward") == {(faster, "eager"): (8, 14), ("limit", ""): (0.4, 0.55)}
    assert requirements("additive-memory") == {("memory", ""): (64 * 2**20, None)}
    assert requirements("decoder") == requirements("decoder-backward") == {(faster, "eager"): (3, 5)}
    for normalizer in ("sparsemax", "entmax15"):
        assert requirements(f"{normalizer}-rows")[faster, "entmax"] == (15, 30)
        assert requirements(f"{normalizer}-rows-backward")[faster, "entmax"][0] == 10
    assert requirements("entmax15-attention") == {(faster, "entmax"): (5, 8), ("limit", ""): (0.7, 0.8)}
    assert requirements("window") == {(faster, "sdpa"): (10, 16)}
    assert requirements("ragged") == {(faster, "sdpa"): (1.8, 2.2)}
    assert requirements("observe") == {
        ("slower", "sdpa"): (2.2, 1.7), (faster, "eager"): (4, 6), ("memory share", "eager"): (0.05, None),
        ("memory", ""): (15 * 2**20, None),
    }  # fmt: skip
    assert requirements("bahdanau-400") == {(faster, OWN_COLUMNS["reference"]): (1.6, 2.2)}
    assert requirements("bahdanau-14") == {(faster, OWN_COLUMNS["reference"]): (1.0, None)}
    assert requirements("observe-long") == {("resident", ""): (2**30, None)}
    assert requirements("tiny") == {("overhead", "sdpa"): (15e-6, None)}
    for name in ("dot-128", "dot-1024", "dot-4096", "dot-batch", "dot-causal", "dot-backward"):
        assert requirements(name).pop(("slower", "sdpa")) == (1.03, None)
    for name in ("dot-1024", "dot-4096"):
        assert requirements(name)["limit", ""] == (0.7, 0.8)
    assert requirements("window-prefix") == {(faster, "sdpa"): (10, 20)}
    assert requirements("layer") == {("memory", ""): (30 * 2**20, None)}
    for name in ("normalizer-entmax13", "normalizer-learned-alpha"):
        assert requirements(name) == {(faster, "eager"): (15, None)}


def test_tasks_are_found_by_name_and_pattern():
    assert [task.name for task in find(["decoder", "decoder*"])] == ["decoder", "decoder-backward", "decoder-sentence"]
    assert all(not task.long for task in find(None))
    assert any(task.long for task in find(None, long=True))
    assert [task.name for task in find(["observe-long"])] == ["observe-long"]
    assert [task.name for task in find(["observe*"])] == ["observe"]
    with pytest.raises(UnknownNameError, match="additive"):
        find(["aditive"])


def test_the_long_task_says_how_far_it_is(capfd, monkeypatch):
    monkeypatch.setattr("bench.tasks.readings.SLICE", 11)
    task = BY_NAME["observe-long"]
    inputs = task.inputs({**small(task), "batch": 1, "heads": 1})
    prepared = task.implementations[0].build(inputs)
    found = prepared.read(prepared.call())
    assert capfd.readouterr().err.splitlines() == [f"progress {n} of 4" for n in (1, 2, 3, 4)]
    truth = BY_NAME["observe"].oracle(inputs)
    assert all(error < 3e-5 for error in errors(found, truth).values())
