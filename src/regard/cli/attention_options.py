"""Creates scores, normalizers and masks from command-line options."""

import ast
import math
import operator
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

from regard import masks, normalizers, scores
from regard.errors import ArgumentError, UnknownNameError
from regard.masks.mask import Mask
from regard.names.foreign_names import written_in_command
from regard.normalizers.normalizer import Normalizer
from regard.scores.names import ALIGNMENT_SCORES, NAMES, WEIGHTED_SCORES
from regard.scores.score import Score

NORMALIZERS = (
    "softmax", "sparsemax", "entmax15", "entmax", "sigmoid", "hard", "softmax_with_sink",
    "squared_relu", "softpick", "signed_softmax", "scalable_softmax", "stick_breaking",
)  # fmt: skip

MASKS: dict[str, Callable[..., Mask]] = {
    "causal": masks.causal,
    "window": masks.window,
    "prefix": masks.prefix,
    "dilated": masks.dilated,
    "chunks": masks.chunks,
    "block_diffusion": masks.block_diffusion,
    "neighborhood": masks.neighborhood,
    "shifted_windows": masks.shifted_windows,
    "lengths": masks.lengths,
    "documents": lambda *ids: masks.documents(*(torch.tensor(part).reshape(1, -1) for part in ids)),
    "keep": lambda rows: masks.keep(torch.tensor(rows, dtype=torch.bool)),
}


def make_score(
    name: str,
    query_dim: int,
    key_dim: int,
    keys: int,
    *,
    scale: str | None,
    cap: float | None,
    weight: Tensor | None,
    seed: int,
) -> Score:
    """Creates the score of this name, with seeded random weights, or with ``weight`` for the score ``general``."""
    if name not in NAMES:
        raise UnknownNameError("score", name, NAMES, written_in_command("score", name, NAMES))
    if weight is not None and name != "general":
        raise ArgumentError(f"--w-score goes with --score general; the score is {name}")
    if name in ALIGNMENT_SCORES:
        raise ArgumentError(
            f"--score {name} needs the weights of the previous step, but regard explain computes one step"
        )
    score: Score
    if scale is not None:
        score = _scaled(name, make_scale(scale))
    elif weight is not None:
        score = scores.General(weight)
    elif name not in WEIGHTED_SCORES:
        score = scores.as_score(name)
    else:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            max_keys = keys if name == "location" else None
            score = scores.create(cast(Any, name), query_dim, key_dim, max_keys=max_keys).double()
        for parameter in score.parameters():
            # All seeded values have two decimals, so that the user can calculate with them.
            parameter.data.mul_(100).round_().div_(100)
    return score if cap is None else scores.SoftCap(score, cap)


def _scaled(name: str, scale: float) -> Score:
    if name in ("dot", "scaled_dot"):
        return scores.ScaledDot(scale)
    if name == "cosine":
        if scale <= 0:
            raise ArgumentError(f"--scale must be above 0 for the cosine; it is {scale}")
        return scores.Cosine(1 / scale)
    raise ArgumentError(f"--scale goes with the scores dot, scaled_dot and cosine; the score is {name}")


def make_scale(text: str) -> float:
    """Parses a scale: a number, or a fraction of numbers and square roots, e.g. ``0.5``, ``1/8`` or ``1/sqrt(512)``."""
    parts = text.replace(" ", "").lower().split("/")
    try:
        numbers = [math.sqrt(float(part[5:-1])) if part[:5] + part[-1:] == "sqrt()" else float(part) for part in parts]
        scale = numbers[0]
        for divisor in numbers[1:]:
            scale /= divisor
    except (ValueError, ZeroDivisionError):
        raise ArgumentError(f"--scale must be a number such as 0.5, 1/8 or 1/sqrt(512); it is {text!r}") from None
    if not math.isfinite(scale):
        raise ArgumentError(f"--scale must be finite; it is {text!r}")
    return scale


def make_normalizer(name: str, *, temperature: float | None, alpha: float | None, sink: float | None) -> Normalizer:
    """Creates the normalizer of this name."""
    if name not in NORMALIZERS:
        here = written_in_command("normalizer", name, NORMALIZERS)
        raise UnknownNameError("normalizer", name, NORMALIZERS, here)
    for option, value, owner in (
        ("--temperature", temperature, "softmax"), ("--alpha", alpha, "entmax"), ("--sink", sink, "softmax_with_sink")
    ):  # fmt: skip
        if value is not None and name != owner:
            raise ArgumentError(f"{option} goes with --normalizer {owner}; the normalizer is {name}")
    if name == "softmax" and temperature is not None:
        return normalizers.softmax if temperature == 1 else type(normalizers.softmax)(temperature)
    if name == "entmax":
        return normalizers.entmax(1.5 if alpha is None else alpha)
    if name == "softmax_with_sink":
        return normalizers.softmax_with_sink(0.0 if sink is None else sink)
    return normalizers.as_normalizer(name)


LONGEST_MASK_TEXT = 60
"""Largest number of characters of a mask's text in a message."""


def make_mask(text: str) -> Mask:
    """Parses a mask: ``causal``, ``window(2, 0)``, ``causal & ~prefix(1)``, ``keep([[1, 0], [1, 1]])``. Only the masks
    of `MASKS`, integers, lists of integers and the operators ``& | ~`` are evaluated."""
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise _unreadable(text) from None
    try:
        return _mask(tree.body, text)
    except RecursionError:
        # From Python 3.13 on, the parser allows deeper nesting than calls do.
        raise _unreadable(text) from None


def _mask(node: ast.expr, text: str) -> Mask:
    match node:
        case ast.BinOp(left=left, op=ast.BitAnd() | ast.BitOr() as sign, right=right):
            combine = operator.and_ if isinstance(sign, ast.BitAnd) else operator.or_
            return combine(_mask(left, text), _mask(right, text))
        case ast.UnaryOp(op=ast.Invert(), operand=inner):
            return ~_mask(inner, text)
        case ast.Name(id=name):
            return _create_mask(name, [], {}, text)
        case ast.Call(func=ast.Name(id=name), args=positional, keywords=named):
            arguments = [_literal(argument, text) for argument in positional]
            return _create_mask(name, arguments, {str(item.arg): _literal(item.value, text) for item in named}, text)
    raise _unreadable(text)


def _create_mask(name: str, arguments: list[Any], named: dict[str, Any], text: str) -> Mask:
    if name not in MASKS:
        raise UnknownNameError("mask", name, MASKS)
    try:
        return MASKS[name](*arguments, **named)
    except (TypeError, ValueError, RuntimeError) as error:
        # The error may be Python's: a wrong number of arguments, or a list instead of a number.
        raise ArgumentError(f"--mask {_shortened(text)}: {error}".replace("<lambda>", name)) from error


def _literal(node: ast.expr, text: str) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        raise _unreadable(text) from None


def _unreadable(text: str) -> ArgumentError:
    return ArgumentError(
        f"--mask {_shortened(text)} cannot be read; write for example causal, 'window(2, 0)', 'causal & ~prefix(1)' "
        f"(masks: {', '.join(MASKS)})"
    )


def _shortened(text: str) -> str:
    return repr(text if len(text) <= LONGEST_MASK_TEXT else f"{text[:LONGEST_MASK_TEXT]}…")
