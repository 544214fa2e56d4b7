"""Defaults from the data: every one is a valid configuration, says why, and leaves what the user has set."""

import inspect
import itertools
import json
import random
import re
import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from PIL import Image

import regard
from regard.cli.config_options import field_help
from regard.cli.run_configuration import as_yaml, compose_config
from regard.cli.train_commands import make_command
from regard.configuration.options import choices, option_types
from regard.errors import ArgumentError, DataError, RunError
from regard.tasks import registry
from regard.tasks.fitting import FEW_IMAGES, DataSize, fit
from regard.tasks.inputs.run_tokenizer import text_tokenizer
from regard.tasks.train import checked_options
from regard.training.config import RunConfig, TrainingConfig, make_config, options_by_section, section_kinds
from regard.training.fitted_config import fit_config
from regard.training.processes import is_on_cpu, process_count
from regard.training.run_folder import RunFolder

ROWS = (3, 30, 300, 3_000, 30_000, 300_000, 3_000_000)
MACHINES = ((True, 1), (True, 2), (False, 1), (False, 8))
LENGTHS = ((0.0, 0.0), (40.0, 45.0), (15_000.0, 1_000.0))
SHARES = ((0.0, 0.0), (1.0, 0.3))


def architectures(task):
    return choices(option_types(task.model_config).get("architecture")) or (None,)


def sizes(task, rows=ROWS):
    """Sizes of data and machines; a line of running text has 30 bytes."""
    unit, factor = ("bytes", 30) if task.name == "language" else (task.input.examples, 1)
    machines = itertools.product(rows, MACHINES)
    others = itertools.cycle(itertools.product(SHARES, LENGTHS))
    for (count, (cpu, processes)), (unspaced, (length, target)) in zip(machines, others, strict=False):
        yield DataSize(count * factor, unit, length, target, 0, cpu, processes, unspaced)


def fitted(task, size, **typed):
    """The configuration of a run on data of a size, and what was chosen."""
    chosen = fit(task.rules, size, list(section_kinds(task).values()), typed)
    values = {name: choice.value for name, choice in chosen.items()}
    assert not values.keys() & typed.keys()
    return make_config(task, options_by_section(task, {"train": "x", **values, **typed})), chosen


@pytest.mark.parametrize("name", registry.BUILT_IN_TASKS)
def test_every_default_is_valid_and_exactly_those_of_the_help_are_chosen(name):
    task, seen = registry.find(name), set()
    for architecture in architectures(task):
        for size in sizes(task):
            typed = {} if architecture is None else {"architecture": architecture}
            config, chosen = fitted(task, size, **typed)
            seen |= chosen.keys()
            assert all(choice.reason for choice in chosen.values())
            assert config.training.patience_after <= 1_000 * config.training.epochs * size.rows
        seen |= fitted(task, size)[1].keys()
    assert seen == task.fitted
    for kind in section_kinds(task).values():
        options = option_types(kind)
        texts = field_help(kind, task.fitted)
        said = {one for one in options if texts[one].endswith("Default: from the data.")}
        assert said == task.fitted & options.keys()
    parameters = inspect.signature(make_command(task)).parameters
    assert all(parameters[one].default is None for one in task.fitted)


@pytest.mark.parametrize("name", registry.BUILT_IN_TASKS)
def test_few_examples_get_many_updates_and_many_examples_few_epochs(name):
    task = registry.find(name)
    size = next(sizes(task, (300,)))
    config, _ = fitted(task, size)
    options = {**vars(config.data), **vars(config.model), **vars(config.training)}
    batch = options.get("batch_size", 16) * (options["context"] * 2 if name == "language" else 1)
    assert options["epochs"] * max(1, size.rows / batch) >= 900
    many = next(sizes(task, (3_000_000,)))
    assert fitted(task, many)[0].training.epochs <= 2


def test_only_the_first_process_reads_the_data(tmp_path, monkeypatch):
    """The others get what the data decide from the configuration in the run folder."""
    task, options = registry.find("classify"), {"train": str(tmp_path / "films.tsv")}
    with pytest.raises(DataError, match=r"films\.tsv"):
        compose_config(task, None, options)
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert compose_config(task, None, options).config.data.train == options["train"]


@pytest.mark.parametrize("name", registry.BUILT_IN_TASKS)
def test_each_option_of_the_user_wins_from_a_flag_a_file_and_python(name, tmp_path):
    task = registry.find(name)
    base = {"bundled": 3_000}
    for architecture in architectures(task):
        fixed = base if architecture is None else {**base, "architecture": architecture}
        reference = compose_config(task, None, fixed)
        chosen = {option: value(reference.config, option) for option in reference.reasons}
        typed = {option: another(task, option, automatic) for option, automatic in chosen.items()}
        for option, other in typed.items():
            config, reasons = compose_config(task, None, {**fixed, option: other})
            assert value(config, option) == other != chosen[option]
            assert option not in reasons
        typed.pop("architecture", None)
        typed.pop("pooling", None)
        file, file_of_none = tmp_path / "options.yaml", tmp_path / "none.yaml"
        file.write_text(yaml.safe_dump(options_by_section(task, typed)))
        for fit_all in (
            compose_config(task, None, {**fixed, **typed}),
            compose_config(task, file, fixed),
            fit_config(task, options_by_section(task, checked_options(task, {**fixed, **typed}))),
        ):
            assert {option: value(fit_all.config, option) for option in typed} == typed
            assert not fit_all.reasons.keys() & typed.keys()
        none = dict.fromkeys(typed)
        file_of_none.write_text(yaml.safe_dump(options_by_section(task, none)))
        assert compose_config(task, file_of_none, fixed) == reference
        checked = checked_options(task, {**fixed, **none})
        assert fit_config(task, options_by_section(task, checked)) == reference


def value(config, option):
    return next(vars(section)[option] for section in (config.data, config.model, config.training)
                if option in vars(section))  # fmt: skip


def another(task, option, automatic):
    if isinstance(automatic, str):
        kind = next(kind for kind in section_kinds(task).values() if option in option_types(kind))
        return [one for one in choices(option_types(kind)[option]) if one not in (automatic, None, "cls")][-1]
    return automatic / 2 if isinstance(automatic, float) else 2 * automatic or 1


@pytest.mark.parametrize("name", registry.BUILT_IN_TASKS)
def test_heads_divide_the_features_that_the_user_has_set_and_features_the_heads(name):
    task = registry.find(name)
    size = next(sizes(task, (3_000,)))
    for architecture in {"transformer", "vit"} & {*architectures(task)} or ({None} if name == "language" else set()):
        typed = {} if architecture is None else {"architecture": architecture}
        for hidden in (2, 8, 12, 100, 126, 512, 1000):
            config = fitted(task, size, **typed, hidden=hidden)[0].model
            assert hidden % config.heads == 0
        for heads in (1, 2, 3, 5, 6, 7, 16):
            config = fitted(task, size, **typed, heads=heads)[0].model
            assert config.hidden % heads == 0
            assert config.hidden >= 96
        if name != "images":
            config = fitted(task, size, **typed, kv_heads=3)[0].model
            assert config.heads % 3 == config.hidden % config.heads == 0


def test_few_images_train_a_convolutional_network_and_options_say_otherwise():
    task = registry.find("images")
    for rows, architecture, pooling in ((FEW_IMAGES - 1, "cnn", "attention"), (FEW_IMAGES, "vit", "cls")):
        config, chosen = fitted(task, DataSize(rows, "images"))
        assert (config.model.architecture, config.model.pooling) == (architecture, pooling)
        assert f"{rows:,} images" in chosen["architecture"].reason
    for option in ({"layers": 2}, {"hidden": 64}, {"feedforward": 100}, {"pooling": "cls"}):
        assert fitted(task, DataSize(100, "images"), **option)[0].model.architecture == "vit"
    for option in ({"stages": 2}, {"gate": "se"}, {"grid": 32}):
        assert fitted(task, DataSize(10**6, "images"), **option)[0].model.architecture == "cnn"
    assert fitted(task, DataSize(10**6, "images"), pooling_heads=2)[0].model.pooling == "attention"


def test_long_texts_make_batches_smaller():
    task = registry.find("classify")
    short, long = (fitted(task, DataSize(50_000, "texts", length))[0].training for length in (100.0, 10_000.0))
    assert short.batch_size == 64
    assert long.batch_size == 15


def test_few_sounds_have_fewer_masks():
    task = registry.find("transcribe")
    for rows, masks in ((999, 1), (1_000, 2)):
        model = fitted(task, DataSize(rows, "sounds", 200.0))[0].model
        assert (model.time_masks, model.feature_masks) == (masks, masks)


def test_mistakes_in_options_are_errors_before_the_data_are_read():
    task = registry.find("classify")
    for options in ({"hidden": 0}, {"hidden": 7}, {"epochs": 0}, {"architecture": "transformer", "heads": 2000}):
        with pytest.raises(ArgumentError):
            compose_config(task, None, {"train": "missing.tsv", **options})
    with pytest.raises(DataError, match=r"missing\.tsv"):
        compose_config(task, None, {"train": "missing.tsv"})


def test_the_processes_of_a_run(monkeypatch):
    for name in ("WORLD_SIZE", "SLURM_NTASKS"):
        monkeypatch.delenv(name, raising=False)
    for options, count in (({}, 1), ({"devices": "3"}, 3), ({"devices": "0,2"}, 2), ({"devices": "2", "nodes": 4}, 8)):
        assert process_count(TrainingConfig(accelerator="cpu", **options)) == count
    monkeypatch.setenv("WORLD_SIZE", "6")
    assert process_count(TrainingConfig(accelerator="cpu")) == 6
    assert is_on_cpu(TrainingConfig(accelerator="cpu"))
    assert not is_on_cpu(TrainingConfig(accelerator="cuda"))


@pytest.fixture
def texts(tmp_path, own_cache):
    """A table of 40 texts, of which the training holds four out."""
    file = tmp_path / "texts.tsv"
    file.write_text("text\tlabel\n" + "".join(f"word{row % 7} other\t{row % 2}\n" for row in range(40)))
    return file


def test_the_printed_configuration_has_the_reasons_and_is_read_again(texts):
    task = registry.find("classify")
    config, reasons = compose_config(task, None, {"train": str(texts), "accelerator": "cpu"})
    printed = as_yaml(config, reasons)
    assert RunConfig.from_dict(yaml.safe_load(printed), "x", task) == config
    assert reasons["hidden"] == "36 texts on a CPU"
    for option, reason in reasons.items():
        assert re.search(rf"^  {option}: \S+  # {re.escape(reason)}$", printed, re.M), option
    assert printed.count("#") == len(reasons)


def test_a_run_says_and_keeps_what_the_data_decided(texts, tmp_path, run_command, monkeypatch):
    monkeypatch.chdir(tmp_path)
    base = ["train", "classify", "--threads", 1, "--device", "cpu"]
    first = [*base, "--train", texts, "--architecture", "none", "--epochs", 2, "--embedding", 10, "--run", "a"]
    code, output, error = run_command(*first, "--dry-run")
    assert code == 0, error
    assert "from the data:" in output
    assert "  batch_size 16: 36 texts on a CPU" in output
    assert "embedding" not in output.split("data: 36 texts")[0]
    code, _, error = run_command(*first)
    assert code == 0, error
    assert re.search(r"^from the data: .*batch_size 16 .*\(--dry-run says why\)$", error, re.M)
    task, folder = registry.find("classify"), RunFolder.open(tmp_path / "runs" / "a")
    before = folder.read_config(task)
    assert (before.model.embedding, before.training.batch_size) == (10, 16)
    # More data do not change the numbers of a run that is resumed.
    texts.write_text(texts.read_text() + "another text\t1\n" * 2000)
    code, _, error = run_command(*base, "--run", "a", "--resume", "--epochs", 3, "--allow-changed-data")
    assert code == 0, error
    assert "from the data" not in error
    after = folder.read_config(task)
    assert after.training.epochs == 3
    assert (after.model, after.training.batch_size) == (before.model, before.training.batch_size)
    # Another run that starts from its weights has its sizes, and numbers of its own besides.
    further = compose_config(task, None, {"train": str(texts), "init_from": str(folder.path), "accelerator": "cpu"})
    assert further.config.model == before.model
    assert further.reasons["embedding"] == f"as in {folder.path}"
    assert further.config.training.batch_size == 32
    own = compose_config(task, None, {"train": str(texts), "init_from": str(folder.path), "embedding": 12})
    assert own.config.model.embedding == 12
    with pytest.raises(RunError, match="missing"):
        compose_config(task, None, {"train": str(texts), "init_from": str(tmp_path / "missing")})


def test_python_trains_with_the_same_defaults(texts):
    options = {"architecture": "none", "epochs": 1, "threads": 1, "accelerator": "cpu"}
    run = regard.train("classify", texts, quiet=True, **options)
    options["train"] = str(texts)
    assert run.config == compose_config(registry.find("classify"), None, options).config


def test_the_size_of_a_text_is_in_bytes(tmp_path):
    file = tmp_path / "text.txt"
    file.write_text("é" * 10_000)
    task = registry.find("language")
    data, training = task.data_config(train=str(file)), task.training_config(accelerator="cpu")
    size = task.input.size(data, training)
    assert (size.rows + size.validation, size.unit, size.cpu) == (20_000, "bytes", True)


TEXTS = {
    "english": "the parcel has not arrived yet and nobody answers",
    "chinese": "包裹还没有到，客服也没有人回复我的问题",
    "japanese": "荷物がまだ届きません。返事もありません",
    "thai": "พัสดุยังไม่มาถึงและไม่มีใครตอบ",
    "lao": "ພັດສະດຸຍັງບໍ່ມາຮອດ",
    "khmer": "កញ្ចប់មិនទាន់មកដល់ទេ",
    "burmese": "ပါဆယ်ထုပ်မရောက်သေးပါ",
    "tibetan": "བཀྲ་ཤིས་བདེ་ལེགས",
    "korean": "소포가 아직 오지 않았습니다",
    "arabic": "لم يصل الطرد بعد",
    "hindi": "पार्सल अभी तक नहीं आया",
}
SPACED = {"english", "korean", "arabic", "hindi"}
LONG = 60  # times a text of some 20 characters


def written(folder, rows, header):
    path = folder / "rows.jsonl"
    lines = [json.dumps(dict(zip(header, row, strict=True)), ensure_ascii=False) for row in rows]
    path.write_text("\n".join(lines), encoding="utf-8")
    return str(path)


def chosen_tokenizer(name, path, **options):
    config, reasons = compose_config(registry.find(name), None, {"train": path, "accelerator": "cpu", **options})
    return config.data.tokenizer, reasons.get("tokenizer")


@pytest.mark.parametrize("script", TEXTS)
def test_the_tokenizer_follows_from_the_script_of_what_is_read(script, tmp_path):
    # The labels decide nothing, in whatever script.
    rows = [(f"{TEXTS[script]} {number}", ("坏", "好")[number % 2]) for number in range(20)]
    kind, reason = chosen_tokenizer("classify", written(tmp_path, rows, ("text", "label")))
    assert kind == ("word" if script in SPACED else "char")
    assert (
        reason == f"{'0%' if script in SPACED else '100%'} of the letters are of scripts without spaces between words"
    )
    long = [(TEXTS[script] * LONG, label) for _, label in rows]
    kind, reason = chosen_tokenizer("classify", written(tmp_path, long, ("text", "label")))
    assert kind == ("word" if script in SPACED else "bpe"), reason
    typed = chosen_tokenizer("classify", written(tmp_path, rows, ("text", "label")), tokenizer="word")
    assert typed == ("word", None)


def test_a_tenth_of_the_texts_in_another_script_is_enough(tmp_path):
    rows = [(TEXTS["chinese" if number % 10 == 0 else "english"] * 2, "ab"[number % 2]) for number in range(50)]
    assert chosen_tokenizer("classify", written(tmp_path, rows, ("text", "label")))[0] == "char"


def test_languages_that_alternate_are_both_counted(tmp_path):
    rows = [(TEXTS[("english", "thai")[number % 2]], "ab"[number // 2 % 2]) for number in range(2_400)]
    kind, reason = chosen_tokenizer("classify", written(tmp_path, rows, ("text", "label")))
    assert (kind, reason.startswith("100%"), reason.startswith("0%")) == ("char", False, False)


def test_either_side_of_articles_and_captions_alone_decide(tmp_path):
    def summarized(article, summary):
        rows = [(f"{TEXTS[article]} {number}", TEXTS[summary]) for number in range(20)]
        return chosen_tokenizer("summarize", written(tmp_path, rows, ("article", "summary")))

    assert summarized("english", "korean")[0] == "word"
    kind, reason = summarized("english", "chinese")
    assert (kind, reason) == ("bpe", "100% of the letters of the targets are of scripts without spaces between words")
    assert summarized("thai", "english")[1].startswith("100% of the letters of the sources ")
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    for script, kind in (("english", "word"), ("japanese", "bpe")):
        path = written(tmp_path, [("a.png", TEXTS[script])] * 20, ("image", "caption"))
        assert chosen_tokenizer("caption", path)[0] == kind
        assert chosen_tokenizer("caption", path, min_count=2) == ("word", "for min_count")


def chosen_sides(path, **options):
    data = compose_config(registry.find("translate"), None, {"train": path, "accelerator": "cpu", **options})[0].data
    return data.source_tokenizer or data.tokenizer, data.target_tokenizer or data.tokenizer, data.max_length


@pytest.mark.parametrize("script", TEXTS)
def test_each_side_of_pairs_has_the_tokenizer_of_its_script(script, tmp_path):
    kind, most = ("bpe", 100) if script in SPACED else ("char", 400)
    for sides in ((script, "english"), ("english", script)):
        path = written(tmp_path, [[TEXTS[side] for side in sides]] * 20, ("source", "target"))
        kinds = [kind if side == script else "bpe" for side in sides]
        assert chosen_sides(path) == (*kinds, most)
        assert chosen_sides(path, tokenizer="word") == ("word", "word", 100)
        assert chosen_sides(path, vocabulary=500) == ("bpe", "bpe", 100)
        assert chosen_sides(path, target_tokenizer="word")[1] == "word"
    long = written(tmp_path, [[TEXTS[script] * 20, TEXTS["english"]]] * 20, ("source", "target"))
    assert chosen_sides(long) == ("bpe", "bpe", 100)


# Phrases of whole words: sub-words of so few texts would be the phrases.
PHRASES = {
    "thai": ("แมว", "สุนัข", "กิน", "ปลา", "วิ่ง", "เห็น", "บ้าน", "ใหญ่"),
    "chinese": ("小猫", "狗", "吃", "鱼", "跑步", "看见", "房子", "很大"),
    "japanese": ("ねこが", "いぬを", "たべる", "さかな", "はしる", "みる", "いえ", "おおきい"),
}


@pytest.mark.parametrize("script", PHRASES)
def test_pieces_of_scripts_without_spaces_are_no_longer_than_a_word(script, tmp_path):
    from regard.data.text.tokenizers import Tokenizer

    words = PHRASES[script]
    texts = ["".join(parts) for parts in itertools.product(words[:2], words[2:5], words[3:], words[4:])]
    path = written(tmp_path, [(text, f"it is {number}") for number, text in enumerate(texts)], ("source", "target"))
    config = compose_config(registry.find("translate"), None, {"train": path, "accelerator": "cpu"})[0]
    spoken = registry.find("transcribe").data_config(train="x")
    learnt = {
        "translate": Tokenizer.train(texts, config.data.source_tokenizer, config.data.vocabulary),
        "transcribe": Tokenizer.train(texts, spoken.tokenizer, spoken.vocabulary),
    }
    for task, tokenizer in learnt.items():
        assert sum(map(len, texts)) / sum(len(tokenizer.encode(text)) for text in texts) <= 3, task


def test_a_classifier_of_texts_without_spaces_learns_and_is_read_again(tmp_path, run_command, monkeypatch):
    monkeypatch.chdir(tmp_path)
    generator = random.Random(0)
    nouns, good, bad = ("包裹", "客服", "屏幕", "电池", "密码"), ("很好", "满意", "喜欢"), ("坏了", "丢了", "没用")
    rows = []
    for number in range(300):
        noun, other = generator.sample(nouns, 2)
        text = f"{other}{generator.choice('是在有')}{noun}{generator.choice((good, bad)[number % 2])}{number}"
        rows.append((text, ("good", "bad")[number % 2]))
    path = written(tmp_path, rows, ("text", "label"))
    code, output, error = run_command("train", "classify", "--train", path, "--threads", 1, "--device", "cpu",
                                      "--run", "a", "--embedding", 16, "--hidden", 16, "--epochs", 6)  # fmt: skip
    assert code == 0, error
    assert re.search(r"^from the data: tokenizer char \((9\d|100)% of the letters are [^)]*\) · ", error, re.M)
    following = shlex.split(output.splitlines()[-1])
    assert following[:3] == ["next:", "regard", "predict"]
    assert following[-1] in {text for text, _ in rows}
    run = regard.load(tmp_path / "runs" / "a")
    assert run.tokenizer.kind == run.config.data.tokenizer == "char"
    assert run.evaluate(path).accuracy > 0.95
    (one,) = run.predict(["键盘坏了"])
    assert (one.label, "".join(one.words)) == ("bad", "键盘坏了")


def test_the_page_of_options_has_the_rules():
    page = (Path(__file__).parents[2] / "docs" / "en" / "how-to" / "options.md").read_text(encoding="utf-8")
    lines = re.findall(r"^\| (\w+) \| `--([\w-]+)`(?: \((\w+)\))? \| ((?:[\d.,]+ \| ){4})", page, re.M)
    assert {name for name, *_ in lines} == {*registry.BUILT_IN_TASKS} - {"segment"}  # of which only the length varies
    for name, option, architecture, cells in lines:
        task, typed = registry.find(name), {}
        if architecture:
            typed["architecture"] = "lstm" if architecture == "recurrent" else architecture
        for rows, cell in zip((500, 5_000, 50_000, 500_000), cells.split(" | "), strict=False):
            size = next(sizes(task, (rows,)))
            chosen = fitted(task, size, **typed)[1][option.replace("-", "_")]
            assert chosen.value == float(cell.replace(",", "")), (name, option, rows)


@pytest.mark.parametrize(
    ("of_vit", "of_cnn"),
    list(itertools.product(({"layers": 2}, {"heads": 2}, {"pooling": "cls"}), ({"stages": 3}, {"gate": "se"}))),
    ids=lambda option: "-".join(option),
)
def test_options_of_two_networks_are_both_named(of_vit, of_cnn):
    task, data = registry.find("images"), {"bundled": 3_000}
    (one,), (other,) = of_vit, of_cnn
    with pytest.raises(ArgumentError, match=rf"^--{one}( cls)? is of architecture 'vit', and --{other} is of 'cnn'; "):
        compose_config(task, None, {**data, **of_vit, **of_cnn})
    for options, architecture in ((of_vit, "vit"), (of_cnn, "cnn")):
        config, reasons = compose_config(task, None, {**data, **options})
        assert config.model.architecture == architecture
        assert reasons["architecture"].startswith(f"for {next(iter(options))}")


def test_words_of_texts_without_spaces_are_said(tmp_path, caplog):
    texts = ["我的订单还没有到", "请退款，谢谢！", "order 17"]
    english = ["a long order in English", "退款"]
    for number, (kind, read) in enumerate([("word", texts), ("bpe", texts), ("char", texts), ("word", english)]):
        data = SimpleNamespace(tokenizer=kind, vocabulary=300, lowercase=False)
        run = SimpleNamespace(data=data, training=SimpleNamespace(init_from=None))
        text_tokenizer(tmp_path / f"{number}.json", run, read)
        assert ("of scripts without spaces" in caplog.text) == (number == 0)
        caplog.clear()
