"""Evaluation of a trained run: what it measures is what the definitions say."""

import json
import math
import shutil
from dataclasses import replace

import pytest
import torch

from regard.data.text.alignment import alignment_error_rate
from regard.data.text.sources import open_pairs
from regard.data.text.words import split_words
from regard.errors import DataError, RunError
from regard.tasks.inputs.run_tokenizer import tokenizer_path
from regard.tasks.outputs.text_metrics import text_scores
from regard.tasks.translate import TASK, read_alignments
from regard.training.reporter import SilentReporter
from regard.training.run import train_run
from regard.training.run_folder import RunFolder

COLUMNS = {"source_column": "english", "target_column": "spanish"}


@pytest.fixture(scope="module")
def runs(tiny, tmp_path_factory):
    """A run with and one without attention."""
    found = {}
    for attention in ("bahdanau", "none"):
        folder = RunFolder.create(tmp_path_factory.mktemp("runs") / attention)
        train_run(TASK, tiny(model={"attention": attention}, epochs=1), folder, reporter=SilentReporter())
        found[attention] = TASK.load(folder)
    return found


def test_the_scores_are_those_of_the_translations(runs, corpus):
    found = runs["bahdanau"].evaluate(corpus["test"], **COLUMNS, beam=2)
    lines = [line.split("\t") for line in corpus["test"].read_text().splitlines()[1:]]
    assert [translation.source for translation in found.translations] == [line[0] for line in lines]
    again = text_scores([translation.text for translation in found.translations], [line[1] for line in lines])
    assert (found.bleu, found.chrf) == (again.bleu, again.chrf)
    assert found.perplexity == pytest.approx(math.exp(found.loss))
    assert found.to_dict()["pairs"] == 13
    assert sum(part.pairs for part in found.by_length) == 13


def test_bleu_of_short_texts_says_which_n_grams_it_counts(runs, tiny, tmp_path):
    file = tmp_path / "short.tsv"
    file.write_text("english\tspanish\nA dog\tperro\nThe old dog\tel perro\nDogs\tun perro\n")
    found = runs["bahdanau"].evaluate(str(file), **COLUMNS, beam=1)
    first, _, *bins, signature = found.lines()
    assert "· BLEU-2 " in first
    assert [line.split(": ")[1].split()[0] for line in bins] == [f"BLEU-{part.bleu_order}" for part in found.by_length]
    assert len(bins) == 2
    assert signature.endswith("|ngram:2")
    assert found.to_dict()["bleu_order"] == 2
    config = tiny(epochs=1)
    config = replace(config, data=replace(config.data, validation=str(file)))
    (tmp_path / "run").mkdir()
    folder = RunFolder(tmp_path / "run")
    assert "BLEU is BLEU-2: no reference has 4 tokens" in TASK.prepare(config, folder).description
    found.write(folder, "short")  # its picture names them too


def test_the_loss_is_the_mean_over_tokens_one_pair_at_a_time(runs, corpus):
    translator = runs["bahdanau"]
    pairs = open_pairs(corpus["test"], "english", "spanish")
    total, tokens = 0.0, 0
    with torch.inference_mode():
        for pair in pairs:
            source = translator.source_tokenizer.encode(pair["source"])
            target = [1, *translator.target_tokenizer.encode(pair["target"]), 2]
            logits = translator.model(
                torch.tensor([source]), torch.tensor([len(source)]), torch.tensor([target])
            ).logits  # fmt: skip
            chosen = logits[0].log_softmax(-1).gather(1, torch.tensor(target[1:])[:, None])
            total, tokens = total - float(chosen.sum()), tokens + len(target) - 1
    found = translator.evaluate(corpus["test"], **COLUMNS, beam=1, batch_size=5)
    assert found.loss == pytest.approx(total / tokens, rel=1e-5)


def test_the_alignment_error_rate_is_that_of_the_drawn_links(runs, corpus):
    translator = runs["bahdanau"]
    lines = [line.split("\t") for line in corpus["test"].read_text().splitlines()[1:]]
    links = translator.alignments([line[0] for line in lines], [line[1] for line in lines], batch_size=5)
    true = read_alignments(corpus["test"], 13)
    assert all(len({target for _, target in pair}) == len(pair) for pair in links)
    for pair, alignment in zip(links, true, strict=True):
        assert {target for _, target in pair} == {target for _, target in alignment.possible}
    expected = alignment_error_rate(links, [one.sure for one in true], [one.possible for one in true])
    assert translator.evaluate(corpus["test"], **COLUMNS, beam=1).alignment_error_rate == expected


@pytest.mark.parametrize("value", [None, ["0-0"], 7])
def test_an_alignment_is_text(tmp_path, value):
    path = tmp_path / "data.jsonl"
    path.write_text(json.dumps({"en": "a", "es": "b", "alignment": value}))
    with pytest.raises(DataError, match="row 1: the column 'alignment' must be text"):
        read_alignments(path, 1)


def test_links_are_between_the_words_of_the_texts_where_a_letter_is_unknown(runs):
    source, target = "The dΩg वुरारु sleeps.", "El pΩrro duerme Ωुx."
    (links,) = runs["bahdanau"].alignments([source], [target])
    assert {word for _, word in links} == set(range(len(split_words(target))))
    assert {word for word, _ in links} <= set(range(len(split_words(source))))


def test_a_link_needs_the_least_weight(runs):
    assert runs["bahdanau"].alignments(["The dog sleeps."], ["El perro duerme."], min_weight=1.01) == [set()]


def test_no_attention_has_no_alignment(runs, corpus):
    found = runs["none"].evaluate(corpus["test"], **COLUMNS, beam=1, limit=3)
    assert found.alignment_error_rate is None
    assert found.pairs == 3
    assert all(translation.weights is None for translation in found.translations)


def test_batches_and_order_never_affect_translations(runs):
    sentences = ["The dog sleeps.", "", "My sister reads the old book.", "A cat.", "The dog sleeps."]
    together = runs["bahdanau"].predict(sentences, beam=3)
    for sentence, found in zip(sentences, together, strict=True):
        (alone,) = runs["bahdanau"].predict([sentence], beam=3, batch_size=1)
        assert alone.text == found.text
        assert alone.score == pytest.approx(found.score, abs=1e-4)
    assert together[1].text == ""


@pytest.mark.parametrize("replace_unknown", [False, True])
def test_unknown_words_are_shown_as_they_are_written(runs, corpus, replace_unknown, caplog):
    known = corpus["train"].read_text().splitlines()[1].split("\t")[0]
    for translator in runs.values():
        unknown, same = translator.predict([f"Zzyzx {known} Ωμέγα", known], replace_unknown=replace_unknown)
        assert unknown.source_tokens == ["Zzyzx", *same.source_tokens, "Ωμέγα"]
        assert unknown.unknown_words == ("Zzyzx", "Ωμέγα")
        (said,) = (record.getMessage() for record in caplog.records)
        assert said.startswith("not in the model's vocabulary: 'Zzyzx', 'Ωμέγα'")
        assert "--" not in said
        caplog.clear()
        assert same.unknown_words == ()
        if replace_unknown and unknown.weights is not None:
            assert "⁇" not in unknown.text
            assert "<unk>" not in unknown.target_tokens


def test_true_alignments_are_read_or_refused(tmp_path):
    file = tmp_path / "pairs.tsv"
    file.write_text("source\ttarget\talignment\na\tb\t0-0\nc\td\t0p0\n")
    assert [str(one) for one in read_alignments(file, 2)] == ["0-0", "0p0"]
    assert len(read_alignments(file, 1)) == 1
    with pytest.raises(DataError, match="2 alignments for 3 pairs"):
        read_alignments(file, 3)
    file.write_text("source\ttarget\talignment\na\tb\t0~0\n")
    with pytest.raises(DataError, match="row 1"):
        read_alignments(file, 1)
    file.write_text("source\ttarget\na\tb\n")
    assert read_alignments(file, 1) is None
    lines = tmp_path / "pairs.jsonl"
    lines.write_text('{"source": "a", "target": "b", "alignment": "0-0"}\n')
    assert len(read_alignments(lines, 1)) == 1
    assert read_alignments("owner/name", 1) is None


def test_tokenizers_of_another_run_are_refused(runs, tmp_path):
    path = runs["bahdanau"].folder.path
    shutil.copytree(path, tmp_path / "run")
    other = RunFolder(tmp_path / "run")
    content = json.loads(tokenizer_path(other, "target").read_text())
    content["model"]["vocab"].popitem()
    tokenizer_path(other, "target").write_text(json.dumps(content))
    with pytest.raises(RunError, match="is not the file of this run"):
        TASK.load(other)
