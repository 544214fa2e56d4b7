"""A program: calls of regard with every annotated shape checked. `test_shapes_in_signatures.py` runs it.

It needs a process of its own, because the checks are put into the modules while they are imported.
"""

import sys
from itertools import product

import jaxtyping

# Before anything imports regard: where users have notes that nobody reads, this process has types that are checked.
sys.modules["regard.shapes.axes"] = jaxtyping
CHECKED = ["shapes", "scores", "normalizers", "masks", "attention.problem", "attention.readings",
           "attention.backends.reference", "attention.backends.tiled"]  # fmt: skip
jaxtyping.install_import_hook([f"regard.{name}" for name in CHECKED], "beartype.beartype")

import pytest  # noqa: E402
import torch  # noqa: E402

import regard  # noqa: E402
from cases import BIASES, KV, MASKS, NORMALIZERS, SCORES, B, D, H, K, Q, V, problem  # noqa: E402
from covering import pairwise  # noqa: E402
from regard.attention.backends import reference, tiled  # noqa: E402
from regard.attention.problem import Problem, validate  # noqa: E402
from regard.normalizers import softmax  # noqa: E402
from regard.scores import InnerProduct, Prepared  # noqa: E402
from regard.shapes.grid import Grid, spread_heads, upcast  # noqa: E402


def calls():
    """Arguments of `attend`: every score, normalizer, mask and bias, each with what the others are by default."""
    for name, cases in {"score": SCORES, "normalizer": NORMALIZERS, "mask": MASKS, "bias": BIASES}.items():
        for case in cases.values():
            yield {name: case()}
    for score, mask in product(SCORES.values(), ("window", "lengths", "documents")):
        yield {"score": score(), "mask": MASKS[mask](), "normalizer": NORMALIZERS["entmax15"]()}


def run_all() -> int:
    """Run them forward and backward, and observe the normalizers; the number of calls.

    Every call meets every number of heads of keys, and both backends; with ``--full``, every pair of these.
    """
    # Blocks of three queries, so that small problems have several.
    tiled.BLOCK_ELEMENTS, tiled.KEY_BLOCK = 3 * B * H * K, 2
    torch.set_num_threads(1)
    count = 0
    axes = list(calls()), list(KV), ("reference", "tiled")
    for arguments, kv_heads, backend in product(*axes) if "--full" in sys.argv else pairwise(axes):
        inputs = problem(kv_heads=kv_heads, requires_grad=True)
        output = regard.attend(*inputs, **arguments, backend=backend)
        output.square().sum().backward()
        assert output.shape == (B, H, Q, V)
        if "normalizer" in arguments and kv_heads == H:
            with torch.no_grad():
                regard.observe(*inputs, **arguments, backend=backend)
        count += 1
    return count


def refused(function, *arguments) -> int:
    """1 if jaxtyping refuses the shapes or dtypes of these arguments."""
    with pytest.raises(jaxtyping.TypeCheckError):
        function(*arguments)
    return 1


def run_wrong() -> int:
    """Call annotated functions with wrong shapes; how many refused them, all of them if nothing is raised."""
    query, key, value = problem()
    valid = validate(query, key, value)
    pairs = torch.zeros(B, H, Q, K, dtype=torch.float64)
    return (
        refused(upcast, torch.zeros(K, dtype=torch.int64))
        + refused(spread_heads, key[0], H)
        + refused(InnerProduct(), query, key[..., 1:])
        + refused(Prepared, query, key[0], InnerProduct())
        + refused(regard.scores.ScaledDot().prepare, query[0], key)
        + refused(softmax.weigh, pairs[0], Grid.whole(B, H, Q, K))
        + refused(reference.mix, valid, reference.whole(valid), pairs[0])
        + refused(Problem, query, key, value[:, :, 1:], valid.score, valid.normalizer)
    )


if __name__ == "__main__":
    assert len({B, H, Q, K, D, V}) == 6
    print(run_all(), run_wrong())
