"""kernels/category_codes.py: which columns of numbers hold codes of categories."""

import numpy as np
import pytest

from gpuboost.kernels.category_codes import CATEGORY_CODES, ROW_BLOCK, find_no_codes_cpu

CODES = 0.0, -0.0, 1.0, float(CATEGORY_CODES - 1), np.nan, -7.0  # the last one is the missing value


def finds(x, columns, n_threads=1, missing=-7.0):
    found = np.zeros(1, np.uint8)
    find_no_codes_cpu(x, np.float32(missing), np.array(columns, np.int64), found, n_threads)
    return bool(found[0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("bad", [0.5, -1.0, float(CATEGORY_CODES), np.inf, -np.inf, -1e-30])
def test_one_value_that_is_no_code_is_found_wherever_it_lies(bad, dtype):
    n_rows = 2 * ROW_BLOCK + 10
    x = np.resize(np.array(CODES, dtype), (3, n_rows)).T
    x[:, 1] = 0.5  # nobody asks for it
    for layout in (np.ascontiguousarray, np.asfortranarray):
        assert not finds(layout(x), [0, 2], 2)
        for row in (0, ROW_BLOCK, n_rows - 1):
            wrong = layout(x)
            wrong[row, 2] = bad
            assert finds(wrong, [0, 2], 2) and not finds(wrong, [0])


def test_what_rounds_to_a_code_in_float32_is_one():
    assert not finds(np.array([[1.0 + 1e-12]]), [0])
    assert finds(np.array([[-7.0]]), [0], missing=np.nan)
    assert not finds(np.empty((0, 1)), [0]) and not finds(np.array([[0.5]]), [])
