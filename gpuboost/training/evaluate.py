"""The metrics of matrices, from their margins."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from gpuboost.arrays import on_device_of
from gpuboost.backend.contract import Array
from gpuboost.backend.row_sums import RowSums
from gpuboost.data.dmatrix import DMatrix
from gpuboost.errors import kind_of
from gpuboost.margins import finished_prediction
from gpuboost.metrics import get_metric
from gpuboost.objectives import Objective
from gpuboost.params import Params

__all__ = ["CustomMetric", "Evaluation", "checked_evals", "evaluate", "metric_names", "named_values"]

Evaluation = tuple[str, str, float]  # data name, metric name, value
CustomMetric = Callable[[Array, DMatrix], tuple[str, float] | list[tuple[str, float]]]  # (predictions, matrix)


def metric_names(params: Params, objective: Objective) -> tuple[str, ...]:
    """The metrics asked for, or the objective's own."""
    if params.eval_metric or params.disable_default_eval_metric:
        return params.eval_metric
    return (objective.default_metric,)


def checked_evals(evals: Iterable[Any] | None) -> list[tuple[DMatrix, str]]:
    """The matrices to evaluate, with their names. TypeError for anything else."""
    given = () if evals is None else evals if isinstance(evals, Iterable) else (evals,)  # what is no list is no pair, either
    checked = [tuple(pair) if isinstance(pair, list) else pair for pair in given]
    for pair in checked:
        if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], DMatrix) and isinstance(pair[1], str)):
            found = f"({', '.join(map(kind_of, pair))})" if isinstance(pair, tuple) else kind_of(pair)
            raise TypeError(f"evals must hold (DMatrix, name) pairs, got {found}. Use [(dtest, 'test')].")
    return checked


def evaluate(
    evals: Sequence[tuple[DMatrix, str]], names: Sequence[str], objective: Objective, margins_of: Callable[[DMatrix], RowSums],
    custom_metric: CustomMetric | None = None, *, sees_margins: bool = False,
) -> list[Evaluation]:  # fmt: skip
    """Every metric of every matrix.

    margins_of : the rows of a matrix, with margins for their prediction. custom_metric sees what predict returns (of
    multi:softmax classes), or raw margins with sees_margins.
    Raises ValueError where two metrics have one name, so that nobody could tell their values apart; TypeError where custom_metric
    returns no names and values.
    """
    results: list[Evaluation] = []
    for dmatrix, data in evals:
        rows = margins_of(dmatrix)
        margin = rows.prediction
        if objective.row_map:
            rows = replace(rows, prediction=rows.backend.predictor.map_rows(margin, objective.row_map))
        metrics = [get_metric(name, objective.params) for name in names]
        if rows.masks_labels and (refusing := [metric.name for metric in metrics if not metric.takes_missing_labels]):
            raise ValueError(f"eval_metric {refusing[0]!r} needs all labels, but rows of {data!r} may lack some. Use 'rmse'.")
        with on_device_of(margin):
            values = [(metric.name, metric(rows)) for metric in metrics]
        if custom_metric is not None:
            seen = margin if sees_margins else rows.prediction
            if objective.predict_map and not sees_margins:
                n = 1 if objective.predicts_classes else len(margin)
                seen = rows.backend.predictor.map_rows(margin, objective.predict_map)[:n]
            values += named_values(custom_metric(finished_prediction(rows.backend.memory.fetch(seen), False).copy(), dmatrix))
        if repeated := [name for name, count in Counter(name for name, _ in values).items() if count > 1]:
            raise ValueError(
                f"two metrics are called {repeated[0]!r}. Leave one out of eval_metric, give a custom one another name, or "
                "switch the objective's own off by disable_default_eval_metric=True."
            )
        results += [(data, name, value) for name, value in values]
    return results


def named_values(returned: Any) -> list[tuple[str, float]]:
    """What a custom metric returned, checked."""
    pairs = returned if isinstance(returned, list) else [returned]
    if not all(isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str) for pair in pairs):
        raise TypeError(f"custom_metric must return (name, value) or a list of such pairs, got {returned!r:.60}.")
    return [(name, _as_float(name, value)) for name, value in pairs]


def _as_float(name: str, value: Any) -> float:
    """A number, or the one of an array."""
    try:
        number = value.item() if hasattr(value, "item") else value
        if isinstance(number, str | bytes):
            raise TypeError
        return float(number)
    except (TypeError, ValueError, RuntimeError):  # the last is torch's
        raise TypeError(f"custom_metric must return a number as {name!r}, got {value!r:.60}.") from None
