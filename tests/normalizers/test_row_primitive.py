"""What normalizers lower to, and back; and that no lowering speaks for a class that weighs in another way."""

import pytest
import torch
from torch import nn

import regard
from normalizer_cases import ALL, B, H, K, Q, over, some_scores
from regard import normalizers
from regard.normalizers import Normalizer, RowPrimitive

LOWERED = {
    "softmax": "softmax",
    "softmax T=0.5": "softmax",
    "softmax T a head": "softmax",
    "sink 0": "softmax",
    "sink a head": "softmax",
    "local": "softmax",
    "sparsemax": "entmax",
    "entmax 1.01": "entmax",
    "entmax 1.3": "entmax",
    "entmax 1.5": "entmax",
    "entmax 3": "entmax",
    "entmax a head": "entmax",
    "sigmoid": "sigmoid",
    "sigmoid bias a head": "sigmoid",
    "hard argmax": "hard",
    "identity": "identity",
    "ratio": "ratio",
}
LOWERING = {name: ALL[name] for name in LOWERED}


def normalizer_of(primitive):
    """The normalizer that lowers to a primitive."""
    inner = {
        "softmax": lambda: normalizers.Softmax(primitive.temperature),
        "entmax": lambda: normalizers.Entmax(primitive.alpha),
        "sigmoid": lambda: normalizers.Sigmoid(primitive.shift),
        "hard": normalizers.Hard,
        "identity": normalizers.Identity,
        "ratio": normalizers.Ratio,
    }[primitive.kind]()
    if primitive.sink is not None:
        inner = normalizers.SoftmaxWithSink(primitive.sink)
    return inner if primitive.center is None else normalizers.LocalGaussian(inner, primitive.center, primitive.sigma)


@pytest.mark.parametrize("name", sorted(ALL))
def test_normalizers_lower_to_their_row_primitive(name):
    primitive = ALL[name].lower()
    assert (None if primitive is None else primitive.kind) == LOWERED.get(name)


@over(LOWERING)
def test_the_normalizer_of_a_primitive_weighs_as_the_one_that_lowered_to_it(normalizer):
    scores = some_scores()
    again = normalizer_of(normalizer.lower())
    assert torch.equal(again(scores), normalizer(scores))
    assert torch.equal(again.log_sum_exp(scores), normalizer.log_sum_exp(scores))


@pytest.mark.parametrize(
    ("primitive", "name"),
    [
        (lambda t: RowPrimitive("softmax", temperature=t), "temperature"),
        (lambda t: RowPrimitive("softmax", sink=t), "sink"),
        (lambda t: RowPrimitive("entmax", alpha=t), "alpha"),
        (lambda t: RowPrimitive("sigmoid", shift=t), "bias"),
    ],
)
def test_tensors_stay_as_they_are(primitive, name):
    learned = torch.full((H,), 1.5, dtype=torch.float64, requires_grad=True)
    normalizer = normalizer_of(primitive(learned * 1.0))
    (normalizer(some_scores()) * torch.rand(B, H, Q, K)).sum().backward()
    assert learned.grad is not None
    assert (learned.grad != 0).all()
    parameter = nn.Parameter(learned.detach())
    assert getattr(normalizer_of(primitive(parameter)), name) is parameter


def test_nested_and_drawn_windows_have_no_row_primitive():
    window = normalizers.local_gaussian(normalizers.softmax, torch.tensor(2.0), 1.5)
    assert normalizers.local_gaussian(window, torch.tensor(1.0), 2.0).lower() is None
    assert normalizers.local_gaussian(normalizers.hard("gumbel"), torch.tensor(1.0), 2.0).lower() is None


class Doubled(normalizers.Softmax):
    def forward(self, scores, dim=-1):
        return super().forward(2.0 * scores, dim)


class Named(normalizers.Softmax):
    def extra_repr(self):
        return "named"


class Mixin:
    def forward(self, scores, dim=-1):
        return torch.zeros_like(scores)


class Mixed(Mixin, normalizers.Softmax):
    pass


class OwnLowering(Doubled):
    def lower(self):
        return RowPrimitive("softmax", temperature=0.5)


class Tiled(normalizers.Sigmoid):
    def weigh(self, scores, grid):
        return super().weigh(scores, grid) / 2


class Summed(normalizers.Entmax):
    def log_sum_exp(self, scores):
        return super().log_sum_exp(scores) + 1


@pytest.mark.parametrize("normalizer", [Doubled(), type("Further", (Doubled,), {})(), Mixed(), Tiled(), Summed(1.5)])
def test_a_subclass_that_weighs_in_another_way_inherits_no_lowering(normalizer):
    assert normalizer.lower() is None
    assert normalizers.local_gaussian(normalizer, torch.tensor(2.0), 1.5).lower() is None


@pytest.mark.parametrize("normalizer", [Named(0.5), OwnLowering()])
def test_a_subclass_that_weighs_as_its_parent_or_says_how_it_lowers_does(normalizer):
    assert normalizer.lower().temperature == 0.5


def test_a_normalizer_of_a_user_lowers_to_nothing_unless_told():
    class Own(Normalizer):
        def forward(self, scores, dim=-1):
            return scores.softmax(dim)

    assert Own().lower() is None


@pytest.mark.parametrize("backend", ["auto", "reference", "tiled"])
def test_every_backend_asks_the_subclass(backend):
    query, key, value = (torch.randn(1, 2, 67, 11) for _ in range(3))
    for bent, plain in ((Doubled(), normalizers.Softmax(0.5)), (OwnLowering(), normalizers.Softmax(0.5))):
        output = regard.attend(query, key, value, normalizer=bent, backend=backend)
        torch.testing.assert_close(output, regard.attend(query, key, value, normalizer=plain, backend="reference"))


@pytest.mark.parametrize("backend", ["reference", "tiled", "cpu"])
@pytest.mark.parametrize("bias", [torch.tensor(0.0), torch.zeros(1), torch.tensor([0.0, 0.5, -1.0]), torch.zeros(3)])
def test_a_learned_sigmoid_bias_gets_its_gradient_also_where_it_is_zero(backend, bias, is_full):
    query, key, value = (torch.randn(B, H, n, 11, dtype=torch.float64) for n in (Q, K, K))
    learned = bias.double().requires_grad_()

    def attend(shift):
        normalizer = normalizers.Sigmoid(shift)
        return regard.attend(query, key, value, normalizer=normalizer, backend=backend)

    assert torch.autograd.gradcheck(attend, learned, fast_mode=not is_full)
