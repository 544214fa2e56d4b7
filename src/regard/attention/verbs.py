"""The verbs `attend`, `observe` and `plan`, and `attend_with_weights` for models that use the weights."""

from functools import partial
from typing import Literal, Never

from torch import Tensor, nn
from torch._C import _len_torch_dispatch_stack

from regard.attention.execution import (
    LISTENERS,
    execute,
    execute_recorded,
    full_precision,
    is_watched,
    make_plan,
    observe_again,
    recording,
    unwatched,
)
from regard.attention.kinds import kind_of
from regard.attention.operators import attend_traced, counts_operations, execute_counted
from regard.attention.planner import Plan
from regard.attention.problem import Problem, validate
from regard.attention.readings import Gatherer, Observed, ReadingName, Readings, as_readings, readings_line
from regard.attention.recall import recall_of
from regard.attention.result import Attended
from regard.attention.routes import planned, problem_of, route_of
from regard.biases import Bias
from regard.errors import ArgumentError, KindError
from regard.masks.mask import Mask
from regard.names.foreign_arguments import unknown_keyword
from regard.normalizers import Normalizing
from regard.scores import Scoring
from regard.tracing.transforms import is_traced

BackendName = str
"""``auto``, or the name of a backend: ``reference``, ``tiled``, ``sdpa``, ``flex``, ``cpu``, or a registered one."""


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    score: Scoring = "scaled_dot",
    normalizer: Normalizing = "softmax",
    mask: Mask | Tensor | Literal["causal"] | None = None,
    bias: Bias | Tensor | Literal["alibi"] | None = None,
    dropout: float = 0.0,
    backend: BackendName = "auto",
    **unknown: Never,
) -> Tensor:
    """Scores queries against keys, normalizes the scores, and mixes the values.

    .. math:: output_i = \\sum_j normalize_j(score(query_i, key_j) + bias_{ij}) \\; value_j

    With the defaults this is Vaswani et al. 2017, eq. 1 (their Q, K, V are our query, key, value; their d_k our dim).

    Args:
        query: ``[batch, heads, queries, dim]``; with one head also ``[batch, queries, dim]``, and without a batch
            ``[queries, dim]``. Masks, biases and results have the same leading axes (`regard.shapes.layout`).
        key: ``[batch, kv_heads, keys, dim]``; ``kv_heads`` divides ``heads``: each serves a group of query heads. It
            has as many axes as query.
        value: ``[batch, kv_heads, keys, value_dim]``, with as many axes.
        score: a name (``dot``, ``scaled_dot``, ``cosine``, ``distance``), a `Score`, or any function of
            ``(query, key)`` tiles that scores each pair by itself.
        normalizer: a name (``softmax``, ``sparsemax``, ``entmax15``, ``sigmoid``, ``hard``), a `Normalizer`, or a
            function of scores that normalizes their last axis.
        mask: who may see whom, a `Mask`, ``"causal"``, or a boolean tensor whose True means "may attend"; it broadcasts
            to ``[batch, heads, queries, keys]``, to ``[batch, queries, keys]`` or to ``[queries, keys]``, as query has
            4, 3 or 2 axes.
        bias: added to the scaled scores, a `Bias`, ``"alibi"``, or a tensor that broadcasts as a mask does.
        dropout: probability of dropping a weight, in [0, 1). It is always active: pass 0 in evaluation. On a CPU
            the backends `reference` and `tiled` round it to a multiple of 1 / 65,536, `cpu` to one of 2⁻³².
        backend: ``auto``, or one by name, which runs or raises.

    Returns:
        ``[batch, heads, queries, value_dim]`` in the inputs' dtype, with the leading axes of query. A query
        that may see no key gets 0, and gradient 0.

    Raises:
        ShapeError, KindError, ArgumentError: bad input; the message names the argument.
        UnknownNameError: no score, normalizer or backend of this name.
        BackendError: the named backend cannot run this.

    Half-precision inputs are scored, normalized and accumulated in float32. PyTorch's kernels (`sdpa`) round the
    weights to the inputs' dtype before they mix the values.

    Example:
        >>> import torch
        >>> import regard
        >>> query = key = torch.eye(2)  # without batch and heads
        >>> value = torch.tensor([[10.0], [20.0]])
        >>> regard.attend(query, key, value)
        tensor([[13.3024],
                [16.6976]])
        >>> regard.attend(query, key, value, mask="causal")  # the first query sees the first key alone
        tensor([[10.0000],
                [16.6976]])
        >>> regard.attend(query, key, value, score="cosine", normalizer="sparsemax")
        tensor([[10.],
                [20.]])
        >>> query, memory = torch.randn(2, 8, 5, 64), torch.randn(2, 4, 7, 64)  # each head of keys serves two
        >>> regard.attend(query, memory, memory).shape
        torch.Size([2, 8, 5, 64])
    """
    if unknown:
        raise KindError(unknown_keyword(attend, unknown))
    kind = kind_of(query, key, value, score, normalizer, mask, bias, dropout, backend)
    route = route_of(kind, query, key, value)
    if route is not None and route.bound is not None and route.rank == 4 and not is_watched():
        output = route.bound(query, key, value, score, mask)
        if output is not None:
            return output
    problem = problem_of(kind, route, query, key, value, score, normalizer, mask, bias, dropout)
    return problem.restore(run(problem, backend).output)


def observe(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    read: Readings | ReadingName | None = None,
    score: Scoring = "scaled_dot",
    normalizer: Normalizing = "softmax",
    mask: Mask | Tensor | Literal["causal"] | None = None,
    bias: Bias | Tensor | Literal["alibi"] | None = None,
    dropout: float = 0.0,
    backend: BackendName = "auto",
    **unknown: Never,
) -> Observed:
    """Attends, and reads the weights tile by tile: their matrix is never in memory unless you ask for it.

    Args:
        read: which readings to take; by default entropy, the top 8 keys and the attention that each key received.
            ``"view"``: what `regard.View` shows, the weights among it, in quadratic memory.
        query, key, value, score, normalizer, mask, bias, dropout, backend: as for `attend`.

    Returns:
        `Observed`; its output is what `attend` gives, bit for bit (with dropout: from the same random state). Readings
        are of the weights before dropout and carry no gradient.

    Raises:
        As `attend`; ArgumentError for readings that the problem does not have.

    Example:
        >>> import torch
        >>> import regard
        >>> query, key = torch.tensor([[2.0, 0.0], [0.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
        >>> seen = regard.observe(query, key, key, read=regard.Readings(entropy=True, top_k=1, received=True))
        >>> seen.entropy  # the second query sees all keys alike: log 3
        tensor([0.8589, 1.0986])
        >>> seen.top_weights, seen.top_indices
        (tensor([[0.6728],
                [0.3333]]), tensor([[0],
                [0]]))
        >>> seen.received  # the columns' sums
        tensor([1.0062, 0.4969, 0.4969])
        >>> torch.equal(seen.output, regard.attend(query, key, key))
        True
    """
    if unknown:
        line = readings_line(unknown)
        raise KindError(
            f"observe has no argument {next(iter(unknown))!r}: write {line}"
            if line
            else unknown_keyword(observe, unknown)
        )
    parts = {"score": score, "normalizer": normalizer, "mask": mask, "bias": bias, "dropout": dropout}
    problem = planned(query, key, value, **parts, backend=backend)
    readings = as_readings(read, Readings(entropy=True, top_k=8, received=True))
    if problem.route is not None and not is_watched():
        seen = observe_again(problem, readings)
        if seen is not None:
            return seen
    gatherer = Gatherer(problem, readings)
    output = run(problem, backend, gatherer).output
    seen = gatherer.observed(problem.restore(output), problem)
    selection = gatherer.read.recall
    if selection is False:
        return seen
    recall = recall_of(problem, selection, lambda dense, shares: run_unwatched(dense, backend, shares))
    if recall is None:
        raise ArgumentError(
            "recall=True reads what the lists of keys in a mask keep, and the mask has none: write "
            "mask=masks.columns(index), or recall=mask with the mask of the selected keys"
        )
    return seen._replace(recall=problem.restore(recall))


def attend_with_weights(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    score: Scoring = "scaled_dot",
    normalizer: Normalizing = "softmax",
    mask: Mask | Tensor | Literal["causal"] | None = None,
    bias: Bias | Tensor | Literal["alibi"] | None = None,
    dropout: float = 0.0,
    backend: BackendName = "auto",
    **unknown: Never,
) -> Attended:
    """Attends, and returns the weights as well, differentiable: for models that use them in their next step or a loss.

    Args:
        query, key, value, score, normalizer, mask, bias, dropout, backend: as for `attend`.

    Returns:
        `Attended`: the output is what `attend` gives, bit for bit (with dropout: from the same random state), and the
        weights are those before dropout. Weights that a normalizer draws at random are those that were used; some
        backends give them no gradient. Memory is quadratic.

    Raises:
        As `attend`.

    Example:
        >>> import torch
        >>> import regard
        >>> query = key = torch.eye(2, requires_grad=True)
        >>> output, weights = regard.attend_with_weights(query, key, torch.tensor([[10.0], [20.0]]))
        >>> output.detach(), weights.detach()
        (tensor([[13.3024],
                [16.6976]]), tensor([[0.6698, 0.3302],
                [0.3302, 0.6698]]))
        >>> weights.diagonal().log().sum().backward()  # a loss on the weights
        >>> query.grad
        tensor([[ 0.4670, -0.4670],
                [-0.4670,  0.4670]])
    """
    if unknown:
        raise KindError(unknown_keyword(attend_with_weights, unknown))
    parts = {"score": score, "normalizer": normalizer, "mask": mask, "bias": bias, "dropout": dropout}
    problem = planned(query, key, value, **parts, backend=backend)
    attended = run(problem, backend, need_weights=True)
    assert attended.weights is not None
    return Attended(problem.restore(attended.output), problem.restore(attended.weights))


def plan(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    score: Scoring = "scaled_dot",
    normalizer: Normalizing = "softmax",
    mask: Mask | Tensor | Literal["causal"] | None = None,
    bias: Bias | Tensor | Literal["alibi"] | None = None,
    dropout: float = 0.0,
    backend: BackendName = "auto",
    **unknown: Never,
) -> Plan:
    """Says how `attend` would read these arguments, which backend would run, and why the others would not.

    Args:
        query, key, value, score, normalizer, mask, bias, dropout, backend: as for `attend`.

    Returns:
        `Plan`. It refers to the tensors, since it is written when it is printed.

    Raises:
        As `attend`.

    Example:
        >>> import torch
        >>> import regard
        >>> query, memory = torch.randn(2, 8, 10, 64), torch.randn(2, 2, 10, 64)
        >>> plan = regard.plan(query, memory, memory, score="distance", backend="reference")
        >>> plan.sizes
        'batch 2 · heads 8 (kv 2) · queries 10 · keys 10 · dim 64'
        >>> plan.reasons["reference"], plan.reasons["sdpa"]
        ('named', "could, but 'reference' was named")
    """
    if unknown:
        raise KindError(unknown_keyword(plan, unknown))
    problem = validate(query, key, value, score=score, normalizer=normalizer, mask=mask, bias=bias, dropout=dropout)
    if problem.placed is not None:
        from regard.attention.sharding.plan import plan_sharded  # imports torch.distributed

        return plan_sharded(problem, backend)
    with full_precision(problem.query):
        return make_plan(problem, backend)


def run_unwatched(
    problem: Problem, backend: BackendName = "auto", gatherer: Gatherer | None = None, need_weights: bool = False
) -> Attended:
    """Runs a validated problem as `run` does, but no watcher gets it: for readings of other calls than the user's."""
    if problem.placed is not None:
        from regard.attention.sharding.execution import execute_sharded as execution  # imports torch.distributed
    else:
        execution = attend_traced if is_traced(problem.query) else execute
    with unwatched():
        return execution(problem, backend, gatherer, need_weights)


def run(
    problem: Problem,
    backend: BackendName,
    gatherer: Gatherer | None = None,
    need_weights: bool = False,
    layer: nn.Module | None = None,
) -> Attended:
    """Runs a validated problem; every verb and every layer calls it.

    Args:
        problem: the problem, whose tensors have four axes, as those of the result do.
        backend: ``auto``, or one by name.
        gatherer: gets the readings; None if there are none.
        need_weights: whether to return the weights; the output is the same, bit for bit.
        layer: the layer that computes this attention, for `regard.watch`; None: no layer of regard.
    """
    if problem.placed is not None:
        if LISTENERS:
            return LISTENERS[0](run_unwatched, problem, backend, gatherer, need_weights, layer)
        return run_unwatched(problem, backend, gatherer, need_weights)
    if is_traced(problem.query):
        return attend_traced(problem, backend, gatherer, need_weights)
    calls = recording()
    run_problem = execute_counted if _len_torch_dispatch_stack() and counts_operations() else execute
    execution = run_problem if calls is None else partial(execute_recorded, calls)
    if LISTENERS:
        return LISTENERS[0](execution, problem, backend, gatherer, need_weights, layer)
    return execution(problem, backend, gatherer, need_weights)
