"""XGBoost's objectives that do not train here, and what is to be known of them to read and go on from their model files.

Their models predict by the link. An objective that gets a class (a file beside this one) is asked for all this itself, whether
it is still listed or not.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from gpuboost.objectives.links import IDENTITY, Link

__all__ = ["UNBUILT", "UnbuiltObjective"]


@dataclass(frozen=True)
class UnbuiltObjective:
    """The questions of the class Objective that have an answer without a formula."""

    link: Link = IDENTITY
    is_classifier: bool = False
    predicts: bool = True
    takes: ClassVar[tuple[Any, ...]] = ()
    predicts_classes: ClassVar[bool] = False
    probability_twin: ClassVar[str | None] = None
    predict_map: ClassVar[Any] = None

    @property
    def row_map(self) -> Any:
        return self.link.row_map

    def takes_parameter(self, name: str) -> bool:
        return False

    def recorded_params(self, sections: Mapping[str, Any]) -> dict[str, str]:
        return {}


UNBUILT: dict[str, UnbuiltObjective] = {}
