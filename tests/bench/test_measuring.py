"""One task measured: who is absent, who fails, who is skipped, what a process of its own finds, and the curves."""

import sys
from dataclasses import replace
from itertools import combinations

import pytest
import torch
from matplotlib.text import Text

import emulated_device
from bench import curves, limits, memory, runner
from bench.cells import requirements_of
from bench.columns import LINES
from bench.curves import Curve, all_curves, draw, measure_curve
from bench.limits import Peaks, measure_peaks
from bench.measurement import Measurement
from bench.memory import Footprint, measure_memory
from bench.prepared_call import torch_builder
from bench.record import CurveRecord, Record, describe_machine
from bench.report import heading
from bench.runner import Options, estimate, run_task
from bench.target import Target
from bench.task import Implementation, Task, Work
from bench.tasks import TASKS
from regard.cli import peers
from regard.errors import ArgumentError, BackendError

PEAKS = Peaks(2e11, 1e10, 4e9, 3e10)
MIB = 1 << 20
WINDOW = next(task for task in TASKS if task.name == "window")


def doubled(inputs):
    return (lambda tensor: tensor * 2), (inputs["given"],)


def broken(inputs):
    raise RuntimeError("no such kernel\nand more")


def task(**more):
    """A task that costs nothing, with an implementation for every fate."""
    implementations = (
        Implementation("regard", torch_builder(doubled), backend=lambda inputs: "tiled"),
        Implementation(
            "eager", torch_builder(lambda inputs: (lambda given: given * 2.5, (inputs["given"],))), note="wrong"
        ),
        Implementation("compile", broken),
        Implementation("sdpa", torch_builder(doubled), bytes=lambda sizes: 1e30),
        Implementation("keras", torch_builder(doubled)),
    )
    wanted = {
        "name": "double", "title": "double {rows}", "group": "Group", "sizes": {"rows": 13}, "quick": {"rows": 5},
        "inputs": lambda sizes: {"given": torch.ones(sizes["rows"])}, "implementations": implementations,
        "work": lambda sizes: Work(sizes["rows"], 0, 0, 8 * sizes["rows"], "said"),
        "oracle": lambda inputs: {"output": inputs["given"].double() * 2}, **more,
    }  # fmt: skip
    return Task(**wanted)


@pytest.fixture
def nobody(monkeypatch):
    """Keras is not installed."""
    gone = {"keras": "keras is not installed"}
    monkeypatch.setattr(runner, "absence", gone.get)
    monkeypatch.setattr(curves, "absence", gone.get)


def test_every_fate_is_recorded(nobody):
    said = []
    found = run_task(task(), Options(quick=True, repeats=2, memory=False), PEAKS, said.append)
    assert (found.title, dict(found.sizes)) == ("double 5", {"rows": 5})
    assert list(found.results) == ["regard", "eager", "compile", "sdpa", "keras"]
    own, eager, compiled, sdpa, keras = found.results.values()
    assert own.state == "measured"
    assert own.backend == "tiled"
    assert own.ratio == 1
    assert own.errors == {"output": 0.0}
    assert own.seconds.runs == 2
    assert eager.errors == {"output": pytest.approx(0.5)}
    assert eager.note == "wrong"
    assert eager.ratio > 0
    assert (compiled.state, compiled.reason) == ("failed", "RuntimeError: no such kernel")
    assert sdpa.state == "skipped"
    assert "are available" in sdpa.reason
    assert (keras.state, keras.reason) == ("absent", "keras is not installed")
    assert any("oracle" in text for text in said)


def test_memory_of_processes_of_their_own_is_recorded(nobody, monkeypatch):
    asked = []

    def measured(name, column, *, quick, threads, limit, progress):
        asked.append((name, column, quick, threads))
        progress("3 of 7")
        return Footprint(5 * MIB, 90 * MIB, 0.7) if column == "regard" else Footprint(reason="was ended")

    monkeypatch.setattr(runner, "measure_memory", measured)
    said = []
    found = run_task(task(timed=False), Options(quick=True, threads=3), PEAKS, said.append)
    assert asked == [("double", column, True, 3) for column in ("regard", "eager", "compile")]
    own = found.results["regard"]
    assert (own.extra_bytes, own.resident_bytes, own.alone, own.seconds) == (5 * MIB, 90 * MIB, 0.7, None)
    assert found.results["eager"].state == "failed"
    assert found.results["eager"].reason == "memory: was ended"
    assert "regard: 3 of 7" in said
    assert estimate(task(), Options(quick=True)) > estimate(task(), Options(quick=True, memory=False)) > 0


def test_who_is_not_weighed_has_no_process(nobody, monkeypatch):
    asked = []
    monkeypatch.setattr(
        runner, "measure_memory", lambda name, column, **rest: (asked.append(column), Footprint(MIB, MIB, 0.1))[1]
    )
    implementations = (
        Implementation("regard", torch_builder(doubled), backend=lambda inputs: "tiled"),
        Implementation("regard-cpu", torch_builder(doubled), memory_measured=False),
    )
    options = Options(quick=True, repeats=1)
    found = run_task(task(implementations=implementations), options, PEAKS, print)
    assert asked == ["regard"]
    assert found.results["regard-cpu"].extra_bytes is None
    assert estimate(task(implementations=implementations), options) < estimate(
        task(implementations=implementations, timed=False), options
    )
    # A task that is not timed has nothing but its processes.
    asked.clear()
    run_task(task(implementations=implementations, timed=False), options, PEAKS, print)
    assert asked == ["regard", "regard-cpu"]


def test_a_counted_quantity_becomes_a_rate(nobody):
    counting = task(counted=("words", lambda sizes: 10 * sizes["rows"]))
    found = run_task(counting, Options(quick=True, repeats=1, memory=False), PEAKS, print).results
    assert found["regard"].note == f"{50 / found['regard'].seconds.median:,.0f} words a second"
    assert found["eager"].note.startswith("wrong; ")
    assert found["compile"].note == ""


def test_gradients_are_taken_where_they_are_part_of_the_task(nobody):
    seen = []

    def watching(inputs):
        return (lambda given: (seen.append(torch.is_grad_enabled()), given)[1]), (inputs["given"],)

    for backward in (False, True):
        seen.clear()
        implementations = (Implementation("regard", torch_builder(watching), backend=lambda inputs: "tiled"),)
        run_task(
            task(implementations=implementations, backward=backward),
            Options(quick=True, repeats=1, memory=False),
            PEAKS,
            print,
        )
        assert set(seen) == {backward}


def test_a_peer_that_is_away_is_named(monkeypatch):
    assert peers.absence("regard") is None
    monkeypatch.setattr(peers.importlib.util, "find_spec", lambda name: None)
    for column in peers.PEER_PACKAGES:
        assert "pip install 'regard[bench]'" in peers.absence(column)


def test_keras_on_another_backend_is_as_good_as_absent(monkeypatch):
    class Keras:
        class backend:  # noqa: N801
            backend = staticmethod(lambda: "jax")

    monkeypatch.setattr(peers.importlib.util, "find_spec", lambda name: name)
    monkeypatch.setitem(sys.modules, "keras", Keras)
    assert "another backend" in peers.absence("keras")


def test_peaks_are_measured():
    peaks = measure_peaks(quick=True)
    assert min(peaks.multiply_adds, peaks.reciprocals, peaks.exponentials, peaks.bytes) > 1e6
    assert limits.available_bytes() > 1 << 20
    assert limits.cpu_name()


@pytest.mark.slow
def test_a_process_of_its_own_sees_the_memory_of_one_call():
    """Eager holds the grid of pairs and units twice, and gives it back."""
    found = measure_memory("score-additive", "eager", quick=True, threads=1, limit=120)
    grid = 2 * 128 * 128 * 64 * 4
    assert not found.reason
    assert 1.9 * grid < found.extra < 2.6 * grid
    assert found.resident > found.extra
    assert found.seconds > 0


@pytest.mark.slow
def test_a_process_of_its_own_says_why_it_failed():
    assert "took longer" in measure_memory("additive", "eager", quick=True, threads=1, limit=0.05).reason
    assert "KeyError" in measure_memory("additive", "jax", quick=True, threads=1, limit=120).reason


@pytest.mark.slow
def test_a_process_of_its_own_tells_its_progress():
    parts = []
    found = measure_memory("observe-long", "regard", quick=True, threads=1, limit=300, progress=parts.append)
    assert parts == ["1 of 3", "2 of 3", "3 of 3"]
    assert not found.reason


def test_without_a_reset_of_the_peak_the_process_maximum_is_used(monkeypatch):
    monkeypatch.setattr(memory, "_reset_peak", lambda: False)
    found = memory.footprint(task(), task().implementations[0], quick=True)
    assert found.resident > 0
    assert found.extra >= 0


def test_another_backend_is_warmed_up_at_full_size():
    changing = Implementation("regard", torch_builder(doubled), backend=lambda inputs: str(len(inputs["given"])))
    assert memory._other_backend(task(), changing, quick=False)
    assert not memory._other_backend(task(), changing, quick=True)
    assert not memory._other_backend(task(), task().implementations[0], quick=False)


def curve(*implementations):
    return Curve(
        "double",
        "Double",
        lambda sizes: {"given": torch.ones(sizes["queries"])},
        implementations,
        lambda n: {"queries": n},
    )


def test_a_line_of_a_curve_ends_for_a_reason(nobody, monkeypatch):
    monkeypatch.setattr(curves, "LENGTHS", (3, 5, 7))

    def dies(inputs):
        if len(inputs["given"]) > 4:
            raise RuntimeError("too long")
        return doubled(inputs)

    found = measure_curve(
        curve(
            Implementation("regard", torch_builder(doubled)),
            Implementation("eager", torch_builder(dies)),
            Implementation("sdpa", torch_builder(doubled), bytes=lambda sizes: 1e30 if sizes["queries"] > 5 else 0.0),
            Implementation("keras", torch_builder(doubled)),
        ),
        print,
        quick=True,
    )
    assert {column: list(points) for column, points in found.seconds.items()} == {
        "regard": [3, 5, 7], "eager": [3], "sdpa": [3, 5],
    }  # fmt: skip
    assert found.stopped["eager"] == "at 5: RuntimeError"
    assert "would need" in found.stopped["sdpa"]
    assert "not installed" in found.stopped["keras"]


def test_a_line_that_grows_too_slow_stops(nobody, monkeypatch):
    monkeypatch.setattr(curves, "LENGTHS", (3, 5, 7))
    monkeypatch.setattr(curves, "OWN_SECONDS", 0.0)
    found = measure_curve(curve(Implementation("regard", torch_builder(doubled))), print)
    assert list(found.seconds["regard"]) == [3]
    assert "would take" in found.stopped["regard"]


def test_curves_are_over_tasks_that_exist():
    found = all_curves()
    assert [one.name for one in found] == ["additive", "softmax", "entmax15", "window"]
    for one in found:
        assert one.implementations[0].column == "regard"
        assert all(implementation.column in LINES for implementation in one.implementations)
        inputs = one.inputs(one.sizes(37))
        assert inputs["query"].shape[2] == 37


@pytest.mark.parametrize(
    "seconds",
    [
        {},
        {"regard": {64: 1e-4}},
        {"regard": {64: 1e-4, 256: 1e-3, 1024: 1e-2}, "eager": {64: 1e-4}, "jax": {64: 2e-4, 256: 3e-3}},
        {column: {64: 1e-3, 256: 2e-3} for column in ("regard", "eager", "compile", "sdpa", "keras", "entmax", "jax")},
    ],
    ids=["nothing", "one point", "ends", "all alike"],
)
def test_curves_are_drawn_with_a_name_at_every_end(seconds):
    figure = draw(CurveRecord("softmax", "Softmax", seconds, {}))
    axes = figure.axes[0]
    assert len(axes.lines) == len(seconds)
    assert len(axes.texts) == len(seconds)
    assert len({text.get_text() for text in axes.texts}) == len(seconds)
    figure.canvas.draw()
    boxes = [Text.get_window_extent(text) for text in axes.texts]
    for first, second in combinations(boxes, 2):
        assert not first.overlaps(second)


def test_an_accelerator_is_measured_where_tensors_are_its_own(monkeypatch):
    """The emulated device: inputs, masks and the oracle are made there, and memory is read from its own counter."""
    monkeypatch.setattr(emulated_device.MODULE, "is_visible", True)
    monkeypatch.setattr(Target, "wait", lambda self: None)
    monkeypatch.setattr(Target, "peak", lambda self, call: (call(), 5 * MIB)[1])
    monkeypatch.setattr(runner, "available_bytes", lambda device: {emulated_device.NAME: 1 << 30}[device])
    options = Options(quick=True, repeats=1, device=emulated_device.NAME)
    small = replace(WINDOW, quick={**WINDOW.quick, "queries": 96, "keys": 96})
    small = replace(small, implementations=tuple(one for one in small.implementations if one.column != "compile"))
    found = run_task(small, options, PEAKS, print)
    assert not {"regard-cpu", "keras", "jax", "onnxruntime"} & set(found.results)
    for column in ("regard", "regard-sdpa", "eager", "sdpa"):
        own = found.results[column]
        assert (own.state, own.extra_bytes) == ("measured", 5 * MIB), own.reason
        assert own.errors["output"] < 1e-5


def test_requirements_are_those_of_a_cpu(nobody):
    with pytest.raises(BackendError, match=r"no device 'xpu' on this machine; its accelerator is"):
        Target("xpu").check()
    with pytest.raises(ArgumentError, match="device must be cpu, cuda or xpu"):
        Target("mps").check()
    with pytest.raises(ArgumentError, match="the CPU is measured in float32"):
        Target(dtype="bfloat16").check()
    record = Record(False, PEAKS, machine={"accelerator": "one", "dtype": "bfloat16"})
    measured = runner.record_of(WINDOW, Options(), PEAKS, {"regard": Measurement("measured")})
    assert requirements_of(replace(record, machine={}), measured)
    assert not requirements_of(record, measured)
    shown = heading(replace(record, machine={**describe_machine(), "accelerator": "one", "dtype": "bfloat16"})).plain
    assert shown.startswith("one, bfloat16\n")
    assert "CPUs" in shown
    assert "Peaks a second" in shown
    assert not Target().lacks("keras")
    assert Target("cuda").lacks("keras")
    assert Target().lacks("regard-triton")
