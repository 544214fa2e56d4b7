"""A run of the task segment: its files, its metrics, its attention, its pictures, bad input."""

import json

import numpy as np
import pytest
import torch
from PIL import Image
from torchmetrics.classification import MulticlassJaccardIndex

import regard
from regard.data.images.masked_images import open_masked
from regard.data.images.streets import CLASSES, HEIGHT, WIDTH, Street, write_streets
from regard.errors import ArgumentError, DataError, KindError, RunError
from regard.tasks.outputs.mask import PixelMetrics, class_weights, count_pixels
from regard.tasks.segment import (
    TASK,
    SegmentationTrainingConfig,
    SegmentData,
    SegmenterConfig,
    SegmentPredictionOptions,
)
from regard.training.config import RunConfig
from regard.training.reporter import SilentReporter
from regard.training.run import train_run
from regard.training.run_folder import RunFolder

SMALL = {"gate": "global_context", "channels": 4, "levels": 3, "blocks": 1, "decoder_channels": 8}
NONE = {"gate": "none", "attention": "none", "fusion": "sum"}


@pytest.fixture(scope="module", autouse=True)
def _cache(tmp_path_factory):
    import datasets

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))
        yield


def config_of(data, model=None, **training):
    chosen = {"epochs": 2, "batch_size": 5, "threads": 1, "accelerator": "cpu", **training}
    return RunConfig(
        "segment",
        SegmentData(**data),
        SegmenterConfig(**{**SMALL, **(model or {})}),
        SegmentationTrainingConfig(**chosen),
    )


def train(config, path, resume=False, reporter=None):
    folder = RunFolder.open(path) if resume else RunFolder.create(path)
    return train_run(TASK, config, folder, resume=resume, reporter=reporter or SilentReporter())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder of images and labels of another size than the tables: scenes, with pixels that do not count."""
    place = tmp_path_factory.mktemp("data")
    for name in ("images", "labels"):
        (place / name).mkdir()
    for number in range(11):
        pixels, classes = Street(number).load()
        classes = classes.copy()
        classes[:3] = 99
        Image.fromarray(pixels).save(place / "images" / f"{number:02}.png")
        Image.fromarray(classes).save(place / "labels" / f"{number:02}.png")
    return place


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A trained run that nothing interrupted, and its configuration."""
    path = tmp_path_factory.mktemp("runs") / "whole"
    config = config_of({"bundled": 21}, checkpoint_steps=3)
    assert train(config, path).progress.epoch == 2
    return path, config


def test_the_run_folder_of_a_segmenter(run):
    path, _ = run
    content = json.loads((path / "classes.json").read_text())
    assert content == {"classes": list(CLASSES), "height": HEIGHT, "width": WIDTH}
    recorded = json.loads((path / "manifest.json").read_text())["files"]
    assert {"classes.json", "model.safetensors", "corpus/train.tsv"} <= recorded.keys()
    assert {"val_mean_iou", "val_pixel_accuracy"} <= RunFolder(path).read_metrics()[0].keys()
    sample = RunFolder(path).read_samples()[0]
    assert sample.keys() == {"step", "image", "right", "found"}
    assert sum(sample["found"].values()) == pytest.approx(1, abs=1e-3)


def test_the_metrics_are_those_of_torchmetrics(run, tmp_path):
    trained = regard.load(run[0])
    table = write_streets(tmp_path, {"test": 7})["test"]
    found = trained.evaluate(str(table))
    pairs = [one.load() for one in open_masked(table)]
    predicted = trained.classes_of([("a", pair.pixels) for pair in pairs])
    true = torch.from_numpy(np.stack([pair.classes for pair in pairs])).long()
    predicted = torch.from_numpy(np.stack(predicted)).long()
    expected = MulticlassJaccardIndex(len(CLASSES), average="macro")(predicted, true)
    assert found.mean_iou == pytest.approx(float(expected), abs=1e-6)
    assert found.pixel_accuracy == pytest.approx(float((true == predicted).float().mean()), abs=1e-6)
    by_class = MulticlassJaccardIndex(len(CLASSES), average="none")(predicted, true)
    assert [one.iou or 0 for one in found.by_class] == pytest.approx(by_class.tolist(), abs=1e-6)
    assert sum(one.pixels for one in found.by_class) == 7 * HEIGHT * WIDTH
    assert trained.evaluate(str(table), limit=3).images == 3
    assert trained.evaluate("bundled").images == 100
    paths = found.write(RunFolder(run[0]), "check")
    assert [one.name for one in paths] == ["evaluation-check.json", "confusion-check.png"]
    assert json.loads(paths[0].read_text())["mean_iou"] == found.mean_iou
    assert any("pole" in line for line in found.lines())


def test_metrics_of_ignored_and_absent_classes():
    true = torch.tensor([0, 0, 1, 1, -1, -1])
    found = torch.tensor([0, 1, 1, 1, 2, 0])
    metrics = PixelMetrics(count_pixels(true, found, 4))
    assert metrics.confusion.tolist() == [[1, 1, 0, 0], [0, 2, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]
    assert metrics.iou == [0.5, pytest.approx(2 / 3), None, None]
    assert metrics.mean_iou == pytest.approx(7 / 12)
    assert metrics.pixel_accuracy == 0.75
    assert metrics.recall == [0.5, 1.0, None, None]
    nothing = PixelMetrics(count_pixels(true[4:], found[4:], 4))
    assert (nothing.mean_iou, nothing.pixel_accuracy) == (0.0, 0.0)


def test_weights_of_classes_grow_with_their_rarity():
    assert class_weights((4, 2), "none") is None
    for kind, ratio in (("root", 3), ("balanced", 9)):
        weight = class_weights((900, 100), kind)
        assert float(weight[1] / weight[0]) == pytest.approx(ratio)
        assert float(weight @ torch.tensor([0.9, 0.1])) == pytest.approx(1)
        assert class_weights((900, 0), kind).isfinite().all()


def test_a_folder_of_other_sizes(folder, tmp_path):
    """The model sees images of 45 × 33 pixels; classes are found and measured for those of the files."""
    data = {
        "train": str(folder), "validation": str(folder), "ignore": 99, "height": 33, "width": 45,
        "classes": ",".join(CLASSES),
    }  # fmt: skip
    path = tmp_path / "run"
    train(config_of(data, {"attention": "non_local"}, epochs=1, class_weights="balanced"), path)
    trained = regard.load(path)
    found = trained.evaluate(str(folder))
    assert sum(one.pixels for one in found.by_class) == 11 * (HEIGHT - 3) * WIDTH
    image = str(folder / "images" / "03.png")
    one, other = trained.predict([image, image], pixel="95,63", batch_size=1)
    assert one.classes.shape == (HEIGHT, WIDTH)
    assert (one.classes == other.classes).all()
    rows, columns = one.weights.shape
    assert rows * one.cell[1] >= HEIGHT
    assert columns * one.cell[0] >= WIDTH
    assert trained.document(one).records[0].queries.image.shape == (rows * 8, columns * 8, 3)


def maps_folder(path, *maps):
    """Images with these class maps, given as images of Pillow."""
    for number, classes in enumerate(maps):
        for name, image in (("images", Image.fromarray(Street(number).load().pixels)), ("labels", classes)):
            (path / name).mkdir(parents=True, exist_ok=True)
            image.resize(classes.size).save(path / name / f"{number}.{'JPG' if name == 'images' else 'PNG'}")
    return str(path)


def class_map(kind, *classes):
    """A class map of 8 × 6 pixels with stripes of classes, in a mode of Pillow."""
    pixels = np.resize(np.array(classes, np.int64), (6, 8))
    if kind == "1":
        return Image.fromarray(pixels > 0)
    image = Image.fromarray(pixels.astype(np.uint16 if kind == "I;16" else np.uint8))
    if kind == "P":
        image.putpalette([value for color in range(256) for value in (color, 255 - color, 7)])
    return image


@pytest.mark.parametrize(
    ("maps", "ignore", "expected"),
    [
        ([("L", 0, 1), ("P", 2, 3), ("I;16", 3, 0)], -1, "0123"),
        ([("L", 0, 5), ("P", 2, 2), ("L", 0, 5)], -1, "012345"),  # no pixel has 1, 3 or 4
        ([("1", 0, 1), ("L", 0, 1), ("1", 1, 0)], -1, "01"),
        ([("I;16", 0, 65_535), ("I;16", 1, 65_535), ("L", 0, 1)], 65_535, "01"),
        ([("L", 255, 255), ("P", 1, 0), ("L", 255, 1)], 255, "01"),  # nothing counts in the first
        ([("L", 0, 0)] * 3, -1, "every pixel that counts has the class 0; there is nothing to tell apart"),
        ([("L", 7, 7)] * 3, 7, "no pixel of the training data has a class that counts; check --ignore"),
        (
            [("L", 1, 255), ("L", 0, 1), ("L", 0, 0)],
            -1,
            r"labels/0\.PNG: a pixel has the class 255, and classes go from",
        ),
        (
            [("L", 1, 255), ("L", 0, 1), ("L", 0, 0)],
            -1,
            "if it marks pixels that do not count, write --ignore 255, else",
        ),
        ([("I;16", 0, 300)] * 3, -1, "a pixel has the class 300, and classes go from 0 to 254"),
        ([("L", 0, 255)] * 3, -1, (0, 255)),  # black and white
        ([("L", 0, 255), ("L", 0, 0), ("L", 255, 255)], -1, (0, 255)),
        ([("L", 0, 1), ("L", 2, 3)], 0, (1, 2, 3)),  # what does not count is no class, wherever its number is
        ([("L", 0, 1), ("L", 2, 3)], 2, (0, 1, 3)),
        ([("L", 0, 1), ("L", 2, 3)], 3, (0, 1, 2)),
        ([("L", 0, 1), ("L", 2, 3)], 9, (0, 1, 2, 3)),
    ],
)
def test_classes_are_the_numbers_of_the_maps(tmp_path, maps, ignore, expected):
    """Without --classes: class maps of every mode, numbers that no pixel has, pixels that do not count."""
    source = maps_folder(tmp_path / "data", *(class_map(*one) for one in maps))
    config = config_of({"train": source, "validation": source, "ignore": ignore})
    (tmp_path / "run").mkdir()
    folder = RunFolder(tmp_path / "run")
    numbers = tuple(map(int, expected)) if isinstance(expected, str) and expected.isdigit() else expected
    if isinstance(numbers, str):
        with pytest.raises(DataError, match=expected):
            TASK.prepare(config, folder)
        return
    experiment = TASK.prepare(config, folder)
    assert experiment.files["classes"].names == tuple(map(str, numbers))
    assert experiment.files["classes"].numbers == numbers
    assert sum(experiment.counts) == sum(np.sum(np.resize(one[1:], (6, 8)) != ignore) for one in maps)
    assert TASK.prepare(config, folder).files == experiment.files  # as a run that continues


@pytest.mark.parametrize(
    ("names", "ignore", "expected", "numbers"),
    [
        ("a,b,c,d", -1, "abcd", (0, 1, 2, 3)),
        ("a,b,c,d,e", -1, "abcde", (0, 1, 2, 3, 4)),  # one that does not occur
        ("a,b,c,d", 0, "bcd", (1, 2, 3)),  # the number that does not count may have a name
        ("b,c,d", 0, "bcd", (1, 2, 3)),
        ("a,b,d", 2, "abd", (0, 1, 3)),
        ("a,b,c,d,e", 2, "abde", (0, 1, 3, 4)),
        ("a,b,c", 3, "abc", (0, 1, 2)),
        ("a,b,c", -1, "a pixel has the class 3, and the classes are 0 to 2; name all with --classes", ()),
    ],
)
def test_names_of_classes_beside_a_number_that_does_not_count(tmp_path, names, ignore, expected, numbers):
    source = maps_folder(tmp_path / "data", class_map("L", 0, 1), class_map("L", 2, 3))
    config = config_of({"train": source, "validation": source, "ignore": ignore, "classes": names})
    (tmp_path / "run").mkdir()
    folder = RunFolder(tmp_path / "run")
    if not numbers:
        with pytest.raises(DataError, match=expected):
            TASK.prepare(config, folder)
        return
    classes = TASK.prepare(config, folder).files["classes"]
    assert (classes.names, classes.numbers) == (tuple(expected), numbers)


@pytest.mark.slow
def test_masks_are_written_with_the_numbers_of_the_training(tmp_path):
    """Black and white class maps come back black and white; a number that does not count is never predicted."""
    for numbers, ignore in (((0, 255), -1), ((1, 2), 0)):
        place = tmp_path / str(ignore)
        source = maps_folder(place / "data", *(class_map("L", *numbers) for _ in range(4)))
        options = {"train": source, "validation": source, "ignore": ignore}
        result = train(config_of(options, epochs=2), place / "run")
        trained = regard.load(result.folder.path)
        trained.predict([f"{source}/images/0.JPG"], masks=str(place / "masks"))
        assert set(np.unique(np.array(Image.open(place / "masks" / "0.png")))) <= set(numbers)
        assert [one.name for one in trained.evaluate(source).by_class] == list(map(str, numbers))


def test_predictions_of_a_segmenter(run, tmp_path):
    trained = regard.load(run[0])
    files = []
    for number in range(3):
        files.append(str(tmp_path / f"{number}.png"))
        Image.fromarray(Street(50 + number).load().pixels).save(files[-1])
    found = trained.predict(files, masks=str(tmp_path / "masks"), pixel="17,40", batch_size=2)
    for one, file in zip(found, files, strict=True):
        alone = trained.predict([file])[0]
        assert (one.classes == alone.classes).all()
        assert sum(one.shares.values()) == pytest.approx(1, abs=1e-3)
        mask = np.array(Image.open(tmp_path / "masks" / f"{one.image[-5]}.png"))
        assert (mask == one.classes).all()
        assert one.weights.sum() == pytest.approx(1, abs=1e-5)
        assert one.to_dict()["pixel"] == [17, 40]
        assert file in one.lines()[0]
    assert found[0].pixel == (17, 40)
    assert trained.predict([files[0]])[0].pixel == (WIDTH // 2, HEIGHT // 2)
    paths = trained.draw(found, tmp_path / "pictures")
    assert [path.name for path in paths] == ["segments-1.png", "segments-2.png", "segments-3.png"]
    assert trained.remarks(found, SegmentPredictionOptions(masks="m")) == ["class maps: m"]


def test_the_weights_of_a_pixel_are_the_row_of_its_position(run):
    trained = regard.load(run[0])
    image = Street(77).load().pixels
    with torch.inference_mode():
        whole = trained.model.observe_context(trained._batch([image]), regard.Readings(weights=True)).weights[0, 0]
    rows, columns = trained.model.context_size(HEIGHT, WIDTH)
    assert (rows, columns) == (HEIGHT // 8, WIDTH // 8)
    for x, y in ((0, 0), (7, 8), (8, 7), (95, 63)):
        row = (y // 8) * columns + x // 8
        torch.testing.assert_close(trained.pixel_weights(image, (x, y)).flatten(), whole[row])


def test_a_model_without_attention(tmp_path):
    train(config_of({"bundled": 20}, NONE, epochs=1), tmp_path / "run")
    trained = regard.load(tmp_path / "run")
    file = tmp_path / "a.png"
    Image.fromarray(Street(3).load().pixels).save(file)
    found = trained.predict([file])
    assert found[0].weights is None
    assert "weights" not in found[0].to_dict()
    assert trained.document(found[0]).records == ()
    assert trained.draw(found, tmp_path / "pictures")[0].is_file()
    assert TASK.run_name(config_of({"bundled": 20}, NONE)) == "segment-plain"
    assert TASK.run_name(config_of({"bundled": 20})) == "segment-attention"


def test_training_learns_the_scenes(tmp_path):
    """Two classes that fill most of a scene are soon found."""
    run = train(config_of({"bundled": 40}, {"channels": 8}, epochs=4, batch_size=4, warmup=5), tmp_path / "run")
    assert run.progress.best > 0.25


def test_a_segmenter_run_refuses_wrong_inputs(run, tmp_path):
    trained = regard.load(run[0])
    file = tmp_path / "a.png"
    Image.fromarray(Street(3).load().pixels).save(file)
    with pytest.raises(DataError, match=r"missing\.png: no such file"):
        trained.predict([file, tmp_path / "missing.png"])
    with pytest.raises(
        KindError, match=r"inputs\[0\] must be the path of an image, its bytes, an image of Pillow, or pixels"
    ):
        trained.predict([3])
    with pytest.raises(ArgumentError, match=r"pixel 96,0 is not in .* 96 × 64 pixels"):
        trained.predict([file], pixel="96,0")
    with pytest.raises(ArgumentError, match="pixel must be two whole numbers, 'x,y'; it is '1;2'"):
        trained.predict([file], pixel="1;2")
    (tmp_path / "other").mkdir()
    Image.fromarray(Street(3).load().pixels).save(tmp_path / "other" / "a.bmp")
    with pytest.raises(ArgumentError, match="two images are named 'a'"):
        trained.predict([file, tmp_path / "other" / "a.bmp"], masks=str(tmp_path / "masks"))
    with pytest.raises(DataError, match="cannot be made"):
        trained.predict([file], masks=str(file))
    assert trained.predict([]) == []
    of_bytes, of_pixels = trained.predict([file.read_bytes(), Street(3).load().pixels])
    assert (of_bytes.classes == of_pixels.classes).all()
    with pytest.raises(DataError, match=r"inputs\[0\]: .*truncated or damaged"):
        trained.predict([file.read_bytes()[:400]])


def test_a_segmenter_run_refuses_wrong_data(folder, run, tmp_path):
    with pytest.raises(
        DataError, match=r"00\.png: a pixel has the class 99, and the classes are 0 to 7; name all with"
    ):
        train(
            config_of({"train": str(folder), "validation": str(folder), "classes": ",".join(CLASSES)}), tmp_path / "a"
        )
    with pytest.raises(DataError, match=r"has 11 images.*|a pixel has the class 99"):
        train(config_of({"train": str(folder), "classes": ",".join(CLASSES)}), tmp_path / "b")
    with pytest.raises(DataError, match=r"00\.png: a pixel has the class 99, and the classes are 0 to 7$"):
        regard.load(run[0]).evaluate(str(folder))
    data = {"train": str(folder), "validation": str(folder), "ignore": 99, "classes": "a,b,c,d,e,f,g,h"}
    with pytest.raises(RunError, match=r"has the classes sky, .*, and --classes names others"):
        train(config_of(data, init_from=str(run[0])), tmp_path / "c")
    names = tmp_path / "names.txt"
    data["classes"] = str(names)
    with pytest.raises(DataError, match=r"names\.txt: the names of the classes cannot be read"):
        train(config_of(data), tmp_path / "d")
    names.write_text("sky\nsky\nsea\n")
    with pytest.raises(DataError, match="'sky' occurs twice"):
        train(config_of(data), tmp_path / "e")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "nothing to train on"),
        ({"train": "a", "bundled": 4}, "exclude each other"),
        ({"train": "a", "height": 4}, "--height and --width belong together"),
        ({"train": "a", "ignore": -2}, "ignore must be from -1"),
        ({"bundled": 4, "classes": "a,b"}, "classes of their own"),
        ({"train": "a", "classes": ""}, "classes is empty"),
    ],
)
def test_bad_data_options(options, words):
    with pytest.raises(ArgumentError, match=words):
        SegmentData(**options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"crop": 0.0}, "crop must be above 0 and at most 1"),
        ({"crop": 1.1}, "crop must be above 0 and at most 1"),
        ({"rescale": 0.9}, "rescale must be from 1 to 10"),
        ({"jitter": 1.0}, r"jitter must be in \[0, 1\)"),
        ({"batch_size": 0}, "batch_size must be from 1"),
    ],
)
def test_bad_training_options(options, words):
    with pytest.raises(ArgumentError, match=words):
        SegmentationTrainingConfig(**options)
