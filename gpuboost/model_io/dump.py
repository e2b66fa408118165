"""Trees, or linear weights, as text, JSON or Graphviz's DOT for people to read, laid out as XGBoost's ``Booster.get_dump`` lays
them out.

A split of categories whose names the model knows says them, where XGBoost shows codes: ``kind in {red, green}``.
"""

import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from gpuboost.model.linear import Linear
from gpuboost.model.model import Model
from gpuboost.model.tree import Tree
from gpuboost.paths import as_path

__all__ = [
    "branches", "category_names", "category_sides", "dump_trees", "dumped_nodes", "join_dump", "name_of_column", "node_label",
    "read_feature_map",
]  # fmt: skip

FEATURE_MAP_TYPES = ("i", "q", "int", "float", "c")
SHOWN_CATEGORIES = 6  # of a split, where it is not JSON; then how many more there are


def dump_trees(
    model: Model,
    dump_format: str = "text",
    with_stats: bool = False,
    feature_names: Sequence[str] | None = None,
    feature_types: Sequence[str] | None = None,
) -> list[str]:
    """One string a tree, or one of the biases and weights of gblinear, which has no "dot".

    dump_format : "text", "json" or "dot"; "dot:{...}" with a JSON object in XGBoost's form gives the drawing a style:
        graph_attrs, condition_node_params and leaf_node_params hold DOT attributes, edge holds yes_color (of the branch that
        missing values take) and no_color.
    with_stats adds the gain and cover of every node. feature_names and feature_types stand in for the model's own; without
    either, columns are f0, f1, ... Columns of type "i" (indicator) show no threshold, those of type "int" a whole one, and those
    of categories the ones that answer yes: all in JSON, a few where many would be read, and the others ("not in") where those
    are fewer.
    Else the text equals XGBoost's, save that it indents the splits of indicators too.

    Raises ValueError for an unknown format or style, or a wrong number of names.
    """
    dump_format, _, style = dump_format.partition(":")
    if dump_format not in ("text", "json", "dot") or (style and dump_format != "dot"):
        raise ValueError(f"dump_format must be 'text', 'json' or 'dot', got {dump_format!r}. Use 'text' to read it yourself.")
    if model.linear is not None:
        return [_dump_linear(model.linear, dump_format)]
    trees = (dumped_nodes(model, tree, feature_names, feature_types) for tree in model.trees)
    if dump_format == "dot":
        drawn = _style(style)
        return [_dump_dot(nodes, with_stats, drawn) for nodes in trees]
    dump = _dump_text if dump_format == "text" else _dump_json
    return [dump(nodes, with_stats) for nodes in trees]


def _dump_linear(linear: Linear, dump_format: str) -> str:
    """Biases and then weights, column by column those of all outputs."""
    texts = [f"{value:.6g}" for value in linear.weights.reshape(-1)]
    n_outputs = linear.weights.shape[1]
    weights, biases = texts[:-n_outputs], texts[-n_outputs:]
    if dump_format == "dot":
        raise ValueError("dump_format must be 'text' or 'json' for booster='gblinear', which has no trees to draw, got 'dot'.")
    if dump_format == "text":
        return "".join(f"{text}\n" for text in ["bias:", *biases, "weight:", *weights])
    rows = (",\n".join(f"      {text}" for text in part) for part in (biases, weights))
    return '  {{ "bias": [\n{}\n    ],\n    "weight": [\n{}\n    ]\n  }}'.format(*rows)


def node_label(node: dict[str, Any], with_stats: bool) -> str:
    """What a picture writes into a node of dumped_nodes."""
    label = f"leaf={node['leaf']}" if "leaf" in node else node["label"]
    return label + "".join(f"\n{key}={node[key]}" for key in ("gain", "cover") if with_stats and key in node)


def branches(node: dict[str, Any]) -> Iterator[tuple[int, str, bool]]:
    """Of a node of dumped_nodes: each child, what a picture writes beside its branch, and whether missing values take it."""
    for child, answer in zip(node.get("children", ()), node.get("answers", ())):
        is_missing = child == node["missing"]
        yield child, answer + (", missing" if is_missing else ""), is_missing


def category_names(model: Model, feature: int) -> list[Any] | None:
    """The categories of a column in the order of their codes; None where the model knows none."""
    return model.categories.get(model.feature_names[feature]) if model.categories and model.feature_names else None


def category_sides(model: Model, tree: Tree) -> Callable[[int], tuple[list[Any] | None, list[Any]] | None]:
    """Of a split: the categories that go left (None where the model does not know them all) and those that go right, by name
    where it has one; None at a split of numbers."""
    sets = {node: categories.tolist() for node, categories in tree.sets.items()} if tree.sets is not None else {}

    def sides(node: int) -> tuple[list[Any] | None, list[Any]] | None:
        names, chosen = category_names(model, tree.feature[node]), sets.get(node)
        if names is None:
            return None if chosen is None else (None, chosen)
        right = set(chosen) if chosen is not None else {c for c in range(len(names)) if not c < tree.threshold[node]}
        return [x for c, x in enumerate(names) if c not in right], [x for c, x in enumerate(names) if c in right]

    return sides


def name_of_column(model: Model, names: Sequence[str] | None = None) -> Callable[[int], str]:
    """The function from a column's number to its name: one of ``names``, else the model's, else f0, f1, ... No list of the
    latter is made, as a file may claim any number of columns. Raises ValueError for a wrong number of names."""
    names = names if names is not None else model.feature_names
    _check_length("feature_names", names, model)
    return "f{}".format if names is None else names.__getitem__


def _check_length(label: str, values: Sequence[str] | None, model: Model) -> None:
    if values is not None and len(values) != model.n_features:
        raise ValueError(f"{label} must have one entry for each of {model.n_features} features, got {len(values)}.")


def join_dump(trees: Sequence[str], dump_format: str) -> str:
    """All dumped trees as the text of one file: of JSON an array, of DOT graph after graph, else with a heading each."""
    if dump_format == "json":
        return "[\n" + ",\n".join(trees) + "\n]"
    if dump_format.startswith("dot"):
        return "\n".join(trees)
    return "".join(f"booster[{i}]:\n{tree}" for i, tree in enumerate(trees))


def read_feature_map(path: str | os.PathLike[str]) -> tuple[list[str] | None, list[str] | None]:
    """Names and types of the columns from XGBoost's feature map file: a line ``number name type`` for each. None for an
    empty path, which stands for the model's own.

    Raises ValueError naming the line that does not fit, OSError where the file cannot be read.
    """
    if not path:
        return None, None
    path = as_path("fmap", path)
    names, types = [], []
    for i, line in enumerate(filter(str.strip, Path(path).read_text(encoding="utf-8").splitlines())):
        words = line.split()
        if len(words) != 3 or words[0] != str(i) or words[2] not in FEATURE_MAP_TYPES:
            raise ValueError(
                f"line {i + 1} of feature map {path} must be '{i} name type' with a type among "
                f"{', '.join(FEATURE_MAP_TYPES)}, got {line.strip()!r:.60}. Number the columns from 0, without spaces in names."
            )
        names.append(words[1])
        types.append(words[2])
    return names, types


def _number(value: float) -> str:
    return f"{value:.9g}"  # nine digits tell any two float32 apart


def dumped_nodes(
    model: Model, tree: Tree, feature_names: Sequence[str] | None = None, feature_types: Sequence[str] | None = None,
    number: Callable[[float], str] = _number, has_indicators: bool = True,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """The nodes of a tree in preorder, each with what the formats print of it: numbers as text, names escaped as in JSON.

    number : how numbers are written. has_indicators : False shows the thresholds of columns of type "i", too:
    without one, as in XGBoost, yes is where missing values do not go, which of stored zeros and ones may be either.
    Raises ValueError for a wrong number of names or types.
    """
    types = feature_types if feature_types is not None else model.feature_types
    _check_length("feature_types", types, model)
    name_of, sides_of = name_of_column(model, feature_names), category_sides(model, tree)
    left_child, feature, default_left = tree.left_child.tolist(), tree.feature.tolist(), tree.default_left.tolist()
    threshold, values = tree.threshold.tolist(), tree.leaf_value.reshape(tree.n_nodes, -1)
    gain, cover = tree.gain.tolist(), tree.cover.tolist()
    stack = [(0, 0)]
    while stack:
        node, depth = stack.pop()
        left = left_child[node]
        if left == -1:
            leaf = ", ".join(map(number, values[node].tolist()))
            leaf = leaf if tree.leaf_size == 1 else f"[{leaf}]"
            yield {"nodeid": node, "depth": depth, "leaf": leaf, "cover": number(cover[node])}
            continue
        stack += [(left + 1, depth + 1), (left, depth + 1)]
        name, x = json.dumps(name_of(feature[node]), ensure_ascii=False)[1:-1], threshold[node]
        missing = left if default_left[node] else left + 1
        yes, no, kind = left, left + 1, types[feature[node]] if types is not None else "q"
        answers = "yes", "no"
        if (sides := sides_of(node)) is not None:
            to_left, to_right = sides
            if to_left is None:  # yes is where the set goes
                yes, no, answers = no, yes, ("no", "yes")
                condition, text = json.dumps(to_right), f"{name}:{{{','.join(map(str, to_right))}}}"
            else:
                condition, text = json.dumps(to_left, ensure_ascii=False), f"{name} {_named(to_left, to_right)}"
            label = text
        elif kind == "i" and has_indicators:  # an indicator is either present (yes) or missing (no); it has no third way
            yes, no, condition, text, label = 2 * left + 1 - missing, missing, None, name, name
        else:
            is_whole = kind == "int" and math.isfinite(x)  # x < 2.5 is x < 3 for integers
            condition = str(math.ceil(x)) if is_whole else number(x)
            text, label = f"{name}<{condition}", f"{name}<{number(x)}"
        yield {
            "nodeid": node,
            "depth": depth,
            "split": name,
            "condition": condition,  # as JSON; None for an indicator
            "text": text,
            "label": label,
            "yes": yes,
            "no": no,
            "missing": missing,
            "gain": number(gain[node]),
            "cover": number(cover[node]),
            "children": (left, left + 1),
            "answers": answers,  # which the children are to the label
        }


def _named(left: list[Any], right: list[Any]) -> str:
    """The side of a split with fewer categories, by name, as what the left ones are in or not in."""
    word, values = ("not in", right) if 0 < len(right) < len(left) else ("in", left)
    names = [json.dumps(str(value), ensure_ascii=False)[1:-1] for value in values[:SHOWN_CATEGORIES]]
    names += [f"{len(values) - SHOWN_CATEGORIES} more"] * (len(values) > SHOWN_CATEGORIES)
    return f"{word} {{{', '.join(names)}}}"


def _dump_text(nodes: Iterator[dict[str, Any]], with_stats: bool) -> str:
    lines = []
    for node in nodes:
        line = "\t" * node["depth"] + f"{node['nodeid']}:"
        if "leaf" in node:
            line += f"leaf={node['leaf']}"
            stats = f",cover={node['cover']}"
        else:
            is_indicator = node["condition"] is None
            line += f"[{node['text']}] yes={node['yes']},no={node['no']}"
            line += "" if is_indicator else f",missing={node['missing']}"
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


def _dump_dot(nodes: Iterator[dict[str, Any]], with_stats: bool, style: dict[str, dict[str, str]]) -> str:
    lines = ["digraph {", "    graph [ rankdir=TB ]"]
    if style["graph_attrs"]:
        lines.append(f"    graph [ {_attributes(style['graph_attrs'])}]")
    lines.append("")
    for node in nodes:
        attributes = _attributes(style["leaf_node_params" if "leaf" in node else "condition_node_params"])
        lines.append(f'    {node["nodeid"]} [ label="{node_label(node, with_stats)}" {attributes}]')
        for child, answer, is_missing in branches(node):
            color = style["edge"]["yes_color" if is_missing else "no_color"]
            lines.append(f'    {node["nodeid"]} -> {child} [label="{answer}" color="{color}"]')
        lines.append("")
    return "\n".join(lines[:-1]) + "\n}"


def _style(text: str) -> dict[str, dict[str, str]]:
    """The style after "dot:", with XGBoost's colours for what it leaves open."""
    style: dict[str, Any] = {"graph_attrs": {}, "condition_node_params": {}, "leaf_node_params": {}, "edge": {}}
    try:
        given = json.loads(text or "{}")
        style |= {part: dict(attributes) for part, attributes in given.items()}
    except (ValueError, TypeError, AttributeError):
        raise ValueError(f"the style after 'dot:' must be a JSON object of objects, got {text!r:.60}.") from None
    if unknown := given.keys() - {"graph_attrs", "condition_node_params", "leaf_node_params", "edge"}:
        raise ValueError(f"the style after 'dot:' has no part {unknown.pop()!r}. Use graph_attrs for attributes of the graph.")
    style["edge"] = {"yes_color": "#0000FF", "no_color": "#FF0000"} | style["edge"]
    return style


def _attributes(values: dict[str, str]) -> str:
    return "".join(f'{key}="{value}" ' for key, value in values.items())


def _members(fields: dict[str, Any]) -> str:
    infinities = {"inf": "Infinity", "-inf": "-Infinity"}  # as Python's json reads them
    return ", ".join(f'"{key}": {infinities.get(value, value)}' for key, value in fields.items())
