"""Monotone constraints: what they promise of a tree and of predictions, one model from every backend, and how they are given."""

import json
from functools import cache

import numpy as np
import pytest
from naive_backend import NaiveBackend
from scipy.sparse import csr_matrix
from simulator import SimulatedDevice

import gpuboost as gb
from gpuboost.backend import CpuBackend
from gpuboost.backend.cuda import CudaBackend
from gpuboost.cli import main
from gpuboost.growing.constraints import resolve_monotone
from gpuboost.growing.plan import resolve_columns
from gpuboost.model_io import digest
from gpuboost.params import parse_params

SIGNS = (1, -1, 0, 1, 0)
CASES = {
    "hist": {},
    "deep": {"max_depth": 8, "min_child_weight": 0.0, "reg_lambda": 0.0},
    "lossguide": {"grow_policy": "lossguide", "max_depth": 0, "max_leaves": 14},
    "penalties": {"reg_alpha": 0.5, "max_delta_step": 0.4, "min_child_weight": 2.0},
    "pruned": {"gamma": 4.0},
    "logistic": {"objective": "binary:logistic"},
    "classes": {"objective": "multi:softprob", "num_class": 3},
    "loud": {},  # weights over six decades: gradients of two limbs
    "weights": {},
    "sparse": {},
    "approx": {"tree_method": "approx", "max_bin": 8},
    "approx, local": {"tree_method": "approx", "sketch_proposals": "local", "max_bin": 8},
    "exact": {"tree_method": "exact"},
}
SPARSE = ("sparse",)
NO_GPU = ("exact",)


@cache
def table(case, n_rows=300):
    """(X, label, weight). The signal goes both ways along the constrained columns 0, 1 and 3, so that constraints bind."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(n_rows, 5)).astype(np.float32)
    X[:, 3] = rng.integers(0, 4, n_rows)
    X[rng.random(X.shape) < 0.15] = 0.0 if case in SPARSE else np.nan
    Z = np.nan_to_num(X)
    y = 2 * np.sin(2 * Z[:, 0]) + Z[:, 0] + 2 * np.cos(2 * Z[:, 1]) - Z[:, 1] + Z[:, 2] * Z[:, 3] + Z[:, 4]
    y += rng.normal(0, 0.5, n_rows)
    if (n_classes := {"logistic": 2, "classes": 3}.get(case, 0)) > 0:
        y = np.digitize(y, np.quantile(y, np.arange(1, n_classes) / n_classes))
    weight = None
    if case in ("loud", "weights"):
        weight = 10.0 ** (6 * rng.random(n_rows) ** 4) if case == "loud" else rng.integers(0, 4, n_rows)
    return X, y, weight


def train(case, rounds=3, signs=SIGNS, n_rows=300, **params):
    X, y, weight = table(case, n_rows)
    params = {"max_depth": 4, "max_bin": 32, "seed": 2, "monotone_constraints": signs, **CASES[case], **params}
    dtrain = gb.DMatrix(csr_matrix(X) if case in SPARSE else X, y, weight=weight, sparse_absent="missing")
    return gb.train(params, dtrain, rounds, verbose_eval=False)


def leaves_below(tree, node):
    if tree.left_child[node] < 0:
        return [tree.leaf_value[node]]
    return [value for child in (0, 1) for value in leaves_below(tree, tree.left_child[node] + child)]


def violations(booster, signs=SIGNS):
    """(Splits on constrained features, those with a leaf on one side that is beyond one on the other) over all trees."""
    n_splits, n_wrong = 0, 0
    for tree in booster.model.trees:
        for node in np.flatnonzero(tree.left_child >= 0):
            sign = signs[tree.feature[node]]
            left, right = (leaves_below(tree, tree.left_child[node] + child) for child in (0, 1))
            n_splits += sign != 0
            n_wrong += sign > 0 and max(left) > min(right)
            n_wrong += sign < 0 and min(left) < max(right)
    return n_splits, n_wrong


def worst_steps(booster, case, signs=SIGNS):
    """For each constrained feature, the largest step that margins of 40 rows take against its sign along 60 values of it."""
    X, steps = table(case)[0][:40], []
    for f in np.flatnonzero(signs):
        rows = np.repeat(X, 60, axis=0)
        rows[:, f] = np.tile(np.linspace(-4, 4, 60), len(X))
        margin = booster.predict(gb.DMatrix(rows), output_margin=True).reshape(len(X), 60, -1).astype(float)
        steps.append((-signs[f] * np.diff(margin, axis=1)).max())
    return steps


# ---- what they promise


@pytest.mark.parametrize("signs", [SIGNS, (-1, 1, 1, -1, 0)])
@pytest.mark.parametrize("case", CASES)
def test_all_leaves_and_predictions_are_in_order(case, signs):
    booster, free = train(case, 8, signs), train(case, 8, ())
    n_splits, n_wrong = violations(booster, signs)
    assert n_splits > 10 and n_wrong == 0
    assert violations(free, signs)[1] > 10, "the data would have it otherwise"
    assert max(worst_steps(booster, case, signs)) <= 1e-6  # float32 sums of 8 leaves of a few units
    assert min(worst_steps(free, case, signs)) > 0.01


def test_constraints_that_the_data_obeys_cost_little():
    loss = {(): 0.0, (1, -1, 0, 0): 0.0, (-1, 0, 0, 0): 0.0}
    for seed in range(3):  # on one table alone, chance makes several per cent
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(6000, 4))
        y = 3 * X[:, 0] - np.exp(X[:, 1] / 2) + X[:, 2] ** 2 + rng.normal(0, 0.3, 6000)
        for signs in loss:
            booster = gb.train({"monotone_constraints": signs}, gb.DMatrix(X[:4000], y[:4000]), 30, verbose_eval=False)
            loss[signs] += np.mean((booster.predict(gb.DMatrix(X[4000:])) - y[4000:]) ** 2)
    assert loss[1, -1, 0, 0] < 1.02 * loss[()] and loss[-1, 0, 0, 0] > 3 * loss[()]


@pytest.mark.parametrize("tree_method", ["hist", "approx", "exact"])
def test_bounds_by_hand(tree_method):
    """λ = 0: weights are means. Rising in column 0, the root parts (0, 10) from (11, 12): 50 + 264.5 − 272.25 = 42.25, where
    column 1 gains 60.5 + 242 − 272.25. The middle of 5 and 11.5 bounds either side: the left leaf of 10 is held at 8.25, and its
    split gains −(2·(−10)·8.25 + 8.25²) − 50. Falling, no node may be cut at column 0: only the root is, at column 1."""
    X, y = np.array([[0, 0], [0, 1], [1, 0], [1, 1]]), np.array([0, 10, 11, 12])
    params = {"reg_lambda": 0, "base_score": 0, "eta": 1, "max_depth": 2, "tree_method": tree_method}

    def grow(sign):
        booster = gb.train({**params, "monotone_constraints": (sign,)}, gb.DMatrix(X, y), 1, verbose_eval=False)
        return booster.predict(gb.DMatrix(X)).tolist(), booster.model.trees[0]

    values, tree = grow(1)
    assert values == [0, 8.25, 11, 12] and tree.feature[0] == 0
    assert tree.gain[:3].tolist() == [42.25, 46.9375, 0.5]
    assert grow(-1)[0] == [5.5, 11, 5.5, 11]
    assert grow(0)[0] == [0, 10, 11, 12]


# ---- one model


def model_bytes(case, backend, monkeypatch, **params):
    with monkeypatch.context() as patch:
        patch.setattr("gpuboost.backend.choose_backend", lambda *_, **__: backend)
        return digest(train(case, 1, n_rows=120, max_depth=3, **params).model)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("case", CASES)
def test_every_backend_and_any_threads_give_the_same_model(case, monkeypatch):
    expected = model_bytes(case, CpuBackend(1), monkeypatch)
    others = [CpuBackend(2)]
    others += [NaiveBackend()] if case not in (*NO_GPU, *SPARSE) else []
    others += [CudaBackend(SimulatedDevice())] if case not in NO_GPU else []
    for backend in others:
        assert model_bytes(case, backend, monkeypatch) == expected, backend.describe()


@pytest.mark.parametrize("case", ["deep", "lossguide", "penalties", "loud", "weights", "classes"])
def test_walks_over_columns_and_histograms_agree(case):
    """A bin for every value: all but the thresholds, which lie in the same gaps."""
    exact, hist = (train(case, 3, tree_method=method, max_bin=256, n_rows=200) for method in ("exact", "hist"))
    for a, b in zip(exact.model.trees, hist.model.trees, strict=True):
        for field in ("left_child", "feature", "default_left", "leaf_value", "gain", "cover", "weight"):
            assert getattr(a, field).tobytes() == getattr(b, field).tobytes(), field


@pytest.mark.parametrize("zeros", [(0,), (0, 0, 0, 0, 0), "(0,0)", {"f1": 0}])
def test_zeros_are_no_constraints(zeros):
    assert digest(train("hist", signs=zeros).model) == digest(train("hist", signs=()).model) != digest(train("hist").model)
    settings = resolve_columns(parse_params({"monotone_constraints": zeros}), None, 5)
    assert settings.monotone_constraints == ()


# ---- how they are given

NAMES = ["age", "income", "height"]


@pytest.mark.parametrize("given, names, signs", [
    ((1, -1, 0), None, (1, -1, 0)),
    ([1], None, (1, 0, 0)),  # the rest is free
    (np.array([0, 0, -1]), NAMES, (0, 0, -1)),
    ("(1,-1,0)", None, (1, -1, 0)),
    (" [ 0, +1 ] ", None, (0, 1, 0)),
    ("(1)", None, (1, 0, 0)),
    ({"income": -1}, NAMES, (0, -1, 0)),
    ({"height": 1.0, "age": np.int64(-1)}, NAMES, (-1, 0, 1)),
    ("{'height': 1}", NAMES, (0, 0, 1)),
    ({"f2": 1, "f0": -1}, None, (-1, 0, 1)),
    ({2: 1, np.int64(0): -1}, None, (-1, 0, 1)),
    ({"0": -1}, ["7", "0", "1"], (0, -1, 0)),  # a name
    ({1: -1}, ["7", "0", "1"], (0, 0, -1)),  # as a frame's column 1 is called
    ([["age", 1]], NAMES, (1, 0, 0)),  # as a saved configuration has it
    ({}, NAMES, ()), ("", None, ()), ((0, 0), None, ()), ({"age": 0}, NAMES, ()),
])  # fmt: skip
def test_every_form_comes_to_signs_by_column(given, names, signs):
    params = parse_params({"monotone_constraints": given})
    assert resolve_monotone(params.monotone_constraints, names, 3) == signs
    assert hash(params) == hash(parse_params({"monotone_constraints": json.loads(json.dumps(params.monotone_constraints))}))


@pytest.mark.parametrize("given, names, message", [
    ((1, 0, 0, 0), None, "at most a sign for each of the 3 features, got 4"),
    ({"incom": 1}, NAMES, "'incom', which the table does not have. Did you mean 'income'?"),
    ({"f0": 1}, NAMES, "'f0', which the table does not have. It has 'age', 'income', 'height'."),
    ({2: 1}, NAMES, "'2', which the table does not have. It has 'age'"),
    ({3: 1}, None, "column 3, but the table's are 0 to 2"),
    ({"age": 1}, None, "'age', which the table does not have. It has 'f0', 'f1', 'f2'"),
])  # fmt: skip
def test_what_the_table_lacks_is_refused(given, names, message):
    dtrain = gb.DMatrix(np.zeros((4, 3)), np.arange(4), feature_names=names)
    with pytest.raises(ValueError) as error:
        gb.train({"monotone_constraints": given}, dtrain, 1)
    assert message in str(error.value)


def test_estimators_boosters_and_the_command_line_take_every_form(tmp_path, monkeypatch):
    pandas, sklearn = pytest.importorskip("pandas"), pytest.importorskip("sklearn.base")
    X, y, _ = table("hist")
    frame = pandas.DataFrame(X, columns=[f"c{i}" for i in range(5)])
    by_name = {"c0": 1, "c1": -1, "c3": 1}
    forms = [SIGNS, list(SIGNS), np.array(SIGNS), str(SIGNS), by_name, str(by_name)]
    expected = [train("hist", 4).model.trees[i].leaf_value.tobytes() for i in range(4)]

    def leaves(booster):
        return [tree.leaf_value.tobytes() for tree in booster.model.trees]

    for form in forms:
        params = {"max_depth": 4, "max_bin": 32, "seed": 2, "monotone_constraints": form}
        booster = gb.train(params, gb.DMatrix(frame, y), 4, verbose_eval=False)
        again = gb.Booster()
        again.load_config(booster.save_config())
        assert again.params == booster.params
        model = gb.GPUBoostRegressor(n_estimators=4, max_depth=4, max_bin=32, random_state=2, monotone_constraints=form)
        assert leaves(booster) == leaves(sklearn.clone(model).fit(frame, y).get_booster()) == expected
    monkeypatch.chdir(tmp_path)
    frame.assign(y=np.asarray(y, np.float32)).to_csv("d.csv", index=False)
    for form in (str(SIGNS), str(by_name)):
        assert main(["train", "d.csv", "--label", "y", "--model", "m.json", "--rounds", "4", "-p", "max_depth=4",
                     "-p", "max_bin=32", "-p", "seed=2", "-p", f"monotone_constraints={form}"]) == 0  # fmt: skip
        assert violations(gb.Booster(model_file="m.json"))[1] == 0
