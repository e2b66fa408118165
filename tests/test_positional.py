"""Arguments by position where XGBoost takes keywords: as in programs that were written for its first versions."""

import inspect

import numpy as np
import pytest

import gpuboost as gb
from gpuboost.positional import also_by_position

rng = np.random.default_rng(7)
X = rng.normal(size=(60, 3))
Y = (X[:, 0] + 0.3 * X[:, 1] > 0).astype(np.float32)
WEIGHT, MARGIN, GROUP = rng.uniform(0.5, 2, 60), rng.normal(size=60), [20, 40]
ROWS = gb.DMatrix(X, Y)
PARAMS = {"objective": "binary:logistic", "max_depth": 2, "base_score": 0.5}


def gradients(margin, dmatrix):
    return margin - dmatrix.get_label(), np.ones(len(margin))


def trained(matrix):
    return gb.train(PARAMS, matrix, 2).save_raw()


def fitted(estimator, *args, **kwargs):
    return estimator(n_estimators=2).fit(X, Y, *args, **kwargs).get_booster().save_raw()


def graph(*args, **kwargs):
    return gb.to_graphviz(gb.train(PARAMS, ROWS, 1), *args, **kwargs).source


CALLS = {
    "DMatrix": (lambda *a, **k: trained(gb.DMatrix(X, Y, *a, **k)), {"weight": WEIGHT, "base_margin": MARGIN, "missing": 0.5}),
    "QuantileDMatrix": (
        lambda *a, **k: trained(gb.QuantileDMatrix(X, Y, *a, **k)), {"weight": WEIGHT, "base_margin": MARGIN}
    ),
    "train": (lambda *a, **k: gb.train(PARAMS, ROWS, 2, *a, **k).save_raw(), {"evals": [(ROWS, "test")], "obj": gradients}),
    "cv": (lambda *a, **k: gb.cv(PARAMS, ROWS, 2, *a, as_pandas=False, **k), {"nfold": 4, "stratified": True, "folds": None,
                                                                              "metrics": ["error"]}),
    "fit": (lambda *a, **k: fitted(gb.GPUBoostClassifier, *a, **k), {"sample_weight": WEIGHT, "base_margin": MARGIN}),
    "fit of a ranker": (lambda *a, **k: fitted(gb.GPUBoostRanker, *a, **k), {"group": GROUP}),
    "EarlyStopping": (lambda *a, **k: vars(gb.callback.EarlyStopping(*a, **k)), {"rounds": 3, "metric_name": "error"}),
    "to_graphviz": (graph, {"fmap": ""}),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_they_mean_what_they_mean_by_name(name):
    if name == "to_graphviz":
        pytest.importorskip("graphviz")
    call, arguments = CALLS[name]
    expected = call(**arguments)
    for n_named in range(1, len(arguments)):
        first, named = [*arguments][:-n_named], {name: arguments[name] for name in [*arguments][-n_named:]}
        with pytest.warns(FutureWarning, match=f"Pass {', '.join(f'{name}=' for name in first)} by name"):
            assert call(*map(arguments.get, first), **named) == expected
    with pytest.warns(FutureWarning) as warned:
        assert call(*arguments.values()) == expected
    assert warned[0].filename == __file__


def uses():
    """(ours, XGBoost's) of everything that is decorated, by a name."""
    xgboost = pytest.importorskip("xgboost", minversion="3.0")
    pairs = {
        "train": (gb.train, xgboost.train), "cv": (gb.cv, xgboost.cv),
        "DMatrix": (gb.DMatrix.__init__, xgboost.DMatrix.__init__),
        "QuantileDMatrix": (gb.QuantileDMatrix.__init__, xgboost.QuantileDMatrix.__init__),
        "fit": (gb.GPUBoostRegressor.fit, xgboost.XGBRegressor.fit),
        "fit of a classifier": (gb.GPUBoostClassifier.fit, xgboost.XGBClassifier.fit),
        "fit of a ranker": (gb.GPUBoostRanker.fit, xgboost.XGBRanker.fit),
        "EarlyStopping": (gb.callback.EarlyStopping.__init__, xgboost.callback.EarlyStopping.__init__),
        "plot_importance": (gb.plot_importance, xgboost.plot_importance),
        "plot_tree": (gb.plot_tree, xgboost.plot_tree), "to_graphviz": (gb.to_graphviz, xgboost.to_graphviz),
    }  # fmt: skip
    pytest.importorskip("distributed")
    from xgboost import dask as theirs

    from gpuboost import dask as ours

    return pairs | {
        "dask.train": (ours.train, theirs.train),
        "DaskDMatrix": (ours.DaskDMatrix.__init__, theirs.DaskDMatrix.__init__),
        "DaskQuantileDMatrix": (ours.DaskQuantileDMatrix.__init__, theirs.DaskQuantileDMatrix.__init__),
        "fit on Dask": (ours.DaskGPUBoostRegressor.fit, theirs.DaskXGBRegressor.fit),
        "fit of a ranker on Dask": (ours.DaskGPUBoostRanker.fit, theirs.DaskXGBRanker.fit),
    }


def named(function, kind):
    return [p.name for p in inspect.signature(function).parameters.values() if p.kind is kind]


def test_xgboost_has_them_in_this_order():
    first, then = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    for name, (own, peer) in uses().items():
        taken = [*named(own, first), *own.by_position]
        assert (named(peer, first) + named(peer, then))[: len(taken)] == taken, name
        assert {*own.by_position} <= {*named(own, then), *DMATRIX}, name


DMATRIX = inspect.signature(gb.DMatrix.__init__).parameters  # which the other matrices pass on


def test_what_comes_too_often_or_too_late_is_refused():
    with pytest.raises(TypeError, match="train got evals twice: by position and by name"):
        gb.train(PARAMS, ROWS, 1, [], evals=[])
    with pytest.raises(TypeError, match="train takes no argument behind obj by position. Name the others"):
        gb.train(PARAMS, ROWS, 1, [], None, True)
    with pytest.raises(TypeError, match="label"):
        gb.DMatrix(X, Y, label=Y)


def test_signatures_and_docstrings_stay_the_functions_own():
    @also_by_position("c")
    def example(a, b=1, *, c=2):
        """Adds."""
        return a + b + c

    assert str(inspect.signature(example)) == "(a, b=1, *, c=2)" and example.__doc__ == "Adds." and example(1, c=0) == 2
    assert inspect.signature(gb.train).parameters["evals"].kind is inspect.Parameter.KEYWORD_ONLY
