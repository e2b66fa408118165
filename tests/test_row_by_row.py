"""Leaves gone through row by row (kernels/row_leaves.py) or list by list (leaves.py): the same model, either where it may be."""

from collections import Counter

import numpy as np
import pytest
from scipy.sparse import csr_matrix

import gpuboost as gb
from gpuboost.backend.cpu import training, trees
from gpuboost.kernels.row_leaves import FEWEST_ROWS

N_ROWS = FEWEST_ROWS + 900
BY_ROWS, BY_LISTS = {"sum_found_cpu", "add_found_cpu"}, {"sum_leaves_cpu", "update_margin_cpu"}
RNG = np.random.default_rng(3)
X = RNG.normal(size=(N_ROWS, 4)).astype(np.float32)
Y = (X[:, 0] * X[:, 1] + X[:, 2] + RNG.normal(size=N_ROWS)).astype(np.float32)
SOME_ZEROS = RNG.integers(0, 3, N_ROWS).astype(np.float32)
ZEROS_BEHIND = np.where(np.arange(N_ROWS) < 4000, 1, SOME_ZEROS).astype(np.float32)
ALL_ROWS = {
    "plain": {},
    "deep": {"max_depth": 9, "min_child_weight": 0},
    "many nodes": {"max_depth": 13, "min_child_weight": 0},
    "by_loss": {"grow_policy": "lossguide", "max_leaves": 20, "max_depth": 0},
    "pruned": {"gamma": 20.0},
    "columns": {"colsample_bynode": 0.5, "monotone_constraints": "(1,0,0,0)"},
    "forest": {"num_parallel_tree": 3, "colsample_bynode": 0.5},
    "dart": {"booster": "dart", "rate_drop": 0.5},
    "classes": {"objective": "multi:softprob", "num_class": 3},
    "vector": {"objective": "multi:softprob", "num_class": 3, "multi_strategy": "multi_output_tree"},
    "sketch": {
        "objective": "multi:softprob", "num_class": 3, "multi_strategy": "multi_output_tree", "output_sketch": "top_outputs:1",
    },
    "quantile": {"objective": "reg:absoluteerror"},
    "approx": {"tree_method": "approx"},
    "exact": {"tree_method": "exact"},
    "sparse": {},
    "pages": {},
}  # fmt: skip
LEFT_OUT = {
    "sampled": {"subsample": 0.5},
    "sampled by gradient": {"subsample": 0.3, "sampling_method": "gradient_based"},
    "sampled forest": {"num_parallel_tree": 2, "subsample": 0.7},
    "weighed": {},
    "few left out": {"subsample": 0.9},
    "sampled and deep": {"subsample": 0.5, "max_depth": 9, "min_child_weight": 0},
    "sampled vector": {**ALL_ROWS["vector"], "subsample": 0.5},
}
LISTED = "few left out", "sampled and deep", "sampled vector"


@pytest.fixture
def called(monkeypatch):
    """The kernels of leaves that have been called."""
    names = Counter()

    def counted(name, kernel):
        def call(*args):
            names[name] += 1
            return kernel(*args)

        return call

    for name in BY_ROWS | BY_LISTS:
        monkeypatch.setattr(trees, name, counted(name, getattr(trees, name)))
    monkeypatch.setattr(training.CpuTraining, "grow_rounds", lambda *_: [])  # which calls them itself (test_rounds.py)
    return names


def outcome(name, n_threads, weight=None):
    """Bytes of the model, and the margins that three rounds have made of the training rows."""
    params = {"max_depth": 4, "seed": 1, "nthread": n_threads, **{**ALL_ROWS, **LEFT_OUT}.get(name, {})}
    label = np.digitize(Y, [-1, 1]) if "num_class" in params else Y
    table = csr_matrix(np.where(X > 0.5, X, 0)) if name == "sparse" else X
    if name == "pages":
        dtrain = gb.QuantileDMatrix(table, label, weight=weight, page_rows=2000)
    else:
        dtrain = gb.DMatrix(table, label, weight=weight)
    scores = {}
    booster = gb.train(params, dtrain, 3, evals=[(dtrain, "train")], evals_result=scores, verbose_eval=False)
    return bytes(booster.save_raw()), scores


@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("name", ALL_ROWS)
def test_rows_that_are_all_drawn_go_one_by_one_to_the_same_model(name, n_threads, called, monkeypatch):
    by_rows = outcome(name, n_threads)
    assert set(called) == BY_ROWS
    monkeypatch.setattr(trees, "FEWEST_ROWS", N_ROWS + 1)
    called.clear()
    assert outcome(name, n_threads) == by_rows
    assert set(called) == BY_LISTS


@pytest.mark.parametrize("name", LEFT_OUT)
def test_where_rows_are_left_out_none_is_written_over(name, called, monkeypatch):
    """And all find their leaves in the table's order, where that is sooner, to the same margins."""
    weight = SOME_ZEROS if name == "weighed" else None
    found = outcome(name, 2, weight)
    assert set(called) == (BY_LISTS if name in LISTED else {"sum_leaves_cpu"})
    monkeypatch.setattr(training.CpuTraining, "_finds_all_sooner", lambda self: name in LISTED)
    called.clear()
    assert outcome(name, 2, weight) == found
    assert set(called) == ({"sum_leaves_cpu"} if name in LISTED else BY_LISTS)


def test_of_pages_those_without_rows_of_zero_weight_go_row_by_row(called, monkeypatch):
    mixed = outcome("pages", 2, ZEROS_BEHIND)
    assert called == Counter(dict.fromkeys(BY_ROWS, 3 * 2) | dict.fromkeys(BY_LISTS, 3 * 1))  # rounds × pages of 2000 rows
    monkeypatch.setattr(trees, "FEWEST_ROWS", N_ROWS + 1)
    assert outcome("pages", 2, ZEROS_BEHIND) == mixed


@pytest.mark.parametrize("most, expected", [(30, BY_LISTS), (31, BY_ROWS)])
def test_trees_of_too_many_nodes_go_list_by_list(most, expected, called, monkeypatch):
    monkeypatch.setattr(trees, "MOST_SUMS", most)
    grown = gb.train({"max_depth": 4, "min_child_weight": 0, "gamma": 0}, gb.DMatrix(X, Y), 1)
    assert grown.trees_to_dataframe().shape[0] == 31 and set(called) == expected
