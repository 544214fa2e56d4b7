"""A training step of each task waits for no accelerator, so that the device always has work."""

import pytest

import regard
from bench.scripts.gpu_tasks import CASES
from regard.models import chunked_loss, recurrence
from regard.tasks import registry
from regard.training import loop
from waits import waits_in

ROOMS = "data", "models", "tasks", "training"


class EnoughError(Exception):
    """A step was taken."""


@pytest.mark.parametrize("name", registry.names())
def test_a_training_step_waits_for_nothing(name, tmp_path, monkeypatch, small_corpora):
    take_step, found = loop.TrainingLoop._take_step, []

    def second_step_is_watched(training, batch):
        if not training.progress.step:
            return take_step(training, batch)
        batch = batch.to("cpu")  # which counts its tokens, as a batch does before it is on the device
        with waits_in(*ROOMS) as waits:
            take_step(training, batch)
        found.append(waits.found)
        raise EnoughError

    for module in (loop, chunked_loss, recurrence):  # as on an accelerator
        monkeypatch.setattr(module, "is_on_host", lambda tensor: False)
    monkeypatch.setattr(loop.TrainingLoop, "_take_step", second_step_is_watched)
    with pytest.raises(EnoughError):
        regard.train(name, run=tmp_path / "run", quiet=True, accelerator="cpu", **CASES[name])
    assert found == [[]]
