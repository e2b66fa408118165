"""What Explainer (contract.py) is given: trees, and the parts of an explanation."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpuboost.backend.contract import FlatTrees

__all__ = ["Changes", "ExplainedTrees", "LeafTables", "Part", "Walks", "n_sums"]


@dataclass(frozen=True, eq=False)
class ExplainedTrees:
    """The trees of a model, in host memory.

    flat : for values. nodes : uint32 (4 · n_nodes,), the same as kernels/predict.py steps through them.
    features : int32 (n_used,), those that are split by, ascending. columns : int32 (n_features,), their numbers among these.
    means : float64 (n_nodes, leaf_size), what each node predicts on average over the cover below it.
    biases : float64 (n_outputs,), the same of all trees together.
    kept : what a device has made of this, by what only the device knows.
    """

    flat: FlatTrees
    nodes: np.ndarray
    features: np.ndarray
    columns: np.ndarray
    means: np.ndarray
    biases: np.ndarray
    kept: dict[Any, Any] = field(default_factory=dict)

    @property
    def n_features(self) -> int:
        return len(self.columns)

    @property
    def n_outputs(self) -> int:
        return len(self.biases)

    @property
    def sets(self) -> np.ndarray:
        """The sets of categories, or none."""
        return np.zeros(0, np.uint32) if self.flat.sets is None else self.flat.sets


def n_sums(trees: ExplainedTrees, with_pairs: bool) -> int:
    """Sums of a row: a value for each output and feature, and for each pair of features."""
    n_used = len(trees.features)
    return trees.n_outputs * (n_used + (n_used * (n_used - 1) // 2 if with_pairs else 0))


@dataclass(frozen=True, eq=False)
class Walks:
    """Walks over some of the trees: SHAP values that depend on the trees' covers (kernels/path_steps.py), in host memory.

    first_step : int64 (k + 1,). n_points : int64 (k,), of each walk. n_levels : of the deepest one. steps : STEP.
    coefficients : float64. partners : int32 (n, 2). with_pairs : whether interactions are asked for.
    """

    first_step: np.ndarray
    n_points: np.ndarray
    n_levels: int
    steps: np.ndarray
    coefficients: np.ndarray
    partners: np.ndarray
    with_pairs: bool


@dataclass(frozen=True)
class Changes:
    """All trees, by what the splits on a row's own path change (kernels/approximate_contributions.py)."""


@dataclass(frozen=True, eq=False)
class LeafTables:
    """Some of the leaves against a background table (kernels/background.py), in host memory.

    leaves : int64 (n_leaves, background.N_FIELDS). conditions : int32 (n, 3). columns : int32 (m,), of the bits' features.
    outputs : int64 (n_leaves,), the first that each adds to. values : float32 (n_leaves, leaf_size). tables : float64.
    """

    leaves: np.ndarray
    conditions: np.ndarray
    columns: np.ndarray
    outputs: np.ndarray
    values: np.ndarray
    tables: np.ndarray


Part = Walks | Changes | LeafTables
