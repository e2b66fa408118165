"""GPUBoostRanker: queries by group, qid or a column of a frame, as train() has them; score, stopping, cloning, refusals."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.model_selection import GroupKFold, cross_val_score

import gpuboost as gb
from gpuboost.model_io import digest

SIZES = np.array([20, 35, 5, 60, 30])
QID = np.repeat([2, 3, 5, 7, 11], SIZES)
PARAMS = {"n_estimators": 4, "max_depth": 3, "n_jobs": 1}


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(150, 4)).astype(np.float32)
    return X, np.digitize(X[:, 0] + rng.normal(size=150) * 0.7, [-0.5, 0.5, 1.5])


def digest_of(model):
    return digest(model.get_booster().model)


def test_queries_may_be_given_in_any_way(table):
    X, y = table
    pandas_frame, polars_frame = pd.DataFrame(X, columns=list("abcd")), pl.DataFrame(X, schema=list("abcd"))
    for frame, with_qid in (
        (pandas_frame, pandas_frame.assign(qid=QID)), (polars_frame, polars_frame.with_columns(qid=pl.Series(QID))),
    ):  # fmt: skip
        data = gb.DMatrix(frame, y, qid=QID)
        booster = gb.train({"objective": "rank:ndcg", "max_depth": 3}, data, 4)
        for given in ({"group": SIZES}, {"qid": QID}):
            assert digest_of(gb.GPUBoostRanker(**PARAMS).fit(frame, y, **given)) == digest(booster.model)
        model = gb.GPUBoostRanker(**PARAMS).fit(with_qid, y)
        assert digest_of(model) == digest(booster.model) and model.n_features_in_ == 4
        assert model.predict(with_qid).tolist() == booster.predict(data).tolist()
        assert model.apply(with_qid).shape == (150, 4)
        assert model.score(with_qid, y) == booster.evaluate([(data, "")])[0][2]
        for background in (None, with_qid):
            explanation = model.explain(with_qid, background=background)
            assert explanation.values.shape == explanation.data.shape == (150, 4)
            total = explanation.values.sum(axis=1) + explanation.base_values
            np.testing.assert_allclose(total, model.predict(with_qid), atol=1e-5)


def test_evaluation_sets_weights_and_early_stopping(table):
    X, y = table
    weight = np.array([1, 2, 0.5, 3, 1])
    model = gb.GPUBoostRanker(**PARAMS | {"n_estimators": 40}, early_stopping_rounds=2, eval_metric=["map@3-", "ndcg@5"])
    with pytest.raises(ValueError, match="'map' needs labels that are 0 or 1"):
        model.fit(X, y, qid=QID, eval_set=[(X, y)], eval_qid=[QID])
    model.set_params(eval_metric=["ndcg@5", "ndcg@3-"])
    model.fit(
        X, y, qid=QID, sample_weight=weight, eval_set=[(X, y), (X[::-1], y)], eval_group=[SIZES, SIZES[::-1]],
        sample_weight_eval_set=[weight, weight[::-1]],
    )  # fmt: skip
    log = model.evals_result()["validation_1"]["ndcg@3-"]
    assert model.best_iteration == int(np.argmax(log)) and len(log) == model.best_iteration + 3
    data = gb.DMatrix(X, y, qid=QID)
    best = gb.Booster({"eval_metric": "ndcg@3-"}, model_file=model.get_booster()[: model.best_iteration + 1].save_raw())
    assert model.score(X, y, qid=QID) == best.evaluate([(data, "")])[0][2]


def test_it_is_an_estimator_of_scikit_learn(table):
    X, y = table
    model = clone(gb.GPUBoostRanker(objective="rank:pairwise", lambdarank_pair_method="mean", **PARAMS))
    assert model.get_params()["lambdarank_pair_method"] == "mean"
    frame = pd.DataFrame(X).assign(qid=QID)
    frame.columns = frame.columns.astype(str)
    scores = cross_val_score(model, frame, y, groups=QID, cv=GroupKFold(3), error_score="raise")
    assert len(scores) == 3 and (scores > 0.3).all() and (scores <= 1).all()


def test_what_a_ranker_refuses(table):
    X, y = table
    frame = pd.DataFrame(X, columns=list("abcd")).assign(qid=QID)
    model = gb.GPUBoostRanker(**PARAMS)
    for given in ({}, {"group": SIZES, "qid": QID}):
        with pytest.raises(ValueError, match="once which rows are one query, and was told .*. Pass group or qid"):
            model.fit(X, y, **given)
    with pytest.raises(ValueError, match="once which rows are one query, and was told 2 times"):
        model.fit(frame, y, qid=QID)
    with pytest.raises(ValueError, match="objective of a ranker must be .*, got <built-in function pow>"):
        gb.GPUBoostRanker(objective=pow).fit(X, y, qid=QID)
    with pytest.raises(ValueError, match="qid must not decrease"):
        model.fit(X, y, qid=QID[::-1])
    with pytest.raises(ValueError, match="Pass eval_group or eval_qid"):
        model.fit(X, y, qid=QID, eval_set=[(X, y)])
    with pytest.raises(ValueError, match=r"eval_qid must have one entry per pair of eval_set \(1\), got 2"):
        model.fit(X, y, qid=QID, eval_set=[(X, y)], eval_qid=[QID, QID])
    for objective in ("reg:squarederror", lambda y, p: (p - y, y)):
        with pytest.raises(ValueError, match="objective of a ranker must be rank:ndcg, rank:map or rank:pairwise"):
            gb.GPUBoostRanker(objective=objective).fit(X, y, qid=QID)
    with pytest.raises(ValueError, match="refit_full joins tables, not queries"):
        gb.GPUBoostRanker(refit_full=True).fit(X, y, qid=QID)


def test_queries_may_be_a_column():
    X, y = np.random.default_rng(0).random((40, 2)), np.arange(40) % 3
    numbers = np.arange(40) // 10
    expected = gb.DMatrix(X, y, qid=numbers)
    for given in ({"qid": numbers[:, None]}, {"group": np.full((4, 1), 10)}):
        assert gb.DMatrix(X, y, **given).get_uint_info("group_ptr").tolist() == expected.get_uint_info("group_ptr").tolist()
    with pytest.raises(ValueError, match="qid must hold integers in one dimension"):
        gb.DMatrix(X, y, qid=np.zeros((40, 2), int))

    class Halves(gb.DataIter):
        def __init__(self, queries):
            super().__init__()
            self.queries, self.at = queries, 0

        def next(self, give):
            own, self.at = slice(self.at, self.at + 20), self.at + 20
            if own.start < 40:
                give(data=X[own], label=y[own], qid=self.queries[own])
            return int(own.start < 40)

        def reset(self):
            self.at = 0

    given = numbers, numbers[:, None]
    models = {digest(gb.train({"objective": "rank:ndcg"}, gb.QuantileDMatrix(Halves(q)), 2).model) for q in given}
    assert models == {digest(gb.train({"objective": "rank:ndcg"}, expected, 2).model)}
