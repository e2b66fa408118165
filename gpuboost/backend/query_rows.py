"""The rows of a table by query, on a backend: what rankings of them are made and compared with."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gpuboost.backend.contract import Array, Backend
from gpuboost.backend.queries import Queries
from gpuboost.kernels.query_terms import DCG
from gpuboost.kernels.ranked_documents import fill_discounts

__all__ = ["QueryRows"]


@dataclass(frozen=True, eq=False)
class QueryRows:
    """The rows of a table by query, with one label each. label : float32 (n_rows,), in the backend's memory, as what follows."""

    backend: Backend
    queries: Queries
    label: Array

    @cached_property
    def first(self) -> Array:
        """int64 (n_queries + 1,)."""
        return self.backend.memory.put(self.queries.first)

    @cached_property
    def position(self) -> Array:
        """int32 (n_rows,): of each row in its query."""
        return self.backend.memory.put(self.queries.position.astype(np.int32))

    @cached_property
    def discounts(self) -> Array:
        """float64 (largest query,): 1/log2(place + 2)."""
        discounts = np.empty(self.queries.sizes.max(initial=0))
        fill_discounts(discounts)
        return self.backend.memory.put(discounts)

    @cached_property
    def host_label(self) -> np.ndarray:
        """The labels, on the host."""
        return self.backend.memory.fetch(self.label)

    @cached_property
    def by_label(self) -> Array:
        """int32 (n_rows,): the rows of each query by falling label, equal ones in row order."""
        return self.order(self.label)

    @cached_property
    def bucket(self) -> Array:
        """int32 (2, n_rows), for each place of by_label: from which place of the query to which labels are equal to its own."""
        first, sizes = self.queries.first, self.queries.sizes
        label = self.host_label[self.backend.memory.fetch(self.by_label)]
        is_start = np.ones(len(label) + 1, bool)
        is_start[1:-1] = label[1:] != label[:-1]
        is_start[first] = True
        starts = np.flatnonzero(is_start)
        ends = np.stack([np.repeat(part, np.diff(starts)) for part in (starts[:-1], starts[1:])])
        return self.backend.memory.put((ends - np.repeat(first[:-1], sizes)).astype(np.int32))

    def order(self, values: Array) -> Array:
        """int32 (n_rows,): the rows of each query by falling value, equal ones in row order. values : float32 (n_rows,)."""
        return self.backend.ranker.order(self, values)

    def terms(self, kind: int, order: Array, top: int | None, is_exponential: bool) -> np.ndarray:
        """float64 (n_queries,), on the host: what each query adds to a metric (kernels/query_terms.py). top : k; None: all."""
        if not len(self.queries):
            return np.zeros(0)
        most = int(self.queries.sizes.max())
        top = most if top is None else min(top, most) if kind == DCG else top
        return self.backend.memory.fetch(self.backend.ranker.terms(self, kind, order, top, is_exponential))
