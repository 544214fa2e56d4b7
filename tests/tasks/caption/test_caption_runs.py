"""A run of the task caption: its files, its captions, its records, and bad input."""

import json
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

import regard
from image_files import colours, encoded
from image_runs import CAPTIONERS, config_of, train_run
from regard.errors import ArgumentError, DataError, KindError
from regard.records import GridAxis
from regard.tasks.caption import CaptionData, CaptionerConfig, CaptionEvaluationOptions, CaptionPredictionOptions
from regard.training.run_folder import RunFolder


@pytest.mark.parametrize("name", CAPTIONERS)
def test_a_caption_run_of_each_kind_predicts_and_evaluates(image_run, name):
    path = image_run(name)
    trained = regard.load(path)
    scene = path / "corpus" / "test-1.png"
    (found,) = trained.predict([scene], beam=3)
    (same,) = trained.predict([scene.read_bytes()], beam=3)
    assert same.text == found.text
    assert found.text == " ".join(found.word_texts) != ""
    content = found.to_dict()
    assert json.loads(json.dumps(content))["output"] == found.text
    measured = trained.evaluate(limit=5, beam=2)
    assert measured.images == 5
    assert measured.captions == 15
    assert 0 <= measured.bleu4 <= measured.bleu1 <= 100
    assert (measured.pointing is None) == (name == "caption-none" or measured.names == 0)
    sampled = trained.evaluate(limit=3, samples=8, utility_order=1)
    assert sampled.to_dict()["risk"] == {"samples": 8, "temperature": 0.7, "order": 1, "seed": 1}
    assert measured.to_dict()["risk"] is None
    assert all(0 <= one.score <= 1 for one in sampled.predictions)
    if name == "caption-none":
        assert found.weights is None
        assert "weights" not in content
        assert trained.document(found).records == ()
        with pytest.raises(ArgumentError, match="a model without attention; there is nothing to draw"):
            trained.draw([found], path / "no")
        return
    assert np.array(content["weights"]).shape == (len(found.words), 4, 4)
    assert content["box"] == [0, 0, 64, 64]
    np.testing.assert_allclose(found.weights.sum(-1), 1, atol=1e-5)


def test_the_limits_of_short_captions_are_printed(image_run, tmp_path):
    file = tmp_path / "images.jsonl"
    for number, caption in enumerate(("a dog", "two men", "the sea")):
        Image.new("RGB", (9, 9), (number, 0, 0)).save(tmp_path / f"{number}.png")
        with file.open("a") as lines:
            lines.write(json.dumps({"image": f"{number}.png", "captions": [caption]}) + "\n")
    trained = regard.load(image_run("caption-soft"))
    found = trained.evaluate(str(file), beam=1)
    assert "  no true caption has 4 words: n-grams count up to 2, in BLEU-4 too" in found.lines()
    assert any("CIDEr is at most 5.000 here, not 10" in line for line in found.lines())
    assert found.to_dict()["cider_limit"] == pytest.approx(5)
    assert "CIDEr is at most 0.000 here" in "".join(trained.evaluate(str(file), beam=1, limit=1).lines())
    config = config_of("caption-soft")
    config = replace(config, data=replace(config.data, validation=str(file)))
    (tmp_path / "run").mkdir()
    assert "CIDEr is at most 5.000 here" in trained.task.prepare(config, RunFolder(tmp_path / "run")).description
    assert "at most" not in "".join(trained.evaluate(limit=5, beam=1).lines()[2:])


@pytest.mark.parametrize("name", [name for name in CAPTIONERS if name != "caption-none"])
def test_records_are_over_the_image(image_run, name):
    trained = regard.load(image_run(name))
    pixels = colours(50, 90)
    (found,) = trained.predict([pixels])
    records = trained.document(found).records
    cross = [record for record in records if record.kind == "cross"]
    for record in cross:
        assert isinstance(record.keys, GridAxis)
        assert (record.keys.rows, record.keys.columns) == (4, 4)
        assert record.keys.box == (20, 0, 70, 50)  # the square in the middle is what the model reads
        assert np.array_equal(record.keys.image, pixels)
        assert record.queries.tokens == tuple(found.tokens)
    layer = cross[trained.model.aligned_layer if name == "caption-transformer" else 0]
    np.testing.assert_allclose(layer.weights.mean(0), found.weights, atol=1e-5)
    for attention in trained.attentions(found)[:1]:
        steps = attention.steps(0)
        np.testing.assert_allclose(steps.matrices["weights"].sum(-1), 1, atol=1e-5)


def test_pictures_and_results_are_files_of_the_run(image_run, tmp_path):
    trained = regard.load(image_run("caption-soft"))
    found = trained.predict([image_run("caption-soft") / "corpus" / f"test-{number}.png" for number in (1, 2)])
    drawn = trained.draw(found, tmp_path / "pictures")
    assert [path.name for path in drawn] == ["caption-1.png", "caption-2.png"]
    assert all(np.array(Image.open(path)).std() > 5 for path in drawn)
    folder = RunFolder(tmp_path)
    paths = trained.evaluate(limit=4).write(folder, "test")
    assert {path.name for path in paths} >= {"evaluation-test.json", "evaluation-test.tsv", "caption-test-1.png"}
    rows = (tmp_path / "evaluation-test.tsv").read_text().splitlines()
    assert rows[0] == "image\tcaption\tscore\ttrue"
    assert len(rows) == 5


def own_data(folder, rows=12):
    (folder / "images").mkdir()
    with (folder / "a.jsonl").open("w") as file:
        for number in range(rows):
            (folder / "images" / f"{number}.png").write_bytes(encoded(colours(40, 40 + number, number)))
            file.write(
                json.dumps({"image": f"images/{number}.png", "captions": ["one thing", f"thing {number}"]}) + "\n"
            )
    return folder / "a.jsonl"


def own_config(path, **data):
    config = config_of("caption-soft", epochs=1)
    return type(config)("caption", CaptionData(train=str(path), image_size=32, **data), config.model, config.training)


def test_a_table_of_the_user(tmp_path, small_corpora):
    path = own_data(tmp_path)
    train_run(own_config(path, held_out=3, test=str(path)), tmp_path / "run")
    trained = regard.load(tmp_path / "run")
    measured = trained.evaluate()
    assert (measured.images, measured.captions, measured.pointing) == (12, 24, None)
    assert trained.evaluate(str(path), limit=2).images == 2
    assert trained.evaluate("bundled", limit=3).data == "bundled"


def test_a_bad_image_is_named_before_the_training(tmp_path, small_corpora):
    path = own_data(tmp_path)
    (tmp_path / "images" / "6.png").write_bytes(encoded(colours(40, 40))[:300])
    with pytest.raises(DataError, match=r"a\.jsonl: line 7: .*6\.png: the image is truncated or damaged"):
        train_run(own_config(path), tmp_path / "run")
    (tmp_path / "images" / "6.png").unlink()
    with pytest.raises(DataError, match=r"a\.jsonl: line 7: .*6\.png: no such file"):
        train_run(own_config(path), tmp_path / "run2")


def test_inputs_that_are_no_images(image_run, tmp_path):
    trained = regard.load(image_run("caption-soft"))
    (tmp_path / "a.txt").write_text("no image")
    with pytest.raises(DataError, match=r"a\.txt: is not an image"):
        trained.predict([tmp_path / "a.txt"])
    with pytest.raises(DataError, match=r"inputs\[1\]: an image of 3 bytes"):
        trained.predict([colours(), b"abc"])
    with pytest.raises(KindError, match=r"inputs\[0\] must be the path"):
        trained.predict([3])
    with pytest.raises(ArgumentError, match="must be a list"):
        trained.predict("a.png")
    assert trained.predict([]) == []
    with pytest.raises(DataError, match="no such file"):
        trained.evaluate(str(tmp_path / "none.jsonl"))


def test_caption_options_out_of_range_are_refused():
    for bad in (
        {"readout": "maxout", "architecture": "transformer"}, {"heads": 4},
        {"attention": "hard", "doubly_stochastic": 1.0},
        {"entropy_weight": 0.5}, {"backbone": "timm:x", "stages": 2}, {"hidden": 0},
        {"dropout": 1.0}, {"architecture": "transformer", "hidden": 30}, {"attention": "none", "score": "dot"},
    ):  # fmt: skip
        with pytest.raises(ArgumentError):
            CaptionerConfig(**bad)
    for bad in ({}, {"train": "a", "bundled": 3}, {"train": "bundled", "image_size": 10**5}, {"train": ""}):
        with pytest.raises(ArgumentError):
            CaptionData(**bad)
    for kind in (CaptionPredictionOptions, CaptionEvaluationOptions):
        for bad in ({"beam": 0}, {"length_penalty": -1.0}, {"batch_size": 0}, {"samples": -1}, {"temperature": 0.0}):
            with pytest.raises(ArgumentError, match=next(iter(bad))):
                kind(**bad)
    assert (CaptionData(train="bundled").image_size, CaptionData(train="a.jsonl").image_size) == (64, 128)
