"""XGBoost's examples for Dask as their documentation has them, with the import and the names of classes changed.

    python examples/dask_as_xgboost.py
"""

import logging

import dask.array as da
import dask.dataframe as dd
import distributed
import numpy as np
import pandas as pd
from distributed import Client, LocalCluster

from gpuboost import callback
from gpuboost import dask as dxgb  # from xgboost import dask as dxgb
from gpuboost.dask import DaskDMatrix  # from xgboost.dask import DaskDMatrix


def train_functional(client):
    """demo/dask/cpu_training.py"""
    m, n = 10_000, 20
    X = da.random.random((m, n), chunks=(1000, n))
    y = X.sum(axis=1)
    X, y = client.persist([X, y])
    dtrain = DaskDMatrix(client, X, y)
    output = dxgb.train(client, {"verbosity": 1, "tree_method": "hist"}, dtrain, num_boost_round=4, evals=[(dtrain, "train")])
    bst, history = output["booster"], output["history"]
    prediction = dxgb.predict(client, bst, dtrain)
    print("Evaluation history:", history)
    return prediction


def train_sklearn(client):
    """demo/dask/sklearn_cpu_training.py"""
    X = da.random.random((10_000, 20), chunks=(1000, 20))
    y = da.random.random(10_000, chunks=1000)
    regressor = dxgb.DaskGPUBoostRegressor(verbosity=1, n_estimators=2)  # DaskXGBRegressor
    regressor.set_params(tree_method="hist")
    regressor.client = client
    regressor.fit(X, y, eval_set=[(X, y)])
    prediction = regressor.predict(X)
    print(regressor.get_booster(), regressor.evals_result())
    return prediction


def train_with_callbacks(client):
    """demo/dask/dask_callbacks.py"""
    X = da.random.random((10_000, 10), chunks=(1000, 10))
    y = (X[:, 0] > 0.5).astype(int)
    dtrain, dvalid = DaskDMatrix(client, X[:8000], y[:8000]), DaskDMatrix(client, X[8000:], y[8000:])
    output = dxgb.train(
        client, {"objective": "binary:logistic", "eval_metric": ["error", "rmse"], "max_depth": 6, "learning_rate": 0.2}, dtrain,
        num_boost_round=20, evals=[(dvalid, "validation")],
        callbacks=[callback.EarlyStopping(rounds=2, save_best=True, data_name="validation", metric_name="error")],
    )  # fmt: skip
    print(output["booster"].best_iteration)
    return dxgb.predict(client, output, dvalid)


class CustomEarlyStopping(callback.TrainingCallback):
    """demo/dask/dask_callbacks.py: the worse a round, the likelier the end; later rounds are excused less."""

    def __init__(self, validation_set, target_metric, seed):
        self.validation_set, self.target_metric = validation_set, target_metric
        self.rng = np.random.default_rng(seed=seed)

    def after_iteration(self, model, epoch, evals_log):
        history = evals_log[self.validation_set][self.target_metric]
        if len(history) < 2 or history[-1] < history[-2]:
            return False
        return self.rng.random() > 0.999 / (1.0 + 0.05 * np.log(1.0 + epoch))


def train_with_own_callback(client):
    """demo/dask/dask_callbacks.py; labels in a column, as in the tutorial."""
    X = da.random.random((10_000, 10), chunks=(1000, 10))
    y = da.random.random((10_000, 1), chunks=(1000, 1))
    dtrain, dtest = DaskDMatrix(client, X[:8000], y[:8000]), DaskDMatrix(client, X[8000:], y[8000:])
    output = dxgb.train(
        client, {"tree_method": "hist", "eval_metric": "rmse", "learning_rate": 1.0}, dtrain, num_boost_round=200,
        evals=[(dtrain, "train"), (dtest, "test")], verbose_eval=False, callbacks=[CustomEarlyStopping("test", "rmse", seed=0)],
    )  # fmt: skip
    print(len(output["history"]["test"]["rmse"]), "rounds")
    return dxgb.predict(client, output, X)


def train_with_forwarded_log(client):
    """demo/dask/forward_logging.py, on CPUs."""
    X = da.random.random((10_000, 10), chunks=(1000, 10))
    y = X.sum(axis=1)
    dtrain = dxgb.DaskQuantileDMatrix(client, X, y)
    client.forward_logging("[xgboost.dask]")
    for logger in (distributed.print, lambda line: logging.getLogger("[xgboost.dask]").warning(line.strip())):
        monitor = callback.EvaluationMonitor(rank=0, period=1, logger=logger)
        output = dxgb.train(
            client, {"tree_method": "hist"}, dtrain, num_boost_round=2, evals=[(dtrain, "train")], callbacks=[monitor],
            verbose_eval=False,
        )  # fmt: skip
    return dxgb.predict(client, output["booster"], X)


def train_survival(client):
    """demo/dask/cpu_survival.py, on a made-up table."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(2000, 4)), columns=list("abcd"))
    frame["label_lower_bound"] = np.exp(frame["a"] + 0.1 * rng.normal(size=2000))
    frame["label_upper_bound"] = np.where(rng.random(2000) < 0.3, np.inf, frame["label_lower_bound"])
    df = dd.from_pandas(frame, npartitions=4)
    lower, upper = df["label_lower_bound"], df["label_upper_bound"]
    X = df.drop(columns=["label_lower_bound", "label_upper_bound"])
    dtrain = DaskDMatrix(client, X, label_lower_bound=lower, label_upper_bound=upper)
    params = {
        "objective": "survival:aft", "eval_metric": "aft-nloglik", "aft_loss_distribution_scale": 1.2,
        "aft_loss_distribution": "normal", "max_depth": 3, "learning_rate": 0.05,
    }  # fmt: skip
    output = dxgb.train(client, params, dtrain, num_boost_round=10, evals=[(dtrain, "train")])
    return dxgb.predict(client, output, dtrain)


def train_ranker(client):
    """demo/dask/dask_learning_to_rank.py, on a made-up table."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(2000, 4)), columns=list("abcd"))
    frame["qid"], frame["y"] = np.arange(2000) // 20, rng.integers(0, 5, 2000)
    df = dd.from_pandas(frame, npartitions=4)
    X, y, qid = df[list("abcd")], df["y"], df["qid"]
    ranker = dxgb.DaskGPUBoostRanker(objective="rank:ndcg", n_estimators=4, allow_group_split=False)  # DaskXGBRanker
    ranker.client = client
    ranker.fit(X, y, qid=qid, eval_set=[(X, y)], eval_qid=[qid], verbose=True)
    return ranker.predict(X)


if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=2) as cluster, Client(cluster) as client:
        runs = [
            train_functional, train_sklearn, train_with_callbacks, train_with_own_callback, train_with_forwarded_log,
            train_survival, train_ranker,
        ]  # fmt: skip
        for run in runs:
            print(run.__name__, np.asarray(run(client).compute())[:3])
