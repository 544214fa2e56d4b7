"""Runs on the hub: what is uploaded and what is not, loading by an address in every command, errors of one line."""

import json
import os
import shutil
import sys
from pathlib import Path

import huggingface_hub
import pytest
import yaml
from huggingface_hub import constants
from huggingface_hub.utils import _cache_assets

import regard
from fake_hub import TOKEN, FakeHub
from regard.errors import ArgumentError, MissingPartError, RunError
from regard.page.models import open_model
from regard.training.card_seal import CARD, is_own_card
from regard.training.hub import HubAddress, is_hub_address, local_run
from regard.training.run_folder import RunFolder

# The hub's library warns of its own use of its HTTP client.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=<...>':DeprecationWarning")

SENTENCE = "My sister gives the old book to her friend."


@pytest.fixture(scope="module")
def made(tiny, train, tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "x"
    train(tiny(epochs=1), path)
    return path


@pytest.fixture
def run(made, tmp_path):
    return shutil.copytree(made, tmp_path / "x")


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub on this machine, with empty caches and a token."""
    with FakeHub() as server:
        monkeypatch.setattr(constants, "ENDPOINT", server.endpoint)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", server.endpoint + "/{repo_id}/resolve/{revision}/{filename}"
        )
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        monkeypatch.setattr(_cache_assets, "HF_ASSETS_CACHE", str(tmp_path / "assets"))
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield server


@pytest.fixture
def pushed(run, corpus, run_command, hub):
    """A hub with the evaluated run ``alice/x``."""
    (run / "notes.txt").write_text("mine")
    code, _, error = run_command("evaluate", run, corpus["test"], "--threads", 1)
    assert code == 0, error
    code, output, error = run_command("push", run, "alice/x", "--private", "--message", "The first one")
    assert code == 0, error
    assert 'regard.load("hf://alice/x")' in output
    return hub


def test_only_what_a_run_needs_is_uploaded(pushed, run):
    files, _ = pushed.files("alice/x")
    assert set(files) == {
        "config.yaml", "manifest.json", "model.safetensors", "README.md", "training.json", "metrics.csv",
        "tokenizer-source.json", "tokenizer-target.json", "evaluation-test.json",
    }  # fmt: skip
    assert pushed.private == {"alice/x"}
    assert pushed.messages == ["The first one"]
    assert files["model.safetensors"] == (run / "model.safetensors").read_bytes()
    assert b'regard.load("hf://alice/x")'.replace(b'"', b"'") in files["README.md"]


def test_no_path_of_the_machine_is_uploaded(pushed, corpus, run):
    files, _ = pushed.files("alice/x")
    places = [str(corpus["train"].parent), str(run.parent), os.getcwd(), "/tmp"]
    for name, content in files.items():
        assert not [place for place in places if place.encode() in content], name
    assert yaml.safe_load(files["config.yaml"])["data"]["train"] == "train.tsv"
    manifest = json.loads(files["manifest.json"])
    assert (manifest["began_in"], manifest["data"]["train"][0]["path"]) == ("", "train.tsv")
    assert not [name for name in manifest["files"] if "ckpt" in name]


def test_checkpoints_are_uploaded_when_they_are_wanted(run, run_command, hub):
    code, _, error = run_command("push", run, "alice/x", "--checkpoints")
    assert code == 0, error
    assert [name for name in hub.files("alice/x")[0] if name.startswith("checkpoints/step-")]
    assert hub.messages == ["Upload the run x"]
    assert not hub.private


def test_the_readme_of_the_user(run, run_command, hub):
    """A card that the user edited is uploaded as it is; a README.md that is no card is not."""
    edited = (run / CARD).read_text().replace("# x", "# My model")
    (run / CARD).write_text(edited)
    assert run_command("push", run, "alice/x")[0] == 0
    assert hub.files("alice/x")[0][CARD].decode() == edited
    (run / CARD).write_text("secret\n")
    assert run_command("push", run, "alice/x")[0] == 0
    assert b"secret" not in hub.files("alice/x")[0][CARD]


def test_a_readme_that_somebody_edited_on_the_hub_stays(pushed, run, run_command):
    """Unless the user has edited the card of the run, too."""
    edited = pushed.files("alice/x")[0][CARD].replace(b"not tested", b"carefully tested")
    pushed.commit("alice/x", {CARD: edited})
    code, output, error = run_command("push", run, "alice/x")
    assert code == 0, error
    assert "README.md: somebody has edited the one on the hub, so it was left as it is\n" in output
    assert pushed.files("alice/x")[0][CARD] == edited
    (run / CARD).write_text("secret\n")
    output = run_command("push", run, "alice/x")[1]
    assert "left as it is; yours was not uploaded, since it is no card of regard\n" in output
    assert pushed.files("alice/x")[0][CARD] == edited
    (run / CARD).write_bytes(mine := edited.replace(b"carefully", b"hardly"))
    output = run_command("push", run, "alice/x")[1]
    assert "README.md: the card that you edited was uploaded; it replaced an edited one" in output
    assert pushed.files("alice/x")[0][CARD] == mine


def test_an_edit_while_the_files_are_uploaded_is_not_lost(pushed, run, run_command, monkeypatch):
    look = huggingface_hub.HfApi.repo_info

    def slow(*arguments, **options):
        info = look(*arguments, **options)
        pushed.commit("alice/x", {CARD: b"# edited\n"})
        return info

    monkeypatch.setattr(huggingface_hub.HfApi, "repo_info", slow)
    code, _, error = run_command("push", run, "alice/x")
    assert (code, "the hub answers with error 412" in error) == (2, True), error
    assert pushed.files("alice/x")[0][CARD] == b"# edited\n"


def test_a_private_run_is_not_uploaded_to_a_public_repository(run, run_command, hub):
    hub.commit("alice/x", {"a.txt": b"a"})
    code, _, error = run_command("push", run, "alice/x", "--private")
    assert (code, "hf://alice/x exists and is public, so nothing was uploaded" in error) == (2, True), error
    assert list(hub.files("alice/x")[0]) == ["a.txt"]
    hub.private.add("alice/x")
    assert run_command("push", run, "alice/x", "--private")[0] == 0


def test_the_newest_commit_is_loaded_each_time(pushed, run, tmp_path):
    first = local_run("hf://alice/x")
    pushed.commit("alice/x", {CARD: b"# newer\n"})
    second = local_run("hf://alice/x")
    assert (second / CARD).read_bytes() == b"# newer\n"
    assert first != second
    shutil.rmtree(tmp_path / "assets")
    assert regard.load("hf://alice/x").folder.path == second


def test_only_the_model_shares_its_bytes_with_the_cache_of_the_hub(pushed):
    folder = local_run("hf://alice/x")
    shared = [path.name for path in folder.rglob("*") if path.is_file() and path.stat().st_nlink > 1]
    assert shared == ["model.safetensors"]


def test_the_evaluations_are_downloaded(pushed, corpus, run_command):
    """So a renewed card has the results of before."""
    code, _, error = run_command("evaluate", "hf://alice/x", corpus["validation"], "--threads", 1)
    assert code == 0, error
    folder = local_run("hf://alice/x")
    splits = {one.dataset_split for one in huggingface_hub.ModelCard((folder / CARD).read_text()).data.eval_results}
    assert splits == {"test", "validation"}
    facts = json.loads(pushed.files("alice/x")[0]["training.json"])
    pushed.commit("alice/x", {"training.json": json.dumps(facts | {"evaluations": {"../x": "a"}}).encode()})
    assert not list(local_run("hf://alice/x").glob("evaluation-*")), "they are not named"


def test_a_run_of_the_hub_is_used_like_any_other(pushed, run, corpus, run_command, tmp_path, monkeypatch):
    """In Python, predict, evaluate, view and the page, and to start from."""
    expected = regard.load(run).predict([SENTENCE])[0].text
    trained = regard.load("hf://alice/x")
    assert trained.predict([SENTENCE])[0].text == expected
    assert trained.folder.path.name == "x"
    files = [path for path in trained.folder.path.rglob("*") if path.is_file()]
    assert not [path for path in files if path.is_symlink()], "they are regular files"
    assert trained.folder.path.is_relative_to(tmp_path)
    assert is_own_card(trained.folder.path / CARD)
    assert open_model("hf://alice/x").name == "x"
    code, output, error = run_command("predict", "hf://alice/x", SENTENCE, "--json")
    assert code == 0, error
    assert json.loads(output)["output"] == expected
    assert "Fetching" not in error
    exported = []

    def export(self, to, folder, **options):
        exported.append(folder)
        raise RunError("not in this test")

    monkeypatch.setattr(type(trained), "export", export)
    monkeypatch.chdir(tmp_path)
    assert "not in this test" in run_command("export", "hf://alice/x", "--to", "torch")[2]
    assert exported == [Path("x-torch")]
    before = {path: path.read_bytes() for path in (tmp_path / "hub").rglob("*") if path.is_file()}
    code, output, error = run_command("evaluate", "hf://alice/x", corpus["validation"], "--threads", 1)
    assert code == 0, error
    assert (trained.folder.path / "evaluation-validation.json").is_file()
    assert before == {path: path.read_bytes() for path in (tmp_path / "hub").rglob("*") if path.is_file()}
    code, _, error = run_command(
        *("train", "translate", "--train", corpus["train"], "--source-column", "english", "--target-column", "spanish"),
        *("--tokenizer", "word", "--embedding", 6, "--hidden", 10, "--epochs", 1, "--init-from", "hf://alice/x"),
        *("--runs", tmp_path / "new", "--run", "y", "--threads", 1, "--device", "cpu"),
    )
    assert code == 0, error
    assert "base_model: alice/x" in (tmp_path / "new" / "y" / CARD).read_text()


def test_a_revision_is_another_run_and_needs_no_network_later(pushed, monkeypatch):
    first = pushed.files("alice/x")[1]
    second = pushed.commit("alice/x", {CARD: b"# another\n"})
    paths = [local_run(f"hf://alice/x@{commit}") for commit in (first, second)]
    assert (paths[0] / CARD).read_bytes() != (paths[1] / CARD).read_bytes() == b"# another\n"
    assert local_run("hf://alice/x") == paths[1]
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    assert local_run("hf://alice/x") == paths[1]


def test_the_folder_is_checked_like_that_of_any_stranger(pushed):
    commit = pushed.commit("alice/x", {"model.safetensors": b"something else"})
    with pytest.raises(RunError, match=r"model\.safetensors is damaged"):
        regard.load(f"hf://alice/x@{commit}")
    pushed.commit("alice/x", {"config.yaml": b"!!python/object/apply:os.getcwd []\n"})
    with pytest.raises(RunError, match=r"config\.yaml"):
        regard.load("hf://alice/x")


def test_a_link_in_the_cache_that_leads_out_of_it_is_refused(pushed, tmp_path):
    (tmp_path / "outside").write_text("secret")
    snapshot = huggingface_hub.snapshot_download("alice/x", allow_patterns=["config.yaml"])
    os.symlink(tmp_path / "outside", os.path.join(snapshot, "extra.json"))
    with pytest.raises(RunError, match="leads out of"):
        local_run("hf://alice/x")


def test_models_of_others_are_not_downloaded(hub):
    hub.commit("alice/large", {"config.json": b"{}", "model.safetensors": b"x" * 100})
    with pytest.raises(RunError, match="hf://alice/large is not a run"):
        regard.load("hf://alice/large")
    assert not [path for path in hub.requests if "resolve" in path]


ERRORS = {
    "no such": ("predict", "hf://alice/none", "a", "no such repository"),
    "revision": ("predict", "hf://alice/x@none", "a", "no such revision"),
    "owner": ("push", "RUN", "others/x", "the hub refuses your token (error 403)"),
    "name": ("push", "RUN", "x", "named hf://OWNER/NAME"),
    "address": ("predict", "hf://alice", "a", "named hf://OWNER/NAME"),
    "revision name": ("evaluate", "hf://alice/x@../..", "a.tsv", "revision must be"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors_are_one_line(pushed, run, run_command, case):
    command, name, argument, message = ERRORS[case]
    code, _, error = run_command(command, run if name == "RUN" else name, argument)
    line = error.splitlines()[-1]
    assert code == 2
    assert line.startswith("regard: error: ")
    assert message in line
    assert "Traceback" not in error


def test_without_a_token_a_network_or_the_library(run, run_command, hub, monkeypatch):
    hub.repositories["alice/x"], hub.private = [], {"alice/x"}
    with monkeypatch.context() as patch:
        patch.delenv("HF_TOKEN")
        code, _, error = run_command("push", run, "alice/x")
        assert (code, "no token for the hub" in error) == (2, True), error
        code, _, error = run_command("predict", "hf://alice/x", "a")
        assert (code, "your token cannot read it" in error) == (2, True), error
    with monkeypatch.context() as patch:
        patch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
        for arguments in (("predict", "hf://alice/x", "a"), ("push", run, "alice/x")):
            code, _, error = run_command(*arguments)
            assert (code, "http://127.0.0.1:9 cannot be reached" in error) == (2, True), error
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingPartError, match=r"regard\[hub\]"):
        local_run("hf://alice/y")


def test_a_run_that_is_incomplete_or_changed_is_not_uploaded(run, run_command, hub):
    (run / "tokenizer-source.json").write_text("{}")
    code, _, error = run_command("push", run, "alice/x")
    assert (code, "tokenizer-source.json is damaged" in error) == (2, True), error
    (run / "model.safetensors").unlink()
    assert run_command("push", run, "alice/x")[0] == 2
    assert not hub.requests


@pytest.mark.parametrize(
    "address", ["hf://", "hf://a", "hf://a/b/c", "hf://a/../b", "hf://-a/b", "hf://a/b@", "hf://a/b@-x", "hf://a--b/c"]
)
def test_invalid_hub_addresses_are_refused(address):
    with pytest.raises(ArgumentError):
        HubAddress.parse(address)


def test_hub_addresses_are_parsed_and_printed():
    assert HubAddress.parse("hf://a/b-c.d@refs/pr/1") == ("a", "b-c.d", "refs/pr/1")
    assert str(HubAddress.parse("hf:/a/b")) == "hf://a/b", "a Path loses a slash"
    assert is_hub_address("hf://a/b")
    assert not is_hub_address("runs/hf")


@pytest.mark.parametrize(("directory", "typed"), [("x", "."), ("x/pictures", ".."), (".", "x/"), ("x/pictures", "../")])
def test_a_folder_is_named_by_where_it_is(run, corpus, run_command, hub, monkeypatch, directory, typed):
    (run / "pictures").mkdir(exist_ok=True)
    monkeypatch.chdir(run.parent / directory)
    folder = RunFolder.open(typed)
    assert folder.path.name == "x"
    assert folder.path.samefile(run)
    for command in (
        ("predict", typed, SENTENCE), ("evaluate", typed, corpus["test"], "--threads", 1), ("push", typed, "alice/x"),
    ):  # fmt: skip
        code, _, error = run_command(*command)
        assert code == 0, error
    assert hub.messages == ["Upload the run x"]
    assert "# x" in (run / CARD).read_text()


def test_a_folder_without_a_run_is_named_as_it_was_typed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RunError, match=r"^\. is not a run folder"):
        RunFolder.open(".")
    with pytest.raises(RunError, match="is empty"):
        RunFolder.open("")
    with pytest.raises(RunError, match="/ has no name"):
        RunFolder.open("/")


def test_a_folder_is_opened_without_the_library(made, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert RunFolder.open(made).path == made
