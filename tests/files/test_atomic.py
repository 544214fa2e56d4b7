"""Files are written whole or not at all, with the mode that the user's umask gives."""

import errno
import os
import stat

import pytest

from regard.errors import WriteError
from regard.files.atomic import AtomicFile, discard_temporaries, temporary_folder, write_atomically


def test_a_write_that_fails_leaves_the_old_file(tmp_path):
    place = tmp_path / "file"
    write_atomically(place, b"old")

    def fail(error):
        with AtomicFile(place) as temporary:
            temporary.write_bytes(b"ne")
            raise error

    with pytest.raises(WriteError, match="No space left on device; the old file is unchanged; free some disk space"):
        fail(OSError(errno.ENOSPC, "No space left on device"))
    with pytest.raises(KeyboardInterrupt):
        fail(KeyboardInterrupt())
    assert place.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_a_folder_that_is_not_there_or_is_a_file(tmp_path):
    with pytest.raises(WriteError, match=r"the folder .* does not exist"):
        write_atomically(tmp_path / "none" / "file", b"")
    (tmp_path / "file").write_bytes(b"old")
    with pytest.raises(WriteError, match="cannot write"):
        write_atomically(tmp_path / "file" / "inside", b"")
    (tmp_path / "folder").mkdir()
    with pytest.raises(WriteError, match="cannot write"):
        write_atomically(tmp_path / "folder", b"")


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_the_mode_follows_the_umask(tmp_path, umask):
    before = os.umask(umask)
    try:
        write_atomically(tmp_path / "file", b"")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o666 & ~umask


def test_through_a_link_the_file_is_replaced_and_not_the_link(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there" / "file")
    write_atomically(tmp_path / "link", b"new")
    assert (tmp_path / "there" / "file").read_bytes() == b"new"
    assert (tmp_path / "link").is_symlink()


def test_the_whole_temporary_file_is_shown_before_it_replaces(tmp_path):
    write_atomically(tmp_path / "file", b"old")
    seen = []
    write_atomically(
        tmp_path / "file", b"new", lambda path: seen.append((path.read_bytes(), (tmp_path / "file").read_bytes()))
    )
    assert seen == [(b"new", b"old")]


def test_temporary_files_of_a_process_that_ends_are_deleted(tmp_path):
    with AtomicFile(tmp_path / "file") as temporary:
        temporary.write_bytes(b"half")
        discard_temporaries()
        assert os.listdir(tmp_path) == []
        temporary.write_bytes(b"whole")
    discard_temporaries()
    assert (tmp_path / "file").read_bytes() == b"whole"


def test_a_temporary_folder_is_deleted_after_its_block_and_when_the_process_ends(tmp_path):
    with temporary_folder(tmp_path) as folder:
        (folder / "sub").mkdir()
        (folder / "sub" / "file").write_text("half")
        if not os.fork():
            discard_temporaries()  # a worker deletes nothing of its parent
            os._exit(0)
        os.wait()
        assert (folder / "sub" / "file").is_file()
        discard_temporaries()
        assert os.listdir(tmp_path) == []
    with temporary_folder(tmp_path) as folder:
        (folder / "file").write_text("half")
    assert os.listdir(tmp_path) == []


def test_long_names_are_written(tmp_path):
    place = tmp_path / ("n" * 250 + ".csv")
    write_atomically(place, b"new")
    assert place.read_bytes() == b"new"
