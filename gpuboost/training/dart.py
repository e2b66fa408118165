"""Dropout of trees (DART, Rashmi & Gilad-Bachrach 2015), as XGBoost 3.4 has it (in 3.2 the new trees of a round share η): a round
grows without some of the trees so far; then they and the new ones share what one of them is worth.

    normalize_type="tree"      k dropped: each × k / (k + η), new ones 1 / (k + η)      η: learning_rate
                   "forest"    each × 1 / (1 + η), new ones 1 / (1 + η)
    nothing dropped            new ones weigh 1

A tree is dropped by a hash of (seed, round, its number): with probability rate_drop, or in proportion to its weight.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import frexp

from gpuboost.backend import Backend
from gpuboost.backend.contract import Array
from gpuboost.backend.dropout import VALUES_AT_ONCE, draw_dropped, weights_after
from gpuboost.kernels.reweigh import FRACTION_BITS, MOST_WEIGHT
from gpuboost.model.model import Model
from gpuboost.model.tree import Tree
from gpuboost.params import Params

__all__ = ["Dart", "Reweighed", "check_weights"]

LeafReader = Callable[[Sequence[Tree]], Array]  # float32 (n_trees · leaf_size, n_rows): by row the values of a leaf of each


@dataclass(frozen=True)
class Reweighed:
    """The rows of one matrix (kernels/reweigh.py).

    read : their leaves. base : float32 (n_outputs, n_rows), margins without trees. sums : int64, of the trees in them. margin :
    float32, OUT: of all of it.
    """

    read: LeafReader
    base: Array
    sums: Array
    margin: Array


class Dart:
    """The trees of a model in training, and the margins that they come into and are taken out of.

    own : the training rows.
    """

    def __init__(self, backend: Backend, model: Model, own: Reweighed) -> None:
        self._backend, self._model, self._own = backend, model, own
        self._scale, self._dropped, self._before = fixed_scale(model.trees), list[int](), list[float]()
        self.fill(own)

    def fill(self, rows: Reweighed) -> None:
        """Sums and margins anew, of all trees."""
        weights = self._weights
        self._backend.memory.copy(self._backend.memory.zeros(rows.sums.shape, rows.sums.dtype), rows.sums)
        self._change(rows, range(len(weights)), [0.0] * len(weights), weights)

    @property
    def _weights(self) -> list[float]:
        assert self._model.tree_weights is not None
        return self._model.tree_weights

    def drop(self, params: Params, round_number: int) -> None:
        """Take the trees that a round leaves out from the margins of the training rows."""
        self._before = list(self._weights)
        self._dropped = draw_dropped(params, self._before, round_number)
        if self._dropped:
            self._change(self._own, self._dropped, [self._before[i] for i in self._dropped], [0.0] * len(self._dropped))

    def weights_with(self, n_new: int, params: Params) -> list[float]:
        """What all trees weigh when the round has grown."""
        return weights_after(self._before, self._dropped, n_new, params)

    def take_round(self, others: Sequence[Reweighed]) -> None:
        """Bring the margins, also of others that are watched, to the model, which has the round now."""
        scale = fixed_scale(self._model.trees)
        if scale != self._scale:  # a leaf larger than all before
            self._scale = scale
            for rows in (self._own, *others):
                self.fill(rows)
            return
        new = range(len(self._before), len(self._weights))
        numbers, absent = [*self._dropped, *new], [0.0] * len(new)
        after = [self._weights[i] for i in numbers]
        self._change(self._own, numbers, [0.0] * len(numbers), after)
        for rows in others:
            self._change(rows, numbers, [*(self._before[i] for i in self._dropped), *absent], after)

    def _change(self, rows: Reweighed, numbers: Sequence[int], before: Sequence[float], after: Sequence[float]) -> None:
        """Weigh some trees anew; one of several outputs as if it were a tree for each."""
        model, predictor = self._model, self._backend.predictor
        size = model.trees[0].leaf_size if model.trees else 1
        at_once = max(1, VALUES_AT_ONCE // max(1, size * rows.margin.shape[1]))
        for first in range(0, len(numbers), at_once):
            some = slice(first, first + at_once)
            leaves = rows.read([model.trees[i] for i in numbers[some]])
            outputs = [model.tree_groups[i] + own for i in numbers[some] for own in range(size)]
            was, will_be = ([w * self._scale for w in weights[some] for _ in range(size)] for weights in (before, after))
            predictor.reweigh(leaves, outputs, was, will_be, rows.sums)
        predictor.write_margins(rows.base, rows.sums, 1 / self._scale, rows.margin)


def fixed_scale(trees: Sequence[Tree]) -> float:
    """The power of two that gives the largest leaf FRACTION_BITS bits."""
    largest = max((float(abs(tree.leaf_value).max()) for tree in trees), default=0.0)
    return 2.0 ** (FRACTION_BITS - frexp(largest)[1])


def check_weights(weights: Sequence[float]) -> None:
    """ValueError for trees of a loaded model that weigh more than fixed point has room for; training only takes off."""
    if max(map(abs, weights), default=0.0) > MOST_WEIGHT:
        raise ValueError(f"a tree of the model weighs more than {MOST_WEIGHT:g}, so that dart cannot go on from it. Train anew.")
