"""kernels/transposing.py: the columns that NumPy has, and whether a value is infinite."""

import numpy as np
import pytest
from cuda_runners import SimulatorRunner, assert_same, each_runner

from gpuboost.kernels.transposing import transpose_rows_kernel

LARGEST = float(np.finfo(np.float32).max)
OVERFLOW = float.fromhex("0x1.ffffffp127")  # halfway to the number that would follow the largest one
ALL = np.zeros(0, np.int32)


def transpose(run, batch, features=ALL, missing=np.nan):
    """(columns, whether a value is large)."""
    n_features, n_large = len(features) or batch.shape[1], np.zeros(1, np.int64)
    columns = np.full((n_features, len(batch)), 77, np.float32)
    run(transpose_rows_kernel, batch, features, missing, columns, n_large, blocks=3)
    only_looked = np.zeros(1, np.int64)
    run(transpose_rows_kernel, batch, features, missing, np.zeros((0, 0), np.float32), only_looked, blocks=3)
    assert (only_looked[0] > 0) == (n_large[0] > 0)
    return columns, bool(n_large[0] > 0)


@each_runner
@pytest.mark.parametrize("n_rows, n_features", [(1, 1), (5, 3), (33, 32), (130, 2), (3, 70), (0, 4)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_columns_are_the_batch_by_features(run, n_rows, n_features, dtype):
    rng = np.random.default_rng(n_rows)
    batch = rng.normal(size=(n_rows, n_features)).astype(dtype)
    batch[rng.random(batch.shape) < 0.2] = np.nan
    columns, has_large = transpose(run, batch)
    assert_same(columns, np.ascontiguousarray(batch.T.astype(np.float32)))
    assert not has_large
    some = rng.permutation(n_features)[: n_features // 2 + 1].astype(np.int32)
    assert_same(transpose(run, batch, some)[0], np.ascontiguousarray(batch.T[some].astype(np.float32)))


def test_blocks_of_several_warps_take_all_rows():
    """As large as on a GPU: four rows of a lane, tiles that are not full."""
    batch = np.random.default_rng(1).normal(size=(300, 37)).astype(np.float32)
    columns, _ = transpose(SimulatorRunner(2, 256, "shuffled", 0xA5), batch)
    assert_same(columns, np.ascontiguousarray(batch.T))


@each_runner
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "value, missing, is_large",
    [
        (np.inf, np.nan, True), (-np.inf, np.nan, True), (LARGEST, np.nan, True), (-LARGEST, np.nan, True),
        (np.nextafter(np.float32(LARGEST), np.float32(0)), np.nan, False), (np.nan, np.nan, False), (0.0, np.nan, False),
        (np.inf, np.inf, False), (-np.inf, np.inf, True), (-LARGEST, -LARGEST, False), (3.0, 3.0, False),
    ],
)  # fmt: skip
def test_large_values_are_seen_wherever_they_stand(run, dtype, value, missing, is_large):
    for place in [(0, 0), (4, 33), (32, 5)]:
        batch = np.ones((33, 34), dtype)
        batch[place] = value
        assert transpose(run, batch, missing=missing)[1] == is_large


@each_runner
@pytest.mark.parametrize("value", [1e39, -1e300, OVERFLOW, -np.nextafter(OVERFLOW, 0), LARGEST * (1 + 1e-9), LARGEST])
def test_numbers_outside_float32_are_large(run, value):
    """The last three round to the largest float32, and may be outside."""
    batch = np.ones((3, 2))
    batch[1, 1] = value
    columns, has_large = transpose(run, batch)
    assert has_large
    with np.errstate(over="ignore"):
        assert columns[1, 1] == np.float32(value)


@each_runner
def test_columns_that_are_not_taken_are_not_looked_at(run):
    batch = np.ones((4, 3), np.float32)
    batch[2, 1] = np.inf
    assert not transpose(run, batch, np.array([2, 0], np.int32))[1]
    assert transpose(run, batch, np.array([2, 1], np.int32))[1]
