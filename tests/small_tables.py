"""Small tables with ties and missing values, one for each objective, and a model as bytes."""

import numpy as np

PARAMS = {
    "reg:squarederror": {"objective": "reg:squarederror"},
    "binary:logistic": {"objective": "binary:logistic"},
    "multi:softprob": {"objective": "multi:softprob", "num_class": 3},
}


def make_table(objective, n_rows=400, seed=0):
    """X float64 (n, 4) with ties and missing values, y for the objective, weights."""
    rng = np.random.default_rng(seed)
    X = np.round(rng.random((n_rows, 4)), 1)
    X[rng.random(X.shape) < 0.1] = np.nan
    signal = np.nan_to_num(X[:, 0]) + np.nan_to_num(X[:, 1]) ** 2 + rng.normal(0.0, 0.2, n_rows)
    thresholds = {"reg:squarederror": None, "binary:logistic": [0.8], "multi:softprob": [0.5, 1.0]}[objective]
    y = signal if thresholds is None else np.digitize(signal, thresholds)
    return X, y.astype(np.float32), rng.integers(1, 9, n_rows) / 4


def model_bytes(booster):
    return bytes(booster.save_raw("json"))
