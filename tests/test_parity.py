"""Quality beside XGBoost with the same parameters: real tables, every regularisation, hard targets, pruning, noise-free targets.

One split proves nothing: a change of max_bin from 254 to 258 moves XGBoost's own AUC on 500 rows by 0.017. So losses are paired
over seeded splits (the seed of what training draws as well: the same columns in every split would be one draw), and compared by
their ratio, in which the hard splits, hard for both, count no more than the easy ones. That the geometric mean is less than WORSE
above 1 must be certain to two standard errors: noise makes the test fail, not pass, and is met by more splits, where rows are
few, labels have heavy tails, or something is drawn.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pytest

import gpuboost as gb

pytestmark = pytest.mark.long

xgb = pytest.importorskip("xgboost")

# One thread: on cores that other tests keep busy, two threads of XGBoost take ten times as long; our models do not depend on it.
COMMON = {"max_depth": 6, "max_bin": 256, "nthread": 1, "verbosity": 0}
WORSE = 0.03  # the noisiest tasks have standard errors of 0.75 %: of such, one in fifty fails by chance if both are equal
ROUNDS = 40
TRAIN_ROWS = 3000
BINARY = {"objective": "binary:logistic"}


@dataclass(frozen=True)
class Table:
    """x : float32 (n, n_features). y : (n,), trained on. truth : (n,), scored against: y, or y without its noise."""

    x: np.ndarray
    y: np.ndarray
    truth: np.ndarray
    weight: np.ndarray | None = None

    def rows(self, chosen: slice) -> "Table":
        return Table(*(None if array is None else array[chosen] for array in vars(self).values()))


@dataclass(frozen=True)
class Task:
    """make : generator -> a table in random order. Two thirds of the rows, TRAIN_ROWS at most, are trained on, the others scored.
    theirs : what XGBoost is given beside or instead of params."""

    name: str
    make: Callable[[np.random.Generator], Table]
    loss: Callable[..., float]
    params: dict[str, Any] = field(default_factory=dict)
    theirs: dict[str, Any] = field(default_factory=dict)
    splits: int = 20


def train_and_predict(library: Any, params: dict[str, Any], rounds: int, train: Table, x: np.ndarray) -> tuple[Any, np.ndarray]:
    """The same calls for both libraries."""
    booster = library.train({**COMMON, **params}, library.DMatrix(train.x, label=train.y, weight=train.weight), rounds)
    return booster, booster.predict(library.DMatrix(x))


def n_leaves(booster: Any) -> int:
    return sum(tree.count("leaf=") for tree in booster.get_dump())


# --- Losses: float64 means over the scored rows ---


def rmse(prediction: np.ndarray, truth: np.ndarray, weight: np.ndarray | None = None) -> float:
    return float(np.sqrt(np.average((prediction.astype(np.float64) - truth) ** 2, weights=weight)))


def mae(prediction: np.ndarray, truth: np.ndarray, weight: np.ndarray | None = None) -> float:
    return float(np.average(abs(prediction.astype(np.float64) - truth), weights=weight))


def log_mae(prediction: np.ndarray, truth: np.ndarray, weight: np.ndarray | None = None) -> float:
    """Mean absolute error of logarithms; predictions may be negative, and count as no less than 0.05."""
    return mae(np.log(np.maximum(prediction, 0.05)), np.log(truth), weight)


def logloss(prediction: np.ndarray, truth: np.ndarray, weight: np.ndarray | None = None) -> float:
    """prediction : probability of class 1 (n,), or of each class (n, n_classes)."""
    p = prediction.astype(np.float64)
    p = np.where(truth > 0, p, 1 - p) if p.ndim == 1 else p[np.arange(len(truth)), truth.astype(int)]
    return float(np.average(-np.log(np.clip(p, 1e-7, 1)), weights=weight))


# --- Real tables, those that scikit-learn brings along, shuffled ---


@cache
def bundled(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Values and label; quantities with mean 0 and standard deviation 1."""
    x, y = getattr(pytest.importorskip("sklearn.datasets"), f"load_{name}")(return_X_y=True)
    return x.astype(np.float32), (y - y.mean()) / y.std() if name == "diabetes" else y.astype(np.float32)


def real(name: str, label: Callable[[np.ndarray], np.ndarray] = lambda y: y, missing: float = 0) -> Any:
    """A table of scikit-learn, its labels mapped; ``missing`` is the share of cells to take out."""

    def make(rng: np.random.Generator) -> Table:
        x, y = bundled(name)
        order = rng.permutation(len(y))
        y = label(y[order]).astype(np.float32)
        return Table(np.where(rng.random(x.shape) < missing, np.float32(np.nan), x[order]), y, y)

    return make


# --- Hard synthetic targets: 10 normal columns, a smooth signal of standard deviation about 2 ---


def signal(x: np.ndarray) -> np.ndarray:
    return 2 * np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.5 * x[:, 3] ** 2 - x[:, 4]


def normal_columns(rng: np.random.Generator, n_rows: int = 3 * TRAIN_ROWS) -> np.ndarray:
    return rng.normal(size=(n_rows, 10)).astype(np.float32)


def heavy_tailed(rng: np.random.Generator) -> Table:
    x = normal_columns(rng)
    return Table(x, signal(x) + rng.standard_t(1.5, len(x)), signal(x))


def log_normal(rng: np.random.Generator) -> Table:
    x = normal_columns(rng)
    mean_log = signal(x)
    y = np.exp(mean_log + rng.normal(size=len(x)))
    return Table(x, y, np.exp(mean_log + 0.5))


def one_outlier(rng: np.random.Generator) -> Table:
    """Column 9 marks the row, so that one split isolates it: what is compared is how well the other rows are learnt."""
    x = normal_columns(rng)
    x[:, 9] = np.arange(len(x)) == 0
    y = signal(x) + 0.1 * rng.normal(size=len(x))
    y[0] = 1e6
    return Table(x, y, signal(x))


def weights_over_six_decades(rng: np.random.Generator) -> Table:
    x = normal_columns(rng)
    y = signal(x) + 0.1 * rng.normal(size=len(x))
    return Table(x, y, y, 10.0 ** rng.uniform(-3, 3, len(x)))


def nine_tenths_zero(rng: np.random.Generator) -> Table:
    x = normal_columns(rng)
    x[rng.random(len(x)) < 0.9, 0] = 0
    return Table(x, 5 * np.sin(2 * x[:, 0]) + x[:, 1] + 0.1 * rng.normal(size=len(x)), 5 * np.sin(2 * x[:, 0]) + x[:, 1])


EVEN_DIGITS = real("digits", lambda y: y % 2 == 0, missing=0.5)
DIABETES = real("diabetes")
TASKS = [
    Task("even digits", EVEN_DIGITS, logloss, BINARY),
    Task("diabetes", DIABETES, rmse),
    Task("weights over six decades", weights_over_six_decades, rmse, splits=40),
    Task("digits", real("digits"), logloss, {"objective": "multi:softprob", "num_class": 10}),
    Task("breast cancer", real("breast_cancer"), logloss, BINARY, splits=150),
    Task("heavy tails", heavy_tailed, mae, splits=50),
    Task("log-normal", log_normal, log_mae, splits=60),
    Task("one outlier", one_outlier, mae, splits=200),
    Task("nine tenths zero", nine_tenths_zero, rmse),
]

# Settings away from their defaults. XGBoost's gradient_based needs a GPU, and only its "exact" prunes after growing.
SETTINGS: dict[str, dict[str, Any]] = {
    "subsample": {"subsample": 0.5},
    "gradient_based": {"subsample": 0.5, "sampling_method": "gradient_based"},
    "colsample_bytree": {"colsample_bytree": 0.5},
    "colsample_bylevel": {"colsample_bylevel": 0.5},
    "colsample_bynode": {"colsample_bynode": 0.5},
    "colsample, all three": {"colsample_bytree": 0.8, "colsample_bylevel": 0.8, "colsample_bynode": 0.8},
    "subsample and colsample": {"subsample": 0.5, "colsample_bytree": 0.5},
    "reg_alpha": {"reg_alpha": 5},
    "reg_lambda": {"reg_lambda": 20},
    "max_delta_step": {"max_delta_step": 0.7},
    "min_child_weight": {"min_child_weight": 20},
    "gamma": {"gamma": 5},
    "max_leaves": {"grow_policy": "lossguide", "max_leaves": 15},
}
THEIRS = {"gradient_based": {"sampling_method": "uniform"}, "gamma": {"tree_method": "exact"}}

DIGITS_OR_DIABETES = ("even digits", EVEN_DIGITS, logloss, BINARY), ("diabetes", DIABETES, rmse, {})
# One table each, as settings meet a loss only as gradients and hessians: those that limit steps or weights with hessians that
# differ by row, what draws rows or columns with either kind.
TABLE_OF = {"reg_lambda": 1, "gradient_based": 1, "colsample_bylevel": 1, "subsample and colsample": 1, "gamma": 1}
TASKS += [
    Task(f"{name}, {setting}", make, loss, {**params, **changes}, THEIRS.get(setting, {}), 80 if "sample" in str(changes) else 20)
    for setting, changes in SETTINGS.items()
    for name, make, loss, params in [DIGITS_OR_DIABETES[TABLE_OF.get(setting, 0)]]
]
RISING = {"monotone_constraints": (0, 0, 1, 1, 0, 0, 0, 0, 1, 0)}  # body mass index, blood pressure, log of triglycerides
HALVES = {"interaction_constraints": str([[*range(40)], [*range(24, 64)]])}  # of the image, with two rows of pixels in common
GROUPS = {"interaction_constraints": "[[0, 1, 2, 3], [2, 3, 4, 5, 6], [7, 8, 9]]"}
TASKS += [
    Task("even digits, scale_pos_weight", EVEN_DIGITS, logloss, {**BINARY, "scale_pos_weight": 3}, splits=40),
    Task("even digits, interaction_constraints", EVEN_DIGITS, logloss, {**BINARY, **HALVES}),
    Task("diabetes, interaction_constraints", DIABETES, rmse, GROUPS),
    Task("diabetes, monotone_constraints", DIABETES, rmse, RISING),
]


@pytest.mark.sweep(2)
@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_loss_is_not_worse_than_xgboosts(task):
    ratios = log_ratios(task)
    error = ratios.std(ddof=1) / np.sqrt(len(ratios))
    assert ratios.mean() + 2 * error <= WORSE, f"{ratios.mean():.2%} worse, with a standard error of {error:.2%}"


@pytest.mark.slow
def test_losses_of_all_tasks_lie_around_xgboosts():
    """What is a little worse everywhere would pass task by task. Standard error of the median: about 0.1 %."""
    assert np.median([log_ratios(task).mean() for task in TASKS]) <= 0.003


def log_ratios(task: Task) -> np.ndarray:
    """ln(gpuboost's loss / xgboost's) of each split."""
    ours, theirs = np.array([paired_losses(task.name, seed) for seed in range(task.splits)]).T
    return np.log(ours / theirs)


@cache
def paired_losses(name: str, seed: int) -> list[float]:
    """Losses of gpuboost and of xgboost on the rows that neither was trained on."""
    task = next(task for task in TASKS if task.name == name)
    table = task.make(np.random.default_rng(seed))
    n_train = min(TRAIN_ROWS, 2 * len(table.y) // 3)
    train, test = table.rows(slice(n_train)), table.rows(slice(n_train, None))
    settings = (gb, {**task.params, "seed": seed}), (xgb, {**task.params, **task.theirs, "seed": seed})
    predictions = [train_and_predict(library, params, ROUNDS, train, test.x)[1] for library, params in settings]
    return [task.loss(prediction, test.truth, test.weight) for prediction in predictions]


@pytest.mark.slow
def test_auc_on_many_rows_equals_xgboosts_within_a_thousandth():
    """On average over tables: on a single one xgboost differs by two thousandths from itself with another max_bin, since chance
    decides when the product of two columns is found."""
    metrics = pytest.importorskip("sklearn.metrics")
    differences = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        x = normal_columns(rng, 250_000)
        y = (rng.random(len(x)) < 1 / (1 + np.exp(-signal(x)))).astype(np.float32)
        train, test = (Table(x, y, y).rows(part) for part in (slice(200_000), slice(200_000, None)))
        predictions = [train_and_predict(library, BINARY, ROUNDS, train, test.x)[1] for library in (gb, xgb)]
        ours, theirs = (metrics.roc_auc_score(test.truth, prediction) for prediction in predictions)
        differences.append(ours - theirs)
    assert abs(np.mean(differences)) <= max(1e-3, 2 * np.std(differences, ddof=1) / np.sqrt(len(differences))), differences


@pytest.mark.parametrize("method", ["hist", "approx"])
@pytest.mark.parametrize("label_of_missing", [None, 0.0, 10.0])
def test_the_gap_between_a_nodes_values_goes_where_xgboost_sends_it(method, label_of_missing):
    """Below the split by group, 1 and 8 are all that the first group has, beside missing values; the other one has 0 to 9."""
    group, value = np.repeat([0, 1], [8, 10]), np.r_[[1.0] * 4, [8.0] * 4, np.arange(10)]
    label = np.r_[[0.0] * 4, [10.0] * 4, [100.0] * 10]
    if label_of_missing is not None:
        group, value, label = np.r_[group, [0] * 4], np.r_[value, [np.nan] * 4], np.r_[label, [label_of_missing] * 4]
    train, gap = Table(np.column_stack([group, value]), label, label), np.column_stack([[0] * 6, np.arange(2.0, 8)])
    params = {"tree_method": method, "base_score": 0, "learning_rate": 1}
    ours, theirs = (train_and_predict(library, params, 1, train, gap)[1] for library in (gb, xgb))
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    assert set(ours > 5) == {label_of_missing is None or label_of_missing > 5}


@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", ["digits", "breast_cancer"])
@pytest.mark.parametrize("gamma", [1, 3])
def test_gamma_prunes_as_xgboosts_exact_method_does(name, gamma):
    """Both prune bottom-up after growing; xgboost's hist refuses such splits while growing and keeps fewer leaves.

    Values are rounded to at most 256 per column, so that all candidate splits have bins: what is left is the rounding of gains.
    It makes another tree of few tables, so that the median of five is that of equal models.
    """
    leaves, losses = [], []
    for seed in range(5):
        table = real(name, lambda y: y % 2, missing=0.5)(np.random.default_rng(seed))
        x = np.stack([np.searchsorted(np.nanquantile(column, np.linspace(0, 1, 200)), column) for column in table.x.T], axis=1)
        x = np.where(np.isnan(table.x), np.nan, x).astype(np.float32)
        train = Table(x, table.y, table.truth)
        ours, our_prediction = train_and_predict(gb, {**BINARY, "gamma": gamma}, ROUNDS, train, x)
        exact = {**BINARY, "gamma": gamma, "tree_method": "exact"}
        theirs, their_prediction = train_and_predict(xgb, exact, ROUNDS, train, x)
        leaves.append(n_leaves(ours) / n_leaves(theirs))
        losses.append(logloss(our_prediction, table.truth) / logloss(their_prediction, table.truth))
    assert np.median(leaves) == pytest.approx(1, rel=0.01)
    assert np.median(losses) == pytest.approx(1, rel=0.01)


# --- Targets without noise: once they are met, rounding errors must not be split any further ---

NOISE_FREE = {
    "one step": lambda x: 1.0 * (x[:, 0] > 3),
    "steps of one column": lambda x: np.floor(x[:, 0] / 5),
    "sum of steps": lambda x: (x[:, 0] > 9) + 2.0 * (x[:, 1] > 14) + 4.0 * (x[:, 2] > 6),
    "sum of tenths": lambda x: 0.1 * (x[:, 0] > 9) + 0.3 * (x[:, 1] > 14) + 0.7 * (x[:, 2] > 6),
    "exclusive or": lambda x: 1.0 * ((x[:, 0] > 9) ^ (x[:, 1] > 14)),
    "integers": lambda x: x[:, 0].astype(float),
    "sum of integers": lambda x: x[:, 0].astype(float) + x[:, 1],
    "thirds": lambda x: x[:, 0] / 3.0,
}


@pytest.mark.parametrize("target", NOISE_FREE)
@pytest.mark.parametrize("scale", [1, 1e6])
@pytest.mark.parametrize("learning_rate", [1, 0.3])
def test_noise_free_target_takes_no_more_splits_than_xgboost(target, scale, learning_rate):
    x = np.random.default_rng(0).integers(0, 20, (TRAIN_ROWS, 5)).astype(np.float32)
    y = NOISE_FREE[target](x) * scale
    params = {"reg_lambda": 0, "learning_rate": learning_rate}
    boosters = [train_and_predict(library, params, ROUNDS, Table(x, y, y), x)[0] for library in (gb, xgb)]
    ours, theirs = (n_leaves(booster) - ROUNDS for booster in boosters)
    assert ours <= 1.2 * theirs
