"""int64 values on the wire: exact, narrow, and nothing else is taken for them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuboost.network.wire import BLOCK, largest_payload, pack_values, unpack_values


def wire(values):
    return b"".join(pack_values(values))


def test_a_block_is_as_wide_as_its_largest_value_by_hand():
    assert wire(np.array([1, -2])) == bytes([1, 1, 0xFE])
    assert wire(np.array([1, 128])) == bytes([2, 1, 0, 128, 0])
    assert len(wire(np.array([2**31 - 1]))) == 1 + 4 and len(wire(np.array([2**31]))) == 1 + 8
    blocks = np.zeros((3, BLOCK), np.int64)
    blocks[1, 7] = -(2**40)
    assert len(wire(blocks.reshape(-1))) == 3 + 10 * BLOCK


@given(
    st.integers(1, 5 * BLOCK), st.integers(0, 2**32),
    st.lists(st.sampled_from([0, 1, 127, -128, 128, 2**15, 2**31 - 1, -(2**31), 2**31, 2**62, -(2**63)]), max_size=5),
)  # fmt: skip
def test_values_come_back(n, seed, specials):
    rng = np.random.default_rng(seed)
    values = rng.integers(-100, 100, n)
    values[rng.integers(0, n, len(specials))] = specials
    payload = wire(values)
    assert len(payload) <= largest_payload(n)
    np.testing.assert_array_equal(unpack_values(payload, n), values)


@given(st.integers(1, 3000), st.binary(max_size=200))
def test_other_bytes_are_refused_or_values(n, data):
    """Never anything but ValueError, and never another number of values."""
    try:
        assert len(unpack_values(data, n)) == n
    except ValueError:
        pass


@pytest.mark.parametrize("change", [lambda p: p[:-1], lambda p: p + b"\0", lambda p: bytes([3]) + p[1:], lambda p: b""])
def test_cut_lengthened_and_mistyped_payloads_are_refused(change):
    with pytest.raises(ValueError, match="no payload of 5 values"):
        unpack_values(change(wire(np.arange(5))), 5)
