"""What may happen before, between and after the rounds of a training. XGBoost's callback classes.

train() itself uses them for early stopping and for printing; its loop knows nothing else.
"""

import os
import pickle
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

from gpuboost.paths import as_path
from gpuboost.positional import also_by_position

__all__ = [
    "EarlyStopping", "EvaluationMonitor", "LearningRateScheduler", "ProgressBar", "TrainingCallback", "TrainingCheckPoint",
]  # fmt: skip

MAXIMISED = "auc", "aucpr", "pre", "map", "ndcg"  # by XGBoost, whatever follows in the name


class TrainingCallback:
    """Base class. ``model`` is the Booster; before_training and after_training return it (or another one).

    kept : names of attributes, numbers or texts, that a checkpoint keeps from round to round (train's resume_from).
    """

    #: Data name → metric name → one value a round (cv: (mean, std) pairs).
    EvalsLog: TypeAlias = dict[str, dict[str, list[Any]]]
    kept: tuple[str, ...] = ()

    def before_training(self, model: Any) -> Any:
        return model

    def after_training(self, model: Any) -> Any:
        return model

    def before_iteration(self, model: Any, epoch: int, evals_log: EvalsLog) -> bool:
        """True stops the training before this round."""
        return False

    def after_iteration(self, model: Any, epoch: int, evals_log: EvalsLog) -> bool:
        """True stops the training after this round."""
        return False


EvalsLog = TrainingCallback.EvalsLog


class LearningRateScheduler(TrainingCallback):
    """learning_rates : a function of the round, or one value per round.

    As in XGBoost, a round's value is set when that round is over: round r + 1 grows with learning_rates(r), round 0 with the
    parameter's own.
    """

    def __init__(self, learning_rates: Callable[[int], float] | Sequence[float]) -> None:
        if not callable(learning_rates) and not hasattr(learning_rates, "__getitem__"):
            raise TypeError(f"learning_rates must be a function of the round or one value per round, got {learning_rates!r}.")
        self.learning_rates = learning_rates if callable(learning_rates) else learning_rates.__getitem__

    def after_iteration(self, model: Any, epoch: int, evals_log: EvalsLog) -> bool:
        model.set_param("learning_rate", self.learning_rates(epoch))
        return False


class EarlyStopping(TrainingCallback):
    """Stop when a metric has not improved for some rounds.

    rounds : rounds without improvement by more than min_delta. metric_name, data_name : the last metric of the last evaluation
    set by default. maximize : None takes the metric's own direction; a custom metric is minimised unless told, or unless its name
    begins as those that XGBoost maximises.
    save_best : cut the model back to its best round. Sets the attributes best_iteration and best_score.
    stopping_history : after training, what it watched, {data name: {metric name: one value a round}}.
    """

    kept = ("_first_round", "_best", "_rounds_since_best")

    @also_by_position("rounds", "metric_name", "data_name", "maximize", "save_best")
    def __init__(
        self, *, rounds: int, metric_name: str | None = None, data_name: str | None = None, maximize: bool | None = None,
        save_best: bool = False, min_delta: float = 0.0,
    ) -> None:  # fmt: skip
        if rounds < 1:
            raise ValueError(f"rounds of EarlyStopping must be at least 1, got {rounds}.")
        if min_delta < 0:
            raise ValueError(f"min_delta must be at least 0, got {min_delta}.")
        self.rounds, self.metric_name, self.data_name = rounds, metric_name, data_name
        self.maximize, self.save_best, self.min_delta = maximize, save_best, min_delta

    def before_training(self, model: Any) -> Any:
        self._first_round = model.num_boosted_rounds()  # of a model that is trained on
        self._best: float | None = None
        self._rounds_since_best = 0
        self.stopping_history: EvalsLog = {}
        self._maximised: dict[str, bool] = {}
        return model

    def after_iteration(self, model: Any, epoch: int, evals_log: EvalsLog) -> bool:
        if not evals_log:
            raise ValueError(
                "early stopping needs an evaluation set. Pass evals=[(deval, 'eval')], and eval_metric if the default is off."
            )
        data = _chosen(self.data_name or list(evals_log)[-1], evals_log, "data_name")
        metrics = evals_log[data]
        metric = _chosen(self.metric_name or list(metrics)[-1], metrics, "metric_name")
        self.stopping_history = {data: {metric: metrics[metric]}}
        value = metrics[metric][-1]
        value = value[0] if isinstance(value, tuple) else value
        if metric not in self._maximised:
            self._maximised[metric] = self._is_maximised(metric)
        maximize = self._maximised[metric]
        gain = None if self._best is None else (value - self._best if maximize else self._best - value)
        if gain is None or gain > self.min_delta:
            self._best, self._rounds_since_best = value, 0
            model.set_attr(best_iteration=str(self._first_round + epoch), best_score=repr(value))
        else:
            self._rounds_since_best += 1
        return self._rounds_since_best >= self.rounds

    def _is_maximised(self, metric: str) -> bool:
        if self.maximize is not None:
            return self.maximize
        try:
            from gpuboost.metrics import get_metric

            return get_metric(metric).maximize
        except (ValueError, NotImplementedError):
            return metric != "mape" and metric.startswith(MAXIMISED)

    def after_training(self, model: Any) -> Any:
        best = {name: model.attr(name) for name in ("best_iteration", "best_score")}
        if not self.save_best or best["best_iteration"] is None:
            return model
        cut = model[: int(best["best_iteration"]) + 1]
        cut.set_attr(**best)
        return cut


def _chosen(name: str, options: dict[str, Any], what: str) -> str:
    if name not in options:
        raise ValueError(f"{what} must be one of {', '.join(options)}; got {name!r}.")
    return name


class EvaluationMonitor(TrainingCallback):
    """Print the evaluations every ``period`` rounds, and of the last round.

    rank : worker that prints. show_stdv : print the spread of cv's folds too. logger : is called with the line and its end, as
    sys.stderr.write is, instead of print.
    """

    kept = ("_unprinted",)

    def __init__(
        self, rank: int = 0, period: int = 1, show_stdv: bool = False, logger: Callable[[str], Any] | None = None
    ) -> None:
        if period < 1:
            raise ValueError(f"period must be at least 1, got {period}.")
        self.rank, self.period, self.show_stdv = rank, period, show_stdv
        self.logger = partial(print, end="", flush=True) if logger is None else logger
        self._unprinted: str | None = None

    def after_iteration(self, model: Any, epoch: int, evals_log: EvalsLog) -> bool:
        from gpuboost.communicator import current_communicator

        if not evals_log or current_communicator().rank != self.rank:
            return False
        self._unprinted = "\t".join([f"[{epoch}]", *_last_values(evals_log, self.show_stdv)]) + "\n"
        if epoch % self.period == 0:
            self.logger(self._unprinted)
            self._unprinted = None
        return False

    def after_training(self, model: Any) -> Any:
        if self._unprinted:
            self.logger(self._unprinted)
            self._unprinted = None
        return model


def _last_values(evals_log: EvalsLog, show_stdv: bool = False) -> list[str]:
    """The evaluations of the last round, "train-rmse:0.50000". Those of cv are pairs of mean and standard deviation."""
    texts = []
    for data, metrics in evals_log.items():
        for metric, log in metrics.items():
            mean, *deviation = log[-1] if isinstance(log[-1], tuple) else (log[-1],)
            spread = f"+{deviation[0]:.5f}" if show_stdv and deviation else ""
            texts.append(f"{data}-{metric}:{mean:.5f}{spread}")
    return texts


class ProgressBar(TrainingCallback):
    """A bar of the rounds with their evaluations: tqdm's where that is installed, else a line of text a round.

    total : rounds to come, where that is known.
    """

    def __init__(self, total: int | None = None) -> None:
        self.total = total

    def before_training(self, model: Any) -> Any:
        try:
            from tqdm.auto import tqdm
        except ImportError:
            self._bar = None
        else:
            self._bar = tqdm(total=self.total, unit="round")
        return model

    def after_iteration(self, model: Any, epoch: int, evals_log: EvalsLog) -> bool:
        values = _last_values(evals_log)
        if self._bar is None:
            of_all = "" if self.total is None else f" of {self.total}"
            print("\t".join([f"round {epoch + 1}{of_all}", *values]), flush=True)
        else:
            self._bar.set_postfix_str(" ".join(values), refresh=False)
            self._bar.update()
        return False

    def after_training(self, model: Any) -> Any:
        if self._bar is not None:
            self._bar.close()
        return model


class TrainingCheckPoint(TrainingCallback):
    """Save the model into ``directory`` as ``<name>_<round>.ubj`` after every round whose number ``interval`` divides, but 0.

    Rounds are numbered as in the model, also one to continue. as_pickle : pickle the Booster instead, with its parameters, as
    ``.pkl``. A subclass may say default_format = "json".
    """

    default_format = "ubj"
    kept = ("_first_round",)

    def __init__(
        self, directory: str | os.PathLike[str], name: str = "model", as_pickle: bool = False, interval: int = 100
    ) -> None:
        if interval < 1:
            raise ValueError(f"interval must be at least 1, got {interval}.")
        self.directory, self.name, self.as_pickle, self.interval = as_path("directory", directory), name, as_pickle, interval

    def before_training(self, model: Any) -> Any:
        self._first_round = model.num_boosted_rounds()
        return model

    def after_iteration(self, model: Any, epoch: int, evals_log: EvalsLog) -> bool:
        from gpuboost.communicator import current_communicator

        if epoch and epoch % self.interval == 0 and current_communicator().rank == 0:
            path = os.path.join(self.directory, f"{self.name}_{self._first_round + epoch}.")
            if self.as_pickle:
                with open(f"{path}pkl", "wb") as file:
                    pickle.dump(model, file)
            else:
                model.save_model(path + self.default_format)
        return False
