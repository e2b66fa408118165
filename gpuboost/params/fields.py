"""The parameters of training, one field each."""

import re
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any

from gpuboost.params.rules import choice, flag, integer, param, real, reals
from gpuboost.params.values import (
    DEVICES,
    SETS,
    SKETCHES,
    parse_device,
    parse_metrics,
    parse_monotone,
    parse_nthread,
    parse_objective,
    parse_pairs,
    parse_sets,
    parse_sketch,
    parse_split_gain,
)

__all__ = [
    "ALIASES", "EVERY_VALUE", "FIELDS", "GivenSearch", "Params", "TreeParams", "check_param", "most_leaves", "with_aliases",
]  # fmt: skip

EVERY_VALUE = 2**31 - 1  # as a number of bins: one for each distinct value
_FROM_0, _FROM_1 = "[0, 2147483647]", "[1, 2147483647]"  # counts that fit 32 bits

# cat_noise where it is known: CHANCE times the variance of a gradient in hessians, as the best of many sets gains more by chance
# than any one of them (benchmarks/results/categories.md).
CHANCE = 2.0
GRADIENT_NOISE = {
    "binary:logistic": 2.0, "binary:logitraw": 2.0, "reg:logistic": 2.0, "multi:softprob": 1.0, "multi:softmax": 1.0,
    "count:poisson": 1.0,
}  # fmt: skip

# Times as much beside statistics, which tell what most sets could (same tables).
BESIDE_STATISTICS = 2.0

ALIASES = {
    "eta": "learning_rate",
    "lambda": "reg_lambda",
    "alpha": "reg_alpha",
    "min_split_loss": "gamma",
    "n_jobs": "nthread",
    "random_state": "seed",
}


@dataclass(frozen=True, kw_only=True)
class GeneralParams:
    """General"""

    booster: str = choice("gbtree", "gbtree dart gblinear", "What is boosted: trees; with dropout; a linear model (CPU).")
    device: str = param("auto", "Where to train; auto: CUDA if there is a device and enough work.", DEVICES, parse_device)
    nthread: int | None = param(
        None, "CPU threads, 0 or -1: all, -2: all but one, and so on; None: as configured.", "integer", parse_nthread
    )
    verbosity: int | None = integer(None, "[0, 3]", "Silent, warnings, information, debugging; None: as configured.")
    seed: int = integer(0, f"[{-(2**63)}, {2**63 - 1}]", "Seed of every random choice.")
    validate_parameters: bool = flag(True, "Unknown names are an error; a warning when false.")
    histogram_memory: int | None = integer(
        None, "[1, inf)", "Bytes for histograms: nodes run in batches that fit. None: 512 MB, of a GPU a quarter of what is free."
    )


@dataclass(frozen=True, kw_only=True)
class TreeParams:
    """Trees"""

    tree_method: str = choice(
        "auto", "auto hist approx exact gpu_hist",
        "How splits are found; 'auto' means 'hist', 'gpu_hist' means 'hist' on device='cuda', 'exact' runs on the CPU.",
    )
    grow_policy: str = choice("depthwise", "depthwise lossguide", "Split level by level, or the leaf of highest gain first.")
    learning_rate: float = real(
        None, "(0, inf)", "Factor on every leaf, or on a step of linear weights; None: 0.3, gblinear 0.5.",
        fix="Use 0.3, or 0.05 with more rounds.",
    )  # fmt: skip
    gamma: float = real(0, "[0, inf)", "Smallest gain of a split that survives pruning.")
    max_depth: int = integer(6, _FROM_0, "Largest depth of a tree, 0 for no limit.", fix="Use 6 for most data, 0 for no limit.")
    max_leaves: int = integer(0, _FROM_0, "Largest number of leaves of a tree, 0 for no limit.")
    max_bin: int = integer(
        256, "[2, 65535]", "Bins per feature (approx: candidates); sketch_eps sets it to 1 / eps, rounded up.",
        fix="Use 256 for most data.",
    )
    min_child_weight: float = real(1, "[0, inf)", "Smallest sum of hessians in a child.")
    max_delta_step: float = real(
        None, "[0, inf)", "Largest magnitude of a leaf before learning_rate, 0 for no limit; None: 0, count:poisson 0.7."
    )
    reg_lambda: float = real(
        None, "[0, inf)", "L2 penalty on leaf weights; on linear weights, times the sum of weights. None: 1, gblinear 0."
    )
    reg_alpha: float = real(0, "[0, inf)", "L1 penalty, likewise.")
    split_gain: str | None = param(
        None, "What splits are chosen by; None: the gain of the paper.", "a function under @gpuboost.split_gain, or its name",
        parse_split_gain,
    )
    subsample: float = real(1, "(0, 1]", "Share of the rows drawn for each round.", fix="Use 0.5 to 1.")
    sampling_method: str = choice(
        "uniform", "uniform gradient_based", "How subsample draws: all alike, or by the size of gradients (minimal variance)."
    )
    colsample_bytree: float = real(1, "(0, 1]", "Share of the features drawn for the trees of a round.")
    colsample_bylevel: float = real(1, "(0, 1]", "Share of those drawn for each level of a tree.")
    colsample_bynode: float = real(1, "(0, 1]", "Share of those drawn for each node.")
    feature_weights: tuple[float, ...] = reals(
        "[0, 3.4028235e38]", "Weight of each feature when features are drawn; (): those of the DMatrix.", default=()
    )
    num_parallel_tree: int = integer(1, _FROM_1, "Trees per round and output: a forest, whose leaves each count for a part.")
    monotone_constraints: tuple[Any, ...] = param(
        (), "Sign of each feature's effect: 1 rising, -1 falling, 0 free.", "signs in the order of the columns, or by name",
        parse_monotone, fix="Use (1, -1, 0), or {'age': 1} by name.",
    )
    interaction_constraints: tuple[tuple[int | str, ...], ...] = param(
        (), "Sets of features that may appear together on a path.", SETS, parse_sets
    )
    multi_strategy: str = choice(
        "one_output_per_tree", "one_output_per_tree multi_output_tree", "Several outputs: a tree each, or one for all."
    )
    output_sketch: str | None = param(
        None, "multi_output_tree: what few outputs, or sums of them, splits are searched by; None: all.", SKETCHES, parse_sketch,
        fix="Use 'top_outputs:5' for most data.",
    )  # fmt: skip
    cat_encoding: str = choice(
        "sets", "sets statistics ordinal",
        "Columns of categories are split by sets of them, also by the mean label of a category, or in the order of their codes.",
    )  # fmt: skip
    max_cat_to_onehot: int = integer(4, _FROM_1, "Sets: of a column of fewer categories a split names one.")
    max_cat_threshold: int = integer(64, _FROM_1, "Sets: most categories that a split names.")
    cat_smooth: float = real(0, "[0, inf)", "Sets: added to the hessian of each category where they are put in order.")
    cat_l2: float = real(0, "[0, inf)", "Sets: added to lambda in the gain of a split that may name several categories.")
    min_data_per_group: float = real(
        0, "[0, inf)", "Sets: smallest sum of hessians (rows, for squared error) of a child where a split may name several."
    )
    cat_noise: float | None = real(
        None, "[0, inf)",
        "Sets: variance of gradients in hessians, whose gain by chance does not count; 0: all counts. "
        "None: by the objective, less where they vary less.",
    )  # fmt: skip
    sketch_proposals: str = choice("global", "global local", "'approx': candidates once per tree, or for each node.")

    @property
    def sketch_method(self) -> str | None:
        """The part of output_sketch before the number."""
        return None if self.output_sketch is None else self.output_sketch.partition(":")[0]

    def searched_outputs(self, leaf_size: int) -> int:
        """Gradients by which the splits of a tree of so many outputs are searched."""
        return leaf_size if self.output_sketch is None else min(leaf_size, int(self.output_sketch.partition(":")[2]))

    def is_sketched(self, leaf_size: int) -> bool:
        """Whether these are other gradients than those of the outputs."""
        return self.searched_outputs(leaf_size) < leaf_size

    def bounds_outputs(self, leaf_size: int) -> bool:
        """Whether each of several outputs of a tree has bounds on its weights."""
        return leaf_size > 1 and any(self.monotone_constraints)

    @property
    def masks_features(self) -> bool:
        """Whether nodes differ in the features that they may split on (kernels/column_sampling.py)."""
        return self.colsample_bylevel < 1 or self.colsample_bynode < 1 or len(self.interaction_constraints) > 0

    @property
    def bins_categories(self) -> bool:
        """Whether columns of categories have a bin for each."""
        return self.cat_encoding != "ordinal"

    @property
    def proposals(self) -> str | None:
        """Whose histograms propose split candidates: "global" the roots', "local" every node's. None: every bin is one."""
        return self.sketch_proposals if self.tree_method == "approx" else None

    @property
    def sampling(self) -> str | None:
        """How the rows of a round are drawn: "uniform" or "gradient_based". None: all take part."""
        return self.sampling_method if self.subsample < 1 else None


@dataclass(frozen=True, kw_only=True)
class ObjectiveParams:
    """Objective and metrics"""

    objective: str = param(
        "reg:squarederror", "The loss.", "name of an objective", parse_objective, fix="Pass a function as obj to train()."
    )
    eval_metric: tuple[str, ...] = param(
        (), "Metrics to report.", "name or list of names", parse_metrics, fix="Pass a function as custom_metric to train()."
    )
    disable_default_eval_metric: bool = flag(False, "Report only the metrics given, not the objective's own.")
    base_score: tuple[float, ...] | None = reals("[-3.4e38, 3.4e38]", "Prediction before the first tree; None: estimated.")
    num_class: int = integer(0, _FROM_0, "Classes of a multi-class objective, else 0. Without objective it means multi:softmax.")
    num_target: int = integer(1, _FROM_1, "Targets of a row. The label says so itself: above 1 it must agree.")
    scale_pos_weight: float = real(
        1, "(0, 3.4e38]", "Weight of positive rows (logistic losses).", fix="Use 1, or sum(negatives) / sum(positives)."
    )
    huber_slope: float = real(1, "(0, inf)", "reg:pseudohubererror: where the loss turns linear.")
    quantile_alpha: tuple[float, ...] | None = reals("[0, 1]", "reg:quantileerror: quantiles, ascending.")
    expectile_alpha: tuple[float, ...] | None = reals("[0, 1]", "reg:expectileerror: expectiles.")
    tweedie_variance_power: float = real(1.5, "[1, 2)", "reg:tweedie: variance is mean to this power.")
    aft_loss_distribution: str = choice("normal", "normal logistic extreme", "survival:aft: law of the noise.")
    aft_loss_distribution_scale: float = real(1, "(0, inf)", "survival:aft: scale of the noise.")
    lambdarank_pair_method: str = choice(
        "topk", "topk mean", "rank:*: compared are the documents at the top with all others, or each with some drawn ones."
    )
    lambdarank_num_pair_per_sample: int | None = param(
        None, "rank:*: documents at the top (None: 32), or pairs drawn for each document (1).", "integer at least 1", parse_pairs
    )
    lambdarank_normalization: bool = flag(True, "rank:*: weigh queries with large gradients less, or divide by the pairs drawn.")
    lambdarank_score_normalization: bool = flag(True, "rank:*: pairs count less the further their scores lie apart.")
    lambdarank_unbiased: bool = flag(False, "rank:*: labels are clicks; estimate, and correct, the bias of positions.")
    lambdarank_bias_norm: float = real(1, "[0, inf)", "rank:*: exponent of that estimate is 1/(1 + this).")
    ndcg_exp_gain: bool = flag(True, "rank:ndcg and metric ndcg: gain 2^label - 1 instead of label.")


@dataclass(frozen=True, kw_only=True)
class OtherBoosterParams:
    """Dropout of trees (dart), and booster gblinear"""

    sample_type: str = choice("uniform", "uniform weighted", "How dropped trees are drawn; weighted: by their weights.")
    normalize_type: str = choice("tree", "tree forest", "How new trees are weighed against dropped ones.")
    rate_drop: float = real(0, "[0, 1]", "Share of the trees dropped in a round.")
    one_drop: bool = flag(False, "Drop at least one tree a round.")
    skip_drop: float = real(0, "[0, 1]", "Probability of a round without dropping.")
    process_type: str = choice("default", "default update", "Whether rounds grow trees, or update those of a model in turn.")
    updater: str | None = choice(
        None, "shotgun coord_descent refresh prune refresh,prune",
        "gblinear: weights fitted several at a time (None), or one by one. process_type='update': what is done to trees.",
        fix="Leave it out: tree_method says how trees are grown.",
    )  # fmt: skip
    refresh_leaf: bool = flag(True, "updater='refresh': leaves, too, not only the statistics of nodes.")
    feature_selector: str = choice(
        "cyclic", "cyclic shuffle random greedy thrifty", "gblinear: the order of the columns; shotgun takes the first two."
    )
    top_k: int = integer(0, _FROM_0, "gblinear: columns that greedy and thrifty take in a round, 0 for all.")


@dataclass(frozen=True, kw_only=True)
class Params(OtherBoosterParams, ObjectiveParams, TreeParams, GeneralParams):
    """All settings of training, checked. None means the default.

    Raises ValueError for a value that is not allowed, NotImplementedError for one that XGBoost knows and gpuboost not yet.
    """

    @property
    def usual_cat_noise(self) -> float:
        """cat_noise by the objective, the most that it is by default."""
        return GRADIENT_NOISE.get(self.objective, 0.0) * self.chance / CHANCE if self.split_gain is None else 0.0

    @property
    def chance(self) -> float:
        """What the variance of gradients is times in the default of cat_noise (kernels/gradient_noise.py)."""
        return CHANCE * (BESIDE_STATISTICS if self.cat_encoding == "statistics" else 1)

    def __post_init__(self) -> None:
        for name, (default, stored) in _DEFAULTS.items():  # few differ: 140 -> 20 µs
            if (value := getattr(self, name)) is not stored:
                object.__setattr__(self, name, stored if value is default else check_param(name, value))
        if self.max_delta_step is None:
            object.__setattr__(self, "max_delta_step", 0.7 if self.objective == "count:poisson" else 0.0)
        is_linear = self.booster == "gblinear"
        for name, of_trees, of_linear in (("learning_rate", 0.3, 0.5), ("reg_lambda", 1.0, 0.0), ("updater", None, "shotgun")):
            if getattr(self, name) is None:
                object.__setattr__(self, name, of_linear if is_linear else of_trees)
        self._check_linear(is_linear)
        if self.tree_method == "exact" and self.device.startswith("cuda"):
            raise ValueError(f"device must be 'cpu' with tree_method='exact', got {self.device!r}. Use 'hist' on a GPU.")
        if self.tree_method == "gpu_hist":
            if self.device == "cpu":
                raise ValueError("device must be 'cuda' with tree_method='gpu_hist', got 'cpu'. Use tree_method='hist'.")
            object.__setattr__(self, "tree_method", "hist")
            object.__setattr__(self, "device", "cuda" if self.device == "auto" else self.device)
        if self.output_sketch is not None and self.multi_strategy != "multi_output_tree":
            raise ValueError(
                f"multi_strategy must be 'multi_output_tree' with output_sketch={self.output_sketch!r}, got "
                f"{self.multi_strategy!r}. Leave output_sketch out: a tree of one output is searched by that."
            )
        if self.sketch_proposals == "local" and self.tree_method != "approx":
            raise ValueError(
                f"tree_method must be 'approx' with sketch_proposals='local', got {self.tree_method!r}. "
                "Use tree_method='approx', or leave sketch_proposals out."
            )

    def _check_linear(self, is_linear: bool) -> None:
        if is_linear and (self.device.startswith("cuda") or self.tree_method == "gpu_hist"):
            raise ValueError(f"device must be 'cpu' with booster='gblinear', got {self.device!r}. Use 'cpu', or leave it out.")
        for name in ("monotone_constraints", "interaction_constraints"):
            if is_linear and getattr(self, name):
                raise ValueError(f"{name} must be empty with booster='gblinear', got {getattr(self, name)!r}. Leave it out.")
        if is_linear and self.process_type == "update":
            raise ValueError("process_type must be 'default' with booster='gblinear', got 'update'. Leave it out.")
        updaters = ("shotgun", "coord_descent") if is_linear else ("refresh", "prune", "refresh,prune")
        if self.process_type == "update" and self.updater is None:
            raise ValueError("updater must be 'refresh', 'prune' or 'refresh,prune' with process_type='update'. Use 'refresh'.")
        if self.updater is not None and (self.updater not in updaters or not is_linear and self.process_type == "default"):
            raise ValueError(
                f"updater must be None with booster={self.booster!r} and process_type={self.process_type!r}, got "
                f"{self.updater!r}. Leave it out: 'shotgun' and 'coord_descent' belong to booster='gblinear', 'refresh' and "
                "'prune' to process_type='update'."
            )
        if is_linear and self.updater == "shotgun" and self.feature_selector not in ("cyclic", "shuffle"):
            raise ValueError(
                f"feature_selector must be 'cyclic' or 'shuffle' with updater='shotgun', got {self.feature_selector!r}. Use "
                "updater='coord_descent'."
            )

    @property
    def drops_trees(self) -> bool:
        """Whether rounds leave trees out; of gbtree, too, as in XGBoost since 3.4."""
        return self.booster == "dart" or self.booster == "gbtree" and (self.rate_drop > 0 or self.one_drop)

    @property
    def training_device(self) -> str:
        """The device to train on: exact search, linear models and updates stay on the CPU."""
        is_on_cpu = self.tree_method == "exact" or self.booster == "gblinear"
        is_on_cpu |= self.process_type == "update"
        return "cpu" if is_on_cpu else self.device

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


@dataclass(frozen=True, kw_only=True)
class GivenSearch(Params):
    """Params where a TreeObjective gives the gradients that splits are searched by, n_given of them."""

    n_given: int

    @staticmethod
    def of(params: Params, n_given: int) -> "GivenSearch":
        return GivenSearch(**{name: getattr(params, name) for name in FIELDS}, n_given=n_given)

    @property
    def sketch_method(self) -> str:
        return "given"

    def searched_outputs(self, leaf_size: int) -> int:
        return self.n_given

    def is_sketched(self, leaf_size: int) -> bool:
        return True


FIELDS = {f.name: f for f in fields(Params)}
# As they are written above, and as they are stored.
_DEFAULTS = {
    name: (f.default, f.default if f.default is None else f.metadata["rule"].parse(f.default)) for name, f in FIELDS.items()
}


def most_leaves(max_depth: int, max_leaves: int, n_rows: int = 0) -> int:
    """Leaves of a tree that both parameters, and so many rows, allow; of each, 0 is no limit."""
    return min((limit for limit in (2**max_depth if max_depth > 0 else 0, max_leaves, n_rows) if limit > 0), default=0)


def check_param(name: str, value: Any) -> Any:
    """`value` as parameter `name` stores it; the default for None.

    Raises ValueError when it is not allowed.
    """
    if value is None:
        return _DEFAULTS[name][1]
    try:
        return FIELDS[name].metadata["rule"].parse(value)
    except ValueError as refused:
        raise ValueError(f"{with_aliases(name)} must be {refused}, got {value!r}. {_fix(name, value)}") from None


def _fix(name: str, value: Any) -> str:
    """The last sentence of a refusal: the word that was probably meant, the parameter's own advice, or its default."""
    default, rule = FIELDS[name].default, FIELDS[name].metadata["rule"]
    close = get_close_matches(value, re.findall(r"'(\w+)'", rule.allowed), n=1) if isinstance(value, str) else []
    if close:
        return f"Did you mean {close[0]!r}?"
    return rule.fix or ("Leave it out for the default." if default is None else f"The default is {default!r}.")


def with_aliases(name: str) -> str:
    """The name as documentation and errors show it: seed (random_state)."""
    aliases = ", ".join(alias for alias, target in ALIASES.items() if target == name)
    return f"{name} ({aliases})" if aliases else name
