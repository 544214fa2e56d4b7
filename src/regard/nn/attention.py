"""Attention with one head and any score, for decoders that attend to a memory step by step."""

from typing import TypeVar

from torch import Tensor, nn

from regard import masks
from regard.attention import Attended, Plan, Problem
from regard.attention.memory import CachedMemory
from regard.attention.planner import BACKENDS, check_backend, make_plan
from regard.attention.validation import check_dropout
from regard.attention.verbs import BackendName, Normalizing, run
from regard.biases import Bias, as_bias
from regard.errors import ArgumentError, KindError, ShapeError
from regard.masks import Mask
from regard.nn.fx_leaf import fx_leaf
from regard.nn.hidden_keys import seen_keys, without_hidden
from regard.nn.memory import Memory
from regard.normalizers import as_normalizer, own_normalizer
from regard.scores import LocationAware, Scoring, create, own_score
from regard.shapes import check_floating, upcast


@fx_leaf
class Attention(nn.Module):
    """Attention with one head and any score.

    .. math:: context = \\sum_j normalize_j(score(query, annotation_j)) \\; annotation_j

    Bahdanau et al. 2015, eq. 5 and 6 (their c_i is our context, α_ij our weights, h_j our annotations), Luong et al.
    2015, section 3.1, and Chorowski et al. 2015, eq. 5 to 9, by the choice of the score. Annotations are projected once
    for a sentence, and a query once for a step::

        attention = Attention.create("additive", query_dim=512, key_dim=1024, dim=256)
        memory = attention.remember(annotations, lengths)
        context, weights = attention(state, memory)

    Args:
        score: a `Score`, a name, or a function of ``(query, key)``.
        normalizer: a name, a `Normalizer` or a function.
        dropout: probability of dropping a weight while training, in [0, 1); some backends round it on a CPU (see
            `regard.attend`).
        backend: ``auto``, or one by name, which runs or raises.
    """

    def __init__(
        self,
        score: Scoring = "scaled_dot",
        normalizer: Normalizing = "softmax",
        dropout: float = 0.0,
        backend: BackendName = "auto",
    ):
        super().__init__()
        self.score = own_score(score)
        self.normalizer = own_normalizer(normalizer)
        self.dropout = check_dropout(dropout)
        self.backend: BackendName = check_backend(backend)

    @classmethod
    def create(
        cls,
        score: str,
        query_dim: int,
        key_dim: int,
        dim: int | None = None,
        *,
        max_keys: int | None = None,
        channels: int | None = None,
        kernel_size: int | None = None,
        normalizer: Normalizing = "softmax",
        dropout: float = 0.0,
        backend: BackendName = "auto",
    ) -> "Attention":
        """One with a new score, freshly initialised.

        Args:
            score, query_dim, key_dim, dim, max_keys, channels, kernel_size: as for `regard.scores.create`.
            normalizer, dropout, backend: as for `Attention`.
        """
        created = create(score, query_dim, key_dim, dim, max_keys=max_keys, channels=channels, kernel_size=kernel_size)
        return cls(created, normalizer, dropout, backend)

    def remember(
        self,
        annotations: Tensor,
        lengths: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        value: Tensor | None = None,
    ) -> Memory:
        """Prepare what will be attended to.

        Args:
            annotations: ``[batch, keys, key_dim]``.
            lengths: integers ``[batch]``: so many of the first keys may be attended. None: all.
            mask: bool ``[batch, keys]``; True: may be attended. None: all.
            value: ``[batch, keys, value_dim]``; the annotations if not given.

        Raises:
            ShapeError, KindError: bad input; the message names the argument.
        """
        value = annotations if value is None else value
        for name, tensor in (("annotations", annotations), ("value", value)):
            check_floating(name, tensor)
            if tensor.dim() != 3 or tensor.shape[:2] != annotations.shape[:2]:
                raise ShapeError(
                    f"{name} must be [batch, keys, features], batch and keys as annotations have them; "
                    f"it has shape {list(tensor.shape)} and annotations {list(annotations.shape)}"
                )
        batch, keys = annotations.shape[:2]
        visible: Mask | None = None if lengths is None else masks.lengths(lengths)
        if mask is not None:
            if not isinstance(mask, Tensor):
                raise KindError(f"mask must be a bool tensor [batch, keys]; it is a {type(mask).__name__}")
            if tuple(mask.shape) != (batch, keys):
                raise ShapeError(f"mask must be [batch, keys] = {[batch, keys]}; it has shape {list(mask.shape)}")
            marked = masks.keep(mask[:, None, None, :])
            visible = marked if visible is None else visible & marked
        seen = None
        if visible is not None:
            seen = seen_keys(visible, annotations)
            annotations, value = without_hidden(annotations, value, seen)
        key = self.score.project_key(annotations[:, None])[:, 0]
        # Half precision is scored in float32 anyway: once here, and not again at each step.
        key, value, score = upcast(key), upcast(value), self.score.projected()
        return Memory(key, value, score, seen, self._cached(Memory(key, value, score, seen)))

    def _cached(self, memory: Memory) -> CachedMemory | None:
        """The memory as the first backend prepares it that can."""
        for backend in BACKENDS.values():
            if self.backend in ("auto", backend.name):
                cached = backend.prepare_memory(memory.key, memory.value, memory.score, memory.mask)
                if cached is not None:
                    return cached
        return None

    def forward(
        self,
        query: Tensor,
        memory: Memory | Tensor,
        *,
        mask: Mask | Tensor | None = None,
        bias: Bias | Tensor | None = None,
        previous_weights: Tensor | None = None,
        normalizer: Normalizing | None = None,
        need_weights: bool = True,
        projected: bool = False,
    ) -> Attended:
        """Attend once.

        Args:
            query: ``[batch, query_dim]``, or ``[batch, queries, query_dim]`` for many at once. The context is of
                its dtype.
            memory: a `Memory`, or annotations ``[batch, keys, key_dim]`` that are wanted for this call only.
            mask: besides the memory's; a `Mask`, or a bool tensor (True: may be attended) that broadcasts to
                ``[batch, keys]``, or for many queries to ``[batch, queries, keys]``.
            bias: added to the scores; a `Bias`, or a tensor of a shape as for ``mask``.
            previous_weights: the weights of the step before, ``[batch, keys]``; for a `LocationAware` score.
            normalizer: instead of the module's; for one that depends on the step, as Luong's local-p.
            need_weights: whether to return the weights, which carry a gradient; without, no matrix of them is made on
                backends that can do without. The context is the same, bit for bit.
            projected: whether the query has been through ``score.project_query`` already; then its features are those
                of the memory's keys.

        Returns:
            `Attended`. A batch row with nothing to see has context 0 and weights 0.

        Raises:
            ShapeError, KindError: bad input; the message names the argument.
            ArgumentError: previous weights for a score that takes none.
            BackendError: the named backend cannot run this.
        """
        problem = self._problem(query, memory, mask, bias, previous_weights, normalizer, projected)
        output, weights = run(problem, self.backend, need_weights=need_weights)
        # The axis of heads, and that of queries if there is one query.
        added = 1 if query.dim() == 3 else (1, 2)
        return Attended(output.squeeze(added).to(query.dtype), None if weights is None else weights.squeeze(added))

    def plan(
        self,
        query: Tensor,
        memory: Memory | Tensor,
        *,
        mask: Mask | Tensor | None = None,
        bias: Bias | Tensor | None = None,
        previous_weights: Tensor | None = None,
        normalizer: Normalizing | None = None,
        projected: bool = False,
    ) -> Plan:
        """Which backend a call with these arguments would run, and why each other one would not.

        Args and Raises: as for `forward`.
        """
        problem = self._problem(query, memory, mask, bias, previous_weights, normalizer, projected)
        return make_plan(problem, self.backend)

    def _problem(
        self,
        query: Tensor,
        memory: Memory | Tensor,
        mask: Mask | Tensor | None,
        bias: Bias | Tensor | None,
        previous_weights: Tensor | None,
        normalizer: Normalizing | None,
        projected: bool,
    ) -> Problem:
        """What a call asks for, checked."""
        memory = memory if isinstance(memory, Memory) else self.remember(memory)
        check_floating("query", query)
        batch = memory.key.shape[0]
        if query.dim() not in (2, 3) or query.shape[0] != batch:
            raise ShapeError(
                f"query must be [batch, query_dim] or [batch, queries, query_dim] with memory's batch, {batch}; "
                f"it has shape {list(query.shape)}"
            )
        single = query.dim() == 2
        score = memory.score
        if previous_weights is not None:
            if not isinstance(score, LocationAware):
                raise ArgumentError(
                    f"previous_weights are for LocationAware scores; the score is {type(score).__name__}"
                )
            score = score.given(previous_weights)
        rows = (query.unsqueeze(1) if single else query).unsqueeze(1)
        problem = Problem(
            query=upcast(rows if projected else self.score.project_query(rows)),
            key=memory.key.unsqueeze(1),
            value=memory.value.unsqueeze(1),
            score=score,
            normalizer=self.normalizer if normalizer is None else as_normalizer(normalizer),
            dropout=self.dropout if self.training else 0.0,
            memory=memory.cached,
        )
        score.check(problem.query, problem.key)
        if memory.mask is not None:
            problem.mask = masks.keep(memory.mask[:, None, None, :])
        if mask is not None:
            # The cached memory knows its own mask alone.
            problem.memory = None
            given = masks.as_mask(_with_heads(mask, single))
            assert given is not None
            problem.mask = given if problem.mask is None else problem.mask & given
            problem.mask.check(problem.grid)
        if bias is not None:
            problem.bias = as_bias(_with_heads(bias, single))
            assert problem.bias is not None
            problem.bias.check(problem.query, problem.grid)
        if problem.memory is not None and problem.memory.declines(problem) is not None:
            # The same keys and values, as they were before they were cached, serve every problem.
            problem.memory = None
        return problem


Given = TypeVar("Given")


def _with_heads(given: Given, single: bool) -> Given | Tensor:
    """A tensor over ``[batch, keys]`` or ``[batch, queries, keys]`` as one over four axes; anything else as it is."""
    if not isinstance(given, Tensor):
        return given
    if single:
        return given[..., None, None, :]
    return given[:, None] if given.dim() == 3 else given
