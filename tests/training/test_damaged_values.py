"""Files of a run with values of any type and size are one line: never a traceback, a hang, or much memory."""

import json
import shutil
from dataclasses import fields

import pytest

from regard.data.labels import Labels, PixelClasses
from regard.data.text.tokenizers import TextTokenizer, Tokenizer
from regard.errors import ArgumentError, RegardError
from regard.files.regular import LARGEST_RECORD
from regard.tasks import registry
from regard.training.config import RunConfig, read_yaml
from regard.training.manifest import DataFile, Manifest, ManifestFile
from regard.training.run_folder import RunFolder

VALUES = [None, True, -1, 10**4000, float("nan"), "x", "", "\ud800", [], [[]], [None], {}, {"a": {}}, [10**30] * 3]


def mutated(content, values=VALUES, depth=4):
    """The content with one value replaced, or left out, at each place in it; long lists at their ends only."""
    for value in values:
        yield value
    if depth and isinstance(content, dict):
        for key in [*content][:12]:
            yield {name: value for name, value in content.items() if name != key}
            for value in mutated(content[key], values, depth - 1):
                yield {**content, key: value}
        yield {**content, "unknown": 1}
    elif depth and isinstance(content, list) and content:
        for at in {0, len(content) - 1}:
            for value in mutated(content[at], values, depth - 1):
                yield [*content[:at], value, *content[at + 1 :]]


def ends_in_one_line(use):
    """Whether a use of a damaged file is refused; then by one line of a bounded length."""
    try:
        use()
    except RegardError as error:
        message = str(error)
    else:
        return False
    assert "\n" not in message
    assert len(message) < 2000
    return True


@pytest.fixture(scope="module")
def made(tiny, train, tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "x"
    train(tiny(epochs=1), path)
    return path


def test_every_value_of_a_manifest(made, tmp_path):
    folder = RunFolder.open(shutil.copytree(made, tmp_path / "x"))
    content = json.loads(folder.manifest.path.read_text())
    content["files"] = dict([*content["files"].items()][:2])
    content["data"] = {"train": content["data"]["train"]}
    refused = 0
    for wrong in mutated(content):
        folder.manifest.path.write_text(json.dumps(wrong))
        refused += ends_in_one_line(folder.manifest.verify_all)
        ends_in_one_line(lambda: folder.manifest.verify(folder.model))
        ends_in_one_line(lambda: folder.manifest.resolve("a.tsv"))
        ends_in_one_line(lambda: folder.manifest.record_data({}))
    assert refused > 200


@pytest.mark.parametrize("name", ["/etc/passwd", "../x", "a/../../x", "C:/x", "a\\..\\..\\x", "", ".", "a//b", "a\0b"])
def test_a_manifest_names_files_of_its_folder_only(made, tmp_path, name):
    folder = RunFolder.open(shutil.copytree(made, tmp_path / "x"))
    content = json.loads(folder.manifest.path.read_text())
    folder.manifest.path.write_text(json.dumps({**content, "files": {name: ["0"]}}))
    with pytest.raises(RegardError, match="in files is not a path in the run folder"):
        folder.manifest.read()


TASKS = [name for name in registry.names() if name in registry.BUILT_IN_TASKS]


def takes_turn(task, section, field, turn):
    """Whether it is this task's turn to try a value of a field; the tasks that share the field take turns."""
    kind = getattr(registry.find(task), f"{section}_config")
    owner = next(one for one in reversed(kind.__mro__) if field.name in vars(one).get("__annotations__", {}))
    sharing = [name for name in TASKS if issubclass(getattr(registry.find(name), f"{section}_config"), owner)]
    return sharing[turn % len(sharing)] == task


@pytest.mark.parametrize("task", TASKS)
def test_every_value_of_a_configuration(task, is_full):
    found = registry.find(task)
    sections = {"data": found.data_config, "model": found.model_config, "training": found.training_config}
    content = {"task": task, "data": {"train": "a.tsv"}, "model": {}, "training": {}}
    tried = refused = 0
    for section, kind in sections.items():
        for field in fields(kind):
            for turn, value in enumerate((None, True, -1, 10**5000, float("nan"), "x", [[]], {"a": 1})):
                if not is_full and not takes_turn(task, section, field, turn):
                    continue
                wrong = {**content, section: {**content[section], field.name: value}}
                tried += 1
                refused += ends_in_one_line(lambda wrong=wrong: RunConfig.from_dict(wrong, "config.yaml", found))
    assert tried > (300 if is_full else 100)
    assert refused > 0.9 * tried


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, name in zip("abcdefghi", "bcdefghij", strict=True)
)


@pytest.mark.parametrize(
    "text",
    [
        f"training: {{epochs: {'9' * 10_000}}}",
        f"training: {{epochs: 0x{'f' * 100_000}}}",
        f"training: {{epochs: {'1:' * 5_000}1}}",
        f"training: {{learning_rate: 0b{'1' * 50_000}}}",
        f"training: {{learning_rate: {'9' * 10_000}.0}}",
        f"training: {{epochs: {'[' * 10_000}}}",
        BOMB + "training: {epochs: *j}",
        BOMB + "training: {? *j : 1}",
        f"? 0x{'f' * 10_000}\n: 1\n",
        f"task: 0x{'f' * 10_000}\ndata: {{}}\nmodel: {{}}\ntraining: {{}}",
        "training: {epochs: 2020-13-45}",
        "training: {epochs: !!binary x}",
        "training: &t {epochs: *t}",
        "x: 1\n" * 100_000,
    ],
    ids=range(14),
)
def test_numbers_and_lists_without_end_in_yaml(text, run_command, tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text(text)
    for arguments in (("train", "translate", "--config", file, "--print-config"), ("evaluate", tmp_path, "x.tsv")):
        code, _, errors = run_command(*arguments)
        assert code == 2, arguments
        assert errors.startswith("regard: error: ")
        assert errors.count("\n") == 1
        assert len(errors) < 2000


def test_a_configuration_is_a_small_file(tmp_path):
    (tmp_path / "config.yaml").write_text("#" * (1 << 19))
    with pytest.raises(RegardError, match="at most 262,144 are read"):
        read_yaml(tmp_path / "config.yaml")


@pytest.mark.parametrize("kind", ["word", "bpe", "char"])
@pytest.mark.parametrize("tokenizer", [Tokenizer, TextTokenizer])
def test_every_value_of_a_tokenizer(kind, tokenizer, tmp_path):
    path = tmp_path / "tokenizer.json"
    tokenizer.train(["a b ab ab ab", "b a"], kind=kind, size=300).save(path)
    content, refused = json.loads(path.read_text()), 0
    content = {name: content[name] for name in ("model", "pre_tokenizer", "normalizer") if name in content}
    for wrong in mutated(content, VALUES[:10]):
        path.write_text(json.dumps(wrong))
        refused += ends_in_one_line(lambda: tokenizer.load(path))
    assert refused > 100


@pytest.mark.parametrize(
    ("kind", "content"),
    [(Labels, {"labels": ["a", "b"]}), (PixelClasses, {"classes": ["a", "b"], "height": 4, "width": 5})],
)
def test_every_value_of_names(kind, content, tmp_path):
    path = tmp_path / "names.json"
    for wrong in mutated(content):
        path.write_text(json.dumps(wrong))
        ends_in_one_line(lambda: kind.load(path))
    for wrong in ({"labels": "ab"}, {"labels": {"a": 1, "b": 2}}, {"labels": ["a", "\ud800"]}):
        path.write_text(json.dumps({**wrong, "classes": wrong["labels"], "height": 4, "width": 5}))
        assert ends_in_one_line(lambda: kind.load(path))


def test_every_value_of_a_sample(tmp_path):
    folder = RunFolder(tmp_path)
    for wrong in mutated({"step": 3, "source": "a", "more": [1]}):
        folder.samples.write_text(json.dumps(wrong) + "\n")
        if not ends_in_one_line(folder.read_samples):
            folder.write_samples(folder.read_samples())


@pytest.mark.parametrize("device", ["meta", "cuda:99", "mps", "xla", "hpu", "lazy", "vulkan", "3", "", "cpu:7:8"])
def test_a_device_that_cannot_compute_is_one_line(made, device):
    with pytest.raises(ArgumentError, match=r"cannot be used|must be one that PyTorch knows") as caught:
        registry.load(made, device)
    assert "\n" not in str(caught.value)


def test_a_manifest_that_a_run_wrote_is_read(tmp_path):
    """A run may replace one whose name has a colon, and have more files of data than a record has room for."""
    manifest = ManifestFile(tmp_path)
    folder = "class" * 250
    data = {"train": tuple(DataFile(f"texts/{folder}/{number}.txt", 1, "0" * 64) for number in range(15_000))}
    manifest.write(Manifest(began_in="/x", replaces="2026-11-25 12:00", data=data))
    assert manifest.path.stat().st_size > LARGEST_RECORD
    assert manifest.read() == Manifest(began_in="/x", replaces="2026-11-25 12:00", data=data)
