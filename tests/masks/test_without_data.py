"""Masks whose tensors have no data (meta, fake, mapped, traced): shapes are right; what needs data is not said."""

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from regard import masks
from regard.errors import KindError, ShapeError
from regard.masks import Mask, Visibility, visible_keys
from regard.shapes.grid import Grid

B, H, Q, K = 2, 3, 5, 7


def tensors(device: str) -> dict[str, Mask]:
    """Masks that hold a tensor on the device."""
    n = torch.tensor([3, 4], device=device)
    ids, others = torch.zeros(B, Q, dtype=torch.int64, device=device), torch.ones(K, dtype=torch.int64, device=device)
    return {
        "offset": masks.causal(offset=n),
        "window": masks.window(1, 2, offset=n),
        "prefix": masks.prefix(n),
        "lengths": masks.lengths(n, n),
        "lengths of queries": masks.lengths([3, 4], n),
        "documents": masks.documents(ids, others),
        "keep": masks.keep(torch.ones(B, 1, 1, K, dtype=torch.bool, device=device)),
        "dense": masks.keep(torch.ones(Q, K, dtype=torch.bool, device=device)),
        "ignore": masks.ignore(torch.ones(K, dtype=torch.bool, device=device)),
        "where": masks.where(lambda b, h, i, j: ((b + h + i) % 3 > j % 2) & (i >= j)),
    }


def plain() -> dict[str, Mask]:
    """Masks that hold integers only."""
    return {
        "causal": masks.causal(),
        "window": masks.window(2, 1, "start"),
        "offsets": masks.causal(offset=[1, 2]),
        "prefix": masks.prefix([1, 3]),
        "lengths": masks.lengths([3, 4], 2),
        "dilated": masks.dilated(2),
    }


def combinations(of: dict[str, Mask]) -> dict[str, Mask]:
    """Each mask by itself, negated, appended to, and combined with one that is known."""
    made = dict(of)
    for name, mask in of.items():
        made[f"not {name}"] = ~mask
        made[f"causal and {name}"] = masks.causal() & mask
        made[f"{name} or prefix"] = mask | masks.prefix(2)
        made[f"{name} or window, negated"] = ~(mask | masks.window(1, 1))
    return made


def assert_answers(mask: Mask, grid: Grid, kind: type[Tensor] = Tensor):
    mask.check(grid)
    for tile in (grid, grid.tile(batch=range(1, 2), queries=range(2, 5), keys=range(1, 6))):
        allowed = mask.dense(tile)
        assert isinstance(allowed, kind)
        assert allowed.dtype == torch.bool
        assert allowed.device == grid.device
        assert allowed.shape == tile.shape
        assert mask.visibility(tile) in Visibility
        mask.spans(tile)
        mask.hidden_spans(tile)
        visible_keys(mask, tile, 2)
    assert repr(mask)


@pytest.mark.parametrize("name", combinations(tensors("meta")))
def test_masks_of_meta_tensors_have_shapes(name: str):
    mask = combinations(tensors("meta"))[name]
    assert_answers(mask, Grid.whole(B, H, Q, K, "meta"))
    assert_answers(masks.AppendedMask(mask, 2), Grid.whole(B, H, Q, K + 2, "meta"))


@pytest.mark.parametrize("name", tensors("meta"))
def test_masks_without_data_leave_visibility_open(name: str):
    mask, grid = tensors("meta")[name], Grid.whole(B, H, Q, K, "meta")
    for unknown in (mask, ~mask, mask & masks.causal(), mask | masks.window(0, 0)):
        assert unknown.visibility(grid) is Visibility.PARTIAL
        assert unknown.spans(grid) is None
        assert unknown.hidden_spans(grid) is None


@pytest.mark.parametrize("name", combinations(plain()))
def test_integers_are_known_wherever_the_problem_lies(name: str):
    mask = combinations(plain())[name]
    here, meta = Grid.whole(B, H, Q, K), Grid.whole(B, H, Q, K, "meta")
    assert_answers(mask, meta)
    assert mask.visibility(meta) is mask.visibility(here)
    for mine, known in ((mask.spans(meta), mask.spans(here)), (mask.hidden_spans(meta), mask.hidden_spans(here))):
        assert (mine is None) == (known is None)
        if mine is not None and known is not None:
            assert torch.equal(mine.start, known.start)
            assert torch.equal(mine.stop, known.stop)


@pytest.mark.parametrize("name", combinations(tensors("meta") | plain()))
def test_masks_of_fake_tensors_have_shapes(name: str):
    with FakeTensorMode():
        mask = combinations(tensors("cpu") | plain())[name]
        assert_answers(mask, Grid.whole(B, H, Q, K), FakeTensor)
        assert_answers(masks.AppendedMask(mask, 2), Grid.whole(B, H, Q, K + 2), FakeTensor)


@pytest.mark.parametrize("name", ["offset", "window", "prefix", "lengths", "documents", "keep"])
def test_masks_can_be_mapped_over(name: str):
    n, ids = torch.tensor([[3, 4], [0, 1], [5, 2]]), torch.tensor([[0, 0, 1, 1, 1], [0, 1, 1, 2, 2], [3, 3, 3, 3, -1]])
    make = {
        "offset": lambda n, ids: masks.causal(offset=n),
        "window": lambda n, ids: masks.window(1, 2, offset=n),
        "prefix": lambda n, ids: masks.prefix(n),
        "lengths": lambda n, ids: masks.lengths(n, n),
        "documents": lambda n, ids: masks.documents(ids),
        "keep": lambda n, ids: masks.keep(ids > 0),
    }[name]
    grid = Grid.whole(B, H, Q, Q)

    def dense(n: Tensor, ids: Tensor) -> Tensor:
        mask = make(n, ids) & masks.causal()
        mask.check(grid)
        assert mask.visibility(grid) is Visibility.PARTIAL
        assert mask.spans(grid) is None
        return mask.dense(grid)

    mapped = torch.vmap(dense)(n, ids)
    for place in range(3):
        assert torch.equal(mapped[place], (make(n[place], ids[place]) & masks.causal()).dense(grid))


@pytest.mark.parametrize("name", [*tensors("cpu"), *(f"{name}, integers" for name in plain())])
def test_masks_can_be_made_and_asked_in_a_graph(name: str):
    def dense(input: Tensor) -> Tensor:
        made = plain()[name.removesuffix(", integers")] if name.endswith("integers") else tensors("cpu")[name]
        mask = (made & masks.causal()) | masks.prefix(1)
        grid = Grid.whole(B, H, Q, K)
        mask.check(grid)
        mask.visibility(grid)
        mask.spans(grid)
        return mask.dense(grid) & (input > 0)

    # The compiler counts how often it compiles one function, whatever it closes over.
    torch.compiler.reset()
    input = torch.ones(K)
    assert torch.equal(torch.compile(dense, fullgraph=True, backend="eager")(input), dense(input))


@pytest.mark.parametrize("name", ["offset", "prefix", "lengths", "documents", "keep", "ignore"])
def test_shapes_and_devices_are_still_checked(name: str):
    mask = tensors("meta")[name]
    with pytest.raises(KindError, match="must be on cpu, where query is; it is on meta"):
        mask.check(Grid.whole(B, H, Q, K))
    with pytest.raises(ShapeError):
        mask.check(Grid.whole(B + 1, H, Q + 1, K + 1, "meta"))
