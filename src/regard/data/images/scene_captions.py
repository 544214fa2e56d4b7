"""The bundled corpora of images: scenes with captions that name their objects, and scenes with one large object."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from regard.atomic_file import AtomicFile
from regard.data.images.scenes import COLORS, SHAPES, SIDE, Scene, SceneObject, place_objects

CAPTIONS = 3
"""Captions of a scene."""

MOST_NAMED = 3
"""Objects of a scene."""

NUMBERS = ("no", "one", "two", "three")


def scene_captions(scene: Scene, random: np.random.Generator, count: int = CAPTIONS) -> list[str]:
    """Captions that name every object of a scene by its colour and shape, and say where it is; all of them are true.

    Args:
        scene: one to three objects, of which no two have the same colour and shape.
        random: generator of random numbers.
        count: captions, which may be equal.
    """
    return [_caption(scene, random) for _ in range(count)]


def _caption(scene: Scene, random: np.random.Generator) -> str:
    objects = [scene.objects[number] for number in random.permutation(len(scene.objects))]
    if len(objects) == 1:
        return f"{_phrase(objects[0], random)} {_place(objects[0], scene.side)}"
    if len(objects) == 2:
        first, second = objects
        if random.random() < 0.75:
            return f"{_phrase(first, random)} {_relation(first, second)} {_phrase(second, random)}"
        return f"{_phrase(first, random)} and {_phrase(second, random)}"
    first, *others = objects
    if random.random() < 0.5:
        return f"{_phrase(first, random)} , {_phrase(others[0], random)} and {_phrase(others[1], random)}"
    relation = _relation(first, others[0])
    return f"{_phrase(first, random)} {relation} {_phrase(others[0], random)} , and {_phrase(others[1], random)}"


def _phrase(one: SceneObject, random: np.random.Generator) -> str:
    size = ("large " if one.large else "small ") if random.random() < 0.5 else ""
    words = size + one.name
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"


def _place(one: SceneObject, side: int) -> str:
    across = min(2, int(3 * one.x / side))
    down = min(2, int(3 * one.y / side))
    if (across, down) == (1, 1):
        return "in the middle"
    rows, columns = ("at the top", "", "at the bottom"), ("left", "", "right")
    if not columns[across]:
        return rows[down]
    return f"{rows[down]} {columns[across]}" if rows[down] else f"on the {columns[across]}"


def _relation(first: SceneObject, second: SceneObject) -> str:
    # The direction in which they are farther apart.
    across, down = first.x - second.x, first.y - second.y
    if abs(across) >= abs(down):
        return "to the left of" if across < 0 else "to the right of"
    return "above" if down < 0 else "below"


def captioned_scene(random: np.random.Generator, side: int = SIDE) -> dict[str, Any]:
    """A scene of one to three objects as a row of a corpus: ``image``, ``captions``, and ``objects`` with boxes."""
    count = int(random.integers(1, MOST_NAMED + 1))
    kinds = random.choice(len(SHAPES) * len(COLORS), count, replace=False).tolist()
    scene = _scene([(SHAPES[kind % len(SHAPES)], list(COLORS)[kind // len(SHAPES)]) for kind in kinds], random, side)
    return {
        "image": scene.to_dict(),
        "captions": scene_captions(scene, random),
        "objects": [_named(one, one.name) for one in scene.objects],
    }


def labelled_scene(random: np.random.Generator, side: int = SIDE) -> dict[str, Any]:
    """A scene as a row of a corpus to classify: the label is the shape of its one large object.

    Two small objects of other shapes and any colour are beside it, so neither a colour nor the presence of a shape
    tells the label: a model must find the large one. ``objects`` has its box under the name of the label.
    """
    shapes = [SHAPES[number] for number in random.choice(len(SHAPES), 3, replace=False)]
    colors = [list(COLORS)[number] for number in random.choice(len(COLORS), 3)]
    while True:
        scene = _scene(list(zip(shapes, colors, strict=True)), random, side)
        if [one.large for one in scene.objects] == [True, False, False]:
            first = scene.objects[0]
            return {"image": scene.to_dict(), "label": first.shape, "objects": [_named(first, first.shape)]}


def _scene(kinds: list[tuple[str, str]], random: np.random.Generator, side: int) -> Scene:
    background = tuple(int(level) for level in random.integers(15, 110, 3))
    return Scene(place_objects(kinds, random, side), background, int(random.integers(2**31)), side)  # pyright: ignore


def _named(one: SceneObject, name: str) -> dict[str, Any]:
    return {"name": name, "box": [round(edge, 3) for edge in one.box]}


GENERATORS = {"captions": captioned_scene, "labels": labelled_scene}
"""Kind of corpus → what makes one row of it."""


def write_scenes(folder: str | Path, kind: str, sizes: Mapping[str, int], seed: int = 1) -> dict[str, Path]:
    """Write a corpus of scenes, as one ``.jsonl`` file for each part; no scene is in two parts.

    Args:
        folder: where the files go.
        kind: a name of `GENERATORS`.
        sizes: part → number of scenes. A part does not depend on the sizes of the others.
        seed: of the random numbers.

    Returns:
        part → file.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths = {}
    for part, size in sizes.items():
        paths[part] = folder / f"{part}.jsonl"
        with AtomicFile(paths[part]) as temporary, temporary.open("w", encoding="utf-8") as file:
            for row in scene_rows(kind, part, size, seed):
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
    return paths


def scene_rows(kind: str, part: str, size: int, seed: int = 1) -> Iterator[dict[str, Any]]:
    """The rows of a part of a corpus; each row has random numbers of its own.

    Args:
        kind: a name of `GENERATORS`.
        part: its name decides the random numbers.
        size: rows.
        seed: of the random numbers.
    """
    make = GENERATORS[kind]
    for number in range(size):
        yield make(np.random.default_rng([seed, *part.encode(), number]))
