"""Generated scenes: boxes are exact, captions are true, parts do not overlap, descriptions are read back."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.images.scenes import (
    COLORS,
    SHAPES,
    Scene,
    SceneObject,
    coverage,
    labelled_scene,
    scene_rows,
    write_scenes,
)
from regard.errors import DataError


@given(shape=st.sampled_from(SHAPES), x=st.floats(15, 49), y=st.floats(15, 49), radius=st.floats(5, 14))
def test_a_box_is_the_smallest_around_the_shape(shape, x, y, radius):
    one = SceneObject(shape, "red", x, y, radius)
    rows, columns = np.nonzero(coverage(one, 64))
    x0, y0, x1, y1 = one.box
    for edge, found in ((x0, columns.min()), (y0, rows.min())):
        assert found <= edge + 1 and found >= np.floor(edge)  # noqa: PT018
    for edge, found in ((x1, columns.max() + 1), (y1, rows.max() + 1)):
        assert found >= edge - 1 and found <= np.ceil(edge)  # noqa: PT018


@pytest.mark.parametrize("shape", SHAPES)
def test_a_shape_has_its_colour_where_it_is(shape):
    scene = Scene((SceneObject(shape, "yellow", 20.0, 40.0, 12.0),), background=(0, 0, 0), seed=3)
    pixels = scene.pixels().astype(int)
    covered = coverage(scene.objects[0], 64)
    assert np.abs(pixels[covered == 1] - COLORS["yellow"]).mean() < 10
    assert pixels[covered == 0].mean() < 15


def test_shapes_of_a_scene_differ_in_their_pixels():
    masks = [coverage(SceneObject(shape, "red", 32.0, 32.0, 12.0), 64) for shape in SHAPES]
    for number, mask in enumerate(masks):
        for other in masks[:number]:
            assert np.abs(mask - other).sum() > 20


def words_of(caption, objects):
    """What a caption says of a scene, as (relation, first, second) of names."""
    text = f" {caption} "
    for name in objects:
        text = text.replace(f" a large {name} ", f" <{name}> ").replace(f" a small {name} ", f" <{name}> ")
        text = text.replace(f" an {name} ", f" <{name}> ").replace(f" a {name} ", f" <{name}> ")
    return text


def test_captions_are_true():
    for row in scene_rows("captions", "any", 60):
        scene = Scene.from_dict(row["image"], "here")
        by_name = {one.name: one for one in scene.objects}
        assert [one["name"] for one in row["objects"]] == list(by_name)
        assert len(by_name) == len(scene.objects)
        for caption in row["captions"]:
            for name, one in by_name.items():
                assert name in caption
                for size in ("large", "small"):
                    if f"{size} {name}" in caption:
                        assert one.large == (size == "large")
            said = words_of(caption, by_name)
            for relation, axis, sign in (
                ("to the left of", "x", -1), ("to the right of", "x", 1), ("above", "y", -1), ("below", "y", 1),
            ):  # fmt: skip
                if relation in said:
                    left, right = said.split(relation)
                    first = by_name[left[left.rindex("<") + 1 : left.rindex(">")]]
                    second = by_name[right[right.index("<") + 1 : right.index(">")]]
                    assert sign * (getattr(first, axis) - getattr(second, axis)) > 0


def test_objects_are_inside_of_the_image_and_apart():
    for row in scene_rows("captions", "any", 60):
        boxes = [one["box"] for one in row["objects"]]
        for number, (x0, y0, x1, y1) in enumerate(boxes):
            assert x0 >= 0
            assert y0 >= 0
            assert x1 <= 64
            assert y1 <= 64
            for a0, b0, a1, b1 in boxes[:number]:
                assert x1 <= a0 or a1 <= x0 or y1 <= b0 or b1 <= y0


def test_the_label_is_the_one_large_shape():
    for number in range(20):
        row = labelled_scene(np.random.default_rng(number))
        scene = Scene.from_dict(row["image"], "here")
        assert [one.shape for one in scene.objects if one.large] == [row["label"]]
        assert row["objects"][0]["box"] == pytest.approx(scene.objects[0].box, abs=1e-3)


def test_parts_are_what_they_are_and_do_not_depend_on_sizes(tmp_path):
    first = write_scenes(tmp_path / "a", "captions", {"train": 7, "test": 5})
    second = write_scenes(tmp_path / "b", "captions", {"train": 3, "test": 5})
    assert first["test"].read_bytes() == second["test"].read_bytes()
    lines = first["train"].read_text().splitlines()
    assert second["train"].read_text().splitlines() == lines[:3]
    assert not set(lines) & set(first["test"].read_text().splitlines())
    scene = Scene.from_dict(json.loads(lines[0])["image"], "here")
    assert Scene.from_dict(scene.to_dict(), "here") == scene
    assert np.array_equal(scene.pixels(), scene.pixels())


@pytest.mark.parametrize(
    "change",
    [
        {"objects": [["blob", "red", 1, 2, 3]]},
        {"objects": [["circle", "red", 1, 2, 0]]},
        {"objects": [["circle", "red", 1, float("nan"), 3]]},
        {"objects": 3},
        {"background": [1, 2]},
        {"background": [1, 2, 256]},
        {"side": 0},
        {"side": 10**9},
        {"seed": -1},
        {"extra": 1},
    ],
)
def test_a_description_of_no_scene_is_refused(change):
    with pytest.raises(DataError, match=r"a\.jsonl: line 3: the image is not the description of a scene"):
        Scene.from_dict({**Scene(()).to_dict(), **change}, "a.jsonl: line 3")
