"""Networks and callables as scores."""

import pytest
import torch
from torch import Tensor, nn

import regard
from covering import covering
from regard import scores
from regard.errors import ArgumentError, KindError, ShapeError
from regard.scores import Pairwise, ReluSum, TanhSum


@torch.no_grad()
def test_one_hidden_layer_of_tanh_is_additive():
    query, key = torch.randn(2, 6, 5, 7, dtype=torch.float64), torch.randn(2, 3, 11, 13, dtype=torch.float64)
    network = nn.Sequential(nn.Linear(20, 17), nn.Tanh(), nn.Linear(17, 1, bias=False)).double()
    assert isinstance(scores.MLP(network).prepare(query, key).primitive, TanhSum)
    additive = scores.Additive.create(7, 13, 17).double()
    assert additive.query_projection is not None
    assert additive.key_projection is not None
    query_half, key_half = network[0].weight.split([7, 13], dim=1)
    additive.query_projection.weight.copy_(query_half)
    additive.key_projection.weight.copy_(key_half)
    additive.key_projection.bias.copy_(network[0].bias)
    additive.weight.copy_(network[2].weight[0])
    torch.testing.assert_close(scores.MLP(network)(query, key), additive(query, key), rtol=1e-12, atol=1e-12)


@covering(
    dtype=[torch.float32, torch.float64],
    backend=["reference", "tiled", "cpu"],
    activation=[nn.Tanh, nn.ReLU],
    # Kernels of float32 with a sigmoid would be compiled for this test alone.
    sample_where=lambda dtype, backend, activation: (dtype == torch.float64) == (backend == "cpu"),
)
def test_the_last_layers_bias_counts(activation, backend, dtype):
    """It is a unit of the kernels' sum, and its gradient is the sum of all gradients."""
    query, key = torch.randn(2, 3, 37, 7, dtype=dtype), torch.randn(2, 3, 41, 13, dtype=dtype)
    network = nn.Sequential(nn.Linear(20, 8), activation(), nn.Linear(8, 1)).to(dtype)
    nn.init.constant_(network[2].bias, 1.7)

    def results(score, normalizer, backend):
        output = regard.attend(query, key, key, score=score, normalizer=normalizer, backend=backend)
        return output, torch.autograd.grad(output.square().sum(), list(network.parameters()))

    def pairs(query, key):
        joined = [query[..., :, None, :].expand(-1, -1, -1, 41, -1), key[..., None, :, :].expand(-1, -1, 37, -1, -1)]
        return network(torch.cat(joined, dim=-1)).squeeze(-1)

    tolerance = 1e-11 if dtype == torch.float64 else 2e-4
    for normalizer in ("softmax", "sigmoid"):
        output, gradients = results(scores.MLP(network), normalizer, backend)
        expected, expected_gradients = results(pairs, normalizer, "reference")
        torch.testing.assert_close(output, expected, rtol=tolerance, atol=tolerance)
        for ours, true in zip(gradients, expected_gradients, strict=True):
            torch.testing.assert_close(ours, true, rtol=tolerance, atol=tolerance * max(1.0, float(true.abs().max())))


def test_which_networks_lower_to_sums_of_units():
    query, key = torch.randn(2, 3, 5, 7), torch.randn(2, 3, 11, 13)
    for activation, primitive in ((nn.Tanh, TanhSum), (nn.ReLU, ReluSum), (nn.GELU, Pairwise), (nn.ReLU6, Pairwise)):
        network = nn.Sequential(nn.Linear(20, 17), activation(), nn.Linear(17, 1))
        score = scores.MLP(network)
        assert type(score.prepare(query, key).primitive) is primitive
        pairs = [query[..., :, None, :].expand(-1, -1, -1, 11, -1), key[..., None, :, :].expand(-1, -1, 5, -1, -1)]
        torch.testing.assert_close(score(query, key), network(torch.cat(pairs, dim=-1)).squeeze(-1))


def test_create_makes_any_depth():
    for hidden in ((), (3,), (3, 5, 7)):
        linear = [m for m in scores.MLP.create(2, 3, hidden, nn.ReLU).modules() if isinstance(m, nn.Linear)]
        assert [layer.in_features for layer in linear] == [5, *hidden]
        assert [layer.out_features for layer in linear] == [*hidden, 1]


@pytest.mark.parametrize(
    ("network", "width"),
    [
        (nn.Sequential(nn.Linear(20, 17), nn.Tanh(), nn.Linear(17, 1)), 18),
        (nn.Sequential(nn.Linear(20, 17), nn.ReLU(), nn.Linear(17, 1)), 18),
        (nn.Sequential(nn.Linear(20, 17), nn.GELU(), nn.Linear(17, 1)), 17),
        (nn.Sequential(nn.Linear(20, 5), nn.Tanh(), nn.Linear(5, 31), nn.Tanh(), nn.Linear(31, 1)), 31),
        (nn.Sequential(nn.Tanh(), nn.Linear(20, 3), nn.Linear(3, 1)), 20),
        (nn.Linear(20, 1), 20),
    ],
)
def test_tiles_know_the_widest_layer(network: nn.Module, width: int):
    query, key = torch.randn(2, 3, 5, 7), torch.randn(2, 3, 11, 13)
    prepared = scores.MLP(network).prepare(query, key)
    assert prepared.primitive.elements_per_pair(prepared.query, prepared.key) == width


def test_networks_that_dont_suit():
    query, key = torch.randn(2, 3, 5, 7), torch.randn(2, 3, 11, 13)
    with pytest.raises(ShapeError, match="must have 19 features together, as network takes them; query has 7, key has"):
        scores.MLP(nn.Sequential(nn.Linear(19, 1)))(query, key)
    with pytest.raises(ShapeError, match=r"network must return \[..., 1\]; it returned \[2, 3, 5, 11, 2\]"):
        scores.MLP(nn.Sequential(nn.Linear(20, 2)))(query, key)
    with pytest.raises(KindError, match=r"network must be a torch\.nn\.Module; it is a function"):
        scores.MLP(lambda pairs: pairs)


class Bilinear(nn.Module):
    """A module as a callable score."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 3))

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return query @ self.weight @ key.mT


def test_a_module_as_callable_is_trained_with_the_score():
    module = Bilinear().double()
    score = scores.as_score(module)
    assert list(score.parameters()) == [module.weight]
    query, key = torch.randn(2, 2, 5, 3, dtype=torch.float64), torch.randn(2, 1, 7, 3, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda weight: score(query, key), (module.weight,))
    half = score.bfloat16()(query.bfloat16(), key.bfloat16())
    assert half.dtype == torch.float32


def test_callables_that_dont_suit():
    query = torch.randn(2, 3, 5, 7)
    with pytest.raises(ShapeError, match=r"score must return \[batch, heads, queries, keys\]; .* returned \[2, 3, 4\]"):
        scores.Custom(lambda query, key: query.sum(-1))(query, query)
    with pytest.raises(ShapeError, match="it returned float"):
        scores.Custom(lambda query, key: 1.0)(query, query)
    with pytest.raises(KindError, match="function must be a callable"):
        scores.Custom(3)
    with pytest.raises(ArgumentError, match="width must be at least 1; it is 0"):
        scores.Custom(lambda query, key: query @ key.mT, width=0)
    with pytest.raises(KindError, match="width must be an integer; it is "):
        scores.Custom(lambda query, key: query @ key.mT, width=1.5)
