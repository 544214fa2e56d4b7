"""A run of the task images: a folder of classes, rollout, records, and bad input."""

import numpy as np
import pytest
import torch

import regard
from image_files import colours, encoded
from image_runs import CLASSIFIERS, config_of, train_run
from regard.attention.execution import recorded_calls
from regard.errors import ArgumentError, DataError
from regard.records import GridAxis
from regard.tasks.images import ImageClassifierConfig, ImagesData
from regard.training.run_folder import RunFolder


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_an_image_run_of_each_kind_predicts_and_evaluates(image_run, tmp_path, name):
    path = image_run(name)
    trained = regard.load(path)
    (found,) = trained.predict([path / "corpus" / "test-1.png"])
    assert sum(found.probabilities.values()) == pytest.approx(1)
    assert found.label == found.ranked()[0][0]
    measured = trained.evaluate(limit=6)
    assert measured.images == 6
    assert sum(map(sum, measured.confusion)) == 6
    assert (measured.pointing is None) == (name == "images-se")
    paths = measured.write(RunFolder(tmp_path), "test")
    assert {"evaluation-test.tsv", "confusion-test.png"} <= {one.name for one in paths}
    if name == "images-se":
        assert found.weights is None
        with pytest.raises(ArgumentError, match="no attention weights over the image"):
            trained.draw([found], tmp_path)
        return
    rows, columns = found.grid
    assert found.weights.shape == (rows * columns,)
    assert found.weights.sum() == pytest.approx(1, abs=1e-5)
    assert [one.name for one in trained.draw([found], tmp_path / "pictures")] == ["image-1.png"]
    if name == "images-pooled":  # the attention of the gates is not that of the pooling
        assert [(record.kind, len(record.keys)) for record in trained.document(found).records] == [("cross", 64)]


def test_rollout_of_the_class_token_by_hand(image_run):
    """The product of (I + mean over heads) / 2 of the layers, its row of the class token (Abnar & Zuidema 2020)."""
    trained = regard.load(image_run("images-vit"))
    image = colours(64, 64)
    (found,) = trained.predict([image])
    with torch.inference_mode(), recorded_calls() as calls:
        trained.model(torch.from_numpy(image[None]))
    product = np.eye(65)
    for call in calls:
        product = (0.5 * np.eye(65) + 0.5 * call.weights[0].mean(0).double().numpy()) @ product
    expected = product[0, 1:] / product[0, 1:].sum()
    np.testing.assert_allclose(found.weights, expected, atol=1e-6)
    records = trained.document(found).records
    assert len(records) == 3
    assert records[-1].name.startswith("rollout")
    for record in records:
        assert isinstance(record.keys, GridAxis)
        assert (record.keys.rows, record.keys.columns, record.keys.leading) == (8, 8, 1)
    np.testing.assert_allclose(records[-1].weights[0], product, atol=1e-6)


def test_pooled_rollout_by_hand(image_run):
    trained = regard.load(image_run("images-vit-pooled"))
    image = colours(64, 64)
    (found,) = trained.predict([image])
    with torch.inference_mode(), recorded_calls() as calls:
        pooled = trained.model(torch.from_numpy(image[None]), need_weights=True).weights[0, 0].double().numpy()
    matrix = 0.5 * np.eye(64) + 0.5 * calls[0].weights[0].mean(0).double().numpy()
    np.testing.assert_allclose(found.weights, pooled @ matrix, atol=1e-6)
    records = trained.document(found).records
    assert [record.kind for record in records] == ["self", "cross", "self"]


def test_predictions_of_many_are_those_of_each(image_run):
    trained = regard.load(image_run("images-vit"))
    images = [colours(40, 64, seed) for seed in range(3)]
    together = trained.predict(images, batch_size=2)
    for image, found in zip(images, together, strict=True):
        (alone,) = trained.predict([image])
        np.testing.assert_allclose(found.weights, alone.weights, atol=1e-5)
        assert found.probabilities == pytest.approx(alone.probabilities, abs=1e-5)


def test_an_image_run_reads_a_folder_of_classes(tmp_path, small_corpora):
    for label, level in (("dark", 30), ("light", 220)):
        (tmp_path / "data" / label).mkdir(parents=True)
        for number in range(10):
            pixels = np.full((20, 24, 3), level, np.uint8) + colours(20, 24, number) // 20
            (tmp_path / "data" / label / f"{number}.jpg").write_bytes(encoded(pixels, "JPEG"))
    config = config_of("images-vit", epochs=6)
    data = ImagesData(train=str(tmp_path / "data"), validation=str(tmp_path / "data"), image_size=16)
    train_run(type(config)("images", data, config.model, config.training), tmp_path / "run")
    trained = regard.load(tmp_path / "run")
    assert trained.labels.names == ("dark", "light")
    assert trained.evaluate(str(tmp_path / "data")).accuracy == 1
    (tmp_path / "more" / "grey").mkdir(parents=True)
    (tmp_path / "more" / "grey" / "a.png").write_bytes(encoded(colours()))
    with pytest.raises(DataError, match=r"more: no training image has the label 'grey' \(known: 'dark', 'light'\)"):
        trained.evaluate(str(tmp_path / "more"))
    (tmp_path / "data" / "dark" / "3.jpg").write_bytes(b"broken")
    with pytest.raises(DataError, match=r"dark/3\.jpg: is not an image"):
        trained.evaluate(str(tmp_path / "data"))


def test_one_class_is_nothing_to_tell(tmp_path):
    (tmp_path / "data" / "cat").mkdir(parents=True)
    for number in range(12):
        (tmp_path / "data" / "cat" / f"{number}.png").write_bytes(encoded(colours()))
    config = config_of("images-vit")
    data = ImagesData(train=str(tmp_path / "data"), image_size=16)
    with pytest.raises(DataError, match="every image has the label 'cat'"):
        train_run(type(config)("images", data, config.model, config.training), tmp_path / "run")


def test_image_options_out_of_range_are_refused():
    for bad in (
        {"architecture": "cnn", "hidden": 64}, {"grid": 64}, {"architecture": "cnn", "pooling": "cls"}, {"heads": 3},
        {"backbone": "timm:x"}, {"layers": 0},
    ):  # fmt: skip
        with pytest.raises(ArgumentError):
            ImageClassifierConfig(**bad)
    assert ImageClassifierConfig().pooling == "cls"
    assert ImageClassifierConfig(architecture="cnn").pooling == "mean"
