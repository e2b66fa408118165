"""The statistics of categories, against sums over rows one by one; thresholds on them are sets of categories."""

import numpy as np
import pytest

import gpuboost as gb
from gpuboost.backend.cpu import CpuBackend
from gpuboost.communicator import SingleProcess, current_communicator, run_threads
from gpuboost.data.category_statistics import MOST_BINS, N_FOLDS, NO_FOLD, deal_to_folds, fit_statistics
from gpuboost.model.tree import CategorySets, Tree

BACKEND = CpuBackend(1)
ALL = np.array([0])


def fit(codes, label, folds, weight=(), max_bin=256, first=0, last=None, n_rows=None, comm=None):
    """Of one column. first, last : the rows of this worker."""
    own = slice(first, last)
    table = np.asarray(codes, np.float32)[:, None]
    binned = gb.DMatrix(table, feature_types=["c"]).binned(16, BACKEND, SingleProcess(), by_category=True)
    part = gb.QuantileDMatrix(table[own], ref=_lender(table)).any_binned() if first or last else binned
    weight, label = np.asarray(weight, np.float32)[own], np.asarray(label, np.float32)[own]
    comm, n_rows = comm or SingleProcess(), n_rows or len(codes)
    return fit_statistics(part, ALL, label[None], weight, folds[own], n_rows, max_bin, BACKEND, comm)


def _lender(table):
    return gb.QuantileDMatrix(table, feature_types=["c"])


def by_hand(codes, label, weight, folds, prior, mean):
    """(n_categories, N_FOLDS + 1), row by row."""
    out = np.empty((int(np.nanmax(codes)) + 1, N_FOLDS + 1))
    for category in range(len(out)):
        for fold in range(N_FOLDS + 1):
            rows = [i for i in range(len(codes)) if codes[i] == category and folds[i] != fold]
            total = sum(weight[i] * label[i] for i in rows) + prior * mean
            out[category, fold] = total / (sum(weight[i] for i in rows) + prior)
    return out


def test_rows_see_what_other_folds_say_of_their_category():
    """Labels of two categories: 1 1 1 1 and 0 0 0 0, each in two folds. They do not vary within, so one row's worth is known
    beforehand."""
    codes, label = np.repeat([0, 1], 4), np.repeat([1.0, 0.0], 4)
    folds = np.tile([0, 0, 1, 1], 2).astype(np.int8)
    statistics = by_hand(codes, label, np.ones(8), folds, 1.0, 0.5)
    assert statistics[:, [0, 2, NO_FOLD]].tolist() == [[2.5 / 3, 0.9, 0.9], [0.5 / 3, 0.1, 0.1]]
    fitted = fit(codes, label, folds)
    assert fitted.cuts.n_bins.tolist() == [3, 2]  # of the categories, and of the statistic: the threshold is ½
    assert (fitted.bins[0][:2] == (statistics > 0.5)).all()
    assert fitted.bins[0][2].tolist() == [0] * (N_FOLDS + 1)  # no category of the table
    assert fitted.bins[0][3].tolist() == [0] * (N_FOLDS + 1)  # missing, which no row is: as ½
    with_missing = fit([*codes, np.nan], [*label, 1.0], np.append(folds, np.int8(5)))
    assert with_missing.bins[0].tolist() == [*fitted.bins[0][:3].tolist(), [2] * (N_FOLDS + 1)]


@pytest.mark.parametrize("is_weighted", [False, True])
def test_bins_order_the_statistics_of_all_categories_and_folds(is_weighted):
    """Whatever a and m are, bins ascend with them; those of all rows are all there."""
    rng = np.random.default_rng(0)
    codes, n = rng.integers(0, 12, 400).astype(float), 400
    label = np.round(8 * (rng.normal(size=12)[codes.astype(int)] + rng.normal(size=n))) / 8
    weight = rng.integers(0, 4, n) / 2 if is_weighted else np.ones(n)
    codes[rng.random(n) < 0.1] = np.nan
    folds = deal_to_folds(weight.astype(np.float32), n, 0, 0)
    bins = fit(codes, label, folds, weight if is_weighted else ()).bins[0][:12]
    present = ~np.isnan(codes) & (weight > 0)
    known, values, w = codes[present].astype(int), label[present], weight[present]
    total, sums = np.bincount(known, w), np.bincount(known, w * values)
    unit, mean = w.mean(), sums.sum() / w.sum()
    within = (w @ values**2 - (sums**2 / total).sum()) / (len(w) - 12)
    between = ((total * (sums / total - mean) ** 2).sum() - 11 * within) / (total.sum() - (total**2).sum() / total.sum())
    statistics = by_hand(codes, label, weight, folds, max(within / between, unit), mean)
    order = np.argsort(statistics.ravel())
    assert (np.diff(bins.ravel()[order].astype(int)) >= 0).all()
    assert sorted(bins[:, NO_FOLD]) == list(range(12))


def test_rows_are_dealt_by_their_numbers_alone():
    weight = np.tile(np.float32([1, 0, 2]), 100)
    folds = deal_to_folds(weight, 300, 0, 7)
    assert (folds[weight == 0] == NO_FOLD).all()
    np.testing.assert_array_equal(folds[weight > 0], deal_to_folds(np.zeros(0, np.float32), 200, 0, 7))
    np.testing.assert_array_equal(folds[150:], deal_to_folds(weight[150:], 150, 100, 7))
    assert (deal_to_folds(weight, 300, 0, 8) != folds).any()
    counts = np.bincount(deal_to_folds(np.zeros(0, np.float32), 100_000, 2**33, 0))
    assert len(counts) == N_FOLDS and (abs(counts - 10_000) < 500).all()  # five standard deviations


def test_workers_agree_with_one():
    rng = np.random.default_rng(1)
    codes, label = rng.permutation(np.repeat(np.arange(30), 10)), rng.random(300)
    folds = deal_to_folds(np.zeros(0, np.float32), 300, 0, 0)

    def work(rank):
        bounds = [0, 17, 200, 300]
        return fit(codes, label, folds, first=bounds[rank], last=bounds[rank + 1], n_rows=300, comm=current_communicator())

    whole = fit(codes, label, folds)
    for part in run_threads(3, work):
        np.testing.assert_array_equal(part.bins[0], whole.bins[0])
        assert part.cuts.same_as(whole.cuts)


def test_many_categories_share_bins_of_about_equal_weight():
    codes = np.repeat(np.arange(2000), 3)
    label = np.repeat(np.random.default_rng(2).permutation(2000), 3) / 64
    fitted = fit(codes, label, deal_to_folds(np.zeros(0, np.float32), 6000, 0, 0))
    rows = np.bincount(fitted.bins[0][codes, NO_FOLD])
    assert len(rows) == fitted.cuts.n_bins[1] <= MOST_BINS and rows.min() > 0
    assert rows.max() <= 2 * 6000 / MOST_BINS
    few = fit(codes, label, deal_to_folds(np.zeros(0, np.float32), 6000, 0, 0), max_bin=16)
    assert few.cuts.n_bins[1] == 16


def test_a_column_without_differences_or_without_rows_has_statistics_too():
    codes = np.repeat(np.arange(5), 4)
    folds = deal_to_folds(np.zeros(0, np.float32), 20, 0, 0)
    assert fit(codes, np.ones(20), folds).cuts.n_bins[1] == 1
    assert fit(codes, np.tile([0, 1, 0, 1], 5), folds).cuts.n_bins[1] == 1  # nothing between categories
    assert fit(codes, np.ones(20), np.full(20, NO_FOLD, np.int8), np.zeros(20)).cuts.n_bins[1] == 1


def tree_of(threshold, feature=1, sets=None):
    """A stump."""
    fields = {
        "left_child": [1, -1, -1], "parent": [-1, 0, 0], "feature": [feature, 0, 0], "threshold": [threshold, 0, 0],
        "default_left": [1, 0, 0], "leaf_value": [0, 1, 2], "gain": [1, 0, 0], "cover": [4, 2, 2], "weight": [0, 1, 2],
    }  # fmt: skip
    dtypes = dict.fromkeys(["threshold", "leaf_value", "gain", "cover", "weight"], np.float32) | {"default_left": np.uint8}
    return Tree(**{name: np.array(x, dtypes.get(name, np.int32)) for name, x in fields.items()}, sets=sets)


def set_of(*categories):
    return CategorySets(np.array([0], np.int32), np.array([0, len(categories)], np.int64), np.array(categories, np.int32))


def test_a_threshold_is_the_set_of_categories_above_and_comes_back():
    codes, label = np.repeat(np.arange(6), 20), np.repeat([3.0, 1, 5, 0, 2, 4], 20)
    fitted = fit(codes, label, deal_to_folds(np.zeros(0, np.float32), 120, 0, 0))
    tree = fitted.to_sets(tree_of(3))
    assert tree == tree_of(3, 0, set_of(0, 2, 5)), "whose threshold says that the statistic is split, not the column"
    assert tree.default_left[0] and not fitted.to_sets(tree_of(2)).default_left[0]  # the mean, 2½, lies in bin 2
    assert fitted.to_thresholds(tree) == tree_of(3)
    all_present = tree_of(np.finfo(np.float32).max)  # against missing ones
    assert fitted.to_sets(all_present) == tree_of(np.finfo(np.float32).max, 0)
    own = tree_of(0, 0, set_of(0, 2, 5))  # of the column
    assert fitted.to_sets(own) == own == fitted.to_thresholds(own)
    for others in ((0, 2, 3), (0, 2, 5, 6), (0, 1, 2, 3, 4, 5)):
        assert fitted.to_thresholds(tree_of(3, 0, set_of(*others))) is None


def test_each_label_has_a_statistic_of_its_own():
    """The second one orders the categories the other way round, and its thresholds are not taken for those of the first."""
    codes, label = np.repeat(np.arange(4), 20), np.repeat(np.float32([0, 1, 2, 3]), 20)
    folds = deal_to_folds(np.zeros(0, np.float32), 80, 0, 0)
    binned = gb.DMatrix(codes[:, None], feature_types=["c"]).binned(16, BACKEND, SingleProcess(), by_category=True)
    labels = np.stack([label, -label])
    fitted = fit_statistics(binned, ALL, labels, np.zeros(0, np.float32), folds, 80, 256, BACKEND, SingleProcess())
    assert (fitted.owners, fitted.cuts.n_features) == ([0, 0], 3)
    for feature, listed in ((1, (3,)), (2, (0,))):
        tree = fitted.to_sets(tree_of(3, feature))
        assert tree.sets == set_of(*listed)
        assert fitted.to_thresholds(tree).feature[0] == feature
