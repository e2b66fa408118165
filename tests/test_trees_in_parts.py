"""A round's trees that grow one part after another, as many at once as lists are short for: the same models and scores."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

import gpuboost as gb
from gpuboost.backend.cpu import training
from gpuboost.backend.cpu.tables import DenseTable
from gpuboost.backend.cpu.trees import CpuTrees
from gpuboost.kernels.jit import available_threads
from gpuboost.model_io import digest

N_ROWS, N_CLASSES = 1200, 5
RNG = np.random.default_rng(9)
X = RNG.normal(size=(N_ROWS, 6)).astype(np.float32)
X[RNG.random(X.shape) < 0.1] = np.nan
SCORE = np.nan_to_num(X[:, 0]) * np.nan_to_num(X[:, 1]) + np.nan_to_num(X[:, 2])
Y = np.digitize(SCORE, [-1, -0.3, 0.4, 1.2]).astype(np.float32)
WEIGHT = (RNG.random(N_ROWS) < 0.9).astype(np.float32)
CLASSES = {"objective": "multi:softprob", "num_class": N_CLASSES}
KINDS = {
    "plain": CLASSES,
    "rows": {**CLASSES, "subsample": 0.5},
    "rows by gradient": {**CLASSES, "subsample": 0.3, "sampling_method": "gradient_based"},
    "columns": {**CLASSES, "colsample_bytree": 0.5},
    "columns of a node": {**CLASSES, "colsample_bynode": 0.5, "colsample_bylevel": 0.8},
    "constraints": {**CLASSES, "interaction_constraints": [[0, 1], [2, 3, 4]], "monotone_constraints": (1, 0, -1)},
    "by loss": {**CLASSES, "grow_policy": "lossguide", "max_leaves": 12, "max_depth": 0},
    "exact": {**CLASSES, "tree_method": "exact", "subsample": 0.7},
    "approx": {**CLASSES, "tree_method": "approx", "max_bin": 16},
    "forest": {**CLASSES, "num_parallel_tree": 3, "subsample": 0.5},
    "dart": {**CLASSES, "booster": "dart", "rate_drop": 0.4},
    "quantiles": {"objective": "reg:quantileerror", "quantile_alpha": [0.1, 0.3, 0.5, 0.7, 0.9]},
    "median": {"objective": "reg:absoluteerror", "subsample": 0.6},
    "targets": {"objective": "reg:squarederror"},
    "sparse": CLASSES,
    "many rows": CLASSES,
}


def train(kind, n_threads):
    """(digest, scores, predictions) of a training that evaluates its own table and another one."""
    x, y, weight = X, Y, WEIGHT
    if kind == "many rows":  # leaves are gone through row by row (kernels/row_leaves.py)
        x, y, weight = np.tile(X, (4, 1)), np.tile(Y, 4), None
    if kind in ("median", "targets"):
        y = np.stack([SCORE * k + np.nan_to_num(X[:, k]) for k in range(4)], axis=1)
    table = csr_matrix(np.nan_to_num(x)) if kind == "sparse" else x
    data, other, scores = gb.DMatrix(table, y, weight=weight), gb.DMatrix(table[:300], y[:300]), {}
    params = {"max_depth": 4, "nthread": n_threads, "learning_rate": 0.5, **KINDS[kind]}
    evals = [(data, "train"), (other, "other")]
    model = gb.train(params, data, 3, evals=evals, evals_result=scores, verbose_eval=False)
    return digest(model.model), scores, model.predict(other).tolist()


@pytest.mark.parametrize("n_threads", [1, pytest.param(2, marks=pytest.mark.skipif(available_threads() < 2, reason="one core"))])
@pytest.mark.parametrize("kind", KINDS)
def test_parts_are_of_the_model_of_all_at_once(kind, n_threads, monkeypatch):
    grown, start = [], CpuTrees.start

    def counted(self, sums):
        start(self, sums)
        grown.append(self.first_output.tolist())

    expected = train(kind, n_threads)
    monkeypatch.setattr(training, "ROWS_AT_ONCE", 0)
    monkeypatch.setattr(training, "CODES_PER_THREAD", 1)  # else so small a table has one
    monkeypatch.setattr(CpuTrees, "start", counted)
    assert train(kind, n_threads) == expected
    n_outputs = 4 if kind in ("median", "targets") else 5
    alone = n_threads == 1 or kind != "forest"  # else a training on each of two threads
    in_parts = kind != "columns of a node" and alone  # whose draws are hashed by the numbers of trees that grow together
    at_once = 1 if kind == "approx" else n_threads  # whose histograms hold the candidates of one tree
    ends = sorted({*range(0, n_outputs, at_once), n_outputs}) if in_parts else [0, n_outputs]
    of_plan = [[*range(begin, end)] for begin, end in zip(ends, ends[1:])]
    assert len(grown) >= 3 * len(of_plan) and sorted(grown) == sorted(of_plan * (len(grown) // len(of_plan)))


def test_what_parts_share_is_made_once_a_round(monkeypatch):
    """Gradients of softmax need the margins of all classes, to which the first part has been added when the second begins."""
    calls, compute, draw = [], training.CpuGradients.compute, DenseTable.draw_columns
    monkeypatch.setattr(training, "ROWS_AT_ONCE", 0)
    monkeypatch.setattr(training.CpuGradients, "compute", lambda self, formula: calls.append("compute") or compute(self, formula))
    monkeypatch.setattr(DenseTable, "draw_columns", lambda self, columns: calls.append("draw") or draw(self, columns))
    gb.train({**CLASSES, "nthread": 1, "colsample_bytree": 0.5}, gb.DMatrix(X, Y), 4)
    assert calls == ["compute", "draw"] * 4


@pytest.mark.parametrize("params", [{}, {"booster": "dart", "rate_drop": 0.5}, {"num_parallel_tree": 2}], ids=len)
@pytest.mark.parametrize("owner, name", [
    (CpuTrees, "start"), (training.CpuTraining, "finish_trees"), (training.CpuTraining, "fetch_trees"),
    (training.CpuTraining, "update_margin"),
])  # fmt: skip
def test_an_interrupt_between_parts_leaves_whole_rounds(owner, name, params, monkeypatch):
    monkeypatch.setattr(training, "ROWS_AT_ONCE", 0)
    monkeypatch.setattr(training, "NODES_AT_ONCE", 0)
    params = {**CLASSES, "nthread": 1, "max_depth": 3, **params}
    expected, original, n_calls = digest(gb.train(params, gb.DMatrix(X, Y), 4).model), getattr(owner, name), []

    def interrupted(*args):
        n_calls.append(1)
        if len(n_calls) == N_CLASSES * params.get("num_parallel_tree", 1) + 3:  # in the second round
            raise KeyboardInterrupt
        return original(*args)

    monkeypatch.setattr(owner, name, interrupted)
    booster, dtrain = gb.Booster(params), gb.DMatrix(X, Y)
    booster.update(dtrain)
    with pytest.raises(KeyboardInterrupt):
        booster.update(dtrain)
        booster.num_boosted_rounds()
    assert booster.num_boosted_rounds() in (0, 1)
    while booster.num_boosted_rounds() < 4:
        booster.update(dtrain)
    assert digest(booster.model) == expected


@pytest.mark.parametrize("owner, name", [(CpuTrees, "start"), (CpuTrees, "weigh_leaves"), (training.CpuTraining, "finish_trees")])
def test_what_waits_to_be_the_models_is_whole_after_an_interrupt(owner, name, monkeypatch):
    """Trees of small rounds become the model's many at once."""
    monkeypatch.setattr(training, "ROWS_AT_ONCE", 0)
    params, original, n_calls = {**CLASSES, "nthread": 1, "max_depth": 3}, getattr(owner, name), []
    expected = [digest(gb.train(params, gb.DMatrix(X, Y), n).model) for n in (5, 7)]

    def interrupted(*args):
        n_calls.append(1)
        if len(n_calls) == 5 * N_CLASSES + 2:  # within the sixth round
            raise KeyboardInterrupt
        return original(*args)

    monkeypatch.setattr(owner, name, interrupted)
    booster, dtrain = gb.Booster(params), gb.DMatrix(X, Y)
    with pytest.raises(KeyboardInterrupt):
        for _ in range(7):
            booster.update(dtrain)
    assert booster.num_boosted_rounds() == 5 and digest(booster.model) == expected[0]
    for _ in range(2):
        booster.update(dtrain)
    assert digest(booster.model) == expected[1]


@pytest.mark.parametrize("role", ["train", "evals"])
def test_of_pages_in_files_all_trees_grow_at_once(role, monkeypatch, tmp_path):
    """Else the files would be read for every part."""
    grown, start = [], CpuTrees.start
    monkeypatch.setattr(training, "ROWS_AT_ONCE", 0)
    monkeypatch.setattr(CpuTrees, "start", lambda self, sums: start(self, sums) or grown.append(len(self.first_output)))
    np.savetxt(tmp_path / "table.csv", np.column_stack([Y, np.nan_to_num(X)]), delimiter=",")
    stream = f"{tmp_path / 'table.csv'}?format=csv&label_column=0"
    cuts = gb.QuantileDMatrix(np.nan_to_num(X), Y)
    pages = gb.ExtMemQuantileDMatrix(stream, cache_memory=0, page_rows=500, ref=None if role == "train" else cuts)
    if role == "train":
        gb.train({**CLASSES, "nthread": 1}, pages, 2)
    else:
        gb.train({**CLASSES, "nthread": 1}, cuts, 3, evals=[(pages, "pages")], verbose_eval=False)
        assert grown[:N_CLASSES] == [1] * N_CLASSES  # the first round, before anything was watched
        grown = grown[N_CLASSES:]
    assert grown == [N_CLASSES] * 2
