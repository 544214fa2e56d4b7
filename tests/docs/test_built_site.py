"""The site that `docs/build.py` built: its links, its pictures, its search, and what it asks other hosts for (nothing).

`make docs-test` builds it and runs these; without ``--site`` they are left out.
"""

import re
from functools import cache
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path
from urllib.parse import unquote, urlsplit

import numpy as np
import pytest
from PIL import Image

from book import ROOT, pages
from english_links import unmarked_links

SITE = ROOT / "build" / "site"
LINKS = {"a": "href", "link": "href", "img": "src", "script": "src", "iframe": "src", "source": "src"}
WORDS = {"en": ("attention", "queries"), "zh": ("注意力", "查询和键")}
TITLES = {"en": ("softmax", "cosine"), "zh": ("位置", "分类器")}


@pytest.fixture(autouse=True, scope="module")
def _built(request):
    if not request.config.getoption("site"):
        pytest.skip("the site is tested by make docs-test")
    assert (SITE / "index.html").exists(), "build it first: python docs/build.py"


class Page(HTMLParser):
    """What a page of the site links to, loads, and can be linked to by."""

    def __init__(self, text: str):
        super().__init__()
        self.links: list[tuple[str, str]] = []
        self.anchors: set[str] = set()
        self.language = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.anchors |= {values[name] for name in ("id", "name") if values.get(name)}
        if tag == "html":
            self.language = values.get("lang", "")
        if values.get(LINKS.get(tag, "")):
            self.links.append((tag, values[LINKS[tag]]))


@cache
def page(path: Path) -> Page:
    return Page(path.read_text("utf-8"))


def html_files() -> list[Path]:
    return [
        path
        for path in sorted(SITE.rglob("*.html"))
        if "jupyter_execute" not in path.parts and "_static" not in path.parts
    ]


def test_every_link_leads_to_a_file_and_an_anchor_of_it():
    broken = []
    for path in html_files():
        for tag, link in page(path).links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                assert tag == "a" or parts.scheme == "data", f"{path} loads {link}"
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchor = unquote(parts.fragment)
            is_found = target.is_file() and target.is_relative_to(SITE)
            if not is_found or (anchor and target.suffix == ".html" and anchor not in page(target).anchors):
                broken.append(f"{path.relative_to(SITE)} → {link}")
    assert not broken, "\n".join(broken)


def test_each_page_is_built_in_its_language():
    for folder, tag in (("en", "en"), ("zh", "zh-Hans")):
        for name in pages(folder):
            assert page(SITE / folder / f"{name}.html").language == tag


def test_each_link_from_a_chinese_page_to_an_english_one_says_so():
    found = {path.relative_to(SITE).as_posix(): unmarked_links(path.read_text("utf-8")) for path in html_files()}
    unmarked = {path: links for path, links in found.items() if links and path.startswith("zh/")}
    assert not unmarked


MADE = re.compile(r'<(pre|script|style|code)\b.*?</\1>|<(div|span) class="math.*?</\2>', re.DOTALL)
"""Code, and formulas: what may contain marks of Markdown."""


def test_pictures_are_pictures_and_marks_are_read():
    """A figure that IPython only names, and ``*emphasis*`` beside a full-width sign, show as text."""
    shown = []
    for path in html_files():
        text = path.read_text("utf-8")
        article = text.partition("<article")[2].partition("</article>")[0]
        prose = re.sub(r"<[^>]+>", "", MADE.sub("", article))
        if re.search(r"&lt;Figure size \d", text) or "{external" in prose:
            shown.append(f"{path.relative_to(SITE)}: a figure or a role")
        if "/zh/" in path.as_posix():
            marks = re.findall(r".{0,20}\*.{0,20}", prose)
            shown += [f"{path.relative_to(SITE)}: {mark}" for mark in marks]
    assert not shown, "\n".join(shown)


@pytest.fixture
def browser_page(chromium):
    context = chromium.new_context(viewport={"width": 320, "height": 800})
    requests = []
    context.route("**/*", lambda route: (requests.append(route.request.url), route.continue_()))
    tab = context.new_page()
    tab.regard_requests = requests
    yield tab
    context.close()


EACH_KIND = [
    *(
        f"{language}/{name}"
        for language in ("en", "zh")
        for name in ("index", "learn/index", "learn/01-queries-keys-values")
    ),
    *("en/how-to/index", "en/mechanisms/index", "en/reference/index", "en/understand/index"),
]


@pytest.mark.parametrize("name", EACH_KIND)
def test_a_page_fits_a_phone_and_asks_no_other_host(name, browser_page):
    browser_page.goto((SITE / f"{name}.html").as_uri(), wait_until="load")
    browser_page.wait_for_timeout(300)
    width = browser_page.evaluate("document.documentElement.scrollWidth")
    assert width <= 320, f"{name} is {width} pixels wide"
    hosts = [url for url in browser_page.regard_requests if not url.startswith(("file:", "data:", "blob:"))]
    assert not hosts


@pytest.mark.parametrize("language", WORDS)
def test_the_search_finds_words_of_each_language(language, browser_page):
    for word in WORDS[language]:
        browser_page.goto(f"{(SITE / language / 'search.html').as_uri()}?q={word}")
        browser_page.wait_for_selector("#search-results li a", timeout=20_000)
    for title in TITLES[language]:
        browser_page.goto(f"{(SITE / language / 'search.html').as_uri()}?q={title}")
        browser_page.wait_for_function("document.querySelector('.search-summary')?.innerText.match(/\\d/)")
        first = browser_page.locator("#search-results li a").first.inner_text().lower()
        assert title in first.partition(">")[0], f"{title}: the first result is {first}, not a page of that title"


def test_the_switch_and_the_theme_of_viewers(browser_page):
    browser_page.set_viewport_size({"width": 1400, "height": 900})
    browser_page.goto((SITE / "zh" / "learn" / "index.html").as_uri())
    browser_page.click("a.regard-language >> visible=true")
    assert browser_page.url.endswith("en/learn/index.html")
    browser_page.click("a.regard-language >> visible=true")
    assert browser_page.url.endswith("zh/learn/index.html")
    browser_page.goto((SITE / "en" / "index.html").as_uri())
    for theme, is_bright in (("dark", False), ("light", True), ("dark", False)):
        browser_page.evaluate(f"document.documentElement.dataset.theme = '{theme}'")
        assert any((brightness(browser_page) > 128) is is_bright for _ in range(40)), theme


def brightness(tab) -> float:
    """The mean grey of the first viewer, which Playwright does not list as a frame of a page from a file."""
    tab.wait_for_timeout(500)
    picture = tab.locator("iframe.regard-view").first.screenshot()
    return float(np.asarray(Image.open(BytesIO(picture)).convert("L")).mean())


def test_the_first_page_leads_to_both_languages():
    text = (SITE / "index.html").read_text("utf-8")
    assert set(re.findall(r'<a href="(\w+)/index.html"', text)) == {"en", "zh"}


def test_every_notebook_has_its_link():
    for folder in ("en", "zh"):
        notebooks = sorted((SITE / folder / "notebooks").rglob("*.ipynb"))
        assert notebooks
        for notebook in notebooks:
            name = notebook.relative_to(SITE / folder / "notebooks").with_suffix("")
            targets = {
                (SITE / folder / name.parent / link).resolve() for _, link in page(SITE / folder / f"{name}.html").links
            }
            assert notebook.resolve() in targets
