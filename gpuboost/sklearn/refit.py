"""One more fit after early stopping: on all rows, those of the evaluation set too, with the rounds that were best."""

from typing import Any

import numpy as np

from gpuboost.data.tables.sparse import is_sparse

__all__ = ["check_tables", "join_rows", "join_tables"]


def check_tables(X: Any, more: Any) -> None:
    """ValueError for two tables that are not of one kind: no arrays, SciPy's sparse matrices or frames of one library."""
    are_arrays = type(X) is np.ndarray and type(more) is np.ndarray
    if not (are_arrays or is_sparse(X) and is_sparse(more) or hasattr(X, "columns") and type(X) is type(more)):
        raise ValueError(
            f"refit_full joins X, {type(X).__name__}, and the X of eval_set, {type(more).__name__}: both must be NumPy arrays, "
            "SciPy's sparse matrices, or frames of one library. Convert one of them."
        )
    if hasattr(X, "columns"):
        try:
            _check_categories(X, more, _join_frames(X[:1], more[:1]))
        except Exception as error:  # of whichever library
            reason = str(error).partition("\n")[0]
            raise ValueError(
                f"refit_full cannot join X and the X of eval_set ({reason}). Give both the same columns, of the same types."
            ) from error


def join_tables(X: Any, more: Any) -> Any:
    """The rows of two tables of one kind (check_tables), one after the other."""
    if is_sparse(X) and is_sparse(more):
        from scipy.sparse import vstack

        return vstack([X, more], format="csr")
    if type(X) is np.ndarray:
        return np.concatenate([X, more])
    return _join_frames(X, more)


def _join_frames(X: Any, more: Any) -> Any:
    import narwhals as nw

    if hasattr(X, "iloc"):  # pandas joins the same categories only, by value
        for name in X.select_dtypes("category"):
            if hasattr(more[name], "cat"):
                categories = X[name].cat.categories.union(more[name].cat.categories, sort=False)
                ordered = X[name].cat.ordered
                X, more = (
                    frame.assign(**{name: frame[name].cat.set_categories(categories, ordered=ordered)}) for frame in (X, more)
                )
    return nw.concat([nw.from_native(X), nw.from_native(more)]).to_native()


def _check_categories(*frames: Any) -> None:
    """ValueError where a column is of categories in some of these only."""
    import narwhals as nw

    schemas = [nw.from_native(frame).schema for frame in frames]
    for name in schemas[0]:
        if len({isinstance(schema[name], (nw.Categorical, nw.Enum)) for schema in schemas}) > 1:
            raise ValueError(f"column {name!r} is of categories in one of them only")


def join_rows(name: str, first: Any, n_first: int, more: Any, n_more: int, default: float | None) -> np.ndarray | None:
    """Numbers by row, of two tables; ``default`` for the rows of a table that has none.

    Raises ValueError where only one has some and there is no default.
    """
    if first is None and more is None:
        return None
    if default is None and (first is None or more is None):
        raise ValueError(f"refit_full needs {name} for X and for eval_set, or for neither.")
    filled = [
        np.full(n, default) if values is None else np.asarray(values) for values, n in ((first, n_first), (more, n_more))
    ]  # fmt: skip
    return np.concatenate(filled)
