"""What the benchmarks train on: synthetic tables from a seed, and how each is trained."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

SEED = 0
BINARY, SEVERAL, NUMBERS = "binary:logistic", "multi:softprob", "reg:squarederror"


@dataclass(frozen=True)
class Task:
    """make : (generator, n_rows) -> float32 table (n_rows, n_features), an array or CSR, and float32 labels (n_rows,).
    is_categorical : all columns are codes of categories.
    n_leaves : grow that many leaves, best first, at any depth, and not max_depth levels; 0: levels.
    """

    name: str
    n_rows: int
    n_features: int
    make: Callable[[np.random.Generator, int], tuple[Any, np.ndarray]]
    n_rounds: int = 100
    max_depth: int = 6
    n_leaves: int = 0
    tree_method: str = "hist"
    objective: str = BINARY
    n_classes: int = 2
    is_sparse: bool = False
    is_categorical: bool = False
    test_rows: int = 100_000

    def tables(self, seed: int = SEED) -> tuple[Any, np.ndarray, Any, np.ndarray]:
        """x, y to train on and x, y to score: of one draw, so that a test row is never a training row."""
        x, y = self.make(np.random.default_rng(seed), self.n_rows + self.test_rows)
        return x[: self.n_rows], y[: self.n_rows], x[self.n_rows :], y[self.n_rows :]

    def describe(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self) | {"make": getattr(self.make, "func", self.make).__name__, "seed": SEED}


def draw_label(rng: np.random.Generator, log_odds: np.ndarray) -> np.ndarray:
    return (rng.random(len(log_odds)) < 1 / (1 + np.exp(-log_odds))).astype(np.float32)


def smooth(x: np.ndarray) -> np.ndarray:
    """float32 (n_rows,): a smooth function of the first seven columns."""
    return x[:, 0] * x[:, 1] + np.sin(2 * x[:, 2]) + 0.5 * x[:, 3] ** 2 - 0.5 * x[:, 4] + 0.3 * x[:, 5] * x[:, 6]


def higgs_like(rng: np.random.Generator, n_rows: int, n_features: int = 28) -> tuple[np.ndarray, np.ndarray]:
    """Normal columns; a smooth function of seven of them gives the log-odds."""
    x = rng.normal(size=(n_rows, n_features)).astype(np.float32)
    return x, draw_label(rng, smooth(x))


def with_missing(rng: np.random.Generator, n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """The same, 30 % of the cells NaN; those of one column by its value, which its absence tells."""
    x, y = higgs_like(rng, n_rows)
    is_missing = rng.random(x.shape) < 0.3
    is_missing[:, 4] = x[:, 4] > 0.5
    x[is_missing] = np.nan
    return x, y


def heavy_tailed(rng: np.random.Generator, n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Normal columns; log-normal labels, of which the largest are hundreds of times the median."""
    x = rng.normal(size=(n_rows, 28)).astype(np.float32)
    return x, np.exp(0.7 * smooth(x) + rng.normal(size=n_rows) / 2).astype(np.float32)


def several_classes(rng: np.random.Generator, n_rows: int, n_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """28 normal columns; equal classes by the quantile of a smooth function and noise."""
    x = rng.normal(size=(n_rows, 28)).astype(np.float32)
    z = smooth(x) + rng.normal(size=n_rows) / 2
    return x, np.searchsorted(np.quantile(z, np.arange(1, n_classes) / n_classes), z).astype(np.float32)


def covertype_like(rng: np.random.Generator, n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """10 normal columns, and of two categories one column of ones and zeros for each value, some of them rare; 7 classes."""
    area, soil_share = rng.choice(4, n_rows, p=[0.45, 0.43, 0.07, 0.05]), 1 / np.arange(1, 41)
    soil = rng.choice(40, n_rows, p=soil_share / soil_share.sum())
    numbers = rng.normal(size=(n_rows, 10))
    x = np.column_stack([numbers, area[:, None] == np.arange(4), soil[:, None] == np.arange(40)]).astype(np.float32)
    z = numbers[:, 0] + 0.5 * numbers[:, 1] * numbers[:, 2] + area - 0.5 * np.sqrt(soil) + rng.normal(size=n_rows)
    return x, np.searchsorted(np.quantile(z, [0.2, 0.5, 0.7, 0.8, 0.9, 0.95]), z).astype(np.float32)


def random_cells(
    rng: np.random.Generator, n_rows: int, n_features: int = 2000, density: float = 0.005
) -> tuple[Any, np.ndarray]:  # fmt: skip
    """CSR with normal values in a share of the cells; their weighted sum gives the log-odds."""
    from scipy.sparse import csr_matrix, random_array

    x = random_array((n_rows, n_features), density=density, format="csr", dtype=np.float32, rng=rng, data_sampler=rng.normal)
    return csr_matrix(x, dtype=np.float32), draw_label(rng, x @ np.random.default_rng(1).normal(size=n_features))


def one_hot(values: np.ndarray, n_values: int) -> Any:
    """CSR of ones: n_values columns for each column of values, int (n_rows, n)."""
    from scipy.sparse import csr_matrix

    n_rows, n = values.shape
    cells = (values + n_values * np.arange(n)).ravel(), np.arange(0, n * n_rows + 1, n)
    return csr_matrix((np.ones(n * n_rows, np.float32), *cells), shape=(n_rows, n_values * n))


def categories(rng: np.random.Generator, n_rows: int) -> tuple[Any, np.ndarray]:
    """CSR of ones, one for each of 20 categories; each of their 50 values has an effect on the log-odds."""
    x = one_hot(rng.integers(0, 50, (n_rows, 20)), 50)
    return x, draw_label(rng, x @ np.random.default_rng(1).normal(size=1000) / 3)


def codes(rng: np.random.Generator, n_rows: int, n_values: int = 1000) -> tuple[np.ndarray, np.ndarray]:
    """20 categories of n_values, the k-th as frequent as 1/k to the first; each has an effect on the log-odds."""
    share = 1 / np.arange(1, n_values + 1)
    x = np.searchsorted(np.cumsum(share / share.sum()), rng.random((n_rows, 20))).astype(np.float32)
    effects = np.random.default_rng(1).normal(size=(n_values, 20)) / 4
    return x, draw_label(rng, np.take_along_axis(effects, x.astype(np.int64), axis=0).sum(axis=1))


def mushroom_like(rng: np.random.Generator, n_rows: int) -> tuple[Any, np.ndarray]:
    """21 categories of 6 values one-hot encoded, as CSR: the shape of the agaricus table. Three of them give the log-odds."""
    codes = rng.integers(0, 6, (n_rows, 21))
    z = 2.0 * (codes[:, 0] > 2) * (codes[:, 1] % 2) - (codes[:, 2] == 4) - 0.5 + rng.logistic(size=n_rows) / 4
    return one_hot(codes, 6), (z > 0).astype(np.float32)


def small(rng: np.random.Generator, n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    x = rng.normal(size=(n_rows, 10)).astype(np.float32)
    return x, (x[:, 0] > 0).astype(np.float32)


wide, narrow = partial(higgs_like, n_features=2000), partial(higgs_like, n_features=7)
tenth, few_codes = partial(random_cells, n_features=200, density=0.1), partial(codes, n_values=30)

TASKS = {
    task.name: task
    for task in (
        Task("narrow-1k", 1_000, 7, narrow),
        Task("narrow-7k", 7_000, 7, narrow),
        Task("narrow-20k", 20_000, 7, narrow),
        Task("higgs-1k", 1_000, 28, higgs_like),
        Task("higgs-7k", 7_000, 28, higgs_like),
        Task("higgs-7k-31-leaves", 7_000, 28, higgs_like, n_leaves=31),
        Task("higgs-20k", 20_000, 28, higgs_like),
        Task("higgs-450k", 450_000, 28, higgs_like),
        Task("higgs-2m", 2_000_000, 28, higgs_like, n_rounds=20),
        Task("higgs-450k-depth-10", 450_000, 28, higgs_like, n_rounds=20, max_depth=10),
        Task("higgs-450k-255-leaves", 450_000, 28, higgs_like, n_rounds=20, n_leaves=255),
        Task("wide-20k", 20_000, 2000, wide, n_rounds=10, test_rows=20_000),
        Task("missing-200k", 200_000, 28, with_missing),
        Task("heavy-tailed-200k", 200_000, 28, heavy_tailed, objective=NUMBERS),
        Task("covertype-200k", 200_000, 54, covertype_like, n_rounds=20, objective=SEVERAL, n_classes=7),
        Task("sparse-200k", 200_000, 2000, random_cells, n_rounds=10, is_sparse=True),
        Task("tenth-100k", 100_000, 200, tenth, n_rounds=20, is_sparse=True),
        Task("one-hot-500k", 500_000, 1000, categories, n_rounds=20, is_sparse=True),
        Task("sparse-20k-31-leaves", 20_000, 2000, random_cells, n_rounds=20, n_leaves=31, is_sparse=True),
        Task("categories-5k", 5_000, 20, few_codes, is_categorical=True),
        Task("categories-1m", 1_000_000, 20, codes, n_rounds=20, is_categorical=True),
        Task("mushrooms", 6_500, 126, mushroom_like, is_sparse=True),
        Task("mushrooms-exact", 6_500, 126, mushroom_like, is_sparse=True, tree_method="exact"),
        Task("higgs-450k-approx", 450_000, 28, higgs_like, n_rounds=10, tree_method="approx"),
        Task("higgs-450k-exact", 450_000, 28, higgs_like, n_rounds=10, tree_method="exact"),
    )
}
STARTUP = Task("startup", 1_000, 10, small, n_rounds=10, test_rows=1_000)
