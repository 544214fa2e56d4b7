"""Error messages with the names of the options that the user typed."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from regard.errors import ArgumentError


@contextmanager
def options_named(options: Mapping[str, str]) -> Iterator[None]:
    """Replace the names of arguments in the message of an ArgumentError by the names of their options.

    Args:
        options: name of the argument or the configuration field → name of the option.
    """
    try:
        yield
    except ArgumentError as error:
        if "--" in str(error):  # it names options already
            raise
        names = "|".join(map(re.escape, sorted(options, key=len, reverse=True)))
        # Words in quotation marks are values that the user gave.
        message = re.sub(rf"(?<!['\w-])({names})(?!['\w-])", lambda found: options[found[0]], str(error), count=1)
        raise ArgumentError(message) from error
