"""A generated corpus that lacks a label is refused at once."""

import csv
import json

import pytest

from regard.cli.run_configuration import compose_config, resume_config
from regard.errors import ArgumentError
from regard.tasks import registry
from regard.training.config import RunConfig
from regard.training.fitted_config import fit_config


def labels(path):
    with path.open(newline="") as file:
        if path.suffix == ".jsonl":
            return [json.loads(line)["label"] for line in file]
        return [row["text"] for row in csv.DictReader(file, delimiter="\t")]


@pytest.mark.parametrize("name", ["images", "sounds"])
def test_the_fewest_examples_have_every_label(name, tmp_path):
    task = registry.find(name)
    least, write = task.data_config.least_bundled, task.input.generated.write
    many = labels(write(tmp_path, {"train": least + 15})["train"])
    assert set(many[:least]) == set(many) > set(many[: least - 1])
    assert fitted(task, least).data.bundled == least
    with pytest.raises(ArgumentError, match=f"bundled must be at least {least}, so that each label"):
        fitted(task, least - 1)
    with pytest.raises(ArgumentError, match=f"--bundled must be at least {least}, so that each label"):
        compose_config(task, None, {"bundled": least - 1})


def fitted(task, bundled):
    return fit_config(task, {"data": {"bundled": bundled}, "model": {}, "training": {}}, measured=False).config


@pytest.mark.parametrize("name", ["images", "sounds"])
def test_a_run_of_an_earlier_version_with_fewer_is_read_and_continued(name):
    task = registry.find(name)
    few = task.data_config.least_bundled - 1
    content = {"task": name, "data": {"bundled": few}, "model": {}, "training": {}}
    run = RunConfig.from_dict(content, "config.yaml", task)
    assert run.data.bundled == few
    assert resume_config(task, run, {"epochs": 99}).data.bundled == few
