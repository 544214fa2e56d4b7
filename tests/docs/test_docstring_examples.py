"""The examples in docstrings: each is run, and the table says which rooms have one for each public name."""

import doctest
import inspect
import re
import typing

import pytest

import regard

ROOMS = {
    "regard": True,
    "attention": True,
    "nn": True,
    "explanations": True,
    "records": True,
    "exports": True,
    "masks": True,
    "biases": True,
    "scores": True,
    "normalizers": True,
    "positions": True,
    "models": True,
    "pictures": True,
    "viewer": True,
    "watching": True,
    "errors": False,
}
"""Room → whether each of its public callables has an example; a complete room stays complete."""


NEEDS = {"Backbone": "torchvision", "register_transformers": "transformers"}
"""Name → the package of another project that its example runs."""


@pytest.fixture(autouse=True)
def _folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def callables(room):
    """Name → class or function of a room: its public callables, an instance such as `softmax` as its class."""
    module = regard if room == "regard" else getattr(regard, room)
    values = {name: getattr(module, name) for name in module.__all__}
    # A package that is called says what is a function, which makes it no function.
    called = {name: value for name, value in values.items() if callable(value) and not inspect.ismodule(value)}
    values = {name: value for name, value in called.items() if typing.get_origin(value) is None}
    return {name: v if inspect.isclass(v) or inspect.isfunction(v) else type(v) for name, v in values.items()}


def examples(value):
    return doctest.DocTestParser().get_examples(inspect.getdoc(value) or "") if value.__doc__ else []


EXAMPLES = [(room, name) for room in ROOMS for name, value in callables(room).items() if examples(value)]

ONCE = {id(callables(room)[name]): (room, name) for room, name in EXAMPLES}.values()
"""The examples without those of the same object under another name."""


class Numbers(doctest.OutputChecker):
    """Compares numbers up to their last digits."""

    def check_output(self, want, got, optionflags):
        if super().check_output(want, got, optionflags):
            return True
        (words, numbers), (got_words, got_numbers) = split_numbers(want), split_numbers(got)
        return words == got_words and numbers == pytest.approx(got_numbers, abs=2e-4)


def split_numbers(text):
    """The text without its numbers and spaces, and the numbers."""
    pattern = re.compile(r"-?\d+\.?\d*(?:e[+-]?\d+)?")
    return "".join(pattern.sub("#", text).split()), [float(number) for number in pattern.findall(text)]


@pytest.mark.parametrize(("room", "name"), ONCE)
def test_an_example_prints_what_it_says(room, name):
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    value = callables(room)[name]
    test = doctest.DocTest(examples(value), {}, f"{room}.{name}", inspect.getsourcefile(value), 0, None)
    printed = []
    runner = doctest.DocTestRunner(Numbers(), verbose=False, optionflags=doctest.ELLIPSIS)
    runner.run(test, out=printed.append)
    assert not printed, "".join(printed)


def test_which_rooms_have_an_example_for_each_name():
    for room, is_complete in ROOMS.items():
        without = [name for name in callables(room) if (room, name) not in EXAMPLES]
        assert (not without) == is_complete, f"{room}: {without}"
