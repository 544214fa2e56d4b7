"""What the tests of the viewer share: views in the one browser of all tests, offline."""

import contextlib
import re
import xml.etree.ElementTree as ET

import pytest


@pytest.fixture
def browser(chromium):
    """The one browser of all tests."""
    return chromium


class Shown:
    """A view in a browser's page: what it requested, what it complained about, and what it shows."""

    def __init__(self, page, address, requests, complaints):
        self.page, self.file = page, address
        self.requests, self.complaints = requests, complaints
        page.goto(address)
        page.wait_for_selector("canvas")
        self.settle()

    def settle(self):
        """Waits until what was asked for is drawn."""
        self.page.evaluate(
            """async () => {
              const stage = document.getElementById('viewer').shadowRoot.getElementById('stage');
              const frame = () => new Promise((done) => requestAnimationFrame(done));
              const busy = () => stage.getAttribute('aria-busy') !== 'false';
              for (let frames = 0; frames < 3 || busy(); frames += 1) await frame();
            }"""
        )

    def call(self, name, *arguments):
        """A method of the handle that ``mount`` gave."""
        return self.page.evaluate(
            "([name, given]) => document.getElementById('viewer').regardView[name](...given)", [name, list(arguments)]
        )

    def show(self, view, **selection):
        self.call("show", view, selection)
        self.settle()

    def menu(self):
        """The page with the menu of what is rare open."""
        if self.page.locator(".menu").is_hidden():
            self.page.get_by_role("button", name="More", exact=True).click()
        return self.page

    def boxes(self, selector):
        """The boxes of the visible elements, asked for at once: a question to the browser takes milliseconds."""
        return self.page.locator(selector).evaluate_all(
            """(all) => all.filter((one) => getComputedStyle(one).visibility === 'visible')
              .map((one) => one.getBoundingClientRect()).filter((box) => box.width && box.height)
              .map(({ x, y, width, height }) => ({ x, y, width, height }))"""
        )

    def middle(self, item):
        place = self.call("locate", item)
        return place["x"] + place["width"] / 2, place["y"] + place["height"] / 2

    def hover(self, **item):
        self.page.mouse.move(*self.middle(item))
        self.settle()
        return self.readout

    def click(self, **item):
        self.page.mouse.click(*self.middle(item))
        self.settle()

    def press(self, *keys):
        for key in keys:
            self.page.keyboard.press(key)
        self.settle()

    def station(self, name):
        """The card of a station of the walk, opened by its entry of the strip."""
        card = self.page.locator(f".station[data-station={name}]")
        if card.count() == 0:
            self.page.locator(f".strip [data-goes={name}]").click()
            self.settle()
        return card

    @property
    def words(self):
        """Every text of the picture that is saved, in one line."""
        tree = ET.fromstring(self.call("svg"))
        return " ".join(element.text or "" for element in tree.iter("{http://www.w3.org/2000/svg}text"))

    @property
    def readout(self):
        return self.page.locator(".readout").text_content()

    @property
    def tip(self):
        tip = self.page.locator(".tip")
        return tip.text_content() if tip.is_visible() else None

    @property
    def colors(self):
        """How many colours the canvas has."""
        return self.page.evaluate(
            """() => {
              const canvas = document.getElementById('viewer').shadowRoot.querySelector('canvas');
              const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
              const seen = new Set();
              for (let i = 0; i < data.length; i += 4) seen.add((data[i] << 16) | (data[i + 1] << 8) | data[i + 2]);
              return seen.size;
            }"""
        )

    def pixel(self, x, y):
        """Red, green, blue of the canvas at a place of the window."""
        return self.page.evaluate(
            """([x, y]) => {
              const canvas = document.getElementById('viewer').shadowRoot.querySelector('canvas');
              const box = canvas.getBoundingClientRect();
              return [...canvas.getContext('2d').getImageData(x - box.left, y - box.top, 1, 1).data].slice(0, 3);
            }""",
            [x, y],
        )


@pytest.fixture
def show(pages, tmp_path):
    """Saves a view, opens the file without a network, and gives it as `Shown`; complains if the page did."""
    shown = []
    with contextlib.ExitStack() as opened:

        def make(view, *, size=(1100, 800), pages=pages, **options):
            path = view.save(tmp_path / f"view-{len(shown)}.html")
            requests, complaints = [], []
            listeners = {
                "request": lambda request: requests.append(request.url),
                "console": lambda message: complaints.append(message.text) if message.type == "error" else None,
                "pageerror": lambda error: complaints.append(str(error)),
            }
            page = opened.enter_context(pages.opened(*size, listeners, offline=True, **options))
            shown.append(Shown(page, path.as_uri(), requests, complaints))
            return shown[-1]

        yield make
        complaints = [complaint for one in shown for complaint in one.complaints]
    assert not complaints


@pytest.fixture
def numbers():
    """Reads numbers off a text as the viewer writes them."""

    def read(text):
        plain = text.replace("−", "-").replace("∞", "inf")
        return [float(found) for found in re.findall(r"-?(?:\d+\.\d+(?:e-?\d+)?|\d+e-?\d+|\binf\b)", plain)]

    return read
