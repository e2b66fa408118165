"""An objective is one class: defined here and nowhere else, it trains on every backend and comes back from its model file."""

import json
import math

import numpy as np
import pytest
from naive_backend import NaiveBackend
from numba import float32, float64
from simulator import SimulatedDevice

import gpuboost as gb
from gpuboost import objectives
from gpuboost.backend import CpuBackend
from gpuboost.backend.cuda import CudaBackend
from gpuboost.kernels.jit import scalar
from gpuboost.kernels.scalar import exp_float
from gpuboost.model.model import Model
from gpuboost.model_io import digest, load_model
from gpuboost.objectives import LOG, LOGIT, Objective, Parameter, find_objective, get_objective, objective_names, objective_of
from gpuboost.objectives.base import invalid_labels
from gpuboost.objectives.multiclass import SoftProb
from gpuboost.params import Params

# ---------------------------------------------------------------------------------------------------------------------
# Three objectives, one of each kind of formula


@scalar
def shortfall_gradient(margin, label, weight, output, parameters):
    """Poisson loss of e^margin. A prediction below the label counts parameters[0] times; so that all arguments matter, the second
    output counts half, and a row that weighs more than 2 twice."""
    mean = exp_float(margin)
    times = parameters[0] if mean < label else float32(1.0)
    times = times * float32(0.5) if output == 1 else times
    times = times * float32(2.0) if weight > float32(2.0) else times
    return float32(float32(mean - label) * times), float32(mean * times)


@scalar
def label_sum(prediction, label, i, parameters):
    return float64(label[int(parameters[0]), i])


class Shortfall(Objective):
    name = "test:shortfall"
    default_metric = "rmse"
    takes = (Parameter("scale_pos_weight", "shortfall_param"), Parameter("max_delta_step", "shortfall_param", in_formula=False))
    link = LOG
    gradient = staticmethod(shortfall_gradient)

    def check_labels(self, label):
        if (label < 0).any():
            raise invalid_labels(label, label < 0, self.name, "at least 0", "Train on something else.")

    def base_score(self, labels, n_outputs):
        return [labels.sum_of(label_sum, k) / labels.total_weight for k in range(n_outputs)]


@scalar
def outside_gradient(margin, label, weight, output, parameters):
    """½(distance to the interval)²: 0 inside of it."""
    below, above = label
    bound = below if margin < below else above
    return float32(margin - bound) if margin < below or margin > above else float32(0.0), float32(1.0)


class Interval(Objective):
    name = "test:interval"
    default_metric = "test:outside"
    label_rows = 2
    gradient = staticmethod(outside_gradient)

    def base_score(self, labels, n_outputs):
        return [labels.sum_of(label_sum, 2 * k) / labels.total_weight for k in range(n_outputs)]


class RowwiseSoftProb(SoftProb):
    """Its formula as it stands, without the kernel that multi:softprob has for it on the CPU."""

    name = "test:softprob"
    gradients_cpu = Objective.gradients_cpu


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    objective_names()
    monkeypatch.setattr(objectives._registry, "_classes", dict(objectives._registry._classes))
    for cls in (Shortfall, Interval, RowwiseSoftProb):
        objectives.register(cls)


# ---------------------------------------------------------------------------------------------------------------------
# Training

N_ROWS = 90
BACKENDS = {
    "one thread": lambda: CpuBackend(1), "threads": lambda: CpuBackend(2), "naive": NaiveBackend,
    "simulator": lambda: CudaBackend(SimulatedDevice()),
}  # fmt: skip
SETTINGS = {"max_depth": 2, "max_bin": 8, "disable_default_eval_metric": True}
TRAININGS = {
    "elementwise": {"objective": "test:shortfall", "scale_pos_weight": 2.5},
    "two outputs": {"objective": "test:shortfall", "max_delta_step": 0.5},
    "pairs": {"objective": "test:interval"},
    "rowwise": {"objective": "test:softprob", "num_class": 3},
}


def table(training):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(N_ROWS, 3)).astype(np.float32)
    count = rng.poisson(np.exp(X[:, 0])).astype(np.float32)
    labels = {"elementwise": count, "two outputs": np.stack([count, count + 1], axis=1), "rowwise": np.minimum(count, 2)}
    labels["pairs"] = np.stack([X[:, 0] - 0.1, X[:, 0] + rng.random(N_ROWS)], axis=1)
    return X, labels[training], rng.integers(1, 5, N_ROWS).astype(np.float32)


def train(training, rounds=2, **options):
    X, y, weight = table(training)
    dtrain = gb.DMatrix(X, y, weight=weight)
    return gb.train({**SETTINGS, **TRAININGS[training]}, dtrain, rounds, evals=[(dtrain, "train")], verbose_eval=False, **options)


@pytest.mark.parametrize("training", TRAININGS)
def test_it_trains_everywhere_and_comes_back_from_its_file(training, use_backend, tmp_path):
    models = {}
    for name, make in BACKENDS.items():
        use_backend(make())
        models[name] = train(training)
    assert len({digest(booster.model) for booster in models.values()}) == 1
    booster, X = models["threads"], table(training)[0]
    assert all(tree.n_leaves > 1 for tree in booster.model.trees)
    use_backend(CpuBackend(2))
    prediction = booster.predict(gb.DMatrix(X))
    for suffix in ("json", "ubj"):
        booster.save_model(tmp_path / f"model.{suffix}")
        loaded = gb.Booster(model_file=tmp_path / f"model.{suffix}")
        assert digest(loaded.model) == digest(booster.model)
        assert loaded.predict(gb.DMatrix(X)).tobytes() == loaded.inplace_predict(X).tobytes() == prediction.tobytes()
    first = train(training, rounds=1)
    assert digest(train(training, rounds=1, xgb_model=first).model) == digest(booster.model)


def test_the_formula_sees_weight_output_and_parameters():
    margin, weight = np.zeros((2, 4), np.float32), np.array([1, 4, 1, 4], np.float32)
    label = np.array([[2, 2, 0, 0]] * 2, np.float32)
    objective = get_objective("test:shortfall", Params(scale_pos_weight=3.0))
    grad, hess, maxima = np.empty_like(margin), np.empty_like(margin), np.zeros((1, 2, 2), np.int64)
    objective.gradients_cpu(margin, label, weight, objective.parameters, grad, hess, maxima, 1)
    # e^0 − y = −1, −1, 1, 1; times 3 below the label; 2 for a weight above 2, and then the weight itself; ½ for the second output
    assert grad.tolist() == [[-3, -24, 1, 8], [-1.5, -12, 0.5, 4]]
    assert hess.tolist() == [[3, 24, 1, 8], [1.5, 12, 0.5, 4]]
    none = np.zeros(0, np.float32)
    objective.gradients_cpu(margin, label, none, objective.parameters, grad, hess, maxima, 1)
    assert grad.tolist() == [[-3, -3, 1, 1], [-1.5, -1.5, 0.5, 0.5]], "no weights: a weight of 1"


def test_the_formula_of_softmax_gives_the_trees_of_its_vectorised_loops():
    X, y, weight = table("rowwise")
    theirs = gb.train({**SETTINGS, **TRAININGS["rowwise"], "objective": "multi:softprob"}, gb.DMatrix(X, y, weight=weight), 2)
    ours = train("rowwise")
    assert [t.leaf_value.tobytes() for t in ours.model.trees] == [t.leaf_value.tobytes() for t in theirs.model.trees]


def test_base_score_and_predictions_are_in_the_space_of_outputs():
    X, y, weight = table("elementwise")
    booster = train("elementwise")
    assert booster.model.base_score == pytest.approx([np.average(y, weights=weight)], rel=1e-6)
    margin = booster.predict(gb.DMatrix(X), output_margin=True)
    np.testing.assert_allclose(booster.predict(gb.DMatrix(X)), np.exp(margin), rtol=1e-6)
    start = booster[:0].predict(gb.DMatrix(X), output_margin=True)
    assert start == pytest.approx(math.log(booster.model.base_score[0]), rel=1e-6)


def test_two_label_rows_are_one_target():
    booster = train("pairs", rounds=20)
    X, y, _ = table("pairs")
    assert booster.model.n_outputs == booster.model.n_targets == 1
    prediction = booster.predict(gb.DMatrix(X))
    booster.set_param("eval_metric", "mae")  # which takes the first label row
    assert booster.eval(gb.DMatrix(X, y)) == f"[0]\teval-mae:{np.abs(prediction - y[:, 0]).mean(dtype=np.float64):.17g}"
    assert ((prediction > y[:, 0] - 0.3) & (prediction < y[:, 1] + 0.3)).mean() > 0.9
    with pytest.raises(ValueError, match="test:interval takes 2 label columns for a target, got 3"):
        gb.train(TRAININGS["pairs"], gb.DMatrix(X, X), 1)


def test_what_it_takes_is_recorded_and_read_back():
    booster = train("elementwise")
    recorded = json.loads(booster.save_raw("json"))["learner"]["objective"]
    assert recorded == {"name": "test:shortfall", "shortfall_param": {"scale_pos_weight": "2.5", "max_delta_step": "0"}}
    loaded = gb.Booster(model_file=bytes(booster.save_raw()))
    assert loaded.params.scale_pos_weight == 2.5
    objective = objective_of(loaded.model)
    assert objective.parameters == (np.float32(2.5),)


@pytest.mark.parametrize(
    ("value", "message"),
    [("0", "scale_pos_weight must be greater than 0"), ("x", "scale_pos_weight must be"), (3, "string")],
)
def test_a_file_with_a_parameter_that_is_not_allowed_is_refused(value, message):
    document = json.loads(train("elementwise").save_raw("json"))
    document["learner"]["objective"]["shortfall_param"]["scale_pos_weight"] = value
    with pytest.raises(gb.ModelFormatError, match=rf"learner.objective.shortfall_param.scale_pos_weight.*{message}"):
        load_model(json.dumps(document).encode())


def test_a_base_score_outside_of_the_link_is_refused_by_the_reader():
    document = json.loads(train("elementwise").save_raw("json"))
    document["learner"]["learner_model_param"]["base_score"] = "[-1]"
    with pytest.raises(gb.ModelFormatError, match="base_score: must be at least 0 for test:shortfall"):
        load_model(json.dumps(document).encode())


def test_labels_outside_of_its_domain_are_refused():
    X, _, _ = table("elementwise")
    with pytest.raises(ValueError, match="labels that are at least 0; 1 of 90 are not, the first at row 7: -2"):
        gb.train(TRAININGS["elementwise"], gb.DMatrix(X, np.where(np.arange(N_ROWS) == 7, -2, 1)), 1)


def test_a_parameter_goes_to_those_that_take_it():
    owners = "binary:logistic, binary:logitraw, reg:logistic, test:shortfall"
    message = f"scale_pos_weight belongs to {owners}, not to reg:squarederror. Weigh"
    with pytest.raises(ValueError, match=message):
        get_objective("reg:squarederror", Params(scale_pos_weight=2.0))
    assert get_objective("test:softprob", Params(num_class=3)).n_classes == 3


# ---------------------------------------------------------------------------------------------------------------------
# Questions to any name


def test_classes_answer_for_themselves():
    assert find_objective("test:shortfall") is Shortfall
    names = [*objective_names(), "?"]
    known = dict(zip(names, map(find_objective, names)))
    several = {"multi:softprob", "multi:softmax", "test:softprob"}
    assert {n for n in names if known[n].is_classifier} == {"binary:logistic", "binary:logitraw", "binary:hinge"} | several
    assert {n for n in names if known[n].takes_parameter("num_class")} == several
    assert {n: known[n].probability_twin for n in names if known[n].predicts_classes} == {
        "multi:softmax": "multi:softprob", "binary:hinge": None
    }  # fmt: skip
    logs = ["count:poisson", "reg:gamma", "reg:tweedie", "survival:aft", "survival:cox", "test:shortfall"]
    assert [n for n in names if known[n].link is LOG] == logs


def test_a_name_without_a_class_does_not_predict():
    assert objective_of(Model(1, "?")) is None
    assert [find_objective(name).predicts for name in ("rank:map", "?")] == [True, False]
    assert objective_of(Model(1, "multi:softprob", n_classes=3)).n_classes == 3


@pytest.mark.parametrize(("link", "inverse", "outputs"), [
    (objectives.IDENTITY, lambda m: m, [-3, 0, 1e30]),
    (LOGIT, lambda m: 1 / (1 + np.exp(-m)), [1e-6, 0.25, 0.5, 0.999]),
    (LOG, np.exp, [1e-20, 0.5, 1, 1e20]),
])  # fmt: skip
def test_links_lead_there_and_back(link, inverse, outputs):
    margin = link.to_margin(np.array(outputs, np.float32))
    assert margin.dtype == np.float32
    # float32: half a unit of a margin of up to 46 is 2e-6 of e^margin
    np.testing.assert_allclose(inverse(margin.astype(np.float64)), outputs, rtol=4e-6)
    if link.row_map is not None:
        out = CpuBackend(1).predictor.map_rows(margin[None], link.row_map)
        np.testing.assert_allclose(out[0], outputs, rtol=4e-6)


def test_outputs_that_a_link_refuses():
    outputs = np.array([-0.5, 0, 0.5, 1, 1.5, np.nan], np.float32)
    assert LOGIT.refused(outputs).tolist() == [True, False, False, False, True, True]
    assert LOG.refused(outputs).tolist() == [True, False, False, False, False, True]
    assert not objectives.IDENTITY.refused(outputs).any()
    assert LOG.to_margin(np.zeros(1, np.float32)) == -np.inf
