"""data/column_groups.py: all columns, in order, in few groups of about one size."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gpuboost.data.column_groups import neighbours


def groups(sizes, most):
    return [(g.start, g.stop) for g in neighbours(np.array(sizes, np.int64), most)]


def test_groups_by_hand():
    assert groups([3, 3, 3, 3], 12) == [(0, 4)]
    assert groups([3, 3, 3, 3], 11) == [(0, 2), (2, 4)], "of one size"
    assert groups([0, 9, 0, 1], 5) == [(0, 2), (2, 4)], "a column is never split"
    assert groups([0, 0], 5) == [(0, 2)]


@given(st.lists(st.integers(0, 50), min_size=1, max_size=30), st.integers(1, 100))
def test_groups_are_few_and_of_bounded_size(sizes, most):
    found = groups(sizes, most)
    assert [0, *(stop for _, stop in found)] == [*(start for start, _ in found), len(sizes)]
    assert len(found) <= max(1, -(-sum(sizes) // most))
    assert all(start < stop and sum(sizes[start:stop]) <= most + max(sizes) for start, stop in found)
