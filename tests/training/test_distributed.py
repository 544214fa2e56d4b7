"""Two processes on one machine (gloo): they train what one process would, and survive the death of one."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from regard.data.text.batches import PairBatch
from regard.tasks.translate import TASK
from regard.training.checkpoints import list_checkpoints, load_checkpoint
from regard.training.progress import Progress
from regard.training.randomness import seed_step
from regard.training.run_folder import RunFolder

SCRIPT = Path(__file__).with_name("distributed_run.py")
STRATEGIES = ("ddp", "fsdp")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def launched(distributed, tmp_path_factory):
    """The folder of trainings, one after the other, each in two processes; by its name the exit codes of those that
    failed, and what was written on standard error."""
    folder = tmp_path_factory.mktemp("distributed")
    content = {}
    for strategy in STRATEGIES:
        config, kept = distributed(strategy).to_dict(), distributed(strategy, checkpoint_steps=2).to_dict()
        file = str(folder / f"{strategy}.pt")
        content[f"{strategy} gradients"] = (str(folder / f"{strategy}-gradients"), config, "gradients", file)
        content[f"{strategy} whole"] = (str(folder / f"{strategy}-whole"), kept)
        content[f"{strategy} killed"] = (str(folder / f"{strategy}-killed"), kept, "kill", "5")
        content[f"{strategy} resumed"] = (str(folder / f"{strategy}-killed"), kept, "resume")
    ended = subprocess.run(
        [sys.executable, str(SCRIPT), str(folder / "cache"), json.dumps([*content.values()])], check=False,
        capture_output=True, text=True, timeout=1800, env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-3000:]
    codes = [json.loads(line) for line in ended.stdout.splitlines()]
    assert len(codes) == len(content), ended.stderr[-3000:]
    return folder, dict(zip(content, codes, strict=True)), ended.stderr[-3000:]


@pytest.fixture(scope="module")
def distributed(tiny):
    """Makes the configuration of a run in two processes."""

    def make(strategy="ddp", **training):
        plain = tiny(model={"dropout": 0.0}, scheduled_sampling=0.0, clip=0.0, **training)
        return dataclasses.replace(plain, training=dataclasses.replace(plain.training, devices="2", strategy=strategy))

    return make


def test_the_gradient_is_that_of_one_process_with_the_joined_batch(launched, distributed, tmp_path):
    trained, codes, error = launched
    config = distributed("ddp")
    folder = RunFolder(tmp_path / "alone")
    folder.path.mkdir()
    seed_step(config.training.seed, -1)
    experiment = TASK.prepare(config, folder)
    batches = [next(iter(experiment.batches(rank, 2))) for rank in range(2)]
    assert batches[0].target_tokens != batches[1].target_tokens
    sides = [
        [row[:length].tolist() for batch in batches for row, length in zip(side(batch), lengths(batch), strict=True)]
        for side, lengths in (
            (lambda batch: batch.source, lambda batch: batch.source_lengths),
            (lambda batch: batch.target[:, 1:], lambda batch: batch.target_lengths - 2),
        )
    ]
    experiment.model.train()
    experiment.loss(PairBatch.of(*sides)).total.backward()
    for strategy in STRATEGIES:
        assert codes[f"{strategy} gradients"] == [], error
        found = torch.load(trained / f"{strategy}.pt")
        for name, parameter in experiment.model.named_parameters():
            torch.testing.assert_close(
                found[name],
                parameter.grad,
                rtol=1e-4,
                atol=1e-6,
                msg=lambda m, says=f"{strategy} {name}": f"{says} {m}",
            )


def test_the_first_process_starts_the_others(distributed, tmp_path):
    config = distributed("ddp", epochs=1)
    command = [
        sys.executable,
        str(SCRIPT),
        "alone",
        *map(str, (tmp_path / "cache", tmp_path / "run")),
        json.dumps(config.to_dict()),
    ]
    subprocess.run(command, check=True, timeout=600, env=os.environ | {"OMP_NUM_THREADS": "1"})
    folder = RunFolder(tmp_path / "run")
    experiment = TASK.prepare(config, folder)
    (row,) = folder.read_metrics()
    assert row["step"] == len(experiment.batches(0, 2)) < len(experiment.batches(0, 1))
    assert folder.model.is_file()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_killed_worker_ends_the_run_and_it_resumes(launched, strategy):
    trained, codes, error = launched
    # The launcher reports the worker that it sees end first: the killed one, or the other, which lost its connection.
    assert codes[f"{strategy} killed"] in ([-signal.SIGKILL], [1]), error
    assert codes[f"{strategy} whole"] == codes[f"{strategy} resumed"] == [], error
    states = []
    for name in ("whole", "killed"):
        folder = RunFolder(trained / f"{strategy}-{name}")
        last = load_checkpoint(list_checkpoints(folder.checkpoints)[-1], folder.manifest)
        progress = Progress()
        progress.restore(last["regard"])
        assert progress.epoch == 2
        states.append((last["state_dict"], folder.read_metrics()[-1]["val_loss"], folder.model.read_bytes()))
    for name, tensor in states[0][0].items():
        assert torch.equal(tensor, states[1][0][name]), name
    assert states[0][1:] == states[1][1:]
