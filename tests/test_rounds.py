"""Rounds in one call (kernels/rounds.py) are the rounds that come one by one (Grower.grow)."""

import numpy as np
import pytest
import scipy.sparse

import gpuboost as gb
from gpuboost.backend import CpuBackend
from gpuboost.backend.cpu.training import CODES_PER_THREAD as USUAL_CODES
from gpuboost.backend.cpu.training import ROW_WORK, SET_CODES, TREE_WORK, WORK_AT_ONCE, CpuTraining, busy_threads
from gpuboost.backend.cpu.trees import CpuTrees
from gpuboost.kernels.quantise import FINE_ROWS
from gpuboost.kernels.row_leaves import FEWEST_ROWS
from gpuboost.model_io import digest
from gpuboost.training.running import Boosting

N_ROWS, N_ROUNDS = 900, 7
CLASSES = {"objective": "multi:softprob", "num_class": 3}
LOGISTIC = {"objective": "binary:logistic"}
AT_ONCE = {
    "plain": {}, "logistic": LOGISTIC, "weighed": {**LOGISTIC, "scale_pos_weight": 3.0}, "counts": {"objective": "count:poisson"},
    "classes": CLASSES, "vector leaves": {**CLASSES, "multi_strategy": "multi_output_tree"}, "few leaves": {"max_leaves": 6},
    "monotone": {"monotone_constraints": (1, -1, 0, 0, 0, 0), "max_delta_step": 0.3}, "two bytes": {"max_bin": 400},
    "pruned": {"gamma": 2.0, "min_child_weight": 8.0, "reg_alpha": 0.1},
    "masks": {"colsample_bynode": 0.5, "colsample_bylevel": 0.8}, "no split": {"min_child_weight": 1e6},
    "interactions": {"interaction_constraints": [[0, 1], [2, 3, 4]]}, "deep": {"max_depth": 9, "min_child_weight": 0.0},
    "one level": {"max_depth": 1}, "no depth": {"max_depth": 0, "max_leaves": 9}, "leaf by leaf": {"grow_policy": "lossguide"},
    "no limit": {"max_depth": 0, "grow_policy": "lossguide"}, "levels without limit": {"max_depth": 0},
    "leaves": {"grow_policy": "lossguide", "max_depth": 0, "max_leaves": 20, "gamma": 1.0},
    "leaves of classes": {"grow_policy": "lossguide", "max_depth": 0, "max_leaves": 12, **CLASSES},
    "rows": {"subsample": 0.5}, "most rows": {"subsample": 0.9}, "few rows": {"subsample": 0.12},
    "columns": {"colsample_bytree": 0.5}, "rows and columns": {**LOGISTIC, "subsample": 0.5, "colsample_bytree": 0.5},
    "rows by gradient": {**LOGISTIC, "subsample": 0.3, "sampling_method": "gradient_based"},
    "all rows by gradient": {"subsample": 1.0, "sampling_method": "gradient_based", "colsample_bytree": 0.8},
    "rows of classes": {**CLASSES, "subsample": 0.6, "colsample_bytree": 0.7},
    "rows of vector leaves": {**CLASSES, "multi_strategy": "multi_output_tree", "subsample": 0.5},
    "rows of deep trees": {"subsample": 0.5, "colsample_bytree": 0.5, "max_depth": 9, "min_child_weight": 0.0},
    "rows of leaves": {"grow_policy": "lossguide", "max_depth": 0, "max_leaves": 20, "subsample": 0.7, "colsample_bytree": 0.4},
    "columns of two bytes": {"max_bin": 400, "subsample": 0.5, "colsample_bytree": 0.5},
    "all draws": {"subsample": 0.5, "colsample_bytree": 0.7, "colsample_bylevel": 0.8, "colsample_bynode": 0.7},
    "weighed columns": {"colsample_bytree": 0.5, "feature_weights": [1.0, 0.0, 2.0, 5.0, 0.1, 1.0]},
}  # fmt: skip
ONE_BY_ONE = {
    "forest": {"num_parallel_tree": 2, "subsample": 0.6},
    "dart": {"booster": "dart", "rate_drop": 0.5}, "quantile leaves": {"objective": "reg:absoluteerror"},
    "exact": {"tree_method": "exact"}, "proposals": {"tree_method": "approx"},
    "sketch": {**CLASSES, "multi_strategy": "multi_output_tree", "output_sketch": "top_outputs:1"},
    "linear": {"booster": "gblinear"},
}  # fmt: skip


@pytest.fixture
def rounds(monkeypatch):
    """How many rounds each call grew, and whether any may be."""

    class Rounds(list[int]):
        allowed = True

    rounds, grow = Rounds(), CpuTraining.grow_rounds

    def counted(*args):
        grown = grow(*args) if rounds.allowed else []
        rounds.append(len(grown))
        return grown

    monkeypatch.setattr(CpuTraining, "grow_rounds", counted)
    monkeypatch.setattr("gpuboost.backend.cpu.training.CODES_PER_THREAD", 1)
    return rounds


def table(n_rows=N_ROWS):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(n_rows, 6)).astype(np.float32)
    X[:, 3] = rng.integers(0, 100, n_rows)
    X[rng.random(X.shape) < 0.1] = np.nan
    y = np.nan_to_num(X[:, 0] + X[:, 1] * X[:, 2]) + np.nan_to_num(X[:, 3]) / 33 + rng.normal(size=n_rows)
    return X, y


def labels(params, y):
    objective = params.get("objective", "")
    if "num_class" in params:
        return np.searchsorted([0.0, 1.0], y)
    return y > 1 if "logistic" in objective else np.floor(np.maximum(y, 0)) if "poisson" in objective else y


def train(params, dtrain, n_rounds=N_ROUNDS, **given):
    return gb.train({"max_depth": 5, "seed": 3, **params}, dtrain, n_rounds, verbose_eval=False, **given)


@pytest.mark.filterwarnings("ignore:the first round split no node")
@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("params", AT_ONCE.values(), ids=AT_ONCE)
def test_one_call_grows_the_rounds_that_come_one_by_one(params, n_threads, rounds, use_backend):
    X, y = table()
    dtrain, models = gb.DMatrix(X, labels(params, y), weight=1 + np.arange(N_ROWS) % 3), []
    for rounds.allowed, threads in ((True, n_threads), (False, 1)):
        use_backend(CpuBackend(threads))
        booster = train(params, dtrain)
        models.append(digest(booster.model))
        assert booster.num_boosted_rounds() == N_ROUNDS and sum(rounds) == N_ROUNDS * rounds.allowed
        rounds.clear()
    assert models[0] == models[1]


@pytest.mark.parametrize("method", ["uniform", "gradient_based"])
def test_rows_of_several_chunks(method, rounds, use_backend):
    X, y = table(20_000)
    params, digests = {"subsample": 0.6, "sampling_method": method, "colsample_bytree": 0.7}, set()
    dtrain = gb.DMatrix(X, y)
    for rounds.allowed, threads in ((True, 1), (True, 3), (False, 2)):
        use_backend(CpuBackend(threads))
        digests.add(digest(train(params, dtrain).model))
    assert len(digests) == 1 and sum(rounds) == 2 * N_ROUNDS


@pytest.mark.parametrize("most_sums", [2**14, 40])
@pytest.mark.parametrize("params", [{}, CLASSES], ids=["plain", "classes"])
def test_leaves_row_by_row_and_list_by_list(params, most_sums, rounds, use_backend, monkeypatch):
    """Of trees of more nodes than 40 list by list."""
    monkeypatch.setattr("gpuboost.backend.cpu.trees.MOST_SUMS", most_sums)
    X, y = table(FEWEST_ROWS)
    dtrain, models = gb.DMatrix(X, labels(params, y)), set()
    for rounds.allowed, threads in ((True, 2), (False, 1)):
        use_backend(CpuBackend(threads))
        models.add(digest(train(params, dtrain).model))
    assert len(models) == 1 and sum(rounds) == N_ROUNDS


def test_packed_records(rounds):
    codes = np.random.default_rng(6).integers(0, 5, (1500, 8))
    X, y = np.eye(5, dtype=np.float32)[codes].reshape(-1, 40), codes[:, 0] * (codes[:, 1] > 2) + np.sin(codes[:, 5])
    at_once = digest(train({}, gb.DMatrix(X, y)).model)
    assert sum(rounds) == N_ROUNDS
    rounds.allowed = False
    assert digest(train({}, gb.DMatrix(X, y)).model) == at_once


OF_SETS = {
    **{name: AT_ONCE[name] for name in ("plain", "logistic", "weighed", "counts", "classes", "vector leaves", "leaves")},
    "one-hot": {"max_cat_to_onehot": 50}, "a given brake": {"cat_noise": 0.5}, "no brake": {"cat_noise": 0.0},
}  # fmt: skip


@pytest.mark.parametrize("n_threads", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("n_categories, is_sparse", [(12, False), (150, False), (12, True)])
@pytest.mark.parametrize("params", OF_SETS.values(), ids=OF_SETS)
def test_sets_of_categories(params, n_categories, is_sparse, n_threads, rounds, use_backend):
    """Whose brake is chosen anew for each round: they are those of rounds that come one by one."""
    (X, y), rng, models = table(), np.random.default_rng(2), []
    X[:, :2] = rng.integers(0, n_categories, (N_ROWS, 2))
    y = y + 2 * (X[:, 0] % 3 == 1) - (X[:, 1] % 5 > 2)
    if is_sparse:
        others = scipy.sparse.random(N_ROWS, 300, 0.02, "csr", np.float32, rng)
        X = scipy.sparse.hstack([scipy.sparse.csr_matrix(np.nan_to_num(X)), others], "csr")
    types = ["c", "c"] + ["float"] * (X.shape[1] - 2)
    dtrain = gb.DMatrix(X, labels(params, y), weight=1 + np.arange(N_ROWS) % 3, feature_types=types)
    for rounds.allowed, threads in ((True, n_threads), (False, 1)):
        use_backend(CpuBackend(threads))
        booster = train(params, dtrain)
        models.append(booster.model)
        assert sum(rounds) == N_ROUNDS * rounds.allowed
        rounds.clear()
    assert digest(models[0]) == digest(models[1]) and any(tree.sets is not None for tree in models[0].trees)


@pytest.mark.parametrize("params", ONE_BY_ONE.values(), ids=ONE_BY_ONE)
def test_what_it_has_no_step_for_comes_one_by_one(params, rounds):
    X, y = table()
    train(params, gb.DMatrix(np.nan_to_num(X), labels(params, y)), 2)
    assert not any(rounds)


@pytest.mark.parametrize("kind", ["zero weight", "pages", "own", "classes in parts", "rows of sparse", "columns of sets"])
def test_tables_and_uses_that_it_is_not_for(kind, rounds, monkeypatch):
    X, y = table()
    given = {"weight": np.arange(len(y)) % 2} if kind == "zero weight" else {}
    dtrain = gb.QuantileDMatrix(X, y, page_rows=300) if kind == "pages" else gb.DMatrix(X, y, **given)
    params, uses = {}, {"own": {"obj": lambda p, d: (p - d.get_label(), np.ones_like(p))}}
    if kind == "classes in parts":  # whose lists would take more room (trees_at_once)
        monkeypatch.setattr("gpuboost.backend.cpu.training.ROWS_AT_ONCE", 2 * len(y))
        params, dtrain = CLASSES, gb.DMatrix(X, labels(CLASSES, y))
    elif kind == "rows of sparse":
        params = {"subsample": 0.5}
        dtrain = gb.DMatrix(scipy.sparse.random(N_ROWS, 300, 0.02, "csr", np.float32, np.random.default_rng(0)), y)
    elif kind == "columns of sets":
        params, dtrain = {"colsample_bytree": 0.5}, gb.DMatrix(np.round(np.abs(X)), y, feature_types=["c"] * X.shape[1])
    assert train(params, dtrain, 2, **uses.get(kind, {})).num_boosted_rounds() == 2
    assert not any(rounds)


@pytest.mark.parametrize("params", [{}, CLASSES, {"max_leaves": 5, "gamma": 1.0}, {"num_parallel_tree": 2}], ids=str)
@pytest.mark.parametrize("kind", ["watched", "callback", "update"])
def test_rounds_that_somebody_looks_at_come_one_at_a_time(params, kind, rounds):
    """Evaluations, and predictions in between, see each round."""
    X, y = table()
    logs, models, predictions = [], [], []
    for rounds.allowed in (True, False):
        dtrain, dvalid = gb.DMatrix(X, labels(params, y)), gb.DMatrix(X[::2] + 0.25, labels(params, y)[::2])
        log = {}
        if kind == "watched":
            booster = train(params, dtrain, 6, evals=[(dvalid, "v"), (dtrain, "t")], evals_result=log)
        elif kind == "callback":
            booster = train(params, dtrain, 6, callbacks=[gb.callback.TrainingCallback()])
        else:
            booster = gb.Booster({**params, "max_depth": 4})
            for i in range(6):
                booster.update(dtrain)
                log[i] = booster.eval_set([(dvalid, "v")])
                predictions.append(booster.predict(dvalid))
        assert rounds == ([] if "num_parallel_tree" in params else [int(rounds.allowed)] * 6)
        rounds.clear()
        logs.append(log)
        models.append(digest(booster.model))
    assert models[0] == models[1] and logs[0] == logs[1]
    assert [p.tobytes() for p in predictions[:6]] == [p.tobytes() for p in predictions[6:]]


def test_more_rounds_than_one_call_has_room_for(rounds, monkeypatch):
    monkeypatch.setattr("gpuboost.backend.cpu.trees.ROOM_FOR_ROUNDS", 200)
    X, y = table()
    model = digest(train({}, gb.DMatrix(X, y), 40).model)
    assert sum(rounds) == 40 and len(rounds) > 3 and min(rounds) > 0
    rounds.allowed = False
    assert digest(train({}, gb.DMatrix(X, y), 40).model) == model


def test_rounds_that_need_two_limbs_come_one_by_one(rounds):
    """Half of the rows are soon sure, and light: a leaf of them holds few units of the others' scale."""
    X, _ = table()
    X[:, 5] = np.arange(N_ROWS) % 2
    y = np.where(X[:, 5] > 0, 1, np.random.default_rng(1).integers(0, 2, N_ROWS))
    params = {**LOGISTIC, "max_depth": 2, "min_child_weight": 0.0, "reg_lambda": 0.01, "learning_rate": 1.0}
    model = digest(train(params, gb.DMatrix(X, y), 30).model)
    assert 0 < sum(rounds) < 30
    rounds.allowed = False
    assert digest(train(params, gb.DMatrix(X, y), 30).model) == model


def test_it_goes_on_from_a_model(rounds):
    X, y = table()
    dtrain = gb.DMatrix(X, y)
    whole, begun = train({}, dtrain), train({}, dtrain, 3)
    assert digest(train({}, dtrain, N_ROUNDS - 3, xgb_model=begun).model) == digest(whole.model)
    assert sum(rounds) == 2 * N_ROUNDS


@pytest.mark.parametrize("n_rounds", [20, 200])
def test_margins_that_grow_beyond_float32_are_an_error(n_rounds, rounds):
    """Each round makes the error −4 times what it was."""
    X, y = table()
    params, messages = {"learning_rate": 5.0, "max_depth": 1, "reg_lambda": 0.0, "base_score": 0.0}, []
    for rounds.allowed in (True, False):
        with pytest.raises(FloatingPointError) as error:
            train(params, gb.DMatrix(np.zeros((N_ROWS, 1)), np.full(N_ROWS, 1e30)), n_rounds)
        messages.append(str(error.value))
        assert any(rounds) == rounds.allowed
        rounds.clear()
    assert messages[0] == messages[1]


def test_of_a_large_table_every_round_is_a_call(rounds, monkeypatch):
    X, y = table()
    dtrain, digests = gb.DMatrix(X, y), set()
    for work in (WORK_AT_ONCE, 1):
        monkeypatch.setattr("gpuboost.backend.cpu.training.WORK_AT_ONCE", work)
        digests.add(digest(train({}, dtrain, 5).model))
    assert rounds == [5, 1, 1, 1, 1, 1] and len(digests) == 1


@pytest.mark.parametrize("n_outputs", [1, 5])
def test_a_call_does_not_last(n_outputs, rounds, monkeypatch):
    """Of as many rounds as anybody may ask for, each call grows some 200 ms of work."""
    X, y = table(2000)
    work = n_outputs * len(X) * (X.shape[1] + ROW_WORK) + TREE_WORK
    params = {"max_depth": 1, "multi_strategy": "multi_output_tree"}
    booster, dtrain = gb.Booster(params), gb.DMatrix(X, np.outer(y, np.arange(1, n_outputs + 1)))
    monkeypatch.setattr(Boosting, "collect_rounds", lambda *_: stop())
    monkeypatch.setattr("gpuboost.backend.cpu.trees.ROOM_FOR_ROUNDS", 10_000)
    with pytest.raises(KeyboardInterrupt):
        booster._update_rounds(dtrain, 10**12)
    n_bins = dtrain.any_binned().cuts.total_bins  # half of them for each of two leaves
    assert rounds == [WORK_AT_ONCE // (work + n_outputs * n_bins)]


def test_categories_keep_threads_busy():
    """Sets of them are searched longer than thresholds."""
    codes = np.random.default_rng(0).integers(0, 200, (1000, 6)).astype(np.float32)
    n_busy = {"q": 1, "c": (6000 + 6 * 200 * SET_CODES) // USUAL_CODES}
    for kind, n in n_busy.items():
        binned = gb.QuantileDMatrix(codes, feature_types=[kind] * 6).any_binned()
        assert [busy_threads(binned, 1, most) for most in (1, 64)] == [1, n]
    assert n_busy["c"] == 2


@pytest.mark.parametrize("params", [
    {"subsample": 0.05}, {"subsample": 0.03}, {"objective": "count:poisson", "subsample": 0.07}, {**CLASSES, "subsample": 0.05},
])  # fmt: skip
def test_few_rows_drawn_of_many_may_need_two_limbs(params, rounds):
    """What counts is how many are drawn."""
    X, y = table()
    models = []
    for rounds.allowed in (True, False):
        models.append(digest(train(params, gb.DMatrix(X, labels(params, y))).model))
        assert sum(rounds) == 0 < len(rounds)
    assert models[0] == models[1]


def test_rounds_that_wait_hold_no_more_than_their_nodes(rounds, monkeypatch):
    """Trees of one leaf, where a thousand might have been."""
    waiting, grow = [], CpuTraining.grow_rounds
    monkeypatch.setattr(CpuTraining, "grow_rounds", lambda *args: waiting.extend(grown := grow(*args)) or grown)
    X, y = table(3000)
    dtrain, params = gb.DMatrix(X, y), {"max_depth": 11, "min_child_weight": 1e9}
    with pytest.warns(UserWarning, match="split no node"):
        train(params, dtrain, 6, evals=[(dtrain, "t")])
        train(params, dtrain, 6)
    assert len(waiting) == 12
    for grown in waiting:
        for values in (grown.nodes, grown.leaf_values, grown.weights, grown.covers):
            held = values
            while held.base is not None:
                held = held.base
            assert len(values) == 1 and held.nbytes <= 6 * values.nbytes


def test_evaluations_between_several_rounds_see_them_all(rounds):
    X, y = table()
    values = []
    for rounds.allowed in (True, False):
        booster, dtrain, dvalid = gb.Booster({"max_depth": 4}), gb.DMatrix(X, y), gb.DMatrix(X[::2], y[::2])
        for _ in range(3):
            booster._update_rounds(dtrain, 4)
            values.append(booster.eval_set([(dvalid, "v"), (dtrain, "t")]))
    assert values[:3] == values[3:] and len(set(values)) == 3


def stop():
    raise KeyboardInterrupt


def test_rounds_at_once_and_one_by_one_in_turns(rounds):
    """Also where parameters change in between."""
    X, y = table()
    digests = set()
    for allowed in (True, False):
        booster, dtrain = gb.Booster({"seed": 3}), gb.DMatrix(X, y)
        for depth, rate in ((3, 0.3), (6, 0.1), (2, 0.5)):
            booster.set_param({"max_depth": depth, "learning_rate": rate})
            rounds.allowed = False
            booster.update(dtrain)
            rounds.allowed = allowed
            booster._update_rounds(dtrain, 4)
        digests.add(digest(booster.model))
    assert len(digests) == 1 and sum(rounds) == 12


def test_after_a_round_of_two_limbs_it_is_tried_again(rounds, monkeypatch):
    monkeypatch.setattr("gpuboost.backend.cpu.training.ROUNDS_ALONE", 3)
    X, y = table(FINE_ROWS)
    train({}, gb.DMatrix(X, y), 7)
    assert rounds == [0] * 3
    tried = []
    monkeypatch.setattr(CpuTrees, "grow_rounds", lambda *_: tried.append(1) or [])
    train({}, gb.DMatrix(X, y), 7)
    assert len(tried) == 3
