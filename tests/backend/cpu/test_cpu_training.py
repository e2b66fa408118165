"""backend/cpu: the steps of growth keep their promises on the way, and trees depend on nothing but data and settings."""

import dataclasses

import numpy as np
import pytest

from gpuboost.backend.contract import TrainingRows
from gpuboost.backend.cpu import CpuBackend
from gpuboost.backend.plans import FrontierBatch
from gpuboost.communicator import SingleProcess, current_communicator, run_threads
from gpuboost.data.binning import bin_table
from gpuboost.data.sketch import sketch_columns
from gpuboost.data.tables.open import open_table
from gpuboost.growing.grower import Grower
from gpuboost.growing.plan import Planner
from gpuboost.growing.policy import growth_policy
from gpuboost.params import Params

LEARNING_RATE = 0.5
SETTINGS = Params(max_depth=4, min_child_weight=0.0, histogram_memory=2**24, seed=3)
COMM = SingleProcess()


def make_data(n_rows=600, n_outputs=2):
    """X (n_rows, 4) with missing values, grad and hess (n_outputs, n_rows)."""
    rng = np.random.default_rng(31)
    X = rng.normal(size=(n_rows, 4)).astype(np.float32)
    X[:, 1] = rng.integers(0, 4, n_rows)
    X[rng.random(X.shape) < 0.15] = np.nan
    signal = np.nan_to_num(X[:, 0]) * 2 + np.nan_to_num(X[:, 1]) - np.isnan(X[:, 2])
    grad = (signal * np.arange(1, n_outputs + 1)[:, None] + rng.normal(size=(n_outputs, n_rows))).astype(np.float32)
    return X, grad, (rng.random((n_outputs, n_rows)) + 0.1).astype(np.float32)


def start(X, grad, hess, *, weight=None, n_threads=1, page_rows=None, comm=COMM, max_bin=32, vector=False, cuts=None, **changes):
    """(training with the gradients set, its grower and planner, their maxima over this worker's rows)."""
    backend = CpuBackend(n_threads)
    source = open_table(X)
    weight = np.zeros(0, np.float32) if weight is None else np.asarray(weight, np.float32)
    cuts = cuts or sketch_columns(source, None, max_bin, backend, comm)
    binned = bin_table(source, cuts, backend, with_records=True, page_rows=page_rows)
    n_kept = comm.allgather_int(int(np.count_nonzero(weight) if len(weight) else len(X)))
    n_outputs = len(grad)
    rows = TrainingRows(binned, np.zeros((1, len(X)), np.float32), weight, np.zeros((n_outputs, len(X)), np.float32), sum(n_kept))
    settings = dataclasses.replace(SETTINGS, **changes)
    n_trees, leaf_size = (1, n_outputs) if vector else (n_outputs, 1)
    training = backend.start_training(rows, settings, n_trees, leaf_size)
    grower = Grower(training, comm, growth_policy(settings), settings.proposals)
    return training, grower, Planner(settings, cuts, sum(n_kept), n_trees, leaf_size), training.gradients.set(grad, hess)


def grow(*data, comm=COMM, **arguments):
    """(trees, margins) of one round."""
    training, grower, planner, maxima = start(*data, comm=comm, **arguments)
    grower.grow(planner.plan(0, LEARNING_RATE), maxima)
    training.update_margin(training.margin)
    return training.fetch_trees([training.finish_trees()]), training.margin


def unpacked(part):
    """int64 (n_outputs, n_rows, 2): the pairs of a page."""
    packed = part.gpair[:, 0].astype(np.int64)
    return np.stack([packed >> 16, packed & 0xFFFF], axis=-1)


# ---- the steps


@pytest.mark.parametrize("page_rows", [None, 177])
@pytest.mark.parametrize("n_threads", [1, 3])
def test_every_step_keeps_rows_sums_and_histograms_together(page_rows, n_threads):
    """At every level: segments hold each row once per tree, sums and histograms are those of a node's rows."""
    X, grad, hess = make_data()
    training, grower, planner, maxima = start(X, grad, hess, page_rows=page_rows, n_threads=n_threads)
    trees, state, pages = training.trees, training.trees.arrays, training._pages
    grower.grow(planner.plan(0, 0.3), maxima.copy())  # whose numbers lie in the arrays of nodes
    training.start_round(planner.plan(1, 0.3))
    trees.start(training.gradients.quantise(maxima))
    cuts, table = training._cuts, training._table
    n_held, n_levels = 0, 0
    while n_levels < 4:
        n = trees.frontier_size()
        n_levels += 1
        assert state.counts[trees._frontier].sum() <= 2 * 600
        batch = FrontierBatch(0, n, n_held, n_held > 0)
        n_held += len(trees.build_histograms(batch))
        if batch.subtract:
            trees.subtract_histograms(batch)
        for node in trees._frontier:
            expected, total, n_rows = np.zeros((cuts.total_bins, 2), np.int64), np.zeros(2, np.int64), 0
            for p, part in enumerate(pages):
                begin, end, side = state.segments[p, node]
                rows = part.lists[side, begin:end]
                assert (np.diff(rows) > 0).all(), "rows keep their order"
                pairs = unpacked(part)[state.nodes["tree"][node], rows]
                n_rows, total = n_rows + len(rows), total + pairs.sum(axis=0)
                for f in range(4):
                    codes = table._binned.pages[p].columns[f, rows]
                    present = codes < cuts.n_bins[f]
                    np.add.at(expected, cuts.offsets[f] + codes[present].astype(int), pairs[present])
            assert state.counts[node] == n_rows and state.sums[node, 0].tolist() == total.tolist()
            np.testing.assert_array_equal(trees._hist[state.nodes["slot"][node], 0], expected)
        trees.evaluate_splits(batch)
        trees.select_level(4, 0)
        trees.apply_splits()
        trees.partition_rows()
        leaves = np.flatnonzero(state.nodes["left"][: state.n_nodes] < 0)
        for tree in range(2):
            for p, part in enumerate(pages):
                own = [part.lists[side, b:e] for b, e, side in state.segments[p, leaves[state.nodes["tree"][leaves] == tree]]]
                assert sorted(np.concatenate(own)) == list(range(part.n_rows)), "every row is in one leaf"


def test_a_leaf_is_the_newton_step_of_its_rows():
    X, grad, hess = make_data()
    trees, margin = grow(X, grad, hess, max_bin=256)
    for output, tree in enumerate(trees):
        values = np.unique(margin[output])
        leaves = np.flatnonzero(tree.left_child < 0)
        assert set(values) == set(tree.leaf_value[leaves])
        for value in values:
            rows = margin[output] == value
            g, h = grad[output, rows].astype(np.float64).sum(), hess[output, rows].astype(np.float64).sum()
            # sums exact to 2⁻⁵⁰ of the total, one rounding of the weight and one of the leaf
            assert value == pytest.approx(-g / (h + 1) * 0.5, rel=2e-7, abs=1e-12)
        assert tree.cover[0] == np.float32(hess[output].astype(np.float64).sum())


@pytest.mark.parametrize("gamma", [5.0, 50.0, 1e9])
def test_gamma_prunes_what_the_full_tree_grew(gamma):
    """The kept splits are those of the unpruned tree less, bottom-up, every split of two leaves below gamma."""
    X, grad, hess = make_data()
    full, _ = grow(X, grad, hess)
    pruned, _ = grow(X, grad, hess, gamma=gamma)

    def splits(tree, node, keep_all):
        """Splits below a node as nested (feature, threshold, left, right), None for a leaf."""
        left = tree.left_child[node]
        if left < 0:
            return None
        below = splits(tree, left, keep_all), splits(tree, left + 1, keep_all)
        if not keep_all and below == (None, None) and tree.gain[node] < gamma:
            return None
        return tree.feature[node], tree.threshold[node], *below

    for a, b in zip(full, pruned):
        assert splits(b, 0, True) == splits(a, 0, False)
    assert sum(t.n_nodes for t in pruned) < sum(t.n_nodes for t in full)


def test_margins_take_the_values_of_the_leaves_that_rows_ended_in():
    """Those of the lists of rows by node; rows of zero weight, which lie in none, are predicted."""
    X, grad, hess = make_data()
    weight = np.ones(600)
    weight[::5] = 0
    training, grower, planner, maxima = start(
        X, grad * (weight > 0), hess * (weight > 0), weight=weight, page_rows=100, gamma=5.0
    )
    grower.grow(planner.plan(0, 0.5), maxima)
    training.update_margin(training.margin)
    arrays, values = training.trees.arrays, training.trees.leaf_values[:, 0]
    seen = np.zeros((2, 600), int)
    for p, page in enumerate(training._pages):
        for node in np.flatnonzero(arrays.nodes["left"][: arrays.n_nodes] < 0):
            tree, (begin, end, side) = arrays.nodes["tree"][node], arrays.segments[p, node]
            rows = page.first + page.lists[side, begin:end]
            seen[tree, rows] += 1
            assert (training.margin[tree, rows] == values[arrays.nodes["leaf"][node]]).all()
    assert (seen == (weight > 0)).all()
    for tree in range(2):
        assert np.isin(training.margin[tree, weight == 0], training.margin[tree, weight > 0]).all()


# ---- what the trees do not depend on


LOSSGUIDE = {"grow_policy": "lossguide", "max_leaves": 9, "max_depth": 0}


@pytest.mark.parametrize("changes", [{}, {"max_leaves": 7}, LOSSGUIDE, {"gamma": 3.0}])
def test_threads_pages_and_memory_change_nothing(changes):
    data = make_data(200)
    trees, margin = grow(*data, **changes)
    assert all(tree.n_nodes > 1 for tree in trees)
    for arguments in ({"n_threads": 3}, {"page_rows": 70}, {"page_rows": 1}, {"histogram_memory": 1}, {"histogram_memory": 8000}):
        again, again_margin = grow(*data, **(arguments | changes))
        assert again == trees, arguments
        np.testing.assert_array_equal(again_margin, margin)


def test_row_order_and_workers_change_nothing():
    X, grad, hess = make_data()
    trees, margin = grow(X, grad, hess)
    order = np.random.default_rng(32).permutation(600)
    again, again_margin = grow(X[order], grad[:, order], hess[:, order])
    assert again == trees
    np.testing.assert_array_equal(again_margin, margin[:, order])
    bounds = [0, 5, 5, 400, 600]

    def work(rank):
        own = slice(bounds[rank], bounds[rank + 1])
        return grow(X[own], grad[:, own], hess[:, own], comm=current_communicator())

    for rank, (shard_trees, shard_margin) in enumerate(run_threads(4, work)):
        assert shard_trees == trees
        np.testing.assert_array_equal(shard_margin, margin[:, bounds[rank] : bounds[rank + 1]])


def test_rows_of_weight_zero_do_not_exist():
    X, grad, hess = make_data()
    weight = np.ones(600)
    weight[::4] = 0
    keep = weight > 0
    cuts = sketch_columns(open_table(X), keep.astype(np.int64), 32, CpuBackend(1), COMM)
    trees, margin = grow(X[keep], grad[:, keep], hess[:, keep], cuts=cuts)
    with_zeros, all_margins = grow(X, grad * keep, hess * keep, weight=weight, cuts=cuts)
    assert with_zeros == trees
    np.testing.assert_array_equal(all_margins[:, keep], margin)


# ---- limits of growth


def depth_of(tree):
    depth = np.zeros(tree.n_nodes, int)
    for node in range(1, tree.n_nodes):
        depth[node] = depth[tree.parent[node]] + 1
    return depth.max()


@pytest.mark.parametrize("max_depth", [1, 3])
@pytest.mark.parametrize("grow_policy", ["depthwise", "lossguide"])
def test_max_depth_holds(max_depth, grow_policy):
    trees, _ = grow(*make_data(), max_depth=max_depth, grow_policy=grow_policy)
    assert [depth_of(tree) for tree in trees] == [max_depth] * 2


@pytest.mark.parametrize("grow_policy", ["depthwise", "lossguide"])
def test_max_leaves_holds(grow_policy):
    trees, _ = grow(*make_data(), max_depth=0, max_leaves=11, grow_policy=grow_policy)
    assert [tree.n_leaves for tree in trees] == [11] * 2


def test_without_limits_both_policies_grow_the_same_leaves():
    data = make_data(100)
    a, margin_a = grow(*data, max_depth=0)
    b, margin_b = grow(*data, max_depth=0, grow_policy="lossguide")
    assert [t.n_leaves for t in a] == [t.n_leaves for t in b]
    np.testing.assert_array_equal(margin_a, margin_b)


@pytest.mark.parametrize("X", [np.full((5, 2), np.nan), np.ones((5, 2)), np.ones((1, 1))])
def test_a_table_that_cannot_be_split_gives_one_leaf(X):
    n = len(X)
    trees, margin = grow(X, np.ones((1, n), np.float32), np.ones((1, n), np.float32))
    assert trees[0].n_nodes == 1 and np.unique(margin) == np.float32(-n / (n + 1) * 0.5)


def test_gradients_of_zero_give_one_leaf_of_zero():
    X, _, _ = make_data(50)
    trees, margin = grow(X, np.zeros((1, 50), np.float32), np.zeros((1, 50), np.float32))
    assert trees[0].n_nodes == 1 and not margin.any() and trees[0].cover[0] == 0


# ---- gradients


@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", ["grad", "hess"])
def test_given_gradients_that_are_not_finite_raise(bad, place):
    X, grad, hess = make_data(20)
    grad, hess = grad.copy(), hess.copy()
    {"grad": grad, "hess": hess}[place][1, 7] = bad
    with pytest.raises(FloatingPointError, match="not finite"):
        grow(X, grad, hess)


def test_given_negative_hessians_count_as_zero():
    X, grad, hess = make_data(50)
    negative = hess.copy()
    negative[:, ::3] = -1
    zeroed = np.where(negative < 0, 0, hess).astype(np.float32)
    assert grow(X, grad, negative)[0] == grow(X, grad, zeroed)[0]


def test_loud_rows_bring_a_second_limb_that_keeps_the_quiet_ones():
    """1 % of rows with gradients 10⁶ times the others': in 16 bits the quiet rows would round to nothing."""
    X, grad, hess = make_data(2000, 1)
    loud = np.ones(2000, np.float32)
    loud[:20] = 1e6
    X[:20, 3] = 50  # one split sets the loud rows apart
    training, grower, planner, maxima = start(X, grad * loud, hess * loud)
    grower.grow(planner.plan(0, 0.3), maxima)
    assert training.gradients.n_limbs.tolist() == [2] and training._pages[0].gpair.shape[1] == 2
    trees, _ = grow(X, grad * loud, hess * loud, max_depth=3)
    used = set(trees[0].feature[trees[0].left_child >= 0].tolist())
    assert used >= {0, 3}, "the quiet rows' own signal is not found"
    assert grow(X, grad * loud, hess * loud, max_depth=3, n_threads=3, page_rows=300)[0] == trees


def test_vector_leaves_share_one_tree():
    X, grad, hess = make_data()
    (tree,), margin = grow(X, grad, hess, vector=True)
    assert tree.n_leaves == len({tuple(column) for column in margin.T.tolist()}) > 8


@pytest.mark.usual_threads
@pytest.mark.parametrize("n_rows, n_outputs, expected", [
    (600, 2, 1), (29_999, 1, 1), (30_000, 1, 2), (15_000, 2, 2), (90_000, 1, 4),
])  # fmt: skip
def test_threads_are_as_many_as_a_table_keeps_busy(n_rows, n_outputs, expected):
    """Four columns, 60,000 codes a thread; no more than the backend has."""
    X, grad, hess = make_data(n_rows, n_outputs)
    training, *_ = start(X, grad, hess, n_threads=4)
    assert training._n_threads == expected


@pytest.mark.usual_threads
def test_a_small_table_counts_the_codes_of_its_packed_records():
    one_hot = np.eye(100, dtype=np.float32)[np.arange(5000) % 100]  # one code a row, or some, not 100
    training, *_ = start(one_hot, *np.ones((2, 1, 5000), np.float32), n_threads=4)
    assert training._table.n_packed_codes > 0 and training._n_threads == 1
