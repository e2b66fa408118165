"""Tables one below the other are read as their concatenation."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuboost.data.tables.open import open_table
from gpuboost.data.tables.stack import Stack


@given(st.lists(st.integers(0, 5), min_size=1, max_size=6), st.data())
def test_stack_reads_as_the_concatenation(sizes, data):
    whole = np.arange(2.0 * sum(sizes)).reshape(-1, 2).astype(np.float32)
    parts = np.split(whole, np.cumsum(sizes)[:-1])
    source = open_table(Stack([part.astype(data.draw(st.sampled_from([np.float32, np.float64]))) for part in parts]))
    assert (source.n_rows, source.n_features) == whole.shape
    for batch_rows in (1, 3, 100):
        np.testing.assert_array_equal(np.concatenate([whole[:0], *source.batches(batch_rows)]), whole)
    rows = data.draw(st.lists(st.integers(0, max(len(whole) - 1, 0)), max_size=8)) if len(whole) else []
    np.testing.assert_array_equal(source.rows(rows), whole[rows])


def test_one_part_is_not_copied():
    parts = [np.ones((4, 3), np.float32), np.zeros((5, 3), np.float32)]
    source = open_table(Stack(parts))
    assert np.shares_memory(source.read(slice(4, 9)), parts[1])


def test_categories_are_those_of_all_parts():
    parts = [
        pd.DataFrame({"c": pd.Categorical(["b", "a", None], categories=["b", "a"])}),
        pd.DataFrame({"c": pd.Categorical(["z", "a"], categories=["z", "a"])}),
    ]
    source = open_table(Stack(parts))
    assert source.categories == {"c": ["a", "b", "z"]}
    np.testing.assert_array_equal(source.rows([0, 1, 2, 3, 4])[:, 0], [1, 0, np.nan, 2, 0])
    same = open_table(Stack([parts[0], parts[0]]))
    assert same.categories == {"c": ["b", "a"]}


@pytest.mark.parametrize(
    "second", [np.zeros((2, 4)), pd.DataFrame({"a": [1.0], "c": [1.0]}), pd.DataFrame({"a": [1], "b": [1.0]})]
)  # fmt: skip
def test_parts_of_other_columns_are_refused(second):
    first = np.zeros((3, 3)) if isinstance(second, np.ndarray) else pd.DataFrame({"a": [1.0], "b": [1.0]})
    with pytest.raises(ValueError, match=r"partition 1 has (n_features|feature_names|feature_types)"):
        open_table(Stack([first, second]))
