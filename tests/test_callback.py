"""Callbacks: what they are told, and what they change."""

import pickle
import sys

import numpy as np
import pytest

import gpuboost as gb
from gpuboost.callback import (
    EarlyStopping,
    EvaluationMonitor,
    LearningRateScheduler,
    ProgressBar,
    TrainingCallback,
    TrainingCheckPoint,
)


@pytest.fixture(scope="module")
def matrices():
    rng = np.random.default_rng(1)
    X = rng.random((400, 4))
    y = X[:, 0] + rng.normal(0.0, 0.3, 400)
    return gb.DMatrix(X[:200], y[:200]), gb.DMatrix(X[200:], y[200:])


class Scripted(TrainingCallback):
    """Writes the given values into the evaluations of "valid" instead of the real ones, so that a test knows them."""

    def __init__(self, values, metric="rmse"):
        self.values, self.metric = values, metric

    def after_iteration(self, model, epoch, evals_log):
        evals_log.clear()
        evals_log["valid"] = {self.metric: list(self.values[: epoch + 1])}
        return False


def stopped_at(matrices, values, metric="rmse", **options):
    """(rounds trained, best round) under EarlyStopping(**options) when the metric takes these values."""
    stopping = EarlyStopping(**options)
    booster = gb.train({"max_depth": 1}, matrices[0], len(values), callbacks=[Scripted(values, metric), stopping])
    return booster.num_boosted_rounds(), booster.best_iteration


def test_hooks_run_in_order_with_the_running_model(matrices):
    seen = []

    class Recorder(TrainingCallback):
        def before_training(self, model):
            seen.append(("start", model.num_boosted_rounds()))
            return model

        def before_iteration(self, model, epoch, evals_log):
            seen.append(("before", epoch, model.num_boosted_rounds()))
            return False

        def after_iteration(self, model, epoch, evals_log):
            seen.append(("after", epoch, model.num_boosted_rounds(), len(evals_log["valid"]["rmse"])))
            return False

        def after_training(self, model):
            seen.append(("end", model.num_boosted_rounds()))
            return model

    gb.train({}, matrices[0], 2, evals=[(matrices[1], "valid")], callbacks=[Recorder()], verbose_eval=False)
    assert seen == [("start", 0), ("before", 0, 0), ("after", 0, 1, 1), ("before", 1, 1), ("after", 1, 2, 2), ("end", 2)]


def test_true_stops_before_or_after_a_round(matrices):
    class Before(TrainingCallback):
        def before_iteration(self, model, epoch, evals_log):
            return epoch == 3

    class After(TrainingCallback):
        def after_iteration(self, model, epoch, evals_log):
            return epoch == 3

    assert gb.train({}, matrices[0], 9, callbacks=[Before()]).num_boosted_rounds() == 3
    assert gb.train({}, matrices[0], 9, callbacks=[After()]).num_boosted_rounds() == 4


@pytest.mark.parametrize(
    "values, options, rounds, best",
    [
        ([5, 4, 3, 4, 5, 6, 7], {"rounds": 2}, 5, 2),
        ([5, 4, 3, 3, 3, 2, 1], {"rounds": 2}, 5, 2),  # an equal value is no improvement
        ([5, 4, 3, 2, 1], {"rounds": 2}, 5, 4),  # never stops
        ([1, 2, 3, 4, 5], {"rounds": 1}, 2, 0),
        ([5, 4.9, 4.8, 4.7, 4.6], {"rounds": 3, "min_delta": 0.15}, 5, 4),  # 4.8 gains 0.2 over 5, 4.6 as much over 4.8
        ([1, 2, 3, 2, 1, 0], {"rounds": 2, "maximize": True}, 5, 2),
        ([1, 2, 3, 2, 1, 0], {"rounds": 2, "metric": "auc"}, 5, 2),  # auc is larger where better
        ([1, 2, 3, 2, 1, 0], {"rounds": 2, "metric": "ndcg@5"}, 5, 2),  # as XGBoost has it, built here or not
        ([3, 2, 1, 2, 3, 4], {"rounds": 2, "metric": "mape"}, 5, 2),
        ([3, 2, 1, 2, 3, 4], {"rounds": 2, "metric": "my_loss"}, 5, 2),  # an unknown one is smaller where better
    ],
)
def test_early_stopping_waits_so_many_rounds_after_the_best(matrices, values, options, rounds, best):
    assert stopped_at(matrices, values, **options) == (rounds, best)


def test_early_stopping_looks_at_the_last_metric_of_the_last_set_unless_told(matrices):
    class Two(TrainingCallback):
        def after_iteration(self, model, epoch, evals_log):
            falling, rising = [9 - e for e in range(epoch + 1)], list(range(epoch + 1))
            evals_log["first"] = {"mae": falling, "rmse": rising}
            evals_log["last"] = {"mae": rising, "rmse": falling}
            return False

    def rounds(**options):
        return gb.train({}, matrices[0], 6, callbacks=[Two(), EarlyStopping(rounds=2, **options)]).num_boosted_rounds()

    assert rounds() == 6
    assert rounds(metric_name="mae") == 3
    assert rounds(data_name="first") == 3
    assert rounds(data_name="first", metric_name="mae") == 6
    with pytest.raises(ValueError, match="metric_name must be one of mae, rmse; got 'auc'"):
        rounds(metric_name="auc")


def test_early_stopping_keeps_what_it_watched(matrices):
    stopping, scores = EarlyStopping(rounds=2, data_name="valid"), {}
    params, evals = {"eval_metric": ["mae", "rmse"]}, [(matrices[0], "train"), (matrices[1], "valid"), (matrices[1], "other")]
    gb.train(params, matrices[0], 9, evals=evals, evals_result=scores, callbacks=[stopping], verbose_eval=False)
    assert stopping.stopping_history == {"valid": {"rmse": scores["valid"]["rmse"]}}


def test_save_best_cuts_the_model_back(matrices):
    values = [5, 4, 3, 4, 5, 6]
    plain = gb.train({}, matrices[0], 3)
    stopping = EarlyStopping(rounds=2, save_best=True)
    best = gb.train({}, matrices[0], 6, callbacks=[Scripted(values), stopping])
    assert best.num_boosted_rounds() == 3
    assert best.model.trees == plain.model.trees
    assert (best.best_iteration, best.best_score) == (2, 3.0)


def test_best_round_of_a_continued_model_counts_all_its_rounds(matrices):
    first = gb.train({}, matrices[0], 4)
    stopping = EarlyStopping(rounds=2)
    booster = gb.train({}, matrices[0], 6, callbacks=[Scripted([5, 4, 5, 6]), stopping], xgb_model=first)
    assert (booster.num_boosted_rounds(), booster.best_iteration) == (8, 5)


def test_early_stopping_without_evaluations_says_what_to_pass(matrices):
    with pytest.raises(ValueError, match="needs an evaluation set. Pass evals"):
        gb.train({}, matrices[0], 3, early_stopping_rounds=2)
    with pytest.raises(ValueError, match="and eval_metric if the default is off"):
        no_metric = {"disable_default_eval_metric": True}
        gb.train(no_metric, matrices[0], 3, evals=[(matrices[1], "valid")], early_stopping_rounds=2)


@pytest.mark.parametrize("schedule", [[0.5, 0.25, 0.125], lambda epoch: 0.5 ** (epoch + 1)])
def test_scheduled_learning_rates_are_those_of_the_rounds_after(matrices, schedule):
    scheduled = gb.train({"learning_rate": 0.75}, matrices[0], 3, callbacks=[LearningRateScheduler(schedule)])
    by_hand = gb.Booster()
    for rate in (0.75, 0.5, 0.25):
        by_hand.set_param("learning_rate", rate)
        by_hand.update(matrices[0])
    assert scheduled.save_raw() == by_hand.save_raw()


def test_schedules_are_those_of_xgboost():
    xgboost = pytest.importorskip("xgboost")
    rng = np.random.default_rng(2)
    X = rng.integers(0, 9, (60, 3)).astype(np.float32)  # few values: every library finds the same splits
    y = X @ [3, 2, 1] + rng.random(60)
    params, schedule = {"max_depth": 2, "base_score": 0.0}, [0.1, 0.9, 0.2]
    ours, theirs = (
        library.train(params, library.DMatrix(X, y), 3, callbacks=[scheduler(schedule)])
        for library, scheduler in {gb: LearningRateScheduler, xgboost: xgboost.callback.LearningRateScheduler}.items()
    )
    np.testing.assert_allclose(ours.predict(gb.DMatrix(X)), theirs.predict(xgboost.DMatrix(X)), rtol=1e-4)  # 16-bit gradients


def test_constant_schedule_equals_the_parameter(matrices):
    scheduled = gb.train({"eta": 0.2}, matrices[0], 3, callbacks=[LearningRateScheduler([0.2] * 3)])
    assert scheduled.save_raw() == gb.train({"eta": 0.2}, matrices[0], 3).save_raw()


def test_monitor_prints_every_period_and_the_last_round(matrices, capsys):
    gb.train({}, matrices[0], 6, evals=[(matrices[1], "valid")], callbacks=[EvaluationMonitor(period=4)], verbose_eval=False)
    assert [line.split("\t")[0] for line in capsys.readouterr().out.splitlines()] == ["[0]", "[4]", "[5]"]


def test_monitor_of_another_worker_is_silent(matrices, capsys):
    gb.train({}, matrices[0], 2, evals=[(matrices[1], "valid")], callbacks=[EvaluationMonitor(rank=1)], verbose_eval=False)
    assert capsys.readouterr().out == ""


def test_monitor_prints_the_spread_of_folds_when_asked(capsys):
    log = {"test": {"rmse": [(0.5, 0.125)]}}
    EvaluationMonitor().after_iteration(None, 0, log)
    EvaluationMonitor(show_stdv=True).after_iteration(None, 0, log)
    assert capsys.readouterr().out == "[0]\ttest-rmse:0.50000\n[0]\ttest-rmse:0.50000+0.12500\n"
    EvaluationMonitor(logger=(lines := []).append).after_iteration(None, 3, log)
    assert lines == ["[3]\ttest-rmse:0.50000\n"] and not capsys.readouterr().out


class Foreign:
    """XGBoost's protocol, and no class of ours."""

    def __init__(self):
        self.epochs = []

    def before_training(self, model):
        return model

    def after_training(self, model):
        return model

    def before_iteration(self, model, epoch, evals_log):
        return False

    def after_iteration(self, model, epoch, evals_log):
        self.epochs.append((epoch, model.num_boosted_rounds(), len(evals_log["valid"]["rmse"])))
        return epoch == 2


def test_a_callback_that_derives_from_no_class_of_ours_is_one_by_its_methods(matrices):
    evals = [(matrices[1], "valid")]
    booster = gb.train({}, matrices[0], 9, evals=evals, callbacks=[foreign := Foreign()], verbose_eval=False)
    assert foreign.epochs == [(0, 1, 1), (1, 2, 2), (2, 3, 3)] and booster.num_boosted_rounds() == 3
    for wrong in (Foreign, object(), print):
        with pytest.raises(TypeError, match="callbacks must hold instances of TrainingCallback, or of classes with its methods"):
            gb.train({}, matrices[0], 1, callbacks=[wrong])


def test_callbacks_of_xgboost_run_here(matrices):
    xgboost = pytest.importorskip("xgboost")
    stopping = xgboost.callback.EarlyStopping(rounds=2, data_name="valid", metric_name="rmse", maximize=True)
    booster = gb.train({}, matrices[0], 9, evals=[(matrices[1], "valid")], callbacks=[stopping], verbose_eval=False)
    ours = EarlyStopping(rounds=2, maximize=True)
    same = gb.train({}, matrices[0], 9, evals=[(matrices[1], "valid")], callbacks=[ours], verbose_eval=False)
    assert booster.num_boosted_rounds() == same.num_boosted_rounds() < 9


def test_callbacks_of_xgboost_tell_train_from_cv(matrices):
    """As Optuna's pruning callback does, which takes what is no Booster of XGBoost's for the folds of cv."""
    xgboost = pytest.importorskip("xgboost")
    seen = []

    class Prune(xgboost.callback.TrainingCallback):
        def before_training(self, model):
            self.is_cv = not isinstance(model, xgboost.Booster)
            seen.append(model.num_boosted_rounds())
            return model

        def after_iteration(self, model, epoch, evals_log):
            values = evals_log["test"]["rmse"][-1]
            seen.append(values[0] if self.is_cv else values)
            return False

    history = {}
    evals = [(matrices[1], "test")]
    gb.train({}, matrices[0], 2, evals=evals, evals_result=history, callbacks=[Prune()], verbose_eval=False)
    result = gb.cv({}, matrices[0], 2, callbacks=[Prune()], as_pandas=False)
    assert seen == [0, *history["test"]["rmse"], 0, *result["test-rmse-mean"]]


def test_early_stopping_of_xgboost_saves_the_best_model(matrices):
    xgboost = pytest.importorskip("xgboost")
    models = []
    for library in (xgboost, gb):
        stopping = library.callback.EarlyStopping(rounds=2, maximize=True, save_best=True)
        evals = [(matrices[1], "valid")]
        models.append(gb.train({}, matrices[0], 9, evals=evals, callbacks=[stopping], verbose_eval=False))
        assert stopping.save_best
    assert models[0].num_boosted_rounds() == models[0].best_iteration + 1 == models[1].num_boosted_rounds()
    with pytest.raises(ValueError, match="not applicable to the `cv` function"):  # its own words
        gb.cv({}, matrices[0], 3, callbacks=[xgboost.callback.EarlyStopping(rounds=2, save_best=True)])


@pytest.mark.parametrize("hook", ["before_iteration", "after_iteration"])
def test_an_error_in_a_callback_leaves_the_model_of_the_last_round(matrices, hook):
    models = []

    class Failing(TrainingCallback):
        def before_training(self, model):
            models.append(model)
            return model

    def fail(self, model, epoch, evals_log):
        if epoch == 3:
            raise RuntimeError("stop")

    setattr(Failing, hook, fail)
    with pytest.raises(RuntimeError, match="stop"):
        gb.train({}, matrices[0], 9, callbacks=[Failing()])
    n_rounds = 3 if hook == "before_iteration" else 4
    assert models[0].save_raw() == gb.train({}, matrices[0], n_rounds).save_raw()


@pytest.mark.parametrize("has_tqdm", [True, False])
def test_a_progress_bar_shows_every_round(matrices, has_tqdm, capsys, monkeypatch):
    if has_tqdm:
        pytest.importorskip("tqdm")
    else:
        monkeypatch.setitem(sys.modules, "tqdm.auto", None)  # as if it were not installed
    gb.train({}, matrices[0], 3, evals=[(matrices[1], "valid")], callbacks=[ProgressBar(3)], verbose_eval=False)
    told = capsys.readouterr()
    if has_tqdm:
        assert "3/3" in told.err and "valid-rmse:0." in told.err
    else:
        lines = [line.split("\t") for line in told.out.splitlines()]
        assert [head for head, _ in lines] == ["round 1 of 3", "round 2 of 3", "round 3 of 3"]
        assert all(value.startswith("valid-rmse:0.") for _, value in lines)


def test_checkpoints_hold_the_model_of_their_round(matrices, tmp_path):
    booster = gb.train({}, matrices[0], 5, callbacks=[TrainingCheckPoint(tmp_path, "part", interval=2)])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["part_2.ubj", "part_4.ubj"]
    assert (tmp_path / "part_2.ubj").read_bytes() == bytes(booster[:3].save_raw())


@pytest.mark.parametrize("interval", [1, 2, 100])
@pytest.mark.parametrize("as_pickle", [False, True])
def test_checkpoints_are_named_and_timed_as_xgboosts(tmp_path, interval, as_pickle):
    xgboost = pytest.importorskip("xgboost")
    files = []
    for library, checkpoint in {gb: TrainingCheckPoint, xgboost: xgboost.callback.TrainingCheckPoint}.items():
        data, folder, model = library.DMatrix(np.eye(4), np.arange(4)), tmp_path / library.__name__, None
        folder.mkdir()
        load = pickle.loads if as_pickle else lambda raw, library=library: library.Booster(model_file=bytearray(raw))
        for n_rounds in (5, 4):  # the second time a model is trained on
            callbacks = [checkpoint(folder, "part", as_pickle, interval)]
            model = library.train({}, data, n_rounds, xgb_model=model, callbacks=callbacks)
            files.append({path.name: load(path.read_bytes()).num_boosted_rounds() for path in folder.iterdir()})
    assert files[:2] == files[2:]


def test_pickled_checkpoints_hold_parameters_and_count_the_rounds_before(matrices, tmp_path):
    booster = gb.train({"eta": 0.2}, matrices[0], 5)
    gb.train({"eta": 0.2}, matrices[0], 3, xgb_model=booster, callbacks=[TrainingCheckPoint(tmp_path, "on", True, interval=2)])
    pickled = pickle.loads((tmp_path / "on_7.pkl").read_bytes())
    assert pickled.num_boosted_rounds() == 8 and pickled.params.learning_rate == 0.2


@pytest.mark.parametrize("hook", ["before_training", "after_training"])
def test_a_callback_that_returns_no_model_is_refused(matrices, hook):
    forgetful = type("Forgetful", (TrainingCallback,), {hook: lambda self, model: None})
    with pytest.raises(TypeError, match="before_training and after_training of Forgetful must return the model, got None"):
        gb.train({}, matrices[0], 1, callbacks=[forgetful()])


@pytest.mark.parametrize("train", [gb.train, gb.cv])
def test_a_verbosity_that_is_no_number_is_refused(matrices, train):
    with pytest.raises(TypeError, match="verbose_eval must be True, False or a number of rounds, got 'x'"):
        train({}, matrices[0], 1, verbose_eval="x")


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: EarlyStopping(rounds=0), "rounds of EarlyStopping must be at least 1, got 0"),
        (lambda: EarlyStopping(rounds=1, min_delta=-1.0), "min_delta must be at least 0, got -1.0"),
        (lambda: EvaluationMonitor(period=0), "period must be at least 1, got 0"),
        (lambda: TrainingCheckPoint(".", interval=0), "interval must be at least 1, got 0"),
    ],
)
def test_wrong_settings_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_learning_rates_are_a_function_or_one_a_round():
    with pytest.raises(TypeError, match="learning_rates must be a function of the round or one value per round, got 0.1"):
        LearningRateScheduler(0.1)
