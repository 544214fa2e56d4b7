"""A real Chromium for tests: the one that is installed, found by its name; no other is downloaded."""

import os
import shutil
from contextlib import contextmanager

import pytest

from fonts import write_fontconfig, write_widened_fonts

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run",
             "--disable-component-update", "--disable-sync"]  # fmt: skip


def _missing(reason):
    """Skip, but not in continuous integration: there the browser is installed."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def launch():
    """Starts Chromium in an environment. A process has one Playwright, which keeps an event loop in its thread."""
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        _missing("no Chromium is installed")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _missing("playwright is not installed")
    with sync_playwright() as playwright:
        browsers = []

        def start(**environment):
            browser = playwright.chromium.launch(
                executable_path=path, args=ARGUMENTS, env={**os.environ, **environment}
            )
            browsers.append(browser)
            return browser

        yield start
        for browser in browsers:
            browser.close()


@pytest.fixture(scope="session")
def chromium(launch):
    """A running Chromium: one for all tests of a process."""
    return launch()


class Pages:
    """Pages of one browser, each in a context of its own: one that a test gives back empty serves a later one.

    A new context, with its process, takes more time than opening a view in it.
    """

    def __init__(self, browser):
        self._browser, self._free = browser, {}

    @contextmanager
    def opened(self, width=1280, height=720, listeners=None, **options):
        """An empty page of this size, in a context with these options.

        The listeners, by the name of their event, hear nothing of what earlier tests did in it.
        """
        free = self._free.setdefault(repr(sorted(options.items())), [])
        page = free.pop() if free else self._browser.new_context(**options).new_page()
        page.set_viewport_size({"width": width, "height": height})
        for event, listener in (listeners or {}).items():
            page.on(event, listener)
        yield page
        for event, listener in (listeners or {}).items():
            page.remove_listener(event, listener)
        page.unroute_all(behavior="ignoreErrors")
        page.evaluate("() => { try { localStorage.clear(); } catch { /* a page that has no origin keeps nothing */ } }")
        page.goto("about:blank")
        page.mouse.move(-1, -1)
        free.append(page)


@pytest.fixture(scope="session")
def pages(chromium):
    """The pages of the one browser."""
    return Pages(chromium)


@pytest.fixture(scope="session")
def wide_pages(launch, tmp_path_factory):
    """The pages of a browser whose only font has letters half as wide again as a wide one's."""
    folder = tmp_path_factory.mktemp("fonts")
    write_widened_fonts(folder, 1.5)
    return Pages(launch(FONTCONFIG_FILE=str(write_fontconfig(folder, folder))))
