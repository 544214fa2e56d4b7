"""The colours of numbers, alike in the viewer, in pictures, in tables of notebooks and on the page.

Each palette is a list of points with even steps of lightness in OKLCH (Ottosson 2020), so that equal steps of a number
look alike with every kind of colour vision, and in grey. ``palette.js`` of the viewer has the same points.
"""

from collections.abc import Sequence

AMOUNT = {
    "light": "f8fbfc deeef6 c2e1f2 a7d4ee 8ec6e9 78b8e2 64a9db 529ad2 438ac7 387bbb 2e6cae 275d9e 224f8e 1e417d 19346b "
    "152858 111d44",
    "dark": "181b22 202635 25314b 283d64 294a7b 295890 2866a4 2876b6 2c86c4 3496d2 42a6dd 54b6e6 6cc5ee 87d4f3 a5e1f7 "
    "c4eefb e7f9fe",
}
"""The amount of attention on light and on dark paper, from almost paper to ink; exactly zero is paper itself."""

SIGN = {
    "light": "76090c 922320 b03832 cd4f46 e46c62 f48d82 fdb1a7 fed5d0 f9fafd cee2ff a4cafe 7cb0fa 5997ed 3b7ed8 2666bb "
    "114f9e 003a7e",
    "dark": "ffbebe fc979a ed757c dd515f c13749 9d2a39 75272e 4a2426 1d1e20 1d3349 174774 105d9d 1774c1 368cdb 5fa4e9 "
    "85bdf7 aed5ff",
}
"""Signed numbers: negative is red, zero is paper in the middle, positive is blue."""

HEAD_HUES = ("#0060a8", "#b84a00", "#00795b", "#b0307a", "#6b5900", "#6a3fb5", "#8a4b2a", "#23272f")
"""Hues of heads on light paper; a head has a dash and its number too."""

PAPER, INK, MUTED, BORDER = "#ffffff", "#16181d", "#565d69", "#c3c8d0"
"""Paper, letters, letters of notes, and lines, in light."""

HEAD_DASHES = ((), (8, 3), (2, 3), (9, 3, 2, 3), (14, 4), (4, 2), (9, 3, 2, 3, 2, 3), (16, 3, 5, 3))
"""Lengths of the strokes and gaps of heads, in pixels; () is solid."""

ACCENT = "#c2410c"
"""What is chosen, and marks over a picture."""

MASKED_PAPER, HATCH = "#f4f5f7", "#a3abb8"
"""The ground and the lines of the hatches over what a mask hides."""

MISSING_MARK = "#d0607f"
"""The crosses over NaN."""


def points(palette: str) -> Sequence[str]:
    """Returns the colours of a palette's points as ``#rrggbb``."""
    return [f"#{point}" for point in palette.split()]


def head_style(head: int) -> tuple[str, tuple[int, ...]]:
    """Returns hue and dash of a head: neighbours differ in both, and 64 heads have 64 different pairs."""
    return HEAD_HUES[head % len(HEAD_HUES)], HEAD_DASHES[(head + head // len(HEAD_HUES)) % len(HEAD_DASHES)]


def color_at(palette: str, share: float) -> tuple[int, int, int]:
    """Returns red, green and blue at a share from 0 to 1, between the points in even steps.

    Args:
        palette: one of `AMOUNT` or of `SIGN`.
        share: 0 is the first point, 1 the last one.
    """
    colors = [bytes.fromhex(point) for point in palette.split()]
    place = min(max(share, 0.0), 1.0) * (len(colors) - 1)
    low = min(int(place), len(colors) - 2)
    red, green, blue = (round(a + (b - a) * (place - low)) for a, b in zip(colors[low], colors[low + 1], strict=True))
    return red, green, blue
