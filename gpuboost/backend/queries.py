"""Queries: which rows are ranked against each other, and what rankings of them are compared by."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gpuboost.errors import RowError

__all__ = ["Pairs", "Queries"]


@dataclass(frozen=True, eq=False)
class Queries:
    """The queries of a table, none of them without rows, on the host.

    first : int64 (n_queries + 1,), the first row of each, and n_rows.
    row_weight : float32 (n_rows,), or empty. is_given : False where nobody said which they are, and all rows are one.
    """

    first: np.ndarray
    row_weight: np.ndarray
    is_given: bool

    def __len__(self) -> int:
        return len(self.first) - 1

    @cached_property
    def sizes(self) -> np.ndarray:
        """int64 (n_queries,)."""
        return np.diff(self.first)

    @cached_property
    def position(self) -> np.ndarray:
        """int64 (n_rows,): where its query lists each row."""
        return np.arange(self.first[-1]) - np.repeat(self.first[:-1], self.sizes)

    @cached_property
    def weight(self) -> np.ndarray:
        """float32 (n_queries,). Raises ValueError where rows of one query weigh differently."""
        if not len(self.row_weight) or not self.is_given:
            return np.ones(len(self), np.float32)
        weight = self.row_weight[self.first[:-1]]
        differs = np.repeat(weight, self.sizes) != self.row_weight
        if differs.any():
            row = int(np.argmax(differs))
            raise RowError(
                "weight must be the same for all rows of a query where queries are ranked, but ", row,
                f" weighs {self.row_weight[row]:g}, the first of its query "
                f"{weight[np.searchsorted(self.first, row, 'right') - 1]:g}. Give one weight per query, {len(self)} numbers.",
            )  # fmt: skip
        return weight


@dataclass(frozen=True, eq=False)
class Pairs:
    """Which documents of each query are compared, and what a pair counts (kernels/lambdarank.py).

    kind, is_exponential, divides, is_normalised : see there. n_pairs : documents at the top that are compared with all others;
    with ``key`` partners that each document draws.
    factor, unit : float64 (n_queries,); bias : float64 (2, n_positions); see there. ids : int64 (n_queries,), global number of
    each query's first row. Arrays in the backend's memory. key : uint32, of the round's draws; None: nothing is drawn.
    """

    kind: int
    n_pairs: int
    is_exponential: bool
    divides: bool
    is_normalised: bool
    factor: np.ndarray
    unit: np.ndarray
    bias: np.ndarray
    ids: np.ndarray
    key: int | None
