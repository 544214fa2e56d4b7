"""The kernel that multiplies matrices for other kernels."""

from collections.abc import Callable
from typing import Any

import numpy as np

from regard.kernels.cpu.bodies.arguments import product_at
from regard.kernels.cpu.bodies.few_rows import products_of_few_rows
from regard.kernels.cpu.bodies.paired_product import paired_product
from regard.kernels.cpu.bodies.parts import inlined
from regard.kernels.cpu.bodies.stored_numbers import PAIRS
from regard.kernels.cpu.bodies.wide_product import (
    Matrix,
    Size,
    plain_product,
    plain_product_with_transposed,
    wide_product,
)
from regard.kernels.cpu.kernel_arguments import FEW_MIXTURES, FEW_SCORES, PLAIN, PLAIN_TRANSPOSED


@inlined
def _matrices(p: Any) -> tuple[Size, Matrix, Matrix, Matrix]:
    """Returns the size and the matrices of a product."""
    return (
        Size(p.rows, p.columns, p.depth),
        Matrix(p.a, p.a_row, p.a_column),
        Matrix(p.b, p.b_row, 1),
        Matrix(p.c, p.c_row, 1),
    )


def multiply(dtype: str) -> Callable[[int], None]:
    """Returns the body that computes one product, described by a `PRODUCT_RECORD`.

    Args:
        dtype: float64 has plain loops only; in half precision, it is the dtype of the keys or values that a few rows of
            float32 are multiplied with; ``pairs`` for matrices that are rounded to bfloat16.
    """
    few_scores, few_mixtures = products_of_few_rows("float32" if dtype in ("float64", PAIRS) else dtype)

    def half(address: int) -> None:
        p = product_at(address)
        (size, a, b, c), factor = _matrices(p), np.float32(p.factor)
        if p.method == FEW_SCORES:
            few_scores(size, factor, a, b, c)
        else:
            few_mixtures(size, factor, a, b, c, p.beta)

    def pairs(address: int) -> None:
        p = product_at(address)
        (size, a, b, c), factor = _matrices(p), np.float32(p.factor)
        if p.method == PLAIN_TRANSPOSED:
            plain_product_with_transposed(size, factor, a, b, c)
        else:
            paired_product(size, factor, a, b, c, p.beta)

    def single(address: int) -> None:
        p = product_at(address)
        (size, a, b, c), factor = _matrices(p), np.float32(p.factor)
        if p.method == FEW_SCORES:
            few_scores(size, factor, a, b, c)
        elif p.method == FEW_MIXTURES:
            few_mixtures(size, factor, a, b, c, p.beta)
        elif p.method == PLAIN:
            plain_product(0, size, factor, a, b, c, p.beta)
        elif p.method == PLAIN_TRANSPOSED:
            plain_product_with_transposed(size, factor, a, b, c)
        else:
            wide_product(size, factor, a, b, c, p.beta)

    def double(address: int) -> None:
        p = product_at(address)
        size, a, b, c = _matrices(p)
        if p.method == PLAIN_TRANSPOSED:
            plain_product_with_transposed(size, p.factor, a, b, c)
        else:
            plain_product(0, size, p.factor, a, b, c, p.beta)

    return {"float32": single, "float64": double, PAIRS: pairs}.get(dtype, half)
