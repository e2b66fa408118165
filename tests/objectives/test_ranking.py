"""rank:pairwise, rank:ndcg and rank:map: XGBoost's gradients, metrics and files; weights of queries, labels, biases of positions,
one model on any workers."""

import json

import numpy as np
import pytest

import gpuboost as gb
from gpuboost.communicator import run_threads
from gpuboost.model_io import digest

xgboost = pytest.importorskip("xgboost")

NAMES = ["rank:pairwise", "rank:ndcg", "rank:map"]
each_name = pytest.mark.parametrize("name", NAMES)
OPTIONS = [
    {}, {"lambdarank_num_pair_per_sample": 5}, {"lambdarank_unbiased": True},
    {"lambdarank_unbiased": True, "lambdarank_bias_norm": 0.5, "lambdarank_num_pair_per_sample": 8},
    {"lambdarank_normalization": False, "lambdarank_score_normalization": False}, {"ndcg_exp_gain": False},
]  # fmt: skip
SIZES = np.array([1, 40, 59, 100, 150])
TREES = {"max_depth": 3, "min_child_weight": 0.1}
MEAN = {"lambdarank_pair_method": "mean", "lambdarank_num_pair_per_sample": 2}


def documents(name="rank:ndcg", sizes=SIZES):
    """X, labels that a column tells something of, weights of the queries."""
    rng = np.random.default_rng(7)
    X = rng.normal(size=(sum(sizes), 4)).astype(np.float32)
    signal = X[:, 0] + rng.normal(size=len(X))
    label = np.digitize(signal, [0.3] if name == "rank:map" else [-0.5, 0.3, 1, 2])
    return X, label, np.array([1, 0.5, 1.5, 2, 1], np.float32)  # where no document is relevant XGBoost's ndcg takes 1


def matrices(name="rank:ndcg", **info):
    X, label, weight = documents(name)
    info = {"group": SIZES, "weight": weight, **info}
    return gb.DMatrix(X, label, **info), xgboost.DMatrix(X, label, nthread=1, **info)


@pytest.mark.sweep(7)
@each_name
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_rounds_metrics_and_files_are_xgboosts(name, options):
    ours, theirs = matrices(name)
    params = {"objective": name, "max_depth": 3, "max_bin": 512, **options}
    logs = {}, {}
    booster = gb.train(params, ours, 3, evals=[(ours, "t")], evals_result=logs[0], verbose_eval=False)
    params |= {"base_score": 0.0, "nthread": 1}  # theirs starts there, too, to some 1e-9
    peer = xgboost.train(params, theirs, 3, evals=[(theirs, "t")], evals_result=logs[1], verbose_eval=False)
    np.testing.assert_allclose(booster.predict(ours), peer.predict(theirs), rtol=1e-5, atol=2e-6)  # it adds float32
    assert logs[0]["t"].keys() == logs[1]["t"].keys()
    for metric, values in logs[1]["t"].items():
        assert logs[0]["t"][metric] == pytest.approx(values, rel=1e-6)
    mine, other = (json.loads(bytes(b.save_raw("json")))["learner"]["objective"] for b in (booster, peer))
    assert mine.keys() == other.keys() and mine["lambdarank_param"] == other["lambdarank_param"]
    for bias in mine.keys() - {"name", "lambdarank_param"}:
        assert mine[bias] == pytest.approx(other[bias], rel=1e-4)
    for raw_format in ("json", "ubj"):
        read = xgboost.Booster(model_file=booster.save_raw(raw_format))
        np.testing.assert_allclose(read.predict(theirs), booster.predict(ours), rtol=1e-6, atol=1e-6)
        read = gb.Booster(model_file=bytes(peer.save_raw(raw_format)))
        np.testing.assert_allclose(read.predict(ours), peer.predict(theirs), rtol=1e-6, atol=1e-6)
        given = {key: value for key, value in options.items() if key != "ndcg_exp_gain" or name != "rank:pairwise"}
        assert {key: getattr(read.params, key) for key in given} == given


@each_name
def test_many_sampled_pairs_give_xgboosts_gradients(name):
    """Each library draws its own partners; of 2,000 of each document little is left to chance: the first trees go together, but
    for documents beside a threshold."""
    sizes = np.arange(30) + 10
    X, label, _ = documents(name, sizes)
    params = {"objective": name, **TREES, **MEAN, "lambdarank_num_pair_per_sample": 2000, "base_score": 0.0, "nthread": 1}
    leaves = [
        library.train(params, data := library.DMatrix(X, label, group=sizes), 1).predict(data) for library in (gb, xgboost)
    ]  # fmt: skip
    assert np.corrcoef(*leaves)[0, 1] > 0.9


def trained(params, rows=slice(None), rounds=3, groups=slice(None), **info):
    X, label, weight = documents(params.get("objective"))
    data = gb.DMatrix(X[rows], label[rows], group=SIZES[groups], weight=weight[groups], **info)
    return gb.train({**TREES, **params}, data, rounds, verbose_eval=False)


@each_name
@pytest.mark.parametrize("options", [{}, MEAN, {"lambdarank_unbiased": True}, {**MEAN, "lambdarank_unbiased": True}], ids=str)
def test_any_number_of_workers_with_whole_queries_trains_one_model(name, options):
    params = {"objective": name, **options}
    expected = digest(trained(params).model)
    for bounds in ([0, 3, 5], [0, 1, 2, 5]):
        rows = [int(SIZES[:bound].sum()) for bound in bounds]

        def work(rank, bounds=bounds, rows=rows):
            own = slice(rows[rank], rows[rank + 1])
            return trained({**params, "nthread": 1}, own, groups=slice(bounds[rank], bounds[rank + 1]))

        assert {digest(booster.model) for booster in run_threads(len(bounds) - 1, work)} == {expected}


@each_name
def test_pages_that_cut_queries_and_threads_do_not_show(name):
    X, label, weight = documents(name)
    digests = set()
    for n_threads, paged in ((1, {}), (2, {"page_rows": 70})):
        data = gb.QuantileDMatrix(X, label, group=SIZES, weight=weight, **paged)
        digests.add(digest(gb.train({"objective": name, **TREES, "nthread": n_threads}, data, 3).model))
    assert len(digests) == 1


@pytest.mark.parametrize("options", [{}, MEAN, {"lambdarank_unbiased": True}, {**MEAN, "lambdarank_unbiased": True}], ids=str)
def test_going_on_with_a_model_is_as_never_having_stopped(options, tmp_path):
    """Also through a file, and after a kill: biases and draws go on."""
    params = {"objective": "rank:ndcg", **options}
    whole, first = trained(params, rounds=5), trained(params, rounds=2)
    X, label, weight = documents()
    data = gb.DMatrix(X, label, group=SIZES, weight=weight)
    for model in (first, first.save_raw("json"), first.save_raw("ubj")):
        assert digest(gb.train({**TREES, **params}, data, 3, xgb_model=model).model) == digest(whole.model)

    class Killed(gb.callback.TrainingCallback):
        def after_iteration(self, model, epoch, evals_log):
            if epoch == 3:
                raise KeyboardInterrupt
            return False

    arguments = {"resume_from": tmp_path, "checkpoint_interval": 2}
    with pytest.raises(KeyboardInterrupt):
        gb.train({**TREES, **params}, data, 5, callbacks=[Killed()], **arguments)
    with pytest.raises(ValueError, match="holds the checkpoint of another training: .*queries of data was"):
        gb.train({**TREES, **params}, gb.DMatrix(X, label, group=[len(X)]), 5, **arguments)
    assert digest(gb.train({**TREES, **params}, data, 5, **arguments).model) == digest(whole.model)


@each_name
def test_a_query_of_weight_0_is_as_good_as_absent(name):
    X, label, _ = documents(name)
    weight, kept = np.array([2, 0, 1, 0, 3], np.float32), np.repeat([True, False, True, False, True], SIZES)
    for options in ({}, MEAN, {"lambdarank_unbiased": True}):
        params = {"objective": name, **TREES, **options}
        with_zeros = gb.DMatrix(X, label, group=SIZES, weight=weight)
        without = gb.DMatrix(X[kept], label[kept], group=SIZES[[0, 2, 4]], weight=weight[[0, 2, 4]])
        digests = [digest(gb.train(params, data, 3).model) for data in (with_zeros, without)]
        assert digests[0] == digests[1]


def test_weights_of_queries_count_by_their_ratios_and_rows_get_them():
    X, label, weight = documents()
    data = gb.DMatrix(X, label, group=SIZES, weight=weight)
    assert data.get_weight().tolist() == np.repeat(weight, SIZES).tolist()
    params = {"objective": "rank:ndcg", "max_depth": 3}
    expected = digest(gb.train(params, data, 2).model)
    for other in (np.repeat(weight, SIZES), weight * 4):
        assert digest(gb.train(params, gb.DMatrix(X, label, group=SIZES, weight=other), 2).model) == expected
    data.set_weight(np.repeat(weight, SIZES) + np.arange(len(X)))
    with pytest.raises(ValueError, match="weight must be the same for all rows of a query .* row 2 .* one weight per query, 5"):
        gb.train(params, data, 1)
    with pytest.raises(ValueError, match="weight has 5 rows, data has 350"):
        gb.DMatrix(X, label, weight=weight)


def test_what_cannot_be_ranked_is_refused():
    X, label, _ = documents()
    with pytest.raises(ValueError, match="rank:ndcg needs to know which rows are one query. Pass qid= or group="):
        gb.train({"objective": "rank:ndcg"}, gb.DMatrix(X, label), 1)
    with pytest.raises(ValueError, match="qid must not decrease, but does at row 1: 0. Sort the rows by query"):
        gb.DMatrix(X[:3], label[:3], qid=[1, 0, 0])
    with pytest.raises(ValueError, match="rank:ndcg takes one label column of relevance, got 2"):
        gb.train({"objective": "rank:ndcg"}, gb.DMatrix(X, np.stack([label] * 2, axis=1), group=SIZES), 1)
    for name, value, allowed in (
        ("rank:ndcg", 0.5, "whole numbers from 0 to 31 with ndcg_exp_gain"), ("rank:ndcg", 32, "Use ndcg_exp_gain=False"),
        ("rank:ndcg", -1, "whole numbers from 0 to 31"),
        ("rank:map", 2, "0 or 1; 1 of 350 are not, the first at row 3: 2. Use rank:ndcg"),
    ):  # fmt: skip
        label = (documents(name)[1]).astype(float)
        label[3] = value
        with pytest.raises(ValueError, match=allowed):
            gb.train({"objective": name}, gb.DMatrix(X, label, group=SIZES), 1)
    label = np.where(label > 0, 0.5, 40)
    gb.train({"objective": "rank:ndcg", "ndcg_exp_gain": False}, gb.DMatrix(X, label, group=SIZES), 1)
    gb.train({"objective": "rank:pairwise"}, gb.DMatrix(X, -label, group=SIZES), 1)
    with pytest.raises(ValueError, match="lambdarank_unbiased belongs to rank:map, rank:ndcg, rank:pairwise, not to reg:squared"):
        gb.train({"lambdarank_unbiased": True}, gb.DMatrix(X, label), 1)
    for pairs in (0, 1.5):
        with pytest.raises(ValueError, match="lambdarank_num_pair_per_sample must be an integer"):
            gb.Booster({"objective": "rank:ndcg", "lambdarank_num_pair_per_sample": pairs})


@pytest.mark.filterwarnings("ignore:the first round split no node")
def test_queries_without_a_pair_and_without_rows_teach_nothing():
    X, label, _ = documents()
    data = gb.DMatrix(X, np.repeat(np.arange(5), SIZES), group=SIZES)  # one label each
    with pytest.warns(UserWarning, match="no query has documents of different labels, so rank:ndcg has no pair to learn from"):
        booster = gb.train({"objective": "rank:ndcg"}, data, 2)
    assert (booster.predict(data) == 0).all()
    sizes = np.insert(SIZES, 2, 0)
    with_empty = gb.DMatrix(X, label, group=sizes)
    params = {"objective": "rank:ndcg", "max_depth": 3}
    expected = digest(gb.train(params, gb.DMatrix(X, label, group=SIZES), 2).model)
    assert digest(gb.train(params, with_empty, 2).model) == expected
    with_empty.set_info(qid=np.repeat([3, 5, 6, 8, 9], SIZES))
    assert digest(gb.train(params, with_empty, 2).model) == expected


def clicks(n_queries=400, n_listed=10, seed=0):
    """X, clicks, relevance, sizes: what is listed at position p is looked at with probability (1/(p + 1))^0.7, and clicked by its
    relevance. Lists are sorted by a poor ranking."""
    rng = np.random.default_rng(seed)
    n = n_queries * n_listed
    X = rng.normal(size=(n, 5)).astype(np.float32)
    relevance = np.digitize(X[:, 0] + X[:, 1] + rng.normal(size=n) * 0.5, [0.5, 1.5, 2.5])
    poor = X[:, 0] * 0.7 + rng.normal(size=n)
    order = np.lexsort((-poor, np.repeat(np.arange(n_queries), n_listed)))
    X, relevance, position = X[order], relevance[order], np.tile(np.arange(n_listed), n_queries)
    looked_at = (1 / (position + 1)) ** 0.7
    return X, (rng.random(n) < looked_at * (0.05 + 0.3 * relevance)).astype(int), relevance, looked_at[:n_listed]


def test_unbiased_mode_finds_the_biases_of_positions():
    X, clicked, relevance, looked_at = clicks(2000)
    data, clean = (gb.DMatrix(X, label, group=np.full(2000, 10)) for label in (clicked, relevance))
    scores = {}
    for unbiased in (False, True):
        params = {"objective": "rank:pairwise", "lambdarank_unbiased": unbiased, "max_depth": 3, "learning_rate": 0.1,
                  "eval_metric": "ndcg@5", "lambdarank_num_pair_per_sample": 10}  # fmt: skip
        log = {}
        booster = gb.train(params, data, 40, evals=[(clean, "clean")], evals_result=log, verbose_eval=False)
        scores[unbiased] = log["clean"]["ndcg@5"][-1]
    found = booster.model.objective_params["ti+"]
    ranks = [np.argsort(np.argsort(values)) for values in (found, looked_at)]
    assert np.corrcoef(*ranks)[0, 1] > 0.9 and scores[True] > scores[False]
