"""Whole trainings on samples of rows and columns: one model however the work is laid out, and what is drawn."""

import numpy as np
import pytest
import scipy.sparse
from naive_backend import NaiveBackend
from simulator import SimulatedDevice
from sixteen_threads import on_16_threads

import gpuboost as gb
from gpuboost.backend.cpu import trees as cpu_trees
from gpuboost.backend.cuda import CudaBackend
from gpuboost.communicator import run_threads
from gpuboost.data import binning as binned_module
from gpuboost.data import packing as packing_module
from gpuboost.model_io import digest
from gpuboost.sklearn import GPUBoostRegressor

pytestmark = pytest.mark.long

N_FEATURES = 12
BY_GRADIENT = {"sampling_method": "gradient_based"}
SAMPLES = {
    "rows": {"subsample": 0.6},
    "rows by gradient": {"subsample": 0.4, **BY_GRADIENT},
    "columns": {"colsample_bytree": 0.5},
    "both": {"subsample": 0.7, "colsample_bytree": 0.5},
    "all": {
        "subsample": 0.5, **BY_GRADIENT, "colsample_bytree": 0.7, "colsample_bylevel": 0.8, "colsample_bynode": 0.8,
        "feature_weights": [*range(N_FEATURES - 1), 0],
    },
}  # fmt: skip
METHODS = {
    "hist": {},
    "approx": {"tree_method": "approx", "max_bin": 6},
    "local": {"tree_method": "approx", "max_bin": 6, "sketch_proposals": "local"},
    "lossguide": {"grow_policy": "lossguide", "max_depth": 0, "max_leaves": 9},
    "classes": {"objective": "multi:softprob", "num_class": 3, "max_depth": 3},
    "targets": {"max_depth": 3},
    "loud": {"objective": "binary:logistic", "gamma": 1.0},
    "custom": {"max_depth": 3},
    "exact": {"tree_method": "exact"},
}
ROUNDS = 3


def make(n_rows=260, seed=0, method="hist"):
    """(X, label, weight): every column tells something; some values are missing; one column is mostly zero; some rows weigh 0."""
    rng = np.random.default_rng(seed)
    X = np.round(rng.normal(size=(n_rows, N_FEATURES)), 1)
    y = (X + X * np.roll(X, 1, axis=1)).sum(axis=1) + rng.normal(size=n_rows)
    X[rng.random(X.shape) < 0.1] = np.nan
    X[rng.random(n_rows) < 0.8, 3] = 0.0
    weight = 10.0 ** (6.0 * rng.random(n_rows) ** 6) if method == "loud" else rng.integers(1, 5, n_rows) / 2.0
    weight[rng.random(n_rows) < 0.1] = 0.0
    y = {"classes": np.digitize(y, [-2, 2]), "loud": y > 0, "targets": np.stack([y, -y * np.abs(y)], axis=1)}.get(method, y)
    return X.astype(np.float32), np.asarray(y, np.float32), weight.astype(np.float32)


def quartic(prediction, dtrain):
    """Gradients of many sizes; those of weights are the trainer's."""
    residual = prediction - dtrain.get_label()
    return residual**3 / 10, 1 + residual**2


def train(method, sample, table=None, rounds=ROUNDS, matrix=gb.DMatrix, info=None, **changes):
    """The model of a table (X, label, weight)."""
    X, label, weight = make(method=method) if table is None else table
    dtrain = matrix(X, label, weight=weight, **(info or {}))
    params = {"max_depth": 4, "max_bin": 12, "seed": 5, **METHODS[method], **SAMPLES.get(sample, {}), **changes}
    xgb_model = params.pop("xgb_model", None)
    obj = quartic if method == "custom" else None
    return gb.train(params, dtrain, rounds, obj=obj, xgb_model=xgb_model, verbose_eval=False)


def model_digest(*arguments, **options):
    model = train(*arguments, **options).model
    assert min(tree.n_leaves for tree in model.trees) >= 2
    return digest(model)


def take(table, rows):
    return tuple(part[rows] for part in table)


# ---- one model

each_sample = pytest.mark.parametrize("sample", SAMPLES)
each_method = pytest.mark.parametrize("method", METHODS)
some_methods = pytest.mark.parametrize("method", ["hist", "approx", "lossguide", "classes", "loud", "custom"])


def shapes(model):
    """Features, thresholds' order aside, and leaves of every tree."""
    return [(tree.left_child.tolist(), tree.feature.tolist(), tree.leaf_value.tobytes()) for tree in model.trees]


@pytest.mark.sweep(12)
@each_sample
@each_method
def test_kernels_and_plain_loops_agree(method, sample, use_backend):
    """Exact search puts its thresholds elsewhere between the same values, where rows not drawn may lie: one round is compared."""
    rounds = 1 if method == "exact" else ROUNDS
    expected = train(method, sample, rounds=rounds).model
    assert digest(expected) != digest(train(method, None, rounds=rounds).model)
    use_backend(NaiveBackend())
    if method == "exact":
        assert shapes(train(method, sample, rounds=rounds, tree_method="hist", max_bin=4000).model) == shapes(expected)
    else:
        assert digest(train(method, sample).model) == digest(expected)


@pytest.mark.sweep(2)
@each_sample
def test_threads(sample, tmp_path):
    """Several chunks for every loop."""
    tables = {method: make(9000, method=method) for method in ("hist", "classes")}
    expected = [model_digest(method, sample, table, nthread=1) for method, table in tables.items()]
    assert [model_digest(method, sample, table, nthread=2) for method, table in tables.items()] == expected
    params = {"max_depth": 4, "max_bin": 12, "seed": 5, **SAMPLES[sample]}
    assert on_16_threads(tmp_path, [({**params, **METHODS[method]}, tables[method]) for method in tables], ROUNDS) == expected


@pytest.mark.sweep(8)
@each_sample
@some_methods
def test_pages_memory_and_rows_of_zero_weight(method, sample):
    table = make(500, method=method)
    expected = model_digest(method, sample, table)
    max_bin = gb.params.parse_params(METHODS[method] | {"max_bin": METHODS[method].get("max_bin", 12)}).table_bins
    for page_rows in (None, 200, 499):
        paged = {"max_bin": max_bin, "page_rows": page_rows}
        assert model_digest(method, sample, table, matrix=gb.QuantileDMatrix, info=paged) == expected
    assert model_digest(method, sample, table, histogram_memory=1) == expected
    assert model_digest(method, sample, take(table, table[2] > 0)) == expected


@pytest.mark.sweep(15)
@each_sample
@some_methods
@pytest.mark.parametrize("ends", [[140], [30, 30, 380]], ids=["2", "4, one without rows"])
def test_workers(method, sample, ends):
    """Shards in the order of the rows: the number of a row says whether it is drawn."""
    table = make(500, method=method)
    expected = model_digest(method, sample, table)
    shards = [slice(*pair) for pair in zip([0, *ends], [*ends, 500])]

    def work(rank):
        return model_digest(method, sample, take(table, shards[rank]), histogram_memory=10**6 // (rank + 1))

    assert run_threads(len(shards), work) == [expected] * len(shards)


@pytest.mark.sweep(6)
@each_sample
@pytest.mark.parametrize("kind", ["pages", "sparse", "packed", "sparse, packed"])
def test_workers_with_other_tables(sample, kind, unpacked):
    """Pages of different sizes; sparse tables; packed ones, which each worker packs for itself."""
    unpacked("packed" in kind)
    X, y, weight = one_hot_table() if "packed" in kind else make(500)
    changes = {"feature_weights": None} if sample == "all" and "packed" in kind else {}
    if "sparse" in kind:
        X = scipy.sparse.csr_matrix(np.nan_to_num(X))
    shards = [slice(0, 250), slice(250, 265), slice(265, None)]

    def work(rows, page_rows=None):
        table = take((X, y, weight), rows)
        if "sparse" in kind:
            return model_digest("hist", sample, table, info={"sparse_absent": "zero"}, **changes)
        paged = {"max_bin": 12, "page_rows": page_rows}
        return model_digest("hist", sample, table, matrix=gb.QuantileDMatrix, info=paged, **changes)

    expected = work(slice(None))
    assert run_threads(3, lambda rank: work(shards[rank], 60 + 40 * rank)) == [expected] * 3


@pytest.mark.sweep(12)
@each_sample
@each_method
def test_continued_training(method, sample):
    """Draws go by the number of the round, so 1 + 2 rounds equal 3, from the Booster and from its file."""
    expected = model_digest(method, sample)
    first = train(method, sample, rounds=1)
    for model in (first, bytes(first.save_raw("ubj"))):
        assert digest(train(method, sample, rounds=2, xgb_model=model).model) == expected


def sparse_table(rule, method, n_rows=300, density=0.2):
    """(dense, CSR, label, weight); what is stored may be 0 or NaN."""
    X, y, weight = make(n_rows, method=method)
    is_stored = np.random.default_rng(1).random(X.shape) < density
    is_stored[:, 2] = True
    csr = scipy.sparse.csr_matrix((X[is_stored], np.nonzero(is_stored)), shape=X.shape)
    return np.where(is_stored, X, rule).astype(np.float32), csr, y, weight


@pytest.mark.sweep(45)
@pytest.mark.parametrize("visits", [0, 10**9, None], ids=["histograms", "walks", "either"])
@pytest.mark.parametrize("rule", ["missing", "zero"])
@each_sample
@pytest.mark.parametrize("method", ["hist", "lossguide", "classes", "loud", "exact", "approx"])
def test_sparse_tables_equal_dense_ones(method, sample, rule, visits, monkeypatch):
    if visits is not None:
        monkeypatch.setattr(cpu_trees, "BIN_VISITS", visits)
    dense, csr, y, weight = sparse_table({"missing": np.nan, "zero": 0}[rule], method)
    info = {"sparse_absent": rule}
    expected = model_digest(method, sample, (dense, y, weight), info=info, min_child_weight=0.1)
    assert model_digest(method, sample, (csr, y, weight), info=info, min_child_weight=0.1) == expected


def one_hot_table(n_rows=300):
    """(X, label, weight): a column of numbers, and categories of 12 and of 5 values as columns of ones."""
    rng = np.random.default_rng(3)
    X = np.concatenate([rng.integers(0, n, n_rows)[:, None] == np.arange(n) for n in (12, 5)], axis=1)
    X = np.column_stack([rng.normal(size=n_rows), X]).astype(np.float32)
    y = X @ rng.normal(size=X.shape[1]) + X[:, 1] * X[:, 14] + rng.normal(size=n_rows) / 2
    return X, y, rng.integers(0, 4, n_rows)


@pytest.fixture
def unpacked():
    """Function (bool): whether tables are packed; eagerly, or not at all."""
    with pytest.MonkeyPatch.context() as patch:

        def choose(packs):
            patch.undo()
            patch.setattr(packing_module, "UNDONE_NODES", 0)
            if not packs:
                for name in ("choose_packing", "choose_sparse_packing"):
                    patch.setattr(binned_module, name, lambda *_: None)

        yield choose


@each_sample
@pytest.mark.parametrize("kind", ["dense", "sparse", "sparse, no walks"])
def test_packed_tables_equal_plain_ones(sample, kind, unpacked, monkeypatch):
    if kind == "sparse, no walks":
        monkeypatch.setattr(cpu_trees, "BIN_VISITS", 0)
    X, y, weight = one_hot_table()
    X = X if kind == "dense" else scipy.sparse.csr_matrix(X)
    changes = {"feature_weights": None} if sample == "all" else {}
    digests = []
    for packs in (False, True):
        unpacked(packs)
        info = {"sparse_absent": "zero", "page_rows": 130} if kind == "dense" else {"sparse_absent": "zero"}
        dtrain = gb.QuantileDMatrix(X, y, weight=weight, max_bin=12, **info)
        digests.append(model_digest("hist", sample, (None, None, None), matrix=lambda *_, **__: dtrain, **changes))  # noqa: B023
        assert (dtrain.any_binned().packing is not None) == packs
    assert digests[0] == digests[1]


# ---- on CUDA


@pytest.mark.sweep(1)
@pytest.mark.parametrize("sample", ["both", "all"])
@pytest.mark.parametrize("kind", ["pages", "targets", "custom", "missing", "zero", "packed"])
def test_cuda_agrees(sample, kind, use_backend, unpacked):
    method = kind if kind in METHODS else "hist"
    info, matrix = {}, gb.DMatrix
    if kind in ("missing", "zero"):
        _, *table = sparse_table({"missing": np.nan, "zero": 0}[kind], method, 130, 0.4)
        info = {"sparse_absent": kind}
    elif kind == "packed":
        unpacked(True)
        table = one_hot_table(130)
    else:
        table = make(100, method=method)
    if kind in ("pages", "packed"):
        info, matrix = {"max_bin": 8, "page_rows": 60}, gb.QuantileDMatrix
    options = {"info": info, "matrix": matrix, "max_bin": 8, "max_depth": 2, "rounds": 2}
    if kind == "packed" and sample == "all":
        options["feature_weights"] = None
    expected = model_digest(method, sample, table, **options)
    use_backend(CudaBackend(SimulatedDevice(block=64, n_multiprocessors=2)))
    assert model_digest(method, sample, table, **options) == expected


def test_workers_on_a_simulated_gpu_give_the_cpus_model(use_backend):
    """And a training goes on there from a model of the CPU's."""
    table, options = make(120), {"max_depth": 2, "max_bin": 8}
    first = train("hist", "all", table, 1, **options)
    expected = digest(train("hist", "all", table, 2, **options).model)
    use_backend(CudaBackend(SimulatedDevice()))
    assert digest(train("hist", "all", table, 1, xgb_model=first, **options).model) == expected
    shards = [slice(0, 50), slice(50, 120)]
    models = run_threads(2, lambda rank: digest(train("hist", "all", take(table, shards[rank]), 1, **options).model))
    assert models == [digest(first.model)] * 2


# ---- margins


@pytest.mark.sweep(12)
@pytest.mark.parametrize("sample", [*SAMPLES, "none"])
@pytest.mark.parametrize("kind", ["dense", "pages", "sparse", "exact", "classes", "cuda", "cuda sparse"])
def test_margins_of_all_rows_are_the_models_predictions(sample, kind, use_backend):
    """Of those not drawn, and of those of zero weight, after every round."""
    method, n_rows, max_depth = kind if kind in METHODS else "hist", 700, 4
    if "cuda" in kind:
        use_backend(CudaBackend(SimulatedDevice(n_multiprocessors=2)))
        n_rows, max_depth = 130, 3
    X, y, weight = make(n_rows, method=method)
    if "sparse" in kind:
        _, X, y, weight = sparse_table(0, method, n_rows)
    matrix = gb.DMatrix(X, y, weight=weight, sparse_absent="zero")
    if kind == "pages":
        matrix = gb.QuantileDMatrix(X, y, weight=weight, max_bin=12, page_rows=300)
    booster = gb.Booster({"max_depth": max_depth, "max_bin": 12, "seed": 5, **METHODS[method], **SAMPLES.get(sample, {})})
    other = gb.DMatrix(X, sparse_absent="zero")
    for round_number in range(2 if "cuda" in kind else 4):
        margins = None

        def objective(prediction, dtrain):
            nonlocal margins
            margins = prediction.copy()
            labels = y if prediction.ndim == 1 else y[:, None] == np.arange(3)
            return prediction - labels, np.ones_like(prediction)

        expected = booster.predict(other, output_margin=True) if round_number else None
        booster.update(matrix, fobj=objective)
        if round_number:
            np.testing.assert_array_equal(margins, expected)
            assert len(np.unique(expected)) > n_rows // 70


@pytest.mark.sweep(2)
@each_sample
def test_scores_on_the_training_matrix_are_those_of_the_same_rows(sample):
    X, y, weight = make()
    kept = weight > 0
    dtrain, other, log = gb.DMatrix(X[kept], y[kept]), gb.DMatrix(X[kept], y[kept]), {}
    gb.train(SAMPLES[sample], dtrain, 4, evals=[(dtrain, "train"), (other, "other")], evals_result=log, verbose_eval=False)
    assert log["train"] == log["other"] and len(log["train"]["rmse"]) == 4


# ---- what is drawn


@pytest.mark.parametrize("share, n", [(0.001, 1), (0.29, 87), (0.5, 150), (0.999, 299)])
@pytest.mark.parametrize("kind", ["dense", "sparse", "weights"])
def test_the_cover_of_a_root_is_the_number_of_rows_drawn(share, n, kind):
    """Of squared error, whose hessians are 1."""
    X, y, weight = make(600 if kind == "weights" else 300)
    X = scipy.sparse.csr_matrix(np.nan_to_num(X)) if kind == "sparse" else X
    weight = (np.arange(600) % 2).astype(np.float32) if kind == "weights" else None
    model = train("hist", None, (X, y, weight), subsample=share).model
    assert [tree.cover[0] for tree in model.trees] == [n] * ROUNDS


def test_gradient_based_roots_weigh_about_what_all_rows_do():
    """The sum of 1/p over the rows drawn, on average the number of all rows."""
    X, y, _ = make(2000)
    model = train("hist", None, (X, y, None), subsample=0.3, **BY_GRADIENT, rounds=20).model
    covers = np.array([tree.cover[0] for tree in model.trees])
    assert len(set(covers)) > 10
    assert abs(covers.mean() - 2000) <= 4 * covers.std() / np.sqrt(20)


@pytest.mark.parametrize("share, n", [(0.01, 1), (0.29, 3), (0.5, 6), (0.99, 11)])
def test_trees_split_on_no_more_columns_than_they_draw(share, n):
    def columns(tree):
        return {int(f) for f, left in zip(tree.feature, tree.left_child) if left >= 0}

    for method, per_round in (("hist", 1), ("classes", 3)):
        model = train(method, None, make(1500, method=method), 12, colsample_bytree=share, max_depth=6).model
        drawn = [set().union(*map(columns, model.trees[r : r + per_round])) for r in range(0, len(model.trees), per_round)]
        assert max(map(len, drawn)) == n  # the trees of a round share them
        assert len({frozenset(s) for s in drawn}) > 3


@each_sample
def test_rounds_and_seeds_draw_differently(sample):
    assert len({digest(train("hist", sample, seed=seed).model) for seed in (0, 1, -1, 2**40)}) == 4
    # so little is learned that every round would otherwise grow the same tree
    for params, n in (({}, 1), (SAMPLES[sample], 6)):
        trees = train("hist", None, learning_rate=1e-30, rounds=6, **params).model.trees
        assert len({(tree.feature.tobytes(), tree.threshold.tobytes()) for tree in trees}) == n


@each_method
def test_shares_of_one_sample_nothing(method):
    expected = bytes(train(method, None).save_raw("json"))
    ones = {"subsample": 1.0, **BY_GRADIENT, "colsample_bytree": 1.0}
    assert bytes(train(method, None, **ones).save_raw("json")) == expected


@pytest.mark.filterwarnings("ignore:the first round split no node")
@pytest.mark.parametrize("n_rows", [1, 2, 3, 10])
@pytest.mark.parametrize("sampling_method", ["uniform", "gradient_based"])
@pytest.mark.filterwarnings("ignore:Some columns hold nothing but missing values")
def test_tables_of_a_few_rows(n_rows, sampling_method, use_backend):
    """Where by gradient a round may draw no row at all."""
    X, y, _ = make(n_rows)
    n_empty = 0
    for seed in range(20):
        params = {"subsample": 0.01, "sampling_method": sampling_method, "min_child_weight": 0, "seed": seed}
        booster = gb.train(params, gb.DMatrix(X, y), 3, verbose_eval=False)
        covers = [tree.cover[0] for tree in booster.model.trees]
        n_empty += covers.count(0)
        assert np.isfinite(booster.predict(gb.DMatrix(X))).all() and min(covers) >= 0
        if seed == 0:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("gpuboost.backend.choose_backend", lambda *_, **__: NaiveBackend())
                assert digest(gb.train(params, gb.DMatrix(X, y), 3, verbose_eval=False).model) == digest(booster.model)
    assert (n_empty > 0) == (sampling_method == "gradient_based" and n_rows > 2)


@each_sample
def test_a_gradient_that_is_not_finite_is_found_in_any_row(sample):
    """Drawn or not; the rounds before stay."""
    X, y, _ = make(50)
    for row in range(0, 50, 7):
        for bad in (np.nan, -np.nan, np.inf):
            n_calls = 0

            def objective(prediction, dtrain):
                nonlocal n_calls
                n_calls += 1
                grad = prediction - y
                grad[row] = bad if n_calls == 2 else grad[row]  # noqa: B023 - called before the next turn
                return grad, np.ones_like(grad)

            booster, dtrain = gb.Booster(SAMPLES[sample]), gb.DMatrix(X, y)
            booster.update(dtrain, fobj=objective)
            with pytest.raises(FloatingPointError, match="not finite"):
                booster.update(dtrain, fobj=objective)
            assert booster.num_boosted_rounds() == 1


def test_samples_learn():
    """Half of the rows and of the columns, or a fifth of the rows by gradient: the error on other rows shrinks all the same."""
    X, y, _ = make(3000)
    y = np.nan_to_num(X[:, 0]) + np.nan_to_num(X[:, 1]) ** 2 + y / 10
    test = gb.DMatrix(X[2000:], y[2000:])
    for params in ({"subsample": 0.5, "colsample_bytree": 0.5}, {"subsample": 0.2, **BY_GRADIENT}):
        log: dict = {}
        gb.train(params, gb.DMatrix(X[:2000], y[:2000]), 60, evals=[(test, "test")], evals_result=log, verbose_eval=False)
        errors = log["test"]["rmse"]
        assert errors[-1] < 0.8 * errors[0]


@pytest.mark.parametrize("sample", ["rows", "rows by gradient", "columns", "both"])
def test_estimators_hand_them_on(sample):
    X, y, _ = make()
    options = {"max_depth": 4, "max_bin": 12, "random_state": 5, **SAMPLES[sample]}
    estimator = GPUBoostRegressor(n_estimators=ROUNDS, **options).fit(X, y)
    assert digest(estimator.get_booster().model) == digest(train("hist", sample, (X, y, None)).model)
