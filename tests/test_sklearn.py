"""The estimators: scikit-learn's own checks, labels of any type, and agreement with train()."""

import inspect
import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest

import gpuboost as gb

pytest.importorskip("sklearn", minversion="1.6")
import joblib  # noqa: E402
import scipy.sparse as sp  # noqa: E402
import sklearn  # noqa: E402
from sklearn.base import clone  # noqa: E402
from sklearn.calibration import CalibratedClassifierCV  # noqa: E402
from sklearn.compose import ColumnTransformer  # noqa: E402
from sklearn.ensemble import VotingClassifier  # noqa: E402
from sklearn.exceptions import DataConversionWarning, NotFittedError  # noqa: E402
from sklearn.metrics import log_loss, mean_absolute_error  # noqa: E402
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_predict, cross_val_score  # noqa: E402
from sklearn.multioutput import MultiOutputClassifier  # noqa: E402
from sklearn.pipeline import Pipeline, make_pipeline  # noqa: E402
from sklearn.preprocessing import OrdinalEncoder, StandardScaler  # noqa: E402
from sklearn.utils.estimator_checks import (  # noqa: E402
    check_sample_weight_equivalence_on_dense_data,
    check_sample_weight_equivalence_on_sparse_data,
    parametrize_with_checks,
)
from sklearn.utils.validation import has_fit_parameter  # noqa: E402

from gpuboost import GPUBoostClassifier, GPUBoostRegressor, GPUBoostRFClassifier, GPUBoostRFRegressor  # noqa: E402
from gpuboost.callback import EarlyStopping, TrainingCallback  # noqa: E402
from gpuboost.kernels.jit import available_threads  # noqa: E402
from gpuboost.params import ALIASES, Params  # noqa: E402

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def table():
    """X float64 (300, 4), a signal (300,) in it, weights (300,)."""
    rng = np.random.default_rng(0)
    X = rng.random((300, 4))
    X[rng.random(X.shape) < 0.05] = np.nan
    return X, np.nan_to_num(X[:, 0]) + np.nan_to_num(X[:, 1]) + rng.normal(0, 0.2, 300), rng.integers(1, 9, 300) / 4


# NumPy's, where scikit-learn looks whether labels are whole numbers before it finds NaN among them
from_their_check = pytest.mark.filterwarnings("ignore:invalid value encountered in cast:RuntimeWarning")


def digest(model):
    return bytes(model.get_booster().save_raw("json"))


@from_their_check
@pytest.mark.filterwarnings("ignore:the first round split no node")
# Of all rows in forests: where some are drawn, a weight of 2 is another thing than two rows, as for scikit-learn's own forests.
@parametrize_with_checks(
    [
        GPUBoostClassifier(n_estimators=5), GPUBoostRegressor(n_estimators=5),
        GPUBoostRFClassifier(n_estimators=5, subsample=1.0), GPUBoostRFRegressor(n_estimators=5, subsample=1.0),
    ]
)  # fmt: skip
def test_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.parametrize("make", [GPUBoostClassifier, GPUBoostRegressor])
@pytest.mark.parametrize("check", [check_sample_weight_equivalence_on_dense_data, check_sample_weight_equivalence_on_sparse_data])
def test_whole_weights_are_repeated_rows_over_100_rounds(make, check):
    check(make.__name__, make())


@pytest.mark.parametrize("make", [GPUBoostClassifier, GPUBoostRegressor])
def test_a_weight_counts_as_so_many_rows(make):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 4, (400, 2))
    y = (X[:, 0] + 0.5 * X[:, 1] + rng.normal(0, 0.5, 400) > 2).astype(int) + (X[:, 0] > 2)
    w = rng.integers(0, 5, 400)
    weighted = make(n_estimators=3, max_depth=2).fit(X, y, sample_weight=w)
    repeated = make(n_estimators=3, max_depth=2).fit(X.repeat(w, axis=0), y.repeat(w))
    for of_weighted, of_repeated in zip(weighted.get_booster().model.trees, repeated.get_booster().model.trees, strict=True):
        np.testing.assert_array_equal(of_weighted.feature, of_repeated.feature)
        np.testing.assert_array_equal(of_weighted.threshold, of_repeated.threshold)
    predict = "predict" if make is GPUBoostRegressor else "predict_proba"
    # leaves are exact sums, rounded to float32
    np.testing.assert_allclose(getattr(weighted, predict)(X), getattr(repeated, predict)(X), rtol=1e-5)


def test_parameters_are_those_of_training():
    own = {"n_estimators", "missing", "early_stopping_rounds", "callbacks", "importance_type", "enable_categorical"}
    own |= {"feature_types", "sparse_absent", "refit_full"}
    aliases = {"n_jobs", "random_state"}
    for estimator in (GPUBoostClassifier(), GPUBoostRegressor()):
        params = estimator.get_params()
        assert set(params) - own - aliases == set(Params.__dataclass_fields__) - {"nthread", "seed", "num_class", "num_target"}
        given = {name for name, value in params.items() if value is not None}
        assert given == {"n_estimators", "missing", "enable_categorical", "objective"}


@pytest.mark.parametrize("make", [GPUBoostClassifier, GPUBoostRegressor])
@pytest.mark.parametrize("name", sorted({*Params.__dataclass_fields__, *ALIASES} - {"seed", "nthread"}))
def test_every_parameter_of_training_can_be_given_set_and_cloned(make, name):
    value = object()
    for model in (make(**{name: value}), make().set_params(**{name: value}), clone(make()).set_params(**{name: value})):
        assert model.get_params()[name] is value
    assert clone(make(**{name: 5})).get_params()[name] == 5
    pipeline = Pipeline([("model", make())]).set_params(**{f"model__{name}": 5})
    assert pipeline.get_params()[f"model__{name}"] == 5
    assert name not in make().get_params() or name == "objective" or make().get_params()[name] is None


@pytest.mark.parametrize("kind", ["Classifier", "Regressor", "Ranker", "RFClassifier", "RFRegressor"])
@pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning")
def test_the_default_objective_is_xgboosts(kind):
    xgb = pytest.importorskip("xgboost")
    ours, theirs = getattr(gb, f"GPUBoost{kind}")(), getattr(xgb, f"XGB{kind}")()
    assert ours.objective == ours.get_params()["objective"] == theirs.objective
    assert type(ours)(objective=None).get_xgb_params()["objective"] == theirs.objective


def test_a_subclass_keeps_defaults_and_may_have_its_own():
    class Plain(GPUBoostClassifier):
        pass

    class Deep(GPUBoostClassifier, max_depth=12):
        pass

    class Narrow(GPUBoostClassifier):
        def __init__(self, max_depth=2):
            super().__init__(max_depth=max_depth)

    assert Plain().get_params() == GPUBoostClassifier().get_params()
    assert clone(Deep(eta=0.1)).get_params()["max_depth"] == 12 and "max_depth=3" in repr(Deep(max_depth=3))
    assert Narrow().get_params() == {"max_depth": 2} and Narrow().objective == "binary:logistic"


@pytest.mark.parametrize("make", [GPUBoostClassifier, GPUBoostRegressor])
def test_help_and_completion_know_every_parameter(make):
    signature = inspect.signature(make)
    assert {name: p.default for name, p in signature.parameters.items() if name != "kwargs"} == make().get_params()
    assert all(f"\n    {name} : " in make.__doc__ for name in signature.parameters)
    with pytest.raises(TypeError, match="positional"):
        make(100)


def test_aliases_are_the_parameters_they_stand_for(table):
    X, y, _ = table
    plain = GPUBoostRegressor(n_estimators=2, learning_rate=0.1, reg_lambda=3, random_state=4, n_jobs=1).fit(X, y)
    aliased = GPUBoostRegressor(n_estimators=2, eta=0.1, seed=4, nthread=1, **{"lambda": 3}).fit(X, y)
    assert digest(aliased) == digest(plain) and plain.get_booster().params == aliased.get_booster().params
    assert (plain.get_booster().params.seed, plain.get_booster().params.nthread) == (4, 1)
    with pytest.raises(ValueError, match="seed.* was given twice, as seed=5 and random_state=4"):
        plain.set_params(seed=5).fit(X, y)


def test_every_keyword_reaches_training(table):
    X, y, _ = table
    model = GPUBoostRegressor(n_estimators=1, disable_default_eval_metric=True).fit(X, y, eval_set=[(X, y)])
    with pytest.raises(ValueError, match="no evaluation result"):
        model.evals_result()
    with pytest.raises(ValueError, match="unknown parameter 'max_dept'. Did you mean 'max_depth'"):
        GPUBoostRegressor(max_dept=3).fit(X, y)


@pytest.mark.parametrize("n_classes", [1, 2, 3])
def test_parameters_for_train_and_cv_are_those_of_fit(table, n_classes):
    X, signal, _ = table
    y = np.digitize(signal, [0.7, 1.2][: n_classes - 1]) if n_classes > 1 else signal
    make = GPUBoostClassifier if n_classes > 1 else GPUBoostRegressor
    model = make(n_estimators=None, max_depth=2, eta=0.1, random_state=4, missing=-1, eval_metric=["error", "logloss"])
    given = {"max_depth": 2, "eta": 0.1, "random_state": 4, "eval_metric": ["error", "logloss"]}
    unfitted = {"objective": "reg:squarederror" if n_classes == 1 else "binary:logistic"}
    assert model.get_xgb_params() == given | unfitted and model.get_num_boosting_rounds() == 100
    model.set_params(n_estimators=3).fit(X, y)
    fitted = {"objective": "multi:softprob", "num_class": 3} if n_classes == 3 else unfitted
    assert model.get_xgb_params() == given | fitted and model.get_num_boosting_rounds() == 3
    booster = gb.train(model.get_xgb_params(), gb.DMatrix(X, y), 3)
    np.testing.assert_array_equal(booster.predict(gb.DMatrix(X)), model.get_booster().predict(gb.DMatrix(X)))
    functions = make(objective=lambda y, p: (p - y, p * 0 + 1), eval_metric=mean_absolute_error)
    assert functions.get_xgb_params() == unfitted


@pytest.mark.parametrize("n", [-1, 2.5, "many"])
def test_n_estimators_must_be_a_number_of_rounds(table, n):
    with pytest.raises(ValueError, match="n_estimators must be an integer at least 0, got"):
        GPUBoostRegressor(n_estimators=n).fit(*table[:2])


def test_no_estimators_means_xgboosts_100(table):
    X, y, _ = table
    assert GPUBoostRegressor(n_estimators=None, max_depth=1).fit(X, y).get_booster().num_boosted_rounds() == 100


def test_fit_shows_its_arguments():
    """scikit-learn's tools look at the signature for what they may pass on."""
    for make in (GPUBoostClassifier, GPUBoostRegressor):
        for name in ("sample_weight", "base_margin", "eval_set", "sample_weight_eval_set", "xgb_model"):
            assert has_fit_parameter(make(), name)
        assert inspect.signature(make.fit) == inspect.signature(GPUBoostRegressor.fit)


def test_regressor_is_the_booster_of_train(table):
    X, y, w = table
    model = GPUBoostRegressor(n_estimators=5, learning_rate=0.2, max_depth=3, reg_lambda=2, random_state=7, n_jobs=1)
    model.fit(X, y, sample_weight=w)
    params = {"learning_rate": 0.2, "max_depth": 3, "reg_lambda": 2, "seed": 7}
    booster = gb.train(params, gb.DMatrix(X, y, weight=w), 5)
    assert digest(model) == bytes(booster.save_raw("json"))
    np.testing.assert_array_equal(model.predict(X), booster.predict(gb.DMatrix(X)))
    np.testing.assert_array_equal(model.apply(X), booster.predict(gb.DMatrix(X), pred_leaf=True))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_classifier_has_the_probabilities_of_train(table, n_classes):
    X, signal, w = table
    y = np.digitize(signal, [0.7, 1.2][: n_classes - 1])
    model = GPUBoostClassifier(n_estimators=4).fit(X, y, sample_weight=w)
    objective = {"objective": "binary:logistic"} if n_classes == 2 else {"objective": "multi:softprob", "num_class": 3}
    p = gb.train(objective, gb.DMatrix(X, y, weight=w), 4).predict(gb.DMatrix(X))
    np.testing.assert_array_equal(model.predict_proba(X), np.stack([1 - p, p], axis=1) if n_classes == 2 else p)
    np.testing.assert_array_equal(model.predict(X), p > 0.5 if n_classes == 2 else p.argmax(axis=1))
    assert model.predict(X, output_margin=True).shape == ((300,) if n_classes == 2 else (300, 3))


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


def test_types_of_columns_come_back_with_a_model(table, tmp_path):
    X, signal, _ = table
    types = ["q", "int", *["float"] * (X.shape[1] - 2)]
    model = GPUBoostRegressor(n_estimators=2, feature_types=types).fit(np.round(X), signal)
    model.save_model(tmp_path / "m.json")
    loaded = GPUBoostRegressor()
    loaded.load_model(tmp_path / "m.json")
    assert loaded.feature_types == types
    continued = loaded.fit(np.round(X), signal, xgb_model=tmp_path / "m.json")
    assert continued.get_booster().feature_types == types


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


# -- Several labels of a row -------------------------------------------------------------------------------------------


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


# -- Targets, evaluations, continuing ----------------------------------------------------------------------------------


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


def test_early_stopping_predicts_with_the_best_rounds(table):
    X, signal, _ = table
    y = np.where(signal > 1, "high", "low")
    model = GPUBoostClassifier(n_estimators=200, learning_rate=0.5, early_stopping_rounds=3, eval_metric=["error", "logloss"])
    model.fit(X[:100], y[:100], eval_set=[(X[:100], y[:100]), (X[100:], y[100:])])
    history = model.evals_result()["validation_1"]["logloss"]
    best = int(np.argmin(history))
    assert model.best_iteration == best and model.best_score == history[best] and len(history) == best + 4 < 200
    np.testing.assert_array_equal(model.predict_proba(X), model.predict_proba(X, iteration_range=(0, best + 1)))
    assert (model.predict_proba(X) != model.predict_proba(X, iteration_range=(0, 0))).any()
    assert model.apply(X).shape == (300, best + 1)
    assert history[best] == pytest.approx(log_loss(y[100:], model.predict_proba(X[100:])[:, 1].astype(float)), rel=1e-6)


def test_evaluations_take_weights_and_margins_of_their_own(table):
    X, y, w = table
    model = GPUBoostRegressor(n_estimators=1, eval_metric="mae")
    with pytest.raises(ValueError, match=r"sample_weight_eval_set must have one entry per pair of eval_set \(1\), got 2"):
        model.fit(X, y, eval_set=[(X, y)], sample_weight_eval_set=[w, w])
    model.fit(X, y, eval_set=[(X, y), (X, y)], sample_weight_eval_set=[w, None], base_margin_eval_set=[None, y + 50])
    result = model.evals_result()
    assert result["validation_0"]["mae"] == pytest.approx([mean_absolute_error(y, model.predict(X), sample_weight=w)])
    assert result["validation_1"]["mae"][0] == pytest.approx(50, abs=1)


def test_early_stopping_as_a_callback_predicts_with_the_best_rounds_too(table):
    X, y, _ = table
    options = {"n_estimators": 200, "learning_rate": 0.5}
    plain = GPUBoostRegressor(early_stopping_rounds=3, **options).fit(X[:100], y[:100], eval_set=[(X[100:], y[100:])])
    called = GPUBoostRegressor(callbacks=[EarlyStopping(rounds=3)], **options)
    called.fit(X[:100], y[:100], eval_set=[(X[100:], y[100:])])
    assert digest(called) == digest(plain) and called.best_iteration == plain.best_iteration
    np.testing.assert_array_equal(called.predict(X), plain.predict(X))


def test_callbacks_see_every_round(table):
    X, y, _ = table

    class Rounds(TrainingCallback):
        def after_iteration(self, model, epoch, evals_log):
            seen.append((epoch, len(evals_log["validation_0"]["rmse"])))
            return epoch == 2

    seen = []
    model = GPUBoostRegressor(n_estimators=9, callbacks=[Rounds()]).fit(X, y, eval_set=[(X, y)])
    assert seen == [(0, 1), (1, 2), (2, 3)] and model.get_booster().num_boosted_rounds() == 3


@pytest.mark.parametrize("params", [{}, {"subsample": 0.5}, {"booster": "dart", "rate_drop": 0.5}, {"booster": "gblinear"},
                                    {"objective": "reg:absoluteerror"}, {"tree_method": "approx"}], ids=str)  # fmt: skip
def test_the_training_table_is_evaluated_as_what_it_is(table, params, monkeypatch):
    """The same objects are the training's matrix, with the scores of their copy; others, also without its weights, are not."""
    (X, y, w), made = table, []

    class Matrix(gb.DMatrix):
        def __init__(self, *args, **kwargs):
            made.append(args[0])
            super().__init__(*args, **kwargs)

    monkeypatch.setattr("gpuboost.sklearn.base.DMatrix", Matrix)
    model = GPUBoostRegressor(n_estimators=4, eval_metric=["rmse", "mae"], **params)
    model.fit(X, y, sample_weight=w, eval_set=[(X, y), (X.copy(), y), (X, y)], sample_weight_eval_set=[w, w.copy(), None])
    own, copied, unweighted = model.evals_result().values()
    assert len(made) == 3 and own == copied
    model.fit(X, y, eval_set=[(X, y)])
    assert len(made) == 4
    model.fit(X, y, sample_weight=w, eval_set=[(X, y)])
    assert model.evals_result()["validation_0"] == unweighted != own


def test_with_target_statistics_the_training_table_is_scored_as_the_model_predicts_it():
    pd, rng = pytest.importorskip("pandas"), np.random.default_rng(0)
    city, effect = rng.integers(0, 100, 1000), rng.normal(size=100)
    X, y = pd.DataFrame({"city": pd.Categorical(city)}), effect[city] + rng.normal(size=1000)
    model = GPUBoostRegressor(n_estimators=4, cat_encoding="statistics").fit(X, y, eval_set=[(X, y)])
    expected = np.sqrt(np.mean((model.predict(X) - y) ** 2))
    assert model.evals_result()["validation_0"]["rmse"][-1] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("eval_set", ["Xy", [0], "bare pair"])
def test_eval_set_must_be_a_list_of_pairs(table, eval_set):
    X, y, _ = table
    with pytest.raises(ValueError, match="eval_set must be a list of .X, y. pairs. Pass eval_set="):
        GPUBoostRegressor(n_estimators=1).fit(X, y, eval_set=(X, y) if eval_set == "bare pair" else eval_set)


def test_evaluation_labels_must_be_known(table):
    X, signal, _ = table
    y = np.where(signal > 1, "high", "low")
    with pytest.raises(ValueError, match=r"eval_set\[0\] has labels that the training data does not have: 'middle'"):
        GPUBoostClassifier(n_estimators=1).fit(X, y, eval_set=[(X[:2], ["low", "middle"])])


@pytest.mark.parametrize("kind", ["array", "frame", "sparse"])
def test_refit_full_trains_once_more_on_all_rows_with_the_rounds_found(table, kind):
    X, y, weight = table
    pandas = pytest.importorskip("pandas")
    rows = {"array": X, "frame": pandas.DataFrame(X, columns=list("abcd")), "sparse": sp.csr_matrix(np.nan_to_num(X))}[kind]
    head, tail = (rows.iloc[:200], rows.iloc[200:]) if kind == "frame" else (rows[:200], rows[200:])
    options = {"n_estimators": 200, "learning_rate": 0.5, "early_stopping_rounds": 3}
    given = {"sample_weight": weight[:200], "sample_weight_eval_set": [weight[200:]], "eval_set": [(tail, y[200:])]}
    plain = GPUBoostRegressor(**options).fit(head, y[:200], **given)
    model = GPUBoostRegressor(**options, refit_full=True).fit(head, y[:200], **given)
    n_rounds = plain.best_iteration + 1
    assert n_rounds < 200 and (model.best_iteration, model.best_score) == (plain.best_iteration, plain.best_score)
    assert model.evals_result() == plain.evals_result()
    whole = GPUBoostRegressor(n_estimators=n_rounds, learning_rate=0.5).fit(rows, y, sample_weight=weight)
    assert model.get_booster().model.trees == whole.get_booster().model.trees
    np.testing.assert_array_equal(model.predict(rows), whole.predict(rows))


def test_refit_full_refuses_what_cannot_be_joined(table):
    X, y, _ = table
    model = GPUBoostRegressor(early_stopping_rounds=2, refit_full=True)
    with pytest.raises(ValueError, match="refit_full joins X, ndarray, and the X of eval_set, csr_matrix"):
        model.fit(X, y, eval_set=[(sp.csr_matrix(np.nan_to_num(X)), y)])
    with pytest.raises(ValueError, match="refit_full needs base_margin for X and for eval_set, or for neither"):
        model.fit(X, y, base_margin=y, eval_set=[(X, y)])


def test_early_stopping_without_eval_set_says_what_to_pass(table):
    with pytest.raises(ValueError, match="early_stopping_rounds needs an evaluation set. Pass eval_set"):
        GPUBoostRegressor(early_stopping_rounds=2).fit(*table[:2])


@pytest.mark.parametrize("verbose, n_lines", [(False, 0), (True, 4), (2, 3)])
def test_verbose_prints_evaluations(table, verbose, n_lines, capsys):
    X, y, _ = table
    GPUBoostRegressor(n_estimators=4).fit(X, y, eval_set=[(X, y)], verbose=verbose)
    assert len(capsys.readouterr().out.splitlines()) == n_lines


def test_functions_as_objective_and_metric(table):
    X, y, w = table
    w = 2.0 ** np.floor(np.log2(w))  # with which rounding to 20 bits before or after weighting is the same

    def squared(y_true, y_pred, sample_weight=1.0):
        return (y_pred - y_true) * sample_weight, np.ones_like(y_pred) * sample_weight

    model = GPUBoostRegressor(n_estimators=3, objective=squared, eval_metric=mean_absolute_error)
    model.fit(X, y, sample_weight=w, eval_set=[(X, y)], sample_weight_eval_set=[w])
    plain = GPUBoostRegressor(n_estimators=3, eval_metric="mae", base_score=0.5)  # where functions start, as in XGBoost
    plain.fit(X, y, sample_weight=w, eval_set=[(X, y)], sample_weight_eval_set=[w])
    assert digest(model) == digest(plain)
    values = model.evals_result()["validation_0"]["mean_absolute_error"]
    assert values == pytest.approx(plain.evals_result()["validation_0"]["mae"], rel=1e-5)


def test_several_metrics_by_name_and_as_functions(table):
    X, y, _ = table
    median = lambda y_true, y_pred: np.median(abs(y_true - y_pred))
    median.__name__ = "median"
    names_of = {("mae", mean_absolute_error, median): ["mae", "mean_absolute_error", "median"], (median,): ["rmse", "median"]}
    for metrics, names in names_of.items():
        model = GPUBoostRegressor(n_estimators=1, eval_metric=list(metrics)).fit(X, y, eval_set=[(X, y)])
        assert list(model.evals_result()["validation_0"]) == names
    assert model.get_booster().params.eval_metric == ()


def test_a_function_that_takes_no_weights_is_refused_where_rows_have_some(table):
    X, y, w = table
    model = GPUBoostRegressor(n_estimators=1, objective=lambda y_true, y_pred: (y_pred - y_true, y_true * 0 + 1))
    model.fit(X, y)
    with pytest.raises(TypeError, match=r"called as \(y_true, y_pred, sample_weight=...\), but .* It must take sample_weight"):
        model.fit(X, y, sample_weight=w)


def test_continuing_from_an_estimator_gives_one_training(table):
    X, signal, _ = table
    y = signal > 1
    half = GPUBoostClassifier(n_estimators=3).fit(X, y)
    assert digest(GPUBoostClassifier(n_estimators=2).fit(X, y, xgb_model=half)) == digest(
        GPUBoostClassifier(n_estimators=5).fit(X, y)
    )


def test_continuing_from_a_file_gives_one_training(table, tmp_path):
    X, y, _ = table
    GPUBoostRegressor(n_estimators=3).fit(X, y).save_model(tmp_path / "m.json")
    continued = GPUBoostRegressor(n_estimators=2).fit(X, y, xgb_model=tmp_path / "m.json")
    assert digest(continued) == digest(GPUBoostRegressor(n_estimators=5).fit(X, y))
    from_itself = continued.fit(X, y, xgb_model=continued)
    assert digest(from_itself) == digest(GPUBoostRegressor(n_estimators=7).fit(X, y))


def test_continuing_after_early_stopping_predicts_with_the_new_rounds(table):
    X, y, _ = table
    first = GPUBoostRegressor(n_estimators=200, learning_rate=0.5, early_stopping_rounds=2)
    first.fit(X[:100], y[:100], eval_set=[(X[100:], y[100:])])
    n_first = first.get_booster().num_boosted_rounds()
    model = GPUBoostRegressor(n_estimators=5).fit(X, y, xgb_model=first)
    assert model.apply(X).shape == (300, n_first + 5) and not hasattr(model, "best_iteration")
    assert first.best_iteration < n_first  # and the first model is as it was


def test_a_failed_fit_leaves_no_model_of_other_labels(table):
    X, signal, _ = table
    model = GPUBoostClassifier(n_estimators=2).fit(X, signal > 1)
    with pytest.raises(ValueError, match="infinite"):
        model.fit(np.full_like(X, np.inf), np.where(signal > 1, "high", "low"))
    with pytest.raises(NotFittedError):
        model.predict(X)


def test_base_margin_of_several_classes_replaces_the_start(table):
    X, signal, _ = table
    y = np.digitize(signal, [0.7, 1.2])
    margin = np.random.default_rng(0).normal(size=(300, 3))
    model = GPUBoostClassifier(n_estimators=2).fit(X, y, base_margin=margin)
    shifted, plain = (model.predict(X, output_margin=True, base_margin=start) for start in (margin, 0 * margin))
    np.testing.assert_allclose(shifted - plain, margin, atol=1e-6)  # float32 sums of a few margins below 4


def test_base_margin_shifts_predictions(table):
    X, y, _ = table
    model = GPUBoostRegressor(n_estimators=2).fit(X, y - 100, base_margin=np.full(300, -100.0))
    shifted = model.predict(X, base_margin=np.zeros(300))
    np.testing.assert_allclose(shifted, model.predict(X, base_margin=np.ones(300)) - 1, atol=1e-6)


def test_importances_by_hand(table):
    X, y, _ = table
    model = GPUBoostRegressor(n_estimators=3, max_depth=2).fit(X, y)
    splits = [
        (tree.feature[i], tree.gain[i], tree.cover[i])
        for tree in model.get_booster().model.trees
        for i in np.flatnonzero(tree.left_child >= 0)
    ]
    by_feature = [[(gain, cover) for feature, gain, cover in splits if feature == f] for f in range(4)]
    expected = {
        None: [np.mean([g for g, _ in found]) if found else 0 for found in by_feature],
        "weight": [len(found) for found in by_feature],
        "cover": [np.mean([c for _, c in found]) if found else 0 for found in by_feature],
        "total_gain": [sum(g for g, _ in found) for found in by_feature],
        "total_cover": [sum(c for _, c in found) for found in by_feature],
    }
    for kind, scores in expected.items():
        importances = model.set_params(importance_type=kind).feature_importances_
        np.testing.assert_allclose(importances, np.array(scores) / sum(scores), rtol=1e-5)
        assert importances.dtype == np.float32
    assert GPUBoostRegressor(n_estimators=0).fit(X, y).feature_importances_.tolist() == [0] * 4
    with pytest.raises(ValueError, match="importance_type must be weight, gain, .* got 'gian'"):
        _ = model.set_params(importance_type="gian").feature_importances_


def test_the_intercept_is_the_prediction_before_the_first_tree():
    X, y = np.zeros((6, 1)), np.array([0, 0, 1, 1, 1, 1])
    np.testing.assert_array_equal(GPUBoostClassifier(n_estimators=1).fit(X, y).intercept_, np.array([4 / 6], np.float32))
    targets = GPUBoostRegressor(n_estimators=1).fit(X, np.stack([y, 3 - y], axis=1))
    np.testing.assert_array_equal(targets.intercept_, np.array([4 / 6, 14 / 6], np.float32))


def test_frames_keep_names_and_categories(table):
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"kind": pd.Categorical(rng.choice(list("abc"), 200)), "number": rng.random(200)})
    y = 3.0 * (frame["kind"] == "b") + frame["number"]
    model = GPUBoostRegressor(n_estimators=20).fit(frame, y)
    assert model.feature_names_in_.tolist() == ["kind", "number"] and model.n_features_in_ == 2
    only_b = pd.DataFrame({"kind": pd.Categorical(["b"] * 5), "number": [0.5] * 5})  # its code here is 0, in training it was 1
    np.testing.assert_allclose(model.predict(only_b), 3.5, atol=0.2)
    with pytest.raises(ValueError, match="column 'kind' holds categories, but enable_categorical is False"):
        GPUBoostRegressor(enable_categorical=False).fit(frame, y)


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_columns_that_do_not_fit_are_named(table, library):
    module = pytest.importorskip(library)
    X, y, _ = table

    def frame(names):
        columns = dict(zip(names, X.T))
        return module.table(columns) if library == "pyarrow" else module.DataFrame(columns)

    model = GPUBoostRegressor(n_estimators=1).fit(frame("abcd"), y)
    assert model.feature_names_in_.tolist() == list("abcd") and model.n_features_in_ == 4
    for names, message in {
        "abc": "now missing:\n- d",
        "abcx": "unseen at fit time:\n- x\n.*now missing:\n- d",
        "adcb": "column 1 is 'd', but was 'b'",
    }.items():
        with pytest.raises(ValueError, match=message):
            model.predict(frame(names))
        with pytest.raises(ValueError, match=message):
            GPUBoostRegressor(n_estimators=1).fit(frame("abcd"), y, eval_set=[(frame(names), y)])


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_frames_give_the_model_of_the_array(table, library):
    module = pytest.importorskip(library)
    X, y, _ = table
    columns = dict(zip("abcd", X.T))
    frame = module.table(columns) if library == "pyarrow" else module.DataFrame(columns)
    model = GPUBoostRegressor(n_estimators=2).fit(frame, y)
    np.testing.assert_array_equal(model.predict(frame), GPUBoostRegressor(n_estimators=2).fit(X, y).predict(X))
    assert model.n_features_in_ == 4


def test_array_after_a_frame_warns(table):
    pd = pytest.importorskip("pandas")
    X, y, _ = table
    model = GPUBoostRegressor(n_estimators=1).fit(pd.DataFrame(X, columns=list("abcd")), y)
    with pytest.warns(UserWarning, match="X does not have valid feature names") as caught:
        model.predict(X)
    assert len(caught) == 1


def test_masked_and_missing_values_are_nan(table):
    X, y, _ = table
    expected = digest(GPUBoostRegressor(n_estimators=2).fit(X, y))
    assert digest(GPUBoostRegressor(n_estimators=2).fit(np.ma.masked_invalid(X), y)) == expected
    assert digest(GPUBoostRegressor(n_estimators=2, missing=-1).fit(np.nan_to_num(X, nan=-1), y)) == expected


@pytest.mark.parametrize("kind", ["array", "list", "objects", "masked", "pandas", "polars", "pyarrow"])
@pytest.mark.parametrize("value", [np.inf, -np.inf, 1e39])
def test_infinite_values_are_refused_at_fit_and_predict(table, kind, value):
    X, y, _ = table
    bad = X.copy()
    bad[3, 2] = value
    if kind in ("pandas", "polars", "pyarrow"):
        module = pytest.importorskip(kind)
        convert = lambda X: getattr(module, "table" if kind == "pyarrow" else "DataFrame")(dict(zip("abcd", X.T)))
    else:
        convert = {"array": np.asarray, "list": np.ndarray.tolist, "objects": lambda X: X.astype(object)}.get(kind, np.ma.array)
    with pytest.raises(ValueError, match="infinite"):
        GPUBoostRegressor(n_estimators=1).fit(convert(bad), y)
    model = GPUBoostRegressor(n_estimators=1).fit(convert(X), y)
    for predict in (model.predict, model.apply):
        with pytest.raises(ValueError, match="infinite"):
            predict(convert(bad))


@pytest.mark.parametrize("form", ["csr_matrix", "csr_array", "csc_array", "coo_array", "lil_array", "dok_array"])
@pytest.mark.parametrize("make", [GPUBoostClassifier, GPUBoostRegressor])
def test_what_a_sparse_matrix_leaves_out_is_missing(table, make, form):
    X, signal, _ = table
    y = (signal > 1).astype(int)
    rows, columns = np.nonzero(~np.isnan(X))
    stored = np.where(X > 0.9, 0, X)  # zeros that are stored are zeros
    sparse = sp.coo_array((stored[rows, columns], (rows, columns)), shape=X.shape).asformat("csr")
    sparse = getattr(sp, form)(sparse)
    fits = [make(n_estimators=3).fit(table, y, eval_set=[(table, y)]) for table in (stored, sparse)]
    assert digest(fits[0]) == digest(fits[1]) and fits[0].evals_result() == fits[1].evals_result()
    for method in ("predict", "apply") + ("predict_proba",) * hasattr(make, "predict_proba"):
        np.testing.assert_array_equal(getattr(fits[0], method)(sparse), getattr(fits[0], method)(stored))
    without_zeros = make(n_estimators=3, missing=0).fit(np.where(stored == 0, np.nan, stored), y)
    assert digest(make(n_estimators=3, missing=0).fit(sparse, y)) == digest(without_zeros)


def test_sparse_formats_that_pad_with_zeros_are_refused(table):
    with pytest.raises(ValueError, match="sparse matrix of format bsr, which stores zeros as padding. Use X.tocsr"):
        GPUBoostRegressor(n_estimators=1).fit(sp.bsr_array(np.nan_to_num(table[0])), table[1])


def test_tags_say_what_is_taken():
    for make in (GPUBoostClassifier, GPUBoostRegressor):
        tags = make().__sklearn_tags__()
        assert tags.input_tags.sparse and tags.input_tags.allow_nan and tags.input_tags.categorical
    assert tags.target_tags.multi_output and GPUBoostClassifier().__sklearn_tags__().classifier_tags.multi_label


def test_a_few_rows_are_predicted_as_many(table):
    pd = pytest.importorskip("pandas")
    X, signal, _ = table
    X, y = np.nan_to_num(X, nan=-1.0), np.digitize(signal, [0.7, 1.2])
    for train in (X, pd.DataFrame(X, columns=list("abcd"))):
        model = GPUBoostClassifier(n_estimators=3, missing=-1.0).fit(train, y)
        for base_margin in (None, np.eye(3)[y]):
            matrix = gb.DMatrix(X, missing=-1.0, base_margin=base_margin, feature_names=model.get_booster().feature_names)
            expected = model.get_booster().predict(matrix)
            for rows in (slice(0, 1), slice(None)):
                margin = None if base_margin is None else base_margin[rows]
                found = model.predict_proba(X[rows], base_margin=margin, validate_features=False)
                np.testing.assert_array_equal(found, expected[rows])
                np.testing.assert_array_equal(model.predict_proba(train[rows], base_margin=margin), expected[rows])


def test_without_validate_features_columns_go_by_their_order(table):
    pd = pytest.importorskip("pandas")
    X, y, _ = table
    model = GPUBoostRegressor(n_estimators=3).fit(pd.DataFrame(X, columns=list("abcd")), y)
    expected = model.predict(pd.DataFrame(X, columns=list("abcd")))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for same in (X, X.tolist(), np.ma.masked_invalid(X), pd.DataFrame(X, columns=list("dcba"))):
            np.testing.assert_array_equal(model.predict(same, validate_features=False), expected)
    with pytest.raises(ValueError, match="data has 3 columns, but the model was trained on 4"):
        model.predict(X[:, :3], validate_features=False)


def test_a_table_without_rows_is_predicted(table):
    X, y, _ = table
    assert GPUBoostRegressor(n_estimators=1).fit(X, y).predict(X[:0]).shape == (0,)
    model = GPUBoostClassifier(n_estimators=1).fit(X, np.where(y > 1, "high", "low"))
    assert model.predict(X[:0]).shape == (0,) and model.predict_proba(X[:0]).shape == (0, 2)


def test_fitting_copies_and_changes_no_input(table):
    X, y, w = table
    frozen = [values.copy() for values in (X, y, w)]
    for values in frozen:
        values.flags.writeable = False
    model = GPUBoostRegressor(n_estimators=2).fit(frozen[0], frozen[1], sample_weight=frozen[2])
    expected = GPUBoostRegressor(n_estimators=2).fit(X, y, sample_weight=w).predict(X)
    np.testing.assert_array_equal(model.predict(frozen[0]), expected)


def test_models_load_into_the_estimator_of_their_task(table, tmp_path):
    X, y, _ = table
    GPUBoostRegressor(n_estimators=2).fit(X, y).save_model(tmp_path / "r.json")
    GPUBoostClassifier(n_estimators=2).fit(X, y > 1).save_model(tmp_path / "c.json")
    regressor = GPUBoostRegressor()
    regressor.load_model(tmp_path / "r.json")
    assert regressor.n_features_in_ == 4 and regressor.predict(X).shape == (300,)
    with pytest.raises(ValueError, match="trained with binary:logistic. Load it with GPUBoostClassifier"):
        GPUBoostRegressor().load_model(tmp_path / "c.json")
    with pytest.raises(ValueError, match="trained with reg:squarederror. Load it with GPUBoostRegressor"):
        GPUBoostClassifier().load_model(tmp_path / "r.json")


def test_a_classifier_of_raw_logits_has_probabilities(table):
    X, signal, _ = table
    y = signal > np.median(signal)
    raw, usual = (GPUBoostClassifier(objective=name, n_estimators=5).fit(X, y) for name in ("binary:logitraw", None))
    np.testing.assert_allclose(raw.predict_proba(X), usual.predict_proba(X), atol=1e-6)
    np.testing.assert_array_equal(raw.predict(X), raw.predict_proba(X)[:, 1] > 0.5)
    assert len(np.unique(raw.predict(X))) == 2
    both = np.stack([y, ~y], axis=1).astype(int)
    assert raw.fit(X, both).predict(X).shape == both.shape and np.isin(raw.predict(X), (0, 1)).all()


def test_xgboosts_classifier_file_loads(table, tmp_path):
    xgb = pytest.importorskip("xgboost")
    X, signal, _ = table
    theirs = xgb.XGBClassifier(n_estimators=3).fit(X, np.digitize(signal, [0.7, 1.2]))
    theirs.save_model(tmp_path / "m.json")
    ours = GPUBoostClassifier()
    ours.load_model(tmp_path / "m.json")
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-6)  # another exp


def test_xgboosts_softmax_file_has_probabilities(table, tmp_path):
    xgb = pytest.importorskip("xgboost")
    X, signal, _ = table
    y = np.digitize(signal, [0.7, 1.2])
    options = {"num_class": 3, "max_depth": 3}
    xgb.train({"objective": "multi:softmax", **options}, xgb.DMatrix(X, y), 3).save_model(tmp_path / "m.json")
    expected = xgb.train({"objective": "multi:softprob", **options}, xgb.DMatrix(X, y), 3).predict(xgb.DMatrix(X))
    ours = GPUBoostClassifier()
    ours.load_model(tmp_path / "m.json")
    np.testing.assert_allclose(ours.predict_proba(X), expected, atol=1e-6)  # another exp
    assert GPUBoostClassifier(n_estimators=1).fit(X, y, xgb_model=tmp_path / "m.json").get_booster().num_boosted_rounds() == 4


def test_a_regressor_loads_what_it_saved_with_a_classifiers_objective(table, tmp_path):
    X, signal, _ = table
    model = GPUBoostRegressor(n_estimators=2, objective="binary:logistic").fit(X, signal > 1)
    model.save_model(tmp_path / "m.json")
    loaded = GPUBoostRegressor()
    loaded.load_model(tmp_path / "m.json")
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


def test_loading_forgets_what_was_known_of_another_model(table, tmp_path):
    pd = pytest.importorskip("pandas")
    X, y, _ = table
    GPUBoostRegressor(n_estimators=1).fit(X[:, :3], y).save_model(tmp_path / "m.json")
    frame = pd.DataFrame(X, columns=list("abcd"))
    model = GPUBoostRegressor(n_estimators=1).fit(frame, y, eval_set=[(frame, y)])
    model.load_model(tmp_path / "m.json")
    assert model.n_features_in_ == 3 and not hasattr(model, "feature_names_in_")
    with pytest.raises(ValueError, match="no evaluation result"):
        model.evals_result()


def test_loading_keeps_the_best_round(table, tmp_path):
    X, y, _ = table
    model = GPUBoostRegressor(n_estimators=200, learning_rate=0.5, early_stopping_rounds=2)
    model.fit(X[:100], y[:100], eval_set=[(X[100:], y[100:])]).save_model(tmp_path / "m.json")
    loaded = GPUBoostRegressor()
    loaded.load_model(tmp_path / "m.json")
    assert (loaded.best_iteration, loaded.best_score) == (model.best_iteration, model.best_score)
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


@pytest.mark.parametrize("text", ["[]", '{"dtype": "<U1", "values": ["a"]}', '{"dtype": "O", "values": [[0], [1], [2]]}', "no"])
def test_wrong_classes_in_a_file_are_refused(table, text):
    X, signal, _ = table
    booster = GPUBoostClassifier(n_estimators=1).fit(X, np.digitize(signal, [0.7, 1.2])).get_booster().copy()
    booster.set_attr(classes=text)
    with pytest.raises(ValueError, match="'classes' does not hold its class labels"):
        GPUBoostClassifier().load_model(bytes(booster.save_raw()))


def test_nothing_is_known_before_fit():
    model = GPUBoostClassifier()
    for name in ("best_iteration", "best_score", "feature_importances_", "classes_", "n_classes_"):
        assert not hasattr(model, name)
    with pytest.raises(NotFittedError):
        model.get_booster()
    with pytest.raises(NotFittedError):
        model.evals_result()
    for call in (model.predict, model.predict_proba, model.apply, model.save_model, GPUBoostRegressor().predict):
        with pytest.raises(NotFittedError, match="is not fitted yet"):
            call("anything")


def test_wrong_parameters_are_named_at_fit(table):
    X, y, _ = table
    with pytest.raises(ValueError, match="max_depth must be"):
        GPUBoostRegressor(max_depth=-5).fit(X, y)
    with pytest.raises(ValueError, match="booster must be 'gbtree', 'dart' or 'gblinear', got 'gbforest'"):
        GPUBoostRegressor(booster="gbforest").fit(X, y)
    with pytest.raises(ValueError, match="objective of a classifier must be .* got 'reg:squarederror'"):
        GPUBoostClassifier(objective="reg:squarederror").fit(X, y > 1)


def test_random_state_may_be_a_generator(table):
    X, y, _ = table
    fits = [GPUBoostRegressor(n_estimators=2, random_state=np.random.RandomState(5)).fit(X, y) for _ in range(2)]
    seeds = [fit.get_booster().params.seed for fit in fits]
    assert digest(fits[0]) == digest(fits[1]) and seeds == [np.random.RandomState(5).randint(2**31 - 1)] * 2
    with pytest.raises(ValueError, match="cannot be used to seed"):
        GPUBoostRegressor(random_state="five").fit(X, y)


def test_searches_and_folds_work(table):
    X, signal, _ = table
    y = np.where(signal > 1, "high", "low")
    search = GridSearchCV(GPUBoostClassifier(n_estimators=5), {"max_depth": [1, 3]}, cv=3, scoring="roc_auc").fit(X, y)
    assert search.best_score_ > 0.8
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cross_val_score(clone(search.best_estimator_), X, y, cv=3).min() > 0.7


def test_without_scikit_learn_the_error_names_the_extra():
    code = "import sys; sys.modules['sklearn'] = None; import gpuboost; gpuboost.GPUBoostClassifier"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 1 and "pip install 'gpuboost-trees[sklearn]'" in result.stderr.splitlines()[-1]


def test_continuing_with_other_classes_is_refused():
    X = np.arange(20.0)[:, None]
    model = gb.GPUBoostClassifier(n_estimators=2).fit(X, np.repeat(["a", "b"], 10))
    continued = gb.GPUBoostClassifier(n_estimators=2).fit(X, np.repeat(["a", "b"], 10), xgb_model=model)
    assert continued.get_booster().num_boosted_rounds() == 4
    with pytest.raises(ValueError, match="knows the classes"):
        gb.GPUBoostClassifier(n_estimators=2).fit(X, np.repeat(["b", "c"], 10), xgb_model=model)


# -- Beside scikit-learn's other tools --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def labels(table):
    """Text (300,), two classes."""
    return np.where(table[1] > 1, "high", "low")


@pytest.mark.slow
def test_search_in_worker_processes_finds_what_one_process_finds(table, labels):
    search = GridSearchCV(GPUBoostClassifier(n_estimators=3), {"max_depth": [1, 3], "eta": [0.1, 0.3]}, cv=2)
    alone, parallel = (clone(search).set_params(n_jobs=n).fit(table[0], labels) for n in (1, 2))
    np.testing.assert_array_equal(alone.cv_results_["mean_test_score"], parallel.cv_results_["mean_test_score"])
    assert alone.best_params_ == parallel.best_params_ and digest(alone.best_estimator_) == digest(parallel.best_estimator_)


def test_worker_processes_keep_to_their_share_of_the_cores():
    with joblib.parallel_config("loky", n_jobs=2, inner_max_num_threads=1):
        assert joblib.Parallel()(joblib.delayed(available_threads)() for _ in range(2)) == [1, 1]


def test_cross_val_predict_is_the_folds_by_hand(table, labels):
    X, folds = table[0], StratifiedKFold(3)
    expected = np.empty((300, 2), np.float32)
    for train, test in folds.split(X, labels):
        expected[test] = GPUBoostClassifier(n_estimators=3).fit(X[train], labels[train]).predict_proba(X[test])
    found = cross_val_predict(GPUBoostClassifier(n_estimators=3), X, labels, cv=folds, method="predict_proba")
    np.testing.assert_array_equal(found, expected)


def test_voting_and_calibration_pass_weights_on(table, labels):
    X, _, w = table
    model = GPUBoostClassifier(n_estimators=3)
    voting = VotingClassifier([("only", model)], voting="soft").fit(X, labels, sample_weight=w)
    np.testing.assert_array_equal(voting.predict_proba(X), clone(model).fit(X, labels, sample_weight=w).predict_proba(X))
    calibrated = CalibratedClassifierCV(model, cv=2).fit(X, labels, sample_weight=w)
    assert calibrated.classes_.tolist() == ["high", "low"] and calibrated.score(X, labels) > 0.8
    assert not np.array_equal(
        calibrated.predict_proba(X), CalibratedClassifierCV(model, cv=2).fit(X, labels).predict_proba(X)
    )


def test_several_label_columns_are_one_classifier_each(table, labels):
    X = table[0]
    other = np.digitize(table[1], [0.7, 1.2]).astype(str)
    both = MultiOutputClassifier(GPUBoostClassifier(n_estimators=2)).fit(X, np.stack([labels, other], axis=1))
    for column, y in enumerate((labels, other)):
        np.testing.assert_array_equal(both.predict(X)[:, column], GPUBoostClassifier(n_estimators=2).fit(X, y).predict(X))


@pytest.mark.parametrize("output", ["default", "pandas", "polars"])
def test_pipelines_may_pass_frames_between_their_steps(table, output):
    pd = pytest.importorskip("pandas")
    if output == "polars":
        pytest.importorskip("polars")
    X, y, _ = table
    frame = pd.DataFrame(X, columns=list("abcd")).assign(kind=np.where(y > 1, "high", "low"))
    columns = ColumnTransformer([("scale", StandardScaler(), list("abcd")), ("code", OrdinalEncoder(), ["kind"])])
    pipeline = make_pipeline(columns, GPUBoostRegressor(n_estimators=5)).set_output(transform=output).fit(frame, y)
    names = [*(f"scale__{name}" for name in "abcd"), "code__kind"]
    assert getattr(pipeline[-1], "feature_names_in_", np.array(names)).tolist() == names
    assert hasattr(pipeline[-1], "feature_names_in_") == (output != "default")
    array = clone(columns).set_output(transform="default").fit_transform(frame)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        prediction = pipeline.predict(frame)
    np.testing.assert_array_equal(prediction, GPUBoostRegressor(n_estimators=5).fit(array, y).predict(array))


def test_metadata_routing_passes_weights_that_were_requested(table, labels):
    X, _, w = table
    model = GPUBoostClassifier(n_estimators=3)
    with sklearn.config_context(enable_metadata_routing=True):
        scaler = StandardScaler().set_fit_request(sample_weight=False)
        asked = make_pipeline(scaler, model.set_fit_request(sample_weight=True)).fit(X, labels, sample_weight=w)
    expected = GPUBoostClassifier(n_estimators=3).fit(StandardScaler().fit_transform(X), labels, sample_weight=w)
    assert digest(asked[-1]) == digest(expected)


@pytest.mark.parametrize("how", ["pickle", "joblib", "skops"])
def test_estimators_survive_being_stored(table, labels, how, tmp_path):
    pd = pytest.importorskip("pandas")
    X, _, w = table
    frame = pd.DataFrame(X, columns=list("abcd"))
    model = GPUBoostClassifier(n_estimators=20, learning_rate=0.5, early_stopping_rounds=2, reg_lambda=2, huber_slope=1)
    model.fit(frame, labels, sample_weight=w, eval_set=[(frame[:50], labels[:50])])
    if how == "pickle":
        stored = pickle.loads(pickle.dumps(model))
    elif how == "joblib":
        joblib.dump(model, tmp_path / "model")
        stored = joblib.load(tmp_path / "model")
    else:
        skops = pytest.importorskip("skops.io", reason="skops is not installed: pip install skops")
        data = skops.dumps(model)
        untrusted = skops.get_untrusted_types(data=data)
        assert all(name.startswith("gpuboost.") for name in untrusted)
        stored = skops.loads(data, trusted=untrusted)
    assert digest(stored) == digest(model) and stored.get_params().keys() == model.get_params().keys()
    np.testing.assert_array_equal(stored.predict(frame), model.predict(frame))
    np.testing.assert_array_equal(stored.classes_, model.classes_)
    assert stored.feature_names_in_.tolist() == list("abcd") and stored.n_features_in_ == 4
    assert stored.best_iteration == model.best_iteration and stored.evals_result() == model.evals_result()


def test_a_model_of_the_gpu_predicts_where_there_is_none(table, labels, monkeypatch):
    def no_device(number):
        raise gb.DeviceNotFoundError("no CUDA device was found")

    X = table[0]
    model = GPUBoostClassifier(n_estimators=2).fit(X, labels)
    expected = model.predict_proba(X)
    model.set_params(device="cuda").get_booster().set_param("device", "cuda")  # as if it had been trained there
    stored = pickle.dumps(model)
    monkeypatch.setattr("gpuboost.backend._cuda_backend", no_device)
    loaded = pickle.loads(stored)
    np.testing.assert_array_equal(loaded.predict_proba(X), expected)
    with pytest.raises(gb.DeviceNotFoundError):
        loaded.fit(X, labels)


@pytest.mark.parametrize("make_generator", [np.random.RandomState, np.random.default_rng])
def test_a_generator_draws_a_seed_in_each_fit(make_generator):
    X, y = np.random.default_rng(0).normal(size=(80, 3)), np.arange(80.0)
    model = GPUBoostRegressor(n_estimators=2, subsample=0.5, random_state=make_generator(3))
    seeds = [model.fit(X, y).get_booster().params.seed for _ in range(2)]
    again = [make_generator(3)]
    draw = again[0].randint if hasattr(again[0], "randint") else again[0].integers
    assert seeds == [draw(2**31 - 1) for _ in range(2)] and seeds[0] != seeds[1]


def test_classes_of_a_damaged_file_are_malformed():
    X, y = np.random.default_rng(0).normal(size=(80, 3)), np.array(list("abc"))[np.arange(80) % 3]
    booster = GPUBoostClassifier(n_estimators=1).fit(X, y).get_booster()
    booster.set_attr(classes="null")
    with pytest.raises(gb.ModelFormatError, match="does not hold its class labels"):
        GPUBoostClassifier().load_model(booster.save_raw())


@pytest.mark.parametrize("given", [{"sample_weight": []}, {"base_margin": np.zeros(0)}])
def test_no_values_for_rows_that_are_there_are_an_error(given):
    """A DMatrix takes an empty list for none."""
    with pytest.raises(ValueError, match="has 0 rows, data has 80. Both need the same rows"):
        GPUBoostRegressor(n_estimators=1).fit(np.zeros((80, 2)), np.arange(80.0), **given)
    X, y = np.zeros((80, 2)), np.arange(80.0)
    with pytest.raises(ValueError, match="must have shape"):
        GPUBoostRegressor(n_estimators=1).fit(X, y, **dict.fromkeys(given, np.array(1.0)))
    with pytest.raises(ValueError, match="has 0 rows, data has 80"):
        GPUBoostRegressor(n_estimators=1).fit(X, y, eval_set=[(X, y)], sample_weight_eval_set=[[]])
