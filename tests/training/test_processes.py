"""Which process of a distributed run is the first one."""

import sys

import pytest

from regard.errors import MissingPartError
from regard.training.config import TrainingConfig
from regard.training.processes import is_first_process, make_fabric

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


def test_a_torchvision_of_another_build_stops_a_training_in_one_line(tmp_path, monkeypatch):
    """Lightning imports torchvision where there is one, whose operators are then not there."""
    (tmp_path / "lightning").mkdir()
    (tmp_path / "lightning/__init__.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    for name in [name for name in sys.modules if name.partition(".")[0] == "lightning"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(MissingPartError) as seen:
        make_fabric(TrainingConfig())
    said = "lightning cannot be imported (operator torchvision::nms does not exist); "
    assert str(seen.value) == said + MissingPartError.SAME_BUILD
