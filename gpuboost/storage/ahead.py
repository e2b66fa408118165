"""Read ahead: while one thing is worked on, a thread gets the next."""

from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

__all__ = ["read_ahead"]

Item = TypeVar("Item")


def read_ahead(reads: Iterable[Callable[[], Item]]) -> Generator[Item]:
    """What these calls return, in order. Each is made by one thread while what the one before it returned is in use, and no
    sooner: two buffers are enough. Raises what they raise."""
    with ThreadPoolExecutor(1, "gpuboost-read-ahead") as thread:
        pending: Future[Item] | None = None
        for read in reads:
            following = thread.submit(read)
            if pending is not None:
                yield pending.result()
            pending = following
        if pending is not None:
            yield pending.result()
