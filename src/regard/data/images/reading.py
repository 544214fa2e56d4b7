"""Images and their files: reading any common format, bringing to one size, writing."""

import io
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.data.records import StoredFile, file_errors
from regard.errors import ArgumentError, DataError, MissingPartError, ShapeError
from regard.files.atomic import AtomicFile
from regard.files.fork_lock import ForkLock
from regard.files.regular import LARGEST_IMAGE, open_regular

if TYPE_CHECKING:
    from PIL import Image

MOST_PIXELS = 64_000_000
"""Largest number of pixels of an image that is read: 192 MB when decoded."""

FORMATS = ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM")
"""Formats that are read. Others are not opened at all: some of them (EPS) run an external program."""

_ORIENTATION = 0x0112  # tag of the Exif standard
_SIXTEEN_BITS = ("I;16", "I;16L", "I;16B", "I;16N")

ImageSource = str | os.PathLike[str] | bytes | StoredFile

Fit = Literal["crop", "stretch"]
FITS = ("crop", "stretch")

LARGEST_RATIO = 100
"""Largest ratio of an image's sides: of a longer strip, hardly a pixel would be left."""

# Filters of warnings belong to the process: two threads must not change them at the same time.
_WARNING_FILTERS = ForkLock()


def read_image(source: ImageSource, origin: str | None = None, *, most_pixels: int = MOST_PIXELS) -> NDArray[np.uint8]:
    """Reads the pixels of an image, upright.

    The orientation that a camera stored (Exif) is applied. Transparent pixels are shown on white, grey levels of 16
    bits are divided by 257, of an animation the first picture is read. The size is checked before a pixel is decoded.

    Args:
        source: a file, its bytes, or a cell of a table that holds it.
        origin: where the image is named, for messages: ``"train.jsonl: line 7"``; None: only the file is named.
        most_pixels: largest height × width; Pillow's own limit, `PIL.Image.MAX_IMAGE_PIXELS`, holds as well.

    Returns:
        uint8 ``[height, width, 3]``: red, green, blue.

    Raises:
        DataError: the file does not exist, is no image of the `FORMATS`, is truncated or damaged, or is too large.
        MissingPartError: Pillow is not installed.
    """
    name = image_name(source, origin)
    with _opened(source, name, most_pixels) as image:
        return np.array(_as_rgb(_upright(image, name), name), np.uint8)


def pillow_pixels(image: "Image.Image", name: str) -> NDArray[np.uint8]:
    """Returns the pixels of an image of Pillow as `read_image` does."""
    _decode(image, name)
    return np.array(_as_rgb(_upright(image, name), name), np.uint8)


def read_class_map(source: ImageSource, origin: str | None = None, *, most_pixels: int = MOST_PIXELS) -> NDArray[Any]:
    """Reads an image whose pixels are classes, as the file has them: grey levels, or indices of a palette.

    Grey levels have 1 to 16 bits; those of less than 8 are not spread over 0 to 255, as they are to be shown.

    Args:
        source: a file, its bytes, or a cell of a table that holds it.
        origin: where the image is named, for messages.
        most_pixels: largest height × width.

    Returns:
        uint8 or uint16 ``[height, width]``, upright.

    Raises:
        DataError: as in `read_image`; or the image has colours or transparent pixels.
        MissingPartError: Pillow is not installed.
    """
    name = image_name(source, origin)
    with _opened(source, name, most_pixels, decode=False) as image:
        return class_numbers(image, name)


def class_numbers(image: "Image.Image", name: str) -> NDArray[Any]:
    """Returns the class map of an image of Pillow that is not decoded yet: its file says how grey levels are decoded.

    Args:
        name: names it in messages.
    """
    mode, largest = _raw_levels(image)
    _decode(image, name)
    upright = _upright(image, name)
    if upright.mode == "LA" and ";" not in mode:
        grey, alpha = (np.array(upright.getchannel(channel)) for channel in "LA")
        if (alpha == 255).all():
            return grey
        raise DataError(
            f"{name}: has transparent pixels, and no class stands for them; save it without the alpha channel"
        )
    if upright.mode in _SIXTEEN_BITS:
        return np.array(upright).astype(np.uint16)
    if upright.mode == "I":
        numbers = np.array(upright)
        if numbers.min() >= 0 and numbers.max() <= 65_535:
            # Pillow spreads a PGM file's levels from 0 to the largest over 0 to 65,535.
            return (numbers if largest is None else np.rint(numbers * (largest / 65_535))).astype(np.uint16)
    if upright.mode == "L":
        levels = np.array(upright, np.uint8)
        if "I" in mode:  # TIFF: 0 is white, and the levels are turned round
            levels = 255 - levels
        return levels if largest is None else np.rint(levels * (largest / 255)).astype(np.uint8)
    if upright.mode == "P":
        return np.array(upright, np.uint8)
    if upright.mode == "1":
        return np.array(upright.convert("L"), np.uint8) // 255
    raise DataError(
        f"{name}: must have one number for each pixel, its class (grey levels or a palette); it is an image of the "
        f"mode {upright.mode!r}"
    )


def _raw_levels(image: "Image.Image") -> tuple[str, int | None]:
    """Returns how a file's decoder treats grey levels: its raw mode, and the level that becomes the largest one."""
    tile = getattr(image, "tile", None)
    if not tile:
        return "", None
    codec, *_, arguments = tile[0]
    mode, *others = (arguments,) if isinstance(arguments, str) else arguments or ("",)
    if codec.startswith("ppm"):
        return str(mode), int(others[0]) if others and isinstance(others[0], int) else None
    mode = str(mode)
    kind, _, bits = mode.partition(";")
    return mode, {"2": 3, "4": 15}.get(bits[:1]) if kind == "L" else None


def image_size(source: ImageSource, origin: str | None = None) -> tuple[int, int]:
    """Returns the height and the width of an image, upright; the pixels are not decoded.

    Raises:
        DataError: as in `read_image`, as far as the head of the file tells.
        MissingPartError: Pillow is not installed.
    """
    name = image_name(source, origin)
    with _opened(source, name, MOST_PIXELS, decode=False) as image:
        width, height = image.size
        # Pillow applies the orientation of a TIFF file itself, and of no other.
        turned = image.format != "TIFF" and _orientation(image, name) >= 5
        return (width, height) if turned else (height, width)


def image_name(source: ImageSource, origin: str | None = None) -> str:
    """Returns the name of an image in messages: its origin and its file."""
    if isinstance(source, StoredFile):
        return source.name
    file = f"an image of {len(source)} bytes" if isinstance(source, bytes) else os.fspath(source)
    return file if origin is None else f"{origin}: {file}"


def _pillow() -> Any:
    with MissingPartError.instead("Pillow", "images"):
        from PIL import Image
    return Image


@contextmanager
def _opened(source: ImageSource, name: str, most_pixels: int, *, decode: bool = True) -> "Iterator[Image.Image]":
    Image = _pillow()
    with _content(source, name) as file:
        try:
            image = _head(file)
        except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
            limit = min(most_pixels, Image.MAX_IMAGE_PIXELS or most_pixels)
            raise DataError(f"{name}: has more than {limit:,} pixels; make it smaller") from error
        # The readers of Pillow raise many kinds of errors on damaged files; each means that there is no image.
        except Exception as error:
            raise DataError(
                f"{name}: is not an image that can be read ({', '.join(FORMATS)}); check the file"
            ) from error
        with image:
            width, height = image.size
            if width * height > most_pixels:
                raise DataError(f"{name}: has {width} × {height} pixels, more than {most_pixels:,}; make it smaller")
            if not width * height:
                raise DataError(f"{name}: has no pixels ({width} × {height})")
            if decode:
                _decode(image, name)
            yield image


def _decode(image: "Image.Image", name: str) -> None:
    try:
        image.load()
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DataError(f"{name}: the image is truncated or damaged ({reason})") from error


def _head(file: Any) -> "Image.Image":
    from PIL import Image

    with _WARNING_FILTERS, warnings.catch_warnings():
        # Pillow warns of files that are damaged where it can do without the data, and of its own future.
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        return Image.open(file, formats=FORMATS)


@contextmanager
def _content(source: ImageSource, name: str) -> Iterator[Any]:
    if isinstance(source, StoredFile):
        source = source.content()
    if isinstance(source, bytes):
        if not source:
            raise DataError(f"{name}: the image is empty")
        yield io.BytesIO(source)
        return
    path = Path(source)
    with file_errors(name):
        if path.is_dir():
            raise DataError(f"{name}: is a folder, not an image")
        file = open_regular(path, LARGEST_IMAGE)
    with file:
        if not file.read(1):
            raise DataError(f"{name}: the file is empty")
        file.seek(0)
        yield file


def _orientation(image: "Image.Image", name: str) -> int:
    try:
        orientation = image.getexif().get(_ORIENTATION, 1)
    except Exception as error:
        raise DataError(f"{name}: the Exif data, which say how to turn the image, are damaged") from error
    return orientation if isinstance(orientation, int) and 1 <= orientation <= 8 else 1


def _upright(image: "Image.Image", name: str) -> "Image.Image":
    from PIL import Image

    turn = Image.Transpose
    turns = (
        None, None, turn.FLIP_LEFT_RIGHT, turn.ROTATE_180, turn.FLIP_TOP_BOTTOM, turn.TRANSPOSE, turn.ROTATE_270,
        turn.TRANSVERSE, turn.ROTATE_90,
    )  # fmt: skip
    change = turns[_orientation(image, name)]
    return image if change is None else image.transpose(change)


def _as_rgb(image: "Image.Image", name: str) -> "Image.Image":
    from PIL import Image

    if image.mode in _SIXTEEN_BITS:
        # Pillow's own conversion cuts every level above 255.
        return Image.fromarray((np.array(image).astype(np.uint16) // 257).astype(np.uint8)).convert("RGB")
    if image.mode in ("I", "F"):
        raise DataError(
            f"{name}: has pixels of 32 bits, whose range is not known; save it with 8 or 16 bits for each colour"
        )
    try:
        if image.has_transparency_data:
            coloured = image.convert("RGBA")
            white = Image.new("RGBA", coloured.size, (255, 255, 255, 255))
            return Image.alpha_composite(white, coloured).convert("RGB")
        return image if image.mode == "RGB" else image.convert("RGB")
    except ValueError as error:
        raise DataError(f"{name}: the mode {image.mode!r} cannot be turned into red, green and blue") from error


class FittedImage(NamedTuple):
    """An image of the wanted size.

    Attributes:
        pixels: uint8 ``[height, width, 3]``.
        box: x0, y0, x1, y1: the part of the original that it covers, in pixels of the original.
    """

    pixels: NDArray[np.uint8]
    box: tuple[float, float, float, float]


def covered_box(height: int, width: int, to: tuple[int, int], fit: Fit = "crop") -> tuple[float, float, float, float]:
    """Returns the part of an image of ``height × width`` pixels that `fit_image` keeps: x0, y0, x1, y1.

    Args:
        height: of the image.
        width: of the image.
        to: the wanted height and width.
        fit: ``"crop"``: the largest part in the middle with the wanted ratio; ``"stretch"``: everything.
    """
    if fit == "stretch":
        return 0.0, 0.0, float(width), float(height)
    scale = min(height / to[0], width / to[1])
    across, down = to[1] * scale, to[0] * scale
    left, top = (width - across) / 2, (height - down) / 2
    return left, top, left + across, top + down


def fit_image(image: NDArray[np.uint8], to: tuple[int, int], fit: Fit = "crop", name: str = "the image") -> FittedImage:
    """Brings an image to a size with an antialiased cubic filter.

    Args:
        image: uint8 ``[height, width, 3]``.
        to: the wanted height and width, each at least 1.
        fit: ``"crop"``: cut the longer side, in the middle, so that nothing is distorted; ``"stretch"``: keep all.
        name: names the image in a message.

    Raises:
        ShapeError: the image has another shape.
        ArgumentError: ``to`` or ``fit`` is out of its range.
        DataError: one side is more than 100 times as long as the other.
        MissingPartError: Pillow is not installed.
    """
    Image = _pillow()
    if image.ndim != 3 or image.shape[2] != 3 or not image.size or image.dtype != np.uint8:
        raise ShapeError(f"image must be uint8 [height, width, 3]; it is {image.dtype} {list(image.shape)}")
    if fit not in FITS:
        raise ArgumentError(f"fit must be of {', '.join(FITS)}; it is {fit!r}")
    if len(to) != 2 or min(to) < 1:
        raise ArgumentError(f"to must be a height and a width of at least 1; it is {to}")
    height, width = image.shape[:2]
    if max(height, width) > LARGEST_RATIO * min(height, width):
        raise DataError(f"{name}: has {width} × {height} pixels; one side is more than {LARGEST_RATIO} times the other")
    box = covered_box(height, width, to, fit)
    if (height, width) == tuple(to):
        return FittedImage(image, box)
    # Rounding must not move an edge out of the image, which Pillow refuses.
    left, top, right, bottom = box
    inside = max(0.0, left), max(0.0, top), min(float(width), right), min(float(height), bottom)
    pixels = Image.fromarray(image).resize((to[1], to[0]), Image.Resampling.BICUBIC, box=inside)
    return FittedImage(np.array(pixels), box)


def save_png(path: Path, pixels: NDArray[np.uint8]) -> None:
    """Writes a PNG file, whole or not at all.

    Args:
        path: the file.
        pixels: uint8 ``[height, width, 3]``, or ``[height, width]`` for grey levels.

    Raises:
        WriteError: the file cannot be written.
        MissingPartError: Pillow is not installed.
    """
    Image = _pillow()
    with AtomicFile(path) as temporary:
        Image.fromarray(pixels).save(temporary, "PNG")
