"""data/dmatrix.py: labels, weights and margins are checked once; codes come from the table's own cuts or a reference's."""

import pickle
import warnings
from decimal import Decimal
from functools import partial

import numpy as np
import pytest
from opened_tables import FRAMES, make_categories, make_frame

from gpuboost.backend.cpu import CpuBackend
from gpuboost.communicator import SingleProcess, current_communicator, run_threads
from gpuboost.config import config_context
from gpuboost.data.dmatrix import DMatrix
from gpuboost.data.quantile_dmatrix import QuantileDMatrix

X = np.array([[1.0, 10.0], [2.0, np.nan], [3.0, 30.0]])
MASKED = np.ma.MaskedArray([1, 1, 1], [False, False, True])
BACKEND, COMM = CpuBackend(1), SingleProcess()


def codes_of(matrix):
    return matrix.any_binned().pages[0].columns.tolist()


# ---- labels, weights, margins


def test_a_matrix_has_rows_and_columns_and_no_info_until_it_is_set():
    d = DMatrix(X)
    assert (d.num_row(), d.num_col()) == (3, 2)
    assert len(d.get_label()) == len(d.get_weight()) == len(d.get_base_margin()) == 0
    assert d.base_margins is None and d.feature_names is None


@pytest.mark.parametrize(
    "values", [[0, 1, 2], (0.0, 1.0, 2.0), np.arange(3, dtype=np.float16), np.arange(3)[:, None], ["0", "1", "2"]]
)
def test_what_is_set_can_be_read_as_float32(values):
    d = DMatrix(X, label=values, weight=values, base_margin=values)
    for got in (d.get_label(), d.get_weight(), d.get_base_margin()):
        assert got.dtype == np.float32 and got.tolist() == [0, 1, 2]
    assert d.labels.shape == d.base_margins.shape == (1, 3)


def test_booleans_are_zero_and_one():
    assert DMatrix(X, label=[True, False, True]).get_label().tolist() == [1, 0, 1]


def test_info_may_be_set_later_and_again():
    d = DMatrix(X, label=[1, 2, 3])
    d.set_label([4, 5, 6])
    d.set_info(weight=[1, 0, 2], base_margin=[7, 8, 9])
    assert d.get_label().tolist() == [4, 5, 6]
    assert d.get_weight().tolist() == [1, 0, 2] and d.get_base_margin().tolist() == [7, 8, 9]


def test_several_targets_and_outputs_keep_their_shape():
    table = np.arange(6).reshape(3, 2)
    d = DMatrix(X, label=table, base_margin=table)
    np.testing.assert_array_equal(d.get_label(), table)
    np.testing.assert_array_equal(d.get_base_margin(), table)
    np.testing.assert_array_equal(d.labels, table.T)
    assert d.labels.flags.c_contiguous


def test_values_are_copied():
    label = np.array([1, 2, 3], np.float32)
    d = DMatrix(X, label=label)
    label[0] = 99
    assert d.get_label()[0] == 1


@pytest.mark.parametrize("values", [[True, False, None], [1, 0, None], [Decimal(1), Decimal(0), None]], ids=repr)
@pytest.mark.parametrize("make", ["pandas.array", "pandas.Series", "polars.Series", "pyarrow.array"])
def test_a_null_of_any_library_and_type_is_named_and_the_other_values_are_read(make, values):
    library, _, function = make.partition(".")
    make_series = getattr(pytest.importorskip(library), function)
    if isinstance(values[0], bool | int) and library == "pandas":
        make_series = partial(make_series, dtype="boolean" if isinstance(values[0], bool) else "Int64")
    assert DMatrix(X[:2], label=make_series(values[:2])).get_label().tolist() == [1, 0]
    with pytest.raises(ValueError, match="label must be finite .* the first at row 2: nan"):
        DMatrix(X, label=make_series(values))


def test_what_a_library_cannot_give_to_numpy_is_refused_by_name():
    polars = pytest.importorskip("polars")
    with pytest.raises(ValueError, match="label must hold numbers.*128.* Pass a NumPy array"):
        DMatrix(X, label=polars.Series([1, 2, 3], dtype=polars.Int128))


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_series_are_read(library):
    module = pytest.importorskip(library)
    make = module.array if library == "pyarrow" else module.Series
    assert DMatrix(X, label=make([1, 2, 3])).get_label().tolist() == [1, 2, 3]


def test_a_table_without_rows_takes_empty_labels():
    assert DMatrix(np.empty((0, 2)), label=[], weight=[]).get_label().shape == (0,)


@pytest.mark.parametrize("name", ["label", "weight", "base_margin"])
@pytest.mark.parametrize("values, message", [
    ([1, 2], "has 2 rows, data has 3"),
    ([1, 2, 3, 4], "has 4 rows, data has 3"),
    ([0, np.nan, np.inf], "2 rows are NaN, infinite or beyond 3.4e38, the first at row 1: nan"),
    ([0, 0, 1e39], r"1 rows are .* the first at row 2: 1e\+39"),
    ([0, None, 1], "1 rows are .* the first at row 1: nan"),
    (np.ma.MaskedArray([0, 1, 2], [False, False, True]), "1 rows are .* the first at row 2: nan"),
    (["a", "b", "c"], "must hold numbers, got dtype <U1"),
    (np.array(["2020-01-01"] * 3, "M8[ns]"), r"must hold numbers, got dtype datetime64\[ns\]"),
    ([1, 2, 3j], "must hold numbers, got dtype complex128"),
    (5.0, r"must have shape \(n_rows,\) or \(n_rows, k\), k at least 1, got \(\)"),
    (np.zeros((3, 1, 1)), r"must have shape .* got \(3, 1, 1\)"),
    (np.zeros((3, 0)), r"must have shape .* got \(3, 0\)"),
    ([[1, 2], [3], [4]], "must hold numbers in rows of equal length: .*inhomogeneous"),
    ([0, 10**400, 1], "1 rows are .* the first at row 1: inf"),
])  # fmt: skip
def test_bad_values_are_refused_by_name_count_and_row(name, values, message):
    with pytest.raises(ValueError, match=f"^{name} .*{message}"):
        DMatrix(X, **{name: values})


def test_the_bad_one_of_several_targets_is_shown():
    with pytest.raises(ValueError, match="the first at row 1: -inf"):
        DMatrix(X, label=[[1, 2], [3, -np.inf], [5, 6]])


def test_negative_weights_are_counted():
    with pytest.raises(ValueError, match="must not be negative: 2 values are, the first at row 1"):
        DMatrix(X, weight=[1, -1, -0.5])


def test_weights_have_one_column():
    with pytest.raises(ValueError, match="weight must have one value per row, got 2 columns"):
        DMatrix(X, weight=np.ones((3, 2)))


def test_a_refused_value_leaves_the_old_one():
    d = DMatrix(X, label=[1, 2, 3])
    with pytest.raises(ValueError):
        d.set_label([1, 2, np.nan])
    assert d.get_label().tolist() == [1, 2, 3]


def test_set_info_sets_all_or_nothing():
    d = DMatrix(X, label=[1, 2, 3], feature_names=["a", "b"])
    with pytest.raises(ValueError, match="weight has 1 rows"):
        d.set_info(label=[-1, -2, -3], feature_names=["c", "d"], weight=[1])
    assert d.get_label().tolist() == [1, 2, 3] and d.feature_names == ["a", "b"]
    assert d.source(["a", "b"], {}, 2).feature_names == ["a", "b"]


def test_a_matrix_without_label_says_so_when_it_is_needed():
    with pytest.raises(ValueError, match="no label. Pass label=, or call set_label"):
        _ = DMatrix(X).labels


@pytest.mark.parametrize("name", ["label_lower_bound", "label_upper_bound"])
def test_what_is_not_built_says_so(name):
    with pytest.raises(NotImplementedError, match=name):
        DMatrix(X, **{name: [1, 2, 3]})
    with pytest.raises(NotImplementedError, match="save_binary"):
        DMatrix(X).save_binary("m.bin")


# ---- queries, feature weights, XGBoost's names for all of these


@pytest.mark.parametrize("info", [{"group": [1, 0, 2]}, {"group": np.array([1.0, 0.0, 2.0])}])
def test_groups_are_kept_as_first_rows(info):
    d = DMatrix(X, **info)
    assert d.get_group().tolist() == [1, 0, 2] and d.get_uint_info("group_ptr").tolist() == [0, 1, 1, 3]


@pytest.mark.parametrize("qid", [[4, 7, 7], np.array([-1, 0, 0]), np.array([0.0, 2.0, 2.0])])
def test_queries_are_counted(qid):
    assert DMatrix(X, qid=qid).get_group().tolist() == [1, 2]


@pytest.mark.parametrize("info, message", [
    ({"group": [1, 1]}, "group must hold the rows of each query, 3 together, got a sum of 2"),
    ({"group": [4, -1]}, "group must hold the rows of each query"),
    ({"group": [1.5, 1.5]}, "group must hold integers, got 1.5"),
    ({"group": [[3]]}, r"one dimension, got shape \(1, 1\)"),
    ({"group": [2**62] * 4 + [3]}, "3 together, got a sum of 18446744073709551619"),
    ({"group": MASKED}, "group must hold integers, got nan"),
    ({"qid": MASKED}, "qid must hold integers, got nan"),
    ({"feature_weights": MASKED[1:]}, "feature_weights must be finite .* got nan for column 1"),
    ({"feature_weights": [1, 10**400]}, "feature_weights must be finite .* got inf for column 1"),
    ({"qid": np.array([0, 1, 2**63], np.uint64)}, "qid must hold integers below 2.63, got 9223372036854775808"),
    ({"qid": [0, 1, np.inf]}, "qid must hold integers below 2.63, got inf"),
    ({"qid": [[1], [1, 2]]}, "qid must hold numbers in rows of equal length"),
    ({"qid": ["a", "b", "c"]}, "qid must hold integers"),
    ({"qid": [1, np.nan, 2]}, "qid must hold integers, got nan"),
    ({"qid": [1, 2]}, "qid has 2 rows, data has 3"),
    ({"qid": [1, 2, 1]}, "qid must not decrease, but does at row 2: 1. Sort"),
    ({"qid": [1, 1, 1], "group": [3]}, "group and qid both"),
    ({"feature_weights": [1, 2, 3]}, r"one number per column \(2\), got shape \(3,\)"),
    ({"feature_weights": [1, -2]}, "not negative, got -2.0 for column 1"),
    ({"feature_weights": [np.nan, 1]}, "finite and not negative, got nan for column 0"),
    ({"feature_weights": ["a", 1]}, "feature_weights must hold numbers"),
])  # fmt: skip
def test_bad_queries_and_feature_weights_are_refused(info, message):
    with pytest.raises(ValueError, match=message):
        DMatrix(X, **info)


def test_info_by_xgboosts_names():
    d = DMatrix(X)
    for field, values in {"label": [1, 2, 3], "weight": [4, 5, 6], "base_margin": [7, 8, 9], "feature_weights": [1, 1]}.items():
        assert len(d.get_float_info(field)) == 0
        d.set_float_info(field, values)
        assert d.get_float_info(field).tolist() == values
    d.set_uint_info("group", [3])
    assert d.get_uint_info("group_ptr").tolist() == [0, 3]
    for call in (lambda: d.get_float_info("labels"), lambda: d.set_uint_info("label", [1]), lambda: d.get_uint_info("group")):
        with pytest.raises(ValueError, match="unknown field .* Use '"):
            call()


def test_changes_of_info_and_columns_are_counted():
    d = DMatrix(X)
    changes = [
        lambda: d.set_label([1, 2, 3]), lambda: d.set_weight([1, 2, 3]), lambda: d.set_base_margin([1, 2, 3]),
        lambda: d.set_group([3]), lambda: d.set_info(feature_weights=[1, 1]), lambda: d.set_info(feature_names=["a", "b"]),
        lambda: d.set_info(feature_types=["q", "q"]),
    ]  # fmt: skip
    for change in changes:
        before = d.version
        change()
        assert d.version > before


# ---- columns


def test_names_and_types_can_be_set_and_are_checked():
    d = DMatrix(X)
    d.feature_names, d.feature_types = ["a", 2], ("int", "q")
    assert d.feature_names == ["a", "2"] and d.feature_types == ["int", "q"]
    for name, value, message in [
        ("feature_names", ["a"], "one name a column"), ("feature_names", 3, r"one name a column \(2\), got 3"),
        ("feature_names", ["a", "a"], "these repeat"),
        ("feature_types", ["int"], "one letter a column"), ("feature_types", 3, "got 3"),
        ("feature_types", ["int", "z"], "got 'z'"),
    ]:  # fmt: skip
        with pytest.raises(ValueError, match=message):
            setattr(d, name, value)
    assert d.feature_names == ["a", "2"] and d.feature_types == ["int", "q"]
    d.feature_names = d.feature_types = None
    assert d.feature_names is None and d.feature_types is None


def test_renamed_columns_are_matched_by_their_new_names():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1.0, 2.0], "b": pandas.Categorical(["x", "y"])})
    d = DMatrix(frame)
    d.feature_names = ["b", "c"]
    assert d.categories == {"c": ["x", "y"]}
    source = d.source(["c", "b"], {"c": ["y", "x"]}, 2)
    np.testing.assert_array_equal(next(source.batches()), [[1, 1], [0, 2]])
    with pytest.raises(ValueError, match="got None"):
        d.feature_names = None
    with pytest.raises(ValueError, match="'c' must be 'c', as it holds categories, got 'q'"):
        d.feature_types = ["q", "q"]


# ---- values


def test_present_values_are_counted_and_given_as_csr():
    table = np.array([[0, 1, np.nan], [-9, 5, 0]])
    for matrix in (DMatrix(table, missing=-9), QuantileDMatrix(table, missing=-9)):
        assert matrix.num_nonmissing() == 4
    data = DMatrix(table, missing=-9).get_data()
    assert data.format == "csr" and data.dtype == np.float32 and data.shape == (2, 3)
    assert data.indptr.tolist() == [0, 2, 4] and data.indices.tolist() == [0, 1, 1, 2] and data.data.tolist() == [0, 1, 5, 0]
    with pytest.raises(NotImplementedError, match="QuantileDMatrix, which keeps only bin numbers"):
        QuantileDMatrix(table).get_data()


def test_all_of_256_bins_and_missing_values_are_told_apart_when_counted():
    rows = np.arange(300.0)[:, None]
    assert QuantileDMatrix(rows).num_nonmissing() == 300
    assert QuantileDMatrix(np.where(rows < 3, np.nan, rows)).num_nonmissing() == 297


def test_tables_without_rows_give_empty_csr():
    assert DMatrix(np.empty((0, 2))).get_data().shape == (0, 2) and DMatrix(np.empty((0, 2))).num_nonmissing() == 0


@pytest.mark.parametrize("rindex", [[2, 0], np.array([2, 0], np.uint8), np.array([2.0, 0.0])])
def test_a_slice_holds_the_rows_in_order_with_their_info(rindex):
    d = DMatrix(
        X, [[1, 4], [2, 5], [3, 6]], weight=[1, 2, 3], base_margin=[7, 8, 9], feature_names=["a", "b"], feature_weights=[1, 1]
    )
    part = d.slice(rindex)
    assert part.num_row() == 2 and part.num_col() == 2 and part.feature_names == ["a", "b"]
    assert part.get_label().tolist() == [[3, 6], [1, 4]] and part.get_weight().tolist() == [3, 1]
    assert part.get_base_margin().tolist() == [9, 7] and part.get_float_info("feature_weights").tolist() == [1, 1]
    np.testing.assert_array_equal(part.get_data().toarray(), [[3, 30], [1, 10]])
    np.testing.assert_array_equal(next(part.source(["b", "a"], {}, 2).batches()), [[30, 3], [10, 1]])
    np.testing.assert_array_equal(part.slice([1]).get_data().toarray(), [[1, 10]])
    part.set_label([0, 0])
    assert len(d.labels) == 2 and d.num_row() == 3, "the whole is untouched"


def test_a_slice_by_mask_and_an_empty_one():
    assert DMatrix(X, [1, 2, 3]).slice(np.array([True, False, True])).get_label().tolist() == [1, 3]
    empty = DMatrix(X, [1, 2, 3]).slice([])
    assert empty.num_row() == 0 and empty.labels.shape == (1, 0)


def test_a_slice_has_its_own_cuts():
    d = DMatrix(X)
    d.binned(256, BACKEND, COMM)
    assert d.slice([0, 1]).binned(256, BACKEND, COMM).cuts.same_as(DMatrix(X[:2]).binned(256, BACKEND, COMM).cuts)


def test_a_slice_keeps_the_dictionary_of_categories():
    polars = pytest.importorskip("polars")
    d = DMatrix(polars.DataFrame({"c": polars.Series(["z", "a", "m"], dtype=polars.Categorical)}))
    part = d.slice([0])
    assert part.categories == d.categories == {"c": ["a", "m", "z"]}
    np.testing.assert_array_equal(part.get_data().toarray(), [[2]])


@pytest.mark.parametrize("rindex, error, message", [
    ([3], IndexError, r"rindex must lie in \[0, 2\], got 3"),
    ([-1], IndexError, "got -1"),
    ([0.5], ValueError, "rindex must hold integers, got 0.5"),
    (MASKED, ValueError, "rindex must hold integers, got nan"),
    (MASKED.astype(bool), ValueError, "rindex must hold integers, got nan"),
    ([[1]], ValueError, "one dimension"),
    (np.array([True]), ValueError, r"one value per row \(3\), got shape \(1,\)"),
])  # fmt: skip
def test_rows_that_do_not_exist_are_refused(rindex, error, message):
    with pytest.raises(error, match=message):
        DMatrix(X).slice(rindex)


def test_slices_lose_groups_only_when_allowed():
    d = DMatrix(X, group=[1, 2])
    with pytest.raises(ValueError, match="does not keep query groups. Use allow_groups=True"):
        d.slice([0])
    assert len(d.slice([0], allow_groups=True).get_group()) == 0
    with pytest.raises(ValueError, match="a QuantileDMatrix keeps only bin numbers"):
        QuantileDMatrix(X).slice([0])


@pytest.mark.parametrize(
    "make", [lambda: DMatrix(X, [1, 2, 3]), lambda: DMatrix(X, [1, 2, 3]).slice([2, 0]), lambda: QuantileDMatrix(X, [1, 2, 3])]
)
def test_matrices_can_be_pickled(make):
    d, again = make(), pickle.loads(pickle.dumps(make()))
    assert again.get_label().tolist() == d.get_label().tolist()
    assert again.binned(256, BACKEND, COMM).cuts.same_as(d.binned(256, BACKEND, COMM).cuts) and codes_of(again) == codes_of(d)


@pytest.mark.parametrize("library", FRAMES)
def test_a_matrix_of_a_frame_can_be_pickled(library):
    d = DMatrix(make_frame(library, {"f": [1.5, None], "i": [1, None], "b": [True, None], "none": [None, None]}))
    again, categories = pickle.loads(pickle.dumps(d)), DMatrix(make_categories(library, ["b", None, "a"], ["b", "a"]))
    np.testing.assert_array_equal(again.get_data().toarray(), d.get_data().toarray())
    np.testing.assert_array_equal(
        pickle.loads(pickle.dumps(categories)).get_data().toarray(), categories.get_data().toarray()
    )  # fmt: skip


# ---- warnings


def caught(action):
    with warnings.catch_warnings(record=True) as messages:
        warnings.simplefilter("always")
        action()
    return [str(message.message) for message in messages if message.category is UserWarning]


@pytest.mark.parametrize("make", [lambda X: DMatrix(X).binned(256, BACKEND, COMM), QuantileDMatrix])
def test_columns_without_values_are_named_once(make):
    table = np.array([[1, np.nan, 5, np.nan], [2, np.nan, 5, 7]])
    (message,) = caught(lambda: make(table))  # neither a constant column nor one with a single value is meant
    assert message.startswith("Some columns hold nothing but missing values") and message.endswith(': "1".')
    (message,) = caught(lambda: make(np.full((3, 7), np.nan)))
    assert message.startswith("All columns hold nothing") and message.endswith('"0", "1", "2", "3", "4" and 2 more.')


def test_a_column_that_another_worker_has_values_of_is_not_named():
    shards = [np.array([[np.nan, np.nan]]), np.array([[5.0, np.nan]])]

    def work(rank):
        DMatrix(shards[rank]).binned(256, BACKEND, current_communicator())

    messages = caught(lambda: run_threads(2, work))
    assert len(messages) >= 1 and all(message.endswith(': "1".') for message in messages)


@pytest.mark.parametrize("weight, is_unusual", [
    ([1, 1, 1e30], True), ([1e-30] * 3, False), ([0, 0, 0], False), ([1e-6, 1e-6, 1e6], False),
])  # fmt: skip
def test_huge_weights_warn(weight, is_unusual):
    messages = caught(lambda: DMatrix(X, weight=weight))
    assert len(messages) == is_unusual and all("weight is" in message for message in messages)


def test_weights_that_float32_takes_for_zero_are_counted_in_a_warning():
    (message,) = caught(lambda: DMatrix(X, weight=[1e-60, 0, 1]))
    assert message.startswith("1 weights are so small that float32 rounds them to 0")


def test_a_table_without_names_warns_once_when_the_model_has_them():
    named, unnamed = DMatrix(X, feature_names=["a", "b"]), DMatrix(X)
    (message,) = caught(lambda: [unnamed.source(["a", "b"], {}, 2) for _ in range(2)])
    assert "data has no column names" in message
    assert caught(lambda: (named.source(["a", "b"], {}, 2), DMatrix(X).source(None, {}, 2), named.source(None, {}, 2))) == []


def test_warnings_obey_the_verbosity():
    pandas = pytest.importorskip("pandas")
    with config_context(verbosity=0):
        assert caught(lambda: DMatrix([[2**24 + 1]], weight=[1e30]).binned(256, BACKEND, COMM)) == []
        frame = pandas.DataFrame({"c": pandas.Categorical(["a"])})
        assert caught(lambda: DMatrix(frame).source(["c"], {"c": ["b"]}, 1)) == []


@pytest.mark.parametrize("value", [np.inf, -np.inf, 1e39, 3.4028235e38])
def test_infinite_values_are_refused_when_a_model_reads_them(value):
    table = np.array([[1.0, 2.0], [3.0, value]])
    for matrix in (DMatrix(table), DMatrix(table, feature_names=["a", "1"]), DMatrix(table).slice([0, 1])):
        source = matrix.source(matrix.feature_names, {}, 2)
        with pytest.raises(ValueError, match='^Column "1" holds a value that is infinite .* in row 1: '):
            list(source.batches(1))
    assert len(list(DMatrix(table, missing=value).source(None, {}, 2).batches())) == 1
    with pytest.raises(ValueError, match="infinite"):
        QuantileDMatrix(table, ref=QuantileDMatrix(X))


# ---- codes


def test_codes_under_the_tables_own_cuts():
    d = DMatrix(X)
    binned = d.binned(256, BACKEND, COMM)
    assert binned.pages[0].columns.tolist() == [[0, 1, 2], [0, 2, 1]]
    assert d.binned(256, BACKEND, COMM) is binned, "binned twice"
    assert d.any_binned() is binned
    assert d.binned(2, BACKEND, COMM).cuts.n_bins.tolist() == [2, 2]


def test_new_weights_make_new_cuts():
    rows = np.arange(100, dtype=np.float32)[:, None]
    d = DMatrix(rows)
    before = d.binned(4, BACKEND, COMM).cuts
    weight = np.where(np.arange(100) < 10, 100, 1)
    d.set_weight(weight)
    assert not d.binned(4, BACKEND, COMM).cuts.same_as(before)
    assert d.binned(4, BACKEND, COMM).cuts.same_as(DMatrix(rows, weight=weight).binned(4, BACKEND, COMM).cuts)


def test_codes_for_other_cuts_are_made_from_the_table_when_there_is_one():
    train = DMatrix(X)
    cuts = train.binned(256, BACKEND, COMM).cuts
    assert train.codes(cuts, train.source(None, {}, 2), BACKEND) is train.any_binned()
    other = DMatrix([[2.5, np.nan], [0.0, 20.0]])
    codes = other.codes(cuts, other.source(None, {}, 2), BACKEND)
    assert codes.pages[0].columns.tolist() == [[2, 0], [2, 1]] and len(codes.pages[0].records) == 0
    assert QuantileDMatrix([[2.5, 1.0]]).codes(cuts, None, BACKEND) is None


def test_a_quantile_matrix_bins_at_once_and_forgets_the_table():
    d = QuantileDMatrix(X, [1, 2, 3], max_bin=16)
    assert codes_of(d) == [[0, 1, 2], [0, 2, 1]] and d.max_bin == 16
    assert d.binned(16, BACKEND, COMM) is d.any_binned() and d.source(None, {}, 2) is None
    offsets, thresholds = d.get_quantile_cut()
    assert offsets.tolist() == [0, 3, 5] and thresholds[[0, 1, 3]].tolist() == [1.5, 2.5, 20]


def test_a_quantile_matrix_is_the_same_in_pages():
    rows = np.random.default_rng(12).normal(size=(1000, 3))
    whole, paged = QuantileDMatrix(rows), QuantileDMatrix(rows, page_rows=300)
    pages = paged.any_binned().pages
    assert [page.n_rows for page in pages] == [300, 300, 300, 100]
    np.testing.assert_array_equal(np.concatenate([p.columns for p in pages], axis=1), whole.any_binned().pages[0].columns)
    assert paged.any_binned().cuts.same_as(whole.any_binned().cuts)


def test_a_quantile_matrix_sketches_with_its_weights():
    rows, weight = np.arange(100.0)[:, None], np.where(np.arange(100) < 10, 100, 1)
    weighted = QuantileDMatrix(rows, weight=weight, max_bin=4).any_binned().cuts
    assert weighted.same_as(DMatrix(rows, weight=weight).binned(4, BACKEND, COMM).cuts)
    assert not weighted.same_as(QuantileDMatrix(rows, max_bin=4).any_binned().cuts)


@pytest.mark.parametrize("make_ref", [lambda: QuantileDMatrix(X, max_bin=16), lambda: DMatrix(X)])
def test_a_reference_lends_its_cuts(make_ref):
    ref = make_ref()
    d = QuantileDMatrix([[2.4, 99.0], [9.0, np.nan]], ref=ref)
    assert codes_of(d) == [[1, 2], [1, 2]]
    assert d.any_binned().cuts.same_as(ref.any_binned().cuts) and d.max_bin == ref.any_binned().cuts.max_bin


def test_only_a_matrix_that_is_trained_on_has_records():
    ref = QuantileDMatrix(X)
    d = QuantileDMatrix(X, ref=ref, page_rows=2)
    assert [len(page.records) for page in d.any_binned().pages] == [0, 0]
    trained = d.binned(256, BACKEND, COMM)
    assert trained is d.binned(256, BACKEND, COMM) is d.any_binned(), "built twice"
    np.testing.assert_array_equal(np.concatenate([page.records for page in trained.pages]), ref.any_binned().pages[0].records)


def test_quantile_cuts_of_a_matrix_that_was_binned():
    d = DMatrix(X)
    with pytest.raises(ValueError, match="no quantile cuts yet. Train on it first"):
        d.get_quantile_cut()
    d.binned(256, BACKEND, COMM)
    for mine, other in zip(d.get_quantile_cut(), QuantileDMatrix(X).get_quantile_cut()):
        np.testing.assert_array_equal(mine, other)


def test_a_reference_orders_the_columns_by_name():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=["a", "b"])
    ref = QuantileDMatrix(frame)
    d = QuantileDMatrix(frame[["b", "a"]], ref=ref)
    assert codes_of(d) == codes_of(ref) and d.feature_names == ["a", "b"]


def test_a_reference_with_other_columns_or_bins_is_refused():
    ref = QuantileDMatrix(X, max_bin=16)
    with pytest.raises(ValueError, match="ref has 2 columns, data has 3"):
        QuantileDMatrix(np.ones((4, 3)), ref=ref)
    with pytest.raises(ValueError, match="max_bin=32, but ref was binned with 16"):
        QuantileDMatrix(X, ref=ref, max_bin=32)


def test_training_with_another_max_bin_is_refused():
    with pytest.raises(ValueError, match="max_bin=64 in the training parameters, but the QuantileDMatrix was built with 16"):
        QuantileDMatrix(X, max_bin=16).binned(64, BACKEND, COMM)


def test_pages_hold_at_least_one_row():
    with pytest.raises(ValueError, match="page_rows must be at least 1, got 0"):
        QuantileDMatrix(X, page_rows=0)


@pytest.mark.parametrize("max_bin", [0, 1, 65536, -3])
def test_max_bin_out_of_range_is_refused(max_bin):
    with pytest.raises(ValueError, match=f"max_bin must be between 2 and 65535, got {max_bin}"):
        QuantileDMatrix(X, max_bin=max_bin)


@pytest.mark.parametrize("max_bin", [2, 65535])
def test_the_limits_of_max_bin_are_allowed(max_bin):
    assert QuantileDMatrix(X, max_bin=max_bin).max_bin == max_bin
