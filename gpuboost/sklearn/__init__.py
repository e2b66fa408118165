"""scikit-learn's estimators: GPUBoostClassifier, GPUBoostRegressor and GPUBoostRanker, thin layers over train() and Booster, and
forests."""

try:
    from sklearn.utils.validation import validate_data as _since_1_6  # noqa: F401
except ImportError as error:
    from gpuboost.errors import install

    raise ImportError(f"gpuboost.sklearn needs scikit-learn 1.6 or later. Install it: {install('sklearn')}") from error

from gpuboost.sklearn.base import GPUBoostModel
from gpuboost.sklearn.classifier import GPUBoostClassifier
from gpuboost.sklearn.forest import GPUBoostRFClassifier, GPUBoostRFRegressor
from gpuboost.sklearn.ranker import GPUBoostRanker
from gpuboost.sklearn.regressor import GPUBoostRegressor

__all__ = [
    "GPUBoostClassifier", "GPUBoostModel", "GPUBoostRFClassifier", "GPUBoostRFRegressor", "GPUBoostRanker", "GPUBoostRegressor",
]  # fmt: skip
