"""The colours of numbers, alike in the viewer, in pictures, in tables of notebooks and on the page.

Each palette is a list of points with even steps of lightness in OKLCH (Ottosson 2020), so that equal steps of a number
look alike with every kind of colour vision, and in grey. ``palette.js`` of the viewer has the same points.
"""

from collections.abc import Sequence

AMOUNT = {
    "light": "e8f2f7 cce6f4 b2daf0 99cdec 83bfe6 6eb1df 5ca2d7 4c94ce 3f85c3 3476b7 2c68aa 255a9b 214c8b 1d3f7b 193369 "
    "152757 111d44",
    "dark": "232a3c 263452 283f68 294b7d 295891 2865a3 2873b3 2a82c1 3090ce 3b9fd9 4aaee2 5dbcea 74caf0 8dd7f4 a9e3f8 "
    "c7effb e7f9fe",
}
"""The amount of attention on light and on dark paper, from almost paper to ink; exactly zero is paper itself."""

SIGN = {
    "light": "73110e 8f2721 ab3b32 c65247 d37468 df948a e8b3ac f0d3ce f2f3f6 cddcf1 a9c4eb 86ace5 6294dd 3d7bd4 2964b9 "
    "164e9c 013980",
    "dark": "fec0b3 fd9b88 e7826e cf6a57 ab5c4d 884f43 674139 47332f 252728 2d3a48 354f69 3b648d 417ab2 4690d8 5fa7ef "
    "80bfff aed5fe",
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
