"""Models are those recorded in recorded_digests.json; `python tests/recorded_digests.py --write` records them anew."""

import pytest
from recorded_digests import CONFIGURATIONS, compute_all, covering, difference, model_of, options_of, recorded, sample

from gpuboost.objectives import objective_names
from gpuboost.params import Params

pytestmark = pytest.mark.long

SAMPLE = sample()
# In the simulator, where each takes seconds, half of them; `python tests/recorded_digests.py` trains all.
SIMULATED = [name for name in CONFIGURATIONS if "backend=cuda" in name]
LEFT_OUT = {*SIMULATED} - {*covering(SIMULATED)}
REST = [name for name in CONFIGURATIONS if name not in {*SAMPLE, *LEFT_OUT}]


def check(names):
    before = recorded()
    changes = difference({name: before[name] for name in names if name in before}, compute_all(names))
    assert not changes, f"models changed:\n{changes}"


def test_a_sample_is_as_recorded():
    check(SAMPLE)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(16))  # none so long that another process would wait for its end
def test_the_others_are_as_recorded(part):
    check(REST[part::16])


# ---- what is recorded


def test_exactly_the_configurations_are_recorded():
    assert difference(recorded(), dict.fromkeys(CONFIGURATIONS)).splitlines()[:1] == [
        f"{len(CONFIGURATIONS)} of {len(CONFIGURATIONS)} models changed:"
    ]
    assert len(CONFIGURATIONS) >= 300


def test_layouts_and_backends_do_not_change_a_model():
    """Nearly all models without a layout differ from each other, so that they tell something."""
    digests = recorded()
    assert {name for name, digest in digests.items() if digest != digests[model_of(name)]} == set()
    models = {name: digest for name, digest in digests.items() if name == model_of(name)}
    assert len(set(models.values())) > 0.95 * len(models)


def test_everything_has_a_configuration():
    """What there is to choose from, by the library's own lists where it has them."""
    options = {option for name in CONFIGURATIONS for option in options_of(name)}
    assert {f"objective={name}" for name in (*objective_names(), "custom")} <= options
    for backend in ("cuda", "naive"):
        trained = {options_of(name)[0] for name in CONFIGURATIONS if f"backend={backend}" in name}
        assert {f"objective={name}" for name in objective_names()} <= trained, backend
    rules = {name: field.metadata["rule"] for name, field in Params.__dataclass_fields__.items()}
    for name in ("tree_method", "grow_policy", "sampling_method", "sketch_proposals", "cat_encoding"):
        values = {value.strip("'") for value in rules[name].allowed.replace(" or ", ", ").split(", ")}
        used = {option.partition("=")[2] for option in options if option.startswith(f"{name}=")}
        assert values - {"auto", "gpu_hist"} - used <= {"global", "ordinal"}, name  # what names leave out
    keys = {option.partition("=")[0] for option in options}
    elsewhere = {  # no effect on a model, or values of no interest
        *("booster", "device", "verbosity", "validate_parameters", "multi_strategy"),
        *("eval_metric", "disable_default_eval_metric", "num_target"),
        *("process_type", "refresh_leaf"),  # of models that are there: tests/test_updating.py
    }
    assert rules.keys() - keys - elsewhere == set()
    counts = {"table": 5, "as": 5, "backend": 2, "weights": 2, "workers": 2, "continued": 2, "search": 2, "estimator": 2}
    for key, n in counts.items():
        assert len([option for option in options if option.startswith(f"{key}=")]) == n, key
    for backend, n in {"cuda": 40, "naive": 10}.items():
        assert len([name for name in CONFIGURATIONS if f"backend={backend}" in name]) >= n
    assert {option for name in SAMPLE for option in options_of(name)} == options


# ---- the report


def test_the_difference_names_what_changed_models_share():
    before = {f"tree={tree}, rows={rows} | threads={threads}": "a" for tree in "xyz" for rows in (1, 2) for threads in (1, 2)}

    def after(*changed):
        return {name: "b" if name in changed else "a" for name in before}

    of_x = [name for name in before if "tree=x" in name]
    assert difference(before, before) == ""
    assert difference(before, after(*of_x)) == "4 of 12 models changed:\n  all 4 with tree=x"
    assert difference(before, after(*of_x, "tree=y, rows=1 | threads=2")).splitlines() == [
        "5 of 12 models changed:", "  all 4 with tree=x", "  tree=y, rows=1 | threads=2",
    ]  # fmt: skip
    pair = [name for name in before if "tree=y" in name and "threads=2" in name]
    assert difference(before, after(*pair)) == "2 of 12 models changed:\n  all 2 with tree=y and threads=2"
    assert difference(before, after(*before)) == "12 of 12 models changed:\n  all"
    assert difference(before, before | {"new": "a"}) == "not recorded: new"
    assert difference(before | {"old": "a"}, before) == "recorded, but no configuration any more: old"
