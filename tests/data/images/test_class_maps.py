"""Class maps have the numbers that the file has, whatever its depth; Pillow 13.0 spreads levels to show them."""

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from regard.data.images.reading import class_numbers, read_class_map
from regard.errors import DataError


def packed(levels, depth):
    """Rows of numbers of this many bits, the highest first, each row in whole bytes."""
    rows = []
    for row in levels.tolist():
        bits = "".join(format(number, f"0{depth}b") for number in row)
        bits += "0" * (-len(bits) % 8)
        rows.append(int(bits, 2).to_bytes(len(bits) // 8, "big"))
    return rows


def chunk(name, content):
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def png(levels, depth, colours=0, *others):
    height, width = levels.shape
    head = struct.pack(">IIBBBBB", width, height, depth, colours, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + row for row in packed(levels, depth)))
    parts = (chunk(b"IHDR", head), *others, chunk(b"IDAT", pixels), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def tiff(levels, depth, interpretation=1):
    """Uncompressed, little endian; interpretation 0: the number 0 is white."""
    (height, width), data = levels.shape, b"".join(packed(levels, depth))
    tags = ((256, 3, width), (257, 3, height), (258, 3, depth), (259, 3, 1), (262, 3, interpretation), (273, 4, 8),
            (277, 3, 1), (278, 3, height), (279, 4, len(data)))  # fmt: skip
    entries = b"".join(struct.pack("<HHII", tag, kind, 1, value) for tag, kind, value in tags)
    return b"II*\0" + struct.pack("<I", 8 + len(data)) + data + struct.pack("<H", len(tags)) + entries + bytes(4)


def pgm(levels, largest):
    data = levels.astype(">u2" if largest > 255 else "u1").tobytes()
    return f"P5\n{levels.shape[1]} {levels.shape[0]}\n{largest}\n".encode() + data


def plain_pgm(levels, largest):
    rows = "\n".join(" ".join(map(str, row)) for row in levels.tolist())
    return f"P2\n{levels.shape[1]} {levels.shape[0]}\n{largest}\n{rows}\n".encode()


def numbers(most):
    return (np.arange(35).reshape(5, 7) * 977) % (most + 1)


PALETTE = chunk(b"PLTE", bytes(range(48)))
FILES = {
    **{f"png {depth}": (png(numbers(2**depth - 1), depth), 2**depth - 1) for depth in (1, 2, 4, 8, 16)},
    **{f"palette {depth}": (png(numbers(2**depth - 1), depth, 3, PALETTE), 2**depth - 1) for depth in (1, 2, 4)},
    "png 2 with a transparent level": (png(numbers(3), 2, 0, chunk(b"tRNS", b"\0\1")), 3),
    **{f"tiff {depth}": (tiff(numbers(2**depth - 1), depth), 2**depth - 1) for depth in (1, 2, 4, 8)},
    **{f"tiff {depth}, 0 is white": (tiff(numbers(2**depth - 1), depth, 0), 2**depth - 1) for depth in (2, 4, 8)},
    **{f"pgm {largest}": (pgm(numbers(largest), largest), largest) for largest in (1, 3, 20, 254, 255, 1000, 65535)},
    **{f"plain pgm {largest}": (plain_pgm(numbers(largest), largest), largest) for largest in (3, 20, 255, 1000)},
}


@pytest.mark.parametrize("kind", FILES)
def test_the_numbers_are_those_of_the_file(kind, tmp_path):
    content, largest = FILES[kind]
    path = tmp_path / "a"
    path.write_bytes(content)
    for source in (content, path):
        found = read_class_map(source)
        assert found.dtype in (np.uint8, np.uint16)
        assert np.array_equal(found, numbers(largest))
    with Image.open(io.BytesIO(content)) as image:
        assert np.array_equal(class_numbers(image, "image"), numbers(largest))


def test_an_opaque_alpha_channel_says_nothing():
    grey = numbers(255).astype(np.uint8)
    for alpha in (255, 254):
        image = Image.merge("LA", [Image.fromarray(grey), Image.fromarray(np.full_like(grey, alpha))])
        file = io.BytesIO()
        image.save(file, "PNG")
        if alpha == 255:
            assert np.array_equal(read_class_map(file.getvalue()), grey)
        else:
            with pytest.raises(DataError, match="has transparent pixels, and no class stands for them"):
                read_class_map(file.getvalue())


def test_sixteen_bits_beside_an_alpha_channel_are_refused():
    """Pillow keeps the higher byte alone."""
    rows = np.full((2, 3, 2), 65535, ">u2")
    rows[..., 0] = 5
    pixels = zlib.compress(b"".join(b"\0" + row.tobytes() for row in rows))
    head = struct.pack(">IIBBBBB", 3, 2, 16, 4, 0, 0, 0)
    file = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
    with pytest.raises(DataError, match="must have one number for each pixel"):
        read_class_map(file)
