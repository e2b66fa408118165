"""The trees of a model laid out for explanations: once for all, and as walks part by part (kernels/path_steps.py)."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np

from gpuboost.backend.explained import ExplainedTrees, Walks
from gpuboost.backend.trees import flatten_trees
from gpuboost.kernels.contributions import lay_out_nodes
from gpuboost.kernels.path_steps import LONGEST, N_COEFFICIENTS, N_LEVELS, N_SIZES, N_STEPS, lay_out_steps_cpu, mean_values
from gpuboost.kernels.structs import STEP
from gpuboost.model.model import Model

__all__ = ["TreeWalks", "cut_into_parts", "explained_trees", "model_covers", "points_up_to", "with_means"]

PART_BYTES = 64 << 20  # of the coefficients of a part: small beside the rows that read it, large beside a launch


@cache
def quadrature_points(n: int) -> tuple[np.ndarray, np.ndarray]:
    """float64 (n,), (n,): points in (0, 1) and weights of Gauss and Legendre, exact for polynomials of degree 2n − 1."""
    points, weights = np.polynomial.legendre.leggauss(n)
    return (points + 1) / 2, weights / 2


def model_covers(model: Model) -> np.ndarray:
    """float64 (n_nodes,) of all trees. Raises ValueError where one is negative or not a number."""
    for number, tree in enumerate(model.trees):
        if not (tree.cover >= 0).all():
            raise ValueError(
                f"tree {number} has a node whose cover (sum_hessian) is negative or not a number, so there is no share of rows "
                "to weigh its branches by. Give a background table: gpuboost.explainer(model, background)."
            )
    return np.concatenate([np.zeros(0), *[tree.cover for tree in model.trees]]).astype(np.float64)


def explained_trees(model: Model) -> ExplainedTrees:
    """The trees, with leaves as they count in a prediction; means are zero so far."""
    flat = flatten_trees(model.weighed_trees, model.tree_groups)
    nodes, features = lay_out_nodes(flat.nodes, flat.leaf_values, flat.first_node, model.n_features)
    columns = np.full(model.n_features, -1, np.int32)
    columns[features] = np.arange(len(features))
    return ExplainedTrees(flat, nodes, features, columns, np.zeros(flat.leaf_values.shape), np.zeros(model.n_outputs))


def with_means(trees: ExplainedTrees, covers: np.ndarray) -> ExplainedTrees:
    """The same trees with the means that covers give."""
    flat, means, biases = trees.flat, np.zeros_like(trees.means), np.zeros_like(trees.biases)
    mean_values(flat.nodes, flat.leaf_values, covers, flat.first_node, means)
    for root, output in zip(flat.first_node, flat.first_output):
        biases[output : output + means.shape[1]] += means[root]
    return replace(trees, means=means, biases=biases, kept={})


class TreeWalks:
    """The walks over a model's trees. Few are kept; many are laid out anew whenever they are asked for."""

    def __init__(self, model: Model, trees: ExplainedTrees, covers: np.ndarray, with_pairs: bool, n_threads: int) -> None:
        self._with_pairs, self._n_threads = with_pairs, n_threads
        flat = trees.flat
        self._walks = np.array(
            [(t, own, output + own) for t, output in enumerate(flat.first_output) for own in range(flat.leaf_values.shape[1])],
            np.int32,
        ).reshape(-1, 3)
        self._known = (
            flat.nodes, flat.leaf_values, covers, flat.first_node, trees.columns, len(trees.features), trees.n_outputs,
            with_pairs,
        )  # fmt: skip
        self._sizes = np.zeros((len(self._walks), N_SIZES), np.int64)
        self._run(slice(None), np.zeros((0, 2, 0)), np.zeros((len(self._walks), 3), np.int64), *_room(0, 0, 0))
        self._points = points_up_to(max(1, (int(self._sizes[:, LONGEST].max(initial=1)) + 1) // 2))
        self._parts = cut_into_parts(self._sizes[:, N_STEPS] * STEP.itemsize + self._sizes[:, N_COEFFICIENTS] * 8)
        self._kept: list[Walks] = []

    def _run(self, part: slice, points: np.ndarray, places: np.ndarray, *room: np.ndarray) -> None:
        *trees, columns, n_used, n_outputs, with_pairs = self._known
        lay_out_steps_cpu(
            *trees, self._walks[part], columns, n_used, n_outputs, with_pairs, points, places, self._sizes[part], *room,
            self._n_threads,
        )  # fmt: skip

    def __iter__(self) -> Iterator[Walks]:
        laid_out = map(self._lay_out, self._parts)
        if len(self._parts) == 1:
            self._kept = self._kept or list(laid_out)
        return iter(self._kept or laid_out)

    def _lay_out(self, part: slice) -> Walks:
        sizes = self._sizes[part]
        places = np.concatenate([np.zeros((1, 3), np.int64), sizes[:, :3].cumsum(axis=0)])
        room = _room(*places[-1])
        self._run(part, self._points, places[:-1].copy(), *room)
        n_points = np.maximum((sizes[:, LONGEST] + 1) // 2, 1)
        return Walks(places[:, 0].copy(), n_points, max(int(sizes[:, N_LEVELS].max()), 1), *room, self._with_pairs)


def _room(n_steps: int, n_coefficients: int, n_partners: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return np.zeros(n_steps, STEP), np.empty(n_coefficients), np.empty((n_partners, 2), np.int32)


def cut_into_parts(n_bytes: np.ndarray) -> list[slice]:
    """Runs of items of so many bytes each, of about PART_BYTES together."""
    numbers = np.cumsum(n_bytes) // PART_BYTES
    return [slice(*ends) for ends in pairwise([*np.flatnonzero(np.diff(numbers, prepend=-1)).tolist(), len(numbers)])]


def points_up_to(most: int) -> np.ndarray:
    """float64 (most, 2, most), as lay_out_steps_cpu takes them."""
    points = np.zeros((most, 2, most))
    for n in range(1, most + 1):
        points[n - 1, :, :n] = quadrature_points(n)
    return points
