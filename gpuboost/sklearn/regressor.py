"""The regressor."""

import numpy as np
from sklearn.base import RegressorMixin

from gpuboost.sklearn.base import GPUBoostModel
from gpuboost.sklearn.parameters import PARAMETERS

__all__ = ["GPUBoostRegressor"]


class GPUBoostRegressor(RegressorMixin, GPUBoostModel):
    __doc__ = f"""Gradient boosted trees for regression, of one target or several.

{PARAMETERS}
    """

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def predict(
        self, X, *, output_margin=False, validate_features=True, base_margin=None, iteration_range=None
    ) -> np.ndarray:
        """float32 (n_samples,); several targets are float64 (n_samples, n_targets), as scikit-learn demands of them."""
        prediction = self._predict(X, output_margin, validate_features, base_margin, iteration_range)
        return prediction if prediction.ndim == 1 else prediction.astype(np.float64)
