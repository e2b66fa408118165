"""data/info.py: labels, weights, margins and queries are kept as float32 arrays of their own, in any order of setting."""

import numpy as np
import pytest
from small_matrices import X

from gpuboost.data.dmatrix import DMatrix


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


def test_a_refused_value_leaves_the_old_one():
    d = DMatrix(X, label=[1, 2, 3])
    with pytest.raises(ValueError):
        d.set_label([1, 2, np.nan])
    assert d.get_label().tolist() == [1, 2, 3]


@pytest.mark.parametrize("info", [{"group": [1, 0, 2]}, {"group": np.array([1.0, 0.0, 2.0])}])
def test_groups_are_kept_as_first_rows(info):
    d = DMatrix(X, **info)
    assert d.get_group().tolist() == [1, 0, 2] and d.get_uint_info("group_ptr").tolist() == [0, 1, 1, 3]


@pytest.mark.parametrize("qid", [[4, 7, 7], np.array([-1, 0, 0]), np.array([0.0, 2.0, 2.0])])
def test_queries_are_counted(qid):
    assert DMatrix(X, qid=qid).get_group().tolist() == [1, 2]


def test_an_empty_array_takes_back_what_was_given():
    X = np.ones((3, 2))
    given = {
        "label": [1, 2, 3], "weight": [1, 2, 1], "base_margin": [0, 1, 2], "feature_weights": [1, 0], "group": [1, 2],
        "label_lower_bound": [1, 2, 3], "label_upper_bound": [2, 3, 4],
    }  # fmt: skip
    d = DMatrix(X, **given)
    for name, empty in zip(given, ([], (), np.zeros(0), [], [], [], [])):
        d.set_info(**{name: empty})
    assert all(len(d.get_float_info(name)) == 0 for name in given if name != "group") and len(d.get_group()) == 0
    with pytest.raises(ValueError, match="has no label"):
        _ = d.labels
    with pytest.raises(ValueError, match="weight has 0 rows"):  # two dimensions say that rows were meant
        d.set_info(weight=np.zeros((0, 1)))


def test_base_margin_of_several_outputs_may_be_flat_and_feature_weights_a_column():
    margin = np.arange(6.0).reshape(3, 2)
    d = DMatrix(np.ones((3, 2)), base_margin=margin.ravel(), feature_weights=np.array([[1.0], [2.0]]))
    np.testing.assert_array_equal(d.get_base_margin(), margin)
    assert d.get_float_info("feature_weights").tolist() == [1, 2]
    with pytest.raises(ValueError, match="base_margin has 5 rows, data has 3"):
        d.set_base_margin(np.ones(5))
