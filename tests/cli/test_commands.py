"""The commands: what they say, what they write, and how they fail."""

import csv
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from itertools import count

import datasets
import pytest

from regard import cli, load
from regard.attention.call_kinds import CallKind
from regard.attention.execution import BACKENDS
from regard.cli.commands import COMMANDS
from regard.cli.prediction_file import PredictionFile
from regard.data.text.generated import write_corpus
from regard.errors import DataError

TINY = ["--embedding", "6", "--hidden", "10", "--epochs", "1", "--tokens-per-batch", "300", "--tokenizer", "word",
        "--vocabulary", "200", "--threads", "1", "--device", "cpu"]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))
        yield


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus"), {"train": 101, "validation": 7, "test": 11}, 3)


@pytest.fixture
def regard(run_command):
    """Calls the command as a shell would; gives its exit code, standard output and standard error."""
    return run_command


@pytest.fixture(scope="module")
def trained(corpus, tmp_path_factory):
    """A run folder that a command has made."""
    runs = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["regard", *map(str, training(corpus, runs))])
        with pytest.raises(SystemExit) as ended:
            cli.main()
    assert not ended.value.code
    return runs / "tiny"


def training(corpus, runs, *more):
    columns = ["--source-column", "english", "--target-column", "spanish"]
    data = ["--train", corpus["train"], "--validation", corpus["validation"]]
    return ["train", "translate", *data, *columns, *TINY, "--runs", runs, "--run", "tiny", *more]


def assert_one_line(found, *words):
    """Exit code 2, one line on standard error that has these words, no traceback."""
    code, _, error = found
    lines = [line for line in error.splitlines() if line.startswith("regard: error:")]
    assert code == 2, error
    assert len(lines) == 1, error
    assert "Traceback" not in error
    for word in words:
        assert str(word) in lines[0]


def test_help_lists_every_command(regard):
    code, output, _ = regard("--help")
    assert code == 0
    for name in COMMANDS:
        assert re.search(rf"\b{name}\b", output), name


def test_version_prints_the_version_of_the_package(regard):
    import regard as package

    assert regard("--version")[:2] == (0, f"regard {package.__version__}\n")


def test_doctor_reports_backends_as_json_and_text(regard):
    code, output, _ = regard("doctor", "--json")
    found = json.loads(output)
    assert code == 0
    assert found["backends"]["reference"].startswith("available (")
    assert set(found) == {"versions", "machine", "backends", "optional parts"}
    assert "reference" in regard("doctor")[1]


def test_doctor_compares_every_backend_on_a_device(regard, monkeypatch):
    kind = CallKind("float32", mask="causal", dim=16, value_dim=16)
    monkeypatch.setattr("regard.attention.device_report.kinds", lambda: [kind, kind])
    monkeypatch.setattr("regard.attention.device_report.LENGTH", 256)
    code, output, error = regard("doctor", "--device", "cpu")
    assert code == 0
    assert output.count(str(kind)) == 1
    assert output.count("→") == 3
    assert "4/4" in error
    with monkeypatch.context() as patch:  # a clock by which each kind takes a second
        patch.setattr("time.monotonic", count().__next__)
        assert "3 of 4 kinds were not tried" in regard("doctor", "--device", "cpu", "--seconds", "1")[2]

    chosen = next(line for line in output.splitlines() if "→" in line[:4]).split()[1]
    backend = type(BACKENDS[chosen])
    run = backend.run
    monkeypatch.setattr(backend, "run", lambda self, *arguments: 1.1 * run(self, *arguments))
    code, output, _ = regard("doctor", "--device", "cpu")
    assert code == 1
    assert "WRONG: on this device it gave" in output
    monkeypatch.setattr(backend, "run", run)
    assert_one_line(regard("doctor", "--device", "nowhere"), "device must be one that PyTorch knows; it is 'nowhere'")
    assert_one_line(regard("doctor", "--device", "meta"), "'meta' cannot be used here")
    assert_one_line(regard("doctor", "--device", "cpu", "--json"), "--json", "--device")


def test_a_run_folder_holds_what_it_should(trained):
    kept = {"config.yaml", "model.safetensors", "tokenizer-source.json", "tokenizer-target.json", "metrics.csv",
            "samples.jsonl", "checkpoints", "pictures", "manifest.json", ".in-use.json", "README.md",
            "training.json"}  # fmt: skip
    # Some versions of filelock remove their file when they release it.
    assert {path.name for path in trained.iterdir()} - {".lock"} == kept
    assert (trained / "pictures" / "curves.png").stat().st_size > 0


def test_evaluate_writes_scores_and_pictures(regard, trained, corpus):
    code, output, error = regard("evaluate", trained, corpus["test"], "--beam", 2, "--limit", 5)
    assert code == 0, error
    found = json.loads((trained / "evaluation-test.json").read_text())
    assert found["pairs"] == 5
    assert f"BLEU {found['bleu']:.2f}" in output
    assert 0 <= found["alignment_error_rate"] <= 1
    assert len((trained / "evaluation-test.txt").read_text().splitlines()) == 5
    assert (trained / "pictures" / "bleu-by-length-test.png").is_file()


def test_evaluate_takes_the_bundled_corpus(regard, trained):
    code, output, error = regard("evaluate", trained, "bundled", "--beam", 1, "--limit", 3)
    assert code == 0, error
    assert output.startswith("bundled: 3 pairs")
    assert (trained / "evaluation-bundled.json").is_file()


CONFIG_LINES = ["--epochs", "7", "--hidden", "12", "--no-input-feeding", "--attention", "luong", "--lowercase"]


def test_a_printed_configuration_is_one_for_config(regard, tmp_path):
    """What --print-config writes, --config reads; an option that is given besides wins."""
    base = ["train", "translate"]
    code, printed, error = regard(*base, "--bundled", 30, *CONFIG_LINES, "--print-config")
    assert (code, error) == (0, "")
    file = tmp_path / "config.yaml"
    file.write_text(printed)
    printed = re.sub(" +#.*", "", printed)  # the reasons of what the data decided
    assert regard(*base, "--config", file, "--print-config")[1] == printed
    changed = regard(*base, "--config", file, "--epochs", 8, "--no-lowercase", "--print-config")[1]
    expected = printed.replace("epochs: 7", "epochs: 8").replace("lowercase: true", "lowercase: false")
    assert changed == expected
    assert changed != printed


def test_a_configuration_may_have_a_few_fields(regard, tmp_path):
    file = tmp_path / "some.yaml"
    file.write_text("training:\n  epochs: 3\n  learning_rate: 1\n")
    code, printed, error = regard("train", "translate", "--bundled", 30, "--config", file, "--print-config")
    assert (code, error) == (0, "")
    assert "epochs: 3" in printed


def test_tensorboard_is_short_for_a_logger(regard):
    base = ["train", "translate", "--bundled", 30, "--print-config"]
    assert "logger: tensorboard\n" in regard(*base, "--tensorboard")[1]
    assert "logger: csv,tensorboard\n" in regard(*base, "--tensorboard", "--logger", "csv")[1]


def test_a_dry_run_says_sizes_and_writes_nothing(regard, corpus, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = training(corpus, tmp_path / "runs", "--dry-run")
    code, output, error = regard(*arguments)
    assert code == 0, error
    for part in ("101 pairs", "parameters", "encoder", "decoder", "memory: at least", "ms a step", "an epoch"):
        assert part in output
    assert not list(tmp_path.iterdir())


def test_predict_gives_a_line_for_a_line(regard, trained, tmp_path):
    sentences = ["The dog sleeps.", "", "She reads a zzzz book."]
    file = tmp_path / "sentences.txt"
    file.write_text("\n".join(sentences) + "\n")
    code, from_file, error = regard("predict", trained, "--file", file, "--beam", 1)
    assert code == 0, error
    assert len(from_file.splitlines()) == 3
    assert from_file.splitlines()[1] == ""
    typed = regard("predict", trained, sentences[0], sentences[2], "--beam", 1)[1]
    alone = [line.split(":", 1)[1].strip() for line in typed.splitlines() if line.startswith("translation:")]
    assert alone == [from_file.splitlines()[0], from_file.splitlines()[2]]
    code, ranked, error = regard("predict", trained, "--file", file, "--beam", 2, "--n-best", 2)
    assert len(ranked.splitlines()) == 5  # an empty sentence has one translation


@pytest.fixture(scope="module")
def language(tmp_path_factory):
    """A run folder of a language model."""
    folder = tmp_path_factory.mktemp("language")
    text = folder / "text.txt"
    text.write_text("The old owl sat in an oak. The more it saw, the less it spoke.\n" * 20)
    sizes = ["--tokenizer", "char", "--context", 8, "--layers", 1, "--hidden", 8, "--heads", 2, "--batch-size", 4]
    length = ["--epochs", 1, "--steps-per-epoch", 2, "--threads", 1, "--device", "cpu", "--runs", folder]
    command = ["train", "language", "--train", text, "--validation", text, *sizes, *length, "--run", "tiny"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["regard", *map(str, command)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
    assert not ended.value.code
    return folder / "tiny"


DRAWS = {
    "language": ("language", ["--tokens", 3]),
    "language-n-best": ("language", ["--tokens", 3, "--n-best", 3]),
    "samples": ("trained", ["--samples", 3, "--batch-size", 2]),
    "samples-n-best": ("trained", ["--samples", 3, "--batch-size", 2, "--n-best", 2]),
}


@pytest.mark.parametrize("name", DRAWS)
def test_draws_are_the_same_in_a_file_in_print_and_after_a_stop(name, regard, request, tmp_path, monkeypatch):
    monkeypatch.setattr("regard.cli.predict.LEAST_AT_ONCE", 3)
    monkeypatch.setattr("regard.cli.predict.BATCHES_AT_ONCE", 1)
    fixture, options = DRAWS[name]
    source, whole = tmp_path / "inputs.txt", tmp_path / "whole.jsonl"
    source.write_text("The dog.\nShe reads a book.\nA cat.\nThe dog.\n" * 2)
    command = ["predict", request.getfixturevalue(fixture), "--file", source, *options]
    printed = regard(*command, "--json")[1]
    with monkeypatch.context() as patch:  # what a command has written that was ended before its last step
        patch.setattr(PredictionFile, "complete", lambda file: None)
        code, _, error = regard(*command, "-o", whole)
        assert code == 0, error
    part = whole.with_name("whole.jsonl.part")
    lines = part.read_bytes().splitlines(keepends=True)
    assert b"".join(lines[1:]).decode() == printed
    assert len({json.loads(line)["output"] for line in lines[1:]}) > 1
    for written in (2, len(lines) - 1):
        part.write_bytes(b"".join(lines[: 1 + written]) + b'{"inp')
        code, _, error = regard(*command, "-o", whole)
        assert code == 0, error
        assert whole.read_text() == printed, written


def test_inputs_beyond_a_block_have_draws_of_their_own(regard, language, monkeypatch):
    monkeypatch.setattr("regard.cli.predict.LEAST_AT_ONCE", 2)
    monkeypatch.setattr("regard.cli.predict.BATCHES_AT_ONCE", 1)
    command = ["predict", language, *["The old."] * 6, "--tokens", 12, "--temperature", 2, "--json"]
    outputs = [json.loads(line)["output"] for line in regard(*command)[1].splitlines()]
    assert len(set(outputs)) == 6
    loaded = load(language)
    assert [one.text for one in loaded.predict(["The old."] * 6, tokens=12, temperature=2)] == outputs


@pytest.mark.parametrize("to_file", [False, True])
def test_fewer_answers_than_requested_are_said(regard, language, tmp_path, monkeypatch, to_file):
    monkeypatch.setattr("regard.cli.predict.LEAST_AT_ONCE", 2)
    into = ["-o", tmp_path / "answers.jsonl"] if to_file else ["--json"]
    command = ["predict", language, "a", "b", "c", "--tokens", 1, "--top-k", 2, "--n-best", 9, *into]
    code, output, error = regard(*command)
    assert code == 0, error
    assert "regard: 3 of 3 inputs have fewer than 9 different answers" in error
    rows = [json.loads(line) for line in (into[1].read_text() if to_file else output).splitlines()]
    assert len({(row["input"], row["output"]) for row in rows}) == len(rows)
    assert "fewer" not in regard("predict", language, "a", "--tokens", 9, "--temperature", 3, "--n-best", 2)[2]


@pytest.mark.parametrize("suffix", [".tsv", ".csv", ".jsonl"])
def test_predict_writes_a_file_and_continues_it(regard, trained, tmp_path, monkeypatch, suffix):
    monkeypatch.setattr("regard.cli.predict.LEAST_AT_ONCE", 2)
    sentences = ["The dog sleeps.", "", "She reads.", "A\tcat.", "He reads a book."]
    source, whole, stopped = (tmp_path / name for name in ("sentences.txt", f"whole{suffix}", f"stopped{suffix}"))
    source.write_text("\n".join(sentences) + "\n")
    options = ["--file", source, "--beam", 1, "--batch-size", 1, "-o"]
    monkeypatch.setattr("regard.cli.predict.BATCHES_AT_ONCE", 2)
    code, output, error = regard("predict", trained, *options, whole)
    assert code == 0, error
    assert output == f"5 predictions: {whole}\n"
    lines = whole.read_text().splitlines()
    if suffix != ".jsonl":
        separator = "\t" if suffix == ".tsv" else ","
        assert lines.pop(0).split(separator)[:3] == ["row", "input", "output"]
        assert lines[3].startswith(f"4{separator}A{' ' if suffix == '.tsv' else chr(9)}cat.{separator}")
    else:
        assert [json.loads(line)["input"] for line in lines] == sentences
    assert len(lines) == 5

    # A disk that is full after the second part, and a line that was not written to its end.
    append = PredictionFile.append

    def full(file, predictions):
        if file.done >= 4:
            raise DataError("the disk is full")
        append(file, predictions)

    with monkeypatch.context() as patch:
        patch.setattr(PredictionFile, "append", full)
        assert_one_line(regard("predict", trained, *options, stopped), "the disk is full")
    part = stopped.with_name(stopped.name + ".part")
    assert not stopped.exists()
    with part.open("ab") as file:
        file.write(b'{"source": "He re')
    assert_one_line(regard("predict", trained, "Another.", "-o", stopped), "other inputs")
    code, output, error = regard("predict", trained, *options, stopped)
    assert code == 0, error
    assert "4 of 5 predictions were written before" in error
    assert stopped.read_text() == whole.read_text()
    assert not part.exists()
    for start in (b"", b'{"predictions of": "'):  # the first write was stopped
        part.write_bytes(start)
        code, output, error = regard("predict", trained, *options, stopped)
        assert code == 0, error
        assert "1 of 5 answers are empty" in error
        assert stopped.read_text() == whole.read_text()
    assert_one_line(regard("predict", trained, "A word.", "-o", tmp_path / "a.txt"), "--output", ".tsv, .csv or .jsonl")
    table = regard("predict", trained, "A word.", "--json", "-o", tmp_path / "a.tsv")
    assert_one_line(table, "--json", f"--output {tmp_path / 'a.jsonl'}")
    assert not list(tmp_path.glob("a.*"))
    assert_one_line(regard("predict", trained, "A word.", "-o", tmp_path / "no" / "a.tsv"), "--output", "not exist")
    (tmp_path / "folder.tsv").mkdir()
    assert_one_line(regard("predict", trained, "A word.", "-o", tmp_path / "folder.tsv"), "--output", "is a folder")
    inputs = tmp_path / f"inputs{suffix}"
    inputs.write_text("The dog sleeps.\n")
    assert_one_line(regard("predict", trained, "--file", inputs, "-o", inputs), "the same file")
    assert inputs.read_text() == "The dog sleeps.\n"


def test_predict_reads_a_table_as_evaluate_does(regard, trained, tmp_path):
    rows = [("The dog sleeps.", "El perro duerme."), ("She, too, reads.", "Ella lee."), ('A "cat".', "Un gato.")]
    path, output = tmp_path / "test.csv", tmp_path / "out.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("english", "spanish"), *rows])
    code, printed, error = regard("predict", trained, "--file", path, "--beam", 1)
    assert code == 0, error
    assert len(printed.splitlines()) == len(rows)
    code, _, error = regard("predict", trained, "--file", path, "--beam", 1, "-o", output)
    assert code == 0, error
    with output.open(newline="") as file:
        found = list(csv.DictReader(file))
    assert [(row["input"], row["output"]) for row in found] == list(
        zip([source for source, _ in rows], printed.splitlines(), strict=True)
    )
    code, printed, error = regard("evaluate", trained, path)
    assert f"{len(rows)} pairs" in printed, printed + error
    assert_one_line(regard("predict", trained, "--file", path, "--column", "englisch"), "did you mean 'english'?")
    assert_one_line(regard("predict", trained, "A dog.", "--column", "english"), "--column", "--file")
    (tmp_path / "a.srt").write_text("1\n00:00:01,000 --> 00:00:02,000\nHello.\n")
    assert_one_line(regard("predict", trained, "--file", tmp_path / "a.srt"), "is subtitles")


def test_predict_draws_and_gives_weights(regard, trained, tmp_path):
    code, output, error = regard(
        "predict", trained, "The dog sleeps.", "--json", "--merge-words", "--pictures", tmp_path / "drawn"
    )
    assert code == 0, error
    found = json.loads(output)
    assert len(found["weights"]) == len(found["target_tokens"])
    assert all(len(row) == len(found["source_tokens"]) for row in found["weights"])
    if found["target_tokens"]:
        assert (tmp_path / "drawn" / "alignment-1.png").is_file()


def test_predict_names_unknown_words_on_standard_error(regard, trained):
    code, output, error = regard("predict", trained, "zzzz.", "Ωμέγα zzzz", "--json", "--beam", 1)
    assert code == 0
    (line,) = [line for line in error.splitlines() if "vocabulary" in line]
    assert line.startswith("regard: not in the model's vocabulary: 'zzzz', 'Ωμέγα'; --replace-unknown copies")
    first, second = map(json.loads, output.splitlines())
    assert first["source_tokens"][0] == "zzzz"
    assert first["unknown_words"] == ["zzzz"]
    assert second["source_tokens"] == second["unknown_words"] == ["Ωμέγα", "zzzz"]
    assert "vocabulary" not in regard("predict", trained, "")[2]


def test_predict_reads_standard_input(trained):
    ended = subprocess.run(
        [sys.executable, "-c", "from regard.cli import main; main()", "predict", str(trained), "--beam", "1"],
        input="The dog sleeps.\nA cat.\n", capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert len(ended.stdout.splitlines()) == 2


def test_a_run_that_exists_is_not_touched(regard, trained, corpus):
    before = (trained / "model.safetensors").read_bytes()
    assert_one_line(regard(*training(corpus, trained.parent)), trained, "--resume", "--overwrite")
    assert (trained / "model.safetensors").read_bytes() == before


def test_resume_takes_no_other_options(regard, trained, corpus):
    place = ["train", "translate", "--resume", "--runs", trained.parent, "--run", "tiny"]
    assert_one_line(regard(*place, "--hidden", 12), "--hidden", "10", "12")
    code, output, error = regard(*place, "--patience", 3)
    assert code == 0, error
    assert "1 epoch is done" in output


def test_resume_finds_the_run_that_has_these_options(regard, trained, tmp_path):
    runs = tmp_path / "runs"
    shutil.copytree(trained, runs / "tiny")
    resume = ["train", "translate", "--resume", "--runs", runs]
    for options in ([], ["--hidden", 10], ["--patience", 3]):
        code, output, error = regard(*resume, *options)
        assert code == 0, error
        assert str(runs / "tiny") in output
    assert_one_line(regard(*resume, "--hidden", 12), "no folder with a run of the task 'translate' with these options")
    assert_one_line(regard("train", "classify", "--resume", "--runs", runs), "no folder with a run", "classify")
    assert_one_line(regard(*resume, "--epochs", 0), "--epochs")
    shutil.copytree(trained, runs / "other")
    assert_one_line(regard(*resume), "in 2 folders", "other, tiny", "--run")
    facts = json.loads((runs / "other" / "training.json").read_text())
    (runs / "other" / "training.json").write_text(json.dumps({**facts, "finished": ""}))  # as after an interruption
    code, output, error = regard(*resume)
    assert code == 0, error
    assert str(runs / "other") in output


def test_resume_of_a_folder_where_the_data_stand_names_the_command_that_works(regard, trained, monkeypatch):
    for place, typed in ((trained.parent.parent, trained.relative_to(trained.parent.parent)), (trained, trained)):
        monkeypatch.chdir(place)
        code, _, error = regard("train", "classify", "--resume", typed)
        assert code != 0
        answer = shlex.split(error.split("regard train ")[1])
        code, output, error = regard("train", *answer)
        assert code == 0, error
        assert "1 epoch is done" in output


def test_resume_of_nothing(regard, tmp_path):
    assert_one_line(regard("train", "translate", "--resume", "--runs", tmp_path), "no folder with a run of the task")
    assert_one_line(regard("train", "translate", "--resume", "--runs", tmp_path, "--run", "none"), "no run folder")
    assert_one_line(regard("train", "translate", "--runs", tmp_path), "nothing to train on")


def test_overwrite_deletes_only_runs(regard, corpus, tmp_path):
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "letters.txt").write_text("dear")
    assert_one_line(regard(*training(corpus, tmp_path, "--overwrite")), "isn't a run")
    assert (tmp_path / "tiny" / "letters.txt").exists()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", ["empty"]),
        (b"english\tfrench\nyes\toui\n", ["spanish", "french"]),
        (b"english\tspanish\nyes\ts\xed\n", ["UTF-8"]),
        (b"english\tspanish\n", ["data.tsv"]),
        (None, ["no such file"]),
    ],
    ids=["empty", "column", "bytes", "header only", "missing"],
)
def test_data_that_cannot_be_used(regard, corpus, tmp_path, content, words):
    file = tmp_path / "data.tsv"
    if content is not None:
        file.write_bytes(content)
    assert_one_line(regard(*training({**corpus, "train": file}, tmp_path)), file, *words)


def test_train_names_the_file_of_unequal_line_counts(regard, corpus, tmp_path):
    (tmp_path / "a.en").write_text("one\ntwo\n")
    (tmp_path / "a.es").write_text("uno\n")
    data = {**corpus, "train": f"{tmp_path / 'a.en'},{tmp_path / 'a.es'}"}
    assert_one_line(regard(*training(data, tmp_path)), "2", "1", "a.es")


@pytest.mark.parametrize(
    ("option", "words"),
    [
        (["--attention", "bahdenau"], ["bahdenau", "bahdanau"]),
        (["--hidden=11"], ["--hidden", "more than once"]),
        (["--dropout", "1"], ["dropout"]),
        (["--schedule", "cosin"], ["cosine"]),
        (["--learning-rate", "0"], ["--learning-rate"]),
        (["--bundled", "100"], ["--bundled"]),
    ],
    ids=lambda value: " ".join(value),
)
def test_options_that_are_wrong(regard, corpus, tmp_path, option, words):
    assert_one_line(regard(*training(corpus, tmp_path, *option)), *words)


@pytest.mark.parametrize(
    "command", [["evaluate", "{run}", "{data}"], ["predict", "{run}", "A word."]], ids=lambda c: c[0]
)
def test_a_folder_that_is_no_run(regard, trained, corpus, tmp_path, command):
    def call(run):
        return regard(*(part.format(run=run, data=corpus["test"]) for part in command))

    assert_one_line(call(tmp_path / "none"), "no run folder")
    assert_one_line(call(tmp_path), "not a run folder", "config.yaml")
    (tmp_path / "config.yaml").write_text("- not\n- a run\n")
    assert_one_line(call(tmp_path), "config.yaml")
    (tmp_path / "config.yaml").write_text("!!python/object/apply:os.system ['touch executed']\n")
    assert_one_line(call(tmp_path), "config.yaml")
    assert not (tmp_path / "executed").exists()
    (tmp_path / "config.yaml").write_text((trained / "config.yaml").read_text())
    assert_one_line(call(tmp_path), "model.safetensors", "--resume")


def test_predict_refuses_what_is_no_text(regard, trained, tmp_path):
    file = tmp_path / "bytes.txt"
    file.write_bytes(b"good\nb\xffd\n")
    assert_one_line(regard("predict", trained, "--file", file), file, "line 2", "UTF-8")
    file.write_bytes(b"")
    assert_one_line(regard("predict", trained, "--file", file), "empty")
    assert_one_line(regard("predict", trained, "A word.", "--file", file), "--file")


def test_an_interrupt_is_no_traceback(regard, monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("regard.cli.doctor.inspect", interrupted)
    code, _, error = regard("doctor")
    assert code == 128 + signal.SIGINT
    assert "Traceback" not in error


HEAVY = {"torch", "numpy", "lightning", "datasets", "tokenizers", "matplotlib", "sacrebleu", "pydantic", "yaml"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "heavy"),
    [
        (["--help"], HEAVY),
        (["train", "--help"], HEAVY),
        (["train", "translate", "--help"], HEAVY),
        (["train", "translate", "--epochs", "x"], HEAVY),
        (["predict", "--help"], HEAVY),
        (["doctor"], {"lightning", "datasets", "tokenizers", "matplotlib", "sacrebleu"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_command_imports_only_what_it_needs(arguments, heavy):
    script = (
        "import sys; from regard.cli import main; sys.argv[1:] = sys.argv[1].split()\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print('imported:', *sys.modules)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script, " ".join(arguments)], capture_output=True, text=True, check=True, env=os.environ
    )
    imported = ended.stdout.split("imported:")[1].split()
    assert "regard.cli" in imported
    assert not heavy & set(imported)
