"""Quality beside XGBoost with the same parameters: real tables, every regularisation, hard targets, pruning, noise-free targets.

One split proves nothing: a change of max_bin from 254 to 258 moves XGBoost's own AUC on 500 rows by 0.017. So losses are paired
over ten seeded splits (the seed of what training draws as well: the same columns in every split would be one draw), and their
mean may be worse by 1 % or by two standard errors of the differences, whichever is more.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpuboost as gb

pytestmark = pytest.mark.long

xgb = pytest.importorskip("xgboost")

DATA = Path(__file__).parents[2] / "shared" / "data"
# One thread: on cores that other tests keep busy, two threads of XGBoost take ten times as long; our models do not depend on it.
COMMON = {"max_depth": 6, "max_bin": 256, "nthread": 1, "verbosity": 0}
SPLITS = 10
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
    """make : generator -> a table in random order. The first TRAIN_ROWS rows are trained on, the others scored.
    theirs : what XGBoost is given beside or instead of params."""

    name: str
    make: Callable[[np.random.Generator], Table]
    loss: Callable[..., float]
    params: dict[str, Any] = field(default_factory=dict)
    theirs: dict[str, Any] = field(default_factory=dict)


def train_and_predict(library: Any, params: dict[str, Any], rounds: int, train: Table, x: np.ndarray) -> tuple[Any, np.ndarray]:
    """The same calls for both libraries."""
    booster = library.train({**COMMON, **params}, library.DMatrix(train.x, label=train.y, weight=train.weight), rounds)
    return booster, booster.predict(library.DMatrix(x))


def n_leaves(booster: Any) -> int:
    return sum(tree.count("leaf=") for tree in booster.get_dump())


# --- Losses: float64 means over the scored rows ---


def rmse(prediction: np.ndarray, truth: np.ndarray, weight: np.ndarray | None = None) -> float:
    return float(np.sqrt(np.average((prediction.astype(np.float64) - truth) ** 2, weights=weight)))


def logloss(prediction: np.ndarray, truth: np.ndarray, weight: np.ndarray | None = None) -> float:
    """prediction : probability of class 1 (n,), or of each class (n, n_classes)."""
    p = prediction.astype(np.float64)
    p = np.where(truth > 0, p, 1 - p) if p.ndim == 1 else p[np.arange(len(truth)), truth.astype(int)]
    return float(np.average(-np.log(np.clip(p, 1e-7, 1)), weights=weight))


# --- Real tables, shuffled ---


@cache
def read_table(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Values as float32, words as codes in alphabetical order and empty cells as NaN; and the label, likewise."""
    pandas = pytest.importorskip("pandas")
    if not DATA.is_dir():
        pytest.skip(f"needs the real tables in {DATA}")
    frame = pandas.concat([pandas.read_csv(path) for path in sorted(DATA.glob(f"{name}*.csv.gz"))], ignore_index=True)
    for column in frame.select_dtypes(exclude="number"):
        codes = frame[column].astype("category").cat.codes
        frame[column] = codes.where(codes >= 0)
    label = frame.pop("label" if "label" in frame else frame.columns[-1])
    return frame.to_numpy(np.float32), label.to_numpy(np.float32)


def real(name: str) -> Callable[[np.random.Generator], Table]:
    def make(rng: np.random.Generator) -> Table:
        x, y = read_table(name)
        order = rng.permutation(len(y))
        return Table(x[order], y[order], y[order])

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


TASKS = [
    Task("higgs", real("higgs"), logloss, BINARY),
    Task("multiclass5", real("multiclass5"), logloss, {"objective": "multi:softprob", "num_class": 5}),
    Task("adult", real("adult"), logloss, BINARY),
    Task("california", real("california_housing"), rmse),
    Task("heavy tails", heavy_tailed, rmse),
    Task("log-normal", log_normal, rmse),
    Task("one outlier", one_outlier, rmse),
    Task("weights over six decades", weights_over_six_decades, rmse),
    Task("nine tenths zero", nine_tenths_zero, rmse),
]

# Settings away from their defaults. XGBoost's gradient_based needs a GPU, and only its "exact" prunes after growing.
ADULT_RISING = {"monotone_constraints": (1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 1, 1)}  # age, education_num, capital gain, loss, hours
HIGGS_SIGNS = {"monotone_constraints": (0, 0, 0, 1, 0, -1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, -1, 1, -1, -1)}
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
    "scale_pos_weight": {"scale_pos_weight": 3},
    "max_leaves": {"grow_policy": "lossguide", "max_leaves": 15},
    "interaction sets": {"interaction_constraints": "[[0, 1, 2, 3, 4, 5], [4, 5, 6, 7, 8, 9, 10], [10, 11, 12, 13]]"},
}
THEIRS = {"gradient_based": {"sampling_method": "uniform"}, "gamma": {"tree_method": "exact"}}

TASKS += [
    Task(f"{table}, {name}", real(table), logloss, {**BINARY, **params}, THEIRS.get(name, {}))
    for name, params in SETTINGS.items()
    for table in ("higgs", "adult")
]
TASKS += [
    Task("adult, monotone_constraints", real("adult"), logloss, {**BINARY, **ADULT_RISING}),
    Task("higgs, monotone_constraints", real("higgs"), logloss, {**BINARY, **HIGGS_SIGNS}),
]


@pytest.mark.sweep(3)
@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_mean_loss_is_not_worse_than_xgboosts(task):
    ours, theirs = np.array([paired_losses(task, seed) for seed in range(SPLITS)]).T
    difference = ours - theirs
    allowed = max(0.01 * theirs.mean(), 2 * difference.std(ddof=1) / np.sqrt(SPLITS))
    assert difference.mean() <= allowed, f"mean loss {ours.mean():.6g}, xgboost {theirs.mean():.6g}, allowed +{allowed:.3g}"


def paired_losses(task: Task, seed: int) -> list[float]:
    """Losses of gpuboost and of xgboost on the rows that neither was trained on."""
    table = task.make(np.random.default_rng(seed))
    train, test = table.rows(slice(TRAIN_ROWS)), table.rows(slice(TRAIN_ROWS, None))
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


@pytest.mark.parametrize("name", ["higgs", "adult"])
@pytest.mark.parametrize("gamma", [1, 3])
def test_gamma_prunes_as_xgboosts_exact_method_does(name, gamma):
    """Both prune bottom-up after growing; xgboost's hist refuses such splits while growing and keeps fewer leaves.

    Values are rounded to at most 256 per column, so that all candidate splits have bins: what is left is the rounding of gains.
    """
    table = real(name)(np.random.default_rng(0)).rows(slice(7000))
    x = np.stack([np.searchsorted(np.nanquantile(column, np.linspace(0, 1, 200)), column) for column in table.x.T], axis=1)
    x = np.where(np.isnan(table.x), np.nan, x).astype(np.float32)
    train = Table(x, table.y, table.truth)
    ours, our_prediction = train_and_predict(gb, {**BINARY, "gamma": gamma}, ROUNDS, train, x)
    exact = {**BINARY, "gamma": gamma, "tree_method": "exact"}
    theirs, their_prediction = train_and_predict(xgb, exact, ROUNDS, train, x)
    assert n_leaves(ours) == pytest.approx(n_leaves(theirs), rel=0.03)
    assert logloss(our_prediction, table.truth) == pytest.approx(logloss(their_prediction, table.truth), rel=0.01)


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
