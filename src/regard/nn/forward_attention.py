"""Forward attention with a transition agent, which decides at each step whether to move on (Zhang et al. 2018)."""

import torch
from torch import Tensor, nn

from regard.attention import Attended
from regard.attention.verbs import BackendName
from regard.nn.attention import Attention
from regard.nn.earlier_weights import EarlierWeights
from regard.nn.fx_leaf import fx_leaf
from regard.nn.memory import Memory
from regard.normalizers import ForwardAlignment
from regard.normalizers.alignment_normalizer import AlignmentNormalizer
from regard.scores import AnyScoreName, Scoring, create
from regard.scores.weights import in_dtype_of
from regard.shapes.checks import check_module
from regard.shapes.grid import upcast


@fx_leaf
class ForwardAttention(Attention):
    """Attention that stays at a key or moves on to the next one, as a transition agent decides.

    .. math::

        α_t = forward alignment(score(query_t, annotation), α_{t−1}, u_{t−1}),    c_t = Σ_j α_{tj} annotation_j
        u_t = σ(agent([c_t; query_t])),    u_0 = ½

    Zhang, Ling & Dai 2018, "Forward Attention in Sequence-to-Sequence Acoustic Modeling for Speech Synthesis";
    `regard.normalizers.ForwardAlignment` has the equation of α. Their agent reads the last output as well, which our
    decoders have in the query. `following` carries α and u to the next step; several queries of a call share one u.

    Args:
        score: a `Score`, a name, or a function of ``(query, key)``.
        transition_agent: a module from ``value_dim + query_dim`` features to 1, the logit of u.
        dropout, backend: as in `Attention`.

    Raises:
        KindError: the agent is not a module.
        UnknownNameError, ArgumentError: as `Attention`.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> attention = nn.ForwardAttention.create("additive", query_dim=4, key_dim=6)
        >>> memory = attention.remember(torch.randn(2, 5, 6), torch.tensor([5, 3]))
        >>> state, earlier = torch.randn(2, 4), None
        >>> for _ in range(2):
        ...     attended = attention(state, memory, earlier=earlier)
        ...     earlier = attention.following(state, memory, attended, earlier)
        >>> (attended.weights > 0).long()  # after two steps it has moved on by two keys at most
        tensor([[1, 1, 1, 0, 0],
                [1, 1, 1, 0, 0]])
    """

    def __init__(
        self, score: Scoring, transition_agent: nn.Module, dropout: float = 0.0, backend: BackendName = "auto"
    ):
        super().__init__(score, "forward", dropout, backend)
        check_module("transition_agent", transition_agent)
        self.transition_agent = transition_agent

    @classmethod
    def create(  # type: ignore[override]
        cls,
        score: AnyScoreName,
        query_dim: int,
        key_dim: int,
        dim: int | None = None,
        *,
        dropout: float = 0.0,
        backend: BackendName = "auto",
        **sizes: int | None,
    ) -> "ForwardAttention":
        """Creates an attention with a new score and a linear agent, whose values are the annotations.

        Args:
            score, query_dim, key_dim, dim, sizes: as in `regard.scores.create`.
            dropout, backend: as in `Attention`.
        """
        agent = nn.Linear(key_dim + query_dim, 1)
        return cls(create(score, query_dim, key_dim, dim, **sizes), agent, dropout, backend)  # type: ignore[arg-type]

    @property
    def sees_earlier(self) -> tuple[str, ...]:
        return (*super().sees_earlier, "transition")

    def first(self, memory: Memory) -> EarlierWeights:
        return super().first(memory)._replace(transition=memory.value.new_full(memory.value.shape[:1], 0.5))

    def aligned(self, normalizer: AlignmentNormalizer, earlier: EarlierWeights) -> AlignmentNormalizer:
        if earlier.transition is None or not isinstance(normalizer, ForwardAlignment):
            return super().aligned(normalizer, earlier)
        return normalizer.given(earlier.previous[:, None], earlier.transition[:, None, None])

    def following(
        self, query: Tensor, memory: Memory, attended: Attended, earlier: EarlierWeights | None
    ) -> EarlierWeights:
        features = torch.cat(
            [upcast(part if part.dim() == 2 else part[:, -1]) for part in (attended.output, query)], -1
        )
        logit = in_dtype_of(features, self.transition_agent)(features)
        # At u = 1 in rounded numbers, what is at the last key would be lost.
        transition = logit.sigmoid()[:, 0].clamp(max=1 - torch.finfo(logit.dtype).eps)
        return super().following(query, memory, attended, earlier)._replace(transition=transition)
