"""Something done by all workers of a cluster together, in attempts: when a worker is lost, those who are there try again.

An attempt, seen from the client:

    1. Dask makes the partitions of all matrices, wherever it likes
    2. every worker opens a door (seat.open_seat), and gets a run of partitions (placement)
    3. seat.load: the workers meet and make their matrices; the partitions are released
    4. seat.work: they do what the job is for. Each returns a result, or how far it came

A worker that dies leaves Dask's list of workers, and its connections break. One that only stopped (SIGSTOP, a machine that hangs)
is found by those who wait for it, after ``timeout`` seconds; while partitions are made, by the scheduler, which hears from every
worker each second or so, after twice as many. Then Dask is told to forget it. It makes its partitions again, and the next
attempt goes on from the last round that a worker has finished.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from itertools import accumulate
from time import monotonic
from typing import Any, TypeVar
from uuid import uuid4

import dask
from distributed import Client, Future

from gpuboost.config import log
from gpuboost.dask.matrix import DaskDMatrix, Origin, empty_part, facts_of_part
from gpuboost.dask.placement import order_workers, place
from gpuboost.dask.seat import Meeting, Outcome, end_seat, load, open_seat, work
from gpuboost.errors import RowError
from gpuboost.network import WorkerLost
from gpuboost.training.checkpoint import Progress

__all__ = ["Job"]

T = TypeVar("T")
FIRST_POLL, LAST_POLL = 0.005, 0.2  # seconds from one look at the futures to the next
LEAST_PATIENCE = 15.0  # seconds, with the scheduler's word: a worker that imports, or waits for a processor, tells it nothing
FAILED = {"error", "cancelled", "lost"}
WATCH_SECONDS = 0.5  # from one look at Dask's list of workers to the next


class _Failed(Exception):
    """An attempt is over, for the loss of workers. lost : their addresses."""

    def __init__(self, reason: str, lost: set[str]) -> None:
        super().__init__(reason)
        self.lost = lost


class Job:
    """function(matrices, keep) on every worker, one model of them all; what one of them returns.

    matrices : made on every worker, of its partitions. config : Config or alike.
    Raises what the function raises, RuntimeError where no worker is left, or the scheduler does not answer.
    """

    def __init__(self, client: Client, matrices: Sequence[DaskDMatrix], function: Callable[..., Any], config: Any = None) -> None:
        self._client, self._matrices, self._function = client, list(matrices), function
        self.timeout = float(getattr(config, "timeout", None) or 30.0)
        self._patience = max(2 * self.timeout, LEAST_PATIENCE)
        retry = getattr(config, "retry", None)
        self._retry = 10 if retry is None else int(retry)
        only = dask.get_annotations().get("workers")  # dask.annotate(workers=[...]): addresses, names, hosts; none says nothing
        self._only = {*only} if isinstance(only, list) and only else None  # nor does a function of keys
        self._heard: dict[str, tuple[float, float]] = {}  # worker → Dask's last sign of life, and when it was new here
        self._forgotten: set[str] = set()
        self._futures: list[Future] = []
        self._attempt = ""
        self._members: list[str] = []  # those of the attempt
        self._working: list[tuple[Future, str]] = []
        self._most_workers = 0  # that there are partitions for
        self._is_pausing = False

    async def run(self) -> Any:
        progress: Progress | None = None
        n_in_vain = 0
        try:
            while True:
                outcome = await self._try(progress)
                if outcome.is_done:
                    self._members = []  # they end by themselves
                    return outcome.result
                before = -1 if progress is None else progress.n_rounds
                if outcome.progress is not None and outcome.progress.n_rounds >= before:
                    progress = outcome.progress
                n_in_vain = 0 if progress is not None and progress.n_rounds > before else n_in_vain + 1
                if n_in_vain > self._retry:
                    raise RuntimeError(
                        f"{n_in_vain} attempts have brought no new round, the last one because {outcome.reason}. See the logs of "
                        "the workers; Config(timeout=) says how long they wait for each other."
                    )
                log(1, f"{outcome.reason}; going on after round {0 if progress is None else progress.n_rounds}")
        finally:
            with suppress(Exception):
                await asyncio.shield(self._end("stop"))
            self._release()

    @property
    def _scheduler(self) -> Any:
        """Which the client may have connected to anew."""
        return self._client.scheduler

    # -- an attempt ---------------------------------------------------------------------------------------------------

    async def _try(self, progress: Progress | None) -> Outcome:
        """One attempt. Never raises for the loss of a worker, as long as there are others."""
        self._attempt, self._is_pausing = uuid4().hex, False
        try:
            parts = [self._client.compute(matrix.delayed_parts()) for matrix in self._matrices]
            self._futures = [future for own in parts for future in own]
            await self._all_done(self._futures)
            facts = [self._client.map(facts_of_part, own, pure=False) for own in parts]
            self._futures += [future for own in facts for future in own]
            known = [await self._gathered(own) for own in facts]
            for matrix, own in zip(self._matrices, known):
                await matrix.settle(self._client, [n_rows for n_rows, *_ in own])
            if not sum(fact[0] for fact in known[0]):
                raise ValueError("data has no rows to train on. All partitions of it are empty.")
            live = await self.live()
            holders = await self._asked(self._scheduler.who_has(keys=[future.key for future in parts[0]]))
            order = order_workers(sorted(live), [holders.get(future.key, ()) for future in parts[0]])
            self._most_workers = sum(fact[0] > 0 for fact in known[0])
            order = order[: self._most_workers]
            given, origins = self._given(parts, known, len(order))
            self._members = order
            addresses = await self._open(order)
            meeting = Meeting(
                self._attempt, addresses, order, secrets.token_bytes(32), meeting_timeout=max(60.0, 2 * self.timeout),
                timeout=self.timeout,
            )  # fmt: skip
            plans = [matrix.plan(self._matrices) for matrix in self._matrices]
            loading = [
                self._client.submit(
                    load, meeting, rank, plans, origins[rank], given[rank], workers=[worker], allow_other_workers=False,
                    pure=False, key=f"gpuboost-load-{self._attempt}-{rank}",
                )
                for rank, worker in enumerate(order)
            ]  # fmt: skip
            self._futures += loading
            await self._all_done(loading)
            del parts, given, facts, loading
            self._release()
            self._futures = [
                self._client.submit(
                    work, self._attempt, self._function, progress, workers=[worker], allow_other_workers=False, pure=False,
                    key=f"gpuboost-work-{self._attempt}-{rank}",
                )
                for rank, worker in enumerate(order)
            ]  # fmt: skip
            self._working = list(zip(self._futures, order))
            return await self._first_outcome(self._futures)
        except _Failed as failed:
            return await self._given_up(failed)

    def _given(
        self, parts: list[list[Future]], facts: list[list[Any]], n_workers: int
    ) -> tuple[list[list[list[Future]]], list[list[Origin]]]:
        """Of each worker, its partitions of each matrix and where they come from; where it has none, one without rows."""
        given: list[list[list[Future]]] = [[] for _ in range(n_workers)]
        origins: list[list[Origin]] = [[] for _ in range(n_workers)]
        for own, known in zip(parts, facts):
            empty, first = None, [0, *accumulate(n_rows for n_rows, *_ in known)]
            for rank, numbers in enumerate(place(known, n_workers)):
                origins[rank].append(Origin(numbers or [0], [first[i] for i in numbers or [0]]))
                if not numbers and empty is None:
                    empty = self._client.submit(empty_part, own[0], pure=False)
                    self._futures.append(empty)
                given[rank].append([own[i] for i in numbers] or [empty])  # type: ignore[list-item]
        return given, origins

    async def _open(self, workers: Sequence[str]) -> list[tuple[str, int]]:
        """Every worker's door. Raises _Failed where one does not answer."""
        questions = [self.told(worker, open_seat, self._attempt) for worker in workers]
        answers = await asyncio.gather(*questions, return_exceptions=True)
        for worker, answer in zip(workers, answers):
            if isinstance(answer, OSError | KeyError):  # TimeoutError is one; of another reason it may be there the next time
                raise _Failed(f"worker {worker} does not answer", {worker} if isinstance(answer, TimeoutError) else set())
            if isinstance(answer, BaseException):
                raise answer
        return answers  # type: ignore[return-value]

    async def _first_outcome(self, futures: list[Future]) -> Outcome:
        """The first result there is; else, after all have ended, how far the workers came."""
        await self._all_done(futures, until_one=True)
        outcomes = await self._outcomes()
        done = next((outcome for outcome in outcomes if outcome.is_done), None)
        if done is not None:
            return done
        reasons = [outcome.reason for outcome in outcomes] or ["a worker has gone with its result"]
        lost = {outcome.lost for outcome in outcomes if outcome.is_silent and outcome.lost}
        raise _Failed("workers have joined" if self._is_pausing else reasons[0], lost)

    async def _outcomes(self) -> list[Outcome]:
        """Of those that have ended and are there to tell. Raises the error of the user's own doing, if there is one."""
        outcomes = []
        for future, _ in self._working:
            if future.status == "error" and not isinstance(error := await _error(future), WorkerLost):
                raise error
            if future.status == "finished":
                with suppress(Exception):  # of a worker that has gone since
                    outcomes.append(await asyncio.wait_for(_result(future), self.timeout))
        return outcomes

    async def _given_up(self, failed: _Failed) -> Outcome:
        """End an attempt everywhere, forget workers that are silent, and ask the others how far they came."""
        for worker in failed.lost:
            await self._forget(worker)
        self._members = [worker for worker in self._members if worker not in failed.lost]
        await self._end("stop")
        until = monotonic() + self.timeout
        while monotonic() < until:
            live = await self.live()
            if not any(future.status == "pending" and worker in live for future, worker in self._working):
                break
            await asyncio.sleep(FIRST_POLL)
        outcomes = await self._outcomes()
        self._release()
        for outcome in outcomes:
            if outcome.is_done:
                return outcome
        come = [outcome.progress for outcome in outcomes if outcome.progress is not None]
        best = max(come, key=lambda progress: progress.n_rounds, default=None)
        return Outcome(False, None, best, reason=str(failed))

    def _release(self) -> None:
        """Let Dask forget what the attempt has asked for."""
        for future in self._futures:
            future.release()
        self._futures, self._working = [], []

    # -- waiting ------------------------------------------------------------------------------------------------------

    async def _all_done(self, futures: Sequence[Future], until_one: bool = False) -> None:
        """Until all are finished, or one where until_one. Raises the error of one that failed, _Failed where a member is lost."""
        pause, watched = FIRST_POLL, monotonic()
        while True:
            statuses = [future.status for future in futures]
            if FAILED & {*statuses}:
                await self._raise(futures)
            n_finished = statuses.count("finished")
            if n_finished == len(futures) or (until_one and n_finished):
                return
            if monotonic() - watched > WATCH_SECONDS:
                watched = monotonic()
                await self._watch()
            await asyncio.sleep(pause)
            pause = min(1.5 * pause, LAST_POLL)

    async def _raise(self, futures: Sequence[Future]) -> None:
        """The error of futures of which one has failed: that of the user's own doing, if there is one, and best one of a row."""
        await self.live()  # where the scheduler is gone, that is the error
        lost = wrong = None
        deadline = monotonic() + 2 * WATCH_SECONDS
        while True:
            errors = [await _error(future) for future in futures if future.status in FAILED]
            own = [error for error in errors if not isinstance(error, WorkerLost | asyncio.CancelledError)]
            if wrong is not None or any(isinstance(error, RowError) for error in own):
                raise max(own, key=lambda error: isinstance(error, RowError))
            wrong, lost = next(iter(own), None), next(iter(errors), None)
            if monotonic() > deadline:  # others may have more to say
                break
            await asyncio.sleep(LAST_POLL / 4)
        name = getattr(lost, "name", "")
        raise _Failed(str(lost), {name} if name and getattr(lost, "is_silent", False) else set())

    async def _gathered(self, futures: Sequence[Future]) -> list[Any]:
        await self._all_done(futures)
        try:
            return await asyncio.wait_for(asyncio.gather(*map(_result, futures)), self.timeout)
        except TimeoutError:
            raise _Failed("a worker does not hand out what it has computed", set()) from None

    async def _watch(self) -> None:
        """Raises _Failed where a member is gone or silent; asks the members to pause where others have come."""
        live = await self.live()
        if gone := set(self._members) - live:
            raise _Failed(f"worker {min(gone)} is gone", gone)
        if self._working and not self._is_pausing and len(self._members) < min(len(live), self._most_workers):
            self._is_pausing = True
            with suppress(OSError):  # if it is gone, they will notice
                await self.told(self._members[0], end_seat, self._attempt, "pause")

    async def live(self) -> set[str]:
        """Dask's workers, without those that have been silent for too long. Raises RuntimeError where there are none."""
        until = monotonic() + self._patience
        while True:
            known = await self._known()
            now, live = monotonic(), set()
            for worker, facts in known.items():
                seen, new = self._heard.get(worker, (None, now))
                if seen != facts["last_seen"]:
                    new = now
                self._heard[worker] = facts["last_seen"], new
                is_meant = self._only is None or not self._only.isdisjoint((worker, facts.get("name"), facts.get("host")))
                if not is_meant or worker in self._forgotten:
                    continue
                if now - new < self._patience:
                    live.add(worker)
                else:
                    await self._forget(worker)
            if live:
                return live
            if now > until:
                meant = ", ".join(map(str, self._only or ()))
                named = f" of those that dask.annotate names ({meant})" if meant else ""
                raise RuntimeError(
                    f"no worker is left: none{named} has been there for {self._patience:g} s. Start workers, and train again; "
                    "with fewer rows on each if they ran out of memory."
                )
            await asyncio.sleep(LAST_POLL)

    async def _known(self) -> dict[str, Any]:
        """What the scheduler says of its workers, by address. Those that have died are not there, as soon as it notices."""
        return (await self._asked(self._scheduler.identity(n_workers=-1)))["workers"]

    async def _forget(self, worker: str) -> None:
        """Have Dask make anew what a worker had that has died or is silent."""
        self._forgotten.add(worker)
        with suppress(Exception):  # it may be gone
            question = self._scheduler.unregister(address=worker, stimulus_id=f"gpuboost-{uuid4().hex}")
            await asyncio.wait_for(question, self.timeout)

    async def _asked(self, question: Awaitable[T]) -> T:
        """The scheduler's answer. Raises RuntimeError where there is none."""
        try:
            return await asyncio.wait_for(question, self.timeout)
        except (OSError, TimeoutError) as error:
            raise RuntimeError(
                f"the Dask scheduler does not answer: {error or 'no reply'}. Start a cluster and a new client, and train again."
            ) from None

    async def told(self, worker: str, function: Callable[..., T], *args: Any) -> T:
        """function(*args) on a worker, beside its tasks. Raises OSError where it is gone, TimeoutError where it is silent."""
        question = asyncio.ensure_future(self._client.run(function, *args, workers=[worker]))
        until = monotonic() + self.timeout
        try:
            while not (await asyncio.wait([question], timeout=WATCH_SECONDS))[0]:
                if worker not in await self._known():  # Dask itself tries for half a minute to reach it
                    raise ConnectionError(f"worker {worker} is gone")
                if monotonic() > until:
                    raise TimeoutError(f"worker {worker} does not answer")
            return (await question)[worker]
        finally:
            question.cancel()

    async def _end(self, how: str) -> None:
        """Tell all members that the attempt is over, as far as they hear it."""
        told = [self.told(worker, end_seat, self._attempt, how) for worker in self._members]
        await asyncio.gather(*told, return_exceptions=True)


async def _result(future: Future) -> Any:
    return await future


async def _error(future: Future) -> BaseException:
    """What a future failed with."""
    try:
        await future
    except BaseException as error:  # noqa: BLE001 - handed to the caller
        if future.status in ("cancelled", "lost") and not isinstance(error, WorkerLost):
            if str(future.key).startswith(("gpuboost-load-", "gpuboost-work-")):
                return RuntimeError(f"the task {future.key} was cancelled.")
            return RuntimeError(
                f"a partition is lost, and Dask does not know how to make it again ({future.key}). Pass a collection, or "
                "partitions that are delayed, rather than data that was scattered."
            )
        return error
    return WorkerLost(f"{future.key} was lost with a worker, and has been made again meanwhile")
