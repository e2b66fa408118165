"""Labels of estimators: classes of any type, several labels of a row, several targets."""

import json
import pickle

import numpy as np
import pytest
from estimator_tables import digest, from_their_check, make_table

pytest.importorskip("sklearn", minversion="1.6")
import scipy.sparse as sp  # noqa: E402
from sklearn.exceptions import DataConversionWarning  # noqa: E402

import gpuboost as gb  # noqa: E402
from gpuboost import GPUBoostClassifier, GPUBoostRegressor  # noqa: E402

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def table():
    return make_table()


@pytest.mark.parametrize(
    "classes",
    [
        np.array(["no", "yes"]),
        np.array(["a", "b", "c"], dtype=object),
        np.array([False, True]),
        np.array([1, 2], dtype=np.int8),
        np.array([-5.0, 0.0, 12.0]),
        np.array([7]),
    ],
    ids=str,
)
def test_labels_of_any_type_come_back_and_survive_files(table, classes, tmp_path):
    X, signal, _ = table
    y = classes[np.digitize(signal, [0.7, 1.2][: len(classes) - 1])]
    model = GPUBoostClassifier(n_estimators=3).fit(X, y, eval_set=[(X[:99], y[:99])])
    assert model.classes_.dtype == classes.dtype and model.classes_.tolist() == classes.tolist()
    assert model.n_classes_ == len(classes)
    assert model.predict(X).dtype == classes.dtype and model.score(X, y) > 0.6
    p = model.predict_proba(X)
    assert p.shape == (300, len(classes)) and p.dtype == np.float32
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-6)
    model.save_model(tmp_path / "m.json")
    loaded = GPUBoostClassifier()
    loaded.load_model(tmp_path / "m.json")
    for other in (loaded, pickle.loads(pickle.dumps(model))):
        assert other.classes_.dtype == classes.dtype and digest(other) == digest(model)
        np.testing.assert_array_equal(other.predict(X), model.predict(X))


# Library and type of a column of labels, the values of its two classes, the NumPy type of classes_.
COLUMNS = {
    "pandas": ("str string category string[pyarrow]", ["high", "low"], "O"),
    "pandas of integers": ("int8 Int64 UInt8 int64[pyarrow] category object", [2, 7], "iu"),
    "pandas of numbers": ("Float64 float32 object", [2.0, 7.0], "f"),
    "pandas of booleans": ("boolean bool[pyarrow] object", [False, True], "b"),
    "polars": ("String Categorical", ["high", "low"], "OU"),
    "polars of integers": ("Int16", [2, 7], "i"),
    "polars of booleans": ("Boolean", [False, True], "b"),
    "pyarrow": ("string", ["high", "low"], "OU"),
    "pyarrow of booleans": ("bool_", [False, True], "b"),
}


@pytest.mark.parametrize("library, type_name", [(key, name) for key, (names, *_) in COLUMNS.items() for name in names.split()])
def test_columns_of_labels_keep_the_type_of_their_values(table, library, type_name):
    module = pytest.importorskip(library.split()[0])
    if "pyarrow" in type_name:
        pytest.importorskip("pyarrow")
    _, values, kinds = COLUMNS[library]
    X, signal, _ = table
    codes = (signal > 1).astype(int)
    y = [values[code] for code in codes]
    if library.startswith("pandas"):
        y = module.Series(y, dtype=type_name)
    else:
        y = module.Series(y, dtype=getattr(module, type_name)) if library.startswith("polars") else module.array(y)
    model = GPUBoostClassifier(n_estimators=2).fit(X, y, eval_set=[(X, y)])
    assert model.classes_.tolist() == values and model.classes_.dtype.kind in kinds
    expected = GPUBoostClassifier(n_estimators=2).fit(X, codes)
    np.testing.assert_array_equal(model.predict(X), np.array(values)[expected.predict(X)])


@from_their_check
@pytest.mark.parametrize("missing", [None, np.nan])
@pytest.mark.parametrize("dtype", ["str", "category", "Int64", "boolean", "object"])
def test_missing_labels_are_refused(table, dtype, missing):
    pd = pytest.importorskip("pandas")
    values = {"Int64": [1, 2], "boolean": [True, False]}.get(dtype, ["a", "b"])
    y = pd.Series([missing] + values * 149 + values[:1], dtype=dtype)
    with pytest.raises(ValueError, match="Input y contains NaN|y must hold labels of one kind, got .*Replace or remove missing"):
        GPUBoostClassifier(n_estimators=1).fit(table[0], y)


@pytest.mark.parametrize(
    "spoil, message",
    [
        (lambda y: np.where(y, 0.5, 0.0), "Unknown label type: continuous"),
        (lambda y: np.where(y, np.nan, 0.0), "NaN"),
        (lambda y: np.array(["a", None], dtype=object)[y.astype(int)], "labels of one kind, got NoneType, str"),
        (lambda y: np.stack([y, y + 1], axis=1), r"y of several columns must hold 0 and 1 only, got \[0, 1, 2\]. Use"),
        (lambda y: np.array(["a", "b"])[np.stack([y, y], axis=1).astype(int)], "y of several columns must hold 0 and 1 only"),
        (lambda y: np.where(np.stack([y, y], axis=1), np.nan, 0.0), "NaN"),
        (lambda y: np.array([1, "a"], dtype=object)[y.astype(int)], "labels of one kind, got int, str"),
    ],
)
@from_their_check
def test_labels_that_are_no_classes_are_refused(table, spoil, message):
    X, signal, _ = table
    with pytest.raises(ValueError, match=message):
        GPUBoostClassifier(n_estimators=1).fit(X, spoil(signal > 1))


@pytest.mark.parametrize("make", [GPUBoostClassifier, GPUBoostRegressor])
def test_a_column_of_labels_is_flattened_with_a_warning(table, make):
    X, signal, _ = table
    y = (signal > 1).astype(int)
    with pytest.warns(DataConversionWarning):
        model = make(n_estimators=2).fit(X, y[:, None])
    assert digest(model) == digest(make(n_estimators=2).fit(X, y))


@pytest.fixture(scope="module")
def labelled():
    """X float64 (2000, 4), Y int64 (2000, 3) of 0 and 1."""
    rng = np.random.default_rng(0)
    X = rng.random((2000, 4))
    noise = rng.normal(0, 0.1, (3, 2000))
    return X, np.stack([X[:, 0] + X[:, 1] + noise[0] > 1, X[:, 1] * X[:, 2] + noise[1] > 0.3, X[:, 3] > 0.9], axis=1).astype(int)


@pytest.mark.parametrize("params", [{}, {"scale_pos_weight": 3}], ids=str)
def test_several_labels_are_as_accurate_as_xgboosts(labelled, params):
    xgb = pytest.importorskip("xgboost")
    X, Y = labelled
    ours, theirs = (make(n_estimators=20, **params) for make in (GPUBoostClassifier, xgb.XGBClassifier))
    for model in (ours, theirs):
        model.fit(X[:1000], Y[:1000], eval_set=[(X[1000:], Y[1000:])], verbose=False)
    for model in (ours, theirs):
        assert model.classes_.tolist() == [0, 1] and model.n_classes_ == 2
        assert model.predict(X).shape == model.predict_proba(X).shape == model.predict(X, output_margin=True).shape == (2000, 3)
    mine, yours = (model.evals_result()["validation_0"]["logloss"][-1] for model in (ours, theirs))
    assert mine < yours + 0.01  # noise: splits of nearly equal gain
    assert ours.score(X[1000:], Y[1000:]) > theirs.score(X[1000:], Y[1000:]) - 0.02
    assert (ours.predict(X) == theirs.predict(X)).mean() > 0.97


def test_several_labels_start_from_the_odds_of_each(labelled):
    X, Y = labelled
    w = np.random.default_rng(1).integers(1, 9, 2000)
    model = GPUBoostClassifier(n_estimators=0, scale_pos_weight=3).fit(X, Y, sample_weight=w)
    positive, negative = 3 * w @ Y, w @ (1 - Y)
    np.testing.assert_allclose(model.predict_proba(X[:2]), [positive / (positive + negative)] * 2, rtol=1e-6)


@pytest.mark.parametrize("form", ["list", "list of arrays", "bool", "uint8", "float", "csr", "lil", "pandas", "polars"])
def test_several_labels_may_have_any_form(labelled, form, tmp_path):
    X, Y = labelled
    expected = GPUBoostClassifier(n_estimators=2).fit(X, Y)
    if form in ("pandas", "polars"):
        y = pytest.importorskip(form).DataFrame(dict(zip("abc", Y.T)))
    elif form in ("csr", "lil"):
        y = sp.csr_array(Y).asformat(form)
    else:
        y = {"list": Y.tolist(), "list of arrays": list(Y)}.get(form)
        y = Y.astype(form) if y is None else y
    model = GPUBoostClassifier(n_estimators=2).fit(X, y, eval_set=[(X, y)])
    kept = np.dtype(form) if form in ("bool", "uint8", "float") else Y.dtype
    assert model.classes_.dtype == model.predict(X).dtype == kept
    np.testing.assert_array_equal(model.predict(X), expected.predict(X))
    np.testing.assert_array_equal(model.predict(X), expected.predict_proba(X) > 0.5)
    model.save_model(tmp_path / "m.json")
    loaded = GPUBoostClassifier()
    loaded.load_model(tmp_path / "m.json")
    assert loaded.predict(X).dtype == kept
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


def test_xgboosts_file_of_several_labels_loads(labelled, tmp_path):
    xgb = pytest.importorskip("xgboost")
    X, Y = labelled
    theirs = xgb.XGBClassifier(n_estimators=3).fit(X, Y)
    theirs.save_model(tmp_path / "m.json")
    ours = GPUBoostClassifier()
    ours.load_model(tmp_path / "m.json")
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-6)  # another exp


def test_evaluations_of_several_labels_must_have_as_many(labelled):
    X, Y = labelled
    for y, message in {0: "the labels have 1 columns, the model has 3 targets", 1: "labels that the training .* 2"}.items():
        with pytest.raises(ValueError, match=message):
            GPUBoostClassifier(n_estimators=1).fit(X, Y, eval_set=[(X, Y + 1 if y else Y[:, 0])])


def test_several_targets_are_several_predictions(table):
    X, y, _ = table
    both = GPUBoostRegressor(n_estimators=3).fit(X, np.stack([y, 2 * y], axis=1)).predict(X)
    assert both.shape == (300, 2)
    # Gradients of the second target are twice those of the first, so their stochastic rounding is another.
    np.testing.assert_allclose(both[:, 0], GPUBoostRegressor(n_estimators=3).fit(X, y).predict(X), atol=1e-2)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_targets_may_be_a_frame(table, library):
    frame = pytest.importorskip(library).DataFrame
    X, y, _ = table
    Y = np.stack([y, -y], axis=1)
    expected = GPUBoostRegressor(n_estimators=2).fit(X, Y).predict(X)
    np.testing.assert_array_equal(GPUBoostRegressor(n_estimators=2).fit(X, frame(dict(zip("ab", Y.T)))).predict(X), expected)
    assert GPUBoostRegressor(n_estimators=2).fit(X, Y).score(X, Y) > 0


def test_masked_labels_are_missing():
    X, codes = np.random.default_rng(0).random((30, 2)), np.arange(30) % 3
    hidden = np.ma.array(codes, mask=np.arange(30) < 4)
    for fit in (
        lambda: gb.GPUBoostClassifier().fit(X, hidden), lambda: gb.GPUBoostClassifier().fit(X, codes, eval_set=[(X, hidden)])
    ):  # fmt: skip
        with pytest.raises(ValueError, match="y lacks 4 labels, which are masked"):
            fit()
    for fit in (
        lambda: gb.GPUBoostRegressor().fit(X, hidden), lambda: gb.GPUBoostRegressor().fit(X, codes, eval_set=[(X, hidden)])
    ):  # fmt: skip
        with pytest.raises(ValueError, match="4 rows are NaN"):
            fit()
    whole = gb.GPUBoostClassifier(n_estimators=2).fit(X, np.ma.array(codes))  # masks nothing
    assert whole.classes_.tolist() == [0, 1, 2]


@pytest.mark.parametrize("objective", ["binary:logistic", "binary:hinge", "binary:logitraw"])
def test_more_classes_than_two_overrule_an_objective_of_two(objective):
    X, codes = np.random.default_rng(0).random((60, 2)), np.arange(60) % 3
    model = gb.GPUBoostClassifier(n_estimators=2, objective=objective).fit(X, codes)
    expected = gb.GPUBoostClassifier(n_estimators=2).fit(X, codes)
    np.testing.assert_array_equal(model.predict_proba(X), expected.predict_proba(X))


def test_classes_that_are_durations_are_read_back(tmp_path):
    X, classes = np.random.default_rng(0).random((30, 2)), np.array([1, 2, 30], "m8[h]")
    model = gb.GPUBoostClassifier(n_estimators=3).fit(X, classes[np.arange(30) % 3])
    model.save_model(tmp_path / "m.json")
    loaded = gb.GPUBoostClassifier()
    loaded.load_model(tmp_path / "m.json")
    assert loaded.classes_.dtype == classes.dtype and loaded.classes_.tolist() == classes.tolist()
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


def test_an_objective_that_is_not_known_here_is_named_by_whoever_loads_it(tmp_path):
    X = np.random.default_rng(0).random((30, 2))
    model = gb.GPUBoostClassifier(n_estimators=2).fit(X, np.arange(30) % 2)
    document = json.loads(bytes(model.get_booster().save_raw("json")))
    document["learner"]["objective"]["name"] = "somebodys"
    (tmp_path / "m.json").write_text(json.dumps(document))
    for estimator in (gb.GPUBoostClassifier(), gb.GPUBoostRegressor()):
        with pytest.raises(NotImplementedError, match="objective 'somebodys' of this model is not known here. Import the module"):
            estimator.load_model(tmp_path / "m.json")
