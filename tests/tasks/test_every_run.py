"""What holds for the runs of every task, by the commands, on the data that each task brings along.

A run that is interrupted and killed continues as if it had not been; it predicts and evaluates; damage is one line.
"""

import csv
import html
import json
import os
import re
import shutil
import signal
from pathlib import Path

import datasets
import pytest
import safetensors
import safetensors.torch
import torch
import yaml

import regard
from covering import covering
from forked import at_checkpoint, killed_command
from regard.tasks import registry
from regard.training.results import Prediction
from regard.training.run_folder import RunFolder
from shared_folders import shared_folder

TEXT = "--tokenizer word --vocabulary 200"
TINY = "--embedding 6 --hidden 8"
TRANSFORMER = "--architecture transformer --hidden 8 --heads 2 --feedforward 9 --encoder-layers 1 --decoder-layers 1"
TRANSLATE = f"--bundled 90 --validation-pairs 7 --tokens-per-batch 300 {TEXT}"
LANGUAGE = (
    "--train bundled --bundled 60 --validation-tokens 50 --tokenizer char --context 13 --layers 1 --hidden 8 --heads 2 "
    "--batch-size 4 --steps-per-epoch 5"
)
SUMMARIZE = "--bundled 40 --validation-articles 5 --tokens-per-batch 500"
CAPTION = f"--bundled 23 --batch-size 5 --max-length 7 --grid 8 --stages 2 --jitter 0.1 {TINY}"
SOUNDS = "--rate 8000 --bands 12 --convolutions 1 --channels 2 --pyramid-layers 1"
SPEECH = f"{SOUNDS} --tokenizer word --max-length 8 --decoder-hidden 8 --score-features 5"
RUNS = {
    "translate": f"{TRANSLATE} {TINY} --scheduled-sampling 0.2",
    "translate-transformer": f"{TRANSLATE} --architecture transformer --hidden 12 --heads 2 --feedforward 13",
    "language": LANGUAGE,
    "language-consecutive": f"{LANGUAGE} --windows consecutive",
    "classify": f"--bundled 120 --batch-size 20 --vocabulary 200 {TINY}",
    "summarize": f"{SUMMARIZE} {TINY}",
    "summarize-transformer": f"{SUMMARIZE} {TRANSFORMER}",
    "caption": CAPTION,
    "caption-hard": f"{CAPTION} --attention hard",
    "images": "--bundled 53 --batch-size 5 --architecture cnn --gate cbam --grid 16 --stages 1 --patch 8 --flip",
    "segment": "--bundled 21 --batch-size 5 --channels 4 --levels 3 --blocks 1 --decoder-channels 8",
    "transcribe": f"--bundled 20 --batch-size 4 {SPEECH} {TINY}",
    "sounds": f"--bundled 60 --batch-size 12 {SOUNDS} --hidden 8",
}
"""Name → the options of a tiny run on bundled data; its task is the first word of the name."""

SOUND = "sounds/test-000000.wav"
INPUTS = {
    **dict.fromkeys(("caption", "images", "segment"), "test-1.png"),
    **dict.fromkeys(("transcribe", "sounds"), SOUND),
}
"""Task → a file of the bundled data to predict; text for the others."""


def train(name, *more):
    """The arguments that train the run of this name in ``runs/x``."""
    task = name.partition("-")[0]
    options = "--epochs 2 --checkpoint-steps 2 --threads 1 --device cpu --run x"
    return ["train", task, *RUNS[name].split(), *options.split(), *more]


def resume(name):
    return ["train", name.partition("-")[0], "--run", "x", "--resume"]


def skip_evaluation(patch):
    """A training ends without measuring the model on all bundled test data, which takes longer than it."""
    patch.setattr("regard.cli.evaluate.evaluate_run", lambda *arguments, **options: None)


@pytest.fixture(autouse=True)
def _small(small_corpora):
    """The bundled examples for validation and tests are few."""


@pytest.fixture
def whole(run_command, tmp_path_factory, monkeypatch):
    """The folder of a run that nothing interrupted, by its name here; no test changes it."""

    def make(name):
        def train_whole(folder):
            folder.mkdir()
            with monkeypatch.context() as patch:
                patch.chdir(folder)
                skip_evaluation(patch)
                code, _, error = run_command(*train(name))
            assert code == 0, error

        return shared_folder(tmp_path_factory, f"whole/{name}", train_whole) / "runs" / "x"

    return make


def tensors(content, name=""):
    """Every tensor of a checkpoint by its path."""
    if isinstance(content, torch.Tensor):
        yield name, content
    elif isinstance(content, dict | list | tuple):
        items = content.items() if isinstance(content, dict) else enumerate(content)
        for key, value in items:
            yield from tensors(value, f"{name}.{key}")


def results(run):
    """Everything of a run that is no measurement of time: metrics, samples, best weights, and the last state."""
    with (run / "metrics.csv").open(newline="") as file:
        rows = [{key: value for key, value in row.items() if "second" not in key} for row in csv.DictReader(file)]
    last = max((run / "checkpoints").glob("*.ckpt"))
    state = dict(tensors(torch.load(last, weights_only=True)))
    return rows, (run / "samples.jsonl").read_text(), (run / "model.safetensors").read_bytes(), last.name, state


KILLED = ("translate", "language-consecutive", "caption-hard", "transcribe")
"""The runs that are killed besides without ``--full``: one of each kind of batches, and of each kind of input."""


def test_every_task_has_a_run():
    assert {name.partition("-")[0] for name in RUNS} == set(registry.names())


@pytest.mark.slow
# What a checkpoint holds of a Transformer is what it holds of any model: its parameters, and the optimizer's state.
# With hard attention it has a baseline besides.
@covering(name=RUNS, sample_where=lambda name: not name.endswith("-transformer") and name != "caption")
def test_interrupted_and_killed_it_is_the_run_that_was_not(name, whole, run_command, tmp_path, monkeypatch, is_full):
    expected = results(whole(name))
    monkeypatch.chdir(tmp_path)
    skip_evaluation(monkeypatch)
    monkeypatch.setattr(RunFolder, "draw_curves", lambda *arguments: [])  # which the whole run has drawn
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", at_checkpoint(1, lambda: os.kill(os.getpid(), signal.SIGINT)))
        code, _, error = run_command(*train(name))
    assert code == 128 + signal.SIGINT, error
    assert "continue with: regard train" in error.splitlines()[-1]
    if is_full or name in KILLED:
        code, error = killed_command(resume(name), tmp_path, datasets.config.HF_DATASETS_CACHE, checkpoint=2)
        assert code == -signal.SIGKILL, error
    code, _, error = run_command(*resume(name))
    assert code == 0, error
    *found, state = results(tmp_path / "runs" / "x")
    *wanted, whole_state = expected
    assert found == wanted
    assert state.keys() == whole_state.keys()
    assert all(torch.equal(tensor, whole_state[key]) for key, tensor in state.items())
    assert os.listdir(tmp_path / "runs") == ["x"]


@pytest.mark.slow
# The order of windows is the training's only.
@covering(name=RUNS, sample_where=lambda name: name != "language-consecutive")
def test_every_run_predicts_and_evaluates_bundled_data(name, whole, run_command, tmp_path):
    run = shutil.copytree(whole(name), tmp_path / "x")
    task = name.partition("-")[0]
    example = run / "corpus" / INPUTS[task] if task in INPUTS else "The dog sleeps."
    code, output, error = run_command("predict", run, example)
    assert code == 0, error
    code, output, error = run_command("predict", run, example, "--json")
    fields = json.loads(output)
    assert list(fields)[1:4] in (
        ["input", "output", "probability"], ["input", "output", "score"], ["input", "output", "shares"],
    )  # fmt: skip
    assert fields["row"] == 1
    assert fields["input"] == str(example)
    code, output, error = run_command("evaluate", run, "bundled", "--limit", 3, "--output", "again")
    assert code == 0, error
    assert output
    assert (run / "evaluation-again.json").is_file()


ONE_OF_EACH = {name.partition("-")[0]: name for name in reversed(RUNS)}
"""Task → the first of its runs."""

EMPTY_OF = {"translate", "summarize"}
"""Tasks whose answer to an empty text is empty."""


def example_of(run, task):
    return str(run / "corpus" / INPUTS[task]) if task in INPUTS else "The dog sleeps."


def options_of(task):
    """Options of a short prediction."""
    return ["--tokens", 5] if task == "language" else []


@pytest.mark.slow
@pytest.mark.parametrize("task", ONE_OF_EACH)
def test_a_typed_input_is_shown_with_its_answer_and_what_was_attended_to(task, whole, run_command):
    run = whole(ONE_OF_EACH[task])
    example = example_of(run, task)
    fields = json.loads(run_command("predict", run, example, *options_of(task), "--json")[1])
    code, output, error = run_command("predict", run, example, *options_of(task))
    assert code == 0, error
    named = dict(line.split(":", 1) for line in output.splitlines() if ":" in line)
    first, second, *_ = output.splitlines()
    assert first.split(":", 1)[1].strip() == example
    assert second.split(":", 1)[1].strip() == (fields["output"].splitlines() or ["(empty)"])[0].strip()
    for name in ("probability", "score"):
        assert (name in named) == (name in fields)
        if name in fields:
            assert float(named[name]) == pytest.approx(fields[name], abs=1e-4)
    assert re.search(r"^attended to: +(\S.* \d+ %|nothing: )", output, re.M), output
    code, output, error = run_command("predict", run, example, "" if task in EMPTY_OF else example)
    assert len(re.findall("^attended to:", output, re.M)) == 2
    assert (task not in EMPTY_OF) or "(empty)" in output


@pytest.mark.slow
@pytest.mark.parametrize("task", ONE_OF_EACH)
def test_n_best_ranks_answers_everywhere_alike(task, whole, run_command, tmp_path):
    run = whole(ONE_OF_EACH[task])
    example, options = example_of(run, task), options_of(task)
    command = ["predict", run, example, *options]
    if task == "segment":
        code, _, error = run_command(*command, "--n-best", 2)
        assert (code, len(error.splitlines())) == (2, 1)
        assert "--n-best must be 1" in error
        assert "one map of classes" in error
        return
    alone = json.loads(run_command(*command, "--json")[1])
    code, output, error = run_command(*command, "--n-best", 2, "--json")
    assert code == 0, error
    rows = [json.loads(line) for line in output.splitlines()]
    assert [row["rank"] for row in rows] == [1, 2]
    assert [row["input"] for row in rows] == [example] * 2
    number = "probability" if "probability" in alone else "score"
    assert rows[0][number] >= rows[1][number]
    if task != "language":  # draws
        assert {name: value for name, value in rows[0].items() if name != "rank"} == alone
    shown = run_command(*command, "--n-best", 2)[1].splitlines()
    for row in rows:
        (line,) = (line for line in shown if line.startswith(f"{row['rank']}:"))
        assert f"{number} {row[number]:.4f}" in "\n".join(shown)
        assert (row["output"].splitlines() or [""])[0].strip() in line
    (prediction,) = regard.load(run).predict([example], n_best=2, **({"tokens": 5} if options else {}))
    assert [one.answer_text for one in prediction.n_best] == [row["output"] for row in rows]
    for suffix in (".tsv", ".jsonl"):
        file = tmp_path / f"answers{suffix}"
        assert run_command(*command, example, "--n-best", 2, "-o", file)[0] == 0
        lines = file.read_text().splitlines()
        if suffix == ".tsv":
            assert lines.pop(0).split("\t") == ["row", "input", "output", number, "rank"]
            ranks = [int(line.split("\t")[4]) for line in lines]
        else:
            ranks = [json.loads(line)["rank"] for line in lines]
        assert ranks == [1, 2, 1, 2]


@pytest.mark.slow
@pytest.mark.parametrize("task", ONE_OF_EACH)
def test_the_fields_of_a_prediction_mean_the_same_in_every_task(task, whole):
    trained = regard.load(whole(ONE_OF_EACH[task]))
    example = example_of(trained.folder.path, task)
    content = Path(example).read_bytes() if task in INPUTS else example
    options = {"tokens": 5} if task == "language" else {}
    predictions = trained.predict([example, content], **options)
    assert [one.source for one in predictions] == [example, content]
    for one in predictions:
        assert isinstance(one, Prediction)
        fields = {name for name in ("text", "label") if hasattr(one, name)}
        assert fields == ({"label"} if task in LABELS else set() if task == "segment" else {"text"})
        assert all(getattr(one, name) is one.answer or getattr(one, name) == one.answer for name in fields)
        assert one.n_best == (one,)
        assert one.row()["output"] == one.answer_text
        assert trained.attended(one).parts or one.is_empty or not trained.model.attends
        assert sum(share for _, share in trained.attended(one).parts) == pytest.approx(
            1 if trained.attended(one).parts else 0
        )
        for shown in (repr(one), repr(predictions)):
            assert len(shown.splitlines()) == 1
            assert len(shown) < 3000
    evaluation = trained.evaluate(limit=3)
    assert len(repr(evaluation).splitlines()) == 1
    for shown in (predictions._repr_html_(), predictions[:1]._repr_html_(), predictions[0]._repr_html_()):
        assert shown.startswith("<table>")
        assert html.escape(predictions[0].input_text) in shown
    assert "<table>" in evaluation._repr_html_()


LABELS = {"classify", "images", "sounds"}
"""Tasks whose answer is a label."""


FORMER = {
    **{task: {"architecture": "cell", "gate": "weigh"} for task in ("translate", "summarize", "caption")},
    **{task: {"architecture": "encoder"} for task in ("classify", "transcribe", "sounds")},
    "images": {"architecture": "network"},
    "segment": {"attention": "context"},
    "language": {},
}
"""Task → option of a model → its name in the version before."""


def give_former_names(run, task):
    """Gives the configuration and the header of the model the names of the version before."""
    content = yaml.safe_load((run / "config.yaml").read_text())
    model = content["model"]
    architecture = model.get("architecture")
    if task == "images":
        model["architecture"] = model.pop("gate") if model["gate"] != "none" else architecture
    if architecture == "transformer" and task in ("translate", "caption"):
        model |= {"architecture": "lstm", "attention": "transformer"}
    elif architecture == "transformer" and task == "summarize":
        model |= {"architecture": "lstm", "model": "transformer"}
    content["model"] = {FORMER[task].get(name, name): value for name, value in model.items()}
    (run / "config.yaml").write_text(yaml.safe_dump(content))
    with safetensors.safe_open(run / "model.safetensors", "pt") as file:
        header = file.metadata()
    config = json.loads(header["config"])
    names = {"hidden": "hidden_dim", "embedding": "embedding_dim", "grid": "grid_dim", **FORMER[task]}
    if header["regard"].startswith("transformer_"):
        names["hidden"] = "dim"
        del config["architecture"]
    if task == "images":
        names["gate"] = "weigh"
    if "norm" in config:
        config["norm_first"] = config.pop("norm") == "pre"
    config = {names.get(name, name): value for name, value in config.items()}
    tensors = safetensors.torch.load_file(run / "model.safetensors")
    header["config"] = json.dumps(config)
    safetensors.torch.save_file(tensors, run / "model.safetensors", header)
    (run / "manifest.json").unlink()  # which has the sums of the files as they were


@pytest.mark.slow
@covering(name=RUNS, sample_where=lambda name: name != "language-consecutive")
def test_a_run_with_former_names_predicts_the_same(name, whole, run_command, tmp_path):
    run, task = shutil.copytree(whole(name), tmp_path / "x"), name.partition("-")[0]
    example = run / "corpus" / INPUTS[task] if task in INPUTS else "The dog sleeps."
    expected = run_command("predict", run, example, "--json")
    assert expected[0] == 0
    give_former_names(run, task)
    assert run_command("predict", run, example, "--json") == expected


@pytest.mark.slow
@covering(
    name={name.partition("-")[0]: name for name in RUNS}.values(),
    # No task reads these files itself.
    sample_where=lambda name: name in ("classify", "segment", "caption-hard"),
)
def test_damage_is_one_line(name, whole, run_command, tmp_path):
    run = shutil.copytree(whole(name), tmp_path / "x")
    for file, damage in {
        "model.safetensors": lambda path: path.write_bytes(path.read_bytes()[:100]),
        "config.yaml": lambda path: path.write_text("task: nonsense\n"),
        "manifest.json": lambda path: path.write_text("{"),
    }.items():
        good = (run / file).read_bytes()
        damage(run / file)
        code, _, error = run_command("predict", run, "a")
        assert (code, len(error.splitlines())) == (2, 1), error
        assert file in error or (file == "config.yaml" and "nonsense" in error)
        (run / file).write_bytes(good)


@pytest.mark.parametrize("task", registry.names())
@pytest.mark.parametrize("option", ["--train", "--validation", "--test"])
def test_a_file_that_does_not_exist_is_named(task, option, run_command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    missing = (
        ["--train", "none.txt"] if option == "--train" else ["--train", "bundled", "--bundled", 60, option, "none.txt"]
    )
    code, _, error = run_command("train", task, *missing, "--run", "x")
    assert code == 2, error
    assert "none.txt" in error.splitlines()[-1]
    assert "Traceback" not in error
    assert not (tmp_path / "runs" / "x").exists()
