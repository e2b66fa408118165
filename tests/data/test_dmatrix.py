"""data/dmatrix.py: XGBoost's names for all that a matrix holds."""

import pickle

import numpy as np
import pytest
from opened_tables import FRAMES, make_categories, make_frame
from small_matrices import BACKEND, COMM, X, caught, codes_of

from gpuboost.config import config_context
from gpuboost.data.dmatrix import DMatrix
from gpuboost.data.quantile_dmatrix import QuantileDMatrix


def test_set_info_sets_all_or_nothing():
    d = DMatrix(X, label=[1, 2, 3], feature_names=["a", "b"])
    with pytest.raises(ValueError, match="weight has 1 rows"):
        d.set_info(label=[-1, -2, -3], feature_names=["c", "d"], weight=[1])
    assert d.get_label().tolist() == [1, 2, 3] and d.feature_names == ["a", "b"]
    assert d.source(["a", "b"], {}, 2).feature_names == ["a", "b"]


def test_what_a_matrix_says_of_itself_is_a_copy():
    info = {"label": [1, 2, 3], "weight": [4, 5, 6], "base_margin": [[7, 7], [8, 8], [9, 9]], "group": [3]}
    d = DMatrix(X, **info, feature_names=["a", "b"], feature_types=["q", "q"])
    d.set_float_info("label_lower_bound", [0, 1, 2])
    for get in (
        d.get_label, d.get_weight, d.get_base_margin, d.get_group, lambda: d.get_uint_info("group_ptr"),
        *(lambda field=field: d.get_float_info(field) for field in ("label", "weight", "base_margin", "label_lower_bound")),
    ):  # fmt: skip
        before = get().tolist()
        get()[...] = 0
        assert get().tolist() == before and np.any(before)
    d.feature_names.append("c")
    d.feature_types.append("q")
    assert d.feature_names == ["a", "b"] and len(d.feature_types) == 2


def test_a_matrix_without_label_says_so_when_it_is_needed():
    with pytest.raises(ValueError, match="no label. Pass label=, or call set_label"):
        _ = DMatrix(X).labels


def test_info_by_xgboosts_names():
    d = DMatrix(X)
    for field, values in {"label": [1, 2, 3], "weight": [4, 5, 6], "base_margin": [7, 8, 9], "feature_weights": [1, 1],
                          "label_lower_bound": [0, 1, 2], "label_upper_bound": [1, np.inf, 2]}.items():
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


def test_changes_of_what_margins_depend_on_are_counted_apart():
    d = DMatrix(X)
    for change, counts in (
        ({"label": [1, 2, 3]}, False), ({"weight": [1, 2, 3]}, False), ({"group": [3]}, False),
        ({"base_margin": [1, 2, 3]}, True), ({"feature_names": ["a", "b"]}, True),
        ({"label": [1, 2, 3], "base_margin": [1, 2, 3]}, True),
    ):  # fmt: skip
        before = d.margin_version
        d.set_info(**change)
        assert (d.margin_version > before) == counts


def test_quantile_cuts_of_a_matrix_that_was_binned():
    d = DMatrix(X)
    with pytest.raises(ValueError, match="no quantile cuts yet. Train on it first"):
        d.get_quantile_cut()
    d.binned(256, BACKEND, COMM)
    for mine, other in zip(d.get_quantile_cut(), QuantileDMatrix(X).get_quantile_cut()):
        np.testing.assert_array_equal(mine, other)


def test_slices_lose_groups_only_when_allowed_and_where_they_are_cut():
    d = DMatrix(X, group=[1, 2], weight=[5, 7])
    with pytest.raises(ValueError, match="keeps only whole queries. Use allow_groups=True"):
        d.slice([0])
    for rows in ([1], [0, 1], [2, 1], [1, 2, 2], [1, 2, 1], []):
        assert len(d.slice(rows, allow_groups=True).get_group()) == 0, rows
    kept = [([0], [1], [5]), ([1, 2, 0], [2, 1], [7, 7, 5]), ([0, 0], [1, 1], [5, 5]), ([1, 2], [2], [7, 7])]
    for rows, groups, weights in kept:
        part = d.slice(rows, allow_groups=True)
        assert part.get_group().tolist() == groups and part.get_weight().tolist() == weights
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


def test_warnings_obey_the_verbosity():
    pandas = pytest.importorskip("pandas")
    with config_context(verbosity=0):
        assert caught(lambda: DMatrix([[2**24 + 1]], weight=[1e30]).binned(256, BACKEND, COMM)) == []
        frame = pandas.DataFrame({"c": pandas.Categorical(["a"])})
        assert caught(lambda: DMatrix(frame).source(["c"], {"c": ["b"]}, 1)) == []


def test_none_leaves_what_is_known_as_it_is():
    X, y = np.arange(12.0).reshape(6, 2), np.arange(6.0)
    matrix = DMatrix(X, y, weight=y + 1, base_margin=y, group=[2, 4])
    for change in (matrix.set_label, matrix.set_weight, matrix.set_base_margin, matrix.set_group):
        change(None)
    known = matrix.get_label(), matrix.get_weight(), matrix.get_base_margin(), matrix.get_group()
    assert [values.tolist() for values in known] == [y.tolist(), (y + 1).tolist(), y.tolist(), [2, 4]]
