"""The blocks of Python that are no cells of the site: those of the README run, each other page has a reason."""

import pytest

from book import all_pages, fences

NOT_RUN = {
    "docs/en/how-to/own-task.md": "files of a package, which tests/docs/test_own_task.py writes and uses",
    "docs/en/how-to/export.md": "programs in a folder of exports; types are checked, tests/exports runs such loops",
    "docs/en/how-to/page.md": "needs the run of `regard demo`; its types are checked, tests/page runs such lines",
}
"""Page → why its blocks are not run here, and what is done with them."""

BLOCKS = {
    page: blocks
    for page, text in all_pages().items()
    if not page.startswith("docs/zh/") and (blocks := [f.text for f in fences(page, text) if f.language == "python"])
}
"""Page → its blocks; Chinese pages have those of the English ones (test_two_languages.py)."""


def test_each_page_with_blocks_is_run_or_says_why_not():
    assert BLOCKS.keys() == {"README.md", "README.zh.md", *NOT_RUN}


def test_both_readmes_have_the_same_code():
    assert BLOCKS["README.zh.md"] == BLOCKS["README.md"]


@pytest.mark.slow
def test_the_readme_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in BLOCKS["README.md"]:
        exec(compile(block, "README.md", "exec"), names)
    assert names["run"].predict(["a clever film"])[0].label == "good"
    assert names["seen"].output.shape == names["query"].shape
    assert names["watched"].calls
