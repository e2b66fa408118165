"""kernels/selection.py: columns that are not sorted whole have the thresholds of those that are (kernels/quantiles.py)."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpuboost as gb
from gpuboost.data import sketch
from gpuboost.kernels.quantiles import cut_columns_cpu, list_keys_cpu
from gpuboost.kernels.selection import SAMPLE, select_cuts_cpu
from gpuboost.model_io import digest

N_ROWS = 20_000
LARGEST = np.finfo(np.float32).max
RNG = np.random.default_rng(12)
NORMAL = RNG.normal(size=N_ROWS)
SELECTED = {
    "normal": NORMAL,
    "negative": -RNG.exponential(size=N_ROWS),
    "uniform": RNG.random(N_ROWS),
    "ascending": np.sort(NORMAL),
    "falling": -np.sort(RNG.random(N_ROWS)),
    "missing": np.where(RNG.random(N_ROWS) < 0.3, np.nan, NORMAL),
    "one missing": np.where(np.arange(N_ROWS) == 77, np.nan, NORMAL),
    "many sizes": RNG.normal(size=N_ROWS) * 10.0 ** RNG.integers(-30, 30, N_ROWS),
    "whole numbers": RNG.permutation(N_ROWS),
    "bits": RNG.integers(0x00800001, 0x7F7FFFFF, N_ROWS).astype(np.uint32).view(np.float32),
    "subnormal": RNG.integers(1, 0x007FFFFF, N_ROWS).astype(np.uint32).view(np.float32),
    "pairs": np.repeat(NORMAL[: N_ROWS // 2], 2),
    "one half": 1 + RNG.integers(0, 2**16, N_ROWS) * 2.0**-23,  # all keys share their upper halves
    "two values far off": np.where(np.arange(N_ROWS) < 2, [-1e30, 1e30] * (N_ROWS // 2), NORMAL),
}
SORTED = {
    "zeros": np.where(RNG.random(N_ROWS) < 0.9, 0, NORMAL),
    "few": RNG.integers(0, 300, N_ROWS),
    "heavy": np.where(RNG.random(N_ROWS) < 0.02, 0.25, NORMAL),  # a value of 5 bins' weight, which hardly any sample shows
    "heavy at the top": np.where(RNG.random(N_ROWS) < 0.006, NORMAL.max() + 1, NORMAL),
    "heavy at the bottom": np.where(RNG.random(N_ROWS) < 0.009, NORMAL.min() - 1, NORMAL),
    "constant": np.full(N_ROWS, 3.0),
    "all missing": np.full(N_ROWS, np.nan),
    "hardly any": np.where(np.arange(N_ROWS) < 30, NORMAL, np.nan),
    "infinite": np.where(np.arange(N_ROWS) == 5, np.inf, NORMAL),
    "largest": np.where(np.arange(N_ROWS) == 5, -LARGEST, NORMAL),
}


def cut(x, max_bin, select, n_threads=1):
    """(which columns were selected, has_missing, n_infinite, extremes, thresholds). x : (n_rows, n)."""
    x = np.asarray(x, np.float32)
    n_rows, n = x.shape
    keys, spare, no_weights = np.empty((n, n_rows), np.uint32), np.empty((n_threads, n_rows), np.uint32), np.zeros(0, np.int64)
    list_keys_cpu(x, np.float32(np.nan), no_weights, 0, 0, keys, n_threads)
    n_cuts, has_missing, n_infinite = np.full(n, -1, np.int64), np.zeros(n, bool), np.zeros(n, np.int64)
    extremes = np.full((n, 2), sketch.ZERO_KEY, np.uint32)
    if select:
        before = keys.copy()
        select_cuts_cpu(keys, max_bin, spare, n_cuts, has_missing, extremes, n_threads)
        assert (keys[n_cuts < 0] == before[n_cuts < 0]).all()
        extremes[n_cuts < 0] = sketch.ZERO_KEY
    is_selected = (n_cuts >= 0).tolist()
    cut_columns_cpu(
        keys, no_weights, 0, max_bin, spare, spare.view(np.int32), n_cuts, has_missing, n_infinite, extremes, n_threads
    )  # fmt: skip
    thresholds = [own[:m].tolist() for own, m in zip(keys, n_cuts)]
    return is_selected, (has_missing.tolist(), n_infinite.tolist(), extremes.tolist(), thresholds)


@pytest.mark.parametrize("max_bin", [2, 3, 64, 255, 256])
@pytest.mark.parametrize("kind", SELECTED)
def test_selection_finds_the_cuts_of_sorting(kind, max_bin):
    column = SELECTED[kind][:, None]
    is_selected, found = cut(column, max_bin, select=True)
    assert is_selected == [kind != "one half" or max_bin < 64]  # else too much would be collected
    assert found == cut(column, max_bin, select=False)[1]


@pytest.mark.parametrize("max_bin", [2, 256])
@pytest.mark.parametrize("kind", SORTED)
def test_what_selection_leaves_is_sorted(kind, max_bin):
    column = SORTED[kind][:, None]
    is_selected, found = cut(column, max_bin, select=True)
    assert is_selected == [False] or max_bin == 2 and kind.startswith("heavy")
    assert found == cut(column, max_bin, select=False)[1]


@pytest.mark.parametrize("n_threads", [1, 3])
def test_a_table_of_both(n_threads):
    table = np.stack([*SELECTED.values(), *SORTED.values()], axis=1)
    is_selected, found = cut(table, 200, select=True, n_threads=n_threads)
    assert 5 < sum(is_selected) < table.shape[1] - 5
    assert found == cut(table, 200, select=False)[1]


@settings(max_examples=150)
@given(
    st.integers(2 * SAMPLE, 5000), st.integers(2, 256), st.integers(0, 2**32), st.sampled_from([1, 30, 500, 20_000, 2**31]),
    st.sampled_from([0, 0.01, 0.8]),
)  # fmt: skip
def test_whatever_selection_decides_the_cuts_are_the_same(n_rows, max_bin, seed, n_values, share):
    """Columns of up to so many distinct values, which lie anywhere among the keys, some of them close together."""
    rng = np.random.default_rng(seed)
    bits = rng.integers(0x3F000000, 0x3F000000 + n_values, n_rows) >> rng.integers(0, 2) | rng.integers(0, 2, n_rows) << 31
    column = bits.astype(np.uint32).view(np.float32).copy()
    column[rng.random(n_rows) < share] = rng.choice([np.nan, 0.0, 0.5])
    assert cut(column[:, None], max_bin, select=True)[1] == cut(column[:, None], max_bin, select=False)[1]


def test_a_training_on_either_is_the_same(monkeypatch):
    X, models, n_selected = np.stack([SELECTED["normal"], SORTED["few"], SELECTED["missing"]], axis=1), [], []
    monkeypatch.setattr(sketch, "select_cuts_cpu", lambda *args: select_cuts_cpu(*args) or n_selected.append(sum(args[3] >= 0)))
    for fewest in (N_ROWS + 1, N_ROWS):
        monkeypatch.setattr(sketch, "FEWEST_ROWS", fewest)
        models.append(digest(gb.train({"max_depth": 4, "nthread": 2}, gb.DMatrix(X, X[:, 0] > 0.3), 3).model))
    assert models[0] == models[1] and n_selected == [2]
    gb.train({}, gb.DMatrix(X, X[:, 0] > 0.3, weight=np.ones(N_ROWS)), 1)
    gb.train({"max_bin": 257}, gb.DMatrix(X, X[:, 0] > 0.3), 1)
    assert n_selected == [2]  # rows of weights, and more bins than there is room for
