"""The tables that estimators take: frames, sparse matrices, a few rows or none; columns and values that do not fit."""

import warnings

import numpy as np
import pytest
from estimator_tables import digest, make_table

import gpuboost as gb

pytest.importorskip("sklearn", minversion="1.6")
import scipy.sparse as sp  # noqa: E402

from gpuboost import GPUBoostClassifier, GPUBoostRegressor  # noqa: E402

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def table():
    return make_table()


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


def test_names_of_text_and_numbers_become_text():
    """As pandas.get_dummies and join make them."""
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(np.random.default_rng(0).random((50, 3)), columns=["age", 0, 1])
    for fitted in (frame, frame.set_axis(["age", "0", "1"], axis=1)):
        model = GPUBoostRegressor(n_estimators=2).fit(fitted, frame["age"])
        assert model.feature_names_in_.tolist() == ["age", "0", "1"]
        np.testing.assert_array_equal(model.predict(frame), model.get_booster().predict(gb.DMatrix(frame)))
    with pytest.raises(ValueError, match='must be unique, but these repeat: "a"'):
        GPUBoostRegressor().fit(frame.set_axis(["a", "a", "b"], axis=1), frame["age"])


def test_batches_of_arrow_have_names():
    pa = pytest.importorskip("pyarrow")
    batch = pa.RecordBatch.from_pydict({name: np.random.default_rng(0).random(50) for name in "ab"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = GPUBoostRegressor(n_estimators=2).fit(batch, np.arange(50))
        assert model.feature_names_in_.tolist() == ["a", "b"] and model.predict(batch).shape == (50,)


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
