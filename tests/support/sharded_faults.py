"""What `tests/distributed/test_faults.py` calls in each process of a group: calls that differ, fail, or are unusual.

Each case has a gloo group of its own, because a failure of a group is final.
"""

import os
import signal
from functools import partial

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.utils.checkpoint import checkpoint

import regard
from regard import distributed, masks, normalizers, scores
from regard.distributed import Shards

LIMITS = {"differs": 60.0, "fails": 2.0, "dies": 60.0}
"""Seconds that processes wait in each kind of case; in the second they wait in vain."""

Q, K = 5, 7

_limits = {}  # mesh → kind of case


def _tensors(requires_grad=True, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    shapes = (2, 3, Q, 4), (2, 3, K, 4), (2, 3, K, 6)
    return [torch.randn(shape, generator=generator).to(dtype).requires_grad_(requires_grad) for shape in shapes]


def _shards(mesh):
    limit = LIMITS[_limits.get(mesh, "differs")]
    return [Shards.contiguous(length, mesh, timeout=limit) for length in (Q, K)]


def _parts(mesh, tensors=None):
    queries, keys = _shards(mesh)
    query, key, value = tensors or _tensors()
    return [queries.cut(query, -2), keys.cut(key, -2), keys.cut(value, -2)]


def _attempt(call):
    """The class and text of the error that a call raises; if it raises none, what it returns, as a text."""
    try:
        return str(call())
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _common(mesh):
    """A call that is right on every process."""
    with distributed.sequence(*_shards(mesh)):
        parts = _parts(mesh)
        output = regard.attend(*parts, mask="causal")
    output.sum().backward()
    queries, _ = _shards(mesh)
    whole = regard.attend(*_tensors(), mask="causal")
    return bool(torch.allclose(output, queries.cut(whole, -2)))


def _general(value, requires_grad=False):
    weight = torch.full((4, 4), value).double()
    return scores.General(torch.nn.Parameter(weight) if requires_grad else weight)


def _stepped(rank):
    """A score whose weights an optimizer has changed in place after a call, by another rate on process 1."""
    score = _general(1.0, True)
    return score, torch.optim.SGD(score.parameters(), lr=0.1 * (1 + rank))


def _beyond(n):
    return masks.where(lambda batch, head, query, key: query - key < n)


OPTIONS = {
    "mask": lambda rank: {"mask": masks.causal() if rank else masks.window(2, 0)},
    "contents of a mask": lambda rank: {"mask": torch.eye(Q, K).bool() | (torch.arange(K) == rank)},
    "number in a mask's function": lambda rank: {"mask": _beyond(1 + rank)},
    "mask's function": lambda rank: {
        "mask": masks.where((lambda b, h, q, k: q >= k) if rank else (lambda b, h, q, k: q > k))
    },
    "part of a mask": lambda rank: {"mask": _beyond(2) & masks.window(1 + rank, 0)},
    "bias": lambda rank: {"bias": torch.full((Q, K), float(rank)).double()},
    "normalizer": lambda rank: {"normalizer": "softmax" if rank else "sparsemax"},
    "normalizer's parameter": lambda rank: {"normalizer": normalizers.Softmax(1.0 + rank)},
    "score": lambda rank: {"score": "dot" if rank else "cosine"},
    "score's weight": lambda rank: {"score": _general(1.0 + rank)},
    "dropout": lambda rank: {"dropout": 0.1 * rank},
    "backend": lambda rank: {"backend": "auto" if rank else "cpu"},
    "bad mask": lambda rank: {"mask": "causal" if rank else "casual"},
    "error in a score": lambda rank: {"score": (lambda q, k: q @ k.mT) if rank else 3},
}
"""Arguments of `attend` that are others on process 0."""


def _verb(mesh, rank):
    parts = _parts(mesh)
    return regard.attend(*parts) if rank else regard.observe(*parts)


def _axes(mesh, rank):
    parts = [part if rank else part[0] for part in _parts(mesh)]
    return regard.attend(*parts)


def _order(mesh, rank):
    queries, keys = _shards(mesh)
    if rank:
        spans = (range(2), range(5, 7)), (range(2, 5),)
        keys = Shards(K, mesh, spans, keys.timeout)
    tensors = _tensors()
    with distributed.sequence(queries, keys):
        return regard.attend(queries.cut(tensors[0], -2), *(keys.cut(one, -2) for one in tensors[1:]))


def _without_gradient(mesh, rank):
    with torch.set_grad_enabled(bool(rank)):
        return regard.attend(*_parts(mesh))


def _changed_weights(mesh, rank):
    score, optimizer = _stepped(rank)
    regard.attend(*_parts(mesh), score=score).sum().backward()
    for parameter in score.parameters():
        parameter.grad.fill_(1.0)
    optimizer.step()
    return regard.attend(*_parts(mesh), score=score)


def _version(mesh, rank):
    from regard.attention.sharding import agreement

    real = agreement._versions
    agreement._versions = lambda: f"regard 0.{rank}"
    try:
        return regard.attend(*_parts(mesh))
    finally:
        agreement._versions = real


def _unused(mesh, rank):
    first, second = regard.attend(*_parts(mesh)), regard.attend(*_parts(mesh))
    (first.sum() + second.sum() if rank else first.sum()).backward()


def _half_backward(mesh, rank):
    output = regard.attend(*_parts(mesh))
    if rank:
        output.sum().backward()
    return regard.attend(*_parts(mesh))


def _second_derivative(mesh, rank):
    parts = _parts(mesh)
    torch.autograd.grad(regard.attend(*parts).square().sum(), parts[0], create_graph=bool(rank))


def _changed_in_place(mesh, rank):
    normalizer = normalizers.Softmax(torch.ones(3).double())
    output = regard.attend(*_parts(mesh), normalizer=normalizer)
    if rank:
        normalizer.temperature.data = normalizer.temperature
        with torch.no_grad():
            normalizer.temperature.mul_(2.0)
    output.sum().backward()


def _gather_of_another(mesh, rank):
    queries, keys = _shards(mesh)
    query, key, _ = _parts(mesh)
    return distributed.gather(query, queries) if rank else distributed.gather(key, keys)


CALLS = {
    "dtype": lambda mesh, rank: regard.attend(
        *(one.to([torch.float64, torch.float32][rank % 2]) for one in _parts(mesh))
    ),
    "shape": lambda mesh, rank: regard.attend(*(one[:, : 1 + rank % 2] for one in _parts(mesh))),
    "one argument's dtype": lambda mesh, rank: regard.attend(
        *_parts(mesh)[:2], _parts(mesh)[2].float() if rank else _parts(mesh)[2]
    ),
    "too few keys": lambda mesh, rank: regard.attend(
        *(one[..., : (1 if rank == 0 else None), :] for one in _parts(mesh))
    ),
    "no tensor": lambda mesh, rank: regard.attend(_parts(mesh)[0], _parts(mesh)[1] if rank else None, _parts(mesh)[2]),
    "verb": _verb,
    "weights": lambda mesh, rank: (regard.attend if rank else regard.attend_with_weights)(*_parts(mesh)),
    "plan": lambda mesh, rank: (regard.attend if rank else regard.plan)(*_parts(mesh)),
    "readings": lambda mesh, rank: regard.observe(*_parts(mesh), read=regard.Readings(top_k=2 + rank)),
    "bad readings": lambda mesh, rank: regard.observe(*_parts(mesh), read=regard.Readings(rows=[1 if rank else 99])),
    "axes": _axes,
    "order": _order,
    "requires_grad": lambda mesh, rank: regard.attend(*_parts(mesh, _tensors(requires_grad=bool(rank)))),
    "no_grad": _without_gradient,
    "weights after a step": _changed_weights,
    "version": _version,
    "unused result": _unused,
    "backward pass and call": _half_backward,
    "second derivative": _second_derivative,
    "change in place": _changed_in_place,
    "gather": _gather_of_another,
    "gather and call": lambda mesh, rank: (
        regard.attend(*_parts(mesh)) if rank else distributed.gather(_parts(mesh)[0], _shards(mesh)[0])
    ),
    **{
        name: partial(lambda options, mesh, rank: regard.attend(*_parts(mesh), **options(rank)), options)
        for name, options in OPTIONS.items()
    },
}
"""Calls that are others on process 0, each ``(mesh, rank)``."""


class _FailureError(Exception):
    pass


def _raise():
    raise _FailureError("of this process")


def _die():
    os.kill(os.getpid(), signal.SIGKILL)


def _mid_call(mesh, rank, action, backward):
    """A call whose normalizer acts in the middle of the steps on process 0, in the forward or in the backward pass."""

    def act(gradient=None):
        if dist.get_rank() == 0:
            action()

    def weigh(scores):
        weights = scores.softmax(-1).nan_to_num(0.0)
        if not backward:
            act()
        elif weights.requires_grad:
            weights.register_hook(act)
        return weights

    regard.attend(*_parts(mesh), normalizer=normalizers.Custom(weigh)).sum().backward()


def _other_number_of_calls(mesh, rank):
    regard.attend(*_parts(mesh))
    if rank:
        regard.attend(*_parts(mesh))


FAILING = {
    "forward": lambda mesh, rank: _mid_call(mesh, rank, _raise, False),
    "backward": lambda mesh, rank: _mid_call(mesh, rank, _raise, True),
    "before": lambda mesh, rank: _raise() if rank == 0 else regard.attend(*_parts(mesh)),
    "number of calls": _other_number_of_calls,
}
"""Calls in which process 0 leaves the others alone."""

KILLED = {
    "before": lambda mesh, rank: _die() if rank == 0 else regard.attend(*_parts(mesh)),
    "forward": lambda mesh, rank: _mid_call(mesh, rank, _die, False),
    "backward": lambda mesh, rank: _mid_call(mesh, rank, _die, True),
}


def _mesh():
    return DeviceMesh.from_group(dist.new_group(), "cpu")


def faulty(rank, processes, kind, name):
    """What a call of `CALLS`, `FAILING` or `KILLED` raises, and whether a common call after it is right."""
    mesh = _mesh()
    _limits[mesh] = kind
    with distributed.sequence(*_shards(mesh)):
        answer = _attempt(lambda: {"differs": CALLS, "fails": FAILING, "dies": KILLED}[kind][name](mesh, rank))
    return answer, _attempt(lambda: _common(mesh))


def _placed(mesh, placements, axes, dtype):
    """Query, key and value as DTensors with these placements, leaves that need gradients."""
    tensors = [one.detach().to(dtype)[(slice(None),) * (axes > 2) + (0,) * (4 - axes)] for one in _tensors()]
    return [
        distribute_tensor(one, mesh, [WAYS[each](one) for each in letters]).requires_grad_()
        for one, letters in zip(tensors, placements, strict=True)
    ]


WAYS = {
    "s": lambda tensor: Shard(tensor.dim() - 2),
    "b": lambda tensor: Shard(0),
    "r": lambda tensor: Replicate(),
    "h": lambda tensor: Shard(1),
    "d": lambda tensor: Shard(tensor.dim() - 1),
}
"""Placements: along the sequence, the batch, replicated, along heads and features."""


def placed(rank, processes, placements, axes, dtype, view):
    """The largest differences of output and gradients of a call on DTensors from one process.

    Args:
        placements: one text for query, key and value each, with a letter of `WAYS` for each axis of the mesh.
        axes: how many axes the tensors have.
        dtype: theirs.
        view: whether they are views whose parts are not contiguous.
    """
    sizes = (processes,) if len(placements[0]) == 1 else (2, processes // 2)
    mesh = init_device_mesh("cpu", sizes, mesh_dim_names=("one", "two")[: len(sizes)])
    leaves = _placed(mesh, placements, axes, getattr(torch, dtype))
    inputs = [one.transpose(0, 1).contiguous().transpose(0, 1) if view else one for one in leaves]
    output = regard.attend(*inputs, mask="causal")
    gradients = torch.autograd.grad(output.to_local().double().square().sum(), leaves)
    whole = [one.full_tensor().detach().double().requires_grad_() for one in leaves]
    expected = regard.attend(*whole, mask="causal", backend="reference")
    found = [one.full_tensor().detach().double() for one in (output, *gradients)]
    others = expected.detach(), *torch.autograd.grad(expected.square().sum(), whole)
    return max(float((a - b).abs().max()) for a, b in zip(found, others, strict=True))


def _whole_part(mesh):
    """DTensors whose parts are not those that PyTorch cuts."""
    count = 1 if dist.get_rank() == 0 else 4
    query, key, value = _tensors(requires_grad=False)
    part = DTensor.from_local(
        query[:, :, :count], mesh, [Shard(2)], shape=query.shape, stride=query.stride(), run_check=False
    )
    return regard.attend(part, *(distribute_tensor(one, mesh, [Shard(2)]) for one in (key, value)))


def _dtensors(mesh, letter="s", dtype=torch.float64):
    return [distribute_tensor(one.detach().to(dtype), mesh, [WAYS[letter](one)]) for one in _tensors()]


def _balanced(mesh):
    order = Shards.balanced(torch.arange(K), mesh)
    with distributed.sequence(order):
        key = _dtensors(mesh)[1]
        return regard.attend(key, key, key)


def _in_sequence(call):
    def run(mesh):
        with distributed.sequence(*_shards(mesh)):
            return call(*_parts(mesh))

    return run


def _batched(query, key, value):
    output = regard.attend(query, key, value)
    return torch.autograd.grad(output, query, torch.ones(2, *output.shape).double(), is_grads_batched=True)


def _replicated(mesh, tensor):
    return DTensor.from_local(tensor, mesh, [Replicate()])


def _of_pytorch(layer, *sizes):
    return layer(4, 1, *sizes, batch_first=True, dtype=torch.float64).eval()


REFUSED = {
    "partial": lambda mesh: regard.attend(*(DTensor.from_local(one, mesh, [Partial()]) for one in _tensors())),
    "heads": lambda mesh: regard.attend(*_dtensors(mesh, "h")),
    "features": lambda mesh: regard.attend(*_dtensors(mesh, "d")),
    "replicated": lambda mesh: regard.attend(*_dtensors(mesh, "r")),
    "integers": lambda mesh: regard.attend(*_dtensors(mesh, dtype=torch.int64)),
    "meta": lambda mesh: regard.attend(
        *(DTensor.from_local(torch.empty(2, 3, 4, device="meta"), mesh, [Shard(1)], run_check=False),) * 3
    ),
    "plain query": lambda mesh: regard.attend(_tensors()[0], *_dtensors(mesh)[1:]),
    "plain key": lambda mesh: regard.attend(_dtensors(mesh)[0], *_tensors()[1:]),
    "other parts": _whole_part,
    "other order": _balanced,
    "shard in another order": lambda mesh: distributed.shard(
        _tensors()[0], Shards(Q, mesh, ((range(1, 3),), (range(1), range(3, 5))))
    ),
    "explain": lambda mesh: regard.explain(*_dtensors(mesh)),
    "backend": lambda mesh: regard.attend(*_dtensors(mesh), backend="cpu"),
    "torch.func": _in_sequence(lambda q, k, v: torch.func.grad(lambda q: regard.attend(q, k, v).sum())(q.detach())),
    "vmap": _in_sequence(lambda q, k, v: torch.func.vmap(lambda q: regard.attend(q, k[0], v[0]))(q.detach())),
    "forward mode": _in_sequence(
        lambda q, k, v: torch.func.jvp(lambda q: regard.attend(q, k, v), (q.detach(),), (q.detach(),))
    ),
    "batched gradients": _in_sequence(_batched),
    "mask of DTensors": lambda mesh: regard.attend(*_dtensors(mesh), mask=_replicated(mesh, torch.ones(Q, K).bool())),
    "bias of DTensors": lambda mesh: regard.attend(*_dtensors(mesh), bias=_replicated(mesh, torch.ones(Q, K).double())),
    "lengths of DTensors": lambda mesh: regard.attend(
        *_dtensors(mesh), mask=masks.lengths(_replicated(mesh, torch.tensor([2, 5])))
    ),
    "temperature of DTensors": lambda mesh: normalizers.query_temperature(_replicated(mesh, torch.ones(3, Q))),
    "PyTorch's function": _in_sequence(torch.nn.functional.scaled_dot_product_attention),
    "PyTorch's attention": _in_sequence(lambda q, k, v: _of_pytorch(torch.nn.MultiheadAttention)(q[0], q[0], q[0])),
    "PyTorch's layer": _in_sequence(lambda q, k, v: _of_pytorch(torch.nn.TransformerEncoderLayer, 8)(q[0])),
    "cut of a part": lambda mesh: _shards(mesh)[0].cut(_parts(mesh)[0], -2),
    "cut of another axis": lambda mesh: _shards(mesh)[0].cut(_tensors()[0], 4),
    "shard of another axis": lambda mesh: distributed.shard(_tensors()[0], mesh, 4),
    "whole query": _in_sequence(lambda q, k, v: regard.attend(_tensors()[0], k, v)),
    "timeout": lambda mesh: Shards.contiguous(Q, mesh, timeout=0.0),
    "work of a mask": lambda mesh: Shards.balanced(masks.causal(), mesh),
    "work that is no number": lambda mesh: Shards.balanced([1.0, float("nan")], mesh),
    "negative work": lambda mesh: Shards.balanced([1.0, -1.0], mesh),
    "spans that are no runs": lambda mesh: Shards(Q, mesh, (range(3), range(3, Q))),
}
"""Calls that no process can make, each ``(mesh)``."""


def refused(rank, processes, name):
    """What a call raises that no process can make, and whether a common call after it is right."""
    mesh = _mesh()
    return _attempt(lambda: REFUSED[name](mesh)), _attempt(lambda: _common(mesh))


def _checkpointed(function):
    return lambda *tensors: checkpoint(function, *tensors, use_reentrant=False)


def repeated(rank, processes, how):
    """Whether gradients of a call that is differentiated in another way are those of `backward`, bit for bit."""
    mesh = _mesh()

    def attend(*tensors):
        return regard.attend(*tensors, mask="causal", dropout=0.3 if how == "twice" else 0.0)

    called = {"checkpoint": _checkpointed(attend), "compile": torch.compile(attend, backend="eager"), "twice": attend}
    with distributed.sequence(*_shards(mesh)):
        parts = _parts(mesh)
        if how == "twice":
            output = attend(*parts)
            results = [torch.autograd.grad(output.sum(), parts, retain_graph=True) for _ in range(2)]
        else:
            results = [torch.autograd.grad(one(*parts).sum(), parts) for one in (called[how], attend)]
    return all(map(torch.equal, *results))


def shown(rank, processes):
    """The texts of what calls of DTensors return."""
    parts = _dtensors(_mesh())
    return repr(regard.observe(*parts)), repr(regard.attend_with_weights(*parts))


def changed_in_inference(rank, processes):
    """Whether a mask that is changed in place in inference mode, where tensors have no versions, is read again."""
    mesh = _mesh()
    with torch.inference_mode(), distributed.sequence(*_shards(mesh)):
        mask = torch.ones(Q, K).bool()
        regard.attend(*_parts(mesh), mask=mask)
        mask[0, 0] = bool(rank)
        return _attempt(lambda: regard.attend(*_parts(mesh), mask=mask))


def cast(rank, processes):
    """The dtypes of a sharded and of a plain call under autocast, of inputs of several dtypes."""
    mesh = _mesh()
    with torch.autocast("cpu", torch.bfloat16):
        query, key, value = _tensors(dtype=torch.float32)
        plain = regard.attend(query.bfloat16(), key, value)
        with distributed.sequence(*_shards(mesh)):
            query, key, value = _parts(mesh, (query, key, value))
            return str(regard.attend(query.bfloat16(), key, value).dtype), str(plain.dtype)
