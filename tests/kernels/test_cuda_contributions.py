"""kernels/contributions.py, approximate_contributions.py and background.py on a GPU: the bytes of the CPU twin."""

import sys
from pathlib import Path

import numpy as np
import pytest
from cuda_runners import SimulatorRunner, assert_same, each_runner

sys.path.insert(0, str(Path(__file__).parents[1] / "model_io"))
from games import random_explained  # noqa: E402

from gpuboost.backend.cpu.explainer import CpuExplainer  # noqa: E402
from gpuboost.backend.cuda.device import find_device  # noqa: E402
from gpuboost.backend.cuda.explainer import CudaExplainer  # noqa: E402
from gpuboost.backend.explained import Changes  # noqa: E402
from gpuboost.data.dmatrix import DMatrix  # noqa: E402
from gpuboost.explaining.background import BackgroundTables  # noqa: E402
from gpuboost.explaining.walks import TreeWalks, explained_trees, model_covers, with_means  # noqa: E402


def check(run, model, X, with_pairs, is_approximate=False, missing=np.nan):
    covers = model_covers(model)
    trees = with_means(explained_trees(model), covers)
    parts = [Changes()] if is_approximate else list(TreeWalks(model, trees, covers, with_pairs, 1))
    check_parts(run, trees, parts, X, with_pairs, missing)


def check_parts(run, trees, parts, X, with_pairs, missing):
    margins = np.random.default_rng(0).normal(size=(trees.n_outputs, len(X))).astype(np.float32)
    arguments = X, missing, trees, parts, margins, with_pairs
    device = run if isinstance(run, SimulatorRunner) else find_device(0)
    assert_same(device.fetch(CudaExplainer(device).explain(*arguments)), CpuExplainer(1).explain(*arguments))


@pytest.mark.sweep(2)
@each_runner
@pytest.mark.parametrize("with_pairs", [True, False])
@pytest.mark.parametrize("options", [
    {"has_sets": True, "n_outputs": 2}, {"n_features": 2, "n_leaves": 14, "is_dart": True}, {"leaf_size": 2, "n_outputs": 2},
], ids=str)  # fmt: skip
def test_contributions_of_random_trees(run, options, with_pairs):
    model, X = random_explained(5, **options)
    check(run, model, np.tile(X, (12, 1)), with_pairs, missing=float(np.nan_to_num(X[0, 0])))


@each_runner
def test_changes_of_random_trees(run):
    model, X = random_explained(6, n_outputs=4, leaf_size=2, has_sets=True)
    check(run, model, X, True, is_approximate=True)


@each_runner
def test_a_tree_that_is_one_leaf(run):
    model, X = random_explained(6, n_leaves=1)
    check(run, model, X, True)


@each_runner
def test_tables_of_a_background(run):
    model, X = random_explained(8, n_outputs=2, leaf_size=2, has_sets=True)
    trees = explained_trees(model)
    source = DMatrix(np.tile(X, (12, 1))).source(None, {}, model.n_features)
    check_parts(run, trees, BackgroundTables(trees, source, 1), np.tile(X, (12, 1)), False, np.nan)
