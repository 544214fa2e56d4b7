"""Layers as leaves of `torch.fx`: a trace records the call of a layer but not its content, as for `torch.nn`."""

from functools import wraps
from typing import Any, TypeVar

from torch import nn
from torch.fx import Proxy

from regard.errors import KindError
from regard.foreign_names import argument_names, unknown_layer_keyword

Layer = TypeVar("Layer", bound=type[nn.Module])
_INTERNAL = ("self", "call", "packed")
"""Arguments that other layers pass, and users do not."""


def fx_leaf(layer: Layer) -> Layer:
    """Decorates a layer, so that a call with a `torch.fx` proxy becomes one node of the graph.

    A keyword argument that the layer does not have is answered with the one that is meant.

    Raises:
        KindError: the layer has no argument of this name; or a subclass overrides ``forward`` and calls this one with a
            proxy, which would record the call of the subclass itself.
    """
    forward = layer.forward
    names = argument_names(forward)

    @wraps(forward)
    def leaf(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        for name in kwargs:
            if name not in names:
                raise KindError(unknown_layer_keyword(f"the call of {layer.__name__}", forward, [name], _INTERNAL))
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
    return layer
