"""A table for tests of estimators, text for labels, the bytes of a fitted estimator's model, and a mark."""

import numpy as np
import pytest

# NumPy's, where scikit-learn looks whether labels are whole numbers before it finds NaN among them
from_their_check = pytest.mark.filterwarnings("ignore:invalid value encountered in cast:RuntimeWarning")


def make_table():
    """X float64 (300, 4), a signal (300,) in it, weights (300,)."""
    rng = np.random.default_rng(0)
    X = rng.random((300, 4))
    X[rng.random(X.shape) < 0.05] = np.nan
    return X, np.nan_to_num(X[:, 0]) + np.nan_to_num(X[:, 1]) + rng.normal(0, 0.2, 300), rng.integers(1, 9, 300) / 4


def text_labels(signal):
    """Text (300,), two classes."""
    return np.where(signal > 1, "high", "low")


def digest(model):
    return bytes(model.get_booster().save_raw("json"))
