"""The fonts of tests: Matplotlib's own alone, whatever the machine has, for pictures and for the browser.

The variables of the environment hold for the processes that a test starts too.
"""

import os
import shutil
import tempfile
import warnings
from importlib.util import find_spec
from pathlib import Path

import pytest

SYSTEM_FONTS_HIDDEN = "MPL_IGNORE_SYSTEM_FONTS"
"""Matplotlib 3.11 does not look for fonts beside its own if this variable is set."""


def bundled_fonts():
    """The folder of the fonts that Matplotlib ships, found without importing it; None without Matplotlib."""
    spec = find_spec("matplotlib")
    return spec and Path(spec.origin).parent / "mpl-data" / "fonts" / "ttf"


def write_fontconfig(folder, fonts):
    """Writes a configuration of fontconfig that knows one folder of fonts; gives its path for ``FONTCONFIG_FILE``."""
    path = Path(folder) / "fonts.conf"
    path.write_text(
        f"<?xml version='1.0'?><!DOCTYPE fontconfig SYSTEM 'fonts.dtd'>"
        f"<fontconfig><dir>{fonts}</dir><cachedir>{folder}/cache</cachedir></fontconfig>"
    )
    return path


def write_widened_fonts(folder, factor):
    """Writes DejaVu Sans, regular and bold, with letters ``factor`` times as far apart, into a folder."""
    from fontTools.ttLib import TTFont  # a dependency of Matplotlib

    for name in ("DejaVuSans.ttf", "DejaVuSans-Bold.ttf"):
        font = TTFont(bundled_fonts() / name)
        metrics = font["hmtx"].metrics
        font["hmtx"].metrics = {glyph: (round(factor * width), left) for glyph, (width, left) in metrics.items()}
        for table in {"GPOS", "GSUB", "kern"} & set(font.keys()):  # distances of pairs, and joined letters
            del font[table]
        font.save(folder / name)


def hide_system_fonts(config):
    """Hides them until the tests end. The workers of pytest-xdist inherit the environment of the first process."""
    if SYSTEM_FONTS_HIDDEN in os.environ or bundled_fonts() is None:
        return
    folder = tempfile.mkdtemp(prefix="regard-fonts-")
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    # Matplotlib's list of fonts is kept in its folder of settings: another folder, another list.
    os.environ.update(
        {
            SYSTEM_FONTS_HIDDEN: "1",
            "MPLCONFIGDIR": folder,
            "FONTCONFIG_FILE": str(write_fontconfig(folder, bundled_fonts())),
        }
    )


@pytest.fixture
def need_system_fonts(monkeypatch):
    """Makes the fonts of this machine usable in a test; a function skips it where they lack characters of a text."""
    from matplotlib.font_manager import fontManager

    from regard.pictures import fonts

    def need(text):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            fonts.Lettering([text])
        if caught:
            pytest.skip(f"no installed font has {text!r}")

    monkeypatch.delenv(SYSTEM_FONTS_HIDDEN, raising=False)
    monkeypatch.delenv("FONTCONFIG_FILE", raising=False)
    listed = list(fontManager.ttflist)
    _forget(fonts)
    yield need
    fontManager.ttflist[:] = listed
    _forget(fonts)


def _forget(fonts):
    fonts._installed.cache_clear()
    fonts._coverage.cache_clear()
