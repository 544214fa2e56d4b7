"""What tests of compiled kernels share."""

import logging

import pytest


@pytest.fixture
def forgotten(monkeypatch):
    """What was found out about this machine's folders and packages is found out again, and said again.

    The worker that compiles the kernels of all tests is put aside, since it stores them in their folder.
    """
    from regard.kernels.cpu import cache, compiling_process, kernel

    monkeypatch.setattr(compiling_process, "_PROGRAM", "regard.kernels.cpu.compiling")
    workers = compiling_process.BACKGROUND, compiling_process.FOREGROUND
    states = [vars(worker).copy() for worker in workers]

    def forget():
        cache.cache_folder.cache_clear()
        kernel._warn_once.cache_clear()
        for worker in workers:
            worker.forget()

    forget()
    yield cache
    forget()
    for worker, state in zip(workers, states, strict=True):
        vars(worker).update(state)


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
