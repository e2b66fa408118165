"""kernels/columns.py: the present values of every column, in order."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuboost.kernels import columns
from gpuboost.kernels.scalar import key_float

NAN = np.nan


def keys_of(values):
    """Order-preserving keys in NumPy: −0 equals +0."""
    bits = (np.asarray(values, np.float32) + np.float32(0)).view(np.uint32)
    return np.where(bits >> 31, ~bits, bits ^ np.uint32(0x80000000)).astype(np.uint32)


def listed(X, missing=NAN, n_threads=2, batch=3):
    """bounds, keys and rows of a dense table, listed batch by batch and sorted."""
    n_rows, n_features = X.shape
    bounds = np.repeat(np.arange(n_features, dtype=np.int64)[:, None] * n_rows, 2, axis=1)
    keys, rows = np.zeros(X.size, np.uint32), np.zeros(X.size, np.int32)
    n_infinite = np.zeros(n_features, np.int64)
    for first in range(0, n_rows, batch):
        block = X[first : first + batch]
        columns.list_batch_cpu(block, np.float32(missing), first, bounds, keys, rows, n_infinite, n_threads)
    spare = np.zeros((n_threads, max(n_rows, 1)), np.uint32), np.zeros((n_threads, max(n_rows, 1)), np.int32)
    columns.sort_entries_cpu(bounds, keys, rows, *spare, n_threads)
    return bounds, keys, rows, n_infinite


def test_one_column_by_hand():
    X = np.array([[3.0], [NAN], [-1.0], [3.0], [0.0], [-0.0]], np.float32)
    bounds, keys, rows, _ = listed(X)
    assert bounds.tolist() == [[0, 5]], "the missing row has no entry"
    assert rows[:5].tolist() == [2, 4, 5, 0, 3], "by value, equal ones by row; −0 equals 0"
    assert keys[:5].tolist() == keys_of([-1, 0, 0, 3, 3]).tolist()


@pytest.mark.parametrize("missing, n_present", [(NAN, 3), (7.0, 2)])
def test_the_missing_value_has_no_entries(missing, n_present):
    assert listed(np.array([[7.0], [NAN], [1.0], [2.0]]), missing)[0].tolist() == [[0, n_present]]


def test_infinite_values_are_counted():
    X = np.array([[np.inf, 1.0], [-np.inf, 1e39], [1.0, NAN]])
    with np.errstate(over="ignore"):
        assert listed(X)[3].tolist() == [2, 1]


@settings(max_examples=60)
@given(st.integers(0, 2**32), st.integers(1, 300), st.sampled_from(["normal", "few", "one", "wide", "sorted", "signs"]))
def test_the_order_is_numpys_stable_one(seed, n_rows, kind):
    rng = np.random.default_rng(seed)
    X = {
        "normal": lambda: rng.normal(size=(n_rows, 3)),
        "few": lambda: rng.integers(-2, 3, (n_rows, 3)),
        "one": lambda: np.full((n_rows, 3), 5.0),
        "wide": lambda: rng.normal(size=(n_rows, 3)) * 10.0 ** rng.integers(-44, 38, (n_rows, 3)),
        "sorted": lambda: np.arange(3 * n_rows).reshape(n_rows, 3)[:, ::-1],
        "signs": lambda: rng.choice([-1.0, -0.0, 0.0, 1.0], (n_rows, 3)),
    }[kind]().astype(np.float32)
    X[rng.random(X.shape) < 0.2] = NAN
    bounds, keys, rows, _ = listed(X)
    for f in range(3):
        order = np.argsort(X[:, f], kind="stable")
        order = order[~np.isnan(X[order, f])]
        own = slice(*bounds[f])
        np.testing.assert_array_equal(rows[own], order)
        np.testing.assert_array_equal(keys[own], keys_of(X[order, f]))


def test_keys_come_back_as_values():
    for x in (-3e38, -1.5, 0.0, 1e-45, 2.0, 3e38):
        assert key_float(keys_of([x])[0]) == np.float32(x)


@pytest.mark.parametrize("n_parts", [1, 2, 6])
@pytest.mark.parametrize("keeps_missing", [False, True])
def test_stored_entries_of_a_sparse_table(keeps_missing, n_parts):
    #  column 0 stores rows 1, 4, 5; column 1 nothing; column 2 rows 0, 5
    row_begin, stored = np.array([0, 1, 2, 2, 2, 3, 5]), np.array([2, 0, 0, 0, 2])
    values = np.array([7.0, 2.0, NAN, -1.0, 3.0], np.float32)
    table = row_begin, stored, values, np.float32(7), keeps_missing
    counts, infinite = np.zeros((2, n_parts, 3), np.int64)
    columns.count_stored_cpu(*table, counts, infinite, 2)
    assert counts.sum(axis=0).tolist() == ([3, 0, 2] if keeps_missing else [2, 0, 1]) and not infinite.any()
    ends = np.cumsum(counts.sum(axis=0))
    bounds = np.stack([ends - counts.sum(axis=0), ends], axis=1)
    keys, rows = np.zeros(ends[-1], np.uint32), np.zeros(ends[-1], np.int32)
    columns.list_stored_cpu(*table, 0, bounds[:, 0] + np.cumsum(counts, axis=0) - counts, keys, rows, 2)
    for first in range(3):  # the last columns alone
        part, begin = counts[:, first:], bounds[first, 0]
        few_keys, few_rows = np.zeros(ends[-1] - begin, np.uint32), np.zeros(ends[-1] - begin, np.int32)
        columns.list_stored_cpu(
            *table, first, bounds[first:, 0] - begin + np.cumsum(part, axis=0) - part, few_keys, few_rows, 2
        )
        assert few_keys.tolist() == keys[begin:].tolist() and few_rows.tolist() == rows[begin:].tolist()
    columns.sort_entries_cpu(bounds, keys, rows, np.zeros((2, 3), np.uint32), np.zeros((2, 3), np.int32), 2)
    lists = [rows[begin:end].tolist() for begin, end in bounds]
    assert lists == ([[5, 1, 4], [], [5, 0]] if keeps_missing else [[5, 1], [], [5]]), "missing entries come last"
    assert (keys == columns.MISSING_KEY).sum() == 2 * keeps_missing


def test_infinite_stored_values_are_counted_by_column():
    row_begin, stored = np.array([0, 3, 5]), np.array([0, 1, 2, 0, 2])
    values = np.array([np.inf, 1, 7, -np.inf, 3.4028235e38], np.float32)
    counts, infinite = np.zeros((2, 2, 3), np.int64)
    columns.count_stored_cpu(row_begin, stored, values, np.float32(7), False, counts, infinite, 1)
    assert infinite.tolist() == [[1, 0, 0], [1, 0, 1]]


@pytest.mark.parametrize("weights, expected, missing", [
    ([], [[(1, 1), (2, 2), (3, 1)], [], [(4, 1)], []], [0, 0, 3, 4]),
    ([1, 5, 0, 2], [[(1, 5), (2, 3), (3, 0)], [], [(4, 0)], []], [0, 0, 8, 8]),
])  # fmt: skip
def test_distinct_values_are_weighed(weights, expected, missing):
    columns_of = [[2, 1, 3, 2], [], [4, None, None, None], [None] * 4]
    rows_of = [[0, 1, 2, 3], [], [2, 0, 1, 3], [0, 1, 2, 3]]
    lengths = np.array([len(column) for column in columns_of])
    bounds = np.stack([np.cumsum(lengths) - lengths, np.cumsum(lengths)], axis=1)
    keys = np.array([columns.MISSING_KEY if x is None else keys_of([x])[0] for c in columns_of for x in c], np.uint32)
    rows = np.concatenate(rows_of).astype(np.int32)
    columns.sort_entries_cpu(bounds, keys, rows, np.zeros((2, 4), np.uint32), np.zeros((2, 4), np.int32), 2)
    n_values, missing_weights = np.full((2, 4), -1)
    columns.count_values_cpu(bounds, keys, n_values, 2)
    assert n_values.tolist() == [3, 0, 1, 0]
    first, value_keys, value_weights = np.cumsum(n_values) - n_values, np.zeros(4, np.uint32), np.zeros(4, np.int64)
    columns.weigh_values_cpu(
        bounds, keys, rows, np.array(weights, np.int64), first, value_keys, value_weights, missing_weights, 2
    )
    values = [(int(key_float(key)), int(weight)) for key, weight in zip(value_keys, value_weights)]
    assert [values[begin : begin + n] for begin, n in zip(first, n_values)] == expected
    assert missing_weights.tolist() == missing


@pytest.mark.parametrize("absent, expected", [(3, [0, 0, 1, 1, 2, 2]), (1, [0, 0, 2, 2])])
def test_codes_are_the_thresholds_passed(absent, expected):
    X = np.array([[-5.0], [0.9], [1.0], [2.9], [3.0], [9.0]])
    bounds, keys, rows, _ = listed(X)
    thresholds, offsets = np.array([1, 3, 3.4e38], np.float32), np.array([0, 3], np.int32)
    columns.code_entries_cpu(bounds, keys, rows, thresholds, offsets, np.array([absent], np.int32), 1)
    assert keys[: bounds[0, 1]].tolist() == expected, "entries with the code of an absent one are dropped"
    filled = np.full((1, 6), 77, np.uint32)
    columns.fill_columns_cpu(bounds, rows, keys, filled, 1)
    assert filled[0].tolist() == ([0, 0, 1, 1, 2, 2] if absent == 3 else [0, 0, 77, 77, 2, 2])
