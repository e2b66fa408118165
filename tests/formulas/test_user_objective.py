"""@gpuboost.objective and @gpuboost.metric: a user's scalar functions train and evaluate like the built-in ones."""

import copy
import math
import pickle

import numpy as np
import pytest
from naive_backend import NaiveBackend
from simulator import SimulatedDevice
from sklearn.base import clone

import gpuboost as gb
from gpuboost import metrics, objectives
from gpuboost.backend import CpuBackend
from gpuboost.backend.cuda import CudaBackend
from gpuboost.communicator import run_threads
from gpuboost.model_io import digest
from gpuboost.params import Params

N_ROWS = 150


BACKENDS = {
    "one thread": lambda: CpuBackend(1), "threads": lambda: CpuBackend(2), "naive": NaiveBackend,
    "simulator": lambda: CudaBackend(SimulatedDevice()),
}  # fmt: skip


def table(n_rows=N_ROWS, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 4)).astype(np.float32)
    return X, (X[:, 0] + rng.normal(size=n_rows) > 0).astype(np.float32), rng.integers(1, 4, n_rows).astype(np.float32)


def matrix(rows=slice(None), n_rows=N_ROWS):
    X, y, weight = table(n_rows)
    return gb.DMatrix(X[rows], y[rows], weight=weight[rows])


def train(objective, rounds=3, dtrain=None, eval_metric=(), **options):
    params = {"objective": objective, "max_depth": 3, "disable_default_eval_metric": True, "eval_metric": eval_metric}
    return gb.train(params, dtrain or matrix(), rounds, verbose_eval=False, **options)


@pytest.mark.long
@pytest.mark.sweep(1)
@pytest.mark.parametrize("objective", ["focal-loss@gamma=1.5", "my_logistic", "by_weight@factor=2.0"])
def test_one_model_everywhere(objective, use_backend, tmp_path):
    digests = {}
    for name, make in BACKENDS.items():
        use_backend(make())
        digests[name] = digest(train(objective, 2).model)
    use_backend(CpuBackend(2))
    bounds = [0, 40, 41, N_ROWS]
    shards = run_threads(3, lambda rank: train(objective, 2, matrix(slice(bounds[rank], bounds[rank + 1]))))
    digests |= {f"worker {rank}": digest(booster.model) for rank, booster in enumerate(shards)}
    train(objective, 1).save_model(tmp_path / "model.ubj")
    digests["resumed"] = digest(train(objective, 1, xgb_model=tmp_path / "model.ubj").model)
    assert len(set(digests.values())) == 1, digests


def test_the_built_in_logistic_rewritten_grows_its_trees(formulas):
    params = {"max_depth": 4, "disable_default_eval_metric": True}
    own = gb.train({**params, "objective": formulas.my_logistic, "base_score": 0.0}, matrix(), 5)  # a margin
    built_in = gb.train({**params, "objective": "binary:logistic", "base_score": 0.5}, matrix(), 5)
    assert own.model.trees == built_in.model.trees
    np.testing.assert_array_equal(own.predict(matrix()), built_in.predict(matrix()))


def test_derivatives_of_a_loss_are_the_closed_form():
    margin = np.linspace(-20, 20, 801, dtype=np.float32)
    found = objectives.get_objective("logistic_loss", Params(objective="logistic_loss"))
    for label in (0.0, 1.0, 0.3):
        p = 1 / (1 + np.exp(-margin.astype(np.float64)))
        pairs = [found.gradient(m, np.float32(label), np.float32(1), 0, found.parameters) for m in margin]
        np.testing.assert_allclose([g for g, _ in pairs], p - np.float32(label), rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose([h for _, h in pairs], p * (1 - p), rtol=1e-6, atol=1e-7)


def test_a_poisson_loss_is_count_poisson(formulas):
    X, _, _ = table()
    y = np.random.default_rng(1).poisson(np.exp(X[:, 0])).astype(np.float32)
    params = {"max_delta_step": 0.0, "max_depth": 3, "disable_default_eval_metric": True}
    own = gb.train({**params, "objective": formulas.my_poisson, "base_score": 0.0}, gb.DMatrix(X, y), 5)
    built_in = gb.train({**params, "objective": "count:poisson", "base_score": 1.0}, gb.DMatrix(X, y), 5)
    np.testing.assert_allclose(own.predict(gb.DMatrix(X)), built_in.predict(gb.DMatrix(X)), rtol=1e-5)


def test_by_name_by_object_and_in_estimators(formulas):
    by_object, by_name = train(formulas.focal.using(gamma=1.5)), train("focal-loss@gamma=1.5")
    assert digest(by_object.model) == digest(by_name.model)
    assert train("focal-loss@1.5").model.trees == by_object.model.trees != train(formulas.focal).model.trees
    assert by_object.model.objective == "focal-loss@gamma=1.5" and repr(formulas.focal) == "focal-loss"
    X, y, weight = table()
    for objective in (formulas.focal.using(gamma=1.5), "focal-loss@gamma=1.5"):
        estimator = clone(gb.GPUBoostClassifier(objective=objective, n_estimators=3, max_depth=3))
        fitted = estimator.fit(X, y, sample_weight=weight)
        np.testing.assert_array_equal(fitted.predict_proba(X)[:, 1], by_object.predict(matrix()))
    regressor = gb.GPUBoostRegressor(objective=formulas.by_weight, n_estimators=2, eval_metric=formulas.within)
    regressor.fit(X, y, eval_set=[(X, y)])
    assert list(regressor.evals_result()["validation_0"]) == ["within"]
    assert formulas.focal(0.0, 1.0) == pytest.approx(math.log(2) / 4), "it is still the function"


def test_one_formula_has_one_name(formulas):
    same = [formulas.focal.using(gamma=np.float64(1.5)), formulas.focal.using(floor=1e-15, gamma=1.5)]
    assert {formula.registered_name for formula in same} == {"focal-loss@gamma=1.5"}
    assert formulas.focal.using(gamma=2) == formulas.focal
    names = {train(name).model.objective for name in ("focal-loss@1.5", "focal-loss@floor=1e-15,gamma=1.50", same[0])}
    assert names == {"focal-loss@gamma=1.5"}
    for again in ("focal-loss@1.5", formulas.focal.using(gamma=1.5)):
        assert train(again, 1, xgb_model=train(same[0], 1)).num_boosted_rounds() == 2
    with pytest.raises(ValueError, match="the model was trained with 'focal-loss@gamma=1.5'"):
        train(formulas.focal, 1, xgb_model=train(same[0], 1))
    with pytest.raises(ValueError, match="gamma must be a finite number, got 'nan'"):
        train("focal-loss@gamma=nan")
    for name in ("a@b", "a,b"):
        with pytest.raises(ValueError, match="name must have neither @ nor comma"):
            gb.metric(name=name)(constant_slope)
    with pytest.raises(ValueError, match="labels must be the smallest and the largest"):
        gb.objective(labels=(1, 0))(constant_slope)


def test_a_definition_that_was_replaced_says_so():
    def make(constant):
        @gb.metric
        def distance_to(prediction, label):
            return abs(prediction - constant)

        return distance_to

    first, second = make(1.0), make(3.0)
    assert first(0, 0) == 1 and second.registered_name == "distance_to"
    with pytest.raises(ValueError, match="'distance_to' has been defined anew since"):
        train("reg:squarederror", eval_metric=first)


@pytest.mark.parametrize("threshold", [0.0, 0.5])
def test_a_kink_at_margin_0_is_not_where_rows_stay(threshold, formulas):
    X = np.random.default_rng(0).normal(size=(400, 3))
    data, losses = gb.DMatrix(X, (X[:, 0] > threshold).astype(float)), []
    for objective in (formulas.stable_logistic, "binary:logistic"):
        gb.train({"objective": objective}, data, 5, evals=[(data, "t")], evals_result=(scores := {}), verbose_eval=False)
        losses.append(scores["t"]["logloss"][-1])
    assert losses[0] == pytest.approx(losses[1], rel=0.05) and losses[0] < 0.4


def test_a_start_beside_0_stays_beside_it_and_near(formulas):
    x = np.random.default_rng(0).normal(size=(400, 3))
    centred = gb.DMatrix(x, np.where(x[:, 0] > np.median(x[:, 0]), 1.0, -1.0))
    booster = gb.train({"objective": formulas.kinked_square}, centred, 20, verbose_eval=False)
    assert abs(booster.predict(centred) - centred.get_label()).max() < 0.1
    cubes = gb.DMatrix(x, x[:, 0] ** 3)
    assert gb.train({"objective": formulas.quartic}, cubes, 1, verbose_eval=False).model.base_score == (0.0,)


def test_pickled_and_copied(formulas):
    for objective in (formulas.focal, formulas.focal.using(gamma=0.5), formulas.within):
        again = pickle.loads(pickle.dumps(objective))
        assert again == objective == copy.deepcopy(objective) and hash(again) == hash(objective)
    assert formulas.focal != formulas.focal.using(gamma=0.5)

    @gb.objective
    def nested(margin, label):
        return margin - label, 1.0

    with pytest.raises(pickle.PicklingError, match="'nested' is defined inside a function.* Define it at the top of a module"):
        pickle.dumps(nested)


def test_metrics_are_weighted_means(formulas):
    X, y, weight = table()
    log = {}
    metrics_given = [formulas.within.using(distance=0.4), "within@distance=0.3", "within@0.6", formulas.hit_rate, "logloss"]
    booster = gb.train(
        {"objective": "binary:logistic", "eval_metric": metrics_given}, matrix(), 2, evals=[(matrix(), "own")], evals_result=log,
        verbose_eval=False,
    )  # fmt: skip
    prediction = booster.predict(gb.DMatrix(X))
    assert list(log["own"]) == ["within@distance=0.4", "within@distance=0.3", "within@0.6", "hits", "logloss"]
    for name, distance in (("within@distance=0.4", 0.4), ("within@distance=0.3", 0.3), ("within@0.6", 0.6)):
        expected = np.average(np.abs(prediction - y) <= np.float32(distance), weights=weight)
        assert log["own"][name][-1] == pytest.approx(expected, abs=1e-6)
    assert log["own"]["hits"][-1] == pytest.approx(np.average((prediction > 0.5) == (y == 1), weights=weight), abs=1e-12)


def test_a_metric_may_stop_training_at_its_largest(formulas):
    log = {}
    booster = gb.train(
        {"eval_metric": formulas.hit_rate, "objective": formulas.my_logistic}, matrix(), 200,
        evals=[(matrix(n_rows=60), "other")], early_stopping_rounds=3, verbose_eval=False,
        evals_result=log,
    )  # fmt: skip
    assert booster.num_boosted_rounds() < 200
    assert booster.best_score == max(log["other"]["hits"])


def test_a_model_whose_objective_is_not_known_here(formulas, tmp_path, monkeypatch):
    booster = train(formulas.focal)
    booster.save_model(tmp_path / "model.json")
    margins = booster.predict(matrix(), output_margin=True)
    monkeypatch.setattr(objectives._registry, "_classes", {
        name: cls for name, cls in objectives._registry._classes.items() if name != "focal-loss"
    })  # fmt: skip
    loaded = gb.Booster(model_file=tmp_path / "model.json")
    np.testing.assert_array_equal(loaded.predict(matrix(), output_margin=True), margins)
    with pytest.raises(NotImplementedError, match="'focal-loss' of this model is not known here. Import the module"):
        loaded.predict(matrix())
    with pytest.raises(ValueError, match="objective must be one of .*got 'focal-loss'"):
        train("focal-loss")


def test_definitions_are_refused_where_they_stand():
    def one_argument(margin):
        return margin

    def no_default(margin, label, k):
        return margin * k

    def constant(margin, label):
        return 2 * label

    def unset(margin, label):
        if label > 1:
            x = margin
        return x * margin

    for function, message in (
        (one_argument, "It takes 1 arguments"), (no_default, "'k' has no finite number as default"),
        (constant, "does not depend on 'margin'"),
        (unset, r"return x \* margin\n'x' may not be set here"),
    ):  # fmt: skip
        with pytest.raises(gb.FormulaError, match=message):
            gb.objective(function)
    with pytest.raises(gb.FormulaError, match="A metric takes a prediction and a label"):
        gb.metric(one_argument)
    with pytest.raises(ValueError, match="'reg:squarederror' is gpuboost.objectives.regression.SquaredError already"):
        gb.objective(name="reg:squarederror")(constant_slope)
    with pytest.raises(ValueError, match="link must be 'identity', 'logit', 'log', got 'probit'"):
        gb.objective(link="probit")
    assert "rmse" in metrics.metric_names()
    with pytest.raises(ValueError, match="eval_metric 'rmse' is gpuboost.metrics.pointwise"):
        gb.metric(name="rmse")(constant_slope)


def constant_slope(margin, label):
    return abs(margin - label)


def test_values_are_refused_when_training_begins(formulas):
    @gb.objective
    def log_of_margin(margin, label):
        return -math.log(margin) * label

    @gb.objective
    def concave(margin, label):
        return -((margin - label) ** 2)

    dtrain = matrix()
    with pytest.raises(ValueError, match="focal-loss has no parameter 'gama'. Did you mean 'gamma'?"):
        train("focal-loss@gama=2")
    with pytest.raises(ValueError, match="gamma must be a finite number, got 'two'"):
        train("focal-loss@gamma=two")
    with pytest.raises(ValueError, match="has no parameter 'alpha'"):
        formulas.focal.using(alpha=1)
    with pytest.raises(ValueError, match="needs labels that are between 0 and 1; 1 of 150"):
        X, y, _ = table()
        train(formulas.focal, dtrain=gb.DMatrix(X, np.append(y[1:], 3)))
    with pytest.raises(FloatingPointError, match="(?s)def log_of_margin.*not finite at margin 0.*max"):
        train(log_of_margin, dtrain=dtrain)
    with pytest.warns(UserWarning) as warnings:
        train(concave, 1, dtrain=dtrain)
    assert any("def concave" in str(w.message) and "100% of the hessians of concave are neg" in str(w.message) for w in warnings)


def check_compiled(kernel):
    """For a GPU: no calls, no stack."""
    pytest.importorskip("numba.cuda.np.numpy_support", reason="needs numba-cuda", exc_type=ImportError)
    pytest.importorskip("cuda.core", reason="needs an assembler", exc_type=ImportError)
    from gpuboost.backend.cuda.compiler import compile_kernel, to_ptx

    assert compile_kernel(kernel, {}, (9, 0)).spill_bytes == 0
    ptx = to_ptx(kernel, {}, (9, 0))
    assert "call" not in ptx.replace("callseq", "") and ".local" not in ptx


@pytest.mark.long
@pytest.mark.sweep(1)
@pytest.mark.parametrize("name", ["my_logistic", "focal-loss", "by_weight"])
def test_a_gpu_computes_it_without_calls_or_a_stack(name):
    check_compiled(objectives.get_objective(name, Params(objective=name)).gradients_kernel)
