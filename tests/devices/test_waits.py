"""Contract 15: no call on an accelerator makes the host wait for it."""

import pytest
import torch
from torch.nn import functional as F

import regard
from regard import masks, nn, normalizers, positions, scores
from regard.tracing import transforms

B, H, L, D = 2, 2, 9, 8

MASKS = {
    "none": lambda: None,
    "causal": lambda: masks.causal(),
    "window": lambda: masks.window(2, 1),
    "lengths": lambda: masks.lengths(torch.tensor([5, 9])),
    "listed": lambda: masks.lengths([5, 9], queries=[9, 0]) & masks.causal(),
    "documents": lambda: masks.documents(torch.arange(L) // 4) & masks.causal(),
    "keep": lambda: masks.keep(torch.ones(L, L, dtype=torch.bool).tril()),
    "offset": lambda: masks.causal(offset=torch.tensor([0, 2])) | masks.prefix([1, 2]),
    "where": lambda: masks.where(lambda batch, head, query, key: (query + key) % 3 != 0) & ~masks.dilated(2),
}
NORMALIZERS = {
    "softmax": lambda: "softmax",
    "tempered": lambda: normalizers.Softmax(torch.ones(H)),
    "sink": lambda: normalizers.softmax_with_sink(torch.zeros(H)),
    "sparsemax": lambda: "sparsemax",
    "entmax15": lambda: normalizers.entmax(1.5),
    "entmax13": lambda: normalizers.entmax(1.3),
    "learned": lambda: normalizers.entmax(torch.full((H,), 1.4)),
    "sigmoid": lambda: "sigmoid",
    "gumbel": lambda: normalizers.hard("gumbel"),
    "local": lambda: normalizers.local_gaussian("softmax", torch.full((B, H, L), 3.0), torch.ones(())),
}
SCORES = {
    "scaled": lambda: "scaled_dot",
    "cosine": lambda: scores.Cosine(torch.ones(H, 1, 1)),
    "additive": lambda: scores.Additive(torch.ones(D)),
    "distance": lambda: scores.Distance(squared=False),
    "capped": lambda: scores.SoftCap("scaled_dot", 5.0),
    "modified": lambda: scores.Modified("dot", lambda score, batch, head, query, key: score * (head + 1)),
}
BIASES = {
    "none": lambda: None,
    "tensor": lambda: torch.zeros(H, L, L, requires_grad=True),
    "hiding": lambda: torch.zeros(L, L).masked_fill(torch.ones(L, L).triu(1) > 0, -torch.inf),
    "alibi": lambda: "alibi",
    "relative": lambda: positions.RelativeBias(H, buckets=8, max_distance=16),
    "shaw": lambda: positions.RelativePosition(D, 3),
}


def call_twice(context, call):
    """Runs a call, which may prepare what is kept for others, and once more in a context."""
    call()
    with context():
        call()


def checked(never_waits, **arguments):
    query, key, value = (torch.randn(B, H, L, D, requires_grad=True) for _ in range(3))
    read = regard.Readings(entropy=True, top_k=3, received=True, distance=True, pooled=(2, 3), rows=[-1, 2])

    def call():
        regard.attend(query, key, value, **arguments).square().sum().backward()
        regard.observe(query, key, value, read=read, **arguments)

    call_twice(never_waits, call)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("backend", ["auto", "tiled", "reference"])
def test_masks_never_wait_for_a_device(never_waits, mask, backend):
    checked(never_waits, mask=MASKS[mask](), backend=backend)


@pytest.mark.parametrize("normalizer", NORMALIZERS)
def test_normalizers_never_wait_for_a_device(never_waits, normalizer):
    checked(never_waits, mask=masks.causal(), normalizer=NORMALIZERS[normalizer](), dropout=0.1)


@pytest.mark.parametrize(("score", "bias"), list(zip(SCORES, BIASES, strict=True)))
def test_scores_and_biases_never_wait_for_a_device(never_waits, score, bias):
    checked(never_waits, score=SCORES[score](), bias=BIASES[bias](), mask=masks.causal())


LAYERS = {
    "multihead": lambda x, ends: nn.MultiheadAttention(16, 2, batch_first=True)(
        x, x + 1, x + 1, key_padding_mask=torch.arange(x.shape[1]) >= ends[:, None]
    )[0],
    "encoder": lambda x, ends: nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)(x, lengths=ends),
    "decoder": lambda x, ends: nn.TransformerDecoderLayer(16, 2, 32, batch_first=True)(
        x, x, mask="causal", lengths=ends, memory_lengths=ends
    ),
    "pooling": lambda x, ends: nn.AttentionPooling(16)(x, ends).output,
    "attention": lambda x, ends: nn.Attention.create("additive", 16, 16)(x[:, 0], x, mask=masks.lengths(ends))[0],
}


@pytest.mark.parametrize("where", ["device", "host"])
@pytest.mark.parametrize("layer", LAYERS)
def test_layers_never_wait_for_a_device(never_waits, layer, where, device):
    ends = torch.tensor([5, 9], device="cpu" if where == "host" else device)
    if where == "host" and layer not in ("encoder", "decoder"):
        ends = ends.to(device)
    x = torch.randn(2, 9, 16, requires_grad=True)
    call_twice(never_waits, lambda: LAYERS[layer](x, ends).square().sum().backward())


@pytest.mark.parametrize("reads", [True, False])
def test_only_copies_that_read_a_temporary_tensor_in_time_do_not_block(reads, device, monkeypatch, never_waits):
    monkeypatch.setattr(transforms, "READS_PINNED_MEMORY", (device,) if reads else ())
    tensor = torch.arange(3, device="cpu")
    if reads:
        with never_waits():
            transforms.sent(tensor, device)
    else:
        with pytest.raises((AssertionError, RuntimeError)), never_waits():
            transforms.sent(tensor, device)
    assert transforms.sent(tensor.to(device), "cpu").tolist() == [0, 1, 2]


def test_a_training_step_of_a_transformer(never_waits):
    model = nn.Transformer(16, 2, 2, 2, 32, batch_first=True)
    output = torch.nn.Linear(16, 11)
    optimizer = torch.optim.SGD([*model.parameters(), *output.parameters()], lr=0.1)
    source, target = torch.randn(2, 9, 16), torch.randn(2, 7, 16)
    labels, padding = torch.randint(11, (2, 7)), torch.arange(9) >= torch.tensor([[5], [9]])

    def step():
        decoded = model(
            source, target, tgt_is_causal=True, src_key_padding_mask=padding, memory_key_padding_mask=padding
        )
        F.cross_entropy(output(decoded).flatten(0, 1), labels.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()

    call_twice(never_waits, step)
