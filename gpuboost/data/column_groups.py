"""Neighbouring columns that are worked on together, so that what passes through memory is bounded."""

from collections.abc import Iterator

import numpy as np

__all__ = ["neighbours"]


def neighbours(sizes: np.ndarray, most: int) -> Iterator[slice]:
    """All columns in order, in as few groups as have sizes of about ``most`` together, all of about the same, one column at
    least. sizes : int64 (n,)."""
    total = int(sizes.sum())
    n_groups = max(1, -(-total // most))
    owner = np.minimum((np.cumsum(sizes) - sizes) * n_groups // max(total, 1), n_groups - 1)
    ends = np.flatnonzero(np.diff(owner, append=n_groups)) + 1
    yield from map(slice, np.append(0, ends[:-1]).tolist(), ends.tolist())
