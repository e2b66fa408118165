"""Digests of some 1,300 models, recorded in recorded_digests.json: what a change of the code must not change.

    python tests/recorded_digests.py            # recomputes all, shows what changed; exit status 1 if anything did
    python tests/recorded_digests.py --write    # records them

A configuration is its name: options of the model, then after " | " how the work is laid out, which must not change the model:

    objective=binary:logistic, tree_method=approx, max_depth=3, subsample=0.6 | matrix=quantile, page_rows=97

Names, values and order of the lists below make the names, and places in them the crossing. So new entries go to the ends of
EXTRAS and LAYOUTS, and into MORE, where they leave the names before them alone. Tables are made of integers by operations that
are exact, or elementwise and rounded correctly, on any machine.
"""

import json
import re
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from naive_backend import NaiveBackend
from simulator import SimulatedDevice
from streams import parts_of

import gpuboost as gb
from gpuboost.communicator import run_threads
from gpuboost.model_io import digest

FILE = Path(__file__).with_suffix(".json")
ROWS, ROUNDS, SMALL = 300, 2, 60  # SMALL: rows for backends that take long

Options = dict[str, Any]

# ---------------------------------------------------------------------------------------------------------------------
# Models: every growth with every extra, and every objective with each of them

OBJECTIVES: list[Options] = [
    {"objective": "reg:squarederror"},
    {"objective": "binary:logistic"},
    {"objective": "multi:softprob", "num_class": 3},
    {"objective": "multi:softmax", "num_class": 3},
    {"objective": "custom"},
    {"objective": "reg:squarederror", "targets": 2},
    {"objective": "binary:logistic", "scale_pos_weight": 3.0},
    {"objective": "binary:logistic", "targets": 2},
    {"objective": "custom", "num_class": 3},
]
GROWTHS: list[Options] = [
    {"tree_method": "hist", "max_depth": 3},
    {"tree_method": "hist", "grow_policy": "lossguide", "max_depth": 0, "max_leaves": 7},
    {"tree_method": "approx", "max_depth": 3},
    {"tree_method": "approx", "sketch_proposals": "local", "max_depth": 4},
    {"tree_method": "exact", "max_depth": 3},
    {"tree_method": "hist", "grow_policy": "depthwise", "max_depth": 0, "max_leaves": 6},
    {"tree_method": "hist", "grow_policy": "lossguide", "max_depth": 3},
    {"tree_method": "approx", "sketch_proposals": "local", "grow_policy": "lossguide", "max_depth": 0, "max_leaves": 6},
    {"tree_method": "exact", "grow_policy": "lossguide", "max_depth": 4, "max_leaves": 6},
]
BY_GRADIENT = {"sampling_method": "gradient_based"}
EXTRAS: list[Options] = [
    {},
    {"weights": "zeros"},
    {"weights": "loud"},
    {"subsample": 0.6, "sampling_method": "uniform"},
    {"subsample": 0.4, **BY_GRADIENT, "weights": "zeros"},
    {"subsample": 0.7, **BY_GRADIENT, "weights": "loud"},
    {"colsample_bytree": 0.6},
    {"colsample_bylevel": 0.7, "colsample_bynode": 0.8},
    {"colsample_bytree": 0.8, "colsample_bynode": 0.7, "feature_weights": "[3,1,1,1,2,0,1]", "subsample": 0.8, "seed": 9},
    {"reg_lambda": 0.0, "reg_alpha": 0.5, "min_child_weight": 0.0},
    {"max_delta_step": 0.3, "min_child_weight": 4.0},
    {"gamma": 1.0, "reg_lambda": 3.0},
    {"monotone_constraints": "(1,-1,0,0,1)"},
    {"interaction_constraints": "[[0,1],[1,2,4],[6]]"},
    {"monotone_constraints": "(-1,1)", "interaction_constraints": "[[0,1,2],[2,4,6]]", "max_delta_step": 0.5, "weights": "loud"},
    {"base_margin": "given"},
    {"base_score": 0.25, "weights": "zeros"},
    {"max_bin": 3, "learning_rate": 0.1},
    {"max_bin": 256, "seed": -7},
    {"max_bin": 700, "weights": "zeros"},
    {"max_bin": 700, "colsample_bytree": 0.7, "subsample": 0.7},
    {"table": "categories"},
    {"table": "one-hot"},
    {"table": "one-hot", "weights": "loud", "colsample_bytree": 0.7},
    {"table": "sparse-missing"},
    {"table": "sparse-zero", "weights": "zeros"},
    {"table": "sparse-zero", "weights": "loud", "reg_alpha": 0.5},
    {"table": "sparse-missing", "subsample": 0.6, "colsample_bytree": 0.7, "colsample_bynode": 0.8},
    {"ref": "half", "weights": "zeros"},
]
QUANTILE = {"matrix": "quantile"}
CSR = {"as": "csr"}
EAGER = {"matrix": "quantile", "packing": "eager"}
LAYOUTS: list[Options] = [
    {"as": "fortran"},
    {"as": "float64"},
    {"nthread": 1},
    {"histogram_memory": 1},
    {"histogram_memory": 12_000},
    {"workers": 2},
    {"workers": 3},
    {"continued": "memory"},
    {"continued": "file"},
    {"evals": "two"},
    QUANTILE,
    {**QUANTILE, "ref": "same"},
    {**QUANTILE, "page_rows": 97},
    {**QUANTILE, "page_rows": 97, "workers": 2, "histogram_memory": 12_000, "nthread": 1},
    {**QUANTILE, "page_rows": 150, "continued": "file"},
    {"as": "uint8"},
    EAGER,
    {**EAGER, "page_rows": 97},
    {**EAGER, "workers": 2},
    CSR,
    {**CSR, "search": "walks"},
    {**CSR, "search": "histograms"},
    {**CSR, "search": "histograms", "histogram_memory": 12_000, "nthread": 1},
    {**CSR, "workers": 2},
    {**CSR, **EAGER},
    {**CSR, **EAGER, "search": "histograms", "workers": 3},
    {"as": "csc", "continued": "memory"},
]
CUDA, NAIVE = {"backend": "cuda"}, {"backend": "naive"}
# Layouts of small tables on a slow backend.
SLOW_LAYOUTS: list[Options] = [
    {**CUDA, **QUANTILE, "page_rows": 23},
    {**CUDA, "workers": 2},
    {**CUDA, "histogram_memory": 1},
    {**CUDA, "continued": "memory"},
    {**CUDA, **EAGER},
    {**CUDA, **CSR},
    {**CUDA, **CSR, "workers": 2},
    {**NAIVE, **QUANTILE, "page_rows": 23},
    {**NAIVE, "workers": 2},
]
NOISE = {"early_stopping": 2, "rounds": 12}
# Objectives that came after the crossing: each with a growth, weights and every kind of layout.
LATER_OBJECTIVES: list[Options] = [
    {"objective": "reg:squaredlogerror"},
    {"objective": "reg:logistic"},
    {"objective": "binary:logitraw", "scale_pos_weight": 2.0},
    {"objective": "binary:hinge"},
    {"objective": "reg:pseudohubererror", "huber_slope": 2.0},
    {"objective": "count:poisson"},
    {"objective": "count:poisson", "max_delta_step": 0.0, "targets": 2},
    {"objective": "reg:gamma"},
    {"objective": "reg:tweedie", "tweedie_variance_power": 1.25},
    {"objective": "survival:aft", "aft_loss_distribution": "normal"},
    {"objective": "survival:aft", "aft_loss_distribution": "logistic", "aft_loss_distribution_scale": 0.5},
    {"objective": "survival:aft", "aft_loss_distribution": "extreme", "aft_loss_distribution_scale": 2.0},
    {"objective": "survival:cox"},
]
LATER_LAYOUTS: list[Options] = [
    {}, {"nthread": 1}, {**QUANTILE, "page_rows": 97}, {"workers": 2}, {"workers": 3}, {"continued": "file"}, {"evals": "two"},
]  # fmt: skip
STREAMED = {"matrix": "streamed", "page_rows": 97}
TWO_BYTES = {"objective": "reg:squarederror", "tree_method": "hist", "max_depth": 2, "max_bin": 400, "table": "narrow"}
QUANTILES = {"objective": "reg:quantileerror", "quantile_alpha": "[0.1,0.5,0.9]"}
REFRESHED: list[Options] = [  # leaves that are quantiles
    {"objective": "reg:absoluteerror", "tree_method": "hist", "max_depth": 3},
    {"objective": "reg:absoluteerror", "targets": 2, "tree_method": "hist", "max_depth": 3, "weights": "zeros"},
    {"objective": "reg:absoluteerror", "tree_method": "hist", "max_depth": 3, "monotone_constraints": "(1,-1,0)", "gamma": 1.0},
    {**QUANTILES, "tree_method": "hist", "grow_policy": "lossguide", "max_depth": 0, "max_leaves": 7, "subsample": 0.8},
    {**QUANTILES, "tree_method": "approx", "max_depth": 3, "weights": "loud", **BY_GRADIENT, "subsample": 0.7},
    {**QUANTILES, "tree_method": "hist", "max_depth": 2, "matrix": "quantile", "page_rows": 23},
]
EXPECTILES = {"objective": "reg:expectileerror", "expectile_alpha": "[0.2,0.5,0.9]", "tree_method": "hist"}


@gb.split_gain
def recorded_gain(gain, left_grad, left_hess, right_grad, right_hess, feature, share=0.5):
    """A part of the built-in gain, and how far the children's means lie apart; less of each on the first column."""
    apart = abs(left_grad / (left_hess + 1) - right_grad / (right_hess + 1)) * min(left_hess, right_hess)
    return (share * gain + (1 - share) * apart) * (0.5 if feature == 0 else 1)


VECTOR = {"multi_strategy": "multi_output_tree"}
TWO, THREE = {"objective": "reg:squarederror", "targets": 2, **VECTOR}, {"objective": "multi:softprob", "num_class": 3, **VECTOR}
VECTORS: list[Options] = [  # trees of several outputs
    {**TWO, "tree_method": "hist", "max_depth": 3},
    {**THREE, "tree_method": "hist", "grow_policy": "lossguide", "max_depth": 0, "max_leaves": 7, "weights": "zeros"},
    {**TWO, "tree_method": "approx", "max_depth": 3, "weights": "loud", "max_delta_step": 0.5, "gamma": 1.0},
    {**THREE, "tree_method": "hist", "max_depth": 3, "subsample": 0.6, "colsample_bytree": 0.7, "colsample_bynode": 0.8},
    {**THREE, "tree_method": "hist", "max_depth": 3, **BY_GRADIENT, "subsample": 0.7, "interaction_constraints": "[[0,1],[2,4]]"},
    {**QUANTILES, **VECTOR, "tree_method": "hist", "max_depth": 3, "weights": "zeros"},
    {**OBJECTIVES[8], **VECTOR, "tree_method": "approx", "sketch_proposals": "local", "max_depth": 3, "reg_alpha": 0.5},
]
SKETCHES: list[Options] = [  # splits searched by a few combinations of the outputs
    {**TWO, "output_sketch": "top_outputs:1", "tree_method": "hist", "max_depth": 3},
    {**THREE, "output_sketch": "random_sampling:2", "tree_method": "hist", "max_depth": 3, "subsample": 0.7, "weights": "zeros"},
    {**THREE, "output_sketch": "random_projection:2", "tree_method": "approx", "max_depth": 3, "weights": "loud"},
]
MASKED: list[Options] = [  # labels are missing
    {"objective": "reg:squarederror", "labels": "masked", "tree_method": "hist", "max_depth": 3},
    {**TWO, "labels": "masked", "tree_method": "hist", "max_depth": 3, "weights": "zeros"},
]
VECTOR_LAYOUTS: list[Options] = [
    {}, {"nthread": 1}, {"histogram_memory": 1}, {"workers": 3}, {"continued": "file"}, {"evals": "two"},
]  # fmt: skip
ONE_HOT = {**TWO, "table": "one-hot", "max_depth": 3}
SPARSE = {**THREE, "table": "sparse-zero", "max_depth": 3, "weights": "loud"}
SETS = {"table": "categories", "cat_encoding": "sets"}  # all other categories are split in the order of their codes
BRAKES = {"cat_smooth": 2.0, "cat_l2": 3.0, "min_data_per_group": 8.0, "cat_noise": 0}
CONSTRAINED = {"monotone_constraints": "(1,0,0,-1)", "interaction_constraints": "[[0,1],[1,2,4]]"}
OF_SETS: list[Options] = [
    {"objective": "reg:squarederror", "tree_method": "hist", "max_depth": 3, **SETS},
    {"objective": "binary:logistic", **GROWTHS[1], **SETS, "max_cat_to_onehot": 2, "subsample": 0.6, "colsample_bytree": 0.8,
     "cat_noise": 0},
    {"objective": "multi:softprob", "num_class": 3, **GROWTHS[2], **SETS, **BRAKES, "weights": "zeros"},
    {"objective": "custom", "tree_method": "hist", "max_depth": 4, **SETS, "max_cat_threshold": 2, **CONSTRAINED, "gamma": 1.0},
    {"objective": "reg:absoluteerror", **GROWTHS[3], **SETS, "subsample": 0.7, **BY_GRADIENT, "colsample_bynode": 0.8},
    {"objective": "reg:squarederror", "split_gain": "recorded_gain@share=0.25", "tree_method": "hist", "max_depth": 3, **SETS},
]
LESS_CHANCE: list[Options] = [  # cat_noise is not 0
    {"objective": "binary:logistic", "tree_method": "hist", "max_depth": 3, **SETS, "cat_noise": 0.25},
    {"objective": "reg:squarederror", **GROWTHS[2], **SETS, "cat_noise": 1.0, "weights": "zeros"},
    {"objective": "multi:softprob", "num_class": 3, "tree_method": "approx", "max_depth": 3, **SETS, "max_cat_to_onehot": 1},
    {"objective": "count:poisson", "tree_method": "hist", "max_depth": 3, **SETS, "max_cat_to_onehot": 1, "weights": "zeros"},
]
SPARSE_SETS: list[Options] = [
    {"objective": "reg:squarederror", "tree_method": "hist", "max_depth": 4, "table": f"sparse-{absent}", "types": "c",
     "max_cat_to_onehot": most, "subsample": 0.9}
    for absent in ("missing", "zero") for most in (1, 4)
]  # fmt: skip
STATISTICS = {"table": "categories", "cat_encoding": "statistics"}
OF_STATISTICS: list[Options] = [
    {"objective": "reg:squarederror", "tree_method": "hist", "max_depth": 3, **STATISTICS},
    {"objective": "binary:logistic", **GROWTHS[1], **STATISTICS, "max_cat_to_onehot": 2, "subsample": 0.6,
     "colsample_bytree": 0.8, "weights": "zeros"},
    {"objective": "multi:softprob", "num_class": 3, **GROWTHS[3], **STATISTICS, "cat_noise": 8.0, "weights": "loud"},
    {"objective": "reg:absoluteerror", "targets": 2, "tree_method": "hist", "max_depth": 3, **STATISTICS, **CONSTRAINED,
     "max_cat_to_onehot": 1},
]
VECTOR_SETS: list[Options] = [
    {**TWO, "tree_method": "hist", "max_depth": 3, **SETS},
    {**THREE, **GROWTHS[1], **SETS, "max_cat_to_onehot": 2, "subsample": 0.6, "colsample_bytree": 0.8, "weights": "zeros"},
    {**TWO, **GROWTHS[2], **SETS, **BRAKES, "weights": "loud", "max_delta_step": 0.5},
    {**THREE, "tree_method": "hist", "max_depth": 3, **SETS, "cat_noise": 0.25, "max_cat_threshold": 2, "colsample_bynode": 0.8},
    {**THREE, "tree_method": "hist", "max_depth": 3, **SETS, "output_sketch": "random_projection:2", "max_cat_to_onehot": 1},
    {**THREE, "tree_method": "hist", "max_depth": 4, **STATISTICS, "max_cat_to_onehot": 1, "weights": "zeros"},
]
VECTOR_ORDERS: list[Options] = [  # monotone constraints
    {**TWO, "tree_method": "hist", "max_depth": 3, "monotone_constraints": "(1,-1,0,0,1)", "gamma": 0.5},
    {**THREE, **GROWTHS[1], "monotone_constraints": "(-1,1)", "max_delta_step": 0.5, "weights": "loud", "subsample": 0.7},
    {**TWO, **GROWTHS[2], **SETS, "monotone_constraints": "(1,0,0,-1)", "weights": "zeros", "reg_alpha": 0.5},
]
LIGHT_SETS: list[Options] = [  # categories of small hessian, some of which tell all the same
    {"objective": "reg:squarederror", "tree_method": "hist", "max_depth": 3, **SETS, "max_cat_to_onehot": 1, "cat_noise": 16.0},
    {**TWO, "tree_method": "hist", "max_depth": 3, **SETS, "max_cat_to_onehot": 1, "cat_noise": 32.0},
]
OWN_GAIN = {"objective": "reg:squarederror", "split_gain": "recorded_gain@share=0.25", "max_depth": 3}
FORESTS: list[Options] = [
    {**OBJECTIVES[0], "tree_method": "hist", "max_depth": 3, "num_parallel_tree": 3, "subsample": 0.7, "colsample_bynode": 0.7},
    {**OBJECTIVES[2], "tree_method": "approx", "max_depth": 3, "num_parallel_tree": 2, "weights": "zeros"},
    {**QUANTILES, "tree_method": "hist", "max_depth": 3, "num_parallel_tree": 2, "colsample_bytree": 0.6},
]
DART = {"booster": "dart", "rate_drop": 0.5, "rounds": 4, "tree_method": "hist", "max_depth": 3}
DARTS: list[Options] = [
    {**OBJECTIVES[0], **DART, "one_drop": True},
    {**OBJECTIVES[2], **DART, "sample_type": "weighted", "normalize_type": "forest", "weights": "zeros"},
    {"objective": "reg:absoluteerror", **DART, "skip_drop": 0.3, "num_parallel_tree": 2, "subsample": 0.7},
]
VECTOR_DARTS: list[Options] = [
    {**TWO, **DART, "one_drop": True},
    {**THREE, **DART, "sample_type": "weighted", "normalize_type": "forest", "weights": "zeros", "num_parallel_tree": 2},
]
RANKED = {"tree_method": "hist", "max_depth": 3, "min_child_weight": 0.01}
SAMPLED_PAIRS = {"lambdarank_pair_method": "mean", "lambdarank_num_pair_per_sample": 3}
RANKINGS: list[Options] = [
    {"objective": "rank:pairwise", **RANKED, "lambdarank_num_pair_per_sample": 4},
    {"objective": "rank:ndcg", **RANKED, "lambdarank_unbiased": True, "lambdarank_bias_norm": 0.5, "weights": "zeros"},
    {"objective": "rank:ndcg", **RANKED, **SAMPLED_PAIRS, "ndcg_exp_gain": False, "lambdarank_normalization": False},
    {"objective": "rank:map", **RANKED, "lambdarank_score_normalization": False, "subsample": 0.7, "weights": "zeros"},
    {"objective": "rank:map", **RANKED, **SAMPLED_PAIRS, "lambdarank_unbiased": True, "num_parallel_tree": 2},
]
LINEARS: list[Options] = [
    {**OBJECTIVES[0], "booster": "gblinear", "reg_alpha": 0.01, "reg_lambda": 0.1, "rounds": 3},
    {**OBJECTIVES[2], "booster": "gblinear", "updater": "coord_descent", "feature_selector": "shuffle", "weights": "zeros"},
    {**OBJECTIVES[8], "booster": "gblinear", "updater": "coord_descent", "feature_selector": "greedy", "top_k": 3},
    {**OBJECTIVES[0], "booster": "gblinear", "updater": "coord_descent", "feature_selector": "thrifty", "table": "sparse-zero"},
    {**OBJECTIVES[1], "booster": "gblinear", "updater": "coord_descent", "feature_selector": "random", "table": "one-hot"},
    {"objective": "survival:cox", "booster": "gblinear", "updater": "shotgun", "feature_selector": "shuffle", "weights": "loud"},
]
UPDATED = {"tree_method": "hist", "max_depth": 3}
UPDATES: list[Options] = [
    {**OBJECTIVES[0], **UPDATED, "update": "refresh"},
    {**OBJECTIVES[2], **UPDATED, "update": "refresh,prune", "weights": "zeros"},
    {**OBJECTIVES[1], **UPDATED, "update": "prune", "num_parallel_tree": 2, "subsample": 0.7},
    {"objective": "rank:ndcg", **RANKED, "lambdarank_unbiased": True, "update": "refresh"},
]
MORE: list[tuple[Options, Options]] = [
    *(({**o, "tree_method": "hist", "max_depth": 2, **NOISE}, layout) for o in OBJECTIVES[:3] for layout in ({}, {"workers": 2})),
    *(({**OBJECTIVES[0], "tree_method": "hist", "max_depth": depth, "rounds": 4}, {}) for depth in (0, 1, 2, 6)),
    ({"estimator": "regressor", "max_depth": 3}, {}),
    ({"estimator": "regressor", "targets": 2, "max_depth": 3, "tree_method": "approx"}, {}),
    ({"estimator": "regressor", "table": "categories", "max_depth": 3, "grow_policy": "lossguide"}, {}),
    ({"estimator": "classifier", "max_depth": 3, "weights": "zeros", "subsample": 0.8}, {}),
    ({"estimator": "classifier", "num_class": 3, "max_depth": 3, "tree_method": "exact"}, {}),
    ({"estimator": "classifier", "num_class": 3, "max_depth": 2, **NOISE}, {}),
    (TWO_BYTES, {}),
    (TWO_BYTES, CUDA),
    (TWO_BYTES, NAIVE),
    *((model, layout) for model in REFRESHED for layout in ({}, {"workers": 3}, {"continued": "file"}, {"nthread": 1})),
    ({"objective": "reg:absoluteerror", "tree_method": "exact", "max_depth": 3}, {}),
    *((model | {"rows": SMALL}, layout) for model in REFRESHED for layout in ({}, CUDA, {**CUDA, "workers": 2}, NAIVE)),
    *(
        ({**o, "tree_method": "hist", "max_depth": 3, "weights": "zeros"}, layout)
        for o in LATER_OBJECTIVES for layout in LATER_LAYOUTS
    ),
    *(
        ({**o, "tree_method": "hist", "max_depth": 2, "rows": SMALL, "min_child_weight": 0.1}, layout)
        for o in LATER_OBJECTIVES for layout in ({}, CUDA, NAIVE, {**CUDA, "workers": 2})
    ),
    *(({**EXPECTILES, "max_depth": 3, "weights": "zeros"}, layout) for layout in LATER_LAYOUTS),
    *(({**EXPECTILES, "max_depth": 2, "rows": SMALL}, layout) for layout in ({}, CUDA, NAIVE, {**CUDA, "workers": 2})),
    *(({**OWN_GAIN, "tree_method": "hist"}, layout) for layout in ({}, {"workers": 3}, {"continued": "file"}, {"nthread": 1})),
    *(({**OWN_GAIN, "tree_method": method}, {}) for method in ("approx", "exact")),
    *(({**OWN_GAIN, "tree_method": "hist", "rows": SMALL}, layout) for layout in ({}, CUDA, NAIVE)),
    *((model, layout) for model in VECTORS for layout in VECTOR_LAYOUTS),
    *(({**VECTORS[i], **QUANTILE}, layout) for i in (0, 3) for layout in ({}, {"page_rows": 97})),
    *(({**ONE_HOT, "tree_method": "hist"}, layout) for layout in ({}, {"as": "uint8"}, EAGER, {**EAGER, "workers": 2})),
    *(({**SPARSE, "tree_method": "hist"}, layout) for layout in ({}, CSR, {**CSR, "workers": 2}, {**CSR, **EAGER})),
    *((model | {"rows": SMALL, "max_depth": 2}, layout) for model in VECTORS for layout in ({}, CUDA, NAIVE)),
    *(({**SPARSE, "tree_method": "hist", "rows": SMALL}, layout) for layout in ({}, {**CUDA, **CSR})),
    *((model, layout) for model in SKETCHES for layout in ({}, {"workers": 3}, {"continued": "file"}, {"nthread": 1})),
    *((model | {"rows": SMALL}, layout) for model in SKETCHES for layout in ({}, NAIVE, CUDA, {**CUDA, "workers": 2})),
    *((model, layout) for model in MASKED for layout in ({}, {"workers": 2}, {"evals": "two"})),
    *((model | {"rows": SMALL}, layout) for model in MASKED for layout in ({}, CUDA, NAIVE)),
    *((model, layout) for model in (*FORESTS, *DARTS) for layout in LATER_LAYOUTS),
    *(
        (model | {"rows": SMALL, "max_depth": 2}, layout)
        for model in (FORESTS[0], DARTS[0]) for layout in ({}, CUDA, NAIVE, {**CUDA, "workers": 2})
    ),
    *((model, layout) for model in OF_SETS for layout in ({}, {"workers": 3})),
    *zip(OF_SETS, [*LATER_LAYOUTS[1:4], *LATER_LAYOUTS[5:], {"histogram_memory": 12_000}]),
    *((model | {"rows": SMALL, "rounds": 1}, layout) for model in OF_SETS for layout in ({}, CUDA, NAIVE)),
    *((OF_SETS[i] | {"rows": SMALL, "rounds": 1}, layout) for i, layout in enumerate(SLOW_LAYOUTS[:2])),
    *((model, layout) for model in SPARSE_SETS for layout in ({}, CSR, {**CSR, "workers": 2})),
    *((model, {**CSR, **EAGER}) for model in SPARSE_SETS[::3]),
    *((SPARSE_SETS[2] | {"rows": SMALL, "rounds": 1}, layout) for layout in ({}, {**CUDA, **CSR})),
    *((model, layout) for model in RANKINGS for layout in LATER_LAYOUTS),
    *((model | {"rows": SMALL, "max_depth": 2}, layout) for model in RANKINGS for layout in ({}, CUDA, NAIVE)),
    *((RANKINGS[i] | {"rows": SMALL, "max_depth": 2}, {**CUDA, "workers": 2}) for i in (1, 4)),
    *(
        (model, layout)
        for model in LINEARS
        for layout in (*LATER_LAYOUTS[:2], *LATER_LAYOUTS[3:], {"as": "float64"})
        if not ("as" in layout and "table" in model)
    ),
    *(
        (model, STREAMED)
        for model in (
            TWO_BYTES, *REFRESHED[:5], *VECTORS[1:4], SKETCHES[1], MASKED[1], *FORESTS, *DARTS[1:], *OF_SETS[:5], *RANKINGS[1::2],
        )
    ),
    *((model, {**STREAMED, "workers": 2}) for model in (OF_SETS[0], RANKINGS[1], FORESTS[0], REFRESHED[1])),
    *((model, {**STREAMED, "continued": "file"}) for model in (FORESTS[0], DARTS[1])),
    *((FORESTS[0] | {"rows": SMALL, "max_depth": 2}, {**STREAMED, "page_rows": 23, **backend}) for backend in (CUDA, NAIVE)),
    *((model, layout) for model in UPDATES for layout in ({}, {"workers": 3}, {"nthread": 1}, {"evals": "two"})),
    *((model | {"rows": SMALL}, layout) for model in UPDATES for layout in ({}, NAIVE)),
    *((model, layout) for model in LESS_CHANCE for layout in ({}, {"workers": 3}, LATER_LAYOUTS[1])),
    *((model | {"rows": SMALL, "rounds": 1}, layout) for model in LESS_CHANCE for layout in ({}, CUDA, NAIVE)),
    *((model, layout) for model in OF_STATISTICS for layout in LATER_LAYOUTS),
    *((model | {"rows": SMALL}, layout) for model in OF_STATISTICS for layout in ({}, NAIVE)),
    *((model | {"rows": SMALL}, layout) for model, layout in zip(OF_STATISTICS, [*SLOW_LAYOUTS[:2], SLOW_LAYOUTS[3], CUDA])),
    *((model, layout) for model in VECTOR_DARTS for layout in LATER_LAYOUTS),
    *((VECTOR_DARTS[0] | {"rows": SMALL, "max_depth": 2}, layout) for layout in ({}, CUDA, NAIVE, {**CUDA, "workers": 2})),
    (VECTOR_DARTS[1], STREAMED),
    *((model, layout) for model in VECTOR_SETS for layout in LATER_LAYOUTS),
    *((model, STREAMED) for model in VECTOR_SETS[:2]),
    *((model, {"histogram_memory": 12_000}) for model in VECTOR_SETS[:2]),
    *((model | {"rows": SMALL, "rounds": 1}, layout) for model in VECTOR_SETS for layout in ({}, CUDA, NAIVE)),
    (VECTOR_SETS[0] | {"rows": SMALL, "rounds": 1}, {**CUDA, "workers": 2}),
    *((model, layout) for model in VECTOR_ORDERS for layout in LATER_LAYOUTS),
    *((model, {"histogram_memory": 12_000}) for model in VECTOR_ORDERS[:2]),
    (VECTOR_ORDERS[0], STREAMED),
    *((model | {"rows": SMALL, "rounds": 1}, layout) for model in VECTOR_ORDERS for layout in ({}, CUDA, NAIVE)),
    (VECTOR_ORDERS[0] | {"rows": SMALL, "rounds": 1}, {**CUDA, "workers": 2}),
    *((model, layout) for model in LIGHT_SETS for layout in ({}, {"workers": 3}, {"matrix": "quantile", "page_rows": 97})),
    *(
        (model | {"cat_noise": 8.0, "rows": SMALL, "rounds": 1}, layout)
        for model in LIGHT_SETS for layout in ({}, CUDA, NAIVE)
    ),
]  # fmt: skip


def configurations() -> Iterator[tuple[Options, Options]]:
    """(options of the model, layout)."""
    crossed = [
        {**OBJECTIVES[(g + e) % len(OBJECTIVES)], **growth, **extra}
        for e, extra in enumerate(EXTRAS)
        for g, growth in enumerate(GROWTHS)
        if not ("ref" in extra and growth["tree_method"] == "exact")  # which reads no bins
    ]
    yield from ((model, {}) for model in crossed)
    for i, layout in enumerate(LAYOUTS):
        fitting = [model for model in crossed if fits(model, layout)]
        yield from ((model, layout) for model in fitting[i % 7 :: 31 if len(fitting) > 100 else 5])
    grown = [growth for growth in GROWTHS if growth["tree_method"] != "exact"]
    small = [
        {**OBJECTIVES[(2 * e + e // 9) % 9], **grown[e % len(grown)], **extra, **few_steps(grown[e % len(grown)], e)}
        for e, extra in enumerate(EXTRAS)
        if extra.get("max_bin", 0) <= 256
    ]
    yield from ((model, layout) for model in small for layout in ({}, CUDA))
    yield from ((model, NAIVE) for model in small[::2])
    for i, layout in enumerate(SLOW_LAYOUTS):
        fitting = [model for model in small if fits(model, layout)]
        yield from ((model, layout) for model in fitting[i % 3 :: 9 if len(fitting) > 9 else 3])
    yield from MORE


def few_steps(growth: Options, number: int) -> Options:
    """What keeps a training short that costs as much a step, the more so the deeper trees may get."""
    deepest = {} if growth.get("grow_policy") == "lossguide" and growth["max_depth"] == 0 else {"max_depth": 3}
    return {**deepest, "rows": SMALL, **({"rounds": 1} if number % 3 else {})}


def fits(model: Options, layout: Options) -> bool:
    """Whether a model can be trained in this layout, and the layout makes a difference."""
    table = model.get("table", "mixed")
    is_csr, is_sparse = layout.get("as") in ("csr", "csc"), table.startswith("sparse")
    is_exact, is_ref = model["tree_method"] == "exact", "ref" in model
    return not (
        (is_exact and ("matrix" in layout or "workers" in layout or "search" in layout or "histogram_memory" in layout))
        or ("continued" in layout and model.get("rounds") == 1)
        or (is_ref and ("ref" in layout or "workers" in layout))
        or (table == "categories" and "as" in layout)
        or is_csr != (is_sparse and ("as" in layout or "packing" in layout))
        or (layout.get("as") == "uint8" or ("packing" in layout and not is_csr)) and table != "one-hot"
    )


def name_of(model: Options, layout: Options) -> str:
    parts = [", ".join(f"{key}={value}" for key, value in options.items()) for options in (model, layout)]
    return " | ".join(part for part in parts if part)


def model_of(name: str) -> str:
    """The configuration without its layout, which has the same digest."""
    return name.split(" | ")[0]


def options_of(name: str) -> list[str]:
    return re.split(r", | \| ", name)


def sample() -> list[str]:
    """Those that take some 10 s together: a part of those on the CPU and in plain loops, a few in the simulator of CUDA, and
    whatever is the first with one of its options."""
    slow = [name for name in CONFIGURATIONS if "backend=cuda" in name]
    quick = [name for name in CONFIGURATIONS if "backend=cuda" not in name]
    chosen = quick[::12] + slow[::64]
    seen = {option for name in chosen for option in options_of(name)}
    for name in quick + slow:
        if not seen.issuperset(options_of(name)):
            chosen.append(name)
            seen.update(options_of(name))
    return chosen


def covering(names: list[str]) -> list[str]:
    """Some of the names: those that together have every option that one of them has, and every way to lay out the work with every
    other and with all that is trained and ways in which trees grow."""
    told = "objective", "tree_method", "grow_policy", "table", "sampling_method", "multi_strategy"

    def facts(name: str) -> set[tuple[str, ...]]:
        model, layout = CONFIGURATIONS[name]
        kinds = [f"{key}={value}" for key, value in model.items() if key in told]
        layouts = sorted(f"{key}={value}" for key, value in layout.items())
        return {(option,) for option in options_of(name)} | {*product(kinds, layouts), *combinations(layouts, 2)}

    facts_of, chosen = {name: facts(name) for name in names}, list[str]()
    left = set().union(*facts_of.values())
    while left:
        chosen.append(max(names, key=lambda name: len(facts_of[name] & left)))
        left -= facts_of[chosen[-1]]
    return chosen


CONFIGURATIONS: dict[str, tuple[Options, Options]] = {name_of(*both): both for both in configurations()}

# ---------------------------------------------------------------------------------------------------------------------
# Tables


@cache
def make_table(table: str, n: int) -> tuple[Any, np.ndarray]:
    """(table, its numbers (n, n_columns) with NaN where missing)."""
    rng = np.random.default_rng(17)
    if table == "narrow":
        X = rng.integers(-(10**6), 10**6, (n, 2)) / 2**18
    elif table == "one-hot":
        flags = [one_hot(rng, n, k) for k in ((12, 5) if n > SMALL else (5, 3))]
        X = np.column_stack([*flags, rng.integers(0, 6, (n, 2))]).astype(float)
    elif table.startswith("sparse"):  # three categories by a cell a row, a column often stored, one always
        often = [rng.random(n) < share for share in (0.7, 1.0)]
        is_stored = np.column_stack([*(one_hot(rng, n, k) for k in ((12, 5, 9) if n > SMALL else (6, 4))), *often])
        values = np.where(rng.random(is_stored.shape) < 0.1, np.nan, rng.integers(1, 3, is_stored.shape))
        values[:, -2:] = np.column_stack([rng.integers(-5, 6, n), rng.integers(-200, 200, n) / 64])
        X = np.where(is_stored, values, 0.0 if table == "sparse-zero" else np.nan)
        return (X, scipy.sparse.csr_matrix((values[is_stored], np.nonzero(is_stored)), shape=X.shape)), X
    else:  # distinct numbers, few, mostly zero, constant, with missing values, missing but in a row, coarse
        sizes = [(10**6, 2**18), (3, 1), (2, 1), (0, 1), (500, 128), (3, 1), (40, 16)]
        X = np.column_stack([rng.integers(-most, most + 1, n) / divisor for most, divisor in sizes])
        X[rng.random(n) < 0.7, 2] = 0
        X[rng.random(n) < 0.2, 4] = X[1:, 5] = np.nan
    if table == "categories":
        letters = np.array(list("hgfedcba"), object)
        letter = np.where(rng.random(n) < 0.1, None, letters[(3 * X[:, 1].astype(int)) % 8])
        size = np.array(["small", "large", "huge"], object)[X[:, 2].astype(int) % 3]
        frame = {"x": X[:, 0], "letter": pd.Categorical(letter), "size": pd.Categorical(size), "z": X[:, 4], "flag": X[:, 6] > 0}
        return pd.DataFrame(frame), X
    return X.astype(np.float32), X


def one_hot(rng: np.random.Generator, n_rows: int, n_categories: int) -> np.ndarray:
    return rng.integers(0, n_categories, n_rows)[:, None] == np.arange(n_categories)


def make_labels(options: Options, X: np.ndarray) -> np.ndarray:
    """float32 (n_rows,), or (n_rows, 2) for two targets."""
    rng, filled, n = np.random.default_rng(23), np.where(np.isnan(X), 1.5, X).T, len(X)
    signal = filled[0] * filled[1] + rng.integers(-32, 33, n) / 32
    for i, column in enumerate(filled[:-1]):
        signal = signal + (i % 3 - 1.25) * column
    labels = np.stack([signal, filled[-1] - signal / 2], axis=1)[:, : options.get("targets", 1)]
    n_classes = options.get("num_class") or (2 if "binary" in options.get("objective", options.get("estimator")) else 0)
    if options.get("estimator") == "classifier":
        n_classes = options.get("num_class", 2)
    if n_classes:
        ordered = np.sort(labels, axis=0)
        labels = sum((labels > ordered[n * k // n_classes]).astype(int) for k in range(1, n_classes))
    labels = LABELS.get(options.get("objective", ""), lambda labels: labels)(labels)
    if "labels" in options:
        labels = np.where(rng.random(labels.shape) < 0.2, np.nan, labels)
    return np.squeeze(labels.astype(np.float32), 1) if labels.shape[1] == 1 else labels.astype(np.float32)


#: Labels of objectives that do not take any number: whole numbers of sixteenths, as exact as they were.
LABELS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "reg:squaredlogerror": np.abs,
    "reg:logistic": lambda labels: np.minimum(np.abs(np.round(labels)), 16) / 16,
    "count:poisson": lambda labels: np.abs(np.round(labels)),
    "reg:gamma": lambda labels: np.abs(np.round(labels)) + 0.5,
    "reg:tweedie": lambda labels: np.abs(np.round(labels)),
    "rank:pairwise": lambda labels: np.minimum(np.abs(np.round(labels)), 4),
    "rank:ndcg": lambda labels: np.minimum(np.abs(np.round(labels)), 4),
    "rank:map": lambda labels: labels > 0,
    "survival:cox": lambda labels: np.round(labels) + 0.25,  # with ties; negative ones have no event
}


def make_weights(options: Options, n: int) -> np.ndarray | None:
    """loud : few rows weigh a million times as much as most, so that sums take two limbs."""
    rng = np.random.default_rng(29)
    weights = rng.integers(0, 5, n) / 2
    if options.get("weights") == "loud":
        weights[rng.random(n) < 0.03] *= 2.0**20
    return weights if "weights" in options else None


def make_matrix(options: Options, rows: slice = slice(None)) -> gb.DMatrix:
    """The matrix of these rows of the table. ref : "same" or "half" has its cuts from another QuantileDMatrix."""
    table, X = make_table(options.get("table", "mixed"), options.get("rows", 280 if options.get("table") == "narrow" else ROWS))
    n, weights, info = len(X), make_weights(options, len(X)), {}
    if isinstance(table, tuple):
        table, info = table[options.get("as") in ("csr", "csc")], {"sparse_absent": options["table"].removeprefix("sparse-")}
    convert: dict[str, Callable] = {
        "fortran": np.asfortranarray, "float64": np.float64, "uint8": np.uint8, "csc": scipy.sparse.csc_matrix
    }  # fmt: skip
    table = convert.get(options.get("as", ""), lambda table: table)(table)[rows]
    if "cat_encoding" in options:  # a worker's part lacks categories
        table = table.assign(**{name: table[name].cat.remove_unused_categories() for name in ("letter", "size")})
    if "types" in options:
        numbers = np.where(np.isnan(X), 0, X)
        info["feature_types"] = ["c" if is_code else "q" for is_code in ((numbers >= 0) & (numbers % 1 == 0)).all(axis=0)]
    info |= {"weight": None if weights is None else weights[rows]}
    info |= {"missing_labels": "mask"} if "labels" in options else {}
    label = make_labels(options, X)[rows]
    if options.get("objective") == "survival:aft":  # known, enclosed, earlier and later times
        low, kind = np.abs(np.round(label)) + np.float32(0.5), np.arange(n)[rows] % 4
        info["label_lower_bound"] = np.where(kind == 2, 0, low)
        info["label_upper_bound"] = np.select([kind == 1, kind == 3], [2 * low, np.full(len(low), np.inf)], low)
    else:
        info["label"] = label
    if options.get("objective", "").startswith("rank:"):  # no query is on two workers
        info["qid"] = np.searchsorted([1, n // 6, n // 3, n // 2, 3 * n // 4], np.arange(n), "right")[rows]
        info["weight"] = info["qid"] * 3 % 5 / 2 if "weights" in options else None
    if "base_margin" in options:
        n_outputs = options.get("num_class", options.get("targets", 1))
        info["base_margin"] = (np.arange(n * n_outputs).reshape(n, n_outputs) % 11 / 8 - 0.5)[rows]
    if options.get("matrix") == "streamed":  # batches, of which everything goes to files
        encoding = {"cat_encoding": params_of(options)["cat_encoding"]} if options.get("table") == "categories" else {}
        of_table = {name: info.pop(name) for name in ("feature_types", "missing_labels") if name in info}
        stream = parts_of(table, **{name: values for name, values in info.items() if values is not None})
        max_bin = params_of(options)["max_bin"]
        max_bin = max(16 * max_bin, 1024) if options.get("tree_method") == "approx" else max_bin  # as training asks for
        return gb.ExtMemQuantileDMatrix(
            stream, max_bin=max_bin, cache_memory=0, page_rows=options["page_rows"], **encoding, **of_table
        )  # fmt: skip
    if "matrix" not in options and "ref" not in options:
        return gb.DMatrix(table, **info)
    if options.get("table") == "categories":
        info["cat_encoding"] = params_of(options)["cat_encoding"]
    max_bin = params_of(options)["max_bin"]
    info["max_bin"] = max(16 * max_bin, 1024) if options.get("tree_method") == "approx" else max_bin  # as training asks for
    if "ref" in options:
        size = n // 2 if options["ref"] == "half" else n
        weight = None if weights is None else weights[rows][:size]
        encoding = info.get("cat_encoding")
        info["ref"] = gb.QuantileDMatrix(table[:size], weight=weight, max_bin=info["max_bin"], cat_encoding=encoding)
    return gb.QuantileDMatrix(table, page_rows=options.get("page_rows"), **info)


# ---------------------------------------------------------------------------------------------------------------------
# Training

# Options that are no parameters of training.
FACTS = {
    *("table", "types", "rows", "rounds", "targets", "labels", "weights", "base_margin", "ref", "early_stopping", "estimator",
      "update"),
    *("as", "matrix", "page_rows", "workers", "continued", "evals", "backend", "packing", "search"),
}
DEFAULTS = {"max_bin": 16, "seed": 5, "nthread": 2}


def params_of(options: Options) -> Options:
    encoding = {"cat_encoding": "ordinal"} if options.get("table") == "categories" else {}
    params = {**DEFAULTS, **encoding, **{key: value for key, value in options.items() if key not in FACTS}}
    if params.get("objective") == "custom":
        params["objective"] = "multi:softprob" if "num_class" in params else "reg:squarederror"
    return params


def custom(prediction: np.ndarray, dtrain: gb.DMatrix) -> tuple[np.ndarray, np.ndarray]:
    """Slopes that flatten far from the label; there some hessians are negative."""
    label = dtrain.get_label()
    residual = prediction - (label if prediction.ndim == 1 else label[:, None] == np.arange(prediction.shape[1]))
    slope = 1 + np.abs(residual) / np.float32(4)
    return (residual / slope).astype(np.float32), (1 / slope - np.float32(0.1)).astype(np.float32)


@contextmanager
def set_up(layout: Options, writes_out: bool = False) -> Iterator[None]:
    """Small tables train on all threads, sparse ones stay so unless writes_out says that they do as for users; and what a layout
    asks of the library's inside. All that is not its public interface is here and in check_matrix."""
    from gpuboost.backend import cuda
    from gpuboost.data import density, packing

    make = {"cuda": lambda: cuda.CudaBackend(SimulatedDevice()), "naive": NaiveBackend}.get(layout.get("backend", ""))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gpuboost.linear.boosting.VALUES_PER_THREAD", 1)
        patch.setattr("gpuboost.backend.cpu.training.busy_threads", lambda binned, n_outputs, n_threads: n_threads)
        if not writes_out:
            patch.setattr(density, "CODES_OF_A_CELL", 0)
            patch.setattr(density, "CODES_OF_A_SMALL_CELL", 0)
        if make:
            backend = make()
            patch.setattr("gpuboost.backend.choose_backend", lambda *_, **__: backend)
        if "packing" in layout:
            patch.setattr(packing, "UNDONE_NODES", 0)
        if "search" in layout:
            patch.setattr("gpuboost.backend.cpu.trees.BIN_VISITS", {"walks": 10**9, "histograms": 0}[layout["search"]])
        yield


def check_matrix(dtrain: gb.DMatrix, layout: Options) -> None:
    """The matrix is what its layout says."""
    if "page_rows" in layout:
        assert len(dtrain.any_binned().pages) > ("workers" not in layout)
    if "matrix" in layout:
        assert (dtrain.any_binned().packing is not None) == ("packing" in layout)


def train(model: Options, layout: Options, rows: slice = slice(None)) -> gb.Booster:
    options = {**model, **layout}
    if "estimator" in model:
        return fit(model)
    dtrain, params, rounds = make_matrix(options, rows), params_of(options), options.get("rounds", ROUNDS)
    check_matrix(dtrain, layout)
    call: Options = {"obj": custom if options["objective"] == "custom" else None, "verbose_eval": False}
    if "continued" in layout:
        call["xgb_model"] = gb.train(params, dtrain, 1, **call)
        rounds -= 1
    if "update" in model:  # by other parameters
        call["xgb_model"] = gb.train(params, dtrain, rounds, **call)
        params |= {"process_type": "update", "updater": model["update"], "max_depth": 2, "reg_lambda": 3.0}
    if layout.get("continued") == "file":
        with tempfile.TemporaryDirectory() as folder:
            call["xgb_model"].save_model(path := Path(folder) / "model.ubj")
            return gb.train(params, dtrain, rounds, **{**call, "xgb_model": path})
    if "evals" in layout or "early_stopping" in model:
        of_table = "objective", "table", "cat_encoding", "targets", "labels", "num_class"
        kept = {key: model[key] for key in of_table if key in model}
        part = {None: slice(None), 0: slice(0, 30)}.get(rows.start, slice(30, None))  # of all workers, or of one of two
        other = make_matrix({**kept, "rows": 70}, part)
        if "early_stopping" in model:  # labels turned around: the scores get worse
            other.set_label(options.get("num_class", 2) - 1 - other.get_label())
        call |= {"evals": [(dtrain, "train"), (other, "other")], "early_stopping_rounds": model.get("early_stopping")}
    return gb.train(params, dtrain, rounds, **call)


def fit(model: Options) -> gb.Booster:
    """What a scikit-learn estimator trains."""
    table, X = make_table(model.get("table", "mixed"), ROWS)
    label, params = make_labels(model, X), {**params_of(model), "n_estimators": model.get("rounds", ROUNDS)}
    for key in ("seed", "nthread", "num_class"):
        params.pop(key, None)
    estimator = {"regressor": gb.GPUBoostRegressor, "classifier": gb.GPUBoostClassifier}[model["estimator"]]
    stop = {"eval_set": [(table[:50], label[49::-1])]} if "early_stopping" in model else {}
    params = {**params, "random_state": 5, "n_jobs": 2, "early_stopping_rounds": model.get("early_stopping")}
    return estimator(**params).fit(table, label, sample_weight=make_weights(model, ROWS), verbose=False, **stop).get_booster()


def compute(name: str, writes_out: bool = False) -> str:
    """The digest of a configuration's model, the same from every worker. Half of its trees split, or more. writes_out : as
    set_up."""
    model, layout = CONFIGURATIONS[name]
    n = model.get("rows", ROWS)
    bounds = {1: [0, n], 2: [0, n // 3, n], 3: [0, 1, n // 2, n]}[layout.get("workers", 1)]
    with warnings.catch_warnings(), set_up(layout, writes_out):
        warnings.simplefilter("ignore")
        work = lambda rank: train(model, layout, slice(bounds[rank], bounds[rank + 1]))  # noqa: E731
        boosters = run_threads(len(bounds) - 1, work) if "workers" in layout else [train(model, layout)]
        models = [booster.model for booster in boosters]
    split = [tree.n_leaves > 1 for trained in models for tree in trained.trees]
    is_linear = model.get("booster") == "gblinear"
    assert is_linear or 2 * sum(split) >= len(split) > 0, f"trees do not split: {name}"
    digests = {digest(trained) for trained in models}
    assert len(digests) == 1, f"the workers' models differ: {name}"
    return digests.pop()


# ---------------------------------------------------------------------------------------------------------------------
# What changed


def recorded() -> dict[str, str]:
    return json.loads(FILE.read_text())


def difference(before: dict[str, str], after: dict[str, str]) -> str:
    """What changed between digests by name, in lines; "" where nothing did.

    Changed ones are grouped by options, one or two, that all of them have and nothing unchanged has: as long as possible by those
    that tell most.
    """
    lines = [f"not recorded: {name}" for name in after if name not in before]
    lines += [f"recorded, but no configuration any more: {name}" for name in before if name not in after]
    common = [name for name in after if name in before]
    changed = [name for name in common if before[name] != after[name]]
    if not changed:
        return "\n".join(lines)
    lines.append(f"{len(changed)} of {len(common)} models changed:")
    if len(changed) == len(common):
        return "\n".join([*lines, "  all"])
    for size in (1, 2):
        n_with = Counter(group for name in common for group in combinations(options_of(name), size))
        n_changed = Counter(group for name in changed for group in combinations(options_of(name), size))
        guilty = {group for group, n in n_changed.items() if n == n_with[group] > 1}
        left = changed
        while guilty:
            found = Counter(group for name in left for group in combinations(options_of(name), size) if group in guilty)
            if not found or max(found.values()) < 2:
                break
            group = max(found, key=lambda group: (found[group], group))
            left = [name for name in left if not set(group) <= set(options_of(name))]
            lines.append(f"  all {n_with[group]} with {' and '.join(group)}")
        changed = left
    return "\n".join(lines + [f"  {name}" for name in changed])


def compute_all(names: Iterable[str]) -> dict[str, str]:
    return {name: compute(name) for name in names}


def main(arguments: list[str]) -> int:
    digests = compute_all(CONFIGURATIONS)
    if arguments == ["--write"]:
        FILE.write_text(json.dumps(digests, indent=0, sort_keys=True) + "\n")
    changes = difference(recorded(), digests)
    print(changes or f"{len(digests)} models, all as recorded")
    return int(bool(changes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
