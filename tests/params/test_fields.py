"""Parameters: each row says what one of them takes, turns into, and refuses."""

import json
import math
import pickle
import re
from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuboost.params import ALIASES, Params, check_param, parse_params

NAN, INF = math.nan, math.inf
FROM_ZERO = ([(0, 0.0), ("0.3", 0.3), (np.float32(0.5), 0.5)], [-1e-9, "-1", NAN, INF, "nan", "one", True, [1]])
ABOVE_ZERO = ([(1e-9, 1e-9), ("0.3", 0.3), (7, 7.0)], [0, -1, NAN, INF, "", "0", "1e400", False, (1,)])
FROM_0_TO_1 = ([(0, 0.0), ("0.1", 0.1), (1, 1.0)], [-0.1, 1.1, NAN, "some"])
SHARE = ([(1, 1.0), ("0.3", 0.3), (1e-9, 1e-9)], [0, 1.5, -1, NAN, "half", True])
COUNT = ([(0, 0), ("7", 7), (7.0, 7), ("7.0", 7), (np.int64(7), 7)], [-1, 1.5, "1.5", NAN, INF, 2**31, True, "six", [6]])
FROM_ONE = ([(1, 1), ("7", 7), (2**31 - 1, 2**31 - 1)], [0, -1, 1.5, NAN, INF, 2**31, "six"])
FLAG = ([(True, True), (0, False), ("true", True), ("False", False), ("1", True), (np.True_, True)], [2, "yes", "", NAN, []])
ALPHAS = ([(0.5, (0.5,)), ([0.1, 0.9], (0.1, 0.9)), ("[1E-1,9E-1]", (0.1, 0.9))], [-0.1, [1.1], NAN, []])

# name → (given, stored) pairs that are accepted, and values that are refused
AVAILABLE = {
    "booster": ([("gbtree", "gbtree"), ("dart", "dart")], ["tree", "GBTREE", "dartt", "", 1, ["gbtree"]]),
    "device": (
        [
            ("auto", "auto"),
            ("cpu", "cpu"),
            ("cuda", "cuda"),
            ("cuda:1", "cuda:1"),
            ("gpu", "cuda"),
            ("gpu:2", "cuda:2"),
            ("CPU", "cpu"),
        ],
        ["cuda:", "cuda:-1", "cuda:x", "cpu:0", "auto:0", "tpu", "", 0],
    ),
    "nthread": ([(0, 0), (-1, 0), (-2, -2), (1, 1), ("8", 8)], [1.5, NAN, "all", True]),
    "verbosity": ([(0, 0), (3, 3), ("2", 2)], [-1, 4, NAN, "loud", True]),
    "seed": ([(0, 0), (-7, -7), (2**63 - 1, 2**63 - 1), (str(2**62 + 1), 2**62 + 1)], [2**63, -(2**63) - 1, 0.5, NAN, "x"]),
    "validate_parameters": FLAG,
    "histogram_memory": ([(1, 1), (2**40, 2**40)], [0, -1, 0.5, NAN, INF, "1 GB"]),
    "tree_method": ([("auto", "auto"), ("hist", "hist"), ("approx", "approx")], ["histogram", "gpu", 1]),
    "grow_policy": ([("depthwise", "depthwise"), ("lossguide", "lossguide")], ["lossgide", 0]),
    "learning_rate": ABOVE_ZERO,
    "gamma": FROM_ZERO,
    "max_depth": COUNT,
    "max_leaves": COUNT,
    "max_bin": ([(2, 2), (65535, 65535), ("64", 64)], [0, 1, 65536, 100_000, 2.5, NAN, "many"]),
    "min_child_weight": FROM_ZERO,
    "max_delta_step": FROM_ZERO,
    "reg_lambda": FROM_ZERO,
    "reg_alpha": FROM_ZERO,
    "colsample_bytree": SHARE,
    "colsample_bylevel": SHARE,
    "colsample_bynode": SHARE,
    "feature_weights": (
        [
            ([1, 0.5, 0], (1.0, 0.5, 0.0)),
            (np.arange(3), (0.0, 1.0, 2.0)),
            ("[1, 2]", (1.0, 2.0)),
            ("()", ()),
            ([], ()),
            (3, (3.0,)),
        ],
        [[1, -1], [NAN], [INF], [1e39], "heavy", [[1]], [True]],
    ),
    "interaction_constraints": (
        [
            ([[0, 1], (3, 2, 2)], ((0, 1), (2, 3))),
            ("[[0, 1], [2, 3, 4]]", ((0, 1), (2, 3, 4))),
            ('[["b","a"]]', (("a", "b"),)),
            (" [['b', 1], ('a',)] ", ((1, "b"), ("a",))),
            ([{"b", 1, "a"}, frozenset({2.0})], ((1, "a", "b"), (2,))),
            (np.array([[0, 1], [1, 2]]), ((0, 1), (1, 2))),
            ('[["\\u00e9"]]', (("é",),)),
            ([np.array([np.int32(4)])], ((4,),)),
        ],
        [[0, 1], "[0, 1]", "[[0, 1], [2]", [[]], [[0], []], "0", 0, "a", [[0.5]], [[None]], [[True]], {"a": 1}, ["ab"], "x" * 99],
    ),
    "sketch_proposals": ([("global", "global")], ["both"]),
    "objective": ([("binary:logistic", "binary:logistic")], ["", 1, len]),
    "eval_metric": (
        [("auc", ("auc",)), (["auc", "error@0.7"], ("auc", "error@0.7")), (("auc", "auc"), ("auc",)), ([], ())],
        [len, [len], "", [""], 3],
    ),
    "disable_default_eval_metric": FLAG,
    "base_score": (
        [
            (0.5, (0.5,)),
            ("0.5", (0.5,)),
            ("[5E-1]", (0.5,)),
            ("(1, -2)", (1.0, -2.0)),
            ([1, 2], (1.0, 2.0)),
            (np.arange(2), (0.0, 1.0)),
        ],
        [NAN, INF, "[nan]", [0.5, NAN], [], "[]", "half", [[1]], 10**400, 3.5e38, -3.5e38],
    ),
    "num_class": COUNT,
    "num_target": FROM_ONE,
    "monotone_constraints": (
        [
            ("(1,-1)", (1, -1)),
            ("[0, 1]", (0, 1)),
            ("(1)", (1,)),
            ([1.0, "-1"], (1, -1)),
            (np.array([0, 1]), (0, 1)),
            ({"age": 1, 2: -1}, (("age", 1), (2, -1))),
            ("{'age': 1}", (("age", 1),)),
            ([["age", 1]], (("age", 1),)),
        ],
        [2, "2", "(2)", [1, NAN], [0.5], [True], "rising", "(1,", "{[]: 1}", {"age": 2}, {1.5: 1}, {True: 1}, [["age"]], {1, -1}],
    ),
    "scale_pos_weight": (ABOVE_ZERO[0], [*ABOVE_ZERO[1], 3.5e38]),
    "huber_slope": ABOVE_ZERO,
    "aft_loss_distribution": ([("extreme", "extreme"), ("logistic", "logistic")], ["gumbel", 1]),
    "aft_loss_distribution_scale": ABOVE_ZERO,
    "tweedie_variance_power": ([(1, 1.0), ("1.2", 1.2)], [0.9, 2, NAN, "x"]),
    "quantile_alpha": ALPHAS,
    "expectile_alpha": ALPHAS,
    "split_gain": ([("fair", "fair"), ("fair@price=0.5", "fair@price=0.5")], ["", 3, ["fair"]]),
    "subsample": SHARE,
    "num_parallel_tree": ([(4, 4), ("3", 3)], [0, -1, 1.5, NAN]),
    "sample_type": ([("weighted", "weighted")], ["all"]),
    "normalize_type": ([("forest", "forest")], ["all"]),
    "rate_drop": FROM_0_TO_1,
    "one_drop": FLAG,
    "skip_drop": FROM_0_TO_1,
    "sampling_method": ([("uniform", "uniform"), ("gradient_based", "gradient_based")], ["gradient", 1]),
    "output_sketch": (
        [("top_outputs:05", "top_outputs:5"), *((name, name) for name in ("random_sampling:2", "random_projection:9"))],
        ["top_outputs", "top_outputs:0", "top_outputs:x", "pca:3", 5],
    ),
    "multi_strategy": ([(name, name) for name in ("one_output_per_tree", "multi_output_tree")], ["both", "multi_output"]),
    "cat_encoding": ([(name, name) for name in ("sets", "statistics", "ordinal")], ["onehot", "", 1]),
    "max_cat_to_onehot": FROM_ONE,
    "max_cat_threshold": FROM_ONE,
    "cat_smooth": FROM_ZERO,
    "cat_l2": FROM_ZERO,
    "min_data_per_group": FROM_ZERO,
    "cat_noise": FROM_ZERO,
    "lambdarank_pair_method": ([("mean", "mean"), ("topk", "topk")], ["all", 1]),
    "lambdarank_num_pair_per_sample": ([(8, 8), ("3", 3), (2**32 - 1, None)], [0, -1, 1.5, 2**32, NAN]),
    "lambdarank_normalization": FLAG,
    "lambdarank_score_normalization": FLAG,
    "lambdarank_unbiased": FLAG,
    "lambdarank_bias_norm": FROM_ZERO,
    "ndcg_exp_gain": FLAG,
    "feature_selector": ([(name, name) for name in ("cyclic", "shuffle", "random", "greedy", "thrifty")], ["best"]),
    "top_k": ([(3, 3), ("0", 0)], [-1, NAN]),
    "process_type": ([("default", "default")], ["refresh", 1]),
    "updater": ([(name, name) for name in ("shotgun", "coord_descent")], ["grow_skmaker", ""]),
    "refresh_leaf": FLAG,
}

DEFAULTS = asdict(Params())
REFUSED = [(name, bad) for name, (_, bads) in AVAILABLE.items() for bad in bads]


def test_the_tables_here_cover_every_parameter():
    assert AVAILABLE.keys() == DEFAULTS.keys()


@pytest.mark.parametrize("name, value, stored", [(n, v, s) for n, (good, _) in AVAILABLE.items() for v, s in good])
def test_accepted_value_is_stored_in_its_own_type(name, value, stored):
    needed = {"output_sketch": {"multi_strategy": "multi_output_tree"}, "updater": {"booster": "gblinear"}}.get(name, {})
    result = getattr(parse_params({name: value, **needed}), name)
    assert result == stored and type(result) is type(stored)


@pytest.mark.parametrize("name, value", REFUSED)
def test_refused_value_is_named_with_what_is_allowed_and_a_fix(name, value):
    with pytest.raises(ValueError) as error:
        parse_params({name: value})
    text = str(error.value)
    assert text.startswith(name) and " must be " in text and f", got {value!r}. " in text
    assert re.search(r"(Use|Pass|Leave|Did you mean|The default is) .+[.?]$", text)


@pytest.mark.parametrize("name", DEFAULTS)
def test_default_can_be_given_as_itself_as_none_and_as_text(name):
    default = DEFAULTS[name]
    assert parse_params({name: default}) == parse_params({name: None}) == Params(**{name: None}) == Params()
    if isinstance(default, (bool, int, float)):
        assert parse_params({name: str(default)}) == Params()


@pytest.mark.parametrize("tree_method", ["auto", "hist"])
def test_local_proposals_need_approx(tree_method):
    assert parse_params({"tree_method": "approx", "sketch_proposals": "local"}).sketch_proposals == "local"
    with pytest.raises(ValueError, match=f"must be 'approx' with sketch_proposals='local', got '{tree_method}'. Use tree"):
        parse_params({"tree_method": tree_method, "sketch_proposals": "local"})


@pytest.mark.parametrize("sets", [[["a", 1.5]], [[0], [None]], [[True]]])
def test_sets_of_what_is_no_column_are_told_what_sets_are(sets):
    with pytest.raises(ValueError, match="^interaction_constraints must be sets of columns by name or number, such as "):
        parse_params({"interaction_constraints": sets})


@pytest.mark.parametrize("name", ["monotone_constraints", "interaction_constraints"])
@pytest.mark.parametrize("empty", ["", "()", "[]", (), [], {}])
def test_empty_constraints_are_no_constraints(name, empty):
    assert parse_params({name: empty}) == Params()


@pytest.mark.parametrize("column", [0.5, True, None, [1]])
def test_a_column_that_is_neither_name_nor_number_is_answered_by_what_sets_look_like(column):
    with pytest.raises(ValueError, match=r"^interaction_constraints must be sets of columns by name or number, such as \[\["):
        parse_params({"interaction_constraints": [[0, column]]})


def test_message_of_a_refused_bin_count():
    with pytest.raises(ValueError, match=r"^max_bin must be between 2 and 65535, got 1\. Use 256 for most data\.$"):
        parse_params({"max_bin": 1})


def test_misspelt_choice_is_answered_with_the_nearest():
    with pytest.raises(ValueError, match=r"grow_policy must be .*, got 'lossgide'\. Did you mean 'lossguide'\?"):
        parse_params({"grow_policy": "lossgide"})


@pytest.mark.parametrize("device, stored", [("auto", "cuda"), ("cuda:1", "cuda:1"), ("gpu", "cuda"), (None, "cuda")])
def test_gpu_hist_means_hist_on_cuda(device, stored):
    params = parse_params({"tree_method": "gpu_hist", "device": device})
    assert (params.tree_method, params.device) == ("hist", stored)


def test_gpu_hist_contradicts_the_cpu():
    with pytest.raises(ValueError, match="Use tree_method='hist'"):
        parse_params({"tree_method": "gpu_hist", "device": "cpu"})


def test_no_limit_on_depth_and_leaves_together_is_allowed():
    params = parse_params({"grow_policy": "lossguide", "max_depth": 0, "max_leaves": 0})
    assert (params.max_depth, params.max_leaves) == (0, 0)


def test_params_are_checked_however_they_are_made_and_cannot_be_changed():
    params = Params(max_depth="3", base_score=[1, 2])
    assert params.max_depth == 3 and params.base_score == (1.0, 2.0)
    with pytest.raises(ValueError, match="max_depth must be"):
        replace(params, max_depth=-1)
    with pytest.raises(AttributeError):
        params.max_depth = 4
    assert hash(params) == hash(replace(params)) and pickle.loads(pickle.dumps(params)) == params


@given(st.integers(-(2**63), 2**63 - 1))
def test_integer_text_is_exact(seed):
    assert check_param("seed", str(seed)) == seed


@given(st.floats(0, allow_infinity=False))
def test_number_text_is_exact(value):
    assert check_param("gamma", repr(value)) == value


@given(st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.lists(st.floats()), st.binary()))
def test_any_value_of_any_parameter_is_stored_or_refused_in_words(value):
    for name in DEFAULTS:
        try:
            stored = check_param(name, value)
        except (ValueError, NotImplementedError) as error:
            assert str(error).startswith(name)
        else:
            assert check_param(name, stored) == stored


def test_defaults_and_aliases_are_xgboosts():
    xgboost = pytest.importorskip("xgboost")
    data = xgboost.DMatrix(np.arange(8.0).reshape(4, 2), np.arange(4) % 2)

    def settings(params):
        found = {}

        def collect(node):
            for key, value in node.items():
                collect(value) if isinstance(value, dict) else found.setdefault(key, value)

        collect(json.loads(xgboost.train({"objective": "binary:logistic", **params}, data, 1).save_config())["learner"])
        return found

    theirs = settings({})
    names = (set(theirs) & set(DEFAULTS)) - {"device", "nthread", "objective", "base_score", "updater"}
    assert {"max_depth", "gamma", "min_child_weight", "scale_pos_weight", "max_cat_threshold", "multi_strategy"} < names
    for name in names:
        given = theirs[name]
        # XGBoost keeps float32: 0.3 comes back as 0.300000012
        stored = check_param(name, float(np.float32(DEFAULTS[name])) if isinstance(DEFAULTS[name], float) else DEFAULTS[name])
        assert check_param(name, given) == (pytest.approx(stored, rel=1e-7) if isinstance(stored, float) else stored), name
    for alias, name in ALIASES.items():
        assert float(settings({alias: 2})[name]) == 2


def test_what_kernels_ask_of_the_parameters():
    params = Params()
    assert (params.masks_features, params.proposals, params.sampling) == (False, None, None)
    for masks in ({"colsample_bylevel": 0.5}, {"colsample_bynode": 0.5}, {"interaction_constraints": [[0, 1]]}):
        assert Params(**masks).masks_features
    assert not Params(colsample_bytree=0.5).masks_features
    assert Params(tree_method="approx", sketch_proposals="local").proposals == "local"
    assert Params(subsample=0.5, sampling_method="gradient_based").sampling == "gradient_based"
    assert Params(sampling_method="gradient_based").sampling is None
