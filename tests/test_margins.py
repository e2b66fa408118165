"""gpuboost/margins.py: where the margins of a table start."""

import numpy as np
import pytest

from gpuboost.data.dmatrix import DMatrix
from gpuboost.margins import start_margin

X = np.array([[1.0, 10.0], [2.0, np.nan], [3.0, 30.0]])


@pytest.mark.parametrize("base_margin, n_outputs, expected", [
    (None, 2, [[0.5] * 3] * 2),
    ([1, 2, 3], 1, [[1, 2, 3]]),
    ([[1, 4], [2, 5], [3, 6]], 2, [[1, 2, 3], [4, 5, 6]]),
])  # fmt: skip
def test_base_margin_replaces_base_score(base_margin, n_outputs, expected):
    margin = start_margin(DMatrix(X, base_margin=base_margin), 3, (0.5,), None, n_outputs)
    assert margin.dtype == np.float32 and margin.tolist() == expected
    margin += 1  # a new array
    if base_margin is not None:
        np.testing.assert_array_equal(DMatrix(X, base_margin=base_margin).get_base_margin(), base_margin)


@pytest.mark.parametrize("width", [1, 2])
def test_base_margin_of_another_width_is_refused(width):
    with pytest.raises(ValueError, match=f"base_margin has {width} columns, the model has 3 outputs"):
        start_margin(DMatrix(X, base_margin=np.ones((3, width))), 3, (0.5,), None, 3)
