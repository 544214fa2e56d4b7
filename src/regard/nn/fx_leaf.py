"""Layers as leaves of `torch.fx`: a trace records the call of a layer but not its content, as for `torch.nn`."""

from functools import wraps
from typing import Any, TypeVar

from torch import nn
from torch.fx import Proxy

from regard.errors import KindError

Layer = TypeVar("Layer", bound=type[nn.Module])


def fx_leaf(layer: Layer) -> Layer:
    """Decorates a layer, so that a call with a `torch.fx` proxy becomes one node of the graph.

    Raises:
        KindError: a subclass overrides ``forward`` and calls this one with a proxy, which would record the call of the
            subclass itself.
    """
    forward = layer.forward

    @wraps(forward)
    def leaf(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
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
