"""What is opened is a regular file of a stated largest size, and no link leads out of the folder that names it."""

import os
from pathlib import Path

import pytest

from regard.data.images import reading
from regard.data.images.image_rows import labelled_images
from regard.data.images.masked_images import open_masked
from regard.data.labels import Labels, PixelClasses
from regard.data.speech.sounds import read_features, read_sound
from regard.data.speech.utterances import open_utterances
from regard.data.text.running_text import text_blocks, text_files
from regard.data.text.sources import open_labelled, open_pairs
from regard.data.text.tokenizers import TextTokenizer, Tokenizer
from regard.errors import RegardError, RunError
from regard.files.regular import open_regular, open_text, path_inside, read_bytes, read_text, tree_inside

TERABYTES = 1 << 42


def irregular_files(folder, suffix):
    """A pipe without a writer, a device without an end, a sparse file of terabytes, and a link to itself."""
    names = {name: folder / f"{name}{suffix}" for name in ("pipe", "device", "huge", "loop")}
    os.mkfifo(names["pipe"])
    os.symlink("/dev/zero", names["device"])
    with names["huge"].open("wb") as file:
        file.truncate(TERABYTES)
    os.symlink(names["loop"].name, names["loop"])
    return list(names.values())


@pytest.mark.parametrize("read", [open_regular, read_bytes, read_text, open_text])
def test_only_regular_files_of_the_stated_size_are_opened(read, tmp_path):
    reasons = ("a pipe, not a regular file", "a device, not a regular file", "bytes or more", "symbolic links")
    for path, reason in zip(irregular_files(tmp_path, ""), reasons, strict=True):
        with pytest.raises(OSError, match=reason) as caught:
            read(path, 1 << 20)
        assert caught.value.filename == str(path)
    with pytest.raises(IsADirectoryError):
        read(tmp_path, 1 << 20)
    (tmp_path / "file").write_text("ä\r\nb")
    with pytest.raises(OSError, match="it has 5 bytes or more, and at most 4 are read"):
        read(tmp_path / "file", 4)
    assert len(os.listdir("/proc/self/fd")) < 60


def test_regular_files_are_read_as_path_reads_them(tmp_path):
    path = tmp_path / "file"
    path.write_bytes("\ufeffä\r\nb".encode())
    assert read_bytes(path, 8) == path.read_bytes()
    assert read_text(path, 8, "utf-8-sig") == path.read_text("utf-8-sig") == "ä\nb"
    with open_text(path, 8, newline="") as file:
        assert file.read() == "\ufeffä\r\nb"


READERS = {
    ".tsv": (open_pairs, open_labelled, open_utterances, labelled_images, open_masked),
    ".csv": (open_pairs, open_labelled, open_utterances, labelled_images, open_masked),
    ".jsonl": (open_pairs, open_labelled, open_utterances, labelled_images, open_masked),
    ".json": (open_pairs, open_utterances, labelled_images, open_masked),
    ".parquet": (open_pairs, open_labelled, open_utterances, labelled_images, open_masked),
    ".txt": (lambda path: open_pairs((path, path)), lambda path: [list(text_blocks(one)) for one in text_files(path)]),
    ".png": (reading.read_image, reading.read_class_map, reading.image_size),
    ".wav": (read_sound,),
    ".npy": (read_features,),
    ".safetensors": (TextTokenizer.load, Tokenizer.load, Labels.load, PixelClasses.load),
}


@pytest.mark.parametrize("suffix", READERS)
def test_every_reader_of_data_refuses_what_is_no_file(suffix, tmp_path):
    """One line, which names the file; no reader waits, and none grows."""
    for path in irregular_files(tmp_path, suffix):
        for read in READERS[suffix]:
            with pytest.raises(RegardError) as caught:
                read(path)
            message = str(caught.value)
            assert str(path) in message, (path, read)
            assert "\n" not in message
            assert path.name.startswith("loop") or "no such file" not in message, message


def test_a_text_of_a_class_is_a_file(tmp_path):
    (tmp_path / "good").mkdir()
    (tmp_path / "bad").mkdir()
    (tmp_path / "good" / "1.txt").write_text("fine")
    with (tmp_path / "bad" / "1.txt").open("wb") as file:
        file.truncate(TERABYTES)
    with pytest.raises(RegardError, match=r"bad/1\.txt: cannot be read \(it has 4,398,046,511,104 bytes or more"):
        open_labelled(tmp_path)


def test_a_path_inside_a_folder_may_be_a_link_inside_it_only(tmp_path):
    folder, outside = tmp_path / "run", tmp_path / "outside"
    (folder / "sub").mkdir(parents=True)
    outside.mkdir()
    (folder / "file").write_text("")
    for name, target in {
        "near": "file", "out": outside, "dangling": outside / "none", "relative": "../outside", "loop": "loop",
    }.items():  # fmt: skip
        os.symlink(target, folder / name)
    os.symlink("../../outside/none", folder / "sub" / "deep")
    os.symlink(folder, tmp_path / "typed")
    for root in (folder, tmp_path / "typed", os.path.relpath(folder)):
        for name in ("file", "near", "none", "sub/none", "sub/../file", "."):
            assert path_inside(root, name) == Path(root, name)
        for name in (
            "loop",
            "out",
            "out/file",
            "dangling",
            "relative/x",
            "sub/deep",
            "..",
            "../run2",
            str(outside),
            "a\0b",
        ):
            with pytest.raises(RunError):
                path_inside(root, name)
        with pytest.raises(RunError, match="deep leads out of"):
            tree_inside(root, "sub")
    os.remove(folder / "sub" / "deep")
    assert tree_inside(folder, "sub") == folder / "sub"
    assert tree_inside(folder, "none") == folder / "none"
