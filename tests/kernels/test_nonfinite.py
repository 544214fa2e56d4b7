"""Each operator says whether every number it wrote is finite, so that nobody has to look through its results."""

import pytest
import torch

pytest.importorskip("numba", reason="kernels are compiled by Numba")

from kernels.oracle import tensors
from regard.kernels.cpu import operators, step_operators
from regard.kernels.cpu.kernel_inputs import KernelInputs
from regard.kernels.cpu.reading_options import ReadingOptions
from regard.kernels.kinds import ENTMAX, ENTMAX15, SIGMOID, SOFTMAX, SPARSEMAX

B, H, KV, Q, K, D, V = 2, 4, 2, 67, 131, 7, 3
KINDS = {"softmax": SOFTMAX, "entmax15": ENTMAX15, "sparsemax": SPARSEMAX, "entmax": ENTMAX, "sigmoid": SIGMOID}
EVERY = ReadingOptions(entropy=True, peak=True, top_k=3, received=True, distance=True, pooled=[2, 3], all_rows=Q)
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
SCORES = pytest.mark.parametrize("additive", [False, True], ids=["product", "additive"])


def inputs_of(dtype=torch.float32, additive=False, spoil=None, **changes):
    """Inputs of an operator; ``spoil`` changes the tensors first."""
    given = tensors(dtype=dtype, query=(B, H, Q, D), key=(B, KV, K, D), value=(B, KV, K, V), weight=(H, D))
    if spoil is not None:
        spoil(given)
    if additive:
        changes["exponentials"], changes["extents"], _ = operators.exponentials(given["key"])
    else:
        given.pop("weight")
    return KernelInputs(**given, **changes)


def flags(inputs):
    """Of the forward pass, the backward pass and readings."""
    output, statistics, weights, forward = operators.attend(*inputs)
    grad_weights = torch.ones_like(weights) if inputs.return_weights else None
    backward = operators.attend_backward(torch.ones_like(output), grad_weights, statistics, *inputs)[-1]
    return [bool(flag) for flag in (forward, backward, operators.read(*inputs, *EVERY)[-1])]


def hidden(inputs, batch, first):
    """Runs that end before a key in one batch row."""
    stop = torch.full((B, 1, 1), K, dtype=torch.int32)
    stop[batch] = first
    return inputs._replace(start=torch.zeros_like(stop), stop=stop)


@DTYPES
@SCORES
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("return_weights", [False, True])
def test_finite_results_raise_no_flag(kind, additive, dtype, return_weights):
    inputs = inputs_of(dtype, additive, normalizer=KINDS[kind], alpha=1.3, return_weights=return_weights)
    assert flags(inputs) == [False] * 3
    nothing = torch.zeros(B, 1, 1, dtype=torch.int32)
    assert flags(inputs._replace(start=nothing, stop=nothing)) == [False] * 3


@DTYPES
@SCORES
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", [torch.nan, torch.inf])
def test_what_is_visible_raises_it(kind, additive, dtype, number):
    def spoil(given):
        given["value"][1, 1, 100, 2] = number

    inputs = inputs_of(dtype, additive, spoil, normalizer=KINDS[kind], alpha=1.3)
    assert flags(inputs) == [True, True, False]

    def spoil_query(given):
        given["query"][1, 3, 60, 6] = torch.nan

    assert flags(inputs_of(dtype, additive, spoil_query, normalizer=KINDS[kind], alpha=1.3)) == [True] * 3


@SCORES
def test_a_row_of_minus_infinity_and_nan(additive):
    """A row whose only number above −∞ is NaN."""
    bias = torch.full((1, 1, Q, K), -torch.inf)
    bias[0, 0, 5, 7] = torch.nan
    for kind in KINDS.values():
        assert flags(inputs_of(additive=additive, bias=bias, normalizer=kind, alpha=1.3)) == [True] * 3


@DTYPES
@SCORES
@pytest.mark.parametrize("name", ["key", "value"])
def test_where_what_is_hidden_comes_through_the_flag_is_raised(name, additive, dtype):
    """Wherever a result is not finite: the flag is exactly that, whatever the kernel multiplies with what."""

    def spoil(given):
        given[name][0, :, 70:] = torch.nan

    whole = inputs_of(dtype, additive, spoil)
    mask = torch.ones(B, 1, 1, K, dtype=torch.bool)
    mask[0, ..., 70:] = False
    for inputs in (hidden(whole, 0, 70), whole._replace(mask=mask)):
        output, statistics, _, forward = operators.attend(*inputs)
        *gradients, backward = operators.attend_backward(torch.ones_like(output), None, statistics, *inputs)
        *readings, read = operators.read(*inputs, *EVERY)
        assert bool(forward) == (not output.isfinite().all())
        assert bool(backward) == (not all(tensor.isfinite().all() for tensor in gradients))
        assert bool(read) == any(bool((tensor.isnan() | (tensor == torch.inf)).any()) for tensor in readings)


@pytest.mark.parametrize("name", ["sink", "shift", "center", "sigma", "bias"])
def test_every_other_input(name):
    given = {
        "sink": torch.zeros(H),
        "shift": torch.zeros(H),
        "center": torch.zeros(B, H, Q),
        "sigma": torch.ones(B, H, Q),
        "bias": torch.zeros(1, H, Q, K),
    }
    chosen = {key: given[key] for key in (("center", "sigma") if name in ("center", "sigma") else (name,))}
    kind = SIGMOID if name == "shift" else SOFTMAX
    assert flags(inputs_of(normalizer=kind, **chosen)) == [False] * 3
    chosen[name].view(-1)[-1] = torch.nan
    assert flags(inputs_of(normalizer=kind, **chosen)) == [True] * 3


def test_dropped_weights_are_looked_at_too():
    """Weights are returned before dropout: NaN that dropout takes away from the output is in them."""
    bias = torch.zeros(1, 1, Q, K)
    bias[..., 5, 7] = torch.nan
    for seed in range(5):
        inputs = inputs_of(bias=bias, dropout=0.999, seed=seed, return_weights=True)
        assert bool(operators.attend(*inputs)[-1])


def test_no_weights_given_to_dropout_are_zero_times_infinity():
    """The gradient of a value that is dropped everywhere."""
    inputs = inputs_of(dropout=0.4, seed=3)
    assert flags(inputs)[:2] == [False, False]


@DTYPES
@pytest.mark.parametrize("number", [torch.nan, torch.inf, -torch.inf])
def test_exponentials_of_keys(dtype, number):
    key = tensors(dtype=dtype, key=(B, KV, K, D))["key"]
    assert not bool(operators.exponentials(key)[-1])
    for place in (0, D - 1):
        spoiled = key.clone()
        spoiled[1, 1, 130, place] = number
        assert bool(operators.exponentials(spoiled)[-1])


@SCORES
def test_steps_over_a_memory(additive):
    def one_head(inputs):
        return inputs._replace(query=inputs.query[:, :1, :1], key=inputs.key[:, :1], value=inputs.value[:, :1])

    def of(spoil):
        inputs = one_head(inputs_of(additive=additive, spoil=spoil))
        if additive:
            powers, extents, _ = operators.exponentials(inputs.key)
            inputs = inputs._replace(exponentials=powers, extents=extents, weight=inputs.weight[:1])
        output, weights, forward = step_operators.step(inputs)
        _, grad_score, _, backward = step_operators.query_gradient(inputs, weights, torch.ones_like(output), None)
        flags = [forward, backward]
        if additive:
            flags.append(step_operators.key_gradients(inputs, grad_score)[-1])
        return [bool(flag) for flag in flags]

    assert not any(of(None))
    assert all(of(lambda given: given["key"][0, 0, 3, 1].fill_(torch.nan)))
