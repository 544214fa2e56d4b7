"""Bad use of the commands: a line on standard error, and the command that was meant; exit code 2; nothing is lost."""

import hashlib
import shlex
import types
import typing
from collections import Counter
from pathlib import Path

import datasets
import pytest

import bad_use_cases
from bad_use_cases import HOSTILE
from regard.cli.commands import COMMANDS, build
from regard.data.text import sources
from regard.data.text.generated import write_corpus

BASES = {
    "demo": "demo",
    "explain": "explain --query '1 2; 3 4'",
    "train translate": "train translate --bundled 30",
    "train classify": "train classify --bundled 30",
    "train segment": "train segment --bundled 30",
    "evaluate": "evaluate {run} {data}",
    "predict": "predict {run} a",
    "push": "push {run} alice/x",
    "view": "view {run} a -o {folder}/a.html",
    "serve": "serve {run} --port 0",
    "bench": "bench --list",
    "cache": "cache",
    "doctor": "doctor",
}
"""Command → arguments that would be right."""

MAY_BE_EMPTY = ("--title", "--logger")

CONFIG = "task: translate\ndata:\n  bundled: 30\n  lowercase: {lowercase}\nmodel: {{}}\n{training}:\n  {epochs}\n"


def is_a(kind, argument):
    """Whether a text for this option becomes a value of this type."""
    hint = argument.hint
    return hint is kind or (
        typing.get_origin(hint) in (typing.Union, types.UnionType) and kind in typing.get_args(hint)
    )


def wrong_values(argument):
    """Values that an option cannot have because of its type."""
    if is_a(bool, argument):
        return ["maybe"]
    wrong = [] if argument.name in MAY_BE_EMPTY else [""]
    if is_a(int, argument):
        wrong += ["x", "1.5", "9" * 40, "nan", "1e3"]
    elif is_a(float, argument):
        wrong += ["x", "nan", "inf", "-inf", "1e999", "1,5"]
    elif argument.get_choices():
        wrong += ["nonsense", "\x1b[31m"]
    return wrong


def every_option(full):
    """A case for every option of every command, with a value that its type excludes: every such value in turn, and an
    option that several trainings share with one of them; or each value for each option of each command if ``full``."""
    turns, shared = Counter(), set()
    for command, base in BASES.items():
        app = build(command.split())
        for name in command.split():
            app = app[name]
        for argument in app.assemble_argument_collection():
            for name in argument.names:
                if not argument.parse or argument.children or not name.startswith("--"):
                    continue
                values = wrong_values(argument)
                if values and not full:
                    kind = tuple(values)
                    if (name, kind) in shared:
                        continue
                    if command.startswith("train"):
                        shared.add((name, kind))
                    values = [values[turns[kind] % len(values)]]
                    turns[kind] += 1
                for value in values:
                    typed = [f"{name}={value}"] if is_a(bool, argument) else [name, value]
                    yield pytest.param(base, typed, name, id=f"{command} {name} {value!r}")


def hostile():
    """A case for each hostile text in places that take any text."""
    for label, text in HOSTILE.items():
        for base, typed in (
            ("", [text]),
            ("explain --query '1 2' --score", [text]),
            ("explain --query '1 2' --mask", [text]),
            ("explain --query", [text]),
            ("train translate --bundled 30 --attention", [text]),
            ("train translate --train", [text]),
            ("evaluate {run}", [text]),
            ("predict", [text, "a"]),
        ):
            yield pytest.param(base, typed, "", id=f"{base} {label}")


def written(runs):
    """Cases of the table that was written by hand."""
    for command, words in runs:
        yield pytest.param(command, [], words, id=command)


@pytest.fixture(scope="module", autouse=True)
def _offline(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))
        patch.setattr(sources, "_hub_answers", lambda: False)
        yield


@pytest.fixture(scope="module")
def untouched(files):
    """The state of all files before the first bad use."""
    return state(Path(files["folder"]).parent)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Files by the names that the cases use; a trained run among them."""
    place = tmp_path_factory.mktemp("bad use")
    corpus = write_corpus(place / "corpus", {"train": 61, "validation": 7, "test": 11}, 3)
    content = {
        "empty": b"",
        "binary": bytes(range(256)),
        "latin": "[[1, \xe9]]".encode("latin-1"),
        "npy": b"not numpy",
        "one_column": b"english\nyes\nno\n",
        "json": b"{}",
        "sentences": b"the cat sees a dog\n" * 40,
        "broken_yaml": b"a: [1,\n  b: }",
        "list_yaml": b"- data\n- model\n",
        "object_yaml": b"!!python/object/apply:os.system ['touch executed']\n",
        "other_task": b"task: other\ndata: {}\n",
    }
    settings = {
        "unknown_field": ("false", "training", "epoch: 3"),
        "unknown_section": ("false", "trainin", "epochs: 3"),
        "wrong_type": ("false", "training", "epochs: many"),
        "wrong_choice": ("false", "training", "schedule: cosin"),
        "wrong_range": ("false", "training", "seed: -1"),
        "wrong_bool": ("sometimes", "training", "epochs: 3"),
    }
    for name, (lowercase, training, epochs) in settings.items():
        content[name] = CONFIG.format(lowercase=lowercase, training=training, epochs=epochs).encode()
    found = {name: place / name for name in ("missing", "folder", "runs", *content)}
    found |= {"npy": place / "wrong.npy", "json": place / "wrong.json", "sentences": place / "sentences.txt"}
    for name, text in content.items():
        found[name].write_bytes(text)
    (place / "latin.json").write_bytes(content["latin"])
    (place / "folder").mkdir()
    (place / "folder.npy").mkdir()
    found |= {"data": corpus["train"], "other": corpus["test"], "run": place / "runs" / "tiny"}
    occupied = place / "runs" / "occupied"
    occupied.mkdir(parents=True)
    (occupied / "thesis.tex").write_text("dear")
    train(found)
    return {name: str(path) for name, path in found.items()}


def train(found):
    """Make the trained run."""
    from regard.cli import main

    arguments = ["train", "translate", "--train", found["data"], "--validation", found["other"], "--epochs", "1"]
    columns = ["--source-column", "english", "--target-column", "spanish", "--tokenizer", "word", "--hidden", "10"]
    place = ["--embedding", "6", "--runs", found["runs"], "--run", "tiny", "--threads", "1", "--device", "cpu"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["regard", *map(str, arguments + columns + place)])
        with pytest.raises(SystemExit) as ended:
            main()
    assert not ended.value.code


def state(folder):
    """Every file below this folder, with a checksum."""
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
        for path in Path(folder).rglob("*")
    }


def every_case(full):
    return [*every_option(full), *hostile(), *written(bad_use_cases.ALL)]


def pytest_generate_tests(metafunc):
    if "command" in metafunc.fixturenames:
        metafunc.parametrize(("command", "typed", "words"), every_case(metafunc.config.getoption("full")))


def test_wrong_commands_end_with_one_line(run_command, monkeypatch, tmp_path, files, untouched, command, typed, words):
    monkeypatch.chdir(tmp_path)
    arguments = [part.format(**files) for part in shlex.split(command)]
    code, output, error = run_command(*arguments, *typed)
    lines = error.splitlines()
    assert code == 2, f"{output}\n{error}"
    assert len(lines) in (1, 2), error
    assert lines[0].startswith("regard: error: ")
    assert all(line.isprintable() for line in lines), error
    assert all(line.startswith("regard ") and shlex.split(line)[1] in COMMANDS for line in lines[1:]), error
    for word in words.format(**files).split():
        assert word in lines[0]
    assert state(Path(files["folder"]).parent) == untouched
    assert not [*tmp_path.iterdir()]


def test_there_are_many_kinds_of_bad_use():
    assert len(every_case(full=True)) > len(every_case(full=False)) > 500
