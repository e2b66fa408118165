"""The regressor."""

import numpy as np
from sklearn.base import RegressorMixin

from gpuboost.sklearn.base import GPUBoostModel
from gpuboost.sklearn.parameters import PARAMETERS
from gpuboost.sklearn.survival import as_bounds, as_signed_times

__all__ = ["GPUBoostRegressor"]


class GPUBoostRegressor(RegressorMixin, GPUBoostModel, objective="reg:squarederror"):
    __doc__ = f"""Gradient boosted trees for regression, of one target or several.

    Of survival times, y is for survival:cox the time of each sample, minus the time where there was no event; for survival:aft
    (n_samples, 2), the bounds of each time; for both a structured array of two fields, whether there was an event and when.

{PARAMETERS}
    """

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _label_info(self, label: np.ndarray) -> dict[str, np.ndarray]:
        objective = self._objective_name()
        if objective == "survival:aft":
            return dict(zip(("label_lower_bound", "label_upper_bound"), as_bounds(label)))
        return {"label": as_signed_times(label) if objective == "survival:cox" else label}

    def score(self, X, y, sample_weight=None) -> float:
        """R² of the predictions. Raises ValueError for survival objectives, whose predictions are no times to compare."""
        if (objective := str(self._objective_name())).startswith("survival:"):
            raise ValueError(
                f"score has no meaning for {objective}, whose y is censored. Pass scoring= a concordance index, or evaluate by "
                "the metrics cox-nloglik, aft-nloglik or interval-regression-accuracy."
            )
        return super().score(X, y, sample_weight)

    def predict(
        self, X, *, output_margin=False, validate_features=True, base_margin=None, iteration_range=None
    ) -> np.ndarray:
        """float32 (n_samples,), or (n_samples, n_classes); several targets or quantiles are float64 (n_samples, n_targets), as
        scikit-learn demands of targets, their margins float32."""
        prediction = self._predict(X, output_margin, validate_features, base_margin, iteration_range)
        return prediction.astype(np.float64) if self._booster.model.n_targets > 1 and not output_margin else prediction
