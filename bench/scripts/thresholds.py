"""Measures the thresholds of the planner again: at each, half and twice its size, the time of one backend of the other.

    python -m bench.scripts.thresholds [NAME ...] [--device cuda] [--quick]

A threshold is right where the ratio crosses 1: the backend that it names as faster takes longer below, and less above.
"""

import argparse
from collections.abc import Callable
from typing import Any

import torch

import regard
from bench.timing import TimingBudget, time_interleaved
from regard import masks, scores
from regard.attention import thresholds
from regard.attention.thresholds import Threshold
from regard.kernels.availability import kernels_awaited

HEADS, DIM = 8, 64
SIZES = (0.25, 0.5, 1.0, 2.0, 4.0)
"""The sizes of the calls, in units of the threshold."""


def pairs(size: float, **options: Any) -> dict[str, Any]:
    """Returns a call of so many pairs, with as many queries as keys."""
    length = max(2, round((size / HEADS) ** 0.5))
    return {"queries": length, "keys": length, **options}


def few_rows(size: float, **options: Any) -> dict[str, Any]:
    """Returns a call of one query whose keys and values have so many numbers."""
    return {"queries": 1, "keys": round(size / (2 * HEADS * DIM)), **options}


def listed(queries: int, keys: int) -> dict[str, Any]:
    """Returns a call in which each query sees a random eighth of the keys."""
    index = torch.rand(queries, keys).topk(-(-keys // 8)).indices
    return {"queries": queries, "keys": keys, "mask": masks.columns(index)}


def sparse_pairs(dtype: torch.dtype) -> str:
    """Returns the name of the threshold for a dtype."""
    return f"SPARSE_PAIRS {str(dtype).removeprefix('torch.')}"


CALLS: dict[str, Callable[[float], dict[str, Any]]] = {
    "FUSED_PAIRS": lambda size: pairs(size, mask=masks.window(64, 0)),
    "WIDE_PAIRS": pairs,
    "SMALL_PAIRS": lambda size: pairs(size, mask=masks.dilated(2)),
    "FUSED_ELEMENTS": lambda size: pairs(size, normalizer="sigmoid"),
    "FUSED_SPARSE_ELEMENTS": lambda size: pairs(size, normalizer="sparsemax"),
    "FUSED_ADDITIVE_ELEMENTS": lambda size: pairs(size / DIM, score=scores.Additive(torch.randn(DIM))),
    "WHOLE_ELEMENTS": lambda size: pairs(size, score="distance"),
    "LINEAR_ELEMENTS": lambda size: pairs(size, score=scores.Features("elu"), normalizer="ratio"),
    "FEW_ROWS_NUMBERS": few_rows,
    "FEW_ROWS_NUMBERS_WITHOUT_BLAS": few_rows,
    "FEW_ROWS_HALF_NUMBERS": lambda size: few_rows(size, dtype=torch.bfloat16),
    "FEW_ROWS_HIDDEN": lambda size: few_rows(size, mask=masks.window(256, 0)),
    "FEW_ROWS_STEP": lambda size: few_rows(size, mask=masks.window(16, 0)),
    "LISTED_PAIRS": lambda size: listed(**pairs(size)),
    "DEVICE_ELEMENTS": lambda size: pairs(size, normalizer="sparsemax"),
    "COMPILED_PAIRS": lambda size: pairs(size, mask=masks.window(64, 0)),
    **{
        sparse_pairs(dtype): lambda size, dtype=dtype: pairs(size, mask=masks.window(256, 0), dtype=dtype)
        for dtype in thresholds.SPARSE_PAIRS
    },
}
"""A call of the kind that each threshold is about, by its size."""


def table() -> dict[str, Threshold]:
    """Returns the thresholds by their names."""
    single = {name: value for name, value in vars(thresholds).items() if isinstance(value, Threshold)}
    several = {sparse_pairs(dtype): value for dtype, value in thresholds.SPARSE_PAIRS.items()}
    return {**single, **several}


def ratio(threshold: Threshold, call: dict[str, Any], device: str, quick: bool) -> float:
    """Returns the time of the backend that should be faster, of the other's."""
    queries, keys, dtype = call.pop("queries"), call.pop("keys"), call.pop("dtype", torch.float32)
    inputs = [torch.randn(1, HEADS, length, DIM, device=device, dtype=dtype) for length in (queries, keys, keys)]
    calls = {
        name: lambda name=name: regard.attend(*inputs, **call, backend=name)
        for name in (threshold.than, threshold.faster)
    }
    with torch.no_grad():
        for each in calls.values():
            each()
        wait = torch.accelerator.synchronize if device != "cpu" else lambda: None
        return time_interleaved(calls, TimingBudget.of(quick=quick), wait=wait)[threshold.faster].ratio


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="which thresholds; by default all of the device")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    print(f"{'threshold':<31}{'backends':<18}" + "".join(f"{f'x {size:g}':>8}" for size in SIZES))
    for name, threshold in table().items():
        is_chosen = name.split()[0] in given.names if given.names else (threshold.faster in ("triton", "flex")) == (
            given.device != "cpu"
        )  # fmt: skip
        if not is_chosen:
            continue
        with kernels_awaited():
            ratios = [ratio(threshold, CALLS[name](size * threshold), given.device, given.quick) for size in SIZES]
        print(f"{name:<31}{f'{threshold.faster} : {threshold.than}':<18}" + "".join(f"{one:>8.2f}" for one in ratios))


if __name__ == "__main__":
    main()
