"""Sparse tables that are full enough are trained on with a code for every cell (gpuboost/data/density.py): to the same model."""

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded_digests import CONFIGURATIONS, compute, recorded
from simulator import SimulatedDevice

import gpuboost as gb
from gpuboost.backend.cuda import CudaBackend
from gpuboost.binned.matrix import Representation
from gpuboost.communicator import run_threads
from gpuboost.data import density
from gpuboost.kernels.sparse import write_out_cells_cpu

pytestmark = [
    pytest.mark.written_out,
    pytest.mark.filterwarnings("ignore:(Some|All) columns hold nothing", "ignore:.*first round split no node"),
]

NAN = np.nan
OPTIONS = {
    "hist": {},
    "approx": {"tree_method": "approx", "max_bin": 9},
    "leaves": {"grow_policy": "lossguide", "max_leaves": 9, "max_depth": 0},
    "classes": {"objective": "multi:softprob", "num_class": 3},
    "vectors": {"objective": "multi:softprob", "num_class": 3, "multi_strategy": "multi_output_tree"},
    "drawn": {"subsample": 0.6, "colsample_bytree": 0.7, "colsample_bynode": 0.8},
    "monotone": {"monotone_constraints": "(1,-1,0)"},
    "median": {"objective": "reg:absoluteerror"},
    "bounded": {"max_delta_step": 0.4, "reg_alpha": 0.3, "gamma": 0.5},
    "dart": {"booster": "dart", "rate_drop": 0.7, "seed": 3},
    "forest": {"num_parallel_tree": 3, "subsample": 0.6},
    "deep": {"max_depth": 12, "min_child_weight": 0},
}


def make(seed, n_rows, n_features=6, share=0.4, n_values=40):
    """CSR with stored zeros and NaN, a column without a value and one of nothing else than zeros; y."""
    rng = np.random.default_rng(seed)
    X = rng.integers(-n_values // 2, n_values // 2, (n_rows, n_features)) / 4
    X[rng.random(X.shape) < 0.05] = NAN
    X[:, 2] = 0
    is_stored = rng.random(X.shape) < share
    is_stored[:, 1] = False
    csr = scipy.sparse.csr_matrix((X[is_stored], np.nonzero(is_stored)), shape=X.shape)
    signal = np.where(is_stored, np.nan_to_num(X), 1)
    return csr, signal[:, 0] * signal[:, 3] + signal[:, -1] + rng.normal(size=n_rows)


def labels(y, params):
    return np.digitize(y, [-1, 1]) if "num_class" in params else y


def train(csr, y, params, rule, rows=slice(None), **options):
    """The model's bytes, and how the table was read."""
    weight = np.arange(1, len(y) + 1) % 4 / 2
    dtrain = gb.DMatrix(csr[rows], labels(y, params)[rows], weight=weight[rows], sparse_absent=rule)
    booster = gb.train({"max_depth": 4, "max_bin": 24, **params}, dtrain, 3, verbose_eval=False, **options)
    return bytes(booster.save_raw()), dtrain.any_binned().representation


def keep_lists(monkeypatch):
    monkeypatch.setattr(density, "CODES_OF_A_CELL", 0)
    monkeypatch.setattr(density, "CODES_OF_A_SMALL_CELL", 0)


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("rule", ["missing", "zero"])
def test_the_model_is_that_of_lists(name, rule, monkeypatch):
    csr, y = make(1, 700)
    params = OPTIONS[name]
    model, representation = train(csr, y, params, rule)
    assert representation is Representation.DENSE
    assert train(csr, y, {**params, "nthread": 1}, rule)[0] == model
    keep_lists(monkeypatch)
    assert train(csr, y, params, rule) == (model, Representation.SPARSE)


@settings(max_examples=40)
@given(
    st.integers(0, 2**32), st.integers(1, 300), st.integers(4, 40), st.sampled_from([0.0, 0.02, 0.1, 0.5, 1.0]),
    st.sampled_from([2, 40, 600]), st.sampled_from([3, 256, 300]), st.sampled_from(["missing", "zero"]),
)  # fmt: skip
def test_random_tables(seed, n_rows, n_features, share, n_values, max_bin, rule):
    csr, y = make(seed, n_rows, n_features, share, n_values)
    params = {"max_bin": max_bin, "min_child_weight": 0}
    model, _ = train(csr, y, params, rule)
    with pytest.MonkeyPatch.context() as patch:
        keep_lists(patch)
        assert train(csr, y, params, rule)[0] == model


@pytest.mark.parametrize("rule", ["missing", "zero"])
def test_workers_may_read_their_parts_in_different_ways(rule):
    """The rows of the first half are full, those of the other nearly empty."""
    full, y = make(2, 400, share=0.9)
    empty, more = make(3, 400, share=0.02)
    csr, y = scipy.sparse.vstack([full, empty], format="csr"), np.concatenate([y, more])
    model, _ = train(csr, y, {}, rule)
    parts = [slice(0, 400), slice(400, 800)]
    found = run_threads(2, lambda rank: train(csr, y, {}, rule, parts[rank]))
    assert found == [(model, Representation.DENSE), (model, Representation.SPARSE)]


@pytest.mark.sweep(1)
@pytest.mark.parametrize("rule", ["missing", "zero"])
def test_a_simulated_gpu_gives_the_cpus_model(rule, use_backend):
    csr, y = make(4, 120)
    expected = train(csr, y, {}, rule)
    use_backend(CudaBackend(SimulatedDevice()))
    assert train(csr, y, {}, rule) == expected
    assert expected[1] is Representation.DENSE


@pytest.mark.parametrize("rule", ["missing", "zero"])
def test_everything_but_training_sees_a_sparse_table(rule, tmp_path, monkeypatch):
    """Evaluation, prediction from the codes that a QuantileDMatrix is left with, cuts, a slice, and going on after a stop."""

    def work(folder):
        csr, y = make(5, 600)
        log: dict = {}
        dtrain = gb.QuantileDMatrix(csr, y, max_bin=24, sparse_absent=rule)
        other = gb.QuantileDMatrix(csr[:200], y[:200], ref=dtrain, sparse_absent=rule)
        params = {"max_depth": 4, "max_bin": 24}
        evals = [(dtrain, "train"), (other, "other")]
        booster = gb.train(params, dtrain, 4, evals=evals, evals_result=log, verbose_eval=False, resume_from=folder)
        resumed = gb.train(params, dtrain, 6, evals=evals, verbose_eval=False, resume_from=folder)
        straight = gb.train(params, dtrain, 6, evals=evals, verbose_eval=False)
        assert resumed.save_raw() == straight.save_raw()
        sliced = gb.DMatrix(csr, y, sparse_absent=rule)
        gb.train(params, sliced, 1, verbose_eval=False)  # codes that the slice takes
        part = gb.train(params, sliced.slice(np.arange(0, 600, 2)), 2, verbose_eval=False)
        indptr, cuts = dtrain.get_quantile_cut()
        return (
            bytes(booster.save_raw()), log, booster.predict(dtrain).tobytes(), booster.predict(dtrain, pred_leaf=True).tobytes(),
            bytes(part.save_raw()), dtrain.num_nonmissing(), indptr.tobytes(), cuts.tobytes(),
        )  # fmt: skip

    written_out = work(tmp_path / "codes")
    keep_lists(monkeypatch)
    assert work(tmp_path / "lists") == written_out


@pytest.mark.parametrize("rule", ["missing", "zero"])
def test_sets_of_categories(rule, monkeypatch):
    rng = np.random.default_rng(8)
    codes, is_stored = rng.integers(0, 12, (500, 4)).astype(np.float32), rng.random((500, 4)) < 0.6
    csr = scipy.sparse.csr_matrix((codes[is_stored], np.nonzero(is_stored)), shape=codes.shape)
    y = np.isin(codes[:, 0], [1, 5, 6]) * is_stored[:, 0] + codes[:, 3] * is_stored[:, 3] / 9 + rng.normal(size=500) / 9

    def work():
        dtrain = gb.DMatrix(csr, y, feature_types=["c", "c", "c", "q"], sparse_absent=rule)
        booster = gb.train({"max_depth": 4, "max_cat_to_onehot": 2}, dtrain, 3, verbose_eval=False)
        assert any(tree.sets is not None for tree in booster.model.trees)
        return bytes(booster.save_raw()), booster.predict(dtrain).tobytes(), dtrain.any_binned().representation

    *expected, representation = work()
    assert representation is Representation.DENSE
    keep_lists(monkeypatch)
    assert work() == (*expected, Representation.SPARSE)


def test_a_missing_cell_beside_256_bins_needs_two_bytes(monkeypatch):
    """Where absent cells are zeros, missing ones are listed with a code behind those of all bins."""
    rng = np.random.default_rng(9)
    values = np.tile(np.arange(256.0), (10, 3)).reshape(-1, 3)[rng.permutation(2560)]
    y = values[:, 0] / 50 + rng.normal(size=2560)
    models = []
    for share, representation in ((0.0, Representation.DENSE), (0.02, Representation.SPARSE)):
        X = np.where(rng.random(values.shape) < share, NAN, values)
        csr = scipy.sparse.csr_matrix(X)
        model, found = train(csr, y, {"max_bin": 2000}, "zero")
        assert found is representation
        with monkeypatch.context() as patch:
            keep_lists(patch)
            assert train(csr, y, {"max_bin": 2000}, "zero") == (model, Representation.SPARSE)
        models.append(model)
    assert models[0] != models[1]


def representation_of(csr, params=None):
    dtrain = gb.DMatrix(csr, np.arange(csr.shape[0]) % 5)
    gb.train({"max_bin": 256, **(params or {})}, dtrain, 1, verbose_eval=False)
    return dtrain.any_binned().representation


def test_which_tables_are_written_out(monkeypatch):
    def table(n_rows, n_features, per_row, n_values=1000):
        rng = np.random.default_rng(6)
        columns = rng.permuted(np.tile(np.arange(n_features), (n_rows, 1)), axis=1)[:, :per_row]
        values = rng.integers(1, n_values, columns.size).astype(np.float32)
        cells = values, np.sort(columns).ravel(), np.arange(0, columns.size + 1, per_row)
        return scipy.sparse.csr_matrix(cells, shape=(n_rows, n_features))

    assert representation_of(table(500, 64, 2)) is Representation.DENSE  # one in 32
    assert representation_of(table(500, 65, 2)) is Representation.SPARSE
    assert representation_of(table(259, 64, 2)) is Representation.DENSE  # rows for its columns
    assert representation_of(table(255, 64, 2)) is Representation.SPARSE
    assert representation_of(table(50, 200, 20)) is Representation.DENSE  # four columns a row
    assert representation_of(table(50, 201, 20)) is Representation.SPARSE
    monkeypatch.setattr(density, "SMALL_TABLE", 1000)
    assert representation_of(table(500, 32, 2)) is Representation.DENSE  # one in 16
    assert representation_of(table(500, 33, 2)) is Representation.SPARSE
    # More codes than a byte has; and exact search.
    assert representation_of(table(600, 8, 4), {"max_bin": 300}) is Representation.SPARSE
    assert representation_of(table(500, 8, 4), {"tree_method": "exact"}) is Representation.SORTED
    # Packed records, where they are worth it, are better still.
    ones = scipy.sparse.kron(np.ones((1, 12)), scipy.sparse.identity(6)).tocsr()[np.arange(3000) % 6]
    assert representation_of(scipy.sparse.csr_matrix(ones, dtype=np.float32)) is Representation.PACKED_SPARSE


def test_statistics_of_categories_are_refused_whatever_the_table_is_read_as():
    csr = scipy.sparse.csr_matrix(np.random.default_rng(7).integers(0, 9, (200, 3)).astype(np.float32))
    dtrain = gb.DMatrix(csr, np.arange(200) % 2, feature_types=["c", "c", "q"])
    with pytest.raises(NotImplementedError, match="sparse"):
        gb.train({"cat_encoding": "statistics", "max_cat_to_onehot": 1}, dtrain, 1)


SPARSE = [name for name, (_, layout) in CONFIGURATIONS.items() if layout.get("as") in ("csr", "csc") and "backend" not in layout]


@pytest.mark.parametrize("name", [name for name in SPARSE if "packing" not in name and "exact" not in name][::4])
def test_recorded_models(name):
    assert compute(name, writes_out=True) == recorded()[name]


@settings(max_examples=30)
@given(st.integers(0, 2**32), st.integers(0, 400), st.integers(1, 3))
def test_codes_of_all_cells(seed, n_rows, n_threads):
    rng = np.random.default_rng(seed)
    n_features, n_bins = 5, rng.integers(1, 250, 5)
    offsets = np.concatenate([[0], np.cumsum(n_bins)]).astype(np.int32)
    absent = rng.integers(0, n_bins + 1).astype(np.int32)
    expected = np.repeat(absent[:, None], n_rows, axis=1)
    row_begin, cells = [0], []
    for row in range(n_rows):
        of_row = []
        for f in np.flatnonzero(rng.random(n_features) < 0.5):
            expected[f, row] = code = rng.integers(0, n_bins[f] + 1)
            of_row.append(offsets[-1] + f if code == n_bins[f] else offsets[f] + code)
        cells += sorted(of_row)
        row_begin.append(len(cells))
    columns = np.full((n_features, n_rows), 77, np.uint8)
    features = np.repeat(np.arange(n_features), n_bins).astype(np.int32)
    write_out_cells_cpu(np.array(row_begin), np.array(cells, np.int32), features, offsets, absent, columns, n_threads)
    np.testing.assert_array_equal(columns, expected)
