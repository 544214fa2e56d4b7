"""Key-value memory networks: several hops of attention over pairs of keys and values (Miller et al. 2016)."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.attention.verbs import BackendName
from regard.distributed.sequence_parts import refuse_parts
from regard.errors import ShapeError
from regard.nn.attention import Attention
from regard.nn.fx_leaf import fx_leaf
from regard.normalizers import Normalizing
from regard.scores import Scoring
from regard.shapes.checks import Requested, check_floating, size
from regard.summaries import summarized
from regard.tracing.module_calls import Module


@summarized
class Hopped(NamedTuple):
    """The output of `KeyValueMemoryNetwork`.

    Attributes:
        output: ``[batch, dim]``, the query after the last hop.
        weights: ``[batch, hops, memories]``; None unless ``need_weights``.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> layer = nn.KeyValueMemoryNetwork(4, hops=2)
        >>> hopped = layer(torch.zeros(1, 4), torch.ones(1, 5, 4), torch.ones(1, 5, 4), need_weights=True)
        >>> hopped.output.shape, hopped.weights.shape
        (torch.Size([1, 4]), torch.Size([1, 2, 5]))
    """

    output: Tensor
    weights: Requested[Tensor]


@fx_leaf
class KeyValueMemoryNetwork(Module):
    """Reads a memory of keys and values in several hops; each hop changes the query for the next one.

    .. math::

        o_h = Σ_i normalize_i(score(q_h, k_i)) v_i
        q_{h+1} = R_h (q_h + o_h)

    Miller et al. 2016, "Key-Value Memory Networks for Directly Reading Documents", section 3.1: q_1 is their A Φ_X(x),
    k_i their A Φ_K(k_i), v_i their A Φ_V(v_i), and R_h has no bias. The embeddings A and B and the candidates are the
    caller's: the answer is the y with the largest ``output · B Φ_Y(y)``. With equal keys and values it is a plain
    memory network.

    Args:
        dim: features of a query, a key and a value.
        hops: H, at least 1; default 2.
        score: a name, a `Score` or a function of queries and keys; default ``dot``, the paper's.
        normalizer: a name, a `Normalizer` or a function; default ``softmax``.
        backend: ``auto``, the default, or one by name, which runs or raises.

    Raises:
        ArgumentError: a size is below 1.
        UnknownNameError: no score, normalizer or backend has this name.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> layer = nn.KeyValueMemoryNetwork(2, hops=2)
        >>> for hop in layer.hops:
        ...     _ = torch.nn.init.eye_(hop.weight)
        >>> keys = torch.tensor([[[9.0, 0.0], [0.0, 9.0]]])
        >>> values = torch.tensor([[[-9.0, 9.0], [0.0, 0.0]]])  # the first fact leads to the second one
        >>> layer(torch.tensor([[1.0, 0.0]]), keys, values, need_weights=True).weights.detach().round(decimals=3)
        tensor([[[1., 0.],
                 [0., 1.]]])
    """

    def __init__(
        self,
        dim: int,
        hops: int = 2,
        *,
        score: Scoring = "dot",
        normalizer: Normalizing = "softmax",
        backend: BackendName = "auto",
    ):
        super().__init__()
        self.dim = size("dim", dim)
        self.attention = Attention(score, normalizer, backend=backend)
        self.hops = nn.ModuleList(nn.Linear(dim, dim, bias=False) for _ in range(size("hops", hops)))

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, lengths: Tensor | None = None, *, need_weights: bool = False
    ) -> Hopped:
        """Reads the memory.

        Args:
            query: ``[batch, dim]``.
            key: ``[batch, memories, dim]``.
            value: ``[batch, memories, dim]``.
            lengths: integers ``[batch]``, memories of each row; None: all. A row of none adds nothing to its query.
            need_weights: whether to give the weights of each hop; the output is the same, bit for bit.

        Raises:
            ShapeError, KindError: bad input; the message names the argument.
        """
        refuse_parts(type(self).__name__)
        check_floating("query", query)
        if query.dim() != 2 or query.shape[1] != self.dim:
            raise ShapeError(f"query must be [batch, {self.dim}]; it has shape {list(query.shape)}")
        check_floating("value", value)
        if value.shape[-1:] != (self.dim,):
            raise ShapeError(f"value must be [batch, memories, {self.dim}]; it has shape {list(value.shape)}")
        memory = self.attention.remember(key, lengths, value=value)
        weights = []
        for hop in self.hops:
            read = self.attention(query, memory, need_weights=need_weights)
            weights.append(read.weights)
            query = hop(query + read.output)
        return Hopped(query, torch.stack(weights, dim=1) if need_weights else None)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"
