"""Whole trainings that sample columns by level and node, or constrain which may meet: one model, and no forbidden path."""

import json

import numpy as np
import pytest
import scipy.sparse
from naive_backend import NaiveBackend
from simulator import SimulatedDevice

import gpuboost as gb
from gpuboost.backend.cpu.trees import CpuTrees
from gpuboost.backend.cuda import CudaBackend
from gpuboost.communicator import run_threads
from gpuboost.model_io import digest
from gpuboost.sklearn import GPUBoostRegressor

pytestmark = pytest.mark.long

N_FEATURES = 12
NAMES = [f"column {f}" for f in range(N_FEATURES)]
SETS = [[0, 1, 2], [2, 3, 4, 5], [5, 6], [7, 8, 0]]  # 9, 10 and 11 are in none
WEIGHTS = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0.5, 0]
MASKS = {
    "level": {"colsample_bylevel": 0.5},
    "node": {"colsample_bynode": 0.4},
    "weighted": {"colsample_bylevel": 0.7, "colsample_bynode": 0.6, "feature_weights": WEIGHTS},
    "sets": {"interaction_constraints": SETS},
    "all": {"colsample_bylevel": 0.8, "colsample_bynode": 0.8, "feature_weights": WEIGHTS, "interaction_constraints": SETS},
}
DRAWS = {  # of rows and of whole columns
    "tree": {"colsample_bytree": 0.5},
    "tree and node": {"colsample_bytree": 0.8, "colsample_bynode": 0.7, "feature_weights": WEIGHTS},
    "rows": {"subsample": 0.6},
    "rows by gradient": {"subsample": 0.6, "sampling_method": "gradient_based", "colsample_bytree": 0.8},
}
METHODS = {
    "hist": {},
    "approx": {"tree_method": "approx", "max_bin": 6},
    "local": {"tree_method": "approx", "max_bin": 6, "sketch_proposals": "local"},
    "lossguide": {"grow_policy": "lossguide", "max_depth": 0, "max_leaves": 9},
    "lossguide to a depth": {"grow_policy": "lossguide", "max_depth": 3},
    "classes": {"objective": "multi:softprob", "num_class": 3, "max_depth": 3},
    "exact": {"tree_method": "exact"},
}
ROUNDS = 2


def make(n_rows=220, seed=0):
    """(X, y): every column tells something, some values are missing, one column is mostly zero."""
    rng = np.random.default_rng(seed)
    X = np.round(rng.normal(size=(n_rows, N_FEATURES)), 1)
    y = (X + X * np.roll(X, 1, axis=1)).sum(axis=1) + rng.normal(size=n_rows)
    X[rng.random(X.shape) < 0.1] = np.nan
    X[rng.random(n_rows) < 0.8, 3] = 0.0
    return X.astype(np.float32), y.astype(np.float32)


def labels_for(params, y):
    return np.digitize(y, [-2, 2]) if "num_class" in params else y


def train(params, X=None, y=None, rounds=ROUNDS, **info):
    X, y = make() if X is None else (X, y)
    dtrain = gb.DMatrix(X, labels_for(params, y), **info)
    return gb.train({"max_depth": 4, "max_bin": 12, "seed": 5, **params}, dtrain, rounds, verbose_eval=False)


def paths(model):
    """For every split node of every tree: (tree, features above it from the root on, its own feature)."""
    for t, tree in enumerate(model.trees):
        above = {0: ()}
        for node in range(tree.n_nodes):
            if (left := tree.left_child[node]) >= 0:
                feature = int(tree.feature[node])
                yield t, above[node], feature
                above[left] = above[left + 1] = (*above[node], feature)


def may_follow(feature, above, sets=SETS):
    """The rule in words of sets: at the root anything; else what is on the path, or in a set that holds all of it."""
    return not above or feature in above or any({feature, *above} <= set(group) for group in sets)


# ---- one model


@pytest.mark.sweep(16)
@pytest.mark.parametrize("drawn", [*MASKS, *DRAWS])
@pytest.mark.parametrize("method", METHODS)
def test_kernels_and_plain_loops_agree(method, drawn, use_backend):
    """Exact search puts its thresholds elsewhere between the same values: rows not drawn may end in other leaves."""
    params = {**METHODS[method], **(MASKS | DRAWS)[drawn]}
    rounds = 1 if method == "exact" and "subsample" in params else ROUNDS
    expected = train(params, rounds=rounds).model
    assert digest(expected) != digest(train(METHODS[method]).model)
    use_backend(NaiveBackend())
    if method != "exact":
        assert digest(train(params).model) == digest(expected)
    else:
        naive = train({**params, "tree_method": "hist", "max_bin": 4000}, rounds=rounds).model
        assert list(paths(naive)) == list(paths(expected))
        assert [tree.leaf_value.tobytes() for tree in naive.trees] == [tree.leaf_value.tobytes() for tree in expected.trees]


@pytest.mark.sweep(2)
@pytest.mark.parametrize("method, mask, rounds", [
    *[("hist", mask, 1) for mask in MASKS], ("hist", "weighted", 2),
    *[(method, "all", 1) for method in ("approx", "local", "lossguide", "lossguide to a depth", "classes")],
])  # fmt: skip
def test_cuda_agrees(method, mask, rounds, use_backend):
    params = {**METHODS[method], **MASKS[mask], "max_depth": min(METHODS[method].get("max_depth", 3), 3), "max_bin": 6}
    expected = digest(train(params, *make(101), rounds).model)
    use_backend(CudaBackend(SimulatedDevice(block=64, n_multiprocessors=2)))
    assert digest(train(params, *make(101), rounds).model) == expected


@pytest.mark.sweep(1)
@pytest.mark.parametrize("at_once", [1, 3])
def test_cuda_with_masks_of_few_nodes_at_once(at_once, use_backend, monkeypatch):
    expected = digest(train({**MASKS["all"], "max_depth": 3}, rounds=1).model)
    monkeypatch.setattr("gpuboost.backend.cuda.plan.GAINS_BYTES", at_once * 12 * N_FEATURES)
    use_backend(CudaBackend(SimulatedDevice()))
    assert digest(train({**MASKS["all"], "max_depth": 3}, rounds=1).model) == expected


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("method", ["hist", "approx", "lossguide", "classes"])
def test_workers_batches_and_threads_change_nothing(method, mask):
    params = {**METHODS[method], **MASKS[mask]}
    X, y = make(400)
    expected = digest(train(params, X, y).model)
    shards = [slice(0, 90), slice(90, None)]
    assert run_threads(2, lambda rank: digest(train(params, X[shards[rank]], y[shards[rank]]).model)) == [expected] * 2
    assert digest(train({**params, "histogram_memory": 1}, X, y).model) == expected
    assert digest(train({**params, "nthread": 1}, X, y).model) == expected


@pytest.mark.sweep(5)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("density", [0.05, 0.4])
def test_sparse_tables_equal_dense_ones(density, mask, use_backend, monkeypatch):
    """All levels walked by columns; or the roots by histograms, which are less work there."""
    n_walks, walk_columns = 0, CpuTrees.walk_columns

    def walk(self):
        nonlocal n_walks
        n_walks += 1
        walk_columns(self)

    monkeypatch.setattr(CpuTrees, "walk_columns", walk)
    monkeypatch.setattr("gpuboost.backend.cpu.trees.BIN_VISITS", 8)
    X, y = make(200)
    X = np.where(np.random.default_rng(1).random(X.shape) < density, np.where(np.isnan(X), 1, X), 0).astype(np.float32)
    y = y + 3 * X.sum(axis=1)
    sparse = scipy.sparse.csr_matrix(X)
    params = {**MASKS[mask], "max_depth": 3}
    expected, first = (digest(train(params, X, y, rounds, sparse_absent="zero").model) for rounds in (2, 1))
    assert digest(train(params, sparse, y, 2, sparse_absent="zero").model) == expected
    assert n_walks == (6 if density < 0.1 else 4)  # three levels of two trees
    if mask == "all":
        use_backend(CudaBackend(SimulatedDevice()))
        assert digest(train(params, sparse, y, 1, sparse_absent="zero").model) == first


def test_few_rows_of_exact_search_and_histograms_agree():
    """A bin for every value, so that the candidates are the same."""
    X, y = make(300)
    for mask in MASKS.values():
        by_search = [train({**mask, "tree_method": m, "max_bin": 4000}, X, y).model for m in ("exact", "hist")]
        assert [list(paths(m)) for m in by_search[:1]] == [list(paths(m)) for m in by_search[1:]]


# ---- what is drawn


@pytest.mark.parametrize("share, n", [(0.25, 3), (0.5, 6), (0.01, 1)])
def test_a_level_splits_on_no_more_features_than_it_draws(share, n):
    by_level, by_node = {}, {}
    for draws, name in ((by_level, "colsample_bylevel"), (by_node, "colsample_bynode")):
        model = train({name: share, "max_depth": 5}, *make(2000), rounds=10).model
        for t, above, feature in paths(model):
            draws.setdefault((t, len(above)), set()).add(feature)
    assert max(map(len, by_level.values())) == n
    assert len({frozenset(s) for s in by_level.values()}) > 5  # levels, trees and rounds differ
    assert max(map(len, by_node.values())) > n


def test_features_of_weight_zero_are_drawn_last():
    for name in ("colsample_bylevel", "colsample_bynode"):
        used = {f for *_, f in paths(train({name: 0.8, "feature_weights": WEIGHTS}, *make(600), rounds=20).model)}
        assert used == set(range(1, 11))


def test_weights_of_the_table_and_of_the_parameters():
    sampling = {"colsample_bynode": 0.3}
    expected = digest(train({**sampling, "feature_weights": WEIGHTS}).model)
    assert digest(train(sampling, feature_weights=WEIGHTS).model) == expected
    assert digest(train({**sampling, "feature_weights": np.array(WEIGHTS)}, feature_weights=WEIGHTS[::-1]).model) == expected
    assert digest(train(sampling, feature_weights=WEIGHTS[::-1]).model) != expected
    equal = digest(train(sampling).model)
    assert equal != expected
    assert digest(train({**sampling, "feature_weights": [3] * N_FEATURES}).model) == equal
    assert digest(train({"feature_weights": WEIGHTS}).model) == digest(train({}).model)  # nothing is drawn


def test_weights_given_to_fit_are_those_of_the_parameter():
    X, y = make()
    fitted = [
        gb.GPUBoostRegressor(n_estimators=2, colsample_bynode=0.3, **own).fit(X, y, feature_weights=given)
        for own, given in (({"feature_weights": WEIGHTS}, None), ({}, WEIGHTS), ({}, None))
    ]
    of_parameter, of_fit, of_none = (digest(model.get_booster().model) for model in fitted)
    assert of_parameter == of_fit != of_none


def test_workers_must_weigh_features_alike():
    X, y = make()

    def work(rank):
        return train({"colsample_bynode": 0.3}, X[rank::2], y[rank::2], feature_weights=np.arange(N_FEATURES) + rank)

    with pytest.raises(ValueError, match="the workers' tables differ in feature_weights. Give"):
        run_threads(2, work)


def test_a_first_round_that_draws_a_constant_column_only_says_nothing(recwarn):
    X, y = make()
    X[:, 1:] = 7.0
    model = train({"colsample_bylevel": 0.01}, X, y, rounds=5).model
    assert model.trees[0].n_leaves == 1
    assert not recwarn


def test_the_seed_changes_what_is_drawn():
    assert len({digest(train({"colsample_bynode": 0.5, "seed": seed}).model) for seed in range(5)}) == 5


# ---- what may meet


@pytest.mark.parametrize("method", METHODS)
def test_no_path_mixes_what_may_not_meet(method):
    params = {"max_depth": 6, **METHODS[method], "min_child_weight": 0}
    found = list(paths(train({**params, "interaction_constraints": SETS}, *make(2000), rounds=15).model))
    assert [p for p in found if not may_follow(p[2], p[1])] == []
    assert [p for p in paths(train(params, *make(2000)).model) if not may_follow(p[2], p[1])]  # else there are some
    assert len({feature for _, above, feature in found if not above}) > 3


def test_a_feature_in_no_set_splits_the_root_and_then_itself():
    X, y = make(2000)
    y = 30 * np.sin(3 * np.nan_to_num(X[:, 10])) + y / 10
    found = list(paths(train({"interaction_constraints": SETS, "max_depth": 5}, X, y, rounds=1).model))
    assert {(above[:1], feature) for _, above, feature in found if above} == {((10,), 10)}
    assert len(found) > 5


NAMED = [[NAMES[f] for f in group] for group in SETS]


@pytest.mark.parametrize("given", [
    SETS, [tuple(s) for s in SETS], [set(s) for s in SETS], str(SETS), NAMED, json.dumps(NAMED), str(NAMED),
    [[NAMES[0], 1, 2], *SETS[:0:-1]],
], ids=["lists", "tuples", "sets", "text", "names", "JSON of names", "text of names", "mixed, in another order"])  # fmt: skip
def test_sets_may_be_written_in_many_ways(given):
    expected = digest(train({"interaction_constraints": SETS}, feature_names=NAMES).model)
    assert digest(train({"interaction_constraints": given}, feature_names=NAMES).model) == expected


@pytest.mark.parametrize("params, message", [
    ({"interaction_constraints": [[0, 12]]}, "interaction_constraints names column 12, but the table's are 0 to 11. Use one"),
    ({"interaction_constraints": [[-1]]}, "names column -1, but"),
    ({"interaction_constraints": [["colum 3"]]}, "'colum 3', which the table does not have. Did you mean 'column 3'?"),
    ({"interaction_constraints": [["zzz"]]}, "'zzz', which the table does not have. It has "),
    ({"feature_weights": [1, 2]}, r"feature_weights must hold one number per column \(12\), got 2"),
    ({"feature_weights": [0] * 12}, "feature_weights are all 0: no column could be drawn. Give"),
])  # fmt: skip
def test_what_does_not_fit_the_table_is_refused(params, message):
    with pytest.raises(ValueError, match=message):
        train(params, feature_names=NAMES)


def test_columns_without_names_have_those_of_xgboost():
    with pytest.raises(ValueError, match="names column 'age', which the table does not have. It has 'f0', 'f1'"):
        train({"interaction_constraints": [["age"]]})


@pytest.mark.parametrize("seed", range(12))
def test_xgboost_grows_the_same_trees(seed):
    """On tables without ties every split is the best allowed one, so equal trees mean equal rules."""
    xgboost = pytest.importorskip("xgboost")
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(400, 8)).astype(np.float32), rng.normal(size=400).astype(np.float32)
    y += X[:, 0] * X[:, 5] + X[:, 6]
    sets = [rng.choice(8, rng.integers(1, 5), replace=False).tolist() for _ in range(rng.integers(1, 4))]
    params = {"max_depth": 4, "tree_method": "exact", "base_score": 0.0, "interaction_constraints": sets, "min_child_weight": 5}
    theirs = xgboost.train({**params, "interaction_constraints": str(sets)}, xgboost.DMatrix(X, y), 3)
    their_paths = list(paths(gb.Booster(model_file=bytes(theirs.save_raw("json"))).model))
    assert [p for p in their_paths if not may_follow(p[2], p[1], sets)] == []
    own = gb.train(params, gb.DMatrix(X, y), 3, verbose_eval=False)
    assert sorted(paths(own.model)) == sorted(their_paths)


# ---- scikit-learn


@pytest.mark.parametrize("mask", MASKS)
def test_estimators_hand_them_on(mask):
    X, y = make()
    estimator = GPUBoostRegressor(n_estimators=ROUNDS, max_depth=4, max_bin=12, random_state=5, **MASKS[mask]).fit(X, y)
    assert digest(estimator.get_booster().model) == digest(train(MASKS[mask]).model)
