"""Which worker takes which partitions: each a run of them, so that rows are in one order, whoever has them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["order_workers", "place"]


def order_workers(workers: Sequence[str], holders: Sequence[Sequence[str]]) -> list[str]:
    """Workers by the partitions that they hold, those of the first ones first, so that few have to move.

    holders : of each partition, the workers that hold it.
    """
    held: Mapping[str, list[int]] = {worker: [] for worker in workers}
    for i, own in enumerate(holders):
        for worker in own:
            if worker in held:
                held[worker].append(i)
    middle = {worker: float(np.mean(own)) if own else float("inf") for worker, own in held.items()}
    return sorted(workers, key=lambda worker: (middle[worker], worker))


def place(facts: Sequence[tuple[int, Any, Any]], n_workers: int) -> list[list[int]]:
    """The numbers of the partitions that each worker takes: in order, of about as many rows, no query in two.

    facts : of each partition its rows, and its first and last query or None.
    Raises ValueError where queries decrease from one partition to the next.
    """
    runs: list[list[int]] = []  # of partitions that stay together
    last = None
    for i, (n_rows, first, end) in enumerate(facts):
        if n_rows and last is not None and first is not None and first < last:
            raise ValueError(
                f"qid must not decrease, but partition {i} begins with {first} after {last}. Sort the rows by query, as "
                "sort_values of a dataframe does."
            )
        if runs and (not n_rows or (first is not None and first == last)):
            runs[-1].append(i)  # of no rows, it must not stand between a query's two halves
        else:
            runs.append([i])
        last = end if n_rows and end is not None else last
    sizes = np.array([sum(facts[i][0] for i in run) for run in runs], np.float64)
    middle = np.cumsum(sizes) - sizes / 2
    owner = np.minimum((middle * n_workers // max(sizes.sum(), 1)).astype(int), n_workers - 1)
    return [[i for run, own in zip(runs, owner) if own == worker for i in run] for worker in range(n_workers)]
