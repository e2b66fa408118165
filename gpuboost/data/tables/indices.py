"""The index arrays of SciPy's sparse matrices, checked before anybody follows them.

SciPy looks at them when it makes a matrix, but not at what is assigned later, X.indices[0] = -1: its loops, like ours, read and
write wherever they point.
"""

from typing import Any

__all__ = ["check_indices"]


def check_indices(matrix: Any, name: str = "data") -> None:
    """Raise ValueError where the index arrays of a sparse matrix do not describe one of its shape. Reads each once or twice."""
    problem = ""
    if matrix.format in ("csr", "csc", "bsr"):
        problem = _problem_of_compressed(matrix)
    elif matrix.format == "coo":
        problem = _problem_of_coo(matrix)
    elif matrix.format == "lil":
        problem = _problem_of_lists(matrix)
    # SciPy checks the keys of a dok matrix when it converts it, and dia has no indices that could be wrong.
    if problem:
        raise ValueError(f"{name} is a {matrix.format} matrix with broken index arrays: {problem}. Build it anew.")


def _problem_of_compressed(matrix: Any) -> str:
    n_rows, n_columns = (1, *matrix.shape)[-2:]
    height, width = getattr(matrix, "blocksize", (1, 1))
    n_lines, n_places = n_rows // height, n_columns // width
    if matrix.format == "csc":
        n_lines, n_places = n_places, n_lines
    indptr, indices = matrix.indptr, matrix.indices
    if problem := _problem_of_array("indptr", indptr, n_lines + 1):
        return problem
    if indptr[0] != 0 or (indptr[1:] < indptr[:-1]).any():
        return "indptr must begin with 0 and never fall"
    if indptr[-1] > len(indices):
        return f"indptr ends at {indptr[-1]}, but indices holds {len(indices)}"
    problem = _problem_of_array("indices", indices, len(matrix.data))
    return problem or _problem_of_places("indices", indices[: indptr[-1]], n_places)


def _problem_of_coo(matrix: Any) -> str:
    for axis, (indices, size) in enumerate(zip(matrix.coords, matrix.shape)):
        name = f"coords[{axis}]"
        if problem := _problem_of_array(name, indices, len(matrix.data)) or _problem_of_places(name, indices, size):
            return problem
    return ""


def _problem_of_lists(matrix: Any) -> str:
    """Of their lengths only: what they hold is to be checked when they are arrays."""
    lengths = [list(map(len, lists)) for lists in (matrix.rows, matrix.data)]
    is_whole = lengths[0] == lengths[1] and len(lengths[0]) == matrix.shape[0]
    return "" if is_whole else "rows and data must hold lists of equal length, one for each row"


def _problem_of_array(name: str, array: Any, size: int) -> str:
    is_right = array.dtype.kind == "i" and array.shape == (size,)
    return "" if is_right else f"{name} must hold {size} signed integers, got {array.dtype} of shape {array.shape}"


def _problem_of_places(name: str, indices: Any, size: int) -> str:
    least, largest = (indices.min(), indices.max()) if len(indices) else (0, 0)
    wrong = least if least < 0 else largest
    return f"{name} must lie between 0 and {size - 1}, got {wrong}" if len(indices) and not 0 <= wrong < size else ""
