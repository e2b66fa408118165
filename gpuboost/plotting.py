"""Pictures of a model and of its training: bars of importance, trees, metrics over rounds.

matplotlib draws, Graphviz only where to_graphviz asks for it; both are optional: pip install 'gpuboost-trees[plot]'.
"""

import json
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from gpuboost.booster import Booster
from gpuboost.errors import from_other_library, install, kind_of
from gpuboost.model.model import Model
from gpuboost.model_io import dump_trees
from gpuboost.model_io.dump import branches, dumped_nodes, node_label, read_feature_map
from gpuboost.positional import also_by_position

__all__ = ["plot_importance", "plot_metric", "plot_tree", "to_graphviz"]

Axes = Any  # matplotlib.axes.Axes
MEASURES = {
    "weight": "splits", "gain": "mean gain", "cover": "mean cover", "total_gain": "total gain", "total_cover": "total cover",
}  # fmt: skip
SPLIT_COLOUR, LEAF_COLOUR = "#dbe9f6", "#e3f1dc"
NODE_WIDTH, LEVEL_HEIGHT = 1.5, 1.0  # inches of a drawn tree
MAX_INCHES = 60.0  # a wider tree is drawn smaller


@also_by_position("ax", "height", "xlim", "ylim", "title", "xlabel", "ylabel")
def plot_importance(
    booster: Any, *, ax: Axes = None, height: float = 0.6, xlim: tuple[float, float] | None = None,
    ylim: tuple[float, float] | None = None, title: str | None = "Feature importance", xlabel: str | None = "Importance score",
    ylabel: str | None = "Features", fmap: str | os.PathLike[str] = "", importance_type: str = "weight",
    max_num_features: int | None = None, grid: bool = True, show_values: bool = True, values_format: str | None = None,
    **kwargs: Any,
) -> Axes:  # fmt: skip
    """Horizontal bars, the most important feature on top.

    booster : Booster, fitted estimator, or a dict of get_score(). importance_type : as get_score's.
    max_num_features : draw no more than that. height : of a bar; 1 leaves no space between. values_format : such as "{v:.2f}";
    None writes four digits. title, xlabel, ylabel : None for none. kwargs : for ax.barh.
    Raises ValueError where no split uses any feature.
    """
    scores = booster if isinstance(booster, Mapping) else _booster(booster).get_score(fmap, importance_type)
    if not scores:
        raise ValueError("there is nothing to plot: the model has no split.")
    chosen = sorted(scores.items(), key=lambda item: item[1])
    if max_num_features is not None and max_num_features < 1:
        raise ValueError(f"max_num_features must be at least 1, got {max_num_features}.")
    names, values = zip(*chosen[-(max_num_features or 0) :])
    if ax is None:
        ax = _new_axes((6.4, max(2.4, 1.0 + 0.28 * len(names))))
    bars = ax.barh(range(len(names)), values, height=height, **kwargs)
    ax.set_yticks(range(len(names)), names)
    ax.margins(x=0.12)  # room for the values
    if show_values:
        ax.bar_label(bars, [_short(v) if values_format is None else values_format.format(v=v) for v in values], padding=3)
    _limit(ax, (min(0, *values), None) if xlim is None else xlim, (-0.7, len(names) - 0.3) if ylim is None else ylim)
    _decorate(ax, title, xlabel, ylabel, "x" if grid else None)
    ax.set_axisbelow(True)
    return ax


def plot_metric(
    booster: Any, metric: str | None = None, *, dataset_names: Sequence[str] | None = None, ax: Axes = None,
    xlim: tuple[float, float] | None = None, ylim: tuple[float, float] | None = None,
    title: str | None = "Metric during training", xlabel: str | None = "Round", ylabel: str | None = None, grid: bool = True,
    **kwargs: Any,
) -> Axes:  # fmt: skip
    """A curve for each evaluation set; the rounds of cv with a band of one standard deviation.

    booster : fitted estimator, train's evals_result, or what cv returns. metric : None where there is but one.
    dataset_names : draw only these. ylabel : None names the metric. kwargs : for ax.plot.
    Raises ValueError for a metric or data set that was not evaluated, TypeError for a Booster, which keeps no history.
    """
    history = _history(booster)
    metrics = list(dict.fromkeys(name for of_data in history.values() for name in of_data))
    if not metrics:
        raise ValueError("there is nothing to plot: nothing was evaluated. Pass evals, or eval_set, to the training.")
    if metric is None and len(metrics) > 1:
        raise ValueError(f"metric must be one of {', '.join(metrics)}.")
    metric = metrics[0] if metric is None else metric
    if metric not in metrics:
        raise ValueError(f"metric must be one of {', '.join(metrics)}, got {metric!r}.")
    names = list(history) if dataset_names is None else list(dataset_names)
    if unknown := [name for name in names if metric not in history.get(name, {})]:
        raise ValueError(f"dataset_names must be among {', '.join(history)}, got {unknown[0]!r}.")
    ax = _new_axes((6.4, 4.0)) if ax is None else ax
    for name in names:
        means, deviations = history[name][metric]
        (line,) = ax.plot(range(len(means)), means, label=name, **kwargs)
        if deviations is not None:
            low, high = ([m + sign * d for m, d in zip(means, deviations)] for sign in (-1, 1))
            ax.fill_between(range(len(means)), low, high, color=line.get_color(), alpha=0.2, linewidth=0)
    ax.xaxis.get_major_locator().set_params(integer=True)
    _limit(ax, (None, None) if xlim is None else xlim, (None, None) if ylim is None else ylim)
    _decorate(ax, title, xlabel, metric if ylabel is None else ylabel, "both" if grid else None)
    ax.legend()
    return ax


@also_by_position("fmap")
def plot_tree(
    booster: Any, *, fmap: str | os.PathLike[str] = "", tree_idx: int = 0, rankdir: str | None = None, ax: Axes = None,
    with_stats: bool = False, **kwargs: Any,
) -> Axes:  # fmt: skip
    """One tree, its root on top ("TB", also None) or at the left ("LR"). matplotlib alone draws it; Graphviz is not needed.

    The words are to_graphviz's, numbers shortened; "missing" and a bold line mark the branch that missing values take.
    with_stats : write gain and cover into the nodes. kwargs : none; what XGBoost's takes for Graphviz is refused by name.
    Raises IndexError for a tree that is not there.
    """
    tree_idx = _tree_number(tree_idx, kwargs)
    if kwargs:
        raise TypeError(f"plot_tree takes no {next(iter(kwargs))!r}: matplotlib draws, not Graphviz. Use to_graphviz.")
    if rankdir not in (None, "TB", "LR"):
        raise ValueError(f"rankdir must be 'TB' or 'LR', got {rankdir!r}.")
    model = _tree_model(booster, tree_idx)
    nodes = list(dumped_nodes(model, model.trees[0], *read_feature_map(fmap), _short, has_indicators=False))
    places = _place(nodes)
    n_leaves, depth = sum("leaf" in node for node in nodes), max(y for _, y in places.values())
    is_down = rankdir != "LR"
    if ax is None:
        across, along = n_leaves * (NODE_WIDTH if is_down else 0.55), (depth + 1) * (LEVEL_HEIGHT if is_down else 2.4)
        size = (across, along) if is_down else (along, across)
        ax = _new_axes((min(max(size[0], 3.0), MAX_INCHES), min(max(size[1], 1.5), MAX_INCHES)))
    at = {number: (x, -y) if is_down else (y, -x) for number, (x, y) in places.items()}
    for node in nodes:
        here = at[node["nodeid"]]
        for child, answer, is_missing in branches(node):
            there = at[child]
            ax.plot(*zip(here, there), color="#666666", linewidth=2.2 if is_missing else 0.9, zorder=1)
            middle = [0.45 * a + 0.55 * b for a, b in zip(here, there)]
            ax.text(*middle, answer, fontsize=7, color="#444444", ha="center", va="center", zorder=2,
                    bbox={"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none"})  # fmt: skip
        box = {"boxstyle": "round,pad=0.35", "edgecolor": "#666666", "linewidth": 0.8}
        box["facecolor"] = LEAF_COLOUR if "leaf" in node else SPLIT_COLOUR
        ax.text(*here, node_label(node, with_stats), fontsize=8, ha="center", va="center", zorder=3, bbox=box)
    xs, ys = zip(*at.values())
    ax.set_xlim(min(xs) - 0.6, max(xs) + 0.6)
    ax.set_ylim(min(ys) - 0.6, max(ys) + 0.6)
    ax.axis("off")
    return ax


@also_by_position("fmap")
def to_graphviz(
    booster: Any, *, fmap: str | os.PathLike[str] = "", tree_idx: int = 0, rankdir: str | None = None,
    yes_color: str | None = None, no_color: str | None = None, condition_node_params: dict[str, str] | None = None,
    leaf_node_params: dict[str, str] | None = None, with_stats: bool = False, **kwargs: Any,
) -> Any:  # fmt: skip
    """One tree as a graphviz.Source, which notebooks show and render() writes. Arguments as XGBoost's.

    yes_color, no_color : of the branch that missing values take, and of the other. kwargs : attributes of the graph.
    """
    tree_idx = _tree_number(tree_idx, kwargs)
    try:
        from graphviz import Source
    except ImportError:
        raise ImportError(f"to_graphviz needs the package graphviz. Install it: {install('plot')}") from None
    style = {
        "graph_attrs": kwargs | ({} if rankdir is None else {"rankdir": rankdir}),
        "edge": {name: c for name, c in (("yes_color", yes_color), ("no_color", no_color)) if c is not None},
        "condition_node_params": condition_node_params or {},
        "leaf_node_params": leaf_node_params or {},
    }
    names, types = read_feature_map(fmap)
    return Source(dump_trees(_tree_model(booster, tree_idx), f"dot:{json.dumps(style)}", with_stats, names, types)[0])


# -- The model and its history ----------------------------------------------------------------------------------------


def _booster(model: Any) -> Booster:
    booster = model.get_booster() if hasattr(model, "get_booster") else model
    if not isinstance(booster, Booster):
        raise TypeError(f"booster must be a Booster or a fitted estimator, got {kind_of(model)}.{from_other_library(model)}")
    return booster


def _tree_number(tree_idx: int, kwargs: dict[str, Any]) -> int:
    """tree_idx, or by its old name in XGBoost, which is taken out of kwargs: Graphviz would ignore such an attribute."""
    given = kwargs.pop("num_trees", None)
    if given is None:
        return tree_idx
    warnings.warn("num_trees, XGBoost's old name, is called tree_idx.", FutureWarning, 4)  # of the call of also_by_position's
    return given


def _tree_model(booster: Any, tree_idx: int) -> Model:
    """The model with one of its trees only."""
    model = _booster(booster).model
    if model.linear is not None:
        raise ValueError("a model of booster='gblinear' has weights instead of trees. Draw them by plot_importance.")
    if not -len(model.trees) <= tree_idx < len(model.trees):
        raise IndexError(f"tree_idx must be one of the model's {len(model.trees)} trees, got {tree_idx}.")
    return replace(model, trees=[model.trees[tree_idx]])


def _history(booster: Any) -> dict[str, dict[str, tuple[Sequence[float], Sequence[float] | None]]]:
    """Data name → metric → means, and their standard deviations where there are some."""
    if isinstance(booster, Booster):
        raise TypeError("a Booster keeps no history of its metrics. Pass the evals_result of train().")
    results = booster.evals_result() if hasattr(booster, "evals_result") else booster
    if not hasattr(results, "items"):
        raise TypeError(f"booster must be an estimator, evals_result or the result of cv, got {type(booster).__name__}.")
    history: dict[str, dict[str, Any]] = {}
    for name, values in results.items():
        if isinstance(values, Mapping):
            history[name] = {metric: (list(of_metric), None) for metric, of_metric in values.items()}
        elif name.endswith("-mean"):
            data, _, metric = name.removesuffix("-mean").partition("-")
            history.setdefault(data, {})[metric] = list(values), list(results[f"{data}-{metric}-std"])
    return history


# -- Drawing ----------------------------------------------------------------------------------------------------------


def _new_axes(size: tuple[float, float]) -> Axes:
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise ImportError(f"plotting needs matplotlib. Install it: {install('plot')}") from None
    return plt.subplots(figsize=size, layout="constrained")[1]


def _limit(ax: Axes, xlim: Any, ylim: Any) -> None:
    for name, setter, limits in (("xlim", ax.set_xlim, xlim), ("ylim", ax.set_ylim, ylim)):
        try:
            low, high = limits
        except (TypeError, ValueError):
            raise ValueError(f"{name} must be a pair (low, high), got {limits!r}.") from None
        setter(low, high)


def _decorate(ax: Axes, title: str | None, xlabel: str | None, ylabel: str | None, grid: str | None) -> None:
    """grid : of which axis it has lines, "x" or "both"; None: no grid."""
    for setter, text in ((ax.set_title, title), (ax.set_xlabel, xlabel), (ax.set_ylabel, ylabel)):
        if text is not None:
            setter(text)
    if grid is None:
        ax.grid(False)
    else:
        ax.grid(True, axis=grid, alpha=0.4)


def _place(nodes: list[dict[str, Any]]) -> dict[int, tuple[float, float]]:
    """Of nodes in preorder, by number: the leaves side by side, each split above the middle of its children; and the depth."""
    places: dict[int, tuple[float, float]] = {}
    xs = count(sum("leaf" in node for node in nodes) - 1, -1)
    for node in reversed(nodes):  # children before parents, right before left
        x = next(xs) if "leaf" in node else sum(places[child][0] for child in node["children"]) / 2
        places[node["nodeid"]] = float(x), float(node["depth"])
    return places


def _short(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() and abs(value) < 1e9 else f"{value:.4g}"
