"""Tensors, arrays, nested lists and numbers → NumPy arrays to draw and show, or tensors to calculate with."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.errors import ArgumentError, ShapeError


def as_array(value: Any, name: str) -> NDArray[np.floating[Any]]:
    """Returns an array of floating-point numbers.

    Args:
        value: a tensor of any dtype on any device, with or without a gradient; an array; a number; or nested lists of
            these.
        name: the argument's name, for the message.

    Returns:
        float32 for values of single or half precision, float64 for all others.

    Raises:
        ShapeError: the rows differ in length.
        ArgumentError: these are not real numbers.
    """
    if value is None:
        raise ArgumentError(
            f'{name} is None; if these are readings, they were not taken: write read="view" in regard.watch or '
            "regard.observe, or regard.attend_with_weights(query, key, value).weights"
        )
    try:
        array = np.asarray(_without_tensors(value))
    except (ValueError, TypeError, RuntimeError) as error:
        if isinstance(value, (list, tuple)) and isinstance(error, ValueError):
            raise ShapeError(f"{name} must be an array; its rows have different lengths") from error
        raise ArgumentError(f"{name} must hold real numbers; it cannot become an array: {error}") from error
    if array.size == 0 and array.dtype == object:
        array = array.astype(np.float64)
    if array.dtype.kind not in "biuf":
        held = type(value).__name__ if array.ndim == 0 and array.dtype == object else array.dtype
        raise ArgumentError(f"{name} must hold real numbers; it holds {held}")
    is_single = array.dtype.kind == "f" and array.dtype.itemsize <= 4
    return array.astype(np.float32 if is_single else np.float64, copy=False)


def as_tensor(value: Any, name: str) -> Any:
    """Returns a tensor of floating-point numbers, or the value as it is if it holds no numbers of these kinds.

    Args:
        value: a tensor, whose gradient it keeps; an array; or nested lists of numbers, arrays and tensors.
        name: the argument's name, for the message.

    Returns:
        Tensors and arrays of floating-point numbers keep their precision (half precision of NumPy becomes float32);
        lists and integers get PyTorch's default dtype.

    Raises:
        ShapeError: the rows differ in length.
        ArgumentError: these are not real numbers.
    """
    if isinstance(value, Tensor):
        is_integer = not (value.is_floating_point() or value.is_complex() or value.dtype is torch.bool)
        return value.to(torch.get_default_dtype()) if is_integer and not value.is_quantized else value
    if isinstance(value, (list, tuple)):
        if _holds_tensor(value):
            try:
                return torch.stack([torch.as_tensor(as_tensor(each, name)) for each in value])
            except RuntimeError as error:
                raise ShapeError(f"{name} must hold tensors of one shape; {error}") from error
        return torch.tensor(np.ascontiguousarray(as_array(value, name)), dtype=torch.get_default_dtype())
    if not hasattr(value, "__array__"):
        return value
    array, is_float = as_array(value, name), np.asarray(value).dtype.kind == "f"
    # A copy, which shares no memory with the array.
    return torch.tensor(np.ascontiguousarray(array), dtype=None if is_float else torch.get_default_dtype())


def _holds_tensor(value: Any) -> bool:
    return isinstance(value, Tensor) or (isinstance(value, (list, tuple)) and any(map(_holds_tensor, value)))


def _without_tensors(value: Any) -> Any:
    """Returns the same value with an array in place of each tensor."""
    if isinstance(value, Tensor):
        value = value.detach().cpu()
        return (value.float() if value.is_floating_point() and value.element_size() < 4 else value).numpy()
    if isinstance(value, (list, tuple)) and any(isinstance(each, (Tensor, list, tuple)) for each in value):
        return [_without_tensors(each) for each in value]
    return value
