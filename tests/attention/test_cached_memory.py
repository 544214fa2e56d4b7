"""A memory that is held for many steps gives what asking anew at each step gives, forward and backward."""

import pytest
import torch

pytest.importorskip("numba", reason="kernels are compiled by Numba")

from covering import covering
from regard import normalizers
from regard.errors import BackendError
from regard.kernels.cpu import launch as launch_module
from regard.nn import Attention

BATCH, KEYS, DIM, VALUE_DIM, STEPS = 3, 97, 11, 13, 5

NORMALIZERS = {
    "softmax": normalizers.softmax,
    "tempered": normalizers.Softmax(temperature=0.5),
    "sparsemax": normalizers.sparsemax,
    "entmax15": normalizers.entmax(1.5),
    "entmax13": normalizers.entmax(1.3),
    "sigmoid": normalizers.sigmoid,
}


def visible(kind: str) -> dict[str, torch.Tensor]:
    """What `remember` is told of the keys: one row has all, one few, one none."""
    if kind == "lengths":
        return {"lengths": torch.tensor([KEYS, 4, 0])}
    if kind == "holes":
        return {"mask": torch.rand(BATCH, KEYS, generator=torch.Generator().manual_seed(2)) < 0.5}
    if kind == "runs":
        place = torch.arange(KEYS)
        return {"mask": (place < torch.tensor([[5], [0], [KEYS]])) | (place >= 80)}
    return {}


class Decoder(torch.nn.Module):
    """A recurrence that looks at a memory with its state before each step."""

    def __init__(self, backend: str, score: str = "additive", normalizer: str = "softmax", dropout: float = 0.0):
        super().__init__()
        torch.manual_seed(5)
        sizes = {"query_dim": DIM, "key_dim": DIM, **({"dim": 7} if score in ("additive", "concat", "mlp") else {})}
        made = NORMALIZERS[normalizer]
        self.attention = Attention.create(score, **sizes, normalizer=made, dropout=dropout, backend=backend)
        self.cell = torch.nn.GRUCell(VALUE_DIM, DIM)
        self.double()

    def forward(self, memory, steps=STEPS):
        """Sums of contexts and of squared weights, so that both have gradients."""
        state = torch.ones(BATCH, DIM, dtype=self.cell.weight_ih.dtype)
        contexts, weights = [], []
        for _ in range(steps):
            context, weight = self.attention(state, memory)
            state = self.cell(context, state)
            contexts.append(context)
            weights.append(weight)
        return torch.stack(contexts), torch.stack(weights)

    def loss(self, memory):
        contexts, weights = self(memory)
        return contexts.sin().sum() + weights.square().sum()


def annotations(size: float = 1.0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(9)
    keys = torch.randn(BATCH, KEYS, DIM, generator=generator, dtype=torch.float64) * size
    values = torch.randn(BATCH, KEYS, VALUE_DIM, generator=generator, dtype=torch.float64)
    return keys.to(dtype).requires_grad_(), values.to(dtype).requires_grad_()


def gradients(decoder, size=1.0, kind="lengths", dtype=torch.float64):
    keys, values = annotations(size, dtype)
    memory = decoder.attention.remember(keys, value=values, **visible(kind))
    loss = decoder.loss(memory)
    wanted = [keys, values, *decoder.parameters()]
    return [loss.detach(), *torch.autograd.grad(loss, wanted)]


@covering(score=["additive", "general", "scaled_dot"], normalizer=NORMALIZERS, kind=["all", "lengths", "runs", "holes"])
def test_holding_changes_nothing(score, normalizer, kind):
    held, plain = Decoder("auto", score, normalizer), Decoder("reference", score, normalizer)
    keys, values = annotations()
    assert held.attention.remember(keys, value=values, **visible(kind)).cached is not None
    assert plain.attention.remember(keys, value=values, **visible(kind)).cached is None
    for one, other in zip(gradients(held, kind=kind), gradients(plain, kind=kind), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("size", [30.0, 1000.0])
def test_projections_may_be_large(size):
    for one, other in zip(gradients(Decoder("auto"), size), gradients(Decoder("reference"), size), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_memories_of_several_tiles(dtype):
    """Keys are scored tile by tile, those with large projections in another way; each finds its own."""
    length = 700
    generator = torch.Generator().manual_seed(4)
    keys = torch.randn(BATCH, length, DIM, generator=generator, dtype=torch.float64)
    keys[:, 130:140] *= 300
    keys[:, 555] *= 300
    values = torch.randn(BATCH, length, VALUE_DIM, generator=generator, dtype=torch.float64)
    mask = torch.rand(BATCH, length, generator=generator) < 0.9
    mask[1, 20:] = False
    found = []
    for backend, kind in (("auto", dtype), ("reference", torch.float64)):
        decoder = Decoder(backend).to(kind)
        leaves = [tensor.to(dtype).to(kind).requires_grad_() for tensor in (keys, values)]
        memory = decoder.attention.remember(leaves[0], value=leaves[1], mask=mask)
        assert (memory.cached is not None) == (backend == "auto")
        found.append(torch.autograd.grad(decoder.loss(memory), [*leaves, *decoder.parameters()]))
    bound = 1e-9 if dtype == torch.float64 else 2e-3
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one.double(), other.double(), rtol=bound, atol=bound)


def test_many_queries_at_once_are_many_steps():
    decoder = Decoder("auto")
    keys, values = annotations()
    memory = decoder.attention.remember(keys, value=values, lengths=torch.tensor([KEYS, 4, 0]))
    queries = torch.randn(BATCH, 71, DIM, dtype=torch.float64)
    many = decoder.attention(queries, memory)
    for step in (0, 17, 70):
        one = decoder.attention(queries[:, step], memory)
        torch.testing.assert_close(many.context[:, step], one.context)
        torch.testing.assert_close(many.weights[:, step], one.weights)


def test_a_second_pass_gives_the_same_gradients():
    decoder = Decoder("auto")
    keys, values = annotations()
    loss = decoder.loss(decoder.attention.remember(keys, value=values))
    first = torch.autograd.grad(loss, [keys, values], retain_graph=True)
    second = torch.autograd.grad(loss, [keys, values])
    for one, other in zip(first, second, strict=True):
        assert torch.equal(one, other)


def test_a_pass_that_did_not_ask_for_the_memory_leaves_nothing_behind():
    decoder = Decoder("auto")
    keys, values = annotations()
    memory = decoder.attention.remember(keys, value=values)
    query = torch.randn(BATCH, DIM, dtype=torch.float64, requires_grad=True)
    first, second = decoder.attention(query, memory).context.sum(), decoder.attention(query * 2, memory).context.sum()
    torch.autograd.grad(first, query, retain_graph=True)
    got = torch.autograd.grad(second, [keys, values])
    fresh = decoder.attention.remember(keys, value=values)
    expected = torch.autograd.grad(decoder.attention(query * 2, fresh).context.sum(), [keys, values])
    for one, other in zip(got, expected, strict=True):
        assert torch.equal(one, other)


def test_a_step_that_no_loss_reads_counts_for_nothing():
    decoder = Decoder("auto")
    keys, values = annotations()
    memory = decoder.attention.remember(keys, value=values)
    query = torch.randn(BATCH, DIM, dtype=torch.float64)
    decoder.attention(query * 3, memory)
    got = torch.autograd.grad(decoder.attention(query, memory).context.sum(), keys)[0]
    fresh = decoder.attention.remember(keys, value=values)
    expected = torch.autograd.grad(decoder.attention(query, fresh).context.sum(), keys)[0]
    assert torch.equal(got, expected)


def test_gradients_through_a_remembered_memory_are_exact():
    decoder = Decoder("auto")
    keys, values = (tensor.detach()[:, :5].requires_grad_() for tensor in annotations())
    query = torch.randn(BATCH, DIM, dtype=torch.float64, requires_grad=True)
    weight = decoder.attention.score.weight

    def look(query, keys, values, weight):
        memory = decoder.attention.remember(keys, value=values, lengths=torch.tensor([5, 2, 0]))
        return decoder.attention(query, memory)

    assert torch.autograd.gradcheck(look, (query, keys, values, weight))


def test_a_remembered_memory_refuses_second_derivatives():
    decoder = Decoder("auto")
    keys, values = annotations()
    query = torch.randn(BATCH, DIM, dtype=torch.float64, requires_grad=True)
    memory = decoder.attention.remember(keys, value=values)
    with pytest.raises(BackendError, match="no second derivative"):
        torch.autograd.grad(decoder.attention(query, memory).context.sum(), query, create_graph=True)


def test_a_remembered_memory_drops_by_the_random_state():
    """The same random state drops the same; weights are those before; the gradient is that of what was dropped."""
    decoder = Decoder("auto", dropout=0.4)
    keys, values = annotations()
    query = torch.randn(BATCH, DIM, dtype=torch.float64, requires_grad=True)

    def look(query, keys, values):
        torch.manual_seed(3)
        return decoder.attention(query, decoder.attention.remember(keys, value=values))

    one, other = look(query, keys, values), look(query, keys, values)
    assert torch.equal(one.context, other.context)
    decoder.eval()
    calm = look(query, keys, values)
    assert torch.equal(one.weights, calm.weights)
    assert not torch.allclose(one.context, calm.context)
    decoder.train()
    few = [tensor.detach()[:, :5].requires_grad_() for tensor in (keys, values)]
    assert torch.autograd.gradcheck(look, (query, *few))


def test_threads_change_no_bit_of_a_remembered_memory(monkeypatch):
    monkeypatch.setattr(launch_module, "SERIAL_WORK", 0)
    decoder = Decoder("auto").float()
    threads = torch.get_num_threads()
    results = []
    for count in (1, 2):
        torch.set_num_threads(count)
        results.append(gradients(decoder, dtype=torch.float32))
    torch.set_num_threads(threads)
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)


@torch.no_grad()
@pytest.mark.parametrize("kind", ["all", "lengths", "runs", "holes"])
def test_selected_rows_are_held_too(kind):
    decoder = Decoder("auto")
    keys, values = annotations()
    memory = decoder.attention.remember(keys, value=values, **visible(kind))
    index = torch.tensor([1, 0, 0, 2])
    query = torch.randn(4, DIM, dtype=torch.float64)
    chosen = memory.select(index)
    assert chosen.cached is not None
    got = decoder.attention(query, chosen)
    told = {name: tensor[index] for name, tensor in visible(kind).items()}
    expected = decoder.attention(query, decoder.attention.remember(keys[index], value=values[index], **told))
    # Projecting another batch may round otherwise.
    torch.testing.assert_close(got.context, expected.context)
    torch.testing.assert_close(got.weights, expected.weights)


@pytest.mark.parametrize("score", ["cosine", "distance", "mlp", "location"])
def test_other_scores_are_not_held(score):
    sizes = {"mlp": {"dim": 3}, "location": {"max_keys": KEYS}}.get(score, {})
    made = Attention.create(score, query_dim=DIM, key_dim=DIM, **sizes)
    assert made.remember(torch.randn(2, 5, DIM)).cached is None
