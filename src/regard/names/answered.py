"""Calls whose wrong arguments are answered with the line that is right, in place of Python's bare TypeError."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from regard.errors import KindError
from regard.names.foreign_arguments import wrong_arguments

_Called = TypeVar("_Called", bound=Callable[..., Any])


def answered(called: _Called) -> _Called:
    """Decorates a function, or a class for its constructor, so that arguments it cannot take are one KindError.

    A call with the right arguments does nothing more.
    """
    is_class = isinstance(called, type)
    run: Callable[..., Any] = called.__init__ if is_class else called

    @wraps(run)
    def checked(*args: Any, **kwargs: Any) -> Any:
        try:
            return run(*args, **kwargs)
        except TypeError:
            try:
                inspect.signature(run).bind(*args, **kwargs)
            except TypeError as error:
                message = wrong_arguments(called.__name__, called, kwargs, str(error))
            else:
                raise
        raise KindError(message)

    if not is_class:
        return cast(_Called, checked)
    called.__init__ = checked
    return cast(_Called, called)
