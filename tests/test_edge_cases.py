"""Awkward inputs, one row each: what must fail does so with a message that helps, what must work gives the right numbers.

A row lists the checks that belong to it. Each is a function without arguments; `refuses`, `warns` and `holds` make them.
"""

import json
import os
import random
import re
import warnings
from contextlib import suppress
from datetime import date
from fractions import Fraction
from functools import cache

import numpy as np
import pandas as pd
import polars
import pytest
import scipy.sparse
from sklearn.exceptions import DataConversionWarning
from sklearn.exceptions import NotFittedError as SklearnNotFittedError

import gpuboost as gb
from gpuboost.backend.contract import Coder, Gradients, Memory, Predictor, RowReducer, Training, Trees
from gpuboost.backend.cpu import CpuBackend
from gpuboost.errors import ModelFormatError, NotFittedError
from gpuboost.model_io import digest

N_ROWS = 40
rng = np.random.default_rng(0)
# Whole numbers and halves, so that every type below can hold the columns exactly. y depends on both columns.
X = np.stack([rng.integers(0, 100, N_ROWS), rng.integers(0, 30, N_ROWS) / 2], axis=1).astype(np.float32)
y = (X[:, 0] + 3 * X[:, 1] + rng.normal(size=N_ROWS)).astype(np.float32)
is_high = y > np.median(y)
PARAMS = {"max_depth": 3, "min_child_weight": 0, "nthread": 1}
LOGISTIC = {"objective": "binary:logistic"}


# ---- what a row says


def refuses(message, *attempts, error=ValueError):
    """Each attempt raises `error` (and no other kind) with a message that matches the pattern."""

    def check():
        for attempt in attempts:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                warnings.filterwarnings("ignore", module="sklearn")  # which casts labels before it looks for NaN
                with pytest.raises(error, match=message):
                    attempt()

    return check


def warns(message, attempt, category=UserWarning):
    """The attempt warns once and returns something true."""

    def check():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert attempt()
        assert [w.category for w in caught] == [category], [str(w.message) for w in caught]
        assert re.search(message, str(caught[0].message))
        own = os.path.dirname(gb.__file__)
        assert category is not UserWarning or not caught[0].filename.startswith(own), "it names a user's line"

    return check


def holds(*attempts):
    """Each attempt returns something true, without a warning."""

    def check():
        for attempt in attempts:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                assert attempt()

    return check


def train(data=X, label=y, params=(), rounds=3, **info):
    return gb.train({**PARAMS, **dict(params)}, gb.DMatrix(data, label, **info), rounds, verbose_eval=False)


def scored_by(metric):
    return gb.Booster({"eval_metric": metric}, model_file=bytes(train().save_raw())).eval(gb.DMatrix(X, y))


def predict(booster, data, **info):
    return booster.predict(gb.DMatrix(data, **info))


def same(data, expected=None, label=y):
    """Training on `data` gives the model of `expected` (its float32 equivalent; X by default), and so do its predictions."""
    expected = np.asarray(X if expected is None else expected, np.float32)
    booster, reference = train(data, label), train(expected, label)
    booster.model.feature_names = booster.model.feature_types = None
    return (
        digest(booster.model) == digest(reference.model)
        and reference.model.trees[0].n_leaves > 1
        and np.array_equal(predict(booster, data), predict(reference, expected))
    )


def classifier(label):
    return gb.GPUBoostClassifier(n_estimators=3, max_depth=3, min_child_weight=0, n_jobs=1).fit(X, label)


def regressor(n_estimators=3):
    return gb.GPUBoostRegressor(n_estimators=n_estimators, max_depth=3, min_child_weight=0, n_jobs=1)


def train_on_positive(objective, bad):
    return train(label=at(abs(y) + 1, 4, bad), params={"objective": objective})


def at(values, row, value):
    """A copy of the values with another one at the row (and, of a table, in column 1)."""
    values = np.array(values, np.float64)
    values[(row, 1) if values.ndim == 2 else row] = value
    return values


def nan_at(values, rows):
    values = np.array(values, np.float32)
    values[rows, 0] = np.nan
    return values


def frame(**columns):
    return pd.DataFrame({"a": X[:, 0], "b": X[:, 1]} | columns)


colours = np.array(["red", "green", "blue"])[X[:, 0].astype(int) % 3]
colour_target = y + 50 * (colours == "green")


def coloured(categories=("blue", "green", "red"), values=colours):
    return frame(colour=pd.Categorical(values, list(categories)))


# ---- checks that take more than a line


def separates_green(table):
    """Categories keep their values and their order, and decide predictions."""
    booster = train(table, colour_target, rounds=10)
    prediction = predict(booster, table)
    is_ordered = booster.model.categories == {"colour": ["blue", "green", "red"]}
    return is_ordered and abs(prediction - colour_target).mean() < 20


def keeps_labels(labels):
    """A classifier returns labels of the type it was given, and finds nearly all of them."""
    labels = np.asarray(labels)
    predicted = classifier(labels).predict(X)
    return predicted.dtype == labels.dtype and (predicted == labels).mean() > 0.9


def huge_weights_outweigh_regularisation(weight):
    """The model of unit weights without reg_lambda, exactly where the factor is a power of two."""
    return np.array_equal(predict(train(weight=np.full(N_ROWS, weight)), X), predict(train(params={"reg_lambda": 0}), X))


def tiny_weights_leave_the_base_score(weight):
    """Regularised sums that are next to nothing move no leaf."""
    return np.allclose(predict(train(weight=np.full(N_ROWS, weight)), X), y.mean(), rtol=1e-5)


def one_level_of_categories_a_row():
    n = 8600
    values = np.arange(n)
    table = pd.DataFrame({"id": pd.Categorical([f"level {i}" for i in values])})
    booster = train(table, (values % 2).astype(float), {"max_depth": 1}, 1)
    return len(booster.model.categories["id"]) == n and np.isfinite(predict(booster, table)).all()


def awkward_names_survive():
    names = ["a[1]", "b<2", 'c"\\', "é,\n"]
    table = pd.DataFrame(np.concatenate([X, X[::-1]], axis=1), columns=names)
    booster = train(table)
    loaded = gb.Booster(model_file=bytes(booster.save_raw()))
    json.loads(booster.get_dump(dump_format="json")[0])
    return loaded.feature_names == names and np.array_equal(predict(loaded, table), predict(booster, table))


def integers_round_once(values):
    """Neighbouring integers that float32 cannot tell apart fall into one leaf."""
    values = np.asarray(values)
    dtrain = gb.DMatrix(values[:, None], np.arange(len(values)))
    rounded, prediction = np.float32(values), gb.train(PARAMS, dtrain, verbose_eval=False).predict(dtrain)
    return all((prediction[rounded == r] == prediction[rounded == r][0]).all() for r in rounded)


def sparse_means_missing():
    """Absent entries are missing, in the model that comes back from its file as well."""
    dense = np.where(X < 8, np.nan, X)
    sparse = scipy.sparse.csr_array(np.where(X < 8, 0, X))
    loaded = gb.Booster(model_file=bytes(train(sparse).save_raw()))
    return same(sparse, dense) and np.array_equal(predict(loaded, sparse), predict(loaded, dense))


def sparse_means_zero_if_asked():
    """With sparse_absent="zero", which the model file remembers."""
    dense = np.where(X < 8, 0, X)
    sparse = scipy.sparse.csr_array(dense)
    booster = train(sparse, sparse_absent="zero")
    loaded = gb.Booster(model_file=bytes(booster.save_raw()))
    return np.array_equal(predict(loaded, sparse), predict(train(dense), dense))


def sparse_in_any_order():
    indices = np.tile([1, 0], N_ROWS)
    unsorted = scipy.sparse.csr_array((X[:, ::-1].ravel(), indices, np.arange(0, 2 * N_ROWS + 1, 2)), shape=X.shape)
    halves = np.concatenate([X / 2, X / 2], axis=1).ravel()
    duplicated = scipy.sparse.csr_array((halves, np.tile([0, 1], 2 * N_ROWS), np.arange(0, 4 * N_ROWS + 1, 4)), shape=X.shape)
    assert not unsorted.has_sorted_indices and duplicated.nnz == 2 * X.size
    return same(unsorted) and same(duplicated)


def two_to_the_31_elements():
    """Rows whose elements are numbered beyond 2^31 are read like the first ones, and by their last column."""
    data = np.zeros((2, 1024), np.float32)
    data[1, -1] = 99.0
    model = train(data, [0.0, 1.0], {"max_depth": 1}, 1)
    many = np.broadcast_to(data[1], (2**21 + 1, 1024))
    assert many.size > 2**31
    low, high = predict(model, data)
    return low < high and (predict(model, many) == high).all()


def mutated_model_files():
    """Bytes changed, cut, doubled and removed anywhere: ModelFormatError, or a model that predicts or wants other columns."""
    table = coloured()
    original = bytes(train(table, rounds=2).save_raw("json"))
    draw = random.Random(0)
    refused = 0
    for _ in range(200):
        broken = bytearray(original)
        for _ in range(draw.randint(1, 3)):
            i, n = draw.randrange(len(broken)), draw.randint(1, 20)
            kind = draw.randrange(5)
            if kind == 0:
                broken[i] = draw.randrange(256)
            elif kind == 1:
                broken[i : i + n] = b""
            elif kind == 2:
                broken[i:i] = broken[i : i + n]
            elif kind == 3:
                broken[i : i + 1] = draw.choice([b"-1", b"99999999999", b"1e400", b"NaN", b"null", b"[]", b"{}", b'"', b"0.5"])
            else:
                del broken[max(i, 1) :]
        try:
            booster = gb.Booster(model_file=bytes(broken))
        except ModelFormatError:
            refused += 1
            continue
        with suppress(ValueError, NotImplementedError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert booster.predict(gb.DMatrix(table), output_margin=True).shape[0] == N_ROWS
    return 100 < refused


@cache
def uninterrupted(rounds):
    return digest(train(rounds=rounds).model)


PARTS = Memory, Coder, Training, Gradients, Trees, Predictor, RowReducer


def interrupted(call, rounds=2):
    """Train round by round, with a KeyboardInterrupt after the call-th call of the backend.

    Returns the rounds in the model, whether they are the uninterrupted ones, and whether going on gives those too; None when
    there are fewer calls.
    """
    calls = 0

    class Interrupted:
        """A backend, or a part of it: counts every call of an operation."""

        def __init__(self, part):
            self.part = part

        def __getattr__(self, name):
            attribute = getattr(self.part, name)
            if isinstance(attribute, PARTS):
                return Interrupted(attribute)
            if not callable(attribute):
                return attribute

            def method(*args, **kwargs):
                nonlocal calls
                calls += 1
                number = calls
                result = attribute(*args, **kwargs)  # within which there may be others
                if number == call:
                    raise KeyboardInterrupt
                if isinstance(result, list):  # of trainings
                    return [Interrupted(part) if isinstance(part, PARTS) else part for part in result]
                return Interrupted(result) if isinstance(result, PARTS) else result

            return method

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gpuboost.backend.choose_backend", lambda *args, **table: Interrupted(CpuBackend(1)))
        dtrain, booster = gb.DMatrix(X, y), gb.Booster(PARAMS)
        try:
            for _ in range(rounds):
                booster.update(dtrain)
            booster.num_boosted_rounds()
        except KeyboardInterrupt:
            pass
        else:
            return None
        n_done = booster.num_boosted_rounds()
        is_prefix = n_done == 0 or digest(booster.model) == uninterrupted(n_done)
        for _ in range(rounds - n_done):
            booster.update(dtrain)
        return n_done, is_prefix, digest(booster.model) == uninterrupted(rounds)


def interrupts_leave_whole_rounds():
    seen, call = set(), 1
    while (outcome := interrupted(call)) is not None:
        n_done, is_prefix, continues = outcome
        assert is_prefix and continues, f"call {call}: {outcome}"
        seen.add(n_done)
        call += 1
    return seen >= {0, 1}


# ---- the rows

CASES = {
    # labels
    "y NaN, ±inf": [
        refuses(r"label must be finite.* 1 rows.*first at row 7: nan", lambda: train(label=at(y, 7, np.nan))),
        refuses(r"label must be finite.* 1 rows.*first at row 3: inf", lambda: train(label=at(y, 3, np.inf))),
        refuses(r"label must be finite.* 2 rows.*first at row 0: -inf", lambda: train(label=at(at(y, 9, np.nan), 0, -np.inf))),
    ],
    "y 1e39": [refuses("finite float32.*beyond 3.4e38.*row 2: 1e\\+39", lambda: train(label=at(y, 2, 1e39)))],
    "y constant; one class": [
        holds(
            lambda: np.allclose(predict(train(label=np.full(N_ROWS, 5.0)), X), 5.0, rtol=1e-6),
            lambda: (classifier(np.full(N_ROWS, "only")).predict(X) == "only").all(),
            lambda: (predict(train(label=np.zeros(N_ROWS), params=LOGISTIC), X) < 1e-5).all(),
        )
    ],
    "labels {1,2}, strings, bool": [
        holds(
            lambda: keeps_labels(np.where(is_high, 2, 1)),
            lambda: keeps_labels(np.where(is_high, "high", "low")),
            lambda: keeps_labels(is_high),
        )
    ],
    "classifier y = 0/0.5, NaN": [
        refuses("(?i)unknown label type.*continuous", lambda: classifier(np.where(is_high, 0.5, 0.0))),
        refuses("y contains NaN", lambda: classifier(at(is_high, 3, np.nan))),
        refuses("labels of one kind.*missing", lambda: classifier(np.where(is_high, "high", None))),
        refuses("num_class", lambda: train(label=y > 0, params={"objective": "multi:softprob"})),
        refuses("between 0 and 1; 1 of 40.*row 4: 2", lambda: train(label=at(is_high, 4, 2), params=LOGISTIC)),
    ],
    "y (n,1) / (n,2)": [
        warns("column-vector", lambda: regressor().fit(X, y[:, None]).predict(X).shape == (N_ROWS,), DataConversionWarning),
        holds(
            lambda: regressor().fit(X, np.stack([y, -y], axis=1)).predict(X).shape == (N_ROWS, 2),
            lambda: np.array_equal(predict(train(label=y[:, None]), X), predict(train(), X)),
        ),
    ],
    "y, w of wrong length": [
        refuses("label has 39 rows, data has 40", lambda: train(label=y[1:])),
        refuses("weight has 41 rows, data has 40", lambda: train(weight=np.ones(41))),
    ],
    "poisson y<0, gamma y≤0": [
        refuses("poisson needs labels that are at least 0; 1 of 40.*row 4: -1", lambda: train_on_positive("count:poisson", -1)),
        refuses("reg:gamma needs labels that are above 0; 1 of 40.*row 4: 0", lambda: train_on_positive("reg:gamma", 0)),
    ],
    # weights
    "w negative, NaN, inf": [
        refuses("weight must not be negative: 1 values are, the first at row 5", lambda: train(weight=at(y * 0, 5, -1))),
        refuses("weight must be finite.*row 5: nan", lambda: train(weight=at(y * 0, 5, np.nan))),
        refuses("weight must be finite.*row 5: inf", lambda: train(weight=at(y * 0, 5, np.inf))),
    ],
    "w all zero": [refuses("weight is zero for every row", lambda: train(weight=np.zeros(N_ROWS)))],
    "w 1e30 / 1e-30": [
        warns("weight is 1.26765e\\+30 at most.*reg_lambda", lambda: huge_weights_outweigh_regularisation(2.0**100)),
        warns("split no node.*is 4e-29 for all rows. Multiply", lambda: tiny_weights_leave_the_base_score(1e-30)),
        warns("split no node.*gain more than 1e-06", lambda: np.allclose(predict(train(label=y * 1e-7), X), 1e-7 * y.mean())),
        holds(lambda: train(label=y * 1e-7, params={"verbosity": 0})),
    ],
    "w=0 against row dropped": [
        holds(
            lambda: digest(train(weight=np.arange(N_ROWS) % 3).model)
            == digest(train(X[np.arange(N_ROWS) % 3 > 0], y[np.arange(N_ROWS) % 3 > 0], weight=([1, 2] * N_ROWS)[:26]).model)
        )
    ],
    # numbers in the table
    "X ±inf, 1e39 at fit": [
        refuses('(?i)column "?1"? holds .*infinite', lambda v=v: train(at(X, 3, v)), lambda v=v: predict(train(), at(X, 3, v)))
        for v in (np.inf, -np.inf, 1e39)
    ],
    "column all NaN; all NaN": [
        warns('missing values.*"1"', lambda: predict(train(X * [1, np.nan]), X).std() > 0),
        warns('All columns.*missing values', lambda: np.allclose(predict(train(X * np.nan), X), y.mean(), rtol=1e-5)),
    ],
    "constant column": [holds(lambda: train(X * [1, 0]).model.trees[0].n_leaves > 1)],
    "0 rows fit; 0 columns": [
        refuses("0 rows", lambda: train(X[:0], y[:0])),
        refuses("0 columns", lambda: train(X[:, :0])),
    ],
    "1 row fit; 0 rows predict": [
        holds(
            lambda: predict(train(X[:1], y[:1]), X) == pytest.approx(np.full(N_ROWS, y[0])),
            lambda: predict(train(), X[:0]).shape == (0,),
            lambda: regressor().fit(X[:2], y[:2]).get_booster().predict(gb.DMatrix(X[:0])).shape == (0,),
        )
    ],
    "int64 near 2^24, unix seconds": [
        warns("more digits than float32", lambda: integers_round_once(2**24 + np.arange(9))),
        warns('"t".*more digits than float32', lambda: train(frame(t=1_700_000_001 + 2 * np.arange(N_ROWS)))),
    ],
    "float16, bool, uint64, longdouble": [
        holds(
            lambda: same(X.astype(np.float16)),
            lambda: same(X > 10, X > 10),
            lambda: same(X.astype(np.uint64), np.floor(X)),
            lambda: same(X.astype(np.longdouble)),
        )
    ],
    "object numeric / None": [
        holds(
            lambda: same(X.astype(object)),
            lambda: same(np.where(X > 50, None, X.astype(object)), np.where(X > 50, np.nan, X)),
            lambda: same(np.array([[Fraction(float(v)) for v in row] for row in X], object)),
        )
    ],
    "string array, complex": [
        refuses("must hold numbers", lambda: train(X.astype(str))),
        refuses("must hold numbers.*imaginary", lambda: train(X + 1j)),
    ],
    "big-endian": [
        holds(
            lambda: same(X.astype(">f4")), lambda: same(X.astype(">f8")), lambda: same(X.astype(">i4"), np.floor(X))
        )
    ],
    # frames
    "datetime64 array / column": [
        refuses("datetime64.*int64", lambda: train(X.astype(np.int64).astype("M8[s]"))),
        refuses('"when".*(?i:datetime).*int64', lambda: train(frame(when=pd.to_datetime(X[:, 0], unit="D")))),
        refuses('"when".*(?i:date).*Int64', lambda: train(polars.DataFrame({"when": [date(2020, 1, 1)] * N_ROWS}))),
    ],
    "df str/object column": [
        refuses('"colour".*category', lambda: train(frame(colour=colours))),
        refuses('"colour".*category', lambda: train(frame(colour=colours.astype(object)))),
        refuses('"colour".*pl.Categorical', lambda: train(polars.DataFrame({"colour": colours.tolist()}))),
    ],
    "df category, defaults": [holds(lambda: separates_green(coloured()))],
    "nullable Int/Float/boolean NA": [
        holds(
            lambda: same(pd.DataFrame(nan_at(np.floor(X), [3, 9])).astype("Int64"), nan_at(np.floor(X), [3, 9])),
            lambda: same(pd.DataFrame(nan_at(X, [3, 9])).astype("Float32"), nan_at(X, [3, 9])),
            lambda: same(
                pd.DataFrame({"a": pd.array([None, *(X[1:, 0] > 50)], "boolean"), "b": X[:, 1]}),
                nan_at(np.stack([X[:, 0] > 50, X[:, 1]], axis=1), [0]),
            ),
        )
    ],
    "unseen category at predict": [
        warns(
            'unknown to the model become missing.*"colour".*"pink"',
            lambda: np.array_equal(
                predict(train(coloured(), colour_target), coloured(["pink"], ["pink"] * N_ROWS)),
                predict(train(coloured(), colour_target), coloured(values=[None] * N_ROWS)),
            ),
        )
    ],
    "categories reordered": [
        holds(
            lambda: np.array_equal(
                predict(train(coloured(), colour_target), coloured(("red", "blue", "green"))),
                predict(train(coloured(), colour_target), coloured()),
            )
        )
    ],
    "~8.6k category levels": [holds(one_level_of_categories_a_row)],
    "duplicate names": [
        refuses('unique.*"a"', lambda: train(pd.DataFrame(X, columns=["a", "a"]))),
        refuses('unique.*"a"', lambda: train(feature_names=["a", "a"])),
    ],
    "names with `[ ] <`": [holds(awkward_names_survive)],
    "columns permuted at predict": [
        holds(lambda: np.array_equal(predict(train(frame()), frame()[["b", "a"]]), predict(train(frame()), frame())))
    ],
    "missing / extra column at predict": [
        refuses('lacks "b"', lambda: predict(train(frame()), frame()[["a"]])),
        refuses('unknown "c"', lambda: predict(train(frame()), frame(c=y))),
    ],
    "numpy after a DataFrame fit": [
        warns("names", lambda: np.array_equal(predict(train(frame()), X), predict(train(), X))),
        warns("names", lambda: len(regressor().fit(frame(), y).predict(X)) == N_ROWS),
    ],
    # layout
    "strided, F-order, negative stride, read-only": [
        holds(
            lambda: same(np.repeat(np.repeat(X, 2, axis=0), 3, axis=1)[::2, ::3]),
            lambda: same(np.asfortranarray(X)),
            lambda: same(X[::-1, ::-1].copy()[::-1, ::-1]),
            lambda: same(np.frombuffer(X.tobytes(), np.float32).reshape(X.shape)),
        )
    ],
    "masked array": [holds(lambda: same(np.ma.masked_greater(X, 50), np.where(X > 50, np.nan, X)))],
    "1-D, 3-D, recarray": [
        refuses(r"2-D, got 1-D.*reshape\(-1, 1\)", lambda: train(X[:, 0])),
        refuses(r"2-D, got 3-D.*reshape\(len\(X\), -1\)", lambda: train(X[:, :, None])),
        refuses(r"2-D, got 0-D of shape \(\)", lambda: train(np.array(1.0))),
        refuses("columns of numbers", lambda: train(np.rec.fromarrays(X.T))),
    ],
    "CSR absent entries": [holds(sparse_means_missing), holds(sparse_means_zero_if_asked)],
    "CSR unsorted / duplicate indices": [holds(sparse_in_any_order)],
    # parameters
    "max_bin 0, 1, 1e5": [
        refuses(rf"max_bin must be between 2 and 65535, got {value}\. Use 256", lambda v=value: train(params={"max_bin": v}))
        for value in (0, 1, 100_000)
    ],
    "n_estimators 0 / −1": [
        holds(
            lambda: np.allclose(regressor(0).fit(X, y).predict(X), y.mean(), rtol=1e-6),
            lambda: np.allclose(predict(train(rounds=0), X), y.mean(), rtol=1e-6),
        ),
        refuses("num_boost_round must be at least 0, got -1", lambda: train(rounds=-1)),
        refuses("n_estimators must be .*at least 0, got -1", lambda: regressor(-1).fit(X, y)),
    ],
    "learning_rate 0 / NaN": [
        refuses(r"learning_rate \(eta\) must be greater than 0, got 0\. Use 0\.3", lambda: train(params={"learning_rate": 0})),
        refuses(r"learning_rate \(eta\) must be a finite number, got nan\. Use 0\.3", lambda: train(params={"eta": np.nan})),
        refuses(
            r"learning_rate \(eta\) must be greater than 0, got 0",
            lambda: gb.train(PARAMS, gb.DMatrix(X, y), 2, callbacks=[gb.callback.LearningRateScheduler([0.5, 0])]),
        ),
    ],
    "max_depth −5; lambda<0; subsample 0 or 1.5": [
        refuses(r"max_depth must be .*at least 0|max_depth must be between 0", lambda: train(params={"max_depth": -5})),
        refuses(r"reg_lambda \(lambda\) must be at least 0, got -1", lambda: train(params={"lambda": -1})),
        refuses("subsample must be greater than 0.* and at most 1, got 0", lambda: train(params={"subsample": 0})),
        refuses("subsample must be greater than 0.* and at most 1, got 1.5", lambda: train(params={"subsample": 1.5})),
    ],
    "misspelt parameter": [
        refuses("unknown parameter 'max_dept'. Did you mean 'max_depth'", lambda: train(params={"max_dept": 3})),
        refuses("Did you mean 'learning_rate'", lambda: train(params={"learning_rat": 3})),
    ],
    "unknown objective": [
        refuses("objective must be one of .*binary:logistic, .*; got 'l2'", lambda: train(params={"objective": "l2"})),
        refuses("Did you mean 'binary:logistic'", lambda: train(params={"objective": "binary:logistics"})),
        refuses("metric must be one of .*Did you mean 'logloss'", lambda: scored_by("loglos")),
    ],
    # models
    "predict before fit; wrong column count": [
        refuses("no model yet", lambda: gb.Booster().predict(gb.DMatrix(X)), error=NotFittedError),
        refuses("not fitted", lambda: regressor().predict(X), error=SklearnNotFittedError),
        refuses("data has 1 columns.*trained on 2", lambda: predict(train(), X[:, :1])),
        refuses("1 features.*expecting 2", lambda: regressor().fit(X, y).predict(X[:, :1])),
    ],
    "malformed or mutated model file": [
        refuses(".", lambda: gb.Booster(model_file=b""), lambda: gb.Booster(model_file=b"[1]"), error=ModelFormatError),
        holds(mutated_model_files),
    ],
    "2^31+ elements (zero-stride broadcast)": [holds(two_to_the_31_elements)],
    # the process; test_threads_and_processes.py has the real signals
    "Ctrl-C during fit": [holds(interrupts_leave_whole_rounds)],
    "fork after fit": "see test_threads_and_processes.py",
    "fit in 4 threads at once": "see test_threads_and_processes.py",
    "GPU out of memory": "needs a GPU",
}


@pytest.mark.parametrize("row", CASES)
def test_edge_case(row):
    checks = CASES[row]
    if isinstance(checks, str):
        pytest.skip(checks)
    for check in checks:
        check()
