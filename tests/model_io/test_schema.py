"""The document of a model: what is written, what is read back, and what is refused."""

import copy
import json
import random

import numpy as np
import pytest
from random_models import random_model, random_tree

from gpuboost.errors import ModelFormatError
from gpuboost.model_io import dumps, from_document, to_document
from gpuboost.tree.model import Model
from gpuboost.tree.tree import Tree


def stump() -> Model:
    """x0 < 1.5 gives -2, else 3; missing goes left."""
    tree = Tree(
        left_child=np.array([1, -1, -1], np.int32),
        parent=np.array([-1, 0, 0], np.int32),
        feature=np.array([0, 0, 0], np.int32),
        threshold=np.array([1.5, 0, 0], np.float32),
        default_left=np.array([1, 0, 0], np.uint8),
        leaf_value=np.array([0, -2, 3], np.float32),
        gain=np.array([4, 0, 0], np.float32),
        cover=np.array([10.0, 4.0, 6.0]),
        weight=np.array([1, -20, 30], np.float32),
    )
    model = Model(n_features=1, objective="reg:squarederror", base_score=(0.5,))
    model.add_round([tree], [0])
    return model


def document_of(model: Model) -> dict:
    """The document as a file brings it: lists, no arrays."""
    return json.loads(dumps(model))


def trees_of(document: dict) -> list:
    return document["learner"]["gradient_booster"]["model"]["trees"]


def test_stump_is_written_as_xgboost_lays_it_out():
    document = document_of(stump())
    learner = document["learner"]
    assert document["version"] == [3, 2, 0]
    assert learner["learner_model_param"] == {
        "base_score": "[0.5]",
        "boost_from_average": "0",
        "num_class": "0",
        "num_feature": "1",
        "num_target": "1",
    }
    assert learner["objective"] == {"name": "reg:squarederror"}
    assert learner["attributes"] == {} and learner["feature_names"] == [] and learner["feature_types"] == []
    assert learner["gradient_booster"]["name"] == "gbtree"
    forest = learner["gradient_booster"]["model"]
    assert forest["gbtree_model_param"] == {"num_trees": "1", "num_parallel_tree": "1"}
    assert forest["tree_info"] == [0] and forest["iteration_indptr"] == [0, 1]
    assert forest["trees"] == [
        {
            "id": 0,
            "tree_param": {"num_deleted": "0", "num_feature": "1", "num_nodes": "3", "size_leaf_vector": "1"},
            "loss_changes": [4.0, 0.0, 0.0],
            "sum_hessian": [10.0, 4.0, 6.0],
            "base_weights": [1.0, -20.0, 30.0],
            "left_children": [1, -1, -1],
            "right_children": [2, -1, -1],
            "parents": [2147483647, 0, 0],
            "split_indices": [0, 0, 0],
            "split_conditions": [1.5, -2.0, 3.0],
            "default_left": [1, 0, 0],
            "split_type": [0, 0, 0],
            "categories": [],
            "categories_nodes": [],
            "categories_segments": [],
            "categories_sizes": [],
        }
    ]


@pytest.mark.parametrize("seed", range(20))
def test_reading_returns_the_model_that_was_written(seed):
    model = random_model(seed, objective=["reg:squarederror", "binary:logistic", "multi:softprob", "multi:softmax"][seed % 4])
    model.feature_names = ["a", 'b"\\', "é 中", "d\n"] if seed % 2 else None
    model.feature_types = ["q", "float", "int", "i"] if seed % 3 else None
    model.categories = {"é": ["x", 'y"\\'], "b": [1, 2.5, None, True]} if seed % 2 else {}
    model.attributes = {"best_iteration": "3", "note": '{"a":"\\u00e9"}'}
    assert from_document(to_document(model)) == model
    assert from_document(document_of(model)) == model


@pytest.mark.parametrize("model", [Model(0, "reg:squarederror"), Model(3, "reg:squarederror", base_score=(1e-300,))])
def test_model_without_trees_is_read_back(model):
    assert from_document(document_of(model)) == model


def test_columns_of_arrays_have_the_dtypes_that_tree_documents():
    tree, again = random_tree(np.random.default_rng(0), 3, 9), from_document(document_of(random_model(0))).trees[0]
    for name, array in vars(tree).items():
        assert getattr(again, name).dtype == array.dtype, name


def test_categories_are_kept_apart_from_attributes():
    model = stump()
    model.categories, model.attributes = {"colour": ["red", "blue"]}, {"a": "b"}
    document = document_of(model)
    assert document["learner"]["attributes"] == {"a": "b", "gpuboost.categories": '{"colour":["red","blue"]}'}
    model.attributes = {"gpuboost.categories": "mine"}
    with pytest.raises(ValueError, match="reserved"):
        to_document(model)


@pytest.mark.parametrize(
    ("text", "n_classes", "expected"),
    [
        ("5E-1", 0, (0.5,)),
        ("[5E-1]", 0, (0.5,)),
        ("0.25", 3, (0.25,)),
        ("[1.0124857E0,-6.414473E-2,-9.4834113E-1]", 3, (1.0124857, -0.06414473, -0.94834113)),
    ],
)
def test_base_score_is_read_in_every_form_of_xgboost(text, n_classes, expected):
    document = document_of(Model(1, "any", n_classes=n_classes))
    document["learner"]["learner_model_param"]["base_score"] = text
    assert from_document(document).base_score == expected


@pytest.mark.parametrize(
    "text", ["[0.1,0.2]", "[]", "NaN", "[Infinity]", "abc", "", '["1"]', "true", "1" + "0" * 400, "[" * 99999]
)
def test_base_score_that_is_not_one_number_an_output_is_refused(text):
    document = document_of(Model(1, "any", n_classes=3))
    document["learner"]["learner_model_param"]["base_score"] = text
    with pytest.raises(ModelFormatError, match="learner.learner_model_param.base_score"):
        from_document(document)


def test_rounds_of_files_before_xgboost_2_follow_from_the_number_of_outputs():
    model = random_model(0, objective="multi:softmax", n_rounds=2)
    document = document_of(model)
    del document["learner"]["gradient_booster"]["model"]["iteration_indptr"]
    assert from_document(document).iteration_indptr == [0, 3, 6]


def test_deleted_nodes_are_dropped_and_children_made_neighbours():
    # 0 splits into 3 and 1, node 3 into 4 and 6; 2 and 5 were deleted by pruning.
    document = document_of(stump())
    trees_of(document)[0] |= {
        "tree_param": {"num_deleted": "2", "num_feature": "1", "num_nodes": "7", "size_leaf_vector": "1"},
        "left_children": [3, -1, -1, 4, -1, -1, -1],
        "right_children": [1, -1, -1, 6, -1, -1, -1],
        "parents": [2147483647, 0, 1, 0, 3, 1, 3],
        "split_indices": [0, 9, 2147483647, 0, 0, 2147483647, 0],
        "split_conditions": [0.5, 1.0, 9.0, -0.5, 4.0, 9.0, 6.0],
        "default_left": [True, True, False, True, False, False, False],
        "split_type": [0] * 7,
        **{key: [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0] for key in ("loss_changes", "sum_hessian", "base_weights")},
    }
    tree = from_document(document).trees[0]
    assert tree.left_child.tolist() == [1, 3, -1, -1, -1]
    assert tree.parent.tolist() == [-1, 0, 0, 1, 1]
    assert tree.threshold.tolist() == [0.5, -0.5, 0, 0, 0]
    assert tree.leaf_value.tolist() == [0, 0, 1, 4, 6]
    assert tree.default_left.tolist() == [1, 1, 0, 0, 0]
    assert tree.gain.tolist() == [0, 3, 0, 0, 0]
    assert tree.cover.tolist() == [0, 3, 1, 4, 6]


def test_chain_as_deep_as_its_nodes_is_read():
    rng = np.random.default_rng(0)
    model = random_model(0, n_rounds=0)
    tree = random_tree(rng, 4, 3000)
    splits = np.arange(2999)
    tree.left_child[:] = -1  # node 2i - 1 is a leaf and 2i splits again
    tree.left_child[2 * splits] = 2 * splits + 1
    tree.parent[1::2] = tree.parent[2::2] = 2 * splits
    model.add_round([tree], [0])
    assert from_document(document_of(model)).trees[0].left_child.tolist() == tree.left_child.tolist()


TREE = "learner.gradient_booster.model.trees[0]"


@pytest.mark.parametrize(
    ("key", "index", "value", "place"),
    [
        ("left_children", 0, 7, f"{TREE}.left_children[0]: must be between -1 and 2, got 7"),
        ("left_children", 0, "1", f"{TREE}.left_children[0]: must be an integer, got a string"),
        ("left_children", 1, True, f"{TREE}.left_children[1]: must be an integer, got a boolean"),
        ("left_children", 0, 10**30, f"{TREE}.left_children[0]: "),
        ("left_children", 0, 2, f"{TREE}.left_children: node 2 is the child of 2 nodes"),
        ("left_children", 0, 0, f"{TREE}.left_children: node 0 is the child of 1 nodes"),
        ("right_children", 0, -1, f"{TREE}.right_children[0]: must be -1 exactly where left_children is"),
        ("parents", 2, 1, f"{TREE}.right_children[0]: its child 2 has parent 1"),
        ("parents", 0, 1, f"{TREE}.parents[0]: must be 2147483647 at the root"),
        ("split_indices", 0, 1, f"{TREE}.split_indices[0]: must be below num_feature 1, got 1"),
        ("split_conditions", 0, float("nan"), f"{TREE}.split_conditions[0]: must not be NaN"),
        ("split_conditions", 1, float("inf"), f"{TREE}.split_conditions[1]: must be finite float32 at a leaf"),
        ("split_conditions", 2, 1e39, f"{TREE}.split_conditions[2]: must be finite float32 at a leaf"),
        ("split_conditions", 0, 10**400, f"{TREE}.split_conditions: holds an integer that does not fit"),
        ("split_conditions", 0, None, f"{TREE}.split_conditions[0]: must be a number, got None"),
        ("sum_hessian", 2, float("inf"), f"{TREE}.sum_hessian[2]: must be finite"),
        ("default_left", 0, 2, f"{TREE}.default_left[0]: must be between 0 and 1, got 2"),
    ],
)
def test_malformed_node_is_refused_by_place(key, index, value, place):
    document = document_of(stump())
    trees_of(document)[0][key][index] = value
    with pytest.raises(ModelFormatError) as error:
        from_document(document)
    assert str(error.value).startswith(place)


def test_cycle_apart_from_the_root_is_refused():
    document = document_of(random_model(3, n_rounds=1))
    tree = trees_of(document)[0]
    tree.update(document_of(stump())["learner"]["gradient_booster"]["model"]["trees"][0])
    tree["tree_param"]["num_nodes"] = "5"
    for key in tree:
        if isinstance(tree[key], list) and tree[key]:
            tree[key] += [tree[key][-1]] * 2
    tree |= {"left_children": [-1, 3, -1, 1, -1], "right_children": [-1, 4, -1, 2, -1], "parents": [2147483647, 3, 3, 1, 1]}
    with pytest.raises(ModelFormatError, match="4 of 5 nodes cannot be reached from the root, but num_deleted is 0"):
        from_document(document)


@pytest.mark.parametrize("infinity", [float("inf"), float("-inf"), 1e39])
def test_infinite_threshold_is_read(infinity):
    document = document_of(stump())
    trees_of(document)[0]["split_conditions"][0] = infinity
    assert from_document(document).trees[0].threshold[0] == np.sign(infinity) * np.inf


def set_in(document: dict, path: str, value: object) -> None:
    *keys, last = path.split(".")
    for key in keys:
        document = document[int(key) if isinstance(document, list) else key]
    document[last] = value


FOREST = "learner.gradient_booster.model"


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("version", [0, 90, 0], "version: must be XGBoost 1.0 or later"),
        ("learner.learner_model_param.num_feature", 1, "num_feature: must be a string, got an integer"),
        ("learner.learner_model_param.num_class", "-1", "num_class: must be an integer from 0 to"),
        ("learner.learner_model_param.num_class", "１", "num_class: must be an integer from 0 to"),
        ("learner.objective", {}, "learner.objective: has no 'name'"),
        ("learner.objective", {"name": "a", "p": 1}, "learner.objective.p: must be an object"),
        ("learner.attributes", {"a": 1}, "learner.attributes.a: must be a string"),
        ("learner.attributes", {"gpuboost.categories": "{"}, "gpuboost.categories: must be JSON"),
        ("learner.attributes", {"gpuboost.categories": '{"a":[[]]}'}, r"gpuboost.categories.a\[0\]: must be a plain value"),
        ("learner.feature_names", ["a", "b"], r"learner.feature_names: must have 1 entries \(num_feature\) or none, got 2"),
        ("learner.feature_types", ["z"], r"learner.feature_types\[0\]: must be one of q, float, int, i, c"),
        ("learner.gradient_booster.name", "forest", "learner.gradient_booster.name: must be gbtree"),
        (f"{FOREST}.gbtree_model_param.num_trees", "2", r"trees: must have 2 entries \(num_trees\), got 1"),
        (f"{FOREST}.tree_info", [1], r"tree_info\[0\]: must be between 0 and 0, got 1"),
        (f"{FOREST}.tree_info", [], "tree_info: must have 1 entries, got 0"),
        (f"{FOREST}.iteration_indptr", [0], "iteration_indptr: must rise from 0 to 1"),
        (f"{FOREST}.iteration_indptr", [0, 1, 0, 1], "iteration_indptr: must rise from 0 to 1"),
        (f"{FOREST}.trees", [[]], r"learner.gradient_booster.model.trees\[0\]: must be an object, got an array"),
    ],
)
def test_malformed_document_is_refused_by_place(path, value, message):
    document = document_of(stump())
    set_in(document, path, value)
    with pytest.raises(ModelFormatError, match=message):
        from_document(document)


@pytest.mark.parametrize("document", [None, [], 1, {}, {"version": [3, 2, 0]}, {"version": [3, 2, 0], "learner": []}])
def test_document_that_is_no_model_is_refused(document):
    with pytest.raises(ModelFormatError):
        from_document(document)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("learner.gradient_booster", {"name": "gblinear", "model": {"weights": []}}, "gblinear"),
        ("learner.gradient_booster", {"name": "dart", "gbtree": {}, "weight_drop": []}, "dart"),
        (f"{FOREST}.trees.0.tree_param", {"num_nodes": "3", "size_leaf_vector": "3", "num_deleted": "0"}, "vector leaves"),
        (f"{FOREST}.trees.0.split_type", [1, 0, 0], "categorical splits"),
        (f"{FOREST}.cats", {"enc": [{"offsets": [], "values": []}]}, "container of category names"),
    ],
)
def test_what_is_not_built_yet_says_so(path, value, message):
    document = document_of(stump())
    set_in(document, path, value)
    with pytest.raises(NotImplementedError, match=message):
        from_document(document)


NUMBERS = [0, 1, -1, 2**31, 10**30, 0.5, float("nan"), float("inf"), 1e39]
JUNK = [*NUMBERS, None, True, False, "", "1", "-1", "abc", [], {}, [0], [[]]]


def mutate(document: object, chance: random.Random) -> None:
    """Replace, remove, repeat or swap one random value somewhere in the document."""
    while True:
        keys = list(document) if isinstance(document, dict) else list(range(len(document)))
        key = chance.choice(keys)
        inner = document[key]
        if isinstance(inner, (dict, list)) and inner and chance.random() < 0.85:
            document = inner
            continue
        action = chance.randrange(4)
        if action == 0:
            del document[key]
        elif action == 1 and isinstance(document, list):
            document.append(copy.deepcopy(inner))
        elif action == 2:
            document[key] = copy.deepcopy(document[chance.choice(keys)])
        else:
            document[key] = copy.deepcopy(chance.choice(JUNK))
        return


@pytest.mark.parametrize("seed", range(10))
def test_mutated_document_is_refused_or_read_as_a_sound_model(seed):
    model = random_model(seed, n_rounds=2, objective="multi:softprob" if seed % 2 else "binary:logistic")
    model.categories, model.feature_names = {"a": [1]}, list("abcd")
    original, chance, n_refused = dumps(model), random.Random(seed), 0
    for _ in range(100):
        document = json.loads(original)
        for _ in range(chance.randrange(1, 4)):
            mutate(document, chance)
        try:
            again = from_document(document)
        except (ModelFormatError, NotImplementedError):
            n_refused += 1
            continue
        assert dumps(from_document(to_document(again))) == dumps(again)
        for tree in again.trees:
            n_visits, stack = 0, [0]
            while stack:
                node = stack.pop()
                n_visits += 1
                if tree.left_child[node] != -1:
                    assert tree.feature[node] < again.n_features
                    stack += [tree.left_child[node], tree.left_child[node] + 1]
            assert n_visits == tree.n_nodes
    assert 20 < n_refused < 100  # some changes, of a gain for example, leave a model sound
