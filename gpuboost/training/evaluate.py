"""The metrics of matrices, from their margins."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from gpuboost.backend.contract import Array
from gpuboost.backend.row_sums import RowSums
from gpuboost.data.dmatrix import DMatrix
from gpuboost.margins import finished_prediction
from gpuboost.metrics import get_metric
from gpuboost.objectives import Objective
from gpuboost.params import Params

__all__ = ["CustomMetric", "Evaluation", "evaluate", "metric_names"]

Evaluation = tuple[str, str, float]  # data name, metric name, value
CustomMetric = Callable[[Array, DMatrix], tuple[str, float] | list[tuple[str, float]]]  # (predictions, matrix)


def metric_names(params: Params, objective: Objective) -> tuple[str, ...]:
    """The metrics asked for, or the objective's own."""
    if params.eval_metric or params.disable_default_eval_metric:
        return params.eval_metric
    return (objective.default_metric,)


def evaluate(
    evals: Sequence[tuple[DMatrix, str]], names: Sequence[str], objective: Objective, margins_of: Callable[[DMatrix], RowSums],
    custom_metric: CustomMetric | None = None, *, sees_margins: bool = False,
) -> list[Evaluation]:  # fmt: skip
    """Every metric of every matrix.

    margins_of : the rows of a matrix, with margins for their prediction. custom_metric sees predictions as metrics do, or raw
    margins with sees_margins.
    """
    results: list[Evaluation] = []
    for dmatrix, data in evals:
        rows = margins_of(dmatrix)
        margin = rows.prediction
        if objective.row_map:
            rows = replace(rows, prediction=rows.backend.predictor.map_rows(margin, objective.row_map))
        for metric in map(get_metric, names):
            results.append((data, metric.name, metric(rows)))
        if custom_metric is not None:
            seen = rows.backend.memory.fetch(margin if sees_margins else rows.prediction)
            returned = custom_metric(finished_prediction(seen, False).copy(), dmatrix)
            for name, value in returned if isinstance(returned, list) else [returned]:
                results.append((data, name, float(value)))
    return results
