"""kernels/sketch.py on a GPU: every pass counts what its CPU twin counts."""

import numpy as np
import pytest
from cuda_runners import SimulatorRunner, assert_same, each_runner
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gpuboost.backend.cpu import CpuBackend
from gpuboost.kernels import sketch
from gpuboost.kernels.sketch import COUNTS0_WIDTH, DIGITS, MISSING, NON_FINITE, ROWS_PER_BLOCK, count_digits_kernel

NO_WEIGHTS = np.zeros(0, np.int64)
NO_SLOTS = np.zeros((0, 1), np.int32)
LARGEST = float(np.finfo(np.float32).max)


def count(run, values, level, slots0, slots1, counts, missing, weights, rows_per_block=ROWS_PER_BLOCK):
    n_blocks = len(values) * -(-values.shape[1] // rows_per_block)
    run(count_digits_kernel, values, missing, weights, level, slots0, slots1, counts, blocks=n_blocks)


@each_runner
def test_a_hand_sized_case(run):
    #                   1.0 = 0x3F800000, key 0xBF80|0000          −2.0 = 0xC0000000, key 0x3FFF|FFFF
    values = np.array([[1.0, 1.0, -2.0, np.nan, 7.0, np.inf, -0.0], [7.0] * 7], np.float32)
    weights = np.array([1, 2, 3, 4, 5, 6, 7], np.int64)
    counts = np.zeros((2, COUNTS0_WIDTH), np.int64)
    count(run, values, 0, NO_SLOTS, NO_SLOTS, counts, 7.0, weights)
    expected = np.zeros_like(counts)
    expected[0, [0xBF80, 0x3FFF, MISSING, 0xFF80, NON_FINITE, 0x8000]] = 1 + 2, 3, 4 + 5, 6, 1, 7
    expected[1, MISSING] = 28
    assert_same(counts, expected)


def check_passes(run, values, missing, weights, seed, **launch):
    """All three passes on columns (n, rows) equal the CPU's, with random slots; slot i is column i's unwanted one."""
    rng, n = np.random.default_rng(seed), len(values)
    n_slots = 4 * n
    own = np.arange(n)[:, None]
    slots0 = (own + n * rng.integers(0, 4, (n, DIGITS[0]))).astype(np.int32)
    slots1 = (np.arange(n_slots)[:, None] % n + n * rng.integers(0, 4, (n_slots, DIGITS[1]))).astype(np.int32)
    slots1[:n] = own
    for level, slots in enumerate([(NO_SLOTS, NO_SLOTS), (slots0, NO_SLOTS), (slots0, slots1)]):
        counts = np.zeros((n, COUNTS0_WIDTH) if level == 0 else (n_slots, DIGITS[level]), np.int64)
        expected = counts.copy()
        CpuBackend(1).coder.count_digits(values.T, missing, weights, np.arange(n, dtype=np.int32), level, *slots, expected)
        count(run, values, level, *slots, counts, missing, weights, **launch)
        if level > 0:  # nobody reads which of a slot's counts took what is unwanted; a missing value's digit differs by device
            assert_same(counts[:n].sum(axis=1), expected[:n].sum(axis=1))
            counts, expected = counts[n:], expected[n:]
        assert_same(counts, expected)


SPECIAL = [0.0, -0.0, 1.0, 1.0000001, 1e-45, -3.5, np.nan, np.inf, -np.inf, LARGEST, -LARGEST, 7.0]
TABLES = hnp.arrays(
    np.float32, st.tuples(st.integers(1, 3), st.integers(0, 40)), elements=st.sampled_from(SPECIAL) | st.floats(width=32)
)


@each_runner
@settings(max_examples=15)
@given(TABLES, st.sampled_from([np.nan, 7.0, 0.0]), st.booleans(), st.integers(0, 2**32))
def test_every_pass_counts_as_the_cpu_does(run, values, missing, is_weighted, seed):
    weights = np.random.default_rng(seed).integers(0, 4, values.shape[1]) if is_weighted else NO_WEIGHTS
    check_passes(run, values, missing, weights, seed)


CASES = {
    "no rows": np.zeros((2, 0)), "one row": np.ones((3, 1)), "all missing": np.full((2, 40), np.nan),
    "one value": np.full((1, 70), 2.5), "one value of each column": np.arange(33.0).repeat(5).reshape(33, 5),
}  # fmt: skip


@each_runner
@pytest.mark.parametrize("case", CASES)
def test_tables_at_the_edge(run, case):
    values = CASES[case].astype(np.float32)
    check_passes(run, values, np.nan, NO_WEIGHTS, seed=1)
    check_passes(run, values, np.nan, np.arange(values.shape[1]), seed=2)


@each_runner
def test_rows_of_several_chunks_are_counted_once(run, monkeypatch):
    rows = ROWS_PER_BLOCK
    if isinstance(run, SimulatorRunner):  # which would take long over this many rows, and sees the smaller chunks
        monkeypatch.setattr(sketch, "ROWS_PER_BLOCK", rows := 64)
    values = np.random.default_rng(3).normal(size=(2, 2 * rows + 21)).astype(np.float32)
    check_passes(run, values, np.nan, NO_WEIGHTS, seed=3, rows_per_block=rows)
