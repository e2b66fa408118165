"""Sums and maxima over workers that are processes.

Small arrays go up a binary tree and down again, 2·log2 W messages one after another. Large ones go round a ring in W parts
(reduce-scatter, then all-gather): a worker sends 2 (W − 1) / W of the array, whatever their number.

    ring, W = 3, parts a b c       worker 0   worker 1   worker 2
    reduce-scatter, step 0         a →        b →        c →         each adds what it gets to its own
    reduce-scatter, step 1         c' →       a' →       b' →        now worker 0 has all of b, 1 of c, 2 of a
    all-gather, steps 2, 3         b →        c →        a →         …

Integer sums do not depend on the order of their terms, so either way gives the same bits.
"""

import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any

import numpy as np

from gpuboost.communicator import Communicator
from gpuboost.network.links import Link, Listener, WorkerLost, wait_for
from gpuboost.network.wire import ABORT, DATA, MAGIC, PULSE, Header, pack_values

__all__ = ["TcpWorker", "join"]

TREE_BYTES = 1 << 15  # arrays up to this size go by the tree
SUM, MAXIMUM, LEAVE = 1, 2, 3  # operations
COMBINE: dict[int, Callable[..., Any]] = {SUM: np.add, MAXIMUM: np.maximum, LEAVE: np.add}
PULSES = 6  # signs of life within a timeout
LINGER_SECONDS = 5.0  # for the others' last bytes, when leaving


def join(
    listener: Listener, rank: int, addresses: Sequence[tuple[str, int]], names: Sequence[str], token: bytes,
    timeout: float = 30.0, **meeting: Any,
) -> "TcpWorker":  # fmt: skip
    """Meet the other workers of a job, as Listener.meet says, and become one of them."""
    return TcpWorker(rank, len(addresses), listener.meet(rank, addresses, names, token, **meeting), timeout)


class TcpWorker(Communicator):
    """A worker connected to its neighbours (join), for arrays of NumPy; a GpuWorker around it has others.

    timeout : seconds. A worker sends signs of life while it computes, so one that is waited for and says nothing for so long has
    stopped: that raises WorkerLost, here and on all others, as does one that is gone.
    bytes_sent, n_messages : so far.
    """

    def __init__(self, rank: int, size: int, links: dict[int, Link], timeout: float) -> None:
        self.rank, self.size, self.timeout = rank, size, timeout
        self.n_messages = 0
        self._links = links
        self._sequence = 0
        self._failure: BaseException | None = None
        self._is_over = threading.Event()
        self._pulse = threading.Thread(target=self._show_life, daemon=True, name=f"gpuboost-pulse-{rank}")
        if links:
            self._pulse.start()

    @property
    def bytes_sent(self) -> int:
        return sum(link.bytes_sent for link in self._links.values())

    def allreduce_sum(self, array: Any) -> None:
        self._reduce(array, SUM)

    def allreduce_max(self, array: Any) -> None:
        self._reduce(array, MAXIMUM)

    def abort(self, reason: BaseException) -> None:
        """From any thread: what the workers do together ends, with this error here and WorkerLost on the others."""
        if self._failure is None:
            self._failure = reason
        lost = reason if isinstance(reason, WorkerLost) else WorkerLost(f"worker {self.rank} has given up: {reason}")
        for link in self._links.values():
            link.signal(ABORT, f"{int(lost.is_silent)}\n{lost.name}\n{lost}")
            link.hang_up()

    def leave(self) -> None:
        """Wait for the others to finish too; one that still wants to exchange an array finds out. Ends the connections."""
        try:
            self._reduce(np.zeros(1, np.int64), LEAVE)
        finally:
            self.close()

    def close(self) -> None:
        """End the connections, after the others have read what is on its way to them."""
        self._is_over.set()
        deadline = monotonic() + (LINGER_SECONDS if self._failure is None else 0.0)
        for link in self._links.values():
            link.hang_up(socket.SHUT_WR)
        for link in self._links.values():
            with suppress(WorkerLost):  # the end of what the other one sends
                while self._failure is None and monotonic() < deadline and link.arrived is None:
                    if not link.poll():
                        wait_for([link], [], deadline - monotonic())
            link.close()

    # -- exchanging ---------------------------------------------------------------------------------------------------

    def _reduce(self, array: Any, operation: int) -> None:
        if self._failure is not None:
            raise self._failure
        if self.size == 1:
            return
        values = np.ascontiguousarray(array, dtype=np.int64).reshape(-1)
        if not len(values):
            return
        is_small = values.nbytes <= TREE_BYTES or len(values) < self.size
        self._sequence = (self._sequence + 1) % 2**32
        try:
            total = self._by_tree(values, operation) if is_small else self._by_ring(values, operation)
        except BaseException as error:
            error = self._failure or error
            self.abort(error)
            raise error from None
        if not np.may_share_memory(total, array):
            array[...] = total.reshape(array.shape)

    def _by_tree(self, values: np.ndarray, operation: int) -> np.ndarray:
        children = [self._links[child] for child in (2 * self.rank + 1, 2 * self.rank + 2) if child < self.size]
        for part in self._exchange(operation, [], [(child, len(values)) for child in children]):
            values = COMBINE[operation](values, part)
        if self.rank:
            parent = self._links[(self.rank - 1) // 2]
            self._exchange(operation, [(parent, values)], [])
            (values,) = self._exchange(operation, [], [(parent, len(values))])
        self._exchange(operation, [(child, values) for child in children], [])
        return values

    def _by_ring(self, values: np.ndarray, operation: int) -> np.ndarray:
        """In place."""
        size, n = self.size, len(values)
        parts = [values[n * i // size : n * (i + 1) // size] for i in range(size)]
        after, before = self._links[(self.rank + 1) % size], self._links[(self.rank - 1) % size]
        for step in range(2 * (size - 1)):
            own, other = (self.rank - step) % size, (self.rank - step - 1) % size
            (came,) = self._exchange(operation, [(after, parts[own])], [(before, len(parts[other]))])
            if step < size - 1:
                COMBINE[operation](parts[other], came, out=parts[other])
            else:
                parts[other][...] = came
        return values

    def _exchange(self, operation: int, sent: list[tuple[Link, np.ndarray]], awaited: list[tuple[Link, int]]) -> list[np.ndarray]:
        """Send arrays and receive others, of known lengths, at the same time."""
        for link, values in sent:
            payload = pack_values(values)
            n_bytes = sum(len(part) for part in payload)
            link.start_sending(Header(MAGIC, DATA, operation, self._sequence, len(values), n_bytes), payload)
            self.n_messages += 1
        links = list({id(link): link for link, _ in [*sent, *awaited]}.values())
        open_ends, begin = [link for link, _ in awaited], monotonic()
        received: dict[int, np.ndarray] = {}
        lengths = {id(link): n for link, n in awaited}
        while True:
            has_moved = False
            for link in links:
                has_moved |= link.push()
                if link.is_sending or link in open_ends:  # a worker that got its last sum may have closed the connection
                    has_moved |= link.poll()
                if link.arrived is not None and link in open_ends:
                    self._check(link, operation, lengths[id(link)])
                    has_moved |= link.pull()
                    if link.is_whole:
                        received[id(link)] = link.take()
                        open_ends.remove(link)
                        has_moved = True
            busy = [link for link in links if link.is_sending or link in open_ends]
            if not busy:
                return [received[id(link)] for link, _ in awaited]
            if self._failure is not None:
                raise self._failure
            if not has_moved:
                self._wait(busy, open_ends, begin)

    def _wait(self, busy: list[Link], awaited: list[Link], begin: float) -> None:
        """For one of the links to move. Raises WorkerLost where a worker has been silent for too long."""
        left = min(max(link.heard, begin) for link in busy) + self.timeout - monotonic()
        if left <= 0:
            silent = min(busy, key=lambda link: link.heard)
            raise silent.lost(f"nothing was heard from it for {self.timeout:g} s", is_silent=True)
        wait_for(busy, awaited, left)

    def _check(self, link: Link, operation: int, n_values: int) -> None:
        assert link.arrived is not None
        own, theirs = (operation, self._sequence, n_values), link.arrived[2:5]
        if theirs == own:
            return
        if LEAVE in (theirs[0], operation):
            raise RuntimeError("a worker has finished while others still exchange arrays. All workers must make the same calls.")
        raise ValueError(
            f"workers met with different arrays: worker {link.rank} ({link.name}) sends {theirs[2]} values in its call "
            f"{theirs[1]}, here {own[2]} are awaited in call {own[1]}. All workers must make the same calls."
        )

    def _show_life(self) -> None:
        while not self._is_over.wait(self.timeout / PULSES):
            for link in self._links.values():
                link.signal(PULSE)
