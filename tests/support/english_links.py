"""The links of a page of the Chinese site that lead to an English one without saying so."""

import re
from html.parser import HTMLParser

from two_languages import ENGLISH


class _Links(HTMLParser):
    """The classes, the address and the text of each link, and the titles of the cards."""

    def __init__(self, text: str):
        super().__init__()
        self.links: list[tuple[str, str, str]] = []
        self.open: list[str] | None = None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        if tag == "a" and re.match(r"(\.\./)+en/", values.get("href") or ""):
            self.open = [values.get("class") or "", values["href"], ""]

    def handle_data(self, data):
        if self.open is not None:
            self.open[2] += data

    def handle_endtag(self, tag):
        if tag == "a" and self.open is not None:
            self.links.append(tuple(self.open))
            self.open = None


def unmarked_links(text: str) -> list[str]:
    """The addresses of the links to English pages whose text does not end with the mark, without the switch."""
    return [
        address
        for classes, address, words in _Links(text).links
        if "regard-language" not in classes and not words.rstrip().endswith(ENGLISH)
    ]
