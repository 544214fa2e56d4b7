"""What attention with its weights gives."""

from typing import NamedTuple

from torch import Tensor

from regard.records.shaded_table import readings_html
from regard.shapes import Requested
from regard.summaries import record_summary
from regard.transforms import exportable


@exportable
class Attended(NamedTuple):
    """Output and weights, both differentiable.

    Attributes:
        output: ``[batch, heads, queries, value_dim]``, exactly what `attend` gives.
        weights: before dropout, ``[batch, heads, queries, keys]``; float32 for half-precision input. From a layer
            that may leave them out, None where they were not asked for.
    """

    output: Tensor
    weights: Requested[Tensor]

    def __repr__(self) -> str:
        return record_summary("Attended", self._asdict().items())

    def _repr_html_(self) -> str:
        return readings_html("Attended", self._asdict().items(), "regard.View(attended, tokens)")

    @property
    def context(self) -> Tensor:
        """The output, by its name in recurrent decoders (Bahdanau et al. 2015, eq. 5)."""
        return self.output
