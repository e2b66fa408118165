"""Sparse tables stay sparse, and train and predict as the same tables written out."""

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from packed_tables import cuts_of
from simulator import SimulatedDevice

import gpuboost as gb
from gpuboost.backend.cpu import trees as cpu_trees
from gpuboost.backend.cpu.trees import CpuTrees
from gpuboost.backend.cuda import CudaBackend
from gpuboost.backend.cuda.device import find_device
from gpuboost.binned.pages import SparsePage, cell_dtype
from gpuboost.communicator import run_threads
from gpuboost.model_io import digest

NAN = np.nan
RULES = {"missing": NAN, "zero": 0.0}
PARAMS = {
    "hist": {"tree_method": "hist"},
    "exact": {"tree_method": "exact"},
    "lossguide": {"grow_policy": "lossguide", "max_leaves": 14, "max_depth": 0},
    "classes": {"objective": "multi:softprob", "num_class": 3},
    "penalties": {"reg_alpha": 1.0, "reg_lambda": 0.0, "max_delta_step": 0.4, "gamma": 1.0},
    "little memory": {"histogram_memory": 20_000},
}


def make(rule, seed=0, n_rows=900, n_features=20, density=0.15):
    """(the table written out, the same as CSR, y, weights): columns dense, empty, constant, and sparse, with stored NaN and 0."""
    rng = np.random.default_rng(seed)
    X = np.round(rng.normal(size=(n_rows, n_features)) * 2, 1)
    is_stored = rng.random(X.shape) < density
    is_stored[:, 0], is_stored[:, 1], X[:, 2] = True, False, 1.0
    X[rng.random(X.shape) < 0.05] = NAN
    csr = scipy.sparse.csr_matrix((X[is_stored], np.nonzero(is_stored)), shape=X.shape)
    dense = np.where(is_stored, X, RULES[rule])
    y = np.nan_to_num(dense[:, 0]) * np.nan_to_num(dense[:, 3]) + np.nan_to_num(dense[:, 4]) + rng.normal(size=n_rows) / 2
    return dense, csr, y, rng.integers(0, 4, n_rows)


def labels_for(params, y):
    return np.digitize(y, [-0.5, 0.5]) if "num_class" in params else y


def train(params, X, y, weight, rule, rounds=4, **options):
    dtrain = gb.DMatrix(X, labels_for(params, y), weight=weight, sparse_absent=rule)
    return gb.train({"max_bin": 24, "max_depth": 5, **params}, dtrain, rounds, verbose_eval=False, **options)


@pytest.mark.filterwarnings("ignore:Some columns hold nothing")
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", PARAMS)
def test_dense_csr_and_csc_give_one_model(rule, name):
    dense, csr, y, weight = make(rule)
    log: dict = {}
    models = {}
    for kind, X in {"dense": dense, "csr": csr, "csc": csr.tocsc(), "coo": csr.tocoo()}.items():
        test = gb.DMatrix(X, labels_for(PARAMS[name], y), sparse_absent=rule)
        booster = train(PARAMS[name], X, y, weight, rule, evals=[(test, "test")], evals_result=log)
        (values,) = log["test"].values()
        predictions = [booster.predict(gb.DMatrix(other)).tobytes() for other in (dense, csr)]
        leaves = booster.predict(gb.DMatrix(X), pred_leaf=True).tobytes()
        models[kind] = digest(booster.model), values, predictions, leaves, booster.inplace_predict(csr).tobytes()
    assert models["csr"] == models["dense"]
    assert models["csc"] == models["coo"] == models["csr"]


@pytest.mark.filterwarnings("ignore:Some columns hold nothing")
@pytest.mark.parametrize("rule", RULES)
def test_workers_and_threads_do_not_matter(rule):
    _, csr, y, weight = make(rule)
    expected = digest(train({}, csr, y, weight, rule).model)
    assert digest(train({"nthread": 1}, csr, y, weight, rule).model) == expected
    for n_workers in (2, 3):
        parts = np.array_split(np.arange(len(y)), n_workers)
        shards = run_threads(n_workers, lambda rank: digest(
            train({}, csr[parts[rank]], y[parts[rank]], weight[parts[rank]], rule).model  # noqa: B023 - run at once
        ))  # fmt: skip
        assert set(shards) == {expected}


@pytest.mark.filterwarnings("ignore:Some columns hold nothing")
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("params", [{}, {"tree_method": "approx"}, {"colsample_bytree": 0.5}], ids=["hist", "approx", "drawn"])
def test_the_width_of_cells_does_not_matter(rule, params, monkeypatch):
    """Also where it is just enough."""
    dense, csr, y, weight = make(rule)
    models = {}
    for dtype in (np.uint16, np.int32):
        monkeypatch.setattr("gpuboost.data.columns.cell_dtype", lambda cuts, dtype=dtype: np.dtype(dtype))
        booster = train(params, csr, y, weight, rule)
        models[dtype] = digest(booster.model), booster.predict(gb.DMatrix(csr)).tobytes()
    assert models[np.uint16] == models[np.int32]


def test_cells_are_as_wide_as_their_numbers():
    """The highest is the missing value of the last of 100 columns, number total_bins + 99."""
    for n_bins, dtype in ((2**16 - 199, np.uint16), (2**16 - 198, np.int32)):
        cuts = cuts_of([n_bins, *[1] * 99])
        assert cell_dtype(cuts) == dtype and (cuts.total_bins + 99 <= np.iinfo(np.uint16).max) == (dtype is np.uint16)


@pytest.mark.filterwarnings("ignore:(Some|All) columns hold nothing", "ignore:.*found no split")
@settings(max_examples=25)
@given(st.integers(0, 2**32), st.sampled_from(list(RULES)), st.integers(1, 300), st.sampled_from([0.02, 0.3, 0.9]))
def test_walks_and_histograms_find_the_same_splits(seed, rule, n_rows, density):
    _, csr, y, weight = make(rule, seed, n_rows, 5, density)
    weight[0] = 1
    digests = set()
    for visits in (0, 10**9):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cpu_trees, "BIN_VISITS", visits)
            digests.add(digest(train({"min_child_weight": 0}, csr, y, weight, rule, rounds=3).model))
    assert len(digests) == 1


@pytest.mark.parametrize("grow_policy", ["depthwise", "lossguide"])
def test_a_histogram_is_subtracted_only_from_one_that_is_held(grow_policy, monkeypatch):
    """Six trees, which stop growing one after another: memory that was too little for the frontier is enough for a later one, and
    histograms follow on walks, while leaves without a histogram are still open."""
    rng = np.random.default_rng(6)
    X = rng.integers(0, 6, (400, 3)).astype(float)
    y = np.where(rng.random(400) < 0.6, 0, rng.integers(0, 6, 400))
    y[(X[:, 0] > 2) & (rng.random(400) < 0.8)], y[:6] = 1, np.arange(6)
    params = {"objective": "multi:softprob", "num_class": 6, "min_child_weight": 3, "max_bin": 16, "max_depth": 0}
    csr, bytes_each = scipy.sparse.csr_matrix(X), 16 * 18

    def grow(X, **more):
        dtrain = gb.DMatrix(X, y, sparse_absent="zero")
        return digest(gb.train({**params, "grow_policy": grow_policy, **more}, dtrain, 2, verbose_eval=False).model)

    expected = grow(X)
    for n_histograms in range(2, 14):
        assert grow(X, histogram_memory=n_histograms * bytes_each) == expected
    for n_nodes in (1, 7, 30, 60):
        monkeypatch.setattr(CpuTrees, "walks_columns", lambda trees, _: trees.arrays.n_nodes < n_nodes)  # noqa: B023
        assert grow(csr) == expected


@pytest.mark.filterwarnings("ignore:Some columns hold nothing")
@pytest.mark.parametrize("rule", RULES)
def test_a_quantile_matrix_stays_sparse(rule):
    dense, csr, y, weight = make(rule)
    params = {"max_bin": 24, "max_depth": 5}
    matrix = gb.QuantileDMatrix(csr, y, weight=weight, max_bin=24, sparse_absent=rule)
    other = gb.QuantileDMatrix(csr[::2], y[::2], ref=matrix)
    log: dict = {}
    booster = gb.train(params, matrix, 4, evals=[(other, "half")], evals_result=log, verbose_eval=False)
    expected = train({}, csr, y, weight, rule)
    assert digest(booster.model) == digest(expected.model)
    np.testing.assert_array_equal(booster.predict(matrix), expected.predict(gb.DMatrix(dense)))
    np.testing.assert_array_equal(booster.predict(other), expected.predict(gb.DMatrix(dense[::2])))
    assert matrix.num_nonmissing() == gb.DMatrix(dense, y).num_nonmissing()
    page = matrix.any_binned().pages[0]
    assert isinstance(page, SparsePage)
    assert len(page.cells) <= csr.nnz


@pytest.mark.filterwarnings("ignore:Some columns hold nothing")
@pytest.mark.parametrize("visits", [0, 10**9], ids=["histograms", "walks"])
@pytest.mark.parametrize("rule", RULES)
def test_training_under_the_cuts_of_another_table(rule, visits, monkeypatch):
    """All cells are stored, some as NaN, and none is zero: a column with an entry for every row may lack values all the same."""
    monkeypatch.setattr(cpu_trees, "BIN_VISITS", visits)
    dense, csr, y, weight = make(rule)
    full = np.random.default_rng(1).choice([NAN, -2.0, -1.0, 1.0, 2.0], dense.shape)
    stored = scipy.sparse.csr_matrix((full.ravel(), np.indices(full.shape)[1].ravel(), np.arange(0, full.size + 1, 20)))
    digests = set()
    for reference, table in ((dense, full), (csr, stored)):
        ref = gb.QuantileDMatrix(reference, y, max_bin=24, sparse_absent=rule)
        matrix = gb.QuantileDMatrix(table, y + 2 * np.isnan(full[:, 5]), weight=weight, ref=ref)
        digests.add(digest(gb.train({"max_bin": 24, "max_depth": 4}, matrix, 3, verbose_eval=False).model))
    assert len(digests) == 1


@pytest.mark.filterwarnings("ignore:the first round split no node")
@pytest.mark.parametrize("method", ["exact", "hist"])
def test_rows_without_gradient_keep_their_place(method):
    """Absent zeros whose gradients sum to nothing are rows all the same: a threshold between other values steps over them."""
    rng = np.random.default_rng(0)
    for _ in range(30):
        X = rng.choice([-2.0, -1.0, 0.0, 1.0, 2.0], (60, 3), p=[0.1, 0.1, 0.6, 0.1, 0.1])
        y = np.where((X == 0).any(axis=1), 0.0, X[:, 0] + rng.normal(size=60))

        def within(prediction, dtrain):
            far = np.abs(prediction - dtrain.get_label()) > 0.5
            return far * (prediction - dtrain.get_label()), far * 1.0

        params, digests = {"tree_method": method, "min_child_weight": 0, "base_score": 0.0}, set()
        for table in (X, scipy.sparse.csr_matrix(X)):
            dtrain = gb.DMatrix(table, y, sparse_absent="zero")
            digests.add(digest(gb.train(params, dtrain, 3, obj=within, verbose_eval=False).model))
        assert len(digests) == 1


@pytest.mark.filterwarnings("ignore:the first round split no node")
@pytest.mark.parametrize("rule", RULES)
def test_gaps_go_to_the_missing_rows_however_they_are_found(rule, monkeypatch):
    """Few rows of many values: a node's own lie far apart, and between them rows without gradient, which are in nobody's way."""

    def within(prediction, dtrain):
        far = np.abs(prediction - dtrain.get_label()) > 0.4
        return far * (prediction - dtrain.get_label()), far * 1.0

    rng = np.random.default_rng(0)
    for _ in range(30):
        X = rng.integers(-12, 13, (60, 3)).astype(float)
        X[rng.random(X.shape) < 0.3] = NAN
        y = np.nan_to_num(X[:, 0]) / 9 + rng.normal(size=60)
        stored = ~np.isnan(X) if rule == "missing" else X != 0
        csr = scipy.sparse.csr_matrix((X[stored], np.nonzero(stored)), shape=X.shape)
        digests = set()
        for table, visits in ((X, 0), (csr, 0), (csr, 10**9)):
            monkeypatch.setattr(cpu_trees, "BIN_VISITS", visits)
            dtrain = gb.DMatrix(table, y, sparse_absent=rule)
            params = {"min_child_weight": 0, "base_score": 0.0}
            digests.add(digest(gb.train(params, dtrain, 3, obj=within, verbose_eval=False).model))
        assert len(digests) == 1


def test_dense_tables_need_no_rule():
    dense, csr, y, _ = make("zero")
    booster = train({}, csr, y, None, "zero")
    more = gb.train({"max_bin": 24, "max_depth": 5}, gb.DMatrix(dense, y), 1, xgb_model=booster, verbose_eval=False)
    assert more.num_boosted_rounds() == 5
    matrix = gb.QuantileDMatrix(dense, y, ref=gb.QuantileDMatrix(dense, y, max_bin=24))
    np.testing.assert_array_equal(booster.predict(matrix), booster.predict(gb.DMatrix(csr)))


@pytest.mark.parametrize("first, second, message", [
    ({"sparse_absent": "zero"}, {"sparse_absent": "missing"}, "differ in sparse_absent"),
    ({}, {"dense": True}, "some are sparse and others dense"),
])  # fmt: skip
def test_workers_must_agree_on_what_is_absent(first, second, message):
    dense, csr, y, _ = make("missing")
    options = [dict(first), dict(second)]

    def work(rank):
        table = dense if options[rank].pop("dense", False) else csr
        return gb.train({}, gb.DMatrix(table, y, **options[rank]), 1, verbose_eval=False)

    with pytest.raises(ValueError, match=message):
        run_threads(2, work)


@pytest.mark.filterwarnings("ignore:Some columns hold nothing")
def test_columns_without_values_are_named_under_either_rule():
    csr = scipy.sparse.csr_matrix((np.array([1.0, 2.0, NAN, NAN]), ([0, 1, 0, 1], [0, 0, 1, 1])), shape=(2, 3))
    for rule, empty in (("missing", '"1", "2"'), ("zero", '"1"')):
        with pytest.warns(UserWarning, match=f"hold nothing but missing values, so no split can use them: {empty}"):
            gb.QuantileDMatrix(csr, [0, 1], sparse_absent=rule)


@pytest.mark.filterwarnings("ignore:Some columns hold nothing")
def test_the_model_remembers_what_absent_cells_mean(tmp_path):
    dense, csr, y, weight = make("zero")
    booster = train({}, csr, y, weight, "zero")
    booster.save_model(tmp_path / "model.ubj")
    loaded = gb.Booster(model_file=tmp_path / "model.ubj")
    assert loaded.attr("sparse_absent") == "zero"
    expected = booster.predict(gb.DMatrix(dense))
    np.testing.assert_array_equal(loaded.predict(gb.DMatrix(csr)), expected)
    np.testing.assert_array_equal(loaded.inplace_predict(csr), expected)
    assert train({}, csr, y, weight, None).attr("sparse_absent") is None
    with pytest.raises(ValueError, match="the model knows"):
        loaded.predict(gb.DMatrix(csr, sparse_absent="missing"))
    with pytest.raises(ValueError, match="sparse_absent='zero'"):
        train({}, csr, y, weight, "missing", xgb_model=loaded)
    with pytest.raises(ValueError, match="'missing' or 'zero', got 'nan'"):
        gb.DMatrix(csr, sparse_absent="nan")


@pytest.mark.filterwarnings("ignore:Some columns hold nothing")
@pytest.mark.parametrize("rule", RULES)
def test_estimators_take_the_rule(rule):
    dense, csr, y, _ = make(rule)
    sparse = gb.GPUBoostRegressor(n_estimators=4, sparse_absent=rule).fit(csr, y)
    written = gb.GPUBoostRegressor(n_estimators=4).fit(dense, y)
    np.testing.assert_array_equal(sparse.predict(csr), written.predict(dense))
    np.testing.assert_array_equal(sparse.predict(dense), written.predict(dense))


@pytest.mark.filterwarnings("ignore:Some columns hold nothing")
def test_xgboost_predicts_the_same_where_absent_is_missing():
    xgb = pytest.importorskip("xgboost")
    _, csr, y, _ = make("missing")
    csr = csr.copy()
    csr.data = np.nan_to_num(csr.data)
    booster = train({}, csr, y, None, None)
    theirs = xgb.Booster()
    theirs.load_model(bytearray(booster.save_raw("json")))
    np.testing.assert_allclose(booster.predict(gb.DMatrix(csr)), theirs.predict(xgb.DMatrix(csr)), rtol=0, atol=1e-5)


@pytest.mark.filterwarnings("ignore:Some columns hold nothing")
def test_infinite_values_are_refused_where_they_are_predicted():
    _, csr, y, _ = make("missing")
    booster = train({}, csr, y, None, None)
    csr.data[csr.indptr[7]] = np.inf
    with pytest.raises(ValueError, match=r'Column "0" holds a value that is infinite .* in row 7'):
        booster.predict(gb.DMatrix(csr))


@pytest.mark.slow
def test_memory_is_in_proportion_to_the_entries():
    n_rows, n_features = 20_000, 3000  # 60 million cells
    X = scipy.sparse.random(n_rows, n_features, density=0.001, format="csr", random_state=0, dtype=np.float32)
    binned = gb.QuantileDMatrix(X, np.zeros(n_rows)).any_binned()
    page, blocks = binned.pages[0], binned.sorted_columns
    n_bytes = sum(a.nbytes for a in (page.row_begin, page.cells, blocks.bounds, blocks.rows, blocks.codes, blocks.absent))
    assert n_bytes <= 12 * X.nnz + 8 * (n_rows + 1) + 20 * n_features


# ---- on CUDA


@pytest.mark.sweep(1)
@pytest.mark.filterwarnings("ignore:Some columns hold nothing")
@pytest.mark.parametrize("device", [SimulatedDevice, pytest.param(lambda: find_device(0), marks=pytest.mark.gpu, id="gpu")])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("params", [{}, {"grow_policy": "lossguide", "max_leaves": 5, "max_depth": 0}], ids=["levels", "leaves"])
def test_a_gpu_trains_and_predicts_sparse_tables_as_the_cpu(device, rule, params, use_backend):
    dense, csr, y, weight = make(rule, n_rows=150, n_features=6, density=0.3)
    params = {"max_depth": 3, **params}

    def outcome():
        test, log = gb.DMatrix(csr[:40], y[:40], sparse_absent=rule), {}
        booster = train(params, csr, y, weight, rule, rounds=2, evals=[(test, "test")], evals_result=log)
        matrix = gb.QuantileDMatrix(csr, y, weight=weight, max_bin=24, sparse_absent=rule)
        from_codes = gb.train({"max_bin": 24, **params}, matrix, 2, verbose_eval=False)
        predictions = booster.predict(gb.DMatrix(csr)).tobytes(), booster.predict(matrix).tobytes()
        leaves = booster.predict(gb.DMatrix(csr), pred_leaf=True).tobytes()
        return digest(booster.model), digest(from_codes.model), log, predictions, leaves

    expected = outcome()
    assert expected[0] == expected[1] == digest(train(params, dense, y, weight, rule, rounds=2).model)
    use_backend(CudaBackend(device()))
    assert outcome() == expected


@pytest.mark.filterwarnings("ignore:Some columns hold nothing")
def test_workers_on_a_simulated_gpu_give_the_cpus_model(use_backend):
    _, csr, y, weight = make("zero", n_rows=120, n_features=5, density=0.3)
    expected = digest(train({"max_depth": 3}, csr, y, weight, "zero", rounds=2).model)
    use_backend(CudaBackend(SimulatedDevice()))
    parts = np.array_split(np.arange(len(y)), 2)
    shards = run_threads(2, lambda rank: digest(
        train({"max_depth": 3}, csr[parts[rank]], y[parts[rank]], weight[parts[rank]], "zero", rounds=2).model
    ))  # fmt: skip
    assert set(shards) == {expected}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
@pytest.mark.filterwarnings("ignore:Some columns hold nothing but missing values")
def test_a_few_rows_in_place_are_predicted_as_many(rule, dtype, monkeypatch):
    _, csr, y, _ = make(rule)
    csr = csr.copy()
    csr.data = np.nan_to_num(csr.data * 10).astype(dtype)
    booster = gb.train({"max_depth": 4}, gb.DMatrix(csr, label=y, sparse_absent=rule), 5)
    expected = booster.predict(gb.DMatrix(csr))
    twice = scipy.sparse.csr_matrix((np.repeat(csr.data / 2, 2), np.repeat(csr.indices, 2), csr.indptr * 2), shape=csr.shape)
    for table in (csr, twice, csr.tocsc(), scipy.sparse.csr_array(csr)):
        for rows in (slice(0, 1), slice(7, 40), slice(0, 0)):
            np.testing.assert_array_equal(booster.inplace_predict(table[rows]), expected[rows])
    monkeypatch.setattr("gpuboost.predictor.FEW_VALUES", 10)  # as many rows
    np.testing.assert_array_equal(booster.inplace_predict(csr[:3]), expected[:3])
    without_ones = booster.predict(gb.DMatrix(csr[:9], missing=10.0))
    np.testing.assert_array_equal(booster.inplace_predict(csr[:9], missing=10.0), without_ones)
