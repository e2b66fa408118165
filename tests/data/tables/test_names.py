"""data/tables/names.py: names and types are checked, and matched to the model's by name."""

import numpy as np
import pytest
from opened_tables import check_values

from gpuboost.data.tables.names import align_columns
from gpuboost.data.tables.open import open_table


def test_names_and_types_can_be_given_to_an_array():
    source = open_table([[1.0, 2.0]], feature_names=["a", 7], feature_types=["q", "c"])
    assert source.feature_names == ["a", "7"] and source.feature_types == ["q", "c"]
    types = open_table([[1.0, 2.0]], feature_types=np.array(["q", "c"])).feature_types
    assert list(map(type, types)) == [str, str]  # as NumPy's text is no JSON


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"feature_names": ["a"]}, r"one name a column \(2\), got 1"),
        ({"feature_names": {"a"}}, r"one name a column \(2\), got {'a'}"),  # in no order
        ({"feature_names": ["a", "a"]}, 'these repeat: "a"'),
        ({"feature_names": [1, "1"]}, 'these repeat: "1"'),
        ({"feature_types": ["q"]}, r"one letter a column \(2\), got 1"),
        ({"feature_types": ["q", "x"]}, "among float, int, i, q, c, got 'x'"),
        ({"expected_count": 3}, "2 columns.*trained on 3"),
        ({"expected_names": ["a", "b", "c"]}, "2 columns.*trained on 3"),
    ],
)
def test_wrong_names_types_and_counts_are_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        open_table([[1.0, 2.0]], **arguments)


def test_columns_are_matched_by_name():
    assert align_columns(["b", "a"], ["a", "b"]) == [1, 0]
    named = {"feature_names": "ab", "feature_types": ["int", "q"], "expected_names": ["b", "a"]}
    source = check_values([[1, 2], [3, 4]], [[2, 1], [4, 3]], **named)
    assert source.feature_names == ["b", "a"] and source.feature_types == ["q", "int"]
    with pytest.raises(ValueError, match='data lacks "c" and has the unknown "a"'):
        align_columns(["a", "b"], ["b", "c"])


def test_frame_names_become_text_in_order_and_must_be_unique():
    pandas = pytest.importorskip("pandas")
    pa = pytest.importorskip("pyarrow")
    assert open_table(pandas.DataFrame([[1, 2.0]], columns=[("a", 1), 5])).feature_names == ["('a', 1)", "5"]
    assert open_table(pandas.DataFrame([[1, 2.0]], columns=[("a", 1), ("a", 2)])).feature_names == ["a 1", "a 2"]
    for frame in (pandas.DataFrame([[1, 2]], columns=["a", "a"]), pa.table([[1], [2]], names=["a", "a"])):
        with pytest.raises(ValueError, match='these repeat: "a"'):
            open_table(frame)
