"""Tables and folders of images: every form, joined rows, and mistakes named with their row."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from image_files import colours, encoded
from regard.data.images.image_rows import captioned_images, labelled_images
from regard.data.images.pictures import InputImage, pixel_table
from regard.data.images.scenes import Scene, SceneObject
from regard.errors import ArgumentError, DataError, KindError, ShapeError


@pytest.fixture
def images(tmp_path):
    (tmp_path / "images").mkdir()
    for number in range(3):
        (tmp_path / "images" / f"{number}.png").write_bytes(encoded(colours(7, 5, number)))
    return tmp_path


def lines(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_all_forms_of_captions_are_the_same(images):
    rows = [{"image": "images/0.png", "captions": ["one", "two"]}, {"image": "images/1.png", "caption": "three"}]
    lines(images / "a.jsonl", *rows)
    (images / "a.json").write_text(json.dumps(rows))
    (images / "a.tsv").write_text("image\tcaption\nimages/0.png\tone\nimages/1.png\tthree\nimages/0.png\ttwo\n")
    (images / "a.csv").write_text('caption,image\none,images/0.png\n"three",images/1.png\n\ntwo,images/0.png\n')
    columns = {"image": [f"images/{n}.png" for n in (0, 1, 0)], "caption": ["one", "three", "two"]}
    pq.write_table(pa.table(columns), images / "a.parquet")
    for suffix in ("jsonl", "json", "tsv", "csv", "parquet"):
        found = captioned_images(images / f"a.{suffix}")
        assert [row.texts for row in found] == [("one", "two"), ("three",)]
        assert np.array_equal(found[1].picture.pixels(), colours(7, 5, 1))
    assert len(captioned_images(images / "a.tsv", limit=1)) == 1
    assert captioned_images(images / "a.tsv", limit=2)[0].texts == ("one", "two")
    # The other of the two columns may be there, and empty; so may columns without a name, as spreadsheets write them.
    lines(images / "b.jsonl", {"image": "images/0.png", "captions": None, "caption": "one"})
    (images / "b.csv").write_text("image,caption,captions,,\nimages/0.png,one,,,\n")
    for suffix in ("jsonl", "csv"):
        assert captioned_images(images / f"b.{suffix}")[0].texts == ("one",)


def test_images_of_a_folder_of_classes_take_turns(tmp_path):
    for label, count in (("cat", 2), ("dog", 3)):
        (tmp_path / label).mkdir()
        for number in range(count):
            (tmp_path / label / f"{number}.JPG").write_bytes(encoded(colours(), "JPEG"))
    (tmp_path / "readme.txt").write_text("not a class")
    found = labelled_images(tmp_path)
    assert [row.texts[0] for row in found] == ["cat", "dog", "cat", "dog", "dog"]
    assert len(labelled_images(tmp_path, limit=3)) == 3
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="empty: there is no image in this folder of a class"):
        labelled_images(tmp_path)


def test_columns_can_be_named(images):
    path = lines(images / "a.jsonl", {"image": "no.png", "photo": "a.png", "said": ["one", "two"], "kind": "cat"})
    (row,) = captioned_images(path, "photo", "said")
    assert (Path(row.picture.path).name, row.texts) == ("a.png", ("one", "two"))
    (row,) = labelled_images(path, "photo", "kind")
    assert (Path(row.picture.path).name, row.texts) == ("a.png", ("cat",))
    with pytest.raises(DataError, match=r"line 1: there is no column 'phto'; did you mean 'photo'\? \(columns:"):
        captioned_images(path, "phto", "said")


def test_scenes_and_boxes(tmp_path):
    scene = Scene((SceneObject("circle", "red", 20.0, 30.0, 7.0),))
    lines(
        tmp_path / "a.jsonl",
        {"image": scene.to_dict(), "label": 3, "objects": [{"name": "circle", "box": [13, 23, 27, 37]}]},
    )
    (row,) = labelled_images(tmp_path / "a.jsonl")
    assert row.picture == scene
    assert row.texts == ("3",)
    assert row.objects[0].box == (13, 23, 27, 37)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"image": 3, "captions": ["x"]}, "'image' must be the path"),
        ({"image": "a.png", "captions": 3}, "'captions' or 'caption' must be a text or a list of texts"),
        ({"image": "a.png", "captions": ["x", 3]}, "a caption must be text"),
        ({"image": "a.png", "caption": "x", "objects": 3}, "'objects' must be a list"),
        ({"image": "a.png", "caption": "x", "objects": [{"name": "x", "box": [1, 2, 1, 3]}]}, "an entry of 'objects'"),
        ({"image": "a.png", "caption": "x", "objects": [{"name": " ", "box": [1, 2, 2, 3]}]}, "an entry of 'objects'"),
        ({"image": "a.png", "caption": "x", "objects": [{"box": [1, 2, 2, 3]}]}, "an entry of 'objects'"),
        ([1], "must be a JSON object"),
    ],
)
def test_a_wrong_row_is_named(tmp_path, row, message):
    path = lines(tmp_path / "a.jsonl", {"image": "b.png", "caption": "fine"}, row)
    with pytest.raises(DataError, match=rf"a\.jsonl: line 2:? .*{message}"):
        captioned_images(path)


def test_a_table_that_cannot_be_read(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        captioned_images(tmp_path / "none.jsonl")
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(DataError, match=r"unknown kind of file '\.txt'"):
        captioned_images(tmp_path / "a.txt")
    (tmp_path / "a.jsonl").write_text("\n")
    with pytest.raises(DataError, match="the file is empty"):
        captioned_images(tmp_path / "a.jsonl")
    (tmp_path / "b.tsv").write_text("image\tcaption\n")
    with pytest.raises(DataError, match="there are no rows"):
        captioned_images(tmp_path / "b.tsv")
    (tmp_path / "c.tsv").write_text("image\tcaption\na.png\tx\ty\n")
    with pytest.raises(DataError, match="line 2 has 3 fields where the header has 2"):
        captioned_images(tmp_path / "c.tsv")
    with pytest.raises(DataError, match="is a folder; name the file inside it"):
        captioned_images(tmp_path)
    with pytest.raises(DataError, match="is a folder without classes"):
        labelled_images(tmp_path)
    with pytest.raises(ArgumentError, match="limit"):
        captioned_images(tmp_path / "c.tsv", limit=0)


def test_a_table_of_pixels_is_read_once_and_again_when_a_file_changes(images, own_cache):
    path = lines(images / "a.jsonl", *({"image": f"images/{n}.png", "caption": "x"} for n in range(3)))
    pictures = [row.picture for row in captioned_images(path)]
    table = pixel_table(pictures, (5, 5))
    assert table.shape == (3, 5, 5, 3)
    assert np.array_equal(table[2], colours(7, 5, 2)[1:6])
    assert len(list((own_cache / "regard").glob("*.npy"))) == 1
    pixel_table(pictures, (5, 5))
    assert len(list((own_cache / "regard").glob("*.npy"))) == 1
    (images / "images" / "2.png").write_bytes(encoded(colours(7, 5, 9), "PNG", compress_level=1))
    assert np.array_equal(pixel_table(pictures, (5, 5))[2], colours(7, 5, 9)[1:6])


def test_an_image_that_is_missing_or_damaged_is_named_with_its_row(images):
    rows = [{"image": f"images/{n}.png", "caption": "x"} for n in (0, 7)]
    pictures = [row.picture for row in captioned_images(lines(images / "a.jsonl", *rows))]
    with pytest.raises(DataError, match=r"a\.jsonl: line 2: .*7\.png: no such file"):
        pixel_table(pictures, (5, 5))
    whole = encoded(colours(50, 50))
    (images / "images" / "7.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"a\.jsonl: line 2: .*7\.png: the image is truncated"):
        pixel_table(pictures, (5, 5))


def test_an_input_image_is_shown_whole_with_the_part_that_is_read(tmp_path):
    pixels = colours(30, 90)
    found = InputImage.open(pixels, (10, 10), "crop")
    assert found.box == (30, 0, 60, 30)
    assert found.scale == 1
    assert np.array_equal(found.shown, pixels)
    large = InputImage.open(np.zeros((1000, 2000, 3), np.uint8), (10, 10), "crop")
    assert large.shown.shape == (320, 640, 3)
    assert large.box == pytest.approx((160, 0, 480, 320))
    assert large.scale == pytest.approx(0.32)
    path = tmp_path / "a.png"
    path.write_bytes(encoded(pixels))
    for source in (path, str(path), path.read_bytes()):
        assert np.array_equal(InputImage.open(source, (10, 10), "crop").pixels, found.pixels)
    with pytest.raises(KindError, match=r"inputs\[3\] must be the path of an image"):
        InputImage.open(3, (10, 10), "crop", "inputs[3]")
    with pytest.raises(ShapeError, match=r"inputs\[0\] must be uint8"):
        InputImage.open(pixels.astype(float), (10, 10), "crop")
