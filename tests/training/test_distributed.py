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
pytestmark = pytest.mark.slow


def launch(cache, *trainings):
    """Run trainings one after the other, each in two processes; the exit codes of those that failed, for each."""
    content = [(str(folder), config.to_dict(), *map(str, what)) for folder, config, *what in trainings]
    ended = subprocess.run(
        [sys.executable, str(SCRIPT), str(cache), json.dumps(content)], check=False, capture_output=True, text=True,
        timeout=600, env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-3000:]
    codes = [json.loads(line) for line in ended.stdout.splitlines()]
    assert len(codes) == len(trainings), ended.stderr[-3000:]
    return codes, ended.stderr[-3000:]


@pytest.fixture(scope="module")
def distributed(tiny):
    """Makes the configuration of a run in two processes."""

    def make(strategy="ddp", **training):
        plain = tiny(model={"dropout": 0.0}, scheduled_sampling=0.0, clip=0.0, **training)
        return dataclasses.replace(plain, training=dataclasses.replace(plain.training, devices="2", strategy=strategy))

    return make


def test_the_gradient_is_that_of_one_process_with_the_joined_batch(distributed, tmp_path):
    configs = {strategy: distributed(strategy) for strategy in ("ddp", "fsdp")}
    codes, error = launch(
        tmp_path / "cache",
        *((tmp_path / name, config, "gradients", tmp_path / f"{name}.pt") for name, config in configs.items()),
    )
    assert codes == [[], []], error

    config = configs["ddp"]
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
    for strategy in configs:
        found = torch.load(tmp_path / f"{strategy}.pt")
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


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_a_killed_worker_ends_the_run_and_it_resumes(distributed, strategy, tmp_path):
    config = distributed(strategy, checkpoint_steps=2)
    codes, error = launch(
        tmp_path / "cache",
        (tmp_path / "whole", config),
        (tmp_path / "killed", config, "kill", 5),
        (tmp_path / "killed", config, "resume"),
    )
    # The launcher reports the worker that it sees end first: the killed one, or the other, which lost its connection.
    assert codes[1] in ([-signal.SIGKILL], [1]), error
    assert codes[::2] == [[], []], error
    states = []
    for name in ("whole", "killed"):
        folder = RunFolder(tmp_path / name)
        last = load_checkpoint(list_checkpoints(folder.checkpoints)[-1], folder.manifest)
        progress = Progress()
        progress.restore(last["regard"])
        assert progress.epoch == 2
        states.append((last["state_dict"], folder.read_metrics()[-1]["val_loss"], folder.model.read_bytes()))
    for name, tensor in states[0][0].items():
        assert torch.equal(tensor, states[1][0][name]), name
    assert states[0][1:] == states[1][1:]
