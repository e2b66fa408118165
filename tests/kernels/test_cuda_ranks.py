"""kernels/ranks.py on a GPU: sorted keys answer as sorting by NumPy does."""

import numpy as np
import pytest
from cuda_runners import SimulatorRunner, each_runner
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy_ranked import NumpyRanked

from gpuboost.kernels import ranks

NO_WEIGHTS = np.zeros(0, np.int64)
SPECIAL = [0.0, -0.0, 1.0, 1.0000001, 1e-45, -3.5, np.nan, np.inf, -np.inf, 3.4028234663852886e38, 7.0]
TABLES = hnp.arrays(
    np.float32, st.tuples(st.integers(1, 3), st.integers(0, 40)), elements=st.sampled_from(SPECIAL) | st.floats(width=32)
)


def list_keys(run, values, missing, weights, shift, batches=1, rows_per_block=ranks.ROWS_PER_BLOCK):
    keys = np.full(values.shape, 7, np.uint64)
    for rows in np.array_split(np.arange(values.shape[1]), batches):
        first, last = (rows[0], rows[-1] + 1) if len(rows) else (0, 0)
        own = np.ascontiguousarray(values[:, first:last])
        blocks = len(values) * -(-own.shape[1] // rows_per_block)
        run(ranks.list_keys_kernel, own, missing, weights[first:last], first, shift, keys, blocks=blocks)
    return keys


def check(run, values, missing, weights, seed, batches=1, rows_per_block=ranks.ROWS_PER_BLOCK):
    is_weighted, (n, n_rows) = weights is not None, values.shape
    shift = ranks.IN_ROWS if is_weighted else ranks.IN_COLUMNS
    keys = list_keys(run, values, missing, weights if is_weighted else NO_WEIGHTS, shift, batches, rows_per_block)
    keys = np.sort(keys, axis=1) if is_weighted else np.sort(keys.reshape(-1)).reshape(values.shape)
    prefix = np.zeros((n, 0), np.int64)
    if is_weighted:
        prefix = np.cumsum(weights[(keys & 0xFFFFFFFF).astype(np.int64)], axis=1)
    expected, blocks = NumpyRanked(values.T, missing, weights, range(n)), n * -(-n_rows // rows_per_block)

    counts = np.zeros((n, 4), np.int64)
    run(ranks.count_values_kernel, keys, shift, prefix, counts, blocks=blocks)
    exists = ~np.isnan(values) & (values != np.float32(missing)) & ((weights > 0) if is_weighted else True)
    assert counts[:, 0].tolist() == exists.sum(axis=1).tolist()
    assert counts[:, 1].tolist() == expected.n_distinct.tolist() and counts[:, 2].tolist() == expected.n_infinite.tolist()
    assert counts[:, 3].tolist() == expected.totals.tolist()

    columns, most = np.arange(n)[::-1].copy(), int(expected.n_distinct.max()) + 1
    asked, n_listed = np.zeros((n, most), np.int64), np.zeros(n, np.int64)
    run(ranks.list_values_kernel, keys, shift, prefix, columns, n_listed, asked, blocks=blocks)
    assert n_listed.tolist() == expected.n_distinct[columns].tolist()
    same = zip(find(run, keys, shift, prefix, columns, np.sort(asked, axis=1)),
               expected.at(columns, expected.ranks_of_values(columns, most)))  # fmt: skip
    assert all(actual.tolist() == of.tolist() for actual, of in same)

    asked = np.random.default_rng(seed).integers(0, expected.totals[:, None] + 1, (n, 9))
    same = zip(find(run, keys, shift, prefix, np.arange(n), asked), expected.at(np.arange(n), asked))
    assert all(actual.tolist() == of.tolist() for actual, of in same)


def find(run, keys, shift, prefix, columns, asked):
    found = [np.full(asked.shape, 9, dtype) for dtype in (np.uint32, np.int64, np.int64)]
    run(ranks.find_values_kernel, keys, shift, prefix, columns, asked, *found, threads=asked.size)
    return found


@each_runner
def test_keys_by_hand(run):
    #                  1.0 = 0x3F800000, key 0xBF80|0000          -2.0 = 0xC0000000, key 0x3FFF|FFFF
    values = np.array([[1.0, np.nan], [7.0, -2.0]], np.float32)
    keys = list_keys(run, values, 7.0, NO_WEIGHTS, ranks.IN_COLUMNS)
    assert keys.tolist() == [[0xBF800000, 0xFFFFFFFF], [0x1FFFFFFFF, 0x13FFFFFFF]]
    keys = list_keys(run, values, 7.0, np.array([1, 0]), ranks.IN_ROWS)
    assert keys.tolist() == [[0xBF80000000000000, 0xFFFFFFFF00000001], [0xFFFFFFFF00000000, 0xFFFFFFFF00000001]]


@each_runner
def test_ranks_by_hand(run):
    keys = np.sort(list_keys(run, np.array([[5.0, 2.0, 5.0, np.nan, 1.0]], np.float32), np.nan, NO_WEIGHTS, ranks.IN_COLUMNS))
    asked = np.array([[1, 2, 3, 4, 0]])
    _, begins, ends = find(run, keys, ranks.IN_COLUMNS, np.zeros((1, 0), np.int64), np.array([0]), asked)
    assert begins.tolist() == [[0, 1, 2, 2, 0]] and ends.tolist() == [[1, 2, 4, 4, 0]]


@each_runner
@settings(max_examples=15)
@given(TABLES, st.sampled_from([np.nan, 7.0, 0.0]), st.booleans(), st.integers(1, 3), st.integers(0, 2**32))
def test_every_answer_is_that_of_numpy(run, values, missing, is_weighted, batches, seed):
    weights = np.random.default_rng(seed).integers(0, 4, values.shape[1]) if is_weighted else None
    check(run, values, missing, weights, seed, batches)


@each_runner
@pytest.mark.parametrize("is_weighted", [False, True])
def test_rows_of_several_chunks(run, is_weighted, monkeypatch):
    rows = ranks.ROWS_PER_BLOCK
    if isinstance(run, SimulatorRunner):  # which would take long over this many rows, and sees the smaller chunks
        monkeypatch.setattr(ranks, "ROWS_PER_BLOCK", rows := 64)
    rng = np.random.default_rng(3)
    values = rng.integers(-40, 40, size=(2, 2 * rows + 21)).astype(np.float32)
    check(run, values, np.nan, rng.integers(0, 3, values.shape[1]) if is_weighted else None, 3, rows_per_block=rows)
