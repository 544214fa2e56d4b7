"""The code of docs/en/how-to/watch.md runs, and its comments are true."""

from book import cells, pages

PAGE = pages("en")["how-to/watch"]
BLOCKS = cells(PAGE)


def test_the_page_runs():
    names = {"__name__": "docs.watching"}
    for block in BLOCKS:
        exec(compile(block, "docs/en/how-to/watch.md", "exec"), names)
        if "layers=[1]" in block:
            assert names["seen"].calls[0].weights.shape == (1, 2, 6, 6)
        if "seen.stitched()" in block:
            assert len(names["seen"].calls) == 4
            assert names["seen"].stitched()[0].weights.shape == (1, 4, 8, 8)
        if "logit_contributions" in block:
            found = names["regard"].watching.logit_contributions(names["language"], names["seen"].calls[0], [26, 5])
            assert found.shape == (1, 4, 4, 2)
    call = names["call"]
    assert (call.name, call.layer, call.kind, call.mask, call.shape) == (
        "layers.0.self_attn",
        0,
        "self",
        "none",
        (1, 4, 6, 6),
    )
    assert bool((names["change"] != 0).any())
