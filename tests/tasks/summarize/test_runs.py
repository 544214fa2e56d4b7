"""Runs of the task: training, resumption, evaluation and prediction of both models, as for every task."""

import json

import pytest
import torch
from safetensors.torch import load_file

import regard
from regard.data.text.batches import pair_batches
from regard.data.text.sources import open_pairs
from regard.errors import ArgumentError, DataError, RunError
from regard.tasks.inputs.run_tokenizer import tokenizer_path
from regard.tasks.outputs.text_metrics import rouge_scores
from regard.tasks.summarize import TASK, SummarizeData, encode_articles, read_spans
from regard.training.reporter import SilentReporter
from regard.training.run import train_run
from regard.training.run_folder import RunFolder

KINDS = {
    "recurrent": ("recurrent", {"coverage": True}),
    "luong": ("recurrent", {"attention": "luong", "architecture": "gru"}),
    "transformer": ("transformer", {"coverage": True}),
    "no copy": ("transformer", {"copy": False}),
}


def train(config, path, resume=False, reporter=None):
    folder = RunFolder.open(path) if resume else RunFolder.create(path)
    return train_run(TASK, config, folder, resume=resume, reporter=reporter or SilentReporter())


@pytest.fixture(scope="module")
def runs(tiny_summary, tmp_path_factory):
    """A run of each kind."""
    found = {}
    for name, (kind, model) in KINDS.items():
        path = tmp_path_factory.mktemp("runs") / name.replace(" ", "-")
        train(tiny_summary(kind, model, checkpoint_steps=3), path)
        found[name] = regard.load(path)
    return found


@pytest.mark.parametrize("name", KINDS)
def test_a_run_learns_and_its_folder_is_whole(runs, name):
    folder = runs[name].folder
    rows = folder.read_metrics()
    assert rows[-1]["val_loss"] < rows[0]["val_loss"]
    assert {"val_rouge_l", "val_rouge_1", "val_rouge_2"} <= rows[0].keys()
    samples = folder.read_samples()
    assert {"article", "reference", "summary"} <= samples[-1].keys()
    folder.manifest.verify_all()
    assert folder.read_config(TASK).model.copy == runs[name].config.model.copy
    assert list(folder.pictures.glob("*.png")) or TASK.report(folder)


@pytest.mark.parametrize("name", KINDS)
def test_an_evaluation_scores_its_own_summaries(runs, articles, name):
    found = runs[name].evaluate(str(articles["test"]), beam=2)
    pairs = open_pairs(articles["test"], "article", "summary")
    texts = [one.text for one in found.summaries]
    assert [one.source for one in found.summaries] == list(pairs["source"])
    assert (found.rouge_1, found.rouge_2, found.rouge_l) == rouge_scores(texts, list(pairs["target"]))
    assert found.articles == 11
    assert found.spans == sum(map(len, read_spans(str(articles["test"]), "article", 11, False)))
    assert 0 <= found.copied_spans_exact <= 1
    assert (found.copied_tokens is None) == (name == "no copy")
    assert json.loads(json.dumps(found.to_dict()))["perplexity"] == found.perplexity
    assert any("copied spans exact" in line for line in found.lines())
    assert {path.suffix for path in found.write(runs[name].folder, "test")} == {".json", ".txt"}
    assert runs[name].evaluate(str(articles["test"]), limit=3, beam=1).articles == 3
    assert runs[name].evaluate(str(articles["test"]), limit=3, samples=4).to_dict()["risk"]["samples"] == 4


def test_the_perplexity_is_that_of_the_steps(runs, articles):
    trained = runs["recurrent"]
    found = trained.evaluate(str(articles["test"]), beam=1)
    encoded = encode_articles(
        TASK.input.open(str(articles["test"]), (None, None), SummarizeData(bundled=1)), trained.tokenizer,
        copy=True, max_length=60, max_summary=30, cut_summaries=True,
    )  # fmt: skip
    total = tokens = 0
    with torch.inference_mode():
        for batch in pair_batches(encoded, 1, shuffle=False, source_tokens_per_batch=1):
            state = trained.model.start(trained.model.encode(batch.source, batch.source_lengths))
            for time in range(batch.target.shape[1] - 1):
                log_probabilities, state, _ = trained.model.step(batch.target[:, time], state)
                total -= float(log_probabilities[0, batch.target[0, time + 1]])
                tokens += 1
    assert found.loss == pytest.approx(total / tokens, rel=1e-4)


@pytest.mark.parametrize("name", KINDS)
def test_batches_and_order_never_affect_summaries(runs, articles, name):
    texts = list(open_pairs(articles["test"], "article", "summary")["source"])[:4]
    together = runs[name].predict([*texts, "", texts[0]], beam=3)
    for text, found in zip(texts, together, strict=False):
        (alone,) = runs[name].predict([text], beam=3, batch_size=1)
        assert alone.text == found.text
        assert alone.score == pytest.approx(found.score, abs=1e-4)
    assert (together[4].text, together[4].weights) == ("", None)
    assert together[5].text == together[0].text


def test_copied_words_are_marked_and_are_where_it_says(runs, articles, tmp_path):
    texts = list(open_pairs(articles["test"], "article", "summary")["source"])[:3]
    for name, trained in runs.items():
        for found in trained.predict(texts, mark_copied=True, max_summary=12):
            assert len(found.target_tokens) <= 12
            assert bool(found.copied) <= (name != "no copy")
            for span in found.copied:
                assert found.text[span.start : span.stop] == span.text
                copied = [found.target_tokens[place] for place in span.tokens]
                assert copied == [found.source_tokens[place] for place in span.places]
                assert f"[{span.text} @{span.first_word}" in found.shown
            assert found.to_dict()["output"] == found.text
            json.dumps(found.to_dict())
    files = runs["recurrent"].draw(runs["recurrent"].predict(texts), tmp_path)
    assert [file.name for file in files] == [f"alignment-{number}.png" for number in (1, 2, 3)]


def test_long_articles_are_cut_with_a_message(runs):
    trained = runs["recurrent"]
    options = TASK.prediction_config()
    found = trained.predict_with(["a fire destroyed Xyzzy . " * 20, "a fire"], options)
    assert [one.tokens_cut for one in found] == [40, 0]
    assert len(found[0].source_tokens) == 60
    assert "cut 1 of 2 articles to 60 tokens" in trained.remarks(found, options)[0]
    assert not trained.remarks(found[1:], options)


def test_data_that_are_too_long_are_cut_or_left_out(articles, tiny_summary, runs, caplog):
    dataset = TASK.input.open(str(articles["test"]), (None, None), SummarizeData(bundled=1))
    tokenizer = runs["recurrent"].tokenizer
    limits = {"copy": True, "max_length": 40, "max_summary": 21}
    encoded = encode_articles(dataset, tokenizer, **limits)
    assert max(encoded["source_length"]) == 40
    assert max(encoded["target_length"]) <= 21
    assert len(encoded) < 11
    assert "articles with more than 40 tokens" in caplog.text
    assert "left out" in caplog.text
    assert len(encode_articles(dataset, tokenizer, **limits, cut_summaries=True)) == 11
    with pytest.raises(DataError, match="--max-summary"):
        encode_articles(dataset, tokenizer, **{**limits, "max_summary": 1})


def test_a_run_starts_from_another_one(runs, tiny_summary, tmp_path):
    first = runs["recurrent"].folder
    config = tiny_summary(*KINDS["recurrent"], epochs=1, init_from=str(first.path), learning_rate=1e-30, seed=5)
    train(config, tmp_path / "second")
    second = RunFolder(tmp_path / "second")
    found, wanted = load_file(second.model), load_file(first.model)
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)
    assert tokenizer_path(second).read_bytes() == tokenizer_path(first).read_bytes()
    with pytest.raises(RunError, match="does not fit"):
        train(tiny_summary("transformer", epochs=1, init_from=str(first.path)), tmp_path / "third")


def test_any_two_columns_and_sub_words(articles, tiny_summary, tmp_path):
    rows = [line.split("\t") for line in articles["train"].read_text().splitlines()[1:26]]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps({"id": "x", "body": row[0], "gist": row[1]}) + "\n" for row in rows))
    data = {"train": str(file), "validation": None, "article_column": "body", "summary_column": "gist",
            "tokenizer": "bpe", "vocabulary": 150, "max_length": 400, "max_summary": 200}  # fmt: skip
    train(tiny_summary(data=data, epochs=1), tmp_path / "run")
    trained = regard.load(tmp_path / "run")
    assert trained.tokenizer.kind == "bpe"
    found = trained.predict([rows[0][0]], merge_words=True, max_summary=20)
    assert found[0].target_tokens
    assert len(found[0].with_marked_tokens().target_tokens) == len(found[0].target_tokens)
    assert len(trained.draw(found, tmp_path)) == 1
    assert trained.evaluate(str(file), beam=1, limit=2, max_summary=5).spans is None
    assert trained.evaluate(str(articles["test"]), beam=1, limit=2, max_summary=5).spans > 0


def test_wrong_spans_are_refused(tmp_path):
    file = tmp_path / "rows.tsv"
    for cell in ("x", "[1]", '[""]', "{}"):
        file.write_text(f"article\tsummary\tcopied\na\tb\t{cell}\n")
        with pytest.raises(DataError, match="JSON list of texts"):
            read_spans(str(file), "article", 1, False)
    file.write_text('article\tsummary\tcopied\na\tb\t["A"]\n')
    assert read_spans(str(file), "article", 1, True) == [["a"]]
    with pytest.raises(DataError, match="1 of 2"):
        read_spans(str(file), "article", 2, False)


@pytest.mark.parametrize(
    ("section", "options", "words"),
    [
        ("model_config", {"heads": 4}, "heads has no meaning with architecture 'lstm'"),
        ("model_config", {"architecture": "transformer", "readout": "maxout"}, "readout has no meaning"),
        ("model_config", {"architecture": "transformer", "heads": 7}, "heads"),
        ("model_config", {"activation_checkpointing": True}, "activation_checkpointing has no meaning"),
        ("model_config", {"coverage_weight": 2.0}, "needs coverage"),
        ("model_config", {"coverage": True, "score": "dot"}, "score"),
        ("model_config", {"hidden": 7}, "hidden"),
        ("data_config", {"train": "bundled", "min_count": 0}, "min_count"),
        ("data_config", {}, "nothing to train on"),
        ("prediction_config", {"max_summary": 0}, "max_summary"),
    ],
)
def test_wrong_options_are_refused(section, options, words):
    with pytest.raises(ArgumentError, match=words):
        getattr(TASK, section)(**options)
