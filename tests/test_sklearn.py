"""The estimators and scikit-learn: its own checks, and its other tools: searches, folds, pipelines, routing, workers."""

import subprocess
import sys
import warnings

import numpy as np
import pytest
from estimator_tables import digest, from_their_check, make_table, text_labels

pytest.importorskip("sklearn", minversion="1.6")
import joblib  # noqa: E402
import sklearn  # noqa: E402
from sklearn.base import clone  # noqa: E402
from sklearn.calibration import CalibratedClassifierCV  # noqa: E402
from sklearn.compose import ColumnTransformer  # noqa: E402
from sklearn.ensemble import VotingClassifier  # noqa: E402
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_predict, cross_val_score  # noqa: E402
from sklearn.multioutput import MultiOutputClassifier  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import OrdinalEncoder, StandardScaler  # noqa: E402
from sklearn.utils.estimator_checks import (  # noqa: E402
    check_sample_weight_equivalence_on_dense_data,
    check_sample_weight_equivalence_on_sparse_data,
    parametrize_with_checks,
)

from gpuboost import GPUBoostClassifier, GPUBoostRegressor, GPUBoostRFClassifier, GPUBoostRFRegressor  # noqa: E402
from gpuboost.kernels.jit import available_threads  # noqa: E402

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def table():
    return make_table()


@pytest.fixture(scope="module")
def labels(table):
    return text_labels(table[1])


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
    assert not np.array_equal(calibrated.predict_proba(X), CalibratedClassifierCV(model, cv=2).fit(X, labels).predict_proba(X))


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
