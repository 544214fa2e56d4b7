"""8-bit square roots: the bound of their error, and that nothing is mistaken for 0 or NaN; exact numbers stay exact."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from regard.errors import ArgumentError
from regard.viewer.encoding import CODE_STEPS, NAN_CODE, packed, packed_codes, packed_numbers, square_root_codes
from viewer_decoding import decoded, unpacked, unpacked_numbers

WEIGHTS = arrays.arrays(np.float32, st.integers(0, 37), elements=st.floats(0, 1, width=32))


@given(WEIGHTS, st.sampled_from([1.0, 1.5, 7.0]))
def test_the_error_is_at_most_four_thousandths(weights, maximum):
    weights = weights * np.float32(maximum) if maximum > 1 else weights
    weights = np.minimum(weights, np.float32(maximum))
    error = np.abs(decoded(square_root_codes(weights, maximum), maximum) - weights)
    assert (error <= 0.004 * maximum).all()
    roots = np.sqrt(weights.astype(np.float64) / maximum)
    assert (error <= maximum * (roots / CODE_STEPS + 0.2500001 / CODE_STEPS**2)).all()


@given(WEIGHTS)
def test_only_zero_is_zero(weights):
    codes = square_root_codes(weights, 1.0)
    assert ((codes == 0) == (weights == 0)).all()
    assert not (codes == NAN_CODE).any()


def test_nan_is_nan():
    codes = square_root_codes(np.array([np.nan, 0.5, 1.0]), 1.0)
    assert codes.tolist()[0] == NAN_CODE
    assert np.isnan(decoded(codes, 1.0)).tolist() == [True, False, False]
    assert decoded(codes, 1.0)[2] == 1.0


@pytest.mark.parametrize(("weights", "maximum"), [([1.1], 1.0), ([-0.1], 1.0), ([0.1], 0.0), ([0.1], np.nan)])
def test_weights_without_a_square_root_code_are_refused(weights, maximum):
    with pytest.raises(ArgumentError):
        square_root_codes(np.array(weights), maximum)


@pytest.mark.parametrize("dtype", ["<f4", "<f8"])
@given(arrays.arrays(np.float64, st.tuples(st.integers(0, 5), st.integers(1, 7))))
def test_exact_numbers_come_back(dtype, values):
    with np.errstate(over="ignore"):
        expected = values.astype(dtype)
    found = unpacked_numbers(packed_numbers(expected, dtype))
    assert found.shape == values.shape
    assert np.array_equal(found, expected, equal_nan=True)


@given(st.binary(max_size=99))
def test_bytes_come_back(data):
    assert unpacked(packed(data)) == data


def test_large_weights_have_their_own_maximum():
    entry = packed_codes(np.array([[0.5, 3.0]]))
    assert entry["maximum"] == 3.0
    assert packed_codes(np.array([[0.5, 0.7]]))["maximum"] == 1.0
    assert packed_codes(np.array([[np.nan]]))["maximum"] == 1.0
