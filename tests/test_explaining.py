"""Booster.predict(pred_contribs=, pred_interactions=, approx_contribs=): SHAP values by definition, and XGBoost's."""

import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import xgboost

sys.path.insert(0, str(Path(__file__).parent / "model_io"))

from games import game, random_explained, shapley_interactions, shapley_values, with_covers  # noqa: E402
from random_models import plain_margins, random_tree  # noqa: E402
from simulator import SimulatedDevice  # noqa: E402
from streams import parts_of  # noqa: E402

import gpuboost as gb  # noqa: E402
from gpuboost.backend.cpu import CpuBackend  # noqa: E402
from gpuboost.backend.cuda import CudaBackend  # noqa: E402
from gpuboost.explaining import contributions, walks  # noqa: E402
from gpuboost.model.model import Model  # noqa: E402

pytestmark = pytest.mark.long

KINDS = {
    "values": {"pred_contribs": True}, "interactions": {"pred_interactions": True},
    "approximate values": {"pred_contribs": True, "approx_contribs": True},
    "approximate interactions": {"pred_interactions": True, "approx_contribs": True},
}  # fmt: skip


def booster_of(model, **params):
    booster = gb.Booster({"nthread": 1, **params})
    booster.take_model(model)
    return booster


def explain(model, X, kind="values", **options):
    params = {name: options.pop(name) for name in ("nthread",) if name in options}
    return booster_of(model, **params).predict(gb.DMatrix(X), **KINDS[kind], **options)


# ---- by definition


def test_a_stump_by_hand():
    """x < 0 with 3 of 4 rows: 1, else 5. The mean is 2."""
    tree = random_tree(np.random.default_rng(0), 2, 2)
    tree = replace(
        tree, feature=np.int32([1, 0, 0]), threshold=np.float32([0, 0, 0]), leaf_value=np.float32([0, 1, 5]),
        cover=np.float32([4, 3, 1]),
    )  # fmt: skip
    model = Model(2, "reg:squarederror", base_score=(0.5,))
    model.add_round([tree], [0])
    X = np.float32([[9, -1], [9, 1]])
    assert explain(model, X).tolist() == [[0, -1, 2.5], [0, 3, 2.5]]
    assert explain(model, X, "approximate values").tolist() == [[0, -1, 2.5], [0, 3, 2.5]]
    assert explain(model, X, "interactions")[1].tolist() == [[0, 0, 0], [0, 3, 0], [0, 0, 2.5]]


OPTIONS = [
    {}, {"has_sets": True}, {"n_outputs": 3}, {"is_dart": True}, {"n_outputs": 2, "leaf_size": 2, "n_features": 4},
    {"n_features": 2, "n_leaves": 14}, {"n_features": 7, "n_trees": 1}, {"n_features": 1},
    {"n_outputs": 4, "leaf_size": 2, "n_features": 3},
]  # fmt: skip


@pytest.mark.sweep(9)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("seed", range(23))
def test_values_and_interactions_are_shapleys(seed, options):
    """Repeated features, missing values, sets, shares of 0; within 1e-6 of the largest, which float32 leaves."""
    model, X = random_explained(seed, **options)
    values, pairs = (explain(model, X, kind, strict_shape=True) for kind in ("values", "interactions"))
    for row, value, pair in zip(X[:3], values, pairs):
        played = game(model, row)
        expected, expected_pairs = (f(played, model.n_features) for f in (shapley_values, shapley_interactions))
        expected[:, -1] += 0.25
        expected_pairs[:, -1, -1] += 0.25
        np.testing.assert_allclose(value, expected, rtol=0, atol=1e-6 * abs(expected).max())
        np.testing.assert_allclose(pair, expected_pairs, rtol=0, atol=1e-6 * abs(expected_pairs).max())


def deep_model(depth, n_trees, n_features, seed=0):
    """Trees that are one long path with a leaf on every level, as lossguide grows them."""
    rng, model = np.random.default_rng(seed), Model(n_features, "reg:squarederror", base_score=(0.0,))
    for _ in range(n_trees):
        tree = random_tree(rng, n_features, 1 + depth)
        left, parent = np.full(2 * depth + 1, -1), np.full(2 * depth + 1, -1)
        node = 0
        for level in range(depth):
            left[node] = 2 * level + 1
            parent[left[node] : left[node] + 2] = node
            node = left[node] + int(rng.integers(0, 2))
        is_leaf = left < 0
        tree = replace(
            tree, left_child=left.astype(np.int32), parent=parent.astype(np.int32),
            feature=np.where(is_leaf, 0, rng.permutation(np.resize(np.arange(n_features), len(left)))).astype(np.int32),
            leaf_value=np.where(is_leaf, rng.normal(size=len(left)), 0).astype(np.float32),
            threshold=np.where(is_leaf, 0, rng.normal(size=len(left))).astype(np.float32),
        )  # fmt: skip
        model.add_round([with_covers(rng, tree, 1e-3)], [0])
    return model


@pytest.mark.parametrize("depth", [6, 16, 32, 60])
def test_contributions_of_deep_trees_add_up(depth):
    """1,000 trees, every feature of a path another one: within 1e-5 of the margin's size."""
    model = deep_model(depth, 1000, 130)
    X = np.random.default_rng(1).normal(size=(5, 130)).astype(np.float32)
    X[3, ::3] = np.nan
    margins = plain_margins(model, X, 0)
    size = abs(margins).max()
    for kind in ("values", "interactions") if depth <= 16 else ("values",):
        out = explain(model, X, kind).astype(np.float64).reshape(5, -1)
        np.testing.assert_allclose(out.sum(axis=1), margins[:, 0], rtol=0, atol=1e-5 * size)


def test_one_path_of_many_features_is_shapleys():
    """60 splits by 12 features, so that each is merged from five: the points chosen are enough."""
    model = deep_model(60, 1, 12)
    row = np.random.default_rng(3).normal(size=12).astype(np.float32)
    expected = shapley_values(game(model, row), 12)[0]
    np.testing.assert_allclose(explain(model, row[None])[0], expected, rtol=0, atol=1e-6 * abs(expected).max())


@pytest.mark.parametrize("kind", KINDS)
def test_nodes_without_cover_leave_no_nan(kind):
    model, X = random_explained(4)
    for i, tree in enumerate(model.trees):
        model.trees[i] = replace(tree, cover=np.where(np.arange(tree.n_nodes) % 3 == 0, tree.cover, 0).astype(np.float32))
    out = explain(model, X, kind).reshape(len(X), -1)
    margins = booster_of(model).predict(gb.DMatrix(X), output_margin=True)
    np.testing.assert_allclose(out.sum(axis=1), margins, rtol=1e-5, atol=1e-5)


def test_a_negative_cover_is_refused():
    model, X = random_explained(4)
    model.trees[1] = replace(model.trees[1], cover=-model.trees[1].cover)
    with pytest.raises(ValueError, match="tree 1 has a node whose cover .* background"):
        explain(model, X)


# ---- beside XGBoost


def table(n=200, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 6)).astype(np.float32)
    X[rng.random(X.shape) < 0.1] = np.nan
    filled = np.nan_to_num(X)
    return X, (filled[:, 0] * filled[:, 1] + filled[:, 2] + np.sin(3 * filled[:, 3])).astype(np.float32)


def cases():
    X, y = table()
    classes, positive = (y * 2).astype(int) % 3, np.exp(y / 2)
    frame = pd.DataFrame(X, columns=list("abcdef")).assign(g=pd.Categorical(np.arange(200) % 11))
    yield "deep", {"max_depth": 9, "min_child_weight": 0}, X, y
    yield "logistic", {"objective": "binary:logistic"}, X, y > 0
    yield "softprob", {"objective": "multi:softprob", "num_class": 3}, X, classes
    yield "softmax", {"objective": "multi:softmax", "num_class": 3}, X, classes
    yield "poisson", {"objective": "count:poisson"}, X, positive
    yield "gamma", {"objective": "reg:gamma"}, X, positive
    yield "tweedie", {"objective": "reg:tweedie"}, X, positive
    yield "quantiles", {"objective": "reg:quantileerror", "quantile_alpha": [0.2, 0.8]}, X, y
    yield "targets", {}, X, np.c_[y, -y]
    yield "dart", {"booster": "dart", "rate_drop": 0.4}, X, y
    yield "forest", {"num_parallel_tree": 3, "subsample": 0.5}, X, y
    yield "sets", {"max_cat_to_onehot": 1}, frame, y + np.arange(200) % 11 % 4
    yield "lossguide", {"grow_policy": "lossguide", "max_leaves": 25, "max_depth": 0}, X, y


@pytest.mark.sweep(13)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name, params, X, y", [pytest.param(*case, id=case[0]) for case in cases()])
def test_xgboost_explains_the_same_file_alike(name, params, X, y, kind, tmp_path):
    """Shapes as well; within 1e-5 of the largest: XGBoost computes in float32."""
    booster = gb.train({"nthread": 1, **params}, gb.DMatrix(X, y), 6, verbose_eval=False)
    booster.save_model(tmp_path / "model.json")
    other, theirs = xgboost.Booster(model_file=tmp_path / "model.json"), xgboost.DMatrix(X, enable_categorical=True)
    for options in ({}, {"strict_shape": True}, {"iteration_range": (0, 4)}):
        options = {} if name == "dart" and "iteration_range" in options else options
        expected = other.predict(theirs, **KINDS[kind], **options)
        ours = booster.predict(gb.DMatrix(X), **KINDS[kind], **options)
        assert ours.dtype == expected.dtype and ours.shape == expected.shape
        np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-5 * abs(expected).max())


@pytest.mark.parametrize("kind", KINDS)
def test_base_margins_are_part_of_the_bias(kind):
    model, X = random_explained(7, n_outputs=2)
    base = np.arange(12, dtype=np.float32).reshape(6, 2)
    booster = booster_of(model)
    with_base, without = (booster.predict(m, **KINDS[kind]) for m in (gb.DMatrix(X, base_margin=base), gb.DMatrix(X)))
    bias = (slice(None), slice(None), *[-1] * (without.ndim - 2))
    np.testing.assert_allclose(with_base[bias], without[bias] - 0.25 + base, rtol=1e-6)
    with_base[bias] = without[bias]
    assert with_base.tobytes() == without.tobytes()


# ---- tables, threads, streams, devices


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_depend_on_neither_threads_nor_streams_nor_parts(kind, monkeypatch):
    model, _ = random_explained(11, n_trees=12, n_outputs=2, has_sets=True)
    X = np.repeat(random_explained(12, has_sets=True)[1], 40, axis=0)
    expected = explain(model, X, kind)
    assert explain(model, X, kind, nthread=2).tobytes() == expected.tobytes()
    monkeypatch.setattr(contributions, "STREAM_BYTES", 1)
    monkeypatch.setattr(walks, "PART_BYTES", 1)
    assert explain(model, X, kind).tobytes() == expected.tobytes()
    assert explain(model, X[7:8], kind).tobytes() == expected[7:8].tobytes()


@pytest.mark.parametrize("kind", KINDS)
def test_every_table_of_the_same_values_is_explained_alike(kind):
    X, y = table()
    X = np.nan_to_num(X) * (abs(np.nan_to_num(X)) > 0.3)
    names = list("abcdef")
    booster = gb.train({"nthread": 1}, gb.DMatrix(pd.DataFrame(X, columns=names), y, sparse_absent="zero"), 4, verbose_eval=False)
    expected = booster.predict(gb.DMatrix(X, feature_names=names), **KINDS[kind])
    absent = booster.predict(gb.DMatrix(np.where(X == 0, np.nan, X), feature_names=names), **KINDS[kind])
    for matrix, same in (
        (gb.DMatrix(X.astype(np.float64), feature_names=names), expected),
        (gb.DMatrix(np.asfortranarray(X), feature_names=names), expected),
        (gb.DMatrix(pd.DataFrame(X, columns=names)[names[::-1]]), expected),
        (gb.DMatrix(scipy.sparse.csr_matrix(X), feature_names=names), expected),
        (gb.DMatrix(np.where(X == 0, -7, X), missing=-7.0, feature_names=names), absent),
    ):
        assert booster.predict(matrix, **KINDS[kind]).tobytes() == same.tobytes()
    assert absent.tobytes() != expected.tobytes()


def coded_cases():
    X, y = table()
    stored = scipy.sparse.csr_matrix(np.nan_to_num(X) * (abs(np.nan_to_num(X)) > 0.8))
    yield from (pytest.param(params, X, y, {}, id=name) for name, params, X, y in cases())
    yield pytest.param({}, stored, y, {}, id="sparse")
    yield pytest.param({}, stored, y, {"sparse_absent": "zero"}, id="sparse zeros")
    yield pytest.param({}, np.nan_to_num(X, nan=-9), y, {"missing": -9.0}, id="another missing value")
    frame = pd.DataFrame(X, columns=list("abcdef")).assign(g=pd.Categorical(np.arange(200) % 11))
    for encoding in ("ordinal", "statistics"):
        yield pytest.param({"cat_encoding": encoding}, frame, y + np.arange(200) % 11 % 4, {}, id=encoding)


@pytest.mark.sweep(18)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("params, X, y, options", [*coded_cases()])
def test_codes_are_explained_as_the_values_they_stand_for(params, X, y, options, kind):
    encoding = {name: params[name] for name in params if name == "cat_encoding"}
    coded = gb.QuantileDMatrix(X, y, max_bin=16, **encoding, **options)
    booster = gb.train({"max_bin": 16, **params}, coded, 3)
    expected = booster.predict(gb.DMatrix(X, **options), **KINDS[kind])
    assert booster.predict(coded, **KINDS[kind]).tobytes() == expected.tobytes()


def test_codes_in_pages_and_as_a_background_are_explained_alike():
    X, y = table(300)
    paged, values = gb.QuantileDMatrix(X, y, page_rows=70), gb.DMatrix(X)
    booster = gb.train({}, paged, 3)
    few = gb.QuantileDMatrix(X[:20], ref=paged)
    for rows in (paged, gb.ExtMemQuantileDMatrix(parts_of(X), ref=paged, cache_memory=0)):
        assert booster.predict(rows, pred_contribs=True).tobytes() == booster.predict(values, pred_contribs=True).tobytes()
        against = gb.explainer(booster, few)(rows)
        assert against.values.tobytes() == gb.explainer(booster, X[:20])(values).values.tobytes()


def test_codes_that_do_not_tell_the_way_are_not_explained():
    X, y = table()
    booster = gb.train({}, gb.DMatrix(X, y), 2)
    with pytest.raises(ValueError, match="a threshold of the model is not a cut of this binned matrix"):
        booster.predict(gb.QuantileDMatrix(2 * X), pred_contribs=True)
    with pytest.raises(ValueError, match="its columns and categories must be the model's"):
        booster.predict(gb.QuantileDMatrix(X[:, :5]), pred_interactions=True)
    with pytest.raises(ValueError, match="a threshold of the model is not a cut of this binned matrix"):
        gb.explainer(booster, gb.QuantileDMatrix(2 * X))(X)


@pytest.mark.parametrize("kind", KINDS)
def test_a_simulated_gpu_gives_the_bytes_of_the_cpu(kind):
    model, X = random_explained(21, n_outputs=2, leaf_size=2, has_sets=True, n_features=4)
    here = contributions.Contributions(model, np.zeros(2, np.float32))
    device = CudaBackend(SimulatedDevice(block=32))
    asked = {"kind": "interactions" if "interactions" in kind else "values", "is_approximate": "approximate" in kind}
    cpu, cuda = (here.explain(gb.DMatrix(X), backend, **asked) for backend in (CpuBackend(1), device))
    assert cpu.tobytes() == cuda.tobytes()


def test_a_model_of_no_rounds_and_a_table_of_no_rows():
    model = Model(3, "reg:squarederror", base_score=(0.5,))
    assert explain(model, np.zeros((2, 3), np.float32)).tolist() == [[0, 0, 0, 0.5]] * 2
    assert explain(random_explained(1)[0], np.zeros((0, 5), np.float32), "interactions").shape == (0, 6, 6)


def test_one_kind_at_a_time():
    model, X = random_explained(1)
    with pytest.raises(ValueError, match="one .* at a time"):
        booster_of(model).predict(gb.DMatrix(X), pred_contribs=True, pred_leaf=True)


def test_more_rounds_are_explained_after_more_training():
    X, y = table()
    data = gb.DMatrix(X, y)
    booster = gb.train({"nthread": 1}, data, 2)
    first = booster.predict(data, pred_contribs=True)
    booster.update(data)
    assert (booster.predict(data, pred_contribs=True) != first).any()
    assert booster.predict(data, pred_contribs=True, iteration_range=(0, 2)).tobytes() == first.tobytes()
    again = pickle.loads(pickle.dumps(booster))
    assert again.predict(data, pred_contribs=True, iteration_range=(0, 2)).tobytes() == first.tobytes()


def test_a_training_and_a_prediction_load_nothing_that_explains():
    program = (
        "import sys, numpy as np, gpuboost as gb; d = gb.DMatrix(np.eye(4), np.arange(4)); gb.train({}, d, 1).predict(d);"
        "print([m for m in sys.modules if 'expla' in m or 'contributions' in m or 'path_steps' in m])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_thread_that_explains_meanwhile_has_the_means_too(monkeypatch):
    """Another one computes the nodes' means: whoever comes before that is done does so as well."""
    X = np.random.default_rng(0).random((60, 3))
    data = gb.DMatrix(X, X[:, 0])
    own, seen = contributions.with_means, []

    def with_means(*args):
        if not seen:
            seen.append(None)
            seen.append(shared.explain(data, CpuBackend(1)))
        return own(*args)

    shared = contributions.Contributions(gb.train({"max_depth": 3}, data, 2).model, np.zeros(1, np.float32))
    monkeypatch.setattr(contributions, "with_means", with_means)
    first = shared.explain(data, CpuBackend(1))
    np.testing.assert_array_equal(seen[1], first)
