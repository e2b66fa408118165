"""Training on a Dask cluster: one model for any number of workers, and that of one machine; what goes in and comes out.

The cluster is of threads of this process. test_dask_losses.py has real processes, and kills them.
"""

import asyncio
import pickle
import ssl

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from certificates import make_certificate
from sklearn.exceptions import NotFittedError

import gpuboost as gb
from gpuboost.communicator import current_communicator
from gpuboost.model_io import digest

distributed = pytest.importorskip("distributed")
import dask  # noqa: E402
import dask.array as da  # noqa: E402
import dask.dataframe as dd  # noqa: E402

from gpuboost import dask as dgb  # noqa: E402
from gpuboost.dask.placement import place  # noqa: E402

N = 600
UNEVEN = 250, 0, 1, 149, 120, 80


@pytest.fixture(scope="module")
def client():
    with distributed.LocalCluster(
        n_workers=4, threads_per_worker=1, processes=False, dashboard_address=None, memory_limit=None
    ) as cluster, distributed.Client(cluster) as client:  # fmt: skip
        yield client


@pytest.fixture
def on(client):
    """Function (n) -> context in which n of the cluster's workers take part."""
    names = client.run_on_scheduler(lambda dask_scheduler: sorted(dask_scheduler.workers))  # the client's own list may be empty
    return lambda n: dask.annotate(workers=names[:n])


@pytest.fixture(scope="module")
def table():
    """float32 (N, 5), some values missing, and labels of a few classes."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(N, 5)).astype(np.float32)
    X[rng.random(X.shape) < 0.1] = np.nan
    score = np.nan_to_num(X[:, 0]) * np.nan_to_num(X[:, 1]) + np.nan_to_num(X[:, 2])
    return X, np.digitize(score, [-0.5, 0.5]).astype(np.float32)


def in_chunks(array, sizes=UNEVEN):
    return da.from_array(array, chunks=(sizes, *array.shape[1:]))


def frames_of(frame, sizes=UNEVEN):
    """A dask dataframe of such partitions, whose dictionaries of categories hold what occurs in them only."""
    ends = np.cumsum((0, *sizes))
    parts = [frame.iloc[begin:end].copy() for begin, end in zip(ends, ends[1:])]
    for part in parts:
        for name in part.select_dtypes("category"):
            part[name] = part[name].cat.remove_unused_categories()
    return [dask.delayed(part) for part in parts]


# ---- one model

SIZES = set()


class SeesWorkers(gb.callback.TrainingCallback):
    """How many take part, for a cluster of threads of this process."""

    def before_training(self, model):
        SIZES.add(current_communicator().size)
        return model


MODELS = {
    "hist": {"objective": "reg:squarederror"},
    "approx": {"objective": "multi:softprob", "num_class": 3, "tree_method": "approx", "max_bin": 16},
    "sampled rows": {"subsample": 0.5, "colsample_bynode": 0.5, "seed": 7},
    "sampled by gradient": {"subsample": 0.5, "sampling_method": "gradient_based"},
    "dropout": {"booster": "dart", "rate_drop": 0.5, "seed": 3},
    "leaves by quantile": {"objective": "reg:absoluteerror"},
    "leaf-wise": {"grow_policy": "lossguide", "max_leaves": 6, "max_depth": 0, "num_parallel_tree": 2},
    "linear": {"booster": "gblinear"},
}


@pytest.mark.sweep(9)
@pytest.mark.parametrize("n_workers", [1, 2, 3, 4])
@pytest.mark.parametrize("name", MODELS)
def test_any_number_of_workers_trains_the_model_of_one_machine(client, on, table, name, n_workers):
    (X, y), params = table, {"max_depth": 3, **MODELS[name]}
    weight = np.arange(N, dtype=np.float32) % 3
    expected, log = gb.DMatrix(X, y, weight=weight), {}
    local = gb.train(params, expected, 3, evals=[(expected, "train")], evals_result=log, verbose_eval=False)
    with on(n_workers):
        dtrain = dgb.DaskDMatrix(client, in_chunks(X), in_chunks(y), weight=in_chunks(weight))
        SIZES.clear()
        output = dgb.train(
            client, params, dtrain, 3, evals=[(dtrain, "train")], verbose_eval=False, callbacks=[SeesWorkers()]
        )  # fmt: skip
    assert SIZES == {n_workers}
    assert digest(output["booster"].model) == digest(local.model)
    assert output["history"] == log


@pytest.mark.parametrize("kind, n_workers", [("nobody", 4), ("function", 4), ("host", 4), ("name", 1), ("address", 1)])
def test_annotations_say_which_workers_take_part(client, on, table, kind, n_workers):
    """By address, name or host; neither an empty list nor a function of keys leaves any out, as for Dask's own tasks."""
    address, facts = client.run_on_scheduler(lambda dask_scheduler: next(iter(dask_scheduler.identity()["workers"].items())))
    given = {"nobody": [], "function": lambda key: [], "host": facts["host"], "name": [facts["name"]], "address": address}
    with dask.annotate(workers=given[kind]):
        dtrain = dgb.DaskDMatrix(client, in_chunks(table[0]), in_chunks(table[1]))
        SIZES.clear()
        dgb.train(client, {"max_depth": 2}, dtrain, 1, callbacks=[SeesWorkers()])
    assert SIZES == {n_workers}


@pytest.mark.parametrize("n_workers", [1, 3])
def test_categories_whose_dictionaries_differ(client, on, table, n_workers):
    X, y = table
    frame = pd.DataFrame(X, columns=list("abcde"))
    frame["colour"] = pd.Categorical(np.array(["red", "green", "blue", "black"])[np.arange(N) // 160])
    whole = frame.assign(colour=frame["colour"].cat.reorder_categories(sorted(frame["colour"].cat.categories)))
    local = gb.train({"max_depth": 3}, gb.DMatrix(whole, y), 3)
    with on(n_workers):
        dtrain = dgb.DaskDMatrix(client, frames_of(frame), frames_of(pd.Series(y).to_frame()))
        output = dgb.train(client, {"max_depth": 3}, dtrain, 3)
    assert digest(output["booster"].model) == digest(local.model)


@pytest.mark.parametrize("n_workers", [1, 2, 4])
def test_queries_over_the_ends_of_partitions_stay_whole(client, on, table, n_workers):
    (X, y), qid = table, np.arange(N) // 17
    params = {"objective": "rank:ndcg", "max_depth": 3, "lambdarank_pair_method": "mean"}
    weight = 1 + np.arange(N) // 17 % 4
    local = gb.train(params, gb.DMatrix(X, y, qid=qid, weight=weight), 3)
    with on(n_workers):
        dtrain = dgb.DaskDMatrix(client, in_chunks(X), in_chunks(y), qid=in_chunks(qid), weight=in_chunks(weight))
        output = dgb.train(client, params, dtrain, 3)
    assert digest(output["booster"].model) == digest(local.model)


@pytest.mark.parametrize("kind", ["sparse", "quantile", "delayed", "columns in chunks", "frame"])
def test_every_kind_of_collection(client, on, table, kind):
    X, y = table
    made, label = dgb.DaskDMatrix, in_chunks(y)
    local, data = gb.DMatrix(X, y), in_chunks(X)
    if kind == "sparse":
        filled = np.nan_to_num(X) * (np.arange(5) % 2)
        local = gb.DMatrix(scipy.sparse.csr_matrix(filled), y)
        data = in_chunks(filled).map_blocks(scipy.sparse.csr_matrix)
    elif kind == "quantile":
        made = dgb.DaskQuantileDMatrix
    elif kind == "delayed":
        data = [dask.delayed(part) for part in np.split(X, [100, 400])]
        label = [dask.delayed(part) for part in np.split(y, [100, 400])]
    elif kind == "columns in chunks":
        data = da.from_array(X, chunks=(200, 2))
        label = da.from_array(y, chunks=100)
    elif kind == "frame":
        frame = pd.DataFrame(X, columns=list("abcde")).assign(y=y)
        local, frames = gb.DMatrix(frame[list("abcde")], y), dd.from_pandas(frame, npartitions=5)
        data, label = frames[list("abcde")], frames["y"]
    with on(2):
        dtrain = made(client, data, label)
        output = dgb.train(client, {"max_depth": 3}, dtrain, 3, evals=[(dtrain, "train")], verbose_eval=False)
    assert digest(output["booster"].model) == digest(gb.train({"max_depth": 3}, local, 3).model)
    assert (dtrain.num_row(), dtrain.num_col()) == X.shape


def test_quantile_matrix_to_evaluate_takes_the_cuts_of_training(client, on, table):
    X, y = table
    train = gb.QuantileDMatrix(X, y, max_bin=16)
    log, test = {}, gb.QuantileDMatrix(X[:100], y[:100], ref=train)
    gb.train({"max_bin": 16}, train, 2, evals=[(test, "test")], evals_result=log, verbose_eval=False)
    with on(3):
        dtrain = dgb.DaskQuantileDMatrix(client, in_chunks(X), in_chunks(y), max_bin=16)
        dtest = dgb.DaskQuantileDMatrix(client, da.from_array(X[:100]), da.from_array(y[:100]), ref=dtrain)  # one partition
        output = dgb.train(client, {"max_bin": 16}, dtrain, 2, evals=[(dtest, "test")], verbose_eval=False)
    assert output["history"] == log


def test_early_stopping_callbacks_and_continuation(client, on, table):
    X, y = table
    rows, other = gb.DMatrix(X, y), gb.DMatrix(X, 2 - y)  # the scores of the other get worse
    first = gb.train({}, rows, 2)
    schedule = gb.callback.LearningRateScheduler([0.3, 0.2, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1])
    given = {"early_stopping_rounds": 2, "verbose_eval": False, "callbacks": [schedule]}
    local = gb.train({}, rows, 8, evals=[(other, "other")], xgb_model=first, **given)
    with on(3):
        dtrain, dother = (dgb.DaskDMatrix(client, in_chunks(X), in_chunks(label)) for label in (y, 2 - y))
        begun = dgb.train(client, {}, dtrain, 2)
        output = dgb.train(client, {}, dtrain, 8, evals=[(dother, "other")], xgb_model=begun, **given)
    assert digest(output["booster"].model) == digest(local.model)
    assert output["booster"].best_iteration == local.best_iteration == 2
    assert len(output["history"]["other"]["rmse"]) == 3


def test_custom_objective_and_metric(client, on, table):
    (X, y), rows = table, gb.DMatrix(*table)

    def squared(prediction, dtrain):
        return prediction - dtrain.get_label(), np.ones_like(prediction)

    def error(prediction, dmatrix):
        return "error", float(abs(prediction - dmatrix.get_label()).mean(dtype=np.float64))

    log = {}
    local = gb.train({}, rows, 2, obj=squared, custom_metric=error, evals=[(rows, "t")], evals_result=log, verbose_eval=False)
    with on(3):
        dtrain = dgb.DaskDMatrix(client, in_chunks(X), in_chunks(y))
        output = dgb.train(
            client, {}, dtrain, 2, obj=squared, custom_metric=error, evals=[(dtrain, "t")], verbose_eval=False
        )  # fmt: skip
    assert digest(output["booster"].model) == digest(local.model)
    # A mean of means is one of float64, in another order than on one machine.
    np.testing.assert_allclose(output["history"]["t"]["error"], log["t"]["error"], rtol=1e-12)


THIRDS = np.array_split(np.arange(N), 3)  # whole ones are with one worker


@pytest.mark.parametrize(
    "given", [{}, {"stratified": True}, {"folds": [(np.r_[THIRDS[i - 1], THIRDS[i - 2]], THIRDS[i]) for i in range(3)]}]
)
def test_cv_is_that_of_one_machine(client, on, table, given):
    pytest.importorskip("sklearn")
    (X, y), params = table, {"objective": "multi:softprob", "num_class": 3, "max_depth": 2, "subsample": 0.6}
    local = gb.cv(params, gb.DMatrix(X, y), 3, nfold=3, **given)
    with on(3):
        dtrain = dgb.DaskDMatrix(client, in_chunks(X), in_chunks(y))
        pd.testing.assert_frame_equal(dgb.cv(client, params, dtrain, 3, nfold=3, **given), local)


# ---- prediction


def test_predictions_are_those_of_one_machine(client, table):
    X, y = table
    booster = gb.train({"objective": "multi:softprob", "num_class": 3, "max_depth": 3}, gb.DMatrix(X, y), 2)
    rows, array = gb.DMatrix(X), in_chunks(X)
    for options in ({}, {"output_margin": True}, {"pred_leaf": True}, {"pred_contribs": True}, {"strict_shape": True}):
        expected = booster.predict(rows, **options)
        for data in (array, dgb.DaskDMatrix(client, array)):
            prediction = dgb.predict(client, {"booster": booster}, data, **options)
            assert prediction.shape == expected.shape and prediction.dtype == expected.dtype
            np.testing.assert_array_equal(prediction.compute(), expected)
    margin = np.arange(3.0 * N).reshape(N, 3)
    for given in (in_chunks(margin), da.from_array(margin, chunks=(N, 1))):
        np.testing.assert_array_equal(
            dgb.inplace_predict(client, booster, array, base_margin=given, predict_type="margin").compute(),
            booster.inplace_predict(X, base_margin=margin, predict_type="margin"),
        )


def test_predictions_of_a_frame_keep_its_index(client, table):
    X, y = table
    frame = pd.DataFrame(X, columns=list("abcde"), index=np.arange(N) + 1000)
    for params in ({}, {"objective": "multi:softprob", "num_class": 3}):
        booster = gb.train(params, gb.DMatrix(frame, y), 2)
        expected = booster.predict(gb.DMatrix(frame))
        for function in (dgb.predict, dgb.inplace_predict):
            prediction = function(client, client.scatter(booster), dd.from_pandas(frame, npartitions=3)).compute()
            np.testing.assert_array_equal(prediction.to_numpy(), expected)
            np.testing.assert_array_equal(prediction.index, frame.index)


# ---- estimators


def test_classifier_learns_labels_that_only_some_partitions_have(client, on, table):
    X, y = table
    order = np.argsort(y, kind="stable")
    X, y = X[order], np.array(["high", "low", "middle"])[y.astype(int)][order]
    local = gb.GPUBoostClassifier(n_estimators=3, max_depth=3).fit(X, y)
    model = dgb.DaskGPUBoostClassifier(n_estimators=3, max_depth=3)
    model.client = client
    with on(3):
        model.fit(in_chunks(X), in_chunks(y), eval_set=[(in_chunks(X), in_chunks(y))], verbose=False)
    assert model.classes_.tolist() == local.classes_.tolist()
    assert digest(model.get_booster().model) == digest(local.get_booster().model)
    np.testing.assert_array_equal(model.predict(in_chunks(X)).compute(), local.predict(X))
    np.testing.assert_array_equal(model.predict_proba(in_chunks(X)).compute(), local.predict_proba(X))
    of_frame = model.predict(dd.from_pandas(pd.DataFrame(X), npartitions=2))
    assert of_frame.dtype == of_frame.compute().dtype and of_frame.compute().tolist() == local.predict(X).tolist()
    kept = pickle.loads(pickle.dumps(model)).to_local()
    assert type(kept) is gb.GPUBoostClassifier and kept.get_params()["max_depth"] == 3
    np.testing.assert_array_equal(kept.predict(X), local.predict(X))
    assert list(model.evals_result()) == ["validation_0"]


@pytest.mark.parametrize("kind", ["array", "frame"])
def test_several_labels_are_classified_as_on_one_machine(client, on, table, kind):
    X, y = table
    y = np.stack([y > 0, y > 1, X[:, 0] > 0], axis=1).astype(np.int8)
    local = gb.GPUBoostClassifier(n_estimators=2, max_depth=3).fit(X, y)
    rows, labels = (in_chunks(X), da.from_array(y, chunks=(UNEVEN, (2, 1))))
    if kind == "frame":
        rows, labels = (dd.from_pandas(pd.DataFrame(values), npartitions=3) for values in (X, y))
        local.fit(pd.DataFrame(X), y)
    model = dgb.DaskGPUBoostClassifier(n_estimators=2, max_depth=3)
    with on(2):
        model.fit(rows, labels, eval_set=[(rows, labels), (rows, labels + 0)], verbose=False)
    assert digest(model.get_booster().model) == digest(local.get_booster().model)
    chosen = model.predict(rows)
    assert len(set(map(str, model.evals_result().values()))) == 1 and chosen.shape[1] == 3
    np.testing.assert_array_equal(chosen.compute(), local.predict(pd.DataFrame(X) if kind == "frame" else X))
    assert model.classes_.dtype == np.asarray(chosen.compute()).dtype == np.int8
    proba = model.predict_proba(rows)
    assert proba.shape[1] == 3
    np.testing.assert_array_equal(proba.compute(), local.predict_proba(pd.DataFrame(X) if kind == "frame" else X))


def test_an_estimator_evaluates_without_the_weights_of_training(on, table):
    X, y = map(in_chunks, table)
    weight = in_chunks(np.arange(N) / N)
    local = gb.GPUBoostRegressor(n_estimators=2).fit(*table, sample_weight=np.arange(N) / N, eval_set=[table] * 2,
                                                     sample_weight_eval_set=[None, np.arange(N) / N])  # fmt: skip
    with on(2):
        model = dgb.DaskGPUBoostRegressor(n_estimators=2)
        model.fit(X, y, sample_weight=weight, eval_set=[(X, y)] * 2, sample_weight_eval_set=[None, weight], verbose=False)
    assert model.evals_result() == local.evals_result()
    assert local.evals_result()["validation_0"] != local.evals_result()["validation_1"]


def test_an_estimator_that_goes_on_numbers_categories_as_the_model(on):
    values = pd.Series(np.random.default_rng(0).choice(["x", "y", "z"], N))
    there, again = (pd.DataFrame({"a": pd.Categorical(values, categories=list(order))}) for order in ("xyz", "zyx"))
    y = pd.Series(values.map({"x": 0.0, "y": 2.0, "z": 1.0}))
    begun = gb.GPUBoostRegressor(n_estimators=2).fit(there, y)
    local = gb.GPUBoostRegressor(n_estimators=2).fit(again, y, xgb_model=begun)
    rows, label = (dd.from_pandas(table, npartitions=3) for table in (again, y))
    with on(2):
        model = dgb.DaskGPUBoostRegressor(n_estimators=2).fit(rows, label, xgb_model=begun, verbose=False)
    assert digest(model.get_booster().model) == digest(local.get_booster().model)


def test_with_target_statistics_an_estimator_scores_the_training_table_as_on_one_machine(on):
    city, rng = np.random.default_rng(0).integers(0, 20, N), np.random.default_rng(1)
    X, y = pd.DataFrame({"city": pd.Categorical(city)}), pd.Series(rng.normal(size=20)[city] + rng.normal(size=N))
    local = gb.GPUBoostRegressor(n_estimators=2, cat_encoding="statistics").fit(X, y, eval_set=[(X, y)])
    rows, label = (dd.from_pandas(table, npartitions=3) for table in (X, y))
    with on(2):
        model = dgb.DaskGPUBoostRegressor(n_estimators=2, cat_encoding="statistics")
        model.fit(rows, label, eval_set=[(rows, label)], verbose=False)
    assert model.evals_result() == local.evals_result()
    assert model.evals_result()["validation_0"]["rmse"][-1] == pytest.approx(np.sqrt(np.mean((local.predict(X) - y) ** 2)))


def test_estimators_take_feature_weights_of_the_cluster_and_tell_the_shape_of_leaves(client, on, table):
    X, y = table
    params = {"n_estimators": 3, "colsample_bynode": 0.4, "seed": 4}
    weights = np.arange(5.0)
    local = gb.GPUBoostRegressor(**params, feature_weights=weights).fit(X, y)
    with on(2):
        model = dgb.DaskGPUBoostRegressor(**params, feature_weights=da.from_array(weights)).fit(in_chunks(X), in_chunks(y))
    assert digest(model.get_booster().model) == digest(local.get_booster().model)
    assert digest(local.get_booster().model) != digest(gb.GPUBoostRegressor(**params).fit(X, y).get_booster().model)
    leaves = model.apply(dd.from_delayed(frames_of(pd.DataFrame(X))))
    assert leaves.shape == (N, 3)
    np.testing.assert_array_equal(leaves.compute(), local.apply(X))


def test_regressor_and_ranker_and_forest(client, on, table):
    (X, y), qid = table, np.arange(N) // 20
    frame = pd.DataFrame(X, columns=list("abcde")).assign(qid=qid)
    documents = dd.from_pandas(frame, npartitions=4)
    with on(2):
        regressor = dgb.DaskGPUBoostRegressor(n_estimators=2).fit(in_chunks(X), in_chunks(y), verbose=False)
        counts = gb.train({"objective": "count:poisson"}, gb.DMatrix(X, abs(y)), 1)
        further = dgb.DaskGPUBoostRegressor(n_estimators=1).fit(in_chunks(X), in_chunks(abs(y)), verbose=False, xgb_model=counts)
        assert further.get_booster().model.objective == "count:poisson"
        forest = dgb.DaskGPUBoostRFRegressor(n_estimators=3).fit(in_chunks(X), in_chunks(y), verbose=False)
        ranker = dgb.DaskGPUBoostRanker(n_estimators=2).fit(documents, dd.from_pandas(pd.Series(y), npartitions=4))
    for model, local, table_, options in [
        (regressor, gb.GPUBoostRegressor(n_estimators=2), X, {}),
        (forest, gb.GPUBoostRFRegressor(n_estimators=3), X, {}),
        (ranker, gb.GPUBoostRanker(n_estimators=2), frame.drop(columns="qid"), {"qid": qid}),
    ]:
        local.fit(table_, y, **options)
        assert digest(model.get_booster().model) == digest(local.get_booster().model)
    np.testing.assert_array_equal(regressor.predict(in_chunks(X)).compute(), regressor.to_local().predict(X))
    np.testing.assert_array_equal(ranker.predict(documents).compute(), ranker.to_local().predict(frame))
    leaves = regressor.apply(in_chunks(X)).compute()
    assert leaves.shape == (N, 2) and leaves.dtype == np.int32


@pytest.mark.parametrize("name", ["sample_weight", "base_margin"])
@pytest.mark.parametrize("has_own", [False, True])
def test_rows_of_training_are_evaluated_with_their_own_weights_and_margins(client, on, table, name, has_own):
    """Those of training count only where they are given again, as on one machine."""
    (X, y), values = table, np.arange(N, dtype=np.float32) % 7
    scores = []
    for model, rows, labels, own in (
        (gb.GPUBoostRegressor(n_estimators=2), X, y, values),
        (dgb.DaskGPUBoostRegressor(n_estimators=2), *map(in_chunks, (X, y, values))),
    ):
        given = {name: own} | ({f"{name}_eval_set": [own]} if has_own else {})
        with on(2):
            model.fit(rows, labels, eval_set=[(rows, labels)], verbose=False, **given)
        scores.append(model.evals_result())
    assert scores[0] == scores[1]


def test_weights_of_columns_may_be_a_collection(client, on, table):
    (X, y), weights = table, np.arange(5.0)
    params = {"n_estimators": 2, "colsample_bynode": 0.4}
    local = gb.GPUBoostRegressor(**params).fit(X, y, feature_weights=weights)
    with on(2):
        model = dgb.DaskGPUBoostRegressor(**params).fit(
            in_chunks(X), in_chunks(y), feature_weights=da.from_array(weights), verbose=False
        )  # fmt: skip
    assert digest(model.get_booster().model) == digest(local.get_booster().model)


def test_an_estimator_that_fails_to_fit_has_no_model(client, on, table):
    X, y = map(in_chunks, table)
    model = dgb.DaskGPUBoostClassifier(n_estimators=1)
    with on(2):
        model.fit(X, y, verbose=False)
        with pytest.raises(ValueError, match="subsample"):
            model.set_params(subsample=2).fit(X, y > 0, verbose=False)
    with pytest.raises(NotFittedError):
        model.predict(X)


@pytest.mark.parametrize(
    "given, message",
    [
        ({"eval_set": [("X", "y")], "sample_weight_eval_set": []}, "sample_weight_eval_set must have one entry per pair"),
        ({"eval_set": [("X", "y")], "base_margin_eval_set": [1, 2]}, "base_margin_eval_set must have one entry per pair"),
        ({"eval_set": ["X"]}, "eval_set must be a list of .X, y. pairs"),
    ],
)
def test_evaluation_sets_are_those_of_one_machine(client, table, given, message):
    X, y = table
    for model, rows, labels in (
        (gb.GPUBoostRegressor(), X, y), (dgb.DaskGPUBoostRegressor(), in_chunks(X), in_chunks(y))
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            model.fit(rows, labels, **given)


def test_labels_of_a_classifier_are_a_collection_and_several_are_0_and_1(client, table):
    X, y = map(in_chunks, table)
    for labels, error, message in (
        (np.zeros((N, 2)), TypeError, "must be a dask array or series, got ndarray"),
        (da.zeros((N, 2), chunks=(100, -1)) + 2, ValueError, r"of several columns must hold 0 and 1 only, got \[2.0\]"),
    ):
        with pytest.raises(error, match=f"y {message}"):
            dgb.DaskGPUBoostClassifier().fit(X, labels)
    with pytest.raises(TypeError, match=r"eval_set\[0\] must be a dask array or series, got ndarray"):
        dgb.DaskGPUBoostClassifier().fit(X, y, eval_set=[(X, np.zeros(N))])


def test_a_matrix_knows_its_rows_once_it_has_been_trained_on(client, on, table):
    frame = dd.from_pandas(pd.DataFrame(table[0], columns=list("abcde")), npartitions=3)
    dtrain = dgb.DaskDMatrix(client, frame, dd.from_pandas(pd.Series(table[1]), npartitions=3))
    with on(2):
        booster = dgb.train(client, {}, dtrain, 1)
    assert dgb.predict(client, booster, dtrain).shape == (N,) and dtrain.num_row() == N


# ---- clusters with TLS

SOCKETS = []


class SeesSockets(gb.callback.TrainingCallback):
    """Those between the workers, for a cluster of threads of this process."""

    def before_training(self, model):
        SOCKETS.extend(link.socket for link in current_communicator().host._links.values())
        return model


def test_workers_use_the_certificates_of_the_cluster(table, tmp_path):
    """Between them as well. Who has no certificate does not get as far as the job's token."""
    X, y = table
    own = make_certificate(tmp_path)
    paths = {f"tls_{who}_{what}": path for who in ("client", "scheduler", "worker") for what, path in zip(("cert", "key"), own)}
    security = distributed.Security(tls_ca_file=own[0], require_encryption=True, **paths)
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None, protocol="tls", security=security
    ) as cluster, distributed.Client(cluster) as client:  # fmt: skip
        SOCKETS.clear()
        dtrain = dgb.DaskDMatrix(client, in_chunks(X), in_chunks(y))
        output = dgb.train(client, {}, dtrain, 2, callbacks=[SeesSockets()])
        assert len(SOCKETS) == 2 and all(isinstance(sock, ssl.SSLSocket) for sock in SOCKETS)
        assert all(sock.context.verify_mode == ssl.CERT_REQUIRED for sock in SOCKETS)
    assert digest(output["booster"].model) == digest(gb.train({}, gb.DMatrix(X, y), 2).model)


# ---- what is wrong is said, and nothing hangs


def test_errors_of_a_worker_reach_the_client_and_the_next_training_works(client, on, table):
    X, y = table

    class Breaks(gb.callback.TrainingCallback):
        def after_iteration(self, model, epoch, evals_log):
            if epoch == 1 and current_communicator().rank == 2:
                raise ZeroDivisionError("of the user's own")
            return False

    with on(3):
        dtrain = dgb.DaskDMatrix(client, in_chunks(X), in_chunks(y))
        with pytest.raises(ZeroDivisionError, match="of the user's own"):
            dgb.train(client, {}, dtrain, 5, callbacks=[Breaks()])
        with pytest.raises(ValueError, match="maxdepth"):
            dgb.train(client, {"maxdepth": 3}, dtrain, 5)
        assert dgb.train(client, {}, dtrain, 1)["booster"].num_boosted_rounds() == 1


def test_what_does_not_fit_together_is_refused(client, on, table):
    X, y = table
    with pytest.raises(ValueError, match="label has 599 rows, data has 600"):
        dgb.DaskDMatrix(client, in_chunks(X), da.from_array(y[1:], chunks=100))
    with pytest.raises(ValueError, match="label has 2 partitions, data has 3"):
        parts = [dask.delayed(part) for part in np.split(X, 3)]
        dgb.DaskDMatrix(client, parts, [dask.delayed(part) for part in np.split(y, 2)])
    with pytest.raises(TypeError, match="data must be a dask array"):
        dgb.DaskDMatrix(client, X, y)
    with pytest.raises(NotImplementedError, match="Pass qid"):
        dgb.DaskDMatrix(client, in_chunks(X), in_chunks(y), group=[N])
    with pytest.raises(TypeError, match="must hold DaskDMatrix objects, got DMatrix"):
        dgb.train(client, {}, gb.DMatrix(X, y))
    uneven = dgb.DaskDMatrix(client, parts, [dask.delayed(part) for part in np.split(y, [100, 400])])
    with pytest.raises(ValueError, match="label has [13]00 rows in partition [01], data has 200"):
        dgb.train(client, {}, uneven)
    falling = dgb.DaskDMatrix(client, in_chunks(X), in_chunks(y), qid=in_chunks(np.arange(N)[::-1] // 300))
    with pytest.raises(ValueError, match="qid must not decrease"), on(2):
        dgb.train(client, {"objective": "rank:ndcg"}, falling)
    empty = dgb.DaskDMatrix(client, in_chunks(X[:0], (0, 0)), in_chunks(y[:0], (0, 0)))
    with pytest.raises(ValueError, match="no rows"):
        dgb.train(client, {}, empty)


@pytest.mark.parametrize("made", [dgb.DaskDMatrix, dgb.DaskQuantileDMatrix])
def test_errors_name_the_row_in_its_partition(client, on, table, made):
    """Row 410 of all is row 10 of partition 4, which the second of two workers has."""
    (X, y), place_of = table, r"row 10 of partition 4 \(row 410 of all\)"
    infinite, unlabelled, outside, weight = X.copy(), y.copy(), np.minimum(y, 1), np.ones(N, np.float32)
    infinite[410, 2], unlabelled[410], outside[410], weight[[3, 7]] = np.inf, np.nan, 3, 0
    good = in_chunks(X), in_chunks(np.minimum(y, 1))
    with on(2):
        for data, label, what in [
            (infinite, y, "infinite"), (X, unlabelled, "label must be finite"), (X, outside, "needs labels"),
        ]:  # fmt: skip
            dtrain = made(client, in_chunks(data), in_chunks(label), weight=in_chunks(weight))
            with pytest.raises(ValueError, match=f"{what}.*{place_of}"):
                dgb.train(client, {"objective": "binary:logistic" if label is outside else "reg:squarederror"}, dtrain, 1)
        evals = [(made(client, *good), "train"), (made(client, in_chunks(X), in_chunks(outside)), "other")]
        with pytest.raises(ValueError, match=f"needs labels.*{place_of}"):
            dgb.train(client, {"objective": "binary:logistic"}, evals[0][0], 1, evals=evals)


def test_lost_scattered_data_is_a_clear_error(client, table):
    X, y = table
    futures = client.scatter([X, y])
    dtrain = dgb.DaskDMatrix(client, [futures[0]], [futures[1]])
    client.cancel(futures, force=True)
    with pytest.raises(RuntimeError, match="partition is lost"):
        dgb.train(client, {}, dtrain, 1)


def test_asynchronous_client(table):
    X, y = table

    async def run():
        async with distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, asynchronous=True, dashboard_address=None
        ) as cluster, distributed.Client(cluster, asynchronous=True) as client:  # fmt: skip
            dtrain = await dgb.DaskDMatrix(client, in_chunks(X), in_chunks(y))
            output = await dgb.train(client, {}, dtrain, 2)
            prediction = await client.compute(await dgb.predict(client, output, in_chunks(X)))
            model = await (await dgb.DaskGPUBoostRegressor(n_estimators=2)).fit(
                in_chunks(X), in_chunks(y), feature_weights=da.ones(5), verbose=False
            )
            leaves = await client.compute(await model.apply(in_chunks(X)))
            assert leaves.shape == (N, 2)
            endless = asyncio.ensure_future(dgb.train(client, {}, dtrain, 10**9))
            await asyncio.sleep(1)
            endless.cancel()
            with pytest.raises(asyncio.CancelledError):
                await endless
            again = await asyncio.wait_for(dgb.train(client, {}, dtrain, 2), 60)  # the workers are free
            return output["booster"], prediction, model, again["booster"]

    booster, prediction, model, again = asyncio.run(run())
    local = gb.train({}, gb.DMatrix(X, y), 2)
    np.testing.assert_array_equal(prediction, local.predict(gb.DMatrix(X)))
    assert digest(booster.model) == digest(local.model) == digest(again.model) == digest(model.get_booster().model)


def test_tasks_may_train_on_the_cluster_that_they_run_on(client, table):
    """Also where they take all of its threads."""
    X, y = map(in_chunks, table)

    def fit(n_rounds):
        model = dgb.DaskGPUBoostRegressor(n_estimators=n_rounds).fit(X, y, verbose=False)
        return model.get_booster().num_boosted_rounds(), len(model.predict(X).compute())

    futures = client.map(fit, range(1, 5), pure=False)
    distributed.wait(futures, timeout=60)
    assert client.gather(futures) == [(1, N), (2, N), (3, N), (4, N)]


def test_tasks_of_ones_own_train_together(client, table):
    X, y = table

    def work(args, begin, end):
        with dgb.CommunicatorContext(**args):
            return digest(gb.train({}, gb.DMatrix(X[begin:end], y[begin:end]), 2).model)

    args = dgb.communicator_args(client)
    bounds = np.linspace(0, N, len(args) + 1).astype(int).tolist()
    futures = [
        client.submit(work, own, bounds[own["rank"]], bounds[own["rank"] + 1], workers=[name], pure=False)
        for name, own in args.items()
    ]
    assert {*client.gather(futures)} == {digest(gb.train({}, gb.DMatrix(X, y), 2).model)}


def test_place_by_hand():
    """Runs of about as many rows; a query that goes on in the next partition stays with it, over an empty one too."""
    rows = [(n, None, None) for n in (4, 4, 4, 4)]
    assert place(rows, 2) == [[0, 1], [2, 3]] and place(rows, 1) == [[0, 1, 2, 3]]
    assert place([(9, None, None), (1, None, None), (1, None, None)], 2) == [[0], [1, 2]]
    assert place([(5, 0, 3), (0, None, None), (1, 3, 3), (6, 3, 9), (8, 10, 12)], 2) == [[0, 1, 2, 3], [4]]
    assert sorted(sum(place([(0, None, None), (3, 1, 1)], 3), [])) == [0, 1]
    with pytest.raises(ValueError, match="partition 1 begins with 2 after 3"):
        place([(5, 0, 3), (5, 2, 4)], 2)


CLASSES = {"objective": "multi:softprob", "num_class": 3, "max_depth": 3, "nthread": 1}


def test_persisted_arrays_are_held_by_whoever_reads_them(client, table):
    """Nobody else holds them: neither a matrix made in a function nor what predict is given is lost."""
    X, y = table
    expected = gb.train(CLASSES, gb.DMatrix(X, y), 2)

    def matrix():
        weight = da.ones(N, chunks=(UNEVEN,)).persist()
        return dgb.DaskDMatrix(client, in_chunks(X).persist(), in_chunks(y).persist(), weight=weight)

    for _ in range(3):
        booster = dgb.train(client, CLASSES, matrix(), num_boost_round=2)["booster"]
        assert booster.save_raw() == gb.train(CLASSES, gb.DMatrix(X, y, weight=np.ones(N)), 2).save_raw()
        margins = da.zeros((N, 3), chunks=(UNEVEN, 3)).persist
        for predicted in (
            dgb.predict(client, expected, in_chunks(X).persist()),
            dgb.inplace_predict(client, expected, in_chunks(X).persist()),
            dgb.inplace_predict(client, expected, in_chunks(X).persist(), base_margin=margins()),
        ):  # fmt: skip
            assert predicted.compute().shape == (N, 3)


def test_a_model_is_refreshed_on_a_cluster(client, table):
    X, y = table
    model = gb.train(CLASSES, gb.DMatrix(X, y), 3)
    params = {**CLASSES, "process_type": "update", "updater": "refresh"}
    expected = gb.train(params, gb.DMatrix(X[::-1].copy(), y), 3, xgb_model=model)
    other = dgb.DaskDMatrix(client, in_chunks(X[::-1].copy()), in_chunks(y))
    refreshed = dgb.train(client, params, other, num_boost_round=3, xgb_model=model)["booster"]
    assert refreshed.save_raw() == expected.save_raw() != model.save_raw()


@pytest.mark.parametrize("name", ["DaskXGBRanker", "DaskXGBRFClassifier"])
def test_xgboosts_names_of_estimators_lead_to_ours(name):
    with pytest.raises(AttributeError, match=f"no attribute '{name}'. It is called {name.replace('XGB', 'GPUBoost')} here"):
        getattr(dgb, name)
