"""Model to and from a document in XGBoost's JSON model schema: the one place that knows the schema.

The document is plain Python data, so JSON and UBJSON are two encodings of it. Where XGBoost's reader of UBJSON insists on a
typed array, the document holds a NumPy array of that type, else a list; reading takes both everywhere.

What differs from XGBoost's own files, each read by XGBoost 3.1 and later (checked with 3.2):
    base_score          shortest decimals instead of XGBoost's "5E-1" notation, and one number where it is that of all outputs:
                        before 3.1 XGBoost takes neither brackets nor more than nine digits, and starts at 0.5 without a word
    boost_from_average  always "0": base_score is final. With "1" and no trees XGBoost 3.2 skips the link function
    cats                absent unless asked for: Treelite rejects a filled one. Categories are one JSON string under attributes
                        (categories.py)
"""

import json
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gpuboost.model.linear import Linear
from gpuboost.model.model import Model
from gpuboost.model.tree import DELETED, Tree
from gpuboost.model_io.categories import (
    CATEGORIES_KEY,
    container_of,
    read_categories,
    read_container,
    sets_to_document,
)
from gpuboost.model_io.cursor import Cursor
from gpuboost.model_io.forest import INT32_MAX, ROOT_PARENT, read_head, read_trees
from gpuboost.objectives import find_objective
from gpuboost.params import check_param

__all__ = ["SCHEMA_VERSION", "from_document", "learner_model_params", "shortest_decimals", "to_document"]

SCHEMA_VERSION = [3, 2, 0]  # the XGBoost release whose schema this is
FEATURE_TYPES = ("q", "float", "int", "i", "c")
NUMBER_TEXT = re.compile(r"[-+]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][-+]?[0-9]+)?")
POWERS_OF_TEN = 10.0 ** np.arange(23)  # those that are exact
MOST_DIGITS, LARGEST_EXPONENT = 9, 13  # so that no further powers are needed
MAX_OUTPUTS = 65536  # margins per row of a model that does not itself hold as many base scores or trees


def to_document(model: Model, fills_cats: bool = False) -> dict[str, Any]:
    """The model as a document. fills_cats : whether categories are also where XGBoost has them.

    Raises ValueError where an attribute bears the name that is reserved for categories, and for categories that XGBoost has not.
    """
    attributes = dict(model.attributes)
    if CATEGORIES_KEY in attributes:
        raise ValueError(f"The attribute name {CATEGORIES_KEY!r} is reserved for the model's own categories. Use another name.")
    if model.categories:
        attributes[CATEGORIES_KEY] = json.dumps(model.categories, sort_keys=True, separators=(",", ":"))
    return {
        "version": SCHEMA_VERSION,
        "learner": {
            "learner_model_param": learner_model_params(model),
            "objective": {"name": model.objective, **_objective_to_document(model.objective_params)},
            "gradient_booster": _booster_to_document(model, fills_cats),
            "attributes": attributes,
            "feature_names": list(model.feature_names or []),
            "feature_types": list(model.feature_types or []),
        },
    }


def learner_model_params(model: Model) -> dict[str, str]:
    """What every booster has."""
    return {
        "base_score": _base_score_text(model.base_score),
        "boost_from_average": "0",
        "num_class": str(model.n_classes),
        "num_feature": str(model.n_features),
        "num_target": str(model.n_targets),
    }


def _booster_to_document(model: Model, fills_cats: bool) -> dict[str, Any]:
    if model.linear is not None:
        weights = model.linear.weights.reshape(-1)
        return {"name": "gblinear", "model": {"boosted_rounds": model.linear.n_rounds, "weights": weights}}
    weight_drop = None if model.tree_weights is None else shortest_decimals(np.array(model.tree_weights, np.float32))
    # XGBoost before 3.4 predicts anything from vector leaves with weights. So these lie where 3.4 has them, under the name of the
    # other form: 3.4 reads that, and they refuse it.
    is_within = weight_drop is not None and model.multi_strategy == "multi_output_tree"
    gbtree = {
        "name": "gbtree",
        "model": {
            "gbtree_model_param": {
                "num_trees": str(len(model.trees)),
                "num_parallel_tree": str(model.num_parallel_tree),
            },
            "trees": _trees_to_documents(model.trees, model.n_features),
            "tree_info": [int(group) for group in model.tree_groups],
            "iteration_indptr": [int(bound) for bound in model.iteration_indptr],
            **({"weight_drop": weight_drop} if is_within else {}),
            **(container_of(model) if fills_cats and model.categories else {}),
        },
    }
    if weight_drop is None:
        return gbtree
    return {"name": "dart", "gbtree": gbtree, **({} if is_within else {"weight_drop": weight_drop})}


def _objective_to_document(params: dict[str, Any]) -> dict[str, Any]:
    return {key: np.array(value, np.float32) if isinstance(value, list) else value for key, value in params.items()}


def _trees_to_documents(trees: Sequence[Tree], n_features: int) -> list[dict[str, Any]]:
    """Trees of one leaf size: the members of all of them are made at once, and each has its part (forest.py reads them so)."""
    if not trees:
        return []
    leaf_size, begin = trees[0].leaf_size, np.cumsum([0, *(tree.n_nodes for tree in trees)])
    left, parent, leaf_value, threshold = (_joined(trees, name) for name in ("left_child", "parent", "leaf_value", "threshold"))
    feature, base_weights, is_leaf, root_parent = _joined(trees, "feature"), _joined(trees, "weight"), left == -1, ROOT_PARENT
    searched = leaf_value
    if any(tree.searched_value is not None for tree in trees):
        searched = np.concatenate([tree.leaf_value if tree.searched_value is None else tree.searched_value for tree in trees])
    base_weights[is_leaf] = searched[is_leaf]
    places, conditions = np.full(len(left), -1, np.int32), threshold
    leaves_before = np.concatenate([[0], np.cumsum(is_leaf)])  # each node
    if leaf_size > 1:  # a row of leaf_weights for each leaf, whose number stands in place of its right child
        own_before = np.repeat(leaves_before[begin[:-1]], np.diff(begin))
        places, root_parent = (leaves_before[1:] - own_before - 1).astype(np.int32), -1
        leaf_weights = leaf_value[is_leaf]
    else:
        conditions = np.where(is_leaf, leaf_value, threshold)
    members = {
        "loss_changes": _joined(trees, "gain"),
        "sum_hessian": _joined(trees, "cover"),
        "left_children": left,
        "right_children": np.where(is_leaf, places, left + np.int32(1)),
        "parents": np.where(parent == -1, np.int32(root_parent), parent),
        "split_indices": feature,
        "split_conditions": conditions,
        "default_left": _joined(trees, "default_left"),
    }
    n_deleted = np.add.reduceat(feature == DELETED, begin[:-1], dtype=np.int64).tolist()
    bounds, documents = begin.tolist(), []
    for i, tree in enumerate(trees):
        own = slice(bounds[i], bounds[i + 1])
        document = {
            "id": i,
            "tree_param": {
                "num_deleted": str(n_deleted[i]),
                "num_feature": str(n_features),
                "num_nodes": str(bounds[i + 1] - bounds[i]),
                "size_leaf_vector": str(leaf_size),
            },
            "base_weights": base_weights[own].reshape(-1),
            **{name: array[own] for name, array in members.items()},
            **sets_to_document(tree),
        }
        if leaf_size > 1:
            document["leaf_weights"] = leaf_weights[leaves_before[own.start] : leaves_before[own.stop]].reshape(-1)
        documents.append(document)
    return documents


def _joined(trees: Sequence[Tree], name: str) -> npt.NDArray[Any]:
    return np.concatenate([getattr(tree, name) for tree in trees])


def from_document(document: Any) -> Model:
    """The model that a document holds, every value checked.

    Raises ModelFormatError, naming the place, where the document is malformed.
    """
    root = Cursor(document)
    _check_version(root["version"])
    learner = root["learner"]
    params = learner["learner_model_param"]
    n_features = params["num_feature"].integer_text(0, INT32_MAX)
    n_classes = params["num_class"].integer_text(0, INT32_MAX)
    num_target = params.get("num_target")  # since XGBoost 1.6
    n_targets = num_target.integer_text(1, INT32_MAX) if num_target else 1
    if n_classes > 1 and n_targets > 1:
        params.fail(f"num_class {n_classes} and num_target {n_targets} must not both be above 1.")

    objective = {key: value for key, value in learner["objective"].members().items() if key != "name"}
    model = Model(
        n_features=n_features,
        objective=learner["objective"]["name"].string(),
        objective_params={key: _objective_param(value) for key, value in objective.items()},
        n_classes=n_classes,
        n_targets=n_targets,
        feature_names=_column_strings(learner.get("feature_names"), n_features),
        feature_types=_column_strings(learner.get("feature_types"), n_features, FEATURE_TYPES),
    )
    model.base_score = _read_base_score(params["base_score"], model)
    attributes = learner.get("attributes")
    for key, value in attributes.members().items() if attributes else ():
        if key == CATEGORIES_KEY:
            model.categories = read_categories(value)
        else:
            model.attributes[key] = value.string()
    _check_objective(learner, model)
    _check_columns(learner, model)
    _read_booster(learner["gradient_booster"], model)
    if model.n_outputs > max(MAX_OUTPUTS, len(model.base_score), len(model.trees)):
        params.fail(
            f"num_class {n_classes} or num_target {n_targets} is above {MAX_OUTPUTS} and the numbers of trees and base scores."
        )
    if len(model.base_score) == 1:
        model.base_score *= model.n_outputs
    return model


def _check_version(version: Cursor) -> None:
    numbers = version.integers(3, -1, INT32_MAX)
    if numbers[0] < 1:
        version.fail(f"must be XGBoost 1.0 or later, got {numbers.tolist()}.")


def _base_score_text(base_score: tuple[float, ...]) -> str:
    scores = [str(score) for score in np.array(base_score, np.float32)]
    is_one = len({*scores}) == 1 and len(scores) <= MAX_OUTPUTS
    return scores[0] if is_one else f"[{','.join(scores)}]"


def _read_base_score(text: Cursor, model: Model) -> tuple[float, ...]:
    """As float32, which is what they act as. XGBoost writes "[5E-1]" or "[1E0,2E0]" since 3.1, "5E-1" before."""
    try:
        scores = json.loads(text.string())
    except (ValueError, RecursionError):
        scores = None
    scores = scores if type(scores) is list else [scores]
    if len(scores) not in (1, model.n_outputs) or not all(type(score) in (int, float) for score in scores):
        text.fail(f"must hold one number, or {model.n_outputs} in brackets, got {text.value!r:.60}.")
    rounded = Cursor(scores, text.place).floats32(len(scores))
    link = find_objective(model.objective).link
    if link.refused(rounded).any():
        text.fail(f"must {link.allowed} for {model.objective}, got {text.value!r:.60}.")
    return tuple(rounded.tolist())


def _objective_param(value: Cursor) -> Any:
    """An object of strings, or the plain numbers of the ranking objectives' position bias ("ti+", "tj-")."""
    if isinstance(value.value, (list, np.ndarray)):
        return shortest_decimals(value.floats32(len(value.value)))
    return {key: text.string() for key, text in value.members().items()}


def shortest_decimals(array: npt.NDArray[Any]) -> list[Any]:
    """An array as Python numbers; float32 as the shortest decimals that give the same float32 (0.1, not 0.10000000149)."""
    if array.dtype != np.float32:
        return array.tolist()
    exact = array.astype(np.float64)
    result = exact.copy()
    with np.errstate(divide="ignore"):
        exponent = np.floor(np.log10(abs(exact)))
    # The nearest decimal of 1, 2, … digits, until one gives the same float32. Not at powers of two, below which float32 lie twice
    # as close, nor where powers of ten are no longer exact: those go by their text. 200,000 numbers 0.33 -> 0.07 s.
    goes_by_text = (array.view(np.int32) & 0x7FFFFF == 0) | ~(abs(exponent) <= LARGEST_EXPONENT)
    left = np.flatnonzero(~goes_by_text)
    for n in range(MOST_DIGITS):
        shift = n - exponent[left].astype(np.int64)
        up, down = POWERS_OF_TEN[np.maximum(shift, 0)], POWERS_OF_TEN[np.maximum(-shift, 0)]
        near = np.rint(exact[left] * up / down) / up * down
        is_found = near.astype(np.float32) == array[left]
        result[left[is_found]] = near[is_found]
        left = left[~is_found]
    goes_by_text[left] = True
    result[goes_by_text] = [float(text) for text in map(str, array[goes_by_text])]
    return np.where(result.astype(np.float32) == array, result, exact).tolist()


def _check_objective(learner: Cursor, model: Model) -> None:
    """The name, and the parameters that training goes on with."""
    if not model.objective:
        learner["objective"]["name"].fail("must not be empty.")
    known = find_objective(model.objective)
    if known.takes_parameter("num_class") and model.n_classes < 2:
        learner["learner_model_param"]["num_class"].fail(f"must be at least 2 for {model.objective}, got {model.n_classes}.")
    softmax, loss = (learner["objective"].get(key) for key in ("softmax_multiclass_param", "reg_loss_param"))
    if softmax and (num_class := softmax.get("num_class")) and num_class.integer_text(0, INT32_MAX) != model.n_classes:
        num_class.fail(f"must be the {model.n_classes} of learner_model_param, got {num_class.value}.")
    if loss and (weight := loss.get("scale_pos_weight")):
        value = float(weight.string()) if NUMBER_TEXT.fullmatch(weight.string()) else 0.0
        if not 0 < value < np.inf:
            weight.fail(f"must be a finite number above 0 in a string, got {weight.string()!r:.40}.")
    for parameter in known.takes:
        section = learner["objective"].get(parameter.section)
        if section and (text := section.get(parameter.name)):
            try:
                check_param(parameter.name, text.string())
            except ValueError as refused:
                text.fail(f"{refused}")


def _check_columns(learner: Cursor, model: Model) -> None:
    """Columns are found by their names, categories by their values, so each must be there once."""
    names = model.feature_names or []
    if len(set(names)) < len(names):
        index = next(i for i, name in enumerate(names) if name in names[:i])
        learner["feature_names"].fail(f"must differ from each other, got {names[index]!r:.60} again.", index)
    for name, values in model.categories.items():
        column = learner["attributes"][CATEGORIES_KEY]
        if name not in names:
            column.fail(f"{name!r:.60} is not among feature_names.")
        if len({(type(value), value) for value in values}) < len(values):
            column.fail(f"{name!r:.60} has a category twice.")


def _column_strings(strings: Cursor | None, n_features: int, allowed: tuple[str, ...] = ()) -> list[str] | None:
    """One string per column; an empty or absent array means that the table had none."""
    if strings is None or not (values := [entry.string() for entry in strings.entries()]):
        return None
    if len(values) != n_features:
        strings.fail(f"must have {n_features} entries (num_feature) or none, got {len(values)}.")
    for i, value in enumerate(values):
        if allowed and value not in allowed:
            strings.fail(f"must be one of {', '.join(allowed)}, got {value!r:.40}.", i)
    return values


def _read_booster(booster: Cursor, model: Model) -> None:
    """Fill in the model's linear part; or its trees, their groups and the bounds of its rounds."""
    name = booster["name"].string()
    if name == "gblinear":
        _read_linear(booster["model"], model)
        return
    if name not in ("gbtree", "dart"):
        booster["name"].fail(f"must be gbtree, dart or gblinear, got {name!r:.40}.")
    forest = booster["model"] if name == "gbtree" else booster["gbtree"]["model"]
    _read_trees(forest, model)
    weights = forest.get("weight_drop")  # since XGBoost 3.4, which reads the other form, too; 3.2 reads that alone
    if weights is None and name == "dart":
        weights = booster["weight_drop"]
    if weights is not None:
        _read_weights(weights, model)


def _read_linear(linear: Cursor, model: Model) -> None:
    weights = linear["weights"].floats32((model.n_features + 1) * model.n_outputs)
    rounds = linear.get("boosted_rounds")  # since XGBoost 1.6
    if rounds is not None and (type(rounds.value) is not int or not 0 <= rounds.value <= INT32_MAX):
        rounds.fail(f"must be an integer from 0 to {INT32_MAX}, got {rounds.value!r:.40}.")
    model.linear = Linear(weights.reshape(-1, model.n_outputs), 0 if rounds is None else rounds.value)
    model.base_score = model.base_score[:1] * len(model.base_score)  # XGBoost reads no other here


def _read_weights(cursor: Cursor, model: Model) -> None:
    model.tree_weights = cursor.floats32(len(model.trees)).tolist()
    with np.errstate(over="ignore"):
        leaves = [tree.leaf_value for tree in model.weighed_trees]
    if bad := [i for i, values in enumerate(leaves) if not np.isfinite(values).all()]:
        cursor.fail("must leave the leaves of its tree finite.", bad[0])


def _read_trees(forest: Cursor, model: Model) -> None:
    model.categories |= read_container(forest.get("cats"), model.feature_names, model.n_features)
    params = forest["gbtree_model_param"]
    n_trees = params["num_trees"].integer_text(0, INT32_MAX)
    num_parallel_tree = params.get("num_parallel_tree")  # since XGBoost 1.3
    model.num_parallel_tree = num_parallel_tree.integer_text(1, INT32_MAX) if num_parallel_tree else 1
    trees = list(forest["trees"].entries())
    if len(trees) != n_trees:
        forest["trees"].fail(f"must have {n_trees} entries (num_trees), got {len(trees)}.")
    model.tree_groups = forest["tree_info"].integers(n_trees, 0, model.n_outputs - 1).tolist()
    heads = [read_head(tree, i, model.n_outputs) for i, tree in enumerate(trees)]
    sizes = [head.leaf_size for head in heads]
    if bad := [i for i, (size, group) in enumerate(zip(sizes, model.tree_groups)) if size != sizes[0] or size > 1 and group]:
        forest["trees"].fail("must all have one size_leaf_vector, and groups of 0 where that is above 1.", bad[0])
    model.trees = read_trees(trees, heads, model)
    n_groups = model.n_outputs // (sizes[0] if sizes else 1)
    model.iteration_indptr = _read_iteration_indptr(forest, n_trees, n_groups * model.num_parallel_tree)


def _read_iteration_indptr(forest: Cursor, n_trees: int, trees_per_round: int) -> list[int]:
    indptr = forest.get("iteration_indptr")
    if indptr is None:  # XGBoost before 2.0: every round has the same number of trees
        if n_trees % trees_per_round:
            forest["trees"].fail(f"must be whole rounds of {trees_per_round} trees, got {n_trees}.")
        return list(range(0, n_trees + 1, trees_per_round))
    bounds = indptr.integers(None, 0, n_trees)
    if len(bounds) == 0 or bounds[0] != 0 or bounds[-1] != n_trees or (np.diff(bounds) < 0).any():
        indptr.fail(f"must rise from 0 to {n_trees} (num_trees).")
    return bounds.tolist()
