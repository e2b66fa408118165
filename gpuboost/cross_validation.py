"""cv(): the same training on several splits of one table, in step, and the mean of their evaluations.

The table is binned once, and its folds share the cuts (not in exact search, where a cut stands between any two values): a fold's
model is that of train() on QuantileDMatrix(X[rows], y[rows], ref=dtrain), rows ascending, byte for byte; rows to test on
keep the order that folds have, but for those of queries. Cuts say how the values
of a column are distributed, held-out rows included, and nothing of labels. LightGBM's cv does the same; XGBoost's bins every fold
anew.

The folds of a QuantileDMatrix are the rows that weigh something, in the order of the table: all of them read the same pages, in
memory or in files. Its obj is called with all rows, custom_metric with those of the fold alone.

On several threads of the CPU the folds train side by side, on a share of the threads each, and where no callback could change
them, a fold goes on with its next round while others finish this one: 5 folds on 2 threads would else leave one waiting.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from numbers import Integral
from types import SimpleNamespace
from typing import Any

import numpy as np

import gpuboost.backend as backends
from gpuboost.backend import Backend
from gpuboost.backend.queries import Queries
from gpuboost.booster import Booster
from gpuboost.callback import EarlyStopping, EvalsLog, EvaluationMonitor, ProgressBar, TrainingCallback
from gpuboost.communicator import current_communicator
from gpuboost.config import verbosity_context
from gpuboost.custom_objective import CustomObjective
from gpuboost.data.bins import Bins
from gpuboost.data.dmatrix import DMatrix
from gpuboost.data.given import row_numbers
from gpuboost.data.quantile_dmatrix import QuantileDMatrix
from gpuboost.errors import install, kind_of
from gpuboost.objectives import find_objective
from gpuboost.params import Params
from gpuboost.positional import also_by_position
from gpuboost.training.evaluate import CustomMetric, Evaluation
from gpuboost.training.loop import boost_rounds, check_arguments, monitors

__all__ = ["cv"]

Split = tuple[np.ndarray, np.ndarray]  # row numbers to train on, and to test on


@also_by_position("nfold", "stratified", "folds", "metrics", "obj")
def cv(
    params: Mapping[str, Any], dtrain: DMatrix, num_boost_round: int = 10, *, nfold: int = 3, stratified: bool = False,
    folds: Any = None, metrics: str | Sequence[str] = (), obj: CustomObjective | None = None, maximize: bool | None = None,
    early_stopping_rounds: int | None = None, fpreproc: Callable[..., tuple[DMatrix, DMatrix, dict[str, Any]]] | None = None,
    as_pandas: bool = True, verbose_eval: bool | int | None = None, show_stdv: bool = True, seed: int = 0,
    callbacks: Sequence[TrainingCallback] | None = None, shuffle: bool = True, custom_metric: CustomMetric | None = None,
) -> Any:  # fmt: skip
    """Cross-validate. Arguments and meaning as xgboost.cv; the same seed gives the same folds.

    nfold : parts of the rows, or of the queries; each is once what is tested on. shuffle : before they are cut. seed : of
        shuffling, no more.
    stratified : keep the classes' shares in each part (needs scikit-learn, and shuffles).
    folds : instead, a list of (rows to train on, rows to test on), or a splitter of scikit-learn.
    metrics : instead of eval_metric. fpreproc : (dtrain, dtest, params) -> the same three, for each split.
    early_stopping_rounds : watches the mean of the last metric over the test parts; the result then ends with the best round.
    The rest as train().
    Returns a DataFrame with a row a round, or without pandas a dict of lists: train-<metric>-mean, train-<metric>-std and the
    same for test. The standard deviation is that of the folds themselves (ddof 0).
    Raises ValueError and TypeError for wrong data or arguments.
    """
    if not isinstance(dtrain, DMatrix):
        raise TypeError(f"dtrain must be a DMatrix, got {kind_of(dtrain)}. Make one: gpuboost.DMatrix(X, label=y).")
    if isinstance(dtrain, QuantileDMatrix) and dtrain.queries.is_given:
        raise ValueError("the queries of a QuantileDMatrix cannot be split: only its table has them whole. Use a DMatrix.")
    if isinstance(dtrain, QuantileDMatrix) and fpreproc is not None:
        raise ValueError("fpreproc is given the parts of a table, and the folds of a QuantileDMatrix are none. Use a DMatrix.")
    n_rounds = check_arguments(num_boost_round, callbacks, obj=obj, custom_metric=custom_metric, fpreproc=fpreproc)
    for name, value in {"nfold": nfold, "seed": seed}.items():
        if not isinstance(value, Integral):
            raise TypeError(f"{name} must be an integer, got {value!r}.")
    used = list(callbacks or ())
    if any(isinstance(callback, EarlyStopping) and callback.save_best for callback in used):
        raise ValueError("save_best of EarlyStopping cuts a model, but cv returns none. Leave it out.")
    if early_stopping_rounds is not None:
        used.append(EarlyStopping(rounds=early_stopping_rounds, maximize=maximize))
    used += monitors(verbose_eval, show_stdv=show_stdv)

    whole = Booster(params)
    settings = whole._recorded_params()  # checked; a repeated eval_metric is one list
    if metrics:
        settings["eval_metric"] = [metrics] if isinstance(metrics, str) else list(metrics)
    ranks_queries = getattr(find_objective(whole.params.objective), "ranks_queries", False)
    splits = _splits(dtrain, nfold, stratified, folds, seed, shuffle)
    backend = backends.choose_backend(
        whole.params.training_device, whole.params.nthread, n_values=dtrain.num_row() * dtrain.num_col(),
        table_device=dtrain.device,
    )  # fmt: skip
    with verbosity_context(whole.params.verbosity):
        bins = _bin_once(dtrain, whole.params, backend)
        is_alone = backend.n_threads > 1 and obj is None and custom_metric is None and current_communicator().size == 1
        n_abreast = min(len(splits), backend.n_threads) if is_alone else 1
        make = lambda part: _part(dtrain, part, bins, backend)
        with ThreadPoolExecutor(n_abreast) as threads:
            # Each in a copy of this context: the configuration is the caller's.
            submit = lambda function, *arguments: threads.submit(copy_context().run, function, *arguments)
            numbers = [rows for split in splits for rows in split]
            if n_abreast > 1:
                slices: list[DMatrix] = [future.result() for future in [submit(make, rows) for rows in numbers]]
            else:
                slices = [make(rows) for rows in numbers]
            if custom_metric is not None and isinstance(dtrain, QuantileDMatrix):
                rows_of = {id(part): rows for part, rows in zip(slices, numbers)}
                custom_metric = partial(_metric_of_rows, custom_metric, dtrain, rows_of)
            trained = _Folds(submit if n_abreast > 1 else None, obj, custom_metric)
            for train_part, test_part in zip(slices[::2], slices[1::2]):
                if ranks_queries and dtrain.queries.is_given and not train_part.queries.is_given & test_part.queries.is_given:
                    raise ValueError("a fold cuts a query in two. Leave folds out, or make them of whole queries in row order.")
                own = dict(settings)
                if fpreproc is not None:
                    train_part, test_part, own = fpreproc(train_part, test_part, own)
                share = {"nthread": backend.n_threads // n_abreast} if n_abreast > 1 else {}
                trained.add(Booster({**own, **share}), train_part, test_part)
            runs_ahead = all(type(callback) in (EarlyStopping, EvaluationMonitor, ProgressBar) for callback in used)
            boost = lambda _, epoch: trained.boost(epoch, min(epoch + runs_ahead, n_rounds - 1))
            try:
                model, evals_log, is_stopped = boost_rounds(trained, n_rounds, used, boost)
            finally:
                threads.shutdown(cancel_futures=True)
    best = model.attr("best_iteration") if is_stopped else None
    return _as_table(evals_log, None if best is None else int(best) + 1, as_pandas)


def _part(dtrain: DMatrix, rows: np.ndarray, bins: Bins | None, backend: Backend) -> DMatrix:
    if isinstance(dtrain, QuantileDMatrix):
        return dtrain.masked(rows)
    return dtrain.slice(rows, True) if bins is None else dtrain.slice_with_bins(rows, bins, backend)


def _metric_of_rows(
    metric: CustomMetric, whole: QuantileDMatrix, rows_of: Mapping[int, np.ndarray], prediction: np.ndarray, part: DMatrix
) -> Any:
    """A metric of the rows of a fold, which are all that it sees. part : with all rows. rows_of : id of it → which are its."""
    rows = rows_of[id(part)]
    return metric(prediction[rows], whole.info_of(rows))


def _bin_once(dtrain: DMatrix, params: Params, backend: Backend) -> Bins | None:
    """The table, binned as the folds will want it; None where they cannot share its bins."""
    if params.tree_method == "exact" or params.booster == "gblinear":
        return None
    comm = current_communicator()
    dtrain.require_same_columns(comm)
    bins = dtrain.bins(params.table_bins, backend, comm, params.bins_categories and dtrain.has_categories)
    bins.with_records(backend)  # before the folds ask for them side by side
    return bins


def _as_table(evals_log: EvalsLog, end: int | None, as_pandas: bool) -> Any:
    """Mean and standard deviation of the rounds before ``end``, a DataFrame where asked for and pandas is there."""
    result = {
        f"{data}-{metric}-{what}": [pair[i] for pair in pairs[:end]]
        for data, of_metrics in evals_log.items()
        for metric, pairs in of_metrics.items()
        for i, what in enumerate(("mean", "std"))
    }
    if as_pandas:
        try:
            import pandas

            return pandas.DataFrame(result)
        except ImportError:
            pass
    return result


class _Folds:
    """The Boosters of all splits, as callbacks see them: one model. submit : runs a function in a thread, where there are
    several."""

    def __init__(
        self, submit: Callable[..., Future[Any]] | None, obj: CustomObjective | None, custom_metric: CustomMetric | None
    ) -> None:
        self.boosters: list[Booster] = []
        self._submit, self._obj, self._custom_metric = submit, obj, custom_metric
        self._parts: list[tuple[DMatrix, DMatrix]] = []  # to train on, and to test on
        self._begun: deque[list[Future[list[Evaluation]]]] = deque()  # rounds that have begun, of every fold
        self._n_begun = 0

    def add(self, booster: Booster, train_part: DMatrix, test_part: DMatrix) -> None:
        self.boosters.append(booster)
        self._parts.append((train_part, test_part))

    def boost(self, epoch: int, last_begun: int) -> list[tuple[str, str, tuple[float, float]]]:
        """A round of every split; mean and standard deviation of its evaluations. last_begun : in threads, the round that folds
        may go on with which are done with this one."""
        folds = range(len(self.boosters))
        if self._submit is None:
            return _means([self._boost_one(fold, epoch) for fold in folds])
        while self._n_begun <= last_begun:
            before = self._begun[-1] if self._begun else [None] * len(folds)
            number, self._n_begun = self._n_begun, self._n_begun + 1
            self._begun.append([self._submit(self._boost_one, fold, number, before[fold]) for fold in folds])
        return _means([future.result() for future in self._begun.popleft()])

    def _boost_one(self, fold: int, epoch: int, before: Future[list[Evaluation]] | None = None) -> list[Evaluation]:
        """before : the fold's last round, which has begun in another thread."""
        if before is not None:
            before.result()
        booster, (train_part, test_part) = self.boosters[fold], self._parts[fold]
        booster.update(train_part, epoch, self._obj)
        return booster.evaluate([(train_part, "train"), (test_part, "test")], self._custom_metric, margins=self._obj is not None)

    @property
    def cvfolds(self) -> list[SimpleNamespace]:
        """The splits by XGBoost's names: the Booster of each, bst, and what it is trained and tested on, dtrain and dtest."""
        return [SimpleNamespace(bst=bst, dtrain=parts[0], dtest=parts[1]) for bst, parts in zip(self.boosters, self._parts)]

    def num_boosted_rounds(self) -> int:
        return self.boosters[0].num_boosted_rounds()

    def set_param(self, params: Any, value: Any = None) -> None:
        for booster in self.boosters:
            booster.set_param(params, value)

    def set_attr(self, **attributes: str | None) -> None:
        for booster in self.boosters:
            booster.set_attr(**attributes)

    def attr(self, key: str) -> str | None:
        return self.boosters[0].attr(key)

    @property
    def best_iteration(self) -> int:
        return self.boosters[0].best_iteration

    @property
    def best_score(self) -> float:
        return self.boosters[0].best_score


def _means(each: list[list[Evaluation]]) -> list[tuple[str, str, tuple[float, float]]]:
    """Mean and standard deviation over the folds of each evaluation."""
    values: dict[tuple[str, str], list[float]] = {}
    for data, metric, value in (evaluation for of_fold in each for evaluation in of_fold):
        values.setdefault((data, metric), []).append(value)
    return [(*names, (float(np.mean(of_folds)), float(np.std(of_folds)))) for names, of_folds in values.items()]


def _splits(dtrain: DMatrix, nfold: int, stratified: bool, folds: Any, seed: int, shuffle: bool) -> list[Split]:
    """The splits of all workers' rows, of which each takes its own; a list of folds names a worker's own rows. Rows to train on
    in the table's order, so that what is drawn by a row's number does not depend on who holds which rows; those to test on as
    folds name them, for whoever predicts them, but rows of queries, which are whole only in the table's order."""
    comm, label, queries = current_communicator(), dtrain.get_label(), dtrain.queries
    if comm.size == 1 or not (folds is None or hasattr(folds, "split")):
        splits = _splits_of(label, dtrain.num_row(), queries, nfold, stratified, folds, seed, shuffle)
        return [(np.sort(rows), np.sort(test_rows) if queries.is_given else test_rows) for rows, test_rows in splits]
    n_rows = comm.allgather_int(dtrain.num_row())
    first = sum(n_rows[: comm.rank])
    bits = np.atleast_2d(label.T).astype(np.float32, copy=False).view(np.int32).astype(np.int64)
    everyones = comm.gather_columns(bits).astype(np.int32).view(np.float32)
    sizes = comm.gather_columns(queries.sizes[None].astype(np.int64))[0]
    queries = Queries(np.append(0, np.cumsum(sizes)), np.zeros(0, np.float32), comm.any(queries.is_given))
    label = everyones[0] if label.ndim == 1 else everyones.T
    splits = _splits_of(label, sum(n_rows), queries, nfold, stratified, folds, seed, shuffle)
    own = lambda rows: np.sort(rows[(rows >= first) & (rows < first + n_rows[comm.rank])]) - first
    return [(own(rows), own(test_rows)) for rows, test_rows in splits]


def _splits_of(
    label: np.ndarray, n_rows: int, queries: Queries, nfold: int, stratified: bool, folds: Any, seed: int, shuffle: bool
) -> list[Split]:
    n_parts, what = (len(queries), "queries") if queries.is_given else (n_rows, "rows")
    if folds is None and not 2 <= nfold <= n_parts:
        raise ValueError(f"nfold must lie between 2 and the {n_parts} {what} of dtrain, got {nfold}.")
    if stratified and queries.is_given:
        raise ValueError("stratified=True cuts queries, which stay whole. Leave it out, or pass folds.")
    if folds is None and stratified:
        try:
            from sklearn.model_selection import StratifiedKFold
        except ImportError:
            raise ImportError(f"stratified=True needs scikit-learn. Install it: {install('sklearn')}") from None
        folds = StratifiedKFold(nfold, shuffle=True, random_state=seed)
    if folds is None:
        # XGBoost's generator, so that both libraries cut the same folds.
        order = np.random.RandomState(seed).permutation(n_parts) if shuffle else np.arange(n_parts)
        parts = np.array_split(order, nfold)
        if queries.is_given:
            parts = [np.concatenate([np.arange(*queries.first[q : q + 2]) for q in part]) for part in parts]
        return [(np.concatenate(parts[:k] + parts[k + 1 :]), np.sort(parts[k])) for k in range(nfold)]
    if hasattr(folds, "split"):
        groups = np.repeat(np.arange(len(queries)), queries.sizes) if queries.is_given else None
        folds = list(folds.split(label, label, groups))  # its own errors say more
    try:
        splits = [(np.asarray(rows), np.asarray(test_rows)) for rows, test_rows in folds]
    except (TypeError, ValueError):
        splits = []
    if not splits or not all(len(rows) and len(test_rows) for rows, test_rows in splits):
        raise ValueError("folds must hold pairs (rows to train on, rows to test on), or be a splitter of scikit-learn.")
    numbers = partial(row_numbers, n_rows=n_rows, name="rows of folds")
    return [(numbers(rows), numbers(test_rows)) for rows, test_rows in splits]
