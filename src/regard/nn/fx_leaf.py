"""Layers as leaves of `torch.fx`: a trace records the call of a layer but not its content, as for `torch.nn`."""

import inspect
from functools import wraps
from typing import Any, TypeVar

from torch import nn
from torch.fx import Proxy

from regard.errors import KindError
from regard.foreign_names import argument_names, unknown_layer_keyword, wrong_arguments

Layer = TypeVar("Layer", bound=type[nn.Module])
_INTERNAL = ("self", "call", "packed")
"""Arguments that other layers pass, and users do not."""


def fx_leaf(layer: Layer) -> Layer:
    """Decorates a layer, so that a call with a `torch.fx` proxy becomes one node of the graph.

    A keyword argument that the constructor or the call does not have is answered with the one that is meant.

    Raises:
        KindError: the layer has no argument of this name, or its constructor lacks one; or a subclass overrides
            ``forward`` and calls this one with a proxy, which would record the call of the subclass itself.
    """
    forward = layer.forward
    names = argument_names(forward)

    @wraps(forward)
    def leaf(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        for name in kwargs:
            if name not in names:
                raise KindError(unknown_layer_keyword(f"the call of {layer.__name__}", forward, [name], (), _INTERNAL))
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
    _check_constructor(layer)
    return layer


def _check_constructor(layer: type[nn.Module]) -> None:
    """Makes wrong arguments of a layer's constructor one KindError, which names the layer."""
    create = layer.__init__
    signature = inspect.signature(create)

    @wraps(create)
    def checked(self: nn.Module, *args: Any, **kwargs: Any) -> None:
        try:
            signature.bind(self, *args, **kwargs)
        except TypeError as error:
            raise KindError(wrong_arguments(layer, kwargs, str(error))) from None
        create(self, *args, **kwargs)

    layer.__init__ = checked
