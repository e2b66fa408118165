"""What a model has learnt, as numbers: importance of its features, its nodes as a table, the thresholds of one feature."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from gpuboost.config import warn
from gpuboost.model.model import Model
from gpuboost.model.tree import DELETED
from gpuboost.model_io.dump import category_names, category_sides, name_of_column

__all__ = ["feature_importances", "feature_scores", "split_value_histogram", "trees_to_dataframe", "used_features"]

# Of trees_to_dataframe, and the kinds of numbers and text, which may be absent.
NODE_COLUMNS = {
    "Tree": "Int64", "Target": "Int64", "Node": "Int64", "ID": "string", "Feature": "string", "Split": "Float64",
    "Yes": "string", "No": "string", "Missing": "string", "Gain": "Float64", "Cover": "Float64", "Category": "object",
}  # fmt: skip

IMPORTANCE_TYPES = ("weight", "gain", "cover", "total_gain", "total_cover")


def feature_scores(
    model: Model, importance_type: str = "weight", names: Sequence[str] | None = None
) -> dict[str, float | list[float]]:
    """Column name → score, for the columns that a split uses, in their order; of gblinear all columns and their weights, a list
    for several outputs.

    importance_type : weight, the number of splits; total_gain and total_cover, sums over them; gain and cover, their means.
    names : instead of the model's; without either they are f0, f1, ...
    Raises ValueError for another importance_type, of gblinear for all but weight.
    """
    name_of = name_of_column(model, names)
    if model.linear is not None:
        _require_weight(importance_type)
        weights = model.linear.weights[:-1].astype(np.float64).tolist()
        return {name_of(f): own[0] if len(own) == 1 else own for f, own in enumerate(weights)}
    return {name_of(feature): score for feature, score in zip(*map(np.ndarray.tolist, _scores(model, importance_type)))}


def used_features(model: Model, names: Sequence[str] | None = None) -> dict[str, int]:
    """Column name → number of the features that a split uses, in their order. names : as feature_scores."""
    name_of = name_of_column(model, names)
    return {name_of(feature): feature for feature in _scores(model, "weight")[0].tolist()}


def feature_importances(model: Model, importance_type: str = "gain") -> np.ndarray:
    """float32 (n_features,), of sum 1, or 0 without any split; by the scores of feature_scores. Of gblinear the weights over
    their sum, as XGBoost has them; of several outputs their sizes, summed over the outputs."""
    if model.linear is not None:
        _require_weight(importance_type)
        weights = model.linear.weights[:-1]
        weights = weights[:, 0] if weights.shape[1] == 1 else abs(weights).sum(axis=1)
        return weights / (weights.sum() or np.float32(1))
    used, scores = _scores(model, importance_type)
    importances = np.zeros(model.n_features, np.float32)
    importances[used] = scores / (scores.sum() or 1)
    return importances


def _require_trees(model: Model, what: str) -> None:
    if model.linear is not None:
        raise ValueError(f"{what} is of trees, which a model of booster='gblinear' does not have. Use get_score().")


def _require_weight(importance_type: str) -> None:
    if importance_type != "weight":
        raise ValueError(f"importance_type must be 'weight' for booster='gblinear', got {importance_type!r}. It has no splits.")


def _scores(model: Model, importance_type: str) -> tuple[np.ndarray, np.ndarray]:
    """int32 (n_used,): the features that a split uses, in order. float64 (n_used,): their scores."""
    if importance_type not in IMPORTANCE_TYPES:
        raise ValueError(f"importance_type must be {', '.join(IMPORTANCE_TYPES[:-1])} or total_cover, got {importance_type!r}.")
    features, values = [np.zeros(0, np.int32)], [np.zeros(0)]
    for tree in model.trees:
        splits = tree.left_child >= 0
        features.append(tree.feature[splits])
        values.append((tree.cover if "cover" in importance_type else tree.gain)[splits])
    used, place, counts = np.unique(np.concatenate(features), return_inverse=True, return_counts=True)
    if importance_type == "weight":
        return used, counts.astype(np.float64)
    totals = np.bincount(place, weights=np.concatenate(values), minlength=len(used))
    return used, totals / counts if importance_type in ("gain", "cover") else totals


def trees_to_dataframe(model: Model, names: Sequence[str] | None = None, types: Sequence[str] | None = None) -> Any:
    """A pandas DataFrame with a row for each node, ordered by tree and node; the columns of XGBoost, 3.4 or later:

    Tree; Target, the output; Node, ID ("tree-node"); Feature, "Leaf" at a leaf; Split, the threshold; Yes, No, Missing, the IDs
    of the children where rows go whose value is smaller, is not, is missing; Gain, at a leaf its value; Cover; Category, instead
    of a Split the list of categories that go to Yes, None for numbers. A leaf of several outputs has a row for each, and a split
    for all of them no Target. An indicator (type "i") has no Split: a row goes to Yes where it is set.

    Raises ImportError without pandas.
    """
    _require_trees(model, "trees_to_dataframe")
    pandas = _pandas("trees_to_dataframe")
    name_of, types = name_of_column(model, names), types if types is not None else model.feature_types
    columns: dict[str, list[Any]] = {name: [] for name in NODE_COLUMNS}
    for t, (tree, group) in enumerate(zip(model.trees, model.tree_groups)):
        nodes = np.flatnonzero(tree.feature != DELETED)
        nodes = np.repeat(nodes, np.where(tree.left_child[nodes] < 0, tree.leaf_size, 1))
        output = np.arange(len(nodes)) - np.searchsorted(nodes, nodes)
        left, feature, threshold = tree.left_child[nodes], tree.feature[nodes], tree.threshold[nodes].astype(np.float64)
        is_split: np.ndarray = left >= 0
        labels = np.array([name_of(f) for f in feature.tolist()], dtype=object)
        ids = np.array([f"{t}-{node}" for node in range(tree.n_nodes)], dtype=object)
        letters = np.array(["q" if types is None else types[f] for f in feature.tolist()], dtype=object)
        threshold[letters == "int"] = np.ceil(threshold[letters == "int"])
        sides = [side if split else None for split, side in zip(is_split, map(category_sides(model, tree), nodes.tolist()))]
        has_threshold = is_split & (letters != "i") & [side is None for side in sides]
        to_missing = np.where(tree.default_left[nodes], left, left + 1)
        yes = left + [side is not None and side[0] is None for side in sides]
        no = np.where(letters == "i", to_missing, 2 * left + 1 - yes)  # where an indicator is not set
        yes = np.where(letters == "i", 2 * left + 1 - to_missing, yes)

        def where(mask: np.ndarray, values: np.ndarray, others: Any = None) -> list[Any]:
            return np.where(mask, values.astype(object), others).tolist()

        columns["Tree"] += [t] * len(nodes)
        columns["Target"] += [group] * len(nodes) if tree.leaf_size == 1 else where(~is_split, output)
        columns["Node"] += nodes.tolist()
        columns["ID"] += ids[nodes].tolist()
        columns["Feature"] += where(is_split, labels, "Leaf")
        columns["Split"] += where(has_threshold, threshold)
        columns["Yes"] += where(is_split, ids[yes])
        columns["No"] += where(is_split, ids[no])
        columns["Missing"] += where(is_split, ids[to_missing])
        columns["Gain"] += where(is_split, tree.gain[nodes], tree.leaf_value.reshape(tree.n_nodes, -1)[nodes, output])
        columns["Cover"] += tree.cover[nodes].tolist()
        columns["Category"] += [side and (side[1] if side[0] is None else side[0]) for side in sides]  # that which is "yes"
    return pandas.DataFrame(columns).astype(NODE_COLUMNS)


def split_value_histogram(
    model: Model, feature: str, bins: int | None = None, as_pandas: bool = True, names: Sequence[str] | None = None
) -> Any:
    """How often which thresholds of a feature were chosen: (upper edge of a bin, number of splits), without empty bins.

    bins : None or more than there are distinct thresholds: as many as those. as_pandas : a DataFrame with the columns SplitValue
    and Count where pandas is installed, else float64 (n, 2).
    A name that is no column has none, as in XGBoost, and gets a warning. Raises ValueError for a column of categories, which has
    no thresholds.
    """
    _require_trees(model, "get_split_value_histogram")
    name_of, names = name_of_column(model, names), names if names is not None else model.feature_names
    if names is not None:
        number = list(names).index(feature) if feature in names else -1
    else:
        number = int(feature[1:]) if feature[1:].isdecimal() else -1
    if not 0 <= number < model.n_features or name_of(number) != feature:
        known = ", ".join(map(name_of, range(min(8, model.n_features)))) + (" ..." if model.n_features > 8 else "")
        warn(f"the model has no feature {feature!r}. It has {known}.")
        number = -1
    has_sets = any(tree.sets is not None and (tree.feature[tree.sets.nodes] == number).any() for tree in model.trees)
    if has_sets or (number >= 0 and category_names(model, number) is not None):
        raise ValueError(f"column {feature!r} holds categories, whose splits have no threshold. Use trees_to_dataframe().")
    chosen = [tree.threshold[(tree.left_child >= 0) & (tree.feature == number)] for tree in model.trees]
    values = np.concatenate([np.zeros(0), *chosen])
    n_distinct = len(np.unique(values))
    counts, edges = np.histogram(values, max(1, n_distinct if bins is None else min(bins, n_distinct)))
    rows = np.column_stack([edges[1:], counts])[counts > 0]
    try:
        return _pandas("").DataFrame(rows, columns=["SplitValue", "Count"]) if as_pandas else rows
    except ImportError:
        return rows


def _pandas(what: str) -> Any:
    try:
        import pandas
    except ImportError:
        raise ImportError(f"{what} needs pandas. Install it: pip install pandas") from None
    return pandas
