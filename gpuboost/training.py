"""train(): rounds, evaluations and callbacks around Booster.update."""

from collections.abc import Mapping, Sequence
from typing import Any

from gpuboost.booster import Booster
from gpuboost.callbacks import EarlyStopping, EvalsLog, EvaluationMonitor, TrainingCallback
from gpuboost.communicator import current_communicator
from gpuboost.config import log, verbosity_context
from gpuboost.data.dmatrix import DMatrix
from gpuboost.errors import not_built

__all__ = ["cv", "train"]


def train(
    params: Mapping[str, Any], dtrain: DMatrix, num_boost_round: int = 10, *, evals: Sequence[tuple[DMatrix, str]] | None = None,
    obj: Any = None, maximize: bool | None = None, early_stopping_rounds: int | None = None,
    evals_result: EvalsLog | None = None, verbose_eval: bool | int | None = True, xgb_model: Any = None,
    callbacks: Sequence[TrainingCallback] | None = None, custom_metric: Any = None,
) -> Booster:  # fmt: skip
    """Train a model. Arguments and meaning as xgboost.train.

    params : by XGBoost's names (params.describe_params lists them).
    evals : (matrix, name) pairs to evaluate after every round.
    obj : objective (predictions, dtrain) -> (grad, hess) on raw margins. custom_metric : (predictions, dmatrix) -> (name, value);
        it sees raw margins with obj, else transformed predictions. maximize : whether early stopping maximises the metric.
    early_stopping_rounds : stop when the last metric of the last evaluation set has not improved for so many rounds.
    evals_result : dict that receives data name → metric name → values.
    verbose_eval : True prints every round, an integer every so many rounds, False or None nothing.
    xgb_model : Booster, path or bytes of a model to continue.
    Raises ValueError for wrong data or parameters, NotImplementedError for what is not built yet.
    """
    evals = _checked_evals(evals)
    if num_boost_round < 0:
        raise ValueError(f"num_boost_round must be at least 0, got {num_boost_round}.")
    booster = Booster(params)
    if isinstance(xgb_model, Booster):
        booster.take_model(xgb_model.copy().model)
    elif xgb_model is not None:
        booster.load_model(xgb_model)
    with verbosity_context(booster.params.verbosity):
        booster._boosting_on(dtrain, is_custom=obj is not None)
        every = 1 if verbose_eval is True else int(verbose_eval or 0)
        used = list(callbacks or ())
        if early_stopping_rounds is not None:
            used.append(EarlyStopping(rounds=early_stopping_rounds, maximize=maximize))
        if every:
            used.append(EvaluationMonitor(period=every))
        for callback in used:
            booster = callback.before_training(booster)
        evals_log: EvalsLog = {}
        for epoch in range(num_boost_round):
            if _any_stops([callback.before_iteration(booster, epoch, evals_log) for callback in used]):
                break
            booster.update(dtrain, epoch, obj)
            log(3, f"round {epoch}: {sum(t.n_leaves for t in booster.model.trees[booster.model.iteration_indptr[-2] :])} leaves")
            for data, metric, value in booster.evaluate(evals, custom_metric, margins=obj is not None):
                evals_log.setdefault(data, {}).setdefault(metric, []).append(value)
            if _any_stops([callback.after_iteration(booster, epoch, evals_log) for callback in used]):
                break
        for callback in used:
            booster = callback.after_training(booster)
    if evals_result is not None:
        evals_result.clear()
        evals_result.update(evals_log)
    return booster.reset()


def _checked_evals(evals: Sequence[tuple[DMatrix, str]] | None) -> list[tuple[DMatrix, str]]:
    checked = list(evals or ())
    for pair in checked:
        if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], DMatrix) and isinstance(pair[1], str)):
            raise TypeError(f"evals must hold (DMatrix, name) pairs, got {pair!r}.")
    return checked


def _any_stops(answers: list[bool]) -> bool:
    """Whether any callback of any worker asks to stop: all workers must do the same."""
    return current_communicator().any(any(answers))


def cv(*args: Any, **kwargs: Any) -> Any:
    """Cross-validation. Not built yet: raises NotImplementedError."""
    raise not_built("cv", "Use sklearn.model_selection.cross_validate with GPUBoostClassifier or GPUBoostRegressor.")
