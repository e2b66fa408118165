"""The settings of training: frozen dataclasses in which each field carries its own rule, so that validation and documentation
come from one place.

Names, defaults and meanings are XGBoost 3's. `parse_params` is the boundary where a user's mapping comes in: it resolves aliases,
converts text to numbers and refuses unknown names. `Params` itself checks every value, so an invalid one cannot exist.
"""

import ast
import json
import math
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any

from gpuboost.errors import not_built

__all__ = ["EVERY_VALUE", "ALIASES", "Params", "Rule", "check_param", "describe_params", "parse_params"]

EVERY_VALUE = 2**31 - 1  # as a number of bins: one for each distinct value

ALIASES = {
    "eta": "learning_rate",
    "lambda": "reg_lambda",
    "alpha": "reg_alpha",
    "min_split_loss": "gamma",
    "n_jobs": "nthread",
    "random_state": "seed",
}

# Names that people put among the parameters although they belong elsewhere, and what to do instead.
_ELSEWHERE = {
    **dict.fromkeys(["n_estimators", "num_round", "num_rounds", "nrounds", "iterations"], "Pass num_boost_round to train()."),
    **dict.fromkeys(
        ["num_boost_round", "early_stopping_rounds", "evals", "obj", "custom_metric", "maximize", "callbacks", "verbose_eval"],
        "Pass it to train().",
    ),
    **dict.fromkeys(["missing", "enable_categorical", "label", "weight", "base_margin"], "Pass it to DMatrix()."),
    "sample_weight": "Pass it to fit(), or as weight to DMatrix().",
    "eval_set": "Pass it to fit(), or as evals to train().",
    "importance_type": "Pass it to Booster.get_score().",
    "silent": "Use verbosity=0.",
    "gpu_id": "Use device='cuda:0' with the number of the device.",
    "predictor": "Leave it out: prediction runs where device says.",
    "process_type": "Leave it out: trees are grown, never refreshed.",
    "seed_per_iteration": "Leave it out: every round draws anew.",
    "max_cached_hist_node": "Use histogram_memory, in bytes.",
    "bagging_fraction": "Use subsample.",
    "feature_fraction": "Use colsample_bytree.",
    "min_child_samples": "Use min_child_weight, a sum of hessians.",
    "lr": "Use learning_rate.",
    "l1": "Use reg_alpha.",
    "l2": "Use reg_lambda.",
}


@dataclass(frozen=True)
class Rule:
    """What one parameter means and may be.

    doc : one line. allowed : the accepted values in words. fix : the usual remedy, a sentence.
    parse : value → value as stored; raises ValueError whose text completes "<name> must be ...".
    is_built : False for a parameter that is known from XGBoost, but may only hold its default yet.
    planned : the values of a choice that are known from XGBoost, but not available yet.
    """

    doc: str
    allowed: str
    parse: Callable[[Any], Any]
    fix: str = ""
    is_built: bool = True
    planned: tuple[str, ...] = ()


# --- Fields: each helper makes a dataclass field that carries its Rule ---

_DEVICES = "'auto', 'cpu', 'cuda' or 'cuda:N'"
_FROM_0, _FROM_1 = "[0, 2147483647]", "[1, 2147483647]"  # counts that fit 32 bits


def _param(default: Any, doc: str, allowed: str, parse: Callable[[Any], Any], **rule: Any) -> Any:
    return field(default=default, metadata={"rule": Rule(doc, allowed, parse, **rule)})


def _integer(default: int | None, interval: str, doc: str, **rule: Any) -> Any:
    parse, limits = _bounded(_as_integer, interval)
    return _param(default, doc, f"integer {limits}", parse, **rule)


def _real(default: float, interval: str, doc: str, **rule: Any) -> Any:
    parse, limits = _bounded(_as_real, interval)
    return _param(default, doc, f"number {limits}", parse, **rule)


def _reals(interval: str, doc: str, default: Any = None, **rule: Any) -> Any:
    """One number or several, stored as a tuple; none at all only where that is the default, ()."""
    parse_one, limits = _bounded(_as_real, interval)

    def parse(value: Any) -> tuple[float, ...]:
        value = _plain(value)
        if isinstance(value, str) and value.strip()[:1] in ("[", "("):  # XGBoost's notation, "[5E-1]"
            inner = value.strip()[1:-1]
            value = inner.split(",") if inner.strip() else ()
        items = tuple(value) if isinstance(value, (list, tuple)) else (value,)
        if not items and default is None:
            raise ValueError("a number or a sequence of at least one")
        return tuple(parse_one(item) for item in items)

    return _param(default, doc, f"number or sequence of numbers, {limits}", parse, **rule)


def _flag(default: bool, doc: str, **rule: Any) -> Any:
    def parse(value: Any) -> bool:
        text = str(_plain(value)).strip().lower()
        if text not in ("true", "1", "false", "0"):
            raise ValueError("True or False")
        return text in ("true", "1")

    return _param(default, doc, "true or false", parse, **rule)


def _choice(default: str | None, values: str, doc: str, planned: str = "", **rule: Any) -> Any:
    """One of several words; `values` and `planned` are written with spaces between."""
    names = [*values.split(), *planned.split()]

    def parse(value: Any) -> str:
        if not isinstance(value, str) or value not in names:
            raise ValueError(_listed(names))
        return value

    return _param(default, doc, _listed(names), parse, planned=tuple(planned.split()), **rule)


# --- Reading one value ---


def _plain(value: Any) -> Any:
    """NumPy's scalars and arrays (and pandas's columns) as Python's own numbers and lists."""
    return value.tolist() if hasattr(value, "tolist") else value


def _number(value: Any) -> int | float | None:
    """6, 0.3, "6", "0.3" and NumPy's scalars as int or float; None for what is no number (True is none)."""
    value = _plain(value)
    if isinstance(value, str):
        for convert in (int, float):
            with suppress(ValueError):
                return convert(value)
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _as_integer(value: Any) -> int:
    number = _number(value)
    if isinstance(number, float) and number.is_integer():  # 6.0, as searches over parameters produce
        return int(number)
    if not isinstance(number, int):
        raise ValueError("an integer")
    return number


def _as_real(value: Any) -> float:
    number = _number(value)
    if number is None or not abs(number) <= sys.float_info.max:  # NaN, infinity, 10**400
        raise ValueError("a finite number")
    return float(number)


def _bounded(convert: Callable[[Any], Any], interval: str) -> tuple[Callable[[Any], Any], str]:
    """The parser of numbers inside an interval in the usual notation, "(0, 1]", and the interval in words."""
    low, high = (float(end) if "inf" in end or "." in end else int(end) for end in interval[1:-1].split(","))
    is_low_open, is_high_open = interval[0] == "(", interval[-1] == ")"
    above = f"greater than {low}" if is_low_open else f"at least {low}"
    below = f"less than {high}" if is_high_open else f"at most {high}"
    limits = f"between {low} and {high}" if not (is_low_open or is_high_open) else f"{above} and {below}"
    if math.isinf(high):
        limits = "finite" if math.isinf(low) else above

    def parse(value: Any) -> Any:
        number = convert(value)
        if number < low or number > high or (is_low_open and number == low) or (is_high_open and number == high):
            raise ValueError(limits)
        return number

    return parse, limits


def _listed(names: Iterable[str]) -> str:
    *rest, last = map(repr, names)
    return f"{', '.join(rest)} or {last}" if rest else last


def _parse_device(value: Any) -> str:
    name, colon, ordinal = str(value).strip().lower().partition(":")
    name = "cuda" if name == "gpu" else name
    if name == "cuda" and ordinal.isascii() and ordinal.isdecimal():
        return f"cuda:{int(ordinal)}"
    if name not in ("auto", "cpu", "cuda") or colon:
        raise ValueError(_DEVICES)
    return name


def _parse_nthread(value: Any) -> int:
    if (number := _as_integer(value)) < -1:
        raise ValueError("the number of threads, or 0 or -1 for all cores")
    return max(number, 0)


def _parse_objective(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("the name of an objective")
    return value


def _parse_metrics(value: Any) -> tuple[str, ...]:
    names = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, (list, tuple)) else (None,)
    if not all(isinstance(name, str) and name for name in names):
        raise ValueError("the name of a metric or a list of names")
    return tuple(dict.fromkeys(names))  # each once, in the order given


_SETS = "sets of columns by name or number, such as [[0, 1], ['age', 'income']]"


def _parse_sets(value: Any) -> tuple[tuple[int | str, ...], ...]:
    """Each set ascending, numbers before names. Text as XGBoost writes it, JSON, or as Python does."""
    value = _plain(value)
    if isinstance(value, str) and value.strip():
        value = _literal(value)
    if isinstance(value, (str, dict)) and not value:
        return ()
    result = []
    for group in _members(value):
        members = {item if isinstance(item, str) else _number_of_column(item) for item in _members(_plain(group))}
        if not members:
            raise ValueError(f"{_SETS}, none of them empty")
        result.append(tuple(sorted(members, key=lambda item: (isinstance(item, str), item))))
    return tuple(result)


def _number_of_column(value: Any) -> int:
    with suppress(ValueError):
        return _as_integer(value)
    raise ValueError(_SETS)


def _members(group: Any) -> Any:
    if not isinstance(group, (list, tuple, set, frozenset)):
        raise ValueError(_SETS)
    return group


def _literal(text: str) -> Any:
    """What a text says in JSON or in Python; None for anything else."""
    for read in (json.loads, ast.literal_eval):
        with suppress(ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            return read(text.strip())
    return None


def _parse_monotone(value: Any) -> tuple[Any, ...]:
    """Signs by column, (1, -1), or pairs of a column's name (or number) and its sign, (("age", 1),)."""
    value = _plain(value)
    if isinstance(value, str):  # XGBoost's notation, "(1,-1)", or that of a dict
        value = _literal(value) if value.strip() else ()
        value = (value,) if isinstance(value, int) else value  # "(1)"
    items = list(value.items()) if isinstance(value, Mapping) else value
    if not isinstance(items, (list, tuple)):
        raise ValueError("a sequence of signs, or a mapping from names to signs")
    if items and all(isinstance(item, (list, tuple)) for item in items):
        if all(len(item) == 2 and type(_plain(item[0])) in (str, int) for item in items):  # True is neither
            return tuple((_plain(name), _parse_sign(sign)) for name, sign in items)
        raise ValueError("a sign for each name of a column")
    return tuple(map(_parse_sign, items))


def _parse_sign(value: Any) -> int:
    number = _number(value)
    if number not in (-1, 0, 1):
        raise ValueError("-1, 0 or 1 for each feature")
    return int(number)


# --- The parameters ---


@dataclass(frozen=True, kw_only=True)
class GeneralParams:
    """General"""

    booster: str = _choice("gbtree", "gbtree", "What is boosted.", planned="dart gblinear")
    device: str = _param("auto", "Where to train; auto: CUDA if there is a device and enough work.", _DEVICES, _parse_device)
    nthread: int | None = _param(None, "CPU threads, 0 or -1: all; None: as configured.", "integer at least -1", _parse_nthread)
    verbosity: int | None = _integer(None, "[0, 3]", "Silent, warnings, information, debugging; None: as configured.")
    seed: int = _integer(0, f"[{-(2**63)}, {2**63 - 1}]", "Seed of every random choice.")
    validate_parameters: bool = _flag(True, "Unknown names are an error; a warning when false.")
    histogram_memory: int = _integer(2**29, "[1, inf)", "Bytes for histograms: nodes and features run in batches that fit.")


@dataclass(frozen=True, kw_only=True)
class TreeParams:
    """Trees"""

    tree_method: str = _choice(
        "auto", "auto hist approx exact gpu_hist",
        "How splits are found; 'auto' means 'hist', 'gpu_hist' means 'hist' on device='cuda', 'exact' runs on the CPU.",
    )
    grow_policy: str = _choice("depthwise", "depthwise lossguide", "Split level by level, or the leaf of highest gain first.")
    learning_rate: float = _real(0.3, "(0, inf)", "Factor on every leaf.", fix="Use 0.3, or 0.05 with more rounds.")
    gamma: float = _real(0, "[0, inf)", "Smallest gain of a split that survives pruning.")
    max_depth: int = _integer(6, _FROM_0, "Largest depth of a tree, 0 for no limit.", fix="Use 6 for most data, 0 for no limit.")
    max_leaves: int = _integer(0, _FROM_0, "Largest number of leaves of a tree, 0 for no limit.")
    max_bin: int = _integer(
        256, "[2, 65535]", "Bins per feature (approx: candidates); sketch_eps sets it to 1 / eps, rounded up.",
        fix="Use 256 for most data.",
    )
    min_child_weight: float = _real(1, "[0, inf)", "Smallest sum of hessians in a child.")
    max_delta_step: float = _real(0, "[0, inf)", "Largest magnitude of a leaf before learning_rate, 0 for no limit.")
    reg_lambda: float = _real(1, "[0, inf)", "L2 penalty on leaf weights.")
    reg_alpha: float = _real(0, "[0, inf)", "L1 penalty on leaf weights.")
    subsample: float = _real(1, "(0, 1]", "Share of the rows drawn for each round.", fix="Use 0.5 to 1.")
    sampling_method: str = _choice(
        "uniform", "uniform gradient_based", "How subsample draws: all alike, or by the size of gradients (minimal variance)."
    )
    colsample_bytree: float = _real(1, "(0, 1]", "Share of the features drawn for the trees of a round.")
    colsample_bylevel: float = _real(1, "(0, 1]", "Share of those drawn for each level of a tree.")
    colsample_bynode: float = _real(1, "(0, 1]", "Share of those drawn for each node.")
    feature_weights: tuple[float, ...] = _reals(
        "[0, 3.4e38]", "Weight of each feature when features are drawn; (): those of the DMatrix.", default=()
    )
    num_parallel_tree: int = _integer(1, _FROM_1, "Trees per round and output.", is_built=False)
    monotone_constraints: tuple[Any, ...] = _param(
        (), "Sign of each feature's effect: 1 rising, -1 falling, 0 free.", "signs in the order of the columns, or by name",
        _parse_monotone, fix="Use (1, -1, 0), or {'age': 1} by name.",
    )
    interaction_constraints: tuple[tuple[int | str, ...], ...] = _param(
        (), "Sets of features that may appear together on a path.", _SETS, _parse_sets
    )
    multi_strategy: str = _choice(
        "one_output_per_tree", "one_output_per_tree", "Several outputs: a tree each or one for all.", planned="multi_output_tree"
    )
    max_cat_to_onehot: int = _integer(4, _FROM_1, "Categories up to which a split takes one of them.", is_built=False)
    max_cat_threshold: int = _integer(64, _FROM_1, "Most categories that a split names.", is_built=False)
    sketch_proposals: str = _choice("global", "global local", "'approx': candidates once per tree, or for each node.")


@dataclass(frozen=True, kw_only=True)
class ObjectiveParams:
    """Objective and metrics"""

    objective: str = _param(
        "reg:squarederror", "The loss.", "name of an objective", _parse_objective, fix="Pass a function as obj to train()."
    )
    eval_metric: tuple[str, ...] = _param(
        (), "Metrics to report.", "name or list of names", _parse_metrics, fix="Pass a function as custom_metric to train()."
    )
    disable_default_eval_metric: bool = _flag(False, "Report only the metrics given, not the objective's own.")
    base_score: tuple[float, ...] | None = _reals("[-3.4e38, 3.4e38]", "Prediction before the first tree; None: estimated.")
    num_class: int = _integer(0, _FROM_0, "Classes of a multi-class objective, else 0.")
    scale_pos_weight: float = _real(
        1, "(0, 3.4e38]", "Weight of positive rows (binary:logistic).", fix="Use 1, or sum(negatives) / sum(positives)."
    )
    huber_slope: float = _real(1, "(0, inf)", "reg:pseudohubererror: where the loss turns linear.", is_built=False)
    quantile_alpha: tuple[float, ...] | None = _reals("[0, 1]", "reg:quantileerror: quantiles.", is_built=False)
    expectile_alpha: tuple[float, ...] | None = _reals("[0, 1]", "reg:expectileerror: expectiles.", is_built=False)
    tweedie_variance_power: float = _real(1.5, "[1, 2)", "reg:tweedie: variance is mean to this power.", is_built=False)
    aft_loss_distribution: str = _choice("normal", "normal logistic extreme", "survival:aft: law of the noise.", is_built=False)
    aft_loss_distribution_scale: float = _real(1, "(0, inf)", "survival:aft: scale of the noise.", is_built=False)
    lambdarank_pair_method: str = _choice("topk", "topk mean", "rank:*: which pairs are compared.", is_built=False)
    lambdarank_num_pair_per_sample: int | None = _integer(None, _FROM_1, "rank:*: pairs per row, or k of topk.", is_built=False)
    lambdarank_normalization: bool = _flag(True, "rank:*: normalise the gradient of a query.", is_built=False)
    lambdarank_score_normalization: bool = _flag(True, "rank:*: divide by the difference of scores.", is_built=False)
    lambdarank_unbiased: bool = _flag(False, "rank:*: correct for the bias of positions in clicks.", is_built=False)
    lambdarank_bias_norm: float = _real(1, "[0, inf)", "rank:*: norm of that correction.", is_built=False)
    ndcg_exp_gain: bool = _flag(True, "rank:ndcg: gain 2^label - 1 instead of label.", is_built=False)


@dataclass(frozen=True, kw_only=True)
class OtherBoosterParams:
    """Boosters dart and gblinear"""

    sample_type: str = _choice("uniform", "uniform weighted", "How dropped trees are drawn.", is_built=False)
    normalize_type: str = _choice("tree", "tree forest", "How new trees are weighed against dropped ones.", is_built=False)
    rate_drop: float = _real(0, "[0, 1]", "Share of the trees dropped in a round.", is_built=False)
    one_drop: bool = _flag(False, "Drop at least one tree a round.", is_built=False)
    skip_drop: float = _real(0, "[0, 1]", "Probability of a round without dropping.", is_built=False)
    updater: str | None = _choice(None, "shotgun coord_descent", "How linear weights are fitted.", is_built=False)
    feature_selector: str = _choice("cyclic", "cyclic shuffle random greedy thrifty", "Order of features.", is_built=False)
    top_k: int = _integer(0, _FROM_0, "Features that greedy and thrifty select, 0 for all.", is_built=False)


@dataclass(frozen=True, kw_only=True)
class Params(OtherBoosterParams, ObjectiveParams, TreeParams, GeneralParams):
    """All settings of training, checked. None means the default.

    Raises ValueError for a value that is not allowed, NotImplementedError for one that XGBoost knows and gpuboost not yet.
    """

    def __post_init__(self) -> None:
        for f in fields(self):
            object.__setattr__(self, f.name, check_param(f.name, getattr(self, f.name)))
        if self.tree_method == "exact" and self.device.startswith("cuda"):
            raise ValueError(f"device must be 'cpu' with tree_method='exact', got {self.device!r}. Use 'hist' on a GPU.")
        if self.tree_method == "gpu_hist":
            if self.device == "cpu":
                raise ValueError("device must be 'cuda' with tree_method='gpu_hist', got 'cpu'. Use tree_method='hist'.")
            object.__setattr__(self, "tree_method", "hist")
            object.__setattr__(self, "device", "cuda" if self.device == "auto" else self.device)
        if self.sketch_proposals == "local" and self.tree_method != "approx":
            raise ValueError(
                f"tree_method must be 'approx' with sketch_proposals='local', got {self.tree_method!r}. "
                "Use tree_method='approx', or leave sketch_proposals out."
            )

    @property
    def training_device(self) -> str:
        """The device to train on: exact search runs on the CPU."""
        return "cpu" if self.tree_method == "exact" else self.device

    @property
    def table_bins(self) -> int:
        """Bins per feature that a table is coded in: max_bin, but B = 16·max_bin and at least 1024 (at most 65535) for "approx",
        which proposes K = max_bin of them as candidates, for each tree or node (kernels/proposals.py).

        A gap between candidates that holds several fine bins has less than ε = 2/K of the node's hessians, whatever B. One fine
        bin, if it holds several values, has less than 2/B of the table's weight. In a node with a share s of the table's
        hessians, none above c times their mean, that is less than 2·c/(B·s) of the node's: ε = max(2/K, 2·c/(B·s)). So B = 16·K
        keeps ε = 2/K (for c = 1) in nodes down to a sixteenth of the table, and few candidates, which want deep nodes cut anew,
        get 1024 bins: fewer would not make training much quicker.

        EVERY_VALUE for "exact": a bin for each distinct value.
        """
        if self.tree_method == "exact":
            return EVERY_VALUE
        return min(max(16 * self.max_bin, 1024), 65535) if self.tree_method == "approx" else self.max_bin


_FIELDS = {f.name: f for f in fields(Params)}
_read_sketch_eps, _ = _bounded(_as_real, "[0.00001, 0.5]")


def check_param(name: str, value: Any) -> Any:
    """`value` as parameter `name` stores it; the default for None.

    Raises ValueError when it is not allowed, NotImplementedError when it is known from XGBoost but not available yet.
    """
    default, rule = _FIELDS[name].default, _FIELDS[name].metadata["rule"]
    if value is None:
        return default if default is None else rule.parse(default)
    try:
        parsed = rule.parse(value)
    except ValueError as refused:
        raise ValueError(f"{_with_aliases(name)} must be {refused}, got {value!r}. {_fix(name, value)}") from None
    if parsed in rule.planned or (not rule.is_built and parsed != default):
        raise not_built(f"{name}={value!r}", "Leave it out." if default is None else f"Use {name}={default!r}.")
    return parsed


def parse_params(params: Mapping[str, Any] | Iterable[tuple[str, Any]] | None = None) -> Params:
    """Params from a user's mapping, or from pairs of name and value in which eval_metric may be repeated.

    Raises ValueError for an unknown name, with the nearest known one (only a warning under validate_parameters=False), for a
    value that is not allowed, and when two spellings of one parameter disagree; NotImplementedError as `Params` does.
    """
    values: dict[str, Any] = {}
    spelt: dict[str, str] = {}  # name → "name=value" as it was first given
    unknown = []
    for spelling, given in _pairs(params):
        name = "max_bin" if spelling == "sketch_eps" else ALIASES.get(spelling, spelling)
        if name not in _FIELDS:
            unknown.append(spelling)
        elif given is not None:
            value = check_param(name, _bins_of(given) if spelling == "sketch_eps" else given)
            if name == "eval_metric":
                value = values.get(name, ()) + value
            elif values.get(name, value) != value:
                raise ValueError(f"{name} was given twice, as {spelt[name]} and {spelling}={given!r}. Keep one of them.")
            values[name] = value
            spelt.setdefault(name, f"{spelling}={given!r}")
    result = Params(**values)
    if unknown:
        message = " ".join(map(_unknown_name, unknown))
        if result.validate_parameters:
            raise ValueError(message)
        if result.verbosity != 0:
            warnings.warn(message, UserWarning, stacklevel=2)
    return result


def describe_params() -> str:
    """The reference of all parameters: one Markdown table per section."""
    lines = []
    for section in reversed(Params.__bases__):
        lines += [f"## {section.__doc__}", "", "| parameter | default | allowed | meaning |", "|---|---|---|---|"]
        for f in fields(section):
            rule = f.metadata["rule"]
            pending = f" Not built yet: {_listed(rule.planned)}." if rule.planned else "" if rule.is_built else " Not built yet."
            lines.append(f"| {_with_aliases(f.name)} | {f.default!r} | {rule.allowed} | {rule.doc}{pending} |")
        lines.append("")
    return "\n".join(lines)


def _pairs(params: Mapping[str, Any] | Iterable[tuple[str, Any]] | None) -> list[tuple[str, Any]]:
    items = list(params.items() if isinstance(params, Mapping) else params or ())
    if not all(isinstance(item, (tuple, list)) and len(item) == 2 and isinstance(item[0], str) for item in items):
        raise ValueError(f"params must be a mapping or a list of (name, value) pairs, got {params!r}. Use {{'max_depth': 6}}.")
    return items


def _bins_of(sketch_eps: Any) -> int:
    """As many as Eq. 9 of the paper asks for: gaps of less than eps each. (A hair less, so that 1/0.1 is 10.)"""
    try:
        return math.ceil(1 / _read_sketch_eps(sketch_eps) - 1e-6)
    except ValueError as refused:
        raise ValueError(f"sketch_eps must be {refused}, got {sketch_eps!r}. Use max_bin=256 for most data.") from None


def _fix(name: str, value: Any) -> str:
    """The last sentence of a refusal: the word that was probably meant, the parameter's own advice, or its default."""
    default, rule = _FIELDS[name].default, _FIELDS[name].metadata["rule"]
    close = get_close_matches(value, re.findall(r"'(\w+)'", rule.allowed), n=1) if isinstance(value, str) else []
    if close:
        return f"Did you mean {close[0]!r}?"
    return rule.fix or ("Leave it out for the default." if default is None else f"The default is {default!r}.")


def _unknown_name(name: str) -> str:
    if name in _ELSEWHERE:
        return f"{name!r} is not a parameter of training. {_ELSEWHERE[name]}"
    close = get_close_matches(name, [*_FIELDS, *ALIASES, "sketch_eps"], n=1)
    return f"unknown parameter {name!r}." + (f" Did you mean {close[0]!r}?" if close else "")


def _with_aliases(name: str) -> str:
    """The name as documentation and errors show it: seed (random_state)."""
    aliases = ", ".join(alias for alias, target in ALIASES.items() if target == name)
    return f"{name} ({aliases})" if aliases else name
