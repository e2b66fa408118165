"""Target statistics: the mean label of a row's category, a column of numbers beside that of the category.

A row must not learn its own label from the statistic. So rows are dealt to N_FOLDS folds by a hash of their numbers, and a row
sees what those of other folds say of its category (Micci-Barreca 2001, with cross-fitting; CatBoost's ordered statistics leave
out the rows behind a row instead):

    s = (Σ w·y + a·m) / (Σ w + a)      over the rows of the category in other folds

A category of few rows still tells something of them by what it lacks: of n rows, the mean of the others is the lower the higher
the label. With that a tree can learn labels by heart where there is nothing else to learn. So a column has statistics only where
its categories differ by more than CERTAINTY standard deviations of what chance does (analysis of variance); else one bin is all.

m is the mean label of all categories, a the weight of what is known beforehand: of as many rows as it takes for the variance
within a category, divided by them, to be the variance between categories (empirical Bayes: Efron & Morris 1975), at least one.
Sums are integers, over all workers, and what follows from them is computed in the same order everywhere.

Bins lie between the statistics that categories have by all rows. A threshold is a set of categories, then: those whose own lies
above go right. Such sets are what a model holds, and by them rows are predicted that it was not trained on. Where no row of the
training lacks the category, a missing value is of an unknown one, and goes the way of m. A set is known to be of a statistic by
its node's threshold, which is 0 for others and means nothing to anybody else.

Splits are searched by the statistics of one dealing to folds, and leaves weighed by those of another, whose bins end at the same
places, as what all rows say is the same (second_dealing.py).

Not the default: on categories-1m of benchmarks/tasks.py (1,000,000 rows, 20 columns of 1,000 categories) binning and training
took 3.0 s with one dealing, 2.3 times as long as by sets alone, where LightGBM takes 2.3 s (one thread of an AMD EPYC, 2026-11),
and with the other 1.7 times that (a busy machine; CPU time); the table lies in memory twice more, with a column
for each statistic, 0.4 GB; and the file is eight times as large.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from gpuboost.backend.contract import Backend
from gpuboost.backend.fixed_point import exact_scale, largest_of, round_key
from gpuboost.binned.cuts import SENTINEL, Cuts
from gpuboost.binned.matrix import BinnedMatrix
from gpuboost.binned.pages import DensePage, ResidentPages
from gpuboost.communicator import Communicator
from gpuboost.kernels.histogram import record_bytes
from gpuboost.model.tree import CategorySets, Tree

__all__ = ["CategoryStatistics", "columns_of_categories", "deal_to_folds", "fit_statistics", "indicate_classes", "lack_some"]

N_FOLDS = 10
NO_FOLD = N_FOLDS  # of rows that see all others
CERTAINTY = 3.0
FOLD_DRAW = 0xFEA70006  # a word beside those of kernels/column_sampling.py
MOST_BINS = 255  # with that of missing values, the codes of a byte


@dataclass(frozen=True, eq=False)
class CategoryStatistics:
    """The statistics of some columns of a table, as columns of bins behind those of the table.

    of_table : the table's cuts, with a bin for each category. cuts : with those of the statistics.
    owners : the column that each is of, n_each in a row. bins : of each, uint8 (n_categories + 2, N_FOLDS + 1): the bin of every
    code of its column, by the fold that is left out.
    """

    of_table: Cuts
    cuts: Cuts
    owners: list[int]
    n_each: int
    bins: list[np.ndarray]

    def encoded(self, binned: BinnedMatrix, backend: Backend, folds: np.ndarray | None = None) -> BinnedMatrix:
        """The codes of a dense table with those of its statistics, without records, in host memory.

        folds : int8 (n_rows,), of rows that are trained on. None: every row gets its category's statistics by all rows.
        """
        n_columns, n_features, dtype = self.of_table.n_features, self.cuts.n_features, binned.pages.dtype
        width = record_bytes(n_features * dtype.itemsize) // dtype.itemsize
        pages, first = [], 0
        for page in binned.pages.home:
            assert isinstance(page, DensePage)
            own = slice(first, first + page.n_rows)
            columns = np.empty((n_features, page.n_rows), dtype)
            columns[:n_columns] = backend.memory.fetch(page.columns)
            for column, owner, bins in zip(columns[n_columns:], self.owners, self.bins):
                column[:] = bins[columns[owner], NO_FOLD if folds is None else folds[own]]
            pages.append(DensePage(columns, np.zeros((0, width), dtype)))
            first = own.stop
        return BinnedMatrix(self.cuts, ResidentPages(pages))

    def to_sets(self, tree: Tree) -> Tree:
        """A tree that was grown with statistics, with sets for thresholds on them. (Those that part missing values from all
        others stay.)"""
        feature, threshold, default_left = tree.feature.copy(), tree.threshold.copy(), tree.default_left.copy()
        listed = {} if tree.sets is None else dict(tree.sets.items())
        for node in np.flatnonzero(feature >= self.of_table.n_features).tolist():
            number = int(feature[node]) - self.of_table.n_features
            bins, lowest = self.bins[number], tree.threshold[node]
            feature[node] = self.owners[number]
            if lowest < SENTINEL:
                listed[node] = np.flatnonzero(bins[:-2, NO_FOLD] >= lowest)
                threshold[node] = lowest + number % self.n_each * (MOST_BINS + 1)
                if not self.of_table.has_missing[self.owners[number]]:
                    default_left[node] = bins[-1, NO_FOLD] < lowest
        return _with_sets(replace(tree, feature=feature, threshold=threshold, default_left=default_left), listed)

    def to_thresholds(self, tree: Tree) -> Tree | None:
        """The same the other way; None where a set is of another statistic."""
        feature, threshold = tree.feature.copy(), tree.threshold.copy()
        listed = {} if tree.sets is None else dict(tree.sets.items())
        for node, categories in list(listed.items()):
            if threshold[node] == 0.0:
                continue
            place, lowest = divmod(float(threshold[node]), MOST_BINS + 1)
            if feature[node] not in self.owners or not 0 <= place < self.n_each:
                return None
            number = self.owners.index(feature[node]) + int(place)
            if not np.array_equal(categories, np.flatnonzero(self.bins[number][:-2, NO_FOLD] >= lowest)):
                return None
            feature[node], threshold[node] = self.of_table.n_features + number, lowest
            del listed[node]
        return _with_sets(replace(tree, feature=feature, threshold=threshold), listed)


def _with_sets(tree: Tree, listed: dict[int, np.ndarray]) -> Tree:
    """The tree with these sets of nodes. listed : the categories that go right, ascending."""
    if not listed:
        return replace(tree, sets=None)
    nodes = sorted(listed)
    bounds = np.cumsum([0, *(len(listed[node]) for node in nodes)]).astype(np.int64)
    categories = np.concatenate([listed[node] for node in nodes]).astype(np.int32)
    return replace(tree, sets=CategorySets(np.array(nodes, np.int32), bounds, categories))


def columns_of_categories(cuts: Cuts, at_least: int) -> np.ndarray:
    """The columns with a bin for each of so many categories or more, ascending."""
    return np.flatnonzero((cuts.n_categories > 0) & (cuts.n_categories >= at_least))


def indicate_classes(label: np.ndarray, n_classes: int) -> np.ndarray:
    """float32 (n_classes, n_rows): 1 for the rows of a class. label : float32 (1, n_rows)."""
    return (label == np.arange(n_classes)[:, None]).astype(np.float32)


def lack_some(labels: np.ndarray) -> bool:
    """Whether labels are missing."""
    return bool(np.isnan(labels).any())


def deal_to_folds(weight: np.ndarray, n_rows: int, first_row: int, seed: int, dealing: int = 0) -> np.ndarray:
    """int8 (n_rows,): the fold of each row, by its number among those of all workers that take part; NO_FOLD for one of weight 0.

    weight : float32 (n_rows,), or empty. first_row : number of this worker's first one. dealing : others are
    independent.
    """
    taken = weight > 0 if len(weight) else np.ones(n_rows, bool)
    numbers = np.arange(first_row, first_row + np.count_nonzero(taken), dtype=np.uint64)
    hashed = round_key(seed, dealing, FOLD_DRAW, numbers, numbers >> np.uint64(32))
    folds = np.full(n_rows, NO_FOLD, np.int8)
    folds[taken] = hashed * np.uint64(N_FOLDS) >> np.uint64(32)
    return folds


def fit_statistics(
    binned: BinnedMatrix, features: np.ndarray, labels: np.ndarray, weight: np.ndarray, folds: np.ndarray, global_rows: int,
    max_bin: int, backend: Backend, comm: Communicator,
) -> CategoryStatistics:  # fmt: skip
    """Statistics of these columns of a dense table with a bin for each category, over all workers: one of each by each label.

    features : ascending. labels : float32 (n_labels, n_rows). weight : float32 (n_rows,), or empty. folds : of deal_to_folds.
    global_rows : that take part.
    """
    cuts, weights = binned.cuts, np.where(folds == NO_FOLD, 0.0, weight.astype(np.float64) if len(weight) else 1.0)
    labels = np.where(folds == NO_FOLD, 0.0, labels)  # also where there is none
    values = [weights, *(weights * label for label in labels), *(weights * label * label for label in labels)]
    terms, scales = zip(*(_as_integers(each, global_rows, comm) for each in values))
    n_rows, sums = _sum_by_fold(binned, features, np.array(terms), folds, backend)
    comm.allreduce_sum(n_rows)
    bins = []
    for n, of_feature, has_missing in zip(n_rows.tolist(), sums, cuts.has_missing[features].tolist()):
        exchanged = of_feature.astype(np.int64)
        comm.allreduce_sum(exchanged)
        total, *others = (own / scale for own, scale in zip(exchanged, scales))
        for value, square in zip(others[: len(labels)], others[len(labels) :]):
            bins.append(_bin_statistics(total, value, square, n, min(max_bin, MOST_BINS), has_missing))
    owners = np.repeat(features, len(labels))
    n_bins = [int(own[:-2, NO_FOLD].max(initial=0)) + 1 for own in bins]
    return CategoryStatistics(cuts, _beside(cuts, owners, n_bins), owners.tolist(), len(labels), bins)


def _sum_by_fold(
    binned: BinnedMatrix, features: np.ndarray, terms: np.ndarray, folds: np.ndarray, backend: Backend
) -> tuple[np.ndarray, list[np.ndarray]]:
    """(rows of each feature that have a category and take part, int64; sums of the terms of this worker's rows by category and
    fold, of each feature float64 (n_terms, n_categories, N_FOLDS)). terms : float64 (n_terms, n_rows), whole numbers."""
    n_categories = binned.cuts.n_categories[features].tolist()
    n_rows = np.zeros(len(features), np.int64)
    sums = [np.zeros((len(terms), n * (N_FOLDS + 1))) for n in n_categories]
    first = 0
    for _, page in binned.pages.walk(features):
        assert isinstance(page, DensePage)
        own = slice(first, first + page.n_rows)
        for i, (feature, n) in enumerate(zip(features, n_categories)):
            codes = backend.memory.fetch(page.columns[feature])
            cells = codes.astype(np.intp) * (N_FOLDS + 1) + folds[own]
            n_rows[i] += np.count_nonzero((codes < n) & (folds[own] < NO_FOLD))
            for total, term in zip(sums[i], terms[:, own]):
                total += np.bincount(cells, term, len(total))[: len(total)]  # behind them lies what is no category
        first = own.stop
    return n_rows, [own.reshape(len(terms), -1, N_FOLDS + 1)[..., :NO_FOLD] for own in sums]


def _as_integers(values: np.ndarray, global_rows: int, comm: Communicator) -> tuple[np.ndarray, float]:
    """The values as whole numbers of which the sum of all workers' is exact in float64, and what they were multiplied by."""
    scale = exact_scale(largest_of(np.abs(values), comm), global_rows)
    return np.floor(values * scale + 0.5), scale


def _bin_statistics(
    weight: np.ndarray, value: np.ndarray, square: np.ndarray, n_rows: int, max_bin: int, has_missing: bool
) -> np.ndarray:
    """The bins of a statistic, as CategoryStatistics has them.

    weight, value, square : float64 (n_categories, N_FOLDS), exact: Σ w, Σ w·y and Σ w·y². n_rows : that have a category.
    has_missing : whether others have none.
    """
    known, own = (np.column_stack([sums.sum(axis=1, keepdims=True) - sums, sums.sum(axis=1)]) for sums in (weight, value))
    prior, mean, differ = _prior(known[:, NO_FOLD], own[:, NO_FOLD], math.fsum(square.ravel()), n_rows)
    statistics = (own + prior * mean) / (known + prior)
    cuts = _cuts_between(statistics[:, NO_FOLD], known[:, NO_FOLD], max_bin if differ else 1)
    bins = np.zeros((len(weight) + 2, N_FOLDS + 1), np.uint8)  # a code that is no category is in no set: it goes left
    bins[:-2] = np.searchsorted(cuts, statistics)
    bins[-1] = len(cuts) + 1 if has_missing else np.searchsorted(cuts, mean)
    return bins


def _prior(weight: np.ndarray, value: np.ndarray, squares: float, n_rows: int) -> tuple[float, float, bool]:
    """(a, m, whether the categories differ by more than chance) from Σ w and Σ w·y of the categories, float64 (n_categories,),
    and Σ w·y² of all: a as weight.

    The variance between categories is the one of their means, less what those within lead one to expect (the method of moments).
    """
    has_rows = weight > 0
    weight, value = weight[has_rows], value[has_rows]
    if not has_rows.any():
        return 1.0, 0.0, False
    total = math.fsum(weight)
    mean, unit = math.fsum(value) / total, total / n_rows  # unit: the weight of a row
    freedom, others = len(weight) - 1, max(n_rows - len(weight), 1)
    within = (squares - math.fsum(value * value / weight)) / others
    spread = math.fsum(weight * (value / weight - mean) ** 2) - freedom * within
    differ = spread > CERTAINTY * within * math.sqrt(2.0 * freedom * (1.0 + freedom / others))  # of F's numerator and denominator
    between = spread / max(total - math.fsum(weight * weight) / total, unit)
    rows = within / (unit * between) if between > 0.0 else n_rows
    return unit * min(max(rows, 1.0), n_rows), mean, differ


def _cuts_between(statistics: np.ndarray, weight: np.ndarray, max_bin: int) -> np.ndarray:
    """Ascending thresholds of at most max_bin bins: between any two statistics where they are few enough, else of about equal
    weight. A value equal to one lies below it."""
    has_rows = weight > 0
    values, place = np.unique(statistics[has_rows], return_inverse=True)
    last = np.arange(len(values) - 1)  # each ends a bin
    if len(values) > max_bin:
        cumulative = np.cumsum(np.bincount(place, weight[has_rows]))
        ranks = np.diff(np.floor(cumulative * (max_bin / cumulative[-1])), prepend=0)
        last = np.flatnonzero((ranks[:-1] > 0) | (ranks[1:] > 1))
    low, high = values[last], values[last + 1]
    middle = low + (high - low) / 2
    return np.where(middle < high, middle, low)


def _beside(cuts: Cuts, owners: np.ndarray, n_bins: list[int]) -> Cuts:
    """The cuts with those of statistics behind them: of as many bins, 0, 1, …, of these columns."""
    own = [np.append(np.arange(1, n, dtype=np.float32), SENTINEL) for n in n_bins]
    assert cuts.categorical is not None
    return replace(
        cuts, thresholds=np.concatenate([cuts.thresholds, *own]).astype(np.float32), extremes=None,
        offsets=np.append(cuts.offsets, cuts.offsets[-1] + np.cumsum(n_bins)).astype(np.int32),
        has_missing=np.append(cuts.has_missing, cuts.has_missing[owners]),
        categorical=np.append(cuts.categorical, np.zeros(len(owners), bool)),
    )  # fmt: skip
