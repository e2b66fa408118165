"""The document of a model: what is written, what is read back, and what is refused."""

import copy
import json

import numpy as np
import pytest
from random_models import random_model, random_tree

import gpuboost as gb
from gpuboost.errors import ModelFormatError
from gpuboost.model.model import Model
from gpuboost.model.tree import Tree
from gpuboost.model_io import dumps, from_document, load_model, to_document


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
        cover=np.array([10, 4, 6], np.float32),
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
        "base_score": "0.5",
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
            "base_weights": [1.0, -2.0, 3.0],
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
    model.categories = {"é 中": ["x", 'y"\\'], "a": [1, 2.5, None, True]} if seed % 2 else {}
    model.attributes = {"best_iteration": "3", "note": '{"a":"\\u00e9"}'}
    assert from_document(to_document(model)) == model
    assert from_document(document_of(model)) == model


@pytest.mark.parametrize("model", [Model(0, "reg:squarederror"), Model(3, "reg:squarederror", base_score=(2.0**-100,))])
def test_model_without_trees_is_read_back(model):
    assert from_document(document_of(model)) == model


def test_what_xgboost_before_3_writes_beside_sets_is_not_read():
    """NaN for the condition that a set stands for."""
    model = random_model(0, has_sets=True)
    document = document_of(model)
    for tree in trees_of(document):
        for node in tree["categories_nodes"]:
            tree["split_conditions"][node] = float("nan")
    read = from_document(document)
    assert load_model(json.dumps(document).encode()) == read
    for ours, theirs in zip(read.trees, model.trees):
        assert ours.sets == theirs.sets
        np.testing.assert_array_equal(ours.leaf_value, theirs.leaf_value)
    number = next(node for node, is_set in enumerate(tree["split_type"]) if not is_set)
    tree["split_conditions"][number] = float("nan")
    with pytest.raises(ModelFormatError, match=rf"split_conditions\[{number}\]: must be finite"):
        from_document(document)


def test_vector_leaves_of_xgboost_before_3_2_have_no_gains():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(100, 2)), rng.normal(size=(100, 2))
    model = gb.train({"multi_strategy": "multi_output_tree", "max_depth": 2}, gb.DMatrix(x, y), 2).model
    document = document_of(model)
    for tree in trees_of(document):
        del tree["loss_changes"], tree["sum_hessian"]
        is_leaf = [child < 0 for child in tree["left_children"]]
        tree["split_conditions"] = [float("nan") if own else value for own, value in zip(is_leaf, tree["split_conditions"])]
    read = from_document(document)
    for ours, theirs in zip(read.trees, model.trees):
        np.testing.assert_array_equal(ours.leaf_value, theirs.leaf_value)
        assert not ours.gain.any() and not ours.cover.any()


def test_columns_of_arrays_have_the_dtypes_that_tree_documents():
    tree = random_tree(np.random.default_rng(0), 3, 9, has_sets=True)
    again = from_document(document_of(random_model(0, has_sets=True))).trees[0]
    arrays = {name: (array, getattr(again, name)) for name, array in vars(tree).items() if name not in ("sets", "searched_value")}
    arrays |= {name: (array, getattr(again.sets, name)) for name, array in vars(tree.sets).items()}
    for name, (array, read) in arrays.items():
        assert read.dtype == array.dtype, name


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
        ("0.25", 3, (0.25, 0.25, 0.25)),
        ("1e-300", 0, (0.0,)),
        ("[1.0124857E0,-6.414473E-2,-9.4834113E-1]", 3, (1.0124857, -0.06414473, -0.94834113)),
    ],
)
def test_base_score_is_read_in_every_form_of_xgboost(text, n_classes, expected):
    document = document_of(Model(1, "any", n_classes=n_classes))
    document["learner"]["learner_model_param"]["base_score"] = text
    assert from_document(document).base_score == tuple(np.float32(expected).tolist())


@pytest.mark.parametrize(
    ("scores", "text"),
    [
        ((0.5,), "0.5"), ((0.1,), "0.1"), ((float(np.float32(0.1)),) * 3, "0.1"), ((10.59666633605957,), "10.596666"),
        ((1e-9,), "1e-09"), ((3e30,), "3e+30"), ((0.25, 0.5, 0.1), "[0.25,0.5,0.1]"),
    ],
)  # fmt: skip
def test_base_score_is_written_as_one_number_where_it_is_one(scores, text):
    document = document_of(Model(1, "any", n_classes=3 if len(scores) > 1 else 0, base_score=scores))
    assert document["learner"]["learner_model_param"]["base_score"] == text
    assert from_document(document).base_score == tuple(np.float32(scores).tolist())


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


def test_deleted_nodes_keep_their_numbers_and_nothing_else():
    # 0 splits into 3 and 4, node 3 into 5 and 6; 1 and 2 were deleted by pruning.
    document = document_of(stump())
    trees_of(document)[0] |= {
        "tree_param": {"num_deleted": "2", "num_feature": "1", "num_nodes": "7", "size_leaf_vector": "1"},
        "left_children": [3, -1, -1, 5, -1, -1, -1],
        "right_children": [4, -1, -1, 6, -1, -1, -1],
        "parents": [2147483647, 0, 1, 0, 0, 3, 3],
        "split_indices": [0, 9, 2147483647, 0, 0, 2147483647, 0],
        "split_conditions": [0.5, 1.0, 9.0, -0.5, 4.0, 5.0, 6.0],
        "default_left": [True, True, False, True, False, False, False],
        "split_type": [0] * 7,
        **{key: [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0] for key in ("loss_changes", "sum_hessian", "base_weights")},
    }
    model = from_document(document)
    tree = model.trees[0]
    assert (tree.n_nodes, tree.n_deleted, tree.n_leaves) == (7, 2, 3)
    assert tree.left_child.tolist() == [3, -1, -1, 5, -1, -1, -1]
    assert tree.parent.tolist() == [-1, 0, 0, 0, 0, 3, 3]
    assert tree.feature.tolist() == [0, 2147483647, 2147483647, 0, 0, 0, 0]
    assert tree.threshold.tolist() == [0.5, 0, 0, -0.5, 0, 0, 0]
    assert tree.leaf_value.tolist() == [0, 0, 0, 0, 4, 5, 6]
    assert tree.default_left.tolist() == [1, 1, 1, 1, 0, 0, 0]
    assert tree.gain.tolist() == [0, 0, 0, 3, 0, 0, 0]
    assert tree.cover.tolist() == tree.weight.tolist() == [0, 0, 0, 3, 4, 5, 6]
    written = document_of(model)
    assert trees_of(written)[0]["tree_param"]["num_deleted"] == "2" and from_document(written) == model
    del trees_of(written)[0]["tree_param"]["num_deleted"]  # XGBoost 1.0 only marks them
    assert from_document(written) == model
    trees_of(written)[0]["split_indices"][1] = 0
    with pytest.raises(ModelFormatError, match="2 of 7 nodes cannot be reached from the root, but num_deleted is 1"):
        from_document(written)


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
        ("left_children", 1, 0, f"{TREE}.right_children[1]: must be -1 exactly where left_children is"),
        ("right_children", 0, -1, f"{TREE}.right_children[0]: must be -1 exactly where left_children is"),
        ("parents", 2, 1, f"{TREE}.right_children[0]: its child 2 has parent 1"),
        ("parents", 0, 1, f"{TREE}.parents[0]: must be 2147483647 at the root"),
        ("split_indices", 0, 1, f"{TREE}.split_indices[0]: must be below num_feature 1, got 1"),
        ("split_conditions", 0, float("nan"), f"{TREE}.split_conditions[0]: must be finite, got nan"),
        ("split_conditions", 1, float("inf"), f"{TREE}.split_conditions[1]: must be finite, got inf"),
        ("split_conditions", 2, 1e39, f"{TREE}.split_conditions[2]: must be finite in 32 bits, got 1e+39"),
        ("split_conditions", 0, 10**400, f"{TREE}.split_conditions: holds an integer that does not fit"),
        ("split_conditions", 0, None, f"{TREE}.split_conditions[0]: must be a number, got null"),
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


def test_children_in_another_order_are_refused():
    document = document_of(stump())
    trees_of(document)[0] |= {"left_children": [2, -1, -1], "right_children": [1, -1, -1]}
    with pytest.raises(ModelFormatError, match=r"right_children\[0\]: must be the left child 2 \+ 1, got 1"):
        from_document(document)


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
        ("learner.objective", {"name": ""}, "learner.objective.name: must not be empty"),
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
        (f"{FOREST}.trees.0.id", 1, r"trees\[0\].id: must be 0, the tree's place among the trees, got 1"),
        (f"{FOREST}.trees.0.id", False, r"trees\[0\].id: must be 0"),
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


CATEGORICAL = {
    "split_type": [1, 0, 0],
    "categories_nodes": [0],
    "categories_segments": [1],
    "categories_sizes": [2],
    "categories": [7, 0, 3],
}


def test_sets_of_categories_are_read_in_order_and_written_back():
    document = document_of(stump())
    trees_of(document)[0] |= CATEGORICAL
    model = from_document(document)
    sets = model.trees[0].sets
    assert [(node, categories.tolist()) for node, categories in sets.items()] == [(0, [0, 3])]
    written = json.loads(json.dumps(to_document(model), default=lambda array: array.tolist()))
    expected = CATEGORICAL | {"categories_segments": [0], "categories": [0, 3]}
    assert {key: trees_of(written)[0][key] for key in CATEGORICAL} == expected
    assert from_document(written) == model


def test_sets_that_overlap_in_the_file_are_refused():
    """Else a small file could ask for any amount of memory."""
    document = document_of(random_model(4, n_rounds=2, has_sets=True))
    tree = next(tree for tree in trees_of(document) if len(tree["categories_nodes"]) > 1)
    tree["categories_segments"] = [0] * len(tree["categories_nodes"])
    tree["categories_sizes"] = [len(tree["categories"])] * len(tree["categories_nodes"])
    with pytest.raises(ModelFormatError, match="categories_sizes: must add up to no more than"):
        from_document(document)


def test_a_leaf_has_no_set():
    document = document_of(stump())
    trees_of(document)[0] |= CATEGORICAL | {"split_type": [0, 1, 0], "categories_nodes": [1]}
    assert from_document(document).trees[0].sets is None


@pytest.mark.parametrize("entry, values", [
    ({"offsets": [0, 1, 3], "values": [120, -61, -87]}, ["x", "é"]),
    ({"type": 15, "values": [7, 10, -3]}, [7, 10, -3]),
])  # fmt: skip
def test_names_of_categories_in_xgboosts_container_are_read(entry, values):
    document = document_of(named_stump())
    columns = document["learner"]["feature_names"]
    nothing = {"offsets": [], "values": []}
    set_in(document, f"{FOREST}.cats", {"enc": [entry, *[nothing] * (len(columns) - 1)]})
    assert from_document(document).categories == {columns[0]: values}
    del document["learner"]["feature_names"]
    assert from_document(document).categories == {}


@pytest.mark.parametrize("entry, message", [
    ({"offsets": [0, 2], "values": [120]}, r"offsets\[1\]: must be between 0 and 1"),
    ({"offsets": [0, 1, 0], "values": [120]}, "offsets: must rise"),
    ({"offsets": [0, 1], "values": [-61]}, "values: must be UTF-8"),
    ({"offsets": [0, 1, 2], "values": [120, 120]}, "values: has a category twice"),
    ({"type": 15, "values": ["x"]}, r"values\[0\]: must be an integer"),
])  # fmt: skip
def test_a_container_that_does_not_fit_is_refused(entry, message):
    document = document_of(named_stump())
    set_in(document, f"{FOREST}.cats", {"enc": [entry] * len(document["learner"]["feature_names"])})
    with pytest.raises(ModelFormatError, match=message):
        from_document(document)
    set_in(document, f"{FOREST}.cats", {"enc": [entry] * 9})
    with pytest.raises(ModelFormatError, match="cats.enc: must have"):
        from_document(document)


def named_stump():
    model = stump()
    model.feature_names = [f"column {i}" for i in range(model.n_features)]
    return model


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("split_type", [0, 1, 0], "categories_nodes: must name the nodes whose split_type is 1"),
        ("split_type", [0, 0, 0], "categories_nodes: must have 0 entries, got 1"),
        ("categories_nodes", [1], "categories_nodes: must name the nodes whose split_type is 1"),
        ("categories_segments", [], "categories_segments: must have 1 entries, got 0"),
        ("categories_segments", [2], r"categories_segments\[0\]: must end within the 3 entries of categories"),
        ("categories_segments", [2**63 - 1], r"categories_segments\[0\]: must end within"),
        ("categories_sizes", [3], r"categories_segments\[0\]: must end within"),
        ("categories_sizes", [0], r"categories_sizes\[0\]: must be between 1 and"),
        ("categories_sizes", [2**63 - 1], r"categories_segments\[0\]: must end within"),
        ("categories", [-1, 0, 3], r"categories\[0\]: must be between 0 and"),
        ("categories", [7, 0, 2**24], r"categories\[2\]: must be between 0 and 16777215"),
    ],
)
def test_categories_that_do_not_fit_their_splits_are_refused(key, value, message):
    document = document_of(stump())
    trees_of(document)[0] |= {**CATEGORICAL, key: value}
    with pytest.raises(ModelFormatError, match=message):
        from_document(document)


def test_weights_of_dart_are_kept_beside_the_trees():
    document = document_of(stump())
    learner = document["learner"]
    learner["gradient_booster"] = {"name": "dart", "gbtree": learner["gradient_booster"], "weight_drop": [0.5]}
    model = from_document(document)
    assert (model.tree_weights, model.weighed_trees[0].leaf_value.tolist()) == ([0.5], [0, -1, 1.5])
    assert model.trees == from_document(document_of(stump())).trees
    assert to_document(model)["learner"]["gradient_booster"]["weight_drop"] == [0.5]
    newer = document_of(stump())  # XGBoost's since 3.4
    newer["learner"]["gradient_booster"]["model"]["weight_drop"] = [0.5]
    assert from_document(newer) == model
    for weights, message in (
        ([], "weight_drop: must have 1 entries, got 0"),
        ([1e39], r"weight_drop\[0\]: must be finite in 32 bits"),
        ([3e38], r"weight_drop\[0\]: must leave the leaves of its tree finite"),
    ):
        learner["gradient_booster"]["weight_drop"] = weights
        with pytest.raises(ModelFormatError, match=message):
            from_document(document)


@pytest.mark.parametrize(
    ("objective", "allowed", "refused", "message"),
    [
        ("binary:logistic", ["[0E0]", "1", "[1E-9]"], ["[1.5E0]", "-1E-9"], "must lie between 0 and 1 for binary:logistic"),
        ("count:poisson", ["[0E0]", "7"], ["-1E-9"], "must be at least 0 for count:poisson"),
    ],
)
def test_base_score_outside_the_range_of_its_objective_is_refused(objective, allowed, refused, message):
    document = document_of(Model(1, objective))
    for text in allowed:
        document["learner"]["learner_model_param"]["base_score"] = text
        assert from_document(document).base_score == (float(np.float32(text.strip("[]"))),)
    for text in refused:
        document["learner"]["learner_model_param"]["base_score"] = text
        with pytest.raises(ModelFormatError, match=f"base_score: {message}"):
            from_document(document)


@pytest.mark.parametrize("weight", ["0", "-1", "abc", "nan", "inf", "1e999", "", "1_0"])
def test_weight_of_positives_that_training_could_not_use_is_refused(weight):
    document = document_of(random_model(0, objective="binary:logistic"))
    document["learner"]["objective"]["reg_loss_param"]["scale_pos_weight"] = weight
    with pytest.raises(ModelFormatError, match="learner.objective.reg_loss_param.scale_pos_weight: must be a finite number"):
        from_document(document)


def test_number_of_outputs_is_bounded_by_what_the_file_shows():
    document = document_of(Model(1, "any"))
    for key in ("num_class", "num_target"):  # of an objective that gpuboost does not know
        changed = copy.deepcopy(document)
        changed["learner"]["learner_model_param"][key] = "200000000"
        with pytest.raises(ModelFormatError, match="learner_model_param: num_class .* is above 65536"):
            from_document(changed)
    large = Model(1, "multi:softprob", n_classes=70000, base_score=(0.0,) * 70000)
    assert from_document(document_of(large)).n_classes == 70000


def test_columns_and_categories_must_be_found_by_name():
    model = random_model(0)
    model.feature_names, model.categories = ["a", "b", "c", "d"], {"e": [1]}
    with pytest.raises(ModelFormatError, match="categories: 'e' is not among feature_names"):
        from_document(to_document(model))
    model.categories = {"a": [1, True, 1.0, 1]}
    with pytest.raises(ModelFormatError, match="categories: 'a' has a category twice"):
        from_document(to_document(model))
    model.categories, model.feature_names = {}, ["a", "b", "c", "b"]
    with pytest.raises(ModelFormatError, match=r"feature_names\[3\]: must differ from each other, got 'b' again"):
        from_document(to_document(model))


def test_linear_weights_are_one_for_each_column_and_output_and_a_bias():
    document = document_of(stump())
    n_features = int(document["learner"]["learner_model_param"]["num_feature"])
    for weights, rounds, message in (
        ([0.5] * n_features, 1, "weights: must have"),
        ([0.5] * n_features + ["x"], 1, "weights.* must be a number"),
        ([0.5] * n_features + [1e39], 1, "must be finite in 32 bits"),
        ([0.5] * (n_features + 1), -1, "boosted_rounds: must be an integer from 0 to 2147483647, got -1"),
        ([0.5] * (n_features + 1), True, "boosted_rounds: must be an integer"),
    ):
        linear = {"name": "gblinear", "model": {"weights": weights, "boosted_rounds": rounds}}
        set_in(document, "learner.gradient_booster", linear)
        with pytest.raises(ModelFormatError, match=message):
            from_document(document)
    linear["model"] = {"weights": [0.5] * (n_features + 1)}  # before XGBoost 1.6
    assert from_document(document).n_rounds == 0
