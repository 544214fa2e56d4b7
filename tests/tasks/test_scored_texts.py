"""The same right answer has the same score however its true text is written, in every task, validation and metric."""

import json
import unicodedata
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

import regard
from regard.tasks.outputs import text_metrics
from regard.tasks.outputs.text import TextExperiment
from regard.tasks.summarize import SummaryExperiment

TEXTS = ["el año pasó rápido aquí", "¿dónde está la niña güera?", "Ångström mißt ﬁne ｆｕｌｌ 각 글자"]
"""Letters that Unicode composes, and a ligature and full-width letters, which it leaves alone."""

FORMS = {
    "composed": str,
    "decomposed": lambda text: unicodedata.normalize("NFD", text),
    "compatible": lambda text: text.replace("Å", "\u212b"),
    "spaced": lambda text: "\u3000" + text.replace(" ", "\u00a0\u2003").replace("\u00a0", "▁", 1) + "\u00a0",
}
ROWS = [(text, form(text)) for form in FORMS.values() for text in TEXTS]
"""A text, and how a user wrote it."""

SHORT = {"epochs": 1, "threads": 1, "device": "cpu", "patience": 0}
SMALL = {"embedding": 6, "hidden": 8}


def lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def translate(folder):
    data = lines(folder / "pairs.jsonl", [{"a": text, "b": written} for text, written in ROWS])
    return data, {"source_column": "a", "target_column": "b", "tokenizer": "char", **SMALL}


def summarize(folder):
    rows = [
        {"article": f"{written} . {text}", "summary": written, "copied": json.dumps(written.split()[:2])}
        for text, written in ROWS
    ]
    return lines(folder / "articles.jsonl", rows), {"tokenizer": "char", **SMALL}


def caption(folder):
    for number in range(len(ROWS)):
        Image.new("RGB", (16, 16), (number * 20, 0, 0)).save(folder / f"{number}.png")
    rows = [{"image": f"{number}.png", "captions": [written]} for number, (_, written) in enumerate(ROWS)]
    return lines(folder / "captions.jsonl", rows), {"image_size": 16, "grid": 2, "stages": 1, "batch_size": 4, **SMALL}


def transcribe(folder):
    for number in range(len(ROWS)):
        np.save(folder / f"{number}.npy", np.random.default_rng(number).normal(size=(200, 3)).astype(np.float32))
    rows = [{"sound": f"{number}.npy", "text": written} for number, (_, written) in enumerate(ROWS)]
    sizes = {"convolutions": 1, "channels": 2, "pyramid_layers": 1, "decoder_hidden": 8, "score_features": 5}
    return lines(folder / "sounds.jsonl", rows), {**sizes, **SMALL}


PERFECT = {
    translate: {"bleu": 100, "chrf": 100},
    summarize: {"rouge_1": 100, "rouge_2": 100, "rouge_l": 100},
    caption: {"bleu1": 100, "bleu4": 100, "cider": 10},
    transcribe: {"wer": 0, "cer": 0},
}
"""Task → the metrics of right answers."""

FURTHER = {
    summarize: {"novel_words": 0, "novel_trigrams": 0, "copied_spans_exact": 1},
    caption: {"bleu2": 100, "bleu3": 100, "cider_limit": 10},
    transcribe: {"whole": 1, "substitutions": 0, "insertions": 0, "deletions": 0},
}
"""Task → numbers of an evaluation beside them."""


def right_answer(experiment, row, _):
    (reference, *_) = experiment.references[row]
    return experiment.task.target(experiment.files).normalize(reference)


@pytest.mark.parametrize("task", PERFECT)
def test_a_right_answer_is_perfect_however_it_is_written(task, tmp_path, monkeypatch):
    for experiment in (TextExperiment, SummaryExperiment):
        monkeypatch.setattr(experiment, "decode", right_answer)
    data, options = task(tmp_path)
    run = regard.train(
        task.__name__, train=data, validation=data, run=str(tmp_path / "run"), quiet=True, **SHORT, **options
    )
    metrics = run.folder.read_metrics()[-1]
    for name, value in PERFECT[task].items():
        assert metrics[f"val_{name}"] == pytest.approx(value), name
    samples = run.folder.read_samples()
    true = run.task.sample_names[1]
    written = [one[true] if isinstance(one[true], str) else one[true][0] for one in samples]
    assert {" ".join(text.split()) for text in written} <= {" ".join(text.split()) for _, text in ROWS}

    write = run.write_texts
    answers = [run.tokenizer.normalize(written) for _, written in ROWS]
    assert len(set(answers)) == len(TEXTS)
    monkeypatch.setattr(
        run,
        "write_texts",
        lambda inputs, options: [
            replace(one, text=text) for one, text in zip(write(inputs, options), answers, strict=True)
        ],
    )
    found = run.evaluate(data, beam=1)
    for name, value in (PERFECT[task] | FURTHER.get(task, {})).items():
        assert getattr(found, name) == pytest.approx(value), name
    if task is translate:
        assert all(part.bleu == pytest.approx(100) for part in found.by_length)
    if task is transcribe:
        assert found.references == [written.strip() for _, written in ROWS]
        found.write(run.folder, "forms")
        table = run.folder.file("evaluation-forms.txt").read_text().splitlines()
        assert [line.split("\t")[1] for line in table[1:]] == found.references


METRICS = {
    "text_scores": lambda texts, references: text_metrics.text_scores(texts, references),
    "bleu_by_length": lambda texts, references: text_metrics.bleu_by_length(["a", "b c", "d e f"], texts, references),
    "rouge_scores": lambda texts, references: text_metrics.rouge_scores(texts, references),
    "error_rates": lambda texts, references: text_metrics.error_rates(texts, references),
    "caption_scores": lambda texts, references: text_metrics.caption_scores(texts, [[one] for one in references]),
    "spans_exact": lambda texts, references: text_metrics.spans_exact(texts, [one.split() for one in references]),
    "novel_share": lambda texts, references: text_metrics.novel_share(texts, references, 2),
    "plain_words": lambda texts, references: text_metrics.plain_words(texts[1]) == text_metrics.plain_words(
        references[1]
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", METRICS)
def test_a_metric_knows_letters_however_they_are_composed(name):
    metric, decomposed = METRICS[name], list(map(FORMS["decomposed"], TEXTS))
    answers = [TEXTS[0].replace("rápido", "tarde"), *TEXTS[1:]]
    for texts in (TEXTS, answers):
        wanted = metric(texts, TEXTS)
        assert metric(texts, decomposed) == wanted
        assert metric(list(map(FORMS["decomposed"], texts)), TEXTS) == wanted


def test_a_label_is_the_same_however_it_is_written(tmp_path):
    """Two labels, of which one is written in two ways, in the training and in the evaluation."""
    labels = ["café", "té", FORMS["decomposed"]("café"), FORMS["decomposed"]("té")]
    rows = [{"text": f"{word} {number}", "label": label} for number in range(5)
            for word, label in zip("abab", labels, strict=True)]  # fmt: skip
    data, other = (lines(tmp_path / f"{name}.jsonl", part) for name, part in (("all", rows), ("part", rows[2:4])))
    run = regard.train("classify", train=data, validation=data, run=str(tmp_path / "run"), quiet=True, **SHORT, **SMALL)
    assert run.labels.names == ("café", "té")
    assert [one.texts for one in run.evaluate(data).by_label] == [10, 10]
    assert run.evaluate(other).accuracy in (0.0, 0.5, 1.0)


def test_a_label_is_written_as_the_user_wrote_it():
    from regard.data.labels import Labels

    decomposed = FORMS["decomposed"]("té")
    assert Labels.of({decomposed, "x"}, "data").names == (decomposed, "x")
    assert Labels.of({decomposed, "x"}, "data").encode_batch(["té", decomposed]) == [[0], [0]]
    earlier = Labels(["té", decomposed])  # a run of an earlier version has both
    assert earlier.encode_batch(["té", decomposed]) == [[0], [1]]
