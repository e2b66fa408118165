"""data/sketch.py: exact weighted quantiles as cuts, the same for any order, batches and workers."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy_ranked import NumpyRanked

from gpuboost.backend.cpu import CpuBackend
from gpuboost.backend.cpu.coder import CpuCoder
from gpuboost.binned.cuts import SENTINEL
from gpuboost.communicator import SingleProcess, current_communicator, run_threads
from gpuboost.data import sketch
from gpuboost.data.dmatrix import DMatrix
from gpuboost.data.tables.open import open_table
from gpuboost.kernels.selection import FEWEST_ROWS

LARGEST = np.nextafter(SENTINEL, np.float32(0))  # the largest value that a column may hold


class CountingBackend(CpuBackend):
    """Counts digits, as with several workers."""

    def __init__(self, n_threads):
        super().__init__(n_threads)
        self.coder = CountingCoder(n_threads)


class CountingCoder(CpuCoder):
    sorts_columns = False


class RankingBackend(CpuBackend):
    """Asks for values by rank, as on a GPU."""

    def __init__(self, n_threads):
        super().__init__(n_threads)
        self.coder = RankingCoder(n_threads)


class RankingCoder(CountingCoder):
    def columns_ranked_at_once(self, n_rows, is_weighted):
        return 3

    def rank_columns(self, batches, missing, weights, n_rows, features):
        parts = [batch[:, features] for batch in batches] or [np.zeros((0, len(features)))]
        return NumpyRanked(np.concatenate(parts), missing, weights, range(len(features)))


def cuts_of(X, max_bin=256, weights=None, *, n_threads=1, batch_rows=None, comm=None):
    """Cuts of a float table; ``weights`` int64 (rows,). Those of sorted columns, counted digits and ranks are the same."""
    X = np.asarray(X, np.float32)
    source = open_table(X[:, None] if X.ndim == 1 else X)
    if batch_rows is not None:
        source = dataclasses.replace(source)
        object.__setattr__(source, "batches", lambda: type(source).batches(source, batch_rows))
    weights = None if weights is None else np.asarray(weights, np.int64)
    cuts, *others = (
        sketch.sketch_columns(source, weights, max_bin, backend(n_threads), comm or SingleProcess())
        for backend in (CpuBackend, CountingBackend, RankingBackend)
    )
    for other in others:
        assert other.same_as(cuts) and other.has_missing.tolist() == cuts.has_missing.tolist()
        assert other.extremes.tolist() == cuts.extremes.tolist()
    return cuts


def check_column(x, max_bin, weights=None):
    """The promises of one column's cuts; returns its bin weights."""
    x = np.asarray(x, np.float32)
    w = np.ones(len(x), np.int64) if weights is None else np.asarray(weights, np.int64)
    cuts = cuts_of(x, max_bin, weights)
    thresholds = cuts.of(0)
    exists = ~np.isnan(x) & (w > 0)
    n_bins = 255 if max_bin == 256 and (np.isnan(x) & (w > 0)).any() else max_bin
    assert thresholds.dtype == np.float32 and thresholds[-1] == SENTINEL
    assert 1 <= len(thresholds) <= n_bins
    assert (np.diff(thresholds.astype(np.float64)) > 0).all()
    values, inverse = np.unique(x[exists], return_inverse=True)
    assert cuts.extremes.tolist() == [[values[0], values[-1]] if len(values) else [0, 0]]
    value_weight = np.bincount(inverse, w[exists], len(values))  # exact: the sums are below 2^53
    code = np.searchsorted(thresholds[:-1], values, side="right")
    assert len(np.unique(code)) == max(1, len(thresholds)) or not len(values), "a bin holds no value"
    for b, t in enumerate(thresholds[:-1]):  # midway between neighbours, the upper where that rounds down to the lower
        below, above = values[code == b].max(), values[code == b + 1].min()
        middle = np.float32((float(below) + float(above)) / 2)
        assert t == (middle if middle > below else above)
    n_values, bin_weight = np.bincount(code, minlength=1), np.bincount(code, value_weight, minlength=1)
    if len(values) <= n_bins:
        assert (n_values <= 1).all(), "few values, yet two share a bin"
    shared = bin_weight[n_values > 1]
    assert (shared * n_bins < 2 * value_weight.sum()).all(), "a shared bin holds 2/max_bin of the weight"
    return bin_weight


# ---- by hand


HEAVIER = 3 ** np.arange(9, 0, -1)  # of 8 bins 6 or more are of heavy values, found one after another


@pytest.mark.parametrize("max_bin", [8, 7, 5])
def test_most_bins_may_be_of_heavy_values(max_bin):
    values = np.arange(9.0, dtype=np.float32)
    assert len(cuts_of(values, max_bin, HEAVIER).of(0)) == max_bin
    table = np.stack([np.repeat(values, HEAVIER), np.repeat(values[::-1], HEAVIER)], axis=1)
    cuts_of(table, max_bin)
    cuts_of(np.random.default_rng(0).geometric(0.03, (20_000, 2)), 256)


@pytest.mark.slow
def test_there_is_room_for_all_heavy_values():
    """numba checks indices where it is asked to."""
    code = "import test_sketch as t; t.test_most_bins_may_be_of_heavy_values(8)"
    with TemporaryDirectory() as folder:
        env = os.environ | {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": folder, "GPUBOOST_KERNELS": "native"}
        env["PYTHONPATH"] = os.pathsep.join(str(folder) for folder in list(Path(__file__).parents)[:3])
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_few_values_get_one_bin_each_with_cuts_midway():
    cuts = cuts_of([3, 1, 1, 2, 5, 3])
    np.testing.assert_array_equal(cuts.of(0), [1.5, 2.5, 4, SENTINEL])
    assert cuts.n_bins.tolist() == [4] and cuts.total_bins == 4 and not cuts.has_missing[0]


def test_quantiles_of_eight_equal_weights_in_four_bins():
    np.testing.assert_array_equal(cuts_of([8, 3, 1, 6, 7, 2, 5, 4], 4).of(0), [2.5, 4.5, 6.5, SENTINEL])


def test_weights_move_the_quantiles():
    # cumulative weight 3 4 5 6 7 8: half of it is reached at value 2
    np.testing.assert_array_equal(cuts_of([1, 2, 3, 4, 5, 6], 2, [3, 1, 1, 1, 1, 1]).of(0), [2.5, SENTINEL])


def test_a_threshold_between_neighbouring_floats_is_the_upper_one():
    lower = np.float32(1)
    upper = np.nextafter(lower, np.float32(2))
    assert cuts_of([lower, upper]).of(0)[0] == upper


def test_columns_keep_their_places():
    cuts = cuts_of([[1, np.nan, 5], [2, np.nan, 5], [3, 7, 5]])
    assert cuts.offsets.tolist() == [0, 3, 4, 5] and cuts.n_features == 3 and cuts.max_bin == 256
    np.testing.assert_array_equal(cuts.thresholds, [1.5, 2.5, SENTINEL, SENTINEL, SENTINEL])
    assert cuts.has_missing.tolist() == [False, True, False]


def test_minus_zero_is_zero():
    np.testing.assert_array_equal(cuts_of([-0.0, 0.0, 1.0]).of(0), [0.5, SENTINEL])


# ---- the bound, on columns made to break it


def geometric(n, ratio=2):
    return np.maximum(ratio ** np.arange(n, dtype=np.float64), 1).astype(np.int64)


def adversaries():
    rng = np.random.default_rng(6)
    normal = rng.normal(size=20000)
    comb = np.ones(20000, np.int64)
    comb[5:259:2] = 250  # 127 heavy values, a light one between each two, and a long light tail
    return {
        "normal": (normal, None),
        "sorted": (np.arange(20000), None),
        "duplicates": (rng.integers(0, 400, 20000), None),
        "denormals": (rng.integers(-1000, 1000, 20000) * 1.4e-45, None),
        "wide range": (np.exp(rng.uniform(-85, 85, 20000)) * rng.choice([-1, 1], 20000), None),
        "limits": (np.concatenate([normal, [LARGEST, -LARGEST, np.finfo(np.float32).smallest_normal, -0.0]]), None),
        "90 % zeros": (np.where(rng.random(20000) < 0.9, 0, normal), None),
        "90 % missing": (np.where(rng.random(20000) < 0.9, np.nan, normal), None),
        "one value": (np.full(1000, 3.5), None),
        "all missing": (np.full(1000, np.nan), None),
        "one present": (np.r_[np.full(1000, np.nan), 2.0], None),
        "extreme weights": (normal, np.exp(rng.uniform(0, 20, 20000)).astype(np.int64)),
        "geometric weights": (np.arange(44), geometric(44)),
        "geometric weights shuffled": (rng.permutation(44), geometric(44)),
        "two heavy values with light gaps": (np.arange(300), np.where(np.isin(np.arange(300), [100, 200]), 10**6, 1)),
        "heavy value that shares": (np.arange(5), [2, 60, 4, 30, 4]),
        "comb": (np.arange(20000), comb),
        "zero weights": (normal, rng.integers(0, 2, 20000)),
    }


ADVERSARIES = adversaries()


@pytest.mark.parametrize("max_bin", [2, 3, 4, 5, 17, 255, 256, 1000, 5000])
@pytest.mark.parametrize("name", ADVERSARIES)
def test_no_shared_bin_weighs_twice_its_share(name, max_bin):
    check_column(ADVERSARIES[name][0], max_bin, ADVERSARIES[name][1])


@settings(max_examples=60)
@given(st.integers(0, 2**32), st.integers(1, 60), st.integers(2, 20), st.sampled_from([0, 1, 4, 9]), st.floats(0, 0.5))
def test_no_shared_bin_weighs_twice_its_share_for_random_weights(seed, n, max_bin, spread, missing):
    rng = np.random.default_rng(seed)
    weights = np.exp(np.minimum(rng.normal(10, 1, n) * spread, 25)).astype(np.int64)
    x = rng.integers(0, n, n).astype(np.float32)
    x[rng.random(n) < missing] = np.nan
    check_column(x, max_bin, weights)


def test_heavy_values_leave_their_bins_to_the_light_ones():
    bins = check_column(*(np.where(np.arange(20000) % 10, 0, np.arange(20000)), 256))
    assert len(bins) == 256
    light = np.sort(bins)[:-1]
    assert light.max() <= 2 * 2000 / 254


def test_without_heavy_values_the_cuts_are_the_sorted_weighted_quantiles():
    """The definition by brute force: a bin ends at each value at which the cumulative weight reaches another j·W/B."""
    rng = np.random.default_rng(7)
    for max_bin in (2, 7, 64):
        values = np.unique(rng.normal(size=3000).astype(np.float32))
        weights = rng.integers(1, 5, len(values))
        reached = np.cumsum(weights) * max_bin // weights.sum()
        ends = np.flatnonzero(np.diff(reached, prepend=0))[:-1]
        middle = ((values[ends].astype(np.float64) + values[ends + 1]) / 2).astype(np.float32)
        order = rng.permutation(len(values))
        np.testing.assert_array_equal(cuts_of(values[order], max_bin, weights[order]).of(0), np.r_[middle, SENTINEL])


@pytest.mark.parametrize("has_missing, expected", [(False, 256), (True, 255)])
def test_256_bins_leave_a_byte_for_missing_values(has_missing, expected):
    x = np.arange(5000, dtype=np.float32)
    x[0] = np.nan if has_missing else 0
    assert cuts_of(x, 256).n_bins[0] == expected
    assert cuts_of(x, 257).n_bins[0] == 257


# ---- what the cuts do not depend on


def mixed_table(n=2000):
    rng = np.random.default_rng(8)
    X = np.column_stack([
        rng.normal(size=n), rng.integers(0, 5, n), np.where(rng.random(n) < 0.8, 0, rng.exponential(size=n)),
        np.exp(rng.uniform(-80, 80, n)), np.full(n, np.nan), rng.integers(0, 1000, n),
    ]).astype(np.float32)  # fmt: skip
    X[rng.random(X.shape) < 0.1] = np.nan
    return X, rng.integers(0, 50, n)


@pytest.mark.parametrize("max_bin", [3, 64, 256])
@pytest.mark.parametrize("is_weighted", [False, True])
def test_cuts_do_not_depend_on_order_batches_threads_memory_or_workers(max_bin, is_weighted, monkeypatch):
    X, weights = mixed_table()
    w = weights if is_weighted else None
    expected = cuts_of(X, max_bin, w)

    def check(cuts):
        assert cuts.same_as(expected) and cuts.has_missing.tolist() == expected.has_missing.tolist()

    order = np.random.default_rng(9).permutation(len(X))
    check(cuts_of(X[order], max_bin, None if w is None else w[order]))
    check(cuts_of(X, max_bin, w, batch_rows=777))
    check(cuts_of(X, max_bin, w, n_threads=3))
    check(cuts_of(X.astype(np.float64), max_bin, w))
    if is_weighted:
        check(cuts_of(X[w > 0], max_bin, w[w > 0]))  # a row of weight 0 does not exist
        check(cuts_of(X, max_bin, w * 1000))
        check(cuts_of(np.repeat(X, w, axis=0), max_bin))  # a weight is a number of copies
    bounds = [0, 100, 100, 1500, len(X)]  # the second worker has no rows

    def work(rank):
        own = slice(bounds[rank], bounds[rank + 1])
        return cuts_of(X[own], max_bin, None if w is None else w[own], comm=current_communicator())

    for cuts in run_threads(4, work):
        check(cuts)
    monkeypatch.setattr(sketch, "SORT_MEMORY", 2**14)  # a column or two at a time
    monkeypatch.setattr(sketch, "SKETCH_MEMORY", 2**18)  # a column, and a few prefixes, at a time
    check(cuts_of(X, max_bin, w))


@pytest.mark.parametrize("weights", [None, [1, 0, 2, 1, 3, 1]])
def test_of_codes_of_categories_only_the_extremes_are_looked_for(weights):
    """Columns: all there, missing in a row of weight 0, missing in another row, missing throughout, and numbers."""
    x = np.array([[3, 1, 4, 1, 5, 9], [1, np.nan, 5, 7, 2, 6], [1, 8, 5, 3, np.nan, 2], [np.nan] * 6, [1, 2, 3, 4, 5, 6]])
    source, backend, comm = open_table(x.T.astype(np.float32)), CpuBackend(1), SingleProcess()
    weights = None if weights is None else np.array(weights)
    expected = sketch.sketch_columns(source, weights, 256, backend, comm)
    cuts = sketch.sketch_columns(source, weights, 256, backend, comm, np.array([True] * 4 + [False]))
    assert cuts.extremes.tolist() == expected.extremes.tolist()
    assert cuts.has_missing.tolist() == expected.has_missing.tolist() == [False, weights is None, True, True, False]
    assert cuts.of(4).tolist() == expected.of(4).tolist() and [len(cuts.of(f)) for f in range(4)] == [1] * 4


@pytest.mark.parametrize("n_threads", [1, 2])
def test_of_many_codes_none_is_lost_where_columns_are_selected(n_threads):
    """So many rows and distinct codes that such a column of numbers is cut by selection, which writes over its keys."""
    n_rows, rng = FEWEST_ROWS + 10, np.random.default_rng(4)
    x = rng.integers(1, 50_000, (n_rows, 3)).astype(np.float32)
    x[0, 0], x[1, 0] = 50_001, np.nan  # the only ones, where thresholds are written
    source, backend, comm = open_table(x), CpuBackend(n_threads), SingleProcess()
    expected = sketch.sketch_columns(source, None, 256, backend, comm)
    cuts = sketch.sketch_columns(source, None, 256, backend, comm, np.array([True, False, True]))
    assert cuts.extremes.tolist() == expected.extremes.tolist() and cuts.extremes[0, 1] == 50_001
    assert cuts.has_missing.tolist() == expected.has_missing.tolist() == [True, False, False]
    assert cuts.of(1).tolist() == expected.of(1).tolist() and len(cuts.of(1)) == 256


@pytest.mark.filterwarnings("ignore:weight is .* unusual")
@pytest.mark.filterwarnings("ignore:Some columns hold nothing but missing values")
def test_equal_weights_are_no_weights():
    X, _ = mixed_table()
    plain = DMatrix(X).binned(64, CpuBackend(1), SingleProcess()).cuts
    for weight in (1.0, 0.1, 1e-30, 1e30, 1e-45):
        weighted = DMatrix(X, weight=np.full(len(X), weight, np.float32)).binned(64, CpuBackend(1), SingleProcess()).cuts
        assert weighted.same_as(plain)


@pytest.mark.filterwarnings("ignore:weight is .* unusual")
@pytest.mark.filterwarnings("ignore:Some columns hold nothing but missing values")
def test_weights_matter_only_by_their_ratios():
    X, weights = mixed_table()
    cuts = [DMatrix(X, weight=weights * k).binned(64, CpuBackend(1), SingleProcess()).cuts for k in (1.0, 3.0, 2.0**-70, 2.0**60)]
    assert all(c.same_as(cuts[0]) for c in cuts)


@pytest.mark.filterwarnings("ignore:Some columns hold nothing but missing values")
def test_float_weights_count_as_their_integer_copies():
    X, weights = mixed_table()
    assert DMatrix(X, weight=weights / 16).binned(64, CpuBackend(1), SingleProcess()).cuts.same_as(cuts_of(X, 64, weights))


@pytest.mark.filterwarnings("ignore:Some columns hold nothing but missing values")
def test_a_worker_without_weights_beside_one_that_has_them_counts_ones():
    X, _ = mixed_table(200)

    def work(rank):
        own = DMatrix(X[:120]) if rank == 0 else DMatrix(X[120:], weight=np.ones(80))
        return own.binned(16, CpuBackend(1), current_communicator()).cuts

    expected = cuts_of(X, 16)
    assert all(cuts.same_as(expected) for cuts in run_threads(2, work))


# ---- errors


@pytest.mark.parametrize("bad", [np.inf, -np.inf, SENTINEL, 1e39])
def test_infinite_values_raise_naming_the_column(bad):
    X = np.zeros((6, 2))
    X[[2, 4], 1] = bad
    with pytest.raises(ValueError, match=r"column 1 holds 2 value\(s\) that are infinite"):
        DMatrix(X).binned(256, CpuBackend(1), SingleProcess())
    with pytest.raises(ValueError, match="column 'height'"):
        DMatrix(X, feature_names=["age", "height"]).binned(256, CpuBackend(1), SingleProcess())


def test_infinite_values_that_mean_missing_are_accepted():
    cuts = DMatrix([[1.0], [np.inf], [2.0]], missing=np.inf).binned(256, CpuBackend(1), SingleProcess()).cuts
    assert cuts.has_missing[0] and cuts.n_bins[0] == 2


def test_infinite_values_in_rows_of_weight_zero_do_not_matter():
    cuts = DMatrix([[1.0], [np.inf], [2.0]], weight=[1, 0, 1]).binned(256, CpuBackend(1), SingleProcess()).cuts
    assert not cuts.has_missing[0] and cuts.n_bins[0] == 2
