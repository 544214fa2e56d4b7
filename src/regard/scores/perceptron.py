"""The score of a feedforward network on query and key."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from regard.errors import KindError, ShapeError
from regard.scores.additive_scores import ReluSum, TanhSum
from regard.scores.custom import Pairwise
from regard.scores.score import PairStep, PairUnits, Prepared, Score
from regard.scores.weights import check_device, in_dtype_of
from regard.shapes.checks import check_module, check_sizes, size, type_text
from regard.shapes.grid import spread_heads, upcast
from regard.shapes.layout import Keys, Queries
from regard.tracing.module_calls import has_hooks

ELEMENTWISE = (
    nn.Tanh, nn.ReLU, nn.Sigmoid, nn.GELU, nn.SiLU, nn.ELU, nn.SELU, nn.CELU, nn.LeakyReLU, nn.Softplus, nn.Mish,
    nn.Hardtanh, nn.ReLU6, nn.Identity,
)  # fmt: skip
"""The modules whose result `MLP.pair_units` shows, besides `nn.Linear`: functions of each unit, without chance."""


class MLP(Score, fields=("network",)):
    """Scores a pair by a network of any depth on the concatenated query and key.

    .. math::

        score(q, k) = network([q; k])

    With one hidden layer of tanh units it is the additive score; Bahdanau et al. 2015, section 3.1, introduce theirs as
    such a network.

    Args:
        network: maps ``[..., query_dim + key_dim]`` to ``[..., 1]``, each row independently (so it must not normalize
            over a batch). If it is an `nn.Sequential` that begins with an `nn.Linear`, that layer is computed once for
            each query and each key, and not for each pair: W [q; k] = W_q q + W_k k.

    Raises:
        KindError: the network is not a module.

    A network of `nn.Linear`, `nn.Tanh` or `nn.ReLU`, and `nn.Linear` lowers to a sum of units, which has fused kernels.
    Any other network lowers to a function of pairs, which has none.

    Numerics: half-precision inputs are scored in float32, whatever the dtype of the network's weights.

    Example:
        >>> import torch
        >>> import regard
        >>> from regard import scores
        >>> score = scores.MLP(torch.nn.Sequential(torch.nn.Linear(8, 5), torch.nn.ReLU(), torch.nn.Linear(5, 1)))
        >>> x = torch.zeros(3, 4)
        >>> regard.attend(x, x, x, score=score).shape
        torch.Size([3, 4])
    """

    def __init__(self, network: nn.Module):
        super().__init__()
        check_module("network", network)
        self.network = network

    @classmethod
    def create(
        cls, query_dim: int, key_dim: int, hidden: Sequence[int] = (64,), activation: Callable[[], nn.Module] = nn.Tanh
    ) -> "MLP":
        """Creates a trainable score.

        Args:
            query_dim: features of a query.
            key_dim: features of a key.
            hidden: units of each hidden layer, first to last; an empty sequence gives a linear score.
            activation: creates the module after each hidden layer, e.g. `nn.ReLU`.
        """
        check_sizes(query_dim=query_dim, key_dim=key_dim)
        if not isinstance(hidden, Sequence) or isinstance(hidden, (str, bytes)):
            raise KindError(f"hidden must be a sequence of integers; it is {type_text(hidden)}")
        if not callable(activation):
            raise KindError(f"activation must create a module, as nn.Tanh does; it is {type_text(activation)}")
        layers: list[nn.Module] = []
        width = query_dim + key_dim
        for units in hidden:
            layers += [_linear(width, size("each entry of hidden", units)), _activation(activation)]
            width = units
        return cls(nn.Sequential(*layers, _linear(width, 1)))

    def check(self, query: Tensor, key: Tensor) -> None:
        for name, weight in self.network.named_parameters():
            check_device(f"network's {name}", weight, query)
        first, _ = self._split()
        if first is not None and query.shape[-1] + key.shape[-1] != first.in_features:
            raise ShapeError(
                f"query and key must have {first.in_features} features together, as network takes them; "
                f"query has {query.shape[-1]}, key has {key.shape[-1]}"
            )

    def prepare(self, query: Queries, key: Keys) -> Prepared:
        query, key = upcast(query), upcast(key)
        first, rest = self._split()
        layers = in_dtype_of(query, rest)
        width = query.shape[-1] + key.shape[-1]
        if first is None:
            compare = _join
        else:
            width, compare = first.out_features, _add
            bias = None if first.bias is None else first.bias.to(query.dtype)
            query_weight, key_weight = first.weight.to(query.dtype).split([query.shape[-1], key.shape[-1]], dim=1)
            query = nn.functional.linear(query, query_weight)
            key = nn.functional.linear(key, key_weight, bias)
            units, last = _one_layer(rest)
            if last is not None and last.in_features == width:
                return _relu_sum(query, key, last) if units is nn.ReLU else _tanh_sum(query, key, last)

        def function(query: Tensor, key: Tensor) -> Tensor:
            scores = layers(compare(query, key))
            if scores.shape[-1:] != (1,):
                raise ShapeError(f"network must return [..., 1]; it returned {list(scores.shape)}")
            return scores.squeeze(-1)

        widths = [layer.out_features for layer in rest.modules() if isinstance(layer, nn.Linear)]
        return Prepared(query, key, Pairwise(function, width=max(width, *widths, 1)))

    def pair_units(self, query: Tensor, key: Tensor) -> PairUnits | None:
        """Returns the layers of a plain `nn.Sequential`, as far as they are linear or functions of each unit."""
        if self._split()[0] is None:
            return None
        query = upcast(query)
        values = _join(query, upcast(spread_heads(key, query.shape[1])))
        layers = list(self.network.children())
        steps: list[PairStep] = []
        for number, layer in enumerate(layers[:-1]):
            if type(layer) is nn.Linear:
                inputs = "[query; key]" if number == 0 else "the units before"
                note = f"W {inputs}" if layer.bias is None else f"W {inputs} + b"
            elif type(layer) in ELEMENTWISE:
                note = f"{type(layer).__name__} of each unit"
            else:
                return PairUnits(tuple(steps))
            values = in_dtype_of(query, layer)(values)
            steps.append(PairStep(f"network.{number}", note, values))
        last = layers[-1]
        if type(last) is not nn.Linear or last.out_features != 1 or not steps:
            return PairUnits(tuple(steps)) if steps else None
        bias = None if last.bias is None else upcast(last.bias)
        return PairUnits(tuple(steps), upcast(last.weight)[0], bias)

    def _split(self) -> tuple[nn.Linear | None, nn.Module]:
        """Returns the first layer, or None if it may not be linear, and the remaining network."""
        network = self.network
        if type(network) is nn.Sequential and len(network) and not any(map(has_hooks, network.modules())):
            first = network[0]
            # A subclass may do more than apply its weights.
            if type(first) is nn.Linear and "forward" not in vars(first):
                return first, nn.Sequential(*list(network)[1:])
        return None, network


def _one_layer(rest: nn.Module) -> tuple[type[nn.Module], nn.Linear | None]:
    """Returns the activation and the output layer of a network of one hidden layer, or None as the output layer."""
    layers = list(rest.children())
    if len(layers) != 2 or type(layers[0]) not in (nn.Tanh, nn.ReLU) or type(layers[1]) is not nn.Linear:
        return nn.Module, None
    return type(layers[0]), layers[1] if layers[1].out_features == 1 else None


def _relu_sum(query: Tensor, key: Tensor, last: nn.Linear) -> Prepared:
    """Lowers ``last(max(query + key, 0))``; the bias becomes the weight of one more unit, which is always 1."""
    weight = last.weight[0].to(query.dtype)
    if last.bias is not None:
        query, key = nn.functional.pad(query, (0, 1), value=1.0), nn.functional.pad(key, (0, 1))
        weight = torch.cat([weight, last.bias.to(query.dtype)])
    return Prepared(query, key, ReluSum(weight))


def _tanh_sum(query: Tensor, key: Tensor, last: nn.Linear) -> Prepared:
    """Lowers ``last(tanh(query + key))``; the bias becomes the weight of one more unit, which is always 1."""
    weight = last.weight[0].to(query.dtype)
    if last.bias is not None:
        # The tanh of twice this number rounds to 1.
        large = 10.0 if query.dtype == torch.float64 else 5.0
        query, key = nn.functional.pad(query, (0, 1), value=large), nn.functional.pad(key, (0, 1), value=large)
        weight = torch.cat([weight, last.bias.to(query.dtype)])
    return Prepared(query, key, TanhSum(weight))


def _activation(create: Callable[[], nn.Module]) -> nn.Module:
    try:
        module = create()
    except TypeError:
        module = None
    if not isinstance(module, nn.Module):
        raise KindError(f"activation must create a module without arguments, as nn.Tanh does; it is {create!r}")
    return module


def _linear(inputs: int, outputs: int) -> nn.Linear:
    layer = nn.Linear(inputs, outputs)
    nn.init.xavier_uniform_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def _add(query: Tensor, key: Tensor) -> Tensor:
    return query[..., :, None, :] + key[..., None, :, :]  # B H Q K D


def _join(query: Tensor, key: Tensor) -> Tensor:
    pairs = *query.shape[:-1], key.shape[-2]
    query = query[..., :, None, :].expand(*pairs, -1)
    return torch.cat([query, key[..., None, :, :].expand(*pairs, -1)], dim=-1)
