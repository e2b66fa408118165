"""kernels/register_search.py: the codes of sixteen values at once are those that a binary search finds."""

import numba
import numpy as np
import pytest

from gpuboost.kernels.register_search import AT_ONCE, N_KEYS, can_search, fill_heap, search_heap
from gpuboost.kernels.scalar import float_key


@numba.njit
def searches(codes):
    return can_search(codes)


@numba.njit
def search(values, n, missing, keys, n_bins, codes):
    heap = np.empty(N_KEYS, np.uint32)
    fill_heap(keys, heap)
    search_heap(values, n, missing, heap, np.uint8(n_bins), codes)


@pytest.mark.parametrize("n_keys", [0, 1, 2, 15, 16, 17, 31, 63, 64, 127, 128, 129, 200, 254])
def test_codes_count_the_keys_not_above_the_value(n_keys):
    rng, missing = np.random.default_rng(n_keys), np.float32(-999)
    sizes = rng.choice([1e-45, 1e-38, 1, 1e3, 1e37], 2000)
    thresholds = np.sort(rng.choice(np.unique((sizes * rng.normal(size=2000)).astype(np.float32)), n_keys, replace=False))
    thresholds += np.float32(0)  # −0 is +0
    near = [np.nextafter(thresholds, np.float32(side)) for side in (-np.inf, np.inf)]
    special = np.float32([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, missing, 3.4028235e38, -3.4028235e38])
    values = rng.permutation(np.concatenate([thresholds, *near, special, rng.normal(size=1000)])).astype(np.float32)
    keys = np.array([float_key(t) for t in thresholds], np.uint32)
    is_missing = np.isnan(values) | (values == missing)
    expected = np.where(is_missing, n_keys + 1, np.searchsorted(thresholds, values, side="right"))
    for n in (0, 1, AT_ONCE - 1, AT_ONCE, AT_ONCE + 1, len(values)):
        whole = -(-n // AT_ONCE) * AT_ONCE
        padded = np.zeros(max(whole, len(values)), np.float32)
        padded[: len(values)] = values
        codes = np.full(whole + 5, 77, np.uint8)
        search(padded, n, missing, keys, n_keys + 1, codes)
        if searches(codes):
            assert (codes[:n] == expected[:n]).all() and (codes[whole:] == 77).all()
        else:
            assert (codes == 77).all()


def test_codes_of_two_bytes_are_not_searched_for():
    codes = np.full(AT_ONCE, 77, np.uint16)
    assert not searches(codes)
    search(np.zeros(AT_ONCE, np.float32), AT_ONCE, np.float32(np.nan), np.zeros(1, np.uint32), 2, codes)
    assert (codes == 77).all()
