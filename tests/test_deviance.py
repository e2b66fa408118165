"""Models of every objective beside XGBoost's on held-out rows of a table of its kind (benchmarks/deviance.py, in small)."""

import sys
from pathlib import Path

import pytest

import gpuboost as gb

pytestmark = [pytest.mark.slow, pytest.mark.long]

xgboost = pytest.importorskip("xgboost")
sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

import deviance  # noqa: E402 - found through the line above

HAS_EXPECTILES = tuple(map(int, xgboost.__version__.split(".")[:2])) >= (3, 3)


@pytest.mark.parametrize("name", [name for name in deviance.KINDS if HAS_EXPECTILES or "expectile" not in name])
def test_held_out_deviance_is_not_worse_than_xgboosts(name):
    ratio, error, scores = deviance.ratios(name, 4, (gb, xgboost), n_test=10_000)
    assert ratio <= 1 + max(0.01, 2 * error), (ratio, error)
    for ours, theirs in scores:
        if "concordance" in ours:
            assert ours["concordance"] == pytest.approx(theirs["concordance"], abs=0.01)
    if "coverage" in scores[0][0]:
        for k, alpha in enumerate(deviance.ALPHAS):
            assert sum(ours["coverage"][k] for ours, _ in scores) / len(scores) == pytest.approx(alpha, abs=0.02)
