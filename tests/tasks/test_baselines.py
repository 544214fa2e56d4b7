"""The simple rule that a trained model should beat, counted by hand for each output."""

import json
import math

import numpy as np
import pytest
from PIL import Image

from regard.tasks import registry
from regard.tasks.outputs.text_metrics import rouge_scores, text_scores
from regard.training.config import make_config, options_by_section
from regard.training.run_folder import RunFolder


@pytest.fixture
def baseline(tmp_path, own_cache):
    """Prepares a run of a task, and gives its baseline."""

    def make(task, options, **files):
        for name, content in files.items():
            (tmp_path / name.replace("_", ".")).write_text(content)
        parts = {part: str(tmp_path / options.pop(part)) for part in ("train", "validation")}
        folder = RunFolder(tmp_path / "run")
        folder.path.mkdir()
        task = registry.find(task)
        return task.prepare(make_config(task, options_by_section(task, {**parts, **options})), folder).baseline()

    return make


def table(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_the_most_frequent_label(baseline):
    train = table(*({"text": "a", "label": label} for label in "xxxyy"))
    validation = table(*({"text": "a", "label": label} for label in "xyyy"))
    found = baseline(
        "classify", {"train": "a.jsonl", "validation": "b.jsonl", "hidden": 8}, a_jsonl=train, b_jsonl=validation
    )
    assert found == ("always the most frequent label", 0.25)


def test_a_copy_of_the_source(baseline):
    pairs = [("Anna sees the Rio Grande today .", "Anna ve el Rio Grande hoy ."), ("A cat", "Un gato")]
    train = table(*({"a": source, "b": target} for source, target in pairs * 3))
    found = baseline(
        "translate", {"train": "a.jsonl", "validation": "a.jsonl", "hidden": 8, "tokenizer": "word"}, a_jsonl=train
    )
    sources, targets = zip(*(pairs * 3), strict=True)
    assert found == ("a copy of the source", text_scores(sources, targets).bleu)


def test_the_beginning_of_an_article(baseline):
    article, summary = "one two three four five six", "one two four"
    found = baseline(
        "summarize",
        {"train": "a.jsonl", "validation": "a.jsonl", "hidden": 8},
        a_jsonl=table(*[{"article": article, "summary": summary}] * 3),
    )
    expected = rouge_scores(["one two three"], [summary]).rouge_l
    assert found == ("the first 3 words of the article", pytest.approx(expected))


def test_the_frequencies_of_the_tokens(baseline):
    options = {"train": "a.txt", "validation": "b.txt", "tokenizer": "char", "hidden": 8, "heads": 2, "layers": 1}
    found = baseline("language", {**options, "context": 4, "batch_size": 2}, a_txt="ab" * 40, b_txt="ab" * 20)
    assert found.rule == "the frequencies of the tokens"
    assert found.value == pytest.approx(1.0, abs=0.15)  # two characters, equally frequent, are a bit each


def test_the_most_frequent_class(baseline, tmp_path):
    mask = np.zeros((16, 16), np.uint8)
    mask[:4] = 1  # a quarter
    Image.fromarray(np.zeros((16, 16, 3), np.uint8)).save(tmp_path / "image.png")
    Image.fromarray(mask).save(tmp_path / "mask.png")
    found = baseline(
        "segment",
        {"train": "a.jsonl", "validation": "a.jsonl", "channels": 4, "levels": 2, "width": 16, "height": 16},
        a_jsonl=table({"image": "image.png", "mask": "mask.png"}),
    )
    assert found.rule == "always the most frequent class"
    assert found.value == pytest.approx(0.75 / 2)
    assert math.isfinite(found.value)
