"""train(): rounds, evaluations and callbacks around Booster.update."""

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import index
from typing import Any

from gpuboost.booster import Booster
from gpuboost.callback import EarlyStopping, EvalsLog, EvaluationMonitor, TrainingCallback
from gpuboost.communicator import current_communicator
from gpuboost.config import log, logs, verbosity_context
from gpuboost.custom_objective import CustomObjective
from gpuboost.data.dmatrix import DMatrix
from gpuboost.model_io import dumps
from gpuboost.positional import also_by_position
from gpuboost.several_gpus import gpus_of, train_on_gpus
from gpuboost.training.checkpoint import Checkpoints, KeepsProgress, Progress, anywhere, describe_training
from gpuboost.training.evaluate import CustomMetric, checked_evals

__all__ = ["boost_rounds", "check_arguments", "monitors", "train"]


@also_by_position("evals", "obj")
def train(
    params: Mapping[str, Any], dtrain: DMatrix, num_boost_round: int = 10, *, evals: Sequence[tuple[DMatrix, str]] | None = None,
    obj: CustomObjective | None = None, maximize: bool | None = None, early_stopping_rounds: int | None = None,
    evals_result: EvalsLog | None = None, verbose_eval: bool | int | None = True,
    xgb_model: Booster | str | os.PathLike[str] | bytes | bytearray | None = None,
    callbacks: Sequence[TrainingCallback] | None = None, custom_metric: CustomMetric | None = None,
    resume_from: str | os.PathLike[str] | Callable[[], KeepsProgress] | None = None, checkpoint_interval: int = 10,
) -> Booster:  # fmt: skip
    """Train a model. Arguments and meaning as xgboost.train.

    params : by XGBoost's names (params.describe_params lists them).
    evals : (matrix, name) pairs to evaluate after every round.
    obj : objective (predictions, dtrain) -> (grad, hess) on raw margins. custom_metric : (predictions, dmatrix) -> (name, value);
        it sees raw margins with obj, else transformed predictions. maximize : whether early stopping maximises the metric.
    early_stopping_rounds : stop when the last metric of the last evaluation set has not improved for so many rounds.
    evals_result : dict that receives data name → metric name → values.
    verbose_eval : True prints every round, an integer every so many rounds, False or None nothing.
    xgb_model : Booster, path or bytes of a model to continue. A Booster's parameters hold where params names no others; a file
        has none. Which round was its best is forgotten: prediction is to use the new rounds as well.
    callbacks : TrainingCallback objects, or others with its methods.
    resume_from : folder for checkpoints every checkpoint_interval rounds, from which the same call goes on after a kill, to the
        same model byte for byte (training/checkpoint.py). num_boost_round counts all rounds. A callback that remembers something
        says so in TrainingCallback.kept; XGBoost's own begin anew. A function instead makes what keeps the rounds elsewhere.
    With device="cuda:0,cuda:1" or "cuda:all" GPUs share the rows (several_gpus.py); obj sees those of one.
    Raises ValueError and TypeError for wrong data or parameters, also where resume_from holds a training of others;
    FloatingPointError for gradients or leaves that are not finite; NotImplementedError for what is not built yet.
    """
    evals = _checked_evals(evals)
    num_boost_round = check_arguments(num_boost_round, callbacks, obj=obj, custom_metric=custom_metric)
    if evals_result is not None and not isinstance(evals_result, dict):
        raise TypeError(f"evals_result must be a dict to be filled, got {type(evals_result).__name__}.")
    if isinstance(xgb_model, Booster):
        booster = xgb_model.copy()
        booster.set_param(params)
    else:
        booster = Booster(params, model_file=xgb_model)
    if xgb_model is not None:
        booster.set_attr(best_iteration=None, best_score=None)
    if gpus := gpus_of(booster.params.training_device):
        if custom_metric is not None:
            raise NotImplementedError("custom_metric sees all rows, which lie on several GPUs. Use eval_metric, or one GPU.")
        train_part = partial(
            train, num_boost_round=num_boost_round, obj=obj, maximize=maximize, early_stopping_rounds=early_stopping_rounds,
            verbose_eval=verbose_eval, xgb_model=xgb_model, resume_from=resume_from, checkpoint_interval=checkpoint_interval,
        )  # fmt: skip
        trained = train_on_gpus(gpus, train_part, params, dtrain, evals, callbacks, evals_result)
        trained.set_param("device", booster.params.device)
        return trained
    with verbosity_context(booster.params.verbosity):
        training = booster.start_training(dtrain, is_custom=obj is not None)
        used = list(callbacks or ())
        if early_stopping_rounds is not None:
            used.append(EarlyStopping(rounds=early_stopping_rounds, maximize=maximize))
        if booster.params.booster == "gblinear" and any(getattr(callback, "save_best", False) for callback in used):
            raise ValueError("save_best of EarlyStopping cuts a model, and that of booster='gblinear' cannot be. Leave it out.")
        is_watched = bool(evals or used) or obj is not None or resume_from is not None or logs(3)
        used += monitors(verbose_eval)
        checkpoints: KeepsProgress | None = None
        progress = None
        if resume_from is not None and booster.params.process_type == "update":
            raise ValueError("resume_from keeps rounds that are grown, not updated. Leave it out with process_type='update'.")
        if resume_from is not None:
            arguments = {
                "early_stopping_rounds": early_stopping_rounds, "maximize": maximize, "obj": obj is not None,
                "custom_metric": custom_metric is not None, "callbacks": [type(callback).__name__ for callback in _keeping(used)],
            }  # fmt: skip
            start = None if xgb_model is None else dumps(booster.model, "ubj")
            if callable(resume_from):
                checkpoints = resume_from()
            else:
                description = describe_training(booster._recorded_params(), dtrain, training.table, evals, start, **arguments)
                checkpoints = Checkpoints(resume_from, checkpoint_interval, description)
            progress = checkpoints.load(num_boost_round)
        if progress is not None:
            booster = Booster({**progress.params, **anywhere(booster._recorded_params())}, model_file=progress.model)
            booster.start_training(dtrain, is_custom=obj is not None)

        def boost(booster: Booster, epoch: int) -> list[tuple[str, str, float]]:
            booster.update(dtrain, epoch, obj)
            if logs(3):  # looking at the model waits for the device
                grown = booster.model.trees[booster.model.iteration_indptr[-2:][0] :]
                log(3, f"round {epoch}: {sum(tree.n_leaves for tree in grown)} leaves")
            return booster.evaluate(evals, custom_metric, margins=obj is not None)

        evals_log: EvalsLog = {}
        if is_watched:
            booster, evals_log, _ = boost_rounds(booster, num_boost_round, used, boost, checkpoints, progress)
        else:
            booster._update_rounds(dtrain, num_boost_round)
    if evals_result is not None:
        evals_result.clear()
        evals_result.update(evals_log)
    return booster.reset()


def boost_rounds(
    model: Any, num_boost_round: int, callbacks: Sequence[TrainingCallback],
    boost: Callable[[Any, int], list[tuple[str, str, Any]]], checkpoints: KeepsProgress | None = None,
    progress: Progress | None = None,
) -> tuple[Any, EvalsLog, bool]:  # fmt: skip
    """The rounds of a training, with callbacks between them.

    boost : (model, round) boosts one round and returns (data name, metric name, value) of its evaluations.
    progress : of the checkpoint that the training goes on from.
    Returns the model as the callbacks leave it, all values, and whether a callback stopped the training.
    """
    for callback in callbacks:
        model = _checked_model(_start(callback, model), callback)
    evals_log: EvalsLog = {}
    is_stopped, first = False, 0
    if progress is not None:
        evals_log, is_stopped, first = progress.evals_log, progress.is_over, progress.n_rounds
        for callback, state in zip(_keeping(callbacks), progress.states, strict=True):
            vars(callback).update(state)
    for epoch in range(first, first if is_stopped else num_boost_round):
        is_stopped = _any_stops([callback.before_iteration(model, epoch, evals_log) for callback in callbacks])
        if is_stopped:
            break
        for data, metric, value in boost(model, epoch):
            evals_log.setdefault(data, {}).setdefault(metric, []).append(value)
        is_stopped = _any_stops([callback.after_iteration(model, epoch, evals_log) for callback in callbacks])
        if checkpoints is not None and (is_stopped or epoch + 1 == num_boost_round or checkpoints.is_due(epoch + 1)):
            states = [{name: getattr(callback, name) for name in callback.kept} for callback in _keeping(callbacks)]
            checkpoints.save(model, epoch + 1, evals_log, states, is_stopped)
        if is_stopped:
            break
    for callback in callbacks:
        model = _checked_model(callback.after_training(model), callback)
    return model, evals_log, is_stopped


class _AsXGBoosts:
    """A Booster that callbacks of XGBoost take for one of its own: by that they tell train() from cv()."""

    def __init__(self, booster: Booster) -> None:
        self.booster = booster

    @property  # type: ignore[misc]
    def __class__(self) -> type:  # type: ignore[override]  # what isinstance() asks
        return sys.modules["xgboost"].Booster

    def __getattr__(self, name: str) -> Any:
        return getattr(self.booster, name)


def _start(callback: TrainingCallback, model: Any) -> Any:
    """before_training."""
    is_xgboosts = any(base.__module__ == "xgboost.callback" for base in type(callback).__mro__)
    if not (is_xgboosts and isinstance(model, Booster)):
        return callback.before_training(model)
    returned = callback.before_training(_AsXGBoosts(model))
    return returned.booster if type(returned) is _AsXGBoosts else returned


def _keeping(callbacks: Sequence[TrainingCallback]) -> list[TrainingCallback]:
    """Those that remember something over a kill; XGBoost's do not say so, and begin anew."""
    return [callback for callback in callbacks if getattr(callback, "kept", ())]


def _checked_model(model: Any, callback: TrainingCallback) -> Any:
    if not hasattr(model, "num_boosted_rounds"):
        name = type(callback).__name__
        raise TypeError(f"before_training and after_training of {name} must return the model, got {model!r:.60}.")
    return model


def monitors(verbose_eval: bool | int | None, **options: Any) -> list[TrainingCallback]:
    """What prints the evaluations: nothing where verbose_eval is False, 0 or None. Raises TypeError for what is no number."""
    try:
        period = int(verbose_eval or 0)
    except (TypeError, ValueError):
        raise TypeError(f"verbose_eval must be True, False or a number of rounds, got {verbose_eval!r:.60}.") from None
    return [EvaluationMonitor(period=period, **options)] if period else []


def check_arguments(num_boost_round: Any, callbacks: Any, **functions: Any) -> int:
    """num_boost_round as an int. Raises TypeError and ValueError for what is no number of rounds, no callback or no function."""
    try:
        n_rounds = index(num_boost_round)
    except TypeError:
        raise TypeError(f"num_boost_round must be an integer, got {num_boost_round!r}.") from None
    if n_rounds < 0:
        raise ValueError(f"num_boost_round must be at least 0, got {n_rounds}.")
    methods = [name for name in vars(TrainingCallback) if name.startswith(("before_", "after_"))]
    if callbacks is not None and not isinstance(callbacks, Iterable):
        raise TypeError(f"callbacks must be a list of callbacks, got {callbacks!r}. Put it into one: callbacks=[...].")
    for callback in callbacks or ():
        if isinstance(callback, type) or not all(callable(getattr(callback, name, None)) for name in methods):
            raise TypeError(
                f"callbacks must hold instances of TrainingCallback, or of classes with its methods, got {callback!r}. "
                "Derive a class from it."
            )
    for name, function in functions.items():
        if function is not None and not callable(function):
            raise TypeError(f"{name} must be a function, got {function!r}. Built-in ones go by name into params.")
    return n_rounds


def _checked_evals(evals: Sequence[tuple[DMatrix, str]] | None) -> list[tuple[DMatrix, str]]:
    checked = checked_evals(evals)
    names = [name for _, name in checked]
    if repeated := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"the names of evals must differ, but {repeated[0]!r} is there twice. Give each matrix its own.")
    return checked


def _any_stops(answers: list[bool]) -> bool:
    """Whether any callback of any worker asks to stop: all workers must do the same."""
    return current_communicator().any(any(answers))
