"""A language model from the first command to the last: trained, resumed, evaluated, used."""

import itertools
import json
import re
import shutil
from pathlib import Path

import pytest
import torch

import regard
from regard.errors import ArgumentError, DataError, RunError
from regard.tasks.language import TASK
from regard.training.run_folder import RunFolder

TRAIN = ["train", "language", "--tokenizer", "char", "--context", 13, "--layers", 1, "--hidden", 8, "--heads", 2,
         "--batch-size", 4, "--epochs", 1, "--steps-per-epoch", 3, "--threads", 1, "--device", "cpu"]  # fmt: skip


def test_a_language_run_learns(run):
    rows = RunFolder(run).read_metrics()
    assert [row["step"] for row in rows] == [7, 14, 21]
    assert rows[-1]["val_loss"] < rows[0]["val_loss"] - 0.2
    assert rows[-1]["val_perplexity"] < rows[0]["val_perplexity"]
    assert rows[-1]["val_bits_per_byte"] == pytest.approx(rows[-1]["val_loss"] / 0.693147, rel=1e-5)
    samples = RunFolder(run).read_samples()
    assert len(samples) == 3
    assert all(sample["prompt"] for sample in samples)


def test_commands_from_the_bundled_text_to_a_picture(run_command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    base = [*TRAIN, "--train", "bundled", "--bundled", 60, "--run", "x"]
    code, output, error = run_command(*base, "--validation-tokens", 50, "--dry-run")
    assert (code, "batches an epoch" in output, list(tmp_path.iterdir())) == (0, True, []), error
    code, output, error = run_command(*base, "--validation-tokens", 50)
    assert code == 0, error
    assert "bits/byte" in output
    folder = tmp_path / "runs" / "x"
    assert {"tokenizer.json", "model.safetensors", "manifest.json", "evaluation-test.json"} <= {
        path.name for path in folder.iterdir()
    }
    assert (folder / "pictures" / "curves.png").is_file()
    measured = json.loads((folder / "evaluation-test.json").read_text())
    code, output, error = run_command("evaluate", folder, "bundled", "--output", "again")
    again = json.loads((folder / "evaluation-again.json").read_text())
    for name in ("tokens", "bytes", "bits_per_byte", "perplexity", "loss"):
        assert again[name] == measured[name]
    code, output, error = run_command("predict", folder, "The dog", "The cat", "--tokens", 9, "--json", "--layer", 0)
    assert code == 0, error
    found = [json.loads(line) for line in output.splitlines()]
    assert [one["input"] for one in found] == ["The dog", "The cat"]
    assert all(len(one["output"]) == 9 or one["ended"] for one in found)
    assert all(
        len(one["weights"]) == len(one["tokens"]) == min(13, 1 + len(one["input"] + one["output"])) for one in found
    )
    code, output, error = run_command("predict", folder, "The", "--tokens", 0, "--next", 3, "--pictures", "drawn")
    assert code == 0, error
    first, attended, *likely = output.splitlines()
    assert first.split(":")[1].strip() == "The"
    assert attended.startswith("attended to: ")
    assert [bool(re.fullmatch(r"0\.\d{4} .+", line)) for line in likely] == [True] * 3
    assert (tmp_path / "drawn" / "attention-1.png").stat().st_size > 1000


def test_predictions_follow_their_options(run):
    trained = regard.load(run)
    (greedy,) = trained.predict(["The old"], tokens=30, temperature=0)
    assert greedy.whole == "The old" + greedy.text
    assert trained.predict(["The old"], tokens=30, temperature=0, seed=9)[0].text == greedy.text
    assert trained.predict(["The old"], tokens=30, top_k=1)[0].text == greedy.text
    assert trained.predict(["The old"], tokens=30, top_p=1e-9)[0].text == greedy.text
    first, other = (trained.predict(["The old"] * 2, tokens=30, temperature=2, seed=seed) for seed in (1, 2))
    assert len({one.text for one in (*first, *other)}) == 4
    assert trained.predict(["owl", "The old"], tokens=30, temperature=2)[1].text == first[1].text
    (found,) = trained.predict([""], tokens=20, next=4)
    assert len(found.text) == 20
    probabilities = [one.probability for one in found.next]
    assert probabilities == sorted(probabilities, reverse=True)
    assert len(probabilities) == 4
    (everything,) = trained.predict(["a\n"], tokens=0, next=10_000)
    assert sum(one.probability for one in everything.next) == pytest.approx(1, abs=1e-5)
    assert (everything.text, everything.is_empty) == ("", False)
    assert "weights" not in everything.to_dict()
    with pytest.raises(ArgumentError, match="layer must be from 0 to 1"):
        trained.predict(["a"], layer=2)


def test_remarks_name_text_that_a_language_model_does_not_see(run):
    trained = regard.load(run)
    options = TASK.prediction_config(tokens=1)
    found = trained.predict_with(["☃ ☃ and ñ", "short"], options)
    assert trained.remarks(found, options) == ["not in the model's vocabulary: '☃', 'ñ'"]
    assert trained.remarks(trained.predict_with(["short"], options), options) == []
    (line,) = trained.remarks(trained.predict_with(["o" * 14], options), options)
    assert line == "the longest input has 14 tokens; the model reads the last 13 of a text"


def test_attention_is_over_the_text_so_far(run):
    trained = regard.load(run)
    (found,) = trained.predict(["The old"], tokens=4, layer=1)
    assert found.tokens == ("<end>", *(character.replace(" ", "␣").replace("\n", "↵") for character in found.whole))
    weights = trained.attention(found.whole, 1)[1]
    assert torch.equal(weights, found.weights)
    assert not torch.equal(weights, trained.attention(found.text, 0)[1])
    assert (weights.triu(1) == 0).all()


def test_an_evaluation_is_the_validation_of_the_best_model(run, texts):
    trained = regard.load(run)
    rows = RunFolder(run).read_metrics()
    best = min(rows, key=lambda row: row["val_bits_per_byte"])
    found = trained.evaluate(f"{texts}/validation.txt")
    assert found.bits_per_byte == pytest.approx(best["val_bits_per_byte"], rel=1e-5)
    assert found.perplexity == pytest.approx(best["val_perplexity"], rel=1e-5)
    text = (texts / "validation.txt").read_bytes()
    assert (found.bytes, found.tokens, found.unknown) == (len(text), len(text.decode()), 0)
    closer = trained.evaluate([texts / "validation.txt"], stride=3)
    assert (closer.bytes, closer.stride) == (found.bytes, 3)
    assert closer.loss != found.loss
    assert trained.evaluate(texts, limit=20).tokens == 20
    with pytest.raises(ArgumentError, match="stride must be at most 13"):
        trained.evaluate(texts, stride=14)


def test_unknown_pieces_are_counted_and_said(run, tmp_path):
    (tmp_path / "a.txt").write_text("The ☃ owl ☃")
    found = regard.load(run).evaluate(tmp_path / "a.txt")
    assert (found.tokens, found.bytes, found.unknown) == (11, 9, 2)
    assert "2 tokens are not in the model's vocabulary" in found.lines()[1]


def test_the_end_of_the_training_text_is_held_out(small, tmp_path, texts):
    folder = RunFolder(tmp_path)
    text = (texts / "train.txt").read_bytes().decode()
    prepared = TASK.prepare(small({"validation": None, "held_out": 101}), folder)
    assert prepared.files["tokenizer"].decode(prepared.train.table.ids()) == text[:-101]
    assert prepared.files["tokenizer"].decode(prepared.validation.table.ids(1)) == text[-101:]
    prepared = TASK.prepare(small({"validation": None}), folder)
    assert len(prepared.validation) - 1 == (len(text) + 1) // 10


def test_a_run_takes_weights_and_tokenizer_of_another(run, small, train, tmp_path, texts):
    (tmp_path / "new.txt").write_text("An owl is not a ☃.\n" * 60)
    config = small(
        {"train": f"{tmp_path}/new.txt"}, init_from=str(run), epochs=1, steps_per_epoch=1, learning_rate=1e-9
    )
    train(config, tmp_path / "run")
    assert (tmp_path / "run" / "tokenizer.json").read_bytes() == (run / "tokenizer.json").read_bytes()
    before, after = (regard.load(path).evaluate(texts / "validation.txt").loss for path in (run, tmp_path / "run"))
    assert after == pytest.approx(before, rel=1e-4)
    with pytest.raises(RunError, match="--tokenizer is 'char' in"):
        train(small({"tokenizer": "word"}, init_from=str(run)), tmp_path / "other")


def test_data_are_found_from_any_directory_and_noticed_when_they_change(small, train, tmp_path, monkeypatch, texts):
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        Path(f"{name}.txt").write_bytes((texts / "train.txt").read_bytes())
    config = small({"train": "*.txt", "test": "a.txt,b.txt"}, epochs=1)
    train(config, tmp_path / "runs" / "x")
    monkeypatch.chdir("/")
    folder = RunFolder.open(tmp_path / "runs" / "x")
    assert TASK.test_data(folder, config) == [tmp_path / "a.txt", tmp_path / "b.txt"]
    assert train(config, folder.path, resume=True).progress.finished
    (tmp_path / "a.txt").write_text("changed")
    with pytest.raises(RunError, match="has changed since the run began"):
        train(config, folder.path, resume=True)


@pytest.mark.parametrize("tokenizer", ["bpe", "word"])
@pytest.mark.parametrize("position", ["sinusoidal", "t5"])
def test_other_tokenizers_and_positions_train(small, train, tmp_path, tokenizer, position):
    data = {"tokenizer": tokenizer, "vocabulary": 300}
    train(small(data, {"position": position, "tied": "none", "norm": "post"}, epochs=1), tmp_path / "run")
    trained = regard.load(tmp_path / "run")
    assert trained.tokenizers["text"].kind == tokenizer
    (found,) = trained.predict(["The old owl"], tokens=15)
    assert found.whole.startswith("The old owl")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda run: (run / "tokenizer.json").unlink(), "tokenizer.json"),
        (lambda run: (run / "tokenizer.json").write_text("{}"), "tokenizer.json"),
        (lambda run: (run / "model.safetensors").unlink(), "model.safetensors"),
    ],
)
def test_a_damaged_run_is_one_line(run, tmp_path, damage, message):
    shutil.copytree(run, tmp_path / "run")
    damage(tmp_path / "run")
    with pytest.raises(RunError, match=message) as caught:
        regard.load(tmp_path / "run")
    assert "\n" not in str(caught.value)


BAD = [
    ("--train {texts}/none.txt", "none.txt"),
    ("--train {texts}/*.md", "*.md pattern"),
    ("--train {empty}", "empty .txt"),
    ("--train {latin}", "latin.txt line 1 UTF-8"),
    ("--train {short}", "short.txt --validation"),
    ("--train {short} --validation {short}", "--context tokens"),
    ("--train {data} --validation {texts}/none.txt", "none.txt"),
    ("--train {data} --test {latin}", "latin.txt"),
    ("--train {data} --windows consecutive --steps-per-epoch 100000", "--steps-per-epoch"),
    ("--train {data} --init-from {texts}", "config.yaml"),
]  # fmt: skip
PREDICT = [("--temperature -1", "--temperature"), ("--top-p 0", "--top-p"), ("--layer 3", "--layer 1"),
           ("--tokens -1", "--tokens"), ("--next -1", "--next"), ("--seed -1", "--seed")]  # fmt: skip
EVALUATE = [("{texts}/none.txt", "none.txt"), ("{data} --stride 99", "--stride 13"), ("{data} --limit -1", "--limit")]


@pytest.mark.parametrize(
    ("command", "options", "words"),
    [
        *(("train", *case) for case in BAD),
        *(("predict", *case) for case in PREDICT),
        *(("evaluate", *case) for case in EVALUATE),
    ],
)  # fmt: skip
def test_wrong_commands_of_a_language_run_end_with_one_line(
    run_command, run, texts, tmp_path, monkeypatch, command, options, words
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    (tmp_path / "short.txt").write_text("short")
    names = {"texts": texts, "data": texts / "train.txt", **{name: f"{name}.txt" for name in ("latin", "short")}}
    typed = options.format(empty="empty", **names).split()
    base = {"train": TRAIN, "predict": ["predict", run, "a"], "evaluate": ["evaluate", run]}[command]
    before = sorted(path.name for path in itertools.chain(tmp_path.iterdir(), run.iterdir()))
    code, _, error = run_command(*base, *typed)
    assert code == 2, error
    assert len(error.splitlines()) == 1, error
    assert all(word in error for word in words.split()), error
    assert sorted(path.name for path in itertools.chain(tmp_path.iterdir(), run.iterdir())) == before


def test_a_folder_without_text_is_an_error_in_python(run, tmp_path):
    with pytest.raises(DataError, match=r"no \.txt files"):
        regard.load(run).evaluate(tmp_path)
