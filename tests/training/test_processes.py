"""Which process of a distributed run is the first one."""

import pytest

from regard.training.processes import is_first_process

NAMES = ("LOCAL_RANK", "NODE_RANK", "RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS")


@pytest.mark.parametrize(
    ("variables", "first"),
    [
        ({}, True),
        ({"LOCAL_RANK": "0", "RANK": "0", "WORLD_SIZE": "4"}, True),
        ({"LOCAL_RANK": "1", "NODE_RANK": "0"}, False),
        ({"NODE_RANK": "1"}, False),
        ({"LOCAL_RANK": "0", "RANK": "4", "WORLD_SIZE": "8"}, False),
        ({"SLURM_PROCID": "3", "SLURM_NTASKS": "4"}, False),
        ({"SLURM_PROCID": "3", "SLURM_NTASKS": "1"}, True),
        ({"RANK": "7"}, True),
        ({"RANK": "first", "WORLD_SIZE": "2"}, True),
    ],
)
def test_the_first_process_is_known_by_its_variables(monkeypatch, variables, first):
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert is_first_process() is first
