"""The losses as float64 functions of margin and label, by objective: what gradients and base scores are compared with."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Case:
    """loss : (margin, label) -> float64 array. labels : some of its domain; refused : one outside. low, high : usual margins.
    hess_factor : what h is of the second derivative."""

    loss: Any
    labels: tuple[float, ...]
    refused: float | None
    low: float = -6.0
    high: float = 6.0
    params: dict[str, Any] = field(default_factory=dict)
    hess_factor: float = 1.0

    def table(self, n_rows=400):
        """X, label, weight: labels that a column tells something of."""
        rng = np.random.default_rng(n_rows)
        X = rng.normal(size=(n_rows, 3)).astype(np.float32)
        order = np.argsort(X[:, 0] + rng.normal(size=n_rows) / 2)
        label = np.empty(n_rows, np.float32)
        label[order] = np.sort(rng.choice(np.array(self.labels, np.float32), n_rows))
        return X, label, rng.integers(1, 9, n_rows).astype(np.float32) / 4


def log_loss(m, y):
    return np.logaddexp(0, m) - y * m


def tweedie(rho):
    return lambda m, y: np.exp((2 - rho) * m) / (2 - rho) - y * np.exp((1 - rho) * m) / (1 - rho)


def pseudo_huber(slope):
    return lambda m, y: slope**2 * (np.sqrt(1 + ((m - y) / slope) ** 2) - 1)


COUNTS, AMOUNTS, SHARES = (0.0, 1.0, 2.0, 5.0, 40.0), (0.01, 0.5, 3.0, 70.0), (0.0, 0.25, 0.9, 1.0)
CASES = {
    "reg:squarederror": Case(lambda m, y: (m - y) ** 2 / 2, (-3.0, 0.5, 7.0), None),
    "reg:squaredlogerror": Case(lambda m, y: (np.log1p(m) - np.log1p(y)) ** 2 / 2, (-0.5, 0.0, 2.0, 30.0), -1.0, low=-0.9),
    "reg:pseudohubererror": Case(pseudo_huber(1.0), (-3.0, 0.5, 7.0), None),
    "reg:pseudohubererror, slope": Case(pseudo_huber(2.5), (-3.0, 0.5, 70.0), None, params={"huber_slope": 2.5}),
    "reg:logistic": Case(log_loss, SHARES, -0.1),
    "binary:logistic": Case(log_loss, (0.0, 1.0), 1.5),
    "binary:logitraw": Case(log_loss, (0.0, 1.0), 1.5),
    "count:poisson": Case(lambda m, y: np.exp(m) - y * m, COUNTS, -1.0, hess_factor=np.exp(0.7)),
    "count:poisson, step": Case(lambda m, y: np.exp(m) - y * m, COUNTS, -1.0, params={"max_delta_step": 0}),
    "reg:gamma": Case(lambda m, y: m + y * np.exp(-m), AMOUNTS, 0.0),
    "reg:tweedie": Case(tweedie(1.5), COUNTS, -1.0),
    "reg:tweedie, power": Case(tweedie(1.2), COUNTS, -1.0, params={"tweedie_variance_power": 1.2}),
}


HINGE = Case(None, (0.0, 1.0), 0.5)  # whose h is no second derivative


def params_of(case: str) -> dict[str, Any]:
    return {"objective": case.split(",")[0], **(CASES[case].params if case in CASES else {})}
