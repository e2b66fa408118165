"""cv(): the folds are XGBoost's, models and figures those of separate trainings, and the result has XGBoost's shape."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from small_tables import PARAMS, make_table

import gpuboost as gb
from gpuboost.backend import CpuBackend
from gpuboost.callback import EarlyStopping, LearningRateScheduler, TrainingCallback
from gpuboost.communicator import SingleProcess, run_threads
from gpuboost.model_io import digest

X, Y, WEIGHT = make_table("binary:logistic")
LOGISTIC = {**PARAMS["binary:logistic"], "max_depth": 3}


@pytest.fixture
def data():
    return gb.DMatrix(X, Y, weight=WEIGHT)


def by_hand(params, splits, n_rounds, metric):
    """(mean, deviation) of each round over separate trainings on the splits: {data: float64 (n_rounds, 2)}."""
    values = {"train": [], "test": []}
    for rows, test_rows in splits:
        parts = {name: gb.DMatrix(X[r], Y[r], weight=WEIGHT[r]) for name, r in (("train", rows), ("test", test_rows))}
        history = {}
        evals = [(part, name) for name, part in parts.items()]
        gb.train(params, parts["train"], n_rounds, evals=evals, evals_result=history, verbose_eval=False)
        for name in values:
            values[name].append(history[name][metric])
    return {name: np.stack([np.mean(v, axis=0), np.std(v, axis=0)], axis=1) for name, v in values.items()}


def check(result, expected, metric):
    for name, pairs in expected.items():
        np.testing.assert_allclose(result[f"{name}-{metric}-mean"], pairs[:, 0], rtol=1e-12)
        np.testing.assert_allclose(result[f"{name}-{metric}-std"], pairs[:, 1], rtol=1e-9, atol=1e-15)


def test_figures_are_those_of_separate_trainings(data):
    parts = np.array_split(np.arange(400), 4)
    splits = [(np.setdiff1d(np.arange(400), part), part) for part in parts]
    expected = by_hand(LOGISTIC, splits, 5, "logloss")
    check(gb.cv(LOGISTIC, data, 5, nfold=4, shuffle=False, as_pandas=False), expected, "logloss")
    check(gb.cv(LOGISTIC, data, 5, folds=splits, as_pandas=False), expected, "logloss")


class KeepModels(TrainingCallback):
    def after_training(self, model):
        self.digests = [digest(booster.model) for booster in model.boosters]
        return model


SPLITS = [(np.arange(400)[::-1][np.arange(400)[::-1] % 3 != k], np.flatnonzero(np.arange(400) % 3 == k)) for k in range(3)]
CONTINUOUS = np.random.default_rng(5).normal(size=(400, 4)).astype(np.float32)
TABLES = {
    "dense": X,
    "continuous": CONTINUOUS,  # folds of their own would have other cuts
    "sparse": scipy.sparse.csr_matrix(np.nan_to_num(X) * (CONTINUOUS > 0)),
    "categories": pd.DataFrame({"a": pd.Categorical(np.nan_to_num(X[:, 0] * 10).astype(int)), "b": CONTINUOUS[:, 0]}),
}


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("params", [{"max_bin": 16, "subsample": 0.7}, {"tree_method": "approx", "max_bin": 8}], ids=str)
def test_models_are_those_of_separate_trainings_that_share_the_cuts(name, params):
    table, params = TABLES[name], {**LOGISTIC, **params}
    data, kept = gb.DMatrix(table, Y, weight=WEIGHT), KeepModels()
    max_bin = gb.Booster(params).params.table_bins
    ref = gb.QuantileDMatrix(table, Y, weight=WEIGHT, max_bin=max_bin)
    take = (lambda rows: table.iloc[rows]) if name == "categories" else table.__getitem__
    ascending = [np.sort(rows) for rows, _ in SPLITS]
    parts = [gb.QuantileDMatrix(take(rows), Y[rows], weight=WEIGHT[rows], ref=ref) for rows in ascending]
    expected = [digest(gb.train(params, part, 3).model) for part in parts]
    for threads in (1, 2):  # which the folds share, side by side
        gb.cv({**params, "nthread": threads}, data, 3, folds=SPLITS, callbacks=[kept])
        assert kept.digests == expected
    assert len(set(expected)) == 3


def test_folds_have_their_bins_though_another_thread_bins_the_table_otherwise(data, monkeypatch):
    params, slice_of = {**LOGISTIC, "max_bin": 8, "nthread": 1}, gb.DMatrix.slice
    expected = gb.cv(params, data, 2, as_pandas=False)

    def slice_later(self, *arguments):
        self.binned(64, CpuBackend(1), SingleProcess())
        return slice_of(self, *arguments)

    monkeypatch.setattr(gb.DMatrix, "slice", slice_later)
    assert gb.cv(params, data, 2, as_pandas=False) == expected


def test_exact_search_bins_each_fold_anew():
    """A cut halves the gap between two values of the fold, not of the table."""
    data, kept, params = gb.DMatrix(CONTINUOUS, Y), KeepModels(), {**LOGISTIC, "tree_method": "exact"}
    gb.cv(params, data, 2, folds=SPLITS, callbacks=[kept])
    assert kept.digests == [digest(gb.train(params, gb.DMatrix(CONTINUOUS[rows], Y[rows]), 2).model) for rows, _ in SPLITS]


def test_workers_share_the_folds():
    """Each has a part of the rows of every fold; those that a tree sees are drawn by their numbers in the table."""
    kept, params = KeepModels(), {**LOGISTIC, "max_bin": 16, "subsample": 0.5}
    gb.cv(params, gb.DMatrix(CONTINUOUS, Y), 2, folds=SPLITS, callbacks=[kept])
    own = [slice(0, 150), slice(150, 400)]

    def work(rank):
        mine, its = np.arange(400)[own[rank]], KeepModels()
        folds = [[np.flatnonzero(np.isin(mine, rows)) for rows in split] for split in SPLITS]
        gb.cv(params, gb.DMatrix(CONTINUOUS[mine], Y[mine]), 2, folds=folds, callbacks=[its])
        return its.digests

    assert run_threads(2, work) == [kept.digests] * 2


def test_an_error_in_a_fold_is_raised(data):
    with pytest.raises(ValueError, match="max_depth"):
        gb.cv(LOGISTIC, data, 2, fpreproc=lambda train, test, params: (train, test, {**params, "max_depth": -1}))
    with pytest.raises(FloatingPointError, match="beyond float32"):
        gb.cv({"learning_rate": 3e38, "max_depth": 2, "nthread": 2}, gb.DMatrix(X, Y * 1e30), 1)


def test_seed_and_shuffle_choose_the_folds_that_xgboost_chooses(data):
    """The same rows; XGBoost's are shuffled."""
    xgboost = pytest.importorskip("xgboost")
    seen = []

    def watch(train_part, test_part, params):
        seen.append((sorted(train_part.get_label()), sorted(test_part.get_label())))
        return train_part, test_part, params

    numbered = np.arange(400.0)
    for arguments in ({}, {"seed": 7, "nfold": 5}, {"shuffle": False}):
        for library in (gb, xgboost):
            library.cv({}, library.DMatrix(X, numbered), 1, fpreproc=watch, **arguments)
        n = arguments.get("nfold", 3)
        assert seen[:n] == seen[n:]
        seen.clear()


def test_result_has_the_columns_and_nearly_the_values_of_xgboost():
    xgboost, pd = pytest.importorskip("xgboost"), pytest.importorskip("pandas")
    params = {**LOGISTIC, "eval_metric": ["error", "logloss"]}
    ours, theirs = (library.cv(params, library.DMatrix(X, Y), 10) for library in (gb, xgboost))
    assert isinstance(ours, pd.DataFrame) and list(ours.columns) == list(theirs.columns) and len(ours) == 10
    # Cuts differ between the libraries, as sketches do, so single rows move; the losses stay close.
    np.testing.assert_allclose(ours["test-logloss-mean"], theirs["test-logloss-mean"], rtol=0.03)
    as_dict = gb.cv(params, gb.DMatrix(X, Y), 10, as_pandas=False)
    assert {name: list(values) for name, values in ours.items()} == as_dict


def test_stratified_folds_keep_the_shares_of_the_classes():
    sklearn = pytest.importorskip("sklearn.model_selection")
    rare = np.arange(400) % 20 == 0
    shares = []

    def watch(train_part, test_part, params):
        shares.append(test_part.get_label().mean())
        return train_part, test_part, params

    gb.cv(LOGISTIC, gb.DMatrix(X, rare), 1, nfold=4, stratified=True, fpreproc=watch)
    assert shares == pytest.approx([0.05] * 4)
    data = gb.DMatrix(X, Y)
    splitter = sklearn.KFold(3, shuffle=True, random_state=5)
    by_splitter = gb.cv(LOGISTIC, data, 2, folds=splitter, as_pandas=False)
    assert by_splitter == gb.cv(LOGISTIC, data, 2, folds=list(splitter.split(X)), as_pandas=False)


def test_metrics_replace_those_of_the_parameters(data):
    params = [*LOGISTIC.items(), ("eval_metric", "error"), ("eval_metric", "auc")]
    both = gb.cv(params, data, 2, as_pandas=False)
    assert list(both) == [f"{d}-{m}-{w}" for d in ("train", "test") for m in ("error", "auc") for w in ("mean", "std")]
    assert [name for name in gb.cv(params, data, 2, metrics="logloss", as_pandas=False) if "mean" in name] == [
        "train-logloss-mean", "test-logloss-mean",
    ]  # fmt: skip
    custom = gb.cv(LOGISTIC, data, 2, custom_metric=lambda p, d: ("rows", len(p)), nfold=4, as_pandas=False)
    assert custom["test-rows-mean"] == [100, 100] and custom["train-rows-mean"] == [300, 300]


def test_custom_objective_trains_on_its_gradients(data):
    def halves(prediction, dtrain):
        return prediction - dtrain.get_label(), np.ones_like(prediction)

    params = {"base_score": 0.25, "eval_metric": "rmse"}
    own, built_in = (gb.cv(params, gb.DMatrix(X, Y), 3, obj=obj, as_pandas=False) for obj in (halves, None))
    assert own == built_in


def test_early_stopping_ends_with_the_best_round(data):
    long = gb.cv({**LOGISTIC, "learning_rate": 1.0}, data, 60, as_pandas=False)
    best = int(np.argmin(long["test-logloss-mean"]))
    assert best < 50  # or nothing would be stopped
    for arguments in ({"early_stopping_rounds": 10}, {"callbacks": [EarlyStopping(rounds=10)]}):
        stopped = gb.cv({**LOGISTIC, "learning_rate": 1.0}, data, 60, as_pandas=False, **arguments)
        assert stopped == {name: values[: best + 1] for name, values in long.items()}


@pytest.mark.parametrize("maximize, best", [(True, 3), (False, 0)])
def test_early_stopping_knows_which_way_is_better(data, maximize, best):
    values = iter(np.repeat([1, 2, 3, 4, 0, 0, 0], 6).tolist())  # two evaluations in each of three folds a round
    result = gb.cv(
        LOGISTIC, data, 7, custom_metric=lambda *_: ("score", next(values)), maximize=maximize, early_stopping_rounds=2,
        as_pandas=False,
    )  # fmt: skip
    assert len(result["test-score-mean"]) == best + 1


def test_callbacks_see_one_model_and_pairs(data, capsys):
    seen = []

    class Watch(TrainingCallback):
        def after_iteration(self, model, epoch, evals_log):
            seen.append((model.num_boosted_rounds(), evals_log["test"]["logloss"][-1]))
            return epoch == 2

    result = gb.cv(LOGISTIC, data, 10, callbacks=[Watch()], verbose_eval=True, as_pandas=False)
    pairs = list(zip(result["test-logloss-mean"], result["test-logloss-std"]))
    assert seen == [(1, pairs[0]), (2, pairs[1]), (3, pairs[2])]
    assert capsys.readouterr().out.splitlines()[0].startswith(f"[0]\ttrain-logloss:{result['train-logloss-mean'][0]:.5f}+")
    falling = gb.cv(LOGISTIC, data, 2, callbacks=[LearningRateScheduler([1e-9, 1e-9])], as_pandas=False)
    assert falling["train-logloss-mean"][0] == pytest.approx(falling["train-logloss-mean"][1], rel=1e-6)


@pytest.mark.parametrize("library", [gb, pytest.importorskip("xgboost")])
def test_rows_to_test_on_keep_the_order_of_the_folds(library):
    """Whoever predicts them, for predictions out of fold, puts them beside the numbers that the folds name."""
    rows, seen = np.random.default_rng(0).permutation(400), []

    class Predict(library.callback.TrainingCallback):
        def after_training(self, model):
            seen.extend((fold.dtest.get_label(), fold.bst.predict(fold.dtest)) for fold in model.cvfolds)
            return model

    folds = [(rows[150:], rows[:150]), (rows[:150], rows[150:])]
    library.cv(LOGISTIC, library.DMatrix(X, Y), 2, folds=folds, callbacks=[Predict()])
    for (_, tested), (label, prediction) in zip(folds, seen):
        np.testing.assert_array_equal(label, Y[tested])
        assert np.corrcoef(prediction, Y[tested])[0, 1] > 0.2


def test_queries_stay_whole():
    """XGBoost's folds of queries, for shuffled and other seeds; and those of scikit-learn's splitter of groups."""
    xgboost, sizes = pytest.importorskip("xgboost"), np.arange(1, 28)
    label, seen = np.arange(sizes.sum()) % 3, []

    def queries(part):
        """The labels of each. XGBoost's are shuffled."""
        return sorted(labels.tolist() for labels in np.split(part.get_label(), part.get_uint_info("group_ptr")[1:-1]))

    def watch(train_part, test_part, params):
        seen.append((queries(train_part), queries(test_part)))
        return train_part, test_part, params

    for arguments in ({}, {"seed": 7, "nfold": 5}, {"shuffle": False}):
        for library in (gb, xgboost):
            data = library.DMatrix(X[: len(label)], label, group=sizes)
            library.cv({"objective": "rank:pairwise"}, data, 1, fpreproc=watch, **arguments)
        n = arguments.get("nfold", 3)
        assert seen[:n] == seen[n:] and all(sum(map(len, fold)) == len(sizes) for fold in seen)
        seen.clear()
    from sklearn.model_selection import GroupKFold

    data = gb.DMatrix(X[: len(label)], label, group=sizes)
    result = gb.cv({"objective": "rank:ndcg", "eval_metric": "ndcg@3"}, data, 3, folds=GroupKFold(3), as_pandas=False)
    assert result["train-ndcg@3-mean"][2] > result["train-ndcg@3-mean"][0]
    with pytest.raises(ValueError, match="nfold must lie between 2 and the 27 queries of dtrain, got 28"):
        gb.cv({"objective": "rank:ndcg"}, data, nfold=28)
    with pytest.raises(ValueError, match="stratified=True cuts queries"):
        gb.cv({"objective": "rank:ndcg"}, data, stratified=True)


def test_folds_that_cut_queries_are_told_as_such():
    rng = np.random.default_rng(0)
    data = gb.DMatrix(rng.normal(size=(40, 2)), np.arange(40) % 3, qid=np.arange(40) // 8)
    with pytest.raises(ValueError, match="a fold cuts a query in two"):
        gb.cv({"objective": "rank:ndcg"}, data, 2, folds=[(np.arange(0, 40, 2), np.arange(1, 40, 2))])


def test_wrong_arguments_are_refused_before_training(data):
    with pytest.raises(ValueError, match="nfold must lie between 2 and the 400 rows of dtrain, got 1"):
        gb.cv(LOGISTIC, data, nfold=1)
    with pytest.raises(TypeError, match="dtrain must be a DMatrix, got numpy.ndarray"):
        gb.cv(LOGISTIC, X)
    with pytest.raises(ValueError, match="save_best of EarlyStopping cuts a model"):
        gb.cv(LOGISTIC, data, callbacks=[EarlyStopping(rounds=1, save_best=True)])
    with pytest.raises(ValueError, match="folds must hold pairs"):
        gb.cv(LOGISTIC, data, folds=[])
    with pytest.raises(ValueError, match="folds must hold pairs"):
        gb.cv(LOGISTIC, data, folds=[(range(400), [])])
    with pytest.raises(IndexError, match=r"rows of folds must lie in \[0, 399\], got 400"):
        gb.cv(LOGISTIC, data, folds=[(range(300), range(300, 401))])
    with pytest.raises(ValueError, match="Supported target types"):  # scikit-learn's own words
        gb.cv({}, gb.DMatrix(X, np.arange(400) / 7), stratified=True)
    for name, value in {"nfold": 2.5, "seed": "x"}.items():
        with pytest.raises(TypeError, match=f"{name} must be an integer, got {value!r}"):
            gb.cv(LOGISTIC, data, **{name: value})
    with pytest.raises(TypeError, match="num_boost_round must be an integer, got 2.0"):
        gb.cv(LOGISTIC, data, 2.0)


def test_folds_that_run_ahead_stop_where_folds_in_step_do(data):
    """On two threads, with callbacks that only watch; one that others wrote may change the folds between rounds, so none does."""
    params = {**LOGISTIC, "learning_rate": 1.0, "eval_metric": ["error", "logloss"]}
    results = [
        gb.cv({**params, "nthread": threads}, data, 40, nfold=5, early_stopping_rounds=3, callbacks=callbacks, as_pandas=False)
        for threads, callbacks in ((1, []), (2, []), (2, [TrainingCallback()]))
    ]
    assert results[0] == results[1] == results[2]
    assert len(results[0]["test-error-mean"]) < 37  # or nothing would be stopped
    with pytest.raises(FloatingPointError, match="beyond float32"):
        gb.cv({"learning_rate": 3e38, "max_depth": 2, "nthread": 2}, gb.DMatrix(X, Y * 1e30), 9)


def test_workers_need_not_have_queries_of_every_fold():
    """Three queries on two workers: of two folds one has nothing to be tested on."""
    qid, params = np.sort(np.arange(len(Y)) % 3), {"objective": "rank:ndcg"}
    expected = gb.cv(params, gb.DMatrix(CONTINUOUS, Y, qid=qid), 1, nfold=3, as_pandas=False)

    def work(rank):
        mine = (qid > 0) == rank
        return gb.cv(params, gb.DMatrix(CONTINUOUS[mine], Y[mine], qid=qid[mine]), 1, nfold=3, as_pandas=False)

    assert run_threads(2, work) == [expected, expected]
