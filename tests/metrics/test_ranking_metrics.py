"""ndcg, map and pre: by hand, XGBoost's values, scikit-learn's, ties, weights, workers, the direction of stopping."""

import numpy as np
import pytest
from sklearn.metrics import ndcg_score

import gpuboost as gb
from gpuboost.communicator import run_threads
from gpuboost.metrics import get_metric, metric_names
from gpuboost.params import Params

xgboost = pytest.importorskip("xgboost")

SIZES = [1, 5, 30, 2, 32, 30]  # XGBoost's ndcg, map and pre without a number look at 32 documents


def queries(is_binary=False):
    """Labels, only the third query without a relevant one, distinct margins."""
    rng = np.random.default_rng(3)
    label = rng.integers(0, 2 if is_binary else 5, sum(SIZES)).astype(np.float32)
    label[6:36], label[[0, 1, 36]] = 0, 1
    return label, rng.permutation(len(label)).astype(np.float32) / 8


def value(library, metric, label, margin, **info):
    data = library.DMatrix(np.zeros((len(label), 1)), label, base_margin=margin, **info)
    return float(library.train({"eval_metric": metric}, data, 0).eval(data, "t").split(f"t-{metric}:")[1])


@pytest.mark.parametrize("metric", ["ndcg", "map", "pre"])
@pytest.mark.parametrize("suffix", ["", "-", "@1", "@3", "@10", "@100", "@3-"])
@pytest.mark.parametrize("weighted", [False, True])
def test_values_are_xgboosts(metric, suffix, weighted):
    label, margin = queries(metric != "ndcg")
    weight = [0.5, 1.5, 1, 2, 3, 0.25]  # of a query without relevant documents XGBoost's ndcg leaves the weight out
    info = {"group": SIZES, "weight": weight if weighted else None}
    ours, theirs = (value(library, metric + suffix, label, margin, **info) for library in (gb, xgboost))
    assert ours == pytest.approx(theirs, rel=1e-6)


def test_values_by_hand():
    """Relevant are the second and the fourth of four."""
    label, margin = np.array([0, 1, 0, 1], np.float32), np.array([4, 3, 2, 1], np.float32)
    expected = {"pre@2": 1 / 2, "pre": 1 / 2, "pre@3": 1 / 3, "map": (1 / 2 + 2 / 4) / 2, "map@3": (1 / 2) / 2, "map@1": 0}
    best = 1 + 1 / np.log2(3)
    expected |= {"ndcg": (1 / np.log2(3) + 1 / np.log2(5)) / best, "ndcg@2": (1 / np.log2(3)) / best}
    for metric, number in expected.items():
        assert value(gb, metric, label, margin, group=[4]) == pytest.approx(number), metric
        assert value(gb, metric, label, margin) == pytest.approx(number), f"{metric} of all rows as one query"


def test_linear_gains_are_scikit_learns():
    label, margin = queries()
    data = gb.DMatrix(np.zeros((100, 1)), label, base_margin=margin, group=SIZES)
    params = {"eval_metric": ["ndcg@7", "ndcg"], "ndcg_exp_gain": False}
    of_sets = dict(pair.split("-")[1].split(":") for pair in gb.train(params, data, 0).eval(data, "t").split("\t")[1:])
    for name, k in (("ndcg@7", 7), ("ndcg", None)):
        ends, scores = np.cumsum([0, *SIZES]), []
        for begin, end in zip(ends, ends[1:]):
            y, s = label[None, begin:end], margin[None, begin:end]
            scores.append(ndcg_score(y, s, k=k) if end - begin > 1 and y.any() else 1.0)
        assert float(of_sets[name]) == pytest.approx(np.mean(scores))


def test_ties_keep_the_order_of_rows():
    label = np.array([0, 1, 1, 0], np.float32)
    assert value(gb, "pre@1", label, np.zeros(4), group=[4]) == 0
    assert value(gb, "pre@2", label[::-1], np.zeros(4), group=[4]) == 0.5


def test_workers_with_whole_queries_agree_to_the_bit():
    label, margin = queries(True)
    metrics = ["ndcg@5", "map", "pre@3-"]
    weight = np.arange(6) / 3 + 0.1

    def evaluated(first, last):
        own = slice(sum(SIZES[:first]), sum(SIZES[:last]))
        info = {"base_margin": margin[own], "group": SIZES[first:last], "weight": weight[first:last]}
        data = gb.DMatrix(np.zeros((own.stop - own.start, 1)), label[own], **info)
        return gb.train({"eval_metric": metrics}, data, 0).eval(data)

    expected = evaluated(0, 6)
    for bounds in ([0, 2, 6], [0, 1, 5, 6]):
        assert set(run_threads(len(bounds) - 1, lambda rank, b=bounds: evaluated(b[rank], b[rank + 1]))) == {expected}
    data = gb.DMatrix(np.zeros((3, 1)), [0, 1, 0])
    with pytest.raises(ValueError, match="'ndcg' of several workers needs queries"):
        run_threads(2, lambda rank: gb.train({"eval_metric": "ndcg"}, data, 0).eval(data))


def test_more_is_better():
    for name in ("ndcg", "map@3", "pre@2-"):
        assert get_metric(name).maximize
    assert {"ndcg", "map", "pre"} <= set(metric_names())
    label, _ = queries()
    data = gb.DMatrix(np.random.default_rng(0).normal(size=(100, 3)), label, group=SIZES)
    other = gb.DMatrix(np.random.default_rng(1).normal(size=(100, 3)), label, group=SIZES)
    log = {}
    watched = {"evals": [(other, "t")], "evals_result": log, "early_stopping_rounds": 3, "verbose_eval": False}
    booster = gb.train({"objective": "rank:ndcg"}, data, 30, **watched)
    values = log["t"]["ndcg@32"]
    assert booster.best_iteration == int(np.argmax(values)) and len(values) == booster.best_iteration + 4


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ndcg@0", "needs a number of documents, got '0'. Use ndcg@10"), ("map@x", "got 'x'"), ("pre@", "got ''"),
        ("ndcg@3--", "got '3--'"),
    ],
)
def test_an_argument_that_is_no_number_of_documents(name, message):
    with pytest.raises(ValueError, match=message):
        get_metric(name, Params())


def test_labels_that_a_metric_does_not_take():
    with pytest.raises(ValueError, match="'map' needs labels that are 0 or 1, got 2 at row 1. Use ndcg"):
        value(gb, "map", np.array([0, 2.0]), np.zeros(2))
    with pytest.raises(ValueError, match="'ndcg' needs labels that are whole numbers from 0 to 31 .*got 0.5 at row 0"):
        value(gb, "ndcg", np.array([0.5, 2.0]), np.zeros(2))
