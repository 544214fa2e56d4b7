"""A generated corpus that lacks a label is refused at once."""

import csv
import json

import pytest

from regard.errors import ArgumentError
from regard.tasks import registry


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
    assert task.data_config(bundled=least).bundled == least
    with pytest.raises(ArgumentError, match=f"bundled must be at least {least}, so that each label"):
        task.data_config(bundled=least - 1)
