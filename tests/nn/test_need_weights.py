"""Contract 4 in a layer: asking for the weights does not change the context by a bit."""

import torch

from backends import EVERY, accepts, is_compiled
from cases import K, problem
from covering import covering
from regard import masks, nn, normalizers, scores

DIM = 11

NORMALIZERS = {
    "softmax": lambda: normalizers.softmax,
    "sink": lambda: normalizers.softmax_with_sink(0.3),
    "sparsemax": lambda: normalizers.sparsemax,
    "entmax13": lambda: normalizers.entmax(1.3),
    "sigmoid": lambda: normalizers.sigmoid,
    "hard": lambda: normalizers.hard(),
    "gumbel": lambda: normalizers.hard("gumbel"),
}
FILTERED = {"location_aware", "dynamic_convolution"}
SIZES = {"max_keys": {"location"}, "channels": FILTERED, "kernel_size": FILTERED}
GIVEN = {"max_keys": K, "channels": 2, "kernel_size": 3}


def _near(batch, head, query, key):
    return (query - key).abs() < 4


FURTHER = {
    "nothing": lambda seen: {},
    "mask": lambda seen: {"mask": seen},
    "bias": lambda seen: {"bias": 0.3 * seen.float()},
    "where": lambda seen: {"mask": masks.where(_near)},
}


@covering(
    score=scores.NAMES,
    normalizer=NORMALIZERS,
    further=FURTHER,
    size=[((), torch.float32), ((67,), torch.float32), ((5,), torch.bfloat16)],
    dropout=[0.0, 0.4],
)
def test_asking_attention_for_weights_changes_no_bit(score, normalizer, further, size, dropout):
    queries, dtype = size
    lengths = torch.tensor([K, 3])
    visible = torch.rand(2, K) < 0.7
    given = {name: GIVEN[name] for name, names in SIZES.items() if score in names}
    arguments = {"normalizer": NORMALIZERS[normalizer](), "dropout": dropout}
    for backend in EVERY:
        attention = nn.Attention.create(score, DIM, DIM, **given, **arguments, backend=backend)
        inputs, options = problem(torch.float32, requires_grad=True), {"score": attention.score, **arguments}
        if not (accepts(backend, inputs, **options) and (backend != "auto" or is_compiled(inputs, **options))):
            continue
        memory = attention.remember(torch.randn(2, K, DIM, dtype=dtype), lengths)
        query = torch.randn(2, *queries, DIM, dtype=dtype)
        seen = visible if not queries else visible[:, None].expand(-1, *queries, -1)
        contexts = []
        for need_weights in (False, True):
            torch.manual_seed(5)
            contexts.append(attention(query, memory, need_weights=need_weights, **FURTHER[further](seen)).context)
        assert torch.equal(*contexts), backend
