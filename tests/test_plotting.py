"""Pictures: what is drawn is what the model holds, and what is not installed is named."""

import re
import subprocess
import sys

import numpy as np
import pytest
from small_tables import make_table

import gpuboost as gb

X, Y, _ = make_table("binary:logistic")


@pytest.fixture
def plt():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    yield plt
    plt.close("all")


@pytest.fixture(scope="module")
def booster():
    data = gb.DMatrix(X, Y, feature_names=["age", "net income", "f[2]", "d"])
    return gb.train({"objective": "binary:logistic", "max_depth": 3}, data, 5)


def texts(ax):
    return [text.get_text() for text in ax.texts]


@pytest.mark.parametrize("kind", ["weight", "gain", "cover", "total_gain", "total_cover"])
def test_bars_are_the_scores_with_the_largest_on_top(plt, booster, kind):
    scores = booster.get_score(importance_type=kind)
    ax = gb.plot_importance(booster, importance_type=kind)
    names = [label.get_text() for label in ax.get_yticklabels()]
    widths = [bar.get_width() for bar in ax.patches]
    assert dict(zip(names, widths)) == scores and widths == sorted(widths)
    assert ax.get_xlim()[1] > max(widths) and ax.get_xlim()[0] == 0
    fewer = gb.plot_importance(booster, importance_type=kind, max_num_features=2, values_format="{v:.1f}")
    assert texts(fewer) == [f"{w:.1f}" for w in widths[-2:]]
    for none in (0, -1):
        with pytest.raises(ValueError, match=f"max_num_features must be at least 1, got {none}"):
            gb.plot_importance(booster, max_num_features=none)


@pytest.mark.parametrize("grid", [True, False])
def test_a_grid_is_drawn_where_it_is_asked_for(plt, booster, grid):
    for ax in (gb.plot_importance(booster, grid=grid), gb.plot_metric({"t": {"auc": [0.5, 0.6]}}, grid=grid)):
        assert {line.get_visible() for line in ax.get_xgridlines()} == {grid}


def test_limits_are_pairs(plt, booster):
    for name, given in (("xlim", "string"), ("ylim", (1,)), ("xlim", 3)):
        with pytest.raises(ValueError, match=rf"{name} must be a pair \(low, high\), got"):
            gb.plot_importance(booster, **{name: given})
    assert gb.plot_importance(booster, xlim=(0, 5), ylim=[0, 2]).get_xlim() == (0, 5)


def test_importance_takes_a_dict_an_estimator_and_given_axes(plt, booster):
    pytest.importorskip("sklearn")
    _, ax = plt.subplots()
    assert gb.plot_importance({"a": 1.0, "b": 2.5}, ax=ax, title="T", xlabel="L", show_values=False) is ax
    assert (ax.get_title(), ax.get_xlabel(), texts(ax)) == ("T", "L", [])
    estimator = gb.GPUBoostClassifier(n_estimators=2).fit(X, Y)
    assert len(gb.plot_importance(estimator).patches) == len(estimator.get_booster().get_score())


def test_curves_are_the_history(plt):
    data, history = gb.DMatrix(X, Y), {}
    params = {"objective": "binary:logistic", "eval_metric": ["error", "logloss"]}
    gb.train(params, data, 4, evals=[(data, "a"), (data, "b")], evals_result=history, verbose_eval=False)
    ax = gb.plot_metric(history, "logloss")
    assert [line.get_ydata().tolist() for line in ax.lines] == [history["a"]["logloss"], history["b"]["logloss"]]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["a", "b"] and ax.get_ylabel() == "logloss"
    assert len(gb.plot_metric(history, "error", dataset_names=["b"]).lines) == 1
    with pytest.raises(ValueError, match="metric must be one of error, logloss"):
        gb.plot_metric(history)
    with pytest.raises(ValueError, match="dataset_names must be among a, b, got 'c'"):
        gb.plot_metric(history, "error", dataset_names=["c"])


@pytest.mark.parametrize("as_pandas", [False, True])
def test_cv_is_drawn_with_a_band_of_its_deviation(plt, as_pandas):
    pytest.importorskip("pandas")
    result = gb.cv({"objective": "binary:logistic"}, gb.DMatrix(X, Y), 4, as_pandas=as_pandas)
    ax = gb.plot_metric(result)
    np.testing.assert_array_equal(ax.lines[1].get_ydata(), result["test-logloss-mean"])
    band = ax.collections[1].get_paths()[0].vertices[:, 1]
    highest = np.max(np.add(result["test-logloss-mean"], result["test-logloss-std"]))
    assert band.max() == pytest.approx(highest)


@pytest.mark.parametrize("rankdir", ["TB", "LR", None])
def test_every_node_and_branch_of_the_tree_is_drawn(plt, booster, rankdir):
    ax = gb.plot_tree(booster, tree_idx=1, rankdir=rankdir, with_stats=True)
    with pytest.warns(FutureWarning, match="is called tree_idx") as warned:
        assert texts(gb.plot_tree(booster, num_trees=1, rankdir=rankdir, with_stats=True)) == texts(ax)
    assert warned[0].filename == __file__
    tree = booster.model.trees[1]
    root = f"{booster.feature_names[tree.feature[0]]}<{tree.threshold[0]:.4g}"
    written = texts(ax)
    assert any(text.startswith(f"{root}\ngain={tree.gain[0]:.4g}") for text in written)
    n_branches = tree.n_nodes - 1
    assert len(ax.lines) == n_branches and len(written) == tree.n_nodes + n_branches
    left, n_splits = tree.default_left[tree.left_child >= 0].sum(), n_branches // 2
    for answer, n_missing in (("yes", left), ("no", n_splits - left)):
        assert (written.count(f"{answer}, missing"), written.count(answer)) == (n_missing, n_splits - n_missing)
    assert sum(line.get_linewidth() > 2 for line in ax.lines) == n_splits  # the bold ones are those of missing values
    leaves = [text for text in ax.texts if text.get_text().startswith("leaf=")]
    places = [text.get_position()[1 if rankdir == "LR" else 0] for text in leaves]
    assert len(set(places)) == tree.n_leaves  # side by side


def test_trees_are_worded_as_graphviz_words_them_with_fewer_digits(plt):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("graphviz")
    frame = pd.DataFrame({"kind": pd.Categorical(np.where(X[:, 0] > 0.5, "high", "low")), "x": X[:, 1]})
    booster = gb.train({"objective": "binary:logistic", "max_depth": 3}, gb.DMatrix(frame, Y), 1)
    labels = re.findall(r'label="(.*?)"', gb.to_graphviz(booster, with_stats=True).source, re.DOTALL)
    shortened = [re.sub(r"-?\d+\.\d+", lambda number: f"{float(number[0]):.4g}", label) for label in labels]
    drawn = texts(gb.plot_tree(booster, with_stats=True))
    assert sorted(drawn) == sorted(shortened) and any(text.startswith("kind in {low}") for text in drawn)


def test_of_a_boolean_column_yes_is_false(plt):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"flag": X[:, 0] > 0.5})
    for y in (frame["flag"], ~frame["flag"]):
        written = texts(gb.plot_tree(gb.train({}, gb.DMatrix(frame, y), 1)))
        assert sum(text.startswith("flag<") for text in written) == 1


@pytest.mark.filterwarnings("ignore:the first round split no node")
def test_one_leaf_is_a_tree(plt):
    booster = gb.train({"gamma": 1e9}, gb.DMatrix(X, Y), 1)
    assert len(texts(gb.plot_tree(booster))) == 1
    with pytest.raises(ValueError, match="the model has no split"):
        gb.plot_importance(booster)
    with pytest.raises(IndexError, match="tree_idx must be one of the model's 1 trees, got 1"):
        gb.plot_tree(booster, tree_idx=1)
    with pytest.raises(IndexError, match="got -2"):
        gb.plot_tree(booster, tree_idx=-2)
    assert texts(gb.plot_tree(gb.train({}, gb.DMatrix(X, Y), 3), tree_idx=-1)) == texts(
        gb.plot_tree(gb.train({}, gb.DMatrix(X, Y), 3), tree_idx=2)
    )


def test_a_linear_model_has_no_trees_to_draw(plt):
    booster = gb.train({"booster": "gblinear"}, gb.DMatrix(X, Y), 1)
    with pytest.raises(ValueError, match="booster='gblinear' has weights instead of trees. Draw them by plot_importance"):
        gb.plot_tree(booster)
    assert len(gb.plot_importance(booster).patches) == X.shape[1]


def test_graphviz_gets_the_source_that_xgboost_gives_it(booster):
    pytest.importorskip("graphviz")
    xgboost = pytest.importorskip("xgboost", minversion="3.1")
    peer = xgboost.Booster(model_file=booster.save_raw("json"))
    for options in (
        {},
        {"rankdir": "LR", "tree_idx": 2, "with_stats": True},
        {"yes_color": "#111111", "condition_node_params": {"shape": "box"}, "leaf_node_params": {"style": "filled"}},
    ):
        assert gb.to_graphviz(booster, **options).source == xgboost.to_graphviz(peer, **options).source
    with pytest.warns(FutureWarning, match="num_trees, XGBoost's old name, is called tree_idx"):
        assert gb.to_graphviz(booster, num_trees=2).source == gb.to_graphviz(booster, tree_idx=2).source
    assert gb.to_graphviz(booster, num_trees=None).source == gb.to_graphviz(booster).source
    with pytest.raises(TypeError, match="plot_tree takes no 'leaf_node_params': matplotlib draws, not Graphviz. Use to_graphviz"):
        gb.plot_tree(booster, leaf_node_params={"shape": "box"})


def test_a_booster_keeps_no_history(booster):
    with pytest.raises(TypeError, match="Pass the evals_result of train"):
        gb.plot_metric(booster)
    with pytest.raises(TypeError, match="booster must be a Booster or a fitted estimator, got int"):
        gb.plot_tree(3)


def test_what_is_not_installed_is_named_with_its_extra():
    program = """
import sys
sys.modules["matplotlib"] = sys.modules["graphviz"] = None   # imports of them fail
import numpy as np, gpuboost as gb
booster = gb.train({}, gb.DMatrix(np.arange(8.0)[:, None], np.arange(8.0)), 1)
for draw in (gb.plot_importance, gb.plot_tree, gb.to_graphviz, lambda b: gb.plot_metric({"a": {"rmse": [1.0]}})):
    try:
        draw(booster)
    except ImportError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.count("pip install 'gpuboost-trees[plot]'") == 4
