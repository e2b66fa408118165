"""Model files with something wrong in them, each made from a seed and a number, and what loading one must come to.

    python mutations.py --count 10000 --seed 0        (or --seconds 3600)

runs under a limit of memory and, for each file, of time, and exits with status 1 at the first file that breaks a promise.
"""

import argparse
import copy
import faulthandler
import json
import random
import resource
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from random_models import random_model

from gpuboost import Booster, DMatrix
from gpuboost.errors import ModelFormatError
from gpuboost.model_io import dumps

FORMATS = ("json", "ubj")
LENGTHS = (-(2**63), -1, 0, 1, 2, 3, 5, 255, 2**31, 2**60, 2**63 - 1)
NUMBERS = (0, 1, -1, 2, 255, 2**31, 2**63, 10**30, 0.5, -0.0, float("nan"), float("inf"), 1e39, 1e308)
TEXTS = ("", "0", "1", "-1", "2", "3", "200000000", "2147483647", "5E-1", "[5E-1]", "[0.5,0.5,0.5]", "1E400", "NaN", "{}", "x")
JUNK = (*NUMBERS, *TEXTS, None, True, False, [], {}, [0], [[]], {"": 0})
FILE_SECONDS = 20  # for one small file; it takes milliseconds
MEMORY_BYTES = 1 << 30  # more than the process has taken before the first file


class Members(list):
    """(name, value) pairs of an object in which a name may come twice."""


# --- Files before anything is wrong ---


@cache
def _originals() -> list[str]:
    documents = []
    for seed, objective in enumerate(("reg:squarederror", "binary:logistic", "multi:softprob", "multi:softmax")):
        model = random_model(seed, n_rounds=2, objective=objective)
        if seed % 2:
            model.feature_names, model.feature_types = ["a", 'b"\\', "é 中", "d"], ["q", "int", "i", "float"]
            model.categories, model.attributes = {"a": ["red", 1, None]}, {"best_iteration": "1", "note": "[{"}
        documents.append(json.loads(dumps(model)))
    documents.append(json.loads(dumps(random_model(4, n_rounds=2, has_sets=True))))
    dart, linear = copy.deepcopy(documents[0]), copy.deepcopy(documents[1])
    learner = dart["learner"]
    learner["gradient_booster"] = {"name": "dart", "gbtree": learner["gradient_booster"], "weight_drop": [0.5, 1.0]}
    linear["learner"]["gradient_booster"] = {"name": "gblinear", "model": {"boosted_rounds": 3, "weights": [0.5] * 5}}
    return [json.dumps(document) for document in (*documents, dart, linear)]


def original(chance: random.Random, *, has_trees: bool = False) -> dict[str, Any]:
    """A valid document: a DART booster now and then and, unless it is to have trees, a linear one."""
    return json.loads(chance.choice(_originals()[:-1] if has_trees else _originals()))


def forest_of(document: dict[str, Any]) -> dict[str, Any]:
    booster = document["learner"]["gradient_booster"]
    return booster.get("gbtree", booster)["model"]


def trees_of(document: dict[str, Any]) -> list[dict[str, Any]]:
    return forest_of(document)["trees"]


# --- Bytes of any document, malformed ones too ---


def encode(value: Any, raw_format: str) -> bytes:
    """A document with anything in it as bytes."""
    if raw_format == "ubj":
        return _ubjson(value)
    return _json(value).encode("utf-8", "surrogatepass")


def _json(value: Any) -> str:
    if isinstance(value, (dict, Members)):
        pairs = value.items() if isinstance(value, dict) else value
        return "{" + ",".join(f"{json.dumps(key)}:{_json(member)}" for key, member in pairs) + "}"
    return "[" + ",".join(map(_json, value)) + "]" if isinstance(value, list) else json.dumps(value)


def _ubjson(value: Any) -> bytes:
    if isinstance(value, (dict, Members)):
        pairs = value.items() if isinstance(value, dict) else value
        return b"{" + b"".join(_ubjson(key)[1:] + _ubjson(member) for key, member in pairs) + b"}"
    if isinstance(value, list):
        kinds = set(map(type, value))
        if kinds == {float}:
            return b"[$D#" + _length(len(value)) + struct.pack(f">{len(value)}d", *value)
        if kinds == {int} and all(-(2**31) <= item < 2**31 for item in value):
            return b"[$l#" + _length(len(value)) + struct.pack(f">{len(value)}i", *value)
        return b"[#" + _length(len(value)) + b"".join(map(_ubjson, value))
    if isinstance(value, str):
        data = value.encode("utf-8", "surrogatepass")
        return b"S" + _length(len(data)) + data
    if value is None or isinstance(value, bool):
        return {None: b"Z", True: b"T", False: b"F"}[value]
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return b"L" + struct.pack(">q", value)
    return b"D" + struct.pack(">d", value)


def _length(n: int) -> bytes:
    return b"L" + struct.pack(">q", n)


# --- Structural faults: every one of these must be refused ---


def _split_tree(document: dict[str, Any], chance: random.Random) -> tuple[dict[str, Any], list[int]]:
    """A tree with a split, and the numbers of its splits."""
    trees = [tree for tree in trees_of(document) if tree["left_children"][0] != -1]
    tree = chance.choice(trees)
    return tree, [node for node, left in enumerate(tree["left_children"]) if left != -1]


def children_swapped(document, chance):
    tree, splits = _split_tree(document, chance)
    left, right, node = tree["left_children"], tree["right_children"], chance.choice(splits)
    left[node], right[node] = right[node], left[node]


def cycle(document, chance):
    """A node's child is the node itself or one above it."""
    tree, splits = _split_tree(document, chance)
    node = above = chance.choice(splits)
    while above and chance.random() < 0.5:
        above = tree["parents"][above]
    tree[chance.choice(("left_children", "right_children"))][node] = above


def unreachable(document, chance):
    """A split becomes a leaf, so its children hang from nothing."""
    tree, splits = _split_tree(document, chance)
    node = chance.choice(splits)
    tree["left_children"][node] = tree["right_children"][node] = -1


def island(document, chance):
    """Two new nodes that are each other's parent's children, apart from the root."""
    tree, _ = _split_tree(document, chance)
    n_nodes = len(tree["left_children"])
    for value in tree.values():
        if isinstance(value, list) and len(value) == n_nodes:
            value.extend([value[-1]] * 3)
    for key, values in {
        "left_children": [n_nodes + 1, -1, -1],
        "right_children": [n_nodes + 2, -1, -1],
        "parents": [n_nodes + 1, n_nodes, n_nodes],
    }.items():
        tree[key][-3:] = values
    tree["tree_param"]["num_nodes"] = str(n_nodes + 3)


def child_of_two(document, chance):
    tree, splits = _split_tree(document, chance)
    node = chance.choice(splits)
    tree["left_children"][node] = tree["right_children"][node]


def child_out_of_range(document, chance):
    tree, splits = _split_tree(document, chance)
    side, bad = chance.choice(("left_children", "right_children")), chance.choice((-2, len(tree["parents"]), 2**31, -(2**31)))
    tree[side][chance.choice(splits)] = bad


def wrong_parent(document, chance):
    tree, _ = _split_tree(document, chance)
    node = chance.randrange(1, len(tree["parents"]))
    tree["parents"][node] = chance.choice(
        [n for n in (*range(-1, len(tree["parents"])), 2**31 - 1) if n != tree["parents"][node]]
    )


def feature_out_of_range(document, chance):
    tree, splits = _split_tree(document, chance)
    tree["split_indices"][chance.choice(splits)] = chance.choice((4, 5, -1, 2**31 - 1, 2**31, 2**32))


NODE_ARRAYS = (
    "loss_changes", "sum_hessian", "base_weights", "left_children", "right_children", "parents", "split_indices",
    "split_conditions", "default_left", "split_type",
)  # fmt: skip


def wrong_length(document, chance):
    array = chance.choice(trees_of(document))[chance.choice(NODE_ARRAYS)]
    if chance.random() < 0.5:
        array.pop()
    else:
        array.append(array[-1])


def wrong_count(document, chance):
    """Of nodes, of deleted nodes, of trees."""
    tree = chance.choice(trees_of(document))
    params, key = chance.choice(
        [
            (tree["tree_param"], "num_nodes"),
            (tree["tree_param"], "num_deleted"),
            (forest_of(document)["gbtree_model_param"], "num_trees"),
        ]
    )
    params[key] = chance.choice([str(int(params[key]) + 1), str(int(params[key]) - 1), "2147483647", "-1"])


def wrong_output(document, chance):
    groups = forest_of(document)["tree_info"]
    groups[chance.randrange(len(groups))] = chance.choice((-1, 3, 255, 2**31, 2**40))


def wrong_rounds(document, chance):
    bounds = forest_of(document)["iteration_indptr"]
    bounds[:] = chance.choice(
        [[], bounds[:-1], bounds[::-1], bounds[1:], [*bounds, bounds[-1] + 1], [*bounds, 0], [0, -1, bounds[-1]]]
    )


def trees_renumbered(document, chance):
    one, other = chance.sample(trees_of(document), 2)
    one["id"], other["id"] = other["id"], one["id"]


def not_finite(document, chance):
    """A threshold, a leaf, a cover, ... that is no finite number of 32 bits; not of a set, which has no threshold."""
    tree, key = chance.choice(trees_of(document)), chance.choice(("split_conditions", "base_weights", "loss_changes"))
    not_read = set(tree["categories_nodes"]) if key == "split_conditions" else set()
    places = [node for node in range(len(tree[key])) if node not in not_read]
    tree[key][chance.choice(places)] = chance.choice((float("nan"), float("inf"), -float("inf"), 1e39))


STRUCTURAL: dict[str, Callable[[dict[str, Any], random.Random], None]] = {
    function.__name__: function
    for function in (
        children_swapped, cycle, unreachable, island, child_of_two, child_out_of_range, wrong_parent, feature_out_of_range,
        wrong_length, wrong_count, wrong_output, wrong_rounds, trees_renumbered, not_finite,
    )
}  # fmt: skip


# --- Any faults: of the document, then of its bytes ---


def change_document(document: dict[str, Any], chance: random.Random) -> None:
    """Replace, remove, repeat or swap one random value, or bury it in brackets."""
    inside: Any = document
    while True:
        keys = list(inside) if isinstance(inside, dict) else list(range(len(inside)))
        key = chance.choice(keys)
        value = inside[key]
        if isinstance(value, (dict, list)) and not isinstance(value, Members) and value and chance.random() < 0.85:
            inside = value
            continue
        action = chance.randrange(7)
        if action == 0:
            del inside[key]
        elif action == 1 and isinstance(inside, list):
            inside.append(copy.deepcopy(value))
        elif action == 2:
            inside[key] = copy.deepcopy(inside[chance.choice(keys)])
        elif action == 3:
            for _ in range(chance.choice((1, 2, 30, 70))):  # change_bytes nests deeper than these encoders could
                value = [value] if chance.random() < 0.5 else {"a": value}
            inside[key] = value
        elif action == 4 and isinstance(value, dict) and value:
            pairs = list(value.items())
            inside[key] = Members([*pairs, chance.choice(pairs)])
        elif action == 5 and type(value) in (int, float):
            inside[key] = chance.choice((value + 1, value - 1, -value, value * 2, float(value), str(value)))
        else:
            inside[key] = copy.deepcopy(chance.choice(JUNK))
        return


def change_bytes(data: bytes, chance: random.Random) -> bytes:
    """Flip, insert, remove, repeat or cut some bytes; give a length of UBJSON another value."""
    at = chance.randrange(len(data))
    span = data[at : at + chance.choice((1, 1, 2, 8, 9, 40))]
    action = chance.randrange(7)
    if action == 0:
        return data[:at]
    if action == 1:
        return data[:at] + data[at + len(span) :]
    if action == 2:
        return data[:at] + span + data[at:]
    if action == 3:
        return data[:at] + chance.randbytes(len(span)) + data[at + len(span) :]
    if action == 4:
        return data[:at] + chance.choice((b"[" * 100000, b'{"a":' * 50000, b"9" * 5000, b"\xff", b"\x00", b"NaN")) + data[at:]
    found = data.find(b"L\x00", at)
    if action == 5 and found != -1:
        return data[: found + 1] + struct.pack(">q", chance.choice(LENGTHS)) + data[found + 9 :]
    return data[:at] + bytes([data[at] ^ (1 << chance.randrange(8))]) + data[at + 1 :]


def mutant(seed: int, number: int) -> tuple[str, bytes]:
    """(what was done, the file). "structural ..." must be refused."""
    chance = random.Random(f"{seed} {number}")
    raw_format, kind = FORMATS[number % 2], chance.randrange(4)
    document = original(chance, has_trees=kind == 0)
    if kind == 0:
        name = chance.choice(list(STRUCTURAL))
        STRUCTURAL[name](document, chance)
        return f"structural {name} {raw_format}", encode(document, raw_format)
    if kind == 1:
        data = encode(document, raw_format)
        for _ in range(chance.choice((1, 1, 2, 5))):
            data = change_bytes(data, chance) or b"{"
        return f"bytes {raw_format}", data
    for _ in range(chance.choice((1, 1, 2, 3))):
        change_document(document, chance)
        if not document:
            break
    return f"document {raw_format}", encode(document, raw_format)


# --- What loading must come to ---


def outcome(data: bytes) -> str:
    """ "refused", "not built" or "loaded": then the model predicts and its trees are sound. Any other error passes through."""
    booster = Booster({"device": "cpu", "nthread": 1})
    try:
        booster.load_model(data)
    except ModelFormatError as error:
        assert ": " in str(error), f"no place in {error}"
        return "refused"
    except NotImplementedError as error:
        assert "is not built yet" in str(error), error
        return "not built"
    model = booster.model
    for tree in model.trees:
        reached, stack = set(), [0]
        while stack:
            node = stack.pop()
            assert node not in reached, "a node is reached twice"
            reached.add(node)
            if tree.left_child[node] != -1:
                assert 0 <= tree.feature[node] < model.n_features
                assert tree.parent[tree.left_child[node]] == tree.parent[tree.left_child[node] + 1] == node
                stack += [int(tree.left_child[node]), int(tree.left_child[node]) + 1]
        assert len(reached) == tree.n_nodes
        arrays = [array for name, array in vars(tree).items() if name != "sets" and array is not None]
        assert all(len(array) == tree.n_nodes and np.isfinite(array).all() for array in arrays)
        assert tree.sets is None or (tree.left_child[tree.sets.nodes] != -1).all()
    if 0 < model.n_features <= 64:
        table = np.random.default_rng(0).normal(size=(5, model.n_features)).astype(np.float32)
        table[:, 0] = np.nan
        margins = booster.predict(DMatrix(table), output_margin=True, strict_shape=True)
        assert margins.shape == (5, model.n_outputs)
    Booster().load_model(dumps(model, FORMATS[len(data) % 2]))  # what was read can be written and read again
    return "loaded"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Load mutated model files until one breaks a promise.")
    parser.add_argument("--seconds", type=float, help="run this long")
    parser.add_argument("--count", type=int, help="or load this many files")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first file, to repeat one")
    options = parser.parse_args(arguments)
    if options.seconds is None and options.count is None:
        parser.error("give --seconds or --count")

    for text in _originals():  # compiles and loads whatever prediction needs, before memory is limited
        outcome(text.encode())
    with open("/proc/self/statm") as file:
        taken = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY_BYTES, resource.RLIM_INFINITY))

    counts: Counter[str] = Counter()
    begin, number = time.monotonic(), options.first
    while (options.count is None or number < options.first + options.count) and (
        options.seconds is None or time.monotonic() - begin < options.seconds
    ):
        kind, data = mutant(options.seed, number)
        faulthandler.dump_traceback_later(FILE_SECONDS, exit=True)
        print(f"\r{number} {kind:40}", end="", file=sys.stderr, flush=True)  # the last line names the file of a crash
        try:
            result = outcome(data)
            assert result == "refused" or not kind.startswith("structural"), "a structural fault was not refused"
        except BaseException:
            print(f"\nseed {options.seed}, file {number}: {kind}\n{data[:300]!r}", file=sys.stderr)
            raise
        finally:
            faulthandler.cancel_dump_traceback_later()
        counts[f"{kind}: {result}"] += 1
        number += 1
    print(json.dumps(dict(sorted(counts.items())), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
