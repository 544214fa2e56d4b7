"""Generated street scenes whose class is known for each pixel: a bundled corpus for segmentation.

A scene is a function of its number, so a corpus is a list of numbers. Some classes cannot be told from a pixel's
surroundings alone: water has the colours of the sky above it, crowns of trees those of grass, poles those of walls.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np
from numpy.typing import NDArray

from regard.data.corpus_files import write_parts

CLASSES = ("sky", "water", "grass", "road", "house", "tree", "pole", "car")
"""The classes by their numbers; each pixel has one."""

HEIGHT, WIDTH = 64, 96
"""Pixels of a scene."""

COLUMN = "scene"
"""The header of a table of scenes, which has the number of one on each line."""

FIRST_SCENES = {"train": 0, "validation": 10_000_000, "test": 20_000_000}
"""The number of the first scene of each part of the bundled corpus."""

MOST_SCENES = 10_000_000

_SKY, _WATER, _GRASS, _ROAD, _HOUSE, _TREE, _POLE, _CAR = range(len(CLASSES))


class MaskedPixels(NamedTuple):
    """The pixels of an image and their classes.

    Attributes:
        pixels: uint8 ``[height, width, 3]``.
        classes: uint8 or uint16 ``[height, width]``, as they are in the file.
    """

    pixels: NDArray[np.uint8]
    classes: NDArray[Any]


@dataclass(frozen=True)
class Street:
    """A generated scene.

    Attributes:
        number: at least 0; decides all pixels.
    """

    number: int

    @property
    def name(self) -> str:
        return f"scene {self.number}"

    @property
    def mask_name(self) -> str:
        return self.name

    def state(self) -> tuple[object, ...]:
        return "street", 1, self.number

    def classes(self) -> NDArray[np.uint8]:
        """Returns the class of each pixel."""
        return self.load().classes

    def load(self) -> MaskedPixels:
        """Returns the pixels and the class of each."""
        scene = _Canvas(np.random.default_rng([1913, self.number]))
        scene.draw()
        return MaskedPixels(scene.finished(), scene.classes)


def write_streets(folder: Path, parts: dict[str, int]) -> dict[str, Path]:
    """Writes tables of generated scenes, ``train.tsv`` and so on.

    Args:
        folder: made if it is not there.
        parts: part → how many scenes, of `FIRST_SCENES`.

    Returns:
        part → its table.
    """

    def write(file: TextIO, part: str, size: int) -> None:
        file.writelines(f"{row}\n" for row in (COLUMN, *range(FIRST_SCENES[part], FIRST_SCENES[part] + size)))

    return write_parts(folder, parts, ".tsv", write)


class _Canvas:
    """A scene while it is drawn, the farthest things first."""

    def __init__(self, random: np.random.Generator):
        self.random = random
        self.y, self.x = np.mgrid[0:HEIGHT, 0:WIDTH] + 0.5
        self.colors = np.zeros((HEIGHT, WIDTH, 3))
        self.classes = np.zeros((HEIGHT, WIDTH), np.uint8)
        self.horizon = random.uniform(0.3, 0.5) * HEIGHT

    def draw(self) -> None:
        random, horizon = self.random, self.horizon
        sky = self._color((90, 140, 190), (200, 215, 240))
        light = self.y[..., None] / HEIGHT * 50
        self._paint(self.y < horizon, _SKY, sky + light)
        green = self._color((50, 90, 30), (110, 150, 70))
        self._paint(self.y >= horizon, _GRASS, green)
        if random.random() < 0.6:
            far = horizon + random.uniform(3, 9)
            mirrored = (2 * horizon - self.y[..., None]) / HEIGHT * 50
            self._paint((self.y >= horizon) & (self.y < far), _WATER, 0.93 * (sky + mirrored))
        vanishing, grey = random.uniform(0.2, 0.8) * WIDTH, self._color((70, 70, 75), (130, 130, 135))
        depth = np.clip((self.y - horizon) / (HEIGHT - horizon), 0, 1)
        side = vanishing + (random.uniform(0.3, 0.7) * WIDTH - vanishing) * depth
        road = (self.y > horizon + 1) & (np.abs(self.x - side) < 2 + random.uniform(0.2, 0.35) * WIDTH * depth)
        self._paint(road, _ROAD, grey)
        for feet in sorted(random.uniform(horizon + 2, horizon + 0.5 * (HEIGHT - horizon), random.integers(2, 6))):
            thing = (self._house, self._tree, self._pole)[random.integers(3)]
            thing(random.uniform(0, WIDTH), feet, 0.6 + 1.2 * (feet - horizon) / (HEIGHT - horizon), green)
        for _ in range(random.integers(0, 3)):
            near = random.uniform(0.25, 0.9)
            row = min(int(horizon + near * (HEIGHT - horizon)), HEIGHT - 1)
            self._car(side[row, 0] + random.uniform(-0.12, 0.12) * WIDTH * near, float(row), 0.5 + near)

    def finished(self) -> NDArray[np.uint8]:
        """Returns uint8 ``[height, width, 3]``, in the light of some time of day, and with noise."""
        lit = self.colors * self.random.uniform(0.65, 1.15) * self.random.uniform(0.92, 1.08, 3)
        return np.clip(lit + self.random.normal(0, 9, lit.shape), 0, 255).astype(np.uint8)

    def _house(self, x: float, feet: float, size: float, green: NDArray[np.float64]) -> None:
        half, height = size * self.random.uniform(6, 11), size * self.random.uniform(9, 16)
        wall, roof = self._color((120, 110, 100), (220, 210, 190)), self._color((110, 50, 40), (170, 90, 70))
        inside = (np.abs(self.x - x) < half) & (self.y < feet)
        self._paint(inside & (self.y > feet - height), _HOUSE, wall)
        rise = (self.y - (feet - 1.5 * height)) / (0.5 * height)
        self._paint((np.abs(self.x - x) < half * rise) & (self.y <= feet - height) & (rise > 0), _HOUSE, roof)
        for window in np.arange(x - half + 2, x + half - 3, 5 * size):
            pane = (np.abs(self.x - window - 1) < size) & (np.abs(self.y - feet + 0.65 * height) < 1.5 * size)
            self._paint(pane & inside, _HOUSE, np.array([60.0, 70.0, 90.0]))

    def _tree(self, x: float, feet: float, size: float, green: NDArray[np.float64]) -> None:
        height, radius = size * self.random.uniform(8, 14), size * self.random.uniform(4, 7)
        trunk = (np.abs(self.x - x) < 0.9 * size) & (self.y < feet) & (self.y > feet - height)
        self._paint(trunk, _TREE, np.array([85.0, 65.0, 45.0]))
        away = np.hypot(self.x - x, self.y - feet + height) + self.random.normal(0, 0.6, self.x.shape)
        self._paint(away < radius, _TREE, green * self.random.uniform(0.8, 1.1))

    def _pole(self, x: float, feet: float, size: float, green: NDArray[np.float64]) -> None:
        pole = (
            (np.abs(self.x - x) < 0.7 * size) & (self.y < feet) & (self.y > feet - size * self.random.uniform(14, 26))
        )
        self._paint(pole, _POLE, self._color((90, 85, 80), (170, 165, 160)))

    def _car(self, x: float, feet: float, size: float) -> None:
        color = self._color((20, 20, 20), (235, 235, 235))
        across, up = (self.x - x) / size, (feet - self.y) / size
        self._paint((np.abs(across) < 6) & (up > 0.8) & (up < 4), _CAR, color)
        self._paint((np.abs(across) < 3.5) & (up >= 4) & (up < 6.5), _CAR, 0.5 * color + 40)
        for wheel in (-3.6, 3.6):
            self._paint(np.hypot(across - wheel, up - 1) < 1.3, _CAR, np.array([25.0, 25.0, 25.0]))

    def _color(self, low: tuple[int, int, int], high: tuple[int, int, int]) -> NDArray[np.float64]:
        return self.random.uniform(low, high)

    def _paint(self, where: NDArray[np.bool_], number: int, color: NDArray[np.float64]) -> None:
        self.colors[where] = np.broadcast_to(color, self.colors.shape)[where]
        self.classes[where] = number
