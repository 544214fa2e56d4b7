"""What tests of compiled kernels share."""

import logging

import pytest


@pytest.fixture
def forgotten():
    """What was found out about this machine's folders and packages is found out again, and said again."""
    from regard.kernels.cpu import cache, compiling_process, kernel

    def forget():
        cache.cache_folder.cache_clear()
        kernel._warn_once.cache_clear()
        compiling_process.BACKGROUND.forget()
        compiling_process.FOREGROUND.forget()

    forget()
    yield cache
    forget()


@pytest.fixture
def folder(tmp_path, monkeypatch, forgotten):
    """The folder of this test's kernels."""
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    return forgotten.cache_folder()


@pytest.fixture
def said(caplog):
    """What the logger was told since it was asked last, a list of lines."""

    def lines():
        found = [record.getMessage() for record in caplog.records if record.name == "regard"]
        caplog.clear()
        return found

    with caplog.at_level(logging.INFO, logger="regard"):
        yield lines
