"""A refused command is followed by the one that was meant: it is accepted, and names the data and their columns."""

import os
import random
import shlex

import pandas as pd
import pytest

from regard.cli.commands import build
from regard.tasks import registry

WORDS = ["parcel", "invoice", "late", "login", "broken", "refund", "twice", "charged", "screen", "order"]
TEXTS = [" ".join(random.Random(number).choices(WORDS, k=9)) for number in range(40)]
KINDS = [f"kind {number % 3}" for number in range(40)]
RUN = "task: translate\ndata: {}\nmodel: {}\ntraining: {}\n"
ODD = "--text-column eins --label-column zwei"

COMMANDS = {
    "train tickets.csv": "train classify tickets.csv",
    "train odd.csv": f"train classify odd.csv {ODD}",
    "train pairs.csv": "train translate pairs.csv --source-column eng --target-column tha",
    "train news.jsonl": "train summarize news.jsonl",
    "train book.txt": "train language book.txt",
    "train classification tickets.csv": "train classify tickets.csv",
    "train text-classification odd.csv --lr 0.1": f"train classify odd.csv --learning-rate 0.1 {ODD}",
    "train clasify tickets.csv --epocs 3": "train classify tickets.csv --epochs 3",
    "train Image_Classification x": "train images x",
    "classify tickets.csv": "train classify tickets.csv",
    "translation pairs.tsv": "train translate pairs.tsv",
    "fit classify tickets.csv": "train classify tickets.csv",
    "trian classify tickets.csv": "train classify tickets.csv",
    "train classify odd.csv": f"train classify odd.csv {ODD}",
    "train classify --train odd.csv": f"train classify --train odd.csv {ODD}",
    "train classify odd.csv --text-column=einz": f"train classify odd.csv {ODD}",
    "train classify tickets.csv test.csv": "train classify tickets.csv --test test.csv",
    "train classify tickets.csv val.csv": "train classify tickets.csv --validation val.csv",
    "train translate a.de b.en": "train translate --train a.de,b.en",
    "train classify tickets.csv --validation-file val.csv": "train classify tickets.csv --validation val.csv",
    "train classify tickets.csv --text Message --label Category": (
        "train classify tickets.csv --text-column Message --label-column Category"
    ),
    "train classify tickets.csv --epoch=3 --lr=0.1 --batch 8": (
        "train classify tickets.csv --epochs=3 --learning-rate=0.1 --batch-size 8"
    ),
    "train classify tickets.csv --val-split 0.1": "train classify tickets.csv --held-out 0.1",
    "evaluate --run runs/x --data tickets.csv": "evaluate runs/x tickets.csv",
    "eval runs/x --test-file=tickets.csv": "evaluate runs/x tickets.csv",
    "predict runs/x --input tickets.csv": "predict runs/x --file tickets.csv",
    "predict --model runs/x --text 'a b'": "predict runs/x 'a b'",
    "predict runs/x --csv tickets.csv": "predict runs/x --file tickets.csv",
    **{
        f"train classify --{one} tickets.csv": "train classify --train tickets.csv"
        for one in ("input", "csv", "file", "dataset", "train-file", "path", "data-file", "training-data")
    },
}  # fmt: skip
"""What somebody writes first → what is right."""

NOT_KNOWN = ("train nothing-like-it", "frobnicate", "train classify --zzz 3", "train classify tickets.csv --epocs many")


@pytest.fixture(autouse=True)
def _files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    texts = [f"{text} {number}" for number, text in enumerate(TEXTS)]
    pd.DataFrame({"id": range(40), "Message": texts, "Category": KINDS}).to_csv("tickets.csv", index=False)
    pd.DataFrame({"zwei": KINDS, "nr": range(40), "eins": texts}).to_csv("odd.csv", index=False)
    pd.DataFrame({"id": range(40), "eng": texts, "tha": TEXTS}).to_csv("pairs.csv", index=False)
    pd.DataFrame({"Headline": TEXTS, "Body": texts}).to_json("news.jsonl", orient="records", lines=True)
    for name in ("test.csv", "val.csv"):
        pd.DataFrame({"Message": texts, "Category": KINDS}).to_csv(name, index=False)
    for name in ("book.txt", "a.de", "b.en"):
        (tmp_path / name).write_text("One two.\n")


@pytest.mark.parametrize("typed", COMMANDS)
def test_the_command_that_was_meant_follows_the_message_and_is_accepted(run_command, typed):
    code, output, error = run_command(*shlex.split(typed))
    message, *corrected = error.splitlines()
    assert code == 2
    assert not output
    assert message.startswith("regard: error: ")
    assert corrected == [f"regard {COMMANDS[typed]}"]
    arguments = shlex.split(corrected[0])[1:]
    build(arguments).parse_args(arguments, exit_on_error=False, print_error=False)


@pytest.mark.parametrize("typed", NOT_KNOWN)
def test_where_it_is_not_known_nothing_follows(run_command, typed):
    _, _, error = run_command(*shlex.split(typed))
    assert len(error.splitlines()) == 1


def test_data_need_no_option(run_command):
    code, output, _ = run_command("train", "classify", "tickets.csv", "--print-config")
    assert not code
    assert "train: tickets.csv" in output
    assert "text_column: Message  # by its name" in output
    assert "label_column: Category  # by its name" in output
    for arguments in (("tickets.csv", "--train", "tickets.csv"), ("--bundled", "100", "tickets.csv")):
        assert run_command("train", "classify", *arguments)[0] == 2


def test_the_answer_to_columns_that_are_not_told_is_a_command_that_runs(run_command):
    _, _, error = run_command("train", "classify", "odd.csv", "--dry-run")
    for option in ("--text-column", "--label-column", "'zwei'", "'nr'", "'eins'"):
        assert option in error.splitlines()[0]
    code, output, error = run_command(*shlex.split(error.splitlines()[1])[1:])
    assert not code, error
    assert "36 texts" in output


def test_a_name_that_other_programs_have_for_a_task_is_that_of_one_here():
    from regard.cli.commands import COMMANDS as KNOWN
    from regard.names.old_names import COMMANDS_ELSEWHERE, TASKS_ELSEWHERE

    assert set(TASKS_ELSEWHERE.values()) <= registry.BUILT_IN_TASKS.keys()
    assert not TASKS_ELSEWHERE.keys() & registry.BUILT_IN_TASKS.keys()
    assert set(COMMANDS_ELSEWHERE.values()) <= KNOWN.keys()
    assert not COMMANDS_ELSEWHERE.keys() & KNOWN.keys()


@pytest.mark.parametrize(
    ("typed", "command"),
    [
        (["classify", "runs/a b", "A text."], "regard predict 'runs/a b' 'A text.'"),
        (["classify", "runs/a b"], "regard predict 'runs/a b'"),
        (["A text."], "regard predict 'runs/a b' 'A text.'"),
        (["c", "A text."], "regard predict 'runs/a b' 'A text.'"),
    ],
)
def test_a_prediction_without_its_run_is_answered_with_the_runs_there_are(
    typed, command, tmp_path, monkeypatch, run_command
):
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate("zyxwv"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "config.yaml").write_text(RUN)
        os.utime(tmp_path / "runs" / name, (number, number))
    (tmp_path / "runs" / "a b").mkdir()
    (tmp_path / "runs" / "a b" / "config.yaml").write_text(RUN)
    code, _, error = run_command("predict", *typed)
    assert code == 2
    assert error.splitlines()[-1] == command
    if typed[0] != "classify":
        assert "the runs here are runs/a b, runs/v, runs/w, runs/x, runs/y, ..." in error
