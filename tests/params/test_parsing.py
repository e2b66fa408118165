"""A mapping of parameters: aliases, unknown names, pairs; and the reference."""

import json
import math
import re
from dataclasses import asdict, fields

import pytest

from gpuboost.params import ALIASES, Params, describe_params, parse_params
from gpuboost.params.parsing import ELSEWHERE

NAN = math.nan
ROUNDS = "Pass num_boost_round to train(), n_estimators to an estimator."


@pytest.mark.parametrize("alias, name", ALIASES.items())
def test_alias_sets_its_parameter_and_may_agree_with_it_but_not_differ(alias, name):
    assert getattr(parse_params({alias: "2"}), name) == 2
    assert parse_params({alias: "2", name: 2.0}) == parse_params({name: 2})
    with pytest.raises(ValueError, match=f"{name} was given twice, as {alias}=2 and {name}=3. Keep one of them."):
        parse_params({alias: 2, name: 3})


def test_error_of_an_aliased_parameter_shows_its_aliases():
    with pytest.raises(ValueError, match=r"^learning_rate \(eta\) must be greater than 0, got -1\. Use 0\.3"):
        parse_params({"eta": -1})


@pytest.mark.parametrize("eps, bins", [(0.5, 2), (0.3, 4), (0.03, 34), (0.1, 10), ("0.01", 100), (1 / 49, 49), (1 / 256, 256)])
def test_sketch_eps_sets_the_bins_so_that_each_is_smaller(eps, bins):
    assert parse_params({"sketch_eps": eps}).max_bin == bins
    with pytest.raises(ValueError, match="max_bin was given twice, as sketch_eps="):
        parse_params({"sketch_eps": eps, "max_bin": bins + 1})


@pytest.mark.parametrize("eps", [0, -1, 0.7, NAN, "x", 5e-324])
def test_sketch_eps_out_of_range_is_refused_under_its_own_name(eps):
    with pytest.raises(ValueError, match=r"^sketch_eps must be .* Use max_bin=256"):
        parse_params({"sketch_eps": eps})


@pytest.mark.parametrize(
    "name, hint",
    [
        ("max_dept", "unknown parameter 'max_dept'. Did you mean 'max_depth'?"),
        ("lamda", "unknown parameter 'lamda'. Did you mean 'lambda'?"),
        ("max_bins", "unknown parameter 'max_bins'. Did you mean 'max_bin'?"),
        ("zzz", "unknown parameter 'zzz'."),
        ("colsample_by_tree", "unknown parameter 'colsample_by_tree'. Did you mean 'colsample_bytree'?"),
        ("n_estimators", f"'n_estimators' is not a parameter of training. {ROUNDS}"),
        ("max_iter", f"'max_iter' is not a parameter of training. {ROUNDS}"),
        ("n_estimator", f"unknown parameter 'n_estimator'. Did you mean 'n_estimators'? {ROUNDS}"),
        (
            "class_weight",
            "'class_weight' is not a parameter of training. Pass sample_weight to fit() (weight to DMatrix()), or use "
            "scale_pos_weight for two classes.",
        ),
        ("sample_weight", "'sample_weight' is not a parameter of training. Pass it to fit(), or as weight to DMatrix()."),
        ("feature_fraction", "'feature_fraction' is not a parameter of training. Use colsample_bytree."),
        ("max_features", "'max_features' is not a parameter of training. Use colsample_bynode, a share of the features."),
        ("l2_leaf_reg", "'l2_leaf_reg' is not a parameter of training. Use reg_lambda."),
        ("lambda_l1", "'lambda_l1' is not a parameter of training. Use reg_alpha."),
        ("min_split_gain", "'min_split_gain' is not a parameter of training. Use gamma."),
        ("interaction_cst", "'interaction_cst' is not a parameter of training. Use interaction_constraints."),
        ("verbose", "'verbose' is not a parameter of training. Pass it to fit(), or as verbose_eval to train()."),
    ],
)
@pytest.mark.parametrize("value", [3, None])
def test_unknown_name_is_refused_with_a_suggestion(name, hint, value):
    with pytest.raises(ValueError, match=f"^{re.escape(hint)}$"):
        parse_params({name: value})


def test_no_name_is_both_a_parameter_and_elsewhere():
    assert not set(ELSEWHERE) & {*asdict(Params()), *ALIASES, "sketch_eps"}


def test_all_unknown_names_are_reported_together():
    with pytest.raises(ValueError, match="'max_dept'.*'grow_polisy'"):
        parse_params({"max_dept": 3, "grow_polisy": "depthwise"})


def test_without_validation_unknown_names_warn_and_known_ones_are_still_checked(recwarn):
    with pytest.warns(UserWarning, match="Did you mean 'max_depth'?"):
        params = parse_params({"max_dept": 3, "validate_parameters": False, "eta": 0.1})
    assert params == Params(validate_parameters=False, learning_rate=0.1)
    with pytest.raises(ValueError, match="max_bin must be"):
        parse_params({"max_bin": 1, "validate_parameters": "0"})
    recwarn.clear()
    parse_params({"max_dept": 3, "validate_parameters": False, "verbosity": 0})
    assert not recwarn


def test_pairs_may_repeat_the_metric_but_not_change_their_mind():
    pairs = [("eval_metric", "auc"), ("max_depth", 3), ("eval_metric", ["error", "auc"]), ("max_depth", "3")]
    assert parse_params(pairs) == Params(eval_metric=("auc", "error"), max_depth=3)
    with pytest.raises(ValueError, match="max_depth was given twice"):
        parse_params([("max_depth", 3), ("max_depth", 4)])


@pytest.mark.parametrize("params", ["max_depth", ["max_depth"], [("max_depth",)], [(1, 2)], {1: 2}])
def test_what_is_no_mapping_is_refused(params):
    with pytest.raises(ValueError, match="params must be a mapping or a list of"):
        parse_params(params)


def test_nothing_gives_the_defaults():
    assert parse_params() == parse_params({}) == parse_params([]) == Params()


def test_params_survive_being_written_as_a_mapping():
    params = parse_params({"eta": 0.1, "base_score": [0.1, 0.2], "eval_metric": "auc", "n_jobs": -1, "tree_method": "gpu_hist"})
    assert parse_params(json.loads(json.dumps(asdict(params)))) == params


def test_description_has_every_parameter_with_its_aliases():
    text = describe_params()
    for f in fields(Params):
        assert re.search(rf"^\| {f.name}[ |(].*{re.escape(repr(f.default))}", text, re.MULTILINE)
    assert "| seed (random_state) | 0 |" in text
