"""Columns of categories as bins: one for each category, whichever max_bin, so that splits can be sets of them."""

import numpy as np

from gpuboost.arrays import usual_form
from gpuboost.binned.cuts import Cuts
from gpuboost.data.tables.device import host_array
from gpuboost.data.tables.names import quoted
from gpuboost.data.tables.source import ColumnSource
from gpuboost.errors import RowError
from gpuboost.kernels.category_codes import CATEGORY_CODES, find_no_codes_cpu

__all__ = ["are_categories", "check_category_codes", "cut_by_category"]


def are_categories(source: ColumnSource) -> np.ndarray:
    """bool (n_features,): the columns of type "c"."""
    return np.array([letter == "c" for letter in source.feature_types or "q" * source.n_features], bool)


def cut_by_category(cuts: Cuts, source: ColumnSource) -> Cuts:
    """The cuts with a bin for each category of the columns of type "c": those of the dictionary, or up to the largest code that a
    column of numbers holds on any worker.

    cuts : sketched of the same table, with extremes.
    """
    categorical = are_categories(source)
    if not categorical.any():
        return cuts
    assert cuts.extremes is not None
    names = source.feature_names or [""] * cuts.n_features
    largest = np.where(categorical, cuts.extremes[:, 1], 0).astype(np.int64) + 1
    n_categories = [len(source.categories.get(name, ())) or most for name, most in zip(names, largest.tolist())]
    return cuts.with_categories(np.where(categorical, n_categories, -1))


def check_category_codes(source: ColumnSource, n_threads: int, cuts: Cuts | None = None) -> None:
    """ValueError for a number that is no code in a column of type "c", or in one that the cuts take for categories. Columns that
    hold categories themselves have codes."""
    names = source.feature_names or [str(f) for f in range(source.n_features)]
    categorical = are_categories(source) if cuts is None else cuts.n_categories > 0
    declared = [f for f in np.flatnonzero(categorical).tolist() if names[f] not in source.categories]
    for rows in source.batch_slices() if declared else ():
        batch, found = host_array(source.read(rows)), np.zeros(1, np.uint8)
        find_no_codes_cpu(usual_form(batch), np.float32(source.missing), np.array(declared), found, n_threads)
        if not found[0]:
            continue
        with np.errstate(over="ignore"):
            values = batch[:, declared].astype(np.float32)
        is_code = (values >= 0) & (values < CATEGORY_CODES) & (values == np.floor(values))
        is_missing = np.isnan(values) | (values == source.missing)
        for i, j in np.argwhere(~is_code & ~is_missing)[:1]:
            raise RowError(
                f"{quoted(names[declared[j]])} is of feature type 'c', so it must hold codes of categories, whole numbers from 0 "
                f"to {CATEGORY_CODES - 1}, got {values[i, j]:.9g} in ", int(rows.start + i),
                ". Number its categories from 0, or use feature type 'q'.",
            )  # fmt: skip
