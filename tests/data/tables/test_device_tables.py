"""data/tables/device.py and cudf_frames.py: a table on a GPU means what the same table on the host means, and stays where it is.

The oracle is the host's way with the same values. Each test runs with stand-ins for CuPy and cudf that refuse to copy to the host
in passing (tests/fake_cupy.py), and, marked gpu, with the real ones.
"""

import sys
import warnings

import fake_cupy
import numpy as np
import pytest

import gpuboost as gb
from gpuboost.backend import choose_backend
from gpuboost.data.tables.device import host_array, is_device_table, put_on
from gpuboost.data.tables.open import open_table

pytestmark = pytest.mark.long

NAN = np.nan
LIBRARIES = ["fake", pytest.param("real", marks=pytest.mark.gpu)]
RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 4)).astype(np.float32)
X[RNG.random(X.shape) < 0.1] = NAN
Y = (np.nan_to_num(X[:, 0]) + np.nan_to_num(X[:, 1]) ** 2).astype(np.float32)
PARAMS = {"max_depth": 3, "max_bin": 16, "device": "cpu"}


@pytest.fixture(params=LIBRARIES)
def cupy(request, monkeypatch):
    if request.param == "fake":
        monkeypatch.setitem(sys.modules, "cupy", fake_cupy.cupy())
        # a table may be faked, kernels cannot
        monkeypatch.setattr("gpuboost.backend.choose_backend", lambda device, nthread, **table: choose_backend("cpu", nthread))
        return sys.modules["cupy"]
    real = pytest.importorskip("cupy")
    if not real.is_available():
        pytest.skip("CuPy finds no CUDA device")
    return real


@pytest.fixture
def cudf(cupy, monkeypatch):
    pytest.importorskip("pandas")
    if cupy is fake_cupy.module:
        monkeypatch.setitem(sys.modules, "cudf", fake_cupy.cudf())
        return sys.modules["cudf"]
    return pytest.importorskip("cudf")


class ArrayInterface:
    """What numba and others have: only __cuda_array_interface__."""

    def __init__(self, array):
        self.array = array  # keeps the memory
        self.__cuda_array_interface__ = array.__cuda_array_interface__


class DLPack:
    """Only DLPack, on the device of the array."""

    def __init__(self, array, device=None):
        self.array, self.device = array, device

    def __dlpack_device__(self):
        return self.device or self.array.__dlpack_device__()

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)


def dlpack(array, cupy):
    return DLPack(array._values, (2, array.device.id)) if cupy is fake_cupy.module else DLPack(array)


def address(array):
    return array.__cuda_array_interface__["data"][0]


def values_of(source, batch_rows=None):
    """All rows as float32 (n_rows, n_features) on the host, read three ways."""
    empty = np.empty((0, source.n_features), np.float32)
    whole = np.concatenate([empty, *(np.asarray(host_array(b), np.float32) for b in source.batches())])
    single = np.concatenate([empty, *(np.asarray(host_array(b), np.float32) for b in source.batches(1))])
    backwards = np.asarray(host_array(source.rows(range(source.n_rows)[::-1])), np.float32)
    np.testing.assert_array_equal(single, whole)
    np.testing.assert_array_equal(backwards[::-1], whole)
    return whole


def check_as_on_host(on_device, on_host, cupy, **arguments):
    """Equal sources, warnings included; the batches of one lie on the device."""
    with warnings.catch_warnings(record=True) as device_warnings:
        warnings.simplefilter("always")
        source = open_table(on_device, **arguments)
    with warnings.catch_warnings(record=True) as host_warnings:
        warnings.simplefilter("always")
        expected = open_table(on_host, **arguments)
    assert [str(w.message) for w in device_warnings] == [str(w.message) for w in host_warnings]
    assert source.device == 0 and expected.device is None
    for batch in source.batches():
        assert isinstance(batch, cupy.ndarray) and batch.dtype in (np.float32, np.float64)
    for field in ("n_rows", "n_features", "feature_names", "feature_types", "categories"):
        assert getattr(source, field) == getattr(expected, field), field
    np.testing.assert_equal(source.missing, expected.missing)
    np.testing.assert_array_equal(values_of(source), values_of(expected))
    return source


def error_of(data, **arguments):
    with pytest.raises((ValueError, TypeError)) as caught:
        open_table(data, **arguments)
    return caught.type, str(caught.value)


# ---- arrays


@pytest.mark.parametrize("dtype", "? i1 u1 i2 u2 i4 u4 i8 u8 f2 f4 f8".split())
def test_every_dtype_is_read_as_on_the_host(dtype, cupy):
    values = np.array([[1, 0], [3, 4], [0, 7]], dtype)
    check_as_on_host(cupy.asarray(values), values, cupy)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("view", [np.s_[:], np.s_[::-1], np.s_[::2, ::-1]])
def test_batches_of_floats_are_views_and_nothing_is_copied_to_the_host(dtype, view, cupy):
    table = cupy.asarray(np.arange(24, dtype=dtype).reshape(6, 4))[view]
    batches = list(open_table(table).batches(2))
    assert [address(batch) for batch in batches] == [address(table[first:]) for first in range(0, len(table), 2)]
    assert all(batch.dtype == dtype and batch.strides == table.strides for batch in batches)
    assert getattr(cupy, "copied", 0) == 0


@pytest.mark.parametrize("wrap", [lambda array, cupy: ArrayInterface(array), dlpack], ids=["array interface", "DLPack"])
def test_other_libraries_arrays_are_viewed(wrap, cupy):
    table = cupy.asarray(X)
    source = check_as_on_host(wrap(table, cupy), X, cupy)
    assert address(next(source.batches())) == address(table)


def test_dlpack_on_the_host_is_a_host_table(cupy):
    source = open_table(DLPack(X))
    assert source.device is None
    (batch,) = source.batches()
    assert isinstance(batch, np.ndarray) and np.shares_memory(batch, X)


@pytest.mark.parametrize("data", [np.zeros(3), np.zeros((2, 2, 2)), np.zeros((3, 0)), np.zeros((2, 2), complex)], ids=np.shape)
def test_what_the_host_refuses_is_refused_in_the_same_words(data, cupy):
    assert error_of(cupy.asarray(data)) == error_of(data)


@pytest.mark.parametrize("arguments", [{"expected_count": 3}, {"feature_names": ["a"]}, {"feature_types": ["x"] * 4}])
def test_wrong_arguments_are_refused_in_the_same_words(arguments, cupy):
    assert error_of(cupy.asarray(X), **arguments) == error_of(X, **arguments)


def test_names_types_order_and_missing_mean_the_same(cupy):
    names = {"feature_names": list("abcd"), "feature_types": ["q", "float", "int", "float"]}
    for dtype in (np.float32, np.float64, np.int32):
        table = np.nan_to_num(X * 2).astype(dtype)
        check_as_on_host(cupy.asarray(table), table, cupy, **names, missing=1.0)
        source = check_as_on_host(cupy.asarray(table), table, cupy, **names, expected_names=list("dbca"))
        np.testing.assert_array_equal(values_of(source), table[:, [3, 1, 2, 0]])


def test_integers_beyond_float32_warn_in_the_same_words(cupy):
    lowest, odd = np.iinfo(np.int64).min, 2**24 + 1
    for column in ([0, odd], [lowest, -odd]):
        table = np.array([[5, 2**40, column[0]], [7, -(2**30), column[1]]])
        with pytest.warns(UserWarning, match='"2"'):
            open_table(cupy.asarray(table))
        check_as_on_host(cupy.asarray(table), table, cupy)


def test_default_batches_hold_256_megabytes(cupy):
    if cupy is not fake_cupy.module:
        pytest.skip("the stand-in makes a large table without memory")
    table = fake_cupy.ndarray(np.broadcast_to(np.float32(0), (1 << 25, 4)))
    assert [batch.nbytes for batch in open_table(table).batches()] == [256 << 20] * 2


def test_a_table_is_read_on_its_own_device(cupy):
    if cupy is not fake_cupy.module and cupy.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("needs two devices")
    integers = np.array([[1, 2**24 + 1], [3, 4]])
    with cupy.cuda.Device(1):
        table = cupy.asarray(integers)
    with pytest.warns(UserWarning):
        source = open_table(table, feature_names=["a", "b"], expected_names=["b", "a"], expected_count=None)
        open_table(table)
    assert source.device == 1 and all(batch.device.id == 1 for batch in source.batches())
    np.testing.assert_array_equal(values_of(source), integers[:, ::-1].astype(np.float32))
    assert put_on(1, np.zeros(2)).device.id == 1


# ---- frames


def kinds_frame():
    import pandas

    return pandas.DataFrame(
        {
            "f8": np.array([0.1, NAN, 1e-40, -2.5]),
            "f4": np.array([1, 2, 3, NAN], np.float32),
            "i8": np.array([1, -2, 3, 2**24]),
            "bool": np.array([True, False, True, True]),
            "u1": np.array([0, 1, 255, 3], np.uint8),
            "Int64": pandas.array([2**24 + 2, None, 3, 0], "Int64"),
            "boolean": pandas.array([None, True, False, True], "boolean"),
            "Float32": pandas.array([1.5, None, 2.5, 0.0], "Float32"),
            "text": pandas.Categorical(["b", None, "a", "b"], categories=["b", "c", "a"]),
            "numbers": pandas.Categorical([30, 10, 30, None]),
        }
    )


def test_every_kind_of_column_is_read_as_on_the_host(cudf, cupy):
    frame = kinds_frame()
    source = check_as_on_host(cudf.from_pandas(frame), frame, cupy)
    assert source.feature_names == list(frame) and source.categories == {"text": ["b", "c", "a"], "numbers": [10, 30]}
    check_as_on_host(cudf.from_pandas(frame), frame, cupy, missing=1.0)  # which is also a code
    check_as_on_host(cudf.from_pandas(frame.iloc[:, :8]), frame.iloc[:, :8], cupy, missing=3.0)
    check_as_on_host(cudf.from_pandas(frame), frame, cupy, feature_names=list("abcdefghij"))
    check_as_on_host(cudf.from_pandas(frame.iloc[:0]), frame.iloc[:0], cupy)


def test_reading_a_frame_copies_no_batch_to_the_host(cudf, cupy):
    source = open_table(cudf.from_pandas(kinds_frame()))
    assert len(list(source.batches())) == 1
    assert getattr(cupy, "copied", 0) == 0


def test_categories_are_matched_to_the_model_by_value(cudf, cupy):
    import pandas

    frame = pandas.DataFrame({"n": [1.0, 2.0, 3.0], "c": pandas.Categorical(["x", "z", None], categories=["x", "unused", "z"])})
    model = {"categories": {"c": ["z", "y", "x"]}, "expected_names": ["c", "n"]}
    source = check_as_on_host(cudf.from_pandas(frame), frame, cupy, **model)
    np.testing.assert_array_equal(values_of(source), [[2, 1], [0, 2], [NAN, 3]])
    model["categories"] = {"c": ["x"]}
    with pytest.warns(UserWarning, match='Column "c": "z"'):
        source = open_table(cudf.from_pandas(frame), **model)
    np.testing.assert_array_equal(values_of(source), [[0, 1], [NAN, 2], [NAN, 3]])
    check_as_on_host(cudf.from_pandas(frame), frame, cupy, **model)


def test_columns_that_are_no_numbers_are_refused_by_name(cudf):
    import pandas

    for name, values in {"day": pandas.to_datetime(["2020-01-01"]), "gap": pandas.to_timedelta([5]), "text": ["a"]}.items():
        frame = pandas.DataFrame({"ok": [1.0], name: values})
        kind, words = error_of(cudf.from_pandas(frame))
        assert kind is ValueError and words.startswith(f'Column "{name}" holds ')
        assert words.partition(", but must hold ")[2] == error_of(frame)[1].partition(", but must hold ")[2] != ""
    mixed = pandas.DataFrame({"a": pandas.Categorical(["x"])})
    for model in ({"categories": {}, "expected_names": ["a"]}, {"feature_types": ["float"]}):
        assert error_of(cudf.from_pandas(mixed), **model) == error_of(mixed, **model)
    kind, words = error_of(cudf.from_pandas(pandas.DataFrame({"a": [1.0]})), categories={"a": ["x"]}, expected_names=["a"])
    assert 'Column "a" holds float64, but held categories in training' in words


def test_a_column_of_nothing_is_missing_and_a_series_is_no_table(cudf, cupy):
    import pandas

    nothing = pandas.DataFrame({"a": pandas.Series([None, None], dtype="string"), "b": pandas.array([None, None], "Int32")})
    check_as_on_host(cudf.from_pandas(nothing), nothing, cupy)
    series = pandas.Series([1.0, None], dtype="Float64")
    assert error_of(cudf.from_pandas(series))[1] == error_of(series.to_numpy(float))[1]


# ---- labels


def test_labels_weights_and_margins_come_to_the_host(cupy):
    weight, margin = np.arange(1, 301) / 64, np.arange(600, dtype=np.int64).reshape(300, 2)
    for wrap in (lambda a: a, ArrayInterface, lambda a: dlpack(a, cupy)):
        given = [wrap(cupy.asarray(values)) for values in (Y, weight, margin)]
        matrix = gb.DMatrix(X, given[0], weight=given[1], base_margin=given[2])
        assert matrix.device is None
        for kept, values in zip((matrix.get_label(), matrix.get_weight(), matrix.get_base_margin()), (Y, weight, margin)):
            assert isinstance(kept, np.ndarray) and kept.dtype == np.float32
            np.testing.assert_array_equal(kept, values.astype(np.float32))
    np.testing.assert_array_equal(gb.DMatrix(X, DLPack(Y)).get_label(), Y)
    with pytest.raises(ValueError, match="label must be finite.* first at row 1"):
        gb.DMatrix(X[:2], cupy.asarray(np.array([1, NAN])))


def test_labels_of_cudf_come_to_the_host(cudf):
    import pandas

    labels = pandas.Series(Y)
    np.testing.assert_array_equal(gb.DMatrix(X, cudf.from_pandas(labels)).get_label(), Y)
    np.testing.assert_array_equal(gb.DMatrix(X, cudf.from_pandas(pandas.DataFrame({"a": Y, "b": -Y}))).get_label(), np.c_[Y, -Y])
    with pytest.raises(ValueError, match="first at row 0"):
        gb.DMatrix(X[:2], cudf.from_pandas(pandas.Series([None, 1.0], dtype="Float64")))


def test_host_objects_are_not_touched():
    for values in ([1, 2], X, None, "text", np.ma.masked_equal([1, 2], 1)):
        assert host_array(values) is values and not is_device_table(values)
        assert put_on(None, values) is values


# ---- training and prediction


@pytest.mark.sweep(1)
@pytest.mark.parametrize("matrix, method", [
    (gb.DMatrix, "hist"), (gb.DMatrix, "approx"), (gb.DMatrix, "exact"),
    (lambda *data: gb.QuantileDMatrix(*data, max_bin=16), "hist"),
])  # fmt: skip
def test_training_and_prediction_equal_the_hosts(matrix, method, cupy):
    dtrain, host = matrix(cupy.asarray(X), Y), matrix(X, Y)
    assert dtrain.device == 0 and host.device is None
    params = {**PARAMS, "tree_method": method}
    model, expected = (gb.train(params, data, 4, evals=[(data, "train")], verbose_eval=False) for data in (dtrain, host))
    assert model.save_raw() == expected.save_raw()
    for options in ({}, {"output_margin": True}, {"pred_leaf": True}, {"strict_shape": True}):
        prediction, on_host = model.predict(dtrain, **options), expected.predict(host, **options)
        assert isinstance(prediction, cupy.ndarray) and prediction.device.id == 0
        assert isinstance(on_host, np.ndarray) and prediction.dtype == on_host.dtype
        np.testing.assert_array_equal(prediction.get(), on_host)
    assert model.copy().eval(dtrain) == expected.copy().eval(host)  # without a running training


def test_a_cudf_frame_trains_and_predicts_as_a_pandas_one(cudf, cupy):
    import pandas

    frame = pandas.DataFrame(X, columns=list("abcd"))
    frame["kind"] = pandas.Categorical(np.where(Y > 0.5, "high", "low"))
    on_device = cudf.from_pandas(frame)
    model, expected = (gb.train(PARAMS, gb.DMatrix(data, Y), 3) for data in (on_device, frame))
    assert model.save_raw() == expected.save_raw()
    frame["kind"] = frame["kind"].cat.reorder_categories(["low", "high"])
    permuted = frame[["kind", "d", "c", "b", "a"]]
    prediction = model.predict(gb.DMatrix(cudf.from_pandas(permuted)))
    assert isinstance(prediction, cupy.ndarray)
    np.testing.assert_array_equal(prediction.get(), expected.predict(gb.DMatrix(permuted)))


def test_predictions_return_to_the_tables_device(cupy):
    if cupy is not fake_cupy.module and cupy.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("needs two devices")
    with cupy.cuda.Device(1):
        matrix = gb.DMatrix(cupy.asarray(X), Y)
    assert gb.train(PARAMS, matrix, 2).predict(matrix).device.id == 1


@pytest.fixture
def settings():
    pytest.importorskip("sklearn")
    return {"n_estimators": 3, **PARAMS}


@pytest.mark.parametrize("labels", [np.array([3, 5, 9])[np.digitize(Y, [0, 1])], Y > 0.5], ids=["three classes", "booleans"])
def test_a_classifier_returns_cupy_arrays(labels, settings, cupy):
    table = cupy.asarray(X)
    model = gb.GPUBoostClassifier(**settings).fit(table, cupy.asarray(labels), eval_set=[(table, cupy.asarray(labels))])
    expected = gb.GPUBoostClassifier(**settings).fit(X, labels)
    assert model.get_booster().save_raw() == expected.get_booster().save_raw()
    for name in ("predict", "predict_proba", "apply"):
        on_device, on_host = getattr(model, name)(table), getattr(expected, name)(X)
        assert isinstance(on_device, cupy.ndarray) and isinstance(on_host, np.ndarray) and on_device.dtype == on_host.dtype
        np.testing.assert_array_equal(on_device.get(), on_host)
        np.testing.assert_array_equal(getattr(model, name)(X), on_host)  # the kind of array asked with, not trained with


def test_text_labels_return_as_numpy(settings, cupy):
    labels = np.where(Y > 0.5, "high", "low")
    model = gb.GPUBoostClassifier(**settings).fit(cupy.asarray(X), labels)
    prediction = model.predict(cupy.asarray(X))
    assert isinstance(prediction, np.ndarray) and set(prediction) == {"high", "low"}
    assert isinstance(model.predict_proba(cupy.asarray(X)), cupy.ndarray)
    np.testing.assert_array_equal(prediction, model.predict(X))


def test_a_series_is_no_table_for_an_estimator(settings, cudf):
    import pandas

    with pytest.raises(ValueError, match="1-D"):
        gb.GPUBoostRegressor(**settings).fit(cudf.from_pandas(pandas.Series([1.0, None], dtype="Float64")), [1, 2])


def test_a_regressor_returns_cupy_arrays(settings, cupy):
    table = cupy.asarray(X)
    for labels in (Y, np.c_[Y, -Y]):
        model = gb.GPUBoostRegressor(**settings).fit(table, cupy.asarray(labels), sample_weight=cupy.asarray(np.abs(Y)))
        expected = gb.GPUBoostRegressor(**settings).fit(X, labels, sample_weight=np.abs(Y)).predict(X)
        prediction = model.predict(ArrayInterface(table))
        assert isinstance(prediction, cupy.ndarray) and prediction.dtype == expected.dtype
        np.testing.assert_array_equal(prediction.get(), expected)
    with pytest.raises(ValueError, match="3 features.*4 features"):
        model.predict(table[:, :3])
    with pytest.raises(ValueError, match="1-D"):
        model.predict(table[:, 0])


# ---- without CuPy


def test_without_cupy_only_tables_on_a_gpu_are_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(ImportError, match=r"read through CuPy.*pip install 'gpuboost-trees\[cuda13\]'"):
        open_table(ArrayInterface(fake_cupy.ndarray(X)))
    matrix = gb.DMatrix(X, Y)
    assert isinstance(gb.train(PARAMS, matrix, 1).predict(matrix), np.ndarray)
