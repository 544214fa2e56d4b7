"""``regard bench``: what it writes, what it refuses, and what is left after an interrupt."""

import json
from functools import partial

import pytest

from bench import task_process
from bench.limits import Peaks
from bench.measurement import Measurement, Spread
from bench.record import CurveRecord, TaskRecord
from bench.task import Work
from bench.tasks import TASKS
from regard.errors import ArgumentError


@pytest.fixture
def regard(run_command):
    """Calls ``regard bench``; gives its exit code, standard output and standard error."""
    return partial(run_command, "bench")


@pytest.fixture
def measured(monkeypatch):
    """Nothing is measured: tasks and curves give the same numbers at once. Gives the names that were asked for."""
    asked = []

    def run_alone(task, options, peaks, on_progress):
        asked.append((task.name, options))
        results = {
            implementation.column: Measurement("measured", seconds=Spread(0.02, 0.02, 0.02, 3), ratio=1.0)
            for implementation in task.implementations
        }
        sizes = task.sized(options.quick)
        return TaskRecord(task.name, task.title.format(**sizes), task.group, "", sizes, Work(1.0), 0.01, results)

    monkeypatch.setattr(task_process, "run_alone", run_alone)
    monkeypatch.setattr("bench.limits.measure_peaks", lambda quick: Peaks(1e11, 1e10, 1e9, 1e10))
    monkeypatch.setattr(
        "bench.curves.measure_curve",
        lambda curve, on_progress, quick: CurveRecord(curve.name, curve.title, {"regard": {64: 0.1, 256: 0.2}}, {}),
    )
    return asked


def test_the_list_names_every_task(regard):
    code, output, _ = regard("--list")
    assert code == 0
    assert [line.split()[0] for line in output.splitlines()] == [task.name for task in TASKS]


def test_everything_is_written(regard, measured, tmp_path):
    code, output, _ = regard(
        "--quick", "--json", tmp_path / "bench.json", "--page", tmp_path / "page.md", "--pictures", tmp_path / "drawn"
    )  # fmt: skip
    assert code == 0
    assert "Requirements" in output
    assert [name for name, _ in measured] == [task.name for task in TASKS if not task.long]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bench.json", "drawn", "page.md"]
    names = sorted(path.name for path in (tmp_path / "drawn").iterdir())
    assert names == [f"curve-{name}.png" for name in ("additive", "entmax15", "softmax", "window")]
    assert "](drawn/curve-window.png)" in (tmp_path / "page.md").read_text()
    found = json.loads((tmp_path / "bench.json").read_text())
    assert found["complete"] is True
    assert len(found["tasks"]) == len(measured)

    # The same page again, without measuring.
    first = (tmp_path / "page.md").read_text()
    measured.clear()
    code, _, _ = regard("--from", tmp_path / "bench.json", "--page", tmp_path / "page.md",
                        "--pictures", tmp_path / "drawn", "--compare", tmp_path / "bench.json")  # fmt: skip
    assert code == 0
    assert not measured
    assert (tmp_path / "page.md").read_text() == first


def test_options_reach_the_run(regard, measured):
    import torch

    threads = torch.get_num_threads()
    try:
        code, _, _ = regard("--task", "score-*", "--task", "tiny", "--threads", 1, "--repeats", 3, "--no-memory")
    finally:
        torch.set_num_threads(threads)
    assert code == 0
    assert [name for name, _ in measured][-1] == "tiny"
    assert all(name.startswith("score-") for name, _ in measured[:-1])
    options = measured[0][1]
    assert (options.threads, options.repeats, options.memory, options.quick) == (1, 3, False, False)


def test_comparing_prints_ratios(regard, measured, tmp_path):
    regard("--quick", "--task", "tiny", "--json", tmp_path / "old.json")
    code, output, _ = regard("--quick", "--task", "tiny", "--compare", tmp_path / "old.json")
    assert code == 0
    assert "new / old" in output
    assert "1.00×" in output


def test_an_interrupt_keeps_what_was_measured(regard, measured, tmp_path, monkeypatch):
    whole = task_process.run_alone

    def interrupted(task, *rest):
        if task.name == "decoder":
            raise KeyboardInterrupt
        return whole(task, *rest)

    monkeypatch.setattr(task_process, "run_alone", interrupted)
    code, output, error = regard("--quick", "--json", tmp_path / "bench.json", "--page", tmp_path / "page.md")
    assert code == 130
    assert "kept" in error
    assert "Interrupted" in output
    found = json.loads((tmp_path / "bench.json").read_text())
    assert found["complete"] is False
    assert [task["name"] for task in found["tasks"]] == ["additive", "additive-backward", "additive-memory"]
    assert "interrupted" in (tmp_path / "page.md").read_text()


def test_an_interrupted_run_measures_nothing_twice(regard, measured, tmp_path, monkeypatch):
    whole, path = task_process.run_alone, tmp_path / "bench.json"

    def interrupted(task, *rest):
        if task.name == "decoder":
            raise KeyboardInterrupt
        return whole(task, *rest)

    options = "--quick", "--json", path, "--pictures", tmp_path / "drawn"
    monkeypatch.setattr(task_process, "run_alone", interrupted)
    assert regard(*options)[0] == 130
    monkeypatch.setattr(task_process, "run_alone", whole)
    assert regard(*options, "--resume")[0] == 0
    names = [task.name for task in TASKS if not task.long]
    assert [name for name, _ in measured] == names
    found = json.loads(path.read_text())
    assert found["complete"] is True
    assert [task["name"] for task in found["tasks"]] == names
    assert len(found["curves"]) == 4


@pytest.mark.parametrize(
    ("key", "words"), [("machine", ["cpu", "another"]), ("versions", ["torch", "1.0"]), ("quick", ["sizes", "False"])]
)
def test_a_run_of_another_kind_is_not_continued(regard, measured, tmp_path, key, words):
    path = tmp_path / "bench.json"
    regard("--quick", "--task", "dot-128", "--json", path)
    record = json.loads(path.read_text())
    record[key] = {"machine": {"cpu": "another"}, "versions": {**record["versions"], "torch": "1.0"}, "quick": False}[
        key
    ]
    path.write_text(json.dumps(record))
    code, _, error = regard("--quick", "--task", "dot-128", "--json", path, "--resume")
    assert code == 2
    assert all(word in error for word in words)
    assert json.loads(path.read_text()) == record


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--resume"], ["--json"]),
        (["--task", "aditive"], ["task", "additive"]),
        (["--from", "missing.json"], ["missing.json"]),
        (["--compare", "missing.json"], ["missing.json"]),
        (["--from", "missing.json", "--quick"], ["--from", "--quick"]),
        (["--json", "nowhere/bench.json"], ["nowhere"]),
        (["--task", "additive-memory", "--no-memory"], ["additive-memory", "--no-memory"]),
    ],
)
def test_bench_refuses_contradictory_options(regard, measured, arguments, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, error = regard(*arguments)
    assert code == 2
    assert not measured
    for word in words:
        assert word in error


@pytest.mark.slow
def test_a_real_run(regard, tmp_path):
    import torch

    threads = torch.get_num_threads()
    try:
        code, output, _ = regard(
            "--quick", "--task", "observe-long", "--threads", 1, "--json", tmp_path / "bench.json"
        )  # fmt: skip
    finally:
        torch.set_num_threads(threads)
    assert code == 0
    found = json.loads((tmp_path / "bench.json").read_text())["tasks"][0]
    assert found["results"]["regard"]["resident_bytes"] > 50e6
    assert found["results"]["regard"]["alone"] > 0
    assert "observe-long" in output


def test_an_installed_wheel_says_where_the_benchmark_is(monkeypatch, tmp_path):
    """Without a checkout around the package there is nothing to measure with: one line, no traceback."""
    from regard.cli import bench

    assert (bench.checkout() / "bench" / "command.py").is_file()
    monkeypatch.setattr("regard.__file__", str(tmp_path / "site-packages" / "regard" / "__init__.py"))
    assert bench.checkout() is None
    with pytest.raises(ArgumentError, match="clone regard's repository"):
        bench._command()("--task", "additive")
