"""Attention with one head and any score, for decoders that attend to a memory step by step."""

from contextlib import AbstractContextManager, nullcontext
from typing import ClassVar

import torch
from torch import Tensor

from regard import masks
from regard.attention import Attended, Plan, Problem
from regard.attention.execution import BACKENDS, check_backend, make_plan
from regard.attention.problem import CachedMemory, check_dropout, one_dtype, validate
from regard.attention.verbs import BackendName, run
from regard.biases import Bias, bias_for
from regard.distributed.sequence_parts import are_parts, joined, own_part, refuse_parts
from regard.errors import ArgumentError, KindError, ShapeError
from regard.kernels.availability import kernels_awaited
from regard.masks import Mask
from regard.nn.earlier_weights import EarlierWeights
from regard.nn.fx_leaf import fx_leaf
from regard.nn.memory import Memory
from regard.nn.padding import check_coupled, visible_annotations, without_hidden
from regard.normalizers import Normalizing, as_normalizer, own_normalizer
from regard.normalizers.alignment_normalizer import AlignmentNormalizer
from regard.scores import AnyScoreName, Scoring, create, own_score
from regard.scores.alignment_score import AlignmentScore
from regard.shapes.checks import check_floating, type_text
from regard.shapes.grid import upcast
from regard.shapes.layout import pairs_by_batch
from regard.tracing.module_calls import Module


@fx_leaf
class Attention(Module):
    """Attention with one head and any score.

    .. math:: context = \\sum_j normalize_j(score(query, annotation_j)) \\; annotation_j

    Bahdanau et al. 2015, eq. 5 and 6 (their c_i is the context, α_ij are the weights, h_j the annotations), Luong et
    al. 2015, section 3.1, and Chorowski et al. 2015, eq. 5 to 9, depending on the score. Annotations are projected once
    for a sentence, and a query once for a step::

        attention = Attention.create("additive", query_dim=512, key_dim=1024, dim=256)
        memory = attention.remember(annotations, lengths)
        context, weights = attention(state, memory)

    Args:
        score: a `Score`, a name, or a function of ``(query, key)``.
        normalizer: a name, a `Normalizer` or a function.
        dropout: probability of dropping a weight while training, in [0, 1); some backends round it on a CPU (see
            `regard.attend`).
        backend: ``auto``, or the name of a backend, which runs or raises.

    Raises:
        UnknownNameError: no score, normalizer or backend has this name.
        KindError, ArgumentError: another argument is invalid; the message names it.

    Example:
        >>> import torch
        >>> from regard import nn
        >>> attention = nn.Attention("dot")
        >>> memory = attention.remember(torch.tensor([[[1.0, 0.0], [0.0, 1.0], [9.0, 9.0]]]), lengths=torch.tensor([2]))
        >>> context, weights = attention(torch.tensor([[2.0, 0.0]]), memory)
        >>> context, weights  # the third annotation is padding
        (tensor([[0.8808, 0.1192]]), tensor([[0.8808, 0.1192, 0.0000]]))
        >>> attention = nn.Attention.create("additive", query_dim=20, key_dim=64, dim=16)
        >>> attention(torch.randn(3, 20), torch.randn(3, 7, 64)).context.shape
        torch.Size([3, 64])
    """

    is_cross_attention: ClassVar[bool] = True  # for `regard.watch`

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
        if self.normalizer.couples == "queries" and not isinstance(self.normalizer, AlignmentNormalizer):
            raise ArgumentError(
                f"normalizer {type(self.normalizer).__name__} compares all queries, and this attention has one query "
                "at a time: write regard.attend for all of them"
            )
        self.dropout = check_dropout(dropout)
        self.backend: BackendName = check_backend(backend)

    @classmethod
    def create(
        cls,
        score: AnyScoreName,
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
        """Creates an attention with a new, initialized score.

        Args:
            score, query_dim, key_dim, dim, max_keys, channels, kernel_size: as in `regard.scores.create`.
            normalizer, dropout, backend: as in `Attention`.
        """
        new_score = create(
            score, query_dim, key_dim, dim, max_keys=max_keys, channels=channels, kernel_size=kernel_size
        )
        return cls(new_score, normalizer, dropout, backend)

    def remember(
        self,
        annotations: Tensor,
        lengths: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        value: Tensor | None = None,
    ) -> Memory:
        """Prepares a memory that queries will attend to.

        Args:
            annotations: ``[batch, keys, key_dim]``.
            lengths: integers ``[batch]``: the number of first keys that may be attended to. None: all.
            mask: bool ``[batch, keys]``; True: may be attended to. None: all.
            value: ``[batch, keys, value_dim]``; default: the annotations.

        Returns:
            The `Memory`, which serves any number of queries.

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
                raise KindError(f"mask must be a bool tensor [batch, keys]; it is {type_text(mask)}")
            if tuple(mask.shape) != (batch, keys):
                raise ShapeError(f"mask must be [batch, keys] = {[batch, keys]}; it has shape {list(mask.shape)}")
            user_mask = masks.keep(joined(mask, 1, "annotations")[:, None, None, :])
            visible = user_mask if visible is None else visible & user_mask
        allowed = None
        if visible is not None:
            allowed = visible_annotations(visible, annotations)
            annotations, value = without_hidden(annotations, value, own_part(allowed, 1, keys, "annotations"))
        key = self.score.project_key(annotations[:, None])[:, 0]
        # Half precision is scored in float32, so it is converted once here and not at each step.
        key, value, score = upcast(key), upcast(value), self.score.projected()
        return Memory(key, value, score, allowed, self._cached(Memory(key, value, score, allowed)))

    def _cached(self, memory: Memory) -> CachedMemory | None:
        """Returns the memory as the first backend that can prepares it; none prepares a part of a sequence."""
        if are_parts():
            return None
        with self._awaited():
            for backend in BACKENDS.values():
                if self.backend in ("auto", backend.name):
                    cached = backend.prepare_memory(memory.key, memory.value, memory.score, memory.mask)
                    if cached is not None:
                        return cached
        return None

    def _awaited(self) -> AbstractContextManager[None]:
        """Returns a context in which kernels are awaited if a backend is named; a call that is traced runs none."""
        return nullcontext() if self.backend == "auto" or torch.compiler.is_compiling() else kernels_awaited()

    @property
    def sees_earlier(self) -> tuple[str, ...]:
        """The fields of `EarlierWeights` on which the weights of a step depend; empty if they depend on none."""
        names = {"previous"} if isinstance(self.normalizer, AlignmentNormalizer) else set()
        if isinstance(self.score, AlignmentScore):
            names |= {"previous", "total"} if self.score.sees == "both" else {self.score.sees}
        return tuple(sorted(names))

    def first(self, memory: Memory) -> EarlierWeights:
        """Returns what the first step sees: 1 at the first visible key if it begins there, 0 elsewhere."""
        zero = memory.key.new_zeros(memory.key.shape[:2])
        begins = isinstance(self.score, AlignmentScore) and self.score.begins
        if not (begins or isinstance(self.normalizer, AlignmentNormalizer)):
            return EarlierWeights(zero, zero)
        visible = torch.ones_like(zero, dtype=torch.bool) if memory.mask is None else memory.mask
        return EarlierWeights((visible & (visible.cumsum(1) == 1)).to(zero.dtype), zero)

    def aligned(self, normalizer: AlignmentNormalizer, earlier: EarlierWeights) -> AlignmentNormalizer:
        """Returns the normalizer for the step after those with these weights."""
        return normalizer.given(earlier.previous[:, None])

    def following(
        self, query: Tensor, memory: Memory, attended: Attended, earlier: EarlierWeights | None
    ) -> EarlierWeights:
        """Returns what the step after this one sees.

        Args:
            query, memory, earlier: the arguments of this step's call.
            attended: its result; the weights may be others, such as those of a choice.
        """
        assert attended.weights is not None
        return (self.first(memory) if earlier is None else earlier).followed_by(attended.weights)

    def forward(
        self,
        query: Tensor,
        memory: Memory | Tensor,
        *,
        mask: Mask | Tensor | str | None = None,
        bias: Bias | Tensor | str | None = None,
        earlier: EarlierWeights | None = None,
        normalizer: Normalizing | None = None,
        need_weights: bool = True,
    ) -> Attended:
        """Attends to a memory once.

        Args:
            query: ``[batch, query_dim]``, or ``[batch, queries, query_dim]`` for several queries. The context has its
                dtype.
            memory: a `Memory`, or annotations ``[batch, keys, key_dim]`` for this call only.
            mask: an additional mask: a `Mask`, ``"causal"``, or a bool tensor (True: may be attended to) that
                broadcasts to ``[batch, keys]``, or for several queries to ``[batch, queries, keys]``.
            bias: added to the scores: a `Bias`, ``"alibi"``, or a tensor with a shape as in ``mask``.
            earlier: the weights of the steps before this call, if the attention `sees_earlier` ones; None: it is the
                first step. A score sees the same for all queries of a call.
            normalizer: overrides the module's, for one that depends on the step, such as Luong's local-p.
            need_weights: whether to return the weights, which are differentiable; if False, backends that can do so
                compute no matrix of weights. The context is the same, bit for bit.

        Returns:
            `Attended`. A batch row without visible keys has context 0 and weights 0.

        Raises:
            ShapeError, KindError: bad input; the message names the argument.
            ArgumentError: the attention sees no earlier weights.
            BackendError: the named backend cannot run this.
        """
        problem = self._problem(query, memory, mask, bias, earlier, normalizer)
        output, weights = run(problem, self.backend, need_weights=need_weights, layer=self)
        # The axis of heads, and the axis of queries for a single query.
        axes = 1 if query.dim() == 3 else (1, 2)
        return Attended(output.squeeze(axes).to(query.dtype), None if weights is None else weights.squeeze(axes))

    def plan(
        self,
        query: Tensor,
        memory: Memory | Tensor,
        *,
        mask: Mask | Tensor | str | None = None,
        bias: Bias | Tensor | str | None = None,
        earlier: EarlierWeights | None = None,
        normalizer: Normalizing | None = None,
    ) -> Plan:
        """Returns which backend a call with these arguments would run, and why the others would not.

        Args and Raises: as in `forward`.
        """
        refuse_parts("Attention.plan")
        problem = self._problem(query, memory, mask, bias, earlier, normalizer)
        return make_plan(problem, self.backend)

    def _problem(
        self,
        query: Tensor,
        memory: Memory | Tensor,
        mask: Mask | Tensor | str | None,
        bias: Bias | Tensor | str | None,
        earlier: EarlierWeights | None,
        normalizer: Normalizing | None,
    ) -> Problem:
        """Checks the arguments of a call and combines them to a problem."""
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
        step_normalizer = self.normalizer if normalizer is None else as_normalizer(normalizer)
        EarlierWeights.check(earlier, memory.key)
        if self.sees_earlier:
            earlier = self.first(memory) if earlier is None else earlier
            score = score.given(*earlier[:2]) if isinstance(score, AlignmentScore) else score
            if isinstance(step_normalizer, AlignmentNormalizer):
                step_normalizer = self.aligned(step_normalizer, earlier)
        elif earlier is not None:
            raise ArgumentError(
                "earlier is for scores and normalizers that see earlier weights, such as LocationAware; this attention "
                f"has {type(self.score).__name__} and {type(self.normalizer).__name__}"
            )
        rows = (query.unsqueeze(1) if single else query).unsqueeze(1)
        add_axes = _pairs_of_one_query if single else pairs_by_batch
        added, added_bias = masks.as_mask(mask), bias_for(bias, 1)
        added = None if added is None else added.map_tensors(add_axes)
        visible = None if memory.mask is None else masks.keep(memory.mask[:, None, None, :])
        problem = Problem(
            *one_dtype(upcast(self.score.project_query(rows)), memory.key.unsqueeze(1), memory.value.unsqueeze(1)),
            score=score,
            normalizer=step_normalizer,
            mask=added if visible is None else visible if added is None else visible & added,
            bias=None if added_bias is None else added_bias.map_tensors(add_axes),
            dropout=self.dropout if self.training else 0.0,
            # The cached memory includes only its own mask.
            memory=memory.cached if added is None else None,
        )
        if are_parts():
            if single:
                refuse_parts("an Attention with a single query")
            parts = {name: getattr(problem, name) for name in ("score", "normalizer", "mask", "bias", "dropout")}
            return validate(problem.query, problem.key, problem.value, **parts)
        score.check(problem.query, problem.key)
        if added is not None and problem.mask is not None:
            problem.mask.check(problem.grid)
            check_coupled(problem.normalizer, added)
        if problem.bias is not None:
            problem.bias.check(problem.query, problem.grid)
        if problem.memory is not None:
            with self._awaited():
                if problem.memory.declines(problem) is not None:
                    # The same keys and values, as they were before they were cached, serve every problem.
                    problem.memory = None
        return problem


def _pairs_of_one_query(tensor: Tensor) -> Tensor:
    """Returns the mask or bias ``[batch, keys]`` of single queries with axes of heads and of queries."""
    return tensor[..., None, None, :] if tensor.dim() < 3 else tensor
