"""Class labels of any type as the numbers 0, 1, … that objectives take, and back; a model file remembers them."""

import json
from typing import Any

import numpy as np

from gpuboost.data.tables.device import host_array
from gpuboost.data.tables.indices import check_indices
from gpuboost.data.tables.sparse import is_sparse
from gpuboost.errors import ModelFormatError

__all__ = ["class_codes", "class_probabilities", "has_classes", "label_array", "read_classes", "write_classes"]

_ATTRIBUTE = "classes"


def label_array(y: Any) -> np.ndarray:
    """Labels from anything array-like, of any shape, as a NumPy array of their own type.

    Nullable columns and objects that are numbers or booleans become such; what a sparse matrix leaves out is 0. Raises ValueError
    naming the types where objects are not all of one, as where labels are missing.
    """
    if is_sparse(y):
        check_indices(y, "y")
        y = y.toarray()
    y = host_array(y)
    if np.ma.is_masked(y):
        raise ValueError(f"y lacks {np.ma.count_masked(y)} labels, which are masked. Remove these rows.")
    y = y.to_numpy() if hasattr(y, "iloc") else np.asarray(y)  # np.asarray makes objects of pandas's nullable numbers
    if y.dtype.kind not in "OT" or y.size == 0:
        return y
    values = y.ravel().tolist()
    if len(kinds := sorted({type(value).__name__ for value in values})) > 1:
        raise ValueError(f"y must hold labels of one kind, got {', '.join(kinds)}. Replace or remove missing labels.")
    numbers = np.array(values)
    return numbers.reshape(y.shape) if numbers.dtype.kind in "biuf" else y.astype(object, copy=False)


def class_codes(labels: np.ndarray, classes: np.ndarray, where: str) -> np.ndarray:
    """The place of each label in ``classes``, int64 in their shape. Raises ValueError naming labels that are not in it."""
    position = {label: code for code, label in enumerate(classes.tolist())}
    values, inverse = np.unique(labels, return_inverse=True)
    unknown = [value for value in values.tolist() if value not in position]
    if unknown:
        names = ", ".join(map(repr, unknown[:5])) + (", …" if len(unknown) > 5 else "")
        raise ValueError(f"{where} has labels that the training data does not have: {names}. Remove these rows.")
    return np.array([position[value] for value in values.tolist()], np.int64)[inverse].reshape(labels.shape)


def class_probabilities(prediction: np.ndarray, n_classes: int) -> np.ndarray:
    """A classifier's prediction, (n_rows,) of two classes or (n_rows, n_classes), as (n_rows, n_classes) for any number.

    Several label columns have one probability each, (n_rows, n_columns), and keep them.
    """
    if n_classes == 1:
        return np.ones((len(prediction), 1), np.float32)
    return prediction if prediction.ndim == 2 else np.stack([1 - prediction, prediction], axis=1)


def write_classes(booster: Any, classes: np.ndarray) -> None:
    """Keep sorted classes and their dtype in the attributes of a Booster."""
    values = classes.astype(np.int64) if classes.dtype.kind == "m" else classes
    text = json.dumps({"dtype": classes.dtype.str, "values": values.tolist()}, default=str)
    booster.set_attr(**{_ATTRIBUTE: text})


def has_classes(booster: Any) -> bool:
    """Whether the model remembers classes."""
    return booster.attr(_ATTRIBUTE) is not None


def read_classes(booster: Any) -> np.ndarray:
    """The classes of a classifier's Booster; 0, 1, … where it was trained on numbers. Raises ModelFormatError where they do not
    fit."""
    n_classes, text = booster.model.n_classes, booster.attr(_ATTRIBUTE)
    if text is None:
        return np.arange(n_classes or 2)
    try:
        kept = json.loads(text)
        classes = np.array(kept["values"], dtype=np.dtype(kept["dtype"]))
        if classes.ndim == 1 and len(classes) in ([n_classes] if n_classes else [1, 2]):
            return classes
    except (ValueError, TypeError, KeyError):
        pass
    raise ModelFormatError(f"the model's attribute {_ATTRIBUTE!r} does not hold its class labels: {text[:80]!r}.")
