"""Which histograms are kept from step to step, so that siblings come by subtraction."""

from collections.abc import Iterator

from gpuboost.backend.plans import FrontierBatch

__all__ = ["HistogramPool"]


class HistogramPool:
    """The histograms that a round holds, in slots 0 to n_held − 1: those of all leaves that may still be split, or none.

    capacity : histograms that fit on every worker. The trees do not depend on it: it only decides what is built rather than
    subtracted, and how many nodes are worked on at once. at_once : Trees.nodes_at_once.
    """

    def __init__(self, capacity: int, at_once: int | None = None) -> None:
        self._capacity, self._at_once = capacity, at_once
        self._n_held = 0
        self._holds_all = False  # whether the parents of the frontier are among those held

    def start_round(self) -> None:
        """Nothing is held of new trees."""
        self._n_held, self._holds_all = 0, False

    def skip(self) -> None:
        """The frontier was searched without histograms: its children cannot be subtracted."""
        self._holds_all = False

    def batches(self, n_frontier: int, has_all_leaves: bool, is_last: bool = False) -> Iterator[FrontierBatch]:
        """The frontier in batches that fit, and from now on hold its histograms if they do.

        has_all_leaves : whether the frontier is all leaves that may be split. Holding begins with such a one: the siblings of
        others could not be subtracted. is_last : whether no other one follows, so that nothing is subtracted from it.
        """
        if is_last and self._holds_all and self._at_once is not None:
            step = min(self._at_once, n_frontier)
            if self._n_held + step // 2 <= self._capacity:
                for begin in range(0, n_frontier, step):
                    yield FrontierBatch(begin, min(begin + step, n_frontier), self._n_held, True)
                self._holds_all = False
                return
        may_hold = self._holds_all or (has_all_leaves and self._n_held == 0)
        holds = may_hold and self._n_held + n_frontier <= self._capacity
        subtract = holds and self._holds_all
        if holds:
            yield FrontierBatch(0, n_frontier, self._n_held, subtract)
            self._n_held += n_frontier // 2 if subtract else n_frontier
        else:
            step = max(2, self._capacity)
            for begin in range(0, n_frontier, step):
                yield FrontierBatch(begin, min(begin + step, n_frontier), 0, False)
        self._holds_all = holds
