import io
import struct
import zlib

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from image_files import colours, encoded
from regard.data.images.reading import image_size, read_class_map, read_image, save_png
from regard.errors import DataError

TURNS = {
    1: lambda shown: shown,
    2: lambda shown: shown[:, ::-1],
    3: lambda shown: shown[::-1, ::-1],
    4: lambda shown: shown[::-1],
    5: lambda shown: shown.transpose(1, 0, 2),
    6: lambda shown: np.rot90(shown, 1),
    7: lambda shown: shown[::-1, ::-1].transpose(1, 0, 2),
    8: lambda shown: np.rot90(shown, -1),
}
"""Exif orientation → what a camera stores of what is shown; each is undone by reading."""


@pytest.mark.parametrize("format", ["PNG", "BMP", "TIFF", "PPM"])
def test_pixels_are_those_of_the_file(format, tmp_path):
    pixels = colours()
    path = tmp_path / "image.any"
    path.write_bytes(encoded(pixels, format))
    assert np.array_equal(read_image(path), pixels)
    assert np.array_equal(read_image(path.read_bytes()), pixels)
    assert image_size(path) == (5, 7)


@pytest.mark.parametrize("orientation", TURNS)
@pytest.mark.parametrize("format", ["PNG", "TIFF"])
def test_the_orientation_of_a_camera_is_applied(orientation, format):
    shown = colours()
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = encoded(np.ascontiguousarray(TURNS[orientation](shown)), format, exif=exif)
    assert np.array_equal(read_image(stored), shown)
    assert image_size(stored) == (5, 7)


def test_an_unknown_orientation_is_upright():
    exif = Image.Exif()
    exif[0x0112] = 9
    assert np.array_equal(read_image(encoded(colours(), exif=exif)), colours())


def test_grey_levels_of_8_and_16_bits():
    grey = colours()[:, :, 0]
    assert np.array_equal(read_image(encoded(grey)), grey[:, :, None].repeat(3, 2))
    # 257 · v is the level of 16 bits that shows as v; a plain conversion would cut it at 255.
    assert np.array_equal(read_image(encoded(grey.astype(np.uint16) * 257)), grey[:, :, None].repeat(3, 2))


def test_transparent_pixels_are_white_and_half_transparent_ones_are_mixed():
    pixels = np.full((3, 5, 4), 100, np.uint8)
    pixels[0, :, 3], pixels[1, :, 3], pixels[2, :, 3] = 0, 128, 255
    found = read_image(encoded(pixels))
    assert found[0].min() == 255
    assert np.abs(found[1].astype(int) - (100 + 255) / 2).max() <= 1
    assert found[2].max() == 100


def test_a_palette_with_a_transparent_colour():
    image = Image.new("P", (5, 3), 1)
    image.putpalette([0, 0, 0, 10, 20, 30])
    image.putpixel((4, 0), 0)
    file = io.BytesIO()
    image.save(file, "PNG", transparency=0)
    found = read_image(file.getvalue())
    assert found[0, 4].tolist() == [255, 255, 255]
    assert found[2, 2].tolist() == [10, 20, 30]


@pytest.mark.parametrize("mode", ["1", "L", "LA", "RGBA", "CMYK", "YCbCr", "LAB"])
def test_every_mode_of_a_file_gives_three_colours(mode):
    file = io.BytesIO()
    # Pillow 12 writes TIFF files of YCbCr that it cannot read.
    kind = {"CMYK": "TIFF", "YCbCr": "JPEG", "LAB": "TIFF"}.get(mode, "PNG")
    Image.new(mode, (7, 5)).save(file, kind)
    found = read_image(file.getvalue())
    assert found.shape == (5, 7, 3)
    assert found.dtype == np.uint8


@pytest.mark.parametrize("mode", ["I", "F"])
def test_levels_of_32_bits_are_refused(mode):
    file = io.BytesIO()
    Image.new(mode, (7, 5)).save(file, "TIFF")
    with pytest.raises(DataError, match=r"row 3: an image of \d+ bytes: has pixels of 32 bits"):
        read_image(file.getvalue(), "row 3")


def test_the_first_picture_of_an_animation():
    first, second = Image.new("RGB", (5, 3), (255, 0, 0)), Image.new("RGB", (5, 3), (0, 0, 255))
    file = io.BytesIO()
    first.save(file, "GIF", save_all=True, append_images=[second])
    assert read_image(file.getvalue())[0, 0].tolist() == [255, 0, 0]


@pytest.mark.parametrize("format", ["PNG", "JPEG", "WEBP", "TIFF", "BMP"])
def test_a_truncated_file_is_refused(format):
    whole = encoded(colours(61, 67), format)
    with pytest.raises(DataError, match="row 3: an image of"):
        read_image(whole[: len(whole) // 2], "row 3")


def bomb(width, height):
    """A PNG whose head says that it is large."""
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = [b"\x89PNG\r\n\x1a\n"]
    for kind, content in ((b"IHDR", head), (b"IDAT", zlib.compress(b"\0" * 100)), (b"IEND", b"")):
        chunks += [struct.pack(">I", len(content)), kind, content, struct.pack(">I", zlib.crc32(kind + content))]
    return b"".join(chunks)


@pytest.mark.parametrize("size", [(9000, 9000), (10_000, 10_000), (60_000, 60_000)])
def test_a_decompression_bomb_is_refused_before_it_is_decoded(size):
    with pytest.raises(DataError, match=r"row 3: .* has .*more than 64,000,000"):
        read_image(bomb(*size), "row 3")


def test_the_largest_size_is_inclusive():
    assert read_image(encoded(colours()), most_pixels=35).shape == (5, 7, 3)
    with pytest.raises(DataError, match="has 7 × 5 pixels, more than 34"):
        read_image(encoded(colours()), most_pixels=34)


def test_a_file_that_is_missing_empty_a_folder_or_text(tmp_path):
    with pytest.raises(DataError, match=r"a\.jsonl: line 2: .*none\.png: no such file"):
        read_image(tmp_path / "none.png", "a.jsonl: line 2")
    with pytest.raises(DataError, match="is a folder"):
        read_image(tmp_path)
    empty = tmp_path / "empty.png"
    empty.touch()
    with pytest.raises(DataError, match="the file is empty"):
        read_image(empty)
    text = tmp_path / "text.png"
    text.write_text("no image")
    with pytest.raises(DataError, match="not an image that can be read"):
        read_image(text)
    with pytest.raises(DataError, match="is empty"):
        read_image(b"")
    with pytest.raises(DataError, match="cannot be read"):
        read_image("a\0b.png")


def test_formats_that_run_other_programs_are_not_opened():
    file = io.BytesIO()
    Image.new("RGB", (5, 3)).save(file, "EPS")
    with pytest.raises(DataError, match="not an image that can be read"):
        read_image(file.getvalue())


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(format=st.sampled_from(["PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM"]), data=st.data())
def test_damaged_bytes_are_read_or_refused(format, data):
    """Whatever a byte of the file becomes, there is an image or one error of regard, and no other."""
    content = bytearray(encoded(colours(11, 13), format))
    for _ in range(3):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = read_image(bytes(content), "row 3", most_pixels=10_000)
    except DataError as error:
        message = str(error)
        shape = None
    else:
        message, shape = "row 3: an image of", found.shape
    assert message.startswith("row 3: an image of")
    assert "\n" not in message
    assert shape is None or (len(shape) == 3 and found.dtype == np.uint8)


def test_class_maps_are_numbers():
    numbers = np.random.default_rng(0).integers(0, 12, (5, 7), dtype=np.uint8)
    assert np.array_equal(read_class_map(encoded(numbers)), numbers)
    palette = Image.fromarray(numbers)
    palette.putpalette(list(range(36)))
    file = io.BytesIO()
    palette.save(file, "PNG")
    assert np.array_equal(read_class_map(file.getvalue()), numbers)
    assert np.array_equal(read_class_map(encoded(numbers.astype(np.uint16) * 1000)), numbers.astype(np.uint16) * 1000)
    assert np.array_equal(read_class_map(encoded(numbers > 5)), numbers > 5)
    with pytest.raises(DataError, match=r"row 3: .*one number for each pixel"):
        read_class_map(encoded(colours()), "row 3")


def test_saved_pixels_are_read_back(tmp_path):
    save_png(tmp_path / "a.png", colours())
    assert np.array_equal(read_image(tmp_path / "a.png"), colours())
    save_png(tmp_path / "a.png", colours()[:, :, 0])
    assert np.array_equal(read_class_map(tmp_path / "a.png"), colours()[:, :, 0])
