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
    read_sets,
    sets_to_document,
)
from gpuboost.model_io.cursor import Cursor
from gpuboost.objectives import find_objective
from gpuboost.params import check_param

__all__ = ["SCHEMA_VERSION", "from_document", "learner_model_params", "shortest_decimals", "to_document"]

SCHEMA_VERSION = [3, 2, 0]  # the XGBoost release whose schema this is
ROOT_PARENT = 2147483647  # XGBoost's kInvalidNodeId for the parent of a root; -1 in Tree
INT32_MAX = 2147483647
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
            "trees": [_tree_to_document(tree, i, model.n_features) for i, tree in enumerate(model.trees)],
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


def _tree_to_document(tree: Tree, tree_id: int, n_features: int) -> dict[str, Any]:
    is_leaf = tree.left_child == -1
    places, root_parent, base_weights = np.full(tree.n_nodes, -1, np.int32), ROOT_PARENT, tree.weight.copy()
    base_weights[is_leaf] = (tree.leaf_value if tree.searched_value is None else tree.searched_value)[is_leaf]
    vectors: dict[str, Any] = {}
    if tree.leaf_size > 1:  # a row of leaf_weights for each leaf, whose number stands in place of its right child
        places, root_parent = np.cumsum(is_leaf, dtype=np.int32) - np.int32(1), -1
        vectors = {"leaf_weights": tree.leaf_value[is_leaf].reshape(-1)}
    return {
        "id": tree_id,
        "tree_param": {
            "num_deleted": str(tree.n_deleted),
            "num_feature": str(n_features),
            "num_nodes": str(tree.n_nodes),
            "size_leaf_vector": str(tree.leaf_size),
        },
        "loss_changes": tree.gain,
        "sum_hessian": tree.cover,
        "base_weights": base_weights.reshape(-1),
        "left_children": tree.left_child,
        "right_children": np.where(is_leaf, places, tree.left_child + np.int32(1)),
        "parents": np.where(tree.parent == -1, np.int32(root_parent), tree.parent),
        "split_indices": tree.feature,
        "split_conditions": np.where(is_leaf, tree.leaf_value, tree.threshold) if tree.leaf_size == 1 else tree.threshold,
        "default_left": tree.default_left,
        **vectors,
        **sets_to_document(tree),
    }


def _beside(nodes: npt.NDArray[np.bool_], values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """A mask of nodes as it stands beside values of nodes, or of nodes and outputs."""
    return nodes if values.ndim == 1 else nodes[:, None]


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
    model.trees = [_read_tree(tree, i, model) for i, tree in enumerate(trees)]
    sizes = [tree.leaf_size for tree in model.trees]
    if bad := [i for i, (size, group) in enumerate(zip(sizes, model.tree_groups)) if size != sizes[0] or size > 1 and group]:
        forest["trees"].fail("must all have one size_leaf_vector, and groups of 0 where that is above 1.", bad[0])
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


def _read_tree(tree: Cursor, tree_id: int, model: Model) -> Tree:
    number = tree.get("id")  # where XGBoost puts the tree
    if number and (type(number.value) is not int or number.value != tree_id):
        number.fail(f"must be {tree_id}, the tree's place among the trees, got {number.value!r:.40}.")
    params = tree["tree_param"]
    n_nodes = params["num_nodes"].integer_text(1, INT32_MAX)
    leaf_size = max(1, params["size_leaf_vector"].integer_text(0, INT32_MAX))
    if leaf_size not in (1, model.n_outputs):
        params["size_leaf_vector"].fail(f"must be 1, or the {model.n_outputs} of num_class or num_target, got {leaf_size}.")
    feature = tree["split_indices"].integers(n_nodes, 0, INT32_MAX)
    num_deleted = params.get("num_deleted")  # since XGBoost 1.1
    n_deleted = num_deleted.integer_text(0, n_nodes) if num_deleted else int(np.count_nonzero(feature == INT32_MAX))
    left, parent, is_deleted = _read_links(tree, n_nodes, n_deleted, leaf_size > 1)
    default_left = tree["default_left"].integers(n_nodes, 0, 1, or_booleans=True)
    is_split = left != -1
    sets = read_sets(tree, is_split)
    has_condition = ~is_deleted & (is_split | (leaf_size == 1))
    if sets is not None:
        has_condition[sets.nodes] = False  # before 3.0 XGBoost has NaN there, and at leaves of several outputs
    conditions = tree["split_conditions"].floats32(n_nodes, has_condition)
    gain, cover = (
        np.zeros(n_nodes, np.float32) if leaf_size > 1 and not tree.get(key) else tree[key].floats32(n_nodes)
        for key in ("loss_changes", "sum_hessian")  # which XGBoost before 3.2 has not of several outputs
    )
    weight = tree["base_weights"].floats32(n_nodes * leaf_size)
    if (bad := np.flatnonzero(is_split & (feature >= model.n_features))).size:
        tree["split_indices"].fail(f"must be below num_feature {model.n_features}, got {feature[bad[0]]}.", bad[0])
    values = conditions
    if leaf_size > 1:
        weight = weight.reshape(n_nodes, leaf_size)
        values = _read_leaf_weights(tree, ~is_split & ~is_deleted, weight)

    def at(nodes: npt.NDArray[np.bool_], array: npt.NDArray[Any], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        return np.where(_beside(nodes, array), array, 0).astype(dtype)

    is_leaf = ~is_split & ~is_deleted
    is_searched = leaf_size == 1 and (weight != values)[is_leaf].any()
    return Tree(
        left_child=left.astype(np.int32),
        parent=parent.astype(np.int32),
        feature=np.where(is_deleted, np.int32(DELETED), at(is_split, feature, np.int32)),
        threshold=at(is_split, conditions, np.float32),
        default_left=at(is_split, default_left, np.uint8) | is_deleted,
        leaf_value=at(is_leaf, values, np.float32),
        gain=at(is_split, gain, np.float32),
        cover=at(~is_deleted, cover, np.float32),
        weight=np.where(_beside(is_split, weight), weight, at(~is_deleted, values, np.float32)),
        sets=sets,
        searched_value=at(is_leaf, weight, np.float32) if is_searched else None,
    )


def _read_leaf_weights(tree: Cursor, is_leaf: npt.NDArray[np.bool_], weight: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """float32 (n_nodes, leaf_size): the values of leaves of several outputs; at splits anything. weight : base_weights, where
    XGBoost before 3.2 has them."""
    leaf_weights = tree.get("leaf_weights")
    if leaf_weights is None or (isinstance(leaf_weights.value, list | np.ndarray) and not len(leaf_weights.value)):
        return weight
    n_leaves = int(is_leaf.sum())
    values = leaf_weights.floats32(n_leaves * weight.shape[1]).reshape(n_leaves, -1)
    places = tree["right_children"].integers(len(is_leaf), -1, INT32_MAX)[is_leaf]
    if (bad := np.flatnonzero(np.sort(places) != np.arange(n_leaves))).size:
        tree["right_children"].fail(f"must name each of the {n_leaves} rows of leaf_weights at one leaf.", bad[0])
    placed = np.zeros_like(weight)
    placed[is_leaf] = values[places]
    return placed


def _read_links(
    tree: Cursor, n_nodes: int, n_deleted: int, has_places: bool
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """The left child and the parent of every node as Tree has them, and which nodes were deleted. has_places : whether the right
    children of leaves may be something else.

    Every node has at most one parent and the root has none, so the nodes reached from the root are a tree, and whatever
    is not reached (cycles too) is not part of it. XGBoost's pruning leaves such nodes behind and counts them (n_deleted).
    """
    left = tree["left_children"].integers(n_nodes, -1, n_nodes - 1)
    right = tree["right_children"].integers(n_nodes, -1, n_nodes - 1)
    right = np.where(left == -1, -1, right) if has_places else right
    parents = tree["parents"].integers(n_nodes, -1, INT32_MAX)
    if (bad := np.flatnonzero((left == -1) != (right == -1))).size:
        tree["right_children"].fail(f"must be -1 exactly where left_children is, got {right[bad[0]]}.", bad[0])
    if parents[0] not in (-1, ROOT_PARENT):
        tree["parents"].fail(f"must be {ROOT_PARENT} at the root, got {parents[0]}.", 0)
    splits = np.flatnonzero(left != -1)
    n_parents = np.bincount(np.concatenate([left[splits], right[splits]]), minlength=n_nodes)
    if n_parents[0] or n_parents.max() > 1:
        bad_child = int(np.argmax(n_parents)) if n_parents[0] == 0 else 0
        tree["left_children"].fail(f"node {bad_child} is the child of {n_parents[bad_child]} nodes.")
    for key, children in (("left_children", left), ("right_children", right)):
        if (bad := splits[parents[children[splits]] != splits]).size:
            child = children[bad[0]]
            tree[key].fail(f"its child {child} has parent {parents[child]}.", bad[0])

    if (bad := splits[right[splits] != left[splits] + 1]).size:  # XGBoost predicts as if it were
        tree["right_children"].fail(f"must be the left child {left[bad[0]]} + 1, got {right[bad[0]]}.", bad[0])

    levels = [np.zeros(1, dtype=np.int64)]
    while len(frontier := levels[-1][left[levels[-1]] != -1]):
        levels.append(np.concatenate([left[frontier], right[frontier]]))
    is_deleted = np.ones(n_nodes, bool)
    is_deleted[np.concatenate(levels)] = False
    if (n_unreached := np.count_nonzero(is_deleted)) != n_deleted:
        tree["left_children"].fail(
            f"{n_unreached} of {n_nodes} nodes cannot be reached from the root, but num_deleted is {n_deleted}."
        )
    left[is_deleted], parents[is_deleted], parents[0] = -1, 0, -1
    return left, parents, is_deleted
