"""Seconds, bytes and counts as text: three digits and a unit."""

import math


def in_seconds(seconds: float) -> str:
    """``0.0123`` is ``12.3 ms``."""
    if not math.isfinite(seconds):
        return "—"
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if abs(seconds) >= size:
            return f"{three_digits(seconds / size)} {unit}"
    return f"{three_digits(seconds / 1e-9)} ns"


def in_bytes(number: float) -> str:
    """``1048576`` is ``1.00 MiB``."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if abs(number) >= size:
            return f"{three_digits(number / size)} {unit}"
    return f"{number:.0f} B"


def in_count(number: float) -> str:
    """``67_100_000`` is ``67.1 M``."""
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(number) >= size:
            return f"{three_digits(number / size)} {unit}"
    return f"{number:.0f}"


def three_digits(number: float) -> str:
    """A number with three significant digits, without an exponent."""
    if number == 0 or not math.isfinite(number):
        return "0" if number == 0 else "—"
    places = max(0, 2 - math.floor(math.log10(abs(number))))
    return f"{number:.{places}f}"
