"""data/feature_info.py: columns can be renamed and typed; categories follow."""

import numpy as np
import pytest
from small_matrices import X

from gpuboost.data.dmatrix import DMatrix


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
