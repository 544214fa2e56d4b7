"""Layers as leaves of `torch.fx`: a trace records the call of a layer but not its content, as for `torch.nn`."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from torch import nn
from torch.fx import Proxy

from regard.errors import KindError
from regard.names.answered import answered
from regard.names.foreign_arguments import argument_names, unknown_layer_keyword, wrong_arguments

Layer = TypeVar("Layer", bound=type[nn.Module])


def fx_leaf(layer: Layer) -> Layer:
    """Decorates a layer, so that a call with a `torch.fx` proxy becomes one node of the graph.

    A keyword argument that the constructor or the call does not have is answered with the one that is meant.

    Raises:
        KindError: the layer has no argument of this name, or its constructor lacks one; or a subclass overrides
            ``forward`` and calls this one with a proxy, which would record the call of the subclass itself.
    """
    forward = layer.forward
    names = argument_names(forward)
    positional, needed = _positional(forward)

    @wraps(forward)
    def leaf(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        for name in kwargs:
            if name not in names:
                raise KindError(unknown_layer_keyword(f"the call of {layer.__name__}", forward, [name]))
        given = len(args) + 1
        if given > len(positional) or any(name not in kwargs for name in positional[given:needed]):
            try:
                inspect.signature(forward).bind(self, *args, **kwargs)
            except TypeError as error:
                owner = f"the call of {layer.__name__}"
                raise KindError(wrong_arguments(owner, forward, kwargs, str(error))) from None
        for value in (*args, *kwargs.values()):
            if isinstance(value, Proxy):
                if type(self).forward is not leaf:
                    raise KindError(
                        f"torch.fx cannot trace the forward of {type(self).__name__}, which calls that of "
                        f"{layer.__name__}; make it a leaf: override Tracer.is_leaf_module"
                    )
                tracer: Any = value.tracer
                return tracer.create_proxy("call_module", tracer.path_of_module(self), args, kwargs)
        return forward(self, *args, **kwargs)

    layer.forward = leaf
    return answered(layer)


def _positional(forward: Callable[..., Any]) -> tuple[list[str], int]:
    """Returns the positional arguments of a call, with self, and how many of them have no default."""
    parameters = inspect.signature(forward).parameters.values()
    positional = [each for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
    return [each.name for each in positional], sum(each.default is each.empty for each in positional)
