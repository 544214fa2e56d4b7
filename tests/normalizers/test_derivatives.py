"""Every derivative of every normalizer that PyTorch can be asked for, against reverse mode and difference quotients."""

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap

import regard
from normalizer_cases import ALL, HARD, SMOOTH, B, H, K, Q, over, some_scores
from regard import normalizers

# PyTorch's own forward mode of some operations says this.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")

SOFT = {name: value for name, value in SMOOTH.items() if not name.startswith("custom")}
DETERMINISTIC = {name: value for name, value in ALL.items() if not value.random}
PARAMETERS = {
    "temperature": (normalizers.Softmax, [0.7, 1.0, 1.5]),
    "sink": (normalizers.SoftmaxWithSink, [0.3, -1.0, 2.0]),
    "scale": (normalizers.ScalableSoftmax, [0.7, 1.0, 1.5]),
    "alpha": (normalizers.Entmax, [1.2, 1.5, 2.3]),
    "bias": (normalizers.Sigmoid, [0.0, 0.5, -1.0]),
    "hard temperature": (lambda t: normalizers.Hard("straight_through", t), [0.7, 1.0, 1.5]),
    "center": (lambda c: normalizers.LocalGaussian(normalizers.softmax, c[:, None], 1.5), [0.5, 2.0, 3.0]),
    "sigma": (
        lambda s: normalizers.LocalGaussian(normalizers.sparsemax, torch.tensor([2.0], dtype=s.dtype), s[:, None]),
        [0.5, 2.0, 3.0],
    ),
}
learned = pytest.mark.parametrize(("make", "value"), PARAMETERS.values(), ids=PARAMETERS.keys())


def few(*shape: int) -> Tensor:
    """Scores with a gap and, where there are two rows, one that sees nothing."""
    scores = torch.randn(*shape, dtype=torch.float64)
    scores[..., 0, 1] = -torch.inf
    scores[..., -1, :] = -torch.inf
    return scores


@over(SOFT)
def test_all_first_derivatives(normalizer, is_full):
    scores = torch.randn(H, 2, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        normalizer,
        scores,
        check_forward_ad=True,
        check_batched_grad=True,
        check_batched_forward_grad=True,
        fast_mode=not is_full,
    )


@over(SOFT)
def test_all_second_derivatives(normalizer, is_full):
    scores = torch.randn(H, 2, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(
        normalizer,
        scores,
        check_fwd_over_rev=True,
        check_rev_over_rev=True,
        check_batched_grad=True,
        fast_mode=not is_full,
    )


@learned
def test_all_derivatives_of_parameters(make, value, is_full):
    parameter = torch.tensor(value, dtype=torch.float64, requires_grad=True)
    scores = few(H, 3, 5)
    hidden = scores == -torch.inf

    def weigh(parameter: Tensor, shown: Tensor) -> Tensor:
        return make(parameter)(shown.masked_fill(hidden, -torch.inf))

    if make is not PARAMETERS["hard temperature"][0]:
        inputs = (parameter, scores.masked_fill(hidden, 0.0).requires_grad_())
        assert torch.autograd.gradcheck(
            weigh, inputs, check_forward_ad=True, check_batched_grad=True, fast_mode=not is_full
        )
        assert torch.autograd.gradgradcheck(weigh, inputs, check_fwd_over_rev=True, fast_mode=not is_full)


@over(DETERMINISTIC)
def test_function_transforms_agree_with_reverse_mode(normalizer):
    scores, upstream = some_scores(), torch.randn(B, H, Q, K, dtype=torch.float64)
    leaf = scores.clone().requires_grad_()
    weights = normalizer(leaf)
    expected = torch.zeros_like(scores)
    if weights.requires_grad:
        (expected,) = torch.autograd.grad(weights, leaf, upstream)
    got = grad(lambda s: (normalizer(s) * upstream).sum())(scores)
    torch.testing.assert_close(got, expected)
    value, pull = vjp(normalizer, scores)
    assert torch.equal(value, weights.detach())
    torch.testing.assert_close(pull(upstream)[0], expected)
    stacked = torch.stack([upstream, 2 * upstream])
    torch.testing.assert_close(vmap(pull)(stacked)[0], torch.stack([expected, 2 * expected]))


@over(DETERMINISTIC)
def test_forward_mode_is_the_adjoint_of_reverse_mode(normalizer):
    scores, upstream, tangent = some_scores(), *torch.randn(2, B, H, Q, K, dtype=torch.float64)
    value, forward = jvp(normalizer, (scores,), (tangent,))
    assert torch.equal(value, normalizer(scores))
    backward = grad(lambda s: (normalizer(s) * upstream).sum())(scores)
    torch.testing.assert_close((forward * upstream).sum(), (backward * tangent).sum())
    assert (forward[scores == -torch.inf] == 0).all()
    with forward_ad.dual_level():
        dual = forward_ad.unpack_dual(normalizer(forward_ad.make_dual(scores, tangent)))
    torch.testing.assert_close(dual.primal, value)
    torch.testing.assert_close(torch.zeros_like(value) if dual.tangent is None else dual.tangent, forward)


@over({name: value for name, value in DETERMINISTIC.items() if "a head" not in name})
def test_jacobians_and_second_derivatives_agree_in_every_order(normalizer):
    scores = few(2, 3)
    first = jacrev(normalizer)(scores)
    torch.testing.assert_close(jacfwd(normalizer)(scores), first)
    torch.testing.assert_close(torch.autograd.functional.jacobian(normalizer, scores), first)
    torch.testing.assert_close(torch.autograd.functional.jacobian(normalizer, scores, vectorize=True), first)

    def loss(s: Tensor) -> Tensor:
        return normalizer(s).square().sum()

    second = hessian(loss)(scores)
    assert second.isfinite().all()
    for outer, inner in ((jacrev, jacrev), (jacfwd, jacfwd), (jacrev, jacfwd)):
        torch.testing.assert_close(outer(inner(loss))(scores), second)


@over({name: value for name, value in DETERMINISTIC.items() if "a head" not in name})
def test_third_derivatives_agree(normalizer):
    scores = torch.randn(3, dtype=torch.float64)

    def loss(s: Tensor) -> Tensor:
        return (normalizer(s) * torch.arange(3.0)).sum()

    third = jacrev(jacrev(grad(loss)))(scores)
    torch.testing.assert_close(jacfwd(jacfwd(jacfwd(loss)))(scores), third)
    torch.testing.assert_close(jacfwd(hessian(loss))(scores), third)


@over(DETERMINISTIC)
@pytest.mark.parametrize("axis", [0, 1, 2, 3, 4, -1])
def test_vmap_over_any_axis(normalizer, axis):
    scores = torch.stack([some_scores(), some_scores(3.0), some_scores(0.1)])
    expected = torch.stack([normalizer(part) for part in scores])
    torch.testing.assert_close(vmap(normalizer, axis)(scores.movedim(0, axis)), expected)
    middle = vmap(lambda s: normalizer(s, dim=-2), axis)(scores.mT.contiguous().movedim(0, axis))
    torch.testing.assert_close(middle.mT, expected)


@learned
def test_vmap_over_a_parameter_and_over_both(make, value):
    values = torch.tensor([value, value[::-1]], dtype=torch.float64)
    scores = torch.stack([some_scores(), some_scores()])
    one = vmap(lambda v: make(v)(scores[0]))(values)
    torch.testing.assert_close(one, torch.stack([make(v)(scores[0]) for v in values]))
    both = vmap(lambda v, s: make(v)(s), (1, 0))(values.T, scores)
    torch.testing.assert_close(both, torch.stack([make(v)(s) for v, s in zip(values, scores, strict=True)]))
    each = vmap(grad(lambda v, s: make(v)(s).square().sum()))(values, scores)
    for row, v, s in zip(each, values, scores, strict=True):
        leaf = v.clone().requires_grad_()
        make(leaf)(s).square().sum().backward()
        torch.testing.assert_close(row, leaf.grad)


@over({name: SMOOTH[name] for name in ("softmax", "sink a head", "sparsemax", "entmax 1.3", "entmax 1.5")})
def test_many_scores_have_all_derivatives_too(normalizer):
    """So many that compiled loops would weigh them; those have reverse mode only."""
    scores, tangent, upstream = torch.randn(3, H, 41, 151)
    leaf = scores.clone().requires_grad_()
    (expected,) = torch.autograd.grad(normalizer(leaf), leaf, upstream)
    _, forward = jvp(normalizer, (scores,), (tangent,))
    torch.testing.assert_close((forward * upstream).sum(), (expected * tangent).sum(), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(grad(lambda s: (normalizer(s) * upstream).sum())(scores), expected)
    weights = normalizer(leaf)
    both = torch.stack([upstream, -upstream])
    (batched,) = torch.autograd.grad(weights, leaf, both, is_grads_batched=True, retain_graph=True)
    torch.testing.assert_close(batched, torch.stack([expected, -expected]))
    with forward_ad.dual_level():
        (dual,) = torch.autograd.grad(weights, leaf, forward_ad.make_dual(upstream, tangent))
        assert forward_ad.unpack_dual(dual).tangent is not None


@over(DETERMINISTIC)
def test_attention_by_the_specification_has_them(normalizer):
    query, key, value = (torch.randn(B, H, n, 11, dtype=torch.float64) for n in (Q, K, K))
    upstream, tangent = torch.randn(2, B, H, Q, 11, dtype=torch.float64)

    def attend(q: Tensor) -> Tensor:
        return regard.attend(q, key, value, normalizer=normalizer, mask=regard.masks.causal(), backend="reference")

    _, forward = jvp(attend, (query,), (tangent,))
    backward = grad(lambda q: (attend(q) * upstream).sum())(query)
    torch.testing.assert_close((forward * upstream).sum(), (backward * tangent).sum())
    leaf = query.clone().requires_grad_()
    output = attend(leaf)
    if output.requires_grad:
        torch.testing.assert_close(torch.autograd.grad(output, leaf, upstream)[0], backward)
    both = torch.stack([query, query + 1])
    torch.testing.assert_close(vmap(attend)(both), torch.stack([attend(q) for q in both]))


@over({name: value for name, value in HARD.items() if value.random})
def test_random_weights_under_vmap_are_drawn_as_it_is_told(normalizer):
    scores = torch.zeros(2, 101, 7)
    different, same = (vmap(normalizer, randomness=way)(scores) for way in ("different", "same"))
    assert not torch.equal(different[0], different[1])
    assert torch.equal(same[0], same[1])
    assert (different.sum(-1) == 1).all()
