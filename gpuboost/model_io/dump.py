"""Trees as text or JSON for people to read, laid out as XGBoost's ``Booster.get_dump`` lays them out."""

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gpuboost.errors import not_built
from gpuboost.tree.model import Model
from gpuboost.tree.tree import Tree

__all__ = ["dump_trees"]


def dump_trees(
    model: Model,
    dump_format: str = "text",
    with_stats: bool = False,
    feature_names: Sequence[str] | None = None,
    feature_types: Sequence[str] | None = None,
) -> list[str]:
    """One string a tree.

    with_stats adds the gain and cover of every node. feature_names and feature_types stand in for the model's own; without
    either, columns are f0, f1, ... Columns of type "i" (indicator) show no threshold, those of type "int" a whole one.
    The text equals XGBoost's, save that it indents the splits of indicators too.

    Raises ValueError for an unknown format or a wrong number of names, NotImplementedError for "dot".
    """
    if dump_format == "dot":
        raise not_built("dump_format='dot'", "Use 'text' or 'json'.")
    if dump_format not in ("text", "json"):
        raise ValueError(f"dump_format must be 'text', 'json' or 'dot', got {dump_format!r}. Use 'text' to read it yourself.")
    names = feature_names if feature_names is not None else model.feature_names
    types = feature_types if feature_types is not None else model.feature_types
    for label, values in (("feature_names", names), ("feature_types", types)):
        if values is not None and len(values) != model.n_features:
            raise ValueError(f"{label} must have one entry for each of {model.n_features} features, got {len(values)}.")
    names = names if names is not None else [f"f{i}" for i in range(model.n_features)]
    types = types if types is not None else ["q"] * model.n_features
    dump = _dump_text if dump_format == "text" else _dump_json
    return [dump(_nodes(tree, names, types), with_stats) for tree in model.trees]


def _nodes(tree: Tree, names: Sequence[str], types: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The nodes in preorder, each with what the formats print of it: numbers as text, names escaped as in JSON."""
    names = [json.dumps(name, ensure_ascii=False)[1:-1] for name in names]
    left_child, feature, default_left = tree.left_child.tolist(), tree.feature.tolist(), tree.default_left.tolist()
    threshold, leaf_value, gain = tree.threshold.tolist(), tree.leaf_value.tolist(), tree.gain.tolist()
    cover = tree.cover.astype(np.float32).tolist()
    stack = [(0, 0)]
    while stack:
        node, depth = stack.pop()
        left = left_child[node]
        if left == -1:
            yield {"nodeid": node, "depth": depth, "leaf": _number(leaf_value[node]), "cover": _number(cover[node])}
            continue
        stack += [(left + 1, depth + 1), (left, depth + 1)]
        kind = types[feature[node]]
        missing = left if default_left[node] else left + 1
        # An indicator is either present (yes) or missing (no); it has no third way.
        yes, no = (left, left + 1) if kind != "i" else (2 * left + 1 - missing, missing)
        is_whole = kind == "int" and math.isfinite(threshold[node])  # x < 2.5 is x < 3 for integers
        yield {
            "nodeid": node,
            "depth": depth,
            "split": names[feature[node]],
            "condition": None if kind == "i" else str(math.ceil(threshold[node])) if is_whole else _number(threshold[node]),
            "yes": yes,
            "no": no,
            "missing": missing,
            "gain": _number(gain[node]),
            "cover": _number(cover[node]),
            "children": (left, left + 1),
        }


def _number(value: float) -> str:
    return f"{value:.9g}"  # nine digits tell any two float32 apart


def _dump_text(nodes: Iterator[dict[str, Any]], with_stats: bool) -> str:
    lines = []
    for node in nodes:
        line = "\t" * node["depth"] + f"{node['nodeid']}:"
        if "leaf" in node:
            line += f"leaf={node['leaf']}"
            stats = f",cover={node['cover']}"
        else:
            is_indicator = node["condition"] is None
            line += f"[{node['split']}]" if is_indicator else f"[{node['split']}<{node['condition']}]"
            line += f" yes={node['yes']},no={node['no']}" + ("" if is_indicator else f",missing={node['missing']}")
            stats = f",gain={node['gain']},cover={node['cover']}"
        lines.append(line + (stats if with_stats else "") + "\n")
    return "".join(lines)


def _dump_json(nodes: Iterator[dict[str, Any]], with_stats: bool) -> str:
    texts: dict[int, str] = {}  # finished subtrees: reversed preorder meets children before their parent
    for node in reversed(list(nodes)):
        indent = "  " * (node["depth"] + 1)
        fields = {"nodeid": node["nodeid"]}
        if "leaf" in node:
            fields["leaf"] = node["leaf"]
        else:
            fields |= {"depth": node["depth"], "split": f'"{node["split"]}"'}
            if node["condition"] is not None:
                fields["split_condition"] = node["condition"]
            fields |= {"yes": node["yes"], "no": node["no"]}
            if node["condition"] is not None:
                fields["missing"] = node["missing"]
        text = indent + "{ " + _members(fields)
        if with_stats:
            text += " , " + _members({key: node[key] for key in ("gain", "cover") if key in node})
        if "leaf" in node:
            text += " }"
        else:
            left, right = (texts.pop(child) for child in node["children"])
            text += ("" if with_stats else " ") + f', "children": [\n{left}, \n{right}\n{indent}]}}'
        texts[node["nodeid"]] = text
    return texts[0]


def _members(fields: dict[str, Any]) -> str:
    infinities = {"inf": "Infinity", "-inf": "-Infinity"}  # as Python's json reads them
    return ", ".join(f'"{key}": {infinities.get(value, value)}' for key, value in fields.items())
