"""The formats of exports, and why a model has none; this file imports no PyTorch, so that options can name them."""

from collections.abc import Mapping
from typing import Any, Literal, get_args

from regard.errors import ArgumentError

Format = Literal["onnx", "torch", "hf"]
FORMATS: tuple[Format, ...] = get_args(Format)
"""The formats that a trained run can be exported to."""


class UnexportableError(ArgumentError):
    """A model has no export of a format, but one of a training with other ``options`` may: option → value, None for an
    option to leave out, {}: there are none; ``instead`` names another way."""

    def __init__(self, reason: str, options: Mapping[str, Any], instead: str = ""):
        self.options = dict(options)
        train = f"train {option_text(options)}" if options else ""
        super().__init__("; ".join(filter(None, (reason, ", or ".join(filter(None, (train, instead)))))))


def option_text(options: Mapping[str, Any]) -> str:
    """Returns options as they are typed: ``"with --norm post --embedding-norm, without --kv-heads"``."""
    typed, omitted = [], []
    for name, value in options.items():
        option, negative = (f"--{start}{name.replace('_', '-')}" for start in ("", "no-"))
        if value is None:
            omitted.append(option)
        else:
            typed.append(negative if value is False else option if value is True else f"{option} {value}")
    parts = f"with {' '.join(typed)}" if typed else "", f"without {' '.join(omitted)}" if omitted else ""
    return ", ".join(filter(None, parts))
