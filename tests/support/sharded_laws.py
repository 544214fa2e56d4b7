"""What `tests/distributed` calls in each process of a group: a sharded call, and the same call on the whole."""

import copy
import functools

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import regard
from cases import BIASES, MASKS, NORMALIZERS, SCORES, B, H, K, Q, problem
from regard import biases, distributed, masks, normalizers, scores
from regard.attention.sharding import rows as sharded_rows
from regard.tracing.versions import tensors_of

READ = {
    "entropy": {"entropy": True},
    "peak": {"peak": True},
    "top_k": {"top_k": 3},
    "received": {"received": True},
    "distance": {"distance": True},
    "pooled": {"pooled": (2, 3)},
    "rows": {"rows": [-1, 1, 1]},
    "tile": {"tile": ((1, 4), (2, 6))},
    "shares": {"shares": [masks.causal(), masks.prefix(2)]},
    "recall": {"recall": masks.prefix(2)},
    "weights": {"weights": True},
}

MORE_NORMALIZERS = {
    "sink_heads": lambda: normalizers.softmax_with_sink(torch.tensor([0.5, -1.0, 0.0]).double()),
    "tempered_heads": lambda: normalizers.Softmax(torch.tensor([0.5, 2.0, 1.0]).double()),
    "alpha_heads": lambda: normalizers.entmax(torch.tensor([1.25, 1.5, 2.5]).double()),
    "ratio": lambda: normalizers.ratio,
    "straight_through": lambda: normalizers.hard("straight_through", temperature=0.7),
    "sample": lambda: normalizers.hard("sample"),
    "user": lambda: normalizers.Custom(lambda scores: scores.softmax(-1)),
    "local_sparse": lambda: normalizers.local_gaussian(
        normalizers.sparsemax, torch.linspace(0, K - 1, Q).double(), 1.5
    ),
    "talking_heads": lambda: normalizers.talking_heads(torch.eye(H).double() + 0.1, torch.eye(H).double() - 0.1),
    "over_queries": lambda: normalizers.OverQueries(),
    "sinkhorn": lambda: normalizers.Sinkhorn(3),
}
MORE_SCORES = {
    "location_aware": lambda: _bound("location_aware"),
    "dynamic_convolution": lambda: _bound("dynamic_convolution"),
    "user_score": lambda: _Positions(),
    "subclass": lambda: _Tripled(),
}
ALL_SCORES, ALL_NORMALIZERS = SCORES | MORE_SCORES, NORMALIZERS | MORE_NORMALIZERS
ORDERS = ("contiguous", "balanced")
TIMEOUT = 15.0


class _Positions(scores.Score):
    """A score of another package whose prepared keys depend on their positions."""

    def prepare(self, query, key):
        return scores.Prepared(query, key + torch.arange(key.shape[2])[:, None] * 0.1, scores.InnerProduct())


class _Tripled(scores.Distance):
    """A subclass of a score that knows parts of sequences, with a way of its own to prepare them."""

    def prepare(self, query, key):
        return super().prepare(3.0 * query, key)


class _DerivedBias(biases.Bias):
    """A bias that keeps a parameter, and a table that is calculated from it."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(Q, K).double())
        self.table = self.weight.exp()

    def forward(self, query, grid):
        return grid.cut(self.table)


def _bound(name):
    torch.manual_seed(3)
    score = scores.create(name, 11, 11, 4, channels=2, kernel_size=3).double()
    return score.given(torch.rand(B, K).double())


def shards(length, processes, order):
    """Shards of a mesh of all processes."""
    if order == "contiguous":
        return distributed.Shards.contiguous(length, _mesh(processes), timeout=TIMEOUT)
    return distributed.Shards.balanced(torch.arange(length).double(), _mesh(processes), timeout=TIMEOUT)


@functools.cache
def _mesh(processes):
    return init_device_mesh("cpu", (processes,))


def parts_of(score, normalizer, mask, bias, dtype):
    """Score, normalizer, mask and bias of a case in this dtype, whose tensors need gradients, and these tensors."""
    torch.manual_seed(5)
    made = [
        table[name]()
        for table, name in ((ALL_SCORES, score), (ALL_NORMALIZERS, normalizer), (MASKS, mask), (BIASES, bias))
    ]
    made = [part if part is None or part is normalizers.softmax else copy.deepcopy(part) for part in made]
    made = [part.to(dtype) if isinstance(part, torch.nn.Module) else part for part in made]
    if isinstance(made[3], torch.Tensor):
        made[3] = made[3].to(dtype)
    leaves = [
        tensor.requires_grad_()
        for part in (made[0], made[1], made[3])
        for tensor in tensors_of(part)
        if tensor.is_floating_point() and tensor.is_leaf
    ]
    return made, leaves


def case(rank, processes, score, normalizer, mask, bias, kv_heads, order, dropout, dtype="float64"):
    """The largest differences of output and gradients of one case from one process."""
    dtype = getattr(torch, dtype)
    tensors = [tensor.requires_grad_() for tensor in problem(dtype, kv_heads=kv_heads)]
    (made_score, made_normalizer, made_mask, made_bias), leaves = parts_of(score, normalizer, mask, bias, dtype)
    options = {
        "score": made_score, "normalizer": made_normalizer, "mask": made_mask, "bias": made_bias, "dropout": dropout,
    }  # fmt: skip
    gradient = torch.randn(B, H, Q, 13, generator=torch.Generator().manual_seed(1)).to(dtype)

    def backward(output, weight):
        if output.requires_grad:
            (output * weight).sum().backward()
        found = [torch.zeros_like(one) if one.grad is None else one.grad.clone() for one in (*tensors, *leaves)]
        for one in (*tensors, *leaves):
            one.grad = None
        return found

    torch.manual_seed(11)
    whole = regard.attend(*tensors, **options, backend="cpu" if dropout else "reference")
    expected = backward(whole, gradient)
    queries, keys = shards(Q, processes, order), shards(K, processes, order)
    torch.manual_seed(11)
    with distributed.sequence(queries, keys):
        query = queries.cut(tensors[0], -2)
        key, value = (keys.cut(tensor, -2) for tensor in tensors[1:])
        part = regard.attend(query, key, value, **options)
        joined = distributed.gather(part.detach(), queries)
        found = backward(part, queries.cut(gradient, -2))
    for tensor in found:
        dist.all_reduce(tensor)
    return _difference(joined, whole), max(map(_difference, found, expected))


def readings(rank, processes, read, normalizer, mask, order, dtype="float64"):
    """The largest difference of one reading from one process, and whether looking changed the output."""
    tensors = problem(getattr(torch, dtype))
    (_, made_normalizer, made_mask, _), _ = parts_of("scaled_dot", normalizer, mask, "none", getattr(torch, dtype))
    options = {"normalizer": made_normalizer, "mask": made_mask}
    one = regard.observe(*tensors, **options, read=regard.Readings(**READ[read]), backend="reference")
    queries, keys = shards(Q, processes, order), shards(K, processes, order)
    with distributed.sequence(queries, keys):
        parts = queries.cut(tensors[0], -2), *(keys.cut(tensor, -2) for tensor in tensors[1:])
        seen = regard.observe(*parts, **options, read=regard.Readings(**READ[read]))
        output = regard.attend(*parts, **options)
    assert torch.equal(seen.output, output)
    differences = []
    for name, found in seen._asdict().items():
        expected = getattr(one, name)
        assert (found is None) == (expected is None), name
        if found is None or name == "output":
            continue
        found = found.detach()
        if name == "received" or name == "rows":
            found = distributed.gather(found, keys, -1)
        elif name not in ("pooled_mean", "pooled_max", "tile"):
            found = distributed.gather(found, queries, 2)
        differences.append(_difference(found, expected))
    return max(differences)


def with_weights(rank, processes, normalizer, mask, order):
    """Differences of the weights, and of the gradients of a loss on output and weights."""
    tensors = [tensor.requires_grad_() for tensor in problem()]
    (_, made_normalizer, made_mask, _), _ = parts_of("scaled_dot", normalizer, mask, "none", torch.float64)
    options = {"normalizer": made_normalizer, "mask": made_mask}
    generator = torch.Generator().manual_seed(2)
    of_output = torch.randn(B, H, Q, 13, generator=generator).double()
    of_weights = torch.randn(B, H, Q, K, generator=generator).double()
    torch.manual_seed(11)
    whole = regard.attend_with_weights(*tensors, **options, backend="reference")
    expected = torch.autograd.grad(
        (whole.output * of_output).sum() + (whole.weights * of_weights).sum(), tensors, materialize_grads=True
    )
    queries, keys = shards(Q, processes, order), shards(K, processes, order)
    with distributed.sequence(queries, keys):
        parts = queries.cut(tensors[0], -2), *(keys.cut(tensor, -2) for tensor in tensors[1:])
        torch.manual_seed(11)
        seen = regard.attend_with_weights(*parts, **options)
        loss = (seen.output * queries.cut(of_output, -2)).sum() + (seen.weights * queries.cut(of_weights, -2)).sum()
        found = torch.autograd.grad(loss, tensors, materialize_grads=True)
    found = [gradient.clone() for gradient in found]
    for gradient in found:
        dist.all_reduce(gradient)
    joined = distributed.gather(seen.weights.detach(), queries)
    return _difference(joined, whole.weights), max(map(_difference, found, expected))


def hidden_nan(rank, processes, score):
    """How many NaN are in output and gradients where hidden elements are NaN: sharded, and on one process."""
    query, key, value = problem()
    query[:, :, 0], key[:, :, -2:], value[:, :, -2:] = torch.nan, torch.nan, torch.nan
    mask = masks.lengths(K - 2) & ~masks.lengths(K, 1)
    tensors = [tensor.requires_grad_() for tensor in (query, key, value)]
    (made_score, *_), leaves = parts_of(score, "softmax", "none", "none", torch.float64)
    counts = []
    queries, keys = shards(Q, processes, "balanced"), shards(K, processes, "balanced")
    for is_sharded in (True, False):
        if is_sharded:
            with distributed.sequence(queries, keys):
                parts = queries.cut(query, -2), keys.cut(key, -2), keys.cut(value, -2)
                output = regard.attend(*parts, score=made_score, mask=mask)
        else:
            output = regard.attend(*tensors, score=made_score, mask=mask)
        gradients = torch.autograd.grad(output.sum(), [*tensors, *leaves], materialize_grads=True)
        counts.append(sum(int(one.isnan().sum()) for one in (output, *gradients)))
    return counts


def map_with_nan(rank, processes):
    """The NaN of a map of maxima: on one process, and sharded."""
    query, key, value = (tensor[:1, :1] for tensor in problem(kv_heads=H))
    key[:, :, -1] = torch.nan
    read = regard.Readings(pooled=(2, 2))
    one = regard.observe(query, key, value, normalizer="sigmoid", read=read, backend="reference")
    queries, keys = shards(Q, processes, "contiguous"), shards(K, processes, "contiguous")
    with distributed.sequence(queries, keys):
        parts = queries.cut(query, -2), keys.cut(key, -2), keys.cut(value, -2)
        seen = regard.observe(*parts, normalizer="sigmoid", read=read)
    return int(one.pooled_max.isnan().sum()), int(seen.pooled_max.isnan().sum())


def steps_to_a_threshold(rank, processes, normalizer):
    """How often the processes join their sums to find the thresholds of a pass."""
    steps, sums = [], sharded_rows._sum_and_slope
    sharded_rows._sum_and_slope = lambda *arguments: steps.append(1) or sums(*arguments)
    try:
        with torch.no_grad():
            readings(rank, processes, "peak", normalizer, "causal", "balanced")
    finally:
        sharded_rows._sum_and_slope = sums
    return len(steps)


def derived_bias(rank, processes):
    """The error of a call whose bias keeps a tensor and another that is calculated from it."""
    query, key, value = problem()
    queries, keys = shards(Q, processes, "contiguous"), shards(K, processes, "contiguous")
    parts = queries.cut(query, -2), keys.cut(key, -2), keys.cut(value, -2)
    try:
        with distributed.sequence(queries, keys):
            regard.attend(*parts, bias=_DerivedBias())
    except regard.errors.BackendError as error:
        return str(error)
    return "no error"


def _difference(found, expected):
    """The largest difference; infinite if one has a NaN where the other has none."""
    found, expected = found.detach().double(), expected.detach().double()
    assert found.shape == expected.shape, (found.shape, expected.shape)
    if not torch.equal(found.isnan(), expected.isnan()):
        return float("inf")
    same = (found == expected) | found.isnan()
    return float((found - expected).abs().masked_fill(same, 0.0).max()) if found.numel() else 0.0
