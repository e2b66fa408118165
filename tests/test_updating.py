"""process_type="update": trees refreshed on other rows and pruned, as XGBoost does; by any number of workers; what is refused."""

import json
import pickle

import numpy as np
import pytest
from peer_versions import xgboost_before

import gpuboost as gb
from gpuboost.communicator import run_threads
from gpuboost.model_io import digest

xgboost = pytest.importorskip("xgboost")

UPDATE = {"process_type": "update", "updater": "refresh", "nthread": 1}
TRAINED = {"max_depth": 4, "min_child_weight": 0, "nthread": 1}
OPTIONS = [
    {}, {"refresh_leaf": False}, {"reg_lambda": 3.0, "reg_alpha": 0.5, "learning_rate": 0.1}, {"max_delta_step": 0.1},
    {"min_child_weight": 20.0}, {"num_parallel_tree": 3}, {"objective": "binary:logistic"},
    {"objective": "multi:softprob", "num_class": 3},
]  # fmt: skip


def table(objective, seed):
    """Missing values, weights, labels of the objective."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(300, 5)).astype(np.float32)
    signal = X[:, 0] * X[:, 1] + X[:, 2] + rng.normal(size=300) * 0.3
    X[rng.random(X.shape) < 0.1] = np.nan
    y = signal if objective.startswith("reg") else np.digitize(signal, [0] if objective.startswith("binary") else [-0.7, 0.7])
    return X, y.astype(np.float32), (0.5 + rng.random(300)).astype(np.float32)


def start(options):
    """(parameters, the rows trained on, other rows, a model of XGBoost's)."""
    params = {"objective": "reg:squarederror", "base_score": 0.5, **TRAINED, **options}
    old, new = (table(params["objective"], seed) for seed in (1, 2))
    return params, old, new, xgboost.train(params, xgboost.DMatrix(old[0], old[1], weight=old[2], nthread=1), 4)


def matrices(rows):
    return (library.DMatrix(rows[0], rows[1], weight=rows[2], nthread=1) for library in (gb, xgboost))


def statistics(booster):
    """Of all nodes, by tree and number; a library's own table."""
    frame = booster.trees_to_dataframe().sort_values(["Tree", "Node"])
    return frame[["Tree", "Node", "Gain", "Cover"]].to_numpy(float)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_refreshed_trees_are_xgboosts(options):
    if "min_child_weight" in options and xgboost_before(3, 4):
        pytest.skip("before 3.4 XGBoost gives nodes that are lighter than min_child_weight no weight")
    params, _, new, model = start(options)
    ours, theirs = matrices(new)
    params |= UPDATE
    refreshed = gb.train(params, ours, 4, xgb_model=bytes(model.save_raw("json")), verbose_eval=False)
    peer = xgboost.train(params, theirs, 4, xgb_model=model)
    np.testing.assert_allclose(refreshed.predict(ours), peer.predict(theirs), rtol=2e-5, atol=1e-6)  # it adds float32
    np.testing.assert_allclose(statistics(refreshed), statistics(peer), rtol=2e-4, atol=2e-4)
    read = xgboost.Booster(model_file=refreshed.save_raw("json"))
    np.testing.assert_allclose(read.predict(theirs), refreshed.predict(ours), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("objective", ["reg:absoluteerror", "reg:quantileerror"])
def test_leaves_that_are_quantiles_are_not_refreshed(objective):
    params = {"objective": objective, "quantile_alpha": 0.3, "max_depth": 3}
    data = gb.DMatrix(X := np.random.default_rng(0).normal(size=(200, 3)), X[:, 0])
    model = gb.train(params, data, 2)
    with pytest.raises(NotImplementedError, match=f"Refreshing the leaves of {objective}.*Use refresh_leaf=False"):
        gb.train(params | UPDATE, data, 2, xgb_model=model)
    kept = gb.train(params | UPDATE | {"refresh_leaf": False}, data, 2, xgb_model=model)
    np.testing.assert_array_equal(kept.predict(data), model.predict(data))


@pytest.mark.parametrize("updater", ["prune", "refresh,prune"])
@pytest.mark.parametrize("options", [{"gamma": 2.0}, {"gamma": 0.0, "max_depth": 2}, {"gamma": 1e9}], ids=str)
def test_pruned_trees_are_xgboosts(options, updater):
    params, _, new, model = start({"num_parallel_tree": 2})
    ours, theirs = matrices(new)
    params |= {**UPDATE, "updater": updater, **options}
    pruned = gb.train(params, ours, 4, xgb_model=bytes(model.save_raw("json")), verbose_eval=False)
    peer = xgboost.train(params, theirs, 4, xgb_model=model)
    assert sum(tree.n_deleted for tree in pruned.model.trees) > 0
    np.testing.assert_allclose(pruned.predict(ours), peer.predict(theirs), rtol=2e-5, atol=1e-6)
    assert pruned.predict(ours, pred_leaf=True).tolist() == peer.predict(theirs, pred_leaf=True).tolist()
    read = xgboost.Booster(model_file=pruned.save_raw("ubj"))
    np.testing.assert_allclose(read.predict(theirs), pruned.predict(ours), rtol=1e-6, atol=1e-6)


def test_on_the_rows_trained_on_a_model_stays_what_it_is():
    """But for the rounding of its gradients."""
    params, old, _, _ = start({})
    data = gb.DMatrix(old[0], old[1], weight=old[2])
    model = gb.train(params, data, 4, verbose_eval=False)
    again = gb.train({**params, **UPDATE}, data, 4, xgb_model=model, verbose_eval=False)
    np.testing.assert_allclose(again.predict(data), model.predict(data), rtol=1e-3, atol=1e-3)
    pruned = gb.train({**params, **UPDATE, "updater": "prune"}, data, 4, xgb_model=model, verbose_eval=False)
    assert digest(pruned.model) == digest(model.model)  # nothing gains too little


def test_gains_beyond_float32_are_its_largest_number():
    """As training has them: the file holds no infinity."""
    data = gb.DMatrix(np.arange(20.0)[:, None], np.arange(20.0) * 1e18)
    model = gb.train({}, data, 1, verbose_eval=False)
    refreshed = gb.train(UPDATE, data, 1, xgb_model=model, verbose_eval=False)
    for booster in (model, refreshed):
        assert booster.model.trees[0].gain.max() == np.finfo(np.float32).max
        assert digest(gb.Booster(model_file=bytes(booster.save_raw("json"))).model) == digest(booster.model)


def test_any_number_of_workers_updates_to_one_model_and_evaluates_it():
    params, _, new, model = start({"objective": "binary:logistic"})
    raw, log = bytes(model.save_raw("json")), {}

    def work(rank, n_workers=1):
        own = slice(rank * 300 // n_workers, (rank + 1) * 300 // n_workers)
        data = gb.DMatrix(new[0][own], new[1][own], weight=new[2][own])
        return gb.train({**params, **UPDATE}, data, 3, evals=[(data, "t")], evals_result=log, xgb_model=raw, verbose_eval=False)

    whole = work(0)
    assert whole.num_boosted_rounds() == 3 and len(log["t"]["logloss"]) == 3
    data = gb.DMatrix(new[0], new[1], weight=new[2])
    assert whole.evaluate([(data, "t")])[0][2] == pytest.approx(log["t"]["logloss"][-1], rel=1e-6)
    for n_workers in (2, 3):
        assert {digest(b.model) for b in run_threads(n_workers, lambda rank, n=n_workers: work(rank, n))} == {digest(whole.model)}


def test_what_cannot_be_updated_is_refused(tmp_path):
    params, old, _, model = start({})
    data, raw = gb.DMatrix(old[0], old[1]), bytes(model.save_raw("json"))
    update = {**params, **UPDATE}
    with pytest.raises(ValueError, match="num_boost_round must be at most the 4 rounds of the model with process_type='update'"):
        gb.train(update, data, 5, xgb_model=raw, verbose_eval=False)
    with pytest.raises(ValueError, match="process_type='update' needs a model with trees. Pass xgb_model"):
        gb.train(update, data, 1)
    with pytest.raises(ValueError, match="updater must be 'refresh', 'prune' or 'refresh,prune' with process_type='update'"):
        gb.train({"process_type": "update"}, data, 1, xgb_model=raw)
    with pytest.raises(ValueError, match="resume_from keeps rounds that are grown"):
        gb.train(update, data, 4, xgb_model=raw, resume_from=tmp_path)
    for wrong in ({"updater": "refresh"}, {"updater": "prune", "booster": "gblinear"}):
        with pytest.raises(ValueError, match="updater must be None with booster=.*Leave it out: 'shotgun' and 'coord_descent'"):
            gb.Booster(wrong)
    with pytest.raises(ValueError, match="process_type must be 'default' with booster='gblinear'"):
        gb.Booster({"booster": "gblinear", "process_type": "update"})
    dropped = gb.train({"booster": "dart", "rate_drop": 0.5}, data, 2, verbose_eval=False)
    with pytest.raises(ValueError, match="process_type='update' is for trees of one output, and without dropout"):
        gb.train({**update, "booster": "dart"}, data, 2, xgb_model=dropped)


def test_an_update_goes_on_with_other_rows():
    """Of another matrix, or of the same one with other weights: no round is lost or updated twice."""
    (X, y, weight), (other, z, _) = table("reg", 1), table("reg", 2)
    first, second = gb.DMatrix(X, y), gb.DMatrix(other, z)
    old = gb.train(TRAINED, first, 4)
    theirs = xgboost.Booster(UPDATE | TRAINED, model_file=bytearray(old.save_raw("ubj")))
    ours = old.copy()
    ours.set_param(UPDATE)
    for i, (data, rows) in enumerate(((first, (X, y)), (second, (other, z)), (first, (X, y)))):
        ours.update(data, i)
        theirs.update(xgboost.DMatrix(*rows, nthread=1), i)
    assert ours.num_boosted_rounds() == theirs.num_boosted_rounds() == 3
    expected = theirs.predict(xgboost.DMatrix(other, nthread=1))
    np.testing.assert_allclose(ours.predict(second), expected, rtol=1e-4, atol=1e-4)
    first.set_weight(weight)
    ours.update(first, 3)
    assert ours.num_boosted_rounds() == 4
    with pytest.raises(ValueError, match="at most the 4 rounds"):
        ours.update(first, 4)


def test_gradients_that_are_not_finite_are_refused():
    X, y, _ = table("reg", 1)
    dtrain = gb.DMatrix(X, y)
    old = gb.train(TRAINED, dtrain, 2)
    for bad in (np.nan, np.inf):
        gradients = np.zeros((2, len(y)), np.float32)
        gradients[0, 7] = bad
        with pytest.raises(FloatingPointError, match="not finite"):
            gb.train({**TRAINED, **UPDATE}, dtrain, 1, xgb_model=old, obj=lambda *_: (gradients[0], gradients[1] + 1))  # noqa: B023


def test_gradients_of_one_worker_that_are_not_finite_are_refused_by_all():
    X, y, _ = table("reg", 1)
    old = gb.train(TRAINED, gb.DMatrix(X, y), 2)

    def refuses(rank: int, params: dict) -> bool:
        dtrain = gb.DMatrix(X[rank::2], y[rank::2])
        gradients = np.ones((2, len(y[rank::2])), np.float32)
        gradients[rank, 7:8] = np.nan if rank else 1
        with pytest.raises(FloatingPointError, match="not finite"):
            gb.train(params, dtrain, 1, xgb_model=old if "process_type" in params else None, obj=lambda *_: gradients)
        return True

    for params in ({**TRAINED, **UPDATE}, {"booster": "gblinear"}):
        assert run_threads(2, lambda rank: refuses(rank, params)) == [True, True]  # noqa: B023


def test_biases_of_positions_are_learnt_anew():
    """Of an update's own rounds, whatever the model holds of those it was trained with."""
    rng = np.random.default_rng(0)
    X, relevance, qid = rng.normal(size=(200, 4)).astype(np.float32), rng.integers(0, 3, 200), np.repeat(np.arange(10), 20)
    params = {"objective": "rank:ndcg", "lambdarank_unbiased": True, **TRAINED, "max_depth": 2}
    theirs = xgboost.DMatrix(X, relevance, qid=qid, nthread=1)
    model = xgboost.train(params, theirs, 3)
    ours, raw = gb.DMatrix(X, relevance, qid=qid), bytes(model.save_raw("json"))
    one = gb.train({**params, **UPDATE}, ours, 1, xgb_model=raw, verbose_eval=False)
    peer = xgboost.train({**params, **UPDATE}, theirs, 1, xgb_model=bytearray(raw))
    np.testing.assert_allclose(one.predict(ours), peer.predict(theirs), rtol=1e-4, atol=1e-5)
    biases = [json.loads(bytes(booster.save_raw("json")))["learner"]["objective"]["ti+"][:4] for booster in (one, peer)]
    np.testing.assert_allclose(biases[0], biases[1], rtol=1e-4)


def test_what_is_taken_of_a_booster_in_mid_update_has_the_rounds_updated_so_far():
    """As in XGBoost: a copy, a pickle and a file. An update of them is one of their own; the booster goes on with the rest."""
    X, y, _ = table("reg", 1)
    data, peer_data = gb.DMatrix(X, y), xgboost.DMatrix(X, y, nthread=1)
    old = gb.train(TRAINED, data, 4)
    theirs = xgboost.Booster(model_file=old.save_raw("ubj"))
    for booster, matrix, library in ((ours := old.copy(), data, gb), (theirs, peer_data, xgboost)):
        booster.set_param(UPDATE)
        for number in range(3):
            booster.update(matrix, number)
        file = library.Booster(model_file=booster.save_raw("ubj"))
        copies = booster.copy(), pickle.loads(pickle.dumps(booster)), file
        assert [copied.num_boosted_rounds() for copied in copies] == [3, 3, 3]
    copied = ours.copy()
    for each in (copied, ours):
        each.update(data)
    assert [copied.num_boosted_rounds(), ours.num_boosted_rounds()] == [1, 4]
