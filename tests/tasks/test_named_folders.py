"""A folder that is named as data: its examples are read, or its table is meant; what is left out is said once."""

import logging

import pytest

import regard
from regard.cli.corrected_command import command_with_file
from regard.data.class_folders import class_files, warn_of_left_out
from regard.data.speech.utterances import open_utterances
from regard.errors import DataError, FolderError, RunError
from regard.tasks import registry
from regard.training.reporter import each_warning_once
from regard.training.run_folder import RunFolder
from shell_files import write_sound

TABLES = {
    "transcribe": "path\ttext\none/a.wav\tthe first one\none/b.wav\ta second\n",
    "caption": "image\tcaption\na.png\tthe first one\nb.png\ta second\n",
    "translate": "source\ttarget\none\teins\ntwo\tzwei\n",
    "summarize": "article\tsummary\none long text\tone\ntwo long texts\ttwo\n",
    "images": "image\tlabel\na.png\tone\nb.png\ttwo\n",
}


@pytest.mark.parametrize("task", TABLES)
def test_a_folder_with_one_table_of_examples_is_answered_with_the_table(task, tmp_path):
    (tmp_path / "one").mkdir()
    if task == "transcribe":  # a folder of a class, whose name is no text
        write_sound(tmp_path / "one/a.wav", 440)
    (tmp_path / "data.tsv").write_text(TABLES[task])
    (tmp_path / "info.json").write_text('{"version": 1}')
    source = registry.find(task).input
    with pytest.raises(FolderError, match=f"is a folder with the table data.tsv; name the table: {tmp_path}/data.tsv"):
        source.open_table(str(tmp_path))
    with pytest.raises(FolderError):
        regard.train(task, str(tmp_path), quiet=True)
    folder, file = str(tmp_path), str(tmp_path / "data.tsv")
    for typed, right in (
        ([folder], [file]),
        (["--train", folder], ["--train", file]),
        ([f"--train={folder}"], [f"--train={file}"]),
    ):
        assert command_with_file(["train", task, *typed], folder, file) == " ".join(["regard train", task, *right])


def test_folders_of_classes_are_read_though_a_table_is_beside_them(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        write_sound(tmp_path / name / "a.wav", 440)
    (tmp_path / "data.tsv").write_text("path\ttext\none/a.wav\tone\ntwo/a.wav\ttwo\n")
    assert registry.find("sounds").input.open_table(str(tmp_path)) is None
    with pytest.raises(FolderError):
        registry.find("transcribe").input.open_table(str(tmp_path))


def test_texts_that_are_all_the_same_are_refused():
    pairs = [(f"{word} {other}", "the same") for word in "abcdef" for other in "ghij"]
    with pytest.raises(DataError, match="every text to write is 'the same'; there is nothing to learn"):
        regard.train("translate", pairs, quiet=True, epochs=1)


def test_files_left_out_of_a_folder_are_counted_once_with_the_reason(tmp_path, caplog):
    paths = (
        [f"one/{n}.wav" for n in range(2)] + [f"four/deep/{n}.wav" for n in range(10)] + ["one/sub/x.wav", "stray.wav"]
    )
    for path in paths:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        write_sound(tmp_path / path, 440)
    (tmp_path / "one/notes.txt").write_text("x")
    with caplog.at_level(logging.WARNING, "regard"), each_warning_once():
        assert len(open_utterances(tmp_path)) == len(open_utterances(tmp_path)) == 2
    (said,) = caplog.messages
    assert said == (
        f"{tmp_path}: left out 10 sounds in 'four/': nested one folder deeper; 1 sound in 'one/sub/': nested one "
        "folder deeper; 1 sound beside the folders of its sounds; 1 entry besides its sounds: 'one/notes.txt'"
    )
    caplog.clear()
    warn_of_left_out(tmp_path, class_files(tmp_path, (".txt",), "texts").left_out, "texts", (".txt",))
    assert "besides its texts: 'four', 'one/0.wav', 'one/1.wav', ..." in caplog.text


def test_the_name_of_a_run_is_answered_with_its_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs/mine").mkdir(parents=True)
    (tmp_path / "runs/mine/config.yaml").write_text("task: sounds\n")
    with pytest.raises(RunError, match=r"there is no run folder mine; there is runs.mine$"):
        RunFolder.open("mine")
    with pytest.raises(RunError, match=r"there is no run folder other$"):
        RunFolder.open("other")


def test_the_first_line_of_a_training_says_what_is_held_out_and_the_card_agrees(tmp_path, capfd):
    data = [f"{word} {n}" for n in range(20) for word in ("a fine film", "a dull film")], ["good", "bad"] * 20
    run = regard.train("classify", data, epochs=1, hidden=8, threads=1, run=tmp_path / "run")
    printed, card = capfd.readouterr(), run.folder.file("README.md").read_text()
    assert "4 to validate on" in printed.out + printed.err
    assert "4 to validate on" in card
    assert "dry" not in printed.out + printed.err
