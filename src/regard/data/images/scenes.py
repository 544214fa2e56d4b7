"""Generated scenes: coloured shapes on a plain background with specks, whose places are known exactly.

A scene is a small description, and its pixels are a function of it: a corpus of scenes is a text file.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.errors import ArgumentError, DataError

SHAPES = ("circle", "square", "triangle", "diamond", "star", "cross", "ring", "hexagon")
COLORS: dict[str, tuple[int, int, int]] = {
    "red": (220, 40, 40),
    "green": (50, 170, 60),
    "blue": (50, 90, 230),
    "yellow": (240, 210, 40),
    "purple": (150, 60, 190),
    "orange": (245, 140, 30),
    "white": (245, 245, 245),
    "cyan": (60, 200, 210),
}
SIDE = 64
"""Pixels of a side of a scene."""

SMALL, LARGE = (6.0, 7.5), (10.0, 13.0)
"""Radius of small and of large objects, in pixels: from, to."""

FINE = 4
"""Samples of a pixel along each axis."""

MOST_SIDE, MOST_OBJECTS = 1024, 64

Box = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
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
        return self.radius > (SMALL[1] + LARGE[0]) / 2

    @property
    def box(self) -> Box:
        """x0, y0, x1, y1 of the smallest rectangle around the shape, in pixels."""
        points = outline(self.shape)
        left, top = (points.min(0) * self.radius).tolist()
        right, bottom = (points.max(0) * self.radius).tolist()
        return self.x + left, self.y + top, self.x + right, self.y + bottom


@dataclass(frozen=True, slots=True)
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
        """What the pixels depend on."""
        return "scene", repr(self)

    def pixels(self) -> NDArray[np.uint8]:
        """uint8 ``[side, side, 3]``."""
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
        """The scene as plain values, for JSON."""
        objects = [[one.shape, one.color, one.x, one.y, one.radius] for one in self.objects]
        return {"objects": objects, "background": list(self.background), "seed": self.seed, "side": self.side}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any], place: str) -> "Scene":
        """The scene that `to_dict` gave.

        Args:
            content: the values.
            place: where they are from, for messages.

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
            raise DataError(f"{place}: the image is not the description of a scene ({error})") from error
        return cls(objects, (red, green, blue), seed, side)


def _object(shape: Any, color: Any, x: Any, y: Any, radius: Any) -> SceneObject:
    if shape not in SHAPES or color not in COLORS:
        raise ValueError(f"there is no {color!r} {shape!r}")
    numbers = float(x), float(y), float(radius)
    if not all(math.isfinite(number) and abs(number) <= MOST_SIDE for number in numbers) or not numbers[2] > 0:
        raise ValueError(f"an object has no place {numbers}")
    return SceneObject(shape, color, *numbers)


def outline(shape: str) -> NDArray[np.float64]:
    """The corners ``[points, 2]`` (x to the right, y down) of a shape in the circle of radius 1; of a circle, many."""
    if shape in ("circle", "ring"):
        return _polygon(256)
    if shape == "square":
        return _polygon(4, math.pi / 4)
    if shape == "triangle":
        return _polygon(3, -math.pi / 2)
    if shape == "diamond":
        return _polygon(4) * (0.7, 1.0)
    if shape == "hexagon":
        return _polygon(6)
    if shape == "star":
        points = _polygon(10, -math.pi / 2)
        points[1::2] *= 0.45
        return points
    if shape == "cross":
        arm = 0.32
        long = math.sqrt(1 - arm**2)
        corners = [(arm, arm), (long, arm), (long, -arm), (arm, -arm), (arm, -long), (-arm, -long)]
        return np.array([*corners, *((-x, -y) for x, y in corners)])
    raise ArgumentError(f"shape must be of {', '.join(SHAPES)}; it is {shape!r}")


def coverage(one: SceneObject, side: int) -> NDArray[np.float32]:
    """The share of each pixel that an object covers: ``[side, side]``, from 0 to 1."""
    fine = (np.arange(side * FINE) + 0.5) / FINE
    x, y = (fine[None, :] - one.x) / one.radius, (fine[:, None] - one.y) / one.radius
    if one.shape in ("circle", "ring"):
        distance = x**2 + y**2
        inside = distance <= 1
        if one.shape == "ring":
            inside &= distance >= 0.5**2
    else:
        inside = _inside(outline(one.shape), x, y)
    return inside.reshape(side, FINE, side, FINE).mean((1, 3)).astype(np.float32)


def _polygon(corners: int, start: float = 0.0) -> NDArray[np.float64]:
    angles = start + 2 * math.pi * np.arange(corners) / corners
    return np.stack([np.cos(angles), np.sin(angles)], 1)


def _inside(points: NDArray[np.float64], x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.bool_]:
    # The parity of the edges that a ray to the right crosses.
    found = np.zeros(np.broadcast_shapes(x.shape, y.shape), np.bool_)
    for (x0, y0), (x1, y1) in zip(points, np.roll(points, -1, 0), strict=True):
        if y0 == y1:
            continue
        crosses = (y0 > y) != (y1 > y)
        found ^= crosses & (x < x0 + (y - y0) * (x1 - x0) / (y1 - y0))
    return found


def place_objects(
    kinds: Sequence[tuple[str, str]], random: np.random.Generator, side: int = SIDE, gap: float = 3.0
) -> tuple[SceneObject, ...]:
    """Objects of these kinds at random places, apart from one another and inside of the image.

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
                low, high = SMALL if random.random() < 0.5 else LARGE
                radius = round(float(random.uniform(low, high)), 1)
                x, y = (round(float(place), 1) for place in random.uniform(radius + 1, side - radius - 1, 2))
                one = SceneObject(shape, color, x, y, radius)
                if all(_apart(one.box, other.box, gap) for other in placed):
                    placed.append(one)
                    break
        if len(placed) == len(kinds):
            return tuple(placed)


def _apart(first: Box, second: Box, gap: float) -> bool:
    return (
        first[2] + gap <= second[0]
        or second[2] + gap <= first[0]
        or first[3] + gap <= second[1]
        or second[3] + gap <= first[1]
    )
