"""Whole trees in one call (kernels/whole_trees.py) grow the trees that the steps grow (Grower._grow_by_steps)."""

import numpy as np
import pytest
import scipy.sparse

import gpuboost as gb
from gpuboost.backend import CpuBackend
from gpuboost.backend.cpu.training import CpuTraining
from gpuboost.backend.cpu.trees import CpuTrees
from gpuboost.binned.matrix import Representation
from gpuboost.communicator import run_threads
from gpuboost.kernels.quantise import FINE_ROWS
from gpuboost.kernels.structs import NO_GAIN
from gpuboost.model_io import digest

N_ROWS, N_COLUMNS = 700, 5
FOUR = pytest.param(4, marks=pytest.mark.slow)  # threads
CLASSES = {"objective": "multi:softprob", "num_class": 3}
AT_ONCE = {
    "plain": {}, "rows": {"subsample": 0.5}, "columns": {"colsample_bytree": 0.5},
    "both": {"subsample": 0.7, "colsample_bytree": 0.7},
    "by gradient": {"subsample": 0.4, "sampling_method": "gradient_based"}, "classes": CLASSES,
    "vector leaves": {**CLASSES, "multi_strategy": "multi_output_tree"},
    "bounded vector leaves": {
        **CLASSES, "multi_strategy": "multi_output_tree", "monotone_constraints": (1, -1, 0, 0, 0), "max_delta_step": 0.5,
    }, "forest": {"num_parallel_tree": 3, "subsample": 0.6},
    "few leaves": {"max_leaves": 6}, "no depth": {"max_depth": 0, "max_leaves": 9},
    "no limit": {"max_depth": 0}, "very deep": {"max_depth": 20, "min_child_weight": 0.0},
    "more leaves than rows": {"max_depth": 14, "max_leaves": 5000, "min_child_weight": 0.0},
    "monotone": {"monotone_constraints": (1, -1, 0, 0, 0), "max_delta_step": 0.3},
    "two bytes": {"max_bin": 400}, "pruned": {"gamma": 2.0, "min_child_weight": 8.0},
    "quantile leaves": {"objective": "reg:absoluteerror"}, "masks": {"colsample_bynode": 0.5, "colsample_bylevel": 0.8},
    "interactions": {"interaction_constraints": [[0, 1], [2, 3, 4]]}, "one thread's": {"max_depth": 9, "min_child_weight": 0.0},
    "no split": {"min_child_weight": 1e6}, "one level": {"max_depth": 1}, "dart": {"booster": "dart", "rate_drop": 0.5},
}  # fmt: skip
BEST_FIRST = {
    "leaf by leaf": {}, "no limit": {"max_depth": 0, "min_child_weight": 0.0}, "very deep": {"max_depth": 20},
    "more leaves than rows": {"max_depth": 0, "max_leaves": 5000, "min_child_weight": 0.0},
    "its leaves": {"max_depth": 0, "max_leaves": 12}, "two leaves": {"max_depth": 0, "max_leaves": 2},
    "one leaf": {"max_leaves": 1}, "depth and leaves": {"max_depth": 3, "max_leaves": 7}, "one level": {"max_depth": 1},
    **{
        name: {"max_depth": 0, "max_leaves": 20, **AT_ONCE[name]}
        for name in (
            "rows", "both", "classes", "vector leaves", "bounded vector leaves", "forest", "monotone", "two bytes", "pruned",
            "quantile leaves", "masks", "interactions", "no split", "dart",
        )
    },
}  # fmt: skip
CROSSED = [
    ("forest", "monotone", "masks"), ("both", "one thread's", "monotone"), ("classes", "forest", "interactions"),
    ("vector leaves", "rows", "pruned"), ("vector leaves", "by gradient", "masks"),
    *(
        ("vector leaves", "monotone", another)
        for another in ("columns", "masks", "interactions", "few leaves", "two bytes", "dart", "one thread's")
    ),
]  # fmt: skip
BY_STEPS = {
    "leaf by leaf, proposals": {"tree_method": "approx", "grow_policy": "lossguide"},
    "proposals": {"tree_method": "approx"}, "exact": {"tree_method": "exact"}, "little memory": {"histogram_memory": 10_000},
}  # fmt: skip


def table():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(N_ROWS, N_COLUMNS)).astype(np.float32)
    X[:, 3] = rng.integers(0, 100, N_ROWS)
    X[rng.random(X.shape) < 0.1] = np.nan
    y = np.nan_to_num(X[:, 0] + X[:, 1] * X[:, 2]) + X[:, 3] / 33 + rng.normal(size=N_ROWS)
    return X, np.nan_to_num(y)


def labels(params, y):
    return np.searchsorted([0.0, 1.0], y) if "num_class" in params else y


@pytest.fixture
def calls(monkeypatch):
    """What grow_at_once has answered, and whether it may do anything."""

    class Calls(list[bool]):
        allowed = True

    calls, grow = Calls(), CpuTrees.grow_at_once

    def counted(trees, *limits):
        calls.append(calls.allowed and grow(trees, *limits))
        return calls[-1]

    monkeypatch.setattr(CpuTrees, "grow_at_once", counted)
    monkeypatch.setattr(CpuTraining, "grow_rounds", lambda *_: [])  # which has them inside (test_rounds.py)
    return calls


def train(params, dtrain, rounds=3):
    return gb.train({"max_depth": 5, "seed": 3, **params}, dtrain, rounds, verbose_eval=False)


@pytest.mark.filterwarnings("ignore:the first round split no node")
@pytest.mark.parametrize("n_threads, by_subtrees", [(1, False), (1, True), (2, True)])
@pytest.mark.parametrize("params", AT_ONCE.values(), ids=AT_ONCE)
def test_one_call_grows_the_trees_of_the_steps(params, n_threads, by_subtrees, calls, use_backend, monkeypatch):
    """By levels, or below some depth by subtrees: the nodes have the same numbers."""
    check_call(params, n_threads, by_subtrees, calls, use_backend, monkeypatch)


@pytest.mark.filterwarnings("ignore:the first round split no node")
@pytest.mark.parametrize("n_threads", [1, 2, FOUR])
@pytest.mark.parametrize("params", BEST_FIRST.values(), ids=BEST_FIRST)
def test_leaf_by_leaf_it_grows_the_trees_of_the_steps(params, n_threads, calls, use_backend, monkeypatch):
    """Tree after tree on each thread; of fewer trees than threads, several leaves at once, ahead of those that are certain."""
    monkeypatch.setattr("gpuboost.backend.cpu.training.CODES_PER_THREAD", 1)
    check_call({"grow_policy": "lossguide", **params}, n_threads, False, calls, use_backend, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("n_threads, by_subtrees", [(1, False), (1, True), (2, True)])
@pytest.mark.parametrize("names", CROSSED, ids=", ".join)
def test_so_it_does_with_several_options(names, n_threads, by_subtrees, calls, use_backend, monkeypatch):
    params = {name: value for option in names for name, value in AT_ONCE[option].items()}
    check_call(params, n_threads, by_subtrees, calls, use_backend, monkeypatch)


def check_call(params, n_threads, by_subtrees, calls, use_backend, monkeypatch, make=None):
    """Train on what make() is, a table of numbers unless given, in one call and by steps, and compare. Returns a model."""
    monkeypatch.setattr("gpuboost.backend.cpu.trees.LEVELS_CACHE", 0 if by_subtrees else 2**30)
    monkeypatch.setattr("gpuboost.kernels.levels.PAIRS_PER_THREAD", 1)
    X, y = table()
    make = make or (lambda: gb.DMatrix(X, labels(params, y), weight=np.arange(N_ROWS) % 3 / 2))
    digests = set()
    for calls.allowed, threads in ((True, n_threads), (False, 1)):
        use_backend(CpuBackend(threads))
        digests.add(digest(model := train(params, make()).model))
        assert calls and all(answer == calls.allowed for answer in calls)
        calls.clear()
    assert len(digests) == 1
    return model


@pytest.mark.parametrize("params", BY_STEPS.values(), ids=BY_STEPS)
def test_what_it_has_no_step_for_is_grown_by_steps(params, calls):
    X, y = table()
    train(params, gb.DMatrix(X, y), 1)
    assert not any(calls)


@pytest.mark.parametrize("kind, params", [("pages", {}), ("pages", {"grow_policy": "lossguide"}), ("sparse", {})])
def test_tables_that_it_does_not_read_are_grown_by_steps(kind, params, calls):
    """The last levels of this sparse table would be walks (kernels/exact.py)."""
    X, y = table()
    train(params, gb.QuantileDMatrix(X, y, page_rows=300) if kind == "pages" else gb.DMatrix(sparse_table(), y), 1)
    assert calls and not any(calls)


def sparse_table():
    return scipy.sparse.random(N_ROWS, 300, 0.03, "csr", np.float32, np.random.default_rng(0))


OF_SPARSE = {
    name: {"max_leaves": 20, **AT_ONCE[name]}
    for name in ("plain", "rows", "columns", "both", "by gradient", "classes", "vector leaves", "forest", "pruned", "masks")
} | {
    "monotone": {"max_leaves": 20, "monotone_constraints": (1, -1, *298 * (0,))},
    "interactions": {"max_leaves": 20, "interaction_constraints": [list(range(150)), list(range(150, 300))]},
}  # fmt: skip


@pytest.mark.parametrize("n_threads", [1, 2, FOUR])
@pytest.mark.parametrize("absent", ["missing", "zero"])
@pytest.mark.parametrize("params", OF_SPARSE.values(), ids=OF_SPARSE)
def test_leaves_of_sparse_tables(params, absent, n_threads, calls, use_backend, monkeypatch):
    y = 5 * np.asarray(sparse_table()[:, :20].sum(axis=1)).ravel() + table()[1] / 3
    params, weight = {"grow_policy": "lossguide", **params}, np.arange(N_ROWS) % 3 / 2
    tables = []

    def make():
        tables.append(gb.DMatrix(sparse_table(), labels(params, y), weight=weight, sparse_absent=absent))
        return tables[-1]

    monkeypatch.setattr("gpuboost.backend.cpu.training.CODES_PER_THREAD", 1)
    check_call(params, n_threads, False, calls, use_backend, monkeypatch, make)
    assert all(dtrain.any_binned().representation is Representation.SPARSE for dtrain in tables)


@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("absent", ["missing", "zero"])
@pytest.mark.parametrize("params", [{"max_depth": 5}, {**CLASSES, "max_depth": 3}, {"subsample": 0.5, "colsample_bytree": 0.5}])
def test_levels_of_sparse_tables_that_are_no_walks(params, absent, n_threads, calls, use_backend, monkeypatch):
    monkeypatch.setattr("gpuboost.backend.cpu.trees.BIN_VISITS", 0)
    monkeypatch.setattr("gpuboost.backend.cpu.training.CODES_PER_THREAD", 1)
    y, tables = 5 * np.asarray(sparse_table()[:, :20].sum(axis=1)).ravel() + table()[1] / 3, []

    def make():
        weight = np.arange(N_ROWS) % 3 / 2
        tables.append(gb.DMatrix(sparse_table(), labels(params, y), weight=weight, sparse_absent=absent))
        return tables[-1]

    check_call(params, n_threads, True, calls, use_backend, monkeypatch, make)
    assert all(dtrain.any_binned().representation is Representation.SPARSE for dtrain in tables)


@pytest.mark.parametrize("n_threads", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("absent", ["missing", "zero"])
@pytest.mark.parametrize("params", [{}, {"subsample": 0.5, "colsample_bytree": 0.5}, CLASSES, {"colsample_bynode": 0.5},
                                    {"monotone_constraints": (1, -1, 1, *297 * (0,))}, {"min_child_weight": 0.0}])  # fmt: skip
@pytest.mark.parametrize("light_rows, is_refined", [(N_ROWS, False), (150, False), (10, False), (150, True)])
def test_nodes_of_few_rows(params, absent, light_rows, is_refined, n_threads, calls, use_backend, monkeypatch):
    """All nodes but roots are light, or some, or few; with stored cells that are missing, and values that repeat."""
    X, rng = sparse_table(), np.random.default_rng(8)
    X.data = np.where(rng.random(X.nnz) < 0.1, np.nan, np.ceil(8 * X.data) - 4).astype(np.float32)
    y = 5 * np.nansum(X[:, :20].toarray(), axis=1) + table()[1]
    weight = 10.0 ** rng.uniform(-6, 6, N_ROWS) if is_refined else np.arange(N_ROWS) % 3 / 2
    tables, usual_rows, n_light, find_rows, grow = [], [], [], CpuTrees._light_rows, CpuTrees.grow_at_once

    def make():
        tables.append(gb.DMatrix(X, labels(params, y), weight=weight, sparse_absent=absent))
        return tables[-1]

    monkeypatch.setattr("gpuboost.backend.cpu.training.CODES_PER_THREAD", 1)
    def given_rows(trees):
        usual_rows.append(find_rows(trees))
        return light_rows

    def watched(trees, *limits):
        is_grown, found = grow(trees, *limits), trees.arrays.nodes[: trees.arrays.n_nodes]
        if is_grown:
            n_light.append(((found["slot"] < 0) & (found["gain"] > NO_GAIN)).sum())
            most_held = max(1, N_ROWS // (light_rows + 1)) * max(n_threads, len(trees.first_output))
            assert found["slot"].max() < len(trees._hist) <= most_held
        return is_grown

    monkeypatch.setattr(CpuTrees, "_light_rows", given_rows)
    monkeypatch.setattr(CpuTrees, "grow_at_once", watched)
    params = {"grow_policy": "lossguide", "max_leaves": 25, "max_depth": 0, **params}
    model = check_call(params, n_threads, False, calls, use_backend, monkeypatch, make)
    assert all(dtrain.any_binned().representation is Representation.SPARSE for dtrain in tables)
    assert max(tree.n_leaves for tree in model.trees) > 10 and min(usual_rows) > 0
    assert sum(n_light) > 0 or light_rows == 10


@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("grow_policy", ["depthwise", "lossguide"])
def test_sets_of_sparse_tables(grow_policy, n_threads, calls, use_backend, monkeypatch):
    """Of columns of categories a sparse table has no sorted columns to walk."""
    X = sparse_table()
    X.data = np.floor(30 * X.data)
    y = 5 * (X[:, :10].toarray() % 3 == 1).sum(axis=1) + table()[1] / 3
    types, tables = ["c"] * 10 + ["float"] * 290, []

    def make():
        tables.append(gb.DMatrix(X, y, feature_types=types))
        return tables[-1]

    monkeypatch.setattr("gpuboost.backend.cpu.training.CODES_PER_THREAD", 1)
    params = {"grow_policy": grow_policy, "max_leaves": 20, "cat_noise": 0.0}
    model = check_call(params, n_threads, False, calls, use_backend, monkeypatch, make)
    assert any(tree.sets is not None for tree in model.trees) and tables[0].any_binned().is_sparse


def test_trees_of_more_nodes_than_there_is_room_for_are_grown_by_steps(calls, use_backend, monkeypatch):
    use_backend(CpuBackend(1))
    X, y = table()
    monkeypatch.setattr("gpuboost.backend.cpu.trees.WHOLE_NODES", 40)
    for grow_policy in ("depthwise", "lossguide"):
        train({"grow_policy": grow_policy, "max_depth": 0, "max_leaves": 21}, gb.DMatrix(X, y), 1)
        assert calls == [False]
        train({"grow_policy": grow_policy, "max_depth": 0, "max_leaves": 20}, gb.DMatrix(X, y), 1)
        assert calls == [False, True]
        calls.clear()


OF_SETS = {
    "sets": {}, "bins": {"max_bin": 400},
    **{
        name: AT_ONCE[name]
        for name in (
            "rows", "columns", "both", "classes", "vector leaves", "forest", "few leaves", "no depth", "monotone", "pruned",
            "masks", "interactions", "one thread's", "no split", "dart", "quantile leaves",
        )
    },
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:the first round split no node")
@pytest.mark.parametrize("n_threads, by_subtrees", [(1, False), (2, True), pytest.param(1, True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("grow_policy", ["depthwise", "lossguide"])
@pytest.mark.parametrize("params", OF_SETS.values(), ids=OF_SETS)
def test_sets_of_categories(params, grow_policy, n_threads, by_subtrees, calls, use_backend, monkeypatch):
    """A column of 100 categories, which sets of several split, and one of three, of which one is split off."""
    X, y = table()
    X[:, 4] = np.digitize(X[:, 4], [-0.5, 0.5])
    y = y + (X[:, 3] % 7 == 2) * 2 + (X[:, 4] == 1)
    params = {"grow_policy": grow_policy, **params}
    monkeypatch.setattr("gpuboost.backend.cpu.training.CODES_PER_THREAD", 1)

    def make():
        types = ["float"] * 3 + ["c", "c"]
        return gb.DMatrix(X, labels(params, np.nan_to_num(y)), weight=np.arange(N_ROWS) % 3 / 2, feature_types=types)

    model = check_call(params, n_threads, by_subtrees, calls, use_backend, monkeypatch, make)
    assert any(tree.sets is not None for tree in model.trees) or params.get("min_child_weight") == 1e6


def one_hot(n_rows, is_sparse):
    """Eight categories of five values each, and what depends on three of them: records of groups of columns."""
    rng = np.random.default_rng(6)
    codes = rng.integers(0, 5, (n_rows, 8))
    X = np.eye(5, dtype=np.float32)[codes].reshape(n_rows, 40)
    y = codes[:, 0] * (codes[:, 1] > 2) + np.sin(codes[:, 5]) + rng.normal(size=n_rows) / 2
    return scipy.sparse.csr_matrix(X) if is_sparse else X, y


PACKED = {
    "plain": {}, "rows": {"subsample": 0.5}, "columns": {"colsample_bytree": 0.5}, "masks": {"colsample_bynode": 0.5},
    "classes": CLASSES, "monotone": {"monotone_constraints": (1, -1) + 38 * (0,)}, "pruned": {"gamma": 2.0},
    "deep": {"max_depth": 12}, "forest": {"num_parallel_tree": 3, "subsample": 0.6},
    "leaves": {"grow_policy": "lossguide", "max_depth": 0, "max_leaves": 20},
    "leaves of classes": {"grow_policy": "lossguide", "max_depth": 0, "max_leaves": 9, **CLASSES},
}  # fmt: skip


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("n_threads, by_subtrees", [(1, False), (1, True), (2, True)])
@pytest.mark.parametrize("params", PACKED.values(), ids=PACKED)
def test_packed_records(params, n_threads, by_subtrees, is_sparse, calls, use_backend, monkeypatch):
    monkeypatch.setattr("gpuboost.backend.cpu.trees.LEVELS_CACHE", 0 if by_subtrees else 2**30)
    monkeypatch.setattr("gpuboost.kernels.levels.PAIRS_PER_THREAD", 1)
    X, y = one_hot(6000, is_sparse)
    digests = set()
    for calls.allowed, threads in ((True, n_threads), (False, 1)):
        use_backend(CpuBackend(threads))
        dtrain = gb.DMatrix(X, labels(params, y), weight=np.arange(len(y)) % 3 / 2)
        digests.add(digest(train({"max_depth": 4, **params}, dtrain).model))
        assert calls and all(answer == calls.allowed for answer in calls)
        calls.clear()
    assert len(digests) == 1


def test_packed_records_of_two_limbs_are_added_up_step_by_step(calls):
    X, y = one_hot(6000, True)
    train({}, gb.DMatrix(X, y, weight=np.where(y > 3, 1e6, 1.0)))
    assert calls and not any(calls)


@pytest.mark.parametrize("max_depth, is_whole", [(9, True), (11, False)])
def test_trees_of_packed_records_with_few_rows_in_a_node_are_grown_step_by_step(max_depth, is_whole, calls):
    X, y = one_hot(2**16, True)
    train({"max_depth": max_depth, "min_child_weight": 50}, gb.DMatrix(X, y, weight=(np.arange(len(y)) > 0) / 2), 1)
    assert calls and all(answer == is_whole for answer in calls)


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("n_threads", [1, 2, FOUR])
@pytest.mark.parametrize("params", [{}, {"grow_policy": "lossguide", "max_leaves": 9}, CLASSES])
def test_more_packed_rows_than_packed_sums_hold(params, n_threads, is_sparse, calls, use_backend):
    """Nodes whose sums come in several parts, one after another or side by side. With weights just below a power of two, and
    gradients of one sign, both halves of a packed sum of 65,536 rows come near their ends."""
    X, y = one_hot(2**17 + 999, is_sparse)
    digests = set()
    for calls.allowed, threads in ((True, n_threads), (False, 1)):
        use_backend(CpuBackend(threads))
        dtrain = gb.DMatrix(X, labels(params, y), weight=(np.arange(len(y)) % 50 > 0) * 0.999)
        digests.add(digest(train({"max_depth": 4, "base_score": 9 if params != CLASSES else None, **params}, dtrain, 2).model))
        assert calls and all(answer == calls.allowed for answer in calls)
        calls.clear()
    assert len(digests) == 1


def test_a_tie_between_directions_goes_to_the_lower_bin(calls):
    """Rows of gradient −1, 0, 1 at three values, and missing ones of 0: the first value alone gains what all but the last do."""
    X = np.random.default_rng(7).random((400, 6)).astype(np.float32)
    X[:, 0], y = np.tile([0, 1, 2, np.nan], 100), np.tile([1, 0, -1, 0], 100)
    params = {"max_depth": 1, "base_score": 0, "reg_lambda": 0, "min_child_weight": 0}
    for calls.allowed in (True, False):
        (tree,) = train(params, gb.DMatrix(X, y), 1).model.trees
        assert (tree.feature[0], tree.threshold[0] <= 1, tree.default_left[0]) == (0, True, 0)
    assert calls == [True, False]


def test_workers_exchange_between_the_steps(calls):
    X, y = table()
    alone = digest(train({}, gb.DMatrix(X, y)).model)
    assert all(calls)
    calls.clear()
    rows = slice(0, 300), slice(300, N_ROWS)
    together = run_threads(2, lambda rank: digest(train({}, gb.DMatrix(X[rows[rank]], y[rows[rank]])).model))
    assert set(together) == {alone} and not calls


def test_a_larger_tree_after_a_smaller_one_finds_room(calls):
    """max_depth may change between rounds."""
    X, y = table()
    digests = set()
    for calls.allowed in (True, False):
        booster, dtrain = gb.Booster({"max_depth": 2}), gb.DMatrix(X, y)
        for depth in (2, 6, 3, 20, 5):
            booster.set_param({"max_depth": depth})
            booster.update(dtrain)
        digests.add(digest(booster.model))
    assert len(digests) == 1


@pytest.fixture
def packs(monkeypatch):
    """Whether the histograms of each round were packed."""
    packs, histograms = list[bool](), CpuTrees._whole_histograms

    def noted(*args):
        hist = histograms(*args)
        packs.append(hist.ndim == 3)
        return hist

    monkeypatch.setattr(CpuTrees, "_whole_histograms", noted)
    return packs


@pytest.mark.parametrize(
    "n_columns, is_packed", [(4, False), (5, True), (9, True), (27, True), (32, True), (33, True), (90, True)]
)
@pytest.mark.parametrize("n_threads", [1, 3])
def test_packed_histograms_of_one_word_and_more(n_columns, is_packed, n_threads, calls, packs, use_backend):
    """Nodes, or their words where nodes are few, are shared out to threads."""
    rng = np.random.default_rng(n_columns)
    X = rng.normal(size=(N_ROWS, n_columns)).astype(np.float32)
    X[rng.random(X.shape) < 0.1] = np.nan
    y, digests = np.nan_to_num(X).sum(axis=1), set()
    for calls.allowed, threads in ((True, n_threads), (False, 1)):
        use_backend(CpuBackend(threads))
        digests.add(digest(train({}, gb.DMatrix(X, y)).model))
    assert len(digests) == 1 and packs == [is_packed] * 3


@pytest.mark.parametrize("n_threads", [2, 3, FOUR])
@pytest.mark.parametrize("params", [{}, CLASSES, {"max_bin": 300}])
def test_threads_part_early_where_histograms_are_large(params, n_threads, calls, use_backend, monkeypatch):
    X, y = table()
    depths, digests = [], set()
    depth_of = CpuTrees._first_depth
    monkeypatch.setattr(CpuTrees, "_first_depth", lambda *args: depths.append(depth_of(*args)) or depths[-1])
    for memory, threads in ((0, n_threads), (2**30, n_threads), (0, 1)):
        monkeypatch.setattr("gpuboost.backend.cpu.trees.NEAR_MEMORY", memory)
        use_backend(CpuBackend(threads))
        digests.add(digest(train({**params, "max_depth": 7}, gb.DMatrix(X, labels(params, y)), 1).model))
    n_trees = params.get("num_class", 1)
    early, usual, alone = depths
    assert len(digests) == 1 and alone == 1
    assert n_trees << (early - 1) >= n_threads and (early == 1 or n_trees << (early - 2) < n_threads)
    assert n_trees << (usual - 1) >= 8 * n_threads


@pytest.mark.parametrize("n_rows, is_packed", [(2**16 - 1, True), (2**16, False)])
@pytest.mark.parametrize("sign", [1, -1])
def test_packed_sums_hold_the_largest_gradients_of_the_most_rows(n_rows, is_packed, sign, calls, packs):
    """Gradients next to 2^15 units, hessians next to 2^16, all in a bin but two: none may reach the other half or the sign."""
    X = np.repeat(np.arange(n_rows, dtype=np.float32)[:, None] % 256, 7, axis=1)  # so many bins that packing is worth it
    X[:, :2] = 0
    X[:2, :2] = [[1, 0], [1, 1]]
    y, weight = np.full(n_rows, sign * 0.99999, np.float32), np.full(n_rows, 1.99999, np.float32)
    y[:2] = 0, -y[2]
    params = {"base_score": 0, "learning_rate": 1e-3, "max_depth": 3, "min_child_weight": 0}
    models = [train(params, gb.DMatrix(X, y, weight=weight)).model for calls.allowed in (True, False)]
    assert digest(models[0]) == digest(models[1]) and packs == [is_packed] * 3
    assert [tree.n_leaves for tree in models[0].trees] == [3] * 3


def test_two_limbs_do_not_pack(calls, packs):
    X, y = (array[:FINE_ROWS] for array in table())
    digests = {digest(train({}, gb.DMatrix(X, y)).model) for calls.allowed in (True, False)}
    assert len(digests) == 1 and packs == [False] * 3


@pytest.mark.parametrize("n_threads, further, capacity, expected", [
    (1, 2**30, None, 6), (2, 2**30, None, 32), (2, 0, None, 18), (2, 2**30, 25, 25), (2, 20, None, 20),
])  # fmt: skip
def test_how_many_histograms_are_held(n_threads, further, capacity, expected, use_backend, monkeypatch):
    """Of depth 6: a level's each below the first, of one thread; of two those of the first five levels and one each; or as many
    as further levels take, up to so many, and up to what the user allows."""
    X, y = table()
    dtrain, held, hold = gb.DMatrix(X, y), [], CpuTrees._whole_histograms
    monkeypatch.setattr(CpuTrees, "_whole_histograms", lambda self, n, words: held.append(n) or hold(self, n, words))
    gb.train({"max_depth": 6}, dtrain, 1)
    n_bytes = 16 * dtrain.any_binned().cuts.total_bins
    monkeypatch.setattr("gpuboost.backend.cpu.trees.FURTHER_MEMORY", further if further == 2**30 else further * n_bytes)
    monkeypatch.setattr("gpuboost.backend.cpu.trees.LEVELS_CACHE", 0)
    monkeypatch.setattr("gpuboost.backend.cpu.training.CODES_PER_THREAD", 1)
    use_backend(CpuBackend(n_threads))
    gb.train({"max_depth": 6, **({} if capacity is None else {"histogram_memory": capacity * n_bytes})}, dtrain, 1)
    assert held[1:] == [expected]
