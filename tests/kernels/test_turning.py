"""kernels/turning.py: tiles of a table turned in registers; and the keys that predict.fill_keys makes of blocks by them."""

import numpy as np
import pytest
from numba import njit

from gpuboost.kernels.predict import MISSING_KEY, ROW_BLOCK, WIDE, fill_keys, new_tile, value_key
from gpuboost.kernels.turning import TILE, can_turn, turn_tile


@njit
def turnable(table):
    return can_turn(table)


@njit
def turn(rows, column, target, place, step):
    turn_tile(rows, column, target, place, step)


@njit
def keys_of(batch, missing, features, keys):
    """fill_keys, which cannot be called by Python."""
    return fill_keys(batch, missing, features, new_tile(batch.shape[1]), keys)


def tables(table):
    """The same values in memory as different as can be."""
    n_rows, n_columns = table.shape
    within = np.full((n_rows + 3, n_columns + 5), 7, table.dtype)
    within[1:-2, 2:-3] = table
    every_other = np.full((2 * n_rows, n_columns), 7, table.dtype)
    every_other[::2] = table
    backwards = np.ascontiguousarray(table[::-1])[::-1]
    return {"contiguous": np.ascontiguousarray(table), "part": within[1:-2, 2:-3], "every other row": every_other[::2],
            "backwards": backwards}  # fmt: skip


@pytest.mark.parametrize("memory", tables(np.zeros((1, 1))))
@pytest.mark.parametrize("n_columns, column", [(16, 0), (17, 1), (40, 0), (40, 24)])
def test_columns_are_written_side_by_side(memory, n_columns, column):
    table = np.random.default_rng(0).integers(0, 2**32, (TILE, n_columns), dtype=np.uint32).view(np.float32)
    rows, step = tables(table)[memory], 21
    target = np.full(3 + TILE * step, 9, np.uint32)
    assert turnable(rows)
    turn(rows, column, target, 3, step)
    expected = np.full_like(target, 9)
    for k in range(TILE):
        expected[3 + k * step :][:TILE] = table[:, column + k].view(np.uint32)
    assert (target == expected).all()


def test_other_tables_are_not_taken():
    table = np.zeros((TILE, TILE), np.float32)
    assert not turnable(table.astype(np.float64)) and not turnable(np.asfortranarray(table))
    assert not turnable(np.zeros((TILE, 2 * TILE), np.float32)[:, ::2])
    target = np.full(TILE * TILE, 9, np.uint32)
    turn(table.astype(np.float64), 0, target, 0, TILE)
    assert (target == 9).all()


@pytest.mark.parametrize("missing", [np.nan, -999.0, np.inf])
@pytest.mark.parametrize("n_features", [15, 16, 17, 28, 32, 70])
def test_a_block_becomes_the_keys_of_its_values_however_it_lies(n_features, missing):
    rng = np.random.default_rng(n_features)
    table = rng.choice(np.float32([np.nan, -999, -0.0, 0.0, 1.5, -1.5, 1e-45, -3e38, 3e38]), (ROW_BLOCK, n_features))
    expected = np.array([[value_key(x, np.float32(missing)) for x in column] for column in table.T], np.uint32)
    features = np.arange(n_features, dtype=np.int32)
    for memory in (*tables(table).values(), table.astype(np.float64), np.asfortranarray(table)):
        for n_rows in (ROW_BLOCK, 40):
            keys = np.full((n_features + 1) * ROW_BLOCK, 9, np.uint32)
            assert not keys_of(memory[:n_rows], np.float32(missing), features, keys)
            written = keys.reshape(-1, ROW_BLOCK)
            assert (written[1:, :n_rows] == expected[:, :n_rows]).all() and (written[0] == 9).all()
    assert (expected == MISSING_KEY).any()


@pytest.mark.parametrize("features", [[0, 1, 16, 27], [5], range(1, 28), range(27)])
def test_of_features_that_no_tree_looks_at_no_keys_are_written(features):
    table = np.random.default_rng(1).normal(size=(ROW_BLOCK, 28)).astype(np.float32)
    features = np.array(features, np.int32)
    room = np.full((features.size + 3) * ROW_BLOCK, 9, np.uint32)
    assert not keys_of(table, np.float32(np.nan), features, room[: -2 * ROW_BLOCK])
    expected = [[value_key(x, np.float32(np.nan)) for x in table[:, feature]] for feature in features]
    assert (room.reshape(-1, ROW_BLOCK) == [[9] * ROW_BLOCK, *expected, [9] * ROW_BLOCK, [9] * ROW_BLOCK]).all()


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.finfo(np.float32).max, -np.finfo(np.float32).max])
@pytest.mark.parametrize("n_features", [16, 28, 33])
def test_a_large_value_is_seen_anywhere_unless_it_is_the_missing_one(n_features, value):
    features, value = np.arange(n_features, dtype=np.int32), np.float32(value)
    for row, feature in ((0, 0), (17, n_features - 1), (ROW_BLOCK - 1, 15)):
        table = np.zeros((ROW_BLOCK, n_features), np.float32)
        table[row, feature] = value
        keys = np.zeros((n_features + 1) * ROW_BLOCK, np.uint32)
        assert keys_of(table, np.float32(np.nan), features, keys)
        assert not keys_of(table, value, features, keys)
        assert keys.reshape(-1, ROW_BLOCK)[feature + 1, row] == MISSING_KEY


@pytest.mark.parametrize("missing", [np.nan, -999.0])
@pytest.mark.parametrize("n_wanted", [0, 1, 40, 130, 131])  # up to half are few
def test_of_a_wide_table_few_features_become_keys_and_all_are_looked_at(n_wanted, missing):
    n_features = WIDE + 5
    rng = np.random.default_rng(n_wanted)
    table = rng.choice(np.float32([np.nan, -999, -0.0, 0.0, 1.5, -1.5, 1e-45, -3e38]), (ROW_BLOCK, n_features))
    features = np.sort(rng.permutation(n_features)[:n_wanted]).astype(np.int32)
    of_all = np.full((n_features + 1) * ROW_BLOCK, 9, np.uint32)
    keys_of(np.ascontiguousarray(table), np.float32(missing), np.arange(n_features, dtype=np.int32), of_all)
    expected = of_all.reshape(-1, ROW_BLOCK)[1:][features]
    unwanted = np.setdiff1d(np.arange(n_features), features)[-1]
    for memory in (*tables(table).values(), table.astype(np.float64), np.asfortranarray(table)):
        for n_rows in (ROW_BLOCK, 40, 1):
            keys = np.full((n_wanted + 1) * ROW_BLOCK, 9, np.uint32)
            assert not keys_of(memory[:n_rows], np.float32(missing), features, keys)
            written = keys.reshape(-1, ROW_BLOCK)
            assert (written[1:, :n_rows] == expected[:, :n_rows]).all() and (written[0] == 9).all()
            memory[n_rows - 1, unwanted], held = np.inf, memory[n_rows - 1, unwanted]
            assert keys_of(memory[:n_rows], np.float32(missing), features, keys)
            memory[n_rows - 1, unwanted] = held
