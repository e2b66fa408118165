"""The estimators' parameters: XGBoost's and train()'s, by name and alias, set, cloned, shown and refused."""

import inspect

import numpy as np
import pytest
from estimator_tables import digest, make_table

import gpuboost as gb

pytest.importorskip("sklearn", minversion="1.6")
from sklearn.base import clone  # noqa: E402
from sklearn.metrics import mean_absolute_error  # noqa: E402
from sklearn.pipeline import Pipeline  # noqa: E402
from sklearn.utils.validation import has_fit_parameter  # noqa: E402

from gpuboost import GPUBoostClassifier, GPUBoostRegressor  # noqa: E402
from gpuboost.params import ALIASES, Params  # noqa: E402

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def table():
    return make_table()


def test_parameters_are_those_of_training():
    own = {"n_estimators", "missing", "early_stopping_rounds", "callbacks", "importance_type", "enable_categorical"}
    own |= {"feature_types", "sparse_absent", "refit_full"}
    aliases = {"n_jobs", "random_state"}
    for estimator in (GPUBoostClassifier(), GPUBoostRegressor()):
        params = estimator.get_params()
        assert set(params) - own - aliases == set(Params.__dataclass_fields__) - {"nthread", "seed", "num_class", "num_target"}
        given = {name for name, value in params.items() if value is not None}
        assert given == {"n_estimators", "missing", "enable_categorical", "objective"}


@pytest.mark.parametrize("make", [GPUBoostClassifier, GPUBoostRegressor])
@pytest.mark.parametrize("name", sorted({*Params.__dataclass_fields__, *ALIASES} - {"seed", "nthread"}))
def test_every_parameter_of_training_can_be_given_set_and_cloned(make, name):
    value = object()
    for model in (make(**{name: value}), make().set_params(**{name: value}), clone(make()).set_params(**{name: value})):
        assert model.get_params()[name] is value
    assert clone(make(**{name: 5})).get_params()[name] == 5
    pipeline = Pipeline([("model", make())]).set_params(**{f"model__{name}": 5})
    assert pipeline.get_params()[f"model__{name}"] == 5
    assert name not in make().get_params() or name == "objective" or make().get_params()[name] is None


@pytest.mark.parametrize("kind", ["Classifier", "Regressor", "Ranker", "RFClassifier", "RFRegressor"])
@pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning")
def test_the_default_objective_is_xgboosts(kind):
    xgb = pytest.importorskip("xgboost")
    ours, theirs = getattr(gb, f"GPUBoost{kind}")(), getattr(xgb, f"XGB{kind}")()
    assert ours.objective == ours.get_params()["objective"] == theirs.objective
    assert type(ours)(objective=None).get_xgb_params()["objective"] == theirs.objective


def test_a_subclass_keeps_defaults_and_may_have_its_own():
    class Plain(GPUBoostClassifier):
        pass

    class Deep(GPUBoostClassifier, max_depth=12):
        pass

    class Narrow(GPUBoostClassifier):
        def __init__(self, max_depth=2):
            super().__init__(max_depth=max_depth)

    assert Plain().get_params() == GPUBoostClassifier().get_params()
    assert clone(Deep(eta=0.1)).get_params()["max_depth"] == 12 and "max_depth=3" in repr(Deep(max_depth=3))
    assert Narrow().get_params() == {"max_depth": 2} and Narrow().objective == "binary:logistic"


def test_a_subclass_may_have_parameters_of_its_own(table):
    """Training hears of those that it knows; with keywords of any name in its signature all others are there as well."""

    class Named(GPUBoostRegressor):
        def __init__(self, share=0.5, max_depth=2):
            self.share = share
            super().__init__(max_depth=max_depth, n_estimators=3)

    class Keywords(GPUBoostRegressor):
        def __init__(self, share=0.5, **further):
            self.share = share
            super().__init__(**further)

    plain = GPUBoostRegressor(max_depth=2, n_estimators=3).fit(*table[:2])
    for own in (Named(0.25), Keywords(share=0.25, max_depth=2, n_estimators=3)):
        assert own.get_xgb_params() == plain.get_xgb_params() and clone(own).share == 0.25
        assert digest(clone(own).fit(*table[:2])) == digest(plain)

    class Further(Keywords):
        def __init__(self, extra=1, **further):
            self.extra = extra
            super().__init__(**further)

    for set_later in (Named(), Keywords(), Further(), clone(Further(share=0.75, extra=3))):
        set_later.set_params(share=0.25, max_depth=2, n_estimators=3, reg_lambda=1.0)
        given = set_later.get_params()
        assert set_later.share == given["share"] == 0.25 and set_later.n_estimators == 3
        assert set_later.fit(*table[:2]).get_booster().num_boosted_rounds() == 3 and digest(set_later) == digest(plain)
    assert clone(Further(share=0.75, extra=3)).get_params()["share"] == 0.75 and clone(Further(extra=3)).extra == 3
    assert Keywords().set_params(missing=0.0).missing == 0.0 and Keywords().set_params(eta=0.5).get_xgb_params()["eta"] == 0.5
    assert Keywords(eta=0.5).get_params()["eta"] == 0.5 and Keywords(max_depth=4).get_params()["max_depth"] == 4
    with pytest.raises(ValueError, match="unknown parameter 'shares'"):
        Keywords(shares=0.25).fit(*table[:2])


@pytest.mark.parametrize("make", [GPUBoostClassifier, GPUBoostRegressor])
def test_help_and_completion_know_every_parameter(make):
    signature = inspect.signature(make)
    assert {name: p.default for name, p in signature.parameters.items() if name != "kwargs"} == make().get_params()
    assert all(f"\n    {name} : " in make.__doc__ for name in signature.parameters)
    with pytest.raises(TypeError, match="positional"):
        make(100)


def test_aliases_are_the_parameters_they_stand_for(table):
    X, y, _ = table
    plain = GPUBoostRegressor(n_estimators=2, learning_rate=0.1, reg_lambda=3, random_state=4, n_jobs=1).fit(X, y)
    aliased = GPUBoostRegressor(n_estimators=2, eta=0.1, seed=4, nthread=1, **{"lambda": 3}).fit(X, y)
    assert digest(aliased) == digest(plain) and plain.get_booster().params == aliased.get_booster().params
    assert (plain.get_booster().params.seed, plain.get_booster().params.nthread) == (4, 1)
    with pytest.raises(ValueError, match="seed.* was given twice, as seed=5 and random_state=4"):
        plain.set_params(seed=5).fit(X, y)


def test_every_keyword_reaches_training(table):
    X, y, _ = table
    model = GPUBoostRegressor(n_estimators=1, disable_default_eval_metric=True).fit(X, y, eval_set=[(X, y)])
    with pytest.raises(ValueError, match="no evaluation result"):
        model.evals_result()
    with pytest.raises(ValueError, match="unknown parameter 'max_dept'. Did you mean 'max_depth'"):
        GPUBoostRegressor(max_dept=3).fit(X, y)


@pytest.mark.parametrize("n_classes", [1, 2, 3])
def test_parameters_for_train_and_cv_are_those_of_fit(table, n_classes):
    X, signal, _ = table
    y = np.digitize(signal, [0.7, 1.2][: n_classes - 1]) if n_classes > 1 else signal
    make = GPUBoostClassifier if n_classes > 1 else GPUBoostRegressor
    model = make(n_estimators=None, max_depth=2, eta=0.1, random_state=4, missing=-1, eval_metric=["error", "logloss"])
    given = {"max_depth": 2, "eta": 0.1, "random_state": 4, "eval_metric": ["error", "logloss"]}
    unfitted = {"objective": "reg:squarederror" if n_classes == 1 else "binary:logistic"}
    assert model.get_xgb_params() == given | unfitted and model.get_num_boosting_rounds() == 100
    model.set_params(n_estimators=3).fit(X, y)
    fitted = {"objective": "multi:softprob", "num_class": 3} if n_classes == 3 else unfitted
    assert model.get_xgb_params() == given | fitted and model.get_num_boosting_rounds() == 3
    booster = gb.train(model.get_xgb_params(), gb.DMatrix(X, y), 3)
    np.testing.assert_array_equal(booster.predict(gb.DMatrix(X)), model.get_booster().predict(gb.DMatrix(X)))
    functions = make(objective=lambda y, p: (p - y, p * 0 + 1), eval_metric=mean_absolute_error)
    assert functions.get_xgb_params() == unfitted


@pytest.mark.parametrize("n", [-1, 2.5, "many"])
def test_n_estimators_must_be_a_number_of_rounds(table, n):
    with pytest.raises(ValueError, match="n_estimators must be an integer at least 0, got"):
        GPUBoostRegressor(n_estimators=n).fit(*table[:2])


def test_no_estimators_means_xgboosts_100(table):
    X, y, _ = table
    assert GPUBoostRegressor(n_estimators=None, max_depth=1).fit(X, y).get_booster().num_boosted_rounds() == 100


def test_fit_shows_its_arguments():
    """scikit-learn's tools look at the signature for what they may pass on."""
    for make in (GPUBoostClassifier, GPUBoostRegressor):
        for name in ("sample_weight", "base_margin", "eval_set", "sample_weight_eval_set", "xgb_model"):
            assert has_fit_parameter(make(), name)
        assert inspect.signature(make.fit) == inspect.signature(GPUBoostRegressor.fit)


def test_wrong_parameters_are_named_at_fit(table):
    X, y, _ = table
    with pytest.raises(ValueError, match="max_depth must be"):
        GPUBoostRegressor(max_depth=-5).fit(X, y)
    with pytest.raises(ValueError, match="booster must be 'gbtree', 'dart' or 'gblinear', got 'gbforest'"):
        GPUBoostRegressor(booster="gbforest").fit(X, y)
    with pytest.raises(ValueError, match="objective of a classifier must be .* got 'reg:squarederror'"):
        GPUBoostClassifier(objective="reg:squarederror").fit(X, y > 1)


def test_random_state_may_be_a_generator(table):
    X, y, _ = table
    fits = [GPUBoostRegressor(n_estimators=2, random_state=np.random.RandomState(5)).fit(X, y) for _ in range(2)]
    seeds = [fit.get_booster().params.seed for fit in fits]
    assert digest(fits[0]) == digest(fits[1]) and seeds == [np.random.RandomState(5).randint(2**31 - 1)] * 2
    with pytest.raises(ValueError, match="cannot be used to seed"):
        GPUBoostRegressor(random_state="five").fit(X, y)


@pytest.mark.parametrize("make_generator", [np.random.RandomState, np.random.default_rng])
def test_a_generator_draws_a_seed_in_each_fit(make_generator):
    X, y = np.random.default_rng(0).normal(size=(80, 3)), np.arange(80.0)
    model = GPUBoostRegressor(n_estimators=2, subsample=0.5, random_state=make_generator(3))
    seeds = [model.fit(X, y).get_booster().params.seed for _ in range(2)]
    again = [make_generator(3)]
    draw = again[0].randint if hasattr(again[0], "randint") else again[0].integers
    assert seeds == [draw(2**31 - 1) for _ in range(2)] and seeds[0] != seeds[1]
