"""data/dmatrix.py: labels, weights and margins are checked once; codes come from the table's own cuts or a reference's."""

import numpy as np
import pytest

from gpuboost.backend.cpu import CpuBackend
from gpuboost.communicator import SingleProcess
from gpuboost.data.dmatrix import DMatrix, QuantileDMatrix
from gpuboost.data.training_rows import start_margin

X = np.array([[1.0, 10.0], [2.0, np.nan], [3.0, 30.0]])
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
    (5.0, r"must have shape \(n_rows,\) or \(n_rows, k\), got \(\)"),
    (np.zeros((3, 1, 1)), r"must have shape .* got \(3, 1, 1\)"),
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


def test_a_matrix_without_label_says_so_when_it_is_needed():
    with pytest.raises(ValueError, match="no label. Pass label=, or call set_label"):
        _ = DMatrix(X).labels


@pytest.mark.parametrize("name", ["group", "qid", "label_lower_bound", "label_upper_bound", "feature_weights"])
def test_what_is_not_built_says_so(name):
    with pytest.raises(NotImplementedError, match=name):
        DMatrix(X, **{name: [1, 2, 3]})


# ---- starting margins


@pytest.mark.parametrize("base_margin, n_outputs, expected", [
    (None, 2, [[0.5] * 3] * 2),
    ([1, 2, 3], 1, [[1, 2, 3]]),
    ([1, 2, 3], 2, [[1, 2, 3], [1, 2, 3]]),
    ([[1, 4], [2, 5], [3, 6]], 2, [[1, 2, 3], [4, 5, 6]]),
])  # fmt: skip
def test_base_margin_replaces_base_score(base_margin, n_outputs, expected):
    margin = start_margin(DMatrix(X, base_margin=base_margin), 3, (0.5,), None, n_outputs)
    assert margin.dtype == np.float32 and margin.tolist() == expected
    margin += 1  # a new array
    if base_margin is not None:
        np.testing.assert_array_equal(DMatrix(X, base_margin=base_margin).get_base_margin(), base_margin)


def test_base_margin_of_another_width_is_refused():
    with pytest.raises(ValueError, match="base_margin has 2 columns, the model has 3 outputs"):
        start_margin(DMatrix(X, base_margin=np.ones((3, 2))), 3, (0.5,), None, 3)


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


@pytest.mark.parametrize("max_bin", [0, 1, 65536, -3])
def test_max_bin_out_of_range_is_refused(max_bin):
    with pytest.raises(ValueError, match=f"max_bin must be between 2 and 65535, got {max_bin}"):
        QuantileDMatrix(X, max_bin=max_bin)


@pytest.mark.parametrize("max_bin", [2, 65535])
def test_the_limits_of_max_bin_are_allowed(max_bin):
    assert QuantileDMatrix(X, max_bin=max_bin).max_bin == max_bin
