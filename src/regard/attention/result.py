"""The result of attention: the output, and the weights if they were requested."""

from typing import NamedTuple

from torch import Tensor

from regard.records.shaded_table import readings_html
from regard.shapes.checks import Requested
from regard.summaries import summarized


@summarized
class Attended(NamedTuple):
    """Output and weights, both differentiable.

    Attributes:
        output: ``[batch, heads, queries, value_dim]``, exactly what `attend` gives.
        weights: before dropout, ``[batch, heads, queries, keys]``; float32 for half-precision input. From a layer
            that may leave them out, None where they were not asked for.

    Example:
        >>> import torch
        >>> import regard
        >>> query, memory = torch.zeros(1, 2, 3, 8), torch.zeros(1, 2, 4, 8)
        >>> attended = regard.attend_with_weights(query, memory, memory)
        >>> attended
        Attended(
          output: [1, 2, 3, 8] float32, 0
          weights: [1, 2, 3, 4] float32, 0.25
        )
        >>> attended.weights[0, 0, 0]
        tensor([0.2500, 0.2500, 0.2500, 0.2500])
        >>> output, weights = attended
        >>> attended.context is output
        True
    """

    output: Tensor
    weights: Requested[Tensor]

    def _repr_html_(self) -> str:
        return readings_html("Attended", self._asdict().items(), "regard.View(attended, tokens)")

    @property
    def context(self) -> Tensor:
        """The output, by its name in recurrent decoders (Bahdanau et al. 2015, eq. 5)."""
        return self.output
