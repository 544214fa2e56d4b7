"""The model card: what the hub reads, what it says, what it never gives away, and whose file it is."""

import json
import os
import shlex
import shutil

import pytest
import yaml
from huggingface_hub import ModelCard
from markdown_it import MarkdownIt

from regard.errors import ArgumentError, RunError
from regard.tasks import registry
from regard.training.card_seal import CARD, is_own_card
from regard.training.model_card import card, public_name, published_config, visible, write_card
from regard.training.run_folder import RunFolder
from regard.training.training_facts import FACTS, TrainingFacts

TASK = registry.find("translate")

HOSTILE = (
    'a|b** <img src=x onerror="alert(1)"> [l](https://evil.example) `c` www.evil.example\n---\nlicense: mine\u202e'
)


@pytest.fixture(scope="module")
def made(tiny, train, tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "x"
    train(tiny(license="Apache-2.0", epochs=1), path)
    return path


@pytest.fixture
def run(made, tmp_path):
    return shutil.copytree(made, tmp_path / "x")


def text_of(run):
    return (run / CARD).read_text(encoding="utf-8")


def front_matter(text):
    return yaml.safe_load(text.split("\n---\n")[0].removeprefix("---\n"))


def test_the_hub_reads_the_card(made):
    data = ModelCard(text_of(made)).data
    assert (data.library_name, data.license, data.pipeline_tag) == ("regard", "apache-2.0", "translation")
    assert "translate" in data.tags
    assert data.language is None
    last = RunFolder(made).read_metrics()[-1]
    results = {(one.metric_type, one.dataset_split): one.metric_value for one in data.eval_results}
    assert results == {
        ("bleu", "validation"): pytest.approx(last["val_bleu"], abs=1e-5),
        ("chrf", "validation"): pytest.approx(last["val_chrf"], abs=1e-5),
    }


def test_the_card_says_what_was_trained_on_what(made):
    text = text_of(made)
    for part in (
        "RecurrentTranslator (translate-bahdanau)",
        "Translate text, by the architecture lstm and the attention bahdanau.",
        "150 pairs", "train.tsv", "| hidden | 10 |",
        "| schedule | cosine |", "1 epoch,", "Seed: 1", "CPU (", "torch ", "regard.load('x')", "regard predict x ",
        "regard export x --to onnx  # or torch: for programs", "From the folder that holds x:",
    ):  # fmt: skip
        assert part in text, part
    assert "| heads |" not in text, "options with their defaults are not listed"


def test_the_card_gives_no_place_of_the_machine_away(made, corpus):
    text = text_of(made)
    assert str(corpus["train"].parent) not in text
    assert str(made.parent) not in text
    assert os.sep + "tmp" not in text


def test_the_commands_of_the_card_work_where_the_training_ran(tiny, train, tmp_path, monkeypatch, run_command):
    monkeypatch.chdir(tmp_path)
    train(tiny({"architecture": "transformer", "heads": 2}, epochs=1, scheduled_sampling=0.0), "my runs/x y")
    text = text_of(tmp_path / "my runs" / "x y")
    assert f"on {tmp_path}" not in text
    program = text.partition("```python\n")[2].partition("```")[0]
    exec(program, {})
    commands = text.partition("```sh\n")[2].partition("```")[0].splitlines()
    for line in commands[:1]:
        code, output, error = run_command(*shlex.split(line, comments=True)[1:])
        assert code == 0, error
        assert output
    formats = commands[-1].partition("--to ")[2].partition(":")[0].replace("# or", "").replace(",", "").split()
    assert [one for one in formats if one != "or"] == TrainingFacts.read(RunFolder("my runs/x y").facts).exports
    assert formats == ["onnx", "torch", "or", "hf"]
    assert "pip install '.[train]'" in program, "the package is on no index"


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("/home/alice/data/a.tsv", "a.tsv"),
        ("data/a.tsv", "a.tsv"),
        ("../a.de,~/b.en", "a.de,b.en"),
        (r"C:\Users\alice\a.tsv", "a.tsv"),
        ("data/flowers", "flowers"),
        ("owner/name", "owner/name"),
        ("owner/name:part", "owner/name:part"),
        ("https://example.org/a/x.tsv?token=a/b", "x.tsv"),
        ("hf:/owner/name", "hf://owner/name"),
        ("/home/alice/folder/", "folder"),
        ("hf://owner/name@main", "hf://owner/name@main"),
    ],
)
def test_names_without_folders(source, name):
    assert public_name(source, {"owner/name"}) == name


@pytest.mark.parametrize("directory", [".", "elsewhere"])
def test_the_manifest_says_what_is_on_the_hub(run, tmp_path, monkeypatch, directory):
    """A relative folder is no data set on the hub, wherever the card is written."""
    (tmp_path / "data" / "flowers").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / directory)
    config = yaml.safe_load((run / "config.yaml").read_text())
    config["data"] |= {"train": "data/flowers", "validation": "alice/corpus:part", "test": "data/secret"}
    config["training"]["init_from"] = "hf:/bob/model@v1"
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    manifest = json.loads((run / "manifest.json").read_text())
    del manifest["data"]["validation"]
    (run / "manifest.json").write_text(json.dumps(manifest))
    text = card(TASK, RunFolder(run)).decode()
    assert "datasets" not in front_matter(text)
    assert front_matter(text)["base_model"] == "bob/model"
    assert "alice/corpus:part" in text
    assert "data/" not in text
    del manifest["data"]["train"]
    config["data"]["train"] = "alice/corpus"
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    (run / "manifest.json").write_text(json.dumps(manifest))
    assert front_matter(card(TASK, RunFolder(run)).decode())["datasets"] == ["alice/corpus"]
    (run / "manifest.json").unlink()
    assert "alice" not in card(TASK, RunFolder(run)).decode(), "nothing says that it is not a folder"


def test_only_options_that_name_files_are_published_without_folders(made):
    content = {
        "task": "a/b",
        "data": {
            "train": ["/home/alice/a.tsv", "data/b.tsv"], "validation": "/home/a.de, x/b.en", "test": "x.tsv?token=abc",
            "source_column": "a b/c d", "word_vectors": "/home/v.txt", "classes": "/home/names.txt",
        },
        "training": {"init_from": "../runs/x", "backbone_weights": "w/x.pth", "license": "a/b"},
        "versions": {"regard": "1/2"},
    }  # fmt: skip
    assert published_config(content, RunFolder(made).manifest) == {
        "task": "a/b",
        "data": {
            "train": ["a.tsv", "b.tsv"], "validation": "a.de,b.en", "test": "x.tsv",
            "source_column": "a b/c d", "word_vectors": "v.txt", "classes": "names.txt",
        },
        "training": {"init_from": "x", "backbone_weights": "x.pth", "license": "a/b"},
        "versions": {"regard": "1/2"},
    }  # fmt: skip
    assert published_config({"data": {"classes": "road/lane,car"}}, RunFolder(made).manifest) == {
        "data": {"classes": "road/lane,car"}
    }


def test_numbers_without_bounds_in_files_of_a_stranger(run, corpus, run_command):
    assert run_command("evaluate", run, corpus["test"], "--threads", 1)[0] == 0
    evaluation = json.loads((run / "evaluation-test.json").read_text())
    (run / "evaluation-test.json").write_text(json.dumps(evaluation | {"bleu": 10**400}))
    results = ModelCard(card(TASK, RunFolder(run)).decode()).data.eval_results
    assert [one.metric_type for one in results if one.dataset_split == "test"] == ["chrf"]
    facts = json.loads((run / FACTS).read_text())
    for name in ("seconds", "steps"):
        (run / FACTS).write_text(json.dumps(facts | {name: 10**400}))
        with pytest.raises(RunError, match=f"{FACTS} is damaged.*{name} must be a number below"):
            card(TASK, RunFolder(run))


def test_hostile_names_are_text(run):
    """Names of columns, files, data and the folder itself can hold Markdown, HTML and YAML."""
    config = yaml.safe_load((run / "config.yaml").read_text())
    config["data"] |= {"train": f"/x/{HOSTILE}.tsv", "source_column": HOSTILE}
    config["training"]["license"] = "my <b>own</b>: [licence]"
    config["versions"]["python"] = HOSTILE
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    facts = json.loads((run / FACTS).read_text()) | {"description": HOSTILE, "model": HOSTILE, "finished": HOSTILE}
    (run / FACTS).write_text(json.dumps(facts))
    run = run.rename(run.with_name("a'`*<b>``` x"))
    text = card(TASK, RunFolder(run)).decode()
    content = front_matter(text)
    assert (content["license"], content["license_name"]) == ("other", "my <b>own</b>: [licence]")
    assert content["model-index"][0]["name"] == run.name
    body = text.split("\n---\n", 1)[1]
    assert "\u202e" not in text
    tokens = MarkdownIt("commonmark").enable("table").parse(body)
    kinds = {token.type for token in tokens} | {child.type for one in tokens for child in one.children or ()}
    assert not kinds & {"html_inline", "link_open", "image", "code_inline", "strong_open", "em_open", "hr"}
    assert sum(token.type == "html_block" for token in tokens) == 1, "the line of the checksum alone"
    assert sum(token.type == "fence" for token in tokens) == 2
    texts = ["".join(child.content for child in one.children) for one in tokens if one.type == "inline"]
    assert texts[texts.index("source_column") + 1] == visible(HOSTILE)
    assert f"Sizes: {visible(HOSTILE)}" in texts, "it is shown as it is written"


def test_evaluating_renews_the_card_until_the_model_changes(run, corpus, run_command):
    code, output, error = run_command("evaluate", run, corpus["test"], "--threads", 1)
    assert code == 0, error
    assert str(run / CARD) in output
    bleu = json.loads((run / "evaluation-test.json").read_text())["bleu"]
    results = {one.dataset_split: one for one in ModelCard(text_of(run)).data.eval_results if one.metric_type == "bleu"}
    assert results["test"].metric_value == pytest.approx(bleu, abs=1e-5)
    assert results["test"].dataset_name == "test.tsv"
    assert is_own_card(run / CARD)
    facts = TrainingFacts.read(RunFolder(run).facts)
    folder = RunFolder(run)
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["files"]["model.safetensors"] = ["0" * 64]
    (run / "manifest.json").write_text(json.dumps(manifest))
    assert write_card(TASK, folder) == run / CARD
    assert "test.tsv (test)" not in text_of(run), "these results are those of another model"
    assert TrainingFacts.read(folder.facts) == facts


@pytest.mark.parametrize("own", ["# Mine\n", None])
def test_a_readme_of_the_user_stays(run, corpus, run_command, own):
    mine = text_of(run).replace("not tested", "never tested") if own is None else own
    (run / CARD).write_text(mine)
    code, output, error = run_command("evaluate", run, corpus["test"], "--threads", 1)
    assert code == 0, error
    assert CARD not in output
    code, _, error = run_command(
        *("train", "translate", "--runs", run.parent, "--run", "x", "--resume", "--patience", 9)
    )
    assert code == 0, error
    assert "README.md that regard did not write" in error
    code, _, error = run_command(
        *("train", "translate", "--train", corpus["train"], "--source-column", "spanish"),
        *("--target-column", "english", "--runs", run.parent, "--run", "x", "--overwrite"),
    )
    assert code == 2
    assert "README.md" in error
    assert text_of(run) == mine


def test_a_run_without_facts_gets_no_card_and_damage_is_named(run):
    (run / FACTS).write_text('{"description": 3}')
    with pytest.raises(RunError, match=f"{FACTS} is damaged"):
        write_card(TASK, RunFolder(run))
    (run / FACTS).unlink()
    assert write_card(TASK, RunFolder(run)) is None


def test_the_card_of_a_run_that_replaces_another_has_its_name(tiny, train, made, tmp_path):
    path = shutil.copytree(made, tmp_path / "y")
    train(tiny(epochs=1), path, overwrite=True)
    assert "# y" in text_of(path)
    assert "No licence is stated" in text_of(path)
    assert os.listdir(tmp_path) == ["y"]


def test_every_task_has_a_name_on_the_hub():
    assert all(registry.find(name).hub_task for name in registry.BUILT_IN_TASKS)


@pytest.mark.parametrize("license", ["", " ", "a\nb", "x" * 101])
def test_a_licence_is_a_name(license):
    with pytest.raises(ArgumentError, match="license must be a name"):
        TASK.training_config(license=license)
