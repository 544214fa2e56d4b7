"""The trilinear score, which sees the query, the key and their product."""

import torch
from torch import Tensor, nn

from regard.errors import ShapeError
from regard.scores.inner_product import InnerProduct
from regard.scores.score import Prepared, Score
from regard.scores.weights import check_device, check_dim, register_weight
from regard.shapes.checks import check_sizes
from regard.shapes.grid import upcast
from regard.shapes.layout import Keys, Queries


class Trilinear(Score, fields=("weight",)):
    """Computes a linear function of the query, the key and their elementwise product.

    .. math::

        score(q, k) = w · [q; k; q ∘ k]

    Seo et al. 2017, "Bidirectional Attention Flow for Machine Comprehension", section 2, item 4: q is the context's
    vector h, k the query's u. It lowers to an inner product, ``[q ∘ w₃, w₁ · q, 1] · [k, 1, w₂ · k]``, so it runs on
    every backend that runs a dot product.

    Args:
        weight: w, ``[3 · dim]``.

    Raises:
        KindError: the weight is not a floating-point tensor.
        ShapeError: the weight has another rank, or a size that 3 does not divide.

    Numerics: half-precision inputs are scored in float32.

    Example:
        >>> import torch
        >>> from regard import scores
        >>> query, key = torch.tensor([[[[1.0, 2.0]]]]), torch.tensor([[[[3.0, 4.0], [0.0, 1.0]]]])
        >>> scores.Trilinear(torch.tensor([1.0, 0.0, 0.0, 1.0, 1.0, 1.0]))(query, key)  # 1 + 4 + 3 + 8 and 1 + 1 + 2
        tensor([[[[16.,  4.]]]])
    """

    weight: Tensor

    def __init__(self, weight: Tensor):
        super().__init__()
        register_weight(self, "weight", weight, "[3 · dim]")
        if weight.shape[0] % 3:
            raise ShapeError(f"weight must be [3 · dim]; it has shape {list(weight.shape)}, which 3 does not divide")

    @classmethod
    def create(cls, dim: int) -> "Trilinear":
        """Creates a trainable score of vectors of ``dim`` features, uniform after Glorot & Bengio 2010."""
        check_sizes(dim=dim)
        return cls(nn.Parameter(nn.init.xavier_uniform_(torch.empty(1, 3 * dim))[0]))

    def check(self, query: Tensor, key: Tensor) -> None:
        check_device("weight", self.weight, query)
        for name, tensor in (("query", query), ("key", key)):
            check_dim(name, tensor, self.weight.shape[0] // 3, "a third of weight [3 · dim]")

    def prepare(self, query: Queries, key: Keys) -> Prepared:
        query, key = upcast(query), upcast(key)
        of_query, of_key, of_product = self.weight.to(query.dtype).chunk(3)
        query_term, key_term = (query @ of_query)[..., None], (key @ of_key)[..., None]
        return Prepared(
            torch.cat([query * of_product, query_term, torch.ones_like(query_term)], dim=-1),
            torch.cat([key, torch.ones_like(key_term), key_term], dim=-1),
            InnerProduct(),
        )
