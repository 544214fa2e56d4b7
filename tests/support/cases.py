"""The grid of scores, normalizers, masks and biases that every contract is tested over."""

import torch

from regard import biases, masks, normalizers, positions, scores

# Different primes, so that a transposed axis fails.
B, H, Q, K, D, V = 2, 3, 5, 7, 11, 13
KV = {1: "grouped", 3: "equal"}


def problem(dtype=torch.float64, kv_heads=H, queries=Q, keys=K, requires_grad=False, dim=D, value_dim=V):
    """Query, key and value of a seeded problem."""
    generator = torch.Generator().manual_seed(7)

    def tensor(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_(requires_grad)

    return tensor(B, H, queries, dim), tensor(B, kv_heads, keys, dim), tensor(B, kv_heads, keys, value_dim)


def _weights(*shape):
    return (
        torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape)), dtype=torch.float64) / shape[-1] ** 0.5
    )


def _elementwise(query, key):
    return -(query[..., :, None, :] - key[..., None, :, :]).abs().sum(-1)


SCORES = {
    "dot": lambda: scores.Dot(),
    "scaled_dot": lambda: scores.ScaledDot(),
    "own_scale": lambda: scores.ScaledDot(scale=0.3),
    "cosine": lambda: scores.Cosine(temperature=0.2),
    "general": lambda: scores.General(_weights(D, D)),
    "general_heads": lambda: scores.General(_weights(H, D, D)),
    "additive": lambda: scores.Additive(_weights(D)),
    "additive_heads": lambda: scores.Additive(_weights(H, D)),
    "additive_projected": lambda: scores.Additive(
        _weights(3), torch.nn.Linear(D, 3, bias=False, dtype=torch.float64), torch.nn.Linear(D, 3, dtype=torch.float64)
    ),
    "mlp": lambda: scores.MLP(
        torch.nn.Sequential(torch.nn.Linear(2 * D, 3), torch.nn.ReLU(), torch.nn.Linear(3, 1)).double()
    ),
    "location": lambda: scores.Location(_weights(K + 2, D)),
    "distance": lambda: scores.Distance(),
    "features": lambda: scores.Features("elu"),
    "decayed": lambda: scores.Decayed("scaled_dot", torch.tensor([-0.3, -0.1, 0.0]).double()),
    "decayed_features": lambda: scores.Decayed("dot", -_weights(B, H, K, D).abs()),
    "forget_gate": lambda: scores.ForgetGate("scaled_dot", -_weights(B, H, K).abs()),
    "soft_cap": lambda: scores.SoftCap(scores.ScaledDot(), 0.7),
    "modified": lambda: scores.Modified(
        scores.Dot(), lambda score, batch, head, query, key: score * (1 + head) - 0.1 * (query - key).abs() + batch
    ),
    "trilinear": lambda: scores.Trilinear(_weights(3 * D)),
    "gaussians": lambda: scores.GaussianMixture(torch.nn.Linear(D, 6, dtype=torch.float64)),
    "callable": lambda: _elementwise,
}

NORMALIZERS = {
    "softmax": lambda: normalizers.softmax,
    "tempered": lambda: normalizers.Softmax(temperature=0.5),
    "sink": lambda: normalizers.softmax_with_sink(0.3),
    "sparsemax": lambda: normalizers.sparsemax,
    "entmax15": lambda: normalizers.entmax(1.5),
    "entmax13": lambda: normalizers.entmax(1.3),
    "sigmoid": lambda: normalizers.sigmoid,
    "hard": lambda: normalizers.hard(),
    "top_k": lambda: normalizers.top_k(3),
    "top_p": lambda: normalizers.top_p(0.6),
    "identity": lambda: normalizers.identity,
    "local": lambda: normalizers.local_gaussian(normalizers.softmax, torch.linspace(0, K - 1, Q).double(), 1.5),
    "squared_relu": lambda: normalizers.SquaredReLU(mean=True),
    "softpick": lambda: normalizers.softpick,
    "signed_softmax": lambda: normalizers.signed_softmax,
    "scalable_softmax": lambda: normalizers.ScalableSoftmax(0.43),
    "stick_breaking": lambda: normalizers.stick_breaking,
    "chunkwise": lambda: normalizers.Chunkwise(torch.tensor(0.75, dtype=torch.float64), 3),
}

MASKS = {
    "none": lambda: None,
    "causal": lambda: masks.causal(),
    "causal_start": lambda: masks.causal(align="start"),
    "window": lambda: masks.window(2, 0),
    "lengths": lambda: masks.lengths(torch.tensor([4, 0])),
    "lengths_both": lambda: masks.lengths(torch.tensor([K, 3]), torch.tensor([2, Q])),
    "prefix": lambda: masks.causal(align="start") | masks.prefix(2),
    "sinks": lambda: masks.window(1, 0) | masks.prefix([1, 2]) & masks.causal(),
    "global": lambda: masks.window(0, 0) | masks.prefix(1) | ~masks.prefix(K - 1) | masks.lengths(K, queries=1),
    "hole": lambda: ~masks.window(1, 1, align="start"),
    "dilated": lambda: masks.causal() & masks.dilated(2),
    "where": lambda: masks.where(lambda batch, head, query, key: (query + key + head) % 3 != 0),
    "documents": lambda: masks.documents(torch.tensor([0, 0, 1, 1, -1]), torch.tensor([0, 1, 1, 0, 2, -1, -1])),
    "ignore": lambda: masks.ignore(torch.ones(Q, K, dtype=torch.bool).tril()),
    "grids": lambda: (
        masks.neighborhood(3, dilation=2) & masks.shifted_windows(6, 2)
        | masks.blocks(_weights(H, 2, 3) > 0, 3, 4) & masks.Compressed(masks.window(5, 2), 2 * K, 3, 2)
    ),
    "chunks": lambda: masks.chunks(3, before=1, offset=[2, -1]) & ~masks.chunks(2, after=None) | masks.chunks(2),
    "listed": lambda: masks.columns((9 * _weights(B, 1, Q, 3)).long().clamp(-1, K - 1)) & masks.lengths([K, 5]),
    "nobody": lambda: masks.keep(torch.zeros(1, 1, 1, 1, dtype=torch.bool)),
}

BIASES = {
    "none": lambda: None,
    "tensor": lambda: _weights(H, Q, K),
    "alibi": lambda: positions.alibi(H),
    "relative": lambda: positions.RelativeBias(H, buckets=8, max_distance=16).double(),
    "kerple": lambda: biases.Kerple(H).double(),
    "fire": lambda: biases.Fire(H, 3).double(),
    "window": lambda: biases.WindowTable(H, (3,), (K,)).double(),
    "decomposed": lambda: biases.DecomposedPosition(D, (Q,), (K,), weight=_weights(2 * K - 1, D)),
    "transformer_xl": lambda: biases.TransformerXL(H, D, 6).double(),
    "disentangled": lambda: biases.Disentangled(H, D, 4, 6).double(),
    "shaw": lambda: positions.RelativePosition(D, 3).double(),
    "diagonal_sum": lambda: positions.alibi(H) + positions.RelativeBias(H, buckets=8, max_distance=16).double(),
    "dense_sum": lambda: positions.alibi(H) + _weights(H, Q, K),
}
