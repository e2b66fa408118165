"""XGBoost's objectives that do not train here, and what is to be known of them to read and go on from their model files.

Margins of their models can be predicted: for that the link is needed. An objective that gets a class (a file beside this one) is
asked for all this itself, whether it is still listed or not.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from gpuboost.objectives.links import IDENTITY, LOG, LOGIT, Link

__all__ = ["UNBUILT", "UnbuiltObjective"]


@dataclass(frozen=True)
class UnbuiltObjective:
    """The questions of the class Objective that have an answer without a formula."""

    link: Link = IDENTITY
    is_classifier: bool = False
    takes: ClassVar[tuple[Any, ...]] = ()
    predicts_classes: ClassVar[bool] = False
    probability_twin: ClassVar[str | None] = None

    def takes_parameter(self, name: str) -> bool:
        return False

    def recorded_params(self, sections: Mapping[str, Any]) -> dict[str, str]:
        return {}


UNBUILT: dict[str, UnbuiltObjective] = {
    "reg:squaredlogerror": UnbuiltObjective(),
    "reg:logistic": UnbuiltObjective(LOGIT),
    "reg:pseudohubererror": UnbuiltObjective(),
    "reg:absoluteerror": UnbuiltObjective(),
    "reg:quantileerror": UnbuiltObjective(),
    "reg:expectileerror": UnbuiltObjective(),
    "reg:gamma": UnbuiltObjective(LOG),
    "reg:tweedie": UnbuiltObjective(LOG),
    "binary:logitraw": UnbuiltObjective(is_classifier=True),  # base_score is a margin (test_xgboost_exchange.py)
    "binary:hinge": UnbuiltObjective(is_classifier=True),
    "count:poisson": UnbuiltObjective(LOG),
    "survival:cox": UnbuiltObjective(LOG),
    "survival:aft": UnbuiltObjective(LOG),
    "rank:ndcg": UnbuiltObjective(),
    "rank:map": UnbuiltObjective(),
    "rank:pairwise": UnbuiltObjective(),
}
