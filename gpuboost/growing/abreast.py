"""Plans of a round that grow side by side: each on a training of its own, in a thread of its own.

Threads that share a tree wait for each other several times a level; those that have a tree each do not. A forest of 100 trees of
depth 10 on 450,000 × 28, two cores of an AMD EPYC: 6.0 -> 5.0 s.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

from gpuboost.backend.contract import Array, Formula, Training
from gpuboost.backend.plans import Round
from gpuboost.communicator import Communicator
from gpuboost.growing.grower import Grower
from gpuboost.growing.policy import GrowthPolicy

__all__ = ["Growers"]


class Growers:
    """A grower for each of some trainings on the same rows, at the same margins."""

    def __init__(self, trainings: Sequence[Training], comm: Communicator, policy: GrowthPolicy, proposals: str | None) -> None:
        self._growers = [(training, Grower(training, comm, policy, proposals)) for training in trainings]

    @property
    def may_grow_rounds(self) -> bool:
        """Whether grow_rounds is worth asking for, of plans that are one a round."""
        return len(self._growers) == 1 and self._growers[0][1].may_grow_rounds

    def grow_rounds(self, plan: Round, n_rounds: int, objective: Formula) -> Sequence[object]:
        """Grower.grow_rounds."""
        return self._growers[0][1].grow_rounds(plan, n_rounds, objective)

    def grow(
        self, plans: Iterator[Round], objective: Formula, given: Sequence[Any] | None, margin: Array | None
    ) -> Iterator[Training]:
        """Grow plans, all from the gradients at the trainings' margins as they are now, or from those given (what Gradients.set
        takes), and add their trees to margin, if any, in order.

        Yields the training of each plan, in their order, which holds its trees until the next one is asked for.
        """
        if len(self._growers) == 1:
            for plan in plans:
                yield _grow(*self._growers[0], plan, objective, given, margin)
            return
        under_way = deque[Future[Training]]()
        with ThreadPoolExecutor(len(self._growers)) as threads:
            for number, plan in enumerate(plans):
                if len(under_way) == len(self._growers):
                    yield _added(under_way.popleft(), margin)
                training, grower = self._growers[number % len(self._growers)]  # those of the trees yielded last
                under_way.append(_begin(threads, training, grower, plan, objective, given))
            while under_way:
                yield _added(under_way.popleft(), margin)


def _grow(
    training: Training, grower: Grower, plan: Round, objective: Formula, given: Sequence[Any] | None, margin: Array | None
) -> Training:
    gradients, maxima = training.gradients, None
    if not plan.goes_on:  # else anew: drawing rows takes the gradients of the others away
        maxima = gradients.compute(objective) if given is None else gradients.set(*given)
    grower.grow(plan, maxima, margin)
    return training


def _begin(
    threads: ThreadPoolExecutor, training: Training, grower: Grower, plan: Round, objective: Formula,
    given: Sequence[Any] | None,
) -> Future[Training]:  # fmt: skip
    """_grow in a thread; or here, where the interpreter is about to end and starts none."""
    try:
        return threads.submit(copy_context().run, _grow, training, grower, plan, objective, given, None)
    except RuntimeError as error:
        if "cannot schedule" not in str(error):
            raise
        done = Future[Training]()
        done.set_result(_grow(training, grower, plan, objective, given, None))
        return done


def _added(under_way: Future[Training], margin: Array | None) -> Training:
    training = under_way.result()
    if margin is not None:
        training.update_margin(margin)
    return training
