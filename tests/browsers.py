"""A real Chromium for tests: the one that is installed, found by its name; no other is downloaded."""

import os
import shutil

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run",
             "--disable-component-update", "--disable-sync"]  # fmt: skip


def _missing(reason):
    """Skip, but not in continuous integration: there the browser is installed."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def chromium():
    """A running Chromium: one for all tests of a process, since Playwright keeps an event loop in its thread."""
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        _missing("no Chromium is installed")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _missing("playwright is not installed")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()
