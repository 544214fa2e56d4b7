"""Each task on an accelerator: what its training, its validation, its searches and a watch of it wait for."""

from collections import Counter

import pytest

import regard
from bench.scripts.gpu_tasks import CASES, SEARCHED, ended_after, inputs_of
from image_runs import small_corpora  # noqa: F401
from regard.data.batches import Batch
from regard.models.search.decoder_protocol import Limits
from regard.training.loop import TrainingLoop

SEARCHES = "models/search/greedy_and_sampling.py", "models/search/beam_search.py", "models/text_continuation.py"


def by_file(waits):
    """How often each file of regard waited."""
    return Counter(wait.partition(" from ")[2].rpartition(" > ")[2].partition(":")[0] for wait in waits)


def counting(monkeypatch, kind, name):
    """Counts the calls of a method."""
    method, calls = getattr(kind, name), []

    def counted(*arguments):
        calls.append(name)
        return method(*arguments)

    monkeypatch.setattr(kind, name, counted)
    return calls


@pytest.mark.usefixtures("small_corpora")
@pytest.mark.parametrize("task", ["translate", "classify", "language", "images", "segment", "sounds"])
def test_a_task_waits_for_what_it_reads(task, accelerator, device, waits, tmp_path, monkeypatch):
    found, results = {}, []
    moved, steps = counting(monkeypatch, Batch, "to"), counting(monkeypatch, Limits, "restrict")
    take_step, measure = TrainingLoop._take_step, TrainingLoop._measure

    def step(loop, batch):
        found["step"] = by_file(waits(lambda: take_step(loop, batch)))

    def measured(loop):
        moved.clear()
        steps.clear()
        found["validation"] = by_file(waits(lambda: results.append(measure(loop))))
        return results.pop()

    monkeypatch.setattr(TrainingLoop, "_take_step", step)
    monkeypatch.setattr(TrainingLoop, "_measure", measured)
    with ended_after(2):
        run = regard.train(
            task, run=tmp_path / "run", quiet=True, accelerator=accelerator, device=device, **CASES[task]
        )
    assert not found["step"]
    found["validation"] = Counter(
        {file: number for file, number in found["validation"].items() if not file.startswith("attention/")}
    )  # without the trials of the first call of a kind on a device
    searching = sum(found["validation"].pop(file, 0) for file in SEARCHES)
    assert found["validation"].total() <= max(1, len(moved)) + 2, found
    if task != "language":
        assert searching <= len(steps) + 4 * len(moved)

    inputs = inputs_of(run, tmp_path / "run")[:1]
    for beam in (1, 2) if task in SEARCHED else (0,):
        options = {"beam": beam} if beam else {"tokens": 3} if task == "language" else {}
        steps.clear()
        reads = by_file(waits(lambda options=options: run.predict(inputs, **options)))
        assert sum(reads[file] for file in SEARCHES) <= (4 if task == "language" else len(steps)) + 4, reads

    def watched():
        with regard.watch(run.model, read=regard.Readings(entropy=True, received=True)) as seen:
            run.predict(inputs, **options)
        results.append(len(seen.calls))

    reads = by_file(waits(watched))
    assert results[0] > 0
    assert reads["watching/call_reader.py"] <= 2 * results[0]
