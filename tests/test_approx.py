"""tree_method="approx": the model of "hist" where no bin is left out, one model for any layout and device, and finer cuts below.

The rule that proposes candidates is tested in tests/kernels/test_proposals.py.
"""

from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from naive_backend import NaiveBackend
from scipy.sparse import csr_matrix
from simulator import SimulatedDevice

import gpuboost as gb
from gpuboost.backend import CpuBackend
from gpuboost.backend.cpu import tables
from gpuboost.backend.cpu.candidates import Candidates
from gpuboost.backend.cpu.tables import DenseTable, SparseTable
from gpuboost.backend.cpu.trees import CpuTrees
from gpuboost.backend.cuda import CudaBackend
from gpuboost.backend.cuda.training import CudaTraining
from gpuboost.backend.plans import ColumnDraw
from gpuboost.communicator import run_threads
from gpuboost.model_io import digest
from gpuboost.params import parse_params

pytestmark = pytest.mark.long

POLICIES = {"global": {"tree_method": "approx"}, "local": {"tree_method": "approx", "sketch_proposals": "local"}}
OBJECTIVES: dict[str, dict[str, Any]] = {"reg:squarederror": {}, "binary:logistic": {}, "multi:softprob": {"num_class": 3}}
ROUNDS = 3
FINE = 1024  # bins of the table for few candidates

each_policy = pytest.mark.parametrize("policy", POLICIES)
each_objective = pytest.mark.parametrize("objective", OBJECTIVES)


def settings(objective, policy=None, **params):
    return {"objective": objective, "seed": 5, "max_depth": 4, **OBJECTIVES[objective], **POLICIES.get(policy, {}), **params}


def matrix(table, rows=slice(None)):
    return gb.DMatrix(table.X[rows], table.label[rows], weight=table.weight[rows])


def model_digest(params, dtrain, rounds=ROUNDS):
    """The digest of a model whose every tree splits."""
    model = gb.train(params, dtrain, rounds, verbose_eval=False).model
    assert min(tree.n_leaves for tree in model.trees) >= 3
    return digest(model)


# ---- the same as hist


@each_objective
@pytest.mark.parametrize("loud", [False, True])
def test_few_values_give_the_model_of_hist(objective, loud, make_table):
    """At most 16 distinct values in a column; ties, missing values, weights, and columns that hold one value or none."""
    table = make_table(900, objective, loud)
    table.X[:] = np.round(2 * table.X)
    assert max(len(np.unique(column[~np.isnan(column)])) for column in table.X.T) <= 16
    for growth in ({}, {"grow_policy": "lossguide", "max_depth": 0, "max_leaves": 12, "max_delta_step": 0.7}):
        params = settings(objective, max_bin=16, **growth)
        expected = model_digest(params, matrix(table))
        for policy in POLICIES.values():
            assert model_digest({**params, **policy}, matrix(table)) == expected


def test_more_values_than_candidates_give_other_models(make_table):
    table = make_table(900, "binary:logistic")
    params = [settings("binary:logistic", policy, max_bin=16) for policy in (None, *POLICIES)]
    assert len({model_digest(p, matrix(table)) for p in params}) == 3


@pytest.mark.slow
def test_global_proposals_are_the_cuts_of_hist_where_hessians_are_the_weights(make_table):
    """Squared error, and no value so frequent that it is set aside."""
    table = make_table(900, "reg:squarederror")
    dtrain = gb.DMatrix(table.X[:, [0, 1, 3]], table.label, weight=table.weight)
    hist, approx = (model_digest(settings("reg:squarederror", policy, max_bin=16), dtrain) for policy in (None, "global"))
    assert hist == approx


# ---- one model


@pytest.fixture(params=[(o, p) for o in OBJECTIVES for p in POLICIES], ids="-".join)
def case(request, make_table):
    """(Table of 700 rows, parameters, digest)."""
    objective, policy = request.param
    table, params = make_table(700, objective), settings(objective, policy, max_bin=8)
    return table, params, model_digest(params, matrix(table))


@pytest.mark.parametrize("n_threads", [1, 2, 3])
def test_threads(case, n_threads, use_backend):
    table, params, expected = case
    use_backend(CpuBackend(n_threads))
    assert model_digest(params, matrix(table)) == expected


@pytest.mark.sweep(6)
@pytest.mark.parametrize("page_rows, n_pages", [(None, 1), (300, 3)])
def test_pages(case, page_rows, n_pages):
    table, params, expected = case
    paged = gb.QuantileDMatrix(table.X, table.label, weight=table.weight, max_bin=FINE, page_rows=page_rows)
    assert len(paged.any_binned().pages) == n_pages
    assert model_digest(params, paged) == expected


@pytest.mark.sweep(9)
@pytest.mark.parametrize("ends", [[], [300], [1, 450]], ids=["1", "2", "3"])
def test_workers(case, ends):
    """Their proposals are of all rows, though each holds some."""
    table, params, expected = case
    shards = [slice(*pair) for pair in zip([0, *ends], [*ends, 700])]
    work = lambda rank: model_digest({**params, "histogram_memory": 10**6 * (rank + 1)}, matrix(table, shards[rank]))
    assert run_threads(len(shards), work) == [expected] * len(shards)


def test_histograms_in_batches(case):
    """Two at a time: those of the root are gone when its children are evaluated, its proposals are not."""
    table, params, expected = case
    assert model_digest({**params, "histogram_memory": 1}, matrix(table)) == expected


@pytest.mark.sweep(4)
@each_policy
@each_objective
@pytest.mark.parametrize("growth", [{}, {"grow_policy": "lossguide", "max_depth": 0, "max_leaves": 9}], ids=["levels", "leaves"])
def test_naive_backend(policy, objective, growth, make_table, use_backend):
    """The same bytes from plain loops, with few rows that weigh much, so that some bins are heavy."""
    table, params = make_table(250, objective, loud=objective == "reg:squarederror"), settings(objective, policy, max_bin=8)
    expected = model_digest({**params, **growth}, matrix(table), 2)
    use_backend(NaiveBackend())
    assert model_digest({**params, **growth}, matrix(table), 2) == expected


@pytest.mark.sweep(1)
@each_policy
@pytest.mark.parametrize("objective", ["reg:squarederror", "multi:softprob"])
@pytest.mark.parametrize("growth", [{}, {"grow_policy": "lossguide", "max_leaves": 5}], ids=["levels", "leaves"])
def test_cuda_in_the_simulator(policy, objective, growth, make_table, use_backend):
    """The CPU's model; no wait of the host, and proposals of the roots or of every step."""
    table, params = make_table(120, objective, loud=True), settings(objective, policy, max_bin=5, **growth, max_depth=3)
    expected = model_digest(params, matrix(table), 1)
    cuda = CudaBackend(SimulatedDevice())
    use_backend(cuda)
    waits = []
    with pytest.MonkeyPatch.context() as patch:
        grow = CudaTraining.start_round, CudaTraining.finish_trees
        patch.setattr(CudaTraining, "start_round", lambda self, *a: (waits.append(cuda.device.waits), grow[0](self, *a))[1])
        patch.setattr(CudaTraining, "finish_trees", lambda self, *a: (waits.append(cuda.device.waits), grow[1](self, *a))[1])
        assert model_digest(params, matrix(table), 1) == expected
    assert waits[0] == waits[1]
    steps = 4 if growth else 3
    names = "evaluate_splits", "propose_candidates"
    counts = Counter(name for launch in cuda.device.launches for name in names if name in launch)
    assert counts == {"evaluate_splits": steps, "propose_candidates": 1 if policy == "global" else steps}


@pytest.mark.sweep(1)
@each_policy
def test_batches_of_gains_on_cuda(policy, make_table, use_backend, monkeypatch):
    """A level whose splits are found two nodes at a time reads each node's own proposals."""
    table, params = make_table(120, "reg:squarederror"), settings("reg:squarederror", policy, max_bin=5, max_depth=3)
    expected = model_digest(params, matrix(table), 1)
    monkeypatch.setattr("gpuboost.backend.cuda.plan.GAINS_BYTES", 2 * 12 * 6)
    use_backend(CudaBackend(SimulatedDevice()))
    assert model_digest(params, matrix(table), 1) == expected


# ---- what it is for


def test_global_proposals_are_few_thresholds_per_tree_and_local_ones_are_not():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(5000, 2)).astype(np.float32)
    y = np.sin(4 * X[:, 0]) + np.sin(4 * X[:, 1])
    most = {}
    for policy in POLICIES:
        params = settings("reg:squarederror", policy, sketch_eps=1 / 3, max_depth=6)
        trees = gb.train(params, gb.DMatrix(X, y), 5, verbose_eval=False).model.trees
        used = [len(np.unique(t.threshold[(t.left_child >= 0) & (t.feature == f)])) for t in trees for f in (0, 1)]
        most[policy] = max(used)
    assert most["global"] == 2  # of three candidates the last has all values on its left
    assert most["local"] > 6


def test_local_proposals_need_fewer_candidates():
    """Figure 3 of Chen & Guestrin 2016: with as few candidates, local proposals fit better. Mean over tables of the squared error
    that is left; single ones differ by less than a tenth of the margin."""
    errors = {policy: [] for policy in POLICIES}
    for seed in range(5):
        rng = np.random.default_rng(seed)
        X, test = (rng.normal(size=(4000, 4)).astype(np.float32) for _ in range(2))
        signal = lambda x: np.sin(3 * x[:, 0]) * np.cos(2 * x[:, 1]) + x[:, 2]
        for policy, own in errors.items():
            params = settings("reg:squarederror", policy, sketch_eps=0.3, max_depth=6)
            booster = gb.train(params, gb.DMatrix(X, signal(X)), 10, verbose_eval=False)
            own.append(np.mean((booster.predict(gb.DMatrix(test)) - signal(test)) ** 2))
    assert np.mean(errors["local"]) < 0.8 * np.mean(errors["global"]), errors


# ---- the table


@pytest.mark.parametrize("max_bin, n_bins", [(2, 1024), (64, 1024), (65, 1040), (256, 4096), (4096, 65535), (65535, 65535)])
def test_the_table_is_coded_more_finely(max_bin, n_bins):
    for policy in POLICIES.values():
        assert parse_params({**policy, "max_bin": max_bin}).table_bins == n_bins
    assert parse_params({"max_bin": max_bin}).table_bins == max_bin


@each_policy
def test_a_quantile_matrix_of_coarse_bins_is_refused(policy, make_table):
    table, params = make_table(300, "reg:squarederror"), settings("reg:squarederror", policy, max_bin=8)
    coarse = gb.QuantileDMatrix(table.X, table.label, max_bin=8)
    with pytest.raises(ValueError, match="among 1024 bins, .* keeps 8. Train on a DMatrix, or build it with max_bin=1024"):
        gb.train(params, coarse, 1)
    fine = gb.QuantileDMatrix(table.X, table.label, max_bin=FINE)
    assert model_digest(params, fine) == model_digest(params, gb.DMatrix(table.X, table.label))


# ---- histograms that hold the candidates alone


def _forms():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(3000, 6)).astype(np.float32)
    x[:, 1] = rng.integers(0, 300, 3000)  # as many values as there are candidates, or more
    x[:, 5] = 0
    missing, sparse = np.where(rng.random(x.shape) < 0.2, np.nan, x), np.where(rng.random(x.shape) < 0.7, 0, x)
    y = np.sin(x[:, 0]) + x[:, 1] / 300 + rng.normal(size=3000) / 3
    return y, {
        "dense": (x, {}), "missing": (missing, {}), "sparse": (csr_matrix(sparse), {}),
        "zeros": (csr_matrix(sparse), {"sparse_absent": "zero"}), "sets": (x, {"feature_types": ["q", "c", "q", "q", "q", "q"]}),
    }  # fmt: skip


LABELS, FORMS = _forms()
NARROWED = {
    "one byte": {"max_bin": 64}, "two bytes": {"max_bin": 256}, "rows": {"subsample": 0.5},
    "columns": {"colsample_bytree": 0.5, "colsample_bynode": 0.7}, "leaves": {"grow_policy": "lossguide", "max_leaves": 12},
    "little room": {"histogram_memory": 300_000, "max_depth": 7}, "trees": {"num_parallel_tree": 2, "subsample": 0.7},
    "classes": {"objective": "multi:softprob", "num_class": 3}, "monotone": {"monotone_constraints": "(1,0,-1,0,0,0)"},
    "several outputs": {"objective": "multi:softprob", "num_class": 3, "multi_strategy": "multi_output_tree"},
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("way", NARROWED)
def test_histograms_of_candidates_alone_give_the_same_model(form, way, monkeypatch):
    if form == "sets" and way in ("several outputs", "monotone"):
        pytest.skip("no sets of categories there")
    x, facts = FORMS[form]
    params = {"objective": "binary:logistic", "tree_method": "approx", "max_bin": 64, "seed": 1, **NARROWED[way]}
    labels = np.digitize(LABELS, [0, 1]) if "num_class" in params else LABELS > 0.5

    def trained(n_threads):
        dtrain = gb.DMatrix(x, label=labels, weight=np.arange(len(labels)) % 5 / 2, **facts)
        return digest(gb.train({**params, "nthread": n_threads}, dtrain, ROUNDS).model)

    narrowed, narrow = [], {kind: kind.narrow for kind in (DenseTable, SparseTable)}
    for kind in narrow:
        monkeypatch.setattr(kind, "narrow", lambda *given, kind=kind: narrowed.append(narrow[kind](*given)) or narrowed[-1])
    both = {trained(1), trained(3)}
    n_trees = {"classes": 3, "trees": 2}.get(way, 1)
    assert narrowed == [True] * (2 * ROUNDS * n_trees)
    monkeypatch.setattr(CpuTrees, "keep_candidates", lambda trees: None)
    assert both == {trained(1)}


def test_records_of_one_byte_and_of_two_take_turns(monkeypatch):
    """With 256 candidates a column that misses values in few of the rows drawn has two-byte codes only where it is drawn."""
    x = np.random.default_rng(0).normal(size=(4000, 5)).astype(np.float32)
    x[::2, 4] = np.nan
    params = {"tree_method": "approx", "max_depth": 4, "colsample_bytree": 0.6, "seed": 2}
    dtypes, recode = [], tables.recode_cpu
    monkeypatch.setattr(tables, "recode_cpu", lambda *given: dtypes.append(given[5].dtype.name) or recode(*given))
    narrowed = digest(gb.train(params, gb.DMatrix(x, label=x[:, 0]), 12).model)
    assert len(set(dtypes)) == 2 and sum(a != b for a, b in zip(dtypes, dtypes[1:])) > 2
    monkeypatch.setattr(CpuTrees, "keep_candidates", lambda trees: None)
    assert narrowed == digest(gb.train(params, gb.DMatrix(x, label=x[:, 0]), 12).model)


def test_a_column_whose_last_fine_bins_are_empty_keeps_them():
    """Rows of weight 0 lie beyond the last candidate: they are right of it, where predictions have them, too."""
    x = np.arange(2000, dtype=np.float32)[:, None]
    weight = (x[:, 0] < 1500).astype(float)
    params = {"tree_method": "approx", "max_bin": 32, "max_depth": 3, "base_score": 0}
    dtrain = gb.DMatrix(x, label=x[:, 0], weight=weight)
    first, whole = gb.train(params, dtrain, ROUNDS), gb.train(params, dtrain, 2 * ROUNDS)
    assert (np.diff(first.predict(dtrain)[1500:]) == 0).all()
    dmargin = gb.DMatrix(x, label=x[:, 0], weight=weight, base_margin=first.predict(dtrain, output_margin=True))
    np.testing.assert_array_equal(gb.train(params, dmargin, ROUNDS).predict(dmargin), whole.predict(dtrain))


@pytest.mark.parametrize("is_proposed, ends", [
    ([0, 1, 0, 1, 0, 1, 1, 0], [1, 3, 5, 6, 7]), ([1] * 8, range(8)), ([0] * 8, [4, 7]),
])  # fmt: skip
def test_candidates_by_hand(is_proposed, ends):
    cuts = SimpleNamespace(categorical=None, n_bins=np.array([5, 3]), total_bins=8, n_features=2)
    fine = ColumnDraw(np.array([0, 1], np.int32), np.array([0, 5, 8], np.int32))
    candidates = Candidates.proposed(np.array(is_proposed, np.uint8), fine, cuts)
    ends = sorted({*ends, 4, 7})  # each column's last bin
    assert candidates.ends.tolist() == ends
    n0 = sum(end < 5 for end in ends)
    assert candidates.columns.offsets.tolist() == [0, n0, len(ends)]
    hist = np.arange(16).reshape(1, 8, 2)
    begins = [0, *(end + 1 for end in ends[:-1])]
    assert candidates.sum_up(hist).tolist() == [[hist[0, b : e + 1].sum(axis=0).tolist() for b, e in zip(begins, ends)]]
    new = [sum(end < b for end in ends if (end < 5) == (b < 5)) for b in range(8)]
    assert candidates.bins.tolist() == new
    assert candidates.codes(np.uint8).tolist() == [*new[:5], n0, *new[5:], len(ends) - n0]
    of_second = [e - 5 for e in ends if e >= 5]
    assert candidates.fine_bins(np.array([0, 1]), np.array([0, len(of_second) - 1])).tolist() == [ends[0], of_second[-1]]


def test_columns_with_few_hessians_may_propose_all_their_fine_bins():
    """Then a column has more bins than candidates, and histograms of candidates alone have no room for it."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3000, 4)).astype(np.float32)
    x[:, 2:][rng.random((3000, 2)) < 0.9] = np.nan
    y = np.nan_to_num(x).sum(axis=1) + rng.normal(size=3000)
    params = {"tree_method": "approx", "subsample": 0.1, "seed": 3}
    for max_bin in (2, 8, 40, 256):
        models = {
            digest(gb.train({**params, "max_bin": max_bin, "nthread": n}, gb.DMatrix(x, y), ROUNDS).model) for n in (1, 3)
        }  # fmt: skip
        assert len(models) == 1, max_bin

    def without_hessians(prediction, dmatrix):
        return prediction - dmatrix.get_label(), (np.arange(300) >= 40).astype(float)

    x, y = x[:300], y[:300]
    x[40:, 1:] = np.nan
    for max_bin in (2, 8, 30):
        booster = gb.train({"tree_method": "approx", "max_bin": max_bin}, gb.DMatrix(x, y), ROUNDS, obj=without_hessians)
        assert booster.num_boosted_rounds() == ROUNDS
