"""Every kind of table: the same values give the same model, digest for digest, and the same predictions."""

import numpy as np
import pytest
import scipy.sparse as sp
from packed_tables import codes_of

import gpuboost as gb
from gpuboost.model_io import digest

NAN = np.nan
RNG = np.random.default_rng(5)
X = RNG.integers(-20, 20, (150, 4)).astype(np.float32) / 4  # of few digits, so that every dtype and text holds it exactly
X[RNG.random(X.shape) < 0.15] = NAN
Y = (np.nan_to_num(X[:, 0]) * np.nan_to_num(X[:, 1]) + np.nan_to_num(X[:, 2])).astype(np.float32)
NAMES = ["a", "b", "c", "d"]
PARAMS = {"max_depth": 3, "max_bin": 16}
NULLS = [[None if value != value else float(value) for value in column] for column in X.T]


def only(*methods):
    """A function that hides all of a table but these methods."""

    def wrap(table):
        kind = type("Foreign", (), {name: (lambda self, *a, name=name, **k: getattr(table, name)(*a, **k)) for name in methods})
        return kind()

    return wrap


def read_only(table):
    table = table.copy()
    table.flags.writeable = False
    return table


def strided(table):
    wide = np.zeros((300, 9), np.float32)
    wide[::-2, 1::2] = table
    return wide[::-2, 1::2]


def unaligned(table):
    rows = np.zeros(len(table), np.dtype([("pad", "u1"), ("x", "f4", 4)]))
    rows["x"] = table
    return rows["x"]


def stored(kind):
    """The values that are there as entries, explicit zeros too."""
    return lambda table: kind(sp.coo_array((table[table == table], np.nonzero(table == table)), shape=table.shape))


def pyarrow_table():
    pyarrow = pytest.importorskip("pyarrow")
    return pyarrow.table(dict(zip(NAMES, NULLS)))


def pandas_frame(dtype):
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame(dict(zip(NAMES, NULLS)), dtype=dtype)


def polars_frame():
    return pytest.importorskip("polars").DataFrame(dict(zip(NAMES, NULLS)))


def duckdb_like():
    return only("__arrow_c_stream__")(pyarrow_table())


def one_pass_stream():
    return pyarrow_table().to_reader(max_chunksize=40)


def arrow_pandas():
    pandas = pytest.importorskip("pandas")
    return pyarrow_table().to_pandas(types_mapper=pandas.ArrowDtype)


UNNAMED = {
    "float64": lambda: X.astype(np.float64),
    "float16": lambda: X.astype(np.float16),
    "longdouble": lambda: X.astype(np.longdouble),
    "big-endian": lambda: X.astype(">f4"),
    "column-major": lambda: np.asfortranarray(X),
    "strided": lambda: strided(X),
    "unaligned": lambda: unaligned(X),
    "read-only": lambda: read_only(X),
    "masked": lambda: np.ma.MaskedArray(np.nan_to_num(X), np.isnan(X)),
    "masked integers": lambda: np.ma.MaskedArray(np.nan_to_num(X * 4).astype(np.int16), np.isnan(X)),
    "objects": lambda: np.array(NULLS, dtype=object).T,
    "lists": lambda: [list(row) for row in zip(*NULLS)],
    "tuples": lambda: tuple(zip(*NULLS)),
    "DLPack": lambda: only("__dlpack__", "__dlpack_device__")(X),
    "like a torch tensor": lambda: only("__dlpack__", "__dlpack_device__", "__array__")(X),
    "__array__": lambda: only("__array__")(X),
    "CSR": lambda: stored(sp.csr_matrix)(X),
    "CSC": lambda: stored(sp.csc_matrix)(X),
    "COO": lambda: stored(sp.coo_matrix)(X),
    "CSR array": lambda: stored(sp.csr_array)(X),
    "CSC array": lambda: stored(sp.csc_array)(X),
    "COO array": lambda: stored(sp.coo_array)(X),
}
NAMED = {
    "pandas": lambda: pandas_frame("float32"),
    "pandas nullable": lambda: pandas_frame("Float64"),
    "pandas objects": lambda: pandas_frame(object),
    "pandas Arrow": arrow_pandas,
    "polars": polars_frame,
    "polars lazy": lambda: polars_frame().lazy(),
    "pyarrow": pyarrow_table,
    "Arrow stream": duckdb_like,
    "Arrow stream of one pass": one_pass_stream,
}


def trained(data, **arguments):
    """(digest, predictions) of a model of a table, whose first rows are watched."""
    dtrain = gb.DMatrix(data, Y, **arguments)
    booster = gb.train(PARAMS, dtrain, 3, evals=[(dtrain.slice(range(100)), "part")], verbose_eval=False)
    return digest(booster.model), booster.predict(dtrain)


@pytest.fixture(scope="module")
def expected():
    return {"unnamed": trained(X), "named": trained(X, feature_names=NAMES, feature_types=["float"] * 4)}


@pytest.mark.sweep(8)
@pytest.mark.parametrize("kind", [name for name in UNNAMED if name != "masked integers"])
def test_unnamed_tables_give_the_model_of_the_array(kind, expected):
    model, prediction = trained(UNNAMED[kind]())
    assert model == expected["unnamed"][0]
    np.testing.assert_array_equal(prediction, expected["unnamed"][1])


def test_masked_integers_give_the_model_of_their_values():
    model, prediction = trained(UNNAMED["masked integers"]())
    other, other_prediction = trained(X * 4)
    assert model == other
    np.testing.assert_array_equal(prediction, other_prediction)


@pytest.mark.parametrize("kind", NAMED)
def test_frames_give_the_model_of_the_named_array(kind, expected):
    model, prediction = trained(NAMED[kind]())
    assert model == expected["named"][0]
    np.testing.assert_array_equal(prediction, expected["named"][1])


@pytest.mark.parametrize("kind", [*UNNAMED, *NAMED])
def test_a_quantile_matrix_of_any_kind_has_the_codes_of_the_array(kind):
    table = X * 4 if kind == "masked integers" else X
    ours, theirs = (gb.QuantileDMatrix(data, max_bin=16).any_binned() for data in ((UNNAMED | NAMED)[kind](), table))
    assert ours.cuts.same_as(theirs.cuts)
    np.testing.assert_array_equal(codes_of(ours), codes_of(theirs))


@pytest.mark.parametrize("kind", NAMED)
def test_columns_of_any_frame_are_matched_by_name(kind, expected):
    booster = gb.train(PARAMS, gb.DMatrix(X, Y, feature_names=NAMES), 3, verbose_eval=False)
    shuffled = gb.DMatrix(X[:, ::-1], feature_names=NAMES[::-1])
    np.testing.assert_array_equal(booster.predict(shuffled), expected["named"][1])
    reversed_model = gb.train(PARAMS, gb.DMatrix(X[:, ::-1], Y, feature_names=NAMES[::-1]), 3, verbose_eval=False)
    data, predicted = gb.DMatrix(NAMED[kind]()), reversed_model.predict(shuffled)
    for _ in range(2):  # a stream is read once
        np.testing.assert_array_equal(reversed_model.predict(data), predicted)
    lacking = gb.train(PARAMS, gb.DMatrix(X, Y, feature_names=[*NAMES[:3], "z"]), 1, verbose_eval=False)
    with pytest.raises(ValueError, match='data lacks "z" and has the unknown "d"'):
        lacking.predict(data)


def test_a_lazy_frame_is_collected_once():
    polars = pytest.importorskip("polars")
    runs = []
    lazy = polars_frame().lazy().map_batches(lambda frame: (runs.append(len(frame)), frame)[1])
    d = gb.DMatrix(lazy, Y)
    booster = gb.train(PARAMS, gb.DMatrix(X[:, ::-1], Y, feature_names=NAMES[::-1]), 1, verbose_eval=False)
    booster.predict(d)
    gb.train(PARAMS, d, 1, verbose_eval=False)
    assert runs == [len(X)] and isinstance(lazy, polars.LazyFrame)


def test_a_stream_of_one_column_is_refused_as_one_dimensional():
    pyarrow = pytest.importorskip("pyarrow")
    with pytest.raises(ValueError, match="1-D"):
        gb.DMatrix(pyarrow.chunked_array([[1.0, 2.0]]))


def test_labels_and_weights_come_from_any_library():
    polars = pytest.importorskip("polars")
    for values in (Y.tolist(), polars.Series(Y), only("__dlpack__", "__dlpack_device__")(Y), pyarrow_column(Y), Y.astype(">f8")):
        d = gb.DMatrix(X, values, weight=only("__dlpack__", "__dlpack_device__")(abs(Y)))
        np.testing.assert_array_equal(d.get_label(), Y)
        np.testing.assert_array_equal(d.get_weight(), abs(Y))


def pyarrow_column(values):
    return pytest.importorskip("pyarrow").array(values)
