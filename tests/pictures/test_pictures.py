"""What holds for every picture: headless, no global state, written whole or not at all."""

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import torch

from regard import pictures
from regard.errors import ArgumentError, DataError

WEIGHTS = np.full((3, 5), 0.2)


def every_picture():
    yield pictures.alignment(WEIGHTS, list("abcde"), list("xyz"), title="t", links=[(0, 0)], annotate=True)
    yield pictures.calculation([pictures.Panel("scores", WEIGHTS)], title="t")
    yield pictures.training_curves({"step": [1, 2], "train_loss": [3, 2], "val_bleu": [1, 5]}, title="t")
    yield pictures.bleu_by_length(["1–5", "6–10"], {"a": [3, 4]}, [7, 11], title="t")
    yield pictures.position_table(WEIGHTS, title="t")


def test_importing_the_room_imports_no_matplotlib_and_drawing_no_pyplot():
    script = (
        "import sys, regard.pictures as p\n"
        "assert not any(name.split('.')[0] == 'matplotlib' for name in sys.modules)\n"
        "import io\n"
        "p.alignment([[1.0]], ['a'], ['b']).savefig(io.BytesIO(), format='png')\n"
        "p.bleu_by_length(['1'], {'a': [1.0]}).savefig(io.BytesIO(), format='svg')\n"
        "assert 'matplotlib.figure' in sys.modules and 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)


def test_drawing_leaves_the_global_settings_alone(tmp_path):
    before = dict(matplotlib.rcParams)
    for number, figure in enumerate(every_picture()):
        pictures.save(figure, tmp_path / f"{number}.png", dpi=40)
    assert dict(matplotlib.rcParams) == before


def pictures_of_long_texts():
    title, name = "W" * 500, "M" * 90
    yield pictures.alignment(WEIGHTS, [name] * 5, [name] * 3, title=title)
    yield pictures.calculation([pictures.Panel(name, WEIGHTS, [name] * 3, [name] * 5, title)], title=title)
    yield pictures.calculation(
        [pictures.Panel("big", np.arange(-30.0, 2970).reshape(50, 60), [name] * 50)], title=title
    )
    yield pictures.training_curves({name + "loss": [3, 2], name + "bleu": [1, 5]}, title=title)
    yield pictures.bleu_by_length([name, "6–10"], {name: [3, 4], name + "2": [4, 5]}, [7, 11], title=title)
    yield pictures.bleu_by_length([f"bin {i} of 30" for i in range(30)], {name: range(30)}, [99_999] * 30)
    yield pictures.position_table(WEIGHTS, title=title)


@pytest.mark.parametrize("drawn", [every_picture, pictures_of_long_texts])
def test_no_text_lies_outside_its_sheet(drawn):
    for figure in drawn():
        figure.canvas.draw()
        width, height = figure.bbox.size
        for text in figure.findobj(matplotlib.text.Text):
            axis_of_nothing = text.axes is not None and not text.axes.axison
            if text.get_visible() and text.get_text() and not axis_of_nothing:
                box = text.get_window_extent()
                inside = box.x0 >= -1 and box.y0 >= -1 and box.x1 <= width + 1 and box.y1 <= height + 1
                beyond_the_view = text.get_text() in _hidden_ticks(figure)
                assert inside or beyond_the_view, text


def _hidden_ticks(figure):
    """Labels of ticks that matplotlib keeps just outside the limits of an axis and never draws."""
    hidden = set()
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            hidden |= {tick.label1.get_text() for tick in axis.get_major_ticks() if not low <= tick.get_loc() <= high}
            hidden |= {tick.label2.get_text() for tick in axis.get_major_ticks() if not low <= tick.get_loc() <= high}
    return hidden


@pytest.mark.parametrize(("suffix", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("PDF", b"%PDF")])
def test_save_writes_what_the_suffix_says(tmp_path, suffix, magic):
    path = tmp_path / f"weights.{suffix}"
    assert pictures.save(pictures.position_table(WEIGHTS), str(path)) == path
    assert path.read_bytes().startswith(magic)
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_save_gives_the_same_bytes_twice(tmp_path):
    for suffix in ("png", "pdf"):
        first = pictures.save(pictures.position_table(WEIGHTS), tmp_path / f"a.{suffix}").read_bytes()
        assert pictures.save(pictures.position_table(WEIGHTS), tmp_path / f"b.{suffix}").read_bytes() == first


def test_every_picture_is_its_own_output_in_a_notebook():
    assert all(figure._repr_png_().startswith(b"\x89PNG") for figure in every_picture())


def test_save_refuses_other_suffixes_and_resolutions(tmp_path):
    figure = pictures.position_table(WEIGHTS)
    with pytest.raises(ArgumentError, match=r"\.png, \.svg, \.pdf.*gif"):
        pictures.save(figure, tmp_path / "a.gif")
    with pytest.raises(ArgumentError, match=r"\.png"):
        pictures.save(figure, tmp_path / "a")
    with pytest.raises(ArgumentError, match="dpi"):
        pictures.save(figure, tmp_path / "a.png", dpi=0)


@pytest.mark.parametrize("suffix", ["png", "pdf", "svg"])
@pytest.mark.parametrize("dpi", [float("nan"), float("inf"), -1, 0, 1e-9, 0.3, 1e9, 1e300, True, "150", 20_000])
def test_absurd_resolutions_are_refused_with_the_limit_before_anything_is_drawn(tmp_path, suffix, dpi):
    figure = pictures.position_table(WEIGHTS)
    figure.savefig = lambda *arguments, **settings: pytest.fail("drawn")
    with pytest.raises(ArgumentError, match="dpi must be") as caught:
        pictures.save(figure, tmp_path / f"a.{suffix}", dpi=dpi)
    assert "\n" not in str(caught.value)
    if isinstance(dpi, float) and dpi in (1e9, 0.3):
        assert "for this picture of" in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: pictures.position_table(torch.zeros(1).expand(100_000, 100_000)), "at most 4,194,304 numbers"),
        (lambda: pictures.calculation([pictures.Panel("w", np.broadcast_to(0.0, (100_000, 100_000)))]), "4,194,304"),
        (lambda: pictures.alignment(np.zeros((1, 10**6)), ["a"] * 10**6, ["b"]), "at most 10,000 tokens"),
        (lambda: pictures.alignment(np.zeros((1, 20_000)), ["a"] * 20_000, ["b"]), "at most 10,000 tokens"),
        (lambda: pictures.bleu_by_length(["1"] * 10_000, {"a": [1.0] * 10_000}), "at most 200 bins"),
    ],
)
def test_absurd_sizes_are_refused_with_the_limit(draw, message):
    with pytest.raises(ArgumentError, match=message):
        draw()


def test_wide_panels_stay_on_a_sheet_that_can_be_saved(tmp_path):
    columns = 20_000
    figure = pictures.calculation(
        [pictures.Panel("wide", np.arange(columns)[None], None, [f"k{i}" for i in range(columns)])]
    )
    assert figure.get_size_inches().max() < 20
    pictures.save(figure, tmp_path / "a.png")


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_modes_of_files_follow_the_umask(tmp_path, mask):
    before = os.umask(mask)
    try:
        for path in (tmp_path / "a.png", tmp_path / "a.svg"):
            pictures.save(pictures.position_table(WEIGHTS), path, dpi=40)
            assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask
    finally:
        os.umask(before)


def test_names_of_files_may_be_as_long_as_the_system_lets_them(tmp_path):
    path = tmp_path / f"{'漢' * 83}.png"
    assert pictures.save(pictures.position_table(WEIGHTS), path, dpi=40).is_file()
    for name in ("x" * 5000 + ".png", "nul\0.png"):
        with pytest.raises(DataError, match="cannot write") as caught:
            pictures.save(pictures.position_table(WEIGHTS), tmp_path / name, dpi=40)
        assert len(str(caught.value)) < 400
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_device_is_written_to_and_never_replaced(tmp_path):
    link = tmp_path / "link.png"
    link.symlink_to("/dev/full")
    with pytest.raises(DataError, match="No space left"):
        pictures.save(pictures.position_table(WEIGHTS), link, dpi=40)
    assert Path("/dev/full").is_char_device()
    assert link.is_symlink()


def test_save_says_that_the_folder_is_missing(tmp_path):
    with pytest.raises(DataError, match="does not exist"):
        pictures.save(pictures.position_table(WEIGHTS), tmp_path / "nowhere" / "a.png")
    assert not list(tmp_path.iterdir())


def test_save_into_a_folder_that_is_a_file_or_onto_a_folder(tmp_path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder.png").mkdir()
    for path in (tmp_path / "file" / "a.png", tmp_path / "folder.png"):
        with pytest.raises(DataError, match="cannot write"):
            pictures.save(pictures.position_table(WEIGHTS), path)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file", "folder.png"]


def test_a_full_disk_leaves_the_old_picture_and_no_half(tmp_path, monkeypatch):
    path = tmp_path / "a.png"
    path.write_bytes(b"old")
    figure = pictures.position_table(WEIGHTS)

    def fill(path, **settings):
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(figure, "savefig", fill)
    with pytest.raises(DataError, match="No space left"):
        pictures.save(figure, path)
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.png"]


def test_save_through_a_link_keeps_the_link(tmp_path):
    real = tmp_path / "real.png"
    real.write_bytes(b"old")
    link = tmp_path / "link.png"
    link.symlink_to(real)
    pictures.save(pictures.position_table(WEIGHTS), link)
    assert link.is_symlink()
    assert real.read_bytes().startswith(b"\x89PNG")


def test_all_names_what_there_is():
    assert all(hasattr(pictures, name) for name in pictures.__all__)
    assert Path(pictures.__file__).parent.name == "pictures"
