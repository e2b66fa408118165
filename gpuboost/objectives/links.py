"""Links between outputs, which base_score and predictions are, and margins, to which trees add.

    link      output of a margin m      margin of an output o      outputs
    IDENTITY  m                         o                          all
    LOGIT     1/(1 + e^−m)              ln(o/(1 − o))              0 to 1, clamped to [1e−6, 1 − 1e−6]
    LOG       e^m                       ln(o)                      0 and above; the margin of 0 is −∞, as in XGBoost
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpuboost.kernels.reduce import elementwise_map
from gpuboost.kernels.scalar import exp_float, log_on_host, sigmoid_float

__all__ = ["IDENTITY", "LOG", "LOGIT", "MIN_PROBABILITY", "Link"]

# A label set of one class has its minimiser at ±infinity; XGBoost's clamp, of any base_score, keeps the margin near ±14.
MIN_PROBABILITY = 1e-6

sigmoid_row = elementwise_map(sigmoid_float)
exp_row = elementwise_map(exp_float)


@dataclass(frozen=True)
class Link:
    """One link, both ways.

    to_margin : float32 (n,) outputs -> float32 (n,) margins, on the host.
    row_map : scalar function (margin, i, out) of kernels/reduce.py: margins -> outputs, on either device. None: both are equal.
    lowest, highest : between which outputs lie; allowed : the same in words that follow "must".
    """

    to_margin: Callable[[np.ndarray], np.ndarray]
    row_map: Any = None
    lowest: float = -np.inf
    highest: float = np.inf
    allowed: str = ""

    def refused(self, outputs: np.ndarray) -> np.ndarray:
        """bool (n,): which float32 outputs have no margin. A NaN has none, but under the identity."""
        return ~((outputs >= self.lowest) & (outputs <= self.highest)) if self.allowed else np.zeros(outputs.shape, bool)


def _as_is(output: np.ndarray) -> np.ndarray:
    return output.astype(np.float32)


def _logit(output: np.ndarray) -> np.ndarray:
    probability = output.astype(np.float32).clip(np.float32(MIN_PROBABILITY), np.float32(1 - MIN_PROBABILITY))
    odds = np.float32(1) / probability - np.float32(1)  # in float32, as XGBoost reads the file
    return np.array([-log_on_host(float(o)) for o in odds], np.float32)


def _log(output: np.ndarray) -> np.ndarray:
    return np.array([log_on_host(float(o)) if o > 0 else -np.inf for o in output.astype(np.float32)], np.float32)


IDENTITY = Link(_as_is)
LOGIT = Link(_logit, sigmoid_row, 0.0, 1.0, "lie between 0 and 1")
LOG = Link(_log, exp_row, 0.0, np.inf, "be at least 0")
