"""Images with class maps: folders, tables, generated scenes; every mistake is one line that names the file or row."""

import re

import numpy as np
import pytest
from PIL import Image

from regard.data.images.masked_images import (
    IGNORED_NUMBER,
    known_classes,
    masked_table,
    open_masked,
    resized_classes,
    source_files,
)
from regard.data.images.streets import CLASSES, HEIGHT, WIDTH, Street, write_streets
from regard.errors import ArgumentError, DataError

SIZE = (5, 7)


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


@pytest.fixture
def folder(tmp_path):
    """Three images, the first of another format, with class maps: grey levels, a palette, 16 bits."""
    place = tmp_path / "data"
    for name in ("images", "labels"):
        (place / name).mkdir(parents=True)
    random = np.random.default_rng(5)
    for number, suffix in enumerate(("jpg", "png", "png")):
        pixels = random.integers(0, 256, (*SIZE, 3), np.uint8)
        Image.fromarray(pixels).save(place / "images" / f"{number}.{suffix}")
        classes = random.integers(0, 4, SIZE).astype(np.uint16 if number == 2 else np.uint8)
        classes[0, 0] = 11
        image = Image.fromarray(classes)
        if number == 1:
            image.putpalette([value for color in range(256) for value in (color, 255 - color, 7)])
        image.save(place / "labels" / f"{number}.png")
    return place


def classes_of(folder, number):
    return np.array(Image.open(folder / "labels" / f"{number}.png"))


def test_masked_images_of_a_folder(folder):
    found = open_masked(folder)
    assert [one.name for one in found] == [str(folder / "images" / name) for name in ("0.jpg", "1.png", "2.png")]
    for number, one in enumerate(found):
        loaded = one.load()
        assert loaded.pixels.shape == (*SIZE, 3)
        assert (loaded.classes == classes_of(folder, number)).all()
    assert len(open_masked(folder, limit=2)) == 2
    assert len(source_files(folder)) == 6
    (folder / "labels").rename(folder / "masks")
    assert len(open_masked(str(folder))) == 3


@pytest.mark.parametrize("suffix", [".tsv", ".csv", ".jsonl"])
def test_masked_images_of_a_table(folder, suffix):
    table = folder / f"table{suffix}"
    rows = [("images/2.png", "labels/2.png"), ("images/0.jpg", "labels/0.png")]
    if suffix == ".jsonl":
        table.write_text("".join(f'{{"image": "{image}", "mask": "{mask}"}}\n' for image, mask in rows))
    else:
        between = "\t" if suffix == ".tsv" else ","
        table.write_text("\n".join(between.join(row) for row in [("image", "mask"), *rows]) + "\n")
    found = open_masked(table)
    assert [one.name for one in found] == [str(folder / image) for image, _ in rows]
    assert (found[0].load().classes == classes_of(folder, 2)).all()
    assert source_files(table)[0] == table
    table.write_text(table.read_text().replace("0.jpg", "9.jpg"))
    with pytest.raises(DataError, match=rf"{re.escape(str(table))}: row 2: .*9\.jpg: no such file"):
        open_masked(table)


def test_masked_images_of_generated_scenes(tmp_path):
    parts = write_streets(tmp_path, {"train": 3, "test": 2})
    found = open_masked(parts["train"])
    assert [one.number for one in found] == [0, 1, 2]
    loaded = found[1].load()
    assert loaded.pixels.shape == (HEIGHT, WIDTH, 3)
    again = Street(1).load()
    assert (loaded.pixels == again.pixels).all()
    assert (loaded.classes == again.classes).all()
    assert (open_masked(parts["test"])[0].load().pixels != loaded.pixels).any()
    counts = sum(np.bincount(Street(number).load().classes.ravel(), minlength=len(CLASSES)) for number in range(20))
    assert len(counts) == len(CLASSES)
    assert (counts > 100).all()
    parts["test"].write_text("scene\n5\nx\n")
    with pytest.raises(DataError, match="line 3 must be the number of a scene"):
        open_masked(parts["test"])


def test_the_class_of_a_pixel_is_that_of_what_was_drawn():
    """Pixels of sky and grass have the colours that the scene gave them, as far as noise lets them."""
    for number in range(8):
        pixels, classes = Street(number).load()
        sky, grass = (pixels[classes == CLASSES.index(name)].astype(float) for name in ("sky", "grass"))
        assert sky[:, 2].mean() > sky[:, 0].mean()  # bluer than red
        assert grass[:, 1].mean() > grass[:, 2].mean()  # greener than blue
        assert grass.std(0).max() < 25


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda place: (place / "labels" / "1.png").unlink(), r"images.1\.png: there is no class map of this name"),
        (lambda place: (place / "images" / "2.png").unlink(), r"labels.2\.png: there is no image of this name"),
        (lambda place: (place / "images").rename(place / "pictures"), "has no folder images"),
        (lambda place: (place / "labels").rename(place / "classes"), "has no folder labels or masks"),
        (lambda place: (place / "labels" / "1.bmp").write_bytes(b"x"), r"1\.png: 1\.bmp has the same name"),
        (lambda place: [file.unlink() for file in (place / "images").iterdir()], "there is no image in it"),
    ],
)
def test_folders_of_masked_images_are_refused_with_a_reason(folder, change, words):
    change(folder)
    with pytest.raises(DataError, match=words):
        open_masked(folder)


def test_sources_of_masked_images_are_refused_with_a_reason(tmp_path):
    with pytest.raises(DataError, match="no such file or folder; give a folder with images and labels"):
        open_masked(tmp_path / "nothing")
    with pytest.raises(DataError, match="no such file"):
        open_masked(tmp_path / "nothing.tsv")
    empty = tmp_path / "empty.tsv"
    empty.write_text("image\tmask\n")
    with pytest.raises(DataError, match="there are no rows"):
        open_masked(empty)
    empty.write_text("image\tmask\n \tb.png\n")
    with pytest.raises(DataError, match="row 1 has no image and mask, and so has no other"):
        open_masked(empty)
    empty.write_text("left\tmask\na\tb\n")
    with pytest.raises(DataError, match="say with --image-column which column has the images"):
        open_masked(empty)
    with pytest.raises(ArgumentError, match="limit"):
        open_masked(empty, limit=0)


def test_images_and_class_maps_of_two_sizes(folder):
    Image.fromarray(np.zeros((5, 6), np.uint8)).save(folder / "labels" / "1.png")
    with pytest.raises(DataError, match=r"1\.png: has 6 × 5 pixels, and its image .*1\.png has 7 × 5"):
        open_masked(folder)[1].load()
    Image.fromarray(np.zeros((*SIZE, 3), np.uint8)).save(folder / "labels" / "1.png")
    with pytest.raises(DataError, match="must have one number for each pixel"):
        open_masked(folder)[1].load()


def test_a_table_of_pixels(folder):
    images = open_masked(folder)
    table = masked_table(images, SIZE, 11, range(11))
    assert table.shape == (3, *SIZE, 4)
    for number, row in enumerate(table):
        assert (row[..., :3] == images[number].load().pixels).all()
        expected = classes_of(folder, number)
        assert (row[..., 3] == np.where(expected == 11, IGNORED_NUMBER, expected)).all()
    (folder / "images" / "0.jpg").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"0\.jpg: is not an image"):
        masked_table(open_masked(folder), SIZE, 11, range(11))
    resized = masked_table(images[1:], (10, 14), None, range(12))
    assert (resized[0, ::2, ::2, 3] == classes_of(folder, 1)).all()
    assert (resized[0, 1::2, 1::2, 3] == classes_of(folder, 1)).all()


def test_classes_have_the_place_of_their_number():
    classes = np.array([[3, 254], [65535, 0]], np.uint16)
    assert known_classes(classes, 65535, range(255), "a.png").tolist() == [[3, 254], [255, 0]]
    assert known_classes(classes, 65535, (254, 0, 3), "a.png").tolist() == [[2, 0], [255, 1]]
    with pytest.raises(DataError, match=r"a\.png: a pixel has the class 65535, and the classes are 0 to 2, 254$"):
        known_classes(classes, None, (0, 1, 2, 254), "a.png")
    assert known_classes(np.full((2, 2), 255, np.uint8), 255, (0, 1), "a.png").tolist() == [[255, 255], [255, 255]]


def test_the_nearest_pixel():
    classes = np.arange(35, dtype=np.uint8).reshape(SIZE)
    assert (resized_classes(classes, SIZE) == classes).all()
    assert resized_classes(classes, (1, 1)).tolist() == [[17]]  # the middle one
    assert (resized_classes(classes, (15, 21))[1::3, 1::3] == classes).all()
