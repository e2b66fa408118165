"""Growth policies: which of the evaluated leaves are split next, and when a tree is done."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from gpuboost.backend.contract import Formula, Training, Trees
from gpuboost.backend.plans import Round
from gpuboost.params import Params, most_leaves

__all__ = ["GrowthPolicy", "growth_policy"]


@dataclass(frozen=True)
class GrowthPolicy(ABC):
    """max_depth, max_leaves : of a tree; 0 means no limit."""

    max_depth: int
    max_leaves: int

    best_first: ClassVar[bool]

    def grow_at_once(self, trees: Trees) -> bool:
        """Grow the trees in one call; False where it has to be done step by step."""
        return trees.grow_at_once(self.max_depth, self.max_leaves, self.best_first)

    def grow_rounds(self, training: Training, plan: Round, n_rounds: int, objective: Formula) -> Sequence[object]:
        """Training.grow_rounds."""
        return training.grow_rounds(plan, n_rounds, self.max_depth, self.max_leaves, self.best_first, objective)

    @abstractmethod
    def select(self, trees: Trees) -> None:
        """Choose the nodes to split now."""

    @abstractmethod
    def is_done(self, n_steps: int) -> bool:
        """Whether, after so many steps, no tree may be split any further: the new nodes need no search."""

    @abstractmethod
    def has_all_leaves(self, n_steps: int) -> bool:
        """Whether the frontier after so many steps holds all leaves that may still be split."""


class Depthwise(GrowthPolicy):
    """Level by level: every node of it that has a split."""

    best_first = False

    def select(self, trees: Trees) -> None:
        trees.select_level(self.max_depth, self.max_leaves)

    def is_done(self, n_steps: int) -> bool:
        return n_steps == self.max_depth > 0

    def has_all_leaves(self, n_steps: int) -> bool:
        return True


class Lossguide(GrowthPolicy):
    """Leaf by leaf: of each tree the one of the largest gain. (A backend may be ahead of that: Trees.select_best.)"""

    best_first = True

    def select(self, trees: Trees) -> None:
        trees.select_best(self.max_depth, self.max_leaves)

    def is_done(self, n_steps: int) -> bool:
        return 0 < most_leaves(self.max_depth, self.max_leaves) <= n_steps + 1

    def has_all_leaves(self, n_steps: int) -> bool:
        return n_steps == 0


def growth_policy(params: Params) -> GrowthPolicy:
    """The policy that the parameters name."""
    policy = {"depthwise": Depthwise, "lossguide": Lossguide}[params.grow_policy]
    return policy(params.max_depth, params.max_leaves)
