"""Metrics of classes, beside scikit-learn's and XGBoost's: weights, ties, labels in between, several classes, workers."""

import math

import numpy as np
import pytest
from sklearn import metrics as sklearn_metrics

import gpuboost as gb
from gpuboost.communicator import Communicator, run_threads
from gpuboost.metrics import auc

xgboost = pytest.importorskip("xgboost")


def value(library, metric, label, margin, weight=None, objective="binary:logistic"):
    """By a model without trees whose margins are given."""
    data = library.DMatrix(np.zeros((len(label), 1)), label, weight=weight, base_margin=margin)
    classes = {"num_class": margin.shape[1]} if margin.ndim == 2 else {}
    params = {"objective": objective, "eval_metric": metric, "base_score": 0.5, **classes}
    return float(library.train(params, data, 0).eval(data, "t").split(f"t-{metric}:")[1])


def two_classes(n_rows=300, seed=0):
    """Labels, margins with ties, probabilities, weights, some of them 0."""
    rng = np.random.default_rng(seed)
    label = (rng.random(n_rows) < 0.3).astype(np.float32)
    margin = np.round(label + rng.normal(size=n_rows), 1).astype(np.float32)
    return label, margin, 1 / (1 + np.exp(-margin.astype(np.float64))), (rng.integers(0, 4, n_rows) / 3).astype(np.float32)


@pytest.mark.parametrize("weighted", [False, True])
def test_two_classes(weighted):
    label, margin, p, weight = two_classes()
    weight = weight if weighted else None
    expected = {
        "logloss": sklearn_metrics.log_loss(label, p, sample_weight=weight),
        "error": 1 - sklearn_metrics.accuracy_score(label, p > 0.5, sample_weight=weight),
        "error@0.7": 1 - sklearn_metrics.accuracy_score(label, p > 0.7, sample_weight=weight),
        "auc": sklearn_metrics.roc_auc_score(label, p, sample_weight=weight),
    }
    for metric, of_sklearn in expected.items():
        assert value(gb, metric, label, margin, weight) == pytest.approx(of_sklearn, rel=1e-6), metric
    for metric in (*expected, "aucpr"):
        ours, theirs = (value(library, metric, label, margin, weight) for library in (gb, xgboost))
        assert ours == pytest.approx(theirs, rel=1e-5), metric  # float32


@pytest.mark.parametrize("weighted", [False, True])
def test_several_classes(weighted):
    rng = np.random.default_rng(2)
    label = rng.choice(3, 300, p=[0.6, 0.3, 0.1]).astype(np.float32)
    margin = (np.eye(3)[label.astype(int)] + rng.normal(size=(300, 3))).astype(np.float32)
    weight = (rng.integers(1, 4, 300) / 3).astype(np.float32) if weighted else None
    p = np.exp(margin.astype(np.float64))
    p /= p.sum(axis=1, keepdims=True)
    expected = {
        "mlogloss": sklearn_metrics.log_loss(label, p, sample_weight=weight),
        "merror": 1 - sklearn_metrics.accuracy_score(label, margin.argmax(axis=1), sample_weight=weight),
    }
    for metric, of_sklearn in expected.items():
        assert value(gb, metric, label, margin, weight, "multi:softprob") == pytest.approx(of_sklearn, rel=1e-6), metric
    for metric in (*expected, "auc", "aucpr"):
        ours, theirs = (value(library, metric, label, margin, weight, "multi:softprob") for library in (gb, xgboost))
        assert ours == pytest.approx(theirs, rel=1e-5), metric  # float32


def several_labels():
    label = np.stack([two_classes(seed=seed)[0] for seed in range(3)], axis=1)
    return label, np.round(label + np.random.default_rng(3).normal(size=label.shape), 1).astype(np.float32), two_classes()[3]


@pytest.mark.parametrize("strategy", ["one_output_per_tree", "multi_output_tree"])
def test_areas_of_several_labels_are_averaged(strategy):
    label, margin, weight = several_labels()
    data = gb.DMatrix(margin, label, weight=weight)
    params = {"objective": "binary:logistic", "eval_metric": ["auc", "aucpr"], "multi_strategy": strategy, "max_depth": 2}
    booster = gb.train(params, data, 2, evals=[(data, "t")], evals_result=(log := {}), verbose_eval=False)
    p = booster.predict(data)
    assert log["t"]["auc"][-1] == pytest.approx(sklearn_metrics.roc_auc_score(label, p, sample_weight=weight), rel=1e-6)
    margins = booster.predict(data, output_margin=True)
    single = [value(gb, "aucpr", label[:, k], margins[:, k], weight) for k in range(3)]
    assert log["t"]["aucpr"][-1] == pytest.approx(np.mean(single), rel=1e-6)


@pytest.mark.parametrize("metric", ["auc", "aucpr"])
def test_areas_of_grades_are_refused(metric):
    label, margin = np.float32([0, 1, 3, 1]), np.float32([1, 2, 3, 0])
    with pytest.raises(ValueError, match=f"'{metric}' needs labels from 0 to 1, got 3. Use ndcg for grades of relevance"):
        value(gb, metric, label, margin, objective="reg:squarederror")
    weight = np.float32([1, 1, 0, 1])
    assert 0 < value(gb, metric, label, margin, weight, "reg:squarederror") <= 1  # but for rows of weight 0


def test_areas_take_a_prediction_for_each_label():
    X, time = np.zeros((3, 1)), [1, 2, 3]
    data = gb.DMatrix(X, label_lower_bound=time, label_upper_bound=time)
    with pytest.raises(ValueError, match="'auc' takes a prediction for each label, or for each class, got 1 for 2"):
        gb.train({"objective": "survival:aft", "eval_metric": "auc"}, data, 1, evals=[(data, "t")])


@pytest.mark.parametrize("objective, name", [("reg:quantileerror", "quantile_alpha"), ("reg:expectileerror", "expectile_alpha")])
@pytest.mark.parametrize("metric, message", [
    *[(metric, f"'{metric}' takes a prediction for each label, or for each class, got 2 for 1") for metric in ("auc", "aucpr")],
    *[(metric, f"'{metric}' needs a multi-class objective") for metric in ("merror", "mlogloss")],
])  # fmt: skip
def test_outputs_that_are_no_classes_are_not_taken_for_some(objective, name, metric, message):
    data = gb.DMatrix(np.arange(4.0)[:, None], [0, 1, 0, 1])
    with pytest.raises(ValueError, match=message):
        gb.train({"objective": objective, name: [0.2, 0.5], "eval_metric": metric}, data, 1, evals=[(data, "t")])


@pytest.mark.parametrize("metric", ["auc", "aucpr"])
def test_areas_of_a_class_without_rows_are_nan(metric):
    label, margin = np.float32([0, 1, 0, 1]), np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    ours, theirs = (value(library, metric, label, margin, None, "multi:softprob") for library in (gb, xgboost))
    assert np.isnan(ours) and np.isnan(theirs)


def test_errors_that_differ_in_the_seventh_digit_have_names_of_their_own():
    names = ["error@0.1234567", "error@0.1234568"]
    gb.train({"eval_metric": names}, (data := gb.DMatrix(np.zeros((2, 1)), label=[0, 1])), 1, evals=[(data, "t")],
             evals_result=(scores := {}), verbose_eval=False)  # fmt: skip
    assert list(scores["t"]) == names


@pytest.mark.parametrize("name", ["error@0.30", "error@3e-1", "error@0.5"])
def test_names_of_errors_are_xgboosts(name):
    results = []
    for library in (gb, xgboost):
        data = library.DMatrix(np.zeros((2, 1)), label=[0, 1])
        library.train({"eval_metric": name}, data, 1, evals=[(data, "t")], evals_result=(scores := {}), verbose_eval=False)
        results.append(list(scores["t"]))
    assert results[0] == results[1]


def test_precision_and_recall_by_hand():
    # from the largest down: + (recall ½, precision 1), − and + together (recall 1, precision ⅔)
    label, margin = np.float32([1, 0, 1, 0]), np.float32([3, 2, 2, 1])
    t = np.linspace(1, 2, 100001)
    curve = t / (2 * t - 1)  # one negative more for one positive more
    assert value(gb, "aucpr", label, margin) == pytest.approx((1 + np.trapezoid(curve, t)) / 2, rel=1e-9)


def test_labels_in_between_count_in_part():
    rng = np.random.default_rng(3)
    label, margin = rng.random(200).astype(np.float32), np.round(rng.normal(size=200), 1).astype(np.float32)
    assert value(gb, "aucpr", label, margin) == pytest.approx(value(xgboost, "aucpr", label, margin), rel=1e-6)


@pytest.mark.parametrize("n_rows, largest", [(3, 1), (40, 1), (2000, 1), (2000, 1e-5), (300_000, 1e-4)])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_area_of_labels_in_between_is_that_of_parts(n_rows, largest, weighted):
    """Every row is a positive one of weight w · y and a negative one of weight w · (1 − y)."""
    rng = np.random.default_rng(n_rows)
    label, weight = rng.random((2, n_rows)).astype(np.float32)
    margin = np.round(label + rng.normal(size=n_rows), 1).astype(np.float32)
    label *= np.float32(largest)
    weight = weight if weighted else None
    parts = np.concatenate([label, 1 - label.astype(np.float64)]) * (np.tile(weight, 2) if weighted else 1)
    expected = sklearn_metrics.roc_auc_score(np.repeat([1, 0], n_rows), np.tile(margin, 2), sample_weight=parts)
    assert value(gb, "auc", label, margin, weight) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("metric", ["auc", "aucpr"])
def test_rows_of_one_class_have_no_area_which_is_said(metric):
    with pytest.warns(UserWarning, match=f"{metric} is NaN: the rows are all of one class"):
        assert math.isnan(value(gb, metric, np.zeros(5, np.float32), np.arange(5, dtype=np.float32)))


def test_one_class_has_no_area():
    for label in ([0, 0], [1, 1]):
        assert np.isnan(value(gb, "aucpr", np.float32(label), np.float32([1, 2])))


def test_workers_agree_in_parts_and_never_gather_all_rows(monkeypatch):
    label, margin, _, weight = two_classes()
    margin += np.random.default_rng(1).normal(size=300).astype(np.float32) / 100 * (np.arange(300) % 3 > 0)  # not all are tied
    monkeypatch.setattr(auc, "AT_ONCE", 40)
    gathered, gather = [], Communicator.gather_columns
    monkeypatch.setattr(
        Communicator, "gather_columns", lambda comm, rows: (result := gather(comm, rows), gathered.append(result.shape[1]))[0]
    )
    parts = [slice(0, 1), slice(1, 1), slice(1, 120), slice(120, 300)]
    for metric in ("auc", "aucpr"):
        expected = value(gb, metric, label, margin, weight)
        values = run_threads(4, lambda rank, m=metric: value(gb, m, label[parts[rank]], margin[parts[rank]], weight[parts[rank]]))
        assert set(values) == {expected}, metric
    assert len(gathered) > 20 and max(gathered) <= 40


def test_workers_agree_on_the_whole():
    label, margin, _, weight = two_classes()
    parts = [slice(0, 1), slice(1, 120), slice(120, 300)]
    for metric in ("auc", "aucpr", "logloss", "error@0.7"):
        values = run_threads(3, lambda rank, m=metric: value(gb, m, label[parts[rank]], margin[parts[rank]], weight[parts[rank]]))
        assert set(values) == {value(gb, metric, label, margin, weight)}, metric


def significance(s, b):
    return math.sqrt(2 * ((s + b + 10) * math.log(1 + s / (b + 10)) - s))


def test_significance_by_hand():
    # from the largest down: signal, background and signal together, background
    label, margin = np.float32([1, 0, 1, 0]), np.float32([3, 2, 2, 1])
    assert value(gb, "ams", label, margin) == pytest.approx(max(significance(1, 0), significance(2, 1)), rel=1e-9)
    assert value(gb, "ams@0.5", label, margin) == pytest.approx(significance(1, 1), rel=1e-9)  # row 1 is before row 2
    weight = np.float32([1, 50, 1, 1])
    assert value(gb, "ams@0", label, margin, weight) == pytest.approx(significance(1, 0), rel=1e-9)
    assert value(gb, "ams", np.zeros(4, np.float32), margin) == value(gb, "ams", label[:1], margin[:1]) == 0


@pytest.mark.parametrize("metric", ["ams@0", "ams@0.15", "ams@0.29", "ams@1"])
@pytest.mark.parametrize("weighted", [False, True])
def test_significance_as_xgboost_says(metric, weighted):
    label, _, _, weight = two_classes(100)
    margin = (label + np.random.default_rng(0).normal(size=100)).astype(np.float32)  # its order of equal ones is any
    weight = weight + np.float32(0.1) if weighted else None
    ours, theirs = (value(library, metric, label, margin, weight) for library in (gb, xgboost))
    assert ours == pytest.approx(theirs, rel=1e-5)  # float32


@pytest.mark.parametrize("metric", ["ams", "ams@0.3"])
def test_workers_agree_on_significance_and_rows_of_weight_0_are_absent(metric):
    label, margin, _, weight = two_classes()
    expected, there = value(gb, metric, label, margin, weight), weight > 0
    assert expected == value(gb, metric, label[there], margin[there], weight[there]) > 0
    parts = [slice(0, 1), slice(1, 1), slice(1, 120), slice(120, 300)]
    values = run_threads(4, lambda rank: value(gb, metric, label[parts[rank]], margin[parts[rank]], weight[parts[rank]]))
    assert set(values) == {expected}


def test_early_stopping_looks_for_the_largest_significance():
    label, margin, _, _ = two_classes()
    data = gb.DMatrix(margin[:, None], label)
    params = {"objective": "binary:logistic", "eval_metric": "ams@0.3", "max_depth": 2}
    evals, log = [(data, "t")], {}
    booster = gb.train(params, data, 20, evals=evals, early_stopping_rounds=5, evals_result=log, verbose_eval=False)
    assert booster.best_score == max(log["t"]["ams@0.3"])


def test_several_classes_have_no_significance():
    data = gb.DMatrix(np.zeros((3, 1)), [0, 1, 2])
    with pytest.raises(ValueError, match="'ams' takes one label column and one prediction of a row, got 1 and 3"):
        gb.train({"objective": "multi:softprob", "num_class": 3, "eval_metric": "ams"}, data, 1, evals=[(data, "t")])


def test_products_beyond_64_bits_are_summed_exactly(monkeypatch):
    monkeypatch.setattr(auc, "DOT_AT_ONCE", 7)
    rng = np.random.default_rng(0)
    for bits_a, bits_b in ((1, 62), (40, 46), (62, 62)):
        a, b = (rng.integers(0, 2**bits, 30) for bits in (bits_a, bits_b))
        exact = sum(x * y for x, y in zip(a.tolist(), b.tolist()))
        assert auc.exact_dot(a, b, max(exact, 2**63)) == exact
        if exact < 2**63:
            assert auc.exact_dot(a, b, exact) == exact
    assert auc.exact_dot(np.zeros(0, np.int64), np.zeros(0, np.int64), 2**70) == 0


@pytest.mark.parametrize("metric", ["auc", "aucpr"])
def test_what_is_kept_of_labels_and_weights_goes_with_them(metric):
    """A matrix whose labels and weights change between rounds, also from whole to parts and from no weights to some."""
    label, margin, _, weight = two_classes()
    data = gb.DMatrix(np.zeros((len(label), 1)), label, base_margin=margin)
    params = {"objective": "binary:logistic", "eval_metric": metric, "max_depth": 1}
    booster = gb.train(params, data, 2, evals=[(data, "t")], verbose_eval=False)  # which goes on
    for own_label, own_weight in ((label, None), (1 - label, None), (label, weight), (label * 0.75, weight), (label, 3 * weight)):
        data.set_label(own_label)
        if own_weight is not None:
            data.set_weight(own_weight)
        found, other = booster.eval(data, "t"), gb.DMatrix(np.zeros((len(label), 1)), own_label, own_weight, margin)
        assert found == gb.Booster(params, model_file=booster.save_raw()).eval(other, "t")
