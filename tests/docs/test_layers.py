"""The code of docs/en/how-to/layers.md runs."""

from book import cells, pages

PAGE = pages("en")["how-to/layers"]


def test_code_of_the_page_on_layers_runs():
    named = {}
    for code in cells(PAGE):
        exec(compile(code, "docs/en/how-to/layers.md", "exec"), named)
    assert named["first"].shape == (3, 7, 16)
