"""A mask that looks causal and is not: how many queries see later keys, and where, compared with a loop over pairs."""

import ast
import itertools
import re
import tomllib
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard import masks
from regard.masks import later_keys as module
from regard.masks.later_keys import later_keys
from regard.shapes.grid import Grid

modest = settings(deadline=None)
ROOT = Path(__file__).parents[2]
SQUARE = Grid.whole(2, 3, 7, 7)
LONGER = Grid.whole(2, 3, 5, 11)
SHORTER = Grid.whole(2, 3, 7, 5)
GRIDS = [SQUARE, LONGER, SHORTER]

TRIANGLE = torch.ones(7, 7, dtype=torch.bool).tril()


class Earlier(masks.Mask):
    """A user's causal mask."""

    def allows(self, grid):
        return grid.key_index <= grid.query_index + grid.offset


CAUSAL = [
    masks.causal(), masks.window(2, 0), ~masks.window(1, None), ~~masks.causal(), Earlier(),
    masks.where(lambda batch, head, query, key: key <= query),
]  # fmt: skip

OTHERS = [
    masks.prefix(3), masks.prefix([0, 4]), masks.lengths([5, 3]), masks.dilated(2), masks.neighborhood(3),
    masks.window(1, 2), masks.documents(torch.arange(7) // 2, torch.arange(7) // 2), ~masks.prefix(4), ~masks.causal(),
    masks.keep(torch.rand(2, 3, 7, 7, generator=torch.Generator().manual_seed(3)) > 0.8),
    masks.where(lambda batch, head, query, key: (key + head) % 3 == 0),
]  # fmt: skip

FORMS = {
    "union": lambda a, b, c: a | b,
    "union of three": lambda a, b, c: c | b | a,
    "negated": lambda a, b, c: ~(~a & ~b),
    "twice": lambda a, b, c: ~(~(a | b) | ~c),
    "inside": lambda a, b, c: (a | b) & c,
    "part": lambda a, b, c: a | (b & c),
    "intersection": lambda a, b, c: a & (b | c),
}


def pairs_of_later_keys(mask, grid, offset):
    """The pairs (query, key), with a key after the query's own, that some batch row and head shows."""
    shown = mask.dense(grid).flatten(0, 1).any(0).tolist()
    return [
        (i, j) for i, j in itertools.product(range(grid.queries), range(grid.keys)) if j > i + offset and shown[i][j]
    ]


@modest
@given(st.sampled_from(CAUSAL), st.sampled_from(OTHERS), st.sampled_from(OTHERS), st.sampled_from(list(FORMS)))
def test_later_keys_are_those_of_a_loop_over_all_pairs(causal, other, third, form):
    mask = FORMS[form](causal, other, third)
    pairs = pairs_of_later_keys(mask, SQUARE, 0)
    seen = later_keys(mask, SQUARE)
    assert (seen is not None) == bool(pairs)
    if seen is not None:
        assert (seen.leaking, seen.query) == (len({query for query, _ in pairs}), pairs[0][0])
        assert (seen.query, seen.key) in pairs
        row, head = seen.batch_row or 0, seen.head or 0
        assert mask.dense(SQUARE)[row, head, seen.query, seen.key]
        assert later_keys(mask & seen.causal, SQUARE) is None
        assert not pairs_of_later_keys(mask & seen.causal, SQUARE, 0)


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("start", [False, True])
@pytest.mark.parametrize("other", [masks.prefix(4), masks.window(0, 1), masks.dilated(2)])
def test_positions_are_those_of_the_causal_part(grid, start, other):
    align = "start" if start else "end"
    mask = masks.window(2, 0, align=align) | other
    pairs = pairs_of_later_keys(mask, grid, 0 if start else grid.keys - grid.queries)
    seen = later_keys(mask, grid)
    assert ((seen and seen.leaking) or 0) == len({query for query, _ in pairs})
    if seen is not None:
        assert seen.causal == masks.causal(align)


def test_positions_of_a_cache_differ_by_batch_row():
    mask = masks.window(3, 0, offset=[2, 6]) | masks.prefix(5)
    seen = later_keys(mask, LONGER)
    assert seen is not None
    assert (seen.leaking, seen.batch_row, seen.head, seen.query, seen.key) == (2, 0, None, 0, 3)
    assert seen.causal == masks.causal(offset=[2, 6])
    assert later_keys(masks.window(3, 0, offset=torch.tensor([4, 6])) | masks.prefix(5), LONGER) is None


NOT_NAMED = [
    masks.causal(),
    masks.causal(align="start"),
    masks.causal() | masks.causal(align="start"),
    masks.causal() & masks.lengths([3, 5]),
    ~masks.causal(),
    ~masks.causal() | masks.prefix(2),
    ~masks.window(0, None) & masks.prefix(4),
    masks.window(2, 0) | masks.window(4, 0) & masks.dilated(2),
    masks.window(2, 0, align="start") | masks.prefix(4) & masks.causal(align="start"),
    masks.window(2, 2) | masks.prefix(2),
    masks.window(0, 0) | masks.prefix(3),
    masks.window(5, 5),
    masks.window(None, 1) | masks.prefix(4),
    masks.lengths([3, 5]) | masks.dilated(2),
    masks.prefix(1) | masks.dilated(3),
    masks.neighborhood(3) | masks.prefix(1),
    masks.where(lambda batch, head, query, key: query == key) | masks.prefix(3),
]


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("mask", NOT_NAMED, ids=str)
def test_masks_that_are_causal_or_do_not_look_so_are_not_named(mask, grid):
    assert later_keys(mask, grid) is None


def test_a_part_of_documents_that_is_meant_to_see_both_sides_is_not_named():
    documents = masks.documents(torch.tensor([0, 0, 0, 1, 1, 2, 2]))
    for mask in (documents, documents | masks.prefix(2), documents & masks.causal(), documents & masks.window(2, 2)):
        assert later_keys(mask, SQUARE) is None
    seen = later_keys(masks.causal() | documents, SQUARE)
    assert seen is not None
    assert seen.leaking == 4


def test_a_large_mask_is_looked_at_in_part(monkeypatch):
    monkeypatch.setattr(module, "PAIRS_SEARCHED", 60)
    monkeypatch.setattr(module, "BLOCK_PAIRS", 40)
    grid = Grid.whole(1, 1, 30, 30)
    seen = later_keys(masks.causal() | masks.dilated(2), grid)
    assert seen is not None
    assert seen.leaking == seen.examined < 30
    # Runs of keys are looked at whole, whatever there are of them.
    seen = later_keys(masks.window(2, 0) | ~masks.prefix(28), grid)
    assert seen is not None
    assert (seen.leaking, seen.examined, seen.query, seen.key) == (29, 30, 0, 28)


UNREAD = [
    masks.causal(offset=torch.zeros(2, dtype=torch.int64, device="meta")) | masks.prefix(2),
    masks.window(2, 0) | masks.keep(torch.ones(7, 7, dtype=torch.bool, device="meta")),
]


@pytest.mark.parametrize("mask", UNREAD, ids=str)
def test_nothing_is_said_of_what_cannot_be_read(mask):
    assert later_keys(mask, Grid.whole(2, 3, 7, 7, "meta")) is None


PREFIX_MODELS = {"causal() | prefix(n)", "causal() | prefix(4)", "prefix(3) | causal()"}
SHOWN_AS_A_MISTAKE = {"window(1, 0) | prefix(2)"}


def blocks_of(path):
    """The Python code of a page, of a table of the catalogue, or of a file."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".toml":
        entries = [
            each for entry in tomllib.loads(text).values() for each in (entry if isinstance(entry, list) else [entry])
        ]
        return [each["code"] for each in entries if isinstance(each, dict) and "code" in each]
    return (
        [text]
        if path.suffix == ".py"
        else re.findall(r"```(?:\{code-cell\} )?python\n(?:---\n.*?---\n)?(.*?)```", text, re.DOTALL)
    )


def shown_masks():
    """Each combination of masks in the code of pages, of the catalogue and of benchmarks."""
    places = ((".", "README*.md"), ("docs", "**/*.md"), ("docs", "**/*.toml"), ("bench", "**/*.py"))
    for path in [path for folder, pattern in places for path in (ROOT / folder).glob(pattern)]:
        for block in blocks_of(path):
            if "masks." not in block:
                continue
            inner = set()
            for node in ast.walk(ast.parse(block)):
                if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.BitOr, ast.BitAnd)) and node not in inner:
                    inner |= {*ast.walk(node)}
                    yield path.relative_to(ROOT), ast.unparse(node).replace("regard.", "").replace("masks.", "")


def test_no_page_shows_a_mask_that_looks_causal_and_is_not():
    known = {name: getattr(masks, name) for name in ("causal", "window", "prefix", "dilated", "where", "neighborhood")}
    offences, count = [], 0
    for path, line in shown_masks():
        try:
            mask = eval(line, known | {"NARROW": 3, "PREFIX": 2, "n": 3})
        except NameError:
            continue
        count += 1
        if line not in PREFIX_MODELS | SHOWN_AS_A_MISTAKE and later_keys(mask, Grid.whole(1, 1, 12, 12)) is not None:
            offences.append(f"{path}: {line}")
    assert not offences
    assert count > 9
