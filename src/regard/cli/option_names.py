"""Error messages with the names of the options that the user typed."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from regard.errors import ArgumentError

SEARCH_OPTIONS = {
    "width": "--beam", "beam": "--beam", "length_penalty": "--length-penalty", "limit": "--limit",
    "batch_size": "--batch-size", "device": "--device",
}  # fmt: skip
"""Argument of the search and the evaluation → option."""


@contextmanager
def options_named(options: Mapping[str, str]) -> Iterator[None]:
    """Replace the names of arguments in the message of an ArgumentError by the names of their options.

    Args:
        options: name of the argument or the configuration field → name of the option.
    """
    try:
        yield
    except ArgumentError as error:
        names = "|".join(map(re.escape, sorted(options, key=len, reverse=True)))
        # Words in quotation marks are values that the user gave.
        message = re.sub(rf"(?<!['\w-])({names})(?!['\w-])", lambda found: options[found[0]], str(error), count=1)
        raise ArgumentError(message) from error
