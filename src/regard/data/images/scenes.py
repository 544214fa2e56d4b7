"""Generated scenes: coloured shapes on a plain background with specks, whose positions are known exactly.

A scene is a small description, and its pixels are a function of it: a corpus of scenes is a text file. The bundled
corpora are scenes with captions that name their objects, and scenes with one large object.
"""

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from regard.data.corpus_files import write_parts
from regard.errors import ArgumentError, DataError

SHAPES = ("circle", "square", "triangle", "diamond", "star", "cross", "ring", "hexagon")
COLORS: dict[str, tuple[int, int, int]] = {
    "red": (220, 40, 40), "green": (50, 170, 60), "blue": (50, 90, 230), "yellow": (240, 210, 40),
    "purple": (150, 60, 190), "orange": (245, 140, 30), "white": (245, 245, 245), "cyan": (60, 200, 210),
}  # fmt: skip
_CORNERS = {
    "circle": (256, 0.0), "ring": (256, 0.0), "square": (4, math.pi / 4), "triangle": (3, -math.pi / 2),
    "diamond": (4, 0.0), "hexagon": (6, 0.0), "star": (10, -math.pi / 2),
}  # fmt: skip
"""Shape → number of its corners, and the angle of the first one."""

SIDE = 64
"""Pixels of a side of a scene."""

SMALL_RADIUS, LARGE_RADIUS = (7.0, 8.5), (11.0, 14.0)
"""Radius of small and of large objects, in pixels: from, to."""

SAMPLES_OF_SIDE = 4
"""Samples of a pixel along each axis."""

MOST_SIDE, MOST_OBJECTS = 1024, 64

Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class SceneObject:
    """A shape in a scene.

    Attributes:
        shape: one of `SHAPES`.
        color: one of `COLORS`.
        x: of the middle, in pixels from the left edge.
        y: of the middle, in pixels from the upper edge.
        radius: of the circle around the shape, in pixels.
    """

    shape: str
    color: str
    x: float
    y: float
    radius: float

    @property
    def name(self) -> str:
        """Such as ``"red circle"``."""
        return f"{self.color} {self.shape}"

    @property
    def large(self) -> bool:
        """Whether it is called large; small otherwise."""
        return self.radius > (SMALL_RADIUS[1] + LARGE_RADIUS[0]) / 2

    @property
    def box(self) -> Box:
        """x0, y0, x1, y1 of the smallest rectangle around the shape, in pixels."""
        points = outline(self.shape)
        left, top = (points.min(0) * self.radius).tolist()
        right, bottom = (points.max(0) * self.radius).tolist()
        return self.x + left, self.y + top, self.x + right, self.y + bottom


@dataclass(frozen=True)
class Scene:
    """What an image shows.

    Attributes:
        objects: the shapes; later ones are in front.
        background: red, green, blue, 0 to 255.
        seed: of the specks and the noise.
        side: pixels of a side of the square image.
    """

    objects: tuple[SceneObject, ...]
    background: tuple[int, int, int] = (60, 60, 60)
    seed: int = 0
    side: int = SIDE

    @property
    def name(self) -> str:
        """The names of its objects."""
        return ", ".join(one.name for one in self.objects) or "an empty scene"

    def state(self) -> tuple[object, ...]:
        """Returns the values on which the pixels depend."""
        return "scene", repr(self)

    def pixels(self) -> NDArray[np.uint8]:
        """Draws the scene: uint8 ``[side, side, 3]``."""
        random = np.random.default_rng(self.seed)
        image = np.empty((self.side, self.side, 3), np.float32)
        image[:] = np.asarray(self.background, np.float32)
        specks = random.random((self.side, self.side)) < 0.02
        image[specks] += random.uniform(-60, 60, (int(specks.sum()), 1))
        for one in self.objects:
            share = coverage(one, self.side)[:, :, None]
            image = image * (1 - share) + np.asarray(COLORS[one.color], np.float32) * share
        image += random.normal(0, 6, image.shape)
        return np.rint(image).clip(0, 255).astype(np.uint8)

    def to_dict(self) -> dict[str, Any]:
        """Returns the scene as plain values, for JSON."""
        objects = [[one.shape, one.color, one.x, one.y, one.radius] for one in self.objects]
        return {"objects": objects, "background": list(self.background), "seed": self.seed, "side": self.side}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any], origin: str) -> "Scene":
        """Returns the scene that `to_dict` gave.

        Args:
            content: the values.
            origin: where they are from, for messages.

        Raises:
            DataError: they describe no scene.
        """
        try:
            objects = tuple(_object(*values) for values in content["objects"])
            red, green, blue = (int(level) for level in content["background"])
            seed, side = int(content["seed"]), int(content["side"])
            unknown = content.keys() - {"objects", "background", "seed", "side"}
            if unknown:
                raise ValueError(f"unknown field {min(unknown)!r}")
            if not 1 <= side <= MOST_SIDE or len(objects) > MOST_OBJECTS or seed < 0:
                raise ValueError(f"side is from 1 to {MOST_SIDE}, at most {MOST_OBJECTS} objects, seed is at least 0")
            if not all(0 <= level <= 255 for level in (red, green, blue)):
                raise ValueError("background is from 0 to 255")
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise DataError(f"{origin}: the image is not the description of a scene ({error})") from error
        return cls(objects, (red, green, blue), seed, side)


def _object(shape: Any, color: Any, x: Any, y: Any, radius: Any) -> SceneObject:
    if shape not in SHAPES or color not in COLORS:
        raise ValueError(f"there is no {color!r} {shape!r}")
    numbers = float(x), float(y), float(radius)
    if not all(math.isfinite(number) and abs(number) <= MOST_SIDE for number in numbers) or not numbers[2] > 0:
        raise ValueError(f"an object has no position {numbers}")
    return SceneObject(shape, color, *numbers)


def outline(shape: str) -> NDArray[np.float64]:
    """Returns the corners ``[points, 2]`` (x to the right, y down) of a shape in the unit circle; a circle has many."""
    if shape not in SHAPES:
        raise ArgumentError(f"shape must be of {', '.join(SHAPES)}; it is {shape!r}")
    if shape == "cross":
        arm = 0.32
        long = math.sqrt(1 - arm**2)
        corners = [(arm, arm), (long, arm), (long, -arm), (arm, -arm), (arm, -long), (-arm, -long)]
        return np.array([*corners, *((-x, -y) for x, y in corners)])
    count, first = _CORNERS[shape]
    angles = first + 2 * math.pi * np.arange(count) / count
    points = np.stack([np.cos(angles), np.sin(angles)], 1)
    if shape == "diamond":
        points *= (0.7, 1.0)
    if shape == "star":
        points[1::2] *= 0.45
    return points


def coverage(one: SceneObject, side: int) -> NDArray[np.float32]:
    """Returns the share of each pixel that an object covers: ``[side, side]``, from 0 to 1."""
    fine = (np.arange(side * SAMPLES_OF_SIDE) + 0.5) / SAMPLES_OF_SIDE
    x, y = (fine[None, :] - one.x) / one.radius, (fine[:, None] - one.y) / one.radius
    if one.shape in ("circle", "ring"):
        distance = x**2 + y**2
        inside = distance <= 1
        if one.shape == "ring":
            inside &= distance >= 0.5**2
    else:
        inside = _inside(outline(one.shape), x, y)
    return inside.reshape(side, SAMPLES_OF_SIDE, side, SAMPLES_OF_SIDE).mean((1, 3)).astype(np.float32)


def _inside(points: NDArray[np.float64], x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Computes which positions are inside a polygon: a ray to the right crosses an odd number of its edges."""
    inside = np.zeros(np.broadcast_shapes(x.shape, y.shape), np.bool_)
    for (x0, y0), (x1, y1) in zip(points, np.roll(points, -1, 0), strict=True):
        if y0 == y1:
            continue
        crosses = (y0 > y) != (y1 > y)
        inside ^= crosses & (x < x0 + (y - y0) * (x1 - x0) / (y1 - y0))
    return inside


def place_objects(
    kinds: Sequence[tuple[str, str]], random: np.random.Generator, side: int = SIDE, gap: float = 3.0
) -> tuple[SceneObject, ...]:
    """Places objects of these kinds at random, apart from one another and inside the image.

    Args:
        kinds: (shape, color) of each object.
        random: generator of random numbers.
        side: pixels of a side of the image.
        gap: least distance of two boxes along one axis, in pixels.
    """
    while True:
        placed: list[SceneObject] = []
        for shape, color in kinds:
            for _ in range(30):
                low, high = SMALL_RADIUS if random.random() < 0.5 else LARGE_RADIUS
                radius = round(float(random.uniform(low, high)), 1)
                x, y = (round(float(edge), 1) for edge in random.uniform(radius + 1, side - radius - 1, 2))
                one = SceneObject(shape, color, x, y, radius)
                if all(_apart(one.box, other.box, gap) for other in placed):
                    placed.append(one)
                    break
        if len(placed) == len(kinds):
            return tuple(placed)


def _apart(first: Box, second: Box, gap: float) -> bool:
    pairs = (first, second), (second, first)
    return any(one[axis + 2] + gap <= other[axis] for axis in (0, 1) for one, other in pairs)


CAPTIONS = 3
"""Captions of a scene."""

MOST_CAPTIONED_OBJECTS = 3
"""Objects of a scene."""


def scene_captions(scene: Scene, random: np.random.Generator, count: int = CAPTIONS) -> list[str]:
    """Returns true captions that name every object of a scene by its colour and shape, and say where it is.

    Args:
        scene: one to three objects, of which no two have the same colour.
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
    """Says in which direction the first object is of the second, along the axis on which they are farther apart."""
    across, down = first.x - second.x, first.y - second.y
    if abs(across) >= abs(down):
        return "to the left of" if across < 0 else "to the right of"
    return "above" if down < 0 else "below"


def captioned_scene(random: np.random.Generator, side: int = SIDE) -> dict[str, Any]:
    """Draws a scene of one to three objects as a row of a corpus: ``image``, ``captions``, and ``objects`` with boxes.

    Colours differ, so that a colour tells which object is meant; shapes may be equal.
    """
    count = int(random.integers(1, MOST_CAPTIONED_OBJECTS + 1))
    colors = [list(COLORS)[number] for number in random.choice(len(COLORS), count, replace=False)]
    shapes = [SHAPES[number] for number in random.choice(len(SHAPES), count)]
    scene = _scene(list(zip(shapes, colors, strict=True)), random, side)
    return {
        "image": scene.to_dict(),
        "captions": scene_captions(scene, random),
        "objects": [_named(one, one.name) for one in scene.objects],
    }


def labelled_scene(random: np.random.Generator, side: int = SIDE) -> dict[str, Any]:
    """Draws a scene as a row of a corpus to classify: the label is the shape of its one large object.

    Two small objects of other shapes and any colour are next to it, so neither a colour nor the presence of a shape
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
"""Kind of corpus → the function that makes a row of it."""


def write_scenes(folder: str | os.PathLike[str], kind: str, sizes: Mapping[str, int], seed: int = 1) -> dict[str, Path]:
    """Writes a corpus of scenes, as one ``.jsonl`` file for each part; no scene is in two parts.

    Args:
        folder: where the files go.
        kind: a name of `GENERATORS`.
        sizes: part → number of scenes. A part does not depend on the sizes of the others.
        seed: of the random numbers.

    Returns:
        part → file.
    """

    def write(file: TextIO, part: str, size: int) -> None:
        for row in scene_rows(kind, part, size, seed):
            file.write(json.dumps(row, ensure_ascii=False) + "\n")

    return write_parts(folder, sizes, ".jsonl", write)


def scene_rows(kind: str, part: str, size: int, seed: int = 1) -> Iterator[dict[str, Any]]:
    """Yields the rows of a part of a corpus; each row has random numbers of its own.

    Args:
        kind: a name of `GENERATORS`.
        part: its name decides the random numbers.
        size: rows.
        seed: of the random numbers.
    """
    make = GENERATORS[kind]
    for number in range(size):
        yield make(np.random.default_rng([seed, *part.encode(), number]))
