"""Categories in a model file: the names that a column's codes stand for, and the sets of them that trees split on.

Names lie in one attribute, JSON of column name to values, which peers ignore. XGBoost since 3.1 has a container of its own, an
entry a column: of strings their bytes and where each begins, of integers their values, and nothing of a column of numbers; and
the numbers of each column's categories in ascending order. It is read, and written where the configuration asks for it.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from gpuboost.errors import ModelFormatError
from gpuboost.model.model import Model
from gpuboost.model.tree import CategorySets, Tree
from gpuboost.model_io.cursor import Cursor
from gpuboost.model_io.strict_json import read_json

__all__ = ["CATEGORIES_KEY", "container_of", "read_categories", "read_container", "read_sets", "sets_to_document"]

CATEGORIES_KEY = "gpuboost.categories"
INT64 = 15  # XGBoost's number of the type
CATEGORY_CODES = 2**24  # XGBoost knows no larger ones: float32 does not hold all of them
SET_KEYS = "categories_nodes", "categories_segments", "categories_sizes", "categories"  # of the schema
NO_SETS = dict(zip(SET_KEYS, (np.zeros(0, dtype) for dtype in (np.int32, np.int64, np.int64, np.int32))))


def read_categories(text: Cursor) -> dict[str, list[Any]]:
    """The categories of every column that has some, from our own attribute."""
    try:
        document = read_json(text.string().encode("utf-8", "surrogatepass"))
    except ModelFormatError as error:
        text.fail(f"must be JSON of column name to list of category values. {error}")
    columns = Cursor(document, text.place).members()
    for column in columns.values():
        for category in column.entries():
            if isinstance(category.value, (dict, list)):
                category.fail("must be a plain value.")
    return {name: column.value for name, column in columns.items()}


def read_container(cats: Cursor | None, names: list[str] | None, n_features: int) -> dict[str, list[Any]]:
    """The same from XGBoost's container; none where columns have no names, as a table's then hold codes."""
    entries = list(cats["enc"].entries()) if cats else []
    if entries and len(entries) != n_features:
        cats["enc"].fail(f"must have {n_features} entries (num_feature) or none, got {len(entries)}.")  # type: ignore[index]
    columns = {name: _read_values(entry) for name, entry in zip(names or (), entries)}
    for values, entry in zip(columns.values(), entries):
        if len(set(values)) < len(values):
            entry["values"].fail("has a category twice.")
    return {name: values for name, values in columns.items() if values}


def container_of(model: Model) -> dict[str, Any]:
    """XGBoost's container as a member of the trees' document. Raises ValueError for categories other than text or integers."""
    columns = [model.categories.get(name, []) for name in model.feature_names or [""] * model.n_features]
    ordered = [sorted(range(len(values)), key=values.__getitem__) for values in columns if _has_one_type(values)]
    bounds = np.cumsum([0, *map(len, columns)])
    return {
        "cats": {
            "enc": [_write_values(values) for values in columns],
            "feature_segments": bounds.astype(np.int32),
            "sorted_idx": np.array([number for order in ordered for number in order], np.int32),
        }
    }


def _has_one_type(values: list[Any]) -> bool:
    """True. Raises ValueError for values that XGBoost's container does not take, or takes wrongly: text that is not ASCII."""
    is_text = all(isinstance(value, str) and value.isascii() for value in values)
    if not is_text and not all(type(value) is int and -(2**63) <= value < 2**63 for value in values):
        raise ValueError(
            f"XGBoost's container takes categories that are ASCII text, or integers of 64 bits, but not {values!r:.60}. Use "
            "category_container='gpuboost'."
        )
    return True


def _write_values(values: list[Any]) -> dict[str, Any]:
    if values and isinstance(values[0], int):
        return {"type": INT64, "values": np.array(values, np.int64)}
    texts = [value.encode() for value in values]
    ends = np.cumsum([0, *map(len, texts)])[: len(texts) + 1 if texts else 0]
    return {"offsets": ends.astype(np.int32), "values": np.frombuffer(b"".join(texts), np.int8)}


def _read_values(entry: Cursor) -> list[Any]:
    """The categories of one column; none for a column of numbers."""
    offsets = entry.get("offsets")
    if offsets is None:
        return entry["values"].integers(None, -(2**63), 2**63 - 1).tolist()
    text = bytes(entry["values"].integers(None, -128, 127).astype(np.int8).tobytes())
    ends = offsets.integers(None, 0, len(text))
    if len(ends) and (ends[0] != 0 or (np.diff(ends) < 0).any()):
        offsets.fail("must rise from 0.")
    try:
        return [text[begin:end].decode() for begin, end in zip(ends[:-1], ends[1:])]
    except UnicodeDecodeError as error:
        entry["values"].fail(
            f"must be UTF-8. {error} XGBoost 3.2 cuts names that are not ASCII: train a new model on codes, or on ASCII names."
        )


def sets_to_document(tree: Tree) -> dict[str, Any]:
    """A tree's members of the schema that say which of its splits are sets."""
    split_type = np.zeros(tree.n_nodes, dtype=np.uint8)
    if tree.sets is None:
        return {"split_type": split_type, **NO_SETS}
    sets = tree.sets
    split_type[sets.nodes] = 1
    return {
        "split_type": split_type,
        "categories_nodes": sets.nodes,
        "categories_segments": sets.bounds[:-1],
        "categories_sizes": np.diff(sets.bounds),
        "categories": sets.categories,
    }


def _has_entries(array: Cursor | None) -> bool:
    """Whether something is there that is no empty array."""
    return array is not None and not (isinstance(array.value, list | np.ndarray) and len(array.value) == 0)


def read_sets(tree: Cursor, is_split: npt.NDArray[np.bool_]) -> CategorySets | None:
    """The splits that are sets. A deleted node, or one that became a leaf, has none."""
    split_type, n_nodes = tree.get("split_type"), len(is_split)  # since XGBoost 1.3
    if split_type is None:
        return None
    is_categorical = split_type.integers(n_nodes, 0, 1)
    n_categorical = int(is_categorical.sum())
    if not n_categorical and not any(_has_entries(tree.get(key)) for key in SET_KEYS):
        return None
    nodes, begins, sizes = (
        tree[key].integers(n_categorical, low, 2**63 - 1) if tree.get(key) or n_categorical else np.zeros(0, np.int64)
        for key, low in (("categories_nodes", 0), ("categories_segments", 0), ("categories_sizes", 1))
    )
    categories = np.zeros(0, np.int64)
    if tree.get("categories") or n_categorical:
        categories = tree["categories"].integers(None, 0, CATEGORY_CODES - 1)
    if not np.array_equal(np.sort(nodes), np.flatnonzero(is_categorical)):
        tree["categories_nodes"].fail("must name the nodes whose split_type is 1.")
    if (bad := np.flatnonzero((sizes > len(categories)) | (begins > len(categories) - sizes))).size:
        tree["categories_segments"].fail(f"must end within the {len(categories)} entries of categories.", bad[0])
    if sum(sizes.tolist()) > len(categories):
        tree["categories_sizes"].fail(f"must add up to no more than the {len(categories)} entries of categories.")
    order = [place for place in np.argsort(nodes) if is_split[nodes[place]]]
    if not order:
        return None
    parts = [np.unique(categories[begins[place] : begins[place] + sizes[place]]) for place in order]
    bounds = np.cumsum([0, *map(len, parts)]).astype(np.int64)
    return CategorySets(nodes[order].astype(np.int32), bounds, np.concatenate(parts).astype(np.int32))
