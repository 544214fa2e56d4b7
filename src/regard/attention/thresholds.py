"""The measured sizes from which on one backend is faster than another: one table, read by `regard.attention.planner`.

``python -m bench.scripts.thresholds`` measures them again on the machine where it runs, each on both of its sides.
"""

from typing import Self

import torch


class Threshold(int):
    """A size from which on one backend is faster than another.

    Attributes:
        unit: what is counted: ``pairs`` (batch · heads · queries · keys), ``elements`` that the specification has in
            memory at once, or ``numbers`` of keys and values.
        faster, than: the two backends.
        where: the calls that it holds for.
    """

    unit: str
    faster: str
    than: str
    where: str

    def __new__(cls, size: int, unit: str, faster: str, than: str, where: str) -> Self:
        threshold = super().__new__(cls, size)
        threshold.unit, threshold.faster, threshold.than, threshold.where = unit, faster, than, where
        return threshold


FUSED_PAIRS = Threshold(
    1 << 19, "pairs", "cpu", "sdpa",
    "under a mask or a bias; for all calls if products are made of wider vectors than BLAS's",
)  # fmt: skip
WIDE_PAIRS = Threshold(
    1 << 17, "pairs", "cpu", "sdpa", "with products of wider vectors, or in float16, without a gradient"
)
SMALL_PAIRS = Threshold(
    1 << 17, "pairs", "sdpa", "reference",
    "with a mask or a bias made dense; with a gradient it is FUSED_PAIRS, by a factor of two for short rows",
)  # fmt: skip
FUSED_ELEMENTS = Threshold(1 << 17, "elements", "cpu", "reference", "for other scores and normalizers")
FUSED_SPARSE_ELEMENTS = Threshold(1 << 9, "elements", "cpu", "reference", "for entmax without a gradient, which sorts")
FUSED_ADDITIVE_ELEMENTS = Threshold(1 << 14, "elements", "cpu", "reference", "for additive scores without a gradient")
WHOLE_ELEMENTS = Threshold(
    1 << 21, "elements", "tiled", "reference", "where no kernel is compiled: a CPU's last cache holds fewer"
)
LINEAR_ELEMENTS = Threshold(
    1 << 15, "elements", "linear", "reference", "where no weights are made; with decays or the delta rule it is below"
)
FEW_ROWS_NUMBERS = Threshold(
    1 << 24, "numbers", "cpu", "sdpa",
    "for a few queries without a gradient: they come from memory, which the kernels read once and ahead of time",
)  # fmt: skip
FEW_ROWS_NUMBERS_WITHOUT_BLAS = Threshold(
    1 << 21, "numbers", "cpu", "sdpa", "the same where BLAS uses half of the processor's vectors"
)
FEW_ROWS_HALF_NUMBERS = Threshold(
    1 << 18, "numbers", "cpu", "sdpa",
    "the same in half precision, but for query heads that share keys in bfloat16: PyTorch converts what it reads",
)  # fmt: skip
FEW_ROWS_HIDDEN = Threshold(
    1 << 20, "numbers", "cpu", "sdpa",
    "the same under a mask or a bias, where PyTorch reads what is hidden too; counted for each query head",
)  # fmt: skip
FEW_ROWS_STEP = Threshold(
    1 << 15,
    "numbers",
    "cpu",
    "reference",
    "for a single query under a mask by position, without a gradient, from the third call on",
)
LISTED_PAIRS = Threshold(1 << 11, "pairs", "cpu", "reference", "under a list of keys that names at most half of them")
DEVICE_ELEMENTS = Threshold(1 << 24, "elements", "triton", "reference", "on a device: 64 MiB of float32 (H100: 0.5)")
SPARSE_PAIRS = {
    torch.float32: Threshold(1 << 28, "pairs", "triton", "sdpa", "on a device under a window, in float32 (H100: 1.0)"),
    torch.bfloat16: Threshold(1 << 31, "pairs", "triton", "sdpa", "the same in bfloat16 (H100: 0.6)"),
    torch.float16: Threshold(1 << 31, "pairs", "triton", "sdpa", "the same in float16 (H100: 0.6)"),
}
COMPILED_PAIRS = Threshold(
    1 << 22, "pairs", "flex", "sdpa", "on a device under a mask: the host prepares a call of it in about 1 ms"
)
