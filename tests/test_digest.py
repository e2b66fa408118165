"""One model, byte for byte, however the work is laid out: threads, memory order, row order, batches, pages, workers, backend.

Each test trains the same cases twice or more and compares the SHA-256 of the model files.
"""

from typing import Any

import numpy as np
import pytest
from naive_backend import NaiveBackend
from scipy.sparse import csr_matrix
from sixteen_threads import on_16_threads

import gpuboost as gb
from gpuboost.backend.cpu.gradients import CpuGradients
from gpuboost.backend.cpu.trees import CpuTrees
from gpuboost.communicator import run_threads
from gpuboost.model_io import digest

OBJECTIVES: dict[str, dict[str, Any]] = {
    "reg:squarederror": {"gamma": 20.0},
    "binary:logistic": {"gamma": 2.0, "scale_pos_weight": 2.0},
    "multi:softprob": {"gamma": 2.0, "num_class": 3},
}
POLICIES: dict[str, dict[str, Any]] = {
    "depthwise": {"max_depth": 4, "max_leaves": 13},
    "lossguide": {"grow_policy": "lossguide", "max_depth": 0, "max_leaves": 12, "reg_alpha": 0.25, "max_delta_step": 0.7},
}
CASES = [(objective, policy, loud) for objective in OBJECTIVES for policy in POLICIES for loud in (False, True)]
ROUNDS = 3


def case_name(case):
    return f"{case[0]}-{case[1]}{'-loud' if case[2] else ''}"


@pytest.fixture(scope="module", params=CASES, ids=case_name)
def case(request, make_table):
    """(Table of 900 rows, parameters, digest of the model)."""
    table, params = settings(request.param, make_table, 900)
    return table, params, model_digest(params, matrix(table))


def settings(case, make_table, n_rows):
    objective, policy, loud = case
    params = {"objective": objective, "seed": 5, "max_bin": 24, **OBJECTIVES[objective], **POLICIES[policy]}
    return make_table(n_rows, objective, loud), params


def matrix(table, **info):
    return gb.DMatrix(table.X, table.label, weight=table.weight, **info)


def train(params, dtrain, rounds=ROUNDS, **options):
    return gb.train(params, dtrain, rounds, verbose_eval=False, **options)


def model_digest(params, dtrain, rounds=ROUNDS, **options):
    """The digest of a model that is not trivial: every tree splits, and they use several features and both default directions."""
    model = train(params, dtrain, rounds, **options).model
    assert len(model.trees) == rounds * model.n_outputs
    assert min(tree.n_leaves for tree in model.trees) >= 2
    splits = [(f, d) for t in model.trees for f, d, left in zip(t.feature, t.default_left, t.left_child) if left >= 0]
    assert len({f for f, _ in splits}) >= 3
    assert {d for _, d in splits} == {0, 1}
    return digest(model)


# ---- the cases are what they are meant to be


def test_loud_weights_take_two_limbs_and_others_one(case, monkeypatch):
    table, params, _ = case
    refined = []
    original = CpuGradients.refine

    def refine(self, *args):
        result = original(self, *args)
        refined.append(result is not None)
        return result

    monkeypatch.setattr(CpuGradients, "refine", refine)
    train(params, matrix(table))
    is_loud = table.weight.max() > 1e4
    assert refined == [is_loud] * ROUNDS


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_gamma_and_max_leaves_bind(objective, make_table):
    table, params = settings((objective, "depthwise", False), make_table, 900)

    def leaves(**change):
        return [tree.n_leaves for tree in train({**params, **change}, matrix(table)).model.trees]

    assert sum(leaves()) < sum(leaves(gamma=0.0))
    assert max(leaves(gamma=0.0)) == 13 < max(leaves(gamma=0.0, max_leaves=0))


# ---- the layout of the work


@pytest.mark.sweep(1)
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_threads(objective, make_table, tmp_path):
    n_rows = 20_000  # several chunks for each loop
    cases = [settings((objective, "depthwise", loud), make_table, n_rows) for loud in (False, True)]
    expected = [model_digest({**params, "nthread": 1}, matrix(table)) for table, params in cases]
    assert [model_digest({**params, "nthread": 2}, matrix(table)) for table, params in cases] == expected

    cases = [(params, (table.X, table.label, table.weight)) for table, params in cases]
    assert on_16_threads(tmp_path, cases, ROUNDS) == expected


@pytest.mark.sweep(4)
def test_memory_order_and_width_of_the_table(case):
    table, params, expected = case
    X, y, w = table.X, table.label, table.weight
    assert X.flags.c_contiguous
    for same in (np.asfortranarray(X), X.astype(np.float64), X[:, ::-1].copy()[:, ::-1], X[::-1].copy()[::-1]):
        assert model_digest(params, gb.DMatrix(same, y, weight=w)) == expected


def test_order_of_the_rows(case):
    table, params, expected = case
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(table.label))
        assert model_digest(params, matrix(table.take(order))) == expected


@pytest.mark.filterwarnings("ignore:Some columns hold nothing but missing values")
def test_rows_of_zero_weight_kept_or_dropped(case):
    table, params, expected = case
    dropped = table.take(table.weight > 0)
    assert 0 < len(dropped.label) < len(table.label)
    assert model_digest(params, matrix(dropped)) == expected


def test_unit_weights_and_none(make_table):
    table, params = settings(("binary:logistic", "depthwise", False), make_table, 900)
    ones = gb.DMatrix(table.X, table.label, weight=np.ones(900))
    assert model_digest(params, ones) == model_digest(params, gb.DMatrix(table.X, table.label))


def test_batches_of_the_source(case, monkeypatch):
    table, params, expected = case
    for batch_rows in (1, 7, 899, 1000):
        monkeypatch.setattr("gpuboost.data.tables.source.default_rows", lambda n_features, least=1: batch_rows)  # noqa: B023 - used at once
        assert model_digest(params, matrix(table)) == expected


def test_pages(case):
    table, params, expected = case
    for page_rows, n_pages in ((None, 1), (400, 3), (899, 2), (300, 3)):
        paged = gb.QuantileDMatrix(table.X, table.label, weight=table.weight, max_bin=24, page_rows=page_rows)
        assert len(paged.any_binned().pages) == n_pages
        assert model_digest(params, paged) == expected


@pytest.mark.sweep(12)
@pytest.mark.parametrize("ends", [[], [450], [1, 300], [40, 40, 500, 501, 502, 800]], ids=["1", "2", "3", "7"])
def test_workers(case, ends):
    """Shards of any size: one row, none."""
    table, params, expected = case
    shards = [slice(*pair) for pair in zip([0, *ends], [*ends, len(table.label)])]
    digests = run_threads(len(shards), lambda rank: model_digest(params, matrix(table.take(shards[rank]))))
    assert digests == [expected] * len(shards)


def test_workers_with_pages_and_batched_histograms(case):
    table, params, expected = case
    shards = [slice(0, 100), slice(100, 900)]

    def work(rank):
        own = table.take(shards[rank])
        paged = gb.QuantileDMatrix(own.X, own.label, weight=own.weight, max_bin=24, page_rows=70 + 200 * rank)
        return model_digest({**params, "histogram_memory": 10_000 + 10_000 * rank}, paged)

    assert run_threads(2, work) == [expected] * 2


def test_histogram_memory(case, monkeypatch):
    """2 histograms: none is ever subtracted. 7 per output: the upper levels are, the lower ones run in batches."""
    table, params, expected = case
    n_subtracted = 0
    original = CpuTrees.subtract_histograms

    def subtract(self, batch):
        nonlocal n_subtracted
        n_subtracted += 1
        original(self, batch)

    monkeypatch.setattr(CpuTrees, "subtract_histograms", subtract)
    monkeypatch.setattr(CpuTrees, "_whole_trees", lambda *_: None)  # which has room for all
    train(params, dtrain := matrix(table), 1)
    bytes_each = 16 * dtrain.any_binned().cuts.total_bins
    counts = []
    for n_histograms in (2, 7 * params.get("num_class", 1), 1000):
        n_subtracted = 0
        assert model_digest({**params, "histogram_memory": n_histograms * bytes_each}, matrix(table)) == expected
        counts.append(n_subtracted)
    assert counts[0] == 0 < counts[1] < counts[2]


@pytest.mark.parametrize("seed", [1, 5])
def test_siblings_are_subtracted_from_parents_that_were_built(seed):
    """Leaf by leaf, 4 of 7 trees end early: what did not fit before, or was searched by columns, then begins to be held, but the
    next leaves to be split are children of nodes without histograms."""
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 8, (300, 4)).astype(np.float32)
    few, many = X[:, 1] * X[:, 2] > 20, X[:, 1] + X[:, 2] * X[:, 3] + rng.normal(0, 2, 300) > 12
    y = np.where(X[:, 0] < 4, X[:, 0], 4 + few + many)
    params = {"objective": "multi:softprob", "num_class": 7, "grow_policy": "lossguide", "min_child_weight": 0.1, "alpha": 0.3}

    def grow(table, n_histograms=100):
        memory = {"histogram_memory": n_histograms * 32 * 16}  # 4 columns of 8 bins
        return digest(train({**params, **memory}, gb.DMatrix(table, y, sparse_absent="zero")).model)

    assert {grow(X, n) for n in range(2, 12)} == {grow(X)}
    mostly_zero = np.where(X < 6, 0, X)
    assert grow(csr_matrix(mostly_zero)) == grow(mostly_zero)


# ---- the course of the training


def test_continued_training(case):
    """2 + 3 rounds equal 5, from the Booster and from its file, on the table and on codes."""
    table, params, _ = case
    expected = model_digest(params, matrix(table), 5)
    first = train(params, matrix(table), 2)
    for model in (first, bytes(first.save_raw("json"))):
        assert digest(train(params, matrix(table), 3, xgb_model=model).model) == expected
    coded = gb.QuantileDMatrix(table.X, table.label, weight=table.weight, max_bin=24, page_rows=400)
    assert digest(train(params, coded, 3, xgb_model=first).model) == expected


@pytest.mark.sweep(4)
def test_evaluation_sets_change_nothing_and_score_alike_on_any_workers(case):
    table, params, expected = case
    other = table.take(slice(0, None, 3))

    def work(rank, rows=slice(None), other_rows=slice(None)):
        dtrain = matrix(table.take(rows))
        scores: dict[str, Any] = {}
        evals = [(dtrain, "train"), (matrix(other.take(other_rows)), "other")]
        assert model_digest(params, dtrain, evals=evals, evals_result=scores) == expected
        return scores

    scores = work(0)
    assert {len(values) for metrics in scores.values() for values in metrics.values()} == {ROUNDS}
    halves = [slice(0, 200), slice(200, None)]
    assert run_threads(2, lambda rank: work(rank, halves[rank], halves[1 - rank])) == [scores, scores]


# ---- another implementation of the contract


@pytest.mark.sweep(4)
@pytest.mark.parametrize("case", CASES, ids=case_name)
def test_naive_backend(case, make_table, use_backend):
    """The same bytes of model, scores and predictions from kernels and from plain loops, with a continued model too."""
    table, params = settings(case, make_table, 250)
    other = table.take(slice(0, 60))

    def run():
        scores: dict[str, Any] = {}
        first = train(params, matrix(table), 1)
        booster = train(params, matrix(table), 2, xgb_model=first, evals=[(matrix(other), "other")], evals_result=scores)
        n_leaves = [tree.n_leaves for tree in booster.model.trees]
        return digest(booster.model), scores, booster.predict(matrix(other)).tobytes(), n_leaves

    expected = run()
    assert max(expected[-1]) >= 4
    use_backend(NaiveBackend())
    assert run() == expected
