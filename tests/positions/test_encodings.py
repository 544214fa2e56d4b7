"""Positions that go into the input: sinusoidal, learned, rotary."""

import copy
import math

import pytest
import torch
from torch.autograd import gradcheck

from regard.errors import ArgumentError, KindError, ShapeError
from regard.positions import Axial, Learned, Rotary, Sections, Sinusoidal, YaRN

DOUBLE = torch.float64


@pytest.mark.parametrize("dim", [1, 2, 7, 12])
@pytest.mark.parametrize("base", [10000.0, 23.0])
def test_sinusoidal_is_the_papers_formula(dim: int, base: float):
    table = Sinusoidal(dim, base).table(11, dtype=DOUBLE)
    assert table.shape == (11, dim)
    for position in range(11):
        for feature in range(dim):
            angle = position / base ** ((feature - feature % 2) / dim)
            expected = math.cos(angle) if feature % 2 else math.sin(angle)
            assert math.isclose(table[position, feature], expected, abs_tol=1e-12)


def test_sinusoidal_keeps_its_digits_at_far_positions():
    row = Sinusoidal(6).table(100_001)[100_000]
    expected = [f(100_000 / 10000 ** (i / 6)) for i in (0, 2, 4) for f in (math.sin, math.cos)]
    torch.testing.assert_close(row, torch.tensor(expected, dtype=DOUBLE).float(), rtol=0, atol=6e-8)


@pytest.mark.parametrize("shape", [(5, 7), (3, 5, 7), (2, 3, 5, 7), (3, 0, 7), (0, 5, 7)])
def test_encodings_are_added_along_the_length(shape: tuple[int, ...]):
    x = torch.randn(shape)
    sinusoidal, learned = Sinusoidal(7), Learned(11, 7)
    length = shape[-2]
    assert torch.equal(sinusoidal(x), x + sinusoidal.table(length))
    assert torch.equal(learned(x), x + learned.weight[:length])
    assert torch.equal(learned(x, 3), x + learned.weight[3 : 3 + length])


ENCODINGS = [
    Sinusoidal(6), Learned(23, 6), Rotary(6), Rotary(6, interleaved=True), Rotary(4),
    Rotary(6, scaling=YaRN(4.0, 8)), Rotary(6, axes=Axial((4, 2), grid=(9, 5))), Rotary(6, axes=Sections((1, 2))),
]  # fmt: skip


@pytest.mark.parametrize("encoding", ENCODINGS, ids=repr)
class TestEveryEncoding:
    def test_a_part_with_its_offset_is_the_part_of_the_whole(self, encoding):
        x = torch.randn(2, 3, 11, 6)
        whole = encoding(x)
        for start in (0, 1, 5, 10, 11):
            torch.testing.assert_close(encoding(x[..., start:, :], offset=start), whole[..., start:, :])

    @pytest.mark.parametrize("shape", [(3, 5, 6), (3, 2, 5, 6), (3, 0, 6)])
    def test_encoding_offsets_may_differ_between_batch_rows(self, encoding, shape):
        x = torch.randn(shape)
        offset = torch.tensor([0, 7, 2])
        rows = torch.stack([encoding(x[row], int(offset[row])) for row in range(3)])
        torch.testing.assert_close(encoding(x, offset), rows)

    def test_step_by_step_is_the_whole(self, encoding):
        x = torch.randn(3, 11, 6)
        steps = [encoding(x[:, i : i + 1], offset=i) for i in range(11)]
        torch.testing.assert_close(torch.cat(steps, dim=1), encoding(x))

    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
    def test_the_inputs_dtype_is_kept(self, encoding, dtype):
        x = torch.randn(3, 5, 6)
        out = encoding(x.to(dtype), 2)
        assert out.dtype == dtype
        exact = encoding(x.to(dtype).double(), 2)
        torch.testing.assert_close(out.double(), exact, rtol=0, atol=6 * torch.finfo(dtype).eps + 1e-12)

    def test_gradients_of_position_encodings_are_exact(self, encoding):
        module = copy.deepcopy(encoding).double()
        x = torch.randn(2, 3, 6, dtype=DOUBLE, requires_grad=True)
        assert gradcheck(lambda x: module(x, 2), (x,))
        assert gradcheck(module, (x, torch.tensor([4, 1])))

    def test_position_encodings_take_empty_inputs(self, encoding):
        for shape in ((0, 5, 6), (3, 0, 6), (0, 6)):
            assert encoding(torch.zeros(shape)).shape == shape
        assert encoding(torch.zeros(0, 5, 6), torch.zeros(0, dtype=torch.int64)).shape == (0, 5, 6)

    @pytest.mark.parametrize(
        ("x", "offset", "error", "says"),
        [
            (torch.zeros(5, 3), 0, ShapeError, "[5, 3]"),
            (torch.zeros(6), 0, ShapeError, "input must be [..., length"),
            (torch.zeros(5, 6).long(), 0, KindError, "input must hold floating-point numbers"),
            ([[1.0] * 6], 0, KindError, "input must be a tensor; it is a list"),
            (torch.zeros(5, 6), 1.0, KindError, "offset must be an integer; it is 1.0"),
            (torch.zeros(3, 5, 6), torch.zeros(3), KindError, "offset must hold integers; it holds torch.float32"),
            (torch.zeros(3, 5, 6), torch.zeros(2).long(), ShapeError, "it has shape [2]"),
            (torch.zeros(5, 6), torch.zeros(5).long(), ShapeError, "offset must be an integer, or [batch]"),
            (torch.zeros(3, 5, 6), torch.zeros(3, device="meta").long(), KindError, "offset must be on cpu"),
        ],
    )
    def test_wrong_inputs_are_named(self, encoding, x, offset, error: type[Exception], says: str):
        with pytest.raises(error) as caught:
            encoding(x, offset)
        assert says in str(caught.value)


def test_fixed_encodings_have_no_state():
    assert not Sinusoidal(6).state_dict()
    assert not Rotary(6).state_dict()


@pytest.mark.parametrize("make", [lambda: Sinusoidal(6), lambda: Rotary(6), lambda: Learned(7, 6)])
def test_encodings_first_used_in_inference_mode_can_be_trained(make):
    module = make()
    with torch.inference_mode():
        module(torch.randn(3, 5, 6))
    x = torch.randn(3, 5, 6, requires_grad=True)
    module(x).square().sum().backward()
    assert x.grad is not None


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("interleaved", [False, True])
def test_rotary_turns_half_precision_in_float32(dtype: torch.dtype, interleaved: bool):
    x = torch.randn(3, 11, 6).to(dtype)
    rotary = Rotary(6, interleaved=interleaved)
    assert torch.equal(rotary(x), rotary(x.float()).to(dtype))


def test_half_precision_modules_lose_no_digits():
    x = torch.randn(3, 5, 6)
    module = Rotary(6)
    before = module(x)
    assert torch.equal(module.half().float()(x), before)


def test_learned_ends_at_its_max_length():
    module = Learned(7, 6)
    assert module(torch.zeros(7, 6)).shape == (7, 6)
    for x, offset in ((torch.zeros(8, 6), 0), (torch.zeros(5, 6), 3), (torch.zeros(5, 6), -1)):
        with pytest.raises(ArgumentError, match=r"positions must be in 0..6 \(max_length=7\)"):
            module(x, offset)
    for offset in ([0, 3], [-1, 0]):
        with pytest.raises(ArgumentError, match="max_length=7"):
            module(torch.zeros(2, 5, 6), torch.tensor(offset))


def test_learned_gradients_reach_the_vectors_that_were_used():
    module = Learned(7, 6)
    module(torch.zeros(3, 2, 6), offset=4).sum().backward()
    assert module.weight.grad is not None
    assert module.weight.grad.sum(-1).tolist() == [0, 0, 0, 0, 18, 18, 0]


@pytest.mark.parametrize("interleaved", [False, True])
def test_rotary_turns_each_pair_by_its_angle(interleaved: bool):
    x = torch.randn(5, 6, dtype=DOUBLE)
    turned = Rotary(6, base=100.0, interleaved=interleaved)(x, offset=3)
    for row in range(5):
        for pair in range(3):
            first, second = (2 * pair, 2 * pair + 1) if interleaved else (pair, pair + 3)
            angle = (row + 3) * 100.0 ** (-2 * pair / 6)
            number = complex(x[row, first], x[row, second]) * complex(math.cos(angle), math.sin(angle))
            assert math.isclose(turned[row, first], number.real, abs_tol=1e-12)
            assert math.isclose(turned[row, second], number.imag, abs_tol=1e-12)


@pytest.mark.parametrize("interleaved", [False, True])
def test_rotary_inner_products_depend_on_relative_position_only(interleaved: bool):
    rotary = Rotary(6, interleaved=interleaved)
    query, key = torch.randn(5, 6, dtype=DOUBLE), torch.randn(7, 6, dtype=DOUBLE)
    products = rotary(query, 2) @ rotary(key).mT
    for shift in (-50, -1, 1, 1000):
        moved = rotary(query, 2 + shift) @ rotary(key, shift).mT
        torch.testing.assert_close(moved, products, rtol=0, atol=1e-10)
    assert not torch.allclose(rotary(query, 3) @ rotary(key).mT, products)


def test_rotary_keeps_lengths_and_leaves_position_0_alone():
    x = torch.randn(5, 6, dtype=DOUBLE)
    turned = Rotary(6)(x)
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1))
    assert torch.equal(turned[0], x[0])


def test_partial_rotary_turns_the_first_features():
    x = torch.randn(3, 5, 7)
    turned = Rotary(4)(x)
    assert torch.equal(turned[..., 4:], x[..., 4:])
    assert torch.equal(turned[..., :4], Rotary(4)(x[..., :4]))


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: Sinusoidal(0), ArgumentError, "dim must be at least 1; it is 0"),
        (lambda: Sinusoidal(2.5), KindError, "dim must be an integer; it is 2.5"),
        (lambda: Sinusoidal(6, base=-1.0), ArgumentError, "base must be positive and finite"),
        (lambda: Sinusoidal(6, base=float("nan")), ArgumentError, "base must be positive and finite; it is nan"),
        (lambda: Sinusoidal(6, base="10"), KindError, "base must be a number"),
        (lambda: Sinusoidal(6).table(-1), ArgumentError, "length must be at least 0"),
        (lambda: Learned(0, 6), ArgumentError, "max_length must be at least 1"),
        (lambda: Rotary(5), ArgumentError, "dim must be even"),
        (lambda: Rotary(0), ArgumentError, "dim must be at least 2"),
    ],
)
def test_position_encodings_name_wrong_arguments(make, error: type[Exception], says: str):
    with pytest.raises(error) as caught:
        make()
    assert says in str(caught.value)
