"""Random forests: one round of many trees, each on rows and columns of its own, whose mean predicts."""

from typing import Any

from gpuboost.params import ALIASES
from gpuboost.sklearn.base import GPUBoostModel
from gpuboost.sklearn.classifier import GPUBoostClassifier
from gpuboost.sklearn.parameters import PARAMETERS
from gpuboost.sklearn.regressor import GPUBoostRegressor

__all__ = ["GPUBoostRFClassifier", "GPUBoostRFRegressor"]

OF_FORESTS = {"learning_rate": 1.0, "subsample": 0.8, "colsample_bynode": 0.8, "reg_lambda": 1e-5}  # XGBoost's
NOT_OF_FORESTS = {
    "early_stopping_rounds": "Leave it out.", "refit_full": "Leave it out.", "callbacks": "Leave them out.",
    "num_parallel_tree": "Use n_estimators.",
}  # fmt: skip
DIFFERENCES = f"""n_estimators is the number of trees (of each output). Defaults of their own: {OF_FORESTS}.
    There are no rounds to stop early, or to call back after."""


class _Forest(GPUBoostModel, **OF_FORESTS):
    """Beside an estimator: n_estimators trees in one round."""

    def get_num_boosting_rounds(self) -> int:
        """1. Raises ValueError where a parameter was given that speaks of several, and for a forest without trees."""
        if super().get_num_boosting_rounds() == 0:
            raise ValueError("n_estimators of a forest must be at least 1, got 0. Use 100 for a start.")
        for name, instead in NOT_OF_FORESTS.items():
            if getattr(self, name):
                raise ValueError(f"{name} has no meaning for a forest, which is grown in one round. {instead}")
        return 1

    def get_xgb_params(self) -> dict[str, Any]:
        params = super().get_xgb_params() | {"num_parallel_tree": super().get_num_boosting_rounds()}
        by_alias = {name for alias, name in ALIASES.items() if alias in params}
        return {name: value for name, value in params.items() if not (name in by_alias and value == OF_FORESTS.get(name))}


class GPUBoostRFClassifier(_Forest, GPUBoostClassifier):
    __doc__ = f"""Random forest for classification. {DIFFERENCES}

{PARAMETERS}
    """


class GPUBoostRFRegressor(_Forest, GPUBoostRegressor):
    __doc__ = f"""Random forest for regression. {DIFFERENCES}

{PARAMETERS}
    """
