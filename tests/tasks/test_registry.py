"""Tasks are found by name, by the configuration of a run, and in other packages."""

import dataclasses

import pytest

from regard.configuration.options import option_fields
from regard.errors import RunError, UnknownNameError
from regard.names.field_texts import field_texts
from regard.tasks import registry
from regard.training.config import TrainingConfig
from regard.training.run_folder import RunFolder


class Point:
    """An entry point that gives this."""

    def __init__(self, found):
        self.found = found
        self.module = "somewhere"
        self.dist = None

    def load(self):
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


@pytest.mark.parametrize("name", registry.BUILT_IN_TASKS)
def test_a_task_says_what_it_is(name):
    task = registry.find(name)
    assert (task.name, task.summary) == (name, registry.names()[name])
    assert len({metric.name for metric in task.metrics}) == len(task.metrics) >= 1
    assert issubclass(task.training_config, TrainingConfig)


@pytest.mark.parametrize("name", registry.BUILT_IN_TASKS)
def test_every_field_of_a_configuration_is_documented_and_has_one_meaning(name):
    task = registry.find(name)
    fields = []
    for kind in (task.data_config, task.model_config, task.training_config):
        fields += [field.name for field in option_fields(kind)]
        for base in kind.__mro__:
            if dataclasses.is_dataclass(base):
                assert undocumented(base) == set(), base
    assert len(set(fields)) == len(fields)
    for kind in (task.prediction_config, task.evaluation_config):
        assert undocumented(kind) == set(), kind


def undocumented(kind):
    """The fields of a dataclass without a docstring below them, or below the field of a base that they repeat."""
    texts = field_texts(kind)
    return {field.name for field in dataclasses.fields(kind) if not texts.get(field.name)}


def test_unknown_names_have_neighbours():
    with pytest.raises(UnknownNameError, match="did you mean 'translate'"):
        registry.find("translat")


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (ModuleNotFoundError("No module named 'gone'"), "cannot be imported .*gone"),
        (SyntaxError("broken"), "cannot be imported"),
        (7, "registers a int"),
        (registry.find("translate"), "registers the task 'translate' as the task 'other'"),
    ],
)
def test_a_package_that_registers_no_task_is_named(monkeypatch, found, message):
    monkeypatch.setattr(registry, "_points", lambda: {"other": Point(found)})
    with pytest.raises(RunError, match=message) as caught:
        registry.find("other")
    assert "somewhere" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_run_of_an_unknown_task_says_so(tmp_path):
    folder = RunFolder(tmp_path)
    folder.config.write_text("task: count\ndata: {}\nmodel: {}\ntraining: {}\n")
    with pytest.raises(RunError, match="a run of the task 'count', which no installed package has"):
        registry.of_run(folder)
    folder.config.write_text("task: [1]\ndata: {}\nmodel: {}\ntraining: {}\n")
    with pytest.raises(RunError, match="task must be the name"):
        registry.of_run(folder)
    folder.config.write_text("data: {}\nmodel: {}\ntraining: {}\n")
    assert registry.of_run(folder).name == "translate"


def test_a_configuration_of_another_task_is_refused(tmp_path, tiny):
    folder = RunFolder(tmp_path)
    folder.write_config(tiny())
    folder.config.write_text(folder.config.read_text().replace("task: translate", "task: count"))
    with pytest.raises(RunError, match="of the task 'count', not of 'translate'"):
        folder.read_config(registry.find("translate"))
