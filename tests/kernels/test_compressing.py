"""kernels/compressing.py: rows parted sixteen at once lie where partition.move_rows_part writes them one by one, and nothing else
is written."""

import numba
import numpy as np
import pytest
from numba.core.registry import cpu_target

from gpuboost.kernels.compressing import LANES, part_sixteens
from gpuboost.kernels.processor import is_level_4


@numba.njit
def part(rows, marks, moved, to_left, to_right):
    return part_sixteens(rows, marks, moved, to_left, to_right)


@pytest.mark.parametrize("share", [0.0, 0.03, 0.5, 0.97, 1.0])
@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 64, 1003])
def test_whole_sixteens_are_parted_in_order(n, share):
    rng = np.random.default_rng(n)
    rows, marks = rng.permutation(n).astype(np.int32), (rng.random(n) < share).astype(np.uint8) * np.uint8(255)
    moved = np.full(2 * n + 40, -7, np.int32)
    n_done, n_left = part(rows, marks, moved, np.uint64(3), np.uint64(n + 20))
    assert n_done == (n // LANES * LANES if is_level_4(cpu_target.target_context.codegen()) else 0)
    rows, marks = rows[:n_done], marks[:n_done] != 0
    assert n_left == marks.sum()
    expected = np.full(2 * n + 40, -7, np.int32)
    expected[3 : 3 + n_left], expected[n + 20 : n + 20 + n_done - n_left] = rows[marks], rows[~marks]
    np.testing.assert_array_equal(moved, expected)
